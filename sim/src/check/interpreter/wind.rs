//! What follows an end that is not a good one: what is open is cancelled, what was done is undone, the handler runs.

use super::{Act, Cause, Ended, Interpreter, Round, Unit};
use orbit_core::definition::unit::compensation_unit;
use orbit_core::definition::{Local, UnitPath};
use orbit_core::execution::event::{CompensationOutcome, Json, TaskError, codes};
use orbit_core::id::{HandlerKey, UnitKey};
use orbit_core::store::append::Status;
use serde_json::{Value, json};
use std::sync::Arc;

impl Interpreter<'_> {
    /// Whether anything went on.
    pub(super) fn wind(&mut self) -> bool {
        let at_once = matches!(self.cause, Some(Cause::Terminated));
        for (key, unit) in &mut self.units {
            let useless = at_once || !UnitPath::parse(key).cleans_up();
            if !unit.is_over() && useless && !self.children.contains(key) {
                *unit = Unit::Cancelled;
            }
        }
        if !self.children.is_empty() {
            return false;
        }
        if at_once {
            return self.ends();
        }
        match &self.undoing {
            None => {
                let units = self.to_undo();
                if !units.is_empty() {
                    self.undoing = Some((units, None));
                    return true;
                }
            }
            Some((units, None)) => {
                let units = units.clone();
                return self.undo(&units);
            }
            Some(_) => {}
        }
        self.handle_end()
    }

    /// One after the other; what cannot be undone does not keep the others from it.
    fn undo(&mut self, units: &[UnitKey]) -> bool {
        let mut outcome = CompensationOutcome::Completed;
        for unit in units {
            let key = compensation_unit(unit);
            match self.units.get(&key) {
                None => {
                    match self.undoing_input(unit, &key) {
                        Ok(input) => drop(self.act(Act::Give(key, input))),
                        Err(error) => self.fails(&key, error),
                    }
                    return true;
                }
                Some(Unit::Failing(error)) => {
                    let error = error.clone();
                    self.fails(&key, error);
                    return true;
                }
                Some(Unit::Failed(_)) => outcome = CompensationOutcome::Failed,
                Some(state) if state.is_over() => {}
                Some(_) => return false,
            }
        }
        self.undoing = Some((units.to_vec(), Some(outcome)));
        true
    }

    fn undoing_input(&self, unit: &UnitKey, key: &UnitKey) -> Result<Json, TaskError> {
        let path = UnitPath::parse(unit);
        let items = self.items.get(&path.whole());
        let output = match path.index {
            None => self.outputs.get(path.step),
            Some(index) => items.and_then(|items| items.begun.get(&index)?.as_ref()),
        };
        let item = path.index.and_then(|index| Some((items?.list.get(index as usize)?, index)));
        let task = self.definition.task_of(key).expect("it can be undone");
        self.value(&task.input, Local { output, item, ..Local::default() })
    }

    /// The handler of this end, where there is one; then the end itself.
    fn handle_end(&mut self) -> bool {
        let (key, steps, failure) = match self.cause.as_ref().expect("it winds down") {
            Cause::Failed(error) => ("on_failure", &self.definition.on.failure, described("failed", error)),
            Cause::Cancelled => {
                let error = TaskError::last(codes::CANCELLED, "");
                ("on_cancel", &self.definition.on.cancel, described("cancelled", &error))
            }
            Cause::TimedOut => {
                let error = TaskError::last(codes::WORKFLOW_TIMEOUT, "");
                ("on_timeout", &self.definition.on.timeout, described("timed_out", &error))
            }
            Cause::Terminated => return self.ends(),
        };
        if steps.is_empty() {
            return self.ends();
        }
        let key = HandlerKey::new(key);
        match self.handlers.get(&key) {
            None => return self.act(Act::Begin(key)),
            Some(run) if run.over => return self.ends(),
            Some(_) => {}
        }
        let of_handler = |unit: &UnitKey| UnitPath::parse(unit).handler == Some(key.as_str());
        let failed = self.units.iter().any(|(unit, state)| {
            of_handler(unit) && UnitPath::parse(unit).index.is_none() && matches!(state, Unit::Failed(_))
        });
        if failed {
            let open = self.units.iter_mut().filter(|(unit, state)| of_handler(unit) && !state.is_over());
            open.for_each(|(_, state)| *state = Unit::Cancelled);
            return self.act(Act::Finish(key));
        }
        let mut round = Round::default();
        if self.block(Some(&key), Some(&failure), &mut round) {
            return self.act(Act::Finish(key));
        }
        self.carry_out(round)
    }

    fn ends(&mut self) -> bool {
        let compensation = self.undoing.as_ref().and_then(|(_, outcome)| *outcome);
        let end = |status, error: Option<&TaskError>, compensation| Ended {
            status,
            output: None,
            error: error.map(|error| (error.code.clone(), error.step.clone())),
            compensation,
        };
        self.ended = Some(match self.cause.as_ref().expect("it winds down") {
            Cause::Failed(error) => end(Status::Failed, Some(error), compensation),
            Cause::Cancelled => end(Status::Cancelled, None, compensation),
            Cause::TimedOut => end(Status::TimedOut, None, compensation),
            Cause::Terminated => end(Status::Terminated, None, None),
        });
        true
    }
}

/// `failure`, as the handler sees it; of its message the drawn definitions say nothing.
fn described(reason: &str, error: &TaskError) -> Json {
    let step = error.step.as_ref().map_or(Value::Null, |step| json!(step.as_str()));
    Arc::new(json!({"reason": reason, "code": error.code, "message": error.message, "step": step}))
}
