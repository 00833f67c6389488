//! The model of PostgreSQL, statement by statement, in READ COMMITTED (design, section 11.1).
//!
//! It follows `postgres-rules`, whose numbers (R1 …) the comments name:
//!
//! * [`table`]: rows and their versions, snapshots, the four strengths of locks on rows.
//! * [`lock`]: the lock manager: lines of those who wait, advisory locks, deadlocks.
//! * [`session`]: sessions with their transactions, settings and timers. [`error`]: how things end.
//! * [`engine`]: the server, ask and tell. [`context`]: the primitives that statements are made of.
//! * [`store`]: Orbit's statements, as programs over those primitives.
//! * [`script`]: a small language of steps over those primitives, which runs on the model and on a real server alike;
//!   [`rules`]: the rules, as such scripts.
//!
//! It has no thread, no clock and no randomness: what happens when is the caller's to say.

pub mod context;
pub mod engine;
pub mod error;
pub mod lock;
pub mod rules;
pub mod script;
pub mod session;
pub mod store;
pub mod table;

pub use context::{Context, Found, Inserted, Locked, Policy};
pub use engine::{Choices, Counts, Domain, Engine, Explored, Flaw, SessionId, TooMany, Writable, outcomes};
pub use error::{Code, Severity, SqlError, Stop};
pub use lock::Scope;
pub use session::{Answer, Command, Outcome, Settings};
pub use table::Strength;
