//! What grows old in the database, as the metrics show it.

use super::{aside, fresh, start};
use crate::common::{PATIENCE, folder};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

async fn figures(server: &crate::common::Server) -> BTreeMap<String, f64> {
    let text = server.client().metrics().await.expect("it shows them");
    let samples = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    samples.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect()
}

#[tokio::test]
async fn an_old_transaction_and_what_it_holds_back_show_in_the_metrics_and_go_with_it() {
    let (folder, database) = (folder(), fresh().await);
    let server = start(&database, folder.path(), &["--check-interval", "0.05"]).await;
    let opened = database.clone();
    let mut old = aside(move || {
        let mut old = opened.connect();
        old.batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT * FROM orbit_cluster").expect("it reads");
        // Something that it holds back.
        let mut other = opened.connect();
        other
            .batch_execute("CREATE TABLE other (n int); INSERT INTO other VALUES (1); DELETE FROM other")
            .expect("sql");
        for _ in 0..20 {
            other.execute("INSERT INTO other VALUES (1)", &[]).expect("it writes");
        }
        old
    })
    .await;
    let begun = Instant::now();
    let shown = loop {
        let shown = figures(&server).await;
        let of = |name: &str| shown.get(name).copied().unwrap_or(0.0);
        if of("orbit_database_oldest_transaction_seconds") > 0.3 && of("orbit_database_held_back_transactions") >= 20.0
        {
            break shown;
        }
        assert!(begun.elapsed() < PATIENCE, "{shown:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    assert!(shown["orbit_database_xid_age"] > 0.0, "{shown:?}");
    assert!(shown["orbit_database_figures_age_seconds"] < 20.0, "{shown:?}");
    for name in ["multixact_age", "dead_rows", "notify_queue_ratio", "most_overdue_seconds"] {
        assert!(shown.contains_key(&format!("orbit_database_{name}")), "{name}: {shown:?}");
    }
    old = aside(move || {
        old.batch_execute("COMMIT").expect("it ends");
        old
    })
    .await;
    let begun = Instant::now();
    while figures(&server).await["orbit_database_oldest_transaction_seconds"] > 0.3 {
        assert!(begun.elapsed() < PATIENCE, "it is shown still");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    aside(move || drop(old)).await;
}
