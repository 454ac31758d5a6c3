//! The error of a conversion.

use std::error::Error as StdError;
use std::fmt;

use super::Value;

/// Why a value could not be converted to the requested type.
///
/// The error does not know the column: [`Row::get`](crate::Row::get) adds its name.
#[derive(Debug)]
pub struct ConvertError {
    message: String,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl ConvertError {
    /// Returns an error with this message.
    pub fn new(message: impl Into<String>) -> Self {
        ConvertError {
            message: message.into(),
            source: None,
        }
    }

    /// Returns the error for a value of another type, with the remedy: `found text, wanted i64: use String or cast`.
    pub fn found(value: &Value<'_>, wanted: &str) -> Self {
        let found = value.type_name();
        // The full path of a chrono type would hide the name that a reader looks for.
        let shown = wanted.strip_prefix("chrono::").unwrap_or(wanted);
        ConvertError::new(match fitting(value, wanted) {
            None => format!("found {found}, wanted {shown}; an Option takes NULL"),
            Some(fitting) => format!("found {found}, wanted {shown}: use {fitting} or cast"),
        })
    }

    /// Returns the error for a value outside of the type's range: `300 is out of range for u8`.
    pub fn out_of_range(value: impl fmt::Display, wanted: &str) -> Self {
        ConvertError::new(format!("{value} is out of range for {wanted}"))
    }

    /// Returns the error for a text that cannot be parsed: `"maybe" is no Date`.
    ///
    /// The message contains at most 40 characters of the text.
    pub fn unreadable(text: &str, wanted: &str) -> Self {
        const SHOWN: usize = 40;
        let message = match text.char_indices().nth(SHOWN) {
            None => format!("{text:?} is no {wanted}"),
            Some((end, _)) => format!("{:?}… is no {wanted}", &text[..end]),
        };
        ConvertError::new(message)
    }

    /// Returns the error with its cause.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Returns the error with the position of the element in its array, counted from 1.
    pub(super) fn in_element(mut self, index: usize) -> Self {
        self.message = format!("element {}: {}", index + 1, self.message);
        self
    }

    pub(crate) fn into_source(self) -> Option<Box<dyn StdError + Send + Sync>> {
        self.source
    }
}

/// Returns the Rust type that takes such a value; `None` for NULL.
fn fitting(value: &Value<'_>, wanted: &str) -> Option<&'static str> {
    let of_chrono = wanted.starts_with("chrono::");
    let of_time = wanted.starts_with("time::");
    Some(match value {
        Value::Null => return None,
        Value::Bool(_) => "bool",
        Value::Int(_) => "i64",
        Value::UInt(_) => "u64",
        Value::Float(_) => "f64",
        Value::Decimal(_) => "Decimal, String",
        Value::Text(_) => "String",
        Value::Bytes(_) => "Vec<u8>",
        Value::Date(_) if of_chrono => "NaiveDate",
        Value::Date(_) if of_time => "time::Date",
        Value::Date(_) => "Date",
        Value::Time(_) if of_chrono => "NaiveTime",
        Value::Time(_) if of_time => "time::Time",
        Value::Time(_) => "Time",
        Value::DateTime(_) if of_chrono => "NaiveDateTime",
        Value::DateTime(_) if of_time => "time::PrimitiveDateTime",
        Value::Timestamp(_) if of_chrono => "DateTime<Utc>",
        Value::Timestamp(_) if of_time => "time::OffsetDateTime",
        Value::DateTime(_) | Value::Timestamp(_) => "DateTime",
        Value::Uuid(_) => "Uuid",
        Value::Json(_) => "Json<T>",
        Value::Array(_) => "Vec<T>",
    })
}

impl fmt::Display for ConvertError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl StdError for ConvertError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.source.as_ref()?;
        Some(&**source)
    }
}
