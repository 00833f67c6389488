//! What reaches an execution from outside, with a real server: signals, updates, queries, cancels, terminates.

mod common;

use common::{Ended, PATIENCE, Server, folder, free_addr, orbit, run};
use orbit_sdk::{Client, Error, Execution, Format, StartOptions, Status, Value, Worker, json};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Waits for two signals, one after the other, then for an update.
const TALK: &str = r#"
name: Talk
version: 1.0.0
signals:
  first: {payload: {type: object, required: [by], properties: {by: {type: string}}}}
  second: {description: may bring anything}
updates:
  raise: {payload: {type: integer}, when: "${ event < 10 }", result: "${ event + 1 }"}
queries:
  state: {first: "${ steps.a.output }", second: "${ steps.b.output }"}
steps:
  - {id: a, await: first}
  - {id: b, await: second}
  - {id: c, await: raise}
result: {by: "${ steps.a.output.by }", second: "${ steps.b.output }", raised: "${ steps.c.output }"}
"#;

/// Charges, and then waits for ever. What it charged it refunds.
const TRIP: &str = r#"
name: Trip
version: 1.0.0
signals: {never: {}}
steps:
  - id: charge
    task: trip.charge
    compensate: {task: trip.refund, input: {charge: "${ output.id }"}}
  - id: seats
    for: "${ input.seats }"
    do: {task: trip.seat, input: "${ item }"}
    compensate: {task: trip.free, input: "${ output }"}
  - {id: wait, await: never}
"#;

const BRIEF: &str = r#"
name: Brief
version: 1.0.0
timeout: 50ms
signals: {never: {}}
steps: [{id: wait, await: never}]
"#;

struct Stage {
    server: Server,
    client: Client,
    folder: TempDir,
}

impl Stage {
    async fn new(more: &[&str]) -> Stage {
        let folder = folder();
        let server = Server::start(&folder.path().join("orbit.db"), more).await;
        let client = server.client();
        for definition in [TALK, TRIP, BRIEF] {
            client.deploy(definition, Format::Yaml).await.expect("deployed");
        }
        Stage { server, client, folder }
    }

    async fn start(&self, workflow: &str, id: &str, input: Value) {
        let options = StartOptions { execution_id: Some(id.into()), input, ..StartOptions::default() };
        self.client.start(workflow, options).await.expect("started");
    }

    async fn ended(&self, id: &str) -> Execution {
        ended(&self.client, id).await
    }

    fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = orbit(arguments);
        command.env("ORBIT_SERVER", self.server.url());
        run(command)
    }
}

async fn ended(client: &Client, id: &str) -> Execution {
    let execution = client.wait(id, PATIENCE).await.expect("the server answers");
    assert!(execution.status().is_finished(), "{execution:?}");
    execution
}

/// Waits until the execution is as wanted.
async fn until(client: &Client, id: &str, wanted: impl Fn(&Execution) -> bool) -> Execution {
    let begun = Instant::now();
    loop {
        let execution = client.execution(id).await.expect("it is there");
        if wanted(&execution) {
            return execution;
        }
        assert!(begun.elapsed() < PATIENCE, "{execution:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

fn awaits(name: &str) -> impl Fn(&Execution) -> bool {
    let is = move |one: &Option<String>| one.as_deref() == Some(name);
    move |execution| execution.waiting.iter().any(|one| is(&one.signal) || is(&one.update))
}

/// The code and the message of a refusal.
fn refused<T: std::fmt::Debug>(result: Result<T, Error>) -> (String, String) {
    let error = result.expect_err("it is refused");
    let api = error.api().unwrap_or_else(|| panic!("no server refused it: {error}"));
    (api.code.clone(), api.message.clone())
}

/// How many events of this type there are, with a field of this value where one is named.
async fn events(client: &Client, id: &str, kind: &str, field: Option<(&str, &str)>) -> usize {
    let history = client.history(id, 0, None).await.expect("a history");
    let is = |event: &&orbit_sdk::Event| {
        event.kind == kind && field.is_none_or(|(name, value)| event.text(name) == Some(value))
    };
    history.events.iter().filter(is).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_counts_whether_it_comes_before_or_after_the_step_that_awaits_it() {
    let stage = Stage::new(&[]).await;
    stage.start("Talk", "t", Value::Null).await;
    until(&stage.client, "t", awaits("first")).await;
    let second = stage.client.signal("t", "second", json!([2]), None).await.expect("it is kept");
    until(&stage.client, "t", awaits("first")).await;
    let first = stage.client.signal("t", "first", json!({"by": "ada"}), None).await.expect("it is taken");
    assert!(first.seq > second.seq, "{first:?} {second:?}");
    until(&stage.client, "t", awaits("raise")).await;
    let raised = stage.client.update("t", "raise", json!(3), None).await.expect("it is taken");
    assert_eq!(raised.result, json!(4));
    let execution = stage.ended("t").await;
    assert_eq!(execution.output, Some(json!({"by": "ada", "second": [2], "raised": 3})));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_that_is_repeated_with_its_id_counts_once_and_is_told_its_first_number() {
    let stage = Stage::new(&[]).await;
    stage.start("Talk", "t", Value::Null).await;
    let send = |payload: Value| stage.client.signal("t", "second", payload, Some("s-1"));
    let sent = send(json!(1)).await.expect("it is kept");
    assert_eq!(send(json!(1)).await.expect("again"), sent);
    assert_eq!(events(&stage.client, "t", "SignalReceived", None).await, 1);
    let (code, message) = refused(stage.client.signal("t", "first", json!({"by": "x"}), Some("s-1")).await);
    assert_eq!(code, "SIGNAL_ID_CONFLICT", "{message}");
    let raise = |id: &'static str| stage.client.update("t", "raise", json!(5), Some(id));
    let raised = raise("u-1").await.expect("it is taken");
    assert_eq!(raise("u-1").await.expect("again"), raised);
    assert_eq!(events(&stage.client, "t", "UpdateAccepted", None).await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_declared_or_does_not_match_or_comes_too_late_is_refused() {
    let stage = Stage::new(&[]).await;
    stage.start("Talk", "t", Value::Null).await;
    let (client, by) = (&stage.client, json!({"by": "ada"}));
    let (code, message) = refused(client.signal("t", "frist", by.clone(), None).await);
    assert_eq!((code.as_str(), message.contains("did you mean `first`?")), ("UNKNOWN_SIGNAL", true), "{message}");
    let (code, message) = refused(client.signal("t", "first", json!({"by": 7}), None).await);
    assert_eq!((code.as_str(), message.contains("`payload.by`")), ("SIGNAL_PAYLOAD_INVALID", true), "{message}");
    assert_eq!(refused(client.signal("nobody", "first", by.clone(), None).await).0, "UNKNOWN_EXECUTION");
    assert_eq!(refused(client.update("t", "lower", json!(1), None).await).0, "UNKNOWN_UPDATE");
    assert_eq!(refused(client.update("t", "raise", json!("x"), None).await).0, "UPDATE_PAYLOAD_INVALID");
    assert_eq!(refused(client.query("t", "stat").await).0, "UNKNOWN_QUERY");
    assert_eq!(client.execution("t").await.expect("it is there").last_seq, 3, "nothing of that left a trace");

    let first = client.signal("t", "first", by.clone(), Some("s-1")).await.expect("it is taken");
    client.cancel("t", None).await.expect("cancelled");
    assert_eq!(stage.ended("t").await.status(), &Status::Cancelled);
    assert_eq!(refused(client.signal("t", "first", by.clone(), None).await).0, "EXECUTION_FINISHED");
    assert_eq!(refused(client.update("t", "raise", json!(1), None).await).0, "EXECUTION_FINISHED");
    assert_eq!(refused(client.terminate("t", None).await).0, "EXECUTION_FINISHED");
    // What was taken in before is still answered as it was.
    assert_eq!(client.signal("t", "first", by, Some("s-1")).await.expect("again"), first);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_is_answered_by_the_workflow_or_rejected_without_a_trace() {
    let stage = Stage::new(&[]).await;
    stage.start("Talk", "t", Value::Null).await;
    let before = until(&stage.client, "t", awaits("first")).await.last_seq;
    let (code, message) = refused(stage.client.update("t", "raise", json!(10), Some("u-1")).await);
    assert_eq!(code, "UPDATE_REJECTED", "{message}");
    assert_eq!(stage.client.execution("t").await.expect("it is there").last_seq, before);
    // The id of what was rejected is free.
    let raised = stage.client.update("t", "raise", json!(9), Some("u-1")).await.expect("it is taken");
    assert_eq!((raised.seq, raised.result), (before + 1, json!(10)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_is_answered_while_it_runs_and_after_the_end_and_changes_nothing() {
    let stage = Stage::new(&[]).await;
    stage.start("Talk", "t", Value::Null).await;
    let client = &stage.client;
    assert_eq!(client.query("t", "state").await.expect("a value"), json!({"first": null, "second": null}));
    client.signal("t", "first", json!({"by": "ada"}), None).await.expect("it is taken");
    let half = json!({"first": {"by": "ada"}, "second": null});
    assert_eq!(client.query("t", "state").await.expect("a value"), half);
    let before = client.execution("t").await.expect("it is there").last_seq;
    client.query("t", "state").await.expect("a value");
    assert_eq!(client.execution("t").await.expect("it is there").last_seq, before);
    client.terminate("t", Some("it hangs")).await.expect("terminated");
    assert_eq!(client.query("t", "state").await.expect("a value"), half);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_execution_undoes_what_its_workers_did_the_last_first() {
    let stage = Stage::new(&[]).await;
    let done: Arc<Mutex<Vec<(String, String, Value)>>> = Arc::default();
    let mut worker = Worker::builder().servers(stage.server.url()).worker_id("w").concurrency(1);
    for task in ["trip.charge", "trip.seat", "trip.refund", "trip.free"] {
        let done = done.clone();
        worker = worker.task(task, "1", move |context, input| {
            done.lock().unwrap().push((task.to_owned(), context.step_id().to_owned(), input.clone()));
            async move { Ok(if input.is_null() { json!({"id": "c-1"}) } else { input }) }
        });
    }
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(worker.build().expect("a worker").run(async move { drop(stopped.await) }));

    stage.start("Trip", "trip", json!({"seats": ["1a", "1b"]})).await;
    until(&stage.client, "trip", awaits("never")).await;
    done.lock().unwrap().clear();
    stage.client.cancel("trip", Some("rain")).await.expect("asked for");
    let execution = stage.ended("trip").await;
    assert_eq!((execution.status(), execution.cancel_reason.as_deref()), (&Status::Cancelled, Some("rain")));
    let undone: Vec<(String, String, Value)> = done.lock().unwrap().clone();
    let seat = |index: usize, seat: &str| ("trip.free".to_owned(), format!("compensate:seats[{index}]"), json!(seat));
    let refund = ("trip.refund".to_owned(), "compensate:charge".to_owned(), json!({"charge": "c-1"}));
    assert_eq!(undone, [seat(1, "1b"), seat(0, "1a"), refund]);
    assert_eq!(events(&stage.client, "trip", "WorkflowCancelled", Some(("compensation", "completed"))).await, 1);

    let shown = stage.run(&["executions", "history", "trip"]);
    assert!(shown.stdout.contains("cancelled: seats[1], seats[0], charge"), "{}", shown.stdout);
    assert!(shown.stdout.contains("compensation completed"), "{}", shown.stdout);
    drop(stop);
    worker.await.expect("no panic").expect("the worker ends well");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_killed_after_it_acknowledged_signals_has_them_once() {
    const EXECUTIONS: usize = 10;
    let folder = folder();
    let (db, addr) = (folder.path().join("orbit.db"), free_addr());
    let server = Server::start_on(&db, addr, &[]).await;
    let client = server.client();
    client.deploy(TALK, Format::Yaml).await.expect("deployed");
    let ids: Vec<String> = (0..EXECUTIONS).map(|n| format!("t-{n}")).collect();
    for id in &ids {
        let options = StartOptions { execution_id: Some(id.clone()), ..StartOptions::default() };
        client.start("Talk", options).await.expect("started");
    }
    // Nothing uses these yet: each execution awaits another signal first.
    let send_all = |client: Client| {
        let ids = ids.clone();
        async move {
            let mut numbers = Vec::new();
            for id in &ids {
                let second = client.signal(id, "second", json!(id), Some("s")).await.expect("it is kept");
                let raised = client.update(id, "raise", json!(3), Some("u")).await.expect("it is taken");
                numbers.push((second.seq, raised.seq, raised.result));
            }
            numbers
        }
    };
    let told = send_all(client).await;
    server.process.kill();

    let server = Server::start_on(&db, addr, &[]).await;
    let client = server.client();
    assert_eq!(send_all(client.clone()).await, told, "a repetition is answered as the first was");
    for id in &ids {
        client.signal(id, "first", json!({"by": id}), None).await.expect("it is taken");
        let execution = ended(&client, id).await;
        assert_eq!(execution.output, Some(json!({"by": id, "second": id, "raised": 3})));
        assert_eq!(events(&client, id, "SignalReceived", Some(("signal", "second"))).await, 1);
        assert_eq!(events(&client, id, "UpdateAccepted", None).await, 1);
        assert_eq!(events(&client, id, "SignalConsumed", None).await, 3);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_reach_children_and_are_carried_into_the_runs_that_follow() {
    const CHILD: &str = "name: Child\nversion: 1.0.0\nsignals: {go: {}}\nsteps: [{id: wait, await: go}]\nresult: '${ \
                         steps.wait.output }'\n";
    const PARENT: &str = "name: Parent\nversion: 1.0.0\nsteps: [{id: one, workflow: Child}]\nresult: '${ \
                          steps.one.output }'\n";
    const LOOP: &str = r#"
name: Loop
version: 1.0.0
signals: {add: {}}
steps:
  - {id: take, await: add}
  - {id: again, when: "${ input < 3 }", continue_as_new: "${ input + 1 }"}
result: {runs: "${ execution.run }", last: "${ steps.take.output }"}
"#;
    let stage = Stage::new(&[]).await;
    for definition in [CHILD, PARENT, LOOP] {
        stage.client.deploy(definition, Format::Yaml).await.expect("deployed");
    }
    stage.start("Parent", "p", Value::Null).await;
    let waiting = |execution: &Execution| execution.waiting.iter().any(|one| one.reason == "child");
    until(&stage.client, "p", waiting).await;
    assert!(stage.run(&["why", "p"]).stdout.contains("one: runs as the child execution p~one since "));
    let shown = stage.run(&["executions", "show", "p~one"]);
    assert!(shown.stdout.contains("p, step one"), "{shown:?}");
    stage.client.signal("p~one", "go", json!(7), None).await.expect("it is taken");
    assert_eq!(stage.ended("p").await.output, Some(json!(7)));

    stage.start("Loop", "l", json!(1)).await;
    let first = stage.client.signal("l", "add", json!(10), Some("s-1")).await.expect("it is taken");
    for n in [20, 30] {
        stage.client.signal("l", "add", json!(n), None).await.expect("it is taken, or carried on");
    }
    let ended = stage.ended("l").await;
    assert_eq!((ended.run(), ended.output), (3, Some(json!({"runs": 3, "last": 30}))));
    // What a sender was told holds through all runs.
    assert_eq!(first.run, 1);
    assert_eq!(stage.client.signal("l", "add", json!(10), Some("s-1")).await.expect("again"), first);
    let begun = stage.run(&["executions", "history", "l", "--run", "1", "-o", "json"]).json();
    let last = begun["events"].as_array().and_then(|events| events.last()).expect("events");
    assert_eq!((&begun["run"], &last["type"]), (&json!(1), &json!("WorkflowContinuedAsNew")));
    let newest = stage.run(&["executions", "history", "l", "--follow"]);
    assert!(newest.code == 0 && newest.stdout.contains("WorkflowCompleted"), "{newest:?}");
    let all = stage.run(&["executions", "history", "l", "--run", "1", "--follow"]);
    let count = |kind: &str| all.stdout.matches(kind).count();
    assert_eq!((count("WorkflowCreated"), count("WorkflowContinuedAsNew"), count("WorkflowCompleted")), (3, 2, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn too_many_signals_that_nothing_takes_and_too_long_lists_meet_their_bounds() {
    let stage = Stage::new(&["--max-pending-signals", "2", "--max-fan-out", "3"]).await;
    stage.start("Talk", "t", Value::Null).await;
    for _ in 0..2 {
        stage.client.signal("t", "second", Value::Null, None).await.expect("it is kept");
    }
    let (code, message) = refused(stage.client.signal("t", "second", Value::Null, None).await);
    assert_eq!((code.as_str(), message.contains("max_pending_signals")), ("RESOURCE_EXHAUSTED", true), "{message}");

    let long = "name: Long\nversion: 1.0.0\nsteps: [{id: each, for: [1, 2, 3, 4], do: {compute: '${ item }'}}]\n";
    stage.client.deploy(long, Format::Yaml).await.expect("deployed");
    stage.start("Long", "long", Value::Null).await;
    let error = stage.ended("long").await.error.expect("it failed");
    assert_eq!((error.code.as_str(), error.message.contains("max_fan_out")), ("LIMIT_EXCEEDED", true), "{error:?}");
}

fn told(ended: &Ended) -> (i32, &str) {
    (ended.code, ended.stdout.as_str())
}

fn write(folder: &Path, name: &str, text: &str) -> String {
    let path = folder.join(name);
    std::fs::write(&path, text).expect("a writable folder");
    format!("@{}", path.display())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_command_line_sends_signals_and_updates_asks_queries_and_ends_executions() {
    let stage = Stage::new(&[]).await;
    stage.start("Talk", "t", Value::Null).await;
    let why = stage.run(&["why", "t"]);
    assert!(why.stdout.contains("a: waits for the signal `first` since "), "{why:?}");
    assert!(why.stdout.contains("orbit executions signal t first --payload …"), "{why:?}");

    let payload = write(stage.folder.path(), "payload.json", r#"{"by": "ada"}"#);
    let sent = stage.run(&["executions", "signal", "t", "first", "--payload", &payload, "--id", "s-1"]);
    assert_eq!(told(&sent), (0, "t has the signal first (event 4)\n"));
    let again = stage.run(&["executions", "signal", "t", "first", "--payload", &payload, "--id", "s-1", "-o", "jsonl"]);
    assert_eq!(told(&again), (0, "{\"seq\":4,\"run\":1}\n"));
    let raised = stage.run(&["executions", "update", "t", "raise", "--payload", "3", "-o", "json"]);
    assert_eq!((raised.code, &raised.json()["result"]), (0, &json!(4)), "{raised:?}");
    let asked = stage.run(&["executions", "query", "t", "state"]);
    assert_eq!(told(&asked), (0, "{\"first\":{\"by\":\"ada\"},\"second\":null}\n"));

    for (arguments, code, says) in [
        (&["executions", "signal", "t", "second", "--payload", "{"][..], 2, "--payload is not valid JSON"),
        (&["executions", "signal", "t", "third"], 4, "UNKNOWN_SIGNAL"),
        (&["executions", "update", "t", "raise", "--payload", "30"], 1, "UPDATE_REJECTED"),
        (&["executions", "query", "t", "nothing"], 4, "UNKNOWN_QUERY"),
        (&["executions", "terminate", "nobody"], 4, "UNKNOWN_EXECUTION"),
    ] {
        let ended = stage.run(arguments);
        assert_eq!((ended.code, ended.stderr.contains(says)), (code, true), "{arguments:?}: {ended:?}");
    }

    let terminated = stage.run(&["executions", "terminate", "t", "--reason", "it hangs", "-o", "json"]);
    assert_eq!((terminated.code, &terminated.json()["status"]), (0, &json!("terminated")), "{terminated:?}");
    let waited = stage.run(&["executions", "wait", "t"]);
    assert_eq!(waited.code, 5, "{waited:?}");
    assert!(waited.stderr.contains("execution t ended as terminated (it hangs)"), "{waited:?}");
    assert!(stage.run(&["why", "t"]).stdout.contains("it was terminated at "), "{why:?}");
    let history = stage.run(&["executions", "history", "t"]).stdout;
    assert!(history.contains("raise 3 → 4") && history.contains("1 signal or update was not taken"), "{history}");

    stage.start("Brief", "b", Value::Null).await;
    let waited = stage.run(&["executions", "wait", "b"]);
    assert_eq!((waited.code, waited.stderr.contains("ended as timed_out")), (5, true), "{waited:?}");
    let listed = stage.run(&["executions", "list", "--status", "timed_out", "-o", "ids"]);
    assert_eq!(told(&listed), (0, "b\n"));
    assert!(stage.run(&["why", "b"]).stdout.contains("within its workflow's `timeout`"));
    assert_eq!(stage.run(&["executions", "list", "--status", "terminated", "-o", "ids"]).stdout, "t\n");
}
