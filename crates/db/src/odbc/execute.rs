//! Runs statements, scripts and batches.

use std::sync::Arc;

use super::handle::{Bound, Cancel, Next, OdbcError, Stmt};
use super::rows::Shape;
use super::session::{OwnedRequest, Session};
use super::statement::check_count;
use crate::Result;
use crate::driver::{Batch, BatchBuilder, Outcome};
use crate::sql::{self, Class};

impl Session {
    pub(super) fn run(&mut self, request: &OwnedRequest) -> Result<Outcome> {
        let class = self.check(&request.sql)?;
        let done = match request.script {
            true => self.run_script(request),
            false => self.run_one(request, &class),
        };
        self.heed_ddl(&request.sql, done)
    }

    /// Runs a text and returns each of its results.
    pub(super) fn run_all(&mut self, request: &OwnedRequest) -> Result<Vec<Outcome>> {
        self.check(&request.sql)?;
        let done = self.run_each(request);
        self.heed_ddl(&request.sql, done)
    }

    fn run_each(&mut self, request: &OwnedRequest) -> Result<Vec<Outcome>> {
        if !request.script && !request.params.is_empty() {
            let (mut statement, _) =
                self.prepared_for(&request.sql, request.params.len(), request.cache)?;
            let done = statement
                .execute(self.cancel(), None, &request.params)
                .and_then(|()| gather_all(&mut statement, self.cancel()));
            let all = self.outcome(done)?;
            self.keep(request, statement);
            return Ok(all);
        }
        let compound = self.compound(&request.sql);
        let texts = match &compound {
            Some(compound) => vec![&**compound],
            None if request.script && !self.can.batches => sql::split(self.dialect(), &request.sql),
            None => vec![request.sql.as_str()],
        };
        let mut all = Vec::new();
        for text in texts {
            self.check_not_cancelled()?;
            let mut statement = self.statement()?;
            let cancel = self.cancel();
            let done = statement
                .execute(cancel, Some(text), &[])
                .and_then(|()| gather_all(&mut statement, cancel));
            all.extend(self.outcome(done)?);
        }
        Ok(all)
    }

    /// Runs a script: in one piece, or statement by statement if the driver cannot do that.
    fn run_script(&mut self, request: &OwnedRequest) -> Result<Outcome> {
        if let Some(compound) = self.compound(&request.sql) {
            return self.run_text_as(&compound, request.rows, false);
        }
        if self.can.batches {
            return self.run_text(&request.sql, request.rows);
        }
        let mut outcome = Outcome::default();
        for statement in sql::split(self.dialect(), &request.sql) {
            self.check_not_cancelled()?;
            outcome = self.run_text(statement, request.rows)?;
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

    fn run_one(&mut self, request: &OwnedRequest, class: &Class) -> Result<Outcome> {
        if !request.cache && request.params.is_empty() {
            return self.run_text(&request.sql, request.rows);
        }
        let (mut statement, was_kept) =
            self.prepared_for(&request.sql, request.params.len(), request.cache)?;
        let run = |statement: &mut Stmt, cancel: Cancel<'_>| {
            statement.execute(cancel, None, &request.params)?;
            gather(statement, cancel, request.rows, false)
        };
        let mut done = run(&mut statement, self.cancel());
        if was_kept && self.is_stale(class, &done) {
            // It may still have unread rows.
            self.discard(statement);
            statement = self.prepare_anew(&request.sql)?;
            done = run(&mut statement, self.cancel());
        }
        let outcome = self.outcome(done)?;
        self.keep(request, statement);
        Ok(outcome)
    }

    /// Runs a statement with each parameter set: all or nothing, unless a transaction is open. Returns the rows, if they
    /// are wanted.
    pub(super) fn run_batch(
        &mut self,
        sql: &str,
        sets: &[Vec<Bound>],
        wants_rows: bool,
    ) -> Result<(Outcome, Vec<Batch>)> {
        self.check(sql)?;
        if sets.is_empty() {
            return Ok((Outcome::default(), Vec::new()));
        }
        let own = !self.transaction.is_open() && self.can.transactions && !self.doubtful;
        if own {
            self.begin(crate::driver::Begin::default())?;
        }
        let done = self.run_sets(sql, sets, wants_rows);
        if own {
            match &done {
                Ok(_) => drop(self.commit()?),
                Err(_) if self.broken => {}
                Err(_) => self.rollback()?,
            }
        }
        self.heed_ddl(sql, done)
    }

    fn run_sets(
        &mut self,
        sql: &str,
        sets: &[Vec<Bound>],
        wants_rows: bool,
    ) -> Result<(Outcome, Vec<Batch>)> {
        let given = sets.first().map_or(0, Vec::len);
        let (mut statement, _) = self.prepared_for(sql, given, true)?;
        let (mut all, mut rows) = (Outcome::default(), Vec::new());
        for (n, set) in sets.iter().enumerate() {
            self.check_not_cancelled()?;
            let counted = check_count(&mut statement, set.len());
            let done = counted.and_then(|()| {
                let cancel = self.cancel();
                let done = statement
                    .execute(cancel, None, set)
                    .and_then(|()| gather(&mut statement, cancel, wants_rows, false));
                self.outcome(done)
            });
            let outcome = done.map_err(|error| error.in_set(n as u64))?;
            all.rows_affected += outcome.rows_affected;
            rows.extend(outcome.rows);
        }
        self.keep_text(sql, statement);
        Ok((all, rows))
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
    let mut last = Outcome::default();
    let read = gather_each(statement, cancel, rows, |mut outcome| {
        if !script && outcome.rows.is_none() {
            outcome.rows = last.rows.take();
        }
        last = outcome;
    })?;
    Ok(read.map(|()| last))
}

/// Reads all results with their rows.
fn gather_all(statement: &mut Stmt, cancel: Cancel<'_>) -> Result<Result<Vec<Outcome>>, OdbcError> {
    let mut all = Vec::new();
    let read = gather_each(statement, cancel, true, |outcome| all.push(outcome))?;
    Ok(read.map(|()| all))
}

/// Reads the results one after the other.
fn gather_each(
    statement: &mut Stmt,
    cancel: Cancel<'_>,
    rows: bool,
    mut each: impl FnMut(Outcome),
) -> Result<Result<()>, OdbcError> {
    loop {
        let shape = Shape::of(statement)?;
        let mut outcome = Outcome::default();
        if shape.columns.is_empty() {
            outcome.rows_affected = statement.affected()?.unwrap_or(0);
        } else {
            let mut batch = BatchBuilder::new(Arc::clone(&shape.columns));
            // Reads unwanted rows to the end, because an error may follow.
            while let Next::There = statement.fetch(cancel)? {
                if rows && let Err(error) = shape.push(statement, &mut batch)? {
                    return Ok(Err(error));
                }
            }
            outcome.rows = rows.then(|| batch.finish());
        }
        each(outcome);
        if let Next::Over = statement.more(cancel)? {
            break;
        }
    }
    statement.close()?;
    Ok(Ok(()))
}
