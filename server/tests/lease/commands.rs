//! `orbit lease show` and `orbit lease release`, which need neither the lease nor a server that runs.

use crate::common::{Ended, aside, orbit, run, wait_for};
use crate::{Cluster, LONG, TTL, leads, lost_the_lead, start, surely_started};
use orbit_sdk::Client;

async fn lease(cluster: &Cluster, arguments: &[&str]) -> Ended {
    let mut command = orbit(&["lease"]);
    command.args(arguments).args(["--db", &cluster.database.url()]);
    aside(|| run(command)).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_lease_is_shown_with_its_holder_epoch_and_what_is_left_whether_or_not_a_server_runs() {
    let cluster = Cluster::new().await;
    // So long that nothing of it runs out here.
    let a = cluster.server("a", 600, &[]);
    leads(&a).await;
    let shown = lease(&cluster, &["show", "-o", "json"]).await.json();
    assert_eq!((&shown["holder"], &shown["epoch"], &shown["held"]), (&"a".into(), &1.into(), &true.into()), "{shown}");
    assert_eq!((&shown["term"], &shown["addr"]), (&1.into(), &a.url().into()), "{shown}");
    assert!(shown["host"].is_string() && shown["incarnation"].is_string(), "{shown}");
    let left = shown["expires_in_ms"].as_i64().expect("a time");
    let age = shown["age_ms"].as_i64().expect("a time");
    assert!((1..=600_001).contains(&left) && (0..600_000).contains(&age), "{shown}");
    // So does a look at the database as a whole: whoever has the lease runs, and there is no lock.
    let mut command = orbit(&["status", "-o", "json"]);
    command.args(["--db", &cluster.database.url()]);
    let looked = aside(|| run(command)).await.json();
    assert_eq!((&looked["holder_runs"], &looked["lease"]["holder"]), (&true.into(), &"a".into()), "{looked}");
    assert!(looked.get("election_lock").is_none(), "{looked}");
    a.process.kill();
    let shown = lease(&cluster, &["show"]).await;
    assert_eq!(shown.code, 0, "{shown:?}");
    for field in ["holder:", "host:", "epoch:", "expires in:", "age:", "renewed:"] {
        assert!(shown.stdout.contains(field), "{field}: {shown:?}");
    }
    assert_eq!(lease(&cluster, &["show", "-o", "ids"]).await.stdout, "a\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_taken_away_with_force_alone_and_its_holder_writes_nothing_from_then_on() {
    let cluster = Cluster::new().await;
    let (a, b) = cluster.pair(TTL).await;
    let refused = lease(&cluster, &["release"]).await;
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("--force") && refused.stderr.contains("second time"), "{refused:?}");
    assert_eq!(cluster.lease().await, (Some("a".into()), 1), "nothing has changed");

    let released = lease(&cluster, &["release", "--force"]).await;
    assert_eq!(released.code, 0, "{released:?}");
    assert!(
        released.stdout.contains("the lease of a (epoch 1") && released.stdout.contains("term is 2"),
        "{released:?}"
    );
    assert!(released.stderr.contains("may happen a second time"), "it says what it cannot protect: {released:?}");
    // Until it looks, the one who led may think that it leads: whatever it is asked, it writes nothing.
    let answer = start(&a, "by-a");
    // 201 where it has been elected again meanwhile, 504 where it was told so of what it had sent.
    assert!(matches!(answer.status, 201 | 503 | 504), "{answer:?}");
    wait_for("end of the lead", LONG, || lost_the_lead(&a).then_some(()));
    let both = Client::new(&format!("{},{}", a.url(), b.url()), None).expect("two addresses").with_patience(LONG);
    surely_started(&both, "after").await;
    let (holder, epoch) = cluster.lease().await;
    assert!(holder.is_some() && epoch >= 3, "the next epoch is after the term that force raised: {epoch}");
}

#[tokio::test(flavor = "multi_thread")]
async fn where_there_is_no_lease_the_commands_say_why() {
    let cluster = Cluster::new().await;
    let empty = lease(&cluster, &["show"]).await;
    assert_eq!((empty.code, empty.stdout.as_str()), (4, ""), "{empty:?}");
    let any = "127.0.0.1:0".parse().expect("an address");
    let arguments = ["--cluster", "--node-id", "l"];
    let by_lock = crate::Server::spawn_on(&cluster.database.url(), cluster.folder.path(), any, &arguments);
    leads(&by_lock).await;
    for arguments in [&["show"][..], &["release", "--force"]] {
        let told = lease(&cluster, arguments).await;
        assert_eq!(told.code, 4, "{told:?}");
        assert!(told.stderr.contains("elected by lock"), "{told:?}");
    }
    // And a server that would be elected by lease is refused.
    let mut other = orbit(&["server", "--cluster", "--node-id", "m", "--election", "lease", "--addr", "127.0.0.1:0"]);
    other.args(["--db", &cluster.database.url()]);
    let other = aside(|| run(other)).await;
    assert_eq!(other.code, 1, "{other:?}");
    assert!(other.stderr.contains("--election lock"), "{other:?}");
    let file = orbit(&["lease", "show", "--db", "orbit.db"]);
    let file = aside(|| run(file)).await;
    assert_eq!(file.code, 2, "{file:?}");
}
