//! A streaming replica of a throw-away PostgreSQL, and its promotion.

use crate::postgres::{Owner, PATIENCE, Postgres, free_port, programs};
use std::fs;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A server that takes in what its primary writes, until it is promoted. Stopped and removed when dropped.
#[derive(Debug)]
pub struct Replica {
    pub server: Postgres,
}

/// The name by which a primary knows it, in `synchronous_standby_names`.
const NAME: &str = "replica";

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "no {what} within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Replica {
    /// A replica of this server, on a port of its own. It has what was written so far.
    pub fn of(primary: &Postgres) -> Replica {
        let programs = programs();
        let folder = tempfile::Builder::new().prefix("orbit-replica-").tempdir().expect("a temporary folder");
        let owner = Owner::of_servers();
        owner.give(folder.path());
        let data: PathBuf = folder.path().join("data");
        let mut copy = owner.command(&programs.join("pg_basebackup"));
        let from = format!("host=127.0.0.1 port={} user=postgres application_name={NAME}", primary.port());
        copy.args(["-d", &from, "-X", "stream", "-c", "fast", "-R", "--no-sync"]).arg("-D").arg(&data);
        let copied = copy.stdin(Stdio::null()).output().expect("pg_basebackup can be run");
        assert!(copied.status.success(), "pg_basebackup failed: {}", String::from_utf8_lossy(&copied.stderr));
        let port = free_port();
        let file = data.join("postgresql.conf");
        let own = fs::read_to_string(&file).expect("it was copied");
        fs::write(&file, format!("{own}port = {port}\n")).expect("the configuration can be written");
        let replica = Replica { server: Postgres::watched(programs, folder, port) };
        until("streaming replica", || replica.receives());
        replica
    }

    fn receives(&self) -> bool {
        let mut client = self.server.database("postgres").connect();
        let streams = "SELECT EXISTS (SELECT 1 FROM pg_stat_wal_receiver WHERE status = 'streaming')";
        client.query_one(streams, &[]).expect("it answers").get(0)
    }

    /// Commits of the primary wait for this replica from now on.
    pub fn is_waited_for(&self, primary: &Postgres) {
        let mut client = primary.database("postgres").connect();
        let set = format!("ALTER SYSTEM SET synchronous_standby_names = '{NAME}'");
        client.batch_execute(&set).expect("it can be set");
        client.batch_execute("SELECT pg_reload_conf()").expect("it can be loaded");
        let waits = "SELECT EXISTS (SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync')";
        until("synchronous replica", || client.query_one(waits, &[]).expect("it answers").get(0));
    }

    /// Waits until it has everything that the primary has written by now.
    pub fn catches_up(&self, primary: &Postgres) {
        let mut client = primary.database("postgres").connect();
        let now: String = client.query_one("SELECT pg_current_wal_lsn()::text", &[]).expect("it answers").get(0);
        let mut own = self.server.database("postgres").connect();
        let has = format!("SELECT coalesce(pg_last_wal_replay_lsn() >= '{now}'::pg_lsn, false)");
        until("replica that has everything", || own.query_one(&has, &[]).expect("it answers").get(0));
    }

    /// Takes nothing in any more: what the primary writes from now on, it lacks.
    pub fn falls_behind(&self) {
        let mut client = self.server.database("postgres").connect();
        client.batch_execute("ALTER SYSTEM SET primary_conninfo = ''").expect("it can be set");
        client.batch_execute("SELECT pg_reload_conf()").expect("it can be loaded");
        let receives = "SELECT EXISTS (SELECT 1 FROM pg_stat_wal_receiver)";
        until("end of the stream", || !client.query_one(receives, &[]).expect("it answers").get::<_, bool>(0));
    }

    /// Becomes a primary, on a timeline of its own.
    pub fn promoted(&self) {
        self.server.promote();
        let mut client = self.server.database("postgres").connect();
        until("promotion", || {
            !client.query_one("SELECT pg_is_in_recovery()", &[]).expect("it answers").get::<_, bool>(0)
        });
    }
}
