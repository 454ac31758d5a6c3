//! The columns of a result.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

use crate::types::value::Value;
use crate::{Error, Kind, Result};

/// So many columns are compared with each other; more are looked up.
const FEW: usize = 64;

/// A column of a result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// What the database calls its type, where it has one.
    pub type_name: Option<String>,
    /// The driver's own number for that type.
    pub type_id: u32,
}

impl Column {
    /// A column of which only the name is known.
    pub fn new(name: impl Into<String>) -> Self {
        Column {
            name: name.into(),
            type_name: None,
            type_id: 0,
        }
    }
}

/// The columns of a result, and how to read its bytes.
///
/// # Names
///
/// A column is found by its exact name. If there is none, case of ASCII letters is
/// set aside, as SQL does: `ID` finds `id`, unless there are both `id` and `Id` to choose from.
/// Of several columns with the same name the first is found; the others can be had by position.
pub struct Columns {
    columns: Vec<Column>,
    /// For each column: an earlier one has the same name.
    repeated: Vec<bool>,
    decode: &'static dyn Decode,
}

/// How a driver reads the raw bytes of its rows.
pub trait Decode: Send + Sync {
    /// The value of a cell. `tag` is what the driver gave to
    /// [`BatchBuilder::cell`](super::BatchBuilder::cell).
    ///
    /// It is called each time somebody asks for the cell, and never for NULL.
    ///
    /// # Errors
    ///
    /// [`Kind::Type`](crate::Kind::Type) if the bytes are not what the type says. The row puts the name of the
    /// column before the message.
    fn value<'r>(&self, column: &Column, tag: u8, bytes: &'r [u8]) -> Result<Value<'r>>;
}

impl Columns {
    /// These columns, whose bytes are read so.
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

    /// All of them, in order.
    pub fn as_slice(&self) -> &[Column] {
        &self.columns
    }

    /// How their bytes are read.
    pub fn decode(&self) -> &'static dyn Decode {
        self.decode
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.columns.len()
    }

    /// There are none: what a statement without rows has.
    pub fn is_empty(&self) -> bool {
        self.columns.is_empty()
    }

    /// The column at this position, from 0.
    pub fn get(&self, position: usize) -> Option<&Column> {
        self.columns.get(position)
    }

    /// Where the column of this name is, from 0; see [names](Columns#names).
    ///
    /// # Errors
    ///
    /// [`Kind::Column`] if there is none, or more than one if case is set aside.
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

    /// An earlier column has the same name, so that this one is found by position only.
    pub(crate) fn is_repeated(&self, position: usize) -> bool {
        self.repeated[position]
    }

    /// What a message calls the column at this position.
    pub(crate) fn label(&self, position: usize) -> impl fmt::Display {
        match self.get(position) {
            Some(column) if !column.name.is_empty() => format!("column `{}`", column.name),
            _ => format!("column {position}"),
        }
    }

    /// The error for a column that is not there.
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
