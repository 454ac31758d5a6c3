//! Recognises an INSERT of one row of placeholders, which can be written as an INSERT of many rows.

use std::fmt::Write;

use super::dialect::Dialect;
use super::lexer::{Lexer, Token, TokenKind};

/// `INSERT INTO table [(columns)] VALUES ($2, $1)`: nothing but placeholders with numbers, and nothing after the row.
#[derive(Debug)]
pub(crate) struct RowInsert<'s> {
    /// The name of the table, as it is written.
    pub(crate) table: &'s str,
    /// The text before the row.
    head: &'s str,
    /// The numbers of the placeholders.
    numbers: Vec<usize>,
}

impl<'s> RowInsert<'s> {
    /// Returns `None` if the text is anything else.
    pub(crate) fn of(dialect: &Dialect, sql: &'s str) -> Option<Self> {
        let mut lexer = Lexer::new(dialect, sql);
        let mut next = || lexer.next();
        let is_word = |token: &Token, word: &str| {
            token.kind == TokenKind::Word && token.text(sql).eq_ignore_ascii_case(word)
        };
        next().filter(|token| is_word(token, "insert"))?;
        next().filter(|token| is_word(token, "into"))?;
        let is_name = |token: &Token| matches!(token.kind, TokenKind::Word | TokenKind::Quoted);
        let first = next().filter(is_name)?;
        let (mut end, mut token) = (first.end, next()?);
        while token.is_symbol(b'.') {
            end = next().filter(is_name)?.end;
            token = next()?;
        }
        if token.is_symbol(b'(') {
            loop {
                next().filter(is_name)?;
                let separator = next()?;
                if separator.is_symbol(b')') {
                    break;
                }
                Some(separator).filter(|it| it.is_symbol(b','))?;
            }
            token = next()?;
        }
        Some(token).filter(|token| is_word(token, "values"))?;
        let row = next().filter(|token| token.is_symbol(b'('))?;
        let mut numbers = Vec::new();
        loop {
            let placeholder = next().filter(|token| token.kind == TokenKind::Numbered)?;
            numbers.push(placeholder.text(sql).get(1..)?.parse().ok()?);
            let separator = next()?;
            if separator.is_symbol(b')') {
                break;
            }
            Some(separator).filter(|it| it.is_symbol(b','))?;
        }
        if next().is_some_and(|token| !token.is_symbol(b';') || next().is_some()) {
            return None;
        }
        Some(RowInsert {
            table: sql.get(first.start..end)?,
            head: sql.get(..row.start)?,
            numbers,
        })
    }

    /// Returns the INSERT of this many rows. The placeholders of each row follow those of the row before, which has
    /// `width` of them.
    pub(crate) fn with_rows(&self, rows: usize, width: usize) -> String {
        let mut sql = String::with_capacity(self.head.len() + rows * self.numbers.len() * 7);
        sql.push_str(self.head);
        for row in 0..rows {
            for (n, number) in self.numbers.iter().enumerate() {
                let before = match (row, n) {
                    (0, 0) => "(",
                    (_, 0) => "),(",
                    _ => ",",
                };
                // A string takes any text.
                let _ = write!(sql, "{before}${}", row * width + number);
            }
        }
        sql.push(')');
        sql
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(sql: &str) -> Option<String> {
        let insert = RowInsert::of(&Dialect::POSTGRES, sql)?;
        Some(insert.with_rows(2, insert.numbers.len()))
    }

    #[test]
    fn one_row_of_placeholders_becomes_many() {
        for (sql, many) in [
            (
                "INSERT INTO t VALUES ($1)",
                "INSERT INTO t VALUES ($1),($2)",
            ),
            (
                "/* tag */ insert into \"S\".t (a, \"b\") values ($2, $1) ;",
                "/* tag */ insert into \"S\".t (a, \"b\") values ($2,$1),($4,$3)",
            ),
        ] {
            assert_eq!(rows(sql).as_deref(), Some(many));
        }
        let named = RowInsert::of(&Dialect::POSTGRES, "INSERT INTO a.\"B c\" (x) VALUES ($1)");
        assert_eq!(named.unwrap().table, "a.\"B c\"");
    }

    #[test]
    fn anything_else_is_left_alone() {
        for sql in [
            "INSERT INTO t VALUES ($1) RETURNING id",
            "INSERT INTO t VALUES ($1) ON CONFLICT DO NOTHING",
            "INSERT INTO t VALUES ($1), ($2)",
            "INSERT INTO t VALUES ($1); DELETE FROM t",
            "INSERT INTO t VALUES (f($1))",
            "INSERT INTO t VALUES ($1::int)",
            "INSERT INTO t VALUES ($1 + 1)",
            "INSERT INTO t VALUES ($1, DEFAULT)",
            "INSERT INTO t VALUES ($1, now())",
            "INSERT INTO t VALUES ((SELECT $1))",
            "INSERT INTO t VALUES ()",
            "INSERT INTO t AS x VALUES ($1)",
            "INSERT INTO t (a[1]) VALUES ($1)",
            "INSERT INTO t OVERRIDING SYSTEM VALUE VALUES ($1)",
            "INSERT INTO t SELECT $1",
            "INSERT INTO t DEFAULT VALUES",
            "WITH a AS (SELECT 1) INSERT INTO t VALUES ($1)",
            "UPDATE t SET a = $1",
            "INSERT INTO t VALUES ($1",
            "INSERT",
            "",
        ] {
            assert_eq!(rows(sql), None, "{sql}");
        }
    }
}
