//! Finds the id of the row that a statement inserted.
//!
//! SQLite keeps the last number of changes and the last rowid of a connection, but does not report which statement
//! they come from.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::hooks::Action;

use super::error;
use super::session::Session;
use crate::Result;
use crate::sql::{Class, Keyword};

/// Returns whether the text is an INSERT, REPLACE, UPDATE or DELETE, or a WITH, which may precede one.
pub(super) fn changes_rows(class: &Class) -> bool {
    matches!(
        class.verb,
        Some(
            Keyword::Insert | Keyword::Replace | Keyword::Update | Keyword::Delete | Keyword::With
        )
    )
}

/// Returns whether the text is a SELECT or VALUES, or a WITH, which may precede one.
pub(super) fn is_query(class: &Class) -> bool {
    matches!(
        class.verb,
        Some(Keyword::Select | Keyword::Values | Keyword::With)
    )
}

/// Returns whether the text leaves the connection unchanged, apart from its transaction: no PRAGMA, ATTACH or DETACH.
pub(super) fn is_plain(class: &Class) -> bool {
    !matches!(
        class.verb,
        Some(Keyword::Pragma | Keyword::Attach | Keyword::Detach)
    )
}

/// The row that was inserted last, as SQLite's update hook reports it: with its table, so that equal rowids of
/// different tables are distinct.
#[derive(Clone, Debug, Default)]
pub(super) struct Inserts {
    last: Arc<Mutex<Inserted>>,
}

#[derive(Debug, Default)]
struct Inserted {
    table: String,
    rowid: Option<i64>,
}

impl Inserts {
    /// Notes every insert of the connection from now on.
    pub(super) fn hook(&self, db: &mut rusqlite::Connection) -> rusqlite::Result<()> {
        let last = Arc::clone(&self.last);
        let note = move |action: Action, _: &str, table: &str, rowid: i64| {
            if action == Action::SQLITE_INSERT {
                let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
                table.clone_into(&mut last.table);
                last.rowid = Some(rowid);
            }
        };
        db.update_hook(Some(note))
    }

    fn last(&self) -> MutexGuard<'_, Inserted> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn forget(&self) {
        self.last().rowid = None;
    }

    /// Returns the row that was inserted last, if it is in this table.
    pub(super) fn last_into(&self, table: &str) -> Option<i64> {
        let last = self.last();
        last.rowid
            .filter(|_| last.table.eq_ignore_ascii_case(table))
    }
}

/// What a session knows of the rowids that its statements insert.
#[derive(Debug, Default)]
pub(super) struct RowIds {
    /// The last insert. Set when the first upsert runs, which needs it.
    inserts: Option<Inserts>,
    /// A statement in this transaction may have changed the schema.
    may_have_changed_schema: Cell<bool>,
    /// Whether each table has no rowids, and the version of the schema for which that was read.
    without: RefCell<(Option<i64>, HashMap<String, bool>)>,
}

impl RowIds {
    /// Forgets the inserts of earlier statements.
    pub(super) fn forget_last(&self) {
        if let Some(inserts) = &self.inserts {
            inserts.forget();
        }
    }

    /// Notes that the schema may change until the end of the transaction.
    pub(super) fn note_schema_change(&self) {
        self.may_have_changed_schema.set(true);
    }

    pub(super) fn end_transaction(&self) {
        self.may_have_changed_schema.set(false);
    }
}

impl Session {
    /// Begins to note inserts if the text is an upsert.
    pub(super) fn note_inserts_of(&mut self, class: &Class) -> Result<()> {
        if self.rowids.inserts.is_none() && class.upserts {
            let inserts = Inserts::default();
            inserts.hook(&mut self.db).map_err(error::from_sqlite)?;
            self.rowids.inserts = Some(inserts);
        }
        Ok(())
    }

    /// Returns the rowid of the row that a statement inserted last. The statement has changed rows; `before` is the
    /// last rowid before it.
    pub(super) fn inserted(&self, sql: &str, class: &Class, before: i64) -> Result<Option<i64>> {
        let Some(insert) = class.insert else {
            return Ok(None);
        };
        if let Some(inserts) = self.rowids.inserts.as_ref().filter(|_| class.upserts) {
            return Ok(inserts.last_into(&insert.table(sql)));
        }
        let rowid = self.db.last_insert_rowid();
        if rowid != before {
            return Ok(Some(rowid));
        }
        // The rowid may equal one of another table, or the statement has inserted no rowid at all.
        let none = class.upserts || self.has_no_rowids(&insert.table(sql))?;
        Ok((!none).then_some(rowid))
    }

    /// Returns whether a table has no rowids. The answer is cached per version of the schema, because the question
    /// takes as long as an insert. The version covers committed changes and no temporary tables.
    fn has_no_rowids(&self, table: &str) -> Result<bool> {
        let is_known = self.is_alike() && !self.rowids.may_have_changed_schema.get();
        let version = is_known.then(|| self.schema_version()).flatten();
        let mut known = self.rowids.without.borrow_mut();
        if version.is_none() || known.0 != version {
            *known = (version, HashMap::new());
        }
        if let Some(none) = known.1.get(table) {
            return Ok(*none);
        }
        let without_rowids = "SELECT 1 FROM pragma_table_list(?1) WHERE wr";
        let ask = || self.own_statement(without_rowids)?.exists([table]);
        let none = self.patiently(ask)?;
        known.1.insert(table.to_owned(), none);
        Ok(none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Dialect, classify};

    fn class(sql: &str) -> Class {
        classify(&Dialect::SQLITE, sql)
    }

    #[test]
    fn row_changes_are_distinguished_from_table_changes() {
        for sql in [
            "insert into t",
            "/* x */ UPDATE t",
            "DELETE FROM t",
            "WITH a",
            "replace",
        ] {
            assert!(changes_rows(&class(sql)), "{sql}");
        }
        for sql in [
            "DROP TABLE t",
            "CREATE TABLE t AS SELECT 1",
            "",
            "ALTER TABLE t",
        ] {
            assert!(!changes_rows(&class(sql)), "{sql}");
        }
    }
}
