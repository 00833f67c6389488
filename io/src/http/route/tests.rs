use super::*;
use orbit_core::api::request::{
    Contract, ListExecutions, Message, Poll, Register, ReportForm, Start, TaskOutcome, TaskResult,
};
use orbit_core::api::response::Accepted;
use orbit_core::execution::event::{Labels, TaskError};
use orbit_core::id::{Run, Seq, SessionId, Term, Token};
use orbit_core::store::append::Status;
use orbit_core::time::ClusterMs;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const LIMITS: RouteLimits = RouteLimits { max_payload_bytes: 1000 };
const SESSION: &str = "00000000-0000-0000-0000-000000000005";

fn session() -> SessionId {
    SessionId(Uuid::from_u128(5))
}

fn token(execution: &str) -> Token {
    Token { execution: execution.into(), id: Uuid::from_u128(7) }
}

fn token_text(execution: &str) -> String {
    token(execution).to_string()
}

fn get(target: &str) -> Result<Request, ApiError> {
    let (path, query) = match target.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (target, None),
    };
    route(&Method::GET, path, query, None, b"", &LIMITS).map(|routed| routed.request)
}

fn post_routed(path: &str, body: &Value) -> Result<Routed, ApiError> {
    route(&Method::POST, path, None, Some("application/json"), body.to_string().as_bytes(), &LIMITS)
}

fn post(path: &str, body: Value) -> Result<Request, ApiError> {
    let routed = post_routed(path, &body)?;
    assert!(routed.refused.is_empty());
    Ok(routed.request)
}

/// The code and the place of a refusal.
fn refused(result: Result<Request, ApiError>) -> (ErrorCode, String) {
    let error = result.expect_err("refused");
    let path = error.details.get("path").and_then(Value::as_str).unwrap_or_default().to_owned();
    (error.code, path)
}

fn invalid(path: &str) -> (ErrorCode, String) {
    (ErrorCode::InvalidRequest, path.to_owned())
}

// -------------------------------------------------------------------------------------------------------------- paths

#[test]
fn each_path_leads_to_its_resource() {
    let id = || ExecutionId::new("order-1");
    let name = || WorkflowName::new("Order Processing");
    for (path, resource) in [
        ("/v1/workflows", Resource::Workflows),
        ("/v1/workflows/Order%20Processing", Resource::Workflow { name: name(), version: None }),
        (
            "/v1/workflows/Order%20Processing/versions/1.0.0",
            Resource::Workflow { name: name(), version: Some("1.0.0".into()) },
        ),
        ("/v1/executions", Resource::Executions),
        ("/v1/executions/order-1", Resource::Execution(id())),
        ("/v1/executions/order%2D1", Resource::Execution(id())),
        ("/v1/executions/order-1/history", Resource::History(id())),
        ("/v1/executions/order-1/wait", Resource::Wait(id())),
        ("/v1/executions/order-1/cancel", Resource::Cancel(id())),
        ("/v1/executions/order-1/terminate", Resource::Terminate(id())),
        ("/v1/executions/order-1/recover", Resource::Recover(id())),
        ("/v1/executions/order-1/release", Resource::Release(id())),
        ("/v1/executions/order-1/signals/paid%20now", Resource::Signal { execution: id(), name: "paid now".into() }),
        ("/v1/executions/order-1/updates/raise", Resource::Update { execution: id(), name: "raise".into() }),
        ("/v1/executions/order-1/queries/state", Resource::Query { execution: id(), name: "state".into() }),
        ("/v1/workers", Resource::Workers),
        ("/v1/workers/register", Resource::Register),
        ("/v1/workers/poll", Resource::Poll),
        ("/v1/workers/heartbeat", Resource::Heartbeat),
        ("/v1/workers/unregister", Resource::Unregister),
        ("/v1/tasks/complete", Resource::Complete),
        ("/v1/tasks/fail", Resource::Fail),
        ("/v1/health", Resource::Health),
        ("/v1/ready", Resource::Ready),
        ("/v1/metrics", Resource::Metrics),
        ("/livez", Resource::Livez),
        ("/readyz", Resource::Readyz),
        ("/leaderz", Resource::Leaderz),
    ] {
        assert_eq!(Resource::find(path), Ok(resource), "{path}");
    }
}

#[test]
fn other_paths_are_not_found() {
    for path in [
        "",
        "/",
        "*",
        "/v1",
        "/v1/",
        "/v1/executions/",
        "/v1/executions/a/b",
        "/v1/executions//history",
        "/v1/executions/a/signals",
        "/v1/executions/a/signals/",
        "/v1/executions/a/terminate/x",
        "/v1/workflows/a/versions",
        "/v1/workflows/a/versions/",
        "/v1/workflows/",
        "/v1/tasks",
        "/v2/health",
        "/v1/executions/a/history/x",
        "/V1/health",
        "/livez/",
        "//livez",
        "/v1/workers/poll/",
        "/v1/executions/a/b/c/d/e",
        "/%76%31/health",
    ] {
        assert_eq!(Resource::find(path).unwrap_err().code, ErrorCode::NotFound, "{path:?}");
    }
}

#[test]
fn a_path_that_is_nearly_right_is_told_so() {
    let message = |path| Resource::find(path).unwrap_err().message;
    assert_eq!(message("/v1/workers/poll/"), "there is no route /v1/workers/poll/; leave out the `/` at its end");
    assert_eq!(message("/v1/execution"), "there is no route /v1/execution; did you mean /v1/executions?");
    assert_eq!(message("/v1/zebra"), "there is no route /v1/zebra");
    for (path, meant) in
        [("/metrics", "/v1/metrics"), ("/openapi.json", "/v1/openapi.json"), ("/V1/executions", "/v1/executions")]
    {
        assert_eq!(message(path), format!("there is no route {path}; did you mean {meant}?"));
    }
    for path in ["/zebra", "/", "/v1", "/v1x", "/V1", "//"] {
        assert_eq!(message(path), format!("there is no route {path}"));
    }
}

#[test]
fn ids_in_paths_are_decoded_and_checked() {
    assert_eq!(Resource::find("/v1/executions/parent%7Estep"), Ok(Resource::Execution("parent~step".into())));
    assert_eq!(Resource::find("/v1/executions/p~each[3]~x"), Ok(Resource::Execution("p~each[3]~x".into())));
    assert_eq!(Resource::find("/v1/executions/a+b"), Ok(Resource::Execution("a+b".into())));
    for bad in ["a%2Fb", "a%00", "%", "%4", "%gg", "%ff", "a%20b", "%C3%A9", "a[0]", "a%0Ab~c"] {
        let error = Resource::find(&format!("/v1/executions/{bad}/history")).unwrap_err();
        assert_eq!((error.code, &error.details["path"]), (ErrorCode::InvalidRequest, &json!("execution_id")), "{bad}");
        assert_eq!(error.details["in"], "path");
    }
    let long = format!("/v1/executions/{}", "x".repeat(256));
    assert_eq!(Resource::find(&long).unwrap_err().code, ErrorCode::InvalidRequest);
    for bad in ["/v1/workflows/a%00", "/v1/workflows/%", "/v1/workflows/a/versions/%0A"] {
        assert_eq!(Resource::find(bad).unwrap_err().code, ErrorCode::InvalidRequest, "{bad}");
    }
}

#[test]
fn only_health_ready_and_the_probes_are_open() {
    for (path, open) in [
        ("/v1/health", true),
        ("/v1/ready", true),
        ("/livez", true),
        ("/readyz", true),
        ("/leaderz", true),
        ("/v1/metrics", false),
        ("/v1/workers", false),
        ("/v1/executions", false),
        ("/v1/workers/poll", false),
    ] {
        assert_eq!(Resource::find(path).unwrap().is_open(), open, "{path}");
    }
}

// ------------------------------------------------------------------------------------------------------------ methods

#[test]
fn other_methods_are_refused_with_those_that_are_allowed() {
    for (path, allow) in [
        ("/v1/executions", "GET, HEAD, POST"),
        ("/v1/workflows", "GET, HEAD, POST"),
        ("/v1/executions/a", "GET, HEAD"),
        ("/v1/executions/a/cancel", "POST"),
        ("/v1/executions/a/terminate", "POST"),
        ("/v1/executions/a/signals/s", "POST"),
        ("/v1/executions/a/updates/u", "POST"),
        ("/v1/executions/a/queries/q", "GET, HEAD"),
        ("/v1/workers/poll", "POST"),
        ("/v1/health", "GET, HEAD"),
        ("/leaderz", "GET, HEAD"),
    ] {
        let resource = Resource::find(path).unwrap();
        assert_eq!(resource.allow(), allow);
        for method in [Method::GET, Method::HEAD, Method::POST, Method::PUT, Method::DELETE, Method::OPTIONS] {
            let allowed = allow.split(", ").any(|name| name == method.as_str());
            let verb = resource.verb(&method);
            assert_eq!(verb.is_ok(), allowed, "{method} {path}");
            if let Err(error) = verb {
                assert_eq!(error.code, ErrorCode::MethodNotAllowed);
                assert_eq!(error.details["allow"], json!(allow.split(", ").collect::<Vec<_>>()));
            }
        }
    }
}

#[test]
fn head_is_read_as_get() {
    assert_eq!(
        route(&Method::HEAD, "/v1/executions/a", None, None, b"", &LIMITS).unwrap().request,
        Request::GetExecution("a".into())
    );
}

// ------------------------------------------------------------------------------------------------------ content types

#[test]
fn bodies_are_json_by_their_content_type() {
    let start = |content_type| {
        route(&Method::POST, "/v1/executions", None, content_type, br#"{"workflow":"W"}"#, &LIMITS).map(|r| r.request)
    };
    for good in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=\"UTF-8\"",
    ] {
        assert!(start(Some(good)).is_ok(), "{good}");
    }
    for bad in [
        None,
        Some("text/plain"),
        Some("application/x-www-form-urlencoded"),
        Some("application/yaml"),
        Some(""),
        Some("application/json; charset=latin1"),
        Some("application/jsonx"),
    ] {
        assert_eq!(start(bad).unwrap_err().code, ErrorCode::UnsupportedMediaType, "{bad:?}");
    }
}

#[test]
fn definitions_are_json_or_yaml() {
    let deploy = |content_type, body: &str| {
        route(&Method::POST, "/v1/workflows", None, Some(content_type), body.as_bytes(), &LIMITS).map(|r| r.request)
    };
    let document = json!({"name": "W", "version": "1.0.0", "steps": [{"id": "a", "task": "t"}]});
    let yaml = "name: W\nversion: 1.0.0\nsteps:\n  - {id: a, task: t}\n";
    let expected = Request::deploy(document.clone());
    assert_eq!(deploy("application/json", &document.to_string()).unwrap(), expected);
    for content_type in ["application/yaml", "text/yaml; charset=utf-8", "application/x-yaml", "text/x-yaml"] {
        assert_eq!(deploy(content_type, yaml).unwrap(), expected, "{content_type}");
    }
    for (content_type, body) in [
        ("application/json", yaml),
        ("application/yaml", "a: [1"),
        ("application/yaml", "a: 1\na: 2\n"),
        ("application/json", r#"{"name":1,"name":2}"#),
        ("application/json", ""),
    ] {
        assert_eq!(deploy(content_type, body).unwrap_err().code, ErrorCode::InvalidRequest, "{body}");
    }
}

#[test]
fn a_deployment_may_be_strict() {
    let deploy = |query| route(&Method::POST, "/v1/workflows", query, Some("text/yaml"), b"a: 1", &LIMITS);
    for (query, expected) in [(None, false), (Some("strict=false"), false), (Some("strict=true"), true)] {
        let Request::Deploy { strict, .. } = deploy(query).unwrap().request else { panic!("a deployment") };
        assert_eq!(strict, expected, "{query:?}");
    }
    let refusal = |query| deploy(Some(query)).err().unwrap();
    assert_eq!(refusal("strict=yes").message, "`strict` in the query must be `true` or `false`; it is \"yes\"");
    assert!(refusal("strickt=true").message.ends_with("did you mean `strict`?"));
}

#[test]
fn a_definition_may_be_longer_than_a_payload() {
    let text = format!("name: W\ndescription: {}\n", "x".repeat(5 * LIMITS.max_payload_bytes));
    assert!(route(&Method::POST, "/v1/workflows", None, Some("text/yaml"), text.as_bytes(), &LIMITS).is_ok());
}

// ------------------------------------------------------------------------------------------------------------- starts

#[test]
fn a_start_has_its_defaults() {
    let expected = Start {
        workflow: "W".into(),
        version: None,
        execution_id: None,
        input: Arc::new(Value::Null),
        labels: Labels::new(),
    };
    assert_eq!(post("/v1/executions", json!({"workflow": "W"})).unwrap(), Request::Start(expected));
}

#[test]
fn a_start_carries_what_it_is_given() {
    let body = json!({"workflow": "W", "version": "1.2", "execution_id": "order-1", "input": {"n": u64::MAX, "x": [1.5]},
        "labels": {"team/a": "pay ments", "empty": ""}});
    let expected = Start {
        workflow: "W".into(),
        version: Some("1.2".into()),
        execution_id: Some("order-1".into()),
        input: Arc::new(json!({"n": u64::MAX, "x": [1.5]})),
        labels: Labels::from([("team/a".into(), "pay ments".into()), ("empty".into(), String::new())]),
    };
    assert_eq!(post("/v1/executions", body).unwrap(), Request::Start(expected));
}

#[test]
fn a_start_is_refused_where_a_field_is_wrong() {
    for (body, path) in [
        (json!({}), "workflow"),
        (json!({"workflow": 1}), "workflow"),
        (json!({"workflow": "a\u{0}"}), "workflow"),
        (json!({"workflow": "W", "version": 1.0}), "version"),
        (json!({"workflow": "W", "workflw": "W"}), "workflw"),
        (json!({"workflow": "W", "execution_id": "a/b"}), "execution_id"),
        (json!({"workflow": "W", "execution_id": "parent~step"}), "execution_id"),
        (json!({"workflow": "W", "execution_id": "a\u{0}"}), "execution_id"),
        (json!({"workflow": "W", "execution_id": ""}), "execution_id"),
        (json!({"workflow": "W", "execution_id": "x".repeat(256)}), "execution_id"),
        (json!({"workflow": "W", "labels": ["a"]}), "labels"),
        (json!({"workflow": "W", "labels": {"a": 1}}), "labels.a"),
        (json!({"workflow": "W", "labels": {"a b": "c"}}), "labels.a b"),
        (json!({"workflow": "W", "labels": {"a": "x".repeat(256)}}), "labels.a"),
        (json!({"workflow": "W", "labels": {"a": "b\u{0}"}}), "labels.a"),
        (json!([]), ""),
        (json!("W"), ""),
    ] {
        assert_eq!(refused(post("/v1/executions", body.clone())), invalid(path), "{body}");
    }
    let many: Labels = (0..33).map(|n| (format!("k{n}"), String::new())).collect();
    assert_eq!(refused(post("/v1/executions", json!({"workflow": "W", "labels": many}))), invalid("labels"));
}

#[test]
fn a_payload_is_bounded_in_size() {
    let start = |input: Value| post("/v1/executions", json!({"workflow": "W", "input": input}));
    assert!(start(json!("x".repeat(998))).is_ok(), "998 characters and two quotes are 1000 bytes");
    let error = start(json!("x".repeat(999))).unwrap_err();
    assert_eq!(error.code, ErrorCode::PayloadTooLarge);
    assert_eq!(error.message, "`input` has 1001 bytes as JSON; the limit is 1000 (--max-payload-bytes)");
    assert_eq!((&error.details["setting"], &error.details["bytes"]), (&json!("max_payload_bytes"), &json!(1001)));
}

#[test]
fn a_payload_is_measured_as_it_is_written_out() {
    // `1e15` is written as `1000000000000000.0`.
    let body = format!(r#"{{"workflow":"W","input":[{}]}}"#, vec!["1e15"; 90].join(","));
    assert!(body.len() < LIMITS.max_payload_bytes);
    let result = route(&Method::POST, "/v1/executions", None, Some("application/json"), body.as_bytes(), &LIMITS);
    assert_eq!(result.unwrap_err().code, ErrorCode::PayloadTooLarge);
}

#[test]
fn a_payload_is_bounded_in_depth() {
    let nested = |levels: usize| (0..levels).fold(json!(0), |inner, _| json!([inner]));
    let start = |input: Value| post("/v1/executions", json!({"workflow": "W", "input": input}));
    assert!(start(nested(json::MAX_PAYLOAD_DEPTH)).is_ok());
    assert_eq!(refused(start(nested(json::MAX_PAYLOAD_DEPTH + 1))), invalid("input"));
}

// -------------------------------------------------------------------------------------------------------------- reads

#[test]
fn reads_of_executions_have_their_defaults() {
    assert_eq!(get("/v1/executions/a").unwrap(), Request::GetExecution("a".into()));
    let history =
        Request::GetHistory { execution: "a".into(), run: None, after: Seq(0), limit: 1000, max_bytes: 4 << 20 };
    assert_eq!(get("/v1/executions/a/history").unwrap(), history);
    let wait = Request::Wait { execution: "a".into(), timeout: Duration::from_secs(300) };
    assert_eq!(get("/v1/executions/a/wait").unwrap(), wait);
    let list =
        ListExecutions { status: None, workflow: None, labels: Labels::new(), since: None, limit: 100, cursor: None };
    assert_eq!(get("/v1/executions").unwrap(), Request::ListExecutions(list));
}

#[test]
fn reads_of_executions_take_parameters() {
    let history =
        Request::GetHistory { execution: "a".into(), run: Some(Run(3)), after: Seq(7), limit: 10, max_bytes: 2048 };
    assert_eq!(get("/v1/executions/a/history?run=3&after_seq=7&limit=10&max_bytes=2048").unwrap(), history);
    assert_eq!(refused(get("/v1/executions/a/history?run=0")), invalid("run"));
    let wait = Request::Wait { execution: "a".into(), timeout: Duration::ZERO };
    assert_eq!(get("/v1/executions/a/wait?timeout_ms=0").unwrap(), wait);
    let list = ListExecutions {
        status: Some(Status::Failed),
        workflow: Some("Order Processing".into()),
        labels: Labels::from([("team".into(), "a=b".into()), ("env".into(), "prod".into())]),
        since: Some(ClusterMs(1_700_000_000_000)),
        limit: 1000,
        cursor: Some("c/+=".into()),
    };
    let target = "/v1/executions?status=failed&workflow=Order+Processing&label=team=a%3Db&label=env%3Dprod\
                  &since=1700000000000&limit=1000&cursor=c/%2B%3D";
    assert_eq!(get(target).unwrap(), Request::ListExecutions(list));
}

#[test]
fn parameters_are_refused_where_they_are_wrong() {
    for (target, path) in [
        ("/v1/executions?status=done", "status"),
        ("/v1/executions?limit=0", "limit"),
        ("/v1/executions?limit=1001", "limit"),
        ("/v1/executions?limit=ten", "limit"),
        ("/v1/executions?limit=1&limit=2", "limit"),
        ("/v1/executions?label=team", "label"),
        ("/v1/executions?label=a%20b=c", "label"),
        ("/v1/executions?label=a=b&label=a=c", "label"),
        ("/v1/executions?workflow=", "workflow"),
        ("/v1/executions?cursor=%00", "cursor"),
        ("/v1/executions?since=-1", "since"),
        ("/v1/executions?since=yesterday", "since"),
        ("/v1/executions?statuss=failed", "statuss"),
        ("/v1/executions?limit=%zz", "limit"),
        ("/v1/executions/a?x=1", "x"),
        ("/v1/executions/a/history?after_seq=-1", "after_seq"),
        ("/v1/executions/a/history?after_seq=18446744073709551615", "after_seq"),
        ("/v1/executions/a/history?limit=1001", "limit"),
        ("/v1/executions/a/history?max_bytes=1", "max_bytes"),
        ("/v1/executions/a/wait?timeout_ms=300001", "timeout_ms"),
        ("/v1/executions/a/wait?timeout=5", "timeout"),
        ("/v1/workflows?limit=1", "limit"),
        ("/v1/workers?x", "x"),
    ] {
        assert_eq!(refused(get(target)), invalid(path), "{target}");
        assert_eq!(get(target).unwrap_err().details["in"], "query");
    }
    let many = (0..33).map(|n| format!("label=k{n}=v")).collect::<Vec<_>>().join("&");
    assert_eq!(refused(get(&format!("/v1/executions?{many}"))), invalid("label"));
    let repeated = |times: usize| get(&format!("/v1/executions?{}", vec!["label=k=v"; times].join("&")));
    assert_eq!(refused(repeated(33)), invalid("label"));
    let Ok(Request::ListExecutions(list)) = repeated(32) else { panic!("a list") };
    assert_eq!(list.labels.len(), 1, "the same again says nothing new");
    let error = get("/v1/executions?status=done").unwrap_err();
    assert!(
        error.message.ends_with(
            "the statuses are running, held, quarantined, completed, failed, cancelled, timed_out, terminated"
        ),
        "{error:?}"
    );
}

#[test]
fn parameters_of_a_post_are_refused() {
    let body = json!({"workflow": "W"}).to_string();
    let result =
        route(&Method::POST, "/v1/executions", Some("dry=1"), Some("application/json"), body.as_bytes(), &LIMITS);
    assert_eq!(refused(result.map(|r| r.request)), invalid("dry"));
}

#[test]
fn other_reads_take_no_parameters_and_probes_pass_over_them() {
    for (target, request) in [
        ("/v1/workflows", Request::ListWorkflows),
        ("/v1/workflows/W", Request::GetWorkflow { name: "W".into(), version: None }),
        ("/v1/workflows/W/versions/2", Request::GetWorkflow { name: "W".into(), version: Some("2".into()) }),
        ("/v1/executions/a/queries/q%20r", Request::Query { execution: "a".into(), name: "q r".into() }),
        ("/v1/workers", Request::ListWorkers),
        ("/v1/nodes", Request::ListNodes),
        ("/v1/health", Request::Health),
        ("/v1/health?t=123", Request::Health),
        ("/v1/ready", Request::Ready),
        ("/v1/metrics", Request::Metrics),
        ("/livez", Request::Livez),
        ("/readyz?verbose", Request::Readyz),
        ("/leaderz", Request::Leaderz),
    ] {
        assert_eq!(get(target).unwrap(), request, "{target}");
    }
}

#[test]
fn a_step_down_may_name_its_term_or_have_no_body_at_all() {
    let of = |term: Option<u64>| Request::StepDown { term: term.map(Term) };
    let path = "/v1/cluster/step-down";
    assert_eq!(route(&Method::POST, path, None, None, b"", &LIMITS).unwrap().request, of(None));
    assert_eq!(post(path, json!({})).unwrap(), of(None));
    assert_eq!(post(path, json!({"term": 7})).unwrap(), of(Some(7)));
    assert_eq!(refused(post(path, json!({"term": -1}))), invalid("term"));
    assert_eq!(refused(post(path, json!({"terms": 7}))), invalid("terms"));
}

#[test]
fn a_cancel_may_give_a_reason_or_have_no_body_at_all() {
    let cancel = |reason: Option<&str>| Request::Cancel { execution: "a".into(), reason: reason.map(Into::into) };
    assert_eq!(
        route(&Method::POST, "/v1/executions/a/cancel", None, None, b"", &LIMITS).unwrap().request,
        cancel(None)
    );
    assert_eq!(post("/v1/executions/a/cancel", json!({})).unwrap(), cancel(None));
    assert_eq!(post("/v1/executions/a/cancel", json!({"reason": null})).unwrap(), cancel(None));
    assert_eq!(post("/v1/executions/a/cancel", json!({"reason": "two\nlines"})).unwrap(), cancel(Some("two\nlines")));
    for bad in [json!({"reason": 1}), json!({"reason": "\u{0}"}), json!({"reason": "x".repeat(4097)})] {
        assert_eq!(refused(post("/v1/executions/a/cancel", bad)), invalid("reason"));
    }
    assert_eq!(refused(post("/v1/executions/a/cancel", json!({"raison": "x"}))), invalid("raison"));
}

#[test]
fn a_terminate_is_read_as_a_cancel_is() {
    let terminate = |reason: Option<&str>| Request::Terminate { execution: "a".into(), reason: reason.map(Into::into) };
    let path = "/v1/executions/a/terminate";
    assert_eq!(route(&Method::POST, path, None, None, b"", &LIMITS).unwrap().request, terminate(None));
    assert_eq!(post(path, json!({"reason": "it hangs"})).unwrap(), terminate(Some("it hangs")));
    assert_eq!(refused(post(path, json!({"reason": "\u{0}"}))), invalid("reason"));
}

#[test]
fn a_signal_and_an_update_bring_a_payload_and_perhaps_an_id_or_nothing() {
    for (path, id) in [("/v1/executions/a/signals/go", "signal_id"), ("/v1/executions/a/updates/go", "update_id")] {
        let read = |body: &[u8]| {
            let media = (!body.is_empty()).then_some("application/json");
            let routed = route(&Method::POST, path, None, media, body, &LIMITS);
            routed.map(|routed| match routed.request {
                Request::Signal { execution, signal } if id == "signal_id" => (execution, signal),
                Request::Update { execution, update } if id == "update_id" => (execution, update),
                other => panic!("{other:?}"),
            })
        };
        let message = |payload: Value, key: Option<&str>| {
            let message = Message { name: "go".into(), payload: Arc::new(payload), key: key.map(Into::into) };
            (ExecutionId::new("a"), message)
        };
        assert_eq!(read(b"").unwrap(), message(Value::Null, None));
        assert_eq!(read(b"{}").unwrap(), message(Value::Null, None));
        let body = json!({"payload": {"by": [1]}, id: "k\n\u{e9}"}).to_string();
        assert_eq!(read(body.as_bytes()).unwrap(), message(json!({"by": [1]}), Some("k\n\u{e9}")));
        let longest = "x".repeat(255);
        let body = json!({id: longest}).to_string();
        assert_eq!(read(body.as_bytes()).unwrap(), message(Value::Null, Some(&longest)));

        for bad in [json!(""), json!("x".repeat(256)), json!("a\u{0}"), json!(7)] {
            assert_eq!(refused(post(path, json!({id: bad}))), invalid(id), "{bad}");
        }
        let other = if id == "signal_id" { "update_id" } else { "signal_id" };
        assert_eq!(refused(post(path, json!({other: "k"}))), invalid(other));
        let large = refused(post(path, json!({"payload": "x".repeat(1000)})));
        assert_eq!(large, (ErrorCode::PayloadTooLarge, "payload".into()));
        let deep = (0..=crate::http::json::MAX_PAYLOAD_DEPTH).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(refused(post(path, json!({"payload": deep}))), invalid("payload"));
    }
}

#[test]
fn the_name_of_what_is_asked_is_checked() {
    for what in ["signals", "updates", "queries"] {
        let path = |name: &str| format!("/v1/executions/a/{what}/{name}");
        for bad in ["a%00", "a%0Ab", &"x".repeat(256)] {
            let error = Resource::find(&path(bad)).unwrap_err();
            assert_eq!((error.code, &error.details["path"]), (ErrorCode::InvalidRequest, &json!("name")), "{bad}");
        }
        assert_eq!(Resource::find(&path("")).unwrap_err().code, ErrorCode::NotFound);
        let error = Resource::find(&format!("/v1/executions/a%20b/{what}/x")).unwrap_err();
        assert_eq!(error.details["path"], json!("execution_id"));
    }
}

mod anything;
mod workers;
