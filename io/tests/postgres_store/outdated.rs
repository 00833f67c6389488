//! Tables that are changed while a server runs: what it has prepared is of the tables before.

use crate::support::*;
use orbit_core::id::CallKey;
use orbit_core::node::Connection;
use orbit_core::store::append::*;
use orbit_core::store::outcome::{FailureKind, Reply};
use orbit_core::store::statement::*;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_core::time::ClusterMs;
use uuid::Uuid;

/// One of everything that a server runs. `n` keeps what is new apart.
fn everything(fence: Fence, n: u128) -> Vec<(Connection, Transaction)> {
    let id = format!("e-{n}");
    let key = CallKey(Uuid::from_u128(n));
    let mut create = group(100 + n, vec![start(&id, 2)]);
    create.tasks = vec![TaskChange::Insert(task(&format!("t-{n}"), &id, "pay", 1))];
    let definition = DefinitionRow {
        name: "W".into(),
        version: n.to_string().as_str().into(),
        hash: "h".into(),
        document: serde_json::json!({}),
        created_at_ms: ClusterMs(1),
    };
    let worker = WorkerRow {
        worker_id: "w".into(),
        runtime: "rust".into(),
        sdk: None,
        contracts: Vec::new(),
        last_seen_ms: ClusterMs(1),
    };
    let list = ListSummaries { filter: SummaryFilter::default(), before: None, limit: 10 };
    vec![
        (Connection::Store, Transaction::Append(Append::under(fence, vec![create]))),
        (Connection::Store, Transaction::Claim(ClaimTasks { key, fence, wants: vec![want(&["pay"], &[n])] })),
        (Connection::Store, Transaction::Recover),
        (Connection::Store, Transaction::Load(ReadHistories { executions: vec![id.as_str().into()] })),
        (Connection::Store, Transaction::Due(ReadDue { until: Wake::Hot, after: None, owner: None, limit: 10 })),
        (Connection::Control, Transaction::Check),
        (Connection::Election, Transaction::Hold),
        (Connection::Requests, Transaction::Deploy(Box::new(PutDefinition { key, fence, definition }))),
        (Connection::Requests, Transaction::SaveWorker(PutWorker { worker })),
        (Connection::Requests, Transaction::Workers),
        (Connection::Requests, Transaction::Summary(ReadSummary { execution: id.as_str().into() })),
        (Connection::Requests, Transaction::Summaries(list)),
    ]
}

#[test]
fn columns_that_a_migration_adds_disturb_no_session_that_is_open() {
    let (mut store, fence) = Running::led();
    for (connection, transaction) in everything(fence, 1) {
        store.done(connection, transaction);
    }
    let mut client = store.place.database.connect();
    let tables = client.query("SELECT tablename::text FROM pg_tables WHERE schemaname = 'public'", &[]).unwrap();
    assert!(tables.len() >= 8);
    for row in tables {
        let table: String = row.get(0);
        store.place.meddle(&format!("ALTER TABLE {table} ADD COLUMN later text NOT NULL DEFAULT 'x'"));
    }
    for (connection, transaction) in everything(fence, 2) {
        store.done(connection, transaction);
    }
}

#[test]
fn a_statement_whose_columns_have_changed_fails_once_as_never_done_and_then_works() {
    let (mut store, fence) = Running::led();
    for (connection, transaction) in everything(fence, 1) {
        store.done(connection, transaction);
    }
    store.place.meddle("ALTER TABLE orbit_workers ALTER COLUMN runtime TYPE varchar(200)");
    let reply = store.reply(Connection::Requests, Transaction::Workers);
    let Reply::Failed(failure) = &reply else { panic!("{reply:?}") };
    assert_eq!(failure.kind, FailureKind::Reconnect, "{failure:?}");
    assert!(failure.message.contains("[0A000]"), "{failure:?}");
    // The session was replaced; the next one prepares anew.
    let Verdict::Workers(workers) = store.done(Connection::Requests, Transaction::Workers) else { panic!() };
    assert_eq!(workers.len(), 1);
}
