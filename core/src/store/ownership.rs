//! Who owns what in shared mode (design, section 9; protocols, 16 to 19): how a server joins, how its death is found and
//! recorded, and how trees of executions become another server's.
//!
//! Death is a row: one conditional update marks an incarnation dead, and nothing revives it. A tree is an orphan as soon as
//! the incarnation that owns it is marked dead, has left, or has no row any more, and stays one until somebody takes it. So
//! nothing that is read of an owner's death can be outdated by the time that it is acted upon.

use crate::cluster::{Elected, Mode};
use crate::id::{ClusterId, Epoch, ExecutionId, Incarnation, NodeId, Term};
use crate::store::append::{Fence, OwnerRow, Wake};
use crate::store::statement::{
    BeatNode, FenceRow, MoveFence, NodeRow, NodeRows, ReadFence, ReadNodes, Rows, TypedStatement,
};
use crate::store::transaction::{CampaignVerdict, Step, Verdict, unfit};
use serde::{Deserialize, Serialize};

/// See [`Statement::MarkDead`](super::statement::Statement::MarkDead): where the row is of this incarnation, has not beaten
/// since, and has not left. Gives whether it was marked, now or before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MarkDead {
    pub node_id: NodeId,
    pub incarnation: Incarnation,
    /// As often as it had beaten when it was found silent.
    pub beats: u64,
}

impl MarkDead {
    /// Whether this row is to be marked.
    pub fn concerns(&self, row: &NodeRow) -> bool {
        row.incarnation == self.incarnation && row.is_there() && row.beats == self.beats
    }
}

/// See [`Statement::ReadOrphans`](super::statement::Statement::ReadOrphans): by root, after `after`. It locks nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadOrphans {
    pub after: Option<ExecutionId>,
    pub limit: u32,
}

/// A tree, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnedTree {
    pub root: ExecutionId,
    pub owner: Incarnation,
    /// The root's: those that have something due come first.
    pub wake: Wake,
}

/// See [`Statement::TakeTrees`](super::statement::Statement::TakeTrees). Waits for appends to these trees that are under way,
/// and they for it (protocols, 17). Locks the roots in the order of their ids.
///
/// Gives of these trees those that are the taker's afterwards, so that a repetition gives the same again. Nothing where the
/// fence has moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TakeTrees {
    pub fence: Fence,
    pub by: Taker,
    /// Each with the incarnation that owns it until now.
    pub trees: Vec<(ExecutionId, Incarnation)>,
    pub reason: TakeReason,
    pub rule: TakeRule,
}

/// Who owns trees from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taker {
    pub incarnation: Incarnation,
    /// For people.
    pub node_id: NodeId,
}

/// Why trees become another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakeReason {
    /// Their owner is no more: its row is looked at once more.
    Orphaned,
    /// Their owner, which lives and sends this, hands them over.
    HandedOver,
}

/// How trees are taken. All but the first are mistakes, which only simulated servers make; `io` refuses to run them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TakeRule {
    /// From the owner that is named, under a new epoch; the root in one statement, its members in a later one.
    #[default]
    Sound,
    /// Whoever owns them by now.
    AnyOwner,
    /// Under the epoch of before.
    SameEpoch,
    /// Root and members in one statement: a child that begins meanwhile stays behind.
    OneStatement,
}

impl TakeTrees {
    /// The root's owner row once it is the taker's; none where it is not to be taken. `lives` tells whether an incarnation
    /// may own something.
    pub fn taken(&self, row: &OwnerRow, was: Incarnation, lives: impl Fn(Incarnation) -> bool) -> Option<OwnerRow> {
        let named = row.incarnation == was || self.rule == TakeRule::AnyOwner;
        let gone = self.reason == TakeReason::HandedOver || !lives(was);
        (named && gone && row.incarnation != self.by.incarnation).then(|| self.made_its_own(row))
    }

    /// A row, as it is once it is the taker's.
    pub fn made_its_own(&self, row: &OwnerRow) -> OwnerRow {
        let epoch = if self.rule == TakeRule::SameEpoch { row.epoch } else { row.epoch.next() };
        OwnerRow { epoch, incarnation: self.by.incarnation, ..row.clone() }
    }
}

/// A tree that is the taker's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct TakenTree {
    pub root: ExecutionId,
    pub epoch: Epoch,
}

/// See [`Statement::TakeMembers`](super::statement::Statement::TakeMembers): the rows of these trees, but for their roots, whose
/// locks this transaction holds. Gives how many were moved.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TakeMembers {
    pub by: Taker,
    pub trees: Vec<TakenTree>,
}

/// A server of shared mode joins: it looks whether the database is for it, makes a database that nobody has written yet one
/// of shared mode, and writes its row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Join {
    /// The newest version of the tables that it knows.
    pub schema: u32,
    pub beat: BeatNode,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum JoinVerdict {
    /// It takes part, and this is the fence that all write under.
    Joined { fence: Fence, cluster_id: ClusterId, before: Box<FenceRow> },
    /// Another process has the name.
    NameHeld(Box<NodeRow>),
    /// The tables are of a newer version than this server knows.
    NewerSchema { found: u32 },
    /// The database belongs to servers of another mode.
    OtherMode { found: String },
    /// Another server was faster to make it one of shared mode.
    Lost,
}

impl Join {
    pub(super) fn step(&self, seen: &[Rows]) -> Step {
        let stop = |verdict| Step::Stop(Verdict::Join(verdict));
        let [fence, later @ ..] = seen else { return Step::Send(vec![ReadFence.into()]) };
        let row = ReadFence::of(fence);
        match later {
            [] if row.schema_version > self.schema => stop(JoinVerdict::NewerSchema { found: row.schema_version }),
            [] => match unfit(row, Mode::Shared, Elected::Lock) {
                Some(CampaignVerdict::OtherMode { found }) => stop(JoinVerdict::OtherMode { found }),
                Some(other) => unreachable!("nobody is elected in shared mode: {other:?}"),
                None if row.fence.term > Term(0) => Step::Last(vec![self.beat.clone().into()]),
                None => Step::Send(vec![self.first(row).into()]),
            },
            [moved] if !*MoveFence::of(moved) => stop(JoinVerdict::Lost),
            [_] => Step::Last(vec![self.beat.clone().into()]),
            _ => unreachable!("a server joins in three steps"),
        }
    }

    /// Nobody has written the database: it is one of shared mode from now on.
    fn first(&self, row: &FenceRow) -> MoveFence {
        MoveFence {
            expected: row.fence,
            after: self.fence_after(row),
            mode: Mode::Shared,
            election: Elected::Lock,
            holder: None,
            timeline: row.origin.map(|origin| origin.timeline),
        }
    }

    fn fence_after(&self, row: &FenceRow) -> Fence {
        match row.fence.term {
            Term(0) => Fence { term: Term(1), incarnation: self.beat.node.incarnation },
            _ => row.fence,
        }
    }

    pub(super) fn verdict(&self, seen: &[Rows]) -> Verdict {
        let before = ReadFence::of(&seen[0]).clone();
        Verdict::Join(match BeatNode::of(seen.last().expect("it has beaten")).clone() {
            Some(other) => JoinVerdict::NameHeld(Box::new(other)),
            None => JoinVerdict::Joined {
                fence: self.fence_after(&before),
                cluster_id: before.cluster_id,
                before: Box::new(before),
            },
        })
    }
}

/// A server of shared mode says that it lives, and sees who else does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pulse {
    pub beat: BeatNode,
}

/// What it saw.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The row that is there instead, where its own was not written: another process has the name, or it was marked dead.
    pub instead: Option<Box<NodeRow>>,
    pub nodes: NodeRows,
}

impl Pulse {
    pub(super) fn step(&self) -> Step {
        Step::Last(vec![self.beat.clone().into(), ReadNodes.into()])
    }

    pub(super) fn verdict(seen: &[Rows]) -> Verdict {
        let instead = BeatNode::of(&seen[0]).clone().map(Box::new);
        Verdict::Pulse(Seen { instead, nodes: ReadNodes::of(&seen[1]).clone() })
    }
}

/// Trees become another's, whole (protocols, 17): the roots first, and their members in a later statement, which sees every
/// child that began before its root was locked.
pub(super) fn take(trees: &TakeTrees, seen: &[Rows]) -> Step {
    let statement = trees.clone().into();
    let [roots] = seen else {
        return match trees.rule {
            TakeRule::OneStatement => Step::Last(vec![statement]),
            _ => Step::Send(vec![statement]),
        };
    };
    let taken = TakeTrees::of(roots);
    match taken.is_empty() {
        true => Step::Stop(Verdict::Take(Vec::new())),
        false => Step::Last(vec![TakeMembers { by: trees.by.clone(), trees: taken.clone() }.into()]),
    }
}
