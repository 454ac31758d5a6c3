//! Dates, times and moments of the `time` crate.

use time::{Month, OffsetDateTime, PrimitiveDateTime, UtcOffset};

use super::{ConvertError, Date, DateTime, FromValue, Time, Value};

from_copy! {
    time::Date => |date| Value::Date(date.into());
    time::Time => |time| Value::Time(time.into());
    PrimitiveDateTime => |moment| Value::DateTime(moment.into());
    OffsetDateTime => |moment| Value::Timestamp(utc(moment));
}

impl From<time::Date> for Date {
    fn from(date: time::Date) -> Self {
        Date {
            year: date.year(),
            month: date.month().into(),
            day: date.day(),
        }
    }
}

impl From<time::Time> for Time {
    fn from(time: time::Time) -> Self {
        Time {
            hour: time.hour(),
            minute: time.minute(),
            second: time.second(),
            nanosecond: time.nanosecond(),
        }
    }
}

impl From<PrimitiveDateTime> for DateTime {
    fn from(moment: PrimitiveDateTime) -> Self {
        DateTime::new(moment.date().into(), moment.time().into())
    }
}

/// Returns the moment in UTC by our own arithmetic: `to_offset` panics near the first and the last year.
fn utc(moment: OffsetDateTime) -> DateTime {
    let local = DateTime::new(moment.date().into(), moment.time().into());
    let ahead = moment.offset().whole_seconds();
    local
        .minus_seconds(ahead)
        .expect("the years of the time crate are far from the limits of i32")
}

impl TryFrom<Date> for time::Date {
    type Error = ConvertError;

    fn try_from(date: Date) -> Result<Self, ConvertError> {
        let out_of_range = || ConvertError::out_of_range(date, "time::Date");
        let month = Month::try_from(date.month).map_err(|_| out_of_range())?;
        time::Date::from_calendar_date(date.year, month, date.day).map_err(|_| out_of_range())
    }
}

impl TryFrom<Time> for time::Time {
    type Error = ConvertError;

    fn try_from(time: Time) -> Result<Self, ConvertError> {
        time::Time::from_hms_nano(time.hour, time.minute, time.second, time.nanosecond)
            .map_err(|_| ConvertError::out_of_range(time, "time::Time"))
    }
}

impl TryFrom<DateTime> for PrimitiveDateTime {
    type Error = ConvertError;

    fn try_from(moment: DateTime) -> Result<Self, ConvertError> {
        let date = time::Date::try_from(moment.date)?;
        Ok(PrimitiveDateTime::new(date, moment.time.try_into()?))
    }
}

impl<'r> FromValue<'r> for time::Date {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Date(_) | Value::Text(_) => Date::from_value(value)?.try_into(),
            other => Err(ConvertError::found(&other, "time::Date")),
        }
    }
}

impl<'r> FromValue<'r> for time::Time {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Time(_) | Value::Text(_) => Time::from_value(value)?.try_into(),
            other => Err(ConvertError::found(&other, "time::Time")),
        }
    }
}

impl<'r> FromValue<'r> for PrimitiveDateTime {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::DateTime(moment) => moment.try_into(),
            Value::Text(text) => text.parse::<DateTime>()?.try_into(),
            other => Err(ConvertError::found(&other, "time::PrimitiveDateTime")),
        }
    }
}

/// A text keeps its offset; any other moment is in UTC.
impl<'r> FromValue<'r> for OffsetDateTime {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        const WANTED: &str = "time::OffsetDateTime";
        match value {
            Value::Timestamp(moment) => Ok(PrimitiveDateTime::try_from(moment)?.assume_utc()),
            Value::Text(text) => {
                let unreadable = || ConvertError::unreadable(&text, WANTED);
                let (local, offset) = DateTime::parse_with_offset(&text).ok_or_else(unreadable)?;
                let offset = UtcOffset::from_whole_seconds(offset.unwrap_or(0));
                let local = PrimitiveDateTime::try_from(local)?;
                Ok(local.assume_offset(offset.map_err(|_| unreadable())?))
            }
            other => Err(ConvertError::found(&other, WANTED)),
        }
    }
}
