//! Stores on databases of one server that is thrown away.

use orbit_io::driver::Attached;
use orbit_io::postgres::{Address, Migrate, PostgresStore, Timeouts};
use orbit_support::{Database, Postgres};

pub use orbit_io::postgres::PostgresBackend as Backend;

/// What is said of a task row that is there already.
pub const SAME_TASK: &str = "duplicate key value violates unique constraint \"orbit_tasks_pkey\"";

/// A database.
#[derive(Clone)]
pub struct Place {
    pub database: Database,
}

impl Place {
    pub fn fresh() -> Place {
        Place { database: Postgres::shared().fresh() }
    }

    /// Runs SQL on the database while a store has it open.
    pub fn meddle(&self, sql: &str) {
        self.database.connect().batch_execute(sql).unwrap();
    }
}

pub fn open(place: &Place) -> Attached<Backend> {
    open_with(place, Timeouts::default())
}

pub fn open_with(place: &Place, timeouts: Timeouts) -> Attached<Backend> {
    let address = Address::parse(&place.database.url()).unwrap();
    PostgresStore::open(address, "node-a", timeouts, Migrate::Auto).unwrap().attach()
}
