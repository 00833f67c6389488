//! A server of a standby cluster (design, section 8): it waits for the election lock or the lease and answers what can be read
//! from the database; once it leads, it serves only while its last good check is fresh, and steps down in the process.
//!
//! What a deposed leader holds in memory is worth nothing: it is dropped whole, and the next reign begins under another
//! incarnation, so that nothing of an earlier one is taken for its own.

use super::hand_over::{HandOver, WAITS_FOR};
use super::lease::Lease;
use super::lifecycle::{LOCK_PAUSE, Phase};
use super::request::Open;
use super::{Connection, Effect, LogEvent, Node, Purpose, RequestId};
use crate::api::error::{ApiError, ErrorCode};
use crate::api::request::Request;
use crate::api::response::{Leader, Reply, Response};
use crate::cluster::{Election, OnLostLease, Role, Standby};
use crate::id::{ExecutionId, Term};
use crate::mutant::{Mutant, Mutants};
use crate::node::request::Read;
use crate::store::outcome::Failure;
use crate::store::statement::{DefinitionRow, FenceRow, LockState, ReadSummary, StandInLine};
use crate::store::transaction::{Transaction, Verdict, unfit};
use crate::time::Mono;
use rand_chacha::rand_core::Rng;
use std::collections::BTreeSet;

/// What is known of the cluster from outside.
#[derive(Debug, Default)]
pub(crate) struct Cluster {
    /// The fence row, as it was read last.
    seen: Option<FenceRow>,
    /// The term and the leader that were told to people.
    told: Option<(Term, Option<Leader>)>,
    /// When the sendings left of the last check of the lock, or renewal of the lease, and of the last check of the fence, that
    /// went well.
    held: Mono,
    unmoved: Mono,
    pub(super) lease: Lease,
    /// The last campaign failed, and an attempt of it may have won.
    pub(super) in_doubt: bool,
    /// The planted mistake: the lock is held, and the term is raised on another connection.
    pub(super) locked_elsewhere: bool,
    /// The lead is being handed over.
    pub(super) handing: Option<HandOver>,
}

impl<M: Mutants> Node<M> {
    /// The cluster that this server belongs to, if it is in one.
    pub(super) fn standby(&self) -> Option<&Standby> {
        match &self.config.role {
            Role::Single => None,
            Role::Standby(standby) => Some(standby),
        }
    }

    /// Whether it waits to lead, and reads for others meanwhile.
    pub(super) fn follows(&self) -> bool {
        self.standby().is_some() && matches!(self.phase, Phase::Campaigning { .. })
    }

    /// The planted mistake: what a leader does now and then begins before it is elected.
    pub(super) fn loops_too_early(&self) -> bool {
        self.mutants.planted(Mutant::LoopsBeforeElection) && self.standby().is_some() && self.fence().is_none()
    }

    /// The name of what it is now, as health shows it.
    pub(super) fn role_name(&self) -> &'static str {
        match self.standby() {
            None => "single",
            Some(_) if self.fence().is_some() => "leader",
            Some(_) => "standby",
        }
    }

    /// The newest term that it knows of.
    pub(super) fn known_term(&self) -> Option<Term> {
        self.fence().map(|fence| fence.term).or(self.cluster.seen.as_ref().map(|row| row.fence.term))
    }

    /// Who leads, as far as it knows: none where it is in no cluster.
    pub(super) fn known_leader(&self) -> Option<Leader> {
        self.standby()?;
        if self.fence().is_some() {
            return Some(Leader { node_id: self.config.node_id.clone(), addr: self.config.addr.clone() });
        }
        leader_of(self.cluster.seen.as_ref()?)
    }

    /// Waits in line for the election lock.
    pub(super) fn stand_in_line(&mut self) {
        let Some(standby) = self.standby() else { return };
        let slice = standby.slice;
        self.send(Connection::Election, Transaction::Line(StandInLine { slice }), Purpose::Line);
    }

    pub(super) fn on_line(&mut self, sent: Mono, outcome: Result<Verdict, Failure>) {
        if !self.follows() {
            return; // stopped meanwhile
        }
        match outcome {
            // That the lock is a backend's that is not this connection's, the campaign finds out, and says.
            Ok(Verdict::Line(LockState::Mine | LockState::Pooled)) => {
                self.cluster.locked_elsewhere = self.mutants.planted(Mutant::TermRaisedElsewhere);
                self.campaign();
            }
            Ok(Verdict::Line(LockState::Others)) if sent + LOCK_PAUSE <= self.now.mono => self.stand_in_line(),
            // It has not waited.
            Ok(Verdict::Line(LockState::Others)) => self.campaign_later(),
            Ok(other) => unreachable!("a place in line gives the lock's state, not {other:?}"),
            Err(_) => self.campaign_later(),
        }
    }

    /// The fence row, read by one who follows: who leads, and whether those who wait have waited for long enough.
    pub(super) fn follow(&mut self, row: FenceRow) {
        if let Some(verdict) = unfit(&row, self.config.role.mode(), self.config.role.elected()) {
            // The mode was changed under its feet.
            self.refuse_all("the cluster's mode was changed");
            return self.is_unfit(verdict);
        }
        let now = (row.fence.term, leader_of(&row));
        let leader = now.1.clone();
        self.see_successor(&row, leader.as_ref());
        self.cluster.seen = Some(row);
        if self.cluster.told.as_ref() != Some(&now) {
            let term = now.0;
            self.cluster.told = Some(now);
            if let (Some(leader), None) = (leader.clone(), self.lease_taken()) {
                self.log(LogEvent::Following { term, leader: leader.node_id });
            }
        }
        // Whoever has just handed the lead over lets others go before.
        let free = self.lease_ttl().is_some() && leader.is_none() && !self.hands_over();
        if free && self.next_campaign().is_some() {
            // Whoever led has stopped, and the lease is not asked for yet.
            self.campaign();
        }
        self.read_for_waits();
    }

    /// Nobody here learns by itself of an end that another server recorded: the rows are read once more, but for those that
    /// are being read still.
    pub(super) fn read_for_waits(&mut self) {
        let read = |purpose: &Purpose| if let Purpose::Read(id) = purpose { Some(*id) } else { None };
        let under_way: BTreeSet<RequestId> = self.calls.unsettled().filter_map(read).collect();
        let all = self.waits.iter().flat_map(|(execution, ids)| ids.iter().map(|id| (*id, execution.clone())));
        let waiting: Vec<(RequestId, ExecutionId)> = all.filter(|(id, _)| !under_way.contains(id)).collect();
        for (id, execution) in waiting {
            self.send(Connection::Requests, Transaction::Summary(ReadSummary { execution }), Purpose::Read(id));
        }
    }

    /// A campaign was won, and this is when it was sent.
    pub(super) fn begin_reign(&mut self, sent: Mono) {
        (self.cluster.held, self.cluster.unmoved) = (sent, sent);
        self.cluster.told = None;
    }

    /// The election lock, or the lease, was this server's when this check of it was sent.
    pub(super) fn held_at(&mut self, sent: Mono) {
        self.cluster.held = self.cluster.held.max(self.counts_from(sent));
    }

    /// A check counts from its sending, so that a slow answer shortens the validity and never lengthens it.
    fn counts_from(&self, sent: Mono) -> Mono {
        if self.mutants.planted(Mutant::ValidityFromReply) { self.now.mono } else { sent }
    }

    /// The fence was this server's when this check of it was sent.
    pub(super) fn fence_was_unmoved(&mut self, sent: Mono) {
        self.cluster.unmoved = self.cluster.unmoved.max(self.counts_from(sent));
    }

    /// Until when a leader may serve, as far as it has checked.
    pub(super) fn valid_until(&self) -> Option<Mono> {
        let standby = self.standby().filter(|_| self.fence().is_some())?;
        if self.mutants.planted(Mutant::ServesPastValidity) {
            return None;
        }
        Some(match standby.election {
            Election::Lock => self.cluster.held.min(self.cluster.unmoved) + standby.validity,
            // While it lasts, nobody moves the fence but by force, and then the lease is not renewed any more.
            Election::Lease { ttl } => self.cluster.held + ttl,
        })
    }

    /// A leader whose last good check is too old leads no more: it may have stood still, and another may have begun.
    pub(super) fn step_down_when_stale(&mut self) {
        if let Some(until) = self.valid_until()
            && until <= self.now.mono
        {
            let ttl = self.lease_ttl();
            let validity = ttl.or_else(|| self.standby().map(|standby| standby.validity)).unwrap_or_default();
            let since = (self.now.mono.since(until) + validity).as_millis();
            let counts = validity.as_millis();
            self.step_down(match ttl {
                Some(_) => format!("the lease was renewed last {since} ms ago, and lasts {counts} ms"),
                None => {
                    let what = if self.cluster.held <= self.cluster.unmoved { "election lock" } else { "fence" };
                    format!("the last good check of the {what} was {since} ms ago, and counts for {counts} ms")
                }
            });
        }
    }

    /// Leads no more: everybody who waits is told, what is in memory is dropped, and it waits in line again.
    pub(super) fn step_down(&mut self, reason: String) {
        self.lead_no_more(reason, false);
    }

    /// The same, and others go before. What this server has sent and not heard of is given up with its connection: a
    /// statement that hangs has locked the fence, perhaps, and a successor would wait for it.
    pub(super) fn let_others_lead(&mut self, reason: String) {
        self.lead_no_more(reason, true);
    }

    fn lead_no_more(&mut self, reason: String, others_first: bool) {
        let Some(on_lost_lease) = self.standby().map(|standby| standby.on_lost_lease) else { return };
        let (node_id, why) = (self.config.node_id.clone(), reason.clone());
        self.log(match on_lost_lease {
            OnLostLease::StepDown => LogEvent::LeadershipLost { node_id, reason: why },
            OnLostLease::Exit => LogEvent::LeaseLost { node_id, reason: why },
        });
        let stopping = matches!(self.phase, Phase::Stopping { .. }) && !self.hands_over();
        self.end_hand_over(ApiError::new(ErrorCode::Fenced, format!("fenced: {reason}")));
        self.refuse_all(&format!("fenced: {reason}"));
        match on_lost_lease {
            _ if stopping => {
                self.log(LogEvent::Stopped { clean: false });
                self.exit(0);
            }
            OnLostLease::Exit => self.exit(1),
            OnLostLease::StepDown if others_first => {
                let given_up = self.calls.give_up();
                self.effects.extend(given_up);
                self.forget();
                if self.lease_ttl().is_none() {
                    self.send(Connection::Election, Transaction::Unlock, Purpose::LetGo);
                }
                let wait = WAITS_FOR.max(self.config.check_interval * 2);
                self.phase = Phase::Campaigning { since: self.now.mono, again: Some(self.now.mono + wait) };
            }
            OnLostLease::StepDown => {
                self.forget();
                self.campaign();
            }
        }
    }

    /// Drops everything but what it is, what it has counted and what time it is, as a restart of the process would.
    pub(super) fn forget(&mut self) {
        let mut entropy = [0; 32];
        self.rng.fill_bytes(&mut entropy);
        let fresh = Node::with_mutants(self.config.clone(), entropy, self.now, self.mutants.clone());
        let mut before = std::mem::replace(self, fresh);
        before.calls.forget();
        self.returns = true;
        self.schemas = before.schemas;
        self.calls = before.calls;
        self.effects = before.effects;
        self.counters = before.counters;
        self.appends = before.appends;
        self.clock = before.clock;
        self.troubles = before.troubles;
        self.cluster.seen = before.cluster.seen;
        self.cluster.handing = before.cluster.handing;
        self.membership = before.membership;
        self.membership.forget();
    }

    /// What a standby does with a request: what only reads is read from the database, the rest is the leader's.
    pub(super) fn on_standby_request(&mut self, id: RequestId, request: Request) {
        let Some(request) = self.read_for(id, request) else { return };
        match request {
            Request::ListWorkflows => self.read(id, Read::Workflows(None), Transaction::Definitions),
            Request::GetWorkflow { name, version } => {
                self.read(id, Read::Workflows(Some((name, version))), Transaction::Definitions);
            }
            Request::Query { execution, name } => {
                self.read(id, Read::Query { execution, name }, Transaction::Definitions);
            }
            _ => {
                let error = self.not_leader();
                self.answer(id, error);
            }
        }
    }

    /// What is said to whoever wants something that only the leader does. A server that has just lost the lead may know of
    /// no other one yet, and sends nobody to itself.
    pub(super) fn not_leader(&self) -> ApiError {
        match self.known_leader().filter(|leader| leader.node_id != self.config.node_id) {
            Some(Leader { node_id, addr }) => {
                let at = addr.as_ref().map(|addr| format!(" at {addr}")).unwrap_or_default();
                let message = format!("this server is a standby; the leader is `{}`{at}", node_id.as_str());
                let error = ApiError::new(ErrorCode::NotLeader, message).with("leader_node", node_id.as_str());
                match addr {
                    Some(addr) => error.with("leader_addr", addr),
                    None => error,
                }
            }
            None => ApiError::new(ErrorCode::NotLeader, "this server is a standby, and no server leads just now"),
        }
    }

    /// The definitions as the database had them when they were read. Those that a standby knew before are no more; one that
    /// leads by now may have stored newer ones since, and forgets none.
    pub(super) fn know_definitions(&mut self, rows: Vec<DefinitionRow>) {
        if self.follows() {
            self.catalog = super::catalog::Catalog::default();
        }
        self.learn_definitions(rows);
    }

    /// Answers everybody who waits: of what is on its way, that it may have taken effect.
    pub(super) fn refuse_all(&mut self, why: &str) {
        let fenced = |in_doubt: bool| match in_doubt {
            true => {
                ApiError::new(ErrorCode::OutcomeUnknown, format!("{why}; the request may have taken effect before"))
            }
            false => ApiError::new(ErrorCode::Fenced, why.to_owned()),
        };
        let open: Vec<RequestId> = self.requests.keys().copied().collect();
        for id in open {
            let error = match self.requests.get(&id).map(|open| &open.kind) {
                // An append that is under way may have been written before the fence moved.
                Some(Open::Write(_) | Open::Report { .. }) => fenced(self.committing),
                Some(Open::Deploy) => fenced(true),
                Some(Open::Wait(_) | Open::Read(_)) | None => fenced(false),
            };
            self.respond(id, error);
        }
        for poll in self.polls.all() {
            let brought = self.polls.close(poll).is_some_and(|poll| poll.outcomes.iter().any(Option::is_none));
            self.answer(poll, fenced(brought && self.committing));
        }
    }

    pub(super) fn exit(&mut self, status: u8) {
        self.phase = Phase::Exited;
        self.effects.push_back(Effect::Exit { status });
    }

    /// The answer to a read of definitions.
    pub(super) fn shown_workflows(
        &self,
        which: Option<&(crate::id::WorkflowName, Option<crate::id::Version>)>,
    ) -> Response {
        match which {
            None => {
                let workflows = self.catalog.items();
                Response::ok(Reply::Workflows(crate::api::response::Workflows { workflows }))
            }
            Some((name, version)) => self.workflow(name, version.as_ref()),
        }
    }
}

/// The leader that the fence row names.
fn leader_of(row: &FenceRow) -> Option<Leader> {
    row.holder.as_ref().map(|holder| Leader { node_id: holder.node_id.clone(), addr: holder.addr.clone() })
}
