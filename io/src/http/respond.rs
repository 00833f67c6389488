//! From a [`Response`] to status, headers and bytes. Pure.

use super::metrics::{self, Process};
use crate::definition::Document;
use orbit_core::api::response::{Accepted, Polled, ResultOutcome};
use orbit_core::api::{ApiError, Reply, Response};
use orbit_core::definition::Problem;
use orbit_core::id::Token;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;

/// What is left to write: a status, the headers that differ from answer to answer, and the body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    pub status: u16,
    pub content_type: &'static str,
    /// `retry-after`, in seconds.
    pub retry_after: Option<u32>,
    /// `x-orbit-leader`: where the leader is, as a standby says it.
    pub leader: Option<String>,
    pub body: Vec<u8>,
}

const JSON: &str = "application/json";
const TEXT: &str = "text/plain; charset=utf-8";

/// Writes an answer out. `request_id` goes into errors; `process` is asked for where metrics are wanted.
pub fn render(response: &Response, request_id: &str, process: impl FnOnce() -> Process) -> Rendered {
    let rendered = |content_type, body| Rendered {
        status: response.status,
        content_type,
        retry_after: response.retry_after,
        leader: match &response.reply {
            Reply::Error(error) => leader_of(error),
            _ => None,
        },
        body,
    };
    let body = match &response.reply {
        Reply::Error(error) => text_of(&error.body(request_id)),
        Reply::Deployed(reply) => text_of(reply),
        Reply::Workflows(reply) => text_of(reply),
        Reply::Workflow(reply) => text_of(reply),
        Reply::Started(reply) => text_of(reply),
        Reply::Executions(reply) => text_of(reply),
        Reply::Execution(reply)
        | Reply::Cancelled(reply)
        | Reply::Terminated(reply)
        | Reply::Recovered(reply)
        | Reply::Released(reply) => text_of(reply),
        Reply::Signalled(reply) => text_of(reply),
        Reply::Updated(reply) => text_of(reply),
        Reply::Queried(reply) => text_of(reply),
        Reply::History(reply) => text_of(reply),
        Reply::Registered(reply) => text_of(reply),
        Reply::Polled(reply) => text_of(&PolledText { reply, request_id }),
        Reply::Heartbeat(reply) => text_of(reply),
        Reply::Unregistered => b"{}".to_vec(),
        Reply::Reported(outcomes) => text_of(&ReportedText { outcomes: Outcomes { outcomes, request_id } }),
        Reply::ReportedOne(outcome) => text_of(&OutcomeText::of(outcome, request_id)),
        Reply::Workers(reply) => text_of(reply),
        Reply::Nodes(reply) => text_of(reply),
        Reply::SteppedDown(reply) => text_of(reply),
        Reply::Health(reply) => text_of(reply),
        Reply::Ready(reply) => text_of(reply),
        Reply::Probe { ok } => {
            let (status, text) = if *ok { (200, "ok\n") } else { (503, "not ready\n") };
            return Rendered { status, ..rendered(TEXT, text.into()) };
        }
        Reply::Metrics(reply) => return rendered(metrics::CONTENT_TYPE, metrics::render(reply, &process()).into()),
    };
    rendered(JSON, body)
}

/// Writes an error out that never reached the node.
pub fn render_error(error: &ApiError, request_id: &str) -> Rendered {
    let retry_after = matches!(error.code.status(), 429 | 503).then_some(1);
    let body = text_of(&error.body(request_id));
    Rendered { status: error.code.status(), content_type: JSON, retry_after, leader: leader_of(error), body }
}

fn leader_of(error: &ApiError) -> Option<String> {
    error.details.get("leader_addr").and_then(|addr| addr.as_str()).map(str::to_owned)
}

/// Puts the results that the router refused among the outcomes of the others, each at its place in the batch.
pub fn insert_refused(reply: &mut Reply, refused: Vec<(usize, ResultOutcome)>) {
    let outcomes = match reply {
        Reply::Reported(outcomes) => outcomes,
        Reply::Polled(polled) => &mut polled.outcomes,
        // An error is about the whole request; nothing of it was taken.
        _ => return,
    };
    for (index, outcome) in refused {
        outcomes.insert(index.min(outcomes.len()), outcome);
    }
}

/// Adds line and column to the problems and warnings of a definition, which name their places by JSON pointers.
pub fn insert_places(reply: &mut Reply, document: &Document) {
    match reply {
        Reply::Deployed(deployed) => {
            for warning in &mut deployed.warnings {
                warning.location = document.locate_problem(&warning.problem);
                // The place says it.
                warning.problem.of_key = false;
            }
        }
        Reply::Error(error) => {
            let Some(Value::Array(problems)) = error.details.get_mut("problems") else { return };
            for problem in problems {
                let Ok(read) = serde_json::from_value::<Problem>(problem.clone()) else { continue };
                problem.as_object_mut().map(|fields| fields.remove("of_key"));
                let Some(place) = document.locate_problem(&read) else { continue };
                problem["line"] = place.line.into();
                problem["column"] = place.column.into();
            }
        }
        _ => {}
    }
}

fn text_of(reply: &impl Serialize) -> Vec<u8> {
    // Room for most answers: growing from nothing costs several copies.
    let mut body = Vec::with_capacity(512);
    serde_json::to_writer(&mut body, reply).expect("replies have string keys, and writing to memory cannot fail");
    body
}

/// A poll's answer, its outcomes with whole errors.
struct PolledText<'a> {
    reply: &'a Polled,
    request_id: &'a str,
}

impl Serialize for PolledText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Polled { tasks, cancel, outcomes } = self.reply;
        let mut fields = serializer.serialize_map(None)?;
        fields.serialize_entry("tasks", tasks)?;
        fields.serialize_entry("cancel", cancel)?;
        if !outcomes.is_empty() {
            fields.serialize_entry("outcomes", &Outcomes { outcomes, request_id: self.request_id })?;
        }
        fields.end()
    }
}

#[derive(serde::Serialize)]
struct ReportedText<'a> {
    outcomes: Outcomes<'a>,
}

struct Outcomes<'a> {
    outcomes: &'a [ResultOutcome],
    request_id: &'a str,
}

impl Serialize for Outcomes<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.outcomes.iter().map(|outcome| OutcomeText::of(outcome, self.request_id)))
    }
}

/// An outcome, its error as the API tells errors, without the outer wrapper.
#[derive(serde::Serialize)]
struct OutcomeText<'a> {
    token: &'a Token,
    outcome: Accepted,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<Value>,
}

impl OutcomeText<'_> {
    fn of<'a>(outcome: &'a ResultOutcome, request_id: &str) -> OutcomeText<'a> {
        let error = outcome.error.as_ref().map(|error| error.body(request_id)["error"].take());
        OutcomeText { token: &outcome.token, outcome: outcome.outcome, error }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use orbit_core::api::ErrorCode;
    use orbit_core::api::response::{Cancels, Deployed, Executions};
    use serde_json::json;

    fn rendered(response: impl Into<Response>) -> (Rendered, Value) {
        let rendered = render(&response.into(), "r-7", Process::default);
        let body = serde_json::from_slice(&rendered.body).unwrap_or(Value::Null);
        (rendered, body)
    }

    fn outcome(execution: &str, error: Option<ApiError>) -> ResultOutcome {
        let outcome = if error.is_some() { Accepted::Refused } else { Accepted::Accepted };
        ResultOutcome { token: Token { execution: execution.into(), id: uuid::Uuid::from_u128(1) }, outcome, error }
    }

    const UUID: &str = "00000000-0000-0000-0000-000000000001";

    #[test]
    fn an_error_carries_its_hint_and_the_request_id_and_says_when_to_come_again() {
        let (rendered, body) = rendered(ApiError::new(ErrorCode::NotReady, "recovering").with("phase", "load"));
        assert_eq!((rendered.status, rendered.retry_after, rendered.content_type), (503, Some(1), JSON));
        let expected = json!({"error": {"code": "NOT_READY", "message": "recovering", "hint": "try again in a moment",
            "retryable": true, "details": {"phase": "load"}, "request_id": "r-7"}});
        assert_eq!(body, expected);
        assert_eq!(render_error(&ApiError::new(ErrorCode::NotReady, "recovering"), "r-7").retry_after, Some(1));
        assert_eq!(render_error(&ApiError::new(ErrorCode::NotFound, "no"), "r-7").retry_after, None);
    }

    #[test]
    fn the_outcomes_of_a_batch_carry_errors_without_the_outer_wrapper() {
        let error = ApiError::new(ErrorCode::UnknownToken, "who?");
        let (_, body) = rendered(Response::ok(Reply::Reported(vec![outcome("a", None), outcome("b", Some(error))])));
        let expected = json!({"outcomes": [
            {"token": format!("a/{UUID}"), "outcome": "accepted"},
            {"token": format!("b/{UUID}"), "outcome": "refused", "error": {"code": "UNKNOWN_TOKEN", "message": "who?",
                "hint": "report only tokens that a poll returned", "retryable": false, "details": {},
                "request_id": "r-7"}},
        ]});
        assert_eq!(body, expected);
    }

    #[test]
    fn a_single_report_is_answered_with_its_outcome() {
        let (_, body) = rendered(Response::ok(Reply::ReportedOne(outcome("a", None))));
        assert_eq!(body, json!({"token": format!("a/{UUID}"), "outcome": "accepted"}));
    }

    #[test]
    fn a_poll_shows_outcomes_only_where_it_brought_results() {
        let polled = |outcomes| Response::ok(Reply::Polled(Polled { tasks: vec![], cancel: vec![], outcomes }));
        assert_eq!(rendered(polled(vec![])).1, json!({"tasks": [], "cancel": []}));
        let error = ApiError::new(ErrorCode::Internal, "oops");
        let (_, body) = rendered(polled(vec![outcome("a", Some(error))]));
        assert_eq!(body["outcomes"][0]["error"]["hint"], ErrorCode::Internal.hint());
        // What the core's own type reads is what is written here.
        assert_eq!(serde_json::from_value::<Polled>(body).unwrap().outcomes.len(), 1);
    }

    #[test]
    fn refused_results_return_to_their_places_in_the_batch() {
        let refused = |execution| outcome(execution, Some(ApiError::new(ErrorCode::PayloadTooLarge, "big")));
        let order = |reply: &Reply| match reply {
            Reply::Reported(outcomes) => outcomes.iter().map(|o| o.token.execution.to_string()).collect::<String>(),
            _ => String::new(),
        };
        let mut reply = Reply::Reported(vec![outcome("b", None), outcome("d", None)]);
        insert_refused(&mut reply, vec![(0, refused("a")), (2, refused("c")), (4, refused("e"))]);
        assert_eq!(order(&reply), "abcde");
        let mut error = Reply::Error(ApiError::new(ErrorCode::UnknownSession, "who?"));
        let before = error.clone();
        insert_refused(&mut error, vec![(0, refused("a"))]);
        assert_eq!(error, before);
    }

    #[test]
    fn the_problems_of_a_definition_get_their_places_in_the_text() {
        let text = "name: W\nsteps:\n  - id: a\n    task: 5\n";
        let document = crate::definition::parse(text, crate::definition::Format::Yaml).unwrap();
        let problems = json!([
            {"path": "/steps/0/task", "of_key": true, "message": "no"},
            {"path": "/steps/0/task", "message": "no"},
            {"path": "", "message": "no"},
            7,
        ]);
        let error = ApiError::new(ErrorCode::DefinitionInvalid, "no").with("problems", problems);
        let mut reply = Reply::Error(error);
        insert_places(&mut reply, &document);
        let Reply::Error(error) = reply else { panic!("it stays an error") };
        let problems = &error.details["problems"];
        assert_eq!((&problems[0]["line"], &problems[0]["column"]), (&json!(4), &json!(5)));
        assert_eq!(problems[0], json!({"path": "/steps/0/task", "message": "no", "line": 4, "column": 5}));
        assert_eq!(problems[1]["column"], 11);
        assert_eq!(problems[2]["line"], 1);
        assert_eq!(problems[3], 7);
        let text = "name: W\nresult: a ${ nope }\n";
        let document = crate::definition::parse(text, crate::definition::Format::Yaml).unwrap();
        let (message, hint) = ("no".to_owned(), String::new());
        let problem = Problem { path: "/result".into(), offset: Some(5), of_key: false, message, hint };
        let error = ApiError::new(ErrorCode::DefinitionInvalid, "no");
        let mut reply = Reply::Error(error.with("problems", json!([problem])));
        insert_places(&mut reply, &document);
        let Reply::Error(error) = reply else { panic!("it stays an error") };
        assert_eq!(error.details["problems"][0]["column"], 14);
        let mut reply = Reply::Deployed(Deployed {
            name: "W".into(),
            version: "1".into(),
            definition_hash: "sha256:0".into(),
            result: "created".into(),
            warnings: vec![problem.into()],
        });
        insert_places(&mut reply, &document);
        let (_, body) = rendered(Response::ok(reply));
        assert_eq!((&body["warnings"][0]["line"], &body["warnings"][0]["column"]), (&json!(2), &json!(14)));
    }

    #[test]
    fn a_probe_is_one_line_of_text() {
        let probe = |ok| render(&Response::ok(Reply::Probe { ok }), "", Process::default);
        assert_eq!((probe(true).status, probe(true).body.as_slice()), (200, b"ok\n".as_slice()));
        assert_eq!((probe(false).status, probe(false).body.as_slice()), (503, b"not ready\n".as_slice()));
        assert_eq!(probe(true).content_type, TEXT);
    }

    #[test]
    fn replies_are_their_own_bodies() {
        assert_eq!(rendered(Response::ok(Reply::Unregistered)).1, json!({}));
        assert_eq!(rendered(Response::ok(Reply::Heartbeat(Cancels { cancel: vec![] }))).1, json!({"cancel": []}));
        let page = Executions { executions: vec![], next_cursor: Some("c".into()) };
        let (rendered, body) = rendered(Response::created(Reply::Executions(page)));
        assert_eq!((rendered.status, body), (201, json!({"executions": [], "next_cursor": "c"})));
    }
}
