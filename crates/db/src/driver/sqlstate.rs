//! Converts SQLSTATEs to violations.

use super::Violation;

/// Returns the violation that an SQLSTATE means, in PostgreSQL, MySQL and ODBC alike.
pub(super) fn violation(state: &str) -> Option<Violation> {
    Some(match state {
        "23505" => Violation::Unique,
        "23503" | "23001" => Violation::ForeignKey,
        "23502" => Violation::NotNull,
        "23514" | "23513" => Violation::Check,
        "40001" => Violation::Serialization,
        "40P01" => Violation::Deadlock,
        "55P03" | "55006" => Violation::Locked,
        "42601" | "42000" => Violation::Syntax,
        "42P01" | "42703" | "42883" | "42S02" | "42S22" | "42704" => Violation::Undefined,
        "57014" | "70100" => Violation::Cancelled,
        "42501" => Violation::Permission,
        state if state.starts_with("22") => Violation::Data,
        _ => return None,
    })
}
