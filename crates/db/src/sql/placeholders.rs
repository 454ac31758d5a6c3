//! Collects the placeholders of a text and rewrites them for the database.

use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

use super::dialect::{Dialect, PlaceholderStyle};
use super::lexer::{Lexer, Token, TokenKind, continues_word};
use crate::{Error, Kind, Result};

/// The placeholders that need values, in the database's positions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Placeholders<'a> {
    /// The text has no placeholders.
    None,
    /// The number of placeholders without names. With numbers (`$2`, `?2`), the highest number.
    Positional(usize),
    /// The name for each position.
    Named(Vec<&'a str>),
}

impl Placeholders<'_> {
    /// Returns the number of values that the database needs.
    pub fn count(&self) -> usize {
        match self {
            Placeholders::None => 0,
            Placeholders::Positional(count) => *count,
            Placeholders::Named(names) => names.len(),
        }
    }
}

/// Collects placeholders, and rewrites the text where necessary.
pub(super) struct Rewriter<'d, 'a> {
    dialect: &'d Dialect,
    sql: &'a str,
    /// The kind of the first placeholder, and its position. All others must have this kind.
    writing: Option<Writing>,
    first: Range<usize>,
    /// The highest position so far.
    count: usize,
    names: Names<'a>,
    /// The rewritten text so far; `None` if nothing was rewritten.
    rewritten: Option<String>,
    /// Where the part of the text begins that is not in `rewritten` yet.
    copied: usize,
}

/// Ways of writing placeholders that cannot be mixed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Writing {
    Question,
    Dollar,
    Name,
}

impl<'d, 'a> Rewriter<'d, 'a> {
    #[inline]
    pub(super) fn new(dialect: &'d Dialect, sql: &'a str) -> Self {
        Rewriter {
            dialect,
            sql,
            writing: None,
            first: 0..0,
            count: 0,
            names: Names::default(),
            rewritten: None,
            copied: 0,
        }
    }

    /// Takes the next token. Most tokens are no placeholders.
    #[inline]
    pub(super) fn take(&mut self, token: &Token) -> Result<()> {
        match token.kind {
            TokenKind::Word
            | TokenKind::Number
            | TokenKind::Text
            | TokenKind::Quoted
            | TokenKind::Symbol => Ok(()),
            TokenKind::Question => self.question(token),
            TokenKind::Numbered => self.numbered(token),
            TokenKind::Named => self.named(token),
            TokenKind::Escaped => {
                self.replace(token, |out| out.push('?'));
                Ok(())
            }
            TokenKind::Foreign => Err(self.foreign(token)),
        }
    }

    #[inline]
    fn question(&mut self, token: &Token) -> Result<()> {
        self.must_be(Writing::Question, token)?;
        self.count = self.count.saturating_add(1);
        if self.dialect.placeholders == PlaceholderStyle::NumberedDollar {
            self.replace_by_number(token, '$', self.count);
        }
        Ok(())
    }

    fn numbered(&mut self, token: &Token) -> Result<()> {
        let writing = match self.dialect.placeholders {
            PlaceholderStyle::NumberedDollar => Writing::Dollar,
            PlaceholderStyle::Question | PlaceholderStyle::NumberedQuestion => Writing::Question,
        };
        self.must_be(writing, token)?;
        // The database refuses a number with too many digits.
        let number = token.text(self.sql)[1..].parse().unwrap_or(usize::MAX);
        self.count = self.count.max(number);
        Ok(())
    }

    fn named(&mut self, token: &Token) -> Result<()> {
        self.must_be(Writing::Name, token)?;
        let name = &token.text(self.sql)[1..];
        match self.dialect.placeholders {
            PlaceholderStyle::Question => {
                self.names.list.push(name);
                self.replace(token, |out| out.push('?'));
            }
            PlaceholderStyle::NumberedQuestion => {
                let position = self.names.position(name);
                self.replace_by_number(token, '?', position);
            }
            PlaceholderStyle::NumberedDollar => {
                let position = self.names.position(name);
                self.replace_by_number(token, '$', position);
            }
        }
        Ok(())
    }

    /// Returns the text to send and its placeholders. In a text that takes no parameters, `$1` belongs to what the text
    /// defines.
    #[inline]
    pub(super) fn finish(self, takes_parameters: bool) -> (Cow<'a, str>, Placeholders<'a>) {
        let placeholders = match self.writing {
            None => Placeholders::None,
            Some(Writing::Dollar) if !takes_parameters => Placeholders::None,
            Some(Writing::Name) => Placeholders::Named(self.names.list),
            Some(Writing::Question | Writing::Dollar) => Placeholders::Positional(self.count),
        };
        let text = match self.rewritten {
            None => Cow::Borrowed(self.sql),
            Some(mut out) => {
                out.push_str(&self.sql[self.copied..]);
                Cow::Owned(out)
            }
        };
        (text, placeholders)
    }

    /// Returns the length of the rewritten text, if the last token was rewritten.
    fn rewritten_up_to(&self, token: &Token) -> Option<usize> {
        let out = self.rewritten.as_ref()?;
        (self.copied == token.end).then_some(out.len())
    }

    #[inline]
    fn must_be(&mut self, writing: Writing, token: &Token) -> Result<()> {
        match self.writing {
            Some(first) if first == writing => Ok(()),
            Some(_) => Err(self.mixed(token)),
            None => {
                self.writing = Some(writing);
                self.first = token.start..token.end;
                Ok(())
            }
        }
    }

    #[cold]
    fn mixed(&self, second: &Token) -> Error {
        let first = &self.sql[self.first.clone()];
        let second = second.text(self.sql);
        let mut message =
            format!("the SQL mixes `{first}` with `{second}`: use one kind of placeholder");
        if self.dialect.doubled_question_marks && [first, second].contains(&"?") {
            message.push_str(" (the operator `?` is written `??`)");
        }
        Error::new(Kind::Parameters, message)
    }

    #[cold]
    fn foreign(&self, token: &Token) -> Error {
        let message = format!(
            "`{}` is not a placeholder that can be used with {}: write `?` or `:name`",
            token.text(self.sql),
            self.dialect.name
        );
        Error::new(Kind::Parameters, message)
    }

    fn replace(&mut self, token: &Token, write: impl FnOnce(&mut String)) {
        let sql = self.sql;
        let out = self
            .rewritten
            .get_or_insert_with(|| String::with_capacity(sql.len() + 32));
        out.push_str(&sql[self.copied..token.start]);
        write(out);
        self.copied = token.end;
    }

    /// Writes a number, with spaces where it would merge with its neighbours: `LIMIT?` would become the word `LIMIT$1`,
    /// and `?5` the fifteenth placeholder.
    fn replace_by_number(&mut self, token: &Token, sigil: char, number: usize) {
        let next = self.sql.as_bytes().get(token.end).copied();
        self.replace(token, |out| {
            if out.bytes().next_back().is_some_and(continues_word) {
                out.push(' ');
            }
            out.push(sigil);
            push_number(out, number);
            if next.is_some_and(continues_word) {
                out.push(' ');
            }
        });
    }
}

/// Returns whether one of the placeholders is probably PostgreSQL's operator `?`, `?|` or `?&`: it is
/// followed by a text, a placeholder, `|` or `&`, which no value can be.
pub(super) fn looks_like_operator(dialect: &Dialect, sql: &str) -> bool {
    let mut lexer = Lexer::new(dialect, sql);
    let mut after_question = false;
    while let Some(token) = lexer.next() {
        let is_question = token.kind == TokenKind::Question;
        let is_operand = is_question || token.kind == TokenKind::Text;
        if after_question && (is_operand || token.is_symbol(b'|') || token.is_symbol(b'&')) {
            return dialect.doubled_question_marks;
        }
        after_question = is_question;
    }
    false
}

/// Converts a position in the sent text to the position in the original text.
pub(super) fn written_at(dialect: &Dialect, sql: &str, sent: usize) -> usize {
    let mut lexer = Lexer::new(dialect, sql);
    let mut rewriter = Rewriter::new(dialect, sql);
    // Positions after the last rewritten token.
    let (mut from, mut sent_from) = (0, 0);
    while let Some(token) = lexer.next() {
        if rewriter.take(&token).is_err() {
            break;
        }
        let Some(sent_to) = rewriter.rewritten_up_to(&token) else {
            continue;
        };
        if sent < sent_from + (token.start - from) {
            break;
        }
        if sent < sent_to {
            return token.start;
        }
        (from, sent_from) = (token.end, sent_to);
    }
    (from + (sent - sent_from)).min(sql.len())
}

/// Appends a number. `write!` is slow for something that happens for each placeholder of each call.
fn push_number(out: &mut String, number: usize) {
    if number >= 10 {
        push_number(out, number / 10);
    }
    let digit = u8::try_from(number % 10).expect("a digit is below 10");
    out.push(char::from(b'0' + digit));
}

/// Names in the order of their positions.
#[derive(Default)]
struct Names<'a> {
    list: Vec<&'a str>,
    /// The position of each name, when there are too many for a linear search.
    positions: Option<HashMap<&'a str, usize>>,
}

impl<'a> Names<'a> {
    const FEW: usize = 16;

    /// Returns the position of a name, from 1. A new name gets the next free position.
    fn position(&mut self, name: &'a str) -> usize {
        let known = match &self.positions {
            None => self.list.iter().position(|known| *known == name),
            Some(positions) => positions.get(name).copied(),
        };
        if let Some(known) = known {
            return known + 1;
        }
        self.list.push(name);
        let count = self.list.len();
        if let Some(positions) = &mut self.positions {
            positions.insert(name, count - 1);
        } else if count > Self::FEW {
            self.positions = Some(self.list.iter().copied().zip(0..).collect());
        }
        count
    }
}
