//! The notes on a statement, as far as it has been read.

use super::compound::Compound;
use super::insert::Target;
use super::lexer::{Token, TokenKind};
use super::setting::OpenSetting;
use super::words::{Keyword, is_one_of};

/// The verdict needs this many tokens from the start: CREATE OR REPLACE LOCAL TEMPORARY.
pub(super) const HEAD: usize = 5;

/// What a statement contains, as far as it has been read.
#[derive(Clone, Copy)]
pub(super) struct Notes {
    /// The first tokens, without EXPLAIN, its options and opening parentheses.
    pub(super) head: [Noted; HEAD],
    pub(super) head_len: usize,
    /// The next token has to be followed, whatever it is.
    pub(super) watching: bool,
    /// The statement begins with EXPLAIN.
    pub(super) explained: bool,
    /// The number of open parentheses.
    pub(super) depth: u32,
    /// The last word or quoted token: a name, if a parenthesis follows.
    pub(super) name: Noted,
    /// `name` is the last token.
    pub(super) name_is_last: bool,
    /// What `name` follows.
    pub(super) name_behind: Behind,
    /// What the next token follows.
    pub(super) behind: Behind,
    /// The last two words, if they are keywords.
    pub(super) last_word: Option<Keyword>,
    pub(super) word_before: Option<Keyword>,
    /// The last token was a semicolon.
    pub(super) after_semicolon: bool,
    /// The body of a routine has begun: BEGIN ATOMIC.
    pub(super) atomic: bool,
    /// The last word was an END after a semicolon, or after BEGIN ATOMIC.
    pub(super) ends_body: bool,
    /// The statement contains something by which any statement can change the session.
    pub(super) side_door: bool,
    /// No reset undoes the effect of the side door.
    pub(super) irreversible: bool,
    /// The statement calls a function that may change something.
    pub(super) unknown_call: bool,
    /// The statement contains TEMP or TEMPORARY, quoted or not.
    pub(super) temporary: bool,
    /// The statement contains INTO.
    pub(super) into: bool,
    /// The statement contains SELECT or VALUES: the following expressions are evaluated.
    pub(super) evaluates: bool,
    /// INTO a temporary table.
    pub(super) into_temporary: bool,
    /// INTO a variable of the session.
    pub(super) into_variable: bool,
    /// The statement contains a word that makes a SELECT more than a read.
    pub(super) writes: bool,
    /// GLOBAL or PERSIST: the setting is not the session's.
    pub(super) global: bool,
    /// PostgreSQL's view of settings; writing to it sets them.
    pub(super) settings_view: bool,
    /// WITH HOLD.
    pub(super) with_hold: bool,
    /// The number of SETs.
    pub(super) sets: u32,
    /// The table that the statement inserts into.
    pub(super) target: Target,
    /// ON CONFLICT DO UPDATE.
    pub(super) upserts: bool,
    /// An open call whose last argument decides whether it is a side door.
    pub(super) open_setting: Option<OpenSetting>,
    pub(super) sole_call: SoleCall,
    /// Set for a compound statement.
    pub(super) compound: Option<Compound>,
}

/// What a token follows, as far as that decides whether a name with a parenthesis is a call.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// INTO or WITH, perhaps with a schema: a table is next, with its columns in parentheses.
    TableIsNext,
    /// The name of that table, or of its schema.
    Table,
    /// The point after a schema.
    Schema,
    /// A closing parenthesis, which no call can follow.
    Closed,
    Other,
}

/// Whether a SELECT consists of one call that only affects the session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SoleCall {
    No,
    /// The arguments of the call are being read.
    Open,
    /// The call is complete; an alias may follow.
    Closed,
}

/// A noted token.
///
/// It stores a length where a token stores its end. To copy start and end in one piece, right after they were written
/// one by one, would stall the processor (a failed store forwarding) and cost a quarter of the time of a scan.
#[derive(Clone, Copy)]
pub(super) struct Noted {
    pub(super) kind: TokenKind,
    pub(super) symbol: u8,
    pub(super) keyword: Option<Keyword>,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Noted {
    const NONE: Noted = Noted {
        kind: TokenKind::Symbol,
        symbol: 0,
        keyword: None,
        start: 0,
        len: 0,
    };

    #[inline]
    pub(super) fn new(token: &Token, keyword: Option<Keyword>) -> Self {
        Noted {
            kind: token.kind,
            symbol: token.symbol,
            keyword,
            start: token.start,
            len: token.end - token.start,
        }
    }

    #[inline]
    pub(super) fn is(&self, keyword: Keyword) -> bool {
        self.keyword == Some(keyword)
    }

    pub(super) fn is_symbol(&self, symbol: u8) -> bool {
        self.symbol == symbol
    }

    /// Returns whether the token is one of these words.
    pub(super) fn is_one_of(&self, words: &[&str], sql: &str) -> bool {
        self.kind == TokenKind::Word && is_one_of(self.name(sql), words)
    }

    pub(super) fn is_atomic(&self, sql: &str) -> bool {
        self.is_one_of(&["atomic"], sql)
    }

    /// Returns the text without quotes.
    pub(super) fn name<'a>(&self, sql: &'a str) -> &'a str {
        let text = &sql[self.start..self.start + self.len];
        match self.kind {
            TokenKind::Quoted | TokenKind::Text => text.get(1..self.len - 1).unwrap_or_default(),
            _ => text,
        }
    }
}

impl Notes {
    /// Returns whether the statement is CREATE FUNCTION or PROCEDURE, with or without OR REPLACE.
    pub(super) fn creates_routine(&self, sql: &str) -> bool {
        let is_routine = |n: usize| self.head[n].is_one_of(&["function", "procedure"], sql);
        self.head[0].is(Keyword::Create) && (is_routine(1) || is_routine(3))
    }

    pub(super) const BLANK: Notes = Notes {
        head: [Noted::NONE; HEAD],
        head_len: 0,
        watching: true,
        explained: false,
        depth: 0,
        name: Noted::NONE,
        name_is_last: false,
        name_behind: Behind::Other,
        behind: Behind::Other,
        last_word: None,
        word_before: None,
        after_semicolon: false,
        atomic: false,
        ends_body: false,
        side_door: false,
        irreversible: false,
        unknown_call: false,
        temporary: false,
        into: false,
        evaluates: false,
        into_temporary: false,
        into_variable: false,
        writes: false,
        global: false,
        settings_view: false,
        with_hold: false,
        sets: 0,
        target: Target::Unknown,
        upserts: false,
        open_setting: None,
        sole_call: SoleCall::No,
        compound: None,
    };
}
