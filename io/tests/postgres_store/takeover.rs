//! A server that stands still between its check and its write, while another takes over: at each message, of each
//! transaction that writes.

use crate::kind::{self, Place};
use crate::support::*;
use ::postgres::Client;
use orbit_core::id::{CallKey, Incarnation, Term};
use orbit_core::node::Connection;
use orbit_core::store::append::*;
use orbit_core::store::outcome::Reply;
use orbit_core::store::statement::{ClaimTasks, LockState, PutDefinition, PutResult, RequeueStrays};
use orbit_core::store::transaction::{Transaction, Verdict};
use orbit_io::driver::Backend;
use orbit_support::Postgres;
use orbit_support::wire::{Action, Cut, Ends, Held, How, Proxy};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// A store that reaches its database through a proxy; what tests do behind its back goes past it.
struct Proxied {
    store: Running,
    proxy: Proxy,
    fence: Fence,
}

impl Proxied {
    /// A server that may write, with what its writes need: the running `a`, and a task that waits in the queue.
    fn led() -> Proxied {
        let place = Place { database: Postgres::shared().fresh() };
        let proxy = Proxy::before(place.database.port);
        let attached = kind::open(&Place { database: proxy.database(&place.database) });
        let mut store = Running { attached, calls: 0, place };
        let fence = store.campaign(1);
        let mut create = group(1, vec![start("a", 1)]);
        create.tasks = vec![
            TaskChange::Insert(task("t", "a", "pay", 1)),
            // Claimed, and nobody knows of it: what a sweep puts back.
            TaskChange::Insert(task("stray", "a", "stray", 1)),
        ];
        store.written(fence, vec![create]);
        store.claim(fence, 99, vec![want(&["stray"], &[99])]);
        Proxied { store, proxy, fence }
    }

    /// Sends a transaction, and holds the first message of this type: what it is made of was prepared before.
    fn send_and_hold(&mut self, kind: usize, tag: u8) -> (Held, Write) {
        let (prepare, write) = (writes(other_fence()).remove(kind), writes(self.fence).remove(kind));
        // Of another server, it is refused.
        self.store.done(prepare.connection, prepare.transaction);
        let mut done = false;
        self.proxy.rule(move |message| {
            let meant = !done && message.is_from_client(tag);
            done |= meant;
            if meant { Action::Hold } else { Action::Pass }
        });
        self.store.send(write.connection, write.transaction.clone());
        let held = self.proxy.next_held(PATIENCE, |_| true);
        (held.unwrap_or_else(|| panic!("{} is not held", write.name)), write)
    }
}

/// Execute: nothing of the statement has been run.
const EXECUTE: u8 = b'E';
/// Sync: the statement has been run, and its transaction waits to be committed.
const SYNC: u8 = b'S';

/// A transaction that writes.
struct Write {
    name: &'static str,
    connection: Connection,
    transaction: Transaction,
    /// What a server is told whose fence has moved.
    refused: Verdict,
}

fn writes(fence: Fence) -> Vec<Write> {
    let fenced = || GroupOutcome::Rejected(Rejection::Fenced { held: fence.term, current: Term(fence.term.0 + 1) });
    let append = |name, group: Group| Write {
        name,
        connection: Connection::Store,
        transaction: Transaction::Append(Append::under(fence, vec![group])),
        refused: Verdict::Append(vec![fenced()]),
    };
    let with = |mut group: Group, change| {
        group.tasks = vec![change];
        group
    };
    let definition = definition();
    let key = CallKey(Uuid::from_u128(77));
    let gone = TaskChange::Delete { task: task_id("t"), expect: TaskState::Queued };
    vec![
        append("a start", group(2, vec![start("b", 2)])),
        append("an event", group(2, vec![go_on("a", 1, 1)])),
        append("an end", with(group(2, vec![end("a", 1)]), gone)),
        append("a queued task", with(group(2, vec![go_on("a", 1, 1)]), TaskChange::Insert(task("u", "a", "pay", 2)))),
        Write {
            name: "a claim",
            connection: Connection::Store,
            transaction: Transaction::Claim(ClaimTasks { key, fence, wants: vec![want(&["pay"], &[7])] }),
            refused: Verdict::Claim(Vec::new()),
        },
        Write {
            name: "a sweep",
            connection: Connection::Store,
            transaction: Transaction::Sweep(RequeueStrays {
                fence,
                keys: vec![CallKey(Uuid::from_u128(99))],
                tokens: Vec::new(),
            }),
            refused: Verdict::Sweep(Vec::new()),
        },
        Write {
            name: "a deployment",
            connection: Connection::Requests,
            transaction: Transaction::Deploy(Box::new(PutDefinition { key, fence, definition })),
            refused: Verdict::Deploy(PutResult::Fenced(Term(fence.term.0 + 1))),
        },
        Write {
            name: "a release",
            connection: Connection::Store,
            transaction: Transaction::Release(fence),
            refused: Verdict::Release(false),
        },
    ]
}

const RAISE: &str = "UPDATE orbit_cluster SET term = term + 1, incarnation = '00000000-0000-0000-0000-000000000002', leader_node = 'other'";

/// Every row of every table, as text.
fn everything(client: &mut Client) -> Vec<String> {
    let tables = [
        "orbit_cluster",
        "execution_events",
        "workflow_executions",
        "execution_labels",
        "workflow_definitions",
        "orbit_owners",
        "orbit_tasks",
        "orbit_workers",
    ];
    let mut all = Vec::new();
    for table in tables {
        let rows = client.query(&format!("SELECT t::text FROM {table} t ORDER BY 1"), &[]).unwrap();
        all.extend(rows.iter().map(|row| format!("{table} {}", row.get::<_, String>(0))));
    }
    all
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_write_that_arrives_after_a_takeover_is_refused_and_changes_nothing() {
    let kinds = writes(Proxied::led().fence).len();
    for kind in 0..kinds {
        let mut place = Proxied::led();
        let (held, write) = place.send_and_hold(kind, EXECUTE);
        let mut other = place.store.place.database.connect();
        other.execute(RAISE, &[]).unwrap();
        let before = everything(&mut other);
        place.proxy.release(&held);
        assert_eq!(place.store.next_reply().1, Reply::Done(write.refused), "{}", write.name);
        assert_eq!(everything(&mut other), before, "{}", write.name);
    }
}

#[test]
fn a_takeover_waits_for_a_write_that_stands_before_its_commit_and_comes_after_it() {
    let kinds = writes(Proxied::led().fence).len();
    for kind in 0..kinds {
        let mut place = Proxied::led();
        let (held, write) = place.send_and_hold(kind, SYNC);
        let mut admin = place.store.place.database.connect();
        let backend = held.message.backend.expect("the session has begun");
        // The statement has been run, and the session waits for what it is told next.
        let ran = "SELECT 1 FROM pg_stat_activity WHERE pid = $1 AND state = 'active' AND wait_event = 'ClientRead'";
        until("the write has run", || !admin.query(ran, &[&backend]).unwrap().is_empty());
        let database = place.store.place.database.clone();
        let taking_over = std::thread::spawn(move || {
            let mut other = database.connect();
            other.batch_execute("SET application_name = 'other'").unwrap();
            other.execute(RAISE, &[]).unwrap();
        });
        let waits = "SELECT 1 FROM pg_stat_activity WHERE application_name = 'other' AND datname = current_database()
            AND pg_blocking_pids(pid) = ARRAY[$1::int]";
        until("the takeover waits for the write", || !admin.query(waits, &[&backend]).unwrap().is_empty());
        place.proxy.release(&held);
        let Reply::Done(verdict) = place.store.next_reply().1 else { panic!("{} is done", write.name) };
        assert_ne!(verdict, write.refused, "{}", write.name);
        taking_over.join().unwrap();
        let term: i64 = admin.query_one("SELECT term FROM orbit_cluster", &[]).unwrap().get(0);
        assert_eq!(term, 2, "{}", write.name);
    }
}

#[test]
fn a_writer_that_is_lost_before_its_commit_holds_nothing_up_and_has_written_nothing() {
    let mut place = Proxied::led();
    let (held, _) = place.send_and_hold(0, SYNC);
    let mut other = place.store.place.database.connect();
    let rows = |client: &mut Client| -> Vec<String> {
        everything(client).into_iter().filter(|row| !row.starts_with("orbit_cluster")).collect()
    };
    let before = rows(&mut other);
    place.proxy.cut(held.message.connection, Ends::Both, How::Reset);
    assert_eq!(place.store.next_reply().1, Reply::Unknown);
    other.execute(RAISE, &[]).unwrap();
    assert_eq!(rows(&mut other), before);
}

#[test]
fn a_candidate_that_lost_its_session_between_lock_and_raise_raises_nothing() {
    let mut place = Proxied::led();
    place.proxy.rule(|message| {
        let raises = message.is_from_client(b'E') && message.statement.contains("SET term = term + 1");
        if raises { Action::Cut(Cut::before()) } else { Action::Pass }
    });
    let (mode, incarnation) = (orbit_core::cluster::Mode::Single, Incarnation(Uuid::from_u128(5)));
    let campaign = orbit_core::store::transaction::Campaign::new(mode, incarnation, holder());
    let reply = place.store.reply(Connection::Election, Transaction::Campaign(campaign));
    assert!(matches!(reply, Reply::Failed(_)), "nothing was committed: {reply:?}");
    let mut other = place.store.place.database.connect();
    let term: i64 = other.query_one("SELECT term FROM orbit_cluster", &[]).unwrap().get(0);
    assert_eq!(term, 1);
    // The lock went with the session, and is taken by the next one.
    place.proxy.pass_all();
    until("the lock is free", || {
        place.store.reply(Connection::Election, Transaction::Hold) == Reply::Done(Verdict::Hold(LockState::Mine))
    });
    assert_eq!(place.store.check().fence, place.fence);
}

#[test]
fn sockets_that_died_silently_are_replaced_and_new_ones_are_fine() {
    let mut place = Proxied::led();
    for _ in 0..3 {
        assert_eq!(place.store.done(Connection::Requests, Transaction::Workers), Verdict::Workers(Vec::new()));
    }
    // Nobody is told: each of them looks as if it were alive.
    for connection in place.proxy.connections() {
        place.proxy.cut(connection, Ends::Server, How::Finish);
    }
    let hanging = Arc::<Mutex<BTreeSet<String>>>::default();
    let seen = Arc::clone(&hanging);
    let dead = place.proxy.connections();
    place.proxy.rule(move |message| {
        if dead.contains(&message.connection) {
            seen.lock().unwrap().insert(message.application.to_string());
        }
        Action::Pass
    });
    let sent: Vec<_> = (0..4).map(|_| place.store.send(Connection::Requests, Transaction::Workers)).collect();
    let write = Append::under(place.fence, vec![group(2, vec![start("b", 1)])]);
    let hung = place.store.send(Connection::Store, Transaction::Append(write));
    until("a call of each kind is sent to nobody", || hanging.lock().unwrap().len() == 2);
    // As the node does when no answer comes in time. Those that were answered are not affected.
    for call in sent {
        place.store.attached.backend.write_off(Connection::Requests, call);
    }
    place.store.attached.backend.write_off(Connection::Store, hung);
    let mut fresh = place.store.send(Connection::Requests, Transaction::Workers);
    loop {
        let (call, reply) = place.store.next_reply();
        if call == fresh {
            if reply == Reply::Done(Verdict::Workers(Vec::new())) {
                break;
            }
            fresh = place.store.send(Connection::Requests, Transaction::Workers);
        }
    }
    let grow = Append::under(place.fence, vec![group(3, vec![go_on("a", 1, 1)])]);
    let sent = place.store.send(Connection::Store, Transaction::Append(grow));
    let reply = std::iter::repeat_with(|| place.store.next_reply()).find(|(call, _)| *call == sent).unwrap().1;
    assert_eq!(reply, Reply::Done(Verdict::Append(vec![GroupOutcome::Written])));
}
