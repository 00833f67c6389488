//! PgBouncer in between.

use crate::kind::Place;
use crate::support::*;
use orbit_core::node::Connection;
use orbit_core::store::statement::LockState;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_io::postgres::{Address, Migrate, OpenError, PostgresStore, Timeouts};
use orbit_support::{PgBouncer, Postgres};

#[test]
fn a_pooler_in_session_mode_is_as_good_as_the_server_itself() {
    let direct = Place::fresh();
    let pooler = PgBouncer::start(Postgres::shared(), "session");
    let mut store = Running::on(Place { database: pooler.database(&direct.database) });
    let fence = store.campaign(1);
    let mut create = group(1, vec![start("a", 2)]);
    create.tasks = vec![orbit_core::store::append::TaskChange::Insert(task("t", "a", "pay", 1))];
    store.written(fence, vec![create]);
    assert_eq!(ids(&store.claim(fence, 1, vec![want(&["pay"], &[7])])), [("t", 7)]);
    assert_eq!(store.load("a").events.len(), 2);
    assert_eq!(store.check().fence, fence);
    assert_eq!(store.done(Connection::Election, Transaction::Hold), Verdict::Hold(LockState::Mine));
    // The lock is held for whoever comes, through the pooler or past it.
    let mut second = Running::on(direct);
    assert!(matches!(second.try_campaign(2), orbit_core::store::transaction::CampaignVerdict::Held { .. }));
}

#[test]
fn a_pooler_in_transaction_mode_is_refused_at_the_start() {
    let direct = Place::fresh();
    let pooler = PgBouncer::start(Postgres::shared(), "transaction");
    let address = Address::parse(&pooler.database(&direct.database).url()).unwrap();
    let refused = PostgresStore::open(address, "node-a", Timeouts::default(), Migrate::Auto);
    let error = refused.err().expect("it was opened");
    assert!(matches!(error, OpenError::Pooled { .. }), "{error}");
    assert!(error.to_string().contains("pooler in transaction mode"), "{error}");
}
