//! A task that waits in the queue is claimed for a poll that waits beside it.

use super::{Checked, Violation};
use crate::world::clock::Time;
use orbit_core::api::request::Contract;
use orbit_core::id::TaskId;
use orbit_core::store::append::TaskState;
use std::collections::BTreeMap;

const CHECK: &str = "queue";

/// A row has its turn sooner, in a world in which nothing is broken: each claim takes several calls of a slow database, and
/// those that were queued before go before.
const CLAIM_MS: u64 = 5_000;

/// A poll that waits at the server that leads, and has brought no results.
#[derive(Clone, Debug)]
pub struct Waiting<'a> {
    pub since: Time,
    pub contracts: &'a [Contract],
}

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct QueueCheck {
    /// Since when each row is known to be queued.
    since: BTreeMap<TaskId, Time>,
}

impl QueueCheck {
    /// Now and then, while nothing is broken.
    pub fn on_look(&mut self, store: &crate::store::ModelStore, polls: &[Waiting<'_>], now: Time) -> Checked {
        let queued = store.tasks().filter(|task| task.state == TaskState::Queued);
        let rows: Vec<_> = queued.map(|task| &task.row).collect();
        self.since = rows.iter().map(|row| (row.task.clone(), *self.since.get(&row.task).unwrap_or(&now))).collect();
        for row in rows {
            let since = self.since[&row.task];
            let could = |poll: &&Waiting<'_>| {
                let takes = |c: &Contract| c.task_name == row.task_name && c.contract_version == row.contract_version;
                now.since_ms(poll.since.max(since)) > CLAIM_MS && poll.contracts.iter().any(takes)
            };
            if let Some(poll) = polls.iter().find(could) {
                let message =
                    format!("{} is queued since {since:?}, and a poll waits since {:?}", row.task, poll.since);
                return Err(Violation::liveness(CHECK, message));
            }
        }
        Ok(())
    }

    /// Something is broken: what waits has its reason.
    pub fn begin_again(&mut self) {
        self.since.clear();
    }
}
