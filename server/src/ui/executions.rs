//! The first page: executions, newest first.

use super::html::{Html, encoded, html};
use super::page::{Page, Tab};
use super::sign_in::decoded;
use super::{Pages, Trouble, other, value};
use hyper::Method;
use orbit_core::api::request::ListExecutions;
use orbit_core::api::response::{ExecutionItem, Executions};
use orbit_core::api::{ApiError, Reply, Request};
use orbit_core::store::append::Status;
use orbit_io::http::route::{RouteLimits, route};
use std::collections::BTreeSet;

/// Executions of one page.
const PER_PAGE: u32 = 50;

pub async fn page(pages: &Pages, query: &str) -> Result<Page, Trouble> {
    let list = read(query)?;
    let Reply::Executions(found) = pages.ask(Request::ListExecutions(list.clone())).await? else {
        return Err(other());
    };
    let Reply::Workflows(workflows) = pages.ask(Request::ListWorkflows).await? else { return Err(other()) };
    let names: BTreeSet<String> = workflows.workflows.iter().map(|item| item.name.to_string()).collect();
    let body = html!(
        "<h1>Executions</h1>{}{}{}",
        filters(&Form::of(&list), &names),
        table(&found.executions, is_filtered(&list)),
        paging(&list, &found)
    );
    Ok(Page { title: "Executions".into(), tab: Some(Tab::Executions), refresh: None, body })
}

/// What was asked for is none of what can be: the form stands as it was filled in, with what is wrong beside it.
pub async fn refused(pages: &Pages, query: &str, error: &ApiError) -> Result<Page, Trouble> {
    let Reply::Workflows(workflows) = pages.ask(Request::ListWorkflows).await? else { return Err(other()) };
    let names: BTreeSet<String> = workflows.workflows.iter().map(|item| item.name.to_string()).collect();
    let body = html!(
        "<h1>Executions</h1>{}<div class=\"notice\" role=\"alert\">{}</div>",
        filters(&Form::filled_in(query), &names),
        error.message
    );
    Ok(Page { title: "Executions".into(), tab: Some(Tab::Executions), refresh: None, body })
}

/// What stands in the form.
#[derive(Debug, Default)]
struct Form {
    status: String,
    workflow: String,
    label: String,
    clear: bool,
}

impl Form {
    fn of(list: &ListExecutions) -> Form {
        let label = list.labels.iter().next().map(|(key, value)| format!("{key}={value}"));
        Form {
            status: list.status.map(|status| status.as_str().to_owned()).unwrap_or_default(),
            workflow: list.workflow.as_ref().map(|name| name.as_str().to_owned()).unwrap_or_default(),
            label: label.unwrap_or_default(),
            clear: is_filtered(list),
        }
    }

    /// As somebody sent it, whatever it says.
    fn filled_in(query: &str) -> Form {
        let mut form = Form { clear: true, ..Form::default() };
        for (name, value) in query.split('&').filter_map(|part| part.split_once('=')) {
            let value = String::from_utf8_lossy(&decoded(value.as_bytes())).into_owned();
            match name {
                "status" => form.status = value,
                "workflow" => form.workflow = value,
                "label" => form.label = value,
                _ => {}
            }
        }
        form
    }
}

/// The list that a query asks for: as the API reads it, but for fields of the form that were left empty.
fn read(query: &str) -> Result<ListExecutions, Trouble> {
    let given = query.split('&').filter(|part| part.split_once('=').is_some_and(|(_, value)| !value.is_empty()));
    let limit = format!("limit={PER_PAGE}");
    let query: Vec<&str> = given.filter(|part| !part.starts_with("limit=")).chain([limit.as_str()]).collect();
    let limits = RouteLimits { max_payload_bytes: 0 };
    match route(&Method::GET, "/v1/executions", Some(&query.join("&")), None, b"", &limits)?.request {
        Request::ListExecutions(list) => Ok(list),
        _ => Err(other()),
    }
}

fn is_filtered(list: &ListExecutions) -> bool {
    list.status.is_some() || list.workflow.is_some() || !list.labels.is_empty() || list.since.is_some()
}

fn filters(form: &Form, names: &BTreeSet<String>) -> Html {
    let option = |status: Status| {
        let selected = (form.status == status.as_str()).then(|| html!(" selected"));
        html!("<option{}>{}</option>", selected, status.as_str())
    };
    let workflows = names.iter().map(|name| html!("<option value=\"{}\">", name)).collect::<Html>();
    let clear = form.clear.then(|| html!("<a href=\"/ui/\">Clear</a>"));
    html!(
        "<form class=\"filters\" method=\"get\" action=\"/ui/\">\
         <label>Status<select name=\"status\"><option value=\"\">any</option>{}</select></label>\
         <label>Workflow<input name=\"workflow\" list=\"workflows\" value=\"{}\" placeholder=\"any\">\
         <datalist id=\"workflows\">{}</datalist></label>\
         <label>Label<input name=\"label\" value=\"{}\" placeholder=\"key=value\"></label>\
         <button>Filter</button>{}</form>",
        Status::ALL.into_iter().map(option).collect::<Html>(),
        form.workflow.as_str(),
        workflows,
        form.label.as_str(),
        clear
    )
}

fn table(executions: &[ExecutionItem], filtered: bool) -> Html {
    if executions.is_empty() {
        let text = match filtered {
            true => html!("No execution fits."),
            false => html!("Nothing has been started yet. <code>orbit start WORKFLOW</code> starts an execution."),
        };
        return html!("<div class=\"card empty\">{}</div>", text);
    }
    let rows = executions.iter().map(|item| {
        let took = match item.status.is_terminal() {
            true => value::duration(item.updated_at_ms.0 - item.created_at_ms.0),
            false => String::new(),
        };
        let run = (item.run.0 > 1).then(|| html!(" <span class=\"quiet small\">run {}</span>", item.run.0));
        html!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"number nowrap\">{}</td><td>{}</td>\
             </tr>",
            value::execution(item.execution_id.as_str()),
            value::workflow(item.workflow.as_str(), item.version.as_str()),
            html!("{}{}", value::status(item.status), run),
            value::moment(item.created_at_ms),
            took,
            value::labels(&item.labels)
        )
    });
    html!(
        "<div class=\"card scroll\"><table><thead><tr><th>Execution</th><th>Workflow</th><th>Status</th>\
         <th>Started (UTC)</th><th class=\"number\">Took</th><th>Labels</th></tr></thead>\
         <tbody>{}</tbody></table></div>",
        rows.collect::<Html>()
    )
}

/// The ways to the first page and to the next.
fn paging(list: &ListExecutions, found: &Executions) -> Html {
    let target = |cursor: Option<&str>| {
        let mut parts = Vec::new();
        let mut part = |name: &str, value: &str| parts.push(format!("{name}={}", encoded(value)));
        if let Some(status) = list.status {
            part("status", status.as_str());
        }
        if let Some(workflow) = &list.workflow {
            part("workflow", workflow.as_str());
        }
        for (key, value) in &list.labels {
            part("label", &format!("{key}={value}"));
        }
        if let Some(since) = list.since {
            part("since", &since.0.to_string());
        }
        if let Some(cursor) = cursor {
            part("cursor", cursor);
        }
        format!("/ui/?{}", parts.join("&"))
    };
    let first = list.cursor.as_ref().map(|_| html!("<a href=\"{}\">← Newest</a>", target(None)));
    let next = found
        .next_cursor
        .as_deref()
        .map(|cursor| html!("<a rel=\"next\" href=\"{}\">Older →</a>", target(Some(cursor))));
    html!("<div class=\"pages\">{}{}</div>", first, next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use orbit_core::api::ErrorCode;

    #[test]
    fn the_form_asks_as_the_api_does_and_may_leave_fields_empty() {
        let list = read("status=running&workflow=&label=team%3Da+b&limit=7").expect("it is right");
        assert_eq!((list.status, list.workflow, list.limit), (Some(Status::Running), None, PER_PAGE));
        assert_eq!(list.labels.get("team").map(String::as_str), Some("a b"));
        assert_eq!(read("").expect("it is right").status, None);
        for wrong in ["status=walking", "label=team", "zebra=1"] {
            assert_eq!(read(wrong).expect_err("it is wrong").code, ErrorCode::InvalidRequest, "{wrong}");
        }
    }

    #[test]
    fn the_next_page_keeps_the_filters() {
        let list = read("status=failed&workflow=A%26B&label=x%3Dy%22&cursor=1.a").expect("it is right");
        let found = Executions { executions: vec![], next_cursor: Some("0.<b>".into()) };
        let html = paging(&list, &found).into_string();
        let filters = "/ui/?status=failed&amp;workflow=A%26B&amp;label=x%3Dy%22";
        assert!(html.contains(&format!("href=\"{filters}\">← Newest")), "{html}");
        assert!(html.contains(&format!("href=\"{filters}&amp;cursor=0.%3Cb%3E\">Older →")), "{html}");
    }
}
