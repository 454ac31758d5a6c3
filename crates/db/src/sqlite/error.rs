//! Converts SQLite's errors to errors of this crate.

use std::ops::Range;

use rusqlite::ffi;

use super::write_queue::WriteHolder;
use crate::driver::{DatabaseError, Violation};
use crate::error::rounded;
use crate::{Error, Kind};

/// The SQLSTATEs for violated constraints and for everything else. SQLite has none of its own; PDO reports these.
const CONSTRAINT_STATE: &str = "23000";
const GENERAL_STATE: &str = "HY000";

/// Converts an error, with SQLite's own message.
pub(super) fn from_sqlite(error: rusqlite::Error) -> Error {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => {
            let message = message.unwrap_or_else(|| code.to_string());
            refused(code.extended_code, message)
        }
        rusqlite::Error::SqlInputError {
            error,
            msg,
            sql,
            offset,
        } => Error::database(DatabaseError {
            position: position(&sql, offset),
            ..report(error.extended_code, msg)
        }),
        rusqlite::Error::MultipleStatement => {
            let message = "the SQL has several statements, where one was expected";
            refused(ffi::SQLITE_ERROR, message.to_owned())
        }
        rusqlite::Error::NulError(_) => {
            let message = "the SQL, a path or a name has a NUL character in it";
            Error::new(Kind::Database, message).because(error)
        }
        other => Error::new(Kind::Database, other.to_string()).because(other),
    }
}

/// Returns the error of a call that was cancelled before it reached SQLite.
pub(super) fn cancelled() -> Error {
    refused(ffi::SQLITE_INTERRUPT, "interrupted".to_owned())
}

/// Returns the error of a call that waited too long in the write queue.
pub(super) fn write_queue_timeout(holder: Option<WriteHolder>) -> Error {
    locked(ffi::SQLITE_BUSY, holder, || {
        "database is locked: another transaction of this program has been writing for longer than \
         the busy timeout"
            .to_owned()
    })
}

/// Returns the error of a call that waited for another writer of this program, with the writer's line and time. Without
/// such a writer, `otherwise` returns the message.
pub(super) fn locked(
    extended: i32,
    holder: Option<WriteHolder>,
    otherwise: impl FnOnce() -> String,
) -> Error {
    let Some(holder) = holder else {
        return refused(extended, otherwise());
    };
    let message = format!(
        "database is locked: this program has been writing for {}",
        rounded(holder.held_for())
    );
    let error = refused(extended, message);
    match holder.site {
        Some(site) => error.at("since the call at", site),
        None => error,
    }
}

/// Returns the result code if SQLite refused a lock that another connection holds. An outdated snapshot is a conflict, and
/// no lock.
pub(super) fn lock_refused(error: &rusqlite::Error) -> Option<i32> {
    let extended = extended_code(error)?;
    let is_lock = extended & 0xff == ffi::SQLITE_BUSY && extended != ffi::SQLITE_BUSY_SNAPSHOT;
    is_lock.then_some(extended)
}

/// Returns the error of a text without a statement.
pub(super) fn nothing_to_run() -> Error {
    refused(
        ffi::SQLITE_ERROR,
        "the SQL is empty: incomplete input".to_owned(),
    )
}

/// Returns the error of a statement whose collation panicked: SQLite has sorted wrongly.
pub(super) fn collation_panicked(name: &str) -> Error {
    let message = format!("the collation {name} panicked");
    refused(ffi::SQLITE_ERROR, message)
}

/// Returns SQLite's extended result code, if the error is SQLite's.
pub(super) fn extended_code(error: &rusqlite::Error) -> Option<i32> {
    match error {
        rusqlite::Error::SqliteFailure(code, _)
        | rusqlite::Error::SqlInputError { error: code, .. } => Some(code.extended_code),
        _ => None,
    }
}

/// Returns SQLite's primary result code.
pub(super) fn primary_code(error: &rusqlite::Error) -> Option<i32> {
    extended_code(error).map(|code| code & 0xff)
}

/// Returns whether the connection cannot be used after this error.
pub(super) fn is_fatal(error: &rusqlite::Error) -> bool {
    matches!(
        primary_code(error),
        Some(ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB | ffi::SQLITE_IOERR)
    )
}

/// Returns whether another connection holds a lock on the file.
pub(super) fn is_busy(error: &Error) -> bool {
    has_primary(error, ffi::SQLITE_BUSY)
}

/// Returns the error of a connection whose file was deleted or replaced.
pub(super) fn file_replaced() -> Error {
    let message = "the file of this connection was deleted or replaced while it was open";
    Error::new(Kind::ConnectionLost, message).never_sent()
}

/// Returns whether a value or a statement exceeds SQLite's limits.
pub(super) fn is_too_big(error: &Error) -> bool {
    has_primary(error, ffi::SQLITE_TOOBIG)
}

/// Returns whether a constraint was violated.
pub(super) fn is_constraint(error: &Error) -> bool {
    has_primary(error, ffi::SQLITE_CONSTRAINT)
}

/// Returns whether reading or writing the file failed: then it is unknown what the disk holds.
pub(super) fn is_of_the_disk(error: &Error) -> bool {
    [
        ffi::SQLITE_IOERR,
        ffi::SQLITE_FULL,
        ffi::SQLITE_CORRUPT,
        ffi::SQLITE_NOTADB,
    ]
    .iter()
    .any(|primary| has_primary(error, *primary))
}

/// Returns whether the database, or this connection, is read-only.
pub(super) fn is_read_only(error: &Error) -> bool {
    has_primary(error, ffi::SQLITE_READONLY)
}

/// Returns whether the error is SQLite's and has this primary result code.
pub(super) fn has_primary(error: &Error, primary: i32) -> bool {
    error
        .code()
        .is_some_and(|code| code & 0xff == i64::from(primary))
}

/// Returns whether another connection to the same shared cache holds a lock. SQLite never calls the busy handler
/// for these locks.
pub(super) fn is_shared_cache_lock(error: &rusqlite::Error) -> bool {
    extended_code(error) == Some(ffi::SQLITE_LOCKED_SHAREDCACHE)
}

/// Returns the character at an offset in bytes, counted from 1. SQLite returns -1 if it knows no offset.
fn position(sql: &str, offset: i32) -> Option<usize> {
    let before = sql.get(..usize::try_from(offset).ok()?)?;
    Some(before.chars().count() + 1)
}

fn refused(extended: i32, message: String) -> Error {
    Error::database(report(extended, message))
}

fn report(extended: i32, message: String) -> DatabaseError {
    let constraint = constraint_of(extended, &message);
    let (table, column) = place_of(extended, &message);
    let violation = violation_of(extended, &message);
    let mut said = DatabaseError::new(message);
    said.code = Some(i64::from(extended));
    said.violation = violation;
    said.constraint = constraint;
    said.table = table;
    said.column = column;
    if let Some(value) = value_in(&said.message) {
        said.hide(value);
    }
    let state = match extended & 0xff {
        ffi::SQLITE_CONSTRAINT => CONSTRAINT_STATE,
        _ => GENERAL_STATE,
    };
    said.with_sql_state(state)
}

/// Finds the value that a message quotes: `near "'ada'": syntax error`, `fts5: syntax error near "ada"`.
fn value_in(message: &str) -> Option<Range<usize>> {
    let is_search = message.starts_with("fts5: ");
    if !is_search && !message.starts_with("near ") && !message.starts_with("unrecognized token: ") {
        return None;
    }
    let (start, end) = (message.find('"')?, message.rfind('"')?);
    let quoted = message.get(start + 1..end)?;
    let is_literal = quoted.contains('\'') || quoted.starts_with(|it: char| it.is_ascii_digit());
    (is_search || is_literal).then_some(start..end + 1)
}

/// Returns the table and the column that a message names.
fn place_of(extended: i32, message: &str) -> (Option<String>, Option<String>) {
    let owned = |name: &str| Some(name.to_owned());
    match extended {
        ffi::SQLITE_CONSTRAINT_UNIQUE
        | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
        | ffi::SQLITE_CONSTRAINT_ROWID
        | ffi::SQLITE_CONSTRAINT_NOTNULL => {
            let columns = message.split_once("constraint failed: ");
            let Some((table, column)) = columns.and_then(|(_, names)| names.split_once('.')) else {
                return (None, None);
            };
            let is_one = !column.contains(", ");
            (owned(table), owned(column).filter(|_| is_one))
        }
        ffi::SQLITE_ERROR => {
            if let Some(table) = message.strip_prefix("no such table: ") {
                return (owned(table), None);
            }
            if let Some(column) = message.strip_prefix("no such column: ") {
                return (None, owned(column));
            }
            let named = message.strip_prefix("table ");
            match named.and_then(|rest| rest.split_once(" has no column named ")) {
                Some((table, column)) => (owned(table), owned(column)),
                None => (None, None),
            }
        }
        _ => (None, None),
    }
}

fn violation_of(extended: i32, message: &str) -> Option<Violation> {
    Some(match extended {
        ffi::SQLITE_CONSTRAINT_UNIQUE
        | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
        | ffi::SQLITE_CONSTRAINT_ROWID => Violation::Unique,
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => Violation::ForeignKey,
        ffi::SQLITE_CONSTRAINT_NOTNULL => Violation::NotNull,
        ffi::SQLITE_CONSTRAINT_CHECK => Violation::Check,
        ffi::SQLITE_CONSTRAINT_DATATYPE => Violation::Data,
        ffi::SQLITE_BUSY_SNAPSHOT => Violation::Serialization,
        other => return violation_of_primary(other & 0xff, message),
    })
}

fn violation_of_primary(primary: i32, message: &str) -> Option<Violation> {
    Some(match primary {
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => Violation::Locked,
        ffi::SQLITE_INTERRUPT => Violation::Cancelled,
        ffi::SQLITE_READONLY | ffi::SQLITE_PERM | ffi::SQLITE_AUTH => Violation::Permission,
        // SQLite has one code for all errors in the text itself.
        ffi::SQLITE_ERROR if is_syntax(message) => Violation::Syntax,
        ffi::SQLITE_ERROR if is_undefined(message) => Violation::Undefined,
        ffi::SQLITE_MISMATCH | ffi::SQLITE_TOOBIG => Violation::Data,
        ffi::SQLITE_ERROR if ["integer overflow", "malformed JSON"].contains(&message) => {
            Violation::Data
        }
        _ => return None,
    })
}

fn is_syntax(message: &str) -> bool {
    message.contains("syntax error")
        || message.starts_with("unrecognized token")
        || message.ends_with("incomplete input")
}

fn is_undefined(message: &str) -> bool {
    message.starts_with("no such ") || message.contains(" has no column named ")
}

/// Returns the text after `constraint failed: `: the columns of a key, or the name or text of a check.
fn constraint_of(extended: i32, message: &str) -> Option<String> {
    if extended & 0xff != ffi::SQLITE_CONSTRAINT {
        return None;
    }
    let (_, what) = message.split_once("constraint failed: ")?;
    let index = what
        .strip_prefix("index '")
        .and_then(|rest| rest.strip_suffix('\''));
    Some(index.unwrap_or(what).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failing(setup: &str, sql: &str) -> Error {
        let db = rusqlite::Connection::open_in_memory().unwrap();
        db.execute_batch(setup).unwrap();
        from_sqlite(db.execute_batch(sql).unwrap_err())
    }

    #[test]
    fn a_broken_key_says_which_columns_it_is_about() {
        let setup = "CREATE TABLE t (a, b, UNIQUE (a, b)); INSERT INTO t VALUES (1, 2)";
        let error = failing(setup, "INSERT INTO t VALUES (1, 2)");
        assert!(error.is_unique_violation());
        assert_eq!(error.constraint(), Some("t.a, t.b"));
        assert_eq!((error.table(), error.column()), (Some("t"), None));
        assert_eq!(error.sql_state(), Some("23000"));
        assert_eq!(error.code(), Some(i64::from(ffi::SQLITE_CONSTRAINT_UNIQUE)));
    }

    #[test]
    fn an_index_on_an_expression_is_named() {
        let setup = "CREATE TABLE t (a); CREATE UNIQUE INDEX low ON t (lower(a));
                     INSERT INTO t VALUES ('x')";
        let error = failing(setup, "INSERT INTO t VALUES ('X')");
        assert!(error.is_unique_violation());
        assert_eq!(error.constraint(), Some("low"));
    }

    #[test]
    fn every_kind_of_constraint_has_its_predicate() {
        let not_null = failing("CREATE TABLE t (a NOT NULL)", "INSERT INTO t VALUES (NULL)");
        assert!(not_null.is_not_null_violation());
        assert_eq!(not_null.constraint(), Some("t.a"));
        assert_eq!(
            (not_null.table(), not_null.column()),
            (Some("t"), Some("a"))
        );

        let check = failing(
            "CREATE TABLE t (a CONSTRAINT small CHECK (a < 9))",
            "INSERT INTO t VALUES (10)",
        );
        assert!(check.is_check_violation());
        assert_eq!(check.constraint(), Some("small"));

        let primary = failing(
            "CREATE TABLE t (a INTEGER PRIMARY KEY); INSERT INTO t VALUES (1)",
            "INSERT INTO t VALUES (1)",
        );
        assert!(primary.is_unique_violation());

        let foreign = failing(
            "PRAGMA foreign_keys = 1; CREATE TABLE p (id PRIMARY KEY);
             CREATE TABLE c (p REFERENCES p)",
            "INSERT INTO c VALUES (1)",
        );
        assert!(foreign.is_foreign_key_violation());
        assert_eq!(foreign.constraint(), None);
    }

    #[test]
    fn errors_of_the_text_have_their_own_kinds() {
        assert_eq!(failing("", "SELEC 1").violation(), Some(Violation::Syntax));
        assert_eq!(
            failing("", "SELECT (1").violation(),
            Some(Violation::Syntax)
        );
        for undefined in ["SELECT * FROM nowhere", "SELECT nil", "SELECT nobody(1)"] {
            let error = failing("", undefined);
            assert_eq!(error.violation(), Some(Violation::Undefined), "{error}");
            assert_eq!(error.sql_state(), Some("HY000"));
        }
        let unknown = failing("CREATE TABLE t (a)", "INSERT INTO t (b) VALUES (1)");
        assert_eq!((unknown.table(), unknown.column()), (Some("t"), Some("b")));
        assert_eq!(unknown.violation(), Some(Violation::Undefined), "{unknown}");
    }

    #[test]
    fn the_message_is_what_sqlite_said_and_not_the_whole_text() {
        let error = failing("", "SELECT * FROM nowhere");
        assert_eq!(error.message(), "no such table: nowhere");
    }
}
