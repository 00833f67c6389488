//! The versions of the tables, and the rights that they need.

use crate::kind::Place;
use crate::support::*;
use orbit_core::store::transaction::SCHEMA_VERSION;
use orbit_io::postgres::migrate::{self, MigrateError};
use orbit_io::postgres::{Address, Migrate, OpenError, PeekError, PostgresStore, Timeouts, peek};
use std::collections::BTreeSet;
use std::time::Duration;

fn open(url: &str, migrate: Migrate) -> Result<PostgresStore, OpenError> {
    PostgresStore::open(Address::parse(url).unwrap(), "node-a", Timeouts::default(), migrate)
}

fn refused(url: &str, migrate: Migrate) -> OpenError {
    open(url, migrate).err().expect("it was opened")
}

#[test]
fn servers_that_start_at_once_on_an_empty_database_make_one_set_of_tables() {
    let place = Place::fresh();
    let url = place.database.url();
    let opened: Vec<_> = (0..6)
        .map(|_| {
            let url = url.clone();
            std::thread::spawn(move || {
                let applied = open(&url, Migrate::Auto).unwrap().applied().len();
                let seen = peek(Address::parse(&url).unwrap()).unwrap();
                (applied, seen.contents.fence.cluster_id.0)
            })
        })
        .collect();
    let results: Vec<_> = opened.into_iter().map(|thread| thread.join().unwrap()).collect();
    assert_eq!(results.iter().map(|(applied, _)| applied).sum::<usize>(), migrate::MIGRATIONS.len());
    assert_eq!(results.iter().map(|(_, id)| id).collect::<BTreeSet<_>>().len(), 1, "one cluster id");
}

#[test]
fn whoever_holds_the_lock_of_migrations_is_named_with_its_age() {
    let place = Place::fresh();
    let mut holder = place.database.connect();
    holder.batch_execute("SET application_name = 'somebody'; SELECT pg_advisory_lock(8030589290619431271)").unwrap();
    let mut client = place.database.connect();
    let error = migrate::up(&mut client, Duration::from_millis(120)).unwrap_err();
    let MigrateError::Held(held) = &error else { panic!("{error}") };
    assert_eq!((held.application.as_str(), held.client.as_deref()), ("somebody", Some("127.0.0.1")));
    assert!(error.to_string().contains("`somebody` from 127.0.0.1 (backend "), "{error}");
    drop(holder);
    assert_eq!(migrate::up(&mut client, Duration::from_secs(10)).unwrap().len(), migrate::MIGRATIONS.len());
    assert_eq!(migrate::up(&mut client, Duration::ZERO).unwrap(), [], "there is nothing left to do");
}

#[test]
fn a_server_without_the_right_to_change_tables_serves_on_tables_that_others_made() {
    let place = Place::fresh();
    place.meddle("DO $$ BEGIN CREATE ROLE plain LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$");
    let url = place.database.url_as("plain");
    let error = refused(&url, Migrate::Never);
    assert!(matches!(error, OpenError::Old { found: 0, .. }), "{error}");
    assert!(error.to_string().contains("orbit db migrate up"), "{error}");
    let error = refused(&url, Migrate::Auto);
    assert!(matches!(error, OpenError::Rights { .. }), "{error}");
    drop(open(&place.database.url(), Migrate::Auto).unwrap());
    let error = peek(Address::parse(&url).unwrap()).unwrap_err();
    assert!(error.to_string().contains("may not read Orbit's tables"), "nothing was to be changed: {error}");
    // The rights that the book names.
    place.meddle("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO plain");
    let attached = open(&url, Migrate::Never).unwrap().attach();
    let mut store = Running { attached, calls: 0, place };
    let fence = store.campaign(1);
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    store.check();
}

#[test]
fn the_printed_sql_makes_the_same_tables() {
    let (printed, made) = (Place::fresh(), Place::fresh());
    printed.meddle(&migrate::as_sql(0));
    drop(open(&made.database.url(), Migrate::Auto).unwrap());
    let tables = |place: &Place| -> Vec<String> {
        let sql = "SELECT format('%s.%s %s %s', table_name, column_name, data_type, is_nullable)
            FROM information_schema.columns WHERE table_schema = 'public' ORDER BY 1";
        place.database.connect().query(sql, &[]).unwrap().iter().map(|row| row.get(0)).collect()
    };
    assert_eq!(tables(&printed), tables(&made));
    assert!(tables(&made).len() > 50);
    drop(open(&printed.database.url(), Migrate::Never).unwrap());
}

#[test]
fn newer_tables_and_tables_of_another_program_are_left_alone() {
    let place = Place::fresh();
    drop(open(&place.database.url(), Migrate::Auto).unwrap());
    place.meddle("UPDATE schema_version SET version = 99");
    let message = refused(&place.database.url(), Migrate::Auto).to_string();
    assert!(message.contains(&format!("of version 99, and this Orbit knows version {SCHEMA_VERSION}")), "{message}");
    let other = Place::fresh();
    other.meddle("CREATE TABLE schema_version (installed_rank int)");
    let message = refused(&other.database.url(), Migrate::Auto).to_string();
    assert!(message.contains("of another program"), "{message}");
}

#[test]
fn a_look_at_a_database_shows_what_is_in_it_and_needs_no_lock() {
    let place = Place::fresh();
    let empty = peek(Address::parse(&place.database.url()).unwrap()).unwrap_err();
    assert!(matches!(empty, PeekError::Empty { .. }), "{empty}");
    let mut store = Running::on(place);
    let fence = store.campaign(1);
    let mut create = group(1, vec![start("a", 1)]);
    create.tasks = vec![
        orbit_core::store::append::TaskChange::Insert(task("t1", "a", "pay", 1)),
        orbit_core::store::append::TaskChange::Insert(task("t2", "a", "pay", 2)),
    ];
    store.written(fence, vec![create]);
    store.claim(fence, 1, vec![want(&["pay"], &[7])]);
    let seen = peek(Address::parse(&store.place.database.url()).unwrap()).unwrap();
    assert_eq!((seen.contents.fence.fence, seen.contents.fence.holder), (fence, Some(holder())));
    assert_eq!((seen.contents.queued_tasks, seen.contents.claimed_tasks, seen.contents.executions.len()), (1, 1, 1));
    assert_eq!((seen.settings.synchronous_commit.as_str(), seen.settings.fsync.as_str()), ("on", "on"));
}
