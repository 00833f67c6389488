//! Faults: what the world does to the servers, and when. Drawn from the seed, or read from a scenario.
//!
//! Wherever a fault could begin there is an *opportunity*: a die is thrown, whether the fault is switched on or not. Where
//! faults are drawn the die decides, and what it decided is recorded. Where a scenario says what happens the die is thrown
//! all the same and does not count, so that everything else of the seed stays as it was: the scenario of all strikes of a
//! run is that run, to the byte (`sim/tests/scenarios.rs`).

use crate::world::clock::Time;
use serde::{Deserialize, Serialize};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal),+ $(,)?) => {
        /// A kind of fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum FaultKind { $($(#[doc = $doc])+ #[serde(rename = $text)] $name),+ }
        impl FaultKind {
            /// All of them.
            pub const ALL: &[FaultKind] = &[$(FaultKind::$name),+];
            /// What it is called in a scenario.
            pub fn as_str(self) -> &'static str { match self { $(FaultKind::$name => $text),+ } }
            /// What it does.
            pub fn what(self) -> &'static str {
                match self { $(FaultKind::$name => concat!($($doc),+).trim_ascii()),+ }
            }
        }
    };
}

kinds! {
    /// A server is killed; a supervisor starts it again.
    Crash = "crash",
    /// A server is killed between the effects of one input.
    CrashInStep = "crash-in-step",
    /// A server is killed when its transaction has committed and the reply is still to come.
    CrashAfterCommit = "crash-after-commit",
    /// A server is told to stop, and started again.
    Stop = "stop",
    /// A server stands still for `for_ms`.
    Pause = "pause",
    /// A second server starts on the database of a server that is alone.
    Usurp = "usurp",
    /// As `usurp`, and the session that holds the first one's election lock is ended.
    Takeover = "takeover",
    /// A server's timer fires although nothing is due.
    EarlyWake = "early-wake",
    /// A call on the SQLite database certainly fails.
    CallFails = "call-fails",
    /// The outcome of a call on the SQLite database stays unknown.
    CallUnknown = "call-unknown",
    /// A call on the SQLite database takes longer.
    CallSlow = "call-slow",
    /// No space is left for writes, for `for_ms`.
    DiskFull = "disk-full",
    /// The disk answers nothing, for `for_ms`.
    DiskStall = "disk-stall",
    /// A request is lost.
    RequestLost = "request-lost",
    /// An answer is lost.
    AnswerLost = "answer-lost",
    /// The front says that an answer was lost that arrived.
    FalseNotice = "false-notice",
    /// Nothing passes between servers and those who ask, for `for_ms`.
    NetworkDown = "network-down",
    /// The host's wall clock, which is the database's too, steps back by `for_ms`.
    ClockBack = "clock-back",
    /// The host's wall clock, which is the database's too, steps forward by `for_ms`.
    ClockForward = "clock-forward",
    /// A worker is killed, and begins again after `for_ms`.
    WorkerDeath = "worker-death",
    /// A worker stands still for `for_ms`.
    WorkerPause = "worker-pause",
    /// A worker unregisters, and comes back after `for_ms`.
    WorkerLeaves = "worker-leaves",
    /// A session with PostgreSQL is ended by `pg_terminate_backend`.
    SessionKilled = "session-killed",
    /// A session that is no server's locks the fence row, which appends lock, for `for_ms`.
    RowLocked = "row-locked",
    /// The backend that runs the leader's appends stands still for `for_ms`, and no other.
    AppendHangs = "append-hangs",
    /// A backend stands still for `for_ms`.
    SessionFrozen = "session-frozen",
    /// PostgreSQL is stopped, and started after `for_ms`.
    DatabaseRestart = "database-restart",
    /// PostgreSQL is killed, and started after `for_ms`.
    DatabaseCrash = "database-crash",
    /// A replica of PostgreSQL that lags by `for_ms` is promoted.
    Promotion = "promotion",
    /// PostgreSQL takes no writes for `for_ms`.
    ReadOnly = "read-only",
    /// PostgreSQL takes no new connections for `for_ms`.
    ConnectionsRefused = "connections-refused",
    /// A connection with PostgreSQL breaks when something is sent on it.
    LinkCut = "link-cut",
    /// A connection with PostgreSQL breaks when something is answered on it.
    AnswerCut = "answer-cut",
    /// An answer of PostgreSQL takes longer, and what comes after it on its connection too.
    AnswerSlow = "answer-slow",
    /// The end of a dead server's connection reaches PostgreSQL late.
    SilentDeath = "silent-death",
    /// The tables are brought to a version that older servers do not know.
    Migration = "migration",
    /// With every server stopped, the leader is elected otherwise, and after `for_ms` as before.
    ModeChange = "mode-change",
    /// For `for_ms`, new connections with PostgreSQL lead to a pooler in transaction mode.
    Pooler = "pooler",
    /// The wall clock of a server's host is ahead of the database's by `for_ms`.
    HostAhead = "host-ahead",
    /// The wall clock of a server's host is behind the database's by `for_ms`.
    HostBehind = "host-behind",
}

/// When a fault strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    /// At the first opportunity at this time or after it, in microseconds since the world began.
    AtUs(Time),
    /// When something has happened for the nth time (1 is the first): to any server, or to the one with this number in its
    /// name (0 is the first).
    After {
        moment: Moment,
        nth: u32,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        node: Option<u32>,
    },
}

macro_rules! moments {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal),+ $(,)?) => {
        /// A point in a server's work that a scenario can name: the fault strikes the server that has come to it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Moment { $($(#[doc = $doc])+ #[serde(rename = $text)] $name),+ }
        impl Moment {
            /// All of them.
            pub const ALL: &[Moment] = &[$(Moment::$name),+];
            /// What it is called in a scenario.
            pub fn as_str(self) -> &'static str { match self { $(Moment::$name => $text),+ } }
            /// What has happened.
            pub fn what(self) -> &'static str {
                match self { $(Moment::$name => concat!($($doc),+).trim_ascii()),+ }
            }
        }
    };
}

moments! {
    /// A server has sent an append.
    AppendSent = "append-sent",
    /// An append of a server has locked the fence row on PostgreSQL, which is the writer's, and has written nothing yet.
    AppendFenceLocked = "append-fence-locked",
    /// An append of a server has committed, and its reply is still to come.
    AppendCommitted = "append-committed",
    /// A server was elected.
    Elected = "elected",
    /// A server leads, and has recovered what was running.
    Leading = "leading",
    /// A server has found that it leads no more.
    LeadershipLost = "leadership-lost",
    /// A server was told to stop.
    Stopping = "stopping",
}

/// One fault, as it happened or is to happen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Strike {
    pub when: When,
    pub fault: FaultKind,
    /// How long it lasts, in milliseconds, where it lasts.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub for_ms: u64,
    /// Of several opportunities in the same microsecond, how many it lets pass.
    #[serde(default, skip_serializing_if = "is_none")]
    pub skip: u32,
}

fn is_zero(ms: &u64) -> bool {
    *ms == 0
}

fn is_none(skip: &u32) -> bool {
    *skip == 0
}

/// What struck in a run; it outlives a panic of the code under test.
pub type Struck = Rc<RefCell<Vec<Strike>>>;

/// A moment that has come to any server, or to the one with this number.
type Came = (Moment, Option<u32>);

/// Decides at each opportunity whether a fault strikes.
#[derive(Debug)]
pub struct Faults {
    /// By kind, in the order of their times; none where the dice decide.
    script: Option<BTreeMap<FaultKind, VecDeque<Strike>>>,
    /// By moment; and how often each has come, to any server and to each.
    awaited: Vec<(Came, u32, Strike)>,
    came: BTreeMap<Came, u32>,
    /// Opportunities of the present microsecond.
    now: Time,
    passed: BTreeMap<FaultKind, u32>,
    struck: Struck,
}

impl Faults {
    /// The dice decide; what they decided is put into `struck`.
    pub fn drawn(struck: Struck) -> Faults {
        Faults {
            script: None,
            awaited: Vec::new(),
            came: BTreeMap::new(),
            now: Time(0),
            passed: BTreeMap::new(),
            struck,
        }
    }

    /// These happen, and no others.
    pub fn scripted(strikes: &[Strike], struck: Struck) -> Faults {
        let mut script: BTreeMap<FaultKind, Vec<Strike>> = BTreeMap::new();
        let mut awaited = Vec::new();
        for strike in strikes {
            match strike.when {
                When::AtUs(_) => script.entry(strike.fault).or_default().push(strike.clone()),
                When::After { moment, nth, node } => awaited.push(((moment, node), nth, strike.clone())),
            }
        }
        for strikes in script.values_mut() {
            strikes.sort_by_key(|strike| (due(strike), strike.skip));
        }
        let script = script.into_iter().map(|(kind, strikes)| (kind, strikes.into())).collect();
        Faults { script: Some(script), awaited, ..Faults::drawn(struck) }
    }

    /// An opportunity for a fault, which the dice would have begin or not, for so long: for how long it strikes, if it does.
    pub fn strikes(&mut self, now: Time, fault: FaultKind, drawn: bool, for_ms: u64) -> Option<u64> {
        if now != self.now {
            self.now = now;
            self.passed.clear();
        }
        let passed = self.passed.entry(fault).or_default();
        let skip = std::mem::replace(passed, *passed + 1);
        let for_ms = match &mut self.script {
            None => drawn.then_some(for_ms)?,
            Some(script) => {
                let waiting = script.get_mut(&fault)?;
                let first = waiting.front()?;
                if due(first) > now || (due(first) == now && first.skip > skip) {
                    return None;
                }
                waiting.pop_front()?.for_ms
            }
        };
        self.struck.borrow_mut().push(Strike { when: When::AtUs(now), fault, for_ms, skip });
        Some(for_ms)
    }

    /// How many have struck.
    pub fn count(&self) -> u64 {
        self.struck.borrow().len() as u64
    }

    /// The server with this number has come to a moment: what a scenario wants to happen to it there.
    pub fn come_to(&mut self, moment: Moment, node: u32) -> Vec<Strike> {
        if self.awaited.is_empty() {
            return Vec::new();
        }
        let both = [(moment, None), (moment, Some(node))].map(|came| {
            let times = self.came.entry(came).or_default();
            *times += 1;
            (came, *times)
        });
        let due: Vec<Strike> = self
            .awaited
            .extract_if(.., |(came, nth, _)| both.contains(&(*came, *nth)))
            .map(|(.., strike)| strike)
            .collect();
        self.struck.borrow_mut().extend(due.iter().cloned());
        due
    }
}

/// When a strike of a script is due.
fn due(strike: &Strike) -> Time {
    match strike.when {
        When::AtUs(at) => at,
        When::After { .. } => unreachable!("what waits for a moment is kept apart"),
    }
}
