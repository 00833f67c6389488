//! Whole transactions, one after the other, on one session of the model: where nothing is to come in between.

use super::{Orbit, Pace, Program, database};
use crate::postgres::engine::{Engine, SessionId};
use crate::postgres::session::{Answer, Command, Settings};
use crate::rng::{Dice, Stream};
use crate::store::ModelStore;
use orbit_core::id::ClusterId;
use orbit_core::store::executor::{Ask, Executor, Frame};
use orbit_core::store::outcome::{Cause, Fact, Phase, Reply, Severity};
use orbit_core::store::statement::Rows;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_core::time::ClusterMs;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Whole {
    engine: Engine<Orbit>,
    session: SessionId,
    seen: Vec<Rows>,
}

impl Whole {
    /// A database whose tables were just made.
    pub fn new(cluster_id: ClusterId) -> Whole {
        let mut engine = database(cluster_id, Pace::NONE, Dice::new(0, Stream::Disk));
        let session = engine.connect(Settings::default()).expect("it is up");
        Whole { engine, session, seen: Vec::new() }
    }

    /// The session ends, and another is opened.
    pub fn reconnect(&mut self) {
        self.engine.vanish(self.session);
        self.session = self.engine.connect(Settings::default()).expect("it is up");
    }

    /// What the statements of the last transaction gave.
    pub fn seen(&self) -> &[Rows] {
        &self.seen
    }

    /// What is committed.
    pub fn store(&self) -> &ModelStore {
        &self.engine.domain.store
    }

    /// What the database's clock shows from now on.
    pub fn set_clock(&mut self, clock: ClusterMs) {
        self.engine.set_clock_ms(clock.0);
    }

    /// Runs one transaction to its end.
    pub fn run(&mut self, transaction: Transaction) -> Reply<Verdict> {
        let mut executor = Executor::new(transaction);
        self.seen.clear();
        loop {
            let reply = match executor.ask() {
                Ask::Rollback(verdict) => {
                    self.command(Command::Rollback).expect("a rollback does not fail");
                    return Reply::Done(verdict);
                }
                Ask::Send(statements, frame) => {
                    let mut commands: Vec<Command<Program>> = Vec::new();
                    if matches!(frame, Frame::Begin | Frame::Whole) {
                        commands.push(Command::Begin);
                    }
                    commands.extend(statements.into_iter().map(|s| Command::Run(Program::new(s))));
                    if matches!(frame, Frame::Commit | Frame::Whole) {
                        commands.push(Command::Commit);
                    }
                    let got: Result<Vec<Answer<Rows>>, Fact> = commands.into_iter().map(|c| self.command(c)).collect();
                    if got.is_err() && frame != Frame::Auto {
                        self.command(Command::Rollback).expect("a rollback does not fail");
                    }
                    let got = got.map(|all| all.into_iter().filter_map(rows).collect::<Vec<_>>());
                    self.seen.extend(got.iter().flatten().cloned());
                    executor.tell(got)
                }
            };
            if let Some(reply) = reply {
                return reply;
            }
        }
    }

    fn command(&mut self, command: Command<Program>) -> Result<Answer<Rows>, Fact> {
        self.engine.start(self.session, command);
        let (_, outcome) = self.engine.take_answers().pop().expect("alone, nothing waits");
        outcome.map_err(|error| {
            let code = error.code.expect("a session that nobody ends").as_str();
            let cause = Cause::SqlState(code.into());
            Fact { phase: Phase::Open, severity: Some(Severity::Error), cause, message: code.into() }
        })
    }
}

/// The rows of an answer that has some.
pub fn rows(answer: Answer<Rows>) -> Option<Rows> {
    match answer {
        Answer::Rows(rows) => Some(rows),
        Answer::Began | Answer::Committed | Answer::RolledBack | Answer::Set => None,
    }
}
