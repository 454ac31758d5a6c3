//! COPY, as PostgreSQL reads it.

use super::dialect::Dialect;
use super::lexer::{Kind, Lexer};
use super::statement::is_one_of;

/// Whether a text is a single COPY whose data comes from the client or goes there.
///
/// FROM and TO are reserved words: the first of them outside parentheses names the other side,
/// and there a word can be nothing but STDIN, STDOUT or PROGRAM.
pub(crate) fn copies_through_client(sql: &str) -> bool {
    let mut lexer = Lexer::new(&Dialect::POSTGRES, sql);
    let mut tokens = std::iter::from_fn(|| lexer.next()).skip_while(|token| token.is_symbol(b';'));
    let is_word = |token: &super::lexer::Token, words: &[&str]| {
        token.kind == Kind::Word && is_one_of(token.text(sql), words)
    };
    if !tokens
        .next()
        .is_some_and(|first| is_word(&first, &["copy"]))
    {
        return false;
    }
    let mut depth = 0_usize;
    while let Some(token) = tokens.next() {
        if token.is_symbol(b'(') {
            depth += 1;
        } else if token.is_symbol(b')') {
            depth = depth.saturating_sub(1);
        } else if depth == 0 && is_word(&token, &["from", "to"]) {
            let side = tokens.next();
            return side.is_some_and(|side| is_word(&side, &["stdin", "stdout"]));
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clients_side_of_a_copy_is_seen() {
        for sql in [
            "COPY t FROM STDIN",
            "copy t (a, b) from stdin with (format csv)",
            ";;-- x\nCOPY BINARY t FROM stdin",
            "/* a /* b */ */ COPY \"from\" TO STDOUT",
            "COPY (SELECT 1 FROM t) TO STDOUT;",
            "COPY t TO STDIN",
            "COPY s.t FROM STDOUT WHERE a > 1",
        ] {
            assert!(copies_through_client(sql), "{sql}");
        }
        for sql in [
            "COPY t FROM '/file'",
            "COPY t FROM PROGRAM 'cat'",
            "COPY (SELECT 'x' FROM stdin) TO $$/file$$",
            "COPY stdin TO E'/file'",
            "SELECT 1 FROM stdin",
            "COPY t",
            "COPY t FROM",
            "",
            "-- COPY t FROM STDIN",
        ] {
            assert!(!copies_through_client(sql), "{sql}");
        }
    }
}
