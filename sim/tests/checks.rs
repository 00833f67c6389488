//! Checks that no planted mistake sets off are shown to bite here.

use orbit_core::definition::Definition;
use orbit_core::execution::event::{Event, Recorded};
use orbit_core::id::{ClusterId, ExecutionId, GroupId, Incarnation, Run, Seq, Term};
use orbit_core::node::LogEvent;
use orbit_core::store::append::*;
use orbit_core::time::ClusterMs;
use orbit_sim::check::log::{self, Excuses};
use orbit_sim::check::{Checked, Checks, Committed};
use orbit_sim::coverage::Coverage;
use orbit_sim::store::{Change, Commit, ModelStore};
use orbit_sim::world::book::Book;
use orbit_sim::world::clock::Time;
use serde_json::{Value, json};
use uuid::Uuid;

fn document() -> Value {
    json!({"name": "Nap", "version": "1", "steps": [{"id": "nap", "sleep": "1s"}]})
}

fn fence(term: u64) -> Fence {
    Fence { term: Term(term), incarnation: Incarnation(Uuid::from_u128(term.into())) }
}

/// Feeds one commit to the checks.
fn feed(checks: &mut Checks, change: Change) -> Checked {
    let store = ModelStore::new(ClusterId(Uuid::nil()));
    let book = Book::new(vec![document()]);
    let commit = Commit { transaction: "append", changes: vec![change] };
    let committed = Committed { commit: &commit, store: &store, book: &book, steady_clock: false };
    checks.on_commit(&committed, &mut Coverage::default())
}

fn raised(before: u64, after: u64) -> Change {
    Change::FenceRaised { before: fence(before), after: fence(after) }
}

/// An append of these events to the execution `x`, which is new.
fn append(term: u64, events: Vec<(u64, i64, Event)>) -> Change {
    let store = |(seq, at, event)| {
        let recorded = Recorded { seq: Seq(seq), at_ms: ClusterMs(at), event };
        StoredEvent { run: Run(1), seq: recorded.seq, at_ms: recorded.at_ms, bytes: recorded.encode() }
    };
    let member = Member {
        execution: ExecutionId::new("x"),
        expect: Expect::New { run: Run(1), root: ExecutionId::new("x") },
        events: events.into_iter().map(store).collect(),
        summary: None,
        owner: OwnerChange::Keep,
    };
    let group = Group { id: GroupId(Uuid::from_u128(1)), members: vec![member], tasks: Vec::new() };
    Change::Group { fence: fence(term), group, repeated: false }
}

fn created() -> Event {
    let definition = Definition::from_document(&document()).expect("a right definition");
    Event::WorkflowCreated {
        workflow: definition.name,
        version: definition.version,
        definition_hash: definition.hash,
        input: Value::Null.into(),
        labels: Default::default(),
        cluster_id: ClusterId(Uuid::nil()),
        run: Run(1),
        parent: None,
        continued: None,
    }
}

fn message(checked: Checked) -> String {
    checked.expect_err("the check finds it").message
}

#[test]
fn a_write_of_an_older_term_after_a_newer_one_began_is_found() {
    let mut checks = Checks::default();
    feed(&mut checks, raised(0, 1)).unwrap();
    feed(&mut checks, raised(1, 2)).unwrap();
    assert!(message(feed(&mut checks, append(1, Vec::new()))).contains("term 1 wrote after term 2 began"));
}

#[test]
fn a_term_that_is_handed_out_twice_is_found() {
    let mut checks = Checks::default();
    feed(&mut checks, raised(0, 5)).unwrap();
    assert!(message(feed(&mut checks, raised(4, 5))).contains("term 5 had been reached"));
}

#[test]
fn gaps_time_that_goes_back_and_events_behind_the_end_are_found() {
    let broken = |events| {
        let mut checks = Checks::default();
        feed(&mut checks, raised(0, 1)).unwrap();
        message(feed(&mut checks, append(1, events)))
    };
    let gap = vec![(1, 5, created()), (3, 5, Event::WorkflowStarted)];
    assert!(broken(gap).contains("x#3 follows #1"));
    let back = vec![(1, 5, created()), (2, 4, Event::WorkflowStarted)];
    assert!(broken(back).contains("time went back"));
    let behind = vec![
        (1, 5, created()),
        (2, 5, Event::TerminateRequested { reason: None }),
        (3, 5, Event::WorkflowTerminated { unconsumed: Vec::new() }),
        (4, 5, Event::WorkflowStarted),
    ];
    assert!(broken(behind).contains("comes after the end"));
    let begins = vec![(1, 5, Event::WorkflowStarted)];
    assert!(broken(begins).contains("x begins with"));
}

#[test]
fn a_timer_that_fires_early_or_was_never_started_is_found() {
    let fired = |at, started: Option<i64>| {
        let mut checks = Checks::default();
        feed(&mut checks, raised(0, 1)).unwrap();
        let timer = started.map(|fire| Event::TimerStarted { step: "nap".into(), fire_at_ms: ClusterMs(fire) });
        let fired = Event::TimerFired { step: "nap".into() };
        let events = [Some(created()), Some(Event::WorkflowStarted), timer, Some(fired)];
        let numbered = events.into_iter().flatten().zip(1..).map(|(event, seq)| (seq, at, event)).collect();
        message(feed(&mut checks, append(1, numbered)))
    };
    assert!(fired(1_004, Some(1_005)).contains("due at"));
    assert!(fired(1_004, None).contains("has no timer"));
}

#[test]
fn an_error_line_is_excused_by_its_fault_alone() {
    let lost = LogEvent::FenceLost { held: Term(1), current: Term(2) };
    let usurped = Excuses { usurped: true, database: false };
    let database = Excuses { usurped: false, database: true };
    assert!(log::on_line(&lost, usurped).is_ok());
    assert!(log::on_line(&lost, database).is_err());
    assert!(log::on_line(&LogEvent::Stopping, Excuses::default()).is_ok());
    let unservable = LogEvent::Unservable { message: String::new() };
    assert!(log::on_line(&unservable, database).is_ok());
    assert!(log::on_line(&unservable, usurped).is_err());
}

#[test]
fn a_loop_without_a_pause_is_found() {
    let mut checks = Checks::default();
    let mut later = Checks::default();
    assert!((0..2_000).any(|_| checks.pace.on_wake(Time(7)).is_err()));
    assert!((0..2_000).all(|n| later.pace.on_wake(Time(n)).is_ok()));
    assert!((0..2_000).any(|n| checks.pace.on_failure(Time(n)).is_err()));
    assert!((0..2_000).all(|n| later.pace.on_failure(Time(n * 20_000)).is_ok()));
}
