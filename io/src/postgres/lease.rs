//! The lease of leadership seen from outside, and taken away: for `orbit lease`. No server need run, and none is asked.

use crate::postgres::address::Address;
use crate::postgres::open::{self, OpenError};
use crate::postgres::peek::{PeekError, WITH_LEASES};
use crate::postgres::tool::{PAUSE, TRIES, Tool, ToolError, Way, somebody};
use orbit_core::store::lease::{ForceVerdict, ReleaseByForce};
use orbit_core::store::statement::{FenceRow, LeaseSeen};
use orbit_core::store::transaction::{Transaction, Verdict};
use std::thread;

/// What a database says of who leads by lease.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseView {
    pub lease: LeaseSeen,
    pub fence: FenceRow,
}

/// Why the lease cannot be looked at, or taken away.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    #[error(transparent)]
    Peek(#[from] PeekError),
    #[error("{address} did not do it: {reason}; nothing has changed")]
    Failed { address: String, reason: String },
    #[error("{address} was lost while it did it: the lease may be free; `orbit lease show` says so")]
    Unknown { address: String },
}

impl From<OpenError> for LeaseError {
    fn from(error: OpenError) -> LeaseError {
        LeaseError::Peek(error.into())
    }
}

impl From<ToolError> for LeaseError {
    fn from(error: ToolError) -> LeaseError {
        match error {
            ToolError::Peek(error) => LeaseError::Peek(error),
            ToolError::Failed { address, reason } => LeaseError::Failed { address, reason },
            ToolError::Unknown { address } => LeaseError::Unknown { address },
        }
    }
}

fn connect(address: Address) -> Result<Tool, LeaseError> {
    Ok(Tool::connect(address, WITH_LEASES, Way::Through)?)
}

/// Who holds the lease, and until when. It changes nothing.
pub fn show(address: Address) -> Result<LeaseView, LeaseError> {
    let shown = address.shown().to_owned();
    open::on_a_thread(&shown, move || {
        Ok(connect(address).and_then(|mut tool| {
            let Verdict::Lease(lease) = tool.run(&Transaction::Lease)? else { unreachable!("it gives the lease") };
            let Verdict::Check(fence) = tool.run(&Transaction::Check)? else { unreachable!("it gives the fence") };
            Ok(LeaseView { lease, fence })
        }))
    })?
}

/// Takes the lease away from whoever holds it, and raises the fence at once.
pub fn release_by_force(address: Address) -> Result<ForceVerdict, LeaseError> {
    let shown = address.shown().to_owned();
    open::on_a_thread(&shown, move || {
        Ok(connect(address).and_then(|mut tool| {
            let force = Transaction::ForceLease(ReleaseByForce { incarnation: somebody() });
            for _ in 1..TRIES {
                match tool.run(&force)? {
                    // Somebody has just become, or stopped being, the leader.
                    Verdict::Force(ForceVerdict::Lost) => thread::sleep(PAUSE),
                    Verdict::Force(verdict) => return Ok(verdict),
                    other => unreachable!("it says what became of the lease, not {other:?}"),
                }
            }
            Ok(ForceVerdict::Lost)
        }))
    })?
}
