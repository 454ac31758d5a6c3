//! Transactions, by switching ODBC's autocommit off and on.
//!
//! ```text
//! autocommit on ──begin: off──> open ──error──> failed
//!       ^                        │ commit, rollback │ rollback, or back to a savepoint
//!       └───────── on, verified ─┴──────────────────┘
//! ```
//!
//! ODBC does not report the transaction status. So a transaction counts as failed after any error: some databases have
//! rolled it back, and the next statement would run in a new one.

use odbc_api::sys::ConnectionAttribute;

use super::session::Session;
use crate::driver::{Begin, CommitOutcome, DatabaseError, Isolation, Status};
use crate::sql::TransactionVerb::{Release, RollbackTo, Savepoint as SetSavepoint};
use crate::sql::{Class, Dialect, Keyword, Statements, class, classify, split};
use crate::{Error, Kind, Result};

/// The transaction of a connection, as far as ODBC shows it.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    state: State,
    read_only: bool,
    /// The isolation level before it began, if it has another one.
    isolation_before: Option<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    None,
    Open,
    Failed,
}

impl Transaction {
    pub(super) fn is_open(&self) -> bool {
        self.state != State::None
    }

    /// Marks an open transaction as failed, after an error.
    pub(super) fn fail(&mut self) {
        if self.state == State::Open {
            self.state = State::Failed;
        }
    }

    /// Checks that a text of this class may run in it.
    pub(super) fn check(&self, class: &Class) -> Result<()> {
        self.check_not_failed()?;
        let writes = !class.reads_only && class.transaction.is_none();
        if self.is_open() && self.read_only && writes {
            let message = "the transaction is read-only, and the statement may write";
            return Err(refused("25006", message));
        }
        Ok(())
    }

    pub(super) fn check_not_failed(&self) -> Result<()> {
        match self.state {
            State::Failed => Err(refused(
                "25P02",
                "an earlier statement of this transaction failed, and ODBC cannot tell what became \
                 of the transaction: roll it back, or go back to a savepoint",
            )),
            State::None | State::Open => Ok(()),
        }
    }
}

fn refused(state: &str, message: &str) -> Error {
    Error::database(DatabaseError::new(message).with_sql_state(state))
}

/// Returns ODBC's bit for a level; a stronger level has a higher bit.
fn bit(level: Isolation) -> u32 {
    match level {
        Isolation::ReadUncommitted => 1,
        Isolation::ReadCommitted => 2,
        Isolation::RepeatableRead => 4,
        Isolation::Serializable => 8,
    }
}

/// Returns the weakest available level that is at least this strong.
fn at_least(level: Isolation, there: u32) -> Option<u32> {
    [1, 2, 4, 8]
        .into_iter()
        .find(|candidate| *candidate >= bit(level) && there & candidate != 0)
}

/// Whether a text contains a statement that some database may commit by.
pub(super) fn may_commit(dialect: &Dialect, sql: &str, class: &Class) -> bool {
    match class.statements {
        Statements::Empty => false,
        Statements::One => !leaves_open(class),
        Statements::Several => split(dialect, sql)
            .into_iter()
            .any(|statement| !leaves_open(&classify(dialect, statement))),
    }
}

fn leaves_open(class: &Class) -> bool {
    let by_verb = matches!(
        class.verb,
        Some(
            Keyword::Select
                | Keyword::Insert
                | Keyword::Update
                | Keyword::Delete
                | Keyword::Merge
                | Keyword::Replace
                | Keyword::With
                | Keyword::Values
                | Keyword::Table
                | Keyword::Show
                | Keyword::Explain
                | Keyword::Describe
        )
    );
    by_verb
        || class.reads_only
        || matches!(class.transaction, Some(SetSavepoint | Release | RollbackTo))
}

impl Session {
    pub(super) fn status(&self) -> Status {
        match self.transaction.state {
            _ if self.doubtful => Status::Unknown,
            State::None => Status::Idle,
            State::Open => Status::InTransaction,
            State::Failed => Status::Failed,
        }
    }

    pub(super) fn begin(&mut self, begin: Begin) -> Result<()> {
        begin.check_not_deferrable()?;
        self.changed = false;
        if self.transaction.is_open() {
            return Err(refused(
                "25001",
                "a transaction is already open; use a savepoint",
            ));
        }
        if !self.can.transactions {
            let message = "the ODBC driver reports that its database has no transactions";
            return Err(Error::new(Kind::Unsupported, message));
        }
        let before = match begin.isolation {
            Some(level) => self.isolate(level)?,
            None => None,
        };
        self.transaction.isolation_before = before;
        if let Err(error) = self.connection.set_autocommit(false) {
            let error = self.note_failure(error);
            self.restore()?;
            return Err(error);
        }
        self.transaction.state = State::Open;
        self.transaction.read_only = begin.read_only;
        Ok(())
    }

    /// Sets the isolation level. Returns the previous one, if it was another.
    fn isolate(&mut self, level: Isolation) -> Result<Option<u32>> {
        let Some(wanted) = at_least(level, self.can.isolation) else {
            let message =
                format!("the ODBC driver has no isolation level of {level:?} or stronger");
            return Err(Error::new(Kind::Unsupported, message));
        };
        let before = self
            .connection
            .attribute(ConnectionAttribute::TXN_ISOLATION);
        if before == Some(wanted) {
            return Ok(None);
        }
        let set = self.connection.set_isolation(wanted);
        set.map_err(|error| self.note_failure(error))?;
        Ok(before)
    }

    pub(super) fn commit(&mut self) -> Result<CommitOutcome> {
        self.changed = false;
        match self.transaction.state {
            State::None => return Err(refused("25P01", "there is no transaction to commit")),
            State::Failed => {
                self.rollback()?;
                return Ok(CommitOutcome::RolledBack);
            }
            State::Open => {}
        }
        if let Err(error) = self.commit_in_same() {
            if !self.broken {
                // For example, a deferred constraint was violated.
                self.rollback()?;
            }
            return Err(error);
        }
        self.restore()?;
        Ok(CommitOutcome::Committed)
    }

    /// Rolls back, in every state. A transaction that a text began may survive it.
    pub(super) fn rollback(&mut self) -> Result<()> {
        self.changed = false;
        if self.broken {
            return Err(crate::driver::worker::lost());
        }
        if self.transaction.is_open() {
            self.check_same()?;
        }
        let done = self.connection.rollback();
        done.map_err(|error| self.unsure(error))?;
        self.restore()
    }

    /// Restores autocommit and isolation level after a transaction, and verifies autocommit.
    fn restore(&mut self) -> Result<()> {
        let on = self.connection.set_autocommit(true);
        on.map_err(|error| self.unsure(error))?;
        let is_on = self.connection.attribute(ConnectionAttribute::AUTOCOMMIT);
        if is_on == Some(0) {
            self.broken = true;
            let message = "the ODBC driver does not switch autocommit on again";
            return Err(Error::new(Kind::ConnectionLost, message));
        }
        let Transaction {
            isolation_before, ..
        } = std::mem::take(&mut self.transaction);
        self.forget_unsettled();
        if let Some(level) = isolation_before {
            let set = self.connection.set_isolation(level);
            set.map_err(|error| self.unsure(error))?;
        }
        Ok(())
    }

    /// Marks the connection as broken after an error that leaves its state unknown.
    fn unsure(&mut self, error: super::handle::OdbcError) -> Error {
        let error = self.note_failure(error);
        self.broken = true;
        error
    }

    pub(super) fn set_savepoint(&mut self, name: &str) -> Result<()> {
        self.transaction.check_not_failed()?;
        self.uncancelled(&format!("SAVEPOINT {}", quoted(name)))
    }

    pub(super) fn release_savepoint(&mut self, name: &str) -> Result<()> {
        self.transaction.check_not_failed()?;
        self.uncancelled(&format!("RELEASE SAVEPOINT {}", quoted(name)))
    }

    /// Rolls back to a savepoint and releases it. A failed transaction is open again: if the database had ended it, the
    /// savepoint would not exist.
    pub(super) fn roll_back_to(&mut self, name: &str) -> Result<()> {
        let name = quoted(name);
        self.uncancelled(&format!("ROLLBACK TO SAVEPOINT {name}"))?;
        self.forget_unsettled();
        self.uncancelled(&format!("RELEASE SAVEPOINT {name}"))?;
        if self.transaction.is_open() {
            self.transaction.state = State::Open;
        }
        Ok(())
    }

    /// Fails the transaction after a definition, if the database commits by it.
    pub(super) fn heed_ddl<T>(&mut self, sql: &str, done: Result<T>) -> Result<T> {
        let ends = self.can.ddl_commits
            && !self.broken
            && self.transaction.state != State::None
            && [self.dialect(), self.config.dialect]
                .iter()
                .any(|dialect| may_commit(dialect, sql, &class(dialect, sql)));
        if !ends {
            return done;
        }
        if self.doubtful {
            // Otherwise later statements would run as if the transaction were still open.
            self.transaction.fail();
            return done;
        }
        let changed = self.changed;
        // Later statements of the script run in a transaction that nobody began.
        let undone = self.rollback();
        self.changed = changed;
        done.and_then(|done| undone.map(|()| done))
    }
}

/// Returns an identifier in quotes, unless it is plain.
fn quoted(name: &str) -> String {
    match name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        true => name.to_owned(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_level_becomes_the_next_stronger_never_a_weaker_one() {
        assert_eq!(at_least(Isolation::ReadCommitted, 0xf), Some(2));
        assert_eq!(at_least(Isolation::ReadUncommitted, 8), Some(8));
        assert_eq!(at_least(Isolation::RepeatableRead, 0b1010), Some(8));
        assert_eq!(at_least(Isolation::Serializable, 0b0011), None);
    }

    #[test]
    fn only_reads_and_row_changes_surely_leave_transactions_open() {
        let may = |sql: &str| may_commit(&Dialect::ODBC, sql, &classify(&Dialect::ODBC, sql));
        for sql in [
            "SELECT 1",
            " update t SET a = 1",
            "INSERT INTO t VALUES (1)",
            "/* why */ (SELECT 1)",
            "( (SELECT 1) UNION (SELECT 2) )",
            "(/* why */ SELECT 1)",
            "",
            "-- why\nINSERT INTO t VALUES (1)",
            "SAVEPOINT a",
            "ROLLBACK TO SAVEPOINT a",
            "INSERT INTO t VALUES (1); SAVEPOINT a; SELECT 1",
        ] {
            assert!(!may(sql), "{sql}");
        }
        for sql in [
            "CREATE TABLE t (a INT)",
            "drop table t",
            "TRUNCATE t",
            "CALL p()",
            "INSERT INTO t VALUES (1); CREATE TABLE u (a INT); SELECT 1",
        ] {
            assert!(may(sql), "{sql}");
        }
    }

    #[test]
    fn failed_and_read_only_transactions_refuse_what_they_must() {
        let class = |sql: &str| classify(&Dialect::ODBC, sql);
        let mut transaction = Transaction {
            state: State::Open,
            read_only: true,
            isolation_before: None,
        };
        transaction.check(&class("SELECT 1")).unwrap();
        let error = transaction.check(&class("DELETE FROM t")).unwrap_err();
        assert_eq!(error.sql_state(), Some("25006"));
        transaction.fail();
        let error = transaction.check(&class("SELECT 1")).unwrap_err();
        assert_eq!(error.sql_state(), Some("25P02"));
    }
}
