//! The schemas of a history's events, one for each type.

use super::build::{Object, any, boolean, count, named, one_of_texts, said, text};
use serde_json::{Value, json};

/// The type, what it says, and the fields beside `seq`, `at_ms` and `type`; a `?` marks those that may be absent.
type Kind = (&'static str, &'static str, &'static [&'static str]);

const KINDS: &[Kind] = &[
    (
        "WorkflowCreated",
        "The execution exists. Always the first event.",
        &["workflow", "version", "definition_hash", "input", "labels?", "cluster_id", "run"],
    ),
    ("WorkflowStarted", "The first decision.", &[]),
    (
        "StepScheduled",
        "An attempt of a step waits for a worker.",
        &["step", "attempt", "input", "idempotency_key", "redelivery"],
    ),
    ("StepSkipped", "The step's `when` is false; its output is null.", &["step", "reason"]),
    (
        "StepDispatched",
        "An attempt was handed to a worker.",
        &["step", "attempt", "token", "worker_id", "worker_session", "deadline_ms?"],
    ),
    ("StepSucceeded", "The step has its output.", &["step", "attempt", "output", "token?"]),
    ("StepAttemptFailed", "An attempt failed.", &["step", "attempt", "error", "token?"]),
    (
        "StepAttemptUncertain",
        "Whether a delivery ran is not known: its worker fell silent.",
        &["step", "attempt", "reason", "token"],
    ),
    ("RetryScheduled", "The next attempt waits for its time.", &["step", "next_attempt", "delay_ms", "fire_at_ms"]),
    ("StepFailed", "The step failed for good.", &["step", "error"]),
    ("StepCancelled", "The step is not wanted any more.", &["step"]),
    ("TimerStarted", "A timer runs.", &["step", "fire_at_ms"]),
    ("TimerFired", "The timer's time came; the step's output is null.", &["step"]),
    ("StaleResultIgnored", "A result that nothing waits for any more.", &["step", "token", "outcome"]),
    ("CancelRequested", "Somebody asked for the end.", &["reason?"]),
    (
        "LimitReached",
        "A limit of the server was reached: the execution winds down to this failure.",
        &["limit", "error"],
    ),
    (
        "ContractViolated",
        "A value does not match its schema: the execution winds down to this failure.",
        &["boundary", "error"],
    ),
    ("WorkflowCompleted", "The end: done, with the workflow's result.", &["output"]),
    ("WorkflowFailed", "The end: a step failed for good, or the result could not be computed.", &["error"]),
    ("WorkflowCancelled", "The end: cancelled.", &[]),
];

/// What a field is, wherever it stands.
fn field(name: &str) -> Value {
    match name {
        "input" | "output" => any(),
        "labels" => named("Labels"),
        "run" | "attempt" | "next_attempt" | "delay_ms" => count(),
        "redelivery" => said(boolean(), "Whether an earlier delivery of the same attempt may have run."),
        "token" => named("Token"),
        "worker_session" => named("SessionId"),
        "deadline_ms" | "fire_at_ms" => named("Time"),
        "error" => named("TaskError"),
        "outcome" => one_of_texts(&["succeeded", "failed"]),
        "step" => said(text(), "The step's id."),
        _ => text(),
    }
}

/// `Event`, and a schema for each type.
pub fn all() -> Vec<(String, Value)> {
    let schema_name = |kind: &str| format!("{kind}Event");
    let reference = |kind: &str| format!("#/components/schemas/{}", schema_name(kind));
    let any_event = json!({
        "description": "Something that happened to an execution, as its history records it.",
        "oneOf": KINDS.iter().map(|(kind, ..)| json!({"$ref": reference(kind)})).collect::<Vec<_>>(),
        "discriminator": {
            "propertyName": "type",
            "mapping": KINDS.iter().map(|(kind, ..)| (kind.to_string(), reference(kind).into())).collect::<serde_json::Map<_, _>>(),
        },
    });
    let mut schemas = vec![("Event".to_owned(), any_event)];
    for (kind, description, fields) in KINDS {
        let mut object = Object::answer(description)
            .with("seq", said(count(), "Its place in the history; the first is 1."))
            .with("at_ms", named("Time"))
            .with("type", json!({"type": "string", "const": kind}));
        for name in *fields {
            object = match name.strip_suffix('?') {
                Some(name) => object.maybe(name, field(name)),
                None => object.with(name, field(name)),
            };
        }
        schemas.push((schema_name(kind), object.build()));
    }
    schemas
}
