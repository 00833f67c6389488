//! The machine that joins the protocols: inputs in, effects out.

pub mod config;
pub mod counters;
pub mod effect;
pub mod input;
pub mod log;

pub use config::{Limits, NodeConfig};
pub use effect::{CallId, Connection, Effect, RequestId};
pub use input::Input;
pub use log::LogEvent;

use crate::mutant::{Mutants, NoMutants};
use crate::time::{Mono, Now};
use serde::{Deserialize, Serialize};

/// When a node wants to be woken without an input, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    pub at: Mono,
    pub why: Timer,
}

/// Everything that a node waits for by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timer {
    /// A call whose outcome is unknown is sent again.
    Resend,
    /// A call has no reply within its deadline.
    CallDeadline,
    /// The fence and the database's clock are looked at.
    Check,
    /// A timer, retry, time-out or deadline of an execution in memory.
    Execution,
    /// An execution out of memory wants to be loaded.
    Due,
    /// A worker session falls silent.
    Session,
    /// A long poll, a wait or a request ends.
    Request,
    /// The stop does not wait longer.
    Stop,
}

/// A server's decisions. See the crate's documentation for the driving contract.
pub struct Node<M: Mutants = NoMutants> {
    _mutants: M,
}

impl Node {
    /// A production node, which has not yet begun: its first effects come with the first input or timeout.
    pub fn new(config: NodeConfig, entropy: [u8; 32], now: Now) -> Node {
        Node::with_mutants(config, entropy, now, NoMutants)
    }
}

impl<M: Mutants> Node<M> {
    /// A node with mistakes planted, for `sim`.
    pub fn with_mutants(config: NodeConfig, entropy: [u8; 32], now: Now, mutants: M) -> Node<M> {
        let _ = (config, entropy, now);
        Node { _mutants: mutants }
    }

    /// Takes one input. [`Input::Wake`] when a timeout came and nothing else did.
    pub fn handle(&mut self, now: Now, input: Input) {
        let _ = (now, input);
    }

    /// The next effect, until `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        None
    }

    /// When to call [`Node::handle`] with [`Input::Wake`] if nothing comes before.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        None
    }
}
