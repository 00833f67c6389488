//! This server's row among those of its cluster, `orbit_nodes`, for people: it registers, says each second that it lives,
//! and leaves at a clean stop (design, section 5). Nothing is decided by it but whose a name is.
//!
//! A name is one process's. A server that finds its own held by another looks at that one's beats by its own clock, for as
//! long as its looks succeed without a gap (protocols, 19). One that was killed has fallen silent, and its row is taken
//! over. One whose beats go on lives: then this server ends, and says which one that is.

use super::lifecycle::Phase;
use super::request::Read;
use super::{Connection, LogEvent, Node, Purpose, RequestId};
use crate::api::response::{NodeView, Nodes, Reply, Response};
use crate::id::Incarnation;
use crate::mutant::Mutants;
use crate::store::outcome::Failure;
use crate::store::statement::{BeatNode, LeaveNode, NodeRow, NodeRows};
use crate::store::transaction::{Transaction, Verdict};
use crate::time::{ClusterMs, Mono};
use std::time::Duration;

/// How often a server says that it lives.
pub const BEAT_EVERY: Duration = Duration::from_secs(1);
/// How often one looks at the beats of another that has its name.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// Whoever has not beaten for so long has fallen silent: three beats are missing.
const SILENT_AFTER: Duration = Duration::from_secs(3);
/// Looks that lie further apart do not add up.
const GAP: Duration = Duration::from_secs(2);
/// Whoever beats so often while it is looked at lives: of a process that was killed, one beat at most is still on its way.
const LIVES_AFTER: u32 = 3;
/// A standby that stops waits so long until it is written that it has left.
const LEAVE_WITHIN: Duration = Duration::from_secs(2);

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Membership {
    /// The process's, whatever it comes to lead.
    process: Incarnation,
    begun: Mono,
    /// When it began, by the database's clock, once that is known.
    started: Option<ClusterMs>,
    beats: u64,
    next: Mono,
    in_flight: bool,
    /// Its row says that it is there.
    registered: bool,
    /// Another process that has the name.
    other: Option<Watched>,
    /// Of whom people have been told.
    told: Option<Incarnation>,
    leaving: bool,
}

/// Another process under this server's name, as the looks at its beats showed it.
#[derive(Debug)]
struct Watched {
    incarnation: Incarnation,
    beats: u64,
    /// Since when it has not moved, and when it was looked at last.
    since: Mono,
    looked: Mono,
    moved: u32,
}

impl Membership {
    pub fn new(process: Incarnation, begun: Mono) -> Membership {
        Membership {
            process,
            begun,
            started: None,
            beats: 0,
            next: begun,
            in_flight: false,
            registered: false,
            other: None,
            told: None,
            leaving: false,
        }
    }

    /// The beat that is under way, if one is, is not heard of.
    pub fn forget(&mut self) {
        self.in_flight = false;
    }

    /// Whether it is being written that this server has left.
    pub fn is_leaving(&self) -> bool {
        self.leaving
    }
}

impl<M: Mutants> Node<M> {
    fn is_member(&self) -> bool {
        let there = match self.phase {
            Phase::Campaigning { .. } | Phase::Recovering { .. } | Phase::Serving { .. } => true,
            Phase::Stopping { .. } | Phase::Releasing { .. } => self.hands_over(),
            Phase::Idle | Phase::Leaving { .. } | Phase::Exited => false,
        };
        self.standby().is_some() && there && self.clock.is_known()
    }

    /// When the others are to be told next that this server lives.
    pub(super) fn next_beat(&self) -> Option<Mono> {
        let waits = self.is_member() && !self.membership.in_flight;
        waits.then_some(self.membership.next)
    }

    pub(super) fn beat_when_due(&mut self) {
        if self.next_beat().is_some_and(|at| at <= self.now.mono) {
            let silent = self.membership.other.as_ref().filter(|other| other.since + SILENT_AFTER <= self.now.mono);
            let replaces = silent.map(|other| (other.incarnation, other.beats));
            self.beat(replaces);
        }
    }

    fn beat(&mut self, replaces: Option<(Incarnation, u64)>) {
        self.membership.beats += 1;
        self.membership.in_flight = true;
        let node = self.node_row();
        self.send(Connection::Control, Transaction::Beat(Box::new(BeatNode { node, replaces })), Purpose::Beat);
    }

    /// This server, as the others see it.
    pub(super) fn node_row(&mut self) -> NodeRow {
        let began = i64::try_from(self.now.mono.since(self.membership.begun).as_millis()).unwrap_or(i64::MAX);
        let started = ClusterMs(self.cluster_now().0.saturating_sub(began));
        NodeRow {
            node_id: self.config.node_id.clone(),
            incarnation: self.membership.process,
            addr: self.config.addr.clone(),
            host: self.config.host.clone(),
            pid: self.config.pid,
            version: env!("CARGO_PKG_VERSION").into(),
            role: self.role_name().into(),
            term: self.known_term().unwrap_or_default(),
            config_digest: self.config.digest.clone(),
            clock_offset_ms: self.clock_offset_ms().unwrap_or_default(),
            started_ms: *self.membership.started.get_or_insert(started),
            beats: self.membership.beats,
            heartbeat_ms: self.cluster_now(),
            dead: false,
        }
    }

    /// By how much this server's wall clock is ahead of the database's, in milliseconds, once that is known. For people
    /// alone.
    pub(super) fn clock_offset_ms(&self) -> Option<i64> {
        self.clock.is_known().then(|| self.now.wall.0.saturating_sub(self.cluster_now().0))
    }

    pub(super) fn on_beat(&mut self, sent: Mono, outcome: Result<Verdict, Failure>) {
        let now = self.now.mono;
        self.membership.in_flight = false;
        self.membership.next = now + BEAT_EVERY;
        match outcome {
            Ok(Verdict::Beat(None)) => {
                self.membership.registered = true;
                self.membership.other = None;
                self.took_another_write(sent);
            }
            Ok(Verdict::Beat(Some(other))) => {
                self.membership.registered = false;
                self.membership.next = now + LOOK_EVERY;
                self.watch(*other);
            }
            Ok(other) => unreachable!("a beat gives the row that is there, not {other:?}"),
            // What was seen of another does not add up over a gap.
            Err(_) => self.membership.other = None,
        }
    }

    /// Another process has this server's name.
    fn watch(&mut self, row: NodeRow) {
        let now = self.now.mono;
        let known = self.membership.other.take().filter(|other| other.incarnation == row.incarnation);
        let Some(mut other) = known.filter(|other| now.since(other.looked) <= GAP) else {
            if self.is_member() && self.membership.told.replace(row.incarnation) != Some(row.incarnation) {
                let (node_id, host, pid) = (row.node_id, row.host, row.pid);
                self.log(LogEvent::NodeIdHeld { node_id, host, pid });
            }
            let NodeRow { incarnation, beats, .. } = row;
            self.membership.other = Some(Watched { incarnation, beats, since: now, looked: now, moved: 0 });
            return;
        };
        other.looked = now;
        if other.beats != row.beats {
            (other.beats, other.since, other.moved) = (row.beats, now, other.moved + 1);
        }
        let lives = other.moved >= LIVES_AFTER;
        self.membership.other = Some(other);
        if lives && self.is_member() {
            let addr = row.addr.map(|addr| format!(", serving {addr}")).unwrap_or_default();
            let (name, host, pid) = (row.node_id, row.host, row.pid);
            let why = format!(
                "the node id `{name}` is another server's, which lives: process {pid} on host `{host}`{addr}; give each \
                 server of a cluster a --node-id of its own"
            );
            self.refuse_all(&why);
            self.unservable(why);
        }
    }

    /// The servers of the cluster; one that is alone shows itself.
    pub(super) fn list_nodes(&mut self, id: RequestId) {
        if self.standby().is_some() {
            return self.read(id, Read::Nodes, Transaction::Nodes);
        }
        let (nodes, clock) = (vec![self.node_row()], self.cluster_now());
        self.answer(id, shown_nodes(NodeRows { nodes, clock }));
    }

    /// It is written that this server leaves, where it was written that it is there.
    pub(super) fn leave(&mut self) {
        if std::mem::take(&mut self.membership.registered) {
            self.membership.leaving = true;
            let leave = LeaveNode { node_id: self.config.node_id.clone(), incarnation: self.membership.process };
            self.send(Connection::Control, Transaction::Leave(leave), Purpose::Leave);
        }
    }

    /// A standby stops: nothing of its own is in flight but that it leaves.
    pub(super) fn leave_and_exit(&mut self) {
        self.leave();
        let until = self.now.mono + LEAVE_WITHIN.min(self.config.stop_deadline);
        self.phase = Phase::Leaving { until, clean: !self.cluster.in_doubt };
    }

    /// That it has left is written, or could not be: then its silence says so.
    pub(super) fn on_left(&mut self) {
        self.membership.leaving = false;
    }
}

/// The servers, as they are shown.
pub(super) fn shown_nodes(NodeRows { nodes, clock }: NodeRows) -> Response {
    let nodes = nodes.into_iter().map(|row| NodeView::of_row(row, clock)).collect();
    Response::ok(Reply::Nodes(Nodes { nodes }))
}
