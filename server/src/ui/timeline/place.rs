//! Where each row stands: a step, then what undoes it, then its items, each with what undoes it; handlers at the end.

use super::Row;
use crate::ui::html::{Html, html};
use crate::ui::workflows;
use orbit_core::definition::{Place, UnitPath};
use orbit_core::id::UnitKey;
use serde_json::Value;
use std::collections::BTreeMap;

/// What rows are sorted by: handlers in the order in which they began; steps in that of the definition, those that it
/// does not have as they began; items by number; what undoes a unit right after it.
type Order = (usize, usize, usize, bool);

/// The rows so far.
pub struct Places<'d> {
    definition: &'d Value,
    rows: Vec<(Order, Row)>,
    /// Where the row of a unit is.
    index: BTreeMap<UnitKey, usize>,
    /// Handlers, by the order in which they began; the first place is the workflow's own.
    handlers: Vec<String>,
}

fn steps(definition: &Value) -> &[Value] {
    definition.as_array().map(Vec::as_slice).unwrap_or_default()
}

impl<'d> Places<'d> {
    /// A row for each step of the workflow.
    pub fn of(definition: &'d Value) -> Places<'d> {
        let mut places = Places { definition, rows: Vec::new(), index: BTreeMap::new(), handlers: vec![String::new()] };
        for id in steps(&definition["steps"]).iter().filter_map(|step| step["id"].as_str()) {
            places.row(&UnitKey::new(id));
        }
        places
    }

    /// The row of a unit.
    pub fn row(&mut self, unit: &UnitKey) -> &mut Row {
        let index = match self.index.get(unit) {
            Some(index) => *index,
            None => {
                let (order, what) = self.place(unit);
                self.rows.push((order, Row::new(unit.as_str(), what)));
                self.index.insert(unit.clone(), self.rows.len() - 1);
                self.rows.len() - 1
            }
        };
        &mut self.rows[index].1
    }

    /// Where a unit that is new stands, and what it does.
    fn place(&mut self, unit: &UnitKey) -> (Order, Html) {
        let path = UnitPath::parse(unit);
        let on = &self.definition["on"];
        let siblings = match path.place() {
            Some(Place::Workflow) => &self.definition["steps"],
            Some(Place::Failure) => &on["failure"],
            Some(Place::Cancel) => &on["cancel"],
            Some(Place::Timeout) => &on["timeout"],
            Some(Place::Event { signal, .. }) => &on["event"][signal],
            None => &Value::Null,
        };
        let handler = path.handler.unwrap_or_default();
        let place = self.handlers.iter().position(|known| known == handler).unwrap_or_else(|| {
            self.handlers.push(handler.to_owned());
            self.handlers.len() - 1
        });
        let found = steps(siblings).iter().enumerate().find(|(_, step)| step["id"] == path.step);
        let number = found.map_or(steps(siblings).len() + self.rows.len(), |(number, _)| number);
        let item = path.index.map_or(0, |index| index as usize + 1);
        let what = match found {
            None => Html::new(),
            Some((_, step)) if path.compensates => html!("undoes it: {}", step["compensate"]["task"].as_str()),
            Some((_, step)) if path.index.is_some() => workflows::what(&step["do"]),
            Some((_, step)) => workflows::what(step),
        };
        ((place, number, item, path.compensates), what)
    }

    /// The run has ended with a step that continues as new. No event names it: where only one can have been it, it was.
    pub fn continued(&mut self, at: i64, next: u32) {
        let steps = steps(&self.definition["steps"]).iter();
        let candidates =
            steps.filter(|step| step.get("continue_as_new").is_some()).filter_map(|step| step["id"].as_str());
        let keys: Vec<UnitKey> = candidates.map(UnitKey::new).collect();
        let open: Vec<UnitKey> = keys.into_iter().filter(|key| self.row(key).is_untouched()).collect();
        if let [key] = open.as_slice() {
            self.row(key).ended_run(at, next);
        }
    }

    /// The rows as they are shown.
    pub fn in_order(mut self) -> Vec<Row> {
        self.rows.sort_by_key(|(order, _)| *order);
        self.rows.into_iter().map(|(_, row)| row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn items_and_what_undoes_them_follow_their_step_and_handlers_come_last() {
        let definition = json!({
            "steps": [
                {"id": "pay", "task": "t.pay", "compensate": {"task": "t.refund"}},
                {"id": "ship", "for": "${ input }", "do": {"task": "t.ship"}, "compensate": {"task": "t.return"}},
                {"id": "paid", "await": "paid"},
            ],
            "on": {"failure": [{"id": "tell", "task": "t.tell"}], "event": {"note": [{"id": "log", "compute": 1}]}},
        });
        let mut places = Places::of(&definition);
        let met = [
            "on_event:note@4/log",
            "ship[1]",
            "ship[10]",
            "ship[0]",
            "gone",
            "compensate:ship[10]",
            "compensate:pay",
            "on_failure/tell",
        ];
        for unit in met {
            places.row(&unit.into());
        }
        let rows = places.in_order();
        let shown: Vec<(&str, String)> =
            rows.iter().map(|row| (row.step.as_str(), row.what.clone().into_string())).collect();
        let expected = [
            ("pay", "t.pay"),
            ("compensate:pay", "undoes it: t.refund"),
            ("ship", "for each: t.ship"),
            ("ship[0]", "t.ship"),
            ("ship[1]", "t.ship"),
            ("ship[10]", "t.ship"),
            ("compensate:ship[10]", "undoes it: t.return"),
            ("paid", "await <code>paid</code>"),
            ("gone", ""),
            ("on_event:note@4/log", "compute"),
            ("on_failure/tell", "t.tell"),
        ];
        assert_eq!(shown, expected.map(|(step, what)| (step, what.to_owned())));
    }
}
