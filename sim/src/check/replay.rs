//! Histories are exactly what `decide` yields.

use super::history::Tracked;
use super::{Checked, Violation};
use orbit_core::execution::replay;
use orbit_core::id::ExecutionId;

/// Runs the history through `decide` again.
pub fn check(id: &ExecutionId, tracked: &Tracked) -> Checked {
    match replay(&tracked.definition, id, &tracked.events) {
        Ok(_) => Ok(()),
        Err(difference) => Err(Violation::safety("replay", format!("{id}: {difference}"))),
    }
}
