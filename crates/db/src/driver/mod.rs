//! What a database driver has to be: [`Driver`], [`Template`], [`Connection`].
//!
//! ```text
//! Driver ──template(dsn)──> Template ──connect(credentials)──> Connection
//! by name    opens nothing    one a Db     by the pool, when needed
//! ```
//!
//! A driver speaks to the database and tells the truth about it. It knows nothing of
//! tasks, pools or nested transactions: those are the layer's. Anybody can write one;
//! [`Db::builder_with`](crate::Db::builder_with) takes it, and the `cenote-testkit` crate has
//! the suite that every driver has to pass.
//!
//! # Rules for drivers
//!
//! 1. **The server's word.** [`Connection::status`] is what the server last said, not what
//!    was sent. From the moment a BEGIN, COMMIT or ROLLBACK is sent until it is
//!    answered it is [`Status::Unknown`].
//! 2. **Dropped futures.** Any future of a connection may be dropped at any await. After
//!    that the layer calls [`settle`](Connection::settle) before anything else: it cancels what still runs,
//!    waits until the server is done with it, and throws its rows and errors away. Until
//!    that has succeeded, no other call may see anything of the dropped one.
//! 3. **Errors are final.** An error is returned when the server is done with the call,
//!    so that the status is known with it.
//! 4. **Broken is for ever.** Once [`is_broken`](Connection::is_broken), always; the layer closes it.
//! 5. Nothing blocks the thread that polls for longer than a bounded, tested time (SQLite: 2 ms of processor time).

#[cfg(any(feature = "postgres", feature = "mysql", feature = "odbc"))]
pub(crate) mod cache;
mod sqlstate;
#[cfg(any(feature = "odbc", feature = "sqlite"))]
pub(crate) mod worker;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub use crate::config::dsn::{Dsn, Host, OptionReader, Options};
pub use crate::config::secret::{Credentials, Secret};
pub use crate::sql::Dialect;
pub use crate::types::row::{
    Batch, BatchBuilder, Cell, CellBytes, Column, Columns, Decode, IntoRows,
};
pub use crate::types::value::Value;
use crate::{Error, Result, Row};

/// A future of a driver.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Boxes a future that is made where it is to stay. `Box::pin` makes it on the stack and moves it, all of it: a
/// large one costs as much as a short call.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
pub(crate) fn boxed_in_place<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}

/// A kind of database.
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// What it is called in messages, and before the colon of a DSN: `sqlite`.
    fn name(&self) -> &'static str;

    /// Other names before the colon: `sqlite3`.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// Reads a DSN and options into a template. Opens nothing.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`](crate::Kind::Config) for a DSN that cannot be meant, and for every option it does
    /// not know: none is dropped in silence.
    fn template(&self, dsn: &Dsn, options: &Options) -> Result<Arc<dyn Template>>;
}

/// What all connections of one handle have in common; from it each is made.
pub trait Template: fmt::Debug + Send + Sync + 'static {
    /// How SQL is written here.
    fn dialect(&self) -> &'static Dialect;

    /// Where it leads to, for messages. No credentials in it.
    fn address(&self) -> String;

    /// Several connections see the same database. A private in-memory one does not.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`](crate::Kind::Config), saying what to do.
    fn check_poolable(&self) -> Result<()> {
        Ok(())
    }

    /// A transaction that writes keeps all other writers out, as in SQLite: the layer then
    /// refuses what could only wait for itself.
    fn one_writer(&self) -> bool {
        false
    }

    /// Opens a connection.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves nothing open.
    ///
    /// # Errors
    ///
    /// [`Kind::Connect`](crate::Kind::Connect), with what the server said in it.
    fn connect<'t>(
        &'t self,
        credentials: Credentials,
        settings: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>>;

    /// Itself, so that an application can reach what only this driver has.
    fn as_any(&self) -> &dyn Any;
}

/// What the layer wants of every connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectSettings {
    /// Prepared statements that a connection keeps; 0 is none.
    pub statement_cache: usize,
    /// Every session is reset, because statements change it in ways that neither their text nor the server tells:
    /// [`reset`](Connection::reset) has to undo all that can be undone, and not only what is known to have changed.
    pub full_reset: bool,
}

impl ConnectSettings {
    /// With a statement cache of this size.
    pub fn new(statement_cache: usize) -> Self {
        ConnectSettings {
            statement_cache,
            full_reset: false,
        }
    }
}

/// An open connection. See the [module](self) for the rules.
pub trait Connection: fmt::Debug + Send + 'static {
    /// Runs one statement, or a script of several if there are no parameters. The outcome of a
    /// script is its last statement's.
    fn run<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Outcome>>;

    /// Runs one statement, or a script of several if there are no parameters, and returns the outcome of each
    /// statement, or each result set of a procedure, in order.
    ///
    /// # Errors
    ///
    /// [`Kind::Unsupported`](crate::Kind::Unsupported) if the driver cannot do so for a script, which is the default.
    fn run_all<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Vec<Outcome>>> {
        Box::pin(async move {
            if request.script {
                let message =
                    "the driver returns one outcome for a script: run its statements one by one";
                return Err(Error::new(crate::Kind::Unsupported, message));
            }
            Ok(vec![self.run(request).await?])
        })
    }

    /// Runs one statement with many sets of parameters, in as few round trips as
    /// there can be. The affected rows are added up. It stops at the first error.
    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>>;

    /// Prepares a statement, and keeps it in the cache where there is one.
    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>>;

    /// Starts a statement whose rows are taken batch by batch with
    /// [`poll_batch`](Connection::poll_batch).
    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>>;

    /// The next rows of the stream; `None` after the last. No more than a bounded
    /// number is ever kept ready.
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>>;

    /// Ends a stream before its last row. In a transaction it never aborts it. Fine if there is
    /// none.
    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Begins a transaction, with its first statement if there is one: in one round
    /// trip where that can be done. The outcome is that statement's.
    ///
    /// # Errors
    ///
    /// Of the BEGIN, or of the statement; [`status`](Connection::status) tells which.
    fn begin_with<'c>(
        &'c mut self,
        begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>>;

    /// Whether BEGIN had better travel with the first statement.
    fn begins_lazily(&self) -> bool {
        false
    }

    /// Commits. [`CommitOutcome::RolledBack`] if that is what the server did.
    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>>;

    /// Rolls the whole transaction back. Fine if there is none.
    fn rollback(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Sets, releases or goes back to a savepoint of the open transaction.
    fn savepoint<'c>(&'c mut self, step: Savepoint<'c>) -> BoxFuture<'c, Result<()>>;

    /// The transaction, as the server last told.
    fn status(&self) -> Status;

    /// The server told that the last call changed the session; of a stream, asked when it has
    /// ended. The layer looks at the text besides; `false` is no promise.
    fn session_changed(&self) -> bool {
        false
    }

    /// The session may be changed by what is sent next, or was changed by what was sent last: its
    /// settings, its temporary tables … Until the next [`reset`](Connection::reset) it is not what it
    /// was after connecting.
    ///
    /// A database may resolve names and literals when it prepares a statement. Where it does, a
    /// driver does not use prepared statements across this call, in either direction: neither those
    /// of before while the session is changed, nor those of the changed session after the reset.
    fn expect_session_change(&mut self) {}

    /// The layer has set the session up, by `on_connect` and defaults: from now on it counts as what
    /// it was after connecting.
    fn session_is_set_up(&mut self) {}

    /// Warnings of the last call.
    fn warnings(&self) -> u64 {
        0
    }

    /// It must not be used again.
    fn is_broken(&self) -> bool;

    /// Looks, without a round trip, whether the other side has closed the connection;
    /// [`is_broken`](Connection::is_broken) says so afterwards. The layer calls it before every use;
    /// `rested` is the time since the last answer, so that a driver can leave out what costs a
    /// system call after no rest at all.
    fn probe(&mut self, rested: Duration) {
        let _ = rested;
    }

    /// After a dropped future: cancels what still runs, waits for it to be over and
    /// throws away what comes of it; a stream that is open ends with it. Fine if there is
    /// nothing. What changes nothing that matters (a savepoint being set, a ping, a prepare) had
    /// better be waited for than cancelled, where cancelling would fail the transaction.
    fn settle(&mut self) -> BoxFuture<'_, Result<()>>;

    /// A round trip.
    fn ping(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Brings the session back to what it was after connecting. There is no open
    /// transaction. [`Reset::Replace`] if that cannot be done.
    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>>;

    /// Sets a named setting of the session: see [`Db::set_default`](crate::Db::set_default).
    ///
    /// # Errors
    ///
    /// [`Kind::Unsupported`](crate::Kind::Unsupported) if there are none here.
    fn set<'c>(&'c mut self, name: &'c str, value: &'c Value<'c>) -> BoxFuture<'c, Result<()>> {
        let _ = value;
        let message = format!("the driver has no settings to set: {name}");
        Box::pin(async move { Err(Error::new(crate::Kind::Unsupported, message)) })
    }

    /// Says goodbye, also after a dropped future. What it cannot do within its deadline, dropping it must do.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>>;

    /// What only this driver has.
    fn as_any(&mut self) -> &mut dyn Any;
}

/// A statement to run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// The SQL, with the placeholders that the dialect wants.
    pub sql: &'a str,
    /// One for each placeholder.
    pub params: &'a [Param<'a>],
    /// How many statements there are in it.
    pub script: bool,
    /// It will be run again: worth a place in the cache.
    pub cache: bool,
    /// Its rows are wanted.
    pub rows: bool,
    /// Nothing that follows on this connection depends on it: it is a transaction of its own, and
    /// the connection is for the next who needs one afterwards.
    pub unpinned: bool,
}

impl<'a> Request<'a> {
    /// A single statement that is worth caching and whose rows are wanted.
    pub fn new(sql: &'a str, params: &'a [Param<'a>]) -> Self {
        Request {
            sql,
            params,
            script: false,
            cache: true,
            rows: true,
            unpinned: false,
        }
    }
}

/// One parameter.
#[derive(Clone, Debug)]
pub enum Param<'a> {
    /// A neutral value, which every driver takes.
    Value(Value<'a>),
    /// A value of a type that one driver knows.
    Native(Native),
}

/// A value of a driver's own kind, such as a `ToSql` of its client library.
#[derive(Clone)]
pub struct Native {
    /// What it is called in messages.
    pub type_name: &'static str,
    /// The value, for the driver to downcast.
    pub value: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Native {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Native({})", self.type_name)
    }
}

/// What came of a statement: the result of `exec`, `run` and `run_all`.
///
/// # Examples
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// # let db = cenote::Db::open("sqlite:file:outcome-doc?mode=memory&cache=shared").await?;
/// db.exec("CREATE TABLE note (id INTEGER PRIMARY KEY, text TEXT)", ()).await?;
/// let added = db.run("INSERT INTO note (text) VALUES (?) RETURNING id", ("milk",)).await?;
/// assert_eq!((added.rows_affected, added.last_insert_id), (1, Some(1)));
/// assert_eq!(added.into_rows()[0].get::<i64>("id")?, 1);
///
/// let none = db.run("SELECT id, text FROM note WHERE id = 7", ()).await?;
/// assert_eq!(none.columns()[1].name, "text"); // though there is no row
/// # Ok(()) }
/// ```
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Outcome {
    /// The rows, if the call wanted rows: `exec` and `exec_many` discard them.
    pub rows: Option<Batch>,
    /// How many rows the statement inserted, changed or deleted.
    pub rows_affected: u64,
    /// The id that the database chose for the row inserted last. `None` where databases have no such id
    /// (PostgreSQL: use `RETURNING`), and for everything but an insert.
    pub last_insert_id: Option<i64>,
    /// How many warnings the database has about the statement.
    pub warnings: u64,
}

impl Outcome {
    /// Returns the columns of the rows, also if there is no row. Empty if the statement returns no rows, or the call
    /// discarded them.
    pub fn columns(&self) -> &[Column] {
        self.rows
            .as_ref()
            .map_or(&[], |rows| rows.columns().as_slice())
    }

    /// Returns the rows. Empty if there are none.
    #[inline]
    pub fn into_rows(self) -> Vec<Row> {
        self.rows
            .map_or_else(Vec::new, |rows| rows.into_rows().collect())
    }
}

/// A statement that has been prepared.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Prepared {
    /// How many parameters it takes.
    pub params: usize,
    /// What its rows look like; empty if it has none.
    pub columns: Arc<Columns>,
}

impl Prepared {
    /// A statement with so many parameters and these columns.
    pub fn new(params: usize, columns: Arc<Columns>) -> Self {
        Prepared { params, columns }
    }
}

/// How a transaction begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Begin {
    /// How well it is kept apart from others; the database's default if not said.
    pub isolation: Option<Isolation>,
    /// It writes nothing.
    pub read_only: bool,
    /// It waits until it can run without serialization failures: PostgreSQL's SERIALIZABLE READ ONLY DEFERRABLE.
    pub deferrable: bool,
}

impl Begin {
    /// Refuses a deferrable transaction: for drivers of databases that have none.
    ///
    /// # Errors
    ///
    /// [`Kind::Unsupported`](crate::Kind::Unsupported) if this one is deferrable.
    pub fn check_not_deferrable(&self) -> Result<()> {
        match self.deferrable {
            false => Ok(()),
            true => {
                let message =
                    "this database has no deferrable transactions: only PostgreSQL has them";
                Err(Error::new(crate::Kind::Unsupported, message))
            }
        }
    }
}

/// How well a transaction is kept apart from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Isolation {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

/// What the server did when told to commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// It committed.
    Committed,
    /// It rolled back, because the transaction had failed.
    RolledBack,
}

/// A step with a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Savepoint<'a> {
    /// Sets it.
    Set(&'a str),
    /// Keeps what was done since, and forgets it.
    Release(&'a str),
    /// Undoes what was done since, and forgets it.
    RollBack(&'a str),
}

/// The transaction status of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No transaction is open.
    Idle,
    /// One is.
    InTransaction,
    /// One is, and has failed: it can only be rolled back.
    Failed,
    /// It cannot be told just now. After an answered call that is only for databases that
    /// never tell: their connections are rolled back whenever they come back.
    Unknown,
}

/// What a reset came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The session is as it was after connecting.
    Done,
    /// It cannot be brought back: another connection has to take its place.
    Replace,
}

/// What a database says when it refuses.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct DatabaseError {
    /// In its own words.
    pub message: String,
    /// The five characters of the SQL standard.
    pub sql_state: Option<String>,
    /// Its own number.
    pub code: Option<i64>,
    /// Which rule was broken.
    pub violation: Option<Violation>,
    /// The name of the constraint.
    pub constraint: Option<String>,
    /// The character of the SQL that it is about, counted from 1: of the SQL that the driver was given. The
    /// layer finds the place in the text as it was written.
    pub position: Option<usize>,
}

impl DatabaseError {
    /// Creates an error with this message; set the other fields afterwards.
    pub fn new(message: impl Into<String>) -> Self {
        DatabaseError {
            message: message.into(),
            ..DatabaseError::default()
        }
    }

    /// With an SQLSTATE, and the violation that it stands for.
    #[must_use]
    pub fn with_sql_state(mut self, state: &str) -> Self {
        self.violation = self.violation.or_else(|| sqlstate::violation(state));
        self.sql_state = Some(state.to_owned());
        self
    }
}

/// Rules that programs react to when they are broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Violation {
    /// A unique or primary key.
    Unique,
    /// A foreign key.
    ForeignKey,
    /// A column that must have a value.
    NotNull,
    /// A check constraint.
    Check,
    /// Two transactions could not both have been alone.
    Serialization,
    /// Two transactions waited for each other.
    Deadlock,
    /// A lock was not granted in time.
    Locked,
    /// The SQL is not understood.
    Syntax,
    /// There is no such table, column or function.
    Undefined,
    /// It was cancelled.
    Cancelled,
    /// Not allowed.
    Permission,
}
