//! Statements that stay prepared.

use super::handle::Stmt;

/// The statements of a connection that were used last, by their text.
#[derive(Debug)]
pub(super) struct Kept {
    room: usize,
    /// The one that was used last is at the end.
    statements: Vec<(String, Stmt)>,
}

impl Kept {
    pub(super) fn new(room: usize) -> Self {
        Kept {
            room,
            statements: Vec::new(),
        }
    }

    /// Takes one out, to be used. One that fails is not put back.
    pub(super) fn take(&mut self, sql: &str) -> Option<Stmt> {
        let mut found = self.statements.iter();
        let at = found.rposition(|(text, _)| text == sql)?;
        Some(self.statements.remove(at).1)
    }

    pub(super) fn put(&mut self, sql: &str, statement: Stmt) {
        if self.room == 0 {
            return;
        }
        if self.statements.len() >= self.room {
            self.statements.remove(0);
        }
        self.statements.push((sql.to_owned(), statement));
    }

    pub(super) fn clear(&mut self) {
        self.statements.clear();
    }
}
