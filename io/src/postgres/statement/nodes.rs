//! The servers of a cluster: `orbit_nodes`.

use crate::postgres::statement::column::{self, get};
use crate::postgres::statement::{Link, Trouble};
use ::postgres::Row;
use orbit_core::id::{Incarnation, Term};
use orbit_core::store::ownership::MarkDead;
use orbit_core::store::statement::{BeatNode, LeaveNode, NodeRow, NodeRows};
use orbit_core::time::ClusterMs;

const COLUMNS: &str = "node_id, incarnation, addr, host, pid, version, role, term, config_digest, clock_offset_ms,
    started_ms, beats, heartbeat_ms, dead";
/// The database's clock, in milliseconds.
const CLOCK: &str = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// A server says that it lives. That is lost without harm: its commit waits for no disk and no replica, so that one that
/// hangs holds nobody's checks up.
pub fn beat(link: &mut Link, BeatNode { node, replaces }: &BeatNode) -> Result<Option<NodeRow>, Trouble> {
    let (of, beats) = replaces.map_or((None, None), |(of, beats)| (Some(of.0), Some(column::int(beats))));
    let sql = format!(
        "WITH lazy AS MATERIALIZED (SELECT set_config('synchronous_commit', 'off', true)),
         written AS (INSERT INTO orbit_nodes AS there ({COLUMNS})
            SELECT $1::text, $2::uuid, $3::text, $4::text, $5::bigint, $6::text, $7::text, $8::bigint, $9::text,
                $10::bigint, $11::bigint, $12::bigint, {CLOCK}, $15::bool FROM lazy
            ON CONFLICT (node_id) DO UPDATE
            SET incarnation = excluded.incarnation, addr = excluded.addr, host = excluded.host, pid = excluded.pid,
                version = excluded.version, role = excluded.role, term = excluded.term,
                config_digest = excluded.config_digest, clock_offset_ms = excluded.clock_offset_ms,
                started_ms = excluded.started_ms, beats = excluded.beats, heartbeat_ms = {CLOCK},
                dead = excluded.dead
            WHERE CASE WHEN there.incarnation = excluded.incarnation
                THEN there.heartbeat_ms <> 0 AND NOT there.dead AND there.beats < excluded.beats
                ELSE there.heartbeat_ms = 0 OR there.dead
                    OR (there.incarnation = $13::uuid AND there.beats = $14::bigint) IS TRUE END
            RETURNING node_id)
         SELECT (SELECT count(*) FROM written) > 0, seen.* FROM (SELECT 1) AS one
         LEFT JOIN (SELECT {COLUMNS} FROM orbit_nodes WHERE node_id = $1) AS seen ON true"
    );
    let row = link.query_opt(
        &sql,
        &[
            &node.node_id.as_str(),
            &node.incarnation.0,
            &node.addr,
            &node.host,
            &i64::from(node.pid),
            &node.version,
            &node.role,
            &column::int(node.term.0),
            &node.config_digest,
            &node.clock_offset_ms,
            &node.started_ms.0,
            &column::int(node.beats),
            &of,
            &beats,
            &node.dead,
        ],
    )?;
    let row = row.ok_or(Trouble::Again)?;
    // What is there was read before this statement wrote, or waited.
    match (get(&row, 0)?, get::<Option<&str>>(&row, 1)?) {
        (true, _) => Ok(None),
        (false, None) => Err(Trouble::Again),
        (false, Some(_)) => {
            Ok(Some(from_row(&row, 1)?).filter(|there| there.incarnation != node.incarnation || there.dead))
        }
    }
}

/// A server leaves.
pub fn leave(link: &mut Link, LeaveNode { node_id, incarnation }: &LeaveNode) -> Result<bool, Trouble> {
    let rows = link.query(
        "UPDATE orbit_nodes SET heartbeat_ms = 0 WHERE node_id = $1 AND incarnation = $2 RETURNING node_id",
        &[&node_id.as_str(), &incarnation.0],
    )?;
    Ok(!rows.is_empty())
}

/// An incarnation is no more. Where nothing is written, what is given is what was there as the statement began.
pub fn mark_dead(link: &mut Link, MarkDead { node_id, incarnation, beats }: &MarkDead) -> Result<bool, Trouble> {
    let row = link.query_opt(
        "WITH marked AS (UPDATE orbit_nodes SET dead = true
            WHERE node_id = $1 AND incarnation = $2 AND beats = $3 AND NOT dead AND heartbeat_ms <> 0 RETURNING node_id)
         SELECT EXISTS (SELECT 1 FROM marked)
            OR EXISTS (SELECT 1 FROM orbit_nodes WHERE node_id = $1 AND incarnation = $2 AND dead)",
        &[&node_id.as_str(), &incarnation.0, &column::int(*beats)],
    )?;
    row.map_or(Err(Trouble::Again), |row| get(&row, 0))
}

/// All of them, by name.
pub fn read(link: &mut Link) -> Result<NodeRows, Trouble> {
    let sql = format!(
        "SELECT {CLOCK} AS clock, nodes.* FROM (SELECT 1) AS one
         LEFT JOIN (SELECT {COLUMNS} FROM orbit_nodes) AS nodes ON true ORDER BY node_id"
    );
    let rows = link.query(&sql, &[])?;
    let clock = rows.first().map_or(Err(Trouble::Again), |row| get(row, 0))?;
    let mut nodes = Vec::with_capacity(rows.len());
    for row in &rows {
        if get::<Option<&str>>(row, 1)?.is_some() {
            nodes.push(from_row(row, 1)?);
        }
    }
    Ok(NodeRows { nodes, clock: ClusterMs(clock) })
}

/// From [`COLUMNS`], the first of which is the one of this number.
fn from_row(row: &Row, first: usize) -> Result<NodeRow, Trouble> {
    Ok(NodeRow {
        node_id: column::text(row, first)?,
        incarnation: Incarnation(column::uuid(row, first + 1)?),
        addr: get(row, first + 2)?,
        host: get(row, first + 3)?,
        pid: column::number(row, first + 4)?,
        version: get(row, first + 5)?,
        role: get(row, first + 6)?,
        term: Term(column::number(row, first + 7)?),
        config_digest: get(row, first + 8)?,
        clock_offset_ms: get(row, first + 9)?,
        started_ms: ClusterMs(get(row, first + 10)?),
        beats: column::number(row, first + 11)?,
        heartbeat_ms: ClusterMs(get(row, first + 12)?),
        dead: get(row, first + 13)?,
    })
}
