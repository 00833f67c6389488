//! Loops: workflows that continue as new, for a few runs.

use crate::rng::{Dice, Ratio};
use serde_json::{Map, Value, json};

/// See the module's documentation.
pub(super) struct Loop {
    /// A run is of a few steps, so that many runs happen within a short time.
    pub short: bool,
    step: Map<String, Value>,
    /// It stands before this many of the last steps, which are reached in the last run alone.
    from_end: usize,
}

/// What keeps it from going on for ever.
const WHILE: [&str; 6] = [
    "${ execution.run < 2 }",
    "${ execution.run < 3 }",
    "${ execution.run < 5 }",
    "${ input.n < 8 }",
    "${ input.flag and execution.run < 4 }",
    "${ execution.continue_suggested and execution.run < 5 }",
];

impl Loop {
    /// A loop, for some workflows.
    pub fn draw(dice: &mut Dice) -> Option<Loop> {
        if !dice.chance(Ratio::new(1, 5)) {
            return None;
        }
        let short = dice.chance(Ratio::new(1, 2));
        let mut step = Map::new();
        step.insert("id".into(), json!("again"));
        step.insert("when".into(), json!(*dice.pick(&WHILE)));
        let list = *dice.pick(&["${ input.list }", "${ input.list + [input.n] }", "${ [execution.run] }"]);
        let input = match dice.below(20) {
            // Less than a schema asks for.
            0 => json!({"n": "${ input.n + 3 }", "pause": 10}),
            // No number can be taken from a list.
            1 => json!({"n": "${ input.list - 1 }"}),
            _ => {
                json!({"n": "${ input.n + 3 }", "flag": "${ input.n < 4 }", "pause": "${ input.pause }", "list": list})
            }
        };
        step.insert("continue_as_new".into(), input);
        let from_end = if dice.chance(Ratio::new(1, 4)) { 1 } else { 0 };
        if from_end == 0 && dice.chance(Ratio::new(1, 4)) {
            // It is wanted from the beginning, and waits for all the others.
            step.insert("after".into(), json!([]));
        }
        Some(Loop { short, step, from_end })
    }

    /// Puts it among the steps of a workflow; the one before it may leave its output to the next run.
    pub fn put(mut self, dice: &mut Dice, steps: &mut Vec<Value>) {
        let at = steps.len() - self.from_end.min(steps.len() - 1);
        if let (false, Some(before)) = (self.step.contains_key("after"), steps[at - 1]["id"].as_str())
            && dice.chance(Ratio::new(1, 3))
        {
            self.step["continue_as_new"]["seen"] = json!(format!("${{ steps.{before}.output }}"));
        }
        steps.insert(at, Value::Object(self.step));
    }
}
