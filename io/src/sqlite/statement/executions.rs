//! Executions as their owner and their readers see them: owner rows, events, tasks.

use crate::sqlite::statement::column;
use orbit_core::id::{Epoch, ExecutionId, GroupId, Incarnation, Run, Seq};
use orbit_core::store::append::{OwnerRow, TaskState, Wake};
use orbit_core::store::statement::{
    DueRows, HistoryPage, LoadedExecution, LoadedTask, ReadDue, ReadHistories, ReadHistory, Totals,
};
use orbit_core::time::ClusterMs;
use rusqlite::types::Type;
use rusqlite::{Connection, Error, OptionalExtension, Result, Row, params};
use uuid::Uuid;

/// The owner row of a running execution.
pub fn owner(connection: &Connection, execution: &ExecutionId) -> Result<Option<OwnerRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT root_id, run, epoch, last_seq, group_id, next_wake_ms, incarnation FROM orbit_owners WHERE execution_id = ?",
    )?;
    statement
        .query_row([execution.as_str()], |row| {
            Ok(OwnerRow {
                root: column::text(row, 0)?,
                run: Run(column::number(row, 1)?),
                epoch: Epoch(column::number(row, 2)?),
                incarnation: Incarnation(column::uuid(row, 6)?),
                last: Seq(column::number(row, 3)?),
                group: GroupId(column::uuid(row, 4)?),
                wake: Wake::from_column(row.get(5)?),
            })
        })
        .optional()
}

/// The current run of an execution, running or not.
pub fn current_run(connection: &Connection, execution: &ExecutionId) -> Result<Option<Run>> {
    let mut statement = connection.prepare_cached("SELECT run FROM workflow_executions WHERE execution_id = ?")?;
    statement.query_row([execution.as_str()], |row| Ok(Run(column::number(row, 0)?))).optional()
}

/// The state of a task row, from the columns `state` and `token`.
pub fn task_state(row: &Row<'_>, state: usize, token: usize) -> Result<TaskState> {
    match row.get_ref(state)?.as_str()? {
        "queued" => Ok(TaskState::Queued),
        "claimed" => Ok(TaskState::Claimed { token: column::uuid(row, token)? }),
        other => {
            let message = format!("{other:?} is no state of a task");
            Err(Error::FromSqlConversionFailure(state, Type::Text, message.into()))
        }
    }
}

/// Whole executions, one for each id, in the order asked for.
pub fn histories(connection: &Connection, read: &ReadHistories) -> Result<Vec<LoadedExecution>> {
    let mut all_events = connection
        .prepare_cached("SELECT payload FROM execution_events WHERE execution_id = ? AND run = ? ORDER BY seq")?;
    let mut all_tasks = connection
        .prepare_cached("SELECT task_id, state, token FROM orbit_tasks WHERE execution_id = ? ORDER BY task_id")?;
    let mut loaded = Vec::with_capacity(read.executions.len());
    for execution in &read.executions {
        let owner = owner(connection, execution)?;
        let run = match &owner {
            Some(owner) => Some(owner.run),
            None => current_run(connection, execution)?,
        };
        let events = match run {
            Some(run) => all_events
                .query_map(params![execution.as_str(), run.0], |row| row.get(0))?
                .collect::<Result<Vec<Vec<u8>>>>()?,
            None => Vec::new(),
        };
        let tasks = all_tasks
            .query_map([execution.as_str()], |row| {
                Ok(LoadedTask { task: column::text(row, 0)?, state: task_state(row, 1, 2)?, repeat: false })
            })?
            .collect::<Result<Vec<_>>>()?;
        loaded.push(LoadedExecution { execution: execution.clone(), owner, events, tasks });
    }
    Ok(loaded)
}

/// A page of a run's history.
pub fn history(connection: &Connection, read: &ReadHistory) -> Result<HistoryPage> {
    let Some(newest) = current_run(connection, &read.execution)? else {
        return Ok(HistoryPage { known: false, run: Run(0), newest: Run(0), events: Vec::new(), more: false });
    };
    let run = read.run.unwrap_or(newest);
    let mut statement = connection.prepare_cached(
        "SELECT payload FROM execution_events WHERE execution_id = ? AND run = ? AND seq > ? ORDER BY seq LIMIT ?",
    )?;
    // One more than is wanted tells whether there are more.
    let limit = i64::from(read.limit) + 1;
    // A client may ask for what follows any number.
    let after = i64::try_from(read.after.0).unwrap_or(i64::MAX);
    let mut rows = statement.query(params![read.execution.as_str(), run.0, after, limit])?;
    let (mut events, mut bytes) = (Vec::new(), 0);
    let full =
        |events: &Vec<Vec<u8>>, bytes: usize| events.len() >= read.limit as usize || bytes > read.max_bytes as usize;
    while let Some(row) = rows.next()? {
        if full(&events, bytes) {
            return Ok(HistoryPage { known: true, run, newest, events, more: true });
        }
        let event: Vec<u8> = row.get(0)?;
        bytes += event.len();
        events.push(event);
    }
    Ok(HistoryPage { known: true, run, newest, events, more: false })
}

const DUE: &str = "SELECT next_wake_ms, execution_id FROM orbit_owners
    WHERE next_wake_ms <= ? AND (next_wake_ms, execution_id) > (?, ?)
    ORDER BY next_wake_ms, execution_id LIMIT ?";
const NEXT_DUE: &str = "SELECT min(next_wake_ms) FROM orbit_owners WHERE next_wake_ms > ?";

/// Executions that want to be loaded, by (wake, id).
pub fn due(connection: &Connection, read: &ReadDue) -> Result<DueRows> {
    assert_eq!(read.owner, None, "one process has the file, and owns all that is in it");
    let mut rows = connection.prepare_cached(DUE)?;
    let until = read.until.to_column();
    let (after_wake, after_id) = match &read.after {
        Some((wake, execution)) => (wake.to_column(), execution.as_str()),
        None => (Some(i64::MIN), ""),
    };
    let due = rows
        .query_map(params![until, after_wake, after_id, read.limit], |row| {
            Ok((Wake::from_column(row.get(0)?), column::text(row, 1)?))
        })?
        .collect::<Result<Vec<_>>>()?;
    let mut next = connection.prepare_cached(NEXT_DUE)?;
    let next: Option<i64> = next.query_row([until], |row| row.get(0))?;
    Ok(DueRows { due, next: next.map(ClusterMs) })
}

/// What a server that starts needs to know of the whole.
pub fn totals(connection: &Connection) -> Result<Totals> {
    let active = connection.query_row("SELECT count(*) FROM orbit_owners", [], |row| column::number(row, 0))?;
    let held = "SELECT count(*) FROM workflow_executions WHERE status = 'held'";
    let held = connection.query_row(held, [], |row| column::number(row, 0))?;
    let mut statement = connection.prepare_cached(
        "SELECT DISTINCT task_name, contract_version FROM orbit_tasks WHERE state = 'queued'
         ORDER BY task_name, contract_version",
    )?;
    let queued = statement
        .query_map([], |row| Ok((column::text(row, 0)?, column::text(row, 1)?)))?
        .collect::<Result<Vec<_>>>()?;
    Ok(Totals { active, held, queued })
}

/// The group that wrote an event, where there is such an event.
pub fn written_by(connection: &Connection, execution: &ExecutionId, run: Run, seq: Seq) -> Result<Option<GroupId>> {
    let mut statement = connection
        .prepare_cached("SELECT group_id FROM execution_events WHERE execution_id = ? AND run = ? AND seq = ?")?;
    let found: Option<Uuid> = statement
        .query_row(params![execution.as_str(), run.0, column::int(seq.0)], |row| column::uuid(row, 0))
        .optional()?;
    Ok(found.map(GroupId))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_is_found_in_the_index_of_wakes_alone() {
        let mut connection = Connection::open_in_memory().unwrap();
        crate::sqlite::schema::create(&mut connection).unwrap();
        let index = "orbit_owners USING COVERING INDEX orbit_owners_due";
        for sql in [DUE, NEXT_DUE] {
            let plan: Vec<String> = connection
                .prepare(&format!("EXPLAIN QUERY PLAN {sql}"))
                .unwrap()
                .query_map(rusqlite::params_from_iter(vec![0; sql.matches('?').count()]), |row| row.get(3))
                .unwrap()
                .collect::<Result<_>>()
                .unwrap();
            assert!(plan.iter().any(|step| step.starts_with("SEARCH") && step.contains(index)), "{plan:?}");
            assert!(!plan.iter().any(|step| step.starts_with("SCAN") || step.contains("TEMP B-TREE")), "{plan:?}");
        }
    }
}
