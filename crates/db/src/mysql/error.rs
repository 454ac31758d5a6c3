//! What the server and the client library say, as errors of this crate.

use mysql_async::{DriverError, Error as ClientError, IoError, LocalInfileError, ServerError};

use crate::driver::{DatabaseError, Violation};
use crate::{Error, Kind};

/// What the server said, in its own words.
pub(super) fn from_server(said: ServerError) -> Error {
    let mut database = DatabaseError::new(said.message.replace(['\n', '\r'], " "));
    database.violation = violation(said.code);
    database.constraint = constraint(&database);
    database.code = Some(i64::from(said.code));
    database.sql_state = Some(said.state).filter(|state| state.len() == 5);
    Error::database(database)
}

/// The rule that this error number tells of. SQLSTATEs are too coarse here: most have 42000,
/// 23000 or HY000.
fn violation(code: u16) -> Option<Violation> {
    Some(match code {
        1022 | 1062 | 1169 | 1586 => Violation::Unique,
        1216 | 1217 | 1451 | 1452 | 1557 | 1761 | 1762 => Violation::ForeignKey,
        1048 | 1364 => Violation::NotNull,
        3819 | 4025 => Violation::Check,
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

/// The name of the constraint, which is told in the message only.
fn constraint(said: &DatabaseError) -> Option<String> {
    let (before, behind) = match said.violation? {
        Violation::Unique => ("for key '", '\''),
        Violation::ForeignKey | Violation::Check => ("CONSTRAINT `", '`'),
        _ => return None,
    };
    let (_, rest) = said.message.split_once(before)?;
    let (name, _) = rest.split_once(behind)?;
    Some(name.to_owned())
}

/// The connection is gone with a call.
pub(super) fn lost(wrong: ClientError) -> Error {
    match wrong {
        ClientError::Server(said) => closed_by(from_server(said)),
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

/// The server has closed the connection, and said this before.
pub(super) fn closed_by(said: Error) -> Error {
    let message = format!("the server closed the connection: {}", said.message());
    said.wrapped(Kind::ConnectionLost, message)
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

/// The connection went with an earlier call.
#[cold]
pub(super) fn broken() -> Error {
    let message = "the connection was lost before this call";
    Error::new(Kind::ConnectionLost, message).never_sent()
}

/// The connection was lost while nobody used it.
pub(super) fn lost_idle(wrong: ClientError) -> Error {
    let message = "the connection was lost while it was idle";
    Error::new(Kind::ConnectionLost, message)
        .because(wrong)
        .never_sent()
}

/// A call was dropped on it.
pub(super) fn dropped() -> Error {
    let message = "a call on this connection was dropped before it was answered, so the \
                   connection was closed and what it ran was killed";
    Error::new(Kind::ConnectionLost, message).never_sent()
}

/// There are other parameters than the SQL wants.
#[cold]
pub(super) fn wrong_count(wanted: usize, given: usize) -> Error {
    let message = format!("the SQL takes {wanted} parameters, and {given} were given");
    Error::new(Kind::Parameters, message)
}

/// It is more than the server takes at once. It would hang up over it, so it is not sent.
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
        from_server(ServerError {
            code,
            message: message.into(),
            state: state.into(),
        })
    }

    #[test]
    fn a_broken_key_is_told_with_its_name() {
        let error = server(1062, "23000", "Duplicate entry 'a' for key 'PRIMARY'");
        assert!(error.is_unique_violation());
        assert_eq!(error.constraint(), Some("PRIMARY"));
        assert_eq!(
            (error.code(), error.sql_state()),
            (Some(1062), Some("23000"))
        );
        let message = "Cannot add or update a child row: a foreign key constraint fails \
                       (`a`.`b`, CONSTRAINT `b_ibfk_1` FOREIGN KEY (`x`) REFERENCES `c` (`y`))";
        let error = server(1452, "23000", message);
        assert!(error.is_foreign_key_violation());
        assert_eq!(error.constraint(), Some("b_ibfk_1"));
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
