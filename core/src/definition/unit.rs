//! What the keys of units in a history name: a step, an item of a `for` step, a compensation, a step of a handler.
//!
//! | Key | Names |
//! |---|---|
//! | `charge` | the step |
//! | `ship[3]` | the fourth item of a `for` step |
//! | `compensate:charge`, `compensate:ship[3]` | what undoes it |
//! | `on_failure/tell`, `on_event:paid@17/note` | a step of a handler, that of the signal with this number |

use super::{ChildStep, Definition, RetryPolicy, Step, StepKind, TaskStep, find};
use crate::id::{HandlerKey, Seq, SignalName, StepId, UnitKey};

const COMPENSATE: &str = "compensate:";
const ON_EVENT: &str = "on_event:";

/// The parts of a unit's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitPath<'k> {
    /// It undoes the unit that the rest names.
    pub compensates: bool,
    /// The key of the handler whose step it is.
    pub handler: Option<&'k str>,
    /// The id of the step.
    pub step: &'k str,
    /// Which item of a `for` step.
    pub index: Option<u32>,
}

/// Where steps stand: in the workflow itself or in a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'k> {
    Workflow,
    Failure,
    Cancel,
    Timeout,
    Event { signal: &'k str, received: Seq },
}

impl<'k> Place<'k> {
    /// From a handler's key.
    pub fn of_handler(key: &'k str) -> Option<Place<'k>> {
        Some(match key {
            "on_failure" => Place::Failure,
            "on_cancel" => Place::Cancel,
            "on_timeout" => Place::Timeout,
            _ => {
                let (signal, received) = key.strip_prefix(ON_EVENT)?.rsplit_once('@')?;
                Place::Event { signal, received: Seq(received.parse().ok()?) }
            }
        })
    }

    /// Whether its steps run while the execution winds down, and are not cancelled then.
    pub fn cleans_up(self) -> bool {
        matches!(self, Place::Failure | Place::Cancel | Place::Timeout)
    }
}

/// The key of the handler's run for one signal.
pub fn event_handler(signal: &SignalName, received: Seq) -> HandlerKey {
    HandlerKey::new(format!("{ON_EVENT}{signal}@{received}"))
}

/// The key of a step's unit.
pub fn step_unit(handler: Option<&HandlerKey>, step: &StepId) -> UnitKey {
    match handler {
        None => UnitKey::new(step.as_str()),
        Some(handler) => UnitKey::new(format!("{handler}/{step}")),
    }
}

/// The key of the unit of one item.
pub fn item_unit(of: &UnitKey, index: u32) -> UnitKey {
    UnitKey::new(format!("{of}[{index}]"))
}

/// The key of what undoes a unit.
pub fn compensation_unit(of: &UnitKey) -> UnitKey {
    UnitKey::new(format!("{COMPENSATE}{of}"))
}

impl<'k> UnitPath<'k> {
    /// The parts of a key. Every text has some.
    pub fn parse(key: &'k UnitKey) -> UnitPath<'k> {
        let text = key.as_str();
        let (compensates, text) = match text.strip_prefix(COMPENSATE) {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (handler, text) = match text.split_once('/') {
            Some((handler, rest)) => (Some(handler), rest),
            None => (None, text),
        };
        let item = text.strip_suffix(']').and_then(|text| text.rsplit_once('['));
        let (step, index) = match item.and_then(|(step, index)| Some((step, index.parse().ok()?))) {
            Some((step, index)) => (step, Some(index)),
            None => (text, None),
        };
        UnitPath { compensates, handler, step, index }
    }

    /// Where its step stands.
    pub fn place(&self) -> Option<Place<'k>> {
        match self.handler {
            None => Some(Place::Workflow),
            Some(handler) => Place::of_handler(handler),
        }
    }

    /// The unit of the whole `for` step, of one of its items.
    pub fn whole(&self) -> UnitKey {
        match self.handler {
            None => UnitKey::new(self.step),
            Some(handler) => UnitKey::new(format!("{handler}/{}", self.step)),
        }
    }

    /// Whether it runs while the execution winds down.
    pub fn cleans_up(&self) -> bool {
        self.compensates || self.place().is_some_and(Place::cleans_up)
    }
}

impl Definition {
    /// The steps that stand there.
    pub fn steps_at(&self, place: Place<'_>) -> &[Step] {
        match place {
            Place::Workflow => &self.steps,
            Place::Failure => &self.on.failure,
            Place::Cancel => &self.on.cancel,
            Place::Timeout => &self.on.timeout,
            Place::Event { signal, .. } => self.on.event.get(signal).map_or(&[], Vec::as_slice),
        }
    }

    /// The step that a unit belongs to.
    pub fn step_of(&self, unit: &UnitKey) -> Option<&Step> {
        let path = UnitPath::parse(unit);
        find(self.steps_at(path.place()?), path.step)
    }

    /// What a unit has attempts of, where it has: a task or a child.
    pub fn work_of(&self, unit: &UnitKey) -> Option<Work<'_>> {
        let path = UnitPath::parse(unit);
        let step = find(self.steps_at(path.place()?), path.step)?;
        if path.compensates {
            return step.compensate.as_ref().map(Work::Task);
        }
        let kind = match (&step.kind, path.index) {
            (StepKind::For(each), Some(_)) => &*each.each,
            (kind, None) => kind,
            (_, Some(_)) => return None,
        };
        match kind {
            StepKind::Task(task) => Some(Work::Task(task)),
            StepKind::Workflow(child) => Some(Work::Child(child)),
            _ => None,
        }
    }

    /// The task that a unit runs, where it runs one.
    pub fn task_of(&self, unit: &UnitKey) -> Option<&TaskStep> {
        match self.work_of(unit)? {
            Work::Task(task) => Some(task),
            Work::Child(_) => None,
        }
    }
}

/// What has attempts.
#[derive(Clone, Copy, Debug)]
pub enum Work<'d> {
    Task(&'d TaskStep),
    Child(&'d ChildStep),
}

impl<'d> Work<'d> {
    /// How failed attempts are repeated.
    pub fn retry(self) -> &'d RetryPolicy {
        match self {
            Work::Task(task) => &task.retry,
            Work::Child(child) => &child.retry,
        }
    }

    /// How long an attempt may run.
    pub fn timeout(self) -> Option<std::time::Duration> {
        match self {
            Work::Task(task) => task.timeout,
            Work::Child(child) => child.timeout,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_read_back_from_its_parts() {
        let paid = event_handler(&"paid".into(), Seq(17));
        let note = step_unit(Some(&paid), &"note".into());
        assert_eq!(note.as_str(), "on_event:paid@17/note");
        let path = UnitPath::parse(&note);
        assert_eq!((path.compensates, path.step, path.index), (false, "note", None));
        assert_eq!(path.place(), Some(Place::Event { signal: "paid", received: Seq(17) }));

        let ship = item_unit(&step_unit(None, &"ship".into()), 3);
        let undo = compensation_unit(&ship);
        assert_eq!(undo.as_str(), "compensate:ship[3]");
        let path = UnitPath::parse(&undo);
        assert_eq!((path.compensates, path.step, path.index), (true, "ship", Some(3)));
        assert_eq!((path.place(), path.whole()), (Some(Place::Workflow), "ship".into()));
        assert!(path.cleans_up() && !UnitPath::parse(&ship).cleans_up());
        assert!(UnitPath::parse(&"on_failure/tell".into()).cleans_up());
    }

    #[test]
    fn any_text_has_parts() {
        for text in ["", "[", "x[", "x[y]", "compensate:", "a/b/c", "on_event:x", "on_event:x@/y", "x[99999999999]"] {
            let key = UnitKey::from(text);
            let path = UnitPath::parse(&key);
            assert!(path.index.is_none(), "{text}");
        }
    }
}
