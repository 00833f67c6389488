//! `orbit config show`

use crate::cli::{ConfigArgs, ConfigCommand};
use crate::config::{ClusterOptions, Election, LogSettings, Options, Settings};
use crate::failure::Failure;
use crate::output::{self, Table};
use crate::telemetry;
use clap::builder::PossibleValue;
use clap::parser::ValueSource;
use clap::{ArgMatches, ValueEnum};
use serde::Serialize;
use serde_json::{Value, json};
use std::time::Duration;

/// What is shown of a secret.
const HIDDEN: &str = "(hidden)";

/// One setting as it holds, and why.
#[derive(Debug, PartialEq, Serialize)]
struct Setting {
    /// The option without its dashes, as the file has it.
    name: String,
    /// Null where there is none.
    value: Value,
    /// `default`, `file`, `environment` or `command line`.
    source: &'static str,
    /// The file or the variable.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<String>,
}

/// Shows what `orbit server` would be started with here. `matches` is the whole command line.
pub fn run(command: ConfigCommand, matches: &ArgMatches) -> Result<(), Failure> {
    let ConfigCommand::Show(arguments) = command;
    let typed = matches.subcommand_matches("config").and_then(|config| config.subcommand_matches("show"));
    let settings = settings(&arguments, typed.expect("this is `orbit config show`"))?;
    output::list(
        arguments.output.form,
        &json!({"settings": settings}),
        &settings,
        |setting| &setting.name,
        || {
            let mut table = Table::new(&["SETTING", "VALUE", "SOURCE"]);
            for Setting { name, value, source, from } in &settings {
                let value = match value {
                    Value::Null => "(none)".into(),
                    Value::String(text) => text.clone(),
                    other => other.to_string(),
                };
                let from = from.as_ref().map(|from| format!(" {from}")).unwrap_or_default();
                table.row(vec![name.clone(), value, format!("{source}{from}")]);
            }
            table
        },
    )
}

fn settings(arguments: &ConfigArgs, typed: &ArgMatches) -> Result<Vec<Setting>, Failure> {
    let file = arguments.server.config.as_ref();
    let (in_file, given) = match file {
        Some(file) => (Settings::keys_of_file(file)?, arguments.server.settings.clone().or(Settings::read_file(file)?)),
        None => (Vec::new(), arguments.server.settings.clone()),
    };
    telemetry::check(&given.log)?;
    let log = given.log.clone();
    let options = Options::from_settings(given)?;
    let file_name = file.map(|file| file.display().to_string());
    let config = json!(file_name);
    let values = std::iter::once(("config", config)).chain(values(&options, &log));
    Ok(values
        .map(|(name, value)| {
            let (source, from) = match typed.value_source(name) {
                Some(ValueSource::CommandLine) => ("command line", None),
                Some(ValueSource::EnvVariable) => ("environment", Some(format!("ORBIT_{}", name.to_uppercase()))),
                _ if in_file.iter().any(|key| key == name) => ("file", file_name.clone()),
                _ => ("default", None),
            };
            Setting { name: name.into(), value, source, from }
        })
        .collect())
}

/// Every setting with its value; times in seconds, as they are given.
fn values(options: &Options, log: &LogSettings) -> Vec<(&'static str, Value)> {
    let seconds = |duration: Duration| json!(duration.as_secs_f64());
    let name_of = |value: Option<PossibleValue>| Value::from(value.expect("no value is hidden").get_name());
    let format = name_of(log.log_format.unwrap_or_default().to_possible_value());
    // Of a server that is alone, they say nothing.
    let of_cluster = |value: &dyn Fn(&ClusterOptions) -> Value| options.cluster.as_ref().map_or(Value::Null, value);
    let only =
        |cluster: &ClusterOptions, election, value| if cluster.election == election { value } else { Value::Null };
    let migrate = name_of(options.migrate.to_possible_value());
    vec![
        ("db", without_password(&options.db.text()).into()),
        ("migrate", migrate),
        ("addr", options.addr.to_string().into()),
        ("token", options.token.as_ref().map_or(Value::Null, |_| HIDDEN.into())),
        ("node_id", options.node_id.as_str().into()),
        ("session_timeout", seconds(options.session_timeout)),
        ("heartbeat_interval", seconds(options.heartbeat_interval)),
        ("check_interval", seconds(options.check_interval)),
        ("recovery", name_of(options.recovery.to_possible_value())),
        ("max_active_executions", options.max_active_executions.into()),
        ("max_history_events", options.max_history_events.into()),
        ("max_fan_out", options.max_fan_out.into()),
        ("max_pending_signals", options.max_pending_signals.into()),
        ("max_children", options.max_children.into()),
        ("max_child_depth", options.max_child_depth.into()),
        ("max_payload_bytes", options.max_payload_bytes.into()),
        ("body_limit", options.body_limit.into()),
        ("max_connections", options.max_connections.into()),
        ("max_worker_sessions", options.max_worker_sessions.into()),
        ("log_format", format),
        ("log_level", log.log_level.as_deref().unwrap_or(telemetry::DEFAULT_LEVEL).into()),
        ("cluster", options.cluster.is_some().into()),
        ("cluster_mode", of_cluster(&|_| "standby".into())),
        ("advertise_addr", of_cluster(&|cluster| cluster.advertise_addr.as_deref().into())),
        ("election", of_cluster(&|cluster| name_of(cluster.election.to_possible_value()))),
        ("lease_ttl", of_cluster(&|cluster| only(cluster, Election::Lease, seconds(cluster.lease_ttl)))),
        ("on_lost_lease", of_cluster(&|cluster| name_of(cluster.on_lost_lease.to_possible_value()))),
        ("leader_validity", of_cluster(&|cluster| only(cluster, Election::Lock, seconds(cluster.leader_validity)))),
        (
            "election_session_timeout",
            of_cluster(&|cluster| only(cluster, Election::Lock, seconds(cluster.election_session_timeout))),
        ),
    ]
}

/// A database's address with what is secret in it hidden: `postgres://user:(hidden)@host/name`.
fn without_password(db: &str) -> String {
    let Some((scheme, rest)) = db.split_once("://") else { return db.to_owned() };
    let (address, parameters) = rest.split_once('?').map_or((rest, None), |(address, rest)| (address, Some(rest)));
    let address = match address.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((user, _)) => format!("{user}:{HIDDEN}@{host}"),
            None => address.to_owned(),
        },
        None => address.to_owned(),
    };
    let parameters = parameters.map(|parameters| {
        let shown = parameters.split('&').map(|parameter| match parameter.split_once('=') {
            Some((name, _)) if name.eq_ignore_ascii_case("password") => format!("{name}={HIDDEN}"),
            _ => parameter.to_owned(),
        });
        format!("?{}", shown.collect::<Vec<_>>().join("&"))
    });
    format!("{scheme}://{address}{}", parameters.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Args;

    #[test]
    fn every_option_of_the_server_is_shown_in_the_order_of_its_help() {
        let command = Settings::augment_args(clap::Command::new("server"));
        let shown: Vec<_> = command.get_arguments().filter(|argument| !argument.is_hide_set()).collect();
        let options = Options::from_settings(Settings::default()).expect("the defaults are valid");
        let names: Vec<&str> = values(&options, &LogSettings::default()).iter().map(|(name, _)| *name).collect();
        assert_eq!(names, shown.iter().map(|argument| argument.get_id().as_str()).collect::<Vec<_>>());
        for argument in shown {
            let variable = argument.get_env().expect("each has a variable").to_string_lossy();
            assert_eq!(variable, format!("ORBIT_{}", argument.get_id().as_str().to_uppercase()));
        }
    }

    #[test]
    fn a_databases_password_is_hidden_wherever_it_stands() {
        for (db, shown) in [
            ("orbit.db", "orbit.db"),
            ("postgres://host/name", "postgres://host/name"),
            ("postgres://me@host/name", "postgres://me@host/name"),
            ("postgres://me:p@ss@host:5432/name?a=b", "postgres://me:(hidden)@host:5432/name?a=b"),
            ("postgres://host/name?user=me&password=x&a=b", "postgres://host/name?user=me&password=(hidden)&a=b"),
        ] {
            assert_eq!(without_password(db), shown);
        }
    }
}
