//! The listener: its settings, the accept loop, and the stop.

use super::connection::{Activity, Watched, drive};
use super::listener::Listener;
use super::service::Service;
use bytes::Bytes;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::driver::NodeHandle;
use crate::postgres::figures::Figures;

/// What the front is told when it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpConfig {
    /// What clients send as `Authorization: Bearer …`; without it everything is served to everybody.
    pub token: Option<String>,
    /// Bytes of a request's body (4 MiB).
    pub body_limit: usize,
    /// Bytes of one payload as JSON text (1 MiB).
    pub max_payload_bytes: usize,
    /// Memory of the bodies that are being read, and of requests that the node has not looked at, all together (128 MiB);
    /// past it 429.
    pub max_body_memory: usize,
    /// Open connections (10,000); further ones are answered with 429.
    pub max_connections: usize,
    /// How long a new connection may be silent, and a request's head may take (10 s).
    pub header_timeout: Duration,
    /// How long a request's body may take (30 s).
    pub body_timeout: Duration,
    /// How long a connection may wait for its next request (90 s).
    pub idle_timeout: Duration,
    /// How long a client may take nothing of an answer (30 s).
    pub write_timeout: Duration,
    /// How long a stop waits for requests under way (15 s).
    pub stop_timeout: Duration,
    /// Whether the server is one of several: what is refused here may have to go to another.
    pub in_cluster: bool,
}

impl Default for HttpConfig {
    fn default() -> HttpConfig {
        HttpConfig {
            token: None,
            body_limit: 4 << 20,
            max_payload_bytes: 1 << 20,
            max_body_memory: 128 << 20,
            max_connections: 10_000,
            header_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(90),
            write_timeout: Duration::from_secs(30),
            stop_timeout: Duration::from_secs(15),
            in_cluster: false,
        }
    }
}

/// Why an address cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error("cannot listen on {addr}: another process uses port {port}; stop it, or choose another address with --addr", port = addr.port())]
    InUse { addr: SocketAddr },
    /// Not for this user.
    #[error("cannot listen on {addr}: the system does not allow it; choose a port above 1023 with --addr")]
    Denied { addr: SocketAddr },
    /// No interface of this machine has the address.
    #[error(
        "cannot listen on {addr}: this machine has no such address; choose one of its own, or 0.0.0.0, with --addr"
    )]
    NotHere { addr: SocketAddr },
    /// Anything else.
    #[error("cannot listen on {addr}: {cause}")]
    Other { addr: SocketAddr, cause: io::Error },
}

/// Serves what the API does not know, such as `/ui/`.
///
/// It comes before authentication, since a browser that opens a page sends no bearer token: what it serves must be
/// public, or check for itself.
pub trait Extra: Send + Sync + 'static {
    /// Whether a path (percent-encoded, as sent) is its own. Paths of the API are never asked about.
    fn serves(&self, path: &str) -> bool;
    /// Answers a request.
    fn serve(&self, request: hyper::Request<Bytes>) -> Pin<Box<dyn Future<Output = hyper::Response<Bytes>> + Send>>;
}

/// A listener that does not yet serve: connections wait in line.
pub struct Front {
    listener: std::net::TcpListener,
    addr: SocketAddr,
    extra: Option<Arc<dyn Extra>>,
    database: Option<Arc<Figures>>,
}

/// Bytes of a request's head, and its headers; more are answered with 431.
pub const MAX_HEAD: usize = 64 << 10;
pub const MAX_HEADERS: usize = 100;

/// How long the accept loop rests when the system has no file descriptor left.
const REST: Duration = Duration::from_millis(50);

/// How many connections past the limit are told so at the same time; others are closed at once.
const REFUSALS: usize = 64;

impl Front {
    /// Takes an address. Port 0 takes any free port; [`Front::local_addr`] says which.
    pub fn bind(addr: SocketAddr) -> Result<Front, BindError> {
        let bound = std::net::TcpListener::bind(addr).and_then(|listener| {
            listener.set_nonblocking(true)?;
            let addr = listener.local_addr()?;
            Ok(Front { listener, addr, extra: None, database: None })
        });
        bound.map_err(|cause| match cause.kind() {
            io::ErrorKind::AddrInUse => BindError::InUse { addr },
            io::ErrorKind::PermissionDenied => BindError::Denied { addr },
            io::ErrorKind::AddrNotAvailable => BindError::NotHere { addr },
            _ => BindError::Other { addr, cause },
        })
    }

    /// The address that is served.
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// With a service for paths that the API does not know.
    #[must_use]
    pub fn with_extra(mut self, extra: Arc<dyn Extra>) -> Front {
        self.extra = Some(extra);
        self
    }

    /// With what a database says of its age, for the metrics.
    #[must_use]
    pub fn with_database(mut self, figures: Arc<Figures>) -> Front {
        self.database = Some(figures);
        self
    }

    /// Serves until `shutdown` is ready; then takes nothing new in, closes what is idle, and waits for requests under
    /// way, at most [`HttpConfig::stop_timeout`].
    ///
    /// To be called on a tokio runtime with I/O and time.
    pub async fn serve(self, node: NodeHandle, config: HttpConfig, shutdown: impl Future<Output = ()>) {
        let listener = match tokio::net::TcpListener::from_std(self.listener) {
            Ok(listener) => listener,
            Err(cause) => {
                tracing::error!(target: "orbit_runtime::server", %cause, "cannot serve HTTP");
                return;
            }
        };
        let service = Arc::new(Service::new(node, config, self.extra, self.database));
        serve(listener, service, shutdown).await;
    }
}

/// Serves the API alone on connections of any kind, as [`Front::serve`] does on those of its socket.
pub async fn serve_on(
    listener: impl Listener,
    node: NodeHandle,
    config: HttpConfig,
    shutdown: impl Future<Output = ()>,
) {
    serve(listener, Arc::new(Service::new(node, config, None, None)), shutdown).await;
}

async fn serve(mut listener: impl Listener, service: Arc<Service>, shutdown: impl Future<Output = ()>) {
    let HttpConfig { max_connections, stop_timeout, .. } = service.config;
    let (stop, stopped) = watch::channel(false);
    let refusals = Arc::new(Semaphore::new(REFUSALS));
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            Some(_) = connections.join_next() => service.figures.connections.store(connections.len() as u64, Ordering::Relaxed),
            accepted = listener.accept() => match accepted {
                Ok(socket) if connections.len() >= max_connections => {
                    if let Ok(permit) = refusals.clone().try_acquire_owned() {
                        let answer = service.no_room();
                        tokio::spawn(async move {
                            refuse(socket, answer).await;
                            drop(permit);
                        });
                    }
                }
                Ok(socket) => {
                    connections.spawn(connection(service.clone(), socket, stopped.clone()));
                    service.figures.connections.store(connections.len() as u64, Ordering::Relaxed);
                }
                Err(cause) => failed_accept(&cause).await,
            },
        }
    }
    drop(listener);
    stop.send_replace(true);
    let all_gone = async { while connections.join_next().await.is_some() {} };
    // What is still there after that is dropped with the set; the node learns that nobody waits.
    let _ = tokio::time::timeout(stop_timeout, all_gone).await;
}

async fn connection<S>(service: Arc<Service>, socket: S, mut stopped: watch::Receiver<bool>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let node = service.node.clone();
    let activity = Arc::new(Activity::new(&service.config, move |id| node.answer_lost(id)));
    let answering = service.clone();
    let watched = Watched::new(socket, activity.clone(), move |status| answering.malformed(status));
    let io = TokioIo::new(watched);
    let serving = activity.clone();
    let http = http1::Builder::new()
        // The deadlines are `Activity`'s: hyper's own would not tell a silent connection from an idle one.
        .header_read_timeout(None)
        .max_header_size(MAX_HEAD)
        .max_headers(MAX_HEADERS)
        .max_buf_size(MAX_HEAD)
        .serve_connection(
            io,
            hyper::service::service_fn(move |request| service.clone().call(serving.clone(), request)),
        );
    drive(http, activity, async move {
        let _ = stopped.wait_for(|stopped| *stopped).await;
    })
    .await;
}

/// Tells a client that there is no room, before the socket goes.
async fn refuse(mut socket: impl AsyncRead + AsyncWrite + Unpin, answer: Vec<u8>) {
    let told = async {
        let mut heard = [0; 4096];
        if socket.read(&mut heard).await? == 0 {
            return Ok(());
        }
        socket.write_all(&answer).await?;
        socket.shutdown().await?;
        // Bytes that nobody reads would make the system throw the answer away.
        while socket.read(&mut heard).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), told).await;
}

async fn failed_accept(cause: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    // Those are about the one connection that went away again; anything else is about this process.
    if !matches!(cause.kind(), ConnectionAborted | ConnectionReset | Interrupted) {
        tracing::warn!(target: "orbit_runtime::server", %cause, "cannot accept connections; trying again");
        tokio::time::sleep(REST).await;
    }
}
