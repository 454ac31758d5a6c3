//! Masks SQL for logs: one line, shortened, without literals.

use super::dialect::Dialect;
use super::lexer::{Lexer, TokenKind};

/// The most characters of a text that a message or a log line shows.
const LONGEST: usize = 120;

/// How many of them are before the place that an error is about, in a text that is cut at its beginning.
const BEFORE_PLACE: usize = 60;

/// What stands for a literal. Not `?`, which is a placeholder.
pub(crate) const MASK: &str = "***";

/// Returns the text in one line of at most 120 characters, without comments, with `***` in place of every string and number.
pub(crate) fn masked(dialect: &Dialect, sql: &str) -> String {
    masked_at(dialect, sql, None)
}

/// As [`masked`], with an arrow before the token at this character, counted from 1. If that is far behind, the text is cut at its
/// beginning.
pub(crate) fn masked_at(dialect: &Dialect, sql: &str, character: Option<usize>) -> String {
    let place = character.map(|character| {
        let mut starts = sql.char_indices().map(|(at, _)| at);
        let start = starts.nth(character.saturating_sub(1));
        start.unwrap_or(sql.len())
    });
    let mut lexer = Lexer::new(dialect, sql);
    let mut shown = Shown::default();
    let (mut end, mut after_number) = (0, false);
    while let Some(token) = lexer.next() {
        let is_apart = token.start > end;
        // The end of a number: 1e5, 0xff.
        let continues_number = after_number && !is_apart && token.kind == TokenKind::Word;
        if !continues_number {
            if is_apart && shown.length > 0 {
                shown.push(" ");
            }
            if place.is_some_and(|place| place < token.end) {
                shown.mark();
            }
            shown.push(match token.kind {
                TokenKind::Text | TokenKind::Number => MASK,
                TokenKind::Quoted if may_be_string(dialect, token.text(sql)) => MASK,
                _ => token.text(sql),
            });
            after_number = token.kind == TokenKind::Number;
        }
        end = token.end;
        let needed = shown.arrow.unwrap_or(0) + LONGEST;
        if shown.length > needed && (place.is_none() || shown.arrow.is_some()) {
            break;
        }
    }
    if place.is_some() {
        // An error at the end of the text.
        shown.mark();
    }
    shown.cut()
}

/// A masked text, before it is cut.
#[derive(Default)]
struct Shown {
    text: String,
    /// In characters.
    length: usize,
    /// The character at which the arrow is.
    arrow: Option<usize>,
}

impl Shown {
    fn push(&mut self, text: &str) {
        // A quoted name may contain a line break.
        let is_shown = |character: char| match character.is_control() {
            true => ' ',
            false => character,
        };
        self.text.extend(text.chars().map(is_shown));
        self.length += text.chars().count();
    }

    /// Sets the arrow, once.
    fn mark(&mut self) {
        if self.arrow.is_none() {
            self.arrow = Some(self.length);
            self.push("→");
        }
    }

    /// Returns the part that is shown, with an ellipsis where something is cut off.
    fn cut(self) -> String {
        let arrow = self.arrow.unwrap_or(0);
        if self.length <= LONGEST {
            return self.text;
        }
        let start = match arrow + LONGEST / 4 < LONGEST {
            true => 0,
            false => arrow - BEFORE_PLACE,
        };
        let mut part: String = self.text.chars().skip(start).take(LONGEST).collect();
        if self.length - start > LONGEST {
            part.pop();
            part.push('…');
        }
        if start > 0 {
            part.remove(0);
            part.insert(0, '…');
        }
        part
    }
}

/// Returns whether the database may read a name in double quotes as a string. SQLite does so where no column has the name, and
/// behind ODBC there may be MySQL. What looks like a name is shown.
pub(super) fn may_be_string(dialect: &Dialect, quoted: &str) -> bool {
    let Some(name) = quoted.strip_prefix('"') else {
        return false;
    };
    let name = name.strip_suffix('"').unwrap_or(name);
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    // PostgreSQL alone has strings in dollars: in its double quotes there are names only.
    !dialect.dollar_quotes && !name.chars().all(is_name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn literals_and_comments_are_masked() {
        let dialects = [&Dialect::SQLITE, &Dialect::POSTGRES, &Dialect::MYSQL];
        for (sql, expected) in [
            (
                "SELECT  a\n FROM t -- secret\nWHERE b = 'x''y'",
                "SELECT a FROM t WHERE b = ***",
            ),
            (
                "INSERT INTO t VALUES (1, 2.5, -3e10, 0xff, 'a')",
                "INSERT INTO t VALUES (***, ***, -***, ***, ***)",
            ),
            (
                "SELECT t1.a2 FROM t1 /* secret */ WHERE id = ?",
                "SELECT t1.a2 FROM t1 WHERE id = ?",
            ),
            ("SELECT 'never closed", "SELECT ***"),
            ("", ""),
        ] {
            for dialect in dialects {
                assert_eq!(masked(dialect, sql), expected);
            }
        }
        let sql = r"SELECT E'it\'s' || $$secret$$ || $a$b$a$, $1";
        assert_eq!(
            masked(&Dialect::POSTGRES, sql),
            "SELECT *** || *** || ***, $1"
        );
        assert_eq!(masked(&Dialect::MYSQL, r#"SELECT "a\"b""#), "SELECT ***");
        let sql = r#"SELECT "id" FROM "my table" WHERE email = "ada@example.com""#;
        for dialect in [&Dialect::SQLITE, &Dialect::ODBC] {
            let expected = r#"SELECT "id" FROM *** WHERE email = ***"#;
            assert_eq!(masked(dialect, sql), expected);
        }
        assert_eq!(masked(&Dialect::POSTGRES, sql), sql);
    }

    #[test]
    fn a_long_text_is_cut_to_120_characters() {
        let sql = format!("SELECT {}", "größe, ".repeat(100));
        let shown = masked(&Dialect::POSTGRES, &sql);
        assert_eq!(shown.chars().count(), LONGEST);
        assert!(shown.ends_with('…'), "{shown}");
        let exactly = "x".repeat(LONGEST);
        assert_eq!(masked(&Dialect::POSTGRES, &exactly), exactly);
    }

    #[test]
    fn an_arrow_is_before_the_token_that_an_error_is_about() {
        let at = |sql: &str, wanted: &str| {
            let before = &sql[..sql.find(wanted).expect("it is there")];
            masked_at(&Dialect::POSTGRES, sql, Some(before.chars().count() + 1))
        };
        let sql = "SELECT 'größe',\n  /* why */ wrong FROM t";
        assert_eq!(at(sql, "wrong"), "SELECT ***, →wrong FROM t");
        assert_eq!(at(sql, "'g"), "SELECT →***, wrong FROM t");
        // Inside of a token, inside of a comment, and behind the end.
        assert_eq!(at(sql, "ng FROM"), "SELECT ***, →wrong FROM t");
        assert_eq!(at(sql, "why"), "SELECT ***, →wrong FROM t");
        let behind = masked_at(&Dialect::POSTGRES, "SELECT (1", Some(10));
        assert_eq!(behind, "SELECT (***→");
        // Far behind, the beginning is cut off.
        let long = format!(
            "SELECT {} wrong FROM t WHERE a = 'secret'",
            "größe, ".repeat(100)
        );
        let shown = at(&long, "wrong");
        assert!(
            shown.starts_with('…') && shown.contains(" →wrong FROM t"),
            "{shown}"
        );
        assert!(
            shown.chars().count() <= LONGEST && !shown.contains("secret"),
            "{shown}"
        );
        let both = format!("{long} {}", "AND b = 1 ".repeat(50));
        let shown = at(&both, "wrong");
        assert!(shown.starts_with('…') && shown.ends_with('…'), "{shown}");
        assert_eq!(shown.chars().count(), LONGEST);
    }

    proptest! {
        #[test]
        fn no_string_survives(before in "[a-z =(,]{0,40}", secret in "[A-Z]{4,8}") {
            for dialect in [&Dialect::SQLITE, &Dialect::POSTGRES, &Dialect::MYSQL] {
                let shown = masked(dialect, &format!("{before} '{secret}' {before}"));
                prop_assert!(!shown.contains(&secret), "{}", shown);
                prop_assert!(shown.chars().count() <= LONGEST);
                for character in 1..100 {
                    let shown = masked_at(dialect, &format!("{before} '{secret}' {before}"), Some(character));
                    prop_assert!(!shown.contains(&secret), "{}", shown);
                    prop_assert!(shown.chars().count() <= LONGEST);
                }
            }
        }
    }
}
