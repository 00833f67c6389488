//! A connection that can be cut: bytes go through it until somebody does.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The way of one connection to a server.
pub struct Relay {
    port: u16,
    ends: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    /// Waits for one client, and connects it to that port of this host.
    pub fn to(server: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there are free ports");
        let port = listener.local_addr().expect("a bound address").port();
        let ends = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&ends);
        thread::spawn(move || {
            let (client, _) = listener.accept().expect("a client comes");
            let server = TcpStream::connect(("127.0.0.1", server)).expect("the server listens");
            for end in [&client, &server] {
                end.set_nodelay(true).expect("a socket's option");
                kept.lock().expect("nobody panics with it").push(end.try_clone().expect("a second handle"));
            }
            let (to_server, to_client) = (server.try_clone().expect("a second handle"), client);
            let from_client = to_client.try_clone().expect("a second handle");
            thread::spawn(move || pass(from_client, to_server));
            pass(server, to_client);
        });
        Relay { port, ends }
    }

    /// Where the client is to connect to.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The connection ends, on both sides, without a word.
    pub fn cut(&self) {
        for end in self.ends.lock().expect("nobody panics with it").iter() {
            // It may have ended already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let mut bytes = [0; 4096];
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
