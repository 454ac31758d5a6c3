//! Reads one statement, token by token, and takes [notes](super::notes) for the [verdict](super::verdict).
//!
//! What a call of a function means is decided in [`calls`](super::calls).

use super::compound::{self, Compound};
use super::dialect::Dialect;
use super::lexer::{Token, TokenKind};
use super::notes::{Behind, HEAD, Noted, Notes, SoleCall};
use super::verdict::BEGIN_MODES;
use super::words::{Keyword, contains_word, is_one_of, keyword};

/// A statement that is being read.
pub(super) struct Statement<'a> {
    pub(super) dialect: &'a Dialect,
    pub(super) sql: &'a str,
    pub(super) notes: Notes,
}

/// Words that can precede the statement after EXPLAIN, outside parentheses.
const EXPLAIN_OPTIONS: &[&str] = &[
    "analyse",
    "analyze",
    "extended",
    "format",
    "json",
    "partitions",
    "plan",
    "query",
    "traditional",
    "tree",
    "verbose",
];

fn is_temporary_schema(name: &[u8]) -> bool {
    matches!(name, [b'p' | b'P', ..])
        && matches!(name.get(..7), Some(start) if start.eq_ignore_ascii_case(b"pg_temp"))
}

impl<'a> Statement<'a> {
    #[inline]
    pub(super) fn new(dialect: &'a Dialect, sql: &'a str) -> Self {
        Statement {
            dialect,
            sql,
            notes: Notes::BLANK,
        }
    }

    pub(super) fn restart(&mut self) {
        self.notes = Notes::BLANK;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.notes.head_len == 0 && !self.notes.explained
    }

    /// Returns the n-th of the first tokens.
    pub(super) fn head(&self, n: usize) -> &Noted {
        &self.notes.head[n]
    }

    /// Returns the keyword that the statement begins with.
    pub(super) fn verb(&self) -> Option<Keyword> {
        self.head(0).keyword
    }

    /// Returns the text before the last word or quoted name, and that name.
    pub(super) fn last_name(&self) -> (&str, &str) {
        let name = &self.notes.name;
        (&self.sql[..name.start], name.name(self.sql))
    }

    pub(super) fn is_temporary(&self, n: usize) -> bool {
        self.head(n).is(Keyword::Temp) || self.head(n).is(Keyword::Temporary)
    }

    /// Returns whether a semicolon here ends the statement. In the body of a trigger or routine and in a compound
    /// statement it does not.
    pub(super) fn ends_with_semicolon(&self) -> bool {
        if let Some(compound) = &self.notes.compound {
            return compound.is_over();
        }
        let trigger = self.dialect.trigger_bodies
            && self.head(0).is(Keyword::Create)
            && (self.head(1).is(Keyword::Trigger)
                || self.is_temporary(1) && self.head(2).is(Keyword::Trigger));
        !(trigger || self.notes.atomic) || self.notes.ends_body
    }

    /// Takes the next token.
    #[inline]
    pub(super) fn take(&mut self, token: &Token) {
        let mut keyword = None;
        match token.kind {
            TokenKind::Word => keyword = self.word(token),
            TokenKind::Quoted | TokenKind::Text => self.quoted(token),
            TokenKind::Symbol => self.symbol(token),
            _ => {
                self.notes.name_is_last = false;
                self.notes.behind = Behind::Other;
            }
        }
        if self.notes.depth == 0 || self.notes.target.is_open() {
            let verb = self.verb();
            self.notes.target.take(token, keyword, verb);
        }
        self.notes.after_semicolon = token.is_symbol(b';');
        if let Some(compound) = &mut self.notes.compound {
            match token.kind {
                TokenKind::Word => compound.word(token.text(self.sql), keyword),
                _ => compound.other(token.symbol),
            }
        }
        if self.notes.watching {
            self.watch(token, keyword);
        }
    }

    /// Follows the head of the statement, and open calls, token by token.
    fn watch(&mut self, token: &Token, keyword: Option<Keyword>) {
        if self.notes.head_len < HEAD {
            self.note_head(token, keyword);
            if self.dialect.compound_statements && self.notes.compound.is_none() {
                self.note_compound();
            }
        }
        if self.notes.sole_call == SoleCall::Closed {
            self.follow_sole_call(token, keyword);
        }
        self.follow_setting(token, keyword);
        let notes = &mut self.notes;
        notes.watching = notes.head_len < HEAD
            || notes.sole_call == SoleCall::Closed
            || notes.open_setting.is_some();
    }

    fn word(&mut self, token: &Token) -> Option<Keyword> {
        let word = token.bytes(self.sql);
        let keyword = keyword(word);
        let notes = &mut self.notes;
        match keyword {
            None => {
                notes.side_door |= is_temporary_schema(word);
                // These take a number from a sequence without the parentheses of a call: NEXT VALUE FOR s, s.nextval.
                notes.unknown_call |= word.eq_ignore_ascii_case(b"nextval")
                    || word.eq_ignore_ascii_case(b"value")
                        && notes.name_is_last
                        && is_one_of(notes.name.name(self.sql), &["next"]);
            }
            Some(
                Keyword::Insert
                | Keyword::Update
                | Keyword::Delete
                | Keyword::Merge
                | Keyword::Share
                | Keyword::Lock,
            ) => notes.writes = true,
            Some(Keyword::Into) => notes.into = true,
            Some(Keyword::Select | Keyword::Values) => notes.evaluates = true,
            Some(Keyword::Temp | Keyword::Temporary) => {
                notes.temporary = true;
                notes.into_temporary |= match notes.last_word {
                    Some(Keyword::Into) => true,
                    Some(Keyword::Local | Keyword::Global) => {
                        notes.word_before == Some(Keyword::Into)
                    }
                    _ => false,
                };
            }
            Some(Keyword::Global | Keyword::Persist | Keyword::PersistOnly) => notes.global = true,
            Some(Keyword::PgSettings) => notes.settings_view = true,
            Some(Keyword::SqlCalcFoundRows) => notes.side_door = true,
            Some(Keyword::Hold) => notes.with_hold |= notes.last_word == Some(Keyword::With),
            Some(Keyword::Set) => notes.sets = notes.sets.saturating_add(1),
            Some(
                Keyword::Declare
                | Keyword::Exec
                | Keyword::Execute
                | Keyword::Revert
                | Keyword::Setuser
                | Keyword::Use,
            ) => notes.side_door |= self.dialect.unseparated_statements,
            Some(_) => {}
        }
        notes.upserts |= keyword == Some(Keyword::Update)
            && notes.last_word == Some(Keyword::Do)
            && notes.depth == 0;
        let begins_body = notes.last_word == Some(Keyword::Begin) && notes.name_is_last;
        let behind_atomic = notes.atomic && notes.name_is_last && notes.name.is_atomic(self.sql);
        notes.ends_body = keyword == Some(Keyword::End) && (notes.after_semicolon || behind_atomic);
        if begins_body && notes.depth == 0 && self.dialect.atomic_bodies {
            notes.atomic |= word.eq_ignore_ascii_case(b"atomic") && notes.creates_routine(self.sql);
        }
        notes.word_before = notes.last_word;
        notes.last_word = keyword;
        notes.name = Noted::new(token, keyword);
        notes.name_is_last = true;
        notes.name_behind = notes.behind;
        notes.behind = match (notes.behind, keyword) {
            (Behind::Other | Behind::Closed, Some(Keyword::Into | Keyword::With)) => {
                Behind::TableIsNext
            }
            // AS precedes an alias or a type, never a call.
            (Behind::Other | Behind::Closed, None)
                if !self.dialect.only_known_functions && word.eq_ignore_ascii_case(b"as") =>
            {
                Behind::TableIsNext
            }
            (Behind::TableIsNext, None) if word.eq_ignore_ascii_case(b"recursive") => {
                Behind::TableIsNext
            }
            (Behind::TableIsNext, _) => Behind::Table,
            _ => Behind::Other,
        };
        keyword
    }

    /// Takes a quoted token. SQLite accepts names even in the quotes of a string.
    fn quoted(&mut self, token: &Token) {
        let notes = &mut self.notes;
        let noted = Noted::new(token, None);
        let name = noted.name(self.sql).as_bytes();
        match keyword(name) {
            Some(Keyword::Temp | Keyword::Temporary) => notes.temporary = true,
            Some(Keyword::PgSettings) => notes.settings_view = true,
            _ => {}
        }
        // The escapes of U&"…" can hide any name, and those of U&'…' any text.
        let is_escaped = self.sql[notes.name.start..token.start].eq_ignore_ascii_case("u&");
        // Two strings with a line break between them are one.
        let is_continued = notes.name_is_last && notes.name.kind == TokenKind::Text;
        if token.kind == TokenKind::Quoted {
            notes.irreversible |= is_escaped;
            notes.side_door |= is_temporary_schema(name) || is_escaped;
        } else if notes.open_setting.is_some() && is_continued {
            (notes.side_door, notes.irreversible) = (true, true);
        } else if notes.head[0].is(Keyword::Set) {
            // SET LOCAL search_path = 'pg_temp', perhaps with escapes: objects created under it stay.
            notes.side_door |= contains_word(name, b"pg_temp") || name.contains(&b'\\');
            notes.side_door |= is_escaped || is_continued;
        }
        notes.name = noted;
        notes.name_is_last = true;
        notes.name_behind = notes.behind;
        notes.behind = match notes.behind {
            Behind::TableIsNext => Behind::Table,
            _ => Behind::Other,
        };
    }

    #[inline]
    fn symbol(&mut self, token: &Token) {
        match token.symbol {
            b'(' => {
                if self.notes.name_is_last {
                    self.call(token.start);
                }
                self.notes.depth = self.notes.depth.saturating_add(1);
            }
            b')' => self.close(),
            // `@@` reads a setting; a variable has one `@`.
            b'@' if self.dialect.user_variables && token.len() == 1 => {
                self.notes.side_door = true;
                self.notes.into_variable |=
                    self.notes.name_is_last && self.notes.last_word == Some(Keyword::Into);
            }
            b'#' => self.notes.side_door |= self.dialect.hash_tables,
            _ => {}
        }
        self.notes.name_is_last = false;
        self.notes.behind = match (token.symbol, self.notes.behind) {
            (b'.', Behind::Table) => Behind::TableIsNext,
            (b'.', _) => Behind::Schema,
            (b')', _) => Behind::Closed,
            _ => Behind::Other,
        };
    }

    /// Notes whether the first tokens begin a compound statement.
    fn note_compound(&mut self) {
        let is = |n: usize, words: &[&str]| self.head(n).is_one_of(words, self.sql);
        let begins = self.head(0).is(Keyword::Begin);
        let mut compound = Compound::BEGUN;
        let found = match self.notes.head_len {
            1 => {
                self.head(0).kind == TokenKind::Word
                    && compound::begins_with(self.head(0).name(self.sql))
            }
            // Oracle's blocks, if the `sql_mode` allows them.
            2 if begins && !is(1, BEGIN_MODES) && !is(1, &["not"]) => {
                let first = self.head(1);
                if first.kind == TokenKind::Word {
                    compound.word(first.name(self.sql), first.keyword);
                }
                true
            }
            3 => begins && is(1, &["not"]) && is(2, &["atomic"]),
            _ => false,
        };
        if found {
            self.notes.compound = Some(compound);
        }
    }

    fn note_head(&mut self, token: &Token, keyword: Option<Keyword>) {
        let notes = &mut self.notes;
        if notes.head_len == 0 {
            if keyword == Some(Keyword::Explain) && !notes.explained {
                notes.explained = true;
                return;
            }
            let option = notes.explained
                && (notes.depth > 0
                    || token.kind != TokenKind::Word
                    || is_one_of(token.text(self.sql), EXPLAIN_OPTIONS));
            if option || token.is_symbol(b'(') {
                return;
            }
        }
        notes.head[notes.head_len] = Noted::new(token, keyword);
        notes.head_len += 1;
    }
}
