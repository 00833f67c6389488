//! The lease, row by row as its SQL does it: the row is locked first, and judged by the clock as it is after that.

use super::write::{Work, lock_cluster};
use super::{Breath, Key, Orbit, Row};
use crate::postgres::context::{Context, Locked, Policy};
use crate::postgres::error::Stop;
use crate::postgres::lock::RowId;
use crate::postgres::table::Strength;
use crate::store::{Change, lease};
use orbit_core::id::Term;
use orbit_core::mutant::{Mutant, Mutants};
use orbit_core::store::lease::LeaseRow;
use orbit_core::store::statement::{FreeLease, MoveFence, RenewLease, SeizeLease, TakeLease};
use orbit_core::time::ClusterMs;

type Cx<'a> = Context<'a, Orbit>;

/// `SELECT … FOR NO KEY UPDATE` in a CTE: it waits for whoever holds the row.
fn lock(work: &mut Work, cx: &mut Cx<'_>) -> Result<(RowId, LeaseRow), Stop> {
    let found = work.see(|| cx.get(&Key::Lease)).expect("the row is never deleted");
    cx.writes()?;
    Ok(match cx.lock(&found, Strength::NoKeyUpdate, Policy::Wait)? {
        Locked::Same => (found.row, found.value.lease().clone()),
        Locked::Newer(row) => (found.row, row.lease().clone()),
        Locked::Gone | Locked::Skipped => unreachable!("the row is never deleted, and never skipped"),
    })
}

/// `UPDATE … WHERE <condition>`: it waits for whoever holds the row, where that fits as it was when the statement began.
fn lock_where(
    work: &mut Work,
    cx: &mut Cx<'_>,
    fits: impl Fn(&LeaseRow) -> bool,
) -> Result<Option<(RowId, LeaseRow)>, Stop> {
    let found = work.see(|| cx.get(&Key::Lease)).expect("the row is never deleted");
    if !fits(found.value.lease()) {
        return Ok(None);
    }
    cx.writes()?;
    let row = match cx.lock_to_write(&found, Strength::NoKeyUpdate)? {
        Locked::Same => found.value.lease().clone(),
        Locked::Newer(row) => row.lease().clone(),
        Locked::Gone | Locked::Skipped => unreachable!("the row is never deleted, and never skipped"),
    };
    Ok(Some((found.row, row)).filter(|(_, row)| fits(row)))
}

pub fn take(
    orbit: &mut Orbit,
    take: &TakeLease,
    work: &mut Work,
    breath: &mut Breath,
    cx: &mut Cx<'_>,
) -> Result<Option<Term>, Stop> {
    if work.lease.is_none() {
        let (id, before) = lock(work, cx)?;
        let clock = ClusterMs(cx.clock_ms());
        let Some(after) = before.taken(take, clock) else { return Ok(None) };
        cx.update(id, Row::Lease(after.clone()))?;
        cx.note(Change::LeaseTaken { before, after: after.clone(), clock });
        work.lease = Some(after);
    }
    orbit.breathe(breath, cx)?;
    Ok(work.lease.as_ref().map(|row| row.epoch))
}

pub fn renew(
    orbit: &mut Orbit,
    renew: &RenewLease,
    work: &mut Work,
    breath: &mut Breath,
    cx: &mut Cx<'_>,
) -> Result<bool, Stop> {
    if work.lease.is_none() {
        let (id, before) = lock(work, cx)?;
        let clock = ClusterMs(cx.clock_ms());
        let Some(after) = before.renewed(renew, clock) else { return Ok(false) };
        cx.update(id, Row::Lease(after.clone()))?;
        cx.note(Change::LeaseRenewed { by: renew.holder.clone(), before, after: after.clone(), clock });
        work.lease = Some(after);
    }
    orbit.breathe(breath, cx)?;
    Ok(true)
}

pub fn free(free: &FreeLease, work: &mut Work, cx: &mut Cx<'_>) -> Result<bool, Stop> {
    let Some((id, before)) = lock_where(work, cx, |row| row.freed(free).is_some())? else { return Ok(false) };
    cx.update(id, Row::Lease(before.freed(free).expect("looked at just now")))?;
    cx.note(Change::LeaseFreed { fence: free.fence });
    Ok(true)
}

pub fn seize(seize: &SeizeLease, work: &mut Work, cx: &mut Cx<'_>) -> Result<bool, Stop> {
    let Some((id, before)) = lock_where(work, cx, |row| row.epoch == seize.expected)? else { return Ok(false) };
    cx.update(id, Row::Lease(before.seized(seize)))?;
    cx.note(Change::LeaseSeized { before });
    Ok(true)
}

pub fn move_fence(
    orbit: &mut Orbit,
    to: &MoveFence,
    work: &mut Work,
    breath: &mut Breath,
    cx: &mut Cx<'_>,
) -> Result<bool, Stop> {
    if !work.moved {
        let holds = |row: &Row| lease::moved(row.cluster(), to).is_some();
        let Some((id, row)) = lock_cluster(work, cx, holds)? else { return Ok(false) };
        let mut after = lease::moved(row.cluster(), to).expect("looked at just now");
        let change = match lease::change(row.cluster(), &after) {
            Change::ModeSet { before, .. } if orbit.planted.planted(Mutant::ModeChangeKeepsFence) => {
                after.fence = before;
                Change::ModeSet { before, after: before }
            }
            change => change,
        };
        cx.update(id, Row::Cluster(after))?;
        cx.note(change);
        work.moved = true;
    }
    orbit.breathe(breath, cx)?;
    Ok(true)
}
