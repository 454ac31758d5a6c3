//! Names what a text does, without its values: `SELECT orders customers`. For spans and metrics, which group statements
//! by it.

use super::dialect::Dialect;
use super::lexer::{Lexer, Token, TokenKind};
use super::masked::may_be_string;

/// What a statement can begin with. The list bounds the number of operations that metrics tell apart.
const OPERATIONS: &[&str] = &[
    "ALTER",
    "ANALYZE",
    "ATTACH",
    "BEGIN",
    "CALL",
    "COMMIT",
    "COPY",
    "CREATE",
    "DELETE",
    "DETACH",
    "DROP",
    "EXEC",
    "EXECUTE",
    "EXPLAIN",
    "GRANT",
    "INSERT",
    "LISTEN",
    "LOCK",
    "MERGE",
    "NOTIFY",
    "PRAGMA",
    "RELEASE",
    "REPLACE",
    "REVOKE",
    "ROLLBACK",
    "SAVEPOINT",
    "SELECT",
    "SET",
    "SHOW",
    "START",
    "TRUNCATE",
    "UNLISTEN",
    "UPDATE",
    "VACUUM",
    "VALUES",
    "WITH",
];

/// What can be created, changed or dropped, and has a name.
const OBJECTS: &[&str] = &[
    "DATABASE",
    "EXTENSION",
    "FUNCTION",
    "INDEX",
    "PROCEDURE",
    "SCHEMA",
    "SEQUENCE",
    "TABLE",
    "TRIGGER",
    "TYPE",
    "VIEW",
];

/// Words before the name of an object.
const BEFORE_NAME: &[&str] = &[
    "CONCURRENTLY",
    "EXISTS",
    "IF",
    "IGNORE",
    "LATERAL",
    "LOW_PRIORITY",
    "NOT",
    "ONLY",
];

/// Words that end the list of tables behind FROM.
const AFTER_TABLES: &[&str] = &[
    "WHERE",
    "GROUP",
    "ORDER",
    "HAVING",
    "LIMIT",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "ON",
    "USING",
    "SET",
    "WINDOW",
    "FOR",
    "RETURNING",
    "OFFSET",
    "FETCH",
    "VALUES",
];

/// The longest summary, in bytes. A longer one ends with the last word that fits.
const LONGEST: usize = 255;

/// What a text does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Summary {
    /// The operation of the first statement, in upper case: one of a fixed list.
    pub(crate) operation: Option<&'static str>,
    /// The operations and the objects that they are about, in the order of the text. Contains no literal. Empty if the
    /// text begins with no known operation.
    pub(crate) text: String,
}

/// Returns the operation of the first statement, in upper case: one of a fixed list. That of `WITH … UPDATE` is UPDATE.
pub(crate) fn operation(dialect: &Dialect, sql: &str) -> Option<&'static str> {
    let mut lexer = Lexer::new(dialect, sql);
    let mut depth = 0u32;
    let mut in_with = false;
    while let Some(token) = lexer.next() {
        match token.symbol {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if token.kind != TokenKind::Word || depth > 0 {
            if in_with || token.is_symbol(b'(') {
                continue;
            }
            return None;
        }
        match (known(OPERATIONS, token.text(sql)), in_with) {
            (Some("WITH"), false) => in_with = true,
            (Some(operation @ ("SELECT" | "INSERT" | "UPDATE" | "DELETE" | "MERGE")), true) => {
                return Some(operation);
            }
            (_, true) => {}
            (found, false) => return found,
        }
    }
    None
}

/// Returns what a text does.
pub(crate) fn summary(dialect: &Dialect, sql: &str) -> Summary {
    let mut writer = Writer {
        dialect,
        sql,
        summary: Summary {
            operation: operation(dialect, sql),
            text: String::new(),
        },
        parens: vec![Paren::default()],
        at_start: true,
        expects: Expects::Nothing,
        previous: Token::NONE,
    };
    let mut lexer = Lexer::new(dialect, sql);
    while let Some(token) = lexer.next() {
        if !writer.read(token) {
            break;
        }
        writer.previous = token;
    }
    writer.summary
}

/// What the next word is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Expects {
    Nothing,
    /// A kind of object: TABLE.
    Object,
    /// The name of an object.
    Name,
    /// A point, if the name goes on: `schema.table`.
    Point,
    /// The next part of a name.
    Part,
}

/// What is between two parentheses, or the whole text.
#[derive(Clone, Copy, Default)]
struct Paren {
    /// It contains a statement, whose FROM is followed by tables. `extract(year FROM day)` contains none.
    is_statement: bool,
    /// The list of tables behind FROM has not ended.
    in_tables: bool,
}

struct Writer<'a> {
    dialect: &'a Dialect,
    sql: &'a str,
    summary: Summary,
    parens: Vec<Paren>,
    /// No word of the statement was read.
    at_start: bool,
    expects: Expects,
    previous: Token,
}

impl Writer<'_> {
    /// Reads a token. Returns whether to go on.
    fn read(&mut self, token: Token) -> bool {
        match token.kind {
            TokenKind::Word => self.read_word(token),
            TokenKind::Quoted => self.read_name(token),
            TokenKind::Symbol => {
                self.read_symbol(token.symbol);
                true
            }
            _ => {
                self.expects = Expects::Nothing;
                self.at_start = false;
                true
            }
        }
    }

    fn read_symbol(&mut self, symbol: u8) {
        let expects = std::mem::replace(&mut self.expects, Expects::Nothing);
        match symbol {
            b'.' if expects == Expects::Point => self.expects = Expects::Part,
            b'(' => self.parens.push(Paren::default()),
            b')' if self.parens.len() > 1 => {
                self.parens.pop();
            }
            b',' if self.paren().in_tables => self.expects = Expects::Name,
            b';' => {
                self.parens = vec![Paren::default()];
                self.at_start = true;
            }
            _ => {}
        }
    }

    fn paren(&mut self) -> &mut Paren {
        if self.parens.is_empty() {
            self.parens.push(Paren::default());
        }
        let last = self.parens.len() - 1;
        &mut self.parens[last]
    }

    fn read_word(&mut self, token: Token) -> bool {
        let word = token.text(self.sql);
        let at_start = std::mem::replace(&mut self.at_start, false);
        if self.expects == Expects::Part {
            return self.read_name(token);
        }
        let opens = at_start || self.previous.is_symbol(b'(') || self.previous.is_symbol(b')');
        let is_upsert = self.previous.text(self.sql).eq_ignore_ascii_case("do");
        if let Some(operation) = known(OPERATIONS, word)
            && (at_start || operation == "SELECT" || (opens && !is_upsert && is_query(operation)))
        {
            self.paren().is_statement = is_query(operation);
            self.paren().in_tables = false;
            self.expects = match operation {
                "UPDATE" | "CALL" | "EXEC" | "EXECUTE" | "COPY" => Expects::Name,
                "CREATE" | "DROP" | "ALTER" | "TRUNCATE" => Expects::Object,
                _ => Expects::Nothing,
            };
            // EXPLAIN and WITH stand before the operation.
            self.at_start = matches!(operation, "EXPLAIN");
            return operation == "WITH" || self.push(operation);
        }
        match self.expects {
            Expects::Object => match known(OBJECTS, word) {
                Some(object) => {
                    self.expects = Expects::Name;
                    return self.push(object);
                }
                // TRUNCATE may leave TABLE out; others have words such as OR REPLACE before it.
                None => return true,
            },
            Expects::Name if known(BEFORE_NAME, word).is_some() => return true,
            Expects::Name => return self.read_name(token),
            _ => self.expects = Expects::Nothing,
        }
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword);
        let is_distinct_from = self
            .previous
            .text(self.sql)
            .eq_ignore_ascii_case("distinct");
        if is("from") && self.paren().is_statement && !is_distinct_from {
            self.paren().in_tables = true;
            self.expects = Expects::Name;
        } else if (is("into") || is("join")) && self.paren().is_statement {
            self.expects = Expects::Name;
        } else if known(AFTER_TABLES, word).is_some() {
            self.paren().in_tables = false;
        }
        true
    }

    /// Reads a name, or the next part of one.
    fn read_name(&mut self, token: Token) -> bool {
        self.at_start = false;
        let text = token.text(self.sql);
        match self.expects {
            Expects::Name | Expects::Part
                if token.kind == TokenKind::Quoted && may_be_string(self.dialect, text) =>
            {
                self.expects = Expects::Nothing;
                true
            }
            Expects::Name => {
                self.expects = Expects::Point;
                self.push(text)
            }
            Expects::Part => {
                self.expects = Expects::Point;
                self.append(".") && self.append(text)
            }
            _ => {
                self.expects = Expects::Nothing;
                true
            }
        }
    }

    /// Adds a word. Returns whether it fitted.
    fn push(&mut self, word: &str) -> bool {
        if self.summary.text.is_empty() {
            return self.append(word);
        }
        if self.summary.text.len() + 1 + word.len() > LONGEST {
            return false;
        }
        self.append(" ") && self.append(word)
    }

    fn append(&mut self, text: &str) -> bool {
        if self.summary.text.len() + text.len() > LONGEST {
            return false;
        }
        let shown = |letter: char| if letter.is_control() { ' ' } else { letter };
        self.summary.text.extend(text.chars().map(shown));
        true
    }
}

/// Returns the word of a list, in the upper case of the list.
fn known(list: &[&'static str], word: &str) -> Option<&'static str> {
    let is_it = |known: &&&'static str| known.eq_ignore_ascii_case(word);
    list.iter().find(is_it).copied()
}

/// Returns whether an operation reads or writes tables.
fn is_query(operation: &str) -> bool {
    matches!(
        operation,
        "SELECT" | "INSERT" | "UPDATE" | "DELETE" | "MERGE" | "REPLACE" | "WITH"
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_summary_names_operations_and_tables() {
        for (sql, operation, text) in [
            ("SELECT 1", "SELECT", "SELECT"),
            (
                "select * from orders o where id = 7",
                "SELECT",
                "SELECT orders",
            ),
            (
                "SELECT * FROM songs, artists a JOIN shop.sales s ON s.id = a.id",
                "SELECT",
                "SELECT songs artists shop.sales",
            ),
            ("SELECT extract(year FROM day) FROM t", "SELECT", "SELECT t"),
            (
                "SELECT a FROM t WHERE a IS DISTINCT FROM b",
                "SELECT",
                "SELECT t",
            ),
            (
                "INSERT INTO shipping SELECT * FROM orders WHERE x = 'secret'",
                "INSERT",
                "INSERT shipping SELECT orders",
            ),
            (
                "INSERT INTO t (a, b) VALUES (?, ?) ON CONFLICT DO UPDATE SET a = 1",
                "INSERT",
                "INSERT t",
            ),
            (
                "UPDATE stock SET n = n - 1 FROM other",
                "UPDATE",
                "UPDATE stock other",
            ),
            (
                "DELETE FROM t WHERE id IN (SELECT id FROM u)",
                "DELETE",
                "DELETE t SELECT u",
            ),
            (
                "WITH x AS (SELECT * FROM a) UPDATE b SET n = 1",
                "UPDATE",
                "SELECT a UPDATE b",
            ),
            (
                "CREATE TABLE IF NOT EXISTS notes (id INTEGER)",
                "CREATE",
                "CREATE TABLE notes",
            ),
            (
                "DROP INDEX a; DROP VIEW b",
                "DROP",
                "DROP INDEX a DROP VIEW b",
            ),
            ("CALL refill(1, 2)", "CALL", "CALL refill"),
            ("BEGIN", "BEGIN", "BEGIN"),
            ("  -- a comment\n commit", "COMMIT", "COMMIT"),
        ] {
            for dialect in [&Dialect::SQLITE, &Dialect::POSTGRES, &Dialect::MYSQL] {
                let expected = Summary {
                    operation: Some(operation),
                    text: text.to_owned(),
                };
                assert_eq!(summary(dialect, sql), expected, "{sql}");
            }
        }
    }

    #[test]
    fn a_text_without_a_known_operation_has_an_empty_summary() {
        for sql in ["", "frobnicate t", "'secret'", ";", ")(", "SELECTED"] {
            assert_eq!(
                summary(&Dialect::POSTGRES, sql),
                Summary::default(),
                "{sql}"
            );
        }
    }

    #[test]
    fn quoted_names_are_shown_only_where_they_are_names() {
        let sql = "SELECT * FROM \"my table\" WHERE a = 'x'";
        assert_eq!(summary(&Dialect::POSTGRES, sql).text, "SELECT \"my table\"");
        assert_eq!(summary(&Dialect::SQLITE, sql).text, "SELECT");
        assert_eq!(
            summary(&Dialect::MYSQL, "SELECT * FROM `t`").text,
            "SELECT `t`"
        );
    }

    proptest! {
        #[test]
        fn a_summary_is_short_and_has_no_literal(
            before in "(SELECT|UPDATE|FROM|WITH|INTO|JOIN|[a-z.,();]| ){0,60}",
            secret in "[A-Z]{5,8}[0-9]{4}",
        ) {
            for dialect in [&Dialect::SQLITE, &Dialect::POSTGRES, &Dialect::MYSQL] {
                for sql in [
                    format!("{before} '{secret}' {before}"),
                    format!("SELECT {before} '{secret}'"),
                    before.repeat(30),
                ] {
                    let shown = summary(dialect, &sql);
                    prop_assert!(!shown.text.contains(&secret), "{:?}", shown);
                    prop_assert!(shown.text.len() <= LONGEST);
                }
            }
        }
    }
}
