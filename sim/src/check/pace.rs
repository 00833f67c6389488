//! Nothing spins: no loop runs faster than its smallest period, whatever fails (scenarios, 9).

use super::{Checked, ensure};
use crate::world::clock::Time;

const CHECK: &str = "pace";
/// So many wake-ups at one moment mean that the next deadline is never reached.
const WAKES_AT_ONCE: u32 = 1_000;
/// So many in one second mean the same of a deadline that is over, and that nobody looks at.
const WAKES_IN_A_SECOND: u32 = 1_000;
/// So many calls without success in one second mean that nothing waits before it repeats them.
const FAILURES_IN_A_SECOND: u32 = 200;

/// See the module's documentation.
#[derive(Clone, Debug, Default)]
pub struct PaceCheck {
    woken: (Time, u32),
    waking: (u64, u32),
    failing: (u64, u32),
}

impl PaceCheck {
    /// A server's timer fired.
    pub fn on_wake(&mut self, now: Time) -> Checked {
        let count = if self.woken.0 == now { self.woken.1 + 1 } else { 1 };
        self.woken = (now, count);
        ensure!(count < WAKES_AT_ONCE, CHECK, "{count} wake-ups at one moment");
        let second = now.0 / 1_000_000;
        let count = if self.waking.0 == second { self.waking.1 + 1 } else { 1 };
        self.waking = (second, count);
        ensure!(count < WAKES_IN_A_SECOND, CHECK, "{count} wake-ups within one second");
        Ok(())
    }

    /// A store call ended without success.
    pub fn on_failure(&mut self, now: Time) -> Checked {
        let second = now.0 / 1_000_000;
        let count = if self.failing.0 == second { self.failing.1 + 1 } else { 1 };
        self.failing = (second, count);
        ensure!(count < FAILURES_IN_A_SECOND, CHECK, "{count} store calls failed within one second");
        Ok(())
    }
}
