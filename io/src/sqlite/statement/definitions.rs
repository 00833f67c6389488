//! Deployed definitions: `workflow_definitions`.

use crate::sqlite::statement::{column, fence};
use orbit_core::id::DefinitionHash;
use orbit_core::store::statement::{DefinitionRow, PutDefinition, PutResult};
use orbit_core::time::ClusterMs;
use rusqlite::{Connection, OptionalExtension, Result, params};
use uuid::Uuid;

/// Stores a definition, if its name and version are new.
pub fn put(connection: &Connection, put: &PutDefinition) -> Result<PutResult> {
    let PutDefinition { key, fence, definition } = put;
    let mut statement = connection
        .prepare_cached("SELECT hash, deploy_key FROM workflow_definitions WHERE name = ? AND version = ?")?;
    let there: Option<(DefinitionHash, Uuid)> = statement
        .query_row([definition.name.as_str(), definition.version.as_str()], |row| {
            Ok((column::text(row, 0)?, column::uuid(row, 1)?))
        })
        .optional()?;
    // Before the fence: what is there is there, whoever asks (protocols, 4).
    if there.as_ref().is_some_and(|(_, by)| *by == key.0) {
        return Ok(PutResult::Created);
    }
    let current = fence::current(connection)?;
    if current != *fence {
        return Ok(PutResult::Fenced(current.term));
    }
    match there {
        Some((hash, _)) if hash == definition.hash => Ok(PutResult::Unchanged),
        Some((hash, _)) => Ok(PutResult::Conflict(hash)),
        None => {
            let mut insert = connection.prepare_cached(
                "INSERT INTO workflow_definitions (name, version, hash, document, deploy_key, created_at_ms)
                 VALUES (?, ?, ?, ?, ?, ?)",
            )?;
            insert.execute(params![
                definition.name.as_str(),
                definition.version.as_str(),
                definition.hash.as_str(),
                column::to_json(&definition.document),
                key.0.as_bytes(),
                definition.created_at_ms.0,
            ])?;
            Ok(PutResult::Created)
        }
    }
}

/// All of them, in the order in which they were deployed.
pub fn read(connection: &Connection) -> Result<Vec<DefinitionRow>> {
    let mut statement = connection.prepare_cached(
        "SELECT name, version, hash, document, created_at_ms FROM workflow_definitions ORDER BY deploy_order",
    )?;
    let rows = statement.query_map([], |row| {
        Ok(DefinitionRow {
            name: column::text(row, 0)?,
            version: column::text(row, 1)?,
            hash: column::text(row, 2)?,
            document: column::json(row, 3)?,
            created_at_ms: ClusterMs(row.get(4)?),
        })
    })?;
    rows.collect()
}
