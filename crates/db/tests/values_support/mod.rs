//! A driver's side of rows: an encoder and a decoder of every kind of value.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use cenote::driver::{Batch, BatchBuilder, Column, Columns, Decode, Value};
use cenote::{Error, Kind, Result, Row};

/// Reads what [`write`] wrote.
#[derive(Debug)]
pub struct Decoder;

const BOOL: u8 = 0;
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
const UUID: u8 = 11;
const JSON: u8 = 12;
/// Text that has to be recoded, so that it cannot be borrowed.
pub const LATIN_1: u8 = 13;
/// JSON that cannot be borrowed.
pub const LATIN_1_JSON: u8 = 14;
/// Elements, each with its tag and its length.
const ARRAY: u8 = 15;
/// An element that is NULL.
const NULL: u8 = 16;
/// Bytes that cannot be read.
pub const UNREADABLE: u8 = 255;

impl Decode for Decoder {
    fn value<'r>(&self, _column: &Column, tag: u8, bytes: &'r [u8]) -> Result<Value<'r>> {
        let text = || std::str::from_utf8(bytes).unwrap();
        let latin_1 = || Cow::Owned(bytes.iter().copied().map(char::from).collect());
        let eight = || <[u8; 8]>::try_from(bytes).unwrap();
        Ok(match tag {
            BOOL => Value::Bool(bytes == [1]),
            INT => Value::Int(i64::from_le_bytes(eight())),
            UINT => Value::UInt(u64::from_le_bytes(eight())),
            FLOAT => Value::Float(f64::from_le_bytes(eight())),
            DECIMAL => Value::Decimal(Cow::Borrowed(text())),
            TEXT => Value::Text(Cow::Borrowed(text())),
            BYTES => Value::Bytes(Cow::Borrowed(bytes)),
            DATE => Value::Date(text().parse().unwrap()),
            TIME => Value::Time(text().parse().unwrap()),
            DATE_TIME => Value::DateTime(text().parse().unwrap()),
            TIMESTAMP => Value::Timestamp(text().parse().unwrap()),
            UUID => Value::Uuid(bytes.try_into().unwrap()),
            JSON => Value::Json(Cow::Borrowed(text())),
            LATIN_1 => Value::Text(latin_1()),
            LATIN_1_JSON => Value::Json(latin_1()),
            ARRAY => Value::Array(elements(bytes)?),
            _ => return Err(Error::new(Kind::Type, "the bytes are no value")),
        })
    }
}

/// A decoder that counts how often it is asked.
#[derive(Debug)]
pub struct CountingDecoder(pub AtomicUsize);

impl Decode for CountingDecoder {
    fn value<'r>(&self, column: &Column, tag: u8, bytes: &'r [u8]) -> Result<Value<'r>> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Decoder.value(column, tag, bytes)
    }
}

pub fn columns(names: &[&str]) -> Arc<Columns> {
    let columns = names.iter().map(|name| Column::new(*name)).collect();
    Columns::new(columns, &Decoder)
}

/// Writes a value as the next cell.
pub fn write(rows: &mut BatchBuilder, value: &Value<'_>) {
    match encode(value) {
        None => rows.null(),
        Some((tag, bytes)) => rows.cell(tag, &bytes),
    }
}

/// The tag and the bytes of a value; `None` for NULL.
fn encode(value: &Value<'_>) -> Option<(u8, Vec<u8>)> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(truth) => (BOOL, vec![u8::from(*truth)]),
        Value::Int(number) => (INT, number.to_le_bytes().into()),
        Value::UInt(number) => (UINT, number.to_le_bytes().into()),
        Value::Float(number) => (FLOAT, number.to_le_bytes().into()),
        Value::Decimal(digits) => (DECIMAL, digits.as_bytes().into()),
        Value::Text(text) => (TEXT, text.as_bytes().into()),
        Value::Bytes(bytes) => (BYTES, bytes.to_vec()),
        Value::Date(date) => (DATE, date.to_string().into()),
        Value::Time(time) => (TIME, time.to_string().into()),
        Value::DateTime(moment) => (DATE_TIME, moment.to_string().into()),
        Value::Timestamp(moment) => (TIMESTAMP, moment.to_string().into()),
        Value::Uuid(uuid) => (UUID, uuid.to_vec()),
        Value::Json(text) => (JSON, text.as_bytes().into()),
        Value::Array(elements) => {
            let mut bytes = Vec::new();
            for element in elements {
                let (tag, element) = encode(element).unwrap_or((NULL, Vec::new()));
                bytes.push(tag);
                bytes.extend(u32::try_from(element.len()).unwrap().to_le_bytes());
                bytes.extend(element);
            }
            (ARRAY, bytes)
        }
        other => panic!("a value of a new kind: {other:?}"),
    })
}

/// Reads the elements that [`encode`] wrote.
fn elements(mut bytes: &[u8]) -> Result<Vec<Value<'_>>> {
    let mut elements = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<5>() {
        let len = u32::from_le_bytes(head[1..].try_into().unwrap());
        let (element, rest) = rest.split_at(usize::try_from(len).unwrap());
        elements.push(match head[0] {
            NULL => Value::Null,
            tag => Decoder.value(&Column::new(""), tag, element)?,
        });
        bytes = rest;
    }
    Ok(elements)
}

pub fn batch(names: &[&str], rows: &[Vec<Value<'_>>]) -> Batch {
    let mut builder = BatchBuilder::new(columns(names));
    for row in rows {
        for value in row {
            write(&mut builder, value);
        }
        builder.end_row().unwrap();
    }
    builder.finish()
}

/// A row of these columns.
pub fn row(cells: &[(&str, Value<'_>)]) -> Row {
    let names: Vec<&str> = cells.iter().map(|(name, _)| *name).collect();
    let values = cells.iter().map(|(_, value)| value.clone()).collect();
    only(batch(&names, &[values]))
}

/// A row of one column, `it`.
pub fn single<'a>(value: impl Into<Value<'a>>) -> Row {
    row(&[("it", value.into())])
}

/// A row of one column, `it`, in the driver's own words.
pub fn raw(tag: u8, bytes: &[u8]) -> Row {
    let mut builder = BatchBuilder::new(columns(&["it"]));
    builder.cell(tag, bytes);
    builder.end_row().unwrap();
    only(builder.finish())
}

fn only(batch: Batch) -> Row {
    let mut rows = batch.into_rows();
    assert_eq!(rows.len(), 1);
    rows.next().unwrap()
}

/// What is said of a failure, after a look at its kind.
#[track_caller]
pub fn refusal<T: std::fmt::Debug>(result: Result<T>, kind: Kind) -> String {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), kind, "{error}");
    error.message().to_owned()
}
