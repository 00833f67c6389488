//! `orbit bench` runs its workload and says what it saw.

mod common;

use common::orbit;

#[test]
fn a_small_bench_ends_with_figures_that_fit_the_workload() {
    let output =
        orbit(&["bench", "--orders", "20", "--clients", "4", "--workers", "1", "--alone", "-o", "json"]).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figure = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("no {name} in {figures}"));
    assert_eq!(figures["orders"], 20);
    assert_eq!(
        (&figures["journal_mode"], &figures["synchronous"]),
        (&"wal".into(), &"FULL".into()),
        "durable, read back"
    );
    // Created and started, six times scheduled, dispatched and succeeded, and completed.
    assert_eq!(figure("events_per_order"), 21.0);
    assert!(figure("order_p50_ms") > 0.0 && figure("order_p99_ms") >= figure("order_p50_ms"), "{figures}");
    // Four orders of warm-up are not counted: what is written again is these orders, whole.
    let groups = figure("alone_groups_per_transaction") * figure("alone_transactions_per_order");
    assert!((1.0..=21.0).contains(&groups) && figure("share_of_alone") > 0.0, "{figures}");
    assert!(figure("orders_per_second") > 0.0 && figure("groups_per_append") >= 1.0, "{figures}");
}

#[test]
fn a_bench_beside_postgresql_alone_says_that_it_needs_a_database_of_its_own() {
    let same = ["bench", "--db", "postgres://me@127.0.0.1:1/a", "--alone=postgres://me@127.0.0.1:1/a"];
    let missing = ["bench", "--db", "postgres://me@127.0.0.1:1/a", "--alone"];
    for (arguments, says) in [(&same[..], "another database than --db"), (&missing[..], "needs a second database")] {
        let output = orbit(arguments).output().expect("it runs");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(says), "{error}");
    }
}

#[test]
fn a_bench_without_orders_is_refused() {
    let output = orbit(&["bench", "--orders", "0"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
