//! Executions as their owner and their readers see them: owner rows, events, tasks.

use crate::postgres::statement::column::{self, get};
use crate::postgres::statement::{Link, Trouble};
use ::postgres::Row;
use orbit_core::id::{Epoch, GroupId, Incarnation, Run, Seq};
use orbit_core::store::append::{OwnerRow, Wake};
use orbit_core::store::statement::{
    DueRows, HistoryPage, LoadedExecution, LoadedTask, ReadDue, ReadHistories, ReadHistory, Totals,
};
use orbit_core::time::ClusterMs;

/// Whole executions in one statement, so that all of it is of one moment. `kind`: 0 the owner row, 1 an event, 2 a task.
const HISTORIES: &str = "
WITH asked AS MATERIALIZED (SELECT (n - 1)::int AS i, id FROM unnest($1::text[]) WITH ORDINALITY AS x (id, n)),
own AS MATERIALIZED (SELECT a.i, o.* FROM asked a CROSS JOIN LATERAL
    (SELECT * FROM orbit_owners x WHERE x.execution_id = a.id) o),
current AS MATERIALIZED (SELECT a.i, a.id, coalesce((SELECT run FROM own WHERE own.i = a.i),
    (SELECT run FROM workflow_executions x WHERE x.execution_id = a.id)) AS run FROM asked a)
SELECT i, 0 AS kind, run AS n, root_id AS text, epoch, last_seq, next_wake_ms, group_id AS uuid, NULL::bytea AS payload,
        incarnation FROM own
UNION ALL
SELECT c.i, 1, e.seq, NULL, NULL, NULL, NULL, NULL, e.payload, NULL FROM current c CROSS JOIN LATERAL
    (SELECT seq, payload FROM execution_events x WHERE x.execution_id = c.id AND x.run = c.run) e
UNION ALL
SELECT a.i, 2, 0, t.task_id, t.repeat::int, NULL, NULL, t.token, NULL, NULL FROM asked a CROSS JOIN LATERAL
    (SELECT task_id, token, repeat FROM orbit_tasks x WHERE x.execution_id = a.id) t
ORDER BY 1, 2, 3, 4";

/// Whole executions, one for each id, in the order asked for.
pub fn histories(link: &mut Link, read: &ReadHistories) -> Result<Vec<LoadedExecution>, Trouble> {
    let ids: Vec<&str> = read.executions.iter().map(|id| id.as_str()).collect();
    let nothing = |execution: &orbit_core::id::ExecutionId| LoadedExecution {
        execution: execution.clone(),
        owner: None,
        events: Vec::new(),
        tasks: Vec::new(),
    };
    let mut loaded: Vec<LoadedExecution> = read.executions.iter().map(nothing).collect();
    for row in link.query(HISTORIES, &[&ids])? {
        let index: i32 = get(&row, 0)?;
        let of = &mut loaded[usize::try_from(index).expect("counted from 0")];
        match get::<i32>(&row, 1)? {
            0 => of.owner = Some(owner(&row)?),
            1 => of.events.push(get(&row, 8)?),
            _ => of.tasks.push(LoadedTask {
                task: column::text(&row, 3)?,
                state: column::task_state(&row, 7)?,
                repeat: get::<i64>(&row, 4)? != 0,
            }),
        }
    }
    Ok(loaded)
}

/// An owner row, from columns as [`HISTORIES`] has them.
fn owner(row: &Row) -> Result<OwnerRow, Trouble> {
    Ok(OwnerRow {
        root: column::text(row, 3)?,
        run: Run(column::number(row, 2)?),
        epoch: Epoch(column::number(row, 4)?),
        incarnation: Incarnation(column::uuid(row, 9)?),
        last: Seq(column::number(row, 5)?),
        group: GroupId(column::uuid(row, 7)?),
        wake: Wake::from_column(get(row, 6)?),
    })
}

/// A page of a run's history: the events that are in it, and one empty row more where others follow. The
/// length of an event is known without reading it.
const HISTORY: &str = "
WITH current AS MATERIALIZED (SELECT coalesce($5::bigint, run) AS run, run AS newest FROM workflow_executions
    WHERE execution_id = $1),
counted AS (SELECT seq, payload, row_number() OVER w AS n, sum(octet_length(payload)) OVER w - octet_length(payload) AS before
    FROM (SELECT seq, payload FROM execution_events WHERE execution_id = $1 AND run = (SELECT run FROM current)
        AND seq > $2 ORDER BY seq LIMIT $3::bigint + 1) page WINDOW w AS (ORDER BY seq))
SELECT 0::bigint AS seq, NULL::bytea, run, newest FROM current
UNION ALL
SELECT seq, CASE WHEN n <= $3 AND before <= $4 THEN payload END, 0, 0 FROM counted
ORDER BY 1";

/// A page of a run's history.
pub fn history(link: &mut Link, read: &ReadHistory) -> Result<HistoryPage, Trouble> {
    // A client may ask for what follows any number.
    let after = i64::try_from(read.after.0).unwrap_or(i64::MAX);
    let (limit, max_bytes) = (i64::from(read.limit), i64::from(read.max_bytes));
    let run = read.run.map(|run| i64::from(run.0));
    let rows = link.query(HISTORY, &[&read.execution.as_str(), &after, &limit, &max_bytes, &run])?;
    let number = |index| rows.first().map_or(Ok(0), |row| column::number(row, index)).map(Run);
    let (run, newest) = (number(2)?, number(3)?);
    let mut page = HistoryPage { known: !rows.is_empty(), run, newest, events: Vec::new(), more: false };
    for row in rows.iter().skip(1) {
        match get::<Option<Vec<u8>>>(row, 1)? {
            Some(event) => page.events.push(event),
            None => {
                page.more = true;
                break;
            }
        }
    }
    Ok(page)
}

const DUE: &str = "SELECT next_wake_ms, execution_id FROM orbit_owners
    WHERE next_wake_ms <= $1 AND (next_wake_ms, execution_id) > ($2, $3)
    ORDER BY next_wake_ms, execution_id LIMIT $4";
const NEXT_DUE: &str = "SELECT min(next_wake_ms) FROM orbit_owners WHERE next_wake_ms > $1";
/// The same, of one owner.
const DUE_OF: &str = "SELECT next_wake_ms, execution_id FROM orbit_owners
    WHERE next_wake_ms <= $1 AND (next_wake_ms, execution_id) > ($2, $3) AND incarnation = $5
    ORDER BY next_wake_ms, execution_id LIMIT $4";
const NEXT_DUE_OF: &str = "SELECT min(next_wake_ms) FROM orbit_owners WHERE next_wake_ms > $1 AND incarnation = $2";

/// Executions that want to be loaded, by (wake, id).
pub fn due(link: &mut Link, read: &ReadDue) -> Result<DueRows, Trouble> {
    let until = read.until.to_column();
    let (after_wake, after_id) = match &read.after {
        Some((wake, execution)) => (wake.to_column(), execution.as_str()),
        None => (Some(i64::MIN), ""),
    };
    // Second, so that what comes to be due in between is in one of the two.
    let (limit, owner) = (i64::from(read.limit), read.owner.map(|owner| owner.0));
    let rows = match &owner {
        None => link.query(DUE, &[&until, &after_wake, &after_id, &limit])?,
        Some(owner) => link.query(DUE_OF, &[&until, &after_wake, &after_id, &limit, owner])?,
    };
    let due = rows
        .iter()
        .map(|row| Ok((Wake::from_column(get(row, 0)?), column::text(row, 1)?)))
        .collect::<Result<Vec<_>, Trouble>>()?;
    let next = match &owner {
        None => link.query_opt(NEXT_DUE, &[&until])?,
        Some(owner) => link.query_opt(NEXT_DUE_OF, &[&until, owner])?,
    };
    let next: Option<i64> = next.map_or(Ok(None), |row| get(&row, 0))?;
    Ok(DueRows { due, next: next.map(ClusterMs) })
}

/// What a server that starts needs to know of the whole.
pub fn totals(link: &mut Link) -> Result<Totals, Trouble> {
    let active = link.query_opt("SELECT count(*) FROM orbit_owners", &[])?;
    let active = active.map_or(Ok(0), |row| column::number(&row, 0))?;
    let held = link.query_opt("SELECT count(*) FROM workflow_executions WHERE status = 'held'", &[])?;
    let held = held.map_or(Ok(0), |row| column::number(&row, 0))?;
    let rows = link.query(
        "SELECT DISTINCT task_name, contract_version FROM orbit_tasks WHERE state = 'queued'
         ORDER BY task_name, contract_version",
        &[],
    )?;
    let queued = rows
        .iter()
        .map(|row| Ok((column::text(row, 0)?, column::text(row, 1)?)))
        .collect::<Result<Vec<_>, Trouble>>()?;
    Ok(Totals { active, held, queued })
}
