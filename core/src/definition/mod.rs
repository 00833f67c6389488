//! Workflow definitions: the document's model and every check on it (design, section 7; `orbit-def/1`).
//!
//! * [`document`]: from a parsed JSON document to a [`Definition`], collecting every [`Problem`] on the way.
//! * [`expression`]: what stands in `${ … }`, and [`Template`]s made of it.
//! * `problem`: what is wrong, and where. `keywords`: those of JSON Schema.
//! * `duration`: `1s`, `10m`, `1h30m`.
//! * `hash`: the definition's hash over its semantic content.
//! * `shape`: what a JSON Schema, or a literal, says of a value before there is one.
//! * `whole`: whole numbers, however they are written.

pub mod document;
mod duration;
pub mod expression;
mod hash;
mod keywords;
mod nearest;
mod problem;
mod schema;
mod shape;
mod whole;

pub use document::Checked;
pub use duration::{format_duration, parse_duration};
pub use expression::{ExpressionError, Scope, Template};
pub use keywords::each_schema;
pub use nearest::nearest;
pub use problem::{LocatedProblem, Location, Problem};
pub use schema::{AnySchema, Boundary, SchemaCheck, Violation};
pub use whole::whole_number;

use crate::id::{ContractVersion, DefinitionHash, StepId, TaskName, Version, WorkflowName};
use serde_json::Value;
use std::time::Duration;

/// Lists and objects within each other: in a document, and in every value that expressions give. The readers of what
/// is stored stop at 128, and an event wraps a value in a few more.
pub const MAX_DEPTH: usize = 120;

/// A checked workflow definition. Made by [`Definition::from_document`] alone.
#[derive(Clone, Debug, PartialEq)]
pub struct Definition {
    pub name: WorkflowName,
    pub version: Version,
    pub description: Option<String>,
    /// JSON Schema of the input, as given; `io` compiles and applies it.
    pub input_schema: Option<Value>,
    /// JSON Schema of the output, as given.
    pub output_schema: Option<Value>,
    /// In the order written.
    pub steps: Vec<Step>,
    /// The workflow's output; null where absent.
    pub result: Option<Template>,
    pub hash: DefinitionHash,
    /// The document as deployed.
    pub document: Value,
}

/// One step.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub id: StepId,
    pub kind: StepKind,
    /// Steps that must have ended before this one may start: as written in `after`, else the step before it.
    pub after: Vec<StepId>,
    /// Whether the step runs at all; skipped where this is false.
    pub when: Option<Template>,
}

/// What a step does. Further kinds (`http`, `workflow`, `await`, `approval`, `for`, `continue_as_new`) join here.
#[derive(Clone, Debug, PartialEq)]
pub enum StepKind {
    /// A worker runs it.
    Task(TaskStep),
    /// Evaluated by the decider.
    Compute(Template),
    /// Waits: a duration as text (`10s`), or an expression that gives such a text or a number of milliseconds.
    Sleep(Template),
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

impl Definition {
    /// The step of that id.
    pub fn step(&self, id: &str) -> Option<&Step> {
        self.steps.iter().find(|s| s.id.as_str() == id)
    }
}
