//! The network between a server and its database loses things: a cable is pulled, packets vanish, or those of one
//! direction do. Nobody is told. The servers and the database are on hosts of their own (network namespaces).

use crate::common::cluster::{self as clusters, health};
use crate::common::{Server, folder, raw, wait_for};
use crate::writer::{self, PING, Writers};
use crate::{LEADS_WITHIN, STEADY, deploy, leads, settled, until};
use orbit_support::{Database, Host, Hosts, Loss, Postgres};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Whoever may connect from the other host.
const WHO: &str = "host all all 127.0.0.1/32 trust\nhost all all 10.213.0.0/16 trust\n";

/// A database on one host, and where the logs of its servers are.
pub struct Net {
    pub hosts: Hosts,
    postgres: Option<Postgres>,
    pub database: Database,
    folder: TempDir,
}

impl Net {
    /// None where this process may not make hosts, which it says.
    pub fn new() -> Option<Net> {
        let hosts = match Hosts::new() {
            Ok(hosts) => hosts,
            Err(reason) => {
                println!("not run: hosts of their own are made by root alone, and here: {reason}");
                return None;
            }
        };
        let postgres = hosts.first.run(|| Postgres::start_with(&[("listen_addresses", "*")], &[("pg_hba.conf", WHO)]));
        let database = hosts.first.run(|| postgres.fresh());
        Some(Net { hosts, postgres: Some(postgres), database, folder: folder() })
    }

    /// A server beside the database.
    pub fn near(&self, name: &str, more: &[&str]) -> Server {
        self.spawn(&self.hosts.first, &self.database.url(), name, more)
    }

    /// A server on the other host.
    pub fn far(&self, name: &str, more: &[&str]) -> Server {
        let Database { name: database, port } = &self.database;
        let url = format!("postgres://postgres@{}:{port}/{database}?sslmode=disable", self.hosts.first.address);
        self.spawn(&self.hosts.second, &url, name, more)
    }

    fn spawn(&self, host: &Host, url: &str, name: &str, more: &[&str]) -> Server {
        let addr = (host.aside, 0).into();
        host.run(|| clusters::spawn_on(url, self.folder.path(), name, addr, more))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        let postgres = self.postgres.take();
        self.hosts.first.run(|| drop(postgres));
    }
}

fn until_leads(host: &Host, server: &Server) {
    host.run(|| crate::until_leads(server));
}

fn follows(host: &Host, server: &Server) {
    host.run(|| clusters::follows(server));
}

/// A leader loses its database in this way: the one that has it takes over, and after that the first one stands by.
fn a_leader_loses(loss: Loss) {
    let Some(net) = Net::new() else { return };
    let (near, far) = (&net.hosts.first, &net.hosts.second);
    let a = net.far("a", &STEADY);
    until_leads(far, &a);
    let b = net.near("b", &STEADY);
    follows(near, &b);
    far.run(|| deploy(&a, PING));
    let of_a = Writers::begin_at(Some(far), "a", a.addr, 4, Duration::ZERO);
    let of_b = Writers::begin_at(Some(near), "b", b.addr, 1, Duration::from_millis(10));
    wait_for("writes", LEADS_WITHIN, || (of_a.acknowledged() > 50).then_some(()));
    let begun = Instant::now();
    net.hosts.lose(loss);
    until_leads(near, &b);
    println!("{loss:?}: the other one led after {:?}", begun.elapsed());
    until("writes by the new leader", || of_b.acknowledged() > 20);
    // It has no database, and knows by its own clock that it leads no more.
    far.run(|| until("the end of its lead", || !leads(&a)));
    assert_eq!(far.run(|| raw::get(&a, "/livez")).status, 200, "it lives");
    net.hosts.mend();
    let both = || [far.run(|| health(&a)), near.run(|| health(&b))];
    until("one leads and the other follows", || settled(&both()));
    let all: Vec<_> = of_a.end().into_iter().chain(of_b.end()).collect();
    let faults = near.run(|| writer::faults(&net.database, &all));
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn a_leader_whose_cable_is_pulled_is_replaced() {
    a_leader_loses(Loss::Cut);
}

#[test]
fn a_leader_whose_packets_all_vanish_is_replaced() {
    a_leader_loses(Loss::Everything);
}

#[test]
fn a_leader_that_the_database_does_not_hear_is_replaced() {
    a_leader_loses(Loss::OfSecond);
}

#[test]
fn a_leader_that_does_not_hear_the_database_is_replaced() {
    a_leader_loses(Loss::OfFirst);
}

#[test]
fn a_standby_that_vanishes_while_it_waits_in_line_keeps_nobody_from_the_lead_and_comes_back() {
    let Some(net) = Net::new() else { return };
    let (near, far) = (&net.hosts.first, &net.hosts.second);
    let a = net.near("a", &STEADY);
    until_leads(near, &a);
    let b = net.far("b", &STEADY);
    follows(far, &b);
    let waits = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted";
    near.run(|| {
        let mut admin = net.database.connect();
        until("a place in line", || !admin.query(waits, &[]).expect("it answers").is_empty());
    });
    // The database goes on to keep its place, and gives it the lock: nobody is there to use it.
    net.hosts.lose(Loss::Everything);
    let c = net.near("c", &STEADY);
    follows(near, &c);
    let begun = Instant::now();
    a.process.kill();
    until_leads(near, &c);
    println!("the third one led after {:?}", begun.elapsed());
    net.hosts.mend();
    let both = || [far.run(|| health(&b)), near.run(|| health(&c))];
    until("one leads and the other follows", || settled(&both()));
    c.process.kill();
    until_leads(far, &b);
}
