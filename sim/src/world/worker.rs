//! Workers: they register, poll, heartbeat, run tasks and report; they die, pause past their session, and report late
//! and twice.

use super::World;
use super::event::{Event, WorkerEvent};
use super::network::{Actor, Heard};
use crate::rng::Ratio;
use orbit_core::api::request::{Contract, Poll, Register, ReportForm, TaskOutcome, TaskResult};
use orbit_core::api::response::{Accepted, Assignment, ResultOutcome};
use orbit_core::api::{ErrorCode, Reply, Request};
use orbit_core::execution::event::TaskError;
use orbit_core::id::{ExecutionId, SessionId, Token, WorkerId};
use orbit_core::node::RequestId;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

/// How many tasks a worker runs at once.
const CAPACITY: usize = 3;
/// A worker waits at least so long between two polls.
const POLL_PAUSE_MS: u64 = 5;

/// See the module's documentation.
#[derive(Debug)]
pub struct Worker {
    id: WorkerId,
    contracts: Vec<Contract>,
    /// It says what it holds.
    names_holding: bool,
    /// It reports by complete and fail.
    reports_directly: bool,
    /// Which of its lives: one more after each death.
    life: u32,
    alive: bool,
    paused: Option<VecDeque<Late>>,
    session: Option<SessionId>,
    /// How many polls it has under way at once.
    polls: usize,
    /// Requests under way: registration or polls, heartbeat, report.
    asking: BTreeSet<RequestId>,
    heartbeat: Option<RequestId>,
    reporting: Option<(RequestId, BTreeSet<Token>)>,
    running: BTreeSet<Token>,
    done: BTreeMap<Token, TaskOutcome>,
    /// Results to be reported although they were acknowledged.
    again: Vec<TaskResult>,
}

/// What happened to a worker while it stood still.
#[derive(Debug)]
enum Late {
    Does(WorkerEvent),
    Hears(RequestId, Option<SessionId>, Heard),
}

impl Worker {
    /// A worker that has not begun.
    pub fn new(
        index: usize,
        contracts: Vec<Contract>,
        names_holding: bool,
        reports_directly: bool,
        polls: usize,
    ) -> Worker {
        Worker {
            id: WorkerId::new(format!("worker-{index}")),
            contracts,
            names_holding,
            reports_directly,
            polls,
            life: 0,
            alive: true,
            paused: None,
            session: None,
            asking: BTreeSet::new(),
            heartbeat: None,
            reporting: None,
            running: BTreeSet::new(),
            done: BTreeMap::new(),
            again: Vec::new(),
        }
    }

    /// Whether it works on something, or has something to report.
    pub fn is_busy(&self) -> bool {
        !self.running.is_empty() || !self.done.is_empty()
    }

    /// What it offers, in that session.
    pub fn offers(&self, session: SessionId) -> Option<&[Contract]> {
        (self.session == Some(session)).then_some(&self.contracts)
    }

    /// Whether it says what it holds.
    pub fn names_holding(&self) -> bool {
        self.names_holding
    }

    /// Whether it lives and moves.
    pub fn is_well(&self) -> bool {
        self.alive && self.paused.is_none()
    }

    fn holding(&self) -> Option<Vec<Token>> {
        self.names_holding.then(|| self.running.iter().chain(self.done.keys()).cloned().collect())
    }

    /// Results that no request carries at the moment.
    fn take_report(&mut self) -> Vec<TaskResult> {
        let result =
            |(token, outcome): (&Token, &TaskOutcome)| TaskResult { token: token.clone(), outcome: outcome.clone() };
        let mut results: Vec<TaskResult> = self.done.iter().map(result).collect();
        let twice = std::mem::take(&mut self.again);
        results.extend(twice.into_iter().filter(|r| !self.done.contains_key(&r.token)));
        results
    }
}

impl World {
    fn worker_chance(&mut self, ratio: Ratio) -> bool {
        let hit = self.dice.workers.chance(ratio);
        hit && !self.healed
    }

    /// A worker does something by itself.
    pub(super) fn worker_event(&mut self, index: usize, life: u32, event: WorkerEvent) {
        let worker = &mut self.workers[index];
        if worker.life != life {
            return;
        }
        if let (Some(late), false) = (&mut worker.paused, matches!(event, WorkerEvent::Resumes)) {
            late.push_back(Late::Does(event));
            return;
        }
        match event {
            WorkerEvent::Goes => self.worker_goes(index),
            WorkerEvent::Heartbeat => self.worker_beats(index),
            WorkerEvent::Done(token) => self.task_done(index, token),
            WorkerEvent::Resumes => self.worker_resumes(index),
            WorkerEvent::Revives => {
                self.workers[index].alive = true;
                self.worker_goes(index);
            }
        }
    }

    fn worker_actor(&self, index: usize) -> Actor {
        Actor::Worker(index, self.workers[index].life)
    }

    fn worker_at(&mut self, index: usize, in_ms: u64, event: WorkerEvent) {
        let life = self.workers[index].life;
        self.at(self.now.plus_ms(in_ms), Event::Worker(index, life, event));
    }

    fn worker_goes(&mut self, index: usize) {
        let actor = self.worker_actor(index);
        let worker = &mut self.workers[index];
        if !worker.alive || worker.asking.len() >= worker.polls {
            return;
        }
        let Some(session) = worker.session else {
            if !worker.asking.is_empty() {
                return;
            }
            let register = Register {
                worker_id: worker.id.clone(),
                runtime: "sim".into(),
                sdk: None,
                contracts: worker.contracts.clone(),
            };
            let asking = self.send(actor, Request::Register(register), 3_000);
            self.workers[index].asking.insert(asking);
            return;
        };
        let results = if worker.reports_directly { Vec::new() } else { worker.take_report() };
        let room = CAPACITY.saturating_sub(worker.running.len());
        if room == 0 && results.is_empty() {
            // It goes on when a task is done.
            return;
        }
        let wait = if results.is_empty() { self.dice.workers.between([100, 3_000]) } else { 0 };
        let worker = &self.workers[index];
        let poll = Poll {
            session,
            max_tasks: u32::try_from(room).expect("small"),
            wait: Duration::from_millis(wait),
            holding: worker.holding(),
            results,
        };
        for result in &poll.results {
            self.book.report(&result.token, &result.outcome);
        }
        let asking = self.send(actor, Request::Poll(poll), wait + 4_000);
        self.workers[index].asking.insert(asking);
    }

    fn worker_beats(&mut self, index: usize) {
        let actor = self.worker_actor(index);
        let worker = &self.workers[index];
        let Some(session) = worker.session.filter(|_| worker.alive) else { return };
        if worker.heartbeat.is_none() {
            let request = Request::Heartbeat { session, holding: worker.holding() };
            let heartbeat = self.send(actor, request, 2_000);
            self.workers[index].heartbeat = Some(heartbeat);
        }
        self.worker_at(index, self.plan.server.heartbeat_ms, WorkerEvent::Heartbeat);
    }

    /// Reports what is done, by complete and fail.
    fn worker_reports(&mut self, index: usize) {
        let actor = self.worker_actor(index);
        let worker = &mut self.workers[index];
        let Some(session) = worker.session else { return };
        if !worker.reports_directly || worker.reporting.is_some() || !worker.alive {
            return;
        }
        let mut results = worker.take_report();
        if results.is_empty() {
            return;
        }
        results.extend(self.nonsense());
        let tokens = results.iter().map(|r| r.token.clone()).collect();
        let form = if results.len() == 1 { ReportForm::Single } else { ReportForm::Batch };
        for result in &results {
            self.book.report(&result.token, &result.outcome);
        }
        let exchange = self.send(actor, Request::Report { session, results, form }, 3_000);
        self.workers[index].reporting = Some((exchange, tokens));
    }

    /// Sometimes a result of a delivery that never was.
    fn nonsense(&mut self) -> Option<TaskResult> {
        let talks = self.worker_chance(self.plan.habits.nonsense);
        let id = self.dice.workers.uuid();
        let ids = self.book.ids();
        let execution = if ids.is_empty() { ExecutionId::new("nobody") } else { self.dice.workers.pick(&ids).clone() };
        talks.then(|| TaskResult {
            token: Token { execution, id },
            outcome: TaskOutcome::Succeeded(Arc::new(json!({"v": "nonsense"}))),
        })
    }

    fn task_done(&mut self, index: usize, token: Token) {
        if !self.workers[index].running.remove(&token) {
            return;
        }
        let outcome = self.task_outcome(index);
        self.workers[index].done.insert(token, outcome);
        self.worker_reports(index);
        self.worker_goes(index);
    }

    fn task_outcome(&mut self, index: usize) -> TaskOutcome {
        let fails = self.worker_chance(self.plan.habits.task_fails);
        let for_good = self.dice.workers.chance(self.plan.habits.task_fails_for_good);
        let declined = self.dice.workers.chance(Ratio::new(1, 2));
        let v = self.dice.workers.below(1_000);
        if !fails {
            return TaskOutcome::Succeeded(Arc::new(json!({"v": v, "by": index})));
        }
        let (code, retryable) = match (for_good, declined) {
            (false, _) => ("FLAKY", true),
            (true, false) => ("BROKEN", false),
            // Final where the definition says so.
            (true, true) => ("DECLINED", true),
        };
        TaskOutcome::Failed(TaskError {
            code: code.into(),
            message: format!("drawn {v}"),
            retryable,
            details: None,
            step: None,
        })
    }

    /// A worker hears of its request.
    pub(super) fn worker_hears(
        &mut self,
        index: usize,
        life: u32,
        id: RequestId,
        session: Option<SessionId>,
        heard: Heard,
    ) {
        let worker = &mut self.workers[index];
        if worker.life != life {
            return;
        }
        if let Some(late) = &mut worker.paused {
            late.push_back(Late::Hears(id, session, heard));
            return;
        }
        let unknown_session = matches!(&heard, Heard::Response(r)
            if matches!(&r.reply, Reply::Error(e) if e.code == ErrorCode::UnknownSession));
        // An answer about an earlier session says nothing about this one.
        if unknown_session && worker.session == session {
            worker.session = None;
        }
        if worker.asking.remove(&id) {
            self.asked_and_heard(index, heard);
        } else if worker.heartbeat == Some(id) {
            worker.heartbeat = None;
            if let Heard::Response(response) = heard
                && let Reply::Heartbeat(cancels) = response.reply
            {
                self.stop_working(index, &cancels.cancel);
            }
        } else if worker.reporting.as_ref().is_some_and(|(r, _)| *r == id) {
            let tokens = worker.reporting.take().map(|(_, tokens)| tokens).unwrap_or_default();
            if let Heard::Response(response) = heard {
                match response.reply {
                    Reply::Reported(outcomes) => self.reported(index, &outcomes),
                    Reply::ReportedOne(outcome) => self.reported(index, &[outcome]),
                    // The database has lost the delivery.
                    Reply::Error(error) if error.code == ErrorCode::UnknownToken => {
                        self.workers[index].done.retain(|token, _| !tokens.contains(token));
                    }
                    _ => {}
                }
            }
        }
        if unknown_session && self.workers[index].asking.is_empty() {
            self.worker_at(index, POLL_PAUSE_MS, WorkerEvent::Goes);
        }
    }

    /// The answer to a registration or a poll.
    fn asked_and_heard(&mut self, index: usize, heard: Heard) {
        let mut pause = POLL_PAUSE_MS;
        match heard {
            Heard::Response(response) => match response.reply {
                Reply::Registered(registered) => {
                    let first = self.workers[index].session.replace(registered.session_id).is_none();
                    if first {
                        self.worker_at(index, registered.heartbeat_interval_ms, WorkerEvent::Heartbeat);
                    }
                    self.worker_reports(index);
                }
                Reply::Polled(polled) => {
                    self.reported(index, &polled.outcomes);
                    self.stop_working(index, &polled.cancel);
                    for task in polled.tasks {
                        self.begin_task(index, &task);
                    }
                    self.worker_reports(index);
                }
                Reply::Error(_) => pause = self.dice.workers.between([20, 400]),
                other => panic!("a worker is answered {other:?}"),
            },
            Heard::Broken | Heard::Nothing => pause = self.dice.workers.between([20, 400]),
        }
        self.worker_at(index, pause, WorkerEvent::Goes);
    }

    fn begin_task(&mut self, index: usize, task: &Assignment) {
        let worker = &mut self.workers[index];
        let known = worker.running.contains(&task.token) || worker.done.contains_key(&task.token);
        if known {
            // Answered again: the worker has it already.
            return;
        }
        worker.running.insert(task.token.clone());
        let mut ms = self.dice.workers.between(self.plan.habits.task_ms);
        if self.worker_chance(self.plan.habits.long_task) {
            ms += self.dice.workers.between(self.plan.habits.long_task_ms);
        }
        self.worker_at(index, ms, WorkerEvent::Done(task.token.clone()));
    }

    fn stop_working(&mut self, index: usize, cancel: &[Token]) {
        for token in cancel {
            let ignores = self.worker_chance(self.plan.habits.ignore_cancel);
            if !ignores {
                self.workers[index].running.remove(token);
                self.workers[index].done.remove(token);
            }
        }
        if !cancel.is_empty() {
            // There is room again.
            self.worker_at(index, POLL_PAUSE_MS, WorkerEvent::Goes);
        }
    }

    fn reported(&mut self, index: usize, outcomes: &[ResultOutcome]) {
        for outcome in outcomes {
            let retry = outcome.outcome == Accepted::Refused
                && outcome.error.as_ref().is_some_and(|e| e.code.retryable() || e.code == ErrorCode::UnknownSession);
            if retry {
                continue;
            }
            let twice = self.worker_chance(self.plan.habits.report_twice);
            let worker = &mut self.workers[index];
            if let Some(said) = worker.done.remove(&outcome.token)
                && twice
            {
                worker.again.push(TaskResult { token: outcome.token.clone(), outcome: said });
            }
        }
        let left = !self.workers[index].done.is_empty() || !self.workers[index].again.is_empty();
        if left && self.workers[index].reports_directly {
            self.worker_at(index, 50, WorkerEvent::Goes);
        }
    }

    /// A worker dies with all that it holds; it begins again after so long.
    pub(super) fn worker_dies(&mut self, index: usize, ms: u64) {
        let worker = &mut self.workers[index];
        if !worker.alive {
            return;
        }
        let (names, directly, polls) = (worker.names_holding, worker.reports_directly, worker.polls);
        let fresh = Worker::new(index, worker.contracts.clone(), names, directly, polls);
        *worker = Worker { life: worker.life + 1, alive: false, ..fresh };
        self.trace.record(self.now, "worker dies", &index);
        self.worker_at(index, ms, WorkerEvent::Revives);
    }

    /// A worker leaves, as a clean stop does, and comes back after so long.
    pub(super) fn worker_leaves(&mut self, index: usize, ms: u64) {
        let actor = self.worker_actor(index);
        if let Some(session) = self.workers[index].session {
            self.send(actor, Request::Unregister { session }, 1_000);
        }
        self.worker_dies(index, ms);
    }

    /// A worker stands still for so long.
    pub(super) fn worker_pauses(&mut self, index: usize, ms: u64) {
        let worker = &mut self.workers[index];
        if worker.alive && worker.paused.is_none() {
            worker.paused = Some(VecDeque::new());
            self.trace.record(self.now, "worker pauses", &(index, ms));
            self.worker_at(index, ms, WorkerEvent::Resumes);
        }
    }

    pub(super) fn worker_resumes(&mut self, index: usize) {
        let life = self.workers[index].life;
        let Some(late) = self.workers[index].paused.take() else { return };
        self.trace.record(self.now, "worker resumes", &index);
        for what in late {
            match what {
                Late::Does(event) => self.worker_event(index, life, event),
                Late::Hears(id, session, heard) => self.worker_hears(index, life, id, session, heard),
            }
        }
    }
}
