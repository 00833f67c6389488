//! Checks that no planted mistake sets off are shown to bite here.

use orbit_core::api::Request;
use orbit_core::api::request::Message;
use orbit_core::definition::Definition;
use orbit_core::execution::event::{AbortReason, Carried, Continued, Event, Recorded, TaskError};
use orbit_core::id::{
    CallKey, ClusterId, ExecutionId, GroupId, Incarnation, Run, Seq, SessionId, Term, Token, UnitKey,
};
use orbit_core::node::LogEvent;
use orbit_core::store::append::*;
use orbit_core::store::outcome::{Failure, FailureKind, Reply};
use orbit_core::store::statement::{DefinitionRow, PutDefinition};
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_core::time::ClusterMs;
use orbit_sim::check::course::Course;
use orbit_sim::check::interpreter::{self, Limits};
use orbit_sim::check::log::{self, Excuses};
use orbit_sim::check::signal::SignalCheck;
use orbit_sim::check::verdict::{Asked, VerdictCheck};
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
    feed_with(checks, change, &Book::new(vec![document()]))
}

fn feed_with(checks: &mut Checks, change: Change, book: &Book) -> Checked {
    let store = deployed(book);
    let commit = Commit { transaction: "append", changes: vec![change] };
    let committed = Committed::alone(&commit, &store, book, false);
    checks.on_commit(&committed, &mut Coverage::default())
}

/// A database in which every definition of the book is deployed.
fn deployed(book: &Book) -> ModelStore {
    let mut store = ModelStore::new(ClusterId(Uuid::nil()));
    for (definition, number) in book.definitions().zip(0..) {
        let key = CallKey(Uuid::from_u128(number));
        let (name, version, hash) = (definition.name.clone(), definition.version.clone(), definition.hash.clone());
        let row = DefinitionRow { name, version, hash, document: Value::Null, created_at_ms: ClusterMs(0) };
        store.run(Transaction::Deploy(Box::new(PutDefinition { key, fence: store.fence(), definition: row })));
    }
    store
}

fn raised(before: u64, after: u64) -> Change {
    Change::FenceRaised { before: fence(before), after: fence(after) }
}

/// An append of these events to the execution `x`, which is new.
fn append(term: u64, events: Vec<(u64, i64, Event)>) -> Change {
    append_runs(term, events.into_iter().map(|(seq, at, event)| (1, seq, at, event)).collect())
}

/// The same, with the run of each event.
fn append_runs(term: u64, events: Vec<(u32, u64, i64, Event)>) -> Change {
    let store = |(run, seq, at, event)| {
        let recorded = Recorded { seq: Seq(seq), at_ms: ClusterMs(at), event };
        StoredEvent { run: Run(run), seq: recorded.seq, at_ms: recorded.at_ms, bytes: recorded.encode() }
    };
    let member = Member {
        execution: ExecutionId::new("x"),
        expect: Expect::New { run: Run(1), root: ExecutionId::new("x") },
        events: events.into_iter().map(store).collect(),
        summary: None,
        owner: OwnerChange::Keep,
    };
    let group = Group { id: GroupId(Uuid::from_u128(1)), members: vec![member], tasks: Vec::new() };
    Change::Group { fence: fence(term), owner: None, group, repeated: false }
}

fn created() -> Event {
    created_of(&document())
}

fn created_of(document: &Value) -> Event {
    let definition = Definition::from_document(document).expect("a right definition");
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
    let usurped = Excuses { usurped: true, ..Excuses::default() };
    let database = Excuses { database: true, ..Excuses::default() };
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
    assert!((0..2_000).all(|n| later.pace.on_wake(Time(n * 10_000)).is_ok()));
    // A deadline that is over, and that nobody looks at.
    let mut spins = Checks::default();
    assert!((0..4_000).any(|n| spins.pace.on_wake(Time(n * 500)).is_err()));
    assert!((0..2_000).any(|n| checks.pace.on_failure(Time(n)).is_err()));
    assert!((0..2_000).all(|n| later.pace.on_failure(Time(n * 20_000)).is_ok()));
}

/// A workflow that takes what it is sent, twice, and gives a list.
fn taking() -> Value {
    json!({"name": "Take", "version": "1", "signals": {"go": {}}, "steps": [
        {"id": "first", "await": "go", "timeout": "1h"},
        {"id": "then", "await": "go"},
        {"id": "count", "compute": "${ steps.first.output.n + steps.then.output.n }"},
        {"id": "act", "task": "t", "after": [], "compensate": {"task": "undo"}},
    ], "result": "${ steps.count.output }"})
}

/// Events from the first on, all at one time.
fn numbered(events: Vec<Event>) -> Vec<(u64, i64, Event)> {
    events.into_iter().zip(1..).map(|(event, seq)| (seq, 5, event)).collect()
}

fn message_of(n: u64, key: Option<&str>) -> Message {
    Message { name: "go".into(), payload: json!({ "n": n }).into(), key: key.map(Into::into) }
}

fn received(n: u64, key: Option<&str>) -> Event {
    let Message { name, payload, key } = message_of(n, key);
    Event::SignalReceived { signal: name, payload, signal_id: key, carried: None }
}

fn consumed(step: &str, seq: u64) -> Event {
    Event::SignalConsumed { step: step.into(), signal: "go".into(), received: Seq(seq) }
}

/// What the check of signals says of a history after these were sent.
fn signals(sent: &[Message], events: Vec<Event>) -> Checked {
    signals_of(&taking(), sent, events)
}

fn signals_of(document: &Value, sent: &[Message], events: Vec<Event>) -> Checked {
    let mut book = Book::new(vec![document.clone()]);
    for message in sent {
        book.asked(&Request::Signal { execution: "x".into(), signal: message.clone() });
    }
    let mut checks = Checks::default();
    feed(&mut checks, raised(0, 1)).unwrap();
    let events = [created_of(document), Event::WorkflowStarted].into_iter().chain(events).collect();
    let change = append(1, numbered(events));
    // The tables are empty: what the check of histories says of that is not asked here.
    let _ = feed_with(&mut checks, change.clone(), &book);
    let store = deployed(&book);
    let commit = Commit { transaction: "append", changes: vec![change] };
    let committed = Committed::alone(&commit, &store, &book, false);
    SignalCheck::default().on_commit(&committed, &checks.history, &mut Coverage::default())
}

#[test]
fn signals_that_nobody_sent_that_come_twice_or_are_taken_out_of_order_are_found() {
    let (one, two) = (message_of(1, Some("a")), message_of(2, Some("b")));
    let both = [one.clone(), two.clone()];
    assert_eq!(signals(&both, vec![received(1, Some("a")), received(2, Some("b")), consumed("first", 3)]), Ok(()));
    assert!(message(signals(std::slice::from_ref(&one), vec![received(2, Some("b"))])).contains("nobody sent"));
    assert!(message(signals(std::slice::from_ref(&one), vec![received(1, None)])).contains("what was sent is"));
    let twice = vec![received(1, Some("a")), received(1, Some("a"))];
    assert!(message(signals(std::slice::from_ref(&one), twice)).contains("recorded a second time"));
    let same_id = [one, message_of(2, Some("a"))];
    let twice = vec![received(1, Some("a")), received(2, Some("a"))];
    assert!(message(signals(&same_id, twice)).contains("was taken in as"));
    let out_of_order = vec![received(1, Some("a")), received(2, Some("b")), consumed("first", 4)];
    assert!(message(signals(&both, out_of_order)).contains("the oldest that waits is Some(Seq(3))"));
    let left = vec![
        received(1, Some("a")),
        Event::TerminateRequested { reason: None },
        Event::WorkflowTerminated { unconsumed: Vec::new() },
    ];
    assert!(message(signals(&both, left)).contains("nothing took"));
}

#[test]
fn an_item_that_takes_a_signal_while_an_earlier_one_waits_is_found() {
    let document = json!({"name": "Items", "version": "1", "signals": {"go": {}}, "steps": [
        {"id": "all", "for": [1, 2], "do": {"await": "go"}}]});
    let awaited = |step: &str| Event::SignalAwaited { step: step.into(), signal: "go".into(), deadline_ms: None };
    let taken_by = |step: &str| {
        let fan = Event::StepFanOut { step: "all".into(), items: vec![json!(1).into(), json!(2).into()] };
        let events = vec![fan, awaited("all[0]"), awaited("all[1]"), received(1, None), consumed(step, 6)];
        signals_of(&document, &[message_of(1, None)], events)
    };
    assert_eq!(taken_by("all[0]"), Ok(()));
    assert!(message(taken_by("all[1]")).contains("takes a signal while"));
}

/// A workflow that takes one signal in a run, and has three runs.
fn looping() -> Value {
    json!({"name": "Loop", "version": "1", "signals": {"go": {}}, "steps": [
        {"id": "nap", "sleep": "0s"},
        {"id": "first", "await": "go"},
        {"id": "again", "when": "${ execution.run < 3 }", "continue_as_new": "${ steps.first.output }"}]})
}

/// The first run of it takes one of two signals, and continues as new.
fn first_run() -> Vec<(u32, u64, i64, Event)> {
    let input = json!({"n": 1}).into();
    let events = vec![
        created_of(&looping()),
        Event::WorkflowStarted,
        Event::TimerStarted { step: "nap".into(), fire_at_ms: ClusterMs(5) },
        received(1, Some("a")),
        received(2, Some("b")),
        Event::TimerFired { step: "nap".into() },
        consumed("first", 4),
        Event::WorkflowContinuedAsNew { input, next_run: Run(2) },
    ];
    numbered(events).into_iter().map(|(seq, at, event)| (1, seq, at, event)).collect()
}

/// What the next run begins with.
fn begins(input: Value, created: i64) -> Event {
    let left = Continued { created_at_ms: ClusterMs(created), started_with: None, sent: Default::default() };
    match created_of(&looping()) {
        Event::WorkflowCreated { workflow, version, definition_hash, labels, cluster_id, parent, .. } => {
            let (input, run, continued) = (input.into(), Run(2), Some(left));
            Event::WorkflowCreated {
                workflow,
                version,
                definition_hash,
                input,
                labels,
                cluster_id,
                run,
                parent,
                continued,
            }
        }
        other => panic!("a first event, not {other:?}"),
    }
}

fn comes_again(n: u64, seq: u64) -> Event {
    let Message { name, payload, .. } = message_of(n, None);
    let carried = Some(Carried { run: Run(1), seq: Seq(seq) });
    Event::SignalReceived { signal: name, payload, signal_id: None, carried }
}

/// What the checks of histories and of signals say of the first run and what follows it, in one group.
fn runs(second: Vec<(u32, u64, i64, Event)>) -> (Checked, Checked) {
    let mut book = Book::new(vec![looping()]);
    for message in [message_of(1, Some("a")), message_of(2, Some("b"))] {
        book.asked(&Request::Signal { execution: "x".into(), signal: message });
    }
    let mut checks = Checks::default();
    feed(&mut checks, raised(0, 1)).unwrap();
    let change = append_runs(1, first_run().into_iter().chain(second).collect());
    let store = deployed(&book);
    let commit = Commit { transaction: "append", changes: vec![change] };
    let committed = Committed::alone(&commit, &store, &book, false);
    let histories = checks.history.on_commit(&committed, &mut Coverage::default());
    let signals = SignalCheck::default().on_commit(&committed, &checks.history, &mut Coverage::default());
    (histories, signals)
}

#[test]
fn runs_that_do_not_follow_each_other_and_signals_that_are_lost_between_them_are_found() {
    let input = || json!({"n": 1});
    let second =
        |events: Vec<Event>| numbered(events).into_iter().map(|(seq, at, event)| (2, seq, at, event)).collect();
    // The tables are empty, which is found only where everything else holds.
    let of = |events| message(runs(second(events)).0);
    assert!(of(vec![begins(input(), 5), comes_again(2, 5)]).contains("its row says None"));
    assert!(message(runs(Vec::new()).0).contains("the next run did not begin with it"));
    assert!(of(vec![begins(json!({"n": 2}), 5)]).contains("what the one before left to it is"));
    assert!(of(vec![begins(input(), 4)]).contains("what the one before left to it is"));
    assert!(of(vec![created_of(&looping())]).contains("it says that it begins run 1"));
    assert!(of(vec![Event::WorkflowStarted]).contains("x begins with"));
    let third = vec![(3, 1, 5, begins(input(), 5))];
    assert!(message(runs(third).0).contains("is of run 3, and 2 goes on"));
    let finished = vec![(1, 9, 5, Event::WorkflowStarted)];
    assert!(message(runs(finished).0).contains("is of run 1, and 2 goes on"));
    let early = vec![(2, 1, 4, begins(input(), 5))];
    assert!(message(runs(early).0).contains("time went back"));

    let of = |events| runs(second(events)).1;
    assert_eq!(of(vec![begins(input(), 5), comes_again(2, 5), Event::WorkflowStarted]), Ok(()));
    assert!(message(of(vec![begins(input(), 5)])).contains("begins without"));
    assert!(message(of(vec![begins(input(), 5), Event::WorkflowStarted])).contains("begins without"));
    assert!(message(of(vec![begins(input(), 5), comes_again(2, 4)])).contains("comes again from #4"));
    assert!(message(of(vec![begins(input(), 5), comes_again(1, 4)])).contains("the run before left []"));
    let twice = vec![begins(input(), 5), comes_again(2, 5), comes_again(2, 5)];
    assert!(message(of(twice)).contains("the run before left []"));
    let again = vec![begins(input(), 5), comes_again(2, 5), received(2, Some("b"))];
    assert!(message(of(again)).contains("recorded a second time"));
}

#[test]
fn a_run_that_continues_otherwise_than_its_definition_says_is_found_by_the_interpreter() {
    let ends = |input: Value| {
        let mut checks = Checks::default();
        let book = Book::new(vec![looping()]);
        feed(&mut checks, raised(0, 1)).unwrap();
        let mut events = first_run();
        events[7].3 = Event::WorkflowContinuedAsNew { input: input.clone().into(), next_run: Run(2) };
        events.extend([(2, 1, 5, begins(input, 5)), (2, 2, 5, comes_again(2, 5))]);
        let _ = feed_with(&mut checks, append_runs(1, events), &book);
        let limits = Limits { max_payload: 1_000, max_fan_out: 10 };
        let id = ExecutionId::new("x");
        interpreter::check(&id, checks.history.runs(&id).expect("it was taken in"), limits)
    };
    assert_eq!(ends(json!({"n": 1})), Ok(()));
    assert!(message(ends(json!({"n": 2}))).contains("and by the definition: Some"));
}

/// What the check of courses says of a history.
fn course(events: Vec<Event>) -> String {
    let definition = Definition::from_document(&taking()).expect("a right definition");
    let mut course = Course::default();
    let mut marks = Coverage::default();
    let mut all = [created_of(&taking()), Event::WorkflowStarted].into_iter().chain(events);
    message(all.try_for_each(|event| course.on_event("x", &definition, &event, &mut marks)))
}

#[test]
fn what_goes_on_or_is_left_undone_while_an_execution_winds_down_is_found() {
    let scheduled = |step: &str| Event::StepScheduled {
        step: step.into(),
        attempt: 1,
        input: Value::Null.into(),
        idempotency_key: "k".into(),
        redelivery: false,
    };
    let succeeded =
        |step: &str| Event::StepSucceeded { step: step.into(), attempt: 1, output: Value::Null.into(), token: None };
    let cancel = || Event::CancelRequested { reason: None };
    let cancelled = || Event::WorkflowCancelled { compensation: None, unconsumed: Vec::new() };
    assert!(course(vec![cancel(), scheduled("act")]).contains("goes on though it winds down"));
    assert!(course(vec![scheduled("compensate:act")]).contains("cleans up, and nothing winds down"));
    assert!(course(vec![scheduled("act"), cancel(), cancelled()]).contains("are under way"));
    let done = || vec![scheduled("act"), succeeded("act"), cancel()];
    let with = |more: Vec<Event>| course(done().into_iter().chain(more).collect());
    assert!(with(vec![cancelled()]).contains("were not undone"));
    let undo = |steps: Vec<UnitKey>| Event::CompensationStarted { reason: AbortReason::Cancelled, steps };
    assert!(with(vec![undo(vec!["first".into()])]).contains("what succeeded, the last one first, is"));
    assert!(with(vec![undo(vec!["act".into()]), Event::CompensationCompleted]).contains("is not over"));
    let timed_out = Event::WorkflowTimedOut { compensation: None, unconsumed: Vec::new() };
    assert!(course(vec![cancel(), timed_out]).contains("winds down by Some(Cancelled)"));
    let terminate = Event::TerminateRequested { reason: None };
    assert!(course(vec![terminate, scheduled("act")]).contains("after it was terminated"));
}

#[test]
fn an_end_that_the_definition_does_not_lead_to_is_found_by_the_interpreter() {
    let document = json!({"name": "Sum", "version": "1", "steps": [{"id": "sum", "compute": "${ 1 + 2 }"}],
        "result": "${ steps.sum.output }"});
    let ends = |output: i64| {
        let mut checks = Checks::default();
        let book = Book::new(vec![document.clone()]);
        feed(&mut checks, raised(0, 1)).unwrap();
        let sum = Event::StepSucceeded { step: "sum".into(), attempt: 1, output: json!(3).into(), token: None };
        let end = Event::WorkflowCompleted { output: json!(output).into(), unconsumed: Vec::new() };
        let events = vec![created_of(&document), Event::WorkflowStarted, sum, end];
        let _ = feed_with(&mut checks, append(1, numbered(events)), &book);
        let limits = Limits { max_payload: 1_000, max_fan_out: 10 };
        let id = ExecutionId::new("x");
        interpreter::check(&id, checks.history.runs(&id).expect("it was taken in"), limits)
    };
    assert_eq!(ends(3), Ok(()));
    assert!(message(ends(4)).contains("by the definition as"));
}

#[test]
fn a_name_that_is_taken_before_its_holder_has_been_silent_for_long_is_found() {
    let beat = |who: u128, replaced: Option<u128>| Change::NodeBeat {
        node: "n".into(),
        incarnation: Incarnation(Uuid::from_u128(who)),
        replaced: replaced.map(|who| Incarnation(Uuid::from_u128(who))),
    };
    let taken_after = |ms: u64| {
        let (store, book) = (ModelStore::new(ClusterId(Uuid::nil())), Book::new(vec![document()]));
        let mut checks = Checks::default();
        let mut feed = |change, now| {
            let commit = Commit { transaction: "beat", changes: vec![change] };
            let committed = Committed { now, by_follower: true, ..Committed::alone(&commit, &store, &book, false) };
            checks.on_commit(&committed, &mut Coverage::default())
        };
        feed(beat(1, None), Time(0)).expect("nobody had it");
        feed(beat(1, None), Time(0).plus_ms(1_000)).expect("it is its own");
        feed(beat(2, Some(1)), Time(0).plus_ms(1_000 + ms))
    };
    assert!(taken_after(3_000).is_ok());
    let found = taken_after(2_000).expect_err("it is too early");
    assert!(found.message.contains("had been silent for 2000 ms"), "{found:?}");
}

#[test]
fn a_server_that_has_never_led_and_writes_more_than_its_own_row_is_found() {
    let (store, book) = (ModelStore::new(ClusterId(Uuid::nil())), Book::new(vec![document()]));
    let by = |by_follower| {
        let commit = Commit { transaction: "save_worker", changes: vec![Change::WorkerSaved] };
        let committed = Committed { by_follower, ..Committed::alone(&commit, &store, &book, false) };
        Checks::default().on_commit(&committed, &mut Coverage::default())
    };
    assert!(by(false).is_ok());
    assert!(by(true).expect_err("it has no business there").message.contains("has never led wrote WorkerSaved"));
}

#[test]
fn deadlines_and_pauses_that_are_not_the_definition_s_are_found() {
    let retry = json!({"max_attempts": 3, "initial": "200ms", "factor": 2, "max": "2s", "jitter": "none"});
    let step = json!({"id": "s", "task": "t", "timeout": "1s", "retry": retry});
    let document = json!({"name": "Task", "version": "1", "steps": [step]});
    let of = |events: Vec<Event>| {
        let mut checks = Checks::default();
        feed(&mut checks, raised(0, 1)).unwrap();
        let scheduled = Event::StepScheduled {
            step: "s".into(),
            attempt: 1,
            input: Value::Null.into(),
            idempotency_key: "k".into(),
            redelivery: false,
        };
        let before = [created_of(&document), Event::WorkflowStarted, scheduled];
        let change = append(1, numbered(before.into_iter().chain(events).collect()));
        message(feed_with(&mut checks, change, &Book::new(vec![document.clone()])))
    };
    let dispatched = |deadline: Option<i64>| Event::StepDispatched {
        step: "s".into(),
        attempt: 1,
        token: Token { execution: "x".into(), id: Uuid::nil() },
        worker_id: "w".into(),
        worker_session: SessionId(Uuid::nil()),
        deadline_ms: deadline.map(ClusterMs),
        redelivery: false,
    };
    assert!(of(vec![dispatched(None)]).contains("by its definition until"));
    assert!(of(vec![dispatched(Some(2_005))]).contains("by its definition until"));
    let failed = |code: &str| Event::StepAttemptFailed {
        step: "s".into(),
        attempt: 1,
        error: TaskError::retryable(code, ""),
        token: None,
    };
    let retry = |delay_ms: u64| {
        let fire_at_ms = ClusterMs(5 + i64::try_from(delay_ms).expect("short"));
        Event::RetryScheduled { step: "s".into(), next_attempt: 2, delay_ms, fire_at_ms }
    };
    assert!(of(vec![dispatched(Some(1_005)), failed("TIMEOUT")]).contains("due at"));
    assert!(of(vec![failed("TIMEOUT")]).contains("has no time-out"));
    assert!(of(vec![failed("FLAKY"), retry(400)]).contains("where 199 to 200 ms is right"));
    assert!(of(vec![retry(200)]).contains("has not failed"));
    let given_up = Event::StepFailed { step: "s".into(), error: TaskError::retryable("FLAKY", "") };
    assert!(of(vec![failed("FLAKY"), given_up]).contains("is to be repeated"));
}

#[test]
fn a_server_that_is_told_otherwise_than_it_is_is_found() {
    let mut check = VerdictCheck::default();
    let (store, book) = (ModelStore::new(ClusterId(Uuid::nil())), Book::default());
    let told = |outcome| Reply::Done(Verdict::Append(vec![outcome]));
    let rejected = || GroupOutcome::Rejected(Rejection::Fenced { held: Term(1), current: Term(2) });
    let asked = |id| Asked { groups: vec![GroupId(Uuid::from_u128(id))], deploys: None };
    let commit = Commit { transaction: "append", changes: vec![append(1, Vec::new())] };
    assert!(message(check.on_reply(&asked(1), &told(GroupOutcome::Written), true, &store)).contains("written: false"));
    check.on_commit(&Committed::alone(&commit, &store, &book, true)).unwrap();
    assert_eq!(check.on_reply(&asked(1), &told(GroupOutcome::Written), true, &store), Ok(()));
    assert!(message(check.on_reply(&asked(1), &told(rejected()), false, &store)).contains("written: true"));
    let failed = Reply::Failed(Failure { kind: FailureKind::Retry, message: String::new() });
    assert!(message(check.on_reply(&asked(1), &failed, true, &store)).contains("told that it failed"));
    let mut check = VerdictCheck::default();
    assert_eq!(check.on_reply(&asked(1), &told(rejected()), false, &store), Ok(()));
    assert!(message(check.on_commit(&Committed::alone(&commit, &store, &book, true))).contains("is rejected"));
}
