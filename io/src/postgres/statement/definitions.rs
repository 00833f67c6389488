//! Deployed definitions: `workflow_definitions`.

use crate::postgres::statement::column::{self, get};
use crate::postgres::statement::{Link, Trouble, fence};
use orbit_core::store::statement::{DefinitionRow, PutDefinition, PutResult};
use orbit_core::time::ClusterMs;

/// Stores a definition, if its name and version are new.
///
/// What was written while this waited for the fence row or for another insert of the same key is not seen by it, so
/// that nothing is concluded from what it did not see (postgres-rules, R1 and R3): then [`THERE`] is read.
const PUT: &str = "
WITH f AS MATERIALIZED (SELECT term, incarnation FROM orbit_cluster WHERE id = 1 FOR SHARE),
there AS MATERIALIZED (SELECT hash, deploy_key FROM workflow_definitions WHERE name = $4 AND version = $5),
made AS (
    INSERT INTO workflow_definitions (name, version, hash, document, deploy_key, created_at_ms)
    SELECT $4, $5, $6, $7, $3, $8
    WHERE EXISTS (SELECT 1 FROM f WHERE term = $1 AND incarnation = $2) AND NOT EXISTS (SELECT 1 FROM there)
    ON CONFLICT DO NOTHING RETURNING name
)
SELECT f.term, f.incarnation, (SELECT hash FROM there), (SELECT deploy_key FROM there), EXISTS (SELECT 1 FROM made)
FROM f";

/// What is there under a name and version, by a statement that sees whatever [`PUT`] waited for.
const THERE: &str = "SELECT hash, deploy_key FROM workflow_definitions WHERE name = $1 AND version = $2";

pub fn put(link: &mut Link, put: &PutDefinition) -> Result<PutResult, Trouble> {
    let PutDefinition { key, fence: writer, definition } = put;
    let (name, version) = (definition.name.as_str(), definition.version.as_str());
    let document = column::to_json(&definition.document);
    let row = link.query_opt(
        PUT,
        &[
            &column::int(writer.term.0),
            &writer.incarnation.0,
            &key.0,
            &name,
            &version,
            &definition.hash.as_str(),
            &document,
            &definition.created_at_ms.0,
        ],
    )?;
    let row = row.ok_or_else(|| Trouble::Damaged("the row of orbit_cluster is missing".into()))?;
    if get(&row, 4)? {
        return Ok(PutResult::Created);
    }
    let current = fence::fence(&row, 0, 1)?;
    // Read again, by a statement that sees whatever the first one waited for.
    let there = link.query_opt(THERE, &[&name, &version])?;
    // Before the fence: what is there is there, whoever asks (protocols, 4).
    match there {
        Some(row) if column::uuid(&row, 1)? == key.0 => Ok(PutResult::Created),
        _ if current != *writer => Ok(PutResult::Fenced(current.term)),
        Some(row) => {
            let hash = column::text(&row, 0)?;
            Ok(if hash == definition.hash { PutResult::Unchanged } else { PutResult::Conflict(hash) })
        }
        None => Err(Trouble::Again),
    }
}

/// All of them, in the order in which they were deployed.
pub fn read(link: &mut Link) -> Result<Vec<DefinitionRow>, Trouble> {
    let rows = link.query(
        "SELECT name, version, hash, document, created_at_ms FROM workflow_definitions ORDER BY deploy_order",
        &[],
    )?;
    rows.iter()
        .map(|row| {
            Ok(DefinitionRow {
                name: column::text(row, 0)?,
                version: column::text(row, 1)?,
                hash: column::text(row, 2)?,
                document: column::json(row, 3)?,
                created_at_ms: ClusterMs(get(row, 4)?),
            })
        })
        .collect()
}
