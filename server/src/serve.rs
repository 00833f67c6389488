//! A server of one process: the store, the node that decides, and the HTTP front, put together.

use crate::config::{self, MigrateWhen, Options};
use crate::database::Database;
use crate::failure::Failure;
use crate::ui::Ui;
use orbit_core::cluster::{Election, OnLostLease, Recovery, Role, Standby};
use orbit_core::id::NodeId;
use orbit_core::node::{Limits, NodeConfig};
use orbit_io::driver::record::Recorder;
use orbit_io::driver::{Attached, Backend, Driver, DriverTask, NodeHandle};
use orbit_io::http::{BindError, Front, HttpConfig};
use orbit_io::postgres::address::TlsMode;
use orbit_io::postgres::{Address, Migrate, Pooler, PostgresStore, ServerName, ServerSettings, Timeouts};
use orbit_io::sqlite::SqliteStore;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// Requests that wait for the node to look at them.
const ROOM: usize = 4096;

/// A server that runs. It goes on until [`Server::finish`] has been awaited.
pub struct Server {
    addr: SocketAddr,
    node: NodeHandle,
    driver: DriverTask,
    front: JoinHandle<()>,
    /// True once the front is to take nothing new in.
    stop: watch::Sender<bool>,
}

impl Server {
    /// Opens the database, takes the address and begins to serve. `/v1/ready` tells when what was running is recovered.
    pub fn start(options: &Options) -> Result<Server, Failure> {
        Server::start_recorded(options, None)
    }

    /// The same, with what it writes recorded.
    pub fn start_recorded(options: &Options, recorder: Option<&Recorder>) -> Result<Server, Failure> {
        // The address first: a start that fails for it leaves no new database behind.
        let front = match Front::bind(options.addr) {
            Ok(front) => front,
            Err(error) => return Err(why_not(options, &error)),
        };
        let store = open(options)?;
        let addr = front.local_addr();
        if addr.ip().is_unspecified() && options.token.is_none() {
            warn!(
                target: "orbit_runtime::server", %addr,
                "serving every network interface without a token: whoever reaches the port can start and read \
                 executions; set --token, or --addr to an address of this host"
            );
        }
        let config = node_config(options, addr);
        if config.addr.is_none() {
            warn!(
                target: "orbit_runtime::cluster", %addr,
                "serving every network interface without --advertise-addr: while this server leads, standbys cannot say \
                 where, and clients that follow them do not find it; set --advertise-addr to the URL that clients \
                 reach this server at"
            );
        }
        let (front, (node, driver)) = match store {
            Store::Sqlite(store) => (front, drive(config, store.attach(), recorder)),
            Store::Postgres(store) => (front.with_database(store.figures()), drive(config, store.attach(), recorder)),
        };
        let (stop, mut stopping) = watch::channel(false);
        let shutdown = async move {
            // A sender that is gone wants the end as much as one that says so.
            let _ = stopping.wait_for(|stop| *stop).await;
        };
        let front = front.with_extra(Arc::new(Ui::new(node.clone(), options.token.as_deref())));
        let front = tokio::spawn(front.serve(node.clone(), http_config(options), shutdown));
        // The address is taken from the beginning, but what is there serves only now: a start may be refused yet.
        let serving = driver.serving();
        let in_cluster = options.cluster.is_some();
        tokio::spawn(async move {
            // A standby serves reads from the beginning.
            if in_cluster || serving.await {
                let page = format!("http://{}/ui/", reachable(addr));
                info!(target: "orbit_runtime::server", %addr, tls = false, ui = true, %page, "ORBIT runtime listening");
            }
        });
        Ok(Server { addr, node, driver, front, stop })
    }

    /// The address that is served.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until `stop` is ready or the node ends by itself; then takes nothing new in, lets what is in flight end,
    /// and releases the database.
    pub async fn finish(self, stop: impl Future<Output = ()>) -> End {
        let Server { node, driver, front, stop: front_stop, .. } = self;
        let reason = driver.reason();
        let exited = driver.exited();
        tokio::pin!(exited, stop);
        let ended = tokio::select! {
            status = &mut exited => Some(status),
            () = &mut stop => None,
        };
        // The node answers what waits (long polls, waits), which the front needs to come to its own end.
        node.stop();
        front_stop.send_replace(true);
        let status = match ended {
            Some(status) => status,
            None => exited.await,
        };
        if let Err(error) = front.await {
            warn!(target: "orbit_runtime::server", %error, "the HTTP front ended badly");
        }
        End { status, reason: reason.get().cloned() }
    }
}

fn drive<B: Backend>(config: NodeConfig, store: Attached<B>, recorder: Option<&Recorder>) -> (NodeHandle, DriverTask) {
    match recorder {
        None => Driver::start(config, store, ROOM),
        Some(recorder) => Driver::start(config, recorder.on(store), ROOM),
    }
}

/// Why the address cannot be had: most often it is the same server, started twice. Then the database says who has it.
fn why_not(options: &Options, error: &BindError) -> Failure {
    let held = match (error, &options.db) {
        (BindError::InUse { .. }, Database::Sqlite(path)) if path.exists() => open(options).err(),
        _ => None,
    };
    held.unwrap_or_else(|| Failure::new(error.to_string()))
}

/// The address at which this host reaches a server that serves this one.
pub fn reachable(mut addr: SocketAddr) -> SocketAddr {
    if addr.ip().is_unspecified() {
        addr.set_ip(match addr {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    addr
}

/// How a server ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The exit status of the process.
    pub status: u8,
    /// Why it ended by itself.
    pub reason: Option<String>,
}

/// A database that is open.
pub enum Store {
    Sqlite(Box<SqliteStore>),
    Postgres(Box<PostgresStore>),
}

/// Opens the database, and says what it is and how durable.
pub fn open(options: &Options) -> Result<Store, Failure> {
    match &options.db {
        Database::Sqlite(path) => {
            let store = SqliteStore::open(path).map_err(|error| Failure::new(error.to_string()))?;
            let durability =
                store.durability().map_err(|error| Failure::new(format!("the database cannot be read: {error}")))?;
            info!(
                target: "orbit_runtime::server", db = %store.path().display(), journal_mode = %durability.journal_mode,
                synchronous = %durability.synchronous, "database opened"
            );
            Ok(Store::Sqlite(Box::new(store)))
        }
        Database::Postgres(_, address) => open_postgres(options, address).map(|store| Store::Postgres(Box::new(store))),
    }
}

fn open_postgres(options: &Options, address: &Address) -> Result<PostgresStore, Failure> {
    // The session that holds the election lock is asked at every check; one that is silent for longer has hung.
    let usual = Timeouts::default();
    let election_idle = usual.election_idle.max(options.check_interval * 5);
    let timeouts = match &options.cluster {
        None => Timeouts { election_idle, ..usual },
        Some(cluster) => match cluster.election {
            config::Election::Lock => Timeouts { election_idle: cluster.election_session_timeout, ..usual },
            // It holds nothing that its end would free.
            config::Election::Lease => Timeouts { election_idle: Duration::ZERO, ..usual },
        },
    };
    let migrate = match options.migrate {
        MigrateWhen::Auto => Migrate::Auto,
        MigrateWhen::Never => Migrate::Never,
    };
    let by_lease = options.cluster.as_ref().is_some_and(|cluster| cluster.election == config::Election::Lease);
    let pooler = if by_lease { Pooler::Taken } else { Pooler::Refused };
    let store = PostgresStore::open_behind(address.clone(), server_name(options), timeouts, migrate, pooler)
        .map_err(|error| Failure::new(error.to_string()))?;
    if store.is_pooled() {
        info!(
            target: "orbit_runtime::server",
            "a pooler in transaction mode stands before the database: time-outs are set for each transaction"
        );
    }
    for migration in store.applied() {
        info!(target: "orbit_runtime::server", version = migration.version, "tables changed: {}", migration.title);
    }
    let ServerSettings { version, synchronous_commit, fsync, tls } = store.settings();
    info!(
        target: "orbit_runtime::server", db = store.address(), postgres = %version, %synchronous_commit, %fsync, tls,
        "database opened"
    );
    if synchronous_commit == "off" || fsync == "off" {
        warn!(
            target: "orbit_runtime::server", %synchronous_commit, %fsync,
            "PostgreSQL is set to lose the newest commits when it crashes: what was acknowledged may be lost"
        );
    }
    if !tls && address.tls_mode() == TlsMode::Prefer {
        warn!(
            target: "orbit_runtime::server",
            "the database offers no TLS: everything, the password too, travels in plain text (sslmode=prefer)"
        );
    }
    Ok(store)
}

/// How the server's sessions are named to PostgreSQL.
fn server_name(options: &Options) -> ServerName {
    ServerName { node_id: options.node_id.clone(), in_cluster: options.cluster.is_some() }
}

fn node_config(options: &Options, addr: SocketAddr) -> NodeConfig {
    let mut config = NodeConfig::new(NodeId::new(options.node_id.as_str()));
    config.host = crate::config::host();
    config.pid = std::process::id();
    config.digest = options.digest();
    config.addr = match &options.cluster {
        None => Some(format!("http://{addr}")),
        // Of an address with port 0, what the system gave is known only now.
        Some(cluster) if options.addr.port() == 0 && !addr.ip().is_unspecified() => Some(
            cluster.advertise_addr.clone().filter(|given| !given.ends_with(":0")).unwrap_or(format!("http://{addr}")),
        ),
        Some(cluster) => cluster.advertise_addr.clone(),
    };
    if let Some(cluster) = &options.cluster {
        config.role = Role::Standby(Standby {
            election: match cluster.election {
                config::Election::Lock => Election::Lock,
                config::Election::Lease => Election::Lease { ttl: cluster.lease_ttl },
            },
            validity: cluster.leader_validity,
            on_lost_lease: match cluster.on_lost_lease {
                config::OnLostLease::StepDown => OnLostLease::StepDown,
                config::OnLostLease::Exit => OnLostLease::Exit,
            },
            ..Standby::default()
        });
    }
    config.session_timeout = options.session_timeout;
    config.heartbeat_interval = options.heartbeat_interval;
    config.check_interval = options.check_interval;
    config.recovery = match options.recovery {
        config::Recovery::Auto => Recovery::Auto,
        config::Recovery::Hold => Recovery::Hold,
    };
    config.limits = Limits {
        max_active_executions: options.max_active_executions,
        max_history_events: options.max_history_events,
        max_fan_out: options.max_fan_out,
        max_pending_signals: options.max_pending_signals,
        max_children: options.max_children,
        max_child_depth: options.max_child_depth,
        max_payload_bytes: options.max_payload_bytes,
        max_worker_sessions: options.max_worker_sessions,
        ..config.limits
    };
    config
}

fn http_config(options: &Options) -> HttpConfig {
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    HttpConfig {
        token: options.token.clone(),
        body_limit: size(options.body_limit),
        max_payload_bytes: size(options.max_payload_bytes),
        max_connections: size(options.max_connections),
        in_cluster: options.cluster.is_some(),
        ..HttpConfig::default()
    }
}

/// SIGTERM and SIGINT, listened to from the moment this is made.
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub fn listen() -> Result<Signals, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::new(format!("signals cannot be listened to: {error}")));
        Ok(Signals { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Ready when one of them comes. From then on a second one ends the process at once.
    pub async fn stop(mut self) {
        self.next().await;
        tokio::spawn(async move {
            let status = self.next().await;
            warn!(target: "orbit_runtime::server", "a second signal: ending at once");
            std::process::exit(status);
        });
    }

    /// The exit status that shells give to a process that the signal ended.
    async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.terminate.recv() => 128 + 15,
            _ = self.interrupt.recv() => 128 + 2,
        }
    }
}
