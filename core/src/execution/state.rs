//! What a history folds to.

use crate::definition::input_hash;
use crate::execution::event::{
    Carried, CompensationOutcome, DecodeError, Event, Identity, Json, Labels, Parent, Recorded, Sent, TaskError,
    memory_of,
};
use crate::execution::fan::Fan;
use crate::id::{
    DefinitionHash, ExecutionId, HandlerKey, InputHash, Run, Seq, SessionId, SignalName, StepId, UnitKey, Version,
    WorkerId, WorkflowName,
};
use crate::store::append::{Status, Summary};
use crate::time::ClusterMs;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
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
    /// What the first run was given, where this is a later one.
    pub started_with: Option<InputHash>,
    /// When this run began.
    pub run_at: ClusterMs,
    /// Whose child it is.
    pub parent: Option<Parent>,
    /// Children that this run started.
    pub children: u64,
    /// It is time to continue as new.
    pub continue_suggested: bool,
    /// It is held: nothing is decided until somebody recovers it, or wants its end.
    pub held: Option<Hold>,
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
    /// The `for` steps that have their list.
    pub fans: BTreeMap<UnitKey, Fan>,
    /// Units of the workflow's own steps that succeeded, in order.
    pub succeeded: Vec<UnitKey>,
    /// Signals and updates that nothing has taken, oldest first.
    pub buffered: BTreeMap<SignalName, VecDeque<Received>>,
    /// Keys of the senders of signals and updates, with what they were told: in this run, and in those before.
    pub sent: BTreeMap<String, Sent>,
    pub sent_before: Arc<BTreeMap<String, Sent>>,
    /// Handlers that have begun; those of events until they end.
    pub handlers: BTreeMap<HandlerKey, Handler>,
    pub compensation: Option<Compensation>,
}

/// A signal or update that was taken in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Received {
    pub seq: Seq,
    pub payload: Json,
    /// Where it stood in an earlier run.
    pub carried: Option<Carried>,
}

/// A handler that has begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Handler {
    /// What the event brought.
    pub event: Option<Json>,
    /// Outputs of its steps.
    pub outputs: BTreeMap<StepId, Json>,
    pub ended: bool,
}

/// The undoing of what was done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Compensation {
    /// The units to undo, in this order.
    pub steps: Vec<UnitKey>,
    pub outcome: Option<CompensationOutcome>,
}

/// A hold: since when, and why.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hold {
    pub since: ClusterMs,
    pub reason: String,
}

/// How far the execution as a whole is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Phase {
    /// Created, and nothing decided yet.
    Created,
    Running,
    /// Something ended it otherwise than well: what is open is cancelled, what was done is compensated, handlers run.
    WindingDown(Abort),
    Ended(End),
}

/// Why it winds down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Abort {
    /// A step failed for good, a bound was reached or a schema violated.
    Failed(TaskError),
    Cancelled {
        reason: Option<String>,
    },
    TimedOut,
    /// Nothing is compensated, no handler runs.
    Terminated {
        reason: Option<String>,
    },
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum End {
    Completed {
        output: Json,
    },
    Failed {
        error: TaskError,
    },
    Cancelled {
        reason: Option<String>,
    },
    TimedOut,
    Terminated {
        reason: Option<String>,
    },
    /// The run ended, and the next one goes on.
    Continued,
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
    /// It waits for a signal.
    Awaiting {
        signal: SignalName,
        deadline: Option<ClusterMs>,
    },
    /// A `for` step whose items are under way.
    FannedOut,
    /// A child is to be started.
    ChildScheduled {
        child: ExecutionId,
        workflow: WorkflowName,
        version: Option<Version>,
    },
    /// A child runs.
    Child {
        child: ExecutionId,
        deadline: Option<ClusterMs>,
        /// It was asked to end.
        asked: Option<Asked>,
    },
    Succeeded,
    Skipped,
    Failed {
        error: TaskError,
    },
    Cancelled,
}

/// Why and how a child was asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Asked {
    /// It took longer than its step allows.
    TimedOut,
    /// Its parent ends.
    Cancelled,
    /// Its parent ends at once.
    Terminated,
}

impl Unit {
    /// A unit as no worker runs it, or as it ends.
    pub(super) fn without_attempts(status: UnitStatus, since: ClusterMs) -> Unit {
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
        let Event::WorkflowCreated {
            workflow,
            version,
            definition_hash,
            input,
            labels,
            cluster_id,
            run,
            parent,
            continued,
        } = &first.event
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
            created_at: continued.as_ref().map_or(first.at_ms, |continued| continued.created_at_ms),
            started_with: continued.as_ref().and_then(|continued| continued.started_with.clone()),
            run_at: first.at_ms,
            parent: parent.clone(),
            children: 0,
            continue_suggested: false,
            held: None,
            last: first.seq,
            last_at: first.at_ms,
            phase: Phase::Created,
            units: BTreeMap::new(),
            outputs: BTreeMap::new(),
            deliveries: BTreeMap::new(),
            fans: BTreeMap::new(),
            succeeded: Vec::new(),
            buffered: BTreeMap::new(),
            sent: BTreeMap::new(),
            sent_before: continued.as_ref().map(|continued| continued.sent.clone()).unwrap_or_default(),
            handlers: BTreeMap::new(),
            compensation: None,
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

    /// What the first run was given; none where it is a later one and says nothing of it.
    pub(super) fn started_with(&self) -> Option<InputHash> {
        let first = self.identity.run == Run(1);
        self.started_with.clone().or_else(|| first.then(|| input_hash(&self.input)))
    }

    /// Whether the execution was started with this input, as far as is known.
    pub fn is_started_with(&self, input: &Json) -> bool {
        match (&self.started_with, self.identity.run) {
            (Some(hash), _) => input_hash(input) == *hash,
            (None, Run(1)) => self.input == *input,
            (None, _) => true,
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

    /// Why it was cancelled or terminated, where it was and a reason was given.
    pub fn cancel_reason(&self) -> Option<&str> {
        match &self.phase {
            Phase::WindingDown(Abort::Cancelled { reason } | Abort::Terminated { reason })
            | Phase::Ended(End::Cancelled { reason } | End::Terminated { reason }) => reason.as_deref(),
            _ => None,
        }
    }

    /// About how many bytes of memory the values take that it holds.
    pub fn memory(&self) -> u64 {
        let inputs = self.units.values().filter_map(|unit| unit.input.as_ref());
        let received = self.buffered.values().flatten().map(|received| &received.payload);
        let sent = self.sent.values().chain(self.sent_before.values()).filter_map(|sent| sent.result.as_ref());
        let handled = self.handlers.values().flat_map(|handler| handler.event.iter().chain(handler.outputs.values()));
        let items = self.fans.values().flat_map(Fan::values);
        let values = inputs.chain(self.outputs.values()).chain(received).chain(sent).chain(handled).chain(items);
        memory_of(&self.input) + values.map(|value| memory_of(value)).sum::<u64>()
    }

    /// The status that the API shows.
    pub fn status(&self) -> Status {
        match self.end() {
            None if self.held.is_some() => Status::Held,
            None => Status::Running,
            Some(End::Completed { .. }) => Status::Completed,
            Some(End::Failed { .. }) => Status::Failed,
            Some(End::Cancelled { .. }) => Status::Cancelled,
            Some(End::TimedOut) => Status::TimedOut,
            Some(End::Terminated { .. }) => Status::Terminated,
            Some(End::Continued) => Status::Running,
        }
    }

    /// What the sender with this key was told.
    pub fn sent(&self, key: &str) -> Option<&Sent> {
        self.sent.get(key).or_else(|| self.sent_before.get(key))
    }

    /// How many signals and updates nothing has taken.
    pub fn unconsumed(&self) -> usize {
        self.buffered.values().map(VecDeque::len).sum()
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

    /// The root of its tree: itself, unless it is a child.
    pub fn root(&self) -> &ExecutionId {
        self.parent.as_ref().map_or(&self.identity.execution_id, |parent| &parent.root)
    }

    /// The children that run, each with its unit and whether it was asked to end.
    pub fn open_children(&self) -> impl Iterator<Item = (&UnitKey, &ExecutionId, Option<Asked>)> {
        self.units.iter().filter_map(|(key, unit)| match &unit.status {
            UnitStatus::Child { child, asked, .. } => Some((key, child, *asked)),
            _ => None,
        })
    }

    /// The attempts that wait for a worker: none while it is held.
    pub fn scheduled(&self) -> impl Iterator<Item = (&UnitKey, &Unit, Seq)> {
        self.units.iter().filter_map(|(key, unit)| match unit.status {
            UnitStatus::Scheduled { seq, .. } if self.held.is_none() => Some((key, unit, seq)),
            _ => None,
        })
    }
}
