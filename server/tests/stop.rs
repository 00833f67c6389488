//! A stop by signal: what is in flight ends, nothing acknowledged is lost, and a restart goes on.

mod common;

use common::{ORDER_PROCESSING, PATIENCE, Server, folder, order};
use orbit_sdk::{Format, StartOptions, Status, Worker, WorkerBuilder, json};
use rustix::process::Signal;
use std::io::Write;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;

/// A worker whose every task waits until it is let go.
struct Slow {
    started: Arc<AtomicUsize>,
    let_go: Arc<Notify>,
    stop: oneshot::Sender<()>,
    worker: JoinHandle<Result<(), orbit_sdk::Error>>,
}

const TASKS: [&str; 6] =
    ["orders.validate", "fraud.check", "inventory.reserve", "payments.charge", "shipping.ship", "customers.notify"];

impl Slow {
    fn start(url: &str) -> Slow {
        let (started, let_go) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let mut builder: WorkerBuilder = Worker::builder().servers(url).worker_id("slow");
        for task in TASKS {
            let (started, let_go) = (Arc::clone(&started), Arc::clone(&let_go));
            builder = builder.task(task, "1", move |_, _| {
                let (started, let_go) = (Arc::clone(&started), Arc::clone(&let_go));
                async move {
                    started.fetch_add(1, Ordering::SeqCst);
                    let_go.notified().await;
                    Ok(json!({"score": 1, "reservation_id": "r", "charge_id": "c", "tracking": "t"}))
                }
            });
        }
        let (stop, stopped) = oneshot::channel();
        let worker = builder.build().unwrap();
        let worker = tokio::spawn(worker.run(async move { stopped.await.unwrap_or(()) }));
        Slow { started, let_go, stop, worker }
    }

    async fn has_started(&self, tasks: usize) {
        let begun = Instant::now();
        while self.started.load(Ordering::SeqCst) < tasks {
            assert!(begun.elapsed() < PATIENCE, "the worker got no task");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn stop(self) {
        self.stop.send(()).unwrap();
        tokio::time::timeout(PATIENCE, self.worker).await.expect("the worker ends").unwrap().unwrap();
    }
}

async fn start_order(server: &Server, id: &str) {
    let options = StartOptions { execution_id: Some(id.into()), input: order(id), ..Default::default() };
    server.client().start("OrderProcessing", options).await.unwrap();
}

async fn deployed(db: &Path, more: &[&str]) -> Server {
    let server = Server::start(db, more).await;
    server.client().deploy(ORDER_PROCESSING, Format::Yaml).await.unwrap();
    server
}

#[tokio::test]
async fn a_stop_with_polls_waits_and_a_running_task_ends_cleanly_and_a_restart_goes_on() {
    for signal in [Signal::TERM, Signal::INT] {
        let folder = folder();
        let db = folder.path().join("orbit.db");
        let mut server = deployed(&db, &[]).await;
        // Its long poll waits for more, while one task runs.
        let slow = Slow::start(&server.url());
        start_order(&server, "o-1").await;
        slow.has_started(1).await;
        let waiting = tokio::spawn({
            let client = server.client();
            async move { client.wait("o-1", Duration::from_secs(60)).await }
        });
        // A start that is acknowledged just before the signal.
        start_order(&server, "o-2").await;
        let begun = Instant::now();
        server.process.signal(signal);
        let status = server.process.ended(PATIENCE);
        assert_eq!(status.code(), Some(0), "{}", server.process.log());
        assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}", begun.elapsed());
        // The wait was answered with how things stood, or refused; either way it did not hang.
        let waited = tokio::time::timeout(PATIENCE, waiting).await.expect("the wait has ended").unwrap();
        assert!(waited.is_err() || waited.is_ok_and(|execution| execution.status() == &Status::Running));

        let addr = server.addr;
        drop(server);
        let server = Server::start_on(&db, addr, &[]).await;
        let client = server.client();
        // The task that ran through the stop reports to the new server; nothing is delivered twice.
        let let_go = tokio::spawn({
            let let_go = Arc::clone(&slow.let_go);
            async move {
                loop {
                    let_go.notify_waiters();
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            }
        });
        for id in ["o-1", "o-2"] {
            let execution = client.wait(id, PATIENCE).await.unwrap();
            assert_eq!(execution.status(), &Status::Completed, "{id}: {}", server.process.log());
            let history = client.history(id, 0, None).await.unwrap();
            let uncertain = history.events.iter().filter(|event| event.kind == "StepAttemptUncertain").count();
            assert_eq!(uncertain, 0, "{id} went through the stop without a doubt");
        }
        let_go.abort();
        assert_eq!(slow.started.load(Ordering::SeqCst), 12);
        slow.stop().await;
    }
}

#[tokio::test]
async fn a_server_that_stops_refuses_new_work_until_the_end() {
    let folder = folder();
    let mut server = deployed(&folder.path().join("orbit.db"), &[]).await;
    let client = server.client();
    server.process.signal(Signal::TERM);
    let mut refused = 0;
    while server.process.is_running() {
        let options = StartOptions { input: order("late"), ..Default::default() };
        match client.start("OrderProcessing", options).await {
            // It was quicker than the signal.
            Ok(_) => {}
            Err(error) => {
                assert!(error.is_retryable(), "{error}");
                refused += 1;
            }
        }
        assert!(refused < 100_000, "the server does not end");
    }
    assert_eq!(server.process.ended(PATIENCE).code(), Some(0), "{}", server.process.log());
}

#[tokio::test]
async fn a_clean_stop_names_no_holder_any_more_and_a_kill_leaves_its_name() {
    let folder = folder();
    let db = folder.path().join("orbit.db");
    let holder = |db: &Path| {
        let mut command = common::orbit(&["status", "-o", "json", "--db"]);
        command.arg(db);
        let status = common::run(command).json();
        (status["holder"]["node_id"].clone(), status["holder_runs"].clone())
    };
    let mut server = Server::start(&db, &["--node-id", "the-one"]).await;
    assert_eq!(holder(&db), (json!("the-one"), json!(true)));
    server.process.signal(Signal::TERM);
    assert!(server.process.ended(PATIENCE).success());
    assert_eq!(holder(&db), (json!(null), json!(null)));
    let server = Server::start(&db, &["--node-id", "the-one"]).await;
    server.process.kill();
    assert_eq!(holder(&db), (json!("the-one"), json!(false)));
    let mut people = common::orbit(&["status", "--db"]);
    people.arg(&db);
    let people = common::run(people).stdout;
    assert!(
        people.contains("node the-one (process ") && people.contains("), which is gone: it was killed"),
        "{people}"
    );
}

#[tokio::test]
async fn a_second_signal_ends_the_server_at_once() {
    let folder = folder();
    let mut server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    // A request whose body never comes to its end holds the stop up.
    let mut client = TcpStream::connect(server.addr).unwrap();
    client.write_all(b"POST /v1/workflows HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n1").unwrap();
    // Once a later connection has been answered, that request has been read.
    server.ready().await;
    server.process.signal(Signal::TERM);
    common::wait_for("word of the stop", PATIENCE, || server.process.log().contains("stopping").then_some(()));
    assert!(server.process.is_running());
    let begun = Instant::now();
    server.process.signal(Signal::TERM);
    assert_eq!(server.process.ended(PATIENCE).code(), Some(143), "{}", server.process.log());
    // The stop would have ended after ten seconds, and with another status.
    assert!(begun.elapsed() < Duration::from_secs(8), "it took {:?}", begun.elapsed());
}
