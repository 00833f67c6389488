//! Reads: nothing is shown that is not committed; nothing is shown that is older than what somebody was shown before
//! the request came (by a server that may write).

use super::history::{HistoryCheck, Tracked};
use super::{Answer, Checked, Violation, ensure};
use crate::coverage::{Coverage, Mark};
use orbit_core::api::response::{ExecutionItem, ExecutionView, History, Signalled, Updated};
use orbit_core::api::{ErrorCode, Reply, Request};
use orbit_core::execution::event::Event;
use orbit_core::id::{ExecutionId, Seq};
use orbit_core::store::append::Status;
use std::collections::BTreeMap;

const CHECK: &str = "read";

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct ReadCheck {
    /// The newest event of each execution that somebody was told of.
    shown: BTreeMap<ExecutionId, Seq>,
}

impl ReadCheck {
    /// What was shown of that execution so far: 0 where nothing was.
    pub fn shown(&self, id: &ExecutionId) -> Seq {
        self.shown.get(id).copied().unwrap_or_default()
    }

    /// Everything that is recorded counts as shown from now on.
    pub fn show_all(&mut self, histories: &HistoryCheck) {
        for (id, tracked) in histories.all() {
            self.show(id, tracked.last());
        }
    }

    pub fn on_answer(&mut self, answer: &Answer<'_>, histories: &HistoryCheck, marks: &mut Coverage) -> Checked {
        match (&*answer.exchange.request, &answer.response.reply) {
            (Request::GetExecution(id) | Request::Wait { execution: id, .. }, Reply::Execution(view))
            | (Request::Cancel { execution: id, .. }, Reply::Cancelled(view))
            | (Request::Terminate { execution: id, .. }, Reply::Terminated(view)) => {
                ensure!(view.item.execution_id == *id, CHECK, "{} is shown for {id}", view.item.execution_id);
                self.on_view(view, answer, histories)?;
                if matches!(&*answer.exchange.request, Request::Wait { .. }) && view.item.status.is_terminal() {
                    marks.hit(Mark::WaitEnded);
                }
                Ok(())
            }
            (Request::GetHistory { execution, run: None, after, .. }, Reply::History(page)) => {
                self.on_page(execution, *after, page, answer, histories)
            }
            (Request::ListExecutions(_), Reply::Executions(page)) => {
                page.executions.iter().try_for_each(|item| on_item(item, histories).map(|_| ()))
            }
            (Request::Start(_), Reply::Started(started)) => {
                self.show(&started.execution_id, Seq(1));
                Ok(())
            }
            (Request::Signal { execution, .. }, Reply::Signalled(Signalled { seq }))
            | (Request::Update { execution, .. }, Reply::Updated(Updated { seq, .. })) => {
                self.show(execution, *seq);
                Ok(())
            }
            (Request::Poll(_) | Request::Report { .. }, reply) => {
                let outcomes = match reply {
                    Reply::Polled(polled) => polled.outcomes.as_slice(),
                    Reply::Reported(outcomes) => outcomes.as_slice(),
                    Reply::ReportedOne(outcome) => std::slice::from_ref(outcome),
                    _ => &[],
                };
                for token in outcomes.iter().map(|o| &o.token) {
                    let recorded = histories.get(&token.execution).and_then(|t| t.results.get(token));
                    if let Some(seq) = recorded {
                        self.show(&token.execution, *seq);
                    }
                }
                Ok(())
            }
            (request, Reply::Error(error)) if error.code == ErrorCode::UnknownExecution => {
                let named = named(request);
                let hidden = answer.current && answer.exchange.floor > Seq(0);
                ensure!(!hidden, CHECK, "{named:?} is said to be unknown, though it was shown before");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_view(&mut self, view: &ExecutionView, answer: &Answer<'_>, histories: &HistoryCheck) -> Checked {
        let tracked = on_item(&view.item, histories)?;
        let id = &view.item.execution_id;
        let status = view.item.status;
        ensure!(view.last_seq <= tracked.last(), CHECK, "{id} is shown up to {}, of {}", view.last_seq, tracked.last());
        let at_end = tracked.ended.is_some() && view.last_seq == tracked.last();
        ensure!(status.is_terminal() == at_end, CHECK, "{id} is shown as {status:?} at {}", view.last_seq);
        match tracked.terminal() {
            Some(Event::WorkflowCompleted { output, .. }) if at_end => {
                ensure!(view.output.as_ref() == Some(output), CHECK, "{id} is shown with {:?}", view.output);
            }
            Some(Event::WorkflowFailed { error, .. }) if at_end => {
                ensure!(view.error.as_ref() == Some(error), CHECK, "{id} is shown with {:?}", view.error);
            }
            _ => ensure!(view.output.is_none(), CHECK, "{id} is shown with an output, which it has not"),
        }
        self.not_older(id, view.last_seq, answer)
    }

    fn on_page(
        &mut self,
        id: &ExecutionId,
        after: Seq,
        page: &History,
        answer: &Answer<'_>,
        histories: &HistoryCheck,
    ) -> Checked {
        let Some(tracked) = histories.get(id) else {
            return Err(Violation::safety(CHECK, format!("a history of {id} is shown, and none is recorded")));
        };
        for (event, number) in page.events.iter().zip(after.0 + 1..) {
            let recorded = usize::try_from(number - 1).ok().and_then(|at| tracked.events.get(at));
            ensure!(recorded == Some(event), CHECK, "{id}#{number} is shown as {event:?}, recorded {recorded:?}");
        }
        if !page.more {
            let last = page.events.last().map_or(after, |e| e.seq).min(tracked.last());
            self.not_older(id, last, answer)?;
        }
        Ok(())
    }

    fn not_older(&mut self, id: &ExecutionId, last: Seq, answer: &Answer<'_>) -> Checked {
        let floor = answer.exchange.floor;
        let old = answer.current && last < floor;
        ensure!(!old, CHECK, "{id} is shown up to {last}, after {floor} was shown before the request came");
        self.show(id, last);
        Ok(())
    }

    fn show(&mut self, id: &ExecutionId, seq: Seq) {
        let shown = self.shown.entry(id.clone()).or_default();
        *shown = seq.max(*shown);
    }
}

/// A row of a list, or of a view.
fn on_item<'a>(item: &ExecutionItem, histories: &'a HistoryCheck) -> Result<&'a Tracked, Violation> {
    let id = &item.execution_id;
    let Some(tracked) = histories.get(id) else {
        return Err(Violation::safety(CHECK, format!("{id} is shown, and not recorded")));
    };
    let status = item.status;
    let ended = !status.is_terminal() || tracked.ended == Some(status);
    ensure!(ended, CHECK, "{id} is shown as {status:?}, and it is {:?}", tracked.ended);
    ensure!(status != Status::Quarantined, CHECK, "{id} is quarantined");
    Ok(tracked)
}

/// The execution that a request is about.
pub fn named(request: &Request) -> Option<&ExecutionId> {
    match request {
        Request::GetExecution(id)
        | Request::Wait { execution: id, .. }
        | Request::GetHistory { execution: id, .. }
        | Request::Cancel { execution: id, .. }
        | Request::Terminate { execution: id, .. }
        | Request::Signal { execution: id, .. }
        | Request::Update { execution: id, .. }
        | Request::Query { execution: id, .. } => Some(id),
        _ => None,
    }
}
