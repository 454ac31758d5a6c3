//! Rows as serde types.

mod cell;
mod document;
mod refused;

use serde::Deserialize;
use serde::de::value::BorrowedStrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

use self::cell::Cell;
use self::refused::Refused;
use crate::Result;
use crate::types::row::{Columns, Row};

/// Returns the row as a serde type.
///
/// | type | read from |
/// |---|---|
/// | a struct | the columns with the names of its fields, by the rules of [`Columns`](Columns#names); other columns are skipped |
/// | a map | all columns, by name; of several with one name, the first |
/// | a tuple, a tuple struct, an array | the columns in order; their number must match |
/// | a `Vec` | the columns in order, if there are several |
/// | a newtype | its content |
/// | `Option<T>` | `None` if the only column is NULL, else `T` |
/// | a number, text, date, enum … | the only column |
///
/// A row of one column is refused for a type that could mean the row or its value: a sequence (`Vec<String>`), bytes, and
/// types that take anything, such as `serde_json::Value` and untagged enums. `query_scalar` and a tuple of one, `(T,)`, read
/// the value. With several columns, `serde_json::Value` is an object of all columns.
///
/// `#[serde(default)]`, `rename`, `alias`, `flatten` and `deny_unknown_fields` work as everywhere; with `flatten`,
/// names have to be exact, and numbers are not read as `bool`.
///
/// Values are converted as by [`Row::get`]: see [`FromValue`](crate::FromValue). A decimal, date, time, moment or UUID is a
/// string to a type that parses one, and 16 bytes are a UUID to a `uuid::Uuid`. An enum without data is
/// read from text. An array is a sequence. With the feature `json`, a JSON column is read into any type,
/// and text that holds JSON into structs, maps and sequences.
///
/// [`Value::deserialize_as`](crate::Value::deserialize_as) reads a field as `get` does, where the type's own serde impl is
/// stricter: chrono's and time's types refuse the moments that SQLite keeps as text.
///
/// A type may borrow from the row: a field may be a `&str`.
///
/// ```
/// # fn example(row: &cenote::Row) -> cenote::Result<()> {
/// #[derive(serde::Deserialize)]
/// struct User {
///     id: i64,
///     name: String,
///     email: Option<String>,
/// }
///
/// let user: User = cenote::from_row(row)?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// [`Kind::Column`](crate::Kind::Column) if a column is missing, or if their number does not match;
/// [`Kind::Type`](crate::Kind::Type) if a value has another type, with the name of its column.
pub fn from_row<'r, T: Deserialize<'r>>(row: &'r Row) -> Result<T> {
    let read = match T::deserialize(RowDeserializer { row }) {
        // A single value that takes several types, such as a decimal: it takes no map.
        Err(Refused::Map(_)) if row.len() == 1 => RowDeserializer { row }.single(T::deserialize),
        read => read,
    };
    read.map_err(|refused| refused.into_error(row.columns()))
}

/// A whole row.
#[derive(Clone, Copy)]
struct RowDeserializer<'r> {
    row: &'r Row,
}

impl<'r> RowDeserializer<'r> {
    /// Reads the only column.
    fn single<T>(self, read: impl FnOnce(Cell<'r>) -> Result<T, Refused>) -> Result<T, Refused> {
        match self.row.len() {
            1 => at(self.row.columns(), 0, read(Cell::Column(self.row, 0))),
            _ => Err(Refused::columns(self.row.columns(), "one value")),
        }
    }

    fn positions(self) -> Cells<'r> {
        Cells {
            row: self.row,
            next: 0,
            fields: &[],
        }
    }

    fn tuple<V: Visitor<'r>>(self, len: usize, visitor: V) -> Result<V::Value, Refused> {
        if self.row.len() != len {
            let wanted = match len {
                1 => "1 value".to_owned(),
                len => format!("{len} values"),
            };
            return Err(Refused::columns(self.row.columns(), &wanted));
        }
        visitor.visit_seq(self.positions())
    }
}

macro_rules! read_single {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
            self.single(|cell| cell.$method(visitor))
        }
    )*};
}

impl<'r> Deserializer<'r> for RowDeserializer<'r> {
    type Error = Refused;

    read_single! {
        deserialize_bool
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_f32 deserialize_f64
        deserialize_char deserialize_str deserialize_string deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.row.len() {
            1 => visitor.visit_map(NoMap),
            _ => self.deserialize_map(visitor),
        }
    }

    fn deserialize_bytes<V: Visitor<'r>>(self, _visitor: V) -> Result<V::Value, Refused> {
        match self.row.len() {
            1 => Err(Refused::Ambiguous("bytes")),
            _ => Err(Refused::columns(self.row.columns(), "one value")),
        }
    }

    fn deserialize_byte_buf<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_option<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        match self.row.len() {
            1 if self.row.decode(0)?.is_null() => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_unit<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }

    fn deserialize_newtype_struct<V: Visitor<'r>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        if document::is_json(name) {
            self.single(|cell| cell.deserialize_newtype_struct(name, visitor))
        } else {
            visitor.visit_newtype_struct(self)
        }
    }

    fn deserialize_seq<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.row.len() == 1 {
            return Err(Refused::Ambiguous("a sequence"));
        }
        visitor.visit_seq(self.positions())
    }

    fn deserialize_tuple<V: Visitor<'r>>(
        self,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.tuple(len, visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.tuple(len, visitor)
    }

    fn deserialize_map<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_map(self.positions())
    }

    fn deserialize_struct<V: Visitor<'r>>(
        self,
        _name: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        visitor.visit_map(Cells {
            fields,
            ..self.positions()
        })
    }

    fn deserialize_enum<V: Visitor<'r>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        self.single(|cell| cell.deserialize_enum(name, variants, visitor))
    }

    fn deserialize_ignored_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_unit()
    }
}

/// The map that a row of one column is to a type that takes anything. Such a type accepts it and gets the error;
/// a type that takes single values only refuses it, and gets the value.
struct NoMap;

impl<'r> MapAccess<'r> for NoMap {
    type Error = Refused;

    fn next_key_seed<S: DeserializeSeed<'r>>(&mut self, _: S) -> Result<Option<S::Value>, Refused> {
        Err(Refused::Ambiguous("a type that takes anything"))
    }

    fn next_value_seed<S: DeserializeSeed<'r>>(&mut self, _: S) -> Result<S::Value, Refused> {
        Err(Refused::Ambiguous("a type that takes anything"))
    }
}

/// The cells of a row, one after the other.
struct Cells<'r> {
    row: &'r Row,
    next: usize,
    /// The fields of a struct; empty for other types.
    fields: &'static [&'static str],
}

impl<'r> Cells<'r> {
    /// Returns the field that the column at this position belongs to, else the name of the column.
    fn key(&self, position: usize) -> &'r str {
        let columns = self.row.columns();
        let name = columns.as_slice()[position].name.as_str();
        if self.fields.contains(&name) {
            return name;
        }
        let is_field = |field: &&&str| {
            field.eq_ignore_ascii_case(name) && columns.position(field).ok() == Some(position)
        };
        self.fields.iter().find(is_field).copied().unwrap_or(name)
    }

    fn read<S: DeserializeSeed<'r>>(&self, position: usize, seed: S) -> Result<S::Value, Refused> {
        let read = seed.deserialize(Cell::Column(self.row, position));
        at(self.row.columns(), position, read)
    }
}

impl<'r> SeqAccess<'r> for Cells<'r> {
    type Error = Refused;

    fn next_element_seed<S: DeserializeSeed<'r>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Refused> {
        if self.next == self.row.len() {
            return Ok(None);
        }
        let position = self.next;
        self.next += 1;
        self.read(position, seed).map(Some)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.row.len() - self.next)
    }
}

impl<'r> MapAccess<'r> for Cells<'r> {
    type Error = Refused;

    fn next_key_seed<S: DeserializeSeed<'r>>(
        &mut self,
        seed: S,
    ) -> Result<Option<S::Value>, Refused> {
        let columns = self.row.columns();
        // Of several columns with one name, the first counts.
        while self.next < columns.len() && columns.is_repeated(self.next) {
            self.next += 1;
        }
        if self.next == columns.len() {
            return Ok(None);
        }
        let key = BorrowedStrDeserializer::new(self.key(self.next));
        seed.deserialize(key).map(Some)
    }

    fn next_value_seed<S: DeserializeSeed<'r>>(&mut self, seed: S) -> Result<S::Value, Refused> {
        let position = self.next;
        self.next += 1;
        self.read(position, seed)
    }
}

/// Adds the column's name to an error.
fn at<T>(columns: &Columns, position: usize, read: Result<T, Refused>) -> Result<T, Refused> {
    read.map_err(|refused| refused.at(columns, position))
}
