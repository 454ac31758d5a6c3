//! What a database reports when a call fails: [`DatabaseError`] and the [`Violation`] that programs react to.

use std::fmt;

use super::sqlstate;

/// An error that a database reports.
///
/// `Debug` does not show the [`detail`](DatabaseError::detail), which often contains personal data.
#[derive(Clone, Default)]
#[non_exhaustive]
pub struct DatabaseError {
    /// The database's message.
    pub message: String,
    /// The SQLSTATE: five characters.
    pub sql_state: Option<String>,
    /// The database's own error number.
    pub code: Option<i64>,
    /// The rule that was violated.
    pub violation: Option<Violation>,
    /// What the database reports besides its message, with values of the row.
    pub detail: Option<String>,
    /// What the database advises.
    pub hint: Option<String>,
    /// The schema of the table.
    pub schema: Option<String>,
    /// The table that the error is about.
    pub table: Option<String>,
    /// The column that the error is about, if it is exactly one.
    pub column: Option<String>,
    /// The row of a COPY that the error is about, counted from 0.
    pub row: Option<u64>,
    /// The name of the constraint.
    pub constraint: Option<String>,
    /// The position of the error in the driver's SQL, in characters from 1. The layer converts it to the position in
    /// the original text.
    pub position: Option<usize>,
}

impl fmt::Debug for DatabaseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("DatabaseError");
        shown.field("message", &self.message);
        let texts = [
            ("sql_state", &self.sql_state),
            ("hint", &self.hint),
            ("schema", &self.schema),
            ("table", &self.table),
            ("column", &self.column),
            ("constraint", &self.constraint),
        ];
        for (name, text) in texts {
            if let Some(text) = text {
                shown.field(name, text);
            }
        }
        if let Some(row) = self.row {
            shown.field("row", &row);
        }
        if let Some(code) = self.code {
            shown.field("code", &code);
        }
        if let Some(violation) = self.violation {
            shown.field("violation", &violation);
        }
        if let Some(position) = self.position {
            shown.field("position", &position);
        }
        shown.finish_non_exhaustive()
    }
}

impl DatabaseError {
    /// Replaces a part of the message, which is logged, by `***`: it is a value, and may be personal data. The detail
    /// keeps the whole message.
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
    pub(crate) fn hide(&mut self, value: std::ops::Range<usize>) {
        let mut shown = self.message.clone();
        shown.replace_range(value, crate::sql::MASK);
        let whole = std::mem::replace(&mut self.message, shown);
        self.detail = Some(match self.detail.take() {
            None => whole,
            Some(detail) => format!("{whole}; {detail}"),
        });
    }

    /// Creates an error with this message; set the other fields afterwards.
    pub fn new(message: impl Into<String>) -> Self {
        DatabaseError {
            message: message.into(),
            ..DatabaseError::default()
        }
    }

    /// Sets the SQLSTATE, and the violation that it means.
    #[must_use]
    pub fn with_sql_state(mut self, state: &str) -> Self {
        self.violation = self.violation.or_else(|| sqlstate::violation(state));
        self.sql_state = Some(state.to_owned());
        self
    }
}

/// Violations that programs react to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// A unique or primary key.
    Unique,
    /// A foreign key.
    ForeignKey,
    /// A column that must have a value.
    NotNull,
    /// A check constraint.
    Check,
    /// A value does not fit: a text is too long, a number is out of range or divided by zero, a text is no value of the type that it
    /// was converted to. SQLSTATE class 22, and its like in MySQL and SQLite.
    Data,
    /// Two transactions conflict: their result equals no serial order.
    Serialization,
    /// Two transactions waited for each other.
    Deadlock,
    /// The wait for a lock timed out.
    Locked,
    /// The SQL has a syntax error.
    Syntax,
    /// A table, column or function does not exist.
    Undefined,
    /// The server has no room for another transaction at the moment: Vitess with a full transaction pool.
    Exhausted,
    /// The call was cancelled.
    Cancelled,
    /// The user lacks a permission.
    Permission,
}
