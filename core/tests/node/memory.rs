//! An execution is in memory only while something happens to it.

use crate::bench::{Bench, code};
use orbit_core::api::request::Request;
use orbit_core::api::response::Reply;
use orbit_core::node::Input;
use serde_json::json;
use std::time::Duration;

fn resident(bench: &mut Bench) -> u64 {
    match bench.ask(Request::Metrics).reply {
        Reply::Metrics(metrics) => metrics.resident_executions,
        other => panic!("metrics, not {other:?}"),
    }
}

fn deploy_nap(bench: &mut Bench) {
    bench.deploy(json!({
        "name": "Nap", "version": "1",
        "steps": [{"id": "nap", "sleep": "1h"}, {"id": "two", "compute": "${ 1 + 1 }"}],
        "result": "${ steps.two.output }",
    }));
}

#[test]
fn a_sleeping_execution_costs_a_row_and_wakes_on_time() {
    let mut bench = Bench::new();
    deploy_nap(&mut bench);
    for n in 0..1200 {
        bench.start("Nap", &format!("e{n}"), json!(null));
    }
    bench.pass(Duration::from_secs(1));
    assert_eq!(resident(&mut bench), 0);
    bench.pass(Duration::from_secs(3590));
    assert_eq!(bench.status("e7"), "running");
    bench.pass(Duration::from_secs(15));
    for n in [0, 7, 1199] {
        assert_eq!(bench.status(&format!("e{n}")), "completed");
    }
    assert_eq!(bench.counters().executions_completed, 1200);
    assert_eq!(resident(&mut bench), 0);
}

/// Waits for one signal after the other, with a long time-out or none.
fn deploy_listener(bench: &mut Bench, wait: serde_json::Value) {
    let mut wait = wait;
    wait["await"] = json!("go");
    bench.deploy(json!({
        "name": "Listener", "version": "1", "signals": {"go": {}},
        "steps": [{"id": "each", "for": "${ range(20) | list }", "parallel": 1, "do": wait}],
    }));
    bench.start("Listener", "l", json!(null));
}

#[test]
fn an_execution_that_signals_reach_again_and_again_is_read_once() {
    for wait in [json!({}), json!({"timeout": "1h"})] {
        let mut bench = Bench::new();
        deploy_listener(&mut bench, wait);
        bench.pass(Duration::from_secs(5));
        assert_eq!((resident(&mut bench), bench.counters().executions_parked), (0, 1));
        for n in 0..10 {
            assert_eq!(bench.signal("l", "go", json!(n), None).status, 200);
            assert_eq!(resident(&mut bench), 1);
            bench.pass(Duration::from_millis(900));
        }
        assert_eq!(bench.counters().executions_loaded, 1);
        bench.pass(Duration::from_millis(100));
        assert_eq!((resident(&mut bench), bench.counters().executions_parked), (0, 2));
        // Its row says all: another server goes on with it.
        bench.restart();
        (10..20).for_each(|n| assert_eq!(bench.signal("l", "go", json!(n), None).status, 200));
        assert_eq!(bench.status("l"), "completed");
    }
}

#[test]
fn where_memory_is_wanted_executions_do_not_rest_in_it() {
    let mut bench = Bench::with(|config| config.limits.max_resident_executions = 5);
    deploy_nap(&mut bench);
    for n in 0..20 {
        bench.start("Nap", &format!("e{n}"), json!(null));
        assert!(resident(&mut bench) <= 5);
    }
    bench.pass(Duration::from_secs(3605));
    assert_eq!(bench.counters().executions_completed, 20);
}

#[test]
fn an_execution_that_has_rested_while_nothing_is_written_after_a_failure_wakes_nobody_and_leaves_later() {
    let mut bench = Bench::new();
    deploy_listener(&mut bench, json!({}));
    deploy_nap(&mut bench);
    bench.start("Nap", "e", json!(null));
    bench.pass(Duration::from_millis(980));
    bench.failing.insert("append", 1);
    assert_eq!(code(&bench.signal("l", "go", json!(1), None)), "STORAGE_ERROR");
    bench.pass(Duration::from_millis(30));
    assert_eq!(resident(&mut bench), 2);
    bench.pass(Duration::from_millis(50));
    assert_eq!(resident(&mut bench), 1);
    assert_eq!(bench.signal("l", "go", json!(2), None).status, 200);
    bench.pass(Duration::from_secs(2));
    assert_eq!(resident(&mut bench), 0);
}

#[test]
fn a_restart_reads_no_sleeping_execution_and_wakes_them_all_the_same() {
    let mut bench = Bench::new();
    deploy_nap(&mut bench);
    bench.start("Nap", "e", json!(null));
    bench.restart();
    assert_eq!(bench.counters().executions_loaded, 0);
    bench.pass(Duration::from_secs(3605));
    assert_eq!(bench.status("e"), "completed");
    let types = bench.history("e");
    let expected =
        ["WorkflowCreated", "WorkflowStarted", "TimerStarted", "TimerFired", "StepSucceeded", "WorkflowCompleted"];
    assert_eq!(types, expected);
}

#[test]
fn queued_executions_past_the_bound_leave_memory_and_come_back_for_a_worker() {
    let mut bench = Bench::with(|config| config.limits.max_resident_executions = 5);
    bench.deploy_chain(1);
    for n in 0..20 {
        bench.start("Chain", &format!("e{n}"), json!({"n": n}));
    }
    assert_eq!(resident(&mut bench), 5);
    bench.restart();
    assert_eq!(bench.counters().executions_loaded, 5, "only those that were in memory");
    let session = bench.register("w");
    for _ in 0..20 {
        let task = bench.take(session);
        let results = vec![Bench::result(&task.token, json!(1))];
        let poll = bench.send(Bench::poll_request(session, Some(vec![]), results));
        let polled = bench.responses.remove(&poll).expect("answered with the outcome");
        if let Reply::Polled(polled) = polled.reply
            && let Some(task) = polled.tasks.first()
        {
            // It took the next one right away; it is answered again to the next poll.
            assert!(!task.redelivery);
        }
    }
    assert_eq!(bench.counters().executions_completed, 20);
}

#[test]
fn executions_that_are_large_leave_memory_before_they_are_many() {
    let mut bench = Bench::with(|config| config.limits.max_resident_bytes = 100_000);
    bench.deploy_chain(1);
    for n in 0..20 {
        bench.start("Chain", &format!("e{n}"), json!({"n": "x".repeat(20_000)}));
    }
    // Each holds its input twice: as it was started, and as its step was given it.
    assert_eq!(resident(&mut bench), 2);
    for n in 0..20 {
        bench.start("Chain", &format!("small{n}"), json!({"n": n}));
    }
    assert!(resident(&mut bench) >= 20);
    bench.restart();
    let session = bench.register("w");
    let mut holding = vec![];
    for _ in 0..40 {
        holding.push(bench.poll(session, &holding).tasks.remove(0).token);
    }
}

#[test]
fn executions_of_many_small_values_count_for_the_memory_that_they_take() {
    let mut bench = Bench::with(|config| config.limits.max_resident_bytes = 100_000);
    bench.deploy_chain(1);
    for n in 0..20 {
        // 2,000 bytes of text, and 32,000 of memory; its step is given as many.
        bench.start("Chain", &format!("e{n}"), json!({"n": vec![1; 1_000]}));
    }
    assert_eq!(resident(&mut bench), 1);
    bench.restart();
    assert_eq!(resident(&mut bench), 1, "the same where they were read");
}

#[test]
fn a_retry_waits_its_time_and_survives_a_restart() {
    let mut bench = Bench::new();
    bench.deploy(json!({
        "name": "Retry", "version": "1",
        "steps": [{"id": "t", "task": "task.1", "retry": {"max_attempts": 2, "initial": "10m", "jitter": "none"}}],
    }));
    bench.start("Retry", "e", json!(null));
    let session = bench.register("w");
    let task = bench.take(session);
    let error = orbit_core::execution::TaskError::retryable("BUSY", "come back");
    let outcome = orbit_core::api::request::TaskOutcome::Failed(error);
    let results = vec![orbit_core::api::request::TaskResult { token: task.token.clone(), outcome }];
    bench.ask(Bench::poll_request(session, Some(vec![]), results));
    bench.pass(Duration::from_secs(1));
    assert_eq!(resident(&mut bench), 0, "it waits for ten minutes in its row");
    bench.restart();
    bench.pass(Duration::from_secs(610));
    let session = bench.register("w");
    let second = bench.take(session);
    assert_eq!((second.attempt, second.redelivery), (2, false));
    assert_eq!(second.idempotency_key, task.idempotency_key);
}

#[test]
fn past_the_bound_of_running_executions_a_start_is_refused_and_says_which_bound() {
    let mut bench = Bench::with(|config| config.limits.max_active_executions = 2);
    bench.deploy_chain(1);
    bench.hold = true;
    let starts: Vec<_> = (0..3).map(|n| bench.send_start("Chain", &format!("e{n}"), json!({"n": n}))).collect();
    bench.release();
    let answers: Vec<_> = starts.into_iter().map(|id| bench.answer(id)).collect();
    assert_eq!(answers.iter().map(|a| a.status).collect::<Vec<_>>(), [201, 201, 429]);
    assert_eq!(code(&answers[2]), "RESOURCE_EXHAUSTED");
    bench.ask(Request::Cancel { execution: "e0".into(), reason: None });
    assert_eq!(bench.start("Chain", "e3", json!({"n": 3})).status, 201);
}

#[test]
fn a_history_past_its_bound_fails_its_execution() {
    let mut bench = Bench::with(|config| config.limits.max_history_events = 11);
    bench.deploy_chain(6);
    let session = bench.register("w");
    bench.start("Chain", "e", json!({"n": 1}));
    let mut holding = vec![];
    while bench.status("e") == "running" {
        let task = bench.take(session);
        let results = vec![Bench::result(&task.token, json!(1))];
        bench.ask(Request::Report { session, results, form: orbit_core::api::request::ReportForm::Batch });
        holding.push(task.token);
    }
    match bench.ask(Request::GetExecution("e".into())).reply {
        Reply::Execution(view) => assert_eq!(view.error.expect("it failed").code, "LIMIT_EXCEEDED"),
        other => panic!("an execution, not {other:?}"),
    }
    assert!(bench.history("e").len() < 20);
}

#[test]
fn a_value_that_an_expression_made_too_large_fails_its_execution() {
    let mut bench = Bench::with(|config| config.limits.max_payload_bytes = 100);
    bench.deploy(json!({
        "name": "Grow", "version": "1",
        "steps": [{"id": "big", "compute": "${ [input.text, input.text, input.text] }"}],
    }));
    bench.start("Grow", "small", json!({"text": "x".repeat(20)}));
    assert_eq!(bench.status("small"), "completed");
    bench.start("Grow", "large", json!({"text": "x".repeat(40)}));
    match bench.ask(Request::GetExecution("large".into())).reply {
        Reply::Execution(view) => {
            let error = view.error.expect("it failed");
            assert_eq!(error.code, "LIMIT_EXCEEDED");
            assert!(error.message.contains("max_payload_bytes"), "{error:?}");
        }
        other => panic!("an execution, not {other:?}"),
    }
}

#[test]
fn an_execution_that_is_under_way_does_not_count_as_idle() {
    // One group at a time, and an event more once a history has three: what is in line twice is drafted twice.
    let mut bench = Bench::with(|config| {
        config.limits.max_append_groups = 1;
        config.limits.max_history_events = 6;
    });
    bench.deploy(json!({"name": "Loop", "version": "1", "steps": [
        {"id": "next", "when": "${ execution.run < 2 }", "continue_as_new": "${ input }"},
        {"id": "nap", "sleep": "1s"}]}));
    bench.hold = true;
    bench.send_start("Loop", "l", json!(null));
    while let Some((call, transaction)) = bench.held.pop_front() {
        let reply = bench.run(transaction);
        bench.give(Input::Store { call, reply, origin: None });
        // Whatever else happens meanwhile, what is under way stays in memory.
        bench.ask(Request::Health);
    }
    bench.release();
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.status("l"), "completed");
}
