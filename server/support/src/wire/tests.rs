//! The proxy, before a real PostgreSQL.

use super::*;
use crate::postgres::Postgres;
use ::postgres::{Client, NoTls};
use std::io::{ErrorKind, Read, Write};

const PATIENCE: Duration = Duration::from_secs(60);

struct Place {
    database: Database,
    proxy: Proxy,
    admin: Client,
}

/// A table with a number in each row, reached through a proxy.
fn place() -> Place {
    let database = Postgres::shared().fresh();
    let mut admin = database.connect();
    admin.batch_execute("CREATE TABLE t (n int)").unwrap();
    Place { proxy: Proxy::before(database.port), database, admin }
}

impl Place {
    fn client(&self) -> Client {
        self.proxy.database(&self.database).connect()
    }

    fn rows(&mut self) -> i64 {
        self.admin.query_one("SELECT count(*) FROM t", &[]).unwrap().get(0)
    }

    fn until_rows(&mut self, count: i64) {
        until("the row is there", || self.rows() == count);
    }

    fn backends(&mut self, pid: i32) -> usize {
        self.admin.query("SELECT 1 FROM pg_stat_activity WHERE pid = $1", &[&pid]).unwrap().len()
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "it does not come about that {what}");
        thread::sleep(Duration::from_millis(2));
    }
}

fn pid(client: &mut Client) -> i32 {
    client.query_one("SELECT pg_backend_pid()", &[]).unwrap().get(0)
}

/// What the rule sees, written down.
fn record(proxy: &Proxy) -> Arc<Mutex<Vec<Message>>> {
    let seen = Arc::<Mutex<Vec<Message>>>::default();
    let kept = Arc::clone(&seen);
    proxy.rule(move |message| {
        kept.lock().unwrap().push(message.clone());
        Action::Pass
    });
    seen
}

#[test]
fn every_message_is_shown_with_its_session_and_its_statement() {
    let place = place();
    let seen = record(&place.proxy);
    let url = format!("{}?application_name=first", place.proxy.database(&place.database).url());
    let mut client = Client::connect(&url, NoTls).unwrap();
    let backend = pid(&mut client);
    client.batch_execute("SET application_name = 'second'").unwrap();
    let statement = client.prepare("SELECT n FROM t WHERE n = $1").unwrap();
    client.query(&statement, &[&1]).unwrap();
    let seen = seen.lock().unwrap().clone();
    assert!(seen.iter().map(|one| one.number).eq(0..seen.len() as u64), "{seen:?}");
    assert_eq!((seen[0].tag, &*seen[0].application), (STARTUP, "first"));
    let last = seen.iter().rfind(|one| one.runs()).unwrap();
    assert_eq!((last.tag, &*last.statement), (b'E', "SELECT n FROM t WHERE n = $1"));
    assert_eq!((&*last.application, last.backend), ("second", Some(backend)));
    let of_last = seen.iter().filter(|one| one.number > last.number);
    let shown: String = of_last.map(|one| char::from(one.tag)).collect();
    assert_eq!(shown, "S2CZ", "Sync of the client; bind complete, command complete and ready of the server");
}

#[test]
fn a_held_message_waits_until_it_is_let_go() {
    let mut place = place();
    let mut client = place.client();
    place.proxy.rule(|message| if message.is_from_client(b'Q') { Action::Hold } else { Action::Pass });
    let inserting = thread::spawn(move || client.batch_execute("INSERT INTO t VALUES (1)"));
    let held = place.proxy.next_held(PATIENCE, Message::runs).expect("it is held");
    assert_eq!(&*held.message.statement, "INSERT INTO t VALUES (1)");
    assert_eq!(place.rows(), 0);
    assert!(place.proxy.release(&held));
    inserting.join().unwrap().unwrap();
    assert_eq!(place.rows(), 1);
    assert!(place.proxy.held().is_empty() && !place.proxy.release(&held), "it is held no more");
}

#[test]
fn a_held_message_of_a_connection_that_is_cut_is_held_no_more() {
    let mut place = place();
    let mut client = place.client();
    place.proxy.rule(|message| if message.runs() { Action::Hold } else { Action::Pass });
    let inserting = thread::spawn(move || client.batch_execute("INSERT INTO t VALUES (1)"));
    let held = place.proxy.next_held(PATIENCE, Message::runs).expect("it is held");
    place.proxy.cut(held.message.connection, Ends::Both, How::Finish);
    inserting.join().unwrap().unwrap_err();
    until("nothing is held", || place.proxy.held().is_empty());
    assert!(place.proxy.connections().is_empty());
    assert_eq!(place.rows(), 0);
}

#[test]
fn a_statement_that_is_cut_before_it_arrives_is_not_run() {
    let mut place = place();
    for cut in [Cut::before(), Cut::inside()] {
        let mut client = place.client();
        let backend = pid(&mut client);
        place.proxy.rule(move |message| if message.runs() { Action::Cut(cut) } else { Action::Pass });
        client.batch_execute("INSERT INTO t VALUES (1)").unwrap_err();
        until("its backend is gone", || place.backends(backend) == 0);
        assert_eq!(place.rows(), 0, "{cut:?}");
        place.proxy.pass_all();
    }
}

#[test]
fn a_client_that_loses_the_reply_does_not_undo_what_was_done() {
    let mut place = place();
    // The server alone goes on after the commit has arrived.
    let mut client = place.client();
    let backend = pid(&mut client);
    client.batch_execute("BEGIN; INSERT INTO t VALUES (1)").unwrap();
    place.proxy.rule(|message| if message.is_commit() { Action::Cut(Cut::client_after()) } else { Action::Pass });
    client.batch_execute("COMMIT").unwrap_err();
    place.until_rows(1);
    assert_eq!(place.backends(backend), 1, "the server was told nothing");
    // The reply is torn.
    place.proxy.pass_all();
    let mut client = place.client();
    place.proxy.rule(|message| {
        let is_reply = message.from == Side::Server && message.tag == b'C';
        if is_reply { Action::Cut(Cut::inside()) } else { Action::Pass }
    });
    client.batch_execute("INSERT INTO t VALUES (2)").unwrap_err();
    place.until_rows(2);
}

#[test]
fn a_client_may_not_be_told_that_its_session_is_over() {
    let mut place = place();
    let mut client = place.client();
    let backend = pid(&mut client);
    let connection = place.proxy.connections()[0];
    place.proxy.cut(connection, Ends::Server, How::Finish);
    until("the session is over", || place.backends(backend) == 0);
    assert_eq!(place.proxy.connections(), [connection]);
    let (done, ended) = std::sync::mpsc::channel();
    thread::spawn(move || done.send(client.batch_execute("SELECT 1").is_err()));
    assert!(ended.recv_timeout(Duration::from_millis(100)).is_err(), "it waits");
    place.proxy.cut(connection, Ends::Client, How::Reset);
    assert!(ended.recv_timeout(PATIENCE).unwrap());
}

#[test]
fn nothing_comes_out_of_a_black_hole() {
    let mut place = place();
    let mut client = place.client();
    let backend = pid(&mut client);
    place.proxy.rule(|message| if message.runs() { Action::BlackHole } else { Action::Pass });
    let (done, ended) = std::sync::mpsc::channel();
    thread::spawn(move || done.send(client.batch_execute("INSERT INTO t VALUES (1)").is_err()));
    assert!(ended.recv_timeout(Duration::from_millis(100)).is_err(), "it waits");
    assert_eq!((place.rows(), place.backends(backend)), (0, 1));
    // Not even that the server ends the session.
    place.admin.execute("SELECT pg_terminate_backend($1)", &[&backend]).unwrap();
    until("the session is over", || place.backends(backend) == 0);
    assert!(ended.recv_timeout(Duration::from_millis(100)).is_err(), "it waits still");
    place.proxy.cut_all(Ends::Both, How::Reset);
    assert!(ended.recv_timeout(PATIENCE).unwrap());
}

#[test]
fn a_delayed_message_arrives_later_and_large_ones_arrive_whole() {
    let mut place = place();
    let mut client = place.client();
    let late = Duration::from_millis(150);
    place.proxy.rule(move |message| if message.is_from_client(b'Q') { Action::Delay(late) } else { Action::Pass });
    let begun = Instant::now();
    client.batch_execute("INSERT INTO t VALUES (1)").unwrap();
    assert!(begun.elapsed() >= late);
    assert_eq!(place.rows(), 1);
    let large = "x".repeat(3 << 20);
    let back: String = client.query_one("SELECT $1 || 'y'", &[&large]).unwrap().get(0);
    assert_eq!((back.len(), back.ends_with("xy")), (large.len() + 1, true));
}

#[test]
fn an_end_is_closed_as_it_was_asked_for() {
    let place = place();
    for (how, wanted) in [(How::Reset, Err(ErrorKind::ConnectionReset)), (How::Finish, Ok(0))] {
        let cut = Cut { at: At::Before, ends: Ends::Both, how };
        place.proxy.rule(move |_| Action::Cut(cut));
        let mut client = TcpStream::connect(("127.0.0.1", place.proxy.port())).unwrap();
        // A request for encryption is answered by the proxy; then comes a start.
        client.write_all(&[8u32.to_be_bytes(), 80_877_103u32.to_be_bytes()].concat()).unwrap();
        let mut answer = [0; 1];
        client.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"N");
        client.write_all(&[&9u32.to_be_bytes()[..], &196_608u32.to_be_bytes(), b"\0"].concat()).unwrap();
        assert_eq!(client.read(&mut answer).map_err(|error| error.kind()), wanted, "{how:?}");
    }
}

#[test]
fn a_statement_is_cancelled_through_the_proxy() {
    let place = place();
    let mut client = place.client();
    let token = client.cancel_token();
    let sleeping = thread::spawn(move || client.batch_execute("SELECT pg_sleep(60)"));
    let mut admin = place.database.connect();
    until("it sleeps", || {
        let sleeps = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep' AND datname = current_database()";
        !admin.query(sleeps, &[]).unwrap().is_empty()
    });
    token.cancel_query(NoTls).unwrap();
    let error = sleeping.join().unwrap().unwrap_err();
    assert_eq!(error.code().map(|code| code.code()), Some("57014"));
}

#[test]
fn what_goes_on_is_what_the_edit_makes_of_a_message() {
    let mut place = place();
    // One message becomes another, one becomes two, and the rest is left as it is.
    place.proxy.edit(|message| match &*message.statement {
        "INSERT INTO t VALUES (1)" if message.is_from_client(b'Q') => {
            Some(message.bytes.iter().map(|byte| if *byte == b'1' { b'7' } else { *byte }).collect())
        }
        "SELECT n FROM t" if message.is_from_client(b'E') => Some([message.bytes.as_slice(), b"H\0\0\0\x04"].concat()),
        _ => None,
    });
    let mut client = place.client();
    client.batch_execute("INSERT INTO t VALUES (1)").unwrap();
    client.batch_execute("INSERT INTO t VALUES (2)").unwrap();
    place.until_rows(2);
    let rows = client.query("SELECT n FROM t", &[]).unwrap();
    assert_eq!(rows.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [7, 2]);
}
