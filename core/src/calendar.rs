//! Dates, in the proleptic Gregorian calendar and UTC.

/// A moment as people write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    pub year: i64,
    /// 1 to 12.
    pub month: i64,
    /// 1 to 31.
    pub day: i64,
    pub hour: i64,
    pub minute: i64,
    pub second: i64,
    pub milli: i64,
}

const DAY_MS: i64 = 86_400_000;

impl Moment {
    /// The moment of a time in milliseconds since 1970.
    pub fn of(at_ms: i64) -> Moment {
        let (days, of_day) = (at_ms.div_euclid(DAY_MS), at_ms.rem_euclid(DAY_MS));
        // Years begin in March here, so that a leap day is the last of its year; an era has 400 years, 146,097 days.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Moment {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month,
            day: of_year - (153 * month_from_march + 2) / 5 + 1,
            hour: of_day / 3_600_000,
            minute: of_day / 60_000 % 60,
            second: of_day / 1_000 % 60,
            milli: of_day % 1_000,
        }
    }

    /// Its time in milliseconds since 1970; none where no calendar has such a day, or no clock such a time.
    pub fn at_ms(self) -> Option<i64> {
        let Moment { year, month, day, hour, minute, second, milli } = self;
        let in_bounds = (0..=9_999).contains(&year)
            && (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && (0..24).contains(&hour)
            && (0..60).contains(&minute)
            && (0..60).contains(&second);
        if !in_bounds {
            return None;
        }
        let shifted_year = year - i64::from(month <= 2);
        let (era, year_of_era) = (shifted_year.div_euclid(400), shifted_year.rem_euclid(400));
        let month_from_march = (month + 9) % 12;
        let of_year = (153 * month_from_march + 2) / 5 + day - 1;
        let of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + of_year;
        let days = era * 146_097 + of_era - 719_468;
        let at = days * DAY_MS + hour * 3_600_000 + minute * 60_000 + second * 1_000 + milli;
        // The 31st of a month of 30 days would be the first of the next.
        (Moment::of(at) == self).then_some(at)
    }

    /// Reads a date (`2026-11-29`, its beginning in UTC) or a time of RFC 3339 (`2026-11-29T10:30:00Z`,
    /// `2026-11-29 10:30:00.5+01:00`), in milliseconds since 1970.
    pub fn parse(text: &str) -> Option<i64> {
        let (date, time) = match text.split_once(['T', 't', ' ']) {
            Some((date, time)) => (date, Some(time)),
            None => (text, None),
        };
        let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
        let midnight = Moment { year, month, day, hour: 0, minute: 0, second: 0, milli: 0 };
        let Some(time) = time else { return midnight.at_ms() };
        let (time, offset_minutes) = match time.strip_suffix(['Z', 'z']) {
            Some(time) => (time, 0),
            None => {
                let at = time.rfind(['+', '-'])?;
                let [hours, minutes] = numbers(&time[at + 1..], ':', [2, 2])?;
                let minutes = (hours < 24 && minutes < 60).then_some(hours * 60 + minutes)?;
                (&time[..at], if time[at..].starts_with('-') { -minutes } else { minutes })
            }
        };
        let (time, fraction) = time.split_once('.').unwrap_or((time, "0"));
        let [hour, minute, second] = numbers(time, ':', [2, 2, 2])?;
        if fraction.is_empty() || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let milli: i64 = format!("{fraction:0<3}")[..3].parse().ok()?;
        let at = Moment { hour, minute, second, milli, ..midnight }.at_ms()?;
        Some(at - offset_minutes * 60_000)
    }
}

/// Numbers of so many digits each.
fn numbers<const N: usize>(text: &str, separator: char, digits: [usize; N]) -> Option<[i64; N]> {
    let mut parts = text.split(separator);
    let mut found = [0; N];
    for (number, digits) in found.iter_mut().zip(digits) {
        let part = parts.next().filter(|part| part.len() == digits && part.bytes().all(|b| b.is_ascii_digit()))?;
        *number = part.parse().ok()?;
    }
    parts.next().is_none().then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_day_of_eight_centuries_is_found_again_and_follows_the_one_before() {
        let mut before = Moment::of(-DAY_MS);
        for day in 0..292_194 {
            let moment = Moment::of(day * DAY_MS + 123);
            assert_eq!(moment.at_ms(), Some(day * DAY_MS + 123), "{moment:?}");
            let next_day = (moment.year, moment.month, moment.day) == (before.year, before.month, before.day + 1);
            assert!(next_day || (moment.day == 1 && before.day >= 28), "{moment:?} after {before:?}");
            before = moment;
        }
    }

    #[test]
    fn dates_and_times_are_read_and_what_is_none_is_refused() {
        assert_eq!(Moment::parse("1970-01-01"), Some(0));
        assert_eq!(Moment::parse("2000-02-29"), Some(951_782_400_000));
        assert_eq!(Moment::parse("2026-11-15T16:33:26.041Z"), Some(1_794_760_406_041));
        assert_eq!(Moment::parse("2026-11-15 17:33:26.0419+01:00"), Some(1_794_760_406_041));
        assert_eq!(Moment::parse("2026-11-15t06:33:26-10:00"), Some(1_794_760_406_000));
        for wrong in [
            "",
            "2026",
            "2026-13-01",
            "2025-02-29",
            "2026-11-31",
            "2026-1-2",
            "2026-11-15T16:33Z",
            "2026-11-15T16:33:26",
            "2026-11-15T24:00:00Z",
            "2026-11-15T16:33:26.Z",
            "2026-11-15T16:33:26+1:00",
            "2026-11-15T16:33:26+24:00",
            "-026-11-15",
            "2026-11-15-01",
            "2026-11-15T16:33:26.5xZ",
            "yesterday",
        ] {
            assert_eq!(Moment::parse(wrong), None, "{wrong}");
        }
    }
}
