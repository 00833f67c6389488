//! A look at a database from outside, whether or not a server has it open: for `orbit status --db FILE`.

use crate::contents::Contents;
use crate::sqlite::schema::APPLICATION_ID;
use crate::sqlite::statement::{column, fence};
use orbit_core::store::transaction::SCHEMA_VERSION;
use rusqlite::{Connection, ErrorCode, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a database says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Peek {
    pub contents: Contents,
    /// `wal` on every database that a server had open.
    pub journal_mode: String,
}

/// Why a database cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum PeekError {
    #[error("there is no database at {}; `orbit server --db` makes one", .0.display())]
    Missing(PathBuf),
    #[error("{} is not an Orbit database", .0.display())]
    Foreign(PathBuf),
    #[error("{} has tables of version {found}, and this Orbit knows version {SCHEMA_VERSION}: use the newer Orbit that made it", path.display())]
    NewerSchema { path: PathBuf, found: u32 },
    #[error("{} cannot be read: {error}", path.display())]
    Sqlite { path: PathBuf, error: rusqlite::Error },
}

/// Looks at a database without its lock, and changes nothing in it.
pub fn peek(path: impl AsRef<Path>) -> Result<Peek, PeekError> {
    let path = path.as_ref();
    if !path.is_file() {
        return Err(PeekError::Missing(path.into()));
    }
    let sqlite = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => PeekError::Foreign(path.into()),
        _ => PeekError::Sqlite { path: path.into(), error },
    };
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = Connection::open_with_flags(path, flags).map_err(sqlite)?;
    connection.busy_timeout(Duration::from_secs(1)).map_err(sqlite)?;
    let id: i32 = connection.pragma_query_one(None, "application_id").map_err(sqlite)?;
    if id != APPLICATION_ID {
        return Err(PeekError::Foreign(path.into()));
    }
    let found: u32 =
        connection.query_row("SELECT version FROM schema_version", [], |row| row.get(0)).map_err(sqlite)?;
    if found > SCHEMA_VERSION {
        return Err(PeekError::NewerSchema { path: path.into(), found });
    }
    read(&mut connection).map_err(sqlite)
}

fn read(connection: &mut Connection) -> rusqlite::Result<Peek> {
    let journal_mode = connection.pragma_query_one(None, "journal_mode")?;
    let moment = connection.transaction()?;
    let count = |sql: &str| moment.query_row(sql, [], |row| column::number(row, 0));
    let mut statuses = moment.prepare("SELECT status, count(*) FROM workflow_executions GROUP BY status")?;
    let mut executions = statuses
        .query_map([], |row| Ok((column::status(row, 0)?, column::number(row, 1)?)))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    executions.sort();
    let contents = Contents {
        fence: fence::read(&moment)?,
        executions,
        queued_tasks: count("SELECT count(*) FROM orbit_tasks WHERE state = 'queued'")?,
        claimed_tasks: count("SELECT count(*) FROM orbit_tasks WHERE state = 'claimed'")?,
        workers: count("SELECT count(*) FROM orbit_workers")?,
        definitions: count("SELECT count(*) FROM workflow_definitions")?,
    };
    Ok(Peek { contents, journal_mode })
}
