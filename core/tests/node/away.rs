//! What is said at once while the database does not answer, and what becomes of it.

use crate::bench::{Bench, code};
use orbit_core::api::request::{ListExecutions, ReportForm, Request};
use orbit_core::api::response::Reply as Answer;
use orbit_core::node::Input;
use orbit_core::store::outcome::{FailureKind, Reply};
use serde_json::json;
use std::time::Duration;

fn list() -> Request {
    let labels = std::collections::BTreeMap::new();
    Request::ListExecutions(ListExecutions {
        status: None,
        workflow: None,
        labels,
        since: None,
        limit: 10,
        cursor: None,
    })
}

fn nap() -> Request {
    Request::deploy(json!({"name": "Nap", "version": "1", "steps": [{"id": "nap", "sleep": "1h"}]}))
}

/// The database goes away with an append under way, of which nobody knows what became of it.
fn go_away(bench: &mut Bench) {
    bench.failing_as = FailureKind::Reconnect;
    for name in ["check", "summaries", "summary", "deploy"] {
        bench.failing.insert(name, u32::MAX);
    }
    bench.hold = true;
}

#[test]
fn who_asks_while_the_database_is_away_is_told_at_once_that_nothing_was_sent_and_nothing_was() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    let session = bench.register("w");
    let token = {
        bench.start("Chain", "held", json!({"n": 0}));
        bench.take(session).token
    };
    go_away(&mut bench);
    let sent = bench.send_start("Chain", "sent", json!({"n": 1}));
    let (call, append) = bench.held.pop_front().expect("an append is under way");
    bench.give(Input::Store { call, reply: Reply::Unknown, origin: None });
    let in_line = bench.send_start("Chain", "in-line", json!({"n": 1}));
    let cancel = bench.send(Request::Cancel { execution: "held".into(), reason: None });
    let results = vec![Bench::result(&token, json!(1))];
    let report = bench.send(Request::Report { session, results, form: ReportForm::Single });
    let read = bench.send(list());
    bench.pass(Duration::from_millis(900));
    assert!(!bench.responses.contains_key(&in_line), "a connection that merely broke is replaced in less");
    bench.pass(Duration::from_millis(1_600));
    for waited in [in_line, cancel] {
        let told = bench.answer(waited);
        assert_eq!((code(&told), told.status, told.retry_after), ("STORAGE_ERROR", 503, Some(1)));
        let Answer::Error(error) = &told.reply else { panic!("an error") };
        assert!(error.message.contains("nothing was sent"), "{}", error.message);
    }
    assert_eq!(code(&bench.answer(read)), "STORAGE_ERROR");
    for request in [nap(), list(), Request::GetExecution("nobody".into()), Request::ListWorkers] {
        assert_eq!(code(&bench.ask(request)), "STORAGE_ERROR");
    }
    assert_eq!(code(&bench.start("Chain", "late", json!({"n": 1}))), "STORAGE_ERROR");
    for probe in [Request::Readyz, Request::Leaderz, Request::Ready] {
        assert_eq!(bench.ask(probe).status, 503);
    }
    assert_eq!(bench.status("held"), "running", "what is in memory is shown all the same");
    // What was sent is not known, and what a worker reports waits.
    assert!(!bench.responses.contains_key(&sent) && !bench.responses.contains_key(&report));
    bench.pass(Duration::from_secs(8));
    assert_eq!((code(&bench.answer(sent)), code(&bench.answer(report))), ("OUTCOME_UNKNOWN", "OUTCOME_UNKNOWN"));
    // The database is back, and had written what was sent.
    bench.run(append);
    bench.failing.clear();
    bench.release();
    bench.pass(Duration::from_secs(3));
    assert_eq!(bench.ask(Request::Readyz).status, 200);
    assert_eq!(bench.ask(Request::Ready).status, 200);
    assert_eq!(bench.start("Chain", "sent", json!({"n": 1})).status, 200);
    assert_eq!(bench.status("held"), "completed", "the result that waited is recorded, and nothing cancelled");
    for again in ["in-line", "late"] {
        assert_eq!(bench.start("Chain", again, json!({"n": 1})).status, 201, "{again} had not begun");
    }
    assert_eq!(bench.ask(nap()).status, 201);
}

#[test]
fn a_request_that_waited_its_time_in_line_is_told_that_it_was_not_sent_and_the_one_before_it_that_it_may_have_been() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.hold = true;
    let sent = bench.send_start("Chain", "sent", json!({"n": 1}));
    let in_line = bench.send_start("Chain", "in-line", json!({"n": 1}));
    let same = bench.send(Request::Cancel { execution: "sent".into(), reason: None });
    bench.pass(Duration::from_secs(11));
    assert_eq!(code(&bench.answer(sent)), "OUTCOME_UNKNOWN");
    assert_eq!(code(&bench.answer(in_line)), "STORAGE_ERROR");
    assert_eq!(code(&bench.answer(same)), "STORAGE_ERROR");
    bench.release();
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.status("sent"), "running");
    assert_eq!(code(&bench.ask(Request::GetExecution("in-line".into()))), "UNKNOWN_EXECUTION");
}

#[test]
fn a_deployment_that_never_left_is_told_so_without_being_tried_again_and_again() {
    let mut bench = Bench::new();
    go_away(&mut bench);
    bench.pass(Duration::from_millis(1_500));
    // Sent before the database was known to be away: its answer comes when no connection could be made.
    bench.hold_all = true;
    let deploy = bench.send(nap());
    let (call, _) = bench.held.iter().find(|(_, t)| t.name() == "deploy").cloned().expect("it is sent");
    bench.hold_all = false;
    bench.pass(Duration::from_secs(2));
    let failure = orbit_core::store::outcome::Failure { kind: FailureKind::Reconnect, message: "refused".into() };
    bench.give(Input::Store { call, reply: Reply::Failed(failure), origin: None });
    assert_eq!(code(&bench.answer(deploy)), "STORAGE_ERROR");
}

#[test]
fn a_server_whose_reads_fail_may_not_serve_them_until_one_succeeds() {
    let mut bench = Bench::new();
    assert_eq!(bench.ask(Request::Readyz).status, 200);
    bench.failing_as = FailureKind::Reconnect;
    bench.failing.insert("summaries", 6);
    let read = bench.send(list());
    bench.pass(Duration::from_secs(1));
    assert_eq!(code(&bench.answer(read)), "STORAGE_ERROR");
    assert_eq!(bench.ask(Request::Readyz).status, 503);
    assert_eq!(bench.ask(Request::Leaderz).status, 200, "writes do go through");
    assert_eq!(bench.ask(list()).status, 200);
    assert_eq!(bench.ask(Request::Readyz).status, 200);
}
