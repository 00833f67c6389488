//! The rows of the model's tables.

use orbit_core::cluster::Mode;
use orbit_core::id::{CallKey, ClusterId, ExecutionId, GroupId, Incarnation, NodeId, Run, Seq, TaskId, Term, WorkerId};
use orbit_core::store::append::{Fence, OwnerRow, Summary, TaskRow, TaskState};
use orbit_core::store::lease::LeaseRow;
use orbit_core::store::statement::{DefinitionRow, Holder, NodeRow, WorkerRow};
use orbit_core::store::transaction::{LOCK, SCHEMA_VERSION};
use orbit_core::time::ClusterMs;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use uuid::Uuid;

/// The row of `orbit_cluster`.
#[derive(Clone, Debug)]
pub struct ClusterRow {
    pub cluster_id: ClusterId,
    pub schema_version: u32,
    pub mode: String,
    pub election: String,
    pub fence: Fence,
    pub holder: Option<Holder>,
    /// Of the log, when the fence was raised last.
    pub timeline: Option<u32>,
}

/// A row of `workflow_executions`.
#[derive(Clone, Debug)]
pub struct ExecutionRow {
    pub root: ExecutionId,
    pub run: Run,
    pub summary: Summary,
}

/// A row of `execution_events`.
#[derive(Clone, Debug)]
pub struct EventRow {
    pub seq: Seq,
    pub at_ms: ClusterMs,
    /// The group that wrote it.
    pub group: GroupId,
    pub bytes: Arc<[u8]>,
}

/// A row of `orbit_tasks`.
#[derive(Clone, Debug)]
pub struct TaskEntry {
    pub row: TaskRow,
    pub state: TaskState,
    /// Who claimed it, and in which call; none while queued.
    pub claim: Option<(Incarnation, CallKey)>,
    /// It was there when a replica was promoted.
    pub repeat: bool,
}

/// A row of `workflow_definitions`.
#[derive(Clone, Debug)]
pub struct DefinitionEntry {
    pub row: DefinitionRow,
    /// The call that stored it.
    pub key: CallKey,
    /// Its place among all of them.
    pub order: u64,
}

/// All tables.
#[derive(Clone, Debug)]
pub struct Tables {
    pub cluster: ClusterRow,
    pub lease: LeaseRow,
    pub owners: BTreeMap<ExecutionId, OwnerRow>,
    pub executions: BTreeMap<ExecutionId, ExecutionRow>,
    pub events: BTreeMap<(ExecutionId, Run), Vec<EventRow>>,
    pub tasks: BTreeMap<TaskId, TaskEntry>,
    /// In the order in which they were deployed.
    pub definitions: Vec<DefinitionEntry>,
    pub workers: BTreeMap<WorkerId, WorkerRow>,
    pub nodes: BTreeMap<NodeId, NodeRow>,
}

impl Tables {
    pub fn new(cluster_id: ClusterId) -> Tables {
        Tables {
            cluster: ClusterRow {
                cluster_id,
                schema_version: SCHEMA_VERSION,
                mode: Mode::Single.as_str().into(),
                election: LOCK.into(),
                fence: Fence { term: Term(0), incarnation: Incarnation(Uuid::nil()) },
                holder: None,
                timeline: None,
            },
            lease: LeaseRow::new(),
            owners: BTreeMap::new(),
            executions: BTreeMap::new(),
            events: BTreeMap::new(),
            tasks: BTreeMap::new(),
            definitions: Vec::new(),
            workers: BTreeMap::new(),
            nodes: BTreeMap::new(),
        }
    }

    /// The events of the current run.
    pub fn history(&self, execution: &ExecutionId) -> &[EventRow] {
        let Some(row) = self.executions.get(execution) else { return &[] };
        self.run_history(execution, row.run)
    }

    /// The events of one run.
    pub fn run_history(&self, execution: &ExecutionId, run: Run) -> &[EventRow] {
        self.events.get(&(execution.clone(), run)).map_or(&[], Vec::as_slice)
    }

    pub fn dump(&self) -> Value {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let cluster = json!([{
            "id": 1, "cluster_id": self.cluster.cluster_id, "schema_version": self.cluster.schema_version,
            "mode": self.cluster.mode, "term": self.cluster.fence.term,
            "incarnation": self.cluster.fence.incarnation, "holder": self.cluster.holder,
        }]);
        let owners: Vec<Value> = self
            .owners
            .iter()
            .map(|(id, o)| {
                json!({
                    "execution_id": id, "root_id": o.root, "run": o.run, "epoch": o.epoch, "incarnation": o.incarnation, "last_seq": o.last,
                    "group_id": o.group, "next_wake_ms": o.wake.to_column(),
                })
            })
            .collect();
        let executions: Vec<Value> = self
            .executions
            .iter()
            .map(|(id, e)| {
                json!({
                    "execution_id": id, "root_id": e.root, "run": e.run, "workflow": e.summary.workflow,
                    "version": e.summary.version, "status": e.summary.status, "labels": e.summary.labels,
                    "created_at_ms": e.summary.created_at_ms, "updated_at_ms": e.summary.updated_at_ms,
                })
            })
            .collect();
        let events: Vec<Value> = self
            .events
            .iter()
            .flat_map(|((id, run), rows)| {
                rows.iter().map(move |e| {
                    json!({
                        "execution_id": id, "run": run, "seq": e.seq, "at_ms": e.at_ms, "group_id": e.group,
                        "event": text(&e.bytes),
                    })
                })
            })
            .collect();
        let tasks: Vec<Value> = self
            .tasks
            .values()
            .map(|t| {
                let token = match t.state {
                    TaskState::Queued => None,
                    TaskState::Claimed { token } => Some(token),
                };
                json!({
                    "task_id": t.row.task, "execution_id": t.row.execution, "unit": t.row.unit,
                    "attempt": t.row.attempt, "task_name": t.row.task_name,
                    "contract_version": t.row.contract_version, "enqueued_ms": t.row.enqueued_ms,
                    "state": if token.is_some() { "claimed" } else { "queued" }, "token": token,
                    "incarnation": t.claim.map(|c| c.0), "claim_key": t.claim.map(|c| c.1),
                })
            })
            .collect();
        let definitions: Vec<Value> = self
            .definitions
            .iter()
            .map(|d| {
                json!({
                    "name": d.row.name, "version": d.row.version, "hash": d.row.hash, "document": d.row.document,
                    "created_at_ms": d.row.created_at_ms, "call_key": d.key,
                })
            })
            .collect();
        // Of the time of a beat, whether the server has left.
        let there = |node: &NodeRow| NodeRow { heartbeat_ms: ClusterMs(node.heartbeat_ms.0.signum()), ..node.clone() };
        let nodes: Vec<NodeRow> = self.nodes.values().map(there).collect();
        json!({
            "orbit_cluster": cluster,
            "orbit_leases": [super::lease::dump(&self.lease)],
            "orbit_owners": owners,
            "workflow_executions": executions,
            "execution_events": events,
            "orbit_tasks": tasks,
            "workflow_definitions": definitions,
            "orbit_workers": self.workers.values().collect::<Vec<_>>(),
            "orbit_nodes": nodes,
        })
    }
}
