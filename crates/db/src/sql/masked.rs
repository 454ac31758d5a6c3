//! Masks SQL for logs: one line, shortened, without literals.

use super::dialect::Dialect;
use super::lexer::{Kind, Lexer};

/// The most characters of a text that a message or a log line shows.
const LONGEST: usize = 120;

/// Returns the text in one line of at most 120 characters, without comments, with `?` in place of every string and number.
pub(crate) fn masked(dialect: &Dialect, sql: &str) -> String {
    let mut lexer = Lexer::new(dialect, sql);
    let mut shown = String::new();
    let mut length = 0;
    let (mut end, mut after_number) = (0, false);
    while let Some(token) = lexer.next() {
        let is_apart = token.start > end;
        // The end of a number: 1e5, 0xff.
        let continues_number = after_number && !is_apart && token.kind == Kind::Word;
        if !continues_number {
            let gap = if is_apart && length > 0 { " " } else { "" };
            let text = match token.kind {
                Kind::Text | Kind::Number => "?",
                Kind::Quoted if may_be_string(dialect, token.text(sql)) => "?",
                _ => token.text(sql),
            };
            for character in gap.chars().chain(text.chars()) {
                if length >= LONGEST {
                    return cut(shown);
                }
                // A quoted name may contain a line break.
                shown.push(if character.is_control() {
                    ' '
                } else {
                    character
                });
                length += 1;
            }
            after_number = token.kind == Kind::Number;
        }
        end = token.end;
    }
    shown
}

/// Returns whether the database may read a name in double quotes as a string. SQLite does so where no column has the name, and
/// behind ODBC there may be MySQL. What looks like a name is shown.
fn may_be_string(dialect: &Dialect, quoted: &str) -> bool {
    let Some(name) = quoted.strip_prefix('"') else {
        return false;
    };
    let name = name.strip_suffix('"').unwrap_or(name);
    let is_name = |letter: char| letter.is_alphanumeric() || letter == '_';
    // PostgreSQL alone has strings in dollars: in its double quotes there are names only.
    !dialect.dollar_quotes && !name.chars().all(is_name)
}

/// Replaces the last character by an ellipsis.
fn cut(mut shown: String) -> String {
    shown.pop();
    shown.push('…');
    shown
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
                "SELECT a FROM t WHERE b = ?",
            ),
            (
                "INSERT INTO t VALUES (1, 2.5, -3e10, 0xff, 'a')",
                "INSERT INTO t VALUES (?, ?, -?, ?, ?)",
            ),
            (
                "SELECT t1.a2 FROM t1 /* secret */ WHERE id = ?",
                "SELECT t1.a2 FROM t1 WHERE id = ?",
            ),
            ("SELECT 'never closed", "SELECT ?"),
            ("", ""),
        ] {
            for dialect in dialects {
                assert_eq!(masked(dialect, sql), expected);
            }
        }
        let sql = r"SELECT E'it\'s' || $$secret$$ || $a$b$a$, $1";
        assert_eq!(masked(&Dialect::POSTGRES, sql), "SELECT ? || ? || ?, $1");
        assert_eq!(masked(&Dialect::MYSQL, r#"SELECT "a\"b""#), "SELECT ?");
        let sql = r#"SELECT "id" FROM "my table" WHERE email = "ada@example.com""#;
        for dialect in [&Dialect::SQLITE, &Dialect::ODBC] {
            let expected = r#"SELECT "id" FROM ? WHERE email = ?"#;
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

    proptest! {
        #[test]
        fn no_string_survives(before in "[a-z =(,]{0,40}", secret in "[A-Z]{4,8}") {
            for dialect in [&Dialect::SQLITE, &Dialect::POSTGRES, &Dialect::MYSQL] {
                let shown = masked(dialect, &format!("{before} '{secret}' {before}"));
                prop_assert!(!shown.contains(&secret), "{}", shown);
                prop_assert!(shown.chars().count() <= LONGEST);
            }
        }
    }
}
