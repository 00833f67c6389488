//! Who owns what, row by row as its SQL does it. Takers wait for appends under way, which share the root's row, and an append
//! that meets a taker is busy.

use super::write::Work;
use super::{Breath, Key, Orbit, Row, fence};
use crate::postgres::context::{Context, Locked, Policy};
use crate::postgres::error::Stop;
use crate::postgres::lock::RowId;
use crate::postgres::table::Strength;
use crate::store::Change;
use crate::store::ownership::moved;
use orbit_core::id::{ExecutionId, Incarnation, NodeId};
use orbit_core::store::append::OwnerRow;
use orbit_core::store::ownership::{MarkDead, TakeMembers, TakeRule, TakeTrees, TakenTree, Taker};
use orbit_core::store::statement::NodeRow;
use std::collections::BTreeSet;

type Cx<'a> = Context<'a, Orbit>;

pub fn mark_dead(mark: &MarkDead, work: &mut Work, cx: &mut Cx<'_>) -> Result<bool, Stop> {
    let concerns = |row: &Row| mark.concerns(row.node());
    let is_marked = |row: &Row| row.node().incarnation == mark.incarnation && row.node().dead;
    let key = Key::Node(mark.node_id.clone());
    let Some(found) = work.see(|| cx.get(&key)) else { return Ok(false) };
    if !concerns(&found.value) {
        return Ok(is_marked(&found.value));
    }
    cx.writes()?;
    let row = match cx.lock_to_write(&found, Strength::NoKeyUpdate)? {
        Locked::Same => found.value,
        Locked::Newer(row) if concerns(&row) => row,
        // What the statement gives where it writes nothing is what it saw as it began.
        Locked::Newer(_) | Locked::Gone | Locked::Skipped => return Ok(false),
    };
    cx.update(found.row, Row::Node(NodeRow { dead: true, ..row.node().clone() }))?;
    cx.note(Change::MarkedDead { node: mark.node_id.clone(), incarnation: mark.incarnation });
    Ok(true)
}

/// The incarnations that may own something, as the statement's snapshot sees them.
fn living(cx: &mut Cx<'_>) -> BTreeSet<Incarnation> {
    let nodes = cx.scan(Key::Node(NodeId::new(""))..);
    nodes
        .into_iter()
        .map(|found| found.value.node().clone())
        .filter(NodeRow::is_there)
        .map(|row| row.incarnation)
        .collect()
}

/// The trees that are the taker's afterwards, by root.
pub fn take(
    orbit: &mut Orbit,
    take: &TakeTrees,
    work: &mut Work,
    breath: &mut Breath,
    cx: &mut Cx<'_>,
) -> Result<Vec<TakenTree>, Stop> {
    if work.stage == 0 {
        let current = fence(orbit, cx)?;
        cx.writes()?;
        if current != take.fence {
            return Ok(Vec::new());
        }
        let roots: BTreeSet<&ExecutionId> = take.trees.iter().map(|(root, _)| root).collect();
        let seen = roots
            .into_iter()
            .filter_map(|root| cx.get(&Key::Owner(root.clone())).filter(|f| f.value.owner().root == *root));
        work.found = Some(seen.collect());
        work.stage = 1;
    }
    if work.stage == 1 {
        lock_all(work, cx)?;
        work.stage = 2;
    }
    if work.stage == 2 {
        orbit.breathe(breath, cx)?;
        work.stage = 3;
    }
    if work.stage == 3 {
        let living = living(cx);
        for (at, row) in &mut work.locked {
            let before = row.owner().clone();
            let was = take.trees.iter().find(|(id, _)| *id == before.root).map(|(_, was)| *was);
            let was = was.expect("it was asked for");
            if let Some(after) = take.taken(&before, was, |incarnation| living.contains(&incarnation)) {
                cx.note(moved(take, &before.root, &before, &after));
                *row = Row::Owner(after);
                cx.update(*at, row.clone())?;
            }
        }
        work.stage = 4;
    }
    let roots = work.locked.iter().map(|(_, row)| row.owner());
    let mine = roots.filter(|row| row.incarnation == take.by.incarnation);
    let taken: Vec<TakenTree> = mine.map(|row| TakenTree { root: row.root.clone(), epoch: row.epoch }).collect();
    if take.rule == TakeRule::OneStatement {
        one_statement(take, &taken, work, cx)?;
    }
    Ok(taken)
}

/// The planted mistake: the members, as the same snapshot sees them, and nobody waits for who is under way.
fn one_statement(take: &TakeTrees, taken: &[TakenTree], work: &mut Work, cx: &mut Cx<'_>) -> Result<(), Stop> {
    if work.stage == 4 {
        (work.found, work.at, work.stage) = (Some(members(taken, cx)), 0, 5);
    }
    while let Some(found) = work.found.as_ref().and_then(|found| found.get(work.at)).cloned() {
        let locked = cx.lock(&found, Strength::Update, Policy::Skip)?;
        work.at += 1;
        if let Locked::Same | Locked::Newer(_) = locked {
            work.count += u64::from(make_its_own(found.row, found.value.owner(), &take.by, taken, cx)?);
        }
    }
    note_members(&take.by, work.count, cx);
    Ok(())
}

/// The rows of these trees but for their roots, as the statement's snapshot sees them.
fn members(trees: &[TakenTree], cx: &mut Cx<'_>) -> Vec<super::FoundRow> {
    let of_them = |row: &OwnerRow, id: &Key| {
        trees.iter().any(|tree| tree.root == row.root) && *id != Key::Owner(row.root.clone())
    };
    let all = cx.scan(Key::Owner(ExecutionId::new(""))..Key::Execution(ExecutionId::new("")));
    all.into_iter().filter(|found| of_them(found.value.owner(), &found.key)).collect()
}

pub fn take_members(take: &TakeMembers, work: &mut Work, cx: &mut Cx<'_>) -> Result<u64, Stop> {
    if work.stage == 0 {
        cx.writes()?;
        work.found = Some(members(&take.trees, cx));
        work.stage = 1;
    }
    lock_all(work, cx)?;
    let mut count = 0;
    for (at, row) in work.locked.clone() {
        count += u64::from(make_its_own(at, row.owner(), &take.by, &take.trees, cx)?);
    }
    note_members(&take.by, count, cx);
    Ok(count)
}

/// Locks what was found in the order of its keys, and waits for whoever holds it.
fn lock_all(work: &mut Work, cx: &mut Cx<'_>) -> Result<(), Stop> {
    while let Some(found) = work.found.as_ref().and_then(|found| found.get(work.at)).cloned() {
        match cx.lock(&found, Strength::Update, Policy::Wait)? {
            Locked::Same => work.locked.push((found.row, found.value)),
            Locked::Newer(row) => work.locked.push((found.row, row)),
            Locked::Gone | Locked::Skipped => {}
        }
        work.at += 1;
    }
    Ok(())
}

fn make_its_own(at: RowId, row: &OwnerRow, by: &Taker, trees: &[TakenTree], cx: &mut Cx<'_>) -> Result<bool, Stop> {
    let Some(tree) = trees.iter().find(|tree| tree.root == row.root) else { return Ok(false) };
    let after = OwnerRow { epoch: tree.epoch, incarnation: by.incarnation, ..row.clone() };
    if after == *row {
        return Ok(false);
    }
    cx.update(at, Row::Owner(after))?;
    Ok(true)
}

fn note_members(by: &Taker, members: u64, cx: &mut Cx<'_>) {
    if members > 0 {
        cx.note(Change::MembersTaken { by: by.incarnation, members });
    }
}
