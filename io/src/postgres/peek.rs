//! A look at a database from outside, and its migrations: for `orbit status --db` and `orbit db migrate`.

use crate::contents::Contents;
use crate::driver::witness::Witness;
use crate::postgres::address::Address;
use crate::postgres::connect::{Connector, Role, ServerSettings, Timeouts};
use crate::postgres::migrate::{self, LockHolder, Migration};
use crate::postgres::open::{self, OpenError};
use crate::postgres::statement::column::{self, get};
use crate::postgres::statement::{Link, Trouble, fence, lease, nodes};
use orbit_core::store::statement::{LeaseSeen, NodeRows};
use orbit_core::store::transaction::SCHEMA_VERSION;
use std::time::Duration;

/// What a database says of itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Peek {
    pub contents: Contents,
    /// The session that has the election lock now.
    pub lock: Option<LockHolder>,
    /// The lease of leadership; none where the tables have no leases yet.
    pub lease: Option<LeaseSeen>,
    /// The servers of the cluster.
    pub nodes: NodeRows,
    pub settings: ServerSettings,
}

/// Why a database cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum PeekError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error("{address} has no tables of Orbit; `orbit server --db` makes them")]
    Empty { address: String },
    #[error(
        "{address} has tables of version {found}, and this Orbit knows version {SCHEMA_VERSION}: use the newer Orbit that made it"
    )]
    NewerSchema { address: String, found: u32 },
    #[error("{address} cannot be read: {reason}")]
    Unreadable { address: String, reason: String },
}

/// Looks at a database without any lock, and changes nothing in it.
pub fn peek(address: Address) -> Result<Peek, PeekError> {
    let shown = address.shown().to_owned();
    open::on_a_thread(&shown, move || Ok(look(address)))?
}

fn tool(address: Address) -> Connector {
    Connector {
        address,
        name: "command".into(),
        timeouts: Timeouts::default(),
        pooled: false,
        witness: Witness::default(),
    }
}

fn look(address: Address) -> Result<Peek, PeekError> {
    let address_shown = address.shown().to_owned();
    let connector = tool(address);
    let opened = connector.open(Role::Tool).map_err(|error| open::of_connection(&address_shown, error))?;
    let mut opened = opened;
    let found = migrate::current(&mut opened.client).map_err(|error| open::of_look(&address_shown, error))?;
    match found {
        0 => return Err(PeekError::Empty { address: address_shown }),
        found if found > SCHEMA_VERSION => return Err(PeekError::NewerSchema { address: address_shown, found }),
        _ => {}
    }
    let lock = migrate::holder_of(&mut opened.client, fence::ELECTION_LOCK)
        .map_err(|error| open::of_migration(&address_shown, error))?;
    let settings = opened.settings.clone();
    let mut link = Link::new(opened);
    read(&mut link, settings, lock, found).map_err(|trouble| PeekError::Unreadable {
        address: address_shown,
        reason: match trouble {
            Trouble::Postgres(error) => crate::postgres::facts::message(&error),
            Trouble::Damaged(reason) => reason,
            Trouble::Standby | Trouble::Again => "the server is in recovery".into(),
        },
    })
}

/// The first version of the tables in which servers of a cluster have rows.
const WITH_NODES: u32 = 3;
/// The first one in which a leader may have a lease.
pub(super) const WITH_LEASES: u32 = 2;

fn read(link: &mut Link, settings: ServerSettings, lock: Option<LockHolder>, found: u32) -> Result<Peek, Trouble> {
    link.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")?;
    let fence = fence::read(link)?;
    let mut executions = link
        .query("SELECT status, count(*) FROM workflow_executions GROUP BY status", &[])?
        .iter()
        .map(|row| Ok((column::status(row, 0)?, column::number(row, 1)?)))
        .collect::<Result<Vec<_>, Trouble>>()?;
    executions.sort();
    let nodes = match found {
        WITH_NODES.. => nodes::read(link)?,
        _ => NodeRows { nodes: Vec::new(), clock: fence.clock },
    };
    let lease = if found >= WITH_LEASES { Some(lease::read(link)?) } else { None };
    let row = link.query_opt(
        "SELECT (SELECT count(*) FROM orbit_tasks WHERE state = 'queued'),
                (SELECT count(*) FROM orbit_tasks WHERE state = 'claimed'),
                (SELECT count(*) FROM orbit_workers), (SELECT count(*) FROM workflow_definitions)",
        &[],
    )?;
    let row = row.ok_or(Trouble::Again)?;
    let count = |index| get::<i64>(&row, index).map(|number| u64::try_from(number).unwrap_or(0));
    let contents = Contents {
        fence,
        executions,
        queued_tasks: count(0)?,
        claimed_tasks: count(1)?,
        workers: count(2)?,
        definitions: count(3)?,
    };
    link.run("COMMIT")?;
    Ok(Peek { contents, lock, lease, nodes, settings })
}

/// The versions of a database's tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versions {
    /// What is there; 0 where nothing is.
    pub found: u32,
    pub missing: Vec<Migration>,
}

/// Which version the tables are of, and what is missing.
pub fn versions(address: Address) -> Result<Versions, OpenError> {
    let shown = address.shown().to_owned();
    open::on_a_thread(&shown.clone(), move || {
        let mut client = open::connect(&tool(address), Role::Tool)?.client;
        let found = migrate::current(&mut client).map_err(|error| open::of_look(&shown, error))?;
        Ok(Versions { found, missing: migrate::missing(found).to_vec() })
    })
}

/// Brings the tables up to date; what was applied.
pub fn migrate_up(address: Address, patience: Duration) -> Result<Vec<Migration>, OpenError> {
    let shown = address.shown().to_owned();
    open::on_a_thread(&shown.clone(), move || {
        let mut client = open::connect(&tool(address), Role::Tool)?.client;
        migrate::up(&mut client, patience).map_err(|error| open::of_migration(&shown, error))
    })
}
