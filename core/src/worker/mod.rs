//! Workers: their sessions, what they hold, and which of their polls gets which task (protocols, 23 to 26).
//!
//! * [`alive`]: what an execution that waits for workers is told of them.
//! * [`session`]: who is there, since when silent, and what each holds.
//! * [`attempt`]: the open deliveries of this server, and who has each.
//! * [`poll`]: the long polls that wait, and their reservations.

pub mod alive;
pub mod attempt;
pub mod poll;
pub mod session;
