//! `orbit cluster mode set`: how the servers of a database share the work, while none of them lives.

use crate::cli::{SetModeArgs, SetTo};
use crate::config::Election;
use crate::database::Database;
use crate::failure::{Exit, Failure};
use crate::output;
use orbit_core::cluster::{Elected, Mode};
use orbit_core::store::mode::{ModeVerdict, Sign};
use orbit_core::store::statement::FenceRow;
use orbit_io::postgres::mode::{self, ModeError};
use orbit_io::postgres::{Address, OpenError, PeekError};
use orbit_sdk::json;

pub fn set(arguments: &SetModeArgs) -> Result<(), Failure> {
    let address = address(&arguments.database.db)?;
    let shown = address.shown().to_owned();
    let mode = match arguments.mode {
        SetTo::Single => Mode::Single,
        SetTo::Standby => Mode::Standby,
    };
    if mode == Mode::Single && arguments.election.is_some() {
        return Err(Failure::usage("--election goes with `standby`: one server that is alone takes the lock"));
    }
    let election = match arguments.election.unwrap_or_default() {
        Election::Lock => Elected::Lock,
        Election::Lease => Elected::Lease,
    };
    let verdict = mode::set(address, mode, election).map_err(failed)?;
    let (before, term) = match verdict {
        ModeVerdict::Set { before, term } => (Some(before), term),
        ModeVerdict::Unchanged { term } => (None, term),
        other => return Err(refused(other, &shown)),
    };
    let (named, was) = (named(mode.as_str(), election.as_str()), before.as_deref().map(was));
    let whole = json!({
        "database": shown,
        "mode": mode.as_str(),
        "election": election.as_str(),
        "term": term,
        "changed": before.is_some(),
        "before": before.map(|row| json!({"mode": row.mode, "election": row.election, "term": row.fence.term})),
    });
    output::one(arguments.database.output.form, &whole, mode.as_str(), || match was {
        Some(was) => format!("the servers of {shown} are {named} from now on; they were {was}. The term is {term}\n"),
        None => format!("the servers of {shown} are {named} already: nothing has changed\n"),
    })
}

fn address(db: &str) -> Result<Address, Failure> {
    match Database::parse(db)? {
        Database::Postgres(_, address) => Ok(*address),
        Database::Sqlite(path) => {
            let message =
                format!("{} is a file, which one server has for itself: it has no other mode", path.display());
            Err(Failure::usage(message).hint("a cluster needs PostgreSQL: give --db postgres://user@host/database"))
        }
    }
}

fn named(mode: &str, election: &str) -> String {
    match mode {
        "standby" => format!("a standby cluster whose leader is elected by {election}"),
        "single" => "one that is alone".into(),
        other => format!("of {other} mode"),
    }
}

fn was(row: &FenceRow) -> String {
    named(&row.mode, &row.election)
}

fn failed(error: ModeError) -> Failure {
    let exit = match &error {
        ModeError::Peek(PeekError::Empty { .. } | PeekError::Open(OpenError::NoDatabase { .. })) => Exit::NotFound,
        ModeError::Peek(PeekError::Open(OpenError::Credentials { .. })) => Exit::Credentials,
        ModeError::Peek(PeekError::Open(OpenError::Unreachable { .. } | OpenError::Silent { .. })) => Exit::Unreachable,
        _ => Exit::Failure,
    };
    Failure::new(error.to_string()).exit(exit)
}

/// Why nothing has changed.
fn refused(verdict: ModeVerdict, shown: &str) -> Failure {
    let stop = "stop every server of this database first; `orbit nodes --db` and `orbit status --db` name them";
    match verdict {
        ModeVerdict::Lives(sign) => {
            Failure::new(format!("a server lives: {}; nothing has changed", seen(&sign))).hint(stop)
        }
        ModeVerdict::Pooled => Failure::new(format!(
            "{shown} is reached through a pooler in transaction mode, where nobody can be kept out; nothing has changed"
        ))
        .hint("give the address of PostgreSQL itself"),
        ModeVerdict::NewerSchema { found } => Failure::new(format!(
            "{shown} has tables of version {found}, which this Orbit does not know; nothing has changed"
        ))
        .hint("use the newer Orbit that made them"),
        ModeVerdict::Lost => Failure::new("another server becomes the leader just now: nothing has changed").hint(stop),
        done @ (ModeVerdict::Set { .. } | ModeVerdict::Unchanged { .. }) => unreachable!("{done:?} is no refusal"),
    }
}

fn seen(sign: &Sign) -> String {
    match sign {
        Sign::Lock(Some(holder)) => {
            format!("`{}` on host `{}` (process {}) holds the election lock", holder.node_id, holder.host, holder.pid)
        }
        Sign::Lock(None) => "one that is starting or stopping just now holds the election lock".into(),
        Sign::Lease { holder, left } => {
            format!(
                "the lease is `{}`'s on host `{}` for {:.1} s still",
                holder.node_id,
                holder.host,
                left.as_secs_f64()
            )
        }
        Sign::Beat { node, ago } => format!(
            "`{}` on host `{}` (process {}) said so {:.1} s ago",
            node.node_id,
            node.host,
            node.pid,
            ago.as_secs_f64()
        ),
    }
}
