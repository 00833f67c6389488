//! Random transactions. A step is small numbers alone; what they mean depends on what there is when the step is taken,
//! so that most appends follow the last event, and some do not.

mod append;
mod kinds;
mod ownership;

pub use kinds::{KINDS, kinds};
pub use ownership::{Owned, shared};

use orbit_core::cluster::{Elected, Mode};
use orbit_core::execution::event::Labels;
use orbit_core::id::{CallKey, Epoch, ExecutionId, GroupId, Incarnation, NodeId, Run, Seq, TaskId, WorkerId};
use orbit_core::store::append::*;
use orbit_core::store::lease::{LeaseCampaign, LeaseRule, ReleaseByForce};
use orbit_core::store::mode::SetMode;
use orbit_core::store::statement::*;
use orbit_core::store::transaction::{Campaign, KeepWorkers, SCHEMA_VERSION, Transaction};
use orbit_core::time::{ClusterMs, WallMs};
use orbit_sim::store::ModelStore;
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;

/// A step of a plan.
#[derive(Clone, Debug)]
pub enum Step {
    Campaign(u8),
    Check,
    Release(WhichFence),
    Append(WhichFence, Vec<PlannedGroup>),
    Claim(WhichFence, Option<u8>, Vec<(u8, u8)>),
    Sweep(WhichFence, u8),
    Deploy(WhichFence, u8, u8, u8),
    Recover,
    Load(Vec<u8>),
    Due(Option<i64>, Option<(i64, u8)>, u32),
    Summary(u8),
    Summaries(PlannedFilter),
    History(u8, u64, u32, u32),
    SaveWorker(u8, u8),
    KeepWorkers(u8, i64, Option<(u8, i64, u32)>),
    Workers,
    TakeLease(u8),
    /// By the holder, or by another, or in another epoch.
    RenewLease(u8),
    FreeLease(WhichFence),
    ForceLease,
    SetMode(u8),
    /// Under which name, by whom, for the how manyeth time, and whether in place of whoever is there.
    Beat(u8, u8, u8, bool),
    Leave(u8, u8),
    Owned(Owned),
    /// The file is closed and opened.
    Reopen,
}

#[derive(Clone, Copy, Debug)]
pub enum WhichFence {
    Current,
    /// The one before, or none that there ever was.
    Earlier,
    /// Of the same term, and of another incarnation.
    Namesake,
}

#[derive(Clone, Debug)]
pub enum PlannedGroup {
    New {
        members: Vec<PlannedMember>,
        tasks: Vec<(u8, u8)>,
    },
    /// One that was sent before, written or not.
    Again(u8),
}

#[derive(Clone, Debug)]
pub struct PlannedMember {
    execution: u8,
    /// 0 to 7: as it is; 8 another last number, 9 another run, 10 another epoch, 11 new where it exists or the reverse.
    mistake: u8,
    events: u8,
    wake: PlannedWake,
    status: Option<u8>,
    label: u8,
}

#[derive(Clone, Copy, Debug)]
pub enum PlannedWake {
    Keep,
    Hot,
    Never,
    At(i64),
    End,
}

#[derive(Clone, Debug)]
pub struct PlannedFilter {
    status: Option<u8>,
    workflow: Option<u8>,
    labels: u8,
    since: Option<i64>,
    before: Option<(i64, u8)>,
    limit: u32,
}

fn fence() -> impl Strategy<Value = WhichFence> {
    prop_oneof![16 => Just(WhichFence::Current), 2 => Just(WhichFence::Earlier), 1 => Just(WhichFence::Namesake)]
}

/// Of what is rarer than an append.
fn any_fence() -> impl Strategy<Value = WhichFence> {
    prop_oneof![6 => Just(WhichFence::Current), 1 => Just(WhichFence::Earlier), 2 => Just(WhichFence::Namesake)]
}

fn member() -> impl Strategy<Value = PlannedMember> {
    let wake = prop_oneof![
        3 => Just(PlannedWake::Keep),
        2 => Just(PlannedWake::Hot),
        1 => Just(PlannedWake::Never),
        2 => (1..50i64).prop_map(PlannedWake::At),
        1 => Just(PlannedWake::End),
    ];
    (0..8u8, 0..12u8, 0..4u8, wake, prop::option::of(0..5u8), 0..6u8).prop_map(
        |(execution, mistake, events, wake, status, label)| PlannedMember {
            execution,
            mistake,
            events,
            wake,
            status,
            label,
        },
    )
}

fn planned_group() -> impl Strategy<Value = PlannedGroup> {
    let fresh = (prop::collection::vec(member(), 1..3), prop::collection::vec((0..8u8, 0..5u8), 0..3))
        .prop_map(|(members, tasks)| PlannedGroup::New { members, tasks });
    prop_oneof![6 => fresh, 1 => any::<u8>().prop_map(PlannedGroup::Again)]
}

fn keep_workers() -> impl Strategy<Value = Step> {
    (0..8u8, 0..12i64, prop::option::of((0..8u8, 0..8i64, 0..3u32))).prop_map(|(w, a, f)| Step::KeepWorkers(w, a, f))
}

/// Any step.
pub fn step() -> impl Strategy<Value = Step> {
    let small = 0..8u8;
    let filter = (
        prop::option::of(0..5u8),
        prop::option::of(0..3u8),
        0..6u8,
        prop::option::of(0..60i64),
        prop::option::of((0..60i64, 0..8u8)),
        0..6u32,
    )
        .prop_map(|(status, workflow, labels, since, before, limit)| PlannedFilter {
            status,
            workflow,
            labels,
            since,
            before,
            limit,
        });
    prop_oneof![
        1 => (0..4u8).prop_map(Step::Campaign),
        1 => Just(Step::Check),
        1 => any_fence().prop_map(Step::Release),
        16 => (fence(), prop::collection::vec(planned_group(), 1..5)).prop_map(|(f, g)| Step::Append(f, g)),
        4 => (any_fence(), prop::option::weighted(0.2, any::<u8>()), prop::collection::vec((0..8u8, 0..4u8), 1..4))
            .prop_map(|(f, again, wants)| Step::Claim(f, again, wants)),
        1 => (any_fence(), 0..4u8).prop_map(|(f, known)| Step::Sweep(f, known)),
        2 => (any_fence(), 0..6u8, 0..4u8, 0..2u8).prop_map(|(f, k, v, h)| Step::Deploy(f, k, v, h)),
        1 => Just(Step::Recover),
        2 => prop::collection::vec(small.clone(), 0..4).prop_map(Step::Load),
        2 => (prop::option::of(0..60i64), prop::option::of((0..60i64, 0..8u8)), 0..6u32)
            .prop_map(|(until, after, limit)| Step::Due(until, after, limit)),
        1 => small.clone().prop_map(Step::Summary),
        3 => filter.prop_map(Step::Summaries),
        2 => (small.clone(), 0..6u64, 0..5u32, 0..80u32).prop_map(|(e, a, l, b)| Step::History(e, a, l, b)),
        1 => (0..3u8, small).prop_map(|(w, c)| Step::SaveWorker(w, c)),
        1 => keep_workers(),
        1 => Just(Step::Workers),
        1 => Just(Step::Reopen),
    ]
}

/// What a lease's servers do.
fn leases() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3u8).prop_map(Step::TakeLease),
        4 => (0..6u8).prop_map(Step::RenewLease),
        2 => any_fence().prop_map(Step::FreeLease),
        1 => Just(Step::ForceLease),
    ]
}

/// What the servers of a cluster say of themselves.
fn nodes() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..2u8, 0..3u8, 1..4u8, any::<bool>()).prop_map(|(name, who, n, r)| Step::Beat(name, who, n, r)),
        1 => (0..2u8, 0..3u8).prop_map(|(name, who)| Step::Leave(name, who)),
    ]
}

/// Any step of servers that may be a cluster.
pub fn clustered() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => step(),
        3 => leases(),
        2 => nodes(),
        1 => (0..3u8).prop_map(Step::SetMode),
    ]
}

/// What there is before sessions come together: some executions, with a queue of tasks.
pub fn beginning(about: About) -> Step {
    let group = |execution| {
        let wake = PlannedWake::Hot;
        let member = PlannedMember { execution, mistake: 0, events: 1, wake, status: Some(0), label: 2 };
        PlannedGroup::New { members: vec![member], tasks: vec![(execution, 0), (execution + 1, 0)] }
    };
    match about {
        // Two trees, each with a member beside its root.
        About::Owners => Step::Owned(Owned::Append(1, WhichFence::Current, ownership::two_trees())),
        _ => Step::Append(WhichFence::Current, (0..4).map(group).collect()),
    }
}

/// What servers are about that meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// They are elected by the lock, or one is alone.
    Lock,
    /// They are elected by the lease.
    Lease,
    /// The operator changes the mode. Nobody says that it lives: how long ago that was is a matter of the clock.
    Mode,
    /// Each of them owns trees of its own, until another takes them.
    Owners,
}

/// A step for one of several sessions at once: mostly those in which they meet.
pub fn meeting(about: About) -> BoxedStrategy<Step> {
    let elections = match about {
        About::Lock => return prop_oneof![9 => meetings(), 1 => nodes()].boxed(),
        About::Owners => return ownership::meeting().boxed(),
        About::Lease => prop_oneof![2 => leases(), 1 => nodes()].boxed(),
        About::Mode => prop_oneof![2 => leases(), 2 => (0..3u8).prop_map(Step::SetMode)].boxed(),
    };
    prop_oneof![1 => meetings(), 1 => elections].boxed()
}

fn meetings() -> impl Strategy<Value = Step> {
    let group = prop_oneof![
        3 => (prop::collection::vec(member(), 1..3), prop::collection::vec((0..8u8, 0..5u8), 0..3))
            .prop_map(|(members, tasks)| PlannedGroup::New { members, tasks }),
        1 => any::<u8>().prop_map(PlannedGroup::Again),
    ];
    prop_oneof![
        4 => (0..3u8).prop_map(Step::Campaign),
        1 => any_fence().prop_map(Step::Release),
        14 => (fence(), prop::collection::vec(group, 1..4)).prop_map(|(f, g)| Step::Append(f, g)),
        7 => (any_fence(), prop::option::weighted(0.4, any::<u8>()), prop::collection::vec((1..8u8, 1..3u8), 1..3))
            .prop_map(|(f, again, wants)| Step::Claim(f, again, wants)),
        3 => (any_fence(), prop_oneof![2 => Just(1u8), 1 => 0..4u8]).prop_map(|(f, known)| Step::Sweep(f, known)),
        4 => (any_fence(), 0..4u8, 0..2u8, 0..2u8).prop_map(|(f, k, v, h)| Step::Deploy(f, k, v, h)),
        3 => (0..3u8, 0..8u8).prop_map(|(w, c)| Step::SaveWorker(w, c)),
        2 => keep_workers(),
        4 => step(),
    ]
}

/// What was sent so far, and what names are used up.
#[derive(Default)]
pub struct Planned {
    names: u128,
    earlier: Option<Fence>,
    groups: Vec<Group>,
    claims: Vec<ClaimTasks>,
    /// Every task row that was ever to be made.
    tasks: Vec<TaskId>,
}

const STATUSES: [Status; 8] = Status::ALL;

fn execution(number: u8) -> ExecutionId {
    // Ids of which one begins another, in upper and lower case, sort as their bytes do.
    ["a", "a~b", "B", "b", "b~1", "c:é", "d", "d-"][usize::from(number % 8)].into()
}

fn labels(number: u8) -> Labels {
    let pairs: &[(&str, &str)] = match number {
        0 | 1 => &[],
        2 => &[("team", "x")],
        3 => &[("team", "x"), ("env", "prod")],
        4 => &[("team", "y"), ("env", "prod")],
        _ => &[("team", "")],
    };
    pairs.iter().map(|(key, value)| (key.to_string(), value.to_string())).collect()
}

fn contract(number: u8) -> (orbit_core::id::TaskName, orbit_core::id::ContractVersion) {
    let (name, version) = [("pay", "1"), ("pay", "2"), ("ship", "1"), ("note", "1")][usize::from(number % 4)];
    (name.into(), version.into())
}

/// So long that no lease runs out: what time does to one, the tests of the lease look at.
const TTL: Duration = Duration::from_secs(100_000);

fn incarnation(who: u8) -> Incarnation {
    Incarnation(Uuid::from_u128(u128::from(who) + (1 << 64)))
}

fn node_id(number: u8) -> NodeId {
    format!("node-{number}").as_str().into()
}

fn node_row(node_id: NodeId, who: u8, beats: u8, model: &ModelStore) -> NodeRow {
    NodeRow {
        node_id,
        incarnation: incarnation(who),
        addr: (who > 1).then(|| "http://127.0.0.1:1".into()),
        host: "host".into(),
        pid: u32::from(who),
        version: "1".into(),
        role: "standby".into(),
        term: model.fence().term,
        config_digest: "d".into(),
        clock_offset_ms: -3,
        started_ms: ClusterMs(7),
        beats: u64::from(beats),
        heartbeat_ms: ClusterMs(0),
        dead: false,
    }
}

fn campaign(mode: Mode, who: u8) -> Campaign {
    let holder = Holder {
        node_id: node_id(who),
        host: "host".into(),
        pid: u32::from(who),
        addr: (who > 1).then(|| "http://127.0.0.1:1".into()),
        since_ms: WallMs(5),
    };
    Campaign::new(mode, incarnation(who), holder)
}

fn lease_campaign(who: u8) -> LeaseCampaign {
    LeaseCampaign { campaign: campaign(Mode::Standby, who), ttl: TTL, rule: LeaseRule::Sound }
}

impl Planned {
    fn name(&mut self) -> Uuid {
        self.names += 1;
        Uuid::from_u128(self.names)
    }

    fn fence(&self, which: WhichFence, model: &ModelStore) -> Fence {
        let nobody = Fence { term: model.fence().term.next(), incarnation: Incarnation(Uuid::max()) };
        match which {
            WhichFence::Current => model.fence(),
            WhichFence::Earlier => self.earlier.unwrap_or(nobody),
            WhichFence::Namesake => Fence { term: model.fence().term, ..nobody },
        }
    }

    /// The transaction that a step means now; none where the file is to be opened again.
    pub fn resolve(&mut self, step: Step, model: &ModelStore) -> Option<Transaction> {
        Some(match step {
            Step::Campaign(who) => {
                self.earlier = Some(model.fence());
                Transaction::Campaign(campaign(Mode::Single, who))
            }
            Step::TakeLease(who) => {
                self.earlier = Some(model.fence());
                Transaction::TakeLease(Box::new(lease_campaign(who)))
            }
            Step::RenewLease(how) => {
                let lease = model.lease();
                let (holder, epoch) = match (lease.holder.clone(), how) {
                    (Some(holder), 2..) => (holder, lease.epoch),
                    (Some(holder), 1) => (holder, lease.epoch.next()),
                    _ => (lease_campaign(2).lease_holder(), lease.epoch),
                };
                Transaction::RenewLease(RenewLease { holder, epoch, ttl: TTL, rule: LeaseRule::Sound })
            }
            Step::FreeLease(which) => Transaction::FreeLease(self.fence(which, model)),
            Step::ForceLease => {
                self.earlier = Some(model.fence());
                Transaction::ForceLease(ReleaseByForce { incarnation: Incarnation(self.name()) })
            }
            Step::SetMode(to) => {
                let there = model.nodes().find(|node| node.heartbeat_ms != ClusterMs(0));
                if let Some(NodeRow { node_id, incarnation, .. }) = there.cloned() {
                    // One after the other leaves before.
                    return Some(Transaction::Leave(LeaveNode { node_id, incarnation }));
                }
                self.earlier = Some(model.fence());
                let (mode, election) = match to {
                    0 => (Mode::Single, Elected::Lock),
                    1 => (Mode::Standby, Elected::Lock),
                    _ => (Mode::Standby, Elected::Lease),
                };
                Transaction::SetMode(SetMode {
                    mode,
                    election,
                    incarnation: Incarnation(self.name()),
                    schema: SCHEMA_VERSION,
                })
            }
            Step::Beat(name, who, beats, replaces) => {
                let node_id = node_id(name);
                let there = model.nodes().find(|node| node.node_id == node_id).filter(|_| replaces);
                let replaces = there.map(|node| (node.incarnation, node.beats));
                let node = node_row(node_id, who, beats, model);
                Transaction::Beat(Box::new(BeatNode { node, replaces }))
            }
            Step::Leave(name, who) => {
                Transaction::Leave(LeaveNode { node_id: node_id(name), incarnation: incarnation(who) })
            }
            Step::Check => Transaction::Check,
            Step::Release(which) => Transaction::Release(self.fence(which, model)),
            Step::Append(which, groups) => {
                Transaction::Append(Append::under(self.fence(which, model), self.groups(groups, model)))
            }
            Step::Claim(which, again, wants) => self.claim(which, again, wants, model),
            // By their keys, by a token of the last one, or not at all: that is how claims are known.
            Step::Sweep(which, known) => {
                let tokens = self.claims.last().into_iter().flat_map(|claim| &claim.wants);
                let tokens = tokens.flat_map(|want| &want.tokens).take(1);
                Transaction::Sweep(RequeueStrays {
                    fence: self.fence(which, model),
                    keys: self.claims.iter().filter(|_| known & 1 == 1).map(|claim| claim.key).collect(),
                    tokens: tokens.filter(|_| known & 2 == 2).copied().collect(),
                })
            }
            Step::Deploy(which, key, version, hash) => Transaction::Deploy(Box::new(PutDefinition {
                key: CallKey(Uuid::from_u128(u128::from(key))),
                fence: self.fence(which, model),
                definition: DefinitionRow {
                    name: "W".into(),
                    version: format!("{version}").as_str().into(),
                    hash: format!("sha256:{hash}").as_str().into(),
                    document: json!({"name": "W", "number": hash, "text": "é\u{0}\"", "list": [null, true, -0.5]}),
                    created_at_ms: ClusterMs(i64::from(key)),
                },
            })),
            Step::Recover => Transaction::Recover,
            Step::Load(which) => {
                Transaction::Load(ReadHistories { executions: which.into_iter().map(execution).collect() })
            }
            Step::Due(until, after, limit) => Transaction::Due(ReadDue {
                until: until.map_or(Wake::Hot, |at| Wake::At(ClusterMs(at))),
                after: after.map(|(at, id)| (if at == 0 { Wake::Hot } else { Wake::At(ClusterMs(at)) }, execution(id))),
                owner: None,
                limit,
            }),
            Step::Owned(owned) => self.owned(owned, model),
            Step::Summary(which) => Transaction::Summary(ReadSummary { execution: execution(which) }),
            Step::Summaries(filter) => Transaction::Summaries(ListSummaries {
                filter: SummaryFilter {
                    status: filter.status.map(|status| STATUSES[usize::from(status)]),
                    workflow: filter.workflow.map(|number| format!("W{number}").as_str().into()),
                    labels: labels(filter.labels),
                    since: filter.since.map(ClusterMs),
                },
                before: filter.before.map(|(at, id)| (ClusterMs(at), execution(id))),
                limit: filter.limit,
            }),
            Step::History(which, after, limit, max_bytes) => Transaction::History(ReadHistory {
                execution: execution(which),
                run: None,
                after: Seq(after),
                limit,
                max_bytes,
            }),
            Step::SaveWorker(who, what) => Transaction::SaveWorker(PutWorker {
                worker: WorkerRow {
                    worker_id: format!("worker-{who}").as_str().into(),
                    runtime: "rust".into(),
                    sdk: (what > 3).then(|| format!("sdk/{what}")),
                    contracts: (0..what).map(contract).collect(),
                    last_seen_ms: ClusterMs(i64::from(what)),
                },
            }),
            Step::KeepWorkers(which, at, forget) => {
                let workers = |which: u8| {
                    let picked = (0..3).filter(move |who| which >> who & 1 == 1);
                    picked.map(|who: i64| (WorkerId::from(format!("worker-{who}").as_str()), who))
                };
                let seen = workers(which).map(|(id, who)| (id, ClusterMs(at + who)));
                let forget = forget.map(|(there, before, keep)| ForgetWorkers {
                    there: workers(there).map(|(id, _)| id).collect(),
                    before: ClusterMs(before),
                    keep,
                });
                Transaction::KeepWorkers(KeepWorkers { see: SeeWorkers { seen: seen.collect() }, forget })
            }
            Step::Workers => Transaction::Workers,
            Step::Reopen => return None,
        })
    }

    fn claim(&mut self, which: WhichFence, again: Option<u8>, wants: Vec<(u8, u8)>, model: &ModelStore) -> Transaction {
        if let Some(again) = again
            && !self.claims.is_empty()
        {
            return Transaction::Claim(self.claims[usize::from(again) % self.claims.len()].clone());
        }
        let wants = wants
            .into_iter()
            .map(|(contracts, tokens)| ClaimWant {
                contracts: (0..4).filter(|bit| contracts >> bit & 1 == 1).map(contract).collect(),
                tokens: (0..tokens).map(|_| self.name()).collect(),
            })
            .collect();
        let claim = ClaimTasks { key: CallKey(self.name()), fence: self.fence(which, model), wants };
        self.claims.push(claim.clone());
        Transaction::Claim(claim)
    }
}
