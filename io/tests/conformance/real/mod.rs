//! A real PostgreSQL, as what a script is played on.

pub mod arena;
pub mod client;
pub mod rest;
pub mod sql;

use client::{Client, await_words};
use orbit_sim::postgres::script::{Op, Seen, Server, Table};
use orbit_support::{Database, Postgres};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// What has not come about by then does not.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The tables of the language.
pub const TABLES: &str = "CREATE TABLE a (id int PRIMARY KEY, v int NOT NULL, at_ms bigint NOT NULL DEFAULT 0);
    CREATE TABLE b (id int PRIMARY KEY, v int NOT NULL, at_ms bigint NOT NULL DEFAULT 0);";

/// Index scans visit rows in the order of their ids, which is the order in which the model locks them.
pub const IN_ORDER: &str = "SET enable_seqscan = off; SET enable_bitmapscan = off;";

/// A database of a server that is thrown away, and sessions on it.
pub struct RealServer<'a> {
    server: &'a Postgres,
    database: Database,
    admin: Client,
    sessions: BTreeMap<u32, Session>,
}

/// A session, and what it was last told.
pub struct Session {
    pub client: Client,
    pub op: Option<Op>,
}

impl Session {
    /// How its last command stands, if it has ended.
    fn ended(&mut self) -> Option<Seen> {
        self.client.listen();
        if self.client.is_closed() {
            return Some(Seen::Closed);
        }
        let op = self.op.as_ref().filter(|_| !self.client.is_busy())?;
        Some(sql::seen(op, self.client.answer()))
    }
}

impl<'a> RealServer<'a> {
    /// A new database with empty tables.
    pub fn new(server: &'a Postgres) -> RealServer<'a> {
        let database = server.fresh();
        let mut admin = Client::open(&database);
        admin.query(TABLES);
        RealServer { server, database, admin, sessions: BTreeMap::new() }
    }

    fn session(&mut self, session: u32) -> &mut Session {
        let database = &self.database;
        self.sessions.entry(session).or_insert_with(|| {
            let mut client = Client::open(database);
            client.query(IN_ORDER);
            Session { client, op: None }
        })
    }

    fn blockers(&mut self, session: u32) -> Vec<u32> {
        let pid = self.sessions[&session].client.pid();
        let rows = self.admin.query(&format!("SELECT unnest(pg_blocking_pids({pid}))"));
        let pids: Vec<i32> = rows.iter().map(|row| sql::number(&row[0])).collect();
        let mut on: Vec<u32> =
            self.sessions.iter().filter(|(_, s)| pids.contains(&s.client.pid())).map(|(number, _)| *number).collect();
        on.sort_unstable();
        on
    }

    fn signal(&mut self, session: u32, signal: Signal) {
        signal_to(&self.session(session).client, signal);
    }
}

fn signal_to(client: &Client, signal: Signal) {
    let pid = Pid::from_raw(client.pid()).expect("a backend has a number");
    // A backend that is gone needs none.
    let _ = kill_process(pid, signal);
}

impl Server for RealServer<'_> {
    fn send(&mut self, session: u32, op: &Op) {
        let session = self.session(session);
        session.op = Some(op.clone());
        session.client.send(&sql::text(op));
    }

    fn look(&mut self, session: u32, wanted: &Seen) -> Seen {
        let begun = Instant::now();
        loop {
            let seen = match self.session(session).ended() {
                Some(seen) => return seen,
                None => Seen::Waits(self.blockers(session)),
            };
            if seen == *wanted || begun.elapsed() > PATIENCE {
                return seen;
            }
            await_words([&self.session(session).client], Some(Duration::from_millis(1)));
        }
    }

    fn terminate(&mut self, session: u32) {
        let pid = self.session(session).client.pid();
        self.admin.query(&format!("SELECT pg_terminate_backend({pid})"));
    }

    fn vanish(&mut self, session: u32) {
        self.session(session).client.vanish();
    }

    fn freeze(&mut self, session: u32) {
        self.signal(session, Signal::STOP);
    }

    fn thaw(&mut self, session: u32) {
        self.signal(session, Signal::CONT);
    }

    fn is_gone(&mut self, session: u32) -> bool {
        let pid = self.session(session).client.pid();
        let begun = Instant::now();
        while !self.admin.query(&format!("SELECT 1 FROM pg_stat_activity WHERE pid = {pid}")).is_empty() {
            if begun.elapsed() > PATIENCE {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        true
    }

    fn pause(&mut self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    fn crash(&mut self) {
        self.server.restart("immediate");
        self.admin = Client::open(&self.database);
    }

    fn holds(&mut self, table: Table) -> Vec<(i32, i32)> {
        sql::pairs(&self.admin.query(&format!("SELECT id, v FROM {} ORDER BY id", table.name())))
    }
}

impl Drop for RealServer<'_> {
    fn drop(&mut self) {
        // A backend that stands still would keep its server from stopping.
        for session in self.sessions.values() {
            signal_to(&session.client, Signal::CONT);
        }
    }
}
