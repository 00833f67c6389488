//! `orbit executions recover` and `release`: what stands still goes on.

use super::{client, executions};
use crate::cli::{RecoverArgs, ReleaseExecutionArgs, Which};
use crate::failure::{Exit, Failure};
use crate::output::{self, Table};
use orbit_sdk::{Client, Error, Execution, ExecutionsQuery, Status};

/// What is asked of each.
#[derive(Clone, Debug)]
enum Again {
    Recover { reason: Option<String> },
    Release,
}

impl Again {
    /// The status that it is about.
    fn status(&self) -> Status {
        match self {
            Again::Recover { .. } => Status::Held,
            Again::Release => Status::Quarantined,
        }
    }

    async fn ask(&self, client: &Client, id: &str) -> Result<Execution, Error> {
        match self {
            Again::Recover { reason } => client.recover(id, reason.as_deref()).await,
            Again::Release => client.release(id).await,
        }
    }
}

/// Lets executions go on that are held.
pub async fn recover(arguments: RecoverArgs) -> Result<(), Failure> {
    let RecoverArgs { which, reason, remote, output } = arguments;
    run(&Again::Recover { reason }, which, &client(&remote)?, output.form).await
}

/// Tries executions again that are quarantined.
pub async fn release(arguments: ReleaseExecutionArgs) -> Result<(), Failure> {
    let ReleaseExecutionArgs { which, remote, output } = arguments;
    run(&Again::Release, which, &client(&remote)?, output.form).await
}

/// Whether an error says that somebody else was faster, or that it has ended.
fn is_moot(error: &Error) -> bool {
    matches!(error.code(), Some("NOT_HELD" | "NOT_QUARANTINED" | "EXECUTION_FINISHED"))
}

/// Those that are named, or all of that status.
async fn run(again: &Again, which: Which, client: &Client, form: output::Form) -> Result<(), Failure> {
    if let [id] = which.ids.as_slice() {
        return executions::print(&again.ask(client, id).await?, form);
    }
    let ids = if which.all { all(client, again.status()).await? } else { which.ids };
    let mut went_on = Vec::new();
    let mut failed: Option<Failure> = None;
    for id in &ids {
        match again.ask(client, id).await {
            Ok(execution) => went_on.push(execution),
            Err(error) if which.all && is_moot(&error) => {}
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
    show(&went_on, form)?;
    match failed {
        Some(failure) if ids.len() > 1 => {
            let message = format!("{} of {} go on; {}", went_on.len(), ids.len(), failure.message);
            Err(Failure { message, ..failure })
        }
        Some(failure) => Err(failure),
        None => Ok(()),
    }
}

/// The ids of all that have this status.
async fn all(client: &Client, status: Status) -> Result<Vec<String>, Failure> {
    let mut query = ExecutionsQuery { status: Some(status), limit: Some(1000), ..ExecutionsQuery::default() };
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

fn show(went_on: &[Execution], form: output::Form) -> Result<(), Failure> {
    output::list(
        form,
        &went_on,
        went_on,
        |one| one.summary.execution_id.as_str(),
        || {
            let mut table = Table::new(&["EXECUTION", "WORKFLOW", "VERSION", "STATUS"]);
            for execution in went_on {
                let summary = &execution.summary;
                table.row(vec![
                    summary.execution_id.clone(),
                    summary.workflow.clone(),
                    summary.version.clone(),
                    summary.status.to_string(),
                ]);
            }
            table
        },
    )
}
