//! One connection: its deadlines, and the answers that it could not write.
//!
//! hyper parses and writes; this module watches. A connection is always in one of three phases: *waiting* for the
//! first byte of a request, *reading* its head, or *serving* it. The first two have a deadline, and so has any write
//! that the client does not take. Deadlines are looked at whenever the connection's task runs, so they cost no timer
//! of their own: one sleep, moved when it must come earlier and checked again when it fires.

use super::front::HttpConfig;
use super::malformed::{Instead, own_answer};
use orbit_core::node::RequestId;
use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, ready};
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

    /// Whether no request is being served, though an answer may still be on its way out.
    fn between_requests(&self) -> bool {
        !matches!(self.state().phase, Phase::Serving)
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

/// A socket that tells [`Activity`] what moves, and answers what is no HTTP request.
pub struct Watched<S> {
    socket: S,
    activity: Arc<Activity>,
    /// The whole answer to what hyper answers with a status alone.
    malformed: Box<dyn Fn(u16) -> Vec<u8> + Send>,
    /// That answer, once it was needed.
    instead: Option<Instead>,
}

impl<S> Watched<S> {
    /// Watches a socket. `malformed` makes the answer to a head that hyper answers with this status.
    pub fn new(socket: S, activity: Arc<Activity>, malformed: impl Fn(u16) -> Vec<u8> + Send + 'static) -> Watched<S> {
        Watched { socket, activity, malformed: Box::new(malformed), instead: None }
    }

    /// How many of these bytes are to be written: what is in front of an answer of hyper's own, if that is among them.
    /// None of it is once it comes first; then ours is to be written.
    fn writable(&mut self, bytes: &[u8]) -> usize {
        if self.instead.is_some() {
            return 0;
        }
        match own_answer(bytes).filter(|_| self.activity.between_requests()) {
            None => bytes.len(),
            Some((0, status)) => {
                self.instead = Some(Instead::new((self.malformed)(status)));
                0
            }
            Some((begin, _)) => begin,
        }
    }

    fn wrote<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
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

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.writable(bytes) {
            // As if they were: a flush writes ours.
            0 => Poll::Ready(Ok(bytes.len())),
            some => {
                let result = Pin::new(&mut self.socket).poll_write(cx, &bytes[..some]);
                self.wrote(result)
            }
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        // An answer without a body stands alone.
        let mut filled = bytes.iter().filter(|slice| !slice.is_empty());
        if let (Some(only), None) = (filled.next(), filled.next()) {
            return self.poll_write(cx, only);
        }
        let result = Pin::new(&mut self.socket).poll_write_vectored(cx, bytes);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    /// hyper flushes the socket once its own buffer is empty, so whatever was buffered is the system's now.
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(instead) = &mut this.instead {
            let result = instead.poll_write(&mut this.socket, cx);
            ready!(this.wrote(result))?;
        }
        let result = Pin::new(&mut self.socket).poll_flush(cx);
        if let Poll::Ready(Ok(())) = &result {
            self.activity.flushed();
        }
        result
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.socket).poll_shutdown(cx))?;
        let this = &mut *self;
        if let Some(instead) = &mut this.instead {
            ready!(instead.poll_discard(&mut this.socket, cx));
        }
        Poll::Ready(Ok(()))
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
