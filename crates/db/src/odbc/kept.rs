//! Statements that stay prepared.

use std::borrow::Cow;

use super::error::Vendor;
use super::handle::Stmt;
use super::session::{Order, Session, check_count};
use super::transaction::may_commit;
use crate::Result;
use crate::sql::{self, Class, Dialect, class, contains_any};

/// The statements of a connection that were used last, by their text.
#[derive(Debug)]
pub(super) struct Kept {
    room: usize,
    /// The one that was used last is at the end.
    statements: Vec<(String, Stmt)>,
}

impl Kept {
    pub(super) fn new(room: usize) -> Self {
        Kept {
            room,
            statements: Vec::new(),
        }
    }

    /// Takes one out, to be used. One that fails is not put back.
    pub(super) fn take(&mut self, sql: &str) -> Option<Stmt> {
        let mut found = self.statements.iter();
        let at = found.rposition(|(text, _)| text == sql)?;
        Some(self.statements.remove(at).1)
    }

    /// Keeps a statement. Gives the one that is not kept for it.
    pub(super) fn put(&mut self, sql: &str, statement: Stmt) -> Option<Stmt> {
        if self.room == 0 {
            return Some(statement);
        }
        let is_full = self.statements.len() >= self.room;
        let oldest = is_full.then(|| self.statements.remove(0).1);
        self.statements.push((sql.to_owned(), statement));
        oldest
    }

    /// All of them, which are not kept any more.
    pub(super) fn take_all(&mut self) -> Vec<Stmt> {
        let all = std::mem::take(&mut self.statements);
        all.into_iter().map(|(_, statement)| statement).collect()
    }
}

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
        match self.kept.take(sql) {
            Some(statement) => Ok((statement, true)),
            None => Ok((self.prepare_anew(sql)?, false)),
        }
    }

    /// The same, for this many parameters.
    pub(super) fn prepared_for(&mut self, sql: &str, given: usize) -> Result<(Stmt, bool)> {
        let (mut statement, was_kept) = self.prepared(sql)?;
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
        if order.cache {
            self.keep_text(&order.sql, statement);
        }
    }

    pub(super) fn keep_text(&mut self, sql: &str, statement: Stmt) {
        // PostgreSQL resolves `'now'` when it prepares. In a string with a backslash any word can hide.
        let is_volatile = || {
            self.can.vendor == Vendor::Postgres
                && (sql.contains('\\') || class(self.dialect(), sql).resolved.is_volatile)
        };
        let given_up = match self.unsettles || is_volatile() {
            true => Some(statement),
            false => self.kept.put(sql, statement),
        };
        if let Some(given_up) = given_up {
            self.discard(given_up);
        }
    }
}
