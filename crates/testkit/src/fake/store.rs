//! The tables: committed rows, and the changes of open transactions.

use std::collections::{BTreeMap, BTreeSet};

use cenote::driver::{DatabaseError, Value};
use cenote::{Error, Result};

use super::rows::Row;
use super::text::ColumnRule;

/// The committed tables.
#[derive(Debug, Default)]
pub(super) struct Store {
    tables: BTreeMap<String, Table>,
}

#[derive(Debug, Default)]
struct Table {
    /// `None` for a table without a CREATE TABLE, which takes any row.
    columns: Option<Vec<ColumnRule>>,
    rows: Vec<Row>,
    /// The number of inserted rows, including those rolled back.
    inserted: i64,
}

/// An open transaction: its changes in order.
#[derive(Debug, Default)]
pub(super) struct Transaction {
    changes: Vec<Change>,
    /// The savepoints: each with its name and the number of changes before it.
    savepoints: Vec<(String, usize)>,
    /// The transaction has failed and can only be rolled back.
    pub(super) has_failed: bool,
    pub(super) is_read_only: bool,
}

#[derive(Debug)]
enum Change {
    Insert { table: String, row: Row },
    Clear { table: String },
}

impl Change {
    fn table(&self) -> &str {
        match self {
            Change::Insert { table, .. } | Change::Clear { table } => table,
        }
    }
}

pub(super) fn refused(state: &str, message: impl Into<String>) -> Error {
    Error::database(DatabaseError::new(message).with_sql_state(state))
}

pub(super) fn injected_failure(state: &str) -> Error {
    refused(state, format!("told to fail with {state}"))
}

impl Store {
    /// Creates a table at once and for all connections, outside of any transaction.
    pub(super) fn create(&mut self, table: String, columns: Vec<ColumnRule>) -> Result<()> {
        if self.tables.contains_key(&table) {
            return Err(refused(
                "42P07",
                format!("there is a table {table} already"),
            ));
        }
        let columns = Some(columns);
        let created = Table {
            columns,
            ..Table::default()
        };
        self.tables.insert(table, created);
        Ok(())
    }

    /// Drops a table at once and for all connections.
    pub(super) fn drop_table(&mut self, table: &str) -> Result<()> {
        let gone = self.tables.remove(table);
        gone.map(drop)
            .ok_or_else(|| refused("42P01", format!("there is no table {table}")))
    }

    /// Returns the names of a table's columns, if a CREATE TABLE named them.
    pub(super) fn columns_of(&self, table: &str) -> Option<Vec<String>> {
        let columns = self.tables.get(table)?.columns.as_ref()?;
        Some(columns.iter().map(|rule| rule.name.clone()).collect())
    }

    /// Returns the committed rows.
    pub(super) fn committed(&self, table: &str) -> &[Row] {
        self.tables.get(table).map_or(&[], |table| &table.rows)
    }

    /// Returns the rows that a transaction sees: the committed ones and its own.
    pub(super) fn visible<'s>(
        &'s self,
        table: &'s str,
        own: &'s Transaction,
    ) -> impl Iterator<Item = &'s Row> {
        let (committed, inserted) = self.parts(table, own);
        committed.iter().chain(inserted)
    }

    /// Returns the committed rows and the transaction's own separately.
    fn parts<'s>(
        &'s self,
        table: &'s str,
        own: &'s Transaction,
    ) -> (&'s [Row], impl Iterator<Item = &'s Row>) {
        let is_clear =
            |change: &Change| matches!(change, Change::Clear { table: of } if of == table);
        let cleared = own.changes.iter().rposition(is_clear);
        let committed = match cleared {
            Some(_) => &[],
            None => self.committed(table),
        };
        let since = &own.changes[cleared.unwrap_or(0)..];
        let inserted = since.iter().filter_map(move |change| match change {
            Change::Insert { table: of, row } if of == table => Some(row),
            _ => None,
        });
        (committed, inserted)
    }

    /// Inserts a row in a transaction and returns its number.
    pub(super) fn insert(&mut self, own: &mut Transaction, table: &str, row: Row) -> Result<i64> {
        own.check_writable()?;
        if let Some(rules) = self
            .tables
            .get(table)
            .and_then(|table| table.columns.as_ref())
        {
            self.check(own, table, rules, &row)?;
        }
        let known = self.tables.entry(table.to_owned()).or_default();
        known.inserted += 1;
        let number = known.inserted;
        let table = table.to_owned();
        own.changes.push(Change::Insert { table, row });
        Ok(number)
    }

    fn check(
        &self,
        own: &Transaction,
        table: &str,
        rules: &[ColumnRule],
        row: &[Value<'static>],
    ) -> Result<()> {
        if row.len() != rules.len() {
            let (given, columns) = (row.len(), rules.len());
            let message = format!("{given} values for the {columns} columns of {table}");
            return Err(refused("42601", message));
        }
        for (at, (rule, value)) in rules.iter().zip(row).enumerate() {
            let what = format!("{table}.{}", rule.name);
            if rule.is_not_null && value.is_null() {
                return Err(violated("23502", what, "must not be NULL"));
            }
            let is_taken = || self.visible(table, own).any(|other| other[at] == *value);
            if rule.is_unique && !value.is_null() && is_taken() {
                return Err(violated("23505", what, "is there already"));
            }
        }
        Ok(())
    }

    /// Deletes all rows in a transaction and returns how many there were.
    pub(super) fn clear(&self, own: &mut Transaction, table: &str) -> Result<u64> {
        own.check_writable()?;
        let gone = self.visible(table, own).map(|_| 1).sum();
        let table = table.to_owned();
        own.changes.push(Change::Clear { table });
        Ok(gone)
    }

    /// Commits a transaction.
    ///
    /// # Errors
    ///
    /// SQLSTATE 40001 if another transaction has since committed a row with the same key. Then nothing is
    /// committed.
    pub(super) fn commit(&mut self, own: Transaction) -> Result<()> {
        let tables: BTreeSet<_> = own.changes.iter().map(Change::table).collect();
        if let Some(table) = tables.into_iter().find(|table| self.clashes(table, &own)) {
            let message = format!("another transaction has changed {table}");
            return Err(refused("40001", message));
        }
        for change in own.changes {
            match change {
                Change::Insert { table, row } => {
                    self.tables.entry(table).or_default().rows.push(row);
                }
                Change::Clear { table } => {
                    if let Some(table) = self.tables.get_mut(&table) {
                        table.rows.clear();
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns whether another transaction has since committed a row with the key of one of these rows.
    fn clashes(&self, table: &str, own: &Transaction) -> bool {
        let rules = self
            .tables
            .get(table)
            .and_then(|table| table.columns.as_ref());
        let unique = rules.into_iter().flatten().enumerate();
        let mut unique = unique.filter(|(_, rule)| rule.is_unique);
        unique.any(|(at, _)| {
            let (committed, mut inserted) = self.parts(table, own);
            inserted.any(|row| {
                let is_same = |other: &Row| other[at] == row[at];
                !row[at].is_null() && committed.iter().any(is_same)
            })
        })
    }
}

impl Transaction {
    /// Returns a transaction, either for one statement or for a BEGIN.
    pub(super) fn new(is_read_only: bool) -> Self {
        Transaction {
            is_read_only,
            ..Transaction::default()
        }
    }

    fn check_writable(&self) -> Result<()> {
        match self.is_read_only {
            true => Err(refused("25006", "the transaction is read-only")),
            false => Ok(()),
        }
    }

    pub(super) fn set_savepoint(&mut self, name: &str) {
        self.savepoints.push((name.to_owned(), self.changes.len()));
    }

    pub(super) fn release_savepoint(&mut self, name: &str) -> Result<()> {
        let at = self.savepoint(name)?;
        self.savepoints.truncate(at);
        Ok(())
    }

    /// Undoes the changes since a savepoint; `keep` leaves the savepoint set.
    pub(super) fn roll_back_to(&mut self, name: &str, keep: bool) -> Result<()> {
        let at = self.savepoint(name)?;
        self.changes.truncate(self.savepoints[at].1);
        self.savepoints.truncate(at + usize::from(keep));
        self.has_failed = false;
        Ok(())
    }

    fn savepoint(&self, name: &str) -> Result<usize> {
        let found = self.savepoints.iter().rposition(|(known, _)| known == name);
        found.ok_or_else(|| refused("3B001", format!("there is no savepoint {name}")))
    }

    /// Returns the number of changes, for [`undo_to`](Transaction::undo_to).
    pub(super) fn mark(&self) -> usize {
        self.changes.len()
    }

    /// Undoes the changes of a failed statement.
    pub(super) fn undo_to(&mut self, mark: usize) {
        self.changes.truncate(mark);
    }
}

fn violated(state: &str, constraint: String, what: &str) -> Error {
    let message = format!("{constraint} {what}");
    let mut said = DatabaseError::new(message).with_sql_state(state);
    said.constraint = Some(constraint);
    Error::database(said)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keyed() -> Store {
        let mut store = Store::default();
        let id = ColumnRule {
            name: "id".into(),
            is_unique: true,
            is_not_null: true,
        };
        store.create("t".into(), vec![id]).unwrap();
        store
    }

    fn insert(store: &mut Store, own: &mut Transaction, id: i64) -> Result<i64> {
        store.insert(own, "t", vec![Value::Int(id)])
    }

    fn seen(store: &Store, own: &Transaction) -> Vec<Value<'static>> {
        store.visible("t", own).map(|row| row[0].clone()).collect()
    }

    #[test]
    fn transaction_sees_its_own_changes_others_only_after_commit() {
        let mut store = keyed();
        let (mut one, two) = (Transaction::new(false), Transaction::new(false));
        insert(&mut store, &mut one, 1).unwrap();
        assert_eq!(seen(&store, &one), [Value::Int(1)]);
        assert_eq!(seen(&store, &two), []);
        store.commit(one).unwrap();
        assert_eq!(seen(&store, &two), [Value::Int(1)]);
    }

    #[test]
    fn deleted_row_is_gone_for_the_transaction_and_new_rows_are_not() {
        let mut store = keyed();
        let mut first = Transaction::new(false);
        insert(&mut store, &mut first, 1).unwrap();
        store.commit(first).unwrap();
        let mut own = Transaction::new(false);
        insert(&mut store, &mut own, 2).unwrap();
        assert_eq!(store.clear(&mut own, "t").unwrap(), 2);
        insert(&mut store, &mut own, 1).unwrap();
        assert_eq!(seen(&store, &own), [Value::Int(1)]);
        store.commit(own).unwrap();
        assert_eq!(store.committed("t"), [[Value::Int(1)]]);
    }

    #[test]
    fn second_transaction_with_the_same_key_fails_and_keeps_nothing() {
        let mut store = keyed();
        let (mut one, mut two) = (Transaction::new(false), Transaction::new(false));
        insert(&mut store, &mut one, 7).unwrap();
        insert(&mut store, &mut two, 6).unwrap();
        insert(&mut store, &mut two, 7).unwrap();
        store.commit(one).unwrap();
        let error = store.commit(two).unwrap_err();
        assert!(error.is_retryable(), "{error}");
        assert_eq!(store.committed("t"), [[Value::Int(7)]]);
    }

    #[test]
    fn rolling_back_to_a_savepoint_removes_later_savepoints() {
        let mut store = keyed();
        let mut own = Transaction::new(false);
        own.set_savepoint("a");
        insert(&mut store, &mut own, 1).unwrap();
        own.set_savepoint("b");
        own.roll_back_to("a", true).unwrap();
        assert_eq!(seen(&store, &own), []);
        assert_eq!(
            own.release_savepoint("b").unwrap_err().sql_state(),
            Some("3B001")
        );
        own.roll_back_to("a", false).unwrap();
        own.roll_back_to("a", false).unwrap_err();
    }

    #[test]
    fn a_read_only_transaction_changes_nothing() {
        let mut store = keyed();
        let mut own = Transaction::new(true);
        assert_eq!(
            insert(&mut store, &mut own, 1).unwrap_err().sql_state(),
            Some("25006")
        );
        assert_eq!(
            store.clear(&mut own, "t").unwrap_err().sql_state(),
            Some("25006")
        );
    }
}
