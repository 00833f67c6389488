//! Lines as stored events, and as a history of one of the golden definitions.

use super::life::{Life, created};
use orbit_core::definition::Definition;
use orbit_core::execution::event::{Event, FORMAT, Recorded, TaskError};
use orbit_core::execution::{ChildEnd, Command, State, admit, decide, next_wake, replay};
use orbit_core::id::{ExecutionId, Seq, SessionId, UnitKey};
use orbit_core::time::ClusterMs;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use uuid::Uuid;

/// Where the definitions are, from this package's folder and from those beside it.
const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../core/tests/golden/0.1.0");

/// The golden definitions, by the names of their workflows.
static DEFINITIONS: LazyLock<BTreeMap<String, Definition>> = LazyLock::new(|| {
    let files = std::fs::read_dir(Path::new(GOLDEN)).expect("the golden histories are there");
    let files = files.map(|file| file.expect("the folder can be read").path());
    let definitions = files.filter(|file| file.to_string_lossy().ends_with(".definition.json")).map(|file| {
        let text = std::fs::read_to_string(&file).expect("a golden definition can be read");
        let document: Value = serde_json::from_str(&text).expect("a golden definition is JSON");
        let definition = Definition::from_document(&document).expect("a golden definition is valid");
        (definition.name.to_string(), definition)
    });
    definitions.collect()
});

/// Decodes each line; then folds, decides and replays what they are together, in their own order and as the server
/// would number them, and lets the execution live on.
pub fn run(data: &[u8]) {
    let mut events: Vec<Recorded> = data.split(|byte| *byte == b'\n').filter_map(decode).collect();
    let workflow = events.iter().find_map(|recorded| match &recorded.event {
        Event::WorkflowCreated { workflow, .. } => Some(workflow.as_str()),
        _ => None,
    });
    let definition = workflow.and_then(|name| DEFINITIONS.get(name)).unwrap_or(&DEFINITIONS["OrderProcessing"]);
    let execution = events.iter().find_map(|recorded| match &recorded.event {
        Event::StepDispatched { token, .. } => Some(token.execution.clone()),
        _ => None,
    });
    let execution = execution.unwrap_or_else(|| ExecutionId::new("e-1"));

    for recorded in &mut events {
        recorded.at_ms = within(recorded.at_ms);
    }
    as_recorded(definition, &execution, &events);
    as_numbered(definition, &execution, events);
}

/// One stored event. Lines without a format byte are given today's.
fn decode(line: &[u8]) -> Option<Recorded> {
    let stored = if line.first() == Some(&b'{') { [&[FORMAT], line].concat() } else { line.to_vec() };
    match Recorded::decode(&stored) {
        Ok(recorded) => {
            let encoded = recorded.encode();
            assert_eq!(Recorded::decode(&encoded).as_ref(), Ok(&recorded), "an event is read back as it was written");
            Some(recorded)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}

/// A time that a clock can show: up to the year 287396. Beyond it a delay has no later moment to end at.
fn within(at: ClusterMs) -> ClusterMs {
    ClusterMs(at.0.clamp(0, 1 << 53))
}

/// As they came: with gaps, times that go back, and another beginning.
fn as_recorded(definition: &Definition, execution: &ExecutionId, events: &[Recorded]) {
    let folded = State::fold(execution, events);
    match (replay(definition, execution, events), folded) {
        (Ok(replayed), folded) => {
            assert_eq!(Ok(&replayed), folded.as_ref(), "a replay comes to the state that the history folds to");
            goes_on(definition, execution, events.to_vec(), replayed);
        }
        (Err(difference), _) => assert!(!difference.to_string().is_empty()),
    }
}

/// A history that replays comes to its end from wherever it is, and replays then too.
fn goes_on(definition: &Definition, execution: &ExecutionId, events: Vec<Recorded>, state: State) {
    let mut life = Life::resume(events, state);
    assert!(life.live(definition, |n| n % 4 == 0), "it does not come to an end: {:?}", life.state);
    let replayed = replay(definition, execution, &life.events);
    assert_eq!(replayed.as_ref().map_err(ToString::to_string), Ok(&life.state));
}

/// Numbered and dated as a server would, after a beginning: whatever the events are, nothing panics, and what follows
/// from them comes to a rest.
fn as_numbered(definition: &Definition, execution: &ExecutionId, events: Vec<Recorded>) {
    let mut events = events.into_iter().peekable();
    let input = match events.next_if(|first| matches!(first.event, Event::WorkflowCreated { .. })) {
        Some(Recorded { event: Event::WorkflowCreated { input, .. }, .. }) => (*input).clone(),
        _ => Value::Null,
    };
    let first = Recorded { seq: Seq(1), at_ms: ClusterMs(0), event: created(definition, input) };
    let mut state = State::begin(execution, &first).expect("a first event begins a history");
    let mut history = vec![first];
    for Recorded { at_ms, event, .. } in events {
        let at_ms = at_ms.max(state.last_at);
        let recorded = Recorded { seq: state.last.next(), at_ms, event };
        let before = state.last_at;
        state.apply(&recorded);
        assert!(state.last_at >= before);
        history.push(recorded);
        let _ = decide(definition, &state, at_ms);
        let _ = next_wake(definition, &state);
        for command in commands(&state) {
            if let Ok(event) = admit(definition, &state, &command, at_ms) {
                assert!(event.is_external(), "{event:?} came from outside");
            }
        }
    }
    if let Ok(replayed) = replay(definition, execution, &history) {
        assert_eq!(replayed, state);
        goes_on(definition, execution, history, state);
    }
}

/// Commands about what is there, and about what is not.
fn commands(state: &State) -> Vec<Command> {
    let known = state.deliveries.keys().copied();
    let tokens: Vec<Uuid> = known.take(2).chain([Uuid::nil()]).collect();
    let (unit, scheduled) = match state.scheduled().next() {
        Some((unit, _, seq)) => (unit.clone(), seq),
        None => (UnitKey::new("nowhere"), state.last),
    };
    let session = SessionId(Uuid::nil());
    let mut commands = vec![
        Command::Dispatch {
            unit: unit.clone(),
            scheduled,
            token: Uuid::max(),
            worker: "w".into(),
            session,
            repeat: false,
        },
        Command::Cancel { reason: None },
        Command::HistoryFull { max: 1 },
        Command::PayloadTooLarge { unit: None, what: "the input".into(), max: 1 },
        Command::PayloadTooLarge { unit: Some(unit.clone()), what: "its input".into(), max: 1 },
        Command::ListTooLong { unit: unit.clone(), items: 2, max: 1 },
        Command::Terminate { reason: None },
        Command::Signal { name: "go".into(), payload: Arc::new(Value::Null), key: None, max: 1 },
        Command::Update { name: "go".into(), payload: Arc::new(Value::Null), key: Some("k".into()), max: 1 },
        Command::RefuseOutput { message: "no".into() },
        Command::SuggestContinue { max: 1 },
        Command::ChildStarted { unit: unit.clone(), version: "1".into() },
        Command::ChildRefused { unit: unit.clone(), error: TaskError::retryable("X", "") },
    ];
    let children = state.open_children().map(|(unit, child, _)| (unit.clone(), child.clone()));
    for (unit, child) in children.take(2).chain([(unit, "nobody".into())]) {
        for end in [ChildEnd::Completed(Arc::new(Value::Null)), ChildEnd::Cancelled, ChildEnd::Terminated] {
            commands.push(Command::ChildEnded { unit: unit.clone(), child: child.clone(), end });
        }
    }
    for token in tokens {
        commands.push(Command::Succeed { token, output: Arc::new(Value::Null) });
        commands.push(Command::Fail { token, error: TaskError::retryable("X", "") });
        commands.push(Command::Uncertain { token, reason: String::new() });
    }
    commands
}
