//! Executions: started, waited for, shown, explained and listed.

use crate::common::{orbit, run};
use crate::{Stage, error};
use serde_json::json;

#[tokio::test]
async fn an_execution_is_started_waited_for_and_shown() {
    let stage = Stage::with_workflows().await;
    let input = r#"{"a": 40, "b": 2}"#;
    let ended = stage.run(&["start", "Sum", "--id", "s-1", "--input", input, "--wait", "-o", "json"]);
    assert_eq!(ended.code, 0, "{ended:?}");
    assert_eq!((&ended.json()["status"], &ended.json()["output"]), (&json!("completed"), &json!({"sum": 42})));
    // The same start again starts nothing.
    assert!(stage.run(&["start", "Sum", "--id", "s-1", "--input", input]).stdout.starts_with("already started s-1"));
    let other = stage.run(&["start", "Sum", "--id", "s-1", "--input", r#"{"a": 1, "b": 1}"#]);
    assert_eq!(other.code, 1);
    assert!(error(&other).contains("EXECUTION_ID_CONFLICT"), "{other:?}");

    let file = stage.file("input.json", input);
    let by_file = stage.run(&["start", "Sum", "--input", &format!("@{}", file.display()), "-o", "ids"]);
    let id = by_file.stdout.trim().to_owned();
    assert_eq!(stage.run(&["executions", "wait", &id, "-o", "json"]).json()["output"], json!({"sum": 42}));
    let by_stdin = stage.run_with_input(&["start", "Sum", "--input", "-", "--wait"], input);
    assert!(by_stdin.stdout.contains("status:") && by_stdin.stdout.contains("{\"sum\":42}"), "{by_stdin:?}");
    assert_eq!(stage.run(&["executions", "show", "s-1", "-o", "jsonl"]).json()["input"], json!({"a": 40, "b": 2}));

    let refused = stage.run(&["start", "Sum", "--input", r#"{"a": 1}"#]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(error(&refused).contains("INPUT_INVALID"), "{refused:?}");
}

#[tokio::test]
async fn histories_are_shown_whole_in_part_and_followed() {
    let stage = Stage::with_workflows().await;
    stage.run(&["start", "Sum", "--id", "s-1", "--input", r#"{"a": 1, "b": 2}"#, "--wait"]);
    let whole = stage.run(&["executions", "history", "s-1", "-o", "json"]).json();
    let events = whole["events"].as_array().expect("a list");
    assert_eq!(events[0]["type"], "WorkflowCreated");
    assert_eq!(events.last().expect("there are some")["type"], "WorkflowCompleted");
    let lines = stage.run(&["executions", "history", "s-1", "-o", "jsonl", "--after", "1"]);
    assert_eq!(lines.stdout.lines().count(), events.len() - 1);
    let followed = stage.run(&["executions", "history", "s-1", "--follow"]);
    assert_eq!((followed.code, followed.stdout.lines().count()), (0, events.len() + 1), "{followed:?}");
    assert!(followed.stdout.lines().next().expect("a title").contains("EVENT"), "{followed:?}");
    // What follows the end is nothing, and following it ends too.
    let last = events.len().to_string();
    let after = stage.run(&["executions", "history", "s-1", "--follow", "--after", &last, "-o", "ids"]);
    assert_eq!((after.code, after.stdout.as_str()), (0, ""));

    stage.start_stuck("t-1");
    let follow = tokio::task::spawn_blocking({
        let url = stage.server.url();
        move || run(orbit(&["executions", "history", "t-1", "--follow", "--server", &url, "-o", "jsonl"]))
    });
    assert_eq!(stage.run(&["executions", "cancel", "t-1", "--reason", "enough"]).code, 0);
    let followed = follow.await.expect("it ends");
    assert!(followed.stdout.contains("\"reason\":\"enough\""), "{followed:?}");
    assert!(followed.stdout.lines().last().expect("events").contains("WorkflowCancelled"), "{followed:?}");
}

#[tokio::test]
async fn how_an_execution_ends_is_the_exit_code_of_a_wait() {
    let stage = Stage::with_workflows().await;
    let failed = stage.run(&["start", "Fails", "--id", "f-1", "--wait"]);
    assert_eq!(failed.code, 5, "{failed:?}");
    assert!(error(&failed).contains("f-1 ended as failed (QUEUE_TIMEOUT"), "{failed:?}");
    assert!(failed.stderr.contains("hint: `orbit executions history f-1`"), "{failed:?}");
    stage.start_stuck("t-1");
    let waited = stage.run(&["executions", "wait", "t-1", "--timeout", "0.1"]);
    assert_eq!(waited.code, 6, "{waited:?}");
    assert!(error(&waited).contains("t-1 is still running"), "{waited:?}");
    let cancelled = stage.run(&["executions", "cancel", "t-1", "-o", "json"]);
    assert_eq!((cancelled.code, &cancelled.json()["execution_id"]), (0, &json!("t-1")), "{cancelled:?}");
    assert_eq!(stage.run(&["executions", "wait", "t-1"]).code, 5);
    let again = stage.run(&["executions", "cancel", "t-1"]);
    assert_eq!(again.code, 0, "a cancel may be repeated: {again:?}");
    let late = stage.run(&["executions", "cancel", "f-1"]);
    assert_eq!(late.code, 1);
    assert!(error(&late).contains("EXECUTION_FINISHED"), "{late:?}");
}

#[tokio::test]
async fn what_an_execution_waits_for_is_shown_and_explained_and_so_is_how_it_ended() {
    let stage = Stage::with_workflows().await;
    stage.start_stuck("t-1");
    let shown = stage.run(&["executions", "show", "t-1"]).stdout;
    let line = shown.lines().find(|line| line.starts_with("waiting: ")).expect("it waits");
    assert!(line.contains("wait: no worker offers nobody.does, version 1; attempt 1 of 1 waits since "), "{shown}");
    let whole = stage.run(&["executions", "show", "t-1", "-o", "json"]).json();
    assert_eq!(
        (&whole["waiting"][0]["step_id"], &whole["waiting"][0]["reason"]),
        (&json!("wait"), &json!("no_worker"))
    );
    let why = |id: &str, form: &str| {
        let why = stage.run(&["why", id, "-o", form]);
        assert_eq!(why.code, 0, "{why:?}");
        why
    };
    let told = why("t-1", "table").stdout;
    assert!(told.starts_with("t-1 (Stuck 1.0.0) is running\nwait: no worker offers nobody.does"), "{told}");
    assert!(told.contains("\n  → start a worker that offers nobody.does, version 1"), "{told}");
    assert_eq!(why("t-1", "json").json()[0]["reason"], "no_worker");
    assert_eq!(why("t-1", "ids").stdout, "wait\n");

    stage.run(&["executions", "cancel", "t-1", "--reason", "the guest has left"]);
    let shown = stage.run(&["executions", "show", "t-1"]).stdout;
    let line = shown.lines().find(|line| line.starts_with("reason: ")).expect("a reason");
    assert!(line.ends_with(" the guest has left") && !shown.contains("waiting:"), "{shown}");
    let whole = stage.run(&["executions", "show", "t-1", "-o", "json"]).json();
    assert_eq!(whole["cancel_reason"], "the guest has left");
    assert!(why("t-1", "table").stdout.contains("it was cancelled at "), "it ended");
    assert!(why("t-1", "jsonl").stdout.contains("the guest has left"));
    stage.run(&["start", "Fails", "--id", "f-1", "--wait"]);
    let failed = why("f-1", "table").stdout;
    assert!(failed.starts_with("f-1 (Fails 1.0.0) has failed\n"), "{failed}");
    assert!(failed.contains("it failed at ") && failed.contains(" in step wait: QUEUE_TIMEOUT: "), "{failed}");
    stage.run(&["start", "Sum", "--id", "s-1", "--input", r#"{"a": 1, "b": 2}"#, "--wait"]);
    assert!(why("s-1", "table").stdout.contains("it completed at "));
    assert_eq!(stage.run(&["why", "nothing"]).code, 4);
}

#[tokio::test]
async fn executions_are_listed_by_what_they_are() {
    let stage = Stage::with_workflows().await;
    for id in ["t-1", "t-2", "t-3"] {
        stage.start_stuck(id);
    }
    stage.run(&["start", "Sum", "--id", "s-1", "--input", r#"{"a": 1, "b": 2}"#, "--wait"]);
    let ids = |more: &[&str]| {
        let listed = stage.run(&[&["executions", "list", "-o", "ids"][..], more].concat());
        assert_eq!(listed.code, 0, "{listed:?}");
        listed.stdout.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(ids(&[]), ["s-1", "t-3", "t-2", "t-1"], "newest first");
    assert_eq!(ids(&["--status", "completed"]), ["s-1"]);
    assert_eq!(ids(&["--workflow", "Stuck", "--limit", "2"]), ["t-3", "t-2"]);
    assert_eq!(ids(&["--label", "team=a", "--limit", "0"]), ["t-3", "t-2", "t-1"]);
    assert_eq!(ids(&["--label", "team=b"]), Vec::<String>::new());
    let table = stage.run(&["executions", "list"]).stdout;
    assert!(table.starts_with("EXECUTION") && table.lines().count() == 5 && table.contains("team=a"), "{table}");
    let ended = |id: &str| {
        let row = table.lines().find(|line| line.starts_with(id)).unwrap_or_else(|| panic!("{table}"));
        row.matches("Z  ").count() + usize::from(row.ends_with('Z')) > 1
    };
    assert!(table.contains("  ENDED  ") && ended("s-1") && !ended("t-1"), "{table}");
    let page = stage.run(&["executions", "list", "--limit", "1", "-o", "json"]).json();
    let cursor = page["next_cursor"].as_str().expect("more follow");
    assert_eq!(ids(&["--cursor", cursor, "--limit", "2"]), ["t-3", "t-2"]);
    let cut = stage.run(&["executions", "list", "--limit", "1"]);
    assert_eq!(cut.stderr, format!("note: more follow: --cursor {cursor}, or --limit 0 for all\n"));
    for since in ["2h", "2020-02-29", "2020-02-29T12:00:00Z", "0"] {
        assert_eq!(ids(&["--since", since]).len(), 4, "{since}");
    }
    assert_eq!(ids(&["--since", "2999-01-01"]), Vec::<String>::new());
    let refused = stage.run(&["executions", "list", "--since", "yesterday"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("write a date (2026-11-29)"), "{refused:?}");
    // A name that is none finds nothing, and is told; a status that is none is refused.
    let none = stage.run(&["executions", "list", "--workflow", "stcuk"]);
    assert_eq!((none.code, none.stdout.lines().count()), (0, 1), "{none:?}");
    assert_eq!(none.stderr, "note: no workflow is called `stcuk`; did you mean `Stuck`?\n");
    let refused = stage.run(&["executions", "list", "--status", "runing"]);
    assert!(error(&refused).contains("did you mean `running`?"), "{refused:?}");
    let refused = stage.run(&["start", "stuck"]);
    assert_eq!(refused.code, 4, "{refused:?}");
    assert!(error(&refused).contains("there is no workflow stuck; did you mean `Stuck`?"), "{refused:?}");
    let refused = stage.run(&["executions", "list", "--status", "sleeping"]);
    assert_eq!(refused.code, 1);
    assert!(error(&refused).contains("running"), "it says which there are: {refused:?}");
}
