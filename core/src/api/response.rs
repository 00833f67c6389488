//! What a server answers. Serialised as they stand, these are the API's bodies.

use crate::api::error::ApiError;
use crate::definition::LocatedProblem;
use crate::execution::event::{Json, Labels, Recorded, TaskError};
use crate::execution::waiting::Waiting;
use crate::id::{
    ContractVersion, DefinitionHash, ExecutionId, NodeId, Run, Seq, SessionId, StepId, TaskName, Term, Token, UnitKey,
    Version, WorkerId, WorkflowName,
};
use crate::node::counters::Counters;
use crate::store::append::Status;
use crate::store::statement::NodeRow;
use crate::time::ClusterMs;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// An answer: a status, headers that the core decides, a body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// The HTTP status.
    pub status: u16,
    /// `retry-after`, in seconds.
    pub retry_after: Option<u32>,
    pub reply: Reply,
}

impl Response {
    /// A success with status 200.
    pub fn ok(reply: Reply) -> Response {
        Response { status: 200, retry_after: None, reply }
    }

    /// A success with status 201.
    pub fn created(reply: Reply) -> Response {
        Response { status: 201, retry_after: None, reply }
    }
}

impl From<ApiError> for Response {
    fn from(error: ApiError) -> Response {
        let retry_after = matches!(error.code.status(), 429 | 503).then_some(1);
        Response { status: error.code.status(), retry_after, reply: Reply::Error(error) }
    }
}

/// A body.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)]
pub enum Reply {
    /// `io` adds hint and request id: [`ApiError::body`].
    Error(ApiError),
    Deployed(Deployed),
    Workflows(Workflows),
    Workflow(WorkflowView),
    Started(Started),
    Executions(Executions),
    Execution(ExecutionView),
    History(History),
    Cancelled(ExecutionView),
    Terminated(ExecutionView),
    Recovered(ExecutionView),
    Released(ExecutionView),
    Signalled(Signalled),
    Updated(Updated),
    Queried(Queried),
    Registered(Registered),
    Polled(Polled),
    Heartbeat(Cancels),
    Unregistered,
    /// One outcome each.
    Reported(Vec<ResultOutcome>),
    /// The outcome of a report in the single form.
    ReportedOne(ResultOutcome),
    Workers(Workers),
    Nodes(Nodes),
    SteppedDown(SteppedDown),
    Health(Health),
    Ready(Ready),
    /// A probe: the status says it all.
    Probe {
        ok: bool,
    },
    Metrics(Box<Metrics>),
}

/// `201 created`, `200 unchanged`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployed {
    pub name: WorkflowName,
    pub version: Version,
    pub definition_hash: DefinitionHash,
    /// `created` or `unchanged`.
    pub result: String,
    /// What is allowed, and hardly meant. `io` adds the places.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub warnings: Vec<LocatedProblem>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workflows {
    pub workflows: Vec<WorkflowItem>,
}

/// One deployed version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowItem {
    pub name: WorkflowName,
    pub version: Version,
    pub definition_hash: DefinitionHash,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub created_at_ms: ClusterMs,
    /// Whether a start without a version takes this one.
    pub latest: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowView {
    #[serde(flatten)]
    pub item: WorkflowItem,
    /// The document, as deployed.
    pub definition: Value,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    pub execution_id: ExecutionId,
    pub status: Status,
    /// Whether this request started it.
    pub created: bool,
    pub workflow: WorkflowName,
    pub version: Version,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Executions {
    pub executions: Vec<ExecutionItem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A row of a list.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutionItem {
    pub execution_id: ExecutionId,
    pub workflow: WorkflowName,
    pub version: Version,
    pub status: Status,
    /// The newest run; continue-as-new begins the next one.
    pub run: Run,
    pub created_at_ms: ClusterMs,
    pub updated_at_ms: ClusterMs,
    #[serde(skip_serializing_if = "Labels::is_empty", default)]
    pub labels: Labels,
}

/// An execution, with what it was given and what it gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutionView {
    #[serde(flatten)]
    pub item: ExecutionItem,
    /// Whose child it is.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parent: Option<ParentView>,
    pub input: Json,
    /// Once completed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<Json>,
    /// Once failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<TaskError>,
    /// The last event's number; 0 where none can be read.
    pub last_seq: Seq,
    /// Why it is held, or quarantined.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Why it was cancelled, where a reason was given.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cancel_reason: Option<String>,
    /// What it waits for while it runs: an entry for each step that has begun and not ended.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub waiting: Vec<Waiting>,
}

/// A signal was taken in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Signalled {
    /// Its number in the history of the run that took it in; of a repetition that of the first.
    pub seq: Seq,
    /// That run; of a repetition that of the first.
    pub run: Run,
}

/// An update was taken by the workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Updated {
    /// Its number in the history of the run that took it; of a repetition that of the first.
    pub seq: Seq,
    /// That run; of a repetition that of the first.
    pub run: Run,
    /// What the workflow answers.
    pub result: Json,
}

/// What a query gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Queried {
    pub result: Json,
}

/// The execution that started another one as its child.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ParentView {
    pub execution_id: ExecutionId,
    /// The unit of its step: `pay`, `ship[3]`.
    pub step: UnitKey,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct History {
    pub execution_id: ExecutionId,
    /// The run whose history it is.
    pub run: Run,
    pub events: Vec<Recorded>,
    /// Ask for what follows with `after_seq` = the last event's number.
    pub more: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Registered {
    pub session_id: SessionId,
    pub heartbeat_interval_ms: u64,
    pub session_timeout_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Polled {
    pub tasks: Vec<Assignment>,
    /// Tokens to stop working on.
    pub cancel: Vec<Token>,
    /// One outcome for each result that the poll brought.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub outcomes: Vec<ResultOutcome>,
}

/// A task, handed to a worker (interface facts, part 2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Assignment {
    pub token: Token,
    pub execution_id: ExecutionId,
    pub workflow: WorkflowName,
    pub workflow_version: Version,
    pub step_id: StepId,
    pub task_name: TaskName,
    pub contract_version: ContractVersion,
    pub input: Json,
    /// The same for every delivery of every attempt of this step.
    pub idempotency_key: String,
    pub attempt: u32,
    /// Whether an earlier delivery of this attempt may have run.
    pub redelivery: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub deadline_ms: Option<ClusterMs>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_ms: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cancels {
    /// Tokens to stop working on.
    pub cancel: Vec<Token>,
}

/// What became of one reported result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ResultOutcome {
    pub token: Token,
    pub outcome: Accepted,
    /// Where it was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<ApiError>,
}

/// Whether a result counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accepted {
    /// It is the step's (or the attempt's) result.
    Accepted,
    /// This very result is recorded already.
    Duplicate,
    /// Nothing waits for it any more.
    Stale,
    /// It was not taken: see the error.
    Refused,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workers {
    pub workers: Vec<WorkerView>,
}

/// A worker that registered here, now or earlier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerView {
    pub worker_id: WorkerId,
    pub runtime: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sdk: Option<String>,
    pub contracts: Vec<crate::api::request::Contract>,
    pub last_seen_ms: ClusterMs,
    /// Sessions that are alive on this server.
    pub sessions: u32,
    /// Tasks that they hold.
    pub holding: u32,
    /// Those sessions, in the order in which they registered: several processes under one id, or one that was restarted
    /// and whose earlier session is not lost yet.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub open_sessions: Vec<SessionView>,
}

/// A worker session that is alive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionView {
    pub session_id: SessionId,
    pub registered_ms: ClusterMs,
    pub last_seen_ms: ClusterMs,
    /// Tasks that it holds.
    pub holding: u32,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Nodes {
    pub nodes: Vec<NodeView>,
}

/// A server of the cluster, as its row says (reference, "Health fields").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    pub node_id: NodeId,
    pub addr: Option<String>,
    /// `leader`, `standby` or `single`.
    pub role: String,
    /// Whether it has said so lately.
    pub live: bool,
    /// When it last did; none where it has left.
    pub heartbeat_age_ms: Option<u64>,
    /// The newest term that it knows of.
    pub term: Term,
    pub version: String,
    pub host: String,
    pub pid: u32,
    /// The server's wall clock minus the database's.
    pub clock_offset_ms: i64,
    /// Over the settings that the servers of one cluster have in common.
    pub config_digest: String,
    pub started_ms: ClusterMs,
}

impl NodeView {
    /// A server that has not been heard of for longer is not taken to be there: what `--node-timeout` is by default.
    pub const LIVE_FOR_MS: u64 = 5_000;

    /// The row, as it is when the database's clock shows this.
    pub fn of_row(row: NodeRow, clock: ClusterMs) -> NodeView {
        let left = row.heartbeat_ms == ClusterMs(0);
        let age = u64::try_from(clock.0.saturating_sub(row.heartbeat_ms.0)).unwrap_or(0);
        NodeView {
            live: !left && age <= NodeView::LIVE_FOR_MS,
            heartbeat_age_ms: (!left).then_some(age),
            node_id: row.node_id,
            addr: row.addr,
            role: row.role,
            term: row.term,
            version: row.version,
            host: row.host,
            pid: row.pid,
            clock_offset_ms: row.clock_offset_ms,
            config_digest: row.config_digest,
            started_ms: row.started_ms,
        }
    }
}

/// The end of a step-down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteppedDown {
    /// The term that has ended.
    pub term: Term,
    /// Who leads now; none where nobody else was there, and this server stands for election again.
    pub leader: Option<Leader>,
}

/// `/v1/health` (reference, "Health fields").
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Health {
    /// `ok` on every running server.
    pub status: String,
    pub api_version: String,
    pub runtime_version: String,
    pub ir_versions: Vec<String>,
    pub active_executions: u64,
    pub held_executions: u64,
    pub worker_sessions: u64,
    /// `single`, `leader`, `standby` or `shared`.
    pub role: String,
    /// The server's name.
    pub node_id: Option<NodeId>,
    pub term: Option<Term>,
    pub leader: Option<Leader>,
}

/// The leader, as `orbit_cluster` names it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leader {
    pub node_id: NodeId,
    pub addr: Option<String>,
}

/// `/v1/ready`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    pub role: String,
    pub node_id: Option<NodeId>,
    pub term: Option<Term>,
    pub leader: Option<Leader>,
    pub ready: bool,
    /// Why not, where it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The attempts that wait for a worker, as far as this server knows of them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueView {
    pub tasks: u64,
    /// How long the one that has waited longest has; 0 where none waits.
    pub oldest_ms: u64,
    /// Those of each task, most first: at most [`QueueView::MAX_NAMES`] tasks.
    pub by_task: Vec<(TaskName, u64)>,
}

impl QueueView {
    /// Tasks that are counted apart: each is a time series of its own for whoever reads them.
    pub const MAX_NAMES: usize = 100;
}

/// What `/v1/metrics` shows; `io::http::metrics` makes the text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    pub counters: Counters,
    pub active_executions: u64,
    pub held_executions: u64,
    pub resident_executions: u64,
    pub worker_sessions: u64,
    pub open_attempts: u64,
    pub waiting_polls: u64,
    pub queue: QueueView,
    pub ready: bool,
    pub term: Term,
    /// Whether this server leads, and serves as the one that does.
    pub leads: bool,
    /// How long appends took.
    pub appends: LatencyView,
    /// How long ago the last one committed; none before the first.
    pub last_append_ms: Option<u64>,
    /// The server's wall clock minus the database's, once that is known.
    pub clock_offset_ms: Option<i64>,
}

/// A histogram of durations.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LatencyView {
    /// The upper bound of each bucket, in microseconds, and how many were no longer than that.
    pub buckets: Vec<(u64, u64)>,
    pub count: u64,
    pub sum_us: u64,
}
