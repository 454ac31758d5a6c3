//! Splits SQL into tokens. White space and comments are skipped.

use super::dialect::{Backslashes, Brackets, Dialect, DoubleQuotes, PlaceholderStyle};

/// A piece of SQL. It begins and ends between characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) kind: TokenKind,
    /// The character of a [`TokenKind::Symbol`], else 0.
    pub(super) symbol: u8,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// A keyword or an identifier.
    Word,
    /// Digits and points. Letters that follow, as in `1e5`, are a word of their own: some servers read `1INTO` as two
    /// tokens.
    Number,
    /// A string, with its quotes.
    Text,
    /// A quoted identifier, with its quotes.
    Quoted,
    /// Anything else: one character, or one of `::`, `:=`, `@@`.
    Symbol,
    /// The placeholder `?`.
    Question,
    /// The placeholder `?1` or `$1`, if the database has it.
    Numbered,
    /// The placeholder `:name`.
    Named,
    /// `??`, which means a question mark.
    Escaped,
    /// A placeholder of the database that Cenote does not support.
    Foreign,
}

impl Token {
    pub(super) const NONE: Token = Token {
        kind: TokenKind::Symbol,
        symbol: 0,
        start: 0,
        end: 0,
    };

    pub(super) fn text<'a>(&self, sql: &'a str) -> &'a str {
        &sql[self.start..self.end]
    }

    pub(super) fn bytes<'a>(&self, sql: &'a str) -> &'a [u8] {
        &sql.as_bytes()[self.start..self.end]
    }

    pub(super) fn is_symbol(&self, symbol: u8) -> bool {
        self.symbol == symbol
    }

    pub(super) fn len(&self) -> usize {
        self.end - self.start
    }
}

pub(super) struct Lexer<'a> {
    dialect: &'a Dialect,
    sql: &'a str,
    at: usize,
    previous: Token,
    /// The lexer is inside `/*! … */`.
    executable: bool,
    /// The text has an executable comment.
    had_executable: bool,
    /// One bit for each open bracket, the innermost last: set if the bracket holds a subscript. Brackets deeper than 64
    /// are forgotten; only the meaning of a colon in them depends on it.
    subscripts: u64,
}

/// What a token can begin with a byte.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Byte {
    Space,
    /// Letters, `_` and everything beyond ASCII.
    Letter,
    Digit,
    /// A symbol of one character.
    Symbol,
    /// It depends on the next bytes, or on the dialect.
    Special,
}

const fn class(byte: u8) -> Byte {
    match byte {
        b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c => Byte::Space,
        b'A'..=b'Z' | b'a'..=b'z' | b'_' | 0x80.. => Byte::Letter,
        b'0'..=b'9' => Byte::Digit,
        b'\'' | b'"' | b'`' | b'[' | b']' | b'$' | b'-' | b'/' | b'*' | b'#' | b':' | b'?'
        | b'@' => Byte::Special,
        _ => Byte::Symbol,
    }
}

/// Returns whether a word can contain this byte.
pub(super) const fn continues_word(byte: u8) -> bool {
    continues_name(byte) || byte == b'$'
}

/// Returns whether the name of a placeholder can contain this byte.
const fn continues_name(byte: u8) -> bool {
    matches!(class(byte), Byte::Letter | Byte::Digit)
}

/// The results of [`class`] and [`continues_word`] for all bytes, because the lexer needs one for each byte.
static CLASSES: [Byte; 256] = tables().0;
static IN_WORDS: [bool; 256] = tables().1;

const fn tables() -> ([Byte; 256], [bool; 256]) {
    let mut classes = [Byte::Symbol; 256];
    let mut in_words = [false; 256];
    let mut byte = u8::MIN;
    loop {
        classes[byte as usize] = class(byte);
        in_words[byte as usize] = continues_word(byte);
        if byte == u8::MAX {
            return (classes, in_words);
        }
        byte += 1;
    }
}

impl<'a> Lexer<'a> {
    #[inline]
    pub(super) fn new(dialect: &'a Dialect, sql: &'a str) -> Self {
        Lexer {
            dialect,
            sql,
            at: 0,
            previous: Token::NONE,
            executable: false,
            had_executable: false,
            subscripts: 0,
        }
    }

    /// Returns whether the text has an executable comment, so that some versions of the server read other SQL.
    pub(super) fn had_executable_comment(&self) -> bool {
        self.had_executable
    }

    /// Returns the next token, or `None` at the end.
    #[inline]
    pub(super) fn next(&mut self) -> Option<Token> {
        loop {
            let byte = self.peek(0)?;
            let start = self.at;
            let found = match CLASSES[usize::from(byte)] {
                Byte::Space => {
                    self.at += 1;
                    continue;
                }
                Byte::Letter => self.word(start),
                Byte::Digit => {
                    let end = self.end_of(start + 1, |byte| byte.is_ascii_digit() || byte == b'.');
                    Some((TokenKind::Number, end))
                }
                Byte::Symbol => Some((TokenKind::Symbol, start + 1)),
                Byte::Special => self.special(byte, start),
            };
            // `None`: it was a comment, which is skipped now.
            if let Some((kind, end)) = found {
                let symbol = if kind == TokenKind::Symbol { byte } else { 0 };
                let token = Token {
                    kind,
                    symbol,
                    start,
                    end,
                };
                self.at = end;
                self.previous = token;
                return Some(token);
            }
        }
    }

    fn bytes(&self) -> &'a [u8] {
        self.sql.as_bytes()
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes().get(self.at + ahead).copied()
    }

    /// Returns where the bytes of this kind end, from `start` on.
    #[inline]
    fn end_of(&self, start: usize, belongs: impl Fn(u8) -> bool) -> usize {
        let rest = self.bytes().get(start..).unwrap_or_default();
        let length = rest.iter().position(|byte| !belongs(*byte));
        start + length.unwrap_or(rest.len())
    }

    /// Reads a word, or an `E'…'`. `None` if it was white space.
    #[inline]
    fn word(&mut self, start: usize) -> Option<(TokenKind, usize)> {
        let bytes = self.bytes();
        if self.dialect.byte_order_marks && bytes[start..].starts_with("\u{feff}".as_bytes()) {
            self.at += '\u{feff}'.len_utf8();
            return None;
        }
        let end = self.end_of(start + 1, |byte| IN_WORDS[usize::from(byte)]);
        let is_e_string = end - start == 1
            && self.dialect.backslashes == Backslashes::InEStrings
            && bytes[start].eq_ignore_ascii_case(&b'e')
            && bytes.get(end) == Some(&b'\'');
        if is_e_string {
            return Some((TokenKind::Text, self.end_of_e_string(end)));
        }
        Some((TokenKind::Word, end))
    }

    /// Reads a token that begins with a character of several meanings. `None` if it was a comment.
    fn special(&mut self, byte: u8, start: usize) -> Option<(TokenKind, usize)> {
        let dialect = self.dialect;
        let next = self.peek(1);
        let token = match byte {
            b'\'' => {
                let backslash = dialect.backslashes == Backslashes::InStrings;
                (TokenKind::Text, self.end_of_quotes(start, b'\'', backslash))
            }
            b'"' if dialect.double_quotes == DoubleQuotes::String => {
                let backslash = dialect.backslashes == Backslashes::InStrings;
                (TokenKind::Text, self.end_of_quotes(start, b'"', backslash))
            }
            b'"' => (TokenKind::Quoted, self.end_of_quotes(start, b'"', false)),
            b'`' if dialect.backticks => {
                (TokenKind::Quoted, self.end_of_quotes(start, b'`', false))
            }
            b'[' => self.bracket(start),
            b']' => {
                self.subscripts >>= 1;
                (TokenKind::Symbol, start + 1)
            }
            b'-' if next == Some(b'-') && self.dashes_are_comment() => {
                let returns = dialect.carriage_return_ends_comment;
                self.at = self.end_of(start, |byte| byte != b'\n' && !(returns && byte == b'\r'));
                return None;
            }
            b'#' if dialect.hash_comments => {
                self.at = self.end_of(start, |byte| byte != b'\n');
                return None;
            }
            b'/' if next == Some(b'*') => {
                self.skip_block_comment(start);
                return None;
            }
            b'*' if self.executable && next == Some(b'/') => {
                self.executable = false;
                self.at += 2;
                return None;
            }
            b':' => self.colon(start),
            b'?' => self.question(start),
            b'$' => self.dollar(start),
            b'@' if next == Some(b'@') => (TokenKind::Symbol, start + 2),
            b'@' if dialect.own_variables && next.is_some_and(continues_word) => {
                self.foreign(start)
            }
            _ => (TokenKind::Symbol, start + 1),
        };
        Some(token)
    }

    /// Returns where the quotes that open at `start` close: behind the first quote that is not doubled.
    fn end_of_quotes(&self, start: usize, quote: u8, backslash: bool) -> usize {
        let bytes = self.bytes();
        let mut at = start + 1;
        loop {
            at = self.end_of(at, |byte| byte != quote && !(backslash && byte == b'\\'));
            match bytes.get(at) {
                None => return bytes.len(),
                Some(b'\\') if backslash => at += 2,
                Some(_) if bytes.get(at + 1) == Some(&quote) => at += 2,
                Some(_) => return at + 1,
            }
        }
    }

    /// Returns where an `E'…'` ends whose quote is at `quote`. A string on the next line continues it, under the same
    /// rules.
    fn end_of_e_string(&self, quote: usize) -> usize {
        let bytes = self.bytes();
        let mut end = self.end_of_quotes(quote, b'\'', true);
        loop {
            let mut at = end;
            let mut new_line = false;
            loop {
                match bytes.get(at) {
                    Some(b'\n' | b'\r') => new_line = true,
                    Some(byte) if class(*byte) == Byte::Space => {}
                    Some(b'-') if bytes.get(at + 1) == Some(&b'-') => {
                        at = self.end_of(at, |byte| byte != b'\n' && byte != b'\r');
                        continue;
                    }
                    Some(b'\'') if new_line => break,
                    _ => return end,
                }
                at += 1;
            }
            end = self.end_of_quotes(at, b'\'', true);
        }
    }

    fn bracket(&mut self, start: usize) -> (TokenKind, usize) {
        match self.dialect.brackets {
            Brackets::Identifier => {
                let close = self.end_of(start, |byte| byte != b']');
                (TokenKind::Quoted, (close + 1).min(self.sql.len()))
            }
            Brackets::DoubledIdentifier => {
                (TokenKind::Quoted, self.end_of_quotes(start, b']', false))
            }
            Brackets::Subscript => {
                // After a value it is a subscript, else an array: ARRAY[1, 2], [[1], [2]].
                let array = self.previous.text(self.sql).eq_ignore_ascii_case("array");
                let subscript = self.follows_value() && !array;
                self.subscripts = self.subscripts << 1 | u64::from(subscript);
                (TokenKind::Symbol, start + 1)
            }
            Brackets::Symbol => (TokenKind::Symbol, start + 1),
        }
    }

    /// Returns whether the token before is a value, or ends one.
    fn follows_value(&self) -> bool {
        match self.previous.kind {
            TokenKind::Symbol => matches!(self.previous.symbol, b')' | b']'),
            TokenKind::Escaped => false,
            _ => true,
        }
    }

    fn dashes_are_comment(&self) -> bool {
        !self.dialect.dashes_need_space
            || self
                .peek(2)
                .is_none_or(|byte| byte == b' ' || byte.is_ascii_control())
    }

    fn skip_block_comment(&mut self, start: usize) {
        let bytes = self.bytes();
        if self.dialect.executable_comments {
            let opening: &[u8] = match bytes.get(start + 2) {
                Some(b'M') => b"/*M!",
                _ => b"/*!",
            };
            if bytes[start..].starts_with(opening) {
                // The server reads the comment as SQL, after a version number.
                self.executable = true;
                self.had_executable = true;
                self.at = self.end_of(start + opening.len(), |byte| byte.is_ascii_digit());
                return;
            }
        }
        let mut depth = 1_usize;
        let mut at = start + 2;
        while depth > 0 {
            at = self.end_of(at, |byte| byte != b'*' && byte != b'/');
            match (bytes.get(at), bytes.get(at + 1)) {
                (None, _) => break,
                (Some(b'*'), Some(b'/')) => {
                    depth -= 1;
                    at += 2;
                }
                (Some(b'/'), Some(b'*')) if self.dialect.nested_comments => {
                    depth += 1;
                    at += 2;
                }
                _ => at += 1,
            }
        }
        self.at = at;
    }

    fn colon(&mut self, start: usize) -> (TokenKind, usize) {
        match self.peek(1) {
            Some(b':' | b'=') => (TokenKind::Symbol, start + 2),
            Some(byte) if class(byte) == Byte::Letter && !self.colon_ends_value(start) => {
                let end = self.end_of(start + 1, continues_name);
                (TokenKind::Named, end)
            }
            Some(byte) if self.dialect.own_variables && continues_word(byte) => self.foreign(start),
            _ => (TokenKind::Symbol, start + 1),
        }
    }

    /// Returns whether the colon belongs to the token before it: a label, or the lower bound of a slice.
    fn colon_ends_value(&self, start: usize) -> bool {
        let label = self.dialect.labels
            && self.previous.end == start
            && matches!(self.previous.kind, TokenKind::Word | TokenKind::Quoted);
        let slice = self.subscripts & 1 == 1 && self.follows_value();
        label || slice
    }

    fn question(&mut self, start: usize) -> (TokenKind, usize) {
        match self.peek(1) {
            Some(b'?') if self.dialect.doubled_question_marks => (TokenKind::Escaped, start + 2),
            Some(b'0'..=b'9')
                if self.dialect.placeholders == PlaceholderStyle::NumberedQuestion =>
            {
                let end = self.end_of(start + 1, |byte| byte.is_ascii_digit());
                (TokenKind::Numbered, end)
            }
            _ => (TokenKind::Question, start + 1),
        }
    }

    fn dollar(&mut self, start: usize) -> (TokenKind, usize) {
        let numbered = self.dialect.placeholders == PlaceholderStyle::NumberedDollar;
        match self.peek(1) {
            Some(b'0'..=b'9') if numbered => {
                let end = self.end_of(start + 1, |byte| byte.is_ascii_digit());
                (TokenKind::Numbered, end)
            }
            Some(byte) if self.dialect.own_variables && continues_word(byte) => self.foreign(start),
            _ => match self.end_of_dollar_quote(start) {
                Some(end) => (TokenKind::Text, end),
                None => (TokenKind::Symbol, start + 1),
            },
        }
    }

    /// Returns where a `$tag$ … $tag$` ends, or `None` if there is none.
    fn end_of_dollar_quote(&self, start: usize) -> Option<usize> {
        let bytes = self.bytes();
        if !self.dialect.dollar_quotes || bytes.get(start + 1)?.is_ascii_digit() {
            return None;
        }
        let body = self.end_of(start + 1, continues_name) + 1;
        let tag = self.sql.get(start..body)?;
        if !tag.ends_with('$') {
            return None;
        }
        let length = self.sql[body..].find(tag).map(|at| at + tag.len());
        Some(length.map_or(bytes.len(), |length| body + length))
    }

    fn foreign(&self, start: usize) -> (TokenKind, usize) {
        let end = self.end_of(start + 1, continues_word);
        (TokenKind::Foreign, end)
    }
}
