//! What follows from a state: pure, total, and asked until it has nothing more.
//!
//! The events of one answer are independent: each is computed from the state that was given, and each may be applied
//! in any order with the others, and after each of them the rest is still decided. An event after which the others
//! would not be (a step failed for good) is therefore an answer of its own. That is what lets [`crate::execution::replay()`] check a history event by
//! event.

use crate::definition::{
    Definition, ExpressionError, Scope, Step, StepKind, TaskStep, Template, parse_duration, whole_number,
};
use crate::execution::event::{Event, Json, TaskError, codes};
use crate::execution::retry;
use crate::execution::state::{Phase, State, Unit, UnitStatus};
use crate::id::{StepId, UnitKey};
use crate::time::ClusterMs;
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// What is to be recorded next at `now`; empty where the execution waits, or has ended.
pub fn decide(definition: &Definition, state: &State, now: ClusterMs) -> Vec<Event> {
    let now = now.max(state.last_at);
    match &state.phase {
        Phase::Created => vec![Event::WorkflowStarted],
        Phase::Running => run(definition, state, now),
        Phase::Cancelling { .. } => wind_down(state, Event::WorkflowCancelled),
        Phase::Failing(error) => wind_down(state, Event::WorkflowFailed { error: error.clone() }),
        Phase::Ended(_) => Vec::new(),
    }
}

/// When [`decide`] has something to say although nothing happens; `None` where it waits for the outside alone.
pub fn next_wake(definition: &Definition, state: &State) -> Option<ClusterMs> {
    if !matches!(state.phase, Phase::Running) {
        return None;
    }
    state.units.iter().filter_map(|(key, unit)| unit_wake(definition, key, unit)).min()
}

fn unit_wake(definition: &Definition, key: &UnitKey, unit: &Unit) -> Option<ClusterMs> {
    match unit.status {
        UnitStatus::Scheduled { at, .. } => task_of(definition, key)?.queue_timeout.map(|t| at + t),
        UnitStatus::Dispatched { deadline, .. } => deadline,
        UnitStatus::Retrying { fire_at, .. } | UnitStatus::Sleeping { fire_at } => Some(fire_at),
        _ => None,
    }
}

fn task_of<'a>(definition: &'a Definition, key: &UnitKey) -> Option<&'a TaskStep> {
    match &definition.step(key.as_str())?.kind {
        StepKind::Task(task) => Some(task),
        StepKind::Compute(_) | StepKind::Sleep(_) => None,
    }
}

/// Cancels what is open; then the end.
fn wind_down(state: &State, end: Event) -> Vec<Event> {
    let open = state.units.iter().filter(|(_, unit)| !unit.status.has_ended());
    let cancelled: Vec<Event> = open.map(|(key, _)| Event::StepCancelled { step: key.clone() }).collect();
    if cancelled.is_empty() { vec![end] } else { cancelled }
}

fn run(definition: &Definition, state: &State, now: ClusterMs) -> Vec<Event> {
    // A step that failed for good ends the workflow. Written order decides which one is named.
    let failed = definition.steps.iter().find_map(|step| match state.units.get(step.id.as_str()) {
        Some(Unit { status: UnitStatus::Failed { error }, .. }) => Some((step, error)),
        _ => None,
    });
    if let Some((step, error)) = failed {
        let error = TaskError { step: Some(step.id.clone()), ..error.clone() };
        return wind_down(state, Event::WorkflowFailed { error });
    }
    let mut events = Vec::new();
    let mut failure = None;
    let mut all_ended = true;
    for step in &definition.steps {
        let event = match state.units.get(step.id.as_str()) {
            Some(unit) if unit.status.has_ended() => continue,
            Some(unit) => go_on(definition, state, step, unit, now),
            None if is_ready(state, step) => Some(begin(state, step, now)),
            None => None,
        };
        all_ended = false;
        match event {
            Some(failed @ Event::StepFailed { .. }) => failure = failure.or(Some(failed)),
            Some(event) => events.push(event),
            None => {}
        }
    }
    // A failure changes what is decided about all the others: it comes alone, and last.
    match failure {
        _ if all_ended => vec![finish(definition, state)],
        Some(failed) if events.is_empty() => vec![failed],
        _ => events,
    }
}

/// A step may begin once the steps before it ended well or were skipped.
fn is_ready(state: &State, step: &Step) -> bool {
    step.after.iter().all(|before| state.outputs.contains_key(before))
}

fn begin(state: &State, step: &Step, now: ClusterMs) -> Event {
    let unit = key_of(&step.id);
    match runs(state, step) {
        Ok(true) => {}
        Ok(false) => return Event::StepSkipped { step: unit, reason: "`when` is false".into() },
        Err(error) => return Event::StepFailed { step: unit, error },
    }
    let event = match &step.kind {
        StepKind::Task(task) => render(state, &task.input).map(|input| schedule(state, &unit, 1, input, false)),
        StepKind::Compute(template) => render(state, template).map(|output| Event::StepSucceeded {
            step: unit.clone(),
            attempt: 1,
            output,
            token: None,
        }),
        StepKind::Sleep(template) => {
            sleep_time(state, template).map(|time| Event::TimerStarted { step: unit.clone(), fire_at_ms: now + time })
        }
    };
    event.unwrap_or_else(|error| Event::StepFailed { step: unit, error })
}

fn schedule(state: &State, unit: &UnitKey, attempt: u32, input: Json, redelivery: bool) -> Event {
    let idempotency_key = state.identity.idempotency_key(unit);
    Event::StepScheduled { step: unit.clone(), attempt, input, idempotency_key, redelivery }
}

/// Whether the step's `when` lets it run.
fn runs(state: &State, step: &Step) -> Result<bool, TaskError> {
    let Some(when) = &step.when else { return Ok(true) };
    match &*render(state, when)? {
        Value::Bool(runs) => Ok(*runs),
        other => {
            let message = format!("`when` must give true or false; it gave {other}");
            Err(TaskError::last(codes::EXPRESSION_ERROR, message))
        }
    }
}

fn sleep_time(state: &State, template: &Template) -> Result<Duration, TaskError> {
    let value = render(state, template)?;
    let time = match &*value {
        Value::String(text) => parse_duration(text),
        number => whole_number(number).map(Duration::from_millis),
    };
    time.ok_or_else(|| {
        let message = format!("`sleep` must give a duration such as \"10s\", or milliseconds; it gave {value}");
        TaskError::last(codes::EXPRESSION_ERROR, message)
    })
}

/// What happens to a unit that has begun and not ended.
fn go_on(definition: &Definition, state: &State, step: &Step, unit: &Unit, now: ClusterMs) -> Option<Event> {
    let key = key_of(&step.id);
    let task = task_of(definition, &key);
    let timed_out = |code: &str, what: &str, limit: Option<Duration>| Event::StepAttemptFailed {
        step: key.clone(),
        attempt: unit.attempt,
        error: TaskError::retryable(code, format!("{what} within {} ms", limit.unwrap_or_default().as_millis())),
        token: None,
    };
    match &unit.status {
        UnitStatus::Scheduled { at, .. } => {
            let limit = task?.queue_timeout?;
            (now >= *at + limit).then(|| timed_out(codes::QUEUE_TIMEOUT, "no worker took the attempt", Some(limit)))
        }
        UnitStatus::Dispatched { deadline, .. } => (now >= (*deadline)?)
            .then(|| timed_out(codes::TIMEOUT, "the attempt did not end", task.and_then(|t| t.timeout))),
        UnitStatus::Uncertain => {
            Some(schedule(state, &key, unit.attempt, unit.input.clone().unwrap_or_default(), true))
        }
        UnitStatus::AttemptFailed { error } => Some(after_failure(state, &key, task, unit.attempt, error, now)),
        UnitStatus::Retrying { next_attempt, fire_at } => (now >= *fire_at)
            .then(|| schedule(state, &key, *next_attempt, unit.input.clone().unwrap_or_default(), false)),
        UnitStatus::Sleeping { fire_at } => (now >= *fire_at).then_some(Event::TimerFired { step: key }),
        UnitStatus::Succeeded | UnitStatus::Skipped | UnitStatus::Failed { .. } | UnitStatus::Cancelled => None,
    }
}

fn after_failure(
    state: &State,
    key: &UnitKey,
    task: Option<&TaskStep>,
    attempt: u32,
    error: &TaskError,
    now: ClusterMs,
) -> Event {
    let delay = task.and_then(|task| retry::delay(&task.retry, &state.identity, key, attempt, error));
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

/// The workflow's end, once every step has ended well.
fn finish(definition: &Definition, state: &State) -> Event {
    let output = match &definition.result {
        Some(template) => render(state, template),
        None => Ok(Json::default()),
    };
    match output {
        Ok(output) => Event::WorkflowCompleted { output },
        Err(error) => Event::WorkflowFailed { error },
    }
}

fn render(state: &State, template: &Template) -> Result<Json, TaskError> {
    let scope = Scope {
        input: &state.input,
        outputs: &state.outputs,
        execution: &state.identity.execution_id,
        workflow: &state.workflow,
        version: &state.version,
        run: state.identity.run,
    };
    template
        .render(&scope)
        .map(Arc::new)
        .map_err(|error: ExpressionError| TaskError::last(codes::EXPRESSION_ERROR, error.to_string()))
}

fn key_of(id: &StepId) -> UnitKey {
    UnitKey::new(id.as_str())
}
