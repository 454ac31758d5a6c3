//! Result columns, and their values in the neutral form.
//!
//! The server answers a statement without parameters in text, and a prepared one in binary. Every value is converted to one
//! form, so that both give the same cells.

use std::borrow::Cow;
use std::fmt::Write;
use std::sync::Arc;

use mysql_async::Value as Raw;
use mysql_async::consts::{ColumnFlags, ColumnType};

use super::session_effects::Misread;
use crate::driver::{BatchBuilder, Column, Columns, Decode, Value};
use crate::types::value::{Date, DateTime, Time};
use crate::{Error, Kind, Result};

/// The layout of a result's rows.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) columns: Arc<Columns>,
    shapes: Arc<[Shape]>,
    /// The server's description of the columns.
    described: Arc<[mysql_async::Column]>,
}

/// How the values of a column are converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Int,
    UInt,
    Float,
    Double,
    Bit,
    Date,
    /// With this many digits of fractional seconds.
    DateTime(usize),
    Timestamp(usize),
    Time(usize),
    /// Text or bytes, not converted: its cells have this tag.
    AsItComes(u8),
    /// Text in a character set other than UTF-8.
    Misread,
}

/// The character set of values that are not text.
const BINARY: u16 = 63;

impl Layout {
    /// `is_utc`: the session's time zone is UTC, so a TIMESTAMP is a point in time.
    pub(super) fn new(described: Arc<[mysql_async::Column]>, is_utc: bool) -> Arc<Self> {
        let column = |column: &mysql_async::Column| Column {
            name: column.name_str().into_owned(),
            type_name: Some(type_name(column)),
            type_id: u32::from(column.column_type() as u8),
            native: None,
        };
        Arc::new(Layout {
            columns: Columns::new(described.iter().map(column).collect(), &Cells),
            shapes: described
                .iter()
                .map(|column| shape(column, is_utc))
                .collect(),
            described,
        })
    }

    /// Returns the layout for this description: usually the same as last time.
    #[inline]
    pub(super) fn now(
        self: &Arc<Self>,
        said: Arc<[mysql_async::Column]>,
        is_utc: bool,
    ) -> Arc<Self> {
        match Arc::ptr_eq(&self.described, &said) {
            true => Arc::clone(self),
            false => self.described_anew(said, is_utc),
        }
    }

    #[cold]
    fn described_anew(&self, said: Arc<[mysql_async::Column]>, is_utc: bool) -> Arc<Self> {
        if self.described != said {
            return Layout::new(said, is_utc);
        }
        // Stores the new description, so that the next comparison is by pointer.
        Arc::new(Layout {
            columns: Arc::clone(&self.columns),
            shapes: Arc::clone(&self.shapes),
            described: said,
        })
    }

    /// Appends a row.
    ///
    /// # Errors
    ///
    /// An error of the builder, or a value that does not match its column.
    pub(super) fn push(&self, rows: &mut BatchBuilder, row: &mysql_async::Row) -> Result<()> {
        for (n, shape) in self.shapes.iter().enumerate() {
            let value = row.as_ref(n).unwrap_or(&Raw::NULL);
            push_cell(rows, *shape, value)?;
        }
        rows.end_row()
    }
}

fn shape(column: &mysql_async::Column, is_utc: bool) -> Shape {
    let is_unsigned = column.flags().contains(ColumnFlags::UNSIGNED_FLAG);
    // More than six means "as many as there are".
    let fraction = usize::from(column.decimals()).min(6);
    match column.column_type() {
        ColumnType::MYSQL_TYPE_LONGLONG if is_unsigned => Shape::UInt,
        ColumnType::MYSQL_TYPE_TINY
        | ColumnType::MYSQL_TYPE_SHORT
        | ColumnType::MYSQL_TYPE_INT24
        | ColumnType::MYSQL_TYPE_LONG
        | ColumnType::MYSQL_TYPE_LONGLONG
        | ColumnType::MYSQL_TYPE_YEAR => Shape::Int,
        ColumnType::MYSQL_TYPE_FLOAT => Shape::Float,
        ColumnType::MYSQL_TYPE_DOUBLE => Shape::Double,
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL => {
            Shape::AsItComes(DECIMAL)
        }
        ColumnType::MYSQL_TYPE_BIT => Shape::Bit,
        ColumnType::MYSQL_TYPE_DATE | ColumnType::MYSQL_TYPE_NEWDATE => Shape::Date,
        ColumnType::MYSQL_TYPE_DATETIME | ColumnType::MYSQL_TYPE_DATETIME2 => {
            Shape::DateTime(fraction)
        }
        ColumnType::MYSQL_TYPE_TIMESTAMP | ColumnType::MYSQL_TYPE_TIMESTAMP2 => match is_utc {
            true => Shape::Timestamp(fraction),
            false => Shape::DateTime(fraction),
        },
        ColumnType::MYSQL_TYPE_TIME | ColumnType::MYSQL_TYPE_TIME2 => Shape::Time(fraction),
        ColumnType::MYSQL_TYPE_JSON => Shape::AsItComes(JSON),
        ColumnType::MYSQL_TYPE_GEOMETRY => Shape::AsItComes(BYTES),
        _ if column.character_set() == BINARY => Shape::AsItComes(BYTES),
        _ if is_utf8(column.character_set()) => Shape::AsItComes(TEXT),
        _ => Shape::Misread,
    }
}

/// Whether text of this collation is UTF-8. Routines and triggers can change `character_set_results`, which only the columns
/// show. Numbers above 255 are newer collations, which are the default of Unicode character sets only.
fn is_utf8(collation: u16) -> bool {
    matches!(collation, 33 | 45 | 46 | 76 | 83 | 192..=215 | 223..=247 | 255..)
}

/// Returns the SQL name of a column's type.
fn type_name(column: &mysql_async::Column) -> String {
    let flags = column.flags();
    let is_binary = column.character_set() == BINARY;
    let either = |binary: &'static str, text: &'static str| if is_binary { binary } else { text };
    let name = match column.column_type() {
        ColumnType::MYSQL_TYPE_TINY => "TINYINT",
        ColumnType::MYSQL_TYPE_SHORT => "SMALLINT",
        ColumnType::MYSQL_TYPE_INT24 => "MEDIUMINT",
        ColumnType::MYSQL_TYPE_LONG => "INT",
        ColumnType::MYSQL_TYPE_LONGLONG => "BIGINT",
        ColumnType::MYSQL_TYPE_YEAR => return "YEAR".to_owned(),
        ColumnType::MYSQL_TYPE_FLOAT => "FLOAT",
        ColumnType::MYSQL_TYPE_DOUBLE => "DOUBLE",
        ColumnType::MYSQL_TYPE_DECIMAL | ColumnType::MYSQL_TYPE_NEWDECIMAL => "DECIMAL",
        ColumnType::MYSQL_TYPE_BIT => return "BIT".to_owned(),
        ColumnType::MYSQL_TYPE_DATE | ColumnType::MYSQL_TYPE_NEWDATE => "DATE",
        ColumnType::MYSQL_TYPE_DATETIME | ColumnType::MYSQL_TYPE_DATETIME2 => "DATETIME",
        ColumnType::MYSQL_TYPE_TIMESTAMP | ColumnType::MYSQL_TYPE_TIMESTAMP2 => "TIMESTAMP",
        ColumnType::MYSQL_TYPE_TIME | ColumnType::MYSQL_TYPE_TIME2 => "TIME",
        ColumnType::MYSQL_TYPE_JSON => "JSON",
        ColumnType::MYSQL_TYPE_GEOMETRY => "GEOMETRY",
        ColumnType::MYSQL_TYPE_NULL => "NULL",
        _ if flags.contains(ColumnFlags::ENUM_FLAG) => "ENUM",
        _ if flags.contains(ColumnFlags::SET_FLAG) => "SET",
        ColumnType::MYSQL_TYPE_STRING => either("BINARY", "CHAR"),
        ColumnType::MYSQL_TYPE_VAR_STRING | ColumnType::MYSQL_TYPE_VARCHAR => {
            either("VARBINARY", "VARCHAR")
        }
        _ => either("BLOB", "TEXT"),
    };
    match flags.contains(ColumnFlags::UNSIGNED_FLAG) {
        true => format!("{name} UNSIGNED"),
        false => name.to_owned(),
    }
}

const INT: u8 = 1;
const UINT: u8 = 2;
const FLOAT: u8 = 3;
const DECIMAL: u8 = 4;
const TEXT: u8 = 5;
const BYTES: u8 = 6;
const DATE: u8 = 7;
const TIME: u8 = 8;
const DATE_TIME: u8 = 9;
const TIMESTAMP: u8 = 10;
const JSON: u8 = 11;

#[inline]
fn push_cell(rows: &mut BatchBuilder, shape: Shape, value: &Raw) -> Result<()> {
    let number;
    let (tag, bytes): (u8, &[u8]) = match (shape, value) {
        (Shape::AsItComes(tag), Raw::Bytes(bytes)) => (tag, bytes),
        (Shape::Int, Raw::Int(value)) => {
            number = value.to_le_bytes();
            (INT, &number)
        }
        (Shape::UInt, Raw::UInt(value)) => {
            number = value.to_le_bytes();
            (UINT, &number)
        }
        _ => return push_converted(rows, shape, value),
    };
    rows.cell(tag, bytes);
    Ok(())
}

/// Appends a value that needs conversion.
#[inline(never)]
fn push_converted(rows: &mut BatchBuilder, shape: Shape, value: &Raw) -> Result<()> {
    match (shape, value) {
        (_, Raw::NULL) => rows.null(),
        (_, Raw::Int(number)) => push_int(rows, shape, i128::from(*number))?,
        (_, Raw::UInt(number)) => push_int(rows, shape, i128::from(*number))?,
        (_, Raw::Float(number)) => rows.cell(FLOAT, &f64::from(*number).to_le_bytes()),
        (_, Raw::Double(number)) => rows.cell(FLOAT, &number.to_le_bytes()),
        (_, Raw::Bytes(bytes)) => push_parsed(rows, shape, bytes)?,
        (_, Raw::Date(year, month, day, hour, minute, second, micros)) => {
            let date = Date::new(i32::from(*year), *month, *day);
            let time = time_of(*hour, *minute, *second, *micros);
            let (tag, fraction) = match shape {
                Shape::Date => (DATE, 0),
                Shape::Timestamp(fraction) => (TIMESTAMP, fraction),
                Shape::DateTime(fraction) => (DATE_TIME, fraction),
                _ => (DATE_TIME, 6),
            };
            match (date, time) {
                (Some(date), Some(time)) => push_moment(rows, tag, date, time),
                // Zero dates and impossible days: as the server writes them.
                _ => rows.cell_with(TEXT, |cell| {
                    let _ = write!(cell, "{year:04}-{month:02}-{day:02}");
                    if tag != DATE {
                        let _ = write!(cell, " {hour:02}:{minute:02}:{second:02}");
                        write_fraction(cell, *micros, fraction);
                    }
                }),
            }
        }
        (_, Raw::Time(is_negative, days, hour, minute, second, micros)) => {
            let fraction = match shape {
                Shape::Time(fraction) => fraction,
                _ => 6,
            };
            let time = time_of(*hour, *minute, *second, *micros);
            match time.filter(|_| !is_negative && *days == 0) {
                Some(time) => rows.cell_with(TIME, |cell| push_time(cell, time)),
                // A duration, not a time of day.
                None => rows.cell_with(TEXT, |cell| {
                    let sign = if *is_negative { "-" } else { "" };
                    let hours = u64::from(*days) * 24 + u64::from(*hour);
                    let _ = write!(cell, "{sign}{hours:02}:{minute:02}:{second:02}");
                    write_fraction(cell, *micros, fraction);
                }),
            }
        }
    }
    Ok(())
}

fn push_int(rows: &mut BatchBuilder, shape: Shape, number: i128) -> Result<()> {
    match (shape, i64::try_from(number), u64::try_from(number)) {
        (Shape::UInt, _, Ok(number)) => rows.cell(UINT, &number.to_le_bytes()),
        (_, Ok(number), _) => rows.cell(INT, &number.to_le_bytes()),
        (_, _, Ok(number)) => rows.cell(UINT, &number.to_le_bytes()),
        (_, Err(_), Err(_)) => return Err(unreadable("number")),
    }
    Ok(())
}

/// Appends a value that arrived as text.
fn push_parsed(rows: &mut BatchBuilder, shape: Shape, bytes: &[u8]) -> Result<()> {
    match shape {
        Shape::AsItComes(tag) => rows.cell(tag, bytes),
        Shape::Misread => return Err(Misread::Charset("character_set_results").error()),
        Shape::Int | Shape::UInt => push_int(rows, shape, parsed(bytes, "number")?)?,
        // Through `f32`, as in the binary form.
        Shape::Float => {
            let number: f32 = parsed(bytes, "number")?;
            rows.cell(FLOAT, &f64::from(number).to_le_bytes());
        }
        Shape::Double => {
            let number: f64 = parsed(bytes, "number")?;
            rows.cell(FLOAT, &number.to_le_bytes());
        }
        Shape::Bit => {
            let number = bytes.iter().try_fold(0_u64, |number, byte| {
                Some(number.checked_mul(256)? | u64::from(*byte))
            });
            let number = number.ok_or_else(|| unreadable("BIT"))?;
            rows.cell(UINT, &number.to_le_bytes());
        }
        Shape::Date => match text(bytes).and_then(|text| text.parse().ok()) {
            Some(date) => rows.cell_with(DATE, |cell| push_date(cell, date)),
            None => rows.cell(TEXT, bytes),
        },
        Shape::Time(_) => match text(bytes).and_then(|text| text.parse().ok()) {
            Some(time) => rows.cell_with(TIME, |cell| push_time(cell, time)),
            None => rows.cell(TEXT, bytes),
        },
        Shape::DateTime(_) | Shape::Timestamp(_) => {
            let is_moment = matches!(shape, Shape::Timestamp(_));
            let tag = if is_moment { TIMESTAMP } else { DATE_TIME };
            match text(bytes).and_then(|text| text.parse::<DateTime>().ok()) {
                Some(moment) => push_moment(rows, tag, moment.date, moment.time),
                None => rows.cell(TEXT, bytes),
            }
        }
    }
    Ok(())
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

fn parsed<T: std::str::FromStr>(bytes: &[u8], what: &str) -> Result<T> {
    let parsed = text(bytes).and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| unreadable(what))
}

fn unreadable(what: &str) -> Error {
    let message = format!("the server sent a malformed {what}");
    Error::new(Kind::Type, message)
}

fn time_of(hour: u8, minute: u8, second: u8, micros: u32) -> Option<Time> {
    Time::new(hour, minute, second, micros.checked_mul(1000)?)
}

type Bytes<'c, 'b> = &'c mut crate::driver::CellBytes<'b>;

fn push_moment(rows: &mut BatchBuilder, tag: u8, date: Date, time: Time) {
    rows.cell_with(tag, |cell| {
        push_date(cell, date);
        if tag != DATE {
            push_time(cell, time);
        }
    });
}

fn push_date(cell: Bytes<'_, '_>, date: Date) {
    cell.push(&date.year.to_le_bytes());
    cell.push(&[date.month, date.day]);
}

fn push_time(cell: Bytes<'_, '_>, time: Time) {
    cell.push(&[time.hour, time.minute, time.second]);
    cell.push(&time.nanosecond.to_le_bytes());
}

fn write_fraction(cell: Bytes<'_, '_>, micros: u32, digits: usize) {
    if digits > 0 {
        let all = format!("{micros:06}");
        let _ = write!(cell, ".{}", &all[..digits]);
    }
}

/// Reads the bytes that [`Layout::push`] writes.
struct Cells;

impl Decode for Cells {
    fn value<'r>(&self, _column: &Column, tag: u8, bytes: &'r [u8]) -> Result<Value<'r>> {
        Ok(match tag {
            INT => Value::Int(i64::from_le_bytes(sized(bytes)?)),
            UINT => Value::UInt(u64::from_le_bytes(sized(bytes)?)),
            FLOAT => Value::Float(f64::from_le_bytes(sized(bytes)?)),
            DECIMAL => Value::Decimal(Cow::Borrowed(utf8(bytes)?)),
            TEXT => Value::Text(Cow::Borrowed(utf8(bytes)?)),
            JSON => Value::Json(Cow::Borrowed(utf8(bytes)?)),
            BYTES => Value::Bytes(Cow::Borrowed(bytes)),
            DATE => Value::Date(read_date(bytes)?),
            TIME => Value::Time(read_time(bytes)?),
            DATE_TIME => Value::DateTime(read_moment(bytes)?),
            TIMESTAMP => Value::Timestamp(read_moment(bytes)?),
            unknown => {
                let message = format!("MySQL's rows have no cells with the tag {unknown}");
                return Err(Error::new(Kind::Type, message));
            }
        })
    }
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|error| Error::new(Kind::Type, "the text is no UTF-8").because(error))
}

fn sized<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    bytes
        .try_into()
        .map_err(|_| unreadable("value of another size"))
}

fn read_date(bytes: &[u8]) -> Result<Date> {
    let [y0, y1, y2, y3, month, day] = sized(bytes)?;
    let year = i32::from_le_bytes([y0, y1, y2, y3]);
    Date::new(year, month, day).ok_or_else(|| unreadable("date"))
}

fn read_time(bytes: &[u8]) -> Result<Time> {
    let [hour, minute, second, n0, n1, n2, n3] = sized(bytes)?;
    let nanosecond = u32::from_le_bytes([n0, n1, n2, n3]);
    Time::new(hour, minute, second, nanosecond).ok_or_else(|| unreadable("time"))
}

fn read_moment(bytes: &[u8]) -> Result<DateTime> {
    let (date, time) = bytes
        .split_at_checked(6)
        .ok_or_else(|| unreadable("moment"))?;
    Ok(DateTime::new(read_date(date)?, read_time(time)?))
}
