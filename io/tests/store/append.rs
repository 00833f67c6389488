//! What becomes of groups.

use crate::support::*;
use orbit_core::id::{Epoch, Run, Seq, Term};
use orbit_core::node::Connection;
use orbit_core::store::append::*;
use orbit_core::store::statement::LoadedTask;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_core::time::ClusterMs;
use uuid::Uuid;

#[test]
fn a_written_group_is_there_after_the_store_was_closed_and_opened() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 2)]), group(2, vec![start("b", 1)])]);
    store.written(fence, vec![group(3, vec![go_on("a", 2, 3)])]);
    let mut store = store.reopened();
    let loaded = store.load("a");
    let expected: Vec<_> = events(1, 5).into_iter().map(|event| event.bytes).collect();
    assert_eq!(loaded.events, expected);
    let owner = OwnerRow {
        root: "a".into(),
        run: Run(1),
        epoch: Epoch(1),
        incarnation: fence.incarnation,
        last: Seq(5),
        group: group_id(3),
        wake: Wake::Hot,
    };
    assert_eq!(loaded.owner, Some(owner));
}

#[test]
fn a_broken_group_leaves_its_neighbours_alone() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    let outcomes = store.append(
        fence,
        vec![group(2, vec![start("b", 1)]), group(3, vec![start("a", 1)]), group(4, vec![start("c", 1)])],
    );
    let exists = Rejection::Exists { execution: "a".into() };
    assert_eq!(outcomes, [GroupOutcome::Written, GroupOutcome::Rejected(exists), GroupOutcome::Written]);
    assert_eq!((last_of(&store.load("b")), last_of(&store.load("c"))), (Some(1), Some(1)));
    assert_eq!(store.load("a").owner.unwrap().group, group_id(1));
}

#[test]
fn all_members_of_a_group_are_written_or_none() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("parent", 1)])]);
    let outcomes = store.append(fence, vec![group(2, vec![start("parent~child", 1), go_on("parent", 7, 1)])]);
    let other = Rejection::OtherSequence { execution: "parent".into(), expected: Seq(7), last: Seq(1) };
    assert_eq!(outcomes, [GroupOutcome::Rejected(other)]);
    assert_eq!(store.load("parent~child").events, Vec::<Vec<u8>>::new());
    store.written(fence, vec![group(3, vec![start("parent~child", 1), go_on("parent", 1, 1)])]);
    assert_eq!((last_of(&store.load("parent")), last_of(&store.load("parent~child"))), (Some(2), Some(1)));
}

#[test]
fn a_writer_whose_fence_has_moved_writes_nothing() {
    let (mut store, first) = Running::led();
    store.written(first, vec![group(1, vec![start("a", 1)])]);
    let second = store.campaign(2);
    let fenced = GroupOutcome::Rejected(Rejection::Fenced { held: Term(1), current: Term(2) });
    assert_eq!(store.append(first, vec![group(2, vec![go_on("a", 1, 1)])]), [fenced]);
    assert_eq!(last_of(&store.load("a")), Some(1));
    // The term alone is not enough: a number can be handed out twice.
    let same_term = Fence { incarnation: first.incarnation, ..second };
    let outcomes = store.append(same_term, vec![group(3, vec![go_on("a", 1, 1)])]);
    assert_eq!(outcomes, [GroupOutcome::Rejected(Rejection::Fenced { held: Term(2), current: Term(2) })]);
    store.written(second, vec![group(4, vec![go_on("a", 1, 1)])]);
}

#[test]
fn an_append_that_does_not_follow_the_last_event_is_rejected() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 3)])]);
    for believed in [2, 4] {
        let other = Rejection::OtherSequence { execution: "a".into(), expected: Seq(believed), last: Seq(3) };
        let outcomes = store.append(fence, vec![group(10 + u128::from(believed), vec![go_on("a", believed, 1)])]);
        assert_eq!(outcomes, [GroupOutcome::Rejected(other)]);
    }
    let mut member = go_on("a", 3, 1);
    member.expect = Expect::After { run: Run(1), last: Seq(3), epoch: Epoch(2) };
    let other = Rejection::OtherEpoch { execution: "a".into(), held: Epoch(2), current: Epoch(1) };
    assert_eq!(store.append(fence, vec![group(20, vec![member])]), [GroupOutcome::Rejected(other)]);
    assert_eq!(store.load("a").events.len(), 3);
}

#[test]
fn a_repeated_group_is_written_once_and_said_to_be_written_each_time() {
    let (mut store, fence) = Running::led();
    let create = group(1, vec![start("a", 2)]);
    store.written(fence, vec![create.clone()]);
    store.written(fence, vec![create.clone()]);
    let grow = group(2, vec![go_on("a", 2, 2)]);
    store.written(fence, vec![grow.clone()]);
    // Not the last one that moved the row any more: the id beside its first event tells.
    store.written(fence, vec![create.clone()]);
    store.written(fence, vec![grow.clone()]);
    assert_eq!(store.load("a").events.len(), 4);
    store.written(fence, vec![group(3, vec![end("a", 4)])]);
    // The execution has ended, and another server has taken over.
    store.campaign(2);
    for group in [create, grow, group(3, vec![end("a", 4)])] {
        store.written(fence, vec![group]);
    }
    assert_eq!(store.load("a").events.len(), 5);
}

#[test]
fn a_group_that_changes_only_the_wake_up_is_known_again_too() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    let park = Member { owner: OwnerChange::Wake(Wake::At(ClusterMs(5_000))), ..go_on("a", 1, 0) };
    store.written(fence, vec![group(2, vec![park.clone()])]);
    store.written(fence, vec![group(2, vec![park])]);
    let owner = store.load("a").owner.unwrap();
    assert_eq!((owner.wake, owner.last, owner.group), (Wake::At(ClusterMs(5_000)), Seq(1), group_id(2)));
    // The next event leaves the wake-up as it is, unless it says otherwise.
    store.written(fence, vec![group(3, vec![go_on("a", 1, 1)])]);
    assert_eq!(store.load("a").owner.unwrap().wake, Wake::At(ClusterMs(5_000)));
    let never = Member { owner: OwnerChange::Wake(Wake::Never), ..go_on("a", 2, 0) };
    store.written(fence, vec![group(4, vec![never])]);
    assert_eq!(store.load("a").owner.unwrap().wake, Wake::Never);
}

#[test]
fn nothing_follows_the_end_of_an_execution() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    store.written(fence, vec![group(2, vec![end("a", 1)])]);
    let loaded = store.load("a");
    assert_eq!((loaded.owner, loaded.events.len()), (None, 2));
    let outcomes = store.append(fence, vec![group(3, vec![go_on("a", 2, 1)]), group(4, vec![start("a", 1)])]);
    let ended = GroupOutcome::Rejected(Rejection::Ended { execution: "a".into() });
    assert_eq!(outcomes, [ended, GroupOutcome::Rejected(Rejection::Exists { execution: "a".into() })]);
}

#[test]
fn an_execution_that_ends_at_once_has_no_owner_row() {
    let (mut store, fence) = Running::led();
    let mut member = start_with("a", 3, summary(Status::Completed), Wake::Hot);
    member.owner = OwnerChange::End;
    store.written(fence, vec![group(1, vec![member.clone()])]);
    store.written(fence, vec![group(1, vec![member])]);
    let loaded = store.load("a");
    assert_eq!((loaded.owner, loaded.events.len()), (None, 3));
}

#[test]
fn a_change_of_a_task_row_holds_only_in_the_state_that_it_was_decided_from() {
    let (mut store, fence) = Running::led();
    let mut create = group(1, vec![start("a", 1)]);
    create.tasks = vec![TaskChange::Insert(task("t1", "a", "pay", 1)), TaskChange::Insert(task("t2", "a", "pay", 2))];
    store.written(fence, vec![create]);
    let token = store.claim(fence, 1, vec![want(&["pay"], &[71])])[0].token;
    let claimed = TaskState::Claimed { token };
    let found = |task: &str, state| LoadedTask { task: task.into(), state, repeat: false };
    assert_eq!(store.load("a").tasks, [found("t1", claimed), found("t2", TaskState::Queued)]);

    let mut wrong = group(2, vec![go_on("a", 1, 1)]);
    wrong.tasks = vec![TaskChange::Delete { task: task_id("t1"), expect: TaskState::Queued }];
    let moved = Rejection::TaskMoved { task: task_id("t1"), found: Some(claimed) };
    assert_eq!(store.append(fence, vec![wrong]), [GroupOutcome::Rejected(moved)]);

    let other = TaskState::Claimed { token: Uuid::from_u128(72) };
    let mut wrong = group(3, vec![go_on("a", 1, 1)]);
    wrong.tasks = vec![TaskChange::Requeue { task: task_id("t1"), expect: other }];
    let moved = Rejection::TaskMoved { task: task_id("t1"), found: Some(claimed) };
    assert_eq!(store.append(fence, vec![wrong]), [GroupOutcome::Rejected(moved)]);

    let mut gone = group(4, vec![go_on("a", 1, 1)]);
    gone.tasks = vec![TaskChange::Delete { task: task_id("t9"), expect: TaskState::Queued }];
    let moved = Rejection::TaskMoved { task: task_id("t9"), found: None };
    assert_eq!(store.append(fence, vec![gone]), [GroupOutcome::Rejected(moved)]);
    assert_eq!(last_of(&store.load("a")), Some(1));

    let mut right = group(5, vec![go_on("a", 1, 1)]);
    right.tasks = vec![
        TaskChange::Requeue { task: task_id("t1"), expect: claimed },
        TaskChange::Delete { task: task_id("t2"), expect: TaskState::Queued },
    ];
    store.written(fence, vec![right]);
    assert_eq!(store.load("a").tasks, [found("t1", TaskState::Queued)]);
}

#[test]
fn a_group_whose_data_the_database_refuses_fails_alone() {
    let (mut store, fence) = Running::led();
    let mut first = group(1, vec![start("a", 1)]);
    first.tasks = vec![TaskChange::Insert(task("t1", "a", "pay", 1))];
    store.written(fence, vec![first]);
    // The same task row again, from another execution.
    let mut refused = group(3, vec![start("c", 1)]);
    refused.tasks = vec![TaskChange::Insert(task("t1", "c", "pay", 1))];
    let outcomes = store.append(fence, vec![group(2, vec![start("b", 1)]), refused, group(4, vec![start("d", 1)])]);
    assert_eq!((&outcomes[0], &outcomes[2]), (&GroupOutcome::Written, &GroupOutcome::Written));
    let GroupOutcome::Rejected(Rejection::Refused { message }) = &outcomes[1] else { panic!("{:?}", outcomes[1]) };
    assert!(message.contains(crate::kind::SAME_TASK), "{message}");
    assert_eq!((last_of(&store.load("b")), last_of(&store.load("d"))), (Some(1), Some(1)));
    let refused = store.load("c");
    assert_eq!((refused.owner, refused.events.len(), refused.tasks.len()), (None, 0, 0));
    // Nothing of it is in the way of the same execution with other data.
    store.written(fence, vec![group(5, vec![start("c", 1)])]);
}

#[test]
fn payloads_are_stored_as_they_are() {
    let (mut store, fence) = Running::led();
    let mut member = start("a", 2);
    member.events[0].bytes = vec![1, 0, 0, b'\'', b'"', 0xf0, 0x9f, 0xa6, 0x80];
    member.events[1].bytes = vec![b'x'; 3 << 20];
    let expected: Vec<_> = member.events.iter().map(|event| event.bytes.clone()).collect();
    store.written(fence, vec![group(1, vec![member])]);
    assert!(store.load("a").events == expected, "some payload came back changed");
}

#[test]
fn appends_run_in_the_order_sent() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    let sent: Vec<_> = (0..50)
        .map(|n| {
            let groups = vec![group(100 + u128::from(n), vec![go_on("a", n + 1, 1)])];
            store.send(Connection::Store, Transaction::Append(Append::under(fence, groups)))
        })
        .collect();
    for expected in sent {
        let (call, reply) = store.next_reply();
        assert_eq!(call, expected);
        let written = Verdict::Append(vec![GroupOutcome::Written]);
        assert_eq!(reply, orbit_core::store::outcome::Reply::Done(written));
    }
    assert_eq!(last_of(&store.load("a")), Some(51));
}
