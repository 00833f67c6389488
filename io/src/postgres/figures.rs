//! What grows old in a database: read now and then on the connection that looks at the fence, and shown by the metrics.
//! Nothing is decided from it.

use crate::postgres::statement::column::get;
use crate::postgres::statement::{Link, Trouble};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Read with every so many looks at the fence: every 10 s, where it is looked at each second.
const EVERY: u32 = 10;

/// What a database says of its age. Ages in transactions are counted as PostgreSQL's `age()` does.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DatabaseFigures {
    /// How long ago this was read.
    pub read_ago: Duration,
    /// How long the oldest transaction in this database has been open, of those that the server's role may see.
    pub oldest_transaction: Duration,
    /// Transactions since the oldest snapshot, replication slot or prepared transaction for whose sake dead rows are
    /// kept, of those that the role may see.
    pub held_back: u64,
    /// Transactions since the oldest row that is not frozen; PostgreSQL stops at about 2,100 million.
    pub xid_age: u64,
    /// The same, of sets of lock holders (multixacts).
    pub multixact_age: u64,
    /// How full the queue of notifications is, from 0 to 1.
    pub notify_queue: f64,
    /// Rows that were replaced or deleted and are not removed yet.
    pub dead_rows: u64,
    /// By how much the execution is late that has waited longest since its time came.
    pub most_overdue: Duration,
}

/// The newest reading of a store.
#[derive(Debug, Default)]
pub struct Figures(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    looks: u32,
    newest: Option<(Instant, DatabaseFigures)>,
}

impl Figures {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The newest reading, once there is one.
    pub fn newest(&self) -> Option<DatabaseFigures> {
        let (at, figures) = self.state().newest?;
        Some(DatabaseFigures { read_ago: at.elapsed(), ..figures })
    }

    /// Counts a look at the fence; whether a reading is due.
    pub(super) fn is_due(&self) -> bool {
        let mut state = self.state();
        let due = state.looks.is_multiple_of(EVERY);
        state.looks = state.looks.wrapping_add(1);
        due
    }

    /// Takes a reading in.
    pub fn put(&self, figures: DatabaseFigures) {
        self.state().newest = Some((Instant::now(), figures));
    }
}

const READ: &str = "
SELECT (SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::float8
        FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()),
    greatest((SELECT max(age(backend_xmin)) FROM pg_stat_activity WHERE pid <> pg_backend_pid()),
        (SELECT max(age(xmin)) FROM pg_replication_slots), (SELECT max(age(transaction)) FROM pg_prepared_xacts),
        0)::bigint,
    age(datfrozenxid)::bigint, mxid_age(datminmxid)::bigint, pg_notification_queue_usage(),
    (SELECT coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables),
    greatest(0, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint
        - (SELECT min(next_wake_ms) FROM orbit_owners WHERE next_wake_ms > 0))
FROM pg_database WHERE datname = current_database()";

/// The same, outside any transaction.
pub(super) fn read_alone(link: &mut Link) -> Result<DatabaseFigures, Trouble> {
    if !link.is_pooled() {
        return read(link);
    }
    link.begin("BEGIN READ ONLY")?;
    let figures = read(link)?;
    link.run("COMMIT")?;
    Ok(figures)
}

fn read(link: &mut Link) -> Result<DatabaseFigures, Trouble> {
    let row = link.query_opt(READ, &[])?.ok_or(Trouble::Again)?;
    let count = |index| get::<i64>(&row, index).map(|number| u64::try_from(number).unwrap_or(0));
    let oldest: f64 = get(&row, 0)?;
    Ok(DatabaseFigures {
        read_ago: Duration::ZERO,
        oldest_transaction: Duration::try_from_secs_f64(oldest).unwrap_or_default(),
        held_back: count(1)?,
        xid_age: count(2)?,
        multixact_age: count(3)?,
        notify_queue: get(&row, 4)?,
        dead_rows: count(5)?,
        most_overdue: Duration::from_millis(count(6)?),
    })
}
