//! A server, as far as one execution goes: it tells a story to `admit` and `decide`.

use orbit_core::definition::Definition;
use orbit_core::execution::event::{Continued, Event, Labels, Parent, Recorded, TaskError};
use orbit_core::execution::{Command, State, admit, decide, next_wake};
use orbit_core::id::{ClusterId, ExecutionId, Run, Seq, SessionId, UnitKey};
use orbit_core::time::ClusterMs;
use serde_json::Value;
use std::sync::Arc;
use uuid::Uuid;

/// A told story. Its name is its execution's id.
pub struct Story {
    pub name: &'static str,
    pub document: Value,
    pub events: Vec<Recorded>,
}

/// 2026-01-02 03:04:05.678Z
const BEGIN: ClusterMs = ClusterMs(1_767_323_045_678);

/// A server, as far as one execution goes.
pub struct Teller {
    name: &'static str,
    document: Value,
    definition: Definition,
    pub state: State,
    pub events: Vec<Recorded>,
    pub now: ClusterMs,
    deliveries: u128,
    /// Refuses the output that is decided, for this reason.
    pub refuse_output: Option<&'static str>,
    /// Refuses the input of this step, as larger than so many bytes.
    pub refuse_input: Option<(&'static str, u64)>,
}

impl Teller {
    pub fn start(name: &'static str, document: Value, input: Value, labels: &[(&str, &str)]) -> Teller {
        let mut teller = Teller::create(name, document, input, labels);
        teller.decide();
        teller
    }

    pub fn create(name: &'static str, document: Value, input: Value, labels: &[(&str, &str)]) -> Teller {
        let definition = Definition::from_document(&document).unwrap_or_else(|p| panic!("{name}: {p:?}"));
        Teller::create_as(name, document, definition, input, labels, Run(1), None, None)
    }

    #[allow(clippy::too_many_arguments)] // what a first event has
    pub fn create_as(
        name: &'static str,
        document: Value,
        definition: Definition,
        input: Value,
        labels: &[(&str, &str)],
        run: Run,
        parent: Option<Parent>,
        continued: Option<Continued>,
    ) -> Teller {
        let event = Event::WorkflowCreated {
            workflow: definition.name.clone(),
            version: definition.version.clone(),
            definition_hash: definition.hash.clone(),
            input: Arc::new(input),
            labels: labels.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect::<Labels>(),
            cluster_id: ClusterId(Uuid::from_u128(0x0c1a_57e2)),
            run,
            parent,
            continued,
        };
        let first = Recorded { seq: Seq(1), at_ms: BEGIN, event };
        let state = State::begin(&ExecutionId::from(name), &first).expect("a first event");
        let (events, now) = (vec![first], BEGIN);
        Teller {
            name,
            document,
            definition,
            state,
            events,
            now,
            deliveries: 0,
            refuse_output: None,
            refuse_input: None,
        }
    }

    pub fn record(&mut self, event: Event) {
        let at_ms = self.now.max(self.state.last_at);
        let recorded = Recorded { seq: self.state.last.next(), at_ms, event };
        self.state.apply(&recorded);
        self.events.push(recorded);
    }

    pub fn decide(&mut self) {
        loop {
            let decided = decide(&self.definition, &self.state, self.now);
            if decided.is_empty() {
                return;
            }
            for event in decided {
                match self.refusal(&event) {
                    None => self.record(event),
                    Some(command) => {
                        let refused = admit(&self.definition, &self.state, &command, self.now);
                        self.record(refused.expect("what is decided can be refused"));
                        break;
                    }
                }
            }
        }
    }

    fn refusal(&self, decided: &Event) -> Option<Command> {
        match decided {
            Event::WorkflowCompleted { .. } => {
                self.refuse_output.map(|message| Command::RefuseOutput { message: message.into() })
            }
            Event::StepScheduled { step, .. } => match self.refuse_input {
                Some((refused, max)) if refused == step.as_str() => Some(Command::PayloadTooLarge {
                    unit: Some(step.clone()),
                    what: format!("the input of {step}"),
                    max,
                }),
                _ => None,
            },
            _ => None,
        }
    }

    /// Something comes from outside, 7 ms after what came before.
    pub fn command(&mut self, command: Command) {
        self.now = ClusterMs(self.now.0 + 7);
        let admitted = admit(&self.definition, &self.state, &command, self.now);
        let event = admitted.unwrap_or_else(|refusal| panic!("{}: {command:?}: {refusal}", self.name));
        self.record(event);
        self.decide();
    }

    /// Time passes until something is due.
    pub fn wait(&mut self) {
        let due = next_wake(&self.definition, &self.state);
        self.now = due.unwrap_or_else(|| panic!("{} waits for nothing", self.name));
        self.decide();
    }

    /// The step's scheduled attempt goes to a worker.
    pub fn dispatch(&mut self, step: &str, worker: &str) -> Uuid {
        let scheduled = self.state.scheduled().find(|(key, ..)| key.as_str() == step).map(|(.., seq)| seq);
        let scheduled = scheduled.unwrap_or_else(|| panic!("{}: {step} is not scheduled", self.name));
        self.deliveries += 1;
        let token = Uuid::from_u128(0xde11_0000 + self.deliveries);
        let session = SessionId(Uuid::from_u128(0x5e55_0000 + worker.len() as u128));
        let unit: UnitKey = step.into();
        self.command(Command::Dispatch { unit, scheduled, token, worker: worker.into(), session, repeat: false });
        token
    }

    pub fn succeed(&mut self, token: Uuid, output: Value) {
        self.command(Command::Succeed { token, output: Arc::new(output) });
    }

    pub fn fail(&mut self, token: Uuid, error: TaskError) {
        self.command(Command::Fail { token, error });
    }

    pub fn lose(&mut self, token: Uuid) {
        self.command(Command::Uncertain { token, reason: "the worker fell silent".into() });
    }

    pub fn send(&mut self, signal: &str, payload: Value, key: Option<&str>) {
        let (name, payload, key) = (signal.into(), Arc::new(payload), key.map(Into::into));
        self.command(Command::Signal { name, payload, key, max: 9 });
    }

    pub fn scheduled_first(&self) -> String {
        self.state.scheduled().next().map(|(unit, ..)| unit.to_string()).expect("something is scheduled")
    }

    pub fn run(&mut self, step: &str, output: Value) {
        let token = self.dispatch(step, "worker-1");
        self.succeed(token, output);
    }

    pub fn end(self) -> Story {
        assert!(self.state.has_ended(), "{}: {:?}", self.name, self.state);
        Story { name: self.name, document: self.document, events: self.events }
    }
}
