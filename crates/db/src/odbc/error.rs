//! Errors of ODBC drivers.

use odbc_api::handles::Record;

use super::config::{MYSQL, POSTGRES, SQLITE};
use super::handle::OdbcError;
use crate::driver::{DatabaseError, Violation};
use crate::sql::Dialect;
use crate::{Error, Kind};

/// The general SQLSTATE, which says nothing about the error.
const GENERAL_STATE: &str = "HY000";
/// The class of violated constraints.
const CONSTRAINT_STATE: &str = "23000";

/// The database: where an SQLSTATE is too general, the database's own error number is more precise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Vendor {
    Sqlite,
    Postgres,
    Mysql,
    SqlServer,
    Other,
}

impl Vendor {
    pub(super) fn of(system_name: &str) -> Self {
        let name = system_name.to_ascii_lowercase();
        match name.as_str() {
            "sqlite" => Vendor::Sqlite,
            "postgresql" => Vendor::Postgres,
            "mysql" | "mariadb" => Vendor::Mysql,
            "microsoft sql server" => Vendor::SqlServer,
            _ => Vendor::Other,
        }
    }

    /// Returns the kind of violation for the database's own error number.
    fn violation(self, code: i32, message: &str) -> Option<Violation> {
        match self {
            Vendor::Sqlite => sqlite(code, message),
            Vendor::Mysql => mysql(code),
            Vendor::SqlServer => sql_server(code, message),
            // PostgreSQL's SQLSTATEs are precise.
            Vendor::Postgres | Vendor::Other => None,
        }
    }

    /// Returns the database's dialect, if it is known.
    pub(super) fn dialect(self) -> Option<&'static Dialect> {
        match self {
            Vendor::Sqlite => Some(&SQLITE),
            Vendor::Postgres => Some(&POSTGRES),
            Vendor::Mysql => Some(&MYSQL),
            Vendor::SqlServer | Vendor::Other => None,
        }
    }
}

/// Returns an error of the database or of the connection.
pub(super) fn from_odbc(vendor: Vendor, error: OdbcError) -> Error {
    match record_of(&error) {
        Some(record) => refused(vendor, record),
        None => Error::new(Kind::Database, error.to_string()).because(error),
    }
}

/// Returns the error of a call that was cancelled between two statements.
pub(super) fn cancelled() -> Error {
    Error::database(DatabaseError::new("the call was cancelled").with_sql_state("57014"))
}

/// Returns the error of a failed connect.
pub(super) fn connecting(error: &OdbcError, address: &str, password: Option<&str>) -> Error {
    let said = match record_of(error) {
        Some(record) => said(Vendor::Other, record),
        None => DatabaseError::new(error.to_string()),
    };
    let mut words = said.message.clone();
    if let Some(password) = password.filter(|password| !password.is_empty()) {
        // No known driver repeats the password, but others may.
        words = words.replace(password, "***");
    }
    let state = said.sql_state.clone().unwrap_or_default();
    let message = format!(
        "cannot connect to {address}: {words}{}",
        advice(&state, &words)
    );
    let mut said = said;
    said.message = words;
    Error::database(said).wrapped(Kind::Connect, message)
}

/// Returns the remedy, if the driver manager does not find the driver.
fn advice(state: &str, words: &str) -> &'static str {
    if words.contains("Can't open lib") || matches!(state, "IM003" | "IM004") {
        "; the library of the ODBC driver cannot be loaded: install its package (on Debian \
         odbc-postgresql, libsqliteodbc, odbc-mariadb ...), or correct its path: `odbcinst -q -d` \
         lists the drivers that are known"
    } else if state == "IM002" {
        "; no ODBC driver or data source has this name: `odbcinst -q -d` lists the drivers that \
         are known, `odbcinst -q -s` the data sources"
    } else {
        ""
    }
}

fn record_of(error: &OdbcError) -> Option<&Record> {
    match error {
        OdbcError::Diagnostics { record, .. }
        | OdbcError::UnsupportedOdbcApiVersion(record)
        | OdbcError::UnableToRepresentNull(record) => Some(record),
        _ => None,
    }
}

fn refused(vendor: Vendor, record: &Record) -> Error {
    let said = said(vendor, record);
    let state = said.sql_state.as_deref().unwrap_or_default();
    if is_lost(state) {
        let message = format!("the connection was lost: {}", said.message);
        return Error::database(said).wrapped(Kind::ConnectionLost, message);
    }
    Error::database(said)
}

fn said(vendor: Vendor, record: &Record) -> DatabaseError {
    let message = String::from_utf8_lossy(&record.message);
    let message = message.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    let code = record.native_error;
    let state = record.state.as_str();
    let violation = vendor.violation(code, message).or(match state {
        "HY008" => Some(Violation::Cancelled),
        "HYT00" => Some(Violation::Cancelled),
        _ => None,
    });
    let mut said = DatabaseError::new(message);
    said.code = Some(i64::from(code));
    said.violation = violation;
    said.constraint = constraint(message);
    let is_constraint = matches!(
        violation,
        Some(Violation::Unique | Violation::NotNull | Violation::ForeignKey | Violation::Check)
    );
    said.with_sql_state(match state == GENERAL_STATE && is_constraint {
        true => CONSTRAINT_STATE,
        false => state,
    })
}

/// Whether the connection is lost, or about to be closed.
fn is_lost(state: &str) -> bool {
    state.starts_with("08") || matches!(state, "HYT01" | "57P01" | "57P02" | "57P03")
}

/// Returns the name in `constraint "name"`, or the text after `constraint failed: `.
fn constraint(message: &str) -> Option<String> {
    if let Some((_, what)) = message.split_once("constraint failed: ") {
        let what = what.split_once(" (").map_or(what, |(what, _)| what);
        return Some(what.to_owned());
    }
    let (_, rest) = message.split_once("constraint \"")?;
    let (name, _) = rest.split_once('"')?;
    Some(name.to_owned())
}

/// SQLite's primary result codes, which its ODBC driver reports.
fn sqlite(code: i32, message: &str) -> Option<Violation> {
    Some(match code {
        19 if message.contains("UNIQUE constraint") => Violation::Unique,
        19 if message.contains("NOT NULL constraint") => Violation::NotNull,
        19 if message.contains("FOREIGN KEY constraint") => Violation::ForeignKey,
        19 if message.contains("CHECK constraint") => Violation::Check,
        1 if message.contains("syntax error")
            || message.contains("unrecognized token")
            || message.contains("incomplete input") =>
        {
            Violation::Syntax
        }
        1 if message.contains("no such ") || message.contains(" has no column named ") => {
            Violation::Undefined
        }
        18 | 20 => Violation::Data,
        5 | 6 => Violation::Locked,
        8 | 23 => Violation::Permission,
        9 => Violation::Cancelled,
        _ => return None,
    })
}

/// Error numbers of MySQL and MariaDB.
fn mysql(code: i32) -> Option<Violation> {
    Some(match code {
        1022 | 1062 | 1586 => Violation::Unique,
        1048 | 1364 => Violation::NotNull,
        1216 | 1217 | 1451 | 1452 => Violation::ForeignKey,
        3819 | 4025 => Violation::Check,
        1264 | 1265 | 1292 | 1365 | 1366 | 1367 | 1406 | 1411 | 1416 | 1525 | 1690 => {
            Violation::Data
        }
        1213 => Violation::Deadlock,
        1205 | 3572 => Violation::Locked,
        1064 | 1149 => Violation::Syntax,
        1046 | 1049 | 1054 | 1146 | 1305 => Violation::Undefined,
        1317 | 1969 | 3024 => Violation::Cancelled,
        1044 | 1045 | 1142 | 1143 | 1227 => Violation::Permission,
        _ => return None,
    })
}

/// Error numbers of SQL Server.
fn sql_server(code: i32, message: &str) -> Option<Violation> {
    Some(match code {
        2601 | 2627 => Violation::Unique,
        515 => Violation::NotNull,
        547 if message.contains("FOREIGN KEY") || message.contains("REFERENCE") => {
            Violation::ForeignKey
        }
        547 => Violation::Check,
        1205 => Violation::Deadlock,
        3960 => Violation::Serialization,
        1222 => Violation::Locked,
        102 | 105 | 156 => Violation::Syntax,
        207 | 208 | 2812 => Violation::Undefined,
        229 | 230 | 262 => Violation::Permission,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use odbc_api::handles::State;

    use super::*;

    fn record(state: &[u8; 5], native_error: i32, message: &str) -> Record {
        Record {
            state: State(*state),
            native_error,
            message: message.into(),
        }
    }

    fn reported(vendor: Vendor, state: &[u8; 5], code: i32, message: &str) -> Error {
        refused(vendor, &record(state, code, message))
    }

    #[test]
    fn general_error_of_sqlite_is_classified_by_number_and_text() {
        let message = "[SQLite]UNIQUE constraint failed: t.a (19)";
        let error = reported(Vendor::Sqlite, b"HY000", 19, message);
        assert!(error.is_unique_violation());
        assert_eq!(error.sql_state(), Some("23000"));
        assert_eq!((error.code(), error.constraint()), (Some(19), Some("t.a")));
        let error = reported(
            Vendor::Sqlite,
            b"HY000",
            5,
            "[SQLite]database is locked (5)",
        );
        assert_eq!(error.violation(), Some(Violation::Locked));
        assert_eq!(error.sql_state(), Some("HY000"));
    }

    #[test]
    fn precise_sqlstate_is_enough() {
        let message = "ERROR: duplicate key value violates unique constraint \"t_pkey\"";
        let error = reported(Vendor::Other, b"23505", 1, message);
        assert!(error.is_unique_violation());
        assert_eq!(error.constraint(), Some("t_pkey"));
        let error = reported(Vendor::Other, b"40P01", 1, "deadlock detected");
        assert_eq!(error.violation(), Some(Violation::Deadlock));
        assert!(error.is_retryable());
        let error = reported(Vendor::Other, b"HY008", 0, "operation cancelled");
        assert_eq!(error.violation(), Some(Violation::Cancelled));
    }

    #[test]
    fn error_number_depends_on_the_database() {
        let of = |vendor, state| reported(vendor, state, 1205, "").violation();
        assert_eq!(of(Vendor::Mysql, b"HY000"), Some(Violation::Locked));
        assert_eq!(of(Vendor::SqlServer, b"40001"), Some(Violation::Deadlock));
    }

    #[test]
    fn lost_connection_is_recognised_by_its_class() {
        for state in [b"08S01", b"08003", b"57P01", b"HYT01"] {
            let error = reported(Vendor::Other, state, 0, "gone");
            assert_eq!(error.kind(), Kind::ConnectionLost);
            assert_eq!(error.sql_state(), std::str::from_utf8(state).ok());
        }
    }

    #[test]
    fn missing_driver_is_an_error_that_says_what_to_install() {
        let error = OdbcError::Diagnostics {
            record: record(b"01000", 0, "Can't open lib 'x.so' : file not found"),
            function: "SQLDriverConnect",
        };
        let error = connecting(&error, "odbc:Driver=x.so", None);
        assert_eq!(error.kind(), Kind::Connect);
        assert!(error.message().contains("x.so"), "{error}");
        assert!(error.message().contains("install its package"), "{error}");
    }

    #[test]
    fn password_that_a_driver_repeats_is_hidden() {
        let error = OdbcError::Diagnostics {
            record: record(b"28000", 0, "no user with hunter2"),
            function: "SQLDriverConnect",
        };
        let error = connecting(&error, "odbc:x", Some("hunter2"));
        assert!(!format!("{error} {error:?}").contains("hunter2"));
    }
}
