//! What each command does.

mod again;
mod ask;
mod bench;
mod check;
mod cluster;
mod completions;
mod config;
mod db;
mod demo;
mod deploy;
mod dev;
mod document;
mod executions;
mod history;
mod input;
mod lease;
mod nodes;
mod openapi;
/// The tasks of the order example, which its worker, the demo and the benchmark share.
#[path = "../../../sdk/rust/examples/order_worker/tasks.rs"]
mod order_tasks;
mod replay;
mod server;
mod start;
mod status;
mod why;
mod workers;
mod workflows;

use crate::cli::{Command, Remote};
use crate::failure::Failure;
use clap::ArgMatches;
use orbit_sdk::Client;

/// Runs a command. `matches` is the command line that it was read from.
pub async fn run(command: Command, matches: &ArgMatches) -> Result<(), Failure> {
    match command {
        Command::Server(arguments) => server::run(*arguments).await,
        Command::Dev(arguments) => dev::run(arguments).await,
        Command::Demo(arguments) => demo::run(arguments).await,
        Command::Bench(arguments) => bench::run(arguments).await,
        Command::Deploy(arguments) => deploy::run(arguments).await,
        Command::Check(arguments) => check::run(&arguments),
        Command::Start(arguments) => start::run(arguments).await,
        Command::Executions(command) => executions::run(command).await,
        Command::Why(arguments) => why::run(arguments).await,
        Command::Workflows(command) => workflows::run(command).await,
        Command::Workers(command) => workers::run(command).await,
        Command::Nodes(arguments) => nodes::run(arguments).await,
        Command::Cluster(command) => cluster::run(command).await,
        Command::Status(arguments) => status::run(arguments).await,
        Command::Lease(command) => lease::run(command),
        Command::Db(command) => db::run(command),
        Command::Config(command) => config::run(command, matches),
        Command::Openapi => openapi::run(),
        Command::Completions(arguments) => completions::run(&arguments),
    }
}

/// A client of the servers that the command line names.
fn client(remote: &Remote) -> Result<Client, Failure> {
    Ok(Client::new(&remote.server, remote.token.as_deref())?)
}
