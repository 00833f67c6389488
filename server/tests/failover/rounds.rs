//! Many elections, one after the other: nothing is left behind by any of them, and each has one winner.

use crate::common::Server;
use crate::{LEADS_WITHIN, cluster, depose, leader, retried, until, until_leads};
use orbit_support::Database;
use orbit_support::wire::{Action, Message, Proxy};
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Sessions that hold the election lock.
const HOLDERS: &str =
    "SELECT count(DISTINCT pid) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (classid::bigint << 32 | objid::bigint) = 8030589290619364466";
/// Locks of whatever kind that the servers' sessions hold while they do nothing.
const ANY: &str = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE a.application_name LIKE 'orbit%' AND a.datname = current_database() AND a.pid <> pg_backend_pid()";
const SESSIONS: &str = "SELECT count(*) FROM pg_stat_activity
    WHERE application_name LIKE 'orbit-cluster:%' AND datname = current_database()";

fn count(client: &mut postgres::Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).expect("it answers").get(0)
}

/// Whether a server asks for the lock, or whether it holds it.
fn is_check(message: &Message) -> bool {
    message.is_from_client(b'E')
        && message.application.starts_with("orbit-cluster:")
        && message.statement.contains("pg_try_advisory_lock")
}

/// A server behind a proxy that counts its checks of the lock.
fn counted(database: &Database, proxy: &Proxy) -> (String, Arc<AtomicUsize>) {
    let checks = Arc::<AtomicUsize>::default();
    let counts = Arc::clone(&checks);
    proxy.rule(move |message| {
        counts.fetch_add(usize::from(is_check(message)), Ordering::SeqCst);
        Action::Pass
    });
    (proxy.database(database).url(), checks)
}

#[test]
fn a_server_that_leads_for_a_while_and_steps_down_twenty_times_leaves_no_lock_behind() {
    const CYCLES: usize = 20;
    /// Before the first step down, and before the others where `FAILOVER_ROUNDS` is set.
    const CHECKS: usize = 50;
    const FEW_CHECKS: usize = 5;
    let all_of_them = std::env::var("FAILOVER_ROUNDS").is_ok();
    let cluster = cluster();
    let often = ["--check-interval", "0.05", "--leader-validity", "3", "--election-session-timeout", "4"];
    let (before_a, before_b) = (Proxy::before(cluster.database.port), Proxy::before(cluster.database.port));
    let (url, checks) = counted(&cluster.database, &before_a);
    let mut a = cluster.server_at(&url, "a", &often);
    until_leads(&a);
    let mut b = cluster.server_at(&before_b.database(&cluster.database).url(), "b", &often);
    crate::follows(&b);
    let mut admin = cluster.database.connect();
    let stepped_down = |server: &Server| server.process.log().matches("lost leadership; stepped down").count();
    for cycle in 0..CYCLES {
        until_leads(&a);
        let wanted = if cycle == 0 || all_of_them { CHECKS } else { FEW_CHECKS };
        let enough = checks.load(Ordering::SeqCst) + wanted;
        until("the checks", || checks.load(Ordering::SeqCst) >= enough);
        until("one holder", || count(&mut admin, HOLDERS) == 1);
        // The other one leads in between.
        for (name, leaver, heir) in [("a", &a, &b), ("b", &b, &a)] {
            let before = stepped_down(leaver);
            depose(&cluster, name, heir);
            until("the end of the lead", || stepped_down(leaver) > before);
        }
        assert!(stepped_down(&a) > cycle, "it led in every cycle");
    }
    until("one holder", || count(&mut admin, HOLDERS) == 1);
    until("two sessions", || count(&mut admin, SESSIONS) == 2);
    for server in [&mut a, &mut b] {
        server.process.signal(Signal::TERM);
        assert!(server.process.ended(LEADS_WITHIN).success());
    }
    until("no session and no lock", || count(&mut admin, SESSIONS) == 0 && count(&mut admin, ANY) == 0);
}

#[test]
fn of_five_candidates_one_wins_in_each_of_many_rounds() {
    const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
    /// So many, or as many as there is time for, and these at least.
    const ROUNDS: u32 = 200;
    const AT_LEAST: u32 = 20;
    let rounds = std::env::var("FAILOVER_ROUNDS").ok().and_then(|text| text.parse().ok());
    let cluster = cluster();
    let servers: Vec<Server> = NAMES.iter().map(|name| cluster.server(name, &crate::STEADY)).collect();
    let all: Vec<&Server> = servers.iter().collect();
    leader(&all);
    let mut admin = cluster.database.connect();
    let mut fence = || -> (i64, Option<String>) {
        let row = admin.query_one("SELECT term, leader_node FROM orbit_cluster", &[]).expect("it answers");
        (row.get(0), row.get(1))
    };
    let begun = Instant::now();
    let mut done = 0;
    while done < rounds.unwrap_or(ROUNDS) {
        if rounds.is_none() && done >= AT_LEAST && begun.elapsed() > Duration::from_secs(15) {
            break;
        }
        let (before, holder) = fence();
        let Some(holder) = holder else { panic!("nobody has stopped") };
        retried("next term", || cluster.end_election_of(&holder), || fence().0 > before);
        done += 1;
    }
    println!("{done} rounds in {:.1?}", begun.elapsed());
    leader(&all);
    let term = u64::try_from(fence().0).expect("a term");
    // Each term is one server's, as they say themselves.
    let mut winners: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (name, server) in NAMES.iter().zip(&servers) {
        for line in server.process.log().lines().filter(|line| line.contains("cluster: elected leader")) {
            let number = line.split("term=").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
            winners.entry(number.expect("the line names its term")).or_default().push(name);
        }
    }
    let twice: Vec<_> = winners.iter().filter(|(_, names)| names.len() != 1).collect();
    assert!(twice.is_empty(), "{twice:?}");
    assert!(winners.keys().all(|won| *won <= term), "{winners:?} and term {term}");
    assert!(winners.len() as u64 >= u64::from(done), "{} elections in {done} rounds", winners.len());
}
