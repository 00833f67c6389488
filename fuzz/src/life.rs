//! The life of an execution in a world where everything that is asked for is done.

use orbit_core::definition::Definition;
use orbit_core::execution::event::{Event, Labels, Recorded, TaskError};
use orbit_core::execution::{Asked, ChildEnd, Command, Refusal, State, Unit, UnitStatus, admit, decide, next_wake};
use orbit_core::id::{ClusterId, ExecutionId, Run, Seq, SessionId, UnitKey};
use orbit_core::time::ClusterMs;
use serde_json::{Value, json};
use std::sync::Arc;
use uuid::Uuid;

/// Events that one life may add. Few definitions need so many; one that does is left in the middle of its life.
const MAX_EVENTS: usize = 400;

/// An execution with its history.
pub struct Life {
    pub events: Vec<Recorded>,
    pub state: State,
    now: ClusterMs,
    deliveries: u128,
    children: u128,
}

/// The event that an execution begins with.
pub fn created(definition: &Definition, input: Value) -> Event {
    Event::WorkflowCreated {
        workflow: definition.name.clone(),
        version: definition.version.clone(),
        definition_hash: definition.hash.clone(),
        input: Arc::new(input),
        labels: Labels::new(),
        cluster_id: ClusterId(Uuid::from_u128(7)),
        run: Run(1),
        parent: None,
        continued: None,
    }
}

impl Life {
    /// One that begins.
    pub fn begin(definition: &Definition, input: Value) -> Life {
        let first = Recorded { seq: Seq(1), at_ms: ClusterMs(1_000), event: created(definition, input) };
        let state = State::begin(&ExecutionId::new("e-1"), &first).expect("a first event begins a history");
        Life { events: vec![first], state, now: ClusterMs(1_000), deliveries: 0, children: 0 }
    }

    /// One that goes on from here.
    pub fn resume(events: Vec<Recorded>, state: State) -> Life {
        let now = state.last_at;
        Life { events, state, now, deliveries: 0, children: 0 }
    }

    fn record(&mut self, event: Event) {
        let at_ms = self.now.max(self.state.last_at);
        let recorded = Recorded { seq: self.state.last.next(), at_ms, event };
        self.state.apply(&recorded);
        self.events.push(recorded);
    }

    /// Records what is decided until there is nothing more; false where it goes on and on.
    fn decide(&mut self, definition: &Definition, most: usize) -> bool {
        while self.events.len() < most {
            let decided = decide(definition, &self.state, self.now);
            if decided.is_empty() {
                return true;
            }
            decided.into_iter().for_each(|event| self.record(event));
        }
        false
    }

    fn command(&mut self, definition: &Definition, command: Command) -> Result<(), Refusal> {
        let event = admit(definition, &self.state, &command, self.now)?;
        self.record(event);
        Ok(())
    }

    /// Lives on: tasks are taken and succeed, or fail where `fails` says so of the nth, and so do children; time passes
    /// where nothing else does. True where the run came to its end, the execution's or that of a run which goes on as new.
    pub fn live(&mut self, definition: &Definition, mut fails: impl FnMut(u128) -> bool) -> bool {
        let most = self.events.len() + MAX_EVENTS;
        while self.decide(definition, most) && !self.state.has_ended() {
            let scheduled = self.state.scheduled().next().map(|(key, _, seq)| (key.clone(), seq));
            let open = self.state.open_tokens().next().map(|(token, ..)| token);
            if let Some((unit, scheduled)) = scheduled {
                self.deliveries += 1;
                let token = Uuid::from_u128(0xf022_0000_0000 + self.deliveries);
                let session = SessionId(Uuid::from_u128(1));
                let dispatch = Command::Dispatch { unit, scheduled, token, worker: "w".into(), session, repeat: false };
                self.command(definition, dispatch).expect("what is scheduled can be dispatched");
            } else if let Some(token) = open {
                let result = if fails(self.deliveries) {
                    Command::Fail { token, error: TaskError::retryable("BROKEN", "it broke") }
                } else {
                    Command::Succeed { token, output: Arc::new(json!({"id": "ok", "n": [1, 2.5]})) }
                };
                self.command(definition, result).expect("an open delivery takes a result");
            } else if let Some(command) = self.of_a_child(definition, &mut fails) {
                self.command(definition, command)
                    .expect("a unit that wants a child, or has one, takes what becomes of it");
            } else if let Some(wake) = next_wake(definition, &self.state) {
                // A moment that is not yet there, or the decisions would have been made.
                assert!(wake > self.now, "it wakes at {wake:?}, which is now, and decides nothing");
                self.now = wake;
            } else {
                self.somebody_acts(definition);
            }
        }
        self.state.has_ended()
    }

    /// What becomes of the next child: it is started or refused; one that runs ends, or lets its time pass.
    fn of_a_child(&mut self, definition: &Definition, mut fails: impl FnMut(u128) -> bool) -> Option<Command> {
        let wants = |(key, unit): (&UnitKey, &Unit)| {
            matches!(unit.status, UnitStatus::ChildScheduled { .. }).then(|| key.clone())
        };
        let broke = |code| TaskError::retryable(code, "it broke");
        if let Some(unit) = self.state.units.iter().find_map(wants) {
            self.children += 1;
            return Some(match self.children % 5 {
                0 => Command::ChildRefused { unit, error: broke("UNKNOWN_WORKFLOW") },
                _ => Command::ChildStarted { unit, version: "1".into() },
            });
        }
        let open = self.state.open_children().find(|(.., asked)| asked.is_some() || !self.lets_pass(definition));
        let (unit, child, asked) = open?;
        let end = match asked {
            Some(Asked::Terminated) => ChildEnd::Terminated,
            Some(Asked::TimedOut | Asked::Cancelled) => ChildEnd::Cancelled,
            None if fails(self.children) => ChildEnd::Failed(broke("BROKEN")),
            None => ChildEnd::Completed(Arc::new(json!({"id": "ok", "n": [1, 2.5]}))),
        };
        Some(Command::ChildEnded { unit: unit.clone(), child: child.clone(), end })
    }

    /// Whether the children that run now take longer than something that has a time.
    fn lets_pass(&self, definition: &Definition) -> bool {
        self.children % 4 == 3 && next_wake(definition, &self.state).is_some()
    }

    /// It waits for somebody: what it awaits comes, or where that is refused somebody wants the end.
    fn somebody_acts(&mut self, definition: &Definition) {
        let awaits = |unit: &Unit| match &unit.status {
            UnitStatus::Awaiting { signal, .. } => Some(signal.clone()),
            _ => None,
        };
        let awaited = self.state.units.values().find_map(awaits);
        let name = awaited.expect("an execution that has not ended waits for something");
        let (payload, max) = (Arc::new(json!({"id": "ok", "n": [1, 2.5]})), 1_000);
        let commands = [
            Command::Signal { name: name.clone(), payload: payload.clone(), key: None, max },
            Command::Update { name, payload, key: None, max },
            Command::Cancel { reason: None },
            Command::Terminate { reason: None },
        ];
        let taken = commands.into_iter().any(|command| self.command(definition, command).is_ok());
        assert!(taken, "an execution that has not ended can be terminated");
    }
}
