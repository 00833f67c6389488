//! The corpora of the fuzz targets, in the ordinary tests: every input that was worth keeping, and every one that once
//! broke something, goes through the very functions that the targets call. `scripts/fuzz` looks for more.

#[path = "../../fuzz/src/lib.rs"]
mod fuzz;

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

/// Runs each file of these folders, and names the one that fails.
fn run_all(run: fn(&[u8]), folders: &[&str]) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for folder in folders {
        let entries = fs::read_dir(root.join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
        let mut files: Vec<_> = entries.map(|entry| entry.expect("the folder can be read").path()).collect();
        files.sort();
        assert!(!files.is_empty(), "{folder} is empty");
        for file in files {
            let bytes = fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            assert!(catch_unwind(|| run(&bytes)).is_ok(), "{} fails, as said above", file.display());
        }
    }
}

#[test]
fn any_text_is_a_definition_or_is_refused_with_reasons() {
    run_all(fuzz::definition::run, &["fuzz/corpus/definition", "docs/examples", "core/tests/golden/0.1.0"]);
}

#[test]
fn any_expression_gives_a_value_or_says_why_not() {
    run_all(fuzz::expression::run, &["fuzz/corpus/expression"]);
}

#[test]
fn any_request_is_routed_or_refused_and_its_answer_can_be_read() {
    run_all(fuzz::http::run, &["fuzz/corpus/http"]);
}

#[test]
fn any_events_are_decoded_folded_and_decided_without_a_panic() {
    run_all(fuzz::history::run, &["fuzz/corpus/history", "core/tests/golden/0.1.0"]);
}
