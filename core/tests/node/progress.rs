//! A leader whose appends hang: it gives the lead up where the database takes other writes, and only there.

use crate::bench::{Bench, code};
use orbit_core::api::request::Request;
use orbit_core::cluster::{OnLostLease, Role, Standby};
use orbit_core::node::{Input, LogEvent};
use serde_json::json;
use std::time::Duration;

fn leader(on_lost_lease: OnLostLease) -> Bench {
    let mut bench = Bench::with(|config| config.role = Role::Standby(Standby { on_lost_lease, ..Standby::default() }));
    bench.deploy_chain(1);
    bench.pass(Duration::from_secs(2));
    bench
}

fn lost(bench: &Bench) -> Vec<String> {
    let reason = |line: &LogEvent| match line {
        LogEvent::LeadershipLost { reason, .. } | LogEvent::LeaseLost { reason, .. } => Some(reason.clone()),
        _ => None,
    };
    bench.logs.iter().filter_map(reason).collect()
}

#[test]
fn one_whose_append_hangs_while_the_database_takes_other_writes_lets_others_lead() {
    let mut bench = leader(OnLostLease::StepDown);
    bench.silent = Some("append");
    let start = bench.send_start("Chain", "e", json!({"n": 1}));
    bench.pass(Duration::from_secs(9));
    assert!(lost(&bench).is_empty(), "it may only be slow");
    assert_eq!(bench.ask(Request::Ready).status, 503, "it says that it cannot write");
    bench.ran.clear();
    bench.pass(Duration::from_secs(4));
    assert!(lost(&bench)[0].starts_with("no append has gone through for 1"), "{:?}", lost(&bench));
    assert_eq!(code(&bench.answer(start)), "OUTCOME_UNKNOWN");
    assert!(bench.ran.contains(&"unlock"), "the lock is free for others: {:?}", bench.ran);
    assert!(!bench.ran.contains(&"campaign"), "they go before: {:?}", bench.ran);
    assert!(!bench.written_off.is_empty(), "what hangs is given up with its connection");
    bench.silent = None;
    bench.pass(Duration::from_secs(4));
    assert_eq!(bench.ask(Request::Ready).status, 200, "nobody else was there");
    assert_eq!(bench.start("Chain", "e", json!({"n": 1})).status, 201);
}

#[test]
fn one_whose_appends_fail_one_after_the_other_lets_others_lead_though_nothing_waits_between_them() {
    let mut bench = leader(OnLostLease::StepDown);
    bench.failing.insert("append", u32::MAX);
    for second in 1..=15 {
        let started = bench.start("Chain", "e", json!({"n": 1}));
        assert!(started.status == 503, "second {second}: {started:?}");
        bench.pass(Duration::from_secs(1));
        assert!(second > 9 || lost(&bench).is_empty(), "it may be over soon: {:?}", lost(&bench));
    }
    assert!(lost(&bench)[0].starts_with("no append has gone through for 1"), "{:?}", lost(&bench));
    assert_eq!(lost(&bench).len(), 1, "and it begins anew with its next lead");
    bench.failing.clear();
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.start("Chain", "e", json!({"n": 1})).status, 201);
}

#[test]
fn one_that_is_to_exit_ends() {
    let mut bench = leader(OnLostLease::Exit);
    bench.silent = Some("append");
    bench.send_start("Chain", "e", json!({"n": 1}));
    bench.pass(Duration::from_secs(14));
    assert_eq!((lost(&bench).len(), bench.exit), (1, Some(1)));
}

#[test]
fn one_whose_database_takes_no_write_at_all_keeps_its_place_and_is_not_ready() {
    let mut bench = leader(OnLostLease::StepDown);
    bench.hold = true;
    bench.send_start("Chain", "e", json!({"n": 1}));
    bench.pass(Duration::from_secs(25));
    assert!(lost(&bench).is_empty(), "nobody else could do better: {:?}", lost(&bench));
    assert_eq!(bench.ask(Request::Ready).status, 503);
    // The database takes writes again, and answers what it was sent, the beat first.
    while let Some(at) = bench.held.iter().position(|(_, transaction)| transaction.name() == "beat") {
        let (call, beat) = bench.held.remove(at).expect("found just now");
        let reply = bench.run(beat);
        bench.give(Input::Store { call, reply, origin: None });
    }
    bench.release();
    bench.pass(Duration::from_secs(8));
    assert!(lost(&bench).is_empty(), "{:?}", lost(&bench));
    assert_eq!((bench.status("e").as_str(), bench.ask(Request::Ready).status), ("running", 200));
}

#[test]
fn one_that_has_nothing_to_append_leads_on() {
    let mut bench = leader(OnLostLease::StepDown);
    bench.fail = Some("append");
    assert_eq!(code(&bench.start("Chain", "e", json!({"n": 1}))), "STORAGE_ERROR");
    bench.pass(Duration::from_secs(60));
    assert!(lost(&bench).is_empty(), "{:?}", lost(&bench));
    bench.give(Input::Wake);
    assert_eq!(bench.start("Chain", "f", json!({"n": 1})).status, 201);
}
