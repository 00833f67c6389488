//! `orbit executions replay`: whether today's decisions are those that a history recorded.

use super::client;
use super::document::Document;
use super::history::Reader;
use crate::cli::ReplayArgs;
use crate::failure::{Exit, Failure};
use crate::output::{self, Form};
use orbit_core::definition::Definition;
use orbit_core::execution::event::{Event, Recorded};
use orbit_core::execution::{Difference, End, State, replay};
use orbit_core::id::ExecutionId;
use orbit_sdk::{Client, Value};
use serde::Serialize;
use std::io::Read;
use std::path::Path;

/// Characters of an event that are shown to people.
const SHOWN: usize = 2_000;

/// Replays the history of an execution, or that in a file.
pub async fn run(arguments: ReplayArgs) -> Result<(), Failure> {
    let given = arguments.definition.as_deref().map(definition_in).transpose()?;
    let (history, definition) = match file_of(&arguments.history) {
        Some(file) if arguments.run.is_some() => {
            let message =
                format!("{} is a file, which has one run: --run is for the id of an execution", file.display());
            return Err(Failure::usage(message).hint("`orbit executions history ID --run N -o jsonl` saves that run"));
        }
        Some(file) => {
            let definition = given.ok_or_else(|| {
                Failure::usage(format!("{} is a file: name the definition that it was made with", file.display()))
                    .hint("add --definition FILE; `orbit workflows show NAME --version V -o json` prints it")
            })?;
            (History::read(file, arguments.id)?, definition)
        }
        None => {
            let client = client(&arguments.remote)?;
            let named = arguments.history.clone();
            let history = History::fetch(client.clone(), arguments.history, arguments.run).await;
            let history = history.map_err(|failure| no_file_either(failure, &named))?;
            let definition = match given {
                Some(definition) => definition,
                None => deployed(&client, &history).await?,
            };
            (history, definition)
        }
    };
    tell(&history, &replay(&definition, &history.execution, &history.events), arguments.output.form)
}

/// What is named, if it is a file: ids hold no `/`, and a file that is there is meant.
fn file_of(named: &str) -> Option<&Path> {
    let file = Path::new(named);
    (named == "-" || named.contains('/') || file.is_file()).then_some(file)
}

/// What is neither an execution nor a file, and looks like a file.
fn no_file_either(failure: Failure, named: &str) -> Failure {
    let looks = Path::new(named).extension().is_some_and(|end| ["json", "jsonl", "txt"].iter().any(|one| end == *one));
    if failure.exit != Exit::NotFound as u8 || !looks {
        return failure;
    }
    let message = format!("there is no file {named}, and no execution of that id");
    Failure { message, hint: Some("`orbit executions history ID -o jsonl` saves a history".into()), ..failure }
}

/// The definition in a file. One that `orbit workflows show -o json` printed is inside of what that shows.
fn definition_in(file: &Path) -> Result<Definition, Failure> {
    let document = Document::read(file)?;
    if let Ok(Value::Object(shown)) = serde_json::from_str(&document.text)
        && let (Some(definition), true) = (shown.get("definition"), shown.contains_key("definition_hash"))
    {
        return checked(definition, &document.name);
    }
    document.check().definition.map_err(|found| {
        let mut failure = Failure::usage(format!("{} is no valid definition", document.name));
        failure.lines = document.report(&found);
        failure
    })
}

/// The definition that the history names, as the server has it.
async fn deployed(client: &Client, history: &History) -> Result<Definition, Failure> {
    let Some(Recorded { event: Event::WorkflowCreated { workflow, version, .. }, .. }) = history.events.first() else {
        return Err(Failure::new(format!("the history of {} does not begin with WorkflowCreated", history.execution)));
    };
    let found = client.workflow(workflow.as_str(), Some(version.as_str())).await?;
    checked(&found.definition, &format!("{workflow} {version}"))
}

fn checked(document: &Value, name: &str) -> Result<Definition, Failure> {
    Definition::from_document(document).map_err(|problems| {
        let mut failure = Failure::new(format!("this version of Orbit does not accept the definition of {name}"));
        failure.lines = problems.iter().map(ToString::to_string).collect();
        failure.hint("use the version of the server that runs it")
    })
}

/// A history, wherever it came from.
#[derive(Debug)]
struct History {
    execution: ExecutionId,
    events: Vec<Recorded>,
}

impl History {
    /// The whole history of a run, as far as it goes now; of the newest where none is named.
    async fn fetch(client: Client, id: String, run: Option<u32>) -> Result<History, Failure> {
        let execution = ExecutionId::new(id.as_str());
        let mut reader = Reader::new(client, id, 0).of_run(run);
        let mut events = Vec::new();
        loop {
            for event in reader.next().await? {
                let seq = event.seq;
                let value = serde_json::to_value(event).expect("an event has string keys");
                events.push(recorded(value).map_err(|why| unreadable(&format!("event {seq} of {execution}"), &why))?);
            }
            if !reader.more {
                return Ok(History { execution, events });
            }
        }
    }

    /// Reads events as JSON lines, or as the one object that `-o json` prints.
    fn read(file: &Path, id: Option<String>) -> Result<History, Failure> {
        let name = if file == Path::new("-") { "standard input".into() } else { file.display().to_string() };
        let read = if file == Path::new("-") {
            let mut text = String::new();
            std::io::stdin().read_to_string(&mut text).map(|_| text)
        } else {
            std::fs::read_to_string(file)
        };
        let text = read.map_err(|error| Failure::usage(format!("{name} cannot be read: {error}")))?;
        History::parse(&text, &name, id)
    }

    /// Which run it is of.
    fn run(&self) -> Option<u32> {
        match &self.events.first()?.event {
            Event::WorkflowCreated { run, .. } => Some(run.0),
            _ => None,
        }
    }

    fn parse(text: &str, name: &str, id: Option<String>) -> Result<History, Failure> {
        let (mut events, mut page_of) = (Vec::new(), None);
        match serde_json::from_str(text) {
            Ok(Value::Object(mut page)) if page.contains_key("events") => {
                page_of = page.get("execution_id").and_then(Value::as_str).map(str::to_owned);
                let Some(Value::Array(list)) = page.remove("events") else {
                    return Err(unreadable(name, "`events` is no list"));
                };
                for (index, value) in list.into_iter().enumerate() {
                    events.push(
                        recorded(value).map_err(|why| unreadable(&format!("{name}, event {}", index + 1), &why))?,
                    );
                }
            }
            _ => {
                let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
                for (index, line) in lines {
                    let value = serde_json::from_str(line).map_err(|error| error.to_string());
                    let event = value.and_then(recorded);
                    events.push(event.map_err(|why| unreadable(&format!("{name}, line {}", index + 1), &why))?);
                }
            }
        }
        let execution = id.or(page_of).or_else(|| execution_of(&events)).ok_or_else(|| {
            Failure::usage(format!("{name} does not say which execution it is about")).hint("give its id with --id")
        })?;
        Ok(History { execution: ExecutionId::new(execution), events })
    }
}

fn recorded(value: Value) -> Result<Recorded, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

fn unreadable(place: &str, why: &str) -> Failure {
    Failure::usage(format!("{place} cannot be read: {why}")).hint(
        "write one event a line, as `orbit executions history ID -o jsonl` does; a newer Orbit may know more events",
    )
}

/// The execution that a history is about: tokens and idempotency keys name it.
fn execution_of(events: &[Recorded]) -> Option<String> {
    let Event::WorkflowCreated { cluster_id, run, .. } = &events.first()?.event else { return None };
    events.iter().find_map(|recorded| match &recorded.event {
        Event::StepDispatched { token, .. } => Some(token.execution.to_string()),
        Event::StepScheduled { step, idempotency_key, .. } => {
            let key = idempotency_key.strip_prefix(&format!("{cluster_id}/"))?;
            key.strip_suffix(&format!("/{run}/{step}")).map(str::to_owned)
        }
        _ => None,
    })
}

/// What came of it, for programs.
#[derive(Serialize)]
struct Outcome<'a> {
    execution_id: &'a ExecutionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<u32>,
    events: usize,
    /// Where the history ends, if it replays: the execution's status, or `continued` of a run that another follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    difference: Option<Told<'a>>,
}

#[derive(Serialize)]
struct Told<'a> {
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded: Option<&'a Event>,
    /// What would be decided there now.
    #[serde(skip_serializing_if = "Option::is_none")]
    decided: Option<&'a [Event]>,
}

fn tell(history: &History, replayed: &Result<State, Difference>, form: Form) -> Result<(), Failure> {
    let History { execution, events } = history;
    let difference = replayed.as_ref().err().map(|difference| match difference {
        Difference::NotDecided { seq, recorded, decided } => Told {
            message: format!("event {seq} ({}) is not what would be decided now", type_of(recorded)),
            seq: Some(seq.0),
            recorded: Some(recorded),
            decided: Some(decided),
        },
        Difference::TimeGoesBack { seq } | Difference::AfterTheEnd { seq } => {
            Told { message: difference.to_string(), seq: Some(seq.0), recorded: None, decided: None }
        }
        Difference::Broken(_) | Difference::OtherDefinition { .. } => {
            Told { message: difference.to_string(), seq: None, recorded: None, decided: None }
        }
    });
    let status = replayed.as_ref().ok().map(|state| match state.end() {
        Some(End::Continued) => "continued".to_owned(),
        _ => state.status().as_str().to_owned(),
    });
    let outcome = Outcome { execution_id: execution, run: history.run(), events: events.len(), status, difference };
    match form {
        Form::Table => {
            if let Some(status) = &outcome.status {
                let (count, run) = (outcome.events, history.run().filter(|run| *run > 1 || status == "continued"));
                let run = run.map(|run| format!(", run {run}")).unwrap_or_default();
                output::print(&format!("{execution} ({status}{run}): {count} events replay without a difference\n"))?;
            }
        }
        form => output::one(form, &outcome, execution.as_str(), String::new)?,
    }
    let Some(told) = &outcome.difference else { return Ok(()) };
    let mut failure = Failure::new(format!("{execution} does not replay: {}", told.message)).exit(Exit::Failure);
    if let (Form::Table, Some(recorded), Some(decided)) = (form, told.recorded, told.decided) {
        failure.lines = vec![format!("recorded:    {}", shown(recorded))];
        failure.lines.extend(decided.iter().map(|event| format!("decided now: {}", shown(event))));
        if decided.is_empty() {
            failure.lines.push("decided now: nothing".into());
        }
    }
    if let Err(Difference::OtherDefinition { .. }) = replayed {
        failure.hint = Some("give the definition that the execution was started with (--definition)".into());
    }
    Err(failure)
}

fn shown(event: &Event) -> String {
    let text = serde_json::to_string(event).expect("an event has string keys");
    match text.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}… (-o json shows all of it)", &text[..end]),
        None => text,
    }
}

/// `StepScheduled`, `TimerFired` …
fn type_of(event: &Event) -> String {
    let value = serde_json::to_value(event).expect("an event has string keys");
    value["type"].as_str().unwrap_or_default().to_owned()
}
