//! The end of a call: its error names the call, and the coroutine remembers the error.

use super::Call;
use crate::{Error, Kind, Result};

impl Call<'_> {
    /// Ends the call: adds the call to its error, and remembers the outcome for
    /// [`Db::last_error`](crate::Db::last_error).
    #[inline]
    pub(crate) fn ended<T>(&self, sql: Option<&str>, mut done: Result<T>) -> Result<T> {
        if let Err(error) = &mut done {
            self.explain(sql, error);
        }
        self.note(done.as_ref().err());
        done
    }

    #[inline]
    pub(super) fn note(&self, error: Option<&Error>) {
        if let Some(frame) = self.context.frame() {
            frame.note_error(self.shared().id, error);
        }
    }

    /// Names this call and the cause in the error of a statement.
    #[cold]
    pub(super) fn explain(&self, sql: Option<&str>, error: &mut Error) {
        let dialect = self.shared().dialect;
        error.set_call(self.site, sql.map(|sql| (dialect, sql)));
        if error.kind() == Kind::Database
            && let Some(bound) = self.lookup()
        {
            bound.explain_abort(error);
        }
    }

    /// Adds the call to its error.
    #[cold]
    pub(crate) fn named(&self, sql: Option<&str>, mut error: Error) -> Error {
        let dialect = self.shared().dialect;
        error.set_call(self.site, sql.map(|sql| (dialect, sql)));
        error
    }
}
