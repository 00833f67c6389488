//! The other statements that change something, row by row as their SQL does it.

use super::append::free_token;
use super::{Breath, ELECTION_LOCK, FenceLock, Key, Orbit, Row, fence, lease, ownership};
use crate::postgres::context::{Context, Found, Inserted, Locked, Policy};
use crate::postgres::error::{Code, Stop};
use crate::postgres::lock::RowId;
use crate::postgres::table::Strength;
use crate::store::Change;
use crate::store::tables::{DefinitionEntry, TaskEntry};
use crate::store::write::{beaten, is_stray, to_forget};
use orbit_core::id::{ContractVersion, NodeId, TaskId, TaskName, WorkerId};
use orbit_core::mutant::{Mutant, Mutants};
use orbit_core::store::append::{Fence, TaskState};
use orbit_core::store::lease::LeaseRow;
use orbit_core::store::statement::{
    BeatNode, CampaignRule, ClaimTasks, ClaimedTask, ClearHolder, ForgetWorkers, LeaveNode, NodeRow, PutDefinition,
    PutResult, PutWorker, RaiseFence, RequeueClaims, RequeueStrays, Rows, SeeWorkers, Statement, WorkerRow,
};
use orbit_core::store::transaction::LOCK;
use orbit_core::time::ClusterMs;
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

type Cx<'a> = Context<'a, Orbit>;

/// How far it has got.
#[derive(Clone, Debug, Default)]
pub struct Work {
    pub(super) stage: u8,
    /// What the snapshot saw and is to be changed.
    pub(super) found: Option<Vec<Found<Key, Row>>>,
    pub(super) at: usize,
    pub(super) count: u64,
    current: Option<Fence>,
    /// What was tried to lock, and what it is; none where others hold it, or where it is not what is looked for any more.
    tried: BTreeMap<RowId, Option<TaskEntry>>,
    claimed: Vec<(RowId, TaskEntry)>,
    met: Option<RowId>,
    /// Rows that are locked, as they are to be.
    pub(super) locked: Vec<(RowId, Row)>,
    /// The lease, as this statement has left it.
    pub(super) lease: Option<LeaseRow>,
    /// The fence is where it is to be.
    pub(super) moved: bool,
}

impl Work {
    /// The one row that the statement's snapshot sees, looked for once.
    pub(super) fn see(&mut self, look: impl FnOnce() -> Option<Found<Key, Row>>) -> Option<Found<Key, Row>> {
        self.found.get_or_insert_with(|| look().into_iter().collect()).first().cloned()
    }
}

pub fn resume(
    orbit: &mut Orbit,
    statement: &Statement,
    work: &mut Work,
    breath: &mut Breath,
    cx: &mut Cx<'_>,
) -> Result<Rows, Stop> {
    // Its transaction has a number from the first row on that it comes to.
    cx.may_write()?;
    match statement {
        Statement::RaiseFence(s) => raise_fence(orbit, s, work, breath, cx).map(Rows::RaiseFence),
        Statement::RequeueClaims(s) => requeue_claims(s, work, cx).map(Rows::RequeueClaims),
        Statement::ClearHolder(s) => clear_holder(s, work, cx).map(Rows::ClearHolder),
        Statement::MoveFence(s) => lease::move_fence(orbit, s, work, breath, cx).map(Rows::MoveFence),
        Statement::TakeLease(s) => lease::take(orbit, s, work, breath, cx).map(Rows::TakeLease),
        Statement::RenewLease(s) => lease::renew(orbit, s, work, breath, cx).map(Rows::RenewLease),
        Statement::FreeLease(s) => lease::free(s, work, cx).map(Rows::FreeLease),
        Statement::SeizeLease(s) => lease::seize(s, work, cx).map(Rows::SeizeLease),
        Statement::RequeueStrays(s) => requeue_strays(orbit, s, work, cx).map(Rows::RequeueStrays),
        Statement::ClaimTasks(s) => claim(orbit, s, work, breath, cx).map(Rows::ClaimTasks),
        Statement::PutDefinition(s) => put_definition(orbit, s, work, breath, cx).map(Rows::PutDefinition),
        Statement::PutWorker(s) => put_worker(s, work, cx).map(Rows::PutWorker),
        Statement::SeeWorkers(s) => see_workers(s, work, cx).map(Rows::SeeWorkers),
        Statement::ForgetWorkers(s) => forget_workers(s, work, cx).map(Rows::ForgetWorkers),
        Statement::BeatNode(s) => beat_node(s, work, cx).map(Rows::BeatNode),
        Statement::LeaveNode(s) => leave_node(s, work, cx).map(Rows::LeaveNode),
        Statement::MarkDead(s) => ownership::mark_dead(s, work, cx).map(Rows::MarkDead),
        Statement::TakeTrees(s) => ownership::take(orbit, s, work, breath, cx).map(Rows::TakeTrees),
        Statement::TakeMembers(s) => ownership::take_members(s, work, cx).map(Rows::TakeMembers),
        other => unreachable!("{} writes nothing, or has a file of its own", other.name()),
    }
}

/// `UPDATE orbit_cluster … WHERE <condition>`: it waits for appends under way, which share the row.
pub(super) fn lock_cluster(
    work: &mut Work,
    cx: &mut Cx<'_>,
    holds: impl Fn(&Row) -> bool,
) -> Result<Option<(RowId, Row)>, Stop> {
    let found =
        work.found.get_or_insert_with(|| cx.get(&Key::Cluster).filter(|f| holds(&f.value)).into_iter().collect());
    let Some(found) = found.first().cloned() else { return Ok(None) };
    cx.writes()?;
    Ok(match cx.lock_to_write(&found, Strength::NoKeyUpdate)? {
        Locked::Same => Some((found.row, found.value)),
        Locked::Newer(row) if holds(&row) => Some((found.row, row)),
        Locked::Newer(_) | Locked::Gone | Locked::Skipped => None,
    })
}

fn raise_fence(
    orbit: &mut Orbit,
    statement: &RaiseFence,
    work: &mut Work,
    breath: &mut Breath,
    cx: &mut Cx<'_>,
) -> Result<Option<orbit_core::id::Term>, Stop> {
    if work.stage == 0 {
        // Only the session that holds the election lock may (protocols, 11).
        if !cx.holds_advisory(ELECTION_LOCK) && statement.rule != CampaignRule::ElsewhereThanLocked {
            return Ok(None);
        }
        let Some((id, row)) = lock_cluster(work, cx, |row| row.cluster().fence == statement.expected)? else {
            return Ok(None);
        };
        let mut cluster = row.cluster().clone();
        let before = cluster.fence;
        let stays = orbit.planted.planted(Mutant::TermNotRaised);
        let term = if stays { before.term } else { before.term.next() };
        let after = Fence { term, incarnation: statement.incarnation };
        cluster.fence = after;
        cluster.mode = statement.mode.as_str().into();
        cluster.election = LOCK.into();
        cluster.holder = Some(statement.holder.clone());
        cluster.timeline = statement.timeline;
        cx.update(id, Row::Cluster(cluster))?;
        cx.note(Change::FenceRaised { before, after });
        work.current = Some(after);
        work.stage = 1;
    }
    orbit.breathe(breath, cx)?;
    Ok(work.current.map(|fence| fence.term))
}

fn clear_holder(statement: &ClearHolder, work: &mut Work, cx: &mut Cx<'_>) -> Result<bool, Stop> {
    let Some((id, row)) = lock_cluster(work, cx, |row| row.cluster().fence == statement.fence)? else {
        return Ok(false);
    };
    let mut cluster = row.cluster().clone();
    cluster.holder = None;
    cx.update(id, Row::Cluster(cluster))?;
    cx.note(Change::HolderCleared { fence: statement.fence });
    Ok(true)
}

/// Tries to lock a row of `orbit_tasks`, once; what it is then, if it is still what is looked for.
fn try_task(
    found: &Found<Key, Row>,
    work: &mut Work,
    cx: &mut Cx<'_>,
    fits: impl Fn(&TaskEntry) -> bool,
) -> Result<Option<TaskEntry>, Stop> {
    if let Some(known) = work.tried.get(&found.row) {
        return Ok(known.clone());
    }
    let entry = match cx.lock(found, Strength::Update, Policy::Skip)? {
        Locked::Same => Some(found.value.task().clone()),
        Locked::Newer(row) => Some(row.task().clone()).filter(fits),
        Locked::Gone | Locked::Skipped => None,
    };
    work.tried.insert(found.row, entry.clone());
    Ok(entry)
}

/// Every row of `orbit_tasks` that the snapshot sees.
fn tasks(cx: &mut Cx<'_>) -> Vec<Found<Key, Row>> {
    cx.scan(Key::Task(TaskId::new(""))..Key::Token(Uuid::nil()))
}

fn requeue_claims(statement: &RequeueClaims, work: &mut Work, cx: &mut Cx<'_>) -> Result<u64, Stop> {
    let anothers = |row: &Row| row.task().claim.is_some_and(|(claimer, _)| claimer != statement.incarnation);
    let concerns = |row: &Row| anothers(row) || (statement.promoted && !row.task().repeat);
    let found = work.found.get_or_insert_with(|| tasks(cx).into_iter().filter(|f| concerns(&f.value)).collect());
    let found = found.clone();
    while let Some(found) = found.get(work.at) {
        cx.writes()?;
        let row = match cx.lock_to_write(found, Strength::NoKeyUpdate)? {
            Locked::Same => Some(found.value.clone()),
            Locked::Newer(row) => Some(row).filter(concerns),
            Locked::Gone | Locked::Skipped => None,
        };
        work.at += 1;
        if let Some(row) = row {
            let entry = TaskEntry { repeat: row.task().repeat || statement.promoted, ..row.task().clone() };
            if anothers(&row) {
                free_token(&entry, cx)?;
                cx.update(found.row, Row::Task(TaskEntry { state: TaskState::Queued, claim: None, ..entry }))?;
                work.count += 1;
            } else {
                cx.update(found.row, Row::Task(entry))?;
            }
        }
    }
    if work.count > 0 {
        cx.note(Change::Requeued { incarnation: statement.incarnation, tasks: work.count });
    }
    Ok(work.count)
}

fn requeue_strays(
    orbit: &Orbit,
    sweep: &RequeueStrays,
    work: &mut Work,
    cx: &mut Cx<'_>,
) -> Result<Vec<(TaskName, ContractVersion)>, Stop> {
    let mut back = Vec::new();
    if work.stage == 0 {
        let current = fence(orbit, cx)?;
        if !orbit.is_writer(sweep.fence, current) && orbit.fence_lock != FenceLock::None {
            return Ok(back);
        }
        work.stage = 1;
    }
    let found: Vec<_> = tasks(cx).into_iter().filter(|found| is_stray(found.value.task(), sweep)).collect();
    // All of them are locked before the first is changed.
    for found in &found {
        try_task(found, work, cx, |entry| is_stray(entry, sweep))?;
    }
    for found in &found {
        let Some(entry) = work.tried.remove(&found.row).flatten() else { continue };
        free_token(&entry, cx)?;
        back.push((entry.row.task_name.clone(), entry.row.contract_version.clone()));
        cx.update(found.row, Row::Task(TaskEntry { state: TaskState::Queued, claim: None, ..entry }))?;
    }
    if !back.is_empty() {
        cx.note(Change::Swept { fence: sweep.fence, tasks: back.len() as u64 });
    }
    Ok(back)
}

fn claim(
    orbit: &mut Orbit,
    statement: &ClaimTasks,
    work: &mut Work,
    breath: &mut Breath,
    cx: &mut Cx<'_>,
) -> Result<Vec<ClaimedTask>, Stop> {
    let writer = statement.fence;
    if work.stage == 0 {
        let current = fence(orbit, cx)?;
        let blind = orbit.fence_lock == FenceLock::None;
        if !orbit.is_writer(writer, current) && !blind {
            return Ok(Vec::new());
        }
        work.stage = 1;
    }
    if work.stage == 1 {
        orbit.breathe(breath, cx)?;
        let before = claimed_before(statement, cx);
        if !before.is_empty() {
            let tasks = before.clone();
            cx.note(Change::Claimed { fence: writer, key: statement.key, tasks, repeated: true });
            return Ok(before);
        }
        let heads = heads(statement, work, cx)?;
        work.claimed = pick(statement, heads);
        work.stage = 2;
    }
    // A delivery is one row's: whoever takes the same tokens meets this here.
    let mut writes: Vec<_> = work.claimed.iter().collect();
    writes.sort_by_key(|(_, entry)| &entry.row.task);
    while let Some((row, entry)) = writes.get(work.at).map(|(row, entry)| (*row, entry.clone())) {
        let TaskState::Claimed { token } = entry.state else { unreachable!("picked just now") };
        let key = Key::Token(token);
        cx.before_it_inserts(&key)?;
        if let Inserted::Exists(_) = cx.insert(&key, || Row::Token)? {
            return Err(Context::<Orbit>::unique_violation());
        }
        cx.update(row, Row::Task(entry))?;
        work.at += 1;
    }
    orbit.breathe(breath, cx)?;
    let claimed: Vec<ClaimedTask> = work.claimed.iter().map(|(_, entry)| claimed_task(entry)).collect();
    if !claimed.is_empty() {
        let tasks = claimed.clone();
        cx.note(Change::Claimed { fence: writer, key: statement.key, tasks, repeated: false });
    }
    Ok(claimed)
}

fn claimed_task(entry: &TaskEntry) -> ClaimedTask {
    let TaskState::Claimed { token } = entry.state else { unreachable!("only claimed rows are listed") };
    let row = &entry.row;
    ClaimedTask {
        task: row.task.clone(),
        execution: row.execution.clone(),
        unit: row.unit.clone(),
        attempt: row.attempt,
        task_name: row.task_name.clone(),
        contract_version: row.contract_version.clone(),
        token,
        repeat: entry.repeat,
    }
}

/// What an earlier sending of the same claim has claimed, in the order of its tokens (protocols, 4).
fn claimed_before(statement: &ClaimTasks, cx: &mut Cx<'_>) -> Vec<ClaimedTask> {
    let mut by_token: BTreeMap<Uuid, ClaimedTask> = tasks(cx)
        .iter()
        .map(|found| found.value.task())
        .filter(|entry| entry.claim.is_some_and(|(_, key)| key == statement.key))
        .map(claimed_task)
        .map(|task| (task.token, task))
        .collect();
    let tokens = statement.wants.iter().flat_map(|want| &want.tokens);
    tokens.filter_map(|token| by_token.remove(token)).collect()
}

/// The oldest rows of each contract that is wanted, locked: as many as all the wants for it can take. Those that
/// others hold are passed over.
fn heads(statement: &ClaimTasks, work: &mut Work, cx: &mut Cx<'_>) -> Result<Vec<(RowId, TaskEntry)>, Stop> {
    let mut room: BTreeMap<_, usize> = BTreeMap::new();
    for want in &statement.wants {
        for contract in want.contracts.iter().collect::<BTreeSet<_>>() {
            *room.entry(contract.clone()).or_default() += want.tokens.len();
        }
    }
    let mut queued: Vec<Found<Key, Row>> =
        tasks(cx).into_iter().filter(|f| f.value.task().state == TaskState::Queued).collect();
    queued.sort_by_key(|f| (f.value.task().row.enqueued_ms, f.value.task().row.task.clone()));
    let mut heads = Vec::new();
    for (contract, room) in room {
        let of_contract = |entry: &TaskEntry| {
            let row = &entry.row;
            (&row.task_name, &row.contract_version) == (&contract.0, &contract.1) && entry.state == TaskState::Queued
        };
        let mut taken = 0;
        for found in queued.iter().filter(|f| of_contract(f.value.task())) {
            if taken == room {
                break;
            }
            let Some(entry) = try_task(found, work, cx, of_contract)? else { continue };
            taken += 1;
            heads.push((found.row, entry));
        }
    }
    heads.sort_by_key(|(_, entry)| (entry.row.enqueued_ms, entry.row.task.clone()));
    Ok(heads)
}

/// Goes through the wants in order; each takes the oldest that it can.
fn pick(statement: &ClaimTasks, mut heads: Vec<(RowId, TaskEntry)>) -> Vec<(RowId, TaskEntry)> {
    let mut picked = Vec::new();
    for want in &statement.wants {
        let mut tokens = want.tokens.iter();
        heads.retain(|(row, entry)| {
            let fits = want
                .contracts
                .iter()
                .any(|(name, version)| *name == entry.row.task_name && *version == entry.row.contract_version);
            let Some(token) = fits.then(|| tokens.next()).flatten() else { return true };
            let state = TaskState::Claimed { token: *token };
            let claim = Some((statement.fence.incarnation, statement.key));
            picked.push((*row, TaskEntry { state, claim, ..entry.clone() }));
            false
        });
    }
    picked
}

fn put_definition(
    orbit: &mut Orbit,
    statement: &PutDefinition,
    work: &mut Work,
    breath: &mut Breath,
    cx: &mut Cx<'_>,
) -> Result<PutResult, Stop> {
    let PutDefinition { key, fence: writer, definition } = statement;
    let at = Key::Definition(definition.name.clone(), definition.version.clone());
    if work.stage == 0 {
        let current = fence(orbit, cx)?;
        let blind = orbit.fence_lock == FenceLock::None || orbit.is_writer(*writer, current);
        work.current = Some(if blind { *writer } else { current });
        work.stage = 1;
    }
    let current = work.current.expect("read just now");
    if work.stage == 1 {
        let there = cx.get(&at).is_some();
        if current == *writer && !there {
            // It has its place before it waits for anybody, and a place that is not taken stays empty.
            if work.count == 0 {
                orbit.deployed += 1;
                work.count = orbit.deployed;
            }
            let order = work.count;
            let entry = || Row::Definition(DefinitionEntry { row: definition.clone(), key: *key, order });
            cx.before_it_inserts(&at)?;
            if cx.insert(&at, entry)? == Inserted::Done {
                cx.note(Change::Defined { fence: *writer, definition: definition.clone() });
                work.stage = 3;
            } else {
                work.stage = 2;
            }
        } else {
            work.stage = 2;
        }
        if work.stage == 2 {
            // Read again, by a statement that sees whatever the first one waited for.
            cx.new_snapshot();
        }
    }
    if work.stage == 3 {
        orbit.breathe(breath, cx)?;
        return Ok(PutResult::Created);
    }
    // Before the fence: what is there is there, whoever asks (protocols, 4).
    let there = cx.get(&at).map(|found| found.value.definition().clone());
    match there {
        Some(entry) if entry.key == *key => Ok(PutResult::Created),
        _ if current != *writer => Ok(PutResult::Fenced(current.term)),
        Some(entry) if entry.row.hash == definition.hash => Ok(PutResult::Unchanged),
        Some(entry) => Ok(PutResult::Conflict(entry.row.hash)),
        // What others did meanwhile was not visible yet: the same again will see it.
        None => Err(Stop::error(Code::LockNotAvailable)),
    }
}

fn put_worker(statement: &PutWorker, work: &mut Work, cx: &mut Cx<'_>) -> Result<(), Stop> {
    let key = Key::Worker(statement.worker.worker_id.clone());
    let row = || Row::Worker(statement.worker.clone());
    loop {
        let met = match work.met {
            Some(met) => met,
            None => {
                cx.before_it_inserts(&key)?;
                match cx.insert(&key, row)? {
                    Inserted::Done => break,
                    Inserted::Exists(met) => *work.met.insert(met),
                }
            }
        };
        let locked = cx.lock_conflicting(met, Strength::NoKeyUpdate)?;
        work.met = None;
        if matches!(locked, Locked::Same) {
            cx.update(met, row())?;
            break;
        }
    }
    cx.note(Change::WorkerSaved);
    Ok(())
}

/// Every row of `orbit_workers` that the snapshot sees.
fn workers(cx: &mut Cx<'_>) -> Vec<Found<Key, Row>> {
    cx.scan(Key::Worker(WorkerId::new(""))..Key::Node(NodeId::new("")))
}

fn see_workers(statement: &SeeWorkers, work: &mut Work, cx: &mut Cx<'_>) -> Result<u64, Stop> {
    let later = |row: &WorkerRow| statement.seen.get(&row.worker_id).copied().filter(|at| row.last_seen_ms < *at);
    let found = work.found.get_or_insert_with(|| workers(cx)).clone();
    while let Some(found) = found.get(work.at) {
        let seen = match later(found.value.worker()) {
            None => None,
            Some(_) => match cx.lock(found, Strength::NoKeyUpdate, Policy::Skip)? {
                Locked::Same => Some(found.value.worker().clone()),
                Locked::Newer(row) => Some(row.worker().clone()).filter(|row| later(row).is_some()),
                Locked::Gone | Locked::Skipped => None,
            },
        };
        work.at += 1;
        if let Some(row) = seen {
            let last_seen_ms = later(&row).expect("looked at just now");
            work.locked.push((found.row, Row::Worker(WorkerRow { last_seen_ms, ..row })));
        }
    }
    for (id, row) in std::mem::take(&mut work.locked) {
        cx.update(id, row)?;
        work.count += 1;
    }
    if work.count > 0 {
        cx.note(Change::WorkersSeen { workers: work.count });
    }
    Ok(work.count)
}

fn forget_workers(statement: &ForgetWorkers, work: &mut Work, cx: &mut Cx<'_>) -> Result<u64, Stop> {
    let found = work.found.get_or_insert_with(|| {
        let all = workers(cx);
        let gone = to_forget(statement, all.iter().map(|found| found.value.worker()));
        all.into_iter().filter(|found| gone.contains(&found.value.worker().worker_id)).collect()
    });
    let found = found.clone();
    while let Some(found) = found.get(work.at) {
        // One that was seen meanwhile stays.
        let same = |row: &Row| row.worker().last_seen_ms == found.value.worker().last_seen_ms;
        let goes = match cx.lock(found, Strength::Update, Policy::Skip)? {
            Locked::Same => true,
            Locked::Newer(row) => same(&row),
            Locked::Gone | Locked::Skipped => false,
        };
        work.at += 1;
        if goes {
            work.locked.push((found.row, found.value.clone()));
        }
    }
    for (id, _) in std::mem::take(&mut work.locked) {
        cx.delete(id)?;
        work.count += 1;
    }
    if work.count > 0 {
        cx.note(Change::WorkersForgotten { workers: work.count });
    }
    Ok(work.count)
}

/// It waits for nothing but another beat under the same name, and for no replica.
fn beat_node(statement: &BeatNode, work: &mut Work, cx: &mut Cx<'_>) -> Result<Option<NodeRow>, Stop> {
    cx.commits_at_once();
    let key = Key::Node(statement.node.node_id.clone());
    let heartbeat_ms = ClusterMs(cx.clock_ms());
    let row = || Row::Node(NodeRow { heartbeat_ms, ..statement.node.clone() });
    // What is there as the statement begins is what it gives where it writes nothing.
    let seen = work.found.get_or_insert_with(|| cx.get(&key).into_iter().collect()).first().cloned();
    loop {
        let met = match work.met {
            Some(met) => met,
            None => {
                cx.before_it_inserts(&key)?;
                match cx.insert(&key, row)? {
                    Inserted::Done => {
                        cx.note(beaten(statement, None));
                        return Ok(None);
                    }
                    Inserted::Exists(met) => *work.met.insert(met),
                }
            }
        };
        let locked = cx.lock_conflicting(met, Strength::NoKeyUpdate)?;
        work.met = None;
        if matches!(locked, Locked::Same) {
            let there = cx.newest(met).node().clone();
            if statement.may_replace(&there) {
                cx.note(beaten(statement, Some(&there)));
                cx.update(met, row())?;
                return Ok(None);
            }
            break;
        }
    }
    match seen.map(|found| found.value.node().clone()) {
        Some(there) => Ok(Some(there).filter(|there| there.incarnation != statement.node.incarnation || there.dead)),
        // It came in between: the same again will see it.
        None => Err(Stop::error(Code::LockNotAvailable)),
    }
}

fn leave_node(statement: &LeaveNode, work: &mut Work, cx: &mut Cx<'_>) -> Result<bool, Stop> {
    let mine = |row: &Row| row.node().incarnation == statement.incarnation;
    let key = Key::Node(statement.node_id.clone());
    let found = work.found.get_or_insert_with(|| cx.get(&key).filter(|f| mine(&f.value)).into_iter().collect());
    let Some(found) = found.first().cloned() else { return Ok(false) };
    cx.writes()?;
    let row = match cx.lock_to_write(&found, Strength::NoKeyUpdate)? {
        Locked::Same => found.value,
        Locked::Newer(row) if mine(&row) => row,
        Locked::Newer(_) | Locked::Gone | Locked::Skipped => return Ok(false),
    };
    let heartbeat_ms = ClusterMs(0);
    cx.update(found.row, Row::Node(NodeRow { heartbeat_ms, ..row.node().clone() }))?;
    cx.note(Change::NodeLeft { node: statement.node_id.clone(), incarnation: statement.incarnation });
    Ok(true)
}
