//! Sessions: what each is doing, in which transaction, and how long it may.

use super::error::SqlError;
use super::lock::{RowId, Tag, Xid};
use super::table::{Csn, Strength};
use std::collections::VecDeque;

/// Settings of a session. Milliseconds; 0 is never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub statement_timeout: u64,
    pub lock_timeout: u64,
    pub idle_in_transaction_timeout: u64,
    pub idle_session_timeout: u64,
    pub deadlock_timeout: u64,
    /// How often a running statement looks whether its client is still there.
    pub client_check_interval: u64,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            statement_timeout: 0,
            lock_timeout: 0,
            idle_in_transaction_timeout: 0,
            idle_session_timeout: 0,
            deadlock_timeout: 1_000,
            client_check_interval: 0,
        }
    }
}

/// What a client sends.
#[derive(Clone, Debug, PartialEq)]
pub enum Command<P> {
    Begin,
    Commit,
    Rollback,
    Run(P),
    Set(Settings),
}

/// What it gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer<T> {
    Began,
    Committed,
    /// Also what a COMMIT of a failed transaction gets: no error (R16).
    RolledBack,
    Rows(T),
    Set,
}

/// The end of a command.
pub type Outcome<T> = Result<Answer<T>, SqlError>;

/// The transaction of a session.
#[derive(Clone, Debug)]
pub struct Transaction<N> {
    /// Between BEGIN and COMMIT.
    pub explicit: bool,
    /// None until it writes or locks a row.
    pub xid: Option<Xid>,
    /// What `now()` shows in it, in milliseconds.
    pub began_ms: i64,
    pub commands: u32,
    /// The rows that it wrote or locked.
    pub touched: Vec<RowId>,
    pub wrote: bool,
    /// Its commit waits for no replica: `synchronous_commit` is off in it.
    pub at_once: bool,
    /// What it did, for whoever watches commits.
    pub notes: Vec<N>,
}

impl<N> Transaction<N> {
    /// One that has just begun, when `now()` shows this.
    pub fn begun(explicit: bool, began_ms: i64) -> Transaction<N> {
        let (touched, notes) = (Vec::new(), Vec::new());
        Transaction { explicit, xid: None, began_ms, commands: 0, touched, wrote: false, at_once: false, notes }
    }
}

/// How far a statement has got with a row that others hold.
#[derive(Clone, Debug)]
pub struct Locking {
    pub row: RowId,
    pub version: u32,
    pub strength: Strength,
    /// It is a newer version than the statement's snapshot saw.
    pub newer: bool,
    /// It has followed the row to this version, and not looked at it yet.
    pub arrives: bool,
    /// Whoever it waits for replaces this version: then it locks those that have followed.
    pub chain: bool,
    /// It is the first of those who wait for this version.
    pub in_front: bool,
    /// Whose end it waits for, one after the other.
    pub holders: VecDeque<Xid>,
}

/// A statement that runs.
#[derive(Clone, Debug)]
pub struct Running<P> {
    /// Taken out while it is resumed.
    pub program: Option<P>,
    pub snapshot: Csn,
    pub command: u32,
    /// Microseconds.
    pub since: u64,
    pub locking: Option<Locking>,
    /// The wait for an advisory lock, or for another's insert, is over when it is resumed.
    pub asked: Option<Tag>,
    pub sleeps_until: Option<u64>,
    /// It has let others in before what it does next.
    pub lets_in: bool,
    /// It has locked a newer version than it saw, and not written it yet.
    pub followed: bool,
    pub waits: Option<Waits>,
}

/// A wait for a lock.
#[derive(Clone, Copy, Debug)]
pub struct Waits {
    pub since: u64,
    /// It has looked for a deadlock: it does so once (R15).
    pub looked: bool,
    /// How long this wait may last, in milliseconds, in place of the session's `lock_timeout`; and that its end is caught, so
    /// that the statement goes on without the lock.
    pub caught_after: Option<u64>,
}

/// A backend.
#[derive(Clone, Debug)]
pub struct Session<P, N, T> {
    pub settings: Settings,
    pub transaction: Option<Transaction<N>>,
    /// The transaction failed, and its client has not rolled it back yet.
    pub failed: bool,
    pub running: Option<Running<P>>,
    /// Since when it has nothing to do.
    pub idle_since: u64,
    /// When its client went away.
    pub client_gone: Option<u64>,
    /// Its process is stopped (SIGSTOP).
    pub frozen: bool,
    /// What reached it while it stood still.
    pub inbox: Option<Command<P>>,
    /// Its transaction is committed here, waits for a replica until then, and answers this.
    pub committing: Option<(u64, Answer<T>)>,
    /// It was told to end while it stood still.
    pub doomed: Option<SqlError>,
    /// It may go on as soon as it is not frozen.
    pub granted: bool,
}

impl<P, N, T> Session<P, N, T> {
    pub fn new(settings: Settings, now: u64) -> Session<P, N, T> {
        Session {
            settings,
            transaction: None,
            failed: false,
            running: None,
            idle_since: now,
            client_gone: None,
            frozen: false,
            inbox: None,
            committing: None,
            doomed: None,
            granted: false,
        }
    }

    /// Whether it has a command that has not ended.
    pub fn is_busy(&self) -> bool {
        self.running.is_some() || self.inbox.is_some() || self.committing.is_some()
    }

    pub fn in_block(&self) -> bool {
        self.failed || self.transaction.as_ref().is_some_and(|t| t.explicit)
    }

    /// What comes next by itself, and when.
    pub fn next_timer(&self) -> Option<(u64, Timer)> {
        let s = &self.settings;
        if let Some((until, _)) = &self.committing {
            // A statement's time-out does not end this (R18).
            return Some((*until, Timer::Durable));
        }
        let after = |since: u64, ms: u64, timer| (ms > 0).then_some((since + ms * 1_000, timer));
        let all = match &self.running {
            Some(running) => [
                running.waits.filter(|w| !w.looked).and_then(|w| after(w.since, s.deadlock_timeout, Timer::Deadlock)),
                running.waits.and_then(|w| after(w.since, w.caught_after.unwrap_or(s.lock_timeout), Timer::Lock)),
                after(running.since, s.statement_timeout, Timer::Statement),
                running.sleeps_until.map(|at| (at, Timer::Wakes)),
                self.next_look_at_client(running.since),
            ],
            None if self.in_block() => {
                let idle = after(self.idle_since, s.idle_in_transaction_timeout, Timer::IdleInTransaction);
                [idle, None, None, None, None]
            }
            None => [after(self.idle_since, s.idle_session_timeout, Timer::Idle), None, None, None, None],
        };
        all.into_iter().flatten().min()
    }

    fn next_look_at_client(&self, since: u64) -> Option<(u64, Timer)> {
        let (gone, every) = (self.client_gone?, self.settings.client_check_interval * 1_000);
        if every == 0 {
            return None;
        }
        let looks = gone.saturating_sub(since).div_ceil(every).max(1);
        Some((since + looks * every, Timer::Client))
    }
}

/// What a session waits for by the clock. At the same moment, the first comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    Wakes,
    Durable,
    Deadlock,
    Lock,
    Statement,
    Client,
    IdleInTransaction,
    Idle,
}
