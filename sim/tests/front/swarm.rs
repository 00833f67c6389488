//! Many seeds, each with its own faults: everybody does everything at once, then the network heals and everything must
//! come to its end.

use super::check;
use super::server::SESSION_TIMEOUT;
use super::stranger;
use super::trace::Mark;
use super::world::{Host, SERVERS, World};
use orbit_sdk::StartOptions;
use orbit_sim::rng::{Dice, Ratio, Stream};
use serde_json::json;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const WORKERS: [&str; 2] = ["v", "w"];
const CLIENTS: [&str; 2] = ["c", "d"];
const STRANGERS: [&str; 2] = ["s", "t"];

/// How many executions each client starts.
const STARTS: u64 = 6;
/// How long faults happen.
const CHAOS: Duration = Duration::from_secs(25);
/// How long everything may take to come to its end after that: connections that lost something in between are noticed by
/// their deadlines, of up to 30 s each.
const HEALING: Duration = Duration::from_secs(150);

/// What came of a seed.
struct Ended {
    wrong: Option<String>,
    marks: BTreeMap<Mark, u64>,
    lines: Vec<String>,
}

fn run(seed: u64) -> Ended {
    let mut world = World::new(seed);
    let finished = Arc::new(AtomicUsize::new(0));
    for name in WORKERS {
        world.worker(name);
    }
    for name in CLIENTS {
        let finished = finished.clone();
        world.client(name, move |host, client| {
            let finished = finished.clone();
            async move {
                starts(&host, &client).await;
                finished.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        });
    }
    for name in STRANGERS {
        world.host(name, |host| async move {
            roams(&host).await;
            Ok(())
        });
    }
    let mut nemesis =
        Nemesis { dice: Dice::new(seed, Stream::Faults), broken: Vec::new(), next: Duration::from_secs(3) };
    world.until(CHAOS, |world| {
        nemesis.goes_on(world);
        false
    });
    nemesis.heals(&mut world);
    let everything = |world: &mut World| finished.load(Ordering::Relaxed) == CLIENTS.len() && world.all_ended();
    if !world.until(HEALING, everything) {
        let (clients, ended) = (finished.load(Ordering::Relaxed), world.all_ended());
        world.trace.wrong(format!("{HEALING:?} after the healing {clients} clients are done; all ended: {ended}"));
    }
    let wrong = world.trace.first_wrong().or_else(|| check::at_end(&world).err());
    Ended { wrong, marks: world.trace.marks(), lines: world.trace.lines() }
}

/// A client of the SDK: it starts what it starts, and waits for some of it.
async fn starts(host: &Host, client: &orbit_sdk::Client) {
    let mut dice = host.dice(Stream::Clients);
    let patient = client.clone().with_patience(CHAOS + HEALING);
    for number in 0..STARTS {
        tokio::time::sleep(Duration::from_millis(dice.between([200, 4_000]))).await;
        let id = format!("{}-{number}", host.name);
        let input = json!({"of": id, "much": "x".repeat(usize::try_from(dice.below(4_000)).expect("little"))});
        let options = StartOptions { execution_id: Some(id.clone()), input: input.clone(), ..StartOptions::default() };
        match patient.start("Errand", options).await {
            Ok(started) => {
                host.record(format!("{} started {id}: {}", host.name, started.created));
                host.book.acknowledged(&id, input);
            }
            Err(error) => host.trace.wrong(format!("{} could not start {id}: {error}", host.name)),
        }
        if dice.chance(Ratio::new(1, 2)) {
            let waited = patient.wait(&id, Duration::from_secs(15)).await;
            host.record(format!(
                "{} waited for {id}: {:?}",
                host.name,
                waited.map(|execution| execution.status().clone())
            ));
        }
    }
}

/// A stranger: one thing after the other that no SDK would do.
async fn roams(host: &Host) {
    let mut dice = host.dice(Stream::Talk);
    for number in 0_u64.. {
        if turmoil::sim_elapsed().expect("within the simulation") > CHAOS {
            break;
        }
        tokio::time::sleep(Duration::from_millis(dice.between([50, 1_000]))).await;
        let server = *dice.pick(&SERVERS);
        let id = format!("{}-{number}", host.name);
        let done = match dice.weighted(&[3, 2, 1, 1, 2, 3]) {
            0 => stranger::keep_alive(host, server, Duration::from_secs(8)).await.map(drop),
            1 => stranger::half_body(host, server, &id).await,
            2 => stranger::vanish(host, server, &id).await,
            3 => stranger::half_answer(host, server).await,
            4 => stranger::slow_reader(host, server).await,
            _ => stranger::outlived_poll(host, server).await.map(drop),
        };
        if let Err(error) = done {
            host.record(format!("{} was broken off: {error}", host.name));
        }
    }
}

/// What breaks, and when it is whole again.
struct Nemesis {
    dice: Dice,
    broken: Vec<(Duration, Broken)>,
    next: Duration,
}

#[derive(Clone, Copy, Debug)]
enum Broken {
    /// A server is cut off from the database.
    Database(&'static str),
    /// What goes between two hosts waits.
    Held(&'static str, &'static str),
    /// What goes between two hosts is lost.
    Cut(&'static str, &'static str),
    /// What goes from one to the other is lost.
    OneWay(&'static str, &'static str),
    /// What goes between two hosts is slow.
    Slow(&'static str, &'static str),
}

impl Broken {
    /// The server and the host between which it is; none where it is behind the server, which answers in time all the
    /// same.
    fn way(self) -> Option<(&'static str, &'static str)> {
        match self {
            Broken::Database(_) => None,
            Broken::Held(server, peer) | Broken::Cut(server, peer) => Some((server, peer)),
            Broken::OneWay(server, peer) | Broken::Slow(server, peer) => Some((server, peer)),
        }
    }
}

impl Nemesis {
    fn goes_on(&mut self, world: &mut World) {
        let now = world.now();
        let (over, broken) = self.broken.drain(..).partition(|(until, _)| *until <= now);
        self.broken = broken;
        for (_, broken) in over {
            mend(world, broken);
        }
        if now >= self.next {
            self.next = now + Duration::from_millis(self.dice.between([500, 4_000]));
            self.strikes(world);
        }
    }

    fn strikes(&mut self, world: &mut World) {
        let server = *self.dice.pick(&SERVERS);
        // The one who leads is struck more often.
        let server = world.leads().filter(|_| self.dice.chance(Ratio::new(1, 2))).unwrap_or(server);
        let peers: Vec<&'static str> = [WORKERS, CLIENTS, STRANGERS].concat();
        let peer = *self.dice.pick(&peers);
        let ms = self.dice.between([300, 7_000]);
        let broken = match self.dice.weighted(&[2, 1, 2, 3, 1, 1, 1]) {
            0 => return world.crash(server, Duration::from_millis(ms / 2)),
            1 => return world.stop(server),
            2 => Broken::Database(server),
            3 => Broken::Held(server, peer),
            4 => Broken::Cut(server, peer),
            5 => Broken::OneWay(server, peer),
            _ => Broken::Slow(server, peer),
        };
        world.record(format!("{broken:?} for {ms} ms"));
        if let Some((server, peer)) = broken.way() {
            world.weather.begins(server, peer);
        }
        match broken {
            Broken::Database(server) => world.database.cut(server),
            Broken::Held(server, peer) => world.sim.hold(server, peer),
            Broken::Cut(server, peer) => world.sim.partition(server, peer),
            Broken::OneWay(server, peer) => world.sim.partition_oneway(server, peer),
            Broken::Slow(server, peer) => world.sim.set_link_max_message_latency(server, peer, SESSION_TIMEOUT / 8),
        }
        self.broken.push((world.now() + Duration::from_millis(ms), broken));
    }

    fn heals(&mut self, world: &mut World) {
        world.record("everything is whole");
        for (_, broken) in std::mem::take(&mut self.broken) {
            mend(world, broken);
        }
    }
}

fn mend(world: &mut World, broken: Broken) {
    world.record(format!("no more {broken:?}"));
    if let Some((server, peer)) = broken.way() {
        world.weather.ends(server, peer);
    }
    match broken {
        Broken::Database(server) => world.database.mend(server),
        Broken::Held(server, peer) => world.sim.release(server, peer),
        Broken::Cut(server, peer) => world.sim.repair(server, peer),
        Broken::OneWay(server, peer) => world.sim.repair_oneway(server, peer),
        Broken::Slow(server, peer) => world.sim.set_link_max_message_latency(server, peer, Duration::from_millis(20)),
    }
}

fn seeds() -> Range<u64> {
    if let Ok(seed) = std::env::var("FRONT_SEED") {
        let seed = seed.parse().expect("FRONT_SEED is a number");
        return seed..seed + 1;
    }
    let Ok(range) = std::env::var("FRONT_SEEDS") else { return 0..50 };
    let (from, to) = range.split_once("..").expect("FRONT_SEEDS is two numbers with .. between them");
    from.parse().expect("a number")..to.parse().expect("a number")
}

#[test]
fn many_seeds_hold() {
    let seeds = seeds();
    let mut marks = BTreeMap::<Mark, u64>::new();
    for seed in seeds.clone() {
        let ended = run(seed);
        if std::env::var_os("FRONT_TRACE").is_some() {
            println!("{}", ended.lines.join("\n"));
        }
        if let Some(wrong) = ended.wrong {
            let last: Vec<String> = ended.lines.into_iter().rev().take(40).collect();
            let last: Vec<String> = last.into_iter().rev().collect();
            panic!(
                "seed {seed}: {wrong}\nFRONT_SEED={seed} FRONT_TRACE=1 cargo test -p sim --test front many\n…\n{}",
                last.join("\n")
            );
        }
        for (mark, count) in ended.marks {
            *marks.entry(mark).or_default() += count;
        }
    }
    println!("{} seeds: {marks:?}", seeds.end - seeds.start);
    if seeds.end - seeds.start >= 50 {
        let never: Vec<Mark> = Mark::ALL.into_iter().filter(|mark| !marks.contains_key(mark)).collect();
        assert!(never.is_empty(), "never in {} seeds: {never:?}", seeds.end - seeds.start);
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    for seed in [3, 11] {
        let (first, second) = (run(seed), run(seed));
        assert!(first.lines.len() > 100, "little happened");
        for (one, other) in first.lines.iter().zip(&second.lines) {
            assert_eq!(one, other, "seed {seed}");
        }
        assert_eq!(first.lines.len(), second.lines.len(), "seed {seed}");
    }
}
