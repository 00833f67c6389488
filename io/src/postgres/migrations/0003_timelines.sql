-- What tells that a replica was promoted, and what may have been handed out before it was.

-- The timeline of the log when the term was raised last: another one now means that a replica was promoted since.
ALTER TABLE orbit_cluster ADD COLUMN timeline bigint;

-- The row was there when a replica was promoted: the record of its delivery may be lost.
ALTER TABLE orbit_tasks ADD COLUMN repeat boolean NOT NULL DEFAULT false;
