//! [`FromSql`] types from rows.

use std::any::type_name;
use std::borrow::Cow;

use postgres_types::{FromSqlOwned, Type};

use super::binary;
use super::known_type::KnownType;
use super::types::{Shape, utf8};
use crate::types::row::{ColumnIndex, RawCell, Row};
use crate::types::value::ConvertError;
use crate::{Column, Result};

/// Returns the type of a column of a PostgreSQL result, as `postgres-types` describes it.
///
/// A type that was dropped before the driver could look it up is `unknown`.
pub fn column_type(column: &Column) -> Type {
    KnownType::of_column(column).kind.clone()
}

impl Row {
    /// Returns the value of a column of a PostgreSQL result by way of [`FromSql`](super::FromSql), for types that
    /// [`FromValue`](crate::FromValue) does not know: your own enums and composites (`#[derive(FromSql)]` of `postgres-types`),
    /// ranges, `HashMap<String, Option<String>>` for an hstore.
    ///
    /// The result does not depend on how the row was read. The driver gets such values as text and converts it to
    /// the binary form for these types, and for arrays, domains, composites and ranges of them: bool, integers, floats, numeric, text,
    /// bytea, uuid, dates and times, interval, json, jsonb, inet, bit, enums, hstore, citext, ltree.
    ///
    /// ```no_run
    /// # async fn example(db: cenote::Db) -> cenote::Result<()> {
    /// use std::collections::HashMap;
    ///
    /// let row = db.query_one("SELECT attributes FROM product WHERE id = ?", 7).await?;
    /// let attributes: HashMap<String, Option<String>> = row.get_sql("attributes")?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Kind::Column`](crate::Kind::Column) if there is no such column; [`Kind::Type`](crate::Kind::Type) if the type
    /// does not accept the column's, or if the value has no binary form here.
    pub fn get_sql<T: FromSqlOwned>(&self, column: impl ColumnIndex) -> Result<T> {
        let position = column.position_in(self.columns())?;
        let known = KnownType::of_column(&self.columns().as_slice()[position]);
        let read = read(&known, self.raw(position)?);
        read.map_err(|error| self.type_error(position, error))
    }
}

fn read<T: FromSqlOwned>(known: &KnownType, raw: Option<RawCell<'_>>) -> Result<T, ConvertError> {
    let kind = &known.kind;
    let wanted = type_name::<T>();
    if !T::accepts(kind) {
        let message = format!("found {kind}, wanted {wanted}: use a type that accepts it, or cast");
        return Err(ConvertError::new(message));
    }
    let Some(raw) = raw else {
        return T::from_sql_null(kind).map_err(|error| {
            let message = format!("found NULL, wanted {wanted}; an Option takes NULL");
            ConvertError::new(message).because(error)
        });
    };
    let bytes = match Shape::of(kind) {
        shape if raw.tag == shape as u8 && shape.is_binary() => Cow::Borrowed(raw.bytes),
        _ => {
            let text = utf8(raw.bytes).map_err(|_| ConvertError::new("the text is no UTF-8"))?;
            let mut bytes = Vec::new();
            binary::write(&mut bytes, known, kind, text).ok_or_else(|| {
                ConvertError::new(format!(
                    "found {kind} as text that has no binary form here, wanted {wanted}: use String or cast"
                ))
            })?;
            Cow::Owned(bytes)
        }
    };
    T::from_sql(kind, &bytes).map_err(|error| {
        ConvertError::new(format!("found {kind}, which is no {wanted}: {error}")).because(error)
    })
}
