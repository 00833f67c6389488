//! What an execution waits for, and what waits in the queue.

use crate::bench::Bench;
use orbit_core::api::request::{Request, TaskOutcome, TaskResult};
use orbit_core::api::response::{ExecutionView, QueueView, Reply};
use orbit_core::execution::TaskError;
use orbit_core::execution::waiting::Reason;
use serde_json::{Value, json};
use std::time::Duration;

fn view(bench: &mut Bench, execution: &str) -> ExecutionView {
    match bench.ask(Request::GetExecution(execution.into())).reply {
        Reply::Execution(view) => view,
        other => panic!("an execution, not {other:?}"),
    }
}

/// The reason of each open step.
fn reasons(bench: &mut Bench, execution: &str) -> Vec<Value> {
    let waiting = view(bench, execution).waiting;
    waiting.iter().map(|one| serde_json::to_value(one).expect("JSON")["reason"].clone()).collect()
}

fn queue(bench: &mut Bench) -> QueueView {
    match bench.ask(Request::Metrics).reply {
        Reply::Metrics(metrics) => metrics.queue,
        other => panic!("metrics, not {other:?}"),
    }
}

fn by_task(queue: &QueueView) -> Vec<(&str, u64)> {
    queue.by_task.iter().map(|(name, count)| (name.as_str(), *count)).collect()
}

#[test]
fn a_step_says_what_it_waits_for_from_its_queue_to_its_retry() {
    let mut bench = Bench::new();
    let retry = json!({"max_attempts": 3, "initial": "1m", "jitter": "none"});
    bench.deploy(json!({"name": "W", "version": "1", "steps": [{"id": "a", "task": "task.1", "retry": retry}]}));
    bench.start("W", "e", json!(null));
    assert_eq!(reasons(&mut bench, "e"), ["no_worker"]);
    let session = bench.register("w");
    assert_eq!(reasons(&mut bench, "e"), ["queued"]);
    let task = bench.take(session);
    assert_eq!(reasons(&mut bench, "e"), ["running"]);
    let failed = TaskOutcome::Failed(TaskError::retryable("DECLINED", "no"));
    let results = vec![TaskResult { token: task.token, outcome: failed }];
    let poll = bench.send(Bench::poll_request(session, Some(vec![]), results));
    bench.polled(poll);
    bench.pass(Duration::from_secs(1));
    // It is out of memory now: what it waits for is read from its history.
    let waiting = view(&mut bench, "e").waiting;
    let Reason::Retry { attempt, .. } = &waiting[0].reason else { panic!("it waits for a retry: {waiting:?}") };
    let error = attempt.last_error.as_ref().expect("it failed");
    assert_eq!((attempt.attempt, attempt.max_attempts, error.code.as_str()), (2, 3, "DECLINED"));
    assert!(bench.ran.iter().filter(|name| **name == "load").count() > 0, "{:?}", bench.ran);
}

#[test]
fn an_execution_out_of_memory_says_until_when_it_sleeps_and_one_that_has_ended_waits_for_nothing() {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "W", "version": "1", "steps": [{"id": "nap", "sleep": "1h"}]}));
    bench.start("W", "e", json!(null));
    bench.pass(Duration::from_secs(1));
    assert_eq!(reasons(&mut bench, "e"), ["sleep"]);
    bench.pass(Duration::from_secs(3601));
    let ended = view(&mut bench, "e");
    assert_eq!((ended.item.status.as_str(), ended.waiting), ("completed", vec![]));
}

#[test]
fn a_wait_that_ends_too_soon_is_told_what_is_waited_for() {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "W", "version": "1", "steps": [{"id": "nap", "sleep": "1h"}]}));
    bench.start("W", "e", json!(null));
    let wait = bench.send(Request::Wait { execution: "e".into(), timeout: Duration::from_secs(5) });
    bench.pass(Duration::from_secs(6));
    let Reply::Execution(view) = bench.answer(wait).reply else { panic!("an execution") };
    assert_eq!(view.waiting.len(), 1);
}

#[test]
fn why_an_execution_was_cancelled_is_told_by_the_cancel_and_ever_after() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let cancel = |reason: Option<&str>| Request::Cancel { execution: "e".into(), reason: reason.map(Into::into) };
    let Reply::Cancelled(told) = bench.ask(cancel(Some("the guest has left"))).reply else { panic!("cancelled") };
    assert_eq!(told.cancel_reason.as_deref(), Some("the guest has left"));
    // It has left memory: its row does not say why, its history does.
    assert_eq!(view(&mut bench, "e").cancel_reason.as_deref(), Some("the guest has left"));
    let wait = bench.send(Request::Wait { execution: "e".into(), timeout: Duration::from_secs(5) });
    let Reply::Execution(waited) = bench.answer(wait).reply else { panic!("an execution") };
    assert_eq!(waited.cancel_reason.as_deref(), Some("the guest has left"));
    // The first reason stays.
    let Reply::Cancelled(again) = bench.ask(cancel(Some("another"))).reply else { panic!("cancelled") };
    assert_eq!(again.cancel_reason.as_deref(), Some("the guest has left"));
}

#[test]
fn the_queue_is_counted_by_task_with_the_age_of_its_oldest_over_a_restart_too() {
    let mut bench = Bench::new();
    bench.deploy_chain(2);
    bench.deploy(json!({"name": "Other", "version": "1", "steps": [{"id": "a", "task": "task.9"}]}));
    assert_eq!(queue(&mut bench), QueueView::default());
    bench.start("Chain", "e1", json!({"n": 1}));
    bench.pass(Duration::from_secs(2));
    bench.start("Chain", "e2", json!({"n": 1}));
    bench.start("Other", "o", json!(null));
    let seen = queue(&mut bench);
    assert_eq!((seen.tasks, by_task(&seen)), (3, vec![("task.1", 2), ("task.9", 1)]));
    assert_eq!(seen.oldest_ms, 2_000);
    bench.restart();
    assert_eq!(queue(&mut bench), seen);
    // One is taken, one is wanted no more, and one goes on to its next task.
    let session = bench.register("w");
    let first = bench.take(session);
    assert_eq!(first.execution_id.as_str(), "e1");
    bench.ask(Request::Cancel { execution: "o".into(), reason: None });
    let seen = queue(&mut bench);
    assert_eq!((by_task(&seen), seen.oldest_ms), (vec![("task.1", 1)], 0));
    let second = bench.poll(session, std::slice::from_ref(&first.token)).tasks.remove(0);
    assert_eq!(queue(&mut bench), QueueView::default());
    // A worker that falls silent gives them back.
    bench.pass(Duration::from_secs(31));
    assert_eq!(queue(&mut bench).tasks, 2);
    assert_ne!(first.token, second.token);
}

#[test]
fn as_many_tasks_are_counted_apart_as_the_bound_says_and_all_of_them_together() {
    let mut bench = Bench::new();
    let step = |n| json!({"id": format!("s{n}"), "task": format!("many.{n:03}"), "after": []});
    let steps: Vec<Value> = (0..QueueView::MAX_NAMES + 5).map(step).collect();
    bench.deploy(json!({"name": "W", "version": "1", "steps": steps}));
    bench.start("W", "e", json!(null));
    let seen = queue(&mut bench);
    assert_eq!((seen.tasks, seen.by_task.len()), (QueueView::MAX_NAMES as u64 + 5, QueueView::MAX_NAMES));
}
