//! What goes wrong with the database: sessions that are killed or stand still, restarts, crashes; and its healing.

use super::LinkId;
use crate::coverage::Mark;
use crate::postgres::store::{Pace, Program};
use crate::postgres::{Command, SessionId, Settings, Writable};
use crate::rng::Ratio;
use crate::world::World;
use crate::world::event::Event;
use crate::world::server::Pid;
use orbit_core::node::Connection;
use orbit_core::store::statement::ClearHolder;

impl World {
    /// Some session, if there is one: mostly one that does something, and of those rather one that has committed and does
    /// not say so yet.
    fn some_session(&mut self) -> Option<SessionId> {
        let engine = &self.database().engine;
        let all: Vec<SessionId> = engine.sessions().collect();
        let busy: Vec<SessionId> = all.iter().copied().filter(|s| engine.is_busy(*s)).collect();
        let committing: Vec<SessionId> = busy.iter().copied().filter(|s| engine.is_committing(*s)).collect();
        let mostly = self.dice.faults.chance(Ratio::new(3, 4));
        let rather = self.dice.faults.chance(Ratio::new(1, 2));
        let from = match (mostly, rather) {
            (true, true) if !committing.is_empty() => committing,
            (true, _) if !busy.is_empty() => busy,
            _ => all,
        };
        (!from.is_empty()).then(|| *self.dice.faults.pick(&from))
    }

    /// The process at the other end of a session, and what it uses the session for.
    fn whose(&self, session: SessionId) -> Option<(Pid, Connection)> {
        let database = self.postgres.as_deref()?;
        let link = database.links.get(database.of_session.get(&session)?)?;
        Some((link.pid, link.connection))
    }

    /// A session is killed.
    pub(in crate::world) fn kill_session(&mut self) {
        let Some(session) = self.some_session() else { return };
        let whose = self.whose(session);
        self.trace.record(self.now, "session killed", &(session, whose));
        self.marks.hit(Mark::SessionKilled);
        self.catch_up();
        self.database().engine.terminate(session);
        self.settle();
    }

    /// The session that holds the election lock of a process is killed.
    pub(in crate::world) fn kill_election(&mut self, pid: Pid) {
        let newest = self.timeline();
        let links = &self.database().links;
        let theirs = links.values().filter(|l| l.pid == pid && l.timeline == newest);
        let election = theirs.filter(|l| l.connection == Connection::Election);
        let sessions: Vec<SessionId> = election.filter_map(|l| l.session).collect();
        self.catch_up();
        for session in sessions {
            let whose = self.whose(session);
            self.trace.record(self.now, "session killed", &(session, whose));
            self.database().engine.terminate(session);
        }
        self.settle();
    }

    /// The connection breaks on which a process has its appends run.
    pub(in crate::world) fn cut_store(&mut self, pid: Pid) {
        let Some(database) = self.postgres.as_deref() else { return };
        let theirs = database.links.iter().filter(|(_, l)| l.pid == pid && l.connection == Connection::Store && !l.cut);
        let ids: Vec<LinkId> = theirs.map(|(id, _)| *id).collect();
        for id in ids {
            self.cut(id);
        }
    }

    /// A backend stands still.
    pub(in crate::world) fn freeze_session(&mut self, ms: u64) {
        let Some(session) = self.some_session() else { return };
        let whose = self.whose(session);
        self.trace.record(self.now, "session frozen", &(session, ms, whose));
        self.marks.hit(Mark::SessionFrozen);
        self.database().engine.freeze(session);
        let thaw = self.now.plus_ms(ms);
        self.at(thaw, Event::Thaw(session));
    }

    /// The backend that runs the leader's appends stands still, and no other.
    pub(in crate::world) fn hang_appends(&mut self, ms: u64) {
        let Some(leader) = self.leader() else { return };
        let newest = self.timeline();
        let theirs = self.database().links.values().filter(|l| l.pid == leader && l.timeline == newest);
        let session = theirs.filter(|l| l.connection == Connection::Store).filter_map(|l| l.session).next_back();
        let Some(session) = session else { return };
        self.trace.record(self.now, "appends hang", &(session, ms));
        self.marks.hit(Mark::AppendHung);
        self.database().engine.freeze(session);
        let thaw = self.now.plus_ms(ms);
        self.at(thaw, Event::Thaw(session));
    }

    /// A session that is no server's begins a transaction, in which it locks the fence row.
    pub(in crate::world) fn begin_row_lock(&mut self, ms: u64) {
        self.catch_up();
        // No two sessions have one number, on whichever timeline they are.
        let last = self.database().engines().map(|engine| engine.last_session()).max().unwrap_or_default();
        self.database().engine.number_after(last);
        let Ok(session) = self.database().engine.connect(Settings::default()) else { return };
        self.trace.record(self.now, "row locked", &(session, ms));
        self.marks.hit(Mark::RowLocked);
        self.database().strangers.insert(session);
        self.database().engine.start(session, Command::Begin);
        self.settle();
        self.at(self.now.plus_ms(1), Event::LocksRow(session));
        self.at(self.now.plus_ms(ms + 1), Event::FreesRow(session));
    }

    pub(in crate::world) fn lock_row(&mut self, session: SessionId) {
        self.catch_up();
        let fence = self.store().fence();
        let engine = &mut self.database().engine;
        if !engine.lives(session) {
            return;
        }
        if engine.is_busy(session) || !engine.in_transaction(session) {
            return self.at(self.now.plus_ms(1), Event::LocksRow(session));
        }
        engine.start(session, Command::Run(Program::new(ClearHolder { fence }.into())));
        self.settle();
    }

    pub(in crate::world) fn free_row(&mut self, session: SessionId) {
        self.catch_up();
        if self.database().engine.lives(session) {
            self.database().engine.terminate(session);
        }
        self.settle();
    }

    /// Every backend stands still.
    pub(in crate::world) fn freeze_all(&mut self, ms: u64) {
        let all: Vec<SessionId> = self.database().engine.sessions().collect();
        let thaw = self.now.plus_ms(ms);
        for session in all {
            self.database().engine.freeze(session);
            self.at(thaw, Event::Thaw(session));
        }
    }

    pub(in crate::world) fn thaw(&mut self, session: SessionId) {
        self.catch_up();
        self.database().engines().for_each(|engine| engine.thaw(session));
        self.settle();
    }

    /// The database goes down, by a crash or not, and comes back.
    pub(in crate::world) fn restart_database(&mut self, crash: bool, ms: u64) {
        self.trace.record(self.now, "database restarts", &(crash, ms));
        self.marks.hit(if crash { Mark::DatabaseCrash } else { Mark::DatabaseRestart });
        self.catch_up();
        let database = self.database();
        if crash {
            database.engine.crash();
        } else {
            database.engine.shut_down();
        }
        self.settle();
        let up = self.now.plus_ms(ms);
        self.at(up, Event::DatabaseUp);
    }

    pub(in crate::world) fn database_up(&mut self) {
        self.database().engine.open();
    }

    /// Every fault of the database ends.
    pub(in crate::world) fn heal_database(&mut self) {
        let now = self.now;
        self.database().replica = None;
        if let Some(older) = self.timeline().checked_sub(1) {
            self.old_primary_ends(older);
        }
        self.forget_lost_documents();
        self.database().refuses_until = now;
        self.database().engine.set_writable(Writable::Yes);
        self.database().engine.domain.pace = Pace::NONE;
        self.database_up();
        let all: Vec<SessionId> = self.database().engine.sessions().collect();
        for session in all {
            self.thaw(session);
        }
        for session in std::mem::take(&mut self.database().strangers) {
            self.free_row(session);
        }
        self.end_pooler();
        self.settle();
    }
}
