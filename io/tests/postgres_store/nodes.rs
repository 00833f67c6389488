//! The rows of the servers of a cluster: whose a name is, as the model has it.

use crate::support::Running;
use orbit_core::id::{ClusterId, Incarnation, Term};
use orbit_core::node::Connection;
use orbit_core::store::outcome::Reply;
use orbit_core::store::statement::{BeatNode, LeaveNode, NodeRow, NodeRows};
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_core::time::ClusterMs;
use orbit_sim::postgres::store::whole::Whole;
use uuid::Uuid;

fn incarnation(number: u128) -> Incarnation {
    Incarnation(Uuid::from_u128(number))
}

fn row(name: &str, who: u128, beats: u64) -> NodeRow {
    NodeRow {
        node_id: name.into(),
        incarnation: incarnation(who),
        addr: (who > 1).then(|| "http://orbit-0:7233".into()),
        host: "a höst".into(),
        pid: 4_000_000_000,
        version: "0.1.0".into(),
        role: "standby".into(),
        term: Term(7),
        config_digest: "5f2ab01c".into(),
        clock_offset_ms: -12,
        started_ms: ClusterMs(1_700_000_000_000),
        beats,
        heartbeat_ms: ClusterMs(0),
        dead: false,
    }
}

fn beat(name: &str, who: u128, beats: u64, replaces: Option<(u128, u64)>) -> Transaction {
    let replaces = replaces.map(|(who, beats)| (incarnation(who), beats));
    Transaction::Beat(Box::new(BeatNode { node: row(name, who, beats), replaces }))
}

/// Without what the clock says, but for whether it has left.
fn timeless(mut row: NodeRow) -> NodeRow {
    row.heartbeat_ms = ClusterMs(i64::from(row.heartbeat_ms.0 > 0));
    row
}

fn normal(reply: Reply<Verdict>) -> Reply<Verdict> {
    match reply {
        Reply::Done(Verdict::Beat(there)) => Reply::Done(Verdict::Beat(there.map(|row| Box::new(timeless(*row))))),
        Reply::Done(Verdict::Nodes(NodeRows { nodes, .. })) => {
            let nodes = nodes.into_iter().map(timeless).collect();
            Reply::Done(Verdict::Nodes(NodeRows { nodes, clock: ClusterMs(0) }))
        }
        other => other,
    }
}

#[test]
fn whatever_two_processes_of_one_name_do_in_turn_the_row_is_whose_the_model_says_it_is() {
    let moves = |name: &str| {
        let leave = |who| Transaction::Leave(LeaveNode { node_id: name.into(), incarnation: incarnation(who) });
        [
            beat(name, 1, 1, None),
            beat(name, 1, 2, None),
            beat(name, 2, 1, None),
            beat(name, 2, 2, Some((1, 1))),
            beat(name, 1, 3, Some((2, 2))),
            leave(1),
            leave(2),
        ]
    };
    let mut store = Running::fresh();
    let mut model = Whole::new(ClusterId(Uuid::nil()));
    model.set_clock(ClusterMs(5));
    let count = moves("").len();
    for sequence in 0..count.pow(3) {
        let name = format!("node-{sequence:03}");
        for place in 0..3 {
            let next = moves(&name)[sequence / count.pow(place) % count].clone();
            let expected = normal(model.run(next.clone()));
            assert_eq!(normal(store.reply(Connection::Control, next.clone())), expected, "{name}: {next:?}");
        }
    }
    let expected = normal(model.run(Transaction::Nodes));
    assert_eq!(normal(store.reply(Connection::Requests, Transaction::Nodes)), expected);
    let Reply::Done(Verdict::Nodes(found)) = expected else { panic!("rows") };
    assert!(found.nodes.len() > 100, "most of them begin with a beat: {}", found.nodes.len());
}

#[test]
fn a_heartbeat_is_the_databases_clock_and_waits_for_no_disk() {
    let mut store = Running::fresh();
    let Verdict::Nodes(none) = store.done(Connection::Control, Transaction::Nodes) else { panic!("rows") };
    assert_eq!(none.nodes, []);
    assert_eq!(store.done(Connection::Control, beat("a", 1, 1, None)), Verdict::Beat(None));
    let Verdict::Nodes(NodeRows { nodes, clock }) = store.done(Connection::Requests, Transaction::Nodes) else {
        panic!("rows")
    };
    let age = clock.0 - nodes[0].heartbeat_ms.0;
    assert!((0..60_000).contains(&age), "{age}");
    assert_eq!(timeless(nodes[0].clone()), NodeRow { heartbeat_ms: ClusterMs(1), ..row("a", 1, 1) });
}

#[test]
fn the_election_lock_is_given_back_by_who_has_it_and_by_nobody_else() {
    let (mut first, _) = Running::led();
    let mut second = Running::on(first.place.clone());
    let unlock = |store: &mut Running| store.done(Connection::Election, Transaction::Unlock);
    assert_eq!(unlock(&mut second), Verdict::Unlock(false));
    assert_eq!(unlock(&mut first), Verdict::Unlock(true));
    assert_eq!(unlock(&mut first), Verdict::Unlock(false), "it was taken once");
    second.campaign(2);
}
