//! A writer of shared mode: what it believes to own, and what it does with it.

use super::lane::Lane;
use super::{Figures, Suspicion, WATCHING};
use crate::postgres::SessionId;
use crate::postgres::engine::Engine;
use crate::postgres::session::Outcome;
use crate::postgres::store::Orbit;
use crate::rng::Dice;
use orbit_core::cluster::detector::{Detector, Watching};
use orbit_core::execution::event::Labels;
use orbit_core::id::{Epoch, ExecutionId, GroupId, Incarnation, NodeId, Run, Seq, Term};
use orbit_core::store::append::{
    Append, Expect, Fence, Group, GroupOutcome, Member, OwnerChange, Status, StoredEvent, Summary,
};
use orbit_core::store::origin::Origin;
use orbit_core::store::outcome::Reply;
use orbit_core::store::ownership::{
    Join, JoinVerdict, MarkDead, OwnedTree, Pulse, ReadOrphans, TakeReason, TakeRule, TakeTrees, Taker,
};
use orbit_core::store::statement::{BeatNode, NodeRow, NodeRows, Rows};
use orbit_core::store::transaction::{SCHEMA_VERSION, Transaction, Verdict};
use orbit_core::time::{ClusterMs, Mono, WallMs};
use std::collections::BTreeMap;

/// How a writer goes about it.
#[derive(Clone, Copy, Debug)]
pub struct How<'a> {
    pub rule: TakeRule,
    /// None where it is known who is gone.
    pub suspicion: Option<Suspicion>,
    /// Those who live.
    pub others: &'a [(NodeId, Incarnation)],
}

/// See the module's documentation.
#[derive(Debug)]
pub struct Writer {
    name: NodeId,
    incarnation: Incarnation,
    next_incarnation: Incarnation,
    /// The fence, once it has joined.
    fence: Option<Fence>,
    beats: u64,
    /// By how much its host's wall clock is ahead.
    skew_ms: i64,
    detector: Detector,
    watching: Watching,
    seen: NodeRows,
    /// When its beat was sent that is under way, and when the next one is due.
    pulsed: Option<u64>,
    next_pulse: u64,
    /// It does nothing before this time.
    until: u64,
    trees: BTreeMap<ExecutionId, Tree>,
    orphans: Vec<OwnedTree>,
    appending: Option<Group>,
    handing: Option<ExecutionId>,
    store: Lane,
    control: Lane,
    frozen: Vec<SessionId>,
    begun: u64,
}

/// A tree, as its owner knows it: each member's last event.
#[derive(Debug)]
struct Tree {
    epoch: Epoch,
    members: BTreeMap<ExecutionId, Seq>,
}

impl Writer {
    pub fn new(name: NodeId, incarnation: Incarnation, skew_ms: i64) -> Writer {
        Writer {
            name,
            incarnation,
            next_incarnation: incarnation,
            fence: None,
            beats: 0,
            skew_ms,
            detector: Detector::default(),
            watching: WATCHING,
            seen: NodeRows { nodes: Vec::new(), clock: ClusterMs(0) },
            pulsed: None,
            next_pulse: 0,
            until: 0,
            trees: BTreeMap::new(),
            orphans: Vec::new(),
            appending: None,
            handing: None,
            store: Lane::default(),
            control: Lane::default(),
            frozen: Vec::new(),
            begun: 0,
        }
    }

    /// Who it is.
    pub fn identity(&self) -> Option<(NodeId, Incarnation)> {
        self.fence.map(|_| (self.name.clone(), self.incarnation))
    }

    pub fn has(&self, session: SessionId) -> bool {
        self.store.has(session) || self.control.has(session)
    }

    /// It is killed, and started again under its name. What its backends run, they run to an end.
    pub fn crash(&mut self, engine: &mut Engine<Orbit>, incarnation: Incarnation) {
        self.store.drop_session(engine);
        self.control.drop_session(engine);
        self.forgets(incarnation);
    }

    fn forgets(&mut self, incarnation: Incarnation) {
        (self.incarnation, self.fence, self.beats) = (incarnation, None, 0);
        (self.detector, self.pulsed, self.next_pulse) = (Detector::default(), None, 0);
        self.seen.nodes.clear();
        self.trees.clear();
        self.orphans.clear();
        (self.appending, self.handing) = (None, None);
    }

    pub fn stand_still(&mut self, until: u64) {
        self.until = until;
    }

    pub fn end_a_session(&mut self, engine: &mut Engine<Orbit>, dice: &mut Dice) {
        let lane = if dice.below(2) == 0 { &self.store } else { &self.control };
        if let Some(session) = lane.session() {
            engine.terminate(session);
        }
    }

    pub fn freeze_or_thaw(&mut self, engine: &mut Engine<Orbit>, dice: &mut Dice) {
        if let Some(session) = self.frozen.pop() {
            return engine.thaw(session);
        }
        let lane = if dice.below(2) == 0 { &self.store } else { &self.control };
        if let Some(session) = lane.session() {
            engine.freeze(session);
            self.frozen.push(session);
        }
    }

    pub fn heal(&mut self, engine: &mut Engine<Orbit>) {
        self.until = 0;
        for session in std::mem::take(&mut self.frozen) {
            engine.thaw(session);
        }
    }

    /// Does something that it is free to do.
    pub fn acts(&mut self, engine: &mut Engine<Orbit>, dice: &mut Dice, how: How<'_>, figures: &mut Figures) {
        if engine.now_us() < self.until {
            return;
        }
        if let Some(Suspicion::Detector(rule)) = how.suspicion {
            self.watching.rule = rule;
        }
        self.next_incarnation = Incarnation(dice.uuid());
        let Some(fence) = self.fence else {
            if self.control.is_free() {
                self.joins(engine, figures);
            }
            return;
        };
        if dice.below(2) == 0 {
            if !self.store.is_free() {
                return;
            }
            if dice.below(8) == 0 {
                return self.reloads(engine);
            }
            if let Some(group) = self.group(dice) {
                self.appending = Some(group.clone());
                let append = Append { fence, owner: Some(self.incarnation), groups: vec![group] };
                self.sends_on_store(engine, Transaction::Append(append), figures);
            }
        } else if self.control.is_free() {
            let transaction = self.control_work(engine, dice, how, fence);
            let reply = self.control.send(engine, transaction);
            if self.control.take_opened() {
                // The database may have been away, or have started anew.
                self.detector.failed(&self.watching);
            }
            self.told(engine.now_us(), reply, figures);
        }
    }

    fn sends_on_store(&mut self, engine: &mut Engine<Orbit>, transaction: Transaction, figures: &mut Figures) {
        let reply = self.store.send(engine, transaction);
        self.told(engine.now_us(), reply, figures);
    }

    fn joins(&mut self, engine: &mut Engine<Orbit>, figures: &mut Figures) {
        let there = engine.domain.store.nodes().find(|row| row.node_id == self.name);
        let replaces = there.map(|row| (row.incarnation, row.beats));
        let join = Join { schema: SCHEMA_VERSION, beat: self.beat(replaces) };
        let reply = self.control.send(engine, Transaction::Join(Box::new(join)));
        self.told(engine.now_us(), reply, figures);
    }

    fn beat(&mut self, replaces: Option<(Incarnation, u64)>) -> BeatNode {
        self.beats += 1;
        let node = NodeRow {
            node_id: self.name.clone(),
            incarnation: self.incarnation,
            addr: None,
            host: "sim".into(),
            pid: 1,
            version: "1".into(),
            role: "shared".into(),
            term: Term(1),
            config_digest: "00".into(),
            clock_offset_ms: 0,
            started_ms: ClusterMs(1),
            beats: self.beats,
            heartbeat_ms: ClusterMs(0),
            dead: false,
        };
        BeatNode { node, replaces }
    }

    fn control_work(&mut self, engine: &Engine<Orbit>, dice: &mut Dice, how: How<'_>, fence: Fence) -> Transaction {
        let (by, rule) = (Taker { incarnation: self.incarnation, node_id: self.name.clone() }, how.rule);
        if engine.now_us() >= self.next_pulse {
            return self.pulse(engine.now_us());
        }
        match dice.weighted(&[10, 10, 30, 6]) {
            1 => {
                let suspects = self.suspects(engine, how);
                if !suspects.is_empty() {
                    return Transaction::MarkDead(dice.pick(&suspects).clone());
                }
            }
            2 if self.orphans.is_empty() => {
                return Transaction::Orphans(ReadOrphans { after: None, limit: 4 });
            }
            2 => {
                let trees = std::mem::take(&mut self.orphans).into_iter().map(|tree| (tree.root, tree.owner)).collect();
                return Transaction::Take(TakeTrees { fence, by, trees, reason: TakeReason::Orphaned, rule });
            }
            3 => {
                let idle = |root: &&ExecutionId| {
                    self.appending.as_ref().is_none_or(|group| group.members.iter().all(|m| !is_of(&m.execution, root)))
                };
                let roots: Vec<ExecutionId> = self.trees.keys().filter(idle).cloned().collect();
                let heirs: Vec<_> = how.others.iter().filter(|(name, _)| *name != self.name).collect();
                if !roots.is_empty() && !heirs.is_empty() {
                    let root = dice.pick(&roots).clone();
                    let (node_id, incarnation) = (*dice.pick(&heirs)).clone();
                    self.handing = Some(root.clone());
                    self.trees.remove(&root);
                    let (by, trees) = (Taker { incarnation, node_id }, vec![(root, self.incarnation)]);
                    return Transaction::Take(TakeTrees { fence, by, trees, reason: TakeReason::HandedOver, rule });
                }
            }
            _ => {}
        }
        self.pulse(engine.now_us())
    }

    fn pulse(&mut self, now: u64) -> Transaction {
        self.pulsed = Some(now);
        self.next_pulse = now + u64::try_from(WATCHING.interval.as_micros()).expect("it is short");
        Transaction::Pulse(Box::new(Pulse { beat: self.beat(None) }))
    }

    /// Whom it would declare dead.
    fn suspects(&self, engine: &Engine<Orbit>, how: How<'_>) -> Vec<MarkDead> {
        if let Some(Suspicion::Detector(rule)) = how.suspicion {
            let wall = WallMs(engine.clock_ms() + self.skew_ms);
            return self.detector.silent(&Watching { rule, ..self.watching }, wall, &self.seen);
        }
        let suspect = |row: &&NodeRow| {
            let lives = how.others.iter().any(|(_, other)| *other == row.incarnation);
            row.incarnation != self.incarnation && row.is_there() && (how.suspicion.is_some() || !lives)
        };
        let rows = engine.domain.store.nodes().filter(suspect);
        let mark = |row: &NodeRow| {
            let (node_id, incarnation, beats) = (row.node_id.clone(), row.incarnation, row.beats);
            MarkDead { node_id, incarnation, beats }
        };
        rows.map(mark).collect()
    }

    /// What it owns, as it is committed.
    fn reloads(&mut self, engine: &Engine<Orbit>) {
        self.trees.clear();
        let owners = engine.domain.store.owners();
        for (id, row) in owners.iter().filter(|(_, row)| row.incarnation == self.incarnation) {
            if self.handing.as_ref() == Some(&row.root) {
                continue;
            }
            let tree = Tree { epoch: row.epoch, members: BTreeMap::new() };
            self.trees.entry(row.root.clone()).or_insert(tree).members.insert(id.clone(), row.last);
        }
    }

    /// Something to write: a new tree, a child, an event, an end.
    fn group(&mut self, dice: &mut Dice) -> Option<Group> {
        let id = GroupId(dice.uuid());
        let roots: Vec<ExecutionId> = self.trees.keys().cloned().collect();
        if roots.is_empty() || (roots.len() < 6 && dice.below(8) == 0) {
            self.begun += 1;
            let root = ExecutionId::new(format!("{}-{}-{}", self.name.as_str(), dice.below(1_000_000), self.begun));
            return Some(Group { id, members: vec![begins(&root, &root)], tasks: Vec::new() });
        }
        let root = dice.pick(&roots).clone();
        let tree = &self.trees[&root];
        let members: Vec<&ExecutionId> = tree.members.keys().collect();
        let member = (*dice.pick(&members)).clone();
        let goes_on = |owner| goes_on(&member, tree.members[&member], tree.epoch, owner);
        let members = match dice.below(10) {
            0..=3 if members.len() < 6 => {
                let child = ExecutionId::new(format!("{root}~{}", dice.below(1_000_000)));
                vec![goes_on(OwnerChange::Keep), begins(&child, &root)]
            }
            // A parent's end waits for its children.
            4 if member != root || members.len() == 1 => vec![goes_on(OwnerChange::End)],
            _ => vec![goes_on(OwnerChange::Keep)],
        };
        Some(Group { id, members, tasks: Vec::new() })
    }

    pub fn answered(
        &mut self,
        engine: &mut Engine<Orbit>,
        session: SessionId,
        outcome: Outcome<Rows>,
        figures: &mut Figures,
    ) {
        let lane = if self.store.has(session) { &mut self.store } else { &mut self.control };
        let reply = lane.answered(engine, outcome);
        self.told(engine.now_us(), reply, figures);
    }

    fn told(&mut self, now: u64, reply: Option<Reply<Verdict>>, figures: &mut Figures) {
        if let (Some(Reply::Unknown | Reply::Failed(_)), Some(_)) =
            (&reply, self.pulsed.filter(|_| self.control.is_free()))
        {
            self.pulsed = None;
            self.detector.failed(&self.watching);
        }
        match reply {
            Some(Reply::Done(Verdict::Append(outcomes))) => {
                let group = self.appending.take();
                match outcomes.first() {
                    Some(GroupOutcome::Written) => {
                        if let Some(group) = &group {
                            self.wrote(group);
                        }
                    }
                    Some(GroupOutcome::Rejected(_)) => {
                        *figures.entry("group rejected").or_default() += 1;
                        self.drops(group.as_ref());
                    }
                    Some(GroupOutcome::Busy) => *figures.entry("group busy").or_default() += 1,
                    None => {}
                }
            }
            Some(Reply::Done(Verdict::Join(JoinVerdict::Joined { fence, .. }))) => self.fence = Some(fence),
            Some(Reply::Done(Verdict::Pulse(seen))) => {
                if seen.instead.is_some() {
                    *figures.entry("found itself dead").or_default() += 1;
                    return self.forgets(self.next_incarnation);
                }
                if let Some(sent) = self.pulsed.take() {
                    let origin = Some(Origin { system: 1, timeline: 1 });
                    let times = (Mono(sent), Mono(now));
                    self.detector.beat(&self.watching, times, origin, self.incarnation, &seen.nodes);
                    self.seen = seen.nodes;
                }
            }
            Some(Reply::Done(Verdict::Orphans(orphans))) => self.orphans = orphans,
            Some(Reply::Done(Verdict::Take(_))) => self.handing = None,
            Some(Reply::Unknown | Reply::Failed(_)) => {
                let group = self.appending.take().filter(|_| self.store.is_free());
                self.drops(group.as_ref());
                self.handing = None;
            }
            _ => {}
        }
    }

    /// What is not known to be so is read again.
    fn drops(&mut self, group: Option<&Group>) {
        let of_it =
            |root: &ExecutionId| group.is_some_and(|group| group.members.iter().any(|m| is_of(&m.execution, root)));
        self.trees.retain(|root, _| !of_it(root));
    }

    fn wrote(&mut self, group: &Group) {
        for member in &group.members {
            let id = &member.execution;
            let (root, epoch) = match &member.expect {
                Expect::New { root, .. } => (root.clone(), Epoch(1)),
                Expect::After { epoch, .. } => (root_of(id), *epoch),
            };
            let is_root = root == *id;
            if !is_root && !self.trees.contains_key(&root) {
                continue;
            }
            let tree = self.trees.entry(root.clone()).or_insert(Tree { epoch, members: BTreeMap::new() });
            if member.owner == OwnerChange::End {
                tree.members.remove(id);
                if is_root {
                    self.trees.remove(&root);
                }
            } else {
                tree.members.insert(id.clone(), member.end().1);
            }
        }
    }
}

fn root_of(id: &ExecutionId) -> ExecutionId {
    ExecutionId::new(id.as_str().split('~').next().expect("a first part"))
}

fn is_of(id: &ExecutionId, root: &ExecutionId) -> bool {
    root_of(id) == *root
}

fn event(seq: Seq) -> StoredEvent {
    StoredEvent { run: Run(1), seq, at_ms: ClusterMs(1), bytes: b"\x01{}".to_vec() }
}

fn begins(id: &ExecutionId, root: &ExecutionId) -> Member {
    let summary = Summary {
        workflow: "W".into(),
        version: "1".into(),
        status: Status::Running,
        created_at_ms: ClusterMs(1),
        updated_at_ms: ClusterMs(1),
        labels: Labels::new(),
    };
    Member {
        execution: id.clone(),
        expect: Expect::New { run: Run(1), root: root.clone() },
        events: vec![event(Seq(1))],
        summary: Some(summary),
        owner: OwnerChange::Keep,
    }
}

fn goes_on(id: &ExecutionId, last: Seq, epoch: Epoch, owner: OwnerChange) -> Member {
    let expect = Expect::After { run: Run(1), last, epoch };
    Member { execution: id.clone(), expect, events: vec![event(last.next())], summary: None, owner }
}
