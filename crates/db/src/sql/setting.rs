//! Reads a call of PostgreSQL's `set_config(name, value, is_local)`, which sets something for the session, or for the
//! transaction if its last argument is `true`.

use super::lexer::Token;
use super::words::{Keyword, contains_word, is_one_of};

/// A call, as far as it has been read.
#[derive(Clone, Copy)]
pub(super) struct OpenSetting {
    /// The number of parentheses open before the call.
    depth: u32,
    name: Name,
    last: Argument,
}

/// The first argument, as far as it has been read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Name {
    Nothing,
    /// A string: a setting that ends with the transaction if it is set locally.
    Plain,
    /// `search_path`, set to nothing but strings so far, none of which names the temporary schema.
    Path,
    /// `seed`, whose effect on `random()` stays in any case.
    Seed,
    /// An unknown setting, or one under which temporary objects may be created, which stay.
    Other,
}

/// An argument, as far as it has been read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Argument {
    Nothing,
    True,
    Other,
}

impl OpenSetting {
    pub(super) fn new(depth: u32) -> Self {
        OpenSetting {
            depth,
            name: Name::Nothing,
            last: Argument::Nothing,
        }
    }

    /// Returns whether the call is closed when this many parentheses are open.
    pub(super) fn is_closed(self, depth: u32) -> bool {
        self.depth == depth
    }

    /// Returns whether the setting ends with the transaction.
    pub(super) fn is_local(self) -> bool {
        self.last == Argument::True && matches!(self.name, Name::Plain | Name::Path)
    }

    pub(super) fn is_irreversible(self) -> bool {
        self.name == Name::Seed
    }

    /// Takes the next token, from the opening parenthesis on.
    pub(super) fn take(&mut self, token: &Token, keyword: Option<Keyword>, sql: &str, depth: u32) {
        let is_opening = token.is_symbol(b'(') && self.depth + 1 == depth;
        if is_opening && self.name == Name::Nothing {
            return;
        }
        let text = plain_string(token.text(sql));
        self.name = match self.name {
            Name::Nothing => text.map_or(Name::Other, Name::of),
            Name::Path => {
                let is_known = token.is_symbol(b',')
                    || keyword == Some(Keyword::True)
                    || text.is_some_and(|it| !contains_word(it.as_bytes(), b"pg_temp"));
                match is_known {
                    true => Name::Path,
                    false => Name::Other,
                }
            }
            known => known,
        };
        self.last = if token.is_symbol(b',') {
            Argument::Nothing
        } else if keyword == Some(Keyword::True) && self.last == Argument::Nothing {
            Argument::True
        } else {
            Argument::Other
        };
    }
}

impl Name {
    fn of(text: &str) -> Self {
        if is_one_of(text, &["search_path"]) {
            Name::Path
        } else if is_one_of(text, &["seed"]) {
            Name::Seed
        } else {
            Name::Plain
        }
    }
}

/// Returns the contents of a string without escapes.
fn plain_string(token: &str) -> Option<&str> {
    let text = token.strip_prefix('\'')?.strip_suffix('\'')?;
    (!text.contains('\\')).then_some(text)
}
