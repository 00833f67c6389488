//! What a server, and a command line, may be told, and by what.

use crate::common::{Server, folder, orbit, run};
use crate::{SUM, Stage, error, file_name};
use serde_json::{Value, json};

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
    for (arguments, says) in [
        (&["executions", "list", "--limit", "-1"][..], "write a whole number"),
        (&["executions", "list", "--limit", "many"], "write a whole number"),
        (&["executions", "history", "e", "--run", "-2"], "write a whole number"),
        (&["--server", "http://127.0.0.1:1", "executions", "list"], "stand behind the command that they belong to"),
    ] {
        let ended = run(orbit(arguments));
        assert_eq!((ended.code, ended.stderr.contains(says)), (2, true), "{arguments:?}: {ended:?}");
    }
    let https = run(orbit(&["start", "W", "--server", "https://example.com"]));
    assert!(error(&https).contains("https is not supported yet"), "{https:?}");
}

#[test]
fn an_empty_token_is_refused_with_what_to_do_wherever_it_comes_from() {
    let folder = folder();
    let file = folder.path().join("orbit.toml");
    std::fs::write(&file, "token = ''\n").expect("a writable folder");
    for arguments in [
        &["executions", "list", "--token", ""][..],
        &["server", "--token", ""],
        &["dev", "--token", ""],
        &["config", "show", "--config", file_name(&file)],
    ] {
        let refused = run(orbit(arguments));
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(refused.stderr.contains("leave --token and ORBIT_TOKEN out, or give one"), "{refused:?}");
    }
    let mut by_variable = orbit(&["workers", "list"]);
    by_variable.env("ORBIT_TOKEN", "");
    let refused = run(by_variable);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("an empty text is no token"), "{refused:?}");
}

#[test]
fn a_cluster_wants_postgresql_and_options_of_later_releases_are_refused_with_their_reason() {
    let cluster = run(orbit(&["server", "--cluster", "--db", "orbit.db"]));
    assert_eq!(
        (cluster.code, cluster.stderr.as_str()),
        (
            2,
            "error: --cluster requires a PostgreSQL database (--db postgres://...): the servers share it for leader \
             election and history\n"
        )
    );
    let shared = run(orbit(&["server", "--cluster", "--db", "postgres://localhost/orbit", "--cluster-mode", "shared"]));
    assert_eq!(shared.code, 2);
    assert!(error(&shared).contains("--cluster-mode shared is not in this version"), "{shared:?}");
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
    let warnings: Vec<&str> = log.lines().filter(|line| line.contains("is no variable of Orbit")).collect();
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
    // Of this alone: under load a server may warn of something else.
    let stage = Stage::new(&[]).await;
    assert!(!stage.server.process.log().contains("without a token"), "{}", stage.server.process.log());
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
        (&["--leader-validity", "5"], "requires --cluster"),
        (&["--node-timeout", "5"], "not in this version"),
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
    assert_eq!(printed.stdout, include_str!("../../../docs/openapi.json"));
}

#[test]
fn options_of_the_other_election_and_leases_out_of_bounds_are_refused_with_what_would_be_right() {
    let postgres = ["config", "show", "--db", "postgres://localhost/orbit", "--cluster"];
    for (arguments, why, hint) in [
        (&["--lease-ttl", "5"][..], "--lease-ttl goes with --election lease", "say --election lease"),
        (
            &["--election", "lease", "--leader-validity", "3"],
            "--leader-validity goes with --election lock",
            "leave it out",
        ),
        (
            &["--election", "lease", "--election-session-timeout", "5"],
            "--election-session-timeout goes with --election lock",
            "leave it out",
        ),
        (&["--election", "lease", "--lease-ttl", "0.5"], "--lease-ttl is 0.5 s; give from 1 to 600 s", ""),
        (&["--election", "lease", "--lease-ttl", "601"], "--lease-ttl is 601 s; give from 1 to 600 s", ""),
    ] {
        let refused = run(orbit(&[&postgres, arguments].concat()));
        assert_eq!(refused.code, 2, "{refused:?}");
        assert!(error(&refused).contains(why) && refused.stderr.contains(hint), "{refused:?}");
    }
    let shown = run(orbit(&[&postgres[..], &["--election", "lease", "-o", "json"]].concat())).json();
    let settings = shown["settings"].as_array().expect("settings");
    let value = |name: &str| settings.iter().find(|one| one["name"] == name).expect("it is shown")["value"].clone();
    assert_eq!((value("election"), value("lease_ttl")), (json!("lease"), json!(15.0)));
    assert_eq!(value("leader_validity"), json!(null));
}
