//! The lease of leadership, the row `leader` of `orbit_leases`.
//!
//! Conditions and times are of the row as it is once it is locked: they are read from the CTE that locks it, which gives the
//! row after the wait for it and not before (postgres-rules, R5 to R7).

use crate::postgres::statement::column::{self, get};
use crate::postgres::statement::{Link, Trouble};
use ::postgres::Row;
use orbit_core::id::{Incarnation, NodeId, Term};
use orbit_core::store::lease::{LeaseHolder, LeaseRow, LeaseRule};
use orbit_core::store::statement::{FreeLease, LeaseSeen, RenewLease, SeizeLease, TakeLease};
use orbit_core::time::ClusterMs;

/// The database's clock, in milliseconds, rounded down.
const CLOCK: &str = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// The row, locked; then the clock, read once that is done.
const LOCKED: &str = "WITH locked AS MATERIALIZED (SELECT * FROM orbit_leases WHERE name = 'leader' FOR NO KEY UPDATE),
    held AS MATERIALIZED (
        SELECT locked.*, floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint AS clock_ms FROM locked)";

/// What only simulated servers do.
fn sound(rule: LeaseRule) -> Result<(), Trouble> {
    match rule {
        LeaseRule::Sound => Ok(()),
        other => Err(Trouble::Damaged(format!("a lease is not judged like this: {other:?}"))),
    }
}

fn ms(ttl: std::time::Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX / 2)
}

/// The lease, and the clock. A server in recovery answers from the past, and is not believed (protocols, 9).
pub fn read(link: &mut Link) -> Result<LeaseSeen, Trouble> {
    let sql = format!(
        "SELECT epoch, node_id, host, incarnation, expires_ms, taken_ms, renewed_ms, {CLOCK}, pg_is_in_recovery()
         FROM orbit_leases WHERE name = 'leader'"
    );
    let row = link.query_opt(&sql, &[])?;
    let row = row.ok_or_else(|| Trouble::Damaged("the row of orbit_leases is missing".into()))?;
    if get(&row, 8)? {
        return Err(Trouble::Standby);
    }
    from_row(&row)
}

fn from_row(row: &Row) -> Result<LeaseSeen, Trouble> {
    let holder = match column::text_or_null::<NodeId>(row, 1)? {
        None => None,
        Some(node_id) => Some(LeaseHolder {
            node_id,
            host: get::<Option<String>>(row, 2)?.unwrap_or_default(),
            incarnation: Incarnation(column::uuid(row, 3)?),
        }),
    };
    Ok(LeaseSeen {
        row: LeaseRow {
            epoch: Term(column::number(row, 0)?),
            holder,
            expires_ms: ClusterMs(get(row, 4)?),
            taken_ms: ClusterMs(get(row, 5)?),
            renewed_ms: ClusterMs(get(row, 6)?),
        },
        clock: ClusterMs(get(row, 7)?),
    })
}

/// See [`LeaseRow::taken`].
pub fn take(link: &mut Link, take: &TakeLease) -> Result<Option<Term>, Trouble> {
    let TakeLease { holder, ttl, above, rule } = take;
    sound(*rule)?;
    let sql = format!(
        "{LOCKED}
         UPDATE orbit_leases l
         SET epoch = greatest(held.epoch, $1) + 1, node_id = $2, host = $3, incarnation = $4,
             expires_ms = held.clock_ms + $5 + 1, taken_ms = held.clock_ms, renewed_ms = held.clock_ms
         FROM held
         WHERE l.name = held.name AND (held.incarnation IS NULL OR held.expires_ms <= held.clock_ms)
         RETURNING l.epoch"
    );
    let values: [&(dyn ::postgres::types::ToSql + Sync); 5] =
        [&column::int(above.0), &holder.node_id.as_str(), &holder.host, &holder.incarnation.0, &ms(*ttl)];
    link.query_opt(&sql, &values)?.map(|row| Ok(Term(column::number(&row, 0)?))).transpose()
}

/// See [`LeaseRow::renewed`].
pub fn renew(link: &mut Link, renew: &RenewLease) -> Result<bool, Trouble> {
    let RenewLease { holder, epoch, ttl, rule } = renew;
    sound(*rule)?;
    let sql = format!(
        "{LOCKED}
         UPDATE orbit_leases l SET expires_ms = held.clock_ms + $4 + 1, renewed_ms = held.clock_ms
         FROM held
         WHERE l.name = held.name AND held.node_id = $1 AND held.incarnation = $2 AND held.epoch = $3
             AND held.expires_ms > held.clock_ms
         RETURNING l.epoch"
    );
    let values: [&(dyn ::postgres::types::ToSql + Sync); 4] =
        [&holder.node_id.as_str(), &holder.incarnation.0, &column::int(epoch.0), &ms(*ttl)];
    Ok(!link.query(&sql, &values)?.is_empty())
}

/// See [`LeaseRow::freed`].
pub fn free(link: &mut Link, free: &FreeLease) -> Result<bool, Trouble> {
    let rows = link.query(
        "UPDATE orbit_leases SET node_id = NULL, host = NULL, incarnation = NULL, expires_ms = 0
         WHERE name = 'leader' AND incarnation = $1 AND epoch = $2
         RETURNING epoch",
        &[&free.fence.incarnation.0, &column::int(free.fence.term.0)],
    )?;
    Ok(!rows.is_empty())
}

/// See [`LeaseRow::seized`].
pub fn seize(link: &mut Link, seize: &SeizeLease) -> Result<bool, Trouble> {
    let rows = link.query(
        "UPDATE orbit_leases SET epoch = $2, node_id = NULL, host = NULL, incarnation = NULL, expires_ms = 0
         WHERE name = 'leader' AND epoch = $1
         RETURNING epoch",
        &[&column::int(seize.expected.0), &column::int(seize.epoch.0)],
    )?;
    Ok(!rows.is_empty())
}
