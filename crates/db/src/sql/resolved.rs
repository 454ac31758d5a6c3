//! Finds what PostgreSQL resolves when it parses a text: reasons not to keep it prepared.

use super::copy::{ClientCopy, CopyFinder};
use super::lexer::{Token, TokenKind};
use super::words::is_one_of;

/// Reasons not to keep a text as a prepared statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Resolved {
    /// A literal may mean another moment each time: PostgreSQL resolves `'now'` when it parses the text.
    pub(crate) is_volatile: bool,
    /// The text calls `set_config`.
    pub(crate) sets: bool,
    /// The text creates a table, perhaps with the tag of a SELECT: SELECT INTO, CREATE TABLE AS.
    pub(crate) defines: bool,
    /// The text is a COPY from or to the client.
    pub(crate) copies: Option<ClientCopy>,
}

impl Resolved {
    pub(crate) const NOTHING: Resolved = Resolved {
        is_volatile: false,
        sets: false,
        defines: false,
        copies: None,
    };
}

/// The words that date and time types resolve to the current moment.
const MOMENTS: [&[u8]; 4] = [b"now", b"today", b"tomorrow", b"yesterday"];

/// Reads a text, token by token, for reasons not to keep it prepared.
pub(super) struct Resolver<'a> {
    sql: &'a str,
    found: Resolved,
    before: Token,
    copy: CopyFinder,
}

impl<'a> Resolver<'a> {
    pub(super) fn new(sql: &'a str) -> Self {
        Resolver {
            sql,
            found: Resolved::NOTHING,
            before: Token::NONE,
            copy: CopyFinder::Start,
        }
    }

    pub(super) fn take(&mut self, token: &Token) {
        let (sql, found) = (self.sql, &mut self.found);
        match token.kind {
            // Two strings with a line break between them are one.
            TokenKind::Text => {
                found.is_volatile |= self.before.kind == TokenKind::Text || is_volatile(token, sql);
            }
            TokenKind::Word | TokenKind::Quoted => {
                found.sets |= is_set_config(token, sql);
                found.defines |= is_word(token, &["create"], sql)
                    || is_word(token, &["into"], sql)
                        && !is_word(&self.before, &["insert", "merge"], sql);
            }
            _ => {}
        }
        if let Some(copy) = self.copy.take(token, sql) {
            found.copies = Some(copy);
        }
        self.before = *token;
    }

    /// Returns the reasons found so far.
    pub(super) fn found(&self) -> Resolved {
        self.found
    }
}

pub(super) fn is_word(token: &Token, words: &[&str], sql: &str) -> bool {
    token.kind == TokenKind::Word && is_one_of(token.text(sql), words)
}

fn is_set_config(token: &Token, sql: &str) -> bool {
    let name = token.text(sql).trim_matches('"');
    name.eq_ignore_ascii_case("set_config")
}

fn is_volatile(token: &Token, sql: &str) -> bool {
    let text = token.bytes(sql);
    // An escape can hide any letter; in U&'…' any character can be the escape.
    let is_escaped = matches!(text, [b'e' | b'E', ..]) && text.contains(&b'\\');
    let before = token.start.checked_sub(1).map(|at| sql.as_bytes()[at]);
    is_escaped || before == Some(b'&') || MOMENTS.iter().any(|word| contains_word(text, word))
}

/// Returns whether a text contains this word, with no letters around it.
fn contains_word(text: &[u8], word: &[u8]) -> bool {
    let is_letter = |at: usize| text.get(at).is_some_and(u8::is_ascii_alphabetic);
    text.windows(word.len()).enumerate().any(|(at, part)| {
        part.eq_ignore_ascii_case(word)
            && !is_letter(at + word.len())
            && !at.checked_sub(1).is_some_and(is_letter)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::{Dialect, classify};

    fn resolved(sql: &str) -> Resolved {
        classify(&Dialect::POSTGRES, sql).resolved
    }

    #[test]
    fn literals_that_mean_another_moment_each_time_are_seen() {
        for sql in [
            "INSERT INTO t VALUES ('now')",
            "SELECT 'NOW'::timestamptz",
            "SELECT timestamp ' Today ', 1",
            "SELECT 'today 10:00'::timestamp",
            "SELECT date 'tomorrow'",
            "SELECT 'yesterday10:00'::timestamp",
            "SELECT $$now$$::timestamptz",
            "SELECT E'n\\157w'::timestamptz",
            "SELECT U&'\\006eow'::timestamptz",
            "SELECT 'no'\n'w'::timestamptz",
            "SELECT 'now()'::timestamptz",
            "SELECT '[now,tomorrow)'::tstzrange",
        ] {
            assert!(resolved(sql).is_volatile, "{sql}");
        }
        for sql in [
            "SELECT now()",
            "SELECT 'known', 'snow', E'x'",
            "SELECT now, \"today\" FROM t",
            "SELECT 1 -- 'now'",
            "SELECT $1::timestamptz",
        ] {
            assert_eq!(resolved(sql), Resolved::NOTHING, "{sql}");
        }
    }

    #[test]
    fn a_table_that_a_query_makes_is_seen() {
        for sql in [
            "SELECT 1 INTO t",
            "CREATE TABLE t AS SELECT 1",
            "create temp table t as values (1)",
            "WITH a AS (SELECT 1) SELECT * INTO t FROM a",
        ] {
            assert!(resolved(sql).defines, "{sql}");
        }
        for sql in [
            "INSERT /* x */ INTO t VALUES (1)",
            "MERGE INTO t USING s ON true WHEN MATCHED THEN DELETE",
            "WITH a AS (INSERT INTO t VALUES (1) RETURNING n) TABLE a",
            "SELECT \"into\", 'create' FROM \"create\"",
        ] {
            assert!(!resolved(sql).defines, "{sql}");
        }
    }

    #[test]
    fn a_call_of_set_config_is_seen() {
        for sql in [
            "SELECT set_config('a.b', 'c', true)",
            "SELECT pg_catalog . SET_CONFIG ($1, $2, $3)",
            "SELECT \"set_config\"('a.b', 'c', true)",
        ] {
            assert!(resolved(sql).sets, "{sql}");
        }
        assert!(!resolved("SELECT 'set_config', set_config_too()").sets);
    }
}
