//! Every tree has one owner at a time, under an epoch that only rises; nobody else writes to it; and its members are its
//! root's owner's (protocols, 16 and 17).

use super::{Checked, ensure};
use crate::store::{Change, ModelStore};
use orbit_core::id::{ExecutionId, Incarnation, NodeId};
use orbit_core::store::append::{Expect, Group, OwnerChange, TreeOwner};
use orbit_core::store::ownership::TakeReason;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

const CHECK: &str = "owners";

/// What was committed so far.
#[derive(Clone, Debug, Default)]
pub struct OwnersCheck {
    /// Whose each name is.
    names: BTreeMap<NodeId, Incarnation>,
    gone: BTreeSet<Incarnation>,
    trees: BTreeMap<ExecutionId, TreeOwner>,
    roots: BTreeMap<ExecutionId, ExecutionId>,
}

impl OwnersCheck {
    /// Takes what one transaction changed, in the order of commits.
    pub fn on_commit(&mut self, changes: &[Change]) -> Checked {
        for change in changes {
            match change {
                Change::NodeBeat { node, incarnation, .. } => {
                    ensure!(!self.gone.contains(incarnation), CHECK, "{incarnation:?} beats, and is no more");
                    if let Some(before) = self.names.insert(node.clone(), *incarnation).filter(|b| b != incarnation) {
                        self.gone.insert(before);
                    }
                }
                Change::NodeLeft { incarnation, .. } | Change::MarkedDead { incarnation, .. } => {
                    self.gone.insert(*incarnation);
                }
                Change::TreeTaken { root, before, after, reason } => self.taken(root, *before, *after, *reason)?,
                Change::Group { owner: Some(owner), group, repeated: false, .. } => self.wrote(*owner, group)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn taken(&mut self, root: &ExecutionId, before: TreeOwner, after: TreeOwner, reason: TakeReason) -> Checked {
        let known = self.trees.insert(root.clone(), after);
        ensure!(known == Some(before), CHECK, "{root} was taken from {before:?}, and is {known:?}'s");
        ensure!(
            after.epoch > before.epoch,
            CHECK,
            "{root} was taken under epoch {}, which had been reached",
            after.epoch.0
        );
        let free = reason == TakeReason::HandedOver || self.gone.contains(&before.incarnation);
        ensure!(free, CHECK, "{root} was taken from {:?}, which lives", before.incarnation);
        Ok(())
    }

    fn wrote(&mut self, writer: Incarnation, group: &Group) -> Checked {
        for member in &group.members {
            let id = &member.execution;
            if let Expect::New { root, .. } = &member.expect {
                self.roots.insert(id.clone(), root.clone());
                if root == id {
                    self.trees.insert(id.clone(), TreeOwner { epoch: orbit_core::id::Epoch(1), incarnation: writer });
                }
            }
            let root = self.roots.get(id).unwrap_or(id);
            let owner = self.trees.get(root);
            let owns = owner.is_some_and(|owner| owner.incarnation == writer);
            ensure!(owns, CHECK, "{writer:?} wrote to {id} of the tree {root}, which is {owner:?}'s");
            if let (Expect::After { epoch, .. }, Some(owner)) = (&member.expect, owner) {
                let held = epoch.0;
                ensure!(*epoch == owner.epoch, CHECK, "{id} was written to under epoch {held} after {}", owner.epoch.0);
            }
        }
        let ends = group.members.iter().filter(|member| member.owner == OwnerChange::End);
        for ended in ends {
            self.trees.remove(&ended.execution);
        }
        Ok(())
    }

    /// The rows as they are committed.
    pub fn on_rows(&self, store: &ModelStore) -> Checked {
        for (id, row) in store.owners() {
            let root = store.owners().get(&row.root);
            let with_it = root.is_some_and(|root| (root.epoch, root.incarnation) == (row.epoch, row.incarnation));
            ensure!(
                with_it,
                CHECK,
                "{id} is {:?}'s, and the root of its tree, {}, is {root:?}",
                row.incarnation,
                row.root
            );
        }
        Ok(())
    }
}

/// Nobody is declared dead who beat lately, as far as the database was there to be beaten to: neither while all is well nor
/// right after an outage (scenarios, 7 and D7).
#[derive(Clone, Debug, Default)]
pub struct SilenceCheck {
    /// How long the database has been up, in microseconds.
    up_us: u64,
    /// When each incarnation beat last, by that.
    beats: BTreeMap<Incarnation, u64>,
}

impl SilenceCheck {
    /// So much time passes.
    pub fn passes(&mut self, us: u64, up: bool) {
        self.up_us += if up { us } else { 0 };
    }

    /// Takes what one transaction changed; with the node timeout, where those who declare others dead keep to it.
    pub fn on_commit(&mut self, changes: &[Change], node_timeout: Option<Duration>) -> Checked {
        for change in changes {
            match change {
                Change::NodeBeat { incarnation, .. } => drop(self.beats.insert(*incarnation, self.up_us)),
                Change::MarkedDead { node, incarnation } => {
                    let last = self.beats.get(incarnation).copied().unwrap_or(0);
                    let silent = Duration::from_micros(self.up_us - last);
                    ensure!(
                        node_timeout.is_none_or(|timeout| silent >= timeout),
                        CHECK,
                        "{node} was declared dead after {silent:?} of silence while the database answered"
                    );
                }
                _ => {}
            }
        }
        Ok(())
    }
}
