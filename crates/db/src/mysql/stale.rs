//! When a cached statement is prepared again.
//!
//! The server may not know a prepared statement any more, or demand that it be prepared again after a change of its
//! tables. The server reports that as an error of the next run. Then the statement is removed from the cache; the call
//! prepares it and runs it once more if no transaction was open. In a transaction the caller gets the error.
//!
//! A statement that may change the session is never run again: a procedure can report the same error for a
//! statement of its own, when it has done half its work.

use super::connection::MysqlConnection;
use crate::driver::{Outcome, Request};
use crate::{Error, Kind, Result};

/// Unknown statement; the statement has to be prepared again; the columns are not those that were prepared.
const STALE: [i64; 3] = [1243, 1615, 2057];

/// Returns whether the server does not know the statement any more, or demands that it be prepared again.
pub(super) fn is_stale(error: &Error) -> bool {
    error.kind() == Kind::Database && error.code().is_some_and(|code| STALE.contains(&code))
}

impl MysqlConnection {
    /// Removes a stale statement from the cache, and runs it once more if no transaction was open.
    ///
    /// # Cancel safety
    ///
    /// If dropped, settling closes the connection.
    #[cold]
    pub(super) async fn execute_stale(
        &mut self,
        request: Request<'_>,
        was_idle: bool,
        stale: Error,
    ) -> Result<Outcome> {
        self.forget_stale(request.sql).await?;
        match was_idle {
            true => self.execute_once(request).await,
            false => Err(stale),
        }
    }

    /// Removes a stale statement from the cache. The server may still have it, so it is closed there.
    pub(super) async fn forget_stale(&mut self, sql: &str) -> Result<()> {
        match self.cache.remove(sql) {
            Some(statement) => self.close_statement(statement).await,
            None => Ok(()),
        }
    }
}
