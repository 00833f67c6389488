//! The lease of leadership (design, section 8; protocols, 8, 13 and 31): one row with a time to live, which is taken,
//! renewed and judged by the database's clock, and by nothing that a session holds, so that any connection will do.
//!
//! The row is not the one that appends lock: a leader that saturates the database renews all the same. Taking the lease
//! moves the fence, to a term that is the lease's epoch, in the same transaction; a renewal never touches the fence.
//!
//! A condition that was looked at before a wait for a row's lock stands although time has passed (postgres-rules, R5). So
//! the row is locked first, and what is locked is judged after.

use crate::cluster::Elected;
use crate::id::{Incarnation, NodeId, Term};
use crate::store::append::Fence;
use crate::store::statement::{
    ClearHolder, FenceRow, FreeLease, LeaseSeen, MoveFence, ReadFence, ReadLease, RenewLease, RequeueClaims, Rows,
    SeizeLease, TakeLease, TypedStatement,
};
use crate::store::transaction::{Campaign, CampaignVerdict, Step, Verdict, was_promoted};
use crate::time::{ClusterMs, WallMs};
use serde::{Deserialize, Serialize};
use std::time::Duration;
use uuid::Uuid;

/// How a database records this election in `orbit_cluster`.
pub const LEASE: &str = Elected::Lease.as_str();

/// Who holds the lease.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseHolder {
    pub node_id: NodeId,
    /// The host's name, for people.
    pub host: String,
    /// What holds it: the name alone may be another process's by now.
    pub incarnation: Incarnation,
}

/// The row of `orbit_leases`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRow {
    /// Rises with every time that the lease is taken, and is the term of whoever took it; 0 before the first.
    pub epoch: Term,
    /// None where it is free.
    pub holder: Option<LeaseHolder>,
    /// By the database's clock. What is over is free, whoever it names.
    pub expires_ms: ClusterMs,
    /// When it was taken, and when it was taken or renewed last, by the database's clock.
    pub taken_ms: ClusterMs,
    pub renewed_ms: ClusterMs,
}

impl LeaseRow {
    /// The row of a database in which nobody has ever led by a lease.
    pub fn new() -> LeaseRow {
        let never = ClusterMs(0);
        LeaseRow { epoch: Term(0), holder: None, expires_ms: never, taken_ms: never, renewed_ms: never }
    }

    /// How long it is held for still; zero where it is free.
    pub fn left(&self, clock: ClusterMs) -> Duration {
        if self.holder.is_some() { self.expires_ms - clock } else { Duration::ZERO }
    }

    /// The row as somebody who may take it leaves it; none where another holds it. `clock` is read once the row is locked.
    #[must_use]
    pub fn taken(&self, take: &TakeLease, clock: ClusterMs) -> Option<LeaseRow> {
        let clock = take.rule.clock(clock);
        if self.left(clock) > Duration::ZERO {
            return None;
        }
        let highest = self.epoch.max(take.above);
        let epoch = if take.rule == LeaseRule::SameTerm { highest } else { highest.next() };
        let holder = Some(take.holder.clone());
        Some(LeaseRow { epoch, holder, expires_ms: expiry(clock, take.ttl), taken_ms: clock, renewed_ms: clock })
    }

    /// The row as its holder's renewal leaves it; none where it is another's, or over. `clock` is read once the row is locked.
    #[must_use]
    pub fn renewed(&self, renew: &RenewLease, clock: ClusterMs) -> Option<LeaseRow> {
        let clock = renew.rule.clock(clock);
        let mine = self.is_of(&renew.holder.incarnation, renew.epoch) && {
            let named = self.holder.as_ref().map(|holder| &holder.node_id);
            named == Some(&renew.holder.node_id)
        };
        let lives = self.left(clock) > Duration::ZERO;
        let may = (mine || renew.rule == LeaseRule::AnyHolder) && (lives || renew.rule == LeaseRule::OverOrNot);
        may.then(|| LeaseRow { expires_ms: expiry(clock, renew.ttl), renewed_ms: clock, ..self.clone() })
    }

    /// The row once its holder has given it back; none where it is another's.
    #[must_use]
    pub fn freed(&self, free: &FreeLease) -> Option<LeaseRow> {
        let mine = self.is_of(&free.fence.incarnation, free.fence.term);
        mine.then(|| LeaseRow { holder: None, expires_ms: ClusterMs(0), ..self.clone() })
    }

    /// The row once somebody has taken it away from its holder.
    #[must_use]
    pub fn seized(&self, seize: &SeizeLease) -> LeaseRow {
        LeaseRow { epoch: seize.epoch, holder: None, expires_ms: ClusterMs(0), ..self.clone() }
    }

    fn is_of(&self, incarnation: &Incarnation, epoch: Term) -> bool {
        let named = self.holder.as_ref().map(|holder| &holder.incarnation);
        named == Some(incarnation) && self.epoch == epoch
    }
}

impl Default for LeaseRow {
    fn default() -> LeaseRow {
        LeaseRow::new()
    }
}

/// When a lease ends that was granted now. Clocks are read in whole milliseconds, rounded down; rounded up here, so that the
/// row is never free before its holder, who counts from an earlier moment, has stopped.
fn expiry(clock: ClusterMs, ttl: Duration) -> ClusterMs {
    clock + ttl + Duration::from_millis(1)
}

/// How a lease is judged. All but the first are mistakes, which only simulated servers make; `io` refuses to run them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseRule {
    /// By the database's clock, for its holder, while it lasts, to a new epoch.
    #[default]
    Sound,
    /// By the asking server's own clock.
    WallClock(WallMs),
    /// Whoever holds it.
    AnyHolder,
    /// Whether or not it is over.
    OverOrNot,
    /// Without a new epoch.
    SameTerm,
}

impl LeaseRule {
    fn clock(self, database: ClusterMs) -> ClusterMs {
        match self {
            LeaseRule::WallClock(own) => ClusterMs(own.0),
            _ => database,
        }
    }
}

/// Becomes the writer by the lease.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LeaseCampaign {
    pub campaign: Campaign,
    pub ttl: Duration,
    pub rule: LeaseRule,
}

impl LeaseCampaign {
    /// What only reads first: one who waits for the lease writes nothing. Then the lease, the fence and the claims, in this
    /// order everywhere; the lease is kept only where the fence is still what was seen.
    pub(super) fn step(&self, seen: &[Rows]) -> Step {
        let Campaign { mode, incarnation, holder, .. } = &self.campaign;
        let stop = |verdict| Step::Stop(Verdict::Campaign(verdict));
        let (fence, lease, later) = match seen {
            [fence, lease, later @ ..] => (ReadFence::of(fence), ReadLease::of(lease), later),
            _ => return Step::Send(vec![ReadFence.into(), ReadLease.into()]),
        };
        match later {
            [] => {
                if let Some(verdict) = self.campaign.unfit(fence, Elected::Lease) {
                    return stop(verdict);
                }
                let left = lease.row.left(self.rule.clock(lease.clock));
                if left > Duration::ZERO {
                    // A repetition of a campaign whose outcome was unknown, and which was won.
                    let won = fence.fence.incarnation == *incarnation && lease.row.is_of(incarnation, fence.fence.term);
                    return stop(if won {
                        won_with(fence.fence.term, fence)
                    } else {
                        CampaignVerdict::Leased { left }
                    });
                }
                let holder = self.lease_holder();
                let (ttl, rule) = (self.ttl, self.rule);
                Step::Send(vec![TakeLease { holder, ttl, above: fence.fence.term, rule }.into()])
            }
            [taken] => match TakeLease::of(taken) {
                // Another was faster.
                None => stop(CampaignVerdict::Leased { left: Duration::ZERO }),
                Some(epoch) => {
                    let after = Fence { term: *epoch, incarnation: *incarnation };
                    let holder = Some(holder.clone());
                    let timeline = fence.origin.map(|origin| origin.timeline);
                    let (expected, mode, election) = (fence.fence, *mode, Elected::Lease);
                    let to = MoveFence { expected, after, mode, election, holder, timeline };
                    Step::Send(vec![to.into(), ReadFence.into()])
                }
            },
            [_, moved, again] => match self.campaign.too_old(ReadFence::of(again)) {
                _ if !*MoveFence::of(moved) => stop(CampaignVerdict::Lost),
                Some(verdict) => stop(verdict),
                None => {
                    Step::Last(vec![RequeueClaims { incarnation: *incarnation, promoted: was_promoted(fence) }.into()])
                }
            },
            _ => unreachable!("a campaign has four steps"),
        }
    }

    pub(super) fn verdict(&self, seen: &[Rows]) -> Verdict {
        let epoch = TakeLease::of(&seen[2]).expect("whoever moved the fence had the lease");
        Verdict::Campaign(won_with(epoch, ReadFence::of(&seen[0])))
    }

    /// As the lease names who asks for it.
    pub fn lease_holder(&self) -> LeaseHolder {
        let Campaign { incarnation, holder, .. } = &self.campaign;
        LeaseHolder { node_id: holder.node_id.clone(), host: holder.host.clone(), incarnation: *incarnation }
    }
}

fn won_with(term: Term, before: &FenceRow) -> CampaignVerdict {
    CampaignVerdict::Won { term, cluster_id: before.cluster_id, before: before.clone() }
}

/// The lease is given back, and then nobody is named as the leader any more.
pub(super) fn free(fence: Fence) -> Step {
    Step::Last(vec![FreeLease { fence }.into(), ClearHolder { fence }.into()])
}

/// Takes the lease away from whoever holds it: it is free, and the fence has moved, so that nothing of the former leader's
/// is written any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReleaseByForce {
    /// Drawn anew: nobody's.
    pub incarnation: Incarnation,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ForceVerdict {
    /// The lease as it was, and the term that the fence is at now.
    Released { before: LeaseSeen, term: Term },
    /// Nobody holds it.
    Free,
    /// The servers of this database elect their leader otherwise.
    OtherElection { found: String },
    /// Somebody moved the fence meanwhile: nothing has changed.
    Lost,
}

impl ReleaseByForce {
    pub(super) fn step(&self, seen: &[Rows]) -> Step {
        let stop = |verdict| Step::Stop(Verdict::Force(verdict));
        let (fence, lease, later) = match seen {
            [fence, lease, later @ ..] => (ReadFence::of(fence), ReadLease::of(lease), later),
            _ => return Step::Send(vec![ReadFence.into(), ReadLease.into()]),
        };
        let after = Fence { term: next_term(fence, lease), incarnation: self.incarnation };
        match later {
            [] if fence.election != LEASE => stop(ForceVerdict::OtherElection { found: fence.election.clone() }),
            [] if lease.row.holder.is_none() => stop(ForceVerdict::Free),
            [] => Step::Send(vec![
                SeizeLease { expected: lease.row.epoch, epoch: after.term }.into(),
                MoveFence {
                    expected: fence.fence,
                    after,
                    mode: crate::cluster::Mode::Standby,
                    election: Elected::Lease,
                    holder: None,
                    // Nobody has looked at what may have been handed out before a promotion.
                    timeline: fence.raised_on,
                }
                .into(),
            ]),
            [seized, moved] if *SeizeLease::of(seized) && *MoveFence::of(moved) => Step::Last(vec![ReadFence.into()]),
            _ => stop(ForceVerdict::Lost),
        }
    }

    pub(super) fn verdict(&self, seen: &[Rows]) -> Verdict {
        let (fence, lease) = (ReadFence::of(&seen[0]), ReadLease::of(&seen[1]));
        Verdict::Force(ForceVerdict::Released { before: lease.clone(), term: next_term(fence, lease) })
    }
}

/// Where the fence is once the lease is taken away.
fn next_term(fence: &FenceRow, lease: &LeaseSeen) -> Term {
    lease.row.epoch.max(fence.fence.term).next()
}

/// An incarnation from a random number, for a command that is no server.
pub fn nobody(random: u128) -> Incarnation {
    Incarnation(Uuid::from_u128(random))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    fn holder(number: u128) -> LeaseHolder {
        LeaseHolder { node_id: format!("n{number}").as_str().into(), host: "h".into(), incarnation: nobody(number) }
    }

    fn take(number: u128, above: u64) -> TakeLease {
        TakeLease { holder: holder(number), ttl: TTL, above: Term(above), rule: LeaseRule::Sound }
    }

    fn renew(number: u128, epoch: u64) -> RenewLease {
        RenewLease { holder: holder(number), epoch: Term(epoch), ttl: TTL, rule: LeaseRule::Sound }
    }

    #[test]
    fn a_lease_is_taken_when_it_is_over_and_its_epoch_is_above_every_term_before() {
        let first = LeaseRow::new().taken(&take(1, 7), ClusterMs(1_000)).expect("it is free");
        assert_eq!((first.epoch, first.expires_ms), (Term(8), ClusterMs(11_001)));
        assert_eq!(first.taken(&take(2, 8), ClusterMs(11_000)), None);
        assert_eq!(first.taken(&take(1, 8), ClusterMs(5_000)), None, "not even by its holder");
        let second = first.taken(&take(2, 3), ClusterMs(11_001)).expect("it is over");
        assert_eq!((second.epoch, second.holder), (Term(9), Some(holder(2))));
    }

    #[test]
    fn only_its_holder_renews_it_in_its_epoch_and_while_it_lasts() {
        let row = LeaseRow::new().taken(&take(1, 0), ClusterMs(0)).expect("it is free");
        let renewed = row.renewed(&renew(1, 1), ClusterMs(10_000)).expect("it lasts");
        assert_eq!((renewed.expires_ms, renewed.taken_ms, renewed.epoch), (ClusterMs(20_001), ClusterMs(0), Term(1)));
        assert_eq!(row.renewed(&renew(1, 1), ClusterMs(10_001)), None, "it is over");
        assert_eq!(row.renewed(&renew(2, 1), ClusterMs(1)), None, "it is another's");
        assert_eq!(row.renewed(&renew(1, 2), ClusterMs(1)), None, "it was another epoch's");
        let freed = row.freed(&FreeLease { fence: Fence { term: Term(1), incarnation: nobody(1) } }).expect("its own");
        assert_eq!(freed.renewed(&renew(1, 1), ClusterMs(1)), None, "it was given back");
        assert_eq!(freed.taken(&take(2, 1), ClusterMs(1)).expect("it is free").epoch, Term(2));
    }

    #[test]
    fn nobody_gives_back_what_is_another_s() {
        let row = LeaseRow::new().taken(&take(1, 0), ClusterMs(0)).expect("it is free");
        for (term, number) in [(1, 2), (2, 1)] {
            assert_eq!(row.freed(&FreeLease { fence: Fence { term: Term(term), incarnation: nobody(number) } }), None);
        }
    }
}
