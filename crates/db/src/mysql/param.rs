//! Parameters.

use mysql_async::Value as Raw;

use crate::driver::{Param, Value};
use crate::types::value::{Date, DateTime, Time, hyphenated, no_arrays};
use crate::{Error, Kind, Result};

/// Converts parameters to the client library's values. `is_utc`: the session's time zone is UTC, so timestamps can
/// be sent.
///
/// # Errors
///
/// [`Kind::Type`] for the first parameter that MySQL cannot represent.
pub(super) fn to_raw(params: &[Param<'_>], is_utc: bool) -> Result<Vec<Raw>> {
    let mut raw = Vec::with_capacity(params.len());
    for (n, param) in params.iter().enumerate() {
        let converted = match param {
            Param::Value(value) => value_to_raw(value, is_utc),
            Param::Native(native) => match native.value.downcast_ref::<Raw>() {
                Some(value) => Ok(value.clone()),
                None => Err(format!("MySQL does not know the type {}", native.type_name)),
            },
        };
        match converted {
            Ok(value) => raw.push(value),
            Err(wrong) => {
                let message = format!("parameter {}: {wrong}", n + 1);
                return Err(Error::new(Kind::Type, message));
            }
        }
    }
    Ok(raw)
}

/// Returns an upper bound of their size in bytes.
pub(super) fn size_of(params: &[Raw]) -> u64 {
    let size = |param: &Raw| match param {
        Raw::Bytes(bytes) => bytes.len() + 16,
        _ => 32,
    };
    let size: usize = params.iter().map(size).sum();
    u64::try_from(size).unwrap_or(u64::MAX)
}

fn value_to_raw(value: &Value<'_>, is_utc: bool) -> Result<Raw, String> {
    Ok(match value {
        Value::Null => Raw::NULL,
        Value::Bool(truth) => Raw::Int(i64::from(*truth)),
        Value::Int(number) => Raw::Int(*number),
        Value::UInt(number) => Raw::UInt(*number),
        Value::Float(number) if number.is_finite() => Raw::Double(*number),
        // MySQL would silently store another value.
        Value::Float(number) => return Err(format!("MySQL has no {number}")),
        Value::Decimal(text) | Value::Text(text) | Value::Json(text) => {
            Raw::Bytes(text.as_bytes().to_vec())
        }
        Value::Bytes(bytes) => Raw::Bytes(bytes.to_vec()),
        Value::Date(date) => moment(*date, Time::default())?,
        Value::Time(time) => {
            let micros = time.nanosecond / 1000;
            Raw::Time(false, 0, time.hour, time.minute, time.second, micros)
        }
        Value::DateTime(at) => moment(at.date, at.time)?,
        Value::Timestamp(at) if is_utc => moment(at.date, at.time)?,
        Value::Timestamp(_) => {
            return Err(
                "cannot send a UTC timestamp in a session whose time_zone is not UTC".into(),
            );
        }
        Value::Uuid(uuid) => Raw::Bytes(hyphenated(*uuid).into_bytes()),
        Value::Array(_) => return Err(no_arrays("MySQL")),
    })
}

fn moment(date: Date, time: Time) -> Result<Raw, String> {
    let year = u16::try_from(date.year).ok().filter(|year| *year <= 9999);
    let Some(year) = year else {
        let whole = DateTime::new(date, time);
        return Err(format!("{whole} is outside of MySQL's years"));
    };
    let Date { month, day, .. } = date;
    let micros = time.nanosecond / 1000;
    Ok(Raw::Date(
        year,
        month,
        day,
        time.hour,
        time.minute,
        time.second,
        micros,
    ))
}

/// Returns a value as an SQL literal, for a setting.
///
/// # Errors
///
/// [`Kind::Type`] for a type that no setting has.
pub(super) fn literal(name: &str, value: &Value<'_>) -> Result<String> {
    Ok(match value {
        Value::Null => "NULL".to_owned(),
        Value::Bool(truth) => u8::from(*truth).to_string(),
        Value::Int(number) => number.to_string(),
        Value::UInt(number) => number.to_string(),
        Value::Float(number) if number.is_finite() => format!("{number:?}"),
        Value::Decimal(text) | Value::Text(text) => text_literal(text),
        other => {
            let message = format!("the setting {name} cannot be a {}", other.type_name());
            return Err(Error::new(Kind::Type, message));
        }
    })
}

/// Returns a text of the DSN as a literal: a number, or otherwise a string.
pub(super) fn text_literal(text: &str) -> String {
    let is_number = text.parse::<i128>().is_ok() || is_decimal(text);
    if is_number {
        return text.to_owned();
    }
    quoted_text(text)
}

fn is_decimal(text: &str) -> bool {
    let digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
    let unsigned = text.strip_prefix('-').unwrap_or(text);
    unsigned
        .split_once('.')
        .is_some_and(|(whole, fraction)| digits(whole) && digits(fraction))
}

/// Returns an SQL string that means the same with and without backslash escapes.
pub(super) fn quoted_text(text: &str) -> String {
    if !text.contains('\\') {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let hex = text.bytes().fold(String::new(), |mut hex, byte| {
        use std::fmt::Write;
        let _ = write!(hex, "{byte:02X}");
        hex
    });
    format!("_utf8mb4 X'{hex}'")
}

/// Returns an SQL name in quotes.
pub(super) fn quoted_name(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

/// Checks the name of a setting, which may have a component before it.
///
/// # Errors
///
/// [`Kind::Config`] if the name is not valid.
pub(super) fn setting_name(name: &str) -> Result<&str> {
    let is_word = |word: &str| {
        !word.is_empty()
            && word
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if name.split('.').all(is_word) {
        return Ok(name);
    }
    let message = format!("{:?} is not the name of a setting", name.escape_debug());
    Err(Error::new(Kind::Config, message))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::driver::Native;

    fn raw(value: Value<'_>) -> Result<Raw> {
        let params = [Param::Value(value)];
        to_raw(&params, true).map(|mut params| params.remove(0))
    }

    #[test]
    fn value_mysql_cannot_hold_is_an_error_naming_the_parameter() {
        for wrong in [f64::NAN, f64::INFINITY] {
            assert_eq!(raw(Value::Float(wrong)).unwrap_err().kind(), Kind::Type);
        }
        let far = Date::new(10_000, 1, 1).unwrap();
        let error = raw(Value::Date(far)).unwrap_err();
        assert!(error.message().starts_with("parameter 1: "), "{error}");
    }

    #[test]
    fn timestamp_is_refused_where_the_session_clock_is_not_utc() {
        let moment = "2024-02-29T09:05:00".parse().unwrap();
        let params = [Param::Value(Value::Timestamp(moment))];
        assert!(to_raw(&params, true).is_ok());
        assert!(to_raw(&params, false).is_err());
    }

    #[test]
    fn foreign_native_value_is_an_error_that_names_it() {
        let native = |value| {
            Param::Native(Native {
                type_name: "Point",
                value,
            })
        };
        let error = to_raw(&[native(Arc::new((1, 2)))], true).unwrap_err();
        assert!(error.message().contains("Point"), "{error}");
        let own = to_raw(&[native(Arc::new(Raw::Int(7)))], true).unwrap();
        assert_eq!(own, [Raw::Int(7)]);
    }

    #[test]
    fn settings_are_numbers_or_strings() {
        assert_eq!(text_literal("5"), "5");
        assert_eq!(text_literal("0.5"), "0.5");
        assert_eq!(text_literal("it's"), "'it''s'");
        assert_eq!(text_literal("5; DROP"), "'5; DROP'");
        assert_eq!(text_literal("a\\"), "_utf8mb4 X'615C'");
        assert_eq!(quoted_name("a`b"), "`a``b`");
        assert!(setting_name("innodb_lock_wait_timeout").is_ok());
        assert!(setting_name("x = 1, y").is_err());
    }
}
