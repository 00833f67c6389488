//! A server stands still (SIGSTOP), as one does whose host is suspended or starved: its sockets stay open, and nothing
//! ends by itself.

use crate::common::cluster::{follows, health};
use crate::common::raw;
use crate::orders::Orders;
use crate::writer::{self, PING, Said, Writers};
use crate::{
    STEADY, cluster, deploy, elections, leads, pair, pair_with_standby_behind_proxy, settled, until, until_deposed,
    until_leads,
};
use orbit_sdk::json;
use orbit_support::wire::Action;
use rustix::process::Signal;
use std::thread;
use std::time::{Duration, Instant};

/// Ten times what a takeover is to take.
const LONG: Duration = Duration::from_secs(10);

#[test]
fn a_leader_that_stands_still_for_long_is_replaced_and_finds_itself_fenced_when_it_goes_on() {
    let cluster = cluster();
    let (a, b) = pair(&cluster);
    deploy(&a, PING);
    let orders = Orders::begin(&format!("{},{}", a.url(), b.url()), 8);
    let (of_a, of_b) = (
        Writers::begin("a", a.addr, 2, Duration::from_millis(5)),
        Writers::begin("b", b.addr, 1, Duration::from_millis(10)),
    );
    until("some orders", || orders.ended() > 20 && of_a.acknowledged() > 20);
    let stopped = Instant::now();
    a.process.signal(Signal::STOP);
    until_leads(&b);
    println!("the other one led {:?} after the stop", stopped.elapsed());
    until("writes by the new leader", || of_b.acknowledged() > 20);
    thread::sleep(LONG.saturating_sub(stopped.elapsed()));
    let goes_on = Instant::now();
    a.process.signal(Signal::CONT);
    until_deposed(&a);
    let enough = orders.ended() + 20;
    until("more orders", || orders.ended() > enough);
    assert!(leads(&b) || leads(&a), "nobody leads any more");

    let (of_a, of_b) = (of_a.end(), of_b.end());
    let late = of_a.iter().filter(|asked| asked.heard > goes_on && asked.sent < goes_on);
    assert!(late.clone().all(|asked| asked.said != Said::Acknowledged), "it acknowledged what came before its sleep");
    let all: Vec<_> = of_a.into_iter().chain(of_b).collect();
    let seen = orders.end().unwrap_or_else(|faults| panic!("{faults:#?}"));
    println!("{seen:?}");
    assert_eq!(writer::faults(&cluster.database, &all), Vec::<String>::new());
}

/// An execution of this id is being made by somebody who does not come to the end: whoever makes another one waits.
fn half_made(database: &orbit_support::Database, like: &str, id: &str) -> postgres::Client {
    let mut client = database.connect();
    let sql = "INSERT INTO workflow_executions
        SELECT (jsonb_populate_record(w, jsonb_build_object('execution_id', $2::text))).*
        FROM workflow_executions w WHERE execution_id = $1";
    client.batch_execute("BEGIN").expect("a transaction begins");
    assert_eq!(client.execute(sql, &[&like, &id]).expect("a superuser may"), 1);
    client
}

#[test]
fn a_leader_that_stands_still_inside_an_append_holds_its_successor_up_no_longer_than_its_statement_may_wait() {
    let cluster = cluster();
    let (a, b) = pair(&cluster);
    deploy(&a, PING);
    let start = |server: &crate::Server, id: &str| {
        raw::post(server, "/v1/executions", json!({"workflow": "Ping", "execution_id": id}).to_string())
    };
    assert_eq!(start(&a, "before").status, 201);
    let mut maker = half_made(&cluster.database, "before", "held-up");
    let addr = a.addr;
    let asking = thread::spawn(move || {
        let body = json!({"workflow": "Ping", "execution_id": "held-up"}).to_string();
        let head = "POST /v1/executions HTTP/1.1\r\ncontent-type: application/json\r\n";
        raw::try_send(addr, head, body.as_bytes(), Duration::from_secs(60)).map(|answer| writer::said(&answer))
    });
    let mut admin = cluster.database.connect();
    let waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'orbit:a:store' AND wait_event_type = 'Lock'
        AND datname = current_database()";
    until("the append waits", || !admin.query(waits, &[]).expect("it answers").is_empty());
    let stopped = Instant::now();
    a.process.signal(Signal::STOP);
    until_leads(&b);
    println!("the other one led {:?} after the stop", stopped.elapsed());
    maker.batch_execute("ROLLBACK").expect("it ends");
    a.process.signal(Signal::CONT);
    until_deposed(&a);
    let said = asking.join().expect("no panic");
    // Whatever the first one was told, a repetition makes it, or finds it made.
    let again = start(&b, "held-up");
    assert!(matches!(again.status, 200 | 201), "{said:?}, and then {again:?}");
    if matches!(said, Ok(Said::Refused)) {
        assert_eq!(again.status, 201, "it was refused, and was there");
    }
    if matches!(said, Ok(Said::Acknowledged)) {
        assert_eq!(again.status, 200, "it was acknowledged, and was not there");
    }
    assert_eq!(writer::faults(&cluster.database, &[]), Vec::<String>::new());
}

#[test]
fn a_candidate_that_stands_still_between_its_raise_and_its_commit_is_passed_over() {
    let cluster = cluster();
    let (a, b, proxy) = pair_with_standby_behind_proxy(&cluster);
    proxy.rule(|message| {
        let commits = message.is_commit() && &*message.application == "orbit-cluster:b";
        if commits { Action::Hold } else { Action::Pass }
    });
    a.process.kill();
    let held = proxy.next_held(crate::LEADS_WITHIN, |message| message.is_commit()).expect("it campaigns");
    let raised = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state = 'idle in transaction'";
    let mut admin = cluster.database.connect();
    let backend = held.message.backend.expect("the session has begun");
    until("the raise", || !admin.query(raised, &[&backend]).expect("it answers").is_empty());
    let begun = Instant::now();
    let c = cluster.server("c", &STEADY);
    until_leads(&c);
    println!("the third one led {:?} after the raise of the second", begun.elapsed());
    proxy.pass_all();
    proxy.release_all();
    until("one leads and the other follows", || settled(&[health(&b), health(&c)]));
}

/// For so long a recovery lasts; longer than a check counts, and than a silent session lives (`scripts/long recovery`).
fn recovery_lasts() -> Duration {
    let seconds = std::env::var("RECOVERY_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

#[test]
fn a_recovery_that_takes_long_keeps_the_lead_and_a_server_that_stands_still_inside_it_loses_it() {
    // A machine that is too busy for three seconds costs a lead, too: then it is tried once more.
    let kept = (0..3).any(|_| recovers_for(recovery_lasts()));
    assert!(kept, "each time the lead was lost before the recovery was over");
}

/// Whether the lead outlasts the recovery, but for checks that came too late.
fn recovers_for(lasts: Duration) -> bool {
    let cluster = cluster();
    let (a, b) = pair(&cluster);
    deploy(&a, PING);
    // What whoever is elected reads first cannot be read.
    let mut stranger = cluster.database.connect();
    stranger.batch_execute("BEGIN; LOCK TABLE workflow_definitions IN ACCESS EXCLUSIVE MODE").expect("a lock");
    a.process.kill();
    until("the election", || elections(&b) > 0);
    let c = cluster.server("c", &STEADY);
    follows(&c);
    let begun = Instant::now();
    while begun.elapsed() < lasts {
        if elections(&c) > 0 || elections(&b) > 1 {
            let log = b.process.log();
            assert!(log.contains("the last good check of the"), "it lost the lead otherwise: {log}");
            return false;
        }
        assert!(!leads(&b) && !leads(&c), "it has recovered from what it cannot read");
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(health(&b)["role"], "leader");
    let stopped = Instant::now();
    b.process.signal(Signal::STOP);
    until("the next election", || elections(&c) > 0);
    let took = stopped.elapsed();
    println!("the lock was another's {took:?} after the stop, inside a recovery of {:?}", begun.elapsed());
    assert!(took < Duration::from_secs(30), "{took:?}");
    stranger.batch_execute("ROLLBACK").expect("the lock goes");
    until_leads(&c);
    b.process.signal(Signal::CONT);
    until_deposed(&b);
    true
}
