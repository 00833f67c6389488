//! Whether a leader's appends go through (protocols, 14).
//!
//! Looks at the lock and at the fence tell whose the lead is, not whether anything can be done with it. A leader of whose
//! appends none has gone through for a while gives the lead up, so that another may try, but only once the database has
//! taken other writes, sent since then: the beats among the nodes. Where it takes none, nobody else could do better: the
//! server says that it is not ready, and keeps its place.

use super::Node;
use crate::mutant::{Mutant, Mutants};
use crate::time::Mono;
use std::time::Duration;

/// Appends without success for longer than this, and the server says that it is not ready.
const UNREADY_AFTER: Duration = Duration::from_secs(5);

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// When the first append was sent of those that have not gone through since one did.
    since: Option<Mono>,
    /// The database has taken one other write since they hang. A second one shows that it goes on: of a database that stood
    /// still, the answers come all at once.
    proved: bool,
}

impl Progress {
    /// An append is sent.
    pub fn tries(&mut self, now: Mono) {
        self.since.get_or_insert(now);
    }

    /// One has gone through, whatever it was told; or none is to be sent any more.
    pub fn rests(&mut self) {
        *self = Progress::default();
    }
}

impl<M: Mutants> Node<M> {
    /// Whether appends have not gone through for so long that the server says so.
    pub(super) fn writes_hang(&self) -> bool {
        self.progress.since.is_some_and(|since| since + UNREADY_AFTER <= self.now.mono)
    }

    /// The database answered something that is no write.
    pub(super) fn heard_anything(&mut self) {
        if self.mutants.planted(Mutant::AnyAnswerIsProgress) && self.progress.since.is_some() {
            self.progress.since = Some(self.now.mono);
        }
    }

    /// The database took another write than an append, which was sent then.
    pub(super) fn took_another_write(&mut self, sent: Mono) {
        self.heard_anything();
        let Some(stuck_after) = self.standby().map(|standby| standby.stuck_after) else { return };
        let (Some(since), true) = (self.progress.since, self.is_serving()) else { return };
        if since + stuck_after <= sent && std::mem::replace(&mut self.progress.proved, true) {
            let waits = self.now.mono.since(since).as_millis();
            self.let_others_lead(format!(
                "no append has gone through for {waits} ms, and the database takes other writes"
            ));
        }
    }

    /// Nothing is to be appended, and nothing has just failed: then nothing hangs. Where a client asks for one thing at a time,
    /// there is nothing to append between a failure and its next try.
    pub(super) fn rest_when_nothing_is_tried(&mut self) {
        if !self.committing && self.ready.is_empty() && !self.write_failed_lately() {
            self.progress.rests();
        }
    }
}
