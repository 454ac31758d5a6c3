//! How errors are displayed, and durations in their messages.

use std::fmt;
use std::time::Duration;

use super::{ErrorDetails, FailedCall};
use crate::sql::masked_at;

/// Writes the one line of `Display`.
pub(super) fn line(error: &ErrorDetails, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    out.write_str(&error.message)?;
    if let Some(set) = error.set {
        write!(out, ", in parameter set {set} (the first is 0)")?;
    }
    for (role, site) in error.roles.iter().zip(&error.call_sites) {
        write!(out, ", {role} {site}")?;
    }
    let call = error.call.as_ref();
    let position = error.database.as_ref().and_then(|it| it.position);
    let sql = call.and_then(|call| call.masked(position));
    // An arrow shows the position in the SQL.
    codes(error, position.filter(|_| sql.is_none()), out)?;
    if let Some(sql) = sql {
        write!(out, ": {sql}")?;
    }
    if let Some(call) = call {
        write!(out, "; at {}", call.site)?;
    }
    let hint = error.database.as_ref().and_then(|it| it.hint.as_ref());
    match hint {
        Some(hint) => write!(out, "; hint: {hint}"),
        None => Ok(()),
    }
}

fn codes(
    error: &ErrorDetails,
    position: Option<usize>,
    out: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    let Some(reported) = &error.database else {
        return Ok(());
    };
    let state = reported.sql_state.as_ref();
    let parts = [
        state.map(|state| format!("SQLSTATE {state}")),
        reported.code.map(|code| format!("code {code}")),
        position.map(|at| format!("at character {at}")),
        reported.row.map(|row| match &reported.column {
            Some(column) => format!("row {row}, column {column}"),
            None => format!("row {row}"),
        }),
    ];
    let parts: Vec<_> = parts.into_iter().flatten().collect();
    match parts.is_empty() {
        true => Ok(()),
        false => write!(out, " ({})", parts.join(", ")),
    }
}

/// Writes the fields of `Debug`: no parameters, no literals of the SQL, no detail of the database.
pub(super) fn fields(error: &ErrorDetails, out: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut shown = out.debug_struct("Error");
    shown.field("kind", &error.kind);
    shown.field("message", &error.message);
    if let Some(set) = error.set {
        shown.field("set", &set);
    }
    if let Some(reported) = &error.database {
        shown.field("database", reported);
    }
    if let Some(call) = &error.call {
        let position = error.database.as_ref().and_then(|it| it.position);
        if let Some(sql) = call.masked(position) {
            shown.field("sql", &sql);
        }
        shown.field("call_site", call.site);
    }
    if !error.call_sites.is_empty() {
        shown.field("call_sites", &error.call_sites);
    }
    if !error.holders.is_empty() {
        shown.field("holders", &error.holders);
    }
    if let Some(source) = &error.source {
        shown.field("source", source);
    }
    shown.finish()
}

impl FailedCall {
    /// Returns the SQL as it may be logged.
    fn masked(&self, position: Option<usize>) -> Option<String> {
        let (dialect, sql) = self.statement.as_ref()?;
        Some(masked_at(dialect, sql, position))
    }
}

/// Shows a duration rounded for people: `300 ms`, `1.5 s`, `2 min 5 s`.
pub(crate) fn rounded(duration: Duration) -> impl fmt::Display {
    const MILLI: u128 = 1_000;
    const SECOND: u128 = 1_000_000;
    let micros = (duration.as_nanos() + 500) / 1_000;
    // Each limit is where the unit below would round up to one of the next.
    if micros < MILLI {
        return format!("{micros} µs");
    }
    if micros < SECOND - MILLI / 2 {
        return tenths(micros, MILLI, "ms");
    }
    let seconds = (micros + SECOND / 2) / SECOND;
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        _ if micros < 59_950_000 => tenths(micros, SECOND, "s"),
        (0, minutes, 0) => format!("{minutes} min"),
        (0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (hours, 0, _) => format!("{hours} h"),
        (hours, minutes, _) => format!("{hours} h {minutes} min"),
    }
}

/// Shows an amount below ten with one decimal, unless that is 0.
fn tenths(micros: u128, unit: u128, name: &str) -> String {
    let tenths = (micros + unit / 20) / (unit / 10);
    match tenths % 10 {
        digit if digit > 0 && tenths < 100 => format!("{}.{digit} {name}", tenths / 10),
        _ => format!("{} {name}", (micros + unit / 2) / unit),
    }
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::panic::Location;

    use super::*;
    use crate::driver::{DatabaseError, Dialect};
    use crate::{Error, Kind};

    static POSTGRES: Dialect = Dialect::POSTGRES;

    #[test]
    fn durations_are_rounded_for_people() {
        for (nanos, expected) in [
            (0, "0 µs"),
            (350_000, "350 µs"),
            (999_600, "1 ms"),
            (1_500_000, "1.5 ms"),
            (12_340_000, "12 ms"),
            (299_999_991, "300 ms"),
            (999_700_000, "1 s"),
            (1_000_000_000, "1 s"),
            (1_500_000_000, "1.5 s"),
            (30_000_000_000, "30 s"),
            (59_999_000_000, "1 min"),
            (125_000_000_000, "2 min 5 s"),
            (3_600_000_000_000, "1 h"),
            (5_400_000_000_000, "1 h 30 min"),
        ] {
            let duration = Duration::from_nanos(nanos);
            assert_eq!(rounded(duration).to_string(), expected, "{duration:?}");
        }
    }

    fn duplicate() -> Error {
        let mut said = DatabaseError::new("duplicate key").with_sql_state("23505");
        said.detail = Some("Key (email)=(ada@example.com) already exists.".into());
        said.hint = Some("Try another.".into());
        let sql = "INSERT INTO person VALUES ('ada@example.com', 41)";
        Error::database(said).in_call(Location::caller(), Some((&POSTGRES, sql)))
    }

    #[test]
    fn display_is_one_line_without_values_or_detail() {
        let error = duplicate();
        let site = error.call_site().unwrap();
        assert_eq!(
            error.to_string(),
            format!(
                "duplicate key (SQLSTATE 23505): INSERT INTO person VALUES (***, ***); at {site}; \
                 hint: Try another."
            )
        );
        assert!(error.detail().is_some());
        let debug = format!("{error:?}");
        assert!(!debug.contains("ada@"), "{debug}");
        assert!(debug.contains("INSERT INTO person"), "{debug}");
    }

    #[test]
    fn an_error_keeps_the_first_call_that_it_ended() {
        let error = duplicate();
        let first = error.call_site();
        let error = error.in_call(Location::caller(), None);
        assert_eq!(error.call_site(), first);
        assert!(error.sql().is_some());
    }

    #[test]
    fn a_chain_of_causes_says_nothing_twice() {
        let cause = || std::io::Error::other("connection reset");
        let repeating = Error::new(Kind::ConnectionLost, "lost: connection reset").because(cause());
        assert!(repeating.source().is_none());
        assert!(repeating.downcast_ref::<std::io::Error>().is_some());
        let plain = Error::new(Kind::ConnectionLost, "lost").because(cause());
        assert_eq!(plain.source().unwrap().to_string(), "connection reset");
        let wrapped = duplicate().wrapped(Kind::Connect, "refused: duplicate key");
        assert!(wrapped.source().is_none());
        assert_eq!(wrapped.sql_state(), Some("23505"));
        let wrapped = plain.wrapped(Kind::Connect, "cannot connect: lost");
        assert_eq!(wrapped.source().unwrap().to_string(), "connection reset");
    }
}
