//! A server of a cluster writes its own row each second, and nothing else while it has never led (scenarios, 8). Its name is
//! taken by another process only once it has been silent for long.

use super::{Checked, Committed, ensure};
use crate::coverage::{Coverage, Mark};
use crate::store::Change;
use crate::world::clock::Time;
use orbit_core::id::{Incarnation, NodeId};
use std::collections::BTreeMap;

const CHECK: &str = "nodes";

/// Three beats, less what the clock of a server may run fast.
const SILENT_MS: u64 = 2_990;

/// Whose each name is, and when that one beat last.
#[derive(Clone, Debug, Default)]
pub struct NodesCheck(BTreeMap<NodeId, (Incarnation, Time)>);

impl NodesCheck {
    pub fn on_commit(&mut self, committed: &Committed<'_>, marks: &mut Coverage) -> Checked {
        for change in &committed.commit.changes {
            match change {
                Change::NodeBeat { node, incarnation, replaced } => {
                    if let (Some(replaced), Some((whose, beat))) = (replaced, self.0.get(node)) {
                        let ms = committed.now.since_ms(*beat);
                        ensure!(
                            whose == replaced && ms >= SILENT_MS,
                            CHECK,
                            "{incarnation:?} took the name {node} from {whose:?}, which had been silent for {ms} ms"
                        );
                        marks.hit(Mark::NameTakenOver);
                    }
                    self.0.insert(node.clone(), (*incarnation, committed.now));
                }
                Change::NodeLeft { .. } => marks.hit(Mark::NodeLeft),
                // A campaign that is won, and what it puts back.
                Change::FenceRaised { .. } | Change::Requeued { .. } => {}
                // No server does that.
                Change::ModeSet { .. } => {}
                // A lease is taken and renewed before its holder leads, and given back where that one stops first. Whose it
                // is, the check of leases looks at.
                Change::LeaseTaken { .. } | Change::LeaseRenewed { .. } | Change::LeaseFreed { .. } => {}
                other => {
                    ensure!(!committed.by_follower, CHECK, "a server that has never led wrote {other:?}");
                }
            }
        }
        Ok(())
    }
}
