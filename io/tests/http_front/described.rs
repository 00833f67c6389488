//! The documents that the front serves, and answers as the API's description has them.

use super::api;
use super::routes::metrics;
use super::support::{Says, Server, fine, quick};
use orbit_core::api::response::Reply;
use orbit_core::api::{ApiError, ErrorCode, Response};
use orbit_io::http::HttpConfig;
use orbit_io::http::published::Published;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

#[tokio::test]
async fn the_schema_of_definitions_is_there_for_editors_that_have_no_token() {
    let server = Server::start(HttpConfig { token: Some("secret".into()), ..quick() }, fine);
    let mut client = server.connect().await;
    let answer = client.get("/v1/schemas/orbit-def-1.json").await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/schema+json")));
    assert_eq!(String::from_utf8(answer.body).unwrap(), orbit_io::definition::DOCUMENT_SCHEMA);
    let answer = client.post("/v1/schemas/orbit-def-1.json", &json!({})).await;
    assert_eq!(answer.error(), (405, "METHOD_NOT_ALLOWED".into(), String::new()));
    assert_eq!(answer.header("allow"), Some("GET, HEAD"));
    assert_eq!(client.get("/v1/schemas/orbit-def-2.json").await.status, 401);
    assert_eq!(server.stopped().await, [], "nothing of it reaches the node");
}

#[tokio::test]
async fn the_description_of_the_api_needs_the_token() {
    let server = Server::start(HttpConfig { token: Some("secret".into()), ..quick() }, fine);
    let mut client = server.connect().await;
    assert_eq!(client.get("/v1/openapi.json").await.error(), (401, "UNAUTHORIZED".into(), String::new()));
    client.send("GET /v1/openapi.json HTTP/1.1\r\nhost: x\r\nauthorization: Bearer secret\r\n\r\n").await;
    let answer = client.answer().await;
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    assert_eq!(String::from_utf8(answer.body).unwrap(), orbit_io::http::openapi::text());
}

async fn text_of_metrics() -> String {
    let server = Server::start(quick(), |_| Says::Answer(Response::ok(Reply::Metrics(Box::new(metrics())))));
    let mut client = server.connect().await;
    client.get("/v1/metrics").await;
    let answer = client.get("/v1/metrics").await;
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4; charset=utf-8"));
    String::from_utf8(answer.body).unwrap()
}

#[tokio::test]
async fn metrics_are_text_with_the_figures_of_node_and_process() {
    let text = text_of_metrics().await;
    for line in ["orbit_executions_started_total 7", "orbit_http_connections 1", "orbit_http_requests_total 1"] {
        assert!(text.lines().any(|l| l == line), "{line} in {text}");
    }
    assert!(text.contains("\nprocess_resident_memory_bytes "));
}

#[tokio::test]
async fn the_metrics_that_are_served_are_those_of_the_book_with_their_types_and_meanings() {
    const BOOK: &str = include_str!("../../../docs/src/reference/metrics.md");
    let text = text_of_metrics().await;
    let rest = |line: &str, kind: &str| {
        let (name, rest) = line.strip_prefix(kind)?.split_once(' ')?;
        Some((name.to_owned(), rest.to_owned()))
    };
    let of_kind = |kind: &str| text.lines().filter_map(|line| rest(line, kind)).collect::<BTreeMap<_, _>>();
    let (types, meanings) = (of_kind("# TYPE "), of_kind("# HELP "));
    let rows = BOOK.lines().filter_map(|line| line.strip_prefix("| `")?.strip_suffix(" |")?.split_once("` | "));
    let documented: BTreeMap<&str, (&str, &str)> =
        rows.map(|(name, rest)| (name, rest.split_once(" | ").expect("a type and a meaning"))).collect();
    assert_eq!(documented.keys().copied().collect::<Vec<_>>(), types.keys().collect::<Vec<_>>());
    for (name, (kind, meaning)) in documented {
        assert_eq!(kind, types[name], "{name}");
        assert!(meaning.starts_with(&meanings[name]), "{name}: {meaning}");
    }
}

/// Each operation of the API's description that the node answers: method, target, and a body that is right.
fn operations() -> Vec<(&'static str, String, Value, &'static Value)> {
    let mut operations = Vec::new();
    for (path, item) in api::STRICT["paths"].as_object().unwrap() {
        let target = path.replace(['{', '}'], "");
        if Published::find(path).is_some() {
            continue;
        }
        for (method, key) in [("GET", "get"), ("POST", "post")] {
            let Some(operation) = item.get(key) else { continue };
            let body = &operation["requestBody"]["content"]["application/json"]["examples"]["single"]["value"];
            operations.push((method, target.clone(), body.clone(), operation));
        }
    }
    assert!(operations.len() > 20);
    operations
}

#[tokio::test]
async fn every_error_that_is_described_for_a_route_can_come_over_the_wire_as_it_is_described() {
    let code = Arc::new(std::sync::Mutex::new(ErrorCode::Internal));
    let asked = code.clone();
    let server = Server::start(quick(), move |_| {
        Says::Answer(ApiError::new(*asked.lock().unwrap(), "no").with("path", "a").into())
    });
    let mut client = server.connect().await;
    let mut seen = 0;
    for (method, target, body, operation) in operations() {
        for error in ErrorCode::ALL {
            let described = api::codes(operation, error.status());
            if described.contains(error) {
                *code.lock().unwrap() = *error;
                let answer = match method {
                    "GET" => client.get(&target).await,
                    _ => client.post(&target, &body).await,
                };
                assert_eq!(answer.error(), (error.status(), error.as_str().into(), "a".into()), "{method} {target}");
                let again = matches!(error.status(), 429 | 503);
                assert_eq!(answer.header("retry-after").is_some(), again, "{method} {target} {error:?}");
                seen += 1;
            }
        }
    }
    assert!(seen > 150, "{seen} errors");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_answered_as_described_on_every_route_that_takes_one() {
    let server = Server::start(quick(), fine);
    for (method, target, ..) in operations() {
        if method == "POST" {
            let mut client = server.connect().await;
            let head = format!(
                "POST {target} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n"
            );
            client.send(head).await;
            let answer = client.described("POST", &target).await;
            assert_eq!(answer.error().1, "REQUEST_TIMEOUT", "{target}");
        }
    }
}
