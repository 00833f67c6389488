//! The real node on the real store, without HTTP: what the driver promises to the fronts.

use orbit_core::api::request::{Contract, Poll, Register, Start, TaskOutcome, TaskResult};
use orbit_core::api::response::{Assignment, Executions};
use orbit_core::api::{Reply, Request, Response};
use orbit_core::id::{ExecutionId, Seq, SessionId};
use orbit_core::node::NodeConfig;
use orbit_core::store::append::Status;
use orbit_io::driver::{Driver, DriverTask, NodeHandle, Unavailable};
use orbit_io::sqlite::{SqliteStore, peek};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tempfile::tempdir;

struct Server {
    node: NodeHandle,
    driver: DriverTask,
}

impl Server {
    async fn start(path: &Path) -> Server {
        let store = SqliteStore::open(path).unwrap();
        let (node, driver) = Driver::start(NodeConfig::new("node-a".into()), store.attach(), 64);
        let server = Server { node, driver };
        while server.ask(Request::Ready).await.status != 200 {
            tokio::task::yield_now().await;
        }
        server
    }

    async fn ask(&self, request: Request) -> Response {
        self.node.submit(request).unwrap().await.unwrap()
    }

    async fn deploy(&self, document: Value) {
        let answer = self.ask(Request::deploy(document)).await;
        assert!(matches!(answer.reply, Reply::Deployed(_)), "{answer:?}");
    }

    async fn begin(&self, workflow: &str, id: &str) {
        let start = Start {
            workflow: workflow.into(),
            version: None,
            execution_id: Some(id.into()),
            input: Arc::new(json!({"n": 20})),
            labels: Default::default(),
        };
        let answer = self.ask(Request::Start(start)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    async fn result(&self, id: &str) -> (Status, Option<Value>) {
        let wait = Request::Wait { execution: id.into(), timeout: Duration::from_secs(20) };
        match self.ask(wait).await.reply {
            Reply::Execution(view) => (view.item.status, view.output.map(|output| (*output).clone())),
            other => panic!("{other:?}"),
        }
    }

    async fn register(&self, task: &str) -> SessionId {
        let register = Register {
            worker_id: "worker-a".into(),
            runtime: "rust".into(),
            sdk: None,
            contracts: vec![Contract { task_name: task.into(), contract_version: "1".into() }],
        };
        match self.ask(Request::Register(register)).await.reply {
            Reply::Registered(registered) => registered.session_id,
            other => panic!("{other:?}"),
        }
    }

    async fn stop(self) {
        self.node.stop();
        assert_eq!(self.driver.exited().await, 0);
        assert_eq!(self.node.submit(Request::Health).unwrap_err(), Unavailable::Stopped);
    }
}

fn poll(session: SessionId, results: Vec<TaskResult>) -> Request {
    let wait = Duration::from_secs(20);
    Request::Poll(Poll { session, max_tasks: 1, wait, holding: None, results })
}

fn polled(answer: Response) -> Assignment {
    match answer.reply {
        Reply::Polled(mut polled) => polled.tasks.remove(0),
        other => panic!("{other:?}"),
    }
}

fn succeeded(task: &Assignment, output: Value) -> Vec<TaskResult> {
    vec![TaskResult { token: task.token.clone(), outcome: TaskOutcome::Succeeded(Arc::new(output)) }]
}

fn one_task() -> Value {
    json!({"name": "OneTask", "version": "1", "result": "${ steps.work.output }",
        "steps": [{"id": "work", "task": "work", "input": {"n": "${ input.n }"}}]})
}

#[tokio::test]
async fn a_task_goes_to_a_worker_and_its_result_outlives_the_server() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("orbit.db");
    let server = Server::start(&path).await;
    server.deploy(one_task()).await;
    let session = server.register("work").await;
    let waiting = server.node.submit(poll(session, Vec::new())).unwrap();
    server.begin("OneTask", "a").await;
    let task = polled(waiting.await.unwrap());
    assert_eq!((*task.input).clone(), json!({"n": 20}));
    assert!(!task.redelivery);
    // The next poll brings the result and waits for more; the execution ends meanwhile.
    let more = server.node.submit(poll(session, succeeded(&task, json!("done")))).unwrap();
    assert_eq!(server.result("a").await, (Status::Completed, Some(json!("done"))));
    drop(more);
    server.stop().await;
    assert_eq!(peek(&path).unwrap().contents.fence.holder, None, "the fence was given up");

    let server = Server::start(&path).await;
    assert_eq!(server.result("a").await, (Status::Completed, Some(json!("done"))));
    let history =
        Request::GetHistory { execution: "a".into(), run: None, after: Seq(0), limit: 100, max_bytes: 1 << 20 };
    let Reply::History(history) = server.ask(history).await.reply else { panic!("no history") };
    let types: Vec<_> =
        history.events.iter().map(|event| serde_json::to_value(event).unwrap()["type"].clone()).collect();
    let expected =
        ["WorkflowCreated", "WorkflowStarted", "StepScheduled", "StepDispatched", "StepSucceeded", "WorkflowCompleted"];
    assert_eq!(types, expected);
    server.stop().await;
}

#[tokio::test]
async fn a_task_whose_worker_left_before_the_answer_is_offered_again_and_said_to_be() {
    let folder = tempdir().unwrap();
    let server = Server::start(&folder.path().join("orbit.db")).await;
    server.deploy(one_task()).await;
    let session = server.register("work").await;
    let waiting = server.node.submit(poll(session, Vec::new())).unwrap();
    let id = waiting.id();
    server.begin("OneTask", "a").await;
    // The front has the answer and cannot write it to the worker.
    let first = polled(waiting.await.unwrap());
    server.node.answer_lost(id);
    // A poll that tells it to stop the lost delivery may be answered first.
    let mut answer = server.ask(poll(session, Vec::new())).await;
    if matches!(&answer.reply, Reply::Polled(polled) if polled.tasks.is_empty() && !polled.cancel.is_empty()) {
        answer = server.ask(poll(session, Vec::new())).await;
    }
    let again = polled(answer);
    assert!(again.redelivery);
    assert_eq!((&again.idempotency_key, again.attempt), (&first.idempotency_key, first.attempt));
    assert_ne!(again.token, first.token);
    server.ask(poll_nothing(session, succeeded(&again, json!(1)))).await;
    assert_eq!(server.result("a").await, (Status::Completed, Some(json!(1))));
    server.stop().await;
}

fn poll_nothing(session: SessionId, results: Vec<TaskResult>) -> Request {
    Request::Poll(Poll { session, max_tasks: 0, wait: Duration::ZERO, holding: None, results })
}

#[tokio::test]
async fn executions_that_sleep_go_on_after_a_restart() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("orbit.db");
    let server = Server::start(&path).await;
    let nap = |length: &str, version: &str| json!({"name": "Nap", "version": version, "result": "${ input.n * 2 }", "steps": [{"id": "nap", "sleep": length}]});
    server.deploy(nap("1h", "1")).await;
    server.begin("Nap", "long").await;
    server.deploy(nap("300ms", "2")).await;
    for number in 0..20 {
        server.begin("Nap", &format!("short-{number}")).await;
    }
    server.stop().await;
    let server = Server::start(&path).await;
    for number in 0..20 {
        assert_eq!(server.result(&format!("short-{number}")).await, (Status::Completed, Some(json!(40))));
    }
    let list = orbit_core::api::request::ListExecutions {
        status: Some(Status::Running),
        workflow: None,
        labels: Default::default(),
        since: None,
        limit: 10,
        cursor: None,
    };
    let Reply::Executions(Executions { executions, .. }) = server.ask(Request::ListExecutions(list)).await.reply else {
        panic!("no list")
    };
    let ids: Vec<ExecutionId> = executions.into_iter().map(|item| item.execution_id).collect();
    assert_eq!(ids, ["long".into()]);
    server.stop().await;
}
