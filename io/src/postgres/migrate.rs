//! The versions of the tables, each a file of SQL, applied in order by whoever comes first.
//!
//! A change of the tables is made in two releases: one that adds (old servers go on), one later that takes away. A
//! version is applied in one transaction, under a session advisory lock, so that servers that start at once on an empty
//! database wait for each other, for a bounded time.

use ::postgres::{Client, Error};
use orbit_core::store::transaction::SCHEMA_VERSION;
use std::fmt;
use std::time::{Duration, Instant};

/// One version of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Migration {
    pub version: u32,
    /// What it does, for people.
    pub title: &'static str,
    pub sql: &'static str,
}

/// Every version, in order.
pub const MIGRATIONS: &[Migration] = &[
    Migration { version: 1, title: "the first tables", sql: include_str!("migrations/0001_first.sql") },
    Migration { version: 2, title: "election by lease", sql: include_str!("migrations/0002_leases.sql") },
    Migration { version: 3, title: "promotions of a replica", sql: include_str!("migrations/0003_timelines.sql") },
    Migration { version: 4, title: "the servers of a cluster", sql: include_str!("migrations/0004_nodes.sql") },
    Migration { version: 5, title: "owners of executions", sql: include_str!("migrations/0005_owners.sql") },
];

/// Made before the first version: which one the tables are of.
const VERSION_TABLE: &str = "CREATE TABLE IF NOT EXISTS schema_version (
    id integer PRIMARY KEY CHECK (id = 1),
    version bigint NOT NULL,
    migrated_at timestamptz NOT NULL DEFAULT now()
)";

/// Nobody becomes the leader while the tables are changed, and a server that does not know them sees their version then
/// (design, section 8). Appends share this lock.
const NO_CAMPAIGN: &str = "SELECT id FROM orbit_cluster WHERE id = 1 FOR SHARE";

/// "orbitmig" in ASCII.
const LOCK: i64 = i64::from_be_bytes(*b"orbitmig");
/// PostgreSQL's code for a lock that was not there within `lock_timeout`.
const LOCK_NOT_AVAILABLE: &str = "55P03";
/// How often the lock is asked for.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Why tables were not brought up to date. Nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    #[error("{}", crate::postgres::facts::message(.0))]
    Postgres(#[from] Error),
    #[error(
        "the tables are of version {found}, and this Orbit knows version {SCHEMA_VERSION}: use the newer Orbit that \
         made them"
    )]
    Newer { found: u32 },
    #[error("the database has a table `schema_version` of another program; give Orbit a database of its own")]
    Foreign,
    #[error("the tables are being changed by {0}; it was waited for in vain: look at what it does, or end it")]
    Held(LockHolder),
    #[error(
        "the tables cannot be changed while {0} uses them; it was waited for in vain: look at what it does, or end it"
    )]
    Busy(LockHolder),
}

/// Who holds the lock of migrations, or a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockHolder {
    pub pid: i32,
    pub application: String,
    pub client: Option<String>,
    /// How long its session has been what it is now.
    pub seconds: i64,
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.client.as_deref().unwrap_or("this host");
        write!(f, "`{}` from {from} (backend {}, {} s old)", self.application, self.pid, self.seconds)
    }
}

/// The version of the tables; 0 where there are none.
pub fn current(client: &mut Client) -> Result<u32, MigrateError> {
    let row = client.query_one(
        "SELECT to_regclass('schema_version') IS NOT NULL, to_regclass('orbit_cluster') IS NOT NULL,
                EXISTS (SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass('schema_version') AND attname = 'version')",
        &[],
    )?;
    match (row.get(0), row.get(1), row.get(2)) {
        (false, false, _) => Ok(0),
        (true, true, true) => {
            let version: i64 = client.query_one("SELECT version FROM schema_version WHERE id = 1", &[])?.get(0);
            Ok(u32::try_from(version).unwrap_or(u32::MAX))
        }
        (true, false, _) | (false, true, _) | (true, true, false) => Err(MigrateError::Foreign),
    }
}

/// The versions that tables of version `from` lack.
pub fn missing(from: u32) -> &'static [Migration] {
    let done = MIGRATIONS.iter().take_while(|migration| migration.version <= from).count();
    &MIGRATIONS[done..]
}

/// What would be run to bring tables of version `from` up to date.
pub fn as_sql(from: u32) -> String {
    let mut sql = String::new();
    for migration in missing(from) {
        sql.push_str(&format!("-- Version {}: {}\nBEGIN;\n", migration.version, migration.title));
        let first = if migration.version == 1 { VERSION_TABLE } else { NO_CAMPAIGN };
        sql.push_str(&format!("{first};\n"));
        sql.push_str(migration.sql);
        sql.push_str(&format!("{};\nCOMMIT;\n", record(migration.version)));
    }
    sql
}

fn record(version: u32) -> String {
    format!(
        "INSERT INTO schema_version (id, version) VALUES (1, {version})
         ON CONFLICT (id) DO UPDATE SET version = excluded.version, migrated_at = excluded.migrated_at"
    )
}

/// Brings the tables up to date, waiting at most `patience` for another that does; the versions that were applied.
pub fn up(client: &mut Client, patience: Duration) -> Result<Vec<Migration>, MigrateError> {
    up_by(client, patience, MIGRATIONS)
}

fn up_by(client: &mut Client, patience: Duration, migrations: &[Migration]) -> Result<Vec<Migration>, MigrateError> {
    let newest = migrations.last().map_or(0, |migration| migration.version);
    if current(client)? == newest {
        return Ok(Vec::new());
    }
    let until = Instant::now() + patience;
    lock(client, patience)?;
    let applied = apply(client, until, migrations);
    // The session ends soon, and the lock with it; freed at once, others need not wait for that.
    let freed = client.execute("SELECT pg_advisory_unlock($1)", &[&LOCK]);
    let applied = applied?;
    freed?;
    Ok(applied)
}

fn apply(client: &mut Client, until: Instant, migrations: &[Migration]) -> Result<Vec<Migration>, MigrateError> {
    // Another may have done it while this one waited.
    let found = current(client)?;
    if found > migrations.last().map_or(0, |migration| migration.version) {
        return Err(MigrateError::Newer { found });
    }
    let missing: Vec<Migration> = migrations.iter().copied().filter(|one| one.version > found).collect();
    for migration in &missing {
        // Whoever waits for a lock on a table makes all others wait behind it. So each wait is short (`lock_timeout`),
        // and between two of them those others have their turn.
        while let Err(error) = one(client, migration) {
            if error.code().is_none_or(|code| code.code() != LOCK_NOT_AVAILABLE) {
                return Err(error.into());
            }
            if Instant::now() >= until {
                return Err(user(client)?.map_or(MigrateError::Postgres(error), MigrateError::Busy));
            }
            std::thread::sleep(ASK_EVERY);
        }
    }
    Ok(missing)
}

fn one(client: &mut Client, migration: &Migration) -> Result<(), Error> {
    let mut transaction = client.transaction()?;
    // A change of large tables takes its time; what must not take long is the wait for a lock.
    transaction.batch_execute("SET LOCAL statement_timeout = 0")?;
    transaction.batch_execute(if migration.version == 1 { VERSION_TABLE } else { NO_CAMPAIGN })?;
    transaction.batch_execute(migration.sql)?;
    transaction.batch_execute(&record(migration.version))?;
    transaction.commit()
}

/// Who has used the tables for longest in one transaction.
fn user(client: &mut Client) -> Result<Option<LockHolder>, MigrateError> {
    let row = client.query_opt(
        "SELECT a.pid, coalesce(a.application_name, ''), host(a.client_addr),
                coalesce(extract(epoch FROM clock_timestamp() - a.xact_start), 0)::bigint
         FROM pg_stat_activity a
         WHERE a.pid <> pg_backend_pid() AND EXISTS (SELECT 1 FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
             WHERE l.pid = a.pid AND l.granted AND c.relkind = 'r' AND c.relnamespace <> 'pg_catalog'::regnamespace
                 AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()))
         ORDER BY a.xact_start LIMIT 1",
        &[],
    )?;
    Ok(row.map(|row| LockHolder { pid: row.get(0), application: row.get(1), client: row.get(2), seconds: row.get(3) }))
}

fn lock(client: &mut Client, patience: Duration) -> Result<(), MigrateError> {
    let begun = Instant::now();
    loop {
        let row = client.query_one("SELECT pg_try_advisory_lock($1)", &[&LOCK])?;
        if row.get(0) {
            return Ok(());
        }
        if begun.elapsed() >= patience {
            return match holder(client)? {
                Some(holder) => Err(MigrateError::Held(holder)),
                None => continue,
            };
        }
        std::thread::sleep(ASK_EVERY);
    }
}

/// Who holds the lock now.
pub fn holder(client: &mut Client) -> Result<Option<LockHolder>, MigrateError> {
    holder_of(client, LOCK)
}

/// Which session holds the advisory lock of this key now.
pub fn holder_of(client: &mut Client, key: i64) -> Result<Option<LockHolder>, MigrateError> {
    let row = client.query_opt(
        "SELECT a.pid, coalesce(a.application_name, ''), host(a.client_addr),
                coalesce(extract(epoch FROM clock_timestamp() - greatest(a.backend_start, a.xact_start)), 0)::bigint
         FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
             AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
             AND (l.classid::bigint << 32 | l.objid::bigint) = $1
         LIMIT 1",
        &[&key],
    )?;
    Ok(row.map(|row| LockHolder { pid: row.get(0), application: row.get(1), client: row.get(2), seconds: row.get(3) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_follow_each_other_up_to_the_one_that_core_knows() {
        let versions: Vec<u32> = MIGRATIONS.iter().map(|migration| migration.version).collect();
        assert_eq!(versions, (1..=SCHEMA_VERSION).collect::<Vec<_>>());
        assert_eq!(missing(0).len(), MIGRATIONS.len());
        assert!(missing(SCHEMA_VERSION).is_empty());
        assert!(as_sql(0).contains("CREATE TABLE orbit_cluster") && as_sql(SCHEMA_VERSION).is_empty());
    }

    /// A later release: what this one has, and a change of a table that is read.
    fn later() -> Vec<Migration> {
        let sql = "ALTER TABLE orbit_workers ADD COLUMN later text;";
        let next = Migration { version: SCHEMA_VERSION + 1, title: "a later one", sql };
        MIGRATIONS.iter().copied().chain([next]).collect()
    }

    fn client(database: &orbit_support::Database) -> Client {
        let mut client = database.connect();
        // As connections of Orbit have it, and shorter.
        client.batch_execute("SET lock_timeout = 100").expect("a setting");
        client
    }

    #[test]
    fn a_long_reader_is_waited_for_in_short_waits_that_let_others_through() {
        let database = orbit_support::Postgres::shared().fresh();
        up(&mut client(&database), Duration::ZERO).expect("an empty database");
        let (mut reader, mut others) = (database.connect(), database.connect());
        reader.batch_execute("SET application_name = 'report'; BEGIN; SELECT * FROM orbit_workers").expect("it reads");
        let mut migrator = client(&database);
        let error = up_by(&mut migrator, Duration::from_millis(200), &later()).expect_err("it is in use");
        assert!(matches!(&error, MigrateError::Busy(user) if user.application == "report"), "{error}");
        assert!(error.to_string().contains("`report` from 127.0.0.1"), "{error}");
        assert_eq!(current(&mut migrator).expect("it reads"), SCHEMA_VERSION);
        // While another one waits, whoever comes later is served within its short wait.
        let migrating = std::thread::spawn(move || up_by(&mut migrator, Duration::from_secs(60), &later()));
        others.batch_execute("SET statement_timeout = '20s'").expect("a setting");
        for _ in 0..20 {
            others.query("SELECT count(*) FROM orbit_workers", &[]).expect("it is let through");
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(!migrating.is_finished(), "the reader is there still");
        reader.batch_execute("SELECT * FROM orbit_workers; COMMIT").expect("it goes on");
        let applied = migrating.join().expect("no panic").expect("nobody is in the way any more");
        assert_eq!(applied.len(), 1);
        assert_eq!(current(&mut others).expect("it reads"), SCHEMA_VERSION + 1);
    }
}
