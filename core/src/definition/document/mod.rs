//! From a parsed document to a [`Definition`].
//!
//! Every problem is told, each with its place and with what would be right: unknown and missing fields, wrong types,
//! names outside their alphabets, expressions that cannot be compiled or read what does not exist, steps that wait for
//! each other, and outputs that are read before they are there. What no version of Orbit knows is told apart from what
//! this one does not support yet.

#[cfg(test)]
mod constructs;
mod fields;
mod graph;
mod lookalikes;
mod places;
mod reads;
mod retry;
mod signals;
mod steps;
mod synonyms;
#[cfg(test)]
mod tests;

pub use fields::{MAX_NAME_BYTES, MAX_STEP_ID_BYTES, MAX_VERSION_BYTES};
pub use retry::MAX_ATTEMPTS;
pub use signals::MAX_NAMES;
pub use steps::MAX_PARALLEL;

use super::expression::{Located, push_pointer};
use super::hash::hash;
use super::keywords::unknown_keywords;
use super::problem::{Problem, Spot};
use super::schema::{AnySchema, SchemaCheck};
use super::{Definition, MAX_DEPTH, Template};
use crate::id::{DefinitionHash, SignalName, Version, WorkflowName};
use fields::{Fields, NAME, Sees, VERSION};
use serde_json::Value;
use steps::Block;

/// Steps of one definition.
pub const MAX_STEPS: usize = 10_000;
/// Problems that one check tells; past them it counts.
pub const MAX_PROBLEMS: usize = 100;

/// Fields of a definition.
pub(super) const FIELDS: &[&str] = &[
    "name",
    "version",
    "description",
    "input",
    "output",
    "timeout",
    "signals",
    "updates",
    "queries",
    "steps",
    "on",
    "result",
];

/// Problems as they are found. Past [`MAX_PROBLEMS`] they are only counted.
#[derive(Debug, Default)]
struct Problems {
    found: Vec<Problem>,
    more: usize,
    warnings: Vec<Problem>,
    /// The templates that were read, with their paths.
    templates: Vec<(String, Template)>,
}

impl Problems {
    /// Tells a problem. What is right is asked for only while it is still told: it may take a search for the nearest
    /// name.
    fn add(&mut self, spot: impl Into<Spot>, message: impl Into<String>, hint: impl FnOnce() -> String) {
        if self.found.len() < MAX_PROBLEMS {
            let Spot { path, offset, of_key } = spot.into();
            self.found.push(Problem { path, offset, of_key, message: message.into(), hint: hint() });
        } else {
            self.more += 1;
        }
    }

    /// The definition, if there is no problem.
    fn or_definition(mut self, definition: Option<Definition>) -> Result<Definition, Vec<Problem>> {
        if let (Some(definition), true) = (definition, self.found.is_empty()) {
            return Ok(definition);
        }
        if self.more > 0 {
            let message = format!("there are {} more problems", self.more);
            let hint = "correct these first".into();
            self.found.push(Problem { path: String::new(), offset: None, of_key: false, message, hint });
        }
        Err(self.found)
    }

    /// Tells what is allowed and hardly meant.
    fn warn(&mut self, spot: Spot, message: String, hint: impl FnOnce() -> String) {
        if self.warnings.len() < MAX_PROBLEMS {
            let Spot { path, offset, of_key } = spot;
            self.warnings.push(Problem { path, offset, of_key, message, hint: hint() });
        }
    }

    /// Whether nothing more is told.
    fn full(&self) -> bool {
        self.found.len() >= MAX_PROBLEMS && self.warnings.len() >= MAX_PROBLEMS
    }
}

/// A pointer to a part of what `pointer` points at.
pub(super) fn join(pointer: &str, part: &str) -> String {
    let mut joined = pointer.to_owned();
    push_pointer(&mut joined, part);
    joined
}

impl Definition {
    /// Reads a document whose schemas were checked when it was deployed.
    pub fn from_document(document: &Value) -> Result<Definition, Vec<Problem>> {
        let mut problems = Problems::default();
        let definition = read(document, &AnySchema, &mut problems);
        problems.or_definition(definition)
    }

    /// Checks a parsed document. Every problem is reported, not just the first.
    pub fn check(document: &Value, schemas: &dyn SchemaCheck) -> Checked {
        let mut problems = Problems::default();
        let definition = read(document, schemas, &mut problems);
        // Only when deployed: what a later version of Orbit finds here must not take a deployed definition away.
        reads::check(document, &mut problems);
        let mut warnings = std::mem::take(&mut problems.warnings);
        warnings.truncate(MAX_PROBLEMS);
        Checked { definition: problems.or_definition(definition), warnings }
    }
}

/// What a check of a document found.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The definition, or its problems.
    pub definition: Result<Definition, Vec<Problem>>,
    /// What is allowed, and hardly meant.
    pub warnings: Vec<Problem>,
}

/// Reads what can be read. The definition is complete if no problem was found.
fn read(document: &Value, schemas: &dyn SchemaCheck, problems: &mut Problems) -> Option<Definition> {
    if deeper_than(document, MAX_DEPTH) {
        problems.add("", format!("the document has more than {MAX_DEPTH} lists and objects within each other"), || {
            "pass what is nested so deep as a text".into()
        });
        return None;
    }
    let fields = Fields::new(document, "", "a definition", problems)?;
    fields.known(FIELDS, &[], problems);

    let name = fields.required("name", "the workflow's name", problems);
    let name = name.and_then(|(path, value)| NAME.read(path, value, problems));
    let version = fields.required("version", "the version of this definition", problems);
    let version = version.and_then(|(path, value)| VERSION.read(path, value, problems));
    let description = fields.get("description").and_then(|(path, value)| fields::text(path, value, problems));
    let input_schema = fields.get("input").and_then(|(path, value)| schema(path, value, schemas, problems));
    let output_schema = fields.get("output").and_then(|(path, value)| schema(path, value, schemas, problems));
    let result =
        fields.get("result").and_then(|(path, value)| fields::template(path, value, Sees::default(), problems));
    let timeout = fields.get("timeout").and_then(|(path, value)| fields::limit(path, value, problems));
    let signals = signals::read_signals(&fields, schemas, problems);
    let updates = signals::read_updates(&fields, signals.as_ref(), schemas, problems);
    let declared: Option<Vec<SignalName>> = match (&signals, &updates) {
        (Some(signals), Some(updates)) => Some(signals.keys().chain(updates.keys()).cloned().collect()),
        _ => None,
    };
    let handled = signals::handled(&fields);
    let steps = fields.required("steps", "the list of steps", problems).map(|(path, value)| {
        let block = Block {
            path,
            what: "a workflow",
            handler: false,
            sees: Sees::default(),
            outer: &[],
            signals: declared.as_deref(),
            handled: &handled,
            result: result.as_ref(),
        };
        block.read(value, problems)
    });
    let (steps, ids) = steps.map_or((None, Vec::new()), |read| (read.steps, read.ids));
    let on = signals::read_handlers(&fields, declared.as_deref(), &ids, problems);
    let queries = signals::read_queries(&fields, &ids, problems);
    if let Some(updates) = &updates {
        signals::check_updates(updates, &ids, problems);
    }

    let mut definition = Definition {
        name: WorkflowName::new(name?),
        version: Version::new(version?),
        description,
        input_schema,
        output_schema,
        timeout,
        signals: signals?,
        updates: updates?,
        queries: queries?,
        on: on?,
        steps: steps?,
        result,
        hash: DefinitionHash::new(""),
        document: document.clone(),
    };
    definition.hash = hash(&definition);
    Some(definition)
}

/// A JSON Schema. What stands in it is checked where schemas are compiled (`io`).
fn schema(path: String, value: &Value, schemas: &dyn SchemaCheck, problems: &mut Problems) -> Option<Value> {
    match value {
        Value::Object(_) | Value::Bool(_) => {
            let field = path.trim_start_matches('/');
            for problem in schemas.problems(value) {
                let message = if problem.path.is_empty() {
                    format!("`{field}` is no JSON Schema: {}", problem.message)
                } else {
                    problem.message
                };
                problems.add(format!("{path}{}", problem.path), message, || problem.hint);
            }
            let warned = |warning: Problem| Problem { path: format!("{path}{}", warning.path), ..warning };
            problems.warnings.extend(unknown_keywords(value).into_iter().map(warned));
            Some(value.clone())
        }
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
fn problems_of_template(path: &str, value: &Value, sees: Sees, problems: &mut Problems) -> Option<Template> {
    match Template::check(value) {
        Ok(template) => {
            let mut right = true;
            for (name, spot) in template.locals().iter().filter(|(name, _)| !sees.has(**name)) {
                right = false;
                let message = format!("`{}` is not there in this place", name.as_str());
                problems.add(spot.under(path), message, || format!("it is there {} alone", name.place()));
            }
            problems.templates.push((path.to_owned(), template.clone()));
            right.then_some(template)
        }
        Err(errors) => {
            for Located { spot, error } in errors {
                // The part after the last `; ` of a message says what would be right.
                let (message, hint) = match error.message.rsplit_once("; ") {
                    Some((message, hint)) => (message.to_owned(), hint.to_owned()),
                    None => (error.message, String::new()),
                };
                problems.add(spot.under(path), format!("`{}`: {message}", error.source_text), || hint);
            }
            None
        }
    }
}
