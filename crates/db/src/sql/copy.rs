//! Finds PostgreSQL's COPY from or to the client.

use super::lexer::Token;
use super::resolved::is_word;

/// The search for such a COPY, token by token.
///
/// FROM and TO are reserved words. The first of them outside parentheses precedes the other side, where the only
/// possible words are STDIN, STDOUT and PROGRAM.
pub(super) enum ClientCopy {
    /// Only semicolons so far.
    Start,
    /// After COPY, with this many open parentheses.
    Copy(usize),
    /// After FROM or TO.
    Side,
    Over,
}

impl ClientCopy {
    /// Takes a token. Returns whether it names the client as a side of a COPY.
    pub(super) fn take(&mut self, token: &Token, sql: &str) -> bool {
        let depth = match *self {
            ClientCopy::Over => return false,
            ClientCopy::Start => {
                *self = match is_word(token, &["copy"], sql) {
                    true => ClientCopy::Copy(0),
                    false if token.is_symbol(b';') => ClientCopy::Start,
                    false => ClientCopy::Over,
                };
                return false;
            }
            ClientCopy::Side => {
                *self = ClientCopy::Over;
                return is_word(token, &["stdin", "stdout"], sql);
            }
            ClientCopy::Copy(depth) => depth,
        };
        *self = match token.symbol {
            b'(' => ClientCopy::Copy(depth + 1),
            b')' => ClientCopy::Copy(depth.saturating_sub(1)),
            _ if depth == 0 && is_word(token, &["from", "to"], sql) => ClientCopy::Side,
            _ => ClientCopy::Copy(depth),
        };
        false
    }
}

#[cfg(test)]
mod tests {
    use crate::sql::{Dialect, classify};

    fn copies_through_client(sql: &str) -> bool {
        classify(&Dialect::POSTGRES, sql).resolved.copies
    }

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
