//! Rows keep the bytes from the server and decode a value when it is read.

use std::borrow::Cow;
use std::sync::Arc;

use cenote::driver::{BatchBuilder, Column, Columns, Decode, Value};
use cenote::{Error, Kind, Result};

/// The type of a cell: its tag.
const TEXT: u8 = 0;
const NUMBER: u8 = 1;

struct Cells;

impl Decode for Cells {
    fn value<'r>(&self, _column: &Column, tag: u8, bytes: &'r [u8]) -> Result<Value<'r>> {
        let text = std::str::from_utf8(bytes)
            .map_err(|error| Error::new(Kind::Type, "the text is no UTF-8").because(error))?;
        match tag {
            NUMBER => match text.parse() {
                Ok(number) => Ok(Value::Int(number)),
                Err(error) => Err(Error::new(Kind::Type, "the id is no number").because(error)),
            },
            _ => Ok(Value::Text(Cow::Borrowed(text))),
        }
    }
}

/// The columns that a `COLUMNS` line names.
pub(crate) fn columns(names: &[Option<String>]) -> Arc<Columns> {
    let names = names.iter().map(|name| name.as_deref().unwrap_or_default());
    Columns::new(names.map(Column::new).collect(), &Cells)
}

/// Adds the fields of a `ROW` line to the rows before it.
pub(crate) fn push(rows: &mut BatchBuilder, fields: &[Option<String>]) -> Result<()> {
    for (n, field) in fields.iter().enumerate() {
        match field {
            // The protocol has no types: what comes first is a number.
            Some(field) if n == 0 && field.parse::<i64>().is_ok() => {
                rows.cell(NUMBER, field.as_bytes());
            }
            Some(field) => rows.cell(TEXT, field.as_bytes()),
            None => rows.null(),
        }
    }
    rows.end_row()
}
