//! Reads: nothing is shown that is not committed; nothing is shown that is older than what somebody was shown before
//! the request came (by a server that may write, or by a standby).

use super::history::HistoryCheck;
use super::runs::{Position, Runs};
use super::signal::stands;
use super::{Answer, Checked, Violation, ensure};
use crate::coverage::{Coverage, Mark};
use orbit_core::api::response::{ExecutionItem, ExecutionView, History, Signalled, Updated};
use orbit_core::api::{ErrorCode, Reply, Request};
use orbit_core::execution::event::Event;
use orbit_core::id::{ExecutionId, Run, Seq};
use orbit_core::store::append::Status;
use std::collections::BTreeMap;

const CHECK: &str = "read";

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct ReadCheck {
    /// The newest event of each execution that somebody was told of.
    shown: BTreeMap<ExecutionId, Position>,
}

impl ReadCheck {
    /// What was shown of that execution so far.
    pub fn shown(&self, id: &ExecutionId) -> Position {
        self.shown.get(id).copied().unwrap_or_default()
    }

    /// Everything that is recorded counts as shown from now on.
    pub fn show_all(&mut self, histories: &HistoryCheck) {
        for (id, runs) in histories.all_runs() {
            self.show(id, runs.last());
        }
    }

    pub fn on_answer(&mut self, answer: &Answer<'_>, histories: &HistoryCheck, marks: &mut Coverage) -> Checked {
        match (&*answer.exchange.request, &answer.response.reply) {
            (Request::GetExecution(id) | Request::Wait { execution: id, .. }, Reply::Execution(view))
            | (Request::Cancel { execution: id, .. }, Reply::Cancelled(view))
            | (Request::Terminate { execution: id, .. }, Reply::Terminated(view))
            | (Request::Recover { execution: id, .. }, Reply::Recovered(view)) => {
                ensure!(view.item.execution_id == *id, CHECK, "{} is shown for {id}", view.item.execution_id);
                self.on_view(view, answer, histories)?;
                if matches!(&*answer.exchange.request, Request::Wait { .. }) && view.item.status.is_terminal() {
                    marks.hit(Mark::WaitEnded);
                    let began = answer.exchange.newest.run;
                    if began < view.item.run && began > Run(0) {
                        marks.hit(Mark::WaitOverRuns);
                    }
                }
                Ok(())
            }
            (Request::GetHistory { execution, run, after, .. }, Reply::History(page)) => {
                if page.run < histories.runs(execution).map_or(page.run, |runs| runs.last().run)
                    && !page.events.is_empty()
                {
                    marks.hit(Mark::EarlierRunRead);
                }
                self.on_page(execution, *run, *after, page, answer, histories)
            }
            (Request::ListExecutions(_), Reply::Executions(page)) => {
                page.executions.iter().try_for_each(|item| on_item(item, histories).map(|_| ()))
            }
            (Request::Start(_), Reply::Started(started)) => {
                self.show(&started.execution_id, Position { run: Run(1), seq: Seq(1) });
                Ok(())
            }
            (Request::Signal { execution, signal: sent }, Reply::Signalled(Signalled { seq, run }))
            | (Request::Update { execution, update: sent }, Reply::Updated(Updated { seq, run, .. })) => {
                let told = Position { run: *run, seq: *seq };
                // That it is there was checked before.
                if histories.runs(execution).is_some_and(|runs| stands(runs, sent, told)) {
                    self.show(execution, told);
                }
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
                    let recorded = histories.runs(&token.execution).and_then(|runs| runs.result_of(token));
                    if let Some(position) = recorded {
                        self.show(&token.execution, position);
                    }
                }
                Ok(())
            }
            (request, Reply::Error(error)) if error.code == ErrorCode::UnknownExecution => {
                let named = named(request);
                let floor = answer.exchange.floor;
                // One that has not come to the run that is asked for has no history of that.
                let is_there = match request {
                    Request::GetHistory { run: Some(run), .. } => floor.run >= *run,
                    _ => floor > Position::default(),
                };
                let hidden = answer.is_new() && is_there;
                ensure!(!hidden, CHECK, "{named:?} is said to be unknown, though it was shown before");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_view(&mut self, view: &ExecutionView, answer: &Answer<'_>, histories: &HistoryCheck) -> Checked {
        let runs = on_item(&view.item, histories)?;
        let id = &view.item.execution_id;
        let status = view.item.status;
        let shown = Position { run: view.item.run, seq: view.last_seq };
        let Some(tracked) = runs.get(view.item.run).filter(|tracked| shown <= tracked.position()) else {
            return Err(Violation::safety(CHECK, format!("{id} is shown up to {shown}, of {}", runs.last())));
        };
        let input = tracked.input();
        ensure!(
            input == Some(&view.input),
            CHECK,
            "{id} is shown with {}, and run {} has {input:?}",
            view.input,
            view.item.run
        );
        let held = tracked.is_held_at(view.last_seq);
        ensure!((status == Status::Held) == held, CHECK, "{id} is shown as {status:?} at {shown}: held: {held}");
        ensure!(view.reason.is_some() == held, CHECK, "{id} is shown as held, and with the reason {:?}", view.reason);
        let at_end = tracked.ended.is_some() && shown == tracked.position();
        ensure!(status.is_terminal() == at_end, CHECK, "{id} is shown as {status:?} at {shown}");
        match tracked.terminal() {
            Some(Event::WorkflowCompleted { output, .. }) if at_end => {
                ensure!(view.output.as_ref() == Some(output), CHECK, "{id} is shown with {:?}", view.output);
            }
            Some(Event::WorkflowFailed { error, .. }) if at_end => {
                ensure!(view.error.as_ref() == Some(error), CHECK, "{id} is shown with {:?}", view.error);
            }
            _ => ensure!(view.output.is_none(), CHECK, "{id} is shown with an output, which it has not"),
        }
        self.not_older(id, shown, answer)
    }

    fn on_page(
        &mut self,
        id: &ExecutionId,
        asked: Option<Run>,
        after: Seq,
        page: &History,
        answer: &Answer<'_>,
        histories: &HistoryCheck,
    ) -> Checked {
        let run = page.run;
        ensure!(
            asked.is_none_or(|asked| asked == run),
            CHECK,
            "run {run} of {id} is shown, and {asked:?} was asked for"
        );
        let Some(runs) = histories.runs(id) else {
            return Err(Violation::safety(CHECK, format!("a history of {id} is shown, and none is recorded")));
        };
        for (event, number) in page.events.iter().zip(after.0 + 1..) {
            let recorded = usize::try_from(number - 1).ok().and_then(|at| runs.get(run)?.events.get(at));
            ensure!(
                recorded == Some(event),
                CHECK,
                "{id}{} is shown as {event:?}, recorded {recorded:?}",
                Position { run, seq: Seq(number) }
            );
        }
        let Some(tracked) = runs.get(run) else {
            return Err(Violation::safety(CHECK, format!("run {run} of {id} is shown, and there is none")));
        };
        if page.more {
            return Ok(());
        }
        let last = page.events.last().map_or(after, |e| e.seq).min(tracked.last());
        let floor = answer.exchange.floor;
        if asked.is_some() && run < floor.run {
            // Of an earlier run nothing is missing any more.
            let whole = !answer.is_new() || last == tracked.last();
            ensure!(whole, CHECK, "run {run} of {id} is shown up to #{last}, and it has #{}", tracked.last());
            return Ok(());
        }
        self.not_older(id, Position { run, seq: last }, answer)
    }

    fn not_older(&mut self, id: &ExecutionId, last: Position, answer: &Answer<'_>) -> Checked {
        let floor = answer.exchange.floor;
        let old = answer.is_new() && last < floor;
        ensure!(!old, CHECK, "{id} is shown up to {last}, after {floor} was shown before the request came");
        self.show(id, last);
        Ok(())
    }

    fn show(&mut self, id: &ExecutionId, position: Position) {
        let shown = self.shown.entry(id.clone()).or_default();
        *shown = position.max(*shown);
    }
}

/// A row of a list, or of a view.
fn on_item<'a>(item: &ExecutionItem, histories: &'a HistoryCheck) -> Result<&'a Runs, Violation> {
    let id = &item.execution_id;
    let Some((runs, newest)) = histories.runs(id).and_then(|runs| Some((runs, runs.newest()?))) else {
        return Err(Violation::safety(CHECK, format!("{id} is shown, and not recorded")));
    };
    let status = item.status;
    let ended = !status.is_terminal() || newest.ended == Some(status);
    ensure!(ended, CHECK, "{id} is shown as {status:?}, and it is {:?}", newest.ended);
    ensure!(status != Status::Quarantined, CHECK, "{id} is quarantined");
    let created = runs.iter().next().and_then(|first| first.events.first()).map(|event| event.at_ms);
    ensure!(
        created == Some(item.created_at_ms),
        CHECK,
        "{id} is shown as of {:?}, and is of {created:?}",
        item.created_at_ms
    );
    Ok(runs)
}

/// The execution that a request is about.
pub fn named(request: &Request) -> Option<&ExecutionId> {
    match request {
        Request::GetExecution(id)
        | Request::Wait { execution: id, .. }
        | Request::GetHistory { execution: id, .. }
        | Request::Cancel { execution: id, .. }
        | Request::Terminate { execution: id, .. }
        | Request::Recover { execution: id, .. }
        | Request::Signal { execution: id, .. }
        | Request::Update { execution: id, .. }
        | Request::Query { execution: id, .. } => Some(id),
        _ => None,
    }
}
