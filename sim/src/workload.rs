//! What is run: workflow definitions and inputs, drawn from the seed.

use crate::rng::{Dice, Ratio, Stream};
use orbit_core::api::request::Contract;
use orbit_core::execution::event::{Json, Labels};
use serde_json::{Map, Value, json};
use std::sync::Arc;

/// Names of tasks, of which each has two contract versions.
const TASKS: [&str; 3] = ["sim.a", "sim.b", "sim.c"];

/// The definitions of `seed`, as documents.
pub fn definitions(seed: u64, count: u32) -> Vec<Value> {
    let mut dice = Dice::new(seed, Stream::Workload);
    (0..count).map(|number| definition(&mut dice, number)).collect()
}

/// Every contract that a definition may name.
pub fn contracts() -> Vec<Contract> {
    let of = |task: &&str, version: &str| Contract { task_name: (*task).into(), contract_version: version.into() };
    TASKS.iter().flat_map(|task| [of(task, "1"), of(task, "2")]).collect()
}

/// An input for any of the definitions.
pub fn input(dice: &mut Dice) -> Json {
    let (n, flag, pause) = (dice.below(10), dice.chance(Ratio::new(1, 2)), dice.below(1_500));
    Arc::new(json!({"n": n, "flag": flag, "pause": pause}))
}

/// An input that lacks something, which those with a schema refuse.
pub fn bad_input(dice: &mut Dice) -> Json {
    Arc::new(json!({"n": dice.below(10), "pause": 10}))
}

/// Labels for some starts.
pub fn labels(dice: &mut Dice) -> Labels {
    let some = dice.chance(Ratio::new(1, 4));
    some.then(|| ("tenant".to_owned(), dice.pick(&["a", "b"]).to_string())).into_iter().collect()
}

fn definition(dice: &mut Dice, number: u32) -> Value {
    let count = usize::try_from(dice.between([1, 6])).expect("small");
    let mut steps: Vec<Value> = Vec::new();
    // For each step those that have certainly ended before it begins.
    let mut before: Vec<Vec<usize>> = Vec::new();
    for index in 0..count {
        let (step, mine) = step(dice, index, &before);
        steps.push(step);
        before.push(mine);
    }
    let mut document = Map::new();
    document.insert("name".into(), json!(format!("Sim{number}")));
    document.insert("version".into(), json!("1.0.0"));
    if dice.chance(Ratio::new(1, 2)) {
        let properties = json!({"n": {"type": "number"}, "flag": {"type": "boolean"}});
        let schema = json!({"type": "object", "required": ["n", "flag", "pause"], "properties": properties});
        document.insert("input".into(), schema);
    }
    if dice.chance(Ratio::new(1, 3)) {
        // What a skipped or sleeping last step gives does not match.
        let last = json!({"type": "object", "required": ["v"]});
        document.insert("output".into(), json!({"type": "object", "properties": {"last": last}}));
    }
    document.insert("steps".into(), Value::Array(steps));
    if dice.chance(Ratio::new(3, 4)) {
        let last = count - 1;
        document.insert("result".into(), json!({"n": "${ input.n }", "last": format!("${{ steps.s{last}.output }}")}));
    }
    Value::Object(document)
}

/// A step, and the steps that have certainly ended before it begins.
fn step(dice: &mut Dice, index: usize, before: &[Vec<usize>]) -> (Value, Vec<usize>) {
    let mut step = Map::new();
    step.insert("id".into(), json!(format!("s{index}")));
    let direct: Vec<usize> = match dice.below(4) {
        // As written: after the step before it.
        0 | 1 => index.checked_sub(1).into_iter().collect(),
        2 => {
            step.insert("after".into(), json!([]));
            Vec::new()
        }
        _ => {
            let some: Vec<usize> = (0..index).filter(|_| dice.chance(Ratio::new(1, 2))).collect();
            step.insert("after".into(), some.iter().map(|s| json!(format!("s{s}"))).collect());
            some
        }
    };
    let mut ended: Vec<usize> = direct.iter().flat_map(|d| before[*d].iter().copied().chain([*d])).collect();
    ended.sort_unstable();
    ended.dedup();
    if dice.chance(Ratio::new(1, 5)) {
        step.insert("when".into(), json!(*dice.pick(&["${ input.n > 4 }", "${ input.flag }", "${ not input.flag }"])));
    }
    match dice.below(10) {
        0..=5 => task(dice, &mut step, &ended),
        6 | 7 => {
            let value = json!({"v": "${ input.n * 2 }", "of": earlier(dice, &ended)});
            step.insert("compute".into(), value);
        }
        _ => {
            let sleep = *dice.pick(&["50ms", "300ms", "1s", "4s", "${ input.pause }"]);
            step.insert("sleep".into(), json!(sleep));
        }
    }
    (Value::Object(step), ended)
}

fn task(dice: &mut Dice, step: &mut Map<String, Value>, ended: &[usize]) {
    step.insert("task".into(), json!(*dice.pick(&TASKS)));
    if dice.chance(Ratio::new(1, 4)) {
        step.insert("contract_version".into(), json!("2"));
    }
    step.insert("input".into(), json!({"n": "${ input.n }", "earlier": earlier(dice, ended)}));
    if dice.chance(Ratio::new(2, 3)) {
        let attempts = dice.between([2, 4]);
        let jitter = *dice.pick(&["full", "none"]);
        let initial = *dice.pick(&["20ms", "200ms", "1s"]);
        let retry = json!({
            "max_attempts": attempts, "initial": initial, "factor": 2, "max": "2s", "jitter": jitter,
            "non_retryable": ["DECLINED"],
        });
        step.insert("retry".into(), retry);
    }
    if dice.chance(Ratio::new(1, 4)) {
        step.insert("timeout".into(), json!(*dice.pick(&["400ms", "2s", "5s"])));
    }
    if dice.chance(Ratio::new(1, 4)) {
        step.insert("queue_timeout".into(), json!(*dice.pick(&["300ms", "3s", "20s"])));
    }
}

/// Something of a step that has ended, or null.
fn earlier(dice: &mut Dice, ended: &[usize]) -> Value {
    if ended.is_empty() {
        return Value::Null;
    }
    let step = *dice.pick(ended);
    // A skipped step has no `v`: that start fails with EXPRESSION_ERROR, which must be handled as well.
    match dice.below(12) {
        0 => json!(format!("${{ steps.s{step}.output.v }}")),
        _ => json!(format!("${{ steps.s{step}.output }}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orbit_core::definition::Definition;

    #[test]
    fn every_drawn_definition_is_right() {
        for seed in 0..300 {
            for document in definitions(seed, 3) {
                if let Err(problems) = Definition::from_document(&document) {
                    panic!("seed {seed}: {problems:?}\n{document:#}");
                }
            }
        }
    }
}
