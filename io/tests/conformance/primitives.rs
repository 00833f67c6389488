//! Random interleavings of two to four sessions over the primitive operations, on the model and on a real PostgreSQL:
//! results, errors, who waits for whom, and what is in the tables in the end.
//!
//! `CONFORMANCE=a..b` (half open) runs others than the usual seeds, `CONFORMANCE_JOBS=n` on so many databases at once.
//!
//! The model goes first, so that it is known what to wait for on the real server. What it does at one moment takes a
//! moment there: every step is waited for until it is as it must be. Where several sessions can go on at the same
//! moment, a real server decides by chance who is faster; such a seed is tried in several orders.

use crate::real::RealServer;
use orbit_sim::postgres::script::model::ModelServer;
use orbit_sim::postgres::script::{Change, Filter, Got, OnConflict, Op, Order, Seen, Server, Table};
use orbit_sim::postgres::{Counts, Flaw, Policy, Scope, Settings, Strength};
use orbit_sim::rng::{Dice, Ratio, Stream};
use orbit_support::Postgres;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The share that every test run looks at.
const SEEDS: Range<u64> = 0..120;
/// How often a seed is tried before a difference is one.
const ATTEMPTS: u32 = 5;
/// In which order those go on that can at the same moment, attempt by attempt: see [`Engine::in_order`].
///
/// [`Engine::in_order`]: orbit_sim::postgres::Engine::in_order
const ORDERS: [u32; 16] = [0, u32::MAX, 1, 2, 4, 8, 16, 32, 3, 6, 12, 24, 5, 10, 20, 7];
/// So long a session waits before it looks for a deadlock, and so long the others let it, in milliseconds.
const DEADLOCK_MS: u64 = 1;
const LOOKS_MS: u64 = 8;
/// How long a difference is waited for to go away; and where one is expected.
const PATIENCE: Duration = Duration::from_secs(10);
const IMPATIENCE: Duration = Duration::from_millis(500);
/// The time-outs of hasty sessions.
const HASTY_MS: u64 = 100;

/// What a random session does next.
#[derive(Debug)]
enum Move {
    Do(u32, Op),
    Terminate(u32),
    Vanish(u32),
}

/// A run of one seed on both.
struct Run<'a, 'b> {
    dice: Dice,
    model: ModelServer,
    real: &'a mut RealServer<'b>,
    /// Every wait for what is only a matter of time is this much longer.
    patience: u64,
    sessions: u32,
    hasty: BTreeSet<u32>,
    /// Their clients are gone.
    gone: BTreeSet<u32>,
    /// Their backends are gone.
    dead: BTreeSet<u32>,
    log: Vec<String>,
}

/// The two are not the same.
#[derive(Debug)]
struct Difference(String);

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

type Same = Result<(), Difference>;

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
    fn new(seed: u64, real: &'a mut RealServer<'b>, flaw: Option<Flaw>, attempt: u32) -> Run<'a, 'b> {
        let mut dice = Dice::new(seed, Stream::Plan);
        let sessions = dice.between([2, 4]) as u32;
        let hasty = (1..=sessions).filter(|_| dice.chance(Ratio::new(1, 16))).collect();
        Run {
            dice,
            model: ModelServer::new().changed(flaw, ORDERS[attempt as usize % ORDERS.len()]),
            real,
            patience: u64::from(1 + attempt.min(4) * 2),
            sessions,
            hasty,
            gone: BTreeSet::new(),
            dead: BTreeSet::new(),
            log: Vec::new(),
        }
    }

    fn play(mut self) -> (Same, Counts, bool) {
        let same = self.play_all();
        let same = same.map_err(|d| Difference(format!("{d}\n  {}", self.log.join("\n  "))));
        (same, self.model.counts(), self.model.has_raced())
    }

    fn play_all(&mut self) -> Same {
        for session in 1..=self.sessions {
            let hasty = self.hasty.contains(&session);
            let either = self.dice.chance(Ratio::new(1, 2));
            let settings = Settings {
                deadlock_timeout: DEADLOCK_MS,
                lock_timeout: if hasty && either { HASTY_MS } else { 0 },
                statement_timeout: if hasty && !either { HASTY_MS } else { 0 },
                ..Settings::default()
            };
            self.takes(Move::Do(session, Op::Set(settings)))?;
        }
        for (table, id) in [(Table::A, 1), (Table::A, 2), (Table::A, 3), (Table::B, 1)] {
            self.takes(Move::Do(1, Op::Insert(table, id, id % 3, OnConflict::Fail)))?;
        }
        for _ in 0..self.dice.between([12, 32]) {
            let Some(next) = self.draw() else { break };
            self.takes(next)?;
        }
        self.ends()
    }

    fn alive(&mut self, idle: bool) -> Vec<u32> {
        let here: Vec<u32> = (1..=self.sessions).filter(|s| !self.gone.contains(s) && !self.dead.contains(s)).collect();
        here.into_iter().filter(|s| !idle || self.model.is_idle(*s)).collect()
    }

    fn draw(&mut self) -> Option<Move> {
        if self.dice.chance(Ratio::new(1, 90)) {
            let alive = self.alive(false);
            if !alive.is_empty() {
                let session = *self.dice.pick(&alive);
                let terminate = self.dice.chance(Ratio::new(1, 2));
                return Some(if terminate { Move::Terminate(session) } else { Move::Vanish(session) });
            }
        }
        let idle = self.alive(true);
        if idle.is_empty() {
            return None;
        }
        let session = *self.dice.pick(&idle);
        let op = if self.model.in_transaction(session) {
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
            let idle = self.alive(true);
            if let Some(session) = idle.iter().copied().find(|s| self.model.in_transaction(*s)) {
                self.takes(Move::Do(session, Op::Commit))?;
            } else if let (true, Some(session)) = (self.anybody_waits(), idle.first()) {
                self.takes(Move::Terminate(*session))?;
            } else {
                break;
            }
        }
        for table in [Table::A, Table::B] {
            let (model, real) = (self.model.holds(table), self.real.holds(table));
            self.compare(&model, &real, &format!("table {table:?}"))?;
        }
        Ok(())
    }

    fn anybody_waits(&mut self) -> bool {
        (1..=self.sessions).any(|s| !self.dead.contains(&s) && !self.model.is_gone(s) && !self.model.is_idle(s))
    }

    fn takes(&mut self, next: Move) -> Same {
        match &next {
            Move::Do(session, op) => {
                self.model.send(*session, op);
                if self.hasty.contains(session) {
                    // Should it wait, its time is over before anything else happens.
                    self.model.pause(2 * HASTY_MS);
                }
                self.real.send(*session, op);
            }
            Move::Terminate(session) => {
                self.model.terminate(*session);
                self.real.terminate(*session);
            }
            Move::Vanish(session) => {
                self.gone.insert(*session);
                self.model.vanish(*session);
                self.real.vanish(*session);
            }
        }
        self.log.push(format!("{next:?}"));
        // Who begins to wait looks for a deadlock soon, and nothing else happens before that.
        let fresh = self.model.has_fresh_waits();
        if fresh {
            self.model.pause(LOOKS_MS);
        }
        self.settle()?;
        if fresh {
            self.real.pause(LOOKS_MS * self.patience);
            self.settle()?;
        }
        Ok(())
    }

    /// Waits until all sessions are as the model says.
    fn settle(&mut self) -> Same {
        for session in 1..=self.sessions {
            if self.dead.contains(&session) {
                continue;
            }
            if self.model.is_gone(session) {
                self.dead.insert(session);
                let gone = self.real.is_gone(session);
                self.compare(&true, &gone, &format!("session {session} is gone"))?;
            }
            if self.gone.contains(&session) {
                continue;
            }
            let wanted = match self.model.stands(session) {
                // Never asked.
                Seen::Waits(_) if self.model.is_idle(session) => continue,
                // The crate does not tell of a COMMIT what became of it.
                Seen::Ended(Got::RolledBack) => Seen::Ended(Got::Done),
                // Who was idle when its session ended hears of it when it next asks.
                _ if self.dead.contains(&session) => continue,
                seen => seen,
            };
            let seen = self.real.look(session, &wanted);
            self.log.push(format!("    {session}: {seen:?}"));
            self.compare(&wanted, &seen, &format!("session {session}"))?;
        }
        Ok(())
    }

    fn compare<T: PartialEq + fmt::Debug>(&self, model: &T, real: &T, what: &str) -> Same {
        if model == real {
            return Ok(());
        }
        Err(Difference(format!("{what}: the model says {model:?}, PostgreSQL says {real:?}")))
    }
}

/// What many seeds gave.
#[derive(Default)]
struct Histogram {
    seeds: u64,
    blocked: u64,
    deadlock: u64,
    recheck: u64,
    skip: u64,
    unique_wait: u64,
    time_out: u64,
    death: u64,
    tried_again: u64,
    differences: Vec<String>,
}

impl Histogram {
    fn add(&mut self, counts: Counts) {
        let one = |n: u64| u64::from(n > 0);
        self.seeds += 1;
        self.blocked += one(counts.waits);
        self.deadlock += one(counts.deadlocks);
        self.recheck += one(counts.rechecks);
        self.skip += one(counts.skips);
        self.unique_wait += one(counts.unique_waits);
        self.time_out += one(counts.timeouts);
        self.death += one(counts.deaths);
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rows = [
            ("interleavings", self.seeds),
            ("blocked", self.blocked),
            ("deadlock", self.deadlock),
            ("re-check on a newer version", self.recheck),
            ("skip", self.skip),
            ("unique wait", self.unique_wait),
            ("time-out", self.time_out),
            ("session death", self.death),
            ("tried again", self.tried_again),
            ("differences", self.differences.len() as u64),
        ];
        rows.iter().try_for_each(|(what, count)| writeln!(f, "{count:>9}  {what}"))
    }
}

/// One seed, until both are the same or it has been tried often enough.
fn one(real: &mut RealServer<'_>, seed: u64, flaw: Option<Flaw>) -> (Same, Counts, u32) {
    for attempt in 0.. {
        real.begin_again();
        let (same, counts, raced) = Run::new(seed, real, flaw, attempt).play();
        let attempts = if raced { ORDERS.len() as u32 } else { ATTEMPTS };
        if same.is_ok() || attempt + 1 >= attempts || flaw.is_some() && attempt > 0 {
            return (same, counts, attempt);
        }
    }
    unreachable!("attempts are counted")
}

fn server() -> Postgres {
    Postgres::start(&[("fsync", "off"), ("synchronous_commit", "off"), ("autovacuum_naptime", "5s")])
}

fn run(seeds: Range<u64>, jobs: u64) -> Histogram {
    let server = server();
    let (next, all) = (AtomicU64::new(seeds.start), Mutex::new(Histogram::default()));
    let work = || {
        let mut real = RealServer::new(&server);
        loop {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= seeds.end {
                return;
            }
            let (same, counts, again) = one(&mut real, seed, None);
            let mut all = all.lock().expect("nobody panics with it");
            all.add(counts);
            all.tried_again += u64::from(again > 0);
            if let Err(difference) = same {
                println!("seed {seed}: {difference}");
                all.differences.push(format!("CONFORMANCE={seed}..{}: {difference}", seed + 1));
            }
            if all.seeds.is_multiple_of(1_000) {
                println!("{all}");
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(work);
        }
    });
    all.into_inner().expect("nobody panics with it")
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

#[test]
fn random_interleavings_are_the_same_on_the_model_and_on_postgresql() {
    let seeds = variable("CONFORMANCE").map_or(SEEDS, |text| {
        let bounds = text.split_once("..").and_then(|(a, b)| Some(a.trim().parse().ok()?..b.trim().parse().ok()?));
        bounds.unwrap_or_else(|| panic!("CONFORMANCE is written as 0..20000, not {text:?}"))
    });
    let jobs = variable("CONFORMANCE_JOBS").map_or(4, |n| n.parse().expect("a number of databases"));
    let histogram = run(seeds, jobs);
    println!("{histogram}");
    let shown: Vec<&str> = histogram.differences.iter().take(3).map(String::as_str).collect();
    assert!(shown.is_empty(), "{} differences:\n{}", histogram.differences.len(), shown.join("\n"));
    assert!(histogram.blocked * 10 >= histogram.seeds * 3, "at least three in ten block:\n{histogram}");
}

#[test]
fn each_deliberate_change_of_the_model_is_caught() {
    let server = server();
    let mut real = RealServer::new(&server);
    let mut missed = Vec::new();
    for flaw in Flaw::ALL {
        real.patience = IMPATIENCE;
        match (0..600).find_map(|seed| one(&mut real, seed, Some(flaw)).0.err().map(|d| (seed, d))) {
            Some((seed, difference)) => {
                let text = difference.to_string();
                real.patience = PATIENCE;
                one(&mut real, seed, None).0.expect("without the change, that seed is the same on both");
                println!("{flaw:?} is caught by seed {seed}: {}", text.lines().next().unwrap_or_default());
            }
            None => missed.push(flaw),
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}
