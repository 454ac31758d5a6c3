//! How a session runs statements, scripts and batches, and what they come to.

use std::sync::Arc;

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

    /// Runs a script. A driver that cannot run several statements at once gets one after the other.
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

    /// Runs a text as it is, and keeps nothing of it.
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
            // Rows of it may still be on their way.
            self.discard(statement);
            statement = self.prepare_anew(&order.sql)?;
            done = run(&mut statement, self.cancel());
        }
        let outcome = self.outcome(done)?;
        self.keep(order, statement);
        Ok(outcome)
    }

    /// Runs a statement with each of the sets; all of them or none, unless a transaction is open.
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

/// All results of what was run. The outcome is the last one's; of a single statement,
/// rows stay what came of it though something follows them.
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
            // Read to the end though nobody wants them: an error may stand there.
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
