//! A second way to run a definition, from the page that describes it alone: it calls neither `decide` nor `apply`.
//!
//! From the definition, the input and what came from outside (results, signals, updates, cancels, and at which place time
//! ran out for what), in the order in which the history has it, it says how the execution ends: status, output or error,
//! and what became of the compensation. What it says of the inputs of tasks and the answers to updates must be as recorded
//! too.
//!
//! Its time passes in rounds: whatever can go on in a state does, in the order of the definition; then the next round
//! looks. A failure counts where nothing else goes on. `block` runs a list of steps, `child` what becomes of
//! children, `events` what came from outside, `wind` what follows an end that is not a good one; `runs` goes from one run to the next.

mod block;
mod child;
mod events;
mod runs;
mod wind;

pub use runs::check;

use super::history::Tracked;
use crate::schema;
use orbit_core::definition::unit::event_handler;
use orbit_core::definition::{Definition, ExpressionError, Local, Place, Scope, StepKind, Template, UnitPath};
use orbit_core::execution::event::{Carried, CompensationOutcome, Event, Json, Recorded, TaskError, codes};
use orbit_core::id::{ExecutionId, HandlerKey, Run, Seq, SignalName, StepId, UnitKey};
use orbit_core::store::append::Status;
use orbit_core::time::ClusterMs;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Bounds on what expressions give.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of JSON text.
    pub max_payload: u64,
    /// Items of a list.
    pub max_fan_out: u64,
}

/// How an execution ends.
#[derive(Clone, Debug, PartialEq)]
struct Ended {
    status: Status,
    output: Option<Json>,
    /// Code and step.
    error: Option<(String, Option<StepId>)>,
    compensation: Option<CompensationOutcome>,
}

fn ended(event: &Event) -> Option<Ended> {
    let end = |status, output, error: Option<&TaskError>, compensation| Ended {
        status,
        output,
        error: error.map(|error| (error.code.clone(), error.step.clone())),
        compensation,
    };
    Some(match event {
        Event::WorkflowCompleted { output, .. } => end(Status::Completed, Some(output.clone()), None, None),
        Event::WorkflowFailed { error, compensation, .. } => end(Status::Failed, None, Some(error), *compensation),
        Event::WorkflowCancelled { compensation, .. } => end(Status::Cancelled, None, None, *compensation),
        Event::WorkflowTimedOut { compensation, .. } => end(Status::TimedOut, None, None, *compensation),
        Event::WorkflowTerminated { .. } => end(Status::Terminated, None, None, None),
        _ => return None,
    })
}

/// How far a unit is.
#[derive(Clone, Debug)]
enum Unit {
    /// A task is to be run, or is run.
    Task,
    /// Its last attempt failed; that counts where nothing else goes on.
    Failing(TaskError),
    /// For so long.
    Sleeping(Duration),
    Awaiting,
    /// It waited for as long as it may.
    Late,
    Spread,
    Well,
    Failed(TaskError),
    Cancelled,
}

impl Unit {
    fn is_over(&self) -> bool {
        matches!(self, Unit::Well | Unit::Failed(_) | Unit::Cancelled)
    }
}

/// A run of a handler.
#[derive(Debug, Default)]
struct Handling {
    event: Option<Json>,
    outputs: BTreeMap<StepId, Json>,
    over: bool,
}

/// The list of a `for` step.
#[derive(Debug)]
struct Items {
    list: Vec<Json>,
    /// With its output, once it has one.
    begun: BTreeMap<u32, Option<Json>>,
}

/// Why it winds down.
#[derive(Clone, Debug)]
enum Cause {
    Failed(TaskError),
    Cancelled,
    TimedOut,
    Terminated,
}

/// Something that a unit or a handler does next.
#[derive(Debug)]
enum Act {
    Give(UnitKey, Json),
    Done(UnitKey, Json),
    Skip(UnitKey),
    Become(UnitKey, Unit),
    Take(UnitKey, SignalName),
    Spread(UnitKey, Vec<Json>),
    Gather(UnitKey),
    Begin(HandlerKey),
    Finish(HandlerKey),
}

/// What happens in one round.
#[derive(Debug, Default)]
struct Round {
    acts: Vec<Act>,
    failure: Option<(UnitKey, TaskError)>,
    /// The one signal that is taken in it, before anything else happens: what others take they take in the next.
    take: Option<Act>,
    /// A step wants the next run, with this input.
    continues: Option<Json>,
}

impl Round {
    fn fails(&mut self, unit: &UnitKey, error: TaskError) {
        self.failure.get_or_insert((unit.clone(), error));
    }
}

/// See the module's documentation.
struct Interpreter<'a> {
    definition: &'a Definition,
    id: &'a ExecutionId,
    input: &'a Json,
    run: Run,
    is_child: bool,
    limits: Limits,
    units: BTreeMap<UnitKey, Unit>,
    outputs: BTreeMap<StepId, Json>,
    items: BTreeMap<UnitKey, Items>,
    handlers: BTreeMap<HandlerKey, Handling>,
    buffered: BTreeMap<SignalName, VecDeque<(Seq, Json)>>,
    /// Until when units wait for a signal.
    deadlines: BTreeMap<UnitKey, ClusterMs>,
    /// Of what an earlier run left: where it was taken in.
    carried: BTreeMap<Seq, Carried>,
    succeeded: Vec<UnitKey>,
    /// Inputs of tasks.
    given: BTreeMap<UnitKey, Json>,
    /// It has begun.
    started: bool,
    /// It is held: nothing goes on.
    held: bool,
    /// It was told to continue as new soon.
    suggested: bool,
    cause: Option<Cause>,
    /// Units whose child runs.
    children: BTreeSet<UnitKey>,
    /// What is undone, and how that ended.
    undoing: Option<(Vec<UnitKey>, Option<CompensationOutcome>)>,
    ended: Option<Ended>,
    /// The run ended: the input of the next one.
    continues: Option<Json>,
}

impl<'a> Interpreter<'a> {
    fn new(id: &'a ExecutionId, tracked: &'a Tracked, limits: Limits) -> Option<Interpreter<'a>> {
        let Event::WorkflowCreated { input, run, parent, .. } = &tracked.events.first()?.event else { return None };
        Some(Interpreter {
            definition: &tracked.definition,
            id,
            input,
            run: *run,
            is_child: parent.is_some(),
            limits,
            units: BTreeMap::new(),
            outputs: BTreeMap::new(),
            items: BTreeMap::new(),
            handlers: BTreeMap::new(),
            buffered: BTreeMap::new(),
            deadlines: BTreeMap::new(),
            carried: BTreeMap::new(),
            succeeded: Vec::new(),
            given: BTreeMap::new(),
            started: false,
            held: false,
            suggested: false,
            cause: None,
            children: BTreeSet::new(),
            undoing: None,
            ended: None,
            continues: None,
        })
    }

    /// Goes on until it waits for something. Where time is over for a step that waits, in the same moment, that is known
    /// from the beginning.
    fn settle(&mut self, events: &[Recorded]) {
        // The end of a child is recorded with its parent's result of it: until then it takes things in.
        if self.is_child {
            self.ended = None;
        }
        if let Some((now, then)) = events.split_first() {
            let same = then.iter().take_while(|e| e.at_ms == now.at_ms && !e.event.is_external());
            for recorded in same {
                if let Event::StepFailed { step, .. } | Event::StepSucceeded { step, token: None, .. } = &recorded.event
                    && let Some(unit @ Unit::Awaiting) = self.units.get_mut(step)
                {
                    *unit = Unit::Late;
                }
            }
        }
        while !self.held && !self.is_over() && self.round() {}
    }

    /// Whether anything went on.
    fn round(&mut self) -> bool {
        if self.cause.is_some() {
            return self.wind();
        }
        if !self.started {
            return false;
        }
        let mut round = Round::default();
        let over = self.block(None, None, &mut round);
        let handling = self.handle_events(&mut round);
        if self.continues(&round, handling) {
            return true;
        }
        if over && !handling {
            self.finish();
            return true;
        }
        self.carry_out(round)
    }

    fn carry_out(&mut self, round: Round) -> bool {
        let acts: Vec<Act> = round.take.into_iter().chain(round.acts).collect();
        match (acts.is_empty(), round.failure) {
            (false, _) => {
                for act in acts {
                    if !self.act(act) {
                        break;
                    }
                }
                true
            }
            (true, Some((unit, error))) => {
                self.fails(&unit, error);
                true
            }
            (true, None) => false,
        }
    }

    /// Whether there is no bound in its way.
    fn act(&mut self, act: Act) -> bool {
        match act {
            Act::Give(unit, input) => {
                if self.is_too_large(Some(&unit), [&input]) {
                    return false;
                }
                self.given.insert(unit.clone(), input);
                self.begins(&unit, Unit::Task);
            }
            Act::Done(unit, output) => {
                if self.is_too_large(Some(&unit), [&output]) {
                    return false;
                }
                self.succeeds(&unit, output);
            }
            Act::Skip(unit) => {
                self.keep(&unit, Json::default());
                self.units.insert(unit, Unit::Well);
            }
            Act::Become(unit, how) => self.begins(&unit, how),
            Act::Take(unit, signal) => {
                if let Some((_, payload)) = self.buffered.get_mut(&signal).and_then(VecDeque::pop_front) {
                    self.succeeds(&unit, payload);
                }
            }
            Act::Spread(unit, list) => {
                if list.len() as u64 > self.limits.max_fan_out {
                    self.is_bounded(Some(&unit));
                    return false;
                }
                if self.is_too_large(Some(&unit), &list) {
                    return false;
                }
                self.items.insert(unit.clone(), Items { list, begun: BTreeMap::new() });
                self.units.insert(unit, Unit::Spread);
            }
            Act::Gather(unit) => {
                let outputs = self.items[&unit].begun.values().flatten();
                let whole = Value::Array(outputs.map(|output| Value::clone(output)).collect());
                self.succeeds(&unit, Arc::new(whole));
            }
            Act::Begin(key) => {
                let event = match Place::of_handler(key.as_str()) {
                    Some(Place::Event { signal, .. }) => self.buffered.get_mut(signal).and_then(VecDeque::pop_front),
                    _ => None,
                };
                let event = event.map(|(_, payload)| payload);
                self.handlers.insert(key, Handling { event, ..Handling::default() });
            }
            Act::Finish(key) => self.handlers.get_mut(&key).expect("it runs").over = true,
        }
        true
    }

    /// What expressions give has a bound; whether it ended something.
    fn is_too_large<'v>(&mut self, unit: Option<&UnitKey>, values: impl IntoIterator<Item = &'v Json>) -> bool {
        let bytes: usize = values.into_iter().map(|value| value.to_string().len()).sum();
        let beyond = bytes as u64 > self.limits.max_payload;
        if beyond {
            self.is_bounded(unit);
        }
        beyond
    }

    /// A bound ends the execution; while it winds down, the unit alone.
    fn is_bounded(&mut self, unit: Option<&UnitKey>) {
        let error = TaskError::last(codes::LIMIT_EXCEEDED, "");
        match (&self.cause, unit) {
            (Some(_), Some(unit)) => self.fails(unit, error),
            _ => self.winds(Cause::Failed(error)),
        }
    }

    /// The workflow's end, once every step has ended well.
    fn finish(&mut self) {
        let output = match &self.definition.result {
            Some(template) => self.value(template, Local::default()),
            None => Ok(Json::default()),
        };
        let failed = |error: &TaskError| Ended {
            status: Status::Failed,
            output: None,
            error: Some((error.code.clone(), None)),
            compensation: None,
        };
        match output {
            Err(error) if self.definition.on.failure.is_empty() && self.to_undo().is_empty() => {
                self.ended = Some(failed(&error));
            }
            Err(error) => self.winds(Cause::Failed(error)),
            Ok(output) => {
                if self.is_too_large(None, [&output]) {
                    return;
                }
                let schema = self.definition.output_schema.as_ref();
                if schema.is_some_and(|schema| schema::matches(schema, &output).is_err()) {
                    return self.winds(Cause::Failed(TaskError::last(codes::OUTPUT_CONTRACT_VIOLATION, "")));
                }
                self.ended =
                    Some(Ended { status: Status::Completed, output: Some(output), error: None, compensation: None });
            }
        }
    }

    fn handle_events(&self, round: &mut Round) -> bool {
        let mut handling = false;
        for signal in self.definition.on.event.keys() {
            let of_signal = |key: &HandlerKey| match Place::of_handler(key.as_str()) {
                Some(Place::Event { signal: of, .. }) => of == signal.as_str(),
                _ => false,
            };
            if let Some((key, _)) = self.handlers.iter().find(|(key, run)| of_signal(key) && !run.over) {
                handling = true;
                if self.block(Some(key), None, round) {
                    round.acts.push(Act::Finish(key.clone()));
                }
            } else if round.continues.is_none()
                && let Some((seq, _)) = self.buffered.get(signal).and_then(VecDeque::front)
            {
                handling = true;
                round.acts.push(Act::Begin(event_handler(signal, *seq)));
            }
        }
        handling
    }

    fn receive(&mut self, signal: &SignalName, seq: Seq, payload: &Json) {
        self.buffered.entry(signal.clone()).or_default().push_back((seq, payload.clone()));
    }

    fn answer(&self, update: &SignalName, payload: &Json) -> Option<Json> {
        let local = Local { event: Some(payload), absent_is_null: true, ..Local::default() };
        let update = self.definition.updates.get(update)?;
        let taken = update.when.as_ref().map(|when| self.value(when, local));
        match taken {
            None => {}
            Some(Ok(taken)) if *taken == Value::Bool(true) => {}
            Some(_) => return None,
        }
        update.result.as_ref().map_or(Some(Json::default()), |result| self.value(result, local).ok())
    }

    fn value(&self, template: &Template, local: Local<'_>) -> Result<Json, TaskError> {
        let local = Local { continue_suggested: self.suggested, ..local };
        let scope = Scope {
            input: self.input,
            outputs: &self.outputs,
            execution: self.id,
            workflow: &self.definition.name,
            version: &self.definition.version,
            run: self.run,
            local,
        };
        template.render(&scope).map(Arc::new).map_err(|error: ExpressionError| no_value(error.to_string()))
    }

    fn under_way(&self, unit: &UnitKey, is: impl Fn(&Unit) -> bool) -> Result<(), String> {
        let now = self.units.get(unit);
        match now.is_some_and(is) {
            true => Ok(()),
            false => Err(format!("something comes of {unit}, which by the definition is {now:?}")),
        }
    }

    fn begins(&mut self, unit: &UnitKey, how: Unit) {
        let path = UnitPath::parse(unit);
        if let (false, Some(index)) = (path.compensates, path.index)
            && let Some(items) = self.items.get_mut(&path.whole())
        {
            items.begun.entry(index).or_default();
        }
        self.units.insert(unit.clone(), how);
    }

    fn attempt_failed(&mut self, unit: &UnitKey, attempt: u32, error: &TaskError) -> Result<(), String> {
        self.under_way(unit, |unit| matches!(unit, Unit::Task))?;
        let Some(work) = self.definition.work_of(unit) else { return Err(format!("{unit} has no attempts")) };
        let last = attempt >= work.retry().max_attempts
            || !error.retryable
            || work.retry().non_retryable.contains(&error.code);
        if last {
            self.units.insert(unit.clone(), Unit::Failing(error.clone()));
        }
        Ok(())
    }

    fn succeeds(&mut self, unit: &UnitKey, output: Json) {
        self.begins(unit, Unit::Well);
        let path = UnitPath::parse(unit);
        if path.compensates {
            return;
        }
        self.keep(unit, output);
        if path.handler.is_none() {
            self.succeeded.push(unit.clone());
        }
    }

    /// Keeps the output of a unit where expressions find it.
    fn keep(&mut self, unit: &UnitKey, output: Json) {
        let path = UnitPath::parse(unit);
        if let Some(index) = path.index {
            let items = self.items.get_mut(&path.whole()).expect("its list was made before");
            items.begun.insert(index, Some(output));
            return;
        }
        let outputs = match path.handler.and_then(|handler| self.handlers.get_mut(handler)) {
            Some(handling) => &mut handling.outputs,
            None => &mut self.outputs,
        };
        outputs.insert(StepId::new(path.step), output);
    }

    fn fails(&mut self, unit: &UnitKey, error: TaskError) {
        self.begins(unit, Unit::Failed(error.clone()));
        let path = UnitPath::parse(unit);
        if !path.cleans_up() && path.index.is_none() {
            let step = Some(StepId::new(path.step));
            self.winds(Cause::Failed(TaskError { step, ..error }));
        }
    }

    fn winds(&mut self, cause: Cause) {
        self.cause.get_or_insert(cause);
    }

    /// What succeeded and can be undone, the last one first.
    fn to_undo(&self) -> Vec<UnitKey> {
        let undoable = |unit: &&UnitKey| {
            self.definition.step_of(unit).is_some_and(|step| {
                let whole_list = matches!(step.kind, StepKind::For(_)) && UnitPath::parse(unit).index.is_none();
                step.compensate.is_some() && !whole_list
            })
        };
        self.succeeded.iter().rev().filter(undoable).cloned().collect()
    }
}

fn no_value(message: String) -> TaskError {
    TaskError::last(codes::EXPRESSION_ERROR, message)
}
