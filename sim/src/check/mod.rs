//! What must hold, always: named checks, fed by every commit of the database and by everything that leaves a server.
//!
//! A check sees what an outsider could see (committed transactions, answers, log lines) and never the node's memory.
//!
//! * [`fence`]: one writer per term, and none after a newer one.
//! * [`lease`]: one holder at a time, by the database's clock, and nothing written after it is given back.
//! * [`history`]: histories are gapless, end once, and say only what workers said and what the definition allows.
//! * [`hold`]: what a server that takes over is to hold it holds before anything else, and nothing more.
//! * `rows`: the rows beside a history say the same of it.
//! * [`runs`]: the runs of an execution follow each other without a gap, each from what the one before left to it.
//! * [`course`]: items, handlers, winding down, compensation and the end follow from the definition and the history.
//! * [`custody`]: no attempt is taken from a worker that was heard of in time.
//! * [`family`]: children begin and end with what their parents say of them, and none outlives its parent.
//! * [`interpreter`]: every execution ends as a second way to run its definition says.
//! * [`replay`]: histories are exactly what `decide` yields.
//! * [`delivery`]: a task that is handed out is recorded; a repeat says so.
//! * [`promise`]: what is acknowledged is durable, what is refused is absent.
//! * [`signal`]: what is sent to an execution and acknowledged is recorded once and taken once, in order, or left over.
//! * [`queue`]: what is queued is claimed for a poll that waits.
//! * [`read`]: nothing is shown that is not committed, and nothing older than what was shown before.
//! * [`nodes`]: a server's name is taken from another only once that one has been silent; one that never led writes
//!   nothing but its own row.
//! * [`owners`]: in shared mode, every tree has one owner at a time, who alone writes to it.
//! * [`standby`]: a server that does not lead asks for nothing that changes more than its own row.
//! * [`log`]: no line of level ERROR that no injected fault explains.
//! * [`verdict`]: what a server is told of its calls is so.
//! * [`validity`]: nothing is served as leader past the last good check.
//! * [`progress`]: a leader whose appends hang while the database takes other writes lets others lead.
//! * [`patience`]: long polls and waits end early only with something to say, and do end.
//! * [`pace`]: nothing spins, whatever fails.
//! * [`liveness`]: once the world is healed, everything comes to its end, or there is a reason to read.
//!
//! [`catalogue`] has them by their names, each with its promise and its "sometimes".

pub mod catalogue;
pub mod course;
pub mod custody;
pub mod delivery;
pub mod family;
pub mod fence;
pub mod history;
pub mod hold;
pub mod interpreter;
pub mod lease;
pub mod liveness;
pub mod log;
pub mod nodes;
pub mod owners;
pub mod pace;
pub mod patience;
pub mod progress;
pub mod promise;
pub mod queue;
pub mod read;
pub mod replay;
mod rows;
pub mod runs;
pub mod signal;
pub mod standby;
pub mod validity;
pub mod verdict;
pub mod violation;

pub(crate) use violation::ensure;
pub use violation::{Checked, Violation};

use crate::coverage::Coverage;
use crate::postgres::SessionId;
use crate::store::{Commit, ModelStore};
use crate::world::book::Book;
use crate::world::clock::Time;
use crate::world::network::Exchange;
use crate::world::server::Pid;
use orbit_core::api::Response;
use std::time::Duration;

/// All checks of a run: on each timeline of the database its own.
#[derive(Clone, Debug, Default)]
pub struct Checks {
    pub fence: fence::FenceCheck,
    pub lease: lease::LeaseCheck,
    pub history: history::HistoryCheck,
    pub hold: hold::HoldCheck,
    pub family: family::FamilyCheck,
    pub delivery: delivery::DeliveryCheck,
    pub promise: promise::PromiseCheck,
    pub signal: signal::SignalCheck,
    pub read: read::ReadCheck,
    pub pace: pace::PaceCheck,
    pub nodes: nodes::NodesCheck,
    pub custody: custody::CustodyCheck,
    pub queue: queue::QueueCheck,
    pub verdict: verdict::VerdictCheck,
}

/// A transaction that has just committed.
#[derive(Debug)]
pub struct Committed<'a> {
    pub commit: &'a Commit,
    /// The tables after it.
    pub store: &'a ModelStore,
    pub book: &'a Book,
    /// Whether the database's clock has never stepped in this run.
    pub steady_clock: bool,
    pub now: Time,
    /// Whether it was sent by a server that lives, and has never led.
    pub by_follower: bool,
    /// Whether whoever sent it has given it up, or is gone.
    pub late: bool,
    /// Who did it; none where nobody is there any more.
    pub by: Option<By>,
    /// The process that sent it, if it lives.
    pub pid: Option<Pid>,
    /// So long a worker may be silent.
    pub session_timeout: Duration,
    /// The server whose session holds the election lock now.
    pub locked_by: Option<Pid>,
    /// The version that the tables are of.
    pub schema: u32,
}

/// Who did something.
#[derive(Clone, Copy, Debug)]
pub struct By {
    /// On this session.
    pub session: SessionId,
    pub pid: Pid,
    /// The newest version of the tables that it knows.
    pub knows: u32,
}

impl<'a> Committed<'a> {
    /// By a server that is alone on its database, at the beginning of time.
    pub fn alone(commit: &'a Commit, store: &'a ModelStore, book: &'a Book, steady_clock: bool) -> Committed<'a> {
        Committed {
            commit,
            store,
            book,
            steady_clock,
            now: Time(0),
            by_follower: false,
            late: false,
            by: None,
            pid: None,
            session_timeout: Duration::ZERO,
            locked_by: None,
            schema: 0,
        }
    }
}

/// An answer that leaves a server.
#[derive(Debug)]
pub struct Answer<'a> {
    pub exchange: &'a Exchange,
    pub response: &'a Response,
    pub store: &'a ModelStore,
    /// Whether the server that answers is the one that may write.
    pub current: bool,
    /// Whether it shows nothing but what it has just read from the database.
    pub reads: bool,
    /// Whether it has been told to stop.
    pub stopping: bool,
    /// Whether the answer is handed to the network, or dropped since nobody waits.
    pub on_the_wire: bool,
    /// Whether nothing is broken since long before it was asked, and the server takes its time to answer.
    pub calm: bool,
    /// A poll may be answered with nothing after half of it.
    pub session_timeout: Duration,
    pub now: Time,
}

impl Answer<'_> {
    /// Whether it shows no less than what is committed.
    pub fn is_new(&self) -> bool {
        self.current || self.reads
    }
}

impl Checks {
    /// After every commit.
    pub fn on_commit(&mut self, committed: &Committed<'_>, marks: &mut Coverage) -> Checked {
        self.fence.on_commit(committed)?;
        self.verdict.on_commit(committed)?;
        self.custody.on_commit(committed)?;
        self.lease.on_commit(committed)?;
        self.nodes.on_commit(committed, marks)?;
        self.hold.on_commit(committed, &self.history, marks)?;
        self.history.on_commit(committed, marks)?;
        self.family.on_commit(committed, marks)?;
        self.signal.on_commit(committed, &self.history, marks)
    }

    /// Before every answer leaves.
    pub fn on_answer(&mut self, answer: &Answer<'_>, book: &mut Book, marks: &mut Coverage) -> Checked {
        patience::on_answer(answer)?;
        self.family.on_answer(answer);
        self.delivery.on_answer(answer, &self.history, marks)?;
        self.promise.on_answer(answer, &self.history, book, marks)?;
        self.signal.on_answer(answer, &self.history, book, marks)?;
        self.read.on_answer(answer, &self.history, marks)
    }

    /// At the end of the run.
    pub fn at_end(&mut self, store: &ModelStore, book: &Book, limits: interpreter::Limits) -> Checked {
        self.history.at_end(store)?;
        for (id, runs) in self.history.all_runs() {
            interpreter::check(id, runs, limits)?;
        }
        self.promise.at_end(store, book)?;
        self.signal.at_end(&self.history, book)
    }
}
