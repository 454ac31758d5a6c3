//! The one error type of this crate.

use std::error::Error as StdError;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

use crate::driver::{DatabaseError, Violation};

/// What calls of this crate return.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
///
/// [`kind`](Error::kind) says what sort of thing happened; the predicates answer what
/// programs ask most often; [`sql_state`](Error::sql_state), [`code`](Error::code)
/// and [`message`](Error::message) hold what the database said. Printing it gives one line;
/// what caused it is in [`source`](StdError::source).
#[derive(Clone)]
pub struct Error {
    details: Arc<ErrorDetails>,
}

#[derive(Clone)]
struct ErrorDetails {
    kind: Kind,
    message: String,
    database: Option<DatabaseError>,
    call_sites: Vec<&'static Location<'static>>,
    /// The server cannot have seen anything of the call.
    never_sent: bool,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// What sort of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// The DSN, an option or a combination of them is wrong.
    Config,
    /// The handle is closed.
    Closed,
    /// A deadline passed: waiting for a connection, for a turn on one, or for a connect.
    Timeout,
    /// The pool's circuit breaker is open.
    Unavailable,
    /// A connection could not be opened.
    Connect,
    /// The connection was lost under a call.
    ConnectionLost,
    /// The database refused; see [`Error::sql_state`] and [`Error::code`].
    Database,
    /// The number or the names of the parameters do not fit the SQL.
    Parameters,
    /// A value has another type than was asked for.
    Type,
    /// A row has no such column.
    Column,
    /// Exactly one row was asked for and there was none.
    NoRows,
    /// At most one row was asked for and there were more.
    TooManyRows,
    /// A future was made in one coroutine or transaction and awaited in another.
    Escaped,
    /// The call needs a coroutine around it.
    NoCoroutine,
    /// A call outside any coroutine, or an `on_connect` hook, left a transaction open; it was
    /// rolled back.
    LeftTransaction,
    /// A call outside any coroutine would only have changed the session.
    LeftSession,
    /// A row stream holds the connection that this call has to run on.
    Busy,
    /// A call of this transaction was dropped half-way; it can only be rolled back.
    Doomed,
    /// The transaction is over, though this call belongs to it.
    TransactionEnded,
    /// The server ended the transaction, or its connection was lost.
    TransactionLost,
    /// The server answered a commit with a rollback.
    RolledBack,
    /// The connection was lost during a commit: nobody can tell what became of it.
    OutcomeUnknown,
    /// Waiting for a connection could never have ended.
    SelfDeadlock,
    /// There is a transaction already, where a second one cannot be.
    NestedBegin,
    /// There is no transaction to commit or to roll back.
    NoTransaction,
    /// The statement ran longer than its limit.
    StatementTimeout,
    /// The transaction was older than its limit, or idle for longer than its limit.
    TransactionTimeout,
    /// What was asked for is not there with this driver or this kind of handle.
    Unsupported,
    /// A migration failed, or the files contradict the history of the database.
    Migration,
    /// The caller's own, from inside a transaction.
    Other,
}

impl Error {
    /// An error of this kind.
    // Cold, and with it every branch that ends in an error: they do not lie among those that do not.
    #[cold]
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error::of(ErrorDetails {
            kind,
            message: message.into(),
            database: None,
            call_sites: Vec::new(),
            never_sent: false,
            source: None,
        })
    }

    /// Wraps an error of your own, so that a transaction closure can return it.
    pub fn other(error: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source = error.into();
        Error::new(Kind::Other, source.to_string()).because(source)
    }

    /// What the database said: for drivers.
    pub fn database(said: DatabaseError) -> Self {
        let mut error = Error::new(Kind::Database, said.message.clone());
        error.change(|details| details.database = Some(said));
        error
    }

    fn of(details: ErrorDetails) -> Self {
        Error {
            details: Arc::new(details),
        }
    }

    /// Changes this one. Clones of it stay as they are.
    fn change(&mut self, change: impl FnOnce(&mut ErrorDetails)) {
        change(Arc::make_mut(&mut self.details));
    }

    /// With what caused it.
    #[must_use]
    pub fn because(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        let source: Box<dyn StdError + Send + Sync> = source.into();
        self.change(|details| details.source = Some(Arc::from(source)));
        self
    }

    /// Says that the server cannot have seen anything of the call: for drivers. The layer
    /// then tries a call that nothing depends on once more, on another connection.
    #[must_use]
    pub fn never_sent(mut self) -> Self {
        self.change(|details| details.never_sent = true);
        self
    }

    pub(crate) fn was_never_sent(&self) -> bool {
        self.details.never_sent
    }

    /// With a line of the program that has to do with it.
    #[must_use]
    #[cold]
    pub(crate) fn at(mut self, site: &'static Location<'static>) -> Self {
        self.change(|details| details.call_sites.push(site));
        self
    }

    /// The same story under another heading: what was said keeps standing in it.
    #[must_use]
    pub(crate) fn wrapped(self, kind: Kind, message: impl Into<String>) -> Self {
        let mut error = Error::new(kind, message);
        let said = self.details.database.clone();
        error.change(|details| {
            details.database = said;
            details.source = Some(Arc::new(self));
        });
        error
    }

    /// What sort of thing went wrong.
    pub fn kind(&self) -> Kind {
        self.details.kind
    }

    /// What happened, in one line; for [`Kind::Database`], the database's own words.
    pub fn message(&self) -> &str {
        &self.details.message
    }

    /// The five characters of the SQL standard, if the database said any.
    pub fn sql_state(&self) -> Option<&str> {
        self.details.database.as_ref()?.sql_state.as_deref()
    }

    /// The database's own error number.
    pub fn code(&self) -> Option<i64> {
        self.details.database.as_ref()?.code
    }

    /// Which rule of the schema or of the server was broken, if the driver knows.
    pub fn violation(&self) -> Option<Violation> {
        self.details.database.as_ref()?.violation
    }

    /// The name of the constraint that was violated, where the database tells.
    pub fn constraint(&self) -> Option<&str> {
        self.details.database.as_ref()?.constraint.as_deref()
    }

    /// The character of the SQL that it is about, counted from 1 in the text as it was written. PostgreSQL
    /// tells it for most mistakes in a text.
    pub fn position(&self) -> Option<usize> {
        self.details.database.as_ref()?.position
    }

    /// With another position, found from the one that the database told.
    #[must_use]
    pub(crate) fn relocated(mut self, written: &dyn Fn(usize) -> usize) -> Self {
        let Some(sent) = self.position() else {
            return self;
        };
        self.change(|details| {
            if let Some(said) = &mut details.database {
                said.position = Some(written(sent));
            }
            let inner = details
                .source
                .as_ref()
                .and_then(|it| it.downcast_ref::<Error>());
            if let Some(inner) = inner.cloned() {
                details.source = Some(Arc::new(inner.relocated(written)));
            }
        });
        self
    }

    /// Lines of the program that have to do with it: which call does not fit its SQL, who holds
    /// the connection that was waited for, which call was dropped, which transactions wait for each other.
    pub fn call_sites(&self) -> &[&'static Location<'static>] {
        &self.details.call_sites
    }

    /// The connection is gone.
    pub fn is_connection_lost(&self) -> bool {
        matches!(
            self.kind(),
            Kind::ConnectionLost | Kind::OutcomeUnknown | Kind::TransactionLost
        )
    }

    /// The same transaction, run again, may well succeed: a serialization failure,
    /// a deadlock, a lock that was not granted in time.
    pub fn is_retryable(&self) -> bool {
        self.kind() != Kind::OutcomeUnknown
            && matches!(
                self.violation(),
                Some(Violation::Serialization | Violation::Deadlock | Violation::Locked)
            )
    }

    /// A unique or primary key already has this value.
    pub fn is_unique_violation(&self) -> bool {
        self.violation() == Some(Violation::Unique)
    }

    /// A foreign key points nowhere, or still points here.
    pub fn is_foreign_key_violation(&self) -> bool {
        self.violation() == Some(Violation::ForeignKey)
    }

    /// A column that must have a value has none.
    pub fn is_not_null_violation(&self) -> bool {
        self.violation() == Some(Violation::NotNull)
    }

    /// A check constraint says no.
    pub fn is_check_violation(&self) -> bool {
        self.violation() == Some(Violation::Check)
    }

    /// A deadline passed: of waiting, of a statement or of a transaction.
    pub fn is_timeout(&self) -> bool {
        matches!(
            self.kind(),
            Kind::Timeout | Kind::StatementTimeout | Kind::TransactionTimeout
        )
    }

    /// The caller's own error, if this carries one of that type.
    pub fn downcast_ref<E: StdError + 'static>(&self) -> Option<&E> {
        self.details.source.as_ref()?.downcast_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.details.message)?;
        if let Some(state) = self.sql_state() {
            write!(out, " (SQLSTATE {state}")?;
            if let Some(code) = self.code() {
                write!(out, ", code {code}")?;
            }
            if let Some(position) = self.position() {
                write!(out, ", at character {position}")?;
            }
            out.write_str(")")?;
        } else if let Some(code) = self.code() {
            write!(out, " (code {code})")?;
        }
        for (n, site) in self.details.call_sites.iter().enumerate() {
            write!(out, "{}{site}", if n == 0 { "; at " } else { ", " })?;
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = out.debug_struct("Error");
        shown.field("kind", &self.kind());
        shown.field("message", &self.details.message);
        if let Some(said) = &self.details.database {
            shown.field("database", said);
        }
        if !self.details.call_sites.is_empty() {
            shown.field("call_sites", &self.details.call_sites);
        }
        if let Some(source) = &self.details.source {
            shown.field("source", source);
        }
        shown.finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        let source = self.details.source.as_ref()?;
        Some(&**source)
    }
}
