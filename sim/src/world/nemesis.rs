//! Lasting faults: looked for every [`TICK_MS`] while the chaos lasts, and ended by the healing.

use super::World;
use super::clock::Time;
use super::event::Event;
use super::server::Pid;

use crate::check::Violation;
use crate::coverage::Mark;
use crate::fault::{FaultKind, Moment, Strike};
use crate::plan::{Fault, TICK_MS};
use crate::postgres::Writable;

/// So long the chaos lasts beyond what was planned, at most.
const OVERTIME_MS: u64 = 300_000;

/// After so long beyond what was planned there are lulls.
const LONG_S: u64 = 60;

/// From the beginning of a lull to that of the next one.
const LULL_S: u64 = 20;

impl World {
    /// Whether a fault begins now, and for how many milliseconds.
    fn strikes(&mut self, kind: FaultKind, fault: Fault) -> Option<u64> {
        let begins = self.dice.faults.chance(fault.chance);
        let ms = self.dice.faults.between(fault.bounds());
        let struck = self.faults.strikes(self.now, kind, begins, ms);
        self.tell_of_fault(kind, struck, None);
        struck
    }

    fn tell_of_fault(&mut self, fault: FaultKind, struck: Option<u64>, after: Option<Moment>) {
        if let Some(for_ms) = struck {
            self.trace.record(self.now, "fault", &(fault, for_ms, after));
        }
    }

    /// Whether a fault of one moment happens now, which the dice have decided in the same way whatever came before.
    pub(super) fn befalls(&mut self, kind: FaultKind, hit: bool) -> bool {
        let struck = if self.healed || self.is_lull() { None } else { self.faults.strikes(self.now, kind, hit, 0) };
        self.tell_of_fault(kind, struck, None);
        struck.is_some()
    }

    /// A server has come to a moment that a scenario may have named. What is to happen there does once the present input is
    /// done with.
    pub(super) fn moment(&mut self, pid: Pid, moment: Moment) {
        if self.healed {
            return;
        }
        let Some(place) = self.processes.get(&pid).map(|process| process.place()) else { return };
        for strike in self.faults.come_to(moment, place) {
            self.tell_of_fault(strike.fault, Some(strike.for_ms), Some(moment));
            self.at(self.now, Event::Strikes(pid, strike));
        }
    }

    /// What a scenario wants to happen to a server at a moment, or to the world around it; nothing, where it is gone by then.
    pub(super) fn strikes_at_moment(&mut self, pid: Pid, strike: &Strike) {
        let ms = strike.for_ms;
        if !self.processes.contains_key(&pid) {
            return;
        }
        match strike.fault {
            FaultKind::Crash => self.crash(pid),
            FaultKind::Stop => self.stop(pid),
            FaultKind::Pause => self.pause(pid, ms),
            FaultKind::NetworkDown => self.network_goes_down(ms),
            FaultKind::ClockBack => self.step_clock(-i64::try_from(ms).expect("short")),
            FaultKind::ClockForward => self.step_clock(i64::try_from(ms).expect("short")),
            FaultKind::SessionKilled => self.kill_election(pid),
            FaultKind::LinkCut => self.cut_store(pid),
            FaultKind::DatabaseRestart => self.restart_database(false, ms),
            FaultKind::DatabaseCrash => self.restart_database(true, ms),
            FaultKind::ReadOnly => self.writes_stop(Writable::ReadOnly, ms),
            FaultKind::DiskFull => self.disk_fills(ms),
            other => unreachable!("a scenario with {} at a moment is refused", other.as_str()),
        }
    }

    fn network_goes_down(&mut self, ms: u64) {
        self.trace.record(self.now, "network down", &ms);
        self.network.down_until = self.now.plus_ms(ms);
    }

    fn disk_fills(&mut self, ms: u64) {
        self.trace.record(self.now, "disk full", &ms);
        self.disk.full_until = self.now.plus_ms(ms);
        self.writes_stop(Writable::DiskFull, ms);
    }

    fn some_process(&mut self) -> Option<Pid> {
        let all: Vec<Pid> = self.processes.keys().copied().collect();
        (!all.is_empty()).then(|| *self.dice.faults.pick(&all))
    }

    fn some_worker(&mut self) -> usize {
        usize::try_from(self.dice.faults.below(self.workers.len() as u64)).expect("an index")
    }

    /// Looks for new faults.
    pub(super) fn tick(&mut self) {
        if self.healed {
            return;
        }
        self.strike_lasting();
        self.at(self.now.plus_ms(TICK_MS), Event::Tick);
    }

    /// For how many seconds the chaos has lasted longer than was planned.
    fn overtime_s(&self) -> u64 {
        let over_ms = self.now.since_ms(Time(0).plus_ms(self.plan.chaos_ms));
        if self.overtime { over_ms / 1_000 } else { 0 }
    }

    /// Some plans let hardly anything through. In overtime lasting faults begin in one second of four, and after a minute of
    /// it in one of twenty.
    fn lets_up(&self) -> bool {
        let over = self.overtime_s();
        !over.is_multiple_of(if over < LONG_S { 4 } else { LULL_S })
    }

    /// After that minute, nothing at all strikes in between.
    fn is_lull(&self) -> bool {
        self.overtime_s() >= LONG_S && self.lets_up()
    }

    fn strike_lasting(&mut self) {
        if self.lets_up() {
            return;
        }
        let faults = self.plan.faults.clone();
        self.strike_server(&faults);
        if let Some(ms) = self.strikes(FaultKind::DiskFull, faults.disk_full) {
            self.disk_fills(ms);
        }
        if let Some(ms) = self.strikes(FaultKind::DiskStall, faults.disk_stall) {
            self.trace.record(self.now, "disk stalls", &ms);
            self.disk.stalled_until = self.now.plus_ms(ms);
            if self.postgres.is_some() {
                self.freeze_all(ms);
            }
        }
        if self.postgres.is_some() {
            self.look_for_pooler();
            self.look_for_operator();
            self.strike_database();
        }
        if let Some(ms) = self.strikes(FaultKind::NetworkDown, faults.network_down) {
            self.network_goes_down(ms);
        }
        if let Some(ms) = self.strikes(FaultKind::ClockBack, faults.clock_back) {
            self.step_clock(-i64::try_from(ms).expect("short"));
            self.marks.hit(Mark::ClockBack);
        }
        if let Some(ms) = self.strikes(FaultKind::ClockForward, faults.clock_forward) {
            self.step_clock(i64::try_from(ms).expect("short"));
            self.marks.hit(Mark::ClockForward);
        }
        let index = self.some_worker();
        if let Some(ms) = self.strikes(FaultKind::WorkerDeath, faults.worker_death) {
            self.worker_dies(index, ms);
        }
        if let Some(ms) = self.strikes(FaultKind::WorkerPause, faults.worker_pause) {
            self.worker_pauses(index, ms);
        }
        if let Some(ms) = self.strikes(FaultKind::WorkerLeaves, faults.worker_leaves) {
            self.worker_leaves(index, ms);
        }
    }

    fn strike_server(&mut self, faults: &crate::plan::Faults) {
        let (crash, stop, pause, usurp) = (
            self.strikes(FaultKind::Crash, faults.crash),
            self.strikes(FaultKind::Stop, faults.stop),
            self.strikes(FaultKind::Pause, faults.pause),
            self.strikes(FaultKind::Usurp, faults.usurp),
        );
        let takeover =
            self.postgres.is_some() && self.strikes(FaultKind::Takeover, self.plan.database.takeover).is_some();
        let usurp = usurp.is_some() || takeover;
        let Some(pid) = self.some_process() else { return };
        if let Some(ms) = pause {
            self.pause(pid, ms);
        }
        if usurp && self.plan.cluster.is_none() && self.processes.len() == 1 && !self.process(pid).stopping {
            // Whichever of the two campaigns last deposes the other.
            self.process(pid).excuses.usurped = true;
            let second = self.launch();
            if let Some(second) = self.processes.get_mut(&second) {
                second.excuses.usurped = true;
            }
            if self.postgres.is_some() {
                self.kill_election(pid);
            }
        }
        if usurp && self.plan.cluster.is_some() && self.processes.len() <= self.servers() {
            // Of two processes of one name, one has to go.
            let place = self.process(pid).place();
            let second = self.launch_as(place);
            for pid in [pid, second] {
                if let Some(process) = self.processes.get_mut(&pid) {
                    process.excuses.twin = true;
                }
            }
        }
        if stop.is_some() && self.processes.contains_key(&pid) {
            self.stop(pid);
        }
        if crash.is_some() {
            self.crash(pid);
        }
    }

    fn strike_database(&mut self) {
        let plan = self.plan.database.clone();
        let begins = self.dice.locks.chance(plan.row_locked.chance);
        let ms = self.dice.locks.between(plan.row_locked.bounds());
        if let Some(ms) = self.faults.strikes(self.now, FaultKind::RowLocked, begins, ms) {
            self.begin_row_lock(ms);
        }
        let begins = self.dice.locks.chance(plan.append_hangs.chance);
        let ms = self.dice.locks.between(plan.append_hangs.bounds());
        if let Some(ms) = self.faults.strikes(self.now, FaultKind::AppendHangs, begins, ms) {
            self.hang_appends(ms);
        }
        if self.strikes(FaultKind::SessionKilled, plan.session_killed).is_some() {
            self.kill_session();
        }
        if let Some(ms) = self.strikes(FaultKind::SessionFrozen, plan.session_frozen) {
            self.freeze_session(ms);
        }
        if let Some(ms) = self.strikes(FaultKind::Promotion, plan.promotion) {
            self.strike_promotion(ms);
        }
        if let Some(ms) = self.strikes(FaultKind::DatabaseRestart, plan.restart) {
            self.restart_database(false, ms);
        }
        if let Some(ms) = self.strikes(FaultKind::DatabaseCrash, plan.crash) {
            self.restart_database(true, ms);
        }
        if let Some(ms) = self.strikes(FaultKind::ReadOnly, plan.read_only) {
            self.writes_stop(Writable::ReadOnly, ms);
        }
        if let Some(ms) = self.strikes(FaultKind::ConnectionsRefused, plan.refuses) {
            self.trace.record(self.now, "connections refused", &ms);
            let until = self.now.plus_ms(ms);
            self.database().refuses_until = until;
        }
    }

    fn writes_stop(&mut self, why: Writable, ms: u64) {
        if self.postgres.is_some() {
            self.trace.record(self.now, "no writes", &(format!("{why:?}"), ms));
            self.database().engine.set_writable(why);
            self.at(self.now.plus_ms(ms), Event::WritesAgain);
        }
    }

    fn step_clock(&mut self, by_ms: i64) {
        self.trace.record(self.now, "clock steps", &by_ms);
        self.host.step(by_ms);
        self.steady_clock = false;
    }

    /// The chaos has lasted as long as was planned. Where too little was done it goes on, and clients see to it that more is.
    pub(super) fn heal_if_enough(&mut self) {
        let (done, least) = (self.acknowledged, self.plan.least_commits);
        if done >= least {
            return self.heal();
        }
        if self.now > Time(0).plus_ms(self.plan.chaos_ms + OVERTIME_MS) {
            let message = format!(
                "{done} transactions are acknowledged after {OVERTIME_MS} ms more of chaos, and {least} are wanted"
            );
            return self.fails(Violation::liveness("liveness", message));
        }
        if !self.overtime {
            self.trace.record(self.now, "overtime", &(done, least));
            self.overtime = true;
            for index in 0..self.clients.len() {
                self.at(self.now, Event::Client(index));
            }
        }
        if self.is_lull() && self.overtime_s() % LULL_S == 1 && self.postgres.is_some() {
            // What stands still there may do so until the healing, and let nobody lead.
            self.heal_database();
        }
        self.at(self.now.plus_ms(1_000), Event::Heal);
    }

    /// The chaos is over: every fault ends, what stands still goes on, what is dead begins again.
    pub(super) fn heal(&mut self) {
        self.trace.record(self.now, "healed", &());
        self.healed = true;
        self.healed_at = self.now;
        self.disk.full_until = self.now;
        self.disk.stalled_until = self.now;
        self.network.down_until = self.now;
        if self.postgres.is_some() {
            self.heal_database();
        }
        let all: Vec<Pid> = self.processes.keys().copied().collect();
        for pid in all {
            self.resume(pid);
        }
        for _ in 0..self.servers() {
            self.start_server();
        }
        for index in 0..self.workers.len() {
            self.worker_resumes(index);
        }
        for index in 0..self.clients.len() {
            self.at(self.now, Event::Client(index));
        }
        self.at(self.now.plus_ms(500), Event::Look);
    }
}
