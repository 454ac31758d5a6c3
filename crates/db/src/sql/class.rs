//! Classifies a text: what it may do to the session and to the transaction.

use super::dialect::Dialect;
use super::insert::InsertTarget;
use super::lexer::Token;
use super::resolved::{Resolved, Resolver};
use super::statement::Statement;
use super::verdict::Verdict;
use super::words::Keyword;

/// What a text may do to the session and to the transaction.
///
/// The class comes from the text alone. A text that is not on the list of harmless ones counts as touching the session.
/// The scanner cannot see what functions, triggers and views of the application do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Class {
    /// The number of statements.
    pub statements: Statements,
    /// The text may change the session.
    ///
    /// `false` for no statement at all, and for a single one that is
    ///
    /// - SELECT, INSERT, UPDATE, DELETE, REPLACE, MERGE, TRUNCATE, VALUES, TABLE, WITH or an
    ///   EXPLAIN of these,
    /// - CREATE, ALTER or DROP of tables, indexes, views, triggers, sequences, types,
    ///   domains, functions and procedures, if nothing in it is called `temp` or `temporary`,
    /// - transaction control, or on PostgreSQL a SET for the length of the transaction,
    /// - one of the dialect's [`plain_statements`](Dialect::plain_statements), or about one of its
    ///   [`plain_objects`](Dialect::plain_objects),
    ///
    /// unless it contains something that can change a session: the dialect's
    /// [`session_functions`](Dialect::session_functions), unknown functions if the dialect trusts
    /// [known ones only](Dialect::only_known_functions),
    /// [`user_variables`](Dialect::user_variables) and [`hash_tables`](Dialect::hash_tables),
    /// INTO a temporary table, names that begin with `pg_temp`, writing to `pg_settings`,
    /// `SQL_CALC_FOUND_ROWS`, executable comments.
    pub touches_session: bool,
    /// The text is a single statement that only makes sense if the session is kept: SET, LISTEN, a temporary table,
    /// ATTACH, USE, a session lock …
    pub only_session: bool,
    /// No reset undoes what the text may do to the session, so the connection has to be replaced: LOAD, a seed for
    /// `random()`, the functions that the dialect calls [irreversible](super::SessionEffect::Irreversible).
    pub survives_reset: bool,
    /// What the text does to the transaction, if it is a single statement of transaction control.
    pub transaction: Option<TransactionVerb>,
    /// The text contains transaction control.
    pub contains_transaction_control: bool,
    /// A hint: the text is a single SELECT, VALUES, TABLE, WITH or an EXPLAIN of these, and shows no write and no row
    /// lock. Functions that it calls may still write.
    pub reads_only: bool,
    /// As [`reads_only`](Class::reads_only), and every function that it calls is [known](Dialect::known_functions) to
    /// change nothing, and it takes no number from a sequence: the text can be cancelled, or run twice, without a trace.
    /// Views, policies, operators, casts, `row.function` and an application's function with the name of a known one are
    /// trusted.
    pub pure_read: bool,
    /// The first keyword of the first statement: EXPLAIN for an explained statement, the inner keyword for one in
    /// parentheses. `None` for another word, and if executable comments make the server's reading uncertain.
    pub(crate) verb: Option<Keyword>,
    /// The table that a single INSERT or REPLACE inserts into, with or without WITH before it.
    pub(crate) insert: Option<InsertTarget>,
    /// The text contains an upsert: ON CONFLICT DO UPDATE.
    pub(crate) upserts: bool,
    /// The text contains a LISTEN or UNLISTEN of PostgreSQL.
    pub(crate) listens: bool,
    /// Reasons not to keep the text as a prepared statement. Read for PostgreSQL only.
    pub(crate) resolved: Resolved,
}

impl Class {
    /// The class of a request that runs no SQL.
    pub(crate) const NO_SQL: Class = Class {
        statements: Statements::Empty,
        touches_session: false,
        survives_reset: false,
        only_session: false,
        transaction: None,
        contains_transaction_control: false,
        reads_only: true,
        pure_read: true,
        verb: None,
        insert: None,
        upserts: false,
        listens: false,
        resolved: Resolved::NOTHING,
    };
}

/// The number of statements in a text. Comments and semicolons do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statements {
    /// No statement.
    Empty,
    /// One statement.
    One,
    /// Several statements. A MySQL routine whose body has semicolons counts as several; a compound statement of MariaDB
    /// outside of a routine (`BEGIN NOT ATOMIC … END`, `IF … END IF`, loops) counts as one.
    Several,
}

/// What a statement of transaction control does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionVerb {
    /// BEGIN, START TRANSACTION.
    Begin,
    /// COMMIT, END.
    Commit,
    /// ROLLBACK, ABORT.
    Rollback,
    /// SAVEPOINT.
    Savepoint,
    /// RELEASE.
    Release,
    /// ROLLBACK TO.
    RollbackTo,
}

/// Splits a text into statements and adds up what they do.
pub(super) struct Classifier<'a> {
    current: Statement<'a>,
    statements: Statements,
    /// The verdict on the last statement.
    verdict: Option<Verdict>,
    /// The verb of the first statement.
    verb: Option<Keyword>,
    contains_transaction_control: bool,
    survives_reset: bool,
    defines_parameters: bool,
    upserts: bool,
    listens: bool,
    /// Set for PostgreSQL.
    resolver: Option<Resolver<'a>>,
}

impl<'a> Classifier<'a> {
    #[inline]
    pub(super) fn new(dialect: &'a Dialect, sql: &'a str) -> Self {
        Classifier {
            current: Statement::new(dialect, sql),
            statements: Statements::Empty,
            verdict: None,
            verb: None,
            contains_transaction_control: false,
            survives_reset: false,
            defines_parameters: false,
            upserts: false,
            listens: false,
            resolver: dialect.transaction_settings.then(|| Resolver::new(sql)),
        }
    }

    #[inline]
    pub(super) fn take(&mut self, token: &Token) {
        if let Some(resolver) = &mut self.resolver {
            resolver.take(token);
        }
        if token.is_symbol(b';') && self.current.ends_with_semicolon() {
            self.end_statement();
            self.current.restart();
        } else {
            self.current.take(token);
        }
    }

    /// Ends the text. Returns its class.
    pub(super) fn finish(&mut self, executable_comment: bool) -> Class {
        self.end_statement();
        let several = self.statements == Statements::Several;
        let alone = self.verdict.filter(|_| !several);
        Class {
            statements: self.statements,
            // A server of another version skips an executable comment, with the quotes and semicolons in it: then
            // nothing that was read is certain.
            touches_session: several
                || executable_comment
                || alone.is_some_and(|verdict| verdict.touches_session),
            only_session: alone.is_some_and(|verdict| verdict.only_session),
            survives_reset: self.survives_reset,
            transaction: alone
                .filter(|_| !executable_comment)
                .and_then(|verdict| verdict.transaction),
            contains_transaction_control: self.contains_transaction_control,
            reads_only: !executable_comment && alone.is_some_and(|verdict| verdict.reads_only),
            pure_read: !executable_comment && alone.is_some_and(|verdict| verdict.pure_read),
            verb: self.verb.filter(|_| !executable_comment),
            insert: alone.and_then(|verdict| verdict.insert),
            upserts: self.upserts,
            listens: self.listens && self.resolver.is_some(),
            resolved: match &self.resolver {
                Some(resolver) => resolver.found(),
                None => Resolved::NOTHING,
            },
        }
    }

    /// Returns whether the text takes parameters, after its end. A script takes none, and neither does a statement that
    /// defines parameters of its own.
    pub(super) fn takes_parameters(&self) -> bool {
        self.statements != Statements::Several && !self.defines_parameters
    }

    fn end_statement(&mut self) {
        if self.current.is_empty() {
            return;
        }
        let verdict = self.current.verdict();
        self.defines_parameters |= self.current.defines_parameters();
        self.contains_transaction_control |= verdict.controls;
        self.survives_reset |= verdict.survives_reset;
        self.upserts |= self.current.notes.upserts;
        self.listens |= matches!(verdict.verb, Some(Keyword::Listen | Keyword::Unlisten));
        self.verdict = Some(verdict);
        self.statements = match self.statements {
            Statements::Empty => {
                self.verb = verdict.verb;
                Statements::One
            }
            Statements::One | Statements::Several => Statements::Several,
        };
    }
}
