//! Takes commands in: what came from outside becomes an event, or is refused.

use crate::definition::unit::Work;
use crate::definition::{Boundary, Definition, Local, Update};
use crate::execution::block::render;
use crate::execution::event::{Event, Json, ResultKind, TaskError, codes};
use crate::execution::state::{Abort, Asked, Phase, Settled, State, Unit, UnitStatus};
use crate::id::{ExecutionId, Run, Seq, SessionId, SignalName, Token, UnitKey, Version, WorkerId};
use crate::time::ClusterMs;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// Something that came from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// A worker takes an attempt: the one whose `StepScheduled` has number `scheduled`.
    /// `repeat`: a delivery may have been before, of which nothing is recorded.
    Dispatch { unit: UnitKey, scheduled: Seq, token: Uuid, worker: WorkerId, session: SessionId, repeat: bool },
    /// A delivery succeeded.
    Succeed { token: Uuid, output: Json },
    /// A delivery failed.
    Fail { token: Uuid, error: TaskError },
    /// What became of a delivery is not known.
    Uncertain { token: Uuid, reason: String },
    /// Somebody wants the end.
    Cancel { reason: Option<String> },
    /// Somebody wants the end at once.
    Terminate { reason: Option<String> },
    /// It is taken over with an attempt out, and is to wait until somebody recovers it. `queued`: the units whose attempt
    /// waits, and may have been handed out all the same.
    Hold { reason: String, queued: Vec<UnitKey> },
    /// Somebody wants what is held to go on.
    Recover { reason: Option<String> },
    /// Somebody sends a signal, whose payload matches its schema. At most `max` may wait to be taken.
    Signal { name: SignalName, payload: Json, key: Option<String>, max: u64 },
    /// Somebody sends an update, likewise.
    Update { name: SignalName, payload: Json, key: Option<String>, max: u64 },
    /// The child that a unit wants exists now, in this version.
    ChildStarted { unit: UnitKey, version: Version },
    /// The child that a unit wants cannot be started.
    ChildRefused { unit: UnitKey, error: TaskError },
    /// A child has ended.
    ChildEnded { unit: UnitKey, child: ExecutionId, end: ChildEnd },
    /// The history is half as long as it may be.
    SuggestContinue { max: u64 },
    /// The history has grown to its bound.
    HistoryFull { max: u64 },
    /// What an expression gave is larger than a payload may be.
    PayloadTooLarge { unit: Option<UnitKey>, what: String, max: u64 },
    /// A `for` step's list is longer than it may be.
    ListTooLong { unit: UnitKey, items: usize, max: u64 },
    /// The output that was decided does not match its schema.
    RefuseOutput { message: String },
    /// The input of the next run does not match the schema.
    RefuseInput { message: String },
}

/// How a child ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ChildEnd {
    Completed(Json),
    Failed(TaskError),
    Cancelled,
    TimedOut,
    Terminated,
}

/// Why a command changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The definition declares no signal or update of that name.
    #[error("it declares none of that name")]
    Undeclared,
    /// So many signals and updates wait already.
    #[error("{0} signals and updates wait already")]
    TooMany(u64),
    /// The workflow does not take the update now.
    #[error("{0}")]
    Rejected(String),
    /// The execution has ended.
    #[error("the execution has ended")]
    Finished,
    /// It is being cancelled, or failing, already.
    #[error("the execution is ending already")]
    Ending,
    /// It is held already, or no attempt of it is out.
    #[error("there is nothing to hold")]
    NothingOut,
    /// It is not held.
    #[error("the execution is not held")]
    NotHeld,
    /// The attempt does not wait for a worker (any more).
    #[error("the attempt does not wait for a worker")]
    NotWaiting,
    /// No delivery has this token.
    #[error("no delivery of this execution has this token")]
    UnknownToken,
    /// The delivery's result is recorded already.
    #[error("the result of this delivery is recorded already")]
    Duplicate,
    /// Nothing waits for the result, and that is recorded already or cannot be.
    #[error("nothing waits for this result")]
    Stale,
    /// The delivery is not the one that its step waits for.
    #[error("the delivery is not open")]
    NotOpen,
}

/// The event that a command makes, or why it makes none.
pub fn admit(definition: &Definition, state: &State, command: &Command, now: ClusterMs) -> Result<Event, Refusal> {
    match command {
        Command::Dispatch { unit, scheduled, token, worker, session, repeat } => {
            dispatch(definition, state, unit, *scheduled, *token, worker, *session, *repeat, now)
        }
        Command::Succeed { token, output } => {
            let (unit, attempt) = match waiting_for(state, *token, ResultKind::Succeeded)? {
                Waiting::Yes(unit, attempt) => (unit, attempt),
                Waiting::Stale(event) => return Ok(event),
            };
            let token = Some(full(state, *token));
            Ok(Event::StepSucceeded { step: unit, attempt, output: output.clone(), token })
        }
        Command::Fail { token, error } => {
            let (unit, attempt) = match waiting_for(state, *token, ResultKind::Failed)? {
                Waiting::Yes(unit, attempt) => (unit, attempt),
                Waiting::Stale(event) => return Ok(event),
            };
            let token = Some(full(state, *token));
            Ok(Event::StepAttemptFailed { step: unit, attempt, error: error.clone(), token })
        }
        Command::Uncertain { token, reason } => {
            if state.has_ended() {
                return Err(Refusal::Finished);
            }
            let delivery = state.deliveries.get(token).ok_or(Refusal::UnknownToken)?;
            if !state.is_open(*token) {
                return Err(Refusal::NotOpen);
            }
            Ok(Event::StepAttemptUncertain {
                step: delivery.unit.clone(),
                attempt: delivery.attempt,
                reason: reason.clone(),
                token: full(state, *token),
            })
        }
        Command::Cancel { reason } => {
            is_running(state)?;
            Ok(Event::CancelRequested { reason: reason.clone() })
        }
        Command::Hold { reason, queued } => hold(state, reason, queued),
        Command::Recover { reason } => match state.held {
            _ if state.has_ended() => Err(Refusal::Finished),
            Some(_) => Ok(Event::WorkflowRecovered { reason: reason.clone() }),
            None => Err(Refusal::NotHeld),
        },
        Command::RefuseOutput { message } => {
            is_running(state)?;
            let error = TaskError::last(codes::OUTPUT_CONTRACT_VIOLATION, message);
            Ok(Event::ContractViolated { boundary: Boundary::Output.as_str().into(), error })
        }
        Command::RefuseInput { message } => {
            is_running(state)?;
            let error = TaskError::last(codes::INPUT_CONTRACT_VIOLATION, message);
            Ok(Event::ContractViolated { boundary: Boundary::Input.as_str().into(), error })
        }
        Command::Terminate { reason } => match &state.phase {
            Phase::Ended(_) => Err(Refusal::Finished),
            Phase::WindingDown(Abort::Terminated { .. }) => Err(Refusal::Ending),
            _ => Ok(Event::TerminateRequested { reason: reason.clone() }),
        },
        Command::Signal { name, payload, key, max } => {
            may_send(definition.signals.contains_key(name), state, *max)?;
            let (signal, payload, signal_id) = (name.clone(), payload.clone(), key.clone());
            Ok(Event::SignalReceived { signal, payload, signal_id, carried: None })
        }
        Command::Update { name, payload, key, max } => {
            may_send(definition.updates.contains_key(name), state, *max)?;
            let update = definition.updates.get(name).ok_or(Refusal::Undeclared)?;
            let result = judge(update, state, payload)?;
            let (update, payload, update_id) = (name.clone(), payload.clone(), key.clone());
            Ok(Event::UpdateAccepted { update, payload, update_id, result })
        }
        Command::ChildStarted { unit, version } => {
            let (child, attempt) = wanted_child(state, unit)?;
            let timeout = definition.work_of(unit).and_then(Work::timeout);
            Ok(Event::ChildStarted {
                step: unit.clone(),
                attempt,
                child,
                version: version.clone(),
                deadline_ms: timeout.map(|timeout| now.max(state.last_at) + timeout),
            })
        }
        Command::ChildRefused { unit, error } => {
            let (child, attempt) = wanted_child(state, unit)?;
            Ok(Event::ChildFailed { step: unit.clone(), attempt, child, error: error.clone() })
        }
        Command::ChildEnded { unit, child, end } => child_ended(definition, state, unit, child, end),
        Command::SuggestContinue { max } => {
            is_running(state)?;
            if state.continue_suggested { Err(Refusal::Duplicate) } else { Ok(Event::ContinueSuggested { max: *max }) }
        }
        Command::HistoryFull { max } => {
            is_running(state)?;
            let message = format!("the history has reached {max} events (max_history_events)");
            Ok(limit_reached("max_history_events", message, None))
        }
        Command::PayloadTooLarge { unit, what, max } => {
            let message = format!("{what} is larger than {max} bytes of JSON (max_payload_bytes)");
            beyond(state, "max_payload_bytes", message, unit.as_ref())
        }
        Command::ListTooLong { unit, items, max } => {
            let message = format!("the list of {unit} has {items} items, more than {max} (max_fan_out)");
            beyond(state, "max_fan_out", message, Some(unit))
        }
    }
}

/// What is out decides whether it is held: with nothing out, going on repeats nothing.
fn hold(state: &State, reason: &str, queued: &[UnitKey]) -> Result<Event, Refusal> {
    if state.has_ended() {
        return Err(Refusal::Finished);
    }
    let mut repeats: Vec<UnitKey> = state.open_tokens().map(|(_, unit, _)| unit.clone()).collect();
    if repeats.is_empty() || state.held.is_some() {
        return Err(Refusal::NothingOut);
    }
    let waits = |unit: &&UnitKey| state.scheduled().any(|(waiting, ..)| waiting == *unit);
    repeats.extend(queued.iter().filter(waits).cloned());
    Ok(Event::WorkflowHeld { reason: reason.to_owned(), repeats })
}

/// The child that a unit wants to be started, and which attempt it is.
fn wanted_child(state: &State, unit: &UnitKey) -> Result<(ExecutionId, u32), Refusal> {
    match state.units.get(unit) {
        Some(Unit { attempt, status: UnitStatus::ChildScheduled { child, .. }, .. }) => Ok((child.clone(), *attempt)),
        _ => Err(Refusal::NotWaiting),
    }
}

fn child_ended(
    definition: &Definition,
    state: &State,
    key: &UnitKey,
    child: &ExecutionId,
    end: &ChildEnd,
) -> Result<Event, Refusal> {
    if state.has_ended() {
        return Err(Refusal::Finished);
    }
    let unit = state.units.get(key).ok_or(Refusal::NotWaiting)?;
    let asked = match &unit.status {
        UnitStatus::Child { child: of, asked, .. } if of == child => *asked,
        _ => return Err(Refusal::NotWaiting),
    };
    let (step, attempt, child) = (key.clone(), unit.attempt, child.clone());
    let details = Some(Json::new(serde_json::json!({ "execution_id": child })));
    let error = |code, message: String| TaskError { details: details.clone(), ..TaskError::retryable(code, message) };
    let error = match end {
        ChildEnd::Completed(output) => {
            return Ok(Event::ChildCompleted { step, attempt, child, output: output.clone() });
        }
        ChildEnd::Cancelled if asked == Some(Asked::TimedOut) => {
            let limit = definition.work_of(key).and_then(Work::timeout).unwrap_or_default();
            error(codes::TIMEOUT, format!("the child did not end within {} ms", limit.as_millis()))
        }
        ChildEnd::Failed(error) => TaskError { details, step: None, ..error.clone() },
        ChildEnd::Cancelled => error(codes::CHILD_CANCELLED, format!("the child {child} was cancelled")),
        ChildEnd::TimedOut => error(codes::CHILD_TIMED_OUT, format!("the child {child} took longer than its time-out")),
        ChildEnd::Terminated => error(codes::CHILD_TERMINATED, format!("the child {child} was terminated")),
    };
    Ok(Event::ChildFailed { step, attempt, child, error })
}

fn limit_reached(limit: &str, message: String, step: Option<&UnitKey>) -> Event {
    let error = TaskError::last(codes::LIMIT_EXCEEDED, message);
    Event::LimitReached { limit: limit.into(), error, step: step.cloned() }
}

/// A bound ends a running execution; of one that winds down it ends the unit alone.
fn beyond(state: &State, limit: &str, message: String, unit: Option<&UnitKey>) -> Result<Event, Refusal> {
    match (&state.phase, unit) {
        (Phase::Created | Phase::Running, _) => Ok(limit_reached(limit, message, None)),
        (Phase::WindingDown(_), Some(unit)) => Ok(limit_reached(limit, message, Some(unit))),
        (Phase::WindingDown(_), None) => Err(Refusal::Ending),
        (Phase::Ended(_), _) => Err(Refusal::Finished),
    }
}

/// Whether a signal or update can be taken in.
fn may_send(declared: bool, state: &State, max: u64) -> Result<(), Refusal> {
    is_running(state)?;
    if !declared {
        return Err(Refusal::Undeclared);
    }
    if state.unconsumed() as u64 >= max { Err(Refusal::TooMany(max)) } else { Ok(()) }
}

/// What an update is answered with, if the workflow takes it.
fn judge(update: &Update, state: &State, payload: &Json) -> Result<Json, Refusal> {
    let local = Local { event: Some(payload), absent_is_null: true, ..Local::default() };
    let render = |template| render(state, template, local).map_err(|error| Refusal::Rejected(error.message));
    if let Some(when) = &update.when {
        match &*render(when)? {
            Value::Bool(true) => {}
            Value::Bool(false) => return Err(Refusal::Rejected("its `when` is false".into())),
            other => {
                return Err(Refusal::Rejected(format!("its `when` must give true or false; it gave {other}")));
            }
        }
    }
    update.result.as_ref().map_or(Ok(Json::default()), render)
}

/// Nothing winds the execution down yet.
fn is_running(state: &State) -> Result<(), Refusal> {
    match &state.phase {
        Phase::Created | Phase::Running => Ok(()),
        Phase::WindingDown(_) => Err(Refusal::Ending),
        Phase::Ended(_) => Err(Refusal::Finished),
    }
}

#[allow(clippy::too_many_arguments)]
fn dispatch(
    definition: &Definition,
    state: &State,
    key: &UnitKey,
    scheduled: Seq,
    token: Uuid,
    worker: &WorkerId,
    session: SessionId,
    repeat: bool,
    now: ClusterMs,
) -> Result<Event, Refusal> {
    if state.has_ended() {
        return Err(Refusal::Finished);
    }
    if state.deliveries.contains_key(&token) {
        return Err(Refusal::Duplicate);
    }
    let unit = state.units.get(key).filter(|_| state.held.is_none()).ok_or(Refusal::NotWaiting)?;
    match unit.status {
        UnitStatus::Scheduled { seq, .. } if seq == scheduled => {}
        _ => return Err(Refusal::NotWaiting),
    }
    let timeout = definition.task_of(key).and_then(|task| task.timeout);
    Ok(Event::StepDispatched {
        step: key.clone(),
        attempt: unit.attempt,
        token: full(state, token),
        worker_id: worker.clone(),
        worker_session: session,
        deadline_ms: timeout.map(|t| now.max(state.last_at) + t),
        redelivery: repeat,
    })
}

enum Waiting {
    Yes(UnitKey, u32),
    /// Nothing waits for it, and that is worth recording.
    Stale(Event),
}

/// Whether a step waits for this delivery's result.
///
/// A late success of any earlier delivery counts while the step waits: the work is done, and doing it again would help
/// nobody. A late failure counts only for the newest delivery of the current attempt: an older one says nothing about
/// the one that runs now (design, section 6; protocols, 26).
fn waiting_for(state: &State, token: Uuid, result: ResultKind) -> Result<Waiting, Refusal> {
    let delivery = match state.deliveries.get(&token) {
        Some(delivery) => delivery,
        // It may be one of an earlier run: nothing waits for its result.
        None if state.identity.run > Run(1) => return Err(Refusal::Stale),
        None => return Err(Refusal::UnknownToken),
    };
    match delivery.settled {
        Some(Settled::Accepted) => return Err(Refusal::Duplicate),
        Some(Settled::Stale) => return Err(Refusal::Stale),
        None => {}
    }
    if state.has_ended() {
        return Err(Refusal::Stale);
    }
    let counts = state.units.get(&delivery.unit).is_some_and(|unit| match result {
        ResultKind::Succeeded => !unit.status.has_ended(),
        ResultKind::Failed => failure_counts(state, token, &delivery.unit, delivery.attempt, unit),
    });
    if counts {
        return Ok(Waiting::Yes(delivery.unit.clone(), delivery.attempt));
    }
    Ok(Waiting::Stale(Event::StaleResultIgnored {
        step: delivery.unit.clone(),
        token: full(state, token),
        outcome: result,
    }))
}

fn failure_counts(state: &State, token: Uuid, key: &UnitKey, attempt: u32, unit: &Unit) -> bool {
    if unit.attempt != attempt {
        return false;
    }
    match unit.status {
        UnitStatus::Dispatched { token: current, .. } => current == token,
        // Waiting to be delivered again: the newest delivery is the one in doubt.
        UnitStatus::Uncertain | UnitStatus::Scheduled { redelivery: true, .. } => {
            let of_unit = state.deliveries.iter().filter(|(_, d)| d.unit == *key && d.attempt == attempt);
            of_unit.max_by_key(|(_, d)| d.dispatched).is_some_and(|(id, _)| *id == token)
        }
        _ => false,
    }
}

fn full(state: &State, id: Uuid) -> Token {
    Token { execution: state.identity.execution_id.clone(), id }
}
