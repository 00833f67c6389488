//! What an event does to a state.

use crate::definition::{Place, UnitPath};
use crate::execution::event::{CompensationOutcome, Event, Json, Recorded, Sent, TaskError};
use crate::execution::fan::Fan;
use crate::execution::state::{
    Abort, Asked, Compensation, Delivery, End, Handler, Hold, Phase, Received, Settled, State, Unit, UnitStatus,
};
use crate::id::{ExecutionId, HandlerKey, Seq, SignalName, StepId, UnitKey};
use crate::time::ClusterMs;
use std::sync::Arc;
use uuid::Uuid;

impl State {
    /// Takes one more event in. Total: an event that means nothing here changes the number and time alone.
    pub fn apply(&mut self, recorded: &Recorded) {
        self.last = recorded.seq;
        self.last_at = self.last_at.max(recorded.at_ms);
        let at = recorded.at_ms;
        match &recorded.event {
            Event::WorkflowCreated { .. } => {}
            Event::WorkflowStarted => {
                if self.phase == Phase::Created {
                    self.phase = Phase::Running;
                }
            }
            Event::StepScheduled { step, attempt, input, redelivery, .. } => {
                let status = UnitStatus::Scheduled { seq: recorded.seq, at, redelivery: *redelivery };
                let last_error = self.units.get(step).and_then(|before| before.last_error.clone());
                let (attempt, input, since) = (*attempt, Some(input.clone()), at);
                self.open(step, Unit { attempt, since, last_error, input, status });
            }
            Event::StepSkipped { step, .. } => self.end_well(step, UnitStatus::Skipped, Json::default(), at),
            Event::StepDispatched {
                step,
                attempt,
                token,
                worker_id,
                worker_session,
                deadline_ms,
                redelivery: lost,
            } => {
                let delivery =
                    Delivery { unit: step.clone(), attempt: *attempt, dispatched: recorded.seq, settled: None };
                self.deliveries.insert(token.id, delivery);
                // Of another attempt than the scheduled one it means nothing: no result could settle it.
                if let Some(unit) = self.units.get_mut(step).filter(|unit| unit.attempt == *attempt)
                    && let UnitStatus::Scheduled { redelivery, .. } = unit.status
                {
                    unit.since = at;
                    unit.status = UnitStatus::Dispatched {
                        token: token.id,
                        worker: worker_id.clone(),
                        session: *worker_session,
                        deadline: *deadline_ms,
                        redelivery: redelivery || *lost,
                    };
                }
            }
            Event::StepSucceeded { step, output, token, .. } => {
                self.settle(step, token.as_ref().map(|t| t.id));
                self.end_well(step, UnitStatus::Succeeded, output.clone(), at);
            }
            Event::StepAttemptFailed { step, error, token, .. } => {
                self.settle(step, token.as_ref().map(|t| t.id));
                if let Some(unit) = self.set(step, UnitStatus::AttemptFailed { error: error.clone() }, at) {
                    unit.last_error = Some(Arc::new(error.clone()));
                }
            }
            Event::StepAttemptUncertain { step, .. } => {
                self.set(step, UnitStatus::Uncertain, at);
            }
            Event::RetryScheduled { step, next_attempt, fire_at_ms, .. } => {
                let status = UnitStatus::Retrying { next_attempt: *next_attempt, fire_at: *fire_at_ms };
                self.set(step, status, at);
            }
            Event::StepFailed { step, error } => self.fail(step, error, at),
            Event::StepCancelled { step } => self.end_unit(step, UnitStatus::Cancelled, at),
            Event::TimerStarted { step, fire_at_ms } => {
                let status = UnitStatus::Sleeping { fire_at: *fire_at_ms };
                self.open(step, Unit::without_attempts(status, at));
            }
            Event::TimerFired { step } => self.end_well(step, UnitStatus::Succeeded, Json::default(), at),
            Event::StepFanOut { step, items } => {
                self.fans.insert(step.clone(), Fan::new(items.clone()));
                self.open(step, Unit::without_attempts(UnitStatus::FannedOut, at));
            }
            Event::StepFanIn { step } => {
                if let Some(fan) = self.fans.get_mut(step) {
                    let outputs = Arc::new(fan.gather());
                    self.end_well(step, UnitStatus::Succeeded, outputs, at);
                }
            }
            Event::SignalAwaited { step, signal, deadline_ms } => {
                let status = UnitStatus::Awaiting { signal: signal.clone(), deadline: *deadline_ms };
                self.open(step, Unit::without_attempts(status, at));
            }
            Event::SignalConsumed { step, signal, received } => {
                if let Some(payload) = self.consume(signal, *received) {
                    self.end_well(step, UnitStatus::Succeeded, payload, at);
                }
            }
            Event::SignalReceived { signal, payload, signal_id, carried } => {
                self.know(recorded.seq, signal, signal_id.as_ref(), None);
                self.receive(signal, Received { seq: recorded.seq, payload: payload.clone(), carried: *carried });
            }
            Event::UpdateAccepted { update, payload, update_id, result } => {
                self.know(recorded.seq, update, update_id.as_ref(), Some(result));
                self.receive(update, Received { seq: recorded.seq, payload: payload.clone(), carried: None });
            }
            Event::HandlerStarted { handler } => self.start_handler(handler),
            Event::HandlerCompleted { handler } | Event::HandlerFailed { handler, .. } => self.end_handler(handler),
            Event::ChildScheduled { step, attempt, child, workflow, version, input } => {
                let (child, workflow, version) = (child.clone(), workflow.clone(), version.clone());
                let status = UnitStatus::ChildScheduled { child, workflow, version };
                let last_error = self.units.get(step).and_then(|before| before.last_error.clone());
                self.open(step, Unit { attempt: *attempt, since: at, last_error, input: Some(input.clone()), status });
            }
            Event::ChildStarted { step, child, deadline_ms, .. } => {
                if self.is_child(step, child) {
                    self.children += 1;
                    self.set(step, UnitStatus::Child { child: child.clone(), deadline: *deadline_ms, asked: None }, at);
                }
            }
            Event::ChildCompleted { step, child, output, .. } => {
                if self.is_child(step, child) {
                    self.end_well(step, UnitStatus::Succeeded, output.clone(), at);
                }
            }
            Event::ChildFailed { step, child, error, .. } => {
                if !self.is_child(step, child) {
                } else if self.is_running() {
                    if let Some(unit) = self.set(step, UnitStatus::AttemptFailed { error: error.clone() }, at) {
                        unit.last_error = Some(Arc::new(error.clone()));
                    }
                } else {
                    self.end_unit(step, UnitStatus::Cancelled, at);
                }
            }
            Event::ChildEndRequested { step, child, terminate, timed_out } => {
                let now = match (terminate, timed_out) {
                    (true, _) => Asked::Terminated,
                    (false, true) => Asked::TimedOut,
                    (false, false) => Asked::Cancelled,
                };
                if let Some(Unit { status: UnitStatus::Child { child: of, asked, .. }, .. }) = self.units.get_mut(step)
                    && of == child
                {
                    *asked = (*asked).max(Some(now));
                }
            }
            Event::ContinueSuggested { .. } => self.continue_suggested = true,
            Event::StaleResultIgnored { token, .. } => {
                if let Some(delivery) = self.deliveries.get_mut(&token.id) {
                    delivery.settled.get_or_insert(Settled::Stale);
                }
            }
            Event::WorkflowHeld { reason, repeats } => self.hold(reason, repeats, at),
            Event::WorkflowRecovered { .. } => self.recover(at),
            // Whoever wants the end has decided what becomes of what is held.
            Event::CancelRequested { reason } => {
                self.held = None;
                self.wind_down(Abort::Cancelled { reason: reason.clone() });
            }
            Event::TerminateRequested { reason } => {
                self.held = None;
                if !self.has_ended() {
                    self.phase = Phase::WindingDown(Abort::Terminated { reason: reason.clone() });
                }
            }
            Event::WorkflowTimeoutReached => self.wind_down(Abort::TimedOut),
            Event::LimitReached { error, step: Some(step), .. } if !self.is_running() => self.fail(step, error, at),
            Event::LimitReached { error, .. }
            | Event::ContractViolated { error, .. }
            | Event::ResultFailed { error } => {
                self.wind_down(Abort::Failed(error.clone()));
            }
            Event::CompensationStarted { steps, .. } => {
                self.compensation = Some(Compensation { steps: steps.clone(), outcome: None });
            }
            Event::CompensationCompleted => self.end_compensation(CompensationOutcome::Completed),
            Event::CompensationFailed { .. } => self.end_compensation(CompensationOutcome::Failed),
            Event::WorkflowCompleted { output, .. } => self.end_with(End::Completed { output: output.clone() }),
            Event::WorkflowFailed { error, .. } => self.end_with(End::Failed { error: error.clone() }),
            Event::WorkflowCancelled { .. } => {
                let reason = self.cancel_reason().map(str::to_owned);
                self.end_with(End::Cancelled { reason });
            }
            Event::WorkflowTimedOut { .. } => self.end_with(End::TimedOut),
            // What nothing took is the next run's.
            Event::WorkflowContinuedAsNew { .. } => self.phase = Phase::Ended(End::Continued),
            Event::WorkflowTerminated { .. } => {
                let reason = self.cancel_reason().map(str::to_owned);
                self.end_with(End::Terminated { reason });
            }
        }
    }

    fn hold(&mut self, reason: &str, repeats: &[UnitKey], at: ClusterMs) {
        if self.has_ended() {
            return;
        }
        self.held.get_or_insert_with(|| Hold { since: at, reason: reason.to_owned() });
        for key in repeats {
            // One that is out says so by itself when it comes to be scheduled again.
            if let Some(Unit { status: UnitStatus::Scheduled { redelivery, .. }, .. }) = self.units.get_mut(key) {
                *redelivery = true;
            }
        }
    }

    /// It goes on. While it was held nobody could take what waited for a worker: that begins to wait now.
    fn recover(&mut self, now: ClusterMs) {
        if self.held.take().is_none() {
            return;
        }
        for unit in self.units.values_mut() {
            if let UnitStatus::Scheduled { at, .. } = &mut unit.status {
                (*at, unit.since) = (now, now);
            }
        }
    }

    fn end_with(&mut self, end: End) {
        self.phase = Phase::Ended(end);
        self.buffered.clear();
    }

    fn wind_down(&mut self, abort: Abort) {
        if self.is_running() {
            self.phase = Phase::WindingDown(abort);
        }
    }

    /// A unit begins, or goes on with another attempt. An item of a list that is not there means nothing.
    fn open(&mut self, key: &UnitKey, unit: Unit) {
        let path = UnitPath::parse(key);
        if let (false, Some(index)) = (path.compensates, path.index) {
            let Some(fan) = self.fans.get_mut(&path.whole()) else { return };
            if !fan.waits(index) && !fan.is_open(index) {
                return;
            }
            if fan.waits(index) {
                fan.begin(index);
            }
        }
        self.units.insert(key.clone(), unit);
    }

    /// Whether the unit waits for this child.
    fn is_child(&self, step: &UnitKey, child: &ExecutionId) -> bool {
        self.units.get(step).is_some_and(|unit| match &unit.status {
            UnitStatus::ChildScheduled { child: of, .. } | UnitStatus::Child { child: of, .. } => of == child,
            _ => false,
        })
    }

    /// Changes the status of a unit that has not ended.
    fn set(&mut self, step: &UnitKey, status: UnitStatus, at: ClusterMs) -> Option<&mut Unit> {
        let unit = self.units.get_mut(step).filter(|unit| !unit.status.has_ended())?;
        unit.status = status;
        unit.since = at;
        Some(unit)
    }

    fn end_well(&mut self, key: &UnitKey, status: UnitStatus, output: Json, at: ClusterMs) {
        let path = UnitPath::parse(key);
        let succeeded = status == UnitStatus::Succeeded;
        if path.compensates {
            return self.end_unit(key, status, at);
        }
        if let Some(index) = path.index {
            let Some(fan) = self.fans.get_mut(&path.whole()) else { return };
            fan.succeed(index, output);
            // Of an item only the output is kept: there may be thousands.
            self.units.remove(key);
        } else {
            let outputs = match path.handler {
                None => &mut self.outputs,
                Some(handler) => match self.handlers.get_mut(handler) {
                    Some(handler) => &mut handler.outputs,
                    None => return,
                },
            };
            outputs.insert(StepId::new(path.step), output);
            self.end_unit(key, status, at);
        }
        if succeeded && path.handler.is_none() {
            self.succeeded.push(key.clone());
        }
    }

    fn end_unit(&mut self, key: &UnitKey, status: UnitStatus, at: ClusterMs) {
        let path = UnitPath::parse(key);
        if let (false, Some(index)) = (path.compensates, path.index)
            && let Some(fan) = self.fans.get_mut(&path.whole())
        {
            fan.end(index);
        }
        let ended = Unit::without_attempts(status, at);
        match self.units.get_mut(key) {
            Some(unit) => *unit = Unit { attempt: unit.attempt, ..ended },
            None => drop(self.units.insert(key.clone(), ended)),
        }
    }

    /// A unit failed for good. That of a step of the workflow, or of an event's handler, ends the execution; an item's
    /// fails its `for` step, which is decided next.
    fn fail(&mut self, key: &UnitKey, error: &TaskError, at: ClusterMs) {
        self.end_unit(key, UnitStatus::Failed { error: error.clone() }, at);
        let path = UnitPath::parse(key);
        if !path.cleans_up() && path.index.is_none() {
            let step = Some(StepId::new(path.step));
            self.wind_down(Abort::Failed(TaskError { step, ..error.clone() }));
        }
    }

    /// Of another step's delivery it means nothing: that one's unit would wait for a result that none may give any more.
    fn settle(&mut self, step: &UnitKey, token: Option<Uuid>) {
        if let Some(delivery) = token.and_then(|t| self.deliveries.get_mut(&t)).filter(|d| d.unit == *step) {
            delivery.settled.get_or_insert(Settled::Accepted);
        }
    }

    /// Remembers what a sender was told.
    fn know(&mut self, seq: Seq, name: &SignalName, key: Option<&String>, result: Option<&Json>) {
        if let Some(key) = key {
            let sent = Sent { name: name.clone(), run: self.identity.run, seq, result: result.cloned() };
            self.sent.entry(key.clone()).or_insert(sent);
        }
    }

    fn receive(&mut self, name: &SignalName, received: Received) {
        self.buffered.entry(name.clone()).or_default().push_back(received);
    }

    /// Takes a signal out of the buffer.
    fn consume(&mut self, signal: &SignalName, received: Seq) -> Option<Json> {
        let buffered = self.buffered.get_mut(signal)?;
        let at = buffered.iter().position(|one| one.seq == received)?;
        let payload = buffered.remove(at).map(|one| one.payload);
        if buffered.is_empty() {
            self.buffered.remove(signal);
        }
        payload
    }

    fn start_handler(&mut self, key: &HandlerKey) {
        let event = match Place::of_handler(key.as_str()) {
            Some(Place::Event { signal, received }) => match self.consume(&SignalName::new(signal), received) {
                Some(payload) => Some(payload),
                None => return,
            },
            Some(_) => None,
            None => return,
        };
        self.handlers.insert(key.clone(), Handler { event, outputs: Default::default(), ended: false });
    }

    fn end_handler(&mut self, key: &HandlerKey) {
        let Some(handler) = self.handlers.get_mut(key) else { return };
        handler.ended = true;
        // There may be thousands of events: nothing is kept of those that are done with.
        if let Some(Place::Event { .. }) = Place::of_handler(key.as_str()) {
            let prefix = format!("{key}/");
            self.units.retain(|unit, _| !unit.as_str().starts_with(&prefix));
            self.fans.retain(|unit, _| !unit.as_str().starts_with(&prefix));
            self.handlers.remove(key);
        }
    }

    fn end_compensation(&mut self, outcome: CompensationOutcome) {
        if let Some(compensation) = &mut self.compensation {
            compensation.outcome.get_or_insert(outcome);
        }
    }
}
