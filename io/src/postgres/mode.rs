//! Changing how the servers of a database share the work: for `orbit cluster mode set`. No server may run.

use crate::postgres::address::Address;
use crate::postgres::open::{self, OpenError};
use crate::postgres::peek::PeekError;
use crate::postgres::tool::{PAUSE, TRIES, Tool, ToolError, Way, somebody};
use orbit_core::cluster::{Elected, Mode};
use orbit_core::store::mode::{ModeVerdict, SetMode};
use orbit_core::store::transaction::{SCHEMA_VERSION, Transaction, Verdict};
use std::thread;

/// The tables since which there are servers of a cluster in them.
const SINCE: u32 = 4;

/// Why the mode cannot be changed.
#[derive(Debug, thiserror::Error)]
pub enum ModeError {
    #[error(transparent)]
    Peek(#[from] PeekError),
    #[error("{address} did not do it: {reason}; nothing has changed")]
    Failed { address: String, reason: String },
    #[error("{address} was lost while it did it: the mode may have changed; run this again, which says so")]
    Unknown { address: String },
}

impl From<OpenError> for ModeError {
    fn from(error: OpenError) -> ModeError {
        ModeError::Peek(error.into())
    }
}

impl From<ToolError> for ModeError {
    fn from(error: ToolError) -> ModeError {
        match error {
            ToolError::Peek(error) => ModeError::Peek(error),
            ToolError::Failed { address, reason } => ModeError::Failed { address, reason },
            ToolError::Unknown { address } => ModeError::Unknown { address },
        }
    }
}

/// Sets it while no server lives, and raises the fence with it.
pub fn set(address: Address, mode: Mode, election: Elected) -> Result<ModeVerdict, ModeError> {
    let shown = address.shown().to_owned();
    open::on_a_thread(&shown, move || {
        Ok(Tool::connect(address, SINCE, Way::Own).map_err(ModeError::from).and_then(|mut tool| {
            let set = Transaction::SetMode(SetMode { mode, election, incarnation: somebody(), schema: SCHEMA_VERSION });
            for _ in 1..TRIES {
                match tool.run(&set)? {
                    // Somebody has just become, or stopped being, the leader.
                    Verdict::SetMode(ModeVerdict::Lost) => thread::sleep(PAUSE),
                    Verdict::SetMode(verdict) => return Ok(verdict),
                    other => unreachable!("it says what became of the mode, not {other:?}"),
                }
            }
            Ok(ModeVerdict::Lost)
        }))
    })?
}
