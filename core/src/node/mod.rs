//! The machine that joins the protocols: inputs in, effects out.
//!
//! One input, then effects until `None`, then wait. [`Node`] itself only routes; what it decides lives in:
//!
//! * `lifecycle`: becoming the writer, the regular check, stopping. `recovery`: what is read before it serves.
//! * `standby`: a server of a cluster in which one leads: waiting in line, following, stepping down. `hand_over`: stepping
//!   down because somebody asks for it.
//! * `lease`: how it comes to lead by a lease, and keeps it.
//! * `request`: requests about workflows and executions; `read`: those that are only read; `worker`: requests of workers;
//!   `probe`: how the server is.
//! * `ask`: what clients ask of a running execution: cancel, terminate, signals, updates, queries.
//! * `hold`: what a server that takes over does not go on with by itself.
//! * `quarantine`: executions that are set aside, and tried again.
//! * `slot`, `load`: executions in memory, how they come in and how they leave.
//! * `family`: parents and children, which begin and end together.
//! * `draft`: what one execution wants written next, by the `rules` of what may be, with its `rows`; `commit`: the batch, and what follows from its outcome.
//! * `progress`: whether appends go through.
//! * `promotion`: another timeline of the database is seen: what is in memory may not be there any more.
//! * `away`: what is said at once while the database does not answer.
//! * `trouble`: what the log says of a store that fails.
//! * `registry`: who registered here, for people. `membership`: this server among those of its cluster.
//! * `claim`: tasks from the queue for waiting polls; `queue`: what waits in it, for people.

mod ask;
mod away;
mod catalog;
mod claim;
mod commit;
pub mod config;
pub mod counters;
mod draft;
pub mod effect;
mod family;
mod hand_over;
mod hold;
mod idle;
pub mod input;
mod latency;
mod lease;
mod lifecycle;
mod load;
pub mod log;
mod membership;
mod probe;
mod progress;
mod promotion;
mod quarantine;
mod queue;
mod read;
mod recovery;
mod registry;
mod request;
mod rows;
mod rules;
mod slot;
mod standby;
mod trouble;
mod view;
mod worker;

pub use config::{Limits, NodeConfig};
pub use effect::{CallId, Connection, Effect, RequestId};
pub use input::Input;
pub use log::LogEvent;

use crate::api::{ApiError, ErrorCode, Response};
use crate::cluster::clock::ClusterClock;
use crate::definition::{AnySchema, SchemaCheck};
use crate::id::{ClusterId, ExecutionId, Incarnation};
use crate::mutant::{Mutant, Mutants, NoMutants};
use crate::node::counters::Counters;
use crate::node::request::OpenRequest;
use crate::node::slot::Slot;
use crate::store::append::Fence;
use crate::store::calls::{Calls, Progress};
use crate::store::origin::Origin;
use crate::store::outcome::{FailureKind, Reply};
use crate::store::statement::LoadedExecution;
use crate::store::transaction::{Transaction, Verdict};
use crate::time::{ClusterMs, Mono, Now};
use crate::worker::attempt::Attempts;
use crate::worker::poll::Polls;
use crate::worker::session::Sessions;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use uuid::Uuid;

/// When a node wants to be woken without an input, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Deadline {
    pub at: Mono,
    pub why: Timer,
}

/// Everything that a node waits for by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Timer {
    /// A call is sent again.
    Resend,
    /// A call has no reply within its deadline.
    CallDeadline,
    /// The election lock of another server is asked for again.
    Campaign,
    /// The fence and the database's clock are looked at.
    Check,
    /// A leader's last good check is too old.
    Validity,
    /// The lease is renewed.
    Renewal,
    /// A timer, retry, time-out or deadline of an execution in memory.
    Execution,
    /// An execution out of memory wants to be loaded.
    Due,
    /// Nothing has happened to an execution for a while: it leaves memory.
    Rested,
    /// Claims that came to light late are looked for.
    Strays,
    /// A worker session falls silent.
    Session,
    /// A delivery from before a restart is given up.
    Orphan,
    /// The registry of workers is brought up to date.
    Registry,
    /// The other servers are told that this one lives.
    Beat,
    /// A long poll ends.
    Poll,
    /// A wait or another request ends.
    Request,
    /// Those who wait for a database that does not answer are told.
    Away,
    /// After a failure, appends, claims and loads are tried again.
    Resume,
    /// The stop does not wait longer.
    Stop,
}

/// A server's decisions. See the crate's documentation for the driving contract.
pub struct Node<M: Mutants = NoMutants> {
    mutants: M,
    schemas: Arc<dyn SchemaCheck>,
    config: NodeConfig,
    rng: ChaCha8Rng,
    incarnation: Incarnation,
    /// The time of the input that is being handled.
    now: Now,
    phase: lifecycle::Phase,
    /// It has led before, in this process: what fails on the way back is tried again.
    returns: bool,
    /// Its address has led elsewhere, and that was said.
    astray: bool,
    /// What a recovery has still to read before it loads executions.
    reads: Option<recovery::Reading>,
    checks: lifecycle::Checks,
    clock: ClusterClock,
    calls: Calls<Purpose>,
    effects: VecDeque<Effect>,
    counters: Counters,
    catalog: catalog::Catalog,
    cluster: standby::Cluster,

    slots: BTreeMap<ExecutionId, Slot>,
    /// Slots with something to do and nothing in the way, in order of arrival.
    ready: VecDeque<ExecutionId>,
    /// When executions in memory want to be woken.
    timers: BTreeSet<(ClusterMs, ExecutionId)>,
    idle: idle::Idle,
    /// Executions to be read.
    to_load: BTreeSet<ExecutionId>,
    due: load::DueScan,
    /// Running executions in the store, as far as is known.
    active: u64,
    /// Of those, the ones that are held.
    held: u64,
    /// Executions whose start is under way.
    starting: u64,

    away: away::Away,
    /// Another session holds the election lock. Whoever it is raises the term next, or is gone by the next look.
    lock_lost: bool,
    /// When a write failed, or was in doubt, since the last one that did not.
    write_failed: Option<Mono>,
    committing: bool,
    progress: progress::Progress,
    /// After a failed append: not before this time, and the pause after the next failure.
    resume: Option<Mono>,
    pause: std::time::Duration,
    claims: claim::Claims,
    troubles: trouble::Troubles,
    queue: queue::Queue,
    registry: registry::Registry,
    membership: membership::Membership,
    appends: latency::Latency,

    sessions: Sessions,
    attempts: Attempts,
    polls: Polls,
    requests: BTreeMap<RequestId, OpenRequest>,
    request_deadlines: BTreeSet<(Mono, RequestId)>,
    waits: BTreeMap<ExecutionId, BTreeSet<RequestId>>,
    /// Works that requests brought and that are not done, whether or not somebody still waits for them.
    asked: u64,
    /// The memory of those works, and of definitions that are being stored.
    asked_bytes: u64,
    /// Calls to the store that requests brought and that are not answered, whether or not somebody still waits for them.
    called: u64,
}

/// What a store call is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    Campaign,
    Line,
    Hold,
    /// Of a lease that was taken, before this server leads by it.
    FirstRenewal {
        fence: Fence,
        cluster_id: ClusterId,
    },
    Renewal,
    /// Whether this server led when it asked.
    Check {
        leads: bool,
    },
    Release,
    Unlock,
    /// The election lock is given up, for others.
    LetGo,
    Recover,
    RecoverHot,
    Append(Vec<commit::Flight>),
    Claim(claim::ClaimFlight),
    Sweep,
    Deploy(request::Deploying),
    /// Histories; how often before, where it is one alone that could not be read.
    Load(Vec<ExecutionId>, u32),
    /// The definitions, for histories of which this server does not know them.
    Definitions(Vec<LoadedExecution>),
    /// A look at what histories stand in, after that of one could not be read.
    LoadNobody(load::Unread),
    Due,
    Read(RequestId),
    SaveWorker,
    KeepWorkers,
    Beat,
    Leave,
}

impl Purpose {
    /// Whether a request brought it, and nothing else bounds how many there are.
    fn of_request(&self) -> bool {
        matches!(self, Purpose::Deploy(_) | Purpose::Read(_) | Purpose::SaveWorker)
    }
}

impl Node {
    /// A production node. It begins with [`Input::Start`].
    pub fn new(config: NodeConfig, entropy: [u8; 32], now: Now) -> Node {
        Node::with_mutants(config, entropy, now, NoMutants)
    }
}

impl<M: Mutants> Node<M> {
    /// A node with mistakes planted, for `sim`.
    pub fn with_mutants(config: NodeConfig, entropy: [u8; 32], now: Now, mutants: M) -> Node<M> {
        let mut rng = ChaCha8Rng::from_seed(entropy);
        let incarnation = Incarnation(draw_uuid(&mut rng));
        Node {
            mutants,
            schemas: Arc::new(AnySchema),
            rng,
            incarnation,
            now,
            phase: lifecycle::Phase::Idle,
            returns: false,
            astray: false,
            reads: None,
            checks: lifecycle::Checks::default(),
            clock: ClusterClock::default(),
            calls: Calls::new(config.deadlines()),
            effects: VecDeque::new(),
            counters: Counters::default(),
            catalog: catalog::Catalog::default(),
            cluster: standby::Cluster::default(),
            slots: BTreeMap::new(),
            ready: VecDeque::new(),
            timers: BTreeSet::new(),
            idle: idle::Idle::default(),
            to_load: BTreeSet::new(),
            due: load::DueScan::default(),
            active: 0,
            held: 0,
            starting: 0,
            away: away::Away::default(),
            lock_lost: false,
            write_failed: None,
            committing: false,
            progress: progress::Progress::default(),
            resume: None,
            pause: commit::FIRST_PAUSE,
            claims: claim::Claims::default(),
            troubles: trouble::Troubles::default(),
            queue: queue::Queue::default(),
            registry: registry::Registry::default(),
            membership: membership::Membership::new(incarnation, now.mono),
            appends: latency::Latency::default(),
            sessions: Sessions::new(config.session_timeout),
            attempts: Attempts::default(),
            polls: Polls::default(),
            requests: BTreeMap::new(),
            request_deadlines: BTreeSet::new(),
            waits: BTreeMap::new(),
            asked: 0,
            asked_bytes: 0,
            called: 0,
            config,
        }
    }

    /// The node with what judges values by JSON Schemas; without it every value matches.
    #[must_use]
    pub fn with_schemas(mut self, schemas: Arc<dyn SchemaCheck>) -> Node<M> {
        self.schemas = schemas;
        self
    }

    /// Takes one input. [`Input::Wake`] when a timeout came and nothing else did.
    pub fn handle(&mut self, now: Now, input: Input) {
        assert!(now.mono >= self.now.mono, "monotonic time does not go back: {:?} after {:?}", now, self.now);
        self.now = now;
        if self.has_exited() {
            return;
        }
        self.step_down_when_stale();
        if self.has_exited() {
            return;
        }
        match input {
            Input::Start => self.begin(),
            Input::Wake => {}
            Input::Request { id, request } => self.on_request(id, request),
            Input::RequestGone(id) => self.on_gone(id),
            Input::AnswerLost(id) => self.on_answer_lost(id),
            Input::Store { call, reply, origin } => self.on_store(call, reply, origin),
            Input::Stop => self.stop(),
        }
        self.on_time();
        self.go_on();
    }

    /// The next effect, until `None`.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// When to call [`Node::handle`] with [`Input::Wake`] if nothing comes before.
    pub fn poll_timeout(&self) -> Option<Deadline> {
        if self.has_exited() {
            return None;
        }
        let in_cluster_time = |time: Option<ClusterMs>| time.map(|t| self.when(t));
        // What only a server that serves looks at wakes no other.
        let serving = |at: Option<Mono>| at.filter(|_| self.is_serving());
        [
            (self.calls.next_resend(), Timer::Resend),
            (self.calls.next_deadline(), Timer::CallDeadline),
            (self.next_campaign(), Timer::Campaign),
            (self.next_check(), Timer::Check),
            (self.valid_until(), Timer::Validity),
            (self.next_renewal(), Timer::Renewal),
            (serving(in_cluster_time(self.timers.first().map(|(at, _)| *at))), Timer::Execution),
            (in_cluster_time(self.due_at()), Timer::Due),
            (serving(self.next_rested()), Timer::Rested),
            (serving(self.next_sweep()), Timer::Strays),
            (serving(self.sessions.next_silence()), Timer::Session),
            (serving(self.attempts.next_given_up()), Timer::Orphan),
            (self.next_registry(), Timer::Registry),
            (self.next_beat(), Timer::Beat),
            (self.polls.next_deadline(), Timer::Poll),
            (self.request_deadlines.first().map(|(at, _)| *at), Timer::Request),
            (self.next_away(), Timer::Away),
            (self.resume, Timer::Resume),
            (self.stop_deadline(), Timer::Stop),
        ]
        .into_iter()
        .filter_map(|(at, why)| Some(Deadline { at: at?, why }))
        .min()
    }

    /// Everything whose time has come.
    fn on_time(&mut self) {
        for effect in self.calls.wake(self.now.mono) {
            match effect {
                Effect::WriteOff { connection: Connection::Control, .. } => self.look_failed(),
                Effect::WriteOff { connection: Connection::Requests, .. } => self.heard_of_read(Some(None)),
                Effect::WriteOff { connection: Connection::Store, .. } => self.write_failed = Some(self.now.mono),
                _ => {}
            }
            self.effects.push_back(effect);
        }
        if self.resume.is_some_and(|at| at <= self.now.mono) {
            self.resume = None;
            self.recover_on();
        }
        self.tell_when_away();
        self.campaign_when_due();
        self.check_when_due();
        self.renew_when_due();
        self.beat_when_due();
        if self.is_serving() || self.loops_too_early() {
            self.wake_executions();
            self.expire_sessions();
            self.give_up_orphans();
            self.keep_registry_when_due();
        }
        self.expire_polls();
        self.expire_requests();
    }

    /// What can go on now: loads, the next batch, claims, and the stop once all is done.
    fn go_on(&mut self) {
        if self.is_recovering() && self.resume.is_none() && self.reads.is_none() {
            // What could not be read is read again.
            self.send_loads();
        }
        if self.is_serving() && self.resume.is_none() {
            self.scan_due();
            self.evict();
            self.commit();
            self.send_loads();
            self.sweep_when_due();
            self.claim();
        }
        self.rest_when_nothing_is_tried();
        self.stop_when_done();
    }

    fn on_store(&mut self, id: CallId, reply: Reply<Verdict>, origin: Option<Origin>) {
        let Some(reply) = self.believed(id, reply, origin) else { return };
        if matches!(reply, Reply::Unknown) {
            self.counters.calls_unknown += 1;
        }
        let call = match self.calls.reply(self.now.mono, id, reply, &self.mutants) {
            Progress::Stray => return,
            Progress::Again { name, failure: Some(failure) } => {
                self.trouble(name, Some(failure.kind));
                return self.say_trouble(name, Some(failure.message));
            }
            Progress::Again { name, failure: None } => {
                self.trouble(name, None);
                return self.say_trouble(name, None);
            }
            Progress::Settled(call) => call,
        };
        let name = call.transaction.name();
        match &call.outcome {
            Err(failure) => {
                self.trouble(name, Some(failure.kind));
                self.say_trouble(name, Some(failure.message.clone()));
            }
            Ok(_) => {
                if is_read(name) {
                    self.heard_of_read(None);
                }
                if let Some(lasted) = self.troubles.over(self.now.mono, name) {
                    let after_ms = u64::try_from(lasted.as_millis()).unwrap_or(u64::MAX);
                    self.log(LogEvent::StoreAnswers { call: name.into(), after_ms });
                }
            }
        }
        let outcome = call.outcome;
        self.called -= u64::from(call.purpose.of_request());
        match call.purpose {
            Purpose::Campaign => self.on_campaign(call.sent, outcome),
            Purpose::Line => self.on_line(call.sent, outcome),
            Purpose::Hold => self.on_hold(call.sent, outcome),
            Purpose::FirstRenewal { fence, cluster_id } => self.on_first_renewal(fence, cluster_id, call.sent, outcome),
            Purpose::Renewal => self.on_renewal(call.sent, outcome),
            Purpose::Check { leads } => self.on_check(call.sent, leads, outcome),
            Purpose::Release => self.on_release(outcome),
            Purpose::Unlock => self.on_unlocked(),
            Purpose::Recover => self.on_recover(outcome),
            Purpose::RecoverHot => self.on_recover_hot(outcome),
            Purpose::Append(flights) => self.on_append(call.sent, flights, outcome),
            Purpose::Claim(flight) => self.on_claim(flight, call.doubted, outcome),
            Purpose::Sweep => self.on_sweep(outcome),
            Purpose::Deploy(deploying) => self.on_deploy(deploying, outcome),
            Purpose::Load(executions, before) => self.on_load(executions, before, outcome),
            Purpose::Definitions(undefined) => self.on_definitions(undefined, outcome),
            Purpose::LoadNobody(unread) => self.on_load_nobody(unread, outcome),
            Purpose::Due => self.on_due(outcome),
            Purpose::Read(request) => self.on_read(request, outcome),
            Purpose::SaveWorker => {}
            Purpose::KeepWorkers => self.on_registry_kept(),
            Purpose::Beat => self.on_beat(call.sent, outcome),
            Purpose::LetGo => {}
            Purpose::Leave => self.on_left(),
        }
    }

    /// A call failed with this message, or its outcome is unknown: what the log says of it, which is bounded however often
    /// it is tried again.
    fn say_trouble(&mut self, call: &'static str, message: Option<String>) {
        let Some(unsaid) = self.troubles.met(self.now.mono, call, message.as_deref()) else { return };
        let call = call.into();
        self.log(match message {
            Some(message) => LogEvent::StoreFailed { call, message, unsaid },
            None => LogEvent::StoreUnknown { call, unsaid },
        });
    }

    /// A call did not go through at once: what that says about the database. `kind` where it failed for certain.
    fn trouble(&mut self, transaction: &str, kind: Option<FailureKind>) {
        match transaction {
            "append" => self.write_failed = Some(self.now.mono),
            "check" => self.look_failed(),
            read if is_read(read) => self.heard_of_read(Some(kind)),
            _ => {}
        }
    }

    fn send(&mut self, connection: Connection, transaction: Transaction, purpose: Purpose) {
        self.called += u64::from(purpose.of_request());
        let effect = self.calls.send(self.now.mono, connection, transaction, purpose);
        self.effects.push_back(effect);
    }

    fn log(&mut self, event: LogEvent) {
        self.effects.push_back(Effect::Log(event));
    }

    /// Answers a request, once; nothing happens where it is gone or answered.
    fn respond(&mut self, id: RequestId, response: impl Into<Response>) {
        if let Some(open) = self.requests.remove(&id) {
            self.request_deadlines.remove(&(open.deadline, id));
            self.effects.push_back(Effect::Respond { request: id, response: response.into() });
        }
    }

    /// Answers a request that was never opened.
    fn answer(&mut self, id: RequestId, response: impl Into<Response>) {
        self.effects.push_back(Effect::Respond { request: id, response: response.into() });
    }

    fn cluster_now(&self) -> ClusterMs {
        if self.mutants.planted(Mutant::TimerOnOwnClock) {
            return ClusterMs(self.now.wall.0);
        }
        self.clock.now(self.now.mono)
    }

    /// When it will be this time, if no clock steps.
    fn when(&self, time: ClusterMs) -> Mono {
        if self.mutants.planted(Mutant::TimerOnOwnClock) {
            let ahead = u64::try_from(time.0.saturating_sub(self.now.wall.0)).unwrap_or(0);
            return self.now.mono + std::time::Duration::from_millis(ahead);
        }
        self.clock.when(time)
    }

    fn draw(&mut self) -> Uuid {
        draw_uuid(&mut self.rng)
    }
}

/// A random (version 4) UUID from the node's own stream.
fn draw_uuid(rng: &mut ChaCha8Rng) -> Uuid {
    let mut bytes = [0; 16];
    rng.fill_bytes(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

/// Whether a transaction of this name reads what people ask for.
fn is_read(transaction: &str) -> bool {
    matches!(transaction, "summary" | "summaries" | "history" | "workers" | "definitions" | "nodes")
}

/// What a certain failure of the database is to the one who asked.
fn storage_error(message: &str) -> ApiError {
    ApiError::new(ErrorCode::StorageError, format!("the database failed, and nothing was written: {message}"))
}
