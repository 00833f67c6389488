//! Where a session can be cut: at each message of each kind of transaction, and on which side of it.

use orbit_support::wire::{Action, At, Cut, Ends, How, Message, STARTUP, Side};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};

/// A message that a kind of transaction has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Step {
    /// The kind of transaction, such as `append with a start`.
    pub kind: &'static str,
    /// The connection: `store`, `election`, `control` or `requests`; empty before it has said so.
    pub role: &'static str,
    /// The statement that the message is about.
    pub statement: &'static str,
    pub from: Side,
    pub tag: u8,
}

/// Where the cut is, seen from the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// It never arrives.
    Before,
    /// Half of it arrives.
    Inside,
    /// It arrives, and nothing after it.
    After,
    /// It arrives, and the server does what it says without knowing that nobody listens any more.
    AfterUnknown,
}

/// A place to cut at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    pub step: Step,
    pub place: Place,
}

impl Position {
    /// Those of a message. A session of the election that is kept by a server which does not know that its client is
    /// gone keeps the lock for as long: that is no matter of single messages.
    pub fn of(step: &Step) -> Vec<Position> {
        let places: &[Place] = match (step.from, step.role) {
            (Side::Server, _) => &[Place::Before, Place::Inside],
            (Side::Client, "election" | "") => &[Place::Before, Place::After],
            (Side::Client, _) => &[Place::Before, Place::After, Place::AfterUnknown],
        };
        places.iter().map(|place| Position { step: step.clone(), place: *place }).collect()
    }

    fn cut(&self, how: How) -> Cut {
        match self.place {
            Place::Before => Cut { at: At::Before, ends: Ends::Both, how },
            Place::Inside => Cut { at: At::Inside(usize::MAX), ends: Ends::Both, how },
            Place::After => Cut { at: At::After, ends: Ends::Both, how },
            Place::AfterUnknown => Cut { at: At::After, ends: Ends::Client, how },
        }
    }
}

/// What makes a transaction of one kind out of a statement, by words that only it has.
const STATEMENTS: &[(&str, &str)] = &[
    ("(SELECT (m - 1)::int AS m, g, gid", "append"),
    ("WITH RECURSIVE f AS", "claim"),
    ("stray AS MATERIALIZED", "requeue strays"),
    ("INSERT INTO workflow_definitions", "put definition"),
    ("SELECT hash, deploy_key FROM workflow_definitions", "look at definition"),
    ("FROM workflow_definitions ORDER BY", "read definitions"),
    ("INSERT INTO orbit_workers", "put worker"),
    ("FROM orbit_workers", "read workers"),
    ("pg_try_advisory_lock($2)", "take lock"),
    ("SELECT cluster_id, mode, term", "read fence"),
    ("SET term = term + 1", "raise fence"),
    ("SET leader_node = NULL", "clear holder"),
    ("WITH back AS (UPDATE orbit_tasks", "requeue"),
    ("WITH asked AS MATERIALIZED", "read histories"),
    ("WITH current AS MATERIALIZED", "read history"),
    // It looks at next wakes as well.
    ("pg_notification_queue_usage()", "read figures"),
    ("SELECT next_wake_ms, execution_id FROM orbit_owners", "read due"),
    ("SELECT min(next_wake_ms)", "read next due"),
    ("SELECT count(*) FROM orbit_owners", "count running"),
    ("SELECT DISTINCT task_name", "read queues"),
    ("WHERE e.execution_id = $1", "read summary"),
    ("e.created_at_ms", "read summaries"),
    ("SET application_name", "set up"),
    ("client_connection_check_interval", "set check interval"),
    ("current_setting('server_version_num')", "look at server"),
    ("BEGIN", "begin"),
    ("COMMIT", "commit"),
    ("ROLLBACK", "rollback"),
];

/// What an append is about, by the events in it.
const EVENTS: &[(&[u8], &str)] = &[
    (b"\"WorkflowCreated\"", "append with a start"),
    (b"\"StepDispatched\"", "append with a dispatch"),
    (b"\"StepSucceeded\"", "append with a completion"),
    (b"\"StepAttemptFailed\"", "append with a failure"),
    (b"\"CancelRequested\"", "append with a cancel"),
    (b"\"TimerFired\"", "append with a timer"),
];

/// The kinds that a server has while it serves. Left out is what it has seldom: an append about nothing of the above (a
/// delivery that became uncertain, a late result), for which one would wait in vain.
pub const SERVING: &[&str] = &[
    "append with a start",
    "append with a dispatch",
    "append with a completion",
    "append with a failure",
    "append with a cancel",
    "append with a timer",
    "append, prepared",
    "claim",
    "due",
    "load",
    "deploy",
    "register",
    "workers",
    "get",
    "list",
    "history",
    "hold",
    "check",
    "figures",
    "connect",
];

/// The kinds that only a start and a stop have.
pub const STARTING: &[&str] = &["campaign", "recover", "release"];

fn kind(role: &str, statement: &'static str) -> &'static str {
    match (role, statement) {
        (_, "set up" | "set check interval" | "look at server" | "") => "connect",
        ("election", "take lock") => "hold",
        ("election", _) => "campaign",
        (_, "read figures") => "figures",
        ("control", _) => "check",
        (_, "claim") => "claim",
        (_, "requeue strays") => "sweep",
        (_, "clear holder") => "release",
        (_, "read due" | "read next due") => "due",
        (_, "read histories") => "load",
        (_, "append") => "append, prepared",
        ("store", _) => "recover",
        (_, "put definition" | "look at definition") => "deploy",
        (_, "put worker") => "register",
        (_, "read workers") => "workers",
        (_, "read summary") => "get",
        (_, "read summaries") => "list",
        (_, "read history") => "history",
        _ => "another",
    }
}

/// What the cutter knows of a connection.
#[derive(Default)]
struct Session {
    role: &'static str,
    /// Inside BEGIN and COMMIT.
    framed: bool,
    /// What the append that is under way is about.
    about: Vec<&'static str>,
}

#[derive(Default)]
struct State {
    sessions: BTreeMap<u64, Session>,
    /// How often each was seen.
    seen: BTreeMap<Step, u64>,
    armed: Vec<(Position, How)>,
    hits: VecDeque<Hit>,
}

/// A cut that was made.
pub struct Hit {
    pub position: Position,
    /// The connection that was cut.
    pub connection: u64,
}

/// Sees every message, remembers which there are, and cuts where it was told to, once at each place.
#[derive(Clone, Default)]
pub struct Cutter(Arc<Mutex<State>>);

impl Cutter {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("no panic")
    }

    /// The proxy's rule.
    pub fn rule(&self) -> impl FnMut(&Message) -> Action + Send + 'static {
        let cutter = self.clone();
        move |message| cutter.state().look(message)
    }

    /// The messages that were seen so far.
    pub fn seen(&self) -> BTreeSet<Step> {
        self.state().seen.keys().cloned().collect()
    }

    /// How often this one was.
    pub fn count(&self, step: &Step) -> u64 {
        self.state().seen.get(step).copied().unwrap_or_default()
    }

    /// The next cuts are at these places and no others, each where a message of its kind comes next.
    pub fn arm(&self, positions: &[Position], how: How) {
        let mut state = self.state();
        state.armed = positions.iter().map(|position| (position.clone(), how)).collect();
        state.hits.clear();
    }

    pub fn disarm(&self) {
        self.state().armed.clear();
    }

    /// The oldest cut that was not told yet.
    pub fn hit(&self) -> Option<Hit> {
        self.state().hits.pop_front()
    }

    /// The connections of this role, in the order of their coming.
    pub fn connections(&self, role: &str) -> Vec<u64> {
        let state = self.state();
        state.sessions.iter().filter(|(_, session)| session.role == role).map(|(number, _)| *number).collect()
    }
}

impl State {
    fn look(&mut self, message: &Message) -> Action {
        if message.tag == STARTUP {
            self.sessions.insert(message.connection, Session::default());
        }
        let session = self.sessions.entry(message.connection).or_default();
        let steps = session.steps(message);
        let action = match self.armed.iter().position(|(position, _)| steps.contains(&position.step)) {
            Some(index) => {
                let (position, how) = self.armed.swap_remove(index);
                let cut = Action::Cut(position.cut(how));
                self.hits.push_back(Hit { position, connection: message.connection });
                cut
            }
            None => Action::Pass,
        };
        for step in steps {
            *self.seen.entry(step).or_default() += 1;
        }
        action
    }
}

impl Session {
    /// What a message is: one step, or one for each thing that an append is about.
    fn steps(&mut self, message: &Message) -> Vec<Step> {
        let sql = &*message.statement;
        if message.tag != STARTUP && self.role.is_empty() {
            self.role = role(sql);
        }
        // Errors, notices and settings come when they come. So does the word that a statement was closed (`3`): the driver
        // closes one that was dropped whenever it talks to the server next, so that it belongs to no transaction.
        let is_usual = match message.from {
            Side::Client => message.tag == STARTUP || b"QPBDES".contains(&message.tag),
            Side::Server => b"RK12tTnDCZ".contains(&message.tag),
        };
        if self.role == "tool" || !is_usual {
            return Vec::new();
        }
        let known = STATEMENTS.iter().find(|(words, _)| sql.contains(words));
        let statement = known.map_or("", |(_, statement)| *statement);
        if message.from == Side::Client {
            match statement {
                "begin" => self.framed = true,
                "append" if message.tag == b'P' => self.about.clear(),
                "append" if message.tag == b'B' => {
                    let has = |event: &[u8]| message.bytes.windows(event.len()).any(|bytes| bytes == event);
                    self.about = EVENTS.iter().filter(|(event, _)| has(event)).map(|(_, kind)| *kind).collect();
                }
                _ => {}
            }
        }
        let mut kinds = match statement {
            "append" if !self.about.is_empty() => self.about.clone(),
            "append" if !is_of_preparing(message) => vec!["append about something else"],
            "take lock" | "read fence" if self.framed => vec!["campaign"],
            _ => vec![kind(self.role, statement)],
        };
        kinds.dedup();
        if matches!(statement, "commit" | "rollback") && message.tag == b'Z' {
            self.framed = false;
        }
        let (role, from, tag) = (self.role, message.from, message.tag);
        kinds.into_iter().map(|kind| Step { kind, role, statement, from, tag }).collect()
    }
}

/// Whether a message is one of those with which a statement is prepared; those that end a round trip are the same when it
/// is run.
fn is_of_preparing(message: &Message) -> bool {
    match message.from {
        Side::Client => b"PDS".contains(&message.tag),
        Side::Server => b"1tTnZ".contains(&message.tag),
    }
}

/// The role that a connection gives itself when it is set up.
fn role(sql: &str) -> &'static str {
    let roles = ["store", "election", "control", "requests", "tool"];
    let name = sql.split('\'').nth(1).filter(|_| sql.starts_with("SET application_name"));
    let said = name.and_then(|name| name.rsplit(':').next());
    said.and_then(|said| roles.into_iter().find(|role| *role == said)).unwrap_or_default()
}
