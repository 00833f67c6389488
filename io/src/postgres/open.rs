//! Opening a database: its server, its tables.

use crate::driver::backend::Attached;
use crate::driver::witness::Witness;
use crate::postgres::address::Address;
use crate::postgres::backend::PostgresBackend;
use crate::postgres::connect::{ConnectError, Connector, Opened, Role, ServerName, ServerSettings, Timeouts};
use crate::postgres::facts;
use crate::postgres::figures::Figures;
use crate::postgres::migrate::{self, MigrateError, Migration};
use crate::postgres::statement::Link;
use ::postgres::{Client, SimpleQueryMessage};
use orbit_core::store::transaction::SCHEMA_VERSION;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Whether the tables may be changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Migrate {
    /// Brought up to date at the start.
    #[default]
    Auto,
    /// Somebody else does it, and the server needs no right to.
    Never,
}

/// What becomes of a pooler in transaction mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pooler {
    /// It is an error: something is to be held by a session.
    Refused,
    /// Nothing is held by a session, and nothing is set on one.
    Taken,
}

/// A database whose tables are those that this Orbit knows.
pub struct PostgresStore {
    connector: Connector,
    settings: ServerSettings,
    applied: Vec<Migration>,
    figures: Arc<Figures>,
    /// None once it is attached.
    link: Option<Link>,
}

/// Why a database cannot be opened. Nothing was changed, except that tables may have been made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{address} cannot be reached: {reason}; is PostgreSQL running there, and does it take connections?")]
    Unreachable { address: String, reason: String },
    #[error("{address} did not answer within {} s: a server is there, and it hangs", patience.as_secs())]
    Silent { address: String, patience: Duration },
    #[error(
        "{address} refuses these credentials: {reason}; the user and the password stand in the address \
         (postgres://user:password@…) and the server's pg_hba.conf says who may come from where"
    )]
    Credentials { address: String, reason: String },
    #[error("{address} does not exist: {reason}; make it with `createdb`")]
    NoDatabase { address: String, reason: String },
    #[error("{address} is starting or stopping: {reason}; try again in a moment")]
    Starting { address: String, reason: String },
    #[error(
        "{address} takes no more connections: {reason}; an Orbit server needs 7: raise `max_connections`, or the limit \
         of the role or the database"
    )]
    Full { address: String, reason: String },
    #[error("{address} takes no encrypted connections: {reason}; turn TLS on there, or say sslmode=disable")]
    NoTls { address: String, reason: String },
    #[error(
        "{address} is reached through a pooler in transaction mode, where a session is not one's own and no lock can be \
         held: connect to PostgreSQL itself, or through the pooler in session mode"
    )]
    Pooled { address: String },
    #[error(
        "{address} has tables of version {found}, this Orbit needs version {SCHEMA_VERSION}, and tables are not changed \
         through a pooler in transaction mode: run `orbit db migrate up --db` with the address of PostgreSQL itself"
    )]
    OldBehindPooler { address: String, found: u32 },
    #[error("{address} cannot be served from: {reason}")]
    Unfit { address: String, reason: String },
    #[error(
        "the role may not change the tables of {address}: {reason}; run `orbit db migrate up` as their owner, and the \
         server with --migrate never"
    )]
    Rights { address: String, reason: String },
    #[error(
        "the role may not read Orbit's tables of {address}: {reason}; give the address with a role that may, as their owner"
    )]
    Reads { address: String, reason: String },
    #[error(
        "{address} has tables of version {found}, and this Orbit needs version {SCHEMA_VERSION}: run `orbit db migrate \
         up`, or start the server with --migrate auto"
    )]
    Old { address: String, found: u32 },
    #[error("{address}: {error}")]
    Migrate { address: String, error: MigrateError },
    #[error("{address}: {reason}")]
    Other { address: String, reason: String },
}

/// How long a server that starts is waited for: another one may be making the tables.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long another server that changes the tables is waited for.
const MIGRATION_PATIENCE: Duration = Duration::from_secs(30);
/// How long a database that is starting is waited for.
const START_PATIENCE: Duration = Duration::from_secs(15);
const ASK_EVERY: Duration = Duration::from_millis(200);

impl PostgresStore {
    /// Connects, looks at the server, and brings the tables up to date. May be called
    /// anywhere: the work is done on a thread of its own.
    pub fn open(
        address: Address,
        name: impl Into<ServerName>,
        timeouts: Timeouts,
        migrate: Migrate,
    ) -> Result<PostgresStore, OpenError> {
        PostgresStore::open_behind(address, name, timeouts, migrate, Pooler::Refused)
    }

    /// The same, behind such a pooler or none.
    pub fn open_behind(
        address: Address,
        name: impl Into<ServerName>,
        timeouts: Timeouts,
        migrate: Migrate,
        pooler: Pooler,
    ) -> Result<PostgresStore, OpenError> {
        let shown = address.shown().to_owned();
        let connector = Connector { address, name: name.into(), timeouts, pooled: false, witness: Witness::default() };
        on_a_thread(&shown, move || open(connector, migrate, pooler))
    }

    /// Whether a pooler in transaction mode stands in between.
    pub fn is_pooled(&self) -> bool {
        self.connector.pooled
    }

    /// The address, without its password.
    pub fn address(&self) -> &str {
        self.connector.address.shown()
    }

    /// What the server says of itself.
    pub fn settings(&self) -> &ServerSettings {
        &self.settings
    }

    /// The versions of the tables that were applied just now.
    pub fn applied(&self) -> &[Migration] {
        &self.applied
    }

    /// What is read now and then about the database's age, once it is attached.
    pub fn figures(&self) -> Arc<Figures> {
        Arc::clone(&self.figures)
    }

    /// The same, whose statements somebody sees.
    #[must_use]
    pub fn seen_by(mut self, witness: Witness) -> PostgresStore {
        self.connector.witness = witness;
        self
    }

    /// Starts the threads that transactions run on.
    pub fn attach(mut self) -> Attached<PostgresBackend> {
        let link = self.link.take().expect("a store is attached once");
        Attached::new(|replies| PostgresBackend::start(self.connector.clone(), link, self.figures(), replies))
    }
}

/// A connection may be dropped on no thread of a runtime.
impl Drop for PostgresStore {
    fn drop(&mut self) {
        let Some(link) = self.link.take() else { return };
        if let Ok(thread) = thread::Builder::new().name("orbit-close".into()).spawn(move || drop(link)) {
            let _ = thread.join();
        }
    }
}

/// Runs what blocks, and may hang, outside every runtime.
pub(super) fn on_a_thread<T: Send + 'static>(
    address: &str,
    work: impl FnOnce() -> Result<T, OpenError> + Send + 'static,
) -> Result<T, OpenError> {
    let (done, end) = channel();
    let body = move || drop(done.send(work()));
    thread::Builder::new().name("orbit-open".into()).spawn(body).expect("the operating system starts a thread");
    end.recv_timeout(PATIENCE).unwrap_or_else(|error| {
        Err(match error {
            RecvTimeoutError::Timeout => OpenError::Silent { address: address.into(), patience: PATIENCE },
            RecvTimeoutError::Disconnected => OpenError::Other {
                address: address.into(),
                reason: "opening it failed inside Orbit; please report this".into(),
            },
        })
    })
}

fn open(connector: Connector, migrate: Migrate, pooler: Pooler) -> Result<PostgresStore, OpenError> {
    if pooler == Pooler::Taken && hands_out_transactions(&connector)? {
        return open_pooled(Connector { pooled: true, ..connector });
    }
    let address = connector.address.shown().to_owned();
    let failed = |error: MigrateError| of_migration(&address, error);
    let mut tool = connect(&connector, Role::Tool)?;
    let found = migrate::current(&mut tool.client).map_err(failed)?;
    let mut applied = Vec::new();
    if found < SCHEMA_VERSION {
        match migrate {
            Migrate::Never => return Err(OpenError::Old { address, found }),
            Migrate::Auto => applied = migrate::up(&mut tool.client, MIGRATION_PATIENCE).map_err(failed)?,
        }
    } else if found > SCHEMA_VERSION {
        return Err(failed(MigrateError::Newer { found }));
    }
    let mut opened = connector.open(Role::Store).map_err(|error| of_connection(&address, error))?;
    if is_pooled(tool, &mut opened.client).map_err(|error| of_connection(&address, error.into()))? {
        return Err(OpenError::Pooled { address });
    }
    let settings = opened.settings.clone();
    let link = Some(Link::new(opened));
    Ok(PostgresStore { connector, settings, applied, figures: Arc::default(), link })
}

/// Tables are looked at, and left as they are: whoever changes them holds a lock with a session.
fn open_pooled(connector: Connector) -> Result<PostgresStore, OpenError> {
    let address = connector.address.shown().to_owned();
    let of_postgres = |error: ::postgres::Error| of_connection(&address, error.into());
    let mut opened = connect(&connector, Role::Store)?;
    opened.client.batch_execute("BEGIN").map_err(of_postgres)?;
    let found = migrate::current(&mut opened.client).map_err(|error| of_migration(&address, error))?;
    opened.client.batch_execute("COMMIT").map_err(of_postgres)?;
    match found {
        found if found < SCHEMA_VERSION => Err(OpenError::OldBehindPooler { address, found }),
        found if found > SCHEMA_VERSION => Err(of_migration(&address, MigrateError::Newer { found })),
        _ => {
            let settings = opened.settings.clone();
            let link = Some(Link::new(opened));
            Ok(PostgresStore { connector, settings, applied: Vec::new(), figures: Arc::default(), link })
        }
    }
}

/// How often it is asked whether sessions are handed out by the transaction: others who use the pooler at that moment may
/// hide it once.
const ASKED: usize = 4;

/// The same as [`is_pooled`], without setting more than the marker: what is set stays on a backend that is another's later.
fn hands_out_transactions(connector: &Connector) -> Result<bool, OpenError> {
    let plain = Connector { pooled: true, ..connector.clone() };
    for _ in 0..ASKED {
        let mut mine = connect(&plain, Role::Tool)?;
        let mut other = connect(&plain, Role::Tool)?;
        let marked = mine.client.batch_execute(&format!("SET orbit.session = '{}'", mine.marker));
        let is_pooled = marked.and_then(|()| is_pooled(mine, &mut other.client));
        if is_pooled.map_err(|error| of_connection(connector.address.shown(), error.into()))? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// A connection for commands and set-up. A server that is just starting is waited for.
pub(super) fn connect(connector: &Connector, role: Role) -> Result<Opened, OpenError> {
    let begun = Instant::now();
    loop {
        let error = match connector.open(role) {
            Ok(opened) => return Ok(opened),
            Err(error) => of_connection(connector.address.shown(), error),
        };
        if !matches!(error, OpenError::Starting { .. }) || begun.elapsed() > START_PATIENCE {
            return Err(error);
        }
        thread::sleep(ASK_EVERY);
    }
}

/// How long a session may take to say whose it is, while another has a transaction open.
const PINNED: Duration = Duration::from_secs(2);

/// Whether a pooler hands sessions out by the transaction. `other` opens a transaction, for which such a pooler takes the
/// backend that was used last, the one of `mine`; what answers for `mine` then is another backend, which has not been
/// told what `mine` was told, or none at all.
fn is_pooled(mine: Opened, other: &mut Client) -> Result<bool, ::postgres::Error> {
    let Opened { mut client, marker, .. } = mine;
    client.simple_query("SELECT 1")?;
    other.batch_execute("BEGIN")?;
    let (answer, answered) = channel();
    let body = move || {
        let answers = client.simple_query("SELECT current_setting('orbit.session', true)");
        let is_mine = answers.map(|messages| {
            messages.iter().any(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0) == Some(marker.to_string().as_str()),
                _ => false,
            })
        });
        drop(client);
        let _ = answer.send(is_mine);
    };
    thread::Builder::new().name("orbit-open-2".into()).spawn(body).expect("the operating system starts a thread");
    let is_mine = answered.recv_timeout(PINNED);
    other.batch_execute("ROLLBACK")?;
    match is_mine {
        Ok(is_mine) => Ok(!is_mine?),
        Err(_) => Ok(true),
    }
}

pub(super) fn of_connection(address: &str, error: ConnectError) -> OpenError {
    let (address, reason) = (address.to_owned(), error.to_string());
    let ConnectError::Postgres(error) = error else { return OpenError::Unfit { address, reason } };
    match error.code().map(|code| code.code()) {
        Some("28000" | "28P01") => OpenError::Credentials { address, reason },
        Some("3D000") => OpenError::NoDatabase { address, reason },
        Some("57P03" | "57P01" | "57P02") => OpenError::Starting { address, reason },
        Some("53300") => OpenError::Full { address, reason },
        // What was prepared, or set, is another session's.
        Some("26000") => OpenError::Pooled { address },
        Some("42501") => OpenError::Credentials { address, reason },
        Some(_) => OpenError::Other { address, reason },
        // The crate says so in words alone.
        None if reason.contains("does not support TLS") => OpenError::NoTls { address, reason },
        None if reason.contains("TLS handshake") => OpenError::Other {
            address,
            reason: format!("its certificate is not accepted: {reason}; sslrootcert names a file of authorities"),
        },
        None if reason.contains("password") => OpenError::Credentials { address, reason },
        None => OpenError::Unreachable { address, reason },
    }
}

/// What is said where the tables are only looked at.
pub(super) fn of_look(address: &str, error: MigrateError) -> OpenError {
    match of_migration(address, error) {
        OpenError::Rights { address, reason } => OpenError::Reads { address, reason },
        error => error,
    }
}

pub(super) fn of_migration(address: &str, error: MigrateError) -> OpenError {
    let address = address.to_owned();
    match error {
        MigrateError::Postgres(error) if error.code().is_some_and(|code| code.code() == "42501") => {
            OpenError::Rights { address, reason: facts::message(&error) }
        }
        error => OpenError::Migrate { address, error },
    }
}
