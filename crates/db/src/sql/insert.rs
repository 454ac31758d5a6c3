//! Finds the table that a statement inserts into.

use super::lexer::{Token, TokenKind};
use super::words::Keyword;

/// The name of the table that a statement inserts into, as a part of the text.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(
    not(feature = "sqlite"),
    allow(dead_code, reason = "only SQLite's driver asks for the name")
)]
pub(crate) struct InsertTarget {
    start: u32,
    end: u32,
}

/// All targets are equal: the class of a text does not depend on where the name is.
impl PartialEq for InsertTarget {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for InsertTarget {}

impl InsertTarget {
    fn new(token: &Token) -> Option<Self> {
        Some(InsertTarget {
            start: u32::try_from(token.start).ok()?,
            end: u32::try_from(token.end).ok()?,
        })
    }

    /// Returns the table without quotes and schema. `sql` is the text that was scanned.
    #[cfg(feature = "sqlite")]
    pub(crate) fn table(self, sql: &str) -> std::borrow::Cow<'_, str> {
        use std::borrow::Cow;

        let place = usize::try_from(self.start).unwrap_or(usize::MAX)
            ..usize::try_from(self.end).unwrap_or(usize::MAX);
        let name = sql.get(place).unwrap_or_default();
        let (Some(quote), Some(inner)) = (
            name.chars().next(),
            name.get(1..name.len().saturating_sub(1)),
        ) else {
            return Cow::Borrowed(name);
        };
        match quote {
            '[' => Cow::Borrowed(inner),
            '"' | '`' | '\'' if inner.contains(quote) => {
                Cow::Owned(inner.replace(&format!("{quote}{quote}"), &quote.to_string()))
            }
            '"' | '`' | '\'' => Cow::Borrowed(inner),
            _ => Cow::Borrowed(name),
        }
    }
}

/// The search for the table, token by token.
#[derive(Clone, Copy)]
pub(super) enum Target {
    /// No INTO so far.
    Unknown,
    /// A name is next: after INTO, or after the point of a schema.
    Next,
    /// The table, or its schema if a point follows.
    Named(InsertTarget),
    /// The table.
    Found(InsertTarget),
    /// The statement does not insert.
    None,
}

impl Target {
    /// Returns whether the next token decides: it can make a name a schema.
    #[inline]
    pub(super) fn is_open(&self) -> bool {
        matches!(self, Target::Next | Target::Named(_))
    }

    pub(super) fn found(self) -> Option<InsertTarget> {
        match self {
            Target::Named(target) | Target::Found(target) => Some(target),
            Target::Unknown | Target::Next | Target::None => None,
        }
    }

    /// Takes a token outside all parentheses, or the token after a name. `verb` is the statement's first keyword.
    #[inline]
    pub(super) fn take(&mut self, token: &Token, keyword: Option<Keyword>, verb: Option<Keyword>) {
        match self {
            Target::Found(_) | Target::None => {}
            Target::Unknown => self.look_for_into(keyword, verb),
            Target::Next => {
                let is_name = matches!(
                    token.kind,
                    TokenKind::Word | TokenKind::Quoted | TokenKind::Text
                );
                let target = InsertTarget::new(token).filter(|_| is_name);
                *self = target.map_or(Target::None, Target::Named);
            }
            Target::Named(_) if token.is_symbol(b'.') => *self = Target::Next,
            Target::Named(target) => *self = Target::Found(*target),
        }
    }

    /// Searches for INTO: of the statements with such a verb, only those that insert have an INTO before these words.
    fn look_for_into(&mut self, keyword: Option<Keyword>, verb: Option<Keyword>) {
        let Some(verb) = verb else {
            // The first token itself is not noted yet.
            return;
        };
        match (verb, keyword) {
            (_, Some(Keyword::Select | Keyword::Values | Keyword::Update | Keyword::Delete)) => {
                *self = Target::None
            }
            (Keyword::Insert | Keyword::Replace | Keyword::With, Some(Keyword::Into)) => {
                *self = Target::Next;
            }
            _ => {}
        }
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use crate::sql::{Class, Dialect, classify};

    fn class(sql: &str) -> Class {
        classify(&Dialect::SQLITE, sql)
    }

    fn table(sql: &str) -> Option<String> {
        let insert = class(sql).insert?;
        Some(insert.table(sql).into_owned())
    }

    #[test]
    fn inserts_are_distinguished_from_other_statements() {
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
    fn do_update_makes_an_upsert() {
        let updates = |sql| class(sql).upserts;
        let upsert = "INSERT INTO t VALUES (1) ON CONFLICT (a) DO UPDATE SET b = 1";
        assert!(updates(upsert));
        assert!(!updates("INSERT INTO t VALUES (1) ON CONFLICT DO NOTHING"));
        assert!(!updates("INSERT INTO t VALUES ('DO UPDATE')"));
        assert!(!updates("INSERT INTO t SELECT (SELECT 1) -- DO UPDATE"));
    }
}
