//! Errors of the database as PDO reports them: an SQLSTATE, a number and a message.

use cenote::{Error, Kind};

use crate::pdo::settings::DriverKind;

/// The state of a handle without an error.
pub(crate) const NO_ERROR: &[u8; 5] = b"00000";

/// What libpq's `PGRES_FATAL_ERROR` is: PDO's number for every error of PostgreSQL.
const PGSQL_FATAL: i64 = 7;

/// The numbers of MySQL's client library for a lost connection and for an unreachable server.
const MYSQL_GONE: i64 = 2006;
const MYSQL_UNREACHABLE: i64 = 2002;

/// An error as PDO reports it.
#[derive(Clone, Debug)]
pub(crate) struct DbError {
    pub(crate) state: [u8; 5],
    pub(crate) code: i64,
    pub(crate) message: String,
}

impl DbError {
    pub(crate) fn new(state: &str, code: i64, message: impl Into<String>) -> Self {
        DbError {
            state: state.as_bytes().try_into().unwrap_or(*b"HY000"),
            code,
            message: message.into(),
        }
    }

    /// Converts an error of this driver. SQLite's extended codes are rare: PDO has them on request.
    pub(crate) fn of(error: &Error, driver: DriverKind, extended: bool) -> Self {
        let state = match error.kind() {
            // The server would say that it expects none.
            Kind::Parameters
                if driver == DriverKind::Pgsql && error.message().contains("no placeholders") =>
            {
                "08P01"
            }
            Kind::Parameters => "HY093",
            // PDO knows the states of SQLite's primary codes only.
            _ if driver == DriverKind::Sqlite
                && extended
                && error.code().is_some_and(|code| code > 0xff) =>
            {
                "HY000"
            }
            Kind::Timeout | Kind::StatementTimeout | Kind::TransactionTimeout => "HYT00",
            Kind::Connect if driver == DriverKind::Pgsql => error.sql_state().unwrap_or("08006"),
            _ if error.is_connection_lost() && driver == DriverKind::Mysql => "HY000",
            _ => error.sql_state().unwrap_or("HY000"),
        };
        let code = match driver {
            // No number of the database: it has not seen the call.
            _ if error.kind() == Kind::Parameters => 0,
            DriverKind::Sqlite => match error.code() {
                Some(code) if extended => code,
                Some(code) => code & 0xff,
                None => 1,
            },
            DriverKind::Pgsql => PGSQL_FATAL,
            DriverKind::Mysql if error.is_connection_lost() => MYSQL_GONE,
            DriverKind::Mysql if error.kind() == Kind::Connect => {
                error.code().unwrap_or(MYSQL_UNREACHABLE)
            }
            DriverKind::Mysql => error.code().unwrap_or(0),
        };
        DbError::new(state, code, message_of(error, driver))
    }
}

fn message_of(error: &Error, driver: DriverKind) -> String {
    // Values are left out of messages that may be logged; PDO shows them, as the server's own clients do.
    let detail = error.detail();
    let message = match detail {
        Some(detail) if error.message().contains("***") => {
            detail.split("; ").next().unwrap_or(detail)
        }
        _ => error.message(),
    };
    if driver != DriverKind::Pgsql || error.sql_state().is_none() {
        return message.to_owned();
    }
    let mut text = format!("ERROR:  {message}");
    if let Some(detail) = detail.filter(|_| !error.message().contains("***")) {
        text.push_str("\nDETAIL:  ");
        text.push_str(detail);
    }
    if let Some(hint) = error.hint() {
        text.push_str("\nHINT:  ");
        text.push_str(hint);
    }
    text
}
