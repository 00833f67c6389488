//! `orbit executions recover`

use super::{client, executions};
use crate::cli::RecoverArgs;
use crate::failure::{Exit, Failure};
use crate::output::{self, Table};
use orbit_sdk::{Client, Execution, ExecutionsQuery, Status};

/// Lets executions that are held go on: those that are named, or all.
pub async fn run(arguments: RecoverArgs) -> Result<(), Failure> {
    let client = client(&arguments.remote)?;
    let reason = arguments.reason.as_deref();
    if let [id] = arguments.ids.as_slice() {
        return executions::print(&client.recover(id, reason).await?, arguments.output.form);
    }
    let ids = if arguments.all { held(&client).await? } else { arguments.ids };
    let mut recovered = Vec::new();
    let mut failed: Option<Failure> = None;
    for id in &ids {
        match client.recover(id, reason).await {
            Ok(execution) => recovered.push(execution),
            // Somebody else was faster, or wanted its end.
            Err(error) if arguments.all && matches!(error.code(), Some("NOT_HELD" | "EXECUTION_FINISHED")) => {}
            Err(error) => {
                let failure = Failure::from(error);
                // What cannot be reached now is not reached for the next one either.
                let ends = failure.exit == Exit::Unreachable as u8;
                failed.get_or_insert(failure);
                if ends {
                    break;
                }
            }
        }
    }
    show(&recovered, arguments.output.form)?;
    match failed {
        Some(failure) if ids.len() > 1 => {
            Err(Failure { message: format!("{} of {} were recovered; {}", recovered.len(), ids.len(), failure.message), ..failure })
        }
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// The ids of all that are held.
async fn held(client: &Client) -> Result<Vec<String>, Failure> {
    let mut query = ExecutionsQuery { status: Some(Status::Held), limit: Some(1000), ..ExecutionsQuery::default() };
    let mut ids = Vec::new();
    loop {
        let page = client.executions(&query).await?;
        ids.extend(page.executions.into_iter().map(|one| one.execution_id));
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            return Ok(ids);
        }
    }
}

fn show(recovered: &[Execution], form: output::Form) -> Result<(), Failure> {
    output::list(form, &recovered, recovered, |one| one.summary.execution_id.as_str(), || {
        let mut table = Table::new(&["EXECUTION", "WORKFLOW", "VERSION", "STATUS"]);
        for execution in recovered {
            let summary = &execution.summary;
            table.row(vec![
                summary.execution_id.clone(),
                summary.workflow.clone(),
                summary.version.clone(),
                summary.status.to_string(),
            ]);
        }
        table
    })
}
