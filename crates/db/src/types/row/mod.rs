//! Rows as raw bytes of the driver, decoded when they are read.
//!
//! A [`Batch`] holds the bytes of many rows in one piece; a [`Row`] is a reference to its batch and an index.
//! So a result of a thousand rows takes a handful of allocations, and a value that is never read
//! is never decoded.

mod batch;
mod columns;

use std::fmt;

pub use batch::{Batch, BatchBuilder, Cell, CellBytes, IntoRows};
pub use columns::{Column, Columns, Decode};

use crate::types::value::{ConvertError, FromValue, Value};
use crate::{Error, Kind, Result};

/// A row of a result.
///
/// Cloning is cheap: all rows of a batch share its bytes, which
/// stay in memory until the last of these rows is dropped.
#[derive(Clone)]
pub struct Row {
    batch: Batch,
    index: usize,
}

impl Row {
    pub(crate) fn new(batch: Batch, index: usize) -> Self {
        Row { batch, index }
    }

    /// Returns the value of a column, by position (from 0) or by [name](Columns#names).
    ///
    /// The value may borrow from the row: `row.get::<&str>("name")?` copies nothing. See
    /// [`FromValue`] for the types.
    ///
    /// # Errors
    ///
    /// [`Kind::Column`] if there is no such column; [`Kind::Type`] if its value has another
    /// type, or is NULL and the type is no [`Option`].
    pub fn get<'r, T: FromValue<'r>>(&'r self, column: impl ColumnIndex) -> Result<T> {
        let position = column.position_in(self.columns())?;
        let value = self.decode(position)?;
        T::from_value(value).map_err(|error| self.type_error(position, error))
    }

    /// Returns the value of a column without a conversion.
    ///
    /// # Errors
    ///
    /// [`Kind::Column`] if there is no such column; [`Kind::Type`] if its bytes cannot be read.
    pub fn value(&self, column: impl ColumnIndex) -> Result<Value<'_>> {
        self.decode(column.position_in(self.columns())?)
    }

    /// Returns the value of each column, in order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Result<Value<'_>>> {
        (0..self.len()).map(|position| self.decode(position))
    }

    /// Returns the bytes of a cell as the driver keeps them, with their type; `None` for NULL.
    ///
    /// # Errors
    ///
    /// [`Kind::Column`] if there is no such column.
    pub fn raw(&self, column: impl ColumnIndex) -> Result<Option<RawCell<'_>>> {
        let columns = self.columns();
        let position = column.position_in(columns)?;
        let raw = self.batch.raw(self.index, position);
        Ok(raw.map(|(tag, bytes)| RawCell {
            column: &columns.as_slice()[position],
            tag,
            bytes,
        }))
    }

    /// Returns the columns of the row.
    pub fn columns(&self) -> &Columns {
        self.batch.columns()
    }

    /// Returns the number of columns.
    pub fn len(&self) -> usize {
        self.columns().len()
    }

    /// Returns whether the row has no columns.
    pub fn is_empty(&self) -> bool {
        self.columns().is_empty()
    }

    /// Returns the value at a position, which must exist.
    pub(crate) fn decode(&self, position: usize) -> Result<Value<'_>> {
        let Some((tag, bytes)) = self.batch.raw(self.index, position) else {
            return Ok(Value::Null);
        };
        let columns = self.columns();
        let column = &columns.as_slice()[position];
        columns.decode().value(column, tag, bytes).map_err(|error| {
            let message = format!("{}: {}", columns.label(position), error.message());
            let kind = error.kind();
            error.wrapped(kind, message)
        })
    }

    pub(crate) fn type_error(&self, position: usize, error: ConvertError) -> Error {
        let message = format!("{}: {error}", self.columns().label(position));
        let refused = Error::new(Kind::Type, message);
        match error.into_source() {
            Some(source) => refused.because(source),
            None => refused,
        }
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_map();
        for (column, value) in self.columns().as_slice().iter().zip(self.values()) {
            match value {
                Ok(value) => shown.entry(&column.name, &value),
                Err(error) => shown.entry(&column.name, &error.message()),
            };
        }
        shown.finish()
    }
}

/// The bytes of a cell as the driver keeps them: see [`Row::raw`].
///
/// PostgreSQL keeps the binary form of bool, integers, floats, bytea, uuid, date, time, timestamp and timestamptz,
/// and the text form of every other type.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RawCell<'r> {
    /// The column, with its type.
    pub column: &'r Column,
    /// The driver's mark for the form of the bytes.
    pub tag: u8,
    /// The bytes.
    pub bytes: &'r [u8],
}

/// What names a column: its position, from 0, or its [name](Columns#names).
///
/// This trait is sealed.
pub trait ColumnIndex: sealed::Sealed {
    #[doc(hidden)]
    fn position_in(&self, columns: &Columns) -> Result<usize>;
}

impl ColumnIndex for usize {
    #[inline]
    fn position_in(&self, columns: &Columns) -> Result<usize> {
        match columns.get(*self) {
            Some(_) => Ok(*self),
            None => Err(columns.no_such(self)),
        }
    }
}

impl ColumnIndex for str {
    fn position_in(&self, columns: &Columns) -> Result<usize> {
        columns.position(self)
    }
}

impl ColumnIndex for String {
    fn position_in(&self, columns: &Columns) -> Result<usize> {
        columns.position(self)
    }
}

impl<T: ColumnIndex + ?Sized> ColumnIndex for &T {
    fn position_in(&self, columns: &Columns) -> Result<usize> {
        T::position_in(self, columns)
    }
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for usize {}
    impl Sealed for str {}
    impl Sealed for String {}
    impl<T: Sealed + ?Sized> Sealed for &T {}
}
