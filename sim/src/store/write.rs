//! The statements that change something, but for the append.

use super::commit::{Change, Commit};
use super::tables::{DefinitionEntry, Tables, TaskEntry};
use orbit_core::id::{ContractVersion, TaskId, TaskName, Term, WorkerId};
use orbit_core::store::append::{Fence, TaskState};
use orbit_core::store::statement::{
    BeatNode, ClaimTasks, ClaimedTask, ClearHolder, ForgetWorkers, LeaveNode, NodeRow, PutDefinition, PutResult,
    PutWorker, RaiseFence, RequeueClaims, RequeueStrays, SeeWorkers, WorkerRow,
};
use orbit_core::store::transaction::LOCK;
use orbit_core::time::ClusterMs;
use std::collections::BTreeSet;

pub fn raise_fence(tables: &mut Tables, statement: RaiseFence, commit: &mut Commit) -> Option<Term> {
    let before = tables.cluster.fence;
    if before != statement.expected {
        return None;
    }
    let after = Fence { term: before.term.next(), incarnation: statement.incarnation };
    tables.cluster.fence = after;
    tables.cluster.mode = statement.mode.as_str().into();
    tables.cluster.election = LOCK.into();
    tables.cluster.holder = Some(statement.holder);
    tables.cluster.timeline = statement.timeline;
    commit.changes.push(Change::FenceRaised { before, after });
    Some(after.term)
}

pub fn requeue_claims(tables: &mut Tables, statement: RequeueClaims, commit: &mut Commit) -> u64 {
    let mut moved = 0;
    for entry in tables.tasks.values_mut() {
        entry.repeat |= statement.promoted;
        if entry.claim.is_some_and(|(claimer, _)| claimer != statement.incarnation) {
            entry.state = TaskState::Queued;
            entry.claim = None;
            moved += 1;
        }
    }
    if moved > 0 {
        commit.changes.push(Change::Requeued { incarnation: statement.incarnation, tasks: moved });
    }
    moved
}

pub fn requeue_strays(
    tables: &mut Tables,
    sweep: RequeueStrays,
    commit: &mut Commit,
) -> Vec<(TaskName, ContractVersion)> {
    let mut back = Vec::new();
    if tables.cluster.fence != sweep.fence {
        return back;
    }
    for entry in tables.tasks.values_mut() {
        if is_stray(entry, &sweep) {
            entry.state = TaskState::Queued;
            entry.claim = None;
            back.push((entry.row.task_name.clone(), entry.row.contract_version.clone()));
        }
    }
    if !back.is_empty() {
        commit.changes.push(Change::Swept { fence: sweep.fence, tasks: back.len() as u64 });
    }
    back
}

/// Whether the writer has claimed this row under a key that was in doubt, and does not know.
pub fn is_stray(entry: &TaskEntry, sweep: &RequeueStrays) -> bool {
    let (TaskState::Claimed { token }, Some((claimer, key))) = (entry.state, entry.claim) else { return false };
    claimer == sweep.fence.incarnation && sweep.keys.contains(&key) && !sweep.tokens.contains(&token)
}

pub fn clear_holder(tables: &mut Tables, statement: ClearHolder, commit: &mut Commit) -> bool {
    let held = tables.cluster.fence == statement.fence;
    if held {
        tables.cluster.holder = None;
        commit.changes.push(Change::HolderCleared { fence: statement.fence });
    }
    held
}

pub fn claim_tasks(tables: &mut Tables, statement: ClaimTasks, commit: &mut Commit) -> Vec<ClaimedTask> {
    let ClaimTasks { key, fence, wants } = statement;
    if tables.cluster.fence != fence {
        return Vec::new();
    }
    let earlier = claimed_under(tables, &ClaimTasks { key, fence, wants: wants.clone() });
    if !earlier.is_empty() {
        commit.changes.push(Change::Claimed { fence, key, tasks: earlier.clone(), repeated: true });
        return earlier;
    }
    let mut queued: Vec<(ClusterMs, TaskId)> = tables
        .tasks
        .values()
        .filter(|t| t.state == TaskState::Queued)
        .map(|t| (t.row.enqueued_ms, t.row.task.clone()))
        .collect();
    queued.sort();
    let mut claimed = Vec::new();
    for want in &wants {
        let mut tokens = want.tokens.iter();
        queued.retain(|(_, task)| {
            let entry = tables.tasks.get_mut(task).expect("just listed");
            let row = &entry.row;
            let fits = want.contracts.iter().any(|(n, v)| *n == row.task_name && *v == row.contract_version);
            let Some(token) = fits.then(|| tokens.next()).flatten() else { return true };
            claimed.push(ClaimedTask {
                task: row.task.clone(),
                execution: row.execution.clone(),
                unit: row.unit.clone(),
                attempt: row.attempt,
                task_name: row.task_name.clone(),
                contract_version: row.contract_version.clone(),
                token: *token,
                repeat: entry.repeat,
            });
            entry.state = TaskState::Claimed { token: *token };
            entry.claim = Some((fence.incarnation, key));
            false
        });
    }
    if !claimed.is_empty() {
        commit.changes.push(Change::Claimed { fence, key, tasks: claimed.clone(), repeated: false });
    }
    claimed
}

/// What an earlier sending of this very claim took, in the order of the wants' tokens (protocols, 4).
fn claimed_under(tables: &Tables, statement: &ClaimTasks) -> Vec<ClaimedTask> {
    let tokens = statement.wants.iter().flat_map(|w| &w.tokens);
    tokens
        .filter_map(|token| {
            let state = TaskState::Claimed { token: *token };
            let found = |e: &&super::TaskEntry| e.state == state && e.claim.is_some_and(|(_, k)| k == statement.key);
            let entry = tables.tasks.values().find(found)?;
            let row = &entry.row;
            Some(ClaimedTask {
                task: row.task.clone(),
                execution: row.execution.clone(),
                unit: row.unit.clone(),
                attempt: row.attempt,
                task_name: row.task_name.clone(),
                contract_version: row.contract_version.clone(),
                token: *token,
                repeat: entry.repeat,
            })
        })
        .collect()
}

pub fn put_definition(tables: &mut Tables, statement: PutDefinition, commit: &mut Commit) -> PutResult {
    let PutDefinition { key, fence, definition } = statement;
    let same_name = |d: &&DefinitionEntry| d.row.name == definition.name && d.row.version == definition.version;
    let found = tables.definitions.iter().find(same_name);
    // Before the fence: what is there is there, whoever asks (protocols, 4).
    if found.is_some_and(|d| d.key == key) {
        return PutResult::Created;
    }
    if tables.cluster.fence != fence {
        return PutResult::Fenced(tables.cluster.fence.term);
    }
    match found {
        Some(d) if d.row.hash == definition.hash => PutResult::Unchanged,
        Some(d) => PutResult::Conflict(d.row.hash.clone()),
        None => {
            commit.changes.push(Change::Defined { fence, definition: definition.clone() });
            let order = tables.definitions.len() as u64 + 1;
            tables.definitions.push(DefinitionEntry { row: definition, key, order });
            PutResult::Created
        }
    }
}

pub fn put_worker(tables: &mut Tables, statement: PutWorker, commit: &mut Commit) {
    commit.changes.push(Change::WorkerSaved);
    tables.workers.insert(statement.worker.worker_id.clone(), statement.worker);
}

pub fn see_workers(tables: &mut Tables, statement: &SeeWorkers, commit: &mut Commit) -> u64 {
    let mut workers = 0;
    for (id, at) in &statement.seen {
        if let Some(row) = tables.workers.get_mut(id).filter(|row| row.last_seen_ms < *at) {
            row.last_seen_ms = *at;
            workers += 1;
        }
    }
    if workers > 0 {
        commit.changes.push(Change::WorkersSeen { workers });
    }
    workers
}

pub fn forget_workers(tables: &mut Tables, statement: &ForgetWorkers, commit: &mut Commit) -> u64 {
    let gone = to_forget(statement, tables.workers.values());
    for id in &gone {
        tables.workers.remove(id);
    }
    let workers = gone.len() as u64;
    if workers > 0 {
        commit.changes.push(Change::WorkersForgotten { workers });
    }
    workers
}

/// Which of these workers are to be forgotten, by id.
pub fn to_forget<'r>(statement: &ForgetWorkers, rows: impl Iterator<Item = &'r WorkerRow>) -> BTreeSet<WorkerId> {
    let rows = rows.filter(|row| !statement.there.contains(&row.worker_id));
    let mut rows: Vec<_> = rows.map(|row| (std::cmp::Reverse(row.last_seen_ms), row.worker_id.clone())).collect();
    rows.sort();
    let rows = rows.into_iter().enumerate();
    let goes = |(place, (seen, _)): &(usize, (std::cmp::Reverse<ClusterMs>, WorkerId))| {
        seen.0 < statement.before || *place >= statement.keep as usize
    };
    rows.filter(goes).map(|(_, (_, id))| id).collect()
}

/// Gives the row of another process that has the name.
pub fn beat_node(tables: &mut Tables, beat: BeatNode, clock: ClusterMs, commit: &mut Commit) -> Option<NodeRow> {
    let there = tables.nodes.get(&beat.node.node_id);
    if let Some(there) = there.filter(|there| !beat.may_replace(there)) {
        return Some(there.clone()).filter(|there| there.incarnation != beat.node.incarnation || there.dead);
    }
    commit.changes.push(beaten(&beat, there));
    tables.nodes.insert(beat.node.node_id.clone(), NodeRow { heartbeat_ms: clock, ..beat.node });
    None
}

/// The change that a beat is, in place of this row.
pub fn beaten(beat: &BeatNode, there: Option<&NodeRow>) -> Change {
    let anothers = there.filter(|there| there.incarnation != beat.node.incarnation && there.heartbeat_ms.0 != 0);
    Change::NodeBeat {
        node: beat.node.node_id.clone(),
        incarnation: beat.node.incarnation,
        replaced: anothers.map(|there| there.incarnation),
    }
}

pub fn leave_node(tables: &mut Tables, leave: &LeaveNode, commit: &mut Commit) -> bool {
    let row = tables.nodes.get_mut(&leave.node_id).filter(|row| row.incarnation == leave.incarnation);
    let Some(row) = row else { return false };
    row.heartbeat_ms = ClusterMs(0);
    commit.changes.push(Change::NodeLeft { node: leave.node_id.clone(), incarnation: leave.incarnation });
    true
}
