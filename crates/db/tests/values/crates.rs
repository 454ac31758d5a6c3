//! Values of other crates, each behind the feature of its name.

use cenote::{FromValue, Value};

#[allow(
    dead_code,
    reason = "without any of the features there is nothing to refuse"
)]
#[track_caller]
fn refused<'r, T: FromValue<'r> + std::fmt::Debug>(value: Value<'r>) -> String {
    T::from_value(value).unwrap_err().to_string()
}

#[cfg(feature = "chrono")]
mod chrono {
    use cenote::{Date, DateTime, FromValue, Time, Value};
    use chrono::{FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, Utc};
    use proptest::prelude::*;

    use super::refused;
    use crate::values_support::row;

    type InUtc = chrono::DateTime<Utc>;
    type Offset = chrono::DateTime<FixedOffset>;

    fn day() -> NaiveDate {
        NaiveDate::from_ymd_opt(2024, 2, 29).unwrap()
    }

    fn moment() -> NaiveDateTime {
        day().and_hms_milli_opt(9, 5, 0, 250).unwrap()
    }

    #[test]
    fn days_times_and_moments_of_chrono_are_values() {
        let neutral: DateTime = "2024-02-29T09:05:00.250".parse().unwrap();
        assert_eq!(Value::from(day()), Value::Date(neutral.date));
        assert_eq!(Value::from(moment().time()), Value::Time(neutral.time));
        assert_eq!(Value::from(&moment()), Value::DateTime(neutral));
        assert_eq!(Value::from(moment().and_utc()), Value::Timestamp(neutral));
        let east = FixedOffset::east_opt(2 * 3600).unwrap();
        let elsewhere = moment().and_utc().with_timezone(&east);
        assert_eq!(Value::from(Some(elsewhere)), Value::Timestamp(neutral));
    }

    #[test]
    fn a_leap_second_is_the_last_moment_before_it() {
        let leap = NaiveTime::from_hms_nano_opt(23, 59, 59, 1_500_000_000).unwrap();
        assert_eq!(
            Value::from(leap),
            Value::Time("23:59:59.999999999".parse().unwrap())
        );
    }

    #[test]
    fn days_times_and_moments_of_chrono_are_read_from_text_too() {
        assert_eq!(NaiveDate::from_value("2024-02-29".into()).unwrap(), day());
        assert_eq!(
            NaiveTime::from_value("09:05:00.25".into()).unwrap(),
            moment().time()
        );
        let text = || Value::from("2024-02-29 09:05:00.250");
        assert_eq!(NaiveDateTime::from_value(text()).unwrap(), moment());
        assert_eq!(InUtc::from_value(text()).unwrap(), moment().and_utc());
        let elsewhere = || Value::from("2024-02-29T11:05:00.250+02:00");
        assert_eq!(InUtc::from_value(elsewhere()).unwrap(), moment().and_utc());
        let kept = Offset::from_value(elsewhere()).unwrap();
        assert_eq!(kept, moment().and_utc());
        assert_eq!(kept.offset().local_minus_utc(), 2 * 3600);
    }

    #[test]
    fn a_field_of_chrono_is_read_from_the_text_that_sqlite_keeps() {
        #[derive(serde::Deserialize)]
        struct User {
            #[serde(deserialize_with = "cenote::Value::deserialize_as")]
            born: NaiveDateTime,
            #[serde(deserialize_with = "cenote::Value::deserialize_as")]
            created: Option<InUtc>,
        }
        let text = || Value::from("2024-02-29 09:05:00.250");
        let row = row(&[("born", text()), ("created", text())]);
        let user: User = cenote::from_row(&row).unwrap();
        assert_eq!(user.born, moment());
        assert_eq!(user.created, Some(moment().and_utc()));
    }

    #[test]
    fn local_time_is_no_timestamp_and_a_timestamp_no_local_time() {
        let neutral: DateTime = moment().into();
        assert_eq!(
            refused::<NaiveDateTime>(Value::Timestamp(neutral)),
            "found timestamptz, wanted NaiveDateTime: use DateTime<Utc> or cast"
        );
        assert_eq!(
            refused::<InUtc>(Value::DateTime(neutral)),
            "found datetime, wanted DateTime<Utc>: use NaiveDateTime or cast"
        );
        assert!(NaiveDateTime::from_value("2024-02-29T09:05:00Z".into()).is_err());
    }

    #[test]
    fn a_day_that_chrono_does_not_have_is_an_error_that_names_it() {
        let far = Date::new(i32::MAX, 1, 1).unwrap();
        assert_eq!(
            refused::<NaiveDate>(Value::Date(far)),
            "+2147483647-01-01 is out of range for chrono::NaiveDate"
        );
        let none = Time {
            hour: 1,
            minute: 0,
            second: 0,
            nanosecond: 1_500_000_000,
        };
        assert!(refused::<NaiveTime>(Value::Time(none)).ends_with("chrono::NaiveTime"));
        assert!(Offset::from_value("+262142-12-31T23:59:59-23:00".into()).is_err());
    }

    proptest! {
        #[test]
        fn every_moment_of_chrono_comes_back_as_it_was(
            seconds in NaiveDateTime::MIN.and_utc().timestamp()..=NaiveDateTime::MAX.and_utc().timestamp(),
            nanosecond in 0..1_000_000_000_u32,
        ) {
            let moment = InUtc::from_timestamp(seconds, nanosecond).unwrap();
            let naive = moment.naive_utc();
            prop_assert_eq!(InUtc::from_value(moment.into()).unwrap(), moment);
            prop_assert_eq!(Offset::from_value(moment.into()).unwrap(), moment);
            prop_assert_eq!(NaiveDateTime::from_value(naive.into()).unwrap(), naive);
            prop_assert_eq!(NaiveDate::from_value(naive.date().into()).unwrap(), naive.date());
            prop_assert_eq!(NaiveTime::from_value(naive.time().into()).unwrap(), naive.time());
            // As SQLite gives it back: in writing.
            let written = String::from_value(Value::from(moment)).unwrap();
            prop_assert_eq!(InUtc::from_value(written.into()).unwrap(), moment);
        }
    }
}

#[cfg(feature = "time")]
mod time {
    use cenote::{Date, DateTime, FromValue, Value};
    use proptest::prelude::*;
    use time::{Month, OffsetDateTime, PrimitiveDateTime, UtcOffset};

    use super::refused;

    fn moment() -> PrimitiveDateTime {
        let date = time::Date::from_calendar_date(2024, Month::February, 29).unwrap();
        date.with_hms_milli(9, 5, 0, 250).unwrap()
    }

    #[test]
    fn days_times_and_moments_of_time_are_values() {
        let neutral: DateTime = "2024-02-29T09:05:00.250".parse().unwrap();
        assert_eq!(Value::from(moment().date()), Value::Date(neutral.date));
        assert_eq!(Value::from(moment().time()), Value::Time(neutral.time));
        assert_eq!(Value::from(&moment()), Value::DateTime(neutral));
        let east = UtcOffset::from_hms(2, 0, 0).unwrap();
        let elsewhere = moment().assume_utc().to_offset(east);
        assert_eq!(Value::from(Some(elsewhere)), Value::Timestamp(neutral));
    }

    #[test]
    fn days_times_and_moments_of_time_are_read_from_text_too() {
        assert_eq!(
            time::Date::from_value("2024-02-29".into()).unwrap(),
            moment().date()
        );
        assert_eq!(
            time::Time::from_value("09:05:00.25".into()).unwrap(),
            moment().time()
        );
        let text = || Value::from("2024-02-29 09:05:00.250");
        assert_eq!(PrimitiveDateTime::from_value(text()).unwrap(), moment());
        assert_eq!(
            OffsetDateTime::from_value(text()).unwrap(),
            moment().assume_utc()
        );
        let kept = OffsetDateTime::from_value("2024-02-29T11:05:00.250+02:00".into()).unwrap();
        assert_eq!(kept, moment().assume_utc());
        assert_eq!(kept.offset().whole_hours(), 2);
    }

    #[test]
    fn local_time_is_no_timestamp_and_a_timestamp_no_local_time() {
        let neutral: DateTime = moment().into();
        assert_eq!(
            refused::<PrimitiveDateTime>(Value::Timestamp(neutral)),
            "found timestamptz, wanted time::PrimitiveDateTime: use time::OffsetDateTime or cast"
        );
        assert_eq!(
            refused::<OffsetDateTime>(Value::DateTime(neutral)),
            "found datetime, wanted time::OffsetDateTime: use time::PrimitiveDateTime or cast"
        );
    }

    #[test]
    fn a_day_that_time_does_not_have_is_an_error_that_names_it() {
        let far = Date::new(i32::MAX, 1, 1).unwrap();
        assert_eq!(
            refused::<time::Date>(Value::Date(far)),
            "+2147483647-01-01 is out of range for time::Date"
        );
    }

    #[test]
    fn last_timestamp_is_valid_though_it_is_next_year_in_utc() {
        let west = UtcOffset::from_hms(-12, 0, 0).unwrap();
        let last = PrimitiveDateTime::MAX.assume_offset(west);
        let Value::Timestamp(utc) = Value::from(last) else {
            panic!("a moment is a timestamp");
        };
        assert_eq!(utc.date.year, PrimitiveDateTime::MAX.year() + 1);
    }

    proptest! {
        #[test]
        fn every_moment_of_time_comes_back_as_it_was(
            seconds in PrimitiveDateTime::MIN.assume_utc().unix_timestamp()
                ..=PrimitiveDateTime::MAX.assume_utc().unix_timestamp(),
            nanosecond in 0..1_000_000_000_u32,
        ) {
            let moment = OffsetDateTime::from_unix_timestamp(seconds).unwrap();
            let moment = moment.replace_nanosecond(nanosecond).unwrap();
            let local = PrimitiveDateTime::new(moment.date(), moment.time());
            prop_assert_eq!(OffsetDateTime::from_value(moment.into()).unwrap(), moment);
            prop_assert_eq!(PrimitiveDateTime::from_value(local.into()).unwrap(), local);
            prop_assert_eq!(time::Date::from_value(local.date().into()).unwrap(), local.date());
            prop_assert_eq!(time::Time::from_value(local.time().into()).unwrap(), local.time());
            let written = String::from_value(Value::from(moment)).unwrap();
            prop_assert_eq!(OffsetDateTime::from_value(written.into()).unwrap(), moment);
        }
    }
}

#[cfg(feature = "uuid")]
mod uuid {
    use cenote::{FromValue, Value};
    use proptest::prelude::*;
    use uuid::Uuid;

    use super::refused;

    #[test]
    fn what_is_no_uuid_is_an_error_that_says_why() {
        assert_eq!(refused::<Uuid>("seven".into()), "\"seven\" is no Uuid");
        assert_eq!(
            refused::<Uuid>([1_u8; 15].into()),
            "found 15 bytes, wanted 16 for a Uuid"
        );
        assert_eq!(
            refused::<Uuid>(7.into()),
            "found int, wanted Uuid: use i64 or cast"
        );
    }

    proptest! {
        #[test]
        fn every_uuid_comes_back_also_from_bytes_and_text(bytes: [u8; 16]) {
            let uuid = Uuid::from_bytes(bytes);
            prop_assert_eq!(Value::from(uuid), Value::Uuid(bytes));
            prop_assert_eq!(Uuid::from_value(uuid.into()).unwrap(), uuid);
            prop_assert_eq!(Uuid::from_value(bytes.into()).unwrap(), uuid);
            let written = String::from_value(uuid.into()).unwrap();
            prop_assert_eq!(&written, &uuid.to_string());
            prop_assert_eq!(Uuid::from_value(written.into()).unwrap(), uuid);
            prop_assert_eq!(Uuid::from_value(uuid.simple().to_string().into()).unwrap(), uuid);
        }

        #[test]
        fn reading_any_text_as_a_uuid_never_panics(text: String) {
            let _ = Uuid::from_value(text.into());
        }
    }
}

#[cfg(feature = "decimal")]
mod decimal {
    use cenote::{FromValue, Value};
    use proptest::prelude::*;
    use rust_decimal::Decimal;

    use super::refused;

    #[test]
    fn a_decimal_keeps_its_digits() {
        let price = Decimal::new(1250, 2);
        assert_eq!(Value::from(price), Value::Decimal("12.50".into()));
        let back = Decimal::from_value(price.into()).unwrap();
        assert_eq!(back.to_string(), "12.50");
    }

    #[test]
    fn an_int_a_text_and_a_float_are_decimals_if_nothing_is_lost() {
        assert_eq!(Decimal::from_value(7.into()).unwrap(), Decimal::from(7));
        let largest = Decimal::from_value(u64::MAX.into()).unwrap();
        assert_eq!(largest, Decimal::from(u64::MAX));
        assert_eq!(
            Decimal::from_value("12.50".into()).unwrap(),
            Decimal::new(1250, 2)
        );
        assert_eq!(
            Decimal::from_value(Value::Float(12.5)).unwrap(),
            Decimal::new(125, 1)
        );
        assert_eq!(
            Decimal::from_value(Value::Float(0.1)).unwrap(),
            Decimal::new(1, 1)
        );
    }

    #[test]
    fn what_a_decimal_cannot_hold_is_an_error() {
        let precise = format!("0.{}", "3".repeat(40));
        assert!(Decimal::from_value(Value::Decimal(precise.as_str().into())).is_err());
        assert_eq!(refused::<Decimal>("ten".into()), "\"ten\" is no Decimal");
        assert_eq!(
            refused::<Decimal>(f64::NAN.into()),
            "NaN is out of range for Decimal"
        );
        assert!(refused::<Decimal>(1e300.into()).ends_with("is out of range for Decimal"));
        assert_eq!(
            refused::<Decimal>(true.into()),
            "found bool, wanted Decimal: use bool or cast"
        );
    }

    proptest! {
        #[test]
        fn every_decimal_comes_back_also_from_text(
            (low, middle, high) in any::<(u32, u32, u32)>(),
            is_negative: bool,
            scale in 0..=28_u32,
        ) {
            let number = Decimal::from_parts(low, middle, high, is_negative, scale);
            prop_assert_eq!(Decimal::from_value(number.into()).unwrap(), number);
            prop_assert_eq!(Decimal::from_value(number.to_string().into()).unwrap(), number);
        }

        #[test]
        fn reading_anything_as_a_decimal_never_panics(text: String, number: f64) {
            let _ = Decimal::from_value(text.into());
            let _ = Decimal::from_value(number.into());
        }
    }
}

#[cfg(feature = "json")]
mod json {
    use cenote::{FromValue, Json, Value};
    use serde::{Deserialize, Serialize};

    use super::refused;

    #[derive(Debug, Deserialize, PartialEq, Serialize)]
    struct Settings {
        theme: String,
    }

    #[test]
    fn json_is_read_into_a_serde_type_also_from_text() {
        let text = r#"{"theme":"dark"}"#;
        for value in [Value::Json(text.into()), Value::from(text)] {
            let Json(settings) = Json::<Settings>::from_value(value.clone()).unwrap();
            assert_eq!(settings.theme, "dark");
            let Json(json) = Json::<serde_json::Value>::from_value(value).unwrap();
            assert_eq!(json, serde_json::json!({ "theme": "dark" }));
            assert_eq!(Value::from(&json), Value::Json(text.into()));
        }
        let json = serde_json::Value::from_value(Value::Json(text.into())).unwrap();
        assert_eq!(json, serde_json::json!({ "theme": "dark" }));
        // By serde this would be a JSON string: the two must not differ without an error.
        assert_eq!(
            refused::<serde_json::Value>(text.into()),
            "found text, wanted serde_json::Value: use Json<serde_json::Value> to parse it, String to keep it"
        );
    }

    #[test]
    fn json_that_does_not_fit_is_an_error_that_says_why() {
        let message = refused::<Json<Settings>>("{}".into());
        assert!(
            message.contains("Settings: missing field `theme`"),
            "{message}"
        );
        let message = refused::<serde_json::Value>(Value::Json("{".into()));
        assert!(
            message.starts_with("the JSON is no serde_json::Value: "),
            "{message}"
        );
        assert_eq!(
            refused::<serde_json::Value>(7.into()),
            "found int, wanted JSON: use i64 or cast"
        );
    }

    #[test]
    fn null_of_the_database_is_not_null_of_json() {
        assert_eq!(Option::<Json<i32>>::from_value(Value::Null).unwrap(), None);
        let null = Json::<Option<i32>>::from_value(Value::Json("null".into())).unwrap();
        assert_eq!(null, Json(None));
    }
}
