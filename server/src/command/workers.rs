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
            let titles = ["WORKER", "SESSION", "HOLDING", "REGISTERED", "LAST SEEN", "RUNTIME", "SDK", "TASKS"];
            let mut table = Table::new(&titles);
            for one in &workers {
                let tasks: Vec<String> =
                    one.contracts.iter().map(|c| format!("{}@{}", c.task_name, c.contract_version)).collect();
                let mut row = |session: &str, holding: u32, registered: String, seen: i64| {
                    let sdk = one.sdk.clone().unwrap_or_default();
                    let (holding, seen) = (holding.to_string(), output::time(seen));
                    let (worker, runtime) = (one.worker_id.clone(), one.runtime.clone());
                    table.row(vec![worker, session.into(), holding, registered, seen, runtime, sdk, tasks.join(" ")]);
                };
                for session in &one.open_sessions {
                    let registered = output::time(session.registered_ms);
                    row(&session.session_id, session.holding, registered, session.last_seen_ms);
                }
                if one.open_sessions.is_empty() {
                    row(if one.sessions == 0 { "gone" } else { "alive" }, one.holding, String::new(), one.last_seen_ms);
                }
            }
            table
        },
    )
}
