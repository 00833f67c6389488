//! `openapi.json` says what the API does.

mod api;
mod book;

use api::{STRICT, codes, problem, problems, response, template, validator};
use hyper::Method;
use orbit_core::api::response::{
    Accepted, Assignment, Cancels, Deployed, ExecutionItem, ExecutionView, Executions, Health, History, Leader,
    ParentView, Polled, Queried, Ready, Registered, Reply, ResultOutcome, SessionView, Signalled, Started, Updated,
    WorkerView, Workers, WorkflowItem, WorkflowView, Workflows,
};
use orbit_core::api::{ApiError, ErrorCode, Response};
use orbit_core::definition::{LocatedProblem, Location, Problem};
use orbit_core::execution::event::{
    AbortReason, Carried, CompensationOutcome, Continued, Event, Json, Parent, Recorded, ResultKind, TaskError,
    Unconsumed,
};
use orbit_core::execution::waiting::{Attempt, Keeper, Reason, Waiting, WaitingKind};
use orbit_core::id::{ClusterId, Run, Seq, SessionId, Term, Token};
use orbit_core::store::append::Status;
use orbit_core::time::ClusterMs;
use orbit_io::http::published::Published;
use orbit_io::http::route::{Resource, RouteLimits, route};
use orbit_io::http::{metrics, openapi, respond};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use uuid::Uuid;

/// Set to anything, this writes `docs/openapi.json` anew. Look at what changed before you commit it: clients are
/// generated from it.
const REWRITE: &str = "ORBIT_REWRITE_OPENAPI";

#[test]
fn the_file_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&path, openapi::text()).expect("the file can be written");
    }
    let file = std::fs::read_to_string(&path).unwrap_or_default();
    let same = file == openapi::text();
    assert!(same, "docs/openapi.json is out of date: run `{REWRITE}=1 cargo test -p io --test openapi`");
}

#[test]
fn each_method_that_is_served_is_described_and_no_other() {
    let mut described = BTreeSet::new();
    for (path, item) in STRICT["paths"].as_object().expect("an object") {
        for method in item.as_object().expect("an object").keys().filter(|key| *key != "parameters") {
            described.insert(format!("{} {path}", method.to_ascii_uppercase()));
        }
    }
    let mut served = BTreeSet::new();
    for path in Resource::TEMPLATES {
        let resource = Resource::find(&path.replace(['{', '}'], "")).expect("a path of the API");
        assert_eq!(resource.template(), *path);
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            if resource.verb(&method).is_ok() {
                served.insert(format!("{method} {path}"));
            }
        }
    }
    served.extend(Published::ALL.iter().map(|document| format!("GET {}", document.path())));
    assert_eq!(described, served);
}

/// Every operation, with its method and path.
fn operations() -> Vec<(&'static str, &'static str, &'static Value)> {
    let paths = STRICT["paths"].as_object().expect("an object").iter();
    let operations = paths.flat_map(|(path, item)| {
        ["get", "post"].into_iter().filter_map(move |method| Some((method, path.as_str(), item.get(method)?)))
    });
    operations.collect()
}

/// Every reference of a document.
fn references<'d>(value: &'d Value, found: &mut BTreeSet<&'d str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|field| references(field, found));
        }
        _ => {}
    }
}

#[test]
fn references_lead_to_something_and_nothing_is_described_for_nobody() {
    let mut found = BTreeSet::new();
    references(&STRICT, &mut found);
    for reference in &found {
        assert!(STRICT.pointer(&reference[1..]).is_some(), "{reference} leads nowhere");
    }
    for group in ["schemas", "responses", "headers"] {
        for name in STRICT["components"][group].as_object().expect("an object").keys() {
            assert!(found.contains(format!("#/components/{group}/{name}").as_str()), "nothing uses {name}");
        }
    }
    let ids: Vec<&str> = operations().iter().map(|(.., o)| o["operationId"].as_str().expect("an id")).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    for (_, path, operation) in operations() {
        for (status, response) in operation["responses"].as_object().expect("an object") {
            for (name, link) in response.get("links").and_then(Value::as_object).into_iter().flatten() {
                assert!(ids.contains(&link["operationId"].as_str().expect("an id")), "{path} {status} {name}");
            }
        }
    }
}

#[test]
fn each_error_stands_where_its_status_is_and_each_code_somewhere() {
    let mut seen = BTreeSet::new();
    for (method, path, operation) in operations() {
        for status in operation["responses"].as_object().expect("an object").keys() {
            let status: u16 = status.parse().expect("a status");
            let codes = codes(operation, status);
            assert!(status < 400 || !codes.is_empty(), "{method} {path} {status} names no code");
            for code in codes {
                assert_eq!(code.status(), status, "{method} {path} {code:?}");
                seen.insert(code);
            }
        }
    }
    // Of what is no route, no method of one, or no request: the introduction tells of those.
    seen.extend([ErrorCode::NotFound, ErrorCode::MethodNotAllowed, ErrorCode::HeadTooLarge]);
    assert_eq!(seen, ErrorCode::ALL.iter().copied().collect());
}

/// The errors that the reference names for a route.
fn errors_of_reference(text: &str) -> BTreeSet<ErrorCode> {
    let Some((_, errors)) = text.rsplit_once("\nErrors: ") else { return BTreeSet::new() };
    ErrorCode::ALL.iter().copied().filter(|code| errors.contains(&format!("`{}`", code.as_str()))).collect()
}

#[test]
fn the_errors_that_the_reference_names_are_described() {
    let mut named = 0;
    for (heading, text) in sections() {
        let (method, path) = heading.split_once(' ').expect("method and path");
        let operation = &STRICT["paths"][path][method.to_ascii_lowercase()];
        for code in errors_of_reference(&text) {
            assert!(codes(operation, code.status()).contains(&code), "{heading}: {code:?}");
            named += 1;
        }
    }
    assert!(named >= 15, "{named} errors");
}

/// The sections of the API's reference: method and path, and the text.
fn sections() -> Vec<(String, String)> {
    let page = book::page("reference/http-api.md");
    let parts = page.split("\n### `").skip(1);
    let section = |part: &str| {
        let (heading, text) = part.split_once("`\n").expect("a heading ends with a back-tick");
        (heading.to_owned(), text.to_owned())
    };
    parts.map(section).collect()
}

fn limits() -> RouteLimits {
    RouteLimits { max_payload_bytes: 1 << 20 }
}

#[test]
fn what_the_reference_shows_matches() {
    let (mut requests, mut answers) = (0, 0);
    for (heading, text) in sections() {
        let (method, path) = heading.split_once(' ').expect("method and path");
        let operation = &STRICT["paths"][path][method.to_ascii_lowercase()];
        let request = &operation["requestBody"]["content"]["application/json"]["schema"];
        for (index, (_, block)) in book::blocks(&text).iter().filter(|(kind, _)| kind == "json").enumerate() {
            let shown: Value = serde_json::from_str(block).expect("it is JSON");
            // The first block of a POST is a request, and so is each other one with results.
            if method == "POST" && (index == 0 || shown.get("results").is_some()) {
                assert_eq!(problems(request, &shown), [""; 0], "{heading}: {block}");
                requests += 1;
            } else {
                let fits = [200, 201, 503]
                    .into_iter()
                    .any(|status| problem(method, &path.replace(['{', '}'], ""), status, &shown).is_none());
                assert!(fits, "{heading}: {block}");
                answers += 1;
            }
        }
    }
    assert!(requests >= 10 && answers >= 12, "{requests} requests and {answers} answers");
}

#[test]
fn the_examples_match_their_schemas_and_requests_are_taken() {
    let mut seen = 0;
    for (method, path, operation) in operations() {
        let body = operation.get("requestBody").into_iter();
        let statuses = operation["responses"].as_object().expect("an object").keys();
        let answers = statuses.filter_map(|status| response(operation, status.parse().expect("a status")));
        for (media, content) in body.chain(answers).flat_map(|part| part["content"].as_object().expect("an object")) {
            let validator = validator(&content["schema"]);
            for example in content.get("examples").and_then(Value::as_object).into_iter().flat_map(|e| e.values()) {
                assert!(validator.is_valid(&example["value"]), "{method} {path} {media}: {example}");
                seen += 1;
            }
        }
        let path = path.replace(['{', '}'], "");
        for (media, content) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
            for (name, example) in content["examples"].as_object().expect("requests have examples") {
                let body = example["value"].to_string();
                let routed = route(&Method::POST, &path, None, Some(media), body.as_bytes(), &limits());
                assert!(routed.is_ok_and(|routed| routed.refused.is_empty()), "{path} {media} {name}");
            }
        }
    }
    assert!(seen > 100, "{seen} examples");
}

fn json_of(value: Value) -> Json {
    Arc::new(value)
}

fn token() -> Token {
    Token { execution: "parent~each[3]".into(), id: Uuid::from_u128(7) }
}

fn failure() -> TaskError {
    TaskError { details: Some(json_of(json!([1]))), step: Some("a".into()), ..TaskError::last("X", "no") }
}

fn compensated(full: bool) -> Option<CompensationOutcome> {
    full.then_some(CompensationOutcome::Failed)
}

fn unconsumed(full: bool) -> Vec<Unconsumed> {
    let one = || Unconsumed { signal: "go".into(), received: Seq(4) };
    full.then(one).into_iter().collect()
}

/// Every type of event, with all that it can have; and again with as little as it can have.
fn events() -> Vec<Event> {
    let (step, time) = (|| "a".into(), ClusterMs(5));
    let events = |full: bool| {
        vec![
            Event::WorkflowCreated {
                workflow: "W".into(),
                version: "1".into(),
                definition_hash: "sha256:0".into(),
                input: json_of(Value::Null),
                labels: full.then(|| ("team".into(), "x".into())).into_iter().collect(),
                cluster_id: ClusterId(Uuid::nil()),
                run: Run(1),
                parent: full.then(|| Parent {
                    execution_id: "p".into(),
                    step: "a[1]".into(),
                    root: "r".into(),
                    depth: 2,
                }),
                continued: full.then(|| Continued { created_at_ms: ClusterMs(1), sent: Default::default() }),
            },
            Event::WorkflowStarted,
            Event::StepScheduled {
                step: step(),
                attempt: 1,
                input: json_of(json!({})),
                idempotency_key: "k".into(),
                redelivery: full,
            },
            Event::StepSkipped { step: step(), reason: "no".into() },
            Event::StepDispatched {
                step: step(),
                attempt: 1,
                token: token(),
                worker_id: "w".into(),
                worker_session: SessionId(Uuid::nil()),
                deadline_ms: full.then_some(time),
            },
            Event::StepSucceeded { step: step(), attempt: 1, output: json_of(json!(1)), token: full.then(token) },
            Event::StepAttemptFailed { step: step(), attempt: 1, error: failure(), token: full.then(token) },
            Event::StepAttemptUncertain { step: step(), attempt: 1, reason: "silent".into(), token: token() },
            Event::RetryScheduled { step: step(), next_attempt: 2, delay_ms: 1000, fire_at_ms: time },
            Event::StepFailed { step: step(), error: TaskError::retryable("X", "") },
            Event::StepCancelled { step: step() },
            Event::TimerStarted { step: step(), fire_at_ms: time },
            Event::TimerFired { step: step() },
            Event::StaleResultIgnored {
                step: step(),
                token: token(),
                outcome: if full { ResultKind::Succeeded } else { ResultKind::Failed },
            },
            Event::CancelRequested { reason: full.then(|| "because".into()) },
            Event::StepFanOut { step: step(), items: vec![json_of(json!(1))] },
            Event::StepFanIn { step: step() },
            Event::SignalAwaited { step: step(), signal: "go".into(), deadline_ms: full.then_some(time) },
            Event::SignalConsumed { step: step(), signal: "go".into(), received: Seq(3) },
            Event::SignalReceived {
                signal: "go".into(),
                payload: json_of(json!({"by": 1})),
                signal_id: full.then(|| "k".into()),
                carried: full.then_some(Carried { run: Run(1), seq: Seq(4) }),
            },
            Event::ChildScheduled {
                step: step(),
                attempt: 1,
                child: "a~b".into(),
                workflow: "W".into(),
                version: full.then(|| "1".into()),
                input: json_of(json!(1)),
            },
            Event::ChildStarted {
                step: step(),
                attempt: 1,
                child: "a~b".into(),
                version: "1".into(),
                deadline_ms: full.then_some(time),
            },
            Event::ChildCompleted { step: step(), attempt: 1, child: "a~b".into(), output: json_of(json!(1)) },
            Event::ChildFailed { step: step(), attempt: 1, child: "a~b".into(), error: failure() },
            Event::ChildEndRequested { step: step(), child: "a~b".into(), terminate: full, timed_out: !full },
            Event::ContinueSuggested { max: 50_000 },
            Event::WorkflowContinuedAsNew { input: json_of(json!(1)), next_run: Run(2) },
            Event::UpdateAccepted {
                update: "raise".into(),
                payload: json_of(json!(1)),
                update_id: full.then(|| "k".into()),
                result: json_of(json!(null)),
            },
            Event::HandlerStarted { handler: "on_event:go@7".into() },
            Event::HandlerCompleted { handler: "on_failure".into() },
            Event::HandlerFailed { handler: "on_failure".into(), error: failure() },
            Event::TerminateRequested { reason: full.then(|| "stuck".into()) },
            Event::WorkflowTimeoutReached,
            Event::ResultFailed { error: failure() },
            Event::CompensationStarted { reason: AbortReason::TimedOut, steps: vec![step()] },
            Event::CompensationCompleted,
            Event::CompensationFailed { step: step(), error: failure() },
            Event::WorkflowTimedOut { compensation: compensated(full), unconsumed: unconsumed(full) },
            Event::WorkflowTerminated { unconsumed: unconsumed(full) },
            Event::LimitReached { limit: "max_history_events".into(), error: failure(), step: full.then(step) },
            Event::ContractViolated { boundary: "output".into(), error: failure() },
            Event::WorkflowCompleted { output: json_of(json!([])), unconsumed: unconsumed(full) },
            Event::WorkflowFailed { error: failure(), compensation: compensated(full), unconsumed: unconsumed(full) },
            Event::WorkflowCancelled { compensation: compensated(full), unconsumed: unconsumed(full) },
        ]
    };
    [events(true), events(false)].concat()
}

/// Does not compile where a type of event is not among [`events`]: add it there, and to the description.
fn is_known(event: &Event) -> bool {
    match event {
        Event::WorkflowCreated { .. }
        | Event::WorkflowStarted
        | Event::StepScheduled { .. }
        | Event::StepSkipped { .. }
        | Event::StepDispatched { .. }
        | Event::StepSucceeded { .. }
        | Event::StepAttemptFailed { .. }
        | Event::StepAttemptUncertain { .. }
        | Event::RetryScheduled { .. }
        | Event::StepFailed { .. }
        | Event::StepCancelled { .. }
        | Event::TimerStarted { .. }
        | Event::TimerFired { .. }
        | Event::StaleResultIgnored { .. }
        | Event::CancelRequested { .. }
        | Event::LimitReached { .. }
        | Event::ContractViolated { .. }
        | Event::WorkflowCompleted { .. }
        | Event::WorkflowFailed { .. }
        | Event::WorkflowCancelled { .. }
        | Event::StepFanOut { .. }
        | Event::StepFanIn { .. }
        | Event::SignalAwaited { .. }
        | Event::SignalConsumed { .. }
        | Event::SignalReceived { .. }
        | Event::UpdateAccepted { .. }
        | Event::HandlerStarted { .. }
        | Event::HandlerCompleted { .. }
        | Event::HandlerFailed { .. }
        | Event::TerminateRequested { .. }
        | Event::WorkflowTimeoutReached
        | Event::ResultFailed { .. }
        | Event::CompensationStarted { .. }
        | Event::CompensationCompleted
        | Event::CompensationFailed { .. }
        | Event::WorkflowTimedOut { .. }
        | Event::WorkflowTerminated { .. }
        | Event::ChildScheduled { .. }
        | Event::ChildStarted { .. }
        | Event::ChildCompleted { .. }
        | Event::ChildFailed { .. }
        | Event::ChildEndRequested { .. }
        | Event::ContinueSuggested { .. }
        | Event::WorkflowContinuedAsNew { .. } => true,
    }
}

#[test]
fn each_type_of_event_is_described_as_it_is_written() {
    let schema = json!({"$ref": "#/components/schemas/Event"});
    let mut types = BTreeSet::new();
    for event in events() {
        assert!(is_known(&event));
        let recorded = serde_json::to_value(Recorded { seq: Seq(1), at_ms: ClusterMs(2), event }).expect("JSON");
        assert_eq!(problems(&schema, &recorded), [""; 0], "{recorded}");
        types.insert(recorded["type"].as_str().expect("a type").to_owned());
        let mut other = recorded.clone();
        other["stray"] = 1.into();
        assert!(!problems(&schema, &other).is_empty(), "{other}");
    }
    let described = STRICT["components"]["schemas"]["Event"]["oneOf"].as_array().expect("types").len();
    assert_eq!(types.len(), described);
}

fn execution(full: bool) -> ExecutionView {
    ExecutionView {
        item: ExecutionItem {
            execution_id: "a".into(),
            workflow: "W".into(),
            version: "1".into(),
            status: if full { Status::Failed } else { Status::Quarantined },
            created_at_ms: ClusterMs(1),
            updated_at_ms: ClusterMs(2),
            labels: full.then(|| ("team".into(), "".into())).into_iter().collect(),
        },
        run: Run(1),
        parent: full.then(|| ParentView { execution_id: "p".into(), step: "a".into() }),
        input: json_of(json!(null)),
        output: full.then(|| json_of(json!("x"))),
        error: full.then(failure),
        last_seq: Seq(3),
        reason: (!full).then(|| "its history cannot be read".into()),
        cancel_reason: full.then(|| "enough".into()),
        waiting: if full { waiting() } else { vec![] },
    }
}

fn warnings() -> Vec<LocatedProblem> {
    let problem = Problem {
        path: "/input/requird".into(),
        offset: Some(3),
        of_key: false,
        message: "no".into(),
        hint: "yes".into(),
    };
    let placed = LocatedProblem { problem: problem.clone(), location: Some(Location { line: 3, column: 9 }) };
    vec![placed, Problem { offset: None, ..problem }.into()]
}

/// Each reason to wait, with all that it can have and with as little.
fn waiting() -> Vec<Waiting> {
    let attempt = |full: bool| Attempt {
        task_name: "t".into(),
        contract_version: "1".into(),
        attempt: 2,
        max_attempts: 3,
        last_error: full.then(failure),
    };
    let reasons = |full: bool| {
        vec![
            Reason::NoWorker { attempt: attempt(full), other_versions: if full { vec!["2".into()] } else { vec![] } },
            Reason::Queued { attempt: attempt(full), sessions: 1 },
            Reason::Running {
                attempt: attempt(full),
                worker_id: "w".into(),
                deadline_ms: full.then_some(ClusterMs(1)),
                keeper: Keeper {
                    session_id: full.then_some(SessionId(Uuid::nil())),
                    silent_ms: full.then_some(1),
                    offered_again_ms: full.then_some(ClusterMs(1)),
                    registered_again_ms: full.then_some(ClusterMs(1)),
                },
            },
            Reason::Retry { attempt: attempt(full), until_ms: ClusterMs(1) },
            Reason::Sleep { until_ms: ClusterMs(1) },
            Reason::Signal { signal: "go".into(), until_ms: full.then_some(ClusterMs(1)) },
            Reason::Items { items: 3, ended: 1 },
            Reason::Child { execution_id: "a~b".into() },
            Reason::Server,
        ]
    };
    let kinds = [
        WaitingKind::Task,
        WaitingKind::Sleep,
        WaitingKind::Compute,
        WaitingKind::Await,
        WaitingKind::For,
        WaitingKind::Workflow,
        WaitingKind::ContinueAsNew,
    ];
    let units = [None, Some("a[3]".into())];
    let all = reasons(true).into_iter().chain(reasons(false)).zip(kinds.into_iter().cycle());
    let waiting = all
        .zip(units.into_iter().cycle())
        .map(|((reason, kind), unit)| Waiting { step_id: "a".into(), unit, kind, since_ms: ClusterMs(1), reason })
        .collect();
    assert!(reasons(true).iter().all(is_known_reason));
    waiting
}

/// Does not compile where a reason is not among those of [`waiting`]: add it there, and to the description.
fn is_known_reason(reason: &Reason) -> bool {
    match reason {
        Reason::NoWorker { .. }
        | Reason::Queued { .. }
        | Reason::Running { .. }
        | Reason::Retry { .. }
        | Reason::Sleep { .. }
        | Reason::Signal { .. }
        | Reason::Items { .. }
        | Reason::Child { .. }
        | Reason::Server => true,
    }
}

fn workflow(full: bool) -> WorkflowItem {
    WorkflowItem {
        name: "W".into(),
        version: "1".into(),
        definition_hash: "sha256:0".into(),
        description: full.then(|| "about".into()),
        created_at_ms: ClusterMs(1),
        latest: full,
    }
}

fn definition() -> Value {
    json!({"name": "W", "version": "1", "steps": [{"id": "a", "sleep": "1s"}]})
}

fn outcomes() -> Vec<ResultOutcome> {
    let all = [Accepted::Accepted, Accepted::Duplicate, Accepted::Stale, Accepted::Refused];
    let error = |outcome| (outcome == Accepted::Refused).then(|| ApiError::new(ErrorCode::UnknownToken, "who?"));
    all.into_iter().map(|outcome| ResultOutcome { token: token(), outcome, error: error(outcome) }).collect()
}

fn assignment(full: bool) -> Assignment {
    Assignment {
        token: token(),
        execution_id: "parent~each[3]".into(),
        workflow: "W".into(),
        workflow_version: "1".into(),
        step_id: "a".into(),
        task_name: "t".into(),
        contract_version: "1".into(),
        input: json_of(json!({})),
        idempotency_key: "k".into(),
        attempt: 1,
        redelivery: false,
        deadline_ms: full.then_some(ClusterMs(1)),
        timeout_ms: full.then_some(1),
    }
}

/// An answer of each kind, with all that it can have and with as little; and the routes that it may be given on. Does
/// not compile where a kind of answer is new.
fn replies() -> Vec<(Response, &'static [&'static str])> {
    let leader = |full: bool| full.then(|| Leader { node_id: "n".into(), addr: Some("http://x".into()) });
    let mut all = Vec::new();
    for full in [true, false] {
        let contract = orbit_core::api::request::Contract { task_name: "t".into(), contract_version: "1".into() };
        let session = SessionView {
            session_id: SessionId(Uuid::nil()),
            registered_ms: ClusterMs(1),
            last_seen_ms: ClusterMs(2),
            holding: 1,
        };
        let worker = WorkerView {
            worker_id: "w".into(),
            runtime: "rust".into(),
            sdk: full.then(|| "x".into()),
            contracts: vec![contract],
            last_seen_ms: ClusterMs(1),
            sessions: 1,
            holding: 0,
            open_sessions: if full { vec![session] } else { vec![] },
        };
        let health = Health {
            status: "ok".into(),
            api_version: "orbit-api/1".into(),
            runtime_version: "1".into(),
            ir_versions: vec!["orbit-def/1".into()],
            active_executions: 1,
            worker_sessions: 1,
            role: "standby".into(),
            node_id: full.then(|| "n".into()),
            term: full.then_some(Term(1)),
            leader: leader(full),
        };
        let ready = Ready {
            role: "single".into(),
            node_id: full.then(|| "n".into()),
            term: full.then_some(Term(1)),
            leader: leader(full),
            ready: full,
            reason: (!full).then(|| "starting".into()),
        };
        let deployed = Deployed {
            name: "W".into(),
            version: "1".into(),
            definition_hash: "sha256:0".into(),
            result: if full { "created" } else { "unchanged" }.into(),
            warnings: if full { warnings() } else { vec![] },
        };
        let started = Started {
            execution_id: "a".into(),
            status: Status::Running,
            created: full,
            workflow: "W".into(),
            version: "1".into(),
        };
        let page = Executions { executions: vec![execution(full).item], next_cursor: full.then(|| "1.a".into()) };
        let recorded = |event| Recorded { seq: Seq(1), at_ms: ClusterMs(1), event };
        let history = History {
            execution_id: "a".into(),
            run: Run(2),
            events: events().into_iter().map(recorded).collect(),
            more: full,
        };
        let polled = Polled {
            tasks: vec![assignment(full)],
            cancel: vec![token()],
            outcomes: if full { outcomes() } else { vec![] },
        };
        let registered =
            Registered { session_id: SessionId(Uuid::nil()), heartbeat_interval_ms: 1, session_timeout_ms: 2 };
        let view = WorkflowView { item: workflow(full), definition: definition() };
        all.extend([
            Reply::Deployed(deployed),
            Reply::Workflows(Workflows { workflows: vec![workflow(full)] }),
            Reply::Workflow(view),
            Reply::Started(started),
            Reply::Executions(page),
            Reply::Execution(execution(full)),
            Reply::Cancelled(execution(full)),
            Reply::Terminated(execution(full)),
            Reply::Signalled(Signalled { seq: Seq(3) }),
            Reply::Updated(Updated { seq: Seq(3), result: json_of(json!(full)) }),
            Reply::Queried(Queried { result: json_of(json!(full.then_some([1]))) }),
            Reply::History(history),
            Reply::Registered(registered),
            Reply::Polled(polled),
            Reply::Heartbeat(Cancels { cancel: vec![token()] }),
            Reply::Unregistered,
            Reply::Reported(outcomes()),
            Reply::ReportedOne(outcomes().remove(0)),
            Reply::Workers(Workers { workers: vec![worker] }),
            Reply::Health(health),
            Reply::Ready(ready),
        ]);
    }
    let routed = |reply: Reply| {
        let routes: &[&str] = match &reply {
            Reply::Deployed(_) => &["POST /v1/workflows"],
            Reply::Workflows(_) => &["GET /v1/workflows"],
            Reply::Workflow(_) => &["GET /v1/workflows/W", "GET /v1/workflows/W/versions/1"],
            Reply::Started(_) => &["POST /v1/executions"],
            Reply::Executions(_) => &["GET /v1/executions"],
            Reply::Execution(_) => &["GET /v1/executions/a", "GET /v1/executions/a/wait"],
            Reply::Cancelled(_) => &["POST /v1/executions/a/cancel"],
            Reply::Terminated(_) => &["POST /v1/executions/a/terminate"],
            Reply::Signalled(_) => &["POST /v1/executions/a/signals/go"],
            Reply::Updated(_) => &["POST /v1/executions/a/updates/raise"],
            Reply::Queried(_) => &["GET /v1/executions/a/queries/state"],
            Reply::History(_) => &["GET /v1/executions/a/history"],
            Reply::Registered(_) => &["POST /v1/workers/register"],
            Reply::Polled(_) => &["POST /v1/workers/poll"],
            Reply::Heartbeat(_) => &["POST /v1/workers/heartbeat"],
            Reply::Unregistered => &["POST /v1/workers/unregister"],
            Reply::Reported(_) | Reply::ReportedOne(_) => &["POST /v1/tasks/complete", "POST /v1/tasks/fail"],
            Reply::Workers(_) => &["GET /v1/workers"],
            Reply::Health(_) => &["GET /v1/health"],
            Reply::Ready(_) => &["GET /v1/ready"],
            // Not JSON, and errors: tests of their own.
            Reply::Probe { .. } | Reply::Metrics(_) | Reply::Error(_) => &[],
        };
        let created = match &reply {
            Reply::Deployed(deployed) => deployed.result == "created",
            Reply::Started(started) => started.created,
            _ => false,
        };
        let status = match &reply {
            Reply::Ready(ready) if !ready.ready => 503,
            _ if created => 201,
            _ => 200,
        };
        (Response { status, retry_after: None, reply }, routes)
    };
    all.into_iter().map(routed).collect()
}

#[test]
fn each_answer_is_described_as_it_is_written() {
    let mut reached: BTreeMap<&str, BTreeSet<u16>> = BTreeMap::new();
    for (answer, routes) in replies() {
        let rendered = respond::render(&answer, "r-1", metrics::Process::default);
        let body: Value = serde_json::from_slice(&rendered.body).expect("JSON");
        for route in routes {
            let (method, path) = route.split_once(' ').expect("method and path");
            assert_eq!(problem(method, path, answer.status, &body), None, "{route}: {body}");
            // Something else is not described.
            let mut other = body.clone();
            other["stray"] = 1.into();
            assert!(problem(method, path, answer.status, &other).is_some(), "{route}: {other}");
            reached.entry(template(path).expect("a route")).or_default().insert(answer.status);
        }
    }
    for (_, path, operation) in operations() {
        let described = operation["responses"].as_object().expect("an object").keys();
        let described = described.map(|status| status.parse::<u16>().expect("a status"));
        let json = |status: &u16| {
            let content = &response(operation, *status).expect("it is there")["content"];
            content.get("application/json").is_some()
        };
        for status in described.filter(|status| *status < 300).filter(json).filter(|_| path != "/v1/openapi.json") {
            assert!(reached.get(path).is_some_and(|statuses| statuses.contains(&status)), "{path} {status}");
        }
    }
}

#[test]
fn each_error_is_described_as_it_is_written() {
    for (method, path, operation) in operations() {
        let path = path.replace(['{', '}'], "");
        for code in ErrorCode::ALL {
            let described = codes(operation, code.status()).contains(code);
            let error = ApiError::new(*code, "no").with("path", "a");
            let rendered = respond::render(&error.into(), "r-1", metrics::Process::default);
            let body: Value = serde_json::from_slice(&rendered.body).expect("JSON");
            let problem = problem(method, &path, code.status(), &body);
            // 405 is said of every route at once.
            assert_eq!(problem.is_none(), described || code.status() == 405, "{method} {path} {code:?}: {problem:?}");
        }
    }
}

proptest! {
    #[test]
    fn an_id_in_a_path_matches_where_it_is_taken(id in "([A-Za-z0-9._:@+~\\[\\]-]{1,30}|[ -~]{0,12}|a{250,260}|~a{1020,1024})") {
        let encoded: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let taken = Resource::find(&format!("/v1/executions/{encoded}")).is_ok();
        let schema = json!({"$ref": "#/components/schemas/ExecutionId"});
        prop_assert_eq!(problems(&schema, &json!(id)).is_empty(), taken, "{}", id);
    }
}
