//! The one error type of this crate.

mod show;

pub(crate) use self::show::rounded;

use std::error::Error as StdError;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use cenote_pool::Holder;

use crate::driver::{DatabaseError, Violation};
use crate::sql::Dialect;

/// The result of every call of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// Programs branch on [`kind`](Error::kind) and [`violation`](Error::violation), or on the predicates
/// (`is_*`). What the database reported is in [`message`](Error::message), [`sql_state`](Error::sql_state),
/// [`detail`](Error::detail) and the methods beside them; which call failed is in
/// [`call_site`](Error::call_site) and [`sql`](Error::sql). The guide has a page on
/// [what to do about each error](crate::guide::errors).
///
/// `Display` gives one line that is safe to log: the message, the codes, the call site, and at most 120 characters
/// of the SQL with `***` in place of every literal and an arrow at the [`position`](Error::position). It shows neither parameters nor [`detail`](Error::detail),
/// and it does not repeat the text of [`source`](StdError::source). Values that PostgreSQL, MySQL and SQLite quote in their
/// messages are in the detail. Two kinds of text are as their authors wrote them: messages of triggers and of ODBC drivers,
/// and errors of conversions ([`Kind::Type`]), which show the beginning of the value that does not fit.
#[derive(Clone)]
pub struct Error {
    details: Arc<ErrorDetails>,
}

#[derive(Clone)]
struct ErrorDetails {
    kind: Kind,
    message: String,
    database: Option<DatabaseError>,
    call: Option<FailedCall>,
    /// Other lines of the program, and what was done there: `begun at`.
    call_sites: Vec<&'static Location<'static>>,
    roles: Vec<&'static str>,
    holders: Vec<Holder>,
    /// The server cannot have received anything of the call.
    never_sent: bool,
    /// Hosts answered, and none has the role that the program asked for.
    is_without_host: bool,
    /// The parameter set that failed, counted from 0.
    set: Option<u64>,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// The message contains the text of the source.
    repeats_source: bool,
}

/// The call that an error ended.
#[derive(Clone)]
struct FailedCall {
    site: &'static Location<'static>,
    statement: Option<(&'static Dialect, Box<str>)>,
}

/// The kind of an error, for programs to branch on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The DSN, an option or a combination of options is invalid.
    Config,
    /// The handle is closed.
    Closed,
    /// A deadline passed before the call was sent: of an acquire, of a turn on a pinned connection, of a connect.
    Timeout,
    /// The pool's circuit breaker is open, or its queue is full.
    Unavailable,
    /// A connection could not be opened.
    Connect,
    /// The connection was lost during the call.
    ConnectionLost,
    /// The database refused; see [`Error::violation`], [`Error::sql_state`] and [`Error::code`].
    Database,
    /// The number or the names of the parameters do not fit the SQL.
    Parameters,
    /// A value has another type than the program asked for.
    Type,
    /// A row has no such column.
    Column,
    /// A query that has to return one row returned none.
    NoRows,
    /// A query that may return one row returned more.
    TooManyRows,
    /// A future was created in one coroutine or transaction and awaited in another.
    Escaped,
    /// The call needs a coroutine around it.
    NoCoroutine,
    /// A call outside any coroutine, or an `on_connect` hook, left a transaction open, which was
    /// rolled back.
    LeftTransaction,
    /// A call outside any coroutine would have had no effect beyond its session.
    LeftSession,
    /// An open row stream or COPY occupies the connection that this call has to run on.
    Busy,
    /// A call of this transaction was dropped before it was answered, or its `exec_many` failed after some of its sets;
    /// the transaction can only be rolled back.
    Doomed,
    /// The transaction of this call has ended already.
    TransactionEnded,
    /// The statement of a [batch](crate::StatementBatch) did not run, because one before it failed in the same transaction
    /// or ended it, or because the connection was lost before.
    NotRun,
    /// The server ended the transaction, or its connection was lost.
    TransactionLost,
    /// The server answered a commit with a rollback.
    RolledBack,
    /// Whether the server committed, or whether the commit will last, is unknown: the connection was lost during the commit,
    /// or the server stopped waiting for its standbys to confirm it.
    OutcomeUnknown,
    /// The wait for a connection could never have ended.
    SelfDeadlock,
    /// A transaction is open already, and a second one cannot begin here.
    NestedBegin,
    /// No transaction is open that could be committed or rolled back.
    NoTransaction,
    /// The statement exceeded its time limit and was cancelled.
    StatementTimeout,
    /// The transaction exceeded `max_transaction_age` or `idle_in_transaction`, and was rolled back.
    TransactionTimeout,
    /// The driver or the handle does not support the request.
    Unsupported,
    /// A migration failed, or the files contradict the history of the database.
    Migration,
    /// The program's own error, returned from inside a transaction: see [`Error::other`].
    Other,
}

impl Error {
    /// Creates an error of this kind.
    // Cold, so that the compiler moves every branch that ends in an error out of the hot code.
    #[cold]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error {
            details: Arc::new(ErrorDetails {
                kind,
                message: message.into(),
                database: None,
                call: None,
                call_sites: Vec::new(),
                roles: Vec::new(),
                holders: Vec::new(),
                never_sent: false,
                is_without_host: false,
                set: None,
                source: None,
                repeats_source: false,
            }),
        }
    }

    /// Wraps an error of your own, so that a transaction closure can return it.
    ///
    /// It displays as your error does; [`downcast_ref`](Error::downcast_ref) gives your error back.
    pub fn other(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = error.into();
        Error::new(Kind::Other, source.to_string()).because(source)
    }

    /// Creates an error from what the database reported: for drivers.
    pub fn database(reported: DatabaseError) -> Self {
        let mut error = Error::new(Kind::Database, reported.message.clone());
        error.change(|details| details.database = Some(reported));
        error
    }

    /// Changes this error. Its clones stay as they are.
    fn change(&mut self, change: impl FnOnce(&mut ErrorDetails)) {
        change(Arc::make_mut(&mut self.details));
    }

    /// Adds the cause of this error.
    ///
    /// A message that contains the text of the cause stands for it: then [`source`](StdError::source) gives the cause of
    /// the cause, so that a printed chain of causes says nothing twice.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source: Box<dyn StdError + Send + Sync> = source.into();
        let text = match source.downcast_ref::<Error>() {
            Some(inner) => inner.message().to_owned(),
            None => source.to_string(),
        };
        self.change(|details| {
            details.repeats_source = details.message.contains(&text);
            details.source = Some(Arc::from(source));
        });
        self
    }

    /// Marks a call of which the server cannot have received anything: for drivers. The layer
    /// repeats such a call once, on another connection, if nothing depends on the lost one.
    #[must_use]
    pub fn never_sent(mut self) -> Self {
        self.change(|details| details.never_sent = true);
        self
    }

    /// Marks a failed connect to hosts that answered, of which none has the role that the program asked for. The handle
    /// tries again until its callers' deadlines.
    #[must_use]
    pub(crate) fn without_host(mut self) -> Self {
        self.change(|details| details.is_without_host = true);
        self
    }

    pub(crate) fn is_without_host(&self) -> bool {
        self.details.is_without_host
    }

    /// Names the parameter set that failed, counted from 0: for drivers, whose batch has sets of parameters.
    #[must_use]
    #[cold]
    pub fn in_set(mut self, index: u64) -> Self {
        self.change(|details| details.set = Some(index));
        self
    }

    /// Counts the failed parameter set from the first set of the call, which `before` sets precede.
    #[must_use]
    #[cold]
    pub(crate) fn after_sets(mut self, before: u64) -> Self {
        self.change(|details| details.set = details.set.map(|set| set + before));
        self
    }

    /// Returns which parameter set of an `exec_many` or `query_many` failed, counted from 0. `None` if the error concerns
    /// no single set: the database refused the SQL itself, or the connection was lost.
    pub fn set_index(&self) -> Option<u64> {
        self.details.set
    }

    pub(crate) fn was_never_sent(&self) -> bool {
        self.details.never_sent
    }

    /// Adds another line of the program, and what was done there: `begun at`.
    #[must_use]
    #[cold]
    pub(crate) fn at(mut self, role: &'static str, site: &'static Location<'static>) -> Self {
        self.change(|details| {
            details.call_sites.push(site);
            details.roles.push(role);
        });
        self
    }

    /// Adds the row of a COPY that the error is about.
    #[cfg(feature = "postgres")]
    #[must_use]
    #[cold]
    pub(crate) fn in_row(mut self, row: u64) -> Self {
        self.change(|details| details.database.get_or_insert_default().row = Some(row));
        self
    }

    /// Adds the column that the error is about.
    #[cfg(feature = "postgres")]
    #[must_use]
    #[cold]
    pub(crate) fn in_column(mut self, column: &str) -> Self {
        let column = Some(column.to_owned());
        self.change(|details| details.database.get_or_insert_default().column = column);
        self
    }

    /// Adds the leases that were out when the error occurred.
    #[must_use]
    pub(crate) fn with_holders(mut self, holders: Vec<Holder>) -> Self {
        self.change(|details| details.holders = holders);
        self
    }

    /// Adds the call that failed, and its SQL in this dialect. An error that passes through several calls keeps the first.
    #[cold]
    pub(crate) fn set_call(
        &mut self,
        site: &'static Location<'static>,
        statement: Option<(&'static Dialect, &str)>,
    ) {
        if self.details.call.is_none() {
            let statement = statement.map(|(dialect, sql)| (dialect, Box::from(sql)));
            self.change(|details| details.call = Some(FailedCall { site, statement }));
        }
    }

    /// Adds the call, as `set_call` does, and returns the error.
    #[must_use]
    #[cold]
    pub(crate) fn in_call(
        mut self,
        site: &'static Location<'static>,
        statement: Option<(&'static Dialect, &str)>,
    ) -> Self {
        self.set_call(site, statement);
        self
    }

    /// Names the call of the program in which a call of this crate failed.
    #[cfg(feature = "migrate")]
    #[must_use]
    pub(crate) fn of_call(mut self, site: &'static Location<'static>) -> Self {
        self.change(|details| {
            let statement = details.call.take().and_then(|call| call.statement);
            details.call = Some(FailedCall { site, statement });
        });
        self
    }

    /// Adds what to do about the error.
    #[cfg(feature = "migrate")]
    #[must_use]
    pub(crate) fn with_advice(mut self, advice: &str) -> Self {
        self.change(|details| details.message = format!("{}; {advice}", details.message));
        self
    }

    /// Names an earlier failure that this error follows from, and keeps it as the cause.
    pub(crate) fn set_first_failure(&mut self, first: Error) {
        let message = format!("{}; first failure: {}", self.message(), first.message());
        self.change(|details| {
            details.message = message;
            if let Some(site) = first.call_site() {
                details.call_sites.push(site);
                details.roles.push("at");
            }
            details.source = Some(Arc::new(first));
            details.repeats_source = true;
        });
    }

    /// Wraps this error in one of another kind. What the database reported stays readable there.
    #[must_use]
    pub(crate) fn wrapped(self, kind: Kind, message: impl Into<String>) -> Self {
        let mut error = Error::new(kind, message);
        let (reported, set) = (self.details.database.clone(), self.details.set);
        error.change(|details| {
            details.database = reported;
            details.set = set;
        });
        error.because(self)
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> Kind {
        self.details.kind
    }

    /// Returns what happened, in one line; for [`Kind::Database`], the database's own words.
    pub fn message(&self) -> &str {
        &self.details.message
    }

    fn reported(&self) -> Option<&DatabaseError> {
        self.details.database.as_ref()
    }

    /// Returns the SQLSTATE, five characters of the SQL standard, if the database reported one.
    pub fn sql_state(&self) -> Option<&str> {
        self.reported()?.sql_state.as_deref()
    }

    /// Returns the database's own error number.
    pub fn code(&self) -> Option<i64> {
        self.reported()?.code
    }

    /// Returns which rule of the schema or of the server was violated, if the driver knows.
    pub fn violation(&self) -> Option<Violation> {
        self.reported()?.violation
    }

    /// Returns the details that the database reported besides its message, such as the duplicate value of a
    /// unique key. They often contain personal data, so neither `Display` nor `Debug` shows them.
    pub fn detail(&self) -> Option<&str> {
        self.reported()?.detail.as_deref()
    }

    /// Returns the database's advice, where it has any. PostgreSQL only.
    pub fn hint(&self) -> Option<&str> {
        self.reported()?.hint.as_deref()
    }

    /// Returns the schema of the [`table`](Error::table); MySQL calls it a database.
    pub fn schema(&self) -> Option<&str> {
        self.reported()?.schema.as_deref()
    }

    /// Returns the table that the error is about, where the database names it.
    pub fn table(&self) -> Option<&str> {
        self.reported()?.table.as_deref()
    }

    /// Returns the column that the error is about, where the database names exactly one.
    pub fn column(&self) -> Option<&str> {
        self.reported()?.column.as_deref()
    }

    /// Returns the row of a COPY that the error is about, counted from 0: the index in the rows of `copy_in_rows`, or the
    /// line of the text that `copy_in` has sent, where a header is line 0. PostgreSQL only.
    pub fn row(&self) -> Option<u64> {
        self.reported()?.row
    }

    /// Returns the name of the violated constraint, where the database names it.
    pub fn constraint(&self) -> Option<&str> {
        self.reported()?.constraint.as_deref()
    }

    /// Returns the character of the SQL that the error is about, counted from 1 in the text as you wrote it. PostgreSQL
    /// and SQLite report it for most mistakes in a text.
    pub fn position(&self) -> Option<usize> {
        self.reported()?.position
    }

    /// Translates the position, here and in the causes.
    pub(crate) fn relocate(&mut self, written: &dyn Fn(usize) -> usize) {
        let Some(sent) = self.position() else {
            return;
        };
        self.change(|details| {
            if let Some(reported) = &mut details.database {
                reported.position = Some(written(sent));
            }
            let inner = details
                .source
                .as_ref()
                .and_then(|it| it.downcast_ref::<Error>());
            if let Some(mut inner) = inner.cloned() {
                inner.relocate(written);
                details.source = Some(Arc::new(inner));
            }
        });
    }

    /// Returns the line of the program that made the failed call. `None` only for an error that no call
    /// returned, such as one of [`Row::get`](crate::Row::get).
    pub fn call_site(&self) -> Option<&'static Location<'static>> {
        self.details.call.as_ref().map(|call| call.site)
    }

    /// Returns the SQL of the failed call, whole and as you wrote it. Its literals may be personal data: `Display`
    /// shows it with literals masked. `None` for calls without SQL, such as a commit.
    pub fn sql(&self) -> Option<&str> {
        let (_, sql) = self.details.call.as_ref()?.statement.as_ref()?;
        Some(sql)
    }

    /// Returns the other lines of the program that caused the error: where the transaction was begun, which call was dropped,
    /// which transactions wait for each other. `Display` says which is which.
    pub fn call_sites(&self) -> &[&'static Location<'static>] {
        &self.details.call_sites
    }

    /// Returns who held the connections when an acquire timed out: the line of the program and the time since then, the
    /// longest first. Empty for every other error.
    pub fn holders(&self) -> &[Holder] {
        &self.details.holders
    }

    /// Returns whether the call failed because its connection, or the transaction on it, was lost, or its commit is in doubt:
    /// the kind is `ConnectionLost`, `OutcomeUnknown` or `TransactionLost`.
    pub fn is_connection_lost(&self) -> bool {
        matches!(
            self.kind(),
            Kind::ConnectionLost | Kind::OutcomeUnknown | Kind::TransactionLost
        )
    }

    /// Returns whether the same transaction may succeed if it is run again: after a serialization failure,
    /// a deadlock, a lock that was not granted in time, or on a server without room for another transaction.
    pub fn is_retryable(&self) -> bool {
        self.kind() != Kind::OutcomeUnknown
            && matches!(
                self.violation(),
                Some(
                    Violation::Serialization
                        | Violation::Deadlock
                        | Violation::Locked
                        | Violation::Exhausted
                )
            )
    }

    /// Returns whether a unique or primary key has this value already.
    pub fn is_unique_violation(&self) -> bool {
        self.violation() == Some(Violation::Unique)
    }

    /// Returns whether a foreign key refers to no row, or a row is still referred to.
    pub fn is_foreign_key_violation(&self) -> bool {
        self.violation() == Some(Violation::ForeignKey)
    }

    /// Returns whether a column that must have a value has none.
    pub fn is_not_null_violation(&self) -> bool {
        self.violation() == Some(Violation::NotNull)
    }

    /// Returns whether a check constraint failed.
    pub fn is_check_violation(&self) -> bool {
        self.violation() == Some(Violation::Check)
    }

    /// Returns whether a deadline passed: of an acquire, a statement or a transaction.
    pub fn is_timeout(&self) -> bool {
        matches!(
            self.kind(),
            Kind::Timeout | Kind::StatementTimeout | Kind::TransactionTimeout
        )
    }

    /// Returns the cause of this error, such as the program's own error, if it has this type.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.details.source.as_ref()?.downcast_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::line(&self.details, out)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        show::fields(&self.details, out)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.details.source.as_ref()?;
        match self.details.repeats_source {
            true => source.source(),
            false => Some(&**source),
        }
    }
}
