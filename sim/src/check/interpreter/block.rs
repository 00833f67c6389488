//! A list of steps: that of the workflow, or of a handler.

use super::{Act, Interpreter, Items, Round, Unit, no_value};
use orbit_core::definition::unit::{item_unit, step_unit};
use orbit_core::definition::{AwaitStep, ForStep, Local, Place, Step, StepKind, parse_duration, whole_number};
use orbit_core::execution::event::{Json, TaskError, codes};
use orbit_core::id::{HandlerKey, UnitKey};
use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

impl Interpreter<'_> {
    /// Looks at every step; whether all are over.
    pub(super) fn block(&self, handler: Option<&HandlerKey>, failure: Option<&Json>, round: &mut Round) -> bool {
        let (steps, local) = match handler.and_then(|key| Some((key, self.handlers.get(key)?))) {
            None => (&self.definition.steps[..], Local::default()),
            Some((key, run)) => {
                let place = Place::of_handler(key.as_str()).expect("a handler's key");
                let (own, event) = (Some(&run.outputs), run.event.as_ref());
                (
                    self.definition.steps_at(place),
                    Local { own, absent_is_null: true, event, failure, ..Local::default() },
                )
            }
        };
        let outputs = local.own.unwrap_or(&self.outputs);
        let mut over = true;
        for step in steps {
            let unit = step_unit(handler, &step.id);
            match self.units.get(&unit) {
                Some(state) if state.is_over() => continue,
                Some(state) => self.step_goes_on(step, &unit, state, local, round),
                None if step.after.iter().all(|before| outputs.contains_key(before)) => {
                    match self.step_begins(step, &unit, local, round) {
                        Ok(act) => round.acts.extend(act),
                        Err(error) => round.fails(&unit, error),
                    }
                }
                None => {}
            }
            over = false;
        }
        over
    }

    fn step_begins(
        &self,
        step: &Step,
        unit: &UnitKey,
        local: Local<'_>,
        round: &mut Round,
    ) -> Result<Option<Act>, TaskError> {
        let unit = unit.clone();
        if let Some(when) = &step.when {
            match &*self.value(when, local)? {
                Value::Bool(true) => {}
                Value::Bool(false) => return Ok(Some(Act::Skip(unit))),
                other => return Err(no_value(format!("`when` gave {other}"))),
            }
        }
        Ok(Some(match &step.kind {
            StepKind::Task(task) => Act::Give(unit, self.value(&task.input, local)?),
            StepKind::Workflow(child) => Act::Give(unit, self.value(&child.input, local)?),
            StepKind::ContinueAsNew(template) => {
                let input = self.value(template, local)?;
                round.continues.get_or_insert(input);
                return Ok(None);
            }
            StepKind::Compute(template) => Act::Done(unit, self.value(template, local)?),
            StepKind::Sleep(template) => {
                let time = self.value(template, local)?;
                let long = match &*time {
                    Value::String(text) => parse_duration(text),
                    number => whole_number(number).map(Duration::from_millis),
                };
                let Some(long) = long else { return Err(no_value(format!("`sleep` gave {time}"))) };
                Act::Become(unit, Unit::Sleeping(long))
            }
            StepKind::Await(wait) => return Ok(self.begins_to_wait(wait, unit, round)),
            StepKind::For(each) => match Arc::unwrap_or_clone(self.value(&each.list, local)?) {
                Value::Array(list) => Act::Spread(unit, list.into_iter().map(Arc::new).collect()),
                other => return Err(no_value(format!("`for` gave {other}"))),
            },
        }))
    }

    /// Takes a signal, if there is one; whether there is. Where another step takes one in this round, this one waits for
    /// the next.
    fn takes(&self, wait: &AwaitStep, unit: &UnitKey, round: &mut Round) -> bool {
        let there = self.buffered.get(&wait.signal).is_some_and(|buffered| !buffered.is_empty());
        if there {
            round.take.get_or_insert_with(|| Act::Take(unit.clone(), wait.signal.clone()));
        }
        there
    }

    fn begins_to_wait(&self, wait: &AwaitStep, unit: UnitKey, round: &mut Round) -> Option<Act> {
        (!self.takes(wait, &unit, round)).then_some(Act::Become(unit, Unit::Awaiting))
    }

    /// A signal that came counts, however late.
    fn waits_on(&self, wait: &AwaitStep, unit: &UnitKey, state: &Unit, local: Local<'_>, round: &mut Round) {
        if self.takes(wait, unit, round) || !matches!(state, Unit::Late) {
            return;
        }
        match &wait.otherwise {
            None => round.fails(unit, TaskError::last(codes::TIMEOUT, "")),
            Some(template) => match self.value(template, local) {
                Ok(output) => round.acts.push(Act::Done(unit.clone(), output)),
                Err(error) => round.fails(unit, error),
            },
        }
    }

    fn step_goes_on(&self, step: &Step, unit: &UnitKey, state: &Unit, local: Local<'_>, round: &mut Round) {
        match (&step.kind, state) {
            (_, Unit::Failing(error)) => round.fails(unit, error.clone()),
            (StepKind::For(each), _) => {
                if let Some(items) = self.items.get(unit) {
                    self.items_go_on(each, unit, items, local, round);
                }
            }
            (StepKind::Await(wait), _) => self.waits_on(wait, unit, state, local, round),
            _ => {}
        }
    }

    fn items_go_on(&self, each: &ForStep, unit: &UnitKey, items: &Items, local: Local<'_>, round: &mut Round) {
        if items.begun.len() == items.list.len() && items.begun.values().all(Option::is_some) {
            return round.acts.push(Act::Gather(unit.clone()));
        }
        let of_item = |index: u32| Local { item: items.list.get(index as usize).map(|value| (value, index)), ..local };
        let of_items: Vec<(u32, UnitKey, &Unit)> = items
            .begun
            .keys()
            .map(|index| (*index, item_unit(unit, *index)))
            .filter_map(|(index, item)| self.units.get(&item).map(|state| (index, item, state)))
            .collect();
        // An item's own end comes before that of its step.
        for (index, item, state) in &of_items {
            match (&*each.each, state) {
                (_, Unit::Failing(error)) => round.fails(item, error.clone()),
                (StepKind::Await(wait), Unit::Awaiting | Unit::Late) => {
                    self.waits_on(wait, item, state, of_item(*index), round);
                }
                _ => {}
            }
        }
        let failed = of_items.iter().find_map(|(.., state)| match state {
            Unit::Failed(error) => Some(error),
            _ => None,
        });
        if let Some(error) = failed {
            return round.fails(unit, error.clone());
        }
        let under_way = of_items.iter().filter(|(.., state)| !state.is_over()).count();
        let free = match &*each.each {
            StepKind::Compute(_) => usize::MAX,
            _ => (each.parallel as usize).saturating_sub(under_way),
        };
        let all = 0..u32::try_from(items.list.len()).expect("a list is bounded");
        for index in all.filter(|index| !items.begun.contains_key(index)).take(free) {
            let item = item_unit(unit, index);
            let local = of_item(index);
            let act = match &*each.each {
                StepKind::Task(task) => self.value(&task.input, local).map(|input| Act::Give(item.clone(), input)),
                StepKind::Compute(template) => {
                    self.value(template, local).map(|output| Act::Done(item.clone(), output))
                }
                StepKind::Workflow(child) => {
                    self.value(&child.input, local).map(|input| Act::Give(item.clone(), input))
                }
                StepKind::Await(wait) => {
                    let act = self.begins_to_wait(wait, item, round);
                    round.acts.extend(act);
                    continue;
                }
                other => unreachable!("no item does {other:?}"),
            };
            match act {
                Ok(act) => round.acts.push(act),
                Err(error) => round.fails(&item, error),
            }
        }
    }
}
