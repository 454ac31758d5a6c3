//! A compiled statement, and the pieces of SQL that are put together here.

use std::ops::{Deref, DerefMut};

use rusqlite::types::Value as SqlValue;
use rusqlite::{CachedStatement, Statement};

use crate::{Error, Kind, Result};

/// A statement that goes back to the cache, or one that does not.
pub(super) enum Runnable<'s> {
    Kept(CachedStatement<'s>),
    Once(Statement<'s>),
}

impl<'s> Deref for Runnable<'s> {
    type Target = Statement<'s>;

    fn deref(&self) -> &Statement<'s> {
        match self {
            Runnable::Kept(statement) => statement,
            Runnable::Once(statement) => statement,
        }
    }
}

impl<'s> DerefMut for Runnable<'s> {
    fn deref_mut(&mut self) -> &mut Statement<'s> {
        match self {
            Runnable::Kept(statement) => statement,
            Runnable::Once(statement) => statement,
        }
    }
}

/// There is no SQL in it, only blanks and comments.
pub(super) fn is_nothing(statement: &Statement<'_>) -> bool {
    statement.column_count() == 0
        && statement.parameter_count() == 0
        && statement.readonly()
        && statement.expanded_sql().is_none()
}

pub(super) fn check_count(statement: &Statement<'_>, given: usize) -> Result<()> {
    let wanted = statement.parameter_count();
    if wanted == given {
        return Ok(());
    }
    let message = format!("the SQL takes {wanted} parameters, and {given} were given");
    Err(Error::new(Kind::Parameters, message))
}

/// A name as SQL takes it, whatever is in it.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A value as it can stand in a PRAGMA, which takes no parameters.
pub(super) fn literal(value: &SqlValue) -> Option<String> {
    match value {
        SqlValue::Integer(number) => Some(number.to_string()),
        SqlValue::Real(number) => Some(format!("{number:?}")),
        SqlValue::Text(text) => Some(format!("'{}'", text.replace('\'', "''"))),
        SqlValue::Null | SqlValue::Blob(_) => None,
    }
}
