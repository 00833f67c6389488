//! Moments as people read them, in messages.

use orbit_core::time::WallMs;

/// A moment as people read it: `2026-11-15 16:33:26 UTC`.
pub fn utc(at: WallMs) -> String {
    let seconds = at.0.div_euclid(1_000);
    let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (of_day / 3_600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Year, month and day of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
fn civil(days: i64) -> (i64, i64, i64) {
    let leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    // 400 years have 146,097 days and start alike, so only the remainder has to be counted.
    let (mut year, mut rest) = (1970 + 400 * days.div_euclid(146_097), days.rem_euclid(146_097));
    while rest >= 365 + i64::from(leap(year)) {
        rest -= 365 + i64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if rest < length {
            break;
        }
        rest -= length;
        month += 1;
    }
    (year, month, rest + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_shown_as_its_date_and_time() {
        assert_eq!(utc(WallMs(0)), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(WallMs(951_782_399_999)), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(WallMs(951_782_400_000)), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(WallMs(1_794_760_406_041)), "2026-11-15 16:33:26 UTC");
        assert_eq!(utc(WallMs(-1)), "1969-12-31 23:59:59 UTC");
    }
}
