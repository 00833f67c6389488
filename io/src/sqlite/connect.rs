//! A connection as Orbit wants it: nothing that was acknowledged is lost when the power goes.

use rusqlite::{Connection, OpenFlags};
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// How long a connection waits for a lock that another program holds, such as the `sqlite3` shell. Orbit's own writers
/// wait for each other before they ask for it.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);

/// Statements that stay prepared: more than there are.
const STATEMENTS: usize = 96;

/// Kibibytes of pages that the writer keeps; every other connection keeps SQLite's own 2,000. No more: SQLite looks at
/// each cached page once in every commit that splits a page of an index (`docs/src/guide/performance.md`).
const WRITER_CACHE: i64 = 4 << 10;

/// Pages of the log (4 KiB each) at which they are copied into the file. A page that many commits change is copied
/// once, so four times SQLite's own number costs far less writing; a start reads at most this much more.
const CHECKPOINT: i64 = 4_000;

/// What SQLite says of a connection's settings when it is asked, not what it was told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Durability {
    /// `wal`
    pub journal_mode: String,
    /// When the log is flushed.
    pub synchronous: Synchronous,
    pub foreign_keys: bool,
    pub busy_timeout_ms: u32,
}

/// SQLite's `synchronous`, by its names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Synchronous {
    Off,
    Normal,
    /// The log is flushed at each commit.
    Full,
    Extra,
}

impl Synchronous {
    fn of(number: u32) -> Synchronous {
        match number {
            0 => Synchronous::Off,
            1 => Synchronous::Normal,
            2 => Synchronous::Full,
            _ => Synchronous::Extra,
        }
    }
}

impl fmt::Display for Synchronous {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Synchronous::Off => "OFF",
            Synchronous::Normal => "NORMAL",
            Synchronous::Full => "FULL",
            Synchronous::Extra => "EXTRA",
        })
    }
}

impl Durability {
    /// What a server serves with.
    pub fn required() -> Durability {
        Durability {
            journal_mode: "wal".into(),
            synchronous: Synchronous::Full,
            foreign_keys: true,
            busy_timeout_ms: u32::try_from(BUSY_TIMEOUT.as_millis()).expect("5,000 is small"),
        }
    }

    /// Reads a connection's settings back.
    pub(super) fn of(connection: &Connection) -> rusqlite::Result<Durability> {
        Ok(Durability {
            journal_mode: connection.pragma_query_one(None, "journal_mode")?,
            synchronous: Synchronous::of(connection.pragma_query_one(None, "synchronous")?),
            foreign_keys: connection.pragma_query_one(None, "foreign_keys")?,
            busy_timeout_ms: connection.pragma_query_one(None, "busy_timeout")?,
        })
    }
}

/// Why there is no connection that can be relied on.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error("it is set to {found:?}, and a server needs {:?}", Durability::required())]
    Weak { found: Durability },
}

/// Opens a file that exists, or is to be made when something is written.
pub(super) fn plain(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    Ok(connection)
}

/// Sets a connection up to be durable, and reads back whether it is.
pub(super) fn make_durable(connection: &Connection) -> Result<(), ConnectError> {
    // SQLite answers with the mode that holds, which is another where the file system cannot do it.
    connection.pragma_update_and_check(None, "journal_mode", "wal", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "full")?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // What sorting needs stays out of the file system.
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update_and_check(None, "wal_autocheckpoint", CHECKPOINT, |_| Ok(()))?;
    // After a burst the log is cut back to this at the next checkpoint.
    connection.pragma_update_and_check(None, "journal_size_limit", 64 << 20, |_| Ok(()))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    let found = Durability::of(connection)?;
    if found == Durability::required() { Ok(()) } else { Err(ConnectError::Weak { found }) }
}

/// Gives a connection the memory that a writer needs, to find most pages of running executions there.
pub(super) fn make_writer(connection: &Connection) -> rusqlite::Result<()> {
    // SQLite counts kibibytes below zero, pages above.
    connection.pragma_update(None, "cache_size", -WRITER_CACHE)
}

/// A durable connection to a file that is an Orbit database.
pub(super) fn durable(path: &Path) -> Result<Connection, ConnectError> {
    let connection = plain(path)?;
    make_durable(&connection)?;
    Ok(connection)
}
