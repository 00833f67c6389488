//! The registry of workers: `orbit_workers`.

use crate::postgres::statement::column::{self, get};
use crate::postgres::statement::{Link, Trouble};
use orbit_core::store::statement::{ForgetWorkers, PutWorker, SeeWorkers, WorkerRow};
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

/// Writes when workers were seen last. What others hold they are writing just now.
pub fn see(link: &mut Link, SeeWorkers { seen }: &SeeWorkers) -> Result<u64, Trouble> {
    let ids: Vec<&str> = seen.keys().map(|id| id.as_str()).collect();
    let times: Vec<i64> = seen.values().map(|at| at.0).collect();
    let rows = link.query(
        "WITH seen AS MATERIALIZED (SELECT * FROM unnest($1::text[], $2::bigint[]) AS seen (worker_id, at_ms)),
         row AS MATERIALIZED (SELECT w.worker_id FROM orbit_workers w JOIN seen s ON s.worker_id = w.worker_id
            WHERE w.last_seen_ms < s.at_ms ORDER BY w.worker_id FOR NO KEY UPDATE OF w SKIP LOCKED),
         written AS (UPDATE orbit_workers w SET last_seen_ms = s.at_ms FROM seen s
            WHERE w.worker_id = s.worker_id AND w.worker_id = ANY (ARRAY (SELECT worker_id FROM row))
            RETURNING w.worker_id)
         SELECT count(*) FROM written",
        &[&ids, &times],
    )?;
    rows.first().map_or(Ok(0), |row| column::number(row, 0))
}

/// Removes the rows of workers that have been gone for long. One that was seen since the rows were looked at stays, and
/// what others hold does.
pub fn forget(link: &mut Link, ForgetWorkers { there, before, keep }: &ForgetWorkers) -> Result<u64, Trouble> {
    let there: Vec<&str> = there.iter().map(|id| id.as_str()).collect();
    let rows = link.query(
        "WITH place AS MATERIALIZED (SELECT worker_id, last_seen_ms,
                row_number() OVER (ORDER BY last_seen_ms DESC, worker_id) AS place
            FROM orbit_workers WHERE worker_id <> ALL ($3)),
         old AS MATERIALIZED (SELECT w.worker_id FROM orbit_workers w
            JOIN place p ON p.worker_id = w.worker_id AND p.last_seen_ms = w.last_seen_ms
            WHERE p.last_seen_ms < $1 OR p.place > $2 ORDER BY w.worker_id FOR UPDATE OF w SKIP LOCKED),
         gone AS (DELETE FROM orbit_workers WHERE worker_id = ANY (ARRAY (SELECT worker_id FROM old))
            RETURNING worker_id)
         SELECT count(*) FROM gone",
        &[&before.0, &i64::from(*keep), &there],
    )?;
    rows.first().map_or(Ok(0), |row| column::number(row, 0))
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
