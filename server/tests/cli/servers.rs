//! What is asked of servers, databases and workers, and what is said where there is none.

use crate::common::{self, ORDER_PROCESSING, Server, folder, free_addr, orbit, run};
use crate::{SUM, Stage, error, file_name};
use serde_json::json;

#[tokio::test]
async fn what_does_not_exist_is_not_found() {
    let stage = Stage::with_workflows().await;
    for (arguments, code) in [
        (&["start", "Nothing"][..], "UNKNOWN_WORKFLOW"),
        (&["start", "Sum", "--version", "9.9.9", "--input", r#"{"a": 1, "b": 2}"#], "UNKNOWN_WORKFLOW"),
        (&["executions", "show", "x"], "UNKNOWN_EXECUTION"),
        (&["executions", "history", "x"], "UNKNOWN_EXECUTION"),
        (&["executions", "wait", "x"], "UNKNOWN_EXECUTION"),
        (&["executions", "cancel", "x"], "UNKNOWN_EXECUTION"),
        (&["workflows", "show", "x"], "UNKNOWN_WORKFLOW"),
    ] {
        let ended = stage.run(arguments);
        assert_eq!(ended.code, 4, "{arguments:?}: {ended:?}");
        assert!(error(&ended).contains(code) && ended.stderr.contains("hint: "), "{arguments:?}: {ended:?}");
    }
    assert_eq!(run(orbit(&["status", "--db", "/no/such/orbit.db"])).code, 4);
}

#[tokio::test]
async fn credentials_are_asked_for() {
    let stage = Stage::new(&["--token", "secret"]).await;
    for token in [&[][..], &["--token", "wrong"]] {
        let refused = stage.run(&[&["executions", "list"], token].concat());
        assert_eq!(refused.code, 3, "{refused:?}");
        assert!(refused.stderr.contains("hint: give the server's token with --token or ORBIT_TOKEN"), "{refused:?}");
    }
    assert_eq!(stage.run(&["executions", "list", "--token", "secret"]).code, 0);
    assert_eq!(stage.run(&["status"]).code, 0, "health and readiness need none");
    assert!(!stage.server.process.log().contains("secret"), "the token stays out of the log");
}

#[test]
fn a_server_that_is_not_there_is_unreachable() {
    let url = format!("http://{},http://{}", free_addr(), free_addr());
    for arguments in [&["executions", "list"][..], &["status"], &["start", "W"], &["executions", "wait", "x"]] {
        let ended = run(orbit(&[arguments, &["--server", &url]].concat()));
        assert_eq!(ended.code, 7, "{ended:?}");
        let both = url.split(',').all(|one| error(&ended).contains(one));
        assert!(both && ended.stderr.contains("hint: is `orbit server` running there?"), "{ended:?}");
    }
}

#[tokio::test]
async fn the_status_of_a_server_and_of_its_file_agree() {
    let stage = Stage::with_workflows().await;
    stage.start_stuck("t-1");
    stage.run(&["start", "Sum", "--input", r#"{"a": 1, "b": 2}"#, "--wait"]);
    let server = stage.run(&["status", "-o", "json"]).json();
    assert_eq!((&server["ready"], &server["active_executions"]), (&json!(true), &json!(1)), "{server}");
    assert_eq!(server["role"], "single");
    let db = stage.folder.path().join("orbit.db");
    let file = run(orbit(&["status", "-o", "json", "--db", file_name(&db)])).json();
    assert_eq!(file["executions"], json!({"running": 1, "completed": 1}));
    assert_eq!((&file["definitions"], &file["journal_mode"]), (&json!(3), &json!("wal")));
    assert_eq!(file["holder"]["pid"], json!(stage.server.process.id()));
    let people = run(orbit(&["status", "--db", file_name(&db)])).stdout;
    assert!(people.contains("1 running, 1 completed") && people.contains("journal mode:"), "{people}");
    let people = stage.run(&["status"]).stdout;
    assert!(people.contains("ready:") && people.contains("yes"), "{people}");
    let foreign = stage.file("foreign.db", "this is a text and no database at all");
    let foreign = run(orbit(&["status", "--db", file_name(&foreign)]));
    assert_eq!(foreign.code, 1);
    assert!(error(&foreign).contains("is not an Orbit database"), "{foreign:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_listed_with_what_they_run() {
    let stage = Stage::with_workflows().await;
    assert_eq!(stage.run(&["workers", "list", "-o", "json"]).json(), json!([]));
    let worker = orbit_sdk::Worker::builder().servers(stage.server.url()).worker_id("lister");
    let worker = worker.task("nobody.does", "1", |_, input| async { Ok(input) }).build().unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = tokio::spawn(worker.run(async move { drop(stopped.await) }));
    // It runs what was stuck, so it has registered by then.
    stage.start_stuck("t-1");
    let waited = stage.run(&["executions", "wait", "t-1", "--timeout", "120"]);
    assert_eq!(waited.code, 0, "{waited:?}");
    let listed = stage.run(&["workers", "list", "-o", "json"]).json();
    assert_eq!((&listed[0]["worker_id"], &listed[0]["runtime"]), (&json!("lister"), &json!("rust")));
    assert_eq!(listed[0]["sessions"], json!(1), "{listed}");
    assert!(stage.run(&["workers", "list"]).stdout.contains("nobody.does@1"));
    drop(stop);
    worker.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_throw_away_server_deploys_what_it_is_given_and_leaves_nothing_behind() {
    let scratch = folder();
    let definition = scratch.path().join("sum.yaml");
    std::fs::write(&definition, SUM).unwrap();
    let temporary = scratch.path().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let mut command = orbit(&["dev", "--addr", "127.0.0.1:0", file_name(&definition)]);
    command.env("TMPDIR", &temporary);
    let mut server = Server::spawn_command(command, &scratch.path().join("log"));
    server.ready().await;
    let sum = server.client().with_patience(common::PATIENCE);
    let begun = std::time::Instant::now();
    while sum.workflow("Sum", None).await.is_err() {
        assert!(begun.elapsed() < common::PATIENCE, "{}", server.process.log());
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    server.process.signal(rustix::process::Signal::TERM);
    assert!(server.process.ended(common::PATIENCE).success(), "{}", server.process.log());
    assert_eq!(std::fs::read_dir(&temporary).unwrap().count(), 0);

    std::fs::write(&definition, ORDER_PROCESSING.replace("steps:", "stepz:")).unwrap();
    let refused = run(orbit(&["dev", "--addr", "127.0.0.1:0", file_name(&definition)]));
    assert_eq!(refused.code, 1, "{refused:?}");
}

#[tokio::test]
async fn a_reader_that_has_had_enough_is_no_error() {
    let stage = Stage::with_workflows().await;
    for id in ["t-1", "t-2"] {
        stage.start_stuck(id);
    }
    let mut command = orbit(&["executions", "list", "--server", &stage.server.url()]);
    let mut child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    let log = stage.folder.path().join("none");
    let stderr = child.stderr.take().unwrap();
    let mut process = common::Process::adopt(child, log);
    assert!(process.ended(common::PATIENCE).success());
    assert_eq!(std::io::read_to_string(stderr).unwrap(), "");
}

#[tokio::test]
async fn ids_are_what_commands_take() {
    let stage = Stage::new(&["--node-id", "here"]).await;
    assert_eq!(stage.run(&["status", "-o", "ids"]).stdout, "single\n", "it has no name among others");
    assert_eq!(stage.run(&["status", "-o", "json"]).json()["node_id"], json!(null));
    for version in ["1.0.0", "1.1.0"] {
        let file = stage.file("sum.yaml", &SUM.replace("1.0.0", version));
        assert_eq!(stage.run(&["deploy", file_name(&file)]).code, 0);
    }
    assert_eq!(stage.run(&["workflows", "list", "-o", "ids"]).stdout, "Sum\n");
    assert_eq!(stage.run(&["workflows", "list"]).stdout.lines().count(), 3);
    let refused = stage.run(&["start", "Sum", "--version", "2"]);
    assert!(error(&refused).contains("has no version 2; the newest is 1.1.0"), "{refused:?}");
}
