//! The queue of tasks that no waiting worker could take when they were scheduled: `orbit_tasks`.

use crate::postgres::statement::column::{self, get};
use crate::postgres::statement::{Link, Trouble};
use orbit_core::id::{ContractVersion, TaskName};
use orbit_core::store::statement::{ClaimTasks, ClaimedTask, RequeueClaims, RequeueStrays};
use std::collections::BTreeMap;
use uuid::Uuid;

/// Claims queued rows for the wants, in order, each its oldest; or gives what this claim has claimed already.
///
/// `queues` are the contracts that are wanted, each with the number of rows that all the wants for it can take.
/// `heads` locks that many of its oldest rows; those that others hold are passed over. What is taken of a queue is
/// always its beginning, so `pick` goes through the wants with nothing more than how many rows of each queue are taken.
/// Rows are updated as conflicts of an insert, which finds a locked row by its key under every plan.
const CLAIM: &str = "
WITH RECURSIVE f AS MATERIALIZED (SELECT term, incarnation FROM orbit_cluster WHERE id = 1 FOR SHARE),
before AS MATERIALIZED (SELECT task_id, execution_id, unit, attempt, token, task_name, contract_version, repeat
    FROM orbit_tasks WHERE state = 'claimed' AND claim_key = $3),
go AS MATERIALIZED (SELECT 1 FROM f WHERE term = $1 AND incarnation = $2 AND NOT EXISTS (SELECT 1 FROM before)),
queues AS MATERIALIZED (SELECT q::int, name, version, room
    FROM unnest($4::text[], $5::text[], $6::bigint[]) WITH ORDINALITY AS x (name, version, room, q)),
heads AS MATERIALIZED (SELECT k.q, o.* FROM (SELECT * FROM queues WHERE EXISTS (SELECT 1 FROM go) ORDER BY q) k
    CROSS JOIN LATERAL (SELECT * FROM orbit_tasks x
        WHERE x.state = 'queued' AND x.task_name = k.name AND x.contract_version = k.version
        ORDER BY x.enqueued_ms, x.task_id LIMIT k.room FOR UPDATE SKIP LOCKED) o),
ranked AS MATERIALIZED (SELECT h.*, row_number() OVER (ORDER BY enqueued_ms, task_id) AS rank,
    row_number() OVER (PARTITION BY q ORDER BY enqueued_ms, task_id) AS place FROM heads h),
able AS MATERIALIZED (SELECT w, q FROM unnest($7::int[], $8::int[]) AS x (w, q)),
wants AS MATERIALIZED (SELECT w::int, room FROM unnest($9::bigint[]) WITH ORDINALITY AS x (room, w)),
pick (w, taken, ranks) AS (
    SELECT 0, array_fill(0::bigint, ARRAY[(SELECT count(*)::int FROM queues)]), '{}'::bigint[]
    UNION ALL
    SELECT p.w + 1, s.taken, s.ranks FROM pick p CROSS JOIN LATERAL (
        WITH mine AS MATERIALIZED (SELECT r.q, r.rank FROM ranked r
            WHERE r.q IN (SELECT a.q FROM able a WHERE a.w = p.w + 1) AND r.place > p.taken[r.q]
            ORDER BY r.rank LIMIT (SELECT room FROM wants WHERE wants.w = p.w + 1))
        SELECT (SELECT array_agg(p.taken[k.q] + (SELECT count(*) FROM mine m WHERE m.q = k.q) ORDER BY k.q)
                FROM queues k) AS taken,
            (SELECT array_agg(m.rank ORDER BY m.rank) FROM mine m) AS ranks
    ) s WHERE p.w < (SELECT count(*) FROM wants)
),
tokens AS MATERIALIZED (SELECT w, nth, token FROM unnest($10::int[], $11::bigint[], $12::uuid[]) AS x (w, nth, token)),
taken AS MATERIALIZED (SELECT r.*, t.token AS new_token FROM pick p
    CROSS JOIN LATERAL unnest(p.ranks) WITH ORDINALITY AS x (rank, nth)
    JOIN ranked r ON r.rank = x.rank JOIN tokens t ON t.w = p.w AND t.nth = x.nth),
moved AS (INSERT INTO orbit_tasks (task_id, execution_id, unit, attempt, state, task_name, contract_version,
        enqueued_ms, token, claimed_by, claim_key)
    SELECT task_id, execution_id, unit, attempt, 'claimed', task_name, contract_version, enqueued_ms, new_token, $2, $3
    FROM taken ORDER BY task_id
    ON CONFLICT (task_id) DO UPDATE SET state = 'claimed', token = excluded.token, claimed_by = excluded.claimed_by,
        claim_key = excluded.claim_key)
SELECT task_id, execution_id, unit, attempt, new_token, task_name, contract_version, repeat FROM taken
UNION ALL
SELECT b.* FROM before b WHERE EXISTS (SELECT 1 FROM f WHERE term = $1 AND incarnation = $2)";

/// Claims; see [`CLAIM`].
pub fn claim(link: &mut Link, claim: &ClaimTasks) -> Result<Vec<ClaimedTask>, Trouble> {
    let mut room: BTreeMap<&(TaskName, ContractVersion), i64> = BTreeMap::new();
    let count = |number: usize| i64::try_from(number).unwrap_or(i64::MAX);
    let mut wants: Vec<Vec<&(TaskName, ContractVersion)>> = Vec::new();
    for want in &claim.wants {
        let mut contracts: Vec<_> = want.contracts.iter().collect();
        contracts.sort();
        contracts.dedup();
        for contract in &contracts {
            *room.entry(contract).or_default() += count(want.tokens.len());
        }
        wants.push(contracts);
    }
    let number = |index: usize| i32::try_from(index + 1).expect("a claim has few wants and contracts");
    let queue: BTreeMap<_, i32> = room.keys().enumerate().map(|(index, contract)| (*contract, number(index))).collect();
    let names: Vec<&str> = room.keys().map(|(name, _)| name.as_str()).collect();
    let versions: Vec<&str> = room.keys().map(|(_, version)| version.as_str()).collect();
    let rooms: Vec<i64> = room.values().copied().collect();
    let able = || wants.iter().enumerate().flat_map(|(want, all)| all.iter().map(move |contract| (want, contract)));
    let able_want: Vec<i32> = able().map(|(want, _)| number(want)).collect();
    let able_queue: Vec<i32> = able().map(|(_, contract)| queue[*contract]).collect();
    let want_rooms: Vec<i64> = claim.wants.iter().map(|want| count(want.tokens.len())).collect();
    let tokens = || {
        let wants = claim.wants.iter().enumerate();
        wants.flat_map(|(w, want)| want.tokens.iter().enumerate().map(move |(nth, token)| (w, nth, *token)))
    };
    let token_want: Vec<i32> = tokens().map(|(want, _, _)| number(want)).collect();
    let token_nth: Vec<i64> = tokens().map(|(_, nth, _)| count(nth + 1)).collect();
    let token: Vec<Uuid> = tokens().map(|(_, _, token)| token).collect();
    let rows = link.query(
        CLAIM,
        &[
            &column::int(claim.fence.term.0),
            &claim.fence.incarnation.0,
            &claim.key.0,
            &names,
            &versions,
            &rooms,
            &able_want,
            &able_queue,
            &want_rooms,
            &token_want,
            &token_nth,
            &token,
        ],
    )?;
    let mut claimed = BTreeMap::new();
    for row in &rows {
        let task = ClaimedTask {
            task: column::text(row, 0)?,
            execution: column::text(row, 1)?,
            unit: column::text(row, 2)?,
            attempt: column::number(row, 3)?,
            token: get(row, 4)?,
            task_name: column::text(row, 5)?,
            contract_version: column::text(row, 6)?,
            repeat: get(row, 7)?,
        };
        claimed.insert(task.token, task);
    }
    Ok(token.iter().filter_map(|token| claimed.remove(token)).collect())
}

/// Puts back what other incarnations claimed: in this mode, there are none beside the one that writes. After a promotion,
/// every row says that it may have been handed out.
pub fn requeue(link: &mut Link, requeue: &RequeueClaims) -> Result<u64, Trouble> {
    if requeue.promoted {
        link.query("UPDATE orbit_tasks SET repeat = true WHERE NOT repeat RETURNING 1", &[])?;
    }
    let rows = link.query(
        "WITH back AS (UPDATE orbit_tasks SET state = 'queued', token = NULL, claimed_by = NULL, claim_key = NULL
             WHERE state = 'claimed' AND claimed_by <> $1 RETURNING task_id)
         SELECT count(*) FROM back",
        &[&requeue.incarnation.0],
    )?;
    rows.first().map_or(Ok(0), |row| column::number(row, 0))
}

/// Puts back what the writer claimed under these keys, but for these tokens, and says which contract each row is for. What
/// others hold is left for the next time.
pub fn requeue_strays(
    link: &mut Link,
    RequeueStrays { fence, keys, tokens }: &RequeueStrays,
) -> Result<Vec<(TaskName, ContractVersion)>, Trouble> {
    let keys: Vec<Uuid> = keys.iter().map(|key| key.0).collect();
    let rows = link.query(
        "WITH f AS MATERIALIZED (SELECT term, incarnation FROM orbit_cluster WHERE id = 1 FOR SHARE),
         stray AS MATERIALIZED (SELECT task_id FROM orbit_tasks
            WHERE state = 'claimed' AND claimed_by = $2 AND claim_key = ANY ($3) AND token <> ALL ($4)
                AND EXISTS (SELECT 1 FROM f WHERE term = $1 AND incarnation = $2)
            ORDER BY task_id FOR UPDATE SKIP LOCKED)
         UPDATE orbit_tasks SET state = 'queued', token = NULL, claimed_by = NULL, claim_key = NULL
            WHERE task_id = ANY (ARRAY (SELECT task_id FROM stray)) RETURNING task_name, contract_version",
        &[&column::int(fence.term.0), &fence.incarnation.0, &keys, tokens],
    )?;
    rows.iter().map(|row| Ok((column::text(row, 0)?, column::text(row, 1)?))).collect()
}
