//! Exactly one effect of each thing that was asked for, as the API and the tables show it.

use crate::common::{history, tables};
use crate::load::{Book, WORKFLOWS};
use orbit_core::definition::Definition;
use orbit_core::execution::event::Recorded;
use orbit_sdk::{Client, ExecutionsQuery, Status};
use orbit_support::Database;
use std::collections::{BTreeMap, BTreeSet};
use tokio::task::JoinSet;

/// Reads everything, and compares it with what was answered; the faults. Nothing may run any more.
pub async fn all(client: &Client, database: &Database, book: &Book) -> Vec<String> {
    let mut faults = book.faults.clone();
    let listed = list(client, &mut faults).await;
    for (id, (workflow, _)) in &book.started {
        let is = listed.get(id).map(|(name, status)| (name.as_str(), status));
        let wanted = if book.cancelled.contains(id) { Status::Cancelled } else { Status::Completed };
        match is {
            Some((name, status)) if name == *workflow && *status == wanted => {}
            _ => faults.push(format!("{id} was acknowledged as a {workflow} and has to be {wanted}, and is {is:?}")),
        }
    }
    for id in listed.keys().filter(|id| !book.started.contains_key(*id)) {
        faults.push(format!("{id} is there, and nobody was told so"));
    }
    for id in book.refused.iter().filter(|id| listed.contains_key(*id)) {
        faults.push(format!("{id} is there, and was refused"));
    }
    let definitions: BTreeMap<&str, Definition> = WORKFLOWS
        .iter()
        .map(|(name, text)| {
            let checked = orbit_io::definition::check(text, orbit_io::definition::Format::Yaml);
            (*name, checked.expect("the definitions are valid"))
        })
        .collect();
    let mut reading = JoinSet::new();
    for (id, (workflow, n)) in book.started.clone() {
        let (client, definition) = (client.clone(), definitions[workflow].clone());
        if reading.len() >= 16 {
            faults.extend(reading.join_next().await.expect("there are some").expect("no panic"));
        }
        reading.spawn(async move { of_one(&client, &definition, &id, n).await });
    }
    while let Some(read) = reading.join_next().await {
        faults.extend(read.expect("no panic"));
    }
    let database = database.clone();
    let tables = tokio::task::spawn_blocking(move || of_tables(&database)).await.expect("no panic");
    faults.extend(tables.faults);
    for (what, wanted, is) in
        [("versions of Extra", &book.deployed, &tables.versions), ("workers", &book.registered, &tables.workers)]
    {
        let missing: Vec<_> = wanted.difference(is).collect();
        if !missing.is_empty() {
            faults.push(format!("{what} were acknowledged and are missing: {missing:?}"));
        }
    }
    faults
}

/// Every execution, once: its workflow and status.
async fn list(client: &Client, faults: &mut Vec<String>) -> BTreeMap<String, (String, Status)> {
    let mut listed = BTreeMap::new();
    let mut query = ExecutionsQuery { limit: Some(1000), ..ExecutionsQuery::default() };
    loop {
        let page = match client.executions(&query).await {
            Ok(page) => page,
            Err(error) => {
                faults.push(format!("the executions cannot be listed: {error}"));
                return listed;
            }
        };
        for execution in page.executions {
            let id = execution.execution_id.clone();
            if listed.insert(id.clone(), (execution.workflow, execution.status)).is_some() {
                faults.push(format!("{id} is listed twice"));
            }
        }
        query.cursor = page.next_cursor;
        if query.cursor.is_none() {
            return listed;
        }
    }
}

async fn of_one(client: &Client, definition: &Definition, id: &str, n: u64) -> Vec<String> {
    let read: Result<Vec<Recorded>, String> = history::read(client, id).await;
    let history = match read {
        Ok(history) => history,
        Err(error) => return vec![format!("{id} was acknowledged, and its history cannot be read: {error}")],
    };
    let mut faults = history::faults(definition, id, &history);
    let first = history.first().map(|first| serde_json::to_value(first).expect("plain data"));
    if first.as_ref().is_none_or(|first| first["input"]["n"] != n) {
        faults.push(format!("{id} was started with {n}, and begins with {first:?}"));
    }
    faults
}

struct Tables {
    faults: Vec<String>,
    versions: BTreeSet<String>,
    workers: BTreeSet<String>,
}

fn of_tables(database: &Database) -> Tables {
    let mut client = database.connect();
    let mut column = |sql: &str| -> BTreeSet<String> {
        client.query(sql, &[]).expect("the tables can be read").iter().map(|row| row.get(0)).collect()
    };
    let versions = column("SELECT version FROM workflow_definitions WHERE name = 'Extra'");
    let workers = column("SELECT worker_id FROM orbit_workers");
    Tables { faults: tables::faults(&mut client), versions, workers }
}
