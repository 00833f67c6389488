//! `orbit status`: of a server over its API, or of a database.

use super::{client, nodes};
use crate::cli::{Remote, StatusArgs};
use crate::database::Database;
use crate::failure::{Exit, Failure};
use crate::output::{self, Form};
use orbit_core::cluster::Elected;
use orbit_core::store::statement::{Holder, LeaseSeen};
use orbit_io::contents::Contents;
use orbit_io::postgres::Address;
use orbit_io::postgres::migrate::LockHolder;
use orbit_io::{postgres, sqlite};
use orbit_sdk::{Client, Health, NodeInfo, Ready, Value, json};
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
    let (client, health, ready) = best(remote).await?;
    // With the server's token alone, and of newer servers.
    let nodes = client.nodes().await.unwrap_or_default();
    let backlog = client.metrics().await.ok().and_then(|text| backlog(&text));
    let mut whole = json!(health);
    if !nodes.is_empty() {
        whole["nodes"] = json!(nodes);
    }
    if let Some((tasks, oldest)) = backlog {
        whole["queued_tasks"] = json!(tasks);
        whole["oldest_queued_task_seconds"] = json!(oldest);
    }
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
        if let Some(leader) = &health.leader {
            let at = leader.addr.as_ref().map(|addr| format!(" at {addr}")).unwrap_or_default();
            fields.push(("leader", format!("{}{at}", leader.node_id)));
        }
        let held = match health.held_executions {
            0 => String::new(),
            held => format!(", {held} of them held"),
        };
        fields.push(("active executions", format!("{}{held}", health.active_executions)));
        fields.push(("worker sessions", health.worker_sessions.to_string()));
        if let Some((tasks, oldest)) = backlog {
            let waits = if tasks > 0 { format!(", the oldest for {oldest} s") } else { String::new() };
            fields.push(("queued tasks", format!("{tasks}{waits}")));
        }
        if !node.is_empty() && !nodes.is_empty() {
            fields.push(("nodes", summary(&nodes)));
        }
        output::fields(&fields)
    })?;
    if ready.ready {
        return Ok(());
    }
    let reason = ready.reason.map(|reason| format!(": {reason}")).unwrap_or_default();
    Err(Failure::new(format!("the server is not ready{reason}")))
}

/// The server that serves, of several; else the first one that answers.
async fn best(remote: &Remote) -> Result<(Client, Health, Ready), Failure> {
    let mut answered = None;
    let servers: Vec<&str> = remote.server.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
    for server in servers.iter().filter(|_| servers.len() > 1) {
        let one = client(&Remote { server: (*server).into(), token: remote.token.clone() })?;
        let (Ok(health), Ok(ready)) = (one.health().await, one.ready().await) else { continue };
        if ready.ready {
            return Ok((one, health, ready));
        }
        answered.get_or_insert((one, health, ready));
    }
    if let Some(answered) = answered {
        return Ok(answered);
    }
    let client = client(remote)?;
    let (health, ready) = (client.health().await?, client.ready().await?);
    Ok((client, health, ready))
}

/// Tasks that wait for a worker, and for how many seconds the oldest has, from a server's metrics.
fn backlog(metrics: &str) -> Option<(u64, f64)> {
    let figure = |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Some((figure("orbit_queued_tasks")?.parse().ok()?, figure("orbit_oldest_queued_task_seconds")?.parse().ok()?))
}

/// The servers of a cluster in a line each.
fn summary(nodes: &[NodeInfo]) -> String {
    let lines = nodes.iter().map(|node| match (node.live, node.heartbeat_age_ms) {
        (true, _) => format!("{} ({})", node.node_id, node.role),
        (false, Some(_)) => format!("{} (silent)", node.node_id),
        (false, None) => format!("{} (left)", node.node_id),
    });
    lines.collect::<Vec<_>>().join(", ")
}

/// Looks at a database on PostgreSQL.
pub fn peek(address: Address) -> Result<postgres::peek::Peek, Failure> {
    postgres::peek(address).map_err(|error| {
        use postgres::{OpenError, PeekError};
        let exit = match &error {
            PeekError::Empty { .. } | PeekError::Open(OpenError::NoDatabase { .. }) => Exit::NotFound,
            PeekError::Open(OpenError::Credentials { .. }) => Exit::Credentials,
            PeekError::Open(OpenError::Unreachable { .. } | OpenError::Silent { .. }) => Exit::Unreachable,
            _ => Exit::Failure,
        };
        Failure::new(error.to_string()).exit(exit)
    })
}

/// A database, and what it says of itself.
struct Seen {
    database: String,
    contents: Contents,
    /// Whether the server that the fence names runs; none where that cannot be known here.
    runs: Option<bool>,
    /// The session that has the election lock, if any has; none where there is no such lock.
    lock: Option<Option<LockHolder>>,
    /// The lease, where the leader is elected by it.
    lease: Option<LeaseSeen>,
    /// The servers of the cluster.
    nodes: Vec<NodeInfo>,
    /// How durable commits are, by the database's own names, for programs and for people.
    durability: Vec<(&'static str, &'static str, String)>,
}

fn look(db: &str) -> Result<Seen, Failure> {
    match Database::parse(db)? {
        Database::Sqlite(path) => {
            let sqlite::Peek { contents, journal_mode } = sqlite::peek(&path).map_err(|error| {
                let exit = if matches!(error, sqlite::PeekError::Missing(_)) { Exit::NotFound } else { Exit::Failure };
                Failure::new(error.to_string()).exit(exit)
            })?;
            let runs = contents.fence.holder.as_ref().and_then(process_runs);
            let durability = vec![("journal_mode", "journal mode", journal_mode)];
            let database = path.display().to_string();
            Ok(Seen { database, contents, runs, lock: None, lease: None, nodes: Vec::new(), durability })
        }
        Database::Postgres(_, address) => {
            let database = address.shown().to_owned();
            let postgres::peek::Peek { contents, lock, lease, nodes, settings } = peek(*address)?;
            let durability = vec![
                ("postgres", "postgresql", settings.version),
                ("synchronous_commit", "synchronous commit", settings.synchronous_commit),
                ("fsync", "fsync", settings.fsync),
            ];
            let lease = lease.filter(|_| contents.fence.election == Elected::Lease.as_str());
            let leads = lease.as_ref().map_or(lock.is_some(), |lease| !lease.row.left(lease.clock).is_zero());
            let runs = contents.fence.holder.as_ref().map(|_| leads);
            let lock = Some(lock).filter(|_| lease.is_none());
            Ok(Seen { database, contents, runs, lock, lease, nodes: nodes::of_rows(nodes), durability })
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
    let Contents { fence, executions, queued_tasks, claimed_tasks, workers, definitions } = &seen.contents;
    output::one(form, &whole, &fence.cluster_id.to_string(), || {
        let holder = match &fence.holder {
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
            executions.iter().map(|(status, count)| format!("{count} {}", status.as_str())).collect();
        let lock = seen.lock.iter().map(|lock| {
            let holder = lock.as_ref().map_or_else(|| "nobody".to_owned(), ToString::to_string);
            ("election lock", format!("held by {holder}"))
        });
        let lease = seen.lease.iter().map(|lease| ("lease", held_by(lease)));
        let nodes = (!seen.nodes.is_empty()).then(|| ("nodes", summary(&seen.nodes)));
        let durability = seen.durability.iter().map(|(_, name, value)| (*name, value.clone()));
        let fields: Vec<(&str, String)> = [
            ("database", seen.database.clone()),
            ("cluster id", fence.cluster_id.to_string()),
            ("mode", fence.mode.clone()),
            ("term", fence.fence.term.to_string()),
            ("last writer", holder),
            ("executions", if executions.is_empty() { "none".into() } else { executions.join(", ") }),
            ("queued tasks", (queued_tasks + claimed_tasks).to_string()),
            ("workers", workers.to_string()),
            ("definitions", definitions.to_string()),
            ("schema version", fence.schema_version.to_string()),
        ]
        .into_iter()
        .chain(lock)
        .chain(lease)
        .chain(nodes)
        .chain(durability)
        .collect();
        output::fields(&fields)
    })
}

/// Whose the lease is.
fn held_by(lease: &LeaseSeen) -> String {
    let left = lease.row.left(lease.clock);
    match lease.row.holder.as_ref().filter(|_| !left.is_zero()) {
        Some(holder) => format!("held by `{}` for {:.1} s still", holder.node_id, left.as_secs_f64()),
        None => "held by nobody".into(),
    }
}

fn as_json(seen: &Seen) -> Value {
    let Contents { fence, executions, queued_tasks, claimed_tasks, workers, definitions } = &seen.contents;
    let executions: serde_json::Map<String, Value> =
        executions.iter().map(|(status, count)| (status.as_str().to_owned(), json!(count))).collect();
    let mut whole = json!({
        "database": seen.database, "cluster_id": fence.cluster_id, "mode": fence.mode,
        "term": fence.fence.term, "holder": fence.holder, "holder_runs": seen.runs,
        "executions": executions,
        "queued_tasks": queued_tasks, "claimed_tasks": claimed_tasks, "workers": workers,
        "definitions": definitions, "schema_version": fence.schema_version,
    });
    if let Some(lock) = &seen.lock {
        whole["election_lock"] = match lock {
            Some(LockHolder { pid, application, client, .. }) => {
                json!({"application_name": application, "backend_pid": pid, "client": client})
            }
            None => Value::Null,
        };
    }
    if let Some(LeaseSeen { row, clock }) = &seen.lease {
        let holder = row.holder.as_ref().map(|holder| &holder.node_id);
        whole["lease"] = json!({
            "holder": holder, "epoch": row.epoch, "expires_in_ms": row.left(*clock).as_millis() as u64,
        });
    }
    if seen.lock.is_some() || seen.lease.is_some() {
        whole["nodes"] = json!(seen.nodes);
    }
    for (name, _, value) in &seen.durability {
        whole[*name] = json!(value);
    }
    whole
}
