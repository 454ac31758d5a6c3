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

/// The row as a type of serde's.
///
/// | asked for | comes of |
/// |---|---|
/// | a struct | the columns of its fields' names, by the rules of [`Columns`](Columns#names); others are left alone |
/// | a map | all columns, by name; of those with the same name, the first |
/// | a tuple, a tuple struct, an array | the columns in order, as many as there are |
/// | a `Vec` | the columns in order |
/// | a newtype | what is in it |
/// | `Option<T>` | `None` if there is one column and it is NULL, else `T` |
/// | anything else | the one column that there is |
///
/// `#[serde(default)]`, `rename`, `alias`, `flatten` and `deny_unknown_fields` work as everywhere; with `flatten`,
/// names have to be exact, and numbers are not taken as `bool`.
///
/// Values are converted as by [`Row::get`]: see [`FromValue`](crate::FromValue). A decimal, date, time, moment or UUID is a
/// string to a type that wants one, and 16 bytes are a UUID to a `uuid::Uuid`. An enum without data is
/// read from text. With the feature `json`, a JSON column is read into whatever type is asked for,
/// and text that holds JSON into structs, maps and sequences.
///
/// [`Value::deserialize_as`](crate::Value::deserialize_as) reads a field as `get` would, where serde reads it otherwise:
/// moments that SQLite keeps as text.
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
/// [`Kind::Column`](crate::Kind::Column) if a column is missing, or if there are too many or too few of them;
/// [`Kind::Type`](crate::Kind::Type) if a value is not of the type, with the name of its column.
pub fn from_row<'r, T: Deserialize<'r>>(row: &'r Row) -> Result<T> {
    let read = match T::deserialize(RowDeserializer { row }) {
        // A type that takes whatever there is, except for a whole row.
        Err(Refused::Map(_)) if row.len() == 1 => RowDeserializer { row }.single(T::deserialize),
        read => read,
    };
    read.map_err(|refused| refused.into_error(row.columns()))
}

/// A row, to be read as a whole.
#[derive(Clone, Copy)]
struct RowDeserializer<'r> {
    row: &'r Row,
}

impl<'r> RowDeserializer<'r> {
    /// Reads the only column.
    fn single<T>(self, read: impl FnOnce(Cell<'r>) -> Result<T, Refused>) -> Result<T, Refused> {
        match self.row.len() {
            1 => at(self.row.columns(), 0, read(Cell::new(self.row, 0))),
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
            let wanted = format!("{len} values");
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
        deserialize_bytes deserialize_byte_buf
    }

    fn deserialize_any<V: Visitor<'r>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_map(visitor)
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

/// The cells of a row, one after the other.
struct Cells<'r> {
    row: &'r Row,
    next: usize,
    /// What a struct asks for; empty if it does not say.
    fields: &'static [&'static str],
}

impl<'r> Cells<'r> {
    /// What the column at this position is called for the one who asks.
    fn key(&self, position: usize) -> &'r str {
        let columns = self.row.columns();
        let name = columns.as_slice()[position].name.as_str();
        if self.fields.contains(&name) {
            return name;
        }
        let finds_it = |field: &&&str| {
            field.eq_ignore_ascii_case(name) && columns.position(field).ok() == Some(position)
        };
        self.fields.iter().find(finds_it).copied().unwrap_or(name)
    }

    fn read<S: DeserializeSeed<'r>>(&self, position: usize, seed: S) -> Result<S::Value, Refused> {
        let read = seed.deserialize(Cell::new(self.row, position));
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
        // Of several columns with the same name the first counts.
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

/// What was read of a column; if it was refused, with the column's name.
fn at<T>(columns: &Columns, position: usize, read: Result<T, Refused>) -> Result<T, Refused> {
    read.map_err(|refused| refused.at(columns, position))
}
