//! Steps that run other workflows.

use super::steps::undo;
use crate::rng::{Dice, Ratio};
use serde_json::{Map, Value, json};

/// Workflows that a definition may call: those drawn after it, so that no call comes back to where it began.
#[derive(Default)]
pub(super) struct Callees(Vec<String>);

/// A workflow that is never deployed.
const NOBODY: &str = "SimNobody";

impl Callees {
    /// What the definition of this number may call, of so many.
    pub fn of(number: u32, count: u32) -> Callees {
        Callees((number + 1..count).map(super::name).collect())
    }

    /// How often a step calls, beside the other kinds.
    pub fn weight(&self) -> u32 {
        if self.0.is_empty() { 1 } else { 5 }
    }

    /// What a step, or an item of a list, needs to run one of them with this `n`.
    pub fn call(&self, dice: &mut Dice, step: &mut Map<String, Value>, n: &str) {
        let name = match self.0.is_empty() || dice.chance(Ratio::new(1, 20)) {
            true => NOBODY.to_owned(),
            false => dice.pick(&self.0).clone(),
        };
        step.insert("workflow".into(), json!(name));
        if dice.chance(Ratio::new(1, 4)) {
            step.insert("version".into(), json!(if dice.chance(Ratio::new(1, 10)) { "9.9.9" } else { "1.0.0" }));
        }
        // Its own lists are short: what is three deep is many times as much.
        let list = dice.pick(&[json!([]), json!([n]), json!([1, n]), json!([3, 2, 1])]).clone();
        let input = match dice.below(16) {
            // Something is missing, which those with a schema refuse.
            0 => json!({"n": n, "pause": 10}),
            _ => json!({"n": n, "flag": "${ not input.flag }", "pause": "${ input.pause }", "list": list}),
        };
        step.insert("input".into(), input);
        if dice.chance(Ratio::new(1, 2)) {
            let retry = json!({
                "max_attempts": dice.between([2, 3]), "initial": *dice.pick(&["20ms", "300ms"]), "factor": 2, "max": "1s",
                "jitter": *dice.pick(&["full", "none"]), "non_retryable": ["DECLINED"],
            });
            step.insert("retry".into(), retry);
        }
        if dice.chance(Ratio::new(1, 3)) {
            step.insert("timeout".into(), json!(*dice.pick(&["400ms", "3s", "12s"])));
        }
    }

    /// A step that runs one of them.
    pub fn step(&self, dice: &mut Dice, step: &mut Map<String, Value>) {
        self.call(dice, step, "${ input.n }");
        if dice.chance(Ratio::new(1, 2)) {
            step.insert("compensate".into(), undo(dice, json!({"gave": "${ output }"})));
        }
    }
}
