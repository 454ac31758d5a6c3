//! Parameters on their way to the server.
//!
//! When a statement is run for the first time nobody knows yet what types it wants. Its parameters
//! are then sent as text, without declaring any type, so that the server's own rules decide; only
//! bytes go as they are. Afterwards the types are known: a value that fits one goes in binary, any
//! other still as text, which the server reads or refuses.

use std::fmt::{self, Write};
use std::sync::Arc;

use bytes::{BufMut, BytesMut};
use postgres_types::{IsNull, ToSql, Type};

use super::calendar;
use super::error;
use crate::driver::{Native, Param, Value};
use crate::value::{Date, DateTime, Time, hyphenated};
use crate::{Error, Kind, Result};

const AS_TEXT: i16 = 0;
const AS_BINARY: i16 = 1;

/// A value of a type that `postgres-types` knows how to send: see [`param`].
struct PgValue(Box<dyn ToSql + Send + Sync>);

/// A parameter of any type that is a [`ToSql`]: arrays, ranges, composites, enums, your own.
///
/// The first statement with one takes one more round trip than others: such a value
/// can be written only when its type is known.
///
/// ```no_run
/// # async fn example(db: cenote::Db) -> cenote::Result<()> {
/// use cenote::postgres::param;
///
/// let ids = vec![1_i32, 2, 3];
/// db.query("SELECT name FROM account WHERE id = ANY(?)", (param(ids),)).await?;
/// # Ok(()) }
/// ```
pub fn param<T: ToSql + Send + Sync + 'static>(value: T) -> Native {
    Native {
        type_name: std::any::type_name::<T>(),
        value: Arc::new(PgValue(Box::new(value))),
    }
}

/// Whether one of them can be written only when its type is known.
pub(super) fn need_types(params: &[Param<'_>]) -> bool {
    params.iter().any(|param| matches!(param, Param::Native(_)))
}

/// Writes a Bind of the unnamed portal, which begins with `head` and ends with
/// `result_formats`. `types` are those that the statement wants, if they are known.
///
/// # Errors
///
/// A parameter cannot be sent. Nothing has been written then.
pub(super) fn bind(
    out: &mut BytesMut,
    head: &[u8],
    types: Option<&[Type]>,
    params: &[Param<'_>],
    result_formats: &[u8],
) -> Result<()> {
    let start = out.len();
    let written = write_bind(out, head, types, params, result_formats);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write_bind(
    out: &mut BytesMut,
    head: &[u8],
    types: Option<&[Type]>,
    params: &[Param<'_>],
    result_formats: &[u8],
) -> Result<()> {
    let count = u16::try_from(params.len()).map_err(|_| {
        let message = format!("{} parameters are more than PostgreSQL takes", params.len());
        Error::new(Kind::Parameters, message)
    })?;
    if let Some(types) = types.filter(|types| types.len() != params.len()) {
        return Err(error::wrong_count(types.len(), params.len()));
    }
    let start = out.len();
    out.reserve(head.len() + 4 + params.len() * 16 + result_formats.len() + 64);
    out.extend_from_slice(head);
    let type_of = |n: usize| types.and_then(|types| types.get(n));
    out.put_u16(count);
    for (n, param) in params.iter().enumerate() {
        out.put_i16(format_of(param, type_of(n)));
    }
    out.put_u16(count);
    for (n, param) in params.iter().enumerate() {
        write_param(out, param, type_of(n)).map_err(|wrong| {
            let message = format!("parameter {}: {wrong}", n + 1);
            Error::new(Kind::Type, message)
        })?;
    }
    out.extend_from_slice(result_formats);
    set_length(out, start + 1, "the parameters")
}

/// Writes how long a message is that begins with its length here.
pub(super) fn set_length(out: &mut BytesMut, at: usize, what: &str) -> Result<()> {
    let len = i32::try_from(out.len() - at).map_err(|_| {
        let message = format!("{what} are too large for one message");
        Error::new(Kind::Parameters, message)
    })?;
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

/// In which form a parameter goes.
fn format_of(param: &Param<'_>, wanted: Option<&Type>) -> i16 {
    let value = match param {
        Param::Value(value) => value,
        Param::Native(native) => {
            let own = native.value.downcast_ref::<PgValue>();
            return match (own, wanted) {
                (Some(own), Some(wanted)) => match own.0.encode_format(wanted) {
                    postgres_types::Format::Text => AS_TEXT,
                    postgres_types::Format::Binary => AS_BINARY,
                },
                _ => AS_BINARY,
            };
        }
    };
    match is_binary(value, wanted) {
        true => AS_BINARY,
        false => AS_TEXT,
    }
}

/// Whether the value is written in binary for a parameter of this type.
fn is_binary(value: &Value<'_>, wanted: Option<&Type>) -> bool {
    let Some(wanted) = wanted else {
        return matches!(value, Value::Bytes(_));
    };
    match value {
        Value::Bytes(_) => true,
        Value::Bool(_) => *wanted == Type::BOOL,
        Value::Int(number) => match *wanted {
            Type::INT8 => true,
            Type::INT4 => i32::try_from(*number).is_ok(),
            Type::INT2 => i16::try_from(*number).is_ok(),
            _ => false,
        },
        Value::Float(_) => *wanted == Type::FLOAT8,
        Value::Uuid(_) => *wanted == Type::UUID,
        Value::Date(_) => *wanted == Type::DATE,
        Value::Time(_) => *wanted == Type::TIME,
        Value::DateTime(moment) => {
            *wanted == Type::TIMESTAMP && calendar::microseconds_since_origin(*moment).is_some()
        }
        Value::Timestamp(moment) => {
            *wanted == Type::TIMESTAMPTZ && calendar::microseconds_since_origin(*moment).is_some()
        }
        _ => false,
    }
}

/// Writes a parameter with its length; or says what is wrong with it.
fn write_param(out: &mut BytesMut, param: &Param<'_>, wanted: Option<&Type>) -> Result<(), String> {
    if let Param::Value(Value::Null) = param {
        out.put_i32(-1);
        return Ok(());
    }
    let at = out.len();
    out.put_i32(0);
    let is_null = match param {
        Param::Value(value) if is_binary(value, wanted) => write_binary(out, value, wanted),
        Param::Value(value) => write_text(out, value).map_err(|_| "cannot be written".to_owned()),
        Param::Native(native) => write_native(out, native, wanted),
    };
    let len = match is_null? {
        IsNull::Yes => {
            out.truncate(at + 4);
            -1
        }
        IsNull::No => {
            i32::try_from(out.len() - at - 4).map_err(|_| "it is too large".to_owned())?
        }
    };
    out[at..at + 4].copy_from_slice(&len.to_be_bytes());
    Ok(())
}

fn write_native(
    out: &mut BytesMut,
    native: &Native,
    wanted: Option<&Type>,
) -> Result<IsNull, String> {
    let Some(value) = native.value.downcast_ref::<PgValue>() else {
        return Err(format!(
            "PostgreSQL does not know the type {}; wrap a ToSql with cenote::postgres::param",
            native.type_name
        ));
    };
    let Some(wanted) = wanted else {
        return Err("its type is not known".to_owned());
    };
    value
        .0
        .to_sql_checked(wanted, out)
        .map_err(|wrong| format!("a {} as {wanted}: {wrong}", native.type_name))
}

fn write_binary(
    out: &mut BytesMut,
    value: &Value<'_>,
    wanted: Option<&Type>,
) -> Result<IsNull, String> {
    match value {
        Value::Bytes(bytes) => out.put_slice(bytes),
        Value::Bool(truth) => out.put_u8(u8::from(*truth)),
        Value::Int(number) => match wanted {
            Some(&Type::INT4) => out.put_i32(narrow(*number)?),
            Some(&Type::INT2) => out.put_i16(narrow(*number)?),
            _ => out.put_i64(*number),
        },
        Value::Float(number) => out.put_f64(*number),
        Value::Uuid(uuid) => out.put_slice(uuid),
        Value::Date(date) => out.put_i32(narrow(calendar::days(*date))?),
        Value::Time(time) => out.put_i64(calendar::microseconds(*time)),
        Value::DateTime(moment) | Value::Timestamp(moment) => {
            let since = calendar::microseconds_since_origin(*moment);
            out.put_i64(since.ok_or_else(|| format!("{moment} is out of range"))?);
        }
        other => return Err(format!("{} has no binary form", other.type_name())),
    }
    Ok(IsNull::No)
}

fn narrow<T: TryFrom<i64>>(number: i64) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("{number} is out of range"))
}

fn write_text(out: &mut BytesMut, value: &Value<'_>) -> Result<IsNull, fmt::Error> {
    match value {
        Value::Null => return Ok(IsNull::Yes),
        Value::Bool(truth) => out.put_u8(if *truth { b't' } else { b'f' }),
        Value::Int(number) => write!(out, "{number}")?,
        Value::UInt(number) => write!(out, "{number}")?,
        Value::Float(number) if number.is_nan() => out.put_slice(b"NaN"),
        Value::Float(number) if number.is_infinite() => {
            out.put_slice(if *number > 0.0 {
                b"Infinity"
            } else {
                b"-Infinity"
            });
        }
        Value::Float(number) => write!(out, "{number:e}")?,
        Value::Decimal(text) | Value::Text(text) | Value::Json(text) => {
            out.put_slice(text.as_bytes());
        }
        Value::Bytes(bytes) => out.put_slice(bytes),
        Value::Date(date) => write!(out, "{}{}", Day(*date), era(*date))?,
        Value::Time(time) => write!(out, "{}", Clock(*time))?,
        Value::DateTime(moment) => write_moment(out, moment, "")?,
        Value::Timestamp(moment) => write_moment(out, moment, "+00")?,
        Value::Uuid(uuid) => out.put_slice(hyphenated(*uuid).as_bytes()),
    }
    Ok(IsNull::No)
}

fn write_moment(out: &mut BytesMut, moment: &DateTime, zone: &str) -> fmt::Result {
    let DateTime { date, time } = *moment;
    write!(out, "{} {}{zone}{}", Day(date), Clock(time), era(date))
}

/// A day without its era, as PostgreSQL writes it.
struct Day(Date);

impl fmt::Display for Day {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Date { year, month, day } = self.0;
        let year = match year {
            1.. => i64::from(year),
            // There is no year 0: it is the first before Christ.
            _ => 1 - i64::from(year),
        };
        write!(out, "{year:04}-{month:02}-{day:02}")
    }
}

fn era(date: Date) -> &'static str {
    match date.year {
        1.. => "",
        _ => " BC",
    }
}

/// A time of day to the microsecond: the server would round what is below, and a nanosecond
/// before midnight is not tomorrow.
struct Clock(Time);

impl fmt::Display for Clock {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Time {
            hour,
            minute,
            second,
            nanosecond,
        } = self.0;
        write!(
            out,
            "{hour:02}:{minute:02}:{second:02}.{:06}",
            nanosecond / 1_000
        )
    }
}

/// The value of a setting, as text.
pub(super) fn setting(name: &str, value: &Value<'_>) -> Result<String> {
    if let Value::Bytes(_) | Value::Null = value {
        let message = format!("the setting {name} cannot be {}", value.type_name());
        return Err(Error::new(Kind::Type, message));
    }
    let mut text = BytesMut::new();
    let written = write_text(&mut text, value).is_ok();
    let text = String::from_utf8(text.to_vec()).ok().filter(|_| written);
    text.ok_or_else(|| Error::new(Kind::Type, format!("the setting {name} cannot be written")))
}
