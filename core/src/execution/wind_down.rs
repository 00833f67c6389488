//! What follows an end that is not a good one: what is open is cancelled, what was done is undone, the handler runs.

use crate::definition::unit::compensation_unit;
use crate::definition::{Definition, Local, Place, StepKind, UnitPath};
use crate::execution::attempts::{go_on, schedule};
use crate::execution::block::{Block, Decided, render};
use crate::execution::decide::{is_of_course, unconsumed};
use crate::execution::event::{AbortReason, CompensationOutcome, Event, Json, TaskError, codes};
use crate::execution::state::{Abort, Asked, Compensation, State, UnitStatus};
use crate::id::{HandlerKey, UnitKey};
use crate::time::ClusterMs;
use serde_json::{Value, json};
use std::sync::Arc;

/// What is decided next.
pub(super) fn wind_down(definition: &Definition, state: &State, abort: &Abort, now: ClusterMs) -> Vec<Event> {
    let at_once = matches!(abort, Abort::Terminated { .. });
    let open = state.units.iter().filter(|(key, unit)| !unit.status.has_ended() && (at_once || is_of_course(key)));
    let mut decided = Vec::new();
    let mut waits = false;
    for (key, unit) in open {
        let step = key.clone();
        match &unit.status {
            // A child outlives nothing: its end is waited for.
            UnitStatus::Child { child, asked, .. } => {
                waits = true;
                let wanted = if at_once { Asked::Terminated } else { Asked::Cancelled };
                if *asked < Some(wanted) {
                    let child = child.clone();
                    decided.push(Event::ChildEndRequested { step, child, terminate: at_once, timed_out: false });
                }
            }
            _ => decided.push(Event::StepCancelled { step }),
        }
    }
    if waits || !decided.is_empty() {
        return decided;
    }
    if !at_once && let Some(decided) = clean_up(definition, state, abort, now) {
        return decided;
    }
    vec![end(state, abort)]
}

/// Whether there is something to undo or to handle after a failure.
pub(super) fn has_cleanup(definition: &Definition, state: &State) -> bool {
    !definition.on.failure.is_empty() || !to_undo(definition, state).is_empty()
}

/// Compensation, then the handler; none where both are over.
fn clean_up(definition: &Definition, state: &State, abort: &Abort, now: ClusterMs) -> Option<Vec<Event>> {
    match &state.compensation {
        None => {
            let steps = to_undo(definition, state);
            if !steps.is_empty() {
                return Some(vec![Event::CompensationStarted { reason: reason(abort), steps }]);
            }
        }
        Some(compensation) if compensation.outcome.is_none() => {
            return Some(compensate(definition, state, compensation, now));
        }
        Some(_) => {}
    }
    handle(definition, state, abort, now)
}

/// What succeeded and can be undone: the last one first.
fn to_undo(definition: &Definition, state: &State) -> Vec<UnitKey> {
    let undoable = |unit: &&UnitKey| {
        definition.step_of(unit).is_some_and(|step| {
            // Of a `for` step it is the items that are undone.
            let one = UnitPath::parse(unit).index.is_some() || !matches!(step.kind, StepKind::For(_));
            one && step.compensate.is_some()
        })
    };
    state.succeeded.iter().rev().filter(undoable).cloned().collect()
}

/// One unit after the other; one that cannot be undone does not keep the others from it.
fn compensate(definition: &Definition, state: &State, compensation: &Compensation, now: ClusterMs) -> Vec<Event> {
    let mut failed = None;
    for unit in &compensation.steps {
        let key = compensation_unit(unit);
        match state.units.get(&key) {
            None => return vec![begin(definition, state, unit, &key)],
            Some(undoing) => match &undoing.status {
                UnitStatus::Failed { error } => failed = failed.or(Some((unit, error))),
                status if status.has_ended() => {}
                _ => return go_on(state, &key, definition.work_of(&key), undoing, now).into_iter().collect(),
            },
        }
    }
    vec![match failed {
        None => Event::CompensationCompleted,
        Some((unit, error)) => Event::CompensationFailed { step: unit.clone(), error: error.clone() },
    }]
}

fn begin(definition: &Definition, state: &State, unit: &UnitKey, key: &UnitKey) -> Event {
    let path = UnitPath::parse(unit);
    let whole = state.outputs.get(path.step);
    let fan = state.fans.get(&path.whole());
    let output: Option<Json> = match path.index {
        None => whole.cloned(),
        Some(index) => fan.and_then(|fan| fan.output(index)).cloned().or_else(|| {
            let item = whole?.as_array()?.get(index as usize)?;
            Some(Arc::new(item.clone()))
        }),
    };
    let item = path.index.and_then(|index| Some((fan?.items.get(index as usize)?, index)));
    let local = Local { output: output.as_ref(), item, ..Local::default() };
    let input = match definition.task_of(key) {
        Some(task) => render(state, &task.input, local),
        None => Err(TaskError::last(codes::EXPRESSION_ERROR, format!("nothing undoes {unit}"))),
    };
    match input {
        Ok(input) => schedule(state, key, 1, input, false),
        Err(error) => Event::StepFailed { step: key.clone(), error },
    }
}

/// The handler of this end, where there is one that is not over.
fn handle(definition: &Definition, state: &State, abort: &Abort, now: ClusterMs) -> Option<Vec<Event>> {
    let (place, key) = match abort {
        Abort::Failed(_) => (Place::Failure, "on_failure"),
        Abort::Cancelled { .. } => (Place::Cancel, "on_cancel"),
        Abort::TimedOut => (Place::Timeout, "on_timeout"),
        Abort::Terminated { .. } => return None,
    };
    if definition.steps_at(place).is_empty() {
        return None;
    }
    let key = HandlerKey::new(key);
    let Some(handler) = state.handlers.get(&key) else { return Some(vec![Event::HandlerStarted { handler: key }]) };
    if handler.ended {
        return None;
    }
    let failure = Arc::new(describe(abort));
    let block = Block::handler(definition, state, &key, handler, Some(&failure), now);
    if let Some(error) = block.failure() {
        let open = state
            .units
            .iter()
            .filter(|(unit, state)| !state.status.has_ended() && UnitPath::parse(unit).handler == Some(key.as_str()));
        let mut decided: Vec<Event> = open.map(|(unit, _)| Event::StepCancelled { step: unit.clone() }).collect();
        if decided.is_empty() {
            decided.push(Event::HandlerFailed { handler: key.clone(), error });
        }
        return Some(decided);
    }
    let mut decided = Decided::default();
    if block.run(&mut decided) {
        return Some(vec![Event::HandlerCompleted { handler: key }]);
    }
    Some(decided.into_events())
}

/// `failure`, as the handler sees it.
fn describe(abort: &Abort) -> Value {
    let (code, message, step) = match abort {
        Abort::Failed(error) => (error.code.as_str(), error.message.as_str(), error.step.as_ref()),
        Abort::Cancelled { reason } | Abort::Terminated { reason } => {
            (codes::CANCELLED, reason.as_deref().unwrap_or("cancelled"), None)
        }
        Abort::TimedOut => (codes::WORKFLOW_TIMEOUT, "the workflow took longer than its `timeout`", None),
    };
    json!({"reason": reason(abort), "code": code, "message": message, "step": step})
}

fn reason(abort: &Abort) -> AbortReason {
    match abort {
        Abort::Failed(_) => AbortReason::Failed,
        Abort::Cancelled { .. } | Abort::Terminated { .. } => AbortReason::Cancelled,
        Abort::TimedOut => AbortReason::TimedOut,
    }
}

fn end(state: &State, abort: &Abort) -> Event {
    let compensation: Option<CompensationOutcome> = state.compensation.as_ref().and_then(|c| c.outcome);
    let unconsumed = unconsumed(state);
    match abort {
        Abort::Failed(error) => Event::WorkflowFailed { error: error.clone(), compensation, unconsumed },
        Abort::Cancelled { .. } => Event::WorkflowCancelled { compensation, unconsumed },
        Abort::TimedOut => Event::WorkflowTimedOut { compensation, unconsumed },
        Abort::Terminated { .. } => Event::WorkflowTerminated { unconsumed },
    }
}
