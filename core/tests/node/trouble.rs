//! What a database that fails for a while may cost, and what not.

use crate::bench::{Bench, code};
use orbit_core::api::request::{ListExecutions, Request};
use orbit_core::api::response::Reply as Answer;
use orbit_core::id::Seq;
use orbit_core::node::{Input, LogEvent};
use orbit_core::store::append::{GroupOutcome, Rejection, Status};
use orbit_core::store::outcome::{FailureKind, Reply};
use orbit_core::store::transaction::{Transaction, Verdict};
use serde_json::json;
use std::time::Duration;

fn deploy_nap(bench: &mut Bench) {
    bench.deploy(json!({"name": "Nap", "version": "1", "steps": [{"id": "nap", "sleep": "1h"}]}));
}

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
    bench.failing.insert("load", 2);
    bench.failing_as = FailureKind::Broken;
    bench.restart();
    assert_eq!(bench.exit, Some(1));
    assert!(bench.logs.iter().any(|line| matches!(line, LogEvent::Unservable { .. })));
}

#[test]
fn a_history_that_cannot_be_read_is_set_aside_and_shown_and_its_neighbours_load_at_once() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    for n in 0..100 {
        bench.start("Chain", &format!("e{n}"), json!({"n": n}));
    }
    bench.unreadable = Some("e42".into());
    bench.ran.clear();
    bench.restart();
    assert_eq!(bench.ask(Request::Ready).status, 200, "no time has passed");
    let loads = bench.ran.iter().filter(|name| **name == "load").count();
    assert!(loads <= 20, "{loads} reads that succeeded for one that does not");
    assert_eq!(bench.status("e41"), "running");
    let shown = bench.ask(Request::GetExecution("e42".into()));
    let Answer::Execution(view) = &shown.reply else { panic!("an execution, not {shown:?}") };
    assert_eq!(view.item.status, Status::Quarantined);
    assert_eq!(view.reason.as_deref(), Some("its history cannot be read: a row is no event"));
    assert_eq!(code(&bench.ask(Request::Cancel { execution: "e42".into(), reason: None })), "QUARANTINED");
    let labels = std::collections::BTreeMap::new();
    let list = ListExecutions { status: None, workflow: None, labels, since: None, limit: 200, cursor: None };
    let Answer::Executions(listed) = bench.ask(Request::ListExecutions(list)).reply else { panic!("a list") };
    let aside = listed.executions.iter().filter(|item| item.status == Status::Quarantined);
    assert_eq!(aside.map(|item| item.execution_id.as_str()).collect::<Vec<_>>(), ["e42"]);
    // A filter finds it, page by page, and among the running ones it is not.
    let mut found = |status, cursor| {
        let labels = std::collections::BTreeMap::new();
        let list = ListExecutions { status: Some(status), workflow: None, labels, since: None, limit: 50, cursor };
        let Answer::Executions(page) = bench.ask(Request::ListExecutions(list)).reply else { panic!("a list") };
        page
    };
    for (status, count, is_there) in [(Status::Quarantined, 1, true), (Status::Running, 99, false)] {
        let first = found(status, None);
        assert!(first.next_cursor.is_some(), "there are more rows than a page has");
        let second = found(status, first.next_cursor);
        assert_eq!(second.next_cursor, None);
        let all: Vec<_> = first.executions.into_iter().chain(second.executions).collect();
        assert!(all.iter().all(|item| item.status == status), "{all:?}");
        assert_eq!((all.len(), all.iter().any(|item| item.execution_id == "e42".into())), (count, is_there));
    }
    // The others go on.
    let session = bench.register("w");
    assert_eq!(bench.take(session).execution_id, "e0".into());
    // It stays set aside after the next start, and is back once it can be read.
    bench.restart();
    assert_eq!(bench.status("e42"), "quarantined");
    bench.unreadable = None;
    bench.restart();
    assert_eq!(bench.status("e42"), "running");
}

#[test]
fn an_execution_whose_second_reading_fails_is_not_forgotten() {
    let mut bench = Bench::new();
    let steps = json!([{"id": "t", "task": "task.1", "queue_timeout": "10s"}]);
    bench.deploy(json!({"name": "Queued", "version": "1", "steps": steps}));
    bench.start("Queued", "e", json!(null));
    let session = bench.register("w");
    // A claim moves its task's row; before its answer comes, a cancel decides from the row as it was.
    bench.hold = true;
    bench.send(Bench::poll_request(session, Some(vec![]), vec![]));
    let (call, claim) = bench.held.pop_front().expect("a claim is under way");
    assert_eq!(claim.name(), "claim");
    let reply = bench.run(claim);
    bench.hold = false;
    // It is to be read again, and that fails once.
    bench.failing.insert("load", 1);
    let cancel = bench.ask(Request::Cancel { execution: "e".into(), reason: None });
    assert_eq!(code(&cancel), "STORAGE_ERROR");
    bench.pass(Duration::from_secs(15));
    assert_eq!(bench.status("e"), "failed", "its time in the queue is over");
    bench.give(Input::Store { call, reply, origin: None });
    assert_eq!(bench.status("e"), "failed");
}

#[test]
fn a_start_of_a_sleeping_execution_that_fails_does_not_cost_its_wake_up() {
    let mut bench = Bench::new();
    deploy_nap(&mut bench);
    bench.start("Nap", "e", json!(null));
    bench.start("Nap", "keeper", json!(1));
    bench.pass(Duration::from_secs(3599));
    bench.hold = true;
    // The same start again, under way when its time comes.
    let start = bench.send_start("Nap", "e", json!(null));
    bench.pass(Duration::from_secs(5));
    bench.hold = false;
    let held: Vec<_> = bench.held.drain(..).collect();
    bench.failing.insert("append", 1);
    for (call, transaction) in held {
        let reply = bench.run(transaction);
        bench.give(Input::Store { call, reply, origin: None });
    }
    assert_eq!(code(&bench.answer(start)), "STORAGE_ERROR");
    bench.pass(Duration::from_secs(20));
    assert_eq!(bench.status("e"), "completed");
}

#[test]
fn past_the_bound_of_running_executions_what_exists_is_still_found() {
    let mut bench = Bench::with(|config| config.limits.max_active_executions = 1);
    deploy_nap(&mut bench);
    assert_eq!(bench.start("Nap", "e", json!(null)).status, 201);
    assert_eq!(bench.start("Nap", "e", json!(null)).status, 200, "the same start again");
    assert_eq!(code(&bench.start("Nap", "e", json!(1))), "EXECUTION_ID_CONFLICT");
    assert_eq!(code(&bench.start("Nap", "f", json!(1))), "RESOURCE_EXHAUSTED");
}

#[test]
fn what_waits_for_a_database_that_does_not_answer_stays_bounded() {
    let mut bench = Bench::with(|config| config.limits.max_queued_requests = 3);
    bench.deploy_chain(1);
    bench.hold = true;
    let mut refused = 0;
    for n in 0..20 {
        let id = bench.send_start("Chain", &format!("e{n}"), json!({"n": n}));
        match bench.responses.remove(&id) {
            Some(response) => {
                assert_eq!(code(&response), "RESOURCE_EXHAUSTED");
                refused += 1;
            }
            // The one that was sent is told after its time that it is not known, the others leave; neither makes room.
            None if n == 0 => bench.pass(Duration::from_secs(11)),
            None => bench.give(Input::RequestGone(id)),
        }
    }
    assert_eq!(refused, 17);
    bench.release();
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.start("Chain", "f", json!({"n": 1})).status, 201, "there is room again");
}

#[test]
fn what_waits_is_bounded_by_its_memory_too() {
    let mut bench = Bench::with(|config| config.limits.max_queued_bytes = 100_000);
    bench.deploy_chain(1);
    bench.hold = true;
    // 20 kB of text, and 10,000 numbers, which take more memory than text.
    let (text, numbers) = (json!({"n": "x".repeat(20_000)}), json!({"n": vec![1; 1_000]}));
    for (input, fit) in [(text, 5), (numbers, 4)] {
        let sent: Vec<_> = (0..20).map(|n| bench.send_start("Chain", &format!("e{n}-{fit}"), input.clone())).collect();
        let refused: Vec<_> = sent.iter().filter_map(|id| bench.responses.remove(id)).collect();
        assert_eq!(refused.len(), 20 - fit);
        for response in refused {
            assert_eq!((code(&response), response.retry_after), ("RESOURCE_EXHAUSTED", Some(1)));
            assert!(matches!(&response.reply, Answer::Error(e) if e.details["limit"] == "max_queued_bytes"));
        }
        bench.release();
        bench.hold = true;
    }
    let steps: Vec<_> = (0..100).map(|n| json!({"id": format!("s{n}"), "sleep": "1h"})).collect();
    let deploys: Vec<_> = (0..20)
        .map(|n| bench.send(Request::deploy(json!({"name": "Nap", "version": n.to_string(), "steps": steps}))))
        .collect();
    let refused = deploys.iter().filter(|id| bench.responses.contains_key(id)).count();
    assert!((15..20).contains(&refused), "{refused} were refused");
    bench.release();
    assert_eq!(bench.start("Chain", "f", json!({"n": 1})).status, 201, "there is room again");
}

#[test]
fn reads_deployments_and_registrations_that_a_silent_database_keeps_stay_bounded() {
    let mut bench = Bench::with(|config| {
        config.limits.max_queued_requests = 3;
        // Nothing tells that the database is away.
        config.check_deadline = Duration::from_secs(3600);
    });
    bench.hold_all = true;
    let mut asked = 0;
    let mut refused = 0;
    for n in 0..4 {
        let document = json!({"name": "Nap", "version": format!("{n}"), "steps": [{"id": "nap", "sleep": "1h"}]});
        let (execution, timeout) = ("e".into(), Duration::from_secs(5));
        for request in [
            Request::GetExecution("e".into()),
            Request::GetHistory { execution: "e".into(), run: None, after: Seq(0), limit: 10, max_bytes: 1000 },
            Request::ListWorkers,
            Request::Wait { execution, timeout },
            Request::deploy(document),
            Bench::register_request("other"),
        ] {
            let register = matches!(request, Request::Register(_));
            let id = bench.send(request);
            asked += 1;
            if let Some(response) = bench.responses.remove(&id)
                && !(register && response.status == 200)
            {
                assert_eq!(code(&response), "RESOURCE_EXHAUSTED");
                refused += 1;
            }
            bench.pass(Duration::from_millis(600));
        }
    }
    assert_eq!(asked - refused, 3);
    bench.release();
    assert_eq!(code(&bench.ask(Request::GetExecution("e".into()))), "UNKNOWN_EXECUTION", "there is room again");
}

#[test]
fn an_execution_whose_decisions_the_database_refuses_is_set_aside_and_not_tried_for_ever() {
    let mut bench = Bench::new();
    deploy_nap(&mut bench);
    bench.start("Nap", "e", json!(null));
    bench.hold = true;
    bench.pass(Duration::from_secs(3605));
    let mut appends = 0;
    while let Some((call, transaction)) = bench.held.pop_front() {
        let Transaction::Append(append) = &transaction else {
            assert_eq!(transaction.name(), "keep_workers");
            continue;
        };
        appends += 1;
        assert!(appends < 10, "the same is refused again and again");
        let refused = GroupOutcome::Rejected(Rejection::Refused { message: "too big".into() });
        let reply = Reply::Done(Verdict::Append(vec![refused; append.groups.len()]));
        bench.give(Input::Store { call, reply, origin: None });
    }
    assert!(bench.logs.iter().any(|line| matches!(line, LogEvent::Quarantined { .. })));
    bench.hold = false;
    assert_eq!(code(&bench.ask(Request::Cancel { execution: "e".into(), reason: None })), "QUARANTINED");
    assert_eq!(bench.start("Nap", "f", json!(null)).status, 201, "the others go on");
}
