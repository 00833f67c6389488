//! What is kept of a failure for somebody who looks at it later: the trace, the scenario, and the line that reproduces it.

use super::reproduce;
use crate::mutant::Planted;
use crate::report::Failure;
use crate::run::{Ensemble, run};
use crate::scenario::Scenario;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

/// Of so many failures at most the traces are kept: the first ones.
pub const AT_MOST: usize = 10;

/// The files of one failure.
#[derive(Clone, Debug)]
pub struct Kept {
    pub seed: u64,
    pub trace: PathBuf,
    pub scenario: PathBuf,
    /// The failure, and the line that reproduces it.
    pub note: PathBuf,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace, scenario) = (self.trace.display(), self.scenario.display());
        write!(f, "trace {trace}; faults {scenario} (smaller: cargo run -rp sim -- shrink {scenario})")
    }
}

/// Runs the first failures again, and writes what is kept of them into a folder, which is made.
pub fn keep(dir: &Path, ensemble: &Ensemble, failures: &[(u64, Failure)]) -> io::Result<Vec<Kept>> {
    fs::create_dir_all(dir)?;
    let mut all = Vec::new();
    for (seed, failure) in failures.iter().take(AT_MOST) {
        let plan = ensemble.plan(*seed).map_err(io::Error::other)?;
        let planted = Planted(ensemble.planted);
        let name = |ending: &str| dir.join(format!("seed-{seed}.{ending}"));
        let kept = Kept { seed: *seed, trace: name("jsonl"), scenario: name("json"), note: name("txt") };
        run(&plan, planted, Some(Box::new(BufWriter::new(File::create(&kept.trace)?))));
        fs::write(&kept.scenario, Scenario::of_run(&plan, planted).0.text())?;
        fs::write(&kept.note, format!("{failure}\n{}\n", reproduce(ensemble, *seed)))?;
        all.push(kept);
    }
    Ok(all)
}
