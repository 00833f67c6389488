//! `admit`, `decide` and `apply` are total, and any prefix of a history folds to a state from which it goes on.

use orbit_core::definition::Definition;
use orbit_core::execution::event::{Event, Json, Recorded, ResultKind, TaskError};
use orbit_core::execution::{Command, State, admit, decide, next_wake, replay};
use orbit_core::id::{ClusterId, ExecutionId, Run, Seq, SessionId, Token, UnitKey};
use orbit_core::time::ClusterMs;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

const EXECUTION: &str = "e-1";

// ------------------------------------------------------------------------------------------------ random definitions

#[derive(Clone, Debug)]
enum Kind {
    Task { attempts: u32, timeout: bool, queue_timeout: bool },
    Compute(bool),
    Sleep(u32),
}

#[derive(Clone, Debug)]
struct StepPlan {
    kind: Kind,
    /// Bits choose among the steps before it; none: as written.
    after: Option<u8>,
    when: Option<&'static str>,
}

fn step_plan() -> impl Strategy<Value = StepPlan> {
    let kind = prop_oneof![
        4 => (1u32..4, any::<bool>(), any::<bool>())
            .prop_map(|(attempts, timeout, queue_timeout)| Kind::Task { attempts, timeout, queue_timeout }),
        2 => any::<bool>().prop_map(Kind::Compute),
        1 => (0u32..5000).prop_map(Kind::Sleep),
    ];
    let when = prop_oneof![
        6 => Just(None),
        1 => Just(Some("${ input.n > 1 }")),
        1 => Just(Some("${ input.n <= 1 }")),
        1 => Just(Some("${ 1 / (input.n - input.n) > 0 }")),
    ];
    (kind, prop::option::of(any::<u8>()), when).prop_map(|(kind, after, when)| StepPlan { kind, after, when })
}

fn document(plans: &[StepPlan]) -> Value {
    let steps: Vec<Value> = plans
        .iter()
        .enumerate()
        .map(|(n, plan)| {
            let mut step = json!({"id": format!("s{n}")});
            match plan.kind {
                Kind::Task { attempts, timeout, queue_timeout } => {
                    step["task"] = json!("test.task");
                    step["input"] = json!({"n": "${ input.n }"});
                    step["retry"] = json!({"max_attempts": attempts, "initial": "100ms", "max": "1s"});
                    if timeout {
                        step["timeout"] = json!("2s");
                    }
                    if queue_timeout {
                        step["queue_timeout"] = json!("3s");
                    }
                }
                Kind::Compute(good) => {
                    step["compute"] = if good { json!("${ input.n + 1 }") } else { json!("${ input.n.missing.x }") };
                }
                Kind::Sleep(ms) => step["sleep"] = json!(format!("{ms}ms")),
            }
            if let Some(bits) = plan.after {
                let after: Vec<_> = (0..n).filter(|k| bits & (1 << k) != 0).map(|k| format!("s{k}")).collect();
                step["after"] = json!(after);
            }
            if let Some(when) = plan.when {
                step["when"] = json!(when);
            }
            step
        })
        .collect();
    json!({"name": "Random", "version": "1.0.0", "steps": steps, "result": "${ input.n }"})
}

fn definition(plans: &[StepPlan]) -> Definition {
    Definition::from_document(&document(plans)).expect("the generator makes valid documents")
}

// --------------------------------------------------------------------------------------------------- random commands

#[derive(Clone, Debug)]
enum Op {
    /// The nth scheduled attempt is dispatched; out of range: a dispatch that nothing waits for.
    Dispatch(u8),
    /// The nth delivery that ever was; out of range: a token that never was.
    Succeed(u8),
    Fail(u8, bool),
    Uncertain(u8),
    Cancel,
    Full,
    /// Milliseconds; backwards too.
    Time(i32),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => any::<u8>().prop_map(|n| Op::Dispatch(n % 6)),
        6 => any::<u8>().prop_map(|n| Op::Succeed(n % 10)),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(n, retryable)| Op::Fail(n % 10, retryable)),
        2 => any::<u8>().prop_map(|n| Op::Uncertain(n % 10)),
        1 => Just(Op::Cancel),
        1 => Just(Op::Full),
        4 => (-2_000i32..6_000).prop_map(Op::Time),
    ]
}

struct Machine {
    definition: Definition,
    state: State,
    events: Vec<Recorded>,
    tokens: Vec<Uuid>,
    now: ClusterMs,
}

impl Machine {
    fn new(definition: Definition, n: i64) -> Machine {
        let created = Event::WorkflowCreated {
            workflow: definition.name.clone(),
            version: definition.version.clone(),
            definition_hash: definition.hash.clone(),
            input: Arc::new(json!({ "n": n })),
            labels: BTreeMap::new(),
            cluster_id: ClusterId(Uuid::from_u128(7)),
            run: Run(1),
        };
        let first = Recorded { seq: Seq(1), at_ms: ClusterMs(1_000), event: created };
        let state = State::begin(&EXECUTION.into(), &first).expect("a first event");
        let mut machine = Machine { definition, state, events: vec![first], tokens: Vec::new(), now: ClusterMs(1_000) };
        machine.decide();
        machine
    }

    fn record(&mut self, event: Event) {
        let at_ms = self.now.max(self.state.last_at);
        let recorded = Recorded { seq: self.state.last.next(), at_ms, event };
        self.state.apply(&recorded);
        self.events.push(recorded);
    }

    fn decide(&mut self) {
        for round in 0.. {
            assert!(round < 1_000, "decisions come to an end");
            let decided = decide(&self.definition, &self.state, self.now);
            if decided.is_empty() {
                break;
            }
            decided.into_iter().for_each(|event| self.record(event));
        }
    }

    fn token(&self, n: u8) -> Uuid {
        self.tokens.get(usize::from(n)).copied().unwrap_or(Uuid::from_u128(u128::from(n) + 1))
    }

    fn run(&mut self, op: &Op) {
        let command = match op {
            Op::Dispatch(n) => {
                let scheduled: Vec<(UnitKey, Seq)> =
                    self.state.scheduled().map(|(key, _, seq)| (key.clone(), seq)).collect();
                let (unit, seq) =
                    scheduled.get(usize::from(*n)).cloned().unwrap_or(("nowhere".into(), Seq(u64::from(*n))));
                self.dispatch(unit, seq);
                return;
            }
            Op::Succeed(n) => Command::Succeed { token: self.token(*n), output: Arc::new(json!({"done": n})) },
            Op::Fail(n, retryable) => {
                let error = TaskError { retryable: *retryable, ..TaskError::retryable("BROKEN", "it broke") };
                Command::Fail { token: self.token(*n), error }
            }
            Op::Uncertain(n) => Command::Uncertain { token: self.token(*n), reason: "lost".into() },
            Op::Cancel => Command::Cancel { reason: None },
            Op::Full => Command::HistoryFull { max: 10 },
            Op::Time(ms) => {
                self.now = ClusterMs(self.now.0 + i64::from(*ms));
                return self.decide();
            }
        };
        self.command(command);
    }

    fn command(&mut self, command: Command) -> bool {
        let admitted = admit(&self.definition, &self.state, &command, self.now);
        let ok = admitted.is_ok();
        if let Ok(event) = admitted {
            assert!(event.is_external(), "{event:?} came from outside");
            self.record(event);
        }
        self.decide();
        ok
    }

    fn dispatch(&mut self, unit: UnitKey, scheduled: Seq) {
        let token = Uuid::from_u128(1_000 + self.tokens.len() as u128);
        let session = SessionId(Uuid::from_u128(3));
        if self.command(Command::Dispatch { unit, scheduled, token, worker: "w".into(), session }) {
            self.tokens.push(token);
        }
    }

    /// A world in which everything that is asked for is done.
    fn finish(&mut self) {
        for _ in 0..10_000 {
            if self.state.has_ended() {
                return;
            }
            let scheduled = self.state.scheduled().next().map(|(key, _, seq)| (key.clone(), seq));
            let open = self.state.open_tokens().next().map(|(token, ..)| token);
            if let Some((unit, seq)) = scheduled {
                self.dispatch(unit, seq);
            } else if let Some(token) = open {
                self.command(Command::Succeed { token, output: Json::default() });
            } else if let Some(at) = next_wake(&self.definition, &self.state) {
                self.now = at.max(self.now);
                self.decide();
            } else {
                panic!("it waits for nothing: {:?}", self.state);
            }
        }
        panic!("it does not come to an end: {:?}", self.state);
    }

    fn check(&self) {
        let execution = ExecutionId::from(EXECUTION);
        let replayed = replay(&self.definition, &execution, &self.events);
        assert_eq!(replayed.as_ref().map_err(ToString::to_string), Ok(&self.state));
        let mut succeeded: Vec<&UnitKey> = Vec::new();
        for (n, recorded) in self.events.iter().enumerate() {
            if let Event::StepSucceeded { step, .. } = &recorded.event {
                assert!(!succeeded.contains(&step), "{step} succeeded twice");
                succeeded.push(step);
            }
            assert!(!recorded.event.is_terminal() || n + 1 == self.events.len(), "something follows the end");
            let stored = Recorded::decode(&recorded.encode());
            assert_eq!(stored.as_ref(), Ok(recorded), "what is stored is what was recorded");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_commands_leaves_a_history_that_replays_and_any_prefix_goes_on(
        plans in prop::collection::vec(step_plan(), 1..6),
        n in 0i64..4,
        ops in prop::collection::vec(op(), 0..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut machine = Machine::new(definition(&plans), n);
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
        plans in prop::collection::vec(step_plan(), 1..4),
        events in prop::collection::vec((0u8..20, 0u8..5, any::<u8>(), -5_000i64..5_000), 0..60),
    ) {
        let definition = definition(&plans);
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
        Command::Dispatch { unit: "s0".into(), scheduled: Seq(u64::from(id)), token, worker: "w".into(), session },
        Command::Succeed { token, output: Json::default() },
        Command::Fail { token, error: TaskError::retryable("X", "") },
        Command::Uncertain { token, reason: String::new() },
        Command::Cancel { reason: None },
        Command::HistoryFull { max: 1 },
    ]
}

/// Any event, whether it makes sense or not.
fn some_event(kind: u8, step: u8, id: u8, at: i64) -> Event {
    let step: UnitKey = format!("s{step}").as_str().into();
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
        15 => Event::LimitReached { limit: "l".into(), error: error() },
        16 => Event::WorkflowCompleted { output: Json::default() },
        17 => Event::WorkflowFailed { error: error() },
        18 => Event::WorkflowCancelled,
        _ => Event::StepSucceeded { step, attempt, output: Json::default(), token: None },
    }
}

#[test]
fn a_late_failure_of_an_older_delivery_says_nothing_about_the_newer_one() {
    let plan =
        StepPlan { kind: Kind::Task { attempts: 3, timeout: false, queue_timeout: false }, after: None, when: None };
    let mut machine = Machine::new(definition(&[plan]), 1);
    machine.run(&Op::Dispatch(0));
    machine.run(&Op::Uncertain(0));
    // In doubt and not delivered again: its failure is the attempt's.
    let mut other = Machine {
        definition: machine.definition.clone(),
        state: machine.state.clone(),
        events: machine.events.clone(),
        tokens: machine.tokens.clone(),
        now: machine.now,
    };
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
    let plan =
        StepPlan { kind: Kind::Task { attempts: 3, timeout: true, queue_timeout: false }, after: None, when: None };
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
    let plan =
        StepPlan { kind: Kind::Task { attempts: 1, timeout: false, queue_timeout: false }, after: None, when: None };
    let mut machine = Machine::new(definition(&[plan]), 1);
    machine.run(&Op::Dispatch(0));
    let Some(Recorded { event: Event::StepDispatched { attempt, .. }, .. }) = machine.events.last_mut() else {
        panic!("it was dispatched")
    };
    *attempt = 0;
    let state = State::fold(&EXECUTION.into(), &machine.events).expect("a history");
    assert_eq!(state.open_tokens().count(), 0);
    assert_eq!(state.scheduled().count(), 1, "it still waits for a worker");
}
