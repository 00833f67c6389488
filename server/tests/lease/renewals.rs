//! Renewals that are late or lost, and rows that others hold for longer than the lease lasts.

use crate::common::{aside, wait_for};
use crate::{Cluster, LONG, TTL, leads, lost_the_lead, renews, role, start, surely_started, term};
use orbit_sdk::Client;
use orbit_support::wire::{Action, Cut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread")]
async fn renewals_that_are_late_by_a_sixth_of_the_lease_or_lost_one_in_three_cost_nothing() {
    const LEASE: u64 = 6;
    for lost in [false, true] {
        let cluster = Cluster::new().await;
        let (a, proxy, b) = cluster.pair_behind_proxy(LEASE).await;
        let (seen, count) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        proxy.rule(move |message| {
            if !renews(message) {
                return Action::Pass;
            }
            counted.fetch_add(1, Ordering::SeqCst);
            match (lost, seen.fetch_add(1, Ordering::SeqCst) % 3) {
                (true, 0) => Action::Cut(Cut::before()),
                (true, _) => Action::Pass,
                (false, _) => Action::Delay(Duration::from_secs(LEASE) / 6),
            }
        });
        aside(move || {
            wait_for("nine renewals", LONG, || (count.load(Ordering::SeqCst) >= 9).then_some(()));
        })
        .await;
        assert!(!lost_the_lead(&a), "lost: {lost}: {}", a.process.log());
        assert_eq!((role(&a), role(&b), term(&a)), ("leader".into(), "standby".into(), 1), "lost: {lost}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_leads_while_the_lease_is_locked_for_longer_than_it_lasts_and_one_does_after_that() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(TTL).await;
    surely_started(&a.client(), "before").await;
    let database = cluster.database.clone();
    let mut holder = aside(move || {
        let mut holder = database.connect();
        holder.batch_execute("BEGIN; SELECT 1 FROM orbit_leases FOR UPDATE").expect("it is locked");
        holder
    })
    .await;
    wait_for("end of the lead", LONG, || lost_the_lead(&a).then_some(()));
    // Its lease runs out while the row is locked; whoever asks waits for the lock, and is judged after that.
    let database = cluster.database.clone();
    let held = aside(move || {
        wait_for("end of the lease", LONG, || {
            let sql = "SELECT expires_ms + 1000 < extract(epoch FROM clock_timestamp()) * 1000 FROM orbit_leases";
            let over: bool = holder.query_one(sql, &[]).expect("it reads").get(0);
            over.then_some(())
        });
        let fence = "SELECT term FROM orbit_cluster";
        let term: i64 = database.connect().query_one(fence, &[]).expect("it reads").get(0);
        (holder, term)
    })
    .await;
    assert_eq!((held.1, role(&a), role(&b)), (1, "standby".into(), "standby".into()));
    let mut holder = held.0;
    aside(move || holder.batch_execute("ROLLBACK").expect("it is let go")).await;
    let both = Client::new(&format!("{},{}", a.url(), b.url()), None).expect("two addresses").with_patience(LONG);
    surely_started(&both, "after").await;
    let leading: Vec<_> = [&a, &b].into_iter().filter(|server| role(server) == "leader").collect();
    assert_eq!(leading.len(), 1);
    assert!(term(leading[0]) >= 2);
    assert!(leading[0].client().execution("before").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_cut_off_from_the_database_stops_serving_before_another_leads() {
    let cluster = Cluster::new().await;
    let (a, proxy, b) = cluster.pair_behind_proxy(TTL).await;
    // Nothing passes any more, and nobody is told.
    proxy.rule(|_| Action::BlackHole);
    leads(&b).await;
    wait_for("end of the lead", LONG, || lost_the_lead(&a).then_some(()));
    assert_eq!(role(&a), "standby");
    let refused = start(&a, "w1");
    assert_eq!(refused.error(), (503, "NOT_LEADER".into()));
    assert_eq!(start(&b, "w1").status, 201);
}
