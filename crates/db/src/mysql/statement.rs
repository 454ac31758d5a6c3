//! Prepared statements, and those that a connection keeps.

use std::collections::HashMap;
use std::sync::Arc;

use super::types::Layout;

/// A statement that the server has prepared.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    pub(super) handle: mysql_async::Statement,
    /// What its rows looked like the last time.
    pub(super) layout: Arc<Layout>,
    /// It may change the session, and with that what other statements mean.
    pub(super) touches_session: bool,
    /// Its first word is one that writes.
    pub(super) writes: bool,
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
    sql: Box<str>,
    statement: Statement,
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

    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    #[inline]
    pub(super) fn get(&mut self, sql: &str) -> Option<Statement> {
        let is_last = |kept: &Kept| &*kept.sql == sql;
        if !self.kept.get(self.last).is_some_and(is_last) {
            self.last = *self.by_sql.get(sql)?;
        }
        self.uses += 1;
        let kept = self.kept.get_mut(self.last)?;
        kept.used = self.uses;
        Some(kept.statement.clone())
    }

    /// Makes room for one more: gives the one that has to go for it.
    pub(super) fn make_room(&mut self) -> Option<Statement> {
        if self.kept.len() < self.capacity {
            return None;
        }
        let oldest = self.kept.iter().min_by_key(|kept| kept.used)?;
        let sql = oldest.sql.clone();
        self.remove(&sql)
    }

    /// Keeps a statement, for which there is room.
    pub(super) fn insert(&mut self, sql: &str, statement: Statement) {
        self.remove(sql);
        self.uses += 1;
        self.last = self.kept.len();
        self.by_sql.insert(sql.into(), self.last);
        self.kept.push(Kept {
            sql: sql.into(),
            statement,
            used: self.uses,
        });
    }

    /// Its rows look otherwise now.
    pub(super) fn set_layout(&mut self, sql: &str, layout: &Arc<Layout>) {
        let at = self.by_sql.get(sql);
        if let Some(kept) = at.and_then(|at| self.kept.get_mut(*at)) {
            kept.statement.layout = Arc::clone(layout);
        }
    }

    pub(super) fn remove(&mut self, sql: &str) -> Option<Statement> {
        let at = self.by_sql.remove(sql)?;
        let gone = self.kept.swap_remove(at);
        if let Some(moved) = self.kept.get(at) {
            self.by_sql.insert(moved.sql.clone(), at);
        }
        Some(gone.statement)
    }

    /// All of them, which are not kept any more.
    pub(super) fn take_all(&mut self) -> Vec<Statement> {
        self.by_sql.clear();
        let kept = std::mem::take(&mut self.kept);
        kept.into_iter().map(|kept| kept.statement).collect()
    }

    /// The server has forgotten all of them.
    pub(super) fn clear(&mut self) {
        self.kept.clear();
        self.by_sql.clear();
    }
}
