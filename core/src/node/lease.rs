//! Leading by a lease (design, section 8; protocols, 13): it is asked for every third of its time to live, renewed as often,
//! and counts from the sending of the last renewal that went well, by this server's own monotonic clock.

use super::lifecycle::{LOCK_PAUSE, Phase};
use super::{Connection, Node, Purpose};
use crate::cluster::Election;
use crate::id::ClusterId;
use crate::mutant::{Mutant, Mutants};
use crate::store::append::Fence;
use crate::store::lease::{LeaseCampaign, LeaseHolder, LeaseRule};
use crate::store::outcome::Failure;
use crate::store::statement::RenewLease;
use crate::store::transaction::{Campaign, Transaction, Verdict};
use crate::time::Mono;
use std::time::Duration;

/// What a server knows of the lease that it has, or is about to have.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// It was taken, and is renewed once before this server leads.
    taken: Option<Fence>,
    /// When it is to be renewed next.
    next: Option<Mono>,
    renewing: bool,
}

impl<M: Mutants> Node<M> {
    /// The time to live of the lease; none where leaders are elected otherwise.
    pub(super) fn lease_ttl(&self) -> Option<Duration> {
        match self.standby()?.election {
            Election::Lock => None,
            Election::Lease { ttl } => Some(ttl),
        }
    }

    fn lease_rule(&self) -> LeaseRule {
        let mistakes = [
            (Mutant::LeaseOnWallClock, LeaseRule::WallClock(self.now.wall)),
            (Mutant::RenewalByWrongHolder, LeaseRule::AnyHolder),
            (Mutant::RenewalAfterExpiry, LeaseRule::OverOrNot),
            (Mutant::LeaseTermNotRaised, LeaseRule::SameTerm),
        ];
        let planted = mistakes.into_iter().find(|(mutant, _)| self.mutants.planted(*mutant));
        planted.map_or(LeaseRule::Sound, |(_, rule)| rule)
    }

    /// Asks for the lease.
    pub(super) fn take_lease(&mut self, campaign: Campaign, ttl: Duration) {
        let rule = self.lease_rule();
        let campaign = Box::new(LeaseCampaign { campaign, ttl, rule });
        self.send(Connection::Election, Transaction::TakeLease(campaign), Purpose::Campaign);
    }

    /// Another has it, for so long still: it is asked for again after a third of its time to live, or as soon as it is over.
    pub(super) fn ask_again_for_lease(&mut self, left: Duration) {
        let third = self.lease_ttl().map_or(LOCK_PAUSE, |ttl| ttl / 3);
        self.campaign_after(left.min(third).max(LOCK_PAUSE));
    }

    /// It was taken. The answer may be that of a repetition, and come long after the taking; so it is renewed once before
    /// this server leads, and counts from the sending of that.
    pub(super) fn renew_before_leading(&mut self, fence: Fence, cluster_id: ClusterId) {
        self.cluster.lease.taken = Some(fence);
        let renew = self.renewal(fence);
        self.send(Connection::Election, renew, Purpose::FirstRenewal { fence, cluster_id });
    }

    fn renewal(&self, fence: Fence) -> Transaction {
        let holder = LeaseHolder {
            node_id: self.config.node_id.clone(),
            host: self.config.host.clone(),
            incarnation: fence.incarnation,
        };
        let ttl = self.lease_ttl().expect("only a server that is elected by lease renews one");
        Transaction::RenewLease(RenewLease { holder, epoch: fence.term, ttl, rule: self.lease_rule() })
    }

    pub(super) fn on_first_renewal(
        &mut self,
        fence: Fence,
        cluster_id: ClusterId,
        sent: Mono,
        outcome: Result<Verdict, Failure>,
    ) {
        if !self.follows() || self.cluster.lease.taken != Some(fence) {
            return; // stopped meanwhile
        }
        let ttl = self.lease_ttl().expect("only a server that is elected by lease renews one");
        match outcome {
            // The answer took longer than the lease lasts: it may be another's by now.
            Ok(Verdict::Renew(true)) if sent + ttl <= self.now.mono => self.renew_before_leading(fence, cluster_id),
            Ok(Verdict::Renew(true)) => {
                self.cluster.lease = Lease { next: Some(sent + ttl / 3), ..Lease::default() };
                self.reign(fence, cluster_id, sent);
            }
            Ok(Verdict::Renew(false)) => {
                self.cluster.lease.taken = None;
                self.campaign_later();
            }
            // It has it still, and a stop gives it back.
            Err(_) => self.campaign_later(),
            Ok(other) => unreachable!("a renewal says whether it was one, not {other:?}"),
        }
    }

    /// The lease that was taken, where this server does not lead by it yet.
    pub(super) fn lease_taken(&self) -> Option<Fence> {
        self.cluster.lease.taken.filter(|_| matches!(self.phase, Phase::Campaigning { .. }))
    }

    /// When the lease is to be renewed.
    pub(super) fn next_renewal(&self) -> Option<Mono> {
        self.fence()?;
        self.cluster.lease.next.filter(|_| !self.cluster.lease.renewing)
    }

    pub(super) fn renew_when_due(&mut self) {
        let Some(fence) = self.fence().filter(|_| self.next_renewal().is_some_and(|at| at <= self.now.mono)) else {
            return;
        };
        let third = self.lease_ttl().expect("a lease is renewed") / 3;
        self.cluster.lease.renewing = true;
        self.cluster.lease.next = Some(self.now.mono + third);
        let renew = self.renewal(fence);
        self.send(Connection::Election, renew, Purpose::Renewal);
    }

    pub(super) fn on_renewal(&mut self, sent: Mono, outcome: Result<Verdict, Failure>) {
        self.cluster.lease.renewing = false;
        if self.fence().is_none() {
            return;
        }
        match outcome {
            Ok(Verdict::Renew(true)) => self.held_at(sent),
            Ok(Verdict::Renew(false)) => {
                self.step_down("the lease was not renewed: it has run out, or is another server's".into());
            }
            Ok(other) => unreachable!("a renewal says whether it was one, not {other:?}"),
            // It certainly did nothing, and what is left of the lease is time to try again.
            Err(_) => self.cluster.lease.next = Some(self.now.mono + LOCK_PAUSE),
        }
    }
}
