//! The store on PostgreSQL: the transactions of [`orbit_core::store`] over the wire (design, section 5).
//!
//! * [`address`]: what `postgres://…` means here, TLS included. `tls`: how certificates are judged.
//! * [`open`]: opening a database: its checks, its tables. [`migrate`]: the versions of the tables.
//! * [`backend`]: the threads that transactions run on, and how a hung one is given up.
//! * `connect`: a connection as Orbit wants it. `session`: one connection that runs transactions.
//! * `pool`: the connections of requests. `statement`: each statement as SQL.
//! * [`facts`]: what an error of PostgreSQL says. [`figures`]: what grows old in a database, for the metrics.
//! * [`mod@peek`]: a look at a database that a server may have open. [`lease`] and [`mode`]: what commands do to one;
//!   `tool`: their connection.
//!
//! The crate `postgres` blocks, and panics inside an asynchronous task, even when a connection is dropped there: every
//! connection is made, used and dropped on a thread of this module.

pub mod address;
pub mod backend;
mod connect;
pub mod facts;
pub mod figures;
pub mod lease;
pub mod migrate;
pub mod mode;
pub mod open;
pub mod peek;
mod pool;
mod session;
mod statement;
mod tls;
mod tool;

pub use address::{Address, AddressError};
pub use backend::PostgresBackend;
pub use connect::{ServerName, ServerSettings, Timeouts};
pub use open::{Migrate, OpenError, Pooler, PostgresStore};
pub use peek::{PeekError, peek};
