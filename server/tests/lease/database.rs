//! A database that is away for a while.

use crate::common::{aside, own_postgres, wait_for};
use crate::{Cluster, LONG, lost_the_lead, role, surely_started, term};
use orbit_sdk::{Client, Status};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LEASE: u64 = 5;

/// How a cluster is after its database was away for so many tenths of a lease: who leads, and under which term.
async fn away_for(tenths: u32) -> (bool, u64) {
    let (postgres, database) = own_postgres().await;
    let cluster = Cluster::on(database);
    let (a, b) = cluster.pair(LEASE).await;
    let both = Client::new(&format!("{},{}", a.url(), b.url()), None).expect("two addresses").with_patience(LONG);
    surely_started(&both, "before").await;
    let halted = Arc::clone(&postgres);
    let begun = Instant::now();
    aside(move || halted.halt("immediate")).await;
    let away = Duration::from_secs(LEASE) * tenths / 10;
    tokio::time::sleep(away.saturating_sub(begun.elapsed())).await;
    if tenths > 10 {
        wait_for("end of the lead", LONG, || lost_the_lead(&a).then_some(()));
    }
    let resumed = Arc::clone(&postgres);
    aside(move || resumed.resume()).await;
    surely_started(&both, "after").await;
    let leading: Vec<_> = [&a, &b].into_iter().filter(|server| role(server) == "leader").collect();
    assert_eq!(leading.len(), 1, "one leads");
    let leader = leading[0];
    for id in ["before", "after"] {
        let execution = leader.client().execution(id).await.expect("it was acknowledged");
        assert_eq!(execution.status(), &Status::Running, "{id}");
    }
    let seen = (lost_the_lead(&a), term(leader));
    drop((a, b));
    aside(move || drop(postgres)).await;
    seen
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_whose_database_is_away_for_less_than_its_lease_keeps_it_or_loses_it_and_says_so() {
    let (lost, term) = away_for(8).await;
    // What it takes PostgreSQL to start comes on top: the lease may have run out after all, and then the term is higher.
    assert_eq!(lost, term > 1, "the term is {term}");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_the_database_was_away_for_longer_than_the_lease_whoever_asks_first_leads_at_once() {
    let (lost, term) = away_for(12).await;
    assert!(lost && term >= 2, "the term is {term}");
}
