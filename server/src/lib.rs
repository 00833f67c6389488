//! The `orbit` binary.
//!
//! * [`cli`]: what can be typed. [`command`]: what each command does, one file each.
//! * [`database`]: where a server keeps everything.
//! * [`config`]: the server's options, from command line, environment and file.
//! * [`serve`]: store, node and HTTP front put together. [`telemetry`]: log lines.
//! * [`ui`]: the pages at `/ui/`.
//! * `since`: moments as they are typed.
//! * [`output`]: tables, JSON, ids. `waiting`: what an execution waits for, in sentences.
//! * [`failure`]: errors and exit codes.

pub mod cli;
pub mod command;
pub mod config;
pub mod database;
pub mod failure;
pub mod output;
pub mod serve;
mod since;
pub mod telemetry;
pub mod ui;
mod waiting;

use clap::{CommandFactory, FromArgMatches};
use std::process::ExitCode;

/// Runs the command line of this process.
pub fn run() -> ExitCode {
    let matches = cli::Cli::command().try_get_matches().unwrap_or_else(|error| cli::explained(error).exit());
    let cli = cli::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            return failure::Failure::new(format!("the runtime cannot be started: {error}")).report();
        }
    };
    let result = runtime.block_on(command::run(cli.command, &matches));
    // What still runs may hold threads that wait; the process ends all the same.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
