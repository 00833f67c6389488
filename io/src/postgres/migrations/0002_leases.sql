-- Election by lease: one row with a time to live. Who appends locks another row, so a leader under load renews all the same.
-- Times are the database's clock, in milliseconds since 1970. Holder columns are NULL while nobody has it.
CREATE TABLE orbit_leases (
    name text COLLATE "C" PRIMARY KEY,
    epoch bigint NOT NULL,
    node_id text COLLATE "C",
    host text,
    incarnation uuid,
    expires_ms bigint NOT NULL,
    taken_ms bigint NOT NULL,
    renewed_ms bigint NOT NULL,
    CHECK ((node_id IS NULL) = (incarnation IS NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 500);

INSERT INTO orbit_leases (name, epoch, expires_ms, taken_ms, renewed_ms) VALUES ('leader', 0, 0, 0, 0);
