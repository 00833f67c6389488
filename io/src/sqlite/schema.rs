//! The tables, with the reference's names (interface facts, part 7), and those that interfaces adds "from the first
//! day": `run`, `root_id`, `group_id`.
//!
//! Events, summaries and owner rows are kept in the order in which they came, beside an index of their keys: what runs
//! now was made lately, so one commit changes neighbours, whatever the ids are. (Kept in the order of their keys, with
//! ids drawn at random, an order of eight appends cost twice the processor time and four times the pages.) Small tables
//! are kept by their keys. Indexes on hot rows are partial (protocols, 7).

use orbit_core::store::transaction::SCHEMA_VERSION;
use rusqlite::{Connection, TransactionBehavior, params};
use uuid::Uuid;

/// What the header of an Orbit database says that it is: "Orbt".
pub const APPLICATION_ID: i32 = 0x4f72_6274;

/// Every table and index of [`SCHEMA_VERSION`].
const TABLES: &str = "
CREATE TABLE schema_version (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL
) STRICT;

-- The fence: who may write. Holder columns are NULL after a clean stop.
CREATE TABLE orbit_cluster (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    cluster_id BLOB NOT NULL,
    mode TEXT NOT NULL,
    election TEXT NOT NULL,
    term INTEGER NOT NULL,
    incarnation BLOB NOT NULL,
    leader_node TEXT,
    leader_addr TEXT,
    host TEXT,
    pid INTEGER,
    since_ms INTEGER
) STRICT;

CREATE TABLE execution_events (
    execution_id TEXT NOT NULL,
    run INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    group_id BLOB NOT NULL,
    at_ms INTEGER NOT NULL,
    payload BLOB NOT NULL,
    PRIMARY KEY (execution_id, run, seq)
) STRICT;

CREATE TABLE workflow_executions (
    execution_id TEXT NOT NULL PRIMARY KEY,
    root_id TEXT NOT NULL,
    run INTEGER NOT NULL,
    workflow TEXT NOT NULL,
    version TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    updated_at_ms INTEGER NOT NULL,
    labels TEXT NOT NULL
) STRICT;
CREATE INDEX workflow_executions_newest ON workflow_executions (created_at_ms, execution_id);
CREATE INDEX workflow_executions_by_status ON workflow_executions (status, created_at_ms, execution_id);
CREATE INDEX workflow_executions_by_workflow ON workflow_executions (workflow, created_at_ms, execution_id);

-- The labels of workflow_executions once more, in the order in which lists search them.
CREATE TABLE execution_labels (
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at_ms INTEGER NOT NULL,
    execution_id TEXT NOT NULL,
    PRIMARY KEY (key, value, created_at_ms, execution_id)
) STRICT, WITHOUT ROWID;

CREATE TABLE workflow_definitions (
    deploy_order INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    version TEXT NOT NULL,
    hash TEXT NOT NULL,
    document TEXT NOT NULL,
    deploy_key BLOB NOT NULL,
    created_at_ms INTEGER NOT NULL,
    UNIQUE (name, version)
) STRICT;

-- One row for each running execution. next_wake_ms: 0 in its owner's memory, NULL when only an event wakes it.
CREATE TABLE orbit_owners (
    execution_id TEXT NOT NULL PRIMARY KEY,
    root_id TEXT NOT NULL,
    node_id TEXT NOT NULL,
    incarnation BLOB NOT NULL,
    epoch INTEGER NOT NULL,
    run INTEGER NOT NULL,
    last_seq INTEGER NOT NULL,
    group_id BLOB NOT NULL,
    next_wake_ms INTEGER,
    since_ms INTEGER NOT NULL
) STRICT;
CREATE INDEX orbit_owners_due ON orbit_owners (next_wake_ms, execution_id) WHERE next_wake_ms IS NOT NULL;

CREATE TABLE orbit_tasks (
    task_id TEXT PRIMARY KEY,
    execution_id TEXT NOT NULL,
    unit TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('queued', 'claimed')),
    task_name TEXT NOT NULL,
    contract_version TEXT NOT NULL,
    enqueued_ms INTEGER NOT NULL,
    token BLOB,
    claimed_by BLOB,
    claim_key BLOB,
    CHECK ((state = 'claimed') = (token IS NOT NULL))
) STRICT, WITHOUT ROWID;
CREATE INDEX orbit_tasks_queued ON orbit_tasks (task_name, contract_version, enqueued_ms, task_id)
    WHERE state = 'queued';
CREATE INDEX orbit_tasks_claimed ON orbit_tasks (claim_key) WHERE state = 'claimed';
CREATE INDEX orbit_tasks_of_execution ON orbit_tasks (execution_id);

CREATE TABLE orbit_workers (
    worker_id TEXT PRIMARY KEY,
    runtime TEXT NOT NULL,
    sdk TEXT,
    contracts TEXT NOT NULL,
    last_seen_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
";

/// Makes the tables of a new database, all or none, with a random cluster id and term 0.
pub(super) fn create(connection: &mut Connection) -> rusqlite::Result<()> {
    let mut cluster_id = [0; 16];
    getrandom::fill(&mut cluster_id).expect("the operating system gives random bytes");
    let cluster_id = uuid::Builder::from_random_bytes(cluster_id).into_uuid();
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.execute_batch(TABLES)?;
    transaction.execute("INSERT INTO schema_version (id, version) VALUES (1, ?)", [SCHEMA_VERSION])?;
    transaction.execute(
        "INSERT INTO orbit_cluster (id, cluster_id, mode, election, term, incarnation)
         VALUES (1, ?, 'single', 'none', 0, ?)",
        params![cluster_id.as_bytes(), Uuid::nil().as_bytes()],
    )?;
    transaction.commit()
}
