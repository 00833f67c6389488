//! Scenarios: a run that somebody can read, change and keep. A file of JSON with the plan, the mistake that is planted, if
//! any, and the faults that happen, and no others. `sim shrink` writes them, `sim replay` runs them; they may be written by
//! hand.

mod shrink;

pub use shrink::{Progress, Shrunk, shrink};

use crate::fault::{FaultKind, Strike, Struck, When};
use crate::mutant::{self, Planted};
use crate::plan::{Plan, StoreKind};
use crate::report::{Failure, FailureKind};
use crate::run::{Faulty, run_with, verdict};
use crate::world::Ended;
use orbit_core::mutant::Mutant;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::io::Write;

/// What the first member of a file says, so that another version is told apart.
pub const FORMAT: &str = "orbit-scenario/1";

/// See the module's documentation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// [`FORMAT`].
    pub format: String,
    /// What it shows, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// A planted mistake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mutant: Option<String>,
    /// The failure that it leads to; none where every check holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fails: Option<Expected>,
    /// In the order in which they happened.
    pub faults: Vec<Strike>,
    /// Everything else. What it says of how often faults happen does not count. A file may leave out what is as the seed
    /// draws it.
    pub plan: Plan,
}

/// A failure as a scenario expects it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expected {
    pub kind: FailureKind,
    /// The check that finds it.
    pub check: String,
}

impl Expected {
    /// Whether a run failed as it was expected to.
    pub fn is(&self, failure: Option<&Failure>) -> bool {
        failure.is_some_and(|failure| failure.kind == self.kind && failure.check == self.check)
    }
}

/// Why a file is no scenario.
#[derive(Debug, thiserror::Error)]
pub enum ScenarioError {
    #[error("it is no scenario: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it is of the format {0:?}, and this is for {FORMAT:?}")]
    Format(String),
    #[error("{0}")]
    Mutant(String),
    #[error("{0}")]
    Plan(String),
    #[error(
        "{} cannot strike at a moment: give it `at_us`, or take one of {}",
        .0.as_str(),
        at_a_moment().iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(", ")
    )]
    Moment(FaultKind),
    #[error("{} strikes PostgreSQL, and the plan's `store` is \"sqlite\"", .0.as_str())]
    Store(FaultKind),
    #[error("a moment's `nth` begins with 1")]
    Nth,
}

/// The faults that a scenario can have strike at a moment.
pub fn at_a_moment() -> &'static [FaultKind] {
    &[
        FaultKind::Crash,
        FaultKind::Stop,
        FaultKind::Pause,
        FaultKind::NetworkDown,
        FaultKind::ClockBack,
        FaultKind::ClockForward,
        FaultKind::SessionKilled,
        FaultKind::LinkCut,
        FaultKind::DatabaseRestart,
        FaultKind::DatabaseCrash,
        FaultKind::ReadOnly,
        FaultKind::DiskFull,
    ]
}

/// Of those, the ones that strike a server of PostgreSQL.
fn of_postgres(kind: FaultKind) -> bool {
    use FaultKind::*;
    matches!(kind, SessionKilled | LinkCut | DatabaseRestart | DatabaseCrash | ReadOnly)
}

impl Scenario {
    /// The run of a plan, with a mistake or none, as a scenario: what struck in it, and how it ended.
    pub fn of_run(plan: &Plan, planted: Planted) -> (Scenario, Ended) {
        let struck = Struck::default();
        let ended = run_with(plan, planted, None, Faulty::Drawn, &struck);
        let fails = ended.failure.as_ref().map(|f| Expected { kind: f.kind, check: f.check.clone() });
        let scenario = Scenario {
            format: FORMAT.into(),
            about: ended.failure.as_ref().map(ToString::to_string).unwrap_or_default(),
            mutant: planted.0.map(mutant::name),
            fails,
            faults: struck.take(),
            plan: plan.clone(),
        };
        (scenario, ended)
    }

    /// Reads a file's text. What its plan does not say is as the plan's seed draws it.
    pub fn parse(text: &str) -> Result<Scenario, ScenarioError> {
        let mut file: Value = serde_json::from_str(text)?;
        if let Some(other) = file.get("format").and_then(Value::as_str).filter(|format| *format != FORMAT) {
            return Err(ScenarioError::Format(other.to_owned()));
        }
        if let Some(part) = file.get_mut("plan") {
            if let Some(members) = part.as_object_mut() {
                // A scenario is as long as it says.
                members.entry("least_commits").or_insert_with(|| json!(0));
            }
            *part = json!(Plan::from_part(part).map_err(ScenarioError::Plan)?);
        }
        let scenario: Scenario = serde_json::from_value(file)?;
        scenario.planted()?;
        for strike in &scenario.faults {
            match strike.when {
                When::After { nth: 0, .. } => return Err(ScenarioError::Nth),
                When::After { .. } if !at_a_moment().contains(&strike.fault) => {
                    return Err(ScenarioError::Moment(strike.fault));
                }
                When::After { .. } if of_postgres(strike.fault) && scenario.plan.store == StoreKind::Sqlite => {
                    return Err(ScenarioError::Store(strike.fault));
                }
                _ => {}
            }
        }
        Ok(scenario)
    }

    /// As a file has it: a fault a line.
    pub fn text(&self) -> String {
        let mut head = serde_json::to_value(Scenario { faults: Vec::new(), ..self.clone() }).expect("plain data");
        let faults: Vec<String> =
            self.faults.iter().map(|f| format!("    {}", serde_json::to_string(f).expect("plain data"))).collect();
        let members = head.as_object_mut().expect("a scenario is an object");
        let mut lines = Vec::new();
        for key in ["format", "about", "mutant", "fails"] {
            if let Some(value) = members.remove(key) {
                lines.push(format!("  {key:?}: {value}"));
            }
        }
        let faults = if faults.is_empty() { "[]".into() } else { format!("[\n{}\n  ]", faults.join(",\n")) };
        lines.push(format!("  \"faults\": {faults}"));
        let plan = serde_json::to_string_pretty(&self.plan).expect("plain data").replace('\n', "\n  ");
        lines.push(format!("  \"plan\": {plan}"));
        format!("{{\n{}\n}}\n", lines.join(",\n"))
    }

    fn planted(&self) -> Result<Planted, ScenarioError> {
        let mutant: Option<Mutant> =
            self.mutant.as_deref().map(mutant::parse).transpose().map_err(ScenarioError::Mutant)?;
        Ok(Planted(mutant))
    }

    /// Runs it for the verdict alone.
    pub fn verdict(&self) -> Ended {
        let planted = self.planted().expect("it was read, or made, with a mistake that exists");
        verdict(&self.plan, planted, Faulty::Scripted(&self.faults))
    }

    /// Runs it.
    pub fn run(&self, trace: Option<Box<dyn Write>>) -> Ended {
        let planted = self.planted().expect("it was read, or made, with a mistake that exists");
        run_with(&self.plan, planted, trace, Faulty::Scripted(&self.faults), &Struck::default())
    }
}
