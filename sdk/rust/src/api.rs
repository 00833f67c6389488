//! The bodies of the API, as a program sees them. Unknown fields are ignored, so that a newer server is understood.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;

/// Where an execution stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Status {
    Running,
    /// It had an attempt out when a server took over, and waits until it is recovered.
    Held,
    /// Its history cannot be loaded; the others go on.
    Quarantined,
    Completed,
    Failed,
    Cancelled,
    /// It took longer than its workflow's `timeout`.
    TimedOut,
    /// It was ended at once.
    Terminated,
    /// A status that this version of the SDK does not know.
    Other(String),
}

impl Status {
    /// The API's word for it.
    pub fn as_str(&self) -> &str {
        match self {
            Status::Running => "running",
            Status::Held => "held",
            Status::Quarantined => "quarantined",
            Status::Completed => "completed",
            Status::Failed => "failed",
            Status::Cancelled => "cancelled",
            Status::TimedOut => "timed_out",
            Status::Terminated => "terminated",
            Status::Other(text) => text,
        }
    }

    /// Whether nothing more will happen.
    pub fn is_finished(&self) -> bool {
        match self {
            Status::Completed | Status::Failed | Status::Cancelled | Status::TimedOut | Status::Terminated => true,
            Status::Running | Status::Held | Status::Quarantined | Status::Other(_) => false,
        }
    }
}

impl From<&str> for Status {
    fn from(text: &str) -> Status {
        match text {
            "running" => Status::Running,
            "held" => Status::Held,
            "quarantined" => Status::Quarantined,
            "completed" => Status::Completed,
            "failed" => Status::Failed,
            "cancelled" => Status::Cancelled,
            "timed_out" => Status::TimedOut,
            "terminated" => Status::Terminated,
            other => Status::Other(other.into()),
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Status {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Status {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Status, D::Error> {
        Ok(Status::from(String::deserialize(deserializer)?.as_str()))
    }
}

/// The answer to a deployment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Deployed {
    pub name: String,
    pub version: String,
    pub definition_hash: String,
    /// `created`, or `unchanged` where the same content stood there already.
    pub result: String,
    /// What is allowed, and hardly meant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Problem>,
}

/// Something that is wrong, or hardly meant, in a definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// A JSON pointer to the place, such as `/steps/2/after/0`.
    pub path: String,
    pub message: String,
    /// What would be right.
    #[serde(default)]
    pub hint: String,
    /// The place in the text that was sent, both counted from 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub column: Option<u64>,
}

/// One deployed version of a workflow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkflowSummary {
    pub name: String,
    pub version: String,
    pub definition_hash: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Milliseconds since 1970, by the server's database.
    pub created_at_ms: i64,
    /// Whether a start without a version takes this one.
    #[serde(default)]
    pub latest: bool,
}

/// A deployed version with its definition.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Workflow {
    #[serde(flatten)]
    pub summary: WorkflowSummary,
    /// The document, as deployed.
    pub definition: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct WorkflowList {
    pub workflows: Vec<WorkflowSummary>,
}

/// The answer to a start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Started {
    pub execution_id: String,
    pub status: Status,
    /// Whether this call started it; false where the same start had been made before.
    pub created: bool,
    pub workflow: String,
    pub version: String,
}

/// A row of a list of executions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutionSummary {
    pub execution_id: String,
    pub workflow: String,
    pub version: String,
    pub status: Status,
    /// The newest run. The first is 1; continue-as-new begins the next one.
    #[serde(default = "first_run")]
    pub run: u32,
    /// Milliseconds since 1970, by the server's database.
    pub created_at_ms: i64,
    pub updated_at_ms: i64,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
}

/// An execution, with what it was given and what it gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Execution {
    #[serde(flatten)]
    pub summary: ExecutionSummary,
    /// Whose child it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    pub input: Value,
    /// Once completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<Value>,
    /// Once failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
    /// The number of its last event.
    pub last_seq: u64,
    /// Why it is held, or quarantined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why it was cancelled or terminated, where a reason was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel_reason: Option<String>,
    /// What it waits for while it runs: an entry for each step that has begun and not ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<Waiting>,
}

/// The execution that started another one as its child.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub execution_id: String,
    /// The step that waits, or the item: `pay`, `ship[3]`.
    pub step: String,
}

/// A step that has begun and not ended, and what it waits for. Which fields there are depends on the reason.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Waiting {
    pub step_id: String,
    /// What of the step it is, where it is not the step as a whole: `ship[3]`, `compensate:charge`, `on_failure/tell`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// `task`, `sleep`, `compute`, `await`, `for`, `workflow` or `continue_as_new`.
    pub kind: String,
    /// When it began to wait for this: milliseconds since 1970, by the server's database.
    pub since_ms: i64,
    /// `no_worker`, `queued`, `running`, `retry`, `sleep`, `signal`, `update`, `items`, `child` or `server`: see the
    /// API's reference.
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contract_version: Option<String>,
    /// Which attempt it is, or with `retry` will be; the first is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_attempts: Option<u32>,
    /// Why the attempt before failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ErrorBody>,
    /// The versions in which the task is offered, where nobody offers the one that is wanted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_versions: Vec<String>,
    /// Worker sessions that offer the task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sessions: Option<u32>,
    /// Who has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
    /// When a running attempt is given up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<i64>,
    /// The session that has it, where the server knows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<String>,
    /// For how long that session has not been heard from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_ms: Option<u64>,
    /// When it is offered again, unless its worker is heard from before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offered_again_ms: Option<i64>,
    /// When its worker id registered again since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered_again_ms: Option<i64>,
    /// When it goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<i64>,
    /// The signal that is awaited, or the update.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update: Option<String>,
    /// The child that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
    /// Items of a `for` step, and how many of them have ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<u64>,
}

impl Waiting {
    /// What waits: the step, or the part of it.
    pub fn unit(&self) -> &str {
        self.unit.as_deref().unwrap_or(&self.step_id)
    }
}

/// A signal that an execution has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signalled {
    /// Its number in the history of the run that took it in; of a repetition that of the first.
    pub seq: u64,
    /// That run; of a repetition that of the first.
    pub run: u32,
}

/// An update that a workflow took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Updated {
    /// Its number in the history of the run that took it; of a repetition that of the first.
    pub seq: u64,
    /// That run; of a repetition that of the first.
    pub run: u32,
    /// What the workflow answers.
    pub result: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Queried {
    pub result: Value,
}

impl Execution {
    /// Where it stands.
    pub fn status(&self) -> &Status {
        &self.summary.status
    }

    /// Its newest run: what is shown is of that one.
    pub fn run(&self) -> u32 {
        self.summary.run
    }
}

/// Why a task or an execution failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ErrorBody {
    pub code: String,
    #[serde(default)]
    pub message: String,
    #[serde(default)]
    pub retryable: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
    /// The step that failed, in the error of an execution.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
}

/// A page of executions, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExecutionsPage {
    pub executions: Vec<ExecutionSummary>,
    /// Names the next page, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
}

/// A page of a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HistoryPage {
    pub execution_id: String,
    /// The run whose history it is.
    #[serde(default = "first_run")]
    pub run: u32,
    pub events: Vec<Event>,
    /// Whether events follow: ask for those after the last one's number.
    #[serde(default)]
    pub more: bool,
}

fn first_run() -> u32 {
    1
}

/// One event of a history. Which fields there are depends on the type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Its position; the first is 1.
    pub seq: u64,
    /// Milliseconds since 1970, by the server's database.
    pub at_ms: i64,
    /// `StepScheduled`, `StepSucceeded` …
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl Event {
    /// A field that is a text.
    pub fn text(&self, field: &str) -> Option<&str> {
        self.fields.get(field).and_then(Value::as_str)
    }

    /// The step that the event is about, if it is about one.
    pub fn step(&self) -> Option<&str> {
        self.text("step")
    }
}

#[derive(Debug, Deserialize)]
pub(crate) struct WorkerList {
    pub workers: Vec<WorkerInfo>,
}

/// A worker that registered, now or earlier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkerInfo {
    pub worker_id: String,
    pub runtime: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sdk: Option<String>,
    pub contracts: Vec<Contract>,
    pub last_seen_ms: i64,
    /// Sessions that are alive on the server.
    #[serde(default)]
    pub sessions: u32,
    /// Tasks that they hold.
    #[serde(default)]
    pub holding: u32,
    /// Those sessions, in the order in which they registered.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_sessions: Vec<SessionInfo>,
}

/// A worker session that is alive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionInfo {
    pub session_id: String,
    pub registered_ms: i64,
    pub last_seen_ms: i64,
    /// Tasks that it holds.
    pub holding: u32,
}

/// A task that a worker can run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Contract {
    pub task_name: String,
    pub contract_version: String,
}

/// The server that leads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Leader {
    pub node_id: String,
    #[serde(default)]
    pub addr: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct NodeList {
    pub nodes: Vec<NodeInfo>,
}

/// A server of a cluster, as it said last.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeInfo {
    pub node_id: String,
    #[serde(default)]
    pub addr: Option<String>,
    /// `leader`, `standby`, or `single` for one that is alone.
    pub role: String,
    /// Whether it has been heard of lately.
    pub live: bool,
    /// How long ago it said that it lives; none where it has left.
    #[serde(default)]
    pub heartbeat_age_ms: Option<u64>,
    /// The newest term that it knows of.
    pub term: u64,
    pub version: String,
    pub host: String,
    pub pid: u32,
    /// Its clock minus the database's.
    pub clock_offset_ms: i64,
    /// Over the settings that the servers of a cluster have in common.
    pub config_digest: String,
    pub started_ms: i64,
}

/// What came of a step-down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SteppedDown {
    /// The term that has ended.
    pub term: u64,
    /// Who leads now; none where nobody else was there.
    #[serde(default)]
    pub leader: Option<Leader>,
}

/// `/v1/health`: answered by every running server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Health {
    pub status: String,
    pub api_version: String,
    pub runtime_version: String,
    #[serde(default)]
    pub ir_versions: Vec<String>,
    pub active_executions: u64,
    #[serde(default)]
    pub held_executions: u64,
    pub worker_sessions: u64,
    pub role: String,
    #[serde(default)]
    pub node_id: Option<String>,
    #[serde(default)]
    pub term: Option<u64>,
    #[serde(default)]
    pub leader: Option<Leader>,
}

/// `/v1/ready`: whether the server serves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ready {
    pub role: String,
    #[serde(default)]
    pub node_id: Option<String>,
    #[serde(default)]
    pub term: Option<u64>,
    #[serde(default)]
    pub leader: Option<Leader>,
    pub ready: bool,
    /// Why not, where it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
