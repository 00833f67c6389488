//! What a server is told of its calls: what failed has changed nothing; a group that was written is there, and one that was
//! rejected is not, then or later. By the ids of groups and calls, not by what the rows look like (protocols, 2 and 4).

use super::{Checked, Committed, ensure};
use crate::store::{Change, ModelStore};
use orbit_core::id::{CallKey, GroupId};
use orbit_core::store::append::GroupOutcome;
use orbit_core::store::outcome::Reply;
use orbit_core::store::statement::PutResult;
use orbit_core::store::transaction::{Transaction, Verdict};
use std::collections::BTreeSet;

const CHECK: &str = "verdict";

/// What a call was about.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The groups of an append, in order.
    pub groups: Vec<GroupId>,
    /// The key of a deployment.
    pub deploys: Option<CallKey>,
}

impl Asked {
    /// Of this transaction.
    pub fn of(transaction: &Transaction) -> Asked {
        match transaction {
            Transaction::Append(append) => {
                Asked { groups: append.groups.iter().map(|group| group.id).collect(), deploys: None }
            }
            Transaction::Deploy(put) => Asked { groups: Vec::new(), deploys: Some(put.key) },
            _ => Asked::default(),
        }
    }
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct VerdictCheck {
    written: BTreeSet<GroupId>,
    rejected: BTreeSet<GroupId>,
}

impl VerdictCheck {
    pub fn on_commit(&mut self, committed: &Committed<'_>) -> Checked {
        for change in &committed.commit.changes {
            if let Change::Group { group, .. } = change {
                let told = self.rejected.contains(&group.id);
                ensure!(!told, CHECK, "group {:?} is written, and its server was told that it is rejected", group.id);
                self.written.insert(group.id);
            }
        }
        Ok(())
    }

    /// A server is told what became of a call on this timeline; `changed`: that call has changed something.
    pub fn on_reply(&mut self, asked: &Asked, reply: &Reply<Verdict>, changed: bool, store: &ModelStore) -> Checked {
        match reply {
            Reply::Failed(failure) => {
                ensure!(
                    !changed,
                    CHECK,
                    "a call has changed something, and its server is told that it failed: {failure:?}"
                );
            }
            Reply::Done(Verdict::Append(outcomes)) => {
                for (group, outcome) in asked.groups.iter().zip(outcomes) {
                    let written = self.written.contains(group);
                    let right = match outcome {
                        GroupOutcome::Written => written,
                        GroupOutcome::Rejected(_) => !written,
                        // It is to be asked again: an earlier sending may have written it.
                        GroupOutcome::Busy => true,
                    };
                    ensure!(
                        right,
                        CHECK,
                        "of group {group:?} a server is told {outcome:?}, and it is written: {written}"
                    );
                    if let GroupOutcome::Rejected(_) = outcome {
                        self.rejected.insert(*group);
                    }
                }
            }
            Reply::Done(Verdict::Deploy(result)) => {
                let stored = asked.deploys.is_some_and(|key| store.is_deployed_under(key));
                let right = stored == (*result == PutResult::Created);
                ensure!(right, CHECK, "of a definition a server is told {result:?}, and it is stored: {stored}");
            }
            _ => {}
        }
        Ok(())
    }
}
