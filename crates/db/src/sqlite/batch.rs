//! Runs one statement with many sets of parameters.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Statement, ToSql};

use super::insert;
use super::session::Session;
use super::statement::{OwnedSql, check_count};
use super::types::{Bound, bound_param};
use crate::driver::{Batch, Outcome, Param};
use crate::{Error, Kind, Result};

/// The task yields after it has copied this many sets, or this many bytes.
const SETS_AT_ONCE: usize = 1024;
const BYTES_AT_ONCE: usize = 256 * 1024;

/// Sets of parameters that borrow nothing, for the thread: two allocations for all of them.
#[derive(Debug, Default)]
pub(super) struct OwnedSets {
    /// The values of all sets, one set after the other.
    cells: Vec<Cell>,
    /// The bytes of the texts and blobs.
    bytes: Vec<u8>,
    /// How many values a set has.
    width: usize,
    sets: usize,
}

#[derive(Clone, Copy, Debug)]
enum Cell {
    Null,
    Integer(i64),
    Real(f64),
    /// Up to this length of `bytes`, from the end of the text or blob before it.
    Text(usize),
    Blob(usize),
}

impl OwnedSets {
    /// Copies the sets.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has happened.
    ///
    /// # Errors
    ///
    /// The first set with a value that SQLite cannot store, or with another number of values than the first set.
    pub(super) async fn of(sets: &[Vec<Param<'_>>]) -> Result<Self> {
        let width = sets.first().map_or(0, Vec::len);
        let mut owned = OwnedSets {
            cells: Vec::with_capacity(width * sets.len()),
            bytes: Vec::new(),
            width,
            sets: sets.len(),
        };
        let mut copied = 0;
        for (n, set) in sets.iter().enumerate() {
            owned.check(set).map_err(|wrong| wrong.in_set(n as u64))?;
            for (at, param) in set.iter().enumerate() {
                let value = bound_param(at, param).map_err(|wrong| wrong.in_set(n as u64))?;
                if value.len() > BYTES_AT_ONCE {
                    owned.push_long(&value).await;
                } else {
                    owned.push(&value);
                }
            }
            if (n + 1) % SETS_AT_ONCE == 0 || owned.bytes.len() - copied >= BYTES_AT_ONCE {
                copied = owned.bytes.len();
                tokio::task::yield_now().await;
            }
        }
        Ok(owned)
    }

    fn check(&self, set: &[Param<'_>]) -> Result<()> {
        if set.len() == self.width {
            return Ok(());
        }
        let (given, first) = (set.len(), self.width);
        let message = format!("the set has {given} parameters, and the first has {first}");
        Err(Error::new(Kind::Parameters, message))
    }

    fn push(&mut self, value: &Bound<'_>) {
        self.bytes.extend_from_slice(value.bytes());
        self.push_cell(value);
    }

    /// Copies a long text or blob in parts.
    async fn push_long(&mut self, value: &Bound<'_>) {
        self.bytes.reserve(value.len());
        for part in value.bytes().chunks(BYTES_AT_ONCE) {
            self.bytes.extend_from_slice(part);
            tokio::task::yield_now().await;
        }
        self.push_cell(value);
    }

    /// Adds a value whose bytes have been copied.
    fn push_cell(&mut self, value: &Bound<'_>) {
        let end = self.bytes.len();
        self.cells.push(match value {
            Bound::Here(ValueRef::Null) => Cell::Null,
            Bound::Here(ValueRef::Integer(number)) => Cell::Integer(*number),
            Bound::Here(ValueRef::Real(number)) => Cell::Real(*number),
            Bound::Here(ValueRef::Text(_)) | Bound::Made(_) => Cell::Text(end),
            Bound::Here(ValueRef::Blob(_)) => Cell::Blob(end),
        });
    }
}

impl OwnedSets {
    /// Returns the values of each set, with its index.
    fn iter(&self) -> impl Iterator<Item = (usize, &[Cell])> {
        (0..self.sets).map(|n| (n, &self.cells[n * self.width..][..self.width]))
    }
}

/// A value of a set, on its way into a statement.
struct Binding<'s>(ValueRef<'s>);

impl ToSql for Binding<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.0))
    }
}

impl Session {
    /// Runs a statement with each set of parameters and returns the sum of their outcomes; with the rows, if they
    /// are wanted. Without an open transaction it begins one: all sets take effect, or none.
    pub(super) fn run_batch(
        &self,
        sql: &OwnedSql,
        sets: &OwnedSets,
        wants_rows: bool,
    ) -> Result<(Outcome, Vec<Batch>)> {
        let mut statement = self.statement(sql, true)?;
        if sets.sets > 0 {
            check_count(&statement, sets.width).map_err(|wrong| wrong.in_set(0))?;
        }
        if self.in_transaction() {
            return self.run_sets(&mut statement, sql, sets, wants_rows);
        }
        match statement.readonly() {
            true => self.often("BEGIN DEFERRED")?,
            false => self.begin_writing()?,
        }
        let done = self
            .run_sets(&mut statement, sql, sets, wants_rows)
            .and_then(|outcome| self.often("COMMIT").map(|()| outcome));
        if done.is_err() && self.rollback().is_err() {
            self.set_broken();
        }
        done
    }

    fn run_sets(
        &self,
        statement: &mut Statement<'_>,
        sql: &OwnedSql,
        sets: &OwnedSets,
        wants_rows: bool,
    ) -> Result<(Outcome, Vec<Batch>)> {
        let class = sql.class();
        // What a statement needs that changes rows stays the same in one transaction.
        let is_planned_once = insert::is_plain(class) && insert::changes_rows(class);
        if is_planned_once && !wants_rows && !class.upserts {
            return Ok((self.change_rows(statement, sql, sets)?, Vec::new()));
        }
        let (mut total, mut rows) = (Outcome::default(), Vec::new());
        let mut used = 0;
        for (n, cells) in sets.iter() {
            let done = self
                .bind_cells(statement, sets, cells, &mut used)
                .and_then(|()| match is_planned_once && n > 0 {
                    true => Ok(()),
                    false => self.before_run(statement, sql, class).map(drop),
                })
                .and_then(|()| self.execute(statement, sql, class, wants_rows));
            let outcome = done.map_err(|error| error.in_set(n as u64))?;
            rows.extend(outcome.rows);
            total.rows_affected += outcome.rows_affected;
            total.last_insert_id = outcome.last_insert_id.or(total.last_insert_id);
        }
        Ok((total, rows))
    }

    /// Runs a statement that changes rows with each set. Of the outcomes it computes only the sum and the last rowid.
    fn change_rows(
        &self,
        statement: &mut Statement<'_>,
        sql: &OwnedSql,
        sets: &OwnedSets,
    ) -> Result<Outcome> {
        let class = sql.class();
        let mut total = Outcome::default();
        let mut used = 0;
        let mut before = None;
        let mut changes = 0;
        for (n, cells) in sets.iter() {
            let bound = self.bind_cells(statement, sets, cells, &mut used);
            let ready = bound.and_then(|()| match n {
                0 => {
                    self.before_run(statement, sql, class)?;
                    changes = self.before_step(statement).changes();
                    Ok(())
                }
                _ => Ok(()),
            });
            let rowid = self.db.last_insert_rowid();
            let done = ready.and_then(|()| self.each_row(statement, |_| Ok(true)));
            done.map_err(|error| error.in_set(n as u64))?;
            // `changes` counts for the last statement that changed rows. That was this one only if the total has moved.
            let now = self.db.total_changes();
            if now != changes {
                changes = now;
                total.rows_affected += self.db.changes();
                before = Some(rowid);
            }
        }
        if let Some(before) = before.filter(|_| total.rows_affected > 0) {
            total.last_insert_id = self.inserted(sql, class, before)?;
        }
        Ok(total)
    }

    /// Binds a set. `used` is where its texts and blobs begin, and afterwards where they end.
    fn bind_cells(
        &self,
        statement: &mut Statement<'_>,
        sets: &OwnedSets,
        cells: &[Cell],
        used: &mut usize,
    ) -> Result<()> {
        for (n, cell) in cells.iter().enumerate() {
            let value = match *cell {
                Cell::Null => ValueRef::Null,
                Cell::Integer(number) => ValueRef::Integer(number),
                Cell::Real(number) => ValueRef::Real(number),
                Cell::Text(end) => ValueRef::Text(&sets.bytes[std::mem::replace(used, end)..end]),
                Cell::Blob(end) => ValueRef::Blob(&sets.bytes[std::mem::replace(used, end)..end]),
            };
            self.bind_one(statement, n + 1, &Binding(value))?;
        }
        Ok(())
    }
}
