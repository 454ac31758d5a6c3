//! A PDOStatement: a text, a pin on the connection of its coroutine, and the rows of its last run.

use std::cell::{Cell as StdCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use cenote::driver::{Batch, Column};
use cenote::{Outcome, Params};

use crate::pdo::cell::{self, Cell};
use crate::pdo::error::DbError;
use crate::pdo::handle::{DriverKind, Failure, Handle};

/// The Rust half of a PDOStatement.
pub(crate) struct Stmt {
    handle: Rc<Handle>,
    sql: String,
    /// PDO puts the values into the text.
    emulated: bool,
    /// Made by `PDO::query()`: it runs once.
    once: bool,
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
    pub(crate) fn new(
        handle: Rc<Handle>,
        sql: String,
        emulated: bool,
        once: bool,
    ) -> Result<Self, Failure> {
        let stmt = Stmt {
            handle,
            sql,
            emulated,
            once,
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
                if self.once {
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
        let sql = text.unwrap_or_else(|| self.sql.clone());
        if self.emulated && self.handle.driver == DriverKind::Mysql {
            return self.handle.run_all(sql).map(VecDeque::from);
        }
        // A statement that runs once needs no place on the server.
        let cache = self.handle.caches_all || (!self.once && self.runs.get() > 0);
        let outcome = self.handle.run(sql, params, cache && !self.emulated, self.emulated)?;
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

    /// Moves to the next row. Returns whether there is one.
    pub(crate) fn fetch(&self) -> bool {
        let mut result = self.result.borrow_mut();
        let count = result.rows.as_ref().map_or(0, Batch::len);
        if result.next < count {
            result.next += 1;
            return true;
        }
        false
    }

    /// Returns a value of the current row, which is valid until the next call of this.
    pub(crate) fn cell(&self, column: usize) -> Cell {
        let mut result = self.result.borrow_mut();
        let Shown {
            rows, next, buffer, ..
        } = &mut *result;
        match (rows, next.checked_sub(1)) {
            (Some(rows), Some(row)) => cell::cell(self.handle.driver, rows, row, column, buffer),
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
