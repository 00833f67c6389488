//! What the model of the database promises to those who drive it.

use orbit_core::execution::event::Labels;
use orbit_core::id::{CallKey, ClusterId, Epoch, ExecutionId, GroupId, Incarnation, NodeId, Run, Seq, TaskId, Term};
use orbit_core::store::append::*;
use orbit_core::store::outcome::Reply;
use orbit_core::store::statement::*;
use orbit_core::store::transaction::{Campaign, CampaignVerdict, Transaction, Verdict};
use orbit_core::time::{ClusterMs, WallMs};
use orbit_sim::store::ModelStore;
use uuid::Uuid;

fn incarnation(n: u128) -> Incarnation {
    Incarnation(Uuid::from_u128(n))
}

fn campaign(store: &mut ModelStore, n: u128) -> Fence {
    let holder = Holder { node_id: NodeId::new("node"), host: "host".into(), pid: 1, addr: None, since_ms: WallMs(0) };
    let campaign = Campaign::new(orbit_core::cluster::Mode::Single, incarnation(n), holder);
    match store.run(Transaction::Campaign(campaign)) {
        Reply::Done(Verdict::Campaign(CampaignVerdict::Won { term, .. })) => {
            Fence { term, incarnation: incarnation(n) }
        }
        other => panic!("the campaign is won: {other:?}"),
    }
}

fn store() -> ModelStore {
    ModelStore::new(ClusterId(Uuid::from_u128(1)))
}

fn event(seq: u64) -> StoredEvent {
    StoredEvent {
        run: Run(1),
        seq: Seq(seq),
        at_ms: ClusterMs(seq as i64),
        bytes: format!("\u{1}{{\"seq\":{seq}}}").into_bytes(),
    }
}

fn summary(status: Status, created: i64) -> Option<Summary> {
    Some(Summary {
        workflow: "Order".into(),
        version: "1".into(),
        status,
        created_at_ms: ClusterMs(created),
        updated_at_ms: ClusterMs(created),
        labels: Labels::new(),
    })
}

fn start(group: u128, id: &str, wake: Wake) -> Group {
    let member = Member {
        execution: id.into(),
        expect: Expect::New { run: Run(1), root: id.into() },
        events: vec![event(1), event(2)],
        summary: summary(Status::Running, group as i64),
        owner: OwnerChange::Wake(wake),
    };
    Group { id: GroupId(Uuid::from_u128(group)), members: vec![member], tasks: Vec::new() }
}

fn go_on(group: u128, id: &str, last: u64, owner: OwnerChange) -> Group {
    let member = Member {
        execution: id.into(),
        expect: Expect::After { run: Run(1), last: Seq(last), epoch: Epoch(1) },
        events: vec![event(last + 1)],
        summary: None,
        owner,
    };
    Group { id: GroupId(Uuid::from_u128(group)), members: vec![member], tasks: Vec::new() }
}

fn queued(task: &str, id: &str, enqueued: i64) -> TaskChange {
    TaskChange::Insert(TaskRow {
        task: TaskId::new(task),
        execution: id.into(),
        unit: "a".into(),
        attempt: 1,
        task_name: "pay".into(),
        contract_version: "1".into(),
        enqueued_ms: ClusterMs(enqueued),
    })
}

fn append(store: &mut ModelStore, fence: Fence, groups: Vec<Group>) -> Vec<GroupOutcome> {
    match store.run(Transaction::Append(Append::under(fence, groups))) {
        Reply::Done(Verdict::Append(outcomes)) => outcomes,
        other => panic!("an append has outcomes: {other:?}"),
    }
}

fn claim(store: &mut ModelStore, fence: Fence, key: u128, tokens: &[u128]) -> Vec<(String, Uuid)> {
    let want = ClaimWant {
        contracts: vec![("pay".into(), "1".into())],
        tokens: tokens.iter().map(|t| Uuid::from_u128(*t)).collect(),
    };
    let claim = ClaimTasks { key: CallKey(Uuid::from_u128(key)), fence, wants: vec![want] };
    match store.run(Transaction::Claim(claim)) {
        Reply::Done(Verdict::Claim(tasks)) => tasks.into_iter().map(|t| (t.task.to_string(), t.token)).collect(),
        other => panic!("a claim has tasks: {other:?}"),
    }
}

#[test]
fn a_group_that_is_sent_again_is_written_once() {
    let mut store = store();
    let fence = campaign(&mut store, 7);
    let first = start(1, "x", Wake::Hot);
    assert_eq!(append(&mut store, fence, vec![first.clone()]), [GroupOutcome::Written]);
    let before = store.dump();
    assert_eq!(append(&mut store, fence, vec![first.clone()]), [GroupOutcome::Written]);
    assert_eq!(store.dump(), before, "the repetition changes nothing");
    // Later events do not hide that it was written.
    append(&mut store, fence, vec![go_on(2, "x", 2, OwnerChange::End)]);
    assert_eq!(append(&mut store, fence, vec![first]), [GroupOutcome::Written]);
    assert_eq!(store.history(&"x".into()).len(), 3);
}

#[test]
fn a_broken_group_does_not_fail_its_neighbours() {
    let mut store = store();
    let fence = campaign(&mut store, 7);
    append(&mut store, fence, vec![start(1, "x", Wake::Hot)]);
    let outcomes = append(
        &mut store,
        fence,
        vec![go_on(2, "x", 9, OwnerChange::Keep), start(3, "y", Wake::Hot), start(4, "z", Wake::Hot)],
    );
    let expected = Rejection::OtherSequence { execution: "x".into(), expected: Seq(9), last: Seq(2) };
    assert_eq!(outcomes, [GroupOutcome::Rejected(expected), GroupOutcome::Written, GroupOutcome::Written]);
    assert_eq!(store.history(&"x".into()).len(), 2);
    assert_eq!(store.history(&"y".into()).len(), 2);
}

#[test]
fn an_older_writer_is_fenced_and_writes_nothing() {
    let mut store = store();
    let old = campaign(&mut store, 7);
    let new = campaign(&mut store, 8);
    assert_eq!(new.term, Term(2));
    let outcomes = append(&mut store, old, vec![start(1, "x", Wake::Hot)]);
    assert_eq!(outcomes, [GroupOutcome::Rejected(Rejection::Fenced { held: Term(1), current: Term(2) })]);
    assert!(store.executions().is_empty());
    assert_eq!(claim(&mut store, old, 1, &[1]), []);
}

#[test]
fn a_campaign_that_is_repeated_by_its_winner_raises_nothing_again() {
    let mut store = store();
    assert_eq!(campaign(&mut store, 7).term, Term(1));
    assert_eq!(campaign(&mut store, 7).term, Term(1));
}

#[test]
fn a_claim_takes_the_oldest_and_its_repetition_takes_the_same() {
    let mut store = store();
    let fence = campaign(&mut store, 7);
    let mut group = start(1, "x", Wake::Hot);
    group.tasks = vec![queued("late", "x", 20), queued("early", "x", 10), queued("middle", "x", 15)];
    append(&mut store, fence, vec![group]);
    let two = [("early".to_owned(), Uuid::from_u128(101)), ("middle".to_owned(), Uuid::from_u128(102))];
    assert_eq!(claim(&mut store, fence, 1, &[101, 102]), two);
    assert_eq!(claim(&mut store, fence, 1, &[101, 102]), two, "the same call again");
    assert_eq!(claim(&mut store, fence, 2, &[103, 104]), [("late".to_owned(), Uuid::from_u128(103))]);
    assert_eq!(claim(&mut store, fence, 3, &[105]), []);
    // The next incarnation finds all of them in the queue.
    let fence = campaign(&mut store, 8);
    assert_eq!(claim(&mut store, fence, 4, &[1, 2, 3]).len(), 3);
}

#[test]
fn a_task_row_goes_only_in_the_state_that_the_change_was_decided_from() {
    let mut store = store();
    let fence = campaign(&mut store, 7);
    let mut group = start(1, "x", Wake::Hot);
    group.tasks = vec![queued("t", "x", 10)];
    append(&mut store, fence, vec![group]);
    claim(&mut store, fence, 1, &[101]);
    let mut delete = go_on(2, "x", 2, OwnerChange::Keep);
    delete.tasks = vec![TaskChange::Delete { task: TaskId::new("t"), expect: TaskState::Queued }];
    let found = TaskState::Claimed { token: Uuid::from_u128(101) };
    let moved = Rejection::TaskMoved { task: TaskId::new("t"), found: Some(found) };
    assert_eq!(append(&mut store, fence, vec![delete.clone()]), [GroupOutcome::Rejected(moved)]);
    delete.tasks = vec![TaskChange::Delete { task: TaskId::new("t"), expect: found }];
    assert_eq!(append(&mut store, fence, vec![delete]), [GroupOutcome::Written]);
    assert_eq!(store.tasks().count(), 0);
}

#[test]
fn what_is_due_comes_in_pages_and_names_the_next() {
    let mut store = store();
    let fence = campaign(&mut store, 7);
    let wakes = [Wake::Hot, Wake::At(ClusterMs(50)), Wake::At(ClusterMs(10)), Wake::Never, Wake::Hot];
    for (n, wake) in wakes.into_iter().enumerate() {
        append(&mut store, fence, vec![start(n as u128 + 1, &format!("x{n}"), wake)]);
    }
    let mut due = |until, after, limit| match store.run(Transaction::Due(ReadDue { until, after, owner: None, limit }))
    {
        Reply::Done(Verdict::Due(rows)) => rows,
        other => panic!("{other:?}"),
    };
    let ids = |rows: &DueRows| rows.due.iter().map(|(_, id)| id.to_string()).collect::<Vec<_>>();
    let hot = due(Wake::Hot, None, 10);
    assert_eq!((ids(&hot), hot.next), (vec!["x0".into(), "x4".into()], Some(ClusterMs(10))));
    let first = due(Wake::At(ClusterMs(10)), None, 2);
    assert_eq!((ids(&first), first.next), (vec!["x0".into(), "x4".into()], Some(ClusterMs(50))));
    let second = due(Wake::At(ClusterMs(10)), first.due.last().cloned(), 2);
    assert_eq!(ids(&second), ["x2"]);
    let all = due(Wake::At(ClusterMs(99)), None, 10);
    assert_eq!((ids(&all).len(), all.next), (4, None));
}

#[test]
fn a_page_of_a_history_ends_at_its_limits_and_says_whether_more_follows() {
    let mut store = store();
    let fence = campaign(&mut store, 7);
    let mut group = start(1, "x", Wake::Hot);
    group.members[0].events.push(event(3));
    append(&mut store, fence, vec![group]);
    let mut page = |after, limit, max_bytes| {
        let read = ReadHistory { execution: ExecutionId::new("x"), run: None, after: Seq(after), limit, max_bytes };
        match store.run(Transaction::History(read)) {
            Reply::Done(Verdict::History(page)) => (page.events.len(), page.more),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(page(0, 10, 1000), (3, false));
    assert_eq!(page(0, 2, 1000), (2, true));
    assert_eq!(page(1, 2, 1000), (2, false));
    assert_eq!(page(0, 10, 1), (1, true), "the event that takes the page past the bound is its last");
    assert_eq!(page(3, 10, 1000), (0, false));
}
