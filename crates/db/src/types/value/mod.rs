//! Values that are the same for every database: parameters, and the cells of rows.

#[macro_use]
mod from_copy;

mod array;
mod convert_error;
mod deserialize_as;
mod from_value;
mod into_value;
mod moment;
mod moment_serde;

#[cfg(feature = "chrono")]
mod chrono;
#[cfg(feature = "decimal")]
mod decimal;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "json")]
mod json_path;
#[cfg(feature = "time")]
mod time;
#[cfg(feature = "uuid")]
mod uuid;

use std::borrow::Cow;

pub use array::ArrayElement;
#[cfg(any(feature = "sqlite", feature = "mysql", feature = "odbc"))]
pub(crate) use array::no_arrays;
pub use convert_error::ConvertError;
pub use from_value::FromValue;
#[cfg(feature = "json")]
pub use json::Json;
#[cfg(feature = "json")]
pub(crate) use json::{JSON_NEWTYPE, document as json_document};
#[cfg(feature = "json")]
pub(crate) use json_path::explained as json_explained;
pub use moment::{Date, DateTime, Time};

/// A value of any database.
///
/// It borrows where possible: the text of a row is copied only by [`Value::into_owned`].
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value<'a> {
    /// NULL.
    Null,
    /// A boolean.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A whole number that may be too large for [`Value::Int`].
    UInt(u64),
    /// A floating-point number.
    Float(f64),
    /// An exact decimal number, in digits: `-12.50`.
    Decimal(Cow<'a, str>),
    /// Text.
    Text(Cow<'a, str>),
    /// Bytes.
    Bytes(Cow<'a, [u8]>),
    /// A day.
    Date(Date),
    /// A time of day.
    Time(Time),
    /// A day and a time of day, without a time zone.
    DateTime(DateTime),
    /// A moment, in UTC.
    Timestamp(DateTime),
    /// A UUID.
    Uuid([u8; 16]),
    /// A JSON document, as text.
    Json(Cow<'a, str>),
    /// An array. One of several dimensions is an array of arrays.
    Array(Vec<Value<'a>>),
}

impl Value<'_> {
    /// Returns the same value, which borrows nothing.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Null => Value::Null,
            Value::Bool(truth) => Value::Bool(truth),
            Value::Int(number) => Value::Int(number),
            Value::UInt(number) => Value::UInt(number),
            Value::Float(number) => Value::Float(number),
            Value::Decimal(digits) => Value::Decimal(Cow::Owned(digits.into_owned())),
            Value::Text(text) => Value::Text(Cow::Owned(text.into_owned())),
            Value::Bytes(bytes) => Value::Bytes(Cow::Owned(bytes.into_owned())),
            Value::Date(date) => Value::Date(date),
            Value::Time(time) => Value::Time(time),
            Value::DateTime(moment) => Value::DateTime(moment),
            Value::Timestamp(moment) => Value::Timestamp(moment),
            Value::Uuid(uuid) => Value::Uuid(uuid),
            Value::Json(text) => Value::Json(Cow::Owned(text.into_owned())),
            Value::Array(elements) => {
                Value::Array(elements.into_iter().map(Value::into_owned).collect())
            }
        }
    }

    /// Returns the same value, which borrows from this one.
    pub fn as_borrowed(&self) -> Value<'_> {
        match self {
            Value::Decimal(digits) => Value::Decimal(Cow::Borrowed(digits)),
            Value::Text(text) => Value::Text(Cow::Borrowed(text)),
            Value::Bytes(bytes) => Value::Bytes(Cow::Borrowed(bytes)),
            Value::Json(text) => Value::Json(Cow::Borrowed(text)),
            Value::Array(elements) => {
                Value::Array(elements.iter().map(Value::as_borrowed).collect())
            }
            // The other values own no heap memory.
            rest => rest.clone(),
        }
    }

    /// Returns whether this is [`Value::Null`].
    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// Returns the name of its type for messages: `text`.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "NULL",
            Value::Bool(_) => "bool",
            Value::Int(_) => "int",
            Value::UInt(_) => "unsigned int",
            Value::Float(_) => "float",
            Value::Decimal(_) => "decimal",
            Value::Text(_) => "text",
            Value::Bytes(_) => "bytes",
            Value::Date(_) => "date",
            Value::Time(_) => "time",
            Value::DateTime(_) => "datetime",
            Value::Timestamp(_) => "timestamptz",
            Value::Uuid(_) => "uuid",
            Value::Json(_) => "json",
            Value::Array(_) => "array",
        }
    }
}

/// Returns a UUID in its usual form, `67e55044-10b1-426f-9247-bb680e5fe0c8`.
pub(crate) fn hyphenated(uuid: [u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in uuid.into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(digit), 16).expect("four bits are one hex digit"));
        }
    }
    text
}
