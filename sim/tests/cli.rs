//! The `sim` binary, as people and CI call it.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

fn sim(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sim")).args(arguments).output().expect("it starts")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("it writes text")
}

fn code(output: &Output) -> i32 {
    output.status.code().expect("it ends by itself")
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("orbit-sim-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("a path is text").to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn an_exploration_says_how_fast_it_was_and_writes_json_and_junit() {
    let folder = Folder::new("explore");
    let (json, junit) = (folder.file("out.json"), folder.file("out.xml"));
    let output = sim(&["explore", "--seeds", "0..6", "--shard", "1/2", "--json", &json, "--junit", &junit]);
    assert_eq!(code(&output), 0, "{}", text(&output.stderr));
    let said = text(&output.stdout);
    assert!(said.contains("3 runs") && said.contains("simulated seconds and"), "{said}");
    let value: Value = serde_json::from_str(&std::fs::read_to_string(json).expect("it was written")).expect("JSON");
    assert_eq!((value["runs"].as_u64(), value["shard"].as_str()), (Some(3), Some("1/2")));
    assert!(value["simulated_seconds_per_processor_second"].as_f64() > Some(0.0));
    assert!(value["average"]["acknowledged_commits"].as_f64() > Some(10.0), "{value}");
    let xml = std::fs::read_to_string(junit).expect("it was written");
    for seed in [1, 3, 5] {
        assert!(xml.contains(&format!("name=\"seed {seed}\"")), "{xml}");
    }
}

#[test]
fn what_fails_is_kept_with_its_trace_its_scenario_and_the_line_that_reproduces_it() {
    let folder = Folder::new("artifacts");
    let dir = folder.file("kept");
    let mutant = ["--mutant", "response-before-commit"];
    let output = sim(&[&["explore", "--seeds", "0..200", "--artifacts", &dir], &mutant[..]].concat());
    assert_eq!(code(&output), 0, "to be found is what is wanted of a mistake: {}", text(&output.stderr));
    let said = text(&output.stdout);
    let seed =
        said.split("seed ").nth(1).and_then(|rest| rest.split(':').next()).expect("it names the seed").to_owned();
    assert!(said.contains(&format!("run --seed {seed} --mutant response-before-commit")), "{said}");
    let kept = |ending: &str| folder.0.join("kept").join(format!("seed-{seed}.{ending}"));
    let trace = std::fs::read_to_string(kept("jsonl")).expect("the trace is kept");
    let header: Value = serde_json::from_str(trace.lines().next().expect("a header")).expect("JSON");
    assert_eq!((header["format"].as_str(), header["mutant"].as_str()), (Some("orbit-trace/1"), Some(mutant[1])));
    assert_eq!(header["seed"].to_string(), seed);
    assert!(std::fs::read_to_string(kept("txt")).expect("a note").contains("--seed"));
    let replayed = sim(&["replay", kept("json").to_str().expect("a path is text")]);
    assert_eq!(code(&replayed), 0, "{}", text(&replayed.stderr));
    assert!(text(&replayed.stderr).contains("it fails as it says"));
}

#[test]
fn each_kind_of_end_has_its_exit_code() {
    let codes = [
        (vec!["run", "--seed", "3", "--check-determinism"], 0),
        (vec!["run", "--seed", "few"], 2),
        (vec!["run", "--seed", "3", "--set", "faults.flood=1/2"], 2),
        (vec!["explore", "--seeds", "9..3"], 2),
        (vec!["explore", "--shard", "2/2"], 2),
        (vec!["replay", "/there/is/no/such/file"], 2),
        (vec!["coverage", "--seeds", "0..2"], 6),
        (vec!["explore", "--seeds", "0..1", "--mutant", "lease-on-wall-clock"], 6),
        (vec!["mutants", "--seeds", "0..1", "--ranges", "1", "--mutant", "lease-on-wall-clock"], 6),
    ];
    for (arguments, expected) in codes {
        let output = sim(&arguments);
        assert_eq!(code(&output), expected, "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn traces_of_two_builds_are_compared_and_those_of_a_later_format_refused() {
    let folder = Folder::new("traces");
    let (trace, other, later) = (folder.file("trace.jsonl"), folder.file("other.jsonl"), folder.file("later.jsonl"));
    assert_eq!(code(&sim(&["run", "--seed", "3", "--trace", &trace])), 0);
    let text_of = std::fs::read_to_string(&trace).expect("it was written");
    std::fs::write(&other, text_of.replacen("\"build\":\"", "\"build\":\"9", 1)).expect("a file");
    assert_eq!(code(&sim(&["diff", &trace, &other])), 0, "the build alone is another");
    let (head, _) = text_of.trim_end().rsplit_once('\n').expect("many lines");
    std::fs::write(&other, head).expect("a file");
    assert_eq!(code(&sim(&["diff", &trace, &other])), 5);
    std::fs::write(&later, text_of.replacen("orbit-trace/1", "orbit-trace/2", 1)).expect("a file");
    let page = folder.file("page.html");
    for arguments in [vec!["diff", &trace, &later], vec!["show", &later, "-o", &page]] {
        let output = sim(&arguments);
        assert_eq!(code(&output), 2, "{arguments:?}");
        assert!(text(&output.stderr).contains("orbit-trace/2"), "{}", text(&output.stderr));
    }
}

#[test]
fn a_commit_is_a_seed_and_the_options_of_any_seed_are_listed() {
    let commit = "00000000000000074d23c0dd682d0f4bfa2caa5e";
    let by_commit = sim(&["options", "--seed", commit, "--set", "nodes=3"]);
    let by_number = sim(&["options", "--seed", "7", "--set", "nodes=3"]);
    assert_eq!(text(&by_commit.stdout), text(&by_number.stdout));
    for name in ["nodes ", "faults.pause ", "disk.unknown ", "cluster.servers ", "think_ms "] {
        assert!(text(&by_number.stdout).contains(name), "{name}: {}", text(&by_number.stdout));
    }
}

#[test]
fn tables_come_for_people_for_machines_and_for_the_book() {
    let one = ["mutants", "--seeds", "0..300", "--ranges", "2", "--mutant", "response-before-commit"];
    let table = sim(&one);
    assert!(text(&table.stdout).contains("response-before-commit"), "{}", text(&table.stdout));
    let json = sim(&[&one[..], &["-o", "json"]].concat());
    let value: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(value["mutants"][0]["found"].as_array().map(Vec::len), Some(2));
    assert!(value["mutants"][0]["median_seeds"].as_u64() > Some(0));
    let markdown = sim(&[&one[..], &["-o", "markdown"]].concat());
    assert!(text(&markdown.stdout).contains("| `response-before-commit` |"));
    let marks = sim(&["coverage", "--seeds", "0..20", "-o", "json"]);
    let value: Value = serde_json::from_slice(&marks.stdout).expect("JSON");
    assert!(value["marks"]["execution completed"].as_u64() > Some(0), "{value}");
}
