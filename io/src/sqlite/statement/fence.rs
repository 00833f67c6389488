//! The fence: the row of `orbit_cluster`.

use crate::sqlite::statement::{clock, column};
use orbit_core::id::{ClusterId, Incarnation, Term};
use orbit_core::store::append::Fence;
use orbit_core::store::statement::{CampaignRule, ClearHolder, FenceRow, Holder, RaiseFence};
use orbit_core::time::WallMs;
use rusqlite::{Connection, OptionalExtension, Result, Row, named_params};

/// The fence row, and the clock.
pub fn read(connection: &Connection) -> Result<FenceRow> {
    let mut statement = connection.prepare_cached(
        "SELECT cluster_id, mode, term, incarnation, leader_node, leader_addr, host, pid, since_ms,
                (SELECT version FROM schema_version), election
         FROM orbit_cluster WHERE id = 1",
    )?;
    statement.query_row([], |row| {
        Ok(FenceRow {
            cluster_id: ClusterId(column::uuid(row, 0)?),
            schema_version: column::number(row, 9)?,
            mode: row.get(1)?,
            election: row.get(10)?,
            fence: fence(row, 2, 3)?,
            holder: holder(row)?,
            origin: None,
            raised_on: None,
            clock: clock(),
        })
    })
}

/// The fence alone.
pub fn current(connection: &Connection) -> Result<Fence> {
    let mut statement = connection.prepare_cached("SELECT term, incarnation FROM orbit_cluster WHERE id = 1")?;
    statement.query_row([], |row| fence(row, 0, 1))
}

fn fence(row: &Row<'_>, term: usize, incarnation: usize) -> Result<Fence> {
    Ok(Fence { term: Term(column::number(row, term)?), incarnation: Incarnation(column::uuid(row, incarnation)?) })
}

fn holder(row: &Row<'_>) -> Result<Option<Holder>> {
    let Some(node_id) = column::text_or_null(row, 4)? else { return Ok(None) };
    Ok(Some(Holder {
        node_id,
        addr: row.get(5)?,
        host: row.get(6)?,
        pid: column::number(row, 7)?,
        since_ms: WallMs(row.get(8)?),
    }))
}

/// The next term for this incarnation, if the fence is still the expected one.
pub fn raise(connection: &Connection, raise: &RaiseFence) -> Result<Option<Term>> {
    let RaiseFence { expected, mode, incarnation, holder, timeline: _, rule } = raise;
    if *rule != CampaignRule::Sound {
        // Only simulated servers do.
        let message = format!("a campaign is not decided like this: {rule:?}");
        return Err(rusqlite::Error::ToSqlConversionFailure(message.into()));
    }
    let mut statement = connection.prepare_cached(
        "UPDATE orbit_cluster
         SET term = term + 1, mode = :mode, incarnation = :incarnation, leader_node = :node, leader_addr = :addr,
             host = :host, pid = :pid, since_ms = :since
         WHERE id = 1 AND term = :expected_term AND incarnation = :expected_incarnation
         RETURNING term",
    )?;
    let parameters = named_params! {
        ":mode": mode.as_str(),
        ":incarnation": incarnation.0.as_bytes(),
        ":node": holder.node_id.as_str(),
        ":addr": holder.addr,
        ":host": holder.host,
        ":pid": holder.pid,
        ":since": holder.since_ms.0,
        ":expected_term": column::int(expected.term.0),
        ":expected_incarnation": expected.incarnation.0.as_bytes(),
    };
    statement.query_row(parameters, |row| Ok(Term(column::number(row, 0)?))).optional()
}

/// Takes the holder's name off, if the fence is still this one.
pub fn clear_holder(connection: &Connection, clear: &ClearHolder) -> Result<bool> {
    let mut statement = connection.prepare_cached(
        "UPDATE orbit_cluster
         SET leader_node = NULL, leader_addr = NULL, host = NULL, pid = NULL, since_ms = NULL
         WHERE id = 1 AND term = :term AND incarnation = :incarnation",
    )?;
    let changed = statement.execute(named_params! {
        ":term": column::int(clear.fence.term.0),
        ":incarnation": clear.fence.incarnation.0.as_bytes(),
    })?;
    Ok(changed == 1)
}
