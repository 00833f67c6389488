//! The loop that feeds a node: inputs in, one at a time; effects out, until there are none; then wait.
//!
//! * [`handle`]: how the fronts reach the loop.
//! * [`backend`]: how the loop reaches a store.
//! * [`record`]: a store that remembers what it was given to write. [`witness`]: what each statement of a store gave.
//! * [`run`]: the loop itself.
//! * [`clock`]: the clocks of the process.
//! * [`log`]: typed log events as `tracing` events.

pub mod backend;
pub mod clock;
pub mod handle;
pub mod log;
pub mod record;
pub mod run;
pub mod witness;

pub use backend::{Attached, Backend, StoreReply};
pub use clock::Clock;
pub use handle::{NodeHandle, Pending, Unavailable};
pub use run::{Driver, DriverTask, Reason};
pub use witness::Witness;
