//! Runs of one seed, and of many.

use crate::coverage::Coverage;
use crate::fault::{Faults, Strike, Struck};
use crate::mutant::Planted;
use crate::plan::Plan;
use crate::report::{Failure, FailureKind, Trace};
use crate::workload::census::Census;
use crate::world::clock::Time;
use crate::world::{Ended, World};
use orbit_core::mutant::Mutant;
use std::io::Write;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Runs one plan; a panic of the code under test is a failure of kind [`FailureKind::Crash`].
pub fn run(plan: &Plan, planted: Planted, trace: Option<Box<dyn Write>>) -> Ended {
    run_with(plan, planted, trace, Faulty::Drawn, &Struck::default())
}

/// Where a run's faults come from.
#[derive(Clone, Copy, Debug)]
pub enum Faulty<'a> {
    /// From the seed.
    Drawn,
    /// These, and no others.
    Scripted(&'a [Strike]),
}

/// As [`run`], with faults from elsewhere than the seed; `struck` gets those that happened, also those before a panic.
pub fn run_with(
    plan: &Plan,
    planted: Planted,
    trace: Option<Box<dyn Write>>,
    faulty: Faulty<'_>,
    struck: &Struck,
) -> Ended {
    let faults = match faulty {
        Faulty::Drawn => Faults::drawn(Struck::clone(struck)),
        Faulty::Scripted(strikes) => Faults::scripted(strikes, Struck::clone(struck)),
    };
    let world = AssertUnwindSafe(|| World::new(plan.clone(), planted, Trace::new(trace), faults).run());
    catch_unwind(world).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
        Ended {
            failure: Some(Failure {
                kind: FailureKind::Crash,
                check: "panic".into(),
                message: text.to_owned(),
                at_us: Time(0),
            }),
            marks: Coverage::default(),
            census: Census::default(),
            hash: String::new(),
            lines: 0,
            executions: 0,
            simulated_ms: 0,
        }
    })
}

/// Runs the plan of `seed` twice: the same trace, or a failure of kind [`FailureKind::Nondeterminism`].
pub fn run_twice(plan: &Plan, planted: Planted) -> Ended {
    let first = run(plan, planted, None);
    let mut second = run(plan, planted, None);
    if first.hash != second.hash {
        second.failure = Some(Failure {
            kind: FailureKind::Nondeterminism,
            check: "trace".into(),
            message: format!("two runs of seed {} gave the traces {} and {}", plan.seed, first.hash, second.hash),
            at_us: Time(0),
        });
    }
    second
}

/// Many runs.
#[derive(Clone, Debug)]
pub struct Ensemble {
    pub seeds: Range<u64>,
    /// Of these, every `of`th, beginning with the `index`th.
    pub shard: Shard,
    /// No run begins after this wall-clock time.
    pub budget: Option<Duration>,
    /// Threads.
    pub jobs: usize,
    pub planted: Option<Mutant>,
    /// Changed options, as [`Plan::set`] takes them.
    pub settings: Vec<(String, String)>,
    /// Whether the first failure ends it.
    pub stop_at_first: bool,
    /// So many workflows that ran to an end are enough.
    pub enough: Option<u64>,
}

/// One part of an ensemble that several machines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    pub index: u64,
    pub of: u64,
}

impl Shard {
    /// All of it.
    pub const WHOLE: Shard = Shard { index: 0, of: 1 };
}

/// What many runs gave.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    pub runs: u64,
    pub executions: u64,
    pub simulated_ms: u64,
    pub lines: u64,
    /// By seed.
    pub failures: Vec<(u64, Failure)>,
    pub marks: Coverage,
    pub census: Census,
}

impl Explored {
    fn add(&mut self, seed: u64, ended: &Ended) {
        self.runs += 1;
        self.executions += ended.executions;
        self.simulated_ms += ended.simulated_ms;
        self.lines += ended.lines;
        self.marks.add(&ended.marks);
        self.census.add(&ended.census);
        if let Some(failure) = &ended.failure {
            self.failures.push((seed, failure.clone()));
            self.failures.sort_by_key(|(seed, _)| *seed);
        }
    }
}

impl Ensemble {
    /// All of these seeds, on two threads, nothing planted.
    pub fn of(seeds: Range<u64>) -> Ensemble {
        Ensemble {
            seeds,
            shard: Shard::WHOLE,
            budget: None,
            jobs: 2,
            planted: None,
            settings: Vec::new(),
            stop_at_first: false,
            enough: None,
        }
    }

    /// Its plan for a seed.
    pub fn plan(&self, seed: u64) -> Result<Plan, String> {
        self.settings.iter().try_fold(Plan::draw(seed), |plan, (key, value)| plan.set(key, value))
    }

    /// Runs it. `progress` hears of every run that ended.
    pub fn explore(&self, progress: &(dyn Fn(u64, &Explored) + Sync)) -> Result<Explored, String> {
        self.plan(self.seeds.start)?;
        let began = Instant::now();
        let (next, stop) = (AtomicU64::new(self.seeds.start + self.shard.index), AtomicBool::new(false));
        let all = Mutex::new(Explored::default());
        let work = || {
            loop {
                let seed = next.fetch_add(self.shard.of, Ordering::Relaxed);
                let late = self.budget.is_some_and(|budget| began.elapsed() > budget);
                if seed >= self.seeds.end || late || stop.load(Ordering::Relaxed) {
                    return;
                }
                let plan = self.plan(seed).expect("the first one was right");
                let ended = run(&plan, Planted(self.planted), None);
                let mut all = all.lock().expect("no run panics while it holds the lock");
                all.add(seed, &ended);
                let enough = self.enough.is_some_and(|enough| all.census.workflows >= enough);
                if enough || (ended.failure.is_some() && self.stop_at_first) {
                    stop.store(true, Ordering::Relaxed);
                }
                progress(seed, &all);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs.max(1) {
                scope.spawn(work);
            }
        });
        Ok(all.into_inner().expect("no run panics while it holds the lock"))
    }
}

/// The number of seeds, from the first on, after which a planted mistake was found; `None` if it was not.
pub fn found_within(mutant: Mutant, seeds: Range<u64>) -> Option<(u64, Failure)> {
    let ensemble = Ensemble { planted: Some(mutant), stop_at_first: true, ..Ensemble::of(seeds.clone()) };
    let explored = ensemble.explore(&|_, _| {}).expect("nothing is changed");
    let (seed, failure) = explored.failures.into_iter().next()?;
    Some((seed - seeds.start + 1, failure))
}
