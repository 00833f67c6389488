//! A server on PostgreSQL, from the outside: who may start, what it says when it cannot, and what it does while its
//! database is away.

mod common;

#[path = "postgres/away.rs"]
mod away;
#[path = "postgres/figures.rs"]
mod figures;
#[path = "postgres/full.rs"]
mod full;
#[path = "postgres/starting.rs"]
mod starting;
#[path = "postgres/takeover.rs"]
mod takeover;
#[path = "postgres/texts.rs"]
mod texts;

use common::{Ended, PATIENCE, Server, aside, folder, free_addr, orbit, own_postgres, run};
use orbit_sdk::{Client, Format, StartOptions, Status};
use orbit_support::{Database, PgBouncer, Postgres};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

async fn fresh() -> Database {
    aside(|| Postgres::shared().fresh()).await
}

async fn start(database: &Database, folder: &Path, more: &[&str]) -> Server {
    let server = Server::spawn_on(&database.url(), folder, free_addr(), more);
    server.ready().await;
    server
}

/// A start that must not work.
fn refused(url: &str, more: &[&str]) -> Ended {
    let mut command = orbit(&["server", "--addr", "127.0.0.1:0", "--db", url]);
    command.args(more);
    let ended = run(command);
    assert_ne!(ended.code, 0, "{ended:?}");
    ended
}

#[tokio::test]
async fn a_second_server_is_refused_with_the_holders_name() {
    let (folder, database) = (folder(), fresh().await);
    let first = start(&database, folder.path(), &["--node-id", "first-node"]).await;
    let status = |form: &str| run(orbit(&["status", "-o", form, "--db", &database.url()]));
    assert_eq!(status("json").json()["holder_runs"], true);
    let second = refused(&database.url(), &["--node-id", "second-node"]);
    assert_eq!(second.code, 1, "{second:?}");
    assert!(!second.stderr.contains("listening"), "it served nothing: {second:?}");
    let reason = second.stderr.lines().find(|line| line.starts_with("error: ")).expect("it says why");
    assert!(reason.contains("is held by"), "{reason}");
    assert!(reason.contains("first-node") && reason.contains(&first.process.id().to_string()), "{reason}");
    assert!(reason.contains(&first.addr.to_string()), "{reason}");
    first.ready().await;
    first.process.kill();
    // PostgreSQL notices the end of its session in a moment.
    let killed = common::wait_for("word of the kill", PATIENCE, || {
        let status = status("json").json();
        (status["holder_runs"] == false).then_some(status)
    });
    assert_eq!(killed["holder"]["node_id"], "first-node");
    assert!(status("table").stdout.contains(", which is gone: it was killed"), "{:?}", status("table"));
}

#[tokio::test]
async fn a_restart_right_after_a_kill_serves_soon() {
    let (folder, database) = (folder(), fresh().await);
    let mut server = start(&database, folder.path(), &[]).await;
    // The best of a few, with room for a machine that is busy with other things.
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let begun = Instant::now();
        server.process.kill();
        server = start(&database, folder.path(), &[]).await;
        best = best.min(begun.elapsed());
    }
    assert!(best < Duration::from_secs(5), "it took {best:?}");
}

#[tokio::test]
async fn a_start_that_cannot_work_says_why_and_what_would() {
    let scram = "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n";
    let (postgres, database) = aside(move || {
        let postgres = Postgres::start_with(&[], &[("pg_hba.conf", scram)]);
        let database = postgres.fresh();
        database
            .connect()
            .batch_execute(
                "CREATE ROLE me LOGIN PASSWORD 'right'; CREATE ROLE one LOGIN PASSWORD 'x' CONNECTION LIMIT 0",
            )
            .expect("a superuser");
        (postgres, database)
    })
    .await;
    let at = |user: &str, name: &str| format!("postgres://{user}@127.0.0.1:{}/{name}", database.port);
    let free = common::free_addr().port();
    for (url, says) in [
        (at("me:wrong", &database.name), "refuses these credentials: password authentication failed"),
        (at("me", &database.name), "refuses these credentials"),
        (at("postgres", "nothing"), "make it with `createdb`"),
        (at("one:x", &database.name), "takes no more connections"),
        (at("me:right", &database.name), "may not change the tables"),
        (format!("{}?sslmode=require", at("postgres", &database.name)), "sslmode=disable"),
        (format!("postgres://me@127.0.0.1:{free}/x"), "cannot be reached"),
    ] {
        let ended = refused(&url, &[]);
        assert!(ended.stderr.contains(says), "{url}: {ended:?}");
        assert!(!ended.stderr.contains("wrong") && !ended.stderr.contains("right@"), "a password is shown: {ended:?}");
    }
    for (url, code, says) in [
        (at("me:wrong", &database.name), 3, "refuses these credentials"),
        (at("postgres", "nothing"), 4, "make it with `createdb`"),
        (at("postgres", &database.name), 4, "has no tables of Orbit"),
        (format!("postgres://me@127.0.0.1:{free}/x"), 7, "cannot be reached"),
    ] {
        let ended = run(orbit(&["status", "--db", &url]));
        assert_eq!(ended.code, code, "{url}: {ended:?}");
        assert!(ended.stderr.contains(says) && ended.stdout.is_empty(), "{url}: {ended:?}");
    }
    let ended = refused("postgres://nowhere", &[]);
    assert_eq!(ended.code, 2, "{ended:?}");
    let ended = refused(&at("postgres", &database.name), &["--migrate", "never"]);
    assert!(ended.stderr.contains("orbit db migrate up"), "{ended:?}");
    aside(move || drop(postgres)).await;
}

#[tokio::test]
async fn a_pooler_in_transaction_mode_is_refused_and_one_in_session_mode_served_through() {
    let (folder, database) = (folder(), fresh().await);
    let (transaction, session) = aside(|| {
        (PgBouncer::start(Postgres::shared(), "transaction"), PgBouncer::start(Postgres::shared(), "session"))
    })
    .await;
    let ended = refused(&transaction.database(&database).url(), &[]);
    assert!(ended.stderr.contains("pooler in transaction mode"), "{ended:?}");
    let server = start(&session.database(&database), folder.path(), &[]).await;
    let client = server.client();
    client.deploy(PING, Format::Yaml).await.expect("it deploys");
    let started = client.start("Ping", StartOptions::default()).await.expect("it starts");
    let ended = client.wait(&started.execution_id, PATIENCE).await.expect("it ends");
    assert_eq!(ended.status(), &Status::Completed);
}

#[tokio::test]
async fn the_tables_are_looked_at_and_brought_up_to_date_by_hand() {
    let database = fresh().await;
    let migrate = |verb: &[&str]| {
        let mut command = orbit(&["db", "migrate"]);
        command.args(verb).args(["--db", &database.url()]);
        let ended = run(command);
        assert_eq!(ended.code, 0, "{ended:?}");
        ended
    };
    assert_eq!(migrate(&["status", "-o", "json"]).json()["version"], 0);
    let plan = migrate(&["plan"]).stdout;
    assert!(plan.contains("CREATE TABLE orbit_cluster"), "{plan}");
    assert_eq!(migrate(&["up", "--print-sql"]).stdout, plan);
    assert_eq!(migrate(&["status", "-o", "json"]).json()["version"], 0, "printed, and not run");
    assert_eq!(migrate(&["up", "-o", "json"]).json()["applied"][0]["version"], 1);
    assert_eq!(migrate(&["status", "-o", "json"]).json()["missing"], orbit_sdk::json!([]));
    let status = run(orbit(&["status", "-o", "json", "--db", &database.url()])).json();
    assert_eq!((&status["term"], &status["fsync"]), (&0.into(), &"on".into()), "{status}");
}

/// A workflow that ends in the append that starts it.
const PING: &str = "name: Ping\nversion: 1.0.0\nsteps: [{id: echo, compute: '1'}]\n";

/// Callers that start pings, and remember which were acknowledged.
struct Load {
    acknowledged: Arc<Mutex<BTreeSet<String>>>,
    callers: JoinSet<()>,
}

impl Load {
    fn begin(server: &Server) -> Load {
        let acknowledged = Arc::<Mutex<BTreeSet<String>>>::default();
        let mut callers = JoinSet::new();
        for caller in 0..8 {
            let (client, acknowledged) = (server.client(), Arc::clone(&acknowledged));
            callers.spawn(async move {
                for number in 0.. {
                    let id = format!("ping-{caller}-{number}");
                    let options = StartOptions { execution_id: Some(id.clone()), ..StartOptions::default() };
                    if client.start("Ping", options).await.is_ok() {
                        acknowledged.lock().expect("no panic").insert(id);
                    }
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            });
        }
        Load { acknowledged, callers }
    }

    fn count(&self) -> usize {
        self.acknowledged.lock().expect("no panic").len()
    }

    /// Waits until so many more were acknowledged.
    async fn more(&self, count: usize, server: &mut Server) {
        let (before, begun) = (self.count(), Instant::now());
        while self.count() < before + count {
            assert!(server.process.is_running(), "the server ended: {}", server.process.log());
            assert!(begun.elapsed() < PATIENCE, "nothing is acknowledged any more: {}", server.process.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Ends it, and checks that what was acknowledged is there, and has ended.
    async fn check(mut self, client: &Client) {
        self.callers.shutdown().await;
        let acknowledged = self.acknowledged.lock().expect("no panic").clone();
        for id in acknowledged {
            let execution = client.wait(&id, PATIENCE).await;
            let execution = execution.unwrap_or_else(|error| panic!("{id} was acknowledged, and: {error}"));
            assert_eq!(execution.status(), &Status::Completed, "{id}");
        }
    }
}

async fn until_not_ready(server: &Server) {
    let begun = Instant::now();
    while server.client().ready().await.is_ok_and(|ready| ready.ready) {
        assert!(begun.elapsed() < PATIENCE, "it says that it is ready, without a database");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_server_whose_database_goes_away_is_not_ready_and_comes_back_with_all_that_it_acknowledged() {
    let folder = folder();
    let (postgres, database) = own_postgres().await;
    let mut server = start(&database, folder.path(), &[]).await;
    server.client().deploy(PING, Format::Yaml).await.expect("it deploys");
    let load = Load::begin(&server);
    for mode in ["fast", "immediate"] {
        load.more(20, &mut server).await;
        let halted = Arc::clone(&postgres);
        aside(move || halted.halt(mode)).await;
        until_not_ready(&server).await;
        assert!(server.process.is_running(), "{}", server.process.log());
        let resumed = Arc::clone(&postgres);
        aside(move || resumed.resume()).await;
        server.ready().await;
        load.more(20, &mut server).await;
    }
    load.check(&server.client()).await;
    drop(server);
    aside(move || drop(postgres)).await;
}

#[tokio::test]
async fn a_server_whose_backends_are_terminated_again_and_again_loses_nothing() {
    let (folder, database) = (folder(), fresh().await);
    let mut server = start(&database, folder.path(), &[]).await;
    server.client().deploy(PING, Format::Yaml).await.expect("it deploys");
    let load = Load::begin(&server);
    for _ in 0..10 {
        load.more(10, &mut server).await;
        let database = database.clone();
        let ended = aside(move || {
            let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE application_name LIKE 'orbit:%' AND datname = current_database()";
            database.connect().query_one(all, &[]).expect("a superuser may").get::<_, i64>(0)
        })
        .await;
        assert!(ended >= 1, "no session was there to be ended");
    }
    load.more(10, &mut server).await;
    load.check(&server.client()).await;
}
