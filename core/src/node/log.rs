//! Log lines, typed: targets, texts and fields are the reference's.

use crate::id::{ExecutionId, NodeId, SessionId, Term, UnitKey, Version, WorkerId, WorkflowName};
use crate::store::append::Status;
use serde::{Deserialize, Serialize};

/// Something that people are told. `io` writes it with the target and level that [`LogEvent::target`] and
/// [`LogEvent::level`] say.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LogEvent {
    /// `server: this server is the writer` …
    FenceTaken { node_id: NodeId, term: Term },
    /// `cluster mode: standby until elected`
    JoinedCluster { node_id: NodeId, advertise_addr: Option<String> },
    /// `cluster: standby; following the leader`
    Following { term: Term, leader: NodeId },
    /// `cluster: elected leader; recovering executions from history`
    Elected { node_id: NodeId, term: Term },
    /// `cluster: leader is serving`
    Leading { node_id: NodeId, term: Term, active_executions: u64, recovery_ms: u64 },
    /// `cluster: lost leadership; stepped down to standby`
    LeadershipLost { node_id: NodeId, reason: String },
    /// `lease-lost`: it led, does not any more, and ends.
    LeaseLost { node_id: NodeId, reason: String },
    /// `database: a replica was promoted; forgetting what was known and recovering`
    Promoted { from: u32, to: u32 },
    /// `database: the address leads to another server; its answers are not believed`: the primary of before a promotion, or
    /// another system. Said once until it leads back.
    LedAstray { to: String },
    /// `cluster: handing the lead over`: it was asked for.
    HandingOver { node_id: NodeId, term: Term },
    /// `cluster: handed the lead over; standing by`
    HandedOver { node_id: NodeId, term: Term },
    /// `cluster: another process has this node id; waiting until it has fallen silent`
    NodeIdHeld { node_id: NodeId, host: String, pid: u32 },
    /// `recovered active executions from history`
    Recovered { executions: u64, resident: u64, in_flight: u64, recovery_ms: u64 },
    /// `definition unreadable`: a stored definition that this version cannot read; its executions are quarantined.
    DefinitionUnreadable { workflow: WorkflowName, version: Version, reason: String },
    /// `execution started`
    ExecutionStarted { execution_id: ExecutionId, workflow: WorkflowName, version: Version },
    /// `execution completed`, `execution failed`, `execution cancelled`
    ExecutionEnded { execution_id: ExecutionId, status: Status, code: Option<String> },
    /// `execution held; it waits until it is recovered`: with so many attempts whose next delivery is a repeat.
    ExecutionHeld { execution_id: ExecutionId, repeats: u64 },
    /// `execution recovered`
    ExecutionRecovered { execution_id: ExecutionId },
    /// `worker registered`
    WorkerRegistered { worker_id: WorkerId, runtime: String, tasks: u64 },
    /// `worker unregistered`
    WorkerUnregistered { worker_id: WorkerId },
    /// `worker lost`: its session fell silent.
    WorkerLost { worker_id: WorkerId, session: SessionId, holding: u64 },
    /// `attempt outcome uncertain; redelivering`
    AttemptUncertain { execution_id: ExecutionId, step: UnitKey, attempt: u32, reason: String },
    /// `workflow deployed`
    Deployed { workflow: WorkflowName, version: Version },
    /// `execution quarantined`: its history cannot be loaded.
    Quarantined { execution_id: ExecutionId, reason: String },
    /// `store call failed`: nothing changed. The same of the same call is said once in ten seconds: `unsaid` times it was
    /// not, before.
    StoreFailed { call: String, message: String, unsaid: u64 },
    /// `store outcome unknown; sending again`
    StoreUnknown { call: String, unsaid: u64 },
    /// `store answers again`
    StoreAnswers { call: String, after_ms: u64 },
    /// `late claims put back`: tasks that a claim took after it had been given up.
    StraysRequeued { tasks: u64 },
    /// `election lock is another session's`: a server that is starting may take over.
    ElectionLockLost,
    /// `lost the fence; stopping`: another server has taken over.
    FenceLost { held: Term, current: Term },
    /// `cannot serve this database`: newer tables, or another mode.
    Unservable { message: String },
    /// `clock stepped`: the database's clock, by so many milliseconds.
    ClockStepped { by_ms: i64 },
    /// `stopping: finishing what is in flight`
    Stopping,
    /// `stopped`
    Stopped { clean: bool },
}

/// How important a line is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Level {
    Error,
    Warn,
    Info,
    Debug,
}

impl LogEvent {
    /// `orbit_runtime::server`, `::engine` or `::cluster`.
    pub fn target(&self) -> &'static str {
        match self {
            LogEvent::FenceTaken { .. }
            | LogEvent::JoinedCluster { .. }
            | LogEvent::Following { .. }
            | LogEvent::Elected { .. }
            | LogEvent::Leading { .. }
            | LogEvent::LeadershipLost { .. }
            | LogEvent::LeaseLost { .. }
            | LogEvent::Promoted { .. }
            | LogEvent::LedAstray { .. }
            | LogEvent::HandingOver { .. }
            | LogEvent::HandedOver { .. }
            | LogEvent::NodeIdHeld { .. }
            | LogEvent::ElectionLockLost
            | LogEvent::FenceLost { .. }
            | LogEvent::ClockStepped { .. } => "orbit_runtime::cluster",
            LogEvent::Unservable { .. } | LogEvent::Stopping | LogEvent::Stopped { .. } => "orbit_runtime::server",
            _ => "orbit_runtime::engine",
        }
    }

    /// How important it is. An [`Level::Error`] that no fault explains fails a simulated run.
    pub fn level(&self) -> Level {
        match self {
            LogEvent::FenceLost { .. }
            | LogEvent::LeadershipLost { .. }
            | LogEvent::LeaseLost { .. }
            | LogEvent::Unservable { .. }
            | LogEvent::Quarantined { .. }
            | LogEvent::DefinitionUnreadable { .. } => Level::Error,
            LogEvent::WorkerLost { .. }
            | LogEvent::AttemptUncertain { .. }
            | LogEvent::ExecutionHeld { .. }
            | LogEvent::StoreFailed { .. }
            | LogEvent::StoreUnknown { .. }
            | LogEvent::StraysRequeued { .. }
            | LogEvent::Promoted { .. }
            | LogEvent::LedAstray { .. }
            | LogEvent::ElectionLockLost
            | LogEvent::NodeIdHeld { .. }
            | LogEvent::ClockStepped { .. } => Level::Warn,
            _ => Level::Info,
        }
    }
}
