//! The lease, as [`LeaseRow`] judges it.

use super::commit::{Change, Commit};
use super::tables::Tables;
use crate::store::tables::ClusterRow;
use orbit_core::id::Term;
use orbit_core::store::lease::LeaseRow;
use orbit_core::store::statement::{FreeLease, MoveFence, RenewLease, SeizeLease, TakeLease};
use orbit_core::time::ClusterMs;

pub fn take(tables: &mut Tables, take: &TakeLease, clock: ClusterMs, commit: &mut Commit) -> Option<Term> {
    let after = tables.lease.taken(take, clock)?;
    let before = std::mem::replace(&mut tables.lease, after.clone());
    let epoch = after.epoch;
    commit.changes.push(Change::LeaseTaken { before, after, clock });
    Some(epoch)
}

pub fn renew(tables: &mut Tables, renew: &RenewLease, clock: ClusterMs, commit: &mut Commit) -> bool {
    let Some(after) = tables.lease.renewed(renew, clock) else { return false };
    let before = std::mem::replace(&mut tables.lease, after.clone());
    commit.changes.push(Change::LeaseRenewed { by: renew.holder.clone(), before, after, clock });
    true
}

pub fn free(tables: &mut Tables, free: &FreeLease, commit: &mut Commit) -> bool {
    let Some(after) = tables.lease.freed(free) else { return false };
    tables.lease = after;
    commit.changes.push(Change::LeaseFreed { fence: free.fence });
    true
}

pub fn seize(tables: &mut Tables, seize: &SeizeLease, commit: &mut Commit) -> bool {
    if tables.lease.epoch != seize.expected {
        return false;
    }
    let after = tables.lease.seized(seize);
    let before = std::mem::replace(&mut tables.lease, after);
    commit.changes.push(Change::LeaseSeized { before });
    true
}

pub fn move_fence(tables: &mut Tables, to: &MoveFence, commit: &mut Commit) -> bool {
    let Some(after) = moved(&tables.cluster, to) else { return false };
    commit.changes.push(change(&tables.cluster, &after));
    tables.cluster = after;
    true
}

/// The row of `orbit_cluster` once the fence is there; none where it is not the expected one.
pub fn moved(row: &ClusterRow, to: &MoveFence) -> Option<ClusterRow> {
    (row.fence == to.expected && to.after.term >= row.fence.term).then(|| ClusterRow {
        fence: to.after,
        mode: to.mode.as_str().into(),
        election: to.election.as_str().into(),
        holder: to.holder.clone(),
        timeline: to.timeline,
        ..row.clone()
    })
}

/// The change that a move of the fence is: of the mode, where nobody leads from then on and servers are to be others.
pub fn change(before: &ClusterRow, after: &ClusterRow) -> Change {
    let (was, is) = (before.fence, after.fence);
    let other = (&before.mode, &before.election) != (&after.mode, &after.election);
    match other && after.holder.is_none() {
        true => Change::ModeSet { before: was, after: is },
        false => Change::FenceRaised { before: was, after: is },
    }
}

/// The row of `orbit_leases`, for a dump of the tables: without its times, which are of the database's own clock.
pub fn dump(row: &LeaseRow) -> serde_json::Value {
    serde_json::json!({"name": "leader", "epoch": row.epoch, "holder": row.holder})
}
