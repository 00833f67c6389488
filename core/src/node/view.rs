//! What the API shows of an execution: from memory, or from its row.

use crate::api::response::{ExecutionItem, ExecutionView, ParentView};
use crate::execution::event::{DecodeError, Event, Json, Parent, Recorded, TaskError};
use crate::execution::{End, State, Waiting};
use crate::id::{ExecutionId, Run, Seq};
use crate::store::append::{Status, Summary};
use crate::store::statement::SummaryRow;

/// A row of a list.
pub(crate) fn item(execution: ExecutionId, run: Run, summary: Summary) -> ExecutionItem {
    ExecutionItem {
        execution_id: execution,
        workflow: summary.workflow,
        version: summary.version,
        status: summary.status,
        run,
        created_at_ms: summary.created_at_ms,
        updated_at_ms: summary.updated_at_ms,
        labels: summary.labels,
    }
}

fn parent(parent: &Parent) -> ParentView {
    ParentView { execution_id: parent.execution_id.clone(), step: parent.step.clone() }
}

/// An execution whose history is folded, and what it waits for.
pub(crate) fn of_state(state: &State, waiting: Vec<Waiting>) -> ExecutionView {
    let (output, error) = match state.end() {
        Some(End::Completed { output }) => (Some(output.clone()), None),
        Some(End::Failed { error }) => (None, Some(error.clone())),
        Some(End::Cancelled { .. } | End::TimedOut | End::Terminated { .. } | End::Continued) | None => (None, None),
    };
    ExecutionView {
        item: item(state.identity.execution_id.clone(), state.identity.run, state.summary()),
        parent: state.parent.as_ref().map(parent),
        input: state.input.clone(),
        output,
        error,
        last_seq: state.last,
        reason: state.held.as_ref().map(|held| held.reason.clone()),
        cancel_reason: state.cancel_reason().map(str::to_owned),
        waiting,
    }
}

/// An execution that is set aside, and why (interfaces, "History and storage"), as far as its row can be read.
pub(crate) fn quarantined(row: SummaryRow, reason: &str) -> ExecutionView {
    let (execution, summary, run) = (row.execution.clone(), row.summary.clone(), row.run);
    let mut view = of_row(row).unwrap_or_else(|_| ExecutionView {
        item: item(execution, run, summary),
        parent: None,
        input: Json::default(),
        output: None,
        error: None,
        last_seq: Seq(0),
        reason: None,
        cancel_reason: None,
        waiting: Vec::new(),
    });
    if !view.item.status.is_terminal() {
        view.item.status = Status::Quarantined;
    }
    view.reason = Some(reason.to_owned());
    view
}

/// Whether a row tells less of its execution than its history does: what it waits for, and why it was cancelled.
pub(crate) fn falls_short(row: &SummaryRow) -> bool {
    !row.summary.status.is_terminal() || matches!(row.summary.status, Status::Cancelled | Status::Terminated)
}

/// An execution by its row alone.
pub(crate) fn of_row(row: SummaryRow) -> Result<ExecutionView, DecodeError> {
    let (first, last) = row.ends.ok_or(DecodeError::Empty)?;
    let (first, last) = (Recorded::decode(&first)?, Recorded::decode(&last)?);
    let (input, parent) = match first.event {
        Event::WorkflowCreated { input, parent, .. } => (input, parent.as_ref().map(self::parent)),
        _ => return Err(DecodeError::Json("the first event is not WorkflowCreated".into())),
    };
    let (output, error): (Option<Json>, Option<TaskError>) = match last.event {
        Event::WorkflowCompleted { output, .. } => (Some(output), None),
        Event::WorkflowFailed { error, .. } => (None, Some(error)),
        _ => (None, None),
    };
    // The row is written when the status changes; its history knows of what came since.
    let mut item = item(row.execution, row.run, row.summary);
    item.updated_at_ms = last.at_ms;
    let last_seq = last.seq;
    Ok(ExecutionView {
        item,
        parent,
        input,
        output,
        error,
        last_seq,
        reason: None,
        cancel_reason: None,
        waiting: Vec::new(),
    })
}
