//! A PDOStatement: a text, a pin on the connection of its coroutine, and the rows of its last run.

use std::cell::{Cell as StdCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use cenote::driver::{Batch, Column};
use cenote::sql::{Placeholders, scan};
use cenote::{Outcome, Params};

use crate::pdo::cell::{self, Cell};
use crate::pdo::error::DbError;
use crate::pdo::handle::{Failure, Handle};
use crate::pdo::question_marks::with_doubled_question_marks;
use crate::pdo::settings::DriverKind;

/// Where a fetch goes; see `pdo_fetch_orientation`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(dead_code, reason = "C makes the values")]
pub(crate) enum Move {
    Next,
    Prior,
    First,
    Last,
    Absolute,
    Relative,
}

/// How a statement is made.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Kinds {
    /// PDO puts the values into the text.
    pub(crate) emulated: bool,
    /// Made by `PDO::query()`: it runs once.
    pub(crate) once: bool,
    /// It has no place on the server.
    pub(crate) uncached: bool,
}

/// The Rust half of a PDOStatement.
pub(crate) struct Stmt {
    handle: Rc<Handle>,
    sql: String,
    kinds: Kinds,
    /// The pin, and the owner that it is of.
    pin: StdCell<Option<(u64, u64)>>,
    runs: StdCell<u32>,
    result: RefCell<Shown>,
    pub(crate) error: RefCell<Option<DbError>>,
}

#[derive(Default)]
struct Shown {
    rows: Option<Batch>,
    affected: u64,
    /// The next row.
    next: usize,
    /// The results after this one.
    later: VecDeque<Outcome>,
    buffer: Vec<u8>,
}

impl Stmt {
    /// Makes a statement and pins the connection. SQLite reports a wrong text now, the others when it runs.
    ///
    /// # Errors
    ///
    /// As [`Handle::call`].
    pub(crate) fn new(handle: Rc<Handle>, sql: String, kinds: Kinds) -> Result<Self, Failure> {
        let stmt = Stmt {
            handle,
            sql,
            kinds,
            pin: StdCell::new(None),
            runs: StdCell::new(0),
            result: RefCell::default(),
            error: RefCell::new(None),
        };
        stmt.pin()?;
        if stmt.handle.driver == DriverKind::Sqlite {
            stmt.handle.check_text(&stmt.sql)?;
        }
        Ok(stmt)
    }

    /// Pins the connection of the coroutine that uses the statement now.
    fn pin(&self) -> Result<(), Failure> {
        let owner = self.handle.owner().id;
        if let Some((_, pinned_by)) = self.pin.get()
            && pinned_by == owner
        {
            return Ok(());
        }
        let key = self.handle.pin()?;
        if let Some((old, _)) = self.pin.replace(Some((key, owner))) {
            self.handle.unpin(old);
        }
        Ok(())
    }

    fn unpin(&self) {
        if let Some((key, _)) = self.pin.take() {
            self.handle.unpin(key);
        }
    }

    /// Runs the statement; `text` is PDO's own one with the values in it.
    ///
    /// # Errors
    ///
    /// As [`Handle::call`]. A failed `query()` holds no connection.
    pub(crate) fn execute(
        &self,
        text: Option<String>,
        params: Params<'static>,
    ) -> Result<(), Failure> {
        let old = self.result.take();
        drop(old);
        self.error.take();
        let done = self.run(text, params);
        match done {
            Ok(mut outcomes) => {
                self.runs.set(self.runs.get().saturating_add(1));
                let first = outcomes.pop_front().unwrap_or_default();
                self.show(first, outcomes);
                Ok(())
            }
            Err(failure) => {
                if let Failure::Database = failure {
                    *self.error.borrow_mut() = self.handle.error();
                }
                self.handle.forget_text(&self.sql);
                if self.kinds.once {
                    self.unpin();
                }
                Err(failure)
            }
        }
    }

    fn run(
        &self,
        text: Option<String>,
        params: Params<'static>,
    ) -> Result<VecDeque<Outcome>, Failure> {
        self.pin()?;
        if self.handle.driver == DriverKind::Pgsql
            && matches!(&params, Params::Positional(some) if !some.is_empty())
            && self.has_no_params()
        {
            // The server reports a wrong text first, and then that it takes no parameters.
            self.handle.check_text(&self.sql)?;
        }
        let sql = text.unwrap_or_else(|| self.sql.clone());
        if self.kinds.emulated && self.handle.driver == DriverKind::Mysql {
            return self.handle.run_all(sql).map(VecDeque::from);
        }
        // A statement that runs once needs no place on the server.
        let is_worth = self.handle.caches_all || (!self.kinds.once && self.runs.get() > 0);
        let cache = is_worth && !self.kinds.uncached;
        let sql = match self.kinds.emulated && self.handle.driver == DriverKind::Pgsql {
            true => with_doubled_question_marks(sql),
            false => sql,
        };
        let outcome = self.handle.run(
            sql,
            params,
            cache && !self.kinds.emulated,
            self.kinds.emulated,
        )?;
        Ok([outcome].into())
    }

    fn show(&self, outcome: Outcome, later: VecDeque<Outcome>) {
        let mut result = self.result.borrow_mut();
        let rows = outcome.rows.filter(|rows| !rows.columns().is_empty());
        result.affected = match (&rows, self.handle.driver) {
            (None, _) | (_, DriverKind::Sqlite) => outcome.rows_affected,
            (Some(rows), _) => rows.len() as u64,
        };
        result.rows = rows;
        result.next = 0;
        result.later = later;
    }

    /// Moves to the next result. Returns whether there is one.
    pub(crate) fn next_result(&self) -> bool {
        let mut later = std::mem::take(&mut self.result.borrow_mut().later);
        let Some(next) = later.pop_front() else {
            let rows = self.result.borrow_mut().rows.take();
            drop(rows);
            return false;
        };
        self.show(next, later);
        true
    }

    pub(crate) fn affected(&self) -> u64 {
        self.result.borrow().affected
    }

    pub(crate) fn column_count(&self) -> usize {
        let result = self.result.borrow();
        result.rows.as_ref().map_or(0, |rows| rows.columns().len())
    }

    /// Runs something with a column.
    pub(crate) fn column<T>(&self, at: usize, look: impl FnOnce(&Column) -> T) -> Option<T> {
        let result = self.result.borrow();
        Some(look(result.rows.as_ref()?.columns().get(at)?))
    }

    /// Moves to the next row, or in another direction: see [`Move`]. Returns whether there is a row.
    pub(crate) fn fetch(&self, direction: Move, offset: i64) -> bool {
        let mut result = self.result.borrow_mut();
        let count = result.rows.as_ref().map_or(0, Batch::len);
        let [now, all] = [result.next, count].map(|n| i64::try_from(n).unwrap_or(i64::MAX - 1));
        // Counted from 1; 0 is before the first row, and one more than all is after the last.
        let wanted = match direction {
            Move::Next => now + 1,
            Move::Prior => now - 1,
            Move::First => 1,
            Move::Last => all,
            Move::Absolute if offset < 0 => (all + 1).saturating_add(offset),
            Move::Absolute => offset,
            Move::Relative => now.saturating_add(offset),
        };
        let wanted = wanted.clamp(0, all + 1);
        // After the last row, the next one is none again.
        result.next = usize::try_from(wanted).unwrap_or(0);
        (1..=all).contains(&wanted)
    }

    /// Returns whether the text has this placeholder: by name, or by position from 0. A text that cannot be read has all.
    pub(crate) fn has_param(&self, name: Option<&str>, position: i64) -> bool {
        let Some(db) = self.handle.db() else {
            return true;
        };
        let Ok(scanned) = scan(db.dialect(), &self.sql) else {
            return true;
        };
        match (name, &scanned.placeholders) {
            (Some(name), Placeholders::Named(names)) => {
                names.contains(&name.strip_prefix(':').unwrap_or(name))
            }
            (Some(_), _) => false,
            // The server says what it takes.
            (None, Placeholders::None) => true,
            (None, some) => usize::try_from(position).is_ok_and(|at| at < some.count()),
        }
    }

    fn has_no_params(&self) -> bool {
        let Some(db) = self.handle.db() else {
            return false;
        };
        let scanned = scan(db.dialect(), &self.sql);
        scanned.is_ok_and(|scanned| scanned.placeholders == Placeholders::None)
    }

    /// Notes an error that C has found.
    pub(crate) fn fail(&self, error: DbError) {
        let old = self.error.replace(Some(error));
        drop(old);
    }

    /// Returns a value of the current row, which is valid until the next call of this.
    pub(crate) fn cell(&self, column: usize) -> Cell {
        let mut result = self.result.borrow_mut();
        let Shown {
            rows, next, buffer, ..
        } = &mut *result;
        match (rows, next.checked_sub(1)) {
            (Some(rows), Some(row)) if row < rows.len() => {
                cell::cell(self.handle.driver, rows, row, column, buffer)
            }
            _ => Cell::null(),
        }
    }

    /// Drops the rows.
    pub(crate) fn close(&self) {
        let old = self.result.take();
        drop(old);
    }

    pub(crate) fn handle(&self) -> &Rc<Handle> {
        &self.handle
    }
}

impl Drop for Stmt {
    fn drop(&mut self) {
        self.unpin();
    }
}
