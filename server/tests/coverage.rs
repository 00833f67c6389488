//! The pages that name tests name some that are there.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the package is in the workspace").into()
}

/// What stands between backquotes.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Why a named test does not show anything; none where it does. `path::function`, or a path whose every test counts.
fn fault(named: &str) -> Option<String> {
    let (path, function) = match named.split_once("::") {
        Some((path, function)) => (path, Some(function)),
        None => (named, None),
    };
    let file = root().join(path);
    if file.is_dir() {
        let main = file.join("main.rs");
        return (!main.exists()).then(|| format!("{named}: the folder has no tests"));
    }
    let Ok(source) = std::fs::read_to_string(&file) else { return Some(format!("{named}: there is no such file")) };
    let Some(function) = function else {
        return (!source.contains("test]")).then(|| format!("{named}: the file has no tests"));
    };
    let Some((before, _)) = source.split_once(&format!("fn {function}(")) else {
        return Some(format!("{named}: there is no such test"));
    };
    // The first line, backwards, is the function's own indentation.
    let lines = before.lines().rev().map(str::trim).skip_while(|l| l.is_empty());
    let attributes: Vec<&str> = lines.take_while(|l| !l.is_empty() && *l != "}").collect();
    let runs = attributes.iter().any(|l| l.contains("test]") || l.contains("::test(")) || source.contains("proptest!");
    let ignored = attributes.iter().any(|l| l.contains("ignore"));
    (!runs || ignored).then(|| format!("{named}: the test does not run"))
}

#[test]
fn every_promise_that_is_kept_names_tests_that_are_there() {
    let page = std::fs::read_to_string(root().join("docs/src/reference/coverage.md")).expect("there is a page");
    let (mut rows, mut faults) = (0, Vec::new());
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Promise")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [promise, state, shown_by] = cells[..] else {
            faults.push(format!("{line:?} has {} cells", cells.len()));
            continue;
        };
        rows += 1;
        let word = state.split([':', ',']).next().unwrap_or_default();
        match word {
            "kept" | "bettered" => {
                let tests = quoted(shown_by);
                if tests.is_empty() {
                    faults.push(format!("{promise}: no test is named"));
                }
                faults.extend(tests.into_iter().filter_map(fault));
            }
            "later" => {}
            "left out" if state.contains(':') => {}
            _ => faults.push(format!("{promise}: `{state}` is no state")),
        }
    }
    assert!(rows > 20, "{rows} rows");
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn every_hostile_input_names_tests_that_are_there() {
    let page = std::fs::read_to_string(root().join("docs/src/reference/hostile-input.md")).expect("there is a page");
    let (mut rows, mut faults) = (0, Vec::new());
    for line in page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| Input")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [input, answer, shown_by] = cells[..] else {
            faults.push(format!("{line:?} has {} cells", cells.len()));
            continue;
        };
        rows += 1;
        if answer.is_empty() || !shown_by.starts_with('`') {
            faults.push(format!("{input}: no answer, or no test"));
        }
        faults.extend(quoted(shown_by).into_iter().filter_map(fault));
    }
    assert!(rows > 30, "{rows} rows");
    assert!(faults.is_empty(), "{faults:#?}");
}

#[test]
fn a_test_that_is_not_there_is_a_fault() {
    assert_eq!(fault("server/tests/coverage.rs::a_test_that_is_not_there_is_a_fault"), None);
    for named in ["server/tests/coverage.rs::no_such_test", "server/tests/nowhere.rs", "docs/src", "README.md"] {
        assert!(fault(named).is_some(), "{named}");
    }
}
