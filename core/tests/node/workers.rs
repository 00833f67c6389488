//! Workers: direct dispatch, queue, silence, redelivery, late results, cancel lists.

use crate::bench::{Bench, code};
use orbit_core::api::request::{ReportForm, Request};
use orbit_core::api::response::{Accepted, Reply, Response};
use orbit_core::execution::event::Event;
use orbit_core::id::Seq;
use orbit_core::node::Input;
use serde_json::json;
use std::time::Duration;

#[test]
fn six_tasks_cost_seven_appends_when_a_worker_waits() {
    let mut bench = Bench::new();
    bench.deploy_chain(6);
    let session = bench.register("w");
    let mut waiting = bench.send(Bench::poll_request(session, Some(vec![]), vec![]));
    bench.start("Chain", "e", json!({"n": 1}));
    for n in 1..=6 {
        let polled = bench.polled(waiting);
        let task = &polled.tasks[0];
        assert_eq!(task.task_name.as_str(), format!("task.{n}"));
        assert_eq!((task.attempt, task.redelivery), (1, false));
        let results = vec![Bench::result(&task.token, json!(n))];
        waiting = bench.send(Bench::poll_request(session, Some(vec![]), results));
    }
    let last = bench.polled(waiting);
    assert_eq!(last.outcomes[0].outcome, Accepted::Accepted);
    assert_eq!(bench.status("e"), "completed");
    let counters = bench.counters();
    assert_eq!((counters.appends, counters.tasks_dispatched_directly), (7, 6));
    assert!(bench.store.tasks().next().is_none(), "no task was queued");
}

#[test]
fn tasks_that_nobody_waits_for_are_queued_and_taken_oldest_first() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    for n in 0..3 {
        bench.start("Chain", &format!("e{n}"), json!({"n": n}));
        bench.pass(Duration::from_millis(10));
    }
    assert_eq!(bench.store.tasks().count(), 3);
    let session = bench.register("w");
    let mut holding = vec![];
    for n in 0..3 {
        let task = bench.poll(session, &holding).tasks.remove(0);
        assert_eq!((task.execution_id.as_str(), task.redelivery), (format!("e{n}").as_str(), false));
        holding.push(task.token);
    }
    assert_eq!(bench.store.tasks().count(), 0);
}

#[test]
fn a_silent_workers_task_is_delivered_again_with_the_same_key_and_its_late_result_counts() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let silent = bench.register("silent");
    let first = bench.take(silent);
    bench.pass(Duration::from_secs(20));
    let other = bench.register("other");
    bench.pass(Duration::from_secs(11));
    let second = bench.take(other);
    assert_eq!(first.idempotency_key, second.idempotency_key);
    assert_eq!((second.attempt, second.redelivery), (1, true));
    assert_ne!(first.token, second.token);
    // The first worker was only slow: it registers again and reports.
    let back = bench.register("silent");
    let results = vec![Bench::result(&first.token, json!("late"))];
    let report = Request::Report { session: back, results, form: ReportForm::Single };
    let response = bench.ask(report);
    assert!(matches!(&response.reply, Reply::ReportedOne(o) if o.outcome == Accepted::Accepted), "{response:?}");
    assert_eq!(bench.status("e"), "completed");
    // The other one is told to stop, and its result is stale.
    let polled = bench.poll(other, std::slice::from_ref(&second.token));
    assert_eq!(polled.cancel, vec![second.token.clone()]);
    let results = vec![Bench::result(&second.token, json!("too late"))];
    let report = Request::Report { session: other, results, form: ReportForm::Single };
    assert!(matches!(bench.ask(report).reply, Reply::ReportedOne(o) if o.outcome == Accepted::Stale));
    assert_eq!(bench.history("e").iter().filter(|e| *e == "StepSucceeded").count(), 1);
}

#[test]
fn a_result_that_is_reported_twice_is_a_duplicate() {
    let mut bench = Bench::new();
    bench.deploy_chain(2);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    let task = bench.take(session);
    for expected in [Accepted::Accepted, Accepted::Duplicate] {
        let results = vec![Bench::result(&task.token, json!(1))];
        let report = Request::Report { session, results, form: ReportForm::Batch };
        let response = bench.ask(report);
        assert!(matches!(&response.reply, Reply::Reported(o) if o[0].outcome == expected), "{response:?}");
    }
}

#[test]
fn results_for_tokens_that_never_were_are_refused() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    for execution in ["e", "nowhere"] {
        let token = format!("{execution}/00000000-0000-0000-0000-000000000001").parse().expect("a token");
        let results = vec![Bench::result(&token, json!(1))];
        let response = bench.ask(Request::Report { session, results, form: ReportForm::Single });
        assert_eq!((code(&response), response.status), ("UNKNOWN_TOKEN", 404));
    }
}

#[test]
fn a_task_whose_answer_did_not_arrive_is_answered_again_and_says_so() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    let lost = bench.take(session);
    let again = bench.take(session);
    assert_eq!((&again.token, again.redelivery), (&lost.token, true));
    // Once it is named, it is not answered any more.
    let waiting = bench.send(Bench::poll_request(session, Some(vec![again.token.clone()]), vec![]));
    assert!(!bench.responses.contains_key(&waiting));
    assert_eq!(bench.history("e").iter().filter(|e| *e == "StepDispatched").count(), 1);
}

#[test]
fn an_answer_that_could_not_be_written_is_uncertain_at_once_for_a_worker_that_lists_nothing() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    let poll = bench.send(Bench::poll_request(session, None, vec![]));
    let first = bench.polled(poll).tasks.remove(0);
    bench.give(Input::AnswerLost(poll));
    // The next poll tells it to stop what it may have begun; the one after brings the task again.
    let poll = bench.send(Bench::poll_request(session, None, vec![]));
    assert_eq!(bench.polled(poll).cancel, vec![first.token.clone()]);
    let poll = bench.send(Bench::poll_request(session, None, vec![]));
    let second = bench.polled(poll).tasks.remove(0);
    assert!(second.redelivery && second.token != first.token && second.attempt == 1, "{second:?}");
}

#[test]
fn a_poll_that_is_given_up_leaves_its_task_to_the_sessions_next() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    let session = bench.register("w");
    let gone = bench.send(Bench::poll_request(session, Some(vec![]), vec![]));
    bench.hold = true;
    bench.send_start("Chain", "e", json!({"n": 1}));
    bench.give(Input::RequestGone(gone));
    bench.release();
    let task = bench.take(session);
    assert!(!task.redelivery, "no earlier answer carried it: {task:?}");
}

#[test]
fn a_worker_that_registers_again_after_a_restart_keeps_what_it_names() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    let task = bench.take(session);
    bench.restart();
    assert_eq!(code(&bench.ask(Bench::poll_request(session, Some(vec![]), vec![]))), "UNKNOWN_SESSION");
    let session = bench.register("w");
    for _ in 0..10 {
        bench.pass(Duration::from_secs(10));
        let beat = Request::Heartbeat { session, holding: Some(vec![task.token.clone()]) };
        assert!(matches!(bench.ask(beat).reply, Reply::Heartbeat(c) if c.cancel.is_empty()));
    }
    assert!(!bench.history("e").contains(&"StepAttemptUncertain".to_string()));
}

#[test]
fn a_delivery_that_nobody_names_after_a_restart_is_delivered_again_one_session_later() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    let first = bench.take(session);
    bench.restart();
    bench.pass(Duration::from_secs(29));
    assert!(!bench.history("e").contains(&"StepAttemptUncertain".to_string()));
    bench.pass(Duration::from_secs(2));
    let session = bench.register("w2");
    let second = bench.take(session);
    assert!(second.redelivery && second.idempotency_key == first.idempotency_key, "{second:?}");
}

#[test]
fn a_cancelled_executions_worker_is_told_at_once_through_its_waiting_poll() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    let task = bench.take(session);
    let waiting = bench.send(Bench::poll_request(session, Some(vec![task.token.clone()]), vec![]));
    let cancelled = bench.ask(Request::Cancel { execution: "e".into(), reason: None });
    assert!(matches!(&cancelled.reply, Reply::Cancelled(v) if v.item.status.as_str() == "cancelled"));
    assert_eq!(bench.polled(waiting).cancel, vec![task.token]);
    let again = bench.ask(Request::Cancel { execution: "e".into(), reason: None });
    assert!(matches!(&again.reply, Reply::Cancelled(v) if v.item.status.as_str() == "cancelled"), "{again:?}");
    assert_eq!(bench.history("e").iter().filter(|event| *event == "CancelRequested").count(), 1);
}

#[test]
fn a_cancel_of_what_has_ended_otherwise_says_how() {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "Quick", "version": "1", "steps": [{"id": "one", "compute": 1}]}));
    bench.start("Quick", "e", json!(null));
    let refused = bench.ask(Request::Cancel { execution: "e".into(), reason: None });
    assert_eq!(code(&refused), "EXECUTION_FINISHED");
    assert!(format!("{refused:?}").contains("it is completed"), "{refused:?}");
}

#[test]
fn the_registry_tells_when_a_worker_that_lives_was_heard_of_last() {
    let mut bench = Bench::new();
    let session = bench.register("w");
    let seen = |bench: &mut Bench| match bench.ask(Request::ListWorkers).reply {
        Reply::Workers(workers) => workers.workers[0].last_seen_ms.0,
        other => panic!("workers, not {other:?}"),
    };
    let registered = seen(&mut bench);
    bench.pass(Duration::from_secs(7));
    bench.ask(Request::Heartbeat { session, holding: None });
    bench.pass(Duration::from_secs(2));
    let moved = seen(&mut bench) - registered;
    assert!((6_900..=7_100).contains(&moved), "{moved}");
}

#[test]
fn a_cancel_while_a_claim_is_under_way_leaves_no_row_and_hands_nothing_out() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    bench.hold = true;
    let poll = bench.send(Bench::poll_request(session, Some(vec![]), vec![]));
    let cancel = bench.send(Request::Cancel { execution: "e".into(), reason: None });
    assert_eq!(bench.held.len(), 2, "claim and append");
    bench.release();
    assert_eq!(bench.answer(cancel).status, 200);
    assert_eq!(bench.store.tasks().count(), 0);
    bench.pass(Duration::from_secs(21));
    assert!(bench.polled(poll).tasks.is_empty());
}

#[test]
fn an_unregistered_workers_task_is_delivered_again_at_once() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    bench.take(session);
    let other = bench.register("other");
    let waiting = bench.send(Bench::poll_request(other, Some(vec![]), vec![]));
    bench.ask(Request::Unregister { session });
    let polled = bench.polled(waiting);
    assert!(polled.tasks[0].redelivery, "{polled:?}");
}

#[test]
fn a_poll_whose_results_have_no_outcome_in_time_is_told_so_and_its_task_is_not_lost() {
    let mut bench = Bench::new();
    bench.deploy_chain(2);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    let task = bench.take(session);
    bench.hold = true;
    let results = vec![Bench::result(&task.token, json!(1))];
    let poll = bench.send(Bench::poll_request(session, Some(vec![]), results));
    bench.pass(Duration::from_secs(11));
    let response = bench.answer(poll);
    assert_eq!(code(&response), "OUTCOME_UNKNOWN");
    bench.release();
    bench.pass(Duration::from_secs(2));
    let next = bench.take(session);
    assert_eq!((next.task_name.as_str(), next.redelivery), ("task.2", false));
}

#[test]
fn sessions_and_what_they_register_are_bounded_and_there_is_room_again_once_one_ends() {
    let mut bench = Bench::with(|config| config.limits.max_worker_sessions = 2);
    let first = bench.register("a");
    bench.register("a");
    let refused = bench.ask(Bench::register_request("b"));
    assert_eq!((code(&refused), refused.status, refused.retry_after), ("RESOURCE_EXHAUSTED", 429, Some(1)));
    assert!(matches!(&refused.reply, Reply::Error(e) if e.message.contains("2 worker sessions")
        && e.details["limit"] == "max_worker_sessions"));
    bench.ask(Request::Unregister { session: first });
    bench.register("b");
    bench.pass(Duration::from_secs(31));
    bench.register("c");
    bench.register("d");

    let mut bench = Bench::with(|config| config.limits.max_worker_contracts = 20);
    let first = bench.register("a");
    bench.register("b");
    let refused = bench.ask(Bench::register_request("c"));
    assert_eq!((code(&refused), refused.status), ("RESOURCE_EXHAUSTED", 429));
    assert!(matches!(&refused.reply, Reply::Error(e) if e.details["limit"] == "max_worker_contracts"));
    bench.ask(Request::Unregister { session: first });
    bench.register("c");
}

#[test]
fn polls_that_wait_are_bounded_for_a_session_and_for_all() {
    let mut bench = Bench::with(|config| {
        config.limits.max_session_polls = 2;
        config.limits.max_waiting_polls = 3;
    });
    let (a, b) = (bench.register("a"), bench.register("b"));
    let poll = |bench: &mut Bench, session| {
        let id = bench.send(Bench::poll_request(session, None, vec![]));
        bench.responses.remove(&id)
    };
    let limit = |response: Option<Response>| match response.map(|r| (r.status, r.reply)) {
        Some((429, Reply::Error(error))) => error.details["limit"].as_str().expect("a name").to_owned(),
        other => panic!("refused, not {other:?}"),
    };
    assert!(poll(&mut bench, a).is_none() && poll(&mut bench, a).is_none());
    assert_eq!(limit(poll(&mut bench, a)), "max_session_polls");
    assert!(poll(&mut bench, b).is_none());
    assert_eq!(limit(poll(&mut bench, b)), "max_waiting_polls");
    bench.pass(Duration::from_secs(21));
    assert!(poll(&mut bench, a).is_none(), "there is room again");
}

#[test]
fn a_worker_that_only_polls_is_not_lost_however_long_it_wants_to_wait() {
    let mut bench = Bench::with(|config| config.session_timeout = Duration::from_secs(10));
    let session = bench.register("w");
    for _ in 0..4 {
        let id = bench.send(Bench::poll_request(session, None, vec![]));
        let asked = bench.responses.len();
        bench.pass(Duration::from_secs(5));
        assert_eq!(bench.responses.len(), asked + 1, "it is answered after half the session's time");
        assert!(bench.polled(id).tasks.is_empty());
    }
}

#[test]
fn a_delivery_whose_session_ends_while_it_is_recorded_says_so() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    let session = bench.register("w");
    bench.send(Bench::poll_request(session, Some(vec![]), vec![]));
    bench.hold = true;
    bench.send_start("Chain", "e", json!({"n": 1}));
    bench.ask(Request::Unregister { session });
    bench.release();
    bench.pass(Duration::from_secs(1));
    let request =
        Request::GetHistory { execution: "e".into(), run: None, after: Seq(0), limit: 100, max_bytes: u32::MAX };
    let Reply::History(history) = bench.ask(request).reply else { panic!("a history") };
    let why = history.events.iter().find_map(|recorded| match &recorded.event {
        Event::StepAttemptUncertain { reason, .. } => Some(reason.as_str()),
        _ => None,
    });
    assert_eq!(why, Some("its worker's session ended before it could be handed over"));
    let other = bench.register("other");
    assert_eq!(bench.take(other).execution_id, "e".into());
}
