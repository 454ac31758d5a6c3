//! What has been seen of a statement so far.

use super::compound::Compound;
use super::insert::Target;
use super::lexer::{Kind, Token};
use super::setting::OpenSetting;
use super::words::{Keyword, is_one_of};

/// How many tokens from the start the verdict needs: CREATE OR REPLACE LOCAL TEMPORARY.
pub(super) const HEAD: usize = 5;

/// What has been seen of a statement.
#[derive(Clone, Copy)]
pub(super) struct Notes {
    /// The first tokens, without EXPLAIN, its options and opening parentheses.
    pub(super) head: [Noted; HEAD],
    pub(super) head_len: usize,
    /// The next token is of interest, whatever it is.
    pub(super) watching: bool,
    /// EXPLAIN is before it.
    pub(super) explained: bool,
    /// Open parentheses.
    pub(super) depth: u32,
    /// The last token that was a word or had quotes: a name, if a parenthesis follows.
    pub(super) name: Noted,
    /// Nothing has come after it yet.
    pub(super) name_is_last: bool,
    /// What that name stands behind.
    pub(super) name_behind: Behind,
    /// What the next token stands behind.
    pub(super) behind: Behind,
    /// The last two words, if they are keywords.
    pub(super) last_word: Option<Keyword>,
    pub(super) word_before: Option<Keyword>,
    /// The last token was a semicolon.
    pub(super) after_semicolon: bool,
    /// The body of a routine has begun: BEGIN ATOMIC.
    pub(super) atomic: bool,
    /// The last word was an END behind a semicolon, or behind BEGIN ATOMIC.
    pub(super) ends_body: bool,
    /// Something is in it with which any statement can change the session.
    pub(super) side_door: bool,
    /// What that does no reset undoes.
    pub(super) irreversible: bool,
    /// A function is called that is not known to change nothing.
    pub(super) unknown_call: bool,
    /// The word TEMP or TEMPORARY, quoted or not.
    pub(super) temporary: bool,
    /// INTO.
    pub(super) into: bool,
    /// SELECT or VALUES, anywhere: what follows is evaluated.
    pub(super) evaluates: bool,
    /// INTO a temporary table.
    pub(super) into_temporary: bool,
    /// INTO a variable of the session.
    pub(super) into_variable: bool,
    /// A word that makes a SELECT more than a read.
    pub(super) writes: bool,
    /// GLOBAL or PERSIST: what is set is not the session's.
    pub(super) global: bool,
    /// PostgreSQL's view of settings; writing to it sets them.
    pub(super) settings_view: bool,
    /// WITH HOLD.
    pub(super) with_hold: bool,
    /// How often SET is in it.
    pub(super) sets: u32,
    /// Where it inserts.
    pub(super) target: Target,
    /// ON CONFLICT DO UPDATE.
    pub(super) upserts: bool,
    /// A call is open whose last argument tells whether it is a side door.
    pub(super) open_setting: Option<OpenSetting>,
    pub(super) sole_call: SoleCall,
    /// Set if it is a compound statement.
    pub(super) compound: Option<Compound>,
}

/// What a token stands behind, as far as that tells what a name with a parenthesis is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Behind {
    /// INTO or WITH, and a schema perhaps: a table, whose columns follow in parentheses.
    TableIsNext,
    /// The name of such a table, or of its schema.
    Table,
    /// The point behind a schema.
    Schema,
    /// A closing parenthesis, behind which there can be no call.
    Closed,
    Other,
}

/// Whether a SELECT is of nothing but a function that is all about the session.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SoleCall {
    No,
    /// Its arguments are being read.
    Open,
    /// It is complete, but for an alias.
    Closed,
}

/// A token that has been noted.
///
/// It has a length where a token has an end: a plain copy of start and end, in one piece and
/// right after they were written, would have to wait for that, and cost a quarter of
/// the time of a scan.
#[derive(Clone, Copy)]
pub(super) struct Noted {
    pub(super) kind: Kind,
    pub(super) symbol: u8,
    pub(super) keyword: Option<Keyword>,
    pub(super) start: usize,
    pub(super) len: usize,
}

impl Noted {
    const NONE: Noted = Noted {
        kind: Kind::Symbol,
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

    /// It is one of these words.
    pub(super) fn is_one_of(&self, words: &[&str], sql: &str) -> bool {
        self.kind == Kind::Word && is_one_of(self.name(sql), words)
    }

    pub(super) fn is_atomic(&self, sql: &str) -> bool {
        self.is_one_of(&["atomic"], sql)
    }

    /// Its text, without quotes.
    pub(super) fn name<'a>(&self, sql: &'a str) -> &'a str {
        let text = &sql[self.start..self.start + self.len];
        match self.kind {
            Kind::Quoted | Kind::Text => text.get(1..self.len - 1).unwrap_or_default(),
            _ => text,
        }
    }
}

impl Notes {
    /// CREATE FUNCTION or PROCEDURE, with OR REPLACE or without.
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
