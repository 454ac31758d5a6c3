//! Remembers the error that aborted a transaction, as the cause of the errors of later calls.
//!
//! After an error PostgreSQL refuses every call in the transaction until it is rolled back, and does not name the cause.

use super::bound::Bound;
use super::state::Seat;
use crate::Error;
use crate::driver::Status;

/// The SQLSTATE of calls in an aborted transaction.
const ABORTED: &str = "25P02";

impl Bound {
    /// Remembers an error with which the server has aborted the transaction. The error of a call after it
    /// gets the first one as its cause.
    #[cold]
    pub(crate) fn explain_abort(&self, error: &mut Error) {
        if error.sql_state() == Some(ABORTED) {
            if let Some(first) = self.aborted_by() {
                error.set_first_failure(first);
            }
            return;
        }
        let mut state = self.state();
        // Any other error in an aborted transaction is the one that aborted it.
        let is_aborted =
            matches!(&state.seat, Seat::Here(lease) if lease.status() == Status::Failed);
        let mut before = None;
        if let Some(top) = state.levels.last_mut().filter(|_| is_aborted) {
            before = top.aborted_by.replace(error.clone());
        }
        drop(state);
        // After the lock: an error may contain a value of the user.
        drop(before);
    }

    /// Returns the error that has aborted the transaction.
    pub(crate) fn aborted_by(&self) -> Option<Error> {
        let state = self.state();
        let mut outwards = state.levels.iter().rev();
        outwards.find_map(|level| level.aborted_by.clone())
    }
}
