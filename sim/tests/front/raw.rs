//! A client that sends bytes, and reads what comes: what no SDK would do.

use super::socket::{PORT, Socket};
use serde_json::Value;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;

/// A connection.
pub struct Raw {
    pub server: &'static str,
    /// What the weather was when it was opened.
    pub since: usize,
    socket: Socket,
    heard: Vec<u8>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Said {
    pub status: u16,
    pub head: String,
    pub body: Value,
}

impl Said {
    /// The code of an error.
    pub fn code(&self) -> &str {
        self.body["error"]["code"].as_str().unwrap_or("")
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().filter_map(|line| line.split_once(": ")).find(|(key, _)| *key == name).map(|(_, value)| value)
    }
}

/// A request whose body is complete.
pub fn post(path: &str, body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let mut bytes = head(path, body.len());
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

/// The head of a request with a body of this length.
pub fn head(path: &str, length: usize) -> Vec<u8> {
    let json = "content-type: application/json";
    format!("POST {path} HTTP/1.1\r\nhost: test\r\n{json}\r\ncontent-length: {length}\r\n\r\n").into_bytes()
}

pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: test\r\n\r\n").into_bytes()
}

impl Raw {
    pub async fn connect(server: &'static str, since: usize) -> io::Result<Raw> {
        let connecting = timeout(Duration::from_secs(5), Socket::connect(&format!("{server}:{PORT}"))).await;
        let socket = connecting.map_err(|_| io::ErrorKind::TimedOut)??;
        Ok(Raw { server, since, socket, heard: Vec::new() })
    }

    pub async fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.socket.write_all(bytes).await
    }

    /// Reads some more; false at the end.
    pub async fn read(&mut self) -> io::Result<bool> {
        let mut some = [0; 4_096];
        let count = self.socket.read(&mut some).await?;
        self.heard.extend_from_slice(&some[..count]);
        Ok(count > 0)
    }

    /// Bytes that were read, and not taken as an answer.
    pub fn heard(&self) -> usize {
        self.heard.len()
    }

    /// Whether a whole answer was read.
    pub fn has_answer(&self) -> bool {
        self.ends_at().is_some_and(|(_, end)| self.heard.len() >= end)
    }

    /// The next answer, or none where the connection ends first.
    pub async fn answer(&mut self) -> io::Result<Option<Said>> {
        loop {
            if let Some(said) = self.parsed() {
                return Ok(Some(said));
            }
            if !self.read().await? {
                return Ok(None);
            }
        }
    }

    /// Sends a request and reads its answer, within `bound`. A connection that ends is an error as well.
    pub async fn ask(&mut self, request: &[u8], bound: Duration) -> io::Result<Said> {
        let asked = async {
            self.send(request).await?;
            self.answer().await
        };
        let answer = timeout(bound, asked).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
        answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Where the head ends that was read, and where its body does.
    fn ends_at(&self) -> Option<(usize, usize)> {
        let end = self.heard.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
        let head = String::from_utf8_lossy(&self.heard[..end]).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "))?.parse::<usize>().ok()?;
        Some((end, end + length))
    }

    fn parsed(&mut self) -> Option<Said> {
        let (begin, end) = self.ends_at().filter(|(_, end)| self.heard.len() >= *end)?;
        let head = String::from_utf8_lossy(&self.heard[..begin]).to_lowercase();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        let body = serde_json::from_slice(&self.heard[begin..end]).unwrap_or(Value::Null);
        self.heard.drain(..end);
        Some(Said { status, head, body })
    }
}
