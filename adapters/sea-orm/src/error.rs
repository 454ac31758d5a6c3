//! Errors of cenote as errors of SeaORM.

use std::sync::Arc;

use cenote::Violation;
use sea_orm::{DbErr, SqlErr};

/// Wraps an error. `TryIntoErr` is the only variant that can hold the error of another library.
pub(crate) fn db_err(error: cenote::Error) -> DbErr {
    DbErr::TryIntoErr {
        from: "cenote::Error",
        into: "DbErr",
        source: Arc::new(error),
    }
}

/// Returns an error of this crate.
pub(crate) fn refused(message: &str) -> DbErr {
    db_err(cenote::Error::new(cenote::Kind::Unsupported, message))
}

/// Returns the [`cenote::Error`] inside an error of SeaORM, with its kind, SQLSTATE, call site and holders.
pub fn cenote_error(error: &DbErr) -> Option<&cenote::Error> {
    match error {
        DbErr::TryIntoErr { source, .. } => source.downcast_ref(),
        _ => None,
    }
}

/// Returns what [`DbErr::sql_err`] returns for sqlx's errors: whether a constraint was violated.
pub fn sql_err(error: &DbErr) -> Option<SqlErr> {
    let found = cenote_error(error)?;
    let message = || found.message().to_owned();
    match found.violation()? {
        Violation::Unique => Some(SqlErr::UniqueConstraintViolation(message())),
        Violation::ForeignKey => Some(SqlErr::ForeignKeyConstraintViolation(message())),
        _ => None,
    }
}
