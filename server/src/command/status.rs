//! `orbit status`: of a server over its API, or of a database.

use super::client;
use crate::cli::{Remote, StatusArgs};
use crate::database::Database;
use crate::failure::{Exit, Failure};
use crate::output::{self, Form};
use orbit_core::store::append::Status as ExecutionStatus;
use orbit_core::store::statement::{FenceRow, Holder};
use orbit_io::{postgres, sqlite};
use orbit_sdk::{Value, json};
use std::path::Path;

/// Shows it.
pub async fn run(arguments: StatusArgs) -> Result<(), Failure> {
    match &arguments.db {
        Some(db) => of_database(db, arguments.output.form),
        None => of_server(&arguments.remote, arguments.output.form).await,
    }
}

/// Health and readiness in one. A server that does not serve is an exit code of its own, so that scripts can wait.
async fn of_server(remote: &Remote, form: Form) -> Result<(), Failure> {
    let client = client(remote)?;
    let (health, ready) = (client.health().await?, client.ready().await?);
    let mut whole = json!(health);
    whole["ready"] = json!(ready.ready);
    if let Some(reason) = &ready.reason {
        whole["reason"] = json!(reason);
    }
    // A server in no cluster has no name among others: then its role stands for it.
    let node = health.node_id.clone().or_else(|| ready.node_id.clone()).unwrap_or_default();
    output::one(form, &whole, if node.is_empty() { &health.role } else { &node }, || {
        let mut fields = vec![
            ("server", client.servers().to_string()),
            ("version", format!("{} ({})", health.runtime_version, health.api_version)),
            ("role", health.role.clone()),
            ("ready", if ready.ready { "yes".into() } else { "no".into() }),
        ];
        if let Some(reason) = &ready.reason {
            fields.push(("reason", reason.clone()));
        }
        if !node.is_empty() {
            fields.push(("node", node.clone()));
        }
        if let Some(term) = health.term {
            fields.push(("term", term.to_string()));
        }
        fields.push(("active executions", health.active_executions.to_string()));
        fields.push(("worker sessions", health.worker_sessions.to_string()));
        output::fields(&fields)
    })?;
    if ready.ready {
        return Ok(());
    }
    let reason = ready.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    Err(Failure::new(format!("the server is not ready{reason}")))
}

/// What a database says of itself.
struct Seen {
    database: String,
    fence: FenceRow,
    /// Whether the server that the fence names runs; none where that cannot be known here.
    runs: Option<bool>,
    executions: Vec<(ExecutionStatus, u64)>,
    queued_tasks: u64,
    claimed_tasks: u64,
    workers: u64,
    definitions: u64,
    /// How durable commits are, by the database's own names, for programs and for people.
    durability: Vec<(&'static str, &'static str, String)>,
}

fn look(db: &str) -> Result<Seen, Failure> {
    match Database::parse(db)? {
        Database::Sqlite(path) => {
            let seen = sqlite::peek(&path).map_err(|error| {
                let exit = if matches!(error, sqlite::PeekError::Missing(_)) { Exit::NotFound } else { Exit::Failure };
                Failure::new(error.to_string()).exit(exit)
            })?;
            let sqlite::Peek { fence, executions, queued_tasks, claimed_tasks, workers, definitions, journal_mode } =
                seen;
            let durability = vec![("journal_mode", "journal mode", journal_mode)];
            let database = path.display().to_string();
            let runs = fence.holder.as_ref().and_then(process_runs);
            Ok(Seen {
                database,
                fence,
                runs,
                executions,
                queued_tasks,
                claimed_tasks,
                workers,
                definitions,
                durability,
            })
        }
        Database::Postgres(_, address) => {
            let database = address.shown().to_owned();
            let seen = postgres::peek(*address).map_err(|error| {
                use postgres::{OpenError, PeekError};
                let exit = match &error {
                    PeekError::Empty { .. } | PeekError::Open(OpenError::NoDatabase { .. }) => Exit::NotFound,
                    PeekError::Open(OpenError::Credentials { .. }) => Exit::Credentials,
                    PeekError::Open(OpenError::Unreachable { .. } | OpenError::Silent { .. }) => Exit::Unreachable,
                    _ => Exit::Failure,
                };
                Failure::new(error.to_string()).exit(exit)
            })?;
            let postgres::peek::Peek {
                fence,
                held,
                executions,
                queued_tasks,
                claimed_tasks,
                workers,
                definitions,
                settings,
            } = seen;
            let durability = vec![
                ("postgres", "postgresql", settings.version),
                ("synchronous_commit", "synchronous commit", settings.synchronous_commit),
                ("fsync", "fsync", settings.fsync),
            ];
            let runs = fence.holder.as_ref().map(|_| held);
            Ok(Seen {
                database,
                fence,
                runs,
                executions,
                queued_tasks,
                claimed_tasks,
                workers,
                definitions,
                durability,
            })
        }
    }
}

/// Whether a process of this host runs. Another host's cannot be asked for.
fn process_runs(holder: &Holder) -> Option<bool> {
    if holder.host != crate::config::host() || !Path::new("/proc/self/stat").exists() {
        return None;
    }
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", holder.pid)).unwrap_or_default();
    // The state stands behind the name, which may hold anything; that of one that was killed and not waited for is Z.
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    Some(state.is_some_and(|state| state != 'Z'))
}

fn of_database(db: &str, form: Form) -> Result<(), Failure> {
    let seen = look(db)?;
    let whole = as_json(&seen);
    output::one(form, &whole, &seen.fence.cluster_id.to_string(), || {
        let holder = match &seen.fence.holder {
            None => "none".into(),
            Some(holder) => {
                let addr = holder.addr.as_ref().map(|addr| format!(", serving {addr}")).unwrap_or_default();
                let since = output::time(holder.since_ms.0);
                let runs = match seen.runs {
                    Some(true) => ", which runs",
                    Some(false) => ", which is gone: it was killed, or its host was",
                    None => "",
                };
                let Holder { node_id, pid, host, .. } = holder;
                format!("node {node_id} (process {pid} on host {host}{addr}, since {since}){runs}")
            }
        };
        let executions: Vec<String> =
            seen.executions.iter().map(|(status, count)| format!("{count} {}", status.as_str())).collect();
        let durability = seen.durability.iter().map(|(_, name, value)| (*name, value.clone()));
        let fields: Vec<(&str, String)> = [
            ("database", seen.database.clone()),
            ("cluster id", seen.fence.cluster_id.to_string()),
            ("mode", seen.fence.mode.clone()),
            ("term", seen.fence.fence.term.to_string()),
            ("last writer", holder),
            ("executions", if executions.is_empty() { "none".into() } else { executions.join(", ") }),
            ("queued tasks", (seen.queued_tasks + seen.claimed_tasks).to_string()),
            ("workers", seen.workers.to_string()),
            ("definitions", seen.definitions.to_string()),
            ("schema version", seen.fence.schema_version.to_string()),
        ]
        .into_iter()
        .chain(durability)
        .collect();
        output::fields(&fields)
    })
}

fn as_json(seen: &Seen) -> Value {
    let executions: serde_json::Map<String, Value> =
        seen.executions.iter().map(|(status, count)| (status.as_str().to_owned(), json!(count))).collect();
    let mut whole = json!({
        "database": seen.database, "cluster_id": seen.fence.cluster_id, "mode": seen.fence.mode,
        "term": seen.fence.fence.term, "holder": seen.fence.holder, "holder_runs": seen.runs,
        "executions": executions,
        "queued_tasks": seen.queued_tasks, "claimed_tasks": seen.claimed_tasks, "workers": seen.workers,
        "definitions": seen.definitions, "schema_version": seen.fence.schema_version,
    });
    for (name, _, value) in &seen.durability {
        whole[*name] = json!(value);
    }
    whole
}
