//! Bytes as an HTTP request (`METHOD target`, headers, an empty line, the body), routed and answered.

use hyper::Method;
use orbit_core::api::response::{
    Accepted, Assignment, ExecutionItem, ExecutionView, History, Polled, ResultOutcome, WorkflowItem, WorkflowView,
};
use orbit_core::api::{ApiError, ErrorCode, Reply, Request, Response};
use orbit_core::definition::Definition;
use orbit_core::execution::event::{Event, Json, Recorded};
use orbit_core::id::{ClusterId, ExecutionId, Run, Seq, Token};
use orbit_core::store::append::Status;
use orbit_core::time::ClusterMs;
use orbit_io::http::respond::{insert_places, insert_refused, render, render_error};
use orbit_io::http::route::{RouteLimits, Routed, route};
use serde_json::Value;
use uuid::Uuid;

/// Routes the request under the usual limits and under tight ones. What is refused is an error of the client's that
/// says why; what is accepted can be written and read again, and so can the answers that its values stand in.
pub fn run(data: &[u8]) {
    let end = data.windows(2).position(|two| two == b"\n\n").unwrap_or(data.len());
    let (head, body) = (&data[..end], data.get(end + 2..).unwrap_or_default());
    // Of a head, only what hyper lets pass: text.
    let Ok(head) = std::str::from_utf8(head) else { return };
    let mut lines = head.lines();
    let Some((method, target)) = lines.next().and_then(|line| line.split_once(' ')) else { return };
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return };
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    let content_type = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-type").then_some(value.trim())
    });
    // The last is the one up to which the router need not count, since no value is written out in five times its bytes.
    for max_payload_bytes in [1 << 20, 48, 5 * body.len()] {
        match route(&method, path, query, content_type, body, &RouteLimits { max_payload_bytes }) {
            Ok(routed) => accepted(routed, max_payload_bytes),
            Err(error) => refused(&error),
        }
    }
}

fn refused(error: &ApiError) {
    assert!((400..500).contains(&error.code.status()), "{error:?}");
    assert!(!error.message.is_empty(), "{error:?}");
    let rendered = render_error(error, "r-1");
    assert_eq!(rendered.status, error.code.status());
    let body: Value = serde_json::from_slice(&rendered.body).expect("an error is JSON");
    assert_eq!(body["error"]["code"], error.code.as_str());
    assert_eq!(body["error"]["message"], error.message.as_str());
}

fn accepted(routed: Routed, max_payload_bytes: usize) {
    let Routed { request, refused: too_large, document } = routed;
    let text = serde_json::to_string(&request).expect("a request is written");
    let read = serde_json::from_str::<Request>(&text);
    assert_eq!(read.ok().as_ref(), Some(&request), "a request is read back as it was");

    let fits = |value: &Json| assert!(value.to_string().len() <= max_payload_bytes, "a payload is past its limit");
    match request {
        Request::Deploy { document: value, .. } => match Definition::from_document(&value) {
            Ok(definition) => {
                let item = WorkflowItem {
                    name: definition.name,
                    version: definition.version,
                    definition_hash: definition.hash,
                    description: definition.description,
                    created_at_ms: ClusterMs(0),
                    latest: true,
                };
                answered(Reply::Workflow(WorkflowView { item, definition: definition.document }));
            }
            Err(problems) => {
                let problems = serde_json::to_value(problems).expect("problems are JSON");
                let error = ApiError::new(ErrorCode::DefinitionInvalid, "no").with("problems", problems);
                let mut reply = Reply::Error(error);
                insert_places(&mut reply, &document.expect("a definition comes with its places"));
                answered(reply);
            }
        },
        Request::Start(start) => {
            fits(&start.input);
            let execution = start.execution_id.unwrap_or_else(|| ExecutionId::new("e-1"));
            let version = start.version.unwrap_or_else(|| "1".into());
            let event = Event::WorkflowCreated {
                workflow: start.workflow.clone(),
                version: version.clone(),
                definition_hash: "sha256:0".into(),
                input: start.input.clone(),
                labels: start.labels.clone(),
                cluster_id: ClusterId(Uuid::nil()),
                run: Run(1),
                parent: None,
                continued: None,
            };
            let recorded = Recorded { seq: Seq(1), at_ms: ClusterMs(1), event };
            assert_eq!(Recorded::decode(&recorded.encode()).as_ref(), Ok(&recorded), "what is accepted can be stored");
            let events = vec![recorded];
            answered(Reply::History(History { execution_id: execution.clone(), run: Run(1), events, more: false }));
            let token = Token { execution: execution.clone(), id: Uuid::nil() };
            let task = Assignment {
                token,
                execution_id: execution.clone(),
                workflow: start.workflow.clone(),
                workflow_version: version.clone(),
                step_id: "s".into(),
                task_name: "t".into(),
                contract_version: "1".into(),
                input: start.input.clone(),
                idempotency_key: "k".into(),
                attempt: 1,
                redelivery: false,
                deadline_ms: None,
                timeout_ms: None,
            };
            answered(Reply::Polled(Polled { tasks: vec![task], cancel: vec![], outcomes: vec![] }));
            let item = ExecutionItem {
                execution_id: execution,
                workflow: start.workflow,
                version,
                status: Status::Running,
                run: Run(1),
                created_at_ms: ClusterMs(1),
                updated_at_ms: ClusterMs(1),
                labels: start.labels,
            };
            let (output, error, last_seq) = (None, None, Seq(1));
            let (reason, cancel_reason, waiting) = (None, None, vec![]);
            let input = start.input;
            let parent = None;
            let view = ExecutionView { item, parent, input, output, error, last_seq, reason, cancel_reason, waiting };
            answered(Reply::Execution(view));
        }
        Request::Report { results, .. } => {
            let outcomes = results.into_iter().map(|result| outcome(result.token)).collect::<Vec<_>>();
            let (taken, left_out) = (outcomes.len(), too_large.len());
            let mut reply = Reply::Reported(outcomes);
            insert_refused(&mut reply, too_large);
            let body = answered(reply);
            assert_eq!(body["outcomes"].as_array().map(Vec::len), Some(taken + left_out));
        }
        Request::Poll(poll) => {
            let outcomes = poll.results.into_iter().map(|result| outcome(result.token)).collect();
            let mut reply = Reply::Polled(Polled { tasks: vec![], cancel: poll.holding.unwrap_or_default(), outcomes });
            insert_refused(&mut reply, too_large);
            answered(reply);
        }
        _ => {}
    }
}

fn outcome(token: Token) -> ResultOutcome {
    ResultOutcome { token, outcome: Accepted::Stale, error: None }
}

/// The body of an answer, which is JSON that a client can read.
fn answered(reply: Reply) -> Value {
    let rendered = render(&Response::ok(reply), "r-1", Default::default);
    serde_json::from_slice(&rendered.body).expect("an answer is JSON that can be read")
}
