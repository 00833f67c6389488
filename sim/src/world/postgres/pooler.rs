//! A pooler in transaction mode between the servers and the database: whoever begins a transaction is lent a backend until
//! that ends, and the next time perhaps another one. What a connection has set up is set on the backend that it had then,
//! until another one sets up the same backend (protocols, 31).

use super::{LinkId, Message, Sender, Whence, from};
use crate::coverage::Mark;
use crate::fault::FaultKind;
use crate::postgres::store::Program;
use crate::postgres::{Command, SessionId, Settings, SqlError};
use crate::world::World;
use crate::world::clock::Time;
use std::collections::{BTreeMap, VecDeque};

/// The backends of the pooler, and who waits for one.
#[derive(Debug, Default)]
pub(super) struct Pooler {
    /// New connections lead to it before this time.
    until: Time,
    /// Each with the connection that has set it up last.
    backends: BTreeMap<SessionId, LinkId>,
    waiting: VecDeque<(LinkId, Command<Program>, Sender)>,
}

impl World {
    /// Whether a connection that is opened now leads to the pooler.
    pub(super) fn leads_to_pooler(&self) -> bool {
        let until = self.postgres.as_deref().map_or(Time(0), |database| database.pooler.until);
        !self.healed && self.now < until
    }

    /// Whether a pooler is put in between now, to stay until the healing.
    pub(in crate::world) fn look_for_pooler(&mut self) {
        let cluster = self.plan.cluster.as_ref();
        let begins = cluster.and_then(|cluster| cluster.pooler_from_ms).is_some_and(|ms| self.now == Time(ms * 1_000));
        let ms = self.plan.chaos_ms;
        if let Some(ms) = self.faults.strikes(self.now, FaultKind::Pooler, begins, ms) {
            self.trace.record(self.now, "pooler", &ms);
            let until = self.now.plus_ms(ms);
            self.database().pooler.until = until;
        }
    }

    /// The backends are the pooler's, and nobody's: none of them ends for what one connection wants.
    fn pooled_settings(&self) -> Settings {
        let slice = self.plan.cluster.as_ref().map_or(0, |cluster| cluster.slice_ms);
        let plan = &self.plan.database;
        Settings {
            statement_timeout: plan.statement_timeout_ms.max(slice + 2_000),
            lock_timeout: plan.lock_timeout_ms,
            idle_in_transaction_timeout: plan.idle_in_transaction_ms,
            idle_session_timeout: 0,
            deadlock_timeout: 1_000,
            client_check_interval: plan.client_check_ms,
        }
    }

    /// A backend that nobody has, or a new one where there is room.
    fn idle_backend(&mut self) -> Result<Option<SessionId>, SqlError> {
        let most = self.plan.cluster.as_ref().map_or(1, |cluster| cluster.pooler_backends);
        let settings = self.pooled_settings();
        let database = self.database();
        let engine = &mut database.engine;
        database.pooler.backends.retain(|session, _| engine.lives(*session));
        let lent = &database.of_session;
        let idle = |session: &SessionId| !lent.contains_key(session) && !engine.is_busy(*session);
        let all: Vec<SessionId> = database.pooler.backends.keys().copied().filter(idle).collect();
        if !all.is_empty()
            && (database.pooler.backends.len() >= most || self.dice.database.chance(crate::rng::Ratio::new(3, 4)))
        {
            return Ok(Some(*self.dice.database.pick(&all)));
        }
        let database = self.database();
        if database.pooler.backends.len() >= most {
            return Ok(None);
        }
        let last = database.engines().map(|engine| engine.last_session()).max().unwrap_or_default();
        database.engine.number_after(last);
        let session = database.engine.connect(settings)?;
        database.pooler.backends.insert(session, LinkId(0));
        Ok(Some(session))
    }

    /// Something reaches the pooler.
    pub(super) fn arrives_at_pooler(&mut self, id: LinkId, message: Message) {
        match message {
            Message::Connect => match self.idle_backend() {
                // Where none is free, it is set up when one is; whose it is then matters as little.
                Ok(backend) => {
                    self.marks.hit(Mark::ThroughPooler);
                    if let Some(backend) = backend {
                        self.database().pooler.backends.insert(backend, id);
                    }
                    let origin = self.database().engine.domain.origin;
                    self.send_back(id, super::Heard::Connected(origin));
                }
                Err(error) => {
                    self.marks.hit(Mark::ConnectionRefused);
                    self.send_back(id, super::Heard::Refused(error));
                }
            },
            Message::Command(command, sender) => self.run_pooled(id, *command, sender),
            Message::Gone => {
                let database = self.database();
                database.pooler.waiting.retain(|(waits, ..)| *waits != id);
                // The pooler ends the backend of whom it lost in the middle of a transaction.
                let session = database.links.remove(&id).and_then(|link| link.session);
                if let Some(session) = session {
                    database.pooler.backends.remove(&session);
                    database.engine.vanish(session);
                }
            }
        }
    }

    fn run_pooled(&mut self, id: LinkId, command: Command<Program>, sender: Sender) {
        let lent = self.database().links.get(&id).and_then(|link| link.session);
        let session = match lent {
            Some(session) => session,
            None => match self.idle_backend() {
                Ok(Some(session)) => {
                    let database = self.database();
                    database.of_session.insert(session, id);
                    let timeline = database.engine.domain.origin.timeline;
                    let link = database.links.get_mut(&id).expect("it is open");
                    (link.session, link.timeline) = (Some(session), timeline);
                    session
                }
                Ok(None) => {
                    self.database().pooler.waiting.push_back((id, command, sender));
                    return;
                }
                Err(_) => return self.send_back(id, super::Heard::Error(SqlError::CLOSED)),
            },
        };
        let database = self.database();
        if !database.engine.lives(session) || !database.engine.has_client(session) {
            return self.send_back(id, super::Heard::Error(SqlError::CLOSED));
        }
        let foreign = database.pooler.backends.get(&session) != Some(&id);
        database.runs.insert(session, sender);
        database.engine.start(session, from(command, Whence { key: id.key(), foreign }));
    }

    /// A command of a backend has ended: with the transaction ends its loan, and the next one has it.
    pub(super) fn lend_again(&mut self, session: SessionId) {
        let database = self.database();
        let is_pooled = database.pooler.backends.contains_key(&session);
        if !is_pooled || (database.engine.lives(session) && database.engine.in_transaction(session)) {
            return;
        }
        if let Some(id) = database.of_session.remove(&session)
            && let Some(link) = database.links.get_mut(&id)
        {
            link.session = None;
        }
        if let Some((id, command, sender)) = self.database().pooler.waiting.pop_front() {
            self.run_pooled(id, command, sender);
        }
    }

    /// The pooler is taken away, or led to another server: every connection to it ends, and its backends with it.
    pub(super) fn end_pooler(&mut self) {
        let database = self.database();
        let backends = std::mem::take(&mut database.pooler.backends);
        database.pooler.waiting.clear();
        let pooled: Vec<LinkId> = database.links.iter().filter(|(_, link)| link.pooled).map(|(id, _)| *id).collect();
        for id in pooled {
            self.cut(id);
        }
        for session in backends.into_keys() {
            self.database().engine.vanish(session);
        }
    }
}
