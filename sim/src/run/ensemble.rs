//! Many runs, on several threads.

use super::seed::Shard;
use super::size::{Size, Sizes};
use super::{Faulty, run_twice, verdict};
use crate::coverage::{Coverage, Mark};
use crate::mutant::Planted;
use crate::plan::Plan;
use crate::report::Failure;
use crate::workload::census::Census;
use crate::world::Ended;
use orbit_core::mutant::Mutant;
use rustix::time::{ClockId, clock_gettime};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The seeds that `cargo test -p sim` and `sim explore` run unless they are told others.
pub const USUAL: Range<u64> = 0..2_000;

/// Rarer than this in the usual seeds, an event is called rare.
pub const OFTEN: u64 = 10;

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
    /// Each run is done twice, and has to be the same.
    pub twice: bool,
    /// So many workflows that ran to an end are enough.
    pub enough: Option<u64>,
}

/// One run of many.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ran {
    pub seed: u64,
    /// Processor time.
    pub took: Duration,
}

/// What many runs gave.
#[derive(Clone, Debug, Default)]
pub struct Explored {
    pub runs: u64,
    pub executions: u64,
    pub simulated_ms: u64,
    pub lines: u64,
    pub sizes: Sizes,
    /// By seed.
    pub failures: Vec<(u64, Failure)>,
    pub marks: Coverage,
    pub census: Census,
    /// By seed.
    pub ran: Vec<Ran>,
    /// Processor time of all runs together.
    pub processor: Duration,
    /// From the beginning of the first run to the end of the last.
    pub wall: Duration,
    /// Whether every seed was run: the time was not over, nothing that failed ended it.
    pub whole: bool,
}

impl Explored {
    fn add(&mut self, seed: u64, ended: &Ended, took: Duration) {
        self.runs += 1;
        self.executions += ended.executions;
        self.simulated_ms += ended.simulated_ms;
        self.lines += ended.lines;
        if ended.size != Size::default() {
            self.sizes.add(ended.size);
        }
        self.marks.add(&ended.marks);
        self.census.add(&ended.census);
        self.ran.push(Ran { seed, took });
        self.processor += took;
        if let Some(failure) = &ended.failure {
            self.failures.push((seed, failure.clone()));
            self.failures.sort_by_key(|(seed, _)| *seed);
        }
    }

    /// Simulated seconds for each second of one processor.
    pub fn speed(&self) -> f64 {
        self.simulated_ms as f64 / 1_000.0 / self.processor.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// Events of the world for each second of one processor.
    pub fn events_per_second(&self) -> f64 {
        self.sizes.total.events as f64 / self.processor.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    /// What happened, and less than [`OFTEN`] times.
    pub fn rare(&self) -> Vec<(Mark, u64)> {
        let counted = Mark::ALL.iter().map(|mark| (*mark, self.marks.count(*mark)));
        counted.filter(|(_, count)| (1..OFTEN).contains(count)).collect()
    }

    /// The exit code of the gravest failure: safety before liveness before crash; 0 where there is none.
    pub fn exit_code(&self) -> u8 {
        self.failures.iter().map(|(_, failure)| failure.kind.exit_code()).min().unwrap_or(0)
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
            twice: false,
            enough: None,
        }
    }

    /// Its plan for a seed.
    pub fn plan(&self, seed: u64) -> Result<Plan, String> {
        self.settings.iter().try_fold(Plan::draw(seed), |plan, (key, value)| plan.set(key, value))
    }

    /// How many seeds there are.
    pub fn size(&self) -> u64 {
        self.seeds.end.saturating_sub(self.seeds.start + self.shard.index).div_ceil(self.shard.of)
    }

    /// Whether every rare event has to happen in it: it is of so many seeds, and nothing is changed in them.
    pub fn shows_rare_events(&self) -> bool {
        self.planted.is_none() && self.settings.is_empty() && self.size() >= USUAL.end - USUAL.start
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
                let before = processor_time();
                let planted = Planted(self.planted);
                let ended = if self.twice { run_twice(&plan, planted) } else { verdict(&plan, planted, Faulty::Drawn) };
                let took = processor_time().saturating_sub(before);
                let mut all = all.lock().expect("no run panics while it holds the lock");
                all.add(seed, &ended, took);
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
        let mut all = all.into_inner().expect("no run panics while it holds the lock");
        all.ran.sort_by_key(|ran| ran.seed);
        all.wall = began.elapsed();
        all.whole = all.runs == self.size();
        Ok(all)
    }
}

/// Processor time of this thread.
fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().expect("a thread's time is not negative")
}

/// The number of seeds, from the first on, after which a planted mistake was found; `None` if it was not.
pub fn found_within(mutant: Mutant, seeds: Range<u64>) -> Option<(u64, Failure)> {
    let ensemble = Ensemble { planted: Some(mutant), stop_at_first: true, ..Ensemble::of(seeds.clone()) };
    let explored = ensemble.explore(&|_, _| {}).expect("nothing is changed");
    let (seed, failure) = explored.failures.into_iter().next()?;
    Some((seed - seeds.start + 1, failure))
}
