//! A command's own connection, for what needs no running server: `orbit lease`, `orbit cluster mode`.

use crate::driver::witness::Witness;
use crate::postgres::address::Address;
use crate::postgres::connect::{Connector, Role, Timeouts};
use crate::postgres::migrate;
use crate::postgres::open::{self, OpenError};
use crate::postgres::peek::PeekError;
use crate::postgres::session::Session;
use crate::postgres::statement::Link;
use orbit_core::id::Incarnation;
use orbit_core::store::lease::nobody;
use orbit_core::store::outcome::{FailureKind, Reply};
use orbit_core::store::transaction::{SCHEMA_VERSION, Transaction, Verdict};
use std::thread;
use std::time::Duration;

/// So often it is tried while others hold the rows for a moment.
pub(super) const TRIES: u32 = 10;
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// Why it gave nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum ToolError {
    #[error(transparent)]
    Peek(#[from] PeekError),
    #[error("{address} did not do it: {reason}")]
    Failed { address: String, reason: String },
    #[error("{address} was lost while it did it")]
    Unknown { address: String },
}

impl From<OpenError> for ToolError {
    fn from(error: OpenError) -> ToolError {
        ToolError::Peek(error.into())
    }
}

/// A connection whose session is this command's own, or one through whatever stands in between, on which nothing is set for
/// longer than a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    Own,
    Through,
}

/// See the module's documentation.
pub(super) struct Tool {
    session: Session,
    address: String,
}

impl Tool {
    /// To a database whose tables are of `oldest` at least, and no newer than this Orbit knows.
    pub fn connect(address: Address, oldest: u32, way: Way) -> Result<Tool, ToolError> {
        let shown = address.shown().to_owned();
        let (name, timeouts) = ("command".into(), Timeouts::default());
        let connector = Connector { address, name, timeouts, pooled: way == Way::Through, witness: Witness::default() };
        let mut opened = open::connect(&connector, Role::Tool)?;
        let of_postgres = |error: ::postgres::Error| open::of_connection(&shown, error.into());
        opened.client.batch_execute("BEGIN").map_err(of_postgres)?;
        let found = migrate::current(&mut opened.client).map_err(|error| open::of_look(&shown, error))?;
        opened.client.batch_execute("COMMIT").map_err(of_postgres)?;
        match found {
            0 => Err(PeekError::Empty { address: shown }.into()),
            found if found > SCHEMA_VERSION => Err(PeekError::NewerSchema { address: shown, found }.into()),
            found if found < oldest => Err(OpenError::Old { address: shown, found }.into()),
            _ => Ok(Tool { session: Session::with(connector, Role::Tool, Link::new(opened)), address: shown }),
        }
    }

    /// Runs it to its end, again where others were in the way.
    pub fn run(&mut self, transaction: &Transaction) -> Result<Verdict, ToolError> {
        let address = self.address.clone();
        let mut tries = TRIES;
        loop {
            tries -= 1;
            match self.session.run(transaction.clone()) {
                Reply::Done(verdict) => return Ok(verdict),
                Reply::Failed(failure) if failure.kind == FailureKind::Retry && tries > 0 => thread::sleep(PAUSE),
                Reply::Failed(failure) => return Err(ToolError::Failed { address, reason: failure.message }),
                Reply::Unknown => return Err(ToolError::Unknown { address }),
            }
        }
    }
}

/// An incarnation that is no server's.
pub(super) fn somebody() -> Incarnation {
    let mut random = [0; 16];
    getrandom::fill(&mut random).expect("the operating system gives random bytes");
    nobody(u128::from_be_bytes(random))
}
