-- Shared mode: whose a tree of executions is, and who is no more.

-- Others have found that this incarnation is gone. It stays so, whatever it says later.
ALTER TABLE orbit_nodes ADD COLUMN dead boolean NOT NULL DEFAULT false;

-- Trees by owner: those of owners that are gone are found without a look at all others. Nothing of it changes with an append
-- (HOT).
CREATE INDEX orbit_owners_trees ON orbit_owners (incarnation, execution_id) WHERE execution_id = root_id;
-- The rest of a tree, by its root. Nothing of it ever changes.
CREATE INDEX orbit_owners_members ON orbit_owners (root_id) WHERE execution_id <> root_id;
