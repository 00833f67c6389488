//! Ends that are not good ones: failure, cancel, time-out, terminate; compensation and handlers.

use crate::machine::Machine;
use orbit_core::execution::event::{CompensationOutcome, Event};
use orbit_core::execution::{Command, Refusal, admit};
use serde_json::{Value, json};

fn trip(on: Value) -> Machine {
    let undo = |task: &str| json!({"task": task, "input": {"of": "${ output }"}});
    let document = json!({"name": "Trip", "version": "1", "timeout": "1h", "steps": [
        {"id": "car", "task": "car.book", "compensate": undo("car.free")},
        {"id": "hotel", "task": "hotel.book", "compensate": undo("hotel.free")},
        {"id": "note", "task": "note"},
        {"id": "flight", "task": "flight.book", "compensate": undo("flight.free")}], "on": on});
    Machine::of(&document, json!({"who": "ann"}))
}

/// Up to the flight, which is scheduled.
fn booked(on: Value) -> Machine {
    let mut machine = trip(on);
    machine.done("car", json!("c"));
    machine.done("hotel", json!("h"));
    machine.done("note", json!(null));
    machine
}

fn last(machine: &Machine) -> &Event {
    &machine.events.last().expect("events").event
}

#[test]
fn what_was_done_is_undone_in_reverse_one_after_the_other_and_what_cannot_be_is_not() {
    let mut machine = booked(json!({}));
    machine.fails("flight");
    assert_eq!(machine.scheduled(), ["compensate:hotel"]);
    let input = machine.state.units["compensate:hotel"].input.clone().expect("scheduled");
    assert_eq!(*input, json!({"of": "h"}));
    machine.done("compensate:hotel", json!(null));
    assert_eq!(machine.scheduled(), ["compensate:car"]);
    machine.done("compensate:car", json!(null));
    match last(&machine) {
        Event::WorkflowFailed { error, compensation, .. } => {
            assert_eq!((error.code.as_str(), error.step.clone()), ("BROKEN", Some("flight".into())));
            assert_eq!(*compensation, Some(CompensationOutcome::Completed));
        }
        other => panic!("{other:?}"),
    }
    machine.check();
}

#[test]
fn one_that_cannot_be_undone_does_not_keep_the_others_from_it_and_is_named() {
    let mut machine = booked(json!({}));
    machine.fails("flight");
    machine.fails("compensate:hotel");
    machine.done("compensate:car", json!(null));
    let names = machine.names_from("StepFailed compensate:hotel");
    assert_eq!(names.last().map(String::as_str), Some("WorkflowFailed"));
    assert!(names.contains(&"CompensationFailed hotel".to_owned()), "{names:?}");
    assert!(matches!(last(&machine), Event::WorkflowFailed { compensation: Some(CompensationOutcome::Failed), .. }));
    machine.check();
}

#[test]
fn a_cancel_undoes_and_then_its_handler_runs_with_the_reason() {
    let tell = json!({"cancel": [{"id": "tell", "task": "tell", "input": {
        "why": "${ failure.reason }: ${ failure.message }", "car": "${ steps.car.output }",
        "flight": "${ steps.flight.output }", "code": "${ failure.code }"}}], "failure": [{"id": "no", "task": "no"}]});
    let mut machine = booked(tell);
    assert!(machine.command(Command::Cancel { reason: Some("no longer wanted".into()) }));
    assert_eq!(machine.scheduled(), ["compensate:hotel"], "the flight is not wanted any more");
    // Nothing else begins the end again.
    let again = admit(&machine.definition, &machine.state, &Command::Cancel { reason: None }, machine.now);
    assert_eq!(again, Err(Refusal::Ending));
    machine.done("compensate:hotel", json!(null));
    machine.done("compensate:car", json!(null));
    let input = machine.state.units["on_cancel/tell"].input.clone().expect("scheduled");
    let expected = json!({"why": "cancelled: no longer wanted", "car": "c", "flight": null, "code": "CANCELLED"});
    assert_eq!(*input, expected);
    machine.done("on_cancel/tell", json!(null));
    let names = machine.names_from("CompensationCompleted");
    assert_eq!(
        names,
        [
            "CompensationCompleted",
            "HandlerStarted on_cancel",
            "StepScheduled on_cancel/tell",
            "StepDispatched on_cancel/tell",
            "StepSucceeded on_cancel/tell",
            "HandlerCompleted on_cancel",
            "WorkflowCancelled"
        ]
    );
    machine.check();
}

#[test]
fn a_handler_that_fails_is_recorded_and_the_execution_ends_as_it_would_have() {
    let on = json!({"failure": [
        {"id": "page", "task": "page", "after": []}, {"id": "mail", "task": "mail", "after": []},
        {"id": "both", "compute": 1, "after": ["page", "mail"]}]});
    let mut machine = trip(on);
    machine.fails("car");
    assert_eq!(machine.scheduled(), ["on_failure/mail", "on_failure/page"]);
    machine.fails("on_failure/page");
    let names = machine.names_from("StepFailed on_failure/page");
    assert_eq!(
        names,
        ["StepFailed on_failure/page", "StepCancelled on_failure/mail", "HandlerFailed on_failure", "WorkflowFailed"]
    );
    assert!(
        matches!(last(&machine), Event::WorkflowFailed { error, compensation: None, .. } if error.code == "BROKEN")
    );
    machine.check();
}

#[test]
fn a_workflow_that_takes_longer_than_its_timeout_winds_down_as_timed_out() {
    let mut machine = booked(json!({"timeout": [{"id": "tell", "compute": "${ failure.code }"}]}));
    machine.pass(3_600_000 - 1);
    assert_eq!(machine.scheduled(), ["flight"]);
    machine.pass(1);
    assert_eq!(machine.scheduled(), ["compensate:hotel"]);
    machine.done("compensate:hotel", json!(null));
    machine.done("compensate:car", json!(null));
    assert!(matches!(last(&machine), Event::WorkflowTimedOut { .. }));
    assert_eq!(machine.state.status().as_str(), "timed_out");
    machine.check();
}

#[test]
fn terminate_ends_at_once_without_undoing_anything_whatever_is_under_way() {
    for winding_down in [false, true] {
        let mut machine = booked(json!({"cancel": [{"id": "tell", "task": "tell"}]}));
        if winding_down {
            assert!(machine.command(Command::Cancel { reason: None }));
            machine.hand_out("compensate:hotel");
        }
        assert!(machine.command(Command::Terminate { reason: Some("stuck".into()) }));
        assert!(matches!(last(&machine), Event::WorkflowTerminated { .. }));
        assert_eq!(machine.state.status().as_str(), "terminated");
        assert_eq!(machine.state.cancel_reason(), Some("stuck"));
        assert_eq!(machine.state.open_tokens().count() + machine.state.scheduled().count(), 0);
        machine.check();
    }
}

#[test]
fn a_result_that_cannot_be_computed_undoes_what_was_done() {
    let document = json!({"name": "W", "version": "1", "steps": [
        {"id": "a", "task": "t", "compensate": {"task": "u"}}], "result": "${ input.missing.field }"});
    let mut machine = Machine::of(&document, json!({}));
    machine.done("a", json!(1));
    assert_eq!(machine.scheduled(), ["compensate:a"]);
    machine.done("compensate:a", json!(null));
    assert!(matches!(last(&machine), Event::WorkflowFailed { error, .. } if error.code == "EXPRESSION_ERROR"));
    machine.check();
}

#[test]
fn a_bound_that_is_met_while_undoing_fails_that_unit_alone() {
    let mut machine = booked(json!({}));
    machine.fails("flight");
    // The input of the first one is too large: what a server records instead.
    let unit = Some("compensate:hotel".into());
    let command = Command::PayloadTooLarge { unit, what: "the input of compensate:hotel".into(), max: 10 };
    assert!(machine.command(command));
    assert_eq!(machine.scheduled(), ["compensate:car"]);
    machine.done("compensate:car", json!(null));
    assert!(machine.state.has_ended());
    machine.check();
}
