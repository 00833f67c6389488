//! The front on connections that are no sockets.

use super::support::{fine, quick, soon};
use orbit_io::driver::handle::{Message, NodeHandle};
use orbit_io::http::{Listener, serve_on};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::{mpsc, oneshot};

/// Connections as a test makes them.
struct Made(mpsc::UnboundedReceiver<DuplexStream>);

impl Listener for Made {
    type Stream = DuplexStream;

    async fn accept(&mut self) -> io::Result<DuplexStream> {
        match self.0.recv().await {
            Some(stream) => Ok(stream),
            None => std::future::pending().await,
        }
    }
}

/// A front on them, with a node that answers every request.
fn front() -> (mpsc::UnboundedSender<DuplexStream>, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let (node, mut requests, _) = NodeHandle::new(10);
    tokio::spawn(async move {
        while let Some(message) = requests.recv().await {
            if let Message::Request { request, answer, .. } = message
                && let super::support::Says::Answer(response) = fine(&request)
            {
                let _ = answer.send(response);
            }
        }
    });
    let (connect, made) = mpsc::unbounded_channel();
    let (stop, stopped) = oneshot::channel();
    let front = tokio::spawn(serve_on(Made(made), node, quick(), async {
        let _ = stopped.await;
    }));
    (connect, stop, front)
}

#[tokio::test]
async fn a_front_serves_connections_of_any_kind_and_stops_with_them() {
    let (connect, stop, front) = front();
    let (mut client, server) = duplex(64 << 10);
    connect.send(server).unwrap();
    client.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\n\r\n").await.unwrap();
    let mut heard = vec![0; 4_096];
    let count = soon("an answer", client.read(&mut heard)).await.unwrap();
    assert!(heard[..count].starts_with(b"HTTP/1.1 200 OK"), "{:?}", String::from_utf8_lossy(&heard[..count]));
    // It is idle, and so its end is the front's.
    stop.send(()).unwrap();
    assert_eq!(soon("the end of the connection", client.read(&mut heard)).await.unwrap(), 0);
    soon("the end of the front", front).await.unwrap();
}

#[tokio::test]
async fn deadlines_are_those_of_sockets() {
    let (connect, _stop, _front) = front();
    let (mut client, server) = duplex(64 << 10);
    connect.send(server).unwrap();
    let begun = tokio::time::Instant::now();
    let mut heard = [0; 16];
    assert_eq!(soon("the end of a silent connection", client.read(&mut heard)).await.unwrap(), 0);
    assert!(begun.elapsed() >= quick().header_timeout - Duration::from_millis(5));
}
