//! Clients and workers that reach their servers through something else than TCP, and workers without a thread.

mod common;

use common::{Fake, PATIENCE, answered, polled, task};
use orbit_sdk::{Client, Connecting, Error, Outside, StartOptions, Stream, Worker};
use serde_json::{Value, json};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// Names that no host has lead to the server of the test; numbers count.
struct Told {
    fake: String,
    asked: Mutex<Vec<String>>,
    number: AtomicU64,
}

impl Told {
    fn about(fake: &Fake) -> Arc<Told> {
        Arc::new(Told { fake: fake.addr.to_string(), asked: Mutex::default(), number: AtomicU64::new(0) })
    }
}

impl Outside for Told {
    fn connect(&self, authority: &str) -> Connecting {
        self.asked.lock().unwrap().push(authority.to_owned());
        let found = (authority == "somewhere:7233").then(|| self.fake.clone());
        Box::pin(async move {
            let addr = found.ok_or(io::ErrorKind::HostUnreachable)?;
            Ok(Box::new(TcpStream::connect(addr).await?) as Box<dyn Stream>)
        })
    }

    fn random(&self) -> u64 {
        self.number.fetch_add(1, Ordering::Relaxed)
    }
}

#[tokio::test]
async fn a_client_asks_the_outside_for_its_connections_and_its_numbers() {
    let mut fake = Fake::start().await;
    let told = Told::about(&fake);
    let client = Client::new("http://elsewhere:7233,http://somewhere:7233", None).unwrap().with_outside(told.clone());
    let call = tokio::spawn(async move { client.start("W", StartOptions::default()).await });
    let request = fake.expect("/v1/executions").await;
    assert_eq!(request.headers["host"], "somewhere:7233");
    // Made of the numbers 0 and 1.
    let id = "00000000-0000-4000-8000-000000000001";
    assert_eq!(request.body["execution_id"], id);
    request.answer(
        201,
        json!({"execution_id": id, "status": "running", "created": true, "workflow": "W", "version": "1"}),
    );
    assert!(call.await.unwrap().unwrap().created);
    assert_eq!(*told.asked.lock().unwrap(), ["elsewhere:7233", "somewhere:7233"]);
}

#[tokio::test]
async fn what_the_outside_says_is_why_a_server_is_unreachable() {
    let fake = Fake::start().await;
    let client = Client::new("http://elsewhere:7233", None).unwrap().with_outside(Told::about(&fake));
    let error = client.health().await.unwrap_err();
    assert!(matches!(&error, Error::Unreachable { tried } if tried[0].contains("unreachable")), "{error}");
}

#[tokio::test]
async fn a_worker_runs_where_it_is_called_and_stops_as_the_other_kind_does() {
    let mut fake = Fake::start().await;
    let told = Told::about(&fake);
    let here = std::thread::current().id();
    let handler = move |_, input: Value| async move {
        assert_eq!(std::thread::current().id(), here);
        Ok(json!({"charged": input["amount"]}))
    };
    let builder = Worker::builder().servers("http://somewhere:7233").task("payments.charge", "1", handler);
    let worker = builder.outside(told.clone()).build().unwrap();
    let (stop, stopped) = oneshot::channel();
    let worker = tokio::spawn(worker.run_here(async move {
        let _: Result<(), _> = stopped.await;
    }));
    fake.register("s", 1_000).await;
    fake.expect("/v1/workers/poll").await.answer(200, polled(&[task("x/1")], &[], &[]));
    let results = fake.expect_results().await;
    assert_eq!(results.body["results"][0], json!({"token": "x/1", "output": {"charged": 5}}));
    let whole = results.path == "/v1/workers/poll";
    let outcomes = [("x/1", "accepted")];
    results.answer(200, if whole { polled(&[], &[], &outcomes) } else { answered(&outcomes) });
    // The answer has arrived once the next poll is there.
    let _next = fake.expect("/v1/workers/poll").await;
    stop.send(()).unwrap();
    fake.expect("/v1/workers/unregister").await.answer(200, json!({}));
    tokio::time::timeout(PATIENCE, worker).await.expect("the worker ends").unwrap().unwrap();
}
