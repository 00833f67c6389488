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
use orbit_core::store::statement::FenceRow;
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
    fn run(&mut self, transaction: Transaction) -> Reply<Verdict> {
        self.0.run(transaction)
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

/// On which connection a transaction runs. It decides the thread and not the meaning.
fn kind_of(transaction: &Transaction) -> Connection {
    match transaction {
        Transaction::Append(_) | Transaction::Claim(_) | Transaction::Sweep(_) | Transaction::Due(_) => {
            Connection::Store
        }
        Transaction::Campaign(_)
        | Transaction::TakeLease(_)
        | Transaction::RenewLease(_)
        | Transaction::FreeLease(_)
        | Transaction::SetMode(_) => Connection::Election,
        Transaction::Check | Transaction::Release(_) | Transaction::Beat(_) | Transaction::Leave(_) => {
            Connection::Control
        }
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
            let never = ClusterMs(0);
            before.clock = never;
            (before.row.expires_ms, before.row.taken_ms, before.row.renewed_ms) = (never, never, never);
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
            node.heartbeat_ms = ClusterMs(node.heartbeat_ms.0.signum());
            Reply::Done(Verdict::Beat(Some(node)))
        }
        other => other,
    }
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

fn cluster_id(store: &mut impl Store) -> ClusterId {
    match store.run(Transaction::Check) {
        Reply::Done(Verdict::Check(row)) => row.cluster_id,
        other => panic!("{other:?}"),
    }
}

fn compare(mut store: impl Store, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut model = ModelStore::new(cluster_id(&mut store));
    model.set_clock(CLOCK);
    let mut planned = Planned::default();
    for step in steps {
        let Some(transaction) = planned.resolve(step, &model) else {
            store.reopen();
            continue;
        };
        let expected = model.run(transaction.clone());
        let found = store.run(transaction.clone());
        prop_assert_eq!(without_clock(found), without_clock(expected), "after {:?}", transaction);
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
        compare(sqlite::Sqlite::fresh(), steps)?;
    }

    #[test]
    fn postgres_answers_as_the_model_does_and_holds_the_same(steps in prop::collection::vec(plan::clustered(), 1..80)) {
        compare(postgres::Postgres::fresh(), steps)?;
    }

    #[test]
    fn the_model_of_postgres_answers_as_the_model_does_and_holds_the_same(
        steps in prop::collection::vec(plan::clustered(), 1..80)
    ) {
        let mut whole = Whole::new(ClusterId(Uuid::from_u128(1)));
        whole.set_clock(CLOCK);
        compare(Modelled(whole), steps)?;
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
    for _ in 0..150 {
        let steps = prop::collection::vec(plan::clustered(), 80).new_tree(&mut runner).expect("a plan").current();
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
