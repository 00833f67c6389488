//! A database that is not there yet.

use super::{aside, refused};
use crate::common::{Server, folder, free_addr, orbit, run};
use orbit_support::Postgres;
use std::sync::Arc;
use std::time::Duration;

#[tokio::test]
async fn a_database_that_is_starting_is_waited_for_and_said_to_be() {
    let folder = folder();
    let (postgres, database) = aside(|| {
        let postgres = Arc::new(Postgres::start(&[]));
        let database = postgres.fresh();
        postgres.halt("fast");
        postgres.resume_in_recovery();
        (postgres, database)
    })
    .await;
    // A look at it does not wait.
    let ended = run(orbit(&["status", "--db", &database.url()]));
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stderr.contains("is starting or stopping"), "{ended:?}");
    let (url, path) = (database.url(), folder.path().to_owned());
    let starting = tokio::task::spawn_blocking(move || Server::spawn_on(&url, &path, free_addr(), &[]));
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert!(!starting.is_finished(), "it waits");
    let promoted = Arc::clone(&postgres);
    aside(move || promoted.promote()).await;
    let server = starting.await.expect("it starts");
    server.ready().await;
    drop(server);
    aside(move || drop(postgres)).await;
}

#[tokio::test]
async fn a_start_waits_for_whoever_changes_the_tables_and_then_names_who_is_in_the_way() {
    let database = aside(|| Postgres::shared().fresh()).await;
    let holding = database.clone();
    let holder = aside(move || {
        let mut holder = holding.connect();
        holder.batch_execute("SET application_name = 'upgrade'").expect("a setting");
        holder.batch_execute("SELECT pg_advisory_lock(8030589290619431271)").expect("the lock of migrations");
        holder
    })
    .await;
    let (folder, url) = (folder(), database.url());
    let path = folder.path().to_owned();
    let starting = tokio::task::spawn_blocking(move || Server::spawn_on(&url, &path, free_addr(), &[]));
    let mut command = orbit(&["db", "migrate", "up", "--timeout", "0.3", "--db"]);
    command.arg(database.url());
    let ended = run(command);
    assert!(ended.stderr.contains("`upgrade` from 127.0.0.1"), "{ended:?}");
    assert!(!starting.is_finished(), "a server waits for longer");
    aside(move || drop(holder)).await;
    let server = starting.await.expect("it starts");
    server.ready().await;
    assert!(refused(&database.url(), &[]).stderr.contains("is held by"));
}
