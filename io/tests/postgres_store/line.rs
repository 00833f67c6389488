//! The line for the election lock: who waits gets it when its holder goes, or hears in time that it has not.

use crate::kind;
use crate::support::*;
use orbit_core::node::Connection;
use orbit_core::store::outcome::Reply;
use orbit_core::store::statement::{LockState, StandInLine};
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_support::Postgres;
use std::time::{Duration, Instant};

fn line(slice: Duration) -> Transaction {
    Transaction::Line(StandInLine { slice })
}

/// The sessions that hold the lock, or wait for it.
const OF_THE_LOCK: &str =
    "SELECT DISTINCT pid FROM pg_locks WHERE locktype = 'advisory' AND granted = $1 AND database =
                           (SELECT oid FROM pg_database WHERE datname = current_database())";

fn sessions(client: &mut ::postgres::Client, hold: bool) -> Vec<i32> {
    let rows = client.query(OF_THE_LOCK, &[&hold]).expect("it answers");
    rows.iter().map(|row| row.get(0)).collect()
}

/// Another server of the same database.
fn another(place: &kind::Place) -> Running {
    let place = kind::Place { database: place.database.clone() };
    Running { attached: kind::open(&place), calls: 0, place }
}

#[test]
fn who_waits_in_line_is_told_after_its_slice_that_the_lock_is_anothers_and_nothing_is_logged() {
    let postgres = Postgres::start(&[]);
    let mut leader = Running::on(kind::Place { database: postgres.fresh() });
    leader.campaign(1);
    let mut second = another(&leader.place);
    let begun = Instant::now();
    let told = second.done(Connection::Election, line(Duration::from_millis(300)));
    assert_eq!(told, Verdict::Line(LockState::Others));
    assert!(begun.elapsed() >= Duration::from_millis(300), "{:?}", begun.elapsed());
    // The same connection waits again: nothing of the first wait is left, the time-out neither.
    assert_eq!(second.done(Connection::Election, line(Duration::from_millis(10))), Verdict::Line(LockState::Others));
    let mut client = leader.place.database.connect();
    assert!(sessions(&mut client, false).is_empty());
    let log = postgres.log();
    assert!(!log.contains("timeout"), "{log}");
}

#[test]
fn who_waits_in_line_has_the_lock_as_soon_as_its_holders_session_ends_and_once() {
    let (leader, _) = Running::led();
    let mut second = another(&leader.place);
    let sent = second.send(Connection::Election, line(Duration::from_secs(20)));
    let mut client = leader.place.database.connect();
    let begun = Instant::now();
    while sessions(&mut client, false).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "nobody waits in line");
        std::thread::sleep(Duration::from_millis(5));
    }
    let [holder] = sessions(&mut client, true)[..] else { panic!("one session holds the lock") };
    let begun = Instant::now();
    client.execute("SELECT pg_terminate_backend($1)", &[&holder]).expect("it is ended");
    let (call, reply) = second.next_reply();
    assert_eq!((call, reply), (sent, Reply::Done(Verdict::Line(LockState::Mine))));
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    // It holds it once: when it goes, the lock is free.
    drop(second);
    let begun = Instant::now();
    while !sessions(&mut client, true).is_empty() {
        assert!(begun.elapsed() < Duration::from_secs(60), "the lock is held on");
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut third = another(&leader.place);
    assert_eq!(third.done(Connection::Election, Transaction::Hold), Verdict::Hold(LockState::Mine));
}
