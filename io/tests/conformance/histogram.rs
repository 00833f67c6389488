//! Many seeds at once, and what their interleavings came to.

use std::fmt;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// What happened in one interleaving.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hits {
    /// Somebody was seen waiting for a lock.
    pub blocked: bool,
    pub deadlock: bool,
    /// A condition was looked at again on a newer version.
    pub recheck: bool,
    /// A locked row was left out by SKIP LOCKED.
    pub skip: bool,
    /// A new row waited for another of its key.
    pub unique_wait: bool,
    /// `lock_timeout` or `statement_timeout`.
    pub time_out: bool,
    /// A backend or a client was ended.
    pub death: bool,
}

impl Hits {
    const BLOCK: &str = "block";
    pub const DEADLOCK: &str = "deadlock";

    fn all(self) -> [(&'static str, bool); 7] {
        [
            (Hits::BLOCK, self.blocked),
            (Hits::DEADLOCK, self.deadlock),
            ("re-check on a newer version", self.recheck),
            ("row left out by SKIP LOCKED", self.skip),
            ("unique wait", self.unique_wait),
            ("time-out", self.time_out),
            ("death of a session", self.death),
        ]
    }
}

/// Interleavings to run.
pub struct Runs {
    /// What they are of.
    pub what: &'static str,
    /// `a..b` (half open) in this variable of the environment runs others than the usual seeds.
    pub variable: &'static str,
    pub usual: Range<u64>,
    /// So many seeds, from a multiple of it on, are best run by the same job.
    pub in_a_row: u64,
}

/// See the module's documentation.
pub struct Histogram {
    of: Runs,
    interleavings: u64,
    hits: [u64; 7],
    differences: Vec<String>,
    begun: Instant,
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

impl Runs {
    fn seeds(&self) -> Range<u64> {
        let Some(text) = variable(self.variable) else { return self.usual.clone() };
        let bounds = text.split_once("..").and_then(|(a, b)| Some(a.trim().parse().ok()?..b.trim().parse().ok()?));
        bounds.unwrap_or_else(|| panic!("{} is written as 0..20000, not {text:?}", self.variable))
    }

    /// Runs them, on as many databases at once as `CONFORMANCE_JOBS` says; each job makes its own way to run one.
    pub fn run<F>(self, run: impl Fn() -> F + Sync) -> Histogram
    where
        F: FnMut(u64) -> (Result<(), String>, Hits),
    {
        let jobs = variable("CONFORMANCE_JOBS").map_or(4, |n| n.parse().expect("a number of databases"));
        let (seeds, in_a_row) = (self.seeds(), self.in_a_row);
        let next = AtomicU64::new(seeds.start / in_a_row);
        let all =
            Histogram { of: self, interleavings: 0, hits: [0; 7], differences: Vec::new(), begun: Instant::now() };
        let all = Mutex::new(all);
        let work = || {
            let mut run = run();
            loop {
                let first = next.fetch_add(1, Ordering::Relaxed) * in_a_row;
                if first >= seeds.end {
                    return;
                }
                for seed in first.max(seeds.start)..(first + in_a_row).min(seeds.end) {
                    let (same, hits) = run(seed);
                    all.lock().expect("nobody panics with it").add(seed, same, hits);
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
}

impl Histogram {
    fn add(&mut self, seed: u64, same: Result<(), String>, hits: Hits) {
        self.interleavings += 1;
        match same {
            Ok(()) => {
                for (count, (_, hit)) in self.hits.iter_mut().zip(hits.all()) {
                    *count += u64::from(hit);
                }
            }
            Err(difference) => {
                println!("seed {seed}: {difference}");
                self.differences.push(format!("{}={seed}..{}: {difference}", self.of.variable, seed + 1));
            }
        }
        if self.interleavings.is_multiple_of(1_000) {
            println!("{self}");
        }
    }

    /// Prints it, and panics unless there is no difference, three in ten block, and everything else was hit often enough:
    /// by one in a hundred, as 200 are of 20,000. But for one thing, if it is named, which must never happen.
    pub fn hold_to(&self, never: Option<&str>) {
        println!("{self}");
        let shown: Vec<&str> = self.differences.iter().take(3).map(String::as_str).collect();
        assert!(shown.is_empty(), "{} differences:\n{}", self.differences.len(), shown.join("\n"));
        for ((name, _), count) in Hits::default().all().into_iter().zip(self.hits) {
            if never == Some(name) {
                assert_eq!(count, 0, "never: {name}\n{self}");
            } else if self.interleavings >= 90 {
                // Of a handful of seeds nothing more can be asked.
                let wanted = if name == Hits::BLOCK { 30 } else { 1 };
                assert!(count * 100 >= self.interleavings * wanted, "too few came to this: {name}\n{self}");
            }
        }
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.begun.elapsed().as_secs();
        writeln!(f, "{}\n{:>9}  interleavings in {seconds} s", self.of.what, self.interleavings)?;
        for ((name, _), count) in Hits::default().all().into_iter().zip(self.hits) {
            let percent = count as f64 * 100.0 / self.interleavings.max(1) as f64;
            writeln!(f, "{count:>9}  {name} ({percent:.1} %)")?;
        }
        writeln!(f, "{:>9}  differences", self.differences.len())
    }
}
