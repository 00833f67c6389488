//! Deployed workflows, the versions of one, and the definition of a version.

use super::html::{Html, encoded, html};
use super::page::{Page, Tab};
use super::{Pages, Trouble, other, value};
use orbit_core::api::response::WorkflowItem;
use orbit_core::api::{Reply, Request};
use orbit_core::id::{Version, WorkflowName};
use serde_json::Value;

pub async fn list(pages: &Pages) -> Result<Page, Trouble> {
    let Reply::Workflows(found) = pages.ask(Request::ListWorkflows).await? else { return Err(other()) };
    let body = if found.workflows.is_empty() {
        html!(
            "<div class=\"card empty\">Nothing is deployed yet. <code>orbit deploy FILE</code> deploys a workflow.</div>"
        )
    } else {
        table(found.workflows.iter())
    };
    let body = html!("<h1>Workflows</h1>{}", body);
    Ok(Page { title: "Workflows".into(), tab: Some(Tab::Workflows), refresh: None, body })
}

fn table<'w>(items: impl Iterator<Item = &'w WorkflowItem>) -> Html {
    html!(
        "<div class=\"card scroll\"><table><thead><tr><th>Workflow</th><th>Version</th><th></th><th>Description</th>\
         <th>Deployed (UTC)</th><th></th></tr></thead><tbody>{}</tbody></table></div>",
        items.map(row).collect::<Html>()
    )
}

fn row(item: &WorkflowItem) -> Html {
    let (name, version) = (item.name.as_str(), item.version.as_str());
    let latest = item.latest.then(|| html!("<span class=\"badge running\">latest</span>"));
    html!(
        "<tr><td><a class=\"id\" href=\"/ui/workflows/{}/{}\">{}</a></td><td>{}</td><td>{}</td><td>{}</td><td>{}</td>\
         <td class=\"nowrap\">{}</td></tr>",
        encoded(name),
        encoded(version),
        name,
        version,
        latest,
        item.description,
        value::moment(item.created_at_ms),
        executions_of(name)
    )
}

fn executions_of(name: &str) -> Html {
    html!("<a href=\"/ui/?workflow={}\">Executions</a>", encoded(name))
}

/// The versions of one workflow, and what the newest does.
pub async fn all_of(pages: &Pages, name: WorkflowName) -> Result<Page, Trouble> {
    let newest = Request::GetWorkflow { name: name.clone(), version: None };
    let Reply::Workflow(view) = pages.ask(newest).await? else { return Err(other()) };
    let Reply::Workflows(found) = pages.ask(Request::ListWorkflows).await? else { return Err(other()) };
    let description = view.item.description.as_ref().map(|text| html!("<p class=\"quiet\">{}</p>", text));
    let body = html!(
        "<p class=\"crumb\"><a href=\"/ui/workflows\">Workflows</a> / {}</p><h1>{}</h1>{}<h2>Versions</h2>{}\
         <h2>Steps of version {}</h2>{}",
        name.as_str(),
        name.as_str(),
        description,
        table(found.workflows.iter().filter(|item| item.name == name)),
        view.item.version.as_str(),
        steps_table(steps_of(&view.definition))
    );
    Ok(Page { title: name.to_string(), tab: Some(Tab::Workflows), refresh: None, body })
}

fn steps_of(definition: &Value) -> &[Value] {
    definition["steps"].as_array().map(Vec::as_slice).unwrap_or_default()
}

pub async fn one(pages: &Pages, name: WorkflowName, version: Option<Version>) -> Result<Page, Trouble> {
    let Reply::Workflow(view) = pages.ask(Request::GetWorkflow { name, version }).await? else { return Err(other()) };
    let item = &view.item;
    let latest = item.latest.then(|| html!("<span class=\"badge running\">latest</span>"));
    let description = item.description.as_ref().map(|text| html!("<p class=\"quiet\">{}</p>", text));
    let steps = steps_of(&view.definition);
    let body = html!(
        "<p class=\"crumb\"><a href=\"/ui/workflows\">Workflows</a> / <a href=\"/ui/workflows/{}\">{}</a> / {}</p>\
         <h1>{} <span class=\"quiet\">{}</span>{}</h1>{}\
         <div class=\"card pad\"><dl><div><dt>Deployed (UTC)</dt><dd>{}</dd></div><div><dt>Steps</dt><dd>{}</dd></div>\
         <div><dt>Hash</dt><dd><code>{}</code></dd></div><div><dt>Runs</dt><dd>{}</dd></div></dl></div>\
         <h2>Steps</h2>{}<h2>Definition</h2><div class=\"card\">{}</div>",
        encoded(item.name.as_str()),
        item.name.as_str(),
        item.version.as_str(),
        item.name.as_str(),
        item.version.as_str(),
        latest,
        description,
        value::moment(item.created_at_ms),
        steps.len(),
        item.definition_hash.as_str(),
        executions_of(item.name.as_str()),
        steps_table(steps),
        value::json(&view.definition)
    );
    let title = format!("{} {}", item.name, item.version);
    Ok(Page { title, tab: Some(Tab::Workflows), refresh: None, body })
}

/// Steps of a definition that a page shows.
const MAX_STEPS: usize = 500;

fn steps_table(steps: &[Value]) -> Html {
    let rows = steps.iter().take(MAX_STEPS).enumerate().map(|(index, step)| {
        html!(
            "<tr><td class=\"id\">{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            step["id"].as_str(),
            what(step),
            after(step, index == 0),
            step["when"].as_str().map(|when| html!("<code>{}</code>", when)),
            retry(step),
            timeouts(step)
        )
    });
    let more = steps
        .len()
        .checked_sub(MAX_STEPS + 1)
        .map(|_| html!("<tr><td colspan=\"6\" class=\"quiet\">… {} more</td></tr>", steps.len() - MAX_STEPS));
    html!(
        "<div class=\"card scroll\"><table><thead><tr><th>Step</th><th>Does</th><th>After</th><th>When</th>\
         <th>Retry</th><th>Time-outs</th></tr></thead><tbody>{}{}</tbody></table></div>",
        rows.collect::<Html>(),
        more
    )
}

/// What a step does, from its definition.
pub fn what(step: &Value) -> Html {
    let text = |field: &str| step[field].as_str();
    match (text("task"), text("await")) {
        (Some(task), _) => html!("{}", task),
        (None, Some(signal)) => html!("await <code>{}</code>", signal),
        (None, None) if step.get("for").is_some() => html!("for each: {}", what(&step["do"])),
        (None, None) => match (text("workflow"), step.get("sleep")) {
            (Some(workflow), _) => html!("workflow {}", workflow),
            (None, Some(sleep)) => html!("sleep <code>{}</code>", sleep.as_str()),
            (None, None) if step.get("continue_as_new").is_some() => html!("continue as new"),
            (None, None) => html!("compute"),
        },
    }
}

/// How often it is tried, and after which pauses.
fn retry(step: &Value) -> Option<Html> {
    let retry = step["retry"].as_object()?;
    let text = |name: &str| match retry.get(name)? {
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let attempts = text("max_attempts")?;
    let pauses = [("initial", "first after"), ("factor", "×"), ("max", "at most")];
    let pauses: Vec<String> =
        pauses.into_iter().filter_map(|(name, words)| Some(format!("{words} {}", text(name)?))).collect();
    let pauses = (!pauses.is_empty()).then(|| html!(" <span class=\"quiet small\">{}</span>", pauses.join(", ")));
    Some(html!("{} attempts{}", attempts, pauses))
}

/// How long an attempt may run, and how long it may wait for a worker.
fn timeouts(step: &Value) -> Html {
    let limits = [("timeout", ""), ("queue_timeout", "in the queue ")];
    let limit = |(name, words): (&str, &str)| {
        let limit = match step.get(name)? {
            Value::String(text) => text.clone(),
            ms => format!("{ms} ms"),
        };
        Some(html!("<span class=\"field\"><span class=\"quiet\">{}</span>{}</span>", words, limit))
    };
    limits.into_iter().filter_map(limit).collect()
}

/// What a step waits for; the first one of a definition begins at once where it names nothing.
fn after(step: &Value, first: bool) -> Html {
    match step["after"].as_array() {
        None if first => html!("<span class=\"quiet\">the start</span>"),
        None => html!("<span class=\"quiet\">the one before</span>"),
        Some(ids) if ids.is_empty() => html!("<span class=\"quiet\">the start</span>"),
        Some(ids) => {
            let ids: Vec<&str> = ids.iter().filter_map(Value::as_str).collect();
            html!("{}", ids.join(", "))
        }
    }
}
