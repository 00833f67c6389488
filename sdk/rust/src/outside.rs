//! What is outside of the program: the way to its servers, and chance.

use std::future::Future;
use std::io;
use std::pin::Pin;
use tokio::io::{AsyncRead, AsyncWrite};

/// What a [`Client`](crate::Client) or a [`Worker`](crate::Worker) has of the outside, in place of TCP sockets and the
/// random numbers of its host: sockets of another kind, or the network of a simulation.
///
/// Time is Tokio's: where its clock is paused or simulated, waits and deadlines are as well.
pub trait Outside: Send + Sync + 'static {
    /// Connects to a server, named `host:port` as in the list of servers. Bytes go both ways in the clear; a deadline on
    /// the whole is the caller's.
    fn connect(&self, authority: &str) -> Connecting;

    /// A random number: waits between tries and the ids of calls are made of them.
    fn random(&self) -> u64;
}

/// A connection that is being opened.
pub type Connecting = Pin<Box<dyn Future<Output = io::Result<Box<dyn Stream>>> + Send>>;

/// A connection to a server.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}
