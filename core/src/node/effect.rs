//! Everything that a server does.

use crate::api::Response;
use crate::node::log::LogEvent;
use crate::store::origin::Origin;
use crate::store::transaction::Transaction;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A store call under way; every sending has a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CallId(pub u64);

/// A request under way. The front numbers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RequestId(pub u64);

impl fmt::Display for RequestId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The kind of connection that a transaction runs on. Calls on one kind run in the order sent; calls on different
/// kinds in any order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connection {
    /// Appends and what must be ordered with them.
    Store,
    /// The election lock, and what must be done by the session that holds it.
    Election,
    /// The fence and the clock.
    Control,
    /// Reads and small writes of requests; several at once.
    Requests,
}

/// An effect of [`crate::node::Node`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(clippy::large_enum_variant)] // each is handed on at once, and few wait at a time
pub enum Effect {
    /// Run this transaction; then [`crate::node::Input::Store`] with the same call. With an `origin`, on a connection that
    /// leads there ([`Origin::serves`]) and on no other: one that leads elsewhere is closed and opened once more, and where
    /// that leads elsewhere too nothing is sent.
    Store { call: CallId, connection: Connection, transaction: Transaction, origin: Option<Origin> },
    /// No reply to this call came within its deadline: its connection is given up. The calls that wait behind it go to
    /// another one, which takes its place; what it may still answer is dropped. Where nothing can hang for ever
    /// (SQLite) there is nothing to do.
    WriteOff { call: CallId, connection: Connection },
    /// Answer a request.
    Respond { request: RequestId, response: Response },
    /// Tell people.
    Log(LogEvent),
    /// End the process with this status, once the effects before it are done.
    Exit { status: u8 },
}
