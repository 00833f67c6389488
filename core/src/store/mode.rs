//! Changing how the servers of a database share the work (`orbit cluster mode set`; design, section 9; protocols, 8).
//!
//! It is done while no server lives. Whether one does cannot be known for certain: one that stands still looks as if it were
//! gone. So the term moves with the mode, in one transaction: whoever led before writes nothing more, and a campaign that
//! has read the mode of before raises nothing.

use crate::cluster::{Elected, Mode};
use crate::id::{Incarnation, Term};
use crate::store::append::Fence;
use crate::store::lease::LeaseHolder;
use crate::store::statement::{
    FenceRow, Holder, LockState, MoveFence, NodeRow, NodeRows, ReadFence, ReadLease, ReadNodes, Rows, TakeLock,
    TypedStatement,
};
use crate::store::transaction::{Step, Verdict};
use crate::time::ClusterMs;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Whoever has said that it lives so lately may live: servers say so each second.
const LIVES: Duration = Duration::from_secs(5);

/// The mode as it is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetMode {
    pub mode: Mode,
    pub election: Elected,
    /// Drawn anew: nobody's.
    pub incarnation: Incarnation,
    /// The newest version of the tables that whoever asks for it knows.
    pub schema: u32,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ModeVerdict {
    /// It is so: the fence row as it was before, and the term that it is at now.
    Set { before: Box<FenceRow>, term: Term },
    /// It was so: nothing has changed.
    Unchanged { term: Term },
    /// A server lives, or may: nothing has changed.
    Lives(Sign),
    /// A pooler in transaction mode stands in between: no lock can be held.
    Pooled,
    /// The tables are of a newer version than this Orbit knows.
    NewerSchema { found: u32 },
    /// Somebody moved the fence meanwhile: nothing has changed.
    Lost,
}

/// What shows that a server lives, or may.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Sign {
    /// A session holds the election lock: that of the server that the fence names, or of one that is just starting.
    Lock(Option<Holder>),
    /// A lease lasts for so long still.
    Lease { holder: LeaseHolder, left: Duration },
    /// A server of the cluster said so that long ago.
    Beat { node: Box<NodeRow>, ago: Duration },
}

impl SetMode {
    pub(super) fn step(&self, seen: &[Rows]) -> Step {
        let stop = |verdict| Step::Stop(Verdict::SetMode(verdict));
        let (lock, fence, lease, nodes, later) = match seen {
            [lock, fence, lease, nodes, later @ ..] => {
                (*TakeLock::of(lock), ReadFence::of(fence), ReadLease::of(lease), ReadNodes::of(nodes), later)
            }
            _ => return Step::Send(vec![TakeLock.into(), ReadFence.into(), ReadLease.into(), ReadNodes.into()]),
        };
        match later {
            [] => {
                if fence.schema_version > self.schema {
                    return stop(ModeVerdict::NewerSchema { found: fence.schema_version });
                }
                let term = fence.fence.term;
                // Sent again, with the answer to the first one lost.
                if fence.fence.incarnation == self.incarnation {
                    return stop(ModeVerdict::Set { before: Box::new(fence.clone()), term });
                }
                if self.is_set(fence) {
                    return stop(ModeVerdict::Unchanged { term });
                }
                match lock {
                    LockState::Mine => {}
                    LockState::Others => return stop(ModeVerdict::Lives(Sign::Lock(fence.holder.clone()))),
                    LockState::Pooled => return stop(ModeVerdict::Pooled),
                }
                let left = lease.row.left(lease.clock);
                if let Some(holder) = lease.row.holder.clone().filter(|_| left > Duration::ZERO) {
                    return stop(ModeVerdict::Lives(Sign::Lease { holder, left }));
                }
                if let Some(sign) = lives(nodes) {
                    return stop(ModeVerdict::Lives(sign));
                }
                let to = MoveFence {
                    expected: fence.fence,
                    after: self.after(fence),
                    mode: self.mode,
                    election: self.election,
                    holder: None,
                    // Nobody has looked at what may have been handed out before a promotion.
                    timeline: fence.raised_on,
                };
                Step::Send(vec![to.into()])
            }
            [moved] if !*MoveFence::of(moved) => stop(ModeVerdict::Lost),
            [_] => Step::Last(vec![ReadFence.into()]),
            _ => unreachable!("a change of the mode has three steps"),
        }
    }

    pub(super) fn verdict(&self, seen: &[Rows]) -> Verdict {
        let before = ReadFence::of(&seen[1]);
        Verdict::SetMode(ModeVerdict::Set { before: Box::new(before.clone()), term: self.after(before).term })
    }

    fn after(&self, before: &FenceRow) -> Fence {
        Fence { term: before.fence.term.next(), incarnation: self.incarnation }
    }

    /// How one that is alone is elected is no choice.
    fn is_set(&self, row: &FenceRow) -> bool {
        let elected = self.mode == Mode::Single || row.election == self.election.as_str();
        row.fence.term > Term(0) && row.mode == self.mode.as_str() && elected
    }
}

/// A server that said lately that it lives, and has not left since.
fn lives(NodeRows { nodes, clock }: &NodeRows) -> Option<Sign> {
    let there = nodes.iter().filter(|node| node.heartbeat_ms != ClusterMs(0));
    let last = there.max_by_key(|node| node.heartbeat_ms)?;
    let ago = *clock - last.heartbeat_ms;
    (ago < LIVES).then(|| Sign::Beat { node: Box::new(last.clone()), ago })
}
