//! Finds PostgreSQL's COPY from or to the client.

use super::lexer::Token;
use super::resolved::is_word;

/// What a COPY moves through the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClientCopy {
    /// FROM STDIN: rows from the client.
    In,
    /// TO STDOUT: rows to the client, of a table or of the query at this place of the text.
    Out { query: Option<(usize, usize)> },
}

/// The search for such a COPY, token by token.
///
/// FROM and TO are reserved words. The first of them outside parentheses precedes the other side, where the only
/// possible words are STDIN, STDOUT and PROGRAM.
pub(super) enum CopyFinder {
    /// Only semicolons so far.
    Start,
    /// After COPY.
    Copy(Source),
    /// After FROM or TO.
    Side(ClientCopy),
    Over,
}

/// What is copied, as far as it was read.
#[derive(Clone, Copy, Default)]
pub(super) struct Source {
    has_begun: bool,
    /// The number of open parentheses.
    depth: usize,
    /// The text inside the parentheses right after COPY.
    query: Option<(usize, usize)>,
}

impl CopyFinder {
    /// Takes a token. Returns the COPY if the token names the client as its other side.
    pub(super) fn take(&mut self, token: &Token, sql: &str) -> Option<ClientCopy> {
        *self = match self {
            CopyFinder::Over => return None,
            CopyFinder::Start if token.is_symbol(b';') => CopyFinder::Start,
            CopyFinder::Start if is_word(token, &["copy"], sql) => {
                CopyFinder::Copy(Source::default())
            }
            CopyFinder::Start => CopyFinder::Over,
            CopyFinder::Copy(source) => source.take(token, sql),
            CopyFinder::Side(copy) => {
                let copy = *copy;
                *self = CopyFinder::Over;
                return is_word(token, &["stdin", "stdout"], sql).then_some(copy);
            }
        };
        None
    }
}

impl Source {
    fn take(mut self, token: &Token, sql: &str) -> CopyFinder {
        let is_first = !self.has_begun;
        self.has_begun = true;
        match token.symbol {
            b'(' => {
                if is_first {
                    self.query = Some((token.end, token.end));
                }
                self.depth += 1;
            }
            b')' => {
                self.depth = self.depth.saturating_sub(1);
                if let Some((start, end)) = self.query
                    && self.depth == 0
                    && start == end
                {
                    self.query = Some((start, token.start));
                }
            }
            _ if self.depth == 0 && is_word(token, &["from"], sql) => {
                return CopyFinder::Side(ClientCopy::In);
            }
            _ if self.depth == 0 && is_word(token, &["to"], sql) => {
                return CopyFinder::Side(ClientCopy::Out { query: self.query });
            }
            _ => {}
        }
        CopyFinder::Copy(self)
    }
}

#[cfg(test)]
mod tests {
    use super::ClientCopy;
    use crate::sql::{Dialect, classify};

    fn copies(sql: &str) -> Option<ClientCopy> {
        classify(&Dialect::POSTGRES, sql).resolved.copies
    }

    #[test]
    fn the_clients_side_of_a_copy_is_seen() {
        for sql in [
            "COPY t FROM STDIN",
            "copy t (a, b) from stdin with (format csv)",
            ";;-- x\nCOPY BINARY t FROM stdin",
            "COPY s.t FROM STDOUT WHERE a > 1",
        ] {
            assert_eq!(copies(sql), Some(ClientCopy::In), "{sql}");
        }
        for sql in [
            "/* a /* b */ */ COPY \"from\" TO STDOUT",
            "COPY t (a, b) TO STDIN",
        ] {
            assert_eq!(copies(sql), Some(ClientCopy::Out { query: None }), "{sql}");
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
            assert_eq!(copies(sql), None, "{sql}");
        }
    }

    #[test]
    fn the_query_of_a_copy_is_found() {
        for (sql, expected) in [
            ("COPY (SELECT 1 FROM t) TO STDOUT;", "SELECT 1 FROM t"),
            (
                "COPY(SELECT f(')', \")\") /* ) */)TO stdout",
                "SELECT f(')', \")\") /* ) */",
            ),
            ("COPY ((TABLE t)) TO STDOUT (FORMAT csv)", "(TABLE t)"),
            ("COPY () TO STDOUT", ""),
        ] {
            let Some(ClientCopy::Out {
                query: Some((start, end)),
            }) = copies(sql)
            else {
                panic!("no query found: {sql}");
            };
            assert_eq!(&sql[start..end], expected);
        }
    }
}
