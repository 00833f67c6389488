//! What each method of each resource does: every route, its parameters, its bodies and its own errors.

use super::build::{boolean, default, named, said, whole};
use super::examples;
use crate::http::metrics;
use crate::http::route::executions::{
    HISTORY_BYTES, HISTORY_LIMIT, LIST_LIMIT, MAX_CURSOR, MAX_HISTORY_BYTES, MAX_LABELS, MAX_LIST_LIMIT, MAX_WAIT_MS,
    MIN_HISTORY_BYTES,
};
use crate::http::route::{Resource, Verb, YAML};
use orbit_core::api::ErrorCode;
use serde_json::{Value, json};

/// One method of one resource.
#[derive(Default)]
pub struct Operation {
    pub id: &'static str,
    pub tag: &'static str,
    pub summary: &'static str,
    pub description: &'static str,
    /// Of the query.
    pub parameters: Vec<Value>,
    pub body: Option<Body>,
    pub answers: Vec<Answer>,
    /// Its own errors; those that any route may have are added where the document is made.
    pub errors: &'static [ErrorCode],
    /// What can be asked next with what is answered: name, operation, and where its arguments are found.
    pub links: &'static [Link],
}

/// A link of an answer with status 200 or 201 to another operation.
pub struct Link {
    pub to: &'static str,
    /// A parameter of the path, or a field of the body after `body:`, and where its value is in this answer.
    pub passes: &'static [(&'static str, &'static str)],
}

/// What a request brings.
pub struct Body {
    pub required: bool,
    pub media: Vec<&'static str>,
    pub schema: &'static str,
    pub examples: Vec<(&'static str, Value)>,
}

/// One way of answering.
pub struct Answer {
    pub status: u16,
    pub description: &'static str,
    pub media: &'static str,
    pub schema: Value,
    pub examples: Vec<(&'static str, Value)>,
}

const JSON: &str = "application/json";
const TEXT: &str = "text/plain";

/// An answer with status 200.
fn ok(description: &'static str, schema: &str, example: Value) -> Answer {
    Answer { status: 200, description, media: JSON, schema: named(schema), examples: vec![("answer", example)] }
}

fn created(description: &'static str, schema: &str, example: Value) -> Answer {
    Answer { status: 201, ..ok(description, schema, example) }
}

fn line(status: u16, description: &'static str, text: &'static str) -> Answer {
    let schema = json!({"type": "string"});
    Answer { status, description, media: TEXT, schema, examples: vec![("answer", text.into())] }
}

fn query(name: &str, description: &str, schema: Value) -> Value {
    json!({"name": name, "in": "query", "required": false, "description": description, "schema": schema})
}

fn body(schema: &'static str, example: Value) -> Option<Body> {
    Some(Body { required: true, media: vec![JSON], schema, examples: vec![("single", example)] })
}

const EXECUTION_LINKS: &[Link] = &[
    Link { to: "getExecution", passes: &[("id", "execution_id")] },
    Link { to: "getHistory", passes: &[("id", "execution_id")] },
    Link { to: "waitForExecution", passes: &[("id", "execution_id")] },
    Link { to: "cancelExecution", passes: &[("id", "execution_id")] },
    Link { to: "terminateExecution", passes: &[("id", "execution_id")] },
];

/// What a method does to a resource; None where it does nothing. `METHOD_NOT_ALLOWED` is no operation.
pub fn describe(resource: &Resource, verb: Verb) -> Option<Operation> {
    if !resource.takes(verb) {
        return None;
    }
    Some(match (resource, verb) {
        (Resource::Workflows | Resource::Workflow { .. }, _) => workflow(resource, verb),
        (Resource::Executions | Resource::Execution(_) | Resource::History(_) | Resource::Wait(_), _) => {
            execution(resource, verb)
        }
        (
            Resource::Cancel(_)
            | Resource::Terminate(_)
            | Resource::Recover(_)
            | Resource::Release(_)
            | Resource::Signal { .. }
            | Resource::Update { .. }
            | Resource::Query { .. },
            _,
        ) => ask(resource),
        (Resource::Workers | Resource::Register | Resource::Poll | Resource::Heartbeat | Resource::Unregister, _) => {
            worker(resource)
        }
        (Resource::Complete, _) => report(
            "completeTask",
            "Report a task's success",
            "CompleteRequest",
            vec![("single", examples::complete()), ("batch", examples::batch())],
        ),
        (Resource::Fail, _) => report(
            "failTask",
            "Report a task's failure",
            "FailRequest",
            vec![("single", examples::fail()), ("batch", examples::batch())],
        ),
        (
            Resource::Nodes
            | Resource::StepDown
            | Resource::Health
            | Resource::Ready
            | Resource::Metrics
            | Resource::Livez
            | Resource::Readyz
            | Resource::Leaderz,
            _,
        ) => server(resource),
    })
}

fn workflow(resource: &Resource, verb: Verb) -> Operation {
    let tag = "Workflows";
    match (resource, verb) {
        (Resource::Workflows, Verb::Post) => Operation {
            id: "deployWorkflow",
            tag,
            summary: "Deploy a definition",
            description: "The body is the definition itself. A deployed version never changes: the same content again \
                          is `unchanged`, other content is refused.",
            parameters: vec![query(
                "strict",
                "Whether a definition with warnings is refused, before its version is used up.",
                default(boolean(), false),
            )],
            body: Some(Body {
                required: true,
                media: [JSON].into_iter().chain(YAML).collect(),
                schema: "Definition",
                examples: vec![("single", examples::definition())],
            }),
            answers: vec![
                created("It is new.", "Deployed", examples::deployed()),
                ok("The same content is deployed already.", "Deployed", examples::unchanged()),
            ],
            errors: &[ErrorCode::DefinitionInvalid, ErrorCode::DefinitionWarnings, ErrorCode::DefinitionConflict],
            links: &[
                Link { to: "getWorkflow", passes: &[("name", "name")] },
                Link { to: "getWorkflowVersion", passes: &[("name", "name"), ("version", "version")] },
                Link { to: "startExecution", passes: &[("body:workflow", "name")] },
            ],
        },
        (Resource::Workflows, Verb::Get) => Operation {
            id: "listWorkflows",
            tag,
            summary: "List every deployed version",
            answers: vec![ok("Every deployed version.", "Workflows", examples::workflows())],
            ..Operation::default()
        },
        (Resource::Workflow { version, .. }, _) => {
            let (id, summary) = match version {
                None => ("getWorkflow", "Show the newest version of a workflow"),
                Some(_) => ("getWorkflowVersion", "Show one version of a workflow"),
            };
            Operation {
                id,
                tag,
                summary,
                answers: vec![ok("The version and its definition.", "Workflow", examples::workflow())],
                errors: &[ErrorCode::UnknownWorkflow],
                ..Operation::default()
            }
        }
        _ => unreachable!("no resource of workflows"),
    }
}

fn execution(resource: &Resource, verb: Verb) -> Operation {
    let tag = "Executions";
    match (resource, verb) {
        (Resource::Executions, Verb::Post) => Operation {
            id: "startExecution",
            tag,
            summary: "Start an execution",
            description: "It is durable once the answer is there. To repeat a start safely, give it an \
                          `execution_id`.",
            body: body("StartRequest", examples::start()),
            answers: vec![
                created("This request started it.", "Started", examples::started(true)),
                ok("The same id, workflow and input started it before.", "Started", examples::started(false)),
            ],
            errors: &[
                ErrorCode::UnknownWorkflow,
                ErrorCode::ExecutionIdConflict,
                ErrorCode::InputInvalid,
                ErrorCode::Quarantined,
            ],
            links: EXECUTION_LINKS,
            ..Operation::default()
        },
        (Resource::Executions, Verb::Get) => Operation {
            id: "listExecutions",
            tag,
            summary: "List executions",
            description: "A page of executions, newest first. Those that are shown fit every parameter.",
            parameters: list_parameters(),
            answers: vec![ok("A page.", "Executions", examples::executions())],
            ..Operation::default()
        },
        (Resource::Execution(_), _) => Operation {
            id: "getExecution",
            tag,
            summary: "Show an execution",
            answers: vec![ok("The execution as it stands.", "Execution", examples::execution())],
            errors: &[ErrorCode::UnknownExecution],
            ..Operation::default()
        },
        (Resource::History(_), _) => Operation {
            id: "getHistory",
            tag,
            summary: "Read the history of an execution",
            description: "Events in their order. Where `more` is true, ask again with `after_seq` = the last event's \
                          `seq`.",
            parameters: vec![
                query("run", "Of this run; of the current one without it.", whole(1, u32::MAX.into())),
                query("after_seq", "Events after this number.", default(whole(0, i64::MAX.unsigned_abs()), 0)),
                query("limit", "At most so many events.", default(whole(1, HISTORY_LIMIT.into()), HISTORY_LIMIT)),
                query("max_bytes", "At most about so many bytes of events.", {
                    default(whole(MIN_HISTORY_BYTES.into(), MAX_HISTORY_BYTES.into()), HISTORY_BYTES)
                }),
            ],
            answers: vec![ok("Events.", "History", examples::history())],
            errors: &[ErrorCode::UnknownExecution],
            ..Operation::default()
        },
        (Resource::Wait(_), _) => Operation {
            id: "waitForExecution",
            tag,
            summary: "Wait for the end of an execution",
            description: "Answers when it has ended, or when the time is over; `status` tells which.",
            parameters: vec![query("timeout_ms", "How long to wait, in milliseconds.", {
                default(whole(0, MAX_WAIT_MS), MAX_WAIT_MS)
            })],
            answers: vec![ok("The execution as it stands then.", "Execution", examples::execution())],
            errors: &[ErrorCode::UnknownExecution],
            ..Operation::default()
        },
        _ => unreachable!("no resource of executions"),
    }
}

/// What clients ask of one execution.
fn ask(resource: &Resource) -> Operation {
    let tag = "Executions";
    let may_be_empty = |schema, example| Body { required: false, ..body(schema, example).expect("just made") };
    match resource {
        Resource::Cancel(_) => Operation {
            id: "cancelExecution",
            tag,
            summary: "Ask for the end of an execution",
            description: "What it did is undone as its definition says, and its handler of cancels runs.",
            body: Some(may_be_empty("CancelRequest", examples::cancel())),
            answers: vec![ok("The execution as it stands then.", "Execution", examples::running())],
            errors: &[ErrorCode::UnknownExecution, ErrorCode::ExecutionFinished, ErrorCode::Quarantined],
            ..Operation::default()
        },
        Resource::Terminate(_) => Operation {
            id: "terminateExecution",
            tag,
            summary: "End an execution at once",
            description: "Nothing is undone and no handler runs. Cancel instead, unless that does not come to an end.",
            body: Some(may_be_empty("CancelRequest", examples::cancel())),
            answers: vec![ok("The execution as it ended.", "Execution", examples::terminated())],
            errors: &[ErrorCode::UnknownExecution, ErrorCode::ExecutionFinished, ErrorCode::Quarantined],
            ..Operation::default()
        },
        Resource::Recover(_) => Operation {
            id: "recoverExecution",
            tag,
            summary: "Let an execution go on that is held",
            description: "A server that was started with `--recovery hold` holds what had an attempt out when it took \
                          over. What is delivered again then says so (`redelivery`).",
            body: Some(may_be_empty("CancelRequest", examples::recover())),
            answers: vec![ok("The execution as it goes on.", "Execution", examples::running())],
            errors: &[
                ErrorCode::UnknownExecution,
                ErrorCode::NotHeld,
                ErrorCode::ExecutionFinished,
                ErrorCode::Quarantined,
            ],
            ..Operation::default()
        },
        Resource::Release(_) => Operation {
            id: "releaseExecution",
            tag,
            summary: "Try an execution again that is quarantined",
            description: "Its history is read anew. Where that, or what follows, fails again, it stays quarantined and the \
                          answer says why.",
            body: Some(may_be_empty("ReleaseRequest", examples::release())),
            answers: vec![ok("The execution as it goes on.", "Execution", examples::running())],
            errors: &[ErrorCode::UnknownExecution, ErrorCode::NotQuarantined, ErrorCode::Quarantined],
            ..Operation::default()
        },
        Resource::Signal { .. } => Operation {
            id: "signalExecution",
            tag,
            summary: "Send a signal to an execution",
            description: "It is durable once the answer is there, and waits until a step or a handler takes it. To \
                          repeat it safely, give it a `signal_id`.",
            body: Some(may_be_empty("SignalRequest", examples::signal())),
            answers: vec![ok("The execution has it.", "Signalled", examples::signalled())],
            errors: &[
                ErrorCode::UnknownExecution,
                ErrorCode::UnknownSignal,
                ErrorCode::Quarantined,
                ErrorCode::ExecutionFinished,
                ErrorCode::SignalIdConflict,
                ErrorCode::SignalPayloadInvalid,
            ],
            ..Operation::default()
        },
        Resource::Update { .. } => Operation {
            id: "updateExecution",
            tag,
            summary: "Send an update to an execution",
            description: "The workflow takes it or refuses it, and answers at once; what it took is durable then. To \
                          repeat it safely, give it an `update_id`.",
            body: Some(may_be_empty("UpdateRequest", examples::update())),
            answers: vec![ok("The workflow took it.", "Updated", examples::updated())],
            errors: &[
                ErrorCode::UnknownExecution,
                ErrorCode::UnknownUpdate,
                ErrorCode::Quarantined,
                ErrorCode::ExecutionFinished,
                ErrorCode::SignalIdConflict,
                ErrorCode::UpdateRejected,
                ErrorCode::UpdatePayloadInvalid,
            ],
            ..Operation::default()
        },
        _ => Operation {
            id: "queryExecution",
            tag,
            summary: "Ask an execution about its state",
            description: "Changes nothing, and is answered after the end too.",
            answers: vec![ok("What the query gives.", "Queried", examples::queried())],
            errors: &[
                ErrorCode::UnknownExecution,
                ErrorCode::UnknownQuery,
                ErrorCode::Quarantined,
                ErrorCode::QueryFailed,
                ErrorCode::OutcomeUnknown,
            ],
            ..Operation::default()
        },
    }
}

fn list_parameters() -> Vec<Value> {
    let mut label = query(
        "label",
        "Executions with this label, as `<key>=<value>`; may stand several times.",
        json!({
            "type": "array", "maxItems": MAX_LABELS,
            "items": {"type": "string", "pattern": "^[A-Za-z0-9._/-]{1,64}="},
        }),
    );
    label["explode"] = true.into();
    label["style"] = "form".into();
    let cursor = json!({"type": "string", "minLength": 1, "maxLength": MAX_CURSOR});
    vec![
        query("status", "Executions that are this far.", named("Status")),
        query("workflow", "Executions of this workflow.", named("Name")),
        label,
        query(
            "since",
            "Executions that were started at this time (milliseconds since 1970) or later.",
            whole(0, i64::MAX.unsigned_abs()),
        ),
        query("limit", "At most so many.", default(whole(1, MAX_LIST_LIMIT.into()), LIST_LIMIT)),
        query("cursor", "`next_cursor` of the page before.", cursor),
    ]
}

fn worker(resource: &Resource) -> Operation {
    let tag = "Workers";
    match resource {
        Resource::Register => Operation {
            id: "registerWorker",
            tag,
            summary: "Begin a worker session",
            body: body("RegisterRequest", examples::register()),
            answers: vec![ok("The session.", "Registered", examples::registered())],
            links: &[
                Link { to: "pollTasks", passes: &[("body:session_id", "session_id")] },
                Link { to: "heartbeat", passes: &[("body:session_id", "session_id")] },
                Link { to: "unregisterWorker", passes: &[("body:session_id", "session_id")] },
            ],
            ..Operation::default()
        },
        Resource::Poll => Operation {
            id: "pollTasks",
            tag,
            summary: "Wait for tasks, and bring results",
            description: "Delivery is at least once: a task whose worker fell silent is handed out again with the \
                          same `idempotency_key` and `redelivery: true`.",
            body: body("PollRequest", examples::poll()),
            answers: vec![ok("Tasks to run, and what became of the results.", "Polled", examples::polled())],
            errors: &[ErrorCode::UnknownSession],
            ..Operation::default()
        },
        Resource::Heartbeat => Operation {
            id: "heartbeat",
            tag,
            summary: "Say that a worker lives",
            body: body("HeartbeatRequest", examples::heartbeat()),
            answers: vec![ok("Tasks to stop working on.", "Cancels", examples::cancels())],
            errors: &[ErrorCode::UnknownSession],
            ..Operation::default()
        },
        Resource::Unregister => Operation {
            id: "unregisterWorker",
            tag,
            summary: "End a worker session",
            description: "What it still holds is handed out again.",
            body: body("UnregisterRequest", examples::unregister()),
            answers: vec![ok("The session has ended.", "Unregistered", json!({}))],
            errors: &[ErrorCode::UnknownSession],
            ..Operation::default()
        },
        _ => Operation {
            id: "listWorkers",
            tag,
            summary: "List workers",
            answers: vec![ok("Workers that registered here, now or earlier.", "Workers", examples::workers())],
            ..Operation::default()
        },
    }
}

fn report(
    id: &'static str,
    summary: &'static str,
    schema: &'static str,
    bodies: Vec<(&'static str, Value)>,
) -> Operation {
    let one_or_several = json!({"oneOf": [named("ResultOutcome"), named("Reported")]});
    Operation {
        id,
        tag: "Tasks",
        summary,
        description: "One result, or a batch of successes and failures; then there is one outcome for each, and the \
                      errors of single results are in their outcomes.",
        body: Some(Body { required: true, media: vec![JSON], schema, examples: bodies }),
        answers: vec![Answer {
            status: 200,
            description: "What became of the result, or of each.",
            media: JSON,
            schema: one_or_several,
            examples: vec![("single", examples::outcome()), ("batch", examples::outcomes())],
        }],
        errors: &[ErrorCode::UnknownSession, ErrorCode::UnknownToken],
        ..Operation::default()
    }
}

fn server(resource: &Resource) -> Operation {
    let tag = "Server";
    let probe = |id, summary, answers| Operation { id, tag, summary, answers, ..Operation::default() };
    match resource {
        Resource::Nodes => probe(
            "listNodes",
            "List the servers of the cluster",
            vec![ok("Those that are there, or were; one that is alone shows itself.", "Nodes", examples::nodes())],
        ),
        Resource::StepDown => Operation {
            id: "stepDown",
            tag,
            summary: "Hand the lead over",
            description: "The leader takes nothing new in, finishes what is in flight, gives the lead up and waits for a \
                          moment, so that another server leads. Answered then.",
            body: Some(Body { required: false, ..body("StepDownRequest", json!({"term": 7})).expect("just made") }),
            answers: vec![ok("It leads no more, or again.", "SteppedDown", examples::stepped_down())],
            errors: &[ErrorCode::NotInCluster],
            ..Operation::default()
        },
        Resource::Health => {
            probe("getHealth", "Show the server", vec![ok("On every server that runs.", "Health", examples::health())])
        }
        Resource::Ready => probe(
            "getReady",
            "Tell whether the server takes requests",
            vec![
                ok("It does.", "Ready", examples::ready()),
                Answer { status: 503, ..ok("It does not; `reason` says why.", "Ready", examples::not_ready()) },
            ],
        ),
        Resource::Metrics => {
            let schema = said(json!({"type": "string"}), "The text format of Prometheus.");
            let media = metrics::CONTENT_TYPE.split(';').next().expect("a split gives something");
            let answer = Answer { status: 200, description: "Figures.", media, schema, examples: vec![] };
            probe("getMetrics", "Show figures", vec![answer])
        }
        Resource::Livez => {
            probe("livez", "Tell whether the process runs and its loop moves", vec![line(200, "It does.", "ok\n")])
        }
        Resource::Readyz => probe(
            "readyz",
            "Tell whether the server may serve reads",
            vec![line(200, "It may.", "ok\n"), line(503, "It may not.", "not ready\n")],
        ),
        _ => probe(
            "leaderz",
            "Tell whether the server may serve writes",
            vec![line(200, "It may.", "ok\n"), line(503, "It may not.", "not ready\n")],
        ),
    }
}
