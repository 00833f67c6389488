//! Every route once, from bytes to the node and back.

use super::support::{SESSION, Says, Server, fine, one_task, poll, quick, session, token};
use orbit_core::api::request::{ListExecutions, Message, Poll, Register, ReportForm, Start, TaskOutcome, TaskResult};
use orbit_core::api::response::{
    Accepted, Cancels, Deployed, ExecutionItem, ExecutionView, Executions, Health, History, LatencyView, Metrics,
    NodeView, Nodes, Queried, QueueView, Ready, Registered, Reply, ResultOutcome, Signalled, Started, SteppedDown,
    Updated, WorkerView, Workers, WorkflowItem, WorkflowView, Workflows,
};
use orbit_core::api::{ApiError, ErrorCode, Request, Response};
use orbit_core::execution::event::{Event, Labels, Recorded, TaskError};
use orbit_core::id::{Run, Seq, Term};
use orbit_core::node::counters::Counters;
use orbit_core::store::append::Status;
use orbit_core::time::ClusterMs;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// One exchange: what is sent, what the node is asked, what it says, what comes back.
struct Exchange {
    method: &'static str,
    target: &'static str,
    body: Value,
    request: Request,
    response: Response,
    status: u16,
    answer: Value,
}

fn item() -> ExecutionItem {
    ExecutionItem {
        execution_id: "order-1".into(),
        workflow: "OrderProcessing".into(),
        version: "1.0.0".into(),
        status: Status::Running,
        run: Run(1),
        created_at_ms: ClusterMs(5),
        updated_at_ms: ClusterMs(6),
        labels: Labels::new(),
    }
}

fn view() -> ExecutionView {
    ExecutionView {
        item: item(),
        parent: None,
        input: Arc::new(json!(1)),
        output: None,
        error: None,
        last_seq: Seq(2),
        reason: None,
        cancel_reason: None,
        waiting: vec![],
    }
}

fn view_json() -> Value {
    json!({"execution_id": "order-1", "workflow": "OrderProcessing", "version": "1.0.0", "status": "running",
        "created_at_ms": 5, "updated_at_ms": 6, "run": 1, "input": 1, "last_seq": 2})
}

fn definition() -> Value {
    json!({"name": "OrderProcessing", "version": "1.0.0", "steps": [{"id": "wait", "sleep": "1s"}]})
}

fn workflow() -> (WorkflowItem, Value) {
    let item = WorkflowItem {
        name: "OrderProcessing".into(),
        version: "1.0.0".into(),
        definition_hash: "sha256:00".into(),
        description: None,
        created_at_ms: ClusterMs(5),
        latest: true,
    };
    let json = json!({"name": "OrderProcessing", "version": "1.0.0", "definition_hash": "sha256:00",
        "created_at_ms": 5, "latest": true});
    (item, json)
}

fn accepted() -> (ResultOutcome, Value) {
    let outcome = ResultOutcome { token: token("order-1"), outcome: Accepted::Accepted, error: None };
    (outcome, json!({"token": token("order-1").to_string(), "outcome": "accepted"}))
}

fn report(outcome: TaskOutcome, form: ReportForm) -> Request {
    Request::Report { session: session(), results: vec![TaskResult { token: token("order-1"), outcome }], form }
}

fn about_workflows() -> Vec<Exchange> {
    let (item, item_json) = workflow();
    let deployed = Deployed {
        name: item.name.clone(),
        version: item.version.clone(),
        definition_hash: item.definition_hash.clone(),
        result: "created".into(),
        warnings: vec![],
    };
    let mut shown = item_json.clone();
    shown["definition"] = definition();
    let shown_reply = || Response::ok(Reply::Workflow(WorkflowView { item: workflow().0, definition: definition() }));
    vec![
        Exchange {
            method: "POST",
            target: "/v1/workflows",
            body: definition(),
            request: Request::deploy(definition()),
            response: Response::created(Reply::Deployed(deployed)),
            status: 201,
            answer: json!({"name": "OrderProcessing", "version": "1.0.0", "definition_hash": "sha256:00",
                "result": "created"}),
        },
        Exchange {
            method: "GET",
            target: "/v1/workflows",
            body: Value::Null,
            request: Request::ListWorkflows,
            response: Response::ok(Reply::Workflows(Workflows { workflows: vec![item] })),
            status: 200,
            answer: json!({"workflows": [item_json]}),
        },
        Exchange {
            method: "GET",
            target: "/v1/workflows/OrderProcessing",
            body: Value::Null,
            request: Request::GetWorkflow { name: "OrderProcessing".into(), version: None },
            response: shown_reply(),
            status: 200,
            answer: shown.clone(),
        },
        Exchange {
            method: "GET",
            target: "/v1/workflows/OrderProcessing/versions/1.0.0",
            body: Value::Null,
            request: Request::GetWorkflow { name: "OrderProcessing".into(), version: Some("1.0.0".into()) },
            response: shown_reply(),
            status: 200,
            answer: shown,
        },
    ]
}

fn about_executions() -> Vec<Exchange> {
    let start = Start {
        workflow: "OrderProcessing".into(),
        version: None,
        execution_id: Some("order-1".into()),
        input: Arc::new(json!(1)),
        labels: Labels::new(),
    };
    let started = Started {
        execution_id: "order-1".into(),
        status: Status::Running,
        created: true,
        workflow: "OrderProcessing".into(),
        version: "1.0.0".into(),
    };
    let list = ListExecutions {
        status: Some(Status::Running),
        workflow: None,
        labels: Labels::new(),
        since: None,
        limit: 10,
        cursor: None,
    };
    let event = Recorded { seq: Seq(2), at_ms: ClusterMs(6), event: Event::WorkflowStarted };
    vec![
        Exchange {
            method: "POST",
            target: "/v1/executions",
            body: json!({"workflow": "OrderProcessing", "execution_id": "order-1", "input": 1}),
            request: Request::Start(start),
            response: Response::created(Reply::Started(started)),
            status: 201,
            answer: json!({"execution_id": "order-1", "status": "running", "created": true,
                "workflow": "OrderProcessing", "version": "1.0.0"}),
        },
        Exchange {
            method: "GET",
            target: "/v1/executions?status=running&limit=10",
            body: Value::Null,
            request: Request::ListExecutions(list),
            response: Response::ok(Reply::Executions(Executions {
                executions: vec![item()],
                next_cursor: Some("5.order-1".into()),
            })),
            status: 200,
            answer: json!({"executions": [{"execution_id": "order-1", "workflow": "OrderProcessing",
                "version": "1.0.0", "status": "running", "run": 1, "created_at_ms": 5, "updated_at_ms": 6}],
                "next_cursor": "5.order-1"}),
        },
        Exchange {
            method: "GET",
            target: "/v1/executions/order-1",
            body: Value::Null,
            request: Request::GetExecution("order-1".into()),
            response: Response::ok(Reply::Execution(view())),
            status: 200,
            answer: view_json(),
        },
        Exchange {
            method: "GET",
            target: "/v1/executions/order-1/history?after_seq=1&limit=5&max_bytes=4096",
            body: Value::Null,
            request: Request::GetHistory {
                execution: "order-1".into(),
                run: None,
                after: Seq(1),
                limit: 5,
                max_bytes: 4096,
            },
            response: Response::ok(Reply::History(History {
                execution_id: "order-1".into(),
                run: Run(1),
                events: vec![event],
                more: false,
            })),
            status: 200,
            answer: json!({"execution_id": "order-1", "run": 1, "more": false,
                "events": [{"seq": 2, "at_ms": 6, "type": "WorkflowStarted"}]}),
        },
        Exchange {
            method: "GET",
            target: "/v1/executions/order-1/wait?timeout_ms=1500",
            body: Value::Null,
            request: Request::Wait { execution: "order-1".into(), timeout: Duration::from_millis(1500) },
            response: Response::ok(Reply::Execution(view())),
            status: 200,
            answer: view_json(),
        },
        Exchange {
            method: "POST",
            target: "/v1/executions/order-1/cancel",
            body: json!({"reason": "changed my mind"}),
            request: Request::Cancel { execution: "order-1".into(), reason: Some("changed my mind".into()) },
            response: Response::ok(Reply::Cancelled(view())),
            status: 200,
            answer: view_json(),
        },
        Exchange {
            method: "POST",
            target: "/v1/executions/order-1/terminate",
            body: json!({"reason": "it hangs"}),
            request: Request::Terminate { execution: "order-1".into(), reason: Some("it hangs".into()) },
            response: Response::ok(Reply::Terminated(view())),
            status: 200,
            answer: view_json(),
        },
        Exchange {
            method: "POST",
            target: "/v1/executions/order-1/recover",
            body: json!({"reason": "looked at"}),
            request: Request::Recover { execution: "order-1".into(), reason: Some("looked at".into()) },
            response: Response::ok(Reply::Recovered(view())),
            status: 200,
            answer: view_json(),
        },
        Exchange {
            method: "POST",
            target: "/v1/executions/order-1/release",
            body: json!({}),
            request: Request::Release { execution: "order-1".into() },
            response: Response::ok(Reply::Released(view())),
            status: 200,
            answer: view_json(),
        },
        Exchange {
            method: "POST",
            target: "/v1/executions/order-1/signals/paid",
            body: json!({"payload": {"by": "card"}, "signal_id": "p-1"}),
            request: Request::Signal {
                execution: "order-1".into(),
                signal: message("paid", json!({"by": "card"}), "p-1"),
            },
            response: Response::ok(Reply::Signalled(Signalled { seq: Seq(6), run: Run(2) })),
            status: 200,
            answer: json!({"seq": 6, "run": 2}),
        },
        Exchange {
            method: "POST",
            target: "/v1/executions/order-1/updates/raise%20it",
            body: json!({"payload": 3, "update_id": "r-1"}),
            request: Request::Update { execution: "order-1".into(), update: message("raise it", json!(3), "r-1") },
            response: Response::ok(Reply::Updated(Updated { seq: Seq(7), run: Run(1), result: Arc::new(json!([3])) })),
            status: 200,
            answer: json!({"seq": 7, "run": 1, "result": [3]}),
        },
        Exchange {
            method: "GET",
            target: "/v1/executions/order-1/queries/state",
            body: Value::Null,
            request: Request::Query { execution: "order-1".into(), name: "state".into() },
            response: Response::ok(Reply::Queried(Queried { result: Arc::new(json!({"paid": null})) })),
            status: 200,
            answer: json!({"result": {"paid": null}}),
        },
    ]
}

fn message(name: &str, payload: Value, key: &str) -> Message {
    Message { name: name.into(), payload: Arc::new(payload), key: Some(key.into()) }
}

fn about_workers() -> Vec<Exchange> {
    let contract = json!({"task_name": "payments.charge", "contract_version": "1"});
    let register = Register {
        worker_id: "w-1".into(),
        runtime: "rust".into(),
        sdk: None,
        contracts: vec![serde_json::from_value(contract.clone()).unwrap()],
    };
    let worker = WorkerView {
        worker_id: "w-1".into(),
        runtime: "rust".into(),
        sdk: None,
        contracts: register.contracts.clone(),
        last_seen_ms: ClusterMs(9),
        sessions: 1,
        holding: 2,
        open_sessions: vec![],
    };
    let token = token("order-1").to_string();
    vec![
        Exchange {
            method: "POST",
            target: "/v1/workers/register",
            body: json!({"worker_id": "w-1", "runtime": "rust", "contracts": [contract]}),
            request: Request::Register(register),
            response: Response::ok(Reply::Registered(Registered {
                session_id: session(),
                heartbeat_interval_ms: 5000,
                session_timeout_ms: 30_000,
            })),
            status: 200,
            answer: json!({"session_id": SESSION, "heartbeat_interval_ms": 5000, "session_timeout_ms": 30_000}),
        },
        Exchange {
            method: "POST",
            target: "/v1/workers/poll",
            body: poll(),
            request: Request::Poll(Poll {
                session: session(),
                max_tasks: 1,
                wait: Duration::from_secs(60),
                holding: None,
                results: vec![],
            }),
            response: one_task(3),
            status: 200,
            answer: json!({"cancel": [], "tasks": [{"token": token, "execution_id": "order-1",
                "workflow": "OrderProcessing", "workflow_version": "1.0.0", "step_id": "charge",
                "task_name": "payments.charge", "contract_version": "1", "input": "xxx",
                "idempotency_key": "c/order-1/1/charge", "attempt": 1, "redelivery": false, "timeout_ms": 30_000}]}),
        },
        Exchange {
            method: "POST",
            target: "/v1/workers/heartbeat",
            body: json!({"session_id": SESSION, "holding": [token]}),
            request: Request::Heartbeat { session: session(), holding: Some(vec![super::support::token("order-1")]) },
            response: Response::ok(Reply::Heartbeat(Cancels { cancel: vec![super::support::token("order-1")] })),
            status: 200,
            answer: json!({"cancel": [token]}),
        },
        Exchange {
            method: "POST",
            target: "/v1/workers/unregister",
            body: json!({"session_id": SESSION}),
            request: Request::Unregister { session: session() },
            response: Response::ok(Reply::Unregistered),
            status: 200,
            answer: json!({}),
        },
        Exchange {
            method: "GET",
            target: "/v1/workers",
            body: Value::Null,
            request: Request::ListWorkers,
            response: Response::ok(Reply::Workers(Workers { workers: vec![worker] })),
            status: 200,
            answer: json!({"workers": [{"worker_id": "w-1", "runtime": "rust", "contracts": [contract],
                "last_seen_ms": 9, "sessions": 1, "holding": 2}]}),
        },
    ]
}

fn about_tasks() -> Vec<Exchange> {
    let token = token("order-1").to_string();
    let (outcome, outcome_json) = accepted();
    let error = TaskError { code: "E".into(), message: String::new(), retryable: true, details: None, step: None };
    let done = || TaskOutcome::Succeeded(Arc::new(json!(1)));
    vec![
        Exchange {
            method: "POST",
            target: "/v1/tasks/complete",
            body: json!({"session_id": SESSION, "token": token, "output": 1}),
            request: report(done(), ReportForm::Single),
            response: Response::ok(Reply::ReportedOne(outcome.clone())),
            status: 200,
            answer: outcome_json.clone(),
        },
        Exchange {
            method: "POST",
            target: "/v1/tasks/fail",
            body: json!({"session_id": SESSION, "token": token, "error": {"code": "E"}}),
            request: report(TaskOutcome::Failed(error), ReportForm::Single),
            response: ApiError::new(ErrorCode::UnknownToken, "who?").into(),
            status: 404,
            answer: Value::Null,
        },
        Exchange {
            method: "POST",
            target: "/v1/tasks/complete",
            body: json!({"session_id": SESSION, "results": [{"token": token, "output": 1}]}),
            request: report(done(), ReportForm::Batch),
            response: Response::ok(Reply::Reported(vec![outcome])),
            status: 200,
            answer: json!({"outcomes": [outcome_json]}),
        },
    ]
}

fn node() -> NodeView {
    NodeView {
        node_id: "a".into(),
        addr: None,
        role: "leader".into(),
        live: true,
        heartbeat_age_ms: Some(5),
        term: Term(4),
        version: "0.1.0".into(),
        host: "h".into(),
        pid: 7,
        clock_offset_ms: -1,
        config_digest: "00".into(),
        started_ms: ClusterMs(9),
    }
}

/// Figures of a node.
pub fn metrics() -> Metrics {
    Metrics {
        counters: Counters { executions_started: 7, ..Counters::default() },
        active_executions: 3,
        held_executions: 0,
        resident_executions: 3,
        worker_sessions: 2,
        open_attempts: 1,
        waiting_polls: 1,
        queue: QueueView { tasks: 1, oldest_ms: 5, by_task: vec![("a".into(), 1)] },
        ready: true,
        term: Term(4),
        leads: true,
        appends: LatencyView { buckets: vec![(1_000, 2)], count: 3, sum_us: 4_500 },
        last_append_ms: Some(1),
        clock_offset_ms: Some(2),
    }
}

fn about_the_server() -> Vec<Exchange> {
    let health = Health {
        status: "ok".into(),
        api_version: "orbit-api/1".into(),
        runtime_version: "0.1.0".into(),
        ir_versions: vec!["orbit-def/1".into()],
        active_executions: 3,
        held_executions: 0,
        worker_sessions: 2,
        role: "single".into(),
        node_id: None,
        term: Some(Term(4)),
        leader: None,
    };
    let ready = Ready {
        role: "single".into(),
        node_id: None,
        term: None,
        leader: None,
        ready: false,
        reason: Some("recovering".into()),
    };
    let probe = |target, request, ok| Exchange {
        method: "GET",
        target,
        body: Value::Null,
        request,
        response: Response { status: if ok { 200 } else { 503 }, retry_after: None, reply: Reply::Probe { ok } },
        status: if ok { 200 } else { 503 },
        answer: Value::String(if ok { "ok\n".into() } else { "not ready\n".into() }),
    };
    vec![
        Exchange {
            method: "GET",
            target: "/v1/health",
            body: Value::Null,
            request: Request::Health,
            response: Response::ok(Reply::Health(health)),
            status: 200,
            answer: json!({"status": "ok", "api_version": "orbit-api/1", "runtime_version": "0.1.0",
                "ir_versions": ["orbit-def/1"], "active_executions": 3, "held_executions": 0, "worker_sessions": 2, "role": "single",
                "node_id": null, "term": 4, "leader": null}),
        },
        Exchange {
            method: "GET",
            target: "/v1/ready",
            body: Value::Null,
            request: Request::Ready,
            response: Response { status: 503, retry_after: None, reply: Reply::Ready(ready) },
            status: 503,
            answer: json!({"role": "single", "node_id": null, "term": null, "leader": null, "ready": false,
                "reason": "recovering"}),
        },
        Exchange {
            method: "GET",
            target: "/v1/nodes",
            body: Value::Null,
            request: Request::ListNodes,
            response: Response::ok(Reply::Nodes(Nodes { nodes: vec![node()] })),
            status: 200,
            answer: json!({"nodes": [{"node_id": "a", "addr": null, "role": "leader", "live": true,
                "heartbeat_age_ms": 5, "term": 4, "version": "0.1.0", "host": "h", "pid": 7, "clock_offset_ms": -1,
                "config_digest": "00", "started_ms": 9}]}),
        },
        Exchange {
            method: "POST",
            target: "/v1/cluster/step-down",
            body: json!({"term": 4}),
            request: Request::StepDown { term: Some(Term(4)) },
            response: Response::ok(Reply::SteppedDown(SteppedDown { term: Term(4), leader: None })),
            status: 200,
            answer: json!({"term": 4, "leader": null}),
        },
        Exchange {
            method: "GET",
            target: "/v1/metrics",
            body: Value::Null,
            request: Request::Metrics,
            response: Response::ok(Reply::Metrics(Box::new(metrics()))),
            status: 200,
            answer: Value::Null,
        },
        probe("/livez", Request::Livez, true),
        probe("/readyz", Request::Readyz, true),
        probe("/leaderz", Request::Leaderz, false),
    ]
}

#[tokio::test]
async fn every_route_leads_to_the_node_and_back() {
    let exchanges = [about_workflows(), about_executions(), about_workers(), about_tasks(), about_the_server()];
    let exchanges: Vec<Exchange> = exchanges.into_iter().flatten().collect();
    let mut responses: Vec<Response> = exchanges.iter().map(|exchange| exchange.response.clone()).collect();
    responses.reverse();
    let mut server =
        Server::start(quick(), move |_| Says::Answer(responses.pop().expect("one response for each request")));
    // All on one connection, which is reused.
    let mut client = server.connect().await;
    for Exchange { method, target, body, request, status, answer: expected, .. } in exchanges {
        let answer = match method {
            "GET" => client.get(target).await,
            _ => client.post(target, &body).await,
        };
        assert_eq!(answer.status, status, "{target}: {answer:?}");
        assert_eq!(server.next_request().await.1, request, "{target}");
        assert!(answer.header("x-request-id").is_some(), "{target}");
        match expected {
            Value::Null => {}
            Value::String(text) => {
                assert_eq!(String::from_utf8(answer.body).unwrap(), text, "{target}");
            }
            expected => {
                assert_eq!(answer.header("content-type"), Some("application/json"), "{target}");
                assert_eq!(answer.json(), expected, "{target}");
            }
        }
    }
}

#[tokio::test]
async fn an_error_of_the_node_carries_the_id_that_the_header_names() {
    let error = ApiError::new(ErrorCode::ResourceExhausted, "full");
    let mut server = Server::start(quick(), move |_| Says::Answer(error.clone().into()));
    let mut client = server.connect().await;
    let answer = client.get("/v1/executions/a").await;
    assert_eq!(answer.error(), (429, "RESOURCE_EXHAUSTED".into(), String::new()));
    assert_eq!(answer.header("retry-after"), Some("1"));
    let id = answer.header("x-request-id").unwrap();
    assert_eq!(answer.json()["error"]["request_id"], *id);
    assert!(id.ends_with(&format!("-{}", server.next_request().await.0)), "{id} names the node's request");
}

#[tokio::test]
async fn results_that_the_front_refused_are_among_the_outcomes() {
    let (outcome, outcome_json) = accepted();
    let mut server =
        Server::start(quick(), move |_| Says::Answer(Response::ok(Reply::Reported(vec![outcome.clone()]))));
    let mut client = server.connect().await;
    let (large, small) = (token("large").to_string(), token("order-1").to_string());
    let body = json!({"session_id": SESSION, "results": [
        {"token": large, "output": "x".repeat(1 << 20)}, {"token": small, "output": 1}]});
    let answer = client.post("/v1/tasks/complete", &body).await.json();
    assert_eq!(answer["outcomes"][1], outcome_json);
    assert_eq!(answer["outcomes"][0]["token"], large);
    assert_eq!(answer["outcomes"][0]["outcome"], "refused");
    assert_eq!(answer["outcomes"][0]["error"]["code"], "PAYLOAD_TOO_LARGE");
    let done = TaskOutcome::Succeeded(Arc::new(json!(1)));
    assert_eq!(server.next_request().await.1, report(done, ReportForm::Batch));
}

#[tokio::test]
async fn a_definition_comes_as_yaml_too() {
    let deployed = about_workflows().swap_remove(0).response;
    let mut server = Server::start(quick(), move |_| Says::Answer(deployed.clone()));
    let mut client = server.connect().await;
    let yaml = b"name: OrderProcessing\nversion: 1.0.0\nsteps: [{id: wait, sleep: 1s}]\n";
    client.send(super::support::post("/v1/workflows", "application/yaml", yaml)).await;
    assert_eq!(client.answer().await.status, 201);
    assert_eq!(server.next_request().await.1, Request::deploy(definition()));
}

#[tokio::test]
async fn a_head_is_a_get_without_a_body() {
    let server = Server::start(quick(), fine);
    let mut client = server.connect().await;
    client.send("HEAD /livez HTTP/1.1\r\nhost: x\r\n\r\n").await;
    let answer = client.head_of_answer().await;
    assert_eq!((answer.status, answer.header("content-length")), (200, Some("3")));
    // Nothing of a body is in the way of the next answer.
    assert_eq!(client.get("/livez").await.body, b"ok\n");
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let server = Server::start(quick(), fine);
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/zebra").await.error(), (404, "NOT_FOUND".into(), String::new()));
    let answer = client.post("/v1/health", &json!({})).await;
    assert_eq!(answer.error(), (405, "METHOD_NOT_ALLOWED".into(), String::new()));
    assert_eq!(answer.header("allow"), Some("GET, HEAD"));
    assert!(answer.header("x-request-id").is_some());
    assert_eq!(answer.json()["error"]["request_id"], *answer.header("x-request-id").unwrap());
    assert_eq!(server.stopped().await, [], "nothing of it reaches the node");
}
