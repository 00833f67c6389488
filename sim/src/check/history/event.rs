//! One event after the other: what it says has to follow from what was there before.

use super::{CHECK, Dispatched, EARLY_MS, Scheduled, Tracked};
use crate::check::course::Course;
use crate::check::runs::Position;
use crate::check::{Checked, Committed, Violation, ensure};
use crate::coverage::{Coverage, Mark};
use crate::schema;
use orbit_core::api::request::TaskOutcome;
use orbit_core::definition::{Definition, StepKind, UnitPath};
use orbit_core::execution::event::{Event, Recorded, codes};
use orbit_core::id::{ExecutionId, Run, Seq, Token, UnitKey};
use orbit_core::store::append::Status;
use orbit_core::store::statement::DefinitionRow;
use orbit_core::time::ClusterMs;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

impl Tracked {
    pub(in crate::check) fn new(definition: Arc<Definition>, run: Run) -> Tracked {
        Tracked {
            definition,
            run,
            events: Vec::new(),
            ended: None,
            continues: None,
            dispatched: BTreeMap::new(),
            results: BTreeMap::new(),
            scheduled: BTreeMap::new(),
            queued: BTreeMap::new(),
            settled: BTreeSet::new(),
            succeeded: BTreeSet::new(),
            waiting: BTreeMap::new(),
            uncertain: BTreeSet::new(),
            failed: BTreeMap::new(),
            cancelled: false,
            course: Course::default(),
            awaits: BTreeMap::new(),
            parked: false,
            out: BTreeMap::new(),
            held: None,
            holds: Vec::new(),
        }
    }

    pub(super) fn on_event(
        &mut self,
        id: &ExecutionId,
        recorded: Recorded,
        committed: &Committed<'_>,
        marks: &mut Coverage,
    ) -> Checked {
        let at = format!("{id}{}", Position { run: self.run, seq: recorded.seq });
        ensure!(recorded.seq == self.last().next(), CHECK, "{at} follows #{}", self.last());
        let over = self.ended.is_some() || self.continues.is_some();
        ensure!(!over, CHECK, "{at}: {:?} comes after the end", recorded.event);
        if let Some(before) = self.events.last() {
            ensure!(before.at_ms <= recorded.at_ms, CHECK, "{at}: time went back from {:?}", before.at_ms);
        }
        let created = matches!(recorded.event, Event::WorkflowCreated { .. });
        ensure!(created == self.events.is_empty(), CHECK, "{at}: {:?} stands there", recorded.event);
        self.follows_definition(&at, &recorded, committed)?;
        self.on_kind(&at, &recorded, committed, marks)?;
        self.course.on_event(&at, &self.definition, &recorded.event, marks)?;
        self.events.push(recorded);
        Ok(())
    }

    fn on_kind(&mut self, at: &str, recorded: &Recorded, committed: &Committed<'_>, marks: &mut Coverage) -> Checked {
        ensure!(
            self.held.is_none() || comes_from_outside(&recorded.event),
            CHECK,
            "{at}: {:?} happens, and it is held",
            recorded.event
        );
        match &recorded.event {
            Event::WorkflowCreated { workflow, version, definition_hash, .. } => {
                let same = |d: &&DefinitionRow| d.name == *workflow && d.version == *version;
                let there = committed.store.definitions().find(same).map(|d| &d.hash);
                ensure!(
                    there == Some(definition_hash),
                    CHECK,
                    "{at}: begun by {workflow} {version} ({definition_hash}), and what is deployed is {there:?}"
                );
            }
            Event::WorkflowStarted => {}
            Event::LimitReached { limit, step, .. } => {
                marks.hit(match limit.as_str() {
                    "max_payload_bytes" => Mark::PayloadTooLarge,
                    "max_fan_out" => Mark::ListTooLong,
                    _ => Mark::HistoryFull,
                });
                if let Some(step) = step {
                    self.settle(at, step)?;
                }
            }
            Event::ContractViolated { .. } => marks.hit(Mark::OutputRefused),
            Event::StepScheduled { step, attempt, input, idempotency_key, redelivery } => {
                self.may_begin(at, step)?;
                if *redelivery {
                    marks.hit(Mark::Redelivery);
                }
                let given =
                    Scheduled { input: input.clone(), idempotency_key: idempotency_key.clone(), attempt: *attempt };
                if let Some(before) = self.scheduled.get(step) {
                    let same_key = before.idempotency_key == given.idempotency_key;
                    ensure!(same_key, CHECK, "{at}: the idempotency key of {step} changed");
                    let next = *attempt == before.attempt + 1 || (*redelivery && *attempt == before.attempt);
                    ensure!(next, CHECK, "{at}: attempt {attempt} of {step} follows {}", before.attempt);
                } else {
                    ensure!(*attempt == 1, CHECK, "{at}: {step} begins with attempt {attempt}");
                }
                if let Some(due) = self.waiting.remove(step) {
                    self.is_time(at, due, recorded, committed)?;
                }
                self.scheduled.insert(step.clone(), given);
                self.queued.insert(step.clone(), (*attempt, recorded.at_ms));
            }
            Event::StepSkipped { step, .. } => {
                self.may_begin(at, step)?;
                self.settle(at, step)?;
                marks.hit(Mark::StepSkipped);
            }
            Event::StepDispatched { step, attempt, token, worker_session, deadline_ms, .. } => {
                let (seq, deadline, session) = (recorded.seq, *deadline_ms, *worker_session);
                let dispatched = Dispatched { unit: step.clone(), attempt: *attempt, session, seq, deadline };
                self.on_dispatch(at, token, dispatched)?;
            }
            Event::StepSucceeded { step, output, token, .. } => {
                ensure!(self.succeeded.insert(step.clone()), CHECK, "{at}: {step} succeeded a second time");
                match token {
                    Some(token) => {
                        let given = committed.book.reported(token);
                        let said = given.iter().any(|o| matches!(o, TaskOutcome::Succeeded(v) if v == output));
                        ensure!(said, CHECK, "{at}: no worker reported this output of {token}: {output}");
                        self.on_result(at, step, token, recorded.seq, marks)?;
                    }
                    None => {
                        self.may_begin(at, step)?;
                        if let Some(due) = self.waiting.get(step) {
                            self.is_time(at, *due, recorded, committed)?;
                            marks.hit(Mark::AwaitTimedOut);
                        }
                    }
                }
                self.settle(at, step)?;
            }
            Event::StepAttemptFailed { step, attempt, error, token } => {
                let open = self.scheduled.get(step).is_some_and(|s| s.attempt == *attempt);
                let skipped = !self.settled.contains(step);
                ensure!(skipped, CHECK, "{at}: attempt {attempt} of {step} fails after its end");
                match token {
                    Some(token) => {
                        let given = committed.book.reported(token);
                        let said = given.iter().any(|o| matches!(o, TaskOutcome::Failed(e) if e.code == error.code));
                        ensure!(said, CHECK, "{at}: no worker reported the error {} of {token}", error.code);
                        let newer = self.newer_delivery(step, *attempt, token);
                        ensure!(
                            newer.is_none(),
                            CHECK,
                            "{at}: the failure of {token} counts for attempt {attempt} of {step}, which {newer:?} has since"
                        );
                        self.on_result(at, step, token, recorded.seq, marks)?;
                    }
                    None if error.code == codes::TIMEOUT => marks.hit(Mark::AttemptTimedOut),
                    None if error.code == codes::QUEUE_TIMEOUT => marks.hit(Mark::QueueTimedOut),
                    None => {}
                }
                self.queued.remove(step);
                self.out.remove(step);
                let evaluated = error.code == codes::EXPRESSION_ERROR || error.code == codes::LIMIT_EXCEEDED;
                ensure!(open || evaluated, CHECK, "{at}: attempt {attempt} of {step} was not under way");
            }
            Event::StepAttemptUncertain { step, attempt, token, .. } => {
                self.knows(at, token, step, *attempt)?;
                self.uncertain.insert(token.clone());
                self.out.remove(step);
                marks.hit(Mark::Uncertain);
            }
            Event::RetryScheduled { step, next_attempt, fire_at_ms, .. } => {
                let max = self.definition.work_of(step).map_or(0, |work| work.retry().max_attempts);
                ensure!(*next_attempt <= max, CHECK, "{at}: attempt {next_attempt} of {step}, which has {max}");
                self.waiting.insert(step.clone(), *fire_at_ms);
                marks.hit(Mark::RetryScheduled);
            }
            Event::StepFailed { step, .. } => {
                if let (Some(due), true) = (self.waiting.get(step), self.is_await(step)) {
                    self.is_time(at, *due, recorded, committed)?;
                    marks.hit(Mark::AwaitTimedOut);
                }
                self.settle(at, step)?;
            }
            Event::StepCancelled { step } => {
                self.waiting.remove(step);
                self.settle(at, step)?;
            }
            Event::TimerStarted { step, fire_at_ms } => {
                self.may_begin(at, step)?;
                let first = self.waiting.insert(step.clone(), *fire_at_ms).is_none();
                ensure!(first, CHECK, "{at}: the timer of {step} was started twice");
            }
            Event::TimerFired { step } => {
                let due = self.waiting.remove(step);
                let Some(due) = due else {
                    return Err(Violation::safety(CHECK, format!("{at}: {step} has no timer that runs")));
                };
                self.is_time(at, due, recorded, committed)?;
                self.settle(at, step)?;
                marks.hit(Mark::TimerFired);
            }
            Event::StaleResultIgnored { step, token, .. } => {
                let known = self.dispatched.get(token).is_some_and(|d| d.unit == *step);
                ensure!(known, CHECK, "{at}: {token} was never handed out for {step}");
                marks.hit(Mark::StaleResult);
            }
            Event::CancelRequested { .. } => {
                ensure!(!self.cancelled, CHECK, "{at}: cancelled twice");
                self.cancelled = true;
                if self.goes_on_again(recorded.seq) {
                    marks.hit(Mark::EndedWhileHeld);
                }
                if self.dispatched.iter().any(|(t, d)| !self.results.contains_key(t) && !self.settled.contains(&d.unit))
                {
                    marks.hit(Mark::CancelInFlight);
                }
            }
            Event::WorkflowHeld { repeats, .. } => self.on_hold(at, recorded.seq, repeats)?,
            Event::WorkflowRecovered { .. } => {
                ensure!(self.goes_on_again(recorded.seq), CHECK, "{at}: it goes on, and was not held");
                // What waited for a worker has waited in vain: its time in the queue begins now.
                self.queued.values_mut().for_each(|(_, since)| *since = recorded.at_ms);
                marks.hit(Mark::Recovered);
            }
            Event::WorkflowCompleted { output, .. } => {
                if let Some(Err(wrong)) = self.definition.output_schema.as_ref().map(|s| schema::matches(s, output)) {
                    return Err(Violation::safety(
                        CHECK,
                        format!("{at}: completed with an output that its schema forbids: {wrong:?}"),
                    ));
                }
                for step in &self.definition.steps {
                    let settled = self.settled.contains(step.id.as_str());
                    ensure!(settled, CHECK, "{at}: completed, though {} has not ended", step.id);
                }
                self.ended = Some(Status::Completed);
                marks.hit(Mark::ExecutionCompleted);
            }
            Event::WorkflowFailed { .. } => {
                self.ended = Some(Status::Failed);
                marks.hit(Mark::ExecutionFailed);
            }
            Event::WorkflowCancelled { .. } => {
                ensure!(self.cancelled, CHECK, "{at}: cancelled, though nobody asked for it");
                self.ended = Some(Status::Cancelled);
                marks.hit(Mark::ExecutionCancelled);
            }
            Event::WorkflowTimedOut { .. } => self.ended = Some(Status::TimedOut),
            Event::WorkflowTerminated { .. } => self.ended = Some(Status::Terminated),
            Event::TerminateRequested { .. } => {
                self.cancelled = true;
                if self.goes_on_again(recorded.seq) {
                    marks.hit(Mark::EndedWhileHeld);
                }
            }
            Event::StepFanOut { step, .. } => self.may_begin(at, step)?,
            Event::ChildScheduled { step, .. } => {
                self.may_begin(at, step)?;
                if let Some(due) = self.waiting.remove(step) {
                    self.is_time(at, due, recorded, committed)?;
                }
            }
            Event::ChildStarted { step, deadline_ms, .. } => {
                self.waiting.extend(deadline_ms.map(|deadline| (step.clone(), deadline)));
            }
            Event::ChildEndRequested { step, timed_out, .. } => match (self.waiting.remove(step), timed_out) {
                (Some(due), true) => self.is_time(at, due, recorded, committed)?,
                (None, true) => {
                    return Err(Violation::safety(CHECK, format!("{at}: the child of {step} has no time-out")));
                }
                (_, false) => {}
            },
            Event::ChildFailed { step, .. } => {
                self.waiting.remove(step);
                if self.course.winds_down() {
                    self.settle(at, step)?;
                }
            }
            Event::SignalAwaited { step, signal, deadline_ms } => {
                self.may_begin(at, step)?;
                match deadline_ms {
                    Some(deadline) => drop(self.waiting.insert(step.clone(), *deadline)),
                    None => drop(self.awaits.insert(step.clone(), signal.clone())),
                }
            }
            Event::SignalConsumed { step, .. } => {
                // It may stand there at once, where the signal had come before.
                self.may_begin(at, step)?;
                ensure!(self.succeeded.insert(step.clone()), CHECK, "{at}: {step} succeeded a second time");
                self.settle(at, step)?;
            }
            Event::WorkflowContinuedAsNew { input, next_run } => {
                ensure!(*next_run == self.run.next(), CHECK, "{at}: run {} continues as run {next_run}", self.run);
                if let Some(Err(wrong)) = self.definition.input_schema.as_ref().map(|s| schema::matches(s, input)) {
                    return Err(Violation::safety(
                        CHECK,
                        format!("{at}: continued with an input that its schema forbids: {wrong:?}"),
                    ));
                }
                self.continues = Some(input.clone());
                marks.hit(Mark::ContinuedAsNew);
            }
            Event::ContinueSuggested { .. } => {}
            Event::StepFanIn { step } | Event::ChildCompleted { step, .. } => {
                ensure!(self.succeeded.insert(step.clone()), CHECK, "{at}: {step} succeeded a second time");
                self.settle(at, step)?;
            }
            Event::SignalReceived { .. }
            | Event::UpdateAccepted { .. }
            | Event::HandlerStarted { .. }
            | Event::HandlerCompleted { .. }
            | Event::HandlerFailed { .. }
            | Event::ResultFailed { .. }
            | Event::CompensationStarted { .. }
            | Event::CompensationCompleted
            | Event::CompensationFailed { .. } => {}
            Event::WorkflowTimeoutReached => {
                let due = self.times_out();
                let Some(due) = due else {
                    return Err(Violation::safety(CHECK, format!("{at}: it has no time-out")));
                };
                self.is_time(at, due, recorded, committed)?;
            }
        }
        Ok(())
    }

    /// What is out when it is held is delivered again as a repeat, and so may be something that waits.
    fn on_hold(&mut self, at: &str, seq: Seq, repeats: &[UnitKey]) -> Checked {
        ensure!(self.held.is_none(), CHECK, "{at}: it is held a second time");
        ensure!(!self.out.is_empty(), CHECK, "{at}: it is held, and nothing is out");
        let told: BTreeSet<&UnitKey> = repeats.iter().collect();
        let forgotten = self.out.keys().find(|unit| !told.contains(unit));
        ensure!(forgotten.is_none(), CHECK, "{at}: {forgotten:?} is out, and is not said to be a repeat");
        let other = told.iter().find(|unit| !self.out.contains_key(**unit) && !self.queued.contains_key(**unit));
        ensure!(other.is_none(), CHECK, "{at}: {other:?} is said to be a repeat, and neither is out nor waits");
        self.held = Some(seq);
        self.holds.push((seq, None));
        Ok(())
    }

    /// A hold ends; whether there was one.
    fn goes_on_again(&mut self, seq: Seq) -> bool {
        if let Some((_, until)) = self.holds.last_mut() {
            until.get_or_insert(seq);
        }
        self.held.take().is_some()
    }

    /// When it has run for as long as it may.
    pub(in crate::check) fn times_out(&self) -> Option<ClusterMs> {
        Some(self.events.first()?.at_ms + self.definition.timeout?)
    }

    fn is_await(&self, unit: &UnitKey) -> bool {
        self.definition.step_of(unit).is_some_and(|step| match &step.kind {
            StepKind::Await(_) => true,
            StepKind::For(each) => matches!(*each.each, StepKind::Await(_)) && UnitPath::parse(unit).index.is_some(),
            _ => false,
        })
    }

    fn may_begin(&self, at: &str, unit: &UnitKey) -> Checked {
        let Some(step) = self.definition.step_of(unit) else {
            return Err(Violation::safety(CHECK, format!("{at}: the definition has no step {unit}")));
        };
        ensure!(!self.settled.contains(unit), CHECK, "{at}: {unit} has ended already");
        let path = UnitPath::parse(unit);
        if path.compensates {
            return Ok(());
        }
        for before in &step.after {
            let before = match path.handler {
                None => UnitKey::new(before.as_str()),
                Some(handler) => UnitKey::new(format!("{handler}/{before}")),
            };
            ensure!(self.settled.contains(&before), CHECK, "{at}: {unit} began before {before} ended");
        }
        Ok(())
    }

    fn settle(&mut self, at: &str, unit: &UnitKey) -> Checked {
        ensure!(self.settled.insert(unit.clone()), CHECK, "{at}: {unit} ended twice");
        self.queued.remove(unit);
        self.waiting.remove(unit);
        self.awaits.remove(unit);
        self.out.remove(unit);
        Ok(())
    }

    pub(super) fn is_time(&self, at: &str, due: ClusterMs, recorded: &Recorded, committed: &Committed<'_>) -> Checked {
        ensure!(recorded.at_ms >= due, CHECK, "{at}: due at {due:?}, recorded at {:?}", recorded.at_ms);
        let clock = committed.store.clock();
        let early = committed.steady_clock && clock.0 + EARLY_MS < due.0;
        ensure!(!early, CHECK, "{at}: due at {due:?}, and the database's clock shows {clock:?}");
        Ok(())
    }

    fn on_dispatch(&mut self, at: &str, token: &Token, dispatched: Dispatched) -> Checked {
        let (unit, attempt) = (&dispatched.unit, dispatched.attempt);
        let open = self.scheduled.get(unit).is_some_and(|s| s.attempt == attempt);
        ensure!(open, CHECK, "{at}: attempt {attempt} of {unit} is handed out and was not scheduled");
        ensure!(!self.settled.contains(unit), CHECK, "{at}: {unit} is handed out after its end");
        self.queued.remove(unit);
        self.out.insert(unit.clone(), token.clone());
        let before = self.dispatched.insert(token.clone(), dispatched);
        ensure!(before.is_none(), CHECK, "{at}: {token} is handed out twice");
        Ok(())
    }

    /// A delivery of the same attempt after this one: what became of this one says nothing about that.
    fn newer_delivery(&self, unit: &UnitKey, attempt: u32, token: &Token) -> Option<&Token> {
        let this = self.dispatched.get(token)?.seq;
        let newer = |d: &Dispatched| d.unit == *unit && d.attempt == attempt && d.seq > this;
        self.dispatched.iter().find(|(_, dispatched)| newer(dispatched)).map(|(token, _)| token)
    }

    fn knows(&self, at: &str, token: &Token, unit: &UnitKey, attempt: u32) -> Checked {
        let known = self.dispatched.get(token).is_some_and(|d| d.unit == *unit && d.attempt == attempt);
        ensure!(known, CHECK, "{at}: {token} was never handed out for attempt {attempt} of {unit}");
        Ok(())
    }

    fn on_result(&mut self, at: &str, unit: &UnitKey, token: &Token, seq: Seq, marks: &mut Coverage) -> Checked {
        let known = self.dispatched.get(token).is_some_and(|d| d.unit == *unit);
        ensure!(known, CHECK, "{at}: {token} was never handed out for {unit}");
        let first = self.results.insert(token.clone(), seq).is_none();
        ensure!(first, CHECK, "{at}: {token} has two results");
        if self.held.is_some() {
            marks.hit(Mark::ResultWhileHeld);
        }
        if self.uncertain.contains(token) {
            marks.hit(Mark::LateResultAccepted);
        }
        Ok(())
    }
}

/// Whether an execution that is held takes it in: what others did, and nothing that a server did by itself.
fn comes_from_outside(event: &Event) -> bool {
    match event {
        Event::StepSucceeded { token, .. } | Event::StepAttemptFailed { token, .. } => token.is_some(),
        Event::StepAttemptUncertain { .. }
        | Event::StaleResultIgnored { .. }
        | Event::SignalReceived { .. }
        | Event::UpdateAccepted { .. }
        | Event::ChildCompleted { .. }
        | Event::ChildFailed { .. }
        | Event::WorkflowRecovered { .. }
        | Event::CancelRequested { .. }
        | Event::TerminateRequested { .. } => true,
        _ => false,
    }
}
