//! The cache of prepared statements.

use std::borrow::Cow;

use super::error::Vendor;
use super::handle::Stmt;
use super::session::{OwnedRequest, Session};
use super::transaction::may_commit;
use crate::sql::{self, Class, Dialect, Keyword, class, contains_any};
use crate::{Error, Kind, Result};

impl Session {
    /// Whether a text may change the meaning of cached statements. They keep the settings, schemas and tables of their
    /// preparation; PostgreSQL's SET LOCAL counts, too.
    pub(super) fn may_unsettle(&self, sql: &str, class: &Class) -> bool {
        class.touches_session
            || class.contains_transaction_control
            || contains_any(sql, &["set_config"])
            || may_commit(self.dialect(), sql, class)
    }

    /// Clears the cache if a transaction's end, or a rollback to a savepoint, may have undone settings.
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

    /// Discards a prepared statement. If a text may have begun a transaction, the statement stays until the connection is
    /// closed: psqlODBC commits when it frees one, because it believes that autocommit is on.
    pub(super) fn discard(&mut self, statement: Stmt) {
        if self.doubtful {
            self.retired.push(statement);
        }
    }

    /// Returns a prepared statement, and whether it was cached.
    pub(super) fn prepared(&mut self, sql: &str) -> Result<(Stmt, bool)> {
        // Taken out while it is used, so that a failed one is not put back.
        match self.kept.remove(sql) {
            Some(statement) => Ok((statement, true)),
            None => Ok((self.prepare_anew(sql)?, false)),
        }
    }

    /// Like [`prepared`](Self::prepared), and checks the number of parameters. Without `cache` it prepares a new one.
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
            // SQLite notices a changed schema when a statement runs; a statement prepared before
            // that would have the old columns.
            self.uncancelled("SELECT 1 FROM sqlite_master LIMIT 1")?;
        }
        let mut statement = self.statement()?;
        let prepared = match self.compound(sql) {
            Some(compound) => statement.prepare(&compound),
            None => statement.prepare(sql),
        };
        prepared.map_err(|error| self.note_failure(error))?;
        Ok(statement)
    }

    /// Returns the text of a MariaDB compound statement in the form that its ODBC driver accepts. The driver recognises
    /// only those that begin with BEGIN NOT ATOMIC; it splits others at their semicolons, or crashes on their rows.
    pub(super) fn compound<'s>(&self, sql: &'s str) -> Option<Cow<'s, str>> {
        if self.can.vendor != Vendor::Mysql || !sql.contains(';') {
            return None;
        }
        let pieces = sql::pieces(self.dialect(), sql);
        let [piece] = pieces.as_slice() else {
            return None;
        };
        let statement = piece.bare;
        // A final semicolon does not count.
        if !statement.contains(';') || sql::split(&Dialect::ODBC, statement).len() < 2 {
            return None;
        }
        match piece.verb {
            // A routine is no compound statement, though its body has semicolons, and cannot be created inside of one.
            Some(Keyword::Create) => None,
            Some(Keyword::Begin) => Some(Cow::Borrowed(statement)),
            _ => Some(Cow::Owned(format!("BEGIN NOT ATOMIC\n{statement}\n; END"))),
        }
    }

    pub(super) fn keep(&mut self, request: &OwnedRequest, statement: Stmt) {
        match request.cache {
            true => self.keep_text(&request.sql, statement),
            false => self.discard(statement),
        }
    }

    pub(super) fn keep_text(&mut self, sql: &str, statement: Stmt) {
        // PostgreSQL evaluates `'now'` when it prepares. A string with a backslash can hide any word.
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

/// Checks the number of parameters, if the driver can count them.
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
