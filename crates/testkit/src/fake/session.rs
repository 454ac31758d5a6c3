//! A connection as the fake server sees it, and what statements do there.

use std::collections::VecDeque;
use std::sync::Arc;

use cenote::driver::{Columns, Outcome, Status, Value};
use cenote::{Error, Kind, Result};

use super::rows::{self, Row};
use super::store::{Store, Transaction, injected_failure, refused};
use super::text::{Item, Selected, Selection, Statement, Text};

/// A connection as the server sees it.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) transaction: Option<Transaction>,
    /// The transaction status that the server last reported to the client.
    pub(super) said: Status,
    pub(super) line: Line,
    pub(super) traffic: Traffic,
    pub(super) stream: Option<RowsLeft>,
    /// Of the last call.
    pub(super) warnings: u64,
    pub(super) session_changed: bool,
}

/// The state of the connection between client and server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line {
    Open,
    /// The server has closed the connection, and the client has not noticed.
    Killed,
    Broken,
}

/// The call in progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Traffic {
    Nothing,
    Running(String),
    /// The future was dropped, and the connection is not settled.
    Dropped(String),
}

/// The unread rows of a stream.
#[derive(Debug)]
pub(super) struct RowsLeft {
    pub(super) columns: Arc<Columns>,
    pub(super) rows: VecDeque<Row>,
}

/// The result of a text.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) columns: Arc<Columns>,
    pub(super) rows: Vec<Row>,
    pub(super) affected: u64,
    pub(super) last_insert_id: Option<i64>,
}

impl Done {
    fn nothing() -> Self {
        Done {
            columns: rows::columns([]),
            rows: Vec::new(),
            affected: 0,
            last_insert_id: None,
        }
    }

    pub(super) fn into_outcome(self, with_rows: bool) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        if with_rows && !self.columns.is_empty() {
            outcome.rows = Some(rows::batch(&self.columns, &self.rows)?);
        }
        outcome.rows_affected = self.affected;
        outcome.last_insert_id = self.last_insert_id;
        Ok(outcome)
    }
}

impl Session {
    pub(super) fn new() -> Self {
        Session {
            transaction: None,
            said: Status::Idle,
            line: Line::Open,
            traffic: Traffic::Nothing,
            stream: None,
            warnings: 0,
            session_changed: false,
        }
    }

    /// Returns the transaction status on the server.
    pub(super) fn truth(&self) -> Status {
        match &self.transaction {
            None => Status::Idle,
            Some(own) if own.has_failed => Status::Failed,
            Some(_) => Status::InTransaction,
        }
    }

    /// Returns the transaction status that the client may report.
    pub(super) fn status(&self) -> Status {
        match (self.line, &self.traffic) {
            (Line::Open | Line::Killed, Traffic::Nothing) => self.said,
            _ => Status::Unknown,
        }
    }

    /// Ends the session on the server and rolls back its transaction.
    pub(super) fn hang_up(&mut self, line: Line) {
        self.line = line;
        self.transaction = None;
        self.stream = None;
    }

    /// Runs the statements of a text, up to the first that fails.
    pub(super) fn run(
        &mut self,
        store: &mut Store,
        text: &Text,
        params: &[Value<'static>],
    ) -> Result<Done> {
        if text.params != params.len() {
            let (wanted, given) = (text.params, params.len());
            let message = format!("{given} parameters for {wanted} placeholders");
            return Err(Error::new(Kind::Parameters, message));
        }
        let mut done = Done::nothing();
        for statement in &text.statements {
            done = self.execute(store, statement, params)?;
        }
        Ok(done)
    }

    fn execute(
        &mut self,
        store: &mut Store,
        statement: &Statement,
        params: &[Value<'static>],
    ) -> Result<Done> {
        let is_way_out = matches!(
            statement,
            Statement::Commit | Statement::RollBack | Statement::RollBackTo(_)
        );
        if self.truth() == Status::Failed && !is_way_out {
            return Err(refused("25P02", "the transaction has failed"));
        }
        let mut done = Done::nothing();
        match statement {
            Statement::Begin => self.begin(false)?,
            Statement::Commit => self.commit(store).map(drop)?,
            Statement::RollBack => {
                self.open_transaction()?;
                self.transaction = None;
            }
            Statement::SetSavepoint(name) => self.open_transaction()?.set_savepoint(name),
            Statement::ReleaseSavepoint(name) => {
                self.open_transaction()?.release_savepoint(name)?;
            }
            Statement::RollBackTo(name) => self.open_transaction()?.roll_back_to(name, true)?,
            Statement::Create { table, columns } => store.create(table.clone(), columns.clone())?,
            Statement::Drop(table) => store.drop_table(table)?,
            Statement::Fail(state) => {
                return Err(injected_failure(state));
            }
            Statement::Insert { table, rows } => {
                let rows: Vec<Row> = rows.iter().map(|row| fill(row, params)).collect();
                self.in_transaction(store, |store, own| {
                    for row in rows {
                        done.last_insert_id = Some(store.insert(own, table, row)?);
                        done.affected += 1;
                    }
                    Ok(())
                })?;
            }
            Statement::Delete(table) => {
                done.affected = self.in_transaction(store, |store, own| store.clear(own, table))?;
            }
            Statement::Select { items, from } => {
                return self.in_transaction(store, |store, own| {
                    select(store, own, items, from.as_deref(), params)
                });
            }
            Statement::Other => {}
        }
        Ok(done)
    }

    /// Runs a change in the open transaction, or in one of its own.
    fn in_transaction<T>(
        &mut self,
        store: &mut Store,
        work: impl FnOnce(&mut Store, &mut Transaction) -> Result<T>,
    ) -> Result<T> {
        if let Some(own) = &mut self.transaction {
            let mark = own.mark();
            return work(store, own).inspect_err(|_| own.undo_to(mark));
        }
        let mut alone = Transaction::new(false);
        let done = work(store, &mut alone)?;
        store.commit(alone)?;
        Ok(done)
    }

    pub(super) fn open_transaction(&mut self) -> Result<&mut Transaction> {
        let message = "there is no transaction";
        self.transaction
            .as_mut()
            .ok_or_else(|| refused("25P01", message))
    }

    pub(super) fn begin(&mut self, is_read_only: bool) -> Result<()> {
        if self.transaction.is_some() {
            return Err(refused("25001", "there is a transaction already"));
        }
        self.transaction = Some(Transaction::new(is_read_only));
        Ok(())
    }

    /// Commits, or rolls back a failed transaction and returns `false`.
    pub(super) fn commit(&mut self, store: &mut Store) -> Result<bool> {
        self.open_transaction()?;
        match self.transaction.take() {
            Some(own) if !own.has_failed => store.commit(own).map(|()| true),
            _ => Ok(false),
        }
    }

    /// Returns the columns of a text without running it.
    pub(super) fn columns_of(&self, store: &Store, text: &Text) -> Result<Arc<Columns>> {
        let (items, from) = match text.statements.last() {
            Some(Statement::Select { items, from }) => (items, from),
            Some(Statement::Fail(state)) => return Err(injected_failure(state)),
            _ => return Ok(rows::columns([])),
        };
        let alone = Transaction::new(false);
        let own = self.transaction.as_ref().unwrap_or(&alone);
        let params = vec![Value::Null; text.params];
        Ok(select(store, own, items, from.as_deref(), &params)?.columns)
    }
}

/// Builds a row from the values of a text and its parameters.
fn fill(items: &[Item], params: &[Value<'static>]) -> Row {
    items.iter().map(|item| value_of(item, params)).collect()
}

fn value_of(item: &Item, params: &[Value<'static>]) -> Value<'static> {
    match item {
        Item::Param(position) => params[*position].clone(),
        Item::Value(value) => value.clone(),
    }
}

fn select(
    store: &Store,
    own: &Transaction,
    items: &[Selected],
    from: Option<&str>,
    params: &[Value<'static>],
) -> Result<Done> {
    let mut done = Done::nothing();
    let names = items.iter().map(|item| item.name.clone());
    let Some(table) = from else {
        done.columns = rows::columns(names);
        let literal = |item: &Selected| match &item.what {
            Selection::Item(item) => value_of(item, params),
            _ => Value::Null,
        };
        done.rows = vec![items.iter().map(literal).collect()];
        return Ok(done);
    };
    let mut visible = store.visible(table, own).peekable();
    let known = store.columns_of(table);
    match items {
        [
            Selected {
                what: Selection::Count,
                name,
            },
        ] => {
            done.columns = rows::columns([name.clone()]);
            done.rows = vec![vec![Value::Int(visible.map(|_| 1).sum())]];
        }
        [
            Selected {
                what: Selection::All,
                ..
            },
        ] => {
            let width = visible.peek().map_or(1, |row| row.len());
            let unknown = || (1..=width).map(|n| format!("c{n}")).collect();
            let names: Vec<_> = known.unwrap_or_else(unknown);
            done.rows = visible.map(|row| fit(row, names.len())).collect();
            done.columns = rows::columns(names);
        }
        items => {
            let places = places(items, known.as_deref(), table)?;
            done.columns = rows::columns(names);
            let pick = |row: &Row| {
                let cells = places.iter().zip(items);
                let cell = |(place, item): (&usize, &Selected)| match &item.what {
                    Selection::Item(item) => value_of(item, params),
                    _ => row.get(*place).cloned().unwrap_or(Value::Null),
                };
                cells.map(cell).collect()
            };
            done.rows = visible.map(pick).collect();
        }
    }
    Ok(done)
}

/// Returns the index in a row for each selected column: by name if the columns are known, else in
/// the order of the SELECT.
fn places(items: &[Selected], known: Option<&[String]>, table: &str) -> Result<Vec<usize>> {
    let place = |(at, item): (usize, &Selected)| {
        let Some(known) = known.filter(|_| item.what == Selection::Column) else {
            return Ok(at);
        };
        let found = known
            .iter()
            .position(|name| name.eq_ignore_ascii_case(&item.name));
        let message = || format!("the table {table} has no column {}", item.name);
        found.ok_or_else(|| refused("42703", message()))
    };
    items.iter().enumerate().map(place).collect()
}

/// A table without a CREATE TABLE may have rows of several widths.
fn fit(row: &Row, width: usize) -> Row {
    let cells = row.iter().cloned().chain(std::iter::repeat(Value::Null));
    cells.take(width).collect()
}
