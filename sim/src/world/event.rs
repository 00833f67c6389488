//! Everything that can be in the world's event queue.

use super::network::Heard;
use super::postgres::{Heard as Answered, LinkId, Message};
use super::server::Pid;
use crate::fault::Strike;
use crate::postgres::SessionId as BackendId;
use orbit_core::node::{CallId, RequestId};
use orbit_core::store::outcome::Reply;
use orbit_core::store::transaction::Verdict;

/// Something that happens at its time.
#[derive(Clone, Debug)]
pub enum Event {
    /// A supervisor starts a server, unless one lives.
    StartServer,
    Process(Pid, ProcessEvent),
    /// The one who asked hears of its request.
    Hears(RequestId, Heard),
    /// A client goes on.
    Client(usize),
    /// A worker goes on, if this life of it has not ended.
    Worker(usize, u32, WorkerEvent),
    /// Something reaches the database, or (none) its own time has come.
    Database(Option<(LinkId, Message)>),
    /// A backend that stood still goes on.
    Thaw(BackendId),
    /// A session that is no server's locks the row that appends lock, once it has begun.
    LocksRow(BackendId),
    /// It ends.
    FreesRow(BackendId),
    /// The database takes writes again.
    WritesAgain,
    /// The database can be connected to again.
    DatabaseUp,
    /// A scenario wants this to happen to a server, which has come to the moment for it.
    Strikes(Pid, Strike),
    /// The replica that lags is promoted.
    Promotes,
    /// The primary of before a promotion, of this timeline, is no more.
    OldPrimaryEnds(u32),
    /// The tables are brought to the next version.
    Migrates,
    /// The operator goes on with a change of the mode.
    Operator,
    /// The world looks for new troubles.
    Tick,
    /// The chaos is over.
    Heal,
    /// The world looks whether everything has come to its end.
    Look,
}

/// Something that happens to a server's process; it waits while the process is paused.
#[derive(Clone, Debug)]
pub enum ProcessEvent {
    /// Its timer, if it was set for the last time in this generation.
    Wake(u64),
    /// The database takes up a call.
    Runs(CallId),
    /// A call's reply comes.
    Replies(CallId, Reply<Verdict>),
    /// Something comes back from the database.
    Database(LinkId, Answered),
    /// A request comes.
    Arrives(RequestId),
    /// The one who asked is gone.
    Gone(RequestId),
    /// An answer could not be written.
    AnswerLost(RequestId),
    /// It goes on after a pause.
    Resumes,
    /// By now it must have stopped.
    StopBound,
}

/// What a worker does by itself.
#[derive(Clone, Debug)]
pub enum WorkerEvent {
    /// It registers, or polls again.
    Goes,
    Heartbeat,
    /// A task is done.
    Done(orbit_core::id::Token),
    /// It goes on after a pause.
    Resumes,
    /// It begins again after its death.
    Revives,
}
