//! The world around the node: one event queue keyed by time and sequence, one thread, one seed.
//!
//! * [`clock`]: true time and what processes read of it.
//! * [`event`]: everything that can be in the queue.
//! * [`server`]: server processes. [`disk`]: their calls on SQLite, [`postgres`]: on PostgreSQL. [`network`]: requests
//!   and answers.
//! * [`client`], [`worker`]: those who ask. `nemesis`: what goes wrong. [`book`]: what was asked, said and told.

pub mod book;
pub mod client;
pub mod clock;
pub mod disk;
pub mod event;
mod nemesis;
pub mod network;
pub mod postgres;
pub mod server;
pub mod worker;

use crate::check::family::{Bounds, FamilyCheck};
use crate::check::hold::HoldCheck;
use crate::check::interpreter::Limits;
use crate::check::lease::LeaseCheck;
use crate::check::queue::Waiting;
use crate::check::{Checked, Checks, Violation, liveness};
use crate::coverage::Coverage;
use crate::fault::Faults;
use crate::mutant::Planted;
use crate::plan::{Plan, StoreKind, TICK_MS};
use crate::postgres::store as orbit;
use crate::report::{Failure, Trace};
use crate::rng::{Dice, Ratio, Stream, Streams};
use crate::run::Size;
use crate::store::ModelStore;
use crate::workload;
use crate::workload::census::Census;
use book::{Book, MessageRecord};
use client::Client;
use clock::{HostClock, Time};
use disk::Disk;
use event::{Event, WorkerEvent};
use network::Network;
use orbit_core::api::Request;
use orbit_core::id::{ClusterId, ExecutionId, Run, Seq};
use orbit_core::mutant::Mutant;
use postgres::{Changing, Database};
use server::{Pid, Process};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use worker::Worker;

/// So long after the healing servers have found each other, and what was broken.
const WHOLE_MS: u64 = 5_000;

/// See the module's documentation.
#[derive(Debug)]
pub struct World {
    plan: Plan,
    planted: Planted,
    now: Time,
    queue: BTreeMap<(Time, u64), Event>,
    sequence: u64,
    /// What has happened: events of the queue, and commits whose outcome reached the server that had sent them.
    happened: u64,
    acknowledged: u64,
    dice: Streams,
    faults: Faults,
    host: HostClock,
    /// Whether the host's clock has never stepped.
    steady_clock: bool,
    /// By how much the wall clock of the host of each place is ahead of the database's, in milliseconds.
    wall_ahead: Vec<i64>,
    /// What the operator is about.
    changing: Changing,
    /// Places whose servers have the newer release by now.
    upgraded: BTreeSet<u32>,
    /// On SQLite: the database.
    sqlite: ModelStore,
    /// On PostgreSQL: the database, and the ways to it.
    postgres: Option<Box<Database>>,
    disk: Disk,
    pub(crate) processes: BTreeMap<Pid, Process>,
    last_pid: u32,
    network: Network,
    pub(crate) clients: Vec<Client>,
    pub(crate) workers: Vec<Worker>,
    /// How many starts clients have made up.
    started: u32,
    /// Executions in which more waits to be taken than is let in: somebody must cancel them.
    stuck: BTreeSet<ExecutionId>,
    /// Documents whose deployment was acknowledged.
    deployed: BTreeSet<usize>,
    book: Book,
    pub(crate) checks: Checks,
    marks: Coverage,
    trace: Trace,
    /// The chaos lasts longer than was planned, as too little was done.
    overtime: bool,
    healed: bool,
    healed_at: Time,
    finished: bool,
    /// What is read once everything has come to its end; none before.
    pub(crate) audit: Option<Vec<Request>>,
    failure: Option<Failure>,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    pub failure: Option<Failure>,
    pub marks: Coverage,
    /// What came to its end.
    pub census: Census,
    /// Over everything that happened; empty where nobody asked for it.
    pub hash: String,
    pub lines: u64,
    pub executions: u64,
    pub simulated_ms: u64,
    /// How much it was.
    pub size: Size,
}

impl World {
    /// A world in which nothing has happened.
    pub fn new(plan: Plan, planted: Planted, trace: Trace, faults: Faults) -> World {
        let mut dice = Streams::new(plan.seed);
        let mut workload = Dice::new(plan.seed.wrapping_add(1), Stream::Workload);
        let workers = (0..plan.workers as usize).map(|index| worker(&plan, &mut workload, index)).collect();
        let cluster_id = ClusterId(dice.entropy.uuid());
        let ttl = plan.cluster.as_ref().and_then(|cluster| cluster.lease_ms).map(Duration::from_millis);
        let bounds = Bounds { max_children: plan.server.max_children, max_depth: plan.server.max_child_depth };
        World {
            sqlite: ModelStore::new(cluster_id),
            postgres: (plan.store == StoreKind::Postgres).then(|| Box::new(database(&plan, planted, cluster_id))),
            dice,
            faults,
            planted,
            now: Time(0),
            queue: BTreeMap::new(),
            sequence: 0,
            happened: 0,
            acknowledged: 0,
            host: HostClock::new(),
            steady_clock: true,
            wall_ahead: Vec::new(),
            changing: Changing::Not,
            upgraded: BTreeSet::new(),
            disk: Disk::default(),
            processes: BTreeMap::new(),
            last_pid: 0,
            network: Network::default(),
            // One more: the helper.
            clients: (0..=plan.clients).map(|_| Client::default()).collect(),
            workers,
            started: 0,
            stuck: BTreeSet::new(),
            deployed: BTreeSet::new(),
            book: Book::new(workload::definitions(plan.seed, plan.workflows)),
            checks: Checks {
                family: FamilyCheck::new(bounds),
                lease: LeaseCheck::new(ttl),
                hold: HoldCheck::new(plan.server.holds),
                ..Checks::default()
            },
            marks: Coverage::default(),
            trace,
            overtime: false,
            healed: false,
            healed_at: Time(0),
            finished: false,
            audit: None,
            failure: None,
            plan,
        }
    }

    /// Runs it to its end: chaos, healing, quiet; or to the first thing that a check finds.
    pub fn run(mut self) -> Ended {
        self.set_clocks();
        if self.postgres.is_some() {
            self.look_for_pooler();
        }
        for _ in 0..self.servers() {
            self.at(Time(0), Event::StartServer);
        }
        for index in 0..self.clients.len() {
            self.at(Time(1_000), Event::Client(index));
        }
        for index in 0..self.workers.len() {
            self.at(Time(2_000), Event::Worker(index, 0, WorkerEvent::Goes));
            self.at(Time(30_000), Event::Worker(index, 0, WorkerEvent::Goes));
        }
        self.at(Time(0).plus_ms(TICK_MS), Event::Tick);
        self.at(Time(0).plus_ms(self.plan.chaos_ms), Event::Heal);
        while !self.finished
            && self.failure.is_none()
            && let Some(((time, _), event)) = self.queue.pop_first()
        {
            self.now = time;
            self.happened += 1;
            self.happens(event);
        }
        if self.failure.is_none() {
            let postgres = self.postgres.as_deref().map(Database::store);
            let limits =
                Limits { max_payload: self.plan.server.max_payload, max_fan_out: self.plan.server.max_fan_out };
            let checked = self.checks.at_end(postgres.unwrap_or(&self.sqlite), &self.book, limits);
            self.holds(checked);
        }
        let executions = self.store().executions().len() as u64;
        Ended {
            size: self.size(),
            census: self.census(),
            failure: self.failure,
            marks: self.marks,
            executions,
            simulated_ms: self.now.0 / 1_000,
            lines: self.trace.lines(),
            hash: self.trace.finish(),
        }
    }

    fn size(&self) -> Size {
        Size {
            cluster: self.is_cluster(),
            servers: self.servers() as u64,
            workers: self.workers.len() as u64,
            simulated_ms: self.now.0 / 1_000,
            commits: self.acknowledged,
            faults: self.faults.count(),
            events: self.happened,
        }
    }

    fn census(&self) -> Census {
        let mut census = Census::default();
        let ended = || self.checks.history.all().filter_map(|(id, tracked)| Some((id, tracked, tracked.ended?)));
        census.add_workflows(ended().map(|(_, tracked, _)| &*tracked.definition));
        for (id, _, status) in ended() {
            let parent = self.checks.family.parent(id);
            census.add_execution(status, parent.map_or(0, |parent| parent.depth));
        }
        census
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::StartServer => self.start_server(),
            Event::Process(pid, event) => self.process_event(pid, event),
            Event::Hears(id, heard) => self.hears(id, heard),
            Event::Client(index) => self.client_event(index),
            Event::Worker(index, life, event) => self.worker_event(index, life, event),
            Event::Database(arrived) => self.database_event(arrived),
            Event::Thaw(session) => self.thaw(session),
            Event::LocksRow(session) => self.lock_row(session),
            Event::FreesRow(session) => self.free_row(session),
            Event::WritesAgain => self.database().engine.set_writable(crate::postgres::Writable::Yes),
            Event::DatabaseUp => self.database_up(),
            Event::Strikes(pid, strike) => self.strikes_at_moment(pid, &strike),
            Event::Promotes => self.promote(),
            Event::OldPrimaryEnds(timeline) => self.old_primary_ends(timeline),
            Event::Migrates => self.migrate(),
            Event::Operator => self.operator_goes_on(),
            Event::Tick => self.tick(),
            Event::Heal => self.heal_if_enough(),
            Event::Look => self.look(),
        }
    }

    /// What the database holds, as committed.
    pub(crate) fn store(&self) -> &ModelStore {
        self.postgres.as_deref().map_or(&self.sqlite, Database::store)
    }

    fn client_event(&mut self, index: usize) {
        if !self.clients[index].is_waiting() {
            self.client_goes(index);
        }
    }

    /// Puts something into the queue.
    fn at(&mut self, time: Time, event: Event) {
        self.sequence += 1;
        self.queue.insert((time.max(self.now), self.sequence), event);
    }

    /// Whether everything has come to its end; if not in time, says why.
    fn look(&mut self) {
        self.look_at_queue();
        match liveness::pending(self) {
            // Nothing may happen any more to what has come to its end.
            None if self.now < Time(0).plus_ms(self.plan.least_ms) => self.at(self.now.plus_ms(500), Event::Look),
            None if self.audit.is_none() => self.begin_audit(),
            None => self.finished = true,
            Some(reason) if self.now.since_ms(self.healed_at) > self.plan.heal_ms => {
                let message = format!("{} ms after the healing: {reason}", self.plan.heal_ms);
                self.fails(Violation::liveness("liveness", message));
            }
            Some(_) => self.at(self.now.plus_ms(500), Event::Look),
        }
    }

    /// Whether something is queued and a poll waits beside it, while nothing is broken.
    fn look_at_queue(&mut self) {
        let whole = self.healed && self.audit.is_none() && self.now > self.healed_at.plus_ms(WHOLE_MS);
        let leader =
            self.leader().filter(|pid| whole && !self.processes[pid].stopping && !self.processes[pid].hands_over);
        let World { checks, network, workers, postgres, sqlite, now, .. } = self;
        let Some(leader) = leader else { return checks.queue.begin_again() };
        let theirs = network.exchanges.values().filter(|e| e.process == Some(leader) && e.pending && e.waits);
        let polls: Vec<Waiting<'_>> = theirs
            .filter_map(|exchange| match &*exchange.request {
                Request::Poll(poll) if poll.results.is_empty() => {
                    let contracts = workers.iter().find_map(|worker| worker.offers(poll.session))?;
                    Some(Waiting { since: exchange.arrived, contracts })
                }
                _ => None,
            })
            .collect();
        let store = postgres.as_deref().map_or(&*sqlite, Database::store);
        let checked = checks.queue.on_look(store, &polls, *now);
        self.holds(checked);
    }

    /// Everything has come to its end: the server goes once more, cleanly or not, and its successor is asked for every
    /// execution.
    fn begin_audit(&mut self) {
        self.trace.record(self.now, "audit", &());
        self.checks.read.show_all(&self.checks.history);
        let mut audit = Vec::new();
        for (id, row) in self.store().executions() {
            audit.push(Request::GetExecution(id.clone()));
            audit.push(Request::Wait { execution: id.clone(), timeout: Duration::from_millis(10) });
            for run in std::iter::once(None).chain((1..row.run.0).map(|run| Some(Run(run)))) {
                let (execution, after) = (id.clone(), Seq(0));
                audit.push(Request::GetHistory { execution, run, after, limit: 1_000, max_bytes: 1 << 20 });
            }
        }
        // What was sent and answered is answered the same for ever.
        let told = self.book.messages().filter(|m| m.told.is_some() && m.message.key.is_some());
        audit.extend(told.take(20).map(MessageRecord::request));
        self.audit = Some(audit);
        let some = *self.processes.keys().next().expect("a server lives, or there is something to wait for");
        let pid = self.leader().unwrap_or(some);
        if self.dice.faults.chance(Ratio::new(1, 2)) {
            self.stop(pid);
        } else {
            self.crash(pid);
        }
        for index in 0..self.clients.len() {
            self.at(self.now, Event::Client(index));
        }
        self.at(self.now.plus_ms(500), Event::Look);
    }

    fn holds(&mut self, checked: Checked) {
        if let Err(violation) = checked {
            self.fails(violation);
        }
    }

    /// The first failure ends the run.
    fn fails(&mut self, violation: Violation) {
        if self.failure.is_none() {
            self.trace.record(self.now, "violation", &(violation.check, &violation.message));
            self.failure = Some(Failure {
                kind: violation.kind,
                check: violation.check.into(),
                message: violation.message,
                at_us: self.now,
            });
        }
    }
}

/// The PostgreSQL of the plan.
fn database(plan: &Plan, planted: Planted, cluster_id: ClusterId) -> Database {
    let d = &plan.database;
    let pace = orbit::Pace {
        stands_still: d.stands_still,
        us: d.still_us,
        waits_for_replica: d.waits_for_replica,
        replica_us: d.replica_us,
    };
    let mut engine = orbit::database(cluster_id, pace, Dice::new(plan.seed, Stream::Backends));
    engine.domain.planted = planted;
    engine.domain.fence_lock = match planted.0 {
        Some(Mutant::FenceKeyShared) => orbit::FenceLock::KeyShare,
        Some(Mutant::FenceUnlocked) => orbit::FenceLock::Plain,
        Some(Mutant::FenceInAnotherTransaction) => orbit::FenceLock::Before,
        Some(Mutant::FenceMissing) => orbit::FenceLock::None,
        Some(Mutant::FenceConditionalInsert) => orbit::FenceLock::Insert,
        _ => orbit::FenceLock::Share,
    };
    Database::new(engine)
}

/// A worker of the plan: the first one can run everything.
fn worker(plan: &Plan, dice: &mut Dice, index: usize) -> Worker {
    let all = workload::contracts();
    let contracts = all.into_iter().filter(|_| index == 0 || dice.chance(Ratio::new(1, 2))).collect();
    let silent = dice.chance(plan.habits.silent_worker);
    let directly = dice.chance(plan.habits.direct_reports);
    let polls = if dice.chance(plan.habits.two_polls) { 2 } else { 1 };
    Worker::new(index, contracts, !silent, directly, polls)
}
