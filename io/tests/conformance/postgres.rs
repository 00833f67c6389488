//! The store on PostgreSQL, with its tables as the model shows its own.

use crate::{AllLabels, Store, kind_of, shown};
use orbit_core::node::CallId;
use orbit_core::store::outcome::Reply;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_io::driver::{Attached, Backend};
use orbit_io::postgres::{Address, Migrate, PostgresBackend, PostgresStore, Timeouts};
use orbit_support::Database;
use serde_json::{Value, json};

pub struct Postgres {
    attached: Option<Attached<PostgresBackend>>,
    database: Database,
}

impl Postgres {
    pub fn fresh() -> Postgres {
        let mut postgres = Postgres { attached: None, database: orbit_support::Postgres::shared().fresh() };
        postgres.reopen();
        postgres
    }
}

impl Store for Postgres {
    fn run(&mut self, transaction: Transaction) -> Reply<Verdict> {
        let attached = self.attached.as_mut().expect("open");
        attached.backend.run(kind_of(&transaction), CallId(1), transaction);
        attached.replies.blocking_recv().expect("an answer").reply
    }

    fn reopen(&mut self) {
        self.attached = None;
        let address = Address::parse(&self.database.url()).expect("an address");
        let store = PostgresStore::open(address, "node", Timeouts::default(), Migrate::Auto);
        self.attached = Some(store.expect("the database opens").attach());
    }

    fn dump(&self) -> Value {
        dump(&mut self.database.connect())
    }

    fn labels(&self) -> AllLabels {
        let mut client = self.database.connect();
        let text = "SELECT execution_id, created_at_ms, convert_from(key, 'UTF8'), convert_from(value, 'UTF8')
            FROM execution_labels";
        let rows = client.query(text, &[]).expect("it runs");
        let searchable = rows.iter().map(|row| (row.get(0), row.get(1), row.get(2), row.get(3))).collect();
        let text = "SELECT execution_id, created_at_ms, labels FROM workflow_executions";
        let rows = client.query(text, &[]).expect("it runs");
        AllLabels { searchable, shown: shown(rows.iter().map(|row| (row.get(0), row.get(1), row.get(2)))) }
    }
}

/// The tables of a database, as the model shows its own.
pub fn dump(client: &mut ::postgres::Client) -> Value {
    let mut rows = |sql: &str| {
        let sql = format!("SELECT coalesce(json_agg(row_to_json(t)), '[]')::text FROM ({sql}) t");
        let text: String = client.query_one(&sql, &[]).expect("it runs").get(0);
        serde_json::from_str::<Value>(&text).expect("JSON")
    };
    let cluster = rows(
        "SELECT id, cluster_id, (SELECT version FROM schema_version) AS schema_version, mode, term, incarnation,
            CASE WHEN leader_node IS NOT NULL THEN json_build_object('node_id', leader_node, 'host', host, 'pid', pid,
                'addr', leader_addr, 'since_ms', since_ms) END AS holder
         FROM orbit_cluster",
    );
    json!({
        "orbit_cluster": cluster,
        "orbit_owners": rows(
            "SELECT execution_id, root_id, run, epoch, last_seq, group_id, next_wake_ms FROM orbit_owners
             ORDER BY execution_id",
        ),
        "workflow_executions": rows(
            "SELECT execution_id, root_id, run, workflow, version, status, created_at_ms, updated_at_ms,
                labels::json AS labels
             FROM workflow_executions ORDER BY execution_id",
        ),
        "execution_events": rows(
            "SELECT execution_id, run, seq, at_ms, group_id, convert_from(payload, 'UTF8') AS event
             FROM execution_events ORDER BY execution_id, run, seq",
        ),
        "orbit_tasks": rows(
            "SELECT task_id, execution_id, unit, attempt, task_name, contract_version, enqueued_ms, state, token,
                claimed_by AS incarnation, claim_key
             FROM orbit_tasks ORDER BY task_id",
        ),
        "workflow_definitions": rows(
            "SELECT name, version, hash, document::json AS document, created_at_ms, deploy_key AS call_key
             FROM workflow_definitions ORDER BY deploy_order",
        ),
        "orbit_workers": rows(
            "SELECT worker_id, runtime, sdk, contracts::json AS contracts, last_seen_ms FROM orbit_workers
             ORDER BY worker_id",
        ),
    })
}
