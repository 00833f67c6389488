//! How commands are taken in, and how statements run.

use super::{Choices, Domain, Engine, Flaw, SessionId};
use crate::postgres::context::Context;
use crate::postgres::error::{Code, SqlError, Stop};
use crate::postgres::session::{Answer, Command, Outcome, Running, Transaction};

impl<D: Domain> Engine<D> {
    pub(super) fn take_in(&mut self, session: SessionId) {
        let s = self.state.sessions.get_mut(&session).expect("it lives");
        if s.frozen {
            return;
        }
        let Some(command) = s.inbox.take() else { return };
        let now = self.state.now;
        match command {
            Command::Set(settings) => {
                s.settings = settings;
                self.ended(session, Ok(Answer::Set));
            }
            Command::Begin => {
                let clock = now as i64 / 1_000 + self.state.clock_offset_ms;
                let s = self.state.sessions.get_mut(&session).expect("it lives");
                if s.failed {
                    return self.ended(session, Err(SqlError::error(Code::FailedTransaction)));
                }
                assert!(s.transaction.is_none(), "a transaction begins once");
                s.transaction = Some(Transaction::begun(true, clock));
                self.ended(session, Ok(Answer::Began));
            }
            Command::Commit if s.failed => {
                s.failed = false;
                self.end_transaction(session, false);
                self.ended(session, Ok(Answer::RolledBack));
            }
            Command::Commit => self.commit(session, Answer::Committed),
            Command::Rollback => {
                s.failed = false;
                self.end_transaction(session, false);
                self.ended(session, Ok(Answer::RolledBack));
            }
            Command::Run(_) if s.failed => {
                self.ended(session, Err(SqlError::error(Code::FailedTransaction)));
            }
            Command::Run(program) => {
                let clock = now as i64 / 1_000 + self.state.clock_offset_ms;
                let transaction = s.transaction.get_or_insert_with(|| Transaction::begun(false, clock));
                transaction.commands += 1;
                s.running = Some(Running {
                    program: Some(program),
                    snapshot: self.state.commits,
                    command: transaction.commands,
                    since: now,
                    locking: None,
                    asked: None,
                    sleeps_until: None,
                    lets_in: false,
                    followed: false,
                    waits: None,
                });
                self.state.runnable.push_back(session);
            }
        }
    }

    /// Runs what can run until nothing can.
    pub(super) fn pump(&mut self) {
        while !self.by_hand && self.step() {}
    }

    /// One of those that can go on does. False if there is none. At most one transaction commits meanwhile.
    pub fn step(&mut self) -> bool {
        let at = self.state.choices.one_of(self.state.runnable.len());
        let Some(session) = self.state.runnable.remove(at) else { return false };
        self.resume(session);
        true
    }

    /// How many can go on.
    pub fn runnable(&self) -> usize {
        self.state.runnable.len()
    }

    /// The one at this place among those that can go on does, and lets the others in wherever that makes a difference.
    pub fn step_of(&mut self, at: usize) {
        self.state.choices = Choices::explored();
        let session = self.state.runnable.remove(at).expect("so many can go on");
        self.resume(session);
        self.state.choices = Choices::default();
    }

    fn resume(&mut self, session: SessionId) {
        let Some(s) = self.state.sessions.get_mut(&session) else { return };
        if s.frozen {
            s.granted = true;
            return;
        }
        let Some(running) = &mut s.running else { return };
        if running.sleeps_until.is_some_and(|at| at > self.state.now) || self.state.locks.waits_for(session).is_some() {
            return;
        }
        running.waits = None;
        let mut program = running.program.take().expect("it is put back whenever it waits");
        let mut context = Context { state: &mut self.state, session };
        let result = self.domain.resume(&mut program, &mut context);
        let s = self.state.sessions.get_mut(&session).expect("a session does not end itself");
        match result {
            Err(Stop::Waits) => s.running.as_mut().expect("it runs").program = Some(program),
            Err(Stop::Fails(error)) => self.fail(session, error),
            Ok(rows) => {
                s.running = None;
                if s.in_block() {
                    self.ended(session, Ok(Answer::Rows(rows)));
                } else {
                    self.commit(session, Answer::Rows(rows));
                }
            }
        }
    }

    /// Commits, and answers so once that is durable everywhere.
    fn commit(&mut self, session: SessionId, answer: Answer<D::Rows>) {
        let s = self.state.sessions.get_mut(&session).expect("it lives");
        let wrote = s.transaction.as_ref().is_some_and(|t| t.wrote && !t.at_once);
        let wait = if wrote { self.domain.commit_wait_us() } else { 0 };
        if wait > 0 {
            s.committing = Some((self.state.now + wait, answer));
            return;
        }
        self.end_transaction(session, true);
        self.ended(session, Ok(answer));
    }

    /// A statement fails: its transaction is rolled back at once, and its locks are free.
    pub(super) fn fail(&mut self, session: SessionId, error: SqlError) {
        let s = self.state.sessions.get_mut(&session).expect("it lives");
        s.running = None;
        let explicit = s.in_block();
        if !(explicit && self.state.flaw == Some(Flaw::LocksOutliveErrors)) {
            self.end_transaction(session, false);
        }
        if let Some(s) = self.state.sessions.get_mut(&session) {
            s.failed = explicit;
        }
        self.ended(session, Err(error));
    }

    pub(super) fn ended(&mut self, session: SessionId, outcome: Outcome<D::Rows>) {
        let Some(s) = self.state.sessions.get_mut(&session) else { return };
        s.idle_since = self.state.now;
        if s.client_gone.is_none() {
            self.answers.push((session, outcome));
            return;
        }
        // It writes the answer, and notices that nobody is there (R21, R22).
        self.end_session(session, None);
    }
}
