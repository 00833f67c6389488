//! A client that never waits for its server: it hands a statement over, and looks now and then what has come of it. It
//! speaks the protocol itself, so that it sees all that a server says: the tag of a COMMIT that rolled back, and how the
//! session stands after each answer.

use orbit_support::Database;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, recv};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// See the module's documentation.
pub struct Client {
    /// None once its end is closed.
    stream: Option<TcpStream>,
    pid: i32,
    unread: Vec<u8>,
    busy: bool,
    answer: Answer,
}

/// What came of a statement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub rows: Vec<Vec<Option<String>>>,
    /// Such as `COMMIT`; of several statements, the last one's.
    pub tag: String,
    pub error: Option<Told>,
    /// Whether the session is in a transaction then.
    pub in_transaction: bool,
}

/// An error, as the server says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub severity: String,
    pub code: String,
    pub message: String,
}

impl Client {
    /// Opens a session of a superuser.
    pub fn open(database: &Database) -> Client {
        let stream = TcpStream::connect(("127.0.0.1", database.port)).expect("the server listens");
        stream.set_nodelay(true).expect("a socket's option");
        let mut body = 196_608_u32.to_be_bytes().to_vec();
        for text in ["user", "postgres", "database", &database.name, ""] {
            body.extend(text.bytes().chain([0]));
        }
        let answer = Answer::default();
        let mut client = Client { stream: Some(stream), pid: 0, unread: Vec::new(), busy: true, answer };
        client.write(None, &body);
        client.wait();
        assert!(client.pid > 0 && client.answer.error.is_none(), "a session is opened: {:?}", client.answer);
        client
    }

    /// The process id of its backend.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Hands statements over.
    pub fn send(&mut self, sql: &str) {
        assert!(!self.busy, "a client sends one command at a time");
        (self.answer, self.busy) = (Answer::default(), true);
        let body: Vec<u8> = sql.bytes().chain([0]).collect();
        self.write(Some(b'Q'), &body);
    }

    /// The same, and waits for the answer.
    pub fn query(&mut self, sql: &str) -> Vec<Vec<Option<String>>> {
        self.send(sql);
        self.wait();
        assert!(self.answer.error.is_none() && !self.is_closed(), "{sql}: {:?}", self.answer.error);
        std::mem::take(&mut self.answer.rows)
    }

    /// Waits until nothing is under way.
    pub fn wait(&mut self) {
        while self.busy {
            await_words([&*self], None);
            self.listen();
        }
    }

    /// Its statement has not ended, as far as it has heard.
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// The connection has ended, whoever ended it.
    pub fn is_closed(&self) -> bool {
        self.stream.is_none()
    }

    /// What came of its last statement.
    pub fn answer(&self) -> &Answer {
        &self.answer
    }

    /// The client is gone, without a word.
    pub fn vanish(&mut self) {
        (self.stream, self.busy) = (None, false);
    }

    /// Hears what the server has said.
    pub fn listen(&mut self) {
        let mut bytes = [0; 16_384];
        while let Some(stream) = &self.stream {
            match recv(stream, bytes.as_mut_slice(), RecvFlags::DONTWAIT) {
                Ok((0, _)) => self.vanish(),
                Ok((count, _)) => self.unread.extend(&bytes[..count]),
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => self.vanish(),
            }
            self.understand();
        }
    }

    fn write(&mut self, tag: Option<u8>, body: &[u8]) {
        let length = u32::try_from(body.len() + 4).expect("a short message").to_be_bytes();
        let message: Vec<u8> = tag.into_iter().chain(length).chain(body.iter().copied()).collect();
        let Some(stream) = &mut self.stream else {
            self.busy = false;
            return;
        };
        // Whoever ended the session will be heard of.
        let _ = stream.write_all(&message);
    }

    fn understand(&mut self) {
        loop {
            let [tag, a, b, c, d, ..] = self.unread[..] else { return };
            let end = 1 + u32::from_be_bytes([a, b, c, d]) as usize;
            if self.unread.len() < end {
                return;
            }
            let message: Vec<u8> = self.unread.drain(..end).skip(5).collect();
            self.message(tag, &message);
        }
    }

    fn message(&mut self, tag: u8, mut body: &[u8]) {
        match tag {
            b'K' => self.pid = i32::from_be_bytes(bytes(&mut body)),
            b'D' => {
                let columns = i16::from_be_bytes(bytes(&mut body));
                let row = (0..columns).map(|_| {
                    let length = usize::try_from(i32::from_be_bytes(bytes(&mut body))).ok()?;
                    let (value, rest) = body.split_at(length);
                    body = rest;
                    Some(String::from_utf8(value.to_vec()).expect("text is UTF-8"))
                });
                self.answer.rows.push(row.collect());
            }
            b'C' => self.answer.tag = text(&mut body),
            b'E' => {
                let mut told = Told { severity: String::new(), code: String::new(), message: String::new() };
                while let Some(field) = body.first().copied().filter(|field| *field != 0) {
                    body = &body[1..];
                    let value = text(&mut body);
                    match field {
                        b'V' => told.severity = value,
                        b'C' => told.code = value,
                        b'M' => told.message = value,
                        _ => {}
                    }
                }
                self.answer.error = Some(told);
            }
            b'Z' => {
                self.answer.in_transaction = body != b"I";
                self.busy = false;
            }
            _ => {}
        }
    }
}

fn bytes<const N: usize>(body: &mut &[u8]) -> [u8; N] {
    let mut taken = [0; N];
    body.read_exact(&mut taken).expect("a whole message");
    taken
}

fn text(body: &mut &[u8]) -> String {
    let end = body.iter().position(|byte| *byte == 0).expect("texts end with a zero");
    let text = String::from_utf8_lossy(&body[..end]).into_owned();
    *body = &body[end + 1..];
    text
}

/// Waits until one of these that are busy has something to hear, or so long.
pub fn await_words<'a>(clients: impl IntoIterator<Item = &'a Client>, most: Option<Duration>) {
    let busy = clients.into_iter().filter(|client| client.busy);
    let streams: Vec<&TcpStream> = busy.filter_map(|client| client.stream.as_ref()).collect();
    let mut all: Vec<PollFd<'_>> = streams.into_iter().map(|stream| PollFd::new(stream, PollFlags::IN)).collect();
    let most = most.map(|most| Timespec::try_from(most).expect("a short time"));
    // Interrupted or not, whoever asked looks again.
    let _ = poll(&mut all, most.as_ref());
}
