//! A `for` step that has its list.

use crate::execution::event::Json;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;

/// The items of a `for` step and how far each is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Fan {
    pub items: Vec<Json>,
    status: Vec<ItemStatus>,
    /// No item before this one waits to begin.
    begun: usize,
    open: u32,
    done: usize,
}

/// How far an item is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
enum ItemStatus {
    Waiting,
    Open,
    /// With its output.
    Done(Json),
    /// Failed or cancelled.
    Ended,
    /// Done, and its output stands in that of the step.
    Gathered,
}

impl Fan {
    pub(super) fn new(items: Vec<Json>) -> Fan {
        let status = vec![ItemStatus::Waiting; items.len()];
        Fan { items, status, begun: 0, open: 0, done: 0 }
    }

    /// The items that may begin now, at most `parallel` being under way.
    pub fn to_begin(&self, parallel: u32) -> impl Iterator<Item = u32> {
        let free = usize::try_from(parallel.saturating_sub(self.open)).unwrap_or(usize::MAX);
        let waiting = (self.begun..self.status.len()).filter(|at| self.status[*at] == ItemStatus::Waiting);
        waiting.take(free).filter_map(|at| u32::try_from(at).ok())
    }

    /// Whether every item ended well.
    pub fn is_done(&self) -> bool {
        self.done == self.items.len()
    }

    /// How many items ended well.
    pub fn ended(&self) -> u64 {
        self.done as u64
    }

    /// What an item gave; none once the step's output holds it.
    pub fn output(&self, index: u32) -> Option<&Json> {
        match self.status.get(index as usize)? {
            ItemStatus::Done(output) => Some(output),
            _ => None,
        }
    }

    /// Whether an item has begun and not ended.
    pub fn is_open(&self, index: u32) -> bool {
        matches!(self.status.get(index as usize), Some(ItemStatus::Open))
    }

    /// Whether an item waits to begin.
    pub fn waits(&self, index: u32) -> bool {
        matches!(self.status.get(index as usize), Some(ItemStatus::Waiting))
    }

    /// The values that it holds.
    pub(super) fn values(&self) -> impl Iterator<Item = &Json> {
        let outputs = self.status.iter().filter_map(|status| match status {
            ItemStatus::Done(output) => Some(output),
            _ => None,
        });
        self.items.iter().chain(outputs)
    }

    fn set(&mut self, index: u32, status: ItemStatus) {
        let Some(before) = self.status.get_mut(index as usize) else { return };
        match before {
            ItemStatus::Waiting => {}
            ItemStatus::Open => self.open -= 1,
            // It is over.
            ItemStatus::Done(_) | ItemStatus::Ended | ItemStatus::Gathered => return,
        }
        match status {
            ItemStatus::Open => self.open += 1,
            ItemStatus::Done(_) => self.done += 1,
            _ => {}
        }
        *before = status;
        while matches!(self.status.get(self.begun), Some(status) if *status != ItemStatus::Waiting) {
            self.begun += 1;
        }
    }

    /// An item began.
    pub(super) fn begin(&mut self, index: u32) {
        self.set(index, ItemStatus::Open);
    }

    /// An item ended well.
    pub(super) fn succeed(&mut self, index: u32, output: Json) {
        self.set(index, ItemStatus::Done(output));
    }

    /// An item failed, or was cancelled.
    pub(super) fn end(&mut self, index: u32) {
        self.set(index, ItemStatus::Ended);
    }

    /// The outputs as one list, which holds them from now on.
    pub(super) fn gather(&mut self) -> Value {
        let take = |status: &mut ItemStatus| match std::mem::replace(status, ItemStatus::Gathered) {
            ItemStatus::Done(output) => Arc::unwrap_or_clone(output),
            _ => Value::Null,
        };
        Value::Array(self.status.iter_mut().map(take).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn fan(items: u32) -> Fan {
        Fan::new((0..items).map(|n| json!(n).into()).collect())
    }

    fn next(fan: &Fan, parallel: u32) -> Vec<u32> {
        fan.to_begin(parallel).collect()
    }

    #[test]
    fn no_more_items_are_under_way_than_are_allowed_in_whatever_order_they_begin_and_end() {
        let mut fan = fan(5);
        assert_eq!(next(&fan, 2), [0, 1]);
        fan.begin(1);
        assert_eq!(next(&fan, 2), [0]);
        fan.begin(0);
        assert!(next(&fan, 2).is_empty());
        fan.succeed(1, json!("one").into());
        assert_eq!(next(&fan, 2), [2]);
        fan.succeed(0, json!("none").into());
        assert_eq!(next(&fan, 3), [2, 3, 4]);
        // What is over stays as it is.
        fan.begin(0);
        fan.end(1);
        assert_eq!((fan.output(0), fan.output(1)), (Some(&json!("none").into()), Some(&json!("one").into())));
        assert_eq!(next(&fan, 3), [2, 3, 4]);
    }

    #[test]
    fn the_outputs_are_gathered_in_the_order_of_the_items() {
        let mut fan = fan(3);
        for index in [2, 0, 1] {
            assert!(!fan.is_done());
            fan.begin(index);
            fan.succeed(index, json!(index * 10).into());
        }
        assert!(fan.is_done());
        assert_eq!(fan.gather(), json!([0, 10, 20]));
        assert!(fan.is_done() && fan.output(0).is_none());
    }
}
