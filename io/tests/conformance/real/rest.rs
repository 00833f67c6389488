//! When a server has come to rest, so that what is seen of it then stays: every backend has answered, is gone, or waits
//! for a lock and has looked for a deadlock.
//!
//! That a backend waits is in `pg_locks`. That it has looked is said in the server's log (`log_lock_waits`), one line
//! for each wait, after `deadlock_timeout`. Nothing here is a matter of how long one waits.

use super::client::Client;
use super::sql::number;
use orbit_support::{Database, Postgres};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

/// What a server must be started with, beside what makes it fast.
const SETTINGS: &[(&str, &str)] = &[
    ("fsync", "off"),
    ("synchronous_commit", "off"),
    ("full_page_writes", "off"),
    ("autovacuum", "off"),
    ("log_lock_waits", "on"),
    ("log_min_messages", "log"),
    ("log_min_error_statement", "panic"),
    ("log_error_verbosity", "terse"),
    ("log_line_prefix", "%p|"),
];

/// A server whose backends say when they have looked for a deadlock.
pub struct Telling {
    pub server: Postgres,
    log: Mutex<Log>,
}

/// What the server's log has said.
struct Log {
    file: File,
    unread: Vec<u8>,
    /// For what lock a backend said last that it waits, when it had looked.
    looked: BTreeMap<i32, String>,
}

impl Telling {
    pub fn start() -> Telling {
        let server = Postgres::start(SETTINGS);
        let file = File::open(server.log_file()).expect("the server writes a log");
        Telling { server, log: Mutex::new(Log { file, unread: Vec::new(), looked: BTreeMap::new() }) }
    }

    /// For what each of these has looked last.
    fn looked(&self, pids: &[i32]) -> BTreeMap<i32, String> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.read();
        pids.iter().filter_map(|pid| Some((*pid, log.looked.get(pid)?.clone()))).collect()
    }
}

impl Log {
    fn read(&mut self) {
        let Log { file, unread, looked } = self;
        file.read_to_end(unread).expect("the log can be read");
        let whole = unread.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let lines: Vec<u8> = unread.drain(..whole).collect();
        for line in String::from_utf8_lossy(&lines).lines() {
            // 4711|LOG:  process 4711 still waiting for ShareLock on transaction 743 after 1.057 ms
            let told = line.split_once('|').and_then(|(pid, text)| {
                let (_, rest) = text.split_once(" still waiting for ")?;
                Some((pid.parse().ok()?, rest.rsplit_once(" after ")?.0.to_owned()))
            });
            looked.extend(told);
        }
    }
}

/// What a backend does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Does {
    /// It is no more: whatever it held is free.
    Gone,
    /// It may do something by itself yet.
    Something,
    /// It waits for a lock that these hold, or stand before it in line for, and will not go on before it is given it.
    Waits(Vec<i32>),
}

/// Looks at backends.
pub struct Watch<'a> {
    telling: &'a Telling,
    admin: Client,
}

const LOOK: &str = "PREPARE look (int[]) AS
    SELECT s.pid, l.mode || ' on ' || CASE l.locktype
            WHEN 'transactionid' THEN 'transaction ' || l.transactionid
            WHEN 'tuple' THEN format('tuple (%s,%s) of relation %s of database %s', page, tuple, relation, database)
            WHEN 'advisory' THEN format('advisory lock [%s,%s,%s,%s]', database, classid, objid, objsubid)
            ELSE '' END,
        CASE WHEN l.pid IS NULL THEN '{}' ELSE pg_blocking_pids(s.pid) END::text
    FROM pg_stat_get_activity(NULL) s LEFT JOIN pg_locks l ON l.pid = s.pid AND NOT l.granted
    WHERE s.pid = ANY ($1)";

impl<'a> Watch<'a> {
    pub fn new(telling: &'a Telling, database: &Database) -> Watch<'a> {
        let mut admin = Client::open(database);
        admin.query(LOOK);
        Watch { telling, admin }
    }

    /// A session of its own, for whatever else is to be done.
    pub fn admin(&mut self) -> &mut Client {
        &mut self.admin
    }

    /// A backend begins something new: what it waited for until now is of no interest any more.
    pub fn forget(&self, pid: i32) {
        let mut log = self.telling.log.lock().unwrap_or_else(PoisonError::into_inner);
        log.read();
        log.looked.remove(&pid);
    }

    /// Whether each of these has looked for a deadlock since its beginning: before, none of them waits. It asks nobody.
    pub fn have_looked(&self, pids: &[i32]) -> bool {
        self.telling.looked(pids).len() == pids.len()
    }

    /// What each of these backends does.
    pub fn look(&mut self, pids: &[i32]) -> BTreeMap<i32, Does> {
        let list: Vec<String> = pids.iter().map(ToString::to_string).collect();
        // First: what a backend does when it looks for a deadlock is done before it says so.
        let looked = self.telling.looked(pids);
        let rows = self.admin.query(&format!("EXECUTE look ('{{{}}}')", list.join(",")));
        let mut all: BTreeMap<i32, Does> = pids.iter().map(|pid| (*pid, Does::Gone)).collect();
        for row in rows {
            let pid = number(&row[0]);
            let waits = row[1].is_some() && row[1].as_ref() == looked.get(&pid);
            let on = row[2].as_deref().unwrap_or_default().trim_matches(['{', '}']).split(',');
            let on = on.filter(|pid| !pid.is_empty()).map(|pid| pid.parse().expect("a number")).collect();
            all.insert(pid, if waits { Does::Waits(on) } else { Does::Something });
        }
        all
    }
}
