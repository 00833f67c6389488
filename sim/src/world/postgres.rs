//! A server's connections to PostgreSQL: each message of each transaction by itself, on its way and back.
//!
//! A server process has one connection of each kind, and a pool for requests. What a message does, and for how long it
//! waits, is the model's business ([`crate::postgres`]); here it is sent, arrives, is answered, or gets lost with its
//! connection. A backend lives on after its client: what reached it is done, and committed, by nobody's leave.

use super::World;
use super::clock::Time;
use super::disk::Stage;
use super::event::{Event, ProcessEvent};
use super::server::Pid;
use crate::check::{Committed, Violation};
use crate::coverage::Mark;
use crate::plan::{DatabasePlan, ServerPlan};
use crate::postgres::store::whole::rows;
use crate::postgres::store::{Done, Orbit, Pace, Program};
use crate::postgres::{Answer, Code, Command, Engine, SessionId, Settings, Severity, SqlError, Writable};
use crate::rng::Ratio;
use crate::store::{Change, Commit, ModelStore};
use orbit_core::mutant::{Mutant, Mutants};
use orbit_core::node::{CallId, Connection, Input};
use orbit_core::store::executor::{Ask, Executor, Frame};
use orbit_core::store::outcome::{self, Cause, Fact, Phase, Reply};
use orbit_core::store::statement::{Rows, Statement};
use orbit_core::store::transaction::{CampaignVerdict, Transaction, Verdict};
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

fn settings(connection: Connection, plan: &DatabasePlan, server: &ServerPlan) -> Settings {
    let election_idle = server.check_ms * 8;
    Settings {
        statement_timeout: plan.statement_timeout_ms,
        lock_timeout: plan.lock_timeout_ms,
        idle_in_transaction_timeout: plan.idle_in_transaction_ms,
        idle_session_timeout: if connection == Connection::Election { election_idle } else { 0 },
        deadlock_timeout: 1_000,
        client_check_interval: plan.client_check_ms,
    }
}

impl World {
    fn link_chance(&mut self, ratio: Ratio) -> bool {
        let hit = self.dice.database.chance(ratio);
        hit && !self.healed
    }

    fn link_latency(&mut self) -> u64 {
        self.dice.database.between(self.plan.database.latency_us)
    }

    pub(super) fn database(&mut self) -> &mut Database {
        self.postgres.as_deref_mut().expect("a world with PostgreSQL")
    }

    /// A node sends a call.
    pub(super) fn enqueue(&mut self, pid: Pid, id: CallId, connection: Connection, transaction: Transaction) {
        let lanes = &mut self.process(pid).lanes;
        lanes.queues.entry(connection).or_default().push_back((id, transaction));
        self.start_next(pid, connection);
    }

    fn start_next(&mut self, pid: Pid, connection: Connection) {
        let width = if connection == Connection::Requests { 2 } else { 1 };
        for index in 0..width {
            let key = (connection, index);
            let lanes = &mut self.process(pid).lanes;
            let lane = lanes.lanes.entry(key).or_default();
            if lane.current.is_some() {
                continue;
            }
            let Some((call, transaction)) = lanes.queues.get_mut(&connection).and_then(VecDeque::pop_front) else {
                return;
            };
            let groups = match &transaction {
                Transaction::Append(append) => append.groups.iter().map(|g| g.id).collect(),
                _ => Vec::new(),
            };
            let name = transaction.name();
            lane.current = Some(Current {
                call,
                executor: Executor::new(transaction),
                name,
                frame: Frame::Auto,
                phase: Phase::NotSent,
                todo: VecDeque::new(),
                got: Vec::new(),
                then: None,
                groups,
            });
            let connected = lane.link.is_some();
            if let Some(call) = self.process(pid).calls.under_way.get_mut(&call) {
                call.stage = Stage::Sent;
            }
            if connected {
                self.go_on(pid, key);
            } else {
                self.connect(pid, key);
            }
        }
    }

    fn connect(&mut self, pid: Pid, key: (Connection, u8)) {
        let now = self.now;
        let database = self.database();
        database.last_link += 1;
        let id = LinkId(database.last_link);
        let link = Link { pid, connection: key.0, session: None, cut: false, last_there: now, last_back: now };
        database.links.insert(id, link);
        self.lane(pid, key).link = Some(id);
        self.send_there(id, Message::Connect);
    }

    fn lane(&mut self, pid: Pid, key: (Connection, u8)) -> &mut Lane {
        self.process(pid).lanes.lanes.get_mut(&key).expect("a lane that was used")
    }

    fn current(&mut self, pid: Pid, key: (Connection, u8)) -> &mut Current {
        self.lane(pid, key).current.as_mut().expect("a call is under way")
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
        let latency = self.link_latency();
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

    /// The transaction's next step.
    fn go_on(&mut self, pid: Pid, key: (Connection, u8)) {
        let current = self.current(pid, key);
        match current.executor.ask() {
            Ask::Rollback(verdict) => {
                current.then = Some(Reply::Done(verdict));
                current.todo.push_back(Command::Rollback);
            }
            Ask::Send(statements, frame) => {
                current.frame = frame;
                if matches!(frame, Frame::Begin | Frame::Whole) {
                    current.todo.push_back(Command::Begin);
                }
                current.todo.extend(statements.into_iter().map(|s: Statement| Command::Run(Program::new(s))));
                if matches!(frame, Frame::Commit | Frame::Whole) {
                    current.todo.push_back(Command::Commit);
                }
            }
        }
        self.send_next(pid, key);
    }

    fn send_next(&mut self, pid: Pid, key: (Connection, u8)) {
        let current = self.current(pid, key);
        let command = current.todo.pop_front().expect("there is something to send");
        current.phase = match (&command, current.frame) {
            (Command::Commit, _) | (Command::Run(_), Frame::Auto) => Phase::CommitSent,
            _ => Phase::Open,
        };
        let name = current.name;
        let link = self.lane(pid, key).link.expect("it is connected");
        let (cut, lost) = (self.link_chance(self.plan.database.cut), self.dice.database.chance(Ratio::new(1, 2)));
        if !(cut && lost) {
            self.send_there(link, Message::Command(Box::new(command), name));
        }
        if cut {
            self.cut(link);
        }
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
        let (plan, server) = (self.plan.database.clone(), self.plan.server.clone());
        let database = self.database();
        let Some(link) = database.links.get_mut(&id) else { return };
        match message {
            Message::Connect => {
                let connected = if now < database.refuses_until {
                    Err(SqlError::fatal(Code::TooManyConnections))
                } else {
                    database.engine.connect(settings(link.connection, &plan, &server))
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
            if self.link_chance(self.plan.database.cut_answer) {
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
            if let Some(pid) = pid
                && self.server_chance(self.plan.faults.crash_after_commit)
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

    /// Something comes back to a server process.
    pub(super) fn database_heard(&mut self, pid: Pid, id: LinkId, heard: Heard) {
        let lanes = &self.process(pid).lanes.lanes;
        let Some(key) = lanes.iter().find(|(_, l)| l.link == Some(id)).map(|(key, _)| *key) else {
            return; // written off
        };
        if self.lane(pid, key).current.is_none() {
            // It ended while nothing was asked of it.
            self.lane(pid, key).link = None;
            return;
        }
        match heard {
            Heard::Connected => self.go_on(pid, key),
            Heard::Refused(error) => self.broken(pid, key, error),
            Heard::Rows(rows) => {
                self.current(pid, key).got.push(rows);
                self.answered(pid, key);
            }
            Heard::Done => self.answered(pid, key),
            Heard::Error(error) if error.severity == Severity::Fatal => self.broken(pid, key, error),
            Heard::Error(error) => {
                let current = self.current(pid, key);
                let reply = tell(current, error);
                current.todo.clear();
                current.got.clear();
                if current.frame == Frame::Auto {
                    return match reply {
                        Some(reply) => self.finish(pid, key, reply),
                        // An append goes on in halves.
                        None => self.go_on(pid, key),
                    };
                }
                current.then = Some(reply.expect("an error ends a transaction of several statements"));
                current.todo.push_back(Command::Rollback);
                self.send_next(pid, key);
            }
        }
    }

    fn answered(&mut self, pid: Pid, key: (Connection, u8)) {
        let current = self.current(pid, key);
        if !current.todo.is_empty() {
            return self.send_next(pid, key);
        }
        if let Some(reply) = current.then.take() {
            return self.finish(pid, key, reply);
        }
        let got = std::mem::take(&mut current.got);
        match current.executor.tell(Ok(got)) {
            Some(reply) => self.finish(pid, key, reply),
            None => self.go_on(pid, key),
        }
    }

    /// The connection is of no use any more.
    fn broken(&mut self, pid: Pid, key: (Connection, u8), error: SqlError) {
        let planted = self.planted.planted(Mutant::FatalTakenAsFailed);
        let lane = self.lane(pid, key);
        let link = lane.link.take();
        let current = lane.current.as_mut().expect("a call is under way");
        let reply = match current.then.take() {
            Some(reply) => reply,
            None => {
                let error = if planted { SqlError { severity: Severity::Error, ..error } } else { error };
                tell(current, error).expect("the end of a connection ends the transaction")
            }
        };
        if let Some(link) = link {
            self.send_there(link, Message::Gone);
        }
        self.finish(pid, key, reply);
    }

    fn finish(&mut self, pid: Pid, key: (Connection, u8), reply: Reply<Verdict>) {
        let current = self.lane(pid, key).current.take().expect("a call is under way");
        self.process(pid).calls.under_way.remove(&current.call);
        self.note_reply(pid, &reply, &current.groups);
        self.start_next(pid, key.0);
        self.give(pid, Input::Store { call: current.call, reply });
    }

    fn note_reply(&mut self, pid: Pid, reply: &Reply<Verdict>, groups: &[orbit_core::id::GroupId]) {
        self.mark_reply(reply);
        if let Reply::Done(Verdict::Campaign(CampaignVerdict::Held { .. })) = reply {
            // Somebody's session is still there.
            self.marks.hit(Mark::LockHeld);
            self.process(pid).excuses.database = true;
        }
        if matches!(reply, Reply::Done(_)) {
            return;
        }
        self.process(pid).excuses.database = true;
        match reply {
            Reply::Failed(_) => self.marks.hit(Mark::CallFailed),
            _ => self.disk.note_untold(groups),
        }
        let checked = self.checks.pace.on_failure(self.now);
        self.holds(checked);
    }

    /// A node gives a call's connection up.
    pub(super) fn write_off(&mut self, pid: Pid, call: CallId, connection: Connection) {
        self.marks.hit(Mark::WrittenOff);
        self.process(pid).calls.under_way.remove(&call);
        let lanes = &mut self.process(pid).lanes;
        if let Some(queue) = lanes.queues.get_mut(&connection) {
            queue.retain(|(id, _)| *id != call);
        }
        let found = lanes.lanes.iter_mut().find(|(_, l)| l.current.as_ref().is_some_and(|c| c.call == call));
        let Some((_, lane)) = found else { return };
        let (link, current) = (lane.link.take(), lane.current.take().expect("found by it"));
        self.disk.note_untold(&current.groups);
        self.process(pid).excuses.database = true;
        if let Some(link) = link {
            self.send_there(link, Message::Gone);
        }
        self.start_next(pid, connection);
    }

    /// A process is gone: what it has sent still arrives, and then the end of each of its connections, at once or long
    /// after.
    pub(super) fn connections_end(&mut self, lanes: Lanes) {
        if self.postgres.is_none() {
            return;
        }
        for link in lanes.lanes.into_values().filter_map(|lane| lane.link) {
            let silent = self.link_chance(self.plan.database.silent_death);
            let ms = self.dice.database.between([500, 6_000]);
            if let (true, Some(link)) = (silent, self.database().links.get_mut(&link)) {
                link.last_there = link.last_there.plus_ms(ms);
            }
            self.send_there(link, Message::Gone);
        }
    }

    /// Some session, if there is one: mostly one that does something.
    fn some_session(&mut self) -> Option<SessionId> {
        let engine = &self.database().engine;
        let all: Vec<SessionId> = engine.sessions().collect();
        let busy: Vec<SessionId> = all.iter().copied().filter(|s| engine.is_busy(*s)).collect();
        let mostly = self.dice.faults.chance(Ratio::new(3, 4));
        let from = if mostly && !busy.is_empty() { busy } else { all };
        (!from.is_empty()).then(|| *self.dice.faults.pick(&from))
    }

    /// A session is killed.
    pub(super) fn kill_session(&mut self) {
        let Some(session) = self.some_session() else { return };
        self.trace.record(self.now, "session killed", &session);
        self.marks.hit(Mark::SessionKilled);
        self.catch_up();
        self.database().engine.terminate(session);
        self.settle();
    }

    /// The session that holds the election lock of a process is killed.
    pub(super) fn kill_election(&mut self, pid: Pid) {
        let links = &self.database().links;
        let election = links.values().filter(|l| l.pid == pid && l.connection == Connection::Election);
        let sessions: Vec<SessionId> = election.filter_map(|l| l.session).collect();
        self.catch_up();
        for session in sessions {
            self.database().engine.terminate(session);
        }
        self.settle();
    }

    /// A backend stands still.
    pub(super) fn freeze_session(&mut self, ms: u64) {
        let Some(session) = self.some_session() else { return };
        self.trace.record(self.now, "session frozen", &(session, ms));
        self.marks.hit(Mark::SessionFrozen);
        self.database().engine.freeze(session);
        let thaw = self.now.plus_ms(ms);
        self.at(thaw, Event::Thaw(session));
    }

    /// Every backend stands still.
    pub(super) fn freeze_all(&mut self, ms: u64) {
        let all: Vec<SessionId> = self.database().engine.sessions().collect();
        let thaw = self.now.plus_ms(ms);
        for session in all {
            self.database().engine.freeze(session);
            self.at(thaw, Event::Thaw(session));
        }
    }

    pub(super) fn thaw(&mut self, session: SessionId) {
        self.catch_up();
        self.database().engine.thaw(session);
        self.settle();
    }

    /// The database goes down, by a crash or not, and comes back.
    pub(super) fn restart_database(&mut self, crash: bool, ms: u64) {
        self.trace.record(self.now, "database restarts", &(crash, ms));
        self.marks.hit(if crash { Mark::DatabaseCrash } else { Mark::DatabaseRestart });
        self.catch_up();
        let database = self.database();
        if crash {
            database.engine.crash();
        } else {
            database.engine.shut_down();
        }
        self.settle();
        let up = self.now.plus_ms(ms);
        self.at(up, Event::DatabaseUp);
    }

    pub(super) fn database_up(&mut self) {
        self.database().engine.open();
    }

    /// Every fault of the database ends.
    pub(super) fn heal_database(&mut self) {
        let now = self.now;
        self.database().refuses_until = now;
        self.database().engine.set_writable(Writable::Yes);
        self.database().engine.domain.pace = Pace::NONE;
        self.database_up();
        let all: Vec<SessionId> = self.database().engine.sessions().collect();
        for session in all {
            self.thaw(session);
        }
    }
}

/// The facts of an error, and what `core` makes of them.
fn tell(current: &mut Current, error: SqlError) -> Option<Reply<Verdict>> {
    let severity = error.code.map(|_| match error.severity {
        Severity::Error => outcome::Severity::Error,
        Severity::Fatal => outcome::Severity::Fatal,
    });
    let cause = error.code.map_or(Cause::Closed, |code| Cause::SqlState(code.as_str().into()));
    let fact = Fact { phase: current.phase, severity, cause, message: format!("injected: {error}") };
    current.executor.tell(Err(fact))
}
