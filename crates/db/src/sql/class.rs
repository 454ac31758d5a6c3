//! What a text may do to the session and to the transaction.

use super::dialect::Dialect;
use super::insert::InsertTarget;
use super::lexer::Token;
use super::resolved::{Resolved, Resolver};
use super::statement::Statement;
use super::verdict::Verdict;
use super::words::Keyword;

/// What a text may do to the session and to the transaction.
///
/// It comes from the text alone, by a list of what is allowed: whatever is not known to
/// leave the session alone is said to touch it. What hides behind the text (functions,
/// triggers and views of the application's own schema) cannot be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Class {
    /// How many statements there are.
    pub statements: Statements,
    /// The session may be another one afterwards.
    ///
    /// `false` for no statement at all, and for a single one that is
    ///
    /// - SELECT, INSERT, UPDATE, DELETE, REPLACE, MERGE, TRUNCATE, VALUES, TABLE, WITH or an
    ///   EXPLAIN of these,
    /// - CREATE, ALTER or DROP of tables, indexes, views, triggers, sequences, types,
    ///   domains, functions and procedures, if nothing in it is called `temp` or `temporary`,
    /// - transaction control, or on PostgreSQL a SET for the length of the transaction,
    /// - what the dialect says so of: its [`plain_statements`](Dialect::plain_statements) and
    ///   [`plain_objects`](Dialect::plain_objects),
    ///
    /// as long as nothing in it is known to change a session: the dialect's
    /// [`session_functions`](Dialect::session_functions), and all that are not
    /// [known](Dialect::only_known_functions) where that is asked for;
    /// [`user_variables`](Dialect::user_variables) and [`hash_tables`](Dialect::hash_tables),
    /// INTO a temporary table, names that begin with `pg_temp`, writing to `pg_settings`,
    /// `SQL_CALC_FOUND_ROWS`, executable comments.
    pub touches_session: bool,
    /// It is a single statement that makes no sense unless the session is kept: SET, LISTEN,
    /// a temporary table, ATTACH, USE, a session lock …
    pub only_session: bool,
    /// What it may do to the session no reset undoes, so that the connection has to be replaced: LOAD, a seed for `random()`, the functions
    /// that the dialect calls [irreversible](super::SessionEffect::Irreversible).
    pub survives_reset: bool,
    /// It is a single statement of transaction control.
    pub transaction: Option<TransactionVerb>,
    /// Among its statements there is transaction control.
    pub contains_transaction_control: bool,
    /// A hint: it is a single SELECT, VALUES, TABLE, WITH or an EXPLAIN of these that neither
    /// writes nor locks rows, as far as the text tells. Functions may well write.
    pub reads_only: bool,
    /// As [`reads_only`](Class::reads_only), and every function that it calls is [known](Dialect::known_functions) to change nothing: it can be
    /// cancelled, or run twice, without a trace. What hides behind views, policies, operators, casts and `row.function` is
    /// trusted, and so is a function of the application's own that has the name of a known one.
    pub pure_read: bool,
    /// The keyword that its first statement begins with: EXPLAIN for one that is only explained, the one inside for
    /// one in parentheses. `None` for another word, and if executable comments leave in doubt what the server reads.
    pub(crate) verb: Option<Keyword>,
    /// Where it inserts, if it is a single INSERT or REPLACE, with WITH before it or without.
    pub(crate) insert: Option<InsertTarget>,
    /// Among its statements there is an upsert: ON CONFLICT DO UPDATE.
    pub(crate) upserts: bool,
    /// What speaks against keeping it as a prepared statement of PostgreSQL. Only a dialect of PostgreSQL is read for it.
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
        resolved: Resolved::NOTHING,
    };
}

/// How many statements a text has. Comments and semicolons alone are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Statements {
    /// None.
    Empty,
    /// One.
    One,
    /// Several. A MySQL routine whose body has semicolons counts as several; a compound statement of MariaDB
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
    /// Of the last statement.
    verdict: Option<Verdict>,
    /// Of the first statement.
    verb: Option<Keyword>,
    contains_transaction_control: bool,
    survives_reset: bool,
    defines_parameters: bool,
    upserts: bool,
    /// Set if PostgreSQL is to read the text.
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

    /// The end of the text.
    pub(super) fn finish(&mut self, executable_comment: bool) -> Class {
        self.end_statement();
        let several = self.statements == Statements::Several;
        let alone = self.verdict.filter(|_| !several);
        Class {
            statements: self.statements,
            // A server of another version skips such a comment, quotes and semicolons in
            // it included: then nothing of what was read is sure.
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
            resolved: match &self.resolver {
                Some(resolver) => resolver.found(),
                None => Resolved::NOTHING,
            },
        }
    }

    /// Asked at the end: values can be sent with the text. A script has none, and what defines
    /// parameters of its own takes no others.
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
