//! `admit`, `decide` and `apply` are total, and any prefix of a history folds to a state from which it goes on.

use crate::machine::{EXECUTION, Machine};
use crate::random::{op, plan, whole};
use orbit_core::execution::event::{AbortReason, Event, Json, Recorded, ResultKind, TaskError};
use orbit_core::execution::{ChildEnd, Command, State, admit, decide, next_wake};
use orbit_core::id::{ExecutionId, Run, Seq, SessionId, Token, UnitKey};
use orbit_core::time::ClusterMs;
use proptest::prelude::*;
use serde_json::json;
use uuid::Uuid;

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_commands_leaves_a_history_that_replays_and_any_prefix_goes_on(
        plan in plan(),
        n in 0i64..4,
        left in prop::sample::subsequence(vec!["note", "go", "note"], 0..=3),
        ops in prop::collection::vec(op(), 0..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut machine = Machine::left(whole(&plan), json!({ "n": n, "list": [1, 2, 3] }), &left);
        machine.check();
        for op in &ops {
            machine.run(op);
            machine.check();
        }
        // Any prefix folds to a state from which it goes on to an end.
        let cut = 1 + cut.index(machine.events.len());
        let prefix = machine.events[..cut].to_vec();
        let state = State::fold(&EXECUTION.into(), &prefix).expect("a prefix of a history is one");
        let tokens = state.deliveries.keys().copied().collect();
        let now = state.last_at;
        let definition = machine.definition.clone();
        let mut resumed = Machine { definition, state, events: prefix, tokens, now };
        // New tokens must differ from those of the part that was cut off.
        resumed.tokens.extend((0..100).map(|k| Uuid::from_u128(900_000 + k)));
        resumed.decide();
        resumed.finish();
        resumed.check();
    }

    #[test]
    fn events_that_mean_nothing_in_a_state_are_ignored(
        plan in plan(),
        events in prop::collection::vec((0u8..48, 0u8..8, any::<u8>(), -5_000i64..5_000), 0..60),
    ) {
        let definition = whole(&plan);
        let mut state = Machine::new(definition.clone(), 2).state;
        for (kind, step, id, at) in events {
            let event = some_event(kind, step, id, at);
            let recorded = Recorded { seq: state.last.next(), at_ms: ClusterMs(at), event };
            let before = state.last_at;
            state.apply(&recorded);
            prop_assert!(state.last_at >= before);
            let _ = decide(&definition, &state, ClusterMs(at));
            let _ = next_wake(&definition, &state);
            for command in some_commands(id) {
                let _ = admit(&definition, &state, &command, ClusterMs(at));
            }
        }
    }
}

fn some_commands(id: u8) -> Vec<Command> {
    let token = Uuid::from_u128(u128::from(id));
    let session = SessionId(Uuid::nil());
    vec![
        Command::Dispatch {
            unit: "s0".into(),
            scheduled: Seq(u64::from(id)),
            token,
            worker: "w".into(),
            session,
            repeat: false,
        },
        Command::Succeed { token, output: Json::default() },
        Command::Fail { token, error: TaskError::retryable("X", "") },
        Command::Uncertain { token, reason: String::new() },
        Command::Cancel { reason: None },
        Command::Terminate { reason: None },
        Command::Hold { reason: String::new(), queued: vec!["s1".into()] },
        Command::Recover { reason: None },
        Command::Signal { name: "go".into(), payload: Json::default(), key: None, max: 9 },
        Command::Update { name: "change".into(), payload: Json::default(), key: None, max: 9 },
        Command::ChildStarted { unit: "s1".into(), version: "1".into() },
        Command::ChildRefused { unit: "s1".into(), error: TaskError::retryable("X", "") },
        Command::ChildEnded { unit: "s1".into(), child: child(id), end: ChildEnd::Cancelled },
        Command::SuggestContinue { max: 3 },
        Command::ListTooLong { unit: "s1".into(), items: 7, max: 1 },
        Command::HistoryFull { max: 1 },
    ]
}

fn child(id: u8) -> ExecutionId {
    format!("{EXECUTION}~s{}", id % 3).as_str().into()
}

/// Any event, whether it makes sense or not.
fn some_event(kind: u8, step: u8, id: u8, at: i64) -> Event {
    let steps =
        ["s0", "s1", "s2", "s1[0]", "s1[7]", "compensate:s0", "on_failure/failure_tell", "on_event:note@2/kept"];
    let step: UnitKey = steps[usize::from(step) % steps.len()].into();
    let handlers = ["on_failure", "on_cancel", "on_event:note@2", "on_event:go", "nothing"];
    let handler = handlers[usize::from(id) % handlers.len()].into();
    let token = Token { execution: EXECUTION.into(), id: Uuid::from_u128(u128::from(id)) };
    let error = || TaskError::retryable("X", "y");
    let attempt = u32::from(id);
    match kind {
        0 => Event::WorkflowStarted,
        1 => Event::StepScheduled {
            step,
            attempt,
            input: Json::default(),
            idempotency_key: String::new(),
            redelivery: id.is_multiple_of(2),
        },
        2 => Event::StepSkipped { step, reason: String::new() },
        3 | 4 => Event::StepDispatched {
            step,
            attempt,
            token,
            worker_id: "w".into(),
            worker_session: SessionId(Uuid::nil()),
            deadline_ms: id.is_multiple_of(2).then_some(ClusterMs(at)),
            redelivery: false,
        },
        5 => Event::StepSucceeded { step, attempt, output: Json::default(), token: Some(token) },
        6 => Event::StepAttemptFailed { step, attempt, error: error(), token: None },
        7 => Event::StepAttemptUncertain { step, attempt, reason: String::new(), token },
        8 => Event::RetryScheduled { step, next_attempt: attempt, delay_ms: 1, fire_at_ms: ClusterMs(at) },
        9 => Event::StepFailed { step, error: error() },
        10 => Event::StepCancelled { step },
        11 => Event::TimerStarted { step, fire_at_ms: ClusterMs(at) },
        12 => Event::TimerFired { step },
        13 => Event::StaleResultIgnored { step, token, outcome: ResultKind::Failed },
        14 => Event::CancelRequested { reason: None },
        15 => Event::LimitReached { limit: "l".into(), error: error(), step: Some(step) },
        16 => Event::WorkflowCompleted { output: Json::default(), unconsumed: Vec::new() },
        17 => Event::WorkflowFailed { error: error(), compensation: None, unconsumed: Vec::new() },
        18 => Event::WorkflowCancelled { compensation: None, unconsumed: Vec::new() },
        19 => Event::StepFanOut { step, items: vec![Json::default(); usize::from(id % 4)] },
        20 => Event::StepFanIn { step },
        21 => Event::SignalAwaited { step, signal: "go".into(), deadline_ms: Some(ClusterMs(at)) },
        22 => Event::SignalConsumed { step, signal: "go".into(), received: Seq(u64::from(id)) },
        23 => Event::SignalReceived { signal: "go".into(), payload: Json::default(), signal_id: None, carried: None },
        24 => Event::UpdateAccepted {
            update: "change".into(),
            payload: Json::default(),
            update_id: Some("k".into()),
            result: Json::default(),
        },
        25 => Event::HandlerStarted { handler },
        26 => Event::HandlerCompleted { handler },
        27 => Event::HandlerFailed { handler, error: error() },
        28 => Event::TerminateRequested { reason: None },
        29 => Event::WorkflowTimeoutReached,
        30 => Event::ResultFailed { error: error() },
        31 => Event::CompensationStarted { reason: AbortReason::Failed, steps: vec![step] },
        32 => Event::CompensationCompleted,
        33 => Event::CompensationFailed { step, error: error() },
        34 => Event::WorkflowTimedOut { compensation: None, unconsumed: Vec::new() },
        35 => Event::WorkflowTerminated { unconsumed: Vec::new() },
        36 => {
            let (child, workflow, input) = (child(id), "Child".into(), Json::default());
            Event::ChildScheduled { step, attempt, child, workflow, version: None, input }
        }
        37 => {
            let deadline_ms = id.is_multiple_of(2).then_some(ClusterMs(at));
            Event::ChildStarted { step, attempt, child: child(id), version: "1".into(), deadline_ms }
        }
        38 => Event::ChildCompleted { step, attempt, child: child(id), output: Json::default() },
        39 => Event::ChildFailed { step, attempt, child: child(id), error: error() },
        40 => {
            let (terminate, timed_out) = (id.is_multiple_of(2), id.is_multiple_of(3));
            Event::ChildEndRequested { step, child: child(id), terminate, timed_out }
        }
        41 => Event::ContinueSuggested { max: 5 },
        42 => Event::WorkflowContinuedAsNew { input: Json::default(), next_run: Run(2) },
        43 => Event::WorkflowHeld { reason: String::new(), repeats: vec![step] },
        44 => Event::WorkflowRecovered { reason: None },
        _ => Event::StepSucceeded { step, attempt, output: Json::default(), token: None },
    }
}
