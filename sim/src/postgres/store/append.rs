//! The append as one statement: it locks the fence, tries to lock what is there, lets new executions meet their like,
//! and has [`judge`] judge (append/README, "Model"). It waits for the fence and for new keys alone.

use super::{Breath, FenceLock, Key, Orbit, Row, fence};
use crate::postgres::context::{Context, Found, Inserted, Locked, Policy};
use crate::postgres::error::{Code, Stop};
use crate::postgres::lock::RowId;
use crate::postgres::table::Strength;
use crate::store::Change;
use crate::store::append::{assert_in_order, root_of};
use crate::store::ownership::tree_of as owned;
use crate::store::tables::{EventRow, ExecutionRow, TaskEntry};
use orbit_core::id::{ExecutionId, Run, TaskId};
use orbit_core::store::append::{
    Append, Appended, Expect, Fence, Group, GroupFacts, GroupOutcome, Member, MemberFacts, OwnerChange, OwnerRow,
    TaskChange, TaskState, Wake, already_written, first_epoch, judge,
};
use orbit_core::store::statement::LookForGroups;
use std::collections::{BTreeMap, BTreeSet};

type Cx<'a> = Context<'a, Orbit>;
type FoundRow = Found<Key, Row>;

/// How far it has got.
#[derive(Clone, Debug)]
pub struct Work {
    stage: Stage,
    current: Option<Fence>,
    /// What the snapshot saw and what could be locked, in the order of the keys.
    owners: BTreeMap<ExecutionId, Seen<OwnerRow>>,
    /// Roots of trees that have to be the writer's, of members that are not their own.
    roots: BTreeMap<ExecutionId, Seen<OwnerRow>>,
    tasks: BTreeMap<TaskId, Seen<TaskEntry>>,
    /// What the snapshot saw, unlocked.
    known: BTreeSet<ExecutionId>,
    first_events: BTreeMap<ExecutionId, orbit_core::id::GroupId>,
    outcomes: Vec<GroupOutcome>,
    repeated: Vec<bool>,
    /// New executions to insert, in order, with their group; and how far that is.
    fresh: Vec<(ExecutionId, usize)>,
    inserted: usize,
    made: BTreeSet<ExecutionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Fence,
    Locked,
    Judged,
    Writing,
    Written,
}

/// A row that the statement asked for.
#[derive(Clone, Debug)]
struct Seen<T> {
    row: RowId,
    /// None where others hold it, or where it went meanwhile: it looks held.
    locked: Option<T>,
}

impl Work {
    pub fn new(append: &Append) -> Work {
        crate::store::assert_batch(append);
        Work {
            stage: Stage::Fence,
            current: None,
            owners: BTreeMap::new(),
            roots: BTreeMap::new(),
            tasks: BTreeMap::new(),
            known: BTreeSet::new(),
            first_events: BTreeMap::new(),
            outcomes: Vec::new(),
            repeated: Vec::new(),
            fresh: Vec::new(),
            inserted: 0,
            made: BTreeSet::new(),
        }
    }
}

pub fn resume(
    orbit: &mut Orbit,
    append: &Append,
    work: &mut Work,
    breath: &mut Breath,
    cx: &mut Cx<'_>,
) -> Result<Appended, Stop> {
    loop {
        match work.stage {
            Stage::Fence => {
                let current = fence(orbit, cx)?;
                let blind = matches!(orbit.fence_lock, FenceLock::None | FenceLock::Insert)
                    || orbit.is_writer(append.fence, current);
                let current = if blind { append.fence } else { current };
                cx.writes()?;
                work.current = Some(current);
                if current != append.fence {
                    return Ok(Appended::FenceMoved);
                }
                orbit.fenced.push(cx.session());
                work.stage = Stage::Locked;
            }
            Stage::Locked => {
                orbit.breathe(breath, cx)?;
                if orbit.fence_lock == FenceLock::Before {
                    cx.new_snapshot();
                }
                look(append, work, cx);
                lock_all(append, work, cx)?;
                judge_all(append, work);
                work.stage = Stage::Judged;
            }
            Stage::Judged => {
                orbit.breathe(breath, cx)?;
                work.stage = Stage::Writing;
            }
            Stage::Writing => {
                if orbit.fence_lock == FenceLock::Insert && fence(orbit, cx)? != append.fence {
                    return Ok(Appended::FenceMoved);
                }
                insert_all(append, work, cx)?;
                write_all(append, work, cx)?;
                work.stage = Stage::Written;
            }
            Stage::Written => {
                orbit.breathe(breath, cx)?;
                return Ok(Appended::Judged(work.outcomes.clone()));
            }
        }
    }
}

fn run_of(member: &Member) -> Run {
    match &member.expect {
        Expect::New { run, .. } | Expect::After { run, .. } => *run,
    }
}

/// What is read unlocked.
fn look(append: &Append, work: &mut Work, cx: &mut Cx<'_>) {
    for member in append.groups.iter().flat_map(|g| &g.members) {
        let id = &member.execution;
        if cx.get(&Key::Execution(id.clone())).is_some() {
            work.known.insert(id.clone());
        }
        if let Some(first) = member.events.first()
            && let Some(found) = cx.get(&Key::Event(id.clone(), run_of(member), first.seq))
            && let Row::Event(event) = found.value
        {
            work.first_events.insert(id.clone(), event.group);
        }
    }
}

pub fn task_of(change: &TaskChange) -> Option<&TaskId> {
    match change {
        TaskChange::Insert(_) => None,
        TaskChange::Delete { task, .. } | TaskChange::Requeue { task, .. } => Some(task),
    }
}

/// Tries to lock every row that is there, each once; what others hold is left out.
fn lock_all(append: &Append, work: &mut Work, cx: &mut Cx<'_>) -> Result<(), Stop> {
    let ids: BTreeSet<&ExecutionId> = append.groups.iter().flat_map(|g| &g.members).map(|m| &m.execution).collect();
    for id in ids.into_iter().filter(|id| !work.owners.contains_key(*id)).collect::<Vec<_>>() {
        if let Some(found) = cx.get(&Key::Owner(id.clone())) {
            let locked = try_lock(&found, Strength::Update, cx)?.map(|row| row.owner().clone());
            work.owners.insert(id.clone(), Seen { row: found.row, locked });
        }
    }
    let roots: BTreeSet<ExecutionId> =
        append.groups.iter().flat_map(|g| &g.members).filter_map(|m| tree_of(append, m, work)).collect();
    for root in roots.into_iter().filter(|root| !work.roots.contains_key(root)).collect::<Vec<_>>() {
        if let Some(found) = cx.get(&Key::Owner(root.clone())) {
            let locked = try_lock(&found, Strength::Share, cx)?.map(|row| row.owner().clone());
            work.roots.insert(root, Seen { row: found.row, locked });
        }
    }
    let tasks: BTreeSet<&TaskId> = append.groups.iter().flat_map(|g| &g.tasks).filter_map(task_of).collect();
    for task in tasks.into_iter().filter(|task| !work.tasks.contains_key(*task)).collect::<Vec<_>>() {
        if let Some(found) = cx.get(&Key::Task(task.clone())) {
            let locked = try_lock(&found, Strength::Update, cx)?.map(|row| row.task().clone());
            work.tasks.insert(task.clone(), Seen { row: found.row, locked });
        }
    }
    Ok(())
}

/// The root of the tree that a member belongs to, where that has to be the writer's and is not the member itself.
fn tree_of(append: &Append, member: &Member, work: &Work) -> Option<ExecutionId> {
    append.owner?;
    let row = work.owners.get(&member.execution).and_then(|seen| seen.locked.as_ref());
    root_of(member, row).filter(|root| *root != member.execution)
}

fn try_lock(found: &FoundRow, strength: Strength, cx: &mut Cx<'_>) -> Result<Option<Row>, Stop> {
    Ok(match cx.lock(found, strength, Policy::Skip)? {
        Locked::Same => Some(found.value.clone()),
        Locked::Newer(row) => Some(row),
        Locked::Gone | Locked::Skipped => None,
    })
}

fn facts(append: &Append, group: &Group, work: &Work) -> GroupFacts {
    let members = group
        .members
        .iter()
        .map(|member| {
            let id = &member.execution;
            let owner = work.owners.get(id).and_then(|seen| seen.locked.clone());
            // Only a new execution asks whether it is known; one with an owner row is.
            let known = work.known.contains(id) || matches!(member.expect, Expect::After { .. });
            let root = tree_of(append, member, work).and_then(|root| work.roots.get(&root)?.locked.as_ref().map(owned));
            MemberFacts { owner, known, first_event_by: work.first_events.get(id).copied(), root }
        })
        .collect();
    let state = |task| work.tasks.get(task).and_then(|seen: &Seen<TaskEntry>| Some(seen.locked.as_ref()?.state));
    let tasks = group.tasks.iter().map(|change| task_of(change).and_then(state)).collect();
    GroupFacts { fence: work.current.expect("the fence is known"), members, tasks }
}

fn judge_all(append: &Append, work: &mut Work) {
    for (index, group) in append.groups.iter().enumerate() {
        let facts = facts(append, group, work);
        let root_held = |m: &Member| {
            tree_of(append, m, work).is_some_and(|root| work.roots.get(&root).is_some_and(|seen| seen.locked.is_none()))
        };
        let held = group.members.iter().any(|m| work.owners.get(&m.execution).is_some_and(|s| s.locked.is_none()))
            || group.members.iter().any(root_held)
            || group.tasks.iter().filter_map(task_of).any(|t| work.tasks.get(t).is_some_and(|s| s.locked.is_none()));
        let repeated = already_written(group, &facts);
        let outcome = if repeated || !held { judge(append.writer(), group, &facts) } else { GroupOutcome::Busy };
        if outcome == GroupOutcome::Written && !repeated {
            let fresh = group.members.iter().filter(|m| matches!(m.expect, Expect::New { .. }));
            work.fresh.extend(fresh.map(|m| (m.execution.clone(), index)));
        }
        work.outcomes.push(outcome);
        work.repeated.push(repeated);
    }
    work.fresh.sort();
}

/// What is committed of groups, read unlocked. One that is there was written by an earlier sending.
/// Planted: it is `blind`.
pub fn look_for(look: &LookForGroups, blind: bool, cx: &mut Cx<'_>) -> Vec<MemberFacts> {
    let mut facts = Vec::new();
    if blind {
        let nothing = MemberFacts { owner: None, known: false, first_event_by: None, root: None };
        return vec![nothing; look.members.len()];
    }
    for member in &look.members {
        let id = &member.execution;
        let owner = cx.get(&Key::Owner(id.clone())).map(|found| found.value.owner().clone());
        let known = cx.get(&Key::Execution(id.clone())).is_some();
        let event = member.first.and_then(|first| cx.get(&Key::Event(id.clone(), member.run, first)));
        let first_event_by = event.map(|found| match found.value {
            Row::Event(event) => event.group,
            other => unreachable!("an event's key leads to an event, not to {other:?}"),
        });
        facts.push(MemberFacts { owner, known, first_event_by, root: None });
    }
    facts
}

/// New executions meet their like in the insert of their summaries: the one place that waits for another append.
fn insert_all(append: &Append, work: &mut Work, cx: &mut Cx<'_>) -> Result<(), Stop> {
    while let Some((id, index)) = work.fresh.get(work.inserted).cloned() {
        let member = append.groups[index].members.iter().find(|m| m.execution == id).expect("listed from there");
        let Expect::New { root, .. } = &member.expect else { unreachable!("it is new") };
        let row = || {
            let summary = member.summary.clone().expect("a new execution has a summary");
            Row::Execution(ExecutionRow { root: root.clone(), run: member.end().0, summary })
        };
        let key = Key::Execution(id.clone());
        cx.before_it_inserts(&key)?;
        match cx.insert(&key, row)? {
            Inserted::Done => {
                work.made.insert(id);
            }
            // Somebody was faster, and what it wrote is not seen by this statement.
            Inserted::Exists(_) => work.outcomes[index] = GroupOutcome::Busy,
        }
        work.inserted += 1;
    }
    let half =
        |(id, index): &(ExecutionId, usize)| work.outcomes[*index] == GroupOutcome::Busy && work.made.contains(id);
    // A group that met another's row half-way undoes the batch.
    if work.fresh.iter().any(half) { Err(Stop::error(Code::DivisionByZero)) } else { Ok(()) }
}

fn write_all(append: &Append, work: &Work, cx: &mut Cx<'_>) -> Result<(), Stop> {
    for ((group, outcome), repeated) in append.groups.iter().zip(&work.outcomes).zip(&work.repeated) {
        if *outcome != GroupOutcome::Written {
            continue;
        }
        if !repeated {
            for member in &group.members {
                write_member(append, group, member, work, cx)?;
            }
            for change in &group.tasks {
                write_task(change, work, cx)?;
            }
        }
        cx.note(Change::Group { fence: append.fence, owner: append.owner, group: group.clone(), repeated: *repeated });
    }
    Ok(())
}

fn write_member(append: &Append, group: &Group, member: &Member, work: &Work, cx: &mut Cx<'_>) -> Result<(), Stop> {
    let id = &member.execution;
    let (run, last) = member.end();
    assert_in_order(member);
    for event in &member.events {
        let row =
            EventRow { seq: event.seq, at_ms: event.at_ms, group: group.id, bytes: event.bytes.as_slice().into() };
        must_be_new(cx, &Key::Event(id.clone(), event.run, event.seq), Row::Event(row))?;
    }
    match &member.expect {
        Expect::New { root, .. } => {
            let wake = match member.owner {
                OwnerChange::Keep => Wake::Hot,
                OwnerChange::Wake(wake) => wake,
                OwnerChange::End => return Ok(()),
            };
            let tree = tree_of(append, member, work).and_then(|root| work.roots.get(&root)?.locked.as_ref().map(owned));
            let (epoch, incarnation) = (first_epoch(tree), append.writer().incarnation());
            let owner = OwnerRow { root: root.clone(), run, epoch, incarnation, last, group: group.id, wake };
            must_be_new(cx, &Key::Owner(id.clone()), Row::Owner(owner))
        }
        Expect::After { .. } => {
            if let Some(summary) = &member.summary {
                let found = cx.get(&Key::Execution(id.clone())).ok_or(Stop::error(Code::Raised))?;
                let Row::Execution(mut row) = found.value.clone() else { unreachable!("a summary") };
                (row.summary, row.run) = (summary.clone(), run);
                // Whoever writes it holds the owner row, as this one does.
                match cx.lock_at_once(&found, Strength::NoKeyUpdate)? {
                    Locked::Same | Locked::Newer(_) => cx.update(found.row, Row::Execution(row))?,
                    Locked::Gone | Locked::Skipped => return Err(Stop::error(Code::Raised)),
                }
            }
            let seen = &work.owners[id];
            let mut owner = seen.locked.clone().expect("judged to be there");
            (owner.run, owner.last, owner.group) = (run, last, group.id);
            match member.owner {
                OwnerChange::End => return cx.delete(seen.row),
                OwnerChange::Wake(wake) => owner.wake = wake,
                OwnerChange::Keep => {}
            }
            cx.update(seen.row, Row::Owner(owner))
        }
    }
}

fn write_task(change: &TaskChange, work: &Work, cx: &mut Cx<'_>) -> Result<(), Stop> {
    let (task, goes) = match change {
        TaskChange::Insert(row) => {
            let entry = TaskEntry { row: row.clone(), state: TaskState::Queued, claim: None, repeat: false };
            return must_be_new(cx, &Key::Task(row.task.clone()), Row::Task(entry));
        }
        TaskChange::Delete { task, .. } => (task, true),
        TaskChange::Requeue { task, .. } => (task, false),
    };
    let seen = &work.tasks[task];
    let entry = seen.locked.clone().expect("judged to be there");
    free_token(&entry, cx)?;
    if goes {
        cx.delete(seen.row)
    } else {
        cx.update(seen.row, Row::Task(TaskEntry { state: TaskState::Queued, claim: None, ..entry }))
    }
}

/// The token of a claimed row leaves the index with the row that bore it.
pub fn free_token(entry: &TaskEntry, cx: &mut Cx<'_>) -> Result<(), Stop> {
    let TaskState::Claimed { token } = entry.state else { return Ok(()) };
    let Some(found) = cx.newest_of(&Key::Token(token)) else { return Ok(()) };
    cx.delete(found)
}

fn must_be_new(cx: &mut Cx<'_>, key: &Key, row: Row) -> Result<(), Stop> {
    match cx.insert(key, || row) {
        Ok(Inserted::Done) => Ok(()),
        Ok(Inserted::Exists(_)) => Err(Context::<Orbit>::unique_violation()),
        // Whoever holds the owner row, or made the execution, meets nobody here. Should it be wrong: nothing is done.
        Err(Stop::Waits) => Err(Stop::error(Code::LockNotAvailable)),
        Err(stop) => Err(stop),
    }
}
