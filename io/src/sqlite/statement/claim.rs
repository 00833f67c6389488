//! The queue of tasks that no waiting worker could take when they were scheduled: `orbit_tasks`.

use crate::sqlite::statement::{column, fence};
use orbit_core::id::{ContractVersion, ExecutionId, TaskId, TaskName, UnitKey};
use orbit_core::store::statement::{ClaimTasks, ClaimedTask, RequeueClaims, RequeueStrays};
use rusqlite::{Connection, Result, named_params, params};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use uuid::Uuid;

type Contract = (TaskName, ContractVersion);

/// A queued row, in the order in which rows are claimed.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Queued {
    enqueued_ms: i64,
    task: TaskId,
    execution: ExecutionId,
    unit: UnitKey,
    attempt: u32,
}

/// Claims queued rows for the wants, in order; or gives what this claim has claimed already.
pub fn claim(connection: &Connection, claim: &ClaimTasks) -> Result<Vec<ClaimedTask>> {
    if fence::current(connection)? != claim.fence {
        return Ok(Vec::new());
    }
    let before = claimed_before(connection, claim)?;
    if !before.is_empty() {
        return Ok(before);
    }
    let mut queues = queues(connection, claim)?;
    let mut update = connection.prepare_cached(
        "UPDATE orbit_tasks SET state = 'claimed', token = ?, claimed_by = ?, claim_key = ? WHERE task_id = ?",
    )?;
    let mut claimed = Vec::new();
    for want in &claim.wants {
        for token in &want.tokens {
            let heads = want.contracts.iter().filter_map(|contract| Some((queues.get(contract)?.front()?, contract)));
            let Some((_, contract)) = heads.min() else { break };
            let contract = contract.clone();
            let Some(row) = queues.get_mut(&contract).and_then(VecDeque::pop_front) else { break };
            update.execute(params![
                token.as_bytes(),
                claim.fence.incarnation.0.as_bytes(),
                claim.key.0.as_bytes(),
                row.task.as_str()
            ])?;
            let Queued { task, execution, unit, attempt, .. } = row;
            let (task_name, contract_version) = contract;
            let token = *token;
            claimed.push(ClaimedTask {
                task,
                execution,
                unit,
                attempt,
                task_name,
                contract_version,
                token,
                repeat: false,
            });
        }
    }
    Ok(claimed)
}

/// The oldest rows of each contract that is wanted: as many as all the wants for it can take.
fn queues(connection: &Connection, claim: &ClaimTasks) -> Result<BTreeMap<Contract, VecDeque<Queued>>> {
    let mut room: BTreeMap<&Contract, usize> = BTreeMap::new();
    for want in &claim.wants {
        for contract in want.contracts.iter().collect::<BTreeSet<_>>() {
            *room.entry(contract).or_default() += want.tokens.len();
        }
    }
    let mut statement = connection.prepare_cached(
        "SELECT enqueued_ms, task_id, execution_id, unit, attempt FROM orbit_tasks
         WHERE state = 'queued' AND task_name = ? AND contract_version = ?
         ORDER BY enqueued_ms, task_id LIMIT ?",
    )?;
    let mut queues = BTreeMap::new();
    for (contract, room) in room {
        let limit = i64::try_from(room).unwrap_or(i64::MAX);
        let rows = statement.query_map(params![contract.0.as_str(), contract.1.as_str(), limit], |row| {
            Ok(Queued {
                enqueued_ms: row.get(0)?,
                task: column::text(row, 1)?,
                execution: column::text(row, 2)?,
                unit: column::text(row, 3)?,
                attempt: row.get(4)?,
            })
        })?;
        queues.insert(contract.clone(), rows.collect::<Result<_>>()?);
    }
    Ok(queues)
}

/// What an earlier sending of the same claim has claimed, in the order of its tokens (protocols, 4).
fn claimed_before(connection: &Connection, claim: &ClaimTasks) -> Result<Vec<ClaimedTask>> {
    let mut statement = connection.prepare_cached(
        "SELECT task_id, execution_id, unit, attempt, token, task_name, contract_version FROM orbit_tasks
         WHERE state = 'claimed' AND claim_key = ?",
    )?;
    let rows = statement.query_map([claim.key.0.as_bytes()], |row| {
        Ok(ClaimedTask {
            task: column::text(row, 0)?,
            execution: column::text(row, 1)?,
            unit: column::text(row, 2)?,
            attempt: row.get(3)?,
            token: column::uuid(row, 4)?,
            task_name: column::text(row, 5)?,
            contract_version: column::text(row, 6)?,
            repeat: false,
        })
    })?;
    let claimed: BTreeMap<Uuid, ClaimedTask> =
        rows.map(|task| task.map(|task| (task.token, task))).collect::<Result<_>>()?;
    let tokens = claim.wants.iter().flat_map(|want| &want.tokens);
    Ok(tokens.filter_map(|token| claimed.get(token).cloned()).collect())
}

/// Puts back what other incarnations claimed: in this mode, there are none beside the one that writes.
pub fn requeue(connection: &Connection, requeue: &RequeueClaims) -> Result<u64> {
    let mut statement = connection.prepare_cached(
        "UPDATE orbit_tasks SET state = 'queued', token = NULL, claimed_by = NULL, claim_key = NULL
         WHERE state = 'claimed' AND claimed_by <> :incarnation",
    )?;
    let changed = statement.execute(named_params! { ":incarnation": requeue.incarnation.0.as_bytes() })?;
    Ok(changed as u64)
}

/// Puts back what the writer claimed under these keys, but for these tokens, and says which contract each row is for.
pub fn requeue_strays(connection: &Connection, sweep: &RequeueStrays) -> Result<Vec<Contract>> {
    if fence::current(connection)? != sweep.fence {
        return Ok(Vec::new());
    }
    let mut claims = connection.prepare_cached(
        "SELECT task_id, claim_key, token, task_name, contract_version FROM orbit_tasks
         WHERE state = 'claimed' AND claimed_by = ? ORDER BY task_id",
    )?;
    let mut back = connection.prepare_cached(
        "UPDATE orbit_tasks SET state = 'queued', token = NULL, claimed_by = NULL, claim_key = NULL WHERE task_id = ?",
    )?;
    let mut contracts = Vec::new();
    let mut rows = claims.query([sweep.fence.incarnation.0.as_bytes()])?;
    while let Some(row) = rows.next()? {
        let (key, token) = (column::uuid(row, 1)?, column::uuid(row, 2)?);
        if sweep.keys.iter().all(|doubted| doubted.0 != key) || sweep.tokens.contains(&token) {
            continue;
        }
        back.execute([row.get::<_, String>(0)?])?;
        contracts.push((column::text(row, 3)?, column::text(row, 4)?));
    }
    Ok(contracts)
}
