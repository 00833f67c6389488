//! The queue of tasks.

use crate::support::*;
use orbit_core::id::CallKey;
use orbit_core::node::Connection;
use orbit_core::store::append::*;
use orbit_core::store::statement::{LoadedTask, RequeueStrays};
use orbit_core::store::transaction::{Transaction, Verdict};
use uuid::Uuid;

/// A store with tasks `(id, name, enqueued)` of one execution.
fn queued(tasks: &[(&str, &str, i64)]) -> (Running, Fence) {
    let (mut store, fence) = Running::led();
    let mut create = group(1, vec![start("a", 1)]);
    create.tasks = tasks.iter().map(|(id, name, at)| TaskChange::Insert(task(id, "a", name, *at))).collect();
    store.written(fence, vec![create]);
    (store, fence)
}

#[test]
fn the_oldest_rows_are_claimed_first_whatever_contract_they_need() {
    let (mut store, fence) =
        queued(&[("t1", "pay", 30), ("t2", "ship", 10), ("t3", "pay", 20), ("t4", "other", 1), ("t5", "ship", 20)]);
    let claimed = store.claim(fence, 1, vec![want(&["pay", "ship"], &[1, 2, 3])]);
    assert_eq!(ids(&claimed), [("t2", 1), ("t3", 2), ("t5", 3)]);
    assert_eq!((claimed[0].execution.as_str(), claimed[0].unit.as_str(), claimed[0].attempt), ("a", "charge", 1));
    let claimed = store.claim(fence, 2, vec![want(&["pay", "ship"], &[4, 5])]);
    assert_eq!(ids(&claimed), [("t1", 4)]);
}

#[test]
fn wants_are_served_in_order_and_none_gets_anothers_row() {
    let (mut store, fence) = queued(&[("t1", "pay", 1), ("t2", "pay", 2), ("t3", "pay", 3), ("t4", "ship", 4)]);
    let wants = vec![want(&["pay"], &[1]), want(&["ship", "pay"], &[2, 3, 4]), want(&["pay"], &[5])];
    let claimed = store.claim(fence, 1, wants);
    assert_eq!(ids(&claimed), [("t1", 1), ("t2", 2), ("t3", 3), ("t4", 4)]);
}

#[test]
fn a_contract_named_twice_is_one_contract() {
    let (mut store, fence) = queued(&[("t1", "pay", 1), ("t2", "pay", 2)]);
    let claimed = store.claim(fence, 1, vec![want(&["pay", "pay"], &[1, 2, 3])]);
    assert_eq!(ids(&claimed), [("t1", 1), ("t2", 2)]);
}

#[test]
fn a_contract_of_another_version_is_another_contract() {
    let (mut store, fence) = queued(&[("t1", "pay", 1)]);
    let mut other = want(&["pay"], &[1]);
    other.contracts[0].1 = "2".into();
    assert_eq!(store.claim(fence, 1, vec![other]), []);
}

#[test]
fn a_repeated_claim_gives_what_the_first_one_claimed() {
    let (mut store, fence) = queued(&[("t1", "pay", 1), ("t2", "ship", 2), ("t3", "pay", 3)]);
    let wants = vec![want(&["ship"], &[1]), want(&["pay"], &[2])];
    let first = store.claim(fence, 1, wants.clone());
    assert_eq!(ids(&first), [("t2", 1), ("t1", 2)]);
    assert_eq!(store.claim(fence, 1, wants), first);
    assert_eq!(ids(&store.claim(fence, 2, vec![want(&["pay"], &[3])])), [("t3", 3)]);
}

#[test]
fn a_claim_that_found_nothing_may_find_something_when_it_is_repeated() {
    let (mut store, fence) = queued(&[]);
    assert_eq!(store.claim(fence, 1, vec![want(&["pay"], &[1])]), []);
    let mut more = group(2, vec![go_on("a", 1, 1)]);
    more.tasks = vec![TaskChange::Insert(task("t1", "a", "pay", 1))];
    store.written(fence, vec![more]);
    assert_eq!(ids(&store.claim(fence, 1, vec![want(&["pay"], &[1])])), [("t1", 1)]);
}

#[test]
fn a_server_whose_fence_has_moved_claims_nothing() {
    let (mut store, first) = queued(&[("t1", "pay", 1)]);
    let second = store.campaign(2);
    assert_eq!(store.claim(first, 1, vec![want(&["pay"], &[1])]), []);
    assert_eq!(ids(&store.claim(second, 2, vec![want(&["pay"], &[2])])), [("t1", 2)]);
}

#[test]
fn a_new_server_finds_the_claims_of_the_one_before_in_the_queue_again() {
    let (mut store, first) = queued(&[("t1", "pay", 1), ("t2", "pay", 2)]);
    assert_eq!(store.claim(first, 1, vec![want(&["pay"], &[1])]).len(), 1);
    let second = store.campaign(2);
    let both = ["t1", "t2"].map(|id| LoadedTask { task: task_id(id), state: TaskState::Queued, repeat: false });
    assert_eq!(store.load("a").tasks, both);
    // Not even the key of the claim is left.
    assert_eq!(ids(&store.claim(second, 1, vec![want(&["pay"], &[3, 4])])), [("t1", 3), ("t2", 4)]);
}

/// The names of the tasks that a sweep of these claims puts back, but for those of these tokens.
fn swept(store: &mut Running, fence: Fence, keys: &[u128], tokens: &[u128]) -> Vec<String> {
    let sweep = RequeueStrays {
        fence,
        keys: keys.iter().map(|key| CallKey(Uuid::from_u128(*key))).collect(),
        tokens: tokens.iter().map(|token| Uuid::from_u128(*token)).collect(),
    };
    match store.done(Connection::Store, Transaction::Sweep(sweep)) {
        Verdict::Sweep(back) => back.into_iter().map(|(name, _)| name.to_string()).collect(),
        other => panic!("contracts, not {other:?}"),
    }
}

#[test]
fn claims_in_doubt_go_back_to_the_queue_but_for_what_is_about_to_be_delivered() {
    let (mut store, fence) = queued(&[("t1", "pay", 1), ("t2", "ship", 2), ("t3", "send", 3)]);
    assert_eq!(store.claim(fence, 1, vec![want(&["pay"], &[1])]).len(), 1);
    assert_eq!(store.claim(fence, 2, vec![want(&["ship", "send"], &[2, 3])]).len(), 2);
    assert_eq!(swept(&mut store, fence, &[], &[]), Vec::<String>::new());
    assert_eq!(swept(&mut store, fence, &[2, 7], &[2]), ["send"]);
    assert_eq!(swept(&mut store, fence, &[1], &[1]), Vec::<String>::new());
    assert_eq!(ids(&store.claim(fence, 3, vec![want(&["pay", "ship", "send"], &[4, 5])])), [("t3", 4)]);
    assert_eq!(
        swept(&mut store, other_fence(), &[1, 2, 3], &[]),
        Vec::<String>::new(),
        "another server's are not its own"
    );
    assert_eq!(swept(&mut store, fence, &[1, 2, 3], &[]), ["pay", "send", "ship"]);
}
