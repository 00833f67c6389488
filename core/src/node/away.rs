//! A database that does not answer: what can be said at once is not waited for.
//!
//! A look at the fence that fails, or has no answer in time, begins it; one that is answered ends it. Once it has lasted
//! for [`GRACE`], those who wait for what was certainly not sent are told so and may try again, and so is whoever asks
//! from then on. What was sent stays open until its outcome is known (protocols, 4), and so do results of workers: they
//! wait in line, and are recorded as soon as the database is back.

use super::request::Open;
use super::{Node, RequestId};
use crate::api::{ApiError, ErrorCode};
use crate::id::ExecutionId;
use crate::mutant::{Mutant, Mutants};
use crate::node::slot::Body;
use crate::store::outcome::FailureKind;
use crate::time::Mono;
use std::time::Duration;

/// A connection that merely broke is replaced in less.
const GRACE: Duration = Duration::from_secs(1);
/// So long after a read failed, or was in doubt, the server says that it may not serve reads.
const READ_TROUBLE: Duration = Duration::from_secs(5);

/// What the server knows of a database that does not answer.
#[derive(Debug, Default)]
pub(crate) struct Away {
    /// When the first look failed of those that have failed since one was answered.
    since: Option<Mono>,
    /// Those who wait have been told.
    told: bool,
    /// When a read of a request failed, or was in doubt, since the last one that did not.
    read_failed: Option<Mono>,
}

impl<M: Mutants> Node<M> {
    /// A look at the database failed, or has had no answer for too long.
    pub(super) fn look_failed(&mut self) {
        self.away.since.get_or_insert(self.now.mono);
    }

    /// A look at the database was answered.
    pub(super) fn look_went_well(&mut self) {
        (self.away.since, self.away.told) = (None, false);
    }

    /// Whether the last look at the database failed.
    pub(super) fn is_unseen(&self) -> bool {
        self.away.since.is_some()
    }

    /// Whether looks have failed for so long that nothing is sent to the database for a request.
    pub(super) fn is_away(&self) -> bool {
        self.away.since.is_some_and(|since| since + GRACE <= self.now.mono)
    }

    /// Why nothing of a request is sent to the database now.
    pub(super) fn away(&self) -> Option<ApiError> {
        self.is_away().then(unsent)
    }

    /// When those who wait are told.
    pub(super) fn next_away(&self) -> Option<Mono> {
        self.away.since.filter(|_| !self.away.told).map(|since| since + GRACE)
    }

    /// Tells those who wait for something that was certainly not sent, and those who merely read.
    pub(super) fn tell_when_away(&mut self) {
        let away = self.is_away();
        self.calls.repeat_failures(!away);
        if !away || self.away.told {
            return;
        }
        self.away.told = true;
        let open: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in open {
            match self.requests.get(&id).map(|open| &open.kind) {
                Some(Open::Write(execution)) => {
                    let execution = execution.clone();
                    if self.withdraw(&execution, id) {
                        self.respond(id, unsent());
                    }
                }
                Some(Open::Read(_)) => self.respond(id, unanswered()),
                _ => {}
            }
        }
    }

    /// Takes what a request asked for out of its execution's line, where nothing of it is on its way: then it certainly
    /// has not taken effect, and will not.
    pub(super) fn withdraw(&mut self, execution: &ExecutionId, request: RequestId) -> bool {
        let Some(slot) = self.slots.get_mut(execution) else { return false };
        let Some(at) = slot.queue.iter().position(|work| work.request() == Some(request)) else { return false };
        if self.mutants.planted(Mutant::WithdrawnStaysInLine) {
            return true;
        }
        let work = slot.queue.remove(at).expect("found just now");
        let nobody = slot.queue.is_empty() && !slot.in_flight && matches!(slot.body, Body::Unread | Body::Absent);
        if nobody {
            self.slots.remove(execution);
        }
        self.no_longer_asked(std::iter::once(&work));
        true
    }

    /// Whether a read would be taken in and has a chance.
    pub(super) fn may_be_read(&self) -> bool {
        let failed = self.away.read_failed.is_some_and(|at| self.now.mono < at + READ_TROUBLE);
        (self.takes_requests() || self.follows()) && !self.is_unseen() && !failed
    }

    /// A read of a request went through, or did not: why, where it certainly failed.
    pub(super) fn heard_of_read(&mut self, trouble: Option<Option<FailureKind>>) {
        self.away.read_failed = match trouble {
            None => None,
            // One row that cannot be read says nothing about others.
            Some(Some(FailureKind::Data | FailureKind::Broken)) => return,
            Some(_) => Some(self.now.mono),
        };
    }
}

/// Nothing of a request was sent to the database.
pub(super) fn unsent() -> ApiError {
    let message = "the database does not answer, and nothing was sent to it: nothing has changed";
    ApiError::new(ErrorCode::StorageError, message)
}

/// What was to be read has not been.
pub(super) fn unanswered() -> ApiError {
    ApiError::new(ErrorCode::StorageError, "the database does not answer")
}
