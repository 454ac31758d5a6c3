//! Rows of the fake as batches, and back.

use std::borrow::Cow;
use std::fmt::Display;
use std::str::FromStr;
use std::sync::Arc;

use cenote::driver::{Batch, BatchBuilder, Column, Columns, Decode, Value};
use cenote::{Error, Kind, Result};

/// The values of a row.
pub(super) type Row = Vec<Value<'static>>;

const BOOL: u8 = 1;
const INT: u8 = 2;
const UINT: u8 = 3;
const FLOAT: u8 = 4;
const DECIMAL: u8 = 5;
const TEXT: u8 = 6;
const BYTES: u8 = 7;
const DATE: u8 = 8;
const TIME: u8 = 9;
const DATE_TIME: u8 = 10;
const TIMESTAMP: u8 = 11;
const UUID: u8 = 12;
const JSON: u8 = 13;

/// Returns columns with these names.
pub(super) fn columns(names: impl IntoIterator<Item = String>) -> Arc<Columns> {
    Columns::new(names.into_iter().map(Column::new).collect(), &Cells)
}

/// Returns these rows as one batch.
///
/// # Errors
///
/// [`Kind::Column`] for a row with another number of values than there are columns.
pub(super) fn batch(columns: &Arc<Columns>, rows: &[Row]) -> Result<Batch> {
    let mut batch = BatchBuilder::new(Arc::clone(columns));
    for row in rows {
        row.iter().try_for_each(|value| push(&mut batch, value))?;
        batch.end_row()?;
    }
    Ok(batch.finish())
}

fn push(batch: &mut BatchBuilder, value: &Value<'_>) -> Result<()> {
    let mut text = |tag: u8, value: &dyn Display| batch.cell(tag, value.to_string().as_bytes());
    match value {
        Value::Null => batch.null(),
        Value::Bool(truth) => batch.cell(BOOL, &[u8::from(*truth)]),
        Value::Int(number) => batch.cell(INT, &number.to_le_bytes()),
        Value::UInt(number) => batch.cell(UINT, &number.to_le_bytes()),
        Value::Float(number) => batch.cell(FLOAT, &number.to_le_bytes()),
        Value::Decimal(digits) => batch.cell(DECIMAL, digits.as_bytes()),
        Value::Text(text) => batch.cell(TEXT, text.as_bytes()),
        Value::Bytes(bytes) => batch.cell(BYTES, bytes),
        Value::Date(date) => text(DATE, date),
        Value::Time(time) => text(TIME, time),
        Value::DateTime(moment) => text(DATE_TIME, moment),
        Value::Timestamp(moment) => text(TIMESTAMP, moment),
        Value::Uuid(uuid) => batch.cell(UUID, uuid),
        Value::Json(text) => batch.cell(JSON, text.as_bytes()),
        other => {
            let message = format!("the fake knows no values of type {}", other.type_name());
            return Err(Error::new(Kind::Type, message));
        }
    }
    Ok(())
}

/// Decodes what [`push`] wrote.
struct Cells;

impl Decode for Cells {
    fn value<'r>(&self, _column: &Column, tag: u8, bytes: &'r [u8]) -> Result<Value<'r>> {
        Ok(match tag {
            BOOL => Value::Bool(bytes == [1]),
            INT => Value::Int(i64::from_le_bytes(array(bytes)?)),
            UINT => Value::UInt(u64::from_le_bytes(array(bytes)?)),
            FLOAT => Value::Float(f64::from_le_bytes(array(bytes)?)),
            DECIMAL => Value::Decimal(Cow::Borrowed(utf8(bytes)?)),
            TEXT => Value::Text(Cow::Borrowed(utf8(bytes)?)),
            BYTES => Value::Bytes(Cow::Borrowed(bytes)),
            DATE => Value::Date(parse(bytes)?),
            TIME => Value::Time(parse(bytes)?),
            DATE_TIME => Value::DateTime(parse(bytes)?),
            TIMESTAMP => Value::Timestamp(parse(bytes)?),
            UUID => Value::Uuid(array(bytes)?),
            JSON => Value::Json(Cow::Borrowed(utf8(bytes)?)),
            unknown => return Err(unreadable(&format!("the tag {unknown}"))),
        })
    }
}

fn unreadable(what: &str) -> Error {
    Error::new(Kind::Type, format!("the fake never wrote {what}"))
}

fn array<const N: usize>(bytes: &[u8]) -> Result<[u8; N]> {
    let length = bytes.len();
    let array = bytes.try_into();
    array.map_err(|_| unreadable(&format!("{length} bytes for {N}")))
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes).map_err(|_| unreadable("what is no UTF-8"))
}

fn parse<T: FromStr>(bytes: &[u8]) -> Result<T> {
    let text = utf8(bytes)?;
    text.parse().map_err(|_| unreadable(text))
}
