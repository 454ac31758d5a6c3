//! Cells that come as text, brought into the form that they have in binary; arrays into JSON.
//!
//! What cannot be read, because a setting of the session has it written otherwise, stays text.

use super::calendar;
use super::types::Shape;
use crate::driver::{BatchBuilder, CellBytes};
use crate::types::value::{Date, DateTime, Time};

/// Adds a cell that has come as text.
pub(super) fn push(rows: &mut BatchBuilder, shape: Shape, bytes: &[u8]) {
    if convert(rows, shape, bytes).is_none() {
        rows.cell(Shape::Text as u8, bytes);
    }
}

fn convert(rows: &mut BatchBuilder, shape: Shape, bytes: &[u8]) -> Option<()> {
    let tag = shape as u8;
    let text = || std::str::from_utf8(bytes).ok();
    match shape {
        Shape::Bool => rows.cell(tag, &[u8::from(truth(bytes)?)]),
        Shape::Int2 => rows.cell(tag, &text()?.parse::<i16>().ok()?.to_be_bytes()),
        Shape::Int4 => rows.cell(tag, &text()?.parse::<i32>().ok()?.to_be_bytes()),
        Shape::Int8 => rows.cell(tag, &text()?.parse::<i64>().ok()?.to_be_bytes()),
        Shape::Oid => rows.cell(tag, &text()?.parse::<u32>().ok()?.to_be_bytes()),
        Shape::Float4 => rows.cell(tag, &text()?.parse::<f32>().ok()?.to_be_bytes()),
        Shape::Float8 => rows.cell(tag, &text()?.parse::<f64>().ok()?.to_be_bytes()),
        Shape::Uuid => rows.cell(tag, &uuid(bytes)?),
        Shape::Date => rows.cell(tag, &date(text()?)?.to_be_bytes()),
        Shape::Time => rows.cell(tag, &time(text()?)?.to_be_bytes()),
        Shape::DateTime => rows.cell(tag, &moment(text()?)?.to_be_bytes()),
        Shape::Timestamp => rows.cell(tag, &timestamp(text()?)?.to_be_bytes()),
        Shape::Bytes => return push_bytes(rows, bytes),
        Shape::NumberArray | Shape::BoolArray | Shape::TextArray | Shape::JsonArray => {
            // Twice, because what is written to a cell cannot be taken back.
            array(bytes, shape, &mut |_| {})?;
            return rows.cell_with(Shape::Json as u8, |cell| {
                array(bytes, shape, &mut |piece| cell.push(piece))
            });
        }
        Shape::Text | Shape::Decimal | Shape::Json => rows.cell(tag, bytes),
    }
    Some(())
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

/// In hexadecimal digits, or with octal escapes, as the setting `bytea_output` says.
fn push_bytes(rows: &mut BatchBuilder, text: &[u8]) -> Option<()> {
    let tag = Shape::Bytes as u8;
    if let Some(digits) = text.strip_prefix(b"\\x") {
        let (pairs, odd) = digits.as_chunks::<2>();
        if !odd.is_empty() || !digits.iter().all(u8::is_ascii_hexdigit) {
            return None;
        }
        rows.cell_with(tag, |cell| {
            for [high, low] in pairs {
                cell.push(&[hex(*high).unwrap_or(0) << 4 | hex(*low).unwrap_or(0)]);
            }
        });
        return Some(());
    }
    unescape(text, |_| {})?;
    rows.cell_with(tag, |cell: &mut CellBytes<'_>| {
        unescape(text, |byte| cell.push(&[byte]))
    })
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

/// Days since the beginning of 2000.
fn date(text: &str) -> Option<i32> {
    match text {
        "infinity" => Some(i32::MAX),
        "-infinity" => Some(i32::MIN),
        _ => i32::try_from(calendar::days(day(text)?)).ok(),
    }
}

/// `2024-02-29`, `10000-01-01`, `0044-03-15 BC`.
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

/// Microseconds since midnight.
fn time(text: &str) -> Option<i64> {
    if text == "24:00:00" {
        return Some(calendar::MICROSECONDS_A_DAY);
    }
    text.parse::<Time>().ok().map(calendar::microseconds)
}

/// Microseconds since the beginning of 2000: `2024-02-29 09:05:00.25`.
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

/// Microseconds since the beginning of 2000, in UTC: `2024-02-29 09:05:00.25+02`.
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

/// How deep arrays lie in each other at most: PostgreSQL's own limit.
const DEEPEST: usize = 6;

/// Writes an array as JSON, piece by piece. `None` if it is none.
fn array(text: &[u8], shape: Shape, write: &mut dyn FnMut(&[u8])) -> Option<()> {
    std::str::from_utf8(text).ok()?;
    // Lower bounds other than 1 stand before it: `[0:1]={1,2}`.
    let text = match text {
        [b'[', ..] => {
            let bounds = text.iter().position(|byte| *byte == b'=')?;
            &text[bounds + 1..]
        }
        _ => text,
    };
    let mut array = ArrayText { rest: text, shape };
    array.level(DEEPEST, write)?;
    array.rest.is_empty().then_some(())
}

/// What is left of an array that is being read.
struct ArrayText<'t> {
    rest: &'t [u8],
    shape: Shape,
}

impl ArrayText<'_> {
    fn level(&mut self, depth: usize, write: &mut dyn FnMut(&[u8])) -> Option<()> {
        let deeper = depth.checked_sub(1)?;
        self.expect(b'{')?;
        write(b"[");
        if self.rest.first() != Some(&b'}') {
            loop {
                match self.rest.first()? {
                    b'{' => self.level(deeper, write)?,
                    b'"' => self.quoted(write)?,
                    _ => self.bare(write)?,
                }
                if self.rest.first() != Some(&b',') {
                    break;
                }
                self.expect(b',')?;
                write(b",");
            }
        }
        self.expect(b'}')?;
        write(b"]");
        Some(())
    }

    fn expect(&mut self, wanted: u8) -> Option<()> {
        let (first, rest) = self.rest.split_first()?;
        self.rest = rest;
        (*first == wanted).then_some(())
    }

    /// An element without quotes.
    fn bare(&mut self, write: &mut dyn FnMut(&[u8])) -> Option<()> {
        let end = self
            .rest
            .iter()
            .position(|byte| matches!(byte, b',' | b'}'))?;
        let (element, rest) = self.rest.split_at(end);
        self.rest = rest;
        if element.is_empty() {
            return None;
        }
        match (self.shape, element) {
            (_, b"NULL") => write(b"null"),
            (Shape::BoolArray, b"t") => write(b"true"),
            (Shape::BoolArray, b"f") => write(b"false"),
            (Shape::NumberArray, _) if is_json_number(element) => write(element),
            (Shape::JsonArray, _) => write(element),
            _ => write_string(element, write),
        }
        Some(())
    }

    /// An element in quotes, in which a backslash stands before a quote or a backslash.
    fn quoted(&mut self, write: &mut dyn FnMut(&[u8])) -> Option<()> {
        self.expect(b'"')?;
        let is_json = self.shape == Shape::JsonArray;
        if !is_json {
            write(b"\"");
        }
        loop {
            let (mut byte, mut rest) = self.rest.split_first()?;
            if *byte == b'"' {
                self.rest = rest;
                break;
            }
            if *byte == b'\\' {
                (byte, rest) = rest.split_first()?;
            }
            self.rest = rest;
            match is_json {
                true => write(&[*byte]),
                false => write_escaped(*byte, write),
            }
        }
        if !is_json {
            write(b"\"");
        }
        Some(())
    }
}

/// NaN and the infinities are none.
fn is_json_number(element: &[u8]) -> bool {
    element
        .iter()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E'))
}

fn write_string(text: &[u8], write: &mut dyn FnMut(&[u8])) {
    write(b"\"");
    for byte in text {
        write_escaped(*byte, write);
    }
    write(b"\"");
}

fn write_escaped(byte: u8, write: &mut dyn FnMut(&[u8])) {
    match byte {
        b'"' => write(b"\\\""),
        b'\\' => write(b"\\\\"),
        b'\n' => write(b"\\n"),
        b'\r' => write(b"\\r"),
        b'\t' => write(b"\\t"),
        0..0x20 => write(format!("\\u{byte:04x}").as_bytes()),
        _ => write(&[byte]),
    }
}
