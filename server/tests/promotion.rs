//! Promotions of a real streaming replica under real servers: what the database loses, and what each party sees.

mod common;

use common::raw::{self, Answer};
use common::{Server, folder, orbit, run, wait_for};
use orbit_sdk::json;
use orbit_support::{Database, Postgres, Replica};
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;
use tempfile::TempDir;

/// No step takes longer, however busy the machine is.
const LONG: Duration = Duration::from_secs(120);
const WAITS: &str = r#"{"name":"Waits","version":"1.0.0","signals":{"go":{}},"steps":[{"id":"a","await":"go"}]}"#;
const TASKS: &str = r#"{"name":"Tasks","version":"1.0.0","steps":[{"id":"a","task":"t"}]}"#;

struct Bed {
    primary: Postgres,
    replica: Replica,
    database: Database,
    folder: TempDir,
}

impl Bed {
    fn new() -> Bed {
        let primary = Postgres::start(&[]);
        let replica = Replica::of(&primary);
        let database = primary.fresh();
        Bed { primary, replica, database, folder: folder() }
    }

    /// An address of both hosts: the one that takes connections first is the one that it leads to.
    fn address(&self) -> String {
        let (first, second) = (self.primary.port(), self.replica.server.port());
        format!("postgres://postgres@127.0.0.1:{first},127.0.0.1:{second}/{}", self.database.name)
    }

    fn server(&self, more: &[&str]) -> Server {
        let any = "127.0.0.1:0".parse().expect("an address");
        Server::spawn_on(&self.address(), self.folder.path(), any, more)
    }

    fn of_cluster(&self, name: &str) -> Server {
        let usual = ["--cluster", "--node-id", name, "--check-interval", "0.2", "--leader-validity", "1"];
        self.server(&[&usual[..], &["--election-session-timeout", "2"]].concat())
    }

    /// The database, as the promoted replica has it.
    fn after(&self) -> ::postgres::Client {
        self.replica.server.database(&self.database.name).connect()
    }
}

/// Asks one server after the other, again and again, until one of them gives a definite answer.
fn definite(servers: &[&Server], target: &str, body: &Value) -> Answer {
    wait_for(&format!("definite answer to {target} {body}"), LONG, || {
        servers.iter().find_map(|server| {
            let answer = raw::post(server, target, body.to_string());
            assert!(matches!(answer.status, 200 | 201 | 404 | 500..), "{answer:?}");
            (answer.status < 500).then_some(answer)
        })
    })
}

/// Starts an execution under its id, and repeats that under the same id until it is told how it went.
fn start(servers: &[&Server], workflow: &str, id: &str) -> Answer {
    let body = json!({"workflow": workflow, "execution_id": id});
    let answer = definite(servers, "/v1/executions", &body);
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
    answer
}

fn deploy(servers: &[&Server], document: &str) {
    let document: Value = serde_json::from_str(document).expect("JSON");
    let answer = definite(servers, "/v1/workflows", &document);
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
}

fn register(servers: &[&Server]) -> Value {
    let contracts = json!([{"task_name": "t", "contract_version": "1"}]);
    let body = json!({"worker_id": "w", "runtime": "test", "sdk": "test", "contracts": contracts});
    definite(servers, "/v1/workers/register", &body).json()["session_id"].clone()
}

/// Polls until there is a task; a server that has forgotten the session gives another one.
fn next_task(servers: &[&Server], session: &mut Value, holding: &Value) -> Value {
    wait_for("task", LONG, || {
        let body = json!({"session_id": session, "max_tasks": 1, "wait_ms": 500, "holding": holding});
        let answer = definite(servers, "/v1/workers/poll", &body);
        if answer.status == 404 {
            *session = register(servers);
            return None;
        }
        answer.json()["tasks"].get(0).cloned()
    })
}

fn role(server: &Server) -> String {
    raw::get(server, "/v1/health").json()["role"].as_str().unwrap_or_default().into()
}

fn leader_among(servers: &[&Server]) {
    wait_for("one leader that serves", LONG, || {
        let ready = servers.iter().filter(|server| raw::get(server, "/v1/ready").status == 200).count();
        (ready == 1).then_some(())
    });
}

fn executions(client: &mut ::postgres::Client) -> BTreeSet<String> {
    let rows = client.query("SELECT execution_id FROM workflow_executions", &[]).expect("it answers");
    rows.iter().map(|row| row.get(0)).collect()
}

/// The executions whose histories are not numbered 1, 2, 3 and so on.
fn with_gaps(client: &mut ::postgres::Client) -> Vec<String> {
    let sql = "SELECT execution_id FROM execution_events GROUP BY execution_id, run
               HAVING min(seq) <> 1 OR max(seq) <> count(*)";
    client.query(sql, &[]).expect("it answers").iter().map(|row| row.get(0)).collect()
}

#[test]
fn an_asynchronous_promotion_loses_what_was_acknowledged_last_and_the_cluster_goes_on_from_what_is_there() {
    let bed = Bed::new();
    let (a, b) = (bed.of_cluster("a"), bed.of_cluster("b"));
    let both = [&a, &b];
    leader_among(&both);
    deploy(&both, WAITS);
    deploy(&both, TASKS);
    let mut kept = BTreeSet::new();
    for n in 0..5 {
        start(&both, "Waits", &format!("kept-{n}"));
        kept.insert(format!("kept-{n}"));
    }
    // One task is out when the replica falls behind, and one waits.
    start(&both, "Tasks", "out");
    let mut session = register(&both);
    let out = next_task(&both, &mut session, &json!([]));
    assert_eq!(out["execution_id"], json!("out"), "{out}");
    start(&both, "Tasks", "queued");
    bed.replica.catches_up(&bed.primary);

    bed.replica.falls_behind();
    let mut lost = BTreeSet::new();
    for n in 0..5 {
        start(&both, "Waits", &format!("lost-{n}"));
        lost.insert(format!("lost-{n}"));
    }
    bed.primary.halt("immediate");
    // The address leads to the replica now, which grants advisory locks and is none to write.
    wait_for("servers that say where they are led", LONG, || {
        both.iter().all(|server| server.process.log().contains("the server is in recovery")).then_some(())
    });
    assert!(both.iter().all(|server| role(server) == "standby" || raw::get(server, "/v1/ready").status == 503));
    let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'";
    assert_eq!(bed.after().query_one(locks, &[]).expect("it answers").get::<_, i64>(0), 0);

    bed.replica.promoted();
    leader_among(&both);
    for server in both {
        wait_for("server that has noticed", LONG, || {
            server.process.log().contains("database: a replica was promoted").then_some(())
        });
    }
    // The database lost acknowledged starts, all of them of after it fell behind, and nothing of before.
    let there = executions(&mut bed.after());
    assert!(lost.iter().all(|id| !there.contains(id)), "{there:?}");
    assert!(kept.iter().all(|id| there.contains(id)), "{there:?}");
    // Who repeats a start under its id has it again, as a new one.
    start(&both, "Waits", "lost-0");
    assert!(executions(&mut bed.after()).contains("lost-0"));
    assert_eq!(start(&both, "Waits", "kept-0").status, 200);
    // The worker is told that it is not known, comes back, and its result counts.
    let result = json!({"session_id": session, "token": out["token"], "output": 1});
    let answer = definite(&both, "/v1/tasks/complete", &result);
    assert_eq!(answer.error(), (404, "UNKNOWN_SESSION".into()));
    session = register(&both);
    let result = json!({"session_id": session, "token": out["token"], "output": 1});
    let answer = definite(&both, "/v1/tasks/complete", &result);
    assert_eq!((answer.status, &answer.json()["outcome"]), (200, &json!("accepted")), "{answer:?}");
    // What waited may have been handed out before, for all that is known.
    let queued = next_task(&both, &mut session, &json!([]));
    assert_eq!((&queued["execution_id"], &queued["redelivery"]), (&json!("queued"), &json!(true)), "{queued}");

    assert_eq!(with_gaps(&mut bed.after()), Vec::<String>::new());
    // One server writes the new timeline, under the term that stands there.
    wait_for("leader that the database names, and a standby", LONG, || {
        let roles: BTreeSet<String> = both.iter().map(|server| role(server)).collect();
        let leads = if role(&a) == "leader" { "a" } else { "b" };
        let row = bed.after().query_one("SELECT leader_node, timeline FROM orbit_cluster", &[]).expect("it answers");
        let named = (row.get::<_, Option<String>>(0), row.get::<_, i64>(1)) == (Some(leads.to_owned()), 2);
        (named && roles == BTreeSet::from(["leader".to_owned(), "standby".to_owned()])).then_some(())
    });
}

#[test]
fn a_synchronous_promotion_loses_nothing_that_was_acknowledged() {
    let bed = Bed::new();
    bed.replica.is_waited_for(&bed.primary);
    let server = bed.server(&["--check-interval", "0.2"]);
    let servers = [&server];
    leader_among(&servers);
    deploy(&servers, WAITS);
    let acknowledged: BTreeSet<String> = (0..20).map(|n| format!("w-{n}")).collect();
    for id in &acknowledged {
        start(&servers, "Waits", id);
    }
    bed.primary.halt("immediate");
    bed.replica.promoted();
    // One alone recovers in its process, as a leader of a cluster does.
    wait_for("word of the promotion", LONG, || {
        server.process.log().contains("database: a replica was promoted").then_some(())
    });
    leader_among(&servers);
    let there = executions(&mut bed.after());
    assert!(acknowledged.is_subset(&there), "{there:?}");
    assert_eq!(start(&servers, "Waits", "w-0").status, 200);
    start(&servers, "Waits", "new");
    assert!(executions(&mut bed.after()).contains("new"));
    assert_eq!(with_gaps(&mut bed.after()), Vec::<String>::new());
}

#[test]
fn a_server_whose_address_leads_to_a_replica_does_not_start() {
    let bed = Bed::new();
    bed.replica.catches_up(&bed.primary);
    let address = bed.replica.server.database(&bed.database.name).url();
    let ended = run(orbit(&["server", "--cluster", "--addr", "127.0.0.1:0", "--db", &address]));
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("in recovery"), "{ended:?}");
}
