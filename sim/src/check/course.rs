//! The course of one execution: bounds of `for` steps, handlers, winding down, compensation and the end; each from the
//! definition and the history alone.
//!
//! Like [`super::history`] it knows nothing of `decide`.

use super::{Checked, Violation, ensure};
use crate::coverage::{Coverage, Mark};
use orbit_core::definition::unit::{compensation_unit, step_unit};
use orbit_core::definition::{Definition, Place, StepKind, UnitPath};
use orbit_core::execution::event::{AbortReason, CompensationOutcome, Event, TaskError};
use orbit_core::id::{HandlerKey, StepId, UnitKey};
use std::collections::{BTreeMap, BTreeSet};

const CHECK: &str = "course";

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct Course {
    /// Why it winds down.
    cause: Option<Cause>,
    /// Units that have begun and not ended.
    open: BTreeSet<UnitKey>,
    ended: BTreeMap<UnitKey, Ending>,
    /// Units of the workflow's steps that succeeded, in order.
    succeeded: Vec<UnitKey>,
    fans: BTreeMap<UnitKey, Fan>,
    undoing: Option<Undoing>,
    /// Handlers that have begun, and whether they have ended.
    handlers: BTreeMap<HandlerKey, bool>,
}

/// Why an execution winds down.
#[derive(Clone, Debug)]
enum Cause {
    Failed(TaskError),
    Cancelled,
    TimedOut,
    Terminated,
}

impl Cause {
    fn reason(&self) -> Option<AbortReason> {
        Some(match self {
            Cause::Failed(_) => AbortReason::Failed,
            Cause::Cancelled => AbortReason::Cancelled,
            Cause::TimedOut => AbortReason::TimedOut,
            Cause::Terminated => return None,
        })
    }
}

/// How a unit ended.
#[derive(Clone, Debug)]
enum Ending {
    Well,
    Failed(TaskError),
    Cancelled,
}

/// A `for` step that has its list.
#[derive(Clone, Debug)]
struct Fan {
    items: usize,
    under_way: BTreeSet<u32>,
    done: usize,
}

#[derive(Clone, Debug)]
struct Undoing {
    units: Vec<UnitKey>,
    /// How many of them have begun.
    begun: usize,
    outcome: Option<CompensationOutcome>,
}

fn broken<T>(message: String) -> Result<T, Violation> {
    Err(Violation::safety(CHECK, message))
}

impl Course {
    /// Whether it takes nothing in any more.
    pub fn winds_down(&self) -> bool {
        self.cause.is_some()
    }

    /// One more event.
    pub fn on_event(&mut self, at: &str, definition: &Definition, event: &Event, marks: &mut Coverage) -> Checked {
        match event {
            Event::StepScheduled { step, .. } => {
                self.goes_on(at, definition, step)?;
                if self.open.insert(step.clone()) {
                    self.begins(at, definition, step, marks)?;
                }
            }
            Event::StepFanOut { step, items } => {
                self.goes_on(at, definition, step)?;
                self.open.insert(step.clone());
                let fan = Fan { items: items.len(), under_way: BTreeSet::new(), done: 0 };
                let first = self.fans.insert(step.clone(), fan).is_none();
                ensure!(first, CHECK, "{at}: {step} gets a second list");
                if let Some(StepKind::For(each)) = definition.step_of(step).map(|step| &step.kind)
                    && items.len() > each.parallel as usize
                    && !matches!(*each.each, StepKind::Compute(_))
                {
                    marks.hit(Mark::ManyItems);
                }
            }
            Event::TimerStarted { step, .. } => {
                self.goes_on(at, definition, step)?;
                self.open.insert(step.clone());
            }
            Event::ChildScheduled { step, .. } | Event::SignalAwaited { step, .. } => {
                self.goes_on(at, definition, step)?;
                if self.open.insert(step.clone()) {
                    self.begins(at, definition, step, marks)?;
                }
            }
            // A child outlives nothing: what winds down waits for its end.
            Event::ChildCompleted { step, .. } => {
                self.ends(at, step, Ending::Well)?;
                self.succeeds(step);
            }
            Event::ChildFailed { step, .. } if self.winds_down() => self.ends(at, step, Ending::Cancelled)?,
            Event::StepDispatched { step, .. } | Event::RetryScheduled { step, .. } => {
                self.goes_on(at, definition, step)?;
                ensure!(self.open.contains(step), CHECK, "{at}: {step} is not under way");
            }
            Event::StepSkipped { step, .. } => {
                self.goes_on(at, definition, step)?;
                self.ends(at, step, Ending::Well)?;
            }
            Event::StepSucceeded { step, .. } | Event::TimerFired { step } | Event::SignalConsumed { step, .. } => {
                self.goes_on(at, definition, step)?;
                self.ends(at, step, Ending::Well)?;
                self.succeeds(step);
            }
            Event::StepFanIn { step } => {
                self.goes_on(at, definition, step)?;
                let fan = self.fans.get(step);
                let all = fan.is_some_and(|fan| fan.done == fan.items && fan.under_way.is_empty());
                ensure!(all, CHECK, "{at}: the items of {step} have not all ended well: {fan:?}");
                self.ends(at, step, Ending::Well)?;
                self.succeeds(step);
            }
            Event::StepFailed { step, error } => self.fails(at, step, error, marks)?,
            Event::StepCancelled { step } => self.on_cancelled(at, step)?,
            Event::LimitReached { error, step: Some(step), .. } => {
                ensure!(self.winds_down(), CHECK, "{at}: the bound fails {step} alone, and nothing winds down");
                self.ends(at, step, Ending::Failed(error.clone()))?;
            }
            Event::LimitReached { error, step: None, .. }
            | Event::ContractViolated { error, .. }
            | Event::ResultFailed { error } => self.winds(at, Cause::Failed(error.clone()))?,
            Event::CancelRequested { .. } => self.winds(at, Cause::Cancelled)?,
            Event::WorkflowTimeoutReached => {
                if self.has_task_out() {
                    marks.hit(Mark::WorkflowTimedOutInFlight);
                }
                self.winds(at, Cause::TimedOut)?;
            }
            Event::TerminateRequested { .. } => {
                if self.undoing.as_ref().is_some_and(|undoing| undoing.outcome.is_none()) {
                    marks.hit(Mark::TerminatedWhileUndoing);
                }
                self.cause = Some(Cause::Terminated);
            }
            Event::SignalReceived { .. } | Event::UpdateAccepted { .. } => {
                ensure!(!self.winds_down(), CHECK, "{at}: something is taken in though it winds down");
            }
            Event::CompensationStarted { reason, steps } => self.on_compensation(at, definition, *reason, steps)?,
            Event::CompensationCompleted | Event::CompensationFailed { .. } => self.on_undone(at, event, marks)?,
            Event::HandlerStarted { handler } => self.on_handler(at, definition, handler)?,
            Event::HandlerCompleted { handler } => self.on_handled(at, definition, handler, None, marks)?,
            Event::HandlerFailed { handler, error } => {
                self.on_handled(at, definition, handler, Some(error), marks)?;
                marks.hit(Mark::HandlerFailed);
            }
            Event::WorkflowContinuedAsNew { .. } => self.on_continue(at, definition)?,
            event if event.is_terminal() => self.on_end(at, definition, event, marks)?,
            _ => {}
        }
        Ok(())
    }

    fn has_task_out(&self) -> bool {
        self.open.iter().any(|unit| !self.fans.contains_key(unit))
    }

    /// Once it winds down nothing goes on but what cleans up; once it is terminated, nothing at all. Of an event's
    /// handler only what has begun goes on.
    fn goes_on(&self, at: &str, definition: &Definition, unit: &UnitKey) -> Checked {
        let path = UnitPath::parse(unit);
        match &self.cause {
            None => ensure!(!path.cleans_up(), CHECK, "{at}: {unit} cleans up, and nothing winds down"),
            Some(Cause::Terminated) => return broken(format!("{at}: {unit} goes on after it was terminated")),
            Some(_) => ensure!(path.cleans_up(), CHECK, "{at}: {unit} goes on though it winds down"),
        }
        if let Some(handler) = path.handler {
            let runs = self.handlers.get(handler) == Some(&false);
            ensure!(runs, CHECK, "{at}: {unit} goes on, and its handler does not run");
        }
        if path.compensates {
            let of = unit.as_str().strip_prefix("compensate:").expect("it compensates");
            let listed = self.undoing.as_ref().filter(|undoing| undoing.outcome.is_none());
            let listed = listed.is_some_and(|undoing| undoing.units.iter().any(|unit| unit.as_str() == of));
            ensure!(listed, CHECK, "{at}: {unit} is not among what is to be undone");
        } else if let Some(index) = path.index {
            let whole = path.whole();
            let Some(fan) = self.fans.get(&whole) else { return broken(format!("{at}: {whole} has no list")) };
            ensure!((index as usize) < fan.items, CHECK, "{at}: {whole} has {} items", fan.items);
            ensure!(self.open.contains(&whole), CHECK, "{at}: {unit} goes on though {whole} has ended");
        }
        ensure!(definition.step_of(unit).is_some(), CHECK, "{at}: the definition has no step {unit}");
        Ok(())
    }

    /// The first attempt of a unit.
    fn begins(&mut self, at: &str, definition: &Definition, unit: &UnitKey, marks: &mut Coverage) -> Checked {
        let path = UnitPath::parse(unit);
        if path.compensates {
            return self.begins_undoing(at, unit);
        }
        let Some(index) = path.index else { return Ok(()) };
        let whole = path.whole();
        let parallel = match definition.step_of(&whole).map(|step| &step.kind) {
            Some(StepKind::For(each)) => each.parallel as usize,
            _ => return broken(format!("{at}: {whole} is no `for` step")),
        };
        let fan = self.fans.get_mut(&whole).expect("looked at before");
        fan.under_way.insert(index);
        let under_way = fan.under_way.len();
        ensure!(
            under_way <= parallel,
            CHECK,
            "{at}: {under_way} items of {whole} are under way, of {parallel} at most"
        );
        if under_way == parallel && parallel > 1 {
            marks.hit(Mark::ItemsInParallel);
        }
        Ok(())
    }

    /// What is undone is undone one after the other, in the order of the list.
    fn begins_undoing(&mut self, at: &str, unit: &UnitKey) -> Checked {
        let undoing = self.undoing.as_mut().expect("looked at before");
        // What could not even begin failed at once.
        while let Some(next) = undoing.units.get(undoing.begun)
            && self.ended.contains_key(&compensation_unit(next))
        {
            undoing.begun += 1;
        }
        let next = undoing.units.get(undoing.begun).map(compensation_unit);
        ensure!(next.as_ref() == Some(unit), CHECK, "{at}: {unit} begins, and {next:?} is to be undone next");
        undoing.begun += 1;
        let others: Vec<&UnitKey> =
            self.open.iter().filter(|open| *open != unit && UnitPath::parse(open).compensates).collect();
        ensure!(others.is_empty(), CHECK, "{at}: {unit} begins while {others:?} is being undone");
        Ok(())
    }

    fn ends(&mut self, at: &str, unit: &UnitKey, ending: Ending) -> Checked {
        self.open.remove(unit);
        let path = UnitPath::parse(unit);
        if let (false, Some(index)) = (path.compensates, path.index)
            && let Some(fan) = self.fans.get_mut(&path.whole())
        {
            fan.under_way.remove(&index);
            fan.done += usize::from(matches!(ending, Ending::Well));
        }
        let before = self.ended.insert(unit.clone(), ending);
        ensure!(before.is_none(), CHECK, "{at}: {unit} ended before: {before:?}");
        Ok(())
    }

    fn succeeds(&mut self, unit: &UnitKey) {
        let path = UnitPath::parse(unit);
        if !path.compensates && path.handler.is_none() {
            self.succeeded.push(unit.clone());
        }
    }

    fn fails(&mut self, at: &str, unit: &UnitKey, error: &TaskError, marks: &mut Coverage) -> Checked {
        let path = UnitPath::parse(unit);
        if path.compensates || path.cleans_up() {
            ensure!(self.winds_down(), CHECK, "{at}: {unit} fails, and nothing winds down");
        } else {
            ensure!(!self.winds_down(), CHECK, "{at}: {unit} fails though it winds down");
        }
        self.ends(at, unit, Ending::Failed(error.clone()))?;
        if path.index.is_some() && !path.compensates {
            marks.hit(Mark::ItemFailed);
        }
        if !path.cleans_up() && path.index.is_none() {
            if let Some(fan) = self.fans.get(unit) {
                let item = |item: &&UnitKey| UnitPath::parse(item).whole() == *unit && *item != unit;
                let failed = self.ended.iter().filter(|(key, _)| item(key));
                let failed = failed.filter(|(_, ending)| matches!(ending, Ending::Failed(e) if e == error)).count();
                ensure!(failed > 0, CHECK, "{at}: {unit} fails, and none of its {} items did so", fan.items);
            }
            let step = Some(StepId::new(path.step));
            self.winds(at, Cause::Failed(TaskError { step, ..error.clone() }))?;
        }
        Ok(())
    }

    /// Only what is of no use any more is cancelled.
    fn on_cancelled(&mut self, at: &str, unit: &UnitKey) -> Checked {
        ensure!(self.open.contains(unit), CHECK, "{at}: {unit} is cancelled and was not under way");
        let path = UnitPath::parse(unit);
        let of_a_failed_handler = path.handler.is_some_and(|handler| self.failure_in(handler).is_some());
        let useless = match &self.cause {
            None => false,
            Some(Cause::Terminated) => true,
            Some(_) => !path.cleans_up() || of_a_failed_handler,
        };
        ensure!(useless, CHECK, "{at}: {unit} is cancelled, and nothing asks for it");
        self.ends(at, unit, Ending::Cancelled)
    }

    /// The first cause counts, unless somebody wants the end at once.
    fn winds(&mut self, at: &str, cause: Cause) -> Checked {
        ensure!(self.cause.is_none(), CHECK, "{at}: {cause:?} comes though it winds down: {:?}", self.cause);
        self.cause = Some(cause);
        Ok(())
    }

    /// What succeeded and can be undone, the last one first: items, not the `for` step that they belong to.
    fn to_undo(&self, definition: &Definition) -> Vec<UnitKey> {
        let undoable = |unit: &&UnitKey| {
            let step = definition.step_of(unit).filter(|step| step.compensate.is_some());
            step.is_some_and(|step| match step.kind {
                StepKind::For(_) => UnitPath::parse(unit).index.is_some(),
                _ => true,
            })
        };
        self.succeeded.iter().rev().filter(undoable).cloned().collect()
    }

    fn all_of_course_ended(&self, at: &str) -> Checked {
        let open: Vec<&UnitKey> = self.open.iter().filter(|unit| !UnitPath::parse(unit).cleans_up()).collect();
        ensure!(open.is_empty(), CHECK, "{at}: {open:?} are still under way");
        Ok(())
    }

    fn on_compensation(
        &mut self,
        at: &str,
        definition: &Definition,
        reason: AbortReason,
        units: &[UnitKey],
    ) -> Checked {
        self.all_of_course_ended(at)?;
        let why = self.cause.as_ref().and_then(Cause::reason);
        ensure!(why == Some(reason), CHECK, "{at}: it is undone as {reason:?}, and winds down as {why:?}");
        let expected = self.to_undo(definition);
        ensure!(
            units == expected && !units.is_empty(),
            CHECK,
            "{at}: {units:?} are to be undone, and what succeeded, the last one first, is {expected:?}"
        );
        ensure!(self.undoing.is_none(), CHECK, "{at}: it is undone a second time");
        self.undoing = Some(Undoing { units: units.to_vec(), begun: 0, outcome: None });
        Ok(())
    }

    fn on_undone(&mut self, at: &str, event: &Event, marks: &mut Coverage) -> Checked {
        let Some(undoing) = &mut self.undoing else { return broken(format!("{at}: nothing was being undone")) };
        ensure!(undoing.outcome.is_none(), CHECK, "{at}: the compensation ended before");
        let mut failed = None;
        for unit in &undoing.units {
            match self.ended.get(&compensation_unit(unit)) {
                Some(Ending::Well) => {}
                Some(Ending::Failed(error)) => failed = failed.or(Some((unit, error))),
                ending => return broken(format!("{at}: the undoing of {unit} is not over: {ending:?}")),
            }
        }
        let said = match event {
            Event::CompensationFailed { step, error } => Some((step, error)),
            _ => None,
        };
        ensure!(said == failed, CHECK, "{at}: {said:?} could not be undone, and what failed is {failed:?}");
        undoing.outcome = Some(match failed {
            Some(_) => CompensationOutcome::Failed,
            None => CompensationOutcome::Completed,
        });
        marks.hit(match failed {
            Some(_) => Mark::CompensationFailed,
            None => Mark::CompensationCompleted,
        });
        Ok(())
    }

    /// Handlers of an end run after the compensation, those of events while it runs, one at a time for each signal.
    fn on_handler(&mut self, at: &str, definition: &Definition, key: &HandlerKey) -> Checked {
        let Some(place) = Place::of_handler(key.as_str()) else { return broken(format!("{at}: no handler is {key}")) };
        ensure!(!definition.steps_at(place).is_empty(), CHECK, "{at}: {key} has no steps");
        if let Place::Event { signal, .. } = place {
            ensure!(!self.winds_down(), CHECK, "{at}: {key} begins though it winds down");
            let same = |key: &HandlerKey| matches!(Place::of_handler(key.as_str()), Some(Place::Event { signal: of, .. }) if of == signal);
            let other = self.handlers.iter().find(|(key, ended)| same(key) && !**ended);
            ensure!(other.is_none(), CHECK, "{at}: {key} begins while {other:?} runs");
        } else {
            let expected = match &self.cause {
                Some(Cause::Failed(_)) => Place::Failure,
                Some(Cause::Cancelled) => Place::Cancel,
                Some(Cause::TimedOut) => Place::Timeout,
                other => return broken(format!("{at}: {key} begins, and it winds down by {other:?}")),
            };
            ensure!(place == expected, CHECK, "{at}: {key} begins, and it winds down by {:?}", self.cause);
            self.is_undone(at, definition)?;
        }
        let before = self.handlers.insert(key.clone(), false);
        ensure!(before.is_none(), CHECK, "{at}: {key} begins a second time");
        Ok(())
    }

    /// That what there was to undo is undone, as far as it could be.
    fn is_undone(&self, at: &str, definition: &Definition) -> Checked {
        self.all_of_course_ended(at)?;
        match &self.undoing {
            Some(undoing) => ensure!(undoing.outcome.is_some(), CHECK, "{at}: it is still being undone"),
            None => {
                let left = self.to_undo(definition);
                ensure!(left.is_empty(), CHECK, "{at}: {left:?} were not undone");
            }
        }
        Ok(())
    }

    /// Why a step of a handler failed.
    fn failure_in(&self, handler: &str) -> Option<&TaskError> {
        self.ended.iter().find_map(|(unit, ending)| match ending {
            Ending::Failed(error) => {
                let path = UnitPath::parse(unit);
                (path.handler == Some(handler) && path.index.is_none()).then_some(error)
            }
            _ => None,
        })
    }

    fn on_handled(
        &mut self,
        at: &str,
        definition: &Definition,
        key: &HandlerKey,
        error: Option<&TaskError>,
        marks: &mut Coverage,
    ) -> Checked {
        let runs = self.handlers.insert(key.clone(), true) == Some(false);
        ensure!(runs, CHECK, "{at}: {key} ends and did not run");
        let place = Place::of_handler(key.as_str()).expect("it began");
        let failure = self.failure_in(key.as_str());
        let same = match (error, failure) {
            (None, None) => true,
            (Some(said), Some(found)) => said.code == found.code,
            _ => false,
        };
        ensure!(same, CHECK, "{at}: {key} ends with {error:?}, and of its steps this failed: {failure:?}");
        for step in definition.steps_at(place) {
            let unit = step_unit(Some(key), &step.id);
            ensure!(!self.open.contains(&unit), CHECK, "{at}: {key} ends before {unit}");
            let well = matches!(self.ended.get(&unit), Some(Ending::Well));
            ensure!(well || error.is_some(), CHECK, "{at}: {key} ends well, and {unit} did not");
        }
        marks.hit(match place {
            Place::Event { .. } => Mark::EventHandled,
            Place::Failure => Mark::FailureHandled,
            Place::Cancel => Mark::CancelHandled,
            Place::Timeout => Mark::TimeoutHandled,
            Place::Workflow => return broken(format!("{at}: the workflow is no handler")),
        });
        Ok(())
    }

    /// The end fits its cause, and nothing is left that should have come before it.
    fn on_end(&mut self, at: &str, definition: &Definition, event: &Event, marks: &mut Coverage) -> Checked {
        ensure!(self.open.is_empty(), CHECK, "{at}: it ends while {:?} are under way", self.open);
        let outcome = self.undoing.as_ref().and_then(|undoing| undoing.outcome);
        let (fits, told) = match (event, &self.cause) {
            (Event::WorkflowCompleted { .. }, None) => (true, None),
            (Event::WorkflowFailed { error, compensation, .. }, Some(Cause::Failed(cause))) => {
                (error == cause, *compensation)
            }
            // The result could not be computed, and there is nothing to undo or to handle.
            (Event::WorkflowFailed { error, compensation, .. }, None) => {
                let nothing = definition.on.failure.is_empty() && self.to_undo(definition).is_empty();
                (nothing && error.step.is_none() && self.done(definition), *compensation)
            }
            (Event::WorkflowCancelled { compensation, .. }, Some(Cause::Cancelled))
            | (Event::WorkflowTimedOut { compensation, .. }, Some(Cause::TimedOut)) => (true, *compensation),
            (Event::WorkflowTerminated { .. }, Some(Cause::Terminated)) => {
                marks.hit(Mark::ExecutionTerminated);
                return Ok(());
            }
            _ => (false, None),
        };
        ensure!(fits, CHECK, "{at}: it ends as {event:?}, and winds down by {:?}", self.cause);
        ensure!(told == outcome, CHECK, "{at}: the compensation is told as {told:?}, and is {outcome:?}");
        let running = self.handlers.iter().find(|(_, ended)| !**ended);
        match &self.cause {
            None => ensure!(running.is_none(), CHECK, "{at}: it ends while {running:?} runs"),
            Some(cause) => {
                self.is_undone(at, definition)?;
                let (place, key) = match cause {
                    Cause::Failed(_) => (Place::Failure, "on_failure"),
                    Cause::Cancelled => (Place::Cancel, "on_cancel"),
                    _ => (Place::Timeout, "on_timeout"),
                };
                let handled = self.handlers.get(key) == Some(&true);
                let none = definition.steps_at(place).is_empty();
                ensure!(handled || none, CHECK, "{at}: it ends, and {key} has not run to its end");
            }
        }
        if let Event::WorkflowTimedOut { .. } = event {
            marks.hit(Mark::ExecutionTimedOut);
        }
        Ok(())
    }

    /// A run ends well, and with nothing of it under way, where a step wants the next one.
    fn on_continue(&self, at: &str, definition: &Definition) -> Checked {
        ensure!(!self.winds_down(), CHECK, "{at}: it continues as new, and winds down by {:?}", self.cause);
        ensure!(self.open.is_empty(), CHECK, "{at}: it continues as new while {:?} are under way", self.open);
        let running = self.handlers.iter().find(|(_, ended)| !**ended);
        ensure!(running.is_none(), CHECK, "{at}: it continues as new while {running:?} runs");
        let wants = definition.steps.iter().any(|step| {
            let well = |before: &StepId| matches!(self.ended.get(before.as_str()), Some(Ending::Well));
            let over = self.ended.contains_key(step.id.as_str());
            matches!(step.kind, StepKind::ContinueAsNew(_)) && !over && step.after.iter().all(well)
        });
        ensure!(wants, CHECK, "{at}: it continues as new, and no step wants that");
        Ok(())
    }

    fn done(&self, definition: &Definition) -> bool {
        definition.steps.iter().all(|step| matches!(self.ended.get(step.id.as_str()), Some(Ending::Well)))
    }
}
