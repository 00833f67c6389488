//! Durations as definitions write them.

use std::time::Duration;

/// Reads `250ms`, `10s`, `10m`, `1h30m`, `2d`.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let _ = text;
    None
}

/// Writes a duration so that [`parse_duration`] reads it back (to the millisecond).
pub fn format_duration(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}
