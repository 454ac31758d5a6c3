//! Statements that stay prepared.

use std::borrow::Cow;

use super::error::Vendor;
use super::handle::Stmt;
use super::session::{Order, Session};
use super::transaction::may_commit;
use crate::sql::{self, Class, Dialect, class, contains_any};
use crate::{Error, Kind, Result};

impl Session {
    /// Whether a text may change what statements that stay prepared mean. They go on with the settings, the schema and the
    /// tables that they were prepared with; what PostgreSQL sets for a transaction counts as well.
    pub(super) fn may_unsettle(&self, sql: &str, class: &Class) -> bool {
        class.touches_session
            || class.contains_transaction_control
            || contains_any(sql, &["set_config"])
            || may_commit(self.dialect(), sql, class)
    }

    /// What was set since may be taken back: by the end of a transaction, or on the way back to a savepoint.
    pub(super) fn forget_unsettled(&mut self) {
        if self.unsettled {
            self.forget_kept();
            self.unsettled = self.transaction.is_open();
            self.is_reading_unsure |= self.misread.is_some();
        }
    }

    pub(super) fn forget_kept(&mut self) {
        for statement in self.kept.take_all() {
            self.discard(statement);
        }
    }

    /// Gives up a statement that was prepared. Where a text may have begun a transaction it stays until the connection is
    /// closed: psqlODBC commits when it frees one, because it takes itself to be committing by itself.
    pub(super) fn discard(&mut self, statement: Stmt) {
        if self.doubtful {
            self.retired.push(statement);
        }
    }

    /// A statement that has been prepared, and whether it was before.
    pub(super) fn prepared(&mut self, sql: &str) -> Result<(Stmt, bool)> {
        // Taken out while it is used: one that fails is not put back.
        match self.kept.remove(sql) {
            Some(statement) => Ok((statement, true)),
            None => Ok((self.prepare_anew(sql)?, false)),
        }
    }

    /// The same, for this many parameters; one that was kept before only if the call may use it.
    pub(super) fn prepared_for(
        &mut self,
        sql: &str,
        given: usize,
        cache: bool,
    ) -> Result<(Stmt, bool)> {
        let (mut statement, was_kept) = match cache {
            true => self.prepared(sql)?,
            false => (self.prepare_anew(sql)?, false),
        };
        match check_count(&mut statement, given) {
            Ok(()) => Ok((statement, was_kept)),
            Err(wrong) => {
                self.discard(statement);
                Err(wrong)
            }
        }
    }

    pub(super) fn prepare_anew(&mut self, sql: &str) -> Result<Stmt> {
        if self.can.vendor == Vendor::Sqlite {
            // SQLite looks whether another has changed the schema when a statement is run; what is
            // prepared before that would have the columns of yesterday.
            self.uncancelled("SELECT 1 FROM sqlite_master LIMIT 1")?;
        }
        let mut statement = self.statement()?;
        let prepared = match self.compound(sql) {
            Some(compound) => statement.prepare(&compound),
            None => statement.prepare(sql),
        };
        prepared.map_err(|error| self.told(error))?;
        Ok(statement)
    }

    /// The text of a compound statement of MariaDB, if that is what this is, as its ODBC driver takes it. The driver knows
    /// only those that begin with BEGIN NOT ATOMIC; others it takes apart at their semicolons, or crashes over their rows.
    pub(super) fn compound<'s>(&self, sql: &'s str) -> Option<Cow<'s, str>> {
        if self.can.vendor != Vendor::Mysql || !sql.contains(';') {
            return None;
        }
        let [statement] = *sql::split(self.dialect(), sql) else {
            return None;
        };
        // A semicolon at its end is not in it.
        if !statement.contains(';') || sql::split(&Dialect::ODBC, statement).len() < 2 {
            return None;
        }
        let begins = statement.get(..5)?.eq_ignore_ascii_case("begin");
        Some(match begins {
            true => Cow::Borrowed(statement),
            false => Cow::Owned(format!("BEGIN NOT ATOMIC\n{statement}\n; END")),
        })
    }

    pub(super) fn keep(&mut self, order: &Order, statement: Stmt) {
        match order.cache {
            true => self.keep_text(&order.sql, statement),
            false => self.discard(statement),
        }
    }

    pub(super) fn keep_text(&mut self, sql: &str, statement: Stmt) {
        // PostgreSQL resolves `'now'` when it prepares. In a string with a backslash any word can hide.
        let is_volatile = || {
            self.can.vendor == Vendor::Postgres
                && (sql.contains('\\') || class(self.dialect(), sql).resolved.is_volatile)
        };
        if !self.kept.is_on() || self.unsettles || is_volatile() {
            return self.discard(statement);
        }
        if let Some(oldest) = self.kept.make_room() {
            self.discard(oldest);
        }
        if let Some(replaced) = self.kept.insert(sql, statement) {
            self.discard(replaced);
        }
    }
}

/// A statement is checked for the number of its parameters, if its driver can count them.
pub(super) fn check_count(statement: &mut Stmt, given: usize) -> Result<()> {
    match statement.params().map(usize::from) {
        Some(wanted) if wanted != given => {
            let message =
                format!("the statement takes {wanted} parameters, and {given} were given");
            Err(Error::new(Kind::Parameters, message))
        }
        _ => Ok(()),
    }
}
