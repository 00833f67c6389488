//! How transactions and sessions end, and the server with them.

use super::{Domain, Engine, Flaw, SessionId, Writable};
use crate::postgres::error::{Code, SqlError};
use crate::postgres::lock::Scope;

impl<D: Domain> Engine<D> {
    pub(super) fn end_transaction(&mut self, session: SessionId, commit: bool) {
        let s = self.state.sessions.get_mut(&session).expect("it lives");
        let Some(transaction) = s.transaction.take() else { return };
        if let Some(xid) = transaction.xid {
            let mut committed = None;
            if commit {
                self.state.commits += 1;
                committed = Some(self.state.commits);
            }
            self.state.owners.remove(&xid);
            if commit && (transaction.wrote || !transaction.notes.is_empty()) {
                let rows = self.state.written(&transaction.touched, xid);
                for row in &transaction.touched {
                    self.state.tables.settle(*row, xid, committed);
                }
                self.domain.committed(session, rows, transaction.notes);
            } else {
                for row in &transaction.touched {
                    self.state.tables.settle(*row, xid, committed);
                }
            }
            self.dead_rows.extend(transaction.touched);
        } else if commit && !transaction.notes.is_empty() {
            self.domain.committed(session, Vec::new(), transaction.notes);
        }
        self.sweep();
        let mut woken = self.state.locks.release_all(session, Scope::Transaction);
        if self.state.flaw == Some(Flaw::SessionLocksEndWithTransaction) {
            woken.extend(self.state.locks.release_all(session, Scope::Session));
        }
        self.state.runnable.extend(woken);
    }

    /// Forgets versions that nobody can see any more.
    fn sweep(&mut self) {
        let snapshots = self.state.sessions.values().filter_map(|s| s.running.as_ref().map(|r| r.snapshot));
        let oldest = snapshots.min().unwrap_or(self.state.commits);
        let newest = self.state.commits;
        for row in std::mem::take(&mut self.dead_rows) {
            self.state.tables.prune(row, oldest);
            if oldest < newest {
                self.dead_rows.push(row);
            }
        }
        self.dead_rows.sort();
        self.dead_rows.dedup();
    }

    pub(super) fn end_session(&mut self, session: SessionId, last_words: Option<SqlError>) {
        let Some(s) = self.state.sessions.get_mut(&session) else { return };
        let asked = s.running.is_some() || s.inbox.is_some() || s.committing.is_some();
        let told = s.client_gone.is_none();
        s.running = None;
        // What only waits for a replica is committed (R26).
        let durable = s.committing.take().is_some();
        self.end_transaction(session, durable);
        let woken = self.state.locks.release_all(session, Scope::Session);
        self.state.runnable.extend(woken);
        self.state.sessions.remove(&session);
        self.state.counts.deaths += 1;
        if asked && told {
            self.answers.push((session, Err(last_words.unwrap_or(SqlError::CLOSED))));
        }
    }

    /// Somebody ends a session (`pg_terminate_backend`). One that stands still ends when it goes on.
    pub fn terminate(&mut self, session: SessionId) {
        let error = SqlError::fatal(Code::AdminShutdown);
        let Some(s) = self.state.sessions.get_mut(&session) else { return };
        if s.frozen {
            s.doomed = Some(error);
        } else {
            self.end_session(session, Some(error));
        }
        self.pump();
    }

    /// The client of a session is gone, without a word. An idle session notices at once, a busy one when its statement
    /// has ended (R21).
    pub fn vanish(&mut self, session: SessionId) {
        let now = self.state.now;
        let Some(s) = self.state.sessions.get_mut(&session) else { return };
        s.client_gone = s.client_gone.or(Some(now));
        let with_it = self.state.flaw == Some(Flaw::StatementEndsWithClient);
        if !s.frozen && (!s.is_busy() || with_it) {
            self.end_session(session, None);
        }
        self.pump();
    }

    /// A backend's process stands still (SIGSTOP).
    pub fn freeze(&mut self, session: SessionId) {
        if let Some(s) = self.state.sessions.get_mut(&session) {
            s.frozen = true;
        }
    }

    /// It goes on: first what its timers and others wanted of it, then its statement, then what came in meanwhile.
    pub fn thaw(&mut self, session: SessionId) {
        let Some(s) = self.state.sessions.get_mut(&session) else { return };
        if !std::mem::replace(&mut s.frozen, false) {
            return;
        }
        let granted = std::mem::replace(&mut s.granted, false);
        if let Some(error) = s.doomed.take() {
            self.end_session(session, Some(error));
            return self.pump();
        }
        while let Some((at, timer)) = self.timer_of(session)
            && at <= self.state.now
        {
            self.fires(session, timer);
        }
        if granted {
            self.state.runnable.push_back(session);
        }
        if self.lives(session) {
            self.take_in(session);
        }
        self.pump();
        let idle = self.state.sessions.get(&session).is_some_and(|s| s.client_gone.is_some() && !s.is_busy());
        if idle {
            self.end_session(session, None);
            self.pump();
        }
    }

    /// The server's processes are killed (R29): every session ends, whatever was not committed is gone. Nobody can
    /// connect until [`Engine::open`].
    pub fn crash(&mut self) {
        self.end_all(None);
    }

    /// A fast shutdown: sessions are told.
    pub fn shut_down(&mut self) {
        self.end_all(Some(SqlError::fatal(Code::AdminShutdown)));
    }

    fn end_all(&mut self, last_words: Option<SqlError>) {
        self.up = false;
        // Nobody goes on with what another's end frees.
        for session in self.state.sessions.values_mut() {
            session.frozen = true;
        }
        let all: Vec<SessionId> = self.sessions().collect();
        for session in all {
            self.end_session(session, last_words);
        }
        self.state.runnable.clear();
    }

    /// Sessions can be opened again.
    pub fn open(&mut self) {
        self.up = true;
    }

    /// Whether sessions can be opened.
    pub fn is_up(&self) -> bool {
        self.up
    }

    pub fn set_writable(&mut self, writable: Writable) {
        self.state.writable = writable;
    }
}
