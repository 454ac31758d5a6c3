//! Dates, times and moments of the `chrono` crate.

use chrono::{Datelike, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, Timelike, Utc};

use super::{ConvertError, Date, DateTime, FromValue, Time, Value};

type MomentAt<Zone> = chrono::DateTime<Zone>;

from_copy! {
    NaiveDate => |date| Value::Date(date.into());
    NaiveTime => |time| Value::Time(time.into());
    NaiveDateTime => |moment| Value::DateTime(moment.into());
    MomentAt<Utc> => |moment| Value::Timestamp(moment.naive_utc().into());
    MomentAt<FixedOffset> => |moment| Value::Timestamp(moment.naive_utc().into());
}

impl From<NaiveDate> for Date {
    fn from(date: NaiveDate) -> Self {
        Date {
            year: date.year(),
            month: small(date.month()),
            day: small(date.day()),
        }
    }
}

/// A leap second becomes the last nanosecond before it: databases have no leap seconds.
impl From<NaiveTime> for Time {
    fn from(time: NaiveTime) -> Self {
        Time {
            hour: small(time.hour()),
            minute: small(time.minute()),
            second: small(time.second()),
            nanosecond: time.nanosecond().min(999_999_999),
        }
    }
}

impl From<NaiveDateTime> for DateTime {
    fn from(moment: NaiveDateTime) -> Self {
        DateTime::new(moment.date().into(), moment.time().into())
    }
}

fn small(part: u32) -> u8 {
    u8::try_from(part).expect("months, days, hours, minutes and seconds are below 61")
}

impl TryFrom<Date> for NaiveDate {
    type Error = ConvertError;

    fn try_from(date: Date) -> Result<Self, ConvertError> {
        NaiveDate::from_ymd_opt(date.year, date.month.into(), date.day.into())
            .ok_or_else(|| ConvertError::out_of_range(date, "chrono::NaiveDate"))
    }
}

impl TryFrom<Time> for NaiveTime {
    type Error = ConvertError;

    fn try_from(time: Time) -> Result<Self, ConvertError> {
        // chrono would read a nanosecond past the limit as a leap second.
        Time::new(time.hour, time.minute, time.second, time.nanosecond)
            .and_then(|time| {
                NaiveTime::from_hms_nano_opt(
                    time.hour.into(),
                    time.minute.into(),
                    time.second.into(),
                    time.nanosecond,
                )
            })
            .ok_or_else(|| ConvertError::out_of_range(time, "chrono::NaiveTime"))
    }
}

impl TryFrom<DateTime> for NaiveDateTime {
    type Error = ConvertError;

    fn try_from(moment: DateTime) -> Result<Self, ConvertError> {
        let date = NaiveDate::try_from(moment.date)?;
        Ok(date.and_time(moment.time.try_into()?))
    }
}

impl<'r> FromValue<'r> for NaiveDate {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Date(_) | Value::Text(_) => Date::from_value(value)?.try_into(),
            other => Err(ConvertError::found(&other, "chrono::NaiveDate")),
        }
    }
}

impl<'r> FromValue<'r> for NaiveTime {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Time(_) | Value::Text(_) => Time::from_value(value)?.try_into(),
            other => Err(ConvertError::found(&other, "chrono::NaiveTime")),
        }
    }
}

impl<'r> FromValue<'r> for NaiveDateTime {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::DateTime(moment) => moment.try_into(),
            Value::Text(text) => text.parse::<DateTime>()?.try_into(),
            other => Err(ConvertError::found(&other, "chrono::NaiveDateTime")),
        }
    }
}

impl<'r> FromValue<'r> for MomentAt<Utc> {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        let utc = match value {
            Value::Timestamp(moment) => moment,
            Value::Text(text) => DateTime::parse_utc(&text)?,
            other => return Err(ConvertError::found(&other, "chrono::DateTime<Utc>")),
        };
        Ok(NaiveDateTime::try_from(utc)?.and_utc())
    }
}

/// A text keeps its offset; any other moment is in UTC.
impl<'r> FromValue<'r> for MomentAt<FixedOffset> {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        const WANTED: &str = "chrono::DateTime<FixedOffset>";
        match value {
            Value::Timestamp(_) => Ok(MomentAt::<Utc>::from_value(value)?.into()),
            Value::Text(text) => {
                let unreadable = || ConvertError::unreadable(&text, WANTED);
                let (local, offset) = DateTime::parse_with_offset(&text).ok_or_else(unreadable)?;
                let offset = FixedOffset::east_opt(offset.unwrap_or(0)).ok_or_else(unreadable)?;
                let local = NaiveDateTime::try_from(local)?;
                let moment = local.and_local_timezone(offset).single();
                moment.ok_or_else(|| ConvertError::out_of_range(&text, WANTED))
            }
            other => Err(ConvertError::found(&other, WANTED)),
        }
    }
}
