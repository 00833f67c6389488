//! What happened to each step of an execution, over time.
//!
//! [`Timeline::of`] folds a history to one row for each step, with marks on it; [`Timeline::render`] draws each row as
//! a picture as wide as there is room. Places are percentages of the time shown, so no script has to measure anything.

use super::html::{Html, html};
use super::{value, workflows};
use orbit_core::execution::event::{Event, Recorded, TaskError};
use orbit_core::id::UnitKey;
use orbit_core::time::ClusterMs;
use serde_json::Value;
use std::collections::BTreeMap;

/// Rows of one picture.
const MAX_ROWS: usize = 300;

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
    }

    fn point(&mut self, at: i64, how: How, text: impl Into<String>) {
        self.marks.push(Mark::Point { at, how, text: text.into() });
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
                    let text = if token.is_some() { "result of an earlier delivery" } else { "computed" };
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
        | Event::StaleResultIgnored { step, .. } => Some(step),
        Event::WorkflowCreated { .. }
        | Event::WorkflowStarted
        | Event::CancelRequested { .. }
        | Event::LimitReached { .. }
        | Event::ContractViolated { .. }
        | Event::WorkflowCompleted { .. }
        | Event::WorkflowFailed { .. }
        | Event::WorkflowCancelled => None,
    }
}

impl Timeline {
    /// The rows of a history. `definition` is the workflow's document; `now` is the end of what is open still; `over`
    /// tells whether the execution has ended.
    pub fn of(events: &[Recorded], definition: &Value, now: ClusterMs, over: bool) -> Timeline {
        let steps = definition["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
        let steps = steps.iter().filter_map(|step| Some((step["id"].as_str()?, workflows::what(step))));
        let mut rows: Vec<Row> = steps.map(|(id, what)| Row::new(id, what)).collect();
        let mut places: BTreeMap<String, usize> =
            rows.iter().enumerate().map(|(index, row)| (row.step.clone(), index)).collect();
        for recorded in events {
            let Some(step) = step_of(&recorded.event) else { continue };
            let place = *places.entry(step.to_string()).or_insert_with(|| {
                rows.push(Row::new(step.as_str(), Html::new()));
                rows.len() - 1
            });
            rows[place].apply(recorded.at_ms.0, &recorded.event);
        }
        let begin = events.first().map_or(now.0, |event| event.at_ms.0);
        let end = events.last().map_or(now.0, |event| event.at_ms.0.max(now.0)).max(begin + 1);
        for row in &mut rows {
            row.close(end, How::Open);
        }
        Timeline { rows, begin, end, over }
    }

    /// A moment as a percentage of the time shown.
    fn percent(&self, at: i64) -> f64 {
        let share = (at - self.begin) as f64 / (self.end - self.begin) as f64;
        // A little room at both ends, for what happened at once.
        1.0 + share.clamp(0.0, 1.0) * 97.5
    }

    pub fn render(&self) -> Html {
        let ticks = ticks(self.end - self.begin);
        let lines = |bottom: &'static str| -> Html {
            let line = |tick: &i64| {
                let x = place(self.percent(self.begin + tick));
                html!("<line class=\"tick\" x1=\"{}\" x2=\"{}\" y1=\"0\" y2=\"{}\"/>", x, x, bottom)
            };
            ticks.iter().map(line).collect()
        };
        let texts = ticks.iter().map(|tick| {
            let anchor = if *tick == 0 { "start" } else { "middle" };
            html!(
                "<text x=\"{}\" y=\"19\" text-anchor=\"{}\">{}</text>",
                place(self.percent(self.begin + tick)),
                anchor,
                tick_text(*tick)
            )
        });
        let rows = self.rows.iter().take(MAX_ROWS).map(|row| {
            html!(
                "<tr><th scope=\"row\">{}<small>{}</small></th><td class=\"lane\"><svg class=\"lane\" role=\"img\" \
                 aria-label=\"{}\">{}{}</svg></td><td class=\"state\">{}</td></tr>",
                row.step,
                row.what,
                format!("{}: {}", row.step, row.spoken(self.over)),
                lines("100%"),
                row.marks.iter().map(|mark| self.mark(mark)).collect::<Html>(),
                row.state_shown(self.over)
            )
        });
        let more = self.rows.len().saturating_sub(MAX_ROWS);
        let more = (more > 0).then(|| html!("<tr><td colspan=\"3\" class=\"quiet\">… {} more steps</td></tr>", more));
        html!(
            "<div class=\"card\"><div class=\"scroll\"><table class=\"timeline\"><thead><tr><th>Step</th>\
             <th class=\"lane\"><svg class=\"axis\" aria-hidden=\"true\">{}</svg></th><th>State</th></tr></thead>\
             <tbody>{}{}</tbody></table></div>{}</div>",
            texts.collect::<Html>(),
            rows.collect::<Html>(),
            more,
            legend()
        )
    }

    fn mark(&self, mark: &Mark) -> Html {
        // What took no time is still seen.
        let width = |from: i64, to: i64| place((self.percent(to) - self.percent(from)).max(0.35));
        let x = |at: i64| place(self.percent(at));
        match mark {
            Mark::Queue { from, to } => html!(
                "<rect class=\"queue\" x=\"{}\" width=\"{}\" y=\"19\" height=\"6\" rx=\"3\"><title>waited {} for a \
                 worker</title></rect>",
                x(*from),
                width(*from, *to),
                value::duration(to - from)
            ),
            Mark::Run { from, to, attempt, worker, how } => {
                let wide = self.percent(*to) - self.percent(*from) > 3.0 && *attempt > 1;
                let number = wide.then(|| {
                    let middle = place((self.percent(*from) + self.percent(*to)) / 2.0);
                    html!(
                        "<text class=\"attempt\" x=\"{}\" y=\"26\" text-anchor=\"middle\">{}</text>",
                        middle,
                        *attempt
                    )
                });
                html!(
                    "<g><title>attempt {} at {}: {}, {}</title><rect class=\"run {}\" x=\"{}\" width=\"{}\" y=\"14\" \
                     height=\"16\" rx=\"4\"/>{}</g>",
                    *attempt,
                    worker,
                    how.text(),
                    value::duration(to - from),
                    how.class(),
                    x(*from),
                    width(*from, *to),
                    number
                )
            }
            Mark::Retry { from, to } => html!(
                "<line class=\"retry\" x1=\"{}\" x2=\"{}\" y1=\"22\" y2=\"22\"><title>waited {} for the next \
                 attempt</title></line>",
                x(*from),
                x(*to),
                value::duration(to - from)
            ),
            Mark::Timer { from, to } => html!(
                "<rect class=\"timer\" x=\"{}\" width=\"{}\" y=\"17\" height=\"10\" rx=\"5\"><title>slept \
                 {}</title></rect>",
                x(*from),
                width(*from, *to),
                value::duration(to - from)
            ),
            Mark::Point { at, how, text } => html!(
                "<circle class=\"point {}\" cx=\"{}\" cy=\"22\" r=\"5\"><title>{}</title></circle>",
                how.class(),
                x(*at),
                text
            ),
            Mark::Redelivery { at } => html!(
                "<svg x=\"{}\" overflow=\"visible\"><path class=\"again\" d=\"M-6 3h12l-6 10z\"><title>offered \
                 again</title></path></svg>",
                x(*at)
            ),
        }
    }
}

impl Row {
    fn state_shown(&self, over: bool) -> Html {
        let state = match &self.state {
            State::Waiting => html!("<span class=\"quiet\">{}</span>", if over { "not reached" } else { "not yet" }),
            State::Queued => html!("<span class=\"active\">waits for a worker</span>"),
            State::Running { worker } => html!("<span class=\"active\">runs at {}</span>", worker),
            State::Retrying(until) => {
                html!("<span class=\"warn\">tries again at {}</span>", value::moment(ClusterMs(*until)))
            }
            State::Sleeping(until) => {
                html!("<span class=\"timing\">sleeps until {}</span>", value::moment(ClusterMs(*until)))
            }
            State::Succeeded => html!("<span class=\"good\">✓ {}</span>", value::duration(self.took())),
            State::Failed(code) => html!("<span class=\"bad\">✗ {}</span>", code),
            State::Skipped => html!("<span class=\"quiet\">skipped</span>"),
            State::Cancelled => html!("<span class=\"warn\">cancelled</span>"),
        };
        let mut more = Vec::new();
        if self.attempts > 1 {
            more.push(value::counted(self.attempts.into(), "attempt"));
        }
        match self.redeliveries {
            0 => {}
            1 => more.push("1 redelivery".into()),
            several => more.push(format!("{several} redeliveries")),
        }
        let more = (!more.is_empty()).then(|| html!("<br><span class=\"quiet\">{}</span>", more.join(", ")));
        html!("{}{}", state, more)
    }

    /// For those who do not see the picture.
    fn spoken(&self, over: bool) -> &'static str {
        match self.state {
            State::Waiting if over => "not reached",
            State::Waiting => "not yet",
            State::Queued => "waits for a worker",
            State::Running { .. } => "running",
            State::Retrying(_) => "waits for its next attempt",
            State::Sleeping(_) => "sleeps",
            State::Succeeded => "succeeded",
            State::Failed(_) => "failed",
            State::Skipped => "skipped",
            State::Cancelled => "cancelled",
        }
    }

    /// From its first mark to its last.
    fn took(&self) -> i64 {
        let ends = self.marks.iter().map(|mark| match mark {
            Mark::Queue { from, to }
            | Mark::Run { from, to, .. }
            | Mark::Retry { from, to }
            | Mark::Timer { from, to } => (*from, *to),
            Mark::Point { at, .. } | Mark::Redelivery { at } => (*at, *at),
        });
        let (first, last) =
            ends.fold((i64::MAX, i64::MIN), |(first, last), (from, to)| (first.min(from), last.max(to)));
        last.saturating_sub(first).max(0)
    }
}

/// A percentage, as attributes of a picture have it.
fn place(percent: f64) -> String {
    format!("{percent:.3}%")
}

/// Moments to write below a picture of so many milliseconds: round ones, some five of them.
fn ticks(length: i64) -> Vec<i64> {
    const ROUND: [i64; 27] = [
        1,
        2,
        5,
        10,
        20,
        50,
        100,
        200,
        500,
        1_000,
        2_000,
        5_000,
        10_000,
        15_000,
        30_000,
        60_000,
        120_000,
        300_000,
        600_000,
        900_000,
        1_800_000,
        3_600_000,
        7_200_000,
        21_600_000,
        43_200_000,
        86_400_000,
        172_800_000,
    ];
    let wanted = length / 6;
    let days = 86_400_000;
    let step = ROUND.into_iter().find(|step| *step >= wanted).unwrap_or_else(|| wanted / days * days + days);
    // The last is not so near the end that its text would stand out.
    (0..).map(|index| index * step).take_while(|at| *at <= length - length / 40).collect()
}

/// A round moment: no unit that is zero.
fn tick_text(ms: i64) -> String {
    match ms {
        0 => "0".into(),
        ms if ms % 86_400_000 == 0 => format!("{} d", ms / 86_400_000),
        ms if ms % 3_600_000 == 0 => format!("{} h", ms / 3_600_000),
        ms if ms % 60_000 == 0 => format!("{} min", ms / 60_000),
        ms if ms % 1_000 == 0 && ms < 60_000 => format!("{} s", ms / 1_000),
        ms if ms < 1_000 => format!("{ms} ms"),
        ms if ms < 60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        ms => value::duration(ms),
    }
}

fn legend() -> Html {
    let bars = [
        ("queue", "waits for a worker"),
        ("run", "at a worker"),
        ("run succeeded", "succeeded"),
        ("run failed", "failed"),
        ("run uncertain", "outcome not known"),
        ("timer", "sleeps"),
    ];
    let bars = bars.into_iter().map(|(class, text)| {
        html!(
            "<span><svg width=\"18\" height=\"8\" aria-hidden=\"true\"><rect class=\"{}\" width=\"18\" height=\"8\" \
             rx=\"3\"/></svg>{}</span>",
            class,
            text
        )
    });
    html!(
        "<div class=\"legend\">{}<span><svg width=\"18\" height=\"8\" aria-hidden=\"true\"><line class=\"retry\" x1=\"1\" \
         x2=\"17\" y1=\"4\" y2=\"4\"/></svg>waits for the next attempt</span><span><svg width=\"14\" height=\"12\" \
         aria-hidden=\"true\"><path class=\"again\" d=\"M1 1h12l-6 10z\"/></svg>offered again</span></div>",
        bars.collect::<Html>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use orbit_core::execution::event::ResultKind;
    use orbit_core::id::{Seq, SessionId, Token};
    use serde_json::json;
    use std::sync::Arc;
    use uuid::Uuid;

    fn definition() -> Value {
        json!({"steps": [{"id": "a", "task": "t"}, {"id": "b", "sleep": "1s"}, {"id": "c", "compute": 1}]})
    }

    fn history(events: Vec<(i64, Event)>) -> Vec<Recorded> {
        let recorded = |(index, (at, event)): (usize, (i64, Event))| Recorded {
            seq: Seq(index as u64 + 1),
            at_ms: ClusterMs(at),
            event,
        };
        events.into_iter().enumerate().map(recorded).collect()
    }

    fn token() -> Token {
        Token { execution: "e".into(), id: Uuid::nil() }
    }

    fn scheduled(attempt: u32, redelivery: bool) -> Event {
        let input = Arc::new(Value::Null);
        Event::StepScheduled { step: "a".into(), attempt, input, idempotency_key: "k".into(), redelivery }
    }

    fn dispatched(attempt: u32) -> Event {
        Event::StepDispatched {
            step: "a".into(),
            attempt,
            token: token(),
            worker_id: "w".into(),
            worker_session: SessionId(Uuid::nil()),
            deadline_ms: None,
        }
    }

    fn succeeded(step: &str, from_worker: bool) -> Event {
        let output = Arc::new(Value::Null);
        Event::StepSucceeded { step: step.into(), attempt: 1, output, token: from_worker.then(token) }
    }

    fn attempt_failed(attempt: u32) -> Event {
        let error = TaskError::retryable("OOPS", "");
        Event::StepAttemptFailed { step: "a".into(), attempt, error, token: Some(token()) }
    }

    fn run(from: i64, to: i64, attempt: u32, how: How) -> Mark {
        Mark::Run { from, to, attempt, worker: "w".into(), how }
    }

    #[test]
    fn attempts_and_the_waits_between_them_follow_each_other() {
        let retry =
            Event::RetryScheduled { step: "a".into(), next_attempt: 2, delay_ms: 20, fire_at_ms: ClusterMs(60) };
        let events = history(vec![
            (10, scheduled(1, false)),
            (20, dispatched(1)),
            (40, attempt_failed(1)),
            (40, retry),
            (60, scheduled(2, false)),
            (60, dispatched(2)),
            (90, succeeded("a", true)),
        ]);
        let timeline = Timeline::of(&events, &definition(), ClusterMs(90), false);
        let row = &timeline.rows[0];
        let marks = [
            Mark::Queue { from: 10, to: 20 },
            run(20, 40, 1, How::Failed),
            Mark::Retry { from: 40, to: 60 },
            Mark::Queue { from: 60, to: 60 },
            run(60, 90, 2, How::Succeeded),
        ];
        assert_eq!(row.marks, marks);
        assert_eq!((&row.state, row.attempts, row.took()), (&State::Succeeded, 2, 80));
        assert_eq!(timeline.rows[1].state, State::Waiting);
    }

    #[test]
    fn a_delivery_whose_outcome_is_not_known_is_offered_again() {
        let uncertain =
            Event::StepAttemptUncertain { step: "a".into(), attempt: 1, reason: "silent".into(), token: token() };
        let events = history(vec![
            (0, scheduled(1, false)),
            (0, dispatched(1)),
            (50, uncertain),
            (50, scheduled(1, true)),
            (70, succeeded("a", true)),
        ]);
        let row = Timeline::of(&events, &definition(), ClusterMs(70), false).rows.remove(0);
        let marks = [
            Mark::Queue { from: 0, to: 0 },
            run(0, 50, 1, How::Uncertain),
            Mark::Redelivery { at: 50 },
            Mark::Point { at: 70, how: How::Succeeded, text: "result of an earlier delivery".into() },
            Mark::Queue { from: 50, to: 70 },
        ];
        assert_eq!(row.marks, marks);
        assert_eq!(row.redeliveries, 1);
        assert!(row.state_shown(true).into_string().contains("1 redelivery"));
    }

    #[test]
    fn what_is_open_goes_on_until_now() {
        let timer = Event::TimerStarted { step: "b".into(), fire_at_ms: ClusterMs(1_000) };
        let events = history(vec![(0, scheduled(1, false)), (5, dispatched(1)), (5, timer)]);
        let rows = Timeline::of(&events, &definition(), ClusterMs(100), false).rows;
        assert_eq!(rows[0].marks.last(), Some(&run(5, 100, 1, How::Open)));
        assert_eq!(rows[1].marks, [Mark::Timer { from: 5, to: 100 }]);
        assert_eq!(rows[1].state, State::Sleeping(1_000));
    }

    #[test]
    fn steps_that_no_worker_runs_are_points() {
        let skipped = Event::StepSkipped { step: "a".into(), reason: "`when` is false".into() };
        let stale = Event::StaleResultIgnored { step: "x".into(), token: token(), outcome: ResultKind::Failed };
        let events = history(vec![(0, skipped), (1, succeeded("c", false)), (2, stale)]);
        let rows = Timeline::of(&events, &definition(), ClusterMs(2), false).rows;
        assert_eq!(rows[0].state, State::Skipped);
        assert_eq!(rows[2].marks, [Mark::Point { at: 1, how: How::Succeeded, text: "computed".into() }]);
        // A step that the definition does not have gets a row all the same.
        assert_eq!((rows[3].step.as_str(), rows.len()), ("x", 4));
    }

    #[test]
    fn a_final_failure_is_told_once() {
        let events = history(vec![
            (0, scheduled(1, false)),
            (1, dispatched(1)),
            (9, attempt_failed(1)),
            (9, Event::StepFailed { step: "a".into(), error: TaskError::last("OOPS", "") }),
        ]);
        let row = Timeline::of(&events, &definition(), ClusterMs(9), false).rows.remove(0);
        assert_eq!(row.marks, [Mark::Queue { from: 0, to: 1 }, run(1, 9, 1, How::Failed)]);
        assert_eq!(row.state, State::Failed("OOPS".into()));
    }

    #[test]
    fn ticks_are_round_and_few() {
        for length in [1, 7, 250, 5_500, 61_000, 3_600_000, 86_400_000 * 40, i64::from(u32::MAX) * 1_000] {
            let ticks = ticks(length);
            assert!((1..=8).contains(&ticks.len()), "{length}: {ticks:?}");
            assert!(ticks.iter().all(|tick| *tick <= length));
        }
        assert_eq!(ticks(5_500), [0, 1_000, 2_000, 3_000, 4_000, 5_000]);
        assert_eq!(
            [0, 500, 1_500, 5_000, 90_000, 7_200_000].map(tick_text),
            ["0", "500 ms", "1.5 s", "5 s", "1 min 30 s", "2 h"]
        );
    }

    #[test]
    fn an_empty_history_is_drawn_too() {
        let html = Timeline::of(&[], &Value::Null, ClusterMs(5), true).render().into_string();
        assert!(html.contains("<table class=\"timeline\">"));
    }
}
