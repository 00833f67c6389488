//! The rows of Orbit's tables, and how a committed one changes the tables that reads look at.

use crate::store::tables::{ClusterRow, DefinitionEntry, EventRow, ExecutionRow, Tables, TaskEntry};
use orbit_core::id::{ExecutionId, NodeId, Run, Seq, TaskId, Version, WorkerId, WorkflowName};
use orbit_core::store::append::OwnerRow;
use orbit_core::store::lease::LeaseRow;
use orbit_core::store::statement::{NodeRow, WorkerRow};
use uuid::Uuid;

/// A table and a key in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    Cluster,
    Lease,
    Owner(ExecutionId),
    Execution(ExecutionId),
    Event(ExecutionId, Run, Seq),
    Task(TaskId),
    /// The unique index over the tokens of claimed tasks.
    Token(Uuid),
    Definition(WorkflowName, Version),
    Worker(WorkerId),
    Node(NodeId),
}

/// A row.
#[derive(Clone, Debug)]
pub enum Row {
    Cluster(ClusterRow),
    Lease(LeaseRow),
    Owner(OwnerRow),
    Execution(ExecutionRow),
    Event(EventRow),
    Task(TaskEntry),
    Token,
    Definition(DefinitionEntry),
    Worker(WorkerRow),
    Node(NodeRow),
}

impl Row {
    pub fn cluster(&self) -> &ClusterRow {
        match self {
            Row::Cluster(row) => row,
            other => unreachable!("a row of orbit_cluster, not {other:?}"),
        }
    }

    pub fn lease(&self) -> &LeaseRow {
        match self {
            Row::Lease(row) => row,
            other => unreachable!("a row of orbit_leases, not {other:?}"),
        }
    }

    pub fn owner(&self) -> &OwnerRow {
        match self {
            Row::Owner(row) => row,
            other => unreachable!("a row of orbit_owners, not {other:?}"),
        }
    }

    pub fn task(&self) -> &TaskEntry {
        match self {
            Row::Task(row) => row,
            other => unreachable!("a row of orbit_tasks, not {other:?}"),
        }
    }

    pub fn worker(&self) -> &WorkerRow {
        match self {
            Row::Worker(row) => row,
            other => unreachable!("a row of orbit_workers, not {other:?}"),
        }
    }

    pub fn node(&self) -> &NodeRow {
        match self {
            Row::Node(row) => row,
            other => unreachable!("a row of orbit_nodes, not {other:?}"),
        }
    }

    pub fn definition(&self) -> &DefinitionEntry {
        match self {
            Row::Definition(row) => row,
            other => unreachable!("a row of workflow_definitions, not {other:?}"),
        }
    }
}

/// A committed row in the tables; none where it was deleted.
pub fn apply(tables: &mut Tables, key: Key, row: Option<Row>) {
    match (key, row) {
        (Key::Cluster, Some(Row::Cluster(row))) => tables.cluster = row,
        (Key::Lease, Some(Row::Lease(row))) => tables.lease = row,
        (Key::Owner(id), Some(Row::Owner(row))) => drop(tables.owners.insert(id, row)),
        (Key::Owner(id), None) => drop(tables.owners.remove(&id)),
        (Key::Execution(id), Some(Row::Execution(row))) => drop(tables.executions.insert(id, row)),
        (Key::Event(id, run, seq), Some(Row::Event(row))) => {
            let history = tables.events.entry((id, run)).or_default();
            let at = history.partition_point(|e| e.seq < seq);
            history.insert(at, row);
        }
        (Key::Task(id), Some(Row::Task(row))) => drop(tables.tasks.insert(id, row)),
        (Key::Task(id), None) => drop(tables.tasks.remove(&id)),
        (Key::Token(_), _) => {}
        (Key::Definition(..), Some(Row::Definition(row))) => {
            let at = tables.definitions.partition_point(|d| d.order < row.order);
            tables.definitions.insert(at, row);
        }
        (Key::Worker(id), Some(Row::Worker(row))) => drop(tables.workers.insert(id, row)),
        (Key::Worker(id), None) => drop(tables.workers.remove(&id)),
        (Key::Node(id), Some(Row::Node(row))) => drop(tables.nodes.insert(id, row)),
        (key, row) => unreachable!("no statement does this: {key:?} becomes {row:?}"),
    }
}
