//! What one statement may do: its first words, and what is seen on the way to its end.

use super::class::TransactionVerb;
use super::dialect::Dialect;
use super::lexer::{Kind, Token};
use super::session::SessionEffect;
use super::words::{Keyword, keyword};

/// What came of a statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    pub(super) touches_session: bool,
    pub(super) only_session: bool,
    pub(super) transaction: Option<TransactionVerb>,
    pub(super) reads_only: bool,
}

/// A statement, as far as it has been read.
pub(super) struct Statement<'a> {
    dialect: &'a Dialect,
    sql: &'a str,
    notes: Notes,
}

/// How many tokens from the start the verdict needs: CREATE OR REPLACE LOCAL TEMPORARY.
const HEAD: usize = 5;

#[derive(Clone, Copy)]
struct Notes {
    /// The first tokens, without EXPLAIN, its options and opening parentheses.
    head: [Seen; HEAD],
    head_len: usize,
    /// EXPLAIN is before it.
    explained: bool,
    /// Open parentheses.
    depth: u32,
    last: Seen,
    before_last: Seen,
    /// Something is in it with which any statement can change the session.
    side_door: bool,
    /// The word TEMP or TEMPORARY, quoted or not.
    temporary: bool,
    /// INTO.
    into: bool,
    /// INTO a temporary table.
    into_temporary: bool,
    /// A word that makes a SELECT more than a read.
    writes: bool,
    /// GLOBAL or PERSIST: what is set is not the session's.
    global: bool,
    /// PostgreSQL's view of settings; writing to it sets them.
    settings_view: bool,
    /// WITH HOLD.
    with_hold: bool,
    /// How often SET is in it.
    sets: u32,
    /// A call is open whose last argument tells whether it is a side door:
    /// the parentheses that were open before it.
    open_setting: Option<u32>,
    alone: Alone,
}

/// Whether a SELECT is of nothing but a function that is all about the session.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alone {
    No,
    /// Its arguments are being read.
    Open,
    /// It is complete, but for an alias.
    Closed,
}

#[derive(Clone, Copy)]
struct Seen {
    token: Token,
    keyword: Option<Keyword>,
}

impl Seen {
    const NOTHING: Seen = Seen {
        token: Token::NONE,
        keyword: None,
    };

    fn is(self, keyword: Keyword) -> bool {
        self.keyword == Some(keyword)
    }
}

impl Notes {
    const BLANK: Notes = Notes {
        head: [Seen::NOTHING; HEAD],
        head_len: 0,
        explained: false,
        depth: 0,
        last: Seen::NOTHING,
        before_last: Seen::NOTHING,
        side_door: false,
        temporary: false,
        into: false,
        into_temporary: false,
        writes: false,
        global: false,
        settings_view: false,
        with_hold: false,
        sets: 0,
        open_setting: None,
        alone: Alone::No,
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

/// What may follow CREATE, ALTER and DROP without being about the session.
const PERMANENT: &[&str] = &[
    "domain",
    "fulltext",
    "function",
    "index",
    "materialized",
    "procedure",
    "recursive",
    "sequence",
    "spatial",
    "table",
    "trigger",
    "type",
    "unique",
    "unlogged",
    "view",
    "virtual",
];

/// What may follow BEGIN if it begins a transaction and not a block.
const BEGIN_MODES: &[&str] = &[
    "concurrent",
    "deferrable",
    "deferred",
    "exclusive",
    "immediate",
    "isolation",
    "read",
    "tran",
    "transaction",
    "work",
];

/// What may follow a SET that is not about the session, or not about it alone.
const OTHER_SETS: &[&str] = &[
    "constraints",
    "default",
    "password",
    "statement",
    "transaction",
];

/// What PostgreSQL sets for the length of a transaction.
const TRANSACTION_SETS: &[&str] = &["constraints", "local", "transaction"];

/// The pragmas of SQLite that set something in the connection, and nothing in the file.
const SESSION_PRAGMAS: &[&str] = &[
    "analysis_limit",
    "automatic_index",
    "busy_timeout",
    "cache_size",
    "cache_spill",
    "case_sensitive_like",
    "cell_size_check",
    "checkpoint_fullfsync",
    "count_changes",
    "empty_result_callbacks",
    "foreign_keys",
    "full_column_names",
    "fullfsync",
    "ignore_check_constraints",
    "journal_size_limit",
    "legacy_alter_table",
    "locking_mode",
    "mmap_size",
    "query_only",
    "read_uncommitted",
    "recursive_triggers",
    "reverse_unordered_selects",
    "secure_delete",
    "short_column_names",
    "synchronous",
    "temp_store",
    "temp_store_directory",
    "threads",
    "trusted_schema",
    "wal_autocheckpoint",
    "writable_schema",
];

fn is_one_of(word: &str, list: &[&str]) -> bool {
    list.iter().any(|known| known.eq_ignore_ascii_case(word))
}

/// A name without its quotes.
fn unquoted(token: Token, sql: &str) -> &str {
    let text = token.text(sql);
    match token.kind {
        Kind::Quoted | Kind::Text => text.get(1..text.len() - 1).unwrap_or_default(),
        _ => text,
    }
}

fn is_temporary_schema(name: &str) -> bool {
    let start = name.as_bytes().get(.."pg_temp".len());
    start.is_some_and(|start| start.eq_ignore_ascii_case(b"pg_temp"))
}

/// Reading.
impl<'a> Statement<'a> {
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

    /// A semicolon here ends it. In the body of a trigger it does not.
    pub(super) fn ends_with_semicolon(&self) -> bool {
        let trigger = self.dialect.trigger_bodies
            && self.head(0).is(Keyword::Create)
            && (self.head(1).is(Keyword::Trigger)
                || self.is_temporary(1) && self.head(2).is(Keyword::Trigger));
        let body_is_over =
            self.notes.last.is(Keyword::End) && self.notes.before_last.token.is_symbol(b';');
        !trigger || body_is_over
    }

    #[inline]
    pub(super) fn take(&mut self, token: Token) {
        let mut keyword = None;
        match token.kind {
            Kind::Word => keyword = self.word(token),
            Kind::Quoted | Kind::Text => self.quoted(token),
            Kind::Symbol(b'(') => self.open(),
            Kind::Symbol(b')') => self.close(),
            // `@@` is a setting that is read; a variable has one.
            Kind::Symbol(symbol) => {
                self.notes.side_door |=
                    token.len() == 1 && self.dialect.session_sigils.contains(&symbol);
            }
            Kind::Number | Kind::Mark(_) => {}
        }
        self.remember(Seen { token, keyword });
    }

    fn word(&mut self, token: Token) -> Option<Keyword> {
        let word = token.text(self.sql);
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
            Some(Keyword::Temp | Keyword::Temporary) => {
                notes.temporary = true;
                let scope = notes.last.is(Keyword::Local) || notes.last.is(Keyword::Global);
                notes.into_temporary |=
                    notes.last.is(Keyword::Into) || scope && notes.before_last.is(Keyword::Into);
            }
            Some(Keyword::Global | Keyword::Persist | Keyword::PersistOnly) => notes.global = true,
            Some(Keyword::PgSettings) => notes.settings_view = true,
            Some(Keyword::SqlCalcFoundRows) => notes.side_door = true,
            Some(Keyword::Hold) => notes.with_hold |= notes.last.is(Keyword::With),
            Some(Keyword::Set) => notes.sets += 1,
            Some(Keyword::Exec | Keyword::Execute | Keyword::Use | Keyword::Declare) => {
                notes.side_door |= self.dialect.unseparated_statements;
            }
            Some(_) => {}
        }
        keyword
    }

    /// SQLite takes names even in the quotes of a string.
    fn quoted(&mut self, token: Token) {
        let name = unquoted(token, self.sql);
        match keyword(name) {
            Some(Keyword::Temp | Keyword::Temporary) => self.notes.temporary = true,
            Some(Keyword::PgSettings) => self.notes.settings_view = true,
            _ => {}
        }
        if token.kind == Kind::Quoted {
            // In U&"…" any name can hide behind escapes.
            let before = &self.sql.as_bytes()[..token.start];
            let escaped = before.ends_with(b"U&") || before.ends_with(b"u&");
            self.notes.side_door |= escaped || is_temporary_schema(name);
        }
    }

    fn open(&mut self) {
        let last = self.notes.last.token;
        if matches!(last.kind, Kind::Word | Kind::Quoted | Kind::Text) {
            self.call(last);
        }
        self.notes.depth += 1;
    }

    fn call(&mut self, function: Token) {
        let name = unquoted(function, self.sql);
        let known = self
            .dialect
            .session_functions
            .iter()
            .flat_map(|table| table.iter())
            .find(|function| function.is_called_by(name));
        let Some(known) = known else { return };
        match known.effect {
            SessionEffect::Changes => {
                self.notes.side_door = true;
                return;
            }
            SessionEffect::Only => self.notes.side_door = true,
            // One inside the other: not worth telling them apart.
            SessionEffect::OnlyUnlessLocal if self.notes.open_setting.is_some() => {
                self.notes.side_door = true;
            }
            SessionEffect::OnlyUnlessLocal => self.notes.open_setting = Some(self.notes.depth),
        }
        let nothing_before = match self.notes.head_len {
            2 => true,
            4 => self.head(2).token.is_symbol(b'.'),
            _ => false,
        };
        let selects = self.head(0).is(Keyword::Select) || self.head(0).is(Keyword::Do);
        if nothing_before && selects && self.notes.depth == 0 {
            self.notes.alone = Alone::Open;
        }
    }

    fn close(&mut self) {
        let notes = &mut self.notes;
        notes.depth = notes.depth.saturating_sub(1);
        if notes.alone == Alone::Open && notes.depth == 0 {
            notes.alone = Alone::Closed;
        }
        if notes.open_setting == Some(notes.depth) {
            notes.open_setting = None;
            let local = notes.last.is(Keyword::True) && notes.before_last.token.is_symbol(b',');
            if local {
                notes.alone = Alone::No;
            } else {
                notes.side_door = true;
            }
        }
    }

    #[inline]
    fn remember(&mut self, seen: Seen) {
        let notes = &mut self.notes;
        if notes.alone == Alone::Closed {
            let alias = matches!(seen.token.kind, Kind::Word | Kind::Quoted);
            let closes = seen.token.is_symbol(b')');
            if seen.keyword.is_some() || !(alias || closes) {
                notes.alone = Alone::No;
            }
        }
        notes.before_last = notes.last;
        notes.last = seen;
        if notes.head_len == HEAD {
            return;
        }
        if notes.head_len == 0 {
            if seen.is(Keyword::Explain) && !notes.explained {
                notes.explained = true;
                return;
            }
            let option = notes.explained
                && (notes.depth > 0
                    || seen.token.kind != Kind::Word
                    || is_one_of(seen.token.text(self.sql), EXPLAIN_OPTIONS));
            if option || seen.token.is_symbol(b'(') {
                return;
            }
        }
        notes.head[notes.head_len] = seen;
        notes.head_len += 1;
    }
}

/// Judging.
impl Statement<'_> {
    pub(super) fn verdict(&self) -> Verdict {
        let notes = &self.notes;
        let transaction = self.transaction_verb();
        let touches_session = !self.is_allowed(transaction) || self.has_side_door();
        let reads = matches!(
            self.head(0).keyword,
            Some(Keyword::Select | Keyword::Values | Keyword::Table | Keyword::With)
        );
        Verdict {
            touches_session,
            only_session: touches_session && !notes.explained && self.is_only_session(),
            transaction,
            reads_only: reads && !notes.writes && !notes.into && !touches_session,
        }
    }

    fn head(&self, n: usize) -> Seen {
        self.notes.head[n]
    }

    /// The n-th token is one of these words.
    fn head_is_one_of(&self, n: usize, words: &[&str]) -> bool {
        let token = self.head(n).token;
        token.kind == Kind::Word && is_one_of(token.text(self.sql), words)
    }

    fn is_temporary(&self, n: usize) -> bool {
        self.head(n).is(Keyword::Temp) || self.head(n).is(Keyword::Temporary)
    }

    /// It is on the list of what leaves the session alone, side doors apart.
    fn is_allowed(&self, transaction: Option<TransactionVerb>) -> bool {
        match self.head(0).keyword {
            Some(
                Keyword::Select
                | Keyword::Insert
                | Keyword::Update
                | Keyword::Delete
                | Keyword::Replace
                | Keyword::Merge
                | Keyword::Truncate
                | Keyword::Values
                | Keyword::Table
                | Keyword::With,
            ) => true,
            _ if self.notes.explained => false,
            Some(Keyword::Create | Keyword::Alter | Keyword::Drop) => {
                !self.notes.temporary && self.head_is_one_of(self.behind_or_replace(), PERMANENT)
            }
            Some(Keyword::Set) => self.sets_for_transaction(),
            _ => transaction.is_some(),
        }
    }

    fn has_side_door(&self) -> bool {
        let notes = &self.notes;
        let own_sets = match self.head(0).keyword {
            Some(Keyword::Update | Keyword::Insert | Keyword::Merge | Keyword::Set) => 1,
            _ => 0,
        };
        notes.side_door
            || notes.into_temporary
            || notes.open_setting.is_some()
            || notes.settings_view && notes.writes
            || self.dialect.unseparated_statements && notes.sets > own_sets
    }

    /// Where CREATE goes on: 1, or behind OR REPLACE.
    fn behind_or_replace(&self) -> usize {
        if self.head_is_one_of(1, &["or"]) && self.head(2).is(Keyword::Replace) {
            3
        } else {
            1
        }
    }

    fn transaction_verb(&self) -> Option<TransactionVerb> {
        if self.notes.explained {
            return None;
        }
        match self.head(0).keyword? {
            Keyword::Begin => {
                let alone = self.notes.head_len == 1;
                let not_deferrable =
                    self.head_is_one_of(1, &["not"]) && self.head_is_one_of(2, &["deferrable"]);
                let begins = alone || not_deferrable || self.head_is_one_of(1, BEGIN_MODES);
                begins.then_some(TransactionVerb::Begin)
            }
            Keyword::Start => self
                .head(1)
                .is(Keyword::Transaction)
                .then_some(TransactionVerb::Begin),
            // Those of another session, of which a transaction was prepared.
            Keyword::Commit | Keyword::Rollback if self.head(1).is(Keyword::Prepared) => None,
            Keyword::Commit => Some(TransactionVerb::Commit),
            Keyword::End => self.dialect.end_commits.then_some(TransactionVerb::Commit),
            Keyword::Rollback | Keyword::Abort => {
                let noise = self.head_is_one_of(1, &["work", "tran", "transaction"]);
                let to = self.head(if noise { 2 } else { 1 }).is(Keyword::To);
                Some(if to {
                    TransactionVerb::RollbackTo
                } else {
                    TransactionVerb::Rollback
                })
            }
            Keyword::Savepoint => Some(TransactionVerb::Savepoint),
            Keyword::Release => Some(TransactionVerb::Release),
            _ => None,
        }
    }

    /// A SET that ends with the transaction. `SET local.x = 1` does not: there the word
    /// is part of a name.
    fn sets_for_transaction(&self) -> bool {
        let next = self.head(2);
        self.dialect.transaction_settings
            && self.head_is_one_of(1, TRANSACTION_SETS)
            && matches!(next.token.kind, Kind::Word | Kind::Quoted)
            && !next.is(Keyword::To)
    }

    /// Of statements that touch the session: it makes no sense unless the session is kept.
    fn is_only_session(&self) -> bool {
        let notes = &self.notes;
        let Some(verb) = self.head(0).keyword else {
            return false;
        };
        match verb {
            Keyword::Listen
            | Keyword::Unlisten
            | Keyword::Discard
            | Keyword::Attach
            | Keyword::Detach
            | Keyword::Use
            | Keyword::Deallocate => true,
            Keyword::Set if self.dialect.transaction_settings => true,
            Keyword::Set => !notes.global && !self.head_is_one_of(1, OTHER_SETS),
            Keyword::Reset => self.dialect.transaction_settings,
            Keyword::Prepare => !self.head(1).is(Keyword::Transaction),
            Keyword::Load => self.head(1).token.kind == Kind::Text,
            Keyword::Lock | Keyword::Unlock => self.head_is_one_of(1, &["tables", "instance"]),
            Keyword::Declare => notes.with_hold,
            Keyword::Create => self.creates_temporary(),
            Keyword::Alter => self.head_is_one_of(1, &["session"]),
            Keyword::Drop => self.head(1).is(Keyword::Prepare),
            Keyword::Pragma => self.sets_session_pragma(),
            Keyword::Select | Keyword::With => {
                notes.alone == Alone::Closed || notes.into_temporary && !notes.writes
            }
            Keyword::Do => notes.alone == Alone::Closed,
            _ => false,
        }
    }

    fn creates_temporary(&self) -> bool {
        let n = self.behind_or_replace();
        // Where PostgreSQL is not meant, a global temporary table is a permanent one.
        let scope = self.head(n).is(Keyword::Local)
            || self.head(n).is(Keyword::Global) && self.dialect.transaction_settings;
        self.is_temporary(n) || scope && self.is_temporary(n + 1)
    }

    fn sets_session_pragma(&self) -> bool {
        let n = if self.head(2).token.is_symbol(b'.') {
            3
        } else {
            1
        };
        let name = unquoted(self.head(n).token, self.sql);
        let value = self.head(n + 1).token;
        is_one_of(name, SESSION_PRAGMAS) && (value.is_symbol(b'=') || value.is_symbol(b'('))
    }
}
