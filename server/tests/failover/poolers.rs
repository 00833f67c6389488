//! PgBouncer between the servers and their database.

use crate::common::{aside, orbit, run, wait_for};
use crate::writer::{self, PING, Writers};
use crate::{LEADS_WITHIN, STEADY, cluster, deploy, until, until_leads};
use orbit_support::{PgBouncer, Postgres};
use std::time::Duration;

#[test]
fn through_a_pooler_in_session_mode_a_standby_takes_over_and_nothing_is_lost() {
    let cluster = cluster();
    let pooler = PgBouncer::start(Postgres::shared(), "session");
    let url = pooler.database(&cluster.database).url();
    let a = cluster.server_at(&url, "a", &STEADY);
    until_leads(&a);
    let b = cluster.server_at(&url, "b", &STEADY);
    crate::follows(&b);
    deploy(&a, PING);
    let of_a = Writers::begin("a", a.addr, 4, Duration::ZERO);
    let of_b = Writers::begin("b", b.addr, 1, Duration::from_millis(10));
    wait_for("writes", LEADS_WITHIN, || (of_a.acknowledged() > 50).then_some(()));
    a.process.kill();
    until_leads(&b);
    until("writes by the new leader", || of_b.acknowledged() > 20);
    let all: Vec<_> = of_a.end().into_iter().chain(of_b.end()).collect();
    assert_eq!(writer::faults(&cluster.database, &all), Vec::<String>::new());
}

#[tokio::test]
async fn through_a_pooler_in_transaction_mode_a_server_of_a_cluster_is_refused_and_says_what_would_do() {
    let (cluster, pooler) = aside(|| (cluster(), PgBouncer::start(Postgres::shared(), "transaction"))).await;
    let url = pooler.database(&cluster.database).url();
    for name in ["a", "b"] {
        let mut command = orbit(&["server", "--cluster", "--addr", "127.0.0.1:0", "--node-id", name, "--db"]);
        command.arg(&url);
        let ended = aside(|| run(command)).await;
        assert_eq!(ended.code, 1, "{ended:?}");
        assert!(ended.stderr.contains("pooler in transaction mode"), "{ended:?}");
        assert!(ended.stderr.contains("session mode"), "it says what would do: {ended:?}");
        assert!(!ended.stderr.contains("elected leader"), "it never led: {ended:?}");
    }
}
