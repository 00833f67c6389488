//! Moments as people read them, in messages.

use orbit_core::calendar::Moment;
use orbit_core::time::WallMs;

/// A moment as people read it: `2026-11-15 16:33:26 UTC`.
pub fn utc(at: WallMs) -> String {
    let Moment { year, month, day, hour, minute, second, .. } = Moment::of(at.0);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_shown_as_its_date_and_time() {
        assert_eq!(utc(WallMs(0)), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(WallMs(951_782_399_999)), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(WallMs(-1)), "1969-12-31 23:59:59 UTC");
    }
}
