//! Where connections come from.
//!
//! In production that is a TCP socket of this host; in the simulator's second layer it is a socket of a simulated
//! network (`sim/tests/front`). The front knows no more of either than that bytes go both ways.

use std::future::Future;
use std::io;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};

/// Something that connections come from, one after the other.
pub trait Listener: Send {
    /// A connection.
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next connection. Dropping what this returns loses none.
    fn accept(&mut self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Listener for TcpListener {
    type Stream = TcpStream;

    async fn accept(&mut self) -> io::Result<TcpStream> {
        let (socket, _) = TcpListener::accept(self).await?;
        // Answers are small and each is written at once: waiting for more only costs time.
        let _ = socket.set_nodelay(true);
        Ok(socket)
    }
}
