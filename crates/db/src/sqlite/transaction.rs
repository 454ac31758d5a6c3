//! Begins and ends transactions and savepoints on a session.

use super::error;
use super::session::Session;
use super::statement::quoted;
use crate::driver::{Begin, CommitOutcome, Status};
use crate::{Error, Kind, Result};

/// Takes SQLite's write lock at once.
pub(super) const BEGIN_WRITING: &str = "BEGIN IMMEDIATE";

impl Session {
    /// Returns the transaction status that SQLite reports.
    pub(super) fn status(&self) -> Status {
        match self.in_transaction() {
            true => Status::InTransaction,
            false => Status::Idle,
        }
    }

    /// Begins a transaction. A writer takes the write lock at once, so that it cannot fail half-way because another
    /// writer was faster.
    pub(super) fn begin(&self, begin: Begin) -> Result<()> {
        begin.check_not_deferrable()?;
        if !begin.read_only {
            let begun = self.begin_writing();
            // A read-only database has no write lock, and needs none.
            return begun.or_else(|error| match error::is_read_only(&error) {
                true => self.often("BEGIN DEFERRED"),
                false => Err(error),
            });
        }
        if self.in_transaction() {
            // SQLite refuses this, before anything is changed.
            return self.often("BEGIN");
        }
        let before = self.pragma_flag("query_only")?;
        self.begin_query_only(before);
        self.often("PRAGMA query_only = 1")?;
        // If BEGIN fails, `tidy` finds no transaction and restores the pragma.
        self.often("BEGIN DEFERRED")
    }

    pub(super) fn commit(&self) -> Result<CommitOutcome> {
        self.often("COMMIT")?;
        if self.in_transaction() {
            let message = "SQLite left the transaction open after COMMIT";
            return Err(Error::new(Kind::Database, message));
        }
        Ok(CommitOutcome::Committed)
    }

    /// Rolls back an open transaction. This cannot be cancelled.
    pub(super) fn rollback(&self) -> Result<()> {
        self.control.end();
        if self.in_transaction() {
            self.often("ROLLBACK")?;
        }
        Ok(())
    }

    pub(super) fn set_savepoint(&self, name: &str) -> Result<()> {
        // SQLite would begin a transaction here.
        if !self.in_transaction() {
            let message = format!("there is no transaction to set the savepoint {name} in");
            return Err(Error::new(Kind::NoTransaction, message));
        }
        self.command(&format!("SAVEPOINT {}", quoted(name)))
    }

    pub(super) fn release_savepoint(&self, name: &str) -> Result<()> {
        self.command(&format!("RELEASE {}", quoted(name)))
    }

    /// Rolls back to the savepoint, and releases it.
    pub(super) fn roll_back_to(&self, name: &str) -> Result<()> {
        self.command(&format!("ROLLBACK TO {}", quoted(name)))?;
        self.release_savepoint(name)
    }
}
