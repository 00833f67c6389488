//! Each answer and each error is described as it is written.

use crate::api::{codes, problem, response, template};
use crate::events::{events, failure, json_of, token};
use crate::operations;
use orbit_core::api::response::{
    Accepted, Assignment, Cancels, Deployed, ExecutionItem, ExecutionView, Executions, Health, History, Leader,
    NodeView, Nodes, ParentView, Polled, Queried, Ready, Registered, Reply, ResultOutcome, SessionView, Signalled,
    Started, SteppedDown, Updated, WorkerView, Workers, WorkflowItem, WorkflowView, Workflows,
};
use orbit_core::api::{ApiError, ErrorCode, Response};
use orbit_core::definition::{LocatedProblem, Location, Problem};
use orbit_core::execution::event::Recorded;
use orbit_core::execution::waiting::{Attempt, Keeper, Reason, Waiting, WaitingKind};
use orbit_core::id::{Run, Seq, SessionId, Term};
use orbit_core::store::append::Status;
use orbit_core::time::ClusterMs;
use orbit_io::http::{metrics, respond};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

fn execution(full: bool) -> ExecutionView {
    ExecutionView {
        item: ExecutionItem {
            execution_id: "a".into(),
            workflow: "W".into(),
            version: "1".into(),
            status: if full { Status::Failed } else { Status::Quarantined },
            run: Run(1),
            created_at_ms: ClusterMs(1),
            updated_at_ms: ClusterMs(2),
            labels: full.then(|| ("team".into(), "".into())).into_iter().collect(),
        },
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
            Reason::Update { update: "go".into(), until_ms: full.then_some(ClusterMs(1)) },
            Reason::Items { items: 3, ended: 1 },
            Reason::Child { execution_id: "a~b".into() },
            Reason::Held,
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
        | Reason::Update { .. }
        | Reason::Items { .. }
        | Reason::Child { .. }
        | Reason::Held
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

fn node(full: bool) -> NodeView {
    NodeView {
        node_id: "orbit-0".into(),
        addr: full.then(|| "http://orbit-0:7233".into()),
        role: if full { "leader".into() } else { "standby".into() },
        live: full,
        heartbeat_age_ms: full.then_some(4),
        term: Term(7),
        version: "0.1.0".into(),
        host: "h".into(),
        pid: 1,
        clock_offset_ms: -4,
        config_digest: "5f2ab01c".into(),
        started_ms: ClusterMs(5),
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
            held_executions: 0,
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
            Reply::Recovered(execution(full)),
            Reply::Released(execution(full)),
            Reply::Signalled(Signalled { seq: Seq(3), run: Run(2) }),
            Reply::Updated(Updated { seq: Seq(3), run: Run(2), result: json_of(json!(full)) }),
            Reply::Queried(Queried { result: json_of(json!(full.then_some([1]))) }),
            Reply::History(history),
            Reply::Registered(registered),
            Reply::Polled(polled),
            Reply::Heartbeat(Cancels { cancel: vec![token()] }),
            Reply::Unregistered,
            Reply::Reported(outcomes()),
            Reply::ReportedOne(outcomes().remove(0)),
            Reply::Workers(Workers { workers: vec![worker] }),
            Reply::Nodes(Nodes { nodes: vec![node(full)] }),
            Reply::SteppedDown(SteppedDown { term: Term(7), leader: leader(full) }),
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
            Reply::Recovered(_) => &["POST /v1/executions/a/recover"],
            Reply::Released(_) => &["POST /v1/executions/a/release"],
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
            Reply::Nodes(_) => &["GET /v1/nodes"],
            Reply::SteppedDown(_) => &["POST /v1/cluster/step-down"],
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
