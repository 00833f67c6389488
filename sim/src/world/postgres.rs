//! A server's connections to PostgreSQL: each message of each transaction by itself, on its way and back.
//!
//! A server process has one connection of each kind, and a pool for requests. What a message does, and for how long it
//! waits, is the model's business ([`crate::postgres`]); here it is sent, arrives, is answered, or gets lost with its
//! connection. A backend lives on after its client: what reached it is done, and committed, by nobody's leave.

mod faults;
mod lanes;

use super::World;
use super::clock::Time;
use super::event::{Event, ProcessEvent};
use super::server::Pid;
use crate::check::{Committed, Violation};
use crate::coverage::Mark;
use crate::fault::{FaultKind, Moment};
use crate::plan::Plan;
use crate::postgres::store::whole::rows;
use crate::postgres::store::{Done, Orbit, Program};
use crate::postgres::{Answer, Code, Command, Engine, SessionId, Settings, SqlError};
use crate::rng::Ratio;
use crate::store::{Change, Commit, ModelStore};
use orbit_core::node::{CallId, Connection};
use orbit_core::store::executor::{Executor, Frame};
use orbit_core::store::outcome::{Phase, Reply};
use orbit_core::store::statement::Rows;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_core::time::ClusterMs;
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};

/// The number of a connection, whoever had the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct LinkId(u64);

/// The server, and the ways to it.
#[derive(Debug)]
pub struct Database {
    pub engine: Engine<Orbit>,
    links: BTreeMap<LinkId, Link>,
    of_session: BTreeMap<SessionId, LinkId>,
    last_link: u64,
    /// When the engine is to be looked at next.
    looked_for: Option<Time>,
    pub refuses_until: Time,
    /// What each session runs, for the names of commits.
    runs: BTreeMap<SessionId, &'static str>,
}

/// A connection, as the way from one end to the other.
#[derive(Debug)]
struct Link {
    pid: Pid,
    connection: Connection,
    session: Option<SessionId>,
    /// Nothing more comes back on it.
    cut: bool,
    /// Messages arrive in the order in which they were sent, in both directions.
    last_there: Time,
    last_back: Time,
}

/// Something that reaches the database.
#[derive(Clone, Debug)]
pub enum Message {
    Connect,
    Command(Box<Command<Program>>, &'static str),
    /// The other end is gone.
    Gone,
}

/// Something that reaches a server process.
#[derive(Clone, Debug, Serialize)]
pub enum Heard {
    Connected,
    Refused(SqlError),
    Rows(Rows),
    Done,
    Error(SqlError),
}

/// The connections of one process, and what they do.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: BTreeMap<(Connection, u8), Lane>,
    queues: BTreeMap<Connection, VecDeque<(CallId, Transaction)>>,
}

#[derive(Debug, Default)]
struct Lane {
    link: Option<LinkId>,
    current: Option<Current>,
}

/// A call under way.
#[derive(Debug)]
struct Current {
    call: CallId,
    executor: Executor,
    name: &'static str,
    frame: Frame,
    phase: Phase,
    todo: VecDeque<Command<Program>>,
    got: Vec<Rows>,
    /// The reply, once the transaction is rolled back.
    then: Option<Reply<Verdict>>,
    /// Groups of the append, for the marks.
    groups: Vec<orbit_core::id::GroupId>,
}

impl Database {
    /// What is committed.
    pub fn store(&self) -> &ModelStore {
        &self.engine.domain.store
    }

    pub fn new(engine: Engine<Orbit>) -> Database {
        Database {
            engine: engine.by_hand(),
            links: BTreeMap::new(),
            of_session: BTreeMap::new(),
            last_link: 0,
            looked_for: None,
            refuses_until: Time(0),
            runs: BTreeMap::new(),
        }
    }
}

fn settings(connection: Connection, plan: &Plan) -> Settings {
    let election_idle = match &plan.cluster {
        None => plan.server.check_ms * 8,
        // A lease is nothing that a session has.
        Some(cluster) if cluster.lease_ms.is_some() => 0,
        Some(cluster) => cluster.session_timeout_ms,
    };
    let slice = plan.cluster.as_ref().map_or(0, |cluster| cluster.slice_ms);
    let plan = &plan.database;
    Settings {
        statement_timeout: match connection {
            // A place in line is not cut short.
            Connection::Election => plan.statement_timeout_ms.max(slice + 2_000),
            _ => plan.statement_timeout_ms,
        },
        lock_timeout: plan.lock_timeout_ms,
        idle_in_transaction_timeout: plan.idle_in_transaction_ms,
        idle_session_timeout: if connection == Connection::Election { election_idle } else { 0 },
        deadlock_timeout: 1_000,
        client_check_interval: plan.client_check_ms,
    }
}

impl World {
    fn link_chance(&mut self, kind: FaultKind, ratio: Ratio) -> bool {
        let hit = self.dice.database.chance(ratio);
        self.befalls(kind, hit)
    }

    fn link_latency(&mut self) -> u64 {
        self.dice.database.between(self.plan.database.latency_us)
    }

    pub(super) fn database(&mut self) -> &mut Database {
        self.postgres.as_deref_mut().expect("a world with PostgreSQL")
    }

    fn send_there(&mut self, id: LinkId, message: Message) {
        let latency = self.link_latency();
        let now = self.now;
        let Some(link) = self.database().links.get_mut(&id) else { return };
        link.last_there = link.last_there.max(now.plus_us(latency));
        let at = link.last_there;
        self.at(at, Event::Database(Some((id, message))));
    }

    fn send_back(&mut self, id: LinkId, heard: Heard) {
        let slow = self.link_chance(FaultKind::AnswerSlow, self.plan.database.slow_answer);
        let ms = self.dice.database.between(self.plan.database.slow_ms);
        let latency = self.link_latency() + if slow { ms * 1_000 } else { 0 };
        let now = self.now;
        let Some(link) = self.database().links.get_mut(&id) else { return };
        if link.cut {
            return;
        }
        link.last_back = link.last_back.max(now.plus_us(latency));
        let (at, pid) = (link.last_back, link.pid);
        self.at(at, Event::Process(pid, ProcessEvent::Database(id, heard)));
    }

    /// The connection breaks: neither end hears more of the other than that.
    fn cut(&mut self, id: LinkId) {
        self.marks.hit(Mark::LinkCut);
        self.send_back(id, Heard::Error(SqlError::CLOSED));
        if let Some(link) = self.database().links.get_mut(&id) {
            link.cut = true;
        }
        self.send_there(id, Message::Gone);
    }

    /// Something reaches the database, or its own time has come.
    pub(super) fn database_event(&mut self, arrived: Option<(LinkId, Message)>) {
        self.catch_up();
        if let Some((id, message)) = arrived {
            self.arrives_there(id, message);
        } else {
            self.database().looked_for = None;
        }
        self.settle();
    }

    /// Brings the model to this moment.
    fn catch_up(&mut self) {
        let (now, clock) = (self.now, self.host.read(self.now));
        let database = self.database();
        database.engine.advance(now.0);
        database.engine.set_clock_ms(clock.0);
    }

    fn arrives_there(&mut self, id: LinkId, message: Message) {
        let now = self.now;
        let plan = self.plan.clone();
        let database = self.database();
        let Some(link) = database.links.get_mut(&id) else { return };
        match message {
            Message::Connect => {
                let connected = if now < database.refuses_until {
                    Err(SqlError::fatal(Code::TooManyConnections))
                } else {
                    database.engine.connect(settings(link.connection, &plan))
                };
                match connected {
                    Ok(session) => {
                        link.session = Some(session);
                        database.of_session.insert(session, id);
                        self.send_back(id, Heard::Connected);
                    }
                    Err(error) => {
                        self.marks.hit(Mark::ConnectionRefused);
                        self.send_back(id, Heard::Refused(error));
                    }
                }
            }
            Message::Command(command, name) => {
                let session = link.session.expect("commands follow the connection");
                if !database.engine.lives(session) || !database.engine.has_client(session) {
                    return self.send_back(id, Heard::Error(SqlError::CLOSED));
                }
                database.runs.insert(session, name);
                database.engine.start(session, *command);
            }
            Message::Gone => {
                let session = link.session;
                database.links.remove(&id);
                if let Some(session) = session {
                    database.engine.vanish(session);
                }
            }
        }
    }

    /// Lets everything go on that can, one after the other, and looks at each commit by itself.
    fn settle(&mut self) {
        loop {
            self.take_commits();
            if self.failure.is_some() || !self.database().engine.step() {
                break;
            }
        }
        for (session, outcome) in self.database().engine.take_answers() {
            let Some(id) = self.database().of_session.get(&session).copied() else { continue };
            let heard = match outcome {
                Ok(Answer::Began | Answer::Committed | Answer::RolledBack | Answer::Set) => Heard::Done,
                Ok(answer) => Heard::Rows(rows(answer).expect("an answer with rows")),
                Err(error) => {
                    self.mark_error(error);
                    Heard::Error(error)
                }
            };
            // The answer is lost with the connection.
            if self.link_chance(FaultKind::AnswerCut, self.plan.database.cut_answer) {
                self.cut(id);
            } else {
                self.send_back(id, heard);
            }
        }
        self.look_again();
    }

    fn look_again(&mut self) {
        let now = self.now;
        let database = self.database();
        let Some(at) = database.engine.next_timer().map(|at| Time(at).max(now)) else { return };
        if database.looked_for.is_none_or(|planned| at < planned) {
            database.looked_for = Some(at);
            self.at(at, Event::Database(None));
        }
    }

    fn take_commits(&mut self) {
        for Done { session, changes } in std::mem::take(&mut self.database().engine.domain.done) {
            let clock = self.host.read(self.now);
            let database = self.database();
            database.engine.domain.store.set_clock(ClusterMs(clock.0));
            let zombie = !database.engine.has_client(session);
            let ended = !database.engine.lives(session);
            let name = database.runs.get(&session).copied().unwrap_or("unknown");
            let id = database.of_session.get(&session).copied();
            let link = id.and_then(|id| database.links.get(&id));
            let (pid, open) = (link.map(|l| l.pid), link.is_some_and(|l| !l.cut));
            let pid = pid.filter(|pid| self.processes.contains_key(pid));
            let commit = Commit { transaction: name, changes };
            self.trace.record(self.now, "commit", &(session, pid, &commit));
            if ended && open {
                self.marks.hit(Mark::CommittedFatal);
            } else if zombie {
                self.marks.hit(Mark::LateCommit);
            }
            self.mark_commit_on_postgres(&commit, zombie);
            if let Some(process) = pid.and_then(|pid| self.processes.get_mut(&pid)) {
                for change in &commit.changes {
                    if let Change::FenceRaised { after, .. } = change {
                        process.fence = Some(*after);
                    }
                }
            }
            let postgres = self.postgres.as_deref().expect("a world with PostgreSQL");
            let committed = Committed {
                commit: &commit,
                store: postgres.store(),
                book: &self.book,
                steady_clock: self.steady_clock,
            };
            let checked = self.checks.on_commit(&committed, &mut self.marks);
            self.holds(checked);
            if let Some(pid) = pid.filter(|_| name == "append") {
                self.moment(pid, Moment::AppendCommitted);
            }
            if let Some(pid) = pid
                && self.crashes_after_commit(true)
            {
                self.marks.hit(Mark::CrashAfterCommit);
                self.crash(pid);
            }
        }
    }

    fn mark_commit_on_postgres(&mut self, commit: &Commit, zombie: bool) {
        if zombie {
            return;
        }
        self.mark_commit(commit);
    }

    fn mark_error(&mut self, error: SqlError) {
        match error.code {
            // Rows are locked in one order everywhere (protocols, 5).
            Some(Code::Deadlock) => self.fails(Violation::safety("deadlock", "a statement was a deadlock's victim")),
            Some(Code::LockNotAvailable | Code::QueryCanceled) => self.marks.hit(Mark::StatementTimedOut),
            Some(Code::ReadOnly) => self.marks.hit(Mark::ReadOnly),
            Some(Code::DiskFull) => self.marks.hit(Mark::DiskFull),
            Some(Code::AdminShutdown) => self.marks.hit(Mark::SessionKilled),
            _ => {}
        }
    }
}
