//! A candidate meets one error after the other: it goes on trying, and says so in few lines.

use crate::{cluster, pair_with_standby_behind_proxy, until, until_leads};
use orbit_support::wire::{Message, Side};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What PostgreSQL may answer to anything.
const CODES: [(&str, &str); 16] = [
    ("ERROR", "53000"),
    ("ERROR", "53100"),
    ("ERROR", "53200"),
    ("FATAL", "53300"),
    ("ERROR", "53400"),
    ("ERROR", "52000"),
    ("ERROR", "40001"),
    ("ERROR", "40P01"),
    ("ERROR", "55P03"),
    ("ERROR", "57014"),
    ("FATAL", "57P01"),
    ("FATAL", "57P03"),
    ("ERROR", "25006"),
    ("ERROR", "25P02"),
    ("ERROR", "0A000"),
    ("ERROR", "XX000"),
];

/// An answer of the server that says so.
fn error(severity: &str, code: &str) -> Vec<u8> {
    let mut fields = Vec::new();
    for (kind, text) in [(b'S', severity), (b'V', severity), (b'C', code), (b'M', "made up by a test")] {
        fields.push(kind);
        fields.extend_from_slice(text.as_bytes());
        fields.push(0);
    }
    fields.push(0);
    let length = u32::try_from(fields.len() + 4).expect("short").to_be_bytes();
    [&b"E"[..], &length, &fields].concat()
}

/// Whether the server answers a look at the lock of `b`.
fn answers_campaign(message: &Message) -> bool {
    message.from == Side::Server
        && &*message.application == "orbit-cluster:b"
        && message.statement.contains("pg_try_advisory_lock")
        && b"12tTnDC".contains(&message.tag)
}

#[test]
fn a_candidate_that_meets_one_error_after_another_keeps_trying_and_leads_in_the_end() {
    let cluster = cluster();
    let (a, b, proxy) = pair_with_standby_behind_proxy(&cluster);
    let left: Arc<Mutex<VecDeque<_>>> = Arc::new(Mutex::new(CODES.into()));
    let met = Arc::<AtomicUsize>::default();
    let (codes, meets) = (Arc::clone(&left), Arc::clone(&met));
    // The connection of which an answer was replaced, until the rest of that answer is over.
    let mut replaced = None;
    proxy.edit(move |message| {
        if replaced == Some(message.connection) && message.from == Side::Server {
            if message.tag == b'Z' {
                replaced = None;
                return None;
            }
            return Some(Vec::new());
        }
        if !answers_campaign(message) {
            return None;
        }
        let (severity, code) = codes.lock().expect("no panic").pop_front()?;
        meets.fetch_add(1, Ordering::SeqCst);
        replaced = Some(message.connection);
        Some(error(severity, code))
    });
    let lines = b.process.log().lines().count();
    a.process.kill();
    until_leads(&b);
    assert!(
        left.lock().expect("no panic").is_empty(),
        "{} of {} errors were met",
        met.load(Ordering::SeqCst),
        CODES.len()
    );
    until("word of the lead", || b.process.log().contains("cluster: leader is serving node_id=b"));
    let log = b.process.log();
    let said: Vec<&str> = log.lines().skip(lines).collect();
    assert!(said.len() <= 4 * CODES.len(), "{} lines for {} errors: {}", said.len(), CODES.len(), said.join("\n"));
}
