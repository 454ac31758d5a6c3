//! Decides what a statement may do, when it has been read.

use super::class::TransactionVerb;
use super::insert::InsertTarget;
use super::lexer::TokenKind;
use super::notes::SoleCall;
use super::statement::Statement;
use super::words::{Keyword, contains_word, is_one_of};

/// What a statement may do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Verdict {
    pub(super) touches_session: bool,
    pub(super) only_session: bool,
    pub(super) survives_reset: bool,
    pub(super) transaction: Option<TransactionVerb>,
    /// The statement contains transaction control.
    pub(super) controls: bool,
    pub(super) reads_only: bool,
    pub(super) pure_read: bool,
    pub(super) verb: Option<Keyword>,
    pub(super) insert: Option<InsertTarget>,
}

/// Objects that CREATE, ALTER and DROP can name without changing the session.
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

/// Words after a BEGIN that begins a transaction and not a block.
pub(super) const BEGIN_MODES: &[&str] = &[
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

/// Words after a SET that does not change the session, or not only the session.
const OTHER_SETS: &[&str] = &["constraints", "default", "password", "statement"];

/// Words after a SET that ends with PostgreSQL's transaction.
const TRANSACTION_SETS: &[&str] = &["constraints", "local", "transaction"];

/// SQLite's pragmas that change the connection, and not the file.
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

impl Statement<'_> {
    pub(super) fn verdict(&self) -> Verdict {
        let notes = &self.notes;
        if let Some(compound) = &notes.compound {
            return Verdict {
                touches_session: true,
                only_session: false,
                survives_reset: false,
                transaction: None,
                controls: compound.controls,
                reads_only: false,
                pure_read: false,
                verb: self.verb(),
                insert: None,
            };
        }
        let transaction = self.transaction_verb();
        let touches_session = !self.is_allowed(transaction) || self.has_side_door();
        let reads = matches!(
            self.verb(),
            Some(Keyword::Select | Keyword::Values | Keyword::Table | Keyword::With)
        );
        let reads_only = reads && !notes.writes && !notes.into && !touches_session;
        Verdict {
            touches_session,
            only_session: touches_session && !notes.explained && self.is_only_session(),
            survives_reset: touches_session && self.survives_reset(),
            transaction,
            controls: transaction.is_some(),
            reads_only,
            pure_read: reads_only && !notes.unknown_call,
            verb: match notes.explained {
                true => Some(Keyword::Explain),
                false => self.verb(),
            },
            insert: notes.target.found().filter(|_| !notes.explained),
        }
    }

    /// Returns whether the n-th token is one of these words.
    fn head_is_one_of(&self, n: usize, words: &[&str]) -> bool {
        self.head(n).is_one_of(words, self.sql)
    }

    /// Returns whether the statement is on the list of those that leave the session unchanged, apart from side doors.
    fn is_allowed(&self, transaction: Option<TransactionVerb>) -> bool {
        match self.verb() {
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
                let n = self.behind_or_replace();
                let is_permanent = self.head_is_one_of(n, PERMANENT)
                    || self.head_is_one_of(n, self.dialect.plain_objects);
                is_permanent && !self.notes.temporary
            }
            Some(Keyword::Set) => self.sets_for_transaction(),
            _ => transaction.is_some() || self.head_is_one_of(0, self.dialect.plain_statements),
        }
    }

    fn has_side_door(&self) -> bool {
        let notes = &self.notes;
        let own_sets = match self.verb() {
            Some(Keyword::Update | Keyword::Insert | Keyword::Merge | Keyword::Set) => 1,
            _ => 0,
        };
        notes.side_door
            || notes.into_temporary
            || notes.open_setting.is_some()
            || notes.settings_view && notes.writes
            || self.dialect.unseparated_statements && notes.sets > own_sets
    }

    /// Returns whether no reset undoes what the statement does. It touches the session.
    fn survives_reset(&self) -> bool {
        let notes = &self.notes;
        let by_verb = match self.verb() {
            Some(Keyword::Set | Keyword::Reset) => self.sets_seed(),
            Some(Keyword::Load) => self.head(1).kind == TokenKind::Text,
            // The body is a string, which is searched for this word only.
            Some(Keyword::Do) if self.dialect.dollar_quotes => {
                let body = self.sql.as_bytes();
                [&b"load"[..], b"seed", b"dblink", b"replication_", b"backup"]
                    .into_iter()
                    .any(|word| contains_word(body, word))
            }
            _ => notes.settings_view && notes.writes,
        };
        by_verb || notes.irreversible
    }

    /// Returns whether it is PostgreSQL's `SET seed`, which reseeds `random()` for good, also with LOCAL.
    fn sets_seed(&self) -> bool {
        let is_seed = |n| is_one_of(self.head(n).name(self.sql), &["seed"]);
        self.dialect.transaction_settings && (is_seed(1) || is_seed(2))
    }

    /// Returns the index of the token after CREATE or CREATE OR REPLACE.
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
        match self.verb()? {
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
            // A prepared transaction is another session's.
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

    /// Returns whether it is a SET that ends with the transaction. `SET local.x = 1` does not: there `local` is part of
    /// a name.
    fn sets_for_transaction(&self) -> bool {
        let next = self.head(2);
        self.dialect.transaction_settings
            && self.head_is_one_of(1, TRANSACTION_SETS)
            && matches!(next.kind, TokenKind::Word | TokenKind::Quoted)
            && !next.is(Keyword::To)
            && !self.sets_seed()
    }

    /// Returns whether the statement only makes sense if the session is kept. It touches the session.
    fn is_only_session(&self) -> bool {
        let notes = &self.notes;
        let Some(verb) = self.verb() else {
            return self.is_only_session_in_mysql();
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
            Keyword::Load => self.head(1).kind == TokenKind::Text,
            // PostgreSQL's LOCK TABLE ends with the transaction.
            Keyword::Lock | Keyword::Unlock => {
                self.head_is_one_of(1, &["tables", "instance"])
                    || self.head(1).is(Keyword::Table) && !self.dialect.transaction_settings
            }
            Keyword::Declare => notes.with_hold,
            Keyword::Create => self.creates_temporary(),
            Keyword::Alter => self.head_is_one_of(1, &["session"]),
            Keyword::Drop => self.head(1).is(Keyword::Prepare) || self.is_temporary(1),
            Keyword::Pragma => self.sets_session_pragma(),
            Keyword::Select | Keyword::With | Keyword::Table | Keyword::Values => {
                notes.sole_call == SoleCall::Closed
                    || notes.into_temporary && !notes.writes
                    || notes.into_variable
            }
            Keyword::Do => notes.sole_call == SoleCall::Closed || self.head(1).is_symbol(b'@'),
            _ => false,
        }
    }

    /// Returns whether the last words are FOR EXPORT.
    fn ends_for_export(&self) -> bool {
        let (before, last) = self.last_name();
        let before = before.trim_end().as_bytes();
        let behind_for = |at: usize| before[at..].eq_ignore_ascii_case(b"for");
        last.eq_ignore_ascii_case("export") && before.len().checked_sub(3).is_some_and(behind_for)
    }

    /// As [`is_only_session`](Statement::is_only_session), for statements of MySQL and MariaDB: cursors, locks (WITH
    /// READ LOCK is noted as a write), global transactions and the diagnostics of the last error.
    fn is_only_session_in_mysql(&self) -> bool {
        let is = |words: &[&str]| self.head_is_one_of(0, words);
        is(&["handler"])
            || is(&["flush"]) && (self.notes.writes || self.ends_for_export())
            || is(&["backup"]) && self.head_is_one_of(1, &["lock", "stage", "unlock"])
            || is(&["xa"]) && self.head_is_one_of(1, &["begin", "end", "prepare", "start"])
            || is(&["get"]) && self.head_is_one_of(1, &["current", "diagnostics", "stacked"])
    }

    /// Returns whether the statement defines parameters of its own: PREPARE, or CREATE of a function or procedure.
    pub(super) fn defines_parameters(&self) -> bool {
        match self.verb() {
            Some(Keyword::Prepare) => !self.head(1).is(Keyword::Transaction),
            Some(Keyword::Create) => {
                self.head_is_one_of(self.behind_or_replace(), &["function", "procedure"])
            }
            _ => false,
        }
    }

    fn creates_temporary(&self) -> bool {
        let n = self.behind_or_replace();
        // Except in PostgreSQL, a global temporary table is permanent.
        let scope = self.head(n).is(Keyword::Local)
            || self.head(n).is(Keyword::Global) && self.dialect.transaction_settings;
        self.is_temporary(n) || scope && self.is_temporary(n + 1)
    }

    fn sets_session_pragma(&self) -> bool {
        let n = if self.head(2).is_symbol(b'.') { 3 } else { 1 };
        let name = self.head(n).name(self.sql);
        let value = self.head(n + 1);
        is_one_of(name, SESSION_PRAGMAS) && (value.is_symbol(b'=') || value.is_symbol(b'('))
    }
}
