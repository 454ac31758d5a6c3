//! Parameters and result values.
//!
//! Parameters are sent as text with their SQL type where the standard's structures would lose microseconds or digits, or where
//! drivers disagree. Cells are fetched as text, too, and parsed on access.

use std::borrow::Cow;
use std::num::NonZeroUsize;
use std::str::FromStr;

use odbc_api::parameter::{VarBinaryBox, VarCharBox, WithDataType};
use odbc_api::{Bit, ColumnDescription, DataType};

use super::handle::Bound;
use crate::driver::{Column, Decode, Param, Value};
use crate::types::value::{hyphenated, no_arrays};
use crate::{Error, Kind, Result};

/// Longer texts and bytes are sent as one of the long types, because some databases limit the others.
const MAX_SHORT: usize = 4000;

/// Converts parameters for ODBC.
pub(super) fn to_odbc(params: &[Param<'_>]) -> Result<Vec<Bound>> {
    let bound = |(n, param): (usize, &Param<'_>)| {
        let done = match param {
            Param::Value(value) => value_to_odbc(value),
            Param::Native(native) => Err(format!(
                "{} is not a type of the ODBC driver: give it a value",
                native.type_name
            )),
        };
        done.map_err(|wrong| Error::new(Kind::Type, format!("parameter {}: {wrong}", n + 1)))
    };
    params.iter().enumerate().map(bound).collect()
}

fn value_to_odbc(value: &Value<'_>) -> Result<Bound, String> {
    Ok(match value {
        Value::Null => Box::new(VarCharBox::null()),
        Value::Bool(truth) => Box::new(Bit(u8::from(*truth))),
        Value::Int(number) => Box::new(*number),
        Value::UInt(number) => match i64::try_from(*number) {
            Ok(number) => Box::new(number),
            Err(_) => digits(&number.to_string()),
        },
        Value::Float(number) if number.is_nan() => {
            return Err("not a number, which ODBC has no place for".to_owned());
        }
        Value::Float(number) => Box::new(*number),
        Value::Decimal(number) => digits(number),
        Value::Text(text) | Value::Json(text) => chars(text),
        Value::Bytes(bytes) => binary(bytes),
        Value::Date(date) => typed(&date.to_string(), DataType::Date),
        // The standard has no fractional seconds here, so the database parses the text.
        Value::Time(time) => chars(&time.to_string()),
        Value::DateTime(moment) => {
            let text = format!("{} {}", moment.date, moment.time);
            typed(&text, DataType::Timestamp { precision: 6 })
        }
        Value::Timestamp(moment) => chars(&format!("{} {}+00:00", moment.date, moment.time)),
        Value::Uuid(uuid) => chars(&hyphenated(*uuid)),
        Value::Array(_) => return Err(no_arrays("ODBC")),
    })
}

/// Returns a decimal with its own precision.
fn digits(number: &str) -> Bound {
    let bare = number.trim_start_matches(['-', '+']);
    let decimals = bare
        .split_once('.')
        .map_or(0, |(_, decimals)| decimals.len());
    let precision = bare.bytes().filter(u8::is_ascii_digit).count().max(1);
    let scale = i16::try_from(decimals).unwrap_or(i16::MAX);
    typed(number, DataType::Numeric { precision, scale })
}

fn typed(text: &str, data_type: DataType) -> Bound {
    let value = VarCharBox::from_string(text.to_owned());
    Box::new(WithDataType { value, data_type })
}

fn chars(text: &str) -> Bound {
    let length = NonZeroUsize::new(text.len().max(1));
    let data_type = match text.len() > MAX_SHORT {
        true => DataType::LongVarchar { length },
        false => DataType::Varchar { length },
    };
    typed(text, data_type)
}

fn binary(bytes: &[u8]) -> Bound {
    let length = NonZeroUsize::new(bytes.len().max(1));
    let data_type = match bytes.len() > MAX_SHORT {
        true => DataType::LongVarbinary { length },
        false => DataType::Varbinary { length },
    };
    let value = VarBinaryBox::from_vec(bytes.to_vec());
    Box::new(WithDataType { value, data_type })
}

/// How the cells of a column are fetched and parsed: the tag of the cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Form {
    Text,
    Integer,
    Float,
    Decimal,
    Bool,
    Bytes,
    Date,
    Time,
    DateTime,
    Uuid,
}

const FORMS: [Form; 10] = [
    Form::Text,
    Form::Integer,
    Form::Float,
    Form::Decimal,
    Form::Bool,
    Form::Bytes,
    Form::Date,
    Form::Time,
    Form::DateTime,
    Form::Uuid,
];

/// `SQL_GUID`.
const GUID: i16 = -11;

impl Form {
    pub(super) fn tag(self) -> u8 {
        self as u8
    }

    pub(super) fn of(data_type: &DataType) -> Self {
        match data_type {
            DataType::Integer | DataType::SmallInt | DataType::BigInt | DataType::TinyInt => {
                Form::Integer
            }
            DataType::Float { .. } | DataType::Real | DataType::Double => Form::Float,
            DataType::Numeric { .. } | DataType::Decimal { .. } => Form::Decimal,
            DataType::Bit => Form::Bool,
            DataType::Varbinary { .. }
            | DataType::Binary { .. }
            | DataType::LongVarbinary { .. } => Form::Bytes,
            DataType::Date => Form::Date,
            DataType::Time { .. } => Form::Time,
            DataType::Timestamp { .. } => Form::DateTime,
            DataType::Other { data_type, .. } if data_type.0 == GUID => Form::Uuid,
            _ => Form::Text,
        }
    }
}

/// Returns name and type of a column.
pub(super) fn column(description: &ColumnDescription) -> Column {
    let name = description.name_to_string().unwrap_or_default();
    Column {
        name,
        type_name: Some(type_name(&description.data_type).to_owned()),
        type_id: 0,
        native: None,
    }
}

fn type_name(data_type: &DataType) -> &'static str {
    match data_type {
        DataType::Unknown => "UNKNOWN",
        DataType::Char { .. } => "CHAR",
        DataType::WChar { .. } => "WCHAR",
        DataType::Numeric { .. } => "NUMERIC",
        DataType::Decimal { .. } => "DECIMAL",
        DataType::Integer => "INTEGER",
        DataType::SmallInt => "SMALLINT",
        DataType::Float { .. } => "FLOAT",
        DataType::Real => "REAL",
        DataType::Double => "DOUBLE",
        DataType::Varchar { .. } => "VARCHAR",
        DataType::WVarchar { .. } => "WVARCHAR",
        DataType::LongVarchar { .. } => "LONGVARCHAR",
        DataType::WLongVarchar { .. } => "WLONGVARCHAR",
        DataType::LongVarbinary { .. } => "LONGVARBINARY",
        DataType::Date => "DATE",
        DataType::Time { .. } => "TIME",
        DataType::Timestamp { .. } => "TIMESTAMP",
        DataType::BigInt => "BIGINT",
        DataType::TinyInt => "TINYINT",
        DataType::Bit => "BIT",
        DataType::Varbinary { .. } => "VARBINARY",
        DataType::Binary { .. } => "BINARY",
        DataType::Other { data_type, .. } if data_type.0 == GUID => "GUID",
        DataType::Other { .. } => "OTHER",
    }
}

/// Parses cells. A value in a driver's own format stays text.
pub(super) struct Cells;

impl Decode for Cells {
    fn value<'r>(&self, _column: &Column, tag: u8, bytes: &'r [u8]) -> Result<Value<'r>> {
        let form = FORMS.get(usize::from(tag)).copied().ok_or_else(|| {
            let message = format!("rows of ODBC have no cells with the tag {tag}");
            Error::new(Kind::Type, message)
        })?;
        if form == Form::Bytes {
            return Ok(Value::Bytes(Cow::Borrowed(bytes)));
        }
        if form == Form::Float {
            let bytes = bytes.try_into();
            let bytes = bytes.map_err(|_| Error::new(Kind::Type, "a float has 8 bytes"))?;
            return Ok(Value::Float(f64::from_le_bytes(bytes)));
        }
        let text = std::str::from_utf8(bytes).map_err(|error| {
            let message = "the text is not UTF-8: configure the ODBC driver to return UTF-8";
            Error::new(Kind::Type, message).because(error)
        })?;
        Ok(read(form, text).unwrap_or(Value::Text(Cow::Borrowed(text))))
    }
}

fn read(form: Form, text: &str) -> Option<Value<'_>> {
    let bare = text.trim();
    Some(match form {
        Form::Text | Form::Float | Form::Bytes => return None,
        Form::Integer => match bare.parse() {
            Ok(number) => Value::Int(number),
            Err(_) => Value::UInt(bare.parse().ok()?),
        },
        Form::Decimal => {
            bare.parse::<f64>().ok()?;
            Value::Decimal(Cow::Borrowed(bare))
        }
        Form::Bool => match bare {
            "1" | "t" | "true" => Value::Bool(true),
            "0" | "f" | "false" => Value::Bool(false),
            _ => return None,
        },
        Form::Date => Value::Date(parsed(bare)?),
        Form::Time => Value::Time(parsed(bare)?),
        Form::DateTime => Value::DateTime(parsed(bare)?),
        Form::Uuid => Value::Uuid(uuid(bare)?),
    })
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn uuid(text: &str) -> Option<[u8; 16]> {
    let bare = text.trim_start_matches('{').trim_end_matches('}');
    let digits: Vec<u8> = bare.bytes().filter(|byte| *byte != b'-').collect();
    if digits.len() != 32 {
        return None;
    }
    let mut uuid = [0; 16];
    for (byte, pair) in uuid.iter_mut().zip(digits.chunks(2)) {
        let pair = std::str::from_utf8(pair).ok()?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    Some(uuid)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::driver::Native;

    fn cell(form: Form, text: &str) -> Value<'_> {
        let column = Column::new("a");
        Cells.value(&column, form.tag(), text.as_bytes()).unwrap()
    }

    #[test]
    fn tags_and_forms_correspond() {
        for form in FORMS {
            assert_eq!(FORMS[usize::from(form.tag())], form);
        }
        assert!(Cells.value(&Column::new("a"), 10, b"").is_err());
    }

    #[test]
    fn cell_is_parsed_by_the_type_of_its_column() {
        assert_eq!(cell(Form::Integer, "-7"), Value::Int(-7));
        let most = u64::MAX.to_string();
        assert_eq!(cell(Form::Integer, &most), Value::UInt(u64::MAX));
        assert_eq!(cell(Form::Decimal, "12.50"), Value::Decimal("12.50".into()));
        assert_eq!(cell(Form::Bool, "1"), Value::Bool(true));
        let date = "2024-02-29".parse().unwrap();
        assert_eq!(cell(Form::Date, "2024-02-29"), Value::Date(date));
        let moment = "2024-02-29T09:05:00.25".parse().unwrap();
        let written = cell(Form::DateTime, "2024-02-29 09:05:00.250000");
        assert_eq!(written, Value::DateTime(moment));
        let written = cell(Form::Uuid, "{11111111-1111-1111-1111-111111111111}");
        assert_eq!(written, Value::Uuid([0x11; 16]));
    }

    #[test]
    fn value_that_does_not_match_its_column_stays_text() {
        for form in [
            Form::Integer,
            Form::Decimal,
            Form::Bool,
            Form::Date,
            Form::Time,
            Form::DateTime,
            Form::Uuid,
        ] {
            assert_eq!(cell(form, "what?"), Value::from("what?"), "{form:?}");
        }
    }

    #[test]
    fn text_that_is_not_utf8_is_an_error_on_access() {
        let column = Column::new("a");
        let error = Cells.value(&column, Form::Text.tag(), &[0xff]).unwrap_err();
        assert_eq!(error.kind(), Kind::Type);
        let bytes = Cells.value(&column, Form::Bytes.tag(), &[0xff]);
        assert_eq!(bytes.unwrap(), Value::from(vec![0xff_u8]));
    }

    #[test]
    fn unsupported_parameter_is_an_error_that_names_it() {
        let native = Native {
            type_name: "Point",
            value: Arc::new((1, 2)),
        };
        let params = [Param::Value(Value::Null), Param::Native(native)];
        let error = to_odbc(&params).err().expect("it is none of ours");
        assert_eq!(error.kind(), Kind::Type);
        assert!(error.message().contains("parameter 2: Point"), "{error}");
        let nan = [Param::Value(Value::Float(f64::NAN))];
        assert!(to_odbc(&nan).is_err());
    }

    #[test]
    fn number_is_sent_with_its_own_precision() {
        let of = |text: &str| digits(text).data_type();
        let numeric = |precision, scale| DataType::Numeric { precision, scale };
        assert_eq!(of("-12.50"), numeric(4, 2));
        assert_eq!(of("18446744073709551615"), numeric(20, 0));
    }
}
