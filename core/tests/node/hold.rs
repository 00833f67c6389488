//! `--recovery hold`: what has an attempt out when a server takes over waits until somebody recovers it.

use crate::bench::{Bench, code};
use orbit_core::api::Response;
use orbit_core::api::request::{ReportForm, Request};
use orbit_core::api::response::{Accepted, Health, Reply};
use orbit_core::cluster::Recovery;
use orbit_core::execution::event::Event;
use orbit_core::id::{SessionId, Token};
use orbit_core::node::LogEvent;
use serde_json::json;
use std::time::Duration;

/// A step that is charged, one that is packed at the same time, and one that follows both.
fn order() -> Request {
    Request::deploy(json!({"name": "Order", "version": "1", "signals": {"note": {}}, "steps": [
        {"id": "charge", "task": "task.1", "timeout": "1m", "compensate": {"task": "task.9"}},
        {"id": "pack", "task": "task.2", "after": [], "queue_timeout": "1m"},
        {"id": "nap", "sleep": "10s", "after": []},
        {"id": "ship", "task": "task.3", "after": ["charge", "pack", "nap"]},
    ]}))
}

/// The order `e`, of which the charge is out.
fn charging() -> (Bench, Token) {
    let mut bench = Bench::with(|config| config.recovery = Recovery::Hold);
    bench.ask(order());
    bench.start("Order", "e", json!(null));
    let session = bench.register("w");
    let task = bench.take(session);
    assert_eq!(task.step_id.as_str(), "charge");
    (bench, task.token)
}

/// The same after another server has taken over.
fn held() -> (Bench, Token) {
    let (mut bench, token) = charging();
    bench.restart();
    assert_eq!(bench.status("e"), "held");
    (bench, token)
}

fn recover(bench: &mut Bench, execution: &str) -> Response {
    bench.ask(Request::Recover { execution: execution.into(), reason: None })
}

fn report(bench: &mut Bench, session: SessionId, token: &Token) -> Accepted {
    let results = vec![Bench::result(token, json!("done"))];
    match bench.ask(Request::Report { session, results, form: ReportForm::Batch }).reply {
        Reply::Reported(outcomes) => outcomes[0].outcome,
        other => panic!("an outcome, not {other:?}"),
    }
}

fn health(bench: &mut Bench) -> Health {
    match bench.ask(Request::Health).reply {
        Reply::Health(health) => health,
        other => panic!("health, not {other:?}"),
    }
}

/// What it is that a session is given, and whether it is said to be a repeat.
fn tasks(bench: &mut Bench, session: SessionId) -> Vec<(String, bool)> {
    let mut tasks = Vec::new();
    loop {
        let id = bench.send(Bench::poll_request(session, None, vec![]));
        if !bench.responses.contains_key(&id) {
            bench.give(orbit_core::node::Input::RequestGone(id));
            tasks.sort();
            return tasks;
        }
        for task in bench.polled(id).tasks {
            tasks.push((task.step_id.as_str().into(), task.redelivery));
        }
    }
}

fn names(tasks: &[(String, bool)]) -> Vec<(&str, bool)> {
    tasks.iter().map(|(name, repeat)| (name.as_str(), *repeat)).collect()
}

#[test]
fn a_server_that_takes_over_holds_what_has_an_attempt_out_and_goes_on_with_the_rest() {
    let (mut bench, _) = charging();
    bench.start("Order", "queued", json!(null));
    bench.restart();
    let events = bench.events("e", None);
    let Some(Event::WorkflowHeld { repeats, .. }) = events.last().map(|e| &e.event) else { panic!("{events:?}") };
    assert_eq!(repeats, &["charge".into()]);
    let view = bench.view("e");
    assert_eq!(view.item.status.as_str(), "held");
    assert_eq!(view.reason.as_deref(), Some("attempts were out when server `n` took over at term 2"));
    assert_eq!(bench.status("queued"), "running");
    assert_eq!(health(&mut bench).held_executions, 1);
    assert!(bench.logs.iter().any(|line| matches!(line, LogEvent::ExecutionHeld { repeats: 1, .. })));
    let session = bench.register("w2");
    let tasks = tasks(&mut bench, session);
    assert_eq!(names(&tasks), [("charge", false), ("pack", false)], "they are those of `queued`");
    bench.start("Order", "new", json!(null));
    assert_eq!(bench.status("new"), "running", "what begins now is not held");
}

#[test]
fn nothing_happens_by_itself_to_what_is_held_however_long_it_takes() {
    let (mut bench, _) = held();
    let before = bench.history("e");
    bench.pass(Duration::from_secs(7_200));
    let mut expected = before.clone();
    expected.push("StepAttemptUncertain".into());
    assert_eq!(bench.history("e"), expected, "only that its worker was never heard of again");
    assert_eq!(bench.status("e"), "held");
}

#[test]
fn a_result_that_comes_late_is_taken_and_nothing_follows_until_it_is_recovered() {
    let (mut bench, token) = held();
    let session = bench.register("w");
    assert_eq!(report(&mut bench, session, &token), Accepted::Accepted);
    assert_eq!(code_of_signal(&mut bench), 200);
    assert_eq!(bench.status("e"), "held");
    assert!(tasks(&mut bench, session).is_empty());
    assert_eq!(recover(&mut bench, "e").status, 200);
    let tasks = tasks(&mut bench, session);
    assert_eq!(names(&tasks), [("pack", false)], "nobody had that one");
    assert_eq!(bench.status("e"), "running");
    assert_eq!(health(&mut bench).held_executions, 0);
}

fn code_of_signal(bench: &mut Bench) -> u16 {
    bench.signal("e", "note", json!(1), None).status
}

#[test]
fn what_was_out_is_delivered_again_as_a_repeat_once_it_is_recovered_though_its_time_is_over() {
    let (mut bench, _) = held();
    bench.pass(Duration::from_secs(600));
    let session = bench.register("w");
    assert!(tasks(&mut bench, session).is_empty());
    let response = recover(&mut bench, "e");
    let Reply::Recovered(view) = &response.reply else { panic!("{response:?}") };
    assert_eq!((view.item.status.as_str(), view.reason.as_deref()), ("running", None));
    let tasks = tasks(&mut bench, session);
    assert_eq!(names(&tasks), [("charge", true), ("pack", false)], "neither has waited for too long");
    let history = bench.history("e");
    assert!(history.contains(&"TimerFired".into()) && !history.contains(&"StepAttemptFailed".into()), "{history:?}");
}

#[test]
fn one_that_is_recovered_before_its_worker_is_given_up_is_that_workers_still() {
    let (mut bench, token) = held();
    assert_eq!(recover(&mut bench, "e").status, 200);
    let session = bench.register("w");
    assert_eq!(names(&tasks(&mut bench, session)), [("pack", false)]);
    assert_eq!(report(&mut bench, session, &token), Accepted::Accepted);
}

#[test]
fn a_hold_outlives_another_takeover_whatever_that_server_is_to_do() {
    for recovery in [Recovery::Hold, Recovery::Auto] {
        let (mut bench, _) = held();
        let before = bench.history("e");
        bench.config.recovery = recovery;
        bench.restart();
        assert_eq!((bench.status("e"), bench.history("e")), ("held".into(), before));
        assert_eq!(health(&mut bench).held_executions, 1);
        assert_eq!(recover(&mut bench, "e").status, 200);
        bench.pass(Duration::from_secs(31));
        let session = bench.register("w");
        assert_eq!(names(&tasks(&mut bench, session)), [("charge", true), ("pack", false)]);
    }
}

#[test]
fn a_server_that_is_to_go_on_holds_nothing() {
    let (mut bench, token) = charging();
    bench.config.recovery = Recovery::Auto;
    bench.restart();
    let session = bench.register("w");
    assert_eq!(bench.status("e"), "running");
    assert_eq!(report(&mut bench, session, &token), Accepted::Accepted);
}

#[test]
fn only_what_is_held_is_recovered() {
    let (mut bench, _) = held();
    bench.start("Order", "other", json!(null));
    assert_eq!(code(&recover(&mut bench, "other")), "NOT_HELD");
    assert_eq!(code(&recover(&mut bench, "nobody")), "UNKNOWN_EXECUTION");
    assert_eq!(recover(&mut bench, "e").status, 200);
    assert_eq!(code(&recover(&mut bench, "e")), "NOT_HELD");
    bench.ask(Request::Terminate { execution: "e".into(), reason: None });
    assert_eq!(code(&recover(&mut bench, "e")), "EXECUTION_FINISHED");
}

#[test]
fn what_is_held_is_cancelled_and_terminated_like_anything_else() {
    let (mut bench, token) = held();
    let session = bench.register("w");
    report(&mut bench, session, &token);
    assert_eq!(bench.ask(Request::Cancel { execution: "e".into(), reason: None }).status, 200);
    assert_eq!(names(&tasks(&mut bench, session)), [("compensate:charge", false)], "it is undone");
    let (mut bench, _) = held();
    assert_eq!(bench.ask(Request::Terminate { execution: "e".into(), reason: None }).status, 200);
    assert_eq!(bench.status("e"), "terminated");
    assert_eq!(health(&mut bench).held_executions, 0);
}

#[test]
fn what_waited_when_a_replica_was_promoted_is_a_repeat_after_the_hold_too() {
    let (mut bench, _) = charging();
    bench.store.doubt_tasks();
    bench.restart();
    assert_eq!(bench.status("e"), "held");
    bench.pass(Duration::from_secs(31));
    assert_eq!(recover(&mut bench, "e").status, 200);
    let session = bench.register("w");
    assert_eq!(names(&tasks(&mut bench, session)), [("charge", true), ("pack", true)]);
}

#[test]
fn what_is_held_waits_for_its_recovery_and_says_so() {
    let (mut bench, token) = held();
    let reasons = |bench: &mut Bench| -> Vec<String> {
        let waiting = serde_json::to_value(bench.view("e").waiting).expect("JSON");
        let all = waiting.as_array().expect("a list").iter();
        all.map(|one| format!("{} {}", one["step_id"].as_str().unwrap(), one["reason"].as_str().unwrap())).collect()
    };
    assert_eq!(reasons(&mut bench), ["charge running", "pack held", "nap held"]);
    let charge = serde_json::to_value(&bench.view("e").waiting[0]).expect("JSON");
    assert_eq!(
        (&charge["deadline_ms"], &charge["offered_again_ms"]),
        (&json!(null), &json!(null)),
        "none of it happens"
    );
    let session = bench.register("w");
    report(&mut bench, session, &token);
    assert_eq!(reasons(&mut bench), ["pack held", "nap held"]);
}
