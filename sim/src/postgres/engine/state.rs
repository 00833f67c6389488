//! All that a server has, but what its statements mean.

use super::choices::Choices;
use super::{Domain, SessionId};
use crate::postgres::lock::{Locks, Mode, Request, RowId, Scope, Tag, Xid};
use crate::postgres::session::{Session, Transaction};
use crate::postgres::table::{Csn, Tables};
use std::collections::{BTreeMap, VecDeque};

/// Whether the database takes writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Writable {
    #[default]
    Yes,
    ReadOnly,
    DiskFull,
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
    /// R20: the advisory locks of a session end with its transaction.
    SessionLocksEndWithTransaction,
    /// R22: a statement ends with its client.
    StatementEndsWithClient,
}

impl Flaw {
    /// All of them.
    pub const ALL: [Flaw; 8] = [
        Flaw::NoRecheck,
        Flaw::SharersQueue,
        Flaw::SharedIsNotSkipped,
        Flaw::UniqueFailsAtOnce,
        Flaw::NoDeadlock,
        Flaw::LocksOutliveErrors,
        Flaw::SessionLocksEndWithTransaction,
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

pub(in crate::postgres) type SessionOf<D> = Session<<D as Domain>::Program, <D as Domain>::Note, <D as Domain>::Rows>;

/// Everything but the domain.
#[derive(Clone, Debug)]
pub(in crate::postgres) struct State<D: Domain + ?Sized> {
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
    /// Which comes first where several can go on at the same moment.
    pub choices: Choices,
}

impl<D: Domain + ?Sized> State<D> {
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

    /// What a transaction has written of the rows that it touched; none where it deleted one.
    pub fn written(&self, touched: &[RowId], xid: Xid) -> Vec<(D::Key, Option<D::Row>)> {
        let mut rows = Vec::new();
        for id in touched {
            let row = self.tables.row(*id);
            let newest = row.newest();
            if newest.ended.is_some_and(|m| m.xid == xid) {
                rows.push((row.key.clone(), None));
            } else if newest.made.xid == xid {
                rows.push((row.key.clone(), Some(newest.value.clone())));
            }
        }
        rows
    }
}
