//! How long to wait before the next try: exponential, with full jitter.

use std::time::Duration;

/// The most that the first wait may take.
const FIRST: Duration = Duration::from_millis(200);
/// The most that any wait may take.
const LONGEST: Duration = Duration::from_secs(5);
/// The least that any wait takes, so that no loop spins.
const LEAST: Duration = Duration::from_millis(20);

/// The waits of one series of failures.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// The wait after one more failure: anything up to a bound that doubles from 0.2 s to 5 s, by a random number.
    pub(crate) fn next(&mut self, random: u64) -> Duration {
        let bound = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        let span = u64::try_from(bound.as_micros()).expect("a bound of seconds fits");
        Duration::from_micros(random % (span + 1)).max(LEAST)
    }

    /// Something worked: the next series begins anew.
    pub(crate) fn reset(&mut self) {
        self.failures = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_stay_between_the_least_and_a_bound_that_grows_to_five_seconds() {
        for failures in 0..40 {
            let bound = FIRST.saturating_mul(1 << failures.min(10)).min(LONGEST);
            for _ in 0..50 {
                let wait = Backoff { failures }.next(crate::random::number());
                assert!(wait >= LEAST && wait <= bound, "{failures} failures: {wait:?}");
            }
        }
    }

    #[test]
    fn a_success_makes_the_next_wait_short_again() {
        let mut backoff = Backoff { failures: 30 };
        backoff.reset();
        assert!(backoff.next(u64::MAX) <= FIRST);
    }
}
