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
    fn all(self) -> [(&'static str, bool); 7] {
        [
            ("block", self.blocked),
            ("deadlock", self.deadlock),
            ("re-check on a newer version", self.recheck),
            ("row left out by SKIP LOCKED", self.skip),
            ("unique wait", self.unique_wait),
            ("time-out", self.time_out),
            ("death of a session", self.death),
        ]
    }
}

/// See the module's documentation.
pub struct Histogram {
    interleavings: u64,
    hits: [u64; 7],
    differences: Vec<String>,
    begun: Instant,
}

/// `CONFORMANCE=a..b`: the seeds to run instead of the usual ones.
pub fn seeds() -> Option<Range<u64>> {
    variable("CONFORMANCE").map(|text| {
        let bounds = text.split_once("..").and_then(|(a, b)| Some(a.trim().parse().ok()?..b.trim().parse().ok()?));
        bounds.unwrap_or_else(|| panic!("CONFORMANCE is written as 0..20000, not {text:?}"))
    })
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

impl Histogram {
    /// Runs these seeds, on as many databases at once as `CONFORMANCE_JOBS` says; each makes its own way to run one.
    pub fn of<F>(seeds: Range<u64>, run: impl Fn() -> F + Sync) -> Histogram
    where
        F: FnMut(u64) -> (Result<(), String>, Hits),
    {
        let jobs = variable("CONFORMANCE_JOBS").map_or(4, |n| n.parse().expect("a number of databases"));
        let next = AtomicU64::new(seeds.start);
        let empty = Histogram { interleavings: 0, hits: [0; 7], differences: Vec::new(), begun: Instant::now() };
        let all = Mutex::new(empty);
        let work = || {
            let mut run = run();
            loop {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= seeds.end {
                    return;
                }
                let (same, hits) = run(seed);
                all.lock().expect("nobody panics with it").add(seed, same, hits);
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(work);
            }
        });
        all.into_inner().expect("nobody panics with it")
    }

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
                self.differences.push(format!("CONFORMANCE={seed}..{}: {difference}", seed + 1));
            }
        }
        if self.interleavings.is_multiple_of(1_000) {
            println!("{self}");
        }
    }

    /// Prints it, and panics unless there is no difference, three in ten block, and everything else was hit often enough:
    /// by one in a hundred, as 200 are of 20,000.
    pub fn hold_to(&self, what: &str) {
        println!("{what}\n{self}");
        let shown: Vec<&str> = self.differences.iter().take(3).map(String::as_str).collect();
        assert!(shown.is_empty(), "{} differences:\n{}", self.differences.len(), shown.join("\n"));
        // Of a handful of seeds nothing more can be asked.
        if self.interleavings >= 200 {
            assert!(self.hits[0] * 10 >= self.interleavings * 3, "at least three in ten block:\n{self}");
            for ((name, _), count) in Hits::default().all().into_iter().zip(self.hits) {
                assert!(count * 100 >= self.interleavings, "too few came to this: {name}\n{self}");
            }
        }
    }
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.begun.elapsed().as_secs();
        writeln!(f, "{:>9}  interleavings in {seconds} s", self.interleavings)?;
        for ((name, _), count) in Hits::default().all().into_iter().zip(self.hits) {
            let percent = count as f64 * 100.0 / self.interleavings.max(1) as f64;
            writeln!(f, "{count:>9}  {name} ({percent:.1} %)")?;
        }
        writeln!(f, "{:>9}  differences", self.differences.len())
    }
}
