//! Signals and updates: awaited, handled, repeated, left over.

use crate::machine::Machine;
use orbit_core::definition::Definition;
use orbit_core::execution::{Command, Event, Refusal, admit, next_wake};
use orbit_core::id::Seq;
use orbit_core::time::ClusterMs;
use serde_json::{Value, json};
use std::sync::Arc;

fn signal(name: &str, payload: Value, key: Option<&str>, max: u64) -> Command {
    Command::Signal { name: name.into(), payload: Arc::new(payload), key: key.map(Into::into), max }
}

fn waits() -> Machine {
    let document = json!({"name": "W", "version": "1", "signals": {"go": {}}, "steps": [
        {"id": "first", "await": "go"}, {"id": "second", "await": "go"}],
        "result": ["${ steps.first.output }", "${ steps.second.output }"]});
    Machine::of(&document, json!(null))
}

fn completed(machine: &Machine) -> &Value {
    match &machine.events.last().expect("events").event {
        Event::WorkflowCompleted { output, .. } => output,
        other => panic!("it ended with {other:?}"),
    }
}

#[test]
fn a_signal_that_comes_early_waits_for_the_step_that_awaits_it_and_each_is_taken_once_in_order() {
    let mut machine = waits();
    assert!(machine.send(&"go".into(), json!(1)));
    assert!(machine.send(&"go".into(), json!(2)));
    assert_eq!(completed(&machine), &json!([1, 2]));
    machine.check();
    // Both there before the first step begins.
    let document = json!({"name": "W", "version": "1", "signals": {"go": {}}, "steps": [
        {"id": "nap", "sleep": "1s"}, {"id": "a", "await": "go"}, {"id": "b", "await": "go", "after": ["nap"]}],
        "result": {"a": "${ steps.a.output }", "b": "${ steps.b.output }"}});
    let mut machine = Machine::of(&document, json!(null));
    (1..=2).for_each(|n| assert!(machine.send(&"go".into(), json!(n))));
    machine.pass(1_000);
    assert_eq!(completed(&machine), &json!({"a": 1, "b": 2}));
    machine.check();
}

#[test]
fn a_signal_is_taken_before_anything_makes_other_steps_ready_so_that_the_history_is_decided_again() {
    let document = json!({"name": "W", "version": "1", "signals": {"go": {}, "note": {}}, "steps": [
        {"id": "work", "task": "t"}, {"id": "sum", "compute": 1}, {"id": "then", "await": "go"},
        {"id": "aside", "await": "go", "after": ["work"]}, {"id": "more", "await": "note", "after": ["work"]}]});
    let mut machine = Machine::of(&document, json!(null));
    ["go", "note", "go"].iter().for_each(|name| assert!(machine.send(&(*name).into(), json!(1))));
    machine.done("work", json!(null));
    let taken = ["SignalConsumed aside", "StepSucceeded sum", "SignalConsumed then", "SignalConsumed more"];
    assert_eq!(machine.names_from("SignalConsumed aside")[..4], taken);
    machine.check();
}

#[test]
fn a_handler_begins_before_anything_lets_the_run_end_so_that_the_history_is_decided_again() {
    let document = json!({"name": "W", "version": "1", "signals": {"note": {}},
        "steps": [{"id": "sum", "compute": 1}, {"id": "next", "continue_as_new": 1}],
        "on": {"event": {"note": [{"id": "keep", "task": "t"}]}}});
    let definition = Definition::from_document(&document).expect("it is right");
    let mut machine = Machine::left(definition, json!(null), &["note"]);
    assert_eq!(machine.scheduled(), ["on_event:note@2/keep"]);
    machine.check();
    machine.done("on_event:note@2/keep", json!(null));
    assert!(machine.names().contains(&"WorkflowContinuedAsNew".to_owned()), "{:?}", machine.names());
    machine.check();
}

#[test]
fn an_await_gives_up_after_its_time_with_a_failure_or_with_what_it_says_otherwise() {
    let of = |otherwise: Option<Value>| {
        let mut step = json!({"id": "ok", "await": "go", "timeout": "5s"});
        if let Some(otherwise) = otherwise {
            step["otherwise"] = otherwise;
        }
        let document = json!({"name": "W", "version": "1", "signals": {"go": {}}, "steps": [step],
            "result": "${ steps.ok.output }"});
        let mut machine = Machine::of(&document, json!({"n": 7}));
        assert_eq!(next_wake(&machine.definition, &machine.state), Some(ClusterMs(6_000)));
        machine.pass(4_999);
        assert!(!machine.state.has_ended());
        machine.pass(1);
        machine.check();
        machine
    };
    assert_eq!(completed(&of(Some(json!({"late": "${ input.n }"})))), &json!({"late": 7}));
    let failed = of(None);
    match &failed.events.last().expect("events").event {
        Event::WorkflowFailed { error, .. } => assert_eq!(error.code, "TIMEOUT"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_nothing_took_is_named_in_the_end_and_nothing_is_taken_after_it() {
    let document = json!({"name": "W", "version": "1", "signals": {"go": {}, "more": {}}, "steps": [
        {"id": "a", "await": "go"}]});
    let mut machine = Machine::of(&document, json!(null));
    assert!(machine.send(&"more".into(), json!(1)));
    let (more, seq) = (machine.state.last, machine.state.last);
    assert!(machine.send(&"go".into(), json!(2)));
    match &machine.events.last().expect("events").event {
        Event::WorkflowCompleted { unconsumed, .. } => {
            assert_eq!(unconsumed.len(), 1);
            assert_eq!((unconsumed[0].signal.as_str(), unconsumed[0].received), ("more", more));
        }
        other => panic!("{other:?}"),
    }
    assert!(seq > Seq(0));
    let late = admit(&machine.definition, &machine.state, &signal("go", json!(3), None, 9), machine.now);
    assert_eq!(late, Err(Refusal::Finished));
}

#[test]
fn an_undeclared_signal_and_one_too_many_are_refused() {
    let machine = waits();
    let ask = |command: &Command| admit(&machine.definition, &machine.state, command, machine.now).map(|_| ());
    assert_eq!(ask(&signal("stop", json!(1), None, 9)), Err(Refusal::Undeclared));
    assert_eq!(ask(&signal("go", json!(1), None, 0)), Err(Refusal::TooMany(0)));
    assert_eq!(ask(&signal("go", json!(1), None, 1)), Ok(()));
    let update = Command::Update { name: "go".into(), payload: Arc::new(json!(1)), key: None, max: 9 };
    assert_eq!(ask(&update), Err(Refusal::Undeclared), "a signal is no update");
}

#[test]
fn a_sender_s_key_is_remembered_with_what_it_was_told() {
    let mut machine = waits();
    assert!(machine.command(signal("go", json!(1), Some("k-1"), 9)));
    let sent = machine.state.sent("k-1").expect("remembered").clone();
    assert_eq!(sent.name.as_str(), "go");
    let received = machine.events.iter().find(|e| matches!(e.event, Event::SignalReceived { .. })).expect("recorded");
    assert_eq!(sent.seq, received.seq);
}

fn with_update() -> Machine {
    let document = json!({"name": "W", "version": "1",
        "updates": {"raise": {"when": "${ event.by > 0 and event.by < input.most }",
            "result": {"before": "${ steps.first.output }", "by": "${ event.by }"}}},
        "steps": [{"id": "first", "await": "raise"}, {"id": "second", "await": "raise"}],
        "result": "${ steps.second.output.by }"});
    Machine::of(&document, json!({"most": 10}))
}

#[test]
fn an_update_is_judged_and_answered_by_the_workflow_and_then_taken_like_a_signal() {
    let mut machine = with_update();
    let update =
        |by: Value| Command::Update { name: "raise".into(), payload: Arc::new(json!({"by": by})), key: None, max: 9 };
    let ask = |machine: &Machine, by: Value| admit(&machine.definition, &machine.state, &update(by), machine.now);
    assert!(matches!(ask(&machine, json!(0)), Err(Refusal::Rejected(_))));
    assert!(matches!(ask(&machine, json!(10)), Err(Refusal::Rejected(_))));
    // Its `when` cannot be computed.
    let none = Command::Update { name: "raise".into(), payload: Arc::new(json!({})), key: None, max: 9 };
    let refused = admit(&machine.definition, &machine.state, &none, machine.now);
    assert!(
        matches!(&refused, Err(Refusal::Rejected(why)) if why.contains("`event` has no field `by`")),
        "{refused:?}"
    );
    match ask(&machine, json!(3)) {
        Ok(Event::UpdateAccepted { result, .. }) => assert_eq!(*result, json!({"before": null, "by": 3})),
        other => panic!("{other:?}"),
    }
    assert!(machine.command(update(json!(3))));
    match ask(&machine, json!(4)) {
        Ok(Event::UpdateAccepted { result, .. }) => assert_eq!(*result, json!({"before": {"by": 3}, "by": 4})),
        other => panic!("{other:?}"),
    }
    assert!(machine.command(update(json!(4))));
    assert_eq!(completed(&machine), &json!(4));
    machine.check();
}

fn with_handler() -> Machine {
    let document = json!({"name": "W", "version": "1", "signals": {"note": {}}, "steps": [
        {"id": "work", "task": "t"}], "on": {"event": {"note": [
            {"id": "keep", "task": "keep", "input": {"text": "${ event.text }", "work": "${ steps.work.output }"}},
            {"id": "count", "compute": "${ steps.keep.output + 1 }"}]}}});
    Machine::of(&document, json!(null))
}

#[test]
fn a_handler_runs_once_for_each_signal_one_after_the_other_and_the_workflow_ends_after_the_last() {
    let mut machine = with_handler();
    (1..=3).for_each(|n| assert!(machine.send(&"note".into(), json!({"text": n}))));
    let running = |machine: &Machine| {
        machine
            .scheduled()
            .into_iter()
            .filter(|unit| unit.starts_with("on_event:"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let mut runs = Vec::new();
    machine.done("work", json!("done"));
    assert!(!machine.state.has_ended(), "there is something to handle");
    for n in 1..=3 {
        let open = running(&machine);
        assert_eq!(open.len(), 1, "{open:?}");
        let unit = machine.state.units.get(open[0].as_str()).expect("scheduled");
        let input = unit.input.clone().expect("an input");
        assert_eq!(input["text"], json!(n));
        runs.push(open[0].clone());
        machine.done(&open[0], json!(n));
    }
    runs.dedup();
    assert_eq!(runs.len(), 3, "each run has units of its own");
    assert!(machine.state.has_ended());
    assert!(machine.state.handlers.is_empty(), "nothing is kept of runs that are done with");
    machine.check();
}

#[test]
fn a_step_of_an_event_s_handler_that_fails_fails_the_workflow() {
    let mut machine = with_handler();
    assert!(machine.send(&"note".into(), json!({"text": 1})));
    let unit = machine.scheduled().into_iter().find(|unit| unit.starts_with("on_event:")).expect("a run").to_owned();
    machine.fails(&unit);
    match &machine.events.last().expect("events").event {
        Event::WorkflowFailed { error, .. } => assert_eq!(error.step, Some("keep".into())),
        other => panic!("{other:?}"),
    }
    machine.check();
}

#[test]
fn what_a_handler_reads_of_the_workflow_s_steps_is_as_it_was_decided_so_that_the_history_is_decided_again() {
    // Of each kind that ends without a worker: one that ends in the answer in which the handler's steps begin.
    let ends = [
        json!({"id": "early", "compute": 1, "after": ["first"]}),
        json!({"id": "early", "task": "t", "when": "${ false }", "after": ["first"]}),
        json!({"id": "early", "await": "go", "after": ["first"]}),
        json!({"id": "early", "for": [], "do": {"task": "t"}, "after": []}),
        json!({"id": "early", "sleep": "0s", "after": []}),
    ];
    let reads = [
        json!({"id": "reads", "task": "t", "input": "${ steps.early.output is none }"}),
        json!({"id": "reads", "compute": "${ [steps.early.output] }"}),
        json!({"id": "reads", "task": "t", "when": "${ steps.early.output == 1 }"}),
        json!({"id": "reads", "sleep": "${ 5 if steps.early.output is none else 7 }"}),
        json!({"id": "reads", "for": "${ [steps.early.output] }", "do": {"task": "t", "input": "${ item }"}}),
        json!({"id": "reads", "for": [1, 2], "do": {"task": "t", "input": "${ steps.early.output }"}}),
        json!({"id": "reads", "for": [1, 2], "do": {"compute": "${ steps.early.output }"}}),
    ];
    for (end, read) in ends.iter().flat_map(|end| reads.iter().map(move |read| (end, read))) {
        // However long after the handler's beginning the step's is.
        for pauses in 0..4 {
            let pause = |n: i32| json!({"id": format!("pause{n}"), "compute": n});
            let mut handler: Vec<Value> = (0..pauses).map(pause).collect();
            handler.push(read.clone());
            let document = json!({"name": "W", "version": "1", "signals": {"go": {}, "note": {}},
                "steps": [{"id": "first", "compute": 1}, end, {"id": "last", "task": "t", "after": []}],
                "on": {"event": {"note": handler}}});
            let definition = Definition::from_document(&document).expect("it is right");
            let mut machine = Machine::left(definition, json!(null), &["go", "note"]);
            machine.check();
            machine.finish();
            machine.check();
        }
    }
}
