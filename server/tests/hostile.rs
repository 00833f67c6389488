//! What is sent to a real server by mistake or on purpose: each is told what is wrong, and nothing else changes. The
//! book's page on hostile input names these tests (`docs/src/reference/hostile-input.md`).

mod common;

use common::raw::{get, post};
use common::{PATIENCE, Server, folder, wait_for};
use serde_json::{Value, json};

/// Gives back what it is given, and what expressions make of it.
const ECHO: &str = r#"{
    "name": "Echo", "version": "1",
    "steps": [{"id": "copy", "compute": "${ input }"}, {"id": "text", "compute": "as text: ${ input }"}],
    "result": {"same": "${ steps.copy.output }", "text": "${ steps.text.output }"}
}"#;

/// Waits for a worker.
const WORK: &str = r#"{"name": "Work", "version": "1", "steps": [{"id": "a", "task": "t"}, {"id": "b", "task": "t"}]}"#;

const UUID: &str = "00000000-0000-0000-0000-000000000007";

fn deploy(server: &Server, definition: &str) {
    let answer = post(server, "/v1/workflows", definition);
    assert_eq!(answer.status, 201, "{answer:?}");
}

/// Waits for the end of an execution, and gives it as text.
fn ended(server: &Server, id: &str) -> String {
    let answer = get(server, &format!("/v1/executions/{id}/wait?timeout_ms=30000"));
    assert_ne!(answer.json()["status"], "running", "{answer:?}");
    answer.text
}

/// What there is, as texts: executions with their histories, workflows, workers.
fn everything(server: &Server) -> Vec<String> {
    let list = get(server, "/v1/executions?limit=1000");
    let mut all = vec![get(server, "/v1/workflows").text, get(server, "/v1/workers").text, list.text.clone()];
    for execution in list.json()["executions"].as_array().expect("a list") {
        let id = execution["execution_id"].as_str().expect("an id");
        all.push(get(server, &format!("/v1/executions/{id}/history")).text);
    }
    all
}

/// Brackets within brackets.
fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

#[tokio::test]
async fn no_bad_request_changes_anything_and_each_is_told_what_is_wrong() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &["--max-payload-bytes", "2000"]).await;
    deploy(&server, ECHO);
    deploy(&server, WORK);
    assert_eq!(post(&server, "/v1/executions", r#"{"workflow": "Work", "execution_id": "before"}"#).status, 201);
    let before = everything(&server);

    let start = |input: &str| format!(r#"{{"workflow": "Echo", "input": {input}}}"#);
    let changed = ECHO.replace("as text", "other");
    let bad_name = r#"{"name": "É", "version": "1", "steps": []}"#;
    let cases: Vec<(&str, Vec<u8>, u16, &str, &str)> = vec![
        ("executions", b"{\"workflow\": \"Echo\",\n}".into(), 400, "INVALID_REQUEST", "line 2 column 1"),
        ("executions", b"workflow: Echo".into(), 400, "INVALID_REQUEST", "not valid JSON"),
        ("executions", start(&nested(127)).into(), 400, "INVALID_REQUEST", "deeper than 127 levels"),
        ("executions", start(&nested(121)).into(), 400, "INVALID_REQUEST", "120"),
        ("executions", start(&nested(200_000)).into(), 400, "INVALID_REQUEST", "deeper than 127 levels"),
        ("executions", vec![b' '; 5 << 20], 413, "PAYLOAD_TOO_LARGE", "--body-limit"),
        ("executions", start(&format!("{:?}", "x".repeat(2000))).into(), 413, "PAYLOAD_TOO_LARGE", "2002 bytes"),
        ("executions", b"{\"workflow\": \"Echo\", \"input\": \"\xff\"}".into(), 400, "INVALID_REQUEST", "unicode"),
        ("executions", start(r#""\ud83e""#).into(), 400, "INVALID_REQUEST", "surrogate"),
        ("executions", start(r#""\udd80\ud83e""#).into(), 400, "INVALID_REQUEST", "surrogate"),
        ("executions", start("\"\0\"").into(), 400, "INVALID_REQUEST", "control character"),
        ("executions", br#"{"workflow": "Echo\u0000"}"#.into(), 400, "INVALID_REQUEST", "U+0000"),
        ("executions", start(r#"{"a": 1, "a": 1}"#).into(), 400, "INVALID_REQUEST", "\"a\" stands twice"),
        ("executions", start(r#"{"a": 1, "\u0061": 1}"#).into(), 400, "INVALID_REQUEST", "\"a\" stands twice"),
        ("executions", start("18446744073709551616").into(), 400, "INVALID_REQUEST", "does not fit 64 bits"),
        ("executions", start("-9223372036854775809").into(), 400, "INVALID_REQUEST", "does not fit 64 bits"),
        ("executions", start("1e400").into(), 400, "INVALID_REQUEST", "number out of range"),
        ("executions", start("NaN").into(), 400, "INVALID_REQUEST", "not valid JSON"),
        ("executions", br#"{"workflow": "Echo", "inptu": 1}"#.into(), 400, "INVALID_REQUEST", "did you mean `input`?"),
        ("executions", br#"{"workflow": 7}"#.into(), 400, "INVALID_REQUEST", "`workflow` must be a string; it is 7"),
        ("executions", br#"[{"workflow": "Echo"}]"#.into(), 400, "INVALID_REQUEST", "must be a JSON object"),
        ("executions", br#"{"workflow": "Echo", "version": "2"}"#.into(), 404, "UNKNOWN_WORKFLOW", "no version 2"),
        ("workers/poll", br#"{"session_id": "x"}"#.into(), 400, "INVALID_REQUEST", "session_id"),
        ("workflows", changed.into(), 409, "DEFINITION_CONFLICT", "Echo"),
        ("workflows", bad_name.into(), 422, "DEFINITION_INVALID", ""),
        ("workflows", ECHO.replace("copy.output", "cpoy.output").into(), 422, "DEFINITION_INVALID", ""),
    ];
    for (route, body, status, code, says) in &cases {
        let answer = post(&server, &format!("/v1/{route}"), body);
        let shown = String::from_utf8_lossy(&body[..body.len().min(60)]);
        assert_eq!(answer.error(), (*status, (*code).into()), "{shown}: {answer:?}");
        assert!(answer.message().contains(says), "{shown}: {answer:?}");
    }

    assert_eq!(everything(&server), before);
    assert_eq!(post(&server, "/v1/executions", start("1") + "\n").status, 201, "it serves on");
    let log = server.process.log();
    assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
}

#[tokio::test]
async fn values_come_out_as_they_went_in_through_expressions_storage_and_a_kill() {
    let folder = folder();
    let db = folder.path().join("orbit.db");
    let server = Server::start(&db, &[]).await;
    deploy(&server, ECHO);
    // As they are written, and as they are to be found again.
    let values = [
        ("9007199254740993", "9007199254740993"),
        ("[18446744073709551615,-9223372036854775808]", "[18446744073709551615,-9223372036854775808]"),
        ("[0.1,1e300,5e-324]", "[0.1,1e+300,5e-324]"),
        (r#""a\u0000b""#, r#""a\u0000b""#),
        (r#""\ud83e\udd80\u00e9""#, "\"🦀é\""),
        ("\"\u{e9} e\u{301}\"", "\"\u{e9} e\u{301}\""),
        (r#"{"":{"a b":[[],{},null]}}"#, r#"{"":{"a b":[[],{},null]}}"#),
    ];
    for (index, (written, _)) in values.iter().enumerate() {
        let start = format!(r#"{{"workflow": "Echo", "execution_id": "v-{index}", "input": {written}}}"#);
        assert_eq!(post(&server, "/v1/executions", start).status, 201, "{written}");
    }
    for index in 0..values.len() {
        ended(&server, &format!("v-{index}"));
    }
    server.process.kill();
    let server = Server::start(&db, &[]).await;
    for (index, (written, found)) in values.iter().enumerate() {
        let text = ended(&server, &format!("v-{index}"));
        assert!(text.contains(&format!("\"input\":{found}")), "{written}: {text}");
        assert!(text.contains(&format!("\"same\":{found}")), "{written}: {text}");
        let history = get(&server, &format!("/v1/executions/v-{index}/history")).text;
        assert!(history.matches(found).count() >= 3, "{written}: {history}");
    }
}

#[tokio::test]
async fn arithmetic_on_whole_numbers_is_exact_or_an_error_of_the_execution() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    let next = r#"{"name": "Next", "version": "1", "steps": [], "result": "${ input + 1 }"}"#;
    let next = next.replace("[]", r#"[{"id": "a", "compute": 1}]"#);
    deploy(&server, &next);
    for (input, output) in [("9007199254740992", Some("9007199254740993")), ("18446744073709551615", None)] {
        let id = format!("n-{input}");
        post(&server, "/v1/executions", format!(r#"{{"workflow": "Next", "execution_id": "{id}", "input": {input}}}"#));
        let text = ended(&server, &id);
        match output {
            Some(output) => assert!(text.contains(&format!("\"output\":{output}")), "{text}"),
            None => assert!(text.contains("EXPRESSION_ERROR") && text.contains("does not fit 64 bits"), "{text}"),
        }
    }
}

#[tokio::test]
async fn an_id_has_one_spelling_a_length_in_bytes_and_no_accent() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    deploy(&server, WORK);
    let start = |id: &str| post(&server, "/v1/executions", json!({"workflow": "Work", "execution_id": id}).to_string());
    let longest = "x".repeat(255);
    assert_eq!(start(&longest).status, 201);
    assert_eq!(get(&server, &format!("/v1/executions/{longest}")).status, 200);
    // Both forms of an accent, more bytes than characters, and what a path or a child's id is made of.
    for bad in ["é", "e\u{301}", &"é".repeat(128), &"x".repeat(256), "a/b", "a b", "parent~step", ""] {
        assert_eq!(start(bad).error(), (400, "INVALID_REQUEST".into()), "{bad:?}");
    }
    assert_eq!(start("a+b:c@d").status, 201);
    for same in ["a+b:c@d", "a%2Bb%3Ac%40d", "%61+b:c%40d"] {
        assert_eq!(get(&server, &format!("/v1/executions/{same}")).json()["execution_id"], "a+b:c@d", "{same}");
    }
    for (other, status, code) in [
        ("A+b:c@d", 404, "UNKNOWN_EXECUTION"),
        ("a%20b:c@d", 400, "INVALID_REQUEST"),
        ("%C3%A9", 400, "INVALID_REQUEST"),
        ("e%CC%81", 400, "INVALID_REQUEST"),
        ("%ff", 400, "INVALID_REQUEST"),
        ("%zz", 400, "INVALID_REQUEST"),
        ("a%00", 400, "INVALID_REQUEST"),
        ("..%2F..%2Fhealth", 400, "INVALID_REQUEST"),
    ] {
        assert_eq!(get(&server, &format!("/v1/executions/{other}")).error(), (status, code.into()), "{other}");
    }
}

#[tokio::test]
async fn both_forms_of_an_accent_are_two_labels_and_two_workers() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    deploy(&server, WORK);
    let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
    for (id, label) in [("one", composed), ("two", decomposed)] {
        let body = json!({"workflow": "Work", "execution_id": id, "labels": {"place": label}});
        assert_eq!(post(&server, "/v1/executions", body.to_string()).status, 201);
        let worker = json!({"worker_id": label, "runtime": "x", "contracts": [{"task_name": "t"}]});
        assert_eq!(post(&server, "/v1/workers/register", worker.to_string()).status, 200);
    }
    for (encoded, id, label) in [("caf%C3%A9", "one", composed), ("cafe%CC%81", "two", decomposed)] {
        let found = get(&server, &format!("/v1/executions?label=place%3D{encoded}")).json();
        let ids: Vec<&Value> = found["executions"].as_array().expect("a list").iter().collect();
        assert_eq!(ids.len(), 1, "{found}");
        assert_eq!((&ids[0]["execution_id"], &ids[0]["labels"]["place"]), (&json!(id), &json!(label)));
    }
    // A registration is answered before it is listed.
    let names = wait_for("second worker", PATIENCE, || {
        let workers = get(&server, "/v1/workers").json()["workers"].as_array().expect("a list").clone();
        (workers.len() == 2).then(|| workers.iter().map(|worker| worker["worker_id"].clone()).collect::<Vec<_>>())
    });
    assert_eq!(names, [json!(decomposed), json!(composed)]);
}

#[tokio::test]
async fn results_for_unknown_finished_and_foreign_tokens_are_told_apart() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    deploy(&server, WORK);
    post(&server, "/v1/executions", r#"{"workflow": "Work", "execution_id": "e"}"#);
    post(&server, "/v1/executions", r#"{"workflow": "Work", "execution_id": "other"}"#);
    let register = |name: &str| {
        let body = json!({"worker_id": name, "runtime": "x", "contracts": [{"task_name": "t"}]});
        let session = post(&server, "/v1/workers/register", body.to_string()).json()["session_id"].clone();
        session.as_str().expect("a session").to_owned()
    };
    let (mine, theirs) = (register("mine"), register("theirs"));
    let take = |session: &str| {
        let body = json!({"session_id": session, "wait_ms": 20_000, "max_tasks": 1});
        let task = post(&server, "/v1/workers/poll", body.to_string()).json()["tasks"][0].clone();
        task["token"].as_str().expect("a task").to_owned()
    };
    let report = |session: &str, token: &str| {
        let body = json!({"session_id": session, "token": token, "output": session});
        post(&server, "/v1/tasks/complete", body.to_string())
    };
    let token = take(&mine);
    let (execution, uuid) = token.split_once('/').expect("an execution and a UUID");
    let elsewhere = if execution == "e" { "other" } else { "e" };

    // Of no delivery, of no execution, of another execution, of no form.
    for (unknown, status, code) in [
        (format!("{execution}/{UUID}"), 404, "UNKNOWN_TOKEN"),
        (format!("nobody/{uuid}"), 404, "UNKNOWN_TOKEN"),
        (format!("{elsewhere}/{uuid}"), 404, "UNKNOWN_TOKEN"),
        (uuid.to_owned(), 400, "INVALID_REQUEST"),
        (format!("{execution}/{uuid}/"), 400, "INVALID_REQUEST"),
    ] {
        assert_eq!(report(&mine, &unknown).error(), (status, code.into()), "{unknown}");
    }
    assert_eq!(report(UUID, &token).error(), (404, "UNKNOWN_SESSION".into()));
    // The token is what counts, not the session that it was given to: a worker that registers again goes on.
    assert_eq!(report(&theirs, &token).json()["outcome"], "accepted");
    assert_eq!(report(&theirs, &token).json()["outcome"], "duplicate");
    let shown = get(&server, &format!("/v1/executions/{execution}/history")).json();
    let succeeded = |shown: &Value| {
        let events = shown["events"].as_array().expect("a list").clone();
        events.into_iter().filter(|event| event["type"] == "StepSucceeded").collect::<Vec<_>>()
    };
    assert_eq!(succeeded(&shown).len(), 1);
    assert_eq!(succeeded(&shown)[0]["output"], json!(theirs));

    // What is finished takes nothing more.
    let late = wait_for("task of the other execution", PATIENCE, || {
        let token = take(&mine);
        token.starts_with(elsewhere).then_some(token)
    });
    post(&server, &format!("/v1/executions/{elsewhere}/cancel"), "{}");
    ended(&server, elsewhere);
    assert_eq!(report(&mine, &late).json()["outcome"], "stale");
    let shown = get(&server, &format!("/v1/executions/{elsewhere}/history")).json();
    assert_eq!(succeeded(&shown), Vec::<Value>::new());
}

#[tokio::test]
async fn an_expression_that_works_without_end_fails_its_execution_and_no_other() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    deploy(&server, ECHO);
    let much = "range(100000) | map('string') | map('length') | sort | sum";
    let bomb = format!("${{ [{}] | sum }}", vec![format!("({much})"); 15].join(", "));
    let wide = "${ range(99999) | map('string') | join(input) }";
    for (name, expression) in [("Bomb", bomb.as_str()), ("Wide", wide)] {
        let steps = json!([{"id": "a", "compute": expression}]);
        deploy(&server, &json!({"name": name, "version": "1", "steps": steps}).to_string());
    }
    for (id, workflow, input) in [("bomb", "Bomb", "1"), ("wide", "Wide", &format!("{:?}", "x".repeat(1000)))] {
        let start = format!(r#"{{"workflow": "{workflow}", "execution_id": "{id}", "input": {input}}}"#);
        assert_eq!(post(&server, "/v1/executions", start).status, 201);
    }
    assert_eq!(post(&server, "/v1/executions", r#"{"workflow": "Echo", "execution_id": "fine"}"#).status, 201);
    assert!(ended(&server, "fine").contains("\"status\":\"completed\""));
    for id in ["bomb", "wide"] {
        let text = ended(&server, id);
        assert!(text.contains("\"status\":\"failed\"") && text.contains("EXPRESSION_ERROR"), "{text}");
    }
    assert_eq!(get(&server, "/v1/ready").status, 200);
}
