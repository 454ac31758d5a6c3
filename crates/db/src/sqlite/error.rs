//! What SQLite says, as errors of this crate.

use rusqlite::ffi;

use crate::driver::{DatabaseError, Violation};
use crate::{Error, Kind};

/// The class of the SQL standard for broken constraints, and the one for everything
/// else: SQLite has none of its own, and these are what PDO gives.
const CONSTRAINT_STATE: &str = "23000";
const GENERAL_STATE: &str = "HY000";

/// What SQLite said, in its own words.
pub(super) fn from_sqlite(error: rusqlite::Error) -> Error {
    match error {
        rusqlite::Error::SqliteFailure(code, message) => {
            let message = message.unwrap_or_else(|| code.to_string());
            refused(code.extended_code, message)
        }
        rusqlite::Error::SqlInputError { error, msg, .. } => refused(error.extended_code, msg),
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

/// The statement was cancelled before it reached SQLite.
pub(super) fn cancelled() -> Error {
    refused(ffi::SQLITE_INTERRUPT, "interrupted".to_owned())
}

/// Others of this process wrote for too long.
pub(super) fn write_queue_timeout() -> Error {
    let message = "database is locked: another transaction of this program has been writing for \
                   longer than the busy timeout";
    refused(ffi::SQLITE_BUSY, message.to_owned())
}

/// There is no statement in the SQL.
pub(super) fn nothing_to_run() -> Error {
    refused(
        ffi::SQLITE_ERROR,
        "the SQL is empty: incomplete input".to_owned(),
    )
}

/// SQLite went on with an order that is none.
pub(super) fn collation_panicked(name: &str) -> Error {
    let message = format!("the collation {name} panicked");
    refused(ffi::SQLITE_ERROR, message)
}

/// SQLite's extended result code, if it was SQLite that refused.
pub(super) fn extended_code(error: &rusqlite::Error) -> Option<i32> {
    match error {
        rusqlite::Error::SqliteFailure(code, _)
        | rusqlite::Error::SqlInputError { error: code, .. } => Some(code.extended_code),
        _ => None,
    }
}

/// SQLite's primary result code.
pub(super) fn primary_code(error: &rusqlite::Error) -> Option<i32> {
    extended_code(error).map(|code| code & 0xff)
}

/// After these, nothing that the connection says can be relied on.
pub(super) fn is_fatal(error: &rusqlite::Error) -> bool {
    matches!(
        primary_code(error),
        Some(ffi::SQLITE_CORRUPT | ffi::SQLITE_NOTADB | ffi::SQLITE_IOERR)
    )
}

/// Another connection holds a lock on the file.
pub(super) fn is_busy(error: &Error) -> bool {
    has_primary(error, ffi::SQLITE_BUSY)
}

/// The file of a connection was deleted or replaced.
pub(super) fn file_replaced() -> Error {
    let message = "the file of this connection was deleted or replaced while it was open";
    Error::new(Kind::ConnectionLost, message).never_sent()
}

/// A value or a statement is longer than SQLite's limits allow.
pub(super) fn is_too_big(error: &Error) -> bool {
    has_primary(error, ffi::SQLITE_TOOBIG)
}

/// A rule of the schema was broken.
pub(super) fn is_constraint(error: &Error) -> bool {
    has_primary(error, ffi::SQLITE_CONSTRAINT)
}

/// SQLite could not do what it has to with the file: nobody can tell what is on the disk.
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

/// The database, or this connection to it, cannot be written.
pub(super) fn is_read_only(error: &Error) -> bool {
    has_primary(error, ffi::SQLITE_READONLY)
}

/// It is one of SQLite's, with this primary result code.
pub(super) fn has_primary(error: &Error, primary: i32) -> bool {
    error
        .code()
        .is_some_and(|code| code & 0xff == i64::from(primary))
}

/// Another connection to the same shared cache holds a lock. SQLite never calls the
/// busy handler for these.
pub(super) fn is_shared_cache_lock(error: &rusqlite::Error) -> bool {
    extended_code(error) == Some(ffi::SQLITE_LOCKED_SHAREDCACHE)
}

fn refused(extended: i32, message: String) -> Error {
    let constraint = constraint_of(extended, &message);
    let violation = violation_of(extended, &message);
    let mut said = DatabaseError::new(message);
    said.code = Some(i64::from(extended));
    said.violation = violation;
    said.constraint = constraint;
    let state = match extended & 0xff {
        ffi::SQLITE_CONSTRAINT => CONSTRAINT_STATE,
        _ => GENERAL_STATE,
    };
    Error::database(said.with_sql_state(state))
}

fn violation_of(extended: i32, message: &str) -> Option<Violation> {
    Some(match extended {
        ffi::SQLITE_CONSTRAINT_UNIQUE
        | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
        | ffi::SQLITE_CONSTRAINT_ROWID => Violation::Unique,
        ffi::SQLITE_CONSTRAINT_FOREIGNKEY => Violation::ForeignKey,
        ffi::SQLITE_CONSTRAINT_NOTNULL => Violation::NotNull,
        ffi::SQLITE_CONSTRAINT_CHECK => Violation::Check,
        ffi::SQLITE_BUSY_SNAPSHOT => Violation::Serialization,
        other => return violation_of_primary(other & 0xff, message),
    })
}

fn violation_of_primary(primary: i32, message: &str) -> Option<Violation> {
    Some(match primary {
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => Violation::Locked,
        ffi::SQLITE_INTERRUPT => Violation::Cancelled,
        ffi::SQLITE_READONLY | ffi::SQLITE_PERM | ffi::SQLITE_AUTH => Violation::Permission,
        // SQLite has one code for all that is wrong with the text itself.
        ffi::SQLITE_ERROR if is_syntax(message) => Violation::Syntax,
        ffi::SQLITE_ERROR if is_undefined(message) => Violation::Undefined,
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

/// What comes after `constraint failed: `, which is the columns of a key, or the name
/// or the text of a check.
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
    fn what_is_wrong_with_the_text_is_told_apart() {
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
        assert_eq!(unknown.violation(), Some(Violation::Undefined), "{unknown}");
    }

    #[test]
    fn the_message_is_what_sqlite_said_and_not_the_whole_text() {
        let error = failing("", "SELECT * FROM nowhere");
        assert_eq!(error.message(), "no such table: nowhere");
    }
}
