//! The way between clients, workers and the server: a request or its answer is lost, late, or wanted by nobody any more.

use super::event::{Event, ProcessEvent};
use super::postgres::Database;
use super::server::Pid;
use super::{World, clock::Time};
use crate::check::read::named;
use crate::check::runs::{Position, Runs};
use crate::check::{Answer, patience};
use crate::coverage::Mark;
use crate::fault::FaultKind;
use crate::rng::Ratio;
use orbit_core::api::{ErrorCode, Reply, Request, Response};
use orbit_core::id::SessionId;
use orbit_core::node::{Input, RequestId};
use serde::Serialize;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// So long after the healing everything is answered in time.
const CALM_MS: u64 = 10_000;

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Actor {
    Client(usize),
    /// A worker, and which of its lives.
    Worker(usize, u32),
}

/// A request under way, from its sending to its end on both sides.
#[derive(Clone, Debug)]
pub struct Exchange {
    pub actor: Actor,
    pub request: Rc<Request>,
    pub sent: Time,
    /// When it reached the server.
    pub arrived: Time,
    /// What had been shown of the execution that it names when it arrived: no answer may be older.
    pub floor: Position,
    /// What was recorded of it then.
    pub newest: Position,
    /// The server that it was sent to.
    pub process: Option<Pid>,
    /// Whether the one who asked still waits.
    pub waits: bool,
    /// Whether the server has it and has not answered.
    pub pending: bool,
    /// Whether its answer is on the wire.
    pub answered: bool,
}

/// What the one who asked learns.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub enum Heard {
    Response(Box<Response>),
    /// Nobody listens there, or the connection broke.
    Broken,
    /// Nothing within its own time-out.
    Nothing,
}

/// Requests under way.
#[derive(Debug, Default)]
pub struct Network {
    pub exchanges: BTreeMap<RequestId, Exchange>,
    next: u64,
    /// Nothing passes before this time.
    pub down_until: Time,
}

impl World {
    /// Whether nothing has been broken for a while.
    pub(super) fn is_calm(&self) -> bool {
        self.healed && self.now > self.healed_at.plus_ms(CALM_MS)
    }

    fn latency(&mut self) -> u64 {
        self.dice.network.between(self.plan.network.latency_us)
    }

    /// Whether something gets lost here.
    fn network_chance(&mut self, kind: FaultKind, ratio: Ratio) -> bool {
        let hit = self.dice.network.chance(ratio);
        self.befalls(kind, hit)
    }

    /// Whether the front notices that the one who asked is gone; nothing is left to notice once the world is healed.
    fn notices(&mut self) -> bool {
        let hit = self.dice.network.chance(self.plan.network.notice);
        hit && !self.healed
    }

    /// Sends a request, for which `actor` waits so long.
    pub(super) fn send(&mut self, actor: Actor, request: Request, timeout_ms: u64) -> RequestId {
        self.network.next += 1;
        let id = RequestId(self.network.next);
        self.book.asked(&request);
        let process = self.address();
        let exchange = Exchange {
            actor,
            request: Rc::new(request),
            sent: self.now,
            arrived: self.now,
            floor: Position::default(),
            newest: Position::default(),
            process,
            waits: true,
            pending: false,
            answered: false,
        };
        self.network.exchanges.insert(id, exchange);
        let latency = self.latency();
        let lost = self.network_chance(FaultKind::RequestLost, self.plan.network.lose_request)
            || self.now < self.network.down_until;
        let exchange = &self.network.exchanges[&id];
        self.trace.record(
            self.now,
            "asks",
            &(id, actor, process, exchange.request.name(), named(&exchange.request), lost),
        );
        match process {
            _ if lost => {}
            Some(pid) => self.at(self.now.plus_us(latency), Event::Process(pid, ProcessEvent::Arrives(id))),
            None => self.at(self.now.plus_us(latency), Event::Hears(id, Heard::Broken)),
        }
        self.at(self.now.plus_ms(timeout_ms), Event::Hears(id, Heard::Nothing));
        id
    }

    /// A request has reached a server that lives.
    pub(super) fn arrives(&mut self, pid: Pid, id: RequestId) {
        let Some(exchange) = self.network.exchanges.get_mut(&id) else { return };
        exchange.pending = true;
        exchange.arrived = self.now;
        if let Some(execution) = named(&exchange.request) {
            exchange.floor = self.checks.read.shown(execution);
            exchange.newest = self.checks.history.runs(execution).map(Runs::last).unwrap_or_default();
        }
        let request = Request::clone(&exchange.request);
        self.give(pid, Input::Request { id, request });
    }

    /// The one who asked hears something, or gives up.
    pub(super) fn hears(&mut self, id: RequestId, heard: Heard) {
        let Some(exchange) = self.network.exchanges.get_mut(&id) else { return };
        if !std::mem::replace(&mut exchange.waits, false) {
            let (actor, process) = (exchange.actor, exchange.process);
            if let (Heard::Response(_), Some(pid), true) = (heard, process, self.must_notice(actor)) {
                self.at(self.now, Event::Process(pid, ProcessEvent::AnswerLost(id)));
            }
            return;
        }
        let (actor, pending, answered, process) =
            (exchange.actor, exchange.pending, exchange.answered, exchange.process);
        let session = session_of(&exchange.request);
        let calm = self.healed && exchange.sent > self.healed_at.plus_ms(CALM_MS);
        if heard == Heard::Nothing && pending && calm {
            let violation = patience::on_silence(exchange);
            self.fails(violation);
            return;
        }
        if !pending {
            // An answer that is still on the wire finds nobody.
            if !answered || matches!(heard, Heard::Response(_)) {
                self.network.exchanges.remove(&id);
            }
        } else if let Some(pid) = process {
            // It closed its connection; the front may notice.
            let latency = self.latency();
            if self.notices() {
                self.marks.hit(Mark::RequestGone);
                self.at(self.now.plus_us(latency), Event::Process(pid, ProcessEvent::Gone(id)));
            }
        }
        match &heard {
            Heard::Response(_) => self.trace.record(self.now, "answered", &id),
            Heard::Broken | Heard::Nothing => self.trace.record(self.now, "unanswered", &(id, &heard)),
        }
        match actor {
            Actor::Client(index) => self.client_hears(index, id, heard),
            Actor::Worker(index, life) => self.worker_hears(index, life, id, session, heard),
        }
    }

    /// A server answers.
    pub(super) fn respond(&mut self, pid: Pid, id: RequestId, response: Response) {
        let Some(exchange) = self.network.exchanges.get(&id).filter(|e| e.pending && e.process == Some(pid)) else {
            self.fails(crate::check::Violation::safety("answer", format!("request {id} is answered, and is not open")));
            return;
        };
        let (waits, exchange) = (exchange.waits, exchange.clone());
        let store = self.postgres.as_deref().map_or(&self.sqlite, Database::store);
        let answer = Answer {
            exchange: &exchange,
            response: &response,
            store,
            current: self.processes.get(&pid).is_some_and(|p| p.fence == Some(store.fence())),
            reads: self.plan.cluster.is_some() && self.processes.get(&pid).is_some_and(|p| !p.leads),
            stopping: self.processes.get(&pid).is_some_and(|p| p.stopping || p.hands_over),
            on_the_wire: waits,
            calm: self.healed
                && exchange.sent > self.healed_at.plus_ms(CALM_MS)
                && self.plan.server.request_deadline_ms >= CALM_MS,
            session_timeout: Duration::from_millis(self.plan.server.session_timeout_ms),
            now: self.now,
        };
        self.checks.custody.on_answer(id, &answer);
        // Who works with what a promotion has left behind says what is lost, all of it.
        let checked = match self.is_behind(pid) {
            true => Ok(()),
            false => self.checks.on_answer(&answer, &mut self.book, &mut self.marks),
        };
        match (&response.reply, answer.reads) {
            (Reply::Execution(_), true) => self.marks.hit(Mark::ReadOnStandby),
            (Reply::SteppedDown(done), _) if done.leader.is_some() => self.marks.hit(Mark::LedNext),
            (Reply::Error(error), _) if error.code == ErrorCode::NotLeader => self.marks.hit(Mark::SentToLeader),
            _ => {}
        }
        self.holds(checked);
        if let (Some(cluster), Some(process)) = (&self.plan.cluster, self.processes.get(&pid))
            && process.leads
        {
            let validity_ms = cluster.lease_ms.unwrap_or(cluster.validity_ms);
            let checked = process.fresh.on_answer(&exchange.request, &response, validity_ms, self.now);
            self.holds(checked);
        }
        self.network.exchanges.get_mut(&id).expect("just looked up").pending = false;
        let latency = self.latency();
        let lost = self.network_chance(FaultKind::AnswerLost, self.plan.network.lose_response)
            || self.now < self.network.down_until;
        let noticed = self.notices() || self.must_notice(exchange.actor);
        let falsely = self.network_chance(FaultKind::FalseNotice, self.plan.network.false_notice);
        if !waits || lost {
            if noticed {
                self.marks.hit(Mark::AnswerLost);
                self.at(self.now.plus_us(latency), Event::Process(pid, ProcessEvent::AnswerLost(id)));
            }
            if !waits {
                self.network.exchanges.remove(&id);
            }
            return;
        }
        self.network.exchanges.get_mut(&id).expect("just looked up").answered = true;
        if falsely {
            self.at(self.now.plus_us(latency), Event::Process(pid, ProcessEvent::AnswerLost(id)));
        }
        self.at(self.now.plus_us(latency), Event::Hears(id, Heard::Response(Box::new(response))));
    }

    /// A worker that does not say what it holds relies on the front to notice (protocols, 24); what a front cannot
    /// notice either is the reason why every SDK does say it.
    fn must_notice(&self, actor: Actor) -> bool {
        matches!(actor, Actor::Worker(index, _) if !self.workers[index].names_holding())
    }

    /// A server is no more: what it had not answered is broken off.
    pub(super) fn break_off(&mut self, pid: Pid) {
        let mine = |e: &&mut Exchange| e.process == Some(pid) && e.pending;
        for exchange in self.network.exchanges.values_mut().filter(|e| mine(e)) {
            exchange.pending = false;
        }
        let broken: Vec<RequestId> = self
            .network
            .exchanges
            .iter()
            .filter(|(_, e)| e.process == Some(pid) && e.waits)
            .map(|(id, _)| *id)
            .collect();
        for id in broken {
            // An answer that is on its way still arrives first, or is lost with the connection.
            let latency = self.latency();
            self.at(self.now.plus_us(latency), Event::Hears(id, Heard::Broken));
        }
        self.network.exchanges.retain(|_, e| e.waits || e.pending || e.answered);
    }
}

/// The worker session that a request belongs to.
fn session_of(request: &Request) -> Option<SessionId> {
    match request {
        Request::Poll(poll) => Some(poll.session),
        Request::Heartbeat { session, .. } | Request::Report { session, .. } | Request::Unregister { session } => {
            Some(*session)
        }
        _ => None,
    }
}
