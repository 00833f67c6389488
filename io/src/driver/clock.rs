//! The clocks of this process.

use orbit_core::time::{Mono, Now, WallMs};
use rustix::time::{ClockId, clock_gettime};
use std::time::{SystemTime, UNIX_EPOCH};

/// A clock that goes on while the host is suspended: a lease that ran out meanwhile has run out (design, section 4).
#[cfg(any(target_os = "linux", target_os = "android", target_os = "fuchsia"))]
const MONOTONIC: ClockId = ClockId::Boottime;
/// On these systems the monotonic clock is the nearest that there is.
#[cfg(not(any(target_os = "linux", target_os = "android", target_os = "fuchsia")))]
const MONOTONIC: ClockId = ClockId::Monotonic;

/// What a node reads the time from.
pub trait Clock: Send + 'static {
    /// What the time is.
    fn now(&self) -> Now;
}

/// The clocks of this host.
#[derive(Clone, Copy, Debug)]
pub struct HostClock;

impl Clock for HostClock {
    fn now(&self) -> Now {
        now()
    }
}

/// What the time is.
pub fn now() -> Now {
    Now { mono: mono(), wall: wall() }
}

/// The monotonic clock, in microseconds.
pub fn mono() -> Mono {
    let time = clock_gettime(MONOTONIC);
    let seconds = u64::try_from(time.tv_sec).expect("the monotonic clock does not start below zero");
    let micros = u64::try_from(time.tv_nsec).expect("nanoseconds of a second are not negative") / 1_000;
    Mono(seconds * 1_000_000 + micros)
}

/// The wall clock, in milliseconds since 1970; negative before it.
pub fn wall() -> WallMs {
    let millis = |d: std::time::Duration| i64::try_from(d.as_millis()).unwrap_or(i64::MAX);
    WallMs(match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => millis(after),
        Err(before) => -millis(before.duration()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_monotonic_clock_counts_microseconds_as_the_systems_own_clock_does() {
        let (first, start) = (mono(), std::time::Instant::now());
        while start.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        let passed = mono().since(first);
        // The upper bound leaves room for a busy machine; a clock in other units is off by a factor of 1,000.
        assert!(passed >= Duration::from_millis(20) && passed < Duration::from_secs(10), "{passed:?}");
    }

    #[test]
    fn the_wall_clock_is_past_the_year_2025() {
        assert!(wall().0 > 1_735_689_600_000);
    }
}
