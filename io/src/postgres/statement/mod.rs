//! Each statement of [`orbit_core::store::statement`] as SQL.

pub mod append;
mod claim;
pub(super) mod column;
mod definitions;
mod executions;
pub(super) mod fence;
pub(super) mod lease;
pub(super) mod nodes;
mod owned;
mod ownership;
mod summaries;
mod workers;

use crate::postgres::connect::Opened;
use ::postgres::types::ToSql;
use ::postgres::{Client, Error, Row};
use orbit_core::store::origin::Origin;
use orbit_core::store::statement::{Rows, Statement};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use uuid::Uuid;

/// Values for a statement's parameters.
pub type Values<'a> = &'a [&'a (dyn ToSql + Sync)];

/// Why a statement gave no rows.
#[derive(Debug)]
pub enum Trouble {
    Postgres(Error),
    /// A row does not read as what it should be.
    Damaged(String),
    /// The server is a standby, or has become one.
    Standby,
    /// What others did meanwhile was not visible yet: the same again will see it.
    Again,
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Trouble {
        Trouble::Postgres(error)
    }
}

/// A connection with the statements that are prepared on it.
pub struct Link {
    client: Client,
    prepared: HashMap<String, ::postgres::Statement>,
    /// Set on the session when it was opened.
    pub marker: Uuid,
    /// Where it leads.
    pub origin: Origin,
    warned: Arc<AtomicBool>,
    /// What each transaction begins with, where the backend may be another for each.
    local: Option<String>,
}

impl Link {
    /// Of a connection that was just opened.
    pub fn new(opened: Opened) -> Link {
        let Opened { client, origin, marker, warned, local, .. } = opened;
        Link { client, prepared: HashMap::new(), marker, origin, warned, local }
    }

    /// Whether each transaction may meet another backend: no statement stands outside one.
    pub fn is_pooled(&self) -> bool {
        self.local.is_some()
    }

    /// Begins a transaction.
    pub fn begin(&mut self, begin: &str) -> Result<(), Trouble> {
        match &self.local {
            None => self.run(begin),
            Some(local) => {
                let sql = format!("{begin}; {local}");
                self.run(&sql)
            }
        }
    }

    /// Runs one statement, prepared on its first use.
    pub fn query(&mut self, sql: &str, values: Values<'_>) -> Result<Vec<Row>, Trouble> {
        if self.is_pooled() {
            // What is prepared is the backend's, and is taken back before the transaction ends.
            return Ok(self.client.query(sql, values)?);
        }
        if !self.prepared.contains_key(sql) {
            let statement = self.client.prepare(sql)?;
            self.prepared.insert(sql.to_owned(), statement);
        }
        Ok(self.client.query(&self.prepared[sql], values)?)
    }

    /// The same, of a statement that gives at most one row.
    pub fn query_opt(&mut self, sql: &str, values: Values<'_>) -> Result<Option<Row>, Trouble> {
        Ok(self.query(sql, values)?.into_iter().next())
    }

    /// Statements without values and without rows, such as BEGIN.
    pub fn run(&mut self, sql: &str) -> Result<(), Trouble> {
        Ok(self.client.batch_execute(sql)?)
    }

    pub fn cancel_token(&self) -> ::postgres::CancelToken {
        self.client.cancel_token()
    }

    pub fn is_closed(&self) -> bool {
        self.client.is_closed()
    }

    /// Whether the server warned since this was last asked.
    pub fn has_warned(&self) -> bool {
        self.warned.swap(false, Ordering::SeqCst)
    }
}

/// Runs one statement.
pub fn run(link: &mut Link, statement: &Statement) -> Result<Rows, Trouble> {
    Ok(match statement {
        Statement::TakeLock(_) => Rows::TakeLock(fence::take_lock(link)?),
        Statement::StandInLine(s) => Rows::StandInLine(fence::stand_in_line(link, s)?),
        Statement::FreeLock(_) => Rows::FreeLock(fence::free_lock(link)?),
        Statement::ReadFence(_) => Rows::ReadFence(fence::read(link)?),
        Statement::RaiseFence(s) => Rows::RaiseFence(fence::raise(link, s)?),
        Statement::ClearHolder(s) => Rows::ClearHolder(fence::clear_holder(link, s)?),
        Statement::MoveFence(s) => Rows::MoveFence(fence::move_to(link, s)?),
        Statement::ReadLease(_) => Rows::ReadLease(lease::read(link)?),
        Statement::TakeLease(s) => Rows::TakeLease(lease::take(link, s)?),
        Statement::RenewLease(s) => Rows::RenewLease(lease::renew(link, s)?),
        Statement::FreeLease(s) => Rows::FreeLease(lease::free(link, s)?),
        Statement::SeizeLease(s) => Rows::SeizeLease(lease::seize(link, s)?),
        Statement::RequeueClaims(s) => Rows::RequeueClaims(claim::requeue(link, s)?),
        Statement::RequeueStrays(s) => Rows::RequeueStrays(claim::requeue_strays(link, s)?),
        Statement::ClaimTasks(s) => Rows::ClaimTasks(claim::claim(link, s)?),
        Statement::Append(s) => Rows::Append(append::append(link, s)?),
        Statement::LockFence(_) => Rows::LockFence(fence::lock(link)?),
        Statement::LookForGroups(s) => Rows::LookForGroups(append::look_for(link, s)?),
        Statement::PutDefinition(s) => Rows::PutDefinition(definitions::put(link, s)?),
        Statement::ReadDefinitions(_) => Rows::ReadDefinitions(definitions::read(link)?),
        Statement::ReadHistories(s) => Rows::ReadHistories(executions::histories(link, s)?),
        Statement::ReadHistory(s) => Rows::ReadHistory(executions::history(link, s)?),
        Statement::ReadDue(s) => Rows::ReadDue(executions::due(link, s)?),
        Statement::ReadTotals(_) => Rows::ReadTotals(executions::totals(link)?),
        Statement::ReadSummary(s) => Rows::ReadSummary(summaries::one(link, s)?),
        Statement::ListSummaries(s) => Rows::ListSummaries(summaries::list(link, s)?),
        Statement::PutWorker(s) => Rows::PutWorker(workers::put(link, s)?),
        Statement::SeeWorkers(s) => Rows::SeeWorkers(workers::see(link, s)?),
        Statement::ForgetWorkers(s) => Rows::ForgetWorkers(workers::forget(link, s)?),
        Statement::ReadWorkers(_) => Rows::ReadWorkers(workers::read(link)?),
        Statement::BeatNode(s) => Rows::BeatNode(nodes::beat(link, s)?),
        Statement::LeaveNode(s) => Rows::LeaveNode(nodes::leave(link, s)?),
        Statement::ReadNodes(_) => Rows::ReadNodes(nodes::read(link)?),
        Statement::MarkDead(s) => Rows::MarkDead(nodes::mark_dead(link, s)?),
        Statement::ReadOrphans(s) => Rows::ReadOrphans(ownership::orphans(link, s)?),
        Statement::TakeTrees(s) => Rows::TakeTrees(ownership::take(link, s)?),
        Statement::TakeMembers(s) => Rows::TakeMembers(ownership::take_members(link, s)?),
    })
}
