//! The worker against a server that the test plays: the corners of the protocol.

mod common;

use common::{Exchange, Fake, PATIENCE, answered, polled, task};
use orbit_sdk::{Context, Error, TaskFailure, Worker, WorkerBuilder};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

const POLL: &str = "/v1/workers/poll";
const REPORT: &str = "/v1/tasks/complete";
const BEAT: &str = "/v1/workers/heartbeat";

/// How a handler of these tests ends: as the test tells it.
type Ending = oneshot::Sender<Result<Value, TaskFailure>>;

/// A worker whose handlers wait for the test.
struct Bench {
    started: mpsc::UnboundedReceiver<(Context, Value, Ending)>,
    stop: Option<oneshot::Sender<()>>,
    worker: JoinHandle<Result<(), Error>>,
}

impl Bench {
    fn start(fake: &Fake, adjust: impl FnOnce(WorkerBuilder) -> WorkerBuilder) -> Bench {
        let (starting, started) = mpsc::unbounded_channel();
        let handler = move |context: Context, input| {
            let starting = starting.clone();
            async move {
                let (ending, ended) = oneshot::channel();
                starting.send((context, input, ending)).unwrap();
                ended.await.expect("the test ends the handler, which panics otherwise")
            }
        };
        let builder = Worker::builder().servers(fake.url()).worker_id("w").task("payments.charge", "1", handler);
        let worker = adjust(builder).build().unwrap();
        let (stop, stopped) = oneshot::channel();
        let worker = tokio::spawn(worker.run(async move { stopped.await.unwrap_or(()) }));
        Bench { started, stop: Some(stop), worker }
    }

    /// The next handler that starts.
    async fn handler(&mut self) -> (Context, Value, Ending) {
        tokio::time::timeout(PATIENCE, self.started.recv()).await.expect("a handler starts").unwrap()
    }

    async fn no_handler(&mut self) {
        assert!(tokio::time::timeout(Duration::from_millis(200), self.started.recv()).await.is_err());
    }

    fn stop(&mut self) {
        self.stop.take().unwrap().send(()).unwrap();
    }

    async fn ended(self) -> Result<(), Error> {
        tokio::time::timeout(PATIENCE, self.worker).await.expect("the worker ends").unwrap()
    }
}

#[tokio::test]
async fn a_worker_registers_polls_and_brings_the_result_in_the_next_poll() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(1).token("secret"));
    let request = fake.expect("/v1/workers/register").await;
    assert_eq!(request.headers["authorization"], "Bearer secret");
    assert_eq!(request.body["contracts"], json!([{"task_name": "payments.charge", "contract_version": "1"}]));
    assert_eq!((&request.body["worker_id"], &request.body["runtime"]), (&json!("w"), &json!("rust")));
    request.answer(200, json!({"session_id": "s1", "heartbeat_interval_ms": 60000, "session_timeout_ms": 60000}));

    let poll = fake.expect(POLL).await;
    assert_eq!(
        poll.body,
        json!({"session_id": "s1", "max_tasks": 1, "wait_ms": 20000, "holding": []}),
        "the first poll brings nothing"
    );
    poll.answer(200, polled(&[task("x/1")], &[], &[]));
    let (context, input, ending) = bench.handler().await;
    assert_eq!((context.execution_id(), context.step_id(), context.attempt()), ("x", "charge", 1));
    assert_eq!((context.idempotency_key(), context.redelivery()), ("cluster/x/1/charge", false));
    assert!(context.deadline().is_some() && !context.is_cancelled());
    assert_eq!(input, json!({"amount": 5}));
    assert!(fake.within(Duration::from_millis(100), POLL).await.is_none(), "its one slot is taken");

    ending.send(Ok(json!({"id": 7}))).unwrap();
    let poll = fake.expect(POLL).await;
    assert_eq!(poll.body["results"], json!([{"token": "x/1", "output": {"id": 7}}]));
    assert_eq!((poll.list("holding"), &poll.body["max_tasks"]), (vec!["x/1"], &json!(1)));
    poll.answer(200, polled(&[task("x/2")], &[], &[("x/1", "accepted")]));
    let (_, _, ending) = bench.handler().await;
    ending.send(Err(TaskFailure::fatal("DECLINED", "no").with_details(json!(1)))).unwrap();
    let poll = fake.expect(POLL).await;
    let error = json!({"code": "DECLINED", "message": "no", "retryable": false, "details": 1});
    assert_eq!(poll.body["results"], json!([{"token": "x/2", "error": error}]));
    assert_eq!(poll.list("holding"), ["x/2"], "what was accepted is held no more");
}

#[tokio::test]
async fn a_result_does_not_wait_for_the_poll_that_waits() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(4));
    fake.register("s1", 60_000).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1"), task("x/2"), task("x/3")], &[], &[]));
    let mut endings = Vec::new();
    for _ in 0..3 {
        endings.push(bench.handler().await.2);
    }
    let waiting = fake.expect(POLL).await;
    assert_eq!(waiting.body["max_tasks"], json!(1));
    endings.remove(0).send(Ok(json!(1))).unwrap();
    let report = fake.expect(REPORT).await;
    assert_eq!(report.body, json!({"session_id": "s1", "results": [{"token": "x/1", "output": 1}]}));
    // What ends while that report is under way goes in one more.
    for ending in endings {
        ending.send(Ok(json!(2))).unwrap();
    }
    assert!(fake.within(Duration::from_millis(200), REPORT).await.is_none(), "one report at a time");
    report.answer(200, answered(&[("x/1", "accepted")]));
    let report = fake.expect(REPORT).await;
    assert_eq!(report.body["results"].as_array().unwrap().len(), 2);
    report.answer(200, answered(&[("x/2", "accepted"), ("x/3", "accepted")]));
    assert!(waiting.is_wanted(), "the poll that waits was not cut short");
}

#[tokio::test]
async fn a_quick_handler_gets_its_result_into_the_next_poll() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(4).linger(PATIENCE * 6));
    fake.register("s1", 60_000).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1")], &[], &[]));
    let (_, _, ending) = bench.handler().await;
    assert!(fake.within(Duration::from_millis(100), POLL).await.is_none(), "the next poll stays back");
    ending.send(Ok(json!(1))).unwrap();
    let poll = fake.expect(POLL).await;
    assert_eq!(poll.body["results"], json!([{"token": "x/1", "output": 1}]));
}

#[tokio::test]
async fn the_tasks_of_one_poll_wait_for_each_other_and_bring_their_results_together() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(4).linger(PATIENCE * 6));
    fake.register("s1", 60_000).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1"), task("x/2")], &[], &[]));
    let (_, _, first) = bench.handler().await;
    let (_, _, second) = bench.handler().await;
    first.send(Ok(json!(1))).unwrap();
    for path in [POLL, REPORT] {
        assert!(fake.within(Duration::from_millis(100), path).await.is_none(), "it waits for the other's");
    }
    second.send(Ok(json!(2))).unwrap();
    let poll = fake.expect(POLL).await;
    assert_eq!(poll.body["results"].as_array().unwrap().len(), 2, "{}", poll.body);
    assert_eq!(poll.body["max_tasks"], json!(4));
}

#[tokio::test]
async fn a_slow_handler_holds_the_result_of_a_quick_one_back_for_no_longer_than_a_moment() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(4).linger(Duration::from_millis(20)));
    fake.register("s1", 60_000).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1"), task("x/2")], &[], &[]));
    let (_, _, quick) = bench.handler().await;
    let (_, _, _slow) = bench.handler().await;
    quick.send(Ok(json!(1))).unwrap();
    let poll = fake.expect(POLL).await;
    assert_eq!((&poll.body["results"].as_array().unwrap().len(), &poll.body["max_tasks"]), (&1, &json!(3)));
}

#[tokio::test]
async fn results_under_way_in_a_lost_session_are_sent_again_in_the_next() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(2));
    fake.register("s1", 100).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1")], &[], &[]));
    let (_, _, ending) = bench.handler().await;
    let waiting = fake.expect(POLL).await;
    ending.send(Ok(json!(1))).unwrap();
    let report = fake.expect(REPORT).await;
    // The heartbeat is the first to learn that the session is gone. Poll and report have no answer yet.
    fake.expect(BEAT).await.error(404, "UNKNOWN_SESSION", false);
    fake.register("s2", 60_000).await;
    let poll = fake.expect(POLL).await;
    assert_eq!((&poll.body["session_id"], poll.list("holding")), (&json!("s2"), vec!["x/1"]));
    assert_eq!(poll.body["results"], json!([{"token": "x/1", "output": 1}]));
    assert!(!waiting.is_wanted() && !report.is_wanted(), "what the old session waited for is given up");
}

#[tokio::test]
async fn a_restarted_server_gets_a_new_registration_and_the_results_of_the_old_session() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(2));
    fake.register("s1", 60_000).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1"), task("x/2")], &[], &[]));
    let (_, _, first) = bench.handler().await;
    let (context, _, second) = bench.handler().await;
    let addr = fake.kill().await;
    first.send(Ok(json!(1))).unwrap();

    let mut fake = Fake::start_on(addr).await;
    let poll = fake.expect(POLL).await;
    assert_eq!(poll.body["session_id"], json!("s1"));
    poll.error(404, "UNKNOWN_SESSION", false);
    fake.register("s2", 60_000).await;
    let poll = fake.expect(POLL).await;
    assert_eq!(poll.body["session_id"], json!("s2"));
    assert_eq!(poll.list("holding"), ["x/1", "x/2"], "both are held: one runs, one has a result");
    assert_eq!(poll.body["results"], json!([{"token": "x/1", "output": 1}]));
    assert!(!context.is_cancelled());
    poll.answer(200, polled(&[], &[], &[("x/1", "accepted")]));
    fake.expect(POLL).await;
    second.send(Ok(json!(2))).unwrap();
    let report = fake.expect(REPORT).await;
    assert_eq!(report.body, json!({"session_id": "s2", "results": [{"token": "x/2", "output": 2}]}));
}

#[tokio::test]
async fn a_result_is_sent_until_a_server_says_what_became_of_it() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(1));
    fake.register("s1", 60_000).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1")], &[], &[]));
    bench.handler().await.2.send(Ok(json!(1))).unwrap();
    // The answer is lost, then the server has trouble, then it cannot take this result just now.
    let mut waiting = Vec::new();
    drop(with_results(&mut fake, &mut waiting).await);
    with_results(&mut fake, &mut waiting).await.error(503, "STORAGE_ERROR", true);
    let refusal = json!({"code": "STORAGE_ERROR", "message": "full", "details": {}});
    let outcomes = json!([{"token": "x/1", "outcome": "refused", "error": refusal}]);
    let answer = json!({"tasks": [], "cancel": [], "outcomes": outcomes});
    with_results(&mut fake, &mut waiting).await.answer(200, answer);
    with_results(&mut fake, &mut waiting).await.answer(200, polled(&[], &[], &[("x/1", "duplicate")]));
    for poll in waiting.drain(..) {
        poll.answer(200, polled(&[], &[], &[]));
    }
    let poll = fake.expect(POLL).await;
    assert_eq!((poll.body.get("results"), poll.list("holding").len()), (None, 0));
}

/// The next poll or report that brings the result of `x/1`. Polls that bring nothing wait meanwhile.
async fn with_results(fake: &mut Fake, waiting: &mut Vec<Exchange>) -> Exchange {
    let found = async {
        loop {
            for path in [REPORT, POLL] {
                let Some(request) = fake.within(Duration::from_millis(20), path).await else { continue };
                if request.body.get("results").is_some() {
                    return request;
                }
                waiting.push(request);
            }
        }
    };
    let request = tokio::time::timeout(PATIENCE, found).await.expect("the result is sent again");
    assert_eq!(request.body["results"], json!([{"token": "x/1", "output": 1}]));
    request
}

#[tokio::test]
async fn a_token_that_is_answered_again_runs_once() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(3));
    fake.register("s1", 60_000).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1")], &[], &[]));
    let (context, _, ending) = bench.handler().await;
    let mut again = task("x/1");
    again["redelivery"] = json!(true);
    fake.expect(POLL).await.answer(200, polled(&[again, task("x/2")], &[], &[]));
    let (other, _, _kept) = bench.handler().await;
    assert_eq!(other.token(), "x/2");
    bench.no_handler().await;
    assert!(!context.redelivery());
    ending.send(Ok(json!(1))).unwrap();
    assert_eq!(fake.expect(REPORT).await.body["results"], json!([{"token": "x/1", "output": 1}]));
}

#[tokio::test]
async fn heartbeats_name_what_is_held_and_bring_cancels() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(3));
    fake.register("s1", 50).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1"), task("x/2")], &[], &[]));
    let (context, _, ending) = bench.handler().await;
    let (other, _, _kept) = bench.handler().await;
    let waiting = fake.expect(POLL).await;
    let mut beat = fake.expect(BEAT).await;
    if beat.list("holding").is_empty() {
        // It was sent before the tasks came.
        beat.answer(200, json!({"cancel": []}));
        beat = fake.expect(BEAT).await;
    }
    assert_eq!(beat.body, json!({"session_id": "s1", "holding": ["x/1", "x/2"]}));
    beat.answer(200, json!({"cancel": ["x/1"]}));
    tokio::time::timeout(PATIENCE, context.cancelled()).await.expect("its handler is told");
    assert!(context.is_cancelled() && !other.is_cancelled());
    let beat = fake.expect(BEAT).await;
    assert_eq!(beat.list("holding"), ["x/2"]);
    beat.answer(200, json!({"cancel": []}));
    ending.send(Ok(json!("too late"))).unwrap();
    assert!(fake.within(Duration::from_millis(200), REPORT).await.is_none(), "its result is dropped");
    assert!(waiting.is_wanted());
}

#[tokio::test(flavor = "current_thread")]
async fn heartbeats_go_on_while_a_handler_blocks_the_programs_only_thread() {
    let mut fake = Fake::start().await;
    let url = fake.url();
    let program = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (ended, end) = std::sync::mpsc::channel::<()>();
        let end = Arc::new(std::sync::Mutex::new(end));
        let worker = Worker::builder().servers(url).worker_id("w").grace(Duration::ZERO).task(
            "payments.charge",
            "1",
            move |_, input| {
                let end = Arc::clone(&end);
                async move {
                    end.lock().unwrap().recv().unwrap();
                    Ok(input)
                }
            },
        );
        let (stop, stopped) = oneshot::channel::<()>();
        let run = worker.build().unwrap().run(async move { stopped.await.unwrap_or(()) });
        (ended, stop, std::thread::spawn(move || runtime.block_on(run)))
    });
    fake.register("s1", 30).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1")], &[], &[]));
    let (ended, stop, worker) = program.join().unwrap();
    for beats in 0..6 {
        let beat = fake.expect(BEAT).await;
        // The first may have been sent before the task came.
        assert!(beats == 0 || beat.list("holding") == ["x/1"], "{:?}", beat.body);
        beat.answer(200, json!({"cancel": []}));
    }
    ended.send(()).unwrap();
    drop(stop);
    tokio::task::spawn_blocking(move || worker.join().unwrap().unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_panic_is_a_failure_with_its_message() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(1));
    fake.register("s1", 60_000).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1")], &[], &[]));
    drop(bench.handler().await.2);
    let poll = fake.expect(POLL).await;
    let error = &poll.body["results"][0]["error"];
    assert_eq!((&error["code"], &error["retryable"]), (&json!("PANIC"), &json!(true)));
    assert!(error["message"].as_str().unwrap().contains("the test ends the handler"), "{error}");
}

#[tokio::test]
async fn an_output_that_the_server_finds_too_large_is_reported_as_a_failure() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(1));
    fake.register("s1", 60_000).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1")], &[], &[]));
    bench.handler().await.2.send(Ok(json!("large"))).unwrap();
    // The output is refused, once or twice (alone, to be sure which one it is); then a failure is reported instead.
    let told = loop {
        let request = fake.expect_results().await;
        if request.body["results"][0].get("error").is_some() {
            break request;
        }
        request.error(413, "PAYLOAD_TOO_LARGE", false);
    };
    let error = &told.body["results"][0]["error"];
    assert_eq!((&error["code"], &error["retryable"]), (&json!("PAYLOAD_TOO_LARGE"), &json!(false)));
}

#[tokio::test]
async fn a_stop_takes_nothing_new_lets_handlers_end_reports_and_unregisters() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.concurrency(2));
    fake.register("s1", 60_000).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1")], &[], &[]));
    let (context, _, ending) = bench.handler().await;
    let waiting = fake.expect(POLL).await;
    bench.stop();
    waiting.given_up().await;
    assert!(!context.is_cancelled());
    ending.send(Ok(json!(1))).unwrap();
    let report = fake.expect(REPORT).await;
    assert_eq!(report.body["results"], json!([{"token": "x/1", "output": 1}]));
    // Even now the result stays until it is answered.
    drop(report);
    loop {
        let report = fake.expect(REPORT).await;
        if report.is_wanted() {
            report.answer(200, answered(&[("x/1", "accepted")]));
            break;
        }
    }
    let goodbye = fake.expect("/v1/workers/unregister").await;
    assert_eq!(goodbye.body, json!({"session_id": "s1"}));
    goodbye.answer(200, json!({}));
    assert!(fake.within(Duration::from_millis(50), POLL).await.is_none());
    bench.ended().await.unwrap();
}

#[tokio::test]
async fn a_stop_does_not_wait_longer_than_the_grace_time() {
    let mut fake = Fake::start().await;
    let mut bench = Bench::start(&fake, |builder| builder.grace(Duration::from_millis(100)));
    fake.register("s1", 60_000).await;
    fake.expect(POLL).await.answer(200, polled(&[task("x/1")], &[], &[]));
    let (_, _, ending) = bench.handler().await;
    bench.stop();
    fake.expect("/v1/workers/unregister").await.answer(200, json!({}));
    bench.ended().await.unwrap();
    assert!(ending.is_closed(), "its handler was ended");
}

#[tokio::test]
async fn wrong_credentials_end_the_worker_with_the_servers_error() {
    let mut fake = Fake::start().await;
    let bench = Bench::start(&fake, |builder| builder);
    fake.expect("/v1/workers/register").await.error(401, "UNAUTHORIZED", false);
    assert_eq!(bench.ended().await.unwrap_err().code(), Some("UNAUTHORIZED"));
}

#[tokio::test]
async fn a_server_that_is_away_at_first_is_waited_for() {
    let addr = Fake::start().await.kill().await;
    let away = Fake::start().await;
    let url = format!("http://{addr}");
    // What listens there hangs up at once: the worker comes in vain, more than once.
    let hangs_up = tokio::net::TcpListener::bind(addr).await.unwrap();
    let mut bench = Bench::start(&away, |builder| builder.servers(url));
    for _ in 0..2 {
        drop(hangs_up.accept().await.unwrap());
    }
    drop(hangs_up);
    let mut fake = Fake::start_on(addr).await;
    fake.register("s1", 60_000).await;
    fake.expect(POLL).await;
    bench.stop();
    fake.expect("/v1/workers/unregister").await.answer(200, json!({}));
    bench.ended().await.unwrap();
}
