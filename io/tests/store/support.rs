//! A store that runs, on whichever database the tests that include this have, and short ways to say what is done.
//!
//! The including crate has a module `kind`: its backend, its place (a file, a database), and how to make and open one.
#![allow(dead_code)]

use crate::kind;
use orbit_core::execution::event::Labels;
use orbit_core::id::{CallKey, Epoch, ExecutionId, GroupId, Incarnation, Run, Seq, TaskId, Term};
use orbit_core::node::{CallId, Connection};
use orbit_core::store::append::*;
use orbit_core::store::outcome::Reply;
use orbit_core::store::statement::*;
use orbit_core::store::transaction::{Campaign, CampaignVerdict, Transaction, Verdict};
use orbit_core::time::{ClusterMs, WallMs};
use orbit_io::driver::{Attached, Backend};
use uuid::Uuid;

/// A store that runs.
pub struct Running {
    // Closed before its place goes.
    pub attached: Attached<kind::Backend>,
    pub calls: u64,
    pub place: kind::Place,
}

impl Running {
    /// On a new place.
    pub fn fresh() -> Running {
        Running::on(kind::Place::fresh())
    }

    /// On this place.
    pub fn on(place: kind::Place) -> Running {
        Running { attached: kind::open(&place), calls: 0, place }
    }

    /// A new store with a server that may write.
    pub fn led() -> (Running, Fence) {
        let mut running = Running::fresh();
        let fence = running.campaign(1);
        (running, fence)
    }

    /// Closes the store and opens its place again.
    pub fn reopened(self) -> Running {
        let Running { attached, place, .. } = self;
        drop(attached);
        Running::on(place)
    }

    /// Sends a transaction without waiting for its reply.
    pub fn send(&mut self, connection: Connection, transaction: Transaction) -> CallId {
        self.calls += 1;
        self.attached.backend.run(connection, CallId(self.calls), transaction, None);
        CallId(self.calls)
    }

    pub fn next_reply(&mut self) -> (CallId, Reply<Verdict>) {
        let reply = self.attached.replies.blocking_recv().expect("the store answers every call");
        (reply.call, reply.reply)
    }

    pub fn reply(&mut self, connection: Connection, transaction: Transaction) -> Reply<Verdict> {
        let sent = self.send(connection, transaction);
        let (call, reply) = self.next_reply();
        assert_eq!(call, sent);
        reply
    }

    /// Runs a transaction that must end well.
    pub fn done(&mut self, connection: Connection, transaction: Transaction) -> Verdict {
        match self.reply(connection, transaction) {
            Reply::Done(verdict) => verdict,
            other => panic!("{other:?}"),
        }
    }

    pub fn campaign(&mut self, incarnation: u128) -> Fence {
        match self.try_campaign(incarnation) {
            CampaignVerdict::Won { term, .. } => Fence { term, incarnation: Incarnation(Uuid::from_u128(incarnation)) },
            other => panic!("{other:?}"),
        }
    }

    pub fn try_campaign(&mut self, incarnation: u128) -> CampaignVerdict {
        let (mode, incarnation) = (orbit_core::cluster::Mode::Single, Incarnation(Uuid::from_u128(incarnation)));
        let campaign = Campaign::new(mode, incarnation, holder());
        match self.done(Connection::Election, Transaction::Campaign(campaign)) {
            Verdict::Campaign(verdict) => verdict,
            other => panic!("{other:?}"),
        }
    }

    pub fn append(&mut self, fence: Fence, groups: Vec<Group>) -> Vec<GroupOutcome> {
        match self.done(Connection::Store, Transaction::Append(Append::under(fence, groups))) {
            Verdict::Append(outcomes) => outcomes,
            other => panic!("{other:?}"),
        }
    }

    /// Appends groups that must all be written.
    pub fn written(&mut self, fence: Fence, groups: Vec<Group>) {
        for outcome in self.append(fence, groups) {
            assert_eq!(outcome, GroupOutcome::Written);
        }
    }

    pub fn load(&mut self, execution: &str) -> LoadedExecution {
        let read = ReadHistories { executions: vec![execution.into()] };
        match self.done(Connection::Requests, Transaction::Load(read)) {
            Verdict::Load(mut loaded) => loaded.remove(0),
            other => panic!("{other:?}"),
        }
    }

    pub fn claim(&mut self, fence: Fence, key: u128, wants: Vec<ClaimWant>) -> Vec<ClaimedTask> {
        let claim = ClaimTasks { key: CallKey(Uuid::from_u128(key)), fence, wants };
        match self.done(Connection::Store, Transaction::Claim(claim)) {
            Verdict::Claim(tasks) => tasks,
            other => panic!("{other:?}"),
        }
    }

    pub fn list(&mut self, list: ListSummaries) -> Vec<String> {
        match self.done(Connection::Requests, Transaction::Summaries(list)) {
            Verdict::Summaries(rows) => rows.into_iter().map(|row| row.execution.to_string()).collect(),
            other => panic!("{other:?}"),
        }
    }

    pub fn check(&mut self) -> FenceRow {
        match self.done(Connection::Control, Transaction::Check) {
            Verdict::Check(row) => row,
            other => panic!("{other:?}"),
        }
    }
}

pub fn holder() -> Holder {
    Holder {
        node_id: "node-a".into(),
        host: "host-a".into(),
        pid: std::process::id(),
        addr: Some("http://127.0.0.1:7233".into()),
        since_ms: WallMs(1_794_760_406_041),
    }
}

pub fn other_fence() -> Fence {
    Fence { term: Term(9), incarnation: Incarnation(Uuid::from_u128(9)) }
}

pub fn group_id(id: u128) -> GroupId {
    GroupId(Uuid::from_u128(id))
}

pub fn group(id: u128, members: Vec<Member>) -> Group {
    Group { id: group_id(id), members, tasks: Vec::new() }
}

/// An event of which only the number is known.
pub fn event(seq: u64) -> StoredEvent {
    StoredEvent {
        run: Run(1),
        seq: Seq(seq),
        at_ms: ClusterMs(1_000),
        bytes: format!("\u{1}{{\"seq\":{seq}}}").into_bytes(),
    }
}

pub fn events(from: u64, count: u64) -> Vec<StoredEvent> {
    (from..from + count).map(event).collect()
}

pub fn summary(status: Status) -> Summary {
    Summary {
        workflow: "OrderProcessing".into(),
        version: "1.0.0".into(),
        status,
        created_at_ms: ClusterMs(1_000),
        updated_at_ms: ClusterMs(2_000),
        labels: Labels::new(),
    }
}

/// A new execution with `count` events, in its owner's memory.
pub fn start(execution: &str, count: u64) -> Member {
    start_with(execution, count, summary(Status::Running), Wake::Hot)
}

pub fn start_with(execution: &str, count: u64, summary: Summary, wake: Wake) -> Member {
    Member {
        execution: execution.into(),
        expect: Expect::New { run: Run(1), root: execution.into() },
        events: events(1, count),
        summary: Some(summary),
        owner: OwnerChange::Wake(wake),
    }
}

/// `count` more events after the last known one.
pub fn go_on(execution: &str, last: u64, count: u64) -> Member {
    Member {
        execution: execution.into(),
        expect: Expect::After { run: Run(1), last: Seq(last), epoch: Epoch(1) },
        events: events(last + 1, count),
        summary: None,
        owner: OwnerChange::Keep,
    }
}

/// One last event.
pub fn end(execution: &str, last: u64) -> Member {
    Member { summary: Some(summary(Status::Completed)), owner: OwnerChange::End, ..go_on(execution, last, 1) }
}

pub fn task(id: &str, execution: &str, task_name: &str, enqueued_ms: i64) -> TaskRow {
    TaskRow {
        task: id.into(),
        execution: execution.into(),
        unit: "charge".into(),
        attempt: 1,
        task_name: task_name.into(),
        contract_version: "1".into(),
        enqueued_ms: ClusterMs(enqueued_ms),
    }
}

pub fn want(task_names: &[&str], tokens: &[u128]) -> ClaimWant {
    ClaimWant {
        contracts: task_names.iter().map(|&name| (name.into(), "1".into())).collect(),
        tokens: tokens.iter().map(|&token| Uuid::from_u128(token)).collect(),
    }
}

/// Ids and tokens of claimed tasks.
pub fn ids(tasks: &[ClaimedTask]) -> Vec<(&str, u128)> {
    tasks.iter().map(|claimed| (claimed.task.as_str(), claimed.token.as_u128())).collect()
}

pub fn last_of(loaded: &LoadedExecution) -> Option<u64> {
    loaded.owner.as_ref().map(|owner| owner.last.0)
}

pub fn task_id(id: &str) -> TaskId {
    id.into()
}

pub fn execution_id(id: &str) -> ExecutionId {
    id.into()
}

/// Version 1 of the workflow `W`, without anything in it.
pub fn definition() -> DefinitionRow {
    DefinitionRow {
        name: "W".into(),
        version: "1".into(),
        hash: "h".into(),
        document: serde_json::json!({}),
        created_at_ms: ClusterMs(1),
    }
}
