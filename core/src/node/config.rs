//! What a node is told when it begins.

use crate::cluster::{Recovery, Role};
use crate::id::NodeId;
use crate::store::calls::Deadlines;
use crate::store::transaction::SCHEMA_VERSION;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A node's configuration.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeConfig {
    /// This server's name, for people.
    pub node_id: NodeId,
    /// The host that it runs on, for people.
    pub host: String,
    /// The process id, for people.
    pub pid: u32,
    /// The address that others are told of it.
    pub addr: Option<String>,
    /// A digest of the settings that the servers of one cluster have in common, for people.
    pub digest: String,
    /// A worker that is silent for so long is lost (30 s by default).
    pub session_timeout: Duration,
    /// What workers are told to heartbeat at (a sixth of the session timeout by default: 5 s).
    pub heartbeat_interval: Duration,
    /// How often the fence and the database's clock are looked at (1 s by default).
    pub check_interval: Duration,
    /// How long a look at the fence or the election lock may take before its connection is given up (3 s by default).
    pub check_deadline: Duration,
    /// How long a server that starts waits for another one's election lock before it refuses to start (3 s by default):
    /// that of a killed server is freed as soon as the database notices.
    pub start_patience: Duration,
    /// How long a store call may take before its connection is given up (30 s by default).
    pub call_deadline: Duration,
    /// How long a request waits for an outcome before it is told that it is unknown (10 s by default).
    pub request_deadline: Duration,
    /// How long a stop waits for what is in flight (10 s by default).
    pub stop_deadline: Duration,
    /// Whether it is alone, or one of several.
    pub role: Role,
    /// What becomes of executions of which an attempt is out when it takes over (goes on with them by default).
    pub recovery: Recovery,
    /// The newest version of the tables that it knows; another one than [`SCHEMA_VERSION`] is of another release.
    pub schema: u32,
    pub limits: Limits,
}

/// Bounds on what a server takes on. Every error about one names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Running executions (100,000).
    pub max_active_executions: u64,
    /// Events of one history (50,000); past it the execution fails with LIMIT_EXCEEDED.
    pub max_history_events: u64,
    /// Items of the list of one `for` step (10,000); past it the execution fails with LIMIT_EXCEEDED.
    pub max_fan_out: u64,
    /// Children that one run starts (10,000), and how deep they lie within each other (8); past it they fail with
    /// LIMIT_EXCEEDED.
    pub max_children: u64,
    pub max_child_depth: u64,
    /// Signals and updates of one execution that nothing has taken (1,000); past it 429.
    pub max_pending_signals: u64,
    /// Bytes of one payload as JSON text (1 MiB).
    pub max_payload_bytes: u64,
    /// Idle executions that stay in memory (10,000); older ones cost a row.
    pub max_resident_executions: u64,
    /// Bytes of the histories of those (128 MiB).
    pub max_resident_bytes: u64,
    /// Starts, cancels and results that are not recorded yet, and reads, deployments and registrations that the
    /// database has not answered (10,000), whether or not one still waits for them; past it 429.
    pub max_queued_requests: u64,
    /// Memory that those take, in bytes (128 MiB): inputs, results and definitions.
    pub max_queued_bytes: u64,
    /// Open worker sessions (10,000).
    pub max_worker_sessions: u64,
    /// Contracts that the open sessions registered together (100,000): a session costs memory for each of its own.
    pub max_worker_contracts: u64,
    /// Polls of one session that wait (100), and of all sessions (10,000).
    pub max_session_polls: u64,
    pub max_waiting_polls: u64,
    /// Groups of one append (256).
    pub max_append_groups: usize,
    /// Bytes of events of one append (1 MiB).
    pub max_append_bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            max_active_executions: 100_000,
            max_history_events: 50_000,
            max_fan_out: 10_000,
            max_children: 10_000,
            max_child_depth: 8,
            max_pending_signals: 1_000,
            max_payload_bytes: 1 << 20,
            max_resident_executions: 10_000,
            max_resident_bytes: 128 << 20,
            max_queued_requests: 10_000,
            max_queued_bytes: 128 << 20,
            max_worker_sessions: 10_000,
            max_worker_contracts: 100_000,
            max_session_polls: 100,
            max_waiting_polls: 10_000,
            max_append_groups: 256,
            max_append_bytes: 1 << 20,
        }
    }
}

impl NodeConfig {
    /// How long calls may take. A check that is not answered does not outlast the validity of a leader: the next reign would
    /// wait behind it.
    pub(super) fn deadlines(&self) -> Deadlines {
        let checks = match &self.role {
            Role::Single => self.check_deadline,
            Role::Standby(standby) => self.check_deadline.min(standby.election.third().unwrap_or(standby.validity)),
        };
        Deadlines { checks, others: self.call_deadline }
    }

    /// The defaults, for a server of this name.
    pub fn new(node_id: NodeId) -> NodeConfig {
        NodeConfig {
            node_id,
            host: String::new(),
            pid: 0,
            addr: None,
            digest: String::new(),
            session_timeout: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(5),
            check_interval: Duration::from_secs(1),
            check_deadline: Duration::from_secs(3),
            start_patience: Duration::from_secs(3),
            call_deadline: Duration::from_secs(30),
            request_deadline: Duration::from_secs(10),
            stop_deadline: Duration::from_secs(10),
            role: Role::Single,
            recovery: Recovery::Auto,
            schema: SCHEMA_VERSION,
            limits: Limits::default(),
        }
    }
}
