//! What follows from a state: pure, total, and asked until it has nothing more.
//!
//! Each event of one answer is computed from the state that was given, and they may be applied one after the other: after
//! each of them the rest is still decided. An event after which the others would not be (a step failed for good) is
//! therefore an answer of its own; what something else could take away (a signal that is taken, a handler that begins)
//! or could give another value (a handler reads whatever steps have ended by then) comes first. That is what lets
//! [`crate::execution::replay()`] check a history event by event.
//!
//! What is here is about the execution as a whole; `block` runs a list of steps, `attempts` one unit, `wind_down` what
//! follows an end that is not a good one.

use crate::definition::unit::event_handler;
use crate::definition::{Definition, Place, UnitPath};
use crate::execution::attempts;
use crate::execution::block::{Block, Decided};
use crate::execution::event::{Event, Json, Unconsumed};
use crate::execution::state::{Phase, State};
use crate::execution::wind_down::{has_cleanup, wind_down};
use crate::id::{HandlerKey, UnitKey};
use crate::time::ClusterMs;

/// What is to be recorded next at `now`; empty where the execution waits, or has ended.
pub fn decide(definition: &Definition, state: &State, now: ClusterMs) -> Vec<Event> {
    if state.held.is_some() {
        return Vec::new();
    }
    let now = now.max(state.last_at);
    match &state.phase {
        Phase::Created => vec![Event::WorkflowStarted],
        Phase::Running => run(definition, state, now),
        Phase::WindingDown(abort) => wind_down(definition, state, abort, now),
        Phase::Ended(_) => Vec::new(),
    }
}

/// When [`decide`] has something to say although nothing happens; `None` where it waits for the outside alone.
pub fn next_wake(definition: &Definition, state: &State) -> Option<ClusterMs> {
    if state.held.is_some() {
        return None;
    }
    let whole = match state.phase {
        Phase::Running => definition.timeout.map(|timeout| state.run_at + timeout),
        Phase::WindingDown(_) => None,
        Phase::Created | Phase::Ended(_) => return None,
    };
    let units = state.units.iter().filter_map(|(key, unit)| attempts::wake(definition, key, unit));
    units.chain(whole).min()
}

fn run(definition: &Definition, state: &State, now: ClusterMs) -> Vec<Event> {
    if definition.timeout.is_some_and(|timeout| now >= state.run_at + timeout) {
        return vec![Event::WorkflowTimeoutReached];
    }
    let mut decided = Decided::default();
    let all_ended = Block::workflow(definition, state, now).run(&mut decided);
    let mut of_handlers = Decided::default();
    let may_begin = decided.continues.is_none();
    let handling = run_event_handlers(definition, state, now, may_begin, &mut of_handlers);
    decided.put_first(of_handlers);
    if all_ended && !handling {
        return vec![finish(definition, state, now)];
    }
    // A run ends once nothing of it is open: what was not taken in it the next one finds.
    if let Some(input) = &decided.continues
        && !handling
        && decided.is_empty()
        && state.units.values().all(|unit| unit.status.has_ended())
    {
        return vec![Event::WorkflowContinuedAsNew { input: input.clone(), next_run: state.identity.run.next() }];
    }
    decided.into_events()
}

/// The handlers of events: of each signal one run at a time, in the order in which they came. Whether there is one, or
/// is to be one: none begins in a run that is to be followed by the next.
fn run_event_handlers(
    definition: &Definition,
    state: &State,
    now: ClusterMs,
    may_begin: bool,
    decided: &mut Decided,
) -> bool {
    let mut handling = false;
    for signal in definition.on.event.keys() {
        let of_signal = |key: &HandlerKey| match Place::of_handler(key.as_str()) {
            Some(Place::Event { signal: of, .. }) => of == signal.as_str(),
            _ => false,
        };
        let open = state.handlers.iter().find(|(key, _)| of_signal(key));
        if let Some((key, handler)) = open {
            handling = true;
            if Block::handler(definition, state, key, handler, None, now).run(decided) {
                decided.add(Event::HandlerCompleted { handler: key.clone() });
            }
        } else if may_begin && let Some(first) = state.buffered.get(signal).and_then(|buffered| buffered.front()) {
            handling = true;
            decided.add(Event::HandlerStarted { handler: event_handler(signal, first.seq) });
        }
    }
    handling
}

/// The workflow's end, once every step has ended well.
fn finish(definition: &Definition, state: &State, now: ClusterMs) -> Event {
    let output = match &definition.result {
        Some(template) => Block::workflow(definition, state, now).render(template),
        None => Ok(Json::default()),
    };
    match output {
        Ok(output) => Event::WorkflowCompleted { output, unconsumed: unconsumed(state) },
        Err(error) if has_cleanup(definition, state) => Event::ResultFailed { error },
        Err(error) => Event::WorkflowFailed { error, compensation: None, unconsumed: unconsumed(state) },
    }
}

/// What was taken in and nothing took, oldest first.
pub(super) fn unconsumed(state: &State) -> Vec<Unconsumed> {
    let all = state.buffered.iter().flat_map(|(signal, buffered)| buffered.iter().map(move |one| (signal, one.seq)));
    let mut all: Vec<Unconsumed> =
        all.map(|(signal, received)| Unconsumed { signal: signal.clone(), received }).collect();
    all.sort_by_key(|one| one.received);
    all
}

/// Whether a unit is of the workflow's own course, which ends where the execution winds down.
pub(super) fn is_of_course(key: &UnitKey) -> bool {
    !UnitPath::parse(key).cleans_up()
}
