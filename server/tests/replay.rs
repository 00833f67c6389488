//! `orbit executions replay`: histories of a server and from files.

mod common;

use common::{Ended, Server, folder, orbit, run, run_with_input};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const SUM: &str = "\
name: Sum
version: 1.0.0
steps:
  - {id: pause, sleep: 1ms}
  - {id: add, compute: '${ input.a + input.b }'}
  - {id: never, task: nobody.does, queue_timeout: 20ms, retry: {max_attempts: 2, initial: 1ms}}
";

fn golden(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../core/tests/golden/0.1.0").join(file)
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}

/// Replays a file against the definition of a golden history.
fn replay(file: &Path, story: &str, more: &[&str]) -> Ended {
    let definition = golden(&format!("{story}.definition.json"));
    let arguments = ["executions", "replay", text(file), "--definition", text(&definition)];
    run(orbit(&[&arguments[..], more].concat()))
}

/// A golden history, changed, as a file.
fn changed(folder: &Path, story: &str, change: impl Fn(&str) -> String) -> PathBuf {
    let lines = std::fs::read_to_string(golden(&format!("{story}.jsonl"))).expect("a golden history");
    let file = folder.join(format!("{story}.jsonl"));
    std::fs::write(&file, change(&lines)).expect("a writable folder");
    file
}

#[tokio::test]
async fn what_a_server_recorded_replays_by_its_id_and_from_what_was_saved_of_it() {
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    let sum = folder.path().join("sum.yaml");
    std::fs::write(&sum, SUM).expect("a writable folder");
    let orbit = |arguments: &[&str]| {
        let mut command = orbit(arguments);
        command.env("ORBIT_SERVER", server.url()).current_dir(folder.path());
        command
    };
    assert_eq!(run(orbit(&["deploy", "sum.yaml"])).code, 0);
    let started = run(orbit(&["start", "Sum", "--id", "s-1", "--input", r#"{"a": 0.1, "b": 0.2}"#, "--wait"]));
    assert_eq!(started.code, 5, "{started:?}");

    let by_id = run(orbit(&["executions", "replay", "s-1"]));
    let events = run(orbit(&["executions", "history", "s-1", "-o", "jsonl"])).stdout;
    let count = events.lines().count();
    let said = format!("s-1 (failed): {count} events replay without a difference\n");
    assert_eq!((by_id.code, by_id.stdout.as_str(), by_id.stderr.as_str()), (0, said.as_str(), ""));
    let outcome = run(orbit(&["executions", "replay", "s-1", "-o", "json"]));
    let expected = json!({"execution_id": "s-1", "run": 1, "events": count, "status": "failed"});
    assert_eq!((outcome.code, outcome.json()), (0, expected));

    // As lines, as one object, and from standard input; the definition as it was written and as it was deployed.
    let page = run(orbit(&["executions", "history", "s-1", "-o", "json"])).stdout;
    let deployed = run(orbit(&["workflows", "show", "Sum", "-o", "json"])).stdout;
    for (file, saved) in [("saved.jsonl", &events), ("saved.json", &page), ("deployed.json", &deployed)] {
        std::fs::write(folder.path().join(file), saved).expect("a writable folder");
    }
    for (file, definition) in [("saved.jsonl", "sum.yaml"), ("saved.json", "deployed.json"), ("-", "./sum.yaml")] {
        let mut command = orbit(&["executions", "replay", file, "--definition", definition]);
        // No server is needed.
        command.env("ORBIT_SERVER", "http://127.0.0.1:1");
        let replayed = run_with_input(command, &events);
        assert_eq!((replayed.code, replayed.stdout.as_str()), (0, said.as_str()), "{file}: {replayed:?}");
    }

    let unknown = run(orbit(&["executions", "replay", "nobody"]));
    assert_eq!(unknown.code, 4, "{unknown:?}");
}

#[tokio::test]
async fn each_run_of_an_execution_that_continued_as_new_replays_by_itself() {
    const COUNT: &str = "\
name: Count
version: 1.0.0
steps:
  - {id: pause, sleep: 1ms}
  - {id: next, when: '${ input < 3 }', continue_as_new: '${ input + 1 }'}
";
    let folder = folder();
    let server = Server::start(&folder.path().join("orbit.db"), &[]).await;
    std::fs::write(folder.path().join("count.yaml"), COUNT).expect("a writable folder");
    let orbit = |arguments: &[&str]| {
        let mut command = orbit(arguments);
        command.env("ORBIT_SERVER", server.url()).current_dir(folder.path());
        run(command)
    };
    assert_eq!(orbit(&["deploy", "count.yaml"]).code, 0);
    let started = orbit(&["start", "Count", "--id", "c", "--input", "1", "--wait"]);
    assert_eq!(started.code, 0, "{started:?}");

    for (named, said) in [
        (&["--run", "1"][..], "c (continued, run 1): 5 events replay without a difference\n"),
        (&["--run", "2"], "c (continued, run 2): 5 events replay without a difference\n"),
        (&["--run", "3"], "c (completed, run 3): 6 events replay without a difference\n"),
        (&[], "c (completed, run 3): 6 events replay without a difference\n"),
    ] {
        let replayed = orbit(&[&["executions", "replay", "c"][..], named].concat());
        assert_eq!((replayed.code, replayed.stdout.as_str()), (0, said), "{replayed:?}");
    }
    let outcome = orbit(&["executions", "replay", "c", "--run", "2", "-o", "json"]).json();
    assert_eq!(outcome, json!({"execution_id": "c", "run": 2, "events": 5, "status": "continued"}));

    // A run that was saved replays, too, and against another definition it does not.
    let saved = orbit(&["executions", "history", "c", "--run", "2", "-o", "json"]).stdout;
    std::fs::write(folder.path().join("saved.json"), saved).expect("a writable folder");
    let replayed = orbit(&["executions", "replay", "saved.json", "--definition", "count.yaml"]);
    assert_eq!((replayed.code, replayed.stdout.contains("run 2")), (0, true), "{replayed:?}");
    let other = COUNT.replace("input + 1", "input + 2");
    std::fs::write(folder.path().join("other.yaml"), other).expect("a writable folder");
    let other = orbit(&["executions", "replay", "c", "--run", "1", "--definition", "other.yaml"]);
    assert_eq!((other.code, other.stderr.contains("was made with definition")), (1, true), "{other:?}");

    for what in ["replay", "history"] {
        let none = orbit(&["executions", what, "c", "--run", "4"]);
        assert_eq!((none.code, none.stdout.as_str()), (4, ""), "{none:?}");
        assert!(none.stderr.contains("has no run 4") && none.stderr.contains("newest is run 3"), "{none:?}");
    }
    let none = orbit(&["executions", "replay", "saevd.json"]);
    assert_eq!((none.code, none.stderr.contains("there is no file saevd.json")), (4, true), "{none:?}");
    let file = orbit(&["executions", "replay", "saved.json", "--definition", "count.yaml", "--run", "2"]);
    assert_eq!((file.code, file.stderr.contains("--run is for the id")), (2, true), "{file:?}");
}

#[test]
fn an_execution_that_is_not_over_replays_as_far_as_it_has_come() {
    let folder = folder();
    let file = changed(folder.path(), "order-of-six-tasks", |lines| {
        lines.lines().take(5).map(|line| format!("{line}\n")).collect()
    });
    let replayed = replay(&file, "order-of-six-tasks", &[]);
    let said = "order-of-six-tasks (running): 5 events replay without a difference\n";
    assert_eq!((replayed.code, replayed.stdout.as_str()), (0, said), "{replayed:?}");
}

#[test]
fn the_first_difference_is_named_with_what_was_recorded_and_what_would_be_decided_now() {
    let folder = folder();
    let changed = changed(folder.path(), "retry-with-jitter", |lines| {
        lines.replacen("\"delay_ms\":", "\"delay_ms\":1", 1).replacen("\"attempts\":5", "\"attempts\":6", 1)
    });
    let replayed = replay(&changed, "retry-with-jitter", &[]);
    assert_eq!((replayed.code, replayed.stdout.as_str()), (1, ""), "{replayed:?}");
    let lines: Vec<&str> = replayed.stderr.lines().collect();
    let first = "error: retry-with-jitter does not replay: event 6 (RetryScheduled) is not what would be decided now";
    assert_eq!(lines[0], first);
    assert!(lines[1].starts_with(r#"  recorded:    {"type":"RetryScheduled","step":"flaky","next_attempt":2,"#));
    assert!(lines[2].starts_with(r#"  decided now: {"type":"RetryScheduled","step":"flaky","next_attempt":2,"#));
    assert_ne!(lines[1].split("delay_ms").last(), lines[2].split("delay_ms").last());
    assert_eq!(lines.len(), 3);

    let told = replay(&changed, "retry-with-jitter", &["-o", "json"]);
    let outcome = told.json();
    assert_eq!(told.code, 1);
    assert_eq!((&outcome["execution_id"], &outcome["status"]), (&json!("retry-with-jitter"), &Value::Null));
    let difference = &outcome["difference"];
    assert_eq!((&difference["seq"], &difference["recorded"]["type"]), (&json!(6), &json!("RetryScheduled")));
    assert_eq!(difference["decided"].as_array().map(Vec::len), Some(1));
}

#[test]
fn where_nothing_would_be_decided_that_is_said() {
    let folder = folder();
    let early = changed(folder.path(), "sleep-skip-and-compute", |lines| {
        let began = lines.split("\"fire_at_ms\":").nth(1).and_then(|rest| rest.split('}').next()).expect("a timer");
        let earlier = (began.parse::<i64>().expect("a time") - 1).to_string();
        lines.replacen(&format!("\"at_ms\":{began}"), &format!("\"at_ms\":{earlier}"), 1)
    });
    let replayed = replay(&early, "sleep-skip-and-compute", &["--id", "x"]);
    assert_eq!(replayed.code, 1, "{replayed:?}");
    assert!(replayed.stderr.contains("event 4 (TimerFired)"), "{replayed:?}");
    assert!(replayed.stderr.contains("\n  decided now: nothing\n"), "{replayed:?}");
}

#[test]
fn a_broken_history_and_another_definition_are_differences_too() {
    let folder = folder();
    let gap = changed(folder.path(), "time-outs", |lines| {
        lines.lines().filter(|line| !line.starts_with("{\"seq\":4,")).map(|line| format!("{line}\n")).collect()
    });
    let replayed = replay(&gap, "time-outs", &[]);
    assert_eq!(replayed.code, 1, "{replayed:?}");
    assert!(replayed.stderr.contains("event 5 stands where event 4 should be"), "{replayed:?}");

    let other = replay(&golden("time-outs.jsonl"), "stale-failure", &[]);
    assert_eq!(other.code, 1, "{other:?}");
    assert!(other.stderr.contains("the history was made with definition sha256:"), "{other:?}");
    assert!(other.stderr.contains("hint: give the definition"), "{other:?}");
}

#[test]
fn what_cannot_be_replayed_says_what_is_needed() {
    let no_definition = run(orbit(&["executions", "replay", text(&golden("time-outs.jsonl"))]));
    assert_eq!(no_definition.code, 2, "{no_definition:?}");
    assert!(no_definition.stderr.contains("--definition FILE"), "{no_definition:?}");

    // Nothing in it says whose history it is.
    let story = "result-that-cannot-be-computed";
    let file = golden(&format!("{story}.jsonl"));
    let nameless = replay(&file, story, &[]);
    assert_eq!(nameless.code, 2, "{nameless:?}");
    assert!(nameless.stderr.contains("give its id with --id"), "{nameless:?}");
    assert_eq!(replay(&file, story, &["--id", story]).code, 0);

    let folder = folder();
    let unknown = changed(folder.path(), "time-outs", |lines| lines.replacen("StepScheduled", "StepInvented", 1));
    let replayed = replay(&unknown, "time-outs", &[]);
    assert_eq!(replayed.code, 2, "{replayed:?}");
    assert!(replayed.stderr.contains("time-outs.jsonl, line 3 cannot be read"), "{replayed:?}");
    assert!(replayed.stderr.contains("StepInvented"), "{replayed:?}");

    let missing = replay(Path::new("/no/such/history.jsonl"), "time-outs", &[]);
    assert_eq!(missing.code, 2, "{missing:?}");
    let history = golden("time-outs.jsonl");
    let no_document = run(orbit(&["executions", "replay", text(&history), "--definition", text(&file)]));
    assert_eq!(no_document.code, 2, "{no_document:?}");
    assert!(no_document.stderr.contains("is no valid definition"), "{no_document:?}");
}
