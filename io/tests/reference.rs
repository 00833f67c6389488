//! What `docs/src/reference/definitions.md` says of definitions is so: its examples, its tables, its error report.

mod book;

use book::blocks;
use orbit_core::definition::document::{MAX_ATTEMPTS, MAX_NAME_BYTES, MAX_STEP_ID_BYTES, MAX_STEPS, MAX_VERSION_BYTES};
use orbit_core::definition::expression::vocabulary::{FILTERS, FUNCTIONS, NAMES, TESTS, Word};
use orbit_core::definition::expression::{
    MAX_EXPRESSIONS, MAX_NESTING, MAX_RENDERED_BYTES, MAX_SOURCE_BYTES, MAX_TOKENS, MAX_WORK,
};
use orbit_core::definition::{MAX_DEPTH, Scope, Template};
use orbit_core::id::{ExecutionId, Run, Version, WorkflowName};
use orbit_io::definition::{Format, check};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn page() -> String {
    book::page("reference/definitions.md")
}

fn passes(text: &str) {
    if let Err(error) = check(text, Format::Yaml) {
        panic!("\n{}", error.render("example", text));
    }
}

#[test]
fn every_example_passes_the_check_and_the_faulty_one_fails_as_shown() {
    let page = page();
    let blocks = blocks(&page);
    let mut seen = BTreeMap::new();
    for (index, (kind, text)) in blocks.iter().enumerate() {
        *seen.entry(kind.as_str()).or_insert(0) += 1;
        match kind.as_str() {
            "yaml" | "yaml,steps" => passes(&book::definition(kind, text).expect("it shows a definition")),
            "yaml,faulty" => {
                let error = check(text, Format::Yaml).expect_err("it is faulty");
                assert_eq!(error.render("order.yaml", text), blocks[index + 1].1);
            }
            "text" => {}
            other => panic!("the test does not know blocks of the kind {other:?}"),
        }
    }
    assert_eq!(seen, BTreeMap::from([("yaml", 4), ("yaml,steps", 5), ("yaml,faulty", 2), ("text", 3)]));
}

/// The rows of the table with this heading, each as its first two cells.
fn table(page: &str, heading: &str) -> Vec<(String, String)> {
    let mut lines = page.lines().skip_while(|line| *line != heading);
    assert!(lines.next().is_some(), "no table {heading:?}");
    let rows = lines.skip(1).take_while(|line| line.starts_with('|'));
    let rows = rows.map(|row| {
        // A bar within a cell is written `\|`.
        let row = row.replace("\\|", "\u{0}");
        let mut cells = row.trim_matches('|').split('|').map(|cell| cell.trim().replace('\u{0}', "|"));
        (cells.next().unwrap_or_default(), cells.next().unwrap_or_default())
    });
    rows.collect()
}

fn code(cell: &str) -> &str {
    cell.strip_prefix('`').and_then(|c| c.strip_suffix('`')).unwrap_or_else(|| panic!("{cell} is no code"))
}

#[test]
fn every_text_gives_what_the_table_says() {
    let input = json!({
        "name": "Ada", "age": 36, "tags": ["a", "b"], "address": null,
        "lines": [{"sku": "x", "price": 10}, {"sku": "y", "price": 5}],
    });
    let page = page();
    let shown: String = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let written = "{\"name\": \"Ada\", \"age\": 36, \"tags\": [\"a\", \"b\"], \"address\": null, \"lines\": [{\"sku\": \
                   \"x\", \"price\": 10}, {\"sku\": \"y\", \"price\": 5}]}";
    assert!(shown.contains(written), "the page shows another input");
    assert_eq!(serde_json::from_str::<Value>(written).expect("JSON"), input);

    let scope = Scope {
        input: &Arc::new(input),
        outputs: &BTreeMap::new(),
        execution: &ExecutionId::new("e"),
        workflow: &WorkflowName::new("W"),
        version: &Version::new("1"),
        run: Run(1),
        local: Default::default(),
    };
    let rows = table(&page, "| Text | Gives |");
    assert!(rows.len() > 10);
    for (text, gives) in rows {
        let template = Template::new(&json!(code(&text))).unwrap_or_else(|e| panic!("{e}"));
        let value = template.render(&scope).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(value.to_string(), code(&gives), "{text}");
    }
}

#[test]
fn every_word_of_the_language_is_listed_and_none_that_is_not_there() {
    let page = page();
    let same = |heading: &str, words: &[Word]| {
        let listed: Vec<(String, String)> =
            table(&page, heading).into_iter().map(|(word, is)| (code(&word).to_owned(), is)).collect();
        let there: Vec<(String, String)> = words.iter().map(|(word, is)| ((*word).into(), (*is).into())).collect();
        assert_eq!(listed, there, "{heading}");
    };
    same("| Name | |", NAMES);
    same("| Function | |", FUNCTIONS);
    same("| Filter | Gives |", FILTERS);
    same("| Test | True for |", TESTS);
}

#[test]
fn the_limits_are_those_of_the_code() {
    let page = page();
    let listed: Vec<u64> = table(&page, "| What | At most |")
        .iter()
        .map(|(_, limit)| limit.replace(',', "").parse().expect("a limit is a number"))
        .collect();
    let size = |limit: usize| u64::try_from(limit).expect("limits are small");
    let limits = [
        size(MAX_STEPS),
        size(MAX_DEPTH),
        size(MAX_SOURCE_BYTES),
        size(MAX_TOKENS),
        size(MAX_NESTING),
        size(MAX_EXPRESSIONS),
        MAX_WORK,
        size(MAX_RENDERED_BYTES),
    ];
    assert_eq!(listed, limits);
    assert!(page.contains(&format!("Attempts in all, from 1 to {MAX_ATTEMPTS}")));
    for (start, limit) in [
        ("| `name` |", MAX_NAME_BYTES),
        ("| `version` |", MAX_VERSION_BYTES),
        ("| `task` | | The task's name", MAX_NAME_BYTES),
        ("Every step has an `id`", MAX_STEP_ID_BYTES),
    ] {
        let line = page.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("no line {start}"));
        assert!(line.contains(&format!("at most {limit} characters")), "{line}");
    }
}
