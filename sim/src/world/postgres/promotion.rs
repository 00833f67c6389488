//! Promotions (postgres-rules, R26 to R28): a replica goes on as another timeline, with what it had received of the old
//! primary's commits; the old primary may answer for a while beside it.
//!
//! Each timeline has checks of its own, which know what it has committed: those of the new one begin with what the replica
//! knows, so that exactly what it lacks is excepted. What the old primary commits and answers afterwards is lost, all of it.

use crate::check::Checks;
use crate::coverage::Mark;
use crate::postgres::Engine;
use crate::postgres::store::Orbit;
use crate::rng::Ratio;
use crate::world::World;
use crate::world::event::Event;
use orbit_core::store::origin::Origin;

/// What a replica has received, and what was known then.
#[derive(Debug)]
pub struct Replica {
    engine: Engine<Orbit>,
    checks: Checks,
}

/// The primary of before a promotion.
#[derive(Debug)]
pub struct OldPrimary {
    pub engine: Engine<Orbit>,
    pub checks: Checks,
}

impl World {
    /// The newest timeline.
    pub(in crate::world) fn timeline(&self) -> u32 {
        self.postgres.as_deref().map_or(0, |database| database.engine.domain.origin.timeline)
    }

    /// Whether a server is known to work on an older timeline than the newest.
    pub(in crate::world) fn is_behind(&self, pid: crate::world::server::Pid) -> bool {
        let known = self.processes.get(&pid).map_or(0, |process| process.timeline);
        known > 0 && known < self.timeline()
    }

    /// A replica receives nothing more, and is promoted after so long. A synchronous one has received everything.
    pub(in crate::world) fn strike_promotion(&mut self, ms: u64) {
        if self.database().replica.is_some() || !self.database().engine.is_up() {
            return;
        }
        let synchronous = self.dice.faults.chance(self.plan.database.synchronous);
        let takeover = self.dice.faults.chance(self.plan.database.promotion_after_takeover);
        self.catch_up();
        self.settle();
        let checks = self.checks.clone();
        let database = self.database();
        database.replica = Some(Box::new(Replica { engine: database.engine.clone(), checks }));
        if synchronous {
            return self.promote();
        }
        self.trace.record(self.now, "replica lags", &ms);
        self.at(self.now.plus_ms(ms), Event::Promotes);
        if takeover && let Some(leader) = self.leader() {
            self.kill_election(leader);
        }
    }

    /// The replica becomes the primary.
    pub(in crate::world) fn promote(&mut self) {
        if self.healed {
            return;
        }
        self.catch_up();
        self.settle();
        let Some(replica) = self.database().replica.take() else { return };
        self.end_pooler();
        if self.database().old.is_some() {
            let timeline = self.timeline() - 1;
            self.old_primary_ends(timeline);
        }
        let Replica { mut engine, checks } = *replica;
        let (now, clock) = (self.now, self.host.read(self.now));
        engine.advance(now.0);
        engine.set_clock_ms(clock.0);
        // It goes on with what it has received: what was under way is over, what was committed is there.
        engine.crash();
        engine.take_answers();
        engine.open();
        let last = self.database().engine.last_session();
        engine.number_after(last);
        let Origin { system, timeline } = self.database().engine.domain.origin;
        engine.domain.origin = Origin { system, timeline: timeline + 1 };
        self.trace.record(self.now, "promoted", &engine.domain.origin);
        self.marks.hit(Mark::Promotion);
        let old_engine = std::mem::replace(&mut self.database().engine, engine);
        let mut old_checks = std::mem::replace(&mut self.checks, checks);
        self.checks.pace = old_checks.pace.clone();
        // What servers heard of workers is in no database, and is heard on the new timeline from now on.
        self.checks.custody = std::mem::take(&mut old_checks.custody);
        let came = std::mem::take(&mut self.database().engine.domain.done);
        for done in came {
            self.looked_at(done, None);
        }
        let (new, old) = (self.database().engine.domain.store.fence(), old_engine.domain.store.fence());
        if new.term < old.term {
            self.marks.hit(Mark::TermLost);
        }
        self.except_what_is_lost(&old_checks);
        self.operator_after_promotion(old_engine.domain.schema);
        let ms = self.dice.faults.between(self.plan.database.old_primary_ms);
        self.database().old = Some(Box::new(OldPrimary { engine: old_engine, checks: old_checks }));
        for process in self.processes.values_mut() {
            process.excuses.database = true;
        }
        match ms {
            0 => self.old_primary_ends(timeline),
            ms => self.at(self.now.plus_ms(ms), Event::OldPrimaryEnds(timeline)),
        }
        self.settle();
    }

    /// The old primary is no more, nor is what only it had.
    pub(in crate::world) fn old_primary_ends(&mut self, timeline: u32) {
        self.catch_up();
        self.settle();
        let Some(old) = self.database().old.as_mut().filter(|old| old.engine.domain.origin.timeline == timeline) else {
            return;
        };
        old.engine.crash();
        self.settle();
        self.database().old = None;
        self.trace.record(self.now, "old primary ends", &timeline);
    }

    /// What the new timeline lacks was acknowledged all the same, shown, and handed out: nobody is to be blamed for that.
    fn except_what_is_lost(&mut self, old: &Checks) {
        let lost = old.history.all_runs().any(|(id, runs)| {
            let there = self.checks.history.runs(id).map(crate::check::runs::Runs::last).unwrap_or_default();
            there < runs.last()
        });
        if lost {
            self.marks.hit(Mark::PromotionLost);
        }
        let World { checks, book, postgres, .. } = self;
        checks.delivery.over_promotion(&old.delivery, &checks.history);
        let store = postgres.as_deref().expect("a world with PostgreSQL").store();
        book.forget_lost(|id| store.executions().contains_key(id), &checks.history);
        self.forget_lost_documents();
        for exchange in self.network.exchanges.values_mut() {
            (exchange.floor, exchange.newest) = Default::default();
        }
    }

    /// Documents whose definitions are not there are deployed again.
    pub(in crate::world) fn forget_lost_documents(&mut self) {
        let World { deployed, book, postgres, sqlite, .. } = self;
        let store = postgres.as_deref().map_or(&*sqlite, super::Database::store);
        deployed.retain(|number| store.definitions().any(|row| row.document == book.documents()[*number]));
    }

    /// Whether a connection that opens now is led to the old primary.
    pub(super) fn is_led_back(&mut self) -> bool {
        let led = self.dice.database.chance(Ratio::new(1, 3));
        led && self.database().old.is_some() && !self.healed
    }
}
