//! What a workflow takes in while it runs, and what it does beside its steps.

use super::family::Callees;
use super::steps::{Shape, Steps};
use crate::rng::{Dice, Ratio};
use serde_json::{Map, Value, json};

/// See the module's documentation.
#[derive(Default)]
pub(super) struct Outside {
    /// Awaited by steps.
    awaited: Vec<&'static str>,
    /// Taken by handlers.
    handled: Vec<&'static str>,
    signals: Map<String, Value>,
    updates: Map<String, Value>,
}

/// Whether the first steps are there, at the least.
const FIRST: &str = "${ steps.s0.output }";

impl Outside {
    /// What this workflow takes in: nothing, for some.
    pub fn draw(dice: &mut Dice) -> Outside {
        let mut outside = Outside::default();
        if dice.chance(Ratio::new(1, 6)) {
            return outside;
        }
        let schema = json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "number"}}});
        outside.awaited.push("go");
        outside.signals.insert("go".into(), json!({}));
        if dice.chance(Ratio::new(1, 2)) {
            outside.awaited.push("paid");
            outside.signals.insert("paid".into(), json!({"payload": schema, "description": "by somebody"}));
        }
        if dice.chance(Ratio::new(1, 2)) {
            outside.handled.push("note");
            outside.signals.insert("note".into(), json!({}));
        }
        for (name, handled) in [("change", false), ("raise", true)] {
            if dice.chance(Ratio::new(1, 2)) {
                let names = if handled { &mut outside.handled } else { &mut outside.awaited };
                names.push(name);
                outside.updates.insert(name.into(), update(dice, &schema));
            }
        }
        outside
    }

    /// What steps can wait for.
    pub fn awaited(&self) -> &[&'static str] {
        &self.awaited
    }

    /// Writes it into a definition of so many steps, with handlers, queries and a time-out for some.
    pub fn write(self, dice: &mut Dice, steps: usize, document: &mut Map<String, Value>) {
        let times_out = dice.chance(Ratio::new(1, 4));
        if times_out {
            document.insert("timeout".into(), json!(*dice.pick(&["2s", "6s", "20s"])));
        }
        if dice.chance(Ratio::new(1, 3)) {
            let last = format!("${{ steps.s{}.output }}", steps - 1);
            document.insert(
                "queries".into(),
                json!({"progress": {"first": FIRST, "last": last}, "double": "${ steps.s0.output.v * 2 }"}),
            );
        }
        let mut on = Map::new();
        let failure: &[&str] = &["${ failure.code }", "${ failure.reason }", FIRST];
        let ends = [("failure", "f", 3), ("cancel", "c", 3), ("timeout", "t", if times_out { 1 } else { 10 })];
        for (name, prefix, one_in) in ends {
            if dice.chance(Ratio::new(1, one_in)) {
                on.insert(name.into(), handler(dice, prefix, failure));
            }
        }
        let event: Map<String, Value> = self
            .handled
            .iter()
            .map(|name| ((*name).to_owned(), handler(dice, &format!("{name}_"), &["${ event }", FIRST])))
            .collect();
        if !event.is_empty() {
            on.insert("event".into(), Value::Object(event));
        }
        for (name, map) in [("on", on), ("signals", self.signals), ("updates", self.updates)] {
            if !map.is_empty() {
                document.insert(name.into(), Value::Object(map));
            }
        }
    }
}

fn handler(dice: &mut Dice, prefix: &str, sees: &[&'static str]) -> Value {
    let count = usize::try_from(dice.between([1, 3])).expect("small");
    Value::Array(
        Steps { prefix, shape: Shape::Handler, awaited: &[], sees, calls: &Callees::default() }.draw(dice, count),
    )
}

/// Every update takes what has an `n` of 9.
fn update(dice: &mut Dice, schema: &Value) -> Value {
    let mut update = Map::new();
    if dice.chance(Ratio::new(1, 2)) {
        update.insert("payload".into(), schema.clone());
    }
    if dice.chance(Ratio::new(2, 3)) {
        let when = *dice.pick(&["${ event.n > 4 }", "${ event.n > 8 or input.flag }", "${ event.n != 3 }"]);
        update.insert("when".into(), json!(when));
    }
    if dice.chance(Ratio::new(3, 4)) {
        update.insert("result".into(), json!({"first": FIRST, "mark": "${ event.mark }"}));
    }
    Value::Object(update)
}
