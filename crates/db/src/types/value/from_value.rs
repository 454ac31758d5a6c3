//! Types that a [`Value`] can be read as.

use std::borrow::Cow;
use std::net::IpAddr;
use std::num::{IntErrorKind, ParseIntError};

use super::{ConvertError, Date, DateTime, Time, Value, array, hyphenated};

/// A type that a value of a row can be read as: see [`Row::get`](crate::Row::get).
///
/// A conversion loses nothing, except that a decimal read as a float is rounded. A value is read as another type only where it means the same:
///
/// | type | read from |
/// |---|---|
/// | integers | an int in range; a decimal that is whole and in range |
/// | `bool` | a bool; the int 0 or 1 |
/// | `f64`, `f32` | a float; an int that it holds exactly; a decimal. Rounded to the nearest, as floats are |
/// | `&str` | text, decimal or JSON |
/// | `String`, `Cow<str>` | the same; a date, time, moment (ISO 8601) or UUID, as text |
/// | `&[u8]`, `Vec<u8>`, `Cow<[u8]>`, `[u8; N]` | bytes |
/// | `Vec<T>`, `[T; N]` | an array, or a JSON array (feature `json`), of elements that `T` reads |
/// | [`Date`], [`Time`] | itself; text that reads as one |
/// | [`DateTime`] | itself; a timestamp, in UTC; text that reads as either |
/// | `std::net::IpAddr` | text that reads as one: an `inet` of a single host |
/// | `Option<T>` | NULL, and what `T` reads |
/// | [`Value`] | anything |
///
/// With the features of the same names:
///
/// | type | read from |
/// |---|---|
/// | `chrono::NaiveDate`, `NaiveTime`, `NaiveDateTime`; `time::Date`, `Time`, `PrimitiveDateTime` | date, time or datetime; text that reads as one |
/// | `chrono::DateTime<Utc>`, `DateTime<FixedOffset>`; `time::OffsetDateTime` | a timestamp; text that reads as a moment, in UTC if it names no offset |
/// | `uuid::Uuid` | a UUID; 16 bytes; text that reads as one |
/// | `rust_decimal::Decimal` | a decimal; an int; text that reads as one; a float, by the shortest digits that mean it |
/// | `serde_json::Value` | JSON |
/// | `Json<T>` | JSON, an array, text that reads as JSON |
///
/// An array of several dimensions is a vector of vectors: `Vec<Vec<i32>>`. `Vec<Option<T>>` takes NULL elements.
///
/// # Your own types
///
/// ```
/// use cenote::{ConvertError, FromValue, Value};
///
/// struct Meters(f64);
///
/// impl<'r> FromValue<'r> for Meters {
///     fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
///         f64::from_value(value).map(Meters)
///     }
/// }
///
/// impl From<Meters> for Value<'_> {
///     fn from(length: Meters) -> Self {
///         length.0.into()
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be read from a row",
    label = "no `FromValue` for `{Self}`",
    note = "read a whole row into a struct with `query_as`, a JSON document with `Json<T>`, a PostgreSQL type of your own with `Row::get_sql`",
    note = "for a type of your own write `impl cenote::FromValue<'_> for YourType`; types of chrono, time, uuid, rust_decimal and serde_json need the feature of cenote with that name"
)]
pub trait FromValue<'r>: Sized {
    /// Returns the value as this type.
    ///
    /// # Errors
    ///
    /// The value has another type, or is out of range. The error names both types.
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError>;

    /// Returns an array as a vector of this type. `u8` reads bytes here; other types keep this default.
    ///
    /// # Errors
    ///
    /// The value is no array, or an element cannot be read. The error names the element.
    fn from_array(value: Value<'r>) -> Result<Vec<Self>, ConvertError> {
        array::read(value, "an array")
    }
}

impl<'r> FromValue<'r> for Value<'r> {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        Ok(value)
    }
}

impl<'r, T: FromValue<'r>> FromValue<'r> for Option<T> {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Null => Ok(None),
            value => T::from_value(value).map(Some),
        }
    }
}

macro_rules! integers {
    ($($type:ident $({ $($overridden:tt)* })?)*) => {$(
        impl<'r> FromValue<'r> for $type {
            fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
                const WANTED: &str = stringify!($type);
                match value {
                    Value::Int(number) => {
                        // It owns nothing. The compiler does not see that, and would call the drop of a value.
                        std::mem::forget(value);
                        $type::try_from(number)
                            .map_err(|_| ConvertError::out_of_range(number, WANTED))
                    }
                    Value::UInt(number) => $type::try_from(number)
                        .map_err(|_| ConvertError::out_of_range(number, WANTED)),
                    Value::Decimal(digits) => $type::try_from(whole(&digits, WANTED)?)
                        .map_err(|_| ConvertError::out_of_range(digits, WANTED)),
                    other => Err(ConvertError::found(&other, WANTED)),
                }
            }

            $($($overridden)*)?
        }
    )*};
}

integers! {
    i8 i16 i32 i64 isize u16 u32 u64 usize
    u8 {
        fn from_array(value: Value<'r>) -> Result<Vec<Self>, ConvertError> {
            match value {
                Value::Bytes(bytes) => Ok(bytes.into_owned()),
                other => array::read(other, "bytes"),
            }
        }
    }
}

/// Returns the whole number that the decimal digits mean.
fn whole(digits: &str, wanted: &str) -> Result<i128, ConvertError> {
    let (number, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if fraction.bytes().any(|digit| digit != b'0') {
        return Err(ConvertError::new(format!(
            "{digits} is not whole, wanted {wanted}"
        )));
    }
    number
        .parse()
        .map_err(|error: ParseIntError| match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => {
                ConvertError::out_of_range(digits, wanted)
            }
            _ => ConvertError::unreadable(digits, wanted),
        })
}

impl<'r> FromValue<'r> for bool {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Bool(truth) => Ok(truth),
            Value::Int(0) | Value::UInt(0) => Ok(false),
            Value::Int(1) | Value::UInt(1) => Ok(true),
            Value::Int(number) => Err(ConvertError::out_of_range(number, "bool")),
            Value::UInt(number) => Err(ConvertError::out_of_range(number, "bool")),
            other => Err(ConvertError::found(&other, "bool")),
        }
    }
}

impl<'r> FromValue<'r> for f64 {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Float(number) => Ok(number),
            Value::Int(number) if fits_mantissa(number.unsigned_abs(), f64::MANTISSA_DIGITS) => {
                Ok(number as f64)
            }
            Value::UInt(number) if fits_mantissa(number, f64::MANTISSA_DIGITS) => Ok(number as f64),
            Value::Int(number) => Err(inexact(number, "f64")),
            Value::UInt(number) => Err(inexact(number, "f64")),
            Value::Decimal(digits) => digits
                .parse()
                .map_err(|_| ConvertError::unreadable(&digits, "f64")),
            other => Err(ConvertError::found(&other, "f64")),
        }
    }
}

impl<'r> FromValue<'r> for f32 {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Float(number) => nearest_f32(number),
            Value::Int(number) if fits_mantissa(number.unsigned_abs(), f32::MANTISSA_DIGITS) => {
                Ok(number as f32)
            }
            Value::UInt(number) if fits_mantissa(number, f32::MANTISSA_DIGITS) => Ok(number as f32),
            Value::Int(number) => Err(inexact(number, "f32")),
            Value::UInt(number) => Err(inexact(number, "f32")),
            Value::Decimal(digits) => digits
                .parse()
                .map_err(|_| ConvertError::unreadable(&digits, "f32")),
            other => Err(ConvertError::found(&other, "f32")),
        }
    }
}

/// Returns whether a float with `digits` binary digits holds the number exactly.
fn fits_mantissa(number: u64, digits: u32) -> bool {
    let zeros = number.leading_zeros() + number.trailing_zeros();
    u64::BITS.saturating_sub(zeros) <= digits
}

fn inexact(number: impl std::fmt::Display, wanted: &str) -> ConvertError {
    ConvertError::new(format!("{number} cannot be an exact {wanted}"))
}

fn nearest_f32(number: f64) -> Result<f32, ConvertError> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a float rounds by nature; an overflow is detected below"
    )]
    let rounded = number as f32;
    if rounded.is_infinite() && number.is_finite() {
        return Err(ConvertError::out_of_range(number, "f32"));
    }
    Ok(rounded)
}

impl<'r> FromValue<'r> for Cow<'r, str> {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Text(text) | Value::Decimal(text) | Value::Json(text) => Ok(text),
            Value::Date(date) => Ok(Cow::Owned(date.to_string())),
            Value::Time(time) => Ok(Cow::Owned(time.to_string())),
            Value::DateTime(moment) => Ok(Cow::Owned(moment.to_string())),
            Value::Timestamp(moment) => Ok(Cow::Owned(format!("{moment}Z"))),
            Value::Uuid(uuid) => Ok(Cow::Owned(hyphenated(uuid))),
            other => Err(ConvertError::found(&other, "text")),
        }
    }
}

impl<'r> FromValue<'r> for String {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        Cow::<str>::from_value(value).map(Cow::into_owned)
    }
}

impl<'r> FromValue<'r> for &'r str {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Text(Cow::Borrowed(text))
            | Value::Decimal(Cow::Borrowed(text))
            | Value::Json(Cow::Borrowed(text)) => Ok(text),
            Value::Text(_) | Value::Decimal(_) | Value::Json(_) => Err(ConvertError::new(format!(
                "found {} that the row cannot lend, wanted &str: use String",
                value.type_name()
            ))),
            other => Err(ConvertError::found(&other, "&str")),
        }
    }
}

impl<'r> FromValue<'r> for Cow<'r, [u8]> {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Bytes(bytes) => Ok(bytes),
            other => Err(ConvertError::found(&other, "bytes")),
        }
    }
}

impl<'r> FromValue<'r> for &'r [u8] {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Bytes(Cow::Borrowed(bytes)) => Ok(bytes),
            Value::Bytes(_) => Err(ConvertError::new(
                "found bytes that the row cannot lend, wanted &[u8]: use Vec<u8>",
            )),
            other => Err(ConvertError::found(&other, "&[u8]")),
        }
    }
}

impl<'r> FromValue<'r> for char {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        let Value::Text(text) = value else {
            return Err(ConvertError::found(&value, "char"));
        };
        let mut letters = text.chars();
        match (letters.next(), letters.next()) {
            (Some(letter), None) => Ok(letter),
            _ => Err(ConvertError::unreadable(&text, "char")),
        }
    }
}

impl<'r> FromValue<'r> for Date {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Date(date) => Ok(date),
            Value::Text(text) => text.parse(),
            other => Err(ConvertError::found(&other, "Date")),
        }
    }
}

impl<'r> FromValue<'r> for Time {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Time(time) => Ok(time),
            Value::Text(text) => text.parse(),
            other => Err(ConvertError::found(&other, "Time")),
        }
    }
}

impl<'r> FromValue<'r> for DateTime {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::DateTime(moment) | Value::Timestamp(moment) => Ok(moment),
            Value::Text(text) => DateTime::parse_utc(&text),
            other => Err(ConvertError::found(&other, "DateTime")),
        }
    }
}

impl<'r> FromValue<'r> for IpAddr {
    fn from_value(value: Value<'r>) -> Result<Self, ConvertError> {
        match value {
            Value::Text(text) => text
                .parse()
                .map_err(|_| ConvertError::unreadable(&text, "IpAddr")),
            other => Err(ConvertError::found(&other, "IpAddr")),
        }
    }
}
