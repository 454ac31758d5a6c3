//! One statement, token by token: its first words, and what was seen on the way to its end.
//!
//! What that comes to is decided in [`verdict`](super::verdict).

use super::compound::{self, Compound};
use super::dialect::Dialect;
use super::harmless::{is_known, waits};
use super::insert::Target;
use super::lexer::{Kind, Token, continues_word};
use super::session::SessionEffect;
use super::setting::OpenSetting;
use super::verdict::BEGIN_MODES;
use super::words::{Keyword, keyword};

/// A statement, as far as it has been read.
pub(super) struct Statement<'a> {
    pub(super) dialect: &'a Dialect,
    pub(super) sql: &'a str,
    pub(super) notes: Notes,
}

/// How many tokens from the start the verdict needs: CREATE OR REPLACE LOCAL TEMPORARY.
const HEAD: usize = 5;

/// What has been seen of a statement.
#[derive(Clone, Copy)]
pub(super) struct Notes {
    /// The first tokens, without EXPLAIN, its options and opening parentheses.
    head: [Noted; HEAD],
    pub(super) head_len: usize,
    /// The next token is of interest, whatever it is.
    watching: bool,
    /// EXPLAIN is before it.
    pub(super) explained: bool,
    /// Open parentheses.
    depth: u32,
    /// The last token that was a word or had quotes: a name, if a parenthesis follows.
    name: Noted,
    /// Nothing has come after it yet.
    name_is_last: bool,
    /// What that name stands behind.
    name_behind: Behind,
    /// What the next token stands behind.
    behind: Behind,
    /// The last two words, if they are keywords.
    last_word: Option<Keyword>,
    word_before: Option<Keyword>,
    /// The last token was a semicolon.
    after_semicolon: bool,
    /// The body of a routine has begun: BEGIN ATOMIC.
    atomic: bool,
    /// The last word was an END behind a semicolon, or behind BEGIN ATOMIC.
    ends_body: bool,
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
    evaluates: bool,
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
    pub(super) alone: Alone,
    /// Set if it is a compound statement.
    pub(super) compound: Option<Compound>,
}

/// What a token stands behind, as far as that tells what a name with a parenthesis is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behind {
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
pub(super) enum Alone {
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
    symbol: u8,
    keyword: Option<Keyword>,
    start: usize,
    len: usize,
}

impl Noted {
    const NONE: Noted = Noted {
        kind: Kind::Symbol,
        symbol: 0,
        keyword: None,
        start: 0,
        len: 0,
    };

    fn new(token: &Token, keyword: Option<Keyword>) -> Self {
        Noted {
            kind: token.kind,
            symbol: token.symbol,
            keyword,
            start: token.start,
            len: token.end - token.start,
        }
    }

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

    fn is_atomic(&self, sql: &str) -> bool {
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
    fn creates_routine(&self, sql: &str) -> bool {
        let is_routine = |n: usize| self.head[n].is_one_of(&["function", "procedure"], sql);
        self.head[0].is(Keyword::Create) && (is_routine(1) || is_routine(3))
    }

    const BLANK: Notes = Notes {
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
        alone: Alone::No,
        compound: None,
    };
}

/// What may stand between EXPLAIN and the statement, outside parentheses.
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

pub(super) fn is_one_of(word: &str, list: &[&str]) -> bool {
    list.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// Whether a text has this in it, in whatever case.
pub(super) fn contains_word(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len())
        .any(|part| part.eq_ignore_ascii_case(word))
}

/// Whether a text has any of these in it, in whatever case: also in strings, and as a part of other words.
#[cfg(any(feature = "mysql", feature = "odbc"))]
pub(crate) fn contains_any(text: &str, words: &[&str]) -> bool {
    let text = text.as_bytes();
    words
        .iter()
        .any(|word| contains_word(text, word.as_bytes()))
}

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

    /// The n-th of the first tokens.
    pub(super) fn head(&self, n: usize) -> &Noted {
        &self.notes.head[n]
    }

    /// The keyword that it begins with.
    pub(super) fn verb(&self) -> Option<Keyword> {
        self.head(0).keyword
    }

    /// The last word or quoted name, and all that stands before it.
    pub(super) fn last_name(&self) -> (&str, &str) {
        let name = &self.notes.name;
        (&self.sql[..name.start], name.name(self.sql))
    }

    pub(super) fn is_temporary(&self, n: usize) -> bool {
        self.head(n).is(Keyword::Temp) || self.head(n).is(Keyword::Temporary)
    }

    /// A semicolon here ends it. In the body of a trigger or routine and in a compound statement it does not.
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
            Kind::Word => keyword = self.word(token),
            Kind::Quoted | Kind::Text => self.quoted(token),
            Kind::Symbol => self.symbol(token),
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
                Kind::Word => compound.word(token.text(self.sql), keyword),
                _ => compound.other(token.symbol),
            }
        }
        if self.notes.watching {
            self.watch(token, keyword);
        }
    }

    /// What has to be followed token by token: the head, and calls of interest.
    fn watch(&mut self, token: &Token, keyword: Option<Keyword>) {
        if self.notes.head_len < HEAD {
            self.note_head(token, keyword);
            if self.dialect.compound_statements && self.notes.compound.is_none() {
                self.note_compound();
            }
        }
        if self.notes.alone == Alone::Closed {
            self.go_on_alone(token, keyword);
        }
        self.go_on_setting(token, keyword);
        let notes = &mut self.notes;
        notes.watching =
            notes.head_len < HEAD || notes.alone == Alone::Closed || notes.open_setting.is_some();
    }

    fn word(&mut self, token: &Token) -> Option<Keyword> {
        let word = token.bytes(self.sql);
        let keyword = keyword(word);
        let notes = &mut self.notes;
        match keyword {
            None => notes.side_door |= is_temporary_schema(word),
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
            // The name of an alias, or a type: never a call.
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

    /// SQLite takes names even in the quotes of a string.
    fn quoted(&mut self, token: &Token) {
        let notes = &mut self.notes;
        let noted = Noted::new(token, None);
        let name = noted.name(self.sql).as_bytes();
        match keyword(name) {
            Some(Keyword::Temp | Keyword::Temporary) => notes.temporary = true,
            Some(Keyword::PgSettings) => notes.settings_view = true,
            _ => {}
        }
        // In U&"…" any name can hide behind escapes, and in U&'…' any text.
        let is_escaped = self.sql[notes.name.start..token.start].eq_ignore_ascii_case("u&");
        // Two strings with a line break between them are one.
        let is_continued = notes.name_is_last && notes.name.kind == Kind::Text;
        if token.kind == Kind::Quoted {
            notes.irreversible |= is_escaped;
            notes.side_door |= is_temporary_schema(name) || is_escaped;
        } else if notes.open_setting.is_some() && is_continued {
            (notes.side_door, notes.irreversible) = (true, true);
        } else if notes.head[0].is(Keyword::Set) {
            // SET LOCAL search_path = 'pg_temp', perhaps with escapes: what is created then stays.
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
            // `@@` is a setting that is read; a variable has one.
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

    /// A parenthesis opens behind a name.
    fn call(&mut self, parenthesis: usize) {
        let name = self.notes.name.name(self.sql);
        let known = self
            .dialect
            .session_functions
            .iter()
            .flat_map(|table| table.iter())
            .find(|function| function.is_called_by(name));
        let Some(known) = known else {
            if self.is_unknown_call(name, parenthesis) {
                self.notes.unknown_call = true;
                self.notes.side_door |= self.dialect.only_known_functions;
            } else if waits(name) {
                self.notes.unknown_call = true;
            }
            return;
        };
        self.notes.unknown_call = true;
        self.notes.irreversible |= known.effect.is_irreversible();
        match known.effect {
            SessionEffect::Changes | SessionEffect::Irreversible => {
                self.notes.side_door = true;
                return;
            }
            SessionEffect::Only | SessionEffect::OnlyIrreversible => self.notes.side_door = true,
            // One inside the other: not worth telling them apart.
            SessionEffect::OnlyUnlessLocal if self.notes.open_setting.is_some() => {
                self.notes.side_door = true;
            }
            SessionEffect::OnlyUnlessLocal => {
                self.notes.open_setting = Some(OpenSetting::new(self.notes.depth));
                self.notes.watching = true;
            }
        }
        let nothing_before = match self.notes.head_len {
            2 => true,
            4 => self.head(2).is_symbol(b'.'),
            _ => false,
        };
        let selects = matches!(self.verb(), Some(Keyword::Select | Keyword::Do));
        if nothing_before && selects && self.notes.depth == 0 {
            self.notes.alone = Alone::Open;
        }
    }

    /// A call of what may be the application's own function. The columns of a table that follow its name
    /// are none.
    fn is_unknown_call(&self, name: &str, parenthesis: usize) -> bool {
        let notes = &self.notes;
        let defines = matches!(
            self.verb(),
            Some(Keyword::Create | Keyword::Alter | Keyword::Drop)
        );
        if defines && !notes.evaluates || notes.name_behind == Behind::TableIsNext {
            return false;
        }
        // The application can have a function of any name in quotes or behind a schema. `$abs` and `1abs` are
        // names, too.
        let start = notes.name.start;
        let before = self.sql.as_bytes().get(start.wrapping_sub(1)).copied();
        let is_plain = notes.name.kind == Kind::Word
            && notes.name_behind != Behind::Schema
            && !before.is_some_and(continues_word);
        if is_plain && notes.name_behind == Behind::Closed && is_one_of(name, &["against"]) {
            return false;
        }
        let is_apart = start + notes.name.len != parenthesis;
        let dialect = self.dialect;
        !is_plain
            || is_apart && is_one_of(name, dialect.touching_functions)
            || !is_known(dialect.known_functions, name)
    }

    fn close(&mut self) {
        let notes = &mut self.notes;
        notes.depth = notes.depth.saturating_sub(1);
        if notes.alone == Alone::Open && notes.depth == 0 {
            notes.alone = Alone::Closed;
            notes.watching = true;
        }
        if let Some(setting) = notes.open_setting
            && setting.is_closed(notes.depth)
        {
            notes.open_setting = None;
            if setting.is_local() {
                notes.alone = Alone::No;
            } else {
                notes.side_door = true;
            }
        }
    }

    /// Behind a call that is all about the session: nothing but an alias may follow.
    fn go_on_alone(&mut self, token: &Token, keyword: Option<Keyword>) {
        let alias = match token.kind {
            Kind::Word => keyword.is_none() && !is_one_of(token.text(self.sql), &["from"]),
            kind => kind == Kind::Quoted,
        };
        if !alias && !token.is_symbol(b')') {
            self.notes.alone = Alone::No;
        }
    }

    fn go_on_setting(&mut self, token: &Token, keyword: Option<Keyword>) {
        if let Some(setting) = &mut self.notes.open_setting {
            setting.take(token, keyword, self.sql, self.notes.depth);
            self.notes.irreversible |= setting.is_irreversible();
        }
    }

    /// Looks whether the first tokens begin a compound statement.
    fn note_compound(&mut self) {
        let is = |n: usize, words: &[&str]| self.head(n).is_one_of(words, self.sql);
        let begins = self.head(0).is(Keyword::Begin);
        let mut compound = Compound::BEGUN;
        let found = match self.notes.head_len {
            1 => {
                self.head(0).kind == Kind::Word
                    && compound::begins_with(self.head(0).name(self.sql))
            }
            // As Oracle has it, if the `sql_mode` says so.
            2 if begins && !is(1, BEGIN_MODES) && !is(1, &["not"]) => {
                let first = self.head(1);
                if first.kind == Kind::Word {
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
                    || token.kind != Kind::Word
                    || is_one_of(token.text(self.sql), EXPLAIN_OPTIONS));
            if option || token.is_symbol(b'(') {
                return;
            }
        }
        notes.head[notes.head_len] = Noted::new(token, keyword);
        notes.head_len += 1;
    }
}
