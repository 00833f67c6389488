//! The client against a server that the test plays.

mod common;

use common::Fake;
use orbit_sdk::{Client, Error, ExecutionsQuery, Format, StartOptions, Status};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::net::TcpListener;

fn started(id: &str, created: bool) -> Value {
    json!({"execution_id": id, "status": "running", "created": created, "workflow": "W", "version": "1"})
}

fn execution(id: &str, status: &str) -> Value {
    json!({"execution_id": id, "workflow": "W", "version": "1", "status": status, "created_at_ms": 1,
           "updated_at_ms": 2, "run": 1, "input": {}, "last_seq": 3})
}

/// An address on which nothing listens.
async fn nobody() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

#[tokio::test]
async fn a_start_always_carries_an_id_so_that_it_may_be_repeated() {
    let mut fake = Fake::start().await;
    let client = Client::new(&fake.url(), Some("secret")).unwrap();
    let call = tokio::spawn(async move { client.start("W", StartOptions::default()).await });
    let request = fake.expect("/v1/executions").await;
    assert_eq!((request.method.as_str(), &request.body["workflow"]), ("POST", &json!("W")));
    assert_eq!(request.headers["authorization"], "Bearer secret");
    let id = request.body["execution_id"].as_str().unwrap().to_owned();
    // Its first sending was lost on the way back, so this server knows the id already.
    request.answer(200, started(&id, false));
    let started = call.await.unwrap().unwrap();
    assert_eq!((started.execution_id.as_str(), started.created), (id.as_str(), true));
}

#[tokio::test]
async fn a_given_id_that_was_started_before_is_told() {
    let mut fake = Fake::start().await;
    let client = Client::new(&fake.url(), None).unwrap();
    let options = StartOptions { execution_id: Some("o-1".into()), input: json!({"a": 1}), ..Default::default() };
    let call = tokio::spawn(async move { client.start("W", options).await });
    let request = fake.expect("/v1/executions").await;
    assert_eq!(request.body, json!({"workflow": "W", "execution_id": "o-1", "input": {"a": 1}}));
    request.answer(200, started("o-1", false));
    assert!(!call.await.unwrap().unwrap().created);
}

#[tokio::test]
async fn an_error_keeps_what_the_server_said() {
    let mut fake = Fake::start().await;
    let client = Client::new(&fake.url(), None).unwrap();
    let call = tokio::spawn(async move { client.execution("o-1").await });
    let error = json!({"error": {"code": "UNKNOWN_EXECUTION", "message": "no execution o-1", "hint": "check the id",
                                 "retryable": false, "details": {"a": 1}, "request_id": "7"}});
    fake.expect("/v1/executions/o-1").await.answer(404, error);
    let error = call.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "UNKNOWN_EXECUTION: no execution o-1");
    assert_eq!((error.hint(), error.is_retryable()), (Some("check the id"), false));
    let api = error.api().unwrap();
    assert_eq!((api.status, &api.details["a"], api.request_id.as_str()), (404, &json!(1), "7"));
}

#[tokio::test]
async fn a_server_that_is_away_is_passed_over_for_the_next() {
    let mut fake = Fake::start().await;
    let client = Client::new(&format!("{},{}", nobody().await, fake.url()), None).unwrap();
    for _ in 0..2 {
        let client = client.clone();
        let call = tokio::spawn(async move { client.deploy("name: W", Format::Yaml).await });
        let request = fake.expect("/v1/workflows").await;
        assert_eq!(request.headers["content-type"], "application/yaml");
        assert_eq!(request.text, "name: W");
        request.answer(201, json!({"name": "W", "version": "1", "definition_hash": "h", "result": "created"}));
        assert_eq!(call.await.unwrap().unwrap().result, "created");
    }
}

#[tokio::test]
async fn when_no_server_can_be_reached_the_error_names_each() {
    let (first, second) = (nobody().await, nobody().await);
    let client = Client::new(&format!("{first},{second}"), None).unwrap();
    let error = client.health().await.unwrap_err();
    let Error::Unreachable { tried } = &error else { panic!("{error}") };
    assert_eq!(tried.len(), 2);
    assert!(tried[0].starts_with(&first) && tried[1].starts_with(&second), "{tried:?}");
    assert!(error.is_retryable() && error.to_string().contains("refused"), "{error}");
}

#[tokio::test]
async fn a_server_that_is_not_the_leader_is_left_for_the_one_that_it_names() {
    let (mut standby, mut leader) = (Fake::start().await, Fake::start().await);
    let client = Client::new(&standby.url(), None).unwrap();
    let refusal = json!({"error": {"code": "NOT_LEADER", "message": "standby", "retryable": true}});
    let leader_url = leader.url();
    for first in [true, false] {
        let client = client.clone();
        let call = tokio::spawn(async move { client.cancel("o-1", Some("why")).await });
        if first {
            let request = standby.expect("/v1/executions/o-1/cancel").await;
            request.answer_with(503, &[("x-orbit-leader", &leader_url)], refusal.clone());
        }
        let request = leader.expect("/v1/executions/o-1/cancel").await;
        assert_eq!(request.body, json!({"reason": "why"}));
        request.answer(200, execution("o-1", "cancelled"));
        assert_eq!(call.await.unwrap().unwrap().status(), &Status::Cancelled);
    }
}

#[tokio::test]
async fn servers_that_name_each_other_as_the_leader_are_not_followed_for_ever() {
    let (mut one, mut other) = (Fake::start().await, Fake::start().await);
    let client = Client::new(&one.url(), None).unwrap();
    let (one_url, other_url) = (one.url(), other.url());
    let call = tokio::spawn(async move { client.health().await });
    let refusal = json!({"error": {"code": "NOT_LEADER", "message": "standby", "retryable": true}});
    one.expect("/v1/health").await.answer_with(503, &[("x-orbit-leader", &other_url)], refusal.clone());
    other.expect("/v1/health").await.answer_with(503, &[("x-orbit-leader", &one_url)], refusal.clone());
    one.expect("/v1/health").await.answer_with(503, &[("x-orbit-leader", &other_url)], refusal.clone());
    // Those of the list are asked once more before the call fails: who leads may have changed meanwhile.
    one.expect("/v1/health").await.answer_with(503, &[("x-orbit-leader", &other_url)], refusal);
    assert_eq!(call.await.unwrap().unwrap_err().code(), Some("NOT_LEADER"));
    assert!(one.within(Duration::from_millis(300), "/v1/health").await.is_none());
}

#[tokio::test]
async fn a_call_on_a_kept_connection_that_has_died_is_sent_again() {
    let mut fake = Fake::start().await;
    let client = Client::new(&fake.url(), None).unwrap();
    let ready = json!({"role": "single", "ready": true});
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.ready().await }
    });
    fake.expect("/v1/ready").await.answer(200, ready.clone());
    assert!(call.await.unwrap().unwrap().ready);
    let call = tokio::spawn(async move { client.ready().await });
    drop(fake.expect("/v1/ready").await);
    fake.expect("/v1/ready").await.answer(503, json!({"role": "single", "ready": false, "reason": "recovering"}));
    let ready = call.await.unwrap().unwrap();
    assert_eq!((ready.ready, ready.reason.as_deref()), (false, Some("recovering")));
}

#[tokio::test]
async fn with_patience_a_call_is_repeated_until_a_server_serves() {
    let mut fake = Fake::start().await;
    let client = Client::new(&fake.url(), None).unwrap().with_patience(Duration::from_secs(20));
    let call = tokio::spawn(async move { client.workflows().await });
    fake.expect("/v1/workflows").await.error(503, "NOT_READY", true);
    fake.expect("/v1/workflows").await.error(429, "RESOURCE_EXHAUSTED", true);
    let addr = fake.kill().await;
    let mut fake = Fake::start_on(addr).await;
    fake.expect("/v1/workflows").await.answer(200, json!({"workflows": []}));
    assert!(call.await.unwrap().unwrap().is_empty());
}

#[tokio::test]
async fn patience_does_not_repeat_what_would_be_refused_again() {
    let mut fake = Fake::start().await;
    let client = Client::new(&fake.url(), None).unwrap().with_patience(Duration::from_secs(20));
    let call = tokio::spawn(async move { client.workers().await });
    fake.expect("/v1/workers").await.error(401, "UNAUTHORIZED", false);
    assert_eq!(call.await.unwrap().unwrap_err().code(), Some("UNAUTHORIZED"));
    assert!(fake.within(Duration::from_millis(300), "/v1/workers").await.is_none());
}

#[tokio::test]
async fn a_wait_goes_on_until_the_end_or_its_own_time() {
    let mut fake = Fake::start().await;
    let client = Client::new(&fake.url(), None).unwrap();
    let call = tokio::spawn({
        let client = client.clone();
        async move { client.wait("o-1", Duration::from_secs(100)).await }
    });
    let request = fake.expect("/v1/executions/o-1/wait").await;
    assert_eq!(request.path, "/v1/executions/o-1/wait?timeout_ms=60000");
    request.answer(200, execution("o-1", "running"));
    fake.expect("/v1/executions/o-1/wait").await.answer(200, execution("o-1", "completed"));
    assert_eq!(call.await.unwrap().unwrap().status(), &Status::Completed);

    let call = tokio::spawn(async move { client.wait("o-1", Duration::ZERO).await });
    fake.expect("/v1/executions/o-1/wait").await.answer(200, execution("o-1", "running"));
    assert_eq!(call.await.unwrap().unwrap().status(), &Status::Running);
}

#[tokio::test]
async fn what_is_sent_always_carries_an_id_and_repeats_under_it() {
    let mut fake = Fake::start().await;
    let client = Client::new(&fake.url(), None).unwrap().with_patience(Duration::from_secs(20));
    let sending = client.clone();
    let call = tokio::spawn(async move { sending.signal("o/1", "go on", json!({"by": [1]}), None).await });
    let first = fake.expect("/v1/executions/o%2F1/signals/go%20on").await;
    let body = first.body.clone();
    assert_eq!((first.method.as_str(), &body["payload"]), ("POST", &json!({"by": [1]})));
    assert!(body["signal_id"].as_str().is_some_and(|id| id.len() == 36), "{body}");
    first.error(503, "NOT_READY", true);
    let second = fake.expect("/v1/executions/o%2F1/signals/go%20on").await;
    assert_eq!(second.body, body);
    second.answer(200, json!({"seq": 4, "run": 2}));
    let signalled = call.await.unwrap().unwrap();
    assert_eq!((signalled.seq, signalled.run), (4, 2));

    let asking = client.clone();
    let call = tokio::spawn(async move { asking.update("o-1", "raise", json!(3), Some("u")).await });
    let request = fake.expect("/v1/executions/o-1/updates/raise").await;
    assert_eq!(request.body, json!({"payload": 3, "update_id": "u"}));
    request.answer(200, json!({"seq": 5, "run": 1, "result": {"n": 4}}));
    let updated = call.await.unwrap().unwrap();
    assert_eq!((updated.seq, updated.run, updated.result), (5, 1, json!({"n": 4})));

    let asking = client.clone();
    let call = tokio::spawn(async move { asking.query("o-1", "state").await });
    let request = fake.expect("/v1/executions/o-1/queries/state").await;
    assert_eq!(request.method, "GET");
    request.answer(200, json!({"result": null}));
    assert_eq!(call.await.unwrap().unwrap(), Value::Null);

    let asking = client.clone();
    let call = tokio::spawn(async move { asking.recover("o-1", Some("looked at")).await });
    let request = fake.expect("/v1/executions/o-1/recover").await;
    assert_eq!(request.body, json!({"reason": "looked at"}));
    request.answer(200, execution("o-1", "held"));
    assert_eq!(call.await.unwrap().unwrap().status(), &Status::Held);

    let call = tokio::spawn(async move { client.terminate("o-1", Some("it hangs")).await });
    let request = fake.expect("/v1/executions/o-1/terminate").await;
    assert_eq!(request.body, json!({"reason": "it hangs"}));
    request.answer(200, execution("o-1", "terminated"));
    let ended = call.await.unwrap().unwrap();
    assert_eq!((ended.status(), ended.status().is_finished()), (&Status::Terminated, true));
}

#[tokio::test]
async fn a_part_of_a_step_says_what_it_is_and_what_it_awaits() {
    let mut fake = Fake::start().await;
    let client = Client::new(&fake.url(), None).unwrap();
    let mut shown = execution("o-1", "running");
    shown["waiting"] = json!([
        {"step_id": "ship", "unit": "ship[3]", "kind": "await", "since_ms": 5, "reason": "signal", "signal": "go"},
        {"step_id": "each", "kind": "for", "since_ms": 5, "reason": "items", "items": 4, "ended": 1},
        {"step_id": "word", "kind": "await", "since_ms": 5, "reason": "update", "update": "decide"},
    ]);
    let call = tokio::spawn(async move { client.execution("o-1").await });
    fake.expect("/v1/executions/o-1").await.answer(200, shown);
    let waiting = call.await.unwrap().unwrap().waiting;
    assert_eq!((waiting[0].unit(), waiting[0].signal.as_deref()), ("ship[3]", Some("go")));
    assert_eq!((waiting[1].unit(), waiting[1].items, waiting[1].ended), ("each", Some(4), Some(1)));
    assert_eq!((waiting[2].signal.as_deref(), waiting[2].update.as_deref()), (None, Some("decide")));
}

#[tokio::test]
async fn a_list_sends_its_filters_escaped() {
    let mut fake = Fake::start().await;
    let client = Client::new(&fake.url(), None).unwrap();
    let query = ExecutionsQuery {
        status: Some(Status::Failed),
        labels: [("team".to_owned(), "a&b".to_owned())].into(),
        limit: Some(2),
        cursor: Some("c+1".into()),
        ..Default::default()
    };
    let call = tokio::spawn(async move { client.executions(&query).await });
    let request = fake.expect("/v1/executions").await;
    assert_eq!(request.path, "/v1/executions?status=failed&label=team%3Da%26b&limit=2&cursor=c%2B1");
    request.answer(200, json!({"executions": [execution("o-1", "failed")], "next_cursor": "n"}));
    let page = call.await.unwrap().unwrap();
    assert_eq!((page.executions.len(), page.next_cursor.as_deref()), (1, Some("n")));
}

#[tokio::test]
async fn an_answer_that_is_not_orbits_is_told_as_such() {
    let mut fake = Fake::start().await;
    let client = Client::new(&fake.url(), None).unwrap();
    let call = tokio::spawn(async move { client.health().await });
    fake.expect("/v1/health").await.answer(200, json!("hello"));
    let error = call.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Unexpected { .. }), "{error}");
    assert!(error.hint().unwrap().contains("something else may be listening"));
}
