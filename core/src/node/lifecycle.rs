//! A server's life: it becomes the writer, recovers, serves, looks at its fence, and stops.
//!
//! For one server alone the election was won before the process had a node (an operating-system lock beside the
//! SQLite file, design, section 8); what remains is the fence: a new term for this incarnation, checked in every
//! append.

use super::{Connection, Effect, LogEvent, Node, Purpose};
use crate::api::{ApiError, ErrorCode};
use crate::cluster::clock::Observed;
use crate::definition::Definition;
use crate::id::{ClusterId, ExecutionId};
use crate::mutant::Mutants;
use crate::node::request::Open;
use crate::node::slot::{Body, Slot};
use crate::store::append::{Fence, Wake};
use crate::store::outcome::Failure;
use crate::store::statement::{Holder, ReadDue};
use crate::store::transaction::{Campaign, CampaignVerdict, Transaction, Verdict};
use crate::time::Mono;
use std::sync::Arc;
use std::time::Duration;

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Phase {
    /// Made, and not started.
    Idle,
    /// Becoming the writer.
    Campaigning,
    /// It is the writer, and reads what it must know.
    Recovering {
        fence: Fence,
        cluster_id: ClusterId,
        since: Mono,
    },
    Serving {
        fence: Fence,
        cluster_id: ClusterId,
    },
    /// Takes nothing new in, and finishes what is in flight.
    Stopping {
        fence: Fence,
        cluster_id: ClusterId,
        until: Mono,
    },
    /// Everything is finished; the fence is being given up.
    Releasing {
        until: Mono,
    },
    /// Over.
    Exited,
}

/// So long after a write failed, or was in doubt, the server says that it is not ready.
const WRITE_TROUBLE: Duration = Duration::from_secs(5);
/// How many executions one page of a recovery names.
const RECOVERY_PAGE: u32 = 1000;

impl<M: Mutants> Node<M> {
    pub(super) fn has_exited(&self) -> bool {
        self.phase == Phase::Exited
    }

    /// Whether executions go on: serving, or finishing what is in flight.
    pub(super) fn is_serving(&self) -> bool {
        matches!(self.phase, Phase::Serving { .. } | Phase::Stopping { .. })
    }

    /// Whether it reads what it must know before it serves.
    pub(super) fn is_recovering(&self) -> bool {
        matches!(self.phase, Phase::Recovering { .. })
    }

    /// Whether requests are taken in.
    pub(super) fn takes_requests(&self) -> bool {
        matches!(self.phase, Phase::Serving { .. })
    }

    /// Whether a write would be taken in and has a chance: serving, and no write has failed lately.
    pub(super) fn is_ready(&self) -> bool {
        self.takes_requests() && self.why_not_writing().is_none()
    }

    /// Why writes have no chance now, for people. What fails is tried again, and a while without a failure counts as
    /// health, since nothing else may be there to be written.
    pub(super) fn why_not_writing(&self) -> Option<&'static str> {
        let failed = self.write_failed.is_some_and(|at| self.now.mono < at + WRITE_TROUBLE);
        failed.then_some("the database does not take writes")
    }

    /// What this server writes under, once it is the writer.
    pub(super) fn fence(&self) -> Option<Fence> {
        match self.phase {
            Phase::Recovering { fence, .. } | Phase::Serving { fence, .. } | Phase::Stopping { fence, .. } => {
                Some(fence)
            }
            Phase::Idle | Phase::Campaigning | Phase::Releasing { .. } | Phase::Exited => None,
        }
    }

    pub(super) fn cluster_id(&self) -> Option<ClusterId> {
        match self.phase {
            Phase::Recovering { cluster_id, .. }
            | Phase::Serving { cluster_id, .. }
            | Phase::Stopping { cluster_id, .. } => Some(cluster_id),
            _ => None,
        }
    }

    /// Why requests are not taken in, for people.
    pub(super) fn why_not_ready(&self) -> Option<&'static str> {
        match self.phase {
            Phase::Serving { .. } => None,
            Phase::Idle | Phase::Campaigning => Some("the server is starting"),
            Phase::Recovering { .. } => Some("the server is recovering executions from history"),
            Phase::Stopping { .. } | Phase::Releasing { .. } | Phase::Exited => Some("the server is stopping"),
        }
    }

    /// Becomes the writer: a new term for this incarnation.
    pub(super) fn campaign(&mut self) {
        assert!(matches!(self.phase, Phase::Idle | Phase::Campaigning), "a node starts once");
        self.phase = Phase::Campaigning;
        let holder = Holder {
            node_id: self.config.node_id.clone(),
            host: self.config.host.clone(),
            pid: self.config.pid,
            addr: self.config.addr.clone(),
            since_ms: self.now.wall,
        };
        let campaign = Campaign { incarnation: self.incarnation, holder };
        self.send(Connection::Store, Transaction::Campaign(campaign), Purpose::Campaign);
    }

    pub(super) fn on_campaign(&mut self, sent: Mono, outcome: Result<Verdict, Failure>) {
        if self.phase != Phase::Campaigning {
            return; // stopped meanwhile
        }
        let verdict = match outcome {
            Ok(Verdict::Campaign(verdict)) => verdict,
            Ok(other) => unreachable!("a campaign gives a campaign's verdict, not {other:?}"),
            Err(failure) => return self.unservable(format!("the database cannot be written: {}", failure.message)),
        };
        match verdict {
            CampaignVerdict::Won { term, cluster_id, before } => {
                self.clock.observe(sent, self.now.mono, before.clock);
                let fence = Fence { term, incarnation: self.incarnation };
                self.phase = Phase::Recovering { fence, cluster_id, since: self.now.mono };
                self.log(LogEvent::FenceTaken { node_id: self.config.node_id.clone(), term });
                self.send(Connection::Store, Transaction::Recover, Purpose::Recover);
            }
            CampaignVerdict::Lost => self.campaign(),
            CampaignVerdict::NewerSchema { found } => self.unservable(format!(
                "the database has schema version {found}, and this server knows up to {}: run a newer orbit",
                crate::store::transaction::SCHEMA_VERSION
            )),
            CampaignVerdict::OtherMode { found } => self.unservable(format!(
                "the database belongs to servers in {found} mode, and this one would be alone: start it with --cluster"
            )),
        }
    }

    pub(super) fn unservable(&mut self, message: String) {
        self.log(LogEvent::Unservable { message });
        self.exit(1);
    }

    /// The definitions and totals are here: now the executions that were in memory.
    pub(super) fn on_recover(&mut self, outcome: Result<Verdict, Failure>) {
        if !matches!(self.phase, Phase::Recovering { .. }) {
            return;
        }
        let recovery = match outcome {
            Ok(Verdict::Recover(recovery)) => recovery,
            Ok(other) => unreachable!("a recovery gives a recovery's verdict, not {other:?}"),
            Err(failure) => return self.unservable(format!("the database cannot be read: {}", failure.message)),
        };
        for row in recovery.definitions {
            match Definition::from_document(&row.document) {
                Ok(definition) => self.catalog.insert(Arc::new(definition), row.created_at_ms),
                Err(problems) => self.log(LogEvent::DefinitionUnreadable {
                    workflow: row.name,
                    version: row.version,
                    reason: problems.first().map(|p| p.message.clone()).unwrap_or_default(),
                }),
            }
        }
        self.active = recovery.totals.active;
        self.claims.recover(recovery.totals.queued);
        self.read_hot(None);
    }

    fn read_hot(&mut self, after: Option<(Wake, ExecutionId)>) {
        let read = ReadDue { until: Wake::Hot, after, limit: RECOVERY_PAGE };
        self.send(Connection::Store, Transaction::Due(read), Purpose::RecoverHot);
    }

    pub(super) fn on_recover_hot(&mut self, outcome: Result<Verdict, Failure>) {
        if !matches!(self.phase, Phase::Recovering { .. }) {
            return;
        }
        let rows = match outcome {
            Ok(Verdict::Due(rows)) => rows,
            Ok(other) => unreachable!("a scan gives rows, not {other:?}"),
            Err(failure) => return self.unservable(format!("the database cannot be read: {}", failure.message)),
        };
        let last = rows.due.last().cloned();
        let full = rows.due.len() >= RECOVERY_PAGE as usize;
        for (_, execution) in rows.due {
            self.slots.insert(execution.clone(), Slot::new(Body::Loading));
            self.to_load.insert(execution);
        }
        if full {
            self.read_hot(last);
        } else {
            self.due.expect(rows.next);
            self.send_loads();
            self.serve_when_recovered();
        }
    }

    /// Serves once every execution that was in memory is in memory again.
    pub(super) fn serve_when_recovered(&mut self) {
        let Phase::Recovering { fence, cluster_id, since } = self.phase else { return };
        if self.slots.values().any(|slot| matches!(slot.body, Body::Loading)) {
            return;
        }
        self.phase = Phase::Serving { fence, cluster_id };
        let recovery_ms = u64::try_from(self.now.mono.since(since).as_millis()).unwrap_or(u64::MAX);
        self.log(LogEvent::Recovered {
            executions: self.active,
            resident: self.slots.len() as u64,
            in_flight: self.attempts.len() as u64,
            recovery_ms,
        });
    }

    /// When the fence is to be looked at next.
    pub(super) fn next_check(&self) -> Option<Mono> {
        match self.phase {
            Phase::Serving { .. } | Phase::Stopping { .. } => self.checks.next(),
            _ => None,
        }
    }

    pub(super) fn check_when_due(&mut self) {
        let Some(fence) = self.fence().filter(|_| self.next_check().is_some_and(|at| at <= self.now.mono)) else {
            return;
        };
        self.checks.sent();
        self.send(Connection::Control, Transaction::Check(fence), Purpose::Check);
    }

    pub(super) fn on_check(&mut self, sent: Mono, outcome: Result<Verdict, Failure>) {
        self.checks.answered(self.now.mono + self.config.check_interval);
        let Ok(Verdict::Check(row)) = outcome else { return };
        match self.clock.observe(sent, self.now.mono, row.clock) {
            Observed::Smooth | Observed::Doubted { .. } => {}
            Observed::Stepped { by_ms } => {
                self.counters.clock_steps += 1;
                self.log(LogEvent::ClockStepped { by_ms });
            }
        }
        if let Some(fence) = self.fence()
            && row.fence != fence
        {
            self.lose_fence(row.fence.term);
        }
    }

    /// Another incarnation is the writer now: nothing of what is in memory can be trusted or written.
    pub(super) fn lose_fence(&mut self, current: crate::id::Term) {
        let Some(fence) = self.fence() else { return };
        self.log(LogEvent::FenceLost { held: fence.term, current });
        // An append that is under way may have been written before the fence moved.
        let error = |in_doubt: bool| {
            let held = fence.term;
            let message = format!("fenced: this server held term {held}, and the database is at term {current}");
            if in_doubt {
                ApiError::new(ErrorCode::OutcomeUnknown, format!("{message}; the request may have taken effect before"))
            } else {
                ApiError::new(ErrorCode::Fenced, message)
            }
        };
        let in_doubt = |kind: &Open| match kind {
            Open::Write | Open::Report { .. } => self.committing,
            Open::Deploy => true,
            Open::Wait(_) | Open::Read(_) => false,
        };
        let requests: Vec<_> = self.requests.iter().map(|(id, open)| (*id, in_doubt(&open.kind))).collect();
        for (request, in_doubt) in requests {
            self.respond(request, error(in_doubt));
        }
        for poll in self.polls.all() {
            let brought = self.polls.close(poll).is_some_and(|poll| poll.outcomes.iter().any(Option::is_none));
            self.answer(poll, error(brought && self.committing));
        }
        self.exit(1);
    }

    /// SIGTERM, SIGINT: take nothing new in, finish what is in flight, release last.
    pub(super) fn stop(&mut self) {
        let until = self.now.mono + self.config.stop_deadline;
        match self.phase {
            Phase::Stopping { .. } | Phase::Releasing { .. } | Phase::Exited => return,
            Phase::Serving { fence, cluster_id } => {
                self.log(LogEvent::Stopping);
                self.phase = Phase::Stopping { fence, cluster_id, until };
            }
            Phase::Recovering { fence, .. } => {
                self.log(LogEvent::Stopping);
                return self.release(fence, until);
            }
            Phase::Idle | Phase::Campaigning => {
                self.log(LogEvent::Stopping);
                self.log(LogEvent::Stopped { clean: true });
                return self.exit(0);
            }
        }
        self.end_waits();
    }

    pub(super) fn stop_deadline(&self) -> Option<Mono> {
        match self.phase {
            Phase::Stopping { until, .. } | Phase::Releasing { until } => Some(until),
            _ => None,
        }
    }

    /// Goes on with the stop once nothing is in flight, or when it has taken too long.
    pub(super) fn stop_when_done(&mut self) {
        match self.phase {
            Phase::Stopping { fence, until, .. } => {
                let idle = !self.committing && self.requests.is_empty() && self.polls.is_empty();
                if (idle && !self.claims.in_flight()) || until <= self.now.mono {
                    self.release(fence, until);
                }
            }
            Phase::Releasing { until } if until <= self.now.mono => {
                self.log(LogEvent::Stopped { clean: false });
                self.exit(0);
            }
            _ => {}
        }
    }

    fn release(&mut self, fence: Fence, until: Mono) {
        self.phase = Phase::Releasing { until };
        self.send(Connection::Store, Transaction::Release(fence), Purpose::Release);
    }

    pub(super) fn on_release(&mut self, outcome: Result<Verdict, Failure>) {
        if self.has_exited() {
            return;
        }
        self.log(LogEvent::Stopped { clean: matches!(outcome, Ok(Verdict::Release(true))) });
        self.exit(0);
    }

    fn exit(&mut self, status: u8) {
        self.phase = Phase::Exited;
        self.effects.push_back(Effect::Exit { status });
    }
}

/// When the fence is looked at.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    next: Option<Mono>,
    in_flight: bool,
}

impl Checks {
    fn next(&self) -> Option<Mono> {
        if self.in_flight { None } else { Some(self.next.unwrap_or_default()) }
    }

    fn sent(&mut self) {
        self.in_flight = true;
    }

    fn answered(&mut self, next: Mono) {
        self.in_flight = false;
        self.next = Some(next);
    }
}
