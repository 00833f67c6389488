//! A server's connections to PostgreSQL: each message of each transaction by itself, on its way and back.
//!
//! A server process has one connection of each kind, and a pool for requests. What a message does, and for how long it
//! waits, is the model's business ([`crate::postgres`]); here it is sent, arrives, is answered, or gets lost with its
//! connection. A backend lives on after its client: what reached it is done, and committed, by nobody's leave.

mod faults;
mod lanes;
mod operator;
mod pooler;
mod promotion;

pub use operator::Changing;

use super::World;
use super::clock::Time;
use super::disk::asks_children;
use super::event::{Event, ProcessEvent};
use super::server::{Pid, Process};
use crate::check::verdict::Asked;
use crate::check::{By, Committed, Violation};
use crate::coverage::Mark;
use crate::fault::{FaultKind, Moment};
use crate::plan::Plan;
use crate::postgres::store::whole::rows;
use crate::postgres::store::{Connection as Whence, Done, ELECTION_LOCK, Orbit, Program};
use crate::postgres::{Answer, Code, Command, Engine, Outcome, SessionId, Settings, SqlError};
use crate::rng::Ratio;
use crate::store::{Change, Commit, ModelStore};
use operator::Operation;
use orbit_core::node::{CallId, Connection};
use orbit_core::store::executor::{Executor, Frame};
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome::{Phase, Reply};
use orbit_core::store::statement::Rows;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_core::time::ClusterMs;
use pooler::Pooler;
use promotion::{OldPrimary, Replica};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The number of a connection, whoever had the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct LinkId(u64);

/// The server, and the ways to it.
#[derive(Debug)]
pub struct Database {
    pub engine: Engine<Orbit>,
    /// A replica that is about to be promoted.
    replica: Option<Box<Replica>>,
    /// The primary of before the last promotion, while it answers.
    old: Option<Box<OldPrimary>>,
    links: BTreeMap<LinkId, Link>,
    of_session: BTreeMap<SessionId, LinkId>,
    last_link: u64,
    /// When the engine is to be looked at next.
    looked_for: Option<Time>,
    pub refuses_until: Time,
    /// Sessions that are no server's, and lock a row.
    strangers: BTreeSet<SessionId>,
    /// What each session runs, for the names of commits.
    runs: BTreeMap<SessionId, Sender>,
    pooler: Pooler,
    /// What the operator does.
    operation: Option<Operation>,
}

/// A connection, as the way from one end to the other.
#[derive(Debug)]
struct Link {
    pid: Pid,
    connection: Connection,
    session: Option<SessionId>,
    /// Where it leads, once it does.
    timeline: u32,
    /// It leads to the pooler, and has a session for the time of a transaction.
    pooled: bool,
    /// Nothing more comes back on it.
    cut: bool,
    /// Its last transaction has changed something, and nobody has heard of that yet.
    changed: bool,
    /// Messages arrive in the order in which they were sent, in both directions.
    last_there: Time,
    last_back: Time,
}

/// Something that reaches the database.
#[derive(Clone, Debug)]
pub enum Message {
    Connect,
    Command(Box<Command<Program>>, Sender),
    /// The other end is gone.
    Gone,
}

/// Which transaction something belongs to: its name, and the call of the process that sent it.
#[derive(Clone, Copy, Debug)]
pub struct Sender {
    name: &'static str,
    pid: Pid,
    call: CallId,
}

/// Something that reaches a server process.
#[derive(Clone, Debug, Serialize)]
pub enum Heard {
    Connected(Origin),
    Refused(SqlError),
    Rows(Rows),
    Done,
    Error(SqlError),
}

/// The connections of one process, and what they do.
#[derive(Debug, Default)]
pub struct Lanes {
    lanes: BTreeMap<(Connection, u8), Lane>,
    queues: BTreeMap<Connection, VecDeque<Waiting>>,
}

#[derive(Debug, Default)]
struct Lane {
    link: Option<LinkId>,
    /// Where the connection leads, once it is open.
    leads_to: Option<Origin>,
    current: Option<Current>,
}

/// A call that waits for a connection.
#[derive(Debug)]
struct Waiting {
    call: CallId,
    transaction: Transaction,
    origin: Option<Origin>,
    knew: u32,
}

/// A call under way.
#[derive(Debug)]
struct Current {
    call: CallId,
    /// Where it is to run.
    origin: Option<Origin>,
    /// The newest timeline that the server had heard of when it sent the call.
    knew: u32,
    executor: Executor,
    name: &'static str,
    frame: Frame,
    phase: Phase,
    todo: VecDeque<Command<Program>>,
    got: Vec<Rows>,
    /// The reply, once the transaction is rolled back.
    then: Option<Reply<Verdict>>,
    /// Groups of the append, for the marks.
    asked: Asked,
}

impl Database {
    /// The server that writes this timeline, if it is there.
    fn engine_of(&mut self, timeline: u32) -> Option<&mut Engine<Orbit>> {
        if self.engine.domain.origin.timeline == timeline {
            return Some(&mut self.engine);
        }
        let old = self.old.as_mut().map(|old| &mut old.engine);
        old.filter(|engine| engine.domain.origin.timeline == timeline)
    }

    /// Every server that is there.
    fn engines(&mut self) -> impl Iterator<Item = &mut Engine<Orbit>> {
        std::iter::once(&mut self.engine).chain(self.old.as_mut().map(|old| &mut old.engine))
    }

    /// What is committed on this timeline; none where nobody writes it any more.
    fn store_of(&self, timeline: u32) -> Option<&ModelStore> {
        if self.engine.domain.origin.timeline == timeline {
            return Some(self.store());
        }
        let old = self.old.as_ref().map(|old| &old.engine.domain);
        old.filter(|domain| domain.origin.timeline == timeline).map(|domain| &domain.store)
    }

    /// What is committed.
    pub fn store(&self) -> &ModelStore {
        &self.engine.domain.store
    }

    pub fn new(engine: Engine<Orbit>) -> Database {
        Database {
            engine: engine.by_hand(),
            replica: None,
            old: None,
            links: BTreeMap::new(),
            of_session: BTreeMap::new(),
            last_link: 0,
            looked_for: None,
            refuses_until: Time(0),
            strangers: BTreeSet::new(),
            runs: BTreeMap::new(),
            pooler: Pooler::default(),
            operation: None,
        }
    }
}

impl LinkId {
    /// Of its own, and no other lock's.
    fn key(self) -> i64 {
        i64::try_from(self.0).expect("few connections") + 1_000
    }
}

/// The same command, which comes on this connection.
fn from(command: Command<Program>, whence: Whence) -> Command<Program> {
    match command {
        Command::Run(program) => Command::Run(program.on(whence)),
        other => other,
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
        let link = self.database().links.get(&id).map(|link| (link.pid, link.connection));
        self.trace.record(self.now, "connection breaks", &link);
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
        for engine in self.database().engines() {
            engine.advance(now.0);
            engine.set_clock_ms(clock.0);
        }
    }

    fn arrives_there(&mut self, id: LinkId, message: Message) {
        let now = self.now;
        let back = matches!(message, Message::Connect) && self.is_led_back();
        let asks_for = self.database().links.get(&id).map(|link| link.connection);
        let settings = asks_for.filter(|_| matches!(message, Message::Connect)).map(|c| settings(c, &self.plan));
        let database = self.database();
        let Some(link) = database.links.get_mut(&id) else { return };
        let (timeline, session) = (link.timeline, link.session);
        match message {
            message if link.pooled => self.arrives_at_pooler(id, message),
            Message::Connect => {
                let last = database.engines().map(|engine| engine.last_session()).max().unwrap_or_default();
                let engine = match database.old.as_mut().filter(|_| back) {
                    Some(old) => &mut old.engine,
                    None => &mut database.engine,
                };
                engine.number_after(last);
                let connected = if now < database.refuses_until {
                    Err(SqlError::fatal(Code::TooManyConnections))
                } else {
                    engine.connect(settings.expect("it asks for a connection"))
                };
                let origin = engine.domain.origin;
                match connected {
                    Ok(session) => {
                        let link = database.links.get_mut(&id).expect("looked up above");
                        (link.session, link.timeline) = (Some(session), origin.timeline);
                        database.of_session.insert(session, id);
                        self.send_back(id, Heard::Connected(origin));
                    }
                    Err(error) => {
                        self.marks.hit(Mark::ConnectionRefused);
                        self.send_back(id, Heard::Refused(error));
                    }
                }
            }
            Message::Command(command, sender) => {
                let session = session.expect("commands follow the connection");
                let command = from(*command, Whence { key: id.key(), foreign: false });
                let engine = database.engine_of(timeline);
                let Some(engine) = engine.filter(|engine| engine.lives(session) && engine.has_client(session)) else {
                    return self.send_back(id, Heard::Error(SqlError::CLOSED));
                };
                engine.start(session, command);
                database.runs.insert(session, sender);
            }
            Message::Gone => {
                database.links.remove(&id);
                if let (Some(session), Some(engine)) = (session, database.engine_of(timeline)) {
                    engine.vanish(session);
                }
            }
        }
    }

    /// Lets everything go on that can, one after the other, and looks at each commit by itself.
    fn settle(&mut self) {
        loop {
            loop {
                self.take_commits();
                if self.failure.is_some() || !self.database().engines().any(Engine::step) {
                    break;
                }
            }
            let answers: Vec<_> = self.database().engines().flat_map(Engine::take_answers).collect();
            if answers.is_empty() {
                break;
            }
            // What ends here may let a pooler begin something else.
            self.answer(answers);
        }
        self.look_again();
    }

    fn answer(&mut self, answers: Vec<(SessionId, Outcome<Rows>)>) {
        for (session, outcome) in answers {
            if self.operator_hears(session, &outcome) {
                continue;
            }
            let Some(id) = self.database().of_session.get(&session).copied() else { continue };
            self.lend_again(session);
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
    }

    fn look_again(&mut self) {
        let now = self.now;
        let database = self.database();
        let next = database.engines().filter_map(|engine| engine.next_timer()).min();
        let Some(at) = next.map(|at| Time(at).max(now)) else { return };
        if database.looked_for.is_none_or(|planned| at < planned) {
            database.looked_for = Some(at);
            self.at(at, Event::Database(None));
        }
    }

    fn take_commits(&mut self) {
        let mut all = Vec::new();
        let engines = self.database().engines();
        let fenced: Vec<_> = engines.flat_map(|engine| std::mem::take(&mut engine.domain.fenced)).collect();
        for session in fenced {
            let database = self.database();
            let link = database.of_session.get(&session).and_then(|id| database.links.get(id));
            if let Some(pid) = link.map(|link| link.pid) {
                self.moment(pid, Moment::AppendFenceLocked);
            }
        }
        for engine in self.database().engines() {
            let timeline = engine.domain.origin.timeline;
            all.extend(std::mem::take(&mut engine.domain.done).into_iter().map(|done| (timeline, done)));
        }
        for (timeline, done) in all {
            self.looked_at(done, Some(timeline));
        }
    }

    /// A commit is looked at by the checks of its timeline; without one, a replica has brought it along.
    fn looked_at(&mut self, Done { session, changes }: Done, timeline: Option<u32>) {
        let clock = self.host.read(self.now);
        let newest = self.timeline();
        let database = self.database();
        let Some(engine) = database.engine_of(timeline.unwrap_or(newest)) else { return };
        engine.domain.store.set_clock(ClusterMs(clock.0));
        let zombie = !engine.has_client(session);
        let ended = !engine.lives(session);
        let sender = database.runs.get(&session).copied();
        let operator = database.operation.as_ref().is_some_and(|operation| operation.is_on(session));
        let name = sender.map_or(if operator { "set_mode" } else { "unknown" }, |sender| sender.name);
        let id = database.of_session.get(&session).copied().filter(|_| timeline.is_some());
        let link = id.and_then(|id| database.links.get_mut(&id));
        let (pid, open) = match link {
            Some(link) => {
                link.changed |= !changes.is_empty();
                (Some(link.pid), !link.cut)
            }
            None => (None, false),
        };
        let pid = pid.filter(|pid| self.processes.contains_key(pid));
        let keeps = |process: &Process| process.lanes.lanes.values().any(|lane| lane.link == id);
        let late = zombie || !open || !pid.and_then(|pid| self.processes.get(&pid)).is_some_and(keeps);
        let by = pid.and_then(|pid| self.processes.get(&pid)).map(|process| By {
            session,
            pid: pid.expect("its process"),
            knows: process.schema,
        });
        let asks = asks_children(&changes);
        let commit = Commit { transaction: name, changes };
        let (sent_by, call) = (sender.map(|sender| sender.pid), sender.map(|sender| sender.call));
        self.trace.record(self.now, "commit", &(sent_by, call, &commit, session, timeline));
        let lost = timeline.is_some_and(|timeline| timeline < newest);
        if lost {
            self.marks.hit(Mark::OldPrimaryWrote);
        } else if ended && open {
            self.marks.hit(Mark::CommittedFatal);
        } else if zombie {
            self.marks.hit(Mark::LateCommit);
        }
        self.mark_commit_on_postgres(&commit, zombie || lost);
        let by_follower = pid
            .and_then(|pid| self.processes.get(&pid))
            .is_some_and(|process| self.plan.cluster.is_some() && process.never_led());
        if let Some(process) = pid.and_then(|pid| self.processes.get_mut(&pid)) {
            for change in &commit.changes {
                if let Change::FenceRaised { after, .. } = change {
                    (process.fence, process.won) = (Some(*after), Some(*after));
                }
            }
        }
        let World { postgres, checks, book, steady_clock, now, marks, plan, .. } = self;
        let database = postgres.as_deref_mut().expect("a world with PostgreSQL");
        let (engine, checks) = match database.old.as_mut().filter(|_| lost) {
            Some(old) => (&old.engine, &mut old.checks),
            None => (&database.engine, checks),
        };
        let (store, schema) = (&engine.domain.store, engine.domain.schema);
        let locked = engine.advisory_holder(ELECTION_LOCK).and_then(|session| database.of_session.get(&session));
        // A session that is ended while it waits for a replica has committed, and its lock is the next one's already.
        let locked_by = locked.and_then(|id| database.links.get(id)).map(|link| link.pid).filter(|_| !ended);
        let alone = Committed::alone(&commit, store, book, *steady_clock);
        let session_timeout = Duration::from_millis(plan.server.session_timeout_ms);
        let committed =
            Committed { now: *now, by_follower, late, by, pid, session_timeout, locked_by, schema, ..alone };
        let checked = checks.on_commit(&committed, marks);
        self.holds(checked);
        if let Some(pid) = pid.filter(|_| name == "append") {
            self.moment(pid, Moment::AppendCommitted);
        }
        if let Some(pid) = pid
            && self.crashes_after_commit(true, asks)
        {
            self.marks.hit(Mark::CrashAfterCommit);
            self.crash(pid);
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
