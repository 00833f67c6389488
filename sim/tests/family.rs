//! The check of parents and children bites: what no planted mistake does is shown to it here.

use orbit_core::definition::Definition;
use orbit_core::execution::event::{Continued, Event, Parent, Recorded, TaskError};
use orbit_core::id::{ClusterId, ExecutionId, GroupId, Incarnation, Run, Seq};
use orbit_core::store::append::{Expect, Fence, Group, Member, OwnerChange, StoredEvent};
use orbit_core::time::ClusterMs;
use orbit_sim::check::family::{Bounds, FamilyCheck};
use orbit_sim::check::{Checked, Committed};
use orbit_sim::coverage::Coverage;
use orbit_sim::store::{Change, Commit, ModelStore};
use orbit_sim::world::book::Book;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use uuid::Uuid;

fn documents() -> Vec<Value> {
    vec![
        json!({"name": "Parent", "version": "1", "steps": [
            {"id": "run", "workflow": "Child", "input": 7, "timeout": "1s", "retry": {"max_attempts": 2}},
            {"id": "nap", "sleep": "1s", "after": []}]}),
        json!({"name": "Child", "version": "1", "steps": [{"id": "nap", "sleep": "1s"}]}),
    ]
}

/// What is appended by and by, and what the check says of it.
struct Told {
    check: FamilyCheck,
    book: Book,
    lengths: BTreeMap<&'static str, u64>,
}

impl Told {
    fn new() -> Told {
        let check = FamilyCheck::new(Bounds { max_children: 1, max_depth: 1 });
        Told { check, book: Book::new(documents()), lengths: Default::default() }
    }

    /// A group of these.
    fn group(&mut self, members: &[(&'static str, Vec<Event>)]) -> Checked {
        let mut all = Vec::new();
        for (execution, events) in members {
            let length = self.lengths.entry(execution).or_default();
            let store = |event: &Event| {
                *length += 1;
                let recorded = Recorded { seq: Seq(*length), at_ms: ClusterMs(5), event: event.clone() };
                StoredEvent { run: Run(1), seq: recorded.seq, at_ms: recorded.at_ms, bytes: recorded.encode() }
            };
            all.push(Member {
                execution: ExecutionId::new(*execution),
                expect: Expect::New { run: Run(1), root: ExecutionId::new("p") },
                events: events.iter().map(store).collect(),
                summary: None,
                owner: OwnerChange::Keep,
            });
        }
        let group = Group { id: GroupId(Uuid::from_u128(1)), members: all, tasks: Vec::new() };
        let fence = Fence { term: Default::default(), incarnation: Incarnation(Uuid::nil()) };
        let change = Change::Group { fence, owner: None, group, repeated: false };
        let commit = Commit { transaction: "append", changes: vec![change] };
        let store = ModelStore::new(ClusterId(Uuid::nil()));
        let committed = Committed::alone(&commit, &store, &self.book, true);
        self.check.on_commit(&committed, &mut Coverage::default())
    }

    /// Of a parent whose child runs.
    fn running() -> Told {
        let mut told = Told::new();
        let parent = vec![created("Parent", 0, None), scheduled(), started("p~run", 1)];
        assert_eq!(told.group(&[("p", parent), ("p~run", vec![child("run", 7)])]), Ok(()));
        told
    }
}

fn wrong(checked: Checked) -> String {
    checked.expect_err("the check finds it").message
}

fn created(workflow: &str, input: i64, parent: Option<Parent>) -> Event {
    run(Run(1), workflow, input, parent)
}

/// The first event of a run.
fn run(run: Run, workflow: &str, input: i64, parent: Option<Parent>) -> Event {
    let document = documents().into_iter().find(|document| document["name"] == workflow).expect("one of these");
    let definition = Definition::from_document(&document).expect("a right definition");
    Event::WorkflowCreated {
        workflow: definition.name,
        version: definition.version,
        definition_hash: definition.hash,
        input: json!(input).into(),
        labels: Default::default(),
        cluster_id: ClusterId(Uuid::nil()),
        run,
        parent,
        continued: (run != Run(1)).then(|| Continued {
            created_at_ms: ClusterMs(5),
            started_with: None,
            sent: Default::default(),
        }),
    }
}

fn child(step: &str, given: i64) -> Event {
    let parent = Parent { execution_id: "p".into(), step: step.into(), root: "p".into(), depth: 1 };
    created("Child", given, Some(parent))
}

fn scheduled_as(child: &str, attempt: u32, workflow: &str, input: i64) -> Event {
    let (child, workflow) = (child.into(), workflow.into());
    Event::ChildScheduled { step: "run".into(), attempt, child, workflow, version: None, input: json!(input).into() }
}

fn scheduled() -> Event {
    scheduled_as("p~run", 1, "Child", 7)
}

fn started(child: &str, attempt: u32) -> Event {
    let (step, version) = ("run".into(), "1".into());
    Event::ChildStarted { step, attempt, child: child.into(), version, deadline_ms: None }
}

fn well(output: i64) -> Event {
    Event::ChildCompleted { step: "run".into(), attempt: 1, child: "p~run".into(), output: json!(output).into() }
}

fn badly(code: &str) -> Event {
    let error = TaskError::retryable(code, "");
    Event::ChildFailed { step: "run".into(), attempt: 1, child: "p~run".into(), error }
}

fn completed(output: i64) -> Event {
    Event::WorkflowCompleted { output: json!(output).into(), unconsumed: Vec::new() }
}

fn cancelled() -> Event {
    Event::WorkflowCancelled { compensation: None, unconsumed: Vec::new() }
}

fn asked(timed_out: bool) -> Event {
    Event::ChildEndRequested { step: "run".into(), child: "p~run".into(), terminate: false, timed_out }
}

#[test]
fn a_child_that_does_not_begin_with_its_parent_s_word_or_as_it_was_scheduled_is_found() {
    let begins = |scheduled: Event, others: Vec<(&'static str, Vec<Event>)>| {
        let parent = vec![created("Parent", 0, None), scheduled, started("p~run", 1)];
        let members: Vec<_> = [("p", parent)].into_iter().chain(others).collect();
        Told::new().group(&members)
    };
    assert!(wrong(begins(scheduled(), vec![])).contains("is not there"));
    assert!(wrong(begins(scheduled(), vec![("p~run", vec![child("run", 8)])])).contains("what was scheduled is 7"));
    assert!(wrong(begins(scheduled(), vec![("p~run", vec![child("nap", 7)])])).contains("as its parent"));
    let other = scheduled_as("p~other", 1, "Child", 7);
    assert!(wrong(begins(other, vec![])).contains("not p~run"));
    let other = scheduled_as("p~run", 1, "Parent", 7);
    assert!(wrong(begins(other, vec![])).contains("the definition says"));
    let mut alone = Told::new();
    assert_eq!(alone.group(&[("p", vec![created("Parent", 0, None), scheduled()])]), Ok(()));
    assert!(wrong(alone.group(&[("p~run", vec![child("run", 7)])])).contains("no parent says so"));
}

#[test]
fn a_child_that_ends_alone_twice_or_otherwise_than_its_parent_says_is_found() {
    let ends = |parent: Vec<Event>, child: Vec<Event>| Told::running().group(&[("p", parent), ("p~run", child)]);
    assert_eq!(ends(vec![well(1)], vec![completed(1)]), Ok(()));
    assert!(wrong(ends(vec![well(2)], vec![completed(1)])).contains("in the same transaction"));
    assert!(wrong(ends(vec![], vec![completed(1)])).contains("its parent does not say so"));
    assert!(wrong(ends(vec![well(1)], vec![])).contains("ends as None"));
    assert!(wrong(ends(vec![badly("CHILD_TIMED_OUT")], vec![cancelled()])).contains("in the same transaction"));
    assert_eq!(ends(vec![badly("CHILD_CANCELLED")], vec![cancelled()]), Ok(()));
    assert_eq!(ends(vec![asked(true), badly("TIMEOUT")], vec![cancelled()]), Ok(()));
    assert!(wrong(ends(vec![asked(false), badly("TIMEOUT")], vec![cancelled()])).contains("in the same transaction"));
    let mut twice = Told::running();
    assert_eq!(twice.group(&[("p", vec![well(1)]), ("p~run", vec![completed(1)])]), Ok(()));
    assert!(wrong(twice.group(&[("p", vec![well(1)])])).contains("a second time"));
}

#[test]
fn a_child_that_outlives_its_parent_or_ends_for_a_wish_that_it_never_had_is_found() {
    assert!(wrong(Told::running().group(&[("p", vec![cancelled()])])).contains("a child of it runs"));
    let step_ends = Event::StepCancelled { step: "run".into() };
    assert!(wrong(Told::running().group(&[("p", vec![step_ends])])).contains("its child runs"));
    let wish = Event::CancelRequested { reason: Some("its parent is ending".into()) };
    assert!(wrong(Told::running().group(&[("p~run", vec![wish.clone()])])).contains("did not ask for it"));
    let mut asks = Told::running();
    assert_eq!(asks.group(&[("p", vec![asked(false)])]), Ok(()));
    assert_eq!(asks.group(&[("p~run", vec![wish])]), Ok(()));
    assert!(wrong(asks.group(&[("p", vec![asked(true)])])).contains("once more"));
}

#[test]
fn a_child_that_continues_as_new_stays_the_child_that_it_was() {
    let parent = || Some(Parent { execution_id: "p".into(), step: "run".into(), root: "p".into(), depth: 1 });
    let continues = |told: &mut Told, parent: Option<Parent>| {
        let goes_on = Event::WorkflowContinuedAsNew { input: json!(8).into(), next_run: Run(2) };
        told.group(&[("p~run", vec![goes_on, run(Run(2), "Child", 8, parent)])])
    };
    let mut told = Told::running();
    assert_eq!(continues(&mut told, parent()), Ok(()));
    assert_eq!(told.group(&[("p", vec![well(1)]), ("p~run", vec![completed(1)])]), Ok(()));
    assert!(wrong(continues(&mut Told::running(), None)).contains("has another parent"));
}

#[test]
fn more_or_deeper_children_than_are_allowed_and_refusals_without_a_reason_are_found() {
    let mut second = Told::running();
    let fails = Event::WorkflowFailed { error: TaskError::retryable("X", ""), compensation: None, unconsumed: vec![] };
    assert_eq!(second.group(&[("p", vec![badly("X")]), ("p~run", vec![fails])]), Ok(()));
    let again = vec![scheduled_as("p~run.2", 2, "Child", 7), started("p~run.2", 2)];
    assert!(
        wrong(second.group(&[("p", again), ("p~run.2", vec![child("run", 7)])])).contains("2 children are started")
    );
    let refused = |code: &str| {
        let mut told = Told::new();
        assert_eq!(told.group(&[("p", vec![created("Parent", 0, None)])]), Ok(()));
        told.group(&[("p", vec![scheduled(), badly(code)])])
    };
    assert_eq!(refused("UNKNOWN_WORKFLOW"), Ok(()), "nobody was told that it is deployed");
    assert!(wrong(refused("LIMIT_EXCEEDED")).contains("nothing is in its way"));
    assert!(wrong(refused("INPUT_CONTRACT_VIOLATION")).contains("nothing is in its way"));
    assert!(wrong(refused("WHATEVER")).contains("nothing is in its way"));
}
