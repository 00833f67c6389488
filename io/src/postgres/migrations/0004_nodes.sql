-- The servers of a cluster, for people: who is there, and which is which.

-- One row for each name. Of an incarnation, the beats rise; heartbeat_ms is the database's clock at the last one, and 0 once
-- the server has left. A row changes each second, and no index is on what changes (HOT).
CREATE TABLE orbit_nodes (
    node_id text COLLATE "C" PRIMARY KEY,
    incarnation uuid NOT NULL,
    addr text,
    host text NOT NULL,
    pid bigint NOT NULL,
    version text NOT NULL,
    role text COLLATE "C" NOT NULL,
    term bigint NOT NULL,
    config_digest text COLLATE "C" NOT NULL,
    clock_offset_ms bigint NOT NULL,
    started_ms bigint NOT NULL,
    beats bigint NOT NULL,
    heartbeat_ms bigint NOT NULL
) WITH (
    fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_cost_delay = 0, autovacuum_analyze_scale_factor = 0, autovacuum_analyze_threshold = 5000
);
