//! What those who ask are told while the database is away.

use crate::common::{PATIENCE, aside, folder, orbit, own_postgres, raw, run};
use crate::{PING, start, until_not_ready};
use orbit_sdk::{Format, StartOptions};
use std::sync::Arc;
use std::time::Instant;

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_while_the_database_is_away_is_told_that_nothing_was_sent_and_may_ask_again() {
    let folder = folder();
    let (postgres, database) = own_postgres().await;
    let server = start(&database, folder.path(), &[]).await;
    let client = server.client();
    client.deploy(PING, Format::Yaml).await.expect("it deploys");
    let halted = Arc::clone(&postgres);
    aside(move || halted.halt("immediate")).await;
    until_not_ready(&server).await;
    // The first ones may be sent on connections that are about to break: of those nobody knows what became of them.
    let (begun, mut ids) = (Instant::now(), Vec::new());
    loop {
        let id = format!("away-{}", ids.len());
        let options = StartOptions { execution_id: Some(id.clone()), ..StartOptions::default() };
        let told = client.start("Ping", options).await.expect_err("the database is away");
        ids.push(id);
        if told.code() == Some("STORAGE_ERROR") && told.to_string().contains("nothing was sent") {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "it is never told: {told}");
    }
    let refused = client.deploy(&PING.replace("Ping", "Pong"), Format::Yaml).await.expect_err("the database is away");
    assert_eq!(refused.code(), Some("STORAGE_ERROR"), "{refused}");
    for (target, status) in [("/livez", 200), ("/readyz", 503), ("/leaderz", 503), ("/v1/ready", 503)] {
        assert_eq!(raw::get(&server, target).status, status, "{target}");
    }
    for arguments in [&["executions", "list"][..], &["workers", "list"], &["executions", "show", "away-0"]] {
        let listed = run(orbit(&[arguments, &["--server", &server.url()]].concat()));
        assert_eq!((listed.code, listed.stdout.as_str()), (1, ""), "{listed:?}");
        assert!(listed.stderr.starts_with("error: STORAGE_ERROR: the database does not answer"), "{listed:?}");
    }
    let resumed = Arc::clone(&postgres);
    aside(move || resumed.resume()).await;
    server.ready().await;
    let last = ids.last().expect("one at least");
    let options = StartOptions { execution_id: Some(last.clone()), ..StartOptions::default() };
    assert!(client.start("Ping", options).await.expect("the database is back").created, "it had not begun");
    assert_eq!(raw::get(&server, "/readyz").status, 200);
    drop(server);
    aside(move || drop(postgres)).await;
}
