//! The servers of a cluster as their operator sees them: who is there, whose a name is, and a lead that is handed over.

mod common;

use common::raw;
use common::{Ended, PATIENCE, Server, aside, folder, orbit, run, wait_for};
use orbit_sdk::{Format, StartOptions, Status, json};
use orbit_support::{Database, Postgres};
use serde_json::Value;
use std::time::Duration;
use tempfile::TempDir;

const WAITS: &str = "name: Waits\nversion: 1.0.0\nsignals: {go: {}}\nsteps: [{id: a, await: go}]\nresult: done\n";
/// As long as a busy machine may need for what takes seconds.
const LONG: Duration = Duration::from_secs(60);

struct Cluster {
    database: Database,
    folder: TempDir,
}

impl Cluster {
    async fn new() -> Cluster {
        let database = aside(|| Postgres::shared().fresh()).await;
        Cluster { database, folder: folder() }
    }

    fn server(&self, name: &str, more: &[&str]) -> Server {
        let arguments: Vec<&str> = ["--cluster", "--node-id", name].iter().chain(more).copied().collect();
        let any = "127.0.0.1:0".parse().expect("an address");
        Server::spawn_on(&self.database.url(), self.folder.path(), any, &arguments)
    }

    async fn pair(&self) -> (Server, Server) {
        let a = self.server("a", &[]);
        a.ready().await;
        let b = self.server("b", &[]);
        wait_for("standby", LONG, || b.process.log().contains("following the leader").then_some(()));
        (a, b)
    }

    /// A command about the database, not about a server.
    async fn on_database(&self, arguments: &[&str]) -> Ended {
        let url = self.database.url();
        command(&[arguments, &["--db", url.as_str()]].concat()).await
    }
}

async fn command(arguments: &[&str]) -> Ended {
    let command = orbit(arguments);
    aside(|| run(command)).await
}

/// The servers as one of them shows them, once that is as wanted.
async fn nodes_until(server: &Server, what: &str, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    wait_for(what, LONG, || {
        let nodes = raw::get(server, "/v1/nodes").json()["nodes"].as_array().cloned().expect("a list");
        wanted(&nodes).then_some(nodes)
    })
}

fn live(nodes: &[Value]) -> Vec<(&str, &str)> {
    let live = nodes.iter().filter(|node| node["live"] == true);
    live.map(|node| (node["node_id"].as_str().expect("a text"), node["role"].as_str().expect("a text"))).collect()
}

fn health(server: &Server) -> Value {
    raw::get(server, "/v1/health").json()
}

#[tokio::test]
async fn the_servers_are_listed_with_who_leads_by_the_database_and_by_each_of_them() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair().await;
    let both = [("a", "leader"), ("b", "standby")];
    let nodes = nodes_until(&b, "both servers", |nodes| live(nodes) == both).await;
    for (node, server) in nodes.iter().zip([&a, &b]) {
        assert_eq!((&node["addr"], &node["pid"]), (&json!(server.url()), &json!(server.process.id())), "{node}");
        assert_eq!((&node["term"], &node["version"]), (&json!(1), &json!(env!("CARGO_PKG_VERSION"))), "{node}");
        assert!(node["heartbeat_age_ms"].as_u64().expect("a number") < 5_000, "{node}");
        // Both clocks are this host's.
        assert!(node["clock_offset_ms"].as_i64().expect("a number").abs() < 5_000, "{node}");
    }
    assert_eq!(nodes[0]["config_digest"], nodes[1]["config_digest"]);

    let servers = format!("{},{}", b.url(), a.url());
    let by_server = command(&["nodes", "-o", "json", "--server", &servers]).await;
    let by_database = cluster.on_database(&["nodes", "-o", "json"]).await;
    for listed in [&by_server, &by_database] {
        assert_eq!(live(listed.json().as_array().expect("a list")), both, "{listed:?}");
        assert_eq!((listed.code, listed.stderr.as_str()), (0, ""), "{listed:?}");
    }
    assert_eq!(cluster.on_database(&["nodes", "-o", "ids"]).await.stdout, "a\nb\n");
    assert_eq!(cluster.on_database(&["nodes", "-o", "jsonl"]).await.stdout.lines().count(), 2);

    let status = cluster.on_database(&["status", "-o", "json"]).await.json();
    assert_eq!(status["election_lock"]["application_name"], json!("orbit-cluster:a"), "{status}");
    assert_eq!(live(status["nodes"].as_array().expect("a list")), both);
    let people = cluster.on_database(&["status"]).await.stdout;
    assert!(people.contains("held by `orbit-cluster:a` from"), "{people}");
    assert!(people.contains("a (leader), b (standby)"), "{people}");
    // Of several servers, the one that serves is shown, whichever is named first.
    let status = command(&["status", "-o", "json", "--server", &servers]).await;
    assert_eq!((status.code, &status.json()["role"], &status.json()["queued_tasks"]), (0, &json!("leader"), &json!(0)));

    let c = cluster.server("c", &["--session-timeout", "31"]);
    nodes_until(&a, "three servers", |nodes| live(nodes).len() == 3).await;
    let odd = cluster.on_database(&["nodes"]).await;
    assert_eq!(odd.code, 0, "{odd:?}");
    assert!(odd.stderr.contains("are configured differently") && odd.stderr.contains("a, b ("), "{odd:?}");
    drop(c);

    for (server, leads) in [(&a, "1"), (&b, "0")] {
        let metrics = raw::get(server, "/v1/metrics").text;
        assert!(metrics.lines().any(|line| line == format!("orbit_leader {leads}")), "{metrics}");
    }
}

#[tokio::test]
async fn a_server_whose_name_another_one_has_and_uses_is_refused() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair().await;
    for (name, first) in [("a", &a), ("b", &b)] {
        nodes_until(&a, "both servers", |nodes| live(nodes).len() == 2).await;
        let mut second = cluster.server(name, &[]);
        assert_eq!(second.process.ended(LONG).code(), Some(1));
        let log = second.process.log();
        let says = format!("the node id `{name}` is another server's, which lives: process {}", first.process.id());
        assert!(log.contains(&says) && log.contains("give each server of a cluster a --node-id of its own"), "{log}");
    }
    assert_eq!((&health(&a)["role"], &health(&a)["term"]), (&json!("leader"), &json!(1)));
    assert_eq!(health(&b)["role"], json!("standby"));
}

#[tokio::test]
async fn a_server_that_was_killed_has_its_name_again_and_one_that_stopped_has_left() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair().await;
    nodes_until(&a, "both servers", |nodes| live(nodes).len() == 2).await;
    b.process.kill();
    let mut b = cluster.server("b", &[]);
    let pid = json!(b.process.id());
    nodes_until(&a, "the new server", |nodes| nodes[1]["pid"] == pid && nodes[1]["live"] == true).await;
    assert!(b.process.is_running());
    // The leader, too: it serves under its name again, and does not wait for that.
    a.process.kill();
    let mut a = cluster.server("a", &[]);
    let pid = json!(a.process.id());
    nodes_until(&a, "the new server", |nodes| nodes[0]["pid"] == pid && nodes[0]["live"] == true).await;
    a.process.signal(rustix::process::Signal::TERM);
    assert!(a.process.ended(LONG).success());
    let nodes = nodes_until(&b, "the end of one", |nodes| live(nodes).len() == 1).await;
    assert_eq!((&nodes[0]["node_id"], &nodes[0]["heartbeat_age_ms"]), (&json!("a"), &Value::Null));
    let people = cluster.on_database(&["nodes"]).await.stdout;
    assert!(people.lines().any(|line| line.starts_with("a ") && line.contains(" left ")), "{people}");
}

#[tokio::test]
async fn a_leader_that_is_asked_to_hands_the_lead_over_with_what_was_running() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair().await;
    a.client().deploy(WAITS, Format::Yaml).await.expect("deployed");
    let options = StartOptions { execution_id: Some("w1".into()), ..StartOptions::default() };
    a.client().start("Waits", options).await.expect("started");

    // By a server that stands by alone: it names the leader.
    let handed = command(&["cluster", "step-down", "-o", "json", "--server", &b.url()]).await;
    assert_eq!(handed.code, 0, "{handed:?}");
    let handed = handed.json();
    assert_eq!((&handed["node_id"], &handed["term"]), (&json!("a"), &json!(1)));
    assert_eq!(handed["leader"], json!({"node_id": "b", "addr": b.url()}));
    b.ready().await;
    assert_eq!((&health(&a)["role"], &health(&b)["term"]), (&json!("standby"), &json!(2)));
    for line in ["cluster: handing the lead over node_id=a term=1", "cluster: handed the lead over; standing by"] {
        assert!(a.process.log().contains(line), "{line}: {}", a.process.log());
    }
    assert!(!a.process.log().contains("lost leadership"), "{}", a.process.log());

    // The same request again ends no other lead.
    let again = raw::post(&b, "/v1/cluster/step-down", r#"{"term": 1}"#);
    assert_eq!((again.status, &again.json()["leader"]["node_id"]), (200, &json!("b")), "{again:?}");
    assert_eq!((&health(&b)["role"], &health(&b)["term"]), (&json!("leader"), &json!(2)));
    // And back.
    let people = command(&["cluster", "step-down", "--server", &b.url()]).await;
    assert_eq!(people.code, 0, "{people:?}");
    let says = format!("b has handed over the lead of term 2; a leads now at {}\n", a.url());
    assert_eq!(people.stdout, says);
    a.ready().await;
    let client = a.client().with_patience(LONG);
    client.signal("w1", "go", json!(null), None).await.expect("signalled");
    let ended = client.wait("w1", PATIENCE).await.expect("it is shown");
    assert_eq!(ended.status(), &Status::Completed);
}

#[tokio::test]
async fn a_leader_that_steps_down_where_nobody_else_is_says_so_and_leads_again() {
    let cluster = Cluster::new().await;
    let a = cluster.server("a", &[]);
    a.ready().await;
    let alone = command(&["cluster", "step-down", "--server", &a.url()]).await;
    assert_eq!(alone.code, 1, "{alone:?}");
    assert!(alone.stderr.contains("nobody else was there to lead: a stands for election again"), "{alone:?}");
    a.ready().await;
    assert_eq!((&health(&a)["role"], &health(&a)["term"]), (&json!("leader"), &json!(2)));
}

#[tokio::test]
async fn a_server_without_a_cluster_shows_itself_and_has_nobody_to_hand_over_to() {
    let folder = folder();
    let alone = Server::start(&folder.path().join("orbit.db"), &["--node-id", "here"]).await;
    let nodes = command(&["nodes", "-o", "json", "--server", &alone.url()]).await;
    assert_eq!(live(nodes.json().as_array().expect("a list")), [("here", "single")]);
    let refused = command(&["cluster", "step-down", "--server", &alone.url()]).await;
    assert!(refused.code == 1 && refused.stderr.contains("is alone on its database"), "{refused:?}");
    assert_eq!(raw::post(&alone, "/v1/cluster/step-down", "").error(), (409, "NOT_IN_CLUSTER".into()));
    let file = folder.path().join("orbit.db");
    let refused = command(&["nodes", "--db", file.to_str().expect("a plain path")]).await;
    assert_eq!(refused.code, 2, "{refused:?}");
}

#[tokio::test]
async fn a_server_that_serves_a_wildcard_is_warned_that_nobody_will_find_it() {
    let cluster = Cluster::new().await;
    let arguments = ["--cluster", "--node-id", "a", "--token", "t"];
    let any = "0.0.0.0:0".parse().expect("an address");
    let server = Server::spawn_on(&cluster.database.url(), cluster.folder.path(), any, &arguments);
    let log = server.process.log();
    assert!(log.contains("set --advertise-addr to the URL that clients reach this server at"), "{log}");
}
