//! The registry of workers: `orbit_workers`.

use crate::sqlite::statement::column;
use orbit_core::store::statement::{ForgetWorkers, PutWorker, SeeWorkers, WorkerRow};
use orbit_core::time::ClusterMs;
use rusqlite::{Connection, Result, params};

/// Makes or replaces a worker's row.
pub fn put(connection: &Connection, put: &PutWorker) -> Result<()> {
    let mut statement = connection.prepare_cached(
        "INSERT INTO orbit_workers (worker_id, runtime, sdk, contracts, last_seen_ms) VALUES (?, ?, ?, ?, ?)
         ON CONFLICT (worker_id) DO UPDATE
         SET runtime = excluded.runtime, sdk = excluded.sdk, contracts = excluded.contracts,
             last_seen_ms = excluded.last_seen_ms",
    )?;
    let WorkerRow { worker_id, runtime, sdk, contracts, last_seen_ms } = &put.worker;
    statement.execute(params![worker_id.as_str(), runtime, sdk, column::to_json(contracts), last_seen_ms.0])?;
    Ok(())
}

/// Writes when workers were seen last.
pub fn see(connection: &Connection, SeeWorkers { seen }: &SeeWorkers) -> Result<u64> {
    let mut statement = connection
        .prepare_cached("UPDATE orbit_workers SET last_seen_ms = ?2 WHERE worker_id = ?1 AND last_seen_ms < ?2")?;
    let mut written = 0;
    for (id, at) in seen {
        written += statement.execute(params![id.as_str(), at.0])? as u64;
    }
    Ok(written)
}

/// Removes the rows of workers that have been gone for long.
pub fn forget(connection: &Connection, ForgetWorkers { there, before, keep }: &ForgetWorkers) -> Result<u64> {
    let mut statement = connection.prepare_cached(
        "WITH others AS MATERIALIZED (SELECT worker_id, last_seen_ms FROM orbit_workers
            WHERE worker_id NOT IN (SELECT value FROM json_each(?3)))
         DELETE FROM orbit_workers WHERE worker_id IN (SELECT worker_id FROM others WHERE last_seen_ms < ?1)
            OR worker_id IN (SELECT worker_id FROM others ORDER BY last_seen_ms DESC, worker_id LIMIT -1 OFFSET ?2)",
    )?;
    Ok(statement.execute(params![before.0, keep, column::to_json(there)])? as u64)
}

/// All of them, by id.
pub fn read(connection: &Connection) -> Result<Vec<WorkerRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT worker_id, runtime, sdk, contracts, last_seen_ms FROM orbit_workers ORDER BY worker_id",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(WorkerRow {
            worker_id: column::text(row, 0)?,
            runtime: row.get(1)?,
            sdk: row.get(2)?,
            contracts: column::json(row, 3)?,
            last_seen_ms: ClusterMs(row.get(4)?),
        })
    })?;
    rows.collect()
}
