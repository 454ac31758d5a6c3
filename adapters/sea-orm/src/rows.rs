//! Rows of cenote as rows of SeaORM. A row of SeaORM's proxy holds typed values, and SeaORM reads a value only
//! as exactly its type, so each column's type decides.

use std::collections::BTreeMap;

use cenote::{Column, FromValue, Row};
use chrono::{DateTime, FixedOffset, NaiveDate, NaiveDateTime, NaiveTime, Utc};
use rust_decimal::Decimal;
use sea_orm::{DbBackend, DbErr, ProxyRow, Value};
use uuid::Uuid;

use crate::error::{db_err, refused};

/// Types of values that a column's type leaves open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowTypes {
    /// Read timestamps with a time zone as `DateTime<Utc>` instead of `DateTime<FixedOffset>`.
    pub(crate) utc: bool,
}

/// The type of SeaORM's value for a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum As {
    Bool,
    I8,
    I16,
    I32,
    I64,
    U8,
    U16,
    U32,
    U64,
    F32,
    F64,
    Decimal,
    Text,
    Bytes,
    Date,
    Time,
    DateTime,
    Timestamp,
    Uuid,
    Json,
    /// A type that says nothing: as the value is.
    Found,
}

/// Converts rows of one database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowReader {
    pub(crate) backend: DbBackend,
    pub(crate) types: RowTypes,
}

impl RowReader {
    pub(crate) fn read(&self, row: &Row) -> Result<ProxyRow, DbErr> {
        let mut values = BTreeMap::new();
        for (index, column) in row.columns().as_slice().iter().enumerate() {
            let value = self.value(row, index, column).map_err(db_err)?;
            if values.insert(column.name.clone(), value).is_some() {
                let name = &column.name;
                return Err(refused(&format!(
                    "the result has two columns {name:?}, and SeaORM would lose one: give one an alias"
                )));
            }
        }
        Ok(ProxyRow::new(values))
    }

    fn value(&self, row: &Row, index: usize, column: &Column) -> cenote::Result<Value> {
        let name = column.type_name.as_deref();
        let wanted = match self.backend {
            DbBackend::Postgres => postgres(name.unwrap_or_default()),
            DbBackend::MySql => mysql(name.unwrap_or_default()),
            _ => As::Found,
        };
        let wanted = match (wanted, row.value(index)?) {
            (As::Found, value) => found(&value),
            // Not a boolean, so a small number.
            (As::Bool, cenote::Value::Int(number)) if !(0..=1).contains(&number) => As::I8,
            (wanted, _) => wanted,
        };
        self.get(row, index, wanted)
    }

    fn get(&self, row: &Row, index: usize, wanted: As) -> cenote::Result<Value> {
        fn get<'r, T: FromValue<'r>>(row: &'r Row, index: usize) -> cenote::Result<Option<T>> {
            row.get(index)
        }
        Ok(match wanted {
            As::Bool => Value::Bool(get(row, index)?),
            As::I8 => Value::TinyInt(get(row, index)?),
            As::I16 => Value::SmallInt(get(row, index)?),
            As::I32 => Value::Int(get(row, index)?),
            As::I64 => Value::BigInt(get(row, index)?),
            As::U8 => Value::TinyUnsigned(get(row, index)?),
            As::U16 => Value::SmallUnsigned(get(row, index)?),
            As::U32 => Value::Unsigned(get(row, index)?),
            As::U64 => Value::BigUnsigned(get(row, index)?),
            As::F32 => Value::Float(get(row, index)?),
            As::F64 => Value::Double(get(row, index)?),
            As::Decimal => Value::Decimal(get::<Decimal>(row, index)?),
            As::Text | As::Found => Value::String(get(row, index)?),
            As::Bytes => Value::Bytes(get(row, index)?),
            As::Date => Value::ChronoDate(get::<NaiveDate>(row, index)?),
            As::Time => Value::ChronoTime(get::<NaiveTime>(row, index)?),
            As::DateTime => Value::ChronoDateTime(get::<NaiveDateTime>(row, index)?),
            As::Timestamp if self.types.utc => {
                Value::ChronoDateTimeUtc(get::<DateTime<Utc>>(row, index)?)
            }
            As::Timestamp => {
                let moment = get::<DateTime<FixedOffset>>(row, index)?;
                Value::ChronoDateTimeWithTimeZone(moment)
            }
            As::Uuid => Value::Uuid(get::<Uuid>(row, index)?),
            As::Json => {
                let document = get::<cenote::Json<serde_json::Value>>(row, index)?;
                Value::Json(document.map(|json| Box::new(json.0)))
            }
        })
    }
}

fn postgres(name: &str) -> As {
    match name {
        "bool" => As::Bool,
        "int2" => As::I16,
        "int4" => As::I32,
        "int8" => As::I64,
        "oid" => As::U32,
        "float4" => As::F32,
        "float8" => As::F64,
        "numeric" => As::Decimal,
        "bytea" => As::Bytes,
        "date" => As::Date,
        "time" => As::Time,
        "timestamp" => As::DateTime,
        "timestamptz" => As::Timestamp,
        "uuid" => As::Uuid,
        "json" | "jsonb" => As::Json,
        _ => As::Found,
    }
}

fn mysql(name: &str) -> As {
    match name {
        // SeaORM's booleans are TINYINT(1).
        "TINYINT" => As::Bool,
        "TINYINT UNSIGNED" => As::U8,
        "SMALLINT" => As::I16,
        "SMALLINT UNSIGNED" | "YEAR" => As::U16,
        "INT" | "MEDIUMINT" => As::I32,
        "INT UNSIGNED" | "MEDIUMINT UNSIGNED" => As::U32,
        "BIGINT" => As::I64,
        "BIGINT UNSIGNED" => As::U64,
        "FLOAT" => As::F32,
        "DOUBLE" => As::F64,
        "DECIMAL" | "DECIMAL UNSIGNED" => As::Decimal,
        "DATE" => As::Date,
        "TIME" => As::Time,
        "DATETIME" => As::DateTime,
        "TIMESTAMP" => As::Timestamp,
        "JSON" => As::Json,
        _ => As::Found,
    }
}

fn found(value: &cenote::Value<'_>) -> As {
    use cenote::Value;
    match value {
        Value::Bool(_) => As::Bool,
        Value::Int(_) => As::I64,
        Value::UInt(_) => As::U64,
        Value::Float(_) => As::F64,
        Value::Decimal(_) => As::Decimal,
        Value::Bytes(_) => As::Bytes,
        Value::Date(_) => As::Date,
        Value::Time(_) => As::Time,
        Value::DateTime(_) => As::DateTime,
        Value::Timestamp(_) => As::Timestamp,
        Value::Uuid(_) => As::Uuid,
        Value::Json(_) => As::Json,
        _ => As::Text,
    }
}
