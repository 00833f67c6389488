//! One writer per term; in commit order, nothing by an older term comes after a newer one (scenarios, 2).

use super::{Checked, Committed, ensure};
use crate::store::Change;
use orbit_core::id::{Incarnation, Term};
use orbit_core::store::append::Fence;
use std::collections::BTreeMap;

const CHECK: &str = "fence";

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct FenceCheck {
    writers: BTreeMap<Term, Incarnation>,
    newest: Term,
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
                    self.newest = after.term;
                    self.writers.insert(after.term, after.incarnation);
                }
                Change::Group { repeated: true, .. } | Change::Claimed { repeated: true, .. } => {}
                Change::Group { fence, .. } | Change::Claimed { fence, .. } | Change::Defined { fence, .. } => {
                    self.may_write(*fence)?;
                }
                Change::HolderCleared { fence } | Change::Swept { fence, .. } => self.may_write(*fence)?,
                Change::Requeued { .. }
                | Change::LeaseTaken { .. }
                | Change::LeaseRenewed { .. }
                | Change::LeaseFreed { .. }
                | Change::LeaseSeized { .. }
                | Change::WorkerSaved
                | Change::WorkersSeen { .. }
                | Change::WorkersForgotten { .. }
                | Change::NodeBeat { .. }
                | Change::NodeLeft { .. } => {}
            }
        }
        Ok(())
    }

    fn may_write(&self, fence: Fence) -> Checked {
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
