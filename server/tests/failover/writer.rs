//! Clients that write to one server, one request after the other, and write down what each was told and when.

use crate::common::raw::{self, Answer};
use crate::common::tables;
use orbit_sdk::json;
use orbit_support::{Database, Host};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// A workflow that ends in the append that starts it.
pub const PING: &str = "name: Ping\nversion: 1.0.0\nsteps: [{id: echo, compute: '1'}]\n";
/// How long an answer is waited for: a server that stands still gives none.
const ANSWERED_WITHIN: Duration = Duration::from_secs(2);

/// What a start was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// It is there, for good.
    Acknowledged,
    /// It is not there, and never will be.
    Refused,
    /// It may be there.
    Unknown,
}

/// A start that was asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    pub id: String,
    pub sent: Instant,
    pub heard: Instant,
    pub said: Said,
}

/// Clients of one server.
pub struct Writers {
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
    threads: Vec<JoinHandle<Vec<Asked>>>,
}

impl Writers {
    /// So many clients of the server at this address, each of which starts a [`PING`] and then rests for so long.
    pub fn begin(name: &str, addr: SocketAddr, clients: usize, rest: Duration) -> Writers {
        Writers::begin_at(None, name, addr, clients, rest)
    }

    /// The same, on another host.
    pub fn begin_at(host: Option<&Host>, name: &str, addr: SocketAddr, clients: usize, rest: Duration) -> Writers {
        let (stop, acknowledged) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let writer = |client: usize| {
            let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            let (name, host) = (name.to_owned(), host.cloned());
            thread::spawn(move || {
                if let Some(host) = host {
                    host.enter();
                }
                let mut asked = Vec::new();
                while !stop.load(Ordering::SeqCst) {
                    let begun = Instant::now();
                    let start = ask(addr, format!("{name}-{client}-{}", asked.len()));
                    acknowledged.fetch_add(usize::from(start.said == Said::Acknowledged), Ordering::SeqCst);
                    asked.push(start);
                    thread::sleep(rest.saturating_sub(begun.elapsed()));
                }
                asked
            })
        };
        let threads = (0..clients).map(writer).collect();
        Writers { stop, acknowledged, threads }
    }

    /// How many were acknowledged so far.
    pub fn acknowledged(&self) -> usize {
        self.acknowledged.load(Ordering::SeqCst)
    }

    /// Ends them; everything that they asked for.
    pub fn end(self) -> Vec<Asked> {
        self.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().flat_map(|thread| thread.join().expect("no client panics")).collect()
    }
}

fn ask(addr: SocketAddr, id: String) -> Asked {
    let body = json!({"workflow": "Ping", "execution_id": id}).to_string();
    let head = "POST /v1/executions HTTP/1.1\r\ncontent-type: application/json\r\n";
    let sent = Instant::now();
    let answer = raw::try_send(addr, head, body.as_bytes(), ANSWERED_WITHIN);
    let said = answer.map_or_else(|error| of_error(&error), |answer| said(&answer));
    Asked { id, sent, heard: Instant::now(), said }
}

fn of_error(error: &std::io::Error) -> Said {
    // Nobody listens there. Everything else may come after the request was read.
    if error.kind() == std::io::ErrorKind::ConnectionRefused { Said::Refused } else { Said::Unknown }
}

/// What an answer to a start says of it.
pub fn said(answer: &Answer) -> Said {
    if answer.status == 201 || answer.status == 200 {
        return Said::Acknowledged;
    }
    match answer.error().1.as_str() {
        "OUTCOME_UNKNOWN" => Said::Unknown,
        _ => Said::Refused,
    }
}

/// What was acknowledged is in the database, what was refused is not, and the tables agree with each other; the faults.
pub fn faults(database: &Database, asked: &[Asked]) -> Vec<String> {
    let mut client = database.connect();
    let rows = client.query("SELECT execution_id FROM workflow_executions", &[]).expect("the table can be read");
    let there: BTreeSet<String> = rows.iter().map(|row| row.get(0)).collect();
    let mut faults = tables::faults(&mut client);
    for Asked { id, said, .. } in asked {
        match said {
            Said::Acknowledged if !there.contains(id) => faults.push(format!("{id} was acknowledged, and is lost")),
            Said::Refused if there.contains(id) => faults.push(format!("{id} was refused, and is there")),
            _ => {}
        }
    }
    faults
}

/// Of these, when the last one was acknowledged, and the first one.
pub fn last_acknowledged(asked: &[Asked]) -> Option<Instant> {
    acknowledged(asked).map(|asked| asked.heard).max()
}

pub fn first_acknowledged(asked: &[Asked]) -> Option<Instant> {
    acknowledged(asked).map(|asked| asked.heard).min()
}

fn acknowledged(asked: &[Asked]) -> impl Iterator<Item = &Asked> {
    asked.iter().filter(|asked| asked.said == Said::Acknowledged)
}
