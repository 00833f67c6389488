//! What is no HTTP request gets an answer in the form of every other error.
//!
//! hyper answers a head that it cannot read by itself, with a status and no body, and has no place to say more. That
//! answer is the last thing that it writes on a connection. It is told from ours by its headers, since every answer of
//! ours names its request; [`Instead`] holds it back and has another one written in its place.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The longest answer of hyper's own: a status line, `content-length`, `connection`, `date`.
const LONGEST: usize = 256;

/// How much of what a client still sends is read, so that it comes to read the answer.
const DISCARDED_BYTES: usize = 1 << 20;

/// Where hyper's own answer begins in what it writes, and its status.
pub fn own_answer(bytes: &[u8]) -> Option<(usize, u16)> {
    if !bytes.ends_with(b"\r\n\r\n") {
        return None;
    }
    let from = bytes.len().saturating_sub(LONGEST);
    let begin = from + bytes[from..].windows(7).rposition(|window| window == b"HTTP/1.")?;
    let mut lines = std::str::from_utf8(&bytes[begin..]).ok()?.trim_end().split("\r\n");
    let status = lines.next()?.split(' ').nth(1)?.parse().ok().filter(|status| (400..500).contains(status))?;
    let mut empty = false;
    for line in lines {
        match line.split_once(": ")? {
            ("content-length", "0") => empty = true,
            ("connection" | "date", _) => {}
            _ => return None,
        }
    }
    empty.then_some((begin, status))
}

/// Another answer, in place of hyper's own.
#[derive(Default)]
pub struct Instead {
    answer: Vec<u8>,
    written: usize,
    discarded: usize,
}

impl Instead {
    /// These bytes.
    pub fn new(answer: Vec<u8>) -> Instead {
        Instead { answer, ..Instead::default() }
    }

    /// Writes what is left.
    pub fn poll_write<S: AsyncWrite + Unpin>(&mut self, socket: &mut S, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.answer.len() {
            match ready!(Pin::new(&mut *socket).poll_write(cx, &self.answer[self.written..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => self.written += written,
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Reads on until the client has done: bytes that nobody reads would make the system throw the answer away. How long
    /// that takes is bounded by the time that a head may take.
    pub fn poll_discard<S: AsyncRead + Unpin>(&mut self, socket: &mut S, cx: &mut Context<'_>) -> Poll<()> {
        let mut room = [0; 4096];
        while self.discarded < DISCARDED_BYTES {
            let mut buffer = ReadBuf::new(&mut room);
            match ready!(Pin::new(&mut *socket).poll_read(cx, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => self.discarded += buffer.filled().len(),
                _ => break,
            }
        }
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: &str = "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\ndate: Sun, 29 Nov 2026 10:00:00 GMT\r\n\r\n";

    #[test]
    fn hypers_own_answer_is_found_behind_one_of_ours() {
        assert_eq!(own_answer(OWN.as_bytes()), Some((0, 400)));
        let ours = "HTTP/1.1 200 OK\r\nx-request-id: a-1\r\ncontent-length: 2\r\n\r\n{}";
        assert_eq!(own_answer(format!("{ours}{OWN}").as_bytes()), Some((ours.len(), 400)));
    }

    #[test]
    fn an_answer_of_ours_is_left_as_it_is() {
        for ours in [
            "",
            "\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\nx-request-id: a-1\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx-request-id: a-1\r\ncontent-length: 4\r\n\r\n\r\n\r\n",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 2\r\n\r\n",
            "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n{}",
        ] {
            assert_eq!(own_answer(ours.as_bytes()), None, "{ours:?}");
        }
    }
}
