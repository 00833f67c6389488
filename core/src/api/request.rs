//! What can be asked of a server.

use crate::execution::event::{Json, Labels, TaskError, memory_of};
use crate::id::{
    ContractVersion, ExecutionId, QueryName, Run, Seq, SessionId, SignalName, TaskName, Term, Token, Version, WorkerId,
    WorkflowName,
};
use crate::store::append::Status;
use crate::time::ClusterMs;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::time::Duration;

/// A request, checked for form: what it names may still be unknown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// POST `/v1/workflows`; the document, parsed. A strict deployment refuses what is hardly meant, too.
    Deploy { document: Box<Value>, strict: bool },
    /// Asked by the front about a request that it refuses itself: a standby names the leader rather (reference, "Standby
    /// behavior": it does so before it looks at credentials).
    Gate,
    /// GET `/v1/workflows`
    ListWorkflows,
    /// GET `/v1/workflows/{name}[/versions/{version}]`; the newest without a version.
    GetWorkflow { name: WorkflowName, version: Option<Version> },
    /// POST `/v1/executions`
    Start(Start),
    /// GET `/v1/executions`
    ListExecutions(ListExecutions),
    /// GET `/v1/executions/{id}`
    GetExecution(ExecutionId),
    /// GET `/v1/executions/{id}/history`; of the current run without one.
    GetHistory { execution: ExecutionId, run: Option<Run>, after: Seq, limit: u32, max_bytes: u32 },
    /// GET `/v1/executions/{id}/wait`
    Wait { execution: ExecutionId, timeout: Duration },
    /// POST `/v1/executions/{id}/cancel`
    Cancel { execution: ExecutionId, reason: Option<String> },
    /// POST `/v1/executions/{id}/terminate`
    Terminate { execution: ExecutionId, reason: Option<String> },
    /// POST `/v1/executions/{id}/release`: what is quarantined is tried again.
    Release { execution: ExecutionId },
    /// POST `/v1/executions/{id}/recover`: what is held goes on.
    Recover { execution: ExecutionId, reason: Option<String> },
    /// POST `/v1/executions/{id}/signals/{name}`
    Signal { execution: ExecutionId, signal: Message },
    /// POST `/v1/executions/{id}/updates/{name}`
    Update { execution: ExecutionId, update: Message },
    /// GET `/v1/executions/{id}/queries/{name}`
    Query { execution: ExecutionId, name: QueryName },
    /// POST `/v1/workers/register`
    Register(Register),
    /// POST `/v1/workers/poll`
    Poll(Poll),
    /// POST `/v1/workers/heartbeat`
    Heartbeat { session: SessionId, holding: Option<Vec<Token>> },
    /// POST `/v1/workers/unregister`
    Unregister { session: SessionId },
    /// POST `/v1/tasks/complete` and `/v1/tasks/fail`
    Report { session: SessionId, results: Vec<TaskResult>, form: ReportForm },
    /// GET `/v1/workers`
    ListWorkers,
    /// GET `/v1/nodes`
    ListNodes,
    /// POST `/v1/cluster/step-down`: the lead of this term, or whichever it is.
    StepDown { term: Option<Term> },
    /// GET `/v1/health`
    Health,
    /// GET `/v1/ready`
    Ready,
    /// GET `/livez`
    Livez,
    /// GET `/readyz`: may serve reads.
    Readyz,
    /// GET `/leaderz`: may serve writes.
    Leaderz,
    /// GET `/v1/metrics`
    Metrics,
}

impl Request {
    /// A deployment that is not strict.
    pub fn deploy(document: Value) -> Request {
        Request::Deploy { document: Box::new(document), strict: false }
    }

    /// What it is called, for people.
    pub fn name(&self) -> &'static str {
        match self {
            Request::Deploy { .. } => "deploy",
            Request::Gate => "gate",
            Request::ListWorkflows => "list workflows",
            Request::GetWorkflow { .. } => "get workflow",
            Request::Start(_) => "start",
            Request::ListExecutions(_) => "list executions",
            Request::GetExecution(_) => "get execution",
            Request::GetHistory { .. } => "get history",
            Request::Wait { .. } => "wait",
            Request::Cancel { .. } => "cancel",
            Request::Terminate { .. } => "terminate",
            Request::Recover { .. } => "recover",
            Request::Release { .. } => "release",
            Request::Signal { .. } => "signal",
            Request::Update { .. } => "update",
            Request::Query { .. } => "query",
            Request::Register(_) => "register",
            Request::Poll(_) => "poll",
            Request::Heartbeat { .. } => "heartbeat",
            Request::Unregister { .. } => "unregister",
            Request::Report { .. } => "report",
            Request::ListWorkers => "list workers",
            Request::ListNodes => "list nodes",
            Request::StepDown { .. } => "step down",
            Request::Health => "health",
            Request::Ready => "ready",
            Request::Livez => "livez",
            Request::Readyz => "readyz",
            Request::Leaderz => "leaderz",
            Request::Metrics => "metrics",
        }
    }

    /// About how many bytes of memory the values take that it brings.
    pub fn memory(&self) -> u64 {
        match self {
            Request::Deploy { document, .. } => memory_of(document),
            Request::Start(start) => memory_of(&start.input),
            Request::Signal { signal: message, .. } | Request::Update { update: message, .. } => message.memory(),
            Request::Poll(Poll { results, .. }) | Request::Report { results, .. } => {
                results.iter().map(|result| result.outcome.memory()).sum()
            }
            _ => 0,
        }
    }
}

/// The start of an execution.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Start {
    pub workflow: WorkflowName,
    /// The newest deployed without it.
    pub version: Option<Version>,
    /// Drawn without it. With it, a repetition starts nothing again.
    pub execution_id: Option<ExecutionId>,
    pub input: Json,
    pub labels: Labels,
}

/// A signal or an update.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message {
    pub name: SignalName,
    pub payload: Json,
    /// `signal_id` or `update_id`, 1 to 255 bytes: with it, a repetition does nothing again and is answered as the
    /// first was.
    pub key: Option<String>,
}

impl Message {
    /// About how many bytes of memory it takes.
    pub fn memory(&self) -> u64 {
        memory_of(&self.payload) + self.key.as_ref().map_or(0, String::len) as u64
    }
}

/// A page of executions, newest first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListExecutions {
    pub status: Option<Status>,
    pub workflow: Option<WorkflowName>,
    pub labels: Labels,
    pub since: Option<ClusterMs>,
    /// 1 to 1000.
    pub limit: u32,
    /// `next_cursor` of the page before.
    pub cursor: Option<String>,
}

/// A worker that announces itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Register {
    pub worker_id: WorkerId,
    /// `python`, `rust` …
    pub runtime: String,
    pub sdk: Option<String>,
    pub contracts: Vec<Contract>,
}

/// A task that a worker can run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Contract {
    pub task_name: TaskName,
    pub contract_version: ContractVersion,
}

/// A long poll for tasks, which may bring results.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Poll {
    pub session: SessionId,
    /// 0 to 1000. 0 only brings results.
    pub max_tasks: u32,
    /// At most 60 s.
    pub wait: Duration,
    /// The tokens that the worker holds; none where it does not say.
    pub holding: Option<Vec<Token>>,
    pub results: Vec<TaskResult>,
}

/// What a worker says of one delivery.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskResult {
    pub token: Token,
    pub outcome: TaskOutcome,
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum TaskOutcome {
    Succeeded(Json),
    Failed(TaskError),
}

impl TaskOutcome {
    /// About how many bytes of memory it takes.
    pub fn memory(&self) -> u64 {
        match self {
            TaskOutcome::Succeeded(output) => memory_of(output),
            TaskOutcome::Failed(error) => {
                error.message.len() as u64 + error.details.as_ref().map_or(0, |details| memory_of(details))
            }
        }
    }
}

/// How a report came, and so how it is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReportForm {
    /// `{session_id,token,output}`: one outcome; errors as the response's status.
    Single,
    /// `{session_id,results:[…]}`: one outcome each; errors beside them.
    Batch,
}
