//! Each type of event is described as it is written.

use crate::api::{STRICT, problems};
use orbit_core::execution::event::{
    AbortReason, Carried, CompensationOutcome, Continued, Event, Json, Parent, Recorded, ResultKind, TaskError,
    Unconsumed,
};
use orbit_core::id::{ClusterId, InputHash, Run, Seq, SessionId, Token};
use orbit_core::time::ClusterMs;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

pub fn json_of(value: Value) -> Json {
    Arc::new(value)
}

pub fn token() -> Token {
    Token { execution: "parent~each[3]".into(), id: Uuid::from_u128(7) }
}

pub fn failure() -> TaskError {
    TaskError { details: Some(json_of(json!([1]))), step: Some("a".into()), ..TaskError::last("X", "no") }
}

fn compensated(full: bool) -> Option<CompensationOutcome> {
    full.then_some(CompensationOutcome::Failed)
}

fn unconsumed(full: bool) -> Vec<Unconsumed> {
    let one = || Unconsumed { signal: "go".into(), received: Seq(4) };
    full.then(one).into_iter().collect()
}

/// Every type of event, with all that it can have; and again with as little as it can have.
pub fn events() -> Vec<Event> {
    let (step, time) = (|| "a".into(), ClusterMs(5));
    let events = |full: bool| {
        vec![
            Event::WorkflowCreated {
                workflow: "W".into(),
                version: "1".into(),
                definition_hash: "sha256:0".into(),
                input: json_of(Value::Null),
                labels: full.then(|| ("team".into(), "x".into())).into_iter().collect(),
                cluster_id: ClusterId(Uuid::nil()),
                run: Run(1),
                parent: full.then(|| Parent {
                    execution_id: "p".into(),
                    step: "a[1]".into(),
                    root: "r".into(),
                    depth: 2,
                }),
                continued: full.then(|| Continued {
                    created_at_ms: ClusterMs(1),
                    started_with: Some(InputHash::new("sha256:00")),
                    sent: Default::default(),
                }),
            },
            Event::WorkflowStarted,
            Event::StepScheduled {
                step: step(),
                attempt: 1,
                input: json_of(json!({})),
                idempotency_key: "k".into(),
                redelivery: full,
            },
            Event::StepSkipped { step: step(), reason: "no".into() },
            Event::StepDispatched {
                step: step(),
                attempt: 1,
                token: token(),
                worker_id: "w".into(),
                worker_session: SessionId(Uuid::nil()),
                deadline_ms: full.then_some(time),
                redelivery: full,
            },
            Event::StepSucceeded { step: step(), attempt: 1, output: json_of(json!(1)), token: full.then(token) },
            Event::StepAttemptFailed { step: step(), attempt: 1, error: failure(), token: full.then(token) },
            Event::StepAttemptUncertain { step: step(), attempt: 1, reason: "silent".into(), token: token() },
            Event::RetryScheduled { step: step(), next_attempt: 2, delay_ms: 1000, fire_at_ms: time },
            Event::StepFailed { step: step(), error: TaskError::retryable("X", "") },
            Event::StepCancelled { step: step() },
            Event::TimerStarted { step: step(), fire_at_ms: time },
            Event::TimerFired { step: step() },
            Event::StaleResultIgnored {
                step: step(),
                token: token(),
                outcome: if full { ResultKind::Succeeded } else { ResultKind::Failed },
            },
            Event::WorkflowHeld { reason: "attempts were out".into(), repeats: vec![step()] },
            Event::WorkflowRecovered { reason: full.then(|| "because".into()) },
            Event::CancelRequested { reason: full.then(|| "because".into()) },
            Event::StepFanOut { step: step(), items: vec![json_of(json!(1))] },
            Event::StepFanIn { step: step() },
            Event::SignalAwaited { step: step(), signal: "go".into(), deadline_ms: full.then_some(time) },
            Event::SignalConsumed { step: step(), signal: "go".into(), received: Seq(3) },
            Event::SignalReceived {
                signal: "go".into(),
                payload: json_of(json!({"by": 1})),
                signal_id: full.then(|| "k".into()),
                carried: full.then_some(Carried { run: Run(1), seq: Seq(4) }),
            },
            Event::ChildScheduled {
                step: step(),
                attempt: 1,
                child: "a~b".into(),
                workflow: "W".into(),
                version: full.then(|| "1".into()),
                input: json_of(json!(1)),
            },
            Event::ChildStarted {
                step: step(),
                attempt: 1,
                child: "a~b".into(),
                version: "1".into(),
                deadline_ms: full.then_some(time),
            },
            Event::ChildCompleted { step: step(), attempt: 1, child: "a~b".into(), output: json_of(json!(1)) },
            Event::ChildFailed { step: step(), attempt: 1, child: "a~b".into(), error: failure() },
            Event::ChildEndRequested { step: step(), child: "a~b".into(), terminate: full, timed_out: !full },
            Event::ContinueSuggested { max: 50_000 },
            Event::WorkflowContinuedAsNew { input: json_of(json!(1)), next_run: Run(2) },
            Event::UpdateAccepted {
                update: "raise".into(),
                payload: json_of(json!(1)),
                update_id: full.then(|| "k".into()),
                result: json_of(json!(null)),
            },
            Event::HandlerStarted { handler: "on_event:go@7".into() },
            Event::HandlerCompleted { handler: "on_failure".into() },
            Event::HandlerFailed { handler: "on_failure".into(), error: failure() },
            Event::TerminateRequested { reason: full.then(|| "stuck".into()) },
            Event::WorkflowTimeoutReached,
            Event::ResultFailed { error: failure() },
            Event::CompensationStarted { reason: AbortReason::TimedOut, steps: vec![step()] },
            Event::CompensationCompleted,
            Event::CompensationFailed { step: step(), error: failure() },
            Event::WorkflowTimedOut { compensation: compensated(full), unconsumed: unconsumed(full) },
            Event::WorkflowTerminated { unconsumed: unconsumed(full) },
            Event::LimitReached { limit: "max_history_events".into(), error: failure(), step: full.then(step) },
            Event::ContractViolated { boundary: "output".into(), error: failure() },
            Event::WorkflowCompleted { output: json_of(json!([])), unconsumed: unconsumed(full) },
            Event::WorkflowFailed { error: failure(), compensation: compensated(full), unconsumed: unconsumed(full) },
            Event::WorkflowCancelled { compensation: compensated(full), unconsumed: unconsumed(full) },
        ]
    };
    [events(true), events(false)].concat()
}

/// Does not compile where a type of event is not among [`events`]: add it there, and to the description.
fn is_known(event: &Event) -> bool {
    match event {
        Event::WorkflowCreated { .. }
        | Event::WorkflowStarted
        | Event::StepScheduled { .. }
        | Event::StepSkipped { .. }
        | Event::StepDispatched { .. }
        | Event::StepSucceeded { .. }
        | Event::StepAttemptFailed { .. }
        | Event::StepAttemptUncertain { .. }
        | Event::RetryScheduled { .. }
        | Event::StepFailed { .. }
        | Event::StepCancelled { .. }
        | Event::TimerStarted { .. }
        | Event::TimerFired { .. }
        | Event::StaleResultIgnored { .. }
        | Event::WorkflowHeld { .. }
        | Event::WorkflowRecovered { .. }
        | Event::CancelRequested { .. }
        | Event::LimitReached { .. }
        | Event::ContractViolated { .. }
        | Event::WorkflowCompleted { .. }
        | Event::WorkflowFailed { .. }
        | Event::WorkflowCancelled { .. }
        | Event::StepFanOut { .. }
        | Event::StepFanIn { .. }
        | Event::SignalAwaited { .. }
        | Event::SignalConsumed { .. }
        | Event::SignalReceived { .. }
        | Event::UpdateAccepted { .. }
        | Event::HandlerStarted { .. }
        | Event::HandlerCompleted { .. }
        | Event::HandlerFailed { .. }
        | Event::TerminateRequested { .. }
        | Event::WorkflowTimeoutReached
        | Event::ResultFailed { .. }
        | Event::CompensationStarted { .. }
        | Event::CompensationCompleted
        | Event::CompensationFailed { .. }
        | Event::WorkflowTimedOut { .. }
        | Event::WorkflowTerminated { .. }
        | Event::ChildScheduled { .. }
        | Event::ChildStarted { .. }
        | Event::ChildCompleted { .. }
        | Event::ChildFailed { .. }
        | Event::ChildEndRequested { .. }
        | Event::ContinueSuggested { .. }
        | Event::WorkflowContinuedAsNew { .. } => true,
    }
}

#[test]
fn each_type_of_event_is_described_as_it_is_written() {
    let schema = json!({"$ref": "#/components/schemas/Event"});
    let mut types = BTreeSet::new();
    for event in events() {
        assert!(is_known(&event));
        let recorded = serde_json::to_value(Recorded { seq: Seq(1), at_ms: ClusterMs(2), event }).expect("JSON");
        assert_eq!(problems(&schema, &recorded), [""; 0], "{recorded}");
        types.insert(recorded["type"].as_str().expect("a type").to_owned());
        let mut other = recorded.clone();
        other["stray"] = 1.into();
        assert!(!problems(&schema, &other).is_empty(), "{other}");
    }
    let described = STRICT["components"]["schemas"]["Event"]["oneOf"].as_array().expect("types").len();
    assert_eq!(types.len(), described);
}
