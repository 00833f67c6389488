//! The reference in the book says what the API does: its errors, its routes, and the requests that it shows.

use hyper::Method;
use orbit_core::api::ErrorCode;
use orbit_io::http::published::Published;
use orbit_io::http::route::{Resource, RouteLimits, route};
use serde_json::Value;
use std::collections::BTreeSet;

const ERRORS: &str = include_str!("../../docs/src/reference/errors.md");
const API: &str = include_str!("../../docs/src/reference/http-api.md");

/// The sections of a page whose headings are code: heading and text.
fn sections(page: &str) -> Vec<(&str, &str)> {
    page.split("\n### `").skip(1).map(|part| part.split_once("`\n").expect("a heading ends with a back-tick")).collect()
}

/// The blocks of JSON of a text.
fn blocks(text: &str) -> Vec<&str> {
    text.split("```json\n").skip(1).map(|part| part.split("```").next().unwrap()).collect()
}

#[test]
fn each_error_code_has_its_section_with_its_status() {
    let sections = sections(ERRORS);
    let documented: BTreeSet<&str> = sections.iter().map(|(code, _)| *code).collect();
    let known: BTreeSet<&str> = ErrorCode::ALL.iter().map(|code| code.as_str()).collect();
    assert_eq!(documented, known);
    assert_eq!(sections.len(), known.len(), "no code has two sections");
    for code in ErrorCode::ALL {
        let (_, text) = sections.iter().find(|(heading, _)| *heading == code.as_str()).unwrap();
        let first: String = text.split(['.', ';', ',']).next().unwrap().trim().into();
        assert_eq!(first, format!("Status {}", code.status()), "{}", code.as_str());
        let sentence = text.split('.').next().unwrap();
        assert_eq!(sentence.contains("retryable"), code.retryable(), "{}", code.as_str());
    }
}

#[test]
fn each_code_that_the_server_writes_into_histories_has_its_row() {
    let source = include_str!("../../core/src/execution/event.rs");
    let codes = source.split_once("pub mod codes {").and_then(|(_, rest)| rest.split_once("\n}")).expect("a module").0;
    let written: BTreeSet<&str> = codes.split('"').skip(1).step_by(2).collect();
    assert!(written.len() > 10, "{written:?}");
    let table = ERRORS.split_once("## Codes in histories").expect("a chapter").1;
    let rows = table.lines().filter(|line| line.contains("| server |")).map(|line| line.split(" | ").next().unwrap());
    let documented: BTreeSet<&str> = rows.flat_map(|cell| cell.split('`').skip(1).step_by(2)).collect();
    assert_eq!(documented, written);
}

#[test]
fn the_errors_that_are_shown_are_whole() {
    for block in blocks(ERRORS).into_iter().chain(blocks(API)) {
        let shown: Value = serde_json::from_str(block).unwrap_or_else(|e| panic!("{e} in {block}"));
        let Some(error) = shown.get("error").filter(|error| error.get("hint").is_some()) else { continue };
        let code: ErrorCode = serde_json::from_value(error["code"].clone()).unwrap();
        assert_eq!(error["hint"], code.hint(), "{block}");
        assert_eq!(error["retryable"], code.retryable(), "{block}");
    }
}

#[test]
fn each_route_has_its_section() {
    let documented: BTreeSet<&str> = sections(API).iter().map(|(route, _)| *route).collect();
    let mut served = BTreeSet::new();
    for path in Resource::TEMPLATES {
        let resource = Resource::find(&path.replace(['{', '}'], "")).unwrap();
        let methods = resource.allow().split(", ").filter(|method| *method != "HEAD");
        served.extend(methods.map(|method| format!("{method} {path}")));
    }
    served.extend(Published::ALL.iter().map(|document| format!("GET {}", document.path())));
    assert_eq!(documented, served.iter().map(String::as_str).collect());
}

#[test]
fn the_requests_that_are_shown_are_valid() {
    let limits = RouteLimits { max_payload_bytes: 1 << 20 };
    let mut shown = 0;
    for (heading, text) in sections(API) {
        let Some(path) = heading.strip_prefix("POST ") else { continue };
        let path = path.replace(['{', '}'], "");
        let request = text.split("\nRequest:\n").nth(1).unwrap_or_else(|| panic!("{heading} shows a request"));
        let bodies = blocks(request).into_iter().enumerate();
        // The first block is a request, and any other that names a session.
        for (_, body) in bodies.filter(|(index, body)| *index == 0 || body.contains("\"results\"")) {
            let routed = route(&Method::POST, &path, None, Some("application/json"), body.as_bytes(), &limits);
            let routed = routed.unwrap_or_else(|error| panic!("{heading}: {}", error.message));
            assert!(routed.refused.is_empty());
            shown += 1;
        }
    }
    assert_eq!(shown, 16, "one for each POST, and the batch of results");
}
