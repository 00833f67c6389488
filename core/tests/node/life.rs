//! A server's life: start, check, waits, stop, and the loss of its fence.

use crate::bench::{Bench, code};
use orbit_core::api::request::Request;
use orbit_core::api::response::Reply;
use orbit_core::definition::{Boundary, Problem, SchemaCheck, Violation};
use orbit_core::id::{DefinitionHash, Incarnation};
use orbit_core::node::{Input, LogEvent};
use orbit_core::store::statement::Holder;
use orbit_core::store::transaction::{Campaign, Transaction};
use orbit_core::time::WallMs;
use serde_json::{Value, json};
use std::time::Duration;

#[test]
fn each_start_of_a_server_has_a_term_of_its_own() {
    let mut bench = Bench::new();
    assert_eq!(bench.store.fence().term.0, 1);
    bench.restart();
    assert_eq!(bench.store.fence().term.0, 2);
}

#[test]
fn a_wait_ends_with_the_execution_or_with_its_time() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    let wait = |time| Request::Wait { execution: "e".into(), timeout: Duration::from_secs(time) };
    let short = bench.send(wait(5));
    let long = bench.send(wait(60));
    bench.pass(Duration::from_secs(6));
    let answer = bench.answer(short);
    assert!(matches!(&answer.reply, Reply::Execution(v) if v.item.status.as_str() == "running"), "{answer:?}");
    let session = bench.register("w");
    let task = bench.take(session);
    bench.ask(Bench::poll_request(session, Some(vec![]), vec![Bench::result(&task.token, json!(1))]));
    let answer = bench.answer(long);
    assert!(matches!(&answer.reply, Reply::Execution(v) if v.item.status.as_str() == "completed"), "{answer:?}");
    assert_eq!(
        code(&bench.ask(Request::Wait { execution: "x".into(), timeout: Duration::from_secs(1) })),
        "UNKNOWN_EXECUTION"
    );
}

#[test]
fn a_stop_finishes_what_is_in_flight_takes_nothing_new_and_releases_last() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    let session = bench.register("w");
    let poll = bench.send(Bench::poll_request(session, Some(vec![]), vec![]));
    let other = bench.register("w2");
    let idle = bench.send(Bench::poll_request(other, Some(vec![]), vec![]));
    bench.start("Chain", "e0", json!({"n": 1}));
    let wait = bench.send(Request::Wait { execution: "e0".into(), timeout: Duration::from_secs(60) });
    bench.polled(poll);
    bench.hold = true;
    let start = bench.send_start("Chain", "e1", json!({"n": 1}));
    bench.give(Input::Stop);
    assert_eq!(bench.exit, None, "an append is in flight");
    assert_eq!(code(&bench.start("Chain", "e2", json!({"n": 1}))), "NOT_READY");
    assert_eq!(bench.answer(wait).status, 200);
    bench.release();
    assert_eq!(bench.answer(start).status, 201);
    bench.polled(idle);
    assert_eq!(bench.exit, Some(0));
    // Nobody waits for the registry of workers.
    assert_eq!(bench.ran.iter().rfind(|name| **name != "keep_workers"), Some(&"release"));
    assert!(matches!(bench.logs.last(), Some(LogEvent::Stopped { clean: true })));
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.hold = true;
    bench.send_start("Chain", "e", json!({"n": 1}));
    bench.give(Input::Stop);
    bench.pass(Duration::from_secs(11));
    assert_eq!(bench.exit, Some(0));
}

#[test]
fn a_stop_releases_after_a_deployment_that_nobody_waits_for_any_more() {
    let mut bench = Bench::new();
    bench.hold = true;
    let step = json!({"id": "t1", "task": "task.1"});
    let deploy = bench.send(Request::deploy(json!({"name": "Late", "version": "1", "steps": [step]})));
    bench.give(Input::RequestGone(deploy));
    bench.give(Input::Stop);
    let held: Vec<_> = bench.held.iter().map(|(_, transaction)| transaction.name()).collect();
    assert_eq!((bench.exit, held), (None, vec!["deploy"]), "it may still be written");
    bench.release();
    let written: Vec<_> = bench.ran.iter().filter(|name| ["deploy", "release"].contains(name)).copied().collect();
    assert_eq!((bench.exit, written), (Some(0), vec!["deploy", "release"]));
}

#[test]
fn a_server_that_waits_for_its_release_is_not_woken_by_what_only_one_that_serves_looks_at() {
    let mut bench = Bench::new();
    bench.deploy(json!({"name": "Nap", "version": "1", "steps": [{"id": "nap", "sleep": "2s"}]}));
    bench.start("Nap", "e", json!({}));
    bench.register("w");
    bench.silent = Some("release");
    bench.give(Input::Stop);
    // The execution's timer and the silence of the session pass, and nobody looks at them.
    bench.pass(Duration::from_secs(9));
    assert_eq!(bench.exit, None);
    bench.pass(Duration::from_secs(2));
    assert_eq!(bench.exit, Some(0));
}

pub fn take_over(bench: &mut Bench) {
    let addr = Some("http://m:7233".into());
    let holder = Holder { node_id: "m".into(), host: "h".into(), pid: 1, addr, since_ms: WallMs(0) };
    let incarnation = Incarnation(uuid::Uuid::from_u128(0xBAD));
    let mode = bench.config.role.mode();
    bench.run(Transaction::Campaign(Campaign::new(mode, incarnation, holder)));
}

#[test]
fn a_server_whose_fence_has_moved_writes_nothing_and_ends() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    take_over(&mut bench);
    let response = bench.start("Chain", "e", json!({"n": 1}));
    assert_eq!(code(&response), "FENCED");
    assert!(matches!(&response.reply, Reply::Error(e) if e.message.starts_with("fenced: ")), "{response:?}");
    assert_eq!(bench.exit, Some(1));
    assert!(bench.store.executions().is_empty());
}

#[test]
fn an_idle_server_notices_within_a_check_that_its_fence_has_moved() {
    let mut bench = Bench::new();
    take_over(&mut bench);
    bench.pass(Duration::from_millis(1100));
    assert_eq!(bench.exit, Some(1));
    assert!(bench.logs.iter().any(|line| matches!(line, LogEvent::FenceLost { .. })));
}

#[test]
fn what_is_asked_before_a_server_serves_is_refused_and_health_is_not() {
    let mut bench = Bench::new();
    bench.give(Input::Stop);
    bench.exit = None;
    let config = bench.config.clone();
    let now = orbit_core::time::Now { mono: orbit_core::time::Mono(0), wall: WallMs(0) };
    bench.node = orbit_core::node::Node::new(config, [9; 32], now);
    assert_eq!(code(&bench.ask(Request::ListWorkflows)), "NOT_READY");
    let health = bench.ask(Request::Health);
    assert_eq!(health.status, 200);
    let Reply::Health(health) = health.reply else { panic!("health") };
    assert_eq!((health.role.as_str(), health.node_id), ("single", None), "it is in no cluster");
    assert_eq!(bench.ask(Request::Ready).status, 503);
    assert_eq!(bench.ask(Request::Livez).status, 200);
    assert_eq!(bench.ask(Request::Leaderz).status, 503);
}

/// A schema is an object whose `const` must be the value.
struct Constants;

impl SchemaCheck for Constants {
    fn problems(&self, schema: &Value) -> Vec<Problem> {
        let missing = Problem {
            path: "".into(),
            offset: None,
            of_key: false,
            message: "no `const`".into(),
            hint: "add it".into(),
        };
        if schema.get("const").is_some() { vec![] } else { vec![missing] }
    }

    fn check(&self, _: &DefinitionHash, _: Boundary, schema: &Value, value: &Value) -> Result<(), Violation> {
        if schema["const"] == *value {
            return Ok(());
        }
        Err(Violation { path: "/x".into(), message: format!("{value} is not {}", schema["const"]) })
    }
}

#[test]
fn a_strict_deployment_refuses_a_definition_with_warnings_and_its_version_stays_free() {
    let mut bench = Bench::new();
    let deploy = |bench: &mut Bench, keyword: &str, strict| {
        let steps = json!([{"id": "one", "compute": 1}]);
        let document = json!({"name": "W", "version": "1", "input": {(keyword): ["a"]}, "steps": steps});
        bench.ask(Request::Deploy { document: Box::new(document), strict })
    };
    let refused = deploy(&mut bench, "requird", true);
    assert_eq!((code(&refused), refused.status), ("DEFINITION_WARNINGS", 422));
    let Reply::Error(error) = &refused.reply else { panic!("an error") };
    assert_eq!(error.details["problems"][0]["hint"], "did you mean `required`?");
    assert_eq!(deploy(&mut bench, "required", true).status, 201, "the version was not used up");
    let conflict = deploy(&mut bench, "requird", false);
    assert_eq!(code(&conflict), "DEFINITION_CONFLICT");
}

#[test]
fn schemas_are_checked_when_deployed_when_started_and_at_the_end() {
    let mut bench = Bench::new();
    let config = bench.config.clone();
    let now = orbit_core::time::Now { mono: orbit_core::time::Mono(0), wall: WallMs(0) };
    bench.node = orbit_core::node::Node::new(config, [9; 32], now).with_schemas(std::sync::Arc::new(Constants));
    bench.give(Input::Start);
    let workflow = |input: Value| {
        json!({"name": "W", "version": "1", "input": input, "output": {"const": 2},
               "steps": [{"id": "one", "compute": 1}], "result": "${ input.give }"})
    };
    let refused = bench.ask(Request::deploy(workflow(json!({}))));
    assert_eq!(code(&refused), "DEFINITION_INVALID");
    let Reply::Error(error) = &refused.reply else { panic!("an error") };
    assert_eq!(error.details["problems"][0]["path"], "/input");
    bench.deploy(workflow(json!({"const": {"give": 3}})));
    let refused = bench.start("W", "e", json!({"give": 1}));
    assert_eq!((code(&refused), refused.status), ("INPUT_INVALID", 422));
    let Reply::Error(error) = &refused.reply else { panic!("an error") };
    assert_eq!(error.details["path"], "input.x");
    assert_eq!(bench.start("W", "e", json!({"give": 3})).status, 201);
    let types = bench.history("e");
    let last = &types[types.len() - 2..];
    assert_eq!(last, ["ContractViolated", "WorkflowFailed"], "{types:?}");
    match bench.ask(Request::GetExecution("e".into())).reply {
        Reply::Execution(view) => assert_eq!(view.error.expect("it failed").code, "OUTPUT_CONTRACT_VIOLATION"),
        other => panic!("an execution, not {other:?}"),
    }
}

#[test]
fn a_server_whose_writes_fail_says_that_it_is_not_ready_until_they_do_not() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.hold = true;
    let start = bench.send_start("Chain", "e", json!({"n": 1}));
    let (call, _) = bench.held.pop_front().expect("the append");
    bench.give(Input::Store { call, reply: orbit_core::store::outcome::Reply::Unknown, origin: None });
    assert_eq!(bench.ask(Request::Ready).status, 503);
    assert_eq!(bench.ask(Request::Leaderz).status, 503);
    assert_eq!(bench.ask(Request::Readyz).status, 200, "it may be read all the same");
    bench.hold = false;
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.answer(start).status, 201);
    assert_eq!(bench.ask(Request::Ready).status, 200);
}

#[test]
fn a_repeated_start_is_answered_as_the_first_was_whatever_was_deployed_since() {
    let mut bench = Bench::new();
    let nap = |version: &str, input: Value| json!({"name": "Nap", "version": version, "input": input, "steps": [{"id": "nap", "sleep": "1h"}]});
    bench.deploy(nap("1", json!({"type": "number"})));
    assert_eq!(bench.start("Nap", "e", json!(1)).status, 201);
    bench.deploy(nap("2", json!({"type": "object"})));
    for _ in 0..2 {
        let again = bench.start("Nap", "e", json!(1));
        assert_eq!(again.status, 200, "{again:?}");
        assert!(matches!(&again.reply, Reply::Started(s) if !s.created && s.version.as_str() == "1"), "{again:?}");
        assert_eq!(code(&bench.start("Nap", "e", json!(2))), "EXECUTION_ID_CONFLICT");
        assert_eq!(code(&bench.start("Nap", "f", json!(1))), "INPUT_INVALID", "there is none of that id");
        assert_eq!(code(&bench.ask(Request::GetExecution("f".into()))), "UNKNOWN_EXECUTION");
        // The second time it is out of memory.
        bench.restart();
    }
    assert_eq!(bench.start("Nap", "f", json!({})).status, 201);
}
