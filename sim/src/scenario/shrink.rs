//! Makes a failing scenario small: fewer faults, clients, workers, servers and starts, shorter faults and a shorter run, while
//! the same check finds the same kind of failure. Delta debugging (Zeller, "Simplifying and Isolating Failure-Inducing
//! Input", 2002) over the faults, then one change of the plan after the other, as long as anything helps.

use super::{Expected, Scenario};
use crate::plan::Plan;
use crate::rng::Ratio;
use serde_json::Value;
use std::time::{Duration, Instant};

/// What a shrinking tells on its way.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    pub runs: u64,
    pub faults: usize,
}

/// What a shrinking gave.
#[derive(Clone, Debug)]
pub struct Shrunk {
    pub scenario: Scenario,
    pub runs: u64,
    /// Whether the time was over before nothing helped any more.
    pub unfinished: bool,
}

struct Shrinker<'a> {
    best: Scenario,
    fails: Expected,
    runs: u64,
    until: Instant,
    progress: &'a dyn Fn(Progress),
}

/// Shrinks a scenario that fails, within a wall-clock time. `None`: it does not fail as it says.
pub fn shrink(scenario: &Scenario, budget: Duration, progress: &dyn Fn(Progress)) -> Option<Shrunk> {
    let fails = scenario.fails.clone()?;
    let mut shrinker = Shrinker { best: scenario.clone(), fails, runs: 0, until: Instant::now() + budget, progress };
    if !shrinker.try_this(scenario.clone()) {
        return None;
    }
    loop {
        let before = shrinker.best.clone();
        shrinker.fewer_faults();
        shrinker.smaller_plan();
        shrinker.shorter_faults();
        if shrinker.best == before || shrinker.late() {
            break;
        }
    }
    let unfinished = shrinker.late();
    let ended = shrinker.best.verdict();
    shrinker.best.about = ended.failure.map(|failure| failure.to_string()).unwrap_or_default();
    Some(Shrunk { scenario: shrinker.best, runs: shrinker.runs, unfinished })
}

impl Shrinker<'_> {
    fn late(&self) -> bool {
        Instant::now() >= self.until
    }

    /// Keeps a scenario that fails in the same way.
    fn try_this(&mut self, scenario: Scenario) -> bool {
        if self.late() {
            return false;
        }
        self.runs += 1;
        let same = self.fails.is(scenario.verdict().failure.as_ref());
        if same {
            self.best = scenario;
        }
        (self.progress)(Progress { runs: self.runs, faults: self.best.faults.len() });
        same
    }

    fn try_faults(&mut self, keep: impl Fn(usize) -> bool) -> bool {
        let faults = self.best.faults.iter().enumerate().filter(|(index, _)| keep(*index)).map(|(_, f)| f.clone());
        let faults: Vec<_> = faults.collect();
        faults.len() < self.best.faults.len() && self.try_this(Scenario { faults, ..self.best.clone() })
    }

    /// Leaves out halves of the faults, then quarters, and so on down to each of them.
    fn fewer_faults(&mut self) {
        if self.try_faults(|_| false) {
            return;
        }
        let mut chunk = self.best.faults.len().div_ceil(2);
        while chunk > 0 && !self.late() {
            let mut at = 0;
            let mut helped = false;
            while at < self.best.faults.len() {
                let out = at..at + chunk;
                if self.try_faults(|index| !out.contains(&index)) {
                    helped = true;
                } else {
                    at += chunk;
                }
            }
            chunk = match (chunk, helped) {
                (1, true) => 1,
                (1, false) => 0,
                _ => chunk.div_ceil(2),
            };
        }
    }

    fn try_plan(&mut self, change: impl FnOnce(&mut Plan)) -> bool {
        let mut plan = self.best.plan.clone();
        change(&mut plan);
        plan != self.best.plan && self.try_this(Scenario { plan, ..self.best.clone() })
    }

    /// Fewer of everything, and nothing that is not needed.
    fn smaller_plan(&mut self) {
        self.try_plan(|plan| plan.least_commits = 0);
        self.try_plan(|plan| plan.least_ms = 0);
        self.try_plan(|plan| plan.clients = 1);
        self.try_plan(|plan| plan.workers = 1);
        self.try_plan(|plan| plan.starts = 1);
        self.try_plan(|plan| plan.workflows = 1);
        if self.best.plan.cluster.as_ref().is_some_and(|cluster| cluster.servers > 2) {
            self.try_plan(|plan| plan.cluster.as_mut().expect("there is one").servers = 2);
        }
        let halves =
            |value: u32| (1..32).map(move |by| value.checked_shr(by).unwrap_or(0)).take_while(|half| *half > 0);
        for half in halves(self.best.plan.starts).collect::<Vec<_>>().into_iter().rev() {
            if self.try_plan(|plan| plan.starts = half) {
                break;
            }
        }
        for shorter in [1_000, 2_000, 4_000, 8_000, 16_000] {
            if shorter < self.best.plan.chaos_ms && self.try_plan(|plan| plan.chaos_ms = shorter) {
                break;
            }
        }
        for path in chances(&self.best.plan) {
            if let Ok(plan) = self.best.plan.set(&path, "0") {
                self.try_plan(|old| *old = plan);
            }
        }
    }

    /// Faults that last for half as long, and half of that.
    fn shorter_faults(&mut self) {
        for index in 0..self.best.faults.len() {
            while self.best.faults[index].for_ms > 100 {
                let mut faults = self.best.faults.clone();
                faults[index].for_ms /= 2;
                if !self.try_this(Scenario { faults, ..self.best.clone() }) {
                    break;
                }
            }
        }
    }
}

/// The paths of all chances of a plan that are not never.
fn chances(plan: &Plan) -> Vec<String> {
    fn walk(value: &Value, path: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (key, value) in members {
                    let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                    walk(value, &path, found);
                }
            }
            Value::String(text) if text.parse::<Ratio>().is_ok_and(|ratio| !ratio.is_never()) => {
                found.push(path.to_owned());
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(&serde_json::to_value(plan).expect("a plan is plain data"), "", &mut found);
    found
}
