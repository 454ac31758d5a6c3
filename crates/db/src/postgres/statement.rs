//! Prepared statements, and those that a connection keeps.

use std::collections::HashMap;
use std::sync::Arc;

use postgres_types::Type;

use super::frontend::bind_head;
use super::types::Layout;
use crate::sql::Keyword;

/// A statement that the server has prepared.
#[derive(Debug)]
pub(super) struct Statement {
    /// What the server calls it; empty for the one that the next takes the place of.
    pub(super) name: String,
    pub(super) sql: Box<str>,
    /// The types of its parameters.
    pub(super) params: Vec<Type>,
    pub(super) layout: Arc<Layout>,
    /// The beginning of its Bind, up to the parameters; its length is yet to be written.
    pub(super) bind_head: Box<[u8]>,
    /// The end of its Bind: in which form each column is to come.
    pub(super) result_formats: Box<[u8]>,
}

impl Statement {
    pub(super) fn new(name: String, sql: &str, params: Vec<Type>, layout: Arc<Layout>) -> Self {
        let bind_head = bind_head(&name).into();
        let result_formats = result_formats(&layout).into();
        Statement {
            name,
            sql: sql.into(),
            params,
            layout,
            bind_head,
            result_formats,
        }
    }
}

/// All columns as text, or none there.
pub(super) const ALL_TEXT: &[u8] = &[0, 0];

fn result_formats(layout: &Layout) -> Vec<u8> {
    let count = u16::try_from(layout.shapes.len()).unwrap_or(u16::MAX);
    let mut formats = count.to_be_bytes().to_vec();
    for shape in &layout.shapes {
        formats.extend(u16::from(shape.is_binary()).to_be_bytes());
    }
    formats
}

/// Whether the server plans a text that begins so: then keeping it pays. All else may mean something else each time: a
/// FETCH and an EXECUTE have the rows of whatever goes by that name when they are run.
pub(super) fn is_planned(verb: Option<Keyword>) -> bool {
    matches!(
        verb,
        Some(
            Keyword::Select
                | Keyword::Insert
                | Keyword::Update
                | Keyword::Delete
                | Keyword::Merge
                | Keyword::Values
                | Keyword::Table
                | Keyword::With
        )
    )
}

/// The statements that a connection keeps, at most so many. The one that was not used for longest
/// goes first.
#[derive(Debug)]
pub(super) struct Cache {
    capacity: usize,
    kept: Vec<Entry>,
    by_sql: HashMap<Box<str>, usize>,
    /// Where the one is that was used last.
    last: usize,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    statement: Arc<Statement>,
    /// The settings under which it was parsed.
    key: u64,
    used: u64,
}

impl Cache {
    pub(super) fn new(capacity: usize) -> Self {
        Cache {
            capacity,
            kept: Vec::new(),
            by_sql: HashMap::new(),
            last: 0,
            uses: 0,
        }
    }

    /// It keeps statements at all.
    pub(super) fn is_on(&self) -> bool {
        self.capacity > 0
    }

    #[inline]
    pub(super) fn get(&mut self, sql: &str, key: u64) -> Option<Arc<Statement>> {
        let is_last = self
            .kept
            .get(self.last)
            .is_some_and(|kept| &*kept.statement.sql == sql);
        if !is_last {
            self.last = *self.by_sql.get(sql)?;
        }
        self.uses += 1;
        let kept = self.kept.get_mut(self.last)?;
        kept.used = self.uses;
        (kept.key == key).then(|| Arc::clone(&kept.statement))
    }

    /// Another statement is kept under this name.
    pub(super) fn has_name(&self, name: &str) -> bool {
        self.kept.iter().any(|kept| kept.statement.name == name)
    }

    /// Makes room for one more: gives the one that has to go for it.
    pub(super) fn make_room(&mut self) -> Option<Arc<Statement>> {
        if self.kept.len() < self.capacity {
            return None;
        }
        let oldest = self.kept.iter().min_by_key(|kept| kept.used)?;
        let sql = Arc::clone(&oldest.statement);
        self.remove(&sql.sql)
    }

    /// Keeps a statement, for which there is room.
    pub(super) fn insert(&mut self, statement: Arc<Statement>, key: u64) {
        self.remove(&statement.sql);
        self.uses += 1;
        self.last = self.kept.len();
        self.by_sql.insert(statement.sql.clone(), self.last);
        self.kept.push(Entry {
            statement,
            key,
            used: self.uses,
        });
    }

    /// Takes the place of the statement of the same name, if that is kept.
    pub(super) fn replace(&mut self, statement: Arc<Statement>) {
        let at = self.by_sql.get(&statement.sql);
        let kept = at.and_then(|at| self.kept.get_mut(*at));
        if let Some(kept) = kept.filter(|kept| kept.statement.name == statement.name) {
            kept.statement = statement;
        }
    }

    pub(super) fn remove(&mut self, sql: &str) -> Option<Arc<Statement>> {
        let at = self.by_sql.remove(sql)?;
        let gone = self.kept.swap_remove(at);
        if let Some(moved) = self.kept.get(at) {
            self.by_sql.insert(moved.statement.sql.clone(), at);
        }
        Some(gone.statement)
    }

    /// Forgets all statements, and gives their names.
    pub(super) fn drain_names(&mut self, names: &mut Vec<String>) {
        names.extend(self.kept.iter().map(|kept| kept.statement.name.clone()));
        self.clear();
    }

    /// The server has forgotten all of them.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.by_sql.clear();
    }

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Dialect, classify};

    fn statement(sql: &str) -> Arc<Statement> {
        let name = format!("c{sql}");
        Arc::new(Statement::new(name, sql, Vec::new(), Layout::empty()))
    }

    fn cached(cache: &mut Cache, sql: &str) -> bool {
        cache.get(sql, 0).is_some()
    }

    #[test]
    fn the_one_that_was_not_used_for_longest_makes_room() {
        let mut cache = Cache::new(2);
        for sql in ["a", "b"] {
            assert!(cache.make_room().is_none());
            cache.insert(statement(sql), 0);
        }
        assert!(cached(&mut cache, "a"));
        assert_eq!(&*cache.make_room().unwrap().sql, "b");
        cache.insert(statement("c"), 0);
        assert!(cached(&mut cache, "a") && cached(&mut cache, "c") && !cached(&mut cache, "b"));
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn one_that_is_removed_leaves_the_others_where_they_are_found() {
        let mut cache = Cache::new(8);
        for sql in ["a", "b", "c", "d"] {
            cache.insert(statement(sql), 0);
        }
        assert!(cache.remove("b").is_some() && cache.remove("b").is_none());
        for sql in ["a", "c", "d", "c", "a"] {
            assert!(cached(&mut cache, sql), "{sql}");
        }
        cache.clear();
        assert!(!cached(&mut cache, "a"));
    }

    #[test]
    fn only_what_the_server_plans_is_kept() {
        for sql in [
            "FETCH 1 FROM c",
            " \n-- SELECT\n/* a /* b */ */ Execute p",
            "--\r\nFETCH c",
            "/**/DEALLOCATE p",
            "CREATE TABLE t AS SELECT 1",
            "SELECTED",
            "/* SELECT",
            "-- SELECT",
            "",
            "/*/",
        ] {
            assert!(!is_planned(classify(&Dialect::POSTGRES, sql).verb), "{sql}");
        }
        for sql in [
            "SELECT 1",
            "/* FETCH */ select 1",
            "(SELECT 1)",
            "; ;WITH a AS (SELECT 1) TABLE a",
            "Insert INTO t VALUES (1)",
            "VALUES(1)",
        ] {
            assert!(is_planned(classify(&Dialect::POSTGRES, sql).verb), "{sql}");
        }
    }
}
