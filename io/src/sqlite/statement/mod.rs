//! Each statement of [`orbit_core::store::statement`] as SQL. Whoever calls has a transaction open, which writes where
//! the statement does.

mod append;
mod claim;
pub(super) mod column;
mod definitions;
mod executions;
pub(super) mod fence;
mod summaries;
mod workers;

use crate::driver::clock;
use orbit_core::store::statement::{LockState, NodeRows, Rows, Statement};
use orbit_core::time::ClusterMs;
use rusqlite::Connection;

/// Runs one statement.
pub fn run(connection: &Connection, statement: &Statement) -> rusqlite::Result<Rows> {
    Ok(match statement {
        // This process has locked the file for as long as the store is open.
        Statement::TakeLock(_) => Rows::TakeLock(LockState::Mine),
        Statement::StandInLine(_) => Rows::StandInLine(()),
        // It goes with the process.
        Statement::FreeLock(_) => Rows::FreeLock(false),
        Statement::ReadFence(_) => Rows::ReadFence(fence::read(connection)?),
        Statement::RaiseFence(s) => Rows::RaiseFence(fence::raise(connection, s)?),
        Statement::ClearHolder(s) => Rows::ClearHolder(fence::clear_holder(connection, s)?),
        Statement::MoveFence(_)
        | Statement::ReadLease(_)
        | Statement::TakeLease(_)
        | Statement::RenewLease(_)
        | Statement::FreeLease(_)
        | Statement::SeizeLease(_) => {
            let message = "SQLite has one server, and no lease that another could take";
            return Err(rusqlite::Error::ToSqlConversionFailure(message.into()));
        }
        Statement::MarkDead(_) | Statement::ReadOrphans(_) | Statement::TakeTrees(_) | Statement::TakeMembers(_) => {
            let message = "SQLite has one server, which owns all executions: shared mode needs PostgreSQL";
            return Err(rusqlite::Error::ToSqlConversionFailure(message.into()));
        }
        Statement::RequeueClaims(s) => Rows::RequeueClaims(claim::requeue(connection, s)?),
        Statement::RequeueStrays(s) => Rows::RequeueStrays(claim::requeue_strays(connection, s)?),
        Statement::ClaimTasks(s) => Rows::ClaimTasks(claim::claim(connection, s)?),
        Statement::Append(s) => Rows::Append(append::append(connection, s)?),
        Statement::LockFence(_) => Rows::LockFence(fence::current(connection)?),
        Statement::LookForGroups(s) => Rows::LookForGroups(append::look_for(connection, s)?),
        Statement::PutDefinition(s) => Rows::PutDefinition(definitions::put(connection, s)?),
        Statement::ReadDefinitions(_) => Rows::ReadDefinitions(definitions::read(connection)?),
        Statement::ReadHistories(s) => Rows::ReadHistories(executions::histories(connection, s)?),
        Statement::ReadHistory(s) => Rows::ReadHistory(executions::history(connection, s)?),
        Statement::ReadDue(s) => Rows::ReadDue(executions::due(connection, s)?),
        Statement::ReadTotals(_) => Rows::ReadTotals(executions::totals(connection)?),
        Statement::ReadSummary(s) => Rows::ReadSummary(summaries::one(connection, s)?),
        Statement::ListSummaries(s) => Rows::ListSummaries(summaries::list(connection, s)?),
        Statement::PutWorker(s) => Rows::PutWorker(workers::put(connection, s)?),
        Statement::SeeWorkers(s) => Rows::SeeWorkers(workers::see(connection, s)?),
        Statement::ForgetWorkers(s) => Rows::ForgetWorkers(workers::forget(connection, s)?),
        Statement::ReadWorkers(_) => Rows::ReadWorkers(workers::read(connection)?),
        // One process has the file: it is in no cluster, and there are no others.
        Statement::BeatNode(_) => Rows::BeatNode(None),
        Statement::LeaveNode(_) => Rows::LeaveNode(true),
        Statement::ReadNodes(_) => Rows::ReadNodes(NodeRows { nodes: Vec::new(), clock: clock() }),
    })
}

/// The database's clock: here the process's own (protocols, 33).
fn clock() -> ClusterMs {
    ClusterMs(clock::wall().0)
}
