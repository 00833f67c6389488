//! What a session's messages are about: its name, its backend, and the SQL behind the names of what was prepared.

use super::{CANCEL, STARTUP, Side};
use std::collections::HashMap;
use std::sync::Arc;

/// What is known of a session.
pub(super) struct Track {
    pub application: Arc<str>,
    pub backend: Option<i32>,
    /// The SQL that the client named last.
    current: Arc<str>,
    statements: HashMap<Vec<u8>, Arc<str>>,
    portals: HashMap<Vec<u8>, Arc<str>>,
    /// Messages so far.
    count: u64,
}

impl Track {
    pub fn new() -> Track {
        let none: Arc<str> = Arc::from("");
        Track {
            application: Arc::clone(&none),
            backend: None,
            current: none,
            statements: HashMap::new(),
            portals: HashMap::new(),
            count: 0,
        }
    }

    /// Counts a message.
    pub fn number(&mut self) -> u64 {
        self.count += 1;
        self.count - 1
    }

    /// Takes note of a message; the SQL that it is about.
    pub fn note(&mut self, from: Side, tag: u8, bytes: &[u8]) -> Arc<str> {
        match from {
            Side::Client => self.client(tag, bytes),
            Side::Server => self.server(tag, bytes.get(5..).unwrap_or_default()),
        }
        Arc::clone(&self.current)
    }

    fn client(&mut self, tag: u8, bytes: &[u8]) {
        let body = bytes.get(5..).unwrap_or_default();
        let (first, rest) = text(body);
        match tag {
            STARTUP => {
                let mut fields = bytes.get(8..).unwrap_or_default().split(|byte| *byte == 0);
                while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
                    if name == b"application_name" {
                        self.application = shown(value);
                    }
                }
            }
            CANCEL => {}
            b'Q' => self.current = shown(first),
            b'P' => {
                self.current = shown(text(rest).0);
                self.statements.insert(first.into(), Arc::clone(&self.current));
            }
            b'B' => {
                if let Some(statement) = self.statements.get(text(rest).0) {
                    self.current = Arc::clone(statement);
                }
                self.portals.insert(first.into(), Arc::clone(&self.current));
            }
            b'E' => {
                if let Some(statement) = self.portals.get(first) {
                    self.current = Arc::clone(statement);
                }
            }
            // Describe and Close name what they mean after a byte that says of which kind it is.
            b'D' | b'C' => {
                let name = first.get(1..).unwrap_or_default();
                let known = if first.first() == Some(&b'S') { &self.statements } else { &self.portals };
                if let Some(statement) = known.get(name) {
                    self.current = Arc::clone(statement);
                }
            }
            _ => {}
        }
    }

    fn server(&mut self, tag: u8, body: &[u8]) {
        match tag {
            b'S' => {
                let (name, rest) = text(body);
                if name == b"application_name" {
                    self.application = shown(text(rest).0);
                }
            }
            b'K' => {
                self.backend = body.get(..4).map(|pid| i32::from_be_bytes(pid.try_into().expect("four bytes")));
            }
            _ => {}
        }
    }
}

/// A text that ends with a zero byte, and what follows.
fn text(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|byte| *byte == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}

fn shown(bytes: &[u8]) -> Arc<str> {
    Arc::from(String::from_utf8_lossy(bytes))
}
