//! Trees of executions in shared mode: who may write to them, and how they become another server's.

use crate::kind::{self, Place};
use crate::support::*;
use orbit_core::id::{Epoch, Incarnation, Run, Seq, Term};
use orbit_core::node::Connection;
use orbit_core::store::append::*;
use orbit_core::store::outcome::Reply;
use orbit_core::store::ownership::{
    Join, JoinVerdict, MarkDead, OwnedTree, Pulse, ReadOrphans, TakeReason, TakeRule, TakeTrees, TakenTree, Taker,
};
use orbit_core::store::statement::{BeatNode, LeaveNode, NodeRow, ReadDue};
use orbit_core::store::transaction::{SCHEMA_VERSION, Transaction, Verdict};
use orbit_core::time::ClusterMs;
use orbit_support::Postgres;
use orbit_support::wire::{Action, Held, Proxy};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// Sync: the statement has been run, and its transaction waits to be committed.
const SYNC: u8 = b'S';

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A server of shared mode, whose store connection can be held.
struct Server {
    store: Running,
    proxy: Proxy,
    fence: Fence,
    me: Incarnation,
    name: String,
}

fn incarnation(number: u128) -> Incarnation {
    Incarnation(Uuid::from_u128(number))
}

fn beat(name: &str, who: Incarnation, beats: u64) -> BeatNode {
    let node = NodeRow {
        node_id: name.into(),
        incarnation: who,
        addr: None,
        host: "host".into(),
        pid: 1,
        version: "1".into(),
        role: "owner".into(),
        term: Term(1),
        config_digest: "d".into(),
        clock_offset_ms: 0,
        started_ms: ClusterMs(1),
        beats,
        heartbeat_ms: ClusterMs(0),
        dead: false,
    };
    BeatNode { node, replaces: None }
}

impl Server {
    fn join(place: &Place, who: u128) -> Server {
        let proxy = Proxy::before(place.database.port);
        let attached = kind::open(&Place { database: proxy.database(&place.database) });
        let mut store = Running { attached, calls: 0, place: place.clone() };
        let (me, name) = (incarnation(who), format!("node-{who}"));
        let join = Join { schema: SCHEMA_VERSION, beat: beat(&name, me, 1) };
        match store.done(Connection::Control, Transaction::Join(Box::new(join))) {
            Verdict::Join(JoinVerdict::Joined { fence, .. }) => Server { store, proxy, fence, me, name },
            other => panic!("{other:?}"),
        }
    }

    /// Two of them on a new database.
    fn two() -> (Server, Server) {
        let place = Place { database: Postgres::shared().fresh() };
        (Server::join(&place, 1), Server::join(&place, 2))
    }

    fn append_of(&self, groups: Vec<Group>) -> Transaction {
        Transaction::Append(Append { fence: self.fence, owner: Some(self.me), groups })
    }

    fn append(&mut self, groups: Vec<Group>) -> Vec<GroupOutcome> {
        let append = self.append_of(groups);
        match self.store.done(Connection::Store, append) {
            Verdict::Append(outcomes) => outcomes,
            other => panic!("{other:?}"),
        }
    }

    fn written(&mut self, groups: Vec<Group>) {
        let wanted = vec![GroupOutcome::Written; groups.len()];
        assert_eq!(self.append(groups), wanted);
    }

    /// Makes `root` and its child.
    fn grow(&mut self, root: &str) {
        let n = u128::from(u64::from_be_bytes(*b"tree\0\0\0\0")) + root.bytes().map(u128::from).sum::<u128>();
        self.written(vec![group(n, vec![start(root, 1)])]);
        self.written(vec![group(n + (1 << 70), vec![child(root, 1)])]);
    }

    fn mark(&mut self, other: &Server) -> bool {
        let mark = MarkDead { node_id: other.name.as_str().into(), incarnation: other.me, beats: 1 };
        self.store.done(Connection::Control, Transaction::MarkDead(mark)) == Verdict::MarkDead(true)
    }

    fn orphans(&mut self) -> Vec<OwnedTree> {
        let read = ReadOrphans { after: None, limit: 100 };
        match self.store.done(Connection::Store, Transaction::Orphans(read)) {
            Verdict::Orphans(trees) => trees,
            other => panic!("{other:?}"),
        }
    }

    fn take_of(&self, trees: &[(&str, Incarnation)], reason: TakeReason) -> Transaction {
        let by = Taker { incarnation: self.me, node_id: self.name.as_str().into() };
        let trees = trees.iter().map(|(root, was)| (execution_id(root), *was)).collect();
        Transaction::Take(TakeTrees { fence: self.fence, by, trees, reason, rule: TakeRule::Sound })
    }

    fn take(&mut self, trees: &[(&str, Incarnation)]) -> Vec<TakenTree> {
        let take = self.take_of(trees, TakeReason::Orphaned);
        taken(self.store.done(Connection::Store, take))
    }

    /// Runs the append, and stops before it is committed.
    fn append_and_hold(&mut self, groups: Vec<Group>) -> Held {
        // It is prepared before.
        let nothing = self.append_of(Vec::new());
        self.store.done(Connection::Store, nothing);
        let mut done = false;
        self.proxy.rule(move |message| {
            let meant = !done && message.is_from_client(SYNC) && message.statement.contains("execution_events");
            done |= meant;
            if meant { Action::Hold } else { Action::Pass }
        });
        let append = self.append_of(groups);
        self.store.send(Connection::Store, append);
        let held = self.proxy.next_held(PATIENCE, |_| true).expect("it is held");
        // What the statement locks is locked once it has run, which it does not say before it is asked to.
        until("the statement has run", || {
            let idle =
                "SELECT wait_event = 'ClientRead' AND backend_xid IS NOT NULL FROM pg_stat_activity WHERE pid = $1";
            let mut client = self.store.place.database.connect();
            client.query_one(idle, &[&held.message.backend]).unwrap().get::<_, Option<bool>>(0) == Some(true)
        });
        held
    }

    fn next_append(&mut self) -> GroupOutcome {
        match self.store.next_reply().1 {
            Reply::Done(Verdict::Append(outcomes)) => outcomes[0].clone(),
            other => panic!("{other:?}"),
        }
    }

    fn owner(&mut self, execution: &str) -> (Epoch, Incarnation) {
        let owner = self.store.load(execution).owner.expect("it runs");
        (owner.epoch, owner.incarnation)
    }
}

fn taken(verdict: Verdict) -> Vec<TakenTree> {
    match verdict {
        Verdict::Take(trees) => trees,
        other => panic!("{other:?}"),
    }
}

fn tree(root: &str, epoch: u64) -> TakenTree {
    TakenTree { root: execution_id(root), epoch: Epoch(epoch) }
}

fn child(root: &str, count: u64) -> Member {
    let expect = Expect::New { run: Run(1), root: execution_id(root) };
    Member { expect, ..start(&format!("{root}~1"), count) }
}

fn go_on_in(epoch: u64, execution: &str, last: u64) -> Member {
    let expect = Expect::After { run: Run(1), last: Seq(last), epoch: Epoch(epoch) };
    Member { expect, ..go_on(execution, last, 1) }
}

fn other_owner(execution: &str) -> GroupOutcome {
    GroupOutcome::Rejected(Rejection::OtherOwner { execution: execution_id(execution) })
}

/// Waits until a backend of this database waits for a lock.
fn somebody_waits(server: &Server) {
    let mut client = server.store.place.database.connect();
    let waits = "SELECT count(*) FROM pg_stat_activity
        WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("somebody waits", || client.query_one(waits, &[]).unwrap().get::<_, i64>(0) > 0);
}

#[test]
fn who_begins_a_tree_owns_it_and_nobody_else_writes_to_it() {
    let (mut first, mut second) = Server::two();
    assert_eq!(first.fence, second.fence, "all write under one fence");
    first.grow("a");
    assert_eq!(first.owner("a"), (Epoch(1), first.me));
    assert_eq!(first.owner("a~1"), (Epoch(1), first.me));
    let strange = vec![
        group(10, vec![go_on("a", 1, 1)]),
        group(11, vec![go_on("a~1", 1, 1)]),
        group(12, vec![Member { execution: execution_id("a~2"), ..child("a", 1) }]),
        group(13, vec![Member { execution: execution_id("none~1"), ..child("none", 1) }]),
        group(14, vec![start("b", 1)]),
    ];
    assert_eq!(
        second.append(strange),
        vec![other_owner("a"), other_owner("a~1"), other_owner("a~2"), other_owner("none~1"), GroupOutcome::Written]
    );
    first.written(vec![group(20, vec![go_on("a", 1, 1)]), group(21, vec![go_on("a~1", 1, 1)])]);
    // Both at once, and the child in a group of its own: it finds the root that this statement has locked.
    first.written(vec![group(22, vec![start("c", 1), child("c", 1)])]);
    assert_eq!(first.owner("c~1"), (Epoch(1), first.me));
    let node: String = first
        .store
        .place
        .database
        .connect()
        .query_one("SELECT node_id FROM orbit_owners WHERE execution_id = 'c~1'", &[])
        .unwrap()
        .get(0);
    assert_eq!(node, "node-1");
}

#[test]
fn what_is_due_is_read_by_owner() {
    let (mut first, mut second) = Server::two();
    let at = |id: &str, at| start_with(id, 1, summary(Status::Running), Wake::At(ClusterMs(at)));
    first.written(vec![group(1, vec![at("a", 5)]), group(2, vec![at("c", 9)])]);
    second.written(vec![group(3, vec![at("b", 6)]), group(4, vec![at("d", 8)])]);
    let read = |server: &mut Server, owner| {
        let read = ReadDue { until: Wake::At(ClusterMs(7)), after: None, owner, limit: 10 };
        match server.store.done(Connection::Store, Transaction::Due(read)) {
            Verdict::Due(rows) => {
                (rows.due.into_iter().map(|(_, id)| id.to_string()).collect::<Vec<_>>(), rows.next.unwrap().0)
            }
            other => panic!("{other:?}"),
        }
    };
    let (one, two) = (Some(first.me), Some(second.me));
    assert_eq!(read(&mut first, one), (vec!["a".into()], 9));
    assert_eq!(read(&mut first, two), (vec!["b".into()], 8));
    assert_eq!(read(&mut second, None), (vec!["a".into(), "b".into()], 8));
}

#[test]
fn a_takeover_waits_for_an_append_in_flight_and_one_after_it_is_refused() {
    for written in [&["a~1"][..], &["a"], &["a", "a~1"]] {
        let (mut first, mut second) = Server::two();
        first.grow("a");
        // Of the child alone, it is the root's row that holds the taker up.
        let members = written.iter().map(|id| go_on(id, 1, 1)).collect();
        let held = first.append_and_hold(vec![group(1, members)]);
        assert!(second.mark(&first));
        let take = second.take_of(&[("a", first.me)], TakeReason::Orphaned);
        second.store.send(Connection::Store, take);
        somebody_waits(&first);
        first.proxy.release(&held);
        assert_eq!(first.next_append(), GroupOutcome::Written);
        let Reply::Done(verdict) = second.store.next_reply().1 else { panic!("it is done") };
        assert_eq!(taken(verdict), [tree("a", 2)]);
        for id in ["a", "a~1"] {
            let last = if written.contains(&id) { 2 } else { 1 };
            assert_eq!(second.store.load(id).events.len(), usize::try_from(last).unwrap());
            let row = second.store.load(id).owner.unwrap();
            assert_eq!((row.last, row.epoch, row.incarnation), (Seq(last), Epoch(2), second.me));
            // Even if it knew the new epoch.
            for epoch in [1, 2] {
                let late = group(u128::from(epoch) << 8 | u128::from(last), vec![go_on_in(epoch, id, last)]);
                let outcome = first.append(vec![late]).remove(0);
                let stale = Rejection::OtherEpoch { execution: execution_id(id), held: Epoch(1), current: Epoch(2) };
                let refused = if epoch == 1 { GroupOutcome::Rejected(stale) } else { other_owner(id) };
                assert_eq!(outcome, refused);
            }
            second.written(vec![group(77 + u128::from(last) + id.len() as u128, vec![go_on_in(2, id, last)])]);
        }
        let late = Member { execution: execution_id("a~2"), ..child("a", 1) };
        assert_eq!(first.append(vec![group(4, vec![late])]), [other_owner("a~2")]);
    }
}

#[test]
fn an_append_that_meets_a_taker_is_busy() {
    let (mut first, second) = Server::two();
    first.grow("a");
    let mut taker = first.store.place.database.connect();
    taker.batch_execute("BEGIN; SELECT 1 FROM orbit_owners WHERE execution_id = 'a' FOR UPDATE").unwrap();
    let groups = || {
        vec![
            group(1, vec![go_on("a~1", 1, 1)]),
            group(2, vec![Member { execution: execution_id("a~2"), ..child("a", 1) }]),
        ]
    };
    assert_eq!(first.append(groups()), [GroupOutcome::Busy, GroupOutcome::Busy]);
    taker
        .execute("UPDATE orbit_owners SET incarnation = $1, epoch = 2 WHERE execution_id = 'a'", &[&second.me.0])
        .unwrap();
    assert_eq!(first.append(groups()), [GroupOutcome::Busy, GroupOutcome::Busy]);
    taker.batch_execute("COMMIT").unwrap();
    assert_eq!(first.append(groups()), [other_owner("a~1"), other_owner("a~2")]);
}

#[test]
fn a_child_that_begins_while_its_root_is_taken_moves_with_it() {
    let (mut first, mut second) = Server::two();
    first.written(vec![group(1, vec![start("a", 1)])]);
    let held = first.append_and_hold(vec![group(2, vec![child("a", 1)])]);
    assert!(second.mark(&first));
    let take = second.take_of(&[("a", first.me)], TakeReason::Orphaned);
    second.store.send(Connection::Store, take);
    somebody_waits(&first);
    first.proxy.release(&held);
    assert_eq!(first.next_append(), GroupOutcome::Written);
    let Reply::Done(verdict) = second.store.next_reply().1 else { panic!("it is done") };
    assert_eq!(taken(verdict), [tree("a", 2)]);
    assert_eq!(second.owner("a~1"), (Epoch(2), second.me));
    // And whatever begins from now on begins in the tree's epoch.
    second.written(vec![group(3, vec![Member { execution: execution_id("a~2"), ..child("a", 1) }])]);
    assert_eq!(second.owner("a~2"), (Epoch(2), second.me));
}

#[test]
fn of_two_takers_one_wins_and_a_repetition_gives_the_same() {
    let (mut first, mut second) = Server::two();
    let mut third = Server::join(&first.store.place, 3);
    first.grow("a");
    first.grow("b");
    second.grow("c");
    assert_eq!(second.take(&[("a", first.me)]), [], "it lives");
    assert_eq!(second.orphans(), []);
    assert!(second.mark(&first));
    let orphan = |root: &str| OwnedTree { root: execution_id(root), owner: first.me, wake: Wake::Hot };
    assert_eq!(third.orphans(), [orphan("a"), orphan("b")]);
    assert_eq!(second.take(&[("b", first.me), ("a", first.me)]), [tree("a", 2), tree("b", 2)]);
    assert_eq!(third.take(&[("a", first.me), ("b", first.me)]), []);
    assert_eq!(second.take(&[("b", first.me), ("a", first.me)]), [tree("a", 2), tree("b", 2)]);
    assert_eq!(third.orphans(), []);
    assert_eq!(third.take(&[("a", second.me), ("c", second.me)]), [], "it lives");
    assert_eq!(second.owner("b~1"), (Epoch(2), second.me));
    // Under another fence nothing is taken.
    second.store.done(
        Connection::Control,
        Transaction::Leave(LeaveNode { node_id: second.name.as_str().into(), incarnation: second.me }),
    );
    third.fence.term = third.fence.term.next();
    assert_eq!(third.take(&[("c", second.me)]), []);
    third.fence = first.fence;
    assert_eq!(third.orphans().len(), 3, "who has left owns nothing any more");
    assert_eq!(third.take(&[("c", second.me)]), [tree("c", 2)]);
}

#[test]
fn who_is_dead_stays_dead() {
    let (mut first, mut second) = Server::two();
    let late = MarkDead { node_id: first.name.as_str().into(), incarnation: first.me, beats: 0 };
    assert_eq!(second.store.done(Connection::Control, Transaction::MarkDead(late)), Verdict::MarkDead(false));
    assert!(second.mark(&first) && second.mark(&first), "now or before");
    let beats = |n| Transaction::Pulse(Box::new(Pulse { beat: beat("node-1", incarnation(1), n) }));
    for n in [2, 3] {
        let Verdict::Pulse(seen) = first.store.done(Connection::Control, beats(n)) else { panic!("a pulse") };
        let row = seen.instead.expect("it is refused");
        assert!(row.dead && row.incarnation == first.me && row.beats == 1, "{row:?}");
        assert_eq!(seen.nodes.nodes.iter().map(|row| row.dead).collect::<Vec<_>>(), [true, false]);
    }
    // Its name is free for another.
    let next = Join { schema: SCHEMA_VERSION, beat: beat("node-1", incarnation(7), 1) };
    let Verdict::Join(JoinVerdict::Joined { .. }) =
        first.store.done(Connection::Control, Transaction::Join(Box::new(next)))
    else {
        panic!("it joins")
    };
}

#[test]
fn trees_are_handed_over_by_who_owns_them() {
    let (mut first, mut second) = Server::two();
    first.grow("a");
    second.grow("b");
    let by = Taker { incarnation: second.me, node_id: second.name.as_str().into() };
    let trees = vec![(execution_id("a"), first.me), (execution_id("b"), first.me), (execution_id("a~1"), first.me)];
    let give = TakeTrees { fence: first.fence, by, trees, reason: TakeReason::HandedOver, rule: TakeRule::Sound };
    let given = taken(first.store.done(Connection::Store, Transaction::Take(give.clone())));
    // The second one was its own before.
    assert_eq!(given, [tree("a", 2), tree("b", 1)]);
    assert_eq!(first.owner("a~1"), (Epoch(2), second.me));
    assert_eq!(first.append(vec![group(1, vec![go_on("a", 1, 1)])]).len(), 1);
    second.written(vec![group(2, vec![go_on_in(2, "a", 1), go_on_in(2, "a~1", 1)])]);
    for rule in [TakeRule::AnyOwner, TakeRule::SameEpoch, TakeRule::OneStatement] {
        let reply = first.store.reply(Connection::Store, Transaction::Take(TakeTrees { rule, ..give.clone() }));
        assert!(!matches!(reply, Reply::Done(_)), "{reply:?}");
    }
    assert_eq!(second.owner("b~1"), (Epoch(1), second.me), "only simulated servers take them like this");
}

#[test]
fn takers_and_appends_of_the_same_trees_never_wait_in_a_circle() {
    let (mut first, second) = Server::two();
    let roots = ["a", "b", "c", "d"];
    for root in roots {
        first.grow(root);
    }
    let place = first.store.place.clone();
    let owners = [first.me, second.me];
    let mut both: Vec<std::thread::JoinHandle<u32>> = Vec::new();
    for (mut server, at) in [(first, 0), (second, 1)] {
        both.push(std::thread::spawn(move || {
            let mut written = 0;
            for round in 0..60u128 {
                // Each takes all, in its own order, from the other; and writes to all, in another one.
                let mut trees: Vec<_> = roots.into_iter().map(|root| (root, owners[1 - at])).collect();
                if round % 2 == 0 {
                    trees.reverse();
                }
                let take = server.take_of(&trees, TakeReason::HandedOver);
                let Reply::Done(Verdict::Take(_)) = server.store.reply(Connection::Store, take) else {
                    panic!("it is done")
                };
                let last: Vec<Member> = ["d~1", "b", "a~1", "c", "a", "c~1", "d", "b~1"]
                    .into_iter()
                    .map(|id| {
                        let row = server.store.load(id).owner.expect("it runs");
                        go_on_in(row.epoch.0, id, row.last.0)
                    })
                    .collect();
                let groups = last
                    .into_iter()
                    .zip(0u128..)
                    .map(|(member, n)| group((at as u128 + 1) << 80 | round << 8 | n, vec![member]));
                let append = server.append_of(groups.collect());
                match server.store.reply(Connection::Store, append) {
                    Reply::Done(Verdict::Append(outcomes)) => {
                        written += outcomes.iter().filter(|o| **o == GroupOutcome::Written).count() as u32;
                    }
                    other => panic!("{other:?}"),
                }
            }
            written
        }));
    }
    let written: Vec<u32> = both.into_iter().map(|thread| thread.join().expect("no panic")).collect();
    let mut client = place.database.connect();
    let count = |client: &mut ::postgres::Client, sql: &str| client.query_one(sql, &[]).unwrap().get::<_, i64>(0);
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(count(&mut client, deadlocks), 0);
    // Each tree is of one owner and one epoch.
    let torn = "SELECT count(*) FROM orbit_owners c JOIN orbit_owners r ON r.execution_id = c.root_id
        WHERE (c.incarnation, c.epoch) <> (r.incarnation, r.epoch)";
    assert_eq!(count(&mut client, torn), 0);
    let events = count(&mut client, "SELECT count(*) FROM execution_events");
    assert_eq!(events, 8 + i64::from(written.iter().sum::<u32>()));
    assert!(events > 8, "both write: {written:?}");
}
