//! Executions that are set aside (interfaces, "History and storage"): loading or applying one failed. The reason is shown,
//! the others go on, and it is loaded again when somebody releases it, or at the server's next start.
//!
//! A history whose definition is not known here is no such case yet: another server may have deployed it, which has taken
//! over, or stored it just now. The definitions are read again first.

use super::ask::Ask;
use super::draft::Draft;
use super::request::Open;
use super::slot::{Body, Slot, Work};
use super::{Connection, LogEvent, Node, Purpose, RequestId};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::response::{Reply, Response};
use crate::execution::State;
use crate::id::ExecutionId;
use crate::mutant::Mutants;
use crate::store::append::TaskState;
use crate::store::outcome::Failure;
use crate::store::statement::LoadedExecution;
use crate::store::transaction::{Transaction, Verdict};

impl<M: Mutants> Node<M> {
    /// Sets an execution aside, so that the others go on.
    pub(super) fn set_aside(&mut self, execution: &ExecutionId, reason: String) -> Body {
        self.log(LogEvent::Quarantined { execution_id: execution.clone(), reason: reason.clone() });
        Body::Broken(reason)
    }

    /// Somebody wants what is set aside to be tried again: it is read anew.
    pub(super) fn release_execution(&mut self, id: RequestId, execution: &ExecutionId) {
        if let Some(error) = self.away() {
            return self.answer(id, error);
        }
        if !self.open_write(id, Open::Write(execution.clone())) {
            return;
        }
        let slot = self.slots.get_mut(execution).filter(|slot| matches!(slot.body, Body::Broken(_)));
        let aside = slot.is_some();
        if let Some(slot) = slot {
            slot.body = Body::Loading;
            slot.released = true;
            self.to_load.insert(execution.clone());
        }
        self.enqueue(execution, Work::Ask { request: id, ask: Ask::Release { aside } });
        if aside {
            // Even where the one who asked is told that it cannot be read: it is not forgotten.
            self.enqueue(execution, Work::Wake);
        }
    }

    /// It is there: it could be read. `aside`: it was set aside before.
    pub(super) fn take_release(&self, draft: &Draft, aside: bool) -> Response {
        let resident = draft.resident.as_ref().expect("the caller looked it up");
        if aside {
            return Response::ok(Reply::Released(self.view(&resident.definition, &resident.state)));
        }
        let (id, status) = (&resident.state.identity.execution_id, resident.state.status().as_str());
        ApiError::new(ErrorCode::NotQuarantined, format!("execution {id} is not quarantined: it is {status}")).into()
    }

    /// What was claimed of it while it was set aside nobody was given: it goes back to the queue.
    pub(super) fn give_claims_back(&self, slot: &Slot, draft: &mut Draft) {
        let Some(resident) = draft.resident.as_ref().filter(|_| slot.released) else { return };
        let waits = |token| slot.queue.iter().any(|work| work.claimed() == Some(token));
        let back = resident.tasks.iter().filter_map(|(task, state)| match state {
            TaskState::Claimed { token } if !waits(*token) => Some(task.clone()),
            TaskState::Claimed { .. } | TaskState::Queued => None,
        });
        draft.requeue.extend(back);
    }

    /// Of these histories the definitions are not known here: they are read again.
    pub(super) fn look_for_definitions(&mut self, undefined: Vec<LoadedExecution>) {
        self.send(Connection::Store, Transaction::Definitions, Purpose::Definitions(undefined));
    }

    pub(super) fn on_definitions(&mut self, undefined: Vec<LoadedExecution>, outcome: Result<Verdict, Failure>) {
        match outcome {
            Ok(Verdict::Definitions(rows)) => {
                self.learn_definitions(rows);
                undefined.into_iter().for_each(|loaded| self.loaded(loaded));
                self.serve_when_recovered();
            }
            Ok(other) => unreachable!("a read of definitions gives those, not {other:?}"),
            Err(failure) => self.not_loaded(undefined.into_iter().map(|loaded| loaded.execution).collect(), &failure),
        }
    }

    /// Whether a history can be read, and its definition is not known here.
    pub(super) fn is_undefined(&self, loaded: &LoadedExecution) -> bool {
        let state = State::load(&loaded.execution, loaded.events.get(..1).unwrap_or_default());
        state.is_ok_and(|first| self.catalog.get(&first.workflow, Some(&first.version)).is_none())
    }
}

/// What is said of an execution that is set aside.
pub(super) fn quarantined(execution: &ExecutionId, reason: &str) -> ApiError {
    ApiError::new(ErrorCode::Quarantined, format!("execution {execution} is quarantined: {reason}"))
}
