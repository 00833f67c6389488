//! The server: sessions, one command at a time each; ask and tell, without threads.
//!
//! [`Engine::start`] hands a command to a session; it runs as far as it can. [`Engine::take_answers`] gives what has
//! ended since, in order. A command that waits goes on by itself when another transaction ends or when its time comes
//! ([`Engine::advance`]). What a statement does is its [`Domain::Program`], a state machine over the primitives of
//! [`Context`].

mod choices;
mod end;
mod run;
mod state;
mod time;

pub use choices::{Choices, Explored, TooMany, outcomes};
pub use state::{Counts, Flaw, Writable};
pub(in crate::postgres) use state::{SessionOf, State};

use super::context::Context;
use super::error::{Code, SqlError, Stop};
use super::lock::{Locks, RowId, Tag, Xid};
use super::session::{Command, Outcome, Session, Settings};
use super::table::{Mark, Snapshot, Strength, Tables};
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

    /// Whether a statement under way may still come to a row, or a new row, of this key that another one is about to lock
    /// so: then it matters which of the two is faster.
    fn meets(_program: &Self::Program, _key: &Self::Key, _strength: Strength) -> bool {
        true
    }

    /// How long a commit waits for a replica once it is durable here, in microseconds: until then nobody sees it, and
    /// what it has locked stays locked (R26).
    fn commit_wait_us(&mut self) -> u64 {
        0
    }

    /// A transaction that wrote has committed: the newest version of each of its rows, none where it was deleted.
    fn committed(&mut self, session: SessionId, rows: Vec<(Self::Key, Option<Self::Row>)>, notes: Vec<Self::Note>);
}

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Engine<D: Domain> {
    pub domain: D,
    state: State<D>,
    answers: Vec<(SessionId, Outcome<D::Rows>)>,
    dead_rows: Vec<RowId>,
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
            choices: Choices::default(),
        };
        Engine { domain, state, answers: Vec::new(), dead_rows: Vec::new(), last_session: 0, up: true, by_hand: false }
    }

    /// The same with a deliberate change.
    #[must_use]
    pub fn with_flaw(mut self, flaw: Option<Flaw>) -> Engine<D> {
        self.state.flaw = flaw;
        self
    }

    /// The same, but nothing goes on before [`Engine::step`], so that the caller can look at every commit by itself.
    #[must_use]
    pub fn by_hand(mut self) -> Engine<D> {
        self.by_hand = true;
        self
    }

    /// See [`outcomes`].
    pub fn choices(&mut self) -> &mut Choices {
        &mut self.state.choices
    }

    /// What tells this server from others in which something else may happen from now on.
    pub fn identity(&self) -> String
    where
        D: Debug,
    {
        let counts = self.state.counts;
        let mut text = format!("{self:?}");
        // How often something has happened does not matter to what will.
        if let Some(at) = text.find(&format!("{counts:?}")) {
            text.replace_range(at..at + format!("{counts:?}").len(), "");
        }
        text
    }

    /// Whether somebody waits who has not yet looked for a deadlock.
    pub fn has_fresh_waits(&self) -> bool {
        let waits = |s: &SessionOf<D>| s.running.as_ref().is_some_and(|r| r.waits.is_some_and(|w| !w.looked));
        self.state.sessions.values().any(waits)
    }

    /// A row that is there from the beginning.
    pub fn put(&mut self, key: D::Key, row: D::Row) {
        let made = Mark { xid: Xid(0), command: 0, committed: Some(0) };
        self.state.tables.insert(key, row, made);
    }

    /// Whether a transaction has a row locked, so that one that wants it so would wait.
    pub fn is_locked(&self, key: &D::Key, strength: Strength) -> bool {
        let rows = self.state.tables.of_key(key);
        rows.iter().any(|row| !self.state.tables.row(*row).holders(None, strength).is_empty())
    }

    /// The session that holds an advisory lock.
    pub fn advisory_holder(&self, key: i64) -> Option<SessionId> {
        self.sessions().find(|session| self.state.locks.holds(*session, Tag::Advisory(key)))
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

    /// The number of the session that was opened last.
    pub fn last_session(&self) -> u32 {
        self.last_session
    }

    /// Sessions that are opened from now on have greater numbers than this.
    pub fn number_after(&mut self, last: u32) {
        self.last_session = self.last_session.max(last);
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

    /// Whether its transaction is committed here, and waits for a replica.
    pub fn is_committing(&self, session: SessionId) -> bool {
        self.state.sessions.get(&session).is_some_and(|s| s.committing.is_some())
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

    /// Whether the transaction of a session has changed a row.
    pub fn has_written(&self, session: SessionId) -> bool {
        self.state.sessions.get(&session).and_then(|s| s.transaction.as_ref()).is_some_and(|t| t.wrote)
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
        let snapshot = Snapshot { upto: self.state.commits, own: None, command: 0 };
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
}
