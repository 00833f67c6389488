//! Server processes: the node under test, its clock, its timer; crashes, pauses, stops and restarts.

use super::World;
use super::clock::{ProcessClock, Time};
use super::disk::{Calls, Stage};
use super::event::{Event, ProcessEvent};
use super::postgres::{Changing, Lanes};
use crate::check::lease::LeaseCheck;
use crate::check::progress::{self, Due};
use crate::check::{Violation, log, standby, validity};
use crate::coverage::Mark;
use crate::fault::{FaultKind, Moment};
use crate::mutant::Planted;
use crate::rng::Ratio;
use crate::schema::SmallSchema;
use orbit_core::cluster::{Election, OnLostLease, Recovery, Role, Standby};
use orbit_core::id::NodeId;
use orbit_core::node::{CallId, Effect, Input, Limits, LogEvent, Node, NodeConfig};
use orbit_core::store::append::Fence;
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome::Reply;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_core::time::Mono;
use serde::Serialize;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// More effects of one input than this mean that they never end.
const EFFECTS_AT_ONCE: usize = 20_000;

/// The number of a server process; every start has a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Pid(pub u32);

/// A server process that lives.
pub struct Process {
    node: Node<Planted>,
    pub clock: ProcessClock,
    pub calls: Calls,
    /// Its connections to PostgreSQL.
    pub lanes: Lanes,
    /// The fence that it raised, once its campaign has committed.
    pub fence: Option<Fence>,
    /// The fence that it raised, as long as it has not begun to lead under it.
    pub won: Option<Fence>,
    /// What its timer is set for, and how often it was set.
    timer: (Option<Mono>, u64),
    /// What happened to it while it stands still.
    paused: Option<VecDeque<ProcessEvent>>,
    paused_at: Time,
    pub stopping: bool,
    /// What was done to it.
    pub excuses: log::Excuses,
    /// It said that it cannot serve this database.
    unservable: bool,
    /// Its place in the cluster: the name that it has, whichever process it is.
    place: u32,
    /// It knows that it leads, in a cluster.
    pub leads: bool,
    /// It said that it leads no more.
    deposed: bool,
    /// It finishes what is in flight, so that another may lead.
    pub hands_over: bool,
    /// What its checks were told.
    pub fresh: validity::Fresh,
    /// What its appends and its beats were told.
    pub progress: progress::Progress,
    /// The newest timeline of the database that it was told of.
    pub timeline: u32,
    /// The newest version of the tables that it knows.
    pub schema: u32,
}

impl World {
    pub(super) fn process(&mut self, pid: Pid) -> &mut Process {
        self.processes.get_mut(&pid).expect("an event of a process that lives")
    }

    pub(super) fn server_chance(&mut self, kind: FaultKind, ratio: Ratio) -> bool {
        let hit = self.dice.server.chance(ratio);
        self.befalls(kind, hit)
    }

    /// Whether a server is killed now that its transaction has committed, if there is anything that it changed.
    /// Mostly where children were asked to end that have not heard of it.
    pub(super) fn crashes_after_commit(&mut self, changed: bool, asks: bool) -> bool {
        let usual = self.plan.faults.crash_after_commit;
        let ratio = if asks && usual != Ratio::NEVER { Ratio::new(1, 4) } else { usual };
        let hit = self.dice.server.chance(ratio);
        changed && self.befalls(FaultKind::CrashAfterCommit, hit)
    }

    /// How many servers there are to be.
    pub(crate) fn servers(&self) -> usize {
        self.plan.cluster.as_ref().map_or(1, |cluster| cluster.servers as usize)
    }

    /// Whether they are a cluster.
    pub(crate) fn is_cluster(&self) -> bool {
        self.plan.cluster.is_some()
    }

    /// The server that may write now.
    pub(crate) fn leader(&self) -> Option<Pid> {
        let fence = self.store().fence();
        self.processes.iter().find(|(_, process)| process.fence == Some(fence)).map(|(pid, _)| *pid)
    }

    /// Where a request goes now: mostly to the newest server, in a cluster to the one that leads.
    pub(super) fn address(&mut self) -> Option<Pid> {
        if self.plan.cluster.is_some() {
            let all: Vec<Pid> = self.processes.keys().copied().collect();
            let leader = self.leader().filter(|_| self.dice.network.chance(Ratio::new(2, 3)));
            return leader.or_else(|| (!all.is_empty()).then(|| *self.dice.network.pick(&all)));
        }
        let newest = *self.processes.last_key_value()?.0;
        let oldest = *self.processes.first_key_value()?.0;
        Some(if self.dice.network.chance(Ratio::new(1, 4)) { oldest } else { newest })
    }

    /// Starts a server, unless all live: alone, the file's lock refuses a second one (design, section 8).
    pub(super) fn start_server(&mut self) {
        if self.keeps_servers_down() {
            return self.at(self.now.plus_ms(500), Event::StartServer);
        }
        if self.processes.len() < self.servers() {
            self.launch();
        }
    }

    /// Starts a server, whoever lives.
    pub(super) fn launch(&mut self) -> Pid {
        let taken: Vec<u32> = self.processes.values().map(|process| process.place).collect();
        let place = (0..).find(|place| !taken.contains(place)).expect("some place is free");
        self.launch_as(place)
    }

    /// Starts a server of this name, whoever has it.
    pub(super) fn launch_as(&mut self, place: u32) -> Pid {
        self.last_pid += 1;
        let pid = Pid(self.last_pid);
        let drift = self.dice.server.between(self.plan.server.drift_ppm);
        let origin = self.dice.server.below(1 << 40);
        // Whose lock it is, no clock says.
        let skew = self.plan.cluster.as_ref().filter(|cluster| cluster.lease_ms.is_some()).map_or(0, |c| c.skew_ms);
        let off = if skew == 0 { 0 } else { i64::try_from(self.dice.server.below(2 * skew)).expect("short") };
        let off = off - i64::try_from(skew).expect("short") + self.skew(place);
        let clock = ProcessClock::new(self.now, origin, drift).off_by(off);
        let entropy = self.dice.entropy.bytes();
        let now = self.host.now(&clock, self.now);
        let node = Node::with_mutants(self.config(pid, place), entropy, now, self.planted);
        let node = node.with_schemas(Arc::new(SmallSchema));
        let process = Process {
            node,
            clock,
            calls: Calls::default(),
            lanes: Lanes::default(),
            fence: None,
            won: None,
            timer: (None, 0),
            paused: None,
            paused_at: self.now,
            stopping: false,
            excuses: log::Excuses::default(),
            unservable: false,
            place,
            leads: false,
            deposed: false,
            hands_over: false,
            fresh: validity::Fresh::default(),
            progress: progress::Progress::default(),
            timeline: 0,
            schema: self.schema_known_at(place),
        };
        self.processes.insert(pid, process);
        self.checks.custody.begins(pid, self.now);
        self.trace.record(self.now, "start", &(pid, format!("sim-{place}")));
        self.give(pid, Input::Start);
        pid
    }

    /// What the clocks of the hosts show beside the database's is decided once, for each place.
    pub(super) fn set_clocks(&mut self) {
        for ahead in self.plan.server.wall_ahead_ms.clone() {
            let ms = ahead.unsigned_abs();
            let before = self.faults.strikes(self.now, FaultKind::HostAhead, ahead > 0, ms).unwrap_or(0);
            let behind = self.faults.strikes(self.now, FaultKind::HostBehind, ahead < 0, ms).unwrap_or(0);
            let signed = |ms| i64::try_from(ms).expect("minutes");
            self.wall_ahead.push(signed(before) - signed(behind));
        }
    }

    /// By how much the wall clock of a place is ahead, in milliseconds.
    fn skew(&mut self, place: u32) -> i64 {
        let ahead = self.wall_ahead.get(place as usize).copied().unwrap_or(0);
        if ahead != 0 {
            self.marks.hit(Mark::ClockSkewed);
        }
        ahead
    }

    fn config(&self, pid: Pid, place: u32) -> NodeConfig {
        let plan = &self.plan.server;
        let ms = Duration::from_millis;
        NodeConfig {
            schema: self.schema_known_at(place),
            host: "sim".into(),
            pid: pid.0,
            addr: Some(format!("127.0.0.1:{}", 7_233 + place)),
            role: self.plan.cluster.as_ref().map_or(Role::Single, |cluster| {
                Role::Standby(Standby {
                    election: cluster.lease_ms.map_or(Election::Lock, |ttl| Election::Lease { ttl: ms(ttl) }),
                    validity: ms(cluster.validity_ms),
                    slice: ms(cluster.slice_ms),
                    on_lost_lease: if cluster.exits { OnLostLease::Exit } else { OnLostLease::StepDown },
                    stuck_after: ms(cluster.stuck_ms),
                })
            }),
            recovery: if plan.holds { Recovery::Hold } else { Recovery::Auto },
            session_timeout: ms(plan.session_timeout_ms),
            heartbeat_interval: ms(plan.heartbeat_ms),
            check_interval: ms(plan.check_ms),
            call_deadline: ms(plan.call_deadline_ms),
            check_deadline: ms(plan.call_deadline_ms.min(3_000)),
            request_deadline: ms(plan.request_deadline_ms),
            stop_deadline: ms(5_000),
            limits: Limits {
                max_active_executions: plan.max_active,
                max_history_events: plan.max_history,
                max_queued_requests: plan.max_queued,
                max_payload_bytes: plan.max_payload,
                max_fan_out: plan.max_fan_out,
                max_pending_signals: plan.max_pending,
                max_children: plan.max_children,
                max_child_depth: plan.max_child_depth,
                max_resident_executions: plan.max_resident,
                max_append_groups: plan.max_append_groups,
                max_append_bytes: plan.max_append_bytes,
                ..Limits::default()
            },
            ..NodeConfig::new(NodeId::new(format!("sim-{place}")))
        }
    }

    /// A call of a process is answered. One of whose appends none goes through, and of whose other writes one has, gives the
    /// lead up then.
    pub(super) fn give_reply(&mut self, pid: Pid, call: CallId, reply: Reply<Verdict>, origin: Option<Origin>) {
        let stuck_ms = self.plan.cluster.as_ref().map_or(u64::MAX / 2_000, |cluster| cluster.stuck_ms);
        let process = self.process(pid);
        let led = process.leads;
        let due = process.progress.on_reply(call, &reply, stuck_ms);
        self.give(pid, Input::Store { call, reply, origin });
        let leads = self.processes.get(&pid).is_some_and(|process| process.leads);
        if due == Due::GivesUp && led && leads {
            self.fails(Violation::safety(
                "progress",
                "no append goes through, other writes do, and the server leads on",
            ));
        }
    }

    /// Something happens to a process; it may be dead, or stand still.
    pub(super) fn process_event(&mut self, pid: Pid, event: ProcessEvent) {
        let Some(process) = self.processes.get_mut(&pid) else { return };
        if let (Some(waiting), false) = (&mut process.paused, matches!(event, ProcessEvent::Resumes)) {
            waiting.push_back(event);
            return;
        }
        match event {
            ProcessEvent::Wake(generation) if generation == process.timer.1 => {
                // It is set anew, for the same time too where it fired early.
                self.process(pid).timer.0 = None;
                let checked = self.checks.pace.on_wake(self.now);
                self.holds(checked);
                self.give(pid, Input::Wake);
            }
            ProcessEvent::Wake(_) => {}
            ProcessEvent::Runs(id) => self.runs(pid, id),
            ProcessEvent::Replies(id, reply) => self.replies(pid, id, reply),
            ProcessEvent::Database(id, heard) => self.database_heard(pid, id, heard),
            ProcessEvent::Arrives(id) => self.arrives(pid, id),
            ProcessEvent::Gone(id) => self.give(pid, Input::RequestGone(id)),
            ProcessEvent::AnswerLost(id) => {
                self.checks.custody.on_lost(id);
                self.give(pid, Input::AnswerLost(id));
            }
            ProcessEvent::Resumes => self.resume(pid),
            ProcessEvent::StopBound => {
                self.fails(Violation::liveness("stop", "a server that was told to stop is still there"));
            }
        }
    }

    /// Gives a process one input, and does what it wants done.
    pub(super) fn give(&mut self, pid: Pid, input: Input) {
        self.trace.record(self.now, "input", &(pid, &input));
        let clock = self.process(pid).clock;
        let now = self.host.now(&clock, self.now);
        let process = self.process(pid);
        process.node.handle(now, input);
        let mut effects = Vec::new();
        while let Some(effect) = process.node.poll_effect() {
            effects.push(effect);
            if effects.len() > EFFECTS_AT_ONCE {
                self.fails(Violation::safety("pace", "the effects of one input do not end"));
                return;
            }
        }
        self.perform_all(pid, effects);
    }

    fn perform_all(&mut self, pid: Pid, effects: Vec<Effect>) {
        let count = effects.len() as u64;
        let struck = self.server_chance(FaultKind::CrashInStep, self.plan.faults.crash_in_step);
        let at = self.dice.server.below(count + 1);
        for (effect, index) in effects.into_iter().zip(0..) {
            if struck && index == at {
                self.marks.hit(Mark::CrashBetweenEffects);
                self.crash(pid);
                return;
            }
            self.perform(pid, effect);
            if self.failure.is_some() || !self.processes.contains_key(&pid) {
                return;
            }
        }
        if struck && at == count {
            self.crash(pid);
            return;
        }
        self.set_timer(pid);
    }

    fn perform(&mut self, pid: Pid, effect: Effect) {
        self.trace.record(self.now, "effect", &(pid, &effect));
        match effect {
            Effect::Store { call, connection, transaction, origin } => {
                if let Transaction::FreeLease(fence) = &transaction {
                    let checked = LeaseCheck::on_giving_back(self.process(pid).calls.appends_under(*fence));
                    self.holds(checked);
                }
                if self.plan.cluster.is_some() {
                    let checked = standby::on_call(&transaction, self.process(pid).leads);
                    self.holds(checked);
                }
                let now = self.now;
                self.process(pid).fresh.on_call(call, &transaction, now);
                self.process(pid).progress.on_call(call, &transaction, now);
                if matches!(transaction, Transaction::Append(..)) {
                    self.moment(pid, Moment::AppendSent);
                }
                self.call(pid, call, connection, transaction, origin);
            }
            Effect::WriteOff { call, connection } if self.postgres.is_some() => self.write_off(pid, call, connection),
            // The model of SQLite hangs nowhere for ever, and its late replies are dropped by the node.
            Effect::WriteOff { .. } => {}
            Effect::Respond { request, response } => self.respond(pid, request, response),
            Effect::Log(line) => self.logged(pid, &line),
            Effect::Exit { status } => self.exits(pid, status),
        }
    }

    fn logged(&mut self, pid: Pid, line: &LogEvent) {
        match line {
            LogEvent::WorkerLost { .. } => self.marks.hit(Mark::SessionLost),
            LogEvent::FenceLost { .. } => self.marks.hit(Mark::Usurped),
            LogEvent::Leading { .. } => self.moment(pid, Moment::Leading),
            LogEvent::Stopping => self.moment(pid, Moment::Stopping),
            LogEvent::Promoted { .. } => {
                self.marks.hit(Mark::PromotionNoticed);
                self.process(pid).won = None;
                self.checks.custody.begins(pid, self.now);
            }
            LogEvent::FenceTaken { .. } => self.process(pid).won = None,
            LogEvent::LedAstray { .. } => self.marks.hit(Mark::LedAstray),
            LogEvent::Unservable { .. } => {
                if self.process(pid).excuses.twin {
                    self.marks.hit(Mark::NameRefused);
                }
                let (schema, other) = (self.schema(), self.changing != Changing::Not);
                let process = self.process(pid);
                process.unservable = true;
                process.excuses.older = process.schema < schema;
                process.excuses.otherwise = other;
                if process.excuses.older {
                    self.marks.hit(Mark::OlderRefused);
                } else if other {
                    self.marks.hit(Mark::OtherwiseRefused);
                }
            }
            LogEvent::Elected { term, .. } => {
                self.checks.custody.begins(pid, self.now);
                if term.0 > 1 {
                    self.marks.hit(Mark::Failover);
                }
                let process = self.process(pid);
                process.won = None;
                (process.leads, process.progress) = (true, progress::Progress::default());
                self.moment(pid, Moment::Elected);
            }
            LogEvent::HandingOver { .. } => self.process(pid).hands_over = true,
            LogEvent::HandedOver { .. } => {
                self.marks.hit(Mark::HandedOver);
                let process = self.process(pid);
                process.hands_over = false;
                (process.leads, process.deposed, process.fence) = (false, true, None);
            }
            LogEvent::Stopped { clean: true } => {
                let won = self.process(pid).won;
                let named = self.store().holder().is_some().then(|| self.store().fence());
                let checked = standby::on_clean_stop(won, named);
                self.holds(checked);
            }
            LogEvent::LeadershipLost { .. } | LogEvent::LeaseLost { .. } => {
                self.marks.hit(Mark::SteppedDown);
                let process = self.process(pid);
                process.progress = progress::Progress::default();
                process.hands_over = false;
                (process.leads, process.deposed, process.fence) = (false, true, None);
                self.moment(pid, Moment::LeadershipLost);
            }
            _ => {}
        }
        let calm = self.is_calm();
        let process = self.process(pid);
        process.excuses.troubled = !calm;
        let checked = log::on_line(line, process.excuses);
        self.holds(checked);
    }

    fn set_timer(&mut self, pid: Pid) {
        let early = self.server_chance(FaultKind::EarlyWake, self.plan.faults.early_wake);
        let lag = self.dice.server.below(1_000);
        let now = self.now;
        let process = self.process(pid);
        let wanted = process.node.poll_timeout().map(|d| d.at);
        if wanted == process.timer.0 && wanted.is_some_and(|at| at > process.clock.read(now)) && !early {
            return;
        }
        process.timer.0 = wanted;
        process.timer.1 += 1;
        let generation = process.timer.1;
        let Some(at) = wanted else { return };
        let due = process.clock.when(at, now);
        let when = if early { Time(now.0 + (due.0 - now.0) / 2) } else { due.plus_us(lag) };
        self.at(when, Event::Process(pid, ProcessEvent::Wake(generation)));
    }

    /// A process ends by its own will.
    fn exits(&mut self, pid: Pid, status: u8) {
        let process = self.processes.remove(&pid).expect("it lives");
        self.trace.record(self.now, "exit", &(pid, status));
        let deposed = process.deposed && self.plan.cluster.as_ref().is_some_and(|cluster| cluster.exits);
        if process.unservable && process.excuses.older {
            self.upgraded.insert(process.place);
        }
        let excused = status == 1 && (process.excuses.usurped || process.unservable || deposed);
        let expected = excused || (process.stopping && status == 0);
        if !expected {
            let message = format!("a server ended with status {status}, which no fault explains");
            self.fails(Violation::safety("exit", message));
        }
        self.connections_end(process.lanes);
        self.break_off(pid);
        let pause = self.dice.server.between([20, 2_000]);
        self.at(self.now.plus_ms(pause), Event::StartServer);
    }

    /// A process is killed; it starts again later.
    pub(super) fn crash(&mut self, pid: Pid) {
        let Some(process) = self.processes.remove(&pid) else { return };
        self.trace.record(self.now, "crash", &pid);
        let stages: Vec<Stage> = process.calls.under_way.values().map(|c| c.stage).collect();
        let committed = stages.contains(&Stage::Ran { changed: true });
        let open = stages.iter().any(|s| matches!(s, Stage::Sent | Stage::Waiting));
        if self.marks.count(Mark::ChildHeldOverCrash) == 0 && self.checks.family.holds_an_end(&self.checks.history) {
            self.marks.hit(Mark::ChildHeldOverCrash);
        }
        if committed {
            self.marks.hit(Mark::CrashAfterCommit);
        }
        if open {
            self.marks.hit(Mark::CrashBeforeCommit);
        }
        if !committed && !open {
            self.marks.hit(Mark::CrashAfterReply);
        }
        self.connections_end(process.lanes);
        self.break_off(pid);
        let pause = self.dice.server.between(self.plan.faults.crash.bounds());
        self.at(self.now.plus_ms(pause), Event::StartServer);
    }

    /// A process is told to stop.
    pub(super) fn stop(&mut self, pid: Pid) {
        let running = !self.store().owners().is_empty();
        let process = self.process(pid);
        if std::mem::replace(&mut process.stopping, true) {
            return;
        }
        self.marks.hit(if running { Mark::CleanStopWithWork } else { Mark::CleanStop });
        self.at(self.now.plus_ms(60_000), Event::Process(pid, ProcessEvent::StopBound));
        self.give(pid, Input::Stop);
    }

    /// A process stands still for so long.
    pub(super) fn pause(&mut self, pid: Pid, ms: u64) {
        let now = self.now;
        let process = self.process(pid);
        if process.paused.is_some() {
            return;
        }
        process.paused = Some(VecDeque::new());
        process.paused_at = now;
        self.trace.record(now, "pause", &(pid, ms));
        self.at(now.plus_ms(ms), Event::Process(pid, ProcessEvent::Resumes));
    }

    pub(super) fn resume(&mut self, pid: Pid) {
        let Some(waiting) = self.process(pid).paused.take() else { return };
        self.trace.record(self.now, "resume", &pid);
        if self.now.since_ms(self.process(pid).paused_at) > self.plan.server.session_timeout_ms {
            self.marks.hit(Mark::PausedServer);
        }
        for event in waiting {
            self.at(self.now, Event::Process(pid, event));
        }
    }
}

impl Process {
    /// Whether it has never become the writer, as far as is committed.
    pub fn never_led(&self) -> bool {
        self.fence.is_none() && !self.leads && !self.deposed
    }

    /// The name that it has in the cluster.
    pub fn place(&self) -> u32 {
        self.place
    }
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("fence", &self.fence).finish_non_exhaustive()
    }
}
