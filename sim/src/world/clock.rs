//! The clocks of the world: true time, which nobody in it can read, and those that its processes read.

use orbit_core::time::{ClusterMs, Mono, Now, WallMs};
use serde::{Deserialize, Serialize};

/// True time, in microseconds since the world began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Time(pub u64);

impl Time {
    /// So many microseconds later.
    #[must_use]
    pub fn plus_us(self, us: u64) -> Time {
        Time(self.0 + us)
    }

    /// So many milliseconds later.
    #[must_use]
    pub fn plus_ms(self, ms: u64) -> Time {
        Time(self.0 + ms * 1_000)
    }

    /// Milliseconds from `earlier` to here; 0 if `earlier` is later.
    pub fn since_ms(self, earlier: Time) -> u64 {
        self.0.saturating_sub(earlier.0) / 1_000
    }
}

/// The clocks of one process: a monotonic one, with its own origin and a rate that is a little off, and a wall clock.
#[derive(Clone, Copy, Debug)]
pub struct ProcessClock {
    born: Time,
    origin: u64,
    /// Parts per million that it runs fast.
    ppm: u64,
    /// So many milliseconds the wall clock of its host is off that of the database's.
    off_ms: i64,
}

impl ProcessClock {
    /// The clock of a process that begins now.
    pub fn new(born: Time, origin: u64, ppm: u64) -> ProcessClock {
        ProcessClock { born, origin, ppm, off_ms: 0 }
    }

    /// The same, of a process on another host than the database.
    #[must_use]
    pub fn off_by(self, off_ms: i64) -> ProcessClock {
        ProcessClock { off_ms, ..self }
    }

    /// What it shows.
    pub fn read(&self, now: Time) -> Mono {
        let elapsed = u128::from(now.0 - self.born.0) * u128::from(1_000_000 + self.ppm) / 1_000_000;
        Mono(self.origin + u64::try_from(elapsed).expect("a run is short"))
    }

    /// The first moment of true time, not before `now`, at which it shows at least `at`.
    pub fn when(&self, at: Mono, now: Time) -> Time {
        let ahead = u128::from(at.0.saturating_sub(self.origin)) * 1_000_000;
        let elapsed = ahead.div_ceil(u128::from(1_000_000 + self.ppm));
        let time = Time(self.born.0.saturating_add(u64::try_from(elapsed).unwrap_or(u64::MAX / 2)));
        time.max(now)
    }
}

/// The wall clock of the database's host: it jumps. Those of servers on other hosts jump with it, and are off it.
#[derive(Clone, Copy, Debug)]
pub struct HostClock {
    epoch_ms: i64,
    steps_ms: i64,
}

impl HostClock {
    /// A clock that starts in the spring of 2026.
    pub fn new() -> HostClock {
        HostClock { epoch_ms: 1_775_000_000_000, steps_ms: 0 }
    }

    /// Steps it.
    pub fn step(&mut self, by_ms: i64) {
        self.steps_ms += by_ms;
    }

    /// What the database in it shows.
    pub fn read(&self, now: Time) -> ClusterMs {
        ClusterMs(self.epoch_ms + self.steps_ms + i64::try_from(now.0 / 1_000).expect("a run is short"))
    }

    /// What a process is told of the time.
    pub fn now(&self, process: &ProcessClock, now: Time) -> Now {
        Now { mono: process.read(now), wall: WallMs(self.read(now).0 + process.off_ms) }
    }
}

impl Default for HostClock {
    fn default() -> HostClock {
        HostClock::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_reaches_a_deadline_early_and_never_shows_less_then() {
        let clock = ProcessClock::new(Time(500), 77, 20_000);
        for at in [77, 78, 1_000, 999_999, 1_000_003, 123_456_789] {
            let when = clock.when(Mono(at), Time(500));
            assert!(clock.read(when) >= Mono(at), "{at}");
            assert!(when == Time(500) || clock.read(Time(when.0 - 1)) < Mono(at), "{at}");
        }
        assert!(clock.when(Mono(1_000_077), Time(500)) < Time(1_000_500));
        assert_eq!(clock.when(Mono(78), Time(9_000)), Time(9_000), "what is past is now");
    }
}
