//! Histories: gapless, one end and nothing behind it, time that never goes back, one success for a step; results that a
//! worker really gave, for a token that was really handed out; steps in the order of the definition.
//!
//! This check knows nothing of `decide`: it is a second opinion on it.

use super::course::Course;
use super::runs::{Position, Runs};
use super::{Checked, Committed, Violation, ensure};
use crate::coverage::{Coverage, Mark};
use crate::schema;
use crate::store::{Change, ModelStore};
use orbit_core::api::request::TaskOutcome;
use orbit_core::definition::{Definition, StepKind, UnitPath};
use orbit_core::execution::event::{Event, Json, Recorded, codes};
use orbit_core::id::{ExecutionId, Run, Seq, SessionId, SignalName, Token, UnitKey};
use orbit_core::store::append::{Group, Member, OwnerChange, Status, TaskChange, Wake};
use orbit_core::time::ClusterMs;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

const CHECK: &str = "history";

/// How much earlier than its time a timer may fire by the database's clock, in milliseconds: the rounding of three
/// clocks to milliseconds.
const EARLY_MS: i64 = 3;

/// What is known of every execution.
#[derive(Debug, Default)]
pub struct HistoryCheck {
    executions: BTreeMap<ExecutionId, Runs>,
    /// Whose each idempotency key is.
    keys: BTreeMap<String, (ExecutionId, Run, UnitKey)>,
}

/// What is known of one run of an execution.
#[derive(Debug)]
pub struct Tracked {
    pub definition: Arc<Definition>,
    pub run: Run,
    pub events: Vec<Recorded>,
    /// How it ended, and the execution with it.
    pub ended: Option<Status>,
    /// It ended by continuing as new: the input of the next run.
    pub continues: Option<Json>,
    /// Every delivery that was recorded.
    pub dispatched: BTreeMap<Token, Dispatched>,
    /// The results that were recorded as such, by their delivery.
    pub results: BTreeMap<Token, Seq>,
    /// What each unit was given, and its key.
    pub scheduled: BTreeMap<UnitKey, Scheduled>,
    /// Attempts that wait for a worker: the task rows of this execution. With the time since when.
    pub(super) queued: BTreeMap<UnitKey, (u32, ClusterMs)>,
    settled: BTreeSet<UnitKey>,
    succeeded: BTreeSet<UnitKey>,
    /// Units that wait for a time.
    pub(super) waiting: BTreeMap<UnitKey, ClusterMs>,
    uncertain: BTreeSet<Token>,
    cancelled: bool,
    /// What is under way, and why it ends.
    pub(super) course: Course,
    /// Steps that wait for a signal for as long as it takes.
    awaits: BTreeMap<UnitKey, SignalName>,
    pub(super) parked: bool,
}

/// A recorded delivery.
#[derive(Clone, Debug, PartialEq)]
pub struct Dispatched {
    pub unit: UnitKey,
    pub attempt: u32,
    pub session: SessionId,
    pub seq: Seq,
}

/// What a unit was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Scheduled {
    pub input: Json,
    pub idempotency_key: String,
    pub attempt: u32,
}

impl Tracked {
    /// The number of its last event.
    pub fn last(&self) -> Seq {
        Seq(self.events.len() as u64)
    }

    /// Where it ends so far.
    pub fn position(&self) -> Position {
        Position { run: self.run, seq: self.last() }
    }

    /// Whether some step of it begins a new run, and signals can be sent to it.
    pub fn may_be_carried(&self) -> bool {
        !self.definition.signals.is_empty()
            && self.definition.steps.iter().any(|step| matches!(step.kind, StepKind::ContinueAsNew(_)))
    }

    /// What it was given.
    pub fn input(&self) -> Option<&Json> {
        match &self.events.first()?.event {
            Event::WorkflowCreated { input, .. } => Some(input),
            _ => None,
        }
    }

    /// Whether somebody asked for its end.
    pub fn cancel_requested(&self) -> bool {
        self.cancelled
    }

    /// Whether it takes nothing in any more.
    pub fn winds_down(&self) -> bool {
        self.course.winds_down() || self.ended.is_some()
    }

    /// Whether its end at once is asked for, and waits for its children's, or for its parent to record it.
    pub fn is_terminated_with_others(&self) -> bool {
        let is_child =
            matches!(self.events.first().map(|e| &e.event), Some(Event::WorkflowCreated { parent: Some(_), .. }));
        let has = |is: fn(&Event) -> bool| self.events.iter().any(|recorded| is(&recorded.event));
        let family = is_child || has(|event| matches!(event, Event::ChildStarted { .. }));
        family && has(|event| matches!(event, Event::TerminateRequested { .. }))
    }

    /// A signal that some step waits for and that will not come unless somebody sends it; whether it is an update.
    pub fn waits_for(&self) -> Option<(SignalName, bool)> {
        let name = self.awaits.values().next().filter(|_| !self.winds_down())?;
        Some((name.clone(), self.definition.updates.contains_key(name)))
    }

    /// How often that attempt was handed out.
    pub fn deliveries(&self, unit: &str, attempt: u32) -> usize {
        self.dispatched.values().filter(|d| d.unit.as_str() == unit && d.attempt == attempt).count()
    }

    /// The output of a completed one, the error of a failed one.
    pub fn terminal(&self) -> Option<&Event> {
        self.ended.and(self.events.last()).map(|e| &e.event)
    }
}

impl HistoryCheck {
    /// What is known of that execution's newest run.
    pub fn get(&self, id: &ExecutionId) -> Option<&Tracked> {
        self.executions.get(id)?.newest()
    }

    /// All runs of that execution.
    pub fn runs(&self, id: &ExecutionId) -> Option<&Runs> {
        self.executions.get(id)
    }

    /// The newest runs of all executions.
    pub fn all(&self) -> impl Iterator<Item = (&ExecutionId, &Tracked)> {
        self.executions.iter().filter_map(|(id, runs)| Some((id, runs.newest()?)))
    }

    /// All executions, with all their runs.
    pub fn all_runs(&self) -> impl Iterator<Item = (&ExecutionId, &Runs)> {
        self.executions.iter()
    }

    pub fn on_commit(&mut self, committed: &Committed<'_>, marks: &mut Coverage) -> Checked {
        let groups = committed.commit.changes.iter().filter_map(|change| match change {
            Change::Group { group, repeated: false, .. } => Some(group),
            _ => None,
        });
        for group in groups {
            for member in &group.members {
                self.on_member(member, committed, marks)?;
            }
            mark_group(group, marks);
        }
        Ok(())
    }

    fn on_member(&mut self, member: &Member, committed: &Committed<'_>, marks: &mut Coverage) -> Checked {
        let id = &member.execution;
        let mut events = Vec::with_capacity(member.events.len());
        for stored in &member.events {
            let event = Recorded::decode(&stored.bytes)
                .map_err(|e| Violation::safety(CHECK, format!("an event of {id} cannot be read: {e}")))?;
            ensure!(
                event.seq == stored.seq && event.at_ms == stored.at_ms,
                CHECK,
                "an event of {id} says {} at {:?}, and its row {} at {:?}",
                event.seq,
                event.at_ms,
                stored.seq,
                stored.at_ms
            );
            events.push((stored.run, event));
        }
        let runs = self.executions.entry(id.clone()).or_default();
        let was_parked = runs.newest_mut().is_some_and(|newest| std::mem::take(&mut newest.parked));
        let scheduled: BTreeSet<&UnitKey> = events.iter().filter_map(|(_, e)| scheduled_unit(&e.event)).collect();
        let direct = |e: &Event| matches!(e, Event::StepDispatched { step, .. } if scheduled.contains(step));
        if events.iter().any(|(_, e)| direct(&e.event)) {
            marks.hit(Mark::DirectDispatch);
        }
        for (run, event) in &events {
            if let Event::StepScheduled { step, idempotency_key, .. } = &event.event {
                let own = (id.clone(), *run, step.clone());
                let whose = self.keys.entry(idempotency_key.clone()).or_insert_with(|| own.clone());
                ensure!(*whose == own, CHECK, "{own:?} has the idempotency key of {whose:?}");
            }
            if was_parked && matches!(event.event, Event::TimerFired { .. }) {
                marks.hit(Mark::Woken);
            }
            runs.take(id, *run, event, committed.book)?.on_event(id, event.clone(), committed, marks)?;
        }
        let Some(tracked) = runs.newest_mut() else {
            return Err(Violation::safety(CHECK, format!("{id} is written, and has no events")));
        };
        ensure!(tracked.continues.is_none(), CHECK, "{id} continued as new, and the next run did not begin with it");
        tracked.rows_follow(id, committed.store)?;
        let status = member.summary.as_ref().map(|s| s.status);
        match (tracked.ended, member.owner) {
            (Some(ended), OwnerChange::End) => {
                ensure!(status == Some(ended), CHECK, "{id} ended {ended:?}, and its summary says {status:?}");
            }
            (None, OwnerChange::Keep | OwnerChange::Wake(_)) => {
                let open = status.is_none_or(|s| !s.is_terminal());
                ensure!(open, CHECK, "{id} runs, and its summary says {status:?}");
                if let OwnerChange::Wake(Wake::At(_) | Wake::Never) = member.owner {
                    tracked.parked = true;
                    marks.hit(Mark::Parked);
                }
            }
            (ended, owner) => {
                return Err(Violation::safety(CHECK, format!("{id} ended: {ended:?}, and its owner row: {owner:?}")));
            }
        }
        Ok(())
    }

    pub fn at_end(&self, store: &ModelStore) -> Checked {
        ensure!(
            self.executions.keys().eq(store.executions().keys()),
            CHECK,
            "the executions of the store are not those that were written"
        );
        for (id, runs) in &self.executions {
            for tracked in runs.iter() {
                let rows = store.run_history(id, tracked.run);
                let same = rows.len() == tracked.events.len()
                    && rows.iter().zip(&tracked.events).all(|(row, event)| row.seq == event.seq);
                ensure!(same, CHECK, "the stored history of {id}, run {}, is not what was written", tracked.run);
                super::replay::check(id, tracked)?;
            }
        }
        Ok(())
    }
}

fn scheduled_unit(event: &Event) -> Option<&UnitKey> {
    match event {
        Event::StepScheduled { step, .. } => Some(step),
        _ => None,
    }
}

fn mark_group(group: &Group, marks: &mut Coverage) {
    for change in &group.tasks {
        if let TaskChange::Insert(_) = change {
            marks.hit(Mark::Queued);
        }
    }
}

impl Tracked {
    pub(super) fn new(definition: Arc<Definition>, run: Run) -> Tracked {
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
            cancelled: false,
            course: Course::default(),
            awaits: BTreeMap::new(),
            parked: false,
        }
    }

    fn on_event(
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
        self.on_kind(&at, &recorded, committed, marks)?;
        self.course.on_event(&at, &self.definition, &recorded.event, marks)?;
        self.events.push(recorded);
        Ok(())
    }

    fn on_kind(&mut self, at: &str, recorded: &Recorded, committed: &Committed<'_>, marks: &mut Coverage) -> Checked {
        match &recorded.event {
            Event::WorkflowCreated { .. } | Event::WorkflowStarted => {}
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
            Event::StepDispatched { step, attempt, token, worker_session, .. } => {
                self.on_dispatch(at, recorded.seq, (step, *attempt, token, *worker_session))?;
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
                        self.on_result(at, step, token, recorded.seq, marks)?;
                    }
                    None if error.code == codes::TIMEOUT => marks.hit(Mark::AttemptTimedOut),
                    None if error.code == codes::QUEUE_TIMEOUT => marks.hit(Mark::QueueTimedOut),
                    None => {}
                }
                self.queued.remove(step);
                let evaluated = error.code == codes::EXPRESSION_ERROR || error.code == codes::LIMIT_EXCEEDED;
                ensure!(open || evaluated, CHECK, "{at}: attempt {attempt} of {step} was not under way");
            }
            Event::StepAttemptUncertain { step, attempt, token, .. } => {
                self.knows(at, token, step, *attempt)?;
                self.uncertain.insert(token.clone());
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
                if self.dispatched.iter().any(|(t, d)| !self.results.contains_key(t) && !self.settled.contains(&d.unit))
                {
                    marks.hit(Mark::CancelInFlight);
                }
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
            Event::TerminateRequested { .. } => self.cancelled = true,
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

    /// When it has run for as long as it may.
    pub(super) fn times_out(&self) -> Option<ClusterMs> {
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
        Ok(())
    }

    fn is_time(&self, at: &str, due: ClusterMs, recorded: &Recorded, committed: &Committed<'_>) -> Checked {
        ensure!(recorded.at_ms >= due, CHECK, "{at}: due at {due:?}, recorded at {:?}", recorded.at_ms);
        let clock = committed.store.clock();
        let early = committed.steady_clock && clock.0 + EARLY_MS < due.0;
        ensure!(!early, CHECK, "{at}: due at {due:?}, and the database's clock shows {clock:?}");
        Ok(())
    }

    fn on_dispatch(
        &mut self,
        at: &str,
        seq: Seq,
        (unit, attempt, token, session): (&UnitKey, u32, &Token, SessionId),
    ) -> Checked {
        let open = self.scheduled.get(unit).is_some_and(|s| s.attempt == attempt);
        ensure!(open, CHECK, "{at}: attempt {attempt} of {unit} is handed out and was not scheduled");
        ensure!(!self.settled.contains(unit), CHECK, "{at}: {unit} is handed out after its end");
        let dispatched = Dispatched { unit: unit.clone(), attempt, session, seq };
        self.queued.remove(unit);
        let before = self.dispatched.insert(token.clone(), dispatched);
        ensure!(before.is_none(), CHECK, "{at}: {token} is handed out twice");
        Ok(())
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
        if self.uncertain.contains(token) {
            marks.hit(Mark::LateResultAccepted);
        }
        Ok(())
    }
}
