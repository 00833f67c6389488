//! The store on SQLite, with the tables of its file as the model shows its own.

use crate::tables::{self, Dialect};
use crate::{AllLabels, Store, run_on, shown};
use orbit_core::store::outcome::Reply;
use orbit_core::store::statement::Rows as Gave;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_io::driver::{Attached, Witness};
use orbit_io::sqlite::{SqliteBackend, SqliteStore};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, Row};
use serde_json::Value;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use uuid::Uuid;

pub struct Sqlite {
    attached: Option<Attached<SqliteBackend>>,
    witness: Witness,
    path: PathBuf,
    _folder: TempDir,
}

impl Sqlite {
    pub fn fresh() -> Sqlite {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("orbit.db");
        let mut sqlite = Sqlite { attached: None, witness: Witness::keeping(), path, _folder: folder };
        sqlite.reopen();
        sqlite
    }
}

impl Store for Sqlite {
    const APPENDS_IN_STEPS: bool = false;

    fn run(&mut self, transaction: Transaction) -> Reply<Verdict> {
        run_on(self.attached.as_mut().expect("open"), transaction)
    }

    fn rows(&mut self) -> Vec<Gave> {
        self.witness.take()
    }

    fn reopen(&mut self) {
        self.attached = None;
        self.attached =
            Some(SqliteStore::open(&self.path).expect("the file opens").seen_by(self.witness.clone()).attach());
    }

    fn dump(&self) -> Value {
        let connection = open(&self.path);
        tables::dump(&DIALECT, |sql| rows(&connection, sql).into())
    }

    fn labels(&self) -> AllLabels {
        labels(&self.path)
    }
}

fn open(path: &Path) -> Connection {
    Connection::open(path).expect("the file is there")
}

const DIALECT: Dialect = Dialect {
    json: |column| format!("{column} AS json_{column}"),
    holder: "json_object('node_id', leader_node, 'host', host, 'pid', pid, 'addr', leader_addr, 'since_ms', since_ms)
        END AS json_holder",
    payload: "CAST(payload AS TEXT)",
    // There is none: a server alone has nobody who could take it.
    leases: "SELECT 'leader' AS name, 0 AS epoch, NULL AS holder",
    nodes: false,
};

/// Rows as objects. A column named `json_x` holds the JSON text of `x`; sixteen bytes are a UUID.
fn rows(connection: &Connection, sql: &str) -> Vec<Value> {
    let mut statement = connection.prepare(sql).expect("the tables are there");
    let names: Vec<String> = statement.column_names().map(String::from).collect();
    let object = |row: &Row<'_>| {
        let columns = names.iter().enumerate().map(|(index, name)| {
            let value = row.get_ref(index)?;
            Ok(match name.strip_prefix("json_") {
                Some(name) => (name.to_owned(), parsed(value)),
                None => (name.clone(), plain(value)),
            })
        });
        columns.collect::<rusqlite::Result<serde_json::Map<_, _>>>().map(Value::Object)
    };
    statement.query_map([], object).expect("it runs").map(|row| row.expect("it reads")).collect()
}

fn plain(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => number.into(),
        ValueRef::Text(text) => std::str::from_utf8(text).expect("text is UTF-8").into(),
        ValueRef::Blob(bytes) => Uuid::from_slice(bytes).expect("sixteen bytes").to_string().into(),
        ValueRef::Real(_) => panic!("no column holds a fraction"),
    }
}

fn parsed(value: ValueRef<'_>) -> Value {
    match value {
        ValueRef::Null => Value::Null,
        other => serde_json::from_str(other.as_str().expect("text")).expect("JSON"),
    }
}

fn labels(path: &Path) -> AllLabels {
    let connection = open(path);
    let mut statement =
        connection.prepare("SELECT execution_id, created_at_ms, key, value FROM execution_labels").expect("a table");
    let searchable = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .expect("it runs")
        .map(|row| row.expect("it reads"))
        .collect();
    let mut statement =
        connection.prepare("SELECT execution_id, created_at_ms, labels FROM workflow_executions").expect("a table");
    let rows: Vec<(String, i64, String)> = statement
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))
        .expect("it runs")
        .map(|row| row.expect("it reads"))
        .collect();
    AllLabels { searchable, shown: shown(rows) }
}
