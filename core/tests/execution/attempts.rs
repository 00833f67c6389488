//! Attempts of tasks: deliveries, late results, retries; and sleeps.

use crate::machine::Machine;
use crate::random::{Kind, Op, StepPlan, definition};
use orbit_core::definition::Definition;
use orbit_core::execution::State;
use orbit_core::execution::event::{Event, Recorded};
use orbit_core::id::UnitKey;
use orbit_core::time::ClusterMs;
use serde_json::json;

#[test]
fn a_late_failure_of_an_older_delivery_says_nothing_about_the_newer_one() {
    let plan = StepPlan::of(Kind::Task { attempts: 3, timeout: false, queue_timeout: false });
    let mut machine = Machine::new(definition(&[plan]), 1);
    machine.run(&Op::Dispatch(0));
    machine.run(&Op::Uncertain(0));
    // In doubt and not delivered again: its failure is the attempt's.
    let mut other = machine.clone();
    other.run(&Op::Fail(0, true));
    assert!(other.events.iter().any(|e| matches!(e.event, Event::StepAttemptFailed { .. })));
    other.check();
    // Delivered again: the older delivery's failure is stale, and its success still counts.
    machine.run(&Op::Dispatch(0));
    machine.run(&Op::Fail(0, true));
    assert!(machine.events.iter().any(|e| matches!(e.event, Event::StaleResultIgnored { .. })));
    machine.run(&Op::Succeed(1));
    assert!(machine.state.has_ended());
    machine.check();
}

#[test]
fn a_late_success_of_an_earlier_attempt_is_the_steps_success() {
    let plan = StepPlan::of(Kind::Task { attempts: 3, timeout: true, queue_timeout: false });
    let mut machine = Machine::new(definition(&[plan]), 1);
    machine.run(&Op::Dispatch(0));
    machine.run(&Op::Time(2_000));
    machine.run(&Op::Time(1_000));
    machine.run(&Op::Dispatch(0));
    machine.run(&Op::Succeed(0));
    let succeeded = machine.events.iter().find_map(|e| match &e.event {
        Event::StepSucceeded { attempt, .. } => Some(*attempt),
        _ => None,
    });
    assert_eq!(succeeded, Some(1));
    assert!(machine.state.has_ended());
    machine.check();
}

#[test]
fn a_sleep_takes_a_whole_number_of_milliseconds_however_it_is_written() {
    let sleeping = |sleep: &str| {
        let document =
            json!({"name": "Sleepy", "version": "1", "steps": [{"id": "a", "sleep": format!("${{ {sleep} }}")}]});
        Machine::new(Definition::from_document(&document).expect("a valid document"), 1_000)
    };
    for sleep in ["input.n + 500", "input.n * 1.5", "input.n * 3 / 2"] {
        let machine = sleeping(sleep);
        let started = Event::TimerStarted { step: UnitKey::new("a"), fire_at_ms: ClusterMs(2_500) };
        assert_eq!(machine.events.last().map(|recorded| &recorded.event), Some(&started), "{sleep}");
        machine.check();
    }
    for sleep in ["input.n / 3", "0 - input.n"] {
        let machine = sleeping(sleep);
        let last = machine.events.last().map(|recorded| &recorded.event);
        assert!(matches!(last, Some(Event::WorkflowFailed { .. })), "{sleep}: {last:?}");
    }
}

#[test]
fn a_dispatch_of_another_attempt_than_the_scheduled_one_means_nothing() {
    let plan = StepPlan::of(Kind::Task { attempts: 1, timeout: false, queue_timeout: false });
    let mut machine = Machine::new(definition(&[plan]), 1);
    machine.run(&Op::Dispatch(0));
    let Some(Recorded { event: Event::StepDispatched { attempt, .. }, .. }) = machine.events.last_mut() else {
        panic!("it was dispatched")
    };
    *attempt = 0;
    let state = State::fold(&crate::machine::EXECUTION.into(), &machine.events).expect("a history");
    assert_eq!(state.open_tokens().count(), 0);
    assert_eq!(state.scheduled().count(), 1, "it still waits for a worker");
}
