//! The run: orders, kills, stops.

use crate::common::{self, ORDER_PROCESSING, Process, Server, orbit, order, wait_for};
use crate::random::Random;
use crate::worker::{self, Part};
use orbit_sdk::{Client, Format, StartOptions, Status};
use rustix::process::Signal;
use std::collections::{BTreeSet, HashSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinSet;

pub const ORDERS: usize = 200;
pub const KILLS: usize = 30;
const WORKERS: usize = 3;
/// Short, so that many sessions end within the run.
const SESSION_TIMEOUT: Duration = Duration::from_millis(1500);
/// Bytes that a worker has written about deliveries when it is made to stand still: about three of them.
const STOP_AFTER: u64 = 800;
/// How long everything has to come to its end once nothing is killed any more.
const SETTLE: Duration = Duration::from_secs(180);

/// A workflow that ends in the append that starts it.
const PING: &str = "name: Ping\nversion: 1.0.0\nsteps: [{id: echo, compute: '${ input.n }'}]\n";
/// Callers that start one `Ping` after the other, so that there is mostly an append for a kill to hit.
const PINGERS: u64 = 8;
/// How long each of them rests in between.
const PING_EVERY: Duration = Duration::from_micros(500);

/// What happened, for the checks.
pub struct Record {
    pub server: Server,
    /// The order's ids whose start was acknowledged.
    pub acknowledged: BTreeSet<String>,
    /// The same of the pings.
    pub pings: BTreeSet<String>,
    /// Kills that hit an append in flight.
    pub appends_hit: usize,
    pub worker_kills: usize,
    pub worker_stops: usize,
    /// What the workers wrote down, one file each.
    pub deliveries: Vec<PathBuf>,
    /// What `orbit status --db` and the server's log said of the database.
    pub durability: String,
    pub store: Store,
    _workers: Vec<Member>,
    _folder: TempDir,
}

/// Which database the server has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    Sqlite,
    Postgres,
}

/// Runs 200 orders through 30 kills.
pub async fn run(seed: u64, store: Store) -> Record {
    let mut random = Random::new(seed);
    let folder = common::folder();
    let db = match store {
        Store::Sqlite => folder.path().join("orbit.db").display().to_string(),
        Store::Postgres => {
            // Started on a thread of its own: its client blocks.
            let fresh = || orbit_support::Postgres::shared().fresh().url();
            tokio::task::spawn_blocking(fresh).await.expect("PostgreSQL starts")
        }
    };
    let addr = common::free_addr();
    let mut server = start_server(&db, folder.path(), addr).await;
    server.client().deploy(ORDER_PROCESSING, Format::Yaml).await.expect("the example deploys");
    server.client().deploy(PING, Format::Yaml).await.expect("the ping deploys");
    let mut crew = Crew::new(&server.url(), folder.path(), seed);

    let acknowledged = Arc::new(Mutex::new(BTreeSet::new()));
    let mut starters = JoinSet::new();
    let pings = Arc::new(Mutex::new(BTreeSet::new()));
    let mut pingers = JoinSet::new();
    for caller in 0..PINGERS {
        pingers.spawn(ping(server.client(), caller, Arc::clone(&pings)));
    }
    let client = server.client().with_patience(SETTLE);
    let mut started = 0;
    let mut appends_hit = 0;
    for round in 0..KILLS {
        // The orders of this round, at once: their appends, and those of the orders before, are what a kill may hit.
        let until = ORDERS * (round + 1) / KILLS;
        for number in started..until {
            starters.spawn(start_order(client.clone(), number, Arc::clone(&acknowledged)));
        }
        started = until;
        let stopped = if round % 4 == 2 { Some(crew.stop_one().await) } else { None };
        if round % 3 == 1 {
            crew.kill_one(&mut random);
        }
        // Short rounds hit the start of the orders. Long ones let sessions end, and lost deliveries come again.
        let wait = match stopped {
            Some(_) => random.between(400, 900),
            None if round % 5 == 4 => random.between(1_800, 3_000),
            None if round % 2 == 0 => random.between(0, 30),
            None => random.between(0, 600),
        };
        if let Some(stopped) = stopped {
            // It goes on, and reports, after its session has ended and its tasks have been given to others.
            tokio::time::sleep(SESSION_TIMEOUT + Duration::from_millis(700)).await;
            crew.resume(stopped);
        }
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let log = kill(server);
        appends_hit += usize::from(has_append_in_flight(&log));
        server = start_server(&db, folder.path(), addr).await;
    }
    pingers.shutdown().await;
    while let Some(joined) = starters.join_next().await {
        joined.expect("a start does not panic");
    }
    wait_for_all(&server).await;

    let acknowledged = acknowledged.lock().expect("no panic").clone();
    let pings = pings.lock().expect("no panic").clone();
    let durability = durability(&db, &server);
    let (worker_kills, worker_stops) = (crew.kills, crew.stops);
    Record {
        server,
        acknowledged,
        pings,
        appends_hit,
        worker_kills,
        worker_stops,
        deliveries: crew.deliveries,
        durability,
        store,
        _workers: crew.workers,
        _folder: folder,
    }
}

async fn start_server(db: &str, folder: &Path, addr: SocketAddr) -> Server {
    let session_timeout = SESSION_TIMEOUT.as_secs_f64().to_string();
    let more = [
        "--session-timeout",
        &session_timeout,
        "--log-level",
        "info,orbit_runtime::store=trace",
        "--node-id",
        "victim",
    ];
    let server = Server::spawn_on(db, folder, addr, &more);
    server.ready().await;
    server
}

/// Starts one order, again and again until a server acknowledges it.
async fn start_order(client: Client, number: usize, acknowledged: Arc<Mutex<BTreeSet<String>>>) {
    let id = format!("order-{number:03}");
    let options = StartOptions { execution_id: Some(id.clone()), input: order(&id), ..Default::default() };
    let started = client.start("OrderProcessing", options).await.expect("the start is acknowledged in the end");
    assert_eq!(started.execution_id, id);
    acknowledged.lock().expect("no panic").insert(id);
}

/// Starts pings until it is ended. One that no server answers is left alone: it may have been started or not.
async fn ping(client: Client, caller: u64, acknowledged: Arc<Mutex<BTreeSet<String>>>) {
    for number in 0.. {
        let id = format!("ping-{caller}-{number:05}");
        let input = orbit_sdk::json!({"n": number});
        let options = StartOptions { execution_id: Some(id.clone()), input, ..Default::default() };
        if client.start("Ping", options).await.is_ok() {
            acknowledged.lock().expect("no panic").insert(id);
        }
        tokio::time::sleep(PING_EVERY).await;
    }
}

/// Kills a server; its log up to then.
fn kill(server: Server) -> String {
    let log = server.process.log_path();
    server.process.kill();
    String::from_utf8_lossy(&std::fs::read(log).expect("its log is there")).into_owned()
}

/// Whether the log ends with an append that was sent and not answered. See `main.rs`.
fn has_append_in_flight(log: &str) -> bool {
    let mut open = HashSet::new();
    for line in log.lines() {
        let Some(call) = line.split("call=").nth(1).and_then(|rest| rest.split_whitespace().next()) else { continue };
        if line.contains("store call sent") && line.contains("transaction=\"append\"") {
            open.insert(call);
        } else if line.contains("store call answered") {
            open.remove(call);
        }
    }
    !open.is_empty()
}

/// Waits until every order has ended.
async fn wait_for_all(server: &Server) {
    let client = server.client();
    let begun = Instant::now();
    for number in 0..ORDERS {
        let id = format!("order-{number:03}");
        let waited = client.wait(&id, SETTLE.saturating_sub(begun.elapsed())).await;
        if !waited.is_ok_and(|execution| execution.status() == &Status::Completed) {
            // The checks say which it is, and what its history says.
            return;
        }
    }
}

/// How durable the database is, as read back from it and from the server that has it open.
fn durability(db: &str, server: &Server) -> String {
    let status = common::run(orbit(&["status", "-o", "json", "--db", db])).json();
    let log = server.process.log();
    let opened = log.lines().find(|line| line.contains("database opened")).unwrap_or_default();
    let said = |name: &str| status.get(name).map(|value| format!(" {name}:{value}")).unwrap_or_default();
    format!("{opened}{}{}{}", said("journal_mode"), said("synchronous_commit"), said("fsync"))
}

/// A worker process.
struct Member {
    process: Process,
    deliveries: PathBuf,
}

impl Member {
    /// Bytes that it has written about what it got.
    fn written(&self) -> u64 {
        std::fs::metadata(&self.deliveries).map_or(0, |file| file.len())
    }
}

/// The worker processes.
struct Crew {
    url: String,
    folder: PathBuf,
    seed: u64,
    workers: Vec<Member>,
    deliveries: Vec<PathBuf>,
    kills: usize,
    stops: usize,
}

impl Crew {
    fn new(url: &str, folder: &Path, seed: u64) -> Crew {
        let mut crew = Crew {
            url: url.into(),
            folder: folder.into(),
            seed,
            workers: Vec::new(),
            deliveries: Vec::new(),
            kills: 0,
            stops: 0,
        };
        for _ in 0..WORKERS {
            let worker = crew.spawn();
            crew.workers.push(worker);
        }
        crew
    }

    fn spawn(&mut self) -> Member {
        let number = self.deliveries.len();
        let part = Part {
            server: self.url.clone(),
            worker_id: format!("worker-{number}"),
            deliveries: self.folder.join(format!("deliveries-{number}.jsonl")),
            seed: self.seed.wrapping_add(1 + number as u64),
        };
        let process = worker::spawn(&part, &self.folder.join(format!("worker-{number}.log")));
        wait_for("file of the worker", common::PATIENCE, || part.deliveries.exists().then_some(()));
        self.deliveries.push(part.deliveries.clone());
        Member { process, deliveries: part.deliveries }
    }

    /// Kills one, and starts another.
    fn kill_one(&mut self, random: &mut Random) {
        let index = random.between(0, self.workers.len() as u64) as usize;
        let fresh = self.spawn();
        std::mem::replace(&mut self.workers[index], fresh).process.kill();
        self.kills += 1;
    }

    /// Makes one stand still, at a moment when it has something to be late with: the one that is the first to get
    /// some tasks from now on.
    async fn stop_one(&mut self) -> usize {
        let before: Vec<u64> = self.workers.iter().map(Member::written).collect();
        let begun = Instant::now();
        loop {
            let grown = |index: usize| self.workers[index].written() - before[index];
            let busiest = (0..self.workers.len()).max_by_key(|index| grown(*index)).expect("there are workers");
            if grown(busiest) >= STOP_AFTER || begun.elapsed() > Duration::from_secs(5) {
                self.workers[busiest].process.signal(Signal::STOP);
                self.stops += 1;
                return busiest;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    fn resume(&mut self, index: usize) {
        self.workers[index].process.signal(Signal::CONT);
    }
}
