//! A server of the network: the production driver with its node, and the production front, on a simulated socket.

use super::database::{Database, EPOCH_MS};
use super::socket::{Counted, Open, PORT};
use super::trace::Trace;
use orbit_core::cluster::{Role, Standby};
use orbit_core::id::NodeId;
use orbit_core::node::{Node, NodeConfig};
use orbit_core::time::{Mono, Now, WallMs};
use orbit_io::driver::{Clock, Driver};
use orbit_io::http::{HttpConfig, serve_on};
use orbit_sim::rng::{Dice, Stream};
use orbit_sim::schema::SmallSchema;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::sync::watch;

/// A worker that is silent for so long is lost.
pub const SESSION_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a request's body may take.
pub const BODY_TIMEOUT: Duration = Duration::from_secs(3);
/// How long a client may take nothing of an answer.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a request waits for an outcome.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(5);
/// How many connections each front keeps open.
pub const MAX_CONNECTIONS: usize = 24;
/// How many more it has open for as long as it tells them that there is no room.
pub const REFUSED_AT_ONCE: usize = 64;

/// What a server is made of, whichever process of it.
#[derive(Clone)]
pub struct Server {
    pub host: &'static str,
    pub seed: u64,
    pub database: Database,
    pub trace: Trace,
    pub open: Open,
    /// Processes that were started.
    pub boots: Arc<AtomicU32>,
    /// True once the process is to stop.
    pub stop: Arc<watch::Sender<bool>>,
}

impl Server {
    pub fn new(host: &'static str, seed: u64, database: &Database, trace: &Trace) -> Server {
        Server {
            host,
            seed,
            database: database.clone(),
            trace: trace.clone(),
            open: Open::default(),
            boots: Arc::default(),
            stop: Arc::new(watch::Sender::new(false)),
        }
    }

    /// One process of it, from its start to its end.
    pub async fn run(self) -> turmoil::Result {
        let boot = self.boots.fetch_add(1, Ordering::Relaxed) + 1;
        let place = self.host.bytes().map(u64::from).sum::<u64>();
        let mut dice = Dice::new(self.seed ^ place << 32 ^ u64::from(boot) << 48, Stream::Entropy);
        let clock = SimulatedClock { origin_us: dice.below(1 << 40) };
        let node = Node::new(node_config(self.host, boot), dice.bytes(), clock.now());
        let node = node.with_schemas(Arc::new(SmallSchema));
        let store = self.database.attach(self.host);
        let (node, driver) = Driver::start_node(node, store, 2_048, clock);
        let listener = Counted::bind(self.open.clone()).await?;
        self.trace.record(format!("{} starts ({boot})", self.host));
        let (stop_front, mut front_stopped) = watch::channel(false);
        let front = tokio::spawn(serve_on(listener, node.clone(), http_config(), async move {
            let _ = front_stopped.wait_for(|stop| *stop).await;
        }));
        let mut stopped = self.stop.subscribe();
        let reason = driver.reason();
        let mut exited = pin!(driver.exited());
        let ended = tokio::select! {
            biased;
            status = &mut exited => Some(status),
            _ = stopped.wait_for(|stop| *stop) => None,
        };
        // As `orbit server` does.
        node.stop();
        stop_front.send_replace(true);
        let status = match ended {
            Some(status) => status,
            None => exited.await,
        };
        front.await?;
        self.trace.record(format!("{} ends with {status} {:?}", self.host, reason.get()));
        Ok(())
    }
}

fn node_config(host: &str, boot: u32) -> NodeConfig {
    NodeConfig {
        host: host.into(),
        pid: boot,
        addr: Some(format!("http://{host}:{PORT}")),
        role: Role::Standby(Standby {
            validity: Duration::from_secs(2),
            slice: Duration::from_secs(2),
            stuck_after: Duration::from_secs(8),
            ..Standby::default()
        }),
        session_timeout: SESSION_TIMEOUT,
        heartbeat_interval: Duration::from_secs(1),
        check_interval: Duration::from_millis(500),
        check_deadline: Duration::from_secs(2),
        call_deadline: Duration::from_secs(6),
        request_deadline: REQUEST_DEADLINE,
        stop_deadline: Duration::from_secs(3),
        ..NodeConfig::new(NodeId::new(host))
    }
}

fn http_config() -> HttpConfig {
    HttpConfig {
        body_limit: 64 << 10,
        max_payload_bytes: 32 << 10,
        max_body_memory: 256 << 10,
        max_connections: MAX_CONNECTIONS,
        header_timeout: Duration::from_secs(3),
        body_timeout: BODY_TIMEOUT,
        idle_timeout: Duration::from_secs(30),
        write_timeout: WRITE_TIMEOUT,
        stop_timeout: Duration::from_secs(4),
        in_cluster: true,
        ..HttpConfig::default()
    }
}

/// The network's time, as a process reads it.
struct SimulatedClock {
    /// What its monotonic clock showed when the run began.
    origin_us: u64,
}

impl Clock for SimulatedClock {
    fn now(&self) -> Now {
        let elapsed = turmoil::sim_elapsed().expect("within the simulation");
        Now {
            mono: Mono(self.origin_us + u64::try_from(elapsed.as_micros()).expect("minutes")),
            wall: WallMs(EPOCH_MS + i64::try_from(elapsed.as_millis()).expect("minutes")),
        }
    }
}
