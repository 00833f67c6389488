//! One unit that has begun: its attempts, time-outs and retries.

use crate::definition::Definition;
use crate::definition::unit::Work;
use crate::execution::event::{Event, Json, TaskError, codes};
use crate::execution::retry;
use crate::execution::state::{State, Unit, UnitStatus};
use crate::id::UnitKey;
use crate::time::ClusterMs;
use std::time::Duration;

/// When something is to be decided about a unit although nothing happens.
pub(super) fn wake(definition: &Definition, key: &UnitKey, unit: &Unit) -> Option<ClusterMs> {
    match unit.status {
        UnitStatus::Scheduled { at, .. } => definition.task_of(key)?.queue_timeout.map(|t| at + t),
        UnitStatus::Dispatched { deadline, .. }
        | UnitStatus::Awaiting { deadline, .. }
        | UnitStatus::Child { deadline, asked: None, .. } => deadline,
        UnitStatus::Retrying { fire_at, .. } | UnitStatus::Sleeping { fire_at } => Some(fire_at),
        _ => None,
    }
}

/// An attempt is to be run.
pub(super) fn schedule(state: &State, unit: &UnitKey, attempt: u32, input: Json, redelivery: bool) -> Event {
    let idempotency_key = state.identity.idempotency_key(unit);
    Event::StepScheduled { step: unit.clone(), attempt, input, idempotency_key, redelivery }
}

/// An attempt of a task is to be run, or a child to be started.
pub(super) fn begin(state: &State, unit: &UnitKey, work: Work<'_>, attempt: u32, input: Json) -> Event {
    match work {
        Work::Task(_) => schedule(state, unit, attempt, input, false),
        Work::Child(child) => Event::ChildScheduled {
            step: unit.clone(),
            attempt,
            child: state.identity.child(unit, attempt),
            workflow: child.workflow.clone(),
            version: child.version.clone(),
            input,
        },
    }
}

/// What happens to a unit that has begun and not ended. (Of `await` and `for` steps the block decides.)
pub(super) fn go_on(
    state: &State,
    key: &UnitKey,
    work: Option<Work<'_>>,
    unit: &Unit,
    now: ClusterMs,
) -> Option<Event> {
    let timed_out = |code: &str, what: &str, limit: Option<Duration>| Event::StepAttemptFailed {
        step: key.clone(),
        attempt: unit.attempt,
        error: TaskError::retryable(code, format!("{what} within {} ms", limit.unwrap_or_default().as_millis())),
        token: None,
    };
    match &unit.status {
        UnitStatus::Scheduled { at, .. } => {
            let Work::Task(task) = work? else { return None };
            let limit = task.queue_timeout?;
            (now >= *at + limit).then(|| timed_out(codes::QUEUE_TIMEOUT, "no worker took the attempt", Some(limit)))
        }
        UnitStatus::Dispatched { deadline, .. } => (now >= (*deadline)?)
            .then(|| timed_out(codes::TIMEOUT, "the attempt did not end", work.and_then(Work::timeout))),
        UnitStatus::Uncertain => Some(schedule(state, key, unit.attempt, unit.input.clone().unwrap_or_default(), true)),
        UnitStatus::AttemptFailed { error } => Some(after_failure(state, key, work, unit.attempt, error, now)),
        UnitStatus::Retrying { next_attempt, fire_at } if now >= *fire_at => {
            Some(begin(state, key, work?, *next_attempt, unit.input.clone().unwrap_or_default()))
        }
        UnitStatus::Child { child, deadline: Some(deadline), asked: None } => (now >= *deadline).then(|| {
            let (step, child) = (key.clone(), child.clone());
            Event::ChildEndRequested { step, child, terminate: false, timed_out: true }
        }),
        UnitStatus::Sleeping { fire_at } => (now >= *fire_at).then(|| Event::TimerFired { step: key.clone() }),
        UnitStatus::Retrying { .. }
        | UnitStatus::ChildScheduled { .. }
        | UnitStatus::Child { .. }
        | UnitStatus::Awaiting { .. }
        | UnitStatus::FannedOut
        | UnitStatus::Succeeded
        | UnitStatus::Skipped
        | UnitStatus::Failed { .. }
        | UnitStatus::Cancelled => None,
    }
}

fn after_failure(
    state: &State,
    key: &UnitKey,
    work: Option<Work<'_>>,
    attempt: u32,
    error: &TaskError,
    now: ClusterMs,
) -> Event {
    let delay = work.and_then(|work| retry::delay(work.retry(), &state.identity, key, attempt, error));
    match delay {
        Some(delay) => Event::RetryScheduled {
            step: key.clone(),
            next_attempt: attempt + 1,
            delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            fire_at_ms: now + delay,
        },
        None => Event::StepFailed { step: key.clone(), error: error.clone() },
    }
}
