//! A moment from which on something is listed.

use orbit_core::calendar::Moment;
use orbit_core::definition::parse_duration;
use std::time::{SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since(pub i64);

impl Since {
    /// Reads a date, a time, a duration before now (by this host's clock) or milliseconds.
    pub fn parse(text: &str) -> Result<Since, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Since::at(text, i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
    }

    fn at(text: &str, now_ms: i64) -> Result<Since, String> {
        if let Some(at) = Moment::parse(text).or_else(|| text.parse().ok()).filter(|at| *at >= 0) {
            return Ok(Since(at));
        }
        if let Some(before) = parse_duration(text) {
            let before = i64::try_from(before.as_millis()).unwrap_or(i64::MAX);
            return Ok(Since(now_ms.saturating_sub(before).max(0)));
        }
        Err("write a date (2026-11-29), a time (2026-11-29T10:30:00Z), a duration before now (2h) or milliseconds since \
             1970"
            .into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_date_a_time_a_duration_and_milliseconds_are_moments() {
        let now = 1_794_760_406_041;
        for (text, at) in [
            ("2026-11-15", 1_794_700_800_000),
            ("2026-11-15T16:33:26.041Z", now),
            ("2h", now - 7_200_000),
            ("1d12h", now - 129_600_000),
            ("99999d", 0),
            ("1794760406041", now),
        ] {
            assert_eq!(Since::at(text, now), Ok(Since(at)), "{text}");
        }
        for text in ["", "yesterday", "2026-02-30", "-5", "2 h", "2026-11-15T16:33"] {
            assert!(Since::at(text, now).unwrap_err().contains("2026-11-29T10:30:00Z"), "{text}");
        }
    }
}
