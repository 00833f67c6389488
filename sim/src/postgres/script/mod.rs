//! A small language of steps over the primitives of PostgreSQL: sessions that do things, and what must come of it.
//!
//! The same script is played on the model ([`model::ModelServer`]) and on a real server (in `io`'s tests), so that a
//! rule of the model is a rule of PostgreSQL. There are two tables of `(id, v, at_ms)`, empty at first; `id` is the
//! primary key.

mod domain;
mod expect;
pub mod model;

pub use domain::Small;
pub use expect::{Expect, Seen, Server, play};

use super::context::Policy;
use super::lock::Scope;
use super::session::Settings;
use super::table::Strength;
use serde::Serialize;

/// A table of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Table {
    A,
    B,
}

impl Table {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Table::A => "a",
            Table::B => "b",
        }
    }
}

/// Which rows: all parts that are there must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// First and last id.
    pub ids: (i32, i32),
    pub v: Option<i32>,
    /// `at_ms` is later than this clock.
    pub live: Option<Clock>,
    /// Table B has a row of this id with this `v`.
    pub other: Option<(i32, i32)>,
}

impl Filter {
    /// Every row.
    pub const ALL: Filter = Filter { ids: (i32::MIN, i32::MAX), v: None, live: None, other: None };

    /// One row.
    pub const fn id(id: i32) -> Filter {
        Filter { ids: (id, id), ..Filter::ALL }
    }

    /// And `v` is this.
    #[must_use]
    pub const fn with_v(self, v: i32) -> Filter {
        Filter { v: Some(v), ..self }
    }

    /// And its time is not over.
    #[must_use]
    pub const fn live(self, clock: Clock) -> Filter {
        Filter { live: Some(clock), ..self }
    }

    /// And the row `id` of table B has `v`.
    #[must_use]
    pub const fn if_b_has(self, id: i32, v: i32) -> Filter {
        Filter { other: Some((id, v)), ..self }
    }
}

/// A clock of the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// `now()`
    Transaction,
    /// `clock_timestamp()`
    Wall,
}

/// What an update sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    V(i32),
    Add(i32),
    /// `at_ms` is so many milliseconds after `clock_timestamp()`.
    Lease(i32),
}

/// In which order rows are looked at, and so locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Id,
    V,
}

/// What an insert does about a row that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnConflict {
    Fail,
    Nothing,
    /// Adds its `v` to that of the row, where that one's is this (or whatever it is).
    Add {
        only_if: Option<i32>,
    },
}

/// One thing that a session does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    Begin,
    Commit,
    Rollback,
    Set(Settings),
    Read(Table, Filter),
    Lock {
        table: Table,
        filter: Filter,
        strength: Strength,
        policy: Policy,
        order: Order,
        limit: Option<u32>,
    },
    Update(Table, Filter, Change),
    Delete(Table, Filter),
    Insert(Table, i32, i32, OnConflict),
    Advisory {
        key: i32,
        shared: bool,
        scope: Scope,
        wait: bool,
    },
    Unlock {
        key: i32,
        shared: bool,
    },
    Sleep(u32),
    /// A statement that fails (22012).
    Fail,
}

impl Op {
    /// Locks rows and waits for them.
    pub fn lock(table: Table, filter: Filter, strength: Strength) -> Op {
        Op::Lock { table, filter, strength, policy: Policy::Wait, order: Order::Id, limit: None }
    }

    /// The same by another policy.
    pub fn lock_or(table: Table, filter: Filter, strength: Strength, policy: Policy) -> Op {
        Op::Lock { table, filter, strength, policy, order: Order::Id, limit: None }
    }

    /// A session's advisory lock, waited for.
    pub fn advisory(key: i32) -> Op {
        Op::Advisory { key, shared: false, scope: Scope::Session, wait: true }
    }

    /// Whether it is one of those that stand alone between transactions.
    pub fn is_control(&self) -> bool {
        matches!(self, Op::Begin | Op::Commit | Op::Rollback | Op::Set(_))
    }
}

/// What a statement gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Got {
    /// Id and `v`, in the order in which they came.
    Rows(Vec<(i32, i32)>),
    /// Whether it has the lock, or had it.
    Flag(bool),
    Done,
    /// A COMMIT that rolled back says so in its tag alone.
    RolledBack,
}

/// A step of a script. Sessions are numbered from 1.
#[derive(Clone, Debug)]
pub enum Step {
    /// A session does something.
    Do(u32, Op, Expect),
    /// The statement that waited has ended.
    Ends(u32, Expect),
    /// A statement still waits, for these sessions.
    Waits(u32, Vec<u32>),
    /// `pg_terminate_backend`.
    Terminate(u32),
    /// The client's connection is gone.
    Vanish(u32),
    /// The backend stands still (SIGSTOP), and goes on.
    Freeze(u32),
    Thaw(u32),
    /// The backend is gone by now.
    Gone(u32),
    /// Time passes, in milliseconds.
    Pause(u64),
    /// The server is killed, and started again.
    Crash,
    /// What is committed in a table.
    Holds(Table, Vec<(i32, i32)>),
}
