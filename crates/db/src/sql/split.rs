//! Splits a script into its statements.

#[cfg(feature = "migrate")]
use std::borrow::Cow;

use super::compound::Compound;
use super::dialect::Dialect;
use super::lexer::{Lexer, Token, TokenKind};
use super::statement::Statement;
use super::words::{Keyword, is_one_of, keyword};

/// A statement of a script.
pub(crate) struct Piece<'a> {
    /// The statement from its first token to its last.
    pub(crate) bare: &'a str,
    /// The keyword that the statement begins with.
    #[cfg_attr(
        not(any(feature = "odbc", feature = "migrate")),
        allow(dead_code, reason = "a sandbox reads the class instead")
    )]
    pub(crate) verb: Option<Keyword>,
    /// The statement with the comments around it, without the semicolon that ends it.
    #[cfg(feature = "migrate")]
    pub(crate) text: &'a str,
    /// The byte of the script at which the text begins.
    #[cfg(feature = "migrate")]
    pub(crate) offset: usize,
}

/// Splits a script into its statements. A comment alone is no statement.
pub(crate) fn pieces<'a>(dialect: &Dialect, sql: &'a str) -> Vec<Piece<'a>> {
    let mut lexer = Lexer::new(dialect, sql);
    let mut current = Statement::new(dialect, sql);
    let mut routine = Routine::default();
    let mut pieces = Vec::new();
    // The end of the last semicolon; the statement's first and last byte.
    let (mut from, mut span) = (0, None::<(usize, usize)>);
    while let Some(token) = lexer.next() {
        if token.is_symbol(b';') && current.ends_with_semicolon() && !routine.is_open() {
            let verb = current.verb();
            pieces.extend(
                span.take()
                    .map(|span| piece(sql, from, span, token.start, verb)),
            );
            from = token.end;
            current.restart();
            routine = Routine::default();
        } else {
            let (start, _) = span.unwrap_or((token.start, token.end));
            span = Some((start, token.end));
            current.take(&token);
            if dialect.compound_statements {
                routine.take(&token, sql);
            }
        }
    }
    let verb = current.verb();
    pieces.extend(span.map(|span| piece(sql, from, span, sql.len(), verb)));
    pieces
}

#[cfg_attr(
    not(feature = "migrate"),
    allow(unused_variables, reason = "only migrations send comments")
)]
fn piece(
    sql: &str,
    from: usize,
    (start, end): (usize, usize),
    to: usize,
    verb: Option<Keyword>,
) -> Piece<'_> {
    #[cfg(feature = "migrate")]
    let around = &sql[from..to];
    Piece {
        bare: &sql[start..end],
        verb,
        #[cfg(feature = "migrate")]
        text: around.trim(),
        #[cfg(feature = "migrate")]
        offset: from + (around.len() - around.trim_start().len()),
    }
}

/// Splits a script into its statements, without the semicolons and comments between them.
#[cfg(feature = "odbc")]
pub(crate) fn split<'a>(dialect: &Dialect, sql: &'a str) -> Vec<&'a str> {
    let pieces = pieces(dialect, sql).into_iter();
    pieces.map(|piece| piece.bare).collect()
}

/// Returns a text in which no question mark is a placeholder, so that the database gets it as it is
/// written. Only a dialect with operators such as `?` distinguishes the two.
#[cfg(feature = "migrate")]
pub(crate) fn verbatim<'a>(dialect: &Dialect, sql: &'a str) -> Cow<'a, str> {
    if !dialect.doubled_question_marks || !sql.contains('?') {
        return Cow::Borrowed(sql);
    }
    let mut lexer = Lexer::new(dialect, sql);
    let (mut text, mut copied) = (String::new(), 0);
    while let Some(token) = lexer.next() {
        if matches!(token.kind, TokenKind::Question | TokenKind::Escaped) {
            text.push_str(&sql[copied..token.end]);
            text.push_str(token.text(sql));
            copied = token.end;
        }
    }
    text.push_str(&sql[copied..]);
    Cow::Owned(text)
}

/// Finds the end of a MySQL routine, trigger or event, whose body has semicolons between BEGIN and END.
#[derive(Default)]
struct Routine {
    /// The statement begins with CREATE.
    creates: bool,
    tokens: usize,
    body: Option<Compound>,
}

/// What CREATE makes that has a body.
const WITH_BODY: &[&str] = &["event", "function", "package", "procedure", "trigger"];

impl Routine {
    fn is_open(&self) -> bool {
        self.body.as_ref().is_some_and(|body| !body.is_over())
    }

    fn take(&mut self, token: &Token, sql: &str) {
        self.tokens += 1;
        if token.kind != TokenKind::Word {
            if let Some(body) = &mut self.body {
                body.other(token.symbol);
            }
            return;
        }
        let word = token.text(sql);
        if self.tokens == 1 {
            self.creates = is_one_of(word, &["create"]);
        }
        match &mut self.body {
            Some(body) => body.word(word, keyword(word.as_bytes())),
            None if self.creates && is_one_of(word, WITH_BODY) => {
                self.body = Some(Compound::NOT_BEGUN);
            }
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bare<'a>(dialect: &Dialect, script: &'a str) -> Vec<&'a str> {
        let pieces = pieces(dialect, script).into_iter();
        pieces.map(|piece| piece.bare).collect()
    }

    #[test]
    fn script_splits_at_semicolons_between_statements() {
        let script =
            "INSERT INTO t VALUES (';'); -- a; b\n ;\n SELECT /* c; */ \"a;b\" FROM t; -- d";
        assert_eq!(
            bare(&Dialect::ODBC, script),
            [
                "INSERT INTO t VALUES (';')",
                "SELECT /* c; */ \"a;b\" FROM t"
            ]
        );
        assert_eq!(bare(&Dialect::ODBC, " ; "), [""; 0]);
    }

    #[test]
    fn the_body_of_a_trigger_stays_whole_where_there_are_such() {
        let trigger = "CREATE TRIGGER a AFTER INSERT ON t BEGIN DELETE FROM u; DELETE FROM v; END";
        let script = format!("{trigger}; SELECT 1");
        assert_eq!(bare(&Dialect::SQLITE, &script), [trigger, "SELECT 1"]);
    }

    #[test]
    fn the_body_of_a_mysql_routine_stays_whole() {
        for routine in [
            "CREATE PROCEDURE p(n INT) BEGIN IF n > 1 THEN SELECT 1; ELSE SELECT 2; END IF; SELECT 3; END",
            "CREATE DEFINER = 'a'@'b' TRIGGER t AFTER INSERT ON x FOR EACH ROW BEGIN SET @a = 1; DELETE FROM y; END",
            "CREATE OR REPLACE FUNCTION f() RETURNS INT BEGIN DECLARE i INT; WHILE i < 3 DO SET i = i + 1; END WHILE; RETURN i; END",
            "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO BEGIN DELETE FROM y; DELETE FROM z; END",
            "CREATE FUNCTION g() RETURNS INT RETURN CASE WHEN 1 THEN 2 END",
            "CREATE TABLE trigger_log (begin INT)",
        ] {
            let script = format!("{routine}; SELECT 1");
            assert_eq!(bare(&Dialect::MYSQL, &script), [routine, "SELECT 1"]);
        }
    }

    #[test]
    fn each_piece_has_the_keyword_that_it_begins_with() {
        let script = "-- a\nDelete FROM t; beginning; /*!50003 CREATE */ PROCEDURE p() SELECT 1; (SELECT 1); 'select'";
        let pieces = pieces(&Dialect::MYSQL, script);
        let verbs: Vec<_> = pieces.iter().map(|piece| piece.verb).collect();
        let (delete, create) = (Some(Keyword::Delete), Some(Keyword::Create));
        assert_eq!(verbs, [delete, None, create, Some(Keyword::Select), None]);
    }

    #[cfg(feature = "migrate")]
    #[test]
    fn comments_that_the_server_reads_stay_with_their_statement() {
        let script = "/*!40101 SET NAMES utf8 */;\nCREATE TABLE t (a INT) /*!50100 ENGINE = x */;";
        let pieces = pieces(&Dialect::MYSQL, script);
        let texts: Vec<&str> = pieces.iter().map(|piece| piece.text).collect();
        assert_eq!(
            texts,
            [
                "/*!40101 SET NAMES utf8 */",
                "CREATE TABLE t (a INT) /*!50100 ENGINE = x */"
            ]
        );
        assert!(script[pieces[1].offset..].starts_with("CREATE"));
    }

    #[cfg(feature = "migrate")]
    #[test]
    fn verbatim_text_reaches_the_database_as_it_is_written() {
        let sql = "SELECT a ? 'b', a ?| c, a ?? d, '?', $$ ? $$ -- ?";
        let sent = verbatim(&Dialect::POSTGRES, sql);
        let scanned = super::super::scan(&Dialect::POSTGRES, &sent).unwrap();
        assert_eq!(scanned.sql, sql);
        assert_eq!(scanned.placeholders, super::super::Placeholders::None);
        assert_eq!(verbatim(&Dialect::SQLITE, "SELECT ?"), "SELECT ?");
    }
}
