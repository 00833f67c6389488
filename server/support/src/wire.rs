//! A proxy before a PostgreSQL that knows its messages: it shows each of them to a rule, and does with it what the rule
//! says. So a test stops, delays or cuts a session exactly between two messages, or in the middle of one.
//!
//! ```no_run
//! use orbit_support::Postgres;
//! use orbit_support::wire::{Action, Cut, Proxy};
//!
//! let database = Postgres::shared().fresh();
//! let proxy = Proxy::before(database.port);
//! // The client is told nothing of a commit that takes effect.
//! proxy.rule(|message| if message.is_commit() { Action::Cut(Cut::client_after()) } else { Action::Pass });
//! let client = proxy.database(&database).connect();
//! ```
//!
//! Sessions are in plain text: a request for encryption is answered with no. Requests of cancellation pass as a connection
//! of their own.

mod connection;
mod frame;
#[cfg(test)]
mod tests;
mod track;

use crate::postgres::Database;
use connection::Connection;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// One message of one session.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Which connection, in the order of their coming, from 0.
    pub connection: u64,
    /// Which message of this connection, from 0, counted over both directions.
    pub number: u64,
    /// Who sent it.
    pub from: Side,
    /// Its type byte, such as `b'Q'`; [`STARTUP`] and [`CANCEL`] stand for those that have none.
    pub tag: u8,
    /// The session's `application_name`, as it was at the start or as the server has said since.
    pub application: Arc<str>,
    /// The process id of the server's backend, once it has said it.
    pub backend: Option<i32>,
    /// The SQL that it is about: of a message of the client that names a statement, this statement; of others, the one
    /// that the client named last. Empty before the first.
    pub statement: Arc<str>,
    /// All of it, type byte and length included.
    pub bytes: Vec<u8>,
}

/// The tag of a start of a session.
pub const STARTUP: u8 = 0;
/// The tag of a request to cancel another session's statement.
pub const CANCEL: u8 = 1;

/// One of the two that talk through the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    Client,
    Server,
}

impl Side {
    /// The one that it talks to.
    pub fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

impl Message {
    /// Whether the client sends this: `tag` is the message's type byte.
    pub fn is_from_client(&self, tag: u8) -> bool {
        self.from == Side::Client && self.tag == tag
    }

    /// Whether it makes the server run something: a simple query, or what was prepared.
    pub fn runs(&self) -> bool {
        self.is_from_client(b'Q') || self.is_from_client(b'E')
    }

    /// Whether it runs a COMMIT.
    pub fn is_commit(&self) -> bool {
        self.runs() && self.statement.trim_end_matches(';').eq_ignore_ascii_case("commit")
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Message { connection, number, application, statement, bytes, .. } = self;
        let arrow = if self.from == Side::Client { "->" } else { "<-" };
        let tag = match self.tag {
            STARTUP => "startup".into(),
            CANCEL => "cancel".into(),
            tag => char::from(tag).to_string(),
        };
        write!(f, "{connection}.{number} {arrow} {tag} ({} bytes) {application} {statement:?}", bytes.len())
    }
}

/// What is done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It goes on.
    Pass,
    /// It waits, and what comes after it in its direction with it, until [`Proxy::decide`] says what is done.
    Hold,
    /// It goes on that much later.
    Delay(Duration),
    /// The connection is cut.
    Cut(Cut),
    /// From this message on nothing of the session goes on, in neither direction, not even its end: it is taken and
    /// thrown away.
    BlackHole,
}

/// How a connection is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    pub at: At,
    pub ends: Ends,
    pub how: How,
}

/// Where the message is that the cut is made at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// It has not been forwarded.
    Before,
    /// So many of its bytes have; half of it, if there are not as many.
    Inside(usize),
    /// It has.
    After,
}

/// Who loses the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    Both,
    /// The server is told nothing, and goes on; what it says is thrown away.
    Client,
    /// The client is told nothing: it waits for what never comes.
    Server,
}

impl Ends {
    fn has(self, side: Side) -> bool {
        match self {
            Ends::Both => true,
            Ends::Client => side == Side::Client,
            Ends::Server => side == Side::Server,
        }
    }
}

/// How an end is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As a host does that knows nothing of the connection: with RST.
    Reset,
    /// As a process does that ends: with FIN.
    Finish,
}

impl Cut {
    /// The message is lost, and the connection with it, for both.
    pub fn before() -> Cut {
        Cut { at: At::Before, ends: Ends::Both, how: How::Reset }
    }

    /// The message arrives, and both lose the connection.
    pub fn after() -> Cut {
        Cut { at: At::After, ends: Ends::Both, how: How::Reset }
    }

    /// Half of the message arrives, and both lose the connection.
    pub fn inside() -> Cut {
        Cut { at: At::Inside(usize::MAX), ends: Ends::Both, how: How::Reset }
    }

    /// The message arrives; the client alone loses the connection, and the server does all that it was told.
    pub fn client_after() -> Cut {
        Cut { at: At::After, ends: Ends::Client, how: How::Reset }
    }
}

type Rule = Box<dyn FnMut(&Message) -> Action + Send>;
type Edit = Box<dyn FnMut(&Message) -> Option<Vec<u8>> + Send>;

/// A message that is held.
#[derive(Clone, Debug)]
pub struct Held {
    ticket: u64,
    pub message: Message,
}

/// The proxy. When it is dropped, every connection through it ends.
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
}

/// What the threads of a proxy share.
struct Shared {
    server: u16,
    rule: Mutex<Rule>,
    edit: Mutex<Edit>,
    state: Mutex<State>,
    changed: Condvar,
    closed: AtomicBool,
}

#[derive(Default)]
struct State {
    connections: BTreeMap<u64, Arc<Connection>>,
    /// Counts the connections and what is held.
    next: u64,
    tickets: u64,
    held: BTreeMap<u64, Waiting>,
}

struct Waiting {
    message: Message,
    decided: Option<Action>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whoever waits for something that has changed outside the state.
    fn tell(&self) {
        let _state = self.state();
        self.changed.notify_all();
    }

    /// Waits until it is decided what is done with a message that is held; none when its connection is over.
    fn wait(&self, message: Message, connection: &Connection) -> Option<Action> {
        let mut state = self.state();
        let ticket = state.tickets;
        state.tickets += 1;
        state.held.insert(ticket, Waiting { message, decided: None });
        self.changed.notify_all();
        loop {
            let decided = state.held.get(&ticket).and_then(|waiting| waiting.decided);
            if decided.is_some() || connection.is_over() {
                state.held.remove(&ticket);
                self.changed.notify_all();
                return decided;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Proxy {
    /// Listens on a free port, and connects whoever comes to this port of this host. Everything passes at first.
    pub fn before(server: u16) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("there are free ports");
        let port = listener.local_addr().expect("a bound address").port();
        let shared = Arc::new(Shared {
            server,
            rule: Mutex::new(Box::new(|_| Action::Pass)),
            edit: Mutex::new(Box::new(|_| None)),
            state: Mutex::default(),
            changed: Condvar::new(),
            closed: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        thread::spawn(move || accept(&listener, &accepting));
        Proxy { port, shared }
    }

    /// A database, as it is reached through the proxy.
    pub fn database(&self, database: &Database) -> Database {
        Database { name: database.name.clone(), port: self.port }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// From now on this rule is asked about every message, of one after the other. It must not block.
    pub fn rule(&self, rule: impl FnMut(&Message) -> Action + Send + 'static) {
        *self.shared.rule.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(rule);
    }

    /// From now on this says what goes on in place of each message that goes on whole, whatever was done with it before:
    /// other bytes, of none, one or several messages, or the message itself. It must not block.
    pub fn edit(&self, edit: impl FnMut(&Message) -> Option<Vec<u8>> + Send + 'static) {
        *self.shared.edit.lock().unwrap_or_else(PoisonError::into_inner) = Box::new(edit);
    }

    /// From now on everything passes; what is held stays held.
    pub fn pass_all(&self) {
        self.rule(|_| Action::Pass);
    }

    /// What is held and not decided yet, in the order in which it came.
    pub fn held(&self) -> Vec<Held> {
        held(&self.shared.state())
    }

    /// The first message that is held and meets the condition, waited for; none within `patience`.
    pub fn next_held(&self, patience: Duration, is_meant: impl Fn(&Message) -> bool) -> Option<Held> {
        let until = Instant::now() + patience;
        let mut state = self.shared.state();
        loop {
            if let Some(found) = held(&state).into_iter().find(|held| is_meant(&held.message)) {
                return Some(found);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return None;
            }
            state = self.shared.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Says what is done with a message that is held. Whether it was still held: its connection may have been cut.
    pub fn decide(&self, held: &Held, action: Action) -> bool {
        assert!(action != Action::Hold, "it is held already");
        let mut state = self.shared.state();
        let waiting = state.held.get_mut(&held.ticket).filter(|waiting| waiting.decided.is_none());
        let is_held = waiting.map(|waiting| waiting.decided = Some(action)).is_some();
        self.shared.changed.notify_all();
        is_held
    }

    /// Lets a message go on that is held.
    pub fn release(&self, held: &Held) -> bool {
        self.decide(held, Action::Pass)
    }

    /// Lets everything go on that is held now.
    pub fn release_all(&self) {
        for held in self.held() {
            self.release(&held);
        }
    }

    /// Cuts a connection now, between two messages or wherever it is. `at` of the cut has no meaning.
    pub fn cut(&self, connection: u64, ends: Ends, how: How) {
        let found = self.shared.state().connections.get(&connection).cloned();
        if let Some(connection) = found {
            connection.cut(ends, how);
            self.shared.tell();
        }
    }

    /// Cuts every connection.
    pub fn cut_all(&self, ends: Ends, how: How) {
        for connection in self.connections() {
            self.cut(connection, ends, how);
        }
    }

    /// Takes what a connection sends from now on, and forwards nothing.
    pub fn black_hole(&self, connection: u64) {
        if let Some(connection) = self.shared.state().connections.get(&connection) {
            connection.swallow();
        }
    }

    /// The connections that are open on one side at least.
    pub fn connections(&self) -> Vec<u64> {
        let state = self.shared.state();
        state.connections.iter().filter(|(_, one)| !one.is_over()).map(|(number, _)| *number).collect()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closed.store(true, Ordering::SeqCst);
        self.cut_all(Ends::Both, How::Finish);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn held(state: &State) -> Vec<Held> {
    let undecided = state.held.iter().filter(|(_, waiting)| waiting.decided.is_none());
    undecided.map(|(ticket, waiting)| Held { ticket: *ticket, message: waiting.message.clone() }).collect()
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    while let Ok((client, _)) = listener.accept() {
        if shared.closed.load(Ordering::SeqCst) {
            return;
        }
        // A server that is not there: the client is told so by the end of its connection.
        let Ok(server) = TcpStream::connect(("127.0.0.1", shared.server)) else { continue };
        let mut state = shared.state();
        let number = state.next;
        state.next += 1;
        state.connections.retain(|_, connection| !connection.is_over());
        let connection = Arc::new(Connection::new(number, client, server));
        state.connections.insert(number, Arc::clone(&connection));
        drop(state);
        for from in [Side::Client, Side::Server] {
            let (connection, shared) = (Arc::clone(&connection), Arc::clone(shared));
            thread::spawn(move || connection.carry(from, &shared));
        }
    }
}
