//! Orbit's store on the model of PostgreSQL: each [`Statement`] of `core::store` as a program over its primitives.
//!
//! What changes, waits and locks is in `append` and `write`, as the SQL of `io` does it: the same rows locked in the
//! same strength and order, the same places where a statement may wait. What only reads never waits, so it reads the
//! tables as they are committed at that moment, with what its own transaction has written.
//!
//! A statement takes time: it stands still for a moment wherever something of others could come in between.

mod append;
mod lease;
mod ownership;
mod rows;
#[cfg(test)]
mod tests;
pub mod whole;
mod write;

pub use rows::{Key, Row};

use super::context::Context;
use super::engine::{Domain, Engine, SessionId};
use super::error::{Code, Stop};
use super::lock::Scope;
use super::table::Strength;
use crate::mutant::Planted;
use crate::rng::{Dice, Ratio, Stream};
use crate::store::{Change, ModelStore};
use orbit_core::cluster::{Elected, Mode};
use orbit_core::id::ClusterId;
use orbit_core::mutant::{Mutant, Mutants};
use orbit_core::store::append::Fence;
use orbit_core::store::origin::Origin;
use orbit_core::store::ownership::TakeRule;
use orbit_core::store::statement::{LockState, Rows, Statement};
use orbit_core::store::transaction::SCHEMA_VERSION;
use std::borrow::Cow;

/// The key of the election lock: "orbitldr" in ASCII (interfaces, "History and storage").
pub const ELECTION_LOCK: i64 = i64::from_be_bytes(*b"orbitldr");

/// How a statement proves that its writer still may write. All but the first are mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceLock {
    /// `FOR SHARE`: it waits for a takeover in progress, and a takeover waits for it.
    Share,
    /// `FOR KEY SHARE`, which an update that changes no key does not mind.
    KeyShare,
    /// A plain `SELECT` in the same statement.
    Plain,
    /// A condition of an append's inserts; elsewhere a plain `SELECT`.
    Insert,
    /// `FOR SHARE` in a transaction of its own, before.
    Before,
    /// Not at all.
    None,
}

/// How long statements stand still, in microseconds: mostly not at all.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    pub stands_still: Ratio,
    pub us: [u64; 2],
    /// A commit waits for a replica.
    pub waits_for_replica: Ratio,
    pub replica_us: [u64; 2],
}

impl Pace {
    /// At once.
    pub const NONE: Pace =
        Pace { stands_still: Ratio::NEVER, us: [0, 0], waits_for_replica: Ratio::NEVER, replica_us: [0, 0] };
}

/// A commit that changed something.
#[derive(Clone, Debug)]
pub struct Done {
    pub session: SessionId,
    pub changes: Vec<Change>,
}

type FoundRow = super::context::Found<Key, Row>;

/// The tables, and how statements run on them.
#[derive(Clone, Debug)]
pub struct Orbit {
    /// What is committed.
    pub store: ModelStore,
    pub fence_lock: FenceLock,
    /// The mistake of this run, for what is no matter of the fence's lock.
    pub planted: Planted,
    /// Which database this is.
    pub origin: Origin,
    /// The version of its tables.
    pub schema: u32,
    pub pace: Pace,
    dice: Dice,
    /// The last place among the definitions that was given: a sequence, which no transaction takes back.
    deployed: u64,
    /// Commits that nobody has looked at.
    pub done: Vec<Done>,
    /// Sessions whose append has locked the fence, and found it the writer's, that nobody has looked at.
    pub fenced: Vec<SessionId>,
}

/// A database whose tables were just made.
pub fn database(cluster_id: ClusterId, pace: Pace, dice: Dice) -> Engine<Orbit> {
    of(ModelStore::new(cluster_id), pace, dice)
}

/// The same, at once, of this mode and election, and this writer may write.
pub fn database_of(cluster_id: ClusterId, fence: Fence, mode: Mode, election: Elected) -> Engine<Orbit> {
    let mut store = ModelStore::new(cluster_id);
    let cluster = &mut store.tables_mut().cluster;
    (cluster.fence, cluster.mode, cluster.election) = (fence, mode.as_str().into(), election.as_str().into());
    of(store, Pace::NONE, Dice::new(0, Stream::Disk))
}

fn of(store: ModelStore, pace: Pace, dice: Dice) -> Engine<Orbit> {
    let cluster = store.tables().cluster.clone();
    let orbit = Orbit {
        store,
        fence_lock: FenceLock::Share,
        planted: Planted::default(),
        origin: Origin { system: 1, timeline: 1 },
        schema: SCHEMA_VERSION,
        pace,
        dice,
        deployed: 0,
        done: Vec::new(),
        fenced: Vec::new(),
    };
    let mut engine = Engine::new(orbit);
    let lease = engine.domain.store.tables().lease.clone();
    engine.put(Key::Cluster, Row::Cluster(cluster));
    engine.put(Key::Lease, Row::Lease(lease));
    engine
}

/// A statement under way.
#[derive(Clone, Debug)]
pub struct Program {
    statement: Statement,
    /// The connection that it comes on.
    from: Connection,
    work: Option<Work>,
    breath: Breath,
}

/// The connection that a statement comes on, as its session tells it from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connection {
    /// Of its own: the key of the lock that says for whom the election lock is held.
    pub key: i64,
    /// What answers is not the session that it has set up: a pooler is in between.
    pub foreign: bool,
}

impl Connection {
    /// The only one of its session.
    pub const ONLY: Connection = Connection { key: 1, foreign: false };
}

/// Where a statement stands still, and until when.
#[derive(Clone, Copy, Debug, Default)]
struct Breath {
    until: Option<u64>,
}

/// How far it has got.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // few are alive at once
enum Work {
    Append(append::Work),
    Write(write::Work),
}

impl Program {
    pub fn new(statement: Statement) -> Program {
        Program { statement, from: Connection::ONLY, work: None, breath: Breath::default() }
    }

    /// The same, which comes on this connection.
    #[must_use]
    pub fn on(self, from: Connection) -> Program {
        Program { from, ..self }
    }
}

impl Domain for Orbit {
    type Key = Key;
    type Row = Row;
    type Program = Program;
    type Rows = Rows;
    type Note = Change;

    fn resume(&mut self, program: &mut Program, cx: &mut Context<'_, Self>) -> Result<Rows, Stop> {
        let Program { statement, from, work, breath } = program;
        match statement {
            Statement::TakeLock(_) => Ok(Rows::TakeLock(take_lock(self, *from, cx))),
            Statement::StandInLine(line) => {
                let ms = u64::try_from(line.slice.as_millis()).expect("a slice is short");
                if cx.advisory_lock_within(ELECTION_LOCK, ms, Scope::Session)? {
                    cx.try_advisory_lock(from.key, false, Scope::Session);
                }
                Ok(Rows::StandInLine(()))
            }
            Statement::FreeLock(_) => Ok(Rows::FreeLock(cx.advisory_unlock(ELECTION_LOCK, false))),
            Statement::Append(append) => {
                let work = work.get_or_insert_with(|| Work::Append(append::Work::new(append)));
                let Work::Append(work) = work else { unreachable!("an append's work is an append's") };
                append::resume(self, append, work, breath, cx).map(Rows::Append)
            }
            Statement::LockFence(_) => {
                let current = fence(self, cx)?;
                cx.writes()?;
                Ok(Rows::LockFence(current))
            }
            Statement::LookForGroups(look) => {
                let blind = self.planted.planted(Mutant::MovedFenceUnlooked);
                Ok(Rows::LookForGroups(append::look_for(look, blind, cx)))
            }
            statement if statement.writes() => {
                let work = work.get_or_insert_with(|| Work::Write(write::Work::default()));
                let Work::Write(work) = work else { unreachable!("an append has its own work") };
                write::resume(self, statement, work, breath, cx)
            }
            statement => {
                let mut rows = self.as_seen_by(cx).read(statement, orbit_core::time::ClusterMs(cx.clock_ms()));
                if let Rows::ReadFence(row) = &mut rows {
                    (row.origin, row.schema_version) = (Some(self.origin), self.schema);
                }
                Ok(rows)
            }
        }
    }

    fn meets(program: &Program, key: &Key, strength: Strength) -> bool {
        match (&program.statement, key) {
            (Statement::RaiseFence(_) | Statement::ClearHolder(_) | Statement::MoveFence(_), Key::Cluster) => true,
            (
                Statement::TakeLease(_) | Statement::RenewLease(_) | Statement::FreeLease(_) | Statement::SeizeLease(_),
                key,
            ) => *key == Key::Lease,
            // Those who share the fence do not mind each other.
            (_, Key::Cluster) => strength > Strength::Share,
            (Statement::Append(append), Key::Owner(id) | Key::Execution(id)) => {
                // Which trees its members belong to, it finds.
                append.owner.is_some()
                    || append.groups.iter().flat_map(|group| &group.members).any(|member| member.execution == *id)
            }
            (Statement::Append(append), Key::Task(task)) => {
                append.groups.iter().flat_map(|group| &group.tasks).any(|change| append::task_of(change) == Some(task))
            }
            (Statement::ClaimTasks(_), Key::Task(_) | Key::Token(_)) => true,
            (Statement::RequeueClaims(_) | Statement::RequeueStrays(_), Key::Task(_) | Key::Token(_)) => true,
            // Which rows leave that index is not said.
            (Statement::Append(_), Key::Token(_)) => true,
            (Statement::PutDefinition(put), Key::Definition(name, version)) => {
                (&put.definition.name, &put.definition.version) == (name, version)
            }
            (Statement::PutWorker(put), Key::Worker(worker)) => put.worker.worker_id == *worker,
            (Statement::SeeWorkers(see), Key::Worker(worker)) => see.seen.contains_key(worker),
            (Statement::ForgetWorkers(_), Key::Worker(_)) => true,
            (Statement::BeatNode(beat), Key::Node(node)) => beat.node.node_id == *node,
            (Statement::LeaveNode(leave), Key::Node(node)) => leave.node_id == *node,
            (Statement::MarkDead(mark), Key::Node(node)) => mark.node_id == *node,
            (Statement::TakeTrees(take), Key::Owner(id)) => {
                // Its members, it finds.
                take.rule == TakeRule::OneStatement || take.trees.iter().any(|(root, _)| root == id)
            }
            (Statement::TakeMembers(_), Key::Owner(_)) => true,
            _ => false,
        }
    }

    fn commit_wait_us(&mut self) -> u64 {
        let waits = self.dice.chance(self.pace.waits_for_replica);
        let us = self.dice.between(self.pace.replica_us);
        if waits { us } else { 0 }
    }

    fn committed(&mut self, session: SessionId, rows: Vec<(Key, Option<Row>)>, changes: Vec<Change>) {
        for (key, row) in rows {
            rows::apply(self.store.tables_mut(), key, row);
        }
        if !changes.is_empty() {
            self.done.push(Done { session, changes });
        }
    }
}

impl Orbit {
    /// The tables as the statements of this transaction see them that write nothing.
    fn as_seen_by(&self, cx: &mut Context<'_, Orbit>) -> Cow<'_, ModelStore> {
        let own = cx.own_writes();
        let mut store = Cow::Borrowed(&self.store);
        for (key, row) in own {
            rows::apply(store.to_mut().tables_mut(), key, row);
        }
        store
    }

    /// Whether this writer is the one that the fence names.
    fn is_writer(&self, writer: Fence, current: Fence) -> bool {
        let by_number = self.planted.planted(Mutant::NumberWithoutIncarnation);
        writer == current || (by_number && writer.term == current.term)
    }

    /// Stands still for a moment, sometimes.
    fn breathe(&mut self, breath: &mut Breath, cx: &mut Context<'_, Orbit>) -> Result<(), Stop> {
        let until = match breath.until {
            Some(until) => until,
            None => {
                let stands = self.dice.chance(self.pace.stands_still);
                let us = self.dice.between(self.pace.us);
                *breath.until.insert(cx.true_time_us() + if stands { us } else { 0 })
            }
        };
        cx.sleep_until(until)?;
        breath.until = None;
        Ok(())
    }
}

/// The election lock, once for each session. It is the session's: it stays when a transaction is rolled back, and says
/// for which connection it is held.
fn take_lock(orbit: &Orbit, from: Connection, cx: &mut Context<'_, Orbit>) -> LockState {
    let blind = orbit.planted.planted(Mutant::LockThroughPooler);
    if from.foreign && !blind {
        return LockState::Pooled;
    }
    if cx.holds_advisory(ELECTION_LOCK) {
        let own = cx.holds_advisory(from.key) || blind;
        return if own { LockState::Mine } else { LockState::Pooled };
    }
    if cx.try_advisory_lock(ELECTION_LOCK, false, Scope::Session) {
        cx.try_advisory_lock(from.key, false, Scope::Session);
        LockState::Mine
    } else {
        LockState::Others
    }
}

/// The fence row, locked as it must be, and its fence.
fn fence(orbit: &Orbit, cx: &mut Context<'_, Orbit>) -> Result<orbit_core::store::append::Fence, Stop> {
    use super::context::{Locked, Policy};
    let found = cx.get(&Key::Cluster).ok_or(Stop::error(Code::Raised))?;
    let strength = match orbit.fence_lock {
        FenceLock::Share => Strength::Share,
        FenceLock::KeyShare => Strength::KeyShare,
        FenceLock::Plain | FenceLock::Insert | FenceLock::Before | FenceLock::None => {
            return Ok(found.value.cluster().fence);
        }
    };
    match cx.lock(&found, strength, Policy::Wait)? {
        Locked::Same => Ok(found.value.cluster().fence),
        Locked::Newer(row) => Ok(row.cluster().fence),
        Locked::Gone | Locked::Skipped => Err(Stop::error(Code::Raised)),
    }
}
