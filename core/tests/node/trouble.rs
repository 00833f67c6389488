//! What a database that fails for a while may cost, and what not.

use crate::bench::Bench;
use orbit_core::api::request::Request;
use orbit_core::node::LogEvent;
use orbit_core::store::outcome::FailureKind;
use serde_json::json;
use std::time::Duration;

#[test]
fn a_recovery_whose_reading_fails_reads_again_and_then_serves() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    bench.failing.insert("load", 2);
    bench.restart();
    assert_eq!(bench.ask(Request::Ready).status, 503);
    bench.pass(Duration::from_secs(5));
    assert_eq!(bench.ask(Request::Ready).status, 200);
    let session = bench.register("w");
    assert_eq!(bench.take(session).execution_id, "e".into());
}

#[test]
fn a_recovery_that_finds_the_database_damaged_ends_and_says_so() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    bench.failing.insert("load", 1);
    bench.failing_as = FailureKind::Broken;
    bench.restart();
    assert_eq!(bench.exit, Some(1));
    assert!(bench.logs.iter().any(|line| matches!(line, LogEvent::Unservable { .. })));
}
