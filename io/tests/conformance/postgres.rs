//! The store on PostgreSQL, with its tables as the model shows its own.

use crate::tables::{self, Dialect};
use crate::{AllLabels, Store, run_on, shown};
use orbit_core::store::outcome::Reply;
use orbit_core::store::statement::Rows;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_io::driver::{Attached, Witness};
use orbit_io::postgres::{Address, Migrate, PostgresBackend, PostgresStore, Timeouts};
use orbit_support::Database;
use serde_json::Value;

pub struct Postgres {
    attached: Option<Attached<PostgresBackend>>,
    witness: Witness,
    database: Database,
}

impl Postgres {
    pub fn fresh() -> Postgres {
        let mut postgres = Postgres {
            attached: None,
            witness: Witness::keeping(),
            database: orbit_support::Postgres::shared().fresh(),
        };
        postgres.reopen();
        postgres
    }
}

impl Store for Postgres {
    const APPENDS_IN_STEPS: bool = true;

    fn run(&mut self, transaction: Transaction) -> Reply<Verdict> {
        run_on(self.attached.as_mut().expect("open"), transaction)
    }

    fn rows(&mut self) -> Vec<Rows> {
        self.witness.take()
    }

    fn reopen(&mut self) {
        self.attached = None;
        let address = Address::parse(&self.database.url()).expect("an address");
        let store = PostgresStore::open(address, "node", Timeouts::default(), Migrate::Auto);
        self.attached = Some(store.expect("the database opens").seen_by(self.witness.clone()).attach());
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

const DIALECT: Dialect = Dialect {
    json: |column| format!("{column}::json AS {column}"),
    holder: "json_build_object('node_id', leader_node, 'host', host, 'pid', pid, 'addr', leader_addr,
        'since_ms', since_ms) END AS holder",
    payload: "convert_from(payload, 'UTF8')",
    leases:
        "SELECT name, epoch, CASE WHEN node_id IS NOT NULL THEN
        json_build_object('node_id', node_id, 'host', host, 'incarnation', incarnation) END AS holder FROM orbit_leases",
    nodes: true,
};

/// The tables of a database, as the model shows its own.
pub fn dump(client: &mut ::postgres::Client) -> Value {
    tables::dump(&DIALECT, |sql| {
        let sql = format!("SELECT coalesce(json_agg(row_to_json(t)), '[]')::text FROM ({sql}) t");
        let text: String = client.query_one(&sql, &[]).expect("it runs").get(0);
        serde_json::from_str(&text).expect("JSON")
    })
}
