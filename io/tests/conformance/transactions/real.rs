//! Nodes on a real PostgreSQL: `io`'s own stores, each behind a proxy that stops at every message that does something.
//!
//! A statement alone is stopped at twice: before it, and before the Sync that commits it. Behind its Execute the proxy
//! asks for what the server has to say (Flush), so that it is known when the statement has ended.

use super::{HASTY_MS, Next, Stands, normal};
use crate::postgres;
use crate::real::rest::{Does, Telling, Watch};
use crate::{kind_of, normal_rows};
use orbit_core::cluster::{Elected, Mode};
use orbit_core::id::ClusterId;
use orbit_core::node::{CallId, Connection};
use orbit_core::store::append::Fence;
use orbit_core::store::transaction::Transaction;
use orbit_io::driver::{Attached, Backend, Witness};
use orbit_io::postgres::{Address, Migrate, PostgresBackend, PostgresStore, Timeouts};
use orbit_support::Database;
use orbit_support::wire::{Action, Held, Message, Proxy, Side};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A server that has not come to rest by then hangs.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOKS: Duration = Duration::from_micros(200);
/// Nothing ends by itself but the waits of a hasty node.
const NEVER: Duration = Duration::from_secs(100_000);
/// So many nodes are kept, and a hasty one, whose number is 0.
const NODES: u32 = 4;
const HASTY: u32 = 0;

/// Under what the planner plans, of a whole database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Circumstances {
    setting: &'static str,
    /// Whether its tables were analysed when they were empty; else never.
    analysed: bool,
}

const PLANNERS: [&str; 6] = [
    "enable_sort = on",
    "enable_nestloop = off",
    "enable_hashjoin = off",
    "enable_mergejoin = off",
    "plan_cache_mode = force_generic_plan",
    "enable_indexscan = off",
];

impl Circumstances {
    pub fn of(number: u64) -> Circumstances {
        let planners = PLANNERS.len() as u64;
        Circumstances { setting: PLANNERS[(number % planners) as usize], analysed: number / planners % 2 == 1 }
    }
}

/// A change of `io`'s statements on their way to the server: what stands there, and what is put in its place.
pub type Change = (&'static str, &'static str);

/// A database, and nodes on it.
pub struct Nodes<'a> {
    database: Database,
    watch: Watch<'a>,
    client: ::postgres::Client,
    nodes: BTreeMap<u32, Node>,
    /// Which of them this interleaving is of.
    chosen: BTreeMap<u32, u32>,
    change: Option<Change>,
    begun: u64,
}

struct Node {
    /// Before the store: once its connections are cut, that can end.
    proxy: Proxy,
    attached: Attached<PostgresBackend>,
    witness: Witness,
    lines: Lines,
    calls: u64,
    /// The backend of its election connection, which may hold the lock.
    elected: Option<i32>,
    /// Connections whose backend was ended: what the proxy holds of them for a moment more is nobody's.
    ended: BTreeSet<u64>,
    current: Option<Current>,
    last: Option<Stands>,
}

struct Current {
    connection: Connection,
    /// It is not stopped at, once it has begun: whether it only reads.
    reads: bool,
    released: bool,
    backend: Option<i32>,
    /// Which connection through the proxy it runs on.
    through: Option<u64>,
    doomed: bool,
}

/// What the proxy has seen of each connection.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<BTreeMap<u64, Line>>>);

#[derive(Clone, Copy, Default)]
struct Line {
    /// Between BEGIN and COMMIT.
    in_block: bool,
    alone: Alone,
    /// Its Execute has gone on, and its Sync has not come.
    is_executed: bool,
    /// The last column of the last row is not a false.
    says_yes: bool,
    /// The first column of the last row is false, and the last one NULL.
    found_nothing: bool,
}

/// How far a statement is that stands in no transaction block.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Alone {
    #[default]
    None,
    Runs,
    Done,
    Failed,
}

impl Lines {
    fn all(&self) -> MutexGuard<'_, BTreeMap<u64, Line>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of(&self, held: &Held) -> Line {
        self.all().get(&held.message.connection).copied().unwrap_or_default()
    }

    /// A node is stopped before a statement, before the end of one that stands alone, and before the end of a transaction.
    fn stops(&self, message: &Message) -> Action {
        let mut all = self.all();
        let line = all.entry(message.connection).or_default();
        match (message.from, message.tag) {
            (Side::Client, _) if is_passed(&message.statement) => {}
            (Side::Client, b'B') => return Action::Hold,
            (Side::Client, b'E') if !line.in_block => (line.alone, line.is_executed) = (Alone::Runs, true),
            // Not what ends a Parse, while the end of what was before is yet to come.
            (Side::Client, b'S') if std::mem::take(&mut line.is_executed) => return Action::Hold,
            (Side::Client, b'Q') if matches!(message.statement.trim(), "COMMIT" | "ROLLBACK") => return Action::Hold,
            // The first message that follows fixes what all of it sees, be it a Parse.
            (Side::Client, b'Q') if message.statement.starts_with("BEGIN ISOLATION") => return Action::Hold,
            (Side::Server, b'C') if line.alone == Alone::Runs => line.alone = Alone::Done,
            (Side::Server, b'E') if line.alone == Alone::Runs => line.alone = Alone::Failed,
            (Side::Server, b'D') => {
                line.says_yes = message.bytes.last() != Some(&0);
                line.found_nothing = message.bytes.get(11) == Some(&0) && message.bytes.ends_with(&[0xff; 4]);
            }
            (Side::Server, b'Z') => {
                line.in_block = message.bytes.last() != Some(&b'I');
                line.alone = Alone::None;
            }
            _ => {}
        }
        Action::Pass
    }

    fn edits(&self, message: &Message, change: Option<Change>) -> Option<Vec<u8>> {
        const FLUSH: [u8; 5] = [b'H', 0, 0, 0, 4];
        if message.is_from_client(b'E') && self.all().get(&message.connection)?.alone == Alone::Runs {
            return Some([message.bytes.as_slice(), &FLUSH].concat());
        }
        let (from, to) = change.filter(|_| message.is_from_client(b'P'))?;
        let text = String::from_utf8(message.bytes[5..].to_vec()).ok().filter(|text| text.contains(from))?;
        let body = text.replace(from, to).into_bytes();
        let length = u32::try_from(body.len() + 4).expect("a statement is not that long").to_be_bytes();
        Some([b"P", length.as_slice(), &body].concat())
    }
}

/// What a new connection asks, what is read for the metrics, and the second statement of a deployment, which follows the
/// first at once.
fn is_passed(statement: &str) -> bool {
    statement.contains("server_version_num")
        || statement.contains("pg_notification_queue_usage")
        || statement.starts_with("SELECT hash, deploy_key")
}

/// The first statement of a deployment, which says at last whether a definition was made.
fn is_definition(statement: &str) -> bool {
    statement.contains("INSERT INTO workflow_definitions")
}

/// The statement of a server that says that it lives, which says first whether it wrote, and last what was there before.
fn is_beat(statement: &str) -> bool {
    statement.contains("INSERT INTO orbit_nodes")
}

fn next(held: &Held) -> Next {
    match (held.message.tag, held.message.statement.trim()) {
        (b'S', _) | (_, "COMMIT") => Next::Commit,
        (_, "ROLLBACK") => Next::Rollback,
        _ => Next::Statement,
    }
}

impl Node {
    fn open(database: &Database, number: u32, change: Option<Change>) -> Node {
        let proxy = Proxy::before(database.port);
        let lines = Lines::default();
        let seen = lines.clone();
        proxy.edit(move |message| seen.edits(message, change));
        let address = Address::parse(&proxy.database(database).url()).expect("an address");
        let timeouts = Timeouts {
            write: NEVER,
            read: NEVER,
            lock: if number == HASTY { Duration::from_millis(HASTY_MS) } else { NEVER },
            idle_in_transaction: NEVER,
            election_idle: NEVER,
        };
        let witness = Witness::keeping();
        let store = PostgresStore::open(address, format!("node-{number}").as_str(), timeouts, Migrate::Auto);
        let attached = store.expect("the database opens").seen_by(witness.clone()).attach();
        let seen = lines.clone();
        proxy.rule(move |message| seen.stops(message));
        Node {
            proxy,
            attached,
            witness,
            lines,
            calls: 0,
            elected: None,
            ended: BTreeSet::new(),
            current: None,
            last: None,
        }
    }

    fn begin(&mut self, connection: Connection, transaction: Transaction) {
        assert!(self.current.is_none(), "a node runs one transaction at a time");
        self.calls += 1;
        let reads = !transaction.writes();
        self.current =
            Some(Current { connection, reads, released: false, backend: None, through: None, doomed: false });
        self.attached.backend.run(connection, CallId(self.calls), transaction, None);
    }

    fn held(&self) -> Option<Held> {
        self.proxy.held().into_iter().find(|held| !self.ended.contains(&held.message.connection))
    }

    /// The message that it stands before goes on.
    fn step(&mut self, watch: &Watch<'_>) {
        let held = self.held().expect("it stands before a message");
        let current = self.current.as_mut().expect("it runs a transaction");
        current.released = true;
        if let Some(backend) = current.backend {
            watch.forget(backend);
        }
        self.proxy.release(&held);
    }

    /// Hears what has come. Whether something may come yet by itself.
    fn listens(&mut self) -> bool {
        let Some(current) = &mut self.current else { return false };
        if let Ok(reply) = self.attached.replies.try_recv() {
            assert_eq!(reply.call, CallId(self.calls), "a node has one call under way");
            self.last = Some(Stands::Replied(normal(reply.reply), normal_rows(self.witness.take())));
            self.current = None;
            return false;
        }
        let is_ours = |held: &Held| !self.ended.contains(&held.message.connection);
        let held = self.proxy.held().into_iter().find(is_ours);
        let Some(held) = held.filter(|_| !current.doomed) else { return true };
        current.backend = held.message.backend.or(current.backend);
        current.through = Some(held.message.connection);
        if current.connection == Connection::Election {
            self.elected = current.backend;
        }
        let line = self.lines.of(&held);
        let goes_on = match (held.message.tag, line.alone) {
            (b'S', Alone::Runs) => return true,
            // The error has ended it.
            (b'S', Alone::Failed) => true,
            // Nothing was made, so that `io` looks again.
            (b'S', _) if is_definition(&held.message.statement) && !line.says_yes => true,
            // A row that came in between was in the way, so that `io` says that it is to be tried again.
            (b'S', _) if is_beat(&held.message.statement) && line.found_nothing => true,
            (b'S', Alone::Done) => current.reads,
            // The end of what was before is to come yet.
            (_, Alone::Runs | Alone::Done | Alone::Failed) => return true,
            _ => current.reads && current.released,
        };
        if goes_on {
            self.proxy.release(&held);
            return true;
        }
        self.last = Some(Stands::Before(next(&held)));
        false
    }
}

impl<'a> Nodes<'a> {
    /// A new database.
    pub fn new(telling: &'a Telling, circumstances: Circumstances, change: Option<Change>) -> Nodes<'a> {
        let database = telling.server.fresh();
        let mut watch = Watch::new(telling, &database);
        for setting in [circumstances.setting, "deadlock_timeout = 1"] {
            watch.admin().query(&format!("ALTER DATABASE {} SET {setting}", database.name));
        }
        let first = Node::open(&database, 1, change);
        if circumstances.analysed {
            watch.admin().query("ANALYZE");
        }
        let (client, nodes) = (database.connect(), BTreeMap::from([(1, first)]));
        Nodes { database, watch, client, nodes, chosen: BTreeMap::new(), change, begun: 0 }
    }

    pub fn cluster_id(&mut self) -> ClusterId {
        ClusterId(self.client.query_one("SELECT cluster_id FROM orbit_cluster", &[]).expect("it reads").get(0))
    }

    /// Empty tables of this mode and election, on which this writer may write, and so many nodes.
    pub fn begin_again(&mut self, nodes: u32, hasty: Option<u32>, fence: Fence, (mode, election): (Mode, Elected)) {
        assert!(nodes <= NODES, "so many nodes are kept");
        self.chosen = (1..=nodes).map(|number| (number, if hasty == Some(number) { HASTY } else { number })).collect();
        for number in self.chosen.values() {
            let open = || Node::open(&self.database, *number, self.change);
            self.nodes.entry(*number).or_insert_with(open).last = None;
        }
        // Election connections give their lock back by their end, which they are told of by what fails.
        for node in self.nodes.values_mut() {
            let Some(backend) = node.elected.take() else { continue };
            self.watch.admin().query(&format!("SELECT pg_terminate_backend({backend}, 20000)"));
            node.begin(Connection::Election, Transaction::Check);
            while node.listens() || node.current.is_some() {
                match node.held() {
                    Some(_) => node.step(&self.watch),
                    None => std::thread::sleep(LOOKS),
                }
            }
            (node.elected, node.last) = (None, None);
        }
        let sql = format!(
            "DELETE FROM orbit_owners; DELETE FROM workflow_executions; DELETE FROM execution_events;
             DELETE FROM orbit_tasks; DELETE FROM workflow_definitions; DELETE FROM orbit_workers; DELETE FROM orbit_nodes;
             DELETE FROM execution_labels;
             UPDATE orbit_leases SET epoch = 0, node_id = NULL, host = NULL, incarnation = NULL, expires_ms = 0;
             UPDATE orbit_cluster SET mode = '{}', election = '{}', term = {}, incarnation = '{}', leader_node = NULL,
                 leader_addr = NULL, host = NULL, pid = NULL, since_ms = NULL",
            mode.as_str(),
            election.as_str(),
            fence.term.0,
            fence.incarnation.0
        );
        self.watch.admin().query(&sql);
        self.begun += 1;
        if self.begun.is_multiple_of(100) {
            self.watch.admin().query("VACUUM");
        }
    }

    fn node(&mut self, number: u32) -> &mut Node {
        self.nodes.get_mut(&self.chosen[&number]).expect("it was opened")
    }

    pub fn begin(&mut self, number: u32, transaction: Transaction) {
        self.node(number).begin(kind_of(&transaction), transaction);
    }

    pub fn step(&mut self, number: u32) {
        let node = self.nodes.get_mut(&self.chosen[&number]).expect("it was opened");
        node.step(&self.watch);
    }

    /// Ends the backend of a node's transaction.
    pub fn terminate(&mut self, number: u32) {
        let node = self.node(number);
        let current = node.current.as_mut().expect("it runs a transaction");
        current.doomed = true;
        let pid = current.backend.expect("it has a backend");
        node.ended.extend(current.through);
        if current.connection == Connection::Election {
            node.elected = None;
        }
        self.watch.admin().query(&format!("SELECT pg_terminate_backend({pid}, 20000)"));
    }

    /// The tables, as the model shows its own.
    pub fn dump(&mut self) -> serde_json::Value {
        postgres::dump(&mut self.client)
    }

    /// Waits until nothing happens any more, and says how every node stands that has begun something.
    pub fn rest(&mut self) -> Result<BTreeMap<u32, Stands>, String> {
        let begun = Instant::now();
        loop {
            let chosen: Vec<(u32, u32)> = self.chosen.iter().map(|(number, kept)| (*number, *kept)).collect();
            let listens = |(_, kept): &(u32, u32)| self.nodes.get_mut(kept).expect("it was opened").listens();
            let open: Vec<u32> = chosen.into_iter().filter(listens).map(|(number, _)| number).collect();
            if open.is_empty() || self.all_wait(&open) {
                let stands =
                    self.chosen.iter().filter_map(|(number, kept)| Some((*number, self.nodes[kept].last.clone()?)));
                return Ok(stands.collect());
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("PostgreSQL does not come to rest: {open:?}"));
            }
            std::thread::sleep(LOOKS);
        }
    }

    /// Whether all of these wait for a lock, and none can go on by itself.
    fn all_wait(&mut self, open: &[u32]) -> bool {
        let mut backends = Vec::new();
        for number in open {
            let kept = self.chosen[number];
            match &self.nodes[&kept].current {
                Some(Current { backend: Some(pid), doomed: false, released: true, .. }) if kept != HASTY => {
                    backends.push((*number, *pid));
                }
                _ => return false,
            }
        }
        let pids: Vec<i32> = backends.iter().map(|(_, pid)| *pid).collect();
        if !self.watch.have_looked(&pids) {
            return false;
        }
        let look = self.watch.look(&pids);
        let mut waits = Vec::new();
        for (number, pid) in backends {
            let Does::Waits(on) = &look[&pid] else { return false };
            let of = |pid: &i32| {
                let is_its = |kept: &u32| self.nodes[kept].current.as_ref().is_some_and(|c| c.backend == Some(*pid));
                self.chosen.iter().find(|(_, kept)| is_its(kept)).map_or(u32::MAX, |(number, _)| *number)
            };
            let on: BTreeSet<u32> = on.iter().map(of).collect();
            waits.push((number, Stands::Waits(on.into_iter().collect())));
        }
        for (number, stands) in waits {
            self.node(number).last = Some(stands);
        }
        true
    }
}
