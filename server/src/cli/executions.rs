//! `orbit executions …`

use super::{Output, Remote, Since, key_value, whole};
use clap::{Args, Subcommand};
use std::path::PathBuf;

/// `orbit executions …`
#[derive(Debug, Subcommand)]
pub enum ExecutionsCommand {
    /// List executions, newest first.
    List(ListArgs),
    /// Show one execution with its input and what came of it.
    Show(ExecutionArgs),
    /// Show an execution's history.
    History(HistoryArgs),
    /// Run a history through today's decisions, and show where they part.
    Replay(ReplayArgs),
    /// Wait for the end of an execution, and show it.
    Wait(WaitArgs),
    /// Send a signal to an execution. It is durable once the command ends, and waits until it is taken.
    Signal(MessageArgs),
    /// Send an update to an execution, and show what it answers.
    Update(MessageArgs),
    /// Show the value of a query of an execution.
    Query(QueryArgs),
    /// Ask for the end of an execution: what it did is undone as its definition says.
    Cancel(CancelArgs),
    /// End an execution at once: nothing is undone, no handler runs.
    Terminate(CancelArgs),
    /// Let executions go on that were held when a server took over (`--recovery hold`).
    Recover(RecoverArgs),
    /// Try executions again that are quarantined, since loading or applying them failed.
    Release(ReleaseExecutionArgs),
}

/// `orbit executions list`
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Only those with this status: running, held, quarantined, completed, failed, cancelled, timed_out, terminated.
    #[arg(long)]
    pub status: Option<String>,
    /// Only those of this workflow.
    #[arg(long)]
    pub workflow: Option<String>,
    /// Only those with this label; may be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = key_value)]
    pub labels: Vec<(String, String)>,
    /// Only those created then or later: a date (2026-11-29), a time (2026-11-29T10:30:00Z), a duration before now (2h),
    /// or milliseconds since 1970.
    #[arg(long, value_name = "TIME", value_parser = Since::parse)]
    pub since: Option<Since>,
    /// At most so many; 0 shows all.
    #[arg(long, default_value = "100", value_parser = whole::<usize>, allow_negative_numbers = true)]
    pub limit: usize,
    /// Go on where the list before ended: its `next_cursor`.
    #[arg(long)]
    pub cursor: Option<String>,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// A command about one execution.
#[derive(Debug, Args)]
pub struct ExecutionArgs {
    /// The execution's id.
    pub id: String,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit executions history`
#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// The execution's id.
    pub id: String,
    /// Only events after this number.
    #[arg(long, value_name = "SEQ", default_value = "0", value_parser = whole::<u64>, allow_negative_numbers = true)]
    pub after: u64,
    /// Of this run, where the execution has continued as new [default: the newest].
    #[arg(long, value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub run: Option<u32>,
    /// Go on showing events until the execution ends, through all runs that follow.
    #[arg(long, short)]
    pub follow: bool,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit executions replay`
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// The execution's id, or a file of its events: as `history -o jsonl` prints them, `-` for standard input.
    #[arg(value_name = "ID|FILE")]
    pub history: String,
    /// The definition that it was started with, in YAML or (`.json`) JSON [default: the server is asked; needed for a file].
    #[arg(long, value_name = "FILE")]
    pub definition: Option<PathBuf>,
    /// The id of the execution in the file [default: the one that its tokens and keys name].
    #[arg(long)]
    pub id: Option<String>,
    /// This run, where the execution has continued as new [default: the newest; a file has one].
    #[arg(long, value_name = "N", value_parser = whole::<u32>, allow_negative_numbers = true)]
    pub run: Option<u32>,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit executions wait`
#[derive(Debug, Args)]
pub struct WaitArgs {
    /// The execution's id.
    pub id: String,
    /// How long to wait at most, in seconds.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = crate::config::Seconds::parse)]
    pub timeout: crate::config::Seconds,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit executions signal` and `update`
#[derive(Debug, Args)]
pub struct MessageArgs {
    /// The execution's id.
    #[arg(value_name = "ID")]
    pub execution: String,
    /// Its name, as the definition declares it.
    pub name: String,
    /// What it brings: JSON text, `@FILE`, or `-` for standard input [default: null].
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub payload: Option<String>,
    /// An id of its own. Sending twice with the same id sends once, and is answered as the first time [default: drawn].
    #[arg(long, value_name = "KEY")]
    pub id: Option<String>,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit executions query`
#[derive(Debug, Args)]
pub struct QueryArgs {
    /// The execution's id.
    #[arg(value_name = "ID")]
    pub execution: String,
    /// The query's name, as the definition declares it.
    pub name: String,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit executions cancel` and `terminate`
#[derive(Debug, Args)]
pub struct CancelArgs {
    /// The execution's id.
    pub id: String,
    /// Why; stands in the history.
    #[arg(long)]
    pub reason: Option<String>,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// Executions, by name or all that it is about.
#[derive(Debug, Args)]
pub struct Which {
    /// The ids of the executions.
    #[arg(value_name = "ID", required_unless_present = "all", conflicts_with = "all")]
    pub ids: Vec<String>,
    /// All that stand still so.
    #[arg(long)]
    pub all: bool,
}

/// `orbit executions release`
#[derive(Debug, Args)]
pub struct ReleaseExecutionArgs {
    #[command(flatten)]
    pub which: Which,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}

/// `orbit executions recover`
#[derive(Debug, Args)]
pub struct RecoverArgs {
    #[command(flatten)]
    pub which: Which,
    /// Why; stands in the history.
    #[arg(long)]
    pub reason: Option<String>,
    #[command(flatten)]
    pub remote: Remote,
    #[command(flatten)]
    pub output: Output,
}
