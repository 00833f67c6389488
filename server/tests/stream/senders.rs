//! Clients that send signals at a rate that a clock says, each again until it is answered.

use crate::ID;
use crate::common::PATIENCE;
use orbit_sdk::{Client, json};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Clients, each with a connection of its own.
const SENDERS: u64 = 64;
/// What `retry-after` says with every 429.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// Where no server answers.
const AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Of a sender's signals, one in so many is sent once more as soon as it is acknowledged, ...
const AGAIN_AT_ONCE: u64 = 20;
/// ... and one in so many after some more of them, by when other runs may have followed.
const AGAIN_LATER: u64 = 7;
const LATER: usize = 12;

/// How many signals are sent, numbered from 1, and how many of them a second.
#[derive(Clone, Copy)]
pub struct Offer {
    pub rate: u64,
    pub total: u64,
}

/// What came of it.
#[derive(Default)]
pub struct Sent {
    /// Signals that were acknowledged.
    pub acknowledged: u64,
    /// Signals that were sent again though they had been acknowledged.
    pub repeated: u64,
    /// Answers 429, and attempts that no server answered.
    pub refused: u64,
    pub unanswered: u64,
    /// From the first attempt to the acknowledgement, in order.
    pub latencies: Vec<Duration>,
    /// How long after its time the latest first attempt was made.
    pub late: Duration,
    /// From the first due time to the last acknowledgement.
    pub elapsed: Duration,
    /// Answers that must not be.
    pub faults: Vec<String>,
}

/// A signal of this offer.
#[derive(Clone, Copy)]
struct Tick(u64);

impl Tick {
    fn key(self) -> String {
        format!("tick-{}", self.0)
    }
}

/// Sends all of them.
pub async fn send(url: String, offer: Offer) -> Sent {
    let begun = Instant::now();
    let mut senders = JoinSet::new();
    for first in 1..=SENDERS {
        senders.spawn(send_share(url.clone(), offer, first, begun));
    }
    let mut sent = Sent::default();
    while let Some(share) = senders.join_next().await {
        sent.add(share.expect("no sender panics"));
    }
    sent.latencies.sort_unstable();
    sent.elapsed = begun.elapsed();
    sent
}

/// Every so manieth of the signals, each at its time or as soon after as the one before is acknowledged.
async fn send_share(url: String, offer: Offer, first: u64, begun: Instant) -> Sent {
    let client = Client::new(&url, None).expect("an address");
    let mut sent = Sent::default();
    let mut told: Vec<u64> = Vec::new();
    let ticks = || (first..=offer.total).step_by(usize::try_from(SENDERS).expect("few")).map(Tick);
    for (count, tick) in ticks().enumerate() {
        let due = begun + Duration::from_nanos((tick.0 - 1) * 1_000_000_000 / offer.rate);
        tokio::time::sleep_until(due.into()).await;
        let from = Instant::now();
        sent.late = sent.late.max(from.saturating_duration_since(due));
        let Some(seq) = sent.one(&client, tick).await else { return sent };
        sent.latencies.push(from.elapsed());
        sent.acknowledged += 1;
        told.push(seq);
        if tick.0 % AGAIN_AT_ONCE == 0 {
            sent.again(&client, tick, seq).await;
        }
        if tick.0 % AGAIN_LATER == 0
            && let Some(earlier) = count.checked_sub(LATER)
        {
            let tick = ticks().nth(earlier).expect("it was sent");
            sent.again(&client, tick, told[earlier]).await;
        }
    }
    sent
}

impl Sent {
    /// Until it is acknowledged; the number that was told. None where it was refused for good.
    async fn one(&mut self, client: &Client, tick: Tick) -> Option<u64> {
        let from = Instant::now();
        loop {
            let error = match client.signal(ID, "tick", json!({"n": tick.0}), Some(&tick.key())).await {
                Ok(signalled) => return Some(signalled.seq),
                Err(error) => error,
            };
            if !error.is_retryable() || from.elapsed() > PATIENCE {
                self.faults.push(format!("{}: {error}", tick.key()));
                return None;
            }
            if error.api().is_some_and(|api| api.status == 429) {
                self.refused += 1;
                tokio::time::sleep(RETRY_AFTER).await;
            } else {
                self.unanswered += 1;
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
    }

    /// A repetition, which is answered as the first was.
    async fn again(&mut self, client: &Client, tick: Tick, told: u64) {
        let seq = self.one(client, tick).await;
        self.repeated += 1;
        if seq.is_some_and(|seq| seq != told) {
            self.faults.push(format!("{} was told {told}, and then {seq:?}", tick.key()));
        }
    }

    fn add(&mut self, share: Sent) {
        self.acknowledged += share.acknowledged;
        self.repeated += share.repeated;
        self.refused += share.refused;
        self.unanswered += share.unanswered;
        self.latencies.extend(share.latencies);
        self.late = self.late.max(share.late);
        self.faults.extend(share.faults);
    }

    /// The latency that so many per cent are not above.
    pub fn percentile(&self, percent: usize) -> Duration {
        let index = (self.latencies.len() * percent).div_ceil(100).saturating_sub(1);
        self.latencies.get(index).copied().unwrap_or_default()
    }
}
