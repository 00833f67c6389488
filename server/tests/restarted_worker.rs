//! What an operator is told while a worker that was killed, and started again under its id, still has a task; and what
//! becomes of that task when the server is started again.

mod common;

use common::raw::{get, post};
use common::{Ended, Server, folder, orbit, run, wait_for};
use serde_json::{Value, json};
use std::time::Duration;

const WORKFLOW: &str = "name: Slow\nversion: 1.0.0\nsteps: [{id: work, task: slow.work}]\n";

fn command(server: &Server, arguments: &[&str]) -> Ended {
    let mut command = orbit(arguments);
    command.env("ORBIT_SERVER", server.url());
    let ended = run(command);
    assert_eq!(ended.code, 0, "{ended:?}");
    ended
}

fn register(server: &Server) -> String {
    let contract = json!({"task_name": "slow.work"});
    let body = json!({"worker_id": "w-1", "runtime": "test", "contracts": [contract]}).to_string();
    post(server, "/v1/workers/register", body).json()["session_id"].as_str().expect("a session").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_that_has_the_task_is_named_with_its_silence_and_when_the_task_is_offered_again() {
    let folder = folder();
    // Long enough for all of this on a machine that is busy with much else.
    let server = Server::start(&folder.path().join("orbit.db"), &["--session-timeout", "300"]).await;
    server.client().deploy(WORKFLOW, orbit_sdk::Format::Yaml).await.expect("it is right");
    command(&server, &["start", "Slow", "--id", "s-1"]);
    let killed = register(&server);
    let poll = json!({"session_id": killed, "max_tasks": 1, "wait_ms": 60_000}).to_string();
    assert_eq!(post(&server, "/v1/workers/poll", poll).json()["tasks"].as_array().map(Vec::len), Some(1));
    // Nothing says yet that its worker is gone.
    let told = command(&server, &["why", "s-1"]).stdout;
    let names = |told: &str| told.contains(&format!(", session {killed}, last heard from ")) && told.contains(" s ago");
    assert!(names(&told) && told.contains("if that worker is gone, the task is offered again at "), "{told}");

    let again = register(&server);
    let told = command(&server, &["why", "s-1"]).stdout;
    assert!(names(&told), "{told}");
    assert!(told.contains("; w-1 has registered again since, at "), "{told}");
    assert!(told.contains(": if it was restarted, the task is offered again at "), "{told}");
    let shown = command(&server, &["executions", "show", "s-1"]).stdout;
    assert!(names(&shown) && shown.contains("w-1 has registered again since"), "{shown}");
    let waiting = command(&server, &["executions", "show", "s-1", "-o", "json"]).json()["waiting"][0].clone();
    let offered = waiting["offered_again_ms"].as_i64().expect("a time");
    // Counted from when the session was last heard from, which was a little before the task was its.
    let lasts = offered - waiting["since_ms"].as_i64().expect("a time");
    assert!((200_000..=400_000).contains(&lasts), "{waiting}");

    let table = command(&server, &["workers", "list"]).stdout;
    let row = |session: &str| table.lines().find(|line| line.contains(session)).unwrap_or_else(|| panic!("{table}"));
    let holding = |session: &str| row(session).split_whitespace().nth(2).map(str::to_owned);
    assert_eq!((holding(&killed).as_deref(), holding(&again).as_deref()), (Some("1"), Some("0")), "{table}");
    let listed: Value = command(&server, &["workers", "list", "-o", "json"]).json();
    assert_eq!((&listed[0]["sessions"], &listed[0]["open_sessions"][1]["session_id"]), (&json!(2), &json!(again)));
    let page = get(&server, "/ui/workers").text;
    assert!(page.contains(&killed) && page.contains(&again), "{page}");
    let page = get(&server, "/ui/executions/s-1").text;
    assert!(names(&page) && page.contains("→ wait until then"), "{page}");

    // One that leaves is told with the time when it left.
    for session in [&killed, &again] {
        post(&server, "/v1/workers/unregister", json!({"session_id": session}).to_string());
    }
    let gone = command(&server, &["workers", "list"]).stdout;
    assert_eq!((gone.lines().count(), gone.matches(" gone ").count()), (2, 1), "{gone}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_worker_has_when_a_server_that_is_to_hold_starts_again_waits_until_it_is_recovered() {
    let folder = folder();
    let db = folder.path().join("orbit.db");
    let options = ["--session-timeout", "300", "--recovery", "hold"];
    let server = Server::start(&db, &options).await;
    server.client().deploy(WORKFLOW, orbit_sdk::Format::Yaml).await.expect("it is right");
    command(&server, &["start", "Slow", "--id", "s-1"]);
    let session = register(&server);
    let poll = |session: &str| json!({"session_id": session, "max_tasks": 1, "wait_ms": 60_000}).to_string();
    let polled = post(&server, "/v1/workers/poll", poll(&session)).json();
    let token = polled["tasks"][0]["token"].as_str().expect("a token").to_owned();
    command(&server, &["start", "Slow", "--id", "s-2"]);
    server.process.kill();

    let server = Server::start(&db, &options).await;
    let status = |id: &str| command(&server, &["executions", "show", id, "-o", "json"]).json()["status"].clone();
    wait_for("the hold", Duration::from_secs(60), || (status("s-1") == "held").then_some(()));
    assert_eq!(command(&server, &["executions", "list", "--status", "held", "-o", "ids"]).stdout, "s-1\n");
    assert_eq!(status("s-2"), "running");
    let why = command(&server, &["why", "s-1"]).stdout;
    assert!(why.starts_with("s-1 (Slow 1.0.0) is held\nit is held: attempts were out when server "), "{why}");
    assert!(why.contains("`orbit executions recover s-1`") && why.contains("\nwork: attempt 1 of 1 is with"), "{why}");
    let told = command(&server, &["status"]).stdout;
    assert!(told.contains("2, 1 of them held"), "{told}");
    let mut other = orbit(&["executions", "recover", "s-2"]);
    other.env("ORBIT_SERVER", server.url());
    let other = run(other);
    assert_eq!(other.code, 1, "{other:?}");
    assert!(other.stderr.contains("NOT_HELD") && other.stderr.contains("it is running"), "{other:?}");

    // What the worker has done counts, and nothing of it is handed out meanwhile.
    let session = register(&server);
    let polled = post(&server, "/v1/workers/poll", poll(&session)).json();
    assert_eq!(polled["tasks"][0]["execution_id"], "s-2", "{polled}");
    let done = json!({"session_id": session, "token": token, "output": 7}).to_string();
    assert_eq!(post(&server, "/v1/tasks/complete", done).json()["outcome"], "accepted");
    assert_eq!(status("s-1"), "held");
    assert_eq!(command(&server, &["executions", "recover", "--all", "-o", "ids"]).stdout, "s-1\n");
    let ended = command(&server, &["executions", "wait", "s-1", "-o", "json"]).json();
    assert_eq!(ended["status"], "completed", "{ended}");
    assert_eq!(command(&server, &["executions", "recover", "--all", "-o", "ids"]).stdout, "");
}
