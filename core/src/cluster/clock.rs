//! The cluster clock: the database's clock, as a node estimates it from the round trips of its checks (design,
//! section 4; protocols, 27).
//!
//! A sample says that the database's clock showed `read` at some moment between `sent` and `received` of the node's own
//! monotonic clock. So the offset between the two clocks lies between `read - received` and `read - sent`; the estimate
//! is the lower bound, so that a timer fires when even that is past it. A bound that is kept ages: the node's own clock
//! may run a little fast.
//!
//! Steps: the clock follows a step back at once, and a step forward of up to 5 s at once. A larger step forward counts
//! only after 10 s of samples that agree with it, since what fires because of it cannot be taken back.

use crate::time::{ClusterMs, Mono};
use std::time::Duration;

/// A forward step up to this is believed at once.
const BELIEVED_AT_ONCE_MS: i64 = 5_000;
/// A larger one must be seen for so long.
const AGREEING_FOR: Duration = Duration::from_secs(10);
/// Samples that differ by less agree with each other.
const AGREEMENT_MS: i64 = 1_000;
/// By how much a node's clock may run faster than the database's: a two-thousandth, several times what hosts do.
const DRIFT: i64 = 2_000;
/// A difference below this is no step but the noise of round trips and the drift of clocks.
const STEP_MS: i64 = 250;

/// A node's estimate of the database's clock.
#[derive(Clone, Debug, Default)]
pub struct ClusterClock {
    /// Cluster time minus monotonic time, in microseconds: the lower bound, and when it was taken.
    bound: Option<(i64, Mono)>,
    /// A large step forward that is not believed yet: its offset in microseconds, and since when it has been seen.
    doubted: Option<(i64, Mono)>,
}

/// What a sample changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observed {
    /// The estimate follows smoothly.
    Smooth,
    /// The clock stepped by so many milliseconds.
    Stepped { by_ms: i64 },
    /// The clock may have stepped by so many milliseconds: not believed yet.
    Doubted { by_ms: i64 },
}

impl ClusterClock {
    /// Takes a sample in.
    pub fn observe(&mut self, sent: Mono, received: Mono, read: ClusterMs) -> Observed {
        // What is read is rounded down to a millisecond.
        let read = read.0.saturating_mul(1000);
        let low = read.saturating_sub(micros(received));
        let high = read.saturating_add(1000).saturating_sub(micros(sent));
        let Some((offset, taken)) = self.bound else {
            self.bound = Some((low, received));
            return Observed::Smooth;
        };
        // The old estimate is inside what this sample allows: keep the better (later) lower bound.
        let aged = offset.saturating_sub(micros(Mono(received.0.saturating_sub(taken.0))) / DRIFT + 1);
        if (low..=high).contains(&aged) {
            self.bound = Some((aged, received));
            self.doubted = None;
            return Observed::Smooth;
        }
        let by_ms = (low - offset) / 1000;
        if by_ms > BELIEVED_AT_ONCE_MS {
            match self.doubted {
                Some((doubted, since)) if (low - doubted).abs() <= AGREEMENT_MS * 1000 => {
                    if received.since(since) < AGREEING_FOR {
                        return Observed::Doubted { by_ms };
                    }
                }
                _ => {
                    self.doubted = Some((low, received));
                    return Observed::Doubted { by_ms };
                }
            }
        }
        self.doubted = None;
        self.bound = Some((low, received));
        if by_ms.abs() >= STEP_MS { Observed::Stepped { by_ms } } else { Observed::Smooth }
    }

    /// Whether a sample has been taken.
    pub fn is_known(&self) -> bool {
        self.bound.is_some()
    }

    /// Cluster time now: the database's clock shows at least this. Zero before the first sample.
    pub fn now(&self, mono: Mono) -> ClusterMs {
        ClusterMs(self.bound.map_or(0, |(offset, _)| offset.saturating_add(micros(mono)).div_euclid(1000)))
    }

    /// When [`ClusterClock::now`] will reach `time`, if the clock does not step.
    pub fn when(&self, time: ClusterMs) -> Mono {
        let micros = time.0.saturating_mul(1000).saturating_sub(self.bound.map_or(0, |(offset, _)| offset));
        Mono(u64::try_from(micros).unwrap_or(0))
    }
}

fn micros(mono: Mono) -> i64 {
    i64::try_from(mono.0).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono(ms * 1000)
    }

    #[test]
    fn the_estimate_is_never_ahead_of_the_database() {
        let mut clock = ClusterClock::default();
        clock.observe(at(100), at(140), ClusterMs(1_000_120));
        assert_eq!(clock.now(at(140)), ClusterMs(1_000_120));
        assert_eq!(clock.now(at(240)), ClusterMs(1_000_220));
        assert_eq!(clock.when(ClusterMs(1_000_220)), at(240));
    }

    #[test]
    fn a_nodes_clock_that_runs_fast_does_not_carry_the_estimate_ahead_of_the_database() {
        let mut clock = ClusterClock::default();
        // 400 parts per million fast, and round trips so wide that they contradict no old estimate.
        for second in 0..600_u64 {
            let fast = |micros: u64| Mono(micros + micros * 400 / 1_000_000);
            let read = second * 1_000_000;
            clock.observe(fast(read), fast(read + 200_000), ClusterMs(read as i64 / 1000));
            let later = read + 999_000;
            assert!(clock.now(fast(later)) <= ClusterMs(later as i64 / 1000 + 1), "second {second}");
        }
    }

    #[test]
    fn a_step_back_is_followed_at_once() {
        let mut clock = ClusterClock::default();
        clock.observe(at(0), at(0), ClusterMs(1_000_000));
        assert_eq!(clock.observe(at(1000), at(1000), ClusterMs(901_000)), Observed::Stepped { by_ms: -100_000 });
        assert_eq!(clock.now(at(1000)), ClusterMs(901_000));
    }

    #[test]
    fn a_large_step_forward_counts_after_ten_seconds_of_agreement() {
        let mut clock = ClusterClock::default();
        clock.observe(at(0), at(0), ClusterMs(1_000_000));
        for second in 1..=10 {
            let read = ClusterMs(1_060_000 + second * 1000);
            let mono = at(second as u64 * 1000);
            assert_eq!(clock.observe(mono, mono, read), Observed::Doubted { by_ms: 60_000 });
            assert_eq!(clock.now(mono), ClusterMs(1_000_000 + second * 1000));
        }
        let seen = clock.observe(at(11_000), at(11_000), ClusterMs(1_071_000));
        assert_eq!(seen, Observed::Stepped { by_ms: 60_000 });
    }

    #[test]
    fn a_step_forward_that_goes_away_again_leaves_nothing() {
        let mut clock = ClusterClock::default();
        clock.observe(at(0), at(0), ClusterMs(0));
        clock.observe(at(1000), at(1000), ClusterMs(3_600_000));
        assert_eq!(clock.observe(at(2000), at(2000), ClusterMs(2000)), Observed::Smooth);
        assert_eq!(clock.observe(at(12_000), at(12_000), ClusterMs(3_612_000)), Observed::Doubted { by_ms: 3_600_000 });
    }

    #[test]
    fn a_small_step_forward_counts_at_once() {
        let mut clock = ClusterClock::default();
        clock.observe(at(0), at(0), ClusterMs(0));
        assert_eq!(clock.observe(at(1000), at(1000), ClusterMs(5000)), Observed::Stepped { by_ms: 4000 });
    }
}
