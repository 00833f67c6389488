//! `orbit lease`: who leads by the lease, and taking it away. Over the database alone: no server need run.

use crate::cli::{DbArgs, LeaseCommand, ReleaseArgs};
use crate::database::Database;
use crate::failure::{Exit, Failure};
use crate::output::{self, Form};
use orbit_core::store::lease::{ForceVerdict, LeaseRow};
use orbit_core::store::statement::LeaseSeen;
use orbit_core::time::ClusterMs;
use orbit_io::postgres::lease::{self, LeaseError, LeaseView};
use orbit_io::postgres::{Address, OpenError, PeekError};
use orbit_sdk::{Value, json};

pub fn run(command: LeaseCommand) -> Result<(), Failure> {
    match command {
        LeaseCommand::Show(arguments) => show(&arguments),
        LeaseCommand::Release(arguments) => release(&arguments),
    }
}

fn address(arguments: &DbArgs) -> Result<Address, Failure> {
    match Database::parse(&arguments.db)? {
        Database::Postgres(_, address) => Ok(*address),
        Database::Sqlite(path) => {
            Err(Failure::usage(format!("{} is a file: its one server holds it, and there is no lease", path.display()))
                .hint("give --db postgres://user@host/database"))
        }
    }
}

fn failed(error: LeaseError) -> Failure {
    let exit = match &error {
        LeaseError::Peek(PeekError::Empty { .. } | PeekError::Open(OpenError::NoDatabase { .. })) => Exit::NotFound,
        LeaseError::Peek(PeekError::Open(OpenError::Credentials { .. })) => Exit::Credentials,
        LeaseError::Peek(PeekError::Open(OpenError::Unreachable { .. } | OpenError::Silent { .. })) => {
            Exit::Unreachable
        }
        _ => Exit::Failure,
    };
    Failure::new(error.to_string()).exit(exit)
}

fn otherwise(found: &str) -> Failure {
    Failure::new(format!("there is no lease: the leader of this database is elected by {found}"))
        .exit(Exit::NotFound)
        .hint("`orbit status --db` names who writes to it")
}

fn show(arguments: &DbArgs) -> Result<(), Failure> {
    let address = address(arguments)?;
    let database = address.shown().to_owned();
    let LeaseView { lease, fence } = lease::show(address).map_err(failed)?;
    if fence.election != "lease" {
        return Err(otherwise(&fence.election));
    }
    let LeaseSeen { row, clock } = &lease;
    let id = row.holder.as_ref().map(|holder| holder.node_id.to_string()).unwrap_or_default();
    let mut whole = as_json(&lease);
    whole["database"] = json!(database);
    whole["term"] = json!(fence.fence.term);
    whole["addr"] = json!(fence.holder.as_ref().and_then(|holder| holder.addr.clone()));
    output::one(arguments.output.form, &whole, &id, || {
        let mut fields = vec![("database", database.clone()), ("holder", holder(row, *clock))];
        if let Some(holder) = &row.holder {
            fields.push(("host", holder.host.clone()));
        }
        fields.push(("epoch", row.epoch.to_string()));
        if row.holder.is_some() {
            fields.push(("expires in", seconds(ago(row.expires_ms, *clock))));
            fields.push(("age", seconds(-ago(row.taken_ms, *clock))));
            fields.push(("renewed", format!("{} ago", seconds(-ago(row.renewed_ms, *clock)))));
        }
        output::fields(&fields)
    })
}

/// Milliseconds from `clock` to `at`.
fn ago(at: ClusterMs, clock: ClusterMs) -> i64 {
    at.0.saturating_sub(clock.0)
}

fn seconds(ms: i64) -> String {
    format!("{:.1} s", ms as f64 / 1_000.0)
}

fn holder(row: &LeaseRow, clock: ClusterMs) -> String {
    match &row.holder {
        None => "nobody: it is free".into(),
        Some(holder) if row.left(clock).is_zero() => {
            format!("nobody: {} let it run out {} ago", holder.node_id, seconds(-ago(row.expires_ms, clock)))
        }
        Some(holder) => holder.node_id.to_string(),
    }
}

fn as_json(LeaseSeen { row, clock }: &LeaseSeen) -> Value {
    let held = row.holder.is_some();
    let only = |value: i64| if held { json!(value) } else { Value::Null };
    json!({
        "held": !row.left(*clock).is_zero(),
        "holder": row.holder.as_ref().map(|holder| &holder.node_id),
        "host": row.holder.as_ref().map(|holder| &holder.host),
        "incarnation": row.holder.as_ref().map(|holder| holder.incarnation),
        "epoch": row.epoch,
        "expires_in_ms": only(ago(row.expires_ms, *clock)),
        "age_ms": only(-ago(row.taken_ms, *clock)),
        "renewed_ago_ms": only(-ago(row.renewed_ms, *clock)),
    })
}

/// What a fence cannot keep apart.
const UNPROTECTED: &str = "what it writes from now on is refused; what it sends is not: a call that it makes or a task that \
it hands out until its next renewal may happen a second time, without a flag, and what it shows may be old";

fn release(arguments: &ReleaseArgs) -> Result<(), Failure> {
    let address = address(&arguments.database)?;
    if !arguments.force {
        return Err(Failure::usage(
            "a leader gives its lease back when it is stopped; from one that may still run it is taken with --force alone",
        )
        .hint(format!("stop the server, or use --force when its host is gone: {UNPROTECTED}")));
    }
    match lease::release_by_force(address).map_err(failed)? {
        ForceVerdict::Released { before, term } => {
            let mut whole = json!({"released": true, "term": term, "before": as_json(&before)});
            whole["unprotected"] = json!(UNPROTECTED);
            let holder = before.row.holder.as_ref().map(|holder| holder.node_id.to_string()).unwrap_or_default();
            output::one(arguments.database.output.form, &whole, &holder, || {
                let left = before.row.left(before.clock).as_secs_f64();
                format!(
                    "the lease of {holder} (epoch {}, {left:.1} s left) is free, and the term is {term}\n",
                    before.row.epoch
                )
            })?;
            if arguments.database.output.form == Form::Table {
                output::note(&format!("if {holder} still runs: {UNPROTECTED}"));
            }
            Ok(())
        }
        ForceVerdict::Free => Err(Failure::new("nobody holds the lease: nothing has changed").exit(Exit::NotFound)),
        ForceVerdict::OtherElection { found } => Err(otherwise(&found)),
        ForceVerdict::Lost => Err(Failure::new("another server becomes the leader just now: nothing has changed")
            .hint("`orbit lease show` says who it is")),
    }
}
