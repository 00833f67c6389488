//! The election lock of a server alone, and what a database that does not answer is to it.

use crate::bench::Bench;
use orbit_core::api::request::Request;
use orbit_core::api::response::Reply;
use orbit_core::node::LogEvent;
use orbit_core::store::statement::LockState;
use serde_json::json;
use std::time::Duration;

fn refusals(bench: &Bench) -> Vec<&str> {
    bench
        .logs
        .iter()
        .filter_map(|l| if let LogEvent::Unservable { message } = l { Some(&**message) } else { None })
        .collect()
}

fn ready(bench: &mut Bench) -> (u16, String) {
    let response = bench.ask(Request::Ready);
    let reason = match &response.reply {
        Reply::Ready(ready) => ready.reason.clone().unwrap_or_default(),
        other => panic!("readiness, not {other:?}"),
    };
    (response.status, reason)
}

#[test]
fn a_second_start_waits_a_moment_for_the_lock_and_is_refused_with_the_holders_name() {
    let mut bench = Bench::with(|config| {
        config.host = "ada".into();
        config.pid = 42;
        config.addr = Some("http://127.0.0.1:7233".into());
    });
    bench.store.set_lock(LockState::Others);
    bench.restart();
    bench.pass(Duration::from_millis(2_900));
    assert_eq!((bench.exit, bench.store.fence().term.0), (None, 1), "it waits, and moves nothing");
    let (status, reason) = ready(&mut bench);
    assert_eq!((status, reason.as_str()), (503, "another server holds the election lock"));
    bench.pass(Duration::from_millis(200));
    assert_eq!((bench.exit, bench.store.fence().term.0), (Some(1), 1));
    let refusals = refusals(&bench);
    assert_eq!(refusals.len(), 1);
    for part in ["`n`", "`ada`", "process 42", "http://127.0.0.1:7233", "stop that one first"] {
        assert!(refusals[0].contains(part), "{part}: {}", refusals[0]);
    }
}

#[test]
fn a_start_after_a_kill_serves_as_soon_as_the_lock_is_free() {
    let mut bench = Bench::new();
    bench.store.set_lock(LockState::Others);
    bench.restart();
    bench.pass(Duration::from_millis(500));
    bench.store.set_lock(LockState::Mine);
    bench.pass(Duration::from_millis(100));
    assert_eq!((ready(&mut bench).0, bench.store.fence().term.0), (200, 2));
}

#[test]
fn a_pooler_in_transaction_mode_is_refused_at_the_start_and_later() {
    let mut bench = Bench::new();
    bench.store.set_lock(LockState::Pooled);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.exit, Some(1), "a pooler that shows itself later");
    bench.restart();
    assert_eq!((bench.exit, bench.store.fence().term.0), (Some(1), 1), "no term is raised through one");
    assert!(refusals(&bench).iter().all(|message| message.contains("session mode")), "{:?}", refusals(&bench));
}

#[test]
fn a_server_whose_lock_is_anothers_is_not_ready_goes_on_and_takes_it_back() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.store.set_lock(LockState::Others);
    bench.pass(Duration::from_secs(4));
    assert_eq!(ready(&mut bench), (503, "another server holds the election lock".into()));
    let warned = bench.logs.iter().filter(|l| matches!(l, LogEvent::ElectionLockLost)).count();
    assert_eq!(warned, 1, "said once");
    // What it may write, the fence says, and that is its own.
    assert_eq!(bench.start("Chain", "e", json!({"n": 1})).status, 201);
    bench.store.set_lock(LockState::Mine);
    bench.pass(Duration::from_secs(2));
    assert_eq!(ready(&mut bench).0, 200);
}

#[test]
fn a_server_whose_database_stands_still_gives_connections_up_and_is_not_ready_until_it_answers() {
    let mut bench = Bench::new();
    bench.silent = Some("check");
    bench.pass(Duration::from_millis(3_500));
    assert_eq!(bench.written_off.len(), 0, "its deadline is not over");
    bench.pass(Duration::from_millis(1_000));
    assert_eq!(bench.written_off.len(), 1, "one at a time");
    assert_eq!(ready(&mut bench), (503, "the database does not answer".into()));
    bench.silent = None;
    bench.pass(Duration::from_secs(5));
    assert_eq!(ready(&mut bench).0, 200);
    assert_eq!(bench.exit, None);
}

#[test]
fn a_database_that_refuses_looks_at_the_fence_makes_the_server_unready_at_once() {
    let mut bench = Bench::new();
    bench.failing.insert("check", 100);
    bench.pass(Duration::from_millis(1_100));
    assert_eq!(ready(&mut bench).0, 503);
    bench.failing.clear();
    bench.pass(Duration::from_millis(1_100));
    assert_eq!(ready(&mut bench).0, 200);
}
