//! Commits of which the database cannot say how durable they are.

use crate::kind::{self, Place};
use crate::support::*;
use orbit_core::node::Connection;
use orbit_core::store::append::*;
use orbit_core::store::outcome::Reply;
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_io::postgres::Timeouts;
use orbit_support::Postgres;
use std::time::{Duration, Instant};

/// The backend that waits for a synchronous replica.
const WAITING: &str =
    "SELECT pid FROM pg_stat_activity WHERE application_name = 'orbit:node-a:store' AND wait_event = 'SyncRep'";

#[test]
fn a_commit_that_did_not_wait_for_its_replica_is_unknown_until_a_repetition_has() {
    // A replica that never comes; at first, nothing waits for it.
    let server = Postgres::start(&[("synchronous_standby_names", "nobody"), ("synchronous_commit", "local")]);
    let place = Place { database: server.fresh() };
    let mut store = Running { attached: kind::open_with(&place, Timeouts::default()), calls: 0, place };
    let fence = store.campaign(1);
    let mut operator = store.place.database.connect();
    let name = store.place.database.name.clone();
    let strict = |operator: &mut ::postgres::Client, setting: &str| {
        operator.batch_execute(&format!("ALTER DATABASE {name} SET synchronous_commit = {setting}")).unwrap();
        let all =
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'orbit:node-a:store'";
        operator.execute(all, &[]).unwrap();
    };
    strict(&mut operator, "on");
    let create = Transaction::Append(Append::under(fence, vec![group(1, vec![start("a", 1)])]));
    // Cancelled, PostgreSQL answers the commit with a warning; terminated, with the end of the session.
    for how in ["pg_cancel_backend", "pg_terminate_backend"] {
        // The first sending may go to the session that was ended.
        let begun = Instant::now();
        let waiting: i32 = loop {
            store.send(Connection::Store, create.clone());
            let found = std::iter::repeat_with(|| {
                std::thread::sleep(Duration::from_millis(2));
                (operator.query_opt(WAITING, &[]).unwrap(), store.attached.replies.try_recv().ok())
            });
            match found.into_iter().find(|(waiting, reply)| waiting.is_some() || reply.is_some()).unwrap() {
                (Some(row), None) => break row.get(0),
                (_, reply) => assert_eq!(reply.unwrap().reply, Reply::Unknown),
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "no commit waits for the replica");
        };
        operator.execute(&format!("SELECT {how}($1)"), &[&waiting]).unwrap();
        assert_eq!(store.next_reply().1, Reply::Unknown, "{how}");
        assert_eq!(store.load("a").events.len(), 1, "committed all the same");
    }
    strict(&mut operator, "local");
    let begun = Instant::now();
    let settled = loop {
        match store.reply(Connection::Store, create.clone()) {
            Reply::Done(verdict) => break verdict,
            other => assert!(begun.elapsed() < Duration::from_secs(60), "{other:?}"),
        }
    };
    assert_eq!(settled, Verdict::Append(vec![GroupOutcome::Written]));
    assert_eq!(store.load("a").events.len(), 1);
}
