//! Sockets of the simulated network, as the front and the SDK take them.

use super::trace::{Mark, Trace};
use orbit_io::http::Listener;
use orbit_sdk::{Connecting, Outside};
use orbit_sim::rng::{Dice, Stream};
use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use turmoil::net::{TcpListener, TcpStream};

/// Where every server listens.
pub const PORT: u16 = 7233;

/// The most that one segment carries. The network counts what waits at a reader in segments, whatever their size.
const SEGMENT: usize = 1_460;

/// What a front has open, counted from outside of it.
#[derive(Clone, Default)]
pub struct Open {
    now: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Open {
    pub fn now(&self) -> usize {
        self.now.load(Ordering::Relaxed)
    }

    pub fn most(&self) -> usize {
        self.most.load(Ordering::Relaxed)
    }
}

/// A listener whose connections are counted.
pub struct Counted {
    listener: TcpListener,
    open: Open,
}

impl Counted {
    pub async fn bind(open: Open) -> io::Result<Counted> {
        Ok(Counted { listener: TcpListener::bind(("0.0.0.0", PORT)).await?, open })
    }
}

impl Listener for Counted {
    type Stream = Socket;

    async fn accept(&mut self) -> io::Result<Socket> {
        let (stream, _) = self.listener.accept().await?;
        let now = self.open.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.open.most.fetch_max(now, Ordering::Relaxed);
        Ok(Socket { stream, open: Some(self.open.clone()) })
    }
}

/// A connection whose writes are cut into segments.
pub struct Socket {
    stream: TcpStream,
    open: Option<Open>,
}

impl Socket {
    /// Connects to a host of the network.
    pub async fn connect(authority: &str) -> io::Result<Socket> {
        Ok(Socket { stream: TcpStream::connect(authority).await?, open: None })
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        if let Some(open) = &self.open {
            open.now.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, &bytes[..bytes.len().min(SEGMENT)])
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// How often each server was started.
#[derive(Clone)]
pub struct Boots(Arc<BTreeMap<&'static str, Arc<AtomicU32>>>);

impl Boots {
    pub fn new(boots: BTreeMap<&'static str, Arc<AtomicU32>>) -> Boots {
        Boots(Arc::new(boots))
    }

    fn of(&self, authority: &str) -> u32 {
        let host = authority.split(':').next().unwrap_or(authority);
        self.0.get(host).map_or(0, |boots| boots.load(Ordering::Relaxed))
    }
}

/// The outside of one program: the simulated network, and the seed's dice.
pub struct Simulated {
    name: &'static str,
    boots: Boots,
    trace: Trace,
    dice: Mutex<Dice>,
    /// Which process of each server it was connected to last.
    known: Arc<Mutex<BTreeMap<String, u32>>>,
}

impl Simulated {
    pub fn new(seed: u64, name: &'static str, boots: Boots, trace: Trace) -> Simulated {
        let place = name.bytes().fold(0, |all, byte| all << 8 | u64::from(byte));
        let dice = Mutex::new(Dice::new(seed ^ place << 24, Stream::Network));
        Simulated { name, boots, trace, dice, known: Arc::default() }
    }
}

impl Outside for Simulated {
    fn connect(&self, authority: &str) -> Connecting {
        let (authority, known) = (authority.to_owned(), Arc::clone(&self.known));
        let (name, boots, trace) = (self.name, self.boots.clone(), self.trace.clone());
        Box::pin(async move {
            let socket = Socket::connect(&authority).await?;
            trace.record(format!("{name} is connected to {authority}"));
            let boot = boots.of(&authority);
            let before = known.lock().expect("nothing panics while it holds this lock").insert(authority, boot);
            if before.is_some_and(|before| before < boot) {
                trace.hit(Mark::Reconnected);
            }
            Ok(Box::new(socket) as Box<dyn orbit_sdk::Stream>)
        })
    }

    fn random(&self) -> u64 {
        self.dice.lock().expect("nothing panics while it holds this lock").below(u64::MAX)
    }
}
