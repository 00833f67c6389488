//! The lease of leadership seen from outside, and taken away: for `orbit lease`. No server need run, and none is asked.

use crate::postgres::address::Address;
use crate::postgres::connect::{Connector, Role, Timeouts};
use crate::postgres::migrate;
use crate::postgres::open::{self, OpenError};
use crate::postgres::peek::PeekError;
use crate::postgres::session::Session;
use crate::postgres::statement::Link;
use orbit_core::store::lease::{ForceVerdict, ReleaseByForce, nobody};
use orbit_core::store::outcome::{FailureKind, Reply};
use orbit_core::store::statement::{FenceRow, LeaseSeen};
use orbit_core::store::transaction::{SCHEMA_VERSION, Transaction, Verdict};
use std::thread;
use std::time::Duration;

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

/// So often it is tried while others hold the rows for a moment.
const TRIES: u32 = 10;
const PAUSE: Duration = Duration::from_millis(200);

/// Who holds the lease, and until when. It changes nothing.
pub fn show(address: Address) -> Result<LeaseView, LeaseError> {
    let shown = address.shown().to_owned();
    open::on_a_thread(&shown, move || {
        Ok(connect(address).and_then(|mut tool| {
            let Verdict::Lease(lease) = tool.run(Transaction::Lease)? else { unreachable!("it gives the lease") };
            let Verdict::Check(fence) = tool.run(Transaction::Check)? else { unreachable!("it gives the fence") };
            Ok(LeaseView { lease, fence })
        }))
    })?
}

/// Takes the lease away from whoever holds it, and raises the fence at once.
pub fn release_by_force(address: Address) -> Result<ForceVerdict, LeaseError> {
    let shown = address.shown().to_owned();
    open::on_a_thread(&shown, move || {
        Ok(connect(address).and_then(|mut tool| {
            let mut random = [0; 16];
            getrandom::fill(&mut random).expect("the operating system gives random bytes");
            let force = ReleaseByForce { incarnation: nobody(u128::from_be_bytes(random)) };
            for _ in 1..TRIES {
                match tool.run(Transaction::ForceLease(force))? {
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

/// A connection through whatever stands in between: nothing is set on it for longer than a transaction.
struct Tool {
    session: Session,
    address: String,
}

fn connect(address: Address) -> Result<Tool, LeaseError> {
    let shown = address.shown().to_owned();
    let connector = Connector { address, name: "command".into(), timeouts: Timeouts::default(), pooled: true };
    let mut opened = open::connect(&connector, Role::Tool)?;
    let of_postgres = |error: ::postgres::Error| open::of_connection(&shown, error.into());
    opened.client.batch_execute("BEGIN").map_err(of_postgres)?;
    let found = migrate::current(&mut opened.client).map_err(|error| open::of_migration(&shown, error))?;
    opened.client.batch_execute("COMMIT").map_err(of_postgres)?;
    match found {
        0 => Err(PeekError::Empty { address: shown }.into()),
        found if found > SCHEMA_VERSION => Err(PeekError::NewerSchema { address: shown, found }.into()),
        // Of a version before leases there is none.
        found if found < 2 => Err(OpenError::Old { address: shown, found }.into()),
        _ => Ok(Tool { session: Session::with(connector, Role::Tool, Link::new(opened)), address: shown }),
    }
}

impl Tool {
    fn run(&mut self, transaction: Transaction) -> Result<Verdict, LeaseError> {
        let address = self.address.clone();
        let mut tries = TRIES;
        loop {
            tries -= 1;
            match self.session.run(transaction.clone()) {
                Reply::Done(verdict) => return Ok(verdict),
                Reply::Failed(failure) if failure.kind == FailureKind::Retry && tries > 0 => thread::sleep(PAUSE),
                Reply::Failed(failure) => return Err(LeaseError::Failed { address, reason: failure.message }),
                Reply::Unknown => return Err(LeaseError::Unknown { address }),
            }
        }
    }
}
