//! Rows, as the driver received them: raw bytes, decoded when they are asked for.
//!
//! A [`Batch`] holds the bytes of many rows in one piece; a [`Row`] is a share of it and a number.
//! So a result of a thousand rows is a handful of allocations, and a value that nobody asks for
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
/// Cloning it is cheap: all rows that came together share their bytes, and
/// these stay in memory until the last of the rows is gone.
#[derive(Clone)]
pub struct Row {
    batch: Batch,
    index: usize,
}

impl Row {
    pub(crate) fn new(batch: Batch, index: usize) -> Self {
        Row { batch, index }
    }

    /// The value of a column, by position (from 0) or by [name](Columns#names).
    ///
    /// It may borrow from the row: `row.get::<&str>("name")?` copies nothing. See
    /// [`FromValue`] for what can be asked for.
    ///
    /// # Errors
    ///
    /// [`Kind::Column`] if there is no such column; [`Kind::Type`] if its value is not of
    /// that type, or is NULL and that was not allowed for with an [`Option`].
    pub fn get<'r, T: FromValue<'r>>(&'r self, column: impl ColumnIndex) -> Result<T> {
        let position = column.position_in(self.columns())?;
        let value = self.decode(position)?;
        T::from_value(value).map_err(|error| self.type_error(position, error))
    }

    /// The value of a column as the database has it.
    ///
    /// # Errors
    ///
    /// [`Kind::Column`] if there is no such column; [`Kind::Type`] if its bytes cannot be read.
    pub fn value(&self, column: impl ColumnIndex) -> Result<Value<'_>> {
        self.decode(column.position_in(self.columns())?)
    }

    /// The value of each column, in order.
    pub fn values(&self) -> impl ExactSizeIterator<Item = Result<Value<'_>>> {
        (0..self.len()).map(|position| self.decode(position))
    }

    /// A cell as the driver wrote it, for types that only the driver knows: its tag and its
    /// bytes; `None` for NULL.
    ///
    /// # Errors
    ///
    /// [`Kind::Column`] if there is no such column.
    pub fn raw(&self, column: impl ColumnIndex) -> Result<Option<(u8, &[u8])>> {
        let position = column.position_in(self.columns())?;
        Ok(self.batch.raw(self.index, position))
    }

    /// Its columns.
    pub fn columns(&self) -> &Columns {
        self.batch.columns()
    }

    /// How many columns it has.
    pub fn len(&self) -> usize {
        self.columns().len()
    }

    /// It has no columns.
    pub fn is_empty(&self) -> bool {
        self.columns().is_empty()
    }

    /// The value at a position that there is.
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

    fn type_error(&self, position: usize, error: ConvertError) -> Error {
        let message = format!("{}: {error}", self.columns().label(position));
        let told = Error::new(Kind::Type, message);
        match error.into_source() {
            Some(source) => told.because(source),
            None => told,
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

/// What a column can be asked for by: its position, from 0, or its [name](Columns#names).
///
/// There is nothing to implement.
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
