//! Times that a history records, and whether an attempt is repeated: as the definition says, and no otherwise.

use super::{CHECK, Tracked};
use crate::check::{Checked, Committed, Violation, ensure};
use orbit_core::definition::unit::Work;
use orbit_core::definition::{AwaitStep, Jitter, RetryPolicy, StepKind};
use orbit_core::execution::event::{Event, Recorded, TaskError, codes};
use orbit_core::id::UnitKey;
use orbit_core::time::ClusterMs;
use std::time::Duration;

impl Tracked {
    /// Before the event counts.
    pub(super) fn follows_definition(
        &mut self,
        at: &str,
        recorded: &Recorded,
        committed: &Committed<'_>,
    ) -> Result<(), Violation> {
        let now = recorded.at_ms;
        match &recorded.event {
            Event::StepDispatched { step, deadline_ms, .. } => {
                let limit = self.definition.task_of(step).and_then(|task| task.timeout);
                ends_in_time(at, step, now, *deadline_ms, limit)
            }
            Event::ChildStarted { step, deadline_ms, .. } => {
                let limit = self.definition.work_of(step).and_then(Work::timeout);
                ends_in_time(at, step, now, *deadline_ms, limit)
            }
            Event::SignalAwaited { step, deadline_ms, .. } => {
                ends_in_time(at, step, now, *deadline_ms, self.await_of(step).and_then(|wait| wait.timeout))
            }
            Event::StepAttemptFailed { step, attempt, error, token } => {
                if token.is_none() {
                    self.is_over(at, step, error, recorded, committed)?;
                }
                self.failed.insert(step.clone(), (*attempt, error.clone()));
                Ok(())
            }
            Event::ChildFailed { step, attempt, error, .. } => {
                self.failed.insert(step.clone(), (*attempt, error.clone()));
                Ok(())
            }
            Event::RetryScheduled { step, next_attempt, delay_ms, fire_at_ms } => {
                let Some((attempt, error)) = self.failed.remove(step) else {
                    return Err(Violation::safety(CHECK, format!("{at}: {step} is repeated, and has not failed")));
                };
                ensure!(*next_attempt == attempt + 1, CHECK, "{at}: attempt {next_attempt} of {step} after {attempt}");
                let Some(policy) = self.definition.work_of(step).map(Work::retry) else {
                    return Err(Violation::safety(CHECK, format!("{at}: {step} has no attempts")));
                };
                ensure!(!is_final(policy, attempt, &error), CHECK, "{at}: {step} is repeated after {}", error.code);
                let (least, most) = pause(policy, attempt);
                ensure!(
                    (least..=most).contains(delay_ms) && *fire_at_ms == now + Duration::from_millis(*delay_ms),
                    CHECK,
                    "{at}: attempt {next_attempt} of {step} comes {delay_ms} ms after {now:?}, at {fire_at_ms:?}, where \
                     {least} to {most} ms is right"
                );
                Ok(())
            }
            Event::StepFailed { step, .. } => {
                let Some((attempt, error)) = self.failed.remove(step) else { return Ok(()) };
                let policy = self.definition.work_of(step).map(Work::retry);
                let last = policy.is_none_or(|policy| is_final(policy, attempt, &error));
                ensure!(last, CHECK, "{at}: {step} failed for good with attempt {attempt}, which is to be repeated");
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// An attempt that nobody reported has failed: its time is over.
    fn is_over(
        &self,
        at: &str,
        step: &UnitKey,
        error: &TaskError,
        recorded: &Recorded,
        committed: &Committed<'_>,
    ) -> Checked {
        let due = if error.code == codes::TIMEOUT {
            self.out.get(step).and_then(|token| self.dispatched.get(token)?.deadline)
        } else if error.code == codes::QUEUE_TIMEOUT {
            let limit = self.definition.task_of(step).and_then(|task| task.queue_timeout);
            self.queued.get(step).and_then(|(_, since)| Some(*since + limit?))
        } else {
            return Ok(());
        };
        let Some(due) = due else {
            return Err(Violation::safety(
                CHECK,
                format!("{at}: {step} fails with {}, and has no time-out", error.code),
            ));
        };
        self.is_time(at, due, recorded, committed)
    }

    /// The step that waits, where the unit is one of it.
    fn await_of(&self, unit: &UnitKey) -> Option<&AwaitStep> {
        match &self.definition.step_of(unit)?.kind {
            StepKind::Await(wait) => Some(wait),
            StepKind::For(each) => match &*each.each {
                StepKind::Await(wait) => Some(wait),
                _ => None,
            },
            _ => None,
        }
    }
}

fn ends_in_time(
    at: &str,
    step: &UnitKey,
    now: ClusterMs,
    deadline: Option<ClusterMs>,
    limit: Option<Duration>,
) -> Checked {
    let right = limit.map(|limit| now + limit);
    ensure!(deadline == right, CHECK, "{at}: {step} has until {deadline:?}, and by its definition until {right:?}");
    Ok(())
}

/// Whether no attempt follows this one.
fn is_final(policy: &RetryPolicy, attempt: u32, error: &TaskError) -> bool {
    attempt >= policy.max_attempts || !error.retryable || policy.non_retryable.contains(&error.code)
}

/// The shortest and the longest pause after this attempt, in milliseconds. Each product is rounded down.
fn pause(policy: &RetryPolicy, attempt: u32) -> (u64, u64) {
    let growth = (f64::from(policy.factor_milli) / 1_000.0).powf(f64::from(attempt) - 1.0);
    let whole = (policy.initial.as_secs_f64() * growth).min(policy.max.as_secs_f64()) * 1_000.0;
    let rounded = u64::from(attempt);
    match policy.jitter {
        Jitter::Full => (0, whole.ceil() as u64),
        Jitter::None => ((whole.floor() as u64).saturating_sub(rounded), whole.ceil() as u64),
    }
}
