//! The lease on a real server: what is locked is judged by the clock as it is after the wait for it.

use crate::kind::{self, Place};
use crate::support::*;
use orbit_core::cluster::Mode;
use orbit_core::id::{Incarnation, Term};
use orbit_core::node::Connection;
use orbit_core::store::append::Fence;
use orbit_core::store::lease::{ForceVerdict, LeaseCampaign, LeaseRule, ReleaseByForce};
use orbit_core::store::outcome::{FailureKind, Reply};
use orbit_core::store::statement::{Holder, LeaseSeen, RenewLease};
use orbit_core::store::transaction::{Campaign, CampaignVerdict, Transaction, Verdict};
use orbit_core::time::WallMs;
use orbit_io::postgres::Timeouts;
use std::time::Duration;
use uuid::Uuid;

const LONG: Duration = Duration::from_secs(1_000);

fn asks(number: u128, ttl: Duration, rule: LeaseRule) -> LeaseCampaign {
    let holder = Holder {
        node_id: format!("n{number}").as_str().into(),
        host: "h".into(),
        pid: 1,
        addr: None,
        since_ms: WallMs(1),
    };
    let campaign = Campaign::new(Mode::Standby, Incarnation(Uuid::from_u128(number)), holder);
    LeaseCampaign { campaign, ttl, rule }
}

fn take(number: u128, ttl: Duration) -> Transaction {
    Transaction::TakeLease(Box::new(asks(number, ttl, LeaseRule::Sound)))
}

fn renew(number: u128, epoch: u64, ttl: Duration) -> Transaction {
    let holder = asks(number, ttl, LeaseRule::Sound).lease_holder();
    Transaction::RenewLease(RenewLease { holder, epoch: Term(epoch), ttl, rule: LeaseRule::Sound })
}

/// A store whose waits for locks are as long as the test wants.
fn patient() -> Running {
    let place = Place::fresh();
    let timeouts = Timeouts { lock: Duration::from_secs(60), write: Duration::from_secs(60), ..Timeouts::default() };
    Running { attached: kind::open_with(&place, timeouts), calls: 0, place }
}

impl Running {
    fn takes(&mut self, number: u128, ttl: Duration) -> CampaignVerdict {
        match self.done(Connection::Election, take(number, ttl)) {
            Verdict::Campaign(verdict) => verdict,
            other => panic!("{other:?}"),
        }
    }

    fn leads(&mut self, number: u128, ttl: Duration) -> Term {
        match self.takes(number, ttl) {
            CampaignVerdict::Won { term, .. } => term,
            other => panic!("{other:?}"),
        }
    }

    fn lease(&mut self) -> LeaseSeen {
        match self.done(Connection::Control, Transaction::Lease) {
            Verdict::Lease(seen) => seen,
            other => panic!("{other:?}"),
        }
    }

    fn until_over(&mut self) {
        while !self.lease().row.left(self.lease().clock).is_zero() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

/// Locks the row for a while, without changing it: from before a transaction is sent until the lease is over.
fn over_a_lock(store: &mut Running, sent: Transaction) -> Verdict {
    let mut other = store.place.database.connect();
    other.batch_execute("BEGIN; SELECT 1 FROM orbit_leases FOR UPDATE").expect("it is locked");
    let call = store.send(Connection::Election, sent);
    let mut looks = store.place.database.connect();
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    while looks.query_one(waiting, &[]).expect("it answers").get::<_, i64>(0) == 0 {
        std::thread::sleep(Duration::from_millis(5));
    }
    store.until_over();
    other.batch_execute("ROLLBACK").expect("it is let go");
    let (answered, reply) = store.next_reply();
    assert_eq!(answered, call);
    match reply {
        Reply::Done(verdict) => verdict,
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_lease_is_taken_renewed_given_back_and_taken_again_with_a_higher_term() {
    let mut store = Running::fresh();
    assert_eq!(store.leads(1, LONG), Term(1));
    assert_eq!((store.check().fence.term, store.check().election.as_str()), (Term(1), "lease"));
    assert!(matches!(store.takes(2, LONG), CampaignVerdict::Leased { left } if left > LONG / 2));
    assert_eq!(store.leads(1, LONG), Term(1), "a repetition is told what the first one was");
    let before = store.lease().row;
    assert_eq!(store.done(Connection::Election, renew(1, 1, LONG)), Verdict::Renew(true));
    assert!(store.lease().row.expires_ms >= before.expires_ms && store.lease().row.taken_ms == before.taken_ms);
    for (number, epoch) in [(2, 1), (1, 2)] {
        assert_eq!(store.done(Connection::Election, renew(number, epoch, LONG)), Verdict::Renew(false));
    }
    let fence = Fence { term: Term(1), incarnation: Incarnation(Uuid::from_u128(1)) };
    assert_eq!(store.done(Connection::Election, Transaction::FreeLease(fence)), Verdict::Release(true));
    assert_eq!((store.lease().row.holder, store.check().holder), (None, None));
    assert_eq!(store.done(Connection::Election, renew(1, 1, LONG)), Verdict::Renew(false));
    assert_eq!(store.leads(2, LONG), Term(2));
}

#[test]
fn a_lease_whose_row_was_merely_locked_until_it_was_over_is_not_renewed() {
    let mut store = patient();
    assert_eq!(store.leads(1, Duration::from_millis(1_500)), Term(1));
    assert_eq!(over_a_lock(&mut store, renew(1, 1, LONG)), Verdict::Renew(false));
}

#[test]
fn what_waited_for_the_row_is_granted_its_time_from_after_the_wait() {
    let mut store = patient();
    let ttl = Duration::from_millis(1_500);
    assert_eq!(store.leads(1, ttl), Term(1));
    store.until_over();
    // Free when it asks, and locked by somebody for longer than it would be granted.
    let mut other = store.place.database.connect();
    other.batch_execute("BEGIN; SELECT 1 FROM orbit_leases FOR UPDATE").expect("it is locked");
    store.send(Connection::Election, take(2, ttl));
    std::thread::sleep(ttl);
    let from = store.lease().clock;
    other.batch_execute("ROLLBACK").expect("it is let go");
    let (_, reply) = store.next_reply();
    assert!(matches!(reply, Reply::Done(Verdict::Campaign(CampaignVerdict::Won { term: Term(2), .. }))), "{reply:?}");
    let row = store.lease().row;
    assert!(row.taken_ms >= from && row.expires_ms >= from + ttl, "{row:?} {from:?}");
}

#[test]
fn of_two_who_ask_at_once_one_has_the_lease() {
    let mut store = patient();
    let place = store.place.clone();
    for round in 1..=20u64 {
        let mut second = Running { attached: kind::open(&place), calls: 0, place: place.clone() };
        let numbers = [u128::from(round) * 2, u128::from(round) * 2 + 1];
        store.send(Connection::Election, take(numbers[0], LONG));
        second.send(Connection::Election, take(numbers[1], LONG));
        let replies = [store.next_reply().1, second.next_reply().1];
        let won = |reply: &Reply<Verdict>| matches!(reply, Reply::Done(Verdict::Campaign(CampaignVerdict::Won { term, .. })) if *term == Term(round));
        let winners: Vec<usize> = (0..2).filter(|i| won(&replies[*i])).collect();
        assert_eq!(winners.len(), 1, "{replies:?}");
        let incarnation = Incarnation(Uuid::from_u128(numbers[winners[0]]));
        let freed = store.done(Connection::Election, Transaction::FreeLease(Fence { term: Term(round), incarnation }));
        assert_eq!(freed, Verdict::Release(true));
    }
}

#[test]
fn force_frees_the_lease_and_moves_the_fence_and_an_append_of_the_holder_is_fenced() {
    let mut store = Running::fresh();
    let term = store.leads(1, LONG);
    let fence = Fence { term, incarnation: Incarnation(Uuid::from_u128(1)) };
    store.written(fence, vec![group(1, vec![start("a", 2)])]);
    let force = || Transaction::ForceLease(ReleaseByForce { incarnation: Incarnation(Uuid::from_u128(77)) });
    let Verdict::Force(ForceVerdict::Released { before, term }) = store.done(Connection::Control, force()) else {
        panic!("it was held");
    };
    assert_eq!((before.row.epoch, term, store.check().fence.term), (Term(1), Term(2), Term(2)));
    assert_eq!(store.done(Connection::Election, renew(1, 1, LONG)), Verdict::Renew(false));
    let outcomes = store.append(fence, vec![group(2, vec![start("b", 2)])]);
    assert!(format!("{outcomes:?}").contains("Fenced"), "{outcomes:?}");
    assert_eq!(store.done(Connection::Control, force()), Verdict::Force(ForceVerdict::Free));
    assert_eq!(store.leads(2, LONG), Term(3));
}

#[test]
fn a_lease_that_is_judged_otherwise_than_it_should_is_not_run() {
    let mut store = Running::fresh();
    for rule in [LeaseRule::WallClock(WallMs(1)), LeaseRule::AnyHolder, LeaseRule::OverOrNot, LeaseRule::SameTerm] {
        let take = Transaction::TakeLease(Box::new(asks(1, LONG, rule)));
        let reply = store.reply(Connection::Election, take);
        assert!(matches!(&reply, Reply::Failed(failure) if failure.kind == FailureKind::Broken), "{reply:?}");
    }
    assert_eq!(store.lease().row.holder, None);
}
