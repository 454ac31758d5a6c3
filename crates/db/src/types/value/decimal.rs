//! Decimal numbers of the `rust_decimal` crate.

use std::borrow::Cow;

use rust_decimal::Decimal;

use super::{ConvertError, FromValue, Value};

const WANTED: &str = "Decimal";

from_copy! {
    Decimal => |number| Value::Decimal(Cow::Owned(number.to_string()));
}

impl<'r> FromValue<'r> for Decimal {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Decimal(digits) | Value::Text(digits) => exact(&digits),
            Value::Int(number) => Ok(number.into()),
            Value::UInt(number) => Ok(number.into()),
            // SQLite stores a number in a DECIMAL column as a float, if that loses nothing.
            // The shortest digits of this float are then the ones that were stored.
            Value::Float(number) => Decimal::from_str_exact(&number.to_string())
                .map_err(|_| ConvertError::out_of_range(number, WANTED)),
            other => Err(ConvertError::found(&other, WANTED)),
        }
    }
}

/// Parses all digits, or fails: `from_str` would round.
fn exact(digits: &str) -> Result<Decimal, ConvertError> {
    Decimal::from_str_exact(digits)
        .map_err(|error| ConvertError::unreadable(digits, WANTED).because(error))
}
