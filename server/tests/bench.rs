//! `orbit bench` runs its workload and says what it saw.

mod common;

use common::orbit;

#[test]
fn a_small_bench_ends_with_figures_that_fit_the_workload() {
    let output = orbit(&["bench", "--orders", "20", "--clients", "4", "--workers", "1", "-o", "json"]).output();
    let output = output.expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let figures: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let figure = |name: &str| figures[name].as_f64().unwrap_or_else(|| panic!("no {name} in {figures}"));
    assert_eq!(figures["orders"], 20);
    assert_eq!((&figures["journal_mode"], &figures["synchronous"]), (&"wal".into(), &2.into()), "durable, read back");
    // Created and started, six times scheduled, dispatched and succeeded, and completed.
    assert_eq!(figure("events_per_order"), 21.0);
    assert!(figure("order_p50_ms") > 0.0 && figure("order_p99_ms") >= figure("order_p50_ms"), "{figures}");
    assert!(figure("orders_per_second") > 0.0 && figure("groups_per_append") >= 1.0, "{figures}");
}

#[test]
fn a_bench_without_orders_is_refused() {
    let output = orbit(&["bench", "--orders", "0"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
}
