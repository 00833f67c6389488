//! The statements that only read.

use super::tables::{ExecutionRow, Tables};
use orbit_core::id::{ExecutionId, Run};
use orbit_core::store::append::{Status, TaskState, Wake};
use orbit_core::store::statement::{
    DefinitionRow, DueRows, FenceRow, HistoryPage, ListSummaries, LoadedExecution, LoadedTask, ReadDue, ReadHistories,
    ReadHistory, SummaryFilter, SummaryRow, Totals,
};
use orbit_core::time::ClusterMs;
use std::collections::BTreeSet;

pub fn fence(tables: &Tables, clock: ClusterMs) -> FenceRow {
    let row = &tables.cluster;
    FenceRow {
        cluster_id: row.cluster_id,
        schema_version: row.schema_version,
        mode: row.mode.clone(),
        election: row.election.clone(),
        fence: row.fence,
        holder: row.holder.clone(),
        // One place; a database of several says which it is.
        origin: None,
        raised_on: row.timeline,
        clock,
    }
}

pub fn definitions(tables: &Tables) -> Vec<DefinitionRow> {
    tables.definitions.iter().map(|d| d.row.clone()).collect()
}

pub fn histories(tables: &Tables, statement: &ReadHistories) -> Vec<LoadedExecution> {
    let load = |id: &ExecutionId| LoadedExecution {
        execution: id.clone(),
        owner: tables.owners.get(id).cloned(),
        events: tables.history(id).iter().map(|e| e.bytes.to_vec()).collect(),
        tasks: tables
            .tasks
            .values()
            .filter(|t| t.row.execution == *id)
            .map(|t| LoadedTask { task: t.row.task.clone(), state: t.state, repeat: t.repeat })
            .collect(),
    };
    statement.executions.iter().map(load).collect()
}

pub fn due(tables: &Tables, statement: &ReadDue) -> DueRows {
    let column = |wake: Wake| wake.to_column();
    let until = column(statement.until).expect("nobody asks for what never wakes");
    let owned = tables.owners.iter().filter(|(_, row)| statement.owner.is_none_or(|owner| row.incarnation == owner));
    let mut waking: Vec<(i64, &ExecutionId)> =
        owned.filter_map(|(id, owner)| Some((column(owner.wake)?, id))).collect();
    waking.sort();
    let next = waking.iter().find(|(wake, _)| *wake > until).map(|(wake, _)| ClusterMs(*wake));
    let after = statement.after.as_ref().map(|(wake, id)| (column(*wake).expect("a row of an earlier page"), id));
    let due = waking
        .into_iter()
        .filter(|row| row.0 <= until && after.is_none_or(|after| *row > after))
        .take(statement.limit as usize)
        .map(|(wake, id)| (Wake::from_column(Some(wake)), id.clone()))
        .collect();
    DueRows { due, next }
}

pub fn totals(tables: &Tables) -> Totals {
    let queued: BTreeSet<_> = tables
        .tasks
        .values()
        .filter(|t| t.state == TaskState::Queued)
        .map(|t| (t.row.task_name.clone(), t.row.contract_version.clone()))
        .collect();
    let held = tables.executions.values().filter(|row| row.summary.status == Status::Held).count();
    Totals { active: tables.owners.len() as u64, held: held as u64, queued: queued.into_iter().collect() }
}

pub fn summary(tables: &Tables, id: &ExecutionId) -> Option<SummaryRow> {
    let row = tables.executions.get(id)?;
    let history = tables.history(id);
    let ends = history.first().zip(history.last()).map(|(a, b)| (a.bytes.to_vec(), b.bytes.to_vec()));
    Some(SummaryRow { ends, ..list_row(id, row) })
}

fn list_row(id: &ExecutionId, row: &ExecutionRow) -> SummaryRow {
    SummaryRow { execution: id.clone(), root: row.root.clone(), run: row.run, summary: row.summary.clone(), ends: None }
}

pub fn summaries(tables: &Tables, statement: &ListSummaries) -> Vec<SummaryRow> {
    let mut rows: Vec<(ClusterMs, &ExecutionId, &ExecutionRow)> = tables
        .executions
        .iter()
        .filter(|(_, row)| matches(&statement.filter, row))
        .map(|(id, row)| (row.summary.created_at_ms, id, row))
        .collect();
    rows.sort_by(|a, b| (b.0, b.1).cmp(&(a.0, a.1)));
    let before = statement.before.as_ref().map(|(created, id)| (*created, id));
    rows.into_iter()
        .filter(|(created, id, _)| before.is_none_or(|before| (*created, *id) < before))
        .take(statement.limit as usize)
        .map(|(_, id, row)| list_row(id, row))
        .collect()
}

fn matches(filter: &SummaryFilter, row: &ExecutionRow) -> bool {
    let summary = &row.summary;
    filter.status.is_none_or(|s| s == summary.status)
        && filter.workflow.as_ref().is_none_or(|w| *w == summary.workflow)
        && filter.labels.iter().all(|(k, v)| summary.labels.get(k) == Some(v))
        && filter.since.is_none_or(|since| summary.created_at_ms >= since)
}

pub fn history(tables: &Tables, statement: &ReadHistory) -> HistoryPage {
    let row = tables.executions.get(&statement.execution);
    let known = row.is_some();
    let newest = row.map_or(Run(0), |row| row.run);
    let run = row.map_or(Run(0), |row| statement.run.unwrap_or(row.run));
    let rest = tables.run_history(&statement.execution, run).iter().filter(|e| e.seq > statement.after);
    let (mut events, mut bytes, mut more) = (Vec::new(), 0, false);
    for event in rest {
        if events.len() >= statement.limit as usize || (!events.is_empty() && bytes > statement.max_bytes as usize) {
            more = true;
            break;
        }
        bytes += event.bytes.len();
        events.push(event.bytes.to_vec());
    }
    HistoryPage { known, run, newest, events, more }
}
