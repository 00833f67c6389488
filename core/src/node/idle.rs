//! Executions in memory that wait for the outside: they may leave it, the one that was idle longest first.

use super::slot::Slot;
use crate::id::ExecutionId;
use crate::time::Mono;
use std::collections::BTreeSet;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Idle {
    order: BTreeSet<(u64, ExecutionId)>,
    /// About how many bytes of memory they take.
    bytes: u64,
    touches: u64,
    /// Those whose rows say when they want to come back, each with the time since when nothing happens to it.
    resting: BTreeSet<(Mono, ExecutionId)>,
}

impl Idle {
    /// An execution has nothing to do.
    pub fn add(&mut self, execution: &ExecutionId, slot: &mut Slot) {
        self.remove(execution, slot);
        self.touches += 1;
        slot.idle = Some(self.touches);
        self.order.insert((self.touches, execution.clone()));
        self.bytes += slot.bytes;
    }

    /// It has something to do, or leaves memory: before the size of its slot changes.
    pub fn remove(&mut self, execution: &ExecutionId, slot: &mut Slot) {
        if let Some(at) = slot.idle.take() {
            self.order.remove(&(at, execution.clone()));
            self.bytes -= slot.bytes;
        }
        if let Some(since) = slot.rests.take() {
            self.resting.remove(&(since, execution.clone()));
        }
    }

    /// Nothing happens to an execution for now, and its row says when it wants to come back: it leaves after a while,
    /// unless something happens to it. One that signals reach again and again is not read again for each of them.
    pub fn rest(&mut self, execution: &ExecutionId, slot: &mut Slot, now: Mono) {
        assert!(slot.queue.is_empty() && !slot.in_flight, "an execution that has something to do does not rest");
        slot.rests = Some(now);
        self.resting.insert((now, execution.clone()));
    }

    /// The one that rests longest, and since when.
    pub fn resting(&self) -> Option<(Mono, &ExecutionId)> {
        self.resting.first().map(|(since, execution)| (*since, execution))
    }

    /// The one that is to leave first, where there are more or larger ones than that.
    pub fn beyond(&self, max_executions: u64, max_bytes: u64) -> Option<&ExecutionId> {
        let beyond = self.order.len() as u64 > max_executions || self.bytes > max_bytes;
        self.order.first().filter(|_| beyond).map(|(_, execution)| execution)
    }
}
