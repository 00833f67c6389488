//! The first line of a trace: what it is a trace of, so that a file alone says how to run it again.
//!
//! A trace is a file of JSON lines. The first one is a [`Header`]; each of the others is one thing that happened: `at_us`
//! (microseconds of true time since the world began), `what` (its kind) and `data` (what there is to say of it). Kinds and
//! their data follow the protocols, and may change with any commit; the form of the file has a version of its own,
//! [`FORMAT`]. The header is no part of the trace's hash: the same seed gives the same lines, whatever build they are of.

use crate::fault::Strike;
use crate::mutant::{self, Planted};
use crate::plan::Plan;
use orbit_core::mutant::Mutant;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::BufRead;
use std::process::Command;

/// What the header of this version says.
pub const FORMAT: &str = "orbit-trace/1";

const FAMILY: &str = "orbit-trace/";
const VERSION: u32 = 1;

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`FORMAT`].
    pub format: String,
    /// The simulator that wrote it ([`build`]).
    pub build: String,
    pub seed: u64,
    /// The planted mistake, if any.
    pub mutant: Option<String>,
    /// The faults ([`Strike`]), where they were a scenario's; none where the seed drew them.
    pub faults: Option<Value>,
    /// The [`Plan`], as the build that wrote it has them.
    pub plan: Value,
}

/// Why a file is no trace that can be read here.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    #[error("it cannot be read: {0}")]
    Io(#[from] std::io::Error),
    #[error("it is no trace: its first line is no header with a `format` such as {FORMAT:?} ({0})")]
    NoHeader(String),
    #[error("it is of the format {0:?}, and this build reads {FORMAT:?}: take the build that wrote it, or a newer one")]
    Later(String),
    #[error("its header says {FORMAT:?}, and is not as that format has it: {0}")]
    Malformed(serde_json::Error),
}

impl Header {
    /// The header of a run; `faults` where they come from a scenario.
    pub fn new(plan: &Plan, planted: Planted, faults: Option<&[Strike]>) -> Header {
        Header {
            format: FORMAT.into(),
            build: build(),
            seed: plan.seed,
            mutant: planted.0.map(mutant::name),
            faults: faults.map(|faults| json!(faults)),
            plan: json!(plan),
        }
    }

    /// Reads the first line of a trace.
    pub fn parse(line: &str) -> Result<Header, TraceError> {
        #[derive(Deserialize)]
        struct Format {
            format: String,
        }
        let Format { format } = serde_json::from_str(line).map_err(|e| TraceError::NoHeader(e.to_string()))?;
        let version = format.strip_prefix(FAMILY).and_then(|version| version.parse::<u32>().ok());
        match version {
            None => Err(TraceError::NoHeader(format!("it says {format:?}"))),
            Some(version) if version > VERSION => Err(TraceError::Later(format)),
            Some(_) => serde_json::from_str(line).map_err(TraceError::Malformed),
        }
    }

    /// Reads the header of a trace, and leaves the reader at the line behind it.
    pub fn read(trace: &mut impl BufRead) -> Result<Header, TraceError> {
        let mut line = String::new();
        trace.read_line(&mut line)?;
        Header::parse(&line)
    }

    /// As the first line of a file, with the line's end.
    pub fn line(&self) -> String {
        format!("{}\n", serde_json::to_string(self).expect("a header is plain data"))
    }

    /// The planted mistake.
    pub fn planted(&self) -> Result<Planted, String> {
        let mutant: Option<Mutant> = self.mutant.as_deref().map(mutant::parse).transpose()?;
        Ok(Planted(mutant))
    }
}

/// The version of this build, with the commit where it is known: `ORBIT_COMMIT` at the time of the build, else that of the
/// checkout that it was built in.
pub fn build() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("ORBIT_COMMIT").map(str::to_owned).or_else(commit) {
        Some(commit) => format!("{version} ({commit})"),
        None => version.to_owned(),
    }
}

/// The commit of the checkout, and whether something in it is changed.
fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.arg("-C").arg(env!("CARGO_MANIFEST_DIR")).args([
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]);
    let output = git.output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header = Header::new(&Plan::draw(7), Planted(Some(Mutant::FenceMissing)), None);
        assert_eq!(Header::parse(&header.line()).expect("a header"), header);
        assert_eq!((header.seed, header.mutant.as_deref()), (7, Some("fence-missing")));
    }

    #[test]
    fn a_trace_of_a_later_version_is_refused_with_what_would_be_right() {
        let later = r#"{"format":"orbit-trace/2","lanes":[]}"#;
        let refused = Header::parse(later).expect_err("it is later").to_string();
        assert!(refused.contains("orbit-trace/2") && refused.contains("newer"), "{refused}");
    }

    #[test]
    fn what_is_no_trace_is_told_apart_from_a_later_one() {
        for other in ["", "{}", r#"{"at_us":0,"what":"input","data":[]}"#, r#"{"format":"orbit-scenario/1"}"#] {
            let refused = Header::parse(other).expect_err("it is no trace").to_string();
            assert!(refused.contains("no trace"), "{other}: {refused}");
        }
        assert!(matches!(Header::parse(r#"{"format":"orbit-trace/1"}"#), Err(TraceError::Malformed(_))));
    }
}
