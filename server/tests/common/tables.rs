//! What must not be in the tables, and no API shows.
#![allow(dead_code)]

use postgres::Client;

/// Each with a statement that gives the rows that must not be.
const MUST_NOT_BE: &[(&str, &str)] = &[
    (
        "a history with a gap",
        "SELECT execution_id FROM execution_events GROUP BY execution_id, run
         HAVING min(seq) <> 1 OR max(seq) <> count(*)",
    ),
    (
        "events of an execution that is not there",
        "SELECT DISTINCT execution_id FROM execution_events e
         WHERE NOT EXISTS (SELECT 1 FROM workflow_executions x WHERE x.execution_id = e.execution_id)",
    ),
    (
        "an owner of an execution that has ended",
        "SELECT execution_id FROM orbit_owners JOIN workflow_executions USING (execution_id) WHERE status <> 'running'",
    ),
    (
        "a running execution without an owner",
        "SELECT execution_id FROM workflow_executions LEFT JOIN orbit_owners o USING (execution_id)
         WHERE status = 'running' AND o.execution_id IS NULL",
    ),
    (
        "a task of an execution that has ended",
        "SELECT task_id FROM orbit_tasks JOIN workflow_executions USING (execution_id) WHERE status <> 'running'",
    ),
    (
        "a version that was deployed twice",
        "SELECT name || ' ' || version FROM workflow_definitions GROUP BY name, version HAVING count(*) <> 1",
    ),
    (
        "a label of an execution that has none",
        "SELECT execution_id FROM execution_labels l
         WHERE NOT EXISTS (SELECT 1 FROM workflow_executions x WHERE x.execution_id = l.execution_id)",
    ),
];

/// Looks for all of it; nothing may run any more.
pub fn faults(client: &mut Client) -> Vec<String> {
    let mut column = |sql: &str| -> Vec<String> {
        client.query(sql, &[]).expect("the tables can be read").iter().map(|row| row.get(0)).collect()
    };
    let mut faults = Vec::new();
    for (what, sql) in MUST_NOT_BE {
        let rows = column(sql);
        if !rows.is_empty() {
            faults.push(format!("{what}: {rows:?}"));
        }
    }
    let deadlocks = column("SELECT deadlocks::text FROM pg_stat_database WHERE datname = current_database()");
    if deadlocks != ["0"] {
        faults.push(format!("deadlocks: {deadlocks:?}"));
    }
    faults
}
