//! Complete histories as releases of Orbit stored them: today's code reads them, decides the same, and writes the
//! same bytes. `golden/README.md` says what is where, and how one is added.

// The purity of `core` is that of its library; a test may read files.
#![allow(clippy::disallowed_methods)]

#[path = "golden/stories.rs"]
mod stories;
#[path = "golden/teller.rs"]
mod teller;

use orbit_core::definition::Definition;
use orbit_core::execution::event::{Event, FORMAT, Recorded};
use orbit_core::execution::{State, replay};
use orbit_core::id::ExecutionId;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// A stored history and its definition.
struct Golden {
    /// `<release>/<story>`.
    name: String,
    /// The format byte of the release.
    format: u8,
    execution: ExecutionId,
    definition: Definition,
    /// As stored, without the format byte.
    lines: Vec<String>,
}

impl Golden {
    /// The history as it stands in a database.
    fn stored(&self) -> Vec<Vec<u8>> {
        self.lines.iter().map(|line| [&[self.format], line.as_bytes()].concat()).collect()
    }

    fn events(&self) -> Vec<Recorded> {
        let decode = |bytes: &Vec<u8>| Recorded::decode(bytes).unwrap_or_else(|e| panic!("{}: {e}", self.name));
        self.stored().iter().map(decode).collect()
    }
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn read(file: &Path) -> String {
    fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()))
}

/// Every golden history, by its name.
fn goldens() -> Vec<Golden> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder()).expect("the folder is there") {
        let release = entry.expect("the folder can be read").path();
        if !release.is_dir() {
            continue;
        }
        let format = read(&release.join("format")).trim().parse().expect("`format` holds the format byte");
        for entry in fs::read_dir(&release).expect("the folder is there") {
            let file = entry.expect("the folder can be read").path();
            let name = file.file_name().and_then(|n| n.to_str()).expect("names are plain");
            let Some(story) = name.strip_suffix(".jsonl") else { continue };
            let document = serde_json::from_str(&read(&release.join(format!("{story}.definition.json"))));
            let definition = Definition::from_document(&document.expect("a definition is JSON"));
            found.push(Golden {
                name: format!("{}/{story}", release.file_name().and_then(|n| n.to_str()).expect("as above")),
                format,
                execution: story.into(),
                definition: definition.unwrap_or_else(|p| panic!("{name}: {p:?}")),
                lines: read(&file).lines().map(str::to_owned).collect(),
            });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(found.len() >= stories::all().len(), "stories have no golden history; see golden/README.md");
    found
}

#[test]
fn every_release_s_histories_replay_without_a_difference_and_have_come_to_their_end() {
    for golden in goldens() {
        let replayed = replay(&golden.definition, &golden.execution, &golden.events());
        let state = replayed.unwrap_or_else(|difference| panic!("{}: {difference}", golden.name));
        assert!(state.has_ended(), "{} is a complete history", golden.name);
        assert_eq!(State::load(&golden.execution, &golden.stored()), Ok(state), "{}", golden.name);
    }
}

#[test]
fn histories_of_todays_format_are_written_as_they_were_read() {
    for golden in goldens().into_iter().filter(|golden| golden.format == FORMAT) {
        for (event, stored) in golden.events().iter().zip(golden.stored()) {
            let written = event.encode();
            assert_eq!(written, stored, "{}, event {}", golden.name, event.seq);
        }
    }
}

/// Every event type, and its name in a stored event. A new one does not compile until it stands here, and the test
/// below fails until a golden history holds it.
macro_rules! event_types {
    ($($name:ident),* $(,)?) => {
        const EVENT_TYPES: &[&str] = &[$(stringify!($name)),*];

        fn type_of(event: &Event) -> &'static str {
            match event {
                $(Event::$name { .. } => stringify!($name)),*
            }
        }
    };
}

event_types! {
    WorkflowCreated, WorkflowStarted, StepScheduled, StepSkipped, StepDispatched, StepSucceeded, StepAttemptFailed,
    StepAttemptUncertain, RetryScheduled, StepFailed, StepCancelled, TimerStarted, TimerFired, StaleResultIgnored,
    CancelRequested, LimitReached, ContractViolated, WorkflowCompleted, WorkflowFailed, WorkflowCancelled, StepFanOut,
    StepFanIn, SignalAwaited, SignalConsumed, SignalReceived, UpdateAccepted, HandlerStarted, HandlerCompleted,
    HandlerFailed, ResultFailed, TerminateRequested, WorkflowTimeoutReached, CompensationStarted, CompensationCompleted,
    CompensationFailed, WorkflowTimedOut, WorkflowTerminated, WorkflowContinuedAsNew, ContinueSuggested, ChildScheduled,
    ChildStarted, ChildCompleted, ChildFailed, ChildEndRequested, WorkflowHeld, WorkflowRecovered,
}

#[test]
fn every_event_type_is_in_a_golden_history() {
    let mut seen: BTreeMap<&str, String> = BTreeMap::new();
    for golden in goldens() {
        for event in golden.events() {
            seen.entry(type_of(&event.event)).or_insert_with(|| golden.name.clone());
        }
    }
    let missing: Vec<_> = EVENT_TYPES.iter().filter(|name| !seen.contains_key(*name)).collect();
    assert!(missing.is_empty(), "no golden history holds {missing:?}: tell its story in golden/stories.rs");
}

/// What the stories give today is what this release has stored. With `GOLDEN_REWRITE=1` a story that has no file yet
/// gets one, in the folder of this release alone.
///
/// BEWARE: databases hold what these files hold. A file that exists is never written again, whatever the story gives
/// now: where this test shows a difference, executions that are running somewhere would see it too. Change the code,
/// or, where the change is meant and older histories still replay, tell the new story under a new name.
#[test]
fn the_stories_are_told_today_as_this_release_stored_them() {
    let rewrite = std::env::var_os("GOLDEN_REWRITE").is_some_and(|value| value == "1");
    let release = folder().join(RELEASE);
    if rewrite {
        fs::create_dir_all(&release).expect("the folder can be made");
        write_new(&release.join("format"), &format!("{FORMAT}\n"));
    }
    for story in stories::all() {
        let text: String = story.events.iter().map(line).collect();
        let file = release.join(format!("{}.jsonl", story.name));
        if rewrite {
            let document = serde_json::to_string_pretty(&story.document).expect("a document is JSON");
            write_new(&release.join(format!("{}.definition.json", story.name)), &format!("{document}\n"));
            write_new(&file, &text);
        }
        // A release that begins has no folder yet: its stories are those of the one before.
        if release.exists() {
            assert!(file.exists(), "{} has no file: GOLDEN_REWRITE=1 cargo test -p core --test golden", story.name);
            assert_eq!(text, read(&file), "{} is told otherwise than {RELEASE} stored it", story.name);
        }
    }
}

/// A stored event without its format byte.
fn line(event: &Recorded) -> String {
    let stored = event.encode();
    assert_eq!(stored[0], FORMAT);
    format!("{}\n", str::from_utf8(&stored[1..]).expect("JSON is UTF-8"))
}

/// Writes a file that does not exist yet.
fn write_new(file: &Path, text: &str) {
    if !file.exists() {
        fs::write(file, text).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        eprintln!("new: {}", file.display());
    }
}
