//! The database itself goes away under a cluster that writes.

use crate::common::cluster::Cluster;
use crate::common::{Server, raw, wait_for};
use crate::writer::{self, Asked, PING, Writers};
use crate::{LEADS_WITHIN, deploy, leader, pair, until};
use orbit_support::Postgres;
use std::time::Duration;

/// Clients of both servers.
struct Both(Writers, Writers);

impl Both {
    fn begin(a: &Server, b: &Server) -> Both {
        let rest = Duration::from_millis(3);
        Both(Writers::begin("a", a.addr, 4, rest), Writers::begin("b", b.addr, 4, rest))
    }

    fn acknowledged(&self) -> usize {
        self.0.acknowledged() + self.1.acknowledged()
    }

    /// Waits until more was written.
    fn more(&self, servers: &[&Server]) {
        let enough = self.acknowledged() + 30;
        let begun = std::time::Instant::now();
        while self.acknowledged() < enough {
            assert!(begun.elapsed() < LEADS_WITHIN, "nothing is written any more: {}", crate::logs(servers));
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn end(self) -> Vec<Asked> {
        self.0.end().into_iter().chain(self.1.end()).collect()
    }
}

/// A pair with a workflow, on a PostgreSQL that this test may do anything to.
fn pair_on_a_database_of_its_own() -> (Postgres, Cluster, Server, Server) {
    let postgres = Postgres::start(&[]);
    let cluster = Cluster::on(postgres.fresh());
    let (a, b) = pair(&cluster);
    deploy(&a, PING);
    (postgres, cluster, a, b)
}

#[test]
fn a_cluster_whose_database_crashes_or_ends_all_sessions_at_once_writes_again_and_has_lost_nothing() {
    let (postgres, cluster, a, b) = pair_on_a_database_of_its_own();
    let servers = [&a, &b];
    let both = Both::begin(&a, &b);
    for round in 0..2 {
        both.more(&servers);
        postgres.restart("immediate");
        both.more(&servers);
        let all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
            WHERE application_name LIKE 'orbit%' AND datname = current_database()";
        let ended: i64 = cluster.database.connect().query_one(all, &[]).expect("a superuser may").get(0);
        assert!(ended > 2, "only {ended} sessions were there to be ended in round {round}");
        both.more(&servers);
    }
    leader(&servers);
    let all = both.end();
    assert_eq!(writer::faults(&cluster.database, &all), Vec::<String>::new());
}

/// What each probe of a server says.
fn probes(server: &Server) -> [u16; 4] {
    ["/livez", "/readyz", "/leaderz", "/v1/ready"].map(|probe| raw::get(server, probe).status)
}

#[test]
fn while_the_database_is_down_stands_still_or_takes_no_writes_no_server_says_that_it_serves_them() {
    let (postgres, cluster, a, b) = pair_on_a_database_of_its_own();
    let servers = [&a, &b];
    let both = Both::begin(&a, &b);
    let neither = |what: &str| {
        wait_for(what, LEADS_WITHIN, || {
            let said = servers.map(probes);
            said.iter().all(|[live, _, leads, ready]| (*live, *leads, *ready) == (200, 503, 503)).then_some(())
        });
    };
    let set = |value: &str| {
        let mut admin = postgres.database("postgres").connect();
        let change = format!("ALTER SYSTEM SET default_transaction_read_only = {value}");
        admin.batch_execute("SET default_transaction_read_only = off").expect("it may be set");
        admin.batch_execute(&change).expect("a superuser may");
        admin.batch_execute("SELECT pg_reload_conf()").expect("a superuser may");
    };
    both.more(&servers);
    postgres.halt("immediate");
    neither("word that the database is down");
    postgres.resume();
    both.more(&servers);
    postgres.freeze();
    neither("word that the database stands still");
    postgres.thaw();
    both.more(&servers);
    set("on");
    neither("word that the database takes no writes");
    set("off");
    both.more(&servers);
    let leads = leader(&servers);
    assert_eq!(probes(leads), [200; 4]);
    let all = both.end();
    assert_eq!(writer::faults(&cluster.database, &all), Vec::<String>::new());
    until("one leader", || servers.iter().filter(|server| crate::leads(server)).count() == 1);
}
