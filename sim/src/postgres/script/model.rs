//! Scripts on the model.

use super::domain::{Cells, Program, Small};
use super::{Got, Op, Seen, Server, Table};
use crate::postgres::engine::{Choices, Counts, Engine, Explored, Flaw, SessionId};
use crate::postgres::session::{Answer, Command, Outcome, Settings};
use std::collections::BTreeMap;

/// The model, as what a script is played on.
#[derive(Clone, Debug)]
pub struct ModelServer {
    engine: Engine<Small>,
    sessions: BTreeMap<u32, SessionId>,
    ended: BTreeMap<u32, Seen>,
}

impl Default for ModelServer {
    fn default() -> ModelServer {
        ModelServer::new()
    }
}

impl ModelServer {
    /// Empty tables.
    pub fn new() -> ModelServer {
        let mut engine = Engine::new(Small);
        engine.set_clock_ms(1_775_000_000_000);
        ModelServer { engine, sessions: BTreeMap::new(), ended: BTreeMap::new() }
    }

    /// A row that is there from the beginning.
    pub fn put(&mut self, table: Table, id: i32, v: i32) {
        self.engine.put((table, id), Cells { v, at_ms: 0 });
    }

    /// Opens a session with these settings.
    pub fn open(&mut self, session: u32, settings: Settings) {
        let id = self.engine.connect(settings).expect("it is up");
        self.sessions.insert(session, id);
    }

    /// The same with a deliberate change.
    #[must_use]
    pub fn changed(mut self, flaw: Option<Flaw>) -> ModelServer {
        self.engine = self.engine.with_flaw(flaw);
        self
    }

    /// See [`Engine::has_fresh_waits`].
    pub fn has_fresh_waits(&self) -> bool {
        self.engine.has_fresh_waits()
    }

    fn session(&mut self, session: u32) -> SessionId {
        let engine = &mut self.engine;
        *self.sessions.entry(session).or_insert_with(|| engine.connect(Settings::default()).expect("it is up"))
    }

    fn take_answers(&mut self) {
        for (id, outcome) in self.engine.take_answers() {
            let found = self.sessions.iter().find(|(_, s)| **s == id);
            let (session, _) = found.expect("an answer of a session that was opened");
            self.ended.insert(*session, seen(outcome));
        }
    }

    /// How a session's last command stands now.
    pub fn stands(&mut self, session: u32) -> Seen {
        self.take_answers();
        if let Some(seen) = self.ended.get(&session) {
            return seen.clone();
        }
        let id = self.session(session);
        let number = |id: SessionId| *self.sessions.iter().find(|(_, s)| **s == id).expect("a session").0;
        Seen::Waits(self.engine.blockers(id).into_iter().map(number).collect())
    }

    /// Whether a session is there and its last command has ended.
    pub fn is_idle(&mut self, session: u32) -> bool {
        self.take_answers();
        let id = self.session(session);
        self.engine.lives(id) && !self.engine.is_busy(id)
    }

    /// Whether it is between BEGIN and COMMIT.
    pub fn in_transaction(&mut self, session: u32) -> bool {
        let id = self.session(session);
        self.engine.in_transaction(id)
    }

    /// What happened so far.
    pub fn counts(&self) -> Counts {
        self.engine.counts()
    }
}

impl Explored for ModelServer {
    fn choices(&mut self) -> &mut Choices {
        self.engine.choices()
    }

    fn identity(&self) -> String {
        format!("{} {:?}", self.engine.identity(), self.ended)
    }
}

fn seen(outcome: Outcome<Got>) -> Seen {
    match outcome {
        Ok(Answer::Rows(got)) => Seen::Ended(got),
        Ok(Answer::Began | Answer::Committed | Answer::Set) => Seen::Ended(Got::Done),
        Ok(Answer::RolledBack) => Seen::Ended(Got::RolledBack),
        Err(error) => match (error.severity, error.code) {
            (crate::postgres::Severity::Error, Some(code)) => Seen::Failed(code),
            _ => Seen::Closed,
        },
    }
}

impl Server for ModelServer {
    fn send(&mut self, session: u32, op: &Op) {
        let id = self.session(session);
        self.ended.remove(&session);
        let command = match op {
            Op::Begin => Command::Begin,
            Op::Commit => Command::Commit,
            Op::Rollback => Command::Rollback,
            Op::Set(settings) => Command::Set(*settings),
            statement => Command::Run(Program::new(statement.clone())),
        };
        self.engine.start(id, command);
    }

    fn look(&mut self, session: u32, _: &Seen) -> Seen {
        self.stands(session)
    }

    fn terminate(&mut self, session: u32) {
        let id = self.session(session);
        self.engine.terminate(id);
    }

    fn vanish(&mut self, session: u32) {
        let id = self.session(session);
        self.engine.vanish(id);
    }

    fn freeze(&mut self, session: u32) {
        let id = self.session(session);
        self.engine.freeze(id);
    }

    fn thaw(&mut self, session: u32) {
        let id = self.session(session);
        self.engine.thaw(id);
    }

    fn is_gone(&mut self, session: u32) -> bool {
        let id = self.session(session);
        !self.engine.lives(id)
    }

    fn pause(&mut self, ms: u64) {
        let now = self.engine.now_us() + ms * 1_000;
        self.engine.advance(now);
    }

    fn crash(&mut self) {
        self.engine.crash();
        self.engine.open();
    }

    fn holds(&mut self, table: Table) -> Vec<(i32, i32)> {
        self.engine.committed_rows().filter(|(key, _)| key.0 == table).map(|(key, row)| (key.1, row.v)).collect()
    }
}
