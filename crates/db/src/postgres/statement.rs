//! Prepared statements, and those that a connection keeps.

use std::collections::HashMap;
use std::fmt::Write;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use postgres_types::Type;

use super::frontend::bind_head;
use super::types::Layout;

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

/// The name of a statement: 128 bits of its SQL. No types are declared, so that these
/// do not tell two apart.
pub(super) fn name_of(sql: &str) -> String {
    let mut name = String::with_capacity(33);
    name.push('c');
    for half in 0..2 {
        let mut hasher = DefaultHasher::new();
        hasher.write_u8(half);
        hasher.write(sql.as_bytes());
        write!(name, "{:016x}", hasher.finish()).expect("a string takes any text");
    }
    name
}

/// Whether it means the same each time, as far as the server tells. A FETCH and an EXECUTE have the
/// rows of whatever goes by that name when they are run, and the server does not say that these
/// are others than last time.
pub(super) fn can_be_kept(sql: &str) -> bool {
    let word = first_word(sql);
    !(word.eq_ignore_ascii_case("FETCH") || word.eq_ignore_ascii_case("EXECUTE"))
}

/// The first word of SQL, behind spaces and comments.
pub(super) fn first_word(sql: &str) -> &str {
    let mut rest = sql.trim_start();
    loop {
        let behind = if rest.starts_with("--") {
            rest.split_once(['\n', '\r'])
                .map_or("", |(_, behind)| behind)
        } else if rest.starts_with("/*") {
            behind_comment(rest)
        } else {
            let end = rest.find(|letter: char| !letter.is_ascii_alphabetic());
            return &rest[..end.unwrap_or(rest.len())];
        };
        rest = behind.trim_start();
    }
}

/// What follows a comment, in which there may be others.
fn behind_comment(sql: &str) -> &str {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(pair) = sql.as_bytes().get(at..at + 2) {
        match pair {
            b"/*" => depth += 1,
            b"*/" => depth -= 1,
            _ => {
                at += 1;
                continue;
            }
        }
        at += 2;
        if depth == 0 {
            return sql.get(at..).unwrap_or("");
        }
    }
    ""
}

/// The statements that a connection keeps, at most so many. The one that was not used for longest
/// goes first.
#[derive(Debug)]
pub(super) struct Cache {
    capacity: usize,
    kept: Vec<Kept>,
    by_sql: HashMap<Box<str>, usize>,
    /// Where the one is that was used last.
    last: usize,
    uses: u64,
}

#[derive(Debug)]
struct Kept {
    statement: Arc<Statement>,
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

    pub(super) fn get(&mut self, sql: &str) -> Option<Arc<Statement>> {
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
        Some(Arc::clone(&kept.statement))
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
    pub(super) fn insert(&mut self, statement: Arc<Statement>) {
        self.remove(&statement.sql);
        self.uses += 1;
        self.last = self.kept.len();
        self.by_sql.insert(statement.sql.clone(), self.last);
        self.kept.push(Kept {
            statement,
            used: self.uses,
        });
    }

    pub(super) fn remove(&mut self, sql: &str) -> Option<Arc<Statement>> {
        let at = self.by_sql.remove(sql)?;
        let gone = self.kept.swap_remove(at);
        if let Some(moved) = self.kept.get(at) {
            self.by_sql.insert(moved.statement.sql.clone(), at);
        }
        Some(gone.statement)
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

    fn statement(sql: &str) -> Arc<Statement> {
        Arc::new(Statement::new(
            name_of(sql),
            sql,
            Vec::new(),
            Layout::empty(),
        ))
    }

    fn cached(cache: &mut Cache, sql: &str) -> bool {
        cache.get(sql).is_some()
    }

    #[test]
    fn the_one_that_was_not_used_for_longest_makes_room() {
        let mut cache = Cache::new(2);
        for sql in ["a", "b"] {
            assert!(cache.make_room().is_none());
            cache.insert(statement(sql));
        }
        assert!(cached(&mut cache, "a"));
        assert_eq!(&*cache.make_room().unwrap().sql, "b");
        cache.insert(statement("c"));
        assert!(cached(&mut cache, "a") && cached(&mut cache, "c") && !cached(&mut cache, "b"));
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn one_that_is_removed_leaves_the_others_where_they_are_found() {
        let mut cache = Cache::new(8);
        for sql in ["a", "b", "c", "d"] {
            cache.insert(statement(sql));
        }
        assert!(cache.remove("b").is_some() && cache.remove("b").is_none());
        for sql in ["a", "c", "d", "c", "a"] {
            assert!(cached(&mut cache, sql), "{sql}");
        }
        cache.clear();
        assert!(!cached(&mut cache, "a"));
    }

    #[test]
    fn what_has_the_rows_of_another_is_not_kept() {
        for sql in [
            "FETCH 1 FROM c",
            "fetch all c",
            " \n-- SELECT\n/* a /* b */ */ Execute p",
            "--\r\nFETCH c",
            "/**/FETCH c",
        ] {
            assert!(!can_be_kept(sql), "{sql}");
        }
        for sql in [
            "SELECT 1",
            "-- FETCH",
            "/* FETCH */ SELECT 1",
            "/* FETCH",
            "",
            "fetched",
            "/*/",
        ] {
            assert!(can_be_kept(sql), "{sql}");
        }
    }

    #[test]
    fn names_are_those_of_the_sql_and_of_no_other() {
        assert_eq!(name_of("SELECT 1"), name_of("SELECT 1"));
        assert_ne!(name_of("SELECT 1"), name_of("SELECT 2"));
        assert_eq!(name_of("SELECT 1").len(), 33);
    }
}
