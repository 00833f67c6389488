//! Time as `core` knows it: handed in, never read.
//!
//! Three clocks that must not be mixed (design, section 4), hence three types: the process's monotonic clock
//! ([`Mono`]) for leases, time-outs and back-off; the wall clock ([`WallMs`]) for logs alone; and the cluster clock
//! ([`ClusterMs`]) for timers, deadlines and the recorded time of events.

use serde::{Deserialize, Serialize};
use std::ops::{Add, Sub};
use std::time::Duration;

/// A moment of the process's monotonic clock, in microseconds from an origin that means nothing.
///
/// The clock goes on while the host is suspended (`CLOCK_BOOTTIME`), so that a lease that ran out in a suspended
/// host has run out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct Mono(pub u64);

impl Mono {
    /// The time from `earlier` to `self`; zero if `earlier` is later.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Mono {
    type Output = Mono;
    fn add(self, d: Duration) -> Mono {
        Mono(self.0.saturating_add(u64::try_from(d.as_micros()).unwrap_or(u64::MAX)))
    }
}

/// A reading of the process's wall clock, in milliseconds since 1970. Shown to people, never decided from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct WallMs(pub i64);

/// A moment of the cluster clock (the database's clock as estimated by a node), in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, Default)]
#[serde(transparent)]
pub struct ClusterMs(pub i64);

impl Add<Duration> for ClusterMs {
    type Output = ClusterMs;
    fn add(self, d: Duration) -> ClusterMs {
        ClusterMs(self.0.saturating_add(i64::try_from(d.as_millis()).unwrap_or(i64::MAX)))
    }
}

impl Sub<ClusterMs> for ClusterMs {
    type Output = Duration;
    /// The time from `earlier` to `self`; zero if `earlier` is later.
    fn sub(self, earlier: ClusterMs) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// What the driver knows of time when it gives an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Now {
    /// The process's monotonic clock.
    pub mono: Mono,
    /// The process's wall clock.
    pub wall: WallMs,
}
