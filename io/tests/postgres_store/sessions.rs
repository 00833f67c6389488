//! Sessions: what they are set to, who may campaign, and what happens when one hangs, ends, or can write no more.

use crate::kind::{self, Place};
use crate::support::*;
use orbit_core::node::{CallId, Connection};
use orbit_core::store::append::*;
use orbit_core::store::outcome::{FailureKind, Reply};
use orbit_core::store::statement::LockState;
use orbit_core::store::transaction::{CampaignVerdict, Transaction, Verdict};
use orbit_io::driver::Backend;
use orbit_io::postgres::{Address, Migrate, OpenError, PostgresStore, Timeouts};
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The backends of Orbit's sessions of this role.
fn backends(store: &Running, role: &str) -> Vec<i32> {
    let sql = "SELECT pid FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = 'orbit:node-a:' || $1";
    store.place.database.connect().query(sql, &[&role]).unwrap().iter().map(|row| row.get(0)).collect()
}

fn terminate(store: &Running, role: &str) {
    let gone = backends(store, role);
    assert!(!gone.is_empty(), "there is a session");
    let mut client = store.place.database.connect();
    for pid in &gone {
        client.execute("SELECT pg_terminate_backend($1)", &[pid]).unwrap();
    }
    until("the backends end", || backends(store, role).iter().all(|pid| !gone.contains(pid)));
}

fn append(fence: Fence, groups: Vec<Group>) -> Transaction {
    Transaction::Append(Append::under(fence, groups))
}

/// Sends it until it is settled, as the node does.
fn settled(store: &mut Running, connection: Connection, transaction: &Transaction) -> Verdict {
    let begun = Instant::now();
    loop {
        match store.reply(connection, transaction.clone()) {
            Reply::Done(verdict) => return verdict,
            other => assert!(begun.elapsed() < PATIENCE, "{other:?}"),
        }
    }
}

#[test]
fn every_session_says_whose_it_is_and_what_for() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    store.check();
    store.load("a");
    for role in ["store", "election", "control", "requests"] {
        assert_eq!(backends(&store, role).len(), 1, "{role}");
    }
}

#[test]
fn requests_share_at_most_four_connections() {
    let mut store = Running::fresh();
    for _ in 0..40 {
        store.send(Connection::Requests, Transaction::Workers);
    }
    for _ in 0..40 {
        assert_eq!(store.next_reply().1, Reply::Done(Verdict::Workers(Vec::new())));
    }
    assert!((1..=4).contains(&backends(&store, "requests").len()));
}

#[test]
fn a_second_server_is_told_who_holds_the_lock_and_gets_it_when_the_first_one_is_gone() {
    let (store, _) = Running::led();
    let mut second = Running::on(store.place.clone());
    assert_eq!(second.try_campaign(2), CampaignVerdict::Held { holder: Some(holder()) });
    // A look at the lock does not take it either.
    assert_eq!(second.done(Connection::Election, Transaction::Hold), Verdict::Hold(LockState::Others));
    drop(store);
    // PostgreSQL notices it in a moment.
    until("the first one's session ends", || backends(&second, "election").len() == 1);
    let fence = second.campaign(2);
    assert_eq!(second.done(Connection::Election, Transaction::Hold), Verdict::Hold(LockState::Mine));
    second.written(fence, vec![group(1, vec![start("a", 1)])]);
}

#[test]
fn the_lock_goes_with_its_session_and_is_taken_again_if_nobody_else_did() {
    let (mut store, _) = Running::led();
    terminate(&store, "election");
    assert_eq!(settled(&mut store, Connection::Election, &Transaction::Hold), Verdict::Hold(LockState::Mine));
    terminate(&store, "election");
    let mut second = Running::on(store.place.clone());
    second.campaign(2);
    assert_eq!(settled(&mut store, Connection::Election, &Transaction::Hold), Verdict::Hold(LockState::Others));
}

#[test]
fn an_election_session_that_is_silent_for_too_long_loses_its_lock() {
    let place = Place::fresh();
    let timeouts = Timeouts { election_idle: Duration::from_millis(100), ..Timeouts::default() };
    let mut store = Running { attached: kind::open_with(&place, timeouts), calls: 0, place };
    store.campaign(1);
    until("the session is ended", || backends(&store, "election").is_empty());
    let mut second = Running::on(store.place.clone());
    second.campaign(2);
}

#[test]
fn a_frozen_backend_costs_its_connection_and_what_it_does_late_changes_nothing() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    let [frozen] = backends(&store, "store")[..] else { panic!("one session") };
    let pid = Pid::from_raw(frozen).unwrap();
    kill_process(pid, Signal::STOP).unwrap();
    let grow = append(fence, vec![group(2, vec![go_on("a", 1, 1)])]);
    let hung = store.send(Connection::Store, grow.clone());
    let behind = store.send(Connection::Store, append(fence, vec![group(3, vec![start("b", 1)])]));
    // Others are not held up.
    assert_eq!(last_of(&load_past(&mut store, hung, behind)), Some(1));
    store.attached.backend.write_off(Connection::Store, hung);
    // What waited behind it goes to a new connection, and so does the repetition.
    let written = || Reply::Done(Verdict::Append(vec![GroupOutcome::Written]));
    assert_eq!(store.next_reply(), (behind, written()));
    let again = store.send(Connection::Store, grow);
    assert_eq!(store.next_reply(), (again, written()));
    kill_process(pid, Signal::CONT).unwrap();
    // Its reply comes late, whatever it is, and its session ends.
    assert_eq!(store.next_reply().0, hung);
    until("the old session ends", || !backends(&store, "store").contains(&frozen));
    assert_eq!(store.load("a").events.len(), 2);
}

/// Reads `a` while two calls of the store hang.
fn load_past(store: &mut Running, hung: CallId, behind: CallId) -> orbit_core::store::statement::LoadedExecution {
    let loaded = store.load("a");
    assert!(loaded.execution.as_str() == "a" && hung != behind);
    loaded
}

#[test]
fn frozen_requests_cost_their_pool_and_no_more() {
    let mut store = Running::fresh();
    assert_eq!(store.done(Connection::Requests, Transaction::Workers), Verdict::Workers(Vec::new()));
    let frozen: Vec<Pid> = backends(&store, "requests").into_iter().map(|pid| Pid::from_raw(pid).unwrap()).collect();
    for pid in &frozen {
        kill_process(*pid, Signal::STOP).unwrap();
    }
    // As many as there are frozen connections hang; the pool makes others for the rest.
    let sent: Vec<CallId> = (0..8).map(|_| store.send(Connection::Requests, Transaction::Workers)).collect();
    let answered: Vec<CallId> = (0..8 - frozen.len()).map(|_| store.next_reply().0).collect();
    let hung = sent.into_iter().find(|call| !answered.contains(call)).unwrap();
    store.attached.backend.write_off(Connection::Requests, hung);
    for _ in 0..8 {
        assert_eq!(store.done(Connection::Requests, Transaction::Workers), Verdict::Workers(Vec::new()));
    }
    for pid in frozen {
        kill_process(pid, Signal::CONT).unwrap();
    }
}

#[test]
fn every_session_comes_back_after_it_was_terminated() {
    let (mut store, fence) = Running::led();
    store.written(fence, vec![group(1, vec![start("a", 1)])]);
    store.check();
    store.load("a");
    for role in ["store", "control", "requests"] {
        terminate(&store, role);
    }
    let grow = append(fence, vec![group(2, vec![go_on("a", 1, 1)])]);
    assert_eq!(settled(&mut store, Connection::Store, &grow), Verdict::Append(vec![GroupOutcome::Written]));
    let Verdict::Check(row) = settled(&mut store, Connection::Control, &Transaction::Check) else { panic!() };
    assert_eq!(row.fence, fence);
    let workers = settled(&mut store, Connection::Requests, &Transaction::Workers);
    assert_eq!(workers, Verdict::Workers(Vec::new()));
    assert_eq!(store.load("a").events.len(), 2);
}

#[test]
fn a_server_that_takes_no_writes_is_not_trusted_and_used_again_once_it_does() {
    let (mut store, fence) = Running::led();
    let name = store.place.database.name.clone();
    store.place.meddle(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
    let failure = match Address::parse(&store.place.database.url())
        .map(|address| PostgresStore::open(address, "node-b", Timeouts::default(), Migrate::Auto))
    {
        Ok(Err(failure @ OpenError::Unfit { .. })) => failure.to_string(),
        _ => panic!("it was opened"),
    };
    assert!(failure.contains("takes no writes"), "{failure}");
    terminate(&store, "store");
    let create = append(fence, vec![group(1, vec![start("a", 1)])]);
    // The first one may have been sent on the connection that was ended.
    let reply = std::iter::repeat_with(|| store.reply(Connection::Store, create.clone()))
        .find(|reply| !matches!(reply, Reply::Unknown))
        .unwrap();
    let Reply::Failed(failure) = reply else { panic!("{reply:?}") };
    assert_eq!(failure.kind, FailureKind::Unwritable, "{failure:?}");
    let mut client = store.place.database.connect();
    client.batch_execute("SET default_transaction_read_only = off").unwrap();
    client.batch_execute(&format!("ALTER DATABASE {name} RESET default_transaction_read_only")).unwrap();
    assert_eq!(settled(&mut store, Connection::Store, &create), Verdict::Append(vec![GroupOutcome::Written]));
}

#[test]
fn a_full_server_fails_calls_as_never_sent_and_serves_them_when_there_is_room() {
    let place = Place::fresh();
    place.meddle(
        "DO $$ BEGIN CREATE ROLE narrow LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$;
         ALTER ROLE narrow CONNECTION LIMIT -1; GRANT ALL ON SCHEMA public TO narrow",
    );
    let address = Address::parse(&place.database.url_as("narrow")).unwrap();
    let attached = PostgresStore::open(address, "node-a", Timeouts::default(), Migrate::Auto).unwrap().attach();
    let mut store = Running { attached, calls: 0, place };
    store.place.meddle("ALTER ROLE narrow CONNECTION LIMIT 1");
    let reply = store.reply(Connection::Control, Transaction::Check);
    let Reply::Failed(failure) = reply else { panic!("{reply:?}") };
    assert_eq!(failure.kind, FailureKind::Reconnect, "{failure:?}");
    assert!(failure.message.contains("too many connections"), "{failure:?}");
    let reply = store.reply(Connection::Requests, Transaction::Workers);
    let Reply::Failed(failure) = reply else { panic!("{reply:?}") };
    assert!(failure.message.contains("too many connections"), "the pool says why: {failure:?}");
    store.place.meddle("ALTER ROLE narrow CONNECTION LIMIT -1");
    store.check();
    assert_eq!(settled(&mut store, Connection::Requests, &Transaction::Workers), Verdict::Workers(Vec::new()));
}

/// Listens, and answers nobody: not even that there is somebody.
fn black_hole() -> (std::net::SocketAddr, Vec<std::net::TcpStream>, rustix::fd::OwnedFd) {
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
    let listener = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&listener, &std::net::SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    listen(&listener, 0).unwrap();
    let addr = std::net::SocketAddr::try_from(getsockname(&listener).unwrap()).unwrap();
    // Until its queue is full: whoever comes then is passed over.
    let mut queue = Vec::new();
    while let Ok(one) = std::net::TcpStream::connect_timeout(&addr, Duration::from_millis(200)) {
        queue.push(one);
        assert!(queue.len() < 100, "its queue does not get full");
    }
    (addr, queue, listener)
}

#[test]
fn of_several_addresses_one_that_swallows_everything_costs_a_second_of_each_connection() {
    let place = Place::fresh();
    let (hole, _queue, _listener) = black_hole();
    let url = format!("postgres://postgres@{hole},127.0.0.1:{}/{}", place.database.port, place.database.name);
    let address = Address::parse(&url).unwrap();
    let begun = Instant::now();
    let attached = PostgresStore::open(address, "node-a", Timeouts::default(), Migrate::Auto).unwrap().attach();
    assert!(begun.elapsed() >= Duration::from_secs(1), "the first address was tried");
    let mut store = Running { attached, calls: 0, place };
    store.campaign(1);
    // Less than the look at the fence is waited for.
    let begun = Instant::now();
    store.check();
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}
