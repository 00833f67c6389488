//! Stores on files.

use crate::support::Running;
use orbit_io::driver::Attached;
use orbit_io::sqlite::SqliteStore;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub use orbit_io::sqlite::SqliteBackend as Backend;

/// What is said of a task row that is there already.
pub const SAME_TASK: &str = "UNIQUE constraint failed: orbit_tasks.task_id";

/// A file.
pub struct Place {
    pub path: PathBuf,
    /// Gone with the place, unless the test keeps it.
    folder: Option<TempDir>,
}

impl Place {
    pub fn fresh() -> Place {
        let folder = tempfile::tempdir().unwrap();
        Place { path: folder.path().join("orbit.db"), folder: Some(folder) }
    }

    /// Runs SQL on the file while a store has it open, as an operator with the `sqlite3` shell could.
    pub fn meddle(&self, sql: &str) {
        rusqlite::Connection::open(&self.path).unwrap().execute_batch(sql).unwrap();
    }
}

pub fn open(place: &Place) -> Attached<Backend> {
    SqliteStore::open(&place.path).unwrap().attach()
}

impl Running {
    /// On a file that the test looks after.
    pub fn at(path: &Path) -> Running {
        Running::on(Place { path: path.into(), folder: None })
    }

    /// Closes the store, and leaves its folder.
    pub fn close(self) -> (Option<TempDir>, PathBuf) {
        let Running { attached, place, .. } = self;
        drop(attached);
        (place.folder, place.path)
    }
}
