//! The hash of a definition over its semantic content.
//!
//! What changes nothing about how executions run changes no hash: descriptions, spelling (`60s` or `1m`), and whether
//! a default is written or left out. The content is written as canonical JSON: keys sorted, no white space, durations
//! in milliseconds, what is absent left out.

use super::{Definition, Jitter, RetryPolicy, Step, StepKind, TaskStep};
use crate::id::{DefinitionHash, InputHash};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::time::Duration;

/// `sha256:<hex>` of the definition's content. Its `hash`, `document` and descriptions do not count.
pub(super) fn hash(definition: &Definition) -> DefinitionHash {
    DefinitionHash::new(sha256(&content(definition)))
}

/// The hash of an input: equal ones have the same.
pub fn input_hash(input: &Value) -> InputHash {
    InputHash::new(sha256(input))
}

/// `sha256:<hex>` of a value's canonical JSON.
fn sha256(value: &Value) -> String {
    let mut text = String::new();
    write_canonical(value, &mut text);
    let mut hash = String::from("sha256:");
    for byte in Sha256::digest(text.as_bytes()) {
        write!(hash, "{byte:02x}").expect("writing to a text does not fail");
    }
    hash
}

fn content(definition: &Definition) -> Value {
    let mut content = json!({
        "format": "orbit-def/1",
        "name": definition.name,
        "version": definition.version,
        "steps": definition.steps.iter().map(step).collect::<Vec<_>>(),
    });
    put(&mut content, "input", definition.input_schema.clone());
    put(&mut content, "output", definition.output_schema.clone());
    put(&mut content, "result", definition.result.as_ref().map(|r| r.source().clone()));
    put(&mut content, "timeout", definition.timeout.map(millis));
    let signals =
        definition.signals.iter().map(|(name, signal)| (name.to_string(), json!({"payload": signal.payload})));
    put_all(&mut content, "signals", signals.collect());
    let updates = definition.updates.iter().map(|(name, update)| {
        let mut content = json!({"payload": update.payload});
        put(&mut content, "when", update.when.as_ref().map(|w| w.source().clone()));
        put(&mut content, "result", update.result.as_ref().map(|r| r.source().clone()));
        (name.to_string(), content)
    });
    put_all(&mut content, "updates", updates.collect());
    let queries = definition.queries.iter().map(|(name, query)| (name.to_string(), query.source().clone()));
    put_all(&mut content, "queries", queries.collect());
    let on = &definition.on;
    let steps = |steps: &[Step]| Value::Array(steps.iter().map(step).collect());
    let last = [("on_failure", &on.failure), ("on_cancel", &on.cancel), ("on_timeout", &on.timeout)];
    for (name, handler) in last.into_iter().filter(|(_, handler)| !handler.is_empty()) {
        put(&mut content, name, Some(steps(handler)));
    }
    let events = on.event.iter().map(|(name, handler)| (name.to_string(), steps(handler)));
    put_all(&mut content, "on_event", events.collect());
    content
}

/// Puts a field where it has something in it.
fn put_all(content: &mut Value, field: &str, named: Map<String, Value>) {
    put(content, field, (!named.is_empty()).then_some(Value::Object(named)));
}

fn step(step: &Step) -> Value {
    let mut content = json!({"id": step.id, "after": step.after});
    put(&mut content, "when", step.when.as_ref().map(|w| w.source().clone()));
    put_kind(&mut content, &step.kind);
    if let Some(compensation) = &step.compensate {
        let mut undo = json!({});
        put_task(&mut undo, compensation);
        put(&mut content, "compensate", Some(undo));
    }
    content
}

fn put_kind(content: &mut Value, kind: &StepKind) {
    match kind {
        StepKind::Compute(template) => put(content, "compute", Some(template.source().clone())),
        StepKind::Sleep(template) => put(content, "sleep", Some(template.source().clone())),
        StepKind::Task(task) => put_task(content, task),
        StepKind::ContinueAsNew(input) => put(content, "continue_as_new", Some(input.source().clone())),
        StepKind::Workflow(child) => {
            put(content, "workflow", Some(json!(child.workflow)));
            put(content, "version", child.version.as_ref().map(|version| json!(version)));
            put(content, "input", Some(child.input.source().clone()));
            put(content, "retry", (child.retry != RetryPolicy::once()).then(|| retry(&child.retry)));
            put(content, "timeout", child.timeout.map(millis));
        }
        StepKind::Await(await_) => {
            put(content, "await", Some(json!(await_.signal)));
            put(content, "timeout", await_.timeout.map(millis));
            put(content, "otherwise", await_.otherwise.as_ref().map(|o| o.source().clone()));
        }
        StepKind::For(each) => {
            put(content, "for", Some(each.list.source().clone()));
            put(content, "parallel", Some(json!(each.parallel)));
            let mut one = json!({});
            put_kind(&mut one, &each.each);
            put(content, "do", Some(one));
        }
    }
}

fn put_task(content: &mut Value, task: &TaskStep) {
    put(content, "task", Some(json!(task.task)));
    put(content, "contract_version", Some(json!(task.contract_version)));
    put(content, "input", Some(task.input.source().clone()));
    put(content, "retry", (task.retry != RetryPolicy::once()).then(|| retry(&task.retry)));
    put(content, "timeout", task.timeout.map(millis));
    put(content, "queue_timeout", task.queue_timeout.map(millis));
}

fn retry(policy: &RetryPolicy) -> Value {
    json!({
        "max_attempts": policy.max_attempts,
        "initial": millis(policy.initial),
        "factor_milli": policy.factor_milli,
        "max": millis(policy.max),
        "jitter": match policy.jitter { Jitter::None => "none", Jitter::Full => "full" },
        "non_retryable": policy.non_retryable,
    })
}

fn millis(duration: Duration) -> Value {
    Value::from(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

fn put(content: &mut Value, field: &str, value: Option<Value>) {
    if let (Value::Object(fields), Some(value)) = (content, value) {
        fields.insert(field.to_owned(), value);
    }
}

/// Writes a value in the one form that equal values share.
fn write_canonical(value: &Value, text: &mut String) {
    match value {
        Value::Array(items) => {
            text.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                write_canonical(item, text);
            }
            text.push(']');
        }
        Value::Object(fields) => {
            text.push('{');
            for (index, (key, field)) in sorted(fields).into_iter().enumerate() {
                if index > 0 {
                    text.push(',');
                }
                text.push_str(&Value::from(key.as_str()).to_string());
                text.push(':');
                write_canonical(field, text);
            }
            text.push('}');
        }
        simple => text.push_str(&simple.to_string()),
    }
}

/// The fields by their keys, whatever order the map keeps.
fn sorted(fields: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let mut sorted: Vec<_> = fields.iter().collect();
    sorted.sort_by_key(|(key, _)| *key);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash_of(document: Value) -> String {
        Definition::from_document(&document).unwrap_or_else(|p| panic!("{p:?}")).hash.to_string()
    }

    fn base() -> Value {
        json!({"name": "W", "version": "1", "steps": [
            {"id": "a", "task": "t", "timeout": "60s", "retry": {"max_attempts": 3}},
            {"id": "b", "compute": "${ input }"},
        ]})
    }

    fn changed(change: impl FnOnce(&mut Value)) -> String {
        let mut document = base();
        change(&mut document);
        hash_of(document)
    }

    /// A deployed version is recognised by this text in databases that exist: it must never change by accident.
    #[test]
    fn the_hash_of_a_definition_is_the_same_for_ever() {
        assert_eq!(hash_of(base()), "sha256:5720c96434a73fed7c1e2001ceb7d3c7751397f45c904dc4fbf8d86930efdfcf");
    }

    #[test]
    fn spelling_and_descriptions_do_not_change_the_hash() {
        assert_eq!(changed(|d| d["description"] = json!("about")), hash_of(base()));
        assert_eq!(changed(|d| d["steps"][0]["description"] = json!("about")), hash_of(base()));
        assert_eq!(changed(|d| d["steps"][0]["contract_version"] = json!("1")), hash_of(base()));
        assert_eq!(changed(|d| d["steps"][0]["timeout"] = json!("1m")), hash_of(base()));
        assert_eq!(changed(|d| d["steps"][0]["input"] = json!(null)), hash_of(base()));
        assert_eq!(changed(|d| d["steps"][1]["after"] = json!(["a"])), hash_of(base()));
        assert_eq!(changed(|d| d["steps"][0]["retry"]["factor"] = json!(2.0)), hash_of(base()));
    }

    #[test]
    fn everything_that_changes_what_runs_changes_the_hash() {
        let hashes = [
            hash_of(base()),
            changed(|d| d["name"] = json!("V")),
            changed(|d| d["version"] = json!("2")),
            changed(|d| d["input"] = json!({})),
            changed(|d| d["output"] = json!({})),
            changed(|d| d["result"] = json!(1)),
            changed(|d| d["steps"][0]["id"] = json!("c")),
            changed(|d| d["steps"][0]["task"] = json!("u")),
            changed(|d| d["steps"][0]["contract_version"] = json!("2")),
            changed(|d| d["steps"][0]["input"] = json!({})),
            changed(|d| d["steps"][0]["when"] = json!(true)),
            changed(|d| d["steps"][0]["timeout"] = json!("61s")),
            changed(|d| d["steps"][0]["queue_timeout"] = json!("61s")),
            changed(|d| d["steps"][0]["retry"]["max_attempts"] = json!(4)),
            changed(|d| d["steps"][0]["retry"]["initial"] = json!("2s")),
            changed(|d| d["steps"][0]["retry"]["factor"] = json!(3)),
            changed(|d| d["steps"][0]["retry"]["max"] = json!("2m")),
            changed(|d| d["steps"][0]["retry"]["jitter"] = json!("none")),
            changed(|d| d["steps"][0]["retry"]["non_retryable"] = json!(["X"])),
            changed(|d| d["steps"][1] = json!({"id": "b", "sleep": "1s"})),
            changed(|d| d["steps"][1]["compute"] = json!(1)),
            changed(|d| d["steps"].as_array_mut().expect("a list").swap(0, 1)),
        ];
        for (index, hash) in hashes.iter().enumerate() {
            assert!(!hashes[..index].contains(hash), "change {index} made no difference");
        }
    }
}
