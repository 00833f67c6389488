//! The calls of a process: which connection each runs on, message by message, and how it ends.

use super::{Current, Heard, Lane, Lanes, Link, LinkId, Message, Sender, Waiting};
use crate::check::Violation;
use crate::check::verdict::Asked;
use crate::coverage::Mark;
use crate::fault::FaultKind;
use crate::postgres::store::Program;
use crate::postgres::{Command, Severity, SqlError};
use crate::rng::Ratio;
use crate::world::World;
use crate::world::disk::Stage;
use crate::world::server::Pid;
use orbit_core::mutant::{Mutant, Mutants};
use orbit_core::node::{CallId, Connection};
use orbit_core::store::executor::{Ask, Executor, Frame};
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome::{self, Cause, Fact, FailureKind, Phase, Reply};
use orbit_core::store::statement::{LockState, Statement};
use orbit_core::store::transaction::{CampaignVerdict, Transaction, Verdict};
use std::collections::VecDeque;

impl World {
    /// A node sends a call.
    pub(in crate::world) fn enqueue(
        &mut self,
        pid: Pid,
        call: CallId,
        connection: Connection,
        transaction: Transaction,
        origin: Option<Origin>,
    ) {
        let process = self.process(pid);
        let waiting = Waiting { call, transaction, origin, knew: process.timeline };
        process.lanes.queues.entry(connection).or_default().push_back(waiting);
        self.start_next(pid, connection);
    }

    fn start_next(&mut self, pid: Pid, connection: Connection) {
        let planted = self.planted;
        let width = if connection == Connection::Requests { 2 } else { 1 };
        for index in 0..width {
            let key = (connection, index);
            let lanes = &mut self.process(pid).lanes;
            let lane = lanes.lanes.entry(key).or_default();
            if lane.current.is_some() {
                continue;
            }
            let Some(next) = lanes.queues.get_mut(&connection).and_then(VecDeque::pop_front) else { return };
            let Waiting { call, transaction, origin, knew } = next;
            let asked = Asked::of(&transaction);
            let name = transaction.name();
            lane.current = Some(Current {
                call,
                origin,
                knew,
                executor: Executor::new(transaction),
                name,
                frame: Frame::Auto,
                phase: Phase::NotSent,
                todo: VecDeque::new(),
                got: Vec::new(),
                then: None,
                asked,
            });
            let leads_to = lane.leads_to;
            let elsewhere = leads_to.is_some_and(|found| !found.serves(origin, &planted));
            let given_up = elsewhere.then(|| lane.link.take()).flatten();
            let connected = lane.link.is_some();
            if let Some(call) = self.process(pid).calls.under_way.get_mut(&call) {
                call.stage = Stage::Sent;
            }
            if let Some(link) = given_up {
                self.send_there(link, Message::Gone);
            }
            if connected {
                self.go_on(pid, key);
            } else {
                self.connect(pid, key);
            }
        }
    }

    fn connect(&mut self, pid: Pid, key: (Connection, u8)) {
        let now = self.now;
        let pooled = self.leads_to_pooler();
        let database = self.database();
        database.last_link += 1;
        let id = LinkId(database.last_link);
        let link = Link {
            pid,
            connection: key.0,
            session: None,
            timeline: 0,
            pooled,
            cut: false,
            changed: false,
            last_there: now,
            last_back: now,
        };
        database.links.insert(id, link);
        let lane = self.lane(pid, key);
        (lane.link, lane.leads_to) = (Some(id), None);
        self.send_there(id, Message::Connect);
    }

    fn lane(&mut self, pid: Pid, key: (Connection, u8)) -> &mut Lane {
        self.process(pid).lanes.lanes.get_mut(&key).expect("a lane that was used")
    }

    fn current(&mut self, pid: Pid, key: (Connection, u8)) -> &mut Current {
        self.lane(pid, key).current.as_mut().expect("a call is under way")
    }

    /// The transaction's next step.
    pub(super) fn go_on(&mut self, pid: Pid, key: (Connection, u8)) {
        let current = self.current(pid, key);
        match current.executor.ask() {
            Ask::Rollback(verdict) => {
                current.then = Some(Reply::Done(verdict));
                current.todo.push_back(Command::Rollback);
            }
            Ask::Send(statements, frame) => {
                current.frame = frame;
                if matches!(frame, Frame::Begin | Frame::Whole) {
                    current.todo.push_back(Command::Begin);
                }
                current.todo.extend(statements.into_iter().map(|s: Statement| Command::Run(Program::new(s))));
                if matches!(frame, Frame::Commit | Frame::Whole) {
                    current.todo.push_back(Command::Commit);
                }
            }
        }
        self.send_next(pid, key);
    }

    fn send_next(&mut self, pid: Pid, key: (Connection, u8)) {
        let current = self.current(pid, key);
        let command = current.todo.pop_front().expect("there is something to send");
        current.phase = match (&command, current.frame) {
            (Command::Commit, _) | (Command::Run(_), Frame::Auto) => Phase::CommitSent,
            _ => Phase::Open,
        };
        let (name, call) = (current.name, current.call);
        let (knew, link) = (current.knew, self.lane(pid, key).link.expect("it is connected"));
        let leads_to = self.lane(pid, key).leads_to.map_or(0, |origin| origin.timeline);
        if leads_to < knew && !matches!(command, Command::Rollback) {
            let message = format!("a server that knew of timeline {knew} sent {name} to timeline {leads_to}");
            return self.fails(Violation::safety("timeline", message));
        }
        let cut = self.link_chance(FaultKind::LinkCut, self.plan.database.cut);
        let lost = self.dice.database.chance(Ratio::new(1, 2));
        if !(cut && lost) {
            self.send_there(link, Message::Command(Box::new(command), Sender { name, pid, call }));
        }
        if cut {
            self.cut(link);
        }
    }

    /// Something comes back to a server process.
    pub(in crate::world) fn database_heard(&mut self, pid: Pid, id: LinkId, heard: Heard) {
        let lanes = &self.process(pid).lanes.lanes;
        let Some(key) = lanes.iter().find(|(_, l)| l.link == Some(id)).map(|(key, _)| *key) else {
            return; // written off
        };
        if self.lane(pid, key).current.is_none() {
            // It ended while nothing was asked of it.
            self.lane(pid, key).link = None;
            return;
        }
        match heard {
            Heard::Connected(origin) => self.connected(pid, key, origin),
            Heard::Refused(error) => self.broken(pid, key, error),
            Heard::Rows(rows) => {
                self.current(pid, key).got.push(rows);
                self.answered(pid, key);
            }
            Heard::Done => self.answered(pid, key),
            Heard::Error(error) if error.severity == Severity::Fatal => self.broken(pid, key, error),
            Heard::Error(error) => {
                let current = self.current(pid, key);
                let reply = tell(current, error);
                current.todo.clear();
                current.got.clear();
                if current.frame == Frame::Auto {
                    return match reply {
                        Some(reply) => self.finish(pid, key, reply),
                        // An append goes on in halves.
                        None => self.go_on(pid, key),
                    };
                }
                current.then = Some(reply.expect("an error ends a transaction of several statements"));
                current.todo.push_back(Command::Rollback);
                self.send_next(pid, key);
            }
        }
    }

    /// A connection is open, and says where it leads.
    fn connected(&mut self, pid: Pid, key: (Connection, u8), origin: Origin) {
        let planted = self.planted;
        let lane = self.lane(pid, key);
        lane.leads_to = Some(origin);
        let wanted = lane.current.as_ref().expect("a call is under way").origin;
        if origin.serves(wanted, &planted) {
            return self.go_on(pid, key);
        }
        if let Some(link) = lane.link.take() {
            self.send_there(link, Message::Gone);
        }
        let (phase, severity) = (Phase::NotSent, Some(outcome::Severity::Error));
        let cause = Cause::Kind(FailureKind::Reconnect);
        let fact = Fact { phase, severity, cause, message: format!("injected: {}", origin.refusal(wanted)) };
        self.finish(pid, key, outcome::judge(fact));
    }

    fn answered(&mut self, pid: Pid, key: (Connection, u8)) {
        let current = self.current(pid, key);
        if !current.todo.is_empty() {
            return self.send_next(pid, key);
        }
        if let Some(reply) = current.then.take() {
            return self.finish(pid, key, reply);
        }
        let got = std::mem::take(&mut current.got);
        match current.executor.tell(Ok(got)) {
            Some(reply) => self.finish(pid, key, reply),
            None => self.go_on(pid, key),
        }
    }

    /// The connection is of no use any more.
    fn broken(&mut self, pid: Pid, key: (Connection, u8), error: SqlError) {
        let planted = self.planted.planted(Mutant::FatalTakenAsFailed);
        let lane = self.lane(pid, key);
        let link = lane.link.take();
        let current = lane.current.as_mut().expect("a call is under way");
        let reply = match current.then.take() {
            Some(reply) => reply,
            None => {
                let error = if planted { SqlError { severity: Severity::Error, ..error } } else { error };
                tell(current, error).expect("the end of a connection ends the transaction")
            }
        };
        if let Some(link) = link {
            let changed = self.has_changed(link);
            let origin = self.lane(pid, key).leads_to;
            self.is_told(&Asked::default(), &reply, changed, origin);
            self.send_there(link, Message::Gone);
        }
        self.finish(pid, key, reply);
    }

    /// Whether the call that a connection was used for has changed something. It is asked once.
    fn has_changed(&mut self, link: LinkId) -> bool {
        self.database().links.get_mut(&link).is_some_and(|link| std::mem::take(&mut link.changed))
    }

    /// What a server is told of a call is so, on the newest timeline; what it is told of another it does not believe.
    fn is_told(&mut self, asked: &Asked, reply: &Reply<Verdict>, changed: bool, origin: Option<Origin>) {
        if origin.is_some_and(|origin| origin.timeline == self.timeline()) {
            let World { postgres, checks, .. } = self;
            let store = postgres.as_deref().expect("a world with PostgreSQL").store();
            let checked = checks.verdict.on_reply(asked, reply, changed, store);
            self.holds(checked);
        }
    }

    fn finish(&mut self, pid: Pid, key: (Connection, u8), reply: Reply<Verdict>) {
        let lane = self.lane(pid, key);
        let (current, origin) = (lane.current.take().expect("a call is under way"), lane.leads_to);
        let link = lane.link;
        let changed = link.is_some_and(|link| self.has_changed(link));
        self.acknowledged += u64::from(changed && matches!(reply, Reply::Done(_)));
        self.process(pid).calls.under_way.remove(&current.call);
        self.is_told(&current.asked, &reply, changed, origin);
        self.note_reply(pid, &reply, &current.asked.groups);
        let timeline = origin.map_or(0, |origin| origin.timeline);
        let fence = self.database().store_of(timeline).map(|store| store.fence());
        let process = self.process(pid);
        process.timeline = process.timeline.max(timeline);
        if let (Reply::Done(Verdict::Campaign(CampaignVerdict::Won { term, .. })), Some(fence)) = (&reply, fence)
            && *term == fence.term
        {
            // It may have committed on a connection that was given up meanwhile.
            process.fence = Some(fence);
        }
        process.fresh.on_reply(current.call, &reply, process.fence);
        self.start_next(pid, key.0);
        self.give_reply(pid, current.call, reply, origin);
    }

    fn note_reply(&mut self, pid: Pid, reply: &Reply<Verdict>, groups: &[orbit_core::id::GroupId]) {
        self.mark_reply(reply);
        if let Reply::Done(
            Verdict::Campaign(CampaignVerdict::Pooled)
            | Verdict::Hold(LockState::Pooled)
            | Verdict::Line(LockState::Pooled),
        ) = reply
        {
            self.marks.hit(Mark::PoolerFound);
            self.process(pid).excuses.database = true;
        }
        if let Reply::Done(Verdict::Campaign(CampaignVerdict::Held { .. })) = reply {
            // Somebody's session is still there.
            self.marks.hit(Mark::LockHeld);
            self.process(pid).excuses.database = true;
        }
        if matches!(reply, Reply::Done(_)) {
            return;
        }
        self.process(pid).excuses.database = true;
        match reply {
            Reply::Failed(_) => self.marks.hit(Mark::CallFailed),
            _ => self.disk.note_untold(groups),
        }
        let checked = self.checks.pace.on_failure(self.now);
        self.holds(checked);
    }

    /// A node gives a call's connection up.
    pub(in crate::world) fn write_off(&mut self, pid: Pid, call: CallId, connection: Connection) {
        self.marks.hit(Mark::WrittenOff);
        self.process(pid).calls.under_way.remove(&call);
        let lanes = &mut self.process(pid).lanes;
        if let Some(queue) = lanes.queues.get_mut(&connection) {
            queue.retain(|waiting| waiting.call != call);
        }
        let found = lanes.lanes.iter_mut().find(|(_, l)| l.current.as_ref().is_some_and(|c| c.call == call));
        let Some((_, lane)) = found else { return };
        let (link, current) = (lane.link.take(), lane.current.take().expect("found by it"));
        self.disk.note_untold(&current.asked.groups);
        self.process(pid).excuses.database = true;
        if let Some(link) = link {
            self.send_there(link, Message::Gone);
        }
        self.start_next(pid, connection);
    }

    /// A process is gone: what it has sent still arrives, and then the end of each of its connections, at once or long
    /// after.
    pub(in crate::world) fn connections_end(&mut self, lanes: Lanes) {
        if self.postgres.is_none() {
            return;
        }
        for link in lanes.lanes.into_values().filter_map(|lane| lane.link) {
            let silent = self.link_chance(FaultKind::SilentDeath, self.plan.database.silent_death);
            let ms = self.dice.database.between([500, 6_000]);
            if let (true, Some(link)) = (silent, self.database().links.get_mut(&link)) {
                link.last_there = link.last_there.plus_ms(ms);
            }
            self.send_there(link, Message::Gone);
        }
    }
}

/// The facts of an error, and what `core` makes of them.
fn tell(current: &mut Current, error: SqlError) -> Option<Reply<Verdict>> {
    let severity = error.code.map(|_| match error.severity {
        Severity::Error => outcome::Severity::Error,
        Severity::Fatal => outcome::Severity::Fatal,
    });
    let cause = error.code.map_or(Cause::Closed, |code| Cause::SqlState(code.as_str().into()));
    let fact = Fact { phase: current.phase, severity, cause, message: format!("injected: {error}") };
    current.executor.tell(Err(fact))
}
