//! What the worker says in its program's log.

mod common;

use common::{Fake, PATIENCE, polled, task};
use orbit_sdk::{TaskFailure, Worker};
use std::io::Write;
use std::sync::{Arc, Mutex};

/// A log that the test reads.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().expect("no panic").clone()).expect("a log is text")
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("no panic").write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn an_attempt_that_fails_or_panics_is_in_the_log_with_its_execution_its_step_and_why() {
    let log = Log::default();
    let writer = log.clone();
    // The worker's own thread writes it.
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).init();
    let mut fake = Fake::start().await;
    let worker = Worker::builder().servers(fake.url()).worker_id("w").concurrency(1);
    let worker = worker.task("payments.charge", "1", |context, _| async move {
        if context.execution_id() == "bad" {
            panic!("no such card");
        }
        Err(TaskFailure::new("DECLINED", "card declined"))
    });
    let worker = tokio::spawn(worker.build().expect("a worker").run(std::future::pending()));
    fake.register("s1", 60_000).await;
    fake.expect("/v1/workers/poll").await.answer(200, polled(&[task("x/1")], &[], &[]));
    let reported = fake.expect("/v1/workers/poll").await;
    assert_eq!(reported.body["results"][0]["error"]["code"], "DECLINED");
    reported.answer(200, polled(&[task("bad/2")], &[], &[("x/1", "accepted")]));
    let reported = tokio::time::timeout(PATIENCE, fake.expect("/v1/workers/poll")).await.expect("it reports");
    assert_eq!(reported.body["results"][0]["error"]["code"], "PANIC");
    let text = log.text();
    for (says, about) in [("failed: DECLINED: card declined", "\"x\""), ("panicked: no such card", "\"bad\"")] {
        let line = text.lines().find(|line| line.contains(says) && line.contains("WARN"));
        let line = line.unwrap_or_else(|| panic!("{says}: {text}"));
        let all = [&format!("execution_id={about}"), "step=\"charge\"", "attempt=1", "task=\"payments.charge\""];
        assert!(all.iter().all(|part| line.contains(*part)), "{line}");
    }
    worker.abort();
}
