//! Holds the databases to the simulator's models of them.
//!
//! * The same random transactions on SQLite, on PostgreSQL and on the model give the same replies, and the same tables in
//!   the end.
//! * The rules of the model of PostgreSQL hold on a real server ([`rules`]), and random interleavings of sessions give
//!   the same on both: of primitive operations ([`primitives`]), and of the real transactions ([`transactions`]).

mod histogram;
mod plan;
mod postgres;
mod primitives;
mod real;
mod rules;
mod sqlite;
mod tables;
mod transactions;

use orbit_core::execution::event::Labels;
use orbit_core::id::ClusterId;
use orbit_core::node::{CallId, Connection};
use orbit_core::store::lease::ForceVerdict;
use orbit_core::store::mode::{ModeVerdict, Sign};
use orbit_core::store::outcome::Reply;
use orbit_core::store::ownership::JoinVerdict;
use orbit_core::store::statement::{FenceRow, LeaseSeen, NodeRow, NodeRows, Rows};
use orbit_core::store::transaction::{CampaignVerdict, Transaction, Verdict};
use orbit_core::time::ClusterMs;
use orbit_io::driver::{Attached, Backend};
use orbit_sim::postgres::store::whole::Whole;
use orbit_sim::store::ModelStore;
use plan::{Planned, Step};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::time::Duration;
use uuid::Uuid;

/// The model's clock, which stands.
pub const CLOCK: ClusterMs = ClusterMs(1_000);

/// A store that is held to the model.
trait Store {
    /// Runs a transaction to its end.
    fn run(&mut self, transaction: Transaction) -> Reply<Verdict>;
    /// What the statements of the last one gave, in the order in which they ran.
    fn rows(&mut self) -> Vec<Rows>;
    /// Whether its append takes more steps than the model's where the fence has moved.
    const APPENDS_IN_STEPS: bool;
    /// Closes it and opens it again.
    fn reopen(&mut self);
    /// Every table, read past Orbit's own code.
    fn dump(&self) -> serde_json::Value;
    /// Labels, as they are searched by and as they are shown: `(execution, created, key, value)`.
    fn labels(&self) -> AllLabels;
}

/// The model of PostgreSQL, whose statements take locks.
struct Modelled(Whole);

impl Store for Modelled {
    const APPENDS_IN_STEPS: bool = true;

    fn run(&mut self, transaction: Transaction) -> Reply<Verdict> {
        self.0.run(transaction)
    }

    fn rows(&mut self) -> Vec<Rows> {
        self.0.seen().to_vec()
    }

    fn reopen(&mut self) {
        self.0.reconnect();
    }

    fn dump(&self) -> serde_json::Value {
        self.0.store().dump()
    }

    fn labels(&self) -> AllLabels {
        AllLabels { searchable: BTreeSet::new(), shown: BTreeSet::new() }
    }
}

/// See [`Store::labels`].
struct AllLabels {
    searchable: BTreeSet<(String, i64, String, String)>,
    shown: BTreeSet<(String, i64, String, String)>,
}

/// The labels of summaries `(execution, created, labels as JSON)`.
fn shown(rows: impl IntoIterator<Item = (String, i64, String)>) -> BTreeSet<(String, i64, String, String)> {
    let labels = rows.into_iter().flat_map(|(execution, created, labels)| {
        let labels: Labels = serde_json::from_str(&labels).expect("labels");
        labels.into_iter().map(move |(key, value)| (execution.clone(), created, key, value))
    });
    labels.collect()
}

/// What statements gave, without what may differ: clocks, and the order of what has none.
pub fn normal_rows(mut rows: Vec<Rows>) -> Vec<Rows> {
    for one in &mut rows {
        match one {
            Rows::ReadFence(row) => unclocked(row),
            Rows::ReadLease(seen) => unclocked_lease(seen),
            Rows::ReadNodes(NodeRows { nodes, clock }) => {
                *clock = ClusterMs(0);
                nodes.iter_mut().for_each(unclocked_node);
            }
            Rows::BeatNode(Some(node)) => unclocked_node(node),
            Rows::RequeueStrays(back) => back.sort(),
            Rows::TakeTrees(taken) => taken.sort(),
            _ => {}
        }
    }
    rows
}

/// On which connection a transaction runs. It decides the thread and not the meaning.
fn kind_of(transaction: &Transaction) -> Connection {
    match transaction {
        Transaction::Append(_)
        | Transaction::Claim(_)
        | Transaction::Sweep(_)
        | Transaction::Due(_)
        | Transaction::Orphans(_)
        | Transaction::Take(_) => Connection::Store,
        Transaction::Campaign(_)
        | Transaction::TakeLease(_)
        | Transaction::RenewLease(_)
        | Transaction::FreeLease(_)
        | Transaction::SetMode(_) => Connection::Election,
        Transaction::Check
        | Transaction::Release(_)
        | Transaction::Beat(_)
        | Transaction::Leave(_)
        | Transaction::Join(_)
        | Transaction::Pulse(_)
        | Transaction::MarkDead(_) => Connection::Control,
        _ => Connection::Requests,
    }
}

/// Runs a transaction to its end on a store's own threads.
fn run_on(attached: &mut Attached<impl Backend>, transaction: Transaction) -> Reply<Verdict> {
    attached.backend.run(kind_of(&transaction), CallId(1), transaction, None);
    attached.replies.blocking_recv().expect("an answer").reply
}

/// The clocks of the two differ, and what they are called; what they show is not compared.
fn without_clock(reply: Reply<Verdict>) -> Reply<Verdict> {
    match reply {
        Reply::Done(Verdict::Check(mut row)) => {
            unclocked(&mut row);
            Reply::Done(Verdict::Check(row))
        }
        Reply::Done(Verdict::Campaign(CampaignVerdict::Won { term, cluster_id, mut before })) => {
            unclocked(&mut before);
            Reply::Done(Verdict::Campaign(CampaignVerdict::Won { term, cluster_id, before }))
        }
        Reply::Done(Verdict::Campaign(CampaignVerdict::Leased { left })) => {
            // Whether it lasts, or another was faster.
            let left = Duration::from_secs(u64::from(!left.is_zero()));
            Reply::Done(Verdict::Campaign(CampaignVerdict::Leased { left }))
        }
        Reply::Done(Verdict::Force(ForceVerdict::Released { mut before, term })) => {
            unclocked_lease(&mut before);
            Reply::Done(Verdict::Force(ForceVerdict::Released { before, term }))
        }
        Reply::Done(Verdict::SetMode(verdict)) => Reply::Done(Verdict::SetMode(match verdict {
            ModeVerdict::Set { mut before, term } => {
                unclocked(&mut before);
                ModeVerdict::Set { before, term }
            }
            ModeVerdict::Lives(Sign::Lease { holder, .. }) => {
                ModeVerdict::Lives(Sign::Lease { holder, left: Duration::ZERO })
            }
            other => other,
        })),
        Reply::Done(Verdict::Beat(Some(mut node))) => {
            unclocked_node(&mut node);
            Reply::Done(Verdict::Beat(Some(node)))
        }
        Reply::Done(Verdict::Join(verdict)) => Reply::Done(Verdict::Join(match verdict {
            JoinVerdict::Joined { fence, cluster_id, mut before } => {
                unclocked(&mut before);
                JoinVerdict::Joined { fence, cluster_id, before }
            }
            JoinVerdict::NameHeld(mut node) => {
                unclocked_node(&mut node);
                JoinVerdict::NameHeld(node)
            }
            other => other,
        })),
        Reply::Done(Verdict::Pulse(mut seen)) => {
            seen.nodes.clock = ClusterMs(0);
            seen.instead.as_deref_mut().into_iter().chain(&mut seen.nodes.nodes).for_each(unclocked_node);
            Reply::Done(Verdict::Pulse(seen))
        }
        other => other,
    }
}

fn unclocked_lease(seen: &mut LeaseSeen) {
    let never = ClusterMs(0);
    seen.clock = never;
    (seen.row.expires_ms, seen.row.taken_ms, seen.row.renewed_ms) = (never, never, never);
}

/// Of the time of a beat, whether the server has left.
fn unclocked_node(node: &mut NodeRow) {
    node.heartbeat_ms = ClusterMs(node.heartbeat_ms.0.signum());
}

fn unclocked(row: &mut FenceRow) {
    (row.clock, row.origin, row.raised_on) = (ClusterMs(0), None, None);
    elected(&mut row.election);
}

/// On SQLite there is nobody to elect.
fn elected(election: &mut String) {
    if election == "none" {
        *election = "lock".into();
    }
}

/// The model of PostgreSQL, with the clock that stands.
fn whole(cluster_id: ClusterId) -> Whole {
    let mut whole = Whole::new(cluster_id);
    whole.set_clock(CLOCK);
    whole
}

fn cluster_id(store: &mut impl Store) -> ClusterId {
    match store.run(Transaction::Check) {
        Reply::Done(Verdict::Check(row)) => row.cluster_id,
        other => panic!("{other:?}"),
    }
}

/// What the statements of each transaction give is that of the model; of `likeness`, where there is one whose statements are
/// the same.
fn compare<S: Store>(mut store: S, mut likeness: Option<Whole>, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut model = ModelStore::new(cluster_id(&mut store));
    model.set_clock(CLOCK);
    let mut planned = Planned::default();
    for step in steps {
        let Some(transaction) = planned.resolve(step, &model) else {
            store.reopen();
            likeness.iter_mut().for_each(Whole::reconnect);
            continue;
        };
        let mut gave = Vec::new();
        let (expected, _) = model.execute_seen(transaction.clone(), |rows| gave.extend_from_slice(rows));
        drop(store.rows());
        let found = store.run(transaction.clone());
        prop_assert_eq!(without_clock(found), without_clock(expected), "after {:?}", transaction);
        if let Some(likeness) = &mut likeness {
            likeness.run(transaction.clone());
            gave = likeness.seen().to_vec();
        } else if S::APPENDS_IN_STEPS && matches!(transaction, Transaction::Append(_)) {
            continue;
        }
        prop_assert_eq!(normal_rows(store.rows()), normal_rows(gave), "in {:?}", transaction);
    }
    let labels = store.labels();
    prop_assert_eq!(labels.searchable, labels.shown, "labels that are searched by are those that are shown");
    prop_assert_eq!(store.dump(), model.dump());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_answers_as_the_model_does_and_holds_the_same(steps in prop::collection::vec(plan::step(), 1..80)) {
        compare(sqlite::Sqlite::fresh(), None, steps)?;
    }

    #[test]
    fn postgres_answers_as_the_model_does_and_holds_the_same(steps in prop::collection::vec(plan::clustered(), 1..80)) {
        let mut postgres = postgres::Postgres::fresh();
        let likeness = whole(cluster_id(&mut postgres));
        compare(postgres, Some(likeness), steps)?;
    }

    #[test]
    fn postgres_answers_as_the_model_does_in_shared_mode(steps in prop::collection::vec(plan::shared(), 1..80)) {
        let mut postgres = postgres::Postgres::fresh();
        let likeness = whole(cluster_id(&mut postgres));
        compare(postgres, Some(likeness), steps)?;
    }

    #[test]
    fn the_model_of_postgres_answers_as_the_model_does_in_shared_mode(
        steps in prop::collection::vec(plan::shared(), 1..80)
    ) {
        compare(Modelled(whole(ClusterId(Uuid::from_u128(1)))), None, steps)?;
    }

    #[test]
    fn the_model_of_postgres_answers_as_the_model_does_and_holds_the_same(
        steps in prop::collection::vec(plan::clustered(), 1..80)
    ) {
        compare(Modelled(whole(ClusterId(Uuid::from_u128(1)))), None, steps)?;
    }
}

#[test]
fn random_plans_reach_every_transaction_and_every_outcome_that_they_can() {
    // A comparison of transactions that never got anywhere would say nothing.
    use proptest::strategy::ValueTree;
    use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..400 {
        let step = if round < 320 { plan::clustered().boxed() } else { plan::shared().boxed() };
        let steps = prop::collection::vec(step, 80).new_tree(&mut runner).expect("a plan").current();
        let mut model = ModelStore::new(ClusterId(Uuid::nil()));
        model.set_clock(CLOCK);
        let mut planned = Planned::default();
        for step in steps {
            let Some(transaction) = planned.resolve(step, &model) else { continue };
            let (reply, commit) = model.execute(transaction);
            seen.extend(plan::kinds(&reply, &commit));
        }
    }
    let missing: Vec<_> = plan::KINDS.iter().filter(|kind| !seen.contains(**kind)).collect();
    assert!(missing.is_empty(), "no plan came to {missing:?}");
}
