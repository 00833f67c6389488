//! Executions in memory: what is known of each, and what waits for it.

use crate::api::error::ApiError;
use crate::api::request::{Start, TaskOutcome};
use crate::definition::Definition;
use crate::execution::State;
use crate::execution::event::memory_of;
use crate::id::{Epoch, ExecutionId, SessionId, TaskId, Token};
use crate::node::RequestId;
use crate::node::ask::Ask;
use crate::store::append::{TaskState, Wake};
use crate::store::statement::ClaimedTask;
use crate::time::{ClusterMs, Mono};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// An execution in memory.
#[derive(Debug)]
pub(crate) struct Slot {
    pub body: Body,
    /// What waits for it, in order of arrival.
    pub queue: VecDeque<Work>,
    /// Whether a group of it is under way: it has at most one (design, section 6).
    pub in_flight: bool,
    /// About how many bytes of memory it takes.
    pub bytes: u64,
    /// Its end is decided, and waits to be recorded together with its parent's result of it.
    pub end_waits: bool,
    /// Nobody waits for its end: it is recorded alone.
    pub orphan: bool,
    /// It was in memory when this server took over, and what that says of it is not recorded yet.
    pub recovers: bool,
    /// It was set aside, and is tried again.
    pub released: bool,
    /// Its entry in the node's timers.
    pub timer: Option<ClusterMs>,
    /// Its entry among the idle ones.
    pub idle: Option<u64>,
    /// Its entry among those that rest.
    pub rests: Option<Mono>,
}

/// What is known of an execution.
#[derive(Debug)]
pub(crate) enum Body {
    /// Its history is being read.
    Loading,
    /// Nobody has looked whether there is one of that id: it can be started, and nothing else.
    Unread,
    /// There is none of that id.
    Absent,
    Resident(Box<Resident>),
    /// Its history cannot be loaded, and why.
    Broken(String),
}

/// An execution whose history is folded: exactly what is committed, never more (design, section 3).
#[derive(Clone, Debug)]
pub(crate) struct Resident {
    pub definition: Arc<Definition>,
    pub state: State,
    pub epoch: Epoch,
    /// What its owner row says of its next wake.
    pub wake: Wake,
    /// Its rows in `orbit_tasks`, as far as is known: only this server changes them, and a claim that is under way may
    /// have moved one from queued to claimed.
    pub tasks: BTreeMap<TaskId, TaskState>,
    /// Those of them that may have been handed out before a promotion that lost the record of it.
    pub doubtful: BTreeSet<TaskId>,
}

/// Something to be done with an execution.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Start it; or say what is wrong with the input, where there is none of that id yet.
    Start { request: RequestId, start: Box<Start>, definition: Arc<Definition>, misfit: Option<Box<ApiError>> },
    /// What a client asks of it.
    Ask { request: RequestId, ask: Ask },
    /// A worker's result: the `index`th of its request.
    Result { request: RequestId, index: usize, token: Token, outcome: TaskOutcome },
    /// Hand a claimed task to a session's poll.
    Dispatch { claimed: ClaimedTask, session: SessionId, poll: RequestId },
    /// What became of a delivery is not known.
    Uncertain { token: Token, reason: String },
    /// A child of it has come to its end, which is recorded together with its own result of it.
    ChildEnds { child: ExecutionId },
    /// Its parent wants it to end: cancelled, or terminated.
    End { terminate: bool },
    /// Its time may have come.
    Wake,
    /// Leave memory, and have its row say when it wants to come back.
    Park,
}

impl Resident {
    /// One that is being started.
    pub fn new(definition: Arc<Definition>, state: State) -> Resident {
        let (tasks, doubtful) = Default::default();
        Resident { definition, state, epoch: Epoch(1), wake: Wake::Hot, tasks, doubtful }
    }

    /// Whether it stays in memory though nothing happens to it: a worker has a task of it, or a child of it is to end.
    pub fn stays(&self) -> bool {
        self.state.open_tokens().next().is_some() || self.state.open_children().any(|(.., asked)| asked.is_some())
    }
}

impl Work {
    /// Whether somebody wants it to be tried again after it was set aside.
    pub fn releases(&self) -> bool {
        matches!(self, Work::Ask { ask: Ask::Release { .. }, .. })
    }

    /// The token of the claimed row that it hands over.
    pub fn claimed(&self) -> Option<uuid::Uuid> {
        match self {
            Work::Dispatch { claimed, .. } => Some(claimed.token),
            _ => None,
        }
    }

    /// The request that waits for it.
    pub fn request(&self) -> Option<RequestId> {
        match self {
            Work::Start { request, .. } | Work::Ask { request, .. } | Work::Result { request, .. } => Some(*request),
            Work::Dispatch { .. }
            | Work::Uncertain { .. }
            | Work::ChildEnds { .. }
            | Work::End { .. }
            | Work::Wake
            | Work::Park => None,
        }
    }
}

impl Work {
    /// About how many bytes of memory what a request brought with it takes.
    pub fn bytes(&self) -> u64 {
        match self {
            Work::Start { start, .. } => memory_of(&start.input),
            Work::Ask { ask, .. } => ask.bytes(),
            Work::Result { outcome, .. } => outcome.memory(),
            Work::Dispatch { .. }
            | Work::Uncertain { .. }
            | Work::ChildEnds { .. }
            | Work::End { .. }
            | Work::Wake
            | Work::Park => 0,
        }
    }
}

impl Slot {
    /// A slot with this body and nothing to do.
    pub fn new(body: Body) -> Slot {
        Slot {
            body,
            queue: VecDeque::new(),
            in_flight: false,
            bytes: 0,
            end_waits: false,
            recovers: false,
            released: false,
            orphan: false,
            timer: None,
            idle: None,
            rests: None,
        }
    }

    /// That of an execution which was in memory when this server took over.
    pub fn recovering() -> Slot {
        Slot { recovers: true, ..Slot::new(Body::Loading) }
    }

    /// The committed state, where it is in memory.
    pub fn resident(&self) -> Option<&Resident> {
        match &self.body {
            Body::Resident(resident) => Some(resident),
            _ => None,
        }
    }
}

/// The id of the row of `orbit_tasks` for the attempt whose `StepScheduled` has this number.
pub(crate) fn task_id(state: &State, scheduled: crate::id::Seq) -> TaskId {
    TaskId::new(format!("{}/{}/{}", state.identity.execution_id, state.identity.run, scheduled))
}
