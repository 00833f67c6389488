//! The schemas of bodies and their parts; those about executions in a file of their own.

mod executions;

use super::build::{
    NO_CONTROL, Object, any, boolean, count, default, list, list_of, name, named, one_of_texts, or_null, said, text,
    whole,
};
use super::events;
use crate::http::fields::{EXECUTION_ID, MAX_EXECUTION_ID};
use crate::http::route::MAX_NAME;
use crate::http::route::cluster::MAX_TERM;
use crate::http::route::executions::{MAX_LABEL_KEY, MAX_LABEL_VALUE, MAX_LABELS};
use crate::http::route::tasks::{MAX_CODE, MAX_RESULTS};
use crate::http::route::workers::{MAX_CONTRACTS, MAX_HOLDING, MAX_RUNTIME, MAX_SDK, MAX_TASKS, MAX_WAIT_MS, WAIT_MS};
use orbit_core::api::ErrorCode;
use orbit_core::store::append::Status;
use serde_json::{Map, Value, json};

/// Every schema by its name.
pub fn all() -> Map<String, Value> {
    let mut schemas = Map::new();
    let parts = [scalars(), definition(), workflows(), executions::all(), workers(), tasks(), server(), events::all()];
    for (name, schema) in parts.into_iter().flatten() {
        let before = schemas.insert(name.clone(), schema);
        assert!(before.is_none(), "two schemas are called {name}");
    }
    schemas
}

type Schemas = Vec<(String, Value)>;

fn listed<const N: usize>(schemas: [(&str, Value); N]) -> Schemas {
    schemas.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

fn scalars() -> Schemas {
    let uuid = "[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}";
    let statuses: Vec<&str> = Status::ALL.iter().map(|status| status.as_str()).collect();
    listed([
        (
            "ClientExecutionId",
            json!({
                "type": "string", "pattern": "^[A-Za-z0-9._:@+-]{1,255}$",
                "description": "The id of an execution, as clients choose them.",
            }),
        ),
        (
            "ExecutionId",
            json!({
                "type": "string", "pattern": format!("^{EXECUTION_ID}$"), "maxLength": MAX_EXECUTION_ID,
                "description": "The id of an execution. Those of child executions contain `~`.",
            }),
        ),
        ("Name", said(name(MAX_NAME), "1 to 255 bytes without control characters.")),
        (
            "SessionId",
            json!({
                "type": "string", "format": "uuid", "pattern": format!("^{uuid}$"),
                "description": "A worker session, as `POST /v1/workers/register` returned it.",
            }),
        ),
        (
            "Token",
            json!({
                "type": "string", "pattern": format!("^{EXECUTION_ID}/{uuid}$"),
                "maxLength": MAX_EXECUTION_ID + 37,
                "description": "The name of one delivery of a task: `<execution id>/<uuid>`, as a poll returned it.",
            }),
        ),
        ("Time", json!({"type": "integer", "format": "int64", "description": "Milliseconds since 1970."})),
        (
            "Payload",
            said(
                any(),
                "Any JSON value: at most `--max-payload-bytes` (1 MiB) of text, at most 120 lists and objects within \
                 each other, and no whole number that 64 bits do not hold.",
            ),
        ),
        ("Labels", labels()),
        ("Status", said(one_of_texts(&statuses), "How far an execution is.")),
        ("Error", error(&all_codes())),
    ])
}

fn labels() -> Value {
    json!({
        "type": "object", "maxProperties": MAX_LABELS,
        "propertyNames": {"pattern": format!("^[A-Za-z0-9._/-]{{1,{MAX_LABEL_KEY}}}$")},
        "additionalProperties": {"type": "string", "maxLength": MAX_LABEL_VALUE, "pattern": NO_CONTROL},
        "description": "What people search by.",
    })
}

fn all_codes() -> Vec<ErrorCode> {
    ErrorCode::ALL.to_vec()
}

/// An error with one of these codes.
fn error(codes: &[ErrorCode]) -> Value {
    let codes: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    Object::answer("What every error looks like.").with("error", error_inside(&codes)).build()
}

fn error_inside(codes: &[&str]) -> Value {
    let details = json!({"type": "object", "description": "More, for programs; what it holds depends on the code."});
    Object::answer("What is wrong, and what would be right.")
        .with("code", said(one_of_texts(codes), "What programs decide from."))
        .with("message", said(text(), "What is wrong in this case."))
        .with("hint", said(text(), "What would be right."))
        .with("retryable", said(boolean(), "Whether the same request may succeed later."))
        .with("details", details)
        .with("request_id", said(text(), "Also the header `x-request-id`, and in the server's log."))
        .build()
}

/// The published schema of definitions, its parts as schemas of this document.
fn definition() -> Schemas {
    let mut whole: Value =
        serde_json::from_str(crate::definition::DOCUMENT_SCHEMA).expect("the published schema is JSON");
    let fields = whole.as_object_mut().expect("the published schema is an object");
    for field in ["$schema", "$id", "$comment"] {
        fields.remove(field);
    }
    let parts = fields.remove("$defs");
    let parts = parts.as_ref().and_then(Value::as_object).expect("the published schema has parts");
    let title = |name: &str| format!("Definition{}{}", name[..1].to_uppercase(), &name[1..]);
    let mut schemas = vec![("Definition".to_owned(), whole)];
    schemas.extend(parts.iter().map(|(name, part)| (title(name), part.clone())));
    for (name, schema) in &mut schemas {
        // Tools would fetch the schema of schemas from elsewhere.
        if name == "DefinitionJsonSchema" {
            *schema = json!({"type": ["object", "boolean"], "description": schema["description"]});
        }
        rewrite(schema, &|target| match target.strip_prefix("#/$defs/") {
            Some(part) => format!("#/components/schemas/{}", title(part)),
            None => target.to_owned(),
        });
    }
    schemas
}

/// Changes the target of every reference.
fn rewrite(schema: &mut Value, target: &impl Fn(&str) -> String) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| rewrite(item, target)),
        Value::Object(fields) => {
            for (name, field) in fields {
                match field {
                    Value::String(text) if name == "$ref" => *text = target(text),
                    other => rewrite(other, target),
                }
            }
        }
        _ => {}
    }
}

fn workflows() -> Schemas {
    let item = |description: &str| {
        Object::answer(description)
            .with("name", text())
            .with("version", text())
            .with("definition_hash", said(text(), "Over what the definition means: `sha256:` and hexadecimal digits."))
            .maybe("description", text())
            .with("created_at_ms", named("Time"))
            .with("latest", said(boolean(), "Whether a start without a version takes this one."))
    };
    listed([
        (
            "Deployed",
            Object::answer("A definition that the server has.")
                .with("name", text())
                .with("version", text())
                .with("definition_hash", text())
                .with("result", one_of_texts(&["created", "unchanged"]))
                .maybe("warnings", said(list(named("Problem")), "What is allowed, and hardly meant."))
                .build(),
        ),
        (
            "Problem",
            Object::answer("Something that is wrong, or hardly meant, in a definition.")
                .with("path", said(text(), "A JSON pointer to the place."))
                .maybe("offset", said(count(), "In a text with expressions: characters before the place."))
                .with("message", text())
                .with("hint", said(text(), "What would be right."))
                .maybe("line", said(whole(1, u64::from(u32::MAX)), "In the text that was sent."))
                .maybe("column", said(whole(1, u64::from(u32::MAX)), "In characters, the first is 1."))
                .build(),
        ),
        ("WorkflowItem", item("One deployed version.").build()),
        (
            "Workflow",
            item("One deployed version, with its definition.")
                .with("definition", said(named("Definition"), "The document, as deployed."))
                .build(),
        ),
        ("Workflows", Object::answer("Every deployed version.").with("workflows", list(named("WorkflowItem"))).build()),
    ])
}

fn workers() -> Schemas {
    let holding = || list_of(named("Token"), 0, MAX_HOLDING);
    let contract = |object: Object| object.with("task_name", named("Name"));
    listed([
        (
            "ContractRequest",
            contract(Object::request("A task that a worker runs."))
                .maybe("contract_version", said(named("Name"), "`1` without it."))
                .build(),
        ),
        (
            "Contract",
            contract(Object::answer("A task that a worker runs.")).with("contract_version", named("Name")).build(),
        ),
        (
            "RegisterRequest",
            Object::request("A worker that announces itself.")
                .with("worker_id", said(named("Name"), "The name that the worker gives itself."))
                .with("runtime", said(name(MAX_RUNTIME), "`rust`, `python` …"))
                .maybe("sdk", said(name(MAX_SDK), "For people."))
                .with("contracts", {
                    let mut contracts = list_of(named("ContractRequest"), 1, MAX_CONTRACTS);
                    contracts["uniqueItems"] = true.into();
                    contracts
                })
                .build(),
        ),
        (
            "Registered",
            Object::answer("A session.")
                .with("session_id", named("SessionId"))
                .with("heartbeat_interval_ms", said(count(), "How often to send heartbeats."))
                .with("session_timeout_ms", said(count(), "After how long a silent session is lost."))
                .build(),
        ),
        (
            "PollRequest",
            Object::request("A long poll, which may bring results.")
                .with("session_id", named("SessionId"))
                .maybe("max_tasks", default(said(whole(0, MAX_TASKS), "0 only brings results."), 1))
                .maybe("wait_ms", default(said(whole(0, MAX_WAIT_MS), "How long to wait for the first task."), WAIT_MS))
                .maybe(
                    "holding",
                    said(
                        holding(),
                        "Every task that the worker has and has not reported. A task of this session that it does not \
                         name is handed out again; one that it names and that is open no more is in `cancel`.",
                    ),
                )
                .maybe("results", list_of(named("TaskResult"), 0, MAX_RESULTS))
                .build(),
        ),
        (
            "Polled",
            Object::answer("What there is to do.")
                .with("tasks", list(named("Assignment")))
                .with("cancel", said(list(named("Token")), "Tasks to stop working on."))
                .maybe("outcomes", said(list(named("ResultOutcome")), "One for each result, where the poll had some."))
                .build(),
        ),
        (
            "Assignment",
            Object::answer("A task, handed to a worker.")
                .with("token", named("Token"))
                .with("execution_id", named("ExecutionId"))
                .with("workflow", text())
                .with("workflow_version", text())
                .with("step_id", text())
                .with("task_name", text())
                .with("contract_version", text())
                .with("input", any())
                .with("idempotency_key", said(text(), "The same for every delivery of every attempt of this step."))
                .with("attempt", said(count(), "The first is 1."))
                .with("redelivery", said(boolean(), "Whether an earlier delivery of this attempt may have run."))
                .maybe("deadline_ms", said(named("Time"), "Where the step has a `timeout`."))
                .maybe("timeout_ms", said(count(), "The step's `timeout`."))
                .build(),
        ),
        (
            "HeartbeatRequest",
            Object::request("A sign of life.")
                .with("session_id", named("SessionId"))
                .maybe("holding", said(holding(), "As in a poll."))
                .build(),
        ),
        (
            "Cancels",
            Object::answer("What is not wanted any more.")
                .with("cancel", said(list(named("Token")), "Tasks to stop working on."))
                .build(),
        ),
        ("UnregisterRequest", Object::request("A session to end.").with("session_id", named("SessionId")).build()),
        ("Unregistered", Object::answer("The session has ended.").build()),
        ("Workers", Object::answer("Workers.").with("workers", list(named("Worker"))).build()),
        (
            "Worker",
            Object::answer("A worker that registered here, now or earlier.")
                .with("worker_id", text())
                .with("runtime", text())
                .maybe("sdk", text())
                .with("contracts", list(named("Contract")))
                .with("last_seen_ms", named("Time"))
                .with("sessions", said(count(), "Sessions that are alive."))
                .with("holding", said(count(), "Tasks that they have."))
                .maybe(
                    "open_sessions",
                    said(list(named("Session")), "Those sessions, in the order in which they registered."),
                )
                .build(),
        ),
        (
            "Session",
            Object::answer("A worker session that is alive.")
                .with("session_id", named("SessionId"))
                .with("registered_ms", named("Time"))
                .with("last_seen_ms", named("Time"))
                .with("holding", said(count(), "Tasks that it has."))
                .build(),
        ),
    ])
}

fn tasks() -> Schemas {
    let success = Object::request("A task that succeeded.")
        .with("token", named("Token"))
        .with("output", named("Payload"))
        .never("error");
    let failure = Object::request("A task that failed.")
        .with("token", named("Token"))
        .with("error", named("TaskErrorReport"))
        .never("output");
    let single = |object: Object| object.with("session_id", named("SessionId")).with("token", named("Token"));
    let batch = |own: &str| {
        Object::request("Several results, successes and failures mixed.")
            .with("session_id", named("SessionId"))
            .with("results", list_of(named("TaskResult"), 1, MAX_RESULTS))
            .never("token")
            .never(own)
            .build()
    };
    let outcomes = one_of_texts(&["accepted", "duplicate", "stale", "refused"]);
    listed([
        (
            "TaskErrorReport",
            Object::request("Why a task failed.")
                .with("code", said(name(MAX_CODE), "What `non_retryable` of the step's `retry` compares."))
                .maybe("message", default(said(text(), "For people."), ""))
                .maybe("retryable", default(said(boolean(), "Whether another attempt may help."), true))
                .maybe("details", said(named("Payload"), "For programs."))
                .build(),
        ),
        (
            "TaskError",
            Object::answer("Why an attempt, a step or a workflow failed.")
                .with("code", said(text(), "The task's own code, or one of Orbit's."))
                .with("message", text())
                .with("retryable", boolean())
                .maybe("details", any())
                .maybe("step", said(text(), "The step that failed, in the error of a workflow."))
                .build(),
        ),
        ("TaskResult", json!({"oneOf": [success.build(), failure.build()]})),
        (
            "CompleteRequest",
            json!({"oneOf": [
                single(Object::request("The result of one task."))
                    .maybe("output", said(named("Payload"), "Null without it."))
                    .never("results")
                    .build(),
                batch("output"),
            ]}),
        ),
        (
            "FailRequest",
            json!({"oneOf": [
                single(Object::request("The failure of one task."))
                    .with("error", named("TaskErrorReport"))
                    .never("results")
                    .build(),
                batch("error"),
            ]}),
        ),
        (
            "ResultOutcome",
            Object::answer("What became of one result.")
                .with("token", named("Token"))
                .with(
                    "outcome",
                    said(
                        outcomes,
                        "`accepted`: it is the result. `duplicate`: it is recorded already. `stale`: nothing waits for \
                         it any more. `refused`: it was not taken, and `error` says why.",
                    ),
                )
                .maybe("error", said(error_inside(&codes_of_outcomes()), "Where it was refused."))
                .build(),
        ),
        (
            "Reported",
            Object::answer("What became of several results, in their order.")
                .with("outcomes", list(named("ResultOutcome")))
                .build(),
        ),
    ])
}

/// The errors that one result of several can have.
fn codes_of_outcomes() -> Vec<&'static str> {
    use ErrorCode::{
        Fenced, Internal, NotLeader, NotReady, OutcomeUnknown, PayloadTooLarge, Quarantined, StorageError, UnknownToken,
    };
    let codes = [
        UnknownToken,
        Quarantined,
        PayloadTooLarge,
        NotLeader,
        NotReady,
        Fenced,
        StorageError,
        OutcomeUnknown,
        Internal,
    ];
    codes.into_iter().map(ErrorCode::as_str).collect()
}

fn server() -> Schemas {
    let role = || one_of_texts(&["single", "leader", "standby", "shared"]);
    let cluster = |object: Object| {
        object
            .with("role", role())
            .with("node_id", said(or_null(text()), "The server's name (`--node-id`); null without `--cluster`."))
            .with("term", or_null(count()))
            .with("leader", or_null(named("Leader")))
    };
    listed([
        (
            "Leader",
            Object::answer("The server that leads.").with("node_id", text()).with("addr", or_null(text())).build(),
        ),
        ("Nodes", Object::answer("Servers.").with("nodes", list(named("Node"))).build()),
        (
            "Node",
            Object::answer("A server of the cluster, as it said last.")
                .with("node_id", text())
                .with("addr", said(or_null(text()), "The address that others are told of it."))
                .with("role", role())
                .with("live", said(boolean(), "Whether it has been heard of lately."))
                .with(
                    "heartbeat_age_ms",
                    said(or_null(count()), "How long ago it said that it lives; null where it has left."),
                )
                .with("term", said(count(), "The newest term that it knows of."))
                .with("version", text())
                .with("host", text())
                .with("pid", count())
                .with("clock_offset_ms", said(json!({"type": "integer"}), "Its clock minus the database's."))
                .with("config_digest", said(text(), "Over the settings that the servers of a cluster have in common."))
                .with("started_ms", named("Time"))
                .build(),
        ),
        (
            "StepDownRequest",
            Object::request("Which lead is to end.")
                .maybe("term", said(whole(0, MAX_TERM), "That of this term, and none of a later one."))
                .build(),
        ),
        (
            "SteppedDown",
            Object::answer("The end of a step-down.")
                .with("term", said(count(), "The term that has ended."))
                .with("leader", said(or_null(named("Leader")), "Who leads now; null where nobody else was there."))
                .build(),
        ),
        (
            "Health",
            cluster(Object::answer("A server that runs."))
                .with("status", one_of_texts(&["ok"]))
                .with("api_version", text())
                .with("runtime_version", text())
                .with("ir_versions", said(list(text()), "The formats of definitions that it reads."))
                .with("active_executions", count())
                .with("held_executions", said(count(), "Of those, the ones that wait to be recovered."))
                .with("worker_sessions", count())
                .build(),
        ),
        (
            "Ready",
            cluster(Object::answer("Whether a server takes requests."))
                .with("ready", boolean())
                .maybe("reason", said(text(), "Why not, where it does not."))
                .build(),
        ),
    ])
}
