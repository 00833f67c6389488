//! The loop that feeds a node.

pub mod handle;

pub use handle::{NodeHandle, Pending, Unavailable};
