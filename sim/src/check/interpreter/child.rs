//! Children, as their parent sees them: what each is given, and how it ended.

use super::{Interpreter, Unit};
use orbit_core::execution::event::Event;

impl Interpreter<'_> {
    /// What is recorded of a child; whether something goes on from it. None where it is something else.
    pub(super) fn of_child(&mut self, event: &Event) -> Result<Option<bool>, String> {
        match event {
            // Each attempt is given the same.
            Event::ChildScheduled { step, input, .. } => {
                let given = self.given.get(step);
                if given != Some(input) {
                    return Err(format!("the child of {step} is given {input}, and by the definition {given:?}"));
                }
                return Ok(Some(false));
            }
            Event::ChildStarted { step, .. } => {
                self.under_way(step, |unit| matches!(unit, Unit::Task))?;
                self.children.insert(step.clone());
            }
            Event::ChildCompleted { step, output, .. } => {
                self.under_way(step, |unit| matches!(unit, Unit::Task))?;
                self.children.remove(step);
                self.succeeds(step, output.clone());
            }
            Event::ChildFailed { step, attempt, error, .. } => {
                self.children.remove(step);
                match self.cause {
                    None => self.attempt_failed(step, *attempt, error)?,
                    Some(_) => drop(self.units.insert(step.clone(), Unit::Cancelled)),
                }
            }
            _ => return Ok(None),
        }
        Ok(Some(true))
    }
}
