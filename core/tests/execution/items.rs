//! `for` steps: as many items at a time as they allow, their outputs in order, one that fails.

use crate::machine::Machine;
use orbit_core::execution::event::Event;
use serde_json::{Value, json};

fn ship(list: Value, parallel: u32) -> Machine {
    let document = json!({"name": "W", "version": "1", "steps": [
        {"id": "ship", "for": "${ input.list }", "parallel": parallel,
            "do": {"task": "ship", "input": {"line": "${ item.line }", "at": "${ index }"}},
            "compensate": {"task": "recall", "input": {"of": "${ item.line }", "parcel": "${ output.parcel }"}}},
        {"id": "total", "compute": "${ steps.ship.output | map(attribute='parcel') | list }"}],
        "result": "${ steps.total.output }"});
    Machine::of(&document, json!({ "list": list }))
}

fn lines(count: u32) -> Value {
    (0..count).map(|n| json!({"line": format!("l{n}")})).collect()
}

#[test]
fn no_more_items_are_under_way_than_are_allowed_and_their_outputs_keep_the_order_of_the_list() {
    let mut machine = ship(lines(5), 2);
    assert_eq!(machine.scheduled(), ["ship[0]", "ship[1]"]);
    machine.done("ship[1]", json!({"parcel": "b"}));
    assert_eq!(machine.scheduled(), ["ship[0]", "ship[2]"]);
    machine.done("ship[2]", json!({"parcel": "c"}));
    machine.done("ship[0]", json!({"parcel": "a"}));
    assert_eq!(machine.scheduled(), ["ship[3]", "ship[4]"]);
    let input = machine.state.units.get("ship[3]").and_then(|unit| unit.input.clone()).expect("scheduled");
    assert_eq!(*input, json!({"line": "l3", "at": 3}));
    machine.done("ship[4]", json!({"parcel": "e"}));
    machine.done("ship[3]", json!({"parcel": "d"}));
    match &machine.events.last().expect("events").event {
        Event::WorkflowCompleted { output, .. } => assert_eq!(**output, json!(["a", "b", "c", "d", "e"])),
        other => panic!("{other:?}"),
    }
    machine.check();
}

#[test]
fn an_empty_list_is_done_at_once_and_what_is_no_list_fails() {
    let machine = ship(json!([]), 3);
    assert!(matches!(machine.events.last().map(|e| &e.event), Some(Event::WorkflowCompleted { .. })));
    machine.check();
    let machine = ship(json!("nothing"), 3);
    match &machine.events.last().expect("events").event {
        Event::WorkflowFailed { error, .. } => {
            assert_eq!(error.code, "EXPRESSION_ERROR");
            assert!(error.message.contains("`for` must give a list"), "{}", error.message);
        }
        other => panic!("{other:?}"),
    }
    machine.check();
}

#[test]
fn computed_items_need_nobody() {
    let document = json!({"name": "W", "version": "1", "steps": [
        {"id": "squares", "for": "${ range(1000) | list }", "do": {"compute": "${ item * item + index }"}}],
        "result": "${ steps.squares.output | sum }"});
    let machine = Machine::of(&document, json!(null));
    let expected: i64 = (0..1000).map(|n| n * n + n).sum();
    match &machine.events.last().expect("events").event {
        Event::WorkflowCompleted { output, .. } => assert_eq!(**output, json!(expected)),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_item_that_fails_for_good_fails_the_step_and_those_that_were_done_are_undone() {
    let mut machine = ship(lines(4), 3);
    machine.done("ship[2]", json!({"parcel": "c"}));
    machine.done("ship[0]", json!({"parcel": "a"}));
    machine.fails("ship[1]");
    let names = machine.names_from("StepFailed ship[1]");
    let expected = [
        "StepFailed ship[1]",
        "StepFailed ship",
        "StepCancelled ship[3]",
        "CompensationStarted",
        "StepScheduled compensate:ship[0]",
    ];
    assert_eq!(names, expected);
    let input = machine.state.units.get("compensate:ship[0]").and_then(|unit| unit.input.clone()).expect("scheduled");
    assert_eq!(*input, json!({"of": "l0", "parcel": "a"}));
    machine.done("compensate:ship[0]", json!(null));
    machine.done("compensate:ship[2]", json!(null));
    match &machine.events.last().expect("events").event {
        Event::WorkflowFailed { error, .. } => assert_eq!(error.step, Some("ship".into())),
        other => panic!("{other:?}"),
    }
    machine.check();
}

#[test]
fn the_items_of_a_step_that_was_done_are_undone_with_what_each_gave() {
    let document = json!({"name": "W", "version": "1", "steps": [
        {"id": "ship", "for": ["x", "y"], "do": {"task": "ship"}, "compensate": {"task": "recall", "input": "${ output }"}},
        {"id": "last", "task": "t"}]});
    let mut machine = Machine::of(&document, json!(null));
    machine.done("ship[0]", json!("first"));
    machine.done("ship[1]", json!("second"));
    machine.fails("last");
    let input = |machine: &Machine, unit: &str| machine.state.units[unit].input.clone().expect("scheduled");
    assert_eq!(*input(&machine, "compensate:ship[1]"), json!("second"));
    machine.done("compensate:ship[1]", json!(null));
    assert_eq!(*input(&machine, "compensate:ship[0]"), json!("first"));
    machine.done("compensate:ship[0]", json!(null));
    assert!(machine.state.has_ended());
    machine.check();
}

#[test]
fn items_that_await_a_signal_take_one_each_in_order() {
    let document = json!({"name": "W", "version": "1", "signals": {"go": {}}, "steps": [
        {"id": "all", "for": "${ range(12) | list }", "parallel": 12, "do": {"await": "go", "timeout": "1h",
            "otherwise": "none for ${ item } at ${ index }"}}], "result": "${ steps.all.output }"});
    let mut machine = Machine::of(&document, json!(null));
    (0..11).for_each(|n| assert!(machine.send(&"go".into(), json!(n))));
    machine.pass(3_600_000);
    match &machine.events.last().expect("events").event {
        Event::WorkflowCompleted { output, .. } => {
            assert_eq!(**output, json!([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, "none for 11 at 11"]));
        }
        other => panic!("{other:?}"),
    }
    machine.check();
}
