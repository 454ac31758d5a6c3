//! Errors of the server and of the client library.

use std::ops::Range;

use mysql_async::{DriverError, Error as ClientError, IoError, LocalInfileError, ServerError};

use super::engine::Engine;
use crate::driver::{DatabaseError, Violation};
use crate::{Error, Kind};

/// Returns an error of the server.
pub(super) fn from_server(said: ServerError, engine: Engine) -> Error {
    let mut database = DatabaseError::new(said.message.replace(['\n', '\r'], " "));
    let own = engine.violation(said.code, &database);
    database.violation = own.or_else(|| violation(said.code));
    database.constraint = constraint(&database);
    set_place(said.code, &mut database);
    if let Some(value) = value_in(said.code, &database.message) {
        database.hide(value);
    }
    database.code = Some(i64::from(said.code));
    database.sql_state = Some(said.state).filter(|state| state.len() == 5);
    Error::database(database)
}

/// Finds the value that a message quotes: `Incorrect integer value: 'ada' for column 'age' at row 1`.
fn value_in(code: u16, message: &str) -> Option<Range<usize>> {
    let behind = match code {
        1062 | 1586 => "' for key '",
        1064 => "' at line ",
        // Wrong values: at the end, or before the column or the function that they are for.
        1292 | 1366 | 1367 | 1411 | 1525 | 1690 if message.ends_with('\'') => "'",
        1292 | 1366 | 1367 | 1411 | 1525 | 1690 => "' for ",
        _ => return None,
    };
    let start = message.find(" '")? + 1;
    let end = message.rfind(behind).or_else(|| message.rfind('\''))?;
    (start < end).then_some(start..end + 1)
}

/// Finds the schema, the table and the column, which only the message names.
fn set_place(code: u16, database: &mut DatabaseError) {
    let message = &database.message;
    let quoted = |before: &str, quote: char| {
        let (_, rest) = message.split_once(before)?;
        let (name, _) = rest.split_once(quote)?;
        Some(name.to_owned())
    };
    match code {
        1048 => database.column = quoted("Column '", '\''),
        1054 => database.column = quoted("Unknown column '", '\''),
        1364 => database.column = quoted("Field '", '\''),
        1146 => {
            let name = quoted("Table '", '\'');
            if let Some((schema, table)) = name.as_deref().and_then(|name| name.split_once('.')) {
                (database.schema, database.table) = (Some(schema.into()), Some(table.into()));
            }
        }
        1451 | 1452 | 4025 => {
            let before = if code == 4025 { "failed for `" } else { "(`" };
            database.schema = quoted(before, '`');
            database.table = quoted("`.`", '`');
        }
        _ => {}
    }
}

/// Returns the kind of violation for an error number. SQLSTATEs are too coarse: most are 42000, 23000 or HY000.
fn violation(code: u16) -> Option<Violation> {
    Some(match code {
        1022 | 1062 | 1169 | 1586 => Violation::Unique,
        1216 | 1217 | 1451 | 1452 | 1557 | 1761 | 1762 => Violation::ForeignKey,
        1048 | 1364 => Violation::NotNull,
        3819 | 4025 => Violation::Check,
        1264 | 1265 | 1292 | 1365 | 1366 | 1367 | 1406 | 1411 | 1416 | 1525 | 1690 | 3140 => {
            Violation::Data
        }
        1020 => Violation::Serialization,
        1213 | 1614 => Violation::Deadlock,
        1205 | 1613 | 3572 => Violation::Locked,
        1064 | 1149 => Violation::Syntax,
        1049 | 1051 | 1054 | 1109 | 1146 | 1305 => Violation::Undefined,
        1317 | 1969 | 3024 => Violation::Cancelled,
        1044 | 1045 | 1142 | 1143 | 1227 | 1370 => Violation::Permission,
        _ => return None,
    })
}

/// Returns the name of the constraint, which only the message contains.
fn constraint(said: &DatabaseError) -> Option<String> {
    let (before, behind) = match said.violation? {
        Violation::Unique => ("' for key '", '\''),
        Violation::ForeignKey | Violation::Check => ("CONSTRAINT `", '`'),
        _ => return None,
    };
    // The last one: the duplicate value may contain the same words.
    let (_, rest) = said.message.rsplit_once(before)?;
    let (name, _) = rest.split_once(behind)?;
    Some(name.to_owned())
}

/// Returns the error of a connection that was lost during a call.
pub(super) fn lost(wrong: ClientError) -> Error {
    match wrong {
        ClientError::Server(said) => closed_by(from_server(said, Engine::Mysql)),
        ClientError::Driver(DriverError::LocalInfile(wrong)) => no_infile(wrong),
        ClientError::Io(IoError::Io(wrong))
            if wrong.kind() == std::io::ErrorKind::UnexpectedEof =>
        {
            let message = "the server closed the connection without a word";
            Error::new(Kind::ConnectionLost, message).because(wrong)
        }
        wrong => {
            let message = format!("the connection to the server was lost: {wrong}");
            Error::new(Kind::ConnectionLost, message).because(wrong)
        }
    }
}

/// Returns the error of a connection that the server closed after this error.
pub(super) fn closed_by(said: Error) -> Error {
    let message = format!("the server closed the connection: {}", said.message());
    said.wrapped(Kind::ConnectionLost, message)
}

/// Returns the error of a statement that the server answered with an error during its commit. With Galera, the node may have lost its
/// cluster after the others have received the transaction.
pub(super) fn open_outcome(said: Error) -> Error {
    const ERROR_DURING_COMMIT: i64 = 1180;
    if said.code() != Some(ERROR_DURING_COMMIT) {
        return said;
    }
    let message = format!(
        "whether the transaction was committed is unknown: {}",
        said.message()
    );
    said.wrapped(Kind::OutcomeUnknown, message)
}

fn no_infile(wrong: LocalInfileError) -> Error {
    let message = match &wrong {
        LocalInfileError::NoHandler => {
            "the server asks for a file of this machine (LOAD DATA LOCAL INFILE), which is \
             refused unless the option local_infile names the folder it is in"
                .to_owned()
        }
        wrong => format!("LOAD DATA LOCAL INFILE: {wrong}"),
    };
    Error::new(Kind::Unsupported, message).because(wrong)
}

/// Returns the error of a connection that an earlier call has lost.
#[cold]
pub(super) fn broken() -> Error {
    let message = "the connection was lost before this call";
    Error::new(Kind::ConnectionLost, message).never_sent()
}

/// Returns the error of a connection that was lost while it was idle.
pub(super) fn lost_idle(wrong: ClientError) -> Error {
    let message = "the connection was lost while it was idle";
    Error::new(Kind::ConnectionLost, message)
        .because(wrong)
        .never_sent()
}

/// Returns the error of a connection that was closed after a dropped call.
pub(super) fn dropped() -> Error {
    let message = "a call on this connection was dropped before it was answered, so the \
                   connection was closed and what it ran was killed";
    Error::new(Kind::ConnectionLost, message).never_sent()
}

/// Returns the error of a wrong number of parameters.
#[cold]
pub(super) fn wrong_count(wanted: usize, given: usize) -> Error {
    let message = format!("the SQL takes {wanted} parameters, and {given} were given");
    Error::new(Kind::Parameters, message)
}

/// Returns the error of a statement that is too large. It is not sent, because the server would close the connection.
#[cold]
pub(super) fn too_large(size: u64, limit: u64) -> Error {
    let message = format!(
        "a statement of {size} bytes with its parameters is more than the server's \
         max_allowed_packet of {limit}"
    );
    let mut said = DatabaseError::new(message);
    said.code = Some(1153);
    said.sql_state = Some("08S01".to_owned());
    Error::database(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: u16, state: &str, message: &str) -> Error {
        let said = ServerError {
            code,
            message: message.into(),
            state: state.into(),
        };
        from_server(said, Engine::Mysql)
    }

    #[test]
    fn values_are_in_the_detail_and_not_in_the_message() {
        for (code, message, shown) in [
            (
                1062,
                "Duplicate entry 'x' for key 'admin' for key 'PRIMARY'",
                "Duplicate entry *** for key 'PRIMARY'",
            ),
            (
                1366,
                "Incorrect integer value: 'it's' for column `a`.`b`.`c` at row 1",
                "Incorrect integer value: *** for column `a`.`b`.`c` at row 1",
            ),
            (
                1292,
                "Truncated incorrect DOUBLE value: 'ada' for x'",
                "Truncated incorrect DOUBLE value: ***",
            ),
            (
                1064,
                "You have an error in your SQL syntax near ''ada' x' at line 1",
                "You have an error in your SQL syntax near *** at line 1",
            ),
        ] {
            let error = server(code, "HY000", message);
            assert_eq!(error.message(), shown);
            assert_eq!(error.detail(), Some(message));
        }
        let message = "Duplicate entry 'x' for key 'admin' for key 'PRIMARY'";
        let error = server(1062, "23000", message);
        assert_eq!(error.constraint(), Some("PRIMARY"));
        let error = server(1146, "42S02", "Table 'a.b' doesn't exist");
        assert_eq!(error.detail(), None);
    }

    #[test]
    fn violated_key_is_named() {
        let error = server(1062, "23000", "Duplicate entry 'a' for key 'PRIMARY'");
        assert!(error.is_unique_violation());
        assert_eq!(error.constraint(), Some("PRIMARY"));
        assert_eq!(error.message(), "Duplicate entry *** for key 'PRIMARY'");
        let detail = "Duplicate entry 'a' for key 'PRIMARY'";
        assert_eq!(error.detail(), Some(detail));
        assert_eq!(
            (error.code(), error.sql_state()),
            (Some(1062), Some("23000"))
        );
        let message = "Cannot add or update a child row: a foreign key constraint fails \
                       (`a`.`b`, CONSTRAINT `b_ibfk_1` FOREIGN KEY (`x`) REFERENCES `c` (`y`))";
        let error = server(1452, "23000", message);
        assert!(error.is_foreign_key_violation());
        assert_eq!(error.constraint(), Some("b_ibfk_1"));
        assert_eq!((error.schema(), error.table()), (Some("a"), Some("b")));
    }

    #[test]
    fn deadlocks_and_lock_waits_are_retryable_and_syntax_errors_not() {
        assert!(server(1213, "40001", "Deadlock found").is_retryable());
        assert!(server(1205, "HY000", "Lock wait timeout exceeded").is_retryable());
        assert!(server(1020, "HY000", "Record has changed since last read").is_retryable());
        assert!(!server(1064, "42000", "You have an error").is_retryable());
    }

    #[test]
    fn error_that_only_shares_the_sqlstate_is_no_syntax_error() {
        let error = server(1142, "42000", "SELECT command denied");
        assert_eq!(error.violation(), Some(Violation::Permission));
        assert_eq!(server(1235, "42000", "not supported yet").violation(), None);
    }
}
