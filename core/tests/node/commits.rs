//! Nothing is promised before it is durable, and what is unknown is found out.

use crate::bench::{Bench, code};
use orbit_core::api::request::Request;
use orbit_core::api::response::Reply;
use orbit_core::node::Input;
use orbit_core::store::outcome::{self, Failure, FailureKind};
use orbit_core::store::transaction::Transaction;
use serde_json::json;
use std::time::Duration;

fn failed(kind: FailureKind) -> outcome::Reply<orbit_core::store::transaction::Verdict> {
    outcome::Reply::Failed(Failure { kind, message: "the disk is full".into() })
}

#[test]
fn a_start_is_answered_when_its_append_is_done_and_not_before() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.hold = true;
    let start = bench.send_start("Chain", "e", json!({"n": 1}));
    assert_eq!(bench.held.len(), 1);
    assert!(bench.responses.is_empty());
    bench.release();
    let response = bench.answer(start);
    assert_eq!(response.status, 201, "{response:?}");
}

#[test]
fn what_comes_while_an_append_is_under_way_goes_into_the_next_together() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.hold = true;
    let starts: Vec<_> = (0..10).map(|n| bench.send_start("Chain", &format!("e{n}"), json!({"n": n}))).collect();
    bench.release();
    assert!(starts.into_iter().all(|id| bench.answer(id).status == 201));
    let counters = bench.counters();
    assert_eq!((counters.appends, counters.append_groups), (2, 10));
}

#[test]
fn a_repeated_start_starts_nothing_and_another_input_is_a_conflict() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    assert_eq!(bench.start("Chain", "e", json!({"n": 1})).status, 201);
    for round in 0..2 {
        let again = bench.start("Chain", "e", json!({"n": 1}));
        assert!(matches!(&again.reply, Reply::Started(s) if !s.created), "{again:?}");
        assert_eq!(code(&bench.start("Chain", "e", json!({"n": 2}))), "EXECUTION_ID_CONFLICT");
        if round == 0 {
            bench.restart();
        }
    }
}

#[test]
fn two_starts_of_one_id_at_once_start_it_once() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.hold = true;
    let first = bench.send_start("Chain", "e", json!({"n": 1}));
    let second = bench.send_start("Chain", "e", json!({"n": 1}));
    bench.release();
    assert_eq!((bench.answer(first).status, bench.answer(second).status), (201, 200));
}

#[test]
fn an_append_that_certainly_failed_leaves_memory_and_database_as_they_were() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.hold = true;
    let start = bench.send_start("Chain", "e", json!({"n": 1}));
    let (call, _) = bench.held.pop_front().expect("the append");
    bench.hold = false;
    bench.give(Input::Store { call, reply: failed(FailureKind::Unwritable), origin: None });
    assert_eq!(code(&bench.answer(start)), "STORAGE_ERROR");
    assert_eq!(code(&bench.ask(Request::GetExecution("e".into()))), "UNKNOWN_EXECUTION");
    let again = bench.send_start("Chain", "e", json!({"n": 1}));
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.answer(again).status, 201);
}

#[test]
fn an_unknown_outcome_is_found_out_by_sending_the_same_group_again() {
    for written in [false, true] {
        let mut bench = Bench::new();
        bench.deploy_chain(1);
        bench.hold = true;
        let start = bench.send_start("Chain", "e", json!({"n": 1}));
        let (call, transaction) = bench.held.pop_front().expect("the append");
        if written {
            bench.run(transaction.clone());
        }
        bench.give(Input::Store { call, reply: outcome::Reply::Unknown, origin: None });
        assert!(bench.responses.is_empty(), "nothing is known yet");
        bench.pass(Duration::from_secs(1));
        let (_, again) = bench.held.front().expect("it is sent again").clone();
        assert_eq!(again, transaction, "the same group under the same id");
        bench.release();
        assert_eq!(bench.answer(start).status, 201, "written before: {written}");
        assert_eq!(bench.history("e").iter().filter(|e| *e == "WorkflowCreated").count(), 1);
    }
}

#[test]
fn a_request_whose_outcome_stays_unknown_is_told_so_and_may_be_repeated() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.hold = true;
    let start = bench.send_start("Chain", "e", json!({"n": 1}));
    bench.pass(Duration::from_secs(11));
    assert_eq!(code(&bench.answer(start)), "OUTCOME_UNKNOWN");
    bench.release();
    bench.pass(Duration::from_secs(2));
    let again = bench.start("Chain", "e", json!({"n": 1}));
    assert!(matches!(&again.reply, Reply::Started(s) if !s.created), "{again:?}");
}

#[test]
fn a_history_that_another_hand_has_moved_is_read_again_before_anything_is_written() {
    let mut bench = Bench::new();
    bench.deploy_chain(2);
    bench.start("Chain", "e", json!({"n": 1}));
    let session = bench.register("w");
    // A zombie's append: the group that this node wrote, under another id and number.
    bench.hold = true;
    let cancel = bench.send(Request::Cancel { execution: "e".into(), reason: None });
    let (call, transaction) = bench.held.pop_front().expect("the append");
    let Transaction::Append(mut zombie) = transaction.clone() else { panic!("an append") };
    zombie.groups[0].id = orbit_core::id::GroupId(uuid::Uuid::from_u128(99));
    bench.run(Transaction::Append(zombie));
    bench.hold = false;
    let reply = bench.run(transaction);
    bench.give(Input::Store { call, reply, origin: None });
    // The cancel was recorded by the zombie: this one finds the execution ended.
    assert!(matches!(&bench.answer(cancel).reply, Reply::Cancelled(_)));
    assert_eq!(bench.status("e"), "cancelled");
    assert_eq!(bench.history("e").iter().filter(|event| *event == "CancelRequested").count(), 1);
    let _ = session;
}
