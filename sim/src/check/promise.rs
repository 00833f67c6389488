//! Promises: every acknowledged start, result and cancel is there exactly once; every refused one is absent.

use super::history::{HistoryCheck, Tracked};
use super::{Answer, Checked, Violation, ensure};
use crate::coverage::{Coverage, Mark};
use crate::schema;
use crate::store::ModelStore;
use crate::world::book::Book;
use orbit_core::api::request::Start;
use orbit_core::api::response::{Accepted, ResultOutcome, Started};
use orbit_core::api::{ErrorCode, Reply, Request};
use orbit_core::execution::event::Event;
use orbit_core::id::{ExecutionId, Token};
use std::collections::BTreeSet;

const CHECK: &str = "promise";

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct PromiseCheck {
    /// Executions that somebody was told to have created.
    created: BTreeSet<ExecutionId>,
}

impl PromiseCheck {
    pub fn on_answer(
        &mut self,
        answer: &Answer<'_>,
        histories: &HistoryCheck,
        book: &mut Book,
        marks: &mut Coverage,
    ) -> Checked {
        if let Reply::Error(error) = &answer.response.reply {
            mark_error(error.code, marks);
            if error.code == ErrorCode::StorageError && error.message.contains("nothing was sent") {
                marks.hit(Mark::NothingSent);
            }
        }
        let current = answer.current;
        match (&*answer.exchange.request, &answer.response.reply) {
            (Request::Start(start), Reply::Started(started)) => self.on_started(start, started, histories, book, marks),
            (Request::Start(start), Reply::Error(error)) => on_start_refused(start, error.code, histories, book, marks),
            (Request::Cancel { execution, .. }, Reply::Cancelled(_)) => {
                // What winds down already is cancelled no more.
                let asked = histories.get(execution).is_some_and(|t| t.winds_down());
                ensure!(asked, CHECK, "the cancel of {execution} is acknowledged and not recorded");
                Ok(())
            }
            (Request::Terminate { execution, .. }, Reply::Terminated(_)) => {
                let asked =
                    histories.get(execution).is_some_and(|t| t.ended.is_some() || t.is_terminated_with_others());
                ensure!(asked, CHECK, "{execution} is said to be terminated, and runs");
                Ok(())
            }
            (Request::Recover { execution, .. }, Reply::Recovered(_)) => {
                // Whoever has taken over since may have held it again.
                let held = histories.get(execution).is_none_or(|t| t.held.is_some());
                ensure!(!(held && current), CHECK, "the recovery of {execution} is acknowledged, and it is held");
                Ok(())
            }
            (Request::Recover { execution, .. }, Reply::Error(error)) if error.code == ErrorCode::NotHeld => {
                let held = histories.get(execution).is_none_or(|t| t.held.is_some());
                ensure!(!(held && current), CHECK, "{execution} is said not to be held, and it is");
                Ok(())
            }
            (Request::Cancel { execution, .. } | Request::Terminate { execution, .. }, Reply::Error(error))
                if error.code == ErrorCode::ExecutionFinished =>
            {
                let ended = histories.get(execution).is_some_and(|t| t.ended.is_some());
                ensure!(ended, CHECK, "{execution} is said to have ended, and runs");
                Ok(())
            }
            (Request::Report { results, .. }, Reply::Reported(outcomes)) => {
                let tokens = results.iter().map(|r| &r.token);
                on_outcomes(tokens, outcomes, histories, book, current, marks)
            }
            (Request::Report { results, .. }, Reply::ReportedOne(outcome)) => on_outcomes(
                results.iter().map(|r| &r.token),
                std::slice::from_ref(outcome),
                histories,
                book,
                current,
                marks,
            ),
            (Request::Poll(poll), Reply::Polled(polled)) => {
                on_outcomes(poll.results.iter().map(|r| &r.token), &polled.outcomes, histories, book, current, marks)
            }
            (Request::Deploy { .. }, Reply::Deployed(deployed)) => {
                let there =
                    answer.store.definitions().any(|d| d.name == deployed.name && d.version == deployed.version);
                ensure!(there, CHECK, "{} {} is said to be deployed", deployed.name, deployed.version);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn on_started(
        &mut self,
        start: &Start,
        started: &Started,
        histories: &HistoryCheck,
        book: &mut Book,
        marks: &mut Coverage,
    ) -> Checked {
        let id = &started.execution_id;
        ensure!(start.execution_id.as_ref().is_none_or(|asked| asked == id), CHECK, "{id} was not asked for");
        let Some(tracked) = first_run(id, histories) else {
            return Err(Violation::safety(CHECK, format!("the start of {id} is acknowledged and not recorded")));
        };
        let Event::WorkflowCreated { workflow, input, labels, .. } = &tracked.events[0].event else {
            unreachable!("checked when it was recorded")
        };
        if let Some(Err(wrong)) = tracked.definition.input_schema.as_ref().map(|s| schema::matches(s, input)) {
            return Err(Violation::safety(
                CHECK,
                format!("{id} was started with an input that its schema forbids: {wrong:?}"),
            ));
        }
        let same = *workflow == start.workflow && *input == start.input;
        ensure!(same, CHECK, "{id} is acknowledged with {workflow} and {input}, which is not what was asked for");
        if started.created {
            ensure!(*labels == start.labels, CHECK, "{id} was started with other labels");
            ensure!(self.created.insert(id.clone()), CHECK, "{id} is said to be created a second time");
        } else {
            marks.hit(Mark::StartRepeated);
        }
        book.acknowledged(start, id);
        Ok(())
    }

    pub fn at_end(&self, store: &ModelStore, book: &Book) -> Checked {
        for (id, record) in book.starts() {
            let there = store.executions().contains_key(id);
            if record.acknowledged {
                ensure!(there, CHECK, "{id} was acknowledged and is not there");
            }
            if record.refused == record.sent {
                ensure!(!there, CHECK, "every start of {id} was refused, and it is there");
            }
        }
        // No client chooses the id of a child, nor starts it.
        let started = store.executions().keys().filter(|id| !id.as_str().contains('~'));
        let anonymous = started.filter(|id| !book.is_own_id(id)).count() as u64;
        let (least, most) = book.anonymous();
        ensure!(
            (least..=most).contains(&anonymous),
            CHECK,
            "{anonymous} executions without an own id, where {least} were acknowledged and {most} asked for"
        );
        Ok(())
    }
}

/// What was asked for: the first run of an execution.
fn first_run<'a>(id: &ExecutionId, histories: &'a HistoryCheck) -> Option<&'a Tracked> {
    histories.runs(id)?.iter().next()
}

fn mark_error(code: ErrorCode, marks: &mut Coverage) {
    match code {
        ErrorCode::OutcomeUnknown => marks.hit(Mark::OutcomeUnknown),
        ErrorCode::UnknownSession => marks.hit(Mark::SessionUnknown),
        ErrorCode::ResourceExhausted => marks.hit(Mark::StartRefused),
        ErrorCode::InputInvalid => marks.hit(Mark::InputRefused),
        ErrorCode::NotHeld => marks.hit(Mark::NotHeld),
        _ => {}
    }
}

fn on_start_refused(
    start: &Start,
    code: ErrorCode,
    histories: &HistoryCheck,
    book: &mut Book,
    marks: &mut Coverage,
) -> Checked {
    match code {
        ErrorCode::OutcomeUnknown | ErrorCode::Internal => {}
        ErrorCode::ExecutionIdConflict => {
            let there = start.execution_id.as_ref().and_then(|id| first_run(id, histories)).map(|t| &t.events[0].event);
            let Some(Event::WorkflowCreated { workflow, input, .. }) = there else {
                return Err(Violation::safety(CHECK, format!("the id of {start:?} is said to be taken, and is not")));
            };
            let other = *workflow != start.workflow || *input != start.input;
            ensure!(other, CHECK, "a repetition of the start of {:?} is refused", start.execution_id);
            marks.hit(Mark::StartConflict);
            book.refused(start);
        }
        _ => {
            // Refused: nothing was written by this request. Whether by another one, where there is another, the end tells.
            if let Some(id) = start.execution_id.as_ref().filter(|id| book.is_sent_once(id)) {
                ensure!(histories.get(id).is_none(), CHECK, "the only start of {id} was refused, and it is there");
            }
            book.refused(start);
        }
    }
    Ok(())
}

fn on_outcomes<'a>(
    tokens: impl ExactSizeIterator<Item = &'a Token>,
    outcomes: &[ResultOutcome],
    histories: &HistoryCheck,
    book: &Book,
    current: bool,
    marks: &mut Coverage,
) -> Checked {
    ensure!(tokens.len() == outcomes.len(), CHECK, "{} outcomes of {} results", outcomes.len(), tokens.len());
    for (token, outcome) in tokens.zip(outcomes) {
        ensure!(*token == outcome.token, CHECK, "the outcome of {} stands for {token}", outcome.token);
        let runs = histories.runs(&token.execution);
        let recorded = runs.is_some_and(|runs| runs.result_of(token).is_some());
        match outcome.outcome {
            Accepted::Accepted => ensure!(recorded, CHECK, "the result of {token} is accepted and not recorded"),
            Accepted::Duplicate => {
                ensure!(recorded, CHECK, "the result of {token} is called a duplicate and is not recorded");
                marks.hit(Mark::DuplicateResult);
            }
            Accepted::Stale => {}
            Accepted::Refused => {
                let Some(error) = &outcome.error else {
                    return Err(Violation::safety(CHECK, format!("the result of {token} is refused without a reason")));
                };
                if error.code == ErrorCode::StorageError && book.is_reported_once(token) {
                    ensure!(!recorded, CHECK, "the only report of {token} failed for certain, and it is recorded");
                }
                if error.code == ErrorCode::UnknownToken {
                    let handed = runs.is_some_and(|runs| runs.of_delivery(token).is_some());
                    // One that was deposed, and has not heard of it, knows nothing of what its successor handed out.
                    ensure!(!(handed && current), CHECK, "{token} is said to be unknown, and it was handed out");
                    marks.hit(Mark::UnknownToken);
                }
            }
        }
    }
    Ok(())
}
