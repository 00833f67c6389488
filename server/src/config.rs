//! The server's options: command line, then environment, then file, then default.
//!
//! `clap` reads the first two, [`Settings::read_file`] the third; [`Settings::or`] puts them together and
//! [`Options::from_settings`] checks the whole and fills in the defaults. `values` reads what needs more than a type.

mod cluster;
mod digest;
mod values;

pub use cluster::{ClusterMode, ClusterOptions, ClusterSettings, Election, OnLostLease};
pub use values::{Seconds, parse_addr, parse_token};

use crate::database::Database;
use crate::failure::Failure;
use clap::{Args, CommandFactory, ValueEnum};
use orbit_core::definition::nearest;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use values::addr_of_text;

/// The options of `orbit server`, each as far as it was given.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
pub struct Settings {
    /// The database: a SQLite file, made where there is none, or postgres://user@host/database [default: orbit.db].
    #[arg(long, env = "ORBIT_DB", value_name = "FILE|URL", hide_env_values = true)]
    pub db: Option<String>,
    /// Whether the server brings the tables of a PostgreSQL database up to date when it starts [default: auto].
    #[arg(long, env = "ORBIT_MIGRATE", value_enum)]
    pub migrate: Option<MigrateWhen>,
    /// The address to serve [default: 127.0.0.1:7233].
    #[arg(long, env = "ORBIT_ADDR", value_name = "HOST:PORT", value_parser = parse_addr)]
    #[serde(default, deserialize_with = "addr_of_text")]
    pub addr: Option<SocketAddr>,
    /// The bearer token that clients and workers must send [default: none].
    #[arg(long, env = "ORBIT_TOKEN", hide_env_values = true, value_parser = parse_token)]
    pub token: Option<String>,
    /// This server's name, for people [default: the host's name].
    #[arg(long, env = "ORBIT_NODE_ID", value_name = "NAME")]
    pub node_id: Option<String>,
    /// A worker that is silent for so long is lost, and what it held is delivered again [default: 30].
    #[arg(long, env = "ORBIT_SESSION_TIMEOUT", value_name = "SECONDS", value_parser = Seconds::parse)]
    pub session_timeout: Option<Seconds>,
    /// How often workers are told to heartbeat [default: a sixth of the session timeout].
    #[arg(long, env = "ORBIT_HEARTBEAT_INTERVAL", value_name = "SECONDS", value_parser = Seconds::parse)]
    pub heartbeat_interval: Option<Seconds>,
    /// How often the server checks that it is still the one that writes [default: 1].
    #[arg(long, env = "ORBIT_CHECK_INTERVAL", value_name = "SECONDS", value_parser = Seconds::parse)]
    pub check_interval: Option<Seconds>,
    /// What becomes of executions of which an attempt is out when the server takes over, or is started again [default: auto].
    #[arg(long, env = "ORBIT_RECOVERY", value_enum)]
    pub recovery: Option<Recovery>,
    /// Running executions; past it starts are refused [default: 100000].
    #[arg(long, env = "ORBIT_MAX_ACTIVE_EXECUTIONS", value_name = "N")]
    pub max_active_executions: Option<u64>,
    /// Events of one history; past it the execution fails [default: 50000].
    #[arg(long, env = "ORBIT_MAX_HISTORY_EVENTS", value_name = "N")]
    pub max_history_events: Option<u64>,
    /// Items of the list of one `for` step; past it the execution fails [default: 10000].
    #[arg(long, env = "ORBIT_MAX_FAN_OUT", value_name = "N")]
    pub max_fan_out: Option<u64>,
    /// Signals and updates of one execution that nothing has taken; past it further ones are refused [default: 1000].
    #[arg(long, env = "ORBIT_MAX_PENDING_SIGNALS", value_name = "N")]
    pub max_pending_signals: Option<u64>,
    /// Children that one run of an execution starts; past it they fail [default: 10000].
    #[arg(long, env = "ORBIT_MAX_CHILDREN", value_name = "N")]
    pub max_children: Option<u64>,
    /// How deep children lie within each other; past it they fail [default: 8].
    #[arg(long, env = "ORBIT_MAX_CHILD_DEPTH", value_name = "N")]
    pub max_child_depth: Option<u64>,
    /// Bytes of one input, result or signal's payload as JSON text [default: 1048576].
    #[arg(long, env = "ORBIT_MAX_PAYLOAD_BYTES", value_name = "N")]
    pub max_payload_bytes: Option<u64>,
    /// Bytes of one request's body [default: 4194304].
    #[arg(long, env = "ORBIT_BODY_LIMIT", value_name = "N")]
    pub body_limit: Option<u64>,
    /// Open connections; further ones are refused [default: 10000].
    #[arg(long, env = "ORBIT_MAX_CONNECTIONS", value_name = "N")]
    pub max_connections: Option<u64>,
    /// Open worker sessions; past it registrations are refused [default: 10000].
    #[arg(long, env = "ORBIT_MAX_WORKER_SESSIONS", value_name = "N")]
    pub max_worker_sessions: Option<u64>,
    #[command(flatten)]
    #[serde(skip)]
    pub log: LogSettings,
    #[command(flatten)]
    #[serde(skip)]
    pub cluster: ClusterSettings,
    #[command(flatten)]
    #[serde(skip)]
    pub later: LaterSettings,
}

/// The options of the log.
#[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
pub struct LogSettings {
    /// The form of log lines on stderr [default: text].
    #[arg(long, env = "ORBIT_LOG_FORMAT", value_enum)]
    pub log_format: Option<LogFormat>,
    /// What is logged: error, warn, info, debug, trace, or directives such as `info,orbit_runtime::engine=warn`
    /// [default: info].
    #[arg(long, env = "ORBIT_LOG_LEVEL", value_name = "LEVEL")]
    pub log_level: Option<String>,
}

/// Whether tables are changed at the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MigrateWhen {
    /// Brought up to date.
    #[default]
    Auto,
    /// Only looked at: `orbit db migrate up` changes them, and the server needs no right to.
    Never,
}

/// What a server that takes over does with executions of which an attempt is out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Recovery {
    /// They go on.
    #[default]
    Auto,
    /// They wait until `orbit executions recover`.
    Hold,
}

/// The form of log lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    #[default]
    Text,
    Json,
}

macro_rules! later {
    ($($field:ident, $option:literal, $env:literal;)+) => {
        /// Options of later releases: known, so that they are refused with a reason rather than as a slip of the pen.
        #[derive(Clone, Debug, Default, PartialEq, Args, Deserialize)]
        pub struct LaterSettings {
            $(
                #[arg(long, env = $env, hide = true)]
                #[serde(default, deserialize_with = "given")]
                pub $field: Option<String>,
            )+
        }

        impl LaterSettings {
            fn or(self, other: LaterSettings) -> LaterSettings {
                LaterSettings { $($field: self.$field.or(other.$field)),+ }
            }

            /// Those that were given, by the name that is typed.
            fn given(&self) -> impl Iterator<Item = &'static str> {
                [$((&self.$field, $option)),+].into_iter().filter(|(value, _)| value.is_some()).map(|(_, name)| name)
            }
        }
    };
}

later! {
    node_timeout, "--node-timeout", "ORBIT_NODE_TIMEOUT";
    hide_addresses, "--hide-addresses", "ORBIT_HIDE_ADDRESSES";
    enable_http_adapter, "--enable-http-adapter", "ORBIT_ENABLE_HTTP_ADAPTER";
    grpc_addr, "--grpc-addr", "ORBIT_GRPC_ADDR";
    workers_file, "--workers-file", "ORBIT_WORKERS_FILE";
}

/// Variables among `names` that are no variables of Orbit and look like one: each with the one that is near.
pub fn misspelt_variables(names: impl Iterator<Item = String>) -> Vec<(String, String)> {
    const PREFIX: &str = "ORBIT_";
    fn add(command: &clap::Command, known: &mut BTreeSet<String>) {
        let variables = command.get_arguments().filter_map(|argument| argument.get_env());
        known.extend(variables.map(|name| name.to_string_lossy().into_owned()));
        command.get_subcommands().for_each(|command| add(command, known));
    }
    let mut known = BTreeSet::new();
    add(&crate::cli::Cli::command(), &mut known);
    let misspelt = |name: String| {
        let own = name.strip_prefix(PREFIX).filter(|_| !known.contains(&name))?;
        let meant = nearest(own, known.iter().filter_map(|known| known.strip_prefix(PREFIX)))?;
        Some((name.clone(), format!("{PREFIX}{meant}")))
    };
    names.filter_map(misspelt).collect()
}

/// Tells of variables of this process that look misspelt: they set nothing.
pub fn warn_of_misspelt_variables() {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    for (name, meant) in misspelt_variables(names) {
        tracing::warn!(target: "orbit_runtime::server", "{name} is no variable of Orbit, and sets nothing; did you mean {meant}?");
    }
}

/// Whatever the value is: that it is there is enough to refuse it.
fn given<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    serde::de::IgnoredAny::deserialize(deserializer)?;
    Ok(Some(String::new()))
}

impl Settings {
    /// Reads a file of options.
    pub fn read_file(path: &Path) -> Result<Settings, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("the configuration {} cannot be read: {error}", path.display())))?;
        Settings::parse(&text).map_err(|problem| {
            Failure::usage(format!("the configuration {} is wrong: {}", path.display(), problem.message))
                .hint(problem.hint.unwrap_or_else(|| "`orbit server --help` shows every option".into()))
        })
    }

    /// The options that a file gives, by their keys.
    pub fn keys_of_file(path: &Path) -> Result<Vec<String>, Failure> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("the configuration {} cannot be read: {error}", path.display())))?;
        Ok(read::<toml::Table>(&text)?.keys().cloned().collect())
    }

    fn parse(text: &str) -> Result<Settings, Failure> {
        let table: toml::Table = read(text)?;
        let known = known_keys();
        if let Some(unknown) = table.keys().find(|key| !known.contains(key)) {
            let meant = nearest(&unknown.replace('-', "_"), known.iter().map(String::as_str));
            return Err(Failure::usage(format!("there is no option `{unknown}`")).hint(match meant {
                Some(nearest) => format!("did you mean `{nearest}`?"),
                None => format!("the options are {}", known.join(", ")),
            }));
        }
        // From the text each, not from the table: so a message points at the line.
        let settings: Settings = read(text)?;
        Ok(Settings { log: read(text)?, cluster: read(text)?, later: read(text)?, ..settings })
    }

    /// What stands here, and where nothing does, what stands in `other`.
    #[must_use]
    pub fn or(self, other: Settings) -> Settings {
        Settings {
            db: self.db.or(other.db),
            migrate: self.migrate.or(other.migrate),
            addr: self.addr.or(other.addr),
            token: self.token.or(other.token),
            node_id: self.node_id.or(other.node_id),
            session_timeout: self.session_timeout.or(other.session_timeout),
            heartbeat_interval: self.heartbeat_interval.or(other.heartbeat_interval),
            check_interval: self.check_interval.or(other.check_interval),
            recovery: self.recovery.or(other.recovery),
            max_active_executions: self.max_active_executions.or(other.max_active_executions),
            max_history_events: self.max_history_events.or(other.max_history_events),
            max_fan_out: self.max_fan_out.or(other.max_fan_out),
            max_pending_signals: self.max_pending_signals.or(other.max_pending_signals),
            max_children: self.max_children.or(other.max_children),
            max_child_depth: self.max_child_depth.or(other.max_child_depth),
            max_payload_bytes: self.max_payload_bytes.or(other.max_payload_bytes),
            body_limit: self.body_limit.or(other.body_limit),
            max_connections: self.max_connections.or(other.max_connections),
            max_worker_sessions: self.max_worker_sessions.or(other.max_worker_sessions),
            cluster: self.cluster.or(other.cluster),
            log: self.log.or(other.log),
            later: self.later.or(other.later),
        }
    }
}

impl LogSettings {
    #[must_use]
    fn or(self, other: LogSettings) -> LogSettings {
        LogSettings { log_format: self.log_format.or(other.log_format), log_level: self.log_level.or(other.log_level) }
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, Failure> {
    toml::from_str(text).map_err(|error| Failure::usage(error.to_string().trim_end()))
}

/// The keys of a file: the names of the options, with `_`.
fn known_keys() -> Vec<String> {
    let command = Settings::augment_args(clap::Command::new("server"));
    command.get_arguments().map(|argument| argument.get_id().to_string()).collect()
}

/// Everything that a server is started with, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    pub db: Database,
    pub migrate: MigrateWhen,
    pub addr: SocketAddr,
    pub token: Option<String>,
    pub node_id: String,
    pub session_timeout: Duration,
    pub heartbeat_interval: Duration,
    pub check_interval: Duration,
    pub recovery: Recovery,
    /// None: alone.
    pub cluster: Option<ClusterOptions>,
    pub max_active_executions: u64,
    pub max_history_events: u64,
    pub max_fan_out: u64,
    pub max_pending_signals: u64,
    pub max_children: u64,
    pub max_child_depth: u64,
    pub max_payload_bytes: u64,
    pub body_limit: u64,
    pub max_connections: u64,
    pub max_worker_sessions: u64,
}

impl Options {
    /// Checks the options and fills in the defaults.
    pub fn from_settings(settings: Settings) -> Result<Options, Failure> {
        let db = Database::parse(settings.db.as_deref().unwrap_or("orbit.db"))?;
        settings.later.refuse()?;
        let limits = orbit_core::node::Limits::default();
        let session_timeout = settings.session_timeout.map_or(Duration::from_secs(30), |given| given.0);
        if session_timeout < Duration::from_millis(500) {
            return Err(Failure::usage(format!(
                "--session-timeout is {} s; give at least 0.5 s, or workers are lost between two heartbeats",
                session_timeout.as_secs_f64()
            )));
        }
        let heartbeat_interval = settings.heartbeat_interval.map_or(session_timeout / 6, |given| given.0);
        if heartbeat_interval < Duration::from_millis(20) || heartbeat_interval * 2 > session_timeout {
            return Err(Failure::usage(format!(
                "--heartbeat-interval is {} s; give between 0.02 s and half the session timeout ({} s)",
                heartbeat_interval.as_secs_f64(),
                session_timeout.as_secs_f64() / 2.0
            )));
        }
        let check_interval = settings.check_interval.map_or(Duration::from_secs(1), |given| given.0);
        if check_interval < Duration::from_millis(50) {
            return Err(Failure::usage(format!(
                "--check-interval is {} s; give at least 0.05 s",
                check_interval.as_secs_f64()
            )));
        }
        let at_least_one = |option: &str, given: Option<u64>, default: u64| match given {
            Some(0) => Err(Failure::usage(format!("{option} is 0; give at least 1"))),
            given => Ok(given.unwrap_or(default)),
        };
        let addr = settings.addr.unwrap_or_else(default_addr);
        let cluster = settings.cluster.options(&db, addr, check_interval)?;
        Ok(Options {
            db,
            migrate: settings.migrate.unwrap_or_default(),
            addr,
            cluster,
            token: settings
                .token
                .map(|token| parse_token(&token))
                .transpose()
                .map_err(|error| Failure::usage(format!("invalid value '' for token: {error}")))?,
            node_id: settings.node_id.map_or_else(|| Ok(default_node_id()), check_node_id)?,
            session_timeout,
            heartbeat_interval,
            check_interval,
            recovery: settings.recovery.unwrap_or_default(),
            max_active_executions: at_least_one(
                "--max-active-executions",
                settings.max_active_executions,
                limits.max_active_executions,
            )?,
            max_history_events: at_least_one(
                "--max-history-events",
                settings.max_history_events,
                limits.max_history_events,
            )?,
            max_fan_out: at_least_one("--max-fan-out", settings.max_fan_out, limits.max_fan_out)?,
            max_pending_signals: at_least_one(
                "--max-pending-signals",
                settings.max_pending_signals,
                limits.max_pending_signals,
            )?,
            max_children: at_least_one("--max-children", settings.max_children, limits.max_children)?,
            max_child_depth: at_least_one("--max-child-depth", settings.max_child_depth, limits.max_child_depth)?,
            max_payload_bytes: at_least_one(
                "--max-payload-bytes",
                settings.max_payload_bytes,
                limits.max_payload_bytes,
            )?,
            body_limit: at_least_one("--body-limit", settings.body_limit, 4 << 20)?,
            max_connections: at_least_one("--max-connections", settings.max_connections, 10_000)?,
            max_worker_sessions: at_least_one(
                "--max-worker-sessions",
                settings.max_worker_sessions,
                limits.max_worker_sessions,
            )?,
        })
    }
}

impl LaterSettings {
    /// Says that options of later releases cannot be given yet.
    fn refuse(&self) -> Result<(), Failure> {
        match self.given().next() {
            None => Ok(()),
            Some(option) => {
                Err(Failure::usage(format!("{option} is not in this version of Orbit")).hint("leave it out"))
            }
        }
    }
}

/// The address that is served where none is given.
pub fn default_addr() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 7233))
}

/// A node id that was given (interfaces, "HTTP": at most 48 bytes).
fn check_node_id(id: String) -> Result<String, Failure> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._:@+-".contains(c);
    if (1..=48).contains(&id.len()) && id.chars().all(allowed) {
        return Ok(id);
    }
    Err(Failure::usage(format!("{id:?} is no node id; give 1 to 48 of the characters A-Z a-z 0-9 . _ : @ + -")))
}

/// The host's name: `$HOSTNAME`, then `/etc/hostname`.
pub fn host() -> String {
    let named = std::env::var("HOSTNAME").ok().filter(|name| !name.trim().is_empty());
    let name = named.or_else(|| std::fs::read_to_string("/etc/hostname").ok()).unwrap_or_default();
    match name.trim() {
        "" => "localhost".into(),
        name => name.into(),
    }
}

/// The host's name as far as a node id may hold it.
pub fn default_node_id() -> String {
    let id: String = host().chars().filter(|c| c.is_ascii_alphanumeric() || "._:@+-".contains(*c)).take(48).collect();
    if id.is_empty() { "localhost".into() } else { id }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> Failure {
        let settings = Settings::parse(text).expect("each key is known");
        Options::from_settings(settings).expect_err("it must be refused")
    }

    #[test]
    fn what_is_typed_wins_over_the_file_and_the_file_over_the_default() {
        let typed = Settings { session_timeout: Some(Seconds(Duration::from_secs(5))), ..Default::default() };
        let file = Settings::parse("session_timeout = 7\ncheck_interval = 0.5\nlog_format = 'json'").unwrap();
        let settings = typed.or(file);
        assert_eq!(settings.log.log_format, Some(LogFormat::Json));
        let options = Options::from_settings(settings).unwrap();
        assert_eq!(options.session_timeout, Duration::from_secs(5));
        assert_eq!(options.check_interval, Duration::from_millis(500));
        assert_eq!(options.max_payload_bytes, 1 << 20);
        assert_eq!(options.addr.to_string(), "127.0.0.1:7233");
        assert_eq!(Settings::parse("addr = 'localhost:1'").unwrap().addr.unwrap().port(), 1);
    }

    #[test]
    fn a_variable_that_looks_like_a_known_one_is_told_with_it() {
        let names = ["ORBIT_SESION_TIMEOUT", "ORBIT_DB", "ORBIT_BIN", "ORBIT_", "PATH", "ORBIT_TOKNE", "ORBIT_SERVRE"];
        let found = misspelt_variables(names.into_iter().map(str::to_owned));
        let found: Vec<(&str, &str)> = found.iter().map(|(name, meant)| (name.as_str(), meant.as_str())).collect();
        let expected = [
            ("ORBIT_SESION_TIMEOUT", "ORBIT_SESSION_TIMEOUT"),
            ("ORBIT_TOKNE", "ORBIT_TOKEN"),
            ("ORBIT_SERVRE", "ORBIT_SERVER"),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_name() {
        for (text, nearest) in [
            ("session-timeout = 1", "did you mean `session_timeout`?"),
            ("sesion_timeuot = 1", "did you mean `session_timeout`?"),
            ("Token = 'x'", "did you mean `token`?"),
        ] {
            assert_eq!(Settings::parse(text).unwrap_err().hint.as_deref(), Some(nearest));
        }
        let far = Settings::parse("zzzzzzzzz = 1").unwrap_err();
        assert!(far.message.contains("no option `zzzzzzzzz`") && far.hint.unwrap().contains("max_payload_bytes"));
    }

    #[test]
    fn a_value_of_the_wrong_type_is_refused_with_its_line() {
        let failure = Settings::parse("node_id = 'a'\naddr = 7\n").unwrap_err();
        assert!(failure.message.contains("line 2"), "{}", failure.message);
        assert!(Settings::parse("session_timeout = -1").unwrap_err().message.contains("between 0 and a year"));
    }

    #[test]
    fn values_that_cannot_work_are_refused_with_what_would() {
        assert!(refused("session_timeout = 0.1").message.contains("at least 0.5 s"));
        assert!(refused("session_timeout = 1\nheartbeat_interval = 0.6").message.contains("half the session timeout"));
        assert!(refused("check_interval = 0").message.contains("at least 0.05 s"));
        assert!(refused("max_pending_signals = 0").message.contains("--max-pending-signals is 0"));
        assert!(refused("max_history_events = 0").message.contains("--max-history-events is 0"));
        assert!(refused("node_id = 'a b'").message.contains("1 to 48"));
    }

    #[test]
    fn options_of_later_releases_are_refused_with_their_reason() {
        assert_eq!(refused("grpc_addr = 'x'").message, "--grpc-addr is not in this version of Orbit");
        assert_eq!(refused("node_timeout = 5").message, "--node-timeout is not in this version of Orbit");
        let shared = "db = 'postgres://u@localhost/d'\ncluster = true\ncluster_mode = 'shared'";
        assert_eq!(refused(shared).message, "--cluster-mode shared is not in this version of Orbit");
    }

    #[test]
    fn a_cluster_is_on_postgresql_and_its_times_fit_together() {
        let on_sqlite = "--cluster requires a PostgreSQL database (--db postgres://...): the servers share it for \
                         leader election and history";
        assert_eq!(refused("cluster = true").message, on_sqlite);
        for option in
            ["advertise_addr = 'http://a'", "leader_validity = 4", "on_lost_lease = 'exit'", "election = 'lock'"]
        {
            let name = option.split_once(' ').unwrap().0.replace('_', "-");
            assert_eq!(refused(option).message, format!("--{name} requires --cluster"));
        }
        let with = |options: &str| format!("db = 'postgres://u@localhost/d'\ncluster = true\n{options}");
        for (options, says) in [
            ("leader_validity = 1", "at least twice"),
            ("leader_validity = 6", "a successor is elected while it still serves"),
            ("election_session_timeout = 3", "a successor is elected while it still serves"),
            ("advertise_addr = 'orbit-0:7233'", "such as http://orbit-0:7233"),
            ("advertise_addr = 'tcp://orbit-0:7233'", "such as http://orbit-0.internal:7233"),
            ("advertise_addr = 'http://0.0.0.0:7233'", "a wildcard is no address"),
            ("advertise_addr = 'http://[::]:7233'", "a wildcard is no address"),
            ("advertise_addr = 'http://*:7233'", "a wildcard is no address"),
            ("advertise_addr = 'https://a:1/orbit/'", "such as https://a:1"),
            ("advertise_addr = 'http://u:p@a:1'", "it holds a user"),
            ("advertise_addr = 'http://a:0'", "its port is none"),
            ("advertise_addr = 'http://a:x'", "its port is none"),
            ("advertise_addr = 'http://::1:7233'", "it names no host"),
            ("advertise_addr = 'http://'", "it names no host"),
            ("advertise_addr = \"http://a\\r\\nx: y\"", "the URL"),
        ] {
            let message = refused(&with(options)).message;
            assert!(message.contains(says), "{options}: {message}");
        }
        let given = |options: &str| {
            let settings = Settings::parse(&with(options)).unwrap();
            Options::from_settings(settings).unwrap().cluster.expect("in a cluster")
        };
        let usual = given("");
        assert_eq!(usual.advertise_addr.as_deref(), Some("http://127.0.0.1:7233"));
        assert_eq!((usual.leader_validity.as_secs(), usual.election_session_timeout.as_secs()), (3, 5));
        assert_eq!(given("addr = '0.0.0.0:1'").advertise_addr, None);
        assert_eq!(given("advertise_addr = 'https://a/'").advertise_addr.as_deref(), Some("https://a"));
        assert!(Options::from_settings(Settings::parse("cluster = false").unwrap()).unwrap().cluster.is_none());
    }

    #[test]
    fn the_hosts_name_makes_a_valid_node_id() {
        assert_eq!(check_node_id(default_node_id()), Ok(default_node_id()));
    }
}
