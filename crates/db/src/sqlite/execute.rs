//! Runs statements and scripts on a session.

use std::cell::Cell;
use std::time::Duration;

use rusqlite::fallible_iterator::FallibleIterator;
use rusqlite::{Statement, StatementStatus};

use super::config::DIALECT;
use super::insert;
use super::session::Session;
use super::statement::{OwnedRequest, check_count};
use super::timing::{StatementKind, StatementTiming};
use super::types::{columns_of, push_row, row_bytes};
use crate::driver::{Batch, BatchBuilder, Outcome};
use crate::sql::{Class, classify};
use crate::{Error, Kind, Result};

/// The counters of a connection before a statement runs: they show what the statement changed.
pub(super) struct BeforeStep {
    changes: u64,
    rowid: i64,
}

impl BeforeStep {
    /// Returns the number of all changes of the connection.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }
}

/// A row with more columns is measured before it is copied.
const WIDE: usize = 16;

/// A write that took longer as a transaction of its own is not batched, however slow the disk is.
const SOON_ON_DISK: Duration = Duration::from_millis(500);

impl Session {
    pub(super) fn run(&self, request: &OwnedRequest) -> Result<Outcome> {
        if request.script {
            let mut last = Outcome::default();
            self.run_script(request, |outcome| last = outcome)?;
            return Ok(last);
        }
        let mut statement = self.statement(&request.sql, request.cache)?;
        check_count(&statement, request.params.len())?;
        self.run_timed(&mut statement, request)
    }

    /// Runs a statement on the thread, and notes how long it took and what SQLite did.
    fn run_timed(&self, statement: &mut Statement<'_>, request: &OwnedRequest) -> Result<Outcome> {
        let (sql, class) = (&request.sql, request.sql.class());
        self.bind(statement, &request.params)?;
        let plan = self.before_run(statement, sql, class)?;
        let is_writing = self.is_writing();
        // Forgets the calls of earlier statements.
        self.alarm.take_used();
        let watch = self.timing.start();
        let done = self.execute(statement, sql, class, request.rows);
        self.note_time(watch);
        if request.cache {
            let took = watch.took();
            let calls_out = self.alarm.take_used();
            let kind = StatementKind::of(statement, class);
            let recompiled = statement.reset_status(StatementStatus::RePrepare) > 0;
            let change = |timing: &mut StatementTiming| {
                timing.note_plan(plan, class, recompiled);
                if calls_out {
                    timing.note_call_out();
                }
                match kind {
                    StatementKind::Write if !is_writing => {
                        timing.note_alone(done.is_ok() && took <= SOON_ON_DISK);
                    }
                    _ => timing.note(took),
                }
            };
            self.timing.change(sql, kind, change);
        }
        done
    }

    /// Runs a script and returns the outcome of each of its statements.
    pub(super) fn run_all(&self, request: &OwnedRequest) -> Result<Vec<Outcome>> {
        let mut all = Vec::new();
        self.run_script(request, |outcome| all.push(outcome))?;
        Ok(all)
    }

    /// Runs a script statement by statement, to its end or the first error.
    fn run_script(&self, request: &OwnedRequest, mut each: impl FnMut(Outcome)) -> Result<()> {
        if !request.params.is_empty() {
            let message = "a script of several statements takes no parameters";
            return Err(Error::new(Kind::Parameters, message));
        }
        let mut statements = rusqlite::Batch::new(&self.db, &request.sql);
        let refused = Cell::new(0);
        // After an error the batch stands before the same statement and can be asked again.
        let mut next = || {
            let next = self.patiently(|| {
                statements.next().inspect_err(|error| {
                    if let rusqlite::Error::SqlInputError { sql, .. } = error {
                        refused.set(sql.len());
                    }
                })
            });
            next.map_err(|mut error| {
                // SQLite counts from the beginning of the statement.
                let before = request.sql.get(..request.sql.len() - refused.get());
                let before = before.map_or(0, |before| before.chars().count());
                error.relocate(&|at| at + before);
                error
            })
        };
        while let Some(mut statement) = next()? {
            check_count(&statement, 0)?;
            let sql = statement.expanded_sql().unwrap_or_default();
            let class = classify(&DIALECT, &sql);
            self.before_run(&statement, &sql, &class)?;
            each(self.execute(&mut statement, &sql, &class, request.rows)?);
        }
        Ok(())
    }

    pub(super) fn execute(
        &self,
        statement: &mut Statement<'_>,
        sql: &str,
        class: &Class,
        wants_rows: bool,
    ) -> Result<Outcome> {
        let before = self.before_step(statement);
        let rows = self.step(statement, wants_rows, usize::MAX)?;
        self.outcome(sql, || *class, before, rows)
    }

    /// Reads the counters before a statement runs.
    pub(super) fn before_step(&self, statement: &Statement<'_>) -> BeforeStep {
        self.note_run(statement);
        self.rowids.forget_last();
        BeforeStep {
            changes: self.db.total_changes(),
            rowid: self.db.last_insert_rowid(),
        }
    }

    /// Runs a statement to its end and copies its rows if they are wanted. An inline run is given up when the rows
    /// exceed `most_bytes`.
    pub(super) fn step(
        &self,
        statement: &mut Statement<'_>,
        wants_rows: bool,
        most_bytes: usize,
    ) -> Result<Option<Batch>> {
        let mut rows = None;
        self.each_row(statement, |row| {
            if wants_rows {
                let columns = || BatchBuilder::new(columns_of(row.as_ref()));
                let rows = rows.get_or_insert_with(columns);
                let is_wide = row.as_ref().column_count() > WIDE && most_bytes < usize::MAX;
                let ahead = if is_wide { row_bytes(row) } else { 0 };
                if rows.bytes() + ahead > most_bytes {
                    return Err(self.control.give_up());
                }
                push_row(rows, row)?;
            }
            Ok(true)
        })?;
        let no_rows = || BatchBuilder::new(columns_of(statement));
        Ok(wants_rows.then(|| rows.unwrap_or_else(no_rows).finish()))
    }

    /// Returns the outcome of a statement that has run.
    pub(super) fn outcome(
        &self,
        sql: &str,
        class: impl FnOnce() -> Class,
        before: BeforeStep,
        rows: Option<Batch>,
    ) -> Result<Outcome> {
        let mut outcome = Outcome {
            rows,
            ..Outcome::default()
        };
        // `changes` counts for the last statement that changed rows. That was this statement only if the total has moved.
        if self.db.total_changes() == before.changes {
            return Ok(outcome);
        }
        let class = class();
        if insert::changes_rows(&class) {
            outcome.rows_affected = self.db.changes();
        }
        if outcome.rows_affected > 0 {
            outcome.last_insert_id = self.inserted(sql, &class, before.rowid)?;
        }
        Ok(outcome)
    }
}
