//! The cache of a connection's prepared statements.

use std::collections::HashMap;
use std::sync::Arc;

/// Prepared statements by their text, at most `capacity` of them. A new one evicts the least recently used one.
///
/// `S` is the driver's statement. The driver decides when a statement is stale.
#[derive(Debug)]
pub(crate) struct StatementCache<S> {
    capacity: usize,
    kept: Vec<Entry<S>>,
    by_sql: HashMap<Arc<str>, usize>,
    /// The index of the statement that was used last: a call that repeats it needs no hash.
    last: usize,
    uses: u64,
}

#[derive(Debug)]
struct Entry<S> {
    sql: Arc<str>,
    statement: S,
    /// The number of the last use.
    used: u64,
}

impl<S> StatementCache<S> {
    pub(crate) fn new(capacity: usize) -> Self {
        StatementCache {
            capacity,
            kept: Vec::new(),
            by_sql: HashMap::new(),
            last: 0,
            uses: 0,
        }
    }

    /// Returns whether the cache keeps statements at all.
    pub(crate) fn is_on(&self) -> bool {
        self.capacity > 0
    }

    #[cfg(any(test, feature = "postgres", feature = "mysql"))]
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Returns the statement of a text, and counts it as used.
    #[inline]
    #[cfg(any(test, feature = "postgres", feature = "mysql"))]
    pub(crate) fn get(&mut self, sql: &str) -> Option<&mut S> {
        let is_last = |kept: &Entry<S>| &*kept.sql == sql;
        if !self.kept.get(self.last).is_some_and(is_last) {
            self.last = *self.by_sql.get(sql)?;
        }
        self.uses += 1;
        let kept = self.kept.get_mut(self.last)?;
        kept.used = self.uses;
        Some(&mut kept.statement)
    }

    /// Makes room for one more statement. Returns the evicted one.
    pub(crate) fn make_room(&mut self) -> Option<S> {
        if self.kept.len() < self.capacity {
            return None;
        }
        let oldest = self.kept.iter().min_by_key(|kept| kept.used)?;
        let sql = Arc::clone(&oldest.sql);
        self.remove(&sql)
    }

    /// Adds a statement, for which there is room. Returns the earlier statement of the same text.
    pub(crate) fn insert(&mut self, sql: &str, statement: S) -> Option<S> {
        let replaced = self.remove(sql);
        let sql: Arc<str> = sql.into();
        self.uses += 1;
        self.last = self.kept.len();
        self.by_sql.insert(Arc::clone(&sql), self.last);
        self.kept.push(Entry {
            sql,
            statement,
            used: self.uses,
        });
        replaced
    }

    pub(crate) fn remove(&mut self, sql: &str) -> Option<S> {
        let at = self.by_sql.remove(sql)?;
        let gone = self.kept.swap_remove(at);
        if let Some(moved) = self.kept.get(at) {
            self.by_sql.insert(Arc::clone(&moved.sql), at);
        }
        Some(gone.statement)
    }

    #[cfg(any(test, feature = "postgres"))]
    pub(crate) fn statements(&self) -> impl Iterator<Item = &S> {
        self.kept.iter().map(|kept| &kept.statement)
    }

    /// Removes all statements and returns them.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = S> + use<S> {
        self.by_sql.clear();
        let kept = std::mem::take(&mut self.kept);
        kept.into_iter().map(|kept| kept.statement)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(capacity: usize, texts: &[&'static str]) -> StatementCache<&'static str> {
        let mut cache = StatementCache::new(capacity);
        for sql in texts {
            assert!(cache.make_room().is_none());
            assert!(cache.insert(sql, *sql).is_none());
        }
        cache
    }

    #[test]
    fn least_recently_used_statement_makes_room() {
        let mut cache = cache(2, &["a", "b"]);
        assert!(cache.get("a").is_some());
        assert_eq!(cache.make_room(), Some("b"));
        cache.insert("c", "c");
        assert!(cache.get("a").is_some() && cache.get("c").is_some() && cache.get("b").is_none());
        assert_eq!(cache.len(), 2);
    }

    #[test]
    fn others_are_found_after_one_is_removed() {
        let mut cache = cache(8, &["a", "b", "c", "d"]);
        assert!(cache.remove("b").is_some() && cache.remove("b").is_none());
        for sql in ["a", "c", "d", "c", "a"] {
            assert_eq!(cache.get(sql), Some(&mut { sql }), "{sql}");
        }
        let mut all: Vec<_> = cache.statements().copied().collect();
        all.sort_unstable();
        assert_eq!(all, ["a", "c", "d"]);
        assert_eq!(cache.take_all().count(), 3);
        assert!(cache.get("a").is_none());
    }

    #[test]
    fn statement_of_the_same_text_is_replaced_and_returned() {
        let mut cache = cache(2, &["a", "b"]);
        assert_eq!(cache.insert("a", "A"), Some("a"));
        assert_eq!(cache.get("a"), Some(&mut "A"));
        assert_eq!(cache.len(), 2);
    }
}
