//! The append: the transaction that records decisions (protocols, 3 to 6).
//!
//! An append is a list of groups. All conditions of a group hold, or nothing of it is written; one broken group never
//! fails its neighbours. What an append means is [`judge`]: a pure function from the facts of the database to the
//! group's outcome. SQLite and the model of `sim` call it; PostgreSQL's statement is held to it by tests.

use crate::execution::event::Labels;
use crate::id::{
    ContractVersion, Epoch, ExecutionId, GroupId, Incarnation, Run, Seq, TaskId, TaskName, Term, UnitKey, Version,
    WorkflowName,
};
use crate::time::ClusterMs;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// What the writer claims to be: the holder of this term, in this incarnation. Both are compared, since a number alone
/// can be handed out twice (protocols, 8; design, section 5, "Identity").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fence {
    pub term: Term,
    pub incarnation: Incarnation,
}

/// A batch of groups, sent as one statement.
///
/// Invariant: no execution and no task row occurs twice in a batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Append {
    pub fence: Fence,
    /// In shared mode the incarnation that has to own every tree that is written to (protocols, 16 and 17); it owns what it
    /// begins. None where whoever holds the fence writes all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Incarnation>,
    pub groups: Vec<Group>,
}

impl Append {
    /// Of whoever holds this fence.
    pub fn under(fence: Fence, groups: Vec<Group>) -> Append {
        Append { fence, owner: None, groups }
    }

    /// In whose name it is written.
    pub fn writer(&self) -> Writer {
        Writer { fence: self.fence, owner: self.owner }
    }
}

/// In whose name something is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Writer {
    pub fence: Fence,
    /// See [`Append::owner`].
    pub owner: Option<Incarnation>,
}

impl Writer {
    /// The incarnation that owner rows name as the one that made them.
    pub fn incarnation(self) -> Incarnation {
        self.owner.unwrap_or(self.fence.incarnation)
    }
}

/// Things that must happen together or not at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Drawn before sending; the same at every repetition.
    pub id: GroupId,
    /// The executions whose histories grow; at least one, and at most one whose id a client chose is new.
    pub members: Vec<Member>,
    /// What happens to rows of `orbit_tasks`.
    pub tasks: Vec<TaskChange>,
}

/// One execution's part of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Member {
    pub execution: ExecutionId,
    pub expect: Expect,
    /// Stored events (format byte and JSON), in order; the first has the number after the expected one, and each run
    /// after it begins with 1. May be empty: then only the wake-up or task rows change.
    pub events: Vec<StoredEvent>,
    /// Changes of the summary row; none where it stays as it is.
    pub summary: Option<Summary>,
    /// What becomes of the owner row.
    pub owner: OwnerChange,
}

impl Member {
    /// Where the history is once the member is written: the run, and its last event.
    pub fn end(&self) -> (Run, Seq) {
        match (self.events.last(), &self.expect) {
            (Some(last), _) => (last.run, last.seq),
            (None, Expect::New { run, .. }) => (*run, Seq(0)),
            (None, Expect::After { run, last, .. }) => (*run, *last),
        }
    }
}

/// An event as it is stored: opaque bytes beside what is searched by.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredEvent {
    /// The run whose history it is: the expected one, and after an event that continues as new the next one.
    pub run: Run,
    pub seq: Seq,
    pub at_ms: ClusterMs,
    /// [`crate::execution::event::Recorded::encode`].
    #[serde(with = "bytes_as_text")]
    pub bytes: Vec<u8>,
}

/// What the writer believes of the execution's owner row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect {
    /// There is no execution of that id yet. `root` is its tree's root (itself, unless it is a child).
    New { run: Run, root: ExecutionId },
    /// It is running, and `last` is the last event.
    After { run: Run, last: Seq, epoch: Epoch },
}

/// What becomes of the owner row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OwnerChange {
    /// It stays (with its last sequence and group moved), and so does its next wake.
    Keep,
    /// Its next wake changes (protocols, 7).
    Wake(Wake),
    /// The execution ended: the row goes.
    End,
}

/// When an execution that is in nobody's memory wants to be loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wake {
    /// It is in its owner's memory: load it at recovery. Stored as 0.
    Hot,
    /// When the cluster clock passes this time.
    At(ClusterMs),
    /// When something concerns it: a result, a signal, a claim. Stored as NULL.
    Never,
}

impl Wake {
    /// The stored form, `next_wake_ms`.
    pub fn to_column(self) -> Option<i64> {
        match self {
            Wake::Hot => Some(0),
            Wake::At(t) => Some(t.0.max(1)),
            Wake::Never => None,
        }
    }

    /// From the stored form.
    pub fn from_column(column: Option<i64>) -> Wake {
        match column {
            None => Wake::Never,
            Some(t) if t <= 0 => Wake::Hot,
            Some(t) => Wake::At(ClusterMs(t)),
        }
    }
}

/// The row of `workflow_executions`: what lists and searches read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    pub workflow: WorkflowName,
    pub version: Version,
    pub status: Status,
    pub created_at_ms: ClusterMs,
    pub updated_at_ms: ClusterMs,
    pub labels: Labels,
}

/// Statuses of an execution (interfaces, "History and storage").
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Running,
    /// A server that took over found attempts of it out, and it waits until somebody recovers it.
    Held,
    /// Loading or applying its history failed; the reason is shown, the others go on.
    Quarantined,
    Completed,
    Failed,
    Cancelled,
    TimedOut,
    Terminated,
}

impl Status {
    /// Every status, in the order of the enum.
    pub const ALL: [Status; 8] = [
        Status::Running,
        Status::Held,
        Status::Quarantined,
        Status::Completed,
        Status::Failed,
        Status::Cancelled,
        Status::TimedOut,
        Status::Terminated,
    ];

    /// The text that the API and the store use.
    pub fn as_str(self) -> &'static str {
        match self {
            Status::Running => "running",
            Status::Held => "held",
            Status::Quarantined => "quarantined",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
            Status::TimedOut => "timed_out",
            Status::Terminated => "terminated",
        }
    }

    /// From that text.
    pub fn parse(text: &str) -> Option<Status> {
        Status::ALL.into_iter().find(|s| s.as_str() == text)
    }

    /// Whether the execution has ended.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Status::Running | Status::Held | Status::Quarantined)
    }
}

/// A change of one row of `orbit_tasks`. Every change of a row that exists compares what it was decided from
/// (protocols, 21).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskChange {
    /// A new row, in state `queued`.
    Insert(TaskRow),
    /// The row goes, if it is still in this state.
    Delete { task: TaskId, expect: TaskState },
    /// A claimed row goes back to the queue.
    Requeue { task: TaskId, expect: TaskState },
}

/// What `orbit_tasks` knows of a task that waits for a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRow {
    pub task: TaskId,
    pub execution: ExecutionId,
    pub unit: UnitKey,
    pub attempt: u32,
    pub task_name: TaskName,
    pub contract_version: ContractVersion,
    pub enqueued_ms: ClusterMs,
}

/// The state of a row of `orbit_tasks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum TaskState {
    Queued,
    /// For the delivery of this token.
    Claimed {
        token: Uuid,
    },
}

/// What became of a group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum GroupOutcome {
    /// It is durable: by this sending, or by an earlier one of the same group.
    Written,
    /// Nothing of it was written, and why.
    Rejected(Rejection),
    /// A row that it needs is held by another transaction: nothing of it was written; try again later. Never on SQLite.
    Busy,
}

/// What one statement of an append gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Appended {
    /// One outcome for each group, in order.
    Judged(Vec<GroupOutcome>),
    /// Another may write. Whether an earlier sending of a group was written is to be looked for behind a lock on the
    /// fence, by a statement that begins after it.
    FenceMoved,
}

/// Why nothing of a group was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rejection {
    /// The writer is not the one that may write.
    Fenced { held: Term, current: Term },
    /// The execution's tree is another server's: what is in memory of it is worth nothing.
    OtherOwner { execution: ExecutionId },
    /// The execution has another owner epoch.
    OtherEpoch { execution: ExecutionId, held: Epoch, current: Epoch },
    /// The history goes on from another number: load the execution again.
    OtherSequence { execution: ExecutionId, expected: Seq, last: Seq },
    /// The execution is not running any more: load it again.
    Ended { execution: ExecutionId },
    /// An execution of that id exists already.
    Exists { execution: ExecutionId },
    /// A task row is not in the state that the change was decided from.
    TaskMoved { task: TaskId, found: Option<TaskState> },
    /// The database refused the group's data (it is too big, say).
    Refused { message: String },
}

/// What the database holds about one member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberFacts {
    /// The owner row, where there is one.
    pub owner: Option<OwnerRow>,
    /// Whether `workflow_executions` has a row of this id.
    pub known: bool,
    /// The group id beside the event that has the number of the member's first event (in its run); none without such
    /// an event, or where the member has no events.
    pub first_event_by: Option<GroupId>,
    /// Where the writer has to own the tree, and the member is not its root: the root's owner row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<TreeOwner>,
}

/// Who owns a tree, as the owner row of its root says (protocols, 17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeOwner {
    pub epoch: Epoch,
    pub incarnation: Incarnation,
}

/// A row of `orbit_owners`: there is one for each running execution.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnerRow {
    pub root: ExecutionId,
    pub run: Run,
    pub epoch: Epoch,
    /// Of whoever made the row or, in shared mode, owns the tree.
    pub incarnation: Incarnation,
    pub last: Seq,
    /// The group that moved the row last.
    pub group: GroupId,
    pub wake: Wake,
}

/// What the database holds about one group: [`judge`]'s view of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupFacts {
    /// The fence row.
    pub fence: Fence,
    /// One for each member, in order.
    pub members: Vec<MemberFacts>,
    /// For each task change that names an existing row, in order of `tasks` (inserts included, as `None`): its state.
    pub tasks: Vec<Option<TaskState>>,
}

/// The one meaning of an append: may this group be written?
///
/// `Written` from here means *write it now, or it is there already*; [`already_written`] tells the two apart.
pub fn judge(writer: Writer, group: &Group, facts: &GroupFacts) -> GroupOutcome {
    assert_eq!(group.members.len(), facts.members.len(), "facts of every member");
    assert_eq!(group.tasks.len(), facts.tasks.len(), "facts of every task change");
    // Before the fence: what is there is there, whoever asks (protocols, 4).
    if already_written(group, facts) {
        return GroupOutcome::Written;
    }
    if facts.fence != writer.fence {
        return GroupOutcome::Rejected(Rejection::Fenced { held: writer.fence.term, current: facts.fence.term });
    }
    for (member, found) in group.members.iter().zip(&facts.members) {
        if let Some(rejection) = judge_member(member, found) {
            return GroupOutcome::Rejected(rejection);
        }
        if let Some(owner) = writer.owner
            && !owns_tree(owner, group, member, found)
        {
            return GroupOutcome::Rejected(Rejection::OtherOwner { execution: member.execution.clone() });
        }
    }
    for (change, found) in group.tasks.iter().zip(&facts.tasks) {
        let (task, expect) = match change {
            TaskChange::Insert(_) => continue,
            TaskChange::Delete { task, expect } | TaskChange::Requeue { task, expect } => (task, expect),
        };
        if found.as_ref() != Some(expect) {
            return GroupOutcome::Rejected(Rejection::TaskMoved { task: task.clone(), found: *found });
        }
    }
    GroupOutcome::Written
}

/// Whether an earlier sending of this very group was written: its id stands in an owner row that it moved, or beside
/// the first event that it wrote.
pub fn already_written(group: &Group, facts: &GroupFacts) -> bool {
    group.members.iter().zip(&facts.members).any(|(_, found)| {
        found.owner.as_ref().is_some_and(|o| o.group == group.id) || found.first_event_by == Some(group.id)
    })
}

fn judge_member(member: &Member, found: &MemberFacts) -> Option<Rejection> {
    let execution = || member.execution.clone();
    match (&member.expect, &found.owner) {
        (Expect::New { .. }, None) if !found.known => None,
        (Expect::New { .. }, _) => Some(Rejection::Exists { execution: execution() }),
        (Expect::After { .. }, None) => Some(Rejection::Ended { execution: execution() }),
        (Expect::After { run, last, epoch }, Some(owner)) => {
            if owner.epoch != *epoch {
                Some(Rejection::OtherEpoch { execution: execution(), held: *epoch, current: owner.epoch })
            } else if owner.last != *last || owner.run != *run {
                Some(Rejection::OtherSequence { execution: execution(), expected: *last, last: owner.last })
            } else {
                None
            }
        }
    }
}

/// Whether this incarnation owns the tree that the member belongs to. A new tree is its own, and so is what begins in the
/// group that begins the tree.
fn owns_tree(owner: Incarnation, group: &Group, member: &Member, found: &MemberFacts) -> bool {
    let root = match (&member.expect, &found.owner) {
        (Expect::New { root, .. }, _) => root,
        (Expect::After { .. }, Some(row)) => &row.root,
        (Expect::After { .. }, None) => return false,
    };
    let begins = |root: &ExecutionId| {
        group.members.iter().any(|m| m.execution == *root && matches!(m.expect, Expect::New { .. }))
    };
    match (&found.owner, found.root) {
        _ if begins(root) => true,
        (Some(row), _) if row.root == member.execution => row.incarnation == owner,
        (Some(row), Some(tree)) => tree.incarnation == owner && tree.epoch == row.epoch,
        (None, Some(tree)) => tree.incarnation == owner,
        (_, None) => false,
    }
}

/// The epoch of an owner row that is new: its tree's, as the root's row says, or the first one.
pub fn first_epoch(root: Option<TreeOwner>) -> Epoch {
    root.map_or(Epoch(1), |tree| tree.epoch)
}

mod bytes_as_text {
    //! Stored events are UTF-8 but for their format byte, which is below 128: traces stay readable.
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub fn serialize<S: Serializer>(bytes: &[u8], s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(std::str::from_utf8(bytes).map_err(serde::ser::Error::custom)?)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(d: D) -> Result<Vec<u8>, D::Error> {
        String::deserialize(d).map(String::into_bytes).map_err(D::Error::custom)
    }
}
