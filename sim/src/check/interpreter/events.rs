//! What came from outside, or with time, one event after the other.

use super::{Cause, Ended, Interpreter, Unit};
use orbit_core::execution::event::{Event, Json, Recorded};
use std::collections::BTreeSet;

impl Interpreter<'_> {
    pub(super) fn run(&mut self, events: &[Recorded]) -> Result<Option<Ended>, String> {
        // What time did in one moment it did at once.
        let mut together = false;
        // What time did while it was held: done when it goes on, before anything else.
        let mut done = BTreeSet::new();
        for (index, recorded) in events.iter().enumerate() {
            if done.remove(&index) {
                continue;
            }
            if let Event::WorkflowRecovered { .. } = recorded.event {
                self.held = false;
                if !self.catches_up(index, events, &mut done)? {
                    continue;
                }
            }
            if self.time_passes(&recorded.event)? {
                together = true;
                continue;
            }
            if std::mem::take(&mut together) {
                self.settle(&events[index - 1..]);
            }
            if self.happens(recorded)? {
                self.settle(&events[index..]);
            }
        }
        if together {
            self.settle(&[]);
        }
        Ok(self.ended.clone())
    }

    /// It goes on after a hold: what is overdue comes first. Whether anything else goes on before the next event.
    fn catches_up(&mut self, index: usize, events: &[Recorded], done: &mut BTreeSet<usize>) -> Result<bool, String> {
        let now = events[index].at_ms;
        let then = events.iter().enumerate().skip(index + 1);
        let same: Vec<_> = then.take_while(|(_, e)| e.at_ms == now && !e.event.is_external()).collect();
        if let Some((_, Recorded { event: Event::WorkflowTimeoutReached, .. })) = same.first() {
            return Ok(false);
        }
        for (later, recorded) in same {
            let overdue = match &recorded.event {
                Event::TimerFired { step } => matches!(self.units.get(step), Some(Unit::Sleeping(_))),
                Event::StepAttemptFailed { step, token: None, .. } => matches!(self.units.get(step), Some(Unit::Task)),
                _ => false,
            };
            if overdue && self.time_passes(&recorded.event)? {
                done.insert(later);
            }
        }
        Ok(true)
    }

    /// Something whose time has come; whether it is that.
    fn time_passes(&mut self, event: &Event) -> Result<bool, String> {
        match event {
            Event::TimerFired { step } => {
                self.under_way(step, |unit| matches!(unit, Unit::Sleeping(_)))?;
                self.succeeds(step, Json::default());
            }
            Event::StepAttemptFailed { step, attempt, error, token: None } => {
                self.attempt_failed(step, *attempt, error)?
            }
            // Another attempt: of a unit that goes on, nothing new.
            Event::StepScheduled { attempt, redelivery, .. } => return Ok(*attempt > 1 || *redelivery),
            Event::ChildEndRequested { timed_out, .. } => return Ok(*timed_out),
            Event::ChildScheduled { attempt, .. } if *attempt > 1 => drop(self.of_child(event)?),
            Event::StepSucceeded { step, token: None, .. } | Event::StepFailed { step, .. } => {
                let Some(unit @ Unit::Awaiting) = self.units.get_mut(step) else { return Ok(false) };
                *unit = Unit::Late;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Something else; whether it came from outside.
    fn happens(&mut self, recorded: &Recorded) -> Result<bool, String> {
        if self.continues.is_some() && recorded.event.is_external() {
            return Err(format!("{:?} comes, and by the definition it has continued as new", recorded.event));
        }
        match &recorded.event {
            Event::WorkflowStarted => self.started = true,
            // Nothing goes on by it alone, and what time did in the same moment it did before anything else.
            Event::ContinueSuggested { .. } => {
                self.suggested = true;
                return Ok(false);
            }
            Event::StepScheduled { step, input, .. } => {
                let given = self.given.get(step);
                if given != Some(input) {
                    return Err(format!("{step} is given {input}, and by the definition {given:?}"));
                }
                return Ok(false);
            }
            Event::StepSucceeded { step, output, token: Some(_), .. } => {
                self.under_way(step, |unit| matches!(unit, Unit::Task))?;
                self.succeeds(step, output.clone());
            }
            Event::StepAttemptFailed { step, attempt, error, token: Some(_) } => {
                self.attempt_failed(step, *attempt, error)?;
            }
            Event::SignalReceived { signal, payload, carried, .. } => {
                self.receive(signal, recorded.seq, payload);
                self.carried.extend(carried.map(|carried| (recorded.seq, carried)));
            }
            Event::UpdateAccepted { update, payload, result, .. } => {
                let answer = self.answer(update, payload);
                if answer.as_ref() != Some(result) {
                    return Err(format!("`{update}` is answered with {result}, and by the definition {answer:?}"));
                }
                self.receive(update, recorded.seq, payload);
            }
            Event::WorkflowHeld { .. } => {
                self.held = true;
                return Ok(false);
            }
            Event::WorkflowRecovered { .. } => {}
            Event::CancelRequested { .. } => {
                self.held = false;
                self.winds(Cause::Cancelled);
            }
            Event::WorkflowTimeoutReached => self.winds(Cause::TimedOut),
            Event::TerminateRequested { .. } => {
                self.held = false;
                self.cause = Some(Cause::Terminated);
            }
            // Of the length of a history it knows nothing.
            Event::LimitReached { limit, error, .. } if limit == "max_history_events" => {
                self.winds(Cause::Failed(error.clone()));
            }
            Event::TimerStarted { step, fire_at_ms } => {
                let long = match self.units.get(step) {
                    Some(Unit::Sleeping(long)) => Some(*long),
                    _ => None,
                };
                if long.is_some_and(|long| *fire_at_ms != recorded.at_ms + long) {
                    let from = recorded.at_ms;
                    return Err(format!(
                        "{step} sleeps from {from:?} to {fire_at_ms:?}, and by the definition {long:?}"
                    ));
                }
                return Ok(false);
            }
            Event::SignalAwaited { step, deadline_ms: Some(deadline), .. } => {
                self.deadlines.insert(step.clone(), *deadline);
                return Ok(false);
            }
            // What there is instead of a signal may be too large: then nothing else says that the time is over.
            Event::LimitReached { .. } if self.cause.is_none() => {
                let late = self.deadlines.iter().filter(|(_, deadline)| **deadline <= recorded.at_ms);
                for (unit, _) in late {
                    if let Some(unit @ Unit::Awaiting) = self.units.get_mut(unit) {
                        *unit = Unit::Late;
                    }
                }
            }
            event => return Ok(self.of_child(event)?.unwrap_or(false)),
        }
        Ok(true)
    }
}
