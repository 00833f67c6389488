//! `openapi.json` says what the API does.

#[path = "openapi/answers.rs"]
mod answers;
mod api;
mod book;
#[path = "openapi/events.rs"]
mod events;

use api::{STRICT, codes, problem, problems, response, validator};
use hyper::Method;
use orbit_core::api::ErrorCode;
use orbit_io::http::openapi;
use orbit_io::http::published::Published;
use orbit_io::http::route::{Resource, RouteLimits, route};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;

/// Set to anything, this writes `docs/openapi.json` anew. Look at what changed before you commit it: clients are
/// generated from it.
const REWRITE: &str = "ORBIT_REWRITE_OPENAPI";

#[test]
fn the_file_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/openapi.json");
    if std::env::var_os(REWRITE).is_some() {
        std::fs::write(&path, openapi::text()).expect("the file can be written");
    }
    let file = std::fs::read_to_string(&path).unwrap_or_default();
    let same = file == openapi::text();
    assert!(same, "docs/openapi.json is out of date: run `{REWRITE}=1 cargo test -p io --test openapi`");
}

#[test]
fn each_method_that_is_served_is_described_and_no_other() {
    let mut described = BTreeSet::new();
    for (path, item) in STRICT["paths"].as_object().expect("an object") {
        for method in item.as_object().expect("an object").keys().filter(|key| *key != "parameters") {
            described.insert(format!("{} {path}", method.to_ascii_uppercase()));
        }
    }
    let mut served = BTreeSet::new();
    for path in Resource::TEMPLATES {
        let resource = Resource::find(&path.replace(['{', '}'], "")).expect("a path of the API");
        assert_eq!(resource.template(), *path);
        for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
            if resource.verb(&method).is_ok() {
                served.insert(format!("{method} {path}"));
            }
        }
    }
    served.extend(Published::ALL.iter().map(|document| format!("GET {}", document.path())));
    assert_eq!(described, served);
}

/// Every operation, with its method and path.
fn operations() -> Vec<(&'static str, &'static str, &'static Value)> {
    let paths = STRICT["paths"].as_object().expect("an object").iter();
    let operations = paths.flat_map(|(path, item)| {
        ["get", "post"].into_iter().filter_map(move |method| Some((method, path.as_str(), item.get(method)?)))
    });
    operations.collect()
}

/// Every reference of a document.
fn references<'d>(value: &'d Value, found: &mut BTreeSet<&'d str>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        Value::Object(fields) => {
            found.extend(fields.get("$ref").and_then(Value::as_str));
            fields.values().for_each(|field| references(field, found));
        }
        _ => {}
    }
}

#[test]
fn references_lead_to_something_and_nothing_is_described_for_nobody() {
    let mut found = BTreeSet::new();
    references(&STRICT, &mut found);
    for reference in &found {
        assert!(STRICT.pointer(&reference[1..]).is_some(), "{reference} leads nowhere");
    }
    for group in ["schemas", "responses", "headers"] {
        for name in STRICT["components"][group].as_object().expect("an object").keys() {
            assert!(found.contains(format!("#/components/{group}/{name}").as_str()), "nothing uses {name}");
        }
    }
    let ids: Vec<&str> = operations().iter().map(|(.., o)| o["operationId"].as_str().expect("an id")).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    for (_, path, operation) in operations() {
        for (status, response) in operation["responses"].as_object().expect("an object") {
            for (name, link) in response.get("links").and_then(Value::as_object).into_iter().flatten() {
                assert!(ids.contains(&link["operationId"].as_str().expect("an id")), "{path} {status} {name}");
            }
        }
    }
}

#[test]
fn each_error_stands_where_its_status_is_and_each_code_somewhere() {
    let mut seen = BTreeSet::new();
    for (method, path, operation) in operations() {
        for status in operation["responses"].as_object().expect("an object").keys() {
            let status: u16 = status.parse().expect("a status");
            let codes = codes(operation, status);
            assert!(status < 400 || !codes.is_empty(), "{method} {path} {status} names no code");
            for code in codes {
                assert_eq!(code.status(), status, "{method} {path} {code:?}");
                seen.insert(code);
            }
        }
    }
    // Of what is no route, no method of one, or no request: the introduction tells of those.
    seen.extend([ErrorCode::NotFound, ErrorCode::MethodNotAllowed, ErrorCode::HeadTooLarge]);
    assert_eq!(seen, ErrorCode::ALL.iter().copied().collect());
}

/// The errors that the reference names for a route.
fn errors_of_reference(text: &str) -> BTreeSet<ErrorCode> {
    let Some((_, errors)) = text.rsplit_once("\nErrors: ") else { return BTreeSet::new() };
    ErrorCode::ALL.iter().copied().filter(|code| errors.contains(&format!("`{}`", code.as_str()))).collect()
}

#[test]
fn the_errors_that_the_reference_names_are_described() {
    let mut named = 0;
    for (heading, text) in sections() {
        let (method, path) = heading.split_once(' ').expect("method and path");
        let operation = &STRICT["paths"][path][method.to_ascii_lowercase()];
        for code in errors_of_reference(&text) {
            assert!(codes(operation, code.status()).contains(&code), "{heading}: {code:?}");
            named += 1;
        }
    }
    assert!(named >= 15, "{named} errors");
}

/// The sections of the API's reference: method and path, and the text.
fn sections() -> Vec<(String, String)> {
    let page = book::page("reference/http-api.md");
    let parts = page.split("\n### `").skip(1);
    let section = |part: &str| {
        let (heading, text) = part.split_once("`\n").expect("a heading ends with a back-tick");
        (heading.to_owned(), text.to_owned())
    };
    parts.map(section).collect()
}

fn limits() -> RouteLimits {
    RouteLimits { max_payload_bytes: 1 << 20 }
}

#[test]
fn what_the_reference_shows_matches() {
    let (mut requests, mut answers) = (0, 0);
    for (heading, text) in sections() {
        let (method, path) = heading.split_once(' ').expect("method and path");
        let operation = &STRICT["paths"][path][method.to_ascii_lowercase()];
        let request = &operation["requestBody"]["content"]["application/json"]["schema"];
        for (index, (_, block)) in book::blocks(&text).iter().filter(|(kind, _)| kind == "json").enumerate() {
            let shown: Value = serde_json::from_str(block).expect("it is JSON");
            // The first block of a POST is a request, and so is each other one with results.
            if method == "POST" && (index == 0 || shown.get("results").is_some()) {
                assert_eq!(problems(request, &shown), [""; 0], "{heading}: {block}");
                requests += 1;
            } else {
                let fits = [200, 201, 503]
                    .into_iter()
                    .any(|status| problem(method, &path.replace(['{', '}'], ""), status, &shown).is_none());
                assert!(fits, "{heading}: {block}");
                answers += 1;
            }
        }
    }
    assert!(requests >= 10 && answers >= 12, "{requests} requests and {answers} answers");
}

#[test]
fn the_examples_match_their_schemas_and_requests_are_taken() {
    let mut seen = 0;
    for (method, path, operation) in operations() {
        let body = operation.get("requestBody").into_iter();
        let statuses = operation["responses"].as_object().expect("an object").keys();
        let answers = statuses.filter_map(|status| response(operation, status.parse().expect("a status")));
        for (media, content) in body.chain(answers).flat_map(|part| part["content"].as_object().expect("an object")) {
            let validator = validator(&content["schema"]);
            for example in content.get("examples").and_then(Value::as_object).into_iter().flat_map(|e| e.values()) {
                assert!(validator.is_valid(&example["value"]), "{method} {path} {media}: {example}");
                seen += 1;
            }
        }
        let path = path.replace(['{', '}'], "");
        for (media, content) in operation["requestBody"]["content"].as_object().into_iter().flatten() {
            for (name, example) in content["examples"].as_object().expect("requests have examples") {
                let body = example["value"].to_string();
                let routed = route(&Method::POST, &path, None, Some(media), body.as_bytes(), &limits());
                assert!(routed.is_ok_and(|routed| routed.refused.is_empty()), "{path} {media} {name}");
            }
        }
    }
    assert!(seen > 100, "{seen} examples");
}

proptest! {
    #[test]
    fn an_id_in_a_path_matches_where_it_is_taken(id in "([A-Za-z0-9._:@+~\\[\\]-]{1,30}|[ -~]{0,12}|a{250,260}|~a{1020,1024})") {
        let encoded: String = id.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let taken = Resource::find(&format!("/v1/executions/{encoded}")).is_ok();
        let schema = json!({"$ref": "#/components/schemas/ExecutionId"});
        prop_assert_eq!(problems(&schema, &json!(id)).is_empty(), taken, "{}", id);
    }
}
