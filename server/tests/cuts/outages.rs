//! The same clients, while the database itself is ended: `scripts/long outages` goes on for longer (`OUTAGES=n` rounds).

use crate::common::{Server, aside, folder, free_addr, own_postgres};
use crate::load::Load;
use orbit_support::{Database, Postgres};
use std::sync::Arc;
use std::time::Duration;

/// Starts that are acknowledged between two outages.
const BETWEEN: usize = 15;

fn rounds(usual: usize) -> usize {
    std::env::var("OUTAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

async fn begin(database: &Database, folder: &std::path::Path, check_interval: &str) -> (Server, Load) {
    let more = ["--check-interval", check_interval, "--session-timeout", "3", "--log-level", "info"];
    let server = Server::spawn_on(&database.url(), folder, free_addr(), &more);
    server.ready().await;
    let load = Load::begin(&server.client(), &server.url()).await;
    (server, load)
}

#[tokio::test(flavor = "multi_thread")]
async fn however_the_database_goes_down_each_request_has_one_effect() {
    let folder = folder();
    let (postgres, database) = own_postgres().await;
    let (mut server, mut load) = begin(&database, folder.path(), "0.1").await;
    for round in 0..rounds(1) {
        for mode in ["fast", "immediate", "killed"] {
            load.more(BETWEEN, &mut server).await;
            let postgres = Arc::clone(&postgres);
            aside(move || {
                match mode {
                    "killed" => postgres.kill(),
                    mode => postgres.halt(mode),
                }
                postgres.resume();
            })
            .await;
            println!("round {round}: {mode}, {} starts so far", load.count());
        }
    }
    load.more(BETWEEN, &mut server).await;
    load.end().await;
    load.check(&server, &database).await;
    drop(server);
    aside(move || drop(postgres)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn however_often_its_sessions_are_terminated_each_request_has_one_effect() {
    let folder = folder();
    let database = aside(|| Postgres::shared().fresh()).await;
    let (mut server, mut load) = begin(&database, folder.path(), "0.1").await;
    let (mut ended, times) = (0, rounds(1) * 15);
    for _ in 0..times {
        load.more(BETWEEN / 3, &mut server).await;
        let database = database.clone();
        ended += aside(move || {
            let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE application_name LIKE 'orbit:%' AND datname = current_database()";
            database.connect().query_one(all, &[]).expect("a superuser may").get::<_, i64>(0)
        })
        .await;
    }
    println!("{ended} sessions were terminated");
    let least = i64::try_from(times).expect("few");
    assert!(ended >= least, "only {ended} sessions were there to be ended");
    load.end().await;
    load.check(&server, &database).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn background_loops_at_twenty_times_their_rate_meet_no_deadlock() {
    let folder = folder();
    let database = aside(|| Postgres::shared().fresh()).await;
    let (mut server, mut load) = begin(&database, folder.path(), "0.05").await;
    let until = std::time::Instant::now() + Duration::from_secs(3);
    while std::time::Instant::now() < until {
        load.more(10, &mut server).await;
    }
    load.end().await;
    // Among what is checked: the database counts its deadlocks.
    load.check(&server, &database).await;
}
