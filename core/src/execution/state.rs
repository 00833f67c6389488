//! What a history folds to.

use crate::execution::event::{DecodeError, Event, Identity, Json, Labels, Recorded, TaskError, memory_of};
use crate::id::{DefinitionHash, ExecutionId, Seq, SessionId, StepId, UnitKey, Version, WorkerId, WorkflowName};
use crate::store::append::{Status, Summary};
use crate::time::ClusterMs;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// An execution, as far as its history goes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct State {
    pub identity: Identity,
    pub workflow: WorkflowName,
    pub version: Version,
    pub definition_hash: DefinitionHash,
    pub input: Json,
    pub labels: Labels,
    pub created_at: ClusterMs,
    /// The last event's number and time.
    pub last: Seq,
    pub last_at: ClusterMs,
    pub phase: Phase,
    /// What has begun. A step that is not here waits for the steps before it.
    pub units: BTreeMap<UnitKey, Unit>,
    /// Outputs of the steps that ended well (null where skipped): what expressions see.
    pub outputs: BTreeMap<StepId, Json>,
    /// Every delivery, by the id in its token.
    pub deliveries: BTreeMap<Uuid, Delivery>,
}

/// How far the execution as a whole is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Phase {
    /// Created, and nothing decided yet.
    Created,
    Running,
    /// Cancelled, and winding down.
    Cancelling {
        reason: Option<String>,
    },
    /// A bound was reached or a schema violated, and it winds down to this failure.
    Failing(TaskError),
    Ended(End),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum End {
    Completed { output: Json },
    Failed { error: TaskError },
    Cancelled { reason: Option<String> },
}

/// A piece of work that has begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unit {
    /// The current attempt; the first is 1. 1 also for what no worker runs.
    pub attempt: u32,
    /// When it came to be as it is.
    pub since: ClusterMs,
    /// Why the attempt before the current one failed, until it ends.
    pub last_error: Option<Arc<TaskError>>,
    /// The input of its attempts, until it ends.
    pub input: Option<Json>,
    pub status: UnitStatus,
}

/// How far a unit is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum UnitStatus {
    /// An attempt waits for a worker since `at`; its `StepScheduled` has number `seq`.
    Scheduled {
        seq: Seq,
        at: ClusterMs,
        redelivery: bool,
    },
    /// A worker has it.
    Dispatched {
        token: Uuid,
        worker: WorkerId,
        session: SessionId,
        deadline: Option<ClusterMs>,
        redelivery: bool,
    },
    /// The delivery's outcome is not known; the attempt is to be delivered again.
    Uncertain,
    /// The attempt failed; whether another follows is to be decided.
    AttemptFailed {
        error: TaskError,
    },
    /// The next attempt waits for its time.
    Retrying {
        next_attempt: u32,
        fire_at: ClusterMs,
    },
    /// A timer runs.
    Sleeping {
        fire_at: ClusterMs,
    },
    Succeeded,
    Skipped,
    Failed {
        error: TaskError,
    },
    Cancelled,
}

impl Unit {
    /// A unit as no worker runs it, or as it ends.
    fn without_attempts(status: UnitStatus, since: ClusterMs) -> Unit {
        Unit { attempt: 1, since, last_error: None, input: None, status }
    }
}

impl UnitStatus {
    /// Whether nothing can happen to it any more.
    pub fn has_ended(&self) -> bool {
        matches!(self, UnitStatus::Succeeded | UnitStatus::Skipped | UnitStatus::Failed { .. } | UnitStatus::Cancelled)
    }
}

/// One handing-over of one attempt to a worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    pub unit: UnitKey,
    pub attempt: u32,
    /// The number of its `StepDispatched`: of two deliveries, the newer has the greater.
    pub dispatched: Seq,
    /// What was recorded of its result; none so far, or nothing came.
    pub settled: Option<Settled>,
}

/// What was recorded of a delivery's result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Settled {
    Accepted,
    Stale,
}

/// A history that cannot be folded.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum FoldError {
    /// No events.
    #[error("the history is empty")]
    Empty,
    /// The first event is another one.
    #[error("the history does not begin with WorkflowCreated")]
    Beginning,
    /// A number is missing or repeated.
    #[error("event {found} stands where event {expected} should be")]
    Gap { expected: Seq, found: Seq },
    /// An event cannot be read.
    #[error(transparent)]
    Decode(#[from] DecodeError),
}

impl State {
    /// The state after a first event; `None` if that is not `WorkflowCreated` with number 1.
    pub fn begin(execution: &ExecutionId, first: &Recorded) -> Option<State> {
        let Event::WorkflowCreated { workflow, version, definition_hash, input, labels, cluster_id, run } =
            &first.event
        else {
            return None;
        };
        (first.seq == Seq(1)).then(|| State {
            identity: Identity { cluster_id: *cluster_id, execution_id: execution.clone(), run: *run },
            workflow: workflow.clone(),
            version: version.clone(),
            definition_hash: definition_hash.clone(),
            input: input.clone(),
            labels: labels.clone(),
            created_at: first.at_ms,
            last: first.seq,
            last_at: first.at_ms,
            phase: Phase::Created,
            units: BTreeMap::new(),
            outputs: BTreeMap::new(),
            deliveries: BTreeMap::new(),
        })
    }

    /// The state of a whole history.
    pub fn fold(execution: &ExecutionId, events: &[Recorded]) -> Result<State, FoldError> {
        let (first, rest) = events.split_first().ok_or(FoldError::Empty)?;
        if first.seq != Seq(1) {
            return Err(FoldError::Gap { expected: Seq(1), found: first.seq });
        }
        let mut state = State::begin(execution, first).ok_or(FoldError::Beginning)?;
        for event in rest {
            if event.seq != state.last.next() {
                return Err(FoldError::Gap { expected: state.last.next(), found: event.seq });
            }
            state.apply(event);
        }
        Ok(state)
    }

    /// The state of a whole stored history.
    pub fn load(execution: &ExecutionId, stored: &[Vec<u8>]) -> Result<State, FoldError> {
        let events = stored.iter().map(|bytes| Recorded::decode(bytes)).collect::<Result<Vec<_>, _>>()?;
        State::fold(execution, &events)
    }

    /// Takes one more event in. Total: an event that means nothing here changes the number and time alone.
    pub fn apply(&mut self, recorded: &Recorded) {
        self.last = recorded.seq;
        self.last_at = self.last_at.max(recorded.at_ms);
        match &recorded.event {
            Event::WorkflowCreated { .. } => {}
            Event::WorkflowStarted => {
                if self.phase == Phase::Created {
                    self.phase = Phase::Running;
                }
            }
            Event::StepScheduled { step, attempt, input, redelivery, .. } => {
                let status = UnitStatus::Scheduled { seq: recorded.seq, at: recorded.at_ms, redelivery: *redelivery };
                let last_error = self.units.get(step).and_then(|before| before.last_error.clone());
                let (attempt, input, since) = (*attempt, Some(input.clone()), recorded.at_ms);
                self.units.insert(step.clone(), Unit { attempt, since, last_error, input, status });
            }
            Event::StepSkipped { step, .. } => {
                self.end_well(step, UnitStatus::Skipped, Json::default(), recorded.at_ms)
            }
            Event::StepDispatched { step, attempt, token, worker_id, worker_session, deadline_ms } => {
                let delivery =
                    Delivery { unit: step.clone(), attempt: *attempt, dispatched: recorded.seq, settled: None };
                self.deliveries.insert(token.id, delivery);
                // Of another attempt than the scheduled one it means nothing: no result could settle it.
                if let Some(unit) = self.units.get_mut(step).filter(|unit| unit.attempt == *attempt)
                    && let UnitStatus::Scheduled { redelivery, .. } = unit.status
                {
                    unit.since = recorded.at_ms;
                    unit.status = UnitStatus::Dispatched {
                        token: token.id,
                        worker: worker_id.clone(),
                        session: *worker_session,
                        deadline: *deadline_ms,
                        redelivery,
                    };
                }
            }
            Event::StepSucceeded { step, output, token, .. } => {
                self.settle(step, token.as_ref().map(|t| t.id));
                self.end_well(step, UnitStatus::Succeeded, output.clone(), recorded.at_ms);
            }
            Event::StepAttemptFailed { step, error, token, .. } => {
                self.settle(step, token.as_ref().map(|t| t.id));
                if let Some(unit) = self.set(step, UnitStatus::AttemptFailed { error: error.clone() }, recorded.at_ms) {
                    unit.last_error = Some(Arc::new(error.clone()));
                }
            }
            Event::StepAttemptUncertain { step, .. } => {
                self.set(step, UnitStatus::Uncertain, recorded.at_ms);
            }
            Event::RetryScheduled { step, next_attempt, fire_at_ms, .. } => {
                let status = UnitStatus::Retrying { next_attempt: *next_attempt, fire_at: *fire_at_ms };
                self.set(step, status, recorded.at_ms);
            }
            Event::StepFailed { step, error } => {
                self.end_unit(step, UnitStatus::Failed { error: error.clone() }, recorded.at_ms);
            }
            Event::StepCancelled { step } => self.end_unit(step, UnitStatus::Cancelled, recorded.at_ms),
            Event::TimerStarted { step, fire_at_ms } => {
                let status = UnitStatus::Sleeping { fire_at: *fire_at_ms };
                self.units.insert(step.clone(), Unit::without_attempts(status, recorded.at_ms));
            }
            Event::TimerFired { step } => self.end_well(step, UnitStatus::Succeeded, Json::default(), recorded.at_ms),
            Event::StaleResultIgnored { token, .. } => {
                if let Some(delivery) = self.deliveries.get_mut(&token.id) {
                    delivery.settled.get_or_insert(Settled::Stale);
                }
            }
            Event::CancelRequested { reason } => {
                if self.is_running() {
                    self.phase = Phase::Cancelling { reason: reason.clone() };
                }
            }
            Event::LimitReached { error, .. } | Event::ContractViolated { error, .. } => {
                if self.is_running() {
                    self.phase = Phase::Failing(error.clone());
                }
            }
            Event::WorkflowCompleted { output } => self.phase = Phase::Ended(End::Completed { output: output.clone() }),
            Event::WorkflowFailed { error } => self.phase = Phase::Ended(End::Failed { error: error.clone() }),
            Event::WorkflowCancelled => {
                let reason = match &mut self.phase {
                    Phase::Cancelling { reason } => reason.take(),
                    _ => None,
                };
                self.phase = Phase::Ended(End::Cancelled { reason });
            }
        }
    }

    /// Changes the status of a unit that has not ended.
    fn set(&mut self, step: &UnitKey, status: UnitStatus, at: ClusterMs) -> Option<&mut Unit> {
        let unit = self.units.get_mut(step).filter(|unit| !unit.status.has_ended())?;
        unit.status = status;
        unit.since = at;
        Some(unit)
    }

    fn end_well(&mut self, step: &UnitKey, status: UnitStatus, output: Json, at: ClusterMs) {
        self.end_unit(step, status, at);
        self.outputs.insert(StepId::new(step.as_str()), output);
    }

    fn end_unit(&mut self, step: &UnitKey, status: UnitStatus, at: ClusterMs) {
        let ended = Unit::without_attempts(status, at);
        match self.units.get_mut(step) {
            Some(unit) => *unit = Unit { attempt: unit.attempt, ..ended },
            None => drop(self.units.insert(step.clone(), ended)),
        }
    }

    /// Of another step's delivery it means nothing: that one's unit would wait for a result that none may give any more.
    fn settle(&mut self, step: &UnitKey, token: Option<Uuid>) {
        if let Some(delivery) = token.and_then(|t| self.deliveries.get_mut(&t)).filter(|d| d.unit == *step) {
            delivery.settled.get_or_insert(Settled::Accepted);
        }
    }

    /// Created or running: nothing winds it down yet.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Created | Phase::Running)
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// How it ended, where it has.
    pub fn end(&self) -> Option<&End> {
        match &self.phase {
            Phase::Ended(end) => Some(end),
            _ => None,
        }
    }

    /// Why it was cancelled, where it was and a reason was given.
    pub fn cancel_reason(&self) -> Option<&str> {
        match &self.phase {
            Phase::Cancelling { reason } | Phase::Ended(End::Cancelled { reason }) => reason.as_deref(),
            _ => None,
        }
    }

    /// About how many bytes of memory the values take that it holds.
    pub fn memory(&self) -> u64 {
        let inputs = self.units.values().filter_map(|unit| unit.input.as_ref());
        let values = inputs.chain(self.outputs.values()).map(|value| memory_of(value));
        memory_of(&self.input) + values.sum::<u64>()
    }

    /// The status that the API shows.
    pub fn status(&self) -> Status {
        match self.end() {
            None => Status::Running,
            Some(End::Completed { .. }) => Status::Completed,
            Some(End::Failed { .. }) => Status::Failed,
            Some(End::Cancelled { .. }) => Status::Cancelled,
        }
    }

    /// The row that lists and searches read.
    pub fn summary(&self) -> Summary {
        Summary {
            workflow: self.workflow.clone(),
            version: self.version.clone(),
            status: self.status(),
            created_at_ms: self.created_at,
            updated_at_ms: self.last_at,
            labels: self.labels.clone(),
        }
    }

    /// Whether this delivery is the one that its unit waits for.
    pub fn is_open(&self, token: Uuid) -> bool {
        let unit = self.deliveries.get(&token).and_then(|d| self.units.get(&d.unit));
        matches!(unit, Some(Unit { status: UnitStatus::Dispatched { token: current, .. }, .. }) if *current == token)
    }

    /// The deliveries that units wait for.
    pub fn open_tokens(&self) -> impl Iterator<Item = (Uuid, &UnitKey, &Unit)> {
        self.units.iter().filter_map(|(key, unit)| match unit.status {
            UnitStatus::Dispatched { token, .. } => Some((token, key, unit)),
            _ => None,
        })
    }

    /// The attempts that wait for a worker.
    pub fn scheduled(&self) -> impl Iterator<Item = (&UnitKey, &Unit, Seq)> {
        self.units.iter().filter_map(|(key, unit)| match unit.status {
            UnitStatus::Scheduled { seq, .. } => Some((key, unit, seq)),
            _ => None,
        })
    }
}
