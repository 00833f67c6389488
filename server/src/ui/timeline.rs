//! What happened to each step of an execution, over time.
//!
//! [`Timeline::of`] folds a history to one row for each step, item, compensation and step of a handler, with marks on
//! it, and one for what was sent to it; `place` puts them in order, `draw` makes pictures of them.

mod draw;
mod place;

use super::html::{Html, html};
use orbit_core::execution::event::{Event, Recorded, TaskError};
use orbit_core::id::{SignalName, UnitKey};
use orbit_core::time::ClusterMs;
use place::Places;
use serde_json::Value;

/// The rows of an execution, in the order of its definition.
pub struct Timeline {
    rows: Vec<Row>,
    begin: i64,
    end: i64,
    /// Nothing more will happen.
    over: bool,
}

/// One step.
#[derive(Debug, PartialEq)]
struct Row {
    step: String,
    /// What it does.
    what: Html,
    state: State,
    marks: Vec<Mark>,
    open: Open,
    attempts: u32,
    redeliveries: u32,
    /// The child that it ran as, last.
    child: Option<String>,
}

/// How far a step is.
#[derive(Clone, Debug, PartialEq)]
enum State {
    /// Nothing has happened to it.
    Waiting,
    /// For a worker.
    Queued,
    Running {
        worker: String,
    },
    /// For the next attempt, until then.
    Retrying(i64),
    Sleeping(i64),
    /// As another execution.
    Child,
    /// For a signal.
    Awaiting(String),
    /// For so many items.
    Items(usize),
    /// So many signals and updates.
    Received(u64),
    Succeeded,
    Failed(String),
    Skipped,
    Cancelled,
}

/// What began and has not ended.
#[derive(Debug, Default, PartialEq)]
struct Open {
    queue: Option<i64>,
    run: Option<(i64, String)>,
    retry: Option<i64>,
    timer: Option<i64>,
    wait: Option<(i64, String)>,
    items: Option<i64>,
}

/// Something to draw.
#[derive(Clone, Debug, PartialEq)]
enum Mark {
    /// Waited for a worker.
    Queue {
        from: i64,
        to: i64,
    },
    /// Was at a worker.
    Run {
        from: i64,
        to: i64,
        attempt: u32,
        worker: String,
        how: How,
    },
    /// Waited for the next attempt.
    Retry {
        from: i64,
        to: i64,
    },
    Timer {
        from: i64,
        to: i64,
    },
    /// Waited for a signal.
    Wait {
        from: i64,
        to: i64,
        signal: String,
    },
    /// Its items were under way.
    Items {
        from: i64,
        to: i64,
    },
    /// Happened at once.
    Point {
        at: i64,
        how: How,
        text: String,
    },
    /// Was offered again, since what became of the delivery before is not known.
    Redelivery {
        at: i64,
    },
}

/// How something went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Open,
    Succeeded,
    Failed,
    Uncertain,
    Cancelled,
    Skipped,
    Stale,
    Received,
}

impl How {
    fn class(self) -> &'static str {
        match self {
            How::Open => "open",
            How::Succeeded => "succeeded",
            How::Failed => "failed",
            How::Uncertain => "uncertain",
            How::Cancelled => "cancelled",
            How::Skipped => "skipped",
            How::Stale => "stale",
            How::Received => "received",
        }
    }

    fn text(self) -> &'static str {
        match self {
            How::Open => "running",
            How::Uncertain => "outcome not known",
            other => other.class(),
        }
    }
}

impl Row {
    fn new(step: &str, what: Html) -> Row {
        Row {
            step: step.into(),
            what,
            state: State::Waiting,
            marks: Vec::new(),
            open: Open::default(),
            attempts: 0,
            redeliveries: 0,
            child: None,
        }
    }

    /// Ends whatever is open.
    fn close(&mut self, to: i64, how: How) {
        if let Some(from) = self.open.queue.take() {
            self.marks.push(Mark::Queue { from, to });
        }
        if let Some((from, worker)) = self.open.run.take() {
            self.marks.push(Mark::Run { from, to, attempt: self.attempts, worker, how });
        }
        if let Some(from) = self.open.retry.take() {
            self.marks.push(Mark::Retry { from, to });
        }
        if let Some(from) = self.open.timer.take() {
            self.marks.push(Mark::Timer { from, to });
        }
        if let Some((from, signal)) = self.open.wait.take() {
            self.marks.push(Mark::Wait { from, to, signal });
        }
        if let Some(from) = self.open.items.take() {
            self.marks.push(Mark::Items { from, to });
        }
    }

    fn point(&mut self, at: i64, how: How, text: impl Into<String>) {
        self.marks.push(Mark::Point { at, how, text: text.into() });
    }

    /// Nothing has happened to it.
    fn is_untouched(&self) -> bool {
        self.state == State::Waiting
    }

    /// It has ended the run.
    fn ended_run(&mut self, at: i64, next: u32) {
        self.point(at, How::Succeeded, format!("went on as run {next}"));
        self.state = State::Succeeded;
    }

    fn failed(&mut self, at: i64, error: &TaskError) {
        // Where it was at a worker, the bar tells.
        if self.open.run.is_none() {
            self.point(at, How::Failed, &error.code);
        }
        self.close(at, How::Failed);
        self.state = State::Failed(error.code.clone());
    }

    fn apply(&mut self, at: i64, event: &Event) {
        match event {
            Event::StepScheduled { attempt, redelivery, .. } => {
                self.close(at, How::Uncertain);
                self.attempts = *attempt;
                self.open.queue = Some(at);
                self.state = State::Queued;
                if *redelivery {
                    self.redeliveries += 1;
                    self.marks.push(Mark::Redelivery { at });
                }
            }
            Event::StepDispatched { attempt, worker_id, .. } => {
                self.close(at, How::Uncertain);
                self.attempts = *attempt;
                self.open.run = Some((at, worker_id.to_string()));
                self.state = State::Running { worker: worker_id.to_string() };
            }
            Event::StepSucceeded { token, .. } => {
                if self.open.run.is_none() {
                    let text = match (token, &self.open.wait) {
                        (Some(_), _) => "result of an earlier delivery",
                        (None, Some(_)) => "no signal came: its `otherwise`",
                        (None, None) => "computed",
                    };
                    self.point(at, How::Succeeded, text);
                }
                self.close(at, How::Succeeded);
                self.state = State::Succeeded;
            }
            Event::StepAttemptFailed { error, .. } => self.failed(at, error),
            Event::StepAttemptUncertain { .. } => self.close(at, How::Uncertain),
            Event::RetryScheduled { fire_at_ms, .. } => {
                self.open.retry = Some(at);
                self.state = State::Retrying(fire_at_ms.0);
            }
            Event::StepFailed { error, .. } => {
                // Most often the last attempt's failure was told already.
                match self.state {
                    State::Failed(_) => self.state = State::Failed(error.code.clone()),
                    _ => self.failed(at, error),
                }
            }
            Event::StepSkipped { reason, .. } => {
                self.point(at, How::Skipped, reason);
                self.state = State::Skipped;
            }
            Event::StepCancelled { .. } => {
                self.close(at, How::Cancelled);
                self.state = State::Cancelled;
            }
            Event::TimerStarted { fire_at_ms, .. } => {
                self.open.timer = Some(at);
                self.state = State::Sleeping(fire_at_ms.0);
            }
            Event::TimerFired { .. } => {
                self.close(at, How::Succeeded);
                self.state = State::Succeeded;
            }
            Event::SignalAwaited { signal, .. } => {
                self.open.wait = Some((at, signal.to_string()));
                self.state = State::Awaiting(signal.to_string());
            }
            Event::SignalConsumed { signal, received, .. } => {
                self.point(at, How::Succeeded, format!("took {signal} of event {received}"));
                self.close(at, How::Succeeded);
                self.state = State::Succeeded;
            }
            Event::ChildScheduled { attempt, .. } => self.attempts = *attempt,
            Event::ChildStarted { child, .. } => {
                self.open.run = Some((at, child.to_string()));
                self.child = Some(child.to_string());
                self.state = State::Child;
            }
            Event::ChildCompleted { .. } => {
                self.close(at, How::Succeeded);
                self.state = State::Succeeded;
            }
            Event::ChildFailed { error, .. } => self.failed(at, error),
            Event::ChildEndRequested { timed_out, .. } => {
                let why = if *timed_out { "its time is over: the child is to end" } else { "the child is to end" };
                self.point(at, How::Cancelled, why);
            }
            Event::StepFanOut { items, .. } => {
                self.open.items = Some(at);
                self.state = State::Items(items.len());
            }
            Event::StepFanIn { .. } => {
                self.close(at, How::Succeeded);
                self.state = State::Succeeded;
            }
            Event::StaleResultIgnored { .. } => self.point(at, How::Stale, "a late result that nothing waited for"),
            _ => {}
        }
    }
}

/// The step that an event is about.
pub fn step_of(event: &Event) -> Option<&UnitKey> {
    match event {
        Event::StepScheduled { step, .. }
        | Event::StepSkipped { step, .. }
        | Event::StepDispatched { step, .. }
        | Event::StepSucceeded { step, .. }
        | Event::StepAttemptFailed { step, .. }
        | Event::StepAttemptUncertain { step, .. }
        | Event::RetryScheduled { step, .. }
        | Event::StepFailed { step, .. }
        | Event::StepCancelled { step }
        | Event::TimerStarted { step, .. }
        | Event::TimerFired { step }
        | Event::StepFanOut { step, .. }
        | Event::StepFanIn { step }
        | Event::ChildScheduled { step, .. }
        | Event::ChildStarted { step, .. }
        | Event::ChildCompleted { step, .. }
        | Event::ChildFailed { step, .. }
        | Event::ChildEndRequested { step, .. }
        | Event::SignalAwaited { step, .. }
        | Event::SignalConsumed { step, .. }
        | Event::CompensationFailed { step, .. }
        | Event::StaleResultIgnored { step, .. } => Some(step),
        Event::WorkflowCreated { .. }
        | Event::WorkflowStarted
        | Event::WorkflowHeld { .. }
        | Event::WorkflowRecovered { .. }
        | Event::CancelRequested { .. }
        | Event::LimitReached { .. }
        | Event::ContractViolated { .. }
        | Event::WorkflowCompleted { .. }
        | Event::WorkflowFailed { .. }
        | Event::WorkflowCancelled { .. }
        | Event::WorkflowTimedOut { .. }
        | Event::WorkflowTerminated { .. }
        | Event::WorkflowContinuedAsNew { .. }
        | Event::ContinueSuggested { .. }
        | Event::SignalReceived { .. }
        | Event::UpdateAccepted { .. }
        | Event::HandlerStarted { .. }
        | Event::HandlerCompleted { .. }
        | Event::HandlerFailed { .. }
        | Event::ResultFailed { .. }
        | Event::TerminateRequested { .. }
        | Event::WorkflowTimeoutReached
        | Event::CompensationStarted { .. }
        | Event::CompensationCompleted => None,
    }
}

/// What an event brings from outside: a signal or an update.
fn message_of(event: &Event) -> Option<&SignalName> {
    match event {
        Event::SignalReceived { signal: name, .. } | Event::UpdateAccepted { update: name, .. } => Some(name),
        _ => None,
    }
}

impl Timeline {
    /// The rows of a history. `definition` is the workflow's document; `now` is the end of what is open still; `over`
    /// tells whether the execution has ended.
    pub fn of(events: &[Recorded], definition: &Value, now: ClusterMs, over: bool) -> Timeline {
        let mut places = Places::of(definition);
        let (mut messages, mut received) = (Row::new("signals", html!("what was sent to it")), 0);
        for recorded in events {
            let at = recorded.at_ms.0;
            if let Some(name) = message_of(&recorded.event) {
                received += 1;
                messages.state = State::Received(received);
                messages.point(at, How::Received, format!("{name} (event {})", recorded.seq));
            }
            if let Some(unit) = step_of(&recorded.event) {
                places.row(unit).apply(at, &recorded.event);
            }
        }
        if let Some((at, next)) = events.last().and_then(|last| match &last.event {
            Event::WorkflowContinuedAsNew { next_run, .. } => Some((last.at_ms.0, next_run.0)),
            _ => None,
        }) {
            places.continued(at, next);
        }
        let mut rows = places.in_order();
        if received > 0 {
            rows.insert(0, messages);
        }
        let begin = events.first().map_or(now.0, |event| event.at_ms.0);
        let end = events.last().map_or(now.0, |event| event.at_ms.0.max(now.0)).max(begin + 1);
        for row in &mut rows {
            row.close(end, How::Open);
        }
        Timeline { rows, begin, end, over }
    }
}

#[cfg(test)]
mod tests;
