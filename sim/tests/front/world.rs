//! The network with everybody in it, and what is done to them from outside.

use super::database::Database;
use super::server::Server;
use super::socket::{Boots, PORT, Simulated};
use super::trace::{Mark, Trace};
use orbit_core::id::ExecutionId;
use orbit_core::store::append::Status;
use orbit_sdk::{Client, TaskFailure, Worker};
use orbit_sim::rng::{Dice, Ratio, Stream};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use turmoil::Sim;

/// The servers' hosts.
pub const SERVERS: [&str; 2] = ["a", "b"];

/// How far the network goes at once.
const TICK: Duration = Duration::from_millis(5);

/// What everybody runs: two tasks, one after the other.
pub fn definition() -> Value {
    json!({
        "name": "Errand", "version": "1",
        "steps": [
            {"id": "fetch", "task": "errand.fetch", "input": {"of": "${ input.of }"}},
            {"id": "bring", "task": "errand.bring", "after": ["fetch"], "input": {"what": "${ steps.fetch.output.of }"}},
        ],
        "result": "${ steps.bring.output.what }",
    })
}

/// See the module.
pub struct World {
    pub sim: Sim<'static>,
    pub seed: u64,
    pub database: Database,
    pub trace: Trace,
    pub servers: BTreeMap<&'static str, Server>,
    /// When servers that are down start again, by the time since the beginning.
    restarts: BTreeMap<&'static str, Duration>,
    /// Servers that were told to stop, and have not yet.
    stopping: BTreeSet<&'static str>,
    boots: Boots,
    pub book: Book,
    pub weather: Weather,
    leader: Option<&'static str>,
}

/// What clients were told.
#[derive(Clone, Default)]
pub struct Book(Arc<Mutex<BTreeMap<String, Value>>>);

impl Book {
    /// An execution's start was acknowledged.
    pub fn acknowledged(&self, id: &str, input: Value) {
        self.0.lock().expect("nothing panics while it holds this lock").insert(id.into(), input);
    }

    pub fn all(&self) -> BTreeMap<String, Value> {
        self.0.lock().expect("nothing panics while it holds this lock").clone()
    }
}

/// What is wrong with servers and with the ways to them, so that those who were not answered know whether that is a
/// mistake.
#[derive(Clone, Default)]
pub struct Weather(Arc<Mutex<BTreeMap<Way, Broken>>>);

/// From a server to a host, or to all of them where that is empty.
type Way = (&'static str, &'static str);

#[derive(Clone, Copy, Default)]
struct Broken {
    /// What has begun, or ended.
    changes: usize,
    /// What has begun, and not ended.
    now: usize,
}

impl Weather {
    /// Something breaks.
    pub fn begins(&self, server: &'static str, peer: &'static str) {
        let mut ways = self.0.lock().expect("nothing panics while it holds this lock");
        let way = ways.entry((server, peer)).or_default();
        (way.changes, way.now) = (way.changes + 1, way.now + 1);
    }

    /// It is whole again.
    pub fn ends(&self, server: &'static str, peer: &'static str) {
        let mut ways = self.0.lock().expect("nothing panics while it holds this lock");
        let way = ways.entry((server, peer)).or_default();
        (way.changes, way.now) = (way.changes + 1, way.now - 1);
    }

    fn of(&self, server: &'static str, peer: &'static str) -> Broken {
        let ways = self.0.lock().expect("nothing panics while it holds this lock");
        let all = [(server, peer), (server, "")].map(|way| ways.get(&way).copied().unwrap_or_default());
        Broken { changes: all[0].changes + all[1].changes, now: all[0].now + all[1].now }
    }

    /// For [`Weather::was_calm`].
    pub fn since(&self, server: &'static str, peer: &'static str) -> usize {
        self.of(server, peer).changes
    }

    /// Whether nothing was broken between those two since then.
    pub fn was_calm(&self, since: usize, server: &'static str, peer: &'static str) -> bool {
        let Broken { changes, now } = self.of(server, peer);
        changes == since && now == 0
    }
}

/// A host's own things.
#[derive(Clone)]
pub struct Host {
    pub name: &'static str,
    pub seed: u64,
    pub trace: Trace,
    pub book: Book,
    pub weather: Weather,
    outside: Arc<Simulated>,
}

impl Host {
    pub fn record(&self, what: impl Into<String>) {
        self.trace.record(what);
    }

    /// An SDK client of both servers.
    pub fn client(&self) -> Client {
        Client::new(&both(), None).expect("two addresses").with_outside(self.outside.clone())
    }

    /// An SDK worker of both servers, which takes its time.
    pub fn worker(&self) -> Worker {
        let mut builder = Worker::builder().servers(both()).worker_id(self.name).outside(self.outside.clone());
        builder = builder.poll_wait(Duration::from_secs(10)).concurrency(4);
        for (task, field) in [("errand.fetch", "of"), ("errand.bring", "what")] {
            let (host, dice) = (self.clone(), Arc::new(Mutex::new(self.dice(Stream::Workers))));
            builder = builder.task(task, "1", move |context, input| {
                let (host, dice) = (host.clone(), dice.clone());
                async move {
                    let ms = {
                        let mut dice = dice.lock().expect("nothing panics while it holds this lock");
                        if dice.chance(Ratio::new(1, 40)) { 6_000 } else { dice.between([5, 300]) }
                    };
                    tokio::time::sleep(Duration::from_millis(ms)).await;
                    let (id, step) = (context.execution_id().to_owned(), context.step_id().to_owned());
                    host.trace.record(format!("{} ran {step} of {id}, attempt {}", host.name, context.attempt()));
                    let value = input.get(field).cloned();
                    value
                        .map(|value| json!({field: value}))
                        .ok_or_else(|| TaskFailure::fatal("NO_INPUT", "nothing came"))
                }
            });
        }
        builder.build().expect("it has tasks")
    }

    pub fn dice(&self, stream: Stream) -> Dice {
        Dice::new(self.seed ^ self.name.bytes().fold(0, |all, byte| all << 8 | u64::from(byte)) << 16, stream)
    }
}

fn both() -> String {
    SERVERS.map(|host| format!("http://{host}:{PORT}")).join(",")
}

impl World {
    pub fn new(seed: u64) -> World {
        let mut builder = turmoil::Builder::new();
        builder.epoch(SystemTime::UNIX_EPOCH + Duration::from_millis(super::database::EPOCH_MS.unsigned_abs()));
        builder.rng_seed(seed).tick_duration(TICK).simulation_duration(Duration::from_secs(3_600));
        builder.min_message_latency(Duration::from_millis(1)).max_message_latency(Duration::from_millis(20));
        let mut sim = builder.build();
        let trace = Trace::default();
        let database = Database::new(seed, trace.clone());
        let mut servers = BTreeMap::new();
        for host in SERVERS {
            let server = Server::new(host, seed, &database, &trace);
            servers.insert(host, server.clone());
            sim.host(host, move || server.clone().run());
        }
        let boots = Boots::new(servers.iter().map(|(host, server)| (*host, server.boots.clone())).collect());
        let (restarts, stopping, book, weather) = Default::default();
        World { sim, seed, database, trace, servers, restarts, stopping, boots, book, weather, leader: None }
    }

    /// Somebody else joins the network, and does what `what` says.
    pub fn host<F, Fut>(&mut self, name: &'static str, what: F)
    where
        F: Fn(Host) -> Fut + 'static,
        Fut: Future<Output = turmoil::Result> + 'static,
    {
        let (trace, book, boots, seed) = (self.trace.clone(), self.book.clone(), self.boots.clone(), self.seed);
        let (lives, weather) = (AtomicUsize::new(0), self.weather.clone());
        self.sim.host(name, move || {
            let life = lives.fetch_add(1, Ordering::Relaxed) as u64;
            let seed = seed ^ life << 56;
            let outside = Arc::new(Simulated::new(seed, name, boots.clone(), trace.clone()));
            what(Host { name, seed, trace: trace.clone(), book: book.clone(), weather: weather.clone(), outside })
        });
    }

    /// A host with an SDK worker.
    pub fn worker(&mut self, name: &'static str) {
        self.host(name, |host| async move { Ok(host.worker().run_here(std::future::pending()).await?) });
    }

    /// A host with an SDK client that deploys, and then does what `what` says.
    pub fn client<F, Fut>(&mut self, name: &'static str, what: F)
    where
        F: Fn(Host, Client) -> Fut + Clone + 'static,
        Fut: Future<Output = turmoil::Result> + 'static,
    {
        self.host(name, move |host| {
            let what = what.clone();
            async move {
                let client = host.client();
                let patient = client.clone().with_patience(Duration::from_secs(200));
                patient.deploy(&definition().to_string(), orbit_sdk::Format::Json).await?;
                what(host, client).await
            }
        });
    }

    pub fn now(&self) -> Duration {
        self.sim.elapsed()
    }

    pub fn record(&self, what: impl Into<String>) {
        self.trace.record_at(u64::try_from(self.now().as_micros()).expect("minutes"), what);
    }

    /// One tick of everything.
    pub fn step(&mut self) {
        let now = self.now();
        let due: Vec<_> = self.restarts.iter().filter(|(_, at)| **at <= now).map(|(host, _)| *host).collect();
        for host in due {
            self.restarts.remove(host);
            self.weather.ends(host, "");
            self.servers[host].stop.send_replace(false);
            self.sim.bounce(host);
        }
        for host in SERVERS {
            // It ended by itself, or was stopped: its supervisor starts it again.
            if !self.restarts.contains_key(host) && !self.sim.is_host_running(host) {
                self.goes_down(host, Duration::from_millis(700));
            }
        }
        self.database.step(u64::try_from(now.as_micros()).expect("minutes"));
        if let Err(error) = self.sim.step() {
            self.trace.wrong(format!("a host failed: {error}"));
        }
        if let Some(leader) = self.leads().filter(|leader| self.leader != Some(leader)) {
            self.record(format!("{leader} leads"));
            if self.leader.replace(leader).is_some() {
                self.trace.hit(Mark::LeaderChanged);
            }
        }
        self.look();
    }

    /// What a front holds is bounded by its connections, and those by their limit.
    fn look(&self) {
        for (host, server) in &self.servers {
            let (most, limit) = (server.open.most(), super::server::MAX_CONNECTIONS + super::server::REFUSED_AT_ONCE);
            if most > limit + 1 {
                self.trace.wrong(format!("the front of {host} had {most} connections open; {limit} are its limit"));
            }
        }
    }

    /// Goes on until something is so; whether it came to be so in time.
    pub fn until(&mut self, bound: Duration, mut is_so: impl FnMut(&mut World) -> bool) -> bool {
        let end = self.now() + bound;
        while self.now() < end && self.trace.first_wrong().is_none() {
            if is_so(self) {
                return true;
            }
            self.step();
        }
        is_so(self)
    }

    /// Lets time pass.
    pub fn pass(&mut self, time: Duration) {
        self.until(time, |_| false);
    }

    /// Who leads, as far as is committed: the server of the newest term whose row says so.
    pub fn leads(&self) -> Option<&'static str> {
        self.database.read(|store| {
            let fence = store.fence();
            let row = store.nodes().find(|row| row.role == "leader" && row.term == fence.term)?;
            SERVERS.into_iter().find(|host| *row.node_id.as_str() == **host)
        })
    }

    /// Who leads, waited for.
    pub fn leader(&mut self) -> &'static str {
        assert!(self.until(Duration::from_secs(30), |world| world.leads().is_some()), "nobody leads");
        self.leads().expect("looked at just now")
    }

    /// A server is killed, and starts again after a while.
    pub fn crash(&mut self, host: &'static str, down: Duration) {
        if self.restarts.contains_key(host) {
            return;
        }
        self.record(format!("{host} is killed"));
        self.sim.crash(host);
        self.goes_down(host, down);
    }

    fn goes_down(&mut self, host: &'static str, down: Duration) {
        if !self.stopping.remove(host) {
            self.weather.begins(host, "");
        }
        self.restarts.insert(host, self.now() + down);
    }

    /// A server is told to stop; it starts again once it has.
    pub fn stop(&mut self, host: &'static str) {
        self.record(format!("{host} is told to stop"));
        if !self.restarts.contains_key(host) && self.stopping.insert(host) {
            self.weather.begins(host, "");
        }
        self.servers[host].stop.send_replace(true);
    }

    /// Whether every execution that was acknowledged has ended.
    pub fn all_ended(&self) -> bool {
        let acknowledged = self.book.all();
        self.database.read(|store| {
            let ended = |id: &String| {
                let row = store.executions().get(&ExecutionId::new(id.as_str()));
                row.is_some_and(|row| !matches!(row.summary.status, Status::Running | Status::Held))
            };
            acknowledged.keys().all(ended) && store.owners().is_empty()
        })
    }
}
