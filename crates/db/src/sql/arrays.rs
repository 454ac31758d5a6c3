//! Finds out whether a text says that a parameter is an array.

use super::dialect::Dialect;
use super::lexer::{Lexer, Token, TokenKind};

/// Returns whether the database can read the parameters with these numbers, counted from 1, only as arrays, wherever
/// the text uses them: `ANY($1)`, `ALL($1)`, `unnest($1`, `$1::int8[]`.
pub(crate) fn are_arrays(dialect: &Dialect, sql: &str, is_asked: impl Fn(usize) -> bool) -> bool {
    let mut lexer = Lexer::new(dialect, sql);
    let (mut before, mut last) = (Token::NONE, Token::NONE);
    let mut next = lexer.next();
    while let Some(token) = next {
        next = lexer.next();
        let number = match token.kind {
            TokenKind::Numbered => token.text(sql)[1..].parse().ok(),
            _ => None,
        };
        if number.is_some_and(&is_asked) {
            let in_call = last.is_symbol(b'(') && takes_array(before.text(sql));
            let is_cast = next.is_some_and(|next| next.text(sql) == "::");
            if !(in_call || is_cast && names_array(&sql[token.end..])) {
                return false;
            }
        }
        (before, last) = (last, token);
    }
    true
}

fn takes_array(word: &str) -> bool {
    ["ANY", "ALL", "SOME", "UNNEST"]
        .iter()
        .any(|known| known.eq_ignore_ascii_case(word))
}

/// Returns whether this is a cast to an array: `::int8[]`, `:: my.kind []`.
fn names_array(cast: &str) -> bool {
    let name = cast.trim_start().trim_start_matches(':');
    let is_name = |letter: char| letter.is_alphanumeric() || matches!(letter, '_' | '.');
    let behind = name.trim_start().trim_start_matches(is_name);
    behind.trim_start().starts_with('[')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_forms_that_take_arrays_alone_are_certain() {
        for (sql, certain) in [
            ("SELECT a FROM t WHERE b = ANY($1)", true),
            ("SELECT a FROM t WHERE b <> all ( $1 )", true),
            ("INSERT INTO t SELECT * FROM unnest($1, 2)", true),
            ("SELECT $1::int8[]", true),
            ("SELECT $1 :: my.kind []", true),
            ("SELECT b IN ($1)", false),
            ("SELECT b NOT IN ($1)", false),
            ("SELECT b = $1", false),
            ("SELECT $1::text", false),
            ("SELECT '[' || $1::text || '['", false),
            ("SELECT b = ANY($1) OR c IN ($1)", false),
            ("SELECT b = ANY($1) OR c IN ($2)", true),
            ("SELECT b = 'ANY($1)' OR c = $1", false),
            ("SELECT $1::text AND b[1] = 2", false),
            ("SELECT 1", true),
        ] {
            let found = are_arrays(&Dialect::POSTGRES, sql, |number| number == 1);
            assert_eq!(found, certain, "{sql}");
        }
    }
}
