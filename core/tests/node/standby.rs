//! A server of a standby cluster: waiting in line, reading for others, leading, stepping down.

use crate::bench::{Bench, code};
use crate::life::take_over;
use orbit_core::api::Response;
use orbit_core::api::request::{ListExecutions, Request};
use orbit_core::api::response::{Health, Reply};
use orbit_core::cluster::{OnLostLease, Role, Standby};
use orbit_core::execution::event::Labels;
use orbit_core::node::{Input, LogEvent};
use orbit_core::store::statement::LockState;
use orbit_core::store::transaction::Transaction;
use serde_json::json;
use std::time::Duration;

fn cluster(on_lost_lease: OnLostLease) -> Bench {
    Bench::with(|config| {
        config.addr = Some("http://n:7233".into());
        config.role = Role::Standby(Standby { on_lost_lease, ..Standby::default() });
    })
}

fn leader() -> Bench {
    let mut bench = cluster(OnLostLease::StepDown);
    bench.deploy_chain(2);
    bench
}

/// A standby of the server `m`, which leads and has taken the term of this one.
fn follower() -> Bench {
    let mut bench = leader();
    bench.start("Chain", "e", json!({"n": 1}));
    take_over(&mut bench);
    bench.store.set_lock(LockState::Others);
    bench.pass(Duration::from_millis(2_100));
    bench.logs.clear();
    bench
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

fn lost(bench: &Bench) -> Vec<&str> {
    bench
        .logs
        .iter()
        .filter_map(|line| if let LogEvent::LeadershipLost { reason, .. } = line { Some(&**reason) } else { None })
        .collect()
}

fn starts(bench: &mut Bench, id: &str) -> Response {
    bench.start("Chain", id, json!({"n": 1}))
}

#[test]
fn a_server_that_wins_leads_and_says_so() {
    let mut bench = leader();
    assert_eq!(role(&mut bench), ("leader".into(), 1, "n".into()));
    assert_eq!(starts(&mut bench, "e").status, 201);
    let told: Vec<_> = bench.logs.iter().filter(|line| line.target() == "orbit_runtime::cluster").collect();
    assert!(
        matches!(told[..], [LogEvent::JoinedCluster { .. }, LogEvent::Elected { .. }, LogEvent::Leading { .. }]),
        "{told:?}"
    );
}

#[test]
fn a_standby_answers_what_only_reads_from_the_database_and_names_the_leader_for_the_rest() {
    let mut bench = follower();
    assert_eq!(role(&mut bench), ("standby".into(), 2, "m".into()));
    let all =
        ListExecutions { status: None, workflow: None, labels: Labels::new(), since: None, limit: 5, cursor: None };
    for request in [
        Request::GetExecution("e".into()),
        Request::ListExecutions(all),
        Request::ListWorkflows,
        Request::GetWorkflow { name: "Chain".into(), version: None },
        Request::ListWorkers,
    ] {
        assert_eq!(bench.ask(request.clone()).status, 200, "{request:?}");
    }
    assert_eq!(bench.history("e")[0], "WorkflowCreated");
    let query = bench.ask(Request::Query { execution: "e".into(), name: "progress".into() });
    assert_eq!(code(&query), "UNKNOWN_QUERY", "the definition was read");
    for request in [
        Request::Cancel { execution: "e".into(), reason: None },
        Request::deploy(json!({})),
        Bench::register_request("w"),
        Request::Heartbeat { session: orbit_core::id::SessionId(uuid::Uuid::nil()), holding: None },
    ] {
        let response = bench.ask(request);
        assert_eq!((response.status, code(&response), response.retry_after), (503, "NOT_LEADER", Some(1)));
        let Reply::Error(error) = response.reply else { unreachable!("it has a code") };
        assert_eq!(error.message, "this server is a standby; the leader is `m` at http://m:7233");
        assert_eq!(error.details["leader_addr"], "http://m:7233");
        assert_eq!(error.details["leader_node"], "m");
    }
    assert_eq!((bench.ask(Request::Ready).status, bench.ask(Request::Readyz).status), (503, 200));
    assert_eq!(bench.ask(Request::Leaderz).status, 503);
}

#[test]
fn a_wait_on_a_standby_looks_again_each_second_until_the_end() {
    let mut bench = follower();
    let wait = bench.send(Request::Wait { execution: "e".into(), timeout: Duration::from_secs(30) });
    bench.pass(Duration::from_secs(3));
    assert!(!bench.responses.contains_key(&wait));
    // The leader ends it.
    let mut leader = leader();
    leader.store = bench.store.clone();
    leader.store.set_lock(LockState::Mine);
    leader.restart();
    assert_eq!(leader.ask(Request::Terminate { execution: "e".into(), reason: None }).status, 200);
    bench.store = leader.store.clone();
    bench.store.set_lock(LockState::Others);
    bench.pass(Duration::from_millis(1_100));
    let Reply::Execution(view) = bench.answer(wait).reply else { panic!("the execution") };
    assert_eq!(view.item.status.as_str(), "terminated");
}

#[test]
fn one_who_waits_in_line_leads_as_soon_as_it_has_the_lock() {
    let mut bench = follower();
    bench.store.set_lock(LockState::Mine);
    bench.release();
    assert_eq!(role(&mut bench), ("leader".into(), 3, "n".into()));
    assert_eq!(bench.status("e"), "running");
    assert_eq!(starts(&mut bench, "e2").status, 201);
}

#[test]
fn a_leader_whose_lock_is_anothers_steps_down_at_once_and_forgets_what_it_knew() {
    let mut bench = leader();
    let session = bench.register("w");
    bench.store.set_lock(LockState::Others);
    bench.pass(Duration::from_millis(1_100));
    assert_eq!(lost(&bench), ["another session holds the election lock"]);
    assert_eq!((role(&mut bench).0, bench.exit), ("standby".into(), None));
    bench.store.set_lock(LockState::Mine);
    bench.release();
    assert_eq!(role(&mut bench), ("leader".into(), 2, "n".into()));
    let poll = bench.ask(Bench::poll_request(session, None, vec![]));
    assert_eq!(code(&poll), "UNKNOWN_SESSION");
}

#[test]
fn a_leader_that_stood_still_for_longer_than_its_validity_serves_nothing_more() {
    let mut bench = leader();
    bench.stand_still(Duration::from_secs(4));
    let response = starts(&mut bench, "late");
    assert_ne!(response.status, 201, "{response:?}");
    assert!(lost(&bench)[0].contains("counts for 3000 ms"), "{:?}", lost(&bench));
    // Nobody else has led: it leads again, under a new term.
    assert_eq!(role(&mut bench), ("leader".into(), 2, "n".into()));
    assert_eq!(starts(&mut bench, "again").status, 201);
}

#[test]
fn a_leader_whose_checks_are_not_answered_steps_down_when_the_last_good_one_is_too_old() {
    for unanswered in ["hold", "check"] {
        let mut bench = leader();
        bench.pass(Duration::from_millis(500));
        bench.silent = Some(unanswered);
        bench.pass(Duration::from_millis(2_000));
        assert_eq!(lost(&bench), [""; 0], "{unanswered}");
        bench.pass(Duration::from_millis(1_000));
        assert_eq!(lost(&bench).len(), 1, "{unanswered}");
    }
}

#[test]
fn one_who_has_lost_the_lead_and_knows_of_no_other_leader_sends_nobody_to_itself() {
    let mut bench = leader();
    // Whoever has the lock has not yet said that it leads: the row names the one before.
    bench.store.set_lock(LockState::Others);
    bench.pass(Duration::from_millis(2_500));
    assert_eq!(lost(&bench).len(), 1);
    let Reply::Error(error) = starts(&mut bench, "late").reply else { panic!("it leads no more") };
    assert_eq!(error.message, "this server is a standby, and no server leads just now");
    assert_eq!((error.code.as_str(), error.details.len()), ("NOT_LEADER", 0));
}

#[test]
fn a_recovery_that_takes_long_does_not_cost_the_lead() {
    let mut bench = leader();
    starts(&mut bench, "e");
    bench.silent = Some("due");
    bench.restart();
    bench.pass(Duration::from_secs(20));
    assert_eq!(role(&mut bench), ("leader".into(), 2, "n".into()));
    assert_eq!(code(&starts(&mut bench, "f")), "NOT_READY");
    bench.silent = None;
    bench.pass(Duration::from_secs(15));
    assert_eq!((role(&mut bench).1, starts(&mut bench, "f").status), (2, 201));
    assert_eq!(lost(&bench), [""; 0]);
}

#[test]
fn a_write_of_one_who_was_deposed_is_refused_and_the_request_is_told_so() {
    let mut bench = leader();
    take_over(&mut bench);
    let response = starts(&mut bench, "e");
    assert_eq!(code(&response), "FENCED");
    let Reply::Error(error) = response.reply else { unreachable!("it has a code") };
    assert_eq!(error.message, "fenced: this server led term 1, and the cluster is at term 2");
    assert!(bench.store.executions().is_empty());
    assert_eq!(lost(&bench), ["this server led term 1, and the cluster is at term 2"]);
}

#[test]
fn what_is_under_way_when_a_leader_steps_down_is_told_to_be_in_doubt_and_what_is_not_to_be_fenced() {
    let mut bench = leader();
    starts(&mut bench, "e");
    bench.hold = true;
    let sent = bench.send_start("Chain", "e1", json!({"n": 1}));
    let wait = bench.send(Request::Wait { execution: "e".into(), timeout: Duration::from_secs(30) });
    bench.store.set_lock(LockState::Others);
    bench.pass(Duration::from_millis(1_100));
    assert_eq!(code(&bench.answer(sent)), "OUTCOME_UNKNOWN");
    assert_eq!(code(&bench.answer(wait)), "FENCED");
    // Its append comes through after all: whoever leads next finds it.
    bench.store.set_lock(LockState::Mine);
    bench.release();
    assert_eq!(role(&mut bench), ("leader".into(), 2, "n".into()));
}

#[test]
fn a_look_from_before_the_election_says_nothing_against_the_one_who_won_it() {
    let mut bench = follower();
    bench.hold_all = true;
    bench.pass(Duration::from_millis(1_000));
    let looks: Vec<_> = bench.held.iter().map(|(_, transaction)| transaction.name()).collect();
    assert_eq!(looks, ["line", "check", "beat"]);
    let (look, transaction) = bench.held.remove(1).expect("just seen");
    let before = bench.run(transaction);
    bench.store.set_lock(LockState::Mine);
    bench.release();
    bench.give(Input::Store { call: look, reply: before, origin: None });
    assert_eq!((lost(&bench).len(), role(&mut bench)), (0, ("leader".into(), 3, "n".into())));
}

#[test]
fn a_leader_that_is_to_exit_when_it_leads_no_more_ends_with_status_1() {
    let mut bench = cluster(OnLostLease::Exit);
    bench.store.set_lock(LockState::Others);
    bench.pass(Duration::from_millis(1_100));
    assert_eq!(bench.exit, Some(1));
}

#[test]
fn a_stop_of_a_standby_ends_at_once_and_one_of_a_leader_releases_last() {
    let mut bench = follower();
    bench.give(Input::Stop);
    assert_eq!(bench.exit, Some(0));
    let mut bench = leader();
    bench.give(Input::Stop);
    assert_eq!((bench.exit, bench.ran.last()), (Some(0), Some(&"release")));
}

#[test]
fn a_standby_that_wins_while_it_stops_gives_back_what_it_won() {
    let mut bench = cluster(OnLostLease::StepDown);
    bench.hold_all = true;
    bench.restart();
    assert!(bench.held.iter().any(|(_, t)| matches!(t, Transaction::Campaign(_))), "{:?}", bench.held);
    bench.give(Input::Stop);
    assert_eq!(bench.exit, None, "what it has won may be on its way");
    bench.release();
    assert_eq!((bench.exit, bench.store.holder()), (Some(0), None));
}

#[test]
fn a_standby_that_stops_does_not_wait_for_ever_for_what_became_of_its_campaign() {
    let mut bench = cluster(OnLostLease::StepDown);
    bench.hold_all = true;
    bench.restart();
    bench.give(Input::Stop);
    bench.pass(Duration::from_millis(2_100));
    assert_eq!(bench.exit, Some(0));
    assert!(matches!(bench.logs.last(), Some(LogEvent::Stopped { clean: false })), "{:?}", bench.logs);
}

#[test]
fn a_database_that_cannot_be_reached_keeps_a_standby_waiting_and_ends_nothing() {
    let mut bench = cluster(OnLostLease::StepDown);
    bench.failing.extend([("campaign", 1_000), ("check", 1_000)]);
    bench.restart();
    bench.pass(Duration::from_secs(10));
    assert_eq!((bench.exit, role(&mut bench).0), (None, "standby".into()));
    assert_eq!(code(&starts(&mut bench, "e")), "NOT_LEADER");
    bench.failing.clear();
    bench.pass(Duration::from_secs(2));
    assert_eq!(role(&mut bench).0, "leader");
}

#[test]
fn a_database_of_another_mode_is_refused_with_what_would_be_right() {
    let mut alone = Bench::new();
    alone.deploy_chain(1);
    alone.config.role = Role::Standby(Standby::default());
    alone.restart();
    assert_eq!(alone.exit, Some(1));
    let mut of_a_cluster = leader();
    of_a_cluster.config.role = Role::Single;
    of_a_cluster.restart();
    assert_eq!(of_a_cluster.exit, Some(1));
    for (bench, mode) in [(&alone, "single"), (&of_a_cluster, "standby")] {
        let refused = bench.logs.iter().any(
            |line| matches!(line, LogEvent::Unservable { message } if message.contains(&format!("in {mode} mode"))),
        );
        assert!(refused, "{:?}", bench.logs);
    }
}

#[test]
fn definitions_that_were_read_before_a_standby_led_take_nothing_from_what_it_stored_since() {
    let mut bench = follower();
    bench.hold_all = true;
    let read = bench.send(Request::ListWorkflows);
    let (call, transaction) = bench.held.pop_back().expect("it reads the definitions");
    assert_eq!(transaction.name(), "definitions");
    let old = bench.run(transaction);
    bench.store.set_lock(LockState::Mine);
    bench.release();
    assert_eq!(role(&mut bench).0, "leader");
    bench.deploy(json!({"name": "Newer", "version": "1", "steps": [{"id": "a", "compute": 1}]}));
    bench.give(Input::Store { call, reply: old, origin: None });
    assert_eq!(bench.answer(read).status, 200);
    assert_eq!(bench.start("Newer", "n", json!({})).status, 201, "it is known still");
}

#[test]
fn the_row_of_an_execution_that_is_waited_for_is_not_read_again_while_it_is_being_read() {
    let mut bench = follower();
    let wait = bench.send(Request::Wait { execution: "e".into(), timeout: Duration::from_secs(30) });
    bench.silent = Some("summary");
    let before = bench.ran.len();
    bench.pass(Duration::from_secs(5));
    let reads = bench.ran[before..].iter().filter(|name| **name == "unanswered").count();
    assert_eq!(reads, 1);
    assert!(!bench.responses.contains_key(&wait));
}

#[test]
fn one_who_waits_on_a_standby_that_comes_to_lead_is_told_an_end_that_the_last_leader_recorded() {
    let mut bench = follower();
    let wait = bench.send(Request::Wait { execution: "e".into(), timeout: Duration::from_secs(60) });
    let mut before = leader();
    before.store = bench.store.clone();
    before.store.set_lock(LockState::Mine);
    before.restart();
    assert_eq!(before.ask(Request::Terminate { execution: "e".into(), reason: None }).status, 200);
    bench.store = before.store.clone();
    bench.store.set_lock(LockState::Mine);
    bench.release();
    assert_eq!(role(&mut bench).0, "leader");
    let Reply::Execution(view) = bench.answer(wait).reply else { panic!("the execution") };
    assert_eq!(view.item.status.as_str(), "terminated");
}
