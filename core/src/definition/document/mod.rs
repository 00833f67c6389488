//! From a parsed document to a [`Definition`].
//!
//! Every problem is told, each with its place and with what would be right: unknown and missing fields, wrong types,
//! names outside their alphabets, expressions that cannot be compiled or read what does not exist, steps that wait for
//! each other, and outputs that are read before they are there. What no version of Orbit knows is told apart from what
//! this one does not support yet.

mod fields;
mod graph;
mod steps;
#[cfg(test)]
mod tests;

pub use fields::{MAX_NAME_BYTES, MAX_STEP_ID_BYTES, MAX_VERSION_BYTES};
pub use steps::MAX_ATTEMPTS;

use super::expression::push_pointer;
use super::hash::hash;
use super::{Definition, MAX_DEPTH, Template};
use crate::id::{DefinitionHash, Version, WorkflowName};
use fields::{Fields, NAME, VERSION};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;

/// Steps of one definition.
pub const MAX_STEPS: usize = 10_000;
/// Problems that one check tells; past them it counts.
pub const MAX_PROBLEMS: usize = 100;

/// Fields of a definition.
pub(super) const FIELDS: &[&str] = &["name", "version", "description", "input", "output", "steps", "result"];
/// Fields of a definition in later versions of Orbit.
const LATER_FIELDS: &[&str] = &["timeout", "signals", "queries", "on"];

/// Something wrong in a definition, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// A JSON pointer to the place, such as `/steps/2/after/0`; `io` finds the line.
    pub path: String,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub hint: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.path.is_empty() { "the document" } else { &self.path };
        write!(f, "{place}: {}", self.message)?;
        if !self.hint.is_empty() {
            write!(f, " ({})", self.hint)?;
        }
        Ok(())
    }
}

/// Problems as they are found. Past [`MAX_PROBLEMS`] they are only counted.
#[derive(Debug, Default)]
struct Problems {
    found: Vec<Problem>,
    more: usize,
}

impl Problems {
    /// Tells a problem. What is right is asked for only while it is still told: it may take a search for the nearest
    /// name.
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>, hint: impl FnOnce() -> String) {
        if self.found.len() < MAX_PROBLEMS {
            self.found.push(Problem { path: path.into(), message: message.into(), hint: hint() });
        } else {
            self.more += 1;
        }
    }

    fn none(&self) -> bool {
        self.found.is_empty()
    }

    fn into_list(mut self) -> Vec<Problem> {
        if self.more > 0 {
            let message = format!("there are {} more problems", self.more);
            self.found.push(Problem { path: String::new(), message, hint: "correct these first".into() });
        }
        self.found
    }
}

/// A pointer to a part of what `pointer` points at.
fn join(pointer: &str, part: &str) -> String {
    let mut joined = pointer.to_owned();
    push_pointer(&mut joined, part);
    joined
}

impl Definition {
    /// Checks a parsed document. Every problem is reported, not just the first.
    pub fn from_document(document: &Value) -> Result<Definition, Vec<Problem>> {
        let mut problems = Problems::default();
        let definition = read(document, &mut problems);
        match definition {
            Some(definition) if problems.none() => Ok(definition),
            _ => Err(problems.into_list()),
        }
    }
}

/// Reads what can be read. The definition is complete if no problem was found.
fn read(document: &Value, problems: &mut Problems) -> Option<Definition> {
    if deeper_than(document, MAX_DEPTH) {
        problems.add("", format!("the document has more than {MAX_DEPTH} lists and objects within each other"), || {
            "pass what is nested so deep as a text".into()
        });
        return None;
    }
    let fields = Fields::new(document, "", "a definition", problems)?;
    fields.known(FIELDS, LATER_FIELDS, problems);

    let name = fields.required("name", "the workflow's name", problems);
    let name = name.and_then(|(path, value)| NAME.read(path, value, problems));
    let version = fields.required("version", "the version of this definition", problems);
    let version = version.and_then(|(path, value)| VERSION.read(path, value, problems));
    let description = fields.get("description").and_then(|(path, value)| fields::text(path, value, problems));
    let input_schema = fields.get("input").and_then(|(path, value)| schema(path, value, problems));
    let output_schema = fields.get("output").and_then(|(path, value)| schema(path, value, problems));
    let result = fields.get("result").and_then(|(path, value)| fields::template(path, value, problems));
    let steps = fields
        .required("steps", "the list of steps", problems)
        .and_then(|(path, value)| steps::read(&path, value, result.as_ref(), problems));

    let mut definition = Definition {
        name: WorkflowName::new(name?),
        version: Version::new(version?),
        description,
        input_schema,
        output_schema,
        steps: steps?,
        result,
        hash: DefinitionHash::new(""),
        document: document.clone(),
    };
    definition.hash = hash(&definition);
    Some(definition)
}

/// A JSON Schema. What stands in it is checked where schemas are compiled (`io`).
fn schema(path: String, value: &Value, problems: &mut Problems) -> Option<Value> {
    match value {
        Value::Object(_) | Value::Bool(_) => Some(value.clone()),
        other => {
            problems.add(path, format!("must be a JSON Schema, not {}", super::expression::kind(other)), || {
                "write an object, such as `{type: object, required: [order_id]}`".into()
            });
            None
        }
    }
}

/// Whether a value nests deeper than `limit`. Without recursion, since the answer decides whether recursion is safe.
fn deeper_than(value: &Value, limit: usize) -> bool {
    let mut open = vec![(value, 1)];
    while let Some((value, depth)) = open.pop() {
        let inner: Vec<&Value> = match value {
            Value::Array(items) => items.iter().collect(),
            Value::Object(fields) => fields.values().collect(),
            _ => continue,
        };
        if depth > limit {
            return true;
        }
        open.extend(inner.into_iter().map(|v| (v, depth + 1)));
    }
    false
}

/// A template of a document, read with its expressions' problems.
fn problems_of_template(path: &str, value: &Value, problems: &mut Problems) -> Option<Template> {
    match Template::check(value) {
        Ok(template) => Some(template),
        Err(errors) => {
            for (place, error) in errors {
                // The part after the last `; ` of a message says what would be right.
                let (message, hint) = match error.message.rsplit_once("; ") {
                    Some((message, hint)) => (message.to_owned(), hint.to_owned()),
                    None => (error.message, String::new()),
                };
                problems.add(format!("{path}{place}"), format!("`{}`: {message}", error.source_text), || hint);
            }
            None
        }
    }
}
