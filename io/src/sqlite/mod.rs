//! The store on an embedded SQLite file: the transactions of [`orbit_core::store`], by the same pure judgement.
//!
//! * [`open`]: opening a file: its lock, its tables, its durability.
//! * [`schema`]: the tables.
//! * [`backend`]: the threads that transactions run on.
//! * `session`: one connection that runs transactions.
//! * `statement`: each statement as SQL.
//! * [`facts`]: what an error of SQLite says.
//! * [`mod@peek`]: a look at a database that a server may have open.
//!
//! One process has the file open (a lock beside it says so), and whoever writes holds SQLite's write lock from the
//! first statement on, so nothing here is ever busy (protocols, 33). The clock is the process's own.

pub mod backend;
mod connect;
pub mod facts;
mod lock;
pub mod open;
pub mod peek;
pub mod schema;
mod session;
mod statement;
mod utc;

pub use backend::SqliteBackend;
pub use connect::{Durability, Synchronous};
pub use open::{OpenError, SqliteStore};
pub use peek::{Peek, PeekError, peek};
