//! What a cluster of real servers does when one of them, its host, its connections or its database fails, on a real
//! PostgreSQL.
//!
//! * `sessions`: the session that holds the election lock ends, and nothing else. `stills`: a server stands still, at
//!   worse and worse moments. `rounds`: many elections, one after the other. `errors`: candidates that meet errors.
//! * `writes`: each write is held up at each side of its check, while another server takes over.
//! * `links`: the network loses things. `poolers`: a pooler stands in between. `outages`: the database goes away.
//! * `probes`: what servers say of themselves meanwhile. `stops`: they are told to stop, or killed, at each phase.
//!   `repeats`: what was asked before is asked again after.
//! * `measured`: how long nobody can write. `scripts/long failovers` takes many of them.
//!
//! Here no time is short: who leads, and when, is waited for.

#[path = "../common/mod.rs"]
mod common;

mod errors;
mod links;
mod measured;
mod orders;
mod outages;
mod poolers;
mod probes;
mod repeats;
mod rounds;
mod sessions;
mod stills;
mod stops;
mod writer;
mod writes;

use common::cluster::{Cluster, follows};
use common::{Server, raw};
use orbit_support::Postgres;
use orbit_support::wire::Proxy;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Whoever is to lead does so within this time, however busy the machine is.
const LEADS_WITHIN: Duration = Duration::from_secs(60);

/// Whether a server says that it serves writes.
fn leads(server: &Server) -> bool {
    let told = raw::try_send(server.addr, "GET /leaderz HTTP/1.1\r\n", b"", Duration::from_secs(2));
    told.is_ok_and(|answer| answer.status == 200)
}

/// Waits until one of them leads; which.
fn leader<'a>(servers: &[&'a Server]) -> &'a Server {
    let begun = Instant::now();
    loop {
        if let Some(leader) = servers.iter().find(|server| leads(server)) {
            return leader;
        }
        assert!(begun.elapsed() < LEADS_WITHIN, "nobody leads: {}", logs(servers));
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until this one leads.
fn until_leads(server: &Server) {
    leader(&[server]);
}

/// Takes the lock away from a server of this name until this other one leads. A leader may have it back before the one that
/// waits in line has come back to its place, between two of its waits; then it leads on, and loses it once more.
fn depose(cluster: &Cluster, name: &str, heir: &Server) {
    retried("the heir's lead", || cluster.end_election_of(name), || leads(heir));
}

/// Does something, and again every few seconds until it has led to this.
fn retried<T>(what: &str, mut act: impl FnMut() -> T, mut holds: impl FnMut() -> bool) {
    const EVERY: Duration = Duration::from_secs(5);
    let begun = Instant::now();
    loop {
        let _done: T = act();
        let acted = Instant::now();
        while acted.elapsed() < EVERY {
            if holds() {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(begun.elapsed() < LEADS_WITHIN, "no {what} within {LEADS_WITHIN:?}");
    }
}

/// How often a server was elected.
fn elections(server: &Server) -> usize {
    server.process.log().matches("cluster: elected leader").count()
}

/// Whether one of them leads and the others follow it, as they say of their health.
fn settled(healths: &[Value]) -> bool {
    let leaders: Vec<&Value> = healths.iter().filter(|health| health["role"] == "leader").collect();
    let [leader] = leaders[..] else { return false };
    healths.iter().all(|health| health["leader"]["node_id"] == leader["node_id"])
}

/// Waits for a condition that takes its time.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    common::wait_for(what, LEADS_WITHIN, || holds().then_some(()));
}

/// The ends of what they log.
fn logs(servers: &[&Server]) -> String {
    let end = |server: &&Server| {
        let log = server.process.log();
        let lines: Vec<&str> = log.lines().collect();
        format!("--- {}\n{}\n", server.addr, lines[lines.len().saturating_sub(20)..].join("\n"))
    };
    servers.iter().map(end).collect()
}

/// Checks often, and forgives a busy machine.
/// What was handed out and perhaps never arrived is delivered again before the orders' time-outs of 30 s.
#[rustfmt::skip]
const STEADY: [&str; 8] = [
    "--check-interval", "0.2", "--leader-validity", "3", "--election-session-timeout", "4", "--session-timeout", "8",
];

/// A cluster of its own on the PostgreSQL that all of these tests share.
fn cluster() -> Cluster {
    Cluster::on(Postgres::shared().fresh())
}

/// A leader `a`, and a standby `b` that follows it.
fn pair(cluster: &Cluster) -> (Server, Server) {
    let a = cluster.server("a", &STEADY);
    until_leads(&a);
    let b = cluster.server("b", &STEADY);
    follows(&b);
    (a, b)
}

/// A leader `a`, and a standby `b` that follows it and has a proxy before its database.
fn pair_with_standby_behind_proxy(cluster: &Cluster) -> (Server, Server, Proxy) {
    let a = cluster.server("a", &STEADY);
    until_leads(&a);
    let proxy = Proxy::before(cluster.database.port);
    let b = cluster.server_at(&proxy.database(&cluster.database).url(), "b", &STEADY);
    follows(&b);
    (a, b, proxy)
}

/// Deploys a workflow by a server that leads.
fn deploy(leader: &Server, yaml: &str) {
    let head = "POST /v1/workflows HTTP/1.1\r\ncontent-type: application/yaml\r\n";
    let answer = raw::send(leader, head, yaml.as_bytes());
    assert!(matches!(answer.status, 200 | 201), "{answer:?}");
}

/// Waits until a server has said that it leads no more.
fn until_deposed(server: &Server) {
    until("end of the lead", || server.process.log().contains("cluster: lost leadership; stepped down to standby"));
}
