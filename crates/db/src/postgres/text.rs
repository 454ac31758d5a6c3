//! Values that arrived as text, converted to the form that they have in binary.
//!
//! A text that cannot be parsed, because a setting of the session changes how it is written, stays text.

use std::borrow::Cow;

use smallvec::SmallVec;

use super::calendar;
use super::types::{Shape, decimal, decode};
use crate::driver::{BatchBuilder, CellBytes, Value};
use crate::types::value::{Date, DateTime, Time};

/// Adds a cell that arrived as text.
pub(super) fn push(rows: &mut BatchBuilder, shape: Shape, bytes: &[u8]) {
    if convert(rows, shape, bytes).is_none() {
        rows.cell(Shape::Text as u8, bytes);
    }
}

fn convert(rows: &mut BatchBuilder, shape: Shape, bytes: &[u8]) -> Option<()> {
    let tag = shape as u8;
    match shape {
        Shape::Text | Shape::Decimal | Shape::Json | Shape::Array => rows.cell(tag, bytes),
        Shape::Bytes => {
            // Twice, because bytes that were added to a cell cannot be removed.
            bytea(bytes, |_| {})?;
            return rows.cell_with(tag, |cell: &mut CellBytes<'_>| {
                bytea(bytes, |byte| cell.push(&[byte]))
            });
        }
        _ => rows.cell(tag, &fixed(shape, bytes)?),
    }
    Some(())
}

/// Returns the value of a text, which is an element of an array.
pub(super) fn value(shape: Shape, text: Cow<'_, str>) -> Value<'_> {
    let converted = match shape {
        Shape::Text | Shape::Array => None,
        Shape::Decimal => return decimal(text),
        Shape::Json => return Value::Json(text),
        Shape::Bytes => {
            let mut bytes = Vec::new();
            let read = bytea(text.as_bytes(), |byte| bytes.push(byte));
            read.map(|()| Value::Bytes(Cow::Owned(bytes)))
        }
        _ => fixed(shape, text.as_bytes())
            .and_then(|bytes| decode(shape as u8, &bytes).ok().map(Value::into_owned)),
    };
    converted.unwrap_or(Value::Text(text))
}

/// Returns the binary form of a type whose values have a fixed size.
pub(super) fn fixed(shape: Shape, bytes: &[u8]) -> Option<SmallVec<[u8; 16]>> {
    let text = || std::str::from_utf8(bytes).ok();
    Some(match shape {
        Shape::Bool => SmallVec::from_slice(&[u8::from(truth(bytes)?)]),
        Shape::Int2 => SmallVec::from_slice(&text()?.parse::<i16>().ok()?.to_be_bytes()),
        Shape::Int4 => SmallVec::from_slice(&text()?.parse::<i32>().ok()?.to_be_bytes()),
        Shape::Int8 => SmallVec::from_slice(&text()?.parse::<i64>().ok()?.to_be_bytes()),
        Shape::Oid => SmallVec::from_slice(&text()?.parse::<u32>().ok()?.to_be_bytes()),
        Shape::Float4 => SmallVec::from_slice(&text()?.parse::<f32>().ok()?.to_be_bytes()),
        Shape::Float8 => SmallVec::from_slice(&text()?.parse::<f64>().ok()?.to_be_bytes()),
        Shape::Uuid => SmallVec::from_slice(&uuid(bytes)?),
        Shape::Date => SmallVec::from_slice(&date(text()?)?.to_be_bytes()),
        Shape::Time => SmallVec::from_slice(&time(text()?)?.to_be_bytes()),
        Shape::DateTime => SmallVec::from_slice(&moment(text()?)?.to_be_bytes()),
        Shape::Timestamp => SmallVec::from_slice(&timestamp(text()?)?.to_be_bytes()),
        Shape::Text | Shape::Decimal | Shape::Json | Shape::Array | Shape::Bytes => return None,
    })
}

fn truth(bytes: &[u8]) -> Option<bool> {
    match bytes {
        b"t" => Some(true),
        b"f" => Some(false),
        _ => None,
    }
}

fn uuid(bytes: &[u8]) -> Option<[u8; 16]> {
    let mut uuid = [0; 16];
    let mut digits = bytes.iter().filter(|byte| **byte != b'-');
    for byte in &mut uuid {
        *byte = hex(*digits.next()?)? << 4 | hex(*digits.next()?)?;
    }
    digits.next().is_none().then_some(uuid)
}

fn hex(digit: u8) -> Option<u8> {
    let value = char::from(digit).to_digit(16)?;
    u8::try_from(value).ok()
}

/// Reads a bytea in hexadecimal digits or with octal escapes: the setting `bytea_output` decides.
pub(super) fn bytea(text: &[u8], mut push: impl FnMut(u8)) -> Option<()> {
    let Some(digits) = text.strip_prefix(b"\\x") else {
        return unescape(text, push);
    };
    let (pairs, odd) = digits.as_chunks::<2>();
    if !odd.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    for [high, low] in pairs {
        push(hex(*high)? << 4 | hex(*low)?);
    }
    Some(())
}

fn unescape(mut text: &[u8], mut push: impl FnMut(u8)) -> Option<()> {
    while let Some((byte, rest)) = text.split_first() {
        text = rest;
        if *byte != b'\\' {
            push(*byte);
            continue;
        }
        match text {
            [b'\\', rest @ ..] => {
                push(b'\\');
                text = rest;
            }
            [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..] => {
                push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                text = rest;
            }
            _ => return None,
        }
    }
    Some(())
}

/// Returns the days since the beginning of 2000.
fn date(text: &str) -> Option<i32> {
    match text {
        "infinity" => Some(i32::MAX),
        "-infinity" => Some(i32::MIN),
        _ => i32::try_from(calendar::days(day(text)?)).ok(),
    }
}

/// Parses `2024-02-29`, `10000-01-01`, `0044-03-15 BC`.
fn day(text: &str) -> Option<Date> {
    let (text, is_before_christ) = match text.strip_suffix(" BC") {
        Some(text) => (text, true),
        None => (text, false),
    };
    let mut parts = text.split('-');
    let year = parts.next().filter(|year| year.len() >= 4)?;
    let year: i32 = year.parse().ok()?;
    let month = parts.next()?.parse().ok()?;
    let day = parts.next()?.parse().ok()?;
    let year = if is_before_christ { 1 - year } else { year };
    Date::new(year, month, day).filter(|_| parts.next().is_none())
}

/// Returns the microseconds since midnight.
fn time(text: &str) -> Option<i64> {
    if text == "24:00:00" {
        return Some(calendar::MICROSECONDS_A_DAY);
    }
    text.parse::<Time>().ok().map(calendar::microseconds)
}

/// Returns the microseconds since the beginning of 2000: `2024-02-29 09:05:00.25`.
fn moment(text: &str) -> Option<i64> {
    match text {
        "infinity" => return Some(i64::MAX),
        "-infinity" => return Some(i64::MIN),
        _ => {}
    }
    let (text, era) = match text.strip_suffix(" BC") {
        Some(text) => (text, " BC"),
        None => (text, ""),
    };
    let (date, time) = text.split_once(' ')?;
    let date = match era {
        "" => day(date)?,
        era => day(&format!("{date}{era}"))?,
    };
    let time = time.parse().ok()?;
    calendar::microseconds_since_origin(DateTime { date, time })
}

/// Returns the microseconds since the beginning of 2000, in UTC: `2024-02-29 09:05:00.25+02`.
fn timestamp(text: &str) -> Option<i64> {
    if text.ends_with("infinity") {
        return moment(text);
    }
    let (text, era) = match text.strip_suffix(" BC") {
        Some(text) => (text, " BC"),
        None => (text, ""),
    };
    // Not one of the dashes of the date.
    let sign = text
        .rfind(['+', '-'])
        .filter(|at| *at > text.find(' ').unwrap_or(at + 1))?;
    let (local, offset) = text.split_at(sign);
    let mut parts = offset[1..].split(':');
    let hours: i64 = parts.next()?.parse().ok()?;
    let minutes: i64 = parts.next().map_or(Ok(0), str::parse).ok()?;
    let seconds: i64 = parts.next().map_or(Ok(0), str::parse).ok()?;
    let ahead = hours.checked_mul(60)?.checked_add(minutes)?;
    let ahead = ahead.checked_mul(60)?.checked_add(seconds)?;
    let ahead = ahead.checked_mul(1_000_000)?;
    let local = match era {
        "" => moment(local)?,
        era => moment(&format!("{local}{era}"))?,
    };
    match offset.starts_with('-') {
        true => local.checked_add(ahead),
        false => local.checked_sub(ahead),
    }
}
