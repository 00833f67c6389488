//! The pool of connections for requests.

use crate::postgres::connect::{Connector, Role};
use crate::postgres::session::Session;
use orbit_core::store::outcome::{Cause, Fact, FailureKind, Phase, Severity};
use r2d2::{ManageConnection, NopErrorHandler};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Connections, and threads that use them.
pub const SIZE: u32 = 4;

/// How long a request waits for a connection that is being made. One that takes longer is there for a later request.
const CHECKOUT: Duration = Duration::from_secs(2);

/// Makes sessions: connections that were set up and looked at, with what is prepared on them.
#[derive(Debug)]
pub struct Manager {
    connector: Connector,
    /// Why the last connection could not be made; the pool itself only says that there is none.
    last: Arc<Mutex<Option<Fact>>>,
}

/// The pool, and where it says why it is empty.
#[derive(Clone)]
pub struct Pool {
    pool: r2d2::Pool<Manager>,
    last: Arc<Mutex<Option<Fact>>>,
}

impl Pool {
    /// Without connections: they are made when they are needed.
    pub fn new(connector: Connector) -> Pool {
        let last = Arc::<Mutex<Option<Fact>>>::default();
        let manager = Manager { connector, last: Arc::clone(&last) };
        let pool = r2d2::Pool::builder()
            .max_size(SIZE)
            .min_idle(Some(0))
            .test_on_check_out(false)
            .connection_timeout(CHECKOUT)
            .error_handler(Box::new(NopErrorHandler))
            .build_unchecked(manager);
        Pool { pool, last }
    }

    /// A session. Without one, nothing was sent.
    pub fn get(&self) -> Result<r2d2::PooledConnection<Manager>, Fact> {
        self.pool.get().map_err(|error| {
            let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).clone();
            last.unwrap_or_else(|| Fact {
                phase: Phase::NotSent,
                severity: Some(Severity::Error),
                cause: Cause::Kind(FailureKind::Reconnect),
                message: format!("no connection to the database within {CHECKOUT:?}: {error}"),
            })
        })
    }
}

/// Why there is no session: the same as a call is told.
#[derive(Debug)]
pub struct NoSession(Fact);

impl fmt::Display for NoSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for NoSession {}

impl ManageConnection for Manager {
    type Connection = Session;
    type Error = NoSession;

    fn connect(&self) -> Result<Session, NoSession> {
        let mut session = Session::new(self.connector.clone(), Role::Requests);
        let connected = session.connect();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = connected.clone().err();
        connected.map(|()| session).map_err(NoSession)
    }

    /// Not asked: it would cost a round trip, and hangs with the server.
    fn is_valid(&self, _: &mut Session) -> Result<(), NoSession> {
        Ok(())
    }

    fn has_broken(&self, session: &mut Session) -> bool {
        !session.is_usable()
    }
}
