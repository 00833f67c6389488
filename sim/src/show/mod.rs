//! A run for people: one self-contained HTML page from its trace.
//!
//! A lane for each process, time downward, messages and transactions as arrows, terms in colour, faults as bars, and the
//! violation with what the check says and what came before it.
//!
//! * `read`: the lines of a trace. `words`: words for what a line says. `teller`: from lines to a [`story`], whose lanes and
//!   items are what is drawn. [`page`]: the page.

mod page;
mod read;
pub mod story;
mod teller;
pub mod words;

pub use page::{Subject, page};
pub use read::{Line, lines};

use crate::mutant::{self, Planted};
use crate::plan::{Plan, StoreKind};
use crate::report::Failure;
use crate::run::run;
use crate::scenario::{FORMAT, Scenario};
use crate::world::Ended;
use std::cell::RefCell;
use std::io::{self, Write};
use std::rc::Rc;

/// Gets a trace into memory.
#[derive(Clone, Debug, Default)]
pub struct Tape(Rc<RefCell<Vec<u8>>>);

impl Write for Tape {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tape {
    /// What was written.
    pub fn text(&self) -> String {
        String::from_utf8(self.0.take()).expect("a trace is text")
    }
}

/// A run that was traced, and how it ended.
#[derive(Debug)]
pub struct Shown {
    pub subject: Subject,
    pub lines: Vec<Line>,
}

impl Shown {
    /// A seed, with a mistake or none.
    pub fn of_seed(plan: &Plan, planted: Planted) -> Shown {
        let tape = Tape::default();
        let ended = run(plan, planted, Some(Box::new(tape.clone())));
        let mutant = planted.0.map(mutant::name);
        Shown::of(plan, mutant, &format!("seed {}", plan.seed), &ended, &tape)
    }

    /// A scenario.
    pub fn of_scenario(scenario: &Scenario) -> Shown {
        let tape = Tape::default();
        let ended = scenario.run(Some(Box::new(tape.clone())));
        let name = format!(
            "a scenario of seed {} with {}",
            scenario.plan.seed,
            words::several(scenario.faults.len(), "fault")
        );
        Shown::of(&scenario.plan, scenario.mutant.clone(), &name, &ended, &tape)
    }

    /// A trace, or a scenario, from a file.
    pub fn of_file(name: &str, text: &str) -> Result<Shown, String> {
        let is_scenario = serde_json::from_str::<serde_json::Value>(text).is_ok_and(|v| v["format"] == FORMAT);
        if is_scenario {
            return Ok(Shown::of_scenario(&Scenario::parse(text).map_err(|e| e.to_string())?));
        }
        let lines = lines(text)?;
        if lines.is_empty() {
            return Err("there is nothing in it: it is neither a trace nor a scenario".into());
        }
        Ok(Shown { subject: Subject { title: format!("Orbit's simulator: {name}"), ..Subject::default() }, lines })
    }

    fn of(plan: &Plan, mutant: Option<String>, name: &str, ended: &Ended, tape: &Tape) -> Shown {
        let mut lines = lines(&tape.text()).expect("a trace is what is written");
        if let Some(failure) = &ended.failure {
            tell_of_crash(&mut lines, failure);
        }
        let planted = mutant.as_ref().map_or_else(String::new, |mutant| format!(", with the mistake {mutant}"));
        let mutant = mutant.map(|name| {
            let about = mutant::parse(&name).map(mutant::what).unwrap_or_default();
            (name, about)
        });
        let title = format!("Orbit's simulator: {name}{planted}");
        Shown { subject: Subject { title, facts: vec![world(plan)], mutant, from_us: 0 }, lines }
    }

    /// Leaves everything out that was over so long before the end.
    pub fn keep_last_ms(&mut self, ms: u64) {
        let end = self.lines.last().map_or(0, |line| line.at_us);
        self.subject.from_us = end.saturating_sub(1_000 * ms);
    }

    /// The page.
    pub fn page(&self) -> String {
        page(&self.subject, &self.lines)
    }
}

/// A panic says nothing in the trace.
fn tell_of_crash(lines: &mut Vec<Line>, failure: &Failure) {
    if lines.last().is_none_or(|line| line.what != "violation") {
        let at_us = lines.last().map_or(0, |line| line.at_us).max(failure.at_us.0);
        let data = serde_json::json!([failure.check, failure.message]);
        lines.push(Line { at_us, what: "violation".into(), data });
    }
}

/// The world of a plan, in a line.
fn world(plan: &Plan) -> String {
    let database = match plan.store {
        StoreKind::Postgres => "PostgreSQL",
        StoreKind::Sqlite => "SQLite",
    };
    let servers = match &plan.cluster {
        None => "one server".to_owned(),
        Some(cluster) => {
            let election = if cluster.lease_ms.is_some() { "a lease" } else { "the election lock" };
            format!("{} servers, of which {election} makes one the leader", cluster.servers)
        }
    };
    let clients = words::several(plan.clients as usize, "client");
    let workers = words::several(plan.workers as usize, "worker");
    format!("{servers}, on {database}, {clients}, {workers}")
}
