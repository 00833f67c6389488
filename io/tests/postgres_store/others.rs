//! What other transactions do meanwhile: rows that they hold, fences that they raise, commits that come late.

use crate::support::*;
use ::postgres::Client;
use orbit_core::id::{Incarnation, Seq, Term};
use orbit_core::node::Connection;
use orbit_core::store::append::*;
use orbit_core::store::outcome::{FailureKind, Reply};
use orbit_core::store::statement::{ForgetWorkers, PutWorker, SeeWorkers, WorkerRow};
use orbit_core::store::transaction::{KeepWorkers, Transaction, Verdict};
use orbit_core::time::ClusterMs;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Another session, of an operator or of a server that was given up.
fn other(store: &Running) -> Client {
    store.place.database.connect()
}

/// Waits until a session of Orbit waits for a lock.
fn until_waiting(store: &Running) {
    let mut client = other(store);
    let begun = Instant::now();
    let waiting = "SELECT count(*) FROM pg_stat_activity
        WHERE application_name LIKE 'orbit:%' AND wait_event_type = 'Lock' AND datname = current_database()";
    while client.query_one(waiting, &[]).unwrap().get::<_, i64>(0) == 0 {
        assert!(begun.elapsed() < PATIENCE, "nobody waits for a lock");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn outcomes(reply: Reply<Verdict>) -> Vec<GroupOutcome> {
    match reply {
        Reply::Done(Verdict::Append(outcomes)) => outcomes,
        other => panic!("{other:?}"),
    }
}

fn send_append(store: &mut Running, fence: Fence, groups: Vec<Group>) {
    store.send(Connection::Store, Transaction::Append(Append::under(fence, groups)));
}

#[test]
fn a_group_whose_row_another_holds_is_busy_at_once_and_its_neighbours_are_written() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)]), group(2, vec![start("b", 1)])]);
    let mut other = other(&store);
    let mut held = other.transaction().unwrap();
    held.execute("SELECT 1 FROM orbit_owners WHERE execution_id = 'a' FOR UPDATE", &[]).unwrap();
    let both = vec![group(3, vec![go_on("a", 1, 1)]), group(4, vec![go_on("b", 1, 1)])];
    assert_eq!(store.append(fence, both.clone()), [GroupOutcome::Busy, GroupOutcome::Written]);
    held.rollback().unwrap();
    assert_eq!(store.append(fence, both), [GroupOutcome::Written, GroupOutcome::Written]);
    assert_eq!((last_of(&store.load("a")), last_of(&store.load("b"))), (Some(2), Some(2)));
}

#[test]
fn a_group_with_one_held_member_leaves_the_other_untouched() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)]), group(2, vec![start("b", 1)])]);
    let mut other = other(&store);
    let mut held = other.transaction().unwrap();
    held.execute("SELECT 1 FROM orbit_owners WHERE execution_id = 'b' FOR UPDATE", &[]).unwrap();
    let mut pair = group(3, vec![go_on("a", 1, 1), go_on("b", 1, 1), start("a~1", 1)]);
    pair.tasks = vec![TaskChange::Insert(task("t", "a", "pay", 1))];
    assert_eq!(store.append(fence, vec![pair.clone()]), [GroupOutcome::Busy]);
    assert_eq!((last_of(&store.load("a")), store.load("a").tasks.len()), (Some(1), 0));
    assert_eq!(store.load("a~1").events.len(), 0);
    drop(held);
    store.written(fence, vec![pair]);
}

#[test]
fn a_task_row_that_another_holds_makes_its_group_busy_and_a_claim_pass_it_over() {
    let (mut store, fence) = Running::led();
    let mut create = group(1, vec![start("a", 1)]);
    create.tasks = vec![TaskChange::Insert(task("t1", "a", "pay", 1)), TaskChange::Insert(task("t2", "a", "pay", 2))];
    store.written(fence, vec![create]);
    let mut other = other(&store);
    let mut held = other.transaction().unwrap();
    held.execute("SELECT 1 FROM orbit_tasks WHERE task_id = 't1' FOR UPDATE", &[]).unwrap();
    let mut gone = group(2, vec![go_on("a", 1, 1)]);
    gone.tasks = vec![TaskChange::Delete { task: task_id("t1"), expect: TaskState::Queued }];
    assert_eq!(store.append(fence, vec![gone.clone()]), [GroupOutcome::Busy]);
    assert_eq!(ids(&store.claim(fence, 1, vec![want(&["pay"], &[7, 8])])), [("t2", 7)]);
    drop(held);
    store.written(fence, vec![gone]);
}

#[test]
fn an_append_waits_for_a_fence_that_is_being_raised_and_is_fenced_by_it() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    let mut other = other(&store);
    let mut raise = other.transaction().unwrap();
    raise.execute("UPDATE orbit_cluster SET term = term + 1, incarnation = $1", &[&Uuid::from_u128(2)]).unwrap();
    // What was written by this group before is said to be written, whoever holds the fence now.
    send_append(&mut store, fence, vec![group(2, vec![go_on("a", 1, 1)]), group(1, vec![start("a", 1)])]);
    until_waiting(&store);
    raise.commit().unwrap();
    let fenced = GroupOutcome::Rejected(Rejection::Fenced { held: Term(1), current: Term(2) });
    assert_eq!(outcomes(store.next_reply().1), [fenced, GroupOutcome::Written]);
    let other_server = Fence { term: Term(2), incarnation: Incarnation(Uuid::from_u128(2)) };
    store.written(other_server, vec![group(3, vec![go_on("a", 1, 1)])]);
}

#[test]
fn an_append_goes_on_after_a_raise_that_was_rolled_back() {
    let (mut store, fence) = Running::led();
    let mut other = other(&store);
    let mut raise = other.transaction().unwrap();
    raise.execute("UPDATE orbit_cluster SET term = term + 1", &[]).unwrap();
    send_append(&mut store, fence, vec![group(1, vec![start("a", 1)])]);
    until_waiting(&store);
    raise.rollback().unwrap();
    assert_eq!(outcomes(store.next_reply().1), [GroupOutcome::Written]);
}

#[test]
fn an_append_waits_for_a_lock_no_longer_than_it_may_and_has_certainly_not_happened() {
    let (mut store, fence) = Running::led();
    let mut other = other(&store);
    let mut raise = other.transaction().unwrap();
    raise.execute("UPDATE orbit_cluster SET term = term + 1", &[]).unwrap();
    let append = Append::under(fence, vec![group(1, vec![start("a", 1)])]);
    let reply = store.reply(Connection::Store, Transaction::Append(append));
    let Reply::Failed(failure) = reply else { panic!("{reply:?}") };
    assert_eq!(failure.kind, FailureKind::Retry, "{failure:?}");
    assert!(failure.message.contains("[55P03]"), "{failure:?}");
    raise.rollback().unwrap();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
}

/// A server that was given up, in the middle of the append that moves `a` on from its first event.
const LATE_GROWTH: &str = "
    SELECT 1 FROM orbit_cluster FOR SHARE;
    UPDATE orbit_owners SET last_seq = 2, group_id = '00000000-0000-0000-0000-000000000002' WHERE execution_id = 'a';
    INSERT INTO execution_events (execution_id, run, seq, group_id, at_ms, payload)
    VALUES ('a', 1, 2, '00000000-0000-0000-0000-000000000002', 1000, 'late')";

#[test]
fn a_group_that_a_given_up_session_commits_late_is_told_as_written() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    let mut other = other(&store);
    let mut late = other.transaction().unwrap();
    late.batch_execute(LATE_GROWTH).unwrap();
    let again = vec![group(2, vec![go_on("a", 1, 1)])];
    assert_eq!(store.append(fence, again.clone()), [GroupOutcome::Busy], "it is not known yet");
    late.commit().unwrap();
    store.written(fence, again.clone());
    assert_eq!(store.load("a").events[1], b"late");
    // Somebody else's group in its place is another matter.
    let other = Rejection::OtherSequence { execution: "a".into(), expected: Seq(1), last: Seq(2) };
    assert_eq!(store.append(fence, vec![group(3, vec![go_on("a", 1, 1)])]), [GroupOutcome::Rejected(other)]);
    store.campaign(2);
    store.written(fence, again);
}

/// The same, in the middle of the append that makes `a`.
const LATE_CREATION: &str = "
    INSERT INTO workflow_executions (execution_id, root_id, run, workflow, version, status, created_at_ms, updated_at_ms,
        labels) VALUES ('a', 'a', 1, 'W', '1', 'running', 1, 1, '{}');
    INSERT INTO execution_events (execution_id, run, seq, group_id, at_ms, payload)
    VALUES ('a', 1, 1, '00000000-0000-0000-0000-000000000001', 1000, 'late');
    INSERT INTO orbit_owners (execution_id, root_id, node_id, incarnation, epoch, run, last_seq, group_id, next_wake_ms,
        since_ms) VALUES ('a', 'a', 'node-a', '00000000-0000-0000-0000-000000000001', 1, 1, 1,
        '00000000-0000-0000-0000-000000000001', 0, 1)";

#[test]
fn a_creation_that_a_given_up_session_commits_late_is_told_as_written() {
    let (mut store, fence) = Running::led();
    let mut other = other(&store);
    let mut late = other.transaction().unwrap();
    late.batch_execute(LATE_CREATION).unwrap();
    let again = vec![group(1, vec![start("a", 1)])];
    send_append(&mut store, fence, again.clone());
    until_waiting(&store);
    late.commit().unwrap();
    assert_eq!(outcomes(store.next_reply().1), [GroupOutcome::Busy], "what it waited for is not in its snapshot");
    store.written(fence, again);
    assert_eq!(store.load("a").events, [b"late"]);
}

#[test]
fn a_creation_is_written_when_the_given_up_session_rolls_back() {
    let (mut store, fence) = Running::led();
    let mut other = other(&store);
    let mut late = other.transaction().unwrap();
    late.batch_execute(LATE_CREATION).unwrap();
    send_append(&mut store, fence, vec![group(1, vec![start("a", 1)]), group(2, vec![start("b", 1)])]);
    until_waiting(&store);
    late.rollback().unwrap();
    assert_eq!(outcomes(store.next_reply().1), [GroupOutcome::Written, GroupOutcome::Written]);
}

#[test]
fn a_group_of_which_one_new_execution_is_anothers_leaves_nothing_behind() {
    let (mut store, fence) = Running::led();
    let mut other = other(&store);
    let mut late = other.transaction().unwrap();
    late.batch_execute(LATE_CREATION).unwrap();
    let family = group(5, vec![start("A", 1), start("a", 1), start("b", 1)]);
    send_append(&mut store, fence, vec![group(4, vec![start("c", 1)]), family.clone()]);
    until_waiting(&store);
    late.commit().unwrap();
    assert_eq!(outcomes(store.next_reply().1)[0], GroupOutcome::Written, "its neighbour is written");
    for child in ["A", "b"] {
        assert_eq!(store.load(child).events.len(), 0, "{child} was left behind");
    }
    let exists = GroupOutcome::Rejected(Rejection::Exists { execution: "a".into() });
    assert_eq!(store.append(fence, vec![family]), [exists]);
}

#[test]
fn a_claim_that_commits_late_takes_nothing_under_a_token_that_was_given_meanwhile() {
    let (mut store, fence) = Running::led();
    let mut create = group(1, vec![start("a", 1)]);
    create.tasks = vec![TaskChange::Insert(task("t1", "a", "pay", 1)), TaskChange::Insert(task("t2", "a", "pay", 2))];
    store.written(fence, vec![create]);
    let mut other = other(&store);
    let mut late = other.transaction().unwrap();
    late.execute("SELECT 1 FROM orbit_tasks WHERE task_id = 't1' FOR UPDATE", &[]).unwrap();
    assert_eq!(ids(&store.claim(fence, 1, vec![want(&["pay"], &[7])])), [("t2", 7)]);
    let error = late
        .execute(
            "UPDATE orbit_tasks SET state = 'claimed', token = $1, claimed_by = $1, claim_key = $1 WHERE task_id = 't1'",
            &[&Uuid::from_u128(7)],
        )
        .unwrap_err();
    assert_eq!(error.code().unwrap().code(), "23505");
}

#[test]
fn a_definition_that_another_stores_meanwhile_is_found_and_not_stored_twice() {
    use orbit_core::id::CallKey;
    use orbit_core::store::statement::{PutDefinition, PutResult};
    let (mut store, fence) = Running::led();
    let definition = definition();
    let mut other = other(&store);
    let mut late = other.transaction().unwrap();
    late.execute(
        "INSERT INTO workflow_definitions (name, version, hash, document, deploy_key, created_at_ms)
         VALUES ('W', '1', 'h', '{}', $1, 1)",
        &[&Uuid::from_u128(1)],
    )
    .unwrap();
    let put = |key| {
        let key = CallKey(Uuid::from_u128(key));
        Transaction::Deploy(Box::new(PutDefinition { key, fence, definition: definition.clone() }))
    };
    store.send(Connection::Requests, put(1));
    until_waiting(&store);
    late.commit().unwrap();
    assert_eq!(store.next_reply().1, Reply::Done(Verdict::Deploy(PutResult::Created)), "it was its own first sending");
    assert_eq!(store.done(Connection::Requests, put(2)), Verdict::Deploy(PutResult::Unchanged));
}

#[test]
fn a_worker_whose_row_another_holds_or_has_just_written_is_neither_waited_for_nor_forgotten() {
    let mut store = Running::fresh();
    let row = |id: &str, seen| WorkerRow {
        worker_id: id.into(),
        runtime: "rust".into(),
        sdk: None,
        contracts: vec![],
        last_seen_ms: ClusterMs(seen),
    };
    for id in ["a", "b", "c"] {
        store.done(Connection::Requests, Transaction::SaveWorker(PutWorker { worker: row(id, 1) }));
    }
    let mut other = other(&store);
    let mut held = other.transaction().unwrap();
    held.execute("UPDATE orbit_workers SET last_seen_ms = 9 WHERE worker_id = 'b'", &[]).unwrap();
    let see = |at: i64| SeeWorkers { seen: ["a", "b"].map(|id| (id.into(), ClusterMs(at))).into() };
    let forget = ForgetWorkers { there: Default::default(), before: ClusterMs(2), keep: 10 };
    let keep = Transaction::KeepWorkers(KeepWorkers { see: see(5), forget: Some(forget.clone()) });
    assert_eq!(store.done(Connection::Requests, keep), Verdict::KeepWorkers(1), "of `c` alone");
    held.commit().unwrap();
    let keep = Transaction::KeepWorkers(KeepWorkers { see: see(7), forget: Some(forget) });
    assert_eq!(store.done(Connection::Requests, keep), Verdict::KeepWorkers(0));
    let rows = store.done(Connection::Requests, Transaction::Workers);
    assert_eq!(rows, Verdict::Workers(vec![row("a", 7), row("b", 9)]));
}
