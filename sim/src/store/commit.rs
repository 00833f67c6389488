//! What a committed transaction changed: what the checks are fed.

use orbit_core::id::{CallKey, ExecutionId, Incarnation, NodeId};
use orbit_core::store::append::{Fence, Group, TreeOwner};
use orbit_core::store::lease::{LeaseHolder, LeaseRow};
use orbit_core::store::ownership::TakeReason;
use orbit_core::store::statement::{ClaimedTask, DefinitionRow};
use orbit_core::time::ClusterMs;
use serde::Serialize;

/// A committed transaction; without changes where it only read or its conditions did not hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Commit {
    /// [`orbit_core::store::transaction::Transaction::name`].
    pub transaction: &'static str,
    pub changes: Vec<Change>,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Change {
    /// Somebody became the writer.
    FenceRaised { before: Fence, after: Fence },
    /// The operator changed how servers share the work, or are elected.
    ModeSet { before: Fence, after: Fence },
    /// Somebody took the lease, by the database's clock at `clock`, when it was `before`.
    LeaseTaken { before: LeaseRow, after: LeaseRow, clock: ClusterMs },
    /// Somebody renewed the lease.
    LeaseRenewed { by: LeaseHolder, before: LeaseRow, after: LeaseRow, clock: ClusterMs },
    /// The holder of this fence gave the lease back.
    LeaseFreed { fence: Fence },
    /// Somebody took the lease away from its holder.
    LeaseSeized { before: LeaseRow },
    /// The writer gave up its place.
    HolderCleared { fence: Fence },
    /// A group of an append, by an owner of trees in shared mode; `repeated` where an earlier sending had written it already,
    /// so that nothing changed now.
    Group {
        fence: Fence,
        #[serde(skip_serializing_if = "Option::is_none")]
        owner: Option<Incarnation>,
        group: Group,
        repeated: bool,
    },
    /// Tasks were claimed; `repeated` as above.
    Claimed { fence: Fence, key: CallKey, tasks: Vec<ClaimedTask>, repeated: bool },
    /// Claims of other incarnations went back to the queue.
    Requeued { incarnation: Incarnation, tasks: u64 },
    /// Claims of the writer's own that it did not know of went back to the queue.
    Swept { fence: Fence, tasks: u64 },
    /// A definition was stored.
    Defined { fence: Fence, definition: DefinitionRow },
    /// A worker's registry row was written.
    WorkerSaved,
    /// When workers were seen was written in so many registry rows.
    WorkersSeen { workers: u64 },
    /// So many registry rows were removed.
    WorkersForgotten { workers: u64 },
    /// A server of a cluster said that it lives; `replaced` where another process had its name, and had not left.
    NodeBeat { node: NodeId, incarnation: Incarnation, replaced: Option<Incarnation> },
    /// A server was found to be gone.
    MarkedDead { node: NodeId, incarnation: Incarnation },
    /// A tree became another server's.
    TreeTaken { root: ExecutionId, before: TreeOwner, after: TreeOwner, reason: TakeReason },
    /// So many members of such trees followed.
    MembersTaken { by: Incarnation, members: u64 },
    /// A server of a cluster left it.
    NodeLeft { node: NodeId, incarnation: Incarnation },
}
