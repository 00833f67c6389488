//! What the operator does: brings the tables to the next version under servers of two releases, and changes how the leader
//! is elected, with every server stopped, and back after a while.
//!
//! The change of the mode is `core`'s own transaction, message by message on a session of its own, beside whatever servers
//! have left behind: sessions that hold the lock, appends that are under way, leases that last still.

use super::Whence;
use crate::coverage::Mark;
use crate::fault::FaultKind;
use crate::postgres::store::whole::rows;
use crate::postgres::store::{Key, Program};
use crate::postgres::{Answer, Command, Outcome, SessionId, Settings, Strength};
use crate::rng::Ratio;
use crate::world::World;
use crate::world::event::Event;
use crate::world::server::Pid;
use orbit_core::cluster::{Elected, Mode};
use orbit_core::id::Incarnation;
use orbit_core::store::executor::{Ask, Executor, Frame};
use orbit_core::store::mode::{ModeVerdict, SetMode};
use orbit_core::store::outcome::Reply;
use orbit_core::store::statement::Rows;
use orbit_core::store::transaction::{SCHEMA_VERSION, Transaction, Verdict};
use std::collections::VecDeque;

/// How long the operator waits before the next try, in milliseconds.
const AGAIN_MS: u64 = 300;
/// How long a change of the tables waits for whoever is becoming the leader, before it looks again.
const LOOKS_AGAIN_US: u64 = 500;

/// How far a change of the mode has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Changing {
    #[default]
    Not,
    /// The servers are stopped, to be of the other election for so long.
    Away {
        for_ms: u64,
    },
    /// They may run, and are refused.
    Other,
    /// They are stopped again, and the election becomes what they have.
    Back,
    Done,
}

/// The operator's command, and how far it has got.
#[derive(Debug)]
pub(super) struct Operation {
    session: SessionId,
    executor: Executor,
    todo: VecDeque<Command<Program>>,
    got: Vec<Rows>,
    /// The verdict, once the transaction is rolled back.
    then: Option<Verdict>,
}

impl Operation {
    /// Whether it runs on this session.
    pub(super) fn is_on(&self, session: SessionId) -> bool {
        self.session == session
    }
}

impl World {
    /// Whether the operator changes the tables, or the mode, now.
    pub(in crate::world) fn look_for_operator(&mut self) {
        let cluster = self.plan.cluster.as_ref();
        let due = |ms: Option<u64>| ms.is_some_and(|ms| self.now.0 == ms * 1_000);
        let migrates = due(cluster.and_then(|cluster| cluster.migrates_at_ms));
        let changes = due(cluster.and_then(|cluster| cluster.mode_from_ms));
        let for_ms = cluster.map_or(0, |cluster| cluster.mode_for_ms);
        if self.faults.strikes(self.now, FaultKind::Migration, migrates, 0).is_some() {
            self.at(self.now, Event::Migrates);
        }
        if let Some(for_ms) = self.faults.strikes(self.now, FaultKind::ModeChange, changes, for_ms)
            && self.plan.cluster.is_some()
            && self.changing == Changing::Not
        {
            self.changing = Changing::Away { for_ms };
            self.stop_all_servers();
            self.at(self.now, Event::Operator);
        }
    }

    /// The tables are brought to the next version, at one moment, but not while somebody is becoming the leader: that locks
    /// the fence, and so does this.
    pub(in crate::world) fn migrate(&mut self) {
        self.catch_up();
        self.settle();
        let engine = &mut self.database().engine;
        if !engine.is_up() || engine.is_locked(&Key::Cluster, Strength::Share) {
            return self.at(self.now.plus_us(LOOKS_AGAIN_US), Event::Migrates);
        }
        engine.domain.schema += 1;
        self.marks.hit(Mark::Migrated);
        self.trace.record(self.now, "migrated", &());
    }

    /// The version that the tables are of.
    pub(in crate::world) fn schema(&self) -> u32 {
        self.postgres.as_deref().map_or(0, |database| database.engine.domain.schema)
    }

    /// The newest version of the tables that a server of this place knows. The first place has the newer release from the
    /// beginning, so that somebody can lead; the others get it when they are refused.
    pub(in crate::world) fn schema_known_at(&self, place: u32) -> u32 {
        let older = self.plan.cluster.as_ref().is_some_and(|cluster| place > 0 && place >= cluster.newer);
        SCHEMA_VERSION + u32::from(!older || self.upgraded.contains(&place))
    }

    fn stop_all_servers(&mut self) {
        let all: Vec<Pid> = self.processes.keys().copied().collect();
        for pid in all {
            if self.dice.faults.chance(Ratio::new(1, 3)) {
                self.stop(pid);
            } else {
                self.crash(pid);
            }
        }
    }

    /// Whether the operator lets nobody start.
    pub(in crate::world) fn keeps_servers_down(&self) -> bool {
        matches!(self.changing, Changing::Away { .. } | Changing::Back)
    }

    /// Whether a change of the mode is under way.
    pub(crate) fn is_changing(&self) -> bool {
        !matches!(self.changing, Changing::Not | Changing::Done)
    }

    /// What a replica that was promoted lacks, the operator does again.
    pub(in crate::world) fn operator_after_promotion(&mut self, schema: u32) {
        self.database().engine.domain.schema = schema;
        if self.changing == Changing::Done {
            self.changing = Changing::Other;
            self.at(self.now, Event::Operator);
        }
    }

    /// The operator goes on with the change of the mode.
    pub(in crate::world) fn operator_goes_on(&mut self) {
        if self.database().operation.is_some() {
            return;
        }
        match self.changing {
            Changing::Not | Changing::Done => {}
            Changing::Other => {
                self.changing = Changing::Back;
                self.stop_all_servers();
                self.set_mode();
            }
            Changing::Away { .. } | Changing::Back => {
                // Somebody may have started another under the name of one that was stopped.
                let left: Vec<Pid> = self.processes.keys().copied().collect();
                left.into_iter().for_each(|pid| self.stop(pid));
                self.set_mode();
            }
        }
    }

    fn set_mode(&mut self) {
        let by_lease = self.plan.cluster.as_ref().is_some_and(|cluster| cluster.lease_ms.is_some());
        let election = if by_lease == (self.changing == Changing::Back) { Elected::Lease } else { Elected::Lock };
        let incarnation = Incarnation(self.dice.entropy.uuid());
        // The operator has the newer release.
        let set = SetMode { mode: Mode::Standby, election, incarnation, schema: SCHEMA_VERSION + 1 };
        let plan = &self.plan.database;
        let settings = Settings {
            statement_timeout: plan.statement_timeout_ms,
            lock_timeout: plan.lock_timeout_ms,
            idle_in_transaction_timeout: plan.idle_in_transaction_ms,
            idle_session_timeout: 0,
            deadlock_timeout: 1_000,
            client_check_interval: plan.client_check_ms,
        };
        self.catch_up();
        let database = self.database();
        let last = database.engines().map(|engine| engine.last_session()).max().unwrap_or_default();
        database.engine.number_after(last);
        let Ok(session) = database.engine.connect(settings) else { return self.operator_tries_again() };
        let executor = Executor::new(Transaction::SetMode(set));
        let (todo, got, then) = (VecDeque::new(), Vec::new(), None);
        database.operation = Some(Operation { session, executor, todo, got, then });
        self.operation_goes_on();
        self.settle();
    }

    fn operator_tries_again(&mut self) {
        self.at(self.now.plus_ms(AGAIN_MS), Event::Operator);
    }

    /// The next message of the operator's transaction.
    fn operation_goes_on(&mut self) {
        let Some(operation) = &mut self.database().operation else { return };
        if operation.todo.is_empty() {
            match operation.executor.ask() {
                Ask::Rollback(verdict) => {
                    operation.then = Some(verdict);
                    operation.todo.push_back(Command::Rollback);
                }
                Ask::Send(statements, frame) => {
                    if matches!(frame, Frame::Begin | Frame::Whole) {
                        operation.todo.push_back(Command::Begin);
                    }
                    let key = -i64::from(operation.session.0);
                    let program = |statement| Program::new(statement).on(Whence { key, foreign: false });
                    operation.todo.extend(statements.into_iter().map(|statement| Command::Run(program(statement))));
                    if matches!(frame, Frame::Commit | Frame::Whole) {
                        operation.todo.push_back(Command::Commit);
                    }
                }
            }
        }
        let (session, command) = (operation.session, operation.todo.pop_front().expect("there is something to send"));
        self.database().engine.start(session, command);
    }

    /// Whether this is an answer to the operator's transaction, which goes on.
    pub(super) fn operator_hears(&mut self, session: SessionId, outcome: &Outcome<Rows>) -> bool {
        let Some(operation) = self.database().operation.as_mut().filter(|operation| operation.session == session)
        else {
            return false;
        };
        match outcome {
            Ok(answer) => {
                if let Answer::Rows(_) = answer {
                    operation.got.extend(rows(answer.clone()));
                }
                if !operation.todo.is_empty() {
                    self.operation_goes_on();
                    return true;
                }
                let reply = match operation.then.take() {
                    Some(verdict) => Some(Reply::Done(verdict)),
                    None => operation.executor.tell(Ok(std::mem::take(&mut operation.got))),
                };
                match reply {
                    None => self.operation_goes_on(),
                    Some(reply) => self.operation_ends(Some(reply)),
                }
            }
            Err(_) => self.operation_ends(None),
        }
        true
    }

    fn operation_ends(&mut self, reply: Option<Reply<Verdict>>) {
        let database = self.database();
        let operation = database.operation.take().expect("it is under way");
        for engine in database.engines() {
            engine.vanish(operation.session);
        }
        self.trace.record(self.now, "operator", &reply);
        let set = match reply {
            Some(Reply::Done(Verdict::SetMode(verdict))) => match verdict {
                ModeVerdict::Set { .. } => {
                    self.marks.hit(Mark::ModeSet);
                    true
                }
                ModeVerdict::Unchanged { .. } => true,
                ModeVerdict::Lives(_) => {
                    self.marks.hit(Mark::ModeRefused);
                    false
                }
                ModeVerdict::Pooled | ModeVerdict::NewerSchema { .. } | ModeVerdict::Lost => false,
            },
            _ => false,
        };
        match self.changing {
            _ if !set => self.operator_tries_again(),
            Changing::Away { for_ms } => {
                self.changing = Changing::Other;
                self.at(self.now.plus_ms(for_ms), Event::Operator);
            }
            Changing::Back => self.changing = Changing::Done,
            Changing::Not | Changing::Other | Changing::Done => {}
        }
    }
}
