//! Whether a statement changes rows, and where it inserts: SQLite remembers the last number
//! of changes and the last rowid of a connection, and says nothing of who left them there.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::hooks::Action;

use super::error;
use super::session::Session;
use crate::Result;
use crate::sql::{Class, Keyword};

/// It is an INSERT, REPLACE, UPDATE or DELETE; or a WITH, before any of them.
pub(super) fn changes_rows(class: &Class) -> bool {
    matches!(
        class.verb,
        Some(
            Keyword::Insert | Keyword::Replace | Keyword::Update | Keyword::Delete | Keyword::With
        )
    )
}

/// It is a SELECT or VALUES; or a WITH, before either of them.
pub(super) fn is_query(class: &Class) -> bool {
    matches!(
        class.verb,
        Some(Keyword::Select | Keyword::Values | Keyword::With)
    )
}

/// It leaves the connection as it is, but for its transaction: no PRAGMA, and no other database is
/// attached by it.
pub(super) fn is_plain(class: &Class) -> bool {
    !matches!(
        class.verb,
        Some(Keyword::Pragma | Keyword::Attach | Keyword::Detach)
    )
}

/// The row that was inserted last, by SQLite's own word: it remembers the number also when
/// another table had the same before.
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
    /// From now on every insert of the connection is noted.
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

    /// The row that was inserted last, if it is in this table.
    pub(super) fn last_into(&self, table: &str) -> Option<i64> {
        let last = self.last();
        last.rowid
            .filter(|_| last.table.eq_ignore_ascii_case(table))
    }
}

/// What a session knows of the rowids that its statements leave behind.
#[derive(Debug, Default)]
pub(super) struct RowIds {
    /// What was inserted last; once a statement asks that cannot tell otherwise.
    inserts: Option<Inserts>,
    /// Something was run in this transaction that may have changed the schema.
    may_have_changed_schema: Cell<bool>,
    /// Which tables have no rowids, as of this version of the schema.
    without: RefCell<(Option<i64>, HashMap<String, bool>)>,
}

impl RowIds {
    /// A statement begins: what others inserted is not its own.
    pub(super) fn forget_last(&self) {
        if let Some(inserts) = &self.inserts {
            inserts.forget();
        }
    }

    /// The schema may be changed from now on, up to the end of the transaction.
    pub(super) fn note_schema_change(&self) {
        self.may_have_changed_schema.set(true);
    }

    pub(super) fn end_transaction(&self) {
        self.may_have_changed_schema.set(false);
    }
}

impl Session {
    /// From now on it is known what was inserted last, if a text may have to tell.
    pub(super) fn note_inserts_of(&mut self, class: &Class) -> Result<()> {
        if self.rowids.inserts.is_none() && class.upserts {
            let inserts = Inserts::default();
            inserts.hook(&mut self.db).map_err(error::from_sqlite)?;
            self.rowids.inserts = Some(inserts);
        }
        Ok(())
    }

    /// The rowid of the row that a statement which changed something has inserted last, given
    /// the last one before it.
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
        // Another table may have come to the same number; or no rowid was given out at all.
        let none = class.upserts || self.has_no_rowids(&insert.table(sql))?;
        Ok((!none).then_some(rowid))
    }

    /// To ask SQLite takes as long as an insert. Another schema has another number: once it is committed,
    /// and for the tables that all sessions have.
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
    fn what_changes_rows_is_told_from_what_changes_tables() {
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
