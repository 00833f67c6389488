//! PgBouncer in transaction mode, where no session is one's own.

use crate::common::{aside, orbit, run, wait_for};
use crate::{Cluster, LONG, TTL, follows, leads, lost_the_lead, surely_started, term};
use orbit_sdk::{Client, Format, Status, Worker, json};
use orbit_support::{PgBouncer, Postgres};

const TASKS: &str = "name: Tasks\nversion: 1.0.0\nsteps:\n  - {id: a, task: t.a}\n  - {id: b, task: t.b}\n";

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_pooler_in_transaction_mode_a_lease_elects_one_leader_at_a_time_and_everything_works() {
    let cluster = Cluster::new().await;
    let pooler = aside(|| PgBouncer::start(Postgres::shared(), "transaction")).await;
    let through = pooler.database(&cluster.database).url();

    // Tables are not made through it, and the server says what to do.
    let mut early = orbit(&["server", "--cluster", "--node-id", "a", "--election", "lease", "--addr", "127.0.0.1:0"]);
    early.args(["--db", &through]);
    let early = aside(|| run(early)).await;
    assert_eq!(early.code, 1, "{early:?}");
    assert!(early.stderr.contains("orbit db migrate up --db"), "{early:?}");
    let migrate = orbit(&["db", "migrate", "up", "--db", &cluster.database.url()]);
    let migrated = aside(|| run(migrate)).await;
    assert_eq!(migrated.code, 0, "{migrated:?}");

    let a = cluster.server_at(&through, "a", TTL, &[]);
    leads(&a).await;
    let b = cluster.server_at(&through, "b", TTL, &[]);
    follows(&b).await;
    assert!(a.process.log().contains("a pooler in transaction mode"), "{}", a.process.log());
    let both = format!("{},{}", a.url(), b.url());
    let client = Client::new(&both, None).expect("two addresses").with_patience(LONG);
    client.deploy(TASKS, Format::Yaml).await.expect("deployed");
    client.deploy(crate::WAITS, Format::Yaml).await.expect("deployed");
    let worker = Worker::builder()
        .servers(&both)
        .worker_id("both")
        .task("t.a", "1", |_, _| async { Ok(json!(1)) })
        .task("t.b", "1", |_, _| async { Ok(json!(2)) });
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let working = tokio::spawn(worker.build().expect("a worker").run(async move { drop(stopped.await) }));
    let mut leader = Some(a);
    for n in 0..30 {
        if n == 15 {
            leader.take().expect("it leads").process.kill();
        }
        let id = format!("o{n}");
        let begun = std::time::Instant::now();
        loop {
            let options = orbit_sdk::StartOptions { execution_id: Some(id.clone()), ..Default::default() };
            match client.start("Tasks", options).await {
                Ok(_) => break,
                Err(told) => assert!(begun.elapsed() < LONG, "{id} is never started: {told}"),
            }
        }
    }
    for n in 0..30 {
        let ended = client.wait(&format!("o{n}"), LONG).await.expect("it is shown");
        assert_eq!(ended.status(), &Status::Completed, "o{n}");
    }
    assert_eq!((term(&b), cluster.lease().await), (2, (Some("b".into()), 2)));
    drop(stop);
    let _ = working.await.expect("no panic");

    // The commands about the lease go the same way.
    let show = orbit(&["lease", "show", "-o", "json", "--db", &through]);
    let shown = aside(|| run(show)).await;
    assert_eq!(shown.json()["holder"], "b", "{shown:?}");
    let release = orbit(&["lease", "release", "--force", "--db", &through]);
    let released = aside(|| run(release)).await;
    assert_eq!(released.code, 0, "{released:?}");
    wait_for("end of the lead", LONG, || lost_the_lead(&b).then_some(()));
    surely_started(&client, "after").await;
    assert!(term(&b) >= 4, "{}", term(&b));
}
