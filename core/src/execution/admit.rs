//! Takes commands in: what came from outside becomes an event, or is refused.

use crate::definition::{Boundary, Definition, StepKind};
use crate::execution::event::{Event, Json, ResultKind, TaskError, codes};
use crate::execution::state::{Phase, Settled, State, Unit, UnitStatus};
use crate::id::{Seq, SessionId, Token, UnitKey, WorkerId};
use crate::time::ClusterMs;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Something that came from outside.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Command {
    /// A worker takes an attempt: the one whose `StepScheduled` has number `scheduled`.
    Dispatch { unit: UnitKey, scheduled: Seq, token: Uuid, worker: WorkerId, session: SessionId },
    /// A delivery succeeded.
    Succeed { token: Uuid, output: Json },
    /// A delivery failed.
    Fail { token: Uuid, error: TaskError },
    /// What became of a delivery is not known.
    Uncertain { token: Uuid, reason: String },
    /// Somebody wants the end.
    Cancel { reason: Option<String> },
    /// The history has grown to its bound.
    HistoryFull { max: u64 },
    /// What an expression gave is larger than a payload may be.
    PayloadTooLarge { what: String, max: u64 },
    /// The output that was decided does not match its schema.
    RefuseOutput { message: String },
}

/// Why a command changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Refusal {
    /// The execution has ended.
    #[error("the execution has ended")]
    Finished,
    /// It is being cancelled, or failing, already.
    #[error("the execution is ending already")]
    Ending,
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
        Command::Dispatch { unit, scheduled, token, worker, session } => {
            dispatch(definition, state, unit, *scheduled, *token, worker, *session, now)
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
        Command::RefuseOutput { message } => {
            is_running(state)?;
            let error = TaskError::last(codes::OUTPUT_CONTRACT_VIOLATION, message);
            Ok(Event::ContractViolated { boundary: Boundary::Output.as_str().into(), error })
        }
        Command::HistoryFull { max } => {
            is_running(state)?;
            let message = format!("the history has reached {max} events (max_history_events)");
            let error = TaskError::last(codes::LIMIT_EXCEEDED, message);
            Ok(Event::LimitReached { limit: "max_history_events".into(), error })
        }
        Command::PayloadTooLarge { what, max } => {
            is_running(state)?;
            let message = format!("{what} is larger than {max} bytes of JSON (max_payload_bytes)");
            let error = TaskError::last(codes::LIMIT_EXCEEDED, message);
            Ok(Event::LimitReached { limit: "max_payload_bytes".into(), error })
        }
    }
}

/// Nothing winds the execution down yet.
fn is_running(state: &State) -> Result<(), Refusal> {
    match &state.phase {
        Phase::Created | Phase::Running => Ok(()),
        Phase::Cancelling { .. } | Phase::Failing(_) => Err(Refusal::Ending),
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
    now: ClusterMs,
) -> Result<Event, Refusal> {
    if state.has_ended() {
        return Err(Refusal::Finished);
    }
    if state.deliveries.contains_key(&token) {
        return Err(Refusal::Duplicate);
    }
    let unit = state.units.get(key).ok_or(Refusal::NotWaiting)?;
    match unit.status {
        UnitStatus::Scheduled { seq, .. } if seq == scheduled => {}
        _ => return Err(Refusal::NotWaiting),
    }
    let timeout = definition.step(key.as_str()).and_then(|step| match &step.kind {
        StepKind::Task(task) => task.timeout,
        StepKind::Compute(_) | StepKind::Sleep(_) => None,
    });
    Ok(Event::StepDispatched {
        step: key.clone(),
        attempt: unit.attempt,
        token: full(state, token),
        worker_id: worker.clone(),
        worker_session: session,
        deadline_ms: timeout.map(|t| now.max(state.last_at) + t),
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
    let delivery = state.deliveries.get(&token).ok_or(Refusal::UnknownToken)?;
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
