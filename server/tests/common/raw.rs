//! Requests as bytes, as no client of ours would send them.
#![allow(dead_code)]

use super::{PATIENCE, Server};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::TcpStream;

/// An answer: its status, its text, and the code of the error in it.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub text: String,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("no JSON ({error}): {self:?}"))
    }

    pub fn error(&self) -> (u16, String) {
        (self.status, self.json()["error"]["code"].as_str().unwrap_or_default().into())
    }

    /// The value of a header, whose name is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        lines.into_iter().find_map(|(header, value)| (header == name).then_some(value))
    }

    pub fn message(&self) -> String {
        self.json()["error"]["message"].as_str().unwrap_or_default().into()
    }
}

/// Sends bytes on a connection of its own.
pub fn send(server: &Server, head: &str, body: &[u8]) -> Answer {
    let mut socket = TcpStream::connect(server.addr).expect("the server listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out can be set");
    let head = format!("{head}host: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    socket.write_all(&[head.as_bytes(), body].concat()).expect("the server reads");
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).expect("the server answers");
    let answer = String::from_utf8(bytes).expect("answers are UTF-8");
    let (head, text) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Answer { status, head: head.into(), text: text.into() }
}

pub fn get(server: &Server, target: &str) -> Answer {
    send(server, &format!("GET {target} HTTP/1.1\r\n"), b"")
}

pub fn post(server: &Server, target: &str, body: impl AsRef<[u8]>) -> Answer {
    send(server, &format!("POST {target} HTTP/1.1\r\ncontent-type: application/json\r\n"), body.as_ref())
}
