//! The end of a call: its error names the call, and the coroutine remembers the error.

use super::Call;
use crate::{Error, Kind, Result};

impl Call<'_> {
    /// Ends the call: adds the call to its error, and remembers the outcome for
    /// [`Db::last_error`](crate::Db::last_error).
    #[inline]
    pub(crate) fn ended<T>(&self, sql: Option<&str>, done: Result<T>) -> Result<T> {
        if let Err(error) = done {
            return Err(self.failed(sql, error));
        }
        if let Some(frame) = self.seen.frame() {
            frame.note_error(self.shared().id, None);
        }
        done
    }

    #[cold]
    fn failed(&self, sql: Option<&str>, error: Error) -> Error {
        let mut error = self.named(sql, error);
        if error.kind() == Kind::Database
            && let Some(bound) = self.lookup()
        {
            error = bound.explain_abort(error);
        }
        if let Some(frame) = self.seen.frame() {
            frame.note_error(self.shared().id, Some(&error));
        }
        error
    }

    /// Adds the call to its error.
    #[cold]
    pub(crate) fn named(&self, sql: Option<&str>, error: Error) -> Error {
        let dialect = self.shared().dialect;
        error.in_call(self.site, sql.map(|sql| (dialect, sql)))
    }
}
