//! Where one message ends and the next begins.

/// Bytes that came, and the messages in them.
pub(super) struct Frames {
    buffer: Vec<u8>,
    /// Where in it the next message begins.
    begin: usize,
    /// The first messages of a client have no type byte.
    starting: bool,
}

/// What a client may say before its session starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// It asks for encryption, of either kind.
    Encryption,
    Cancel,
    Session,
}

/// The codes that stand where a start has its version.
const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

impl Frames {
    pub fn of_client() -> Frames {
        Frames { buffer: Vec::new(), begin: 0, starting: true }
    }

    pub fn of_server() -> Frames {
        Frames { buffer: Vec::new(), begin: 0, starting: false }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.begin);
        self.begin = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole message, and what it opens, if it is one of the first of a client.
    pub fn next(&mut self) -> Option<(Vec<u8>, Option<Opening>)> {
        let rest = &self.buffer[self.begin..];
        let at = if self.starting { 0 } else { 1 };
        let length = u32::from_be_bytes(rest.get(at..at + 4)?.try_into().expect("four bytes"));
        // The length counts itself, and not the type byte.
        let whole = rest.get(..at + usize::try_from(length).ok()?.max(4))?.to_vec();
        self.begin += whole.len();
        let opening = self.starting.then(|| opening(&whole));
        if opening == Some(Opening::Session) {
            self.starting = false;
        }
        Some((whole, opening))
    }

    /// What has come of a message that is not whole.
    pub fn rest(&self) -> &[u8] {
        &self.buffer[self.begin..]
    }
}

fn opening(whole: &[u8]) -> Opening {
    match whole.get(4..8).map(|code| u32::from_be_bytes(code.try_into().expect("four bytes"))) {
        Some(TLS | GSS) => Opening::Encryption,
        Some(CANCEL) => Opening::Cancel,
        _ => Opening::Session,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(text: &str) -> Vec<u8> {
        let length = u32::try_from(text.len() + 5).unwrap();
        [b"Q", &length.to_be_bytes()[..], text.as_bytes(), b"\0"].concat()
    }

    #[test]
    fn messages_are_told_apart_wherever_they_are_torn() {
        let start = [&12u32.to_be_bytes()[..], &196_608u32.to_be_bytes(), b"u\0\0\0"].concat();
        let tls = [8u32.to_be_bytes(), TLS.to_be_bytes()].concat();
        let sent = [tls.clone(), start.clone(), query("SELECT 1"), query("")].concat();
        for piece in 1..sent.len() {
            let mut frames = Frames::of_client();
            let mut got = Vec::new();
            for bytes in sent.chunks(piece) {
                frames.push(bytes);
                while let Some(one) = frames.next() {
                    got.push(one);
                }
            }
            let wanted = vec![
                (tls.clone(), Some(Opening::Encryption)),
                (start.clone(), Some(Opening::Session)),
                (query("SELECT 1"), None),
                (query(""), None),
            ];
            assert_eq!(got, wanted, "in pieces of {piece}");
            assert!(frames.rest().is_empty());
        }
    }
}
