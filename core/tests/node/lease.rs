//! A server of a standby cluster that is elected by lease: asking, renewing, losing it and giving it back.

use crate::bench::{Bench, code};
use orbit_core::api::request::Request;
use orbit_core::api::response::{Health, Reply};
use orbit_core::cluster::{Election, Mode, OnLostLease, Role, Standby};
use orbit_core::id::{Incarnation, Term};
use orbit_core::node::{Input, LogEvent, RequestId};
use orbit_core::store::append::Fence;
use orbit_core::store::lease::{ForceVerdict, LeaseCampaign, LeaseRule, ReleaseByForce};
use orbit_core::store::outcome::Reply as Outcome;
use orbit_core::store::statement::Holder;
use orbit_core::store::transaction::{Campaign, CampaignVerdict, Transaction, Verdict};
use orbit_core::time::WallMs;
use serde_json::json;
use std::time::Duration;
use uuid::Uuid;

const TTL: Duration = Duration::from_secs(9);
const OTHER: Incarnation = Incarnation(Uuid::from_u128(0xBAD));

fn elected_by(election: Election, on_lost_lease: OnLostLease) -> Bench {
    Bench::with(|config| {
        config.addr = Some("http://n:7233".into());
        config.role = Role::Standby(Standby { election, on_lost_lease, ..Standby::default() });
    })
}

fn leader() -> Bench {
    let mut bench = elected_by(Election::Lease { ttl: TTL }, OnLostLease::StepDown);
    bench.deploy_chain(2);
    bench
}

/// The server `m` asks for the lease.
fn other_asks(bench: &mut Bench, incarnation: Incarnation) -> CampaignVerdict {
    let addr = Some("http://m:7233".into());
    let holder = Holder { node_id: "m".into(), host: "h".into(), pid: 1, addr, since_ms: WallMs(0) };
    let campaign = Campaign::new(Mode::Standby, incarnation, holder);
    let take = LeaseCampaign { campaign, ttl: TTL, rule: LeaseRule::Sound };
    match bench.run(Transaction::TakeLease(Box::new(take))) {
        Outcome::Done(Verdict::Campaign(verdict)) => verdict,
        other => panic!("a campaign's verdict, not {other:?}"),
    }
}

fn other_takes(bench: &mut Bench) -> Fence {
    match other_asks(bench, OTHER) {
        CampaignVerdict::Won { term, .. } => Fence { term, incarnation: OTHER },
        other => panic!("the lease is free, and {other:?}"),
    }
}

/// Takes the lease away from whoever has it.
fn force(bench: &mut Bench) -> Term {
    let force = ReleaseByForce { incarnation: Incarnation(Uuid::from_u128(0xF0)) };
    match bench.run(Transaction::ForceLease(force)) {
        Outcome::Done(Verdict::Force(ForceVerdict::Released { term, .. })) => term,
        other => panic!("somebody held it, and {other:?}"),
    }
}

/// A standby of the server `m`, which has just taken the lease.
fn follower() -> (Bench, Fence) {
    let mut bench = leader();
    force(&mut bench);
    let fence = other_takes(&mut bench);
    bench.pass(Duration::from_millis(1_100));
    bench.logs.clear();
    bench.ran.clear();
    (bench, fence)
}

fn health(bench: &mut Bench) -> Health {
    match bench.ask(Request::Health).reply {
        Reply::Health(health) => health,
        other => panic!("health, not {other:?}"),
    }
}

fn role(bench: &mut Bench) -> (String, u64, String) {
    let health = health(bench);
    let leader = health.leader.map(|leader| leader.node_id.as_str().to_owned()).unwrap_or_default();
    (health.role, health.term.map_or(0, |term| term.0), leader)
}

fn leads(term: u64) -> (String, u64, String) {
    ("leader".into(), term, "n".into())
}

fn lost(bench: &Bench) -> Vec<&str> {
    fn reason(line: &LogEvent) -> Option<&str> {
        match line {
            LogEvent::LeadershipLost { reason, .. } | LogEvent::LeaseLost { reason, .. } => Some(reason),
            _ => None,
        }
    }
    bench.logs.iter().filter_map(reason).collect()
}

fn count(bench: &Bench, name: &str) -> usize {
    bench.ran.iter().filter(|ran| **ran == name).count()
}

#[test]
fn a_server_takes_a_free_lease_and_renews_it_once_before_it_leads() {
    let bench = &mut leader();
    let course: Vec<_> = bench.ran.iter().filter(|ran| !["check", "beat"].contains(*ran)).take(3).collect();
    assert_eq!(course, [&"take_lease", &"renew_lease", &"recover"]);
    assert_eq!(role(bench), leads(1));
    let row = bench.store.lease();
    assert_eq!((row.epoch, bench.store.fence().term), (Term(1), Term(1)));
    assert_eq!(row.holder.as_ref().expect("it is held").node_id.as_str(), "n");
}

#[test]
fn a_leader_renews_every_third_and_the_fence_is_left_alone() {
    let mut bench = leader();
    let fence = bench.store.fence();
    bench.ran.clear();
    bench.pass(TTL * 10);
    assert_eq!(count(&bench, "renew_lease"), 30);
    assert_eq!((bench.store.fence(), count(&bench, "hold"), lost(&bench).len()), (fence, 0, 0));
}

#[test]
fn a_standby_asks_every_third_writes_nothing_but_that_it_lives_and_leads_as_soon_as_the_lease_is_over() {
    let (mut bench, _) = follower();
    let tables = |bench: &Bench| {
        let mut tables = bench.store.dump();
        tables["orbit_nodes"] = json!(null);
        tables
    };
    let before = tables(&bench);
    bench.pass(TTL - Duration::from_millis(1_200));
    assert_eq!(role(&mut bench), ("standby".into(), 3, "m".into()));
    assert!((2..=3).contains(&count(&bench, "take_lease")), "{:?}", bench.ran);
    assert_eq!(tables(&bench), before);
    bench.pass(Duration::from_millis(300));
    assert_eq!(role(&mut bench), leads(4));
}

#[test]
fn a_standby_leads_within_a_check_of_the_leaders_clean_stop() {
    let (mut bench, fence) = follower();
    assert_eq!(bench.run(Transaction::FreeLease(fence)), Outcome::Done(Verdict::Release(true)));
    bench.pass(Duration::from_millis(1_100));
    assert_eq!(role(&mut bench), leads(4));
}

#[test]
fn a_lease_that_is_renewed_all_the_time_is_never_another_s() {
    let mut bench = leader();
    for _ in 0..40 {
        bench.pass(Duration::from_secs(1));
        assert!(matches!(other_asks(&mut bench, OTHER), CampaignVerdict::Leased { left } if left > TTL / 2));
    }
    assert_eq!(role(&mut bench), leads(1));
}

#[test]
fn a_leader_whose_renewals_are_not_answered_serves_until_its_lease_is_over_and_not_longer() {
    let mut bench = leader();
    // The one in three that is renewed last.
    bench.pass(TTL / 3);
    bench.silent = Some("renew_lease");
    bench.pass(TTL - Duration::from_millis(100));
    assert_eq!((role(&mut bench), lost(&bench).len()), (leads(1), 0));
    bench.pass(Duration::from_millis(200));
    assert_eq!(lost(&bench), ["the lease was renewed last 9000 ms ago, and lasts 9000 ms"]);
    assert_eq!(code(&bench.start("Chain", "late", json!({"n": 1}))), "NOT_LEADER");
}

#[test]
fn one_renewal_of_three_that_is_lost_costs_nothing() {
    let mut bench = leader();
    for _ in 0..6 {
        bench.silent = Some("renew_lease");
        bench.pass(TTL / 3);
        bench.silent = None;
        bench.pass(TTL * 2 / 3);
    }
    assert_eq!((role(&mut bench), lost(&bench).len()), (leads(1), 0));
}

#[test]
fn a_renewal_counts_from_its_sending_however_late_its_answer_is() {
    let mut bench = leader();
    bench.hold_all = true;
    bench.pass(TTL / 3);
    bench.pass(Duration::from_millis(2_900));
    // It was sent 2.9 s ago, and is answered now.
    bench.release();
    bench.silent = Some("renew_lease");
    bench.pass(TTL - Duration::from_millis(3_000));
    assert_eq!(lost(&bench).len(), 0);
    bench.pass(Duration::from_millis(200));
    assert_eq!(lost(&bench).len(), 1);
}

#[test]
fn a_leader_that_stood_still_past_its_lease_serves_nothing_when_it_goes_on() {
    let mut bench = leader();
    bench.stand_still(TTL + Duration::from_millis(2));
    other_takes(&mut bench);
    let late = bench.start("Chain", "late", json!({"n": 1}));
    assert_eq!((late.status, code(&late)), (503, "NOT_LEADER"));
    bench.pass(Duration::from_millis(1_100));
    assert_eq!(role(&mut bench), ("standby".into(), 2, "m".into()));
}

#[test]
fn a_leader_whose_lease_was_taken_away_writes_nothing_more_and_finds_out_at_its_next_renewal() {
    let mut bench = leader();
    assert_eq!(force(&mut bench), Term(2));
    assert_eq!(code(&bench.start("Chain", "e", json!({"n": 1}))), "FENCED");
    assert!(bench.store.executions().is_empty());
    // It is free: whoever asks first leads next, under a term after the one that force has raised.
    assert_eq!(role(&mut bench), leads(3));

    let mut idle = leader();
    idle.silent = Some("check");
    force(&mut idle);
    idle.pass(TTL / 3 + Duration::from_millis(10));
    assert_eq!(lost(&idle), ["the lease was not renewed: it has run out, or is another server's"]);
}

#[test]
fn a_take_that_was_in_doubt_is_found_to_be_won_and_counts_from_the_renewal_after_it() {
    let mut bench = Bench::with(|config| {
        let election = Election::Lease { ttl: TTL };
        config.role = Role::Standby(Standby { election, ..Standby::default() });
    });
    bench.hold_all = true;
    bench.store = orbit_sim::store::ModelStore::new(orbit_core::id::ClusterId(Uuid::from_u128(1)));
    bench.restart();
    let take = bench.held.iter().position(|(_, transaction)| transaction.name() == "take_lease");
    let (call, transaction) = bench.held.remove(take.expect("it asks")).expect("just found");
    bench.run(transaction);
    bench.give(Input::Store { call, reply: Outcome::Unknown, origin: None });
    bench.hold_all = false;
    // Half of the lease is over when the answer to the repetition comes.
    bench.stand_still(TTL / 2);
    bench.pass(Duration::from_millis(100));
    assert_eq!(role(&mut bench), leads(1));
    bench.silent = Some("renew_lease");
    bench.pass(TTL - Duration::from_millis(300));
    assert_eq!(lost(&bench).len(), 0, "it was renewed before it led");
}

#[test]
fn a_take_whose_lease_is_over_before_it_is_renewed_is_taken_again() {
    let mut bench = leader();
    force(&mut bench);
    bench.silent = Some("renew_lease");
    bench.pass(Duration::from_secs(2));
    assert_eq!(role(&mut bench).0, "standby", "it does not lead by a lease that it has not renewed");
    bench.stand_still(TTL);
    bench.silent = None;
    bench.pass(Duration::from_secs(2));
    let (role, term, _) = role(&mut bench);
    assert_eq!((role.as_str(), term > 3), ("leader", true));
}

#[test]
fn a_clean_stop_gives_the_lease_back_last() {
    let mut bench = leader();
    bench.hold = true;
    bench.send_start("Chain", "e", json!({"n": 1}));
    bench.give(Input::Stop);
    let held: Vec<_> = bench.held.iter().map(|(_, transaction)| transaction.name()).collect();
    assert_eq!(held, ["append", "leave"]);
    bench.release();
    assert_eq!((bench.exit, bench.ran.last()), (Some(0), Some(&"free_lease")));
    assert_eq!((bench.store.lease().holder.clone(), bench.store.executions().len()), (None, 1));
    other_takes(&mut bench);
}

#[test]
fn a_stop_whose_append_stays_in_doubt_lets_the_lease_run_out() {
    let mut bench = leader();
    bench.hold = true;
    bench.send_start("Chain", "e", json!({"n": 1}));
    bench.give(Input::Stop);
    bench.pass(Duration::from_secs(8));
    assert_eq!(bench.exit, None);
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.exit, Some(0));
    assert!(bench.store.lease().holder.is_some());
    assert!(!bench.held.iter().any(|(_, transaction)| transaction.name() == "free_lease"));
}

#[test]
fn a_stop_between_taking_the_lease_and_leading_gives_it_back() {
    let mut bench = leader();
    force(&mut bench);
    bench.silent = Some("renew_lease");
    bench.pass(Duration::from_millis(3_100));
    assert_eq!(role(&mut bench).0, "standby");
    bench.silent = None;
    bench.give(Input::Stop);
    assert_eq!((bench.exit, bench.store.lease().holder.clone()), (Some(0), None));
}

#[test]
fn a_stop_after_the_renewal_of_a_lease_that_was_just_taken_has_failed_gives_it_back() {
    let mut bench = leader();
    force(&mut bench);
    bench.failing.insert("renew_lease", 1_000);
    bench.pass(Duration::from_millis(3_100));
    assert_eq!(role(&mut bench).0, "standby");
    assert!(bench.store.lease().holder.is_some(), "it was taken");
    bench.give(Input::Stop);
    assert_eq!((bench.exit, bench.store.lease().holder.clone()), (Some(0), None));
}

#[test]
fn a_stop_while_the_lease_is_asked_for_gives_it_back() {
    let mut bench = leader();
    bench.hold_all = true;
    bench.pass(TTL + Duration::from_millis(200));
    assert!(bench.held.iter().any(|(_, transaction)| transaction.name() == "take_lease"), "{:?}", bench.held);
    bench.give(Input::Stop);
    assert_eq!(bench.exit, None, "what it has won may be on its way");
    bench.release();
    assert_eq!((bench.exit, bench.store.holder(), bench.store.lease().holder.clone()), (Some(0), None, None));
}

#[test]
fn a_server_that_is_to_exit_says_lease_lost_and_ends_with_status_1() {
    let mut bench = elected_by(Election::Lease { ttl: TTL }, OnLostLease::Exit);
    force(&mut bench);
    bench.pass(TTL / 3 + Duration::from_millis(10));
    assert_eq!(bench.exit, Some(1));
    assert!(bench.logs.iter().any(|line| matches!(line, LogEvent::LeaseLost { .. })), "{:?}", bench.logs);
}

#[test]
fn a_recovery_that_takes_longer_than_the_lease_does_not_cost_the_lead() {
    let mut bench = leader();
    bench.start("Chain", "e", json!({"n": 1}));
    force(&mut bench);
    bench.silent = Some("due");
    bench.restart();
    bench.pass(TTL * 2);
    assert_eq!((role(&mut bench), lost(&bench).len()), (leads(3), 0));
}

fn step_down(bench: &mut Bench) -> RequestId {
    bench.send(Request::StepDown { term: None })
}

fn next_leader(bench: &mut Bench, asked: RequestId) -> (Term, Option<String>) {
    match bench.answer(asked).reply {
        Reply::SteppedDown(down) => (down.term, down.leader.map(|leader| leader.node_id.as_str().to_owned())),
        other => panic!("it has stepped down, not {other:?}"),
    }
}

#[test]
fn a_leader_that_hands_over_ends_what_is_in_flight_gives_the_lease_back_and_says_who_took_it() {
    let mut bench = leader();
    bench.hold = true;
    let start = bench.send_start("Chain", "e", json!({"n": 1}));
    let asked = step_down(&mut bench);
    assert!(bench.store.lease().holder.is_some(), "an append is under way");
    bench.release();
    assert_eq!(bench.answer(start).status, 201);
    assert_eq!((bench.store.lease().holder.clone(), bench.store.executions().len()), (None, 1));
    bench.pass(Duration::from_millis(900));
    assert_eq!(
        (bench.store.lease().holder.clone(), role(&mut bench).0.as_str()),
        (None, "standby"),
        "it lets others go before"
    );
    assert!(!bench.responses.contains_key(&asked));
    other_takes(&mut bench);
    bench.pass(Duration::from_millis(200));
    assert_eq!(next_leader(&mut bench, asked), (Term(1), Some("m".into())));
    assert_eq!((role(&mut bench), lost(&bench).len(), bench.exit), (("standby".into(), 2, "m".into()), 0, None));
    // From then on it is a standby like any other.
    bench.pass(TTL + Duration::from_millis(300));
    assert_eq!(role(&mut bench), leads(3));
}

#[test]
fn a_lease_that_was_handed_over_and_that_nobody_takes_is_taken_back() {
    let mut bench = leader();
    let asked = step_down(&mut bench);
    bench.pass(Duration::from_millis(2_900));
    assert_eq!((bench.store.lease().holder.clone(), bench.responses.contains_key(&asked)), (None, false));
    bench.pass(Duration::from_millis(200));
    assert_eq!(next_leader(&mut bench, asked), (Term(1), None));
    assert_eq!((role(&mut bench), lost(&bench).len()), (leads(2), 0));
    assert_eq!(bench.start("Chain", "e", json!({"n": 1})).status, 201);
}

#[test]
fn a_hand_over_whose_append_stays_in_doubt_ends_the_lead_and_not_the_server_and_the_lease_runs_out() {
    let mut bench = leader();
    bench.silent = Some("append");
    bench.send_start("Chain", "e", json!({"n": 1}));
    let asked = step_down(&mut bench);
    bench.pass(Duration::from_secs(11));
    assert_eq!((code(&bench.answer(asked)), bench.exit), ("FENCED", None));
    assert_eq!(lost(&bench), ["the lead was to be handed over, and a write was in doubt for too long"]);
    assert!(!bench.ran.contains(&"free_lease"));
    bench.silent = None;
    bench.pass(TTL * 2);
    assert_eq!((role(&mut bench), bench.exit), (leads(2), None));
}

#[test]
fn a_database_of_the_other_election_is_refused_with_what_would_be_right() {
    for (first, second, named) in [
        (Election::Lock, Election::Lease { ttl: TTL }, "lock"),
        (Election::Lease { ttl: TTL }, Election::Lock, "lease"),
    ] {
        let mut bench = elected_by(first, OnLostLease::StepDown);
        bench.config.role = Role::Standby(Standby { election: second, ..Standby::default() });
        bench.restart();
        assert_eq!(bench.exit, Some(1));
        let said = bench.logs.iter().any(
            |line| matches!(line, LogEvent::Unservable { message } if message.contains(&format!("--election {named}"))),
        );
        assert!(said, "{:?}", bench.logs);
    }
}
