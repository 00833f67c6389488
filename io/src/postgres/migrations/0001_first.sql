-- The tables of Orbit, with the same names on every store.
--
-- Ids and names are compared and ordered by their bytes (COLLATE "C"), whatever the database's own order is: the order
-- in which rows are locked must be the same for everybody. Payloads are opaque bytes. Indexes on rows that change often
-- are partial, and those rows have room on their page for the next version (HOT). The rows of orbit_owners and
-- orbit_tasks live shortly, so they are vacuumed by their number and not by a share of the table.

-- The fence: who may write. Appends lock this row FOR SHARE, a takeover updates it. Holder columns are NULL after a
-- clean stop.
CREATE TABLE orbit_cluster (
    id integer PRIMARY KEY CHECK (id = 1),
    cluster_id uuid NOT NULL,
    mode text COLLATE "C" NOT NULL,
    election text COLLATE "C" NOT NULL,
    term bigint NOT NULL,
    incarnation uuid NOT NULL,
    leader_node text,
    leader_addr text,
    host text,
    pid bigint,
    since_ms bigint
) WITH (fillfactor = 50);

CREATE TABLE execution_events (
    execution_id text COLLATE "C" NOT NULL,
    run bigint NOT NULL,
    seq bigint NOT NULL,
    group_id uuid NOT NULL,
    at_ms bigint NOT NULL,
    payload bytea NOT NULL,
    PRIMARY KEY (execution_id, run, seq)
);

CREATE TABLE workflow_executions (
    execution_id text COLLATE "C" PRIMARY KEY,
    root_id text COLLATE "C" NOT NULL,
    run bigint NOT NULL,
    workflow text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    status text COLLATE "C" NOT NULL,
    created_at_ms bigint NOT NULL,
    updated_at_ms bigint NOT NULL,
    -- JSON text: read whole, never searched.
    labels text COLLATE "C" NOT NULL
) WITH (fillfactor = 90);
CREATE INDEX workflow_executions_newest ON workflow_executions (created_at_ms, execution_id);
CREATE INDEX workflow_executions_by_status ON workflow_executions (status, created_at_ms, execution_id);
CREATE INDEX workflow_executions_by_workflow ON workflow_executions (workflow, created_at_ms, execution_id);

-- The labels of workflow_executions once more, as lists search them. Bytes, since a label may hold any character.
CREATE TABLE execution_labels (
    execution_id text COLLATE "C" NOT NULL,
    key bytea NOT NULL,
    value bytea NOT NULL,
    created_at_ms bigint NOT NULL,
    PRIMARY KEY (execution_id, key)
);
CREATE INDEX execution_labels_searched ON execution_labels (key, value, created_at_ms, execution_id);

CREATE TABLE workflow_definitions (
    deploy_order bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text COLLATE "C" NOT NULL,
    version text COLLATE "C" NOT NULL,
    hash text COLLATE "C" NOT NULL,
    document text COLLATE "C" NOT NULL,
    deploy_key uuid NOT NULL,
    created_at_ms bigint NOT NULL,
    UNIQUE (name, version)
);

-- One row for each running execution. next_wake_ms: 0 in its owner's memory, NULL when only an event wakes it.
CREATE TABLE orbit_owners (
    execution_id text COLLATE "C" PRIMARY KEY,
    root_id text COLLATE "C" NOT NULL,
    node_id text COLLATE "C" NOT NULL,
    incarnation uuid NOT NULL,
    epoch bigint NOT NULL,
    run bigint NOT NULL,
    last_seq bigint NOT NULL,
    group_id uuid NOT NULL,
    next_wake_ms bigint,
    since_ms bigint NOT NULL
) WITH (
    fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000
);
CREATE INDEX orbit_owners_due ON orbit_owners (next_wake_ms, execution_id) WHERE next_wake_ms IS NOT NULL;

CREATE TABLE orbit_tasks (
    task_id text COLLATE "C" PRIMARY KEY,
    execution_id text COLLATE "C" NOT NULL,
    unit text COLLATE "C" NOT NULL,
    attempt bigint NOT NULL,
    state text COLLATE "C" NOT NULL CHECK (state IN ('queued', 'claimed')),
    task_name text COLLATE "C" NOT NULL,
    contract_version text COLLATE "C" NOT NULL,
    enqueued_ms bigint NOT NULL,
    token uuid,
    claimed_by uuid,
    claim_key uuid,
    CHECK ((state = 'claimed') = (token IS NOT NULL))
) WITH (
    fillfactor = 70, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 50000
);
CREATE INDEX orbit_tasks_queued ON orbit_tasks (task_name, contract_version, enqueued_ms, task_id)
    WHERE state = 'queued';
CREATE INDEX orbit_tasks_claimed ON orbit_tasks (claim_key) WHERE state = 'claimed';
-- A delivery is one row's: a claim that commits late, after it was sent again, takes nothing under the same token.
CREATE UNIQUE INDEX orbit_tasks_token ON orbit_tasks (token) WHERE state = 'claimed';
CREATE INDEX orbit_tasks_of_execution ON orbit_tasks (execution_id);

CREATE TABLE orbit_workers (
    worker_id text COLLATE "C" PRIMARY KEY,
    runtime text NOT NULL,
    sdk text,
    contracts text NOT NULL,
    last_seen_ms bigint NOT NULL
) WITH (fillfactor = 70);

INSERT INTO orbit_cluster (id, cluster_id, mode, election, term, incarnation)
VALUES (1, gen_random_uuid(), 'single', 'lock', 0, '00000000-0000-0000-0000-000000000000');
