//! Workflow definitions: the document's model and every check on it (design, section 7; `orbit-def/1`).
//!
//! * [`document`]: from a parsed JSON document to a [`Definition`], collecting every [`Problem`] on the way.
//! * [`expression`]: what stands in `${ … }`, and [`Template`]s made of it.
//! * `problem`: what is wrong, and where. `keywords`: those of JSON Schema.
//! * [`step`]: the model of a step. [`mod@unit`]: what the keys of units in a history name.
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
pub mod step;
pub mod unit;
mod whole;

pub use document::Checked;
pub use duration::{format_duration, parse_duration};
pub use expression::{ExpressionError, Local, Scope, Template};
pub use hash::input_hash;
pub use keywords::each_schema;
pub use nearest::nearest;
pub use problem::{LocatedProblem, Location, Problem};
pub use schema::{AnySchema, Boundary, SchemaCheck, Violation};
pub use step::{AwaitStep, ChildStep, ForStep, Jitter, RetryPolicy, Step, StepKind, TaskStep};
pub use unit::{Place, UnitPath};
pub use whole::whole_number;

use crate::id::{DefinitionHash, QueryName, SignalName, Version, WorkflowName};
use serde_json::Value;
use std::collections::BTreeMap;
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
    /// How long an execution may run before it winds down as timed out.
    pub timeout: Option<Duration>,
    /// What can be sent to an execution, to be awaited or handled.
    pub signals: BTreeMap<SignalName, Signal>,
    /// Signals that the workflow judges, and answers with a value.
    pub updates: BTreeMap<SignalName, Update>,
    /// What can be asked of an execution.
    pub queries: BTreeMap<QueryName, Template>,
    /// What runs besides the steps.
    pub on: Handlers,
    /// In the order written.
    pub steps: Vec<Step>,
    /// The workflow's output; null where absent.
    pub result: Option<Template>,
    pub hash: DefinitionHash,
    /// The document as deployed.
    pub document: Value,
}

/// A signal that a workflow takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Signal {
    /// JSON Schema of its payload; anything without one.
    pub payload: Option<Value>,
}

/// An update that a workflow takes: it is judged and answered at once, and awaited or handled like a signal.
#[derive(Clone, Debug, PartialEq)]
pub struct Update {
    /// JSON Schema of its payload; anything without one.
    pub payload: Option<Value>,
    /// Whether it is taken; always without it. Expressions see the payload as `event`.
    pub when: Option<Template>,
    /// What it is answered with; null where absent.
    pub result: Option<Template>,
}

/// Steps that run when something happens to an execution.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handlers {
    /// After a failure, once what was done is compensated.
    pub failure: Vec<Step>,
    /// After a cancellation, likewise.
    pub cancel: Vec<Step>,
    /// After the workflow's time-out, likewise.
    pub timeout: Vec<Step>,
    /// For each signal or update of that name, beside the steps of the workflow; one after the other.
    pub event: BTreeMap<SignalName, Vec<Step>>,
}

impl Definition {
    /// The step of the workflow that has that id (those of handlers apart).
    pub fn step(&self, id: &str) -> Option<&Step> {
        find(&self.steps, id)
    }
}

fn find<'s>(steps: &'s [Step], id: &str) -> Option<&'s Step> {
    steps.iter().find(|step| step.id.as_str() == id)
}
