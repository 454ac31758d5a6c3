//! Runs statements, scripts and batches.

use std::sync::Arc;

use super::error::Vendor;
use super::handle::{Bound, Cancel, Next, OdbcError, Stmt};
use super::rows::Shape;
use super::session::{Order, Session};
use super::statement::check_count;
use crate::Result;
use crate::driver::{BatchBuilder, Outcome};
use crate::sql::{self, Class};

impl Session {
    pub(super) fn run(&mut self, order: &Order) -> Result<Outcome> {
        let class = self.check(&order.sql)?;
        let done = match order.script {
            true => self.run_script(order),
            false => self.run_one(order, &class),
        };
        self.heed_ddl(&order.sql, done)
    }

    /// Runs a script: in one piece, or statement by statement if the driver cannot do that.
    fn run_script(&mut self, order: &Order) -> Result<Outcome> {
        if let Some(compound) = self.compound(&order.sql) {
            return self.run_text_as(&compound, order.rows, false);
        }
        if self.can.batches {
            return self.run_text(&order.sql, order.rows);
        }
        let mut outcome = Outcome::default();
        for statement in sql::split(self.dialect(), &order.sql) {
            self.check_not_cancelled()?;
            outcome = self.run_text(statement, order.rows)?;
        }
        Ok(outcome)
    }

    /// Runs a text unchanged, without the cache.
    pub(super) fn run_text(&mut self, sql: &str, rows: bool) -> Result<Outcome> {
        self.run_text_as(sql, rows, true)
    }

    fn run_text_as(&mut self, sql: &str, rows: bool, script: bool) -> Result<Outcome> {
        let mut statement = self.statement()?;
        let cancel = self.cancel();
        let done = statement
            .execute(cancel, Some(sql), &[])
            .and_then(|()| gather(&mut statement, cancel, rows, script));
        self.outcome(done)
    }

    fn run_one(&mut self, order: &Order, class: &Class) -> Result<Outcome> {
        if !order.cache && order.params.is_empty() {
            return self.run_text(&order.sql, order.rows);
        }
        let (mut statement, was_kept) = self.prepared_for(&order.sql, order.params.len())?;
        let run = |statement: &mut Stmt, cancel: Cancel<'_>| {
            statement.execute(cancel, None, &order.params)?;
            gather(statement, cancel, order.rows, false)
        };
        let mut done = run(&mut statement, self.cancel());
        if was_kept && self.is_stale(class, &done) {
            // It may still have unread rows.
            self.discard(statement);
            statement = self.prepare_anew(&order.sql)?;
            done = run(&mut statement, self.cancel());
        }
        let outcome = self.outcome(done)?;
        self.keep(order, statement);
        Ok(outcome)
    }

    /// Its table has changed under it and nothing of it has been done, so that it may be prepared and run once more, as if
    /// it were new. A procedure can say the same of a statement of its own, after it has committed others.
    pub(super) fn is_stale<T>(&self, class: &Class, done: &Result<T, OdbcError>) -> bool {
        let Err(OdbcError::Diagnostics { record, .. }) = done else {
            return false;
        };
        let never_ran = match (record.state.as_str(), self.can.vendor) {
            ("0A000" | "26000", _) => true,
            (_, Vendor::Mysql) => match record.native_error {
                1243 | 1615 => true,
                // Found by the driver in the rows.
                2057 => class.reads_only,
                _ => false,
            },
            _ => false,
        };
        never_ran && !self.transaction.is_open() && !class.touches_session
    }

    /// Runs a statement with each parameter set: all or nothing, unless a transaction is open.
    pub(super) fn run_batch(&mut self, sql: &str, sets: &[Vec<Bound>]) -> Result<Outcome> {
        self.check(sql)?;
        if sets.is_empty() {
            return Ok(Outcome::default());
        }
        let own = !self.transaction.is_open() && self.can.transactions && !self.doubtful;
        if own {
            self.begin(crate::driver::Begin::default())?;
        }
        let done = self.run_sets(sql, sets);
        if own {
            match &done {
                Ok(_) => drop(self.commit()?),
                Err(_) if self.broken => {}
                Err(_) => self.rollback()?,
            }
        }
        self.heed_ddl(sql, done)
    }

    fn run_sets(&mut self, sql: &str, sets: &[Vec<Bound>]) -> Result<Outcome> {
        let given = sets.first().map_or(0, Vec::len);
        let (mut statement, _) = self.prepared_for(sql, given)?;
        let mut all = Outcome::default();
        for set in sets {
            self.check_not_cancelled()?;
            check_count(&mut statement, set.len())?;
            let cancel = self.cancel();
            let done = statement
                .execute(cancel, None, set)
                .and_then(|()| gather(&mut statement, cancel, false, false));
            all.affected += self.outcome(done)?.affected;
        }
        self.keep_text(sql, statement);
        Ok(all)
    }
}

/// Reads all results. The outcome is that of the last one; for a single statement, rows remain the outcome even if
/// other results follow.
pub(super) fn gather(
    statement: &mut Stmt,
    cancel: Cancel<'_>,
    rows: bool,
    script: bool,
) -> Result<Result<Outcome>, OdbcError> {
    let mut outcome = Outcome::default();
    loop {
        let shape = Shape::of(statement)?;
        if shape.columns.is_empty() {
            outcome.affected = statement.affected()?.unwrap_or(0);
            if script {
                outcome.rows = None;
            }
        } else {
            let mut batch = BatchBuilder::new(Arc::clone(&shape.columns));
            // Reads unwanted rows to the end, because an error may follow.
            while let Next::There = statement.fetch(cancel)? {
                if rows && let Err(error) = shape.push(statement, &mut batch)? {
                    return Ok(Err(error));
                }
            }
            outcome.affected = 0;
            outcome.rows = rows.then(|| batch.finish());
        }
        if let Next::Over = statement.more(cancel)? {
            break;
        }
    }
    statement.close()?;
    Ok(Ok(outcome))
}
