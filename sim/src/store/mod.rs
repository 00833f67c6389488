//! The model of the database: what SQLite does, over ordered maps (protocols, 33).
//!
//! * `tables`: the rows, and what they look like from outside ([`ModelStore::dump`]).
//! * `write` and `read`: each [`Statement`] of `core::store`, one function each.
//! * `append`: the facts that [`orbit_core::store::append::judge`] is asked about, and the writing of a group.
//! * [`commit`]: what a committed transaction changed, for the checks.
//!
//! It is durable, apart from any process, and has one writer at a time: a transaction happens at one moment, whole or
//! not at all. When it happens, and whether its reply is heard of, is the world's business (`world::disk`). The model
//! of another database is a sibling of this module that runs the same [`Transaction`]s.

pub(crate) mod append;
pub mod commit;
pub(crate) mod lease;
pub(crate) mod ownership;
mod read;
pub(crate) mod tables;
pub(crate) mod write;

pub(crate) use append::assert_batch;
pub use commit::{Change, Commit};
pub use tables::{EventRow, ExecutionRow, TaskEntry};

use orbit_core::id::{CallKey, ClusterId, ExecutionId, Run};
use orbit_core::store::append::{Fence, OwnerRow};
use orbit_core::store::executor::{Ask, Executor};
use orbit_core::store::lease::LeaseRow;
use orbit_core::store::outcome::Reply;
use orbit_core::store::statement::{DefinitionRow, Holder, LeaseSeen, LockState, NodeRow, NodeRows, Rows, Statement};
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_core::time::ClusterMs;
use std::collections::BTreeMap;
use tables::Tables;

/// A database in memory. See the module's documentation.
#[derive(Clone, Debug)]
pub struct ModelStore {
    tables: Tables,
    clock: ClusterMs,
    lock: LockState,
}

impl ModelStore {
    /// A database whose tables were just made.
    pub fn new(cluster_id: ClusterId) -> ModelStore {
        ModelStore { tables: Tables::new(cluster_id), clock: ClusterMs(0), lock: LockState::Mine }
    }

    /// What the database's clock shows from now on.
    pub fn set_clock(&mut self, clock: ClusterMs) {
        self.clock = clock;
    }

    /// Whose the election lock is from now on, for those who ask. Whose process has the file open has it.
    pub fn set_lock(&mut self, lock: LockState) {
        self.lock = lock;
    }

    /// A replica was promoted: what waits may have been handed out before.
    pub fn doubt_tasks(&mut self) {
        self.tables.tasks.values_mut().for_each(|task| task.repeat = true);
    }

    /// Somebody deletes every definition.
    pub fn forget_definitions(&mut self) {
        self.tables.definitions.clear();
    }

    /// What the database's clock shows.
    pub fn clock(&self) -> ClusterMs {
        self.clock
    }

    /// Runs one transaction to its end, without faults.
    pub fn run(&mut self, transaction: Transaction) -> Reply<Verdict> {
        self.execute(transaction).0
    }

    /// The same, and what it changed.
    pub fn execute(&mut self, transaction: Transaction) -> (Reply<Verdict>, Commit) {
        self.execute_seen(transaction, |_| {})
    }

    /// The same, and somebody sees what each statement gives.
    pub fn execute_seen(
        &mut self,
        transaction: Transaction,
        mut sees: impl FnMut(&[Rows]),
    ) -> (Reply<Verdict>, Commit) {
        let mut commit = Commit { transaction: transaction.name(), changes: Vec::new() };
        let mut executor = Executor::new(transaction);
        // Only a transaction of several steps can be rolled back after it wrote, so only that one works on a copy.
        let mut open: Option<Tables> = None;
        loop {
            let (statements, last) = match executor.ask() {
                Ask::Rollback(verdict) => {
                    commit.changes.clear();
                    return (Reply::Done(verdict), commit);
                }
                Ask::Send(statements, frame) => {
                    use orbit_core::store::executor::Frame;
                    if frame == Frame::Begin {
                        open = Some(self.tables.clone());
                    }
                    (statements, matches!(frame, Frame::Auto | Frame::Whole | Frame::Commit))
                }
            };
            let tables = open.as_mut().unwrap_or(&mut self.tables);
            let rows: Vec<Rows> = statements
                .into_iter()
                .map(|s| match s {
                    Statement::TakeLock(_) => Rows::TakeLock(self.lock),
                    Statement::StandInLine(_) => Rows::StandInLine(()),
                    Statement::FreeLock(_) => Rows::FreeLock(false),
                    s => run_statement(tables, self.clock, s, &mut commit),
                })
                .collect();
            if last && let Some(done) = open.take() {
                self.tables = done;
            }
            sees(&rows);
            if let Some(reply) = executor.tell(Ok(rows)) {
                return (reply, commit);
            }
        }
    }

    /// The tables as JSON: for each table its rows, in the order of their keys, with the columns' names.
    pub fn dump(&self) -> serde_json::Value {
        self.tables.dump()
    }

    /// The fence row's fence.
    pub fn fence(&self) -> Fence {
        self.tables.cluster.fence
    }

    /// Who led last, and has not given the lead up.
    pub fn holder(&self) -> Option<&Holder> {
        self.tables.cluster.holder.as_ref()
    }

    /// The lease.
    pub fn lease(&self) -> &LeaseRow {
        &self.tables.lease
    }

    /// The owner rows: one for each running execution.
    pub fn owners(&self) -> &BTreeMap<ExecutionId, OwnerRow> {
        &self.tables.owners
    }

    /// The summary rows.
    pub fn executions(&self) -> &BTreeMap<ExecutionId, ExecutionRow> {
        &self.tables.executions
    }

    /// The rows of `orbit_tasks`.
    pub fn tasks(&self) -> impl Iterator<Item = &TaskEntry> {
        self.tables.tasks.values()
    }

    /// The definitions, in the order in which they were deployed.
    pub fn definitions(&self) -> impl Iterator<Item = &DefinitionRow> {
        self.tables.definitions.iter().map(|d| &d.row)
    }

    /// Whether the call of this key has stored a definition.
    pub fn is_deployed_under(&self, key: CallKey) -> bool {
        self.tables.definitions.iter().any(|definition| definition.key == key)
    }

    /// The servers of the cluster.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeRow> {
        self.tables.nodes.values()
    }

    /// The stored events of an execution's current run; empty where there is none.
    pub fn history(&self, execution: &ExecutionId) -> &[EventRow] {
        self.tables.history(execution)
    }

    /// The stored events of one run.
    pub fn run_history(&self, execution: &ExecutionId, run: Run) -> &[EventRow] {
        self.tables.run_history(execution, run)
    }
}

impl ModelStore {
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    pub(crate) fn tables_mut(&mut self) -> &mut Tables {
        &mut self.tables
    }

    /// The rows of a statement that only reads.
    pub(crate) fn read(&self, statement: &Statement, clock: ClusterMs) -> Rows {
        read_statement(&self.tables, clock, statement)
            .unwrap_or_else(|| unreachable!("{} does not only read", statement.name()))
    }
}

/// The rows of a statement that only reads; none for the others.
fn read_statement(tables: &Tables, clock: ClusterMs, statement: &Statement) -> Option<Rows> {
    Some(match statement {
        Statement::ReadFence(_) => Rows::ReadFence(read::fence(tables, clock)),
        Statement::ReadLease(_) => Rows::ReadLease(LeaseSeen { row: tables.lease.clone(), clock }),
        Statement::ReadDefinitions(_) => Rows::ReadDefinitions(read::definitions(tables)),
        Statement::ReadHistories(s) => Rows::ReadHistories(read::histories(tables, s)),
        Statement::ReadDue(s) => Rows::ReadDue(read::due(tables, s)),
        Statement::ReadTotals(_) => Rows::ReadTotals(read::totals(tables)),
        Statement::ReadSummary(s) => Rows::ReadSummary(read::summary(tables, &s.execution)),
        Statement::ListSummaries(s) => Rows::ListSummaries(read::summaries(tables, s)),
        Statement::ReadHistory(s) => Rows::ReadHistory(read::history(tables, s)),
        Statement::LookForGroups(s) => Rows::LookForGroups(append::look_for(tables, s)),
        Statement::ReadWorkers(_) => Rows::ReadWorkers(tables.workers.values().cloned().collect()),
        Statement::ReadOrphans(s) => Rows::ReadOrphans(ownership::orphans(tables, s)),
        Statement::ReadNodes(_) => Rows::ReadNodes(NodeRows { nodes: tables.nodes.values().cloned().collect(), clock }),
        _ => return None,
    })
}

fn run_statement(tables: &mut Tables, clock: ClusterMs, statement: Statement, commit: &mut Commit) -> Rows {
    if let Some(rows) = read_statement(tables, clock, &statement) {
        return rows;
    }
    match statement {
        Statement::RaiseFence(s) => Rows::RaiseFence(write::raise_fence(tables, s, commit)),
        Statement::RequeueClaims(s) => Rows::RequeueClaims(write::requeue_claims(tables, s, commit)),
        Statement::ClearHolder(s) => Rows::ClearHolder(write::clear_holder(tables, s, commit)),
        Statement::MoveFence(s) => Rows::MoveFence(lease::move_fence(tables, &s, commit)),
        Statement::TakeLease(s) => Rows::TakeLease(lease::take(tables, &s, clock, commit)),
        Statement::RenewLease(s) => Rows::RenewLease(lease::renew(tables, &s, clock, commit)),
        Statement::FreeLease(s) => Rows::FreeLease(lease::free(tables, &s, commit)),
        Statement::SeizeLease(s) => Rows::SeizeLease(lease::seize(tables, &s, commit)),
        Statement::LockFence(_) => Rows::LockFence(tables.cluster.fence),
        Statement::Append(s) => Rows::Append(append::append(tables, s, commit)),
        Statement::RequeueStrays(s) => Rows::RequeueStrays(write::requeue_strays(tables, s, commit)),
        Statement::ClaimTasks(s) => Rows::ClaimTasks(write::claim_tasks(tables, s, commit)),
        Statement::PutDefinition(s) => Rows::PutDefinition(write::put_definition(tables, s, commit)),
        Statement::PutWorker(s) => {
            write::put_worker(tables, s, commit);
            Rows::PutWorker(())
        }
        Statement::SeeWorkers(s) => Rows::SeeWorkers(write::see_workers(tables, &s, commit)),
        Statement::ForgetWorkers(s) => Rows::ForgetWorkers(write::forget_workers(tables, &s, commit)),
        Statement::BeatNode(s) => Rows::BeatNode(write::beat_node(tables, s, clock, commit)),
        Statement::LeaveNode(s) => Rows::LeaveNode(write::leave_node(tables, &s, commit)),
        Statement::MarkDead(s) => Rows::MarkDead(ownership::mark_dead(tables, &s, commit)),
        Statement::TakeTrees(s) => Rows::TakeTrees(ownership::take(tables, &s, commit)),
        Statement::TakeMembers(s) => Rows::TakeMembers(ownership::take_members(tables, &s, commit)),
        other => unreachable!("{} is no statement on the tables that changes something", other.name()),
    }
}
