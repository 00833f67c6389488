//! Executions: events, the state that they fold to, and the decisions about it (design, section 6).
//!
//! * [`event`]: what a history is made of.
//! * [`state`]: what a history folds to, by [`State::apply`].
//! * [`mod@admit`]: takes a command in: an event, or a refusal.
//! * [`mod@decide`]: what follows from a state, asked until it has nothing more.
//! * [`mod@waiting`]: what a state waits for, for people.
//! * [`mod@replay`]: runs a recorded history through today's `decide` and names the first difference.
//!
//! All of them are pure and total: no sequence of commands or events makes them panic.

pub mod admit;
mod apply;
mod attempts;
mod block;
pub mod decide;
pub mod event;
pub mod fan;
pub mod replay;
pub mod retry;
pub mod rollover;
pub mod state;
pub mod waiting;
mod wind_down;

pub use admit::{ChildEnd, Command, Refusal, admit};
pub use block::render as evaluate;
pub use decide::{decide, next_wake};
pub use event::{Event, Identity, Json, Recorded, TaskError};
pub use replay::{Difference, replay};
pub use rollover::next_run;
pub use state::{Abort, Asked, End, Hold, Phase, State, Unit, UnitStatus};
pub use waiting::{Waiting, waiting};
