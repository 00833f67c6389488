//! What is known of workers: their sessions, when each was heard from last, and how long those that are gone are kept.

use crate::bench::Bench;
use orbit_core::api::request::Request;
use orbit_core::api::response::{Reply, WorkerView};
use orbit_core::execution::waiting::{Keeper, Reason};
use orbit_core::id::SessionId;
use serde_json::json;
use std::time::Duration;

/// The database's clock when the bench's begins.
const EPOCH_MS: i64 = 1_700_000_000_000;

fn workers(bench: &mut Bench) -> Vec<WorkerView> {
    match bench.ask(Request::ListWorkers).reply {
        Reply::Workers(found) => found.workers,
        other => panic!("workers, not {other:?}"),
    }
}

/// When each worker was seen last, in seconds since the bench began.
fn seen(bench: &mut Bench) -> Vec<(String, i64)> {
    let second = |worker: WorkerView| (worker.worker_id.to_string(), (worker.last_seen_ms.0 - EPOCH_MS) / 1000);
    workers(bench).into_iter().map(second).collect()
}

/// Who has the only step of `e`, where a worker has it; the times in seconds since the bench began.
fn keeper(bench: &mut Bench) -> (Option<SessionId>, Option<u64>, Option<i64>, Option<i64>) {
    let Reply::Execution(view) = bench.ask(Request::GetExecution("e".into())).reply else { panic!("an execution") };
    let Reason::Running { keeper, .. } = &view.waiting[0].reason else { panic!("it runs: {:?}", view.waiting) };
    let Keeper { session_id, silent_ms, offered_again_ms, registered_again_ms } = keeper.clone();
    let second = |at: orbit_core::time::ClusterMs| (at.0 - EPOCH_MS + 500) / 1000;
    (session_id, silent_ms.map(|ms| ms / 1000), offered_again_ms.map(second), registered_again_ms.map(second))
}

fn heartbeat(bench: &mut Bench, session: SessionId) {
    assert_eq!(bench.ask(Request::Heartbeat { session, holding: None }).status, 200);
}

#[test]
fn a_task_of_a_worker_that_was_restarted_under_its_id_says_which_session_has_it_and_until_when() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let killed = bench.register("w");
    bench.take(killed);
    bench.pass(Duration::from_secs(2));
    assert_eq!(keeper(&mut bench), (Some(killed), Some(2), Some(30), None));
    // It is killed, and started again under its id; that it was is seen at once, not only when its session is lost.
    bench.pass(Duration::from_secs(3));
    let again = bench.register("w");
    bench.pass(Duration::from_secs(7));
    heartbeat(&mut bench, again);
    assert_eq!(keeper(&mut bench), (Some(killed), Some(12), Some(30), Some(5)));
    let listed = &workers(&mut bench)[0];
    let sessions: Vec<_> = listed
        .open_sessions
        .iter()
        .map(|one| (one.session_id, (one.registered_ms.0 - EPOCH_MS) / 1000, one.holding))
        .collect();
    assert_eq!(sessions, [(killed, 0, 1), (again, 5, 0)]);
    assert!(listed.open_sessions[0].last_seen_ms < listed.open_sessions[1].last_seen_ms);
    assert_eq!((listed.sessions, listed.holding), (2, 1));
    // What was said is what happens.
    bench.pass(Duration::from_secs(18));
    assert_eq!(bench.take(again).execution_id, "e".into());
    assert_eq!(keeper(&mut bench).0, Some(again));
}

#[test]
fn after_a_restart_of_the_server_a_task_that_no_worker_named_says_when_it_is_offered_again() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    let token = bench.take(session).token;
    bench.pass(Duration::from_secs(5));
    bench.restart();
    assert_eq!(keeper(&mut bench), (None, None, Some(35), None));
    bench.pass(Duration::from_secs(1));
    let again = bench.register("w");
    assert_eq!(keeper(&mut bench), (None, None, Some(35), Some(6)));
    bench.ask(Request::Heartbeat { session: again, holding: Some(vec![token]) });
    assert_eq!(keeper(&mut bench), (Some(again), Some(0), Some(36), None));
}

#[test]
fn a_worker_that_left_or_was_lost_was_seen_when_it_was_and_not_when_it_registered() {
    let mut bench = Bench::new();
    let (left, _lost) = (bench.register("left"), bench.register("lost"));
    bench.pass(Duration::from_secs(10));
    let lost = bench.register("lost");
    bench.pass(Duration::from_secs(10));
    heartbeat(&mut bench, lost);
    bench.ask(Request::Unregister { session: left });
    bench.pass(Duration::from_secs(10));
    assert_eq!(seen(&mut bench), [("left".into(), 20), ("lost".into(), 20)]);
    bench.pass(Duration::from_secs(30));
    let listed = workers(&mut bench);
    assert!(listed.iter().all(|worker| worker.sessions == 0 && worker.open_sessions.is_empty()), "{listed:?}");
    assert_eq!(seen(&mut bench), [("left".into(), 20), ("lost".into(), 20)]);
}

#[test]
fn a_worker_that_is_there_when_the_server_stops_or_is_killed_was_seen_near_that_time() {
    let mut bench = Bench::new();
    let session = bench.register("w");
    let live = |bench: &mut Bench, seconds| {
        for _ in 0..seconds / 10 {
            bench.pass(Duration::from_secs(10));
            heartbeat(bench, session);
        }
    };
    live(&mut bench, 100);
    bench.restart();
    assert_eq!(seen(&mut bench), [("w".into(), 50)], "killed: it is written once a minute");
    let session = bench.register("w");
    bench.pass(Duration::from_secs(25));
    heartbeat(&mut bench, session);
    bench.give(orbit_core::node::Input::Stop);
    assert_eq!(bench.exit, Some(0));
    bench.restart();
    assert_eq!(seen(&mut bench), [("w".into(), 125)], "stopped: it is written then");
}

#[test]
fn workers_that_are_gone_for_a_week_or_are_too_many_are_forgotten_and_those_that_are_there_are_not() {
    let mut bench = Bench::with(|config| {
        config.session_timeout = Duration::from_secs(30 * 24 * 3600);
        config.check_interval = Duration::from_secs(3600);
    });
    let there = bench.register("there");
    let gone = bench.register("gone");
    bench.ask(Request::Unregister { session: gone });
    let day = Duration::from_secs(24 * 3600);
    bench.pass(7 * day - Duration::from_secs(3600));
    assert_eq!(seen(&mut bench).len(), 2);
    heartbeat(&mut bench, there);
    bench.pass(Duration::from_secs(7200));
    let names = |bench: &mut Bench| seen(bench).into_iter().map(|(name, _)| name).collect::<Vec<_>>();
    assert_eq!(names(&mut bench), ["there"]);
    // Of a thousand and three that come and go at once, those that went first are forgotten.
    for n in 0..1_003 {
        let session = bench.register(&format!("batch-{n:04}"));
        bench.pass(Duration::from_millis(2));
        bench.ask(Request::Unregister { session });
    }
    bench.pass(Duration::from_secs(60));
    let names = names(&mut bench);
    assert_eq!((names.len(), names[0].as_str(), names[1_000].as_str()), (1_001, "batch-0003", "there"));
}
