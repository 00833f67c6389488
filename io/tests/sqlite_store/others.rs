//! What only a file has: damage, and other programs that write it.

use crate::support::*;
use orbit_core::id::{Incarnation, Term};
use orbit_core::node::Connection;
use orbit_core::store::outcome::Reply;
use orbit_core::store::transaction::{Campaign, CampaignVerdict, Transaction, Verdict};
use uuid::Uuid;

#[test]
fn a_damaged_database_is_an_error_and_not_an_answer() {
    let (mut store, _) = Running::led();
    store.place.meddle("UPDATE orbit_cluster SET incarnation = x'0102'");
    let reply = store.reply(Connection::Control, Transaction::Check);
    let Reply::Failed(failure) = reply else { panic!("{reply:?}") };
    assert_eq!(failure.kind, orbit_core::store::outcome::FailureKind::Broken, "{failure:?}");
    store.place.meddle("DROP TABLE orbit_owners");
    let reply = store.reply(Connection::Store, Transaction::Recover);
    assert!(matches!(&reply, Reply::Failed(f) if f.message.contains("no such table: orbit_owners")), "{reply:?}");
}

#[test]
fn a_write_waits_for_another_program_that_writes_and_sees_what_it_wrote() {
    let mut store = Running::fresh();
    let other = rusqlite::Connection::open(&store.place.path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE; UPDATE orbit_cluster SET term = 41").unwrap();
    let (mode, incarnation) = (orbit_core::cluster::Mode::Single, Incarnation(Uuid::from_u128(1)));
    let campaign = Campaign::new(mode, incarnation, holder());
    store.send(Connection::Election, Transaction::Campaign(campaign));
    // Reads do not wait.
    store.send(Connection::Requests, Transaction::Workers);
    assert_eq!(store.next_reply().1, Reply::Done(Verdict::Workers(Vec::new())));
    other.execute_batch("COMMIT").unwrap();
    let (_, reply) = store.next_reply();
    let Reply::Done(Verdict::Campaign(CampaignVerdict::Won { term, .. })) = reply else { panic!("{reply:?}") };
    assert_eq!(term, Term(42));
}
