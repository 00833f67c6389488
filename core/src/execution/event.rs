//! What a history is made of. Names and fields are those of the reference (interface facts, part 4).

use crate::id::{
    ClusterId, DefinitionHash, ExecutionId, HandlerKey, InputHash, Run, Seq, SessionId, SignalName, StepId, Token,
    UnitKey, Version, WorkerId, WorkflowName,
};
use crate::time::ClusterMs;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A JSON value that many hold and none changes.
pub type Json = Arc<Value>;

/// Labels of an execution: what people search by.
pub type Labels = BTreeMap<String, String>;

/// About how many bytes of memory a value takes: many small ones take far more than their text.
pub fn memory_of(value: &Value) -> u64 {
    /// A value, and what a key costs beside its text.
    const EACH: u64 = 32;
    EACH + match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(memory_of).sum(),
        Value::Object(fields) => fields.iter().map(|(key, field)| EACH + key.len() as u64 + memory_of(field)).sum(),
    }
}

/// Something that happened to an execution, as its history records it.
///
/// An event is *external* (it came from outside: created, dispatched, results, cancels, lost workers) or *decided*
/// (it is what [`crate::execution::decide()`] says about the state before it); [`Event::is_external`] tells which.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum Event {
    /// The execution exists. Always the first event.
    WorkflowCreated {
        workflow: WorkflowName,
        version: Version,
        definition_hash: DefinitionHash,
        input: Json,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        labels: Labels,
        /// Idempotency keys and retry jitter derive from it, so a history can be replayed wherever it is.
        cluster_id: ClusterId,
        run: Run,
        /// Whose child it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parent: Option<Parent>,
        /// What an earlier run left to this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        continued: Option<Continued>,
    },
    /// The first decision.
    WorkflowStarted,
    /// An attempt of a step waits for a worker. With `redelivery`, an earlier delivery of the same attempt may have
    /// run.
    StepScheduled { step: UnitKey, attempt: u32, input: Json, idempotency_key: String, redelivery: bool },
    /// The step's `when` is false; its output is null.
    StepSkipped { step: UnitKey, reason: String },
    /// An attempt was handed to a worker.
    StepDispatched {
        step: UnitKey,
        attempt: u32,
        token: Token,
        worker_id: WorkerId,
        worker_session: SessionId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<ClusterMs>,
        /// It may have been handed out before a promotion of the database that lost the record of it; for other repeats,
        /// `StepScheduled` says so.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redelivery: bool,
    },
    /// The step has its output. At most one for a step.
    StepSucceeded {
        step: UnitKey,
        attempt: u32,
        output: Json,
        /// The delivery that it came from; none for steps that no worker ran.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<Token>,
    },
    /// An attempt failed.
    StepAttemptFailed {
        step: UnitKey,
        attempt: u32,
        error: TaskError,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        token: Option<Token>,
    },
    /// Whether a delivery ran is not known (its worker fell silent).
    StepAttemptUncertain { step: UnitKey, attempt: u32, reason: String, token: Token },
    /// The next attempt waits for its time.
    RetryScheduled { step: UnitKey, next_attempt: u32, delay_ms: u64, fire_at_ms: ClusterMs },
    /// The step failed for good.
    StepFailed { step: UnitKey, error: TaskError },
    /// The step is not wanted any more.
    StepCancelled { step: UnitKey },
    /// A timer runs.
    TimerStarted { step: UnitKey, fire_at_ms: ClusterMs },
    /// The timer's time came; the step's output is null.
    TimerFired { step: UnitKey },
    /// A `for` step has its list: its items begin, as many at a time as it allows.
    StepFanOut { step: UnitKey, items: Vec<Json> },
    /// Every item of a `for` step ended well: its output is the list of theirs.
    StepFanIn { step: UnitKey },
    /// A step waits for a signal.
    SignalAwaited {
        step: UnitKey,
        signal: SignalName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<ClusterMs>,
    },
    /// A step took the signal with that number; its payload is the step's output.
    SignalConsumed { step: UnitKey, signal: SignalName, received: Seq },
    /// Somebody sent a signal. Its number is what the sender is told.
    SignalReceived {
        signal: SignalName,
        payload: Json,
        /// The sender's key: a repetition is told the first number.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signal_id: Option<String>,
        /// It came to an earlier run, under this number, and nothing took it there.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        carried: Option<Carried>,
    },
    /// Somebody sent an update, the workflow took it, and this is what it was answered with.
    UpdateAccepted {
        update: SignalName,
        payload: Json,
        /// The sender's key: a repetition is told the first answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        update_id: Option<String>,
        result: Json,
    },
    /// A handler began; that of an event took the signal which its key names.
    HandlerStarted { handler: HandlerKey },
    /// All its steps ended well.
    HandlerCompleted { handler: HandlerKey },
    /// A step of it failed for good; the execution ends as it would have.
    HandlerFailed { handler: HandlerKey, error: TaskError },
    /// A child is to be started: an attempt of a step.
    ChildScheduled {
        step: UnitKey,
        attempt: u32,
        child: ExecutionId,
        workflow: WorkflowName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<Version>,
        input: Json,
    },
    /// The child exists, since this very append.
    ChildStarted {
        step: UnitKey,
        attempt: u32,
        child: ExecutionId,
        version: Version,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline_ms: Option<ClusterMs>,
    },
    /// The child ended well, in this very append; its output is the step's.
    ChildCompleted { step: UnitKey, attempt: u32, child: ExecutionId, output: Json },
    /// The child ended otherwise, in this very append; or it could not be started.
    ChildFailed { step: UnitKey, attempt: u32, child: ExecutionId, error: TaskError },
    /// The child is to end: it is cancelled, or terminated. The step waits for its end.
    ChildEndRequested { step: UnitKey, child: ExecutionId, terminate: bool, timed_out: bool },
    /// The history has grown so long that it is time to continue as new.
    ContinueSuggested { max: u64 },
    /// A result that nothing waits for any more.
    StaleResultIgnored { step: UnitKey, token: Token, outcome: ResultKind },
    /// A server that took over found attempts that were out, and was told to hold such executions: nothing more is decided
    /// or handed out until somebody recovers it. What comes from outside is taken in.
    WorkflowHeld {
        reason: String,
        /// The units whose attempt may be under way, or may have run: its next delivery says that it is a repeat.
        repeats: Vec<UnitKey>,
    },
    /// Somebody said that it is to go on.
    WorkflowRecovered {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// Somebody asked for the end.
    CancelRequested {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The workflow's result could not be computed, and there is something to undo or to handle first.
    ResultFailed { error: TaskError },
    /// Somebody asked for the end at once: nothing is compensated, no handler runs.
    TerminateRequested {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// The workflow's `timeout` is over.
    WorkflowTimeoutReached,
    /// A bound of the server was reached (its history's length, say): the execution winds down to this failure; while
    /// it does already, the unit fails.
    LimitReached {
        limit: String,
        error: TaskError,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<UnitKey>,
    },
    /// A value does not match its schema: the execution winds down to this failure.
    ContractViolated { boundary: String, error: TaskError },
    /// What was done is undone, one unit after the other, in this order: the last one that succeeded first.
    CompensationStarted { reason: AbortReason, steps: Vec<UnitKey> },
    /// All of it is undone.
    CompensationCompleted,
    /// Something of it could not be undone (the first, where there are several); the rest is.
    CompensationFailed { step: UnitKey, error: TaskError },
    /// Terminal: done, with the workflow's result.
    WorkflowCompleted {
        output: Json,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unconsumed: Vec<Unconsumed>,
    },
    /// Terminal: a step failed for good, or the result could not be computed.
    WorkflowFailed {
        error: TaskError,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compensation: Option<CompensationOutcome>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unconsumed: Vec<Unconsumed>,
    },
    /// Terminal: cancelled.
    WorkflowCancelled {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compensation: Option<CompensationOutcome>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unconsumed: Vec<Unconsumed>,
    },
    /// Terminal: it took longer than the workflow's `timeout`.
    WorkflowTimedOut {
        #[serde(default, skip_serializing_if = "Option::is_none")]
        compensation: Option<CompensationOutcome>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unconsumed: Vec<Unconsumed>,
    },
    /// Terminal: ended at once.
    WorkflowTerminated {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unconsumed: Vec<Unconsumed>,
    },
    /// The end of a run: the execution goes on with a new one that has this input.
    WorkflowContinuedAsNew { input: Json, next_run: Run },
}

/// Whose child an execution is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    pub execution_id: ExecutionId,
    /// The unit of the parent that waits for it.
    pub step: UnitKey,
    /// The execution at the top.
    pub root: ExecutionId,
    /// How many executions stand above it: 1 for a child of one that nobody started as a child.
    pub depth: u32,
}

/// What the runs of an execution before this one left to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Continued {
    /// When the execution was started.
    pub created_at_ms: ClusterMs,
    /// What it was started with: a repeated start is told from another one by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_with: Option<InputHash>,
    /// Keys of senders, with what they were told: the newest, as many as [`crate::execution::rollover`] keeps.
    #[serde(default, skip_serializing_if = "no_keys")]
    pub sent: Arc<BTreeMap<String, Sent>>,
}

fn no_keys(sent: &Arc<BTreeMap<String, Sent>>) -> bool {
    sent.is_empty()
}

/// What the sender of a signal or update was told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    pub name: SignalName,
    pub run: Run,
    pub seq: Seq,
    /// Of an update; it may be null.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "what_is_there")]
    pub result: Option<Json>,
}

/// What is written is a value, null too.
fn what_is_there<'de, D: Deserializer<'de>>(d: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(d).map(Some)
}

/// Where a signal stood that an earlier run did not take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carried {
    pub run: Run,
    pub seq: Seq,
}

/// Why an execution winds down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbortReason {
    Failed,
    Cancelled,
    TimedOut,
}

/// How the compensation ended, where there was something to undo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompensationOutcome {
    Completed,
    Failed,
}

/// A signal or update that was taken in and that no step or handler took before the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unconsumed {
    pub signal: SignalName,
    pub received: Seq,
}

/// Success or failure, where only that matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResultKind {
    Succeeded,
    Failed,
}

/// Why an attempt, a step or a workflow failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TaskError {
    /// The task's own code, or one of [`codes`].
    pub code: String,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// Whether another attempt may help. True unless said otherwise.
    #[serde(default = "yes")]
    pub retryable: bool,
    /// Whatever else the task says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Json>,
    /// The step that failed, in the error of a workflow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<StepId>,
}

fn yes() -> bool {
    true
}

/// Codes of the errors that Orbit itself makes (interface facts, part 4).
pub mod codes {
    /// An attempt ran longer than the step's `timeout`.
    pub const TIMEOUT: &str = "TIMEOUT";
    /// No worker took the attempt within the step's `queue_timeout`.
    pub const QUEUE_TIMEOUT: &str = "QUEUE_TIMEOUT";
    /// No such workflow is deployed, or not in that version.
    pub const UNKNOWN_WORKFLOW: &str = "UNKNOWN_WORKFLOW";
    /// A child's input does not match the schema of its workflow.
    pub const INPUT_CONTRACT_VIOLATION: &str = "INPUT_CONTRACT_VIOLATION";
    /// A child was cancelled, took too long, or was terminated.
    pub const CHILD_CANCELLED: &str = "CHILD_CANCELLED";
    pub const CHILD_TIMED_OUT: &str = "CHILD_TIMED_OUT";
    pub const CHILD_TERMINATED: &str = "CHILD_TERMINATED";
    /// The workflow took longer than its `timeout`.
    pub const WORKFLOW_TIMEOUT: &str = "WORKFLOW_TIMEOUT";
    /// The execution was cancelled.
    pub const CANCELLED: &str = "CANCELLED";
    /// An expression could not be evaluated.
    pub const EXPRESSION_ERROR: &str = "EXPRESSION_ERROR";
    /// The workflow's output does not match its schema.
    pub const OUTPUT_CONTRACT_VIOLATION: &str = "OUTPUT_CONTRACT_VIOLATION";
    /// A history or a payload grew past its limit.
    pub const LIMIT_EXCEEDED: &str = "LIMIT_EXCEEDED";
}

impl TaskError {
    /// An error that another attempt may mend.
    pub fn retryable(code: &str, message: impl Into<String>) -> TaskError {
        TaskError { code: code.into(), message: message.into(), retryable: true, details: None, step: None }
    }

    /// An error that no other attempt will mend.
    pub fn last(code: &str, message: impl Into<String>) -> TaskError {
        TaskError { retryable: false, ..TaskError::retryable(code, message) }
    }
}

impl Event {
    /// About how many bytes of memory what it brings takes, beside its names: values mostly take more than their text.
    pub fn memory(&self) -> u64 {
        match self {
            Event::WorkflowCreated { input: value, .. }
            | Event::StepScheduled { input: value, .. }
            | Event::StepSucceeded { output: value, .. }
            | Event::SignalReceived { payload: value, .. }
            | Event::ChildScheduled { input: value, .. }
            | Event::ChildCompleted { output: value, .. }
            | Event::WorkflowContinuedAsNew { input: value, .. }
            | Event::WorkflowCompleted { output: value, .. } => memory_of(value),
            Event::UpdateAccepted { payload, result, .. } => memory_of(payload) + memory_of(result),
            Event::StepFanOut { items, .. } => items.iter().map(|item| memory_of(item)).sum(),
            Event::StepAttemptFailed { error, .. }
            | Event::StepFailed { error, .. }
            | Event::WorkflowFailed { error, .. }
            | Event::HandlerFailed { error, .. }
            | Event::ChildFailed { error, .. }
            | Event::ResultFailed { error }
            | Event::CompensationFailed { error, .. }
            | Event::LimitReached { error, .. }
            | Event::ContractViolated { error, .. } => error.details.as_ref().map_or(0, |details| memory_of(details)),
            _ => 0,
        }
    }

    /// Whether the event came from outside, so that no decision explains it.
    ///
    /// `StepSucceeded` and `StepAttemptFailed` are external where they carry the token of a delivery.
    pub fn is_external(&self) -> bool {
        match self {
            Event::WorkflowCreated { .. }
            | Event::StepDispatched { .. }
            | Event::StepAttemptUncertain { .. }
            | Event::StaleResultIgnored { .. }
            | Event::SignalReceived { .. }
            | Event::UpdateAccepted { .. }
            | Event::ChildStarted { .. }
            | Event::ChildCompleted { .. }
            | Event::ChildFailed { .. }
            | Event::ContinueSuggested { .. }
            | Event::TerminateRequested { .. }
            | Event::LimitReached { .. }
            | Event::ContractViolated { .. }
            | Event::WorkflowHeld { .. }
            | Event::WorkflowRecovered { .. }
            | Event::CancelRequested { .. } => true,
            Event::StepSucceeded { token, .. } => token.is_some(),
            Event::StepAttemptFailed { token, .. } => token.is_some(),
            _ => false,
        }
    }

    /// Whether the execution has ended with this event.
    pub fn is_terminal(&self) -> bool {
        matches!(
            self,
            Event::WorkflowCompleted { .. }
                | Event::WorkflowFailed { .. }
                | Event::WorkflowCancelled { .. }
                | Event::WorkflowTimedOut { .. }
                | Event::WorkflowTerminated { .. }
        )
    }
}

/// An event at its place in a history.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Its position in the run; the first is 1.
    pub seq: Seq,
    /// When it was recorded, by the cluster clock; never earlier than the event before it (protocols, 27).
    pub at_ms: ClusterMs,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// The version of the stored form: the first byte of each stored event.
pub const FORMAT: u8 = 1;

/// A stored event that cannot be read.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum DecodeError {
    /// Empty.
    #[error("a stored event is empty")]
    Empty,
    /// Of a format that this version does not know.
    #[error("a stored event has format {0}, and this version of Orbit reads format {FORMAT}; use a newer version")]
    Format(u8),
    /// Not what the format says.
    #[error("a stored event cannot be read: {0}")]
    Json(String),
}

impl Recorded {
    /// The stored form: a format byte and UTF-8 JSON (interfaces, "History and storage").
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![FORMAT];
        serde_json::to_writer(&mut bytes, self).expect("an event is made of JSON values and writes to memory");
        bytes
    }

    /// Reads the stored form.
    pub fn decode(bytes: &[u8]) -> Result<Recorded, DecodeError> {
        match bytes.split_first() {
            None => Err(DecodeError::Empty),
            Some((&FORMAT, json)) => serde_json::from_slice(json).map_err(|e| DecodeError::Json(e.to_string())),
            Some((&format, _)) => Err(DecodeError::Format(format)),
        }
    }
}

/// What names an execution inside its history's keys: where idempotency keys and jitter come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    pub cluster_id: ClusterId,
    pub execution_id: ExecutionId,
    pub run: Run,
}

impl Identity {
    /// The idempotency key of a unit: the same for all its attempts and deliveries, derived and never drawn
    /// (protocols, 10).
    pub fn idempotency_key(&self, unit: &UnitKey) -> String {
        format!("{}/{}/{}/{}", self.cluster_id, self.execution_id, self.run, unit)
    }

    /// The id of the child that an attempt of a unit starts: `<parent>~<unit>`, with `.r<run>` and `.<attempt>` after it
    /// where they are not the first. No unit's key holds a `.` or a `~`, so no two attempts share a child.
    pub fn child(&self, unit: &UnitKey, attempt: u32) -> ExecutionId {
        let mut id = format!("{}~{unit}", self.execution_id);
        if self.run != Run(1) {
            id.push_str(&format!(".r{}", self.run));
        }
        if attempt != 1 {
            id.push_str(&format!(".{attempt}"));
        }
        ExecutionId::new(id)
    }
}
