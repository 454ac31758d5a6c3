//! Converts neutral values to SQLite's and back.
//!
//! SQLite has five types of value. Values of other types are stored as text:
//!
//! | neutral | in SQLite |
//! |---|---|
//! | NULL, int, float, text, bytes | NULL, INTEGER, REAL, TEXT, BLOB |
//! | bool | INTEGER 0 or 1 |
//! | unsigned int | INTEGER; an error above `i64::MAX` |
//! | decimal | TEXT of its digits, which a column with numeric affinity turns into a number |
//! | date, time | TEXT: `2024-02-29`, `09:05:00.250` |
//! | datetime, timestamp | TEXT as SQLite's own date functions write it, a timestamp in UTC: `2024-02-29 09:05:00` |
//! | UUID | TEXT with hyphens |
//! | JSON | TEXT |
//!
//! A row has the values that SQLite returns: an INTEGER, a TEXT. `Row::get` parses a text as a date, a UUID and so on.

use std::borrow::Cow;
use std::sync::Arc;

use rusqlite::types::{ToSqlOutput, Value as SqlValue, ValueRef};
use rusqlite::{Row, Statement, ToSql};

use crate::driver::{BatchBuilder, Column, Columns, Decode, Param, Value};
use crate::types::value::{DateTime, hyphenated, no_arrays};
use crate::{Error, Kind, Result};

const INTEGER: u8 = 1;
const REAL: u8 = 2;
const TEXT: u8 = 3;
const BLOB: u8 = 4;

/// The task yields after copying this many bytes of parameters.
const COPIED_AT_ONCE: usize = 256 * 1024;

/// Converts parameters to values that borrow nothing.
///
/// # Cancel safety
///
/// Dropped, nothing has happened.
///
/// # Errors
///
/// [`Kind::Type`] for the first value that SQLite cannot store.
pub(super) async fn to_sqlite(params: &[Param<'_>]) -> Result<Vec<SqlValue>> {
    let mut owned = Vec::with_capacity(params.len());
    for value in bound(params)? {
        owned.push(match value {
            Bound::Here(ValueRef::Text(text)) if text.len() > COPIED_AT_ONCE => {
                let mut copy = String::with_capacity(text.len());
                for part in parts(text) {
                    copy.push_str(&String::from_utf8_lossy(part));
                    tokio::task::yield_now().await;
                }
                SqlValue::Text(copy)
            }
            Bound::Here(ValueRef::Blob(bytes)) if bytes.len() > COPIED_AT_ONCE => {
                let mut copy = Vec::with_capacity(bytes.len());
                for part in bytes.chunks(COPIED_AT_ONCE) {
                    copy.extend_from_slice(part);
                    tokio::task::yield_now().await;
                }
                SqlValue::Blob(copy)
            }
            value => value.into_owned(),
        });
    }
    Ok(owned)
}

/// Splits a long text into parts, between characters.
fn parts(mut text: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let is_start = |at: &usize| text.get(*at).is_none_or(|byte| byte & 0xC0 != 0x80);
        let end = (COPIED_AT_ONCE.min(text.len())..=text.len()).find(is_start);
        let (part, rest) = text.split_at(end.unwrap_or(text.len()));
        text = rest;
        (!part.is_empty()).then_some(part)
    })
}

/// Converts parameters, borrowing texts and blobs.
///
/// # Errors
///
/// [`Kind::Type`] for the first value that SQLite cannot store.
pub(super) fn bound<'p>(params: &'p [Param<'_>]) -> Result<Vec<Bound<'p>>> {
    let convert = |(n, param): (usize, &'p Param<'_>)| bound_param(n, param);
    params.iter().enumerate().map(convert).collect()
}

/// Converts the parameter with this index, borrowing a text or blob.
#[inline]
pub(super) fn bound_param<'p>(n: usize, param: &'p Param<'_>) -> Result<Bound<'p>> {
    let converted = match param {
        Param::Value(value) => bound_value(value),
        Param::Native(native) => match native.value.downcast_ref::<SqlValue>() {
            Some(value) => Ok(Bound::Here(value.into())),
            None => Err(format!(
                "SQLite does not know the type {}",
                native.type_name
            )),
        },
    };
    converted.map_err(|wrong| Error::new(Kind::Type, format!("parameter {}: {wrong}", n + 1)))
}

/// A value for SQLite: borrowed, or converted.
#[derive(Debug)]
pub(super) enum Bound<'p> {
    Here(ValueRef<'p>),
    Made(String),
}

impl Bound<'_> {
    /// Returns the number of bytes of a text or blob; 0 for others.
    pub(super) fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Returns the bytes of a text or blob; none for others.
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Bound::Here(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => bytes,
            Bound::Here(_) => &[],
            Bound::Made(text) => text.as_bytes(),
        }
    }

    fn into_owned(self) -> SqlValue {
        match self {
            Bound::Here(ValueRef::Null) => SqlValue::Null,
            Bound::Here(ValueRef::Integer(number)) => SqlValue::Integer(number),
            Bound::Here(ValueRef::Real(number)) => SqlValue::Real(number),
            Bound::Here(ValueRef::Text(text)) => {
                SqlValue::Text(String::from_utf8_lossy(text).into_owned())
            }
            Bound::Here(ValueRef::Blob(bytes)) => SqlValue::Blob(bytes.to_vec()),
            Bound::Made(text) => SqlValue::Text(text),
        }
    }
}

impl ToSql for Bound<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Bound::Here(value) => *value,
            Bound::Made(text) => ValueRef::Text(text.as_bytes()),
        }))
    }
}

/// Converts one value, or says what is wrong with it.
pub(super) fn value_to_sqlite(value: &Value<'_>) -> Result<SqlValue, String> {
    bound_value(value).map(Bound::into_owned)
}

fn bound_value<'p>(value: &'p Value<'_>) -> Result<Bound<'p>, String> {
    let here = match value {
        Value::Null => ValueRef::Null,
        Value::Bool(truth) => ValueRef::Integer(i64::from(*truth)),
        Value::Int(number) => ValueRef::Integer(*number),
        Value::UInt(number) => match i64::try_from(*number) {
            Ok(number) => ValueRef::Integer(number),
            Err(_) => return Err(format!("{number} is too large for SQLite's INTEGER")),
        },
        // SQLite would store NULL and report nothing.
        Value::Float(number) if number.is_nan() => {
            return Err("SQLite has no NaN".to_owned());
        }
        Value::Float(number) => ValueRef::Real(*number),
        Value::Decimal(text) | Value::Text(text) | Value::Json(text) => {
            ValueRef::Text(text.as_bytes())
        }
        Value::Bytes(bytes) => ValueRef::Blob(bytes),
        Value::Date(date) => return Ok(Bound::Made(date.to_string())),
        Value::Time(time) => return Ok(Bound::Made(time.to_string())),
        Value::DateTime(moment) | Value::Timestamp(moment) => {
            return Ok(Bound::Made(with_space(moment)));
        }
        Value::Uuid(uuid) => return Ok(Bound::Made(hyphenated(*uuid))),
        Value::Array(_) => return Err(no_arrays("SQLite")),
    };
    Ok(Bound::Here(here))
}

/// Writes a datetime as SQLite's own functions do, so that texts of both compare.
fn with_space(moment: &DateTime) -> String {
    format!("{} {}", moment.date, moment.time)
}

/// Converts a value of SQLite to a neutral one.
pub(super) fn from_sqlite(value: ValueRef<'_>) -> Result<Value<'_>> {
    Ok(match value {
        ValueRef::Null => Value::Null,
        ValueRef::Integer(number) => Value::Int(number),
        ValueRef::Real(number) => Value::Float(number),
        ValueRef::Text(bytes) => Value::Text(Cow::Borrowed(utf8(bytes)?)),
        ValueRef::Blob(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
    })
}

fn utf8(bytes: &[u8]) -> Result<&str> {
    std::str::from_utf8(bytes)
        .map_err(|error| Error::new(Kind::Type, "the text is no UTF-8").because(error))
}

/// Reads the bytes that [`push_row`] writes.
struct Cells;

impl Decode for Cells {
    fn value<'r>(&self, _column: &Column, tag: u8, bytes: &'r [u8]) -> Result<Value<'r>> {
        Ok(match tag {
            INTEGER => Value::Int(i64::from_le_bytes(eight(bytes)?)),
            REAL => Value::Float(f64::from_le_bytes(eight(bytes)?)),
            TEXT => Value::Text(Cow::Borrowed(utf8(bytes)?)),
            BLOB => Value::Bytes(Cow::Borrowed(bytes)),
            unknown => {
                let message = format!("SQLite's rows have no cells with the tag {unknown}");
                return Err(Error::new(Kind::Type, message));
            }
        })
    }
}

fn eight(bytes: &[u8]) -> Result<[u8; 8]> {
    bytes.try_into().map_err(|_| {
        let message = format!("a number of SQLite's has 8 bytes, not {}", bytes.len());
        Error::new(Kind::Type, message)
    })
}

/// Returns the columns of a statement's rows. They are certain after its first step: before it, SQLite may
/// still notice a change of the schema.
pub(super) fn columns_of(statement: &Statement<'_>) -> Arc<Columns> {
    let columns = statement.columns().map(|column| Column {
        name: column.name().to_owned(),
        type_name: column.decl_type().map(str::to_owned),
        type_id: 0,
        native: None,
    });
    Columns::new(columns.collect(), &Cells)
}

/// Returns the bytes of a row's texts and blobs.
pub(super) fn row_bytes(row: &Row<'_>) -> usize {
    let bytes = |n| match row.get_ref(n) {
        Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => bytes.len(),
        _ => 0,
    };
    (0..row.as_ref().column_count()).map(bytes).sum()
}

/// Adds a row to the batch.
pub(super) fn push_row(rows: &mut BatchBuilder, row: &Row<'_>) -> Result<()> {
    let width = row.as_ref().column_count();
    for n in 0..width {
        match row.get_ref(n).map_err(super::error::from_sqlite)? {
            ValueRef::Null => rows.null(),
            ValueRef::Integer(number) => rows.cell(INTEGER, &number.to_le_bytes()),
            ValueRef::Real(number) => rows.cell(REAL, &number.to_le_bytes()),
            ValueRef::Text(bytes) => rows.cell(TEXT, bytes),
            ValueRef::Blob(bytes) => rows.cell(BLOB, bytes),
        }
    }
    rows.end_row()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::Native;
    use crate::types::value::{Date, Time};

    fn stored(value: Value<'_>) -> SqlValue {
        value_to_sqlite(&value).unwrap()
    }

    #[test]
    fn what_sqlite_has_no_kind_for_is_text() {
        let date = Date::new(2024, 2, 29).unwrap();
        let time = Time::new(9, 5, 0, 250_000_000).unwrap();
        let moment = DateTime::new(date, time);
        let text = |text: &str| SqlValue::Text(text.to_owned());
        assert_eq!(stored(Value::Date(date)), text("2024-02-29"));
        assert_eq!(stored(Value::Time(time)), text("09:05:00.250"));
        let written = text("2024-02-29 09:05:00.250");
        assert_eq!(stored(Value::DateTime(moment)), written);
        assert_eq!(stored(Value::Timestamp(moment)), written);
        assert_eq!(stored(Value::Decimal("-12.50".into())), text("-12.50"));
        assert_eq!(stored(Value::Json("{}".into())), text("{}"));
        assert_eq!(
            stored(Value::Uuid([0x11; 16])),
            text("11111111-1111-1111-1111-111111111111")
        );
        assert_eq!(stored(Value::Bool(true)), SqlValue::Integer(1));
    }

    #[tokio::test]
    async fn number_out_of_range_is_an_error_that_names_the_parameter() {
        let largest = i64::MAX.unsigned_abs();
        let fits = [Param::Value(Value::UInt(largest))];
        assert_eq!(
            to_sqlite(&fits).await.unwrap(),
            [SqlValue::Integer(i64::MAX)]
        );
        let params = [
            Param::Value(Value::Int(1)),
            Param::Value(Value::UInt(largest + 1)),
        ];
        let error = to_sqlite(&params).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Type);
        assert!(
            error
                .message()
                .starts_with("parameter 2: 9223372036854775808")
        );
    }

    #[test]
    fn not_a_number_is_an_error_and_no_silent_null() {
        assert!(value_to_sqlite(&Value::Float(f64::NAN)).is_err());
        assert_eq!(
            stored(Value::Float(f64::INFINITY)),
            SqlValue::Real(f64::INFINITY)
        );
    }

    #[tokio::test]
    async fn a_native_value_that_is_not_sqlites_is_an_error_that_names_it() {
        let native = |value| {
            Param::Native(Native {
                type_name: "Point",
                value,
            })
        };
        let error = to_sqlite(&[native(Arc::new((1, 2)))]).await.unwrap_err();
        assert_eq!(error.kind(), Kind::Type);
        assert!(error.message().contains("Point"), "{error}");
        let own = SqlValue::Integer(7);
        let param = native(Arc::new(own.clone()));
        assert_eq!(to_sqlite(&[param]).await.unwrap(), [own]);
    }

    #[test]
    fn text_that_is_no_utf8_is_an_error_when_it_is_asked_for() {
        let column = Column::new("a");
        let error = Cells.value(&column, TEXT, &[0xff]).unwrap_err();
        assert_eq!(error.kind(), Kind::Type);
        assert!(Cells.value(&column, BLOB, &[0xff]).is_ok());
        assert!(Cells.value(&column, INTEGER, &[1]).is_err());
        assert!(Cells.value(&column, 9, &[]).is_err());
    }

    #[tokio::test]
    async fn a_long_text_is_copied_in_parts_that_end_with_a_character() {
        let long = "aé€😀".repeat(COPIED_AT_ONCE / 4);
        let params = [Param::Value(Value::Text(long.as_str().into()))];
        assert_eq!(
            to_sqlite(&params).await.unwrap(),
            [SqlValue::Text(long.clone())]
        );
        let mut copies = parts(long.as_bytes());
        assert!(copies.all(|part| std::str::from_utf8(part).is_ok()));
        let bytes = [Param::Value(Value::Bytes(long.as_bytes().into()))];
        assert_eq!(
            to_sqlite(&bytes).await.unwrap(),
            [SqlValue::Blob(long.clone().into_bytes())]
        );
    }
}
