//! The layout of a result's rows, and how they are read.

use std::sync::Arc;

use super::handle::{OdbcError, Stmt};
use super::types::{Cells, Form, column};
use crate::Result;
use crate::driver::{BatchBuilder, Columns};

/// The columns of a result, and how their cells are fetched.
pub(super) struct Shape {
    pub(super) columns: Arc<Columns>,
    forms: Vec<Form>,
}

impl Shape {
    /// Returns the layout of the current result; without columns if it has no rows.
    pub(super) fn of(statement: &mut Stmt) -> Result<Self, OdbcError> {
        let width = statement.width()?;
        let mut columns = Vec::with_capacity(usize::from(width));
        let mut forms = Vec::with_capacity(usize::from(width));
        for number in 1..=width {
            let description = statement.column(number)?;
            columns.push(column(&description));
            forms.push(Form::of(&description.data_type));
        }
        let columns = Columns::new(columns, &Cells);
        Ok(Shape { columns, forms })
    }

    /// Appends the current row.
    pub(super) fn push(
        &self,
        statement: &mut Stmt,
        rows: &mut BatchBuilder,
    ) -> Result<Result<()>, OdbcError> {
        let mut cell = Vec::new();
        for (number, form) in (1..).zip(&self.forms) {
            let is_there = match form {
                Form::Float => {
                    let number = statement.float(number)?;
                    cell.clear();
                    cell.extend_from_slice(&number.unwrap_or(0.0).to_le_bytes());
                    number.is_some()
                }
                Form::Bytes => statement.bytes(number, &mut cell)?,
                _ => statement.text(number, &mut cell)?,
            };
            match is_there {
                true => rows.cell(form.tag(), &cell),
                false => rows.null(),
            }
        }
        Ok(rows.end_row())
    }
}
