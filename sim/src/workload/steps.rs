//! Lists of steps.

use super::TASKS;
use super::family::Callees;
use crate::rng::{Dice, Ratio};
use serde_json::{Map, Value, json};

/// Where a list of steps stands, and so what it may hold.
pub(super) struct Steps<'a> {
    /// What ids begin with.
    pub prefix: &'a str,
    pub shape: Shape,
    /// Signals and updates that can be awaited.
    pub awaited: &'a [&'static str],
    /// Expressions of this place alone.
    pub sees: &'a [&'static str],
    /// Workflows that can be run as children.
    pub calls: &'a Callees,
}

/// Which kinds of step there are.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// Tasks, computations and pauses.
    Small,
    /// Everything.
    Workflow,
    /// What a handler may have.
    Handler,
}

/// A step that was drawn before.
struct Earlier {
    id: String,
    /// Those that have certainly ended before it begins.
    ended: Vec<usize>,
    gives: Gives,
}

/// What a step is to those after it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gives {
    Something,
    List,
    /// What a child gave, or children.
    OfChild,
    ListOfChildren,
}

impl Gives {
    fn is_list(self) -> bool {
        matches!(self, Gives::List | Gives::ListOfChildren)
    }

    fn is_of_children(self) -> bool {
        matches!(self, Gives::OfChild | Gives::ListOfChildren)
    }
}

/// Steps of one list that run children: three deep, they are many.
const CALLS: usize = 2;

impl Steps<'_> {
    /// So many steps.
    pub fn draw(&self, dice: &mut Dice, count: usize) -> Vec<Value> {
        let mut before: Vec<Earlier> = Vec::new();
        (0..count).map(|index| self.step(dice, index, &mut before)).collect()
    }

    fn step(&self, dice: &mut Dice, index: usize, before: &mut Vec<Earlier>) -> Value {
        let mut step = Map::new();
        let id = format!("{}{index}", self.prefix);
        step.insert("id".into(), json!(id));
        let direct: Vec<usize> = match dice.below(4) {
            // As written: after the step before it.
            0 | 1 => index.checked_sub(1).into_iter().collect(),
            2 => {
                step.insert("after".into(), json!([]));
                Vec::new()
            }
            _ => {
                let some: Vec<usize> = (0..index).filter(|_| dice.chance(Ratio::new(1, 3))).collect();
                step.insert("after".into(), some.iter().map(|s| json!(before[*s].id)).collect());
                some
            }
        };
        let mut ended: Vec<usize> = direct.iter().flat_map(|d| before[*d].ended.iter().copied().chain([*d])).collect();
        ended.sort_unstable();
        ended.dedup();
        if dice.chance(Ratio::new(1, 6)) {
            let when = *dice.pick(&["${ input.n > 4 }", "${ input.flag }", "${ not input.flag }"]);
            step.insert("when".into(), json!(when));
        }
        let gives = self.kind(dice, &mut step, before, &ended);
        before.push(Earlier { id, ended, gives });
        Value::Object(step)
    }

    /// What it does, and so what it gives.
    fn kind(&self, dice: &mut Dice, step: &mut Map<String, Value>, before: &[Earlier], ended: &[usize]) -> Gives {
        let awaits = if self.awaited.is_empty() { 0 } else { 4 };
        let calls = if may_call(before) { self.calls.weight() } else { 0 };
        let weights = match self.shape {
            Shape::Small => [6, 2, 2, 0, 0, 0],
            Shape::Workflow => [9, 3, 2, awaits, calls, 5],
            Shape::Handler => [4, 2, 1, 0, 0, 2],
        };
        match dice.weighted(&weights) {
            0 => {
                let input = json!({"n": "${ input.n }", "earlier": self.earlier(dice, before, ended)});
                task(dice, step, input);
                if self.shape == Shape::Workflow && dice.chance(Ratio::new(1, 3)) {
                    step.insert("compensate".into(), undo(dice, json!({"gave": "${ output }"})));
                }
            }
            1 => {
                let value = json!({"v": "${ input.n * 2 }", "of": self.earlier(dice, before, ended)});
                step.insert("compute".into(), value);
            }
            2 => {
                let sleep = *dice.pick(&["50ms", "300ms", "1s", "4s", "${ input.pause }"]);
                step.insert("sleep".into(), json!(sleep));
            }
            3 => self.wait(dice, step, |dice| json!({"v": null, "of": self.earlier(dice, before, ended)})),
            4 => {
                self.calls.step(dice, step);
                return Gives::OfChild;
            }
            _ => return self.each(dice, step, before, ended),
        }
        Gives::Something
    }

    /// A signal or an update; what there is where none came in time.
    fn wait(&self, dice: &mut Dice, step: &mut Map<String, Value>, otherwise: impl FnOnce(&mut Dice) -> Value) {
        step.insert("await".into(), json!(*dice.pick(self.awaited)));
        if dice.chance(Ratio::new(1, 2)) {
            step.insert("timeout".into(), json!(*dice.pick(&["300ms", "2s", "6s"])));
            if dice.chance(Ratio::new(2, 3)) {
                step.insert("otherwise".into(), otherwise(dice));
            }
        }
    }

    fn each(&self, dice: &mut Dice, step: &mut Map<String, Value>, before: &[Earlier], ended: &[usize]) -> Gives {
        let lists: Vec<&Earlier> = ended.iter().map(|e| &before[*e]).filter(|e| e.gives.is_list()).collect();
        let list = match dice.below(20) {
            // No list: the step fails with EXPRESSION_ERROR.
            0 => json!("${ input.n }"),
            1 => json!([]),
            2..=4 => json!([1, "${ input.n }", 3, 4]),
            5..=9 if !lists.is_empty() => json!(format!("${{ steps.{}.output }}", dice.pick(&lists).id)),
            _ => json!("${ input.list }"),
        };
        step.insert("for".into(), list);
        if dice.chance(Ratio::new(3, 4)) {
            step.insert("parallel".into(), json!(dice.between([1, 3])));
        }
        let mut each = Map::new();
        let awaits = if self.awaited.is_empty() { 0 } else { 2 };
        let calls = if self.shape == Shape::Workflow && may_call(before) { self.calls.weight() } else { 0 };
        let kind = dice.weighted(&[4, 2, awaits, calls]);
        match kind {
            0 => {
                let earlier = self.earlier(dice, before, ended);
                task(dice, &mut each, json!({"item": "${ item }", "at": "${ index }", "earlier": earlier}));
                if self.shape == Shape::Workflow && dice.chance(Ratio::new(1, 2)) {
                    let input = json!({"item": "${ item }", "at": "${ index }", "gave": "${ output }"});
                    step.insert("compensate".into(), undo(dice, input));
                }
            }
            1 => {
                // What is no number cannot be doubled.
                let double = dice.chance(Ratio::new(1, 6));
                let value = if double { json!("${ item * 2 }") } else { json!(["${ index }", "${ item }"]) };
                each.insert("compute".into(), value);
            }
            2 => self.wait(dice, &mut each, |_| json!({"v": "${ index }", "of": "${ item }"})),
            _ => {
                self.calls.call(dice, &mut each, "${ index }");
                if dice.chance(Ratio::new(1, 2)) {
                    let input = json!({"at": "${ index }", "gave": "${ output }"});
                    step.insert("compensate".into(), undo(dice, input));
                }
            }
        }
        step.insert("do".into(), Value::Object(each));
        if kind == 3 { Gives::ListOfChildren } else { Gives::List }
    }

    /// Something of a step that has ended, or of this place, or null.
    fn earlier(&self, dice: &mut Dice, before: &[Earlier], ended: &[usize]) -> Value {
        if !self.sees.is_empty() && dice.chance(Ratio::new(1, 2)) {
            return json!(*dice.pick(self.sees));
        }
        if ended.is_empty() {
            return Value::Null;
        }
        let step = &before[*dice.pick(ended)].id;
        // Not everything has a `v`: that start fails with EXPRESSION_ERROR, which must be handled as well.
        match dice.below(30) {
            0 => json!(format!("${{ steps.{step}.output.v }}")),
            _ => json!(format!("${{ steps.{step}.output }}")),
        }
    }
}

/// Whether another step may run children.
fn may_call(before: &[Earlier]) -> bool {
    before.iter().filter(|step| step.gives.is_of_children()).count() < CALLS
}

/// A task, with what it is given.
fn task(dice: &mut Dice, step: &mut Map<String, Value>, input: Value) {
    step.insert("task".into(), json!(*dice.pick(&TASKS)));
    if dice.chance(Ratio::new(1, 4)) {
        step.insert("contract_version".into(), json!("2"));
    }
    step.insert("input".into(), input);
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
    if dice.chance(Ratio::new(1, 6)) {
        step.insert("timeout".into(), json!(*dice.pick(&["400ms", "2s", "5s"])));
    }
    if dice.chance(Ratio::new(1, 8)) {
        step.insert("queue_timeout".into(), json!(*dice.pick(&["300ms", "3s", "20s"])));
    }
}

/// What undoes a step.
pub(super) fn undo(dice: &mut Dice, input: Value) -> Value {
    let mut undo = Map::new();
    task(dice, &mut undo, input);
    Value::Object(undo)
}
