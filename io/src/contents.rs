//! What a database says of itself, whichever it is: for `orbit status --db`.

use orbit_core::store::append::Status;
use orbit_core::store::statement::FenceRow;

/// What is in a database, all of one moment.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// Cluster id, mode, term, and who holds it. A server that was killed stays named until the next one starts.
    pub fence: FenceRow,
    /// Executions by status; statuses without any are left out.
    pub executions: Vec<(Status, u64)>,
    /// Tasks that wait for a worker in the queue.
    pub queued_tasks: u64,
    /// Tasks that a waiting poll has claimed and that are not dispatched yet.
    pub claimed_tasks: u64,
    /// Registered workers, present or not.
    pub workers: u64,
    /// Deployed versions of workflows.
    pub definitions: u64,
}
