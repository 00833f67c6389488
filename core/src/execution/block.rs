//! A list of steps, run: that of the workflow, or of a handler.

use crate::definition::unit::{Work, item_unit, step_unit};
use crate::definition::{
    AwaitStep, Definition, ExpressionError, ForStep, Local, Place, Scope, Step, StepKind, Template, UnitPath,
    parse_duration, whole_number,
};
use crate::execution::attempts;
use crate::execution::event::{Event, Json, TaskError, codes};
use crate::execution::fan::Fan;
use crate::execution::state::{Handler, Received, State, Unit, UnitStatus};
use crate::id::{HandlerKey, SignalName, StepId, UnitKey};
use crate::time::ClusterMs;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// Computed items of one answer.
const COMPUTED_AT_ONCE: u32 = 256;

/// What was decided so far.
#[derive(Default)]
pub(super) struct Decided {
    events: Vec<Event>,
    /// The handlers that begin.
    handlers: Vec<Event>,
    /// What the steps of handlers of events do. They see which of the workflow's steps have ended, and those do not see
    /// them: whatever makes an end of one comes after them.
    in_handlers: Vec<Event>,
    /// The one signal that a step takes. Of what others take is decided after it: it may be that steps before them are
    /// ready by then.
    taken: Option<Event>,
    /// A failure changes what is decided about all the others: it comes alone, and last.
    failure: Option<Event>,
    /// The run is to end, and the next one to have this input.
    pub continues: Option<Json>,
}

/// Whether there is a signal for a step.
enum Signals<'a> {
    None,
    /// Another step takes one first.
    Later,
    /// The oldest of its name.
    Take(&'a Received),
}

impl Decided {
    pub(super) fn add(&mut self, event: Event) {
        match event {
            Event::StepFailed { .. } => drop(self.failure.get_or_insert(event)),
            Event::HandlerStarted { .. } => self.handlers.push(event),
            Event::SignalConsumed { .. } => drop(self.taken.get_or_insert(event)),
            event => self.events.push(event),
        }
    }

    /// Adds what was decided about handlers of events, whose steps await nothing.
    pub(super) fn put_first(&mut self, of_handlers: Decided) {
        self.handlers.extend(of_handlers.handlers);
        self.in_handlers.extend(of_handlers.events);
        self.failure = self.failure.take().or(of_handlers.failure);
    }

    /// Whether nothing was decided.
    pub(super) fn is_empty(&self) -> bool {
        let none = self.handlers.is_empty() && self.in_handlers.is_empty() && self.events.is_empty();
        none && self.taken.is_none() && self.failure.is_none()
    }

    /// What makes others ready comes last: with them, a signal could be another step's, and a run could be over.
    pub(super) fn into_events(self) -> Vec<Event> {
        let first = self.handlers.into_iter().chain(self.in_handlers);
        let events: Vec<Event> = first.chain(self.taken).chain(self.events).collect();
        match self.failure {
            Some(failed) if events.is_empty() => vec![failed],
            _ => events,
        }
    }

    fn signals<'a>(&self, state: &'a State, signal: &SignalName) -> Signals<'a> {
        match state.buffered.get(signal).and_then(VecDeque::front) {
            None => Signals::None,
            Some(_) if self.taken.is_some() => Signals::Later,
            Some(received) => Signals::Take(received),
        }
    }
}

/// See the module's documentation.
pub(super) struct Block<'a> {
    definition: &'a Definition,
    state: &'a State,
    now: ClusterMs,
    steps: &'a [Step],
    /// The handler whose steps they are.
    handler: Option<&'a HandlerKey>,
    /// Outputs of the steps that ended well.
    outputs: &'a BTreeMap<StepId, Json>,
    local: Local<'a>,
}

impl<'a> Block<'a> {
    /// The steps of the workflow itself.
    pub(super) fn workflow(definition: &'a Definition, state: &'a State, now: ClusterMs) -> Block<'a> {
        let (steps, outputs) = (&definition.steps, &state.outputs);
        Block { definition, state, now, steps, handler: None, outputs, local: Local::default() }
    }

    /// The steps of a handler that has begun.
    pub(super) fn handler(
        definition: &'a Definition,
        state: &'a State,
        key: &'a HandlerKey,
        handler: &'a Handler,
        failure: Option<&'a Json>,
        now: ClusterMs,
    ) -> Block<'a> {
        let steps = Place::of_handler(key.as_str()).map_or(&[][..], |place| definition.steps_at(place));
        let outputs = &handler.outputs;
        let event = handler.event.as_ref();
        let local = Local { own: Some(outputs), absent_is_null: true, event, failure, ..Local::default() };
        Block { definition, state, now, steps, handler: Some(key), outputs, local }
    }

    /// Why a step of it failed for good.
    pub(super) fn failure(&self) -> Option<TaskError> {
        self.steps.iter().find_map(|step| match &self.state.units.get(&self.key(step))?.status {
            UnitStatus::Failed { error } => Some(TaskError { step: Some(step.id.clone()), ..error.clone() }),
            _ => None,
        })
    }

    fn key(&self, step: &Step) -> UnitKey {
        step_unit(self.handler, &step.id)
    }

    /// Decides about every step; whether all have ended.
    pub(super) fn run(&self, decided: &mut Decided) -> bool {
        let mut all_ended = true;
        for step in self.steps {
            let key = self.key(step);
            match self.state.units.get(&key) {
                Some(unit) if unit.status.has_ended() => continue,
                Some(unit) => self.go_on(step, &key, unit, decided),
                None if self.is_ready(step) => self.begin(step, &key, decided),
                None => {}
            }
            all_ended = false;
        }
        all_ended
    }

    /// A step may begin once the steps before it ended well or were skipped.
    fn is_ready(&self, step: &Step) -> bool {
        step.after.iter().all(|before| self.outputs.contains_key(before))
    }

    fn begin(&self, step: &'a Step, key: &UnitKey, decided: &mut Decided) {
        let event = match self.runs(step) {
            Err(error) => Err(error),
            Ok(false) => Ok(Event::StepSkipped { step: key.clone(), reason: "`when` is false".into() }),
            Ok(true) => match &step.kind {
                StepKind::Task(task) => {
                    self.render(&task.input).map(|input| attempts::begin(self.state, key, Work::Task(task), 1, input))
                }
                StepKind::Workflow(child) => self
                    .render(&child.input)
                    .map(|input| attempts::begin(self.state, key, Work::Child(child), 1, input)),
                StepKind::ContinueAsNew(template) => match self.render(template) {
                    // Once nothing else is open: see `decide`.
                    Ok(input) => {
                        decided.continues.get_or_insert(input);
                        return;
                    }
                    Err(error) => Err(error),
                },
                StepKind::Compute(template) => self.render(template).map(|output| succeeded(key, output)),
                StepKind::Sleep(template) => self
                    .sleep_time(template)
                    .map(|time| Event::TimerStarted { step: key.clone(), fire_at_ms: self.now + time }),
                StepKind::Await(wait) => match self.begin_to_await(wait, key, decided) {
                    Some(event) => Ok(event),
                    None => return,
                },
                StepKind::For(each) => self.items(each).map(|items| Event::StepFanOut { step: key.clone(), items }),
            },
        };
        decided.add(event.unwrap_or_else(|error| Event::StepFailed { step: key.clone(), error }));
    }

    fn go_on(&self, step: &'a Step, key: &UnitKey, unit: &'a Unit, decided: &mut Decided) {
        match &step.kind {
            StepKind::For(each) => {
                if let Some(fan) = self.state.fans.get(key) {
                    self.run_items(each, key, fan, decided);
                }
            }
            StepKind::Await(wait) => {
                if let Some(event) = self.wait_on(wait, key, unit, self.local, decided) {
                    decided.add(event);
                }
            }
            StepKind::Task(_)
            | StepKind::Workflow(_)
            | StepKind::Compute(_)
            | StepKind::Sleep(_)
            | StepKind::ContinueAsNew(_) => {
                let work = self.definition.work_of(key);
                if let Some(event) = attempts::go_on(self.state, key, work, unit, self.now) {
                    decided.add(event);
                }
            }
        }
    }

    /// What expressions of an item see.
    fn of_item(&self, fan: &'a Fan, index: Option<u32>) -> Local<'a> {
        let item = index.and_then(|index| Some((fan.items.get(index as usize)?, index)));
        Local { item, ..self.local }
    }

    fn begin_to_await(&self, wait: &AwaitStep, key: &UnitKey, decided: &Decided) -> Option<Event> {
        match decided.signals(self.state, &wait.signal) {
            Signals::Take(received) => Some(consumed(key, wait, received)),
            Signals::Later => None,
            Signals::None => Some(Event::SignalAwaited {
                step: key.clone(),
                signal: wait.signal.clone(),
                deadline_ms: wait.timeout.map(|timeout| self.now + timeout),
            }),
        }
    }

    /// A signal that came counts, however late; else the time may be over.
    fn wait_on(
        &self,
        wait: &AwaitStep,
        key: &UnitKey,
        unit: &Unit,
        local: Local<'_>,
        decided: &Decided,
    ) -> Option<Event> {
        match decided.signals(self.state, &wait.signal) {
            Signals::Take(received) => return Some(consumed(key, wait, received)),
            Signals::Later => return None,
            Signals::None => {}
        }
        let UnitStatus::Awaiting { deadline: Some(deadline), .. } = unit.status else { return None };
        if self.now < deadline {
            return None;
        }
        let failed = |error| Event::StepFailed { step: key.clone(), error };
        Some(match &wait.otherwise {
            Some(template) => self.render_with(template, local).map_or_else(failed, |output| succeeded(key, output)),
            None => {
                let limit = wait.timeout.unwrap_or_default().as_millis();
                failed(TaskError::last(codes::TIMEOUT, format!("no `{}` came within {limit} ms", wait.signal)))
            }
        })
    }

    /// The items of a `for` step that has its list.
    fn run_items(&self, each: &'a ForStep, key: &UnitKey, fan: &'a Fan, decided: &mut Decided) {
        if fan.is_done() {
            return decided.add(Event::StepFanIn { step: key.clone() });
        }
        let prefix = format!("{key}[");
        let units = self.state.units.range(UnitKey::new(prefix.as_str())..);
        let units = units.take_while(|(item, _)| item.as_str().starts_with(&prefix));
        // In the order of the list, so that of two that await the same signal the earlier one takes the first.
        let mut open: Vec<(Option<u32>, &UnitKey, &Unit)> =
            units.map(|(item, unit)| (UnitPath::parse(item).index, item, unit)).collect();
        open.sort_by_key(|(index, ..)| *index);
        let mut failed: Option<&TaskError> = None;
        for (index, item, unit) in open {
            let event = match (&unit.status, &*each.each) {
                (UnitStatus::Failed { error }, _) => {
                    failed = failed.or(Some(error));
                    None
                }
                (_, StepKind::Await(wait)) => self.wait_on(wait, item, unit, self.of_item(fan, index), decided),
                _ => attempts::go_on(self.state, item, self.definition.work_of(item), unit, self.now),
            };
            if let Some(event) = event {
                decided.add(event);
            }
        }
        if let Some(error) = failed {
            return decided.add(Event::StepFailed { step: key.clone(), error: error.clone() });
        }
        let parallel = match &*each.each {
            StepKind::Compute(_) => COMPUTED_AT_ONCE,
            _ => each.parallel,
        };
        for index in fan.to_begin(parallel) {
            let item = item_unit(key, index);
            let local = self.of_item(fan, Some(index));
            let event = match &*each.each {
                StepKind::Task(task) => self
                    .render_with(&task.input, local)
                    .map(|input| attempts::begin(self.state, &item, Work::Task(task), 1, input)),
                StepKind::Workflow(child) => self
                    .render_with(&child.input, local)
                    .map(|input| attempts::begin(self.state, &item, Work::Child(child), 1, input)),
                StepKind::Compute(template) => self.render_with(template, local).map(|output| succeeded(&item, output)),
                StepKind::Await(wait) => match self.begin_to_await(wait, &item, decided) {
                    Some(event) => Ok(event),
                    // All of them await the same.
                    None => break,
                },
                other => unreachable!("checked when the definition was read: no item does {other:?}"),
            };
            decided.add(event.unwrap_or_else(|error| Event::StepFailed { step: item, error }));
        }
    }

    /// Whether the step's `when` lets it run.
    fn runs(&self, step: &Step) -> Result<bool, TaskError> {
        let Some(when) = &step.when else { return Ok(true) };
        match &*self.render(when)? {
            Value::Bool(runs) => Ok(*runs),
            other => Err(wrong(format!("`when` must give true or false; it gave {other}"))),
        }
    }

    fn sleep_time(&self, template: &Template) -> Result<Duration, TaskError> {
        let value = self.render(template)?;
        let time = match &*value {
            Value::String(text) => parse_duration(text),
            number => whole_number(number).map(Duration::from_millis),
        };
        let message = || format!("`sleep` must give a duration such as \"10s\", or milliseconds; it gave {value}");
        time.ok_or_else(|| wrong(message()))
    }

    fn items(&self, each: &ForStep) -> Result<Vec<Json>, TaskError> {
        match Arc::unwrap_or_clone(self.render(&each.list)?) {
            Value::Array(items) => Ok(items.into_iter().map(Arc::new).collect()),
            other => Err(wrong(format!("`for` must give a list; it gave {other}"))),
        }
    }

    pub(super) fn render(&self, template: &Template) -> Result<Json, TaskError> {
        self.render_with(template, self.local)
    }

    pub(super) fn render_with(&self, template: &Template, local: Local<'_>) -> Result<Json, TaskError> {
        render(self.state, template, local)
    }
}

/// The value of a template in a state.
pub fn render(state: &State, template: &Template, local: Local<'_>) -> Result<Json, TaskError> {
    let local = Local { continue_suggested: state.continue_suggested, ..local };
    let scope = Scope {
        input: &state.input,
        outputs: &state.outputs,
        execution: &state.identity.execution_id,
        workflow: &state.workflow,
        version: &state.version,
        run: state.identity.run,
        local,
    };
    template.render(&scope).map(Arc::new).map_err(|error: ExpressionError| wrong(error.to_string()))
}

fn wrong(message: String) -> TaskError {
    TaskError::last(codes::EXPRESSION_ERROR, message)
}

fn succeeded(key: &UnitKey, output: Json) -> Event {
    Event::StepSucceeded { step: key.clone(), attempt: 1, output, token: None }
}

fn consumed(key: &UnitKey, wait: &AwaitStep, received: &Received) -> Event {
    Event::SignalConsumed { step: key.clone(), signal: wait.signal.clone(), received: received.seq }
}
