//! Values of rows as PDO returns them.

use std::fmt::Write;

use cenote::driver::{Batch, Value};
use cenote::{Date, DateTime, Time};

use crate::pdo::settings::DriverKind;

/// What C makes a PHP value of; see `cen_cell`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "C reads the values")]
pub(crate) enum CellKind {
    Null,
    Bool,
    Int,
    Double,
    String,
    /// Bytes that PDO returns as a stream.
    Stream,
    /// The number of a large object of PostgreSQL.
    Oid,
}

/// A value for C; see `cen_cell`. A text borrows from the rows or from the buffer of its statement.
#[repr(C)]
pub(crate) struct Cell {
    kind: CellKind,
    int: i64,
    double: f64,
    text: *const u8,
    len: usize,
}

impl Cell {
    pub(crate) fn null() -> Self {
        Cell {
            kind: CellKind::Null,
            int: 0,
            double: 0.0,
            text: std::ptr::null(),
            len: 0,
        }
    }

    fn int(int: i64) -> Self {
        Cell {
            kind: CellKind::Int,
            int,
            ..Cell::null()
        }
    }

    fn double(double: f64) -> Self {
        Cell {
            kind: CellKind::Double,
            double,
            ..Cell::null()
        }
    }

    pub(crate) fn text(text: &[u8]) -> Self {
        Cell {
            kind: CellKind::String,
            text: text.as_ptr(),
            len: text.len(),
            ..Cell::null()
        }
    }

    fn of_kind(self, kind: CellKind) -> Self {
        Cell { kind, ..self }
    }
}

/// PostgreSQL's numbers of types.
pub(crate) mod oid {
    pub(crate) const BOOL: u32 = 16;
    pub(crate) const BYTEA: u32 = 17;
    pub(crate) const INT8: u32 = 20;
    pub(crate) const INT2: u32 = 21;
    pub(crate) const INT4: u32 = 23;
    pub(crate) const OID: u32 = 26;
}

/// MySQL's number of the type FLOAT.
const MYSQL_FLOAT: u32 = 4;

/// Returns a value of a row. `buffer` holds what has to be written anew.
pub(crate) fn cell(
    driver: DriverKind,
    rows: &Batch,
    row: usize,
    column: usize,
    buffer: &mut Vec<u8>,
) -> Cell {
    let Some((tag, bytes)) = rows.raw(row, column) else {
        return Cell::null();
    };
    let columns = rows.columns();
    let Some(described) = columns.get(column) else {
        return Cell::null();
    };
    if driver == DriverKind::Pgsql {
        return pgsql(described.type_id, bytes, buffer);
    }
    match columns.decode().value(described, tag, bytes) {
        Ok(Value::Float(number))
            if driver == DriverKind::Mysql && described.type_id == MYSQL_FLOAT =>
        {
            Cell::double(widened(number))
        }
        Ok(value) => neutral(&value, bytes, buffer),
        // A text that is no UTF-8.
        Err(_) => Cell::text(bytes),
    }
}

/// Returns a `float` as the double of its shortest text, as MySQL's own library does.
#[allow(clippy::cast_possible_truncation, reason = "it was a float")]
fn widened(number: f64) -> f64 {
    (number as f32).to_string().parse().unwrap_or(number)
}

fn neutral(value: &Value<'_>, bytes: &[u8], buffer: &mut Vec<u8>) -> Cell {
    match value {
        Value::Null => Cell::null(),
        Value::Bool(truth) => Cell::int(i64::from(*truth)).of_kind(CellKind::Bool),
        Value::Int(number) => Cell::int(*number),
        Value::UInt(number) => match i64::try_from(*number) {
            Ok(number) => Cell::int(number),
            Err(_) => written(buffer, &number.to_string()),
        },
        Value::Float(number) => Cell::double(*number),
        Value::Date(date) => written(buffer, &date_text(*date)),
        Value::Time(time) => written(buffer, &time_text(*time)),
        Value::DateTime(at) | Value::Timestamp(at) => written(buffer, &moment_text(*at)),
        // Texts and bytes are the bytes of the cell.
        _ => Cell::text(bytes),
    }
}

fn written(buffer: &mut Vec<u8>, text: &str) -> Cell {
    buffer.clear();
    buffer.extend_from_slice(text.as_bytes());
    Cell::text(buffer)
}

fn date_text(date: Date) -> String {
    format!("{:04}-{:02}-{:02}", date.year, date.month, date.day)
}

fn time_text(time: Time) -> String {
    let mut text = format!("{:02}:{:02}:{:02}", time.hour, time.minute, time.second);
    if time.nanosecond > 0 {
        let _ = write!(text, ".{:06}", time.nanosecond / 1000);
    }
    text
}

fn moment_text(at: DateTime) -> String {
    format!("{} {}", date_text(at.date), time_text(at.time))
}

/// The values arrive as the server writes them.
fn pgsql(type_id: u32, bytes: &[u8], buffer: &mut Vec<u8>) -> Cell {
    let number = || std::str::from_utf8(bytes).ok()?.parse::<i64>().ok();
    match type_id {
        oid::BOOL => Cell::int(i64::from(bytes == b"t")).of_kind(CellKind::Bool),
        oid::INT2 | oid::INT4 | oid::INT8 => number().map_or_else(|| Cell::text(bytes), Cell::int),
        oid::OID => number().map_or_else(
            || Cell::text(bytes),
            |oid| Cell::int(oid).of_kind(CellKind::Oid),
        ),
        oid::BYTEA => {
            unescape_bytea(bytes, buffer);
            Cell::text(buffer).of_kind(CellKind::Stream)
        }
        _ => Cell::text(bytes),
    }
}

/// Decodes both forms of `bytea_output`.
fn unescape_bytea(text: &[u8], to: &mut Vec<u8>) {
    to.clear();
    let digit = |byte: u8| {
        char::from(byte)
            .to_digit(16)
            .and_then(|d| u8::try_from(d).ok())
    };
    if let Some(hex) = text.strip_prefix(b"\\x") {
        let pairs = hex.chunks_exact(2);
        to.extend(pairs.filter_map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)));
        return;
    }
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        match (byte, after) {
            (b'\\', [b'\\', tail @ ..]) => {
                to.push(b'\\');
                rest = tail;
            }
            (b'\\', [a, b, c, tail @ ..]) if [a, b, c].iter().all(|d| d.is_ascii_digit()) => {
                let octal =
                    (u32::from(a - b'0') << 6) | (u32::from(b - b'0') << 3) | u32::from(c - b'0');
                to.push(u8::try_from(octal & 0xff).unwrap_or_default());
                rest = tail;
            }
            _ => to.push(byte),
        }
    }
}
