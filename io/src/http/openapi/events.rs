//! The schemas of a history's events, one for each type.

use super::build::{Object, any, boolean, count, named, one_of_texts, said, text};
use serde_json::{Value, json};

/// The type, what it says, and the fields beside `seq`, `at_ms` and `type`; a `?` marks those that may be absent.
type Kind = (&'static str, &'static str, &'static [&'static str]);

const KINDS: &[Kind] = &[
    (
        "WorkflowCreated",
        "The execution exists. Always the first event.",
        &["workflow", "version", "definition_hash", "input", "labels?", "cluster_id", "run", "parent?", "continued?"],
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
        &["step", "attempt", "token", "worker_id", "worker_session", "deadline_ms?", "redelivery?"],
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
    ("StepFanOut", "A `for` step has its list: its items begin, as many at a time as it allows.", &["step", "items"]),
    ("StepFanIn", "Every item of a `for` step ended well: its output is the list of theirs.", &["step"]),
    ("SignalAwaited", "A step waits for a signal.", &["step", "signal", "deadline_ms?"]),
    (
        "SignalConsumed",
        "A step took the signal with that number; its payload is the step's output.",
        &["step", "signal", "received"],
    ),
    (
        "SignalReceived",
        "Somebody sent a signal. Its number is what the sender is told.",
        &["signal", "payload", "signal_id?", "carried?"],
    ),
    (
        "UpdateAccepted",
        "Somebody sent an update, the workflow took it, and this is what it was answered with.",
        &["update", "payload", "update_id?", "result"],
    ),
    ("HandlerStarted", "A handler began; that of an event took the signal that its key names.", &["handler"]),
    ("HandlerCompleted", "All steps of a handler ended well.", &["handler"]),
    (
        "HandlerFailed",
        "A step of a handler failed for good; the execution ends as it would have.",
        &["handler", "error"],
    ),
    (
        "ChildScheduled",
        "A child is to be started: an attempt of a step.",
        &["step", "attempt", "child", "workflow", "version?", "input"],
    ),
    ("ChildStarted", "The child exists.", &["step", "attempt", "child", "version", "deadline_ms?"]),
    ("ChildCompleted", "The child ended well; its output is the step's.", &["step", "attempt", "child", "output"]),
    ("ChildFailed", "The child ended otherwise, or could not be started.", &["step", "attempt", "child", "error"]),
    (
        "ChildEndRequested",
        "The child is to end: it is cancelled, or terminated.",
        &["step", "child", "terminate", "timed_out"],
    ),
    ("ContinueSuggested", "The history is half as long as it may be: it is time to continue as new.", &["max"]),
    ("StaleResultIgnored", "A result that nothing waits for any more.", &["step", "token", "outcome"]),
    (
        "WorkflowHeld",
        "A server that took over found attempts out, and was told to hold such executions: nothing goes on until somebody \
         recovers it, or asks for its end. The next deliveries of the units in `repeats` say that they are repeats.",
        &["reason", "repeats"],
    ),
    ("WorkflowRecovered", "Somebody let it go on.", &["reason?"]),
    ("CancelRequested", "Somebody asked for the end.", &["reason?"]),
    (
        "LimitReached",
        "A limit of the server was reached: the execution winds down to this failure.",
        &["limit", "error", "step?"],
    ),
    ("TerminateRequested", "Somebody asked for the end at once.", &["reason?"]),
    ("WorkflowTimeoutReached", "The workflow's `timeout` is over.", &[]),
    ("ResultFailed", "The workflow's result could not be computed, and there is something to undo first.", &["error"]),
    ("CompensationStarted", "What was done is undone, in this order.", &["reason", "steps"]),
    ("CompensationCompleted", "All of it is undone.", &[]),
    ("CompensationFailed", "Something of it could not be undone; the rest is.", &["step", "error"]),
    (
        "ContractViolated",
        "A value does not match its schema: the execution winds down to this failure.",
        &["boundary", "error"],
    ),
    ("WorkflowCompleted", "The end: done, with the workflow's result.", &["output", "unconsumed?"]),
    (
        "WorkflowFailed",
        "The end: a step failed for good, or the result could not be computed.",
        &["error", "compensation?", "unconsumed?"],
    ),
    ("WorkflowCancelled", "The end: cancelled.", &["compensation?", "unconsumed?"]),
    ("WorkflowTimedOut", "The end: it took longer than the workflow's `timeout`.", &["compensation?", "unconsumed?"]),
    ("WorkflowTerminated", "The end: at once, without undoing anything.", &["unconsumed?"]),
    ("WorkflowContinuedAsNew", "The end of a run: the next one has this input.", &["input", "next_run"]),
];

/// What a field is, wherever it stands.
fn field(name: &str) -> Value {
    match name {
        "input" | "output" | "payload" | "result" => any(),
        "items" => said(json!({"type": "array", "items": any()}), "The list."),
        "received" => said(count(), "The number of the event that received it."),
        "handler" => said(text(), "`on_failure`, `on_cancel`, `on_timeout` or `on_event:<signal>@<number>`."),
        "steps" | "repeats" => json!({"type": "array", "items": text()}),
        "compensation" => one_of_texts(&["completed", "failed"]),
        "unconsumed" => said(
            json!({"type": "array", "items": unconsumed()}),
            "Signals and updates that were taken in, and that nothing took before the end.",
        ),
        "labels" => named("Labels"),
        "run" | "next_run" | "attempt" | "next_attempt" | "delay_ms" | "max" => count(),
        "child" => named("ExecutionId"),
        "terminate" | "timed_out" => boolean(),
        "parent" => parent(),
        "continued" => said(json!({"type": "object"}), "What the runs before left to this one."),
        "carried" => said(
            Object::answer("Where it stood.").with("run", count()).with("seq", count()).build(),
            "It came to an earlier run, and nothing took it there.",
        ),
        "redelivery" => said(boolean(), "Whether an earlier delivery of the same attempt may have run."),
        "token" => named("Token"),
        "worker_session" => named("SessionId"),
        "deadline_ms" | "fire_at_ms" => named("Time"),
        "error" => named("TaskError"),
        "outcome" => one_of_texts(&["succeeded", "failed"]),
        "step" => said(text(), "The step's id; `step[2]` of an item, `compensate:step` of what undoes it."),
        _ => text(),
    }
}

fn parent() -> Value {
    Object::answer("Whose child it is.")
        .with("execution_id", named("ExecutionId"))
        .with("step", text())
        .with("root", said(named("ExecutionId"), "The execution at the top."))
        .with("depth", count())
        .build()
}

fn unconsumed() -> Value {
    Object::answer("A signal or update that nothing took.")
        .with("signal", text())
        .with("received", said(count(), "The number of the event that received it."))
        .build()
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
