//! Durations as definitions write them: `250ms`, `10s`, `1h30m`, `2d`.

use std::time::Duration;

/// The units, largest first, each with its length in milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Reads `250ms`, `10s`, `10m`, `1h30m`, `2d`: whole numbers with units `d`, `h`, `m`, `s`, `ms`, each unit at most
/// once and larger ones first, without spaces. None for anything else, and for what is longer than `u64::MAX`
/// milliseconds.
pub fn parse_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut total: u64 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, tail) = rest.split_at(digits);
        let number: u64 = number.parse().ok()?;
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        // The iterator goes on from the unit before, so units cannot repeat or grow.
        let (_, length) = units.find(|(name, _)| *name == unit)?;
        total = total.checked_add(number.checked_mul(*length)?)?;
        rest = tail;
    }
    Some(Duration::from_millis(total))
}

/// What a text that [`parse_duration`] refuses likely means: units out of order, fractions, spaces, words. None where
/// it cannot be said in whole milliseconds.
pub(super) fn meant_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = 0.0;
    if rest.is_empty() || text.len() > 64 {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let (number, tail) = rest.split_at(digits);
        let tail = tail.trim_start();
        let letters = tail.bytes().take_while(u8::is_ascii_alphabetic).count();
        let (unit, tail) = tail.split_at(letters);
        let millis = match unit.to_ascii_lowercase().as_str() {
            "w" | "week" | "weeks" => 604_800_000.0,
            "d" | "day" | "days" => 86_400_000.0,
            "h" | "hr" | "hrs" | "hour" | "hours" => 3_600_000.0,
            "m" | "min" | "mins" | "minute" | "minutes" => 60_000.0,
            "s" | "sec" | "secs" | "second" | "seconds" => 1_000.0,
            "ms" | "msec" | "millis" | "millisecond" | "milliseconds" => 1.0,
            _ => return None,
        };
        total += number.parse::<f64>().ok()? * millis;
        rest = tail.trim_start_matches([' ', ',']);
    }
    // Exact as far as anybody writes durations; what is longer than ten thousand years is no slip.
    let millis = total.round();
    ((total - millis).abs() < 1e-6 && millis < 3.2e14).then_some(Duration::from_millis(millis as u64))
}

/// Writes a duration so that [`parse_duration`] reads it back (to the millisecond). Where the milliseconds do not fit
/// 64 bits, the longest duration that does is written.
pub fn format_duration(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    for (unit, length) in UNITS {
        let count = rest / length;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
            rest %= length;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn every_documented_form_is_read() {
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("10m", 600_000),
            ("1h30m", 5_400_000),
            ("2d", 172_800_000),
            ("1d2h3m4s5ms", 93_784_005),
            ("0s", 0),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        let bad =
            ["", "10", "s", "1.5s", "-1s", "+1s", "10 s", " 10s", "10s ", "1m1h", "1s1s", "10S", "1w", "1ms1s", "١s"];
        for text in bad {
            assert_eq!(parse_duration(text), None, "{text:?}");
        }
    }

    #[test]
    fn what_was_likely_meant_is_told_in_the_form_that_is_read() {
        let meant = |text: &str| meant_duration(text).map(format_duration);
        for (text, expected) in [
            ("30m1h", "1h30m"),
            ("1.5s", "1s500ms"),
            ("0.1h", "6m"),
            ("10 s", "10s"),
            ("10S", "10s"),
            ("1 hour, 30 minutes", "1h30m"),
            ("1s1s", "2s"),
            ("2w", "14d"),
        ] {
            assert_eq!(meant(text), Some(expected.to_owned()), "{text}");
            assert_eq!(parse_duration(text), None, "{text} is refused");
        }
        for nothing in ["", "ten", "10", "s", "1.2.3s", "0.0001s", "-1s", "1x", "999999999999d"] {
            assert_eq!(meant(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused_rather_than_cut() {
        assert_eq!(parse_duration("18446744073709551615ms"), Some(Duration::from_millis(u64::MAX)));
        assert_eq!(parse_duration("18446744073709551616ms"), None);
        assert_eq!(parse_duration("213503982335d"), None);
        assert_eq!(parse_duration("213503982334d23h"), None);
        assert_eq!(parse_duration(&format_duration(Duration::MAX)), Some(Duration::from_millis(u64::MAX)));
    }

    #[test]
    fn a_duration_is_written_in_its_largest_units() {
        assert_eq!(format_duration(Duration::from_secs(90)), "1m30s");
        assert_eq!(format_duration(Duration::from_micros(1_999)), "1ms");
        assert_eq!(format_duration(Duration::ZERO), "0s");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(millis in any::<u64>()) {
            let duration = Duration::from_millis(millis);
            prop_assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[0-9dhms. ]{0,24}") {
            if let Some(duration) = parse_duration(&text) {
                prop_assert_eq!(parse_duration(&format_duration(duration)), Some(duration));
            }
        }
    }
}
