//! One execution, and a world that does what a test says.

use orbit_core::definition::Definition;
use orbit_core::execution::event::{Event, Json, Recorded, TaskError};
use orbit_core::execution::{ChildEnd, Command, State, Unit, UnitStatus, admit, decide, next_wake, replay};
use orbit_core::id::{ClusterId, ExecutionId, Run, Seq, SessionId, SignalName, UnitKey};
use orbit_core::time::ClusterMs;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

pub const EXECUTION: &str = "e-1";

/// An execution, with a world that a test plays.
#[derive(Clone)]
pub struct Machine {
    pub definition: Definition,
    pub state: State,
    pub events: Vec<Recorded>,
    pub tokens: Vec<Uuid>,
    pub now: ClusterMs,
}

impl Machine {
    pub fn new(definition: Definition, n: i64) -> Machine {
        Machine::start(definition, json!({ "n": n, "list": [1, 2, 3] }))
    }

    /// Of a document that must be right.
    pub fn of(document: &Value, input: Value) -> Machine {
        let definition = Definition::from_document(document).unwrap_or_else(|problems| panic!("{problems:?}"));
        Machine::start(definition, input)
    }

    pub fn start(definition: Definition, input: Value) -> Machine {
        Machine::left(definition, input, &[])
    }

    /// As a run begins that was left these signals by the one before it.
    pub fn left(definition: Definition, input: Value, signals: &[&str]) -> Machine {
        let created = Event::WorkflowCreated {
            workflow: definition.name.clone(),
            version: definition.version.clone(),
            definition_hash: definition.hash.clone(),
            input: Arc::new(input),
            labels: BTreeMap::new(),
            cluster_id: ClusterId(Uuid::from_u128(7)),
            run: Run(1),
            parent: None,
            continued: None,
        };
        let first = Recorded { seq: Seq(1), at_ms: ClusterMs(1_000), event: created };
        let state = State::begin(&EXECUTION.into(), &first).expect("a first event");
        let mut machine = Machine { definition, state, events: vec![first], tokens: Vec::new(), now: ClusterMs(1_000) };
        for signal in signals {
            let (signal, payload) = (SignalName::new(*signal), Arc::new(json!({"key": 1})));
            machine.record(Event::SignalReceived { signal, payload, signal_id: None, carried: None });
        }
        machine.decide();
        machine
    }

    pub fn record(&mut self, event: Event) {
        let at_ms = self.now.max(self.state.last_at);
        let recorded = Recorded { seq: self.state.last.next(), at_ms, event };
        self.state.apply(&recorded);
        self.events.push(recorded);
    }

    pub fn decide(&mut self) {
        for round in 0.. {
            assert!(round < 1_000, "decisions come to an end");
            let decided = decide(&self.definition, &self.state, self.now);
            if decided.is_empty() {
                break;
            }
            decided.into_iter().for_each(|event| self.record(event));
        }
    }

    pub fn token(&self, n: u8) -> Uuid {
        self.tokens.get(usize::from(n)).copied().unwrap_or(Uuid::from_u128(u128::from(n) + 1))
    }

    pub fn command(&mut self, command: Command) -> bool {
        let admitted = admit(&self.definition, &self.state, &command, self.now);
        let ok = admitted.is_ok();
        if let Ok(event) = admitted {
            assert!(event.is_external(), "{event:?} came from outside");
            self.record(event);
        }
        self.decide();
        ok
    }

    pub fn dispatch(&mut self, unit: UnitKey, scheduled: Seq) {
        let token = Uuid::from_u128(1_000 + self.tokens.len() as u128);
        let session = SessionId(Uuid::from_u128(3));
        if self.command(Command::Dispatch { unit, scheduled, token, worker: "w".into(), session, repeat: false }) {
            self.tokens.push(token);
        }
    }

    /// The units that want a child to be started.
    pub fn wanted_children(&self) -> Vec<UnitKey> {
        let wanted = |unit: &Unit| matches!(unit.status, UnitStatus::ChildScheduled { .. });
        self.state.units.iter().filter(|(_, unit)| wanted(unit)).map(|(key, _)| key.clone()).collect()
    }

    /// A child that runs, and its unit.
    pub fn open_child(&self) -> Option<(UnitKey, ExecutionId)> {
        self.state.open_children().next().map(|(unit, child, _)| (unit.clone(), child.clone()))
    }

    /// A signal that a step waits for.
    pub fn awaited(&self) -> Option<SignalName> {
        self.state.units.values().find_map(|unit| match &unit.status {
            UnitStatus::Awaiting { signal, .. } => Some(signal.clone()),
            _ => None,
        })
    }

    /// Sends a signal, or an update of that name. Whether it was taken.
    pub fn send(&mut self, name: &SignalName, payload: Value) -> bool {
        let (name, payload, key, max) = (name.clone(), Arc::new(payload), None, 100);
        if self.definition.updates.contains_key(&name) {
            self.command(Command::Update { name, payload, key, max })
        } else {
            self.command(Command::Signal { name, payload, key, max })
        }
    }

    /// Time passes.
    pub fn pass(&mut self, ms: i64) {
        self.now = ClusterMs(self.now.0 + ms);
        self.decide();
    }

    /// The unit's scheduled attempt goes to a worker.
    pub fn hand_out(&mut self, unit: &str) -> Uuid {
        let scheduled = self.state.scheduled().find(|(key, ..)| key.as_str() == unit).map(|(.., seq)| seq);
        let scheduled = scheduled.unwrap_or_else(|| panic!("{unit} is not scheduled: {:#?}", self.names()));
        self.dispatch(unit.into(), scheduled);
        *self.tokens.last().expect("just dispatched")
    }

    /// The unit's scheduled attempt is run, and gives this.
    pub fn done(&mut self, unit: &str, output: Value) {
        let token = self.hand_out(unit);
        assert!(self.command(Command::Succeed { token, output: Arc::new(output) }), "{unit} waits for it");
    }

    /// The unit's scheduled attempt is run, and fails for good.
    pub fn fails(&mut self, unit: &str) {
        let token = self.hand_out(unit);
        let error = TaskError::last("BROKEN", "it broke");
        assert!(self.command(Command::Fail { token, error }), "{unit} waits for it");
    }

    /// Units that wait for a worker.
    pub fn scheduled(&self) -> Vec<&str> {
        self.state.scheduled().map(|(key, ..)| key.as_str()).collect()
    }

    /// The types of its events, each with its unit or handler.
    pub fn names(&self) -> Vec<String> {
        let name = |recorded: &Recorded| {
            let json = serde_json::to_value(&recorded.event).expect("JSON");
            let of = ["step", "handler"].iter().find_map(|field| json[*field].as_str());
            let kind = json["type"].as_str().expect("a type");
            of.map_or(kind.to_owned(), |of| format!("{kind} {of}"))
        };
        self.events.iter().map(name).collect()
    }

    /// Those since the first one of that name.
    pub fn names_from(&self, first: &str) -> Vec<String> {
        let names = self.names();
        let at = names.iter().position(|name| name == first);
        names[at.unwrap_or_else(|| panic!("no {first} in {names:#?}"))..].to_vec()
    }

    /// A world in which everything that is asked for is done.
    pub fn finish(&mut self) {
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
            } else if let Some(unit) = self.wanted_children().pop() {
                self.command(Command::ChildStarted { unit, version: "1".into() });
            } else if let Some((unit, child)) = self.open_child() {
                self.command(Command::ChildEnded { unit, child, end: ChildEnd::Completed(Json::default()) });
            } else if let Some(signal) = self.awaited() {
                assert!(self.send(&signal, json!("at last")), "it takes what it waits for");
            } else if let Some(at) = next_wake(&self.definition, &self.state) {
                self.now = at.max(self.now);
                self.decide();
            } else {
                panic!("it waits for nothing: {:?}", self.state);
            }
        }
        panic!("it does not come to an end: {:?}", self.state);
    }

    pub fn check(&self) {
        let execution = ExecutionId::from(EXECUTION);
        let replayed = replay(&self.definition, &execution, &self.events);
        assert_eq!(replayed.as_ref().map_err(ToString::to_string), Ok(&self.state));
        let mut succeeded: Vec<&UnitKey> = Vec::new();
        for (n, recorded) in self.events.iter().enumerate() {
            if let Event::StepSucceeded { step, .. }
            | Event::SignalConsumed { step, .. }
            | Event::StepFanIn { step }
            | Event::ChildCompleted { step, .. } = &recorded.event
            {
                assert!(!succeeded.contains(&step), "{step} succeeded twice");
                succeeded.push(step);
            }
            assert!(!recorded.event.is_terminal() || n + 1 == self.events.len(), "something follows the end");
            let stored = Recorded::decode(&recorded.encode());
            assert_eq!(stored.as_ref(), Ok(recorded), "what is stored is what was recorded");
        }
    }
}
