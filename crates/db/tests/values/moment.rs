//! Days, times and moments in writing.

use cenote::{Date, DateTime, Time};
use proptest::prelude::*;

fn date(year: i32, month: u8, day: u8) -> Date {
    Date::new(year, month, day).unwrap()
}

fn time(hour: u8, minute: u8, second: u8, nanosecond: u32) -> Time {
    Time::new(hour, minute, second, nanosecond).unwrap()
}

#[test]
fn a_date_is_written_as_iso_8601() {
    assert_eq!(date(2024, 2, 29).to_string(), "2024-02-29");
    assert_eq!(date(33, 4, 3).to_string(), "0033-04-03");
    assert_eq!(date(0, 1, 1).to_string(), "0000-01-01");
}

#[test]
fn a_year_of_more_or_less_than_four_digits_has_a_sign() {
    assert_eq!(date(12345, 6, 7).to_string(), "+12345-06-07");
    assert_eq!(date(-1, 12, 31).to_string(), "-0001-12-31");
    assert_eq!(date(i32::MIN, 1, 1).to_string(), "-2147483648-01-01");
}

#[test]
fn a_time_has_no_more_decimals_than_it_needs_in_steps_of_three() {
    assert_eq!(time(9, 5, 0, 0).to_string(), "09:05:00");
    assert_eq!(time(9, 5, 0, 250_000_000).to_string(), "09:05:00.250");
    assert_eq!(time(9, 5, 0, 250_000).to_string(), "09:05:00.000250");
    assert_eq!(time(9, 5, 0, 1).to_string(), "09:05:00.000000001");
}

#[test]
fn only_days_of_the_calendar_are_dates() {
    assert!(Date::new(2024, 2, 29).is_some());
    assert!(Date::new(2000, 2, 29).is_some());
    for (year, month, day) in [
        (2023, 2, 29),
        (1900, 2, 29),
        (2024, 4, 31),
        (2024, 0, 1),
        (2024, 13, 1),
        (2024, 1, 0),
        (2024, 1, 32),
    ] {
        assert_eq!(Date::new(year, month, day), None, "{year} {month} {day}");
        let written = format!("{year:04}-{month:02}-{day:02}");
        assert!(written.parse::<Date>().is_err(), "{written}");
    }
}

#[test]
fn only_times_of_the_day_are_times() {
    assert!(Time::new(23, 59, 59, 999_999_999).is_some());
    assert_eq!(Time::new(24, 0, 0, 0), None);
    assert_eq!(Time::new(0, 60, 0, 0), None);
    assert_eq!(Time::new(0, 0, 60, 0), None);
    assert_eq!(Time::new(0, 0, 0, 1_000_000_000), None);
}

#[test]
fn time_may_omit_seconds_and_have_up_to_nine_decimals() {
    assert_eq!("09:05".parse::<Time>().unwrap(), time(9, 5, 0, 0));
    let tenth = time(9, 5, 1, 100_000_000);
    assert_eq!("09:05:01.1".parse::<Time>().unwrap(), tenth);
    assert_eq!("09:05:01.100000000".parse::<Time>().unwrap(), tenth);
    assert!("09:05:01.1000000000".parse::<Time>().is_err());
    assert!("09:05:01.".parse::<Time>().is_err());
}

#[test]
fn a_date_and_time_may_have_a_space_between_them() {
    let moment = DateTime::new(date(2024, 2, 29), time(9, 5, 0, 0));
    for text in [
        "2024-02-29T09:05:00",
        "2024-02-29 09:05:00",
        "2024-02-29t09:05",
    ] {
        assert_eq!(text.parse::<DateTime>().unwrap(), moment, "{text}");
    }
}

#[test]
fn a_wall_clock_time_has_no_offset() {
    assert!("2024-02-29T09:05:00Z".parse::<DateTime>().is_err());
    assert!("2024-02-29T09:05:00+02:00".parse::<DateTime>().is_err());
}

#[test]
fn a_moment_with_an_offset_is_brought_to_utc() {
    for (text, utc) in [
        ("2024-03-01T01:30:00+02:00", "2024-02-29T23:30:00"),
        ("2024-03-01T01:30:00+02", "2024-02-29T23:30:00"),
        ("2024-03-01T01:30:00+0200", "2024-02-29T23:30:00"),
        ("2023-12-31 23:30:00-01:30", "2024-01-01T01:00:00"),
        ("2024-01-01T00:00:00+00:19:32", "2023-12-31T23:40:28"),
        ("2024-01-01T00:00:00.5z", "2024-01-01T00:00:00.500"),
        ("2024-01-01 00:00:00", "2024-01-01T00:00:00"),
    ] {
        assert_eq!(
            DateTime::parse_utc(text).unwrap().to_string(),
            utc,
            "{text}"
        );
    }
}

#[test]
fn an_unreadable_moment_is_an_error_with_the_text() {
    for text in [
        "",
        "maybe",
        "2024-02-29",
        "2024-02-29T",
        "2024-02-29T9:05:00",
        "2024-2-29T09:05:00",
        "24-02-29T09:05:00",
        "20240-02-29T09:05:00",
        "2024-02-29T09:05:00+",
        "2024-02-29T09:05:00+2",
        "2024-02-29T09:05:00+02:",
        "2024-02-29T09:05:00+24:00",
        "2024-02-29T09:05:00 +02:00",
        "2024-02-29T09:05:00ZZ",
        "+2147483648-01-01T00:00:00",
        "+2147483647-12-31T23:59:59-01:00",
        "２０２４-02-29T09:05:00",
    ] {
        let error = DateTime::parse_utc(text).unwrap_err();
        assert_eq!(error.to_string(), format!("{text:?} is no DateTime"));
    }
}

#[test]
fn an_error_shows_only_the_beginning_of_a_long_text() {
    let error = "ä".repeat(1000).parse::<Date>().unwrap_err();
    let told = "ä".repeat(40);
    assert_eq!(error.to_string(), format!("\"{told}\"… is no Date"));
}

#[test]
fn an_impossible_date_can_be_printed_and_does_not_read_back() {
    let date = Date {
        year: 2024,
        month: 255,
        day: 255,
    };
    assert_eq!(date.to_string(), "2024-255-255");
    assert!(date.to_string().parse::<Date>().is_err());
}

fn any_date() -> impl Strategy<Value = Date> {
    let year = prop_oneof![any::<i32>(), 0..=9999];
    (year, 1..=12_u8, 1..=31_u8).prop_filter_map("a day of the calendar", |(year, month, day)| {
        Date::new(year, month, day)
    })
}

fn any_time() -> impl Strategy<Value = Time> {
    let nanosecond = prop_oneof![
        Just(0),
        0..1_000_000_000_u32,
        (0..1000_u32).prop_map(|n| n * 1_000_000),
        (0..1_000_000_u32).prop_map(|n| n * 1000),
    ];
    (0..24_u8, 0..60_u8, 0..60_u8, nanosecond).prop_map(|(h, m, s, n)| time(h, m, s, n))
}

/// Text that comes close to a moment, as well as any other.
fn any_text() -> impl Strategy<Value = String> {
    let nearly = "[-+0-9]{0,5}-?[0-9]{0,3}-?[0-9]{0,3}[ Tt]?[0-9]{0,3}:?[0-9]{0,3}:?[0-9]{0,3}\\.?[0-9]{0,11}[-+Zz:0-9]{0,8}";
    prop_oneof![nearly, "\\PC*", "[-+:0-9TZ. ]{0,40}"]
}

proptest! {
    #[test]
    fn every_date_reads_back_as_it_was_written(date in any_date()) {
        prop_assert_eq!(date.to_string().parse::<Date>().unwrap(), date);
    }

    #[test]
    fn every_time_reads_back_as_it_was_written(time in any_time()) {
        prop_assert_eq!(time.to_string().parse::<Time>().unwrap(), time);
    }

    #[test]
    fn every_date_and_time_reads_back_as_it_was_written(date in any_date(), time in any_time()) {
        let moment = DateTime::new(date, time);
        prop_assert_eq!(moment.to_string().parse::<DateTime>().unwrap(), moment);
        prop_assert_eq!(DateTime::parse_utc(&format!("{moment}Z")).unwrap(), moment);
    }

    #[test]
    fn an_offset_moves_a_moment_by_itself_and_back(
        date in (1..9999, 1..=12_u8, 1..=28_u8).prop_map(|(y, m, d)| date(y, m, d)),
        time in any_time(),
        offset in any_time(),
    ) {
        let moment = DateTime::new(date, time);
        let offset = Time { nanosecond: 0, ..offset };
        let there = DateTime::parse_utc(&format!("{moment}+{offset}")).unwrap();
        let back = DateTime::parse_utc(&format!("{there}-{offset}")).unwrap();
        prop_assert_eq!(back, moment);
        prop_assert!(there <= moment);
    }

    #[test]
    fn reading_any_text_never_panics_and_what_it_reads_exists(text in any_text()) {
        if let Ok(date) = text.parse::<Date>() {
            prop_assert_eq!(Date::new(date.year, date.month, date.day), Some(date));
        }
        if let Ok(t) = text.parse::<Time>() {
            prop_assert_eq!(Time::new(t.hour, t.minute, t.second, t.nanosecond), Some(t));
        }
        let _ = text.parse::<DateTime>();
        let _ = DateTime::parse_utc(&text);
    }

    #[test]
    fn printing_what_cannot_be_never_panics(
        (year, month, day) in any::<(i32, u8, u8)>(),
        (hour, minute, second, nanosecond) in any::<(u8, u8, u8, u32)>(),
    ) {
        let date = Date { year, month, day };
        let time = Time { hour, minute, second, nanosecond };
        let written = DateTime { date, time }.to_string();
        prop_assert!(!written.is_empty());
    }
}
