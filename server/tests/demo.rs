//! `orbit demo`: what a newcomer runs first.

mod common;

use common::{orbit, run, wait_for};
use rustix::process::Signal;
use std::io::{BufRead, BufReader};
use std::process::Stdio;

#[test]
fn the_demo_completes_an_order_and_shows_its_history_and_figures() {
    let ended = run(orbit(&["demo", "--exit"]));
    assert_eq!((ended.code, ended.stderr.as_str()), (0, ""), "{}", ended.stdout);
    for step in ["validate", "fraud_check", "reserve", "charge", "ship", "notify"] {
        for event in ["StepScheduled", "StepDispatched", "StepSucceeded"] {
            let count = ended.stdout.lines().filter(|line| line.contains(event) && line.contains(step)).count();
            assert_eq!(count, 1, "{event} of {step}: {}", ended.stdout);
        }
    }
    assert!(ended.stdout.contains("WorkflowCompleted"), "{}", ended.stdout);
    assert!(ended.stdout.contains("21 events, 6 tasks"), "{}", ended.stdout);
    assert!(ended.stdout.contains("appends to the database"), "{}", ended.stdout);
}

#[test]
fn without_exit_the_demo_serves_until_it_is_interrupted_and_leaves_nothing_behind() {
    let mut command = orbit(&["demo"]);
    let folder = common::folder();
    command.env("TMPDIR", folder.path()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the demo starts");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut process = common::Process::adopt(child, folder.path().join("none"));
    let server = lines
        .by_ref()
        .map(|line| line.expect("text"))
        .find_map(|line| line.trim().strip_prefix("export ORBIT_SERVER=").map(str::to_owned))
        .expect("the demo says where its server is");
    let list = run(orbit(&["executions", "list", "--server", &server, "-o", "jsonl"]));
    assert_eq!((list.code, list.stdout.lines().count()), (0, 1), "{list:?}");
    assert!(list.stdout.contains("\"status\":\"completed\""), "{list:?}");
    assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 1);
    process.signal(Signal::INT);
    assert!(process.ended(common::PATIENCE).success());
    wait_for("empty folder", common::PATIENCE, || {
        (std::fs::read_dir(folder.path()).expect("it is there").count() == 0).then_some(())
    });
}
