//! The registry of workers: `orbit_workers`.

use crate::postgres::statement::column::{self, get};
use crate::postgres::statement::{Link, Trouble};
use orbit_core::store::statement::{PutWorker, WorkerRow};
use orbit_core::time::ClusterMs;

/// Makes or replaces a worker's row.
pub fn put(link: &mut Link, put: &PutWorker) -> Result<(), Trouble> {
    let WorkerRow { worker_id, runtime, sdk, contracts, last_seen_ms } = &put.worker;
    link.query(
        "INSERT INTO orbit_workers (worker_id, runtime, sdk, contracts, last_seen_ms) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (worker_id) DO UPDATE
         SET runtime = excluded.runtime, sdk = excluded.sdk, contracts = excluded.contracts,
             last_seen_ms = excluded.last_seen_ms",
        &[&worker_id.as_str(), runtime, sdk, &column::to_json(contracts), &last_seen_ms.0],
    )?;
    Ok(())
}

/// All of them, by id.
pub fn read(link: &mut Link) -> Result<Vec<WorkerRow>, Trouble> {
    let rows = link
        .query("SELECT worker_id, runtime, sdk, contracts, last_seen_ms FROM orbit_workers ORDER BY worker_id", &[])?;
    rows.iter()
        .map(|row| {
            Ok(WorkerRow {
                worker_id: column::text(row, 0)?,
                runtime: get(row, 1)?,
                sdk: get(row, 2)?,
                contracts: column::json(row, 3)?,
                last_seen_ms: ClusterMs(get(row, 4)?),
            })
        })
        .collect()
}
