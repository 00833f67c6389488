//! Clusters whose leader is elected by lease, real processes on a real PostgreSQL: takeovers, lost renewals, pauses, rows
//! that others hold, a database that is away, a pooler in between, and the commands about the lease.

#[path = "../common/mod.rs"]
mod common;

mod commands;
mod database;
mod pooler;
mod renewals;
mod takeover;

use common::raw::{self, Answer};
use common::{Server, aside, folder, wait_for};
use orbit_sdk::{Client, Format, StartOptions, json};
use orbit_support::wire::{Message, Proxy};
use orbit_support::{Database, Postgres};
use serde_json::Value;
use std::time::Duration;
use tempfile::TempDir;

/// Waits for a signal, so that it is running for as long as the test wants.
const WAITS: &str = "name: Waits\nversion: 1.0.0\nsignals: {go: {}}\nsteps: [{id: a, await: go}]\nresult: done\n";
/// No takeover takes longer, whatever else the machine does.
const LONG: Duration = Duration::from_secs(90);
/// The time to live of most leases here, in seconds.
const TTL: u64 = 3;

struct Cluster {
    database: Database,
    folder: TempDir,
}

impl Cluster {
    async fn new() -> Cluster {
        Cluster::on(aside(|| Postgres::shared().fresh()).await)
    }

    fn on(database: Database) -> Cluster {
        Cluster { database, folder: folder() }
    }

    /// A server of it, whose lease lasts so many seconds.
    fn server(&self, name: &str, ttl: u64, more: &[&str]) -> Server {
        self.server_at(&self.database.url(), name, ttl, more)
    }

    fn server_at(&self, url: &str, name: &str, ttl: u64, more: &[&str]) -> Server {
        let ttl = ttl.to_string();
        let usual = ["--cluster", "--node-id", name, "--election", "lease", "--lease-ttl", &ttl, "--check-interval"];
        let arguments: Vec<&str> = usual.iter().chain(&["0.2"]).chain(more).copied().collect();
        let any = "127.0.0.1:0".parse().expect("an address");
        Server::spawn_on(url, self.folder.path(), any, &arguments)
    }

    /// A leader `a`, and a standby `b` that follows it.
    async fn pair(&self, ttl: u64) -> (Server, Server) {
        let a = self.server("a", ttl, &[]);
        leads(&a).await;
        let b = self.server("b", ttl, &[]);
        follows(&b).await;
        a.client().deploy(WAITS, Format::Yaml).await.expect("deployed");
        (a, b)
    }

    /// The same, with a proxy between the leader and the database.
    async fn pair_behind_proxy(&self, ttl: u64) -> (Server, Proxy, Server) {
        let proxy = Proxy::before(self.database.port);
        let a = self.server_at(&proxy.database(&self.database).url(), "a", ttl, &[]);
        leads(&a).await;
        let b = self.server("b", ttl, &[]);
        follows(&b).await;
        a.client().deploy(WAITS, Format::Yaml).await.expect("deployed");
        (a, proxy, b)
    }

    /// The lease as the database has it: whose it is, and in which epoch.
    async fn lease(&self) -> (Option<String>, i64) {
        let database = self.database.clone();
        aside(move || {
            let sql = "SELECT node_id, epoch FROM orbit_leases";
            let row = database.connect().query_one(sql, &[]).expect("it reads");
            (row.get(0), row.get(1))
        })
        .await
    }
}

/// Waits until it leads.
async fn leads(server: &Server) {
    let client = server.client();
    let begun = std::time::Instant::now();
    while !client.ready().await.is_ok_and(|ready| ready.ready) {
        assert!(begun.elapsed() < LONG, "it does not lead: {}", server.process.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Waits until it follows a leader.
async fn follows(server: &Server) {
    wait_for("standby", LONG, || server.process.log().contains("following the leader").then_some(()));
}

/// What a server says of itself.
fn health(server: &Server) -> Value {
    raw::get(server, "/v1/health").json()
}

fn role(server: &Server) -> String {
    health(server)["role"].as_str().unwrap_or_default().to_owned()
}

fn term(server: &Server) -> u64 {
    health(server)["term"].as_u64().unwrap_or_default()
}

fn start(server: &Server, id: &str) -> Answer {
    raw::post(server, "/v1/executions", json!({"workflow": "Waits", "execution_id": id}).to_string())
}

/// Starts an execution, however often it takes: what is told in between may be any of what a change of the leader allows.
async fn surely_started(client: &Client, id: &str) {
    let begun = std::time::Instant::now();
    loop {
        let options = StartOptions { execution_id: Some(id.into()), ..StartOptions::default() };
        match client.start("Waits", options).await {
            Ok(_) => return,
            Err(told) => assert!(begun.elapsed() < LONG, "{id} is never started: {told}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Whether a message of a server's renews the lease.
fn renews(message: &Message) -> bool {
    message.is_from_client(b'E') && message.statement.contains("UPDATE orbit_leases l SET expires_ms")
}

fn lost_the_lead(server: &Server) -> bool {
    server.process.log().contains("cluster: lost leadership; stepped down to standby")
}
