//! Summaries of executions, for lists and searches: `workflow_executions` and `execution_labels`.

use crate::sqlite::statement::column;
use orbit_core::id::{ExecutionId, Run};
use orbit_core::store::append::Summary;
use orbit_core::store::statement::{ListSummaries, ReadSummary, SummaryRow};
use orbit_core::time::ClusterMs;
use rusqlite::types::ToSqlOutput;
use rusqlite::{Connection, OptionalExtension, Result, Row, ToSql, params, params_from_iter};

const COLUMNS: &str = "e.execution_id, e.root_id, e.run, e.workflow, e.version, e.status, e.created_at_ms,
    e.updated_at_ms, e.labels";

fn summary(row: &Row<'_>) -> Result<SummaryRow> {
    Ok(SummaryRow {
        execution: column::text(row, 0)?,
        root: column::text(row, 1)?,
        run: Run(column::number(row, 2)?),
        summary: Summary {
            workflow: column::text(row, 3)?,
            version: column::text(row, 4)?,
            status: column::status(row, 5)?,
            created_at_ms: ClusterMs(row.get(6)?),
            updated_at_ms: ClusterMs(row.get(7)?),
            labels: column::json(row, 8)?,
        },
        ends: None,
    })
}

/// One summary, with the first and the last event of the current run.
pub fn one(connection: &Connection, read: &ReadSummary) -> Result<Option<SummaryRow>> {
    let sql = format!("SELECT {COLUMNS} FROM workflow_executions e WHERE e.execution_id = ?");
    let mut statement = connection.prepare_cached(&sql)?;
    let Some(mut found) = statement.query_row([read.execution.as_str()], summary).optional()? else {
        return Ok(None);
    };
    let first = end(connection, &found.execution, found.run, "seq")?;
    let last = end(connection, &found.execution, found.run, "seq DESC")?;
    found.ends = first.zip(last);
    Ok(Some(found))
}

fn end(connection: &Connection, execution: &ExecutionId, run: Run, order: &str) -> Result<Option<Vec<u8>>> {
    let sql =
        format!("SELECT payload FROM execution_events WHERE execution_id = ? AND run = ? ORDER BY {order} LIMIT 1");
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_row(params![execution.as_str(), run.0], |row| row.get(0)).optional()
}

/// A page of summaries, newest first. The text depends on which filters there are, not on what they hold, so that few
/// texts exist and each stays prepared.
pub fn list(connection: &Connection, list: &ListSummaries) -> Result<Vec<SummaryRow>> {
    let ListSummaries { filter, before, limit } = list;
    let mut values: Vec<ToSqlOutput<'_>> = Vec::new();
    let mut wheres: Vec<&str> = Vec::new();
    // The first label leads: its rows lie in the order of the list. The others are looked up.
    let mut labels = filter.labels.iter();
    let (from, order) = match labels.next() {
        None => ("workflow_executions e", "e"),
        Some((key, value)) => {
            wheres.push("l.key = ? AND l.value = ?");
            values.extend([key.to_sql()?, value.to_sql()?]);
            ("execution_labels l CROSS JOIN workflow_executions e ON e.execution_id = l.execution_id", "l")
        }
    };
    for (key, value) in labels {
        wheres.push(
            "EXISTS (SELECT 1 FROM execution_labels x WHERE x.key = ? AND x.value = ?
             AND x.created_at_ms = e.created_at_ms AND x.execution_id = e.execution_id)",
        );
        values.extend([key.to_sql()?, value.to_sql()?]);
    }
    if let Some(status) = filter.status {
        wheres.push("e.status = ?");
        values.push(status.as_str().into());
    }
    if let Some(workflow) = &filter.workflow {
        wheres.push("e.workflow = ?");
        values.push(workflow.as_str().into());
    }
    let since = format!("{order}.created_at_ms >= ?");
    if let Some(created) = filter.since {
        wheres.push(&since);
        values.push(created.0.into());
    }
    let earlier = format!("({order}.created_at_ms, {order}.execution_id) < (?, ?)");
    if let Some((created, execution)) = before {
        wheres.push(&earlier);
        values.extend([created.0.into(), execution.as_str().into()]);
    }
    values.push((*limit).into());
    let filters = if wheres.is_empty() { "true".to_owned() } else { wheres.join(" AND ") };
    let sql = format!(
        "SELECT {COLUMNS} FROM {from} WHERE {filters}
         ORDER BY {order}.created_at_ms DESC, {order}.execution_id DESC LIMIT ?"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement.query_map(params_from_iter(values), summary)?.collect()
}
