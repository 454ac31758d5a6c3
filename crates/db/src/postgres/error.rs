//! Errors of the server and of the socket.

use std::io;
use std::ops::Range;

use super::copy::place;
use super::protocol::message::Report;
use super::session::Misread;
use crate::driver::DatabaseError;
use crate::{Error, Kind};

/// Returns an error of the server, in its own words.
pub(super) fn from_report(report: Report) -> Error {
    let is_fatal = report.is_fatal();
    let message = one_line(&report.message);
    let mut said = DatabaseError::new(message).with_sql_state(&report.state);
    said.detail = report.detail.as_deref().map(one_line);
    said.hint = report.hint.as_deref().map(one_line);
    said.schema = report.schema;
    said.table = report.table;
    said.column = report.column;
    said.constraint = report.constraint;
    said.position = report.position.and_then(|position| position.parse().ok());
    if let Some((row, column)) = report.context.as_deref().and_then(place::of_context) {
        said.row = Some(row);
        said.column = said.column.or_else(|| column.map(str::to_owned));
    }
    if let Some(value) = value_in(&report.state, &said.message) {
        said.hide(value);
    }
    let error = Error::database(said);
    if !is_fatal {
        return error;
    }
    let message = format!("the server closed the connection: {}", error.message());
    error.wrapped(Kind::ConnectionLost, message)
}

/// Finds the value that a message quotes: `invalid input syntax for type integer: "ada@example.com"`.
fn value_in(state: &str, message: &str) -> Option<Range<usize>> {
    // As the translations of the server quote, too.
    const QUOTES: [char; 6] = ['"', '«', '»', '„', '“', '”'];
    let start = message.find(QUOTES)?;
    let (last, quote) = message.rmatch_indices(QUOTES).next()?;
    let quoted = message.get(start..last)?;
    let quoted = quoted.trim_start_matches(QUOTES);
    let is_value = match state {
        // These quote settings and encodings.
        "22004" | "22021" | "22023" | "22P05" => false,
        // The token at which a text is wrong: a literal, a name or a sign.
        "42601" => {
            let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
            let is_sign = !quoted.contains(is_name) && !quoted.contains(['\'', '"']);
            let begins_name = quoted.starts_with(|letter: char| !letter.is_numeric());
            !(is_sign || begins_name && quoted.chars().all(is_name))
        }
        state => state.starts_with("22"),
    };
    is_value.then_some(start..last + quote.len())
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// Returns the error of a lost connection.
pub(super) fn lost(wrong: io::Error) -> Error {
    let message = match wrong.kind() {
        io::ErrorKind::UnexpectedEof => {
            "the server closed the connection without a word".to_owned()
        }
        _ => format!("the connection to the server was lost: {wrong}"),
    };
    Error::new(Kind::ConnectionLost, message).because(wrong)
}

/// Returns the error of a connection that an earlier call has lost.
pub(super) fn broken() -> Error {
    let message = "the connection was lost before this call";
    Error::new(Kind::ConnectionLost, message).never_sent()
}

/// Returns the error of a session in which the server reads texts differently than this client.
pub(super) fn misread(misread: Misread) -> Error {
    let message = match misread {
        Misread::Backslashes => {
            "standard_conforming_strings is off, so that the server reads backslashes in strings as \
             escapes: this connection is not used. Switch it on for the role or the database, or \
             in the DSN: set.standard_conforming_strings=on"
        }
        Misread::Encoding => {
            "client_encoding is not UTF8, so that texts would be misread on their way to the server \
             and back: this connection is not used. Leave client_encoding alone; the server \
             converts from and to UTF8 whatever encoding the database has"
        }
    };
    Error::new(Kind::Config, message)
}

/// Returns the error of a call that has changed the session so that texts are misread.
pub(super) fn misread_answer(misread: Misread) -> Error {
    let error = self::misread(misread);
    let message = format!("{}. The statement was carried out", error.message());
    Error::new(Kind::Config, message)
}

/// Returns the error of a wrong number of parameters.
pub(super) fn wrong_count(wanted: usize, given: usize) -> Error {
    let message = format!("the SQL takes {wanted} parameters, and {given} were given");
    Error::new(Kind::Parameters, message)
}

/// Returns the error of a text with a NUL, which would end it in a message.
pub(super) fn has_nul(what: &str) -> Error {
    let message = format!("{what} has a NUL character in it");
    Error::new(Kind::Database, message)
}

/// Returns the error of a COPY that runs as a statement, which has no way to send or receive its data.
pub(super) fn no_copy() -> Error {
    let message = "COPY from STDIN and to STDOUT cannot run as the text of a statement: use copy_in, \
                   copy_in_rows or copy_out";
    Error::new(Kind::Unsupported, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_of_a_report_is_kept_apart() {
        let error = from_report(Report {
            severity: "ERROR".into(),
            state: "23505".into(),
            message: "duplicate\nkey value".into(),
            detail: Some("Key (id)=(1)\nalready exists.".into()),
            hint: Some("Try another.".into()),
            schema: Some("public".into()),
            table: Some("account".into()),
            column: Some("id".into()),
            constraint: Some("account_pkey".into()),
            ..Report::default()
        });
        assert_eq!(error.message(), "duplicate key value");
        assert_eq!(error.detail(), Some("Key (id)=(1) already exists."));
        assert_eq!(error.hint(), Some("Try another."));
        assert_eq!(error.schema(), Some("public"));
        assert_eq!(error.table(), Some("account"));
        assert_eq!(error.column(), Some("id"));
        assert_eq!(error.constraint(), Some("account_pkey"));
        assert_eq!(error.kind(), Kind::Database);
        assert!(error.is_unique_violation());
    }

    #[test]
    fn values_are_in_the_detail_and_not_in_the_message() {
        for (state, message, shown) in [
            (
                "22P02",
                "invalid input syntax for type integer: \"a\"b\"",
                "invalid input syntax for type integer: ***",
            ),
            (
                "22003",
                "value \"99\" is out of range for type smallint",
                "value *** is out of range for type smallint",
            ),
            (
                "22P02",
                "ungültige Eingabesyntax für Typ integer: »a«",
                "ungültige Eingabesyntax für Typ integer: ***",
            ),
            (
                "42601",
                "syntax error at or near \"'ada'\"",
                "syntax error at or near ***",
            ),
            (
                "42601",
                "unterminated quoted identifier at or near \"\"ada lovelace\"",
                "unterminated quoted identifier at or near ***",
            ),
            (
                "42601",
                "trailing junk after numeric literal at or near \"1a\"",
                "trailing junk after numeric literal at or near ***",
            ),
        ] {
            let error = from_report(Report {
                state: state.into(),
                message: message.into(),
                ..Report::default()
            });
            assert_eq!(error.message(), shown);
            assert_eq!(error.detail(), Some(message));
        }
        for (state, message) in [
            ("42601", "syntax error at or near \"FORM\""),
            ("42601", "syntax error at or near \")\""),
            ("42601", "syntax error at end of input"),
            ("42P01", "relation \"person\" does not exist"),
            ("22012", "division by zero"),
            ("22023", "invalid value for parameter \"TimeZone\": \"x\""),
        ] {
            assert_eq!(value_in(state, message), None, "{message}");
        }
    }

    #[test]
    fn a_fatal_error_is_a_lost_connection_that_says_why() {
        let error = from_report(Report {
            severity: "FATAL".into(),
            state: "57P01".into(),
            message: "terminating connection due to administrator command".into(),
            ..Report::default()
        });
        assert!(error.is_connection_lost());
        assert_eq!(error.sql_state(), Some("57P01"));
        assert!(error.message().contains("administrator"), "{error}");
    }
}
