//! Orbit's hands: runs the effects of `orbit_core` against databases and sockets, and reports what it saw.
//!
//! Nothing here decides: a branch that can affect correctness belongs in `orbit_core`, where `sim` runs it too.

pub mod contents;
pub mod definition;
pub mod driver;
pub mod http;
pub mod postgres;
pub mod sqlite;
