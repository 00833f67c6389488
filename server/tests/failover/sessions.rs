//! The session that holds the election lock ends, and nothing else: the pool, the process and its clients go on.

use crate::common::wait_for;
use crate::writer::{self, PING, Writers};
use crate::{LEADS_WITHIN, cluster, deploy, depose, elections, pair, until, until_deposed};
use std::time::{Duration, Instant};

/// Clients that write without a rest: as much as the leader can append.
const FULL_LOAD: usize = 16;

#[test]
fn a_leader_that_loses_its_lock_under_full_load_is_replaced_and_appends_nothing_after_its_successor() {
    let cluster = cluster();
    let (a, b) = pair(&cluster);
    deploy(&a, PING);
    let of_a = Writers::begin("a", a.addr, FULL_LOAD, Duration::ZERO);
    let of_b = Writers::begin("b", b.addr, 1, Duration::from_millis(10));
    wait_for("full load", LEADS_WITHIN, || (of_a.acknowledged() > 100).then_some(()));
    let begun = Instant::now();
    depose(&cluster, "a", &b);
    until("a write by the new leader", || of_b.acknowledged() > 0);
    println!("the new leader wrote within {:?}", begun.elapsed());
    until_deposed(&a);
    let enough = of_b.acknowledged() + 20;
    until("more writes by the new leader", || of_b.acknowledged() > enough);

    let (of_a, of_b) = (of_a.end(), of_b.end());
    let all: Vec<_> = of_a.iter().chain(&of_b).cloned().collect();
    assert_eq!(writer::faults(&cluster.database, &all), Vec::<String>::new());
    // What the old one was asked after the new one had written, it did not do; unless it had its turn once more.
    let first = writer::first_acknowledged(&of_b).expect("it wrote");
    let late = of_a.iter().filter(|asked| asked.sent > first && asked.said == writer::Said::Acknowledged);
    assert!(late.count() == 0 || elections(&a) > 1, "a deposed leader acknowledges nothing");
    let refused = of_a.iter().filter(|asked| asked.sent > first).count();
    assert!(refused > 0, "it was asked, and refused");
}
