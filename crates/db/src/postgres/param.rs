//! Parameters, on their way to the server.
//!
//! When a statement runs for the first time, the types of its parameters are not known. The driver sends
//! them as text without a type, so that the server infers it; only bytes go in binary.
//! Later the types are known: a value that fits goes in binary, any other still as
//! text, which the server reads or refuses. Arrays always go as text.
//!
//! Text can be read as anything by a parameter that the server takes for text: an array for `name IN (?)` would be compared as
//! the text `{a,b}`, and nothing would be found. So a text is prepared first if it does not make clear that an array is one,
//! and an array for a parameter of a text type is refused.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use bytes::BytesMut;
use postgres_types::{Format, IsNull, ToSql, Type};

use super::calendar;
use super::connect::DIALECT;
use super::error;
use super::protocol::frontend::set_length;
use crate::driver::{Native, Param, Value};
use crate::sql;
use crate::types::value::{Date, DateTime, Time, hyphenated};
use crate::{Error, Kind, Result};

const AS_TEXT: i16 = 0;
const AS_BINARY: i16 = 1;

/// A value of a type that `postgres-types` knows how to send: see [`param`].
struct PgValue(Box<dyn ToSql + Send + Sync>);

/// Returns a parameter of any [`ToSql`] type: ranges, composites, enums, types of your own.
///
/// The first run of a statement with such a parameter takes one more round trip: the value
/// can be written only when its type is known. A `Vec` of plain values needs no `param`.
///
/// ```no_run
/// # async fn example(db: cenote::Db) -> cenote::Result<()> {
/// use cenote::postgres::param;
///
/// let host: std::net::IpAddr = [127, 0, 0, 1].into();
/// db.query("SELECT name FROM account WHERE host = ?", (param(host),)).await?;
/// # Ok(()) }
/// ```
pub fn param<T: ToSql + Send + Sync + 'static>(value: T) -> Native {
    Native {
        type_name: std::any::type_name::<T>(),
        value: Arc::new(PgValue(Box::new(value))),
    }
}

/// Returns whether a parameter can be written only when its type is known.
pub(super) fn need_types(params: &[Param<'_>]) -> bool {
    params.iter().any(|param| matches!(param, Param::Native(_)))
}

/// Returns whether a parameter is an array.
pub(super) fn has_array(params: &[Param<'_>]) -> bool {
    params.iter().any(is_array)
}

/// Returns whether a parameter is an array, and the text does not say that it is one.
pub(super) fn has_unclear_array(sql: &str, params: &[Param<'_>]) -> bool {
    let is_asked = |number: usize| {
        let param = number.checked_sub(1).and_then(|at| params.get(at));
        param.is_some_and(is_array)
    };
    has_array(params) && !sql::are_arrays(&DIALECT, sql, is_asked)
}

fn is_array(param: &Param<'_>) -> bool {
    matches!(param, Param::Value(Value::Array(_)))
}

/// Returns whether every text is a value of this type.
fn takes_any_text(kind: &Type) -> bool {
    [Type::TEXT, Type::VARCHAR, Type::BPCHAR, Type::NAME].contains(kind)
}

/// Writes a Bind of the unnamed portal, which begins with `head` and ends with
/// `result_formats`. `types` are the statement's parameter types, if they are known.
///
/// # Errors
///
/// A parameter cannot be sent. Then nothing has been written.
pub(super) fn bind(
    out: &mut Vec<u8>,
    head: &[u8],
    types: Option<&[Type]>,
    params: &[Param<'_>],
    result_formats: &[u8],
) -> Result<()> {
    bind_rows(out, head, types, &[params], result_formats)
}

/// As [`bind`], for a statement that takes the parameters of several rows; `types` are those of one row.
pub(super) fn bind_rows<'p, R: AsRef<[Param<'p>]>>(
    out: &mut Vec<u8>,
    head: &[u8],
    types: Option<&[Type]>,
    rows: &[R],
    result_formats: &[u8],
) -> Result<()> {
    let start = out.len();
    let written = write_bind(out, head, types, rows, result_formats);
    if written.is_err() {
        out.truncate(start);
    }
    written
}

fn write_bind<'p, R: AsRef<[Param<'p>]>>(
    out: &mut Vec<u8>,
    head: &[u8],
    types: Option<&[Type]>,
    rows: &[R],
    result_formats: &[u8],
) -> Result<()> {
    let total = rows.iter().map(|row| row.as_ref().len()).sum::<usize>();
    let count = u16::try_from(total).map_err(|_| {
        let message = format!("{total} parameters are more than PostgreSQL takes");
        Error::new(Kind::Parameters, message)
    })?;
    if let Some(types) = types {
        let mut counts = rows.iter().map(|row| row.as_ref().len());
        if let Some(wrong) = counts.find(|count| *count != types.len()) {
            return Err(error::wrong_count(types.len(), wrong));
        }
    }
    let start = out.len();
    out.reserve(head.len() + 8 + total * 18 + result_formats.len() + 64);
    out.extend_from_slice(head);
    out.extend_from_slice(&count.to_be_bytes());
    // The formats come before the values, and are known after them.
    let formats = out.len();
    for _ in 0..total {
        out.extend_from_slice(&AS_TEXT.to_be_bytes());
    }
    out.extend_from_slice(&count.to_be_bytes());
    let params = rows.iter().flat_map(|row| row.as_ref().iter().enumerate());
    for (at, (n, param)) in params.enumerate() {
        let wanted = types.and_then(|types| types.get(n));
        let format = write_param(out, param, wanted).map_err(|wrong| {
            let message = format!("parameter {}: {wrong}", n + 1);
            Error::new(Kind::Type, message)
        })?;
        if format != AS_TEXT {
            let at = formats + at * 2;
            out[at..at + 2].copy_from_slice(&format.to_be_bytes());
        }
    }
    out.extend_from_slice(result_formats);
    set_length(out, start + 1)
}

/// Returns whether the value is written in binary for a parameter of this type.
#[inline]
pub(super) fn is_binary(value: &Value<'_>, wanted: Option<&Type>) -> bool {
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

/// Writes a parameter with its length, and returns its format; or what is wrong with it.
fn write_param(out: &mut Vec<u8>, param: &Param<'_>, wanted: Option<&Type>) -> Result<i16, String> {
    let mut format = AS_TEXT;
    with_length(out, |out| match param {
        Param::Value(value) if is_binary(value, wanted) => {
            format = AS_BINARY;
            write_binary(out, value, wanted)
        }
        Param::Value(Value::Array(_)) if wanted.is_some_and(takes_any_text) => Err(
            "an array was given where the SQL takes one text: write IN (?) with cenote::list(..), \
             or = ANY(?) with the array"
                .to_owned(),
        ),
        Param::Value(value) => write_text(out, value).map_err(|_| "cannot be written".to_owned()),
        Param::Native(native) => {
            let (native_format, is_null) = write_native(out, native, wanted)?;
            if let Format::Binary = native_format {
                format = AS_BINARY;
            }
            Ok(is_null)
        }
    })?;
    Ok(format)
}

/// Writes a value with its length before it, or NULL; or returns what is wrong with it.
#[inline]
pub(super) fn with_length(
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>) -> Result<IsNull, String>,
) -> Result<(), String> {
    let at = out.len();
    out.extend_from_slice(&(-1_i32).to_be_bytes());
    match write(out)? {
        // A `ToSql` may have written something before it returned NULL.
        IsNull::Yes => out.truncate(at + 4),
        IsNull::No => {
            let len = i32::try_from(out.len() - at - 4);
            let len = len.map_err(|_| "it is too large".to_owned())?;
            out[at..at + 4].copy_from_slice(&len.to_be_bytes());
        }
    }
    Ok(())
}

/// Writes a native parameter, and returns its format.
pub(super) fn write_native(
    out: &mut Vec<u8>,
    native: &Native,
    wanted: Option<&Type>,
) -> Result<(Format, IsNull), String> {
    let Some(PgValue(value)) = native.value.downcast_ref::<PgValue>() else {
        return Err(format!(
            "PostgreSQL does not know the type {}; wrap a ToSql with cenote::postgres::param",
            native.type_name
        ));
    };
    let Some(wanted) = wanted else {
        return Err("its type is not known".to_owned());
    };
    let format = value.encode_format(wanted);
    let mut bytes = BytesMut::new();
    let written = value.to_sql_checked(wanted, &mut bytes);
    let is_null =
        written.map_err(|wrong| format!("a {} as {wanted}: {wrong}", native.type_name))?;
    out.extend_from_slice(&bytes);
    Ok((format, is_null))
}

#[inline]
pub(super) fn write_binary(
    out: &mut Vec<u8>,
    value: &Value<'_>,
    wanted: Option<&Type>,
) -> Result<IsNull, String> {
    match value {
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Bool(truth) => out.push(u8::from(*truth)),
        Value::Int(number) => match wanted {
            Some(&Type::INT4) => out.extend_from_slice(&narrow::<i32>(*number)?.to_be_bytes()),
            Some(&Type::INT2) => out.extend_from_slice(&narrow::<i16>(*number)?.to_be_bytes()),
            _ => out.extend_from_slice(&number.to_be_bytes()),
        },
        Value::Float(number) => out.extend_from_slice(&number.to_be_bytes()),
        Value::Uuid(uuid) => out.extend_from_slice(uuid),
        Value::Date(date) => {
            out.extend_from_slice(&narrow::<i32>(calendar::days(*date))?.to_be_bytes())
        }
        Value::Time(time) => out.extend_from_slice(&calendar::microseconds(*time).to_be_bytes()),
        Value::DateTime(moment) | Value::Timestamp(moment) => {
            let since = calendar::microseconds_since_origin(*moment);
            let since = since.ok_or_else(|| format!("{moment} is out of range"))?;
            out.extend_from_slice(&since.to_be_bytes());
        }
        other => return Err(format!("{} has no binary form", other.type_name())),
    }
    Ok(IsNull::No)
}

fn narrow<T: TryFrom<i64>>(number: i64) -> Result<T, String> {
    T::try_from(number).map_err(|_| format!("{number} is out of range"))
}

pub(super) fn write_text(out: &mut Vec<u8>, value: &Value<'_>) -> io::Result<IsNull> {
    match value {
        Value::Null => return Ok(IsNull::Yes),
        Value::Bool(truth) => out.push(if *truth { b't' } else { b'f' }),
        Value::Int(number) => write!(out, "{number}")?,
        Value::UInt(number) => write!(out, "{number}")?,
        Value::Float(number) if number.is_nan() => out.extend_from_slice(b"NaN"),
        Value::Float(number) if number.is_infinite() => {
            out.extend_from_slice(if *number > 0.0 {
                b"Infinity"
            } else {
                b"-Infinity"
            });
        }
        Value::Float(number) => write!(out, "{number:e}")?,
        Value::Decimal(text) | Value::Text(text) | Value::Json(text) => {
            out.extend_from_slice(text.as_bytes());
        }
        Value::Bytes(bytes) => out.extend_from_slice(bytes),
        Value::Date(date) => write!(out, "{}{}", Day(*date), era(*date))?,
        Value::Time(time) => write!(out, "{}", Clock(*time))?,
        Value::DateTime(moment) => write_moment(out, moment, "")?,
        Value::Timestamp(moment) => write_moment(out, moment, "+00")?,
        Value::Uuid(uuid) => out.extend_from_slice(hyphenated(*uuid).as_bytes()),
        Value::Array(elements) => write_array(out, elements)?,
    }
    Ok(IsNull::No)
}

/// Writes an array as text: the server infers its type, and reads each element as that.
fn write_array(out: &mut Vec<u8>, elements: &[Value<'_>]) -> io::Result<()> {
    out.push(b'{');
    for (n, element) in elements.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        match element {
            Value::Null => out.extend_from_slice(b"NULL"),
            Value::Array(elements) => write_array(out, elements)?,
            Value::Int(number) => write!(out, "{number}")?,
            element => write_quoted(out, element)?,
        }
    }
    out.push(b'}');
    Ok(())
}

fn write_quoted(out: &mut Vec<u8>, element: &Value<'_>) -> io::Result<()> {
    let mut text = Vec::new();
    match element {
        Value::Bytes(bytes) => {
            text.extend_from_slice(b"\\x");
            bytes
                .iter()
                .try_for_each(|byte| write!(text, "{byte:02x}"))?;
        }
        element => {
            write_text(&mut text, element)?;
        }
    }
    out.push(b'"');
    for byte in text {
        if matches!(byte, b'"' | b'\\') {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.push(b'"');
    Ok(())
}

fn write_moment(out: &mut Vec<u8>, moment: &DateTime, zone: &str) -> io::Result<()> {
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
            // There is no year 0: it is 1 BC.
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

/// A time of day, cut off at the microsecond: the server would round, and the last nanosecond
/// before midnight would become the next day.
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

/// Returns the value of a setting as text.
pub(super) fn setting(name: &str, value: &Value<'_>) -> Result<String> {
    if let Value::Bytes(_) | Value::Array(_) | Value::Null = value {
        let message = format!("the setting {name} cannot be {}", value.type_name());
        return Err(Error::new(Kind::Type, message));
    }
    let mut text = Vec::new();
    let written = write_text(&mut text, value).is_ok();
    let text = String::from_utf8(text).ok().filter(|_| written);
    text.ok_or_else(|| Error::new(Kind::Type, format!("the setting {name} cannot be written")))
}
