//! Workers and tasks.

use super::*;

#[test]
fn a_worker_registers_with_its_contracts() {
    let body = json!({"worker_id": "w-1", "runtime": "python", "sdk": "orbit-sdk 0.1", "contracts": [
        {"task_name": "payments.charge", "contract_version": "2"}, {"task_name": "payments.refund"}]});
    let contract = |task: &str, version: &str| Contract { task_name: task.into(), contract_version: version.into() };
    let expected = Register {
        worker_id: "w-1".into(),
        runtime: "python".into(),
        sdk: Some("orbit-sdk 0.1".into()),
        contracts: vec![contract("payments.charge", "2"), contract("payments.refund", "1")],
    };
    assert_eq!(post("/v1/workers/register", body).unwrap(), Request::Register(expected));
}

#[test]
fn a_registration_is_refused_where_a_field_is_wrong() {
    let with = |key: &str, value: Value| {
        let mut body = json!({"worker_id": "w", "runtime": "rust", "contracts": [{"task_name": "t"}]});
        body[key] = value;
        refused(post("/v1/workers/register", body))
    };
    assert_eq!(with("worker_id", json!("")), invalid("worker_id"));
    assert_eq!(with("worker_id", json!("a\u{0}")), invalid("worker_id"));
    assert_eq!(with("runtime", json!(null)), invalid("runtime"));
    assert_eq!(with("sdk", json!(["x"])), invalid("sdk"));
    assert_eq!(with("contracts", json!([])), invalid("contracts"));
    assert_eq!(with("contracts", json!({})), invalid("contracts"));
    assert_eq!(
        with("contracts", json!([{"task_name": "t", "contract_version": 1}])),
        invalid("contracts[0].contract_version")
    );
    assert_eq!(with("contracts", json!([{"task_name": "t"}, {"task": "t"}])), invalid("contracts[1].task"));
    assert_eq!(
        with("contracts", json!([{"task_name": "t"}, {"task_name": "t", "contract_version": "1"}])),
        invalid("contracts[1]")
    );
    let many: Vec<Value> = (0..1001).map(|n| json!({"task_name": format!("t{n}")})).collect();
    assert_eq!(with("contracts", json!(many)), invalid("contracts"));
}

#[test]
fn a_poll_has_its_defaults_and_takes_all_it_can_bring() {
    let poll = Poll { session: session(), max_tasks: 1, wait: Duration::from_secs(30), holding: None, results: vec![] };
    assert_eq!(post("/v1/workers/poll", json!({"session_id": SESSION})).unwrap(), Request::Poll(poll));
    let body = json!({"session_id": SESSION, "max_tasks": 0, "wait_ms": 60_000, "holding": [token_text("a")], "results": [
        {"token": token_text("b"), "output": null},
        {"token": token_text("c"), "error": {"code": "E"}}]});
    let error = TaskError { code: "E".into(), message: String::new(), retryable: true, details: None, step: None };
    let poll = Poll {
        session: session(),
        max_tasks: 0,
        wait: Duration::from_secs(60),
        holding: Some(vec![token("a")]),
        results: vec![
            TaskResult { token: token("b"), outcome: TaskOutcome::Succeeded(Arc::new(Value::Null)) },
            TaskResult { token: token("c"), outcome: TaskOutcome::Failed(error) },
        ],
    };
    assert_eq!(post("/v1/workers/poll", body).unwrap(), Request::Poll(poll));
}

#[test]
fn a_poll_is_refused_where_a_field_is_wrong() {
    let with = |key: &str, value: Value| {
        let mut body = json!({"session_id": SESSION});
        body[key] = value;
        refused(post("/v1/workers/poll", body))
    };
    assert_eq!(with("session_id", json!("x")), invalid("session_id"));
    assert_eq!(with("session_id", json!(null)), invalid("session_id"));
    assert_eq!(with("max_tasks", json!(1001)), invalid("max_tasks"));
    assert_eq!(with("max_tasks", json!(-1)), invalid("max_tasks"));
    assert_eq!(with("wait_ms", json!(60_001)), invalid("wait_ms"));
    assert_eq!(with("wait_ms", json!("1s")), invalid("wait_ms"));
    assert_eq!(with("waitms", json!(1)), invalid("waitms"));
    assert_eq!(with("holding", json!("a")), invalid("holding"));
    assert_eq!(with("holding", json!([token_text("a"), "b"])), invalid("holding[1]"));
    assert_eq!(with("results", json!([{"token": token_text("a")}])), invalid("results[0]"));
    assert_eq!(with("results", json!([{"output": 1}])), invalid("results[0].token"));
    let many = vec![token_text("a"); 10_001];
    assert_eq!(with("holding", json!(many)), invalid("holding"));
}

#[test]
fn heartbeats_and_goodbyes_name_their_session() {
    let heartbeat = |holding| Request::Heartbeat { session: session(), holding };
    assert_eq!(post("/v1/workers/heartbeat", json!({"session_id": SESSION})).unwrap(), heartbeat(None));
    let body = json!({"session_id": SESSION, "holding": []});
    assert_eq!(post("/v1/workers/heartbeat", body).unwrap(), heartbeat(Some(vec![])));
    let goodbye = Request::Unregister { session: session() };
    assert_eq!(post("/v1/workers/unregister", json!({"session_id": SESSION})).unwrap(), goodbye);
    assert_eq!(refused(post("/v1/workers/unregister", json!({}))), invalid("session_id"));
}

// -------------------------------------------------------------------------------------------------------------- tasks

fn report(results: Vec<TaskResult>, form: ReportForm) -> Request {
    Request::Report { session: session(), results, form }
}

#[test]
fn a_single_result_is_reported() {
    let done = |output| TaskResult { token: token("a"), outcome: TaskOutcome::Succeeded(Arc::new(output)) };
    let body = json!({"session_id": SESSION, "token": token_text("a"), "output": {"id": 7}});
    assert_eq!(post("/v1/tasks/complete", body).unwrap(), report(vec![done(json!({"id": 7}))], ReportForm::Single));
    let body = json!({"session_id": SESSION, "token": token_text("a")});
    assert_eq!(post("/v1/tasks/complete", body).unwrap(), report(vec![done(json!(null))], ReportForm::Single));

    let error = json!({"code": "CARD_DECLINED", "message": "no\nmoney", "retryable": false, "details": {"left": 3}});
    let body = json!({"session_id": SESSION, "token": token_text("a"), "error": error});
    let error = TaskError {
        code: "CARD_DECLINED".into(),
        message: "no\nmoney".into(),
        retryable: false,
        details: Some(Arc::new(json!({"left": 3}))),
        step: None,
    };
    let failed = TaskResult { token: token("a"), outcome: TaskOutcome::Failed(error) };
    assert_eq!(post("/v1/tasks/fail", body).unwrap(), report(vec![failed], ReportForm::Single));
}

#[test]
fn a_batch_may_mix_outcomes_on_either_route() {
    let body = json!({"session_id": SESSION, "results": [
        {"token": token_text("a"), "output": 1}, {"token": token_text("b"), "error": {"code": "E"}}]});
    for path in ["/v1/tasks/complete", "/v1/tasks/fail"] {
        let Request::Report { results, form, .. } = post(path, body.clone()).unwrap() else { panic!("a report") };
        assert_eq!((results.len(), form), (2, ReportForm::Batch));
        assert!(matches!(results[0].outcome, TaskOutcome::Succeeded(_)));
        assert!(matches!(results[1].outcome, TaskOutcome::Failed(_)));
    }
}

#[test]
fn a_report_is_refused_where_a_field_is_wrong() {
    let token = token_text("a");
    for (path, body, place) in [
        ("/v1/tasks/complete", json!({"token": token, "output": 1}), "session_id"),
        ("/v1/tasks/complete", json!({"session_id": SESSION, "output": 1}), "token"),
        ("/v1/tasks/complete", json!({"session_id": SESSION, "token": "a", "output": 1}), "token"),
        ("/v1/tasks/complete", json!({"session_id": SESSION, "token": "a\u{0}/x", "output": 1}), "token"),
        ("/v1/tasks/complete", json!({"session_id": SESSION, "token": token, "error": {"code": "E"}}), "error"),
        ("/v1/tasks/complete", json!({"session_id": SESSION, "token": token, "result": 1}), "result"),
        ("/v1/tasks/complete", json!({"session_id": SESSION, "token": token, "results": []}), ""),
        ("/v1/tasks/complete", json!({"session_id": SESSION, "results": []}), "results"),
        (
            "/v1/tasks/complete",
            json!({"session_id": SESSION, "results": [{"token": token, "output": 1, "error": {"code": "E"}}]}),
            "results[0]",
        ),
        (
            "/v1/tasks/complete",
            json!({"session_id": SESSION, "results": [{"token": token, "error": null}]}),
            "results[0]",
        ),
        ("/v1/tasks/complete", json!({"session_id": SESSION, "results": [7]}), "results[0]"),
        ("/v1/tasks/fail", json!({"session_id": SESSION, "token": token}), "error"),
        ("/v1/tasks/fail", json!({"session_id": SESSION, "token": token, "error": "E"}), "error"),
        ("/v1/tasks/fail", json!({"session_id": SESSION, "token": token, "error": {}}), "error.code"),
        ("/v1/tasks/fail", json!({"session_id": SESSION, "token": token, "error": {"code": ""}}), "error.code"),
        (
            "/v1/tasks/fail",
            json!({"session_id": SESSION, "token": token, "error": {"code": "E", "retryable": "no"}}),
            "error.retryable",
        ),
        (
            "/v1/tasks/fail",
            json!({"session_id": SESSION, "token": token, "error": {"code": "E", "step": "a"}}),
            "error.step",
        ),
        (
            "/v1/tasks/fail",
            json!({"session_id": SESSION, "results": [{"token": token, "error": {"code": "E", "mesage": ""}}]}),
            "results[0].error.mesage",
        ),
    ] {
        assert_eq!(refused(post(path, body.clone())), invalid(place), "{path} {body}");
    }
}

#[test]
fn a_single_result_that_is_too_large_is_an_error() {
    let body = json!({"session_id": SESSION, "token": token_text("a"), "output": "x".repeat(1000)});
    assert_eq!(refused(post("/v1/tasks/complete", body)), (ErrorCode::PayloadTooLarge, "output".into()));
    let error = json!({"code": "E", "message": "x".repeat(600), "details": "y".repeat(600)});
    let body = json!({"session_id": SESSION, "token": token_text("a"), "error": error});
    assert_eq!(refused(post("/v1/tasks/fail", body)), (ErrorCode::PayloadTooLarge, "error".into()));
}

#[test]
fn a_result_that_is_too_large_does_not_keep_its_batch_back() {
    let deep = (0..json::MAX_PAYLOAD_DEPTH + 1).fold(json!(0), |inner, _| json!([inner]));
    let results = json!([
        {"token": token_text("a"), "output": "x".repeat(1000)},
        {"token": token_text("b"), "output": 1},
        {"token": token_text("c"), "output": deep},
    ]);
    for (path, body) in [
        ("/v1/tasks/complete", json!({"session_id": SESSION, "results": results})),
        ("/v1/workers/poll", json!({"session_id": SESSION, "results": results})),
    ] {
        let routed = post_routed(path, &body).unwrap();
        let taken = match routed.request {
            Request::Report { results, .. } | Request::Poll(Poll { results, .. }) => results,
            other => panic!("not {other:?}"),
        };
        assert_eq!(taken.iter().map(|result| result.token.clone()).collect::<Vec<_>>(), [token("b")]);
        let [(0, large), (2, deep)] = &routed.refused[..] else { panic!("{:?}", routed.refused) };
        assert_eq!((&large.token, large.outcome), (&token("a"), Accepted::Refused));
        let error = large.error.as_ref().unwrap();
        assert_eq!((error.code, &error.details["path"]), (ErrorCode::PayloadTooLarge, &json!("results[0].output")));
        assert_eq!(deep.error.as_ref().unwrap().code, ErrorCode::InvalidRequest);
    }
}
