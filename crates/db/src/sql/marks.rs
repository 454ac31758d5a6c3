//! Where the placeholders of a text are.

use super::dialect::Dialect;
use super::lexer::{Kind, Lexer};

/// Where each placeholder `?` of a text stands, in their order.
pub(crate) fn question_marks(dialect: &Dialect, sql: &str) -> Vec<usize> {
    let mut lexer = Lexer::new(dialect, sql);
    let mut marks = Vec::new();
    while let Some(token) = lexer.next() {
        if token.kind == Kind::Question {
            marks.push(token.start);
        }
    }
    marks
}
