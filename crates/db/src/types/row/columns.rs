//! The columns of a result.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::driver::Native;
use crate::types::value::Value;
use crate::{Error, Kind, Result};

/// Up to this many columns, names are compared with each other; with more, they are hashed.
const FEW: usize = 64;

/// A column of a result.
#[derive(Clone, Debug)]
pub struct Column {
    /// The name of the column.
    pub name: String,
    /// The database's name for the type, where it has one. SQLite gives the declared type.
    pub type_name: Option<String>,
    /// The driver's number for the type.
    pub type_id: u32,
    /// The driver's own description of the type, for the driver to downcast.
    pub native: Option<Native>,
}

impl Column {
    /// Returns a column of which only the name is known.
    pub fn new(name: impl Into<String>) -> Self {
        Column {
            name: name.into(),
            type_name: None,
            type_id: 0,
            native: None,
        }
    }
}

/// Columns are equal if name and type are; the driver's own description follows from these.
impl PartialEq for Column {
    fn eq(&self, other: &Self) -> bool {
        let Column {
            name,
            type_name,
            type_id,
            native: _,
        } = self;
        (name, type_name, type_id) == (&other.name, &other.type_name, &other.type_id)
    }
}

impl Eq for Column {}

/// The columns of a result, with the decoder of its bytes.
///
/// # Names
///
/// A column is found by its exact name. If there is none, the case of ASCII letters is ignored,
/// as in SQL: `ID` finds `id`, unless the result has both `id` and `Id`.
/// Of several columns with one name the first is found; the others have only a position.
pub struct Columns {
    columns: Vec<Column>,
    /// For each column, whether an earlier one has the same name.
    repeated: Vec<bool>,
    decode: &'static dyn Decode,
}

/// Decodes the raw bytes of a driver's rows.
pub trait Decode: Send + Sync {
    /// Returns the value of a cell. `tag` is the one that the driver passed to
    /// [`BatchBuilder::cell`](super::BatchBuilder::cell).
    ///
    /// The row calls this each time the cell is read, and never for NULL.
    ///
    /// # Errors
    ///
    /// [`Kind::Type`](crate::Kind::Type) if the bytes are no value of the type. The row adds the name of the
    /// column to the message.
    fn value<'r>(&self, column: &Column, tag: u8, bytes: &'r [u8]) -> Result<Value<'r>>;
}

impl Columns {
    /// Returns these columns, whose cells `decode` reads.
    pub fn new(columns: Vec<Column>, decode: &'static dyn Decode) -> Arc<Self> {
        let is_repeated = |(at, column): (usize, &Column)| {
            let earlier = &columns[..at];
            earlier.iter().any(|other| other.name == column.name)
        };
        let repeated = match columns.len() {
            ..=FEW => columns.iter().enumerate().map(is_repeated).collect(),
            // A server may send 65,535 of them.
            _ => {
                let mut names = HashSet::with_capacity(columns.len());
                let all = columns.iter().map(|column| column.name.as_str());
                all.map(|name| !names.insert(name)).collect()
            }
        };
        Arc::new(Columns {
            columns,
            repeated,
            decode,
        })
    }

    /// Returns all columns, in order.
    pub fn as_slice(&self) -> &[Column] {
        &self.columns
    }

    /// Returns the decoder of the cells.
    pub fn decode(&self) -> &'static dyn Decode {
        self.decode
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// Returns whether there are no columns, as for a statement without rows.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// Returns the column at this position, counted from 0.
    pub fn get(&self, position: usize) -> Option<&Column> {
        self.columns.get(position)
    }

    /// Returns the position of the column of this name, counted from 0; see [names](Columns#names).
    ///
    /// # Errors
    ///
    /// [`Kind::Column`] if there is none, or several whose names differ in case only.
    pub fn position(&self, name: &str) -> Result<usize> {
        let exact = self.columns.iter().position(|column| column.name == name);
        match exact {
            Some(position) => Ok(position),
            None => self.position_ignoring_case(name),
        }
    }

    fn position_ignoring_case(&self, name: &str) -> Result<usize> {
        let mut alike =
            self.columns.iter().enumerate().filter(|(at, column)| {
                !self.repeated[*at] && column.name.eq_ignore_ascii_case(name)
            });
        match (alike.next(), alike.next()) {
            (Some((position, _)), None) => Ok(position),
            (Some((_, one)), Some((_, other))) => Err(Error::new(
                Kind::Column,
                format!(
                    "`{name}` may be column `{}` or column `{}`",
                    one.name, other.name
                ),
            )),
            (None, _) => Err(self.no_such(&format_args!("`{name}`"))),
        }
    }

    /// Returns whether an earlier column has the same name: then this one is found by position only.
    pub(crate) fn is_repeated(&self, position: usize) -> bool {
        self.repeated[position]
    }

    /// Returns the name of the column at this position for messages.
    pub(crate) fn label(&self, position: usize) -> impl fmt::Display {
        match self.get(position) {
            Some(column) if !column.name.is_empty() => format!("column `{}`", column.name),
            _ => format!("column {position}"),
        }
    }

    /// Returns the error for a column that does not exist.
    pub(crate) fn no_such(&self, wanted: &dyn fmt::Display) -> Error {
        let mut message = format!("the row has no column {wanted}");
        if self.is_empty() {
            message.push_str(" nor any other");
        }
        for (at, column) in self.columns.iter().enumerate() {
            message.push_str(if at == 0 { "; it has `" } else { ", `" });
            message.push_str(&column.name);
            message.push('`');
        }
        Error::new(Kind::Column, message)
    }
}

impl fmt::Debug for Columns {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_list().entries(&self.columns).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nothing;

    impl Decode for Nothing {
        fn value<'r>(&self, _: &Column, _: u8, _: &'r [u8]) -> Result<Value<'r>> {
            Ok(Value::Null)
        }
    }

    #[test]
    fn repeated_name_is_recognised_among_few_and_many_columns() {
        for many in [FEW, FEW + 1, 65_535] {
            let mut columns: Vec<_> = (0..many - 2)
                .map(|n| Column::new(format!("c{n}")))
                .collect();
            columns.extend([Column::new("C0"), Column::new("c0")]);
            let columns = Columns::new(columns, &Nothing);
            assert!(columns.repeated[many - 1]);
            assert_eq!(columns.repeated.iter().filter(|it| **it).count(), 1);
            assert_eq!(columns.position("c0").unwrap(), 0);
        }
    }
}
