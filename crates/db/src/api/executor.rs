//! One type for all styles of use, and the options of a call.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use crate::api::connection::Connection;
use crate::api::db::Db;
use crate::api::methods::sql_methods;
use crate::api::transaction::Transaction;
use crate::call::Call;

/// Runs SQL on a [`Db`], a [`Connection`] or a [`Transaction`], with [`CallOptions`].
///
/// A function that takes `impl Into<Executor<'_>>` works in every style. Given a `&Db` its calls are ambient: they run
/// in the transaction of the coroutine, if there is one. Given a `&Connection` or a `&Transaction` they run there and
/// nowhere else.
///
/// An executor is a reference with options: `Copy`, `Send`, and free to make.
///
/// # Examples
///
/// ```
/// use cenote::{Db, Executor, Result};
///
/// async fn balance(db: impl Into<Executor<'_>>, id: i64) -> Result<i64> {
///     db.into().query_as_one("SELECT balance FROM account WHERE id = ?", (id,)).await
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let db = Db::open("sqlite:file:executor-doc?mode=memory&cache=shared").await?;
/// # db.exec("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)", ()).await?;
/// # db.exec("INSERT INTO account VALUES (1, 100)", ()).await?;
/// assert_eq!(balance(&db, 1).await?, 100); // on any free connection
/// db.transaction(async || balance(&db, 1).await).await?; // in this transaction
///
/// let mut connection = db.connection().await?;
/// assert_eq!(balance(&connection, 1).await?, 100); // on this connection
/// let tx = connection.begin().await?;
/// assert_eq!(balance(&tx, 1).await?, 100); // in this transaction
/// # Ok(()) }
/// ```
#[derive(Clone, Copy)]
pub struct Executor<'e> {
    inner: Inner<'e>,
    options: CallOptions,
}

/// Where the calls of an executor run.
#[derive(Clone, Copy)]
enum Inner<'e> {
    Db(&'e Db),
    Connection(&'e Connection),
    Transaction(&'e Transaction<'e>),
}

impl<'e> Executor<'e> {
    fn new(inner: Inner<'e>) -> Self {
        Executor {
            inner,
            options: CallOptions::new(),
        }
    }

    #[track_caller]
    #[inline]
    fn call(self) -> Call<'e> {
        let mut call = match self.inner {
            Inner::Db(db) => db.call(),
            Inner::Connection(connection) => connection.call(),
            Inner::Transaction(transaction) => transaction.call(),
        };
        let reading = call.is_reading();
        call.options = CallOptions {
            reading: self.options.reading || reading,
            ..self.options
        }
        .boxed();
        call
    }

    sql_methods!(
        "Runs where the executor was made from: see [`Executor`].",
        (self),
        self,
        'e: 'a
    );

    /// Returns the same executor with these options. An option that is not set in them keeps the value it has.
    #[must_use]
    pub fn with(mut self, options: CallOptions) -> Self {
        self.options = CallOptions {
            timeout: options.timeout.or(self.options.timeout),
            no_cache: options.no_cache || self.options.no_cache,
            tag: options.tag.or(self.options.tag),
            prepared: options.prepared || self.options.prepared,
            no_repeat: options.no_repeat || self.options.no_repeat,
            reading: options.reading || self.options.reading,
        };
        self
    }
}

impl<'e> From<&'e Db> for Executor<'e> {
    fn from(db: &'e Db) -> Self {
        Executor::new(Inner::Db(db))
    }
}

impl<'e> From<&'e Connection> for Executor<'e> {
    fn from(connection: &'e Connection) -> Self {
        Executor::new(Inner::Connection(connection))
    }
}

impl<'e> From<&'e Transaction<'_>> for Executor<'e> {
    fn from(transaction: &'e Transaction<'_>) -> Self {
        Executor::new(Inner::Transaction(transaction))
    }
}

impl<'e> From<&Executor<'e>> for Executor<'e> {
    fn from(executor: &Executor<'e>) -> Self {
        *executor
    }
}

impl fmt::Debug for Executor<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner: &dyn fmt::Debug = match &self.inner {
            Inner::Db(db) => db,
            Inner::Connection(connection) => connection,
            Inner::Transaction(transaction) => transaction,
        };
        out.debug_struct("Executor")
            .field("on", inner)
            .field("options", &self.options)
            .finish()
    }
}

/// Options of a call: `db.with(options)` returns an [`Executor`] that makes its calls with them.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use cenote::CallOptions;
///
/// const REPORT: CallOptions = CallOptions::new().timeout(Duration::from_secs(60)).no_cache().tag("report");
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// # let db = cenote::Db::open("sqlite:file:options-doc?mode=memory&cache=shared").await?;
/// let rows = db.with(REPORT).query("SELECT 1", ()).await?;
/// # assert_eq!(rows.len(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) no_cache: bool,
    pub(crate) tag: Option<&'static str>,
    pub(crate) prepared: bool,
    pub(crate) no_repeat: bool,
    /// A replica may answer: see [`Db::reading`].
    pub(crate) reading: bool,
}

impl CallOptions {
    /// Returns the options of a plain call.
    pub const fn new() -> Self {
        CallOptions {
            timeout: None,
            no_cache: false,
            tag: None,
            prepared: false,
            no_repeat: false,
            reading: false,
        }
    }

    /// Limits the time that the statement may take, from when it is sent. Default:
    /// [`Builder::statement_timeout`](crate::Builder::statement_timeout), which it replaces for this call.
    ///
    /// A statement that takes longer is cancelled on the server and fails with
    /// [`Kind::StatementTimeout`](crate::Kind::StatementTimeout). A transaction around it can then only be rolled back.
    /// Of a stream the limit covers the start, not the reading of its rows.
    #[must_use]
    pub const fn timeout(mut self, limit: Duration) -> Self {
        self.timeout = Some(limit);
        self
    }

    /// Runs the statement without the cache of prepared statements: for one that runs once and should not
    /// evict others. Default: kept. `exec_many` and `prepare` ignore it: they prepare their statement in any case.
    ///
    /// SQLite runs such a statement on the connection's thread, never inline.
    #[must_use]
    pub const fn no_cache(mut self) -> Self {
        self.no_cache = true;
        self
    }

    /// Sends a comment in front of the statement, `/* checkout */`, which the server shows in its logs and in its
    /// list of running statements. Default: none.
    ///
    /// Everything but letters, digits, blanks and `-._~/,=` is percent-encoded. The tag is part of the key of
    /// prepared statements: the same SQL with two tags is prepared twice. Positions of errors are those in your SQL.
    #[must_use]
    pub const fn tag(mut self, tag: &'static str) -> Self {
        self.tag = Some(tag);
        self
    }

    /// Runs the text as one prepared statement, also without parameters, and refuses a script: for SQL that contains what others
    /// wrote. Default: a text without parameters may be a script, and MySQL gets it without a PREPARE.
    #[must_use]
    pub const fn prepared(mut self) -> Self {
        self.prepared = true;
        self
    }

    /// Reports a connection that is lost during the call, even where the call could be repeated on another one: for a program
    /// whose next calls depend on the connection. Default: a call that cannot have run, and a read, are repeated once.
    #[must_use]
    pub const fn no_repeat(mut self) -> Self {
        self.no_repeat = true;
        self
    }

    /// Returns the options of a call that a replica may answer, as the call carries them.
    #[cold]
    pub(crate) fn for_reading() -> Option<Box<Self>> {
        let reading = CallOptions {
            reading: true,
            ..CallOptions::new()
        };
        reading.boxed()
    }

    /// Returns the options as a call carries them: `None` if none is set.
    #[inline]
    pub(crate) fn boxed(self) -> Option<Box<Self>> {
        (self != CallOptions::new()).then(|| Box::new(self))
    }
}
