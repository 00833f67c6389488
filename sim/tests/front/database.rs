//! The simulated database behind the servers: the model of PostgreSQL, and a store of `io`'s driver on top of it.
//!
//! It is no host of the network. Between two ticks of the network each of its connections gets one message further, so
//! every host sees it at the same time, and a transaction of four messages takes four ticks.

use super::trace::Trace;
use orbit_core::id::ClusterId;
use orbit_core::node::{CallId, Connection};
use orbit_core::store::executor::{Ask, Executor, Frame};
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome::{self, Cause, Fact, Phase, Reply};
use orbit_core::store::statement::Rows;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_io::driver::{Attached, Backend, StoreReply};
use orbit_sim::postgres::store::whole::rows;
use orbit_sim::postgres::store::{self, Orbit, Pace, Program};
use orbit_sim::postgres::{Answer, Command, Engine, Outcome, SessionId, Settings, Severity, SqlError};
use orbit_sim::rng::{Dice, Stream};
use orbit_sim::store::{Change, ModelStore};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::mpsc::UnboundedSender;

/// What its clock shows when the run begins, in milliseconds.
pub const EPOCH_MS: i64 = 1_767_323_045_000;

/// How long a session that holds the election lock may be silent.
const ELECTION_IDLE_MS: u64 = 3_000;

/// Cheap to clone: one database.
#[derive(Clone)]
pub struct Database(Arc<Mutex<Inner>>);

struct Inner {
    engine: Engine<Orbit>,
    /// Server processes, by number.
    servers: BTreeMap<u64, Server>,
    of_session: BTreeMap<SessionId, (u64, Key)>,
    /// Hosts whose way here is cut.
    cut: BTreeSet<&'static str>,
    last_server: u64,
    trace: Trace,
}

/// A connection of a server process.
type Key = (Connection, u8);

struct Server {
    host: &'static str,
    replies: UnboundedSender<StoreReply>,
    lanes: BTreeMap<Key, Lane>,
    queues: BTreeMap<Connection, VecDeque<Waiting>>,
}

#[derive(Default)]
struct Lane {
    session: Option<SessionId>,
    current: Option<Current>,
    /// What came back while the way was cut.
    late: Option<Outcome<Rows>>,
}

struct Waiting {
    call: CallId,
    transaction: Transaction,
}

/// A transaction under way.
struct Current {
    call: CallId,
    name: &'static str,
    executor: Executor,
    frame: Frame,
    phase: Phase,
    todo: VecDeque<Command<Program>>,
    /// A command is with the database.
    asked: bool,
    got: Vec<Rows>,
    /// The reply, once the transaction is rolled back.
    then: Option<Reply<Verdict>>,
}

impl Database {
    pub fn new(seed: u64, trace: Trace) -> Database {
        let cluster_id = ClusterId(Dice::new(seed, Stream::Store).uuid());
        let engine = store::database(cluster_id, Pace::NONE, Dice::new(seed, Stream::Backends)).by_hand();
        let (servers, of_session, cut) = Default::default();
        Database(Arc::new(Mutex::new(Inner { engine, servers, of_session, cut, last_server: 0, trace })))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }

    /// A store for a server process of this host.
    pub fn attach(&self, host: &'static str) -> Attached<Wire> {
        Attached::new(|replies| {
            let mut inner = self.lock();
            inner.last_server += 1;
            let server = inner.last_server;
            inner.servers.insert(server, Server { host, replies, lanes: BTreeMap::new(), queues: BTreeMap::new() });
            Wire { database: self.clone(), server }
        })
    }

    /// Brings everything one message further. `now_us` is the time since the run began.
    pub fn step(&self, now_us: u64) {
        self.lock().step(now_us);
    }

    /// Nothing goes between a host and the database from now on, though no connection ends by it.
    pub fn cut(&self, host: &'static str) {
        self.lock().cut.insert(host);
    }

    pub fn mend(&self, host: &'static str) {
        self.lock().cut.remove(host);
    }

    /// Looks at what is committed.
    pub fn read<T>(&self, look: impl FnOnce(&ModelStore) -> T) -> T {
        look(&self.lock().engine.domain.store)
    }
}

impl Inner {
    fn step(&mut self, now_us: u64) {
        self.engine.advance(now_us);
        self.engine.set_clock_ms(EPOCH_MS + i64::try_from(now_us / 1_000).expect("minutes"));
        let servers: Vec<u64> = self.servers.keys().copied().collect();
        for server in servers {
            if !self.cut.contains(self.servers[&server].host) {
                self.send_all(server);
            }
        }
        while self.engine.step() {
            self.note_commits();
        }
        self.note_commits();
        for (session, outcome) in self.engine.take_answers() {
            let Some((server, key)) = self.of_session.get(&session).copied() else { continue };
            let Some(process) = self.servers.get_mut(&server) else { continue };
            let lane = process.lanes.get_mut(&key).expect("its lane");
            if self.cut.contains(process.host) {
                lane.late = Some(outcome);
            } else {
                self.heard(server, key, outcome);
            }
        }
    }

    fn note_commits(&mut self) {
        let now_us = self.engine.now_us();
        let current = self.engine.domain.store.fence();
        for done in std::mem::take(&mut self.engine.domain.done) {
            let by_another =
                |change: &Change| matches!(change, Change::Group { fence, repeated: false, .. } if *fence != current);
            if done.changes.iter().any(by_another) {
                self.trace.wrong(format!("a server wrote that is not the writer of term {}", current.term));
            }
            // Calls that only say that somebody lives would hide the others.
            if !done.changes.iter().all(|change| matches!(change, Change::NodeBeat { .. } | Change::WorkersSeen { .. }))
            {
                let changes = serde_json::to_string(&done.changes).expect("changes are serialised");
                self.trace.record_at(now_us, format!("commit {changes}"));
            }
        }
    }

    fn send_all(&mut self, server: u64) {
        let process = self.servers.get_mut(&server).expect("it lives");
        let late: Vec<(Key, Outcome<Rows>)> =
            process.lanes.iter_mut().filter_map(|(key, lane)| Some((*key, lane.late.take()?))).collect();
        for (key, outcome) in late {
            self.heard(server, key, outcome);
        }
        for connection in [Connection::Store, Connection::Election, Connection::Control, Connection::Requests] {
            let width = if connection == Connection::Requests { 2 } else { 1 };
            for index in 0..width {
                self.send_next(server, (connection, index));
            }
        }
    }

    fn send_next(&mut self, server: u64, key: Key) {
        let Inner { engine, servers, of_session, .. } = self;
        let Some(process) = servers.get_mut(&server) else { return };
        let lane = process.lanes.entry(key).or_default();
        if lane.current.is_none() {
            let next = process.queues.get_mut(&key.0).and_then(VecDeque::pop_front);
            lane.current = next.map(|waiting| Current::new(waiting.call, waiting.transaction));
        }
        let Some(current) = lane.current.as_mut().filter(|current| !current.asked) else { return };
        let session = match lane.session {
            Some(session) => session,
            None => {
                let session = engine.connect(settings(key.0)).expect("the database is up");
                of_session.insert(session, (server, key));
                lane.session = Some(session);
                // The next message goes when this one has come back.
                return;
            }
        };
        let whence = store::Connection { key: 1_000 + i64::from(session.0), foreign: false };
        let command = match current.next() {
            Command::Run(program) => Command::Run(program.on(whence)),
            other => other,
        };
        engine.start(session, command);
    }

    fn heard(&mut self, server: u64, key: Key, outcome: Outcome<Rows>) {
        let lane = self.servers.get_mut(&server).and_then(|process| process.lanes.get_mut(&key)).expect("its lane");
        let Some(current) = lane.current.as_mut() else { return };
        current.asked = false;
        let fatal = matches!(&outcome, Err(error) if error.severity == Severity::Fatal);
        let reply = match outcome {
            Ok(answer) => current.told(answer),
            Err(error) => current.failed(error),
        };
        if fatal && let Some(session) = lane.session.take() {
            self.of_session.remove(&session);
            self.engine.vanish(session);
        }
        if let Some(reply) = reply {
            self.reply(server, key, reply);
        }
    }

    fn reply(&mut self, server: u64, key: Key, reply: Reply<Verdict>) {
        let origin = self.engine.domain.origin;
        let process = self.servers.get_mut(&server).expect("it lives");
        let lane = process.lanes.get_mut(&key).expect("its lane");
        let current = lane.current.take().expect("a call is under way");
        if !matches!(reply, Reply::Done(_)) {
            let what = format!("{} on {} failed: {reply:?}", current.name, process.host);
            self.trace.record_at(self.engine.now_us(), what);
        }
        let _ = process.replies.send(StoreReply { call: current.call, reply, origin: Some(origin) });
    }

    /// A connection is given up by its client.
    fn end(&mut self, session: Option<SessionId>) {
        if let Some(session) = session {
            self.of_session.remove(&session);
            self.engine.vanish(session);
        }
    }

    fn write_off(&mut self, server: u64, connection: Connection, call: CallId) {
        let Some(process) = self.servers.get_mut(&server) else { return };
        if let Some(queue) = process.queues.get_mut(&connection) {
            queue.retain(|waiting| waiting.call != call);
        }
        let found = process.lanes.values_mut().find(|l| l.current.as_ref().is_some_and(|c| c.call == call));
        let Some(lane) = found else { return };
        let Lane { session, .. } = std::mem::take(lane);
        self.end(session);
    }

    fn gone(&mut self, server: u64) {
        let Some(process) = self.servers.remove(&server) else { return };
        for lane in process.lanes.into_values() {
            self.end(lane.session);
        }
    }
}

fn settings(connection: Connection) -> Settings {
    let election = connection == Connection::Election;
    Settings {
        statement_timeout: if election { 12_000 } else { 5_000 },
        lock_timeout: 3_000,
        idle_in_transaction_timeout: 5_000,
        idle_session_timeout: if election { ELECTION_IDLE_MS } else { 0 },
        deadlock_timeout: 1_000,
        client_check_interval: 1_000,
    }
}

impl Current {
    fn new(call: CallId, transaction: Transaction) -> Current {
        let name = transaction.name();
        let mut current = Current {
            call,
            name,
            executor: Executor::new(transaction),
            frame: Frame::Auto,
            phase: Phase::NotSent,
            todo: VecDeque::new(),
            asked: false,
            got: Vec::new(),
            then: None,
        };
        current.go_on();
        current
    }

    fn go_on(&mut self) {
        match self.executor.ask() {
            Ask::Rollback(verdict) => self.roll_back(Reply::Done(verdict)),
            Ask::Send(statements, frame) => {
                self.frame = frame;
                if matches!(frame, Frame::Begin | Frame::Whole) {
                    self.todo.push_back(Command::Begin);
                }
                self.todo.extend(statements.into_iter().map(|statement| Command::Run(Program::new(statement))));
                if matches!(frame, Frame::Commit | Frame::Whole) {
                    self.todo.push_back(Command::Commit);
                }
            }
        }
    }

    fn roll_back(&mut self, then: Reply<Verdict>) {
        self.then = Some(then);
        self.todo.clear();
        self.got.clear();
        self.todo.push_back(Command::Rollback);
    }

    fn next(&mut self) -> Command<Program> {
        let command = self.todo.pop_front().expect("there is something to send");
        self.phase = match (&command, self.frame) {
            (Command::Commit, _) | (Command::Run(_), Frame::Auto) => Phase::CommitSent,
            _ => Phase::Open,
        };
        self.asked = true;
        command
    }

    fn told(&mut self, answer: Answer<Rows>) -> Option<Reply<Verdict>> {
        self.got.extend(rows(answer));
        if !self.todo.is_empty() {
            return None;
        }
        if let Some(reply) = self.then.take() {
            return Some(reply);
        }
        let got = std::mem::take(&mut self.got);
        let reply = self.executor.tell(Ok(got));
        if reply.is_none() {
            self.go_on();
        }
        reply
    }

    fn failed(&mut self, error: SqlError) -> Option<Reply<Verdict>> {
        if let Some(reply) = self.then.take() {
            return Some(reply);
        }
        let severity = error.code.map(|_| match error.severity {
            Severity::Error => outcome::Severity::Error,
            Severity::Fatal => outcome::Severity::Fatal,
        });
        let cause = error.code.map_or(Cause::Closed, |code| Cause::SqlState(code.as_str().into()));
        let fact = Fact { phase: self.phase, severity, cause, message: format!("simulated: {error}") };
        let reply = self.executor.tell(Err(fact));
        self.todo.clear();
        self.got.clear();
        match reply {
            // An append goes on in halves.
            None => {
                self.go_on();
                None
            }
            Some(reply) if self.frame == Frame::Auto || error.severity == Severity::Fatal => Some(reply),
            Some(reply) => {
                self.roll_back(reply);
                None
            }
        }
    }
}

/// A server process's way to the database.
pub struct Wire {
    database: Database,
    server: u64,
}

impl Backend for Wire {
    fn run(&self, connection: Connection, call: CallId, transaction: Transaction, _: Option<Origin>) {
        let mut inner = self.database.lock();
        let process = inner.servers.get_mut(&self.server).expect("it lives");
        process.queues.entry(connection).or_default().push_back(Waiting { call, transaction });
    }

    fn write_off(&self, connection: Connection, call: CallId) {
        self.database.lock().write_off(self.server, connection, call);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if let Ok(mut inner) = self.database.0.lock() {
            inner.gone(self.server);
        }
    }
}
