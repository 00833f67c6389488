//! Several servers on one PostgreSQL, real processes: one leads, the others stand by and take over.

mod common;

use common::raw::{self, Answer};
use common::{PATIENCE, Server, aside, folder, orbit, run, wait_for};
use orbit_sdk::{Client, Execution, Format, StartOptions, Status, Worker, json};
use orbit_support::{Database, Postgres};
use rustix::process::Signal;
use serde_json::Value;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Waits for a signal, so that it is running for as long as the test wants.
const WAITS: &str = "name: Waits\nversion: 1.0.0\nsignals: {go: {}}\nsteps: [{id: a, await: go}]\nresult: done\n";

struct Cluster {
    database: Database,
    folder: TempDir,
}

impl Cluster {
    async fn new() -> Cluster {
        let database = aside(|| Postgres::shared().fresh()).await;
        Cluster { database, folder: folder() }
    }

    /// A server of it; which of them leads, its readiness says. It is patient: on a machine that is busy with much else no
    /// leader steps down that a test does not mean to.
    fn server(&self, name: &str, more: &[&str]) -> Server {
        let patient = ["--leader-validity", "15", "--election-session-timeout", "20"];
        self.usual(name, &[&patient[..], more].concat())
    }

    /// A server with the usual times: one that stands still is replaced after five seconds.
    fn usual(&self, name: &str, more: &[&str]) -> Server {
        let arguments: Vec<&str> = ["--cluster", "--node-id", name].iter().chain(more).copied().collect();
        let any = "127.0.0.1:0".parse().expect("an address");
        Server::spawn_on(&self.database.url(), self.folder.path(), any, &arguments)
    }

    /// A leader `a`, and a standby `b` that follows it.
    async fn pair(&self) -> (Server, Server) {
        followed(self.server("a", &[]), || self.server("b", &[])).await
    }

    /// The same with the usual times.
    async fn usual_pair(&self) -> (Server, Server) {
        followed(self.usual("a", &[]), || self.usual("b", &[])).await
    }
}

/// A server that leads, and then one that follows it.
async fn followed(leader: Server, standby: impl FnOnce() -> Server) -> (Server, Server) {
    leader.ready().await;
    let standby = standby();
    wait_for("standby", PATIENCE, || standby.process.log().contains("following the leader").then_some(()));
    (leader, standby)
}

/// The term that a server knows.
fn term(server: &Server) -> u64 {
    health(server)["term"].as_u64().expect("a term")
}

async fn started(client: &Client, id: &str) -> Execution {
    let options = StartOptions { execution_id: Some(id.into()), ..StartOptions::default() };
    client.start("Waits", options).await.expect("started");
    client.execution(id).await.expect("it is there")
}

/// What a server says of itself.
fn health(server: &Server) -> Value {
    raw::get(server, "/v1/health").json()
}

fn start(server: &Server, id: &str) -> Answer {
    raw::post(server, "/v1/executions", json!({"workflow": "Waits", "execution_id": id}).to_string())
}

#[tokio::test]
async fn a_standby_reads_from_the_database_and_names_the_leader_for_the_rest() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair().await;
    a.client().deploy(WAITS, Format::Yaml).await.expect("deployed");
    started(&a.client(), "w1").await;

    let (of_a, of_b) = (health(&a), health(&b));
    assert_eq!((&of_a["role"], &of_b["role"]), (&json!("leader"), &json!("standby")));
    assert_eq!((&of_a["node_id"], &of_b["node_id"]), (&json!("a"), &json!("b")));
    let leader = json!({"node_id": "a", "addr": a.url()});
    assert_eq!((&of_a["leader"], &of_b["leader"]), (&leader, &leader));
    assert_eq!((&of_a["term"], &of_b["term"]), (&json!(1), &json!(1)));
    let ready = raw::get(&b, "/v1/ready");
    assert_eq!((ready.status, &ready.json()["ready"], &ready.json()["role"]), (503, &json!(false), &json!("standby")));

    for path in ["/v1/executions", "/v1/executions/w1", "/v1/executions/w1/history", "/v1/workflows", "/v1/workers"] {
        assert_eq!(raw::get(&b, path).status, 200, "{path}");
    }
    for (path, body) in [
        ("/v1/executions", r#"{"workflow":"Waits"}"#),
        ("/v1/executions", "no JSON"),
        ("/v1/executions/nobody/cancel", "{}"),
        ("/v1/workers/poll", "{}"),
        ("/v1/nowhere", ""),
    ] {
        let refused = raw::post(&b, path, body);
        assert_eq!(refused.error(), (503, "NOT_LEADER".into()), "{path}");
        let error = &refused.json()["error"];
        assert_eq!(error["message"], format!("this server is a standby; the leader is `a` at {}", a.url()));
        assert_eq!(
            (&error["details"]["leader_node"], &error["details"]["leader_addr"]),
            (&json!("a"), &json!(a.url()))
        );
        assert_eq!(refused.header("x-orbit-leader"), Some(a.url().as_str()), "{path}");
        assert_eq!(refused.header("retry-after"), Some("1"), "{path}");
    }
    // A wait on the standby ends with the execution, which ends on the leader.
    let waits = b.client();
    let wait = tokio::spawn(async move { waits.wait("w1", PATIENCE).await });
    a.client().signal("w1", "go", json!(null), None).await.expect("signalled");
    assert_eq!(wait.await.expect("no panic").expect("it is shown").status(), &Status::Completed);
}

#[tokio::test]
async fn a_standby_names_the_leader_to_those_who_bring_no_credentials() {
    let cluster = Cluster::new().await;
    let leader = cluster.server("a", &["--token", "secret"]);
    let (a, b) = followed(leader, || cluster.server("b", &["--token", "secret"])).await;
    assert_eq!(start(&a, "e").error(), (401, "UNAUTHORIZED".into()));
    assert_eq!(start(&b, "e").error(), (503, "NOT_LEADER".into()));
    // What only reads, the standby serves itself.
    assert_eq!(raw::get(&b, "/v1/executions").status, 401);
    assert_eq!(raw::get(&b, "/v1/ready").status, 503);
}

#[tokio::test]
async fn a_standby_leads_soon_after_the_leader_was_killed_and_goes_on_with_what_was_running() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair().await;
    a.client().deploy(WAITS, Format::Yaml).await.expect("deployed");
    started(&a.client(), "w1").await;
    let begun = Instant::now();
    a.process.kill();
    b.ready().await;
    println!("the standby led {:?} after the kill", begun.elapsed());
    let health = health(&b);
    assert_eq!((&health["role"], &health["term"]), (&json!("leader"), &json!(2)));
    let log = b.process.log();
    for line in [
        "cluster mode: standby until elected node_id=b",
        "cluster: standby; following the leader term=1 leader=\"a\"",
        "cluster: elected leader; recovering executions from history node_id=b term=2",
        "cluster: leader is serving node_id=b term=2 active_executions=1",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    b.client().signal("w1", "go", json!(null), None).await.expect("signalled");
    let ended = b.client().wait("w1", PATIENCE).await.expect("it is shown");
    assert_eq!(ended.status(), &Status::Completed);
}

#[tokio::test]
async fn a_leader_that_stood_still_writes_nothing_after_another_leads_and_stands_by_when_it_goes_on() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.usual_pair().await;
    a.client().deploy(WAITS, Format::Yaml).await.expect("deployed");
    a.process.signal(Signal::STOP);
    b.ready().await;
    started(&b.client().with_patience(PATIENCE), "w1").await;
    a.process.signal(Signal::CONT);
    let refused = start(&a, "w2");
    assert_eq!(refused.error(), (503, "NOT_LEADER".into()), "{}", a.process.log());
    wait_for("end of the lead", PATIENCE, || {
        let log = a.process.log();
        log.contains("cluster: lost leadership; stepped down to standby node_id=a reason=").then_some(())
    });
    assert!(b.client().execution("w2").await.is_err());
    let before = term(&b);
    assert!(before > 1);
    // The old one is a standby like any other: it takes over in its turn.
    b.process.kill();
    a.ready().await;
    assert_eq!(health(&a)["role"], json!("leader"));
    assert!(term(&a) > before);
    assert_eq!(a.client().execution("w1").await.expect("it is there").status(), &Status::Running);
}

#[tokio::test]
async fn a_leader_whose_election_session_is_ended_gives_the_lead_up_to_who_waits_in_line() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair().await;
    let database = cluster.database.clone();
    let ended = aside(move || {
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
                   WHERE application_name = 'orbit-cluster:a' AND datname = current_database()";
        database.connect().query(sql, &[]).expect("they are ended").len()
    })
    .await;
    assert_eq!(ended, 1, "the session is found by its name");
    b.ready().await;
    wait_for("end of the lead", PATIENCE, || {
        a.process.log().contains("lost leadership; stepped down to standby").then_some(())
    });
    assert_eq!(health(&a)["role"], json!("standby"));
}

#[tokio::test]
async fn a_clean_stop_of_the_leader_hands_over_and_one_of_a_standby_changes_nothing() {
    let cluster = Cluster::new().await;
    let (mut a, b) = cluster.pair().await;
    let mut c = cluster.server("c", &[]);
    wait_for("standby", PATIENCE, || c.process.log().contains("following the leader").then_some(()));
    c.process.signal(Signal::TERM);
    assert!(c.process.ended(PATIENCE).success());
    // It stood in line for the lock, and does not wait for its place.
    assert!(!c.process.log().contains("leaving its connection behind"), "{}", c.process.log());
    assert_eq!(health(&a)["role"], json!("leader"));
    a.process.signal(Signal::TERM);
    assert!(a.process.ended(PATIENCE).success());
    b.ready().await;
    assert_eq!(health(&b)["term"], json!(2));
}

#[tokio::test]
async fn a_leader_that_is_to_exit_when_it_leads_no_more_ends_with_status_1() {
    let cluster = Cluster::new().await;
    let leader = cluster.usual("a", &["--on-lost-lease", "exit"]);
    let (mut a, b) = followed(leader, || cluster.usual("b", &[])).await;
    a.process.signal(Signal::STOP);
    b.ready().await;
    a.process.signal(Signal::CONT);
    assert_eq!(a.process.ended(PATIENCE).code(), Some(1));
}

#[tokio::test]
async fn servers_of_different_modes_are_refused_on_one_database() {
    let cluster = Cluster::new().await;
    let a = cluster.server("a", &[]);
    a.ready().await;
    let url = cluster.database.url();
    let mut alone = orbit(&["server", "--addr", "127.0.0.1:0", "--db"]);
    alone.arg(&url);
    let alone = aside(|| run(alone)).await;
    assert_eq!(alone.code, 1, "{alone:?}");
    let lives = mode_set(&url, &["single"]);
    let lives = aside(|| run(lives)).await;
    assert_eq!((lives.code, lives.stdout.as_str()), (1, ""), "{lives:?}");
    assert!(lives.stderr.contains("a server lives: `a` on host") && lives.stderr.contains("stop every"), "{lives:?}");
    a.process.kill();
    let mut alone = orbit(&["server", "--addr", "127.0.0.1:0", "--db"]);
    alone.arg(&url);
    let alone = aside(|| run(alone)).await;
    assert!(alone.stderr.contains("servers in standby mode") && alone.stderr.contains("--cluster"), "{alone:?}");
    // It says what would change that, and so it does once nobody has said for a while that it lives.
    assert!(alone.stderr.contains("orbit cluster mode set single"), "{alone:?}");
    let to = url.clone();
    let set = move || Some(run(mode_set(&to, &["single"]))).filter(|set| set.code == 0);
    let changed = aside(|| wait_for("silence", PATIENCE, set)).await;
    assert!(changed.stdout.contains("one that is alone from now on; they were a standby cluster"), "{changed:?}");
    let again = mode_set(&url, &["single", "-o", "json"]);
    let again = aside(|| run(again)).await.json();
    assert_eq!((&again["changed"], &again["mode"]), (&json!(false), &json!("single")), "{again}");
    let on_sqlite = mode_set(&cluster.folder.path().join("orbit.db").display().to_string(), &["standby"]);
    let on_sqlite = aside(|| run(on_sqlite)).await;
    assert_eq!(on_sqlite.code, 2, "{on_sqlite:?}");
    // Servers of the mode of before are refused now, and one that is alone is not.
    let mut b = orbit(&["server", "--cluster", "--node-id", "b", "--addr", "127.0.0.1:0", "--db"]);
    b.arg(&url);
    let b = aside(|| run(b)).await;
    assert_eq!(b.code, 1, "{b:?}");
    assert!(b.stderr.contains("orbit cluster mode set standby --election lock"), "{b:?}");
    let any = "127.0.0.1:0".parse().expect("an address");
    Server::spawn_on(&url, cluster.folder.path(), any, &[]).ready().await;
}

fn mode_set(url: &str, arguments: &[&str]) -> std::process::Command {
    let mut set = orbit(&["cluster", "mode", "set"]);
    set.args(arguments).args(["--db", url]);
    set
}

#[tokio::test]
async fn the_command_line_and_clients_that_know_a_standby_alone_reach_the_leader() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair().await;
    let file = cluster.folder.path().join("waits.yaml");
    std::fs::write(&file, WAITS).expect("a file can be written");
    let file = file.to_str().expect("a plain path").to_owned();
    let url = b.url();
    for arguments in [
        vec!["deploy", file.as_str(), "--server", url.as_str()],
        vec!["start", "Waits", "--id", "w1", "--server", url.as_str()],
        vec!["executions", "signal", "w1", "go", "--server", url.as_str()],
    ] {
        let command = orbit(&arguments);
        let ended = aside(|| run(command)).await;
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
    }
    let ended = b.client().wait("w1", PATIENCE).await.expect("it is shown");
    assert_eq!(ended.status(), &Status::Completed);
    assert_eq!(health(&a)["term"], json!(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_leaves_a_leader_that_stands_still_long_before_its_poll_would_have_ended() {
    const TASK: &str = "name: Task\nversion: 1.0.0\nsteps:\n  - {id: a, task: t.a}\n";
    let cluster = Cluster::new().await;
    let heartbeats = ["--session-timeout", "6"];
    let a = cluster.server("a", &heartbeats);
    a.ready().await;
    let b = cluster.server("b", &heartbeats);
    wait_for("standby", PATIENCE, || b.process.log().contains("following the leader").then_some(()));
    let both = format!("{},{}", a.url(), b.url());
    a.client().deploy(TASK, Format::Yaml).await.expect("deployed");
    let worker = Worker::builder().servers(&both).worker_id("both").poll_wait(Duration::from_secs(60));
    let worker = worker.task("t.a", "1", |_, _| async { Ok(json!(1)) }).build().expect("a worker");
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(worker.run(async move { drop(stopped.await) }));
    wait_for("registered worker", PATIENCE, || a.process.log().contains("worker registered").then_some(()));
    a.process.signal(Signal::STOP);
    b.ready().await;
    let options = StartOptions { execution_id: Some("o1".into()), ..StartOptions::default() };
    b.client().start("Task", options).await.expect("started");
    // Its poll has a minute and more still.
    let ended = b.client().wait("o1", Duration::from_secs(45)).await.expect("it is shown");
    assert_eq!(ended.status(), &Status::Completed, "{}", b.process.log());
    a.process.signal(Signal::CONT);
    drop(stop);
    let _ = working.await.expect("no panic");
}

#[tokio::test]
async fn a_worker_that_knows_both_servers_finishes_its_orders_over_a_kill() {
    const TASKS: &str = "name: Tasks\nversion: 1.0.0\nsteps:\n  - {id: a, task: t.a}\n  - {id: b, task: t.b}\n";
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair().await;
    let both = format!("{},{}", a.url(), b.url());
    let client = Client::new(&both, None).expect("two addresses").with_patience(PATIENCE);
    client.deploy(TASKS, Format::Yaml).await.expect("deployed");
    let worker = Worker::builder()
        .servers(&both)
        .worker_id("both")
        .task("t.a", "1", |_, _| async {
            // So that the kill finds some of them under way.
            tokio::time::sleep(Duration::from_millis(30)).await;
            Ok(json!(1))
        })
        .task("t.b", "1", |_, _| async { Ok(json!(2)) });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(worker.build().expect("a worker").run(async move { drop(stopped.await) }));
    let mut ids = Vec::new();
    let mut leader = Some(a);
    for n in 0..40 {
        if n == 20 {
            leader.take().expect("it leads").process.kill();
        }
        let id = format!("o{n}");
        let options = StartOptions { execution_id: Some(id.clone()), ..StartOptions::default() };
        client.start("Tasks", options).await.expect("started, here or there");
        ids.push(id);
    }
    for id in &ids {
        let ended = client.wait(id, PATIENCE).await.expect("it is shown");
        assert_eq!(ended.status(), &Status::Completed, "{id}");
    }
    assert_eq!(health(&b)["term"], json!(2));
    drop(stop);
    let _ = working.await.expect("no panic");
}
