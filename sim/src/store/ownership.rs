//! Who owns what, as [`orbit_core::store::ownership`] says it.

use super::commit::{Change, Commit};
use super::tables::Tables;
use orbit_core::id::{ExecutionId, Incarnation};
use orbit_core::store::append::{OwnerRow, TreeOwner};
use orbit_core::store::ownership::{
    MarkDead, OwnedTree, ReadOrphans, TakeMembers, TakeRule, TakeTrees, TakenTree, Taker,
};

/// Whether this incarnation may own something.
pub fn lives(tables: &Tables, incarnation: Incarnation) -> bool {
    tables.nodes.values().any(|node| node.incarnation == incarnation && node.is_there())
}

/// The owner row of this tree's root, as an append looks at it.
pub fn tree(tables: &Tables, root: &ExecutionId) -> Option<TreeOwner> {
    tables.owners.get(root).map(tree_of)
}

pub fn tree_of(row: &OwnerRow) -> TreeOwner {
    TreeOwner { epoch: row.epoch, incarnation: row.incarnation }
}

pub fn orphans(tables: &Tables, read: &ReadOrphans) -> Vec<OwnedTree> {
    let after = |id: &ExecutionId| read.after.as_ref().is_none_or(|after| id > after);
    let orphaned =
        |(id, row): &(&ExecutionId, &OwnerRow)| **id == row.root && after(id) && !lives(tables, row.incarnation);
    let seen =
        |(id, row): (&ExecutionId, &OwnerRow)| OwnedTree { root: id.clone(), owner: row.incarnation, wake: row.wake };
    tables.owners.iter().filter(orphaned).take(read.limit as usize).map(seen).collect()
}

pub fn mark_dead(tables: &mut Tables, mark: &MarkDead, commit: &mut Commit) -> bool {
    let Some(row) = tables.nodes.get_mut(&mark.node_id) else { return false };
    if mark.concerns(row) {
        row.dead = true;
        commit.changes.push(Change::MarkedDead { node: mark.node_id.clone(), incarnation: mark.incarnation });
    }
    row.incarnation == mark.incarnation && row.dead
}

/// The trees that are the taker's afterwards, by root.
pub fn take(tables: &mut Tables, take: &TakeTrees, commit: &mut Commit) -> Vec<TakenTree> {
    if tables.cluster.fence != take.fence {
        return Vec::new();
    }
    let mut trees: Vec<_> = take.trees.iter().collect();
    trees.sort();
    let mut taken = Vec::new();
    for (root, was) in trees {
        let Some(row) = tables.owners.get(root).filter(|row| row.root == *root).cloned() else { continue };
        if let Some(after) = take.taken(&row, *was, |incarnation| lives(tables, incarnation)) {
            commit.changes.push(moved(take, root, &row, &after));
            tables.owners.insert(root.clone(), after);
        }
        let row = &tables.owners[root];
        if row.incarnation == take.by.incarnation {
            taken.push(TakenTree { root: root.clone(), epoch: row.epoch });
        }
    }
    if take.rule == TakeRule::OneStatement {
        move_members(tables, &take.by, &taken, commit);
    }
    taken
}

/// The change that a taken root is.
pub fn moved(take: &TakeTrees, root: &ExecutionId, before: &OwnerRow, after: &OwnerRow) -> Change {
    Change::TreeTaken { root: root.clone(), before: tree_of(before), after: tree_of(after), reason: take.reason }
}

pub fn take_members(tables: &mut Tables, members: &TakeMembers, commit: &mut Commit) -> u64 {
    move_members(tables, &members.by, &members.trees, commit)
}

fn move_members(tables: &mut Tables, by: &Taker, trees: &[TakenTree], commit: &mut Commit) -> u64 {
    let mut moved = 0;
    for (id, row) in &mut tables.owners {
        let Some(tree) = trees.iter().find(|tree| tree.root == row.root && tree.root != *id) else { continue };
        if (row.epoch, row.incarnation) != (tree.epoch, by.incarnation) {
            (row.epoch, row.incarnation) = (tree.epoch, by.incarnation);
            moved += 1;
        }
    }
    if moved > 0 {
        commit.changes.push(Change::MembersTaken { by: by.incarnation, members: moved });
    }
    moved
}
