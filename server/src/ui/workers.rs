//! The workers that registered here.

use super::html::{Html, html};
use super::page::{Page, Tab};
use super::{Pages, Trouble, other, value};
use orbit_core::api::response::{SessionView, WorkerView};
use orbit_core::api::{Reply, Request};

pub async fn page(pages: &Pages) -> Result<Page, Trouble> {
    let Reply::Workers(found) = pages.ask(Request::ListWorkers).await? else { return Err(other()) };
    let mut workers = found.workers;
    // Those that are there first, and then those that were there last.
    workers.sort_by(|a, b| {
        (b.sessions > 0, b.last_seen_ms, &a.worker_id).cmp(&(a.sessions > 0, a.last_seen_ms, &b.worker_id))
    });
    let body = if workers.is_empty() {
        html!("<div class=\"card empty\">No worker has registered yet.</div>")
    } else {
        html!(
            "<div class=\"card scroll\"><table><thead><tr><th>Worker</th><th>State</th><th class=\"number\">Tasks held</th>\
             <th>Runtime</th><th>Registered (UTC)</th><th>Last seen (UTC)</th><th>Runs</th></tr></thead><tbody>{}</tbody></table></div>",
            workers.iter().flat_map(rows).collect::<Html>()
        )
    };
    let body = html!("<h1>Workers</h1>{}", body);
    Ok(Page { title: "Workers".into(), tab: Some(Tab::Workers), refresh: None, body })
}

/// A row for each session; one for a worker that is gone.
fn rows(worker: &WorkerView) -> Vec<Html> {
    if worker.open_sessions.is_empty() {
        return vec![row(worker, None)];
    }
    worker.open_sessions.iter().map(|session| row(worker, Some(session))).collect()
}

fn row(worker: &WorkerView, session: Option<&SessionView>) -> Html {
    let (state, holding, registered, seen) = match session {
        None => (html!("<span class=\"badge\">gone</span>"), worker.holding, None, worker.last_seen_ms),
        Some(session) => {
            let id = session.session_id.to_string();
            let state = html!("<span class=\"badge yes\">alive</span> <span class=\"id quiet small\">{}</span>", id);
            (state, session.holding, Some(value::moment(session.registered_ms)), session.last_seen_ms)
        }
    };
    let contracts = worker.contracts.iter().map(|contract| {
        let (task, version) = (contract.task_name.as_str(), contract.contract_version.as_str());
        html!("<span class=\"label\">{} <span class=\"quiet\">v{}</span></span>", task, version)
    });
    let sdk = worker.sdk.as_ref().map(|sdk| html!(" <span class=\"quiet\">{}</span>", sdk));
    html!(
        "<tr><td class=\"id\">{}</td><td class=\"nowrap\">{}</td><td class=\"number\">{}</td><td>{}{}</td><td>{}</td>\
         <td>{}</td><td>{}</td></tr>",
        worker.worker_id.as_str(),
        state,
        holding,
        worker.runtime,
        sdk,
        registered,
        value::moment(seen),
        contracts.collect::<Html>()
    )
}
