//! How much memory a server takes meanwhile, what it counts, and a table of everything.

use crate::Stage;
use crate::runs::Runs;
use crate::senders::Sent;
use orbit_core::execution::rollover::MAX_REMEMBERED_BYTES;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often the memory is read.
const EVERY: Duration = Duration::from_millis(250);
/// How much more there may be in the last third of the time than in the one before. Were the events of earlier runs kept,
/// a minute would bring about twice as much.
const MAX_GROWTH_KIB: u64 = 8 << 10;
/// The history of a run, the senders' keys that it knows and an append of it are up to a megabyte each, as text. In memory
/// each of them is several times as large, and is there as values, as bytes to be sent, and as what the allocator keeps.
const ROOM_KIB: u64 = 16 * 3 * (MAX_REMEMBERED_BYTES as u64 >> 10);
/// Processor time is told in ticks of a hundredth of a second.
const TICK: Duration = Duration::from_millis(10);

/// Reads the resident memory of a server until it is told to end.
pub struct Watch {
    pid: Arc<AtomicU32>,
    end: Arc<AtomicBool>,
    samples: Arc<Mutex<Vec<u64>>>,
    thread: Option<JoinHandle<()>>,
    restarted: bool,
}

impl Watch {
    pub fn begin(pid: u32) -> Watch {
        let mut watch = Watch {
            pid: Arc::new(AtomicU32::new(pid)),
            end: Arc::default(),
            samples: Arc::default(),
            thread: None,
            restarted: false,
        };
        let (pid, end, samples) = (watch.pid.clone(), watch.end.clone(), watch.samples.clone());
        watch.thread = Some(std::thread::spawn(move || {
            let mut next = Instant::now();
            while !end.load(Ordering::Relaxed) {
                if let Some(kib) = resident_kib(pid.load(Ordering::Relaxed)) {
                    samples.lock().expect("no panic").push(kib);
                }
                next += EVERY;
                std::thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        }));
        watch
    }

    /// Another process took its place.
    pub fn follow(&mut self, pid: u32) {
        self.restarted = true;
        self.pid.store(pid, Ordering::Relaxed);
    }

    pub fn end(&mut self) -> Memory {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
        let kib = std::mem::take(&mut *self.samples.lock().expect("no panic"));
        Memory { kib, restarted: self.restarted }
    }
}

/// `VmRSS` of a process, which may have ended.
fn resident_kib(pid: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// User and system time of a process so far.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in brackets, may hold spaces; the two are fields 14 and 15.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let ticks: u32 = fields.skip(11).take(2).filter_map(|field| field.parse::<u32>().ok()).sum();
    TICK * ticks
}

/// The resident memory over time, in KiB.
pub struct Memory {
    kib: Vec<u64>,
    /// Another process took the server's place meanwhile, and began with less.
    restarted: bool,
}

impl Memory {
    /// The mean of the second of three parts, and of the last: the first is the warm-up.
    fn parts(&self) -> [u64; 2] {
        let third = self.kib.len() / 3;
        let mean = |part: &[u64]| part.iter().sum::<u64>() / (part.len() as u64).max(1);
        [mean(&self.kib[third..2 * third]), mean(&self.kib[2 * third..])]
    }

    fn largest(&self) -> u64 {
        self.kib.iter().copied().max().unwrap_or_default()
    }

    /// It is bounded, and after the warm-up it does not grow.
    pub fn check(&self) {
        let bound = self.kib.first().expect("it was read") + ROOM_KIB;
        assert!(self.largest() <= bound, "{} KiB are more than {bound}", self.largest());
        let [before, last] = self.parts();
        assert!(self.restarted || last <= before + MAX_GROWTH_KIB, "it grew from {before} to {last} KiB");
    }
}

/// What was counted at one time.
pub struct Counters {
    at: Instant,
    server: BTreeMap<String, f64>,
    processor: Duration,
    /// Bytes of write-ahead log.
    wal: u64,
}

impl Counters {
    pub async fn of(stage: &Stage) -> Counters {
        let text = stage.client().metrics().await.expect("the server tells its metrics");
        let numbers = text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
        let numbers = numbers.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?)));
        let database = stage.database.clone();
        let wal = crate::aside(move || {
            let lsn = "SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint";
            database.connect().query_one(lsn, &[]).expect("the database answers").get::<_, i64>(0)
        });
        let wal = u64::try_from(wal.await).expect("a position");
        let processor = processor_time(stage.server.process.id());
        Counters { at: Instant::now(), server: numbers.collect(), processor, wal }
    }

    fn number(&self, name: &str) -> f64 {
        self.server.get(&format!("orbit_{name}_total")).copied().unwrap_or_default()
    }
}

/// Prints what came of it. A server that was killed took what it had counted with it.
pub fn tell(sent: &Sent, runs: &Runs, memory: &Memory, before: &Counters, after: &Counters) {
    let signals = sent.acknowledged as f64;
    let counted = |name: &str| after.number(name) - before.number(name);
    let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
    let mib = |kib: u64| format!("{:.1} MiB", kib as f64 / 1024.0);
    let [middle, last] = memory.parts();
    let mut rows = vec![
        ("acknowledged a second", format!("{:.0}", signals / sent.elapsed.as_secs_f64())),
        ("acknowledged after, p50 / p99", format!("{} / {}", ms(sent.percentile(50)), ms(sent.percentile(99)))),
        ("latest beginning after its time", ms(sent.late)),
        ("repeated, and answered as before", sent.repeated.to_string()),
        ("answers 429 / attempts without an answer", format!("{} / {}", sent.refused, sent.unanswered)),
        ("runs", runs.count.to_string()),
        ("events of the longest history", format!("{} ({} KiB)", runs.longest, runs.largest / 1024)),
        ("events a signal", format!("{:.2}", runs.events as f64 / signals)),
        ("signals carried over", runs.carried.to_string()),
        ("keys carried over", format!("{} ({} KiB)", runs.keys, runs.keys_bytes / 1024)),
        ("write-ahead log a signal", format!("{:.1} KiB", (after.wal - before.wal) as f64 / 1024.0 / signals)),
        ("memory, second / last third", format!("{} / {}", mib(middle), mib(last))),
        ("memory, most", mib(memory.largest())),
        ("first page of the first / the last run", runs.first_page.map(ms).join(" / ")),
    ];
    if !memory.restarted {
        let appends = counted("appends").max(1.0);
        let processor = after.processor.saturating_sub(before.processor).as_secs_f64() * 1e3;
        let (loaded, parked) = (counted("executions_loaded"), counted("executions_parked"));
        rows.extend([
            ("appends a second", format!("{:.0}", appends / (after.at - before.at).as_secs_f64())),
            ("signals an append", format!("{:.1}", signals / appends)),
            ("histories read / executions that left memory", format!("{loaded} / {parked}")),
            ("server's processor time a signal", format!("{:.2} ms", processor / signals)),
        ]);
    }
    for (what, figure) in rows {
        println!("  {what:<46}{figure}");
    }
}
