//! What rows become of histories.

use super::*;
use orbit_core::execution::event::ResultKind;
use orbit_core::id::{Seq, SessionId, Token};
use serde_json::json;
use std::sync::Arc;
use uuid::Uuid;

fn definition() -> Value {
    json!({"steps": [{"id": "a", "task": "t"}, {"id": "b", "sleep": "1s"}, {"id": "c", "compute": 1}]})
}

fn history(events: Vec<(i64, Event)>) -> Vec<Recorded> {
    let recorded = |(index, (at, event)): (usize, (i64, Event))| Recorded {
        seq: Seq(index as u64 + 1),
        at_ms: ClusterMs(at),
        event,
    };
    events.into_iter().enumerate().map(recorded).collect()
}

fn token() -> Token {
    Token { execution: "e".into(), id: Uuid::nil() }
}

fn scheduled(attempt: u32, redelivery: bool) -> Event {
    let input = Arc::new(Value::Null);
    Event::StepScheduled { step: "a".into(), attempt, input, idempotency_key: "k".into(), redelivery }
}

fn dispatched(attempt: u32) -> Event {
    Event::StepDispatched {
        step: "a".into(),
        attempt,
        token: token(),
        worker_id: "w".into(),
        worker_session: SessionId(Uuid::nil()),
        deadline_ms: None,
        redelivery: false,
    }
}

fn succeeded(step: &str, from_worker: bool) -> Event {
    let output = Arc::new(Value::Null);
    Event::StepSucceeded { step: step.into(), attempt: 1, output, token: from_worker.then(token) }
}

fn attempt_failed(attempt: u32) -> Event {
    let error = TaskError::retryable("OOPS", "");
    Event::StepAttemptFailed { step: "a".into(), attempt, error, token: Some(token()) }
}

fn run(from: i64, to: i64, attempt: u32, how: How) -> Mark {
    Mark::Run { from, to, attempt, worker: "w".into(), how }
}

#[test]
fn attempts_and_the_waits_between_them_follow_each_other() {
    let retry = Event::RetryScheduled { step: "a".into(), next_attempt: 2, delay_ms: 20, fire_at_ms: ClusterMs(60) };
    let events = history(vec![
        (10, scheduled(1, false)),
        (20, dispatched(1)),
        (40, attempt_failed(1)),
        (40, retry),
        (60, scheduled(2, false)),
        (60, dispatched(2)),
        (90, succeeded("a", true)),
    ]);
    let timeline = Timeline::of(&events, &definition(), ClusterMs(90), false);
    let row = &timeline.rows[0];
    let marks = [
        Mark::Queue { from: 10, to: 20 },
        run(20, 40, 1, How::Failed),
        Mark::Retry { from: 40, to: 60 },
        Mark::Queue { from: 60, to: 60 },
        run(60, 90, 2, How::Succeeded),
    ];
    assert_eq!(row.marks, marks);
    assert_eq!((&row.state, row.attempts, row.took()), (&State::Succeeded, 2, 80));
    assert_eq!(timeline.rows[1].state, State::Waiting);
}

#[test]
fn a_delivery_whose_outcome_is_not_known_is_offered_again() {
    let uncertain =
        Event::StepAttemptUncertain { step: "a".into(), attempt: 1, reason: "silent".into(), token: token() };
    let events = history(vec![
        (0, scheduled(1, false)),
        (0, dispatched(1)),
        (50, uncertain),
        (50, scheduled(1, true)),
        (70, succeeded("a", true)),
    ]);
    let row = Timeline::of(&events, &definition(), ClusterMs(70), false).rows.remove(0);
    let marks = [
        Mark::Queue { from: 0, to: 0 },
        run(0, 50, 1, How::Uncertain),
        Mark::Redelivery { at: 50 },
        Mark::Point { at: 70, how: How::Succeeded, text: "result of an earlier delivery".into() },
        Mark::Queue { from: 50, to: 70 },
    ];
    assert_eq!(row.marks, marks);
    assert_eq!(row.redeliveries, 1);
    assert!(row.state_shown(true).into_string().contains("1 redelivery"));
}

#[test]
fn what_is_open_goes_on_until_now() {
    let timer = Event::TimerStarted { step: "b".into(), fire_at_ms: ClusterMs(1_000) };
    let events = history(vec![(0, scheduled(1, false)), (5, dispatched(1)), (5, timer)]);
    let rows = Timeline::of(&events, &definition(), ClusterMs(100), false).rows;
    assert_eq!(rows[0].marks.last(), Some(&run(5, 100, 1, How::Open)));
    assert_eq!(rows[1].marks, [Mark::Timer { from: 5, to: 100 }]);
    assert_eq!(rows[1].state, State::Sleeping(1_000));
}

#[test]
fn steps_that_no_worker_runs_are_points() {
    let skipped = Event::StepSkipped { step: "a".into(), reason: "`when` is false".into() };
    let stale = Event::StaleResultIgnored { step: "x".into(), token: token(), outcome: ResultKind::Failed };
    let events = history(vec![(0, skipped), (1, succeeded("c", false)), (2, stale)]);
    let rows = Timeline::of(&events, &definition(), ClusterMs(2), false).rows;
    assert_eq!(rows[0].state, State::Skipped);
    assert_eq!(rows[2].marks, [Mark::Point { at: 1, how: How::Succeeded, text: "computed".into() }]);
    // A step that the definition does not have gets a row all the same.
    assert_eq!((rows[3].step.as_str(), rows.len()), ("x", 4));
}

#[test]
fn what_was_sent_and_what_waits_for_it_is_shown() {
    let awaited = Event::SignalAwaited { step: "a".into(), signal: "go".into(), deadline_ms: None };
    let received =
        Event::SignalReceived { signal: "go".into(), payload: Arc::new(Value::Null), signal_id: None, carried: None };
    let consumed = Event::SignalConsumed { step: "a".into(), signal: "go".into(), received: Seq(2) };
    let events = history(vec![(5, awaited), (40, received), (40, consumed)]);
    let open = Timeline::of(&events[..1], &definition(), ClusterMs(30), false).rows.remove(0);
    assert_eq!(open.marks, [Mark::Wait { from: 5, to: 30, signal: "go".into() }]);
    assert_eq!(open.state, State::Awaiting("go".into()));
    let rows = Timeline::of(&events, &definition(), ClusterMs(50), false).rows;
    assert_eq!((rows[0].step.as_str(), &rows[0].state), ("signals", &State::Received(1)));
    assert_eq!(rows[0].marks, [Mark::Point { at: 40, how: How::Received, text: "go (event 2)".into() }]);
    let took = Mark::Point { at: 40, how: How::Succeeded, text: "took go of event 2".into() };
    assert_eq!(rows[1].marks, [took, Mark::Wait { from: 5, to: 40, signal: "go".into() }]);
    assert_eq!(rows[1].state, State::Succeeded);
}

#[test]
fn a_child_is_shown_like_an_attempt_at_a_worker() {
    let child = || "e~a".into();
    let scheduled = Event::ChildScheduled {
        step: "a".into(),
        attempt: 1,
        child: child(),
        workflow: "W".into(),
        version: None,
        input: Arc::new(Value::Null),
    };
    let started =
        Event::ChildStarted { step: "a".into(), attempt: 1, child: child(), version: "1".into(), deadline_ms: None };
    let error = TaskError::last("CHILD_CANCELLED", "");
    let failed = Event::ChildFailed { step: "a".into(), attempt: 1, child: child(), error };
    let events = history(vec![(5, scheduled), (5, started), (30, failed)]);
    let running = Timeline::of(&events[..2], &definition(), ClusterMs(20), false).rows.remove(0);
    assert_eq!((running.state, running.child.as_deref()), (State::Child, Some("e~a")));
    let row = Timeline::of(&events, &definition(), ClusterMs(40), true).rows.remove(0);
    assert_eq!(row.marks, [Mark::Run { from: 5, to: 30, attempt: 1, worker: "e~a".into(), how: How::Failed }]);
    assert_eq!(row.state, State::Failed("CHILD_CANCELLED".into()));
}

#[test]
fn a_step_with_items_lasts_until_they_have_ended() {
    let items = vec![Arc::new(json!(1)), Arc::new(json!(2))];
    let events =
        history(vec![(5, Event::StepFanOut { step: "a".into(), items }), (9, Event::StepFanIn { step: "a".into() })]);
    let begun = Timeline::of(&events[..1], &definition(), ClusterMs(7), false).rows.remove(0);
    assert_eq!((begun.marks, begun.state), (vec![Mark::Items { from: 5, to: 7 }], State::Items(2)));
    let row = Timeline::of(&events, &definition(), ClusterMs(20), true).rows.remove(0);
    assert_eq!((row.marks, row.state), (vec![Mark::Items { from: 5, to: 9 }], State::Succeeded));
}

#[test]
fn a_final_failure_is_told_once() {
    let events = history(vec![
        (0, scheduled(1, false)),
        (1, dispatched(1)),
        (9, attempt_failed(1)),
        (9, Event::StepFailed { step: "a".into(), error: TaskError::last("OOPS", "") }),
    ]);
    let row = Timeline::of(&events, &definition(), ClusterMs(9), false).rows.remove(0);
    assert_eq!(row.marks, [Mark::Queue { from: 0, to: 1 }, run(1, 9, 1, How::Failed)]);
    assert_eq!(row.state, State::Failed("OOPS".into()));
}
