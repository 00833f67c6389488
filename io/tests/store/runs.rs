//! Runs and families: what continues as new, and what begins and ends together.

use crate::support::*;
use orbit_core::id::{Epoch, Run, Seq};
use orbit_core::node::Connection;
use orbit_core::store::append::*;
use orbit_core::store::statement::{HistoryPage, ReadHistory, ReadSummary};
use orbit_core::store::transaction::{Transaction, Verdict};

fn event_of(run: u32, seq: u64) -> StoredEvent {
    let bytes = format!("\u{1}{{\"run\":{run},\"seq\":{seq}}}").into_bytes();
    StoredEvent { run: Run(run), bytes, ..event(seq) }
}

/// Ends a run after `more` events, and begins the next one with two.
fn continues(execution: &str, run: u32, last: u64, more: u64) -> Member {
    let ends = (last + 1..=last + more).map(|seq| event_of(run, seq));
    Member {
        execution: execution.into(),
        expect: Expect::After { run: Run(run), last: Seq(last), epoch: Epoch(1) },
        events: ends.chain([event_of(run + 1, 1), event_of(run + 1, 2)]).collect(),
        summary: Some(summary(Status::Running)),
        owner: OwnerChange::Keep,
    }
}

fn history(store: &mut Running, run: Option<u32>) -> HistoryPage {
    let (run, after, limit, max_bytes) = (run.map(Run), Seq(0), 100, 1 << 20);
    let read = ReadHistory { execution: "a".into(), run, after, limit, max_bytes };
    match store.done(Connection::Requests, Transaction::History(read)) {
        Verdict::History(page) => page,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_new_run_takes_the_place_of_the_one_before_which_can_still_be_read() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 3)])]);
    let over = group(2, vec![continues("a", 1, 3, 2)]);
    store.written(fence, vec![over.clone()]);
    let loaded = store.load("a");
    assert_eq!(loaded.events, [event_of(2, 1).bytes, event_of(2, 2).bytes]);
    let owner = loaded.owner.expect("it runs");
    assert_eq!((owner.run, owner.last, owner.group), (Run(2), Seq(2), group_id(2)));

    // It goes on from there, and what still means the run before is refused.
    let late = store.append(fence, vec![group(3, vec![go_on("a", 5, 1)])]);
    let expected = Rejection::OtherSequence { execution: "a".into(), expected: Seq(5), last: Seq(2) };
    assert_eq!(late, [GroupOutcome::Rejected(expected)]);
    store.written(fence, vec![group(4, vec![continues("a", 2, 2, 1)])]);
    // The same again is known by the event that ended its run, though two runs came after it.
    store.written(fence, vec![over]);

    let pages: Vec<(u32, u32, usize)> = [Some(1), Some(2), Some(3), None, Some(4)]
        .into_iter()
        .map(|run| history(&mut store, run))
        .map(|page| (page.run.0, page.newest.0, page.events.len()))
        .collect();
    assert_eq!(pages, [(1, 3, 5), (2, 3, 3), (3, 3, 2), (3, 3, 2), (4, 3, 0)]);
    let read = Transaction::Summary(ReadSummary { execution: "a".into() });
    let Verdict::Summary(Some(row)) = store.done(Connection::Requests, read) else { panic!("not found") };
    assert_eq!((row.run, row.ends), (Run(3), Some((event_of(3, 1).bytes, event_of(3, 2).bytes))));
    let mut store = store.reopened();
    assert_eq!(store.load("a").owner.expect("it runs").run, Run(3));
}

#[test]
fn an_execution_can_begin_with_a_run_that_continues_as_new_at_once() {
    let (mut store, fence) = Running::led();
    let mut member = start("a", 2);
    member.events.extend([event_of(2, 1), event_of(2, 2), event_of(2, 3)]);
    store.written(fence, vec![group(1, vec![member.clone()])]);
    store.written(fence, vec![group(1, vec![member])]);
    let owner = store.load("a").owner.expect("it runs");
    assert_eq!((owner.run, owner.last), (Run(2), Seq(3)));
    assert_eq!(history(&mut store, Some(1)).events.len(), 2);
}

fn child(execution: &str, root: &str) -> Member {
    Member { expect: Expect::New { run: Run(1), root: root.into() }, ..start(execution, 2) }
}

#[test]
fn a_family_is_written_together_or_not_at_all() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    let born = group(2, vec![go_on("a", 1, 2), child("a~x", "a"), child("a~y", "a")]);
    store.written(fence, vec![born.clone()]);
    store.written(fence, vec![born]);
    for execution in ["a~x", "a~y"] {
        assert_eq!(store.load(execution).owner.expect("it runs").root.as_str(), "a");
    }
    // One of them is not as the writer believes: neither goes on.
    let outcomes =
        store.append(fence, vec![group(3, vec![go_on("a", 3, 1), end("a~x", 9)]), group(4, vec![go_on("a~y", 2, 1)])]);
    let other = Rejection::OtherSequence { execution: "a~x".into(), expected: Seq(9), last: Seq(2) };
    assert_eq!(outcomes, [GroupOutcome::Rejected(other), GroupOutcome::Written]);
    assert_eq!((last_of(&store.load("a")), last_of(&store.load("a~x"))), (Some(3), Some(2)));
    let ends = group(5, vec![go_on("a", 3, 1), end("a~x", 2), end("a~y", 3)]);
    store.written(fence, vec![ends.clone()]);
    assert_eq!((store.load("a~x").owner, store.load("a~y").owner), (None, None));
    // Whichever of its rows is left tells that it is there.
    store.campaign(2);
    store.written(fence, vec![ends]);
    // A child that is there already is not started again, nor does its parent record it.
    let fence = store.campaign(3);
    let again = store.append(fence, vec![group(6, vec![go_on("a", 4, 1), child("a~x", "a")])]);
    assert_eq!(again, [GroupOutcome::Rejected(Rejection::Exists { execution: "a~x".into() })]);
    assert_eq!(last_of(&store.load("a")), Some(4));
}

#[test]
fn a_family_of_a_thousand_is_one_group() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    let children = (0..1_000).map(|n| child(&format!("a~all[{n}]"), "a"));
    let members = std::iter::once(go_on("a", 1, 1)).chain(children).collect();
    store.written(fence, vec![group(2, members)]);
    assert_eq!(last_of(&store.load("a~all[999]")), Some(2));
}
