//! Texts that PostgreSQL's columns would refuse: they are refused before, or stored as they are; on every store alike.

use super::{aside, fresh};
use crate::common::raw::{Answer, get, post, send};
use crate::common::{Server, folder, free_addr};
use serde_json::{Value, json};

/// Requests with what texts may hold, each with its route. `@` stands for the text.
const ROUTES: &[(&str, &str)] = &[
    ("workers/register", r#"{"worker_id": "w@", "runtime": "x", "contracts": [{"task_name": "t"}]}"#),
    ("workers/register", r#"{"worker_id": "w1", "runtime": "x@", "contracts": [{"task_name": "t"}]}"#),
    ("workers/register", r#"{"worker_id": "w2", "runtime": "x", "sdk": "s@", "contracts": [{"task_name": "t"}]}"#),
    ("workers/register", r#"{"worker_id": "w3", "runtime": "x", "contracts": [{"task_name": "t@"}]}"#),
    (
        "workers/register",
        r#"{"worker_id": "w4", "runtime": "x", "contracts": [{"task_name": "t", "contract_version": "1@"}]}"#,
    ),
    ("executions", r#"{"workflow": "Echo@", "execution_id": "a1"}"#),
    ("executions", r#"{"workflow": "Echo", "version": "1@", "execution_id": "a2"}"#),
    ("executions", r#"{"workflow": "Echo", "execution_id": "a3@"}"#),
    ("executions", r#"{"workflow": "Echo", "execution_id": "a4#", "input": "@"}"#),
    ("executions", r#"{"workflow": "Echo", "execution_id": "a5#", "input": {"@": 1}}"#),
    ("executions", r#"{"workflow": "Echo", "execution_id": "a6#", "labels": {"k": "@"}}"#),
    ("executions", r#"{"workflow": "Echo", "execution_id": "a7#", "labels": {"k@": "v"}}"#),
    ("executions/nap/cancel", r#"{"reason": "@"}"#),
    ("workflows", r#"{"name": "W@", "version": "1", "steps": [{"id": "a", "compute": 1}]}"#),
    ("workflows", r#"{"name": "V#", "version": "1@", "steps": [{"id": "a", "compute": 1}]}"#),
    ("workflows", r#"{"name": "D#", "version": "1", "description": "@", "steps": [{"id": "a", "compute": 1}]}"#),
    ("workflows", r#"{"name": "C#", "version": "1", "steps": [{"id": "a", "compute": "@"}]}"#),
    ("workflows", r#"{"name": "T#", "version": "1", "steps": [{"id": "a", "task": "t@"}]}"#),
    ("workflows", r#"{"name": "I#", "version": "1", "steps": [{"id": "a@", "compute": 1}]}"#),
];

/// What stands for `@`, as it is written in JSON.
const TEXTS: &[&str] = &[
    r"\u0000",
    r"\ud83e",
    r"\udd80\ud83e",
    r"\ud83e\udd80",
    r"\u0001\u001f\u007f\u0085",
    r"\ufeff",
    r"\u2028\ufffe\uffff",
    r#"'; DROP TABLE x; -- \"\\ %00 $1 {0}"#,
    "\u{7f}\u{e9}e\u{301}\u{1f980}",
];

struct Told {
    /// What was sent, and what was said: the status, and the code of an error.
    answers: Vec<(String, u16, String)>,
    /// What there is in the end, without its times.
    there: Vec<Value>,
}

fn told(server: &Server) -> Told {
    let echo = r#"{"name": "Echo", "version": "1", "steps": [{"id": "a", "compute": "${ input }"}]}"#;
    let nap = r#"{"name": "Nap", "version": "1", "steps": [{"id": "a", "sleep": "1h"}]}"#;
    for definition in [echo, nap] {
        assert_eq!(post(server, "/v1/workflows", definition).status, 201);
    }
    let mut answers = Vec::new();
    let mut note = |what: String, answer: &Answer| {
        let parsed: Value = serde_json::from_str(&answer.text).unwrap_or_default();
        let code = parsed["error"]["code"].as_str().unwrap_or_default().to_owned();
        assert!(answer.status < 500, "{what}: {answer:?}");
        answers.push((what, answer.status, code));
    };
    for (number, text) in TEXTS.iter().enumerate() {
        let start = post(server, "/v1/executions", r#"{"workflow": "Nap", "execution_id": "nap"}"#);
        assert!([200, 201].contains(&start.status), "{start:?}");
        for (route, body) in ROUTES {
            let body = body.replace('#', &number.to_string()).replace('@', text);
            note(format!("{route} {body}"), &post(server, &format!("/v1/{route}"), &body));
        }
        // Bytes that are no text, and a mark at the beginning.
        for bytes in
            [&b"{\"workflow\": \"Echo\", \"input\": \"\xff\xfe\"}"[..], b"\xef\xbb\xbf{\"workflow\": \"Echo\"}"]
        {
            note(format!("{bytes:?}"), &post(server, "/v1/executions", bytes));
        }
    }
    for query in
        ["label=k%3D%00", "label=%00%3Dv", "label=k%3D%F0%9F%A6%80", "workflow=%00", "workflow=%FF", "cursor=%00"]
    {
        note(query.into(), &get(server, &format!("/v1/executions?{query}")));
    }
    for target in ["executions/%00", "executions/a%00/history", "workflows/%00", "workflows/Echo/versions/%00"] {
        note(target.into(), &send(server, &format!("GET /v1/{target} HTTP/1.1\r\n"), b""));
    }
    let mut there = Vec::new();
    for target in ["workflows", "workers", "executions?limit=1000"] {
        let mut all: Value = serde_json::from_str(&get(server, &format!("/v1/{target}")).text).expect("JSON");
        without_times(&mut all);
        there.push(all);
    }
    Told { answers, there }
}

/// Takes out what differs between two runs, and sorts what has no order.
fn without_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for name in ["created_at_ms", "updated_at_ms", "last_seen_ms", "session_id", "last_seen_age_ms"] {
                fields.remove(name);
            }
            fields.values_mut().for_each(without_times);
        }
        Value::Array(items) => {
            items.iter_mut().for_each(without_times);
            items.sort_by_key(Value::to_string);
        }
        _ => {}
    }
}

#[tokio::test]
async fn texts_that_a_column_would_refuse_are_answered_alike_on_both_stores() {
    let (folder, database) = (folder(), fresh().await);
    let on_postgres = Server::spawn_on(&database.url(), folder.path(), free_addr(), &[]);
    on_postgres.ready().await;
    let on_sqlite = Server::start(&folder.path().join("orbit.db"), &[]).await;
    let (on_postgres, on_sqlite, told) = aside(move || {
        let told = [told(&on_postgres), told(&on_sqlite)];
        (on_postgres, on_sqlite, told)
    })
    .await;
    let [postgres, sqlite] = told;
    assert!(postgres.answers.iter().any(|(_, status, _)| *status < 300) && postgres.answers.len() > 150);
    assert_eq!(postgres.answers, sqlite.answers);
    // A registration is answered before its row is written.
    for server in [&on_postgres, &on_sqlite] {
        let log = server.process.log();
        assert!(!log.contains("ERROR") && !log.contains("panicked") && !log.contains("store call failed"), "{log}");
    }
    assert_eq!(postgres.there[0], sqlite.there[0], "workflows");
    assert_eq!(postgres.there[2], sqlite.there[2], "executions");
    assert_ne!(sqlite.there[1], json!({}));
}
