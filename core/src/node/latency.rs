//! How long appends take, as a histogram, and when the last one was: for the metrics.

use crate::api::response::LatencyView;
use crate::time::Mono;
use std::time::Duration;

/// The upper bounds of the buckets, in microseconds. The last bucket has none.
const BOUNDS_US: [u64; 12] =
    [1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 10_000_000];

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Latency {
    buckets: [u64; BOUNDS_US.len() + 1],
    sum_us: u64,
    last: Option<Mono>,
}

impl Latency {
    /// An append committed at `now`, and took so long from its sending.
    pub fn took(&mut self, now: Mono, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(BOUNDS_US.len());
        self.buckets[bucket] += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        self.last = Some(now);
    }

    /// As the metrics show it: each bucket with all that are below.
    pub fn view(&self) -> LatencyView {
        let mut count = 0;
        let counted = self.buckets.iter().map(|one| {
            count += one;
            count
        });
        let counted: Vec<u64> = counted.collect();
        let buckets = BOUNDS_US.iter().copied().zip(counted).collect();
        LatencyView { buckets, count, sum_us: self.sum_us }
    }

    /// How long ago the last one committed, in milliseconds.
    pub fn last_ms(&self, now: Mono) -> Option<u64> {
        self.last.map(|last| u64::try_from(now.since(last).as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bucket_counts_what_is_below_its_bound_and_the_last_one_everything() {
        let mut latency = Latency::default();
        for ms in [1, 2, 2, 700, 60_000] {
            latency.took(Mono(0), Duration::from_millis(ms));
        }
        let view = latency.view();
        let of = |bound: u64| view.buckets.iter().find(|(us, _)| *us == bound).map(|(_, count)| *count);
        assert_eq!((of(1_000), of(2_500), of(500_000), of(1_000_000)), (Some(1), Some(3), Some(3), Some(4)));
        assert_eq!((of(10_000_000), view.count, view.sum_us), (Some(4), 5, 60_705_000));
        assert_eq!(latency.last_ms(Mono(2_000_000)), Some(2_000));
    }
}
