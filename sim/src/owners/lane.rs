//! A session of a writer, and the transaction that is under way on it.

use crate::postgres::SessionId;
use crate::postgres::engine::Engine;
use crate::postgres::error::SqlError;
use crate::postgres::session::{Answer, Command, Outcome, Settings};
use crate::postgres::store::{Orbit, Program, whole};
use orbit_core::store::executor::{Ask, Executor, Frame};
use orbit_core::store::outcome::{Cause, Fact, Phase, Reply, Severity};
use orbit_core::store::statement::Rows;
use orbit_core::store::transaction::{Transaction, Verdict};
use std::collections::VecDeque;

const SETTINGS: Settings = Settings {
    statement_timeout: 1_000,
    lock_timeout: 300,
    idle_in_transaction_timeout: 1_000,
    idle_session_timeout: 0,
    deadlock_timeout: 100,
    client_check_interval: 500,
};

/// See the module's documentation.
#[derive(Debug, Default)]
pub struct Lane {
    session: Option<SessionId>,
    call: Option<Call>,
    /// The session is a new one, and nobody has been told.
    opened: bool,
}

#[derive(Debug)]
struct Call {
    executor: Executor,
    todo: VecDeque<Command<Program>>,
    got: Vec<Rows>,
    /// Statements of a transaction that is open: an error is followed by a rollback.
    framed: bool,
    then: Option<Reply<Verdict>>,
}

impl Lane {
    pub fn is_free(&self) -> bool {
        self.call.is_none()
    }

    pub fn has(&self, session: SessionId) -> bool {
        self.session == Some(session)
    }

    pub fn session(&self) -> Option<SessionId> {
        self.session
    }

    /// Whether its session is another one than before.
    pub fn take_opened(&mut self) -> bool {
        std::mem::take(&mut self.opened)
    }

    /// Its client is gone, without a word; what runs runs on.
    pub fn drop_session(&mut self, engine: &mut Engine<Orbit>) {
        if let Some(session) = self.session.take() {
            engine.vanish(session);
        }
        self.call = None;
    }

    /// Begins a transaction, on a new session where there is none.
    pub fn send(&mut self, engine: &mut Engine<Orbit>, transaction: Transaction) -> Option<Reply<Verdict>> {
        assert!(self.call.is_none(), "one at a time");
        if self.session.is_none_or(|session| !engine.lives(session)) {
            self.session = engine.connect(SETTINGS).ok();
            self.opened = true;
        }
        if self.session.is_none() {
            return Some(Reply::Unknown);
        }
        let executor = Executor::new(transaction);
        self.call = Some(Call { executor, todo: VecDeque::new(), got: Vec::new(), framed: false, then: None });
        self.go_on(engine)
    }

    fn go_on(&mut self, engine: &mut Engine<Orbit>) -> Option<Reply<Verdict>> {
        let call = self.call.as_mut().expect("it is under way");
        match call.executor.ask() {
            Ask::Rollback(verdict) => {
                call.then = Some(Reply::Done(verdict));
                call.todo.push_back(Command::Rollback);
            }
            Ask::Send(statements, frame) => {
                if matches!(frame, Frame::Begin | Frame::Whole) {
                    call.todo.push_back(Command::Begin);
                }
                call.todo.extend(statements.into_iter().map(|statement| Command::Run(Program::new(statement))));
                if matches!(frame, Frame::Commit | Frame::Whole) {
                    call.todo.push_back(Command::Commit);
                }
                call.framed = frame != Frame::Auto;
            }
        }
        self.next(engine)
    }

    fn next(&mut self, engine: &mut Engine<Orbit>) -> Option<Reply<Verdict>> {
        let call = self.call.as_mut().expect("it is under way");
        if let Some(command) = call.todo.pop_front() {
            engine.start(self.session.expect("it was opened"), command);
            return None;
        }
        if let Some(reply) = call.then.take() {
            self.call = None;
            return Some(reply);
        }
        let got = std::mem::take(&mut call.got);
        match call.executor.tell(Ok(got)) {
            Some(reply) => {
                self.call = None;
                Some(reply)
            }
            None => self.go_on(engine),
        }
    }

    /// What its session answered; the reply, once the transaction has one.
    pub fn answered(&mut self, engine: &mut Engine<Orbit>, outcome: Outcome<Rows>) -> Option<Reply<Verdict>> {
        let call = self.call.as_mut()?;
        match outcome {
            Ok(Answer::RolledBack) if call.then.is_none() => Some(self.ends(Reply::Unknown)),
            Ok(answer) => {
                call.got.extend(whole::rows(answer));
                self.next(engine)
            }
            Err(error) => self.failed(engine, &error),
        }
    }

    fn failed(&mut self, engine: &mut Engine<Orbit>, error: &SqlError) -> Option<Reply<Verdict>> {
        let call = self.call.as_mut().expect("it is under way");
        let Some(code) = error.code.filter(|_| error.severity == crate::postgres::Severity::Error) else {
            self.session = None;
            return Some(self.ends(Reply::Unknown));
        };
        call.todo.clear();
        call.got.clear();
        let cause = Cause::SqlState(code.as_str().into());
        let message = code.as_str().into();
        let fact = Fact { phase: Phase::Open, severity: Some(Severity::Error), cause, message };
        call.then = Some(call.executor.tell(Err(fact)).unwrap_or(Reply::Unknown));
        if std::mem::take(&mut call.framed) {
            call.todo.push_back(Command::Rollback);
        }
        self.next(engine)
    }

    fn ends(&mut self, reply: Reply<Verdict>) -> Reply<Verdict> {
        self.call = None;
        reply
    }
}
