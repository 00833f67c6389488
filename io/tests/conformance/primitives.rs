//! Random interleavings of two to four sessions over the primitive operations, on the model and on a real PostgreSQL:
//! results, errors, who waits for whom, and what is in the tables in the end.
//!
//! `CONFORMANCE=a..b` (half open) runs others than the usual seeds, `CONFORMANCE_JOBS=n` on so many databases at once.
//!
//! After each step the real server is left to come to rest. Where several sessions can go on at the same moment, it is
//! chance on a real server who is faster: the model then goes on in every order, and what it could have come to by then
//! is kept as long as it is what the real server shows. A difference is what the model could not have come to.

use crate::histogram::{Hits, Runs};
use crate::real::arena::{Arena, Circumstances, Stands};
use crate::real::rest::Telling;
use crate::real::sql;
use orbit_sim::postgres::script::model::ModelServer;
use orbit_sim::postgres::script::{Change, Filter, Got, OnConflict, Op, Order, Seen, Server, Table};
use orbit_sim::postgres::{Code, Flaw, Policy, Scope, Settings, Strength, outcomes};
use orbit_sim::rng::{Dice, Ratio, Stream};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The share that every test run looks at.
const SEEDS: Range<u64> = 0..400;
/// So long a session waits before it looks for a deadlock, and so long the model lets it, in milliseconds.
const DEADLOCK_MS: u64 = 1;
const LOOKS_MS: u64 = 8;
/// The time-outs of hasty sessions.
const HASTY_MS: u64 = 100;
/// How many orders of one moment are looked at, and how many servers the model may be at once.
const ORDERS: usize = 50_000;
const MODELS: usize = 500;

/// What a random session does next.
#[derive(Clone, Debug)]
enum Move {
    Do(u32, Op),
    Terminate(u32),
    Vanish(u32),
}

/// A run of one seed on both.
struct Run<'a, 'b> {
    dice: Dice,
    /// What the real server may be.
    models: Vec<ModelServer>,
    real: &'a mut Arena<'b>,
    sessions: u32,
    hasty: BTreeSet<u32>,
    /// Their clients are gone.
    gone: BTreeSet<u32>,
    stands: BTreeMap<u32, Stands>,
    hits: Hits,
    log: Vec<String>,
}

/// Why the two are not the same.
type Same = Result<(), String>;

fn filter(dice: &mut Dice) -> Filter {
    let id = dice.between([1, 3]) as i32;
    let ids = *dice.pick(&[(id, id), (id, id), (id, id), (id, 3), (1, id)]);
    let v = dice.chance(Ratio::new(1, 4)).then(|| dice.between([0, 2]) as i32);
    let other = dice.chance(Ratio::new(1, 10)).then(|| (1, dice.between([0, 2]) as i32));
    Filter { ids, v, live: None, other }
}

fn statement(dice: &mut Dice) -> Op {
    let table = if dice.chance(Ratio::new(1, 8)) { Table::B } else { Table::A };
    let strengths = [Strength::KeyShare, Strength::Share, Strength::Share, Strength::NoKeyUpdate, Strength::Update];
    match dice.weighted(&[2, 9, 9, 2, 6, 4, 2, 1]) {
        0 => Op::Read(table, filter(dice)),
        1 => Op::Lock {
            table,
            filter: filter(dice),
            strength: *dice.pick(&strengths),
            policy: [Policy::Wait, Policy::Skip, Policy::Fail][dice.weighted(&[6, 3, 1])],
            order: *dice.pick(&[Order::Id, Order::Id, Order::V]),
            limit: dice.chance(Ratio::new(1, 4)).then(|| dice.between([1, 2]) as u32),
        },
        2 => {
            let change = if dice.chance(Ratio::new(1, 2)) { Change::Add(1) } else { Change::V(dice.below(3) as i32) };
            Op::Update(table, filter(dice), change)
        }
        3 => Op::Delete(table, filter(dice)),
        4 => {
            let only_if = dice.chance(Ratio::new(1, 2)).then(|| dice.below(3) as i32);
            let conflict = *dice.pick(&[OnConflict::Fail, OnConflict::Nothing, OnConflict::Add { only_if }]);
            Op::Insert(table, dice.between([1, 5]) as i32, dice.below(3) as i32, conflict)
        }
        5 => Op::Advisory {
            key: dice.between([1, 2]) as i32,
            shared: dice.chance(Ratio::new(1, 2)),
            scope: *dice.pick(&[Scope::Session, Scope::Transaction]),
            wait: dice.chance(Ratio::new(3, 4)),
        },
        6 => Op::Unlock { key: dice.between([1, 2]) as i32, shared: dice.chance(Ratio::new(1, 2)) },
        _ => Op::Fail,
    }
}

impl<'a, 'b> Run<'a, 'b> {
    fn new(seed: u64, real: &'a mut Arena<'b>, flaw: Option<Flaw>) -> Run<'a, 'b> {
        let mut dice = Dice::new(seed, Stream::Plan);
        let mut model = ModelServer::new().changed(flaw);
        let sessions = dice.between([2, 4]) as u32;
        let hasty: BTreeSet<u32> = (1..=sessions).filter(|_| dice.chance(Ratio::new(1, 16))).collect();
        let mut settings = Vec::new();
        for session in 1..=sessions {
            let timeout = if dice.chance(Ratio::new(1, 2)) { "lock" } else { "statement" };
            let mut own = Settings { deadlock_timeout: DEADLOCK_MS, ..Settings::default() };
            match timeout {
                _ if !hasty.contains(&session) => {}
                "lock" => own.lock_timeout = HASTY_MS,
                _ => own.statement_timeout = HASTY_MS,
            }
            model.open(session, own);
            settings.push((sql::set(&own), hasty.contains(&session)));
        }
        let rows = [(Table::A, 1), (Table::A, 2), (Table::A, 3), (Table::B, 1)].map(|(table, id)| (table, id, id % 3));
        for (table, id, v) in rows {
            model.put(table, id, v);
        }
        let circumstances = Circumstances::of(seed);
        real.begin(circumstances, &settings, &rows);
        let log = vec![format!("{circumstances:?}, hasty: {hasty:?}")];
        let (gone, stands, hits) = (BTreeSet::new(), BTreeMap::new(), Hits::default());
        Run { dice, models: vec![model], real, sessions, hasty, gone, stands, hits, log }
    }

    fn play(mut self) -> (Same, Hits) {
        let same = self.play_all().map_err(|d| format!("{d}\n  {}", self.log.join("\n  ")));
        // What the models did that is left: they are what was seen.
        let counts = self.models.first().map(ModelServer::counts).unwrap_or_default();
        self.hits.recheck |= counts.rechecks > 0;
        self.hits.skip |= counts.skips > 0;
        self.hits.unique_wait |= counts.unique_waits > 0;
        (same, self.hits)
    }

    fn play_all(&mut self) -> Same {
        for _ in 0..self.dice.between([12, 32]) {
            let Some(next) = self.draw() else { break };
            self.takes(next)?;
        }
        self.ends()
    }

    fn alive(&self) -> impl Iterator<Item = u32> {
        (1..=self.sessions).filter(|s| !self.gone.contains(s) && self.stands.get(s) != Some(&Stands::Gone))
    }

    fn idle(&self) -> Vec<u32> {
        self.alive().filter(|s| !matches!(self.stands.get(s), Some(Stands::Waits(_)))).collect()
    }

    fn in_transaction(&self, session: u32) -> bool {
        matches!(self.stands.get(&session), Some(Stands::Ended(_, true)))
    }

    fn draw(&mut self) -> Option<Move> {
        if self.dice.chance(Ratio::new(1, 90)) {
            let alive: Vec<u32> = self.alive().collect();
            if !alive.is_empty() {
                let session = *self.dice.pick(&alive);
                self.hits.death = true;
                let terminate = self.dice.chance(Ratio::new(1, 2));
                return Some(if terminate { Move::Terminate(session) } else { Move::Vanish(session) });
            }
        }
        let idle = self.idle();
        if idle.is_empty() {
            return None;
        }
        let session = *self.dice.pick(&idle);
        let op = if self.in_transaction(session) {
            match self.dice.weighted(&[12, 2, 1]) {
                0 => statement(&mut self.dice),
                1 => Op::Commit,
                _ => Op::Rollback,
            }
        } else if self.dice.chance(Ratio::new(2, 3)) {
            Op::Begin
        } else {
            statement(&mut self.dice)
        };
        Some(Move::Do(session, op))
    }

    /// Everything ends: transactions commit, and sessions that others still wait for are ended.
    fn ends(&mut self) -> Same {
        loop {
            let idle = self.idle();
            let waits = self.stands.values().any(|s| matches!(s, Stands::Waits(_)));
            if let Some(session) = idle.iter().copied().find(|s| self.in_transaction(*s)) {
                self.takes(Move::Do(session, Op::Commit))?;
            } else if let (true, Some(session)) = (waits, idle.first()) {
                self.takes(Move::Terminate(*session))?;
            } else {
                break;
            }
        }
        for table in [Table::A, Table::B] {
            let real = self.real.holds(table);
            let models: BTreeSet<_> = self.models.iter_mut().map(|model| model.holds(table)).collect();
            self.models.retain_mut(|model| model.holds(table) == real);
            if self.models.is_empty() {
                return Err(format!("table {table:?} holds {real:?} on PostgreSQL, and on the model {models:?}"));
            }
        }
        Ok(())
    }

    fn takes(&mut self, next: Move) -> Same {
        self.log.push(format!("{next:?}"));
        let (hasty, sessions) = (&self.hasty, self.sessions);
        let mut models = BTreeMap::new();
        for model in &self.models {
            let all = outcomes(model, ORDERS, |model| does(model, &next, hasty)).map_err(|e| e.to_string())?;
            let alone = self.models.len() == 1 && all.len() == 1;
            for one in all {
                use orbit_sim::postgres::Explored;
                let identity = if alone { String::new() } else { one.identity() };
                models.insert(identity, one);
            }
        }
        match &next {
            Move::Do(session, op) => self.real.send(*session, op),
            Move::Terminate(session) => self.real.terminate(*session),
            Move::Vanish(session) => {
                self.gone.insert(*session);
                self.real.vanish(*session);
            }
        }
        let before = std::mem::replace(&mut self.stands, self.real.rest()?);
        let changed = self.stands.iter().filter(|(session, stands)| before.get(session) != Some(stands));
        self.log.extend(changed.map(|(session, stands)| format!("    {session}: {stands:?}")));
        self.see(&next);
        let mut models: Vec<ModelServer> = models.into_values().collect();
        let could: Vec<_> = models.iter_mut().map(|model| stand(model, sessions)).collect();
        let (real, mut at) = (&self.stands, could.iter());
        models.retain(|_| at.next() == Some(real));
        if models.is_empty() {
            let could: BTreeSet<String> = could.iter().map(|stands| format!("{stands:?}")).collect();
            let could: Vec<String> = could.into_iter().take(8).collect();
            let (real, could, locks) = (format!("{real:?}"), could.join("\n  "), self.real.locks());
            return Err(format!("PostgreSQL says {real}\n  the model could say\n  {could}\n  {locks}"));
        }
        if models.len() > MODELS {
            return Err(format!("the model could be {} servers", models.len()));
        }
        self.models = models;
        Ok(())
    }

    /// What has happened.
    fn see(&mut self, next: &Move) {
        for (session, stands) in &self.stands {
            let hasty = self.hasty.contains(session);
            self.hits.blocked |= matches!(stands, Stands::Waits(_));
            self.hits.deadlock |= stands.is(Code::Deadlock);
            // A session that would not wait at all gets the same code as one that has waited too long.
            let nowait = matches!(next, Move::Do(_, Op::Lock { policy: Policy::Fail, .. }));
            self.hits.time_out |=
                hasty && (stands.is(Code::QueryCanceled) || stands.is(Code::LockNotAvailable) && !nowait);
        }
    }
}

fn does(model: &mut ModelServer, next: &Move, hasty: &BTreeSet<u32>) {
    match next {
        Move::Do(session, op) => {
            model.send(*session, op);
            if hasty.contains(session) {
                // Should it wait, its time is over before anything else happens.
                model.pause(2 * HASTY_MS);
            }
        }
        Move::Terminate(session) => model.terminate(*session),
        Move::Vanish(session) => model.vanish(*session),
    }
    // Who begins to wait looks for a deadlock soon, and nothing else happens before that.
    while model.has_fresh_waits() {
        model.pause(LOOKS_MS);
    }
}

fn stand(model: &mut ModelServer, sessions: u32) -> BTreeMap<u32, Stands> {
    let all = (1..=sessions).map(|session| {
        let stands = if model.is_gone(session) {
            Stands::Gone
        } else {
            match model.stands(session) {
                // Never asked.
                Seen::Waits(_) if model.is_idle(session) => Stands::Ended(Seen::Ended(Got::Done), false),
                Seen::Waits(on) => Stands::Waits(on),
                seen => Stands::Ended(seen, model.in_transaction(session)),
            }
        };
        (session, stands)
    });
    all.collect()
}

/// One seed.
fn one(real: &mut Arena<'_>, seed: u64, flaw: Option<Flaw>) -> (Same, Hits) {
    Run::new(seed, real, flaw).play()
}

#[test]
fn random_interleavings_are_the_same_on_the_model_and_on_postgresql() {
    let telling = Telling::start();
    let runs = Runs { what: "primitive operations", variable: "CONFORMANCE", usual: SEEDS, in_a_row: 1 };
    let histogram = runs.run(|| {
        let mut real = Arena::new(&telling);
        move |seed| one(&mut real, seed, None)
    });
    histogram.hold_to(None);
}

#[test]
fn each_deliberate_change_of_the_model_is_caught() {
    let telling = Telling::start();
    let mut real = Arena::new(&telling);
    let mut missed = Vec::new();
    for flaw in Flaw::ALL {
        match (0..600).find_map(|seed| one(&mut real, seed, Some(flaw)).0.err().map(|d| (seed, d))) {
            Some((seed, difference)) => {
                one(&mut real, seed, None).0.expect("without the change, that seed is the same on both");
                println!("{flaw:?} is caught by seed {seed}: {}", difference.lines().next().unwrap_or_default());
            }
            None => missed.push(flaw),
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
