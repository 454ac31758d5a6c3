//! When a cached statement is prepared again.
//!
//! A table may have changed since a statement was prepared, or the server may have lost the statement. The driver
//! reports that as an error of the next run. The call prepares the statement and runs it once more if nothing
//! can have been done twice: the statement never ran or only reads, no transaction was open, and the statement does
//! not change the session. (A procedure can report the same error for a statement of its own, after it has committed others.)

use super::error::Vendor;
use super::handle::OdbcError;
use super::session::Session;
use crate::sql::Class;

impl Session {
    /// Returns whether a cached statement failed because of its age, and may be prepared and run again.
    pub(super) fn is_stale<T>(&self, class: &Class, done: &Result<T, OdbcError>) -> bool {
        let Err(OdbcError::Diagnostics { record, .. }) = done else {
            return false;
        };
        let harmless = match (record.state.as_str(), self.can.vendor) {
            ("0A000" | "26000", _) => true,
            (_, Vendor::Mysql) => match record.native_error {
                1243 | 1615 => true,
                // The driver finds this in the rows: the statement has run.
                2057 => class.reads_only,
                _ => false,
            },
            _ => false,
        };
        harmless && !self.transaction.is_open() && !class.touches_session
    }
}
