//! Finds the placeholders of a text that is sent unchanged.

use super::dialect::Dialect;
use super::lexer::{Lexer, TokenKind};

/// Returns the position of each placeholder `?`, in order.
pub(crate) fn question_marks(dialect: &Dialect, sql: &str) -> Vec<usize> {
    let mut lexer = Lexer::new(dialect, sql);
    let mut marks = Vec::new();
    while let Some(token) = lexer.next() {
        if token.kind == TokenKind::Question {
            marks.push(token.start);
        }
    }
    marks
}
