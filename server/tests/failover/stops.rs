//! A server is told to stop, or killed, in each phase of its life: it ends, another one leads, and nothing is lost.

use crate::common::cluster::{Cluster, follows};
use crate::common::{Process, Server, listening, orbit, raw, wait_for};
use crate::writer::{self, PING, Writers};
use crate::{LEADS_WITHIN, STEADY, cluster, deploy, leads, until, until_leads};
use orbit_sdk::json;
use orbit_support::wire::{Action, Held, Message, Proxy};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

const WAITS: &str = "name: Waits\nversion: 1.0.0\nsignals: {go: {}}\nsteps: [{id: a, await: go}]\n";

/// Where a server is when it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// It waits in line.
    Standby,
    /// It has the lock, and its raise is on its way.
    Campaigning,
    /// It leads, and reads what was running.
    Recovering,
    /// It leads and is written to.
    Leading,
}

const PHASES: [Phase; 4] = [Phase::Standby, Phase::Campaigning, Phase::Recovering, Phase::Leading];

fn raises(message: &Message) -> bool {
    message.is_from_client(b'E') && message.statement.contains("SET term = term + 1")
}

fn recovers(message: &Message) -> bool {
    message.is_from_client(b'E') && message.statement.contains("SELECT count(*) FROM orbit_owners")
}

/// A cluster in which `b` is in some phase, with an execution that waits; whoever else leads or is about to, where there is
/// one.
struct Scene {
    cluster: Cluster,
    proxy: Proxy,
    b: Server,
    a: Option<Server>,
    writers: Option<Writers>,
    /// What keeps it in its phase.
    held: Option<Held>,
}

impl Scene {
    fn new(phase: Phase) -> Scene {
        let cluster = cluster();
        let a = cluster.server("a", &STEADY);
        until_leads(&a);
        deploy(&a, PING);
        deploy(&a, WAITS);
        let start = json!({"workflow": "Waits", "execution_id": "waits"}).to_string();
        assert_eq!(raw::post(&a, "/v1/executions", start).status, 201);
        let proxy = Proxy::before(cluster.database.port);
        let b = cluster.server_at(&proxy.database(&cluster.database).url(), "b", &STEADY);
        follows(&b);
        let mut scene = Scene { cluster, proxy, b, a: Some(a), writers: None, held: None };
        let hold = |scene: &Scene, is_meant: fn(&Message) -> bool| {
            scene.proxy.rule(move |message| if is_meant(message) { Action::Hold } else { Action::Pass });
        };
        match phase {
            Phase::Standby => return scene,
            Phase::Campaigning => hold(&scene, raises),
            Phase::Recovering => hold(&scene, recovers),
            Phase::Leading => {}
        }
        scene.a.take().expect("it leads").process.kill();
        if phase == Phase::Leading {
            until_leads(&scene.b);
            let writers = Writers::begin("b", scene.b.addr, 4, Duration::ZERO);
            wait_for("writes", LEADS_WITHIN, || (writers.acknowledged() > 20).then_some(()));
            scene.writers = Some(writers);
        } else {
            let held = scene.proxy.next_held(LEADS_WITHIN, |_| true);
            scene.held = Some(held.unwrap_or_else(|| panic!("it comes to be {phase:?}: {}", scene.b.process.log())));
        }
        scene
    }

    /// Another server leads, and all that was there is there; `b` is gone.
    fn goes_on(self, phase: Phase) {
        let Scene { cluster, proxy, a, writers, .. } = self;
        drop(proxy);
        let c = a.unwrap_or_else(|| cluster.server("c", &STEADY));
        until_leads(&c);
        let asked = writers.map(Writers::end).unwrap_or_default();
        assert_eq!(writer::faults(&cluster.database, &asked), Vec::<String>::new(), "{phase:?}");
        let go = raw::post(&c, "/v1/executions/waits/signals/go", json!({"payload": 1}).to_string());
        assert_eq!(go.status, 200, "{phase:?}: {go:?}");
        let ended = raw::get(&c, "/v1/executions/waits/wait?timeout_ms=60000").json();
        assert_eq!(ended["status"], "completed", "{phase:?}");
    }
}

#[test]
fn a_server_that_is_told_to_stop_ends_well_in_each_phase_and_another_one_leads() {
    for phase in PHASES {
        let mut scene = Scene::new(phase);
        scene.b.process.signal(Signal::TERM);
        until("word of the stop", || scene.b.process.log().contains("stopping"));
        // What it waits for may come now, or never.
        if let Some(held) = scene.held.take() {
            scene.proxy.pass_all();
            scene.proxy.release(&held);
        }
        let ended = scene.b.process.ended(LEADS_WITHIN);
        assert_eq!(ended.code(), Some(0), "{phase:?}: {}", scene.b.process.log());
        scene.goes_on(phase);
    }
}

#[test]
fn a_server_that_is_killed_in_any_phase_leaves_the_lead_to_another_one() {
    for phase in PHASES {
        let mut scene = Scene::new(phase);
        scene.b.process.kill_now();
        scene.goes_on(phase);
    }
}

#[test]
fn a_leader_that_is_told_twice_to_stop_ends_at_once_and_another_one_leads() {
    let mut scene = Scene::new(Phase::Leading);
    // A request whose body does not come to its end holds the stop up.
    let mut client = TcpStream::connect(scene.b.addr).expect("it listens");
    client.write_all(b"POST /v1/workflows HTTP/1.1\r\nhost: x\r\ncontent-length: 10\r\n\r\n1").expect("it reads");
    assert!(leads(&scene.b), "a later connection is answered, so that one was read");
    scene.b.process.signal(Signal::TERM);
    until("word of the stop", || scene.b.process.log().contains("stopping"));
    scene.b.process.signal(Signal::TERM);
    let ended = scene.b.process.ended(LEADS_WITHIN);
    assert!(matches!(ended.code(), Some(143 | 0)), "{ended:?}: {}", scene.b.process.log());
    scene.goes_on(Phase::Leading);
}

/// The first process of a container, whose own id is 1.
fn as_first_process(command: &std::process::Command) -> Option<std::process::Command> {
    let alone = ["--pid", "--fork", "--mount-proc", "--kill-child"];
    let mut attempt = std::process::Command::new("unshare");
    attempt.args(alone).arg("true").stderr(std::process::Stdio::null());
    attempt.status().is_ok_and(|status| status.success()).then(|| {
        let mut contained = std::process::Command::new("unshare");
        contained.args(alone).arg(command.get_program()).args(command.get_args());
        contained
    })
}

#[test]
fn a_leader_that_is_the_first_process_of_its_container_stops_when_it_is_told_to() {
    let cluster = cluster();
    let mut command = orbit(&["server", "--cluster", "--node-id", "a", "--addr", "127.0.0.1:0", "--db"]);
    command.arg(cluster.database.url()).args(STEADY);
    let Some(command) = as_first_process(&command) else {
        println!("not run: a process can only be the first of a container where this one is root");
        return;
    };
    let mut process = Process::spawn(command, &cluster.folder.path().join("first.log"));
    let addr = wait_for("listening server", LEADS_WITHIN, || listening(&process.log()));
    until("the lead", || {
        let told = raw::try_send(addr, "GET /leaderz HTTP/1.1\r\n", b"", LEADS_WITHIN);
        told.is_ok_and(|answer| answer.status == 200)
    });
    let children = format!("/proc/{0}/task/{0}/children", process.id());
    let server = std::fs::read_to_string(children).expect("Linux lists children");
    let server = server.trim().parse().ok().and_then(Pid::from_raw).expect("one child");
    kill_process(server, Signal::TERM).expect("it runs");
    assert_eq!(process.ended(LEADS_WITHIN).code(), Some(0), "{}", process.log());
    let log = process.log();
    assert!(log.contains("stopped"), "it has stopped by itself: {log}");
}

#[test]
fn a_leader_with_every_kind_of_open_connection_stops_in_time_and_answers_those_that_asked() {
    let mut scene = Scene::new(Phase::Leading);
    let addr = scene.b.addr;
    let ok = |target: &str, body: serde_json::Value| {
        let answer = raw::post(&scene.b, target, body.to_string());
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        answer.json()
    };
    let contracts = json!([{"task_name": "t.a", "contract_version": "1"}]);
    let worker = json!({"worker_id": "w", "runtime": "test", "sdk": "test", "contracts": contracts});
    let session = ok("/v1/workers/register", worker)["session_id"].clone();
    // Those that ask and wait.
    let asking = |head: String, body: String| {
        thread::spawn(move || raw::try_send(addr, &head, body.as_bytes(), LEADS_WITHIN).map(|answer| answer.status))
    };
    let json = "HTTP/1.1\r\ncontent-type: application/json\r\n";
    let poll = json!({"session_id": session, "max_tasks": 1, "wait_ms": 60_000}).to_string();
    let waiting = [
        asking(format!("POST /v1/workers/poll {json}"), poll),
        asking("GET /v1/executions/waits/wait?timeout_ms=300000 HTTP/1.1\r\n".into(), String::new()),
    ];
    // Those that do not come to the end of what they ask, or of what they are told.
    let open = |bytes: &[u8]| {
        let mut socket = TcpStream::connect(addr).expect("it listens");
        socket.write_all(bytes).expect("it reads");
        socket
    };
    let half = [
        open(b""),
        open(b"POST /v1/exec"),
        open(b"POST /v1/executions HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"),
        open(b"GET /v1/executions?limit=1000 HTTP/1.1\r\nhost: x\r\n\r\n"),
    ];
    let mut kept = open(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n");
    assert!(kept.read(&mut [0; 64]).expect("it is answered") > 0);
    until("an open poll", || raw::get(&scene.b, "/v1/metrics").text.contains("orbit_waiting_polls 1"));
    scene.b.process.signal(Signal::TERM);
    let ended = scene.b.process.ended(LEADS_WITHIN);
    assert_eq!(ended.code(), Some(0), "{}", scene.b.process.log());
    for asked in waiting {
        // Answered with what there was, or refused; and where its connection ended first, it may ask again.
        let answered = asked.join().expect("no panic");
        assert!(answered.as_ref().map_or(true, |status| matches!(status, 200 | 503 | 504)), "{answered:?}");
    }
    drop((half, kept));
    scene.goes_on(Phase::Leading);
}
