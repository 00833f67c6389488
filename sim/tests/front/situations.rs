//! Each situation by itself.

use super::check;
use super::raw::{Raw, get};
use super::server::{BODY_TIMEOUT, MAX_CONNECTIONS, SESSION_TIMEOUT, WRITE_TIMEOUT};
use super::stranger;
use super::trace::Mark;
use super::world::{Host, SERVERS, World};
use orbit_sdk::{Client, StartOptions};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);

/// Something that a host tells the test, or the test a host.
#[derive(Clone, Default)]
struct Flag(Arc<AtomicBool>);

impl Flag {
    fn raise(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_up(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    async fn raised(&self) {
        while !self.is_up() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Starts an execution, and writes down that it was acknowledged.
async fn start(host: &Host, client: &Client, id: &str) -> Result<(), orbit_sdk::Error> {
    let input = json!({"of": id});
    let options = StartOptions { execution_id: Some(id.into()), input: input.clone(), ..StartOptions::default() };
    client.start("Errand", options).await?;
    host.record(format!("{} started {id}", host.name));
    host.book.acknowledged(id, input);
    Ok(())
}

impl World {
    /// Goes on until something is so, which must be so in time.
    fn must(&mut self, what: &str, bound: Duration, is_so: impl FnMut(&mut World) -> bool) {
        let is_so = self.until(bound, is_so);
        self.holds();
        assert!(is_so, "{what} did not happen within {bound:?}\n{}", self.trace.lines().join("\n"));
    }

    /// Nothing is wrong so far.
    fn holds(&self) {
        if let Some(wrong) = self.trace.first_wrong() {
            panic!("{wrong}\n{}", self.trace.lines().join("\n"));
        }
    }

    /// Everything comes to its end, and everything holds.
    fn ends(mut self) {
        self.must("the end of every execution", 90 * SECOND, |world| world.all_ended());
        check::at_end(&self).unwrap_or_else(|wrong| panic!("{wrong}\n{}", self.trace.lines().join("\n")));
    }
}

fn other(host: &str) -> &'static str {
    SERVERS.into_iter().find(|server| *server != host).expect("there are two")
}

/// A client keeps its connection to a leader that is cut off from the database. It hears on that connection that the
/// server leads no more, and as soon as another one does, which; the SDK's client goes there with the call under way.
#[test]
fn a_connection_that_is_kept_to_an_old_leader_is_sent_to_the_new_one() {
    let mut world = World::new(1);
    let leader = world.leader();
    world.worker("w");
    let (sent_to, first, cut, second) = (Flag::default(), Flag::default(), Flag::default(), Flag::default());
    {
        let sent_to = sent_to.clone();
        world.host("s", move |host| {
            let sent_to = sent_to.clone();
            async move {
                let named = stranger::keep_alive(&host, leader, 60 * SECOND).await?;
                assert_eq!(named, Some(format!("http://{}:7233", other(leader))));
                sent_to.raise();
                Ok(())
            }
        });
    }
    {
        let (first, cut, second) = (first.clone(), cut.clone(), second.clone());
        world.client("c", move |host, client| {
            let (first, cut, second) = (first.clone(), cut.clone(), second.clone());
            async move {
                start(&host, &client, "before").await?;
                first.raise();
                cut.raised().await;
                // Without patience: the one call is answered by the one who leads.
                start(&host, &client, "after").await?;
                second.raise();
                Ok(())
            }
        });
    }
    world.must("the first start", 10 * SECOND, |_| first.is_up());
    world.record(format!("{leader} is cut off from the database"));
    world.database.cut(leader);
    world.must("the other's lead", 15 * SECOND, |world| world.leads() == Some(other(leader)));
    // Its row says that it leads, and it still recovers what was running.
    world.pass(SECOND);
    cut.raise();
    world.must("the second start", 5 * SECOND, |_| second.is_up());
    // It is behind: only the database can tell it who leads.
    world.database.mend(leader);
    world.must("the name of the new leader", 10 * SECOND, |_| sent_to.is_up());
    assert!(world.trace.count(Mark::KeptToOldLeader) > 0);
    assert_eq!(world.servers[leader].boots.load(Ordering::Relaxed), 1, "it is the same process");
    world.ends();
}

/// Half of a body comes, and then nothing, or the client goes away. That is answered in time, what comes late is no
/// request, nothing is started, and others are served meanwhile, though the bodies take all the room there is for them.
#[test]
fn half_a_body_is_answered_in_time_and_starts_nothing() {
    let mut world = World::new(2);
    let leader = world.leader();
    world.worker("w");
    let done = Arc::new(AtomicUsize::new(0));
    for (name, id) in [("s", "1"), ("t", "2"), ("u", "3")] {
        let done = done.clone();
        world.host(name, move |host| {
            let done = done.clone();
            async move {
                stranger::half_body(&host, leader, id).await?;
                stranger::vanish(&host, leader, id).await?;
                done.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        });
    }
    let started = Flag::default();
    {
        let started = started.clone();
        world.client("c", move |host, client| {
            let started = started.clone();
            async move {
                for id in ["1", "2", "3", "4"] {
                    start(&host, &client, id).await?;
                    tokio::time::sleep(SECOND).await;
                }
                started.raise();
                Ok(())
            }
        });
    }
    world.must("what is started beside", 8 * SECOND, |_| started.is_up());
    world.must("the end of those that send half", BODY_TIMEOUT + 10 * SECOND, |_| done.load(Ordering::Relaxed) == 3);
    assert_eq!(world.trace.count(Mark::HalfBody), 3);
    let open = world.servers[leader].open.clone();
    world.must("the end of their connections", 5 * SECOND, move |_| open.now() <= 2);
    world.ends();
}

/// More clients than there is room for ask for much and read nothing. The front keeps no more of them than it is told
/// to, cuts them off, and serves again; one that reads slowly all the time gets everything.
#[test]
fn slow_readers_are_cut_off_and_take_no_more_than_their_connections() {
    let mut world = World::new(3);
    let leader = world.leader();
    let steady = Flag::default();
    {
        let steady = steady.clone();
        world.host("steady", move |host| {
            let steady = steady.clone();
            async move {
                let said = stranger::steady_reader(&host, leader).await?.expect("who reads on is not cut off");
                assert_eq!(said.status, 200);
                steady.raise();
                Ok(())
            }
        });
    }
    world.pass(SECOND);
    let done = Arc::new(AtomicUsize::new(0));
    for name in ["s0", "s1", "s2", "s3"] {
        let done = done.clone();
        world.host(name, move |host| {
            let done = done.clone();
            async move {
                let mut all = tokio::task::JoinSet::new();
                for _ in 0..30 {
                    let host = host.clone();
                    // No more at once than wait in line to be accepted.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    all.spawn(async move { stranger::slow_reader(&host, leader).await });
                }
                while let Some(one) = all.join_next().await {
                    // Those that find no room are told so, or not even that.
                    let _ = one?;
                    done.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            }
        });
    }
    let open = world.servers[leader].open.clone();
    let full = open.clone();
    world.must("a full front", 2 * SECOND, move |_| full.now() >= MAX_CONNECTIONS);
    // Those for whom there is no room have been told so by then, and nobody is cut off yet.
    world.pass(3 * SECOND);
    assert_eq!(open.now(), MAX_CONNECTIONS);
    world.must("the end of the slow readers", WRITE_TIMEOUT + 10 * SECOND, |_| done.load(Ordering::Relaxed) == 120);
    let cut = world.trace.count(Mark::SlowReader);
    assert!(cut >= (MAX_CONNECTIONS - 4) as u64, "{cut} were cut off");
    world.must("the steady reader's end", 120 * SECOND, |_| steady.is_up());
    let gone = open.clone();
    world.must("an empty front", 40 * SECOND, move |_| gone.now() == 0);
    let served = Flag::default();
    {
        let served = served.clone();
        world.host("late", move |_| {
            let served = served.clone();
            async move {
                let said = Raw::connect(leader, 0).await?.ask(&get("/v1/health"), SECOND).await?;
                assert_eq!(said.status, 200);
                served.raise();
                Ok(())
            }
        });
    }
    world.must("an answer to one who comes after", 5 * SECOND, |_| served.is_up());
    world.ends();
}

/// The leader is killed, and the other one, and the first again: clients and workers that had connections to them come
/// back on new ones, calls that are patient end well, and every step succeeds once.
#[test]
fn clients_and_workers_come_back_after_their_servers_have_gone() {
    let mut world = World::new(4);
    world.worker("w");
    world.worker("v");
    let started = Arc::new(AtomicUsize::new(0));
    {
        let started = started.clone();
        world.client("c", move |host, client| {
            let (started, client) = (started.clone(), client.with_patience(30 * SECOND));
            async move {
                for id in 0..16 {
                    start(&host, &client, &id.to_string()).await?;
                    started.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(400)).await;
                }
                Ok(())
            }
        });
    }
    for round in 1..=3 {
        let leader = world.leader();
        let enough = started.clone();
        world.must("some starts", 60 * SECOND, move |_| enough.load(Ordering::Relaxed) >= 4 * round);
        world.crash(leader, 2 * SECOND);
        world.must("another leader", 30 * SECOND, move |world| world.leads().is_some_and(|now| now != leader));
    }
    world.must("every start", 90 * SECOND, |_| started.load(Ordering::Relaxed) == 16);
    assert!(world.trace.count(Mark::Reconnected) >= 2, "{:?}", world.trace.marks());
    world.ends();
}

/// A poll's answer with tasks is on its way for longer than the worker's session lives: the tasks go to another worker,
/// and what the first one brings late is not taken.
#[test]
fn a_poll_that_outlives_its_session_brings_nothing_that_counts() {
    let mut world = World::new(5);
    let leader = world.leader();
    let (polls, brought) = (Flag::default(), Arc::new(AtomicUsize::new(usize::MAX)));
    {
        let (polls, brought) = (polls.clone(), brought.clone());
        world.host("s", move |host| {
            let (polls, brought) = (polls.clone(), brought.clone());
            async move {
                polls.raise();
                brought.store(stranger::outlived_poll(&host, leader).await?, Ordering::Relaxed);
                Ok(())
            }
        });
    }
    {
        let polls = polls.clone();
        world.client("c", move |host, client| {
            let polls = polls.clone();
            async move {
                polls.raised().await;
                tokio::time::sleep(Duration::from_millis(500)).await;
                start(&host, &client, "one").await?;
                Ok(())
            }
        });
    }
    // The task is out with the one who hears nothing.
    world.pass(3 * SECOND);
    assert_eq!(world.book.all().len(), 1);
    world.worker("w");
    let heard = brought.clone();
    world.must("the late poll", SESSION_TIMEOUT + 15 * SECOND, move |_| heard.load(Ordering::Relaxed) != usize::MAX);
    assert_eq!(brought.load(Ordering::Relaxed), 1, "the poll was answered with the task");
    assert_eq!(world.trace.count(Mark::PollOutlived), 1);
    world.ends();
}

/// A worker's connection ends while its poll waits: what comes then goes to another worker at once, not after the
/// session's time-out.
#[test]
fn a_poll_whose_asker_has_gone_is_given_nothing() {
    let mut world = World::new(6);
    let leader = world.leader();
    let (gone, ended) = (Flag::default(), Flag::default());
    {
        let gone = gone.clone();
        world.host("s", move |host| {
            let gone = gone.clone();
            async move {
                let mut hand = stranger::register(&host, leader).await?.expect("it leads");
                hand.raw.send(&stranger::poll(&hand.session)).await?;
                tokio::time::sleep(Duration::from_millis(200)).await;
                drop(hand.raw);
                tokio::time::sleep(Duration::from_millis(100)).await;
                gone.raise();
                Ok(())
            }
        });
    }
    world.must("the end of the connection", 5 * SECOND, |_| gone.is_up());
    world.worker("w");
    {
        let ended = ended.clone();
        world.client("c", move |host, client| {
            let ended = ended.clone();
            async move {
                start(&host, &client, "one").await?;
                let execution = client.wait("one", 20 * SECOND).await?;
                assert!(execution.status().is_finished());
                ended.raise();
                Ok(())
            }
        });
    }
    world.must("the end of the execution", 2 * SECOND, |_| ended.is_up());
    world.ends();
}
