//! Executions that are set aside, and released; histories whose definition is not known here.

use crate::bench::{Bench, code};
use orbit_core::api::Response;
use orbit_core::api::request::Request;
use orbit_core::api::response::Reply;
use orbit_core::cluster::{Role, Standby};
use orbit_core::node::LogEvent;
use orbit_core::store::append::TaskState;
use serde_json::json;

fn release(bench: &mut Bench, execution: &str) -> Response {
    bench.ask(Request::Release { execution: execution.into() })
}

fn told(response: &Response) -> &str {
    match &response.reply {
        Reply::Error(error) => &error.message,
        other => panic!("an error, not {other:?}"),
    }
}

fn set_aside(bench: &Bench) -> usize {
    bench.logs.iter().filter(|line| matches!(line, LogEvent::Quarantined { .. })).count()
}

/// A server that cannot read the history of `e`.
fn quarantined() -> Bench {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    bench.unreadable = Some("e".into());
    bench.restart();
    assert_eq!(bench.status("e"), "quarantined");
    bench
}

#[test]
fn one_that_can_be_read_again_goes_on_once_it_is_released() {
    let mut bench = quarantined();
    bench.unreadable = None;
    let released = release(&mut bench, "e");
    let Reply::Released(view) = &released.reply else { panic!("{released:?}") };
    assert_eq!((released.status, view.item.status.as_str()), (200, "running"));
    let session = bench.register("w");
    let task = bench.take(session);
    bench.ask(Bench::poll_request(session, Some(vec![]), vec![Bench::result(&task.token, json!(1))]));
    assert_eq!(bench.status("e"), "completed");
}

#[test]
fn one_that_still_cannot_be_read_is_set_aside_again_and_the_answer_says_why() {
    let mut bench = quarantined();
    let before = set_aside(&bench);
    let refused = release(&mut bench, "e");
    assert_eq!((code(&refused), refused.status), ("QUARANTINED", 409));
    assert_eq!(told(&refused), "execution e is quarantined: its history cannot be read: a row is no event");
    assert_eq!((bench.status("e"), set_aside(&bench)), ("quarantined".into(), before + 1));
    bench.unreadable = None;
    assert_eq!(release(&mut bench, "e").status, 200, "it may be tried as often as one likes");
}

#[test]
fn only_what_is_quarantined_is_released() {
    let mut bench = quarantined();
    bench.start("Chain", "other", json!({"n": 1}));
    assert_eq!(code(&release(&mut bench, "other")), "NOT_QUARANTINED");
    assert_eq!(code(&release(&mut bench, "nobody")), "UNKNOWN_EXECUTION");
}

#[test]
fn a_release_that_the_database_does_not_let_through_may_be_repeated() {
    let mut bench = quarantined();
    bench.unreadable = None;
    bench.fail = Some("load");
    assert_eq!(code(&release(&mut bench, "e")), "STORAGE_ERROR");
    bench.pass(std::time::Duration::from_secs(2));
    assert_eq!(bench.status("e"), "running", "it is not forgotten");
}

#[test]
fn a_task_that_was_claimed_while_its_execution_was_set_aside_is_handed_out_once_that_is_released() {
    let mut bench = quarantined();
    let session = bench.register("w");
    let poll = bench.send(Bench::poll_request(session, Some(vec![]), vec![]));
    assert!(!bench.responses.contains_key(&poll), "nobody gets it");
    let states: Vec<TaskState> = bench.store.tasks().map(|task| task.state).collect();
    assert!(matches!(states[..], [TaskState::Claimed { .. }]), "{states:?}");
    bench.unreadable = None;
    assert_eq!(release(&mut bench, "e").status, 200);
    assert_eq!(bench.polled(poll).tasks.len(), 1);
}

/// Seed 1837: a leader that stood still is given a cancel of an execution that its successor started, by a definition that
/// its successor deployed.
#[test]
fn a_deposed_leader_reads_the_definitions_again_before_it_sets_an_execution_of_its_successor_aside() {
    let cluster = || Bench::with(|config| config.role = Role::Standby(Standby::default()));
    let mut deposed = cluster();
    let mut successor = cluster();
    successor.store = deposed.store.clone();
    successor.restart();
    successor.deploy_chain(1);
    successor.start("Chain", "e", json!({"n": 1}));
    deposed.store = successor.store.clone();
    let answer = deposed.ask(Request::Cancel { execution: "e".into(), reason: None });
    assert_eq!(code(&answer), "FENCED", "{answer:?}");
    assert_eq!(set_aside(&deposed), 0, "{:?}", deposed.logs);
    assert!(deposed.ran.contains(&"definitions"), "{:?}", deposed.ran);
}

#[test]
fn one_whose_definition_is_nowhere_is_set_aside_and_goes_on_once_that_is_there() {
    let mut bench = Bench::new();
    bench.deploy_chain(1);
    bench.start("Chain", "e", json!({"n": 1}));
    bench.store.forget_definitions();
    bench.restart();
    assert_eq!(bench.view("e").reason.as_deref(), Some("its definition Chain 1 cannot be read"));
    assert_eq!(code(&release(&mut bench, "e")), "QUARANTINED");
    // The same content is deployed again.
    bench.deploy_chain(1);
    assert_eq!(release(&mut bench, "e").status, 200);
    assert_eq!(bench.status("e"), "running");
}
