//! The tables of a store as the model shows its own, whichever store it is.

use serde_json::{Value, json};

/// Where the stores' languages differ.
pub struct Dialect {
    /// A column of JSON text, as JSON under its own name.
    pub json: fn(&str) -> String,
    /// The holder of the fence, as a JSON object named `holder`.
    pub holder: &'static str,
    /// The payload of an event, as text.
    pub payload: &'static str,
    /// The lease, with its holder as a JSON object, or null.
    pub leases: &'static str,
    /// Whether there are servers of a cluster.
    pub nodes: bool,
}

/// Of the time of a beat, whether the server has left.
const NODES: &str = "SELECT node_id, incarnation, addr, host, pid, version, role, term, config_digest, clock_offset_ms,
    started_ms, beats, sign(heartbeat_ms)::bigint AS heartbeat_ms, dead FROM orbit_nodes ORDER BY node_id";

/// All of them; `rows` gives those of a query, as objects.
pub fn dump(dialect: &Dialect, mut rows: impl FnMut(&str) -> Value) -> Value {
    let Dialect { json, holder, payload, leases, nodes } = dialect;
    let [labels, document, contracts] = ["labels", "document", "contracts"].map(json);
    json!({
        "orbit_cluster": rows(&format!(
            "SELECT id, cluster_id, (SELECT version FROM schema_version) AS schema_version, mode, term, incarnation,
                CASE WHEN leader_node IS NOT NULL THEN {holder} FROM orbit_cluster",
        )),
        "orbit_leases": rows(leases),
        "orbit_owners": rows(
            "SELECT execution_id, root_id, run, epoch, incarnation, last_seq, group_id, next_wake_ms FROM orbit_owners
             ORDER BY execution_id",
        ),
        "workflow_executions": rows(&format!(
            "SELECT execution_id, root_id, run, workflow, version, status, created_at_ms, updated_at_ms, {labels}
             FROM workflow_executions ORDER BY execution_id",
        )),
        "execution_events": rows(&format!(
            "SELECT execution_id, run, seq, at_ms, group_id, {payload} AS event FROM execution_events
             ORDER BY execution_id, run, seq",
        )),
        "orbit_tasks": rows(
            "SELECT task_id, execution_id, unit, attempt, task_name, contract_version, enqueued_ms, state, token,
                claimed_by AS incarnation, claim_key
             FROM orbit_tasks ORDER BY task_id",
        ),
        "workflow_definitions": rows(&format!(
            "SELECT name, version, hash, {document}, created_at_ms, deploy_key AS call_key FROM workflow_definitions
             ORDER BY deploy_order",
        )),
        "orbit_workers": rows(&format!(
            "SELECT worker_id, runtime, sdk, {contracts}, last_seen_ms FROM orbit_workers ORDER BY worker_id",
        )),
        "orbit_nodes": if *nodes { rows(NODES) } else { json!([]) },
    })
}
