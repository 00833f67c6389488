//! What is run: workflow definitions and inputs, drawn from the seed.
//!
//! * `steps`: lists of steps, those of workflows and of handlers. `family`: steps that run other workflows. `outside`:
//!   what a workflow takes in and how it handles it. `loops`: what goes on in a run of its own. [`census`]: which
//!   constructs a definition has.

pub mod census;
mod family;
mod loops;
mod outside;
mod steps;

use crate::rng::{Dice, Ratio, Stream};
use family::Callees;
use loops::Loop;
use orbit_core::api::request::Contract;
use orbit_core::execution::event::{Json, Labels};
use outside::Outside;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use steps::{Shape, Steps};

/// Names of tasks, of which each has two contract versions.
const TASKS: [&str; 3] = ["sim.a", "sim.b", "sim.c"];

/// The definitions of `seed`, as documents.
pub fn definitions(seed: u64, count: u32) -> Vec<Value> {
    let (mut dice, mut loops) = (Dice::new(seed, Stream::Workload), Dice::new(seed, Stream::Loops));
    (0..count).map(|number| definition(&mut dice, &mut loops, number, count)).collect()
}

/// What the definition of this number is called.
fn name(number: u32) -> String {
    format!("Sim{number}")
}

/// Every contract that a definition may name.
pub fn contracts() -> Vec<Contract> {
    let of = |task: &&str, version: &str| Contract { task_name: (*task).into(), contract_version: version.into() };
    TASKS.iter().flat_map(|task| [of(task, "1"), of(task, "2")]).collect()
}

/// An input for any of the definitions.
pub fn input(dice: &mut Dice) -> Json {
    // A pause of no time at all would be over in the very decision that begins it.
    let (n, flag, pause) = (dice.below(10), dice.chance(Ratio::new(1, 2)), dice.between([1, 1_500]));
    let items = dice.weighted(&[1, 2, 3, 3, 2, 2, 1]);
    let list: Vec<u64> = (0..items).map(|_| dice.below(10)).collect();
    Arc::new(json!({"n": n, "flag": flag, "pause": pause, "list": list}))
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

/// A payload that every schema and every update of the definitions takes, marked so that it is like no other.
pub fn good_payload(mark: u64) -> Value {
    json!({"n": 9, "mark": mark})
}

/// A payload that some schemas and updates do not take.
pub fn any_payload(dice: &mut Dice, mark: u64) -> Value {
    match dice.below(8) {
        0 => json!(format!("mark {mark}")),
        1 => json!({"mark": mark}),
        _ => json!({"n": dice.below(10), "mark": mark}),
    }
}

fn definition(dice: &mut Dice, loops: &mut Dice, number: u32, of: u32) -> Value {
    let again = Loop::draw(loops);
    // Some are small, of steps alone.
    let small = dice.chance(Ratio::new(1, 5));
    let outside = if small { Outside::default() } else { Outside::draw(dice) };
    let count = usize::try_from(dice.between(if small { [1, 6] } else { [6, 14] })).expect("small");
    let short = again.as_ref().is_some_and(|again| again.short);
    let count = if short { count.div_ceil(4) } else { count };
    let shape = if small { Shape::Small } else { Shape::Workflow };
    let calls = &Callees::of(number, of);
    let mut steps = Steps { prefix: "s", shape, awaited: outside.awaited(), sees: &[], calls }.draw(dice, count);
    if let Some(again) = again {
        again.put(loops, &mut steps);
    }
    let mut document = Map::new();
    document.insert("name".into(), json!(name(number)));
    document.insert("version".into(), json!("1.0.0"));
    if dice.chance(Ratio::new(1, 2)) {
        let properties = json!({"n": {"type": "number"}, "flag": {"type": "boolean"}});
        let schema = json!({"type": "object", "required": ["n", "flag", "pause"], "properties": properties});
        document.insert("input".into(), schema);
    }
    if dice.chance(Ratio::new(1, 5)) {
        // What a skipped or sleeping last step gives does not match.
        let last = json!({"type": "object", "required": ["v"]});
        document.insert("output".into(), json!({"type": "object", "properties": {"last": last}}));
    }
    document.insert("steps".into(), Value::Array(steps));
    if dice.chance(Ratio::new(3, 4)) {
        let last = count - 1;
        document.insert("result".into(), json!({"n": "${ input.n }", "last": format!("${{ steps.s{last}.output }}")}));
    }
    if !small {
        outside.write(dice, count, &mut document);
    }
    Value::Object(document)
}

#[cfg(test)]
mod tests {
    use super::census::Census;
    use super::*;
    use crate::schema::SmallSchema;
    use orbit_core::definition::Definition;

    fn drawn(seeds: u64) -> impl Iterator<Item = Definition> {
        let all = (0..seeds).flat_map(|seed| definitions(seed, 4).into_iter().map(move |document| (seed, document)));
        all.map(|(seed, document)| {
            Definition::check(&document, &SmallSchema)
                .definition
                .unwrap_or_else(|problems| panic!("seed {seed}: {problems:?}\n{document:#}"))
        })
    }

    #[test]
    fn every_drawn_definition_is_right() {
        assert_eq!(drawn(300).count(), 1_200);
    }

    #[test]
    fn each_construct_stands_in_five_percent_of_the_definitions_or_more_and_half_of_them_have_eight_steps_or_more() {
        let all: Vec<Definition> = drawn(500).collect();
        let mut census = Census::default();
        // One after the other: several seeds may draw the same.
        all.iter().for_each(|definition| census.add_workflows([definition].into_iter()));
        println!("{census}");
        assert_eq!(census.workflows, 2_000);
        assert!(census.rare().is_empty(), "{:?} stand in fewer than 5 %", census.rare());
        assert!(census.median_of_steps() >= 8, "the median is {}", census.median_of_steps());
    }
}
