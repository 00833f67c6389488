//! Shared mode: servers that own trees, live, die, and take what others owned.

use super::*;
use orbit_core::store::ownership::{Join, MarkDead, Pulse, ReadOrphans, TakeReason, TakeRule, TakeTrees, Taker};
use std::collections::BTreeMap;

/// What a server of shared mode does. Whoever it is, is a number below 6; two of them have each name.
#[derive(Clone, Debug)]
pub enum Owned {
    Join(u8, bool),
    /// For the how manyeth time, and whether in place of whoever is there.
    Pulse(u8, u8, bool),
    Leave(u8),
    /// Whether it has beaten as often as the row says.
    MarkDead(u8, bool),
    Append(u8, WhichFence, Vec<PlannedGroup>),
    Take(Taking),
    Orphans(Option<u8>, u32),
    Due(u8, Option<i64>, u32),
}

#[derive(Clone, Debug)]
pub struct Taking {
    who: u8,
    fence: WhichFence,
    trees: Vec<u8>,
    /// Not the owner that there is, but this one.
    from: Option<u8>,
    hands_over: bool,
}

fn taking() -> impl Strategy<Value = Owned> {
    let trees = prop::collection::vec(0..8u8, 1..5);
    (0..6u8, fence(), trees, prop::option::weighted(0.2, 0..6u8), prop::bool::weighted(0.4))
        .prop_map(|(who, fence, trees, from, hands_over)| Owned::Take(Taking { who, fence, trees, from, hands_over }))
}

fn append() -> impl Strategy<Value = Owned> {
    // Mostly by one of two, so that trees are written to by their owners.
    let who = prop_oneof![4 => 1..3u8, 1 => 0..6u8];
    (who, fence(), prop::collection::vec(planned_group(), 1..4))
        .prop_map(|(who, f, groups)| Owned::Append(who, f, groups))
}

fn lives() -> impl Strategy<Value = Owned> {
    prop_oneof![
        2 => (0..6u8, any::<bool>()).prop_map(|(who, replaces)| Owned::Join(who, replaces)),
        2 => (0..6u8, 1..5u8, any::<bool>()).prop_map(|(who, n, replaces)| Owned::Pulse(who, n, replaces)),
        1 => (0..6u8).prop_map(Owned::Leave),
        3 => (0..6u8, prop::bool::weighted(0.8)).prop_map(|(who, right)| Owned::MarkDead(who, right)),
    ]
}

fn any_owned() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => lives(),
        12 => append(),
        6 => taking(),
        2 => (prop::option::of(0..8u8), 0..5u32).prop_map(|(after, limit)| Owned::Orphans(after, limit)),
        1 => (0..6u8, prop::option::of(0..60i64), 0..6u32).prop_map(|(who, until, limit)| Owned::Due(who, until, limit)),
    ]
    .prop_map(Step::Owned)
}

/// Any step of servers of shared mode.
pub fn shared() -> impl Strategy<Value = Step> {
    prop_oneof![6 => any_owned(), 1 => step()]
}

/// Those in which they meet.
pub(super) fn meeting() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => lives(),
        10 => append(),
        8 => taking(),
        1 => (prop::option::of(0..8u8), 0..5u32).prop_map(|(after, limit)| Owned::Orphans(after, limit)),
    ]
    .prop_map(Step::Owned)
}

/// The trees of `a` and `b`, whose children begin with them.
pub(super) fn two_trees() -> Vec<PlannedGroup> {
    let member = |execution| PlannedMember {
        execution,
        mistake: 0,
        events: 1,
        wake: PlannedWake::Hot,
        status: Some(0),
        label: 2,
    };
    let tree = |root, child| PlannedGroup::New { members: vec![member(root), member(child)], tasks: vec![(root, 0)] };
    vec![tree(0, 1), tree(3, 4)]
}

fn name(who: u8) -> NodeId {
    node_id(who % 3)
}

/// Root and member of a tree are written by one group, where that begins the root or ends it: what other groups of a batch
/// are judged by is what was there before it.
fn each_alone(groups: Vec<Group>) -> Vec<Group> {
    let root = |id: &ExecutionId| id.as_str().split('~').next().expect("a first part").to_owned();
    let mut trees: BTreeMap<String, bool> = BTreeMap::new();
    let mut kept = Vec::new();
    for group in groups {
        let moves = |member: &Member| {
            let turns = matches!(member.expect, Expect::New { .. }) || member.owner == OwnerChange::End;
            (root(&member.execution), turns && root(&member.execution) == member.execution.as_str())
        };
        let moved: Vec<_> = group.members.iter().map(moves).collect();
        let fits = |(tree, turns): &(String, bool)| trees.get(tree).is_none_or(|before| !before && !turns);
        if moved.iter().all(fits) {
            for (tree, turns) in moved {
                *trees.entry(tree).or_default() |= turns;
            }
            kept.push(group);
        }
    }
    kept
}

impl Planned {
    pub(super) fn owned(&mut self, step: Owned, model: &ModelStore) -> Transaction {
        let beat = |who, beats, replaces: bool| {
            let there = model.nodes().find(|node| node.node_id == name(who)).filter(|_| replaces);
            let replaces = there.map(|node| (node.incarnation, node.beats));
            BeatNode { node: node_row(name(who), who, beats, model), replaces }
        };
        match step {
            Owned::Join(who, replaces) => {
                Transaction::Join(Box::new(Join { schema: SCHEMA_VERSION, beat: beat(who, 1, replaces) }))
            }
            Owned::Pulse(who, beats, replaces) => {
                Transaction::Pulse(Box::new(Pulse { beat: beat(who, beats, replaces) }))
            }
            Owned::Leave(who) => Transaction::Leave(LeaveNode { node_id: name(who), incarnation: incarnation(who) }),
            Owned::MarkDead(who, right) => {
                let there = model.nodes().find(|node| node.node_id == name(who));
                let beats = there.map_or(1, |node| node.beats) + u64::from(!right);
                Transaction::MarkDead(MarkDead { node_id: name(who), incarnation: incarnation(who), beats })
            }
            Owned::Append(who, which, groups) => {
                let (fence, groups) = (self.fence(which, model), each_alone(self.groups(groups, model)));
                Transaction::Append(Append { fence, owner: Some(incarnation(who)), groups })
            }
            Owned::Take(Taking { who, fence, trees, from, hands_over }) => {
                let owner = |root: &ExecutionId| model.owners().get(root).map(|row| row.incarnation);
                let from = from.map(incarnation);
                let named = |root: &ExecutionId| from.or(owner(root)).unwrap_or(incarnation(1));
                let trees: BTreeMap<_, _> = trees
                    .into_iter()
                    .map(execution)
                    .map(|root| {
                        let was = named(&root);
                        (root, was)
                    })
                    .collect();
                Transaction::Take(TakeTrees {
                    fence: self.fence(fence, model),
                    by: Taker { incarnation: incarnation(who), node_id: name(who) },
                    // In an order that is none: that of locks is the statement's.
                    trees: trees.into_iter().rev().collect(),
                    reason: if hands_over { TakeReason::HandedOver } else { TakeReason::Orphaned },
                    rule: TakeRule::Sound,
                })
            }
            Owned::Orphans(after, limit) => Transaction::Orphans(ReadOrphans { after: after.map(execution), limit }),
            Owned::Due(who, until, limit) => Transaction::Due(ReadDue {
                until: until.map_or(Wake::Hot, |at| Wake::At(ClusterMs(at))),
                after: None,
                owner: Some(incarnation(who)),
                limit,
            }),
        }
    }
}
