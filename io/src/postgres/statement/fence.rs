//! The fence, the row of `orbit_cluster`, and the election lock.

use crate::postgres::statement::column::{self, get};
use crate::postgres::statement::{Link, Trouble};
use ::postgres::Row;
use orbit_core::id::{ClusterId, Incarnation, Term};
use orbit_core::store::append::Fence;
use orbit_core::store::origin::Origin;
use orbit_core::store::statement::{
    CampaignRule, ClearHolder, FenceRow, Holder, LockState, MoveFence, RaiseFence, StandInLine,
};
use orbit_core::time::{ClusterMs, WallMs};

/// The key of the election lock: "orbitldr" in ASCII.
pub const ELECTION_LOCK: i64 = i64::from_be_bytes(*b"orbitldr");

/// Whether the session that runs this holds the election lock. PostgreSQL keeps a key's halves apart.
const HOLDS: &str = "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND pid = pg_backend_pid() AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32 | objid::bigint) = 8030589290619364466)";
/// The same of the lock that says for whom it holds the first one.
const HOLDS_FOR_ME: &str = "EXISTS (SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND pid = pg_backend_pid() AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32 | objid::bigint) = $3)";

/// The key of a second lock, beside the first one, of the connection that took it: a backend that a pooler lends to one
/// connection after the other holds the election lock on, for whoever took it.
fn own_lock(link: &Link) -> i64 {
    let (high, low) = link.marker.as_u64_pair();
    i64::from_be_bytes((high ^ low).to_be_bytes())
}

/// Takes the lock, once, if this is the session that was opened.
pub fn take_lock(link: &mut Link) -> Result<LockState, Trouble> {
    let (marker, own) = (link.marker.to_string(), own_lock(link));
    let sql = format!(
        "WITH me AS MATERIALIZED (SELECT coalesce(current_setting('orbit.session', true), '') = $1 AS me, {HOLDS} AS held,
                                         {HOLDS_FOR_ME} AS own)
         SELECT me AND (own OR NOT held),
                CASE WHEN me AND NOT held
                     THEN CASE WHEN pg_try_advisory_lock($2) THEN pg_try_advisory_lock($3) ELSE false END
                     ELSE held END
         FROM me"
    );
    let rows = link.query(&sql, &[&marker, &ELECTION_LOCK, &own])?;
    let row = rows.first().ok_or(Trouble::Again)?;
    Ok(match (get(row, 0)?, get(row, 1)?) {
        (false, _) => LockState::Pooled,
        (true, true) => LockState::Mine,
        (true, false) => LockState::Others,
    })
}

/// Waits for the lock, for a slice of time. The time-out is caught inside the block, so that the server logs nothing.
pub fn stand_in_line(link: &mut Link, line: &StandInLine) -> Result<(), Trouble> {
    let (ms, own) = (line.slice.as_millis(), own_lock(link));
    link.run(&format!(
        "DO $$ BEGIN
             PERFORM set_config('lock_timeout', '{ms}', true);
             PERFORM pg_advisory_lock({ELECTION_LOCK});
             PERFORM pg_advisory_lock({own});
         EXCEPTION WHEN lock_not_available THEN NULL;
         END $$"
    ))
}

/// Gives the lock back, if this session has it.
pub fn free_lock(link: &mut Link) -> Result<bool, Trouble> {
    let sql = format!("SELECT CASE WHEN {HOLDS} THEN pg_advisory_unlock($1) ELSE false END");
    let row = link.query_opt(&sql, &[&ELECTION_LOCK])?;
    row.map_or(Err(Trouble::Again), |row| get(&row, 0))
}

/// The fence row, and the clock. A server in recovery answers from the past, and is not believed (protocols, 9).
pub fn read(link: &mut Link) -> Result<FenceRow, Trouble> {
    let row = link.query_opt(
        "SELECT cluster_id, mode, term, incarnation, leader_node, leader_addr, host, pid, since_ms,
                (SELECT version FROM schema_version WHERE id = 1),
                floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint, pg_is_in_recovery(), election, timeline,
                (SELECT system_identifier FROM pg_control_system()),
                CASE WHEN pg_is_in_recovery() THEN NULL ELSE pg_walfile_name(pg_current_wal_insert_lsn()) END
         FROM orbit_cluster WHERE id = 1",
        &[],
    )?;
    let row = row.ok_or_else(|| Trouble::Damaged("the row of orbit_cluster is missing".into()))?;
    if get(&row, 11)? {
        return Err(Trouble::Standby);
    }
    from_row(&row)
}

/// What tells a database from others, from its system identifier and the name of the file of the log that it writes, which
/// begins with the timeline (postgres-rules, R28).
pub fn origin_of(system: i64, file: &str) -> Result<Origin, Trouble> {
    let timeline = file.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    let timeline = timeline.ok_or_else(|| Trouble::Damaged(format!("{file:?} is no name of a file of the log")))?;
    Ok(Origin { system: u64::from_ne_bytes(system.to_ne_bytes()), timeline })
}

/// The fence, which nobody moves until this transaction ends.
pub fn lock(link: &mut Link) -> Result<Fence, Trouble> {
    let row = link.query_opt("SELECT term, incarnation FROM orbit_cluster WHERE id = 1 FOR SHARE", &[])?;
    let row = row.ok_or_else(|| Trouble::Damaged("the row of orbit_cluster is missing".into()))?;
    fence(&row, 0, 1)
}

/// From the columns that [`read`] selects.
pub fn from_row(row: &Row) -> Result<FenceRow, Trouble> {
    Ok(FenceRow {
        cluster_id: ClusterId(column::uuid(row, 0)?),
        schema_version: column::number(row, 9)?,
        mode: get(row, 1)?,
        election: get(row, 12)?,
        fence: fence(row, 2, 3)?,
        holder: holder(row)?,
        origin: Some(origin_of(get(row, 14)?, get(row, 15)?)?),
        raised_on: get::<Option<i64>>(row, 13)?.and_then(|timeline| u32::try_from(timeline).ok()),
        clock: ClusterMs(get(row, 10)?),
    })
}

/// A fence from the columns of its term and incarnation.
pub fn fence(row: &Row, term: usize, incarnation: usize) -> Result<Fence, Trouble> {
    Ok(Fence { term: Term(column::number(row, term)?), incarnation: Incarnation(column::uuid(row, incarnation)?) })
}

fn holder(row: &Row) -> Result<Option<Holder>, Trouble> {
    let Some(node_id) = column::text_or_null(row, 4)? else { return Ok(None) };
    Ok(Some(Holder {
        node_id,
        addr: get(row, 5)?,
        host: get(row, 6)?,
        pid: column::number(row, 7)?,
        since_ms: WallMs(get(row, 8)?),
    }))
}

/// The next term for this incarnation, if this session holds the lock and the fence is still the expected one. It waits
/// for appends that are under way, which share-lock the row.
pub fn raise(link: &mut Link, raise: &RaiseFence) -> Result<Option<Term>, Trouble> {
    let RaiseFence { expected, mode, incarnation, holder, timeline, rule } = raise;
    if *rule != CampaignRule::Sound {
        // Only simulated servers do.
        return Err(Trouble::Damaged(format!("a campaign is not decided like this: {rule:?}")));
    }
    let sql = format!(
        "UPDATE orbit_cluster
         SET term = term + 1, mode = $1, election = 'lock', incarnation = $2, leader_node = $3, leader_addr = $4,
             host = $5, pid = $6, since_ms = $7, timeline = $10
         WHERE id = 1 AND term = $8 AND incarnation = $9 AND {HOLDS}
         RETURNING term"
    );
    let row = link.query_opt(
        &sql,
        &[
            &mode.as_str(),
            &incarnation.0,
            &holder.node_id.as_str(),
            &holder.addr,
            &holder.host,
            &i64::from(holder.pid),
            &holder.since_ms.0,
            &column::int(expected.term.0),
            &expected.incarnation.0,
            &timeline.map(i64::from),
        ],
    )?;
    row.map(|row| Ok(Term(column::number(&row, 0)?))).transpose()
}

/// Where a lease, or a change of the mode, says that it is from now on, if it is still the expected one. It waits for appends that are under way.
pub fn move_to(link: &mut Link, to: &MoveFence) -> Result<bool, Trouble> {
    let MoveFence { expected, after, mode, election, holder, timeline } = to;
    let named = |part: fn(&Holder) -> &str| holder.as_ref().map(part);
    let rows = link.query(
        "UPDATE orbit_cluster
         SET term = $1, mode = $2, election = $12, incarnation = $3, leader_node = $4, leader_addr = $5, host = $6,
             pid = $7, since_ms = $8, timeline = $11
         WHERE id = 1 AND term = $9 AND incarnation = $10 AND term < $1
         RETURNING term",
        &[
            &column::int(after.term.0),
            &mode.as_str(),
            &after.incarnation.0,
            &named(|holder| holder.node_id.as_str()),
            &holder.as_ref().and_then(|holder| holder.addr.as_deref()),
            &named(|holder| &holder.host),
            &holder.as_ref().map(|holder| i64::from(holder.pid)),
            &holder.as_ref().map(|holder| holder.since_ms.0),
            &column::int(expected.term.0),
            &expected.incarnation.0,
            &timeline.map(i64::from),
            &election.as_str(),
        ],
    )?;
    Ok(!rows.is_empty())
}

/// Takes the holder's name off, if the fence is still this one.
pub fn clear_holder(link: &mut Link, clear: &ClearHolder) -> Result<bool, Trouble> {
    let rows = link.query(
        "UPDATE orbit_cluster
         SET leader_node = NULL, leader_addr = NULL, host = NULL, pid = NULL, since_ms = NULL
         WHERE id = 1 AND term = $1 AND incarnation = $2
         RETURNING id",
        &[&column::int(clear.fence.term.0), &clear.fence.incarnation.0],
    )?;
    Ok(!rows.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_in_the_text_is_the_keys_value() {
        assert!(HOLDS.contains(&format!("= {ELECTION_LOCK})")));
    }
}
