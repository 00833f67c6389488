//! What a server knows of its place: its role, its fence, and the cluster's time.

pub mod clock;
pub mod detector;
pub mod placement;
pub mod role;

pub use role::{Elected, Election, Mode, OnLostLease, Recovery, Role, Standby};
