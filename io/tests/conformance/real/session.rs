//! A session: a client on a thread of its own, which blocks while its statement waits.

use super::relay::Relay;
use super::sql;
use orbit_sim::postgres::script::{Op, Seen};
use orbit_support::Database;
use postgres::{Client, NoTls};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::Duration;

/// See the module's documentation.
pub struct Session {
    pid: i32,
    relay: Relay,
    work: Sender<Work>,
    ended: Receiver<Seen>,
    busy: bool,
    last: Option<Seen>,
}

enum Work {
    Op(Op),
    /// Back to what a new session is; whether that went well.
    CleanUp,
}

/// Index scans visit rows in the order of their ids, which is the order in which the model locks them.
const AS_NEW: &str = "RESET ALL; SELECT pg_advisory_unlock_all();
                      SET enable_seqscan = off; SET enable_bitmapscan = off";

impl Session {
    /// Opens one.
    pub fn open(database: &Database) -> Session {
        let relay = Relay::to(database.port);
        let through = Database { name: database.name.clone(), port: relay.port() };
        let mut client = Client::connect(&through.url(), NoTls).expect("the database takes connections");
        client.batch_execute(AS_NEW).expect("settings can be set");
        let pid = client.query_one("SELECT pg_backend_pid()", &[]).expect("it answers").get(0);
        let (work, todo) = mpsc::channel();
        let (tell, ended) = mpsc::channel();
        thread::spawn(move || serve(client, &todo, &tell));
        Session { pid, relay, work, ended, busy: false, last: None }
    }

    pub fn pid(&self) -> i32 {
        self.pid
    }

    pub fn send(&mut self, op: &Op) {
        assert!(!self.busy, "a client sends one command at a time");
        self.last = None;
        self.busy = true;
        self.work.send(Work::Op(op.clone())).expect("its thread waits for work");
    }

    /// What its last command gave, once it has ended.
    pub fn ended(&mut self) -> Option<Seen> {
        if self.busy
            && let Ok(seen) = self.ended.try_recv()
        {
            self.busy = false;
            self.last = Some(seen);
        }
        if self.busy { None } else { self.last.clone() }
    }

    pub fn is_idle(&mut self) -> bool {
        self.ended();
        !self.busy
    }

    /// Makes it as if it were new; whether it could.
    pub fn cleans_up(&mut self) -> bool {
        self.work.send(Work::CleanUp).expect("its thread waits for work");
        let seen = self.ended.recv_timeout(Duration::from_secs(10));
        matches!(seen, Ok(Seen::Ended(_)))
    }

    /// Its client is gone.
    pub fn cut(&self) {
        self.relay.cut();
    }
}

fn serve(mut client: Client, todo: &Receiver<Work>, tell: &Sender<Seen>) {
    while let Ok(work) = todo.recv() {
        let seen = match work {
            Work::Op(op) => sql::seen(&op, client.simple_query(&sql::text(&op))),
            Work::CleanUp => {
                let clean = client.batch_execute("ROLLBACK").and_then(|()| client.batch_execute(AS_NEW));
                sql::seen(&Op::Rollback, clean.map(|()| Vec::new()))
            }
        };
        if tell.send(seen).is_err() {
            return;
        }
    }
}
