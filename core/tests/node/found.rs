//! What the simulator found, each told as the shortest story that shows it.

use crate::bench::{Bench, code};
use orbit_core::api::request::{Poll, Request};
use orbit_core::api::response::Reply;
use orbit_core::id::{Incarnation, SessionId};
use orbit_core::node::{Input, RequestId};
use orbit_core::store::append::TaskState;
use orbit_core::store::outcome;
use orbit_core::store::statement::{Holder, RequeueStrays};
use orbit_core::store::transaction::{Campaign, Transaction, Verdict};
use orbit_core::time::WallMs;
use serde_json::json;
use std::time::Duration;

/// Runs the oldest transaction that was kept back, and tells the node; its name.
fn run_one(bench: &mut Bench) -> &'static str {
    let (call, transaction) = bench.held.pop_front().expect("something is kept back");
    let name = transaction.name();
    let reply = bench.run(transaction);
    bench.give(Input::Store { call, reply, origin: None });
    name
}

fn poll_for(session: SessionId, max_tasks: u32) -> Request {
    let wait = Duration::from_secs(20);
    Request::Poll(Poll { session, max_tasks, wait, holding: Some(vec![]), results: vec![] })
}

/// A server with a task in its queue, and a session that outlives every deadline. What it writes is kept back.
fn queued() -> (Bench, SessionId) {
    let mut bench = Bench::with(|config| config.session_timeout = Duration::from_secs(600));
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    bench.hold = true;
    (bench, session)
}

/// The claim that is kept back is lost on its way; it, and the poll that it is for. Its repetition is kept back.
fn claim_in_doubt(bench: &mut Bench, session: SessionId) -> (RequestId, Transaction) {
    let poll = bench.send(poll_for(session, 1));
    let (call, claim) = bench.held.pop_front().expect("the claim");
    bench.give(Input::Store { call, reply: outcome::Reply::Unknown, origin: None });
    bench.pass(Duration::from_secs(1));
    (poll, claim)
}

#[test]
fn a_claimed_task_whose_session_is_gone_goes_back_and_is_found_there() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let gone = bench.register("gone");
    bench.hold = true;
    bench.send(poll_for(gone, 1));
    bench.ask(Request::Unregister { session: gone });
    bench.release();
    let session = bench.register("w");
    assert_eq!(bench.take(session).execution_id.as_str(), "e");
}

#[test]
fn a_claim_that_runs_before_the_repetition_of_an_append_does_not_hide_what_it_queues() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    let session = bench.register("w");
    bench.hold = true;
    bench.send_start("Chain", "e", json!({"n": 1}));
    let poll = bench.send(poll_for(session, 1));
    let (call, _) = bench.held.pop_front().expect("the append");
    bench.give(Input::Store { call, reply: outcome::Reply::Unknown, origin: None });
    while !bench.held.is_empty() {
        assert_eq!(run_one(&mut bench), "claim");
    }
    bench.pass(Duration::from_secs(1));
    bench.release();
    assert_eq!(bench.polled(poll).tasks.len(), 1);
}

#[test]
fn an_execution_is_not_shown_older_than_a_read_of_the_store_has_shown_it() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    bench.hold = true;
    bench.send(Request::Cancel { execution: "e".into(), reason: None });
    // Committed, and the reply is still to come.
    let (_, transaction) = bench.held.front().expect("the append").clone();
    bench.run(transaction);
    assert_eq!(bench.history("e").last().map(String::as_str), Some("WorkflowCancelled"));
    assert_eq!(bench.status("e"), "cancelled");
}

#[test]
fn a_task_in_an_open_poll_is_not_answered_to_another_poll_of_the_session() {
    let mut bench = Bench::with(|config| config.limits.max_append_groups = 1);
    bench.deploy_chain(1);
    for id in ["e1", "e2"] {
        bench.start("Chain", id, json!({"n": 1}));
    }
    let session = bench.register("w");
    bench.hold = true;
    let first = bench.send(poll_for(session, 2));
    assert_eq!([run_one(&mut bench), run_one(&mut bench)], ["claim", "append"]);
    // One task is in the first poll's answer, which waits for the other one.
    let second = bench.send(poll_for(session, 2));
    assert!(bench.responses.is_empty(), "{:?}", bench.responses);
    bench.release();
    assert_eq!(bench.polled(first).tasks.len(), 2);
    assert!(!bench.responses.contains_key(&second));
}

#[test]
fn a_start_that_may_have_been_written_before_the_fence_moved_is_not_called_fenced() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.hold = true;
    let start = bench.send_start("Chain", "e", json!({"n": 1}));
    let (_, transaction) = bench.held.front().expect("the append").clone();
    bench.run(transaction);
    let holder = Holder { node_id: "o".into(), host: String::new(), pid: 1, addr: None, since_ms: WallMs(0) };
    let incarnation = Incarnation(uuid::Uuid::from_u128(77));
    bench.run(Transaction::Campaign(Campaign::new(orbit_core::cluster::Mode::Single, incarnation, holder)));
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.exit, Some(1));
    assert_eq!(code(&bench.answer(start)), "OUTCOME_UNKNOWN");
}

#[test]
fn a_recovery_reads_again_what_it_could_not_read() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    let session = bench.register("w");
    let poll = bench.send(poll_for(session, 1));
    bench.start("Chain", "e", json!({"n": 1}));
    bench.polled(poll);
    bench.fail = Some("load");
    bench.restart();
    let ready = |bench: &mut Bench| matches!(bench.ask(Request::Ready).reply, Reply::Ready(r) if r.ready);
    assert!(!ready(&mut bench), "the execution is not read yet");
    bench.pass(Duration::from_secs(2));
    assert!(ready(&mut bench));
}

#[test]
fn a_claim_that_commits_after_it_was_given_up_and_repeated_in_vain_is_found_and_its_task_delivered() {
    let (mut bench, session) = queued();
    let (_, claim) = claim_in_doubt(&mut bench, session);
    // What is sent again passes over the row, which the first sending has locked.
    let (second, again) = bench.held.pop_front().expect("the claim again");
    assert_eq!(again, claim);
    bench.give(Input::Store { call: second, reply: outcome::Reply::Done(Verdict::Claim(Vec::new())), origin: None });
    // Now the first one commits, and nobody is told.
    bench.run(claim);
    bench.hold = false;
    bench.pass(bench.config.call_deadline + Duration::from_secs(1));
    assert_eq!(bench.take(session).execution_id.as_str(), "e");
}

#[test]
fn a_task_that_a_claim_in_doubt_locked_and_did_not_take_is_claimed_later() {
    let (mut bench, session) = queued();
    claim_in_doubt(&mut bench, session);
    // What is sent again passes over the row, which the first sending has locked; and that one is rolled back.
    let (second, _) = bench.held.pop_front().expect("the claim again");
    bench.give(Input::Store { call: second, reply: outcome::Reply::Done(Verdict::Claim(Vec::new())), origin: None });
    bench.hold = false;
    bench.pass(bench.config.call_deadline + Duration::from_secs(1));
    assert_eq!(bench.take(session).execution_id.as_str(), "e");
}

#[test]
fn a_sweep_leaves_claimed_tasks_alone_whose_delivery_is_under_way() {
    let (mut bench, session) = queued();
    claim_in_doubt(&mut bench, session);
    assert_eq!(run_one(&mut bench), "claim");
    // The delivery's append stays under way for longer than a sweep waits.
    bench.pass(bench.config.call_deadline - Duration::from_secs(1));
    let (append, delivery) = bench.held.pop_front().expect("the delivery");
    bench.pass(Duration::from_secs(2));
    assert_eq!(run_one(&mut bench), "sweep");
    assert!(bench.store.tasks().all(|entry| matches!(entry.state, TaskState::Claimed { .. })));
    let reply = bench.run(delivery);
    bench.give(Input::Store { call: append, reply, origin: None });
    bench.release();
    assert_eq!(bench.history("e").last().map(String::as_str), Some("StepDispatched"));
}

#[test]
fn a_wait_whose_time_is_over_before_its_row_is_read_is_answered_once() {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "Nap", "version": "1", "steps": [{"id": "nap", "sleep": "1h"}]}));
    bench.start("Nap", "e", json!({}));
    bench.pass(Duration::from_secs(1));
    bench.hold_all = true;
    let wait = bench.send(Request::Wait { execution: "e".into(), timeout: Duration::from_millis(10) });
    bench.pass(Duration::from_millis(20));
    assert_eq!([run_one(&mut bench), run_one(&mut bench)], ["summary", "summary"]);
    bench.release();
    match bench.answer(wait).reply {
        Reply::Execution(view) => assert_eq!(view.item.execution_id.as_str(), "e"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_claim_whose_row_has_gone_back_is_given_up_and_the_row_is_claimed_anew() {
    let (mut bench, session) = queued();
    let poll = bench.send(poll_for(session, 1));
    let (call, claim) = bench.held.pop_front().expect("the claim");
    let Transaction::Claim(claimed) = &claim else { panic!("a claim, not {claim:?}") };
    let sweep = RequeueStrays { fence: claimed.fence, keys: vec![claimed.key], tokens: Vec::new() };
    let reply = bench.run(claim);
    bench.run(Transaction::Sweep(sweep));
    bench.give(Input::Store { call, reply, origin: None });
    bench.release();
    assert_eq!(bench.polled(poll).tasks.len(), 1);
    assert!(bench.ran.len() < 50, "{:?}", bench.ran);
}

#[test]
fn a_sweep_that_runs_late_leaves_alone_what_was_claimed_since() {
    let (mut bench, session) = queued();
    let (poll, _) = claim_in_doubt(&mut bench, session);
    bench.release();
    let other = bench.register("other");
    assert_eq!(bench.polled(poll).tasks.len(), 1);
    // The sweep is under way, and stands still while another task is claimed.
    bench.hold = true;
    bench.pass(bench.config.call_deadline);
    let (_, sweep) = bench.held.pop_front().expect("the sweep");
    assert_eq!(sweep.name(), "sweep");
    bench.hold = false;
    bench.start("Chain", "e2", json!({"n": 1}));
    bench.hold = true;
    bench.send(poll_for(other, 1));
    assert_eq!(run_one(&mut bench), "claim");
    bench.run(sweep);
    assert!(bench.store.tasks().all(|entry| matches!(entry.state, TaskState::Claimed { .. })));
}
