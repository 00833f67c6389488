//! Each kind of write of a leader is held up on its way to the database while another server takes over: before it looks
//! at the fence it comes too late and changes nothing; after that the takeover waits for it.

use crate::common::cluster::{Cluster, follows};
use crate::common::raw::{self, Answer};
use crate::common::{Server, tables};
use crate::{LEADS_WITHIN, STEADY, cluster, deploy, depose, retried, until, until_leads};
use orbit_sdk::{Value, json};
use orbit_support::wire::{Action, Held, Message, Proxy};
use postgres::Client;
use std::net::SocketAddr;
use std::thread::{self, JoinHandle};

const WAITS: &str = "name: Waits\nversion: 1.0.0\nsignals: {go: {}}\nsteps: [{id: a, await: go}]\n";
const TASKS: &str = "name: Tasks\nversion: 1.0.0\nsteps: [{id: a, task: t.a}]\n";
const NEW: &str = "name: New\nversion: 1.0.0\nsteps: [{id: a, compute: '1'}]\n";

/// Signals that `w1` has taken in.
const RECEIVED: &str = "SELECT 1 FROM execution_events WHERE execution_id = 'w1'
    AND convert_from(substr(payload, 2), 'UTF8') LIKE '%SignalReceived%'";

/// The writes that a client or a worker asks for.
const KINDS: [Kind; 7] =
    [Kind::Start, Kind::Signal, Kind::Cancel, Kind::Complete, Kind::Fail, Kind::Claim, Kind::Deploy];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Start,
    Signal,
    Cancel,
    Complete,
    Fail,
    Claim,
    Deploy,
}

impl Kind {
    /// Words that only the statement has that writes it.
    fn words(self) -> &'static str {
        match self {
            Kind::Claim => "WITH RECURSIVE f AS",
            Kind::Deploy => "INSERT INTO workflow_definitions",
            _ => "INSERT INTO execution_events",
        }
    }

    /// What is asked for; `task` is a delivery that the session holds.
    fn request(self, session: &str, task: &str) -> (&'static str, &'static str, String) {
        let body = |value: Value| value.to_string();
        let json = "application/json";
        match self {
            Kind::Start => ("/v1/executions", json, body(json!({"workflow": "Waits", "execution_id": "new"}))),
            Kind::Signal => ("/v1/executions/w1/signals/go", json, body(json!({"payload": 1, "signal_id": "s"}))),
            Kind::Cancel => ("/v1/executions/w2/cancel", json, body(json!({"reason": "enough"}))),
            Kind::Complete => {
                let report = json!({"session_id": session, "token": task, "output": 1});
                ("/v1/tasks/complete", json, body(report))
            }
            Kind::Fail => {
                let error = json!({"code": "BAD", "message": "no"});
                ("/v1/tasks/fail", json, body(json!({"session_id": session, "token": task, "error": error})))
            }
            Kind::Claim => {
                ("/v1/workers/poll", json, body(json!({"session_id": session, "max_tasks": 1, "wait_ms": 20_000})))
            }
            Kind::Deploy => ("/v1/workflows", "application/yaml", NEW.into()),
        }
    }

    /// Rows that are there once it is done.
    fn done(self) -> &'static str {
        match self {
            Kind::Start => "SELECT 1 FROM workflow_executions WHERE execution_id = 'new'",
            Kind::Signal => RECEIVED,
            Kind::Cancel => "SELECT 1 FROM workflow_executions WHERE execution_id = 'w2' AND status <> 'running'",
            Kind::Complete | Kind::Fail => {
                "SELECT 1 FROM workflow_executions WHERE execution_id = 't1' AND status <> 'running'"
            }
            // The dispatch that follows it may come before the takeover, too, and takes the row away.
            Kind::Claim => {
                "SELECT 1 FROM orbit_tasks WHERE execution_id = 't2' AND state <> 'queued' UNION ALL
                 SELECT 1 FROM execution_events WHERE execution_id = 't2'
                 AND convert_from(substr(payload, 2), 'UTF8') LIKE '%StepDispatched%'"
            }
            Kind::Deploy => "SELECT 1 FROM workflow_definitions WHERE name = 'New'",
        }
    }
}

/// A cluster whose leader `a` reaches the database through a proxy, with what each kind of write needs.
struct Scene {
    cluster: Cluster,
    proxy: Proxy,
    a: Server,
    b: Server,
    session: String,
    task: String,
    admin: Client,
}

fn post(addr: SocketAddr, target: &str, kind: &str, body: &str) -> std::io::Result<Answer> {
    let head = format!("POST {target} HTTP/1.1\r\ncontent-type: {kind}\r\n");
    raw::try_send(addr, &head, body.as_bytes(), LEADS_WITHIN)
}

impl Scene {
    fn new() -> Scene {
        let cluster = cluster();
        let proxy = Proxy::before(cluster.database.port);
        let a = cluster.server_at(&proxy.database(&cluster.database).url(), "a", &STEADY);
        until_leads(&a);
        let b = cluster.server("b", &STEADY);
        follows(&b);
        deploy(&a, WAITS);
        deploy(&a, TASKS);
        let ok = |target: &str, body: Value| -> Value {
            let answer = raw::post(&a, target, body.to_string());
            assert!(matches!(answer.status, 200 | 201), "{target}: {answer:?}");
            answer.json()
        };
        for (workflow, id) in [("Waits", "w1"), ("Waits", "w2"), ("Tasks", "t1")] {
            ok("/v1/executions", json!({"workflow": workflow, "execution_id": id}));
        }
        let contracts = json!([{"task_name": "t.a", "contract_version": "1"}]);
        let worker = json!({"worker_id": "w", "runtime": "test", "sdk": "test", "contracts": contracts});
        let session = ok("/v1/workers/register", worker)["session_id"].as_str().expect("a session").to_owned();
        let polled = ok("/v1/workers/poll", json!({"session_id": session, "max_tasks": 1, "wait_ms": 20_000}));
        let task = polled["tasks"][0]["token"].as_str().unwrap_or_else(|| panic!("a task: {polled}")).to_owned();
        ok("/v1/executions", json!({"workflow": "Tasks", "execution_id": "t2"}));
        let admin = cluster.database.connect();
        Scene { cluster, proxy, a, b, session, task, admin }
    }

    fn is_done(&mut self, kind: Kind) -> bool {
        !self.admin.query(kind.done(), &[]).expect("it answers").is_empty()
    }

    fn ask(&self, kind: Kind) -> JoinHandle<std::io::Result<Answer>> {
        let (addr, (target, format, body)) = (self.a.addr, kind.request(&self.session, &self.task));
        thread::spawn(move || post(addr, target, format, &body))
    }

    /// Asks for a write, and holds the message of it that has this tag.
    fn hold(
        &self,
        kind: Kind,
        is_meant: impl FnMut(&Message) -> bool + Send + 'static,
    ) -> (Held, JoinHandle<std::io::Result<Answer>>) {
        let mut is_meant = is_meant;
        let mut done = false;
        self.proxy.rule(move |message| {
            let meant = !done && is_meant(message);
            done |= meant;
            if meant { Action::Hold } else { Action::Pass }
        });
        let asking = self.ask(kind);
        let held = self.proxy.next_held(LEADS_WITHIN, |_| true);
        (held.unwrap_or_else(|| panic!("{kind:?} is not held")), asking)
    }

    /// The first answer, and what a repetition by the one that leads now makes of it: nothing is done twice, and what was
    /// acknowledged is there.
    fn settle(mut self, kind: Kind, asking: JoinHandle<std::io::Result<Answer>>) {
        let first = asking.join().expect("no panic");
        let acknowledged = first.as_ref().is_ok_and(|answer| matches!(answer.status, 200 | 201));
        // A poll that was answered with nothing has done nothing.
        let task = |answer: &Answer| answer.json()["tasks"].as_array().is_some_and(|tasks| !tasks.is_empty());
        let acknowledged = acknowledged && (kind != Kind::Claim || first.as_ref().is_ok_and(task));
        if acknowledged {
            assert!(self.is_done(kind), "{kind:?}: {first:?}, and nothing is there");
        }
        let faults = tables::faults(&mut self.admin);
        assert!(faults.is_empty(), "{kind:?}: {faults:#?}");
        if matches!(kind, Kind::Complete | Kind::Fail | Kind::Claim) {
            return;
        }
        let (target, format, body) = kind.request(&self.session, &self.task);
        let again = post(self.b.addr, target, format, &body).expect("the leader answers");
        assert!(matches!(again.status, 200 | 201), "{kind:?}: {first:?}, and then {again:?}");
        until("the effect", || self.is_done(kind));
        if kind == Kind::Signal {
            let received = self.admin.query(RECEIVED, &[]).expect("it answers").len();
            assert_eq!(received, 1, "the signal is taken in once");
        }
    }
}

#[test]
fn a_write_that_is_held_up_before_its_check_comes_too_late_once_another_leads_and_changes_nothing() {
    for kind in KINDS {
        let mut scene = Scene::new();
        let words = kind.words();
        let (held, asking) =
            scene.hold(kind, move |message| message.is_from_client(b'E') && message.statement.contains(words));
        depose(&scene.cluster, "a", &scene.b);
        let backend = held.message.backend.expect("the session has begun");
        scene.proxy.pass_all();
        scene.proxy.release(&held);
        // It has been run, or its session has ended.
        let runs = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state = 'active'";
        until("the end of the write", || scene.admin.query(runs, &[&backend]).expect("it answers").is_empty());
        assert!(!scene.is_done(kind), "{kind:?} was done after another server had begun to lead");
        scene.settle(kind, asking);
    }
}

#[test]
fn a_takeover_waits_for_a_write_that_is_held_up_after_its_check_and_comes_after_it() {
    for kind in KINDS {
        let mut scene = Scene::new();
        let words = kind.words();
        let mut ran = None;
        let (held, asking) = scene.hold(kind, move |message| {
            if message.is_from_client(b'E') && message.statement.contains(words) {
                ran = Some(message.connection);
            }
            message.is_from_client(b'S') && ran == Some(message.connection)
        });
        let backend = held.message.backend.expect("the session has begun");
        let before: i64 = term(&mut scene.admin);
        let waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'orbit-cluster:b'
            AND datname = current_database() AND $1 = ANY (pg_blocking_pids(pid))";
        let (cluster, admin) = (&scene.cluster, &mut scene.admin);
        let end = || cluster.end_election_of("a");
        retried("takeover that waits", end, || !admin.query(waits, &[&backend]).expect("it answers").is_empty());
        assert_eq!(term(&mut scene.admin), before, "{kind:?}: nobody took over before the write was over");
        scene.proxy.pass_all();
        scene.proxy.release(&held);
        until_leads(&scene.b);
        scene.settle(kind, asking);
    }
}

fn term(admin: &mut Client) -> i64 {
    admin.query_one("SELECT term FROM orbit_cluster", &[]).expect("it answers").get(0)
}
