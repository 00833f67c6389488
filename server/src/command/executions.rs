//! `orbit executions …`

use super::{again, ask, client, history, replay};
use crate::cli::{CancelArgs, ExecutionArgs, ExecutionsCommand, ListArgs, WaitArgs};
use crate::failure::{Exit, Failure};
use crate::output::{self, Form, Table};
use crate::waiting::sentence;
use orbit_core::definition::nearest;
use orbit_sdk::{Client, Execution, ExecutionSummary, ExecutionsPage, ExecutionsQuery, Status};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long a wait bears with a server that is away: longer than a restart takes.
const RESTART: Duration = Duration::from_secs(10);
/// Executions that are asked for at once.
const PAGE: usize = 1000;

/// Runs one of them.
pub async fn run(command: ExecutionsCommand) -> Result<(), Failure> {
    match command {
        ExecutionsCommand::List(arguments) => list(arguments).await,
        ExecutionsCommand::Show(arguments) => show(arguments).await,
        ExecutionsCommand::History(arguments) => history::run(arguments).await,
        ExecutionsCommand::Replay(arguments) => replay::run(arguments).await,
        ExecutionsCommand::Wait(arguments) => wait_for(arguments).await,
        ExecutionsCommand::Signal(arguments) => ask::signal(arguments).await,
        ExecutionsCommand::Update(arguments) => ask::update(arguments).await,
        ExecutionsCommand::Query(arguments) => ask::query(arguments).await,
        ExecutionsCommand::Cancel(arguments) => cancel(arguments).await,
        ExecutionsCommand::Terminate(arguments) => terminate(arguments).await,
        ExecutionsCommand::Recover(arguments) => again::recover(arguments).await,
        ExecutionsCommand::Release(arguments) => again::release(arguments).await,
    }
}

async fn list(arguments: ListArgs) -> Result<(), Failure> {
    let client = client(&arguments.remote)?;
    let wanted = if arguments.limit == 0 { usize::MAX } else { arguments.limit };
    let mut query = ExecutionsQuery {
        status: arguments.status.as_deref().map(Status::from),
        workflow: arguments.workflow,
        labels: arguments.labels.into_iter().collect::<BTreeMap<_, _>>(),
        since_ms: arguments.since.map(|since| since.0),
        limit: None,
        cursor: arguments.cursor,
    };
    let mut executions: Vec<ExecutionSummary> = Vec::new();
    loop {
        let page = (wanted - executions.len()).min(PAGE);
        query.limit = Some(u32::try_from(page).expect("a page is at most 1000"));
        let page: ExecutionsPage = client.executions(&query).await?;
        executions.extend(page.executions);
        query.cursor = page.next_cursor;
        if query.cursor.is_none() || executions.len() >= wanted {
            break;
        }
    }
    if executions.is_empty()
        && let Some(name) = &query.workflow
    {
        note_unknown(&client, name).await?;
    }
    let page = ExecutionsPage { executions, next_cursor: query.cursor };
    if let (Form::Table, Some(cursor)) = (arguments.output.form, &page.next_cursor) {
        output::note(&format!("more follow: --cursor {cursor}, or --limit 0 for all"));
    }
    output::list(
        arguments.output.form,
        &page,
        &page.executions,
        |one| one.execution_id.as_str(),
        || {
            let mut table =
                Table::new(&["EXECUTION", "WORKFLOW", "VERSION", "STATUS", "RUN", "CREATED", "ENDED", "LABELS"]);
            for execution in &page.executions {
                // The row is written when the status changes: of one that runs it tells nothing more than when it began.
                let ended = execution.status.is_finished().then(|| output::time(execution.updated_at_ms));
                table.row(vec![
                    execution.execution_id.clone(),
                    execution.workflow.clone(),
                    execution.version.clone(),
                    execution.status.to_string(),
                    execution.run.to_string(),
                    output::time(execution.created_at_ms),
                    ended.unwrap_or_default(),
                    labels(&execution.labels),
                ]);
            }
            table
        },
    )
}

/// Tells where nothing is found because no workflow has the name that was asked for.
async fn note_unknown(client: &Client, name: &str) -> Result<(), Failure> {
    let workflows = client.workflows().await?;
    if !workflows.iter().any(|workflow| workflow.name == name) {
        let hint = match nearest(name, workflows.iter().map(|workflow| workflow.name.as_str())) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => "`orbit workflows list` shows those that are deployed".into(),
        };
        output::note(&format!("no workflow is called `{name}`; {hint}"));
    }
    Ok(())
}

async fn show(arguments: ExecutionArgs) -> Result<(), Failure> {
    let execution = client(&arguments.remote)?.execution(&arguments.id).await?;
    print(&execution, arguments.output.form)
}

async fn wait_for(arguments: WaitArgs) -> Result<(), Failure> {
    // The server may be restarted meanwhile; the execution goes on all the same.
    let client = client(&arguments.remote)?.with_patience(RESTART);
    wait(&client, &arguments.id, arguments.timeout.0, arguments.output.form).await
}

/// Waits for the end of an execution and prints it; how it ended decides the exit code.
pub async fn wait(client: &Client, id: &str, timeout: Duration, form: Form) -> Result<(), Failure> {
    let execution = client.wait(id, timeout).await?;
    print(&execution, form)?;
    match execution.status() {
        Status::Completed => Ok(()),
        status if status.is_finished() => {
            let error = execution.error.as_ref().map(|error| format!(" ({}: {})", error.code, error.message));
            let why = error.or_else(|| execution.cancel_reason.as_ref().map(|reason| format!(" ({reason})")));
            let message = format!("execution {id} ended as {status}{}", why.unwrap_or_default());
            Err(Failure::new(message).exit(Exit::EndedBadly).hint(format!("`orbit executions history {id}` shows why")))
        }
        status => {
            let message = format!("execution {id} is still {status} after {} s", timeout.as_secs_f64());
            Err(Failure::new(message)
                .exit(Exit::WaitTimedOut)
                .hint("it goes on; wait again, or for longer (--timeout)"))
        }
    }
}

async fn cancel(arguments: CancelArgs) -> Result<(), Failure> {
    let execution = client(&arguments.remote)?.cancel(&arguments.id, arguments.reason.as_deref()).await?;
    print(&execution, arguments.output.form)
}

async fn terminate(arguments: CancelArgs) -> Result<(), Failure> {
    let execution = client(&arguments.remote)?.terminate(&arguments.id, arguments.reason.as_deref()).await?;
    print(&execution, arguments.output.form)
}

/// Prints one execution.
pub(super) fn print(execution: &Execution, form: Form) -> Result<(), Failure> {
    let summary = &execution.summary;
    output::one(form, execution, &summary.execution_id, || {
        let mut fields = vec![
            ("execution", summary.execution_id.clone()),
            ("workflow", format!("{} {}", summary.workflow, summary.version)),
            ("status", summary.status.to_string()),
            ("created", output::time(summary.created_at_ms)),
            ("updated", output::time(summary.updated_at_ms)),
            ("events", execution.last_seq.to_string()),
        ];
        if execution.run() > 1 {
            fields.push(("run", execution.run().to_string()));
        }
        if let Some(parent) = &execution.parent {
            fields.push(("parent", format!("{}, step {}", parent.execution_id, parent.step)));
        }
        if !summary.labels.is_empty() {
            fields.push(("labels", labels(&summary.labels)));
        }
        if !execution.waiting.is_empty() {
            let lines = execution.waiting.iter().map(|one| format!("{}: {}", one.unit(), sentence(one)));
            fields.push(("waiting", lines.collect::<Vec<_>>().join("\n")));
        }
        if let Some(reason) = execution.cancel_reason.as_ref().or(execution.reason.as_ref()) {
            fields.push(("reason", reason.clone()));
        }
        fields.push(("input", output::value(&execution.input)));
        if let Some(result) = &execution.output {
            fields.push(("output", output::value(result)));
        }
        if let Some(error) = &execution.error {
            let step = error.step.as_ref().map(|step| format!(" in step {step}")).unwrap_or_default();
            fields.push(("error", format!("{}{step}: {}", error.code, error.message)));
        }
        output::fields(&fields)
    })
}

fn labels(labels: &BTreeMap<String, String>) -> String {
    labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>().join(" ")
}
