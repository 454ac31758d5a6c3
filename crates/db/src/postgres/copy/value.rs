//! Values in the binary form of COPY.
//!
//! What a parameter sends in binary, COPY sends in the same form. A parameter that fits no binary form goes as text, which
//! the server converts; COPY cannot mix the two forms. So here are the binary forms of the other types, and a value that
//! has none is an error.

use postgres_types::{Format, IsNull, Kind as TypeKind, Type};

use super::super::array::MOST_DIMENSIONS;
use super::super::calendar;
use super::super::param::{is_binary, with_length, write_binary, write_native, write_text};
use super::numeric;
use crate::driver::{Param, Value};

/// The version of jsonb's binary form.
const JSONB_VERSION: u8 = 1;

/// Writes a value with its length, in the form of a column of this type; or returns what is wrong with it.
pub(in crate::postgres) fn write(
    out: &mut Vec<u8>,
    param: &Param<'_>,
    wanted: &Type,
) -> Result<(), String> {
    with_length(out, |out| match param {
        Param::Value(value) => write_value(out, value, wanted),
        Param::Native(native) => {
            let (format, is_null) = write_native(out, native, Some(wanted))?;
            match matches!(format, Format::Text) && !is_text(wanted) {
                true => Err(unsendable(native.type_name, wanted)),
                false => Ok(is_null),
            }
        }
    })
}

#[inline]
fn write_value(out: &mut Vec<u8>, value: &Value<'_>, wanted: &Type) -> Result<IsNull, String> {
    match value {
        Value::Null => Ok(IsNull::Yes),
        // The same as below, for most texts.
        Value::Text(text) if *wanted == Type::TEXT || *wanted == Type::VARCHAR => {
            out.extend_from_slice(text.as_bytes());
            Ok(IsNull::No)
        }
        value if is_binary(value, Some(wanted)) => write_binary(out, value, Some(wanted)),
        value => write_other(out, value, wanted),
    }
}

/// Writes a value that a parameter would send as text.
#[inline(never)]
fn write_other(out: &mut Vec<u8>, value: &Value<'_>, wanted: &Type) -> Result<IsNull, String> {
    if is_text(wanted) {
        return write_text(out, value).map_err(|_| "cannot be written".to_owned());
    }
    let misfit = || unsendable(value.type_name(), wanted);
    match (wanted.kind(), value) {
        (TypeKind::Domain(base), _) => return write_value(out, value, base),
        (TypeKind::Array(element), Value::Array(elements)) => {
            write_array(out, elements, element)?;
            return Ok(IsNull::No);
        }
        _ => {}
    }
    match *wanted {
        Type::JSONB => {
            out.push(JSONB_VERSION);
            write_text(out, value).map_err(|_| "cannot be written".to_owned())?;
        }
        Type::NUMERIC => write_numeric(out, value).ok_or_else(misfit)?,
        Type::INT2 | Type::INT4 | Type::INT8 => {
            let (Value::Int(_) | Value::UInt(_)) = value else {
                return Err(misfit());
            };
            // A number that fits is binary already, unless it is unsigned.
            let number = whole(value).ok_or_else(|| out_of_range(wanted))?;
            match is_binary(&Value::Int(number), Some(wanted)) {
                true => return write_binary(out, &Value::Int(number), Some(wanted)),
                false => return Err(out_of_range(wanted)),
            }
        }
        Type::OID => {
            let number = whole(value).ok_or_else(misfit)?;
            let number = u32::try_from(number).map_err(|_| out_of_range(wanted))?;
            out.extend_from_slice(&number.to_be_bytes());
        }
        Type::FLOAT8 => {
            let number = float(value).ok_or_else(misfit)?;
            if is_beyond_double(value, number) {
                return Err(out_of_range(wanted));
            }
            out.extend_from_slice(&number.to_be_bytes());
        }
        Type::FLOAT4 => {
            let number = float(value).ok_or_else(misfit)?;
            let narrow = narrow(number).filter(|_| !is_beyond_double(value, number));
            let narrow = narrow.ok_or_else(|| out_of_range(wanted))?;
            out.extend_from_slice(&narrow.to_be_bytes());
        }
        // The server ignores the zone, too.
        Type::TIMESTAMP => match value {
            Value::Timestamp(moment) | Value::DateTime(moment) => {
                let since = calendar::microseconds_since_origin(*moment);
                let since = since.ok_or_else(|| out_of_range(wanted))?;
                out.extend_from_slice(&since.to_be_bytes());
            }
            _ => return Err(misfit()),
        },
        // One that is in range is binary already.
        Type::TIMESTAMPTZ if matches!(value, Value::Timestamp(_)) => {
            return Err(out_of_range(wanted));
        }
        _ => return Err(misfit()),
    }
    Ok(IsNull::No)
}

/// Returns whether the binary form of this type is the text.
fn is_text(wanted: &Type) -> bool {
    matches!(
        *wanted,
        Type::TEXT
            | Type::VARCHAR
            | Type::BPCHAR
            | Type::NAME
            | Type::JSON
            | Type::XML
            | Type::UNKNOWN
    ) || matches!(wanted.kind(), TypeKind::Enum(_))
        || wanted.name() == "citext"
}

fn whole(value: &Value<'_>) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        Value::UInt(number) => i64::try_from(*number).ok(),
        _ => None,
    }
}

#[allow(
    clippy::cast_precision_loss,
    reason = "a floating-point column rounds, whatever form the number has"
)]
fn float(value: &Value<'_>) -> Option<f64> {
    match value {
        Value::Float(number) => Some(*number),
        Value::Int(number) => Some(*number as f64),
        Value::UInt(number) => Some(*number as f64),
        Value::Decimal(digits) => digits.parse().ok(),
        _ => None,
    }
}

/// Returns whether a decimal became infinite or zero as a floating-point number, because it is too large or too small.
fn is_beyond_double(value: &Value<'_>, number: f64) -> bool {
    let Value::Decimal(digits) = value else {
        return false;
    };
    let mantissa = digits.split(['e', 'E']).next().unwrap_or_default();
    // A zero has no such digit, and neither has `Infinity`.
    let is_finite_and_not_zero = mantissa.contains(|it| ('1'..='9').contains(&it));
    is_finite_and_not_zero && (number.is_infinite() || number == 0.0)
}

/// Returns the number as PostgreSQL's `real`; `None` if it is too large or too small for that.
#[allow(clippy::cast_possible_truncation, reason = "the result is checked")]
fn narrow(number: f64) -> Option<f32> {
    let narrow = number as f32;
    let overflows = narrow.is_infinite() && number.is_finite();
    let underflows = narrow == 0.0 && number != 0.0;
    (!overflows && !underflows).then_some(narrow)
}

fn write_numeric(out: &mut Vec<u8>, value: &Value<'_>) -> Option<()> {
    match value {
        Value::Decimal(text) | Value::Text(text) => numeric::write(out, text),
        Value::Int(_) | Value::UInt(_) | Value::Float(_) => {
            let mut text = Vec::with_capacity(24);
            write_text(&mut text, value).ok()?;
            numeric::write(out, std::str::from_utf8(&text).ok()?)
        }
        _ => None,
    }
}

fn write_array(out: &mut Vec<u8>, elements: &[Value<'_>], element: &Type) -> Result<(), String> {
    let mut lengths = Vec::new();
    // An array without elements has no dimensions.
    let mut inner = (!is_empty(elements)).then_some(elements);
    while let Some(part) = inner {
        lengths.push(part.len());
        inner = match part.first() {
            Some(Value::Array(part)) => Some(part),
            _ => None,
        };
    }
    if lengths.len() > MOST_DIMENSIONS {
        return Err(format!(
            "an array has {} dimensions, and PostgreSQL's limit is {MOST_DIMENSIONS}",
            lengths.len()
        ));
    }
    let word = |number: usize| {
        let number = i32::try_from(number).map_err(|_| "the array is too long".to_owned());
        number.map(i32::to_be_bytes)
    };
    out.extend_from_slice(&word(lengths.len())?);
    out.extend_from_slice(&i32::from(has_null(elements)).to_be_bytes());
    out.extend_from_slice(&element.oid().to_be_bytes());
    for length in &lengths {
        out.extend_from_slice(&word(*length)?);
        // The index of the first element.
        out.extend_from_slice(&1_i32.to_be_bytes());
    }
    match lengths.split_first() {
        Some((length, inner)) => write_elements(out, elements, *length, inner, element),
        None => Ok(()),
    }
}

fn has_null(elements: &[Value<'_>]) -> bool {
    elements.iter().any(|element| match element {
        Value::Array(part) => has_null(part),
        element => element.is_null(),
    })
}

/// Writes the elements of an array of this length, whose parts have the lengths `inner`.
fn write_elements(
    out: &mut Vec<u8>,
    elements: &[Value<'_>],
    length: usize,
    inner: &[usize],
    element: &Type,
) -> Result<(), String> {
    if elements.len() != length {
        return Err(ragged());
    }
    for value in elements {
        match (value, inner.split_first()) {
            (Value::Array(part), Some((length, inner))) => {
                write_elements(out, part, *length, inner, element)?;
            }
            (Value::Array(_), None) | (_, Some(_)) => return Err(ragged()),
            (value, None) => with_length(out, |out| write_value(out, value, element))?,
        }
    }
    Ok(())
}

/// Returns whether an array contains nothing but empty arrays.
fn is_empty(elements: &[Value<'_>]) -> bool {
    elements
        .iter()
        .all(|element| matches!(element, Value::Array(part) if is_empty(part)))
}

fn ragged() -> String {
    "the parts of an array of several dimensions must have the same length".to_owned()
}

fn out_of_range(wanted: &Type) -> String {
    format!("the value is out of range for {wanted}")
}

fn unsendable(what: &str, wanted: &Type) -> String {
    let wanted = match wanted.name() {
        "" => "an unknown type",
        name => name,
    };
    format!(
        "{what} cannot be sent as {wanted} in COPY's binary form: pass a value of the column's type, wrap a ToSql with \
         cenote::postgres::param, or send text with copy_in"
    )
}
