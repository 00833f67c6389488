//! The closed list of statements, each with the rows that it gives.
//!
//! A statement is one round trip without a decision inside (the append is one: what it decides, [`judge`] says).
//! `io` runs one as SQL, `sim` on its model; both answer with the same [`Rows`].
//!
//! [`judge`]: crate::store::append::judge

use crate::api::request::Contract;
use crate::cluster::{Elected, Mode};
use crate::execution::event::Labels;
use crate::id::{
    CallKey, ClusterId, ContractVersion, DefinitionHash, ExecutionId, Incarnation, NodeId, Run, Seq, TaskId, TaskName,
    Term, UnitKey, Version, WorkerId, WorkflowName,
};
use crate::store::append::{Append, Appended, Fence, MemberFacts, OwnerRow, Status, Summary, Wake};
use crate::store::lease::{LeaseHolder, LeaseRow, LeaseRule};
use crate::store::origin::Origin;
use crate::store::ownership::{MarkDead, OwnedTree, ReadOrphans, TakeMembers, TakeTrees, TakenTree};
use crate::time::{ClusterMs, WallMs};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use uuid::Uuid;

/// A statement that gives rows of a known type.
pub trait TypedStatement: Into<Statement> {
    /// The rows.
    type Out;
    /// Takes this statement's rows; panics on those of another, which is a bug of the executor.
    fn of(rows: &Rows) -> &Self::Out;
}

macro_rules! statements {
    ($($(#[$doc:meta])* $name:ident => $out:ty),+ $(,)?) => {
        /// Every statement that exists.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Statement { $($(#[$doc])* $name($name)),+ }

        /// The rows of every statement that exists.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub enum Rows { $($name($out)),+ }

        $(impl From<$name> for Statement {
            fn from(statement: $name) -> Statement { Statement::$name(statement) }
        }
        impl TypedStatement for $name {
            type Out = $out;
            fn of(rows: &Rows) -> &$out {
                match rows {
                    Rows::$name(out) => out,
                    other => panic!("rows of {} expected, got {other:?}", stringify!($name)),
                }
            }
        })+

        impl Statement {
            /// Its name, for logs and metrics.
            pub fn name(&self) -> &'static str {
                match self { $(Statement::$name(_) => stringify!($name)),+ }
            }
            /// Whether it may change something, so that it needs a writing transaction.
            pub fn writes(&self) -> bool {
                match self { $(Statement::$name(_) => $name::WRITES),+ }
            }
        }
    };
}

statements! {
    /// Takes the election lock for this session, or keeps it.
    TakeLock => LockState,
    /// Waits in line for the election lock, for a while; what became of it, [`TakeLock`] says.
    StandInLine => (),
    /// Gives the election lock of this session back; whether it was held.
    FreeLock => bool,
    /// Reads the fence row and the database's clock.
    ReadFence => FenceRow,
    /// Moves the fence to a new term and incarnation, if it is still at the expected term.
    RaiseFence => Option<Term>,
    /// Puts back the claims of incarnations that are no more.
    RequeueClaims => u64,
    /// Puts back claims of the writer's own that it does not know of.
    RequeueStrays => Vec<(TaskName, ContractVersion)>,
    /// Names no holder any more, if the fence is still this one.
    ClearHolder => bool,
    /// Moves the fence to where a lease says, or a change of the mode, if it is still the expected one.
    MoveFence => bool,
    /// Reads the lease and the database's clock.
    ReadLease => LeaseSeen,
    /// Takes the lease, if it is free or over: its new epoch.
    TakeLease => Option<Term>,
    /// Keeps the lease for its time to live from now on, if it is this holder's and not over.
    RenewLease => bool,
    /// Gives the lease back, if it is this holder's.
    FreeLease => bool,
    /// Takes the lease away from whoever holds it.
    SeizeLease => bool,
    /// Records decisions: see [`crate::store::append`].
    Append => Appended,
    /// Share-locks the fence row and reads it.
    LockFence => Fence,
    /// Reads whether groups are there, unlocked.
    LookForGroups => Vec<MemberFacts>,
    /// Claims queued tasks for waiting workers.
    ClaimTasks => Vec<ClaimedTask>,
    /// Stores a definition, if its name and version are new.
    PutDefinition => PutResult,
    /// Reads definitions in the order in which they were deployed.
    ReadDefinitions => Vec<DefinitionRow>,
    /// Reads whole histories with their owner rows.
    ReadHistories => Vec<LoadedExecution>,
    /// Reads which executions want to be loaded.
    ReadDue => DueRows,
    /// Reads what a server that starts needs to know of the whole.
    ReadTotals => Totals,
    /// Reads summaries by id.
    ReadSummary => Option<SummaryRow>,
    /// Reads a page of summaries, newest first.
    ListSummaries => Vec<SummaryRow>,
    /// Reads a page of one history.
    ReadHistory => HistoryPage,
    /// Writes the registry row of a worker.
    PutWorker => (),
    /// Writes when workers were seen last.
    SeeWorkers => u64,
    /// Removes the registry rows of workers that have been gone for long.
    ForgetWorkers => u64,
    /// Reads the registry of workers.
    ReadWorkers => Vec<WorkerRow>,
    /// Writes the row of a server of a cluster; gives the row that is there instead, where another process has the name, or
    /// this one was marked dead.
    BeatNode => Option<NodeRow>,
    /// Says in the row of a server that it has left.
    LeaveNode => bool,
    /// Reads the servers of the cluster.
    ReadNodes => NodeRows,
    /// Marks an incarnation dead, for ever.
    MarkDead => bool,
    /// Reads which trees are owned by nobody who lives.
    ReadOrphans => Vec<OwnedTree>,
    /// Makes trees another's: their roots' owner rows.
    TakeTrees => Vec<TakenTree>,
    /// Makes the rest of trees whose roots were taken the same owner's.
    TakeMembers => u64,
}

/// See [`Statement::TakeLock`].
///
/// On PostgreSQL it is a session advisory lock: it lives as long as the session, whatever becomes of transactions
/// (postgres-rules, R20), and is taken once however often this is asked. On SQLite the process has locked the file
/// before there is anything to ask, and holds it as long as the store is open.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TakeLock;

/// See [`Statement::StandInLine`]. It waits for so long at most, and is no error when that is over (protocols, 12).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StandInLine {
    pub slice: Duration,
}

/// See [`Statement::FreeLock`]. Whoever waits in line has it then.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreeLock;

/// Whose the election lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum LockState {
    /// This session's.
    Mine,
    /// Another session's.
    Others,
    /// The backend that answered is not the one that this connection opened: a pooler in transaction mode stands in
    /// between, and a lock of such a session protects nothing (protocols, 31).
    Pooled,
}

/// See [`Statement::ReadFence`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadFence;

/// The row of `orbit_cluster` (id 1) and what stands beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FenceRow {
    pub cluster_id: ClusterId,
    pub schema_version: u32,
    /// A [`Mode`], or one that this Orbit does not know.
    pub mode: String,
    /// How leaders are elected: `lock`, `lease`, `none` where there is nobody to be elected, or one that this Orbit does not
    /// know.
    pub election: String,
    pub fence: Fence,
    /// Who holds it; none after a clean stop.
    pub holder: Option<Holder>,
    /// Where the row was read; none where there is but one place.
    pub origin: Option<Origin>,
    /// The timeline of whoever raised the fence last.
    pub raised_on: Option<u32>,
    /// The database's clock when the row was read.
    pub clock: ClusterMs,
}

/// The server that holds the fence, for people.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    pub node_id: NodeId,
    /// The host's name.
    pub host: String,
    /// The process id on that host.
    pub pid: u32,
    /// The address that it serves, where known.
    pub addr: Option<String>,
    pub since_ms: WallMs,
}

/// See [`Statement::RaiseFence`]. It requires that this session holds the election lock (protocols, 11).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RaiseFence {
    pub expected: Fence,
    pub mode: Mode,
    pub incarnation: Incarnation,
    pub holder: Holder,
    /// Where it was decided.
    pub timeline: Option<u32>,
    pub rule: CampaignRule,
}

/// How a campaign is decided. All but the first are mistakes, which only simulated servers make; `io` refuses to run them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CampaignRule {
    /// By whoever holds the lock, on the session that holds it, with tables that it knows.
    #[default]
    Sound,
    /// On another session than the one that took the lock.
    ElsewhereThanLocked,
    /// Whatever the version of the tables.
    AnySchema,
}

/// See [`Statement::RequeueClaims`]: every claim but those of this incarnation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequeueClaims {
    pub incarnation: Incarnation,
    /// A replica was promoted since the fence was raised last: every row that is there is said to be a repeat when it is
    /// handed out, since its delivery may be among what was lost (protocols, 10).
    pub promoted: bool,
}

/// See [`Statement::RequeueStrays`]: rows that this writer claimed under these keys, but for those of these tokens. Gives the
/// contract of each row that went back, in no order; nothing where the fence has moved.
///
/// A claim that was given up and sent again may still commit, for rows that its repetition passed over as locked, and
/// under tokens that nobody waits for any more. The keys are those of such claims, once their outcome is known: then no
/// token of theirs comes to be waited for any more, so this may run as late as it will.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RequeueStrays {
    pub fence: Fence,
    pub keys: Vec<CallKey>,
    /// Of claimed rows whose delivery is not recorded yet.
    pub tokens: Vec<Uuid>,
}

/// See [`Statement::ClearHolder`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClearHolder {
    pub fence: Fence,
}

/// See [`Statement::MoveFence`]. It waits for appends that are under way. The mode and the election are those from then on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MoveFence {
    pub expected: Fence,
    pub after: Fence,
    pub mode: Mode,
    pub election: Elected,
    /// None where nobody leads from now on.
    pub holder: Option<Holder>,
    /// Where it was decided.
    pub timeline: Option<u32>,
}

/// See [`Statement::ReadLease`]. It locks nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadLease;

/// What [`ReadLease`] gives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseSeen {
    pub row: LeaseRow,
    /// The database's clock when the row was read.
    pub clock: ClusterMs,
}

/// See [`Statement::TakeLease`] and [`LeaseRow::taken`]. The row is locked first, and judged by the database's clock after
/// that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TakeLease {
    pub holder: LeaseHolder,
    pub ttl: Duration,
    /// The epoch is higher than this one, the fence's term: it does not go back where another election came before.
    pub above: Term,
    pub rule: LeaseRule,
}

/// See [`Statement::RenewLease`] and [`LeaseRow::renewed`]. The row is locked first, and judged by the database's clock after
/// that.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RenewLease {
    pub holder: LeaseHolder,
    pub epoch: Term,
    pub ttl: Duration,
    pub rule: LeaseRule,
}

/// See [`Statement::FreeLease`] and [`LeaseRow::freed`]: the lease of this incarnation and epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreeLease {
    pub fence: Fence,
}

/// See [`Statement::SeizeLease`] and [`LeaseRow::seized`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeizeLease {
    /// The lease's epoch as it was seen.
    pub expected: Term,
    pub epoch: Term,
}

/// See [`Statement::LockFence`]. The end of its transaction waits for a synchronous replica, as a writing one's does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LockFence;

/// See [`Statement::LookForGroups`]: the facts of each of these, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LookForGroups {
    pub members: Vec<MemberKey>,
}

/// A member of a group, as one looks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberKey {
    pub execution: ExecutionId,
    pub run: Run,
    /// The number of the group's first event in this execution; none where it has none.
    pub first: Option<Seq>,
}

/// See [`Statement::ClaimTasks`]. Gives nothing where the fence has moved.
///
/// A repetition under the same key returns the tasks that the first one claimed (protocols, 4), where it claimed any.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimTasks {
    pub key: CallKey,
    pub fence: Fence,
    /// One for each waiting poll, served in order, oldest row first (`enqueued_ms`, then task id).
    pub wants: Vec<ClaimWant>,
}

/// What one poll can take.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimWant {
    pub contracts: Vec<(TaskName, ContractVersion)>,
    /// A token for each task that it can take.
    pub tokens: Vec<Uuid>,
}

/// A row that a claim moved from `queued` to `claimed`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimedTask {
    pub task: TaskId,
    pub execution: ExecutionId,
    pub unit: UnitKey,
    pub attempt: u32,
    pub task_name: TaskName,
    pub contract_version: ContractVersion,
    /// One of the want's tokens; which want it is, the token says.
    pub token: Uuid,
    /// It may have been handed out before a promotion that lost the record of it.
    pub repeat: bool,
}

impl ClaimedTask {
    /// What its worker has to offer.
    pub fn contract(&self) -> Contract {
        Contract { task_name: self.task_name.clone(), contract_version: self.contract_version.clone() }
    }
}

/// See [`Statement::PutDefinition`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PutDefinition {
    /// A repetition under the same key says `created` again.
    pub key: CallKey,
    pub fence: Fence,
    pub definition: DefinitionRow,
}

/// A row of `workflow_definitions`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DefinitionRow {
    pub name: WorkflowName,
    pub version: Version,
    pub hash: DefinitionHash,
    /// The document, as deployed.
    pub document: Value,
    pub created_at_ms: ClusterMs,
}

/// What became of a definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PutResult {
    Created,
    /// The same content is there already.
    Unchanged,
    /// Other content is there under that name and version, with this hash.
    Conflict(DefinitionHash),
    /// The fence is not the writer's any more; it is at this term.
    Fenced(Term),
}

/// See [`Statement::ReadDefinitions`]: all of them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadDefinitions;

/// See [`Statement::ReadHistories`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadHistories {
    pub executions: Vec<ExecutionId>,
}

/// An execution as the store holds it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadedExecution {
    pub execution: ExecutionId,
    /// None where there is no such execution, or where it has ended.
    pub owner: Option<OwnerRow>,
    /// The stored events of the current run, in order; empty where there is no such execution.
    pub events: Vec<Vec<u8>>,
    /// Its rows in `orbit_tasks`.
    pub tasks: Vec<LoadedTask>,
}

/// A row of `orbit_tasks`, as its execution sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadedTask {
    pub task: TaskId,
    pub state: crate::store::append::TaskState,
    /// It may have been handed out before a promotion that lost the record of it.
    pub repeat: bool,
}

/// See [`Statement::ReadDue`]: executions whose next wake is at or before `until`, by (wake, id), after `after`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadDue {
    /// [`Wake::Hot`] asks for the hot ones alone, [`Wake::At`] for hot and due ones. Never [`Wake::Never`].
    pub until: Wake,
    pub after: Option<(Wake, ExecutionId)>,
    /// In shared mode: of this owner alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<Incarnation>,
    pub limit: u32,
}

/// Rows of [`ReadDue`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DueRows {
    pub due: Vec<(Wake, ExecutionId)>,
    /// The earliest wake later than `until`, where there is one.
    pub next: Option<ClusterMs>,
}

/// See [`Statement::ReadTotals`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadTotals;

/// What a server that starts needs to know of the whole.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Running executions: rows of `orbit_owners`.
    pub active: u64,
    /// Of those, the ones that are held.
    pub held: u64,
    /// Contracts with rows in state `queued`.
    pub queued: Vec<(TaskName, ContractVersion)>,
}

/// See [`Statement::ReadSummary`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadSummary {
    pub execution: ExecutionId,
}

/// A row of `workflow_executions`, with the last event of the current run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SummaryRow {
    pub execution: ExecutionId,
    pub root: ExecutionId,
    pub run: Run,
    pub summary: Summary,
    /// The first and the last stored event of the current run, where single rows are read; none in lists.
    pub ends: Option<(Vec<u8>, Vec<u8>)>,
}

/// See [`Statement::ListSummaries`]: by (created, id), newest first, strictly before `before`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListSummaries {
    pub filter: SummaryFilter,
    pub before: Option<(ClusterMs, ExecutionId)>,
    pub limit: u32,
}

/// What a list shows; absent fields filter nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Default)]
pub struct SummaryFilter {
    pub status: Option<Status>,
    pub workflow: Option<WorkflowName>,
    /// All of these labels, with these values.
    pub labels: Labels,
    /// Created at this time or later.
    pub since: Option<ClusterMs>,
}

/// See [`Statement::ReadHistory`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadHistory {
    pub execution: ExecutionId,
    /// The current one without it.
    pub run: Option<Run>,
    pub after: Seq,
    /// At most so many events.
    pub limit: u32,
    /// Stop after the event that takes the page past so many bytes.
    pub max_bytes: u32,
}

/// A page of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryPage {
    /// Whether there is such an execution.
    pub known: bool,
    /// The run that was asked for, or the current one; 0 where there is no such execution.
    pub run: Run,
    /// The current run; 0 where there is no such execution.
    pub newest: Run,
    pub events: Vec<Vec<u8>>,
    /// Whether events follow.
    pub more: bool,
}

/// See [`Statement::PutWorker`]: the row of that worker id is made or replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PutWorker {
    pub worker: WorkerRow,
}

/// A row of the registry of workers, `orbit_workers`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerRow {
    pub worker_id: WorkerId,
    pub runtime: String,
    pub sdk: Option<String>,
    pub contracts: Vec<(TaskName, ContractVersion)>,
    pub last_seen_ms: ClusterMs,
}

/// See [`Statement::SeeWorkers`]: of each of these, where its row says an earlier time. No row is made, and one that others
/// hold stays as it is. Gives how many were written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SeeWorkers {
    pub seen: BTreeMap<WorkerId, ClusterMs>,
}

/// See [`Statement::ForgetWorkers`]: of the workers that are not `there`, those that were seen last before `before`, and all
/// but the `keep` that were seen last (by time, then by id). Rows that others hold stay. Gives how many went.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ForgetWorkers {
    pub there: BTreeSet<WorkerId>,
    pub before: ClusterMs,
    pub keep: u32,
}

/// See [`Statement::ReadWorkers`]: all of them, by id.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadWorkers;

/// See [`Statement::BeatNode`]: a server of a cluster registers, and says that it lives (design, section 5).
///
/// The row is made, or replaced where it is of this incarnation and an earlier beat, where whoever had the name has left,
/// or where it is exactly the one that is to be replaced. Nothing else is looked at, so a beat that commits late changes
/// nothing, and several of them move the row once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BeatNode {
    /// As it is to be; when it beat, the database's clock says.
    pub node: NodeRow,
    /// The incarnation and the beat of another process of this name that has fallen silent.
    pub replaces: Option<(Incarnation, u64)>,
}

impl BeatNode {
    /// Whether it takes the place of this row.
    pub fn may_replace(&self, there: &NodeRow) -> bool {
        let mine = there.incarnation == self.node.incarnation;
        let left = there.heartbeat_ms == ClusterMs(0);
        match mine {
            true => !left && !there.dead && there.beats < self.node.beats,
            false => left || there.dead || self.replaces == Some((there.incarnation, there.beats)),
        }
    }
}

/// A row of `orbit_nodes`: a server of a cluster, for people.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRow {
    pub node_id: NodeId,
    /// The process's: it stays the same, whichever terms the process leads.
    pub incarnation: Incarnation,
    /// The address that others are told of it.
    pub addr: Option<String>,
    /// The host that it runs on, and its process id there.
    pub host: String,
    pub pid: u32,
    /// Orbit's version.
    pub version: String,
    /// `leader` or `standby`.
    pub role: String,
    /// The newest term that it knows of; 0 where it knows none.
    pub term: Term,
    /// Over the settings that servers of one cluster have in common: where it differs, they do.
    pub config_digest: String,
    /// The server's wall clock minus the database's, in milliseconds.
    pub clock_offset_ms: i64,
    /// When the process began, by the database's clock.
    pub started_ms: ClusterMs,
    /// How often this incarnation has said that it lives.
    pub beats: u64,
    /// When it last did, by the database's clock; 0 once it has left.
    pub heartbeat_ms: ClusterMs,
    /// Others have found that it is gone, and own what it owned. It beats no more under this incarnation.
    pub dead: bool,
}

impl NodeRow {
    /// Whether this incarnation may own something: it has not left, and nobody has found that it is gone.
    pub fn is_there(&self) -> bool {
        !self.dead && self.heartbeat_ms != ClusterMs(0)
    }
}

/// See [`Statement::LeaveNode`]: its heartbeat becomes 0, where the row is of this incarnation. Gives whether it was.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaveNode {
    pub node_id: NodeId,
    pub incarnation: Incarnation,
}

/// See [`Statement::ReadNodes`]: all of them, by name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReadNodes;

/// Rows of [`ReadNodes`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeRows {
    pub nodes: Vec<NodeRow>,
    /// The database's clock when they were read.
    pub clock: ClusterMs,
}

macro_rules! writes {
    ($($name:ident: $writes:literal),+ $(,)?) => { $(impl $name { const WRITES: bool = $writes; })+ };
}
writes! {
    TakeLock: false, StandInLine: false, FreeLock: false, ReadFence: false, RaiseFence: true, RequeueClaims: true, RequeueStrays: true, ClearHolder: true, MoveFence: true, ReadLease: false, TakeLease: true,
    RenewLease: true, FreeLease: true, SeizeLease: true, Append: true, ClaimTasks: true, LockFence: true,
    LookForGroups: false,
    PutDefinition: true, ReadDefinitions: false, ReadHistories: false, ReadDue: false, ReadTotals: false,
    ReadSummary: false, ListSummaries: false, ReadHistory: false, PutWorker: true, SeeWorkers: true,
    ForgetWorkers: true, ReadWorkers: false, BeatNode: true, LeaveNode: true, ReadNodes: false,
    MarkDead: true, ReadOrphans: false, TakeTrees: true, TakeMembers: true,
}
