//! What can be typed: nouns, then verbs (interfaces, "Command line").

use crate::config::{LogSettings, Settings, parse_addr, parse_token};
use crate::output::Output;
use crate::since::Since;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Args, Parser, Subcommand};
use std::net::SocketAddr;
use std::path::PathBuf;

mod executions;

pub use executions::*;

/// The version, with the commit where it was built from one.
pub const VERSION: &str = match env!("ORBIT_COMMIT").is_empty() {
    true => env!("CARGO_PKG_VERSION"),
    false => concat!(env!("CARGO_PKG_VERSION"), " (", env!("ORBIT_COMMIT"), ")"),
};

/// Orbit: a durable workflow server.
///
/// Workflows are declared in YAML, their steps run on workers that poll over HTTP, and every decision is an event in a
/// history that is committed before anything is done about it. `orbit demo` shows it in one command.
#[derive(Debug, Parser)]
#[command(name = "orbit", version = VERSION, max_term_width = 100, subcommand_required = true)]
#[command(after_help = EXIT_CODES)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "Exit codes: 0 done · 1 failure · 2 usage · 3 credentials · 4 not found · 5 the execution \
ended badly · 6 a wait timed out · 7 no server could be reached";

/// Every command.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server, on a database file or on PostgreSQL.
    Server(Box<ServerArgs>),
    /// Run a server on a database that is thrown away at the end.
    Dev(DevArgs),
    /// See it work: a server, an example worker and one order, with its history as it happens.
    Demo(DemoArgs),
    /// Measure: orders of six tasks on a server and workers of their own.
    Bench(BenchArgs),
    /// Deploy workflow definitions.
    Deploy(DeployArgs),
    /// Check workflow definitions without a server.
    Check(CheckArgs),
    /// Start an execution.
    Start(StartArgs),
    /// List, show, follow, replay, signal, query and end executions.
    #[command(subcommand)]
    Executions(ExecutionsCommand),
    /// Say what an execution waits for, or why it ended, and what would be right to do.
    Why(ExecutionArgs),
    /// List and show deployed workflows.
    #[command(subcommand)]
    Workflows(WorkflowsCommand),
    /// List workers.
    #[command(subcommand)]
    Workers(WorkersCommand),
    /// List the servers of a cluster.
    Nodes(NodesArgs),
    /// Have the leader of a cluster step down.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Show how a server, or a database, is.
    Status(StatusArgs),
    /// Show who leads by lease, and take the lease away.
    #[command(subcommand)]
    Lease(LeaseCommand),
    /// Look at the tables of a PostgreSQL database, and bring them up to date.
    #[command(subcommand)]
    Db(DbCommand),
    /// Show the server's settings.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print the description of the API (OpenAPI 3.1) that this version serves at `/v1/openapi.json`.
    Openapi,
    /// Print a script that completes command lines in a shell.
    ///
    /// `source <(orbit completions bash)` has them in this shell; `orbit completions fish >
    /// ~/.config/fish/completions/orbit.fish` in each new one.
    Completions(CompletionsArgs),
}

/// Where the API is.
#[derive(Clone, Debug, Args)]
pub struct Remote {
    /// The server, or several separated by commas.
    #[arg(long, env = "ORBIT_SERVER", value_name = "URL", default_value = "http://127.0.0.1:7233")]
    pub server: String,
    /// The server's bearer token.
    #[arg(long, env = "ORBIT_TOKEN", hide_env_values = true, value_parser = parse_token)]
    pub token: Option<String>,
}

/// `orbit server`
#[derive(Clone, Debug, Args)]
pub struct ServerArgs {
    /// A TOML file with the same options: `session_timeout = 10`. Command line and environment win over it.
    #[arg(long, env = "ORBIT_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    #[command(flatten)]
    pub settings: Settings,
}

/// `orbit config …`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show what `orbit server` would be started with here, and where each setting comes from.
    Show(Box<ConfigArgs>),
}

/// `orbit config show`
#[derive(Clone, Debug, Args)]
pub struct ConfigArgs {
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit completions`
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: clap_complete::Shell,
}

/// `orbit dev`
#[derive(Debug, Args)]
pub struct DevArgs {
    /// Definitions to deploy at the start.
    pub files: Vec<PathBuf>,
    /// The address to serve.
    #[arg(long, env = "ORBIT_ADDR", default_value = "127.0.0.1:7233", value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: SocketAddr,
    /// The bearer token that clients and workers must send [default: none].
    #[arg(long, env = "ORBIT_TOKEN", hide_env_values = true, value_parser = parse_token)]
    pub token: Option<String>,
    #[command(flatten)]
    pub log: LogSettings,
}

/// `orbit demo`
#[derive(Debug, Args)]
pub struct DemoArgs {
    /// End once the order has; without it the server goes on until it is interrupted.
    #[arg(long)]
    pub exit: bool,
    /// The address to serve [default: a free port of 127.0.0.1].
    #[arg(long, env = "ORBIT_ADDR", value_name = "HOST:PORT", value_parser = parse_addr)]
    pub addr: Option<SocketAddr>,
    /// What is written to the log on stderr: error, warn, info, debug, trace, or directives.
    #[arg(long, env = "ORBIT_LOG_LEVEL", default_value = "warn")]
    pub log_level: String,
}

/// `orbit bench`
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// How many orders.
    #[arg(long, default_value_t = 600)]
    pub orders: u64,
    /// How many clients, each of which starts an order and waits for it.
    #[arg(long, default_value_t = 64)]
    pub clients: u64,
    /// How many worker processes.
    #[arg(long, default_value_t = 2)]
    pub workers: u64,
    /// How many tasks each of them runs at once.
    #[arg(long, default_value_t = 32)]
    pub concurrency: usize,
    /// The database [default: a file that is thrown away].
    #[arg(long, value_name = "FILE|URL")]
    pub db: Option<String>,
    /// Also write the same rows in the same batches without a server, to this database: another than --db, and an empty
    /// one [default: a file that is thrown away; PostgreSQL needs one named].
    #[arg(long, value_name = "FILE|URL", num_args = 0..=1, default_missing_value = "")]
    pub alone: Option<String>,
    /// Be the server, and write to this file what it has written.
    #[arg(long, hide = true, value_name = "FILE")]
    pub serve: Option<PathBuf>,
    /// Be one of the workers, of the server at this address.
    #[arg(long, hide = true, value_name = "URL")]
    pub worker: Option<String>,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit deploy`
#[derive(Debug, Args)]
pub struct DeployArgs {
    /// Definitions in YAML or (`.json`) JSON; `-` reads one from standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Refuse a definition with warnings, before its version is used up.
    #[arg(long)]
    pub strict: bool,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit check`
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Definitions in YAML or (`.json`) JSON; `-` reads one from standard input.
    #[arg(required = true, value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Fail where there are warnings, too.
    #[arg(long)]
    pub strict: bool,
}

/// `orbit start`
#[derive(Debug, Args)]
pub struct StartArgs {
    /// The workflow's name.
    pub workflow: String,
    /// Its version [default: the newest deployed].
    #[arg(long)]
    pub version: Option<String>,
    /// The execution's id. Starting twice with the same id starts once [default: drawn].
    #[arg(long)]
    pub id: Option<String>,
    /// The input: JSON text, `@FILE`, or `-` for standard input [default: null].
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub input: Option<String>,
    /// A label to search by; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
    pub labels: Vec<(String, String)>,
    /// Wait for the end, and show it.
    #[arg(long)]
    pub wait: bool,
    /// How long to wait at most, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = crate::config::Seconds::parse)]
    pub timeout: crate::config::Seconds,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit workflows …`
#[derive(Debug, Subcommand)]
pub enum WorkflowsCommand {
    /// List deployed workflows with their versions.
    List(ListWorkflowsArgs),
    /// Show one version of a workflow with its definition.
    Show(ShowWorkflowArgs),
}

/// `orbit workflows list`
#[derive(Debug, Args)]
pub struct ListWorkflowsArgs {
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit workflows show`
#[derive(Debug, Args)]
pub struct ShowWorkflowArgs {
    /// The workflow's name.
    pub name: String,
    /// Its version [default: the newest deployed].
    #[arg(long)]
    pub version: Option<String>,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit workers …`
#[derive(Debug, Subcommand)]
pub enum WorkersCommand {
    /// List workers that registered, now or earlier.
    List(ListWorkersArgs),
}

/// `orbit workers list`
#[derive(Debug, Args)]
pub struct ListWorkersArgs {
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit lease …`
#[derive(Debug, Subcommand)]
pub enum LeaseCommand {
    /// Show who holds the lease, in which epoch, and for how long still. No server need run.
    Show(DbArgs),
    /// Take the lease away from a leader whose host is gone, before it runs out.
    Release(ReleaseArgs),
}

/// `orbit lease release`
#[derive(Debug, Args)]
pub struct ReleaseArgs {
    /// Yes: its holder may still run. What it writes is refused from then on; what it sends cannot be.
    #[arg(long)]
    pub force: bool,
    #[command(flatten)]
    pub database: DbArgs,
}

/// `orbit db …`
#[derive(Debug, Subcommand)]
pub enum DbCommand {
    /// The versions of the tables. A server does this by itself, unless it is started with --migrate never.
    #[command(subcommand)]
    Migrate(MigrateCommand),
}

/// `orbit db migrate …`
#[derive(Debug, Subcommand)]
pub enum MigrateCommand {
    /// Show which version the tables are of, and what is missing.
    Status(DbArgs),
    /// Show the SQL that would bring them up to date.
    Plan(DbArgs),
    /// Bring them up to date.
    Up(UpArgs),
}

/// The database of a command.
#[derive(Debug, Args)]
pub struct DbArgs {
    /// The database: postgres://user@host/database.
    #[arg(long, env = "ORBIT_DB", value_name = "URL", hide_env_values = true)]
    pub db: String,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit db migrate up`
#[derive(Debug, Args)]
pub struct UpArgs {
    /// Print the SQL, and run nothing.
    #[arg(long)]
    pub print_sql: bool,
    /// How long another one that changes the tables is waited for, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "30", value_parser = crate::config::Seconds::parse)]
    pub timeout: crate::config::Seconds,
    #[command(flatten)]
    pub database: DbArgs,
}

/// `orbit nodes`
#[derive(Debug, Args)]
pub struct NodesArgs {
    /// Look at the database instead, whether or not a server runs.
    #[arg(long, env = "ORBIT_DB", value_name = "URL", hide_env_values = true)]
    pub db: Option<String>,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit cluster …`
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Have the leader finish what is in flight and hand the lead over; shows who leads then.
    StepDown(StepDownArgs),
    /// How the servers of a database share the work.
    #[command(subcommand)]
    Mode(ModeCommand),
}

/// `orbit cluster mode …`
#[derive(Debug, Subcommand)]
pub enum ModeCommand {
    /// Change it while no server lives; those that are started from then on must be of this mode.
    Set(SetModeArgs),
}

/// `orbit cluster mode set`
#[derive(Debug, Args)]
pub struct SetModeArgs {
    /// What the servers are from now on.
    #[arg(value_enum)]
    pub mode: SetTo,
    /// How the leader of a cluster is elected from now on [default: lock].
    #[arg(long, value_enum)]
    pub election: Option<crate::config::Election>,
    #[command(flatten)]
    pub database: DbArgs,
}

/// A mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum SetTo {
    /// One server, without --cluster.
    Single,
    /// Servers with --cluster, of which one leads.
    Standby,
}

/// `orbit cluster step-down`
#[derive(Debug, Args)]
pub struct StepDownArgs {
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Look at a database instead, whether or not a server has it open.
    #[arg(long, env = "ORBIT_DB", value_name = "FILE|URL", hide_env_values = true)]
    pub db: Option<String>,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// A refusal of the command line, with what would be right where the parser does not see it: an option that stands before
/// the command that it belongs to.
pub fn explained(mut error: clap::Error) -> clap::Error {
    let first = std::env::args().nth(1).unwrap_or_default();
    let is_first =
        matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(named)) if first.starts_with(named));
    if error.kind() == ErrorKind::UnknownArgument && is_first {
        let name = first.split('=').next().unwrap_or_default();
        let tip = format!("options stand behind the command that they belong to: `orbit … {name} …`");
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
    }
    error
}

/// A whole number that is not below zero.
fn whole<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| "write a whole number, such as 0 or 20".into())
}

fn key_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.into(), value.into())),
        _ => Err("write KEY=VALUE".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_bench_beside_the_server_may_stand_behind_a_space_or_an_equals_sign_or_be_left_out() {
        let alone = |more: &[&str]| {
            let command = Cli::try_parse_from([&["orbit", "bench"][..], more].concat()).expect("it is right").command;
            let Command::Bench(bench) = command else { panic!("a bench, not {command:?}") };
            (bench.alone, bench.orders)
        };
        assert_eq!(alone(&["--alone", "x.db", "--orders", "6"]), (Some("x.db".into()), 6));
        assert_eq!(alone(&["--alone=x.db"]).0.as_deref(), Some("x.db"));
        assert_eq!(alone(&["--alone", "--orders", "6"]), (Some(String::new()), 6));
        assert_eq!(alone(&[]), (None, 600));
    }
}
