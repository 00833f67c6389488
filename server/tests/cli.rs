//! Every command, every exit code, and what is said of bad input.

mod common;

use common::{Ended, ORDER_PROCESSING, Server, folder, free_addr, orbit, run, run_with_input};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A workflow without a worker: it ends by itself.
const SUM: &str = "\
name: Sum
version: 1.0.0
description: Adds two numbers
input: {type: object, required: [a, b], properties: {a: {type: integer}, b: {type: integer}}}
steps:
  - {id: add, compute: '${ input.a + input.b }'}
result: {sum: '${ steps.add.output }'}
";

/// One that waits for a worker that never comes.
const STUCK: &str = "name: Stuck\nversion: 1.0.0\nsteps: [{id: wait, task: nobody.does}]\n";

/// One that fails.
const FAILS: &str = "\
name: Fails
version: 1.0.0
steps: [{id: wait, task: nobody.does, queue_timeout: 50ms}]
";

/// A server with these three workflows, and the files that they came from.
struct Stage {
    server: Server,
    folder: TempDir,
}

impl Stage {
    async fn new(more: &[&str]) -> Stage {
        let folder = folder();
        let server = Server::start(&folder.path().join("orbit.db"), more).await;
        Stage { server, folder }
    }

    async fn with_workflows() -> Stage {
        let stage = Stage::new(&[]).await;
        let mut arguments = vec!["deploy".to_owned()];
        for (name, text) in [("sum.yaml", SUM), ("stuck.yaml", STUCK), ("fails.yaml", FAILS)] {
            arguments.push(stage.file(name, text).display().to_string());
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let deployed = stage.run(&arguments);
        assert_eq!((deployed.code, deployed.stderr.as_str()), (0, ""), "{deployed:?}");
        stage
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).expect("a writable folder");
        path
    }

    /// Runs a command against this server.
    fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = orbit(arguments);
        command.env("ORBIT_SERVER", self.server.url());
        run(command)
    }

    fn run_with_input(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = orbit(arguments);
        command.env("ORBIT_SERVER", self.server.url());
        run_with_input(command, input)
    }

    fn start_stuck(&self, id: &str) {
        let started = self.run(&["start", "Stuck", "--id", id, "--label", "team=a"]);
        assert_eq!(started.code, 0, "{started:?}");
    }
}

/// The first line of stderr.
fn error(ended: &Ended) -> &str {
    let line = ended.stderr.lines().find(|line| line.starts_with("error: "));
    line.unwrap_or_else(|| panic!("no error is told: {ended:?}"))
}

fn file_name(path: &Path) -> &str {
    path.to_str().expect("a path of plain characters")
}

#[test]
fn the_version_is_shown_with_its_commit_where_there_is_one() {
    let version = run(orbit(&["--version"]));
    assert_eq!(version.code, 0);
    assert!(version.stdout.starts_with(concat!("orbit ", env!("CARGO_PKG_VERSION"))), "{version:?}");
}

#[test]
fn a_wrong_command_line_is_a_usage_error() {
    for arguments in [
        &["frobnicate"][..],
        &[],
        &["start"],
        &["executions", "list", "-o", "xml"],
        &["server", "--session-timeout", "soon"],
        &["start", "W", "--label", "no-value"],
        &["start", "W", "--server", "https://example.com"],
        &["start", "W", "--server", "example.com:port"],
        &["start", "W", "--input", "{"],
        &["start", "W", "--input", "@/no/such/file"],
        &["deploy", "/no/such/file.yaml"],
        &["server", "--addr", "localhost"],
        &["server", "--log-level", "loud"],
    ] {
        let ended = run(orbit(arguments));
        assert_eq!(ended.code, 2, "{arguments:?}: {ended:?}");
        assert!(!ended.stderr.is_empty(), "{arguments:?}");
    }
    let https = run(orbit(&["start", "W", "--server", "https://example.com"]));
    assert!(error(&https).contains("https is not supported yet"), "{https:?}");
}

#[test]
fn options_of_later_releases_are_refused_with_their_reason() {
    let cluster = run(orbit(&["server", "--cluster", "--db", "orbit.db"]));
    assert_eq!(
        (cluster.code, cluster.stderr.as_str()),
        (
            2,
            "error: --cluster requires a PostgreSQL database (--db postgres://...): the servers share it for leader \
             election and history\n"
        )
    );
    let postgres = run(orbit(&["server", "--cluster", "--db", "postgres://localhost/orbit"]));
    assert_eq!(postgres.code, 2);
    assert!(error(&postgres).contains("not in this version"), "{postgres:?}");
    let mut by_variable = orbit(&["server"]);
    by_variable.env("ORBIT_CLUSTER", "true");
    assert!(error(&run(by_variable)).contains("--cluster requires a PostgreSQL database"));
}

#[tokio::test]
async fn options_come_from_the_command_line_then_the_environment_then_the_file() {
    let folder = folder();
    let config = folder.path().join("orbit.toml");
    std::fs::write(&config, "node_id = 'of-the-file'\nsession_timeout = 7\nmax_payload_bytes = 100\n").unwrap();
    let db = folder.path().join("orbit.db");
    let mut command = orbit(&["server", "--addr", "127.0.0.1:0", "--max-payload-bytes", "200"]);
    command.arg("--config").arg(&config).arg("--db").arg(&db).env("ORBIT_NODE_ID", "of-the-environment");
    let server = Server::spawn_command(command, &folder.path().join("log"));
    server.ready().await;
    let status = run(orbit(&["status", "-o", "json", "--db", file_name(&db)])).json();
    assert_eq!(status["holder"]["node_id"], "of-the-environment");
    let client = server.client();
    client.deploy(SUM, orbit_sdk::Format::Yaml).await.unwrap();
    let options = orbit_sdk::StartOptions { input: json!({"a": "x".repeat(300)}), ..Default::default() };
    let refused = client.start("Sum", options).await.unwrap_err();
    assert_eq!(refused.code(), Some("PAYLOAD_TOO_LARGE"));
    assert!(refused.to_string().contains("200"), "{refused}");

    std::fs::write(&config, "session-timeout = 7\n").unwrap();
    let mut command = orbit(&["server"]);
    command.arg("--config").arg(&config);
    let refused = run(command);
    assert_eq!(refused.code, 2);
    assert!(error(&refused).contains("there is no option `session-timeout`"), "{refused:?}");
    assert!(refused.stderr.contains("hint: did you mean `session_timeout`?"), "{refused:?}");
}

#[tokio::test]
async fn a_server_is_reached_by_the_name_of_its_host_and_tells_of_misspelt_variables() {
    let folder = folder();
    let mut command = orbit(&["server", "--addr", "localhost:0", "--db"]);
    command.arg(folder.path().join("orbit.db")).env("ORBIT_SESION_TIMEOUT", "5").env("ORBIT_OTHER_TOOL", "x");
    let server = Server::spawn_command(command, &folder.path().join("log"));
    server.ready().await;
    assert!(server.addr.ip().is_loopback(), "{}", server.addr);
    let log = server.process.log();
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("WARN")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    assert!(
        warnings[0].contains("ORBIT_SESION_TIMEOUT") && warnings[0].contains("did you mean ORBIT_SESSION_TIMEOUT?")
    );
    for (addr, right) in [("localhost", "write localhost:7233"), ("127.0.0.1", "write 127.0.0.1:7233")] {
        let refused = run(orbit(&["server", "--addr", addr]));
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains(right), "{refused:?}");
    }
}

#[tokio::test]
async fn a_wildcard_address_without_a_token_warns() {
    let stage = Stage::new(&[]).await;
    assert!(!stage.server.process.log().contains("WARN"), "{}", stage.server.process.log());
    let open = folder();
    let server = Server::start_on(&open.path().join("orbit.db"), "0.0.0.0:0".parse().unwrap(), &[]).await;
    let log = server.process.log();
    assert!(log.lines().any(|line| line.contains("WARN") && line.contains("without a token")), "{log}");
    // What is served everywhere is opened here by the loopback address.
    assert!(log.contains(&format!("page=http://127.0.0.1:{}/ui/", server.addr.port())), "{log}");
}

#[tokio::test]
async fn the_log_is_in_the_form_that_was_asked_for() {
    let stage = Stage::new(&["--log-format", "json", "--node-id", "n"]).await;
    let log = stage.server.process.log();
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON alone")).collect();
    let listening = lines.iter().find(|line| line["message"] == "ORBIT runtime listening").expect("it listens");
    assert_eq!(listening["target"], "orbit_runtime::server");
    assert_eq!((&listening["tls"], &listening["ui"]), (&json!(false), &json!(true)));
    let stage = Stage::new(&[]).await;
    let log = stage.server.process.log();
    let text = format!(
        "INFO orbit_runtime::server: ORBIT runtime listening addr={0} tls=false ui=true page=http://{0}/ui/",
        stage.server.addr
    );
    assert!(log.contains(&text), "{log}");
}

#[tokio::test]
async fn a_definition_is_deployed_once_and_never_changed() {
    let stage = Stage::new(&[]).await;
    let file = stage.file("sum.yaml", SUM);
    let deploy = |more: &[&str]| stage.run(&[&["deploy", file_name(&file)][..], more].concat());
    let created = deploy(&["-o", "json"]).json();
    assert_eq!((&created[0]["name"], &created[0]["result"]), (&json!("Sum"), &json!("created")));
    assert_eq!(deploy(&["-o", "jsonl"]).json()["result"], "unchanged");
    assert_eq!(deploy(&["-o", "ids"]).stdout, "Sum\n");
    assert!(deploy(&[]).stdout.contains("unchanged"));
    stage.file("sum.yaml", &SUM.replace("input.a + input.b", "input.a - input.b"));
    let conflict = deploy(&[]);
    assert_eq!(conflict.code, 1);
    assert!(error(&conflict).contains("DEFINITION_CONFLICT") && conflict.stderr.contains("hint: "), "{conflict:?}");
    // Standard input, too.
    let from_input = stage.run_with_input(&["deploy", "-"], STUCK);
    assert_eq!(from_input.code, 0, "{from_input:?}");
}

#[tokio::test]
async fn a_bad_definition_is_refused_with_the_line_of_each_problem_and_does_not_keep_others_back() {
    let stage = Stage::new(&[]).await;
    let bad = stage.file("bad.yaml", &SUM.replace("steps:", "stepz:"));
    let good = stage.file("good.yaml", SUM);
    let checked = run(orbit(&["check", file_name(&bad), file_name(&good)]));
    assert_eq!(checked.code, 1, "{checked:?}");
    assert!(checked.stdout.contains("Sum 1.0.0 is valid"), "{checked:?}");
    assert!(checked.stderr.contains("bad.yaml:5") && checked.stderr.contains("steps"), "{checked:?}");
    assert_eq!(run(orbit(&["check", file_name(&good)])).code, 0);

    let deployed = stage.run(&["deploy", file_name(&bad), file_name(&good), "-o", "ids"]);
    assert_eq!((deployed.code, deployed.stdout.as_str()), (1, "Sum\n"), "{deployed:?}");
    assert!(error(&deployed).contains("bad.yaml") && deployed.stderr.contains("bad.yaml:5"), "{deployed:?}");
    let no_yaml = stage.file("no.yaml", "a: [");
    assert_eq!(run(orbit(&["check", file_name(&no_yaml)])).code, 1);
    let refused = stage.run(&["deploy", file_name(&no_yaml)]);
    assert_eq!(refused.code, 1);
    assert!(refused.stderr.contains("no.yaml:1:4") && refused.stderr.contains("   ^\n"), "{refused:?}");
}

#[tokio::test]
async fn a_slip_in_a_schema_is_warned_of_by_check_and_deploy_and_refuses_nothing() {
    let stage = Stage::new(&[]).await;
    let file = stage.file("slip.yaml", &SUM.replace("required:", "requird:"));
    let warned = |ended: &Ended| {
        assert_eq!(ended.code, 0, "{ended:?}");
        let warning = "warning: `requird` is no keyword of JSON Schema: it checks nothing";
        assert!(ended.stderr.starts_with(warning), "{ended:?}");
        assert!(
            ended.stderr.contains("slip.yaml:4:23") && ended.stderr.contains("did you mean `required`?"),
            "{ended:?}"
        );
    };
    let checked = run(orbit(&["check", file_name(&file)]));
    warned(&checked);
    assert!(checked.stdout.contains("Sum 1.0.0 is valid"), "{checked:?}");
    let deployed = stage.run(&["deploy", file_name(&file), "-o", "json"]);
    warned(&deployed);
    let warning = &deployed.json()[0]["warnings"][0];
    assert_eq!(
        (&warning["path"], &warning["line"], &warning["column"]),
        (&json!("/input/requird"), &json!(4), &json!(23))
    );
    // Strictly, it is refused, and nothing is deployed.
    assert!(checked.stderr.ends_with("slip.yaml: 1 warning, allowed without --strict\n"), "{checked:?}");
    let strict = run(orbit(&["check", "--strict", file_name(&file)]));
    assert_eq!((strict.code, strict.stdout.as_str()), (1, ""), "{strict:?}");
    assert!(strict.stderr.contains("slip.yaml: 1 warning, refused with --strict\n"), "{strict:?}");
    let other = stage.file("other.yaml", &SUM.replace("required:", "requird:").replace("Sum", "Other"));
    let refused = stage.run(&["deploy", "--strict", file_name(&other)]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(error(&refused).contains("DEFINITION_WARNINGS"), "{refused:?}");
    assert!(refused.stderr.contains("other.yaml:4:23") && refused.stderr.contains("^^^^^^^"), "{refused:?}");
    assert_eq!(stage.run(&["workflows", "list", "-o", "ids"]).stdout.trim(), "Sum");
    assert_eq!(stage.run(&["deploy", "--strict", file_name(&stage.file("other.yaml", SUM))]).code, 1, "a conflict");
    let right = stage.file("other.yaml", &SUM.replace("Sum", "Other"));
    assert_eq!(stage.run(&["deploy", "--strict", file_name(&right)]).code, 0);
    let wrong =
        stage.file("wrong.yaml", &SUM.replace("{type: integer}", "{type: strnig}").replace("input.a +", "inptu.a +"));
    let refused = stage.run(&["deploy", file_name(&wrong)]);
    for place in ["wrong.yaml:4:64", "wrong.yaml:4:83", "wrong.yaml:6:28"] {
        assert!(refused.stderr.contains(place), "{place}: {refused:?}");
    }
}

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

#[tokio::test]
async fn workflows_are_listed_and_shown() {
    let stage = Stage::with_workflows().await;
    let second = stage.file("second.yaml", &SUM.replace("version: 1.0.0", "version: 1.1.0"));
    stage.run(&["deploy", file_name(&second)]);
    let listed = stage.run(&["workflows", "list", "-o", "json"]).json();
    let of_sum: Vec<(&Value, &Value)> = listed
        .as_array()
        .expect("a list")
        .iter()
        .filter(|one| one["name"] == "Sum")
        .map(|one| (&one["version"], &one["latest"]))
        .collect();
    assert_eq!(of_sum.len(), 2);
    assert!(of_sum.contains(&(&json!("1.1.0"), &json!(true))), "{of_sum:?}");
    assert!(of_sum.contains(&(&json!("1.0.0"), &json!(false))), "{of_sum:?}");
    assert!(stage.run(&["workflows", "list"]).stdout.contains("Adds two numbers"));
    assert_eq!(stage.run(&["workflows", "show", "Sum", "-o", "json"]).json()["version"], "1.1.0");
    let old = stage.run(&["workflows", "show", "Sum", "--version", "1.0.0"]);
    assert!(old.stdout.contains("1.0.0") && old.stdout.contains("input.a + input.b"), "{old:?}");
}

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
    for token in ["", "wrong"] {
        let refused = stage.run(&["executions", "list", "--token", token]);
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
    let waited = stage.run(&["executions", "wait", "t-1", "--timeout", "20"]);
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

#[test]
fn each_setting_is_shown_with_where_it_comes_from_and_the_token_is_not() {
    let folder = folder();
    let file = folder.path().join("orbit.toml");
    std::fs::write(&file, "session_timeout = 12\nbody_limit = 1000\nnode_id = 'of-the-file'\n").expect("writable");
    let mut command = orbit(&["config", "show", "-o", "json", "--config", file_name(&file), "--body-limit", "2000"]);
    command.env("ORBIT_NODE_ID", "of-the-environment").env("ORBIT_TOKEN", "a-secret");
    let shown = run(command);
    assert_eq!((shown.code, shown.stderr.as_str()), (0, ""));
    assert!(!shown.stdout.contains("a-secret"), "{shown:?}");
    let all = shown.json()["settings"].clone();
    let setting = |name: &str| {
        let mut all = all.as_array().expect("a list").iter();
        all.find(|setting| setting["name"] == name).unwrap_or_else(|| panic!("{name} is shown")).clone()
    };
    for (name, value, source, from) in [
        ("config", json!(file_name(&file)), "command line", json!(null)),
        ("body_limit", json!(2000), "command line", json!(null)),
        ("node_id", json!("of-the-environment"), "environment", json!("ORBIT_NODE_ID")),
        ("token", json!("(hidden)"), "environment", json!("ORBIT_TOKEN")),
        ("session_timeout", json!(12.0), "file", json!(file_name(&file))),
        ("heartbeat_interval", json!(2.0), "default", json!(null)),
        ("addr", json!("127.0.0.1:7233"), "default", json!(null)),
    ] {
        let setting = setting(name);
        let expected = (&value, &json!(source), &from);
        assert_eq!((&setting["value"], &setting["source"], &setting["from"]), expected, "{name}");
    }
    let table = run(orbit(&["config", "show"])).stdout;
    let token = table.lines().find(|line| line.starts_with("token ")).expect("a line of it");
    assert_eq!(token.split_whitespace().collect::<Vec<_>>(), ["token", "(none)", "default"]);
}

#[test]
fn settings_that_a_server_would_refuse_are_refused_when_they_are_shown() {
    for (arguments, why) in [
        (&["--session-timeout", "0.1"][..], "at least 0.5 s"),
        (&["--log-level", "loud"], "--log-level"),
        (&["--node-timeout", "5"], "requires --cluster"),
        (&["--config", "/no/such/file.toml"], "cannot be read"),
    ] {
        let refused = run(orbit(&[&["config", "show"], arguments].concat()));
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(error(&refused).contains(why), "{refused:?}");
    }
}

#[test]
fn each_shell_gets_its_completions_without_the_options_that_only_are_refused() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let script = run(orbit(&["completions", shell]));
        assert_eq!(script.code, 0, "{script:?}");
        for word in ["executions", "history", "session-timeout", "completions"] {
            assert!(script.stdout.contains(word), "{shell} completes {word}");
        }
        assert!(!script.stdout.contains("grpc-addr"), "{shell}");
    }
    assert_eq!(run(orbit(&["completions", "cmd"])).code, 2);
}

#[test]
fn bash_completes_a_verb() {
    let folder = folder();
    let script = folder.path().join("orbit.bash");
    std::fs::write(&script, run(orbit(&["completions", "bash"])).stdout).expect("a writable folder");
    let typed = "source \"$0\"; COMP_WORDS=(orbit executions hi); COMP_CWORD=2; _orbit orbit hi executions; \
                 echo \"${COMPREPLY[@]}\"";
    let mut bash = std::process::Command::new("bash");
    bash.args(["--norc", "-c", typed, file_name(&script)]);
    assert_eq!(run(bash).stdout.trim(), "history");
}

#[test]
fn the_description_of_the_api_is_printed_as_it_is_served() {
    let printed = run(orbit(&["openapi"]));
    assert_eq!(printed.code, 0);
    assert_eq!(printed.stdout, include_str!("../../docs/openapi.json"));
}

#[tokio::test]
async fn ids_are_what_commands_take() {
    let stage = Stage::new(&["--node-id", "here"]).await;
    assert_eq!(stage.run(&["status", "-o", "ids"]).stdout, "here\n");
    assert_eq!(stage.run(&["status", "-o", "json"]).json()["node_id"], "here");
    for version in ["1.0.0", "1.1.0"] {
        let file = stage.file("sum.yaml", &SUM.replace("1.0.0", version));
        assert_eq!(stage.run(&["deploy", file_name(&file)]).code, 0);
    }
    assert_eq!(stage.run(&["workflows", "list", "-o", "ids"]).stdout, "Sum\n");
    assert_eq!(stage.run(&["workflows", "list"]).stdout.lines().count(), 3);
    let refused = stage.run(&["start", "Sum", "--version", "2"]);
    assert!(error(&refused).contains("has no version 2; the newest is 1.1.0"), "{refused:?}");
}
