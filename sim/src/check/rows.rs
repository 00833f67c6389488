//! What other rows say of an execution: its summary names its run; a task row stands for each attempt that waits for a
//! worker and no other; an owner row is there while it runs, and wakes it no later than it wants to be woken.

use super::history::Tracked;
use super::runs::Position;
use super::{Checked, Violation, ensure};
use crate::store::ModelStore;
use orbit_core::id::{ExecutionId, UnitKey};
use orbit_core::store::append::Wake;
use std::collections::BTreeSet;

const CHECK: &str = "rows";

impl Tracked {
    /// See the module's documentation.
    pub(super) fn rows_follow(&self, id: &ExecutionId, store: &ModelStore) -> Checked {
        let rows: BTreeSet<(&UnitKey, u32)> =
            store.tasks().filter(|t| t.row.execution == *id).map(|t| (&t.row.unit, t.row.attempt)).collect();
        let queued: BTreeSet<(&UnitKey, u32)> = match self.ended {
            // Of what is held nothing can be claimed, nor is any time awaited.
            None if self.held.is_some() => BTreeSet::new(),
            None => self.queued.iter().map(|(unit, (attempt, _))| (unit, *attempt)).collect(),
            Some(_) => BTreeSet::new(),
        };
        ensure!(rows == queued, CHECK, "{id} has the task rows {rows:?}, and these attempts wait: {queued:?}");
        let run = store.executions().get(id).map(|row| row.run);
        ensure!(run == Some(self.run), CHECK, "{id} is in run {}, and its row says {run:?}", self.run);
        let wake = match (self.ended, store.owners().get(id)) {
            (Some(_), None) => return Ok(()),
            (None, Some(owner)) => {
                let there = Position { run: owner.run, seq: owner.last };
                ensure!(
                    there == self.position(),
                    CHECK,
                    "{id}{} is the last, and its owner row says {there}",
                    self.position()
                );
                owner.wake
            }
            (ended, owner) => {
                return Err(Violation::safety(CHECK, format!("{id} ended: {ended:?}, but its owner row: {owner:?}")));
            }
        };
        let timeouts = self
            .queued
            .iter()
            .filter_map(|(unit, (_, since))| self.definition.task_of(unit)?.queue_timeout.map(|limit| *since + limit));
        let whole = self.times_out().filter(|_| !self.course.winds_down());
        let wants = self.waiting.values().copied().chain(timeouts).chain(whole).min();
        let wants = wants.filter(|_| self.held.is_none());
        let in_time = match (wake, wants) {
            (Wake::Hot, _) | (_, None) => true,
            (Wake::At(at), Some(wants)) => at <= wants,
            (Wake::Never, Some(_)) => false,
        };
        ensure!(in_time, CHECK, "{id} wants to wake at {wants:?}, and its row says {wake:?}");
        Ok(())
    }
}
