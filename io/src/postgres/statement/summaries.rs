//! Summaries of executions, for lists and searches: `workflow_executions` and `execution_labels`.

use crate::postgres::statement::column::{self, get};
use crate::postgres::statement::{Link, Trouble};
use ::postgres::Row;
use ::postgres::types::ToSql;
use orbit_core::id::Run;
use orbit_core::store::append::Summary;
use orbit_core::store::statement::{ListSummaries, ReadSummary, SummaryRow};
use orbit_core::time::ClusterMs;

const COLUMNS: &str = "e.execution_id, e.root_id, e.run, e.workflow, e.version, e.status, e.created_at_ms,
    e.updated_at_ms, e.labels";

fn summary(row: &Row) -> Result<SummaryRow, Trouble> {
    Ok(SummaryRow {
        execution: column::text(row, 0)?,
        root: column::text(row, 1)?,
        run: Run(column::number(row, 2)?),
        summary: Summary {
            workflow: column::text(row, 3)?,
            version: column::text(row, 4)?,
            status: column::status(row, 5)?,
            created_at_ms: ClusterMs(get(row, 6)?),
            updated_at_ms: ClusterMs(get(row, 7)?),
            labels: column::json(row, 8)?,
        },
        ends: None,
    })
}

/// One summary, with the first and the last event of the current run.
pub fn one(link: &mut Link, read: &ReadSummary) -> Result<Option<SummaryRow>, Trouble> {
    let end = |order: &str| {
        format!(
            "(SELECT payload FROM execution_events x WHERE x.execution_id = e.execution_id AND x.run = e.run
              ORDER BY {order} LIMIT 1)"
        )
    };
    let sql = format!(
        "SELECT {COLUMNS}, {}, {} FROM workflow_executions e WHERE e.execution_id = $1",
        end("seq"),
        end("seq DESC")
    );
    let Some(row) = link.query_opt(&sql, &[&read.execution.as_str()])? else { return Ok(None) };
    let mut found = summary(&row)?;
    found.ends = get::<Option<Vec<u8>>>(&row, 9)?.zip(get::<Option<Vec<u8>>>(&row, 10)?);
    Ok(Some(found))
}

/// A page of summaries, newest first. The text depends on which filters there are, not on what they hold, so that few
/// texts exist and each stays prepared.
pub fn list(link: &mut Link, list: &ListSummaries) -> Result<Vec<SummaryRow>, Trouble> {
    let ListSummaries { filter, before, limit } = list;
    let labels: Vec<(&[u8], &[u8])> =
        filter.labels.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect();
    let status = filter.status.map(|status| status.as_str());
    let workflow = filter.workflow.as_ref().map(|workflow| workflow.as_str());
    let since = filter.since.map(|since| since.0);
    let earlier = before.as_ref().map(|(created, execution)| (created.0, execution.as_str()));
    let limit = i64::from(*limit);

    let mut values: Vec<&(dyn ToSql + Sync)> = Vec::new();
    let mut wheres: Vec<String> = Vec::new();
    // The first label leads: its rows lie in the order of the list. The others are looked up.
    let (from, order) = match labels.first() {
        None => ("workflow_executions e", "e"),
        Some((key, value)) => {
            values.extend([key as &(dyn ToSql + Sync), value]);
            wheres.push("l.key = $1 AND l.value = $2".into());
            ("execution_labels l JOIN workflow_executions e ON e.execution_id = l.execution_id", "l")
        }
    };
    for (key, value) in labels.iter().skip(1) {
        values.extend([key as &(dyn ToSql + Sync), value]);
        let (key, value) = (values.len() - 1, values.len());
        wheres.push(format!(
            "EXISTS (SELECT 1 FROM execution_labels x WHERE x.key = ${key} AND x.value = ${value}
             AND x.execution_id = e.execution_id)"
        ));
    }
    if let Some(status) = &status {
        values.push(status);
        wheres.push(format!("e.status = ${}", values.len()));
    }
    if let Some(workflow) = &workflow {
        values.push(workflow);
        wheres.push(format!("e.workflow = ${}", values.len()));
    }
    if let Some(since) = &since {
        values.push(since);
        wheres.push(format!("{order}.created_at_ms >= ${}", values.len()));
    }
    if let Some((created, execution)) = &earlier {
        values.extend([created as &(dyn ToSql + Sync), execution]);
        let (created, execution) = (values.len() - 1, values.len());
        wheres.push(format!("({order}.created_at_ms, {order}.execution_id) < (${created}, ${execution})"));
    }
    values.push(&limit);
    let filters = if wheres.is_empty() { "true".to_owned() } else { wheres.join(" AND ") };
    let sql = format!(
        "SELECT {COLUMNS} FROM {from} WHERE {filters}
         ORDER BY {order}.created_at_ms DESC, {order}.execution_id DESC LIMIT ${}",
        values.len()
    );
    link.query(&sql, &values)?.iter().map(summary).collect()
}
