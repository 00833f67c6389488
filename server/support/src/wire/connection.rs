//! One connection: two sockets, and a thread for each direction.

use super::frame::{Frames, Opening};
use super::track::Track;
use super::{Action, At, CANCEL, Cut, Ends, How, Message, STARTUP, Shared, Side};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// See the module's documentation.
pub(super) struct Connection {
    number: u64,
    /// None once it was cut or has ended.
    client: Mutex<Option<Arc<TcpStream>>>,
    server: Mutex<Option<Arc<TcpStream>>>,
    track: Mutex<Track>,
    /// Nothing is forwarded any more.
    swallows: AtomicBool,
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Connection {
    pub fn new(number: u64, client: TcpStream, server: TcpStream) -> Connection {
        for end in [&client, &server] {
            end.set_nodelay(true).expect("a socket's option");
        }
        Connection {
            number,
            client: Mutex::new(Some(Arc::new(client))),
            server: Mutex::new(Some(Arc::new(server))),
            track: Mutex::new(Track::new()),
            swallows: AtomicBool::new(false),
        }
    }

    fn slot(&self, side: Side) -> &Mutex<Option<Arc<TcpStream>>> {
        match side {
            Side::Client => &self.client,
            Side::Server => &self.server,
        }
    }

    fn end(&self, side: Side) -> Option<Arc<TcpStream>> {
        lock(self.slot(side)).clone()
    }

    /// Whether both ends are closed.
    pub fn is_over(&self) -> bool {
        lock(&self.client).is_none() && lock(&self.server).is_none()
    }

    pub fn swallow(&self) {
        self.swallows.store(true, Ordering::SeqCst);
    }

    fn is_swallowing(&self) -> bool {
        self.swallows.load(Ordering::SeqCst)
    }

    pub fn cut(&self, ends: Ends, how: How) {
        for side in [Side::Client, Side::Server] {
            if ends.has(side) {
                self.close(side, how);
            }
        }
    }

    /// Closes an end. A thread that reads it or writes to it has a handle still, and lets go of it at once: the socket
    /// is closed with the last of them.
    fn close(&self, side: Side, how: How) {
        let Some(end) = lock(self.slot(side)).take() else { return };
        // The peer may have ended it already, and then these fail.
        match how {
            How::Reset => {
                let _ = rustix::net::sockopt::set_socket_linger(&*end, Some(Duration::ZERO));
                // Wakes the thread that reads, and tells the peer nothing.
                let _ = end.shutdown(Shutdown::Read);
            }
            How::Finish => {
                let _ = end.shutdown(Shutdown::Both);
            }
        }
    }

    /// Carries what one side sends to the other, until it ends.
    pub fn carry(&self, from: Side, shared: &Shared) {
        let mut frames = match from {
            Side::Client => Frames::of_client(),
            Side::Server => Frames::of_server(),
        };
        let mut out = Vec::new();
        let mut bytes = vec![0; 16 * 1024];
        while let Some(source) = self.end(from) {
            let count = match (&*source).read(&mut bytes) {
                Ok(0) | Err(_) => break,
                Ok(count) => count,
            };
            drop(source);
            frames.push(&bytes[..count]);
            while let Some((whole, opening)) = frames.next() {
                if opening == Some(Opening::Encryption) {
                    self.write(from, b"N");
                    continue;
                }
                self.message(from, whole, opening, &mut out, shared);
            }
            self.flush(from, &mut out);
        }
        // What was torn by its sender is torn for the other, too.
        out.extend_from_slice(frames.rest());
        self.flush(from, &mut out);
        // The sender has ended it, unless it was cut.
        if lock(self.slot(from)).is_some() {
            self.close(from, How::Finish);
            if !self.is_swallowing() {
                self.close(from.other(), How::Finish);
            }
        }
        shared.tell();
    }

    fn message(&self, from: Side, bytes: Vec<u8>, opening: Option<Opening>, out: &mut Vec<u8>, shared: &Shared) {
        let tag = match opening {
            None => bytes[0],
            Some(Opening::Cancel) => CANCEL,
            Some(_) => STARTUP,
        };
        // The rule is asked in the order in which messages are counted.
        let mut rule = lock(&shared.rule);
        let message = {
            let mut track = lock(&self.track);
            let statement = track.note(from, tag, &bytes);
            Message {
                connection: self.number,
                number: track.number(),
                from,
                tag,
                application: Arc::clone(&track.application),
                backend: track.backend,
                statement,
                bytes,
            }
        };
        if self.is_swallowing() {
            return;
        }
        let mut action = rule(&message);
        drop(rule);
        if action != Action::Pass {
            self.flush(from, out);
        }
        if action == Action::Hold {
            let Some(decided) = shared.wait(message.clone(), self) else { return };
            action = decided;
        }
        let goes_on = || lock(&shared.edit)(&message).unwrap_or_else(|| message.bytes.clone());
        match action {
            Action::Pass => out.extend(goes_on()),
            Action::Delay(time) => {
                thread::sleep(time);
                out.extend(goes_on());
            }
            Action::Cut(cut) => {
                self.cut_at(from, cut, &message.bytes);
                // Another message may be held in the other direction.
                shared.tell();
            }
            Action::BlackHole => self.swallow(),
            Action::Hold => unreachable!("it was decided"),
        }
    }

    fn cut_at(&self, from: Side, Cut { at, ends, how }: Cut, bytes: &[u8]) {
        let forwarded = match at {
            At::Before => 0,
            At::Inside(count) if count < bytes.len() => count,
            At::Inside(_) => bytes.len() / 2,
            At::After => bytes.len(),
        };
        self.write(from.other(), &bytes[..forwarded]);
        self.cut(ends, how);
    }

    fn flush(&self, from: Side, out: &mut Vec<u8>) {
        if !out.is_empty() && !self.is_swallowing() {
            self.write(from.other(), out);
        }
        out.clear();
    }

    /// Sends to one side. One that is gone needs nothing more.
    fn write(&self, to: Side, bytes: &[u8]) {
        if let Some(end) = self.end(to) {
            let _ = (&*end).write_all(bytes);
        }
    }
}
