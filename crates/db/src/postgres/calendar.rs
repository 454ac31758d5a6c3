//! Dates and moments as PostgreSQL counts them: from the first of January 2000.

use crate::types::value::{Date, DateTime, Time};

const DAYS_IN_400_YEARS: i64 = 146_097;
const DAYS_IN_100_YEARS: i64 = 36_524;
const DAYS_IN_4_YEARS: i64 = 1_461;

/// From the first of March of the year 0 to the first of January 2000. A year that begins
/// in March has its leap day at its end.
const MARCH_TO_ORIGIN: i64 = 730_425;

/// The days of such a year before each of its months.
const BEFORE_MONTH: [i64; 12] = [0, 31, 61, 92, 122, 153, 184, 214, 245, 275, 306, 337];

pub(super) const MICROSECONDS_A_DAY: i64 = 24 * 60 * 60 * 1_000_000;

/// Returns the date `days` days after 2000-01-01.
pub(super) fn date(days: i64) -> Option<Date> {
    let days = days.checked_add(MARCH_TO_ORIGIN)?;
    let (cycles, rest) = (
        days.div_euclid(DAYS_IN_400_YEARS),
        days.rem_euclid(DAYS_IN_400_YEARS),
    );
    // The last century of a cycle is a day longer, and so is the last year of four.
    let centuries = (rest / DAYS_IN_100_YEARS).min(3);
    let rest = rest - centuries * DAYS_IN_100_YEARS;
    let fours = rest / DAYS_IN_4_YEARS;
    let rest = rest % DAYS_IN_4_YEARS;
    let years = (rest / 365).min(3);
    let rest = rest - years * 365;
    let month = BEFORE_MONTH.partition_point(|before| *before <= rest) - 1;
    let day = u8::try_from(rest - BEFORE_MONTH[month] + 1).ok()?;
    let is_next_year = month >= 10;
    let month = u8::try_from((month + 2) % 12 + 1).ok()?;
    let year = cycles * 400 + centuries * 100 + fours * 4 + years + i64::from(is_next_year);
    Date::new(i32::try_from(year).ok()?, month, day)
}

/// Returns the number of days since the first of January 2000.
pub(super) fn days(date: Date) -> i64 {
    let month = (usize::from(date.month) + 9) % 12;
    let year = i64::from(date.year) - i64::from(month >= 10);
    let leap_days = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leap_days + BEFORE_MONTH[month] + i64::from(date.day) - 1 - MARCH_TO_ORIGIN
}

/// Returns the time of day `microseconds` after midnight.
pub(super) fn time(microseconds: i64) -> Option<Time> {
    let seconds = microseconds.div_euclid(1_000_000);
    let part = |value: i64| u8::try_from(value).ok();
    let nanosecond = u32::try_from(microseconds.rem_euclid(1_000_000)).ok()? * 1_000;
    Time::new(
        part(seconds / 3600)?,
        part(seconds / 60 % 60)?,
        part(seconds % 60)?,
        nanosecond,
    )
}

/// Returns the number of microseconds since midnight.
pub(super) fn microseconds(time: Time) -> i64 {
    let minutes = i64::from(time.hour) * 60 + i64::from(time.minute);
    let seconds = minutes * 60 + i64::from(time.second);
    seconds * 1_000_000 + i64::from(time.nanosecond / 1_000)
}

/// Returns the moment `microseconds` after 2000-01-01 00:00.
pub(super) fn moment(microseconds: i64) -> Option<DateTime> {
    let date = date(microseconds.div_euclid(MICROSECONDS_A_DAY))?;
    let time = time(microseconds.rem_euclid(MICROSECONDS_A_DAY))?;
    Some(DateTime { date, time })
}

/// Returns the number of microseconds since the beginning of the year 2000.
pub(super) fn microseconds_since_origin(moment: DateTime) -> Option<i64> {
    days(moment.date)
        .checked_mul(MICROSECONDS_A_DAY)?
        .checked_add(microseconds(moment.time))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_days_that_are_known_are_right() {
        for (day, days_since) in [
            ("2000-01-01", 0),
            ("1999-12-31", -1),
            ("2000-02-29", 59),
            ("2000-03-01", 60),
            ("1970-01-01", -10_957),
            ("2024-02-29", 8_825),
            ("1900-03-01", -36_465),
            ("0001-01-01", -730_119),
            ("9999-12-31", 2_921_939),
        ] {
            let day: Date = day.parse().unwrap();
            assert_eq!(days(day), days_since, "{day}");
            assert_eq!(date(days_since), Some(day), "{day}");
        }
    }

    proptest! {
        #[test]
        fn every_day_comes_back(n in i64::from(i32::MIN)..i64::from(i32::MAX)) {
            prop_assert_eq!(date(n).map(days), Some(n));
        }

        #[test]
        fn days_follow_one_another(n in -1_000_000_i64..3_000_000) {
            prop_assert!(date(n) < date(n + 1));
        }

        #[test]
        fn every_moment_comes_back(n in any::<i64>()) {
            let moment = moment(n);
            prop_assert_eq!(moment.and_then(microseconds_since_origin), Some(n));
        }
    }
}
