//! Whether a statement changes rows, and where it inserts: SQLite remembers the last number
//! of changes and the last rowid of a connection, and says nothing of who left them there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::hooks::Action;

use super::error;
use super::session::Session;
use crate::Result;

/// It is an INSERT, REPLACE, UPDATE or DELETE; or a WITH, before any of them.
pub(super) fn changes_rows(sql: &str) -> bool {
    let verbs = ["INSERT", "REPLACE", "UPDATE", "DELETE", "WITH"];
    TopWords::of(sql)
        .next()
        .is_some_and(|first| verbs.iter().any(|verb| first.is(verb)))
}

/// It is a SELECT or VALUES; or a WITH, before either of them.
pub(super) fn is_query(sql: &str) -> bool {
    let verbs = ["SELECT", "VALUES", "WITH"];
    TopWords::of(sql)
        .next()
        .is_some_and(|first| verbs.iter().any(|verb| first.is(verb)))
}

/// It leaves the connection as it is, but for its transaction: no PRAGMA, and no other database is
/// attached by it.
pub(super) fn is_plain(sql: &str) -> bool {
    let others = ["PRAGMA", "ATTACH", "DETACH"];
    TopWords::of(sql)
        .next()
        .is_none_or(|first| !others.iter().any(|verb| first.is(verb)))
}

/// What can be told of an INSERT or REPLACE from its text.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Insert {
    /// The table, without quotes and without its schema.
    pub(super) table: String,
    /// It may update a row instead: `ON CONFLICT … DO UPDATE`.
    pub(super) may_update: bool,
}

impl Insert {
    /// Reads a statement; `None` if it does not insert.
    pub(super) fn read(sql: &str) -> Option<Self> {
        let mut words = TopWords::of(sql);
        let verb = words.next()?;
        if !(verb.is("INSERT") || verb.is("REPLACE") || verb.is("WITH")) {
            return None;
        }
        // Of all statements that begin so, only those that insert have an INTO here.
        words
            .by_ref()
            .find(|word| {
                word.is("INTO")
                    || ["SELECT", "VALUES", "UPDATE", "DELETE"]
                        .iter()
                        .any(|w| word.is(w))
            })
            .filter(|word| word.is("INTO"))?;
        let mut table = words.next()?;
        if words.after_dot() {
            table = words.next()?;
        }
        let mut previous_is_do = false;
        let may_update = words.any(|word| {
            let found = previous_is_do && word.is("UPDATE");
            previous_is_do = word.is("DO");
            found
        });
        Some(Insert {
            table: table.name(),
            may_update,
        })
    }
}

/// A text that may have an upsert in it.
pub(super) fn may_upsert(sql: &str) -> bool {
    let word = b"conflict";
    let mut windows = sql.as_bytes().windows(word.len());
    windows.any(|window| window.eq_ignore_ascii_case(word))
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

impl Session {
    /// From now on it is known what was inserted last, if a text may have to tell.
    pub(super) fn note_inserts_of(&mut self, sql: &str) -> Result<()> {
        if self.inserts.is_none() && may_upsert(sql) {
            let inserts = Inserts::default();
            inserts.hook(&mut self.db).map_err(error::from_sqlite)?;
            self.inserts = Some(inserts);
        }
        Ok(())
    }

    /// The rowid of the row that a statement which changed something has inserted last, given
    /// the last one before it.
    pub(super) fn inserted(&self, sql: &str, before: i64) -> Result<Option<i64>> {
        let Some(insert) = Insert::read(sql) else {
            return Ok(None);
        };
        if let Some(inserts) = self.inserts.as_ref().filter(|_| insert.may_update) {
            return Ok(inserts.last_into(&insert.table));
        }
        let rowid = self.db.last_insert_rowid();
        if rowid != before {
            return Ok(Some(rowid));
        }
        // Another table may have come to the same number; or no rowid was given out at all.
        let none = insert.may_update || self.has_no_rowids(&insert.table)?;
        Ok((!none).then_some(rowid))
    }

    /// To ask SQLite takes as long as an insert. Another schema has another number: once it is committed,
    /// and for the tables that all sessions have.
    fn has_no_rowids(&self, table: &str) -> Result<bool> {
        let is_known = self.is_alike() && !self.may_have_changed_schema.get();
        let version = is_known.then(|| self.schema_version()).flatten();
        let mut known = self.without_rowids.borrow_mut();
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

/// A word, or a name in quotes with the quotes.
#[derive(Clone, Copy)]
struct Word<'s>(&'s str);

impl Word<'_> {
    fn is(self, keyword: &str) -> bool {
        self.0.eq_ignore_ascii_case(keyword)
    }

    fn name(self) -> String {
        let Word(text) = self;
        let inner = |quote: char| text.get(1..text.len() - 1).map(|t| (t, quote));
        let quoted = match text.chars().next() {
            Some(quote @ ('"' | '`' | '\'')) if text.len() >= 2 => inner(quote),
            Some('[') if text.len() >= 2 => return text[1..text.len() - 1].to_owned(),
            _ => None,
        };
        match quoted {
            Some((inner, quote)) => inner.replace(&format!("{quote}{quote}"), &quote.to_string()),
            None => text.to_owned(),
        }
    }
}

/// The words of a text that stand outside of all parentheses, strings and comments.
struct TopWords<'s> {
    rest: &'s str,
    depth: usize,
}

impl<'s> TopWords<'s> {
    fn of(sql: &'s str) -> Self {
        TopWords {
            rest: sql,
            depth: 0,
        }
    }

    /// Whether a dot follows, which is then passed.
    fn after_dot(&mut self) -> bool {
        self.skip_blanks();
        let after = self.rest.strip_prefix('.');
        self.rest = after.unwrap_or(self.rest);
        after.is_some()
    }

    fn skip_blanks(&mut self) {
        loop {
            let trimmed = self.rest.trim_start();
            self.rest = if let Some(comment) = trimmed.strip_prefix("--") {
                after(comment, "\n")
            } else if let Some(comment) = trimmed.strip_prefix("/*") {
                after(comment, "*/")
            } else {
                self.rest = trimmed;
                return;
            };
        }
    }

    fn take(&mut self, length: usize) -> &'s str {
        let (taken, rest) = self.rest.split_at(length.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}

fn after<'s>(text: &'s str, end: &str) -> &'s str {
    text.split_once(end).map_or("", |(_, rest)| rest)
}

/// The length of a quoted text with its quotes: a doubled quote does not end it.
fn quoted_length(text: &str, end: char) -> usize {
    let mut inside = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = inside.next() {
        if c == end {
            if end != ']' && inside.peek().is_some_and(|(_, next)| *next == end) {
                inside.next();
                continue;
            }
            return at + end.len_utf8();
        }
    }
    text.len()
}

impl<'s> Iterator for TopWords<'s> {
    type Item = Word<'s>;

    fn next(&mut self) -> Option<Word<'s>> {
        loop {
            self.skip_blanks();
            let first = self.rest.chars().next()?;
            let length = match first {
                '\'' | '"' | '`' => quoted_length(self.rest, first),
                '[' => quoted_length(self.rest, ']'),
                c if is_word(c) => self.rest.find(|c| !is_word(c)).unwrap_or(self.rest.len()),
                c => c.len_utf8(),
            };
            let word = self.take(length);
            match first {
                '(' => self.depth += 1,
                ')' => self.depth = self.depth.saturating_sub(1),
                c if self.depth == 0 && (is_word(c) || "'\"`[".contains(c)) => {
                    return Some(Word(word));
                }
                _ => {}
            }
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(sql: &str) -> Option<String> {
        Insert::read(sql).map(|insert| insert.table)
    }

    #[test]
    fn inserts_are_told_from_everything_else() {
        for (sql, expected) in [
            ("INSERT INTO t VALUES (1)", Some("t")),
            ("insert or ignore into t(a) values (1)", Some("t")),
            ("REPLACE INTO t VALUES (1)", Some("t")),
            (
                "-- why\n /* INSERT INTO x */ INSERT INTO main.t SELECT 1",
                Some("t"),
            ),
            (
                "INSERT INTO \"my \"\"table\" DEFAULT VALUES",
                Some("my \"table"),
            ),
            ("INSERT INTO main . [a b] VALUES (1)", Some("a b")),
            ("INSERT INTO `t`(a) VALUES (1)", Some("t")),
            (
                "WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a",
                Some("t"),
            ),
            (
                "WITH replace AS (SELECT 1) REPLACE INTO t SELECT 1",
                Some("t"),
            ),
            ("WITH a AS (INSERT) SELECT 1", None),
            ("WITH a AS (SELECT 1) UPDATE t SET a = 1", None),
            ("WITH replace AS (SELECT 1) SELECT * FROM replace", None),
            ("UPDATE t SET a = 'INSERT INTO t'", None),
            ("VACUUM INTO 'copy.db'", None),
            ("EXPLAIN INSERT INTO t VALUES (1)", None),
            ("SELECT 1", None),
            ("", None),
            ("INSERT", None),
            ("/* never closed", None),
            ("INSERT INTO 'never closed", Some("never close")),
        ] {
            assert_eq!(table(sql).as_deref(), expected, "{sql}");
        }
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
            assert!(changes_rows(sql), "{sql}");
        }
        for sql in [
            "DROP TABLE t",
            "CREATE TABLE t AS SELECT 1",
            "",
            "ALTER TABLE t",
        ] {
            assert!(!changes_rows(sql), "{sql}");
        }
    }

    #[test]
    fn an_upsert_may_update() {
        let updates = |sql| Insert::read(sql).unwrap().may_update;
        let upsert = "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET b = 1";
        assert!(updates(upsert));
        assert!(!updates("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING"));
        assert!(!updates("INSERT INTO t VALUES ('DO UPDATE')"));
        assert!(!updates("INSERT INTO t SELECT (SELECT 1) -- DO UPDATE"));
    }
}
