//! What happened in a run, line by line, and how often each rare thing did.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

/// Cheap to clone: one trace.
#[derive(Clone, Default)]
pub struct Trace(Arc<Mutex<Lines>>);

#[derive(Default)]
struct Lines {
    lines: Vec<String>,
    marks: BTreeMap<Mark, u64>,
    wrong: Option<String>,
}

/// What must have happened for a run of many seeds to mean something: each of the situations that this layer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mark {
    /// A connection that a leader had answered on was told on the same connection that another one leads now.
    KeptToOldLeader,
    /// A body of which half came was answered with REQUEST_TIMEOUT.
    HalfBody,
    /// Who asked went away in the middle of a body, or of an answer.
    HalfAnswer,
    /// Who took nothing of an answer was cut off.
    SlowReader,
    /// A worker or client came back on a new connection after its server had gone.
    Reconnected,
    /// A poll waited for longer than its session lived.
    PollOutlived,
    /// Another server leads.
    LeaderChanged,
    /// Its answer brought tasks, which were others' by then.
    BroughtLate,
}

impl Mark {
    pub const ALL: [Mark; 8] = [
        Mark::KeptToOldLeader,
        Mark::HalfBody,
        Mark::HalfAnswer,
        Mark::SlowReader,
        Mark::Reconnected,
        Mark::PollOutlived,
        Mark::LeaderChanged,
        Mark::BroughtLate,
    ];
}

impl Trace {
    /// Writes down what happens now; within a host of the network.
    pub fn record(&self, what: impl Into<String>) {
        let now = turmoil::sim_elapsed().expect("within the simulation");
        self.record_at(u64::try_from(now.as_micros()).expect("minutes"), what);
    }

    pub fn record_at(&self, now_us: u64, what: impl Into<String>) {
        let line = format!("{:>9}.{:03} {}", now_us / 1_000, now_us % 1_000, what.into());
        self.lock().lines.push(line);
    }

    pub fn hit(&self, mark: Mark) {
        *self.lock().marks.entry(mark).or_default() += 1;
    }

    /// Something is wrong; the first one is kept, and ends the run.
    pub fn wrong(&self, what: impl Into<String>) {
        self.lock().wrong.get_or_insert(what.into());
    }

    pub fn first_wrong(&self) -> Option<String> {
        self.lock().wrong.clone()
    }

    pub fn marks(&self) -> BTreeMap<Mark, u64> {
        self.lock().marks.clone()
    }

    pub fn count(&self, mark: Mark) -> u64 {
        self.lock().marks.get(&mark).copied().unwrap_or(0)
    }

    pub fn lines(&self) -> Vec<String> {
        self.lock().lines.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Lines> {
        self.0.lock().expect("nothing panics while it holds this lock")
    }
}
