//! Signals, updates and queries as clients see them, and what continue-as-new keeps of them.

use crate::bench::{Bench, code};
use orbit_core::api::request::{Message, ReportForm, Request, TaskOutcome};
use orbit_core::api::response::{Reply, Response};
use orbit_core::execution::event::Event;
use orbit_core::id::{Run, Seq};
use orbit_core::node::Input;
use orbit_core::store::append::Status;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

fn talk() -> Bench {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "Talk", "version": "1",
        "signals": {"go": {"payload": {"type": "object", "required": ["by"]}}, "note": {}},
        "updates": {"raise": {"payload": {"type": "number"}, "when": "${ event > 0 }", "result": "${ event * 2 }"}},
        "queries": {"state": {"first": "${ steps.first.output }", "who": "${ input.who }"}, "bad": "${ input.nobody }"},
        "steps": [{"id": "first", "await": "go"}, {"id": "second", "await": "raise"}],
        "result": ["${ steps.first.output.by }", "${ steps.second.output }"]}));
    bench.start("Talk", "t", json!({"who": "ann"}));
    bench
}

fn seq(response: &Response) -> u64 {
    match &response.reply {
        Reply::Signalled(signalled) => signalled.seq.0,
        Reply::Updated(updated) => updated.seq.0,
        other => panic!("a number, not {other:?}"),
    }
}

fn update(bench: &mut Bench, payload: Value, key: Option<&str>) -> Response {
    let update = Message { name: "raise".into(), payload: Arc::new(payload), key: key.map(Into::into) };
    bench.ask(Request::Update { execution: "t".into(), update })
}

fn query(bench: &mut Bench, name: &str) -> Response {
    bench.ask(Request::Query { execution: "t".into(), name: name.into() })
}

#[test]
fn a_signal_is_answered_with_its_number_and_a_repetition_with_that_of_the_first() {
    let mut bench = talk();
    let first = seq(&bench.signal("t", "go", json!({"by": "ann"}), Some("k")));
    let again = bench.signal("t", "go", json!({"by": "ann"}), Some("k"));
    assert_eq!(seq(&again), first);
    let other = seq(&bench.signal("t", "go", json!({"by": "bob"}), Some("k-2")));
    assert!(other > first);
    assert_eq!(code(&bench.signal("t", "note", json!(1), Some("k"))), "SIGNAL_ID_CONFLICT");
    // Even after the end.
    update(&mut bench, json!(1), None);
    assert_eq!(bench.status("t"), "completed");
    assert_eq!(seq(&bench.signal("t", "go", json!({"by": "ann"}), Some("k"))), first);
    assert_eq!(code(&bench.signal("t", "go", json!({"by": "ann"}), None)), "EXECUTION_FINISHED");
    let received =
        |event: &&orbit_core::execution::event::Recorded| matches!(event.event, Event::SignalReceived { .. });
    assert_eq!(bench.events("t", None).iter().filter(received).count(), 2);
}

#[test]
fn what_is_undeclared_or_does_not_match_is_refused_with_what_would_be_right() {
    let mut bench = talk();
    let undeclared = bench.signal("t", "goo", json!(1), None);
    assert_eq!((code(&undeclared), undeclared.status), ("UNKNOWN_SIGNAL", 404));
    assert!(matches!(&undeclared.reply, Reply::Error(e) if e.message.contains("did you mean `go`?")), "{undeclared:?}");
    let wrong = bench.signal("t", "go", json!({}), None);
    assert_eq!((code(&wrong), wrong.status), ("SIGNAL_PAYLOAD_INVALID", 422));
    assert_eq!(code(&bench.signal("nobody", "go", json!(1), None)), "UNKNOWN_EXECUTION");
    let update = |bench: &mut Bench, payload| update(bench, payload, None);
    assert_eq!(code(&update(&mut bench, json!("x"))), "UPDATE_PAYLOAD_INVALID");
    assert_eq!(code(&update(&mut bench, json!(-1))), "UPDATE_REJECTED");
    assert_eq!(code(&query(&mut bench, "stat")), "UNKNOWN_QUERY");
    assert_eq!(code(&query(&mut bench, "bad")), "QUERY_FAILED");
    let kinds = bench.history("t");
    assert_eq!(kinds, ["WorkflowCreated", "WorkflowStarted", "SignalAwaited"], "nothing of it is recorded");
}

#[test]
fn an_update_is_answered_once_it_is_durable_and_its_repetition_with_the_same() {
    let mut bench = talk();
    bench.signal("t", "go", json!({"by": "ann"}), None);
    bench.hold = true;
    let message = Message { name: "raise".into(), payload: Arc::new(json!(4)), key: Some("u".into()) };
    let id = bench.send(Request::Update { execution: "t".into(), update: message });
    assert!(!bench.responses.contains_key(&id), "it is not durable");
    bench.release();
    let response = bench.answer(id);
    assert!(matches!(&response.reply, Reply::Updated(u) if *u.result == json!(8)), "{response:?}");
    let again = update(&mut bench, json!(5), Some("u"));
    assert_eq!(again, response);
    assert_eq!(*bench.view("t").output.expect("completed"), json!(["ann", 4]));
}

#[test]
fn the_id_of_an_update_is_not_that_of_a_signal_of_its_name() {
    let mut bench = talk();
    assert_eq!(update(&mut bench, json!(4), Some("u")).status, 200);
    assert_eq!(code(&bench.signal("t", "raise", json!(4), Some("u"))), "SIGNAL_ID_CONFLICT");
    assert_eq!(code(&bench.signal("t", "raise", json!(4), Some("v"))), "UNKNOWN_SIGNAL");
}

#[test]
fn a_query_reads_what_is_there_in_memory_or_not_running_or_not() {
    let mut bench = talk();
    let state = |bench: &mut Bench| match query(bench, "state").reply {
        Reply::Queried(queried) => queried.result,
        other => panic!("a result, not {other:?}"),
    };
    assert_eq!(*state(&mut bench), json!({"first": null, "who": "ann"}));
    bench.restart();
    bench.signal("t", "go", json!({"by": "bob"}), None);
    assert_eq!(*state(&mut bench), json!({"first": {"by": "bob"}, "who": "ann"}));
    update(&mut bench, json!(1), None);
    bench.restart();
    assert_eq!(*state(&mut bench), json!({"first": {"by": "bob"}, "who": "ann"}));
}

#[test]
fn past_their_bound_signals_are_refused_until_some_are_taken() {
    let mut bench = Bench::with(|config| config.limits.max_pending_signals = 2);
    bench.deploy(json!({"name": "Talk", "version": "1", "signals": {"go": {}},
        "steps": [{"id": "work", "task": "task.1"}, {"id": "one", "await": "go"}, {"id": "two", "await": "go"},
            {"id": "three", "await": "go"}]}));
    bench.start("Talk", "t", json!(null));
    (0..2).for_each(|n| assert_eq!(bench.signal("t", "go", json!(n), None).status, 200));
    let full = bench.signal("t", "go", json!(2), None);
    assert_eq!((code(&full), full.status), ("RESOURCE_EXHAUSTED", 429));
    let session = bench.register("w");
    bench.work(session, |_| TaskOutcome::Succeeded(Arc::new(json!(null))));
    assert_eq!(bench.signal("t", "go", json!(2), None).status, 200);
    assert_eq!(bench.status("t"), "completed");
}

/// Counts signals, five in a run.
fn counter() -> Bench {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "Counter", "version": "1", "signals": {"tick": {}, "stop": {}},
        "queries": {"so_far": "${ input.count }"},
        "steps": [
            {"id": "a", "await": "tick"}, {"id": "b", "await": "tick"}, {"id": "c", "await": "tick"},
            {"id": "nap", "sleep": "1s"},
            {"id": "next", "when": "${ input.count < 9 }", "continue_as_new": {"count": "${ input.count + 3 }",
                "seen": "${ input.seen + [steps.a.output, steps.b.output, steps.c.output] }"}}],
        "result": {"count": "${ input.count + 3 }", "seen": "${ input.seen }"}}));
    bench.start("Counter", "c", json!({"count": 0, "seen": []}));
    bench
}

#[test]
fn continue_as_new_carries_what_was_not_taken_and_earlier_runs_can_be_read() {
    let mut bench = counter();
    let mut told = Vec::new();
    for n in 0..12 {
        told.push(seq(&bench.signal("c", "tick", json!(n), Some(&format!("k-{n}")))));
    }
    for _ in 0..4 {
        bench.pass(Duration::from_secs(2));
    }
    let view = bench.view("c");
    assert_eq!((view.item.status.as_str(), view.item.run.0), ("completed", 4));
    let output = view.output.expect("completed");
    assert_eq!(*output, json!({"count": 12, "seen": [0, 1, 2, 3, 4, 5, 6, 7, 8]}), "each once, in order");
    // Keys are known over the runs, with the first numbers.
    for (n, told) in told.iter().enumerate() {
        assert_eq!(seq(&bench.signal("c", "tick", json!(n), Some(&format!("k-{n}")))), *told);
    }
    for run in 1..=3 {
        let events = bench.events("c", Some(run));
        let last = &events.last().expect("events").event;
        assert!(matches!(last, Event::WorkflowContinuedAsNew { next_run, .. } if next_run.0 == run + 1), "{last:?}");
        assert!(events.iter().zip(1..).all(|(event, number)| event.seq.0 == number));
    }
    let carried: Vec<_> = bench
        .events("c", Some(2))
        .into_iter()
        .filter_map(|event| match event.event {
            Event::SignalReceived { carried, .. } => carried,
            _ => None,
        })
        .collect();
    assert_eq!(carried.len(), 9);
    assert!(carried.iter().all(|carried| carried.run.0 == 1));
    let counters = bench.counters();
    assert_eq!((counters.executions_started, counters.executions_continued_as_new), (1, 3));
    let never =
        Request::GetHistory { execution: "c".into(), run: Some(Run(9)), after: Seq(0), limit: 10, max_bytes: u32::MAX };
    assert_eq!(code(&bench.ask(never)), "UNKNOWN_EXECUTION", "it has never had so many runs");
}

#[test]
fn a_run_that_ends_while_signals_arrive_loses_none_whenever_the_server_dies() {
    for kill_at in 0..8 {
        let mut bench = counter();
        let mut sent = 0;
        for turn in 0..14 {
            if sent < 12 {
                let signal = format!("k-{sent}");
                bench.hold = turn % 8 == kill_at;
                let message =
                    Message { name: "tick".into(), payload: Arc::new(json!(sent)), key: Some(signal.clone()) };
                let id = bench.send(Request::Signal { execution: "c".into(), signal: message.clone() });
                if bench.hold {
                    // It dies before the append, or after it and before its reply.
                    if turn % 2 == 0
                        && let Some((_, transaction)) = bench.held.pop_front()
                    {
                        bench.run(transaction);
                    }
                    bench.restart();
                    bench.pass(Duration::from_millis(10));
                    let again = bench.ask(Request::Signal { execution: "c".into(), signal: message });
                    assert_eq!(again.status, 200, "{again:?}");
                } else {
                    assert_eq!(bench.answer(id).status, 200);
                }
                sent += 1;
            }
            bench.pass(Duration::from_millis(400));
        }
        for _ in 0..4 {
            bench.pass(Duration::from_secs(2));
        }
        let output = bench.view("c").output.expect("completed");
        assert_eq!(output["seen"], json!([0, 1, 2, 3, 4, 5, 6, 7, 8]), "killed at {kill_at}");
    }
}

#[test]
fn a_workflow_that_goes_on_for_ever_without_waiting_does_so_append_by_append() {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "Loop", "version": "1", "steps": [
        {"id": "next", "when": "${ input < 50 }", "continue_as_new": "${ input + 1 }"}], "result": "${ input }"}));
    bench.start("Loop", "l", json!(0));
    let view = bench.view("l");
    assert_eq!((view.item.run.0, view.output.as_deref()), (51, Some(&json!(50))));
}

#[test]
fn a_long_history_suggests_to_continue_as_new_before_it_is_too_long() {
    let mut bench = Bench::with(|config| config.limits.max_history_events = 40);
    bench.deploy(json!({"name": "Long", "version": "1", "steps": [
        {"id": "all", "for": "${ range(8) | list }", "parallel": 1, "do": {"task": "task.1"}},
        {"id": "next", "when": "${ execution.continue_suggested and execution.run < 3 }", "continue_as_new": "${ input }"}],
        "result": "${ execution.run }"}));
    bench.start("Long", "l", json!(null));
    let session = bench.register("w");
    for _ in 0..3 {
        bench.work(session, |_| TaskOutcome::Succeeded(Arc::new(json!(null))));
    }
    assert_eq!(bench.view("l").output.as_deref(), Some(&json!(3)));
}

#[test]
fn a_next_run_whose_input_does_not_match_the_schema_does_not_begin() {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "Loop", "version": "1", "input": {"type": "object", "required": ["n"]},
        "steps": [{"id": "next", "continue_as_new": {"m": "${ input.n }"}}]}));
    bench.start("Loop", "l", json!({"n": 1}));
    let view = bench.view("l");
    let error = view.error.expect("failed");
    assert_eq!((view.item.run.0, error.code.as_str()), (1, "INPUT_CONTRACT_VIOLATION"));
    assert!(error.message.contains("input"), "{error:?}");
}

#[test]
fn the_newest_keys_of_senders_go_along_over_many_runs_and_the_oldest_are_forgotten() {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "Many", "version": "1", "signals": {"tick": {}}, "steps": [
        {"id": "all", "for": "${ range(50) | list }", "parallel": 1, "do": {"await": "tick"}},
        {"id": "next", "continue_as_new": "${ input + 50 }"}]}));
    bench.start("Many", "m", json!(0));
    let padding = "k".repeat(2_000);
    let signal = |bench: &mut Bench, n: u64| bench.signal("m", "tick", json!(n), Some(&format!("{padding}{n}")));
    let numbers: Vec<u64> = (0..1_000).map(|n| seq(&signal(&mut bench, n))).collect();
    let view = bench.view("m");
    assert_eq!((view.item.run.0, &*view.input), (21, &json!(1_000)));
    // About 1 MiB of keys is kept: some five hundred of these.
    for n in [999, 900, 600] {
        assert_eq!(seq(&signal(&mut bench, n)), numbers[n as usize], "{n}");
    }
    let first = bench.events("m", None)[0].encode().len();
    assert!((900_000..1_200_000).contains(&first), "the first event has {first} bytes");
    assert_ne!(seq(&signal(&mut bench, 10)), numbers[10], "forgotten, and taken as a new one");
}

#[test]
fn an_update_whose_answer_is_too_large_is_not_taken() {
    let mut bench = Bench::with(|config| config.limits.max_payload_bytes = 100);
    bench
        .deploy(json!({"name": "Echo", "version": "1", "updates": {"raise": {"result": "${ [event, event, event] }"}},
        "steps": [{"id": "a", "await": "raise"}]}));
    bench.start("Echo", "t", json!(null));
    let large = update(&mut bench, json!("x".repeat(50)), Some("u"));
    assert_eq!(code(&large), "UPDATE_REJECTED");
    assert!(matches!(&large.reply, Reply::Error(e) if e.message.contains("max_payload_bytes")), "{large:?}");
    assert_eq!(bench.history("t"), ["WorkflowCreated", "WorkflowStarted", "SignalAwaited"], "nothing is recorded");
    assert_eq!(update(&mut bench, json!("x"), Some("u")).status, 200);
}

#[test]
fn a_start_that_is_repeated_in_a_later_run_is_the_same_start_and_another_input_is_not() {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "Loop", "version": "1", "signals": {"stop": {}}, "steps": [
        {"id": "next", "when": "${ input.n < 3 }", "continue_as_new": {"n": "${ input.n + 1 }"}},
        {"id": "end", "await": "stop"}]}));
    let started = bench.start("Loop", "l", json!({"n": 0}));
    assert_eq!((started.status, bench.view("l").item.run.0), (201, 4));
    let restart = |bench: &mut Bench| {
        let again = bench.start("Loop", "l", json!({"n": 0}));
        assert_eq!(again.status, 200, "{again:?}");
        assert!(matches!(&again.reply, Reply::Started(started) if !started.created), "{again:?}");
        // What the newest run was given is not what the execution was started with.
        assert_eq!(code(&bench.start("Loop", "l", json!({"n": 3}))), "EXECUTION_ID_CONFLICT");
    };
    restart(&mut bench);
    bench.restart();
    restart(&mut bench);
    bench.signal("l", "stop", json!(null), None);
    assert_eq!(bench.status("l"), "completed");
    restart(&mut bench);
}

#[test]
fn a_worker_whose_result_ends_a_run_is_not_told_to_stop_what_it_has_done() {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "Loop", "version": "1", "steps": [
        {"id": "work", "task": "task.1"},
        {"id": "next", "when": "${ input < 2 }", "continue_as_new": "${ input + 1 }"}]}));
    let session = bench.register("w");
    bench.start("Loop", "l", json!(0));
    for run in 1..=3 {
        let task = bench.take(session);
        let results = vec![Bench::result(&task.token, json!(null))];
        let report = Request::Report { session, results, form: ReportForm::Batch };
        assert_eq!(bench.ask(report).status, 200);
        let beat = bench.ask(Request::Heartbeat { session, holding: None });
        assert!(matches!(&beat.reply, Reply::Heartbeat(cancels) if cancels.cancel.is_empty()), "run {run}: {beat:?}");
    }
    assert_eq!(bench.status("l"), "completed");
}

#[test]
fn an_update_that_is_answered_with_null_is_answered_so_again_in_a_later_run() {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "Loop", "version": "1", "updates": {"raise": {}}, "steps": [
        {"id": "raised", "await": "raise"},
        {"id": "next", "when": "${ input < 1 }", "continue_as_new": "${ input + 1 }"}]}));
    bench.start("Loop", "t", json!(0));
    let first = update(&mut bench, json!(7), Some("u"));
    assert_eq!((first.status, bench.view("t").item.run.0), (200, 2));
    assert_eq!(update(&mut bench, json!(7), Some("u")), first);
    bench.restart();
    assert_eq!(update(&mut bench, json!(7), Some("u")), first);
}

#[test]
fn an_execution_that_continues_as_new_at_once_for_ever_takes_in_what_is_asked_of_it() {
    let mut bench = Bench::new();
    let next = json!({"id": "next", "continue_as_new": {"n": "${ execution.run }"}});
    let signals = json!({"note": {}});
    bench.deploy(json!({"name": "Forever", "version": "1", "signals": signals, "steps": [next]}));
    bench.hold = true;
    let start = bench.send_start("Forever", "e", json!({}));
    let write = |bench: &mut Bench| {
        let (call, transaction) = bench.held.pop_front().expect("it goes on and on");
        let reply = bench.run(transaction);
        bench.give(Input::Store { call, reply, origin: None });
    };
    for _ in 0..5 {
        write(&mut bench);
    }
    assert_eq!(bench.answer(start).status, 201);
    let note = Message { name: "note".into(), payload: Arc::new(json!(1)), key: Some("k".into()) };
    let signal = bench.send(Request::Signal { execution: "e".into(), signal: note });
    let terminate = bench.send(Request::Terminate { execution: "e".into(), reason: None });
    for _ in 0..4 {
        if !bench.held.is_empty() {
            write(&mut bench);
        }
    }
    assert_eq!(bench.answer(signal).status, 200);
    let Reply::Terminated(view) = bench.answer(terminate).reply else { panic!("it is terminated") };
    assert_eq!(view.item.status, Status::Terminated);
    assert!(bench.held.is_empty(), "nothing goes on");
}
