//! Requests that a thread can own, compiled statements, and the pieces of SQL that the driver writes itself.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

use rusqlite::types::Value as SqlValue;
use rusqlite::{CachedStatement, Statement};

use super::config::DIALECT;
use super::types::to_sqlite;
use crate::driver::Request;
use crate::sql::{Class, class, is_remembered};
use crate::{Error, Kind, Result};

/// A [`Request`] that borrows nothing, for another thread to run.
#[derive(Debug)]
pub(super) struct OwnedRequest {
    pub(super) sql: OwnedSql,
    pub(super) params: Vec<SqlValue>,
    pub(super) script: bool,
    pub(super) cache: bool,
    pub(super) rows: bool,
}

impl OwnedRequest {
    /// Copies a request.
    ///
    /// # Errors
    ///
    /// SQLite cannot hold the value of a parameter.
    pub(super) async fn of(request: &Request<'_>) -> Result<Self> {
        Ok(OwnedRequest {
            sql: OwnedSql::new(request.sql),
            params: to_sqlite(request.params).await?,
            script: request.script,
            cache: request.cache,
            rows: request.rows,
        })
    }
}

/// The text of a request that borrows nothing, and its class.
#[derive(Debug)]
pub(super) struct OwnedSql {
    sql: String,
    class: OnceLock<Class>,
}

impl OwnedSql {
    /// Copies a text. The calling task looks a short text's class up, because it remembers its own scans. The
    /// thread scans a long one.
    pub(super) fn new(sql: &str) -> Self {
        let text = OwnedSql {
            sql: sql.to_owned(),
            class: OnceLock::new(),
        };
        if is_remembered(sql) {
            text.class();
        }
        text
    }

    pub(super) fn class(&self) -> &Class {
        self.class.get_or_init(|| class(&DIALECT, &self.sql))
    }
}

impl Deref for OwnedSql {
    type Target = str;

    fn deref(&self) -> &str {
        &self.sql
    }
}

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

/// Returns whether the text had no SQL, only blanks and comments.
pub(super) fn is_nothing(statement: &Statement<'_>) -> bool {
    statement.column_count() == 0
        && statement.parameter_count() == 0
        && statement.readonly()
        && statement.expanded_sql().is_none()
}

/// Refuses a statement that takes another number of parameters.
pub(super) fn check_count(statement: &Statement<'_>, given: usize) -> Result<()> {
    let wanted = statement.parameter_count();
    if wanted == given {
        return Ok(());
    }
    let message = format!("the SQL takes {wanted} parameters, and {given} were given");
    Err(Error::new(Kind::Parameters, message))
}

/// Quotes a name for SQL, whatever characters it has.
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Writes a value as a literal, for a PRAGMA, which takes no parameters. `None` if a PRAGMA cannot have such a value.
pub(super) fn literal(value: &SqlValue) -> Option<String> {
    match value {
        SqlValue::Integer(number) => Some(number.to_string()),
        SqlValue::Real(number) => Some(format!("{number:?}")),
        SqlValue::Text(text) => Some(format!("'{}'", text.replace('\'', "''"))),
        SqlValue::Null | SqlValue::Blob(_) => None,
    }
}
