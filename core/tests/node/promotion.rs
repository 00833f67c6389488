//! Another timeline of the database: a replica was promoted, and what is in memory may not be there any more.

use crate::bench::{Bench, code};
use orbit_core::api::request::Request;
use orbit_core::cluster::{Role, Standby};
use orbit_core::node::{Input, LogEvent};
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome::{self, Failure, FailureKind};
use serde_json::json;
use std::time::Duration;

fn on(timeline: u32) -> Option<Origin> {
    Some(Origin { system: 7, timeline })
}

/// A server whose answers came from timeline 1 so far.
fn on_the_first(change: impl FnOnce(&mut orbit_core::node::NodeConfig)) -> Bench {
    let mut bench = Bench::with(change);
    bench.origin = on(1);
    bench.deploy_chain(2);
    bench.pass(Duration::from_secs(2));
    bench
}

fn promoted(bench: &Bench) -> usize {
    bench.logs.iter().filter(|line| matches!(line, LogEvent::Promoted { from: 1, to: 2 })).count()
}

#[test]
fn every_call_names_the_database_that_the_memory_is_of() {
    let mut bench = on_the_first(|_| {});
    assert_eq!(bench.start("Chain", "e", json!({"n": 1})).status, 201);
    assert_eq!(bench.named.last(), Some(&on(1)), "{:?}", bench.named);
    bench.origin = on(2);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.named.last(), Some(&on(2)));
}

#[test]
fn a_server_alone_forgets_everything_at_a_promotion_and_recovers_in_its_process() {
    let mut bench = on_the_first(|_| {});
    let before = bench.store.fence();
    bench.origin = on(2);
    bench.pass(Duration::from_secs(2));
    assert_eq!((promoted(&bench), bench.exit), (1, None), "{:?}", bench.logs);
    let after = bench.store.fence();
    assert!(after.term > before.term && after.incarnation != before.incarnation, "{before:?} {after:?}");
    assert_eq!(bench.start("Chain", "e", json!({"n": 1})).status, 201);
}

#[test]
fn a_leader_does_the_same_and_tells_those_who_wait() {
    let mut bench = on_the_first(|config| config.role = Role::Standby(Standby::default()));
    bench.hold = true;
    let start = bench.send_start("Chain", "e", json!({"n": 1}));
    let (call, _) = bench.held.pop_back().expect("it is being written");
    let refused = Failure { kind: FailureKind::Reconnect, message: "the address leads elsewhere".into() };
    bench.give(Input::Store { call, reply: outcome::Reply::Failed(refused), origin: on(2) });
    let answer = bench.answer(start);
    assert_eq!(code(&answer), "OUTCOME_UNKNOWN", "{answer:?}");
    assert!(bench.logs.iter().any(|line| matches!(line, LogEvent::LeadershipLost { .. })), "{:?}", bench.logs);
    assert_eq!(promoted(&bench), 1);
}

/// Once with an append under way, and once with nothing but the release.
#[test]
fn a_promotion_ends_a_lead_that_is_being_handed_over_and_not_the_server() {
    for writes in [true, false] {
        let mut bench = on_the_first(|config| config.role = Role::Standby(Standby::default()));
        bench.hold = true;
        if writes {
            bench.send_start("Chain", "e", json!({"n": 1}));
        }
        let asked = bench.send(Request::StepDown { term: None });
        let (call, _) = bench.held.pop_back().expect("it writes, or releases");
        let refused = Failure { kind: FailureKind::Reconnect, message: "the address leads elsewhere".into() };
        bench.give(Input::Store { call, reply: outcome::Reply::Failed(refused), origin: on(2) });
        assert_eq!((code(&bench.answer(asked)), bench.exit), ("FENCED", None));
        let lost = bench.logs.iter().filter(|line| matches!(line, LogEvent::LeadershipLost { .. })).count();
        assert_eq!((lost, promoted(&bench)), (1, 1), "{:?}", bench.logs);
    }
}

#[test]
fn what_the_primary_of_before_still_says_is_not_believed() {
    let mut bench = on_the_first(|_| {});
    bench.origin = on(2);
    bench.pass(Duration::from_secs(2));
    bench.hold_all = true;
    let read = bench.send(Request::GetExecution("nobody".into()));
    let (call, transaction) = bench.held.pop_back().expect("it reads");
    let reply = bench.run(transaction);
    bench.give(Input::Store { call, reply, origin: on(1) });
    assert!(bench.logs.iter().any(|line| matches!(line, LogEvent::LedAstray { .. })), "{:?}", bench.logs);
    assert_eq!(promoted(&bench), 1, "nothing was promoted by that");
    bench.hold_all = false;
    bench.release();
    bench.pass(Duration::from_secs(1));
    assert_eq!(code(&bench.answer(read)), "UNKNOWN_EXECUTION");
}

#[test]
fn an_answer_from_another_system_is_not_believed_either() {
    let mut bench = on_the_first(|_| {});
    let fence = bench.store.fence();
    bench.origin = Some(Origin { system: 8, timeline: 9 });
    bench.pass(Duration::from_secs(2));
    assert_eq!((promoted(&bench), bench.store.fence()), (0, fence));
    assert_eq!(bench.logs.iter().filter(|line| matches!(line, LogEvent::LedAstray { .. })).count(), 1);
}
