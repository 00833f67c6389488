//! Requests as bytes, as no client of ours would send them.
#![allow(dead_code)]

use super::{PATIENCE, Server};
use serde_json::Value;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

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
    try_send(server.addr, head, body, PATIENCE).expect("the server answers")
}

/// The same, to a server that may be gone or stand still: it is waited for so long.
pub fn try_send(addr: SocketAddr, head: &str, body: &[u8], patience: Duration) -> io::Result<Answer> {
    let mut socket = TcpStream::connect_timeout(&addr, patience)?;
    socket.set_read_timeout(Some(patience))?;
    let head = format!("{head}host: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", body.len());
    socket.write_all(&[head.as_bytes(), body].concat())?;
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes)?;
    let torn = || io::Error::new(io::ErrorKind::UnexpectedEof, "the answer is torn");
    let answer = String::from_utf8(bytes).map_err(|_| torn())?;
    let (head, text) = answer.split_once("\r\n\r\n").ok_or_else(torn)?;
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(torn)?;
    let told = head.lines().find_map(|line| line.strip_prefix("content-length: ")?.parse::<usize>().ok());
    if told.is_some_and(|length| length != text.len()) {
        return Err(torn());
    }
    Ok(Answer { status, head: head.into(), text: text.into() })
}

pub fn get(server: &Server, target: &str) -> Answer {
    send(server, &format!("GET {target} HTTP/1.1\r\n"), b"")
}

pub fn post(server: &Server, target: &str, body: impl AsRef<[u8]>) -> Answer {
    send(server, &format!("POST {target} HTTP/1.1\r\ncontent-type: application/json\r\n"), body.as_ref())
}
