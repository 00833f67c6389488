//! One writer per term; in commit order, nothing by an older term comes after a newer one (scenarios, 2). What gives its
//! place up writes nothing more (scenarios, B8).

use super::{By, Checked, Committed, ensure};
use crate::postgres::SessionId;
use crate::store::Change;
use crate::world::server::Pid;
use orbit_core::id::{Incarnation, Term};
use orbit_core::store::append::Fence;
use std::collections::BTreeMap;

const CHECK: &str = "fence";

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct FenceCheck {
    writers: BTreeMap<Term, Incarnation>,
    newest: Term,
    /// Whose holder gave it up.
    released: Option<Fence>,
    /// Whose each session is that has won an election.
    elected: BTreeMap<SessionId, Pid>,
}

impl FenceCheck {
    pub fn on_commit(&mut self, committed: &Committed<'_>) -> Checked {
        for change in &committed.commit.changes {
            match change {
                Change::FenceRaised { before, after } => {
                    ensure!(
                        after.term > self.newest && after.term > before.term,
                        CHECK,
                        "term {} was raised to {}, though term {} had been reached",
                        before.term,
                        after.term,
                        self.newest
                    );
                    let by_lease =
                        |change: &Change| matches!(change, Change::LeaseTaken { .. } | Change::LeaseSeized { .. });
                    let by_lock = !committed.commit.changes.iter().any(by_lease);
                    if let Some(By { session, pid, .. }) = committed.by.filter(|_| by_lock) {
                        let before = *self.elected.entry(session).or_insert(pid);
                        ensure!(
                            before == pid,
                            CHECK,
                            "{session:?} holds the election lock for {before:?}, and term {} is raised on it for {pid:?}",
                            after.term
                        );
                        let holder = committed.locked_by.unwrap_or(pid);
                        ensure!(
                            holder == pid,
                            CHECK,
                            "term {} was raised for {pid:?}, and the election lock is {holder:?}'s",
                            after.term
                        );
                    }
                    if let Some(By { pid, knows, .. }) = committed.by {
                        let schema = committed.schema;
                        ensure!(
                            knows >= schema,
                            CHECK,
                            "{pid:?} leads from term {} on, with tables of version {schema}, and knows version {knows}",
                            after.term
                        );
                    }
                    self.newest = after.term;
                    self.writers.insert(after.term, after.incarnation);
                }
                Change::ModeSet { before, after } => {
                    ensure!(
                        after.term > self.newest,
                        CHECK,
                        "the mode was changed in term {}, and whoever led term {} may write still",
                        after.term,
                        before.term
                    );
                    self.newest = after.term;
                    self.writers.insert(after.term, after.incarnation);
                }
                Change::Group { repeated: true, .. } | Change::Claimed { repeated: true, .. } => {}
                Change::Group { fence, .. } | Change::Claimed { fence, .. } | Change::Defined { fence, .. } => {
                    // What was given up as lost may come late; nobody reckons with it.
                    ensure!(
                        committed.late || self.released != Some(*fence),
                        CHECK,
                        "term {} was given up, and wrote after that",
                        fence.term
                    );
                    self.is_writer(*fence)?;
                }
                Change::Swept { fence, .. } => self.is_writer(*fence)?,
                // A release that is sent again finds what it did.
                Change::HolderCleared { fence } => {
                    self.is_writer(*fence)?;
                    self.released = Some(*fence);
                }
                Change::Requeued { .. }
                | Change::LeaseTaken { .. }
                | Change::LeaseRenewed { .. }
                | Change::LeaseFreed { .. }
                | Change::LeaseSeized { .. }
                | Change::WorkerSaved
                | Change::WorkersSeen { .. }
                | Change::WorkersForgotten { .. }
                | Change::NodeBeat { .. }
                | Change::MarkedDead { .. }
                | Change::TreeTaken { .. }
                | Change::MembersTaken { .. }
                | Change::NodeLeft { .. } => {}
            }
        }
        Ok(())
    }

    fn is_writer(&self, fence: Fence) -> Checked {
        let writer = self.writers.get(&fence.term);
        ensure!(fence.term == self.newest, CHECK, "term {} wrote after term {} began", fence.term, self.newest);
        ensure!(
            writer == Some(&fence.incarnation),
            CHECK,
            "{:?} wrote in term {}, which belongs to {writer:?}",
            fence.incarnation,
            fence.term
        );
        Ok(())
    }
}
