//! A real PostgreSQL, as what a script is played on.

pub mod relay;
pub mod session;
mod sql;

use orbit_sim::postgres::script::{Op, Seen, Server, Table};
use orbit_support::{Database, Postgres};
use postgres::{Client, SimpleQueryMessage};
use rustix::process::{Pid, Signal, kill_process};
use session::Session;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How patient it is at first.
const PATIENCE: Duration = Duration::from_secs(10);

/// The tables of the language.
const TABLES: &str = "CREATE TABLE a (id int PRIMARY KEY, v int NOT NULL, at_ms bigint NOT NULL DEFAULT 0);
    CREATE TABLE b (id int PRIMARY KEY, v int NOT NULL, at_ms bigint NOT NULL DEFAULT 0);";

/// A database of a server that is thrown away, and sessions on it.
pub struct RealServer<'a> {
    server: &'a Postgres,
    database: Database,
    admin: Client,
    sessions: BTreeMap<u32, Session>,
    /// What has not come about by then does not.
    pub patience: Duration,
}

impl<'a> RealServer<'a> {
    /// A new database with empty tables.
    pub fn new(server: &'a Postgres) -> RealServer<'a> {
        let database = server.fresh();
        let mut admin = database.connect();
        admin.batch_execute(TABLES).expect("tables can be made");
        RealServer { server, database, admin, sessions: BTreeMap::new(), patience: PATIENCE }
    }

    fn session(&mut self, session: u32) -> &mut Session {
        let database = &self.database;
        self.sessions.entry(session).or_insert_with(|| Session::open(database))
    }

    /// Empty tables, and sessions as if they were new.
    pub fn begin_again(&mut self) {
        for session in self.sessions.values_mut() {
            signal(session, Signal::CONT);
        }
        // What still runs is ended; what is whole is kept, since opening a session is what costs.
        self.sessions.retain(|_, session| session.is_idle() && session.cleans_up());
        let others = "SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity
                      WHERE datname = current_database() AND pid <> pg_backend_pid() AND NOT pid = ANY($1)";
        let kept: Vec<i32> = self.sessions.values().map(Session::pid).collect();
        self.admin.execute(others, &[&kept]).expect("sessions can be ended");
        self.admin.batch_execute("DELETE FROM a; DELETE FROM b").expect("tables can be emptied");
    }

    fn blockers(&mut self, session: u32) -> Vec<u32> {
        let pid = self.sessions[&session].pid();
        let row = self.admin.query_one("SELECT pg_blocking_pids($1)", &[&pid]).expect("it can be asked");
        let pids: Vec<i32> = row.get(0);
        let mut on: Vec<u32> =
            self.sessions.iter().filter(|(_, s)| pids.contains(&s.pid())).map(|(number, _)| *number).collect();
        on.sort_unstable();
        on
    }
}

fn signal(session: &Session, signal: Signal) {
    let pid = Pid::from_raw(session.pid()).expect("a backend has a number");
    // A backend that is gone needs none.
    let _ = kill_process(pid, signal);
}

impl Server for RealServer<'_> {
    fn send(&mut self, session: u32, op: &Op) {
        self.session(session).send(op);
    }

    fn look(&mut self, session: u32, wanted: &Seen) -> Seen {
        let begun = Instant::now();
        loop {
            let seen = match self.session(session).ended() {
                Some(seen) => return seen,
                None => Seen::Waits(self.blockers(session)),
            };
            if seen == *wanted || begun.elapsed() > self.patience {
                return seen;
            }
            std::thread::sleep(Duration::from_micros(300));
        }
    }

    fn terminate(&mut self, session: u32) {
        let pid = self.session(session).pid();
        self.admin.execute("SELECT pg_terminate_backend($1)", &[&pid]).expect("a session can be ended");
    }

    fn vanish(&mut self, session: u32) {
        self.session(session).cut();
    }

    fn freeze(&mut self, session: u32) {
        signal(self.session(session), Signal::STOP);
    }

    fn thaw(&mut self, session: u32) {
        signal(self.session(session), Signal::CONT);
    }

    fn is_gone(&mut self, session: u32) -> bool {
        let pid = self.session(session).pid();
        let begun = Instant::now();
        loop {
            let there = self.admin.query("SELECT 1 FROM pg_stat_activity WHERE pid = $1", &[&pid]).expect("it reads");
            if there.is_empty() {
                return true;
            }
            if begun.elapsed() > self.patience {
                return false;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn pause(&mut self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    fn crash(&mut self) {
        self.server.restart("immediate");
        self.admin = self.database.connect();
    }

    fn holds(&mut self, table: Table) -> Vec<(i32, i32)> {
        let rows = self.admin.simple_query(&format!("SELECT id, v FROM {} ORDER BY id", table.name()));
        sql::rows(&rows.expect("it reads"))
    }
}

impl Drop for RealServer<'_> {
    fn drop(&mut self) {
        // A backend that stands still would keep its server from stopping.
        for session in self.sessions.values() {
            signal(session, Signal::CONT);
        }
    }
}

/// The rows of an answer, without its tag.
type Messages = [SimpleQueryMessage];
