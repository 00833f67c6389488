//! The documents that the front serves, and answers as the API's description has them.

use super::api;
use super::support::{Says, Server, fine, quick};
use orbit_core::api::{ApiError, ErrorCode};
use orbit_io::http::HttpConfig;
use orbit_io::http::published::Published;
use serde_json::{Value, json};
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
