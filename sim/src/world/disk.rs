//! Calls on the database: when each happens, and whether its reply is heard of.
//!
//! Calls of one kind of connection run in the order sent, those of [`Connection::Requests`] side by side. A call
//! happens at one moment between its sending and its reply; the process may die or stand still on either side of it.

use super::World;
use super::event::{Event, ProcessEvent};
use super::server::Pid;
use crate::check::Committed;
use crate::check::verdict::Asked;
use crate::coverage::Mark;
use crate::fault::{FaultKind, Moment};
use crate::rng::Ratio;
use crate::store::{Change, Commit};
use orbit_core::id::GroupId;
use orbit_core::node::{CallId, Connection};
use orbit_core::store::append::{Fence, GroupOutcome, Rejection};
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome::{self, Cause, Fact, FailureKind, Phase, Reply, Severity};
use orbit_core::store::transaction::{CampaignVerdict, Transaction, Verdict};
use serde::Serialize;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::clock::Time;

/// The state of the database's disk.
#[derive(Debug, Default)]
pub struct Disk {
    pub full_until: Time,
    pub stalled_until: Time,
    /// Groups whose outcome was not told, and whether they were written.
    untold: BTreeMap<GroupId, bool>,
}

impl Disk {
    /// What became of these groups was not told.
    pub fn note_untold(&mut self, groups: &[GroupId]) {
        for group in groups {
            self.untold.entry(*group).or_insert(false);
        }
    }
}

/// A call under way.
#[derive(Clone, Debug)]
pub struct Call {
    connection: Connection,
    pub transaction: Transaction,
    pub stage: Stage,
}

/// How far it has got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    Waiting,
    Sent,
    /// It has run; whether it changed something.
    Ran {
        changed: bool,
    },
}

/// The calls of one process.
#[derive(Debug, Default)]
pub struct Calls {
    pub under_way: BTreeMap<CallId, Call>,
    lanes: BTreeMap<Connection, VecDeque<CallId>>,
}

impl Calls {
    /// Whether an append under this fence waits for its answer.
    pub fn appends_under(&self, fence: Fence) -> bool {
        self.under_way.values().any(|call| matches!(&call.transaction, Transaction::Append(a) if a.fence == fence))
    }
}

/// What fate has in store for a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum Fate {
    Runs,
    Fails(Phase, FailureKind),
    Untold { written: bool },
}

impl World {
    fn disk_chance(&mut self, kind: FaultKind, ratio: Ratio) -> bool {
        let hit = self.dice.disk.chance(ratio);
        self.befalls(kind, hit)
    }

    fn disk_latency(&mut self) -> u64 {
        let mut us = self.dice.disk.between(self.plan.disk.latency_us);
        if self.disk_chance(FaultKind::CallSlow, self.plan.disk.slow) {
            us += 1_000 * self.dice.disk.between(self.plan.disk.slow_ms);
        }
        us
    }

    /// A node sends a call.
    pub(super) fn call(
        &mut self,
        pid: Pid,
        id: CallId,
        connection: Connection,
        transaction: Transaction,
        origin: Option<Origin>,
    ) {
        let on_postgres = self.postgres.is_some();
        let calls = &mut self.process(pid).calls;
        let call = Call { connection, transaction: transaction.clone(), stage: Stage::Waiting };
        let known = calls.under_way.insert(id, call).is_some();
        assert!(!known, "every sending has a new call id");
        if on_postgres {
            return self.enqueue(pid, id, connection, transaction, origin);
        }
        if connection == Connection::Requests {
            self.take_up(pid, id);
            return;
        }
        let lane = calls.lanes.entry(connection).or_default();
        lane.push_back(id);
        if lane.len() == 1 {
            self.take_up(pid, id);
        }
    }

    fn take_up(&mut self, pid: Pid, id: CallId) {
        self.process(pid).calls.under_way.get_mut(&id).expect("it is under way").stage = Stage::Sent;
        let latency = self.disk_latency();
        let begins = self.now.max(self.disk.stalled_until);
        self.at(begins.plus_us(latency), Event::Process(pid, ProcessEvent::Runs(id)));
    }

    fn fate(&mut self, transaction: &Transaction) -> Fate {
        let fails = self.disk_chance(FaultKind::CallFails, self.plan.disk.fail);
        let untold = self.disk_chance(FaultKind::CallUnknown, self.plan.disk.unknown);
        let written = self.dice.disk.chance(Ratio::new(1, 2));
        let phase = *self.dice.disk.pick(&[Phase::NotSent, Phase::Open, Phase::CommitSent]);
        let kinds = [FailureKind::Retry, FailureKind::Reconnect, FailureKind::Unwritable, FailureKind::Broken];
        let kind = kinds[self.dice.disk.weighted(&[6, 2, 1, 1])];
        if fails {
            Fate::Fails(phase, kind)
        } else if untold {
            Fate::Untold { written: written && transaction.writes() }
        } else {
            Fate::Runs
        }
    }

    /// The database takes a call up.
    pub(super) fn runs(&mut self, pid: Pid, id: CallId) {
        if self.now < self.disk.stalled_until {
            let latency = self.disk_latency();
            self.at(self.disk.stalled_until.plus_us(latency), Event::Process(pid, ProcessEvent::Runs(id)));
            return;
        }
        let transaction = self.process(pid).calls.under_way.get(&id).expect("it is under way").transaction.clone();
        let fate = self.fate(&transaction);
        let full = transaction.writes() && self.now < self.disk.full_until;
        self.trace.record(self.now, "call", &(pid, id, transaction.name(), fate, full));
        let (mut changed, mut asks) = (false, false);
        let reply = if full {
            self.marks.hit(Mark::DiskFull);
            failed(Phase::CommitSent, FailureKind::Unwritable, "database or disk is full")
        } else {
            match fate {
                Fate::Fails(phase, kind) => {
                    self.marks.hit(Mark::CallFailed);
                    failed(phase, kind, "injected: nothing was written")
                }
                Fate::Runs => self.execute(pid, id, &transaction, (&mut changed, &mut asks)),
                Fate::Untold { written } => {
                    if written {
                        let _ = self.execute(pid, id, &transaction, (&mut changed, &mut asks));
                    }
                    self.note_untold(&transaction, written);
                    let fact = Fact {
                        phase: Phase::CommitSent,
                        severity: Some(Severity::Fatal),
                        cause: Cause::Kind(FailureKind::Broken),
                        message: "disk I/O error".into(),
                    };
                    outcome::judge(fact)
                }
            }
        };
        if !matches!(reply, Reply::Done(_)) {
            self.process(pid).excuses.database = true;
            let checked = self.checks.pace.on_failure(self.now);
            self.holds(checked);
        }
        let Some(process) = self.processes.get_mut(&pid) else { return };
        process.calls.under_way.get_mut(&id).expect("it is under way").stage = Stage::Ran { changed };
        if changed && transaction.name() == "append" {
            self.moment(pid, Moment::AppendCommitted);
        }
        if self.crashes_after_commit(changed, asks) {
            self.crash(pid);
            return;
        }
        let latency = self.disk_latency();
        self.at(self.now.plus_us(latency), Event::Process(pid, ProcessEvent::Replies(id, reply)));
    }

    /// A call's reply reaches the node.
    pub(super) fn replies(&mut self, pid: Pid, id: CallId, reply: Reply<Verdict>) {
        let calls = &mut self.process(pid).calls;
        let call = calls.under_way.remove(&id).expect("it is under way");
        let acknowledged = matches!(reply, Reply::Done(_)) && call.stage == Stage::Ran { changed: true };
        let next = calls.lanes.get_mut(&call.connection).and_then(|lane| {
            lane.pop_front();
            lane.front().copied()
        });
        if let Some(next) = next {
            self.take_up(pid, next);
        }
        self.acknowledged += u64::from(acknowledged);
        let changed = call.stage == Stage::Ran { changed: true };
        let checked = self.checks.verdict.on_reply(&Asked::of(&call.transaction), &reply, changed, &self.sqlite);
        self.holds(checked);
        self.give(pid, orbit_core::node::Input::Store { call: id, reply, origin: None });
    }

    /// Runs a transaction, and says whether it changed something, and whether it asks children to end.
    fn execute(
        &mut self,
        pid: Pid,
        id: CallId,
        transaction: &Transaction,
        (changed, asks): (&mut bool, &mut bool),
    ) -> Reply<Verdict> {
        self.sqlite.set_clock(self.host.read(self.now));
        let (reply, commit) = self.sqlite.execute(transaction.clone());
        (*changed, *asks) = (!commit.changes.is_empty(), asks_children(&commit.changes));
        if *changed {
            self.trace.record(self.now, "commit", &(pid, id, &commit));
        }
        self.mark_commit(&commit);
        self.mark_reply(&reply);
        for change in &commit.changes {
            if let Change::FenceRaised { after, .. } = change {
                let process = self.process(pid);
                (process.fence, process.won) = (Some(*after), Some(*after));
            }
        }
        let alone = Committed::alone(&commit, &self.sqlite, &self.book, self.steady_clock);
        let session_timeout = Duration::from_millis(self.plan.server.session_timeout_ms);
        let committed = Committed { now: self.now, pid: Some(pid), session_timeout, ..alone };
        let checked = self.checks.on_commit(&committed, &mut self.marks);
        self.holds(checked);
        reply
    }

    fn note_untold(&mut self, transaction: &Transaction, written: bool) {
        if let Transaction::Append(append) = transaction {
            for group in &append.groups {
                // A repetition of what was written before stays written.
                let before = self.disk.untold.get(&group.id).copied().unwrap_or(false);
                self.disk.untold.insert(group.id, before || written);
            }
        }
    }

    pub(super) fn mark_commit(&mut self, commit: &Commit) {
        let groups = commit.changes.iter().filter(|c| matches!(c, Change::Group { .. })).count();
        if groups > 1 {
            self.marks.hit(Mark::BigBatch);
        }
        for change in &commit.changes {
            match change {
                Change::Group { group, repeated, .. } => {
                    let told = self.disk.untold.remove(&group.id).is_some();
                    if told {
                        self.marks.hit(if *repeated { Mark::UnknownWritten } else { Mark::UnknownNotWritten });
                    }
                }
                Change::LeaseTaken { before, .. } if before.holder.is_some() => self.marks.hit(Mark::LeaseRanOut),
                Change::LeaseTaken { before, .. } if before.epoch.0 > 0 => self.marks.hit(Mark::LeaseGivenBack),
                Change::Claimed { repeated: true, .. } => self.marks.hit(Mark::ClaimRepeated),
                Change::Claimed { .. } => self.marks.hit(Mark::ClaimedFromQueue),
                Change::Requeued { .. } => self.marks.hit(Mark::Requeued),
                _ => {}
            }
        }
    }

    pub(super) fn mark_reply(&mut self, reply: &Reply<Verdict>) {
        match reply {
            Reply::Done(Verdict::Append(outcomes)) => {
                for outcome in outcomes {
                    match outcome {
                        GroupOutcome::Rejected(Rejection::Fenced { .. }) => self.marks.hit(Mark::FencedAppend),
                        GroupOutcome::Rejected(_) => self.marks.hit(Mark::GroupRejected),
                        GroupOutcome::Busy => self.marks.hit(Mark::Busy),
                        GroupOutcome::Written => {}
                    }
                }
            }
            Reply::Done(Verdict::Renew(false)) => self.marks.hit(Mark::RenewalRefused),
            Reply::Done(Verdict::Campaign(CampaignVerdict::Leased { .. })) => self.marks.hit(Mark::LeaseHeld),
            Reply::Done(Verdict::Load(loaded)) if !loaded.is_empty() => self.marks.hit(Mark::Loaded),
            _ => {}
        }
    }
}

/// Whether children are asked to end in it.
pub(super) fn asks_children(changes: &[Change]) -> bool {
    let groups = changes.iter().filter_map(|change| match change {
        Change::Group { group, repeated: false, .. } => Some(group),
        _ => None,
    });
    let mut events = groups.flat_map(|group| &group.members).flat_map(|member| &member.events);
    events.any(|event| std::str::from_utf8(&event.bytes).is_ok_and(|text| text.contains("ChildEndRequested")))
}

fn failed(phase: Phase, kind: FailureKind, message: &str) -> Reply<Verdict> {
    outcome::judge(Fact { phase, severity: Some(Severity::Error), cause: Cause::Kind(kind), message: message.into() })
}
