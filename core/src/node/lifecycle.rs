//! A server's life: it becomes the writer, recovers, serves, looks at its fence, and stops.
//!
//! For one server alone the election was won before the process had a node (an operating-system lock beside the
//! SQLite file, design, section 8); what remains is the fence: a new term for this incarnation, checked in every
//! append.

use super::{Connection, LogEvent, Node, Purpose, hand_over};
use crate::api::{ApiError, ErrorCode};
use crate::cluster::Mode;
use crate::cluster::clock::Observed;
use crate::id::{ClusterId, Term};
use crate::mutant::{Mutant, Mutants};
use crate::node::recovery::Reading;
use crate::store::append::Fence;
use crate::store::outcome::Failure;
use crate::store::statement::{CampaignRule, Holder, LockState};
use crate::store::transaction::{Campaign, CampaignVerdict, Transaction, Verdict};
use crate::time::Mono;
use std::time::Duration;

/// How far a server is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Phase {
    /// Made, and not started.
    Idle,
    /// Becoming the writer, and since when; where another holds the lock, asking again at this time.
    Campaigning {
        since: Mono,
        again: Option<Mono>,
    },
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
    /// The same goes for a leader that hands over, which does not end then.
    Stopping {
        fence: Fence,
        cluster_id: ClusterId,
        until: Mono,
    },
    /// One that does not lead stops: it is being written that it has left, and a campaign that is under way comes to its end.
    Leaving {
        until: Mono,
        /// Nothing that it may have won stays with it.
        clean: bool,
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
const POOLED: &str = "the database is reached through a pooler in transaction mode, where no session can hold the \
                      election lock: connect to PostgreSQL itself, or through the pooler in session mode";
/// How often another server's election lock is asked for.
pub(super) const LOCK_PAUSE: Duration = Duration::from_millis(100);

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
        if self.is_unseen() {
            return Some("the database does not answer");
        }
        if self.lock_lost {
            return Some("another server holds the election lock");
        }
        (self.write_failed_lately() || self.writes_hang()).then_some("the database does not take writes")
    }

    /// Whether a write failed, or was in doubt, and none has gone through since.
    pub(super) fn write_failed_lately(&self) -> bool {
        self.write_failed.is_some_and(|at| self.now.mono < at + WRITE_TROUBLE)
    }

    /// What this server writes under, once it is the writer.
    pub(super) fn fence(&self) -> Option<Fence> {
        match self.phase {
            Phase::Recovering { fence, .. } | Phase::Serving { fence, .. } | Phase::Stopping { fence, .. } => {
                Some(fence)
            }
            Phase::Idle
            | Phase::Campaigning { .. }
            | Phase::Leaving { .. }
            | Phase::Releasing { .. }
            | Phase::Exited => None,
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
        if self.follows() {
            return Some("this server is a standby");
        }
        match self.phase {
            Phase::Serving { .. } => None,
            Phase::Campaigning { again: Some(_), .. } => Some("another server holds the election lock"),
            Phase::Idle | Phase::Campaigning { .. } => Some("the server is starting"),
            Phase::Recovering { .. } => Some("the server is recovering executions from history"),
            Phase::Stopping { .. } | Phase::Releasing { .. } if self.hands_over() => {
                Some("the server is handing the lead over")
            }
            Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Releasing { .. } | Phase::Exited => {
                Some("the server is stopping")
            }
        }
    }

    /// Begins: alone it must become the writer now, in a cluster some time.
    pub(super) fn begin(&mut self) {
        if self.standby().is_some() {
            let (node_id, advertise_addr) = (self.config.node_id.clone(), self.config.addr.clone());
            self.log(LogEvent::JoinedCluster { node_id, advertise_addr });
        }
        if self.loops_too_early() {
            self.keep_registry_now();
        }
        self.campaign();
    }

    /// Becomes the writer: a new term for this incarnation.
    pub(super) fn campaign(&mut self) {
        let since = match self.phase {
            Phase::Idle => self.now.mono,
            Phase::Campaigning { since, .. } => since,
            other => unreachable!("a node starts once, and is at {other:?}"),
        };
        self.phase = Phase::Campaigning { since, again: None };
        let holder = Holder {
            node_id: self.config.node_id.clone(),
            host: self.config.host.clone(),
            pid: self.config.pid,
            addr: self.config.addr.clone(),
            since_ms: self.now.wall,
        };
        let campaign = Campaign {
            schema: self.config.schema,
            rule: self.campaign_rule(),
            ..Campaign::new(self.config.role.mode(), self.incarnation, holder)
        };
        match self.lease_ttl() {
            Some(ttl) => self.take_lease(campaign, ttl),
            None if campaign.rule == CampaignRule::ElsewhereThanLocked && !self.cluster.locked_elsewhere => {
                self.stand_in_line();
            }
            None => {
                let connection = match std::mem::take(&mut self.cluster.locked_elsewhere) {
                    true => Connection::Store,
                    false => Connection::Election,
                };
                self.send(connection, Transaction::Campaign(campaign), Purpose::Campaign);
            }
        }
    }

    fn campaign_rule(&self) -> CampaignRule {
        if self.mutants.planted(Mutant::OlderServerLeads) {
            return CampaignRule::AnySchema;
        }
        match self.mutants.planted(Mutant::TermRaisedElsewhere) && self.standby().is_some() {
            true => CampaignRule::ElsewhereThanLocked,
            false => CampaignRule::Sound,
        }
    }

    /// When another server's election lock is asked for again.
    pub(super) fn next_campaign(&self) -> Option<Mono> {
        match self.phase {
            Phase::Campaigning { again, .. } => again,
            _ => None,
        }
    }

    pub(super) fn campaign_when_due(&mut self) {
        if self.next_campaign().is_some_and(|at| at <= self.now.mono) {
            self.nobody_else();
            self.campaign();
        }
    }

    /// Campaigns again after a moment.
    pub(super) fn campaign_later(&mut self) {
        self.campaign_after(LOCK_PAUSE);
    }

    pub(super) fn campaign_after(&mut self, pause: Duration) {
        if let Phase::Campaigning { since, .. } = self.phase {
            self.phase = Phase::Campaigning { since, again: Some(self.now.mono + pause) };
        }
    }

    /// Another session has the election lock. That of a killed server goes as soon as the database notices, so it is
    /// asked for again for a while; then this start is refused.
    fn wait_for_the_lock(&mut self, since: Mono, holder: Option<Holder>) {
        if self.now.mono < since + self.config.start_patience {
            self.phase = Phase::Campaigning { since, again: Some(self.now.mono + LOCK_PAUSE) };
            return;
        }
        let who = match holder {
            Some(holder) => {
                let addr = holder.addr.map(|addr| format!(", serving {addr}")).unwrap_or_default();
                format!("server `{}` on host `{}` (process {}{addr})", holder.node_id.as_str(), holder.host, holder.pid)
            }
            None => "another server, which is starting or stopping just now".into(),
        };
        self.unservable(format!(
            "the database is held by {who}: stop that one first, or give this one a database of its own"
        ));
    }

    pub(super) fn on_campaign(&mut self, sent: Mono, outcome: Result<Verdict, Failure>) {
        let since = match self.phase {
            Phase::Campaigning { since, .. } => since,
            Phase::Leaving { until, .. } => return self.ended_while_leaving(until, outcome),
            _ => return, // stopped meanwhile
        };
        let verdict = match outcome {
            Ok(Verdict::Campaign(verdict)) => verdict,
            Ok(other) => unreachable!("a campaign gives a campaign's verdict, not {other:?}"),
            Err(_) if self.standby().is_some() || self.returns => {
                self.cluster.in_doubt = true;
                return self.campaign_later();
            }
            Err(failure) => return self.unservable(format!("the database cannot be written: {}", failure.message)),
        };
        self.cluster.in_doubt = false;
        match verdict {
            CampaignVerdict::Won { term, cluster_id, before } => {
                self.clock.observe(sent, self.now.mono, before.clock);
                let fence = Fence { term, incarnation: self.incarnation };
                self.counters.failovers += u64::from(self.standby().is_some() && before.fence.term > Term(0));
                match self.lease_ttl() {
                    Some(_) => self.renew_before_leading(fence, cluster_id),
                    None => self.reign(fence, cluster_id, sent),
                }
            }
            CampaignVerdict::Leased { left } => self.ask_again_for_lease(left),
            CampaignVerdict::Lost => self.campaign(),
            CampaignVerdict::Held { .. } if self.standby().is_some() => self.stand_in_line(),
            CampaignVerdict::Held { holder } => self.wait_for_the_lock(since, holder),
            CampaignVerdict::Pooled => self.unservable(POOLED.into()),
            CampaignVerdict::NewerSchema { found } => self.unservable(format!(
                "the database has schema version {found}, and this server knows up to {}: run a newer orbit",
                self.config.schema
            )),
            unfit @ (CampaignVerdict::OtherMode { .. } | CampaignVerdict::OtherElection { .. }) => self.is_unfit(unfit),
        }
    }

    /// It was told to stop while its campaign was under way: what it won nevertheless, it gives back. Else the database would
    /// name a writer that is gone, and by a lease nobody could lead until that has run out.
    fn ended_while_leaving(&mut self, until: Mono, outcome: Result<Verdict, Failure>) {
        let clean = match outcome {
            Ok(Verdict::Campaign(CampaignVerdict::Won { term, .. })) => {
                return self.release(Fence { term, incarnation: self.incarnation }, until);
            }
            // Its own, of a session that it has lost: an attempt of before won, and the lock is held for a while still.
            Ok(Verdict::Campaign(CampaignVerdict::Held { holder: Some(holder) })) => {
                (&holder.node_id, holder.pid) != (&self.config.node_id, self.config.pid)
            }
            Ok(_) => true,
            Err(_) => false,
        };
        self.phase = Phase::Leaving { until, clean };
    }

    /// The database is of servers that take part otherwise.
    pub(super) fn is_unfit(&mut self, verdict: CampaignVerdict) {
        let (mode, elected) = (self.config.role.mode(), self.config.role.elected().as_str());
        let set = match mode {
            Mode::Single => "orbit cluster mode set single".to_owned(),
            Mode::Shared => unreachable!("no role is of shared mode yet"),
            Mode::Standby => format!("orbit cluster mode set standby --election {elected}"),
        };
        self.unservable(match verdict {
            CampaignVerdict::OtherMode { found } if mode == Mode::Single => format!(
                "the database belongs to servers in {found} mode, and this one would be alone: start it with --cluster, or \
                 stop them all and run `{set}`"
            ),
            CampaignVerdict::OtherMode { found } => format!(
                "the database belongs to servers in {found} mode, and this one is of {} mode: start it as they are, give \
                 it a database of its own, or stop them all and run `{set}`",
                mode.as_str()
            ),
            CampaignVerdict::OtherElection { found } => format!(
                "the servers of this database elect their leader by {found}, and this one would be elected by {elected}: \
                 two elections elect two leaders; start it with --election {found}, as they are, or stop them all and run \
                 `{set}`"
            ),
            other => unreachable!("{other:?} is not about how servers take part"),
        });
    }

    /// It is the writer, as far as it was told by what was sent then: it reads what it must know.
    pub(super) fn reign(&mut self, fence: Fence, cluster_id: ClusterId, sent: Mono) {
        self.phase = Phase::Recovering { fence, cluster_id, since: self.now.mono };
        let (node_id, term) = (self.config.node_id.clone(), fence.term);
        self.begin_reign(sent);
        self.log(match self.standby() {
            None => LogEvent::FenceTaken { node_id, term },
            Some(_) => LogEvent::Elected { node_id, term },
        });
        self.read_on(Reading::Whole);
    }

    pub(super) fn unservable(&mut self, message: String) {
        self.log(LogEvent::Unservable { message });
        self.exit(1);
    }

    /// When the fence is to be looked at next.
    pub(super) fn next_check(&self) -> Option<Mono> {
        match self.phase {
            Phase::Serving { .. } | Phase::Stopping { .. } => self.checks.next(),
            // A long recovery must not cost the lead, and one who follows looks whom.
            Phase::Campaigning { .. } | Phase::Recovering { .. } if self.standby().is_some() => self.checks.next(),
            _ => None,
        }
    }

    pub(super) fn check_when_due(&mut self) {
        if self.next_check().is_none_or(|at| at > self.now.mono) {
            return;
        }
        self.checks.sent();
        let by_lock = self.fence().is_some() && self.lease_ttl().is_none();
        if by_lock && !std::mem::replace(&mut self.checks.holding, true) {
            self.send(Connection::Election, Transaction::Hold, Purpose::Hold);
        }
        self.send(Connection::Control, Transaction::Check, Purpose::Check { leads: self.fence().is_some() });
    }

    /// The election lock is ours still, or was taken again by a new session: the one before ended with its connection.
    /// Whoever had it in between has moved the fence, which the next look at it tells.
    pub(super) fn on_hold(&mut self, sent: Mono, outcome: Result<Verdict, Failure>) {
        self.checks.holding = false;
        if self.fence().is_none() {
            return;
        }
        match outcome {
            Ok(Verdict::Hold(LockState::Mine)) => {
                self.lock_lost = false;
                self.held_at(sent);
            }
            Ok(Verdict::Hold(LockState::Others)) if self.standby().is_some() => {
                self.step_down("another session holds the election lock".into());
            }
            Ok(Verdict::Hold(LockState::Others)) => {
                if !std::mem::replace(&mut self.lock_lost, true) {
                    self.log(LogEvent::ElectionLockLost);
                }
            }
            Ok(Verdict::Hold(LockState::Pooled)) => self.unservable(POOLED.into()),
            Ok(other) => unreachable!("a look at the lock gives its state, not {other:?}"),
            // Asked again at the next check. The fence, not the lock, is what keeps others' writes apart from ours.
            Err(_) => {}
        }
    }

    pub(super) fn on_check(&mut self, sent: Mono, leads: bool, outcome: Result<Verdict, Failure>) {
        let every = self.config.check_interval;
        let every = if self.hands_over() { every.min(hand_over::LOOK_EVERY) } else { every };
        self.checks.answered(self.now.mono + every);
        let Ok(Verdict::Check(row)) = outcome else {
            self.look_failed();
            return;
        };
        self.look_went_well();
        self.heard_anything();
        match self.clock.observe(sent, self.now.mono, row.clock) {
            Observed::Smooth | Observed::Doubted { .. } => {}
            Observed::Stepped { by_ms } => {
                self.counters.clock_steps += 1;
                self.log(LogEvent::ClockStepped { by_ms });
            }
        }
        match self.fence() {
            None => self.follow(row),
            // It was sent before this server won, and may have been answered before.
            Some(_) if !leads => {}
            Some(fence) if !self.is_ours(fence, row.fence) => self.lose_fence(row.fence.term),
            Some(_) => self.fence_was_unmoved(sent),
        }
    }

    /// Whether the fence that was read is this server's still: of the same number, and of the same incarnation, since a
    /// promotion may have handed the number out again.
    fn is_ours(&self, fence: Fence, read: Fence) -> bool {
        read == fence || (read.term == fence.term && self.mutants.planted(Mutant::NumberWithoutIncarnation))
    }

    /// Another incarnation is the writer now: nothing of what is in memory can be trusted or written.
    pub(super) fn lose_fence(&mut self, current: crate::id::Term) {
        let Some(fence) = self.fence() else { return };
        let held = fence.term;
        if self.standby().is_some() {
            return self.step_down(format!("this server led term {held}, and the cluster is at term {current}"));
        }
        self.log(LogEvent::FenceLost { held, current });
        self.refuse_all(&format!("fenced: this server held term {held}, and the database is at term {current}"));
        self.exit(1);
    }

    /// SIGTERM, SIGINT: take nothing new in, finish what is in flight, release last.
    pub(super) fn stop(&mut self) {
        let until = self.now.mono + self.config.stop_deadline;
        if self.hands_over() && !self.follows() {
            self.log(LogEvent::Stopping);
            self.leave();
        }
        self.end_hand_over(ApiError::new(ErrorCode::NotReady, "the server is stopping"));
        match self.phase {
            Phase::Stopping { .. } | Phase::Leaving { .. } | Phase::Releasing { .. } | Phase::Exited => return,
            Phase::Serving { fence, cluster_id } => {
                self.log(LogEvent::Stopping);
                self.leave();
                self.begin_to_stop(fence, cluster_id);
                if self.lease_ttl().is_some() && self.mutants.planted(Mutant::ReleaseBeforeStopEnded) {
                    self.send(Connection::Election, Transaction::FreeLease(fence), Purpose::Release);
                }
                if self.lease_ttl().is_none() && self.mutants.planted(Mutant::ReleaseBeforeStopEnded) {
                    self.send(Connection::Store, Transaction::Release(fence), Purpose::Release);
                }
                return;
            }
            Phase::Recovering { fence, .. } => {
                self.log(LogEvent::Stopping);
                self.leave();
                return self.release(fence, until);
            }
            Phase::Idle | Phase::Campaigning { .. } => {
                self.log(LogEvent::Stopping);
                if let Some(fence) = self.lease_taken() {
                    self.leave();
                    return self.release(fence, until);
                }
                self.leave_and_exit();
            }
        }
        self.end_waits();
    }

    /// Takes nothing new in, and finishes what is in flight.
    pub(super) fn begin_to_stop(&mut self, fence: Fence, cluster_id: ClusterId) {
        let until = self.now.mono + self.config.stop_deadline;
        self.phase = Phase::Stopping { fence, cluster_id, until };
        let see = self.seen_now();
        self.save_seen(see);
        self.end_waits();
    }

    pub(super) fn stop_deadline(&self) -> Option<Mono> {
        match self.phase {
            Phase::Stopping { until, .. } | Phase::Leaving { until, .. } => Some(until),
            // A server that does not end has time until the database says that it leads no more.
            Phase::Releasing { until } if !self.hands_over() => Some(until),
            _ => None,
        }
    }

    /// Goes on with the stop once nothing is in flight, or when it has taken too long.
    pub(super) fn stop_when_done(&mut self) {
        match self.phase {
            Phase::Stopping { fence, until, .. } => {
                // Whoever asked for a deployment may have been told that nobody knows; it may still be written.
                let deploys = self.calls.unsettled().any(|purpose| matches!(purpose, Purpose::Deploy(_)));
                let idle = !self.committing && !deploys && self.requests.is_empty() && self.polls.is_empty();
                let over = until <= self.now.mono;
                let in_doubt = over && (self.committing || deploys) && self.lease_ttl().is_some();
                if in_doubt && self.hands_over() {
                    self.step_down("the lead was to be handed over, and a write was in doubt for too long".into());
                } else if in_doubt {
                    // What is in doubt may still be written, and giving the lease back is the last thing that is: it runs out.
                    self.log(LogEvent::Stopped { clean: false });
                    self.exit(0);
                } else if (idle && !self.claims.in_flight() && !self.membership.is_leaving()) || over {
                    self.release(fence, until);
                }
            }
            Phase::Leaving { until, clean } => {
                let campaigns = self.calls.unsettled().any(|purpose| matches!(purpose, Purpose::Campaign));
                let over = until <= self.now.mono;
                if over || !(campaigns || self.membership.is_leaving()) {
                    self.log(LogEvent::Stopped { clean: clean && !campaigns });
                    self.exit(0);
                }
            }
            Phase::Releasing { until } if until <= self.now.mono && !self.hands_over() => {
                self.log(LogEvent::Stopped { clean: false });
                self.exit(0);
            }
            _ => {}
        }
    }

    fn release(&mut self, fence: Fence, until: Mono) {
        self.phase = Phase::Releasing { until };
        match self.lease_ttl() {
            Some(_) => self.send(Connection::Election, Transaction::FreeLease(fence), Purpose::Release),
            None => self.send(Connection::Store, Transaction::Release(fence), Purpose::Release),
        }
    }

    pub(super) fn on_release(&mut self, outcome: Result<Verdict, Failure>) {
        if !matches!(self.phase, Phase::Releasing { .. }) {
            return;
        }
        if self.hands_over() {
            return self.free_the_lock();
        }
        self.log(LogEvent::Stopped { clean: matches!(outcome, Ok(Verdict::Release(true))) });
        self.exit(0);
    }
}

/// When the fence is looked at.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    next: Option<Mono>,
    in_flight: bool,
    /// The election lock is being looked at.
    holding: bool,
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
