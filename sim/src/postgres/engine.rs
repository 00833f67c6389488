//! The server: sessions, one command at a time each; ask and tell, without threads.
//!
//! [`Engine::start`] hands a command to a session; it runs as far as it can. [`Engine::take_answers`] gives what has
//! ended since, in order. A command that waits goes on by itself when another transaction ends or when its time comes
//! ([`Engine::advance`]). What a statement does is its [`Domain::Program`], a state machine over the primitives of
//! [`Context`].

use super::context::Context;
use super::error::{Code, SqlError, Stop};
use super::lock::{Locks, Mode, Request, Scope, Tag, Xid};
use super::session::{Answer, Command, Outcome, Running, Session, Settings, Timer, Transaction, Waits};
use super::table::{Csn, Tables};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;

/// The number of a session: a backend's process id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(transparent)]
pub struct SessionId(pub u32);

/// What statements there are, and over what rows.
pub trait Domain {
    type Key: Ord + Clone + Debug;
    type Row: Clone + Debug;
    /// A statement under way.
    type Program: Clone + Debug;
    /// What it gives.
    type Rows: Clone + Debug;
    /// What a transaction says that it did, to those who watch commits.
    type Note: Clone + Debug;

    /// Runs a statement as far as it gets. When it is resumed after [`Stop::Waits`], it asks again for what it asked
    /// for last.
    fn resume(&mut self, program: &mut Self::Program, context: &mut Context<'_, Self>) -> Result<Self::Rows, Stop>;

    /// How long a commit waits for a replica once it is durable here, in microseconds: until then nobody sees it, and
    /// what it has locked stays locked (R26).
    fn commit_wait_us(&mut self) -> u64 {
        0
    }

    /// A transaction that wrote has committed: the newest version of each of its rows, none where it was deleted.
    fn committed(&mut self, session: SessionId, rows: Vec<(Self::Key, Option<Self::Row>)>, notes: Vec<Self::Note>);
}

/// Whether the database takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Writable {
    #[default]
    Yes,
    ReadOnly,
    DiskFull,
}

pub(super) type SessionOf<D> = Session<<D as Domain>::Program, <D as Domain>::Note, <D as Domain>::Rows>;

/// Everything but the domain.
#[derive(Clone, Debug)]
pub(super) struct State<D: Domain + ?Sized> {
    /// Microseconds, of true time.
    pub now: u64,
    /// What the database host's clock shows, less `now`; milliseconds.
    pub clock_offset_ms: i64,
    pub tables: Tables<D::Key, D::Row>,
    pub locks: Locks,
    pub sessions: BTreeMap<SessionId, SessionOf<D>>,
    /// The sessions of transactions in progress that have a number.
    pub owners: BTreeMap<Xid, SessionId>,
    pub runnable: VecDeque<SessionId>,
    pub commits: Csn,
    pub last_xid: u64,
    pub writable: Writable,
    /// How often each thing happened that is worth counting.
    pub counts: Counts,
    pub flaw: Option<Flaw>,
    /// Where several can go on at the same moment: bit by bit, whether the last of them comes first.
    pub order: u32,
    /// How many bits are used up.
    pub decided: u32,
    /// Several could go on at the same moment: on a real server, either may have been faster.
    pub raced: bool,
}

/// A deliberate change of the model: that the conformance suite catches each shows what it would catch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flaw {
    /// R2: conditions are not looked at again on a newer version, which is not even read.
    NoRecheck,
    /// R10: sharers wait behind an update that waits.
    SharersQueue,
    /// R12: a row that others hold only to share is not skipped by one who wants to write it.
    SharedIsNotSkipped,
    /// R14: an insert does not wait for another one in progress.
    UniqueFailsAtOnce,
    /// R15: nobody looks for deadlocks.
    NoDeadlock,
    /// R16: the locks of a failed transaction stay until its client rolls it back.
    LocksOutliveErrors,
    /// R22: a statement ends with its client.
    StatementEndsWithClient,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Flaw; 7] = [
        Flaw::NoRecheck,
        Flaw::SharersQueue,
        Flaw::SharedIsNotSkipped,
        Flaw::UniqueFailsAtOnce,
        Flaw::NoDeadlock,
        Flaw::LocksOutliveErrors,
        Flaw::StatementEndsWithClient,
    ];
}

/// What happened, how often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub waits: u64,
    pub unique_waits: u64,
    pub deadlocks: u64,
    pub rechecks: u64,
    pub skips: u64,
    pub timeouts: u64,
    pub deaths: u64,
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Engine<D: Domain> {
    pub domain: D,
    state: State<D>,
    answers: Vec<(SessionId, Outcome<D::Rows>)>,
    dead_rows: Vec<super::lock::RowId>,
    last_session: u32,
    up: bool,
    /// The caller says when those go on that can: [`Engine::step`].
    by_hand: bool,
}

impl<D: Domain> Engine<D> {
    /// A server with empty tables.
    pub fn new(domain: D) -> Engine<D> {
        let state = State {
            now: 0,
            clock_offset_ms: 0,
            tables: Tables::default(),
            locks: Locks::default(),
            sessions: BTreeMap::new(),
            owners: BTreeMap::new(),
            runnable: VecDeque::new(),
            commits: 0,
            last_xid: 0,
            writable: Writable::Yes,
            counts: Counts::default(),
            flaw: None,
            order: 0,
            decided: 0,
            raced: false,
        };
        Engine { domain, state, answers: Vec::new(), dead_rows: Vec::new(), last_session: 0, up: true, by_hand: false }
    }

    /// The same with a deliberate change.
    #[must_use]
    pub fn with_flaw(mut self, flaw: Option<Flaw>) -> Engine<D> {
        self.state.flaw = flaw;
        self
    }

    /// The same, but where several can go on at the same moment, each bit says whether the last comes first.
    #[must_use]
    pub fn in_order(mut self, order: u32) -> Engine<D> {
        self.state.order = order;
        self
    }

    /// The same, but nothing goes on before [`Engine::step`], so that the caller can look at every commit by itself.
    #[must_use]
    pub fn by_hand(mut self) -> Engine<D> {
        self.by_hand = true;
        self
    }

    /// Whether several could go on at the same moment, so that on a real server either may have been faster.
    pub fn has_raced(&self) -> bool {
        self.state.raced
    }

    /// Whether somebody waits who has not yet looked for a deadlock.
    pub fn has_fresh_waits(&self) -> bool {
        let waits = |s: &SessionOf<D>| s.running.as_ref().is_some_and(|r| r.waits.is_some_and(|w| !w.looked));
        self.state.sessions.values().any(waits)
    }

    /// A row that is there from the beginning.
    pub fn put(&mut self, key: D::Key, row: D::Row) {
        let made = super::table::Mark { xid: Xid(0), command: 0, committed: Some(0) };
        self.state.tables.insert(key, row, made);
    }

    /// Opens a session.
    pub fn connect(&mut self, settings: Settings) -> Result<SessionId, SqlError> {
        if !self.up {
            return Err(SqlError::fatal(Code::CannotConnectNow));
        }
        self.last_session += 1;
        let id = SessionId(self.last_session);
        self.state.sessions.insert(id, Session::new(settings, self.state.now));
        Ok(id)
    }

    /// Whether a session is there.
    pub fn lives(&self, session: SessionId) -> bool {
        self.state.sessions.contains_key(&session)
    }

    /// All sessions.
    pub fn sessions(&self) -> impl Iterator<Item = SessionId> {
        self.state.sessions.keys().copied()
    }

    /// Whether a session has a command that has not ended.
    pub fn is_busy(&self, session: SessionId) -> bool {
        self.state.sessions.get(&session).is_some_and(SessionOf::<D>::is_busy)
    }

    /// Whom a session waits for; empty if it does not wait for a lock.
    pub fn blockers(&self, session: SessionId) -> Vec<SessionId> {
        self.state.locks.blockers(session)
    }

    /// Whether a session's client is still there.
    pub fn has_client(&self, session: SessionId) -> bool {
        self.state.sessions.get(&session).is_some_and(|s| s.client_gone.is_none())
    }

    /// Whether a session is between BEGIN and COMMIT.
    pub fn in_transaction(&self, session: SessionId) -> bool {
        self.state.sessions.get(&session).is_some_and(Session::in_block)
    }

    pub fn counts(&self) -> Counts {
        self.state.counts
    }

    /// How many versions of rows are kept.
    pub fn versions(&self) -> usize {
        self.state.tables.versions()
    }

    /// The newest committed version of every row.
    pub fn committed_rows(&self) -> impl Iterator<Item = (&D::Key, &D::Row)> {
        let snapshot = super::table::Snapshot { upto: self.state.commits, own: None, command: 0 };
        self.state.tables.scan(.., snapshot).map(|(row, version)| (&self.state.tables.row(row).key, &version.value))
    }

    /// Hands a command to a session that has none. A session that is not there answers at once.
    pub fn start(&mut self, session: SessionId, command: Command<D::Program>) {
        let Some(s) = self.state.sessions.get_mut(&session) else {
            self.answers.push((session, Err(SqlError::CLOSED)));
            return;
        };
        assert!(!s.is_busy(), "a client sends one command at a time");
        assert!(s.client_gone.is_none(), "who is gone sends nothing");
        s.inbox = Some(command);
        self.take_in(session);
        self.pump();
    }

    /// What has ended since the last time.
    pub fn take_answers(&mut self) -> Vec<(SessionId, Outcome<D::Rows>)> {
        std::mem::take(&mut self.answers)
    }

    fn take_in(&mut self, session: SessionId) {
        let s = self.state.sessions.get_mut(&session).expect("it lives");
        if s.frozen {
            return;
        }
        let Some(command) = s.inbox.take() else { return };
        let now = self.state.now;
        match command {
            Command::Set(settings) => {
                s.settings = settings;
                self.ended(session, Ok(Answer::Set));
            }
            Command::Begin => {
                let clock = now as i64 / 1_000 + self.state.clock_offset_ms;
                let s = self.state.sessions.get_mut(&session).expect("it lives");
                if s.failed {
                    return self.ended(session, Err(SqlError::error(Code::FailedTransaction)));
                }
                assert!(s.transaction.is_none(), "a transaction begins once");
                s.transaction = Some(Transaction {
                    explicit: true,
                    xid: None,
                    began_ms: clock,
                    commands: 0,
                    touched: Vec::new(),
                    wrote: false,
                    notes: Vec::new(),
                });
                self.ended(session, Ok(Answer::Began));
            }
            Command::Commit if s.failed => {
                s.failed = false;
                self.end_transaction(session, false);
                self.ended(session, Ok(Answer::RolledBack));
            }
            Command::Commit => self.commit(session, Answer::Committed),
            Command::Rollback => {
                s.failed = false;
                self.end_transaction(session, false);
                self.ended(session, Ok(Answer::RolledBack));
            }
            Command::Run(_) if s.failed => {
                self.ended(session, Err(SqlError::error(Code::FailedTransaction)));
            }
            Command::Run(program) => {
                let clock = now as i64 / 1_000 + self.state.clock_offset_ms;
                let transaction = s.transaction.get_or_insert_with(|| Transaction {
                    explicit: false,
                    xid: None,
                    began_ms: clock,
                    commands: 0,
                    touched: Vec::new(),
                    wrote: false,
                    notes: Vec::new(),
                });
                transaction.commands += 1;
                s.running = Some(Running {
                    program: Some(program),
                    snapshot: self.state.commits,
                    command: transaction.commands,
                    since: now,
                    locking: None,
                    asked: None,
                    sleeps_until: None,
                    waits: None,
                });
                self.state.runnable.push_back(session);
            }
        }
    }

    /// Runs what can run until nothing can.
    fn pump(&mut self) {
        while !self.by_hand && self.step() {}
    }

    /// One of those that can go on does. False if there is none. At most one transaction commits meanwhile.
    pub fn step(&mut self) -> bool {
        let last = self.state.runnable.len() > 1 && self.state.last_first();
        let runnable = &mut self.state.runnable;
        let next = if last { runnable.pop_back() } else { runnable.pop_front() };
        let Some(session) = next else { return false };
        self.resume(session);
        true
    }

    fn resume(&mut self, session: SessionId) {
        let Some(s) = self.state.sessions.get_mut(&session) else { return };
        if s.frozen {
            s.granted = true;
            return;
        }
        let Some(running) = &mut s.running else { return };
        if running.sleeps_until.is_some_and(|at| at > self.state.now) || self.state.locks.waits_for(session).is_some() {
            return;
        }
        running.waits = None;
        let mut program = running.program.take().expect("it is put back whenever it waits");
        let mut context = Context { state: &mut self.state, session };
        let result = self.domain.resume(&mut program, &mut context);
        let s = self.state.sessions.get_mut(&session).expect("a session does not end itself");
        match result {
            Err(Stop::Waits) => s.running.as_mut().expect("it runs").program = Some(program),
            Err(Stop::Fails(error)) => self.fail(session, error),
            Ok(rows) => {
                s.running = None;
                if s.in_block() {
                    self.ended(session, Ok(Answer::Rows(rows)));
                } else {
                    self.commit(session, Answer::Rows(rows));
                }
            }
        }
    }

    /// Commits, and answers so once that is durable everywhere.
    fn commit(&mut self, session: SessionId, answer: Answer<D::Rows>) {
        let s = self.state.sessions.get_mut(&session).expect("it lives");
        let wrote = s.transaction.as_ref().is_some_and(|t| t.wrote);
        let wait = if wrote { self.domain.commit_wait_us() } else { 0 };
        if wait > 0 {
            s.committing = Some((self.state.now + wait, answer));
            return;
        }
        self.end_transaction(session, true);
        self.ended(session, Ok(answer));
    }

    /// A statement fails: its transaction is rolled back at once, and its locks are free.
    fn fail(&mut self, session: SessionId, error: SqlError) {
        let s = self.state.sessions.get_mut(&session).expect("it lives");
        s.running = None;
        let explicit = s.in_block();
        if !(explicit && self.state.flaw == Some(Flaw::LocksOutliveErrors)) {
            self.end_transaction(session, false);
        }
        if let Some(s) = self.state.sessions.get_mut(&session) {
            s.failed = explicit;
        }
        self.ended(session, Err(error));
    }

    fn ended(&mut self, session: SessionId, outcome: Outcome<D::Rows>) {
        let Some(s) = self.state.sessions.get_mut(&session) else { return };
        s.idle_since = self.state.now;
        if s.client_gone.is_none() {
            self.answers.push((session, outcome));
            return;
        }
        // It writes the answer, and notices that nobody is there (R21, R22).
        self.end_session(session, None);
    }

    fn end_transaction(&mut self, session: SessionId, commit: bool) {
        let s = self.state.sessions.get_mut(&session).expect("it lives");
        let Some(transaction) = s.transaction.take() else { return };
        if let Some(xid) = transaction.xid {
            let mut committed = None;
            if commit {
                self.state.commits += 1;
                committed = Some(self.state.commits);
            }
            self.state.owners.remove(&xid);
            if commit && (transaction.wrote || !transaction.notes.is_empty()) {
                let rows = self.written(&transaction.touched, xid);
                for row in &transaction.touched {
                    self.state.tables.settle(*row, xid, committed);
                }
                self.domain.committed(session, rows, transaction.notes);
            } else {
                for row in &transaction.touched {
                    self.state.tables.settle(*row, xid, committed);
                }
            }
            self.dead_rows.extend(transaction.touched);
        } else if commit && !transaction.notes.is_empty() {
            self.domain.committed(session, Vec::new(), transaction.notes);
        }
        self.sweep();
        let woken = self.state.locks.release_all(session, Scope::Transaction);
        self.state.runnable.extend(woken);
    }

    fn written(&self, touched: &[super::lock::RowId], xid: Xid) -> Vec<(D::Key, Option<D::Row>)> {
        let mut rows = Vec::new();
        for id in touched {
            let row = self.state.tables.row(*id);
            let newest = row.newest();
            if newest.ended.is_some_and(|m| m.xid == xid) {
                rows.push((row.key.clone(), None));
            } else if newest.made.xid == xid {
                rows.push((row.key.clone(), Some(newest.value.clone())));
            }
        }
        rows
    }

    /// Forgets versions that nobody can see any more.
    fn sweep(&mut self) {
        let snapshots = self.state.sessions.values().filter_map(|s| s.running.as_ref().map(|r| r.snapshot));
        let oldest = snapshots.min().unwrap_or(self.state.commits);
        let newest = self.state.commits;
        for row in std::mem::take(&mut self.dead_rows) {
            self.state.tables.prune(row, oldest);
            if oldest < newest {
                self.dead_rows.push(row);
            }
        }
        self.dead_rows.sort();
        self.dead_rows.dedup();
    }

    fn end_session(&mut self, session: SessionId, last_words: Option<SqlError>) {
        let Some(s) = self.state.sessions.get_mut(&session) else { return };
        let asked = s.running.is_some() || s.inbox.is_some() || s.committing.is_some();
        let told = s.client_gone.is_none();
        s.running = None;
        // What only waits for a replica is committed (R26).
        let durable = s.committing.take().is_some();
        self.end_transaction(session, durable);
        let woken = self.state.locks.release_all(session, Scope::Session);
        self.state.runnable.extend(woken);
        self.state.sessions.remove(&session);
        self.state.counts.deaths += 1;
        if asked && told {
            self.answers.push((session, Err(last_words.unwrap_or(SqlError::CLOSED))));
        }
    }

    /// Somebody ends a session (`pg_terminate_backend`). One that stands still ends when it goes on.
    pub fn terminate(&mut self, session: SessionId) {
        let error = SqlError::fatal(Code::AdminShutdown);
        let Some(s) = self.state.sessions.get_mut(&session) else { return };
        if s.frozen {
            s.doomed = Some(error);
        } else {
            self.end_session(session, Some(error));
        }
        self.pump();
    }

    /// The client of a session is gone, without a word. An idle session notices at once, a busy one when its statement
    /// has ended (R21).
    pub fn vanish(&mut self, session: SessionId) {
        let now = self.state.now;
        let Some(s) = self.state.sessions.get_mut(&session) else { return };
        s.client_gone = s.client_gone.or(Some(now));
        let with_it = self.state.flaw == Some(Flaw::StatementEndsWithClient);
        if !s.frozen && (!s.is_busy() || with_it) {
            self.end_session(session, None);
        }
        self.pump();
    }

    /// A backend's process stands still (SIGSTOP).
    pub fn freeze(&mut self, session: SessionId) {
        if let Some(s) = self.state.sessions.get_mut(&session) {
            s.frozen = true;
        }
    }

    /// It goes on: first what its timers and others wanted of it, then its statement, then what came in meanwhile.
    pub fn thaw(&mut self, session: SessionId) {
        let Some(s) = self.state.sessions.get_mut(&session) else { return };
        if !std::mem::replace(&mut s.frozen, false) {
            return;
        }
        let granted = std::mem::replace(&mut s.granted, false);
        if let Some(error) = s.doomed.take() {
            self.end_session(session, Some(error));
            return self.pump();
        }
        while let Some((at, timer)) = self.timer_of(session)
            && at <= self.state.now
        {
            self.fires(session, timer);
        }
        if granted {
            self.state.runnable.push_back(session);
        }
        if self.lives(session) {
            self.take_in(session);
        }
        self.pump();
        let idle = self.state.sessions.get(&session).is_some_and(|s| s.client_gone.is_some() && !s.is_busy());
        if idle {
            self.end_session(session, None);
            self.pump();
        }
    }

    /// The server's processes are killed (R29): every session ends, whatever was not committed is gone. Nobody can
    /// connect until [`Engine::open`].
    pub fn crash(&mut self) {
        self.end_all(None);
    }

    /// A fast shutdown: sessions are told.
    pub fn shut_down(&mut self) {
        self.end_all(Some(SqlError::fatal(Code::AdminShutdown)));
    }

    fn end_all(&mut self, last_words: Option<SqlError>) {
        self.up = false;
        // Nobody goes on with what another's end frees.
        for session in self.state.sessions.values_mut() {
            session.frozen = true;
        }
        let all: Vec<SessionId> = self.sessions().collect();
        for session in all {
            self.end_session(session, last_words);
        }
        self.state.runnable.clear();
    }

    /// Sessions can be opened again.
    pub fn open(&mut self) {
        self.up = true;
    }

    /// Whether sessions can be opened.
    pub fn is_up(&self) -> bool {
        self.up
    }

    pub fn set_writable(&mut self, writable: Writable) {
        self.state.writable = writable;
    }

    /// True time, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.state.now
    }

    /// What the database host's clock shows, in milliseconds.
    pub fn clock_ms(&self) -> i64 {
        self.state.clock_ms()
    }

    /// The database host's clock shows this from now on.
    pub fn set_clock_ms(&mut self, ms: i64) {
        self.state.clock_offset_ms = ms - self.state.now as i64 / 1_000;
    }

    /// When something happens by itself next, in microseconds.
    pub fn next_timer(&self) -> Option<u64> {
        let timers = self.state.sessions.iter().filter(|(_, s)| !s.frozen);
        timers.filter_map(|(id, _)| self.timer_of(*id)).map(|(at, _)| at).min()
    }

    fn timer_of(&self, session: SessionId) -> Option<(u64, Timer)> {
        self.state.sessions.get(&session)?.next_timer()
    }

    /// Time passes, up to `now`, in microseconds.
    pub fn advance(&mut self, now: u64) {
        assert!(now >= self.state.now, "time does not go back");
        loop {
            let live = self.state.sessions.iter().filter(|(_, s)| !s.frozen);
            let mut due: Vec<_> =
                live.filter_map(|(id, s)| s.next_timer().map(|(at, timer)| (at, timer, *id))).collect();
            due.sort();
            let first = due.first().filter(|(at, ..)| *at <= now).map(|(at, timer, _)| (*at, *timer));
            let Some(first) = first else { break };
            due.retain(|(at, timer, _)| (*at, *timer) == first);
            let next = if due.len() > 1 && self.state.last_first() { due.pop() } else { due.into_iter().next() };
            let (at, timer, session) = next.expect("the first is one of them");
            self.state.now = self.state.now.max(at);
            self.fires(session, timer);
            self.pump();
        }
        self.state.now = now;
    }

    fn fires(&mut self, session: SessionId, timer: Timer) {
        match timer {
            Timer::Wakes => {
                let s = self.state.sessions.get_mut(&session).expect("it lives");
                s.running.as_mut().expect("it sleeps").sleeps_until = None;
                self.state.runnable.push_back(session);
            }
            Timer::Deadlock => {
                let waits = self.waits_of(session);
                waits.looked = true;
                if self.state.locks.waits_for(session).is_none() {
                    return;
                }
                if self.state.flaw == Some(Flaw::NoDeadlock) {
                    return;
                }
                match self.state.locks.resolve_deadlock(session) {
                    Some(woken) => self.state.runnable.extend(woken),
                    None => {
                        self.state.counts.deadlocks += 1;
                        self.fail(session, SqlError::error(Code::Deadlock));
                    }
                }
            }
            Timer::Lock => {
                self.state.counts.timeouts += 1;
                self.fail(session, SqlError::error(Code::LockNotAvailable));
            }
            Timer::Statement => {
                self.state.counts.timeouts += 1;
                self.fail(session, SqlError::error(Code::QueryCanceled));
            }
            Timer::Durable => {
                let s = self.state.sessions.get_mut(&session).expect("it lives");
                let (_, answer) = s.committing.take().expect("it waits for a replica");
                self.end_transaction(session, true);
                self.ended(session, Ok(answer));
            }
            Timer::Client => self.end_session(session, Some(SqlError::fatal(Code::ConnectionLost))),
            Timer::IdleInTransaction | Timer::Idle => {
                self.state.counts.timeouts += 1;
                self.end_session(session, None);
            }
        }
    }

    fn waits_of(&mut self, session: SessionId) -> &mut Waits {
        let s = self.state.sessions.get_mut(&session).expect("it lives");
        s.running.as_mut().and_then(|r| r.waits.as_mut()).expect("it waits")
    }
}

impl<D: Domain + ?Sized> State<D> {
    /// Several can go on at the same moment: whether the last of them comes first.
    pub fn last_first(&mut self) -> bool {
        self.raced = true;
        let bit = self.order >> (self.decided % 32) & 1;
        self.decided += 1;
        bit == 1
    }

    pub fn clock_ms(&self) -> i64 {
        self.now as i64 / 1_000 + self.clock_offset_ms
    }

    pub fn session(&mut self, session: SessionId) -> &mut SessionOf<D> {
        self.sessions.get_mut(&session).expect("it lives")
    }

    pub fn transaction(&mut self, session: SessionId) -> &mut Transaction<D::Note> {
        self.session(session).transaction.as_mut().expect("a statement runs in a transaction")
    }

    /// The number of the session's transaction, drawn when it first needs one.
    pub fn xid(&mut self, session: SessionId) -> Xid {
        if let Some(xid) = self.transaction(session).xid {
            return xid;
        }
        self.last_xid += 1;
        let xid = Xid(self.last_xid);
        self.transaction(session).xid = Some(xid);
        self.owners.insert(xid, session);
        let granted = self.locks.ask(session, Tag::Transaction(xid), Mode::Exclusive, Scope::Transaction, true);
        assert_eq!(granted, Request::Granted, "nobody else knows this number");
        xid
    }
}
