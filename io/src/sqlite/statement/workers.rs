//! The registry of workers: `orbit_workers`.

use crate::sqlite::statement::column;
use orbit_core::store::statement::{PutWorker, WorkerRow};
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
