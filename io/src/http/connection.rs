//! One connection: its deadlines, and the answers that it could not write.
//!
//! hyper parses and writes; this module watches. A connection is always in one of three phases: *waiting* for the
//! first byte of a request, *reading* its head, or *serving* it. The first two have a deadline, and so has any write
//! that the client does not take. Deadlines are looked at whenever the connection's task runs, so they cost no timer
//! of their own: one sleep, moved when it must come earlier and checked again when it fires.

use super::front::HttpConfig;
use orbit_core::node::RequestId;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// What is going on on a connection; shared by the socket, the service and the body that is being written.
pub struct Activity {
    state: Mutex<State>,
    header_timeout: Duration,
    idle_timeout: Duration,
    write_timeout: Duration,
    /// Takes the ids of requests whose answers were lost.
    report: Box<dyn Fn(RequestId) + Send + Sync>,
}

struct State {
    phase: Phase,
    /// Whether some of an answer is left to write, because the client does not take it as fast as it comes.
    writing: bool,
    /// Since when it has taken nothing at all.
    stalled: Option<Instant>,
    /// Tracked answers that are in the write buffer, not yet handed to the system.
    unflushed: Vec<RequestId>,
}

#[derive(Clone, Copy)]
enum Phase {
    /// Between requests, until then.
    Waiting(Instant),
    /// Some bytes of a request's head are there; the rest must come until then.
    Head(Instant),
    /// A request is being served.
    Serving,
}

impl Activity {
    /// A connection that has just been accepted: the first byte must come as soon as a head must.
    pub fn new(config: &HttpConfig, report: impl Fn(RequestId) + Send + Sync + 'static) -> Activity {
        Activity {
            state: Mutex::new(State {
                phase: Phase::Waiting(Instant::now() + config.header_timeout),
                writing: false,
                stalled: None,
                unflushed: Vec::new(),
            }),
            header_timeout: config.header_timeout,
            idle_timeout: config.idle_timeout,
            write_timeout: config.write_timeout,
            report: Box::new(report),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of this lock panics")
    }

    /// A request's head is complete.
    pub fn serving(&self) {
        self.state().phase = Phase::Serving;
    }

    /// The body of the answer is gone: written, or dropped with the connection.
    pub fn exchange_over(&self) {
        self.state().phase = Phase::Waiting(Instant::now() + self.idle_timeout);
    }

    /// A tracked answer went into the write buffer.
    pub fn buffered(&self, id: RequestId) {
        self.state().unflushed.push(id);
    }

    /// A tracked answer was dropped unwritten.
    pub fn lost(&self, id: RequestId) {
        (self.report)(id);
    }

    fn received(&self) {
        let mut state = self.state();
        if let Phase::Waiting(_) = state.phase {
            // Set once: bytes that trickle in do not move it.
            state.phase = Phase::Head(Instant::now() + self.header_timeout);
        }
    }

    fn write_stalled(&self) {
        let mut state = self.state();
        state.writing = true;
        state.stalled.get_or_insert_with(Instant::now);
    }

    fn write_moved(&self) {
        self.state().stalled = None;
    }

    fn flushed(&self) {
        let mut state = self.state();
        state.unflushed.clear();
        if std::mem::take(&mut state.writing) {
            state.stalled = None;
            // The body is gone long before its last byte is; the client's time to ask again begins now.
            if let Phase::Waiting(_) = state.phase {
                state.phase = Phase::Waiting(Instant::now() + self.idle_timeout);
            }
        }
    }

    /// When the connection has to be given up unless something moves.
    fn deadline(&self) -> Option<Instant> {
        let state = self.state();
        if state.writing {
            return state.stalled.map(|since| since + self.write_timeout);
        }
        match state.phase {
            Phase::Waiting(until) | Phase::Head(until) => Some(until),
            Phase::Serving => None,
        }
    }
}

impl Drop for Activity {
    fn drop(&mut self) {
        let unflushed = std::mem::take(&mut self.state().unflushed);
        for id in unflushed {
            (self.report)(id);
        }
    }
}

/// A socket that tells [`Activity`] what moves.
pub struct Watched<S> {
    socket: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    /// Watches a socket.
    pub fn new(socket: S, activity: Arc<Activity>) -> Watched<S> {
        Watched { socket, activity }
    }

    fn wrote(&self, result: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        match &result {
            Poll::Pending => self.activity.write_stalled(),
            Poll::Ready(Ok(_)) => self.activity.write_moved(),
            Poll::Ready(Err(_)) => {}
        }
        result
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let result = Pin::new(&mut self.socket).poll_read(cx, buffer);
        if buffer.filled().len() > before {
            self.activity.received();
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write(cx, bytes);
        self.wrote(result)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.socket).poll_write_vectored(cx, bytes);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// hyper flushes the socket once its own buffer is empty, so whatever was buffered is the system's now.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.socket).poll_flush(cx);
        if let Poll::Ready(Ok(())) = &result {
            self.activity.flushed();
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }
}

/// A connection as [`drive`] needs it.
pub trait Exchange {
    /// Runs the connection until it ends by itself.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()>;
    /// After the exchange under way, the connection ends.
    fn finish(self: Pin<&mut Self>);
}

impl<I, S> Exchange for hyper::server::conn::http1::Connection<I, S>
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin,
    S: hyper::service::HttpService<hyper::body::Incoming, ResBody = super::answer::Answer>,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Whatever ended it, the other side learns it from its socket; what matters to the node goes by `Activity`.
        Future::poll(self, cx).map(drop)
    }

    fn finish(self: Pin<&mut Self>) {
        self.graceful_shutdown();
    }
}

/// Runs a connection until it ends, a deadline passes, or `stop` comes and what is under way is done.
///
/// Returning drops the connection: the service's future with it, and so the node learns that nobody waits.
pub async fn drive(connection: impl Exchange, activity: Arc<Activity>, stop: impl Future<Output = ()>) {
    let mut connection = pin!(connection);
    let mut stop = pin!(stop);
    let mut stopping = false;
    let mut alarm = pin!(Alarm::new());
    std::future::poll_fn(|cx| {
        if connection.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !stopping && stop.as_mut().poll(cx).is_ready() {
            stopping = true;
            connection.as_mut().finish();
            // It ends now if it is idle, and is to be polled again to find that out.
            if connection.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
        }
        alarm.as_mut().poll_past(cx, || activity.deadline())
    })
    .await;
}

/// One sleep for a deadline that keeps moving.
struct Alarm {
    sleep: Pin<Box<Sleep>>,
    armed: Option<Instant>,
}

impl Alarm {
    fn new() -> Alarm {
        Alarm { sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), armed: None }
    }

    /// Ready once the deadline, whatever it is by then, has passed.
    fn poll_past(mut self: Pin<&mut Self>, cx: &mut Context<'_>, deadline: impl Fn() -> Option<Instant>) -> Poll<()> {
        loop {
            let Some(deadline) = deadline() else { return Poll::Pending };
            // An alarm that is set too early is left: it rings, and the deadline is looked at again.
            if self.armed.is_none_or(|armed| deadline < armed) {
                self.armed = Some(deadline);
                self.sleep.as_mut().reset(deadline);
            }
            if self.sleep.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            if deadline <= Instant::now() {
                return Poll::Ready(());
            }
            self.armed = None;
        }
    }
}
