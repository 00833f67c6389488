//! No connection left, and no room on the disk.

use super::{Load, PING, aside, refused, start, until_not_ready};
use crate::common::{PATIENCE, folder, free_addr, wait_for};
use orbit_sdk::Format;
use orbit_support::{Database, Postgres};
use postgres::{Client, NoTls};
use std::sync::Arc;
use std::time::Duration;

/// Opens sessions until there is no connection left.
fn take_all(database: &Database, held: &mut Vec<Client>) {
    // One that has just ended may still count.
    let mut refusals = 0;
    while refusals < 3 {
        match Client::connect(&database.url_as("me"), NoTls) {
            Ok(client) => held.push(client),
            Err(error) => {
                assert_eq!(error.code().map(|code| code.code()), Some("53300"), "{error:?}");
                refusals += 1;
                std::thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

#[tokio::test]
async fn a_server_that_gets_no_connection_says_so_at_the_start_and_goes_on_later_when_there_are_some() {
    let folder = folder();
    let (postgres, database) = aside(|| {
        let postgres = Postgres::start(&[("max_connections", "14"), ("superuser_reserved_connections", "3")]);
        let database = postgres.fresh();
        let owner = "CREATE ROLE me LOGIN; ALTER SCHEMA public OWNER TO me";
        database.connect().batch_execute(owner).expect("a superuser");
        (postgres, database)
    })
    .await;
    let url = database.url_as("me");
    let taken = database.clone();
    let held = aside(move || {
        let mut held = Vec::new();
        take_all(&taken, &mut held);
        held
    })
    .await;
    let (refused, held) = {
        let url = url.clone();
        aside(move || (refused(&url, &[]), held)).await
    };
    assert!(refused.stderr.contains("takes no more connections"), "{refused:?}");
    assert!(refused.stderr.contains("max_connections"), "it says what would help: {refused:?}");
    aside(move || drop(held)).await;

    let mut server = crate::common::Server::spawn_on(&url, folder.path(), free_addr(), &[]);
    server.ready().await;
    server.client().deploy(PING, Format::Yaml).await.expect("it deploys");
    let load = Load::begin(&server);
    load.more(20, &mut server).await;
    // Its sessions are ended, and whoever comes takes their place.
    let taken = database.clone();
    let held = aside(move || {
        let mut admin = taken.connect();
        let mut held = Vec::new();
        let orbit = "FROM pg_stat_activity WHERE usename = 'me' AND application_name LIKE 'orbit:%'";
        wait_for("end of the server's sessions", PATIENCE, || {
            admin.execute(&format!("SELECT pg_terminate_backend(pid) {orbit}"), &[]).expect("a superuser may");
            take_all(&taken, &mut held);
            let left: i64 = admin.query_one(&format!("SELECT count(*) {orbit}"), &[]).expect("it answers").get(0);
            (left == 0).then_some(())
        });
        held
    })
    .await;
    until_not_ready(&server).await;
    assert!(server.process.is_running(), "{}", server.process.log());
    aside(move || drop(held)).await;
    server.ready().await;
    load.more(20, &mut server).await;
    load.check(&server.client()).await;
    drop(server);
    aside(move || drop(postgres)).await;
}

#[tokio::test]
async fn a_server_whose_database_has_no_room_is_not_ready_and_goes_on_once_there_is_some() {
    let folder = folder();
    let made = aside(|| {
        let postgres = Arc::new(Postgres::start_in_small_space(64)?);
        let database = postgres.fresh_in_small_space();
        Some((postgres, database))
    })
    .await;
    let Some((postgres, database)) = made else {
        println!("not run: a small file system can only be mounted by root, and here not even by it");
        return;
    };
    let mut server = start(&database, folder.path(), &[]).await;
    server.client().deploy(PING, Format::Yaml).await.expect("it deploys");
    let load = Load::begin(&server);
    load.more(20, &mut server).await;
    let filled = database.clone();
    let filling = aside(move || {
        let mut client = filled.connect();
        let table = "CREATE TABLE junk (text text); ALTER TABLE junk ALTER COLUMN text SET STORAGE plain";
        client.batch_execute(table).expect("there is room for that");
        client
    })
    .await;
    let fill = |mut client: Client| {
        aside(move || {
            // Large pieces, then small ones.
            for size in [7000, 7000, 500, 1] {
                let rows = 4_000_000 / (size + 40);
                let insert = format!("INSERT INTO junk SELECT repeat('x', {size}) FROM generate_series(1, {rows})");
                for _ in 0..40 {
                    if let Err(error) = client.batch_execute(&insert) {
                        assert_eq!(error.code().map(|code| code.code()), Some("53100"), "{error:?}");
                        break;
                    }
                }
            }
            client
        })
    };
    let filling = fill(filling).await;
    until_not_ready(&server).await;
    let log = server.process.log();
    assert!(log.contains("No space left on device"), "{log}");
    assert!(server.process.is_running(), "{log}");
    aside(move || {
        let mut client = filling;
        client.batch_execute("DROP TABLE junk").expect("it can be dropped");
    })
    .await;
    server.ready().await;
    load.more(20, &mut server).await;
    load.check(&server.client()).await;
    drop(server);
    aside(move || drop(postgres)).await;
}
