//! The registry of workers, for people: who registered here and when each was seen last. Nobody waits for it.
//!
//! A row is made when a worker registers. When it was seen last is written when a session of it ends, when the server
//! stops, and of all that are there once in [`EVERY`], so that the row of a worker that is gone says when it went, if not
//! to the second where the server was killed. Rows of workers that have been gone for long are removed.

use super::{Connection, Node, Purpose};
use crate::mutant::Mutants;
use crate::store::statement::{ForgetWorkers, SeeWorkers};
use crate::store::transaction::{KeepWorkers, Transaction};
use crate::time::{ClusterMs, Mono};
use crate::worker::alive::Alive;
use std::collections::BTreeMap;
use std::time::Duration;

/// How often it is written when those that are there were seen.
const EVERY: Duration = Duration::from_secs(60);
/// How often those that are gone are looked at; sooner, where [`KEPT`] have registered.
const FORGET_EVERY: Duration = Duration::from_secs(3600);
/// A worker that has not been seen for longer is forgotten.
pub const KEPT_FOR: Duration = Duration::from_secs(7 * 24 * 3600);
/// Of those that are gone, so many are kept.
pub const KEPT: u32 = 1_000;

/// When the registry is brought up to date.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    next: Option<Mono>,
    in_flight: bool,
    /// When those that are gone are looked at next, and how many have registered since the last time.
    forget_at: Mono,
    registered: u32,
}

impl<M: Mutants> Node<M> {
    /// The workers at this moment.
    pub(super) fn alive(&self) -> Alive<'_> {
        let (sessions, attempts) = (&self.sessions, &self.attempts);
        Alive { sessions, attempts, now: self.now.mono, cluster_now: self.cluster_now() }
    }

    /// When the registry is to be brought up to date next.
    pub(super) fn next_registry(&self) -> Option<Mono> {
        let keeps = self.takes_requests() || self.loops_too_early();
        self.registry.next.filter(|_| keeps && !self.registry.in_flight)
    }

    /// One more has registered.
    pub(super) fn count_registration(&mut self) {
        self.registry.registered = self.registry.registered.saturating_add(1);
    }

    /// From now on the registry is kept.
    pub(super) fn begin_registry(&mut self) {
        self.registry.next = Some(self.now.mono + EVERY);
    }

    /// It is brought up to date at once, and from then on.
    pub(super) fn keep_registry_now(&mut self) {
        self.registry.next = Some(self.now.mono);
    }

    pub(super) fn keep_registry_when_due(&mut self) {
        if self.next_registry().is_none_or(|at| at > self.now.mono) {
            return;
        }
        let now = self.now.mono;
        let forgets = self.registry.forget_at <= now || self.registry.registered >= KEPT;
        let see = self.seen_now();
        if !forgets && see.seen.is_empty() {
            return self.begin_registry();
        }
        let age = i64::try_from(KEPT_FOR.as_millis()).expect("some days");
        let before = ClusterMs(self.cluster_now().0.saturating_sub(age));
        let forget = ForgetWorkers { there: see.seen.keys().cloned().collect(), before, keep: KEPT };
        if forgets {
            (self.registry.forget_at, self.registry.registered) = (now + FORGET_EVERY, 0);
        }
        self.registry.in_flight = true;
        let keep = KeepWorkers { see, forget: forgets.then_some(forget) };
        self.send(Connection::Requests, Transaction::KeepWorkers(keep), Purpose::KeepWorkers);
    }

    pub(super) fn on_registry_kept(&mut self) {
        self.registry.in_flight = false;
        self.begin_registry();
    }

    /// These are gone, and were seen then.
    pub(super) fn save_seen(&mut self, see: SeeWorkers) {
        if !see.seen.is_empty() {
            let keep = KeepWorkers { see, forget: None };
            self.send(Connection::Requests, Transaction::KeepWorkers(keep), Purpose::SaveWorker);
        }
    }

    /// When each worker that is there was heard from last.
    pub(super) fn seen_now(&self) -> SeeWorkers {
        let alive = self.alive();
        let mut seen: BTreeMap<_, ClusterMs> = BTreeMap::new();
        for (_, session) in self.sessions.iter() {
            let at = alive.at(session.last_contact());
            seen.entry(session.worker_id.clone()).and_modify(|last| *last = at.max(*last)).or_insert(at);
        }
        SeeWorkers { seen }
    }
}
