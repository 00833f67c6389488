//! Holds the store on SQLite to the simulator's model of it: the same random transactions on both give the same
//! replies, and the same tables in the end.

mod plan;
mod tables;

use orbit_core::id::{ClusterId, Incarnation, Term};
use orbit_core::node::{CallId, Connection};
use orbit_core::store::append::Fence;
use orbit_core::store::outcome::Reply;
use orbit_core::store::transaction::{CampaignVerdict, Transaction, Verdict};
use orbit_core::time::ClusterMs;
use orbit_io::driver::{Attached, Backend};
use orbit_io::sqlite::{SqliteBackend, SqliteStore};
use orbit_sim::store::ModelStore;
use plan::{Planned, Step};
use proptest::prelude::*;
use std::path::Path;
use uuid::Uuid;

struct Sqlite(Option<Attached<SqliteBackend>>);

impl Sqlite {
    fn open(path: &Path) -> Sqlite {
        Sqlite(Some(SqliteStore::open(path).expect("the file opens").attach()))
    }

    fn run(&mut self, transaction: Transaction) -> Reply<Verdict> {
        let attached = self.0.as_mut().expect("open");
        // The kind decides the thread and not the meaning.
        let kind = match &transaction {
            Transaction::Append(_) | Transaction::Claim(_) | Transaction::Due(_) => Connection::Store,
            Transaction::Campaign(_) | Transaction::Check(_) | Transaction::Release(_) => Connection::Control,
            _ => Connection::Requests,
        };
        attached.backend.run(kind, CallId(1), transaction);
        attached.replies.blocking_recv().expect("an answer").reply
    }

    fn reopen(&mut self, path: &Path) {
        self.0 = None;
        *self = Sqlite::open(path);
    }
}

/// The clocks of the two differ; what they show is not compared.
fn without_clock(reply: Reply<Verdict>) -> Reply<Verdict> {
    match reply {
        Reply::Done(Verdict::Check(mut row)) => {
            row.clock = ClusterMs(0);
            Reply::Done(Verdict::Check(row))
        }
        Reply::Done(Verdict::Campaign(CampaignVerdict::Won { term, cluster_id, mut before })) => {
            before.clock = ClusterMs(0);
            Reply::Done(Verdict::Campaign(CampaignVerdict::Won { term, cluster_id, before }))
        }
        other => other,
    }
}

fn cluster_id(sqlite: &mut Sqlite) -> ClusterId {
    let nobody = Fence { term: Term(0), incarnation: Incarnation(Uuid::nil()) };
    match sqlite.run(Transaction::Check(nobody)) {
        Reply::Done(Verdict::Check(row)) => row.cluster_id,
        other => panic!("{other:?}"),
    }
}

fn compare(steps: Vec<Step>) -> Result<(), TestCaseError> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("orbit.db");
    let mut sqlite = Sqlite::open(&path);
    let mut model = ModelStore::new(cluster_id(&mut sqlite));
    let mut planned = Planned::default();
    for step in steps {
        let Some(transaction) = planned.resolve(step, &model) else {
            sqlite.reopen(&path);
            continue;
        };
        let expected = model.run(transaction.clone());
        let found = sqlite.run(transaction.clone());
        prop_assert_eq!(without_clock(found), without_clock(expected), "after {:?}", transaction);
    }
    let labels = tables::labels(&path);
    prop_assert_eq!(labels.searchable, labels.shown, "labels that are searched by are those that are shown");
    prop_assert_eq!(tables::dump(&path), model.dump());
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 32, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn sqlite_answers_as_the_model_does_and_holds_the_same(steps in prop::collection::vec(plan::step(), 1..80)) {
        compare(steps)?;
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
        let steps = prop::collection::vec(plan::step(), 80).new_tree(&mut runner).expect("a plan").current();
        let mut model = ModelStore::new(ClusterId(Uuid::nil()));
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
