//! What people see of a run: its trace, the trace's hash, and the one line that reproduces a failure.
//!
//! [`header`]: what a trace begins with. [`summary`]: what many runs gave, for machines. [`artifacts`]: what is kept of a
//! failure. [`hunt`]: how soon planted mistakes are found.

pub mod artifacts;
pub mod header;
pub mod hunt;
pub mod summary;

use crate::mutant;
use crate::run::Ensemble;
use crate::world::clock::Time;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::io::Write;

/// The trace of a run: one JSON line for each thing that happened, and a hash over all of them.
pub struct Trace {
    /// None where nobody asks: writing everything down is a good part of the work of a run.
    hash: Option<Sha256>,
    lines: u64,
    buffer: Vec<u8>,
    out: Option<Box<dyn Write>>,
}

#[derive(Serialize)]
struct Line<'a, T> {
    at_us: Time,
    what: &'a str,
    data: &'a T,
}

impl Trace {
    /// A trace that is hashed, and written where somebody wants to read it: behind its [`header`], which is written already.
    pub fn new(out: Option<Box<dyn Write>>) -> Trace {
        Trace { hash: Some(Sha256::new()), lines: 0, buffer: Vec::new(), out }
    }

    /// A trace of which nobody wants to know more than how long it is.
    pub fn counted() -> Trace {
        Trace { hash: None, lines: 0, buffer: Vec::new(), out: None }
    }

    /// Something happened.
    pub fn record<T: Serialize>(&mut self, at_us: Time, what: &str, data: &T) {
        self.lines += 1;
        let Some(hash) = &mut self.hash else { return };
        self.buffer.clear();
        serde_json::to_writer(&mut self.buffer, &Line { at_us, what, data }).expect("a line is plain data");
        self.buffer.push(b'\n');
        hash.update(&self.buffer);
        if let Some(out) = &mut self.out {
            out.write_all(&self.buffer).expect("the trace can be written");
        }
    }

    /// How many lines there are.
    pub fn lines(&self) -> u64 {
        self.lines
    }

    /// The hash of all lines so far, and the trace written to its end; empty where the lines were counted alone.
    pub fn finish(mut self) -> String {
        if let Some(out) = &mut self.out {
            out.flush().expect("the trace can be written");
        }
        let Some(hash) = self.hash else { return String::new() };
        let digest = hash.finalize();
        digest.iter().take(16).map(|b| format!("{b:02x}")).collect()
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("lines", &self.lines).finish_non_exhaustive()
    }
}

/// How a run failed: each kind has its exit code (interfaces, "Simulator").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// Something happened that must never happen.
    Safety,
    /// Something that must happen did not, within its bound.
    Liveness,
    /// The code under test panicked.
    Crash,
    /// The same seed gave two traces.
    Nondeterminism,
}

impl FailureKind {
    /// The exit code of the `sim` binary.
    pub fn exit_code(self) -> u8 {
        match self {
            FailureKind::Safety => 1,
            FailureKind::Liveness => 3,
            FailureKind::Crash => 4,
            FailureKind::Nondeterminism => 5,
        }
    }
}

/// A failed run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// The check that failed.
    pub check: String,
    pub message: String,
    pub at_us: Time,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.kind {
            FailureKind::Safety => "safety",
            FailureKind::Liveness => "liveness",
            FailureKind::Crash => "crash",
            FailureKind::Nondeterminism => "nondeterminism",
        };
        write!(f, "{kind}: {} at {} ms: {}", self.check, self.at_us.0 / 1_000, self.message)
    }
}

/// The one line that reproduces what an ensemble found with a seed.
pub fn reproduce(ensemble: &Ensemble, seed: u64) -> String {
    let mut line = format!("cargo run -rp sim -- run --seed {seed}");
    if let Some(mutant) = ensemble.planted {
        line.push_str(&format!(" --mutant {}", mutant::name(mutant)));
    }
    for (key, value) in &ensemble.settings {
        line.push_str(&format!(" --set '{key}={value}'"));
    }
    line.push_str(" --trace trace.jsonl");
    if ensemble.planted.is_none() && ensemble.settings.is_empty() {
        line = format!("SIM_SEED={seed} cargo test -p sim --test seeds    # or: {line}");
    }
    line
}
