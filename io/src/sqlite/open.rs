//! Opening a database: its path, its lock, its tables, its durability.

use crate::driver::backend::Attached;
use crate::driver::witness::Witness;
use crate::sqlite::backend::SqliteBackend;
use crate::sqlite::connect::{self, ConnectError, Durability};
use crate::sqlite::lock::{self, Lock, Refused};
use crate::sqlite::peek;
use crate::sqlite::schema::{self, APPLICATION_ID};
use crate::sqlite::utc::utc;
use orbit_core::store::statement::Holder;
use orbit_core::store::transaction::SCHEMA_VERSION;
use rusqlite::{Connection, ErrorCode};
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// A database that this process has to itself.
#[derive(Debug)]
pub struct SqliteStore {
    path: PathBuf,
    connection: Connection,
    lock: Lock,
    witness: Witness,
}

/// Why a database cannot be opened. Nothing was changed, except that a missing file may have been made.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("{0:?} is no path of a database; name a file, for example orbit.db")]
    NoPath(PathBuf),
    #[error("{} is a folder; name a file in it, for example {}", .0.display(), .0.join("orbit.db").display())]
    Folder(PathBuf),
    #[error("the folder {} does not exist; make it first, or choose another path", .0.display())]
    MissingFolder(PathBuf),
    #[error("another server has {} open: {holder}; stop it first, or choose another path", path.display())]
    Held { path: PathBuf, holder: HeldBy },
    #[error(
        "{} is not an Orbit database but {what}; it was left as it is: choose another path", path.display()
    )]
    Foreign { path: PathBuf, what: &'static str },
    #[error(
        "{} has tables of version {found}, and this Orbit knows version {SCHEMA_VERSION}: use the newer Orbit that made it",
        path.display()
    )]
    NewerSchema { path: PathBuf, found: u32 },
    #[error("{} cannot be written; a server needs to write the file and to make files beside it", path.display())]
    ReadOnly { path: PathBuf },
    #[error("the lock {} cannot be taken: {error}; a database belongs on a local file system", path.display())]
    Lock { path: PathBuf, error: io::Error },
    #[error("{} cannot be read: {error}", path.display())]
    Read { path: PathBuf, error: io::Error },
    #[error("{} cannot be made durable: {what}; a database belongs on a local file system", path.display())]
    Durability { path: PathBuf, what: String },
    #[error("{} cannot be opened: {error}", path.display())]
    Sqlite { path: PathBuf, error: rusqlite::Error },
}

/// Who holds a database, as far as it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeldBy {
    /// What the database says of the server that writes it.
    pub holder: Option<Holder>,
    /// What the lock says.
    pub pid: Option<u32>,
}

impl fmt::Display for HeldBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.holder, self.pid) {
            // The row is the server's before, where the one that holds the lock has not got that far.
            (Some(holder), pid) if pid.is_none_or(|pid| pid == holder.pid) => {
                write!(f, "node `{}` (process {} on host {}", holder.node_id, holder.pid, holder.host)?;
                if let Some(addr) = &holder.addr {
                    write!(f, ", serving {addr}")?;
                }
                write!(f, ", since {})", utc(holder.since_ms))
            }
            (_, Some(pid)) => write!(f, "process {pid}"),
            (_, None) => f.write_str("a process that is just starting"),
        }
    }
}

impl SqliteStore {
    /// Opens the database at `path` for this process alone, and makes it where there is none.
    pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore, OpenError> {
        let path = resolve(path.as_ref())?;
        // A file that is something else gets no lock beside it. This process may read the file past SQLite only
        // while it surely does not have it open with SQLite: closing any handle frees the locks of all of them.
        if !lock::path_of(&path).exists() {
            check_header(&path)?;
        }
        let lock = lock::take(&path).map_err(|refused| match refused {
            Refused::Held { pid } => {
                let holder = peek::peek(&path).ok().and_then(|seen| seen.contents.fence.holder);
                OpenError::Held { path: path.clone(), holder: HeldBy { holder, pid } }
            }
            Refused::Io(error) if may_not_write(&error) => OpenError::ReadOnly { path: path.clone() },
            Refused::Io(error) => OpenError::Lock { path: lock::path_of(&path), error },
        })?;
        check_header(&path)?;
        let connection = open_locked(&path)?;
        Ok(SqliteStore { path, connection, lock, witness: Witness::default() })
    }

    /// Where the file is, without symbolic links.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How durable commits are, as SQLite says when asked.
    pub fn durability(&self) -> rusqlite::Result<Durability> {
        Durability::of(&self.connection)
    }

    /// The same, whose statements somebody sees.
    #[must_use]
    pub fn seen_by(self, witness: Witness) -> SqliteStore {
        SqliteStore { witness, ..self }
    }

    /// Starts the threads that transactions run on.
    pub fn attach(self) -> Attached<SqliteBackend> {
        Attached::new(|replies| SqliteBackend::start((self.path, self.witness), self.connection, self.lock, replies))
    }
}

/// Whether a file cannot be made or written for want of permission, and not for want of locks.
fn may_not_write(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem)
}

/// The one path of the file, so that two names of it have one lock.
fn resolve(path: &Path) -> Result<PathBuf, OpenError> {
    let read = |error| OpenError::Read { path: path.into(), error };
    let Some(name) = path.file_name().filter(|_| path != Path::new(":memory:")) else {
        return Err(if path.is_dir() { OpenError::Folder(path.into()) } else { OpenError::NoPath(path.into()) });
    };
    match fs::canonicalize(path) {
        Ok(found) if found.is_dir() => Err(OpenError::Folder(path.into())),
        Ok(found) => Ok(found),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let folder = match path.parent() {
                Some(parent) if parent != Path::new("") => parent,
                _ => Path::new("."),
            };
            if path.is_symlink() || !folder.is_dir() {
                let missing = if path.is_symlink() { path } else { folder };
                return Err(OpenError::MissingFolder(missing.into()));
            }
            Ok(fs::canonicalize(folder).map_err(read)?.join(name))
        }
        Err(error) => Err(read(error)),
    }
}

/// Looks at the first bytes of a file, before anything opens it that might change it.
fn check_header(path: &Path) -> Result<(), OpenError> {
    let read = |error| OpenError::Read { path: path.into(), error };
    let foreign = |what| Err(OpenError::Foreign { path: path.into(), what });
    let mut header = Vec::new();
    match File::open(path) {
        Ok(file) => file.take(100).read_to_end(&mut header).map_err(read)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(read(error)),
    };
    // Killed while it was made: SQLite undoes the half of it by the journal that lies beside it.
    let mut journal = path.as_os_str().to_owned();
    journal.push("-journal");
    if header.is_empty() || Path::new(&journal).exists() {
        return Ok(());
    }
    if !header.starts_with(b"SQLite format 3\0") || header.len() < 100 {
        return foreign("a file of another kind");
    }
    let id = i32::from_be_bytes(header[68..72].try_into().expect("four bytes"));
    if id == APPLICATION_ID { Ok(()) } else { foreign("a SQLite database of another program") }
}

fn open_locked(path: &Path) -> Result<Connection, OpenError> {
    let sqlite = |error: rusqlite::Error| match error.sqlite_error_code() {
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            OpenError::ReadOnly { path: path.into() }
        }
        Some(ErrorCode::NotADatabase) => OpenError::Foreign { path: path.into(), what: "a file of another kind" },
        _ => OpenError::Sqlite { path: path.into(), error },
    };
    if !path.exists() {
        // Payloads are nobody else's business. What SQLite puts beside the file gets the file's own permissions.
        let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
        made.map_err(|error| OpenError::Read { path: path.into(), error })?;
    }
    let mut connection = connect::plain(path).map_err(sqlite)?;
    // SQLite opens a file that it may not write for reading, and says nothing.
    if connection.is_readonly("main").map_err(sqlite)? {
        return Err(OpenError::ReadOnly { path: path.into() });
    }
    let tables: u32 =
        connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(sqlite)?;
    if tables == 0 {
        schema::create(&mut connection).map_err(sqlite)?;
    }
    let id: i32 = connection.pragma_query_one(None, "application_id").map_err(sqlite)?;
    if id != APPLICATION_ID {
        return Err(OpenError::Foreign { path: path.into(), what: "a SQLite database of another program" });
    }
    let found: u32 =
        connection.query_row("SELECT version FROM schema_version", [], |row| row.get(0)).map_err(sqlite)?;
    if found > SCHEMA_VERSION {
        return Err(OpenError::NewerSchema { path: path.into(), found });
    }
    connect::make_durable(&connection).map_err(|error| match error {
        ConnectError::Sqlite(error) => sqlite(error),
        weak @ ConnectError::Weak { .. } => OpenError::Durability { path: path.into(), what: weak.to_string() },
    })?;
    connect::make_writer(&connection).map_err(sqlite)?;
    Ok(connection)
}
