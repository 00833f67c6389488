//! `orbit executions history`, and how one event is shown.

use super::client;
use crate::cli::HistoryArgs;
use crate::failure::Failure;
use crate::output::{self, Form};
use orbit_sdk::{Client, Event, HistoryPage, Value};
use std::time::Duration;

/// How long a history that is followed waits for a server that is away: a restart, and more.
const PATIENCE: Duration = Duration::from_secs(300);

/// How often a history that is followed is asked for more.
const FOLLOW_EVERY: Duration = Duration::from_millis(200);

/// Shows a history, page by page as it comes.
pub async fn run(arguments: HistoryArgs) -> Result<(), Failure> {
    let mut client = client(&arguments.remote)?;
    if arguments.follow {
        client = client.with_patience(PATIENCE);
    }
    let form = arguments.output.form;
    let mut lines = Lines::new();
    if form == Form::Table && arguments.after > 0 {
        // Times count from the first event, whichever is shown first.
        let first = match arguments.run {
            None => client.history(&arguments.id, 0, Some(1)).await?,
            Some(run) => client.history_of_run(&arguments.id, run, 0, Some(1)).await?,
        };
        first.events.iter().for_each(|event| drop(lines.line(event)));
    }
    let id = arguments.id.clone();
    let mut reader = Reader::new(client, arguments.id, arguments.after).of_run(arguments.run);
    reader.through = arguments.follow;
    let mut events = Vec::new();
    // A title stands over what there is, and not over an error.
    let mut titled = form != Form::Table;
    loop {
        let page = reader.next().await?;
        if !std::mem::replace(&mut titled, true) {
            output::print(&Lines::title())?;
        }
        match form {
            Form::Table => output::print(&page.iter().map(|event| lines.line(event)).collect::<String>())?,
            Form::Jsonl => output::print(&page.iter().map(output::line).collect::<String>())?,
            Form::Ids => output::print(&page.iter().map(|event| format!("{}\n", event.seq)).collect::<String>())?,
            Form::Json => events.extend(page),
        }
        if reader.has_ended() || (!reader.more && !arguments.follow) {
            break;
        }
        if !reader.more {
            tokio::time::sleep(FOLLOW_EVERY).await;
        }
    }
    if form == Form::Json {
        let whole = HistoryPage { execution_id: id, run: reader.run.unwrap_or(1), events, more: false };
        return output::print(&output::pretty(&whole));
    }
    Ok(())
}

/// Reads a history from some event on.
pub struct Reader {
    client: Client,
    id: String,
    /// The run that is read, once it is known; the newest at first where none is given.
    pub run: Option<u32>,
    after: u64,
    /// Whether it goes on with the next run where one continues as new.
    pub through: bool,
    /// Whether the last page was not all that there is.
    pub more: bool,
    ended: bool,
}

impl Reader {
    pub fn new(client: Client, id: String, after: u64) -> Reader {
        Reader { client, id, run: None, after, through: false, more: false, ended: false }
    }

    /// The same, of this run.
    #[must_use]
    pub fn of_run(mut self, run: Option<u32>) -> Reader {
        self.run = run;
        self
    }

    /// What has been added since, as far as one page goes.
    pub async fn next(&mut self) -> Result<Vec<Event>, Failure> {
        // Numbers begin again with each run, so a run that was begun is named until it is read.
        let page = match self.run {
            None => self.client.history(&self.id, self.after, None).await?,
            Some(run) => self.client.history_of_run(&self.id, run, self.after, None).await?,
        };
        self.run = Some(page.run);
        self.more = page.more;
        if let Some(last) = page.events.last()
            && last.kind == "WorkflowContinuedAsNew"
        {
            if self.through {
                (self.run, self.after, self.more) = (Some(page.run + 1), 0, true);
            } else {
                self.ended = true;
            }
        } else if let Some(last) = page.events.last() {
            self.after = last.seq;
            self.ended = matches!(
                last.kind.as_str(),
                "WorkflowCompleted"
                    | "WorkflowFailed"
                    | "WorkflowCancelled"
                    | "WorkflowTimedOut"
                    | "WorkflowTerminated"
            );
        } else if self.after > 0 && !page.more && !self.ended {
            // Asked for what follows the end, it would wait for ever: the execution itself tells.
            let execution = self.client.execution(&self.id).await?;
            self.ended =
                execution.run() > page.run || (execution.status().is_finished() && execution.last_seq <= self.after);
        }
        Ok(page.events)
    }

    /// Whether the last event that was read is the last that there will be.
    pub fn has_ended(&self) -> bool {
        self.ended
    }
}

/// Events as aligned lines, with the time since the first.
pub struct Lines {
    first_ms: Option<i64>,
}

impl Default for Lines {
    fn default() -> Lines {
        Lines::new()
    }
}

impl Lines {
    pub fn new() -> Lines {
        Lines { first_ms: None }
    }

    /// The titles of the columns.
    pub fn title() -> String {
        format!("{:>4}  {:>9}  {:<22}  {:<20}  DETAIL\n", "SEQ", "TIME", "EVENT", "STEP")
    }

    /// One event.
    pub fn line(&mut self, event: &Event) -> String {
        let since = event.at_ms - *self.first_ms.get_or_insert(event.at_ms);
        let since = format!("+{}.{:03}s", since / 1000, since % 1000);
        let step = event.step().unwrap_or("");
        let line = format!("{:>4}  {since:>9}  {:<22}  {step:<20}  {}", event.seq, event.kind, detail(event));
        format!("{}\n", line.trim_end())
    }
}

/// What else there is to know of an event, short enough for a line.
fn detail(event: &Event) -> String {
    let text = |field: &str| event.text(field).unwrap_or_default().to_owned();
    let number = |field: &str| event.fields.get(field).and_then(Value::as_u64).unwrap_or_default();
    let json = |field: &str| event.fields.get(field).map(Value::to_string).unwrap_or_default();
    let error = || {
        let error = event.fields.get("error").unwrap_or(&Value::Null);
        let part = |field: &str| error[field].as_str().unwrap_or_default().to_owned();
        format!("{}: {}", part("code"), part("message"))
    };
    let compensation = || match event.text("compensation") {
        Some(outcome) => format!("compensation {outcome}"),
        None => String::new(),
    };
    let again = || if event.fields.get("redelivery") == Some(&Value::Bool(true)) { ", redelivery" } else { "" };
    let detail = match event.kind.as_str() {
        "WorkflowCreated" => format!("{} {} input {}", text("workflow"), text("version"), json("input")),
        "StepScheduled" => format!("attempt {}{}", number("attempt"), again()),
        "StepDispatched" => format!("attempt {} to {}", number("attempt"), text("worker_id")),
        "StepSucceeded" | "WorkflowCompleted" | "ChildCompleted" => json("output"),
        "StepFanOut" => format!("{} items", event.fields.get("items").and_then(Value::as_array).map_or(0, Vec::len)),
        "SignalAwaited" => match event.fields.get("deadline_ms").and_then(Value::as_i64) {
            Some(until) => format!("{} for {} ms", text("signal"), until - event.at_ms),
            None => text("signal"),
        },
        "SignalConsumed" => format!("{} of event {}", text("signal"), number("received")),
        "SignalReceived" => format!("{} {}", text("signal"), json("payload")),
        "UpdateAccepted" => format!("{} {} → {}", text("update"), json("payload"), json("result")),
        "HandlerStarted" | "HandlerCompleted" => text("handler"),
        "HandlerFailed" => format!("{}: {}", text("handler"), error()),
        "CompensationStarted" => {
            let steps = event.fields.get("steps").and_then(Value::as_array).into_iter().flatten();
            let steps: Vec<&str> = steps.filter_map(Value::as_str).collect();
            format!("{}: {}", text("reason"), steps.join(", "))
        }
        "ChildScheduled" => format!("attempt {}: {} as {}", number("attempt"), text("workflow"), text("child")),
        "ChildStarted" => format!("attempt {}: version {}", number("attempt"), text("version")),
        "ChildFailed" => format!("attempt {}: {}", number("attempt"), error()),
        "ChildEndRequested" => {
            let how = if event.fields.get("terminate") == Some(&Value::Bool(true)) { "terminate" } else { "cancel" };
            format!("{how} {}", text("child"))
        }
        "ContinueSuggested" => format!("a history has at most {} events", number("max")),
        "WorkflowContinuedAsNew" => format!("run {} with input {}", number("next_run"), json("input")),
        "LimitReached" => format!("{}: {}", text("limit"), error()),
        "ContractViolated" => format!("{}: {}", text("boundary"), error()),
        "WorkflowCancelled" | "WorkflowTimedOut" | "WorkflowTerminated" => compensation(),
        "StepAttemptFailed" => format!("attempt {}: {}", number("attempt"), error()),
        "StepAttemptUncertain" => format!("attempt {}: {}", number("attempt"), text("reason")),
        "StepFailed" | "WorkflowFailed" | "ResultFailed" | "CompensationFailed" => error(),
        "RetryScheduled" => format!("attempt {} in {} ms", number("next_attempt"), number("delay_ms")),
        "TimerStarted" => {
            let until = event.fields.get("fire_at_ms").and_then(Value::as_i64).unwrap_or(event.at_ms);
            format!("for {} ms", until - event.at_ms)
        }
        "StepSkipped" | "WorkflowHeld" | "WorkflowRecovered" | "CancelRequested" | "TerminateRequested" => {
            text("reason")
        }
        "StaleResultIgnored" => text("outcome"),
        "WorkflowStarted"
        | "StepCancelled"
        | "TimerFired"
        | "StepFanIn"
        | "WorkflowTimeoutReached"
        | "CompensationCompleted" => String::new(),
        _ => serde_json::to_string(&event.fields).unwrap_or_default(),
    };
    let detail = match event.fields.get("unconsumed").and_then(Value::as_array) {
        Some(left) => {
            format!("{detail}{}{} not taken", if detail.is_empty() { "" } else { "; " }, messages(left.len()))
        }
        None => detail,
    };
    shorten(&detail.replace('\n', " "), 72)
}

/// So many signals or updates.
fn messages(count: usize) -> String {
    if count == 1 { "1 signal or update was".into() } else { format!("{count} signals or updates were") }
}

/// The text, cut to so many characters.
fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.into();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use orbit_sdk::json;

    fn event(seq: u64, at_ms: i64, fields: Value) -> Event {
        let mut event = json!({"seq": seq, "at_ms": at_ms});
        event.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        serde_json::from_value(event).unwrap()
    }

    #[test]
    fn events_are_lines_with_the_time_since_the_first() {
        let mut lines = Lines::new();
        let created = json!({"type": "WorkflowCreated", "workflow": "W", "version": "1.0.0", "input": {"a": 1}});
        assert_eq!(
            lines.line(&event(1, 5_000, created)),
            "   1    +0.000s  WorkflowCreated                               W 1.0.0 input {\"a\":1}\n"
        );
        let again = json!({"type": "StepScheduled", "step": "charge", "attempt": 2, "redelivery": true});
        assert_eq!(
            lines.line(&event(12, 6_034, again)),
            "  12    +1.034s  StepScheduled           charge                attempt 2, redelivery\n"
        );
        let plain = json!({"type": "WorkflowStarted"});
        assert_eq!(lines.line(&event(13, 6_034, plain)), "  13    +1.034s  WorkflowStarted\n");
    }

    #[test]
    fn what_is_long_is_cut_and_what_is_unknown_is_shown_as_it_is() {
        let long = json!({"type": "StepSucceeded", "step": "s", "output": "x".repeat(100)});
        assert!(detail(&event(1, 0, long)).ends_with('…'));
        assert_eq!(detail(&event(1, 0, json!({"type": "New", "a": 1}))), "{\"a\":1}");
    }

    #[test]
    fn what_reached_an_execution_and_how_it_wound_down_is_told_in_words() {
        let error = json!({"code": "X", "message": "no"});
        let left = json!([{"signal": "go", "received": 4}]);
        for (fields, told) in [
            (json!({"type": "StepFanOut", "step": "s", "items": [1, 2]}), "2 items"),
            (json!({"type": "SignalAwaited", "step": "s", "signal": "go"}), "go"),
            (json!({"type": "SignalAwaited", "step": "s", "signal": "go", "deadline_ms": 50}), "go for 50 ms"),
            (json!({"type": "SignalReceived", "signal": "go", "payload": {"by": 1}}), "go {\"by\":1}"),
            (json!({"type": "SignalConsumed", "step": "s", "signal": "go", "received": 4}), "go of event 4"),
            (json!({"type": "UpdateAccepted", "update": "up", "payload": 3, "result": 4}), "up 3 → 4"),
            (json!({"type": "HandlerStarted", "handler": "on_failure"}), "on_failure"),
            (json!({"type": "HandlerFailed", "handler": "on_failure", "error": error}), "on_failure: X: no"),
            (json!({"type": "CompensationStarted", "reason": "failed", "steps": ["b[1]", "a"]}), "failed: b[1], a"),
            (json!({"type": "CompensationFailed", "step": "compensate:a", "error": error}), "X: no"),
            (json!({"type": "LimitReached", "limit": "max_fan_out", "error": error}), "max_fan_out: X: no"),
            (
                json!({"type": "ChildScheduled", "step": "s", "attempt": 1, "workflow": "W", "child": "e~s"}),
                "attempt 1: W as e~s",
            ),
            (json!({"type": "ChildFailed", "step": "s", "attempt": 2, "error": error}), "attempt 2: X: no"),
            (json!({"type": "ChildEndRequested", "step": "s", "child": "e~s", "terminate": false}), "cancel e~s"),
            (json!({"type": "WorkflowContinuedAsNew", "next_run": 2, "input": 7}), "run 2 with input 7"),
            (json!({"type": "TerminateRequested", "reason": "it hangs"}), "it hangs"),
            (json!({"type": "WorkflowTimedOut", "compensation": "failed"}), "compensation failed"),
            (
                json!({"type": "WorkflowCancelled", "compensation": "completed", "unconsumed": left}),
                "compensation completed; 1 signal or update was not taken",
            ),
            (json!({"type": "WorkflowTerminated", "unconsumed": left}), "1 signal or update was not taken"),
        ] {
            assert_eq!(detail(&event(1, 0, fields.clone())), told, "{fields}");
        }
    }
}
