//! One effect of each thing that is asked for, wherever a session with PostgreSQL is cut.
//!
//! A real server talks to a real PostgreSQL through a proxy that knows the messages. First it is written down which
//! messages each kind of transaction has, on a session that is new and on one that is not. Then, for each of these
//! messages, the session is cut before it is forwarded, after it was forwarded, after it was forwarded without the
//! server's knowledge, and, of an answer, in its middle, while clients start, complete, cancel and deploy, each under one
//! key until it is answered. At the end everything is compared with what was answered.
//!
//! As a test this goes through some of the positions, of each kind at least one; `scripts/long cuts` through all of them.
//! `CUTS=all` does the same, and `CUTS_SEED=n` repeats the choice of a run.

#[path = "../common/mod.rs"]
mod common;

mod check;
mod load;
mod outages;
mod position;

use common::{PATIENCE, Process, Server, folder, free_addr};
use load::Load;
use orbit_sdk::{Format, StartOptions};
use orbit_support::wire::{Ends, How, Proxy};
use orbit_support::{Database, Postgres};
use position::{Cutter, Hit, Position, SERVING, STARTING, Step};
use rustix::process::Signal;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long the positions are gone through in a test.
const SHARE: Duration = Duration::from_secs(8);
/// How long a position may keep one waiting in its turn.
const HIT_WITHIN: Duration = Duration::from_secs(10);
/// How long all those that did not come in their turn are waited for together at the end. Some messages come seldom: a
/// claim that gets a row needs a task that no worker was there to take when it was scheduled.
const LAST_CHANCE: Duration = Duration::from_secs(120);
/// Starts and stops in which a position is waited for: which sessions are opened while a server starts differs.
const STARTS: usize = 3;
/// A session that was cut without the server's knowledge ends so much later.
const KNOWN_AFTER: Duration = Duration::from_millis(30);

/// A database, and the proxy before it.
struct Place {
    database: Database,
    proxy: Proxy,
    cutter: Cutter,
}

impl Place {
    async fn new() -> Place {
        let database = tokio::task::spawn_blocking(|| Postgres::shared().fresh()).await.expect("PostgreSQL starts");
        let proxy = Proxy::before(database.port);
        let cutter = Cutter::default();
        proxy.rule(cutter.rule());
        Place { database, proxy, cutter }
    }

    fn url(&self) -> String {
        self.proxy.database(&self.database).url()
    }

    /// Cuts the sessions of a role between two transactions or wherever they are, so that new ones are opened.
    fn renew(&self, role: &str) {
        for connection in self.cutter.connections(role) {
            self.proxy.cut(connection, Ends::Both, How::Reset);
        }
    }

    /// Ends a session of whose end the server has not heard yet.
    async fn let_know(&self, connection: u64) {
        tokio::time::sleep(KNOWN_AFTER).await;
        self.proxy.cut(connection, Ends::Server, How::Finish);
    }
}

/// Which positions are gone through, and in which order.
struct Choice {
    all: bool,
    seed: u64,
}

impl Choice {
    fn of_this_run() -> Choice {
        let all = std::env::var("CUTS").is_ok_and(|value| value == "all");
        let given = std::env::var("CUTS_SEED").ok().and_then(|text| text.parse().ok());
        let seed = given.unwrap_or_else(|| u64::from(std::process::id()).wrapping_mul(2_654_435_761) % 1_000_000);
        println!("CUTS_SEED={seed}");
        Choice { all, seed }
    }

    /// The positions in an order that the seed says, those first that together have each kind and each of its places.
    fn order(&self, steps: &BTreeSet<Step>) -> (usize, Vec<Position>) {
        let mut positions: Vec<Position> = steps.iter().flat_map(Position::of).collect();
        let mut state = self.seed | 1;
        let mut draw = |below: usize| {
            // Knuth's multiplier; the high bits are the good ones.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).expect("31 bits") % below
        };
        for last in (1..positions.len()).rev() {
            positions.swap(last, draw(last + 1));
        }
        let mut had = BTreeSet::new();
        let (first, rest): (Vec<_>, Vec<_>) =
            positions.into_iter().partition(|position| had.insert((position.step.kind, position.place)));
        (first.len(), first.into_iter().chain(rest).collect())
    }
}

/// How many positions of each kind were cut, of how many.
#[derive(Default)]
struct Tally(BTreeMap<&'static str, (usize, usize)>);

impl Tally {
    fn of(positions: &[Position]) -> Tally {
        let mut tally = Tally::default();
        for position in positions {
            tally.0.entry(position.step.kind).or_default().1 += 1;
        }
        tally
    }

    fn cut(&mut self, position: &Position) {
        self.0.entry(position.step.kind).or_default().0 += 1;
    }

    fn tell(&self, what: &str) {
        let (cut, of) = self.0.values().fold((0, 0), |(cut, of), (c, o)| (cut + c, of + o));
        println!("{what}: {cut} of {of} positions");
        for (kind, (cut, of)) in &self.0 {
            println!("  {kind}: {cut} of {of}");
        }
    }
}

impl Tally {
    fn has(&self, kind: &str) -> bool {
        self.0.get(kind).is_some_and(|(cut, _)| *cut > 0)
    }

    /// Of those that did not come in their turn, what one waits for at the end: where all positions are gone through, each
    /// of them; of a share, those of kinds of which none was cut.
    fn owed(&self, choice: &Choice, missed: &[Position]) -> Vec<Position> {
        missed.iter().filter(|position| choice.all || !self.has(position.step.kind)).cloned().collect()
    }

    /// Every kind was cut, and where all positions are gone through, each of them. A share does not wait for what a busy
    /// machine brings about late: it says so.
    fn judge(&self, choice: &Choice, kinds: &[&str], missed: &[Position], cutter: &Cutter) {
        let missed: Vec<_> = missed.iter().map(|position| (position, cutter.count(&position.step))).collect();
        assert!(!choice.all || missed.is_empty(), "not cut, each with how often its message was seen: {missed:#?}");
        if !missed.is_empty() {
            println!("not cut in time, each with how often its message was seen: {missed:?}");
        }
        for kind in kinds {
            assert!(self.has(kind), "no {kind} was cut");
        }
    }
}

/// Waits until each of these kinds was seen.
async fn until_seen(place: &Place, kinds: &[&str], server: &mut Server) {
    let begun = Instant::now();
    loop {
        let seen = place.cutter.seen();
        let missing: Vec<_> = kinds.iter().filter(|kind| !seen.iter().any(|step| step.kind == **kind)).collect();
        if missing.is_empty() {
            return;
        }
        assert!(server.process.is_running(), "the server ended: {}", server.process.log());
        assert!(begun.elapsed() < PATIENCE, "no {missing:?} is seen");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_message_a_session_is_cut_at_each_request_has_one_effect() {
    let choice = Choice::of_this_run();
    let (folder, place) = (folder(), Place::new().await);
    let more = ["--check-interval", "0.05", "--session-timeout", "3", "--log-level", "info"];
    let mut server = Server::spawn_on(&place.url(), folder.path(), free_addr(), &more);
    server.ready().await;
    let mut load = Load::begin(&server.client(), &server.url()).await;

    // What there is to cut, on sessions that are new as well.
    until_seen(&place, SERVING, &mut server).await;
    for role in ["store", "election", "control", "requests"] {
        let before = place.cutter.connections(role);
        place.renew(role);
        let is_new = || place.cutter.connections(role).iter().any(|connection| !before.contains(connection));
        let begun = Instant::now();
        while !is_new() {
            assert!(begun.elapsed() < PATIENCE, "no new session for {role}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    let steps = place.cutter.seen().into_iter().filter(|step| SERVING.contains(&step.kind)).collect();
    let (least, positions) = choice.order(&steps);
    let mut tally = Tally::of(&positions);
    let begun = Instant::now();
    let mut missed = Vec::new();
    for (index, position) in positions.iter().enumerate() {
        if !choice.all && index >= least && begun.elapsed() > SHARE {
            break;
        }
        let how = if index % 2 == 0 { How::Reset } else { How::Finish };
        let hits = hits(&place, std::slice::from_ref(position), how, HIT_WITHIN).await;
        match hits.is_empty() {
            false => tally.cut(position),
            true => {
                println!("not in its turn, and seen {} times before: {position:?}", place.cutter.count(&position.step));
                missed.push(position.clone());
            }
        }
        assert!(server.process.is_running(), "the server ended after {position:?}: {}", server.process.log());
    }
    let owed = tally.owed(&choice, &missed);
    for position in hits(&place, &owed, How::Reset, LAST_CHANCE).await {
        tally.cut(&position);
        missed.retain(|one| *one != position);
    }
    assert!(server.process.is_running(), "the server ended: {}", server.process.log());
    tally.tell(&format!("while it served, in {:.0?}", begun.elapsed()));
    load.end().await;
    load.check(&server, &place.database).await;
    tally.judge(&choice, SERVING, &missed, &place.cutter);
}

/// Waits until a cut was made at each of these positions, or for so long; those that were hit. What only a new session
/// has is brought about by ending the old ones.
async fn hits(place: &Place, positions: &[Position], how: How, within: Duration) -> Vec<Position> {
    let is_new =
        |step: &Step| step.kind == "connect" || step.kind == "append, prepared" || b"PD1tTn".contains(&step.tag);
    let patience = Duration::from_millis(if positions.iter().all(|one| is_new(&one.step)) { 50 } else { 500 });
    let roles: BTreeSet<&str> = positions.iter().map(|one| one.step.role).collect();
    place.cutter.arm(positions, how);
    let begun = Instant::now();
    let mut renewed = begun;
    let mut hits = Vec::new();
    loop {
        // After the last look at the clock none is made any more that nobody looks for.
        let is_over = hits.len() == positions.len() || begun.elapsed() >= within;
        if is_over {
            place.cutter.disarm();
        }
        if let Some(Hit { position, connection }) = place.cutter.hit() {
            hits.push(position);
            place.let_know(connection).await;
            continue;
        }
        if is_over {
            return hits;
        }
        if renewed.elapsed() > patience * if renewed == begun { 1 } else { 8 } {
            for role in &roles {
                place.renew(if role.is_empty() { "requests" } else { role });
            }
            renewed = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Starts a server, again and again until it serves, as a supervisor does.
async fn until_serving(place: &Place, folder: &Path) -> Server {
    let begun = Instant::now();
    for number in 0.. {
        let mut command = common::orbit(&["server", "--addr", "127.0.0.1:0", "--check-interval", "0.05", "--db"]);
        command.arg(place.url());
        let mut process = Process::spawn(command, &folder.join(format!("start-{number}.log")));
        loop {
            if let Some(addr) = common::listening(&process.log()) {
                let mut server = Server { process, addr };
                let client = server.client();
                while server.process.is_running() {
                    if client.ready().await.is_ok_and(|ready| ready.ready) {
                        return server;
                    }
                    assert!(begun.elapsed() < PATIENCE, "it is not ready: {}", server.process.log());
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                break;
            }
            if !process.is_running() {
                break;
            }
            assert!(begun.elapsed() < PATIENCE, "it does not listen: {}", process.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert!(begun.elapsed() < PATIENCE, "no start ends well");
    }
    unreachable!("numbers do not end")
}

/// Stops a server; its exit status.
fn stop(mut server: Server) -> Option<i32> {
    server.process.signal(Signal::TERM);
    server.process.ended(PATIENCE).code()
}

#[tokio::test(flavor = "multi_thread")]
async fn whatever_message_a_start_or_a_stop_is_cut_at_the_next_one_serves_all_that_was_there() {
    let choice = Choice::of_this_run();
    let (folder, place) = (folder(), Place::new().await);
    let server = until_serving(&place, folder.path()).await;
    let client = server.client();
    let waiting = "name: Waiting\nversion: 1.0.0\nsteps: [{id: a, task: nobody.does}, {id: b, sleep: 1h}]\n";
    client.deploy(waiting, Format::Yaml).await.expect("it deploys");
    for n in 0..5 {
        let options = StartOptions { execution_id: Some(format!("waiting-{n}")), ..StartOptions::default() };
        client.start("Waiting", options).await.expect("it starts");
    }
    let before = client.execution("waiting-0").await.expect("it is there").last_seq;
    assert_eq!(stop(server), Some(0));
    // One start and one stop in peace say which messages there are; other sessions may or may not be opened in between.
    stop(until_serving(&place, folder.path()).await);
    let is_opened = |step: &Step| step.kind == "connect" && ["", "store", "election"].contains(&step.role);
    let wanted = |step: &Step| STARTING.contains(&step.kind) || is_opened(step);
    let steps = place.cutter.seen().into_iter().filter(wanted).collect();
    let (least, positions) = choice.order(&steps);
    let mut tally = Tally::of(&positions);
    let begun = Instant::now();
    let mut missed = Vec::new();
    for (index, position) in positions.iter().enumerate() {
        if !choice.all && index >= least && begun.elapsed() > SHARE {
            break;
        }
        let how = if index % 2 == 0 { How::Reset } else { How::Finish };
        place.cutter.arm(std::slice::from_ref(position), how);
        let mut hit = None;
        for _ in 0..STARTS {
            let server = until_serving(&place, folder.path()).await;
            assert_eq!(stop(server), Some(0), "after {position:?}");
            hit = place.cutter.hit();
            if hit.is_some() {
                break;
            }
        }
        match hit {
            Some(hit) => {
                tally.cut(position);
                place.let_know(hit.connection).await;
            }
            None => missed.push(position.clone()),
        }
    }
    place.cutter.disarm();
    tally.tell(&format!("starts and stops, in {:.0?}", begun.elapsed()));
    tally.judge(&choice, STARTING, &missed, &place.cutter);

    let server = until_serving(&place, folder.path()).await;
    let client = server.client();
    for n in 0..5 {
        let id = format!("waiting-{n}");
        let execution = client.execution(&id).await.expect("it is there");
        assert_eq!(execution.last_seq, before, "nothing was added to {id}, and nothing is missing");
        let cancelled = client.cancel(&id, None).await.expect("it is cancelled");
        assert!(cancelled.status().is_finished(), "{cancelled:?}");
    }
    assert_eq!(stop(server), Some(0));
}
