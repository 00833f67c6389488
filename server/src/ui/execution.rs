//! One execution: what it was given and gave, what happened to each step, and its history.

use super::html::{Html, encoded, html};
use super::page::{Page, Tab};
use super::run::Shown;
use super::timeline::{Timeline, step_of};
use super::{Pages, Trouble, other, value};
use crate::waiting;
use orbit_core::api::response::ExecutionView;
use orbit_core::api::{Reply, Request};
use orbit_core::execution::event::{Event, Json, Recorded};
use orbit_core::id::{ExecutionId, Run, Seq};
use orbit_core::time::ClusterMs;
use serde_json::Value;
use std::time::{SystemTime, UNIX_EPOCH};

/// Events that the timeline is made of, at most.
const TIMELINE_EVENTS: usize = 5_000;
/// Events asked for at once, and about how many bytes of them.
const PER_READ: u32 = 1_000;
const BYTES_PER_READ: u32 = 4 << 20;
/// Reads for one page, at most: large payloads end a read early.
const MAX_READS: usize = 8;
/// Open steps whose waiting is told; the API tells more of them.
const MAX_WAITS: usize = 20;
/// Rows of the history on one page.
const PER_PAGE: usize = 200;
/// How often the page of a running execution is read again, where that is wanted.
const REFRESH_SECONDS: u32 = 2;

pub async fn page(pages: &Pages, id: ExecutionId, query: &str) -> Result<Page, Trouble> {
    let parameter = |name: &str| {
        query.split('&').filter_map(|part| part.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let Reply::Execution(view) = pages.ask(Request::GetExecution(id.clone())).await? else { return Err(other()) };
    let shown = Shown::find(parameter("run"), view.item.run)?;
    let after: u64 = parameter("after").and_then(|text| text.parse().ok()).unwrap_or(0);
    let (events, more) = history(pages, &id, shown.run, Seq(0), TIMELINE_EVENTS).await?;
    let definition = definition(pages, &view).await;
    let running = shown.is_newest() && !view.item.status.is_terminal();
    // The first event of a run is there, and the last of one that has ended.
    let begin = events.first().map_or(view.item.created_at_ms, |event| event.at_ms);
    let last = events.last().map_or(view.item.updated_at_ms, |event| event.at_ms);
    let end = if running { now().max(last) } else { last };
    let timeline = Timeline::of(&events, &definition, end, !running).render();
    let cut = more.then(|| {
        html!("<p class=\"quiet small\">The timeline shows the first {} events of this history.</p>", events.len())
    });
    let count = match more && !shown.is_newest() {
        true => format!("more than {}", value::counted(events.len() as u64, "event")),
        false if more => value::counted(view.last_seq.0, "event"),
        false => value::counted(events.len() as u64, "event"),
    };
    // Those that are at hand already need not be read again.
    let at_hand = usize::try_from(after).unwrap_or(usize::MAX);
    let (mut rows, mut later) = match events.get(at_hand..) {
        Some(rest) if !rest.is_empty() || !more => (rest.to_vec(), more),
        _ => history(pages, &id, shown.run, Seq(after), PER_PAGE).await?,
    };
    later |= rows.len() > PER_PAGE;
    rows.truncate(PER_PAGE);
    let follow = running && parameter("follow").is_some();
    let body = html!(
        "<p class=\"crumb\"><a href=\"/ui/\">Executions</a> / {}</p><h1>{}{}</h1>{}{}{}<h2>Timeline {}</h2>{}{}\
         <h2 id=\"history\">History <small>{}</small></h2>{}{}",
        id.as_str(),
        id.as_str(),
        if shown.is_newest() { value::status(view.item.status) } else { value::badge("continued") },
        summary(&view, shown, begin, end),
        if shown.is_newest() { outcome(&view) } else { continued(&id, shown, &events, more) },
        payloads(&view, shown, &events),
        running.then(|| following(&id, follow)),
        timeline,
        cut,
        count,
        table(&id, shown, &rows, begin),
        paging(&id, shown, after, later.then(|| rows.last()).flatten())
    );
    Ok(Page { title: id.to_string(), tab: Some(Tab::Executions), refresh: follow.then_some(REFRESH_SECONDS), body })
}

/// This server's own clock, by which the bars of what still runs are drawn. Nothing is decided by it.
fn now() -> ClusterMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ClusterMs(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Events of a run after `after`, at least `wanted` of them where there are so many, and whether there are more.
async fn history(
    pages: &Pages,
    id: &ExecutionId,
    run: Run,
    after: Seq,
    wanted: usize,
) -> Result<(Vec<Recorded>, bool), Trouble> {
    let mut events: Vec<Recorded> = Vec::new();
    let mut more = true;
    for _ in 0..MAX_READS {
        let after = events.last().map_or(after, |event| event.seq);
        let (execution, run) = (id.clone(), Some(run));
        let request = Request::GetHistory { execution, run, after, limit: PER_READ, max_bytes: BYTES_PER_READ };
        let Reply::History(read) = pages.ask(request).await? else { return Err(other()) };
        events.extend(read.events);
        more = read.more;
        if !more || events.len() >= wanted {
            break;
        }
    }
    Ok((events, more))
}

/// The document of the execution's workflow. The page does without it.
async fn definition(pages: &Pages, view: &ExecutionView) -> Value {
    let (name, version) = (view.item.workflow.clone(), Some(view.item.version.clone()));
    match pages.ask(Request::GetWorkflow { name, version }).await {
        Ok(Reply::Workflow(workflow)) => workflow.definition,
        _ => Value::Null,
    }
}

fn summary(view: &ExecutionView, shown: Shown, begin: ClusterMs, end: ClusterMs) -> Html {
    let item = &view.item;
    let ended = item.status.is_terminal() || !shown.is_newest();
    let fact = |name: &'static str, value: Html| html!("<div><dt>{}</dt><dd>{}</dd></div>", name, value);
    // An execution as a whole is as old as its first run.
    let begin = if shown.is_newest() { item.created_at_ms } else { begin };
    let took = value::duration(end.0 - begin.0);
    let last = if shown.is_newest() { item.updated_at_ms } else { end };
    let mut facts = Html::new();
    facts.push(fact("Workflow", value::workflow(item.workflow.as_str(), item.version.as_str())));
    facts.push(fact("Started (UTC)", value::moment(begin)));
    facts.push(fact(if ended { "Ended (UTC)" } else { "Last event (UTC)" }, value::moment(last)));
    facts.push(fact(if ended { "Took" } else { "For" }, html!("{}", took)));
    if let (Some(reason), true) = (view.cancel_reason.as_ref().or(view.reason.as_ref()), shown.is_newest()) {
        facts.push(fact("Reason", html!("{}", reason.as_str())));
    }
    if shown.newest.0 > 1 {
        facts.push(fact("Run", shown.numbers(&item.execution_id)));
    }
    if let Some(parent) = &view.parent {
        let step = parent.step.as_str();
        facts.push(fact("Child of", html!("{} ({})", value::execution(parent.execution_id.as_str()), step)));
    }
    if !item.labels.is_empty() {
        facts.push(fact("Labels", value::labels(&item.labels)));
    }
    html!("<div class=\"card pad\"><dl>{}</dl></div>", facts)
}

/// Why it failed, or what it waits for.
fn outcome(view: &ExecutionView) -> Html {
    let error = view.error.as_ref().map(|error| html!("<div class=\"notice\">{}</div>", value::error(error)));
    html!("{}{}", error, waits(view))
}

/// That a run is not the newest, and how the execution went on.
fn continued(id: &ExecutionId, shown: Shown, events: &[Recorded], more: bool) -> Html {
    let next = match events.last().map(|last| &last.event) {
        Some(Event::WorkflowContinuedAsNew { next_run, .. }) if !more => *next_run,
        _ => Run(shown.run.0 + 1),
    };
    let newest = (next != shown.newest)
        .then(|| html!(" {} is the newest.", shown.link(id, shown.newest, &format!("Run {}", shown.newest.0))));
    html!(
        "<div class=\"note\">This run continued as new: it went on as {}.{}</div>",
        shown.link(id, next, &format!("run {}", next.0)),
        newest
    )
}

/// What it waits for, in sentences.
fn waits(view: &ExecutionView) -> Option<Html> {
    if view.waiting.is_empty() {
        return None;
    }
    let sentence = |one| {
        // The sentences are made of what the API says, as for the command line.
        let told: orbit_sdk::Waiting = serde_json::from_value(serde_json::to_value(one).ok()?).ok()?;
        let (what, advice) = (waiting::sentence(&told), waiting::advice(view.item.execution_id.as_str(), &told));
        let advice = html!("<div class=\"quiet small\">→ {}</div>", advice);
        let child = told.execution_id.as_deref().map(|id| html!(" ({})", value::execution(id)));
        Some(html!("<li><span class=\"id\">{}</span>: {}{}{}</li>", told.unit(), what, child, advice))
    };
    let sentences: Html = view.waiting.iter().take(MAX_WAITS).filter_map(sentence).collect();
    let more = view.waiting.len().saturating_sub(MAX_WAITS);
    let more = (more > 0).then(|| html!("<li class=\"quiet\">… {} more</li>", more));
    Some(html!("<h2>Waits for</h2><div class=\"card pad\"><ul class=\"waits\">{}{}</ul></div>", sentences, more))
}

/// What was given and what came of it; of an earlier run what the next one was given.
fn payloads(view: &ExecutionView, shown: Shown, events: &[Recorded]) -> Html {
    let (input, output) = if shown.is_newest() {
        (Some(&view.input), view.output.as_ref())
    } else {
        let input = events.first().and_then(|first| match &first.event {
            Event::WorkflowCreated { input, .. } => Some(input),
            _ => None,
        });
        let next = events.last().and_then(|last| match &last.event {
            Event::WorkflowContinuedAsNew { input, .. } => Some(input),
            _ => None,
        });
        (input, next)
    };
    let value = |value: Option<&Json>| match value {
        Some(value) => value::json(value),
        None => html!("<div class=\"pad quiet\">none</div>"),
    };
    html!(
        "<div class=\"pair\"><section><h2>Input</h2><div class=\"card\">{}</div></section>\
         <section><h2>{}</h2><div class=\"card\">{}</div></section></div>",
        value(input),
        if shown.is_newest() { "Output" } else { "Input of the next run" },
        value(output)
    )
}

/// The way to a page that keeps up, and back.
fn following(id: &ExecutionId, follow: bool) -> Html {
    let (query, text) = if follow { ("", "stop following") } else { ("?follow=1", "follow") };
    html!("<small><a href=\"/ui/executions/{}{}\">{}</a></small>", encoded(id.as_str()), query, text)
}

fn table(id: &ExecutionId, shown: Shown, events: &[Recorded], begin: ClusterMs) -> Html {
    if events.is_empty() {
        return html!("<div class=\"card empty\">No events here.</div>");
    }
    let rows = events.iter().map(|recorded| {
        let since = recorded.at_ms.0 - begin.0;
        html!(
            "<tr><td class=\"number\">{}</td><td class=\"nowrap\">{} <span class=\"quiet small\">+{}</span></td>\
             <td>{}</td><td>{}</td><td>{}</td></tr>",
            recorded.seq.0,
            value::moment(recorded.at_ms),
            value::duration(since),
            kind(recorded),
            step_of(&recorded.event).map(|step| step.as_str()),
            details(id, shown, recorded)
        )
    });
    html!(
        "<div class=\"card scroll\"><table><thead><tr><th class=\"number\">#</th><th>Time (UTC)</th><th>Event</th>\
         <th>Step</th><th>Details</th></tr></thead><tbody>{}</tbody></table></div>",
        rows.collect::<Html>()
    )
}

fn written(recorded: &Recorded) -> Value {
    serde_json::to_value(recorded).expect("an event is made of JSON values")
}

fn kind(recorded: &Recorded) -> Html {
    let kind = written(recorded)["type"].as_str().unwrap_or_default().to_owned();
    let class = match kind.as_str() {
        "StepSucceeded"
        | "WorkflowCompleted"
        | "TimerFired"
        | "StepFanIn"
        | "SignalConsumed"
        | "HandlerCompleted"
        | "ChildCompleted"
        | "CompensationCompleted" => "good",
        "StepFailed" | "StepAttemptFailed" | "WorkflowFailed" | "LimitReached" | "ContractViolated"
        | "HandlerFailed" | "ChildFailed" | "ResultFailed" | "CompensationFailed" => "bad",
        "StepAttemptUncertain"
        | "StaleResultIgnored"
        | "RetryScheduled"
        | "WorkflowHeld"
        | "CancelRequested"
        | "TerminateRequested"
        | "ChildEndRequested"
        | "ContinueSuggested"
        | "WorkflowTimeoutReached"
        | "CompensationStarted"
        | "WorkflowTimedOut"
        | "WorkflowTerminated"
        | "StepCancelled"
        | "WorkflowCancelled" => "warn",
        _ => "",
    };
    html!("<span class=\"{}\">{}</span>", class, kind)
}

/// The fields of an event that have no column.
fn details(id: &ExecutionId, shown: Shown, recorded: &Recorded) -> Html {
    let mut fields = written(recorded);
    let Some(fields) = fields.as_object_mut() else { return Html::new() };
    for shown in ["seq", "at_ms", "type", "step"] {
        fields.remove(shown);
    }
    let field = |(name, value): (&String, &Value)| {
        let value = match (name.as_str(), value) {
            (name, Value::Number(at)) if name.ends_with("_at_ms") || name == "deadline_ms" => {
                at.as_i64().map_or_else(Html::new, |at| value::moment(ClusterMs(at)))
            }
            ("delay_ms", Value::Number(ms)) => html!("{}", value::duration(ms.as_i64().unwrap_or(0))),
            ("child", Value::String(child)) => value::execution(child),
            ("next_run", Value::Number(run)) => match run.as_u64().and_then(|run| u32::try_from(run).ok()) {
                Some(run) => shown.link(id, Run(run), &run.to_string()),
                None => Html::new(),
            },
            (_, Value::String(text)) if text.len() <= 120 => html!("{}", text),
            (_, other) => value::short_json(other),
        };
        // `fire_at_ms` is shown as the moment, so its unit says nothing any more.
        let label = name.strip_suffix("_ms").unwrap_or(name).replace('_', " ");
        html!("<span class=\"field\"><span class=\"quiet\">{}</span> {}</span>", label, value)
    };
    fields.iter().map(field).collect()
}

/// `last` is the last event shown, where there are later ones.
fn paging(id: &ExecutionId, shown: Shown, after: u64, last: Option<&Recorded>) -> Html {
    let target = |after: u64| format!("{}#history", shown.target(id, &format!("after={after}")));
    let first = (after > 0).then(|| html!("<a href=\"{}\">← First events</a>", target(0)));
    let next = last.map(|last| html!("<a rel=\"next\" href=\"{}\">Later events →</a>", target(last.seq.0)));
    html!("<div class=\"pages\">{}{}</div>", first, next)
}
