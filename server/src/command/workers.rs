//! `orbit workers …`

use super::client;
use crate::cli::{ListWorkersArgs, WorkersCommand};
use crate::failure::Failure;
use crate::output::{self, Table};

/// Runs one of them.
pub async fn run(command: WorkersCommand) -> Result<(), Failure> {
    match command {
        WorkersCommand::List(arguments) => list(arguments).await,
    }
}

async fn list(arguments: ListWorkersArgs) -> Result<(), Failure> {
    let workers = client(&arguments.remote)?.workers().await?;
    output::list(
        arguments.output.form,
        &workers,
        &workers,
        |one| one.worker_id.as_str(),
        || {
            let mut table = Table::new(&["WORKER", "RUNTIME", "SDK", "SESSIONS", "HOLDING", "LAST SEEN", "TASKS"]);
            for one in &workers {
                let tasks: Vec<String> =
                    one.contracts.iter().map(|c| format!("{}@{}", c.task_name, c.contract_version)).collect();
                table.row(vec![
                    one.worker_id.clone(),
                    one.runtime.clone(),
                    one.sdk.clone().unwrap_or_default(),
                    one.sessions.to_string(),
                    one.holding.to_string(),
                    output::time(one.last_seen_ms),
                    tasks.join(" "),
                ]);
            }
            table
        },
    )
}
