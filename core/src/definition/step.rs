//! The model of a step.

use super::Template;
use crate::id::{ContractVersion, SignalName, StepId, TaskName, Version, WorkflowName};
use std::time::Duration;

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub id: StepId,
    pub kind: StepKind,
    /// Steps that must have ended before this one may start: as written in `after`, else the step before it.
    pub after: Vec<StepId>,
    /// Whether the step runs at all; skipped where this is false.
    pub when: Option<Template>,
    /// What undoes it, once it has succeeded, where the execution ends otherwise than well. Of a `for` step it undoes
    /// one item.
    pub compensate: Option<TaskStep>,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// A worker runs it.
    Task(TaskStep),
    /// Evaluated by the decider.
    Compute(Template),
    /// Waits: a duration as text (`10s`), or an expression that gives such a text or a number of milliseconds.
    Sleep(Template),
    /// Waits for a signal or an update; its payload is the output.
    Await(AwaitStep),
    /// Does the same for every item of a list.
    For(ForStep),
    /// Runs another workflow as a child; its output is the child's.
    Workflow(ChildStep),
    /// Ends the run, and the execution goes on with a new one that has this input.
    ContinueAsNew(Template),
}

/// A step that runs another workflow.
#[derive(Clone, Debug, PartialEq)]
pub struct ChildStep {
    pub workflow: WorkflowName,
    /// The version deployed last, where absent.
    pub version: Option<Version>,
    /// The child's input; null where absent.
    pub input: Template,
    /// A failed child is started again, as another one.
    pub retry: RetryPolicy,
    /// How long a child may run before it is cancelled.
    pub timeout: Option<Duration>,
}

/// A step that waits for a signal.
#[derive(Clone, Debug, PartialEq)]
pub struct AwaitStep {
    pub signal: SignalName,
    /// How long it waits.
    pub timeout: Option<Duration>,
    /// The output where the time is over; without it the step fails with `TIMEOUT`.
    pub otherwise: Option<Template>,
}

/// A step that does something for every item of a list. Its output is the list of theirs.
#[derive(Clone, Debug, PartialEq)]
pub struct ForStep {
    /// The list.
    pub list: Template,
    /// Items that are under way at the same time: at least 1.
    pub parallel: u32,
    /// What is done with each: a task, a child or a computation.
    pub each: Box<StepKind>,
}

/// A step that a worker runs.
#[derive(Clone, Debug, PartialEq)]
pub struct TaskStep {
    pub task: TaskName,
    /// `"1"` unless given.
    pub contract_version: ContractVersion,
    /// The task's input; null where absent.
    pub input: Template,
    pub retry: RetryPolicy,
    /// How long one attempt may run after it was dispatched.
    pub timeout: Option<Duration>,
    /// How long one attempt may wait for a worker.
    pub queue_timeout: Option<Duration>,
}

/// How failed attempts are repeated. Without `retry` a step has one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryPolicy {
    /// At least 1.
    pub max_attempts: u32,
    /// The delay before the second attempt.
    pub initial: Duration,
    /// By how much a delay grows, in thousandths: 2000 doubles it. At least 1000.
    pub factor_milli: u32,
    /// No delay is longer.
    pub max: Duration,
    pub jitter: Jitter,
    /// Codes of errors that are final whatever the error says of itself.
    pub non_retryable: Vec<String>,
}

/// How much of a retry's delay is taken at random (from a fixed hash, so that a replay draws the same).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// The whole delay, always.
    None,
    /// Anything from zero to the delay.
    Full,
}

impl RetryPolicy {
    /// What holds without `retry`.
    pub fn once() -> RetryPolicy {
        RetryPolicy {
            max_attempts: 1,
            initial: Duration::from_secs(1),
            factor_milli: 2000,
            max: Duration::from_secs(60),
            jitter: Jitter::Full,
            non_retryable: Vec::new(),
        }
    }
}
