//! HAProxy and nginx, real ones, with the files of `docs/deploy/`: clients and workers that know the balancer alone go on
//! over a step-down and a kill.

mod common;

use common::{Server, aside, folder, wait_for};
use orbit_sdk::{Client, Format, StartOptions, Status, Worker, json};
use orbit_support::Postgres;
use orbit_support::balancer::{Balancer, Kind};
use std::time::Duration;

const TASKS: &str = "name: Tasks\nversion: 1.0.0\nsteps:\n  - {id: a, task: t.a}\n  - {id: b, task: t.b}\n";
/// As long as a busy machine may need for what takes seconds.
const LONG: Duration = Duration::from_secs(90);

#[tokio::test(flavor = "multi_thread")]
async fn haproxy_leads_clients_and_workers_to_whoever_leads() {
    goes_on_behind(Kind::HaProxy, include_str!("../../docs/deploy/haproxy.cfg")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nginx_leads_clients_and_workers_to_whoever_leads() {
    goes_on_behind(Kind::Nginx, include_str!("../../docs/deploy/nginx.conf")).await;
}

async fn goes_on_behind(kind: Kind, configuration: &'static str) {
    let database = aside(|| Postgres::shared().fresh()).await;
    let folder = folder();
    // Nobody reaches the servers but through the balancer: what a standby says of the leader leads nowhere.
    let arguments = ["--cluster", "--advertise-addr", "http://127.0.0.1:9", "--node-id"];
    let server = |name: &str| {
        let any = "127.0.0.1:0".parse().expect("an address");
        Server::spawn_on(&database.url(), folder.path(), any, &[&arguments[..], &[name]].concat())
    };
    let a = server("a");
    a.ready().await;
    let b = server("b");
    wait_for("standby", LONG, || b.process.log().contains("following the leader").then_some(()));
    let servers = [a.addr, b.addr];
    let balancer = aside(move || Balancer::start(kind, configuration, servers)).await;
    let client = Client::new(&balancer.url(), None).expect("an address").with_patience(LONG);
    client.deploy(TASKS, Format::Yaml).await.expect("deployed");
    let worker = Worker::builder()
        .servers(balancer.url())
        .worker_id("behind")
        .task("t.a", "1", |_, _| async {
            // So that some of them are under way whatever happens.
            tokio::time::sleep(Duration::from_millis(20)).await;
            Ok(json!(1))
        })
        .task("t.b", "1", |_, _| async { Ok(json!(2)) });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(worker.build().expect("a worker").run(async move { drop(stopped.await) }));

    let (mut a, mut leads) = (Some(a), 1);
    for n in 0..30 {
        match n {
            10 => {
                // Through the balancer, too.
                let done = client.step_down(1).await.expect("it steps down");
                assert_eq!(done.leader.map(|leader| leader.node_id).as_deref(), Some("b"), "{}", balancer.log());
                leads = 2;
            }
            20 => {
                // Back, so that it is the first of the list that dies.
                client.step_down(leads).await.expect("it steps down");
                wait_until_led_by(&client, "a").await;
                a.take().expect("it leads").process.kill();
            }
            _ => {}
        }
        let options = StartOptions { execution_id: Some(format!("o{n}")), ..StartOptions::default() };
        client.start("Tasks", options).await.expect("started, here or there");
    }
    for n in 0..30 {
        let ended = wait_long(&client, &format!("o{n}")).await;
        assert_eq!(ended, Status::Completed, "o{n}: {}", balancer.log());
    }
    wait_until_led_by(&client, "b").await;
    drop(stop);
    let _ = working.await.expect("no panic");
}

/// Waits for the end, however often the wait is broken off.
async fn wait_long(client: &Client, id: &str) -> Status {
    let begun = std::time::Instant::now();
    loop {
        match client.wait(id, Duration::from_secs(5)).await {
            Ok(shown) if *shown.status() != Status::Running => return shown.status().clone(),
            other => assert!(begun.elapsed() < LONG, "{id}: {other:?}"),
        }
    }
}

async fn wait_until_led_by(client: &Client, node: &str) {
    let begun = std::time::Instant::now();
    loop {
        let ready = client.ready().await;
        let led = ready.as_ref().is_ok_and(|r| r.ready && r.leader.as_ref().is_some_and(|l| l.node_id == node));
        if led {
            return;
        }
        assert!(begun.elapsed() < LONG, "{node} does not lead: {ready:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
