//! A leader that is killed, stopped or paused, and who leads after it.

use crate::common::{aside, wait_for};
use crate::{
    Cluster, LONG, TTL, WAITS, follows, health, leads, lost_the_lead, renews, role, start, surely_started, term,
};
use orbit_sdk::{Format, Status, json};
use orbit_support::wire::{Action, Message, Proxy};
use rustix::process::Signal;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_leads_when_the_lease_of_a_killed_leader_has_run_out_and_goes_on_with_what_was_running() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(TTL).await;
    surely_started(&a.client(), "w1").await;
    let begun = Instant::now();
    a.process.kill();
    leads(&b).await;
    println!("with a lease of {TTL} s, the standby led {:?} after the kill", begun.elapsed());
    assert_eq!((term(&b), cluster.lease().await), (2, (Some("b".into()), 2)));
    let log = b.process.log();
    for line in [
        "cluster: elected leader; recovering executions from history node_id=b term=2",
        "cluster: leader is serving node_id=b term=2 active_executions=1",
    ] {
        assert!(log.contains(line), "{line}: {log}");
    }
    b.client().signal("w1", "go", json!(null), None).await.expect("signalled");
    let ended = b.client().wait("w1", Duration::from_secs(60)).await.expect("it is shown");
    assert_eq!(ended.status(), &Status::Completed);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_stop_gives_the_lease_back_as_the_last_commit_and_a_standby_leads_long_before_it_would_run_out() {
    let cluster = Cluster::new().await;
    let proxy = Proxy::before(cluster.database.port);
    let through = proxy.database(&cluster.database);
    // Nobody waits for so long here.
    let hour = 600;
    let mut a = cluster.server_at(&through.url(), "a", hour, &[]);
    leads(&a).await;
    let b = cluster.server("b", hour, &[]);
    follows(&b).await;
    a.client().deploy(WAITS, Format::Yaml).await.expect("deployed");
    // Somebody starts executions all the time, until nobody takes any.
    let client = a.client();
    let load = tokio::spawn(async move {
        let mut taken = Vec::new();
        for n in 0.. {
            let id = format!("w{n}");
            let options = orbit_sdk::StartOptions { execution_id: Some(id.clone()), ..Default::default() };
            match client.start("Waits", options).await {
                Ok(_) => taken.push(id),
                Err(_) => break,
            }
        }
        taken
    });
    let commits: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&commits);
    let mut before: std::collections::BTreeMap<u64, String> = std::collections::BTreeMap::new();
    proxy.rule(move |message: &Message| {
        if message.is_from_client(b'E') {
            before.insert(message.connection, message.statement.to_string());
        }
        let alone = message.is_from_client(b'E') && message.statement.contains("INSERT INTO execution_events");
        if alone || message.is_commit() {
            let what = before.get(&message.connection).cloned().unwrap_or_default();
            seen.lock().expect("no panic").push(what);
        }
        Action::Pass
    });
    let some = Arc::clone(&commits);
    wait_for("some appends", LONG, || {
        let seen = some.lock().expect("no panic");
        (seen.iter().filter(|what| what.contains("execution_events")).count() > 20).then_some(())
    });
    a.process.signal(Signal::TERM);
    assert!(a.process.ended(LONG).success(), "{}", a.process.log());
    leads(&b).await;
    assert_eq!(term(&b), 2);
    let last = commits.lock().expect("no panic").last().cloned().expect("it wrote");
    assert!(last.contains("leader_node = NULL"), "the last commit was of {last}");
    // What it acknowledged is there, and nothing came after it had given the lease back.
    for id in load.await.expect("no panic") {
        assert_eq!(b.client().execution(&id).await.expect("it was acknowledged").status(), &Status::Running, "{id}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stood_still_past_its_lease_writes_nothing_after_another_leads() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(TTL).await;
    a.process.signal(Signal::STOP);
    leads(&b).await;
    assert_eq!(start(&b, "w1").status, 201);
    a.process.signal(Signal::CONT);
    let refused = start(&a, "w2");
    assert_eq!(refused.error(), (503, "NOT_LEADER".into()), "{}", a.process.log());
    wait_for("end of the lead", LONG, || lost_the_lead(&a).then_some(()));
    assert!(a.process.log().contains("and lasts 3000 ms"), "{}", a.process.log());
    assert!(b.client().execution("w2").await.is_err(), "it was refused");
    assert_eq!((role(&a), term(&b)), ("standby".into(), 2));
    // It is a standby like any other, and takes over in its turn.
    b.process.kill();
    leads(&a).await;
    assert_eq!((term(&a), cluster.lease().await), (3, (Some("a".into()), 3)));
    assert_eq!(a.client().execution("w1").await.expect("it is there").status(), &Status::Running);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_is_to_exit_says_lease_lost_and_ends_with_status_1() {
    let cluster = Cluster::new().await;
    let mut a = cluster.server("a", TTL, &["--on-lost-lease", "exit"]);
    leads(&a).await;
    let b = cluster.server("b", TTL, &[]);
    follows(&b).await;
    a.process.signal(Signal::STOP);
    leads(&b).await;
    a.process.signal(Signal::CONT);
    assert_eq!(a.process.ended(LONG).code(), Some(1));
    assert!(a.process.log().contains("lease-lost"), "{}", a.process.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_saturates_the_database_for_ten_leases_keeps_its_own() {
    let cluster = Cluster::new().await;
    // A fast machine starts more than the usual 100,000.
    let a = cluster.server("a", TTL, &["--max-active-executions", "10000000"]);
    leads(&a).await;
    let b = cluster.server("b", TTL, &[]);
    follows(&b).await;
    a.client().deploy(WAITS, Format::Yaml).await.expect("deployed");
    let until = Instant::now() + Duration::from_secs(10 * TTL);
    let clients: Vec<_> = (0..16)
        .map(|client| {
            let orbit = a.client();
            tokio::spawn(async move {
                let mut started = 0;
                while Instant::now() < until {
                    surely_started(&orbit, &format!("c{client}-{started}")).await;
                    started += 1;
                }
                started
            })
        })
        .collect();
    let mut started = 0;
    for client in clients {
        started += client.await.expect("no panic");
    }
    println!("{started} executions were started in {} s", 10 * TTL);
    assert!(!lost_the_lead(&a), "{}", a.process.log());
    assert_eq!((health(&a)["term"].as_u64(), role(&b), cluster.lease().await.1), (Some(1), "standby".into(), 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_writes_nothing_however_long_it_waits() {
    let cluster = Cluster::new().await;
    let proxy = Proxy::before(cluster.database.port);
    let a = cluster.server("a", TTL, &[]);
    leads(&a).await;
    let b = cluster.server_at(&proxy.database(&cluster.database).url(), "b", TTL, &[]);
    follows(&b).await;
    let ran: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&ran);
    proxy.rule(move |message| {
        if message.runs() {
            seen.lock().expect("no panic").push(message.statement.to_string());
        }
        Action::Pass
    });
    // It asks for the lease every third of it.
    let asked = Arc::clone(&ran);
    aside(move || {
        wait_for("five times that it asks", LONG, || {
            let asks = |ran: &String| ran.contains("FROM orbit_leases");
            (asked.lock().expect("no panic").iter().filter(|ran| asks(ran)).count() >= 5).then_some(())
        })
    })
    .await;
    let ran = ran.lock().expect("no panic");
    let writes = ["INSERT", "UPDATE", "DELETE", "FOR SHARE", "FOR NO KEY", "advisory"];
    for statement in ran.iter().filter(|ran| !ran.contains("orbit_nodes")) {
        assert!(!writes.iter().any(|word| statement.contains(word)), "a standby ran {statement}");
    }
    assert!(!ran.iter().any(|statement| renews_text(statement)));
    drop(ran);
    assert_eq!((role(&a), role(&b)), ("leader".into(), "standby".into()));
}

fn renews_text(statement: &str) -> bool {
    statement.contains("UPDATE orbit_leases")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewal_that_arrives_after_another_took_the_lease_does_nothing() {
    let cluster = Cluster::new().await;
    let (a, proxy, b) = cluster.pair_behind_proxy(TTL).await;
    proxy.rule(|message| if renews(message) { Action::Hold } else { Action::Pass });
    leads(&b).await;
    wait_for("end of the lead", LONG, || lost_the_lead(&a).then_some(()));
    let lease = cluster.lease().await;
    assert_eq!(lease, (Some("b".into()), 2));
    proxy.pass_all();
    proxy.release_all();
    follows(&a).await;
    assert_eq!(start(&b, "w1").status, 201);
    assert_eq!((cluster.lease().await, role(&a), term(&b)), (lease, "standby".into(), 2));
}
