//! When a cached statement is prepared again.
//!
//! The server may have lost a prepared statement, or the tables, columns and types that the statement was parsed
//! for may have changed. The server reports that as an error of the next run. Then the statement is removed from the cache,
//! and the call prepares it and runs it once more if nothing can have been done twice:
//!
//! - no transaction was open, so none has failed by the error;
//! - the server had not bound the statement: a bound one may have run, and committed.
//!
//! Otherwise the caller gets the error, and the next call prepares the statement.

use super::connection::PostgresConnection;
use super::execute::StatementRef;
use super::protocol::answer::Answer;
use super::protocol::message::Report;

impl PostgresConnection {
    /// Removes a cached statement whose error may come from its age. Returns whether the call may prepare the
    /// statement and run it again.
    pub(super) fn forget_if_stale(
        &mut self,
        answer: &Answer,
        by: &StatementRef,
        was_idle: bool,
    ) -> bool {
        let (StatementRef::Known(statement), Some(report)) = (by, answer.report.as_ref()) else {
            return false;
        };
        let was_bound = answer.bound > 0;
        let is_stale = is_stale(report);
        if is_stale || (!was_bound && has_old_types(report)) {
            self.cache.forget(&statement.sql);
            // ALTER TYPE gives a type other fields or labels under the same number.
            self.types.forget(&statement.params);
        }
        is_stale && !was_bound && was_idle
    }
}

/// Returns whether the server may have lost the statement, or something that it was parsed for.
fn is_stale(report: &Report) -> bool {
    let state = &*report.state;
    matches!(state, "26000" | "0A000" | "3F000" | "XX000") || state.starts_with("42")
}

/// Returns whether the parameters do not fit: the columns may have had other types when the statement was parsed.
fn has_old_types(report: &Report) -> bool {
    report.state.starts_with("22")
}
