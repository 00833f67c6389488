//! Counters, from committed events alone (interface facts, part 6).

use serde::{Deserialize, Serialize};

/// What has happened on this server since it started. `io::http::metrics` makes `orbit_…_total` of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub executions_started: u64,
    pub executions_completed: u64,
    pub executions_failed: u64,
    pub executions_cancelled: u64,
    pub executions_timed_out: u64,
    pub executions_terminated: u64,
    pub executions_continued_as_new: u64,
    /// Held by a server that took over; and recovered by somebody since.
    pub executions_held: u64,
    pub executions_recovered: u64,
    pub tasks_dispatched: u64,
    /// Of those, handed over inside the append that scheduled them.
    pub tasks_dispatched_directly: u64,
    pub tasks_succeeded: u64,
    pub task_attempts_failed: u64,
    pub task_attempts_uncertain: u64,
    pub retries_scheduled: u64,
    pub steps_skipped: u64,
    pub stale_results: u64,
    pub timers_fired: u64,
    pub signals_received: u64,
    pub updates_accepted: u64,
    pub compensations_started: u64,
    pub compensations_failed: u64,
    pub events_committed: u64,
    /// Appends that committed, and groups written by them.
    pub appends: u64,
    pub append_groups: u64,
    /// Groups rejected because the fence had moved.
    pub appends_fenced: u64,
    /// Times that this server of a cluster came to lead after another leadership.
    pub failovers: u64,
    /// Store calls whose outcome was unknown at first.
    pub calls_unknown: u64,
    /// Executions loaded from the store, and parked again.
    pub executions_loaded: u64,
    pub executions_parked: u64,
    /// Steps of the database's clock: backward, and forward past 5 s.
    pub clock_steps: u64,
}
