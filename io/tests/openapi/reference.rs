//! What the book's reference of the API says, held to the description.

use crate::api::{STRICT, codes, problem, problems};
use crate::book;
use orbit_core::api::ErrorCode;
use serde_json::Value;
use std::collections::BTreeSet;

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
