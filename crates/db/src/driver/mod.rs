//! The contract of database drivers: [`Driver`], [`Template`], [`Connection`].
//!
//! ```text
//! Driver ──template(dsn)──> Template ──connect(credentials)──> Connection
//! by name    opens nothing    one a Db     by the pool, when needed
//! ```
//!
//! A driver talks to the database and reports its state truthfully. It knows nothing of tasks, pools or nested
//! transactions: the layer above handles those. You can write your own driver:
//! [`Db::builder_with`](crate::Db::builder_with) takes it, and the `cenote-testkit` crate has the suite that every
//! driver has to pass.
//!
//! # Rules for drivers
//!
//! 1. **The server decides the status.** [`Connection::status`] is what the server last reported, not what was sent.
//!    From the moment a BEGIN, COMMIT or ROLLBACK is sent until it is answered, the status is [`Status::Unknown`].
//! 2. **Futures may be dropped** at any await. Then the layer calls [`settle`](Connection::settle) before anything
//!    else: it cancels the dropped call, waits until the server has ended it, and discards its rows and errors. Until
//!    `settle` has succeeded, no other call may see anything of the dropped one.
//! 3. **Errors are final.** A call returns an error when the server has ended the call, so that the status is known.
//! 4. **A broken connection stays broken.** Once [`is_broken`](Connection::is_broken) returns `true`, it always does;
//!    the layer closes the connection.
//! 5. **A poll is short.** It blocks its thread for a bounded, tested time at most (SQLite: 2 ms of processor time).

#[cfg(any(feature = "postgres", feature = "mysql", feature = "odbc"))]
pub(crate) mod cache;
mod database_error;
mod defaults;
mod listening;
mod sqlstate;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub(crate) mod time_limit;
#[cfg(any(feature = "odbc", feature = "sqlite"))]
pub(crate) mod worker;

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

pub use self::database_error::{DatabaseError, Violation};
use self::defaults::{one_after_the_other, one_by_one};
pub use self::listening::{Heard, Listening};
pub use crate::config::dsn::{Dsn, Host, OptionReader, Options};
pub use crate::config::secret::{Credentials, Secret};
pub use crate::hosts::{History, HostRole};
#[doc(hidden)]
pub use crate::hosts::{HostProbe, Hosts};
#[doc(hidden)]
pub use crate::replicas::{LogPosition, ReplicaAnswer};
pub use crate::sql::Dialect;
pub use crate::types::row::{
    Batch, BatchBuilder, Cell, CellBytes, Column, Columns, Decode, IntoRows,
};
pub use crate::types::value::Value;
use crate::{Error, Result, Row};

/// A future that a driver returns.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Builds a future in its box. `Box::pin` builds it on the stack and moves it: for a large future that costs as much
/// as a short call.
pub(crate) fn boxed_in_place<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    let place = Box::new_uninit();
    Box::into_pin(Box::write(place, make()))
}

/// A kind of database.
pub trait Driver: fmt::Debug + Send + Sync + 'static {
    /// Returns the driver's name, for messages and before the colon of a DSN: `sqlite`.
    fn name(&self) -> &'static str;

    /// Returns other names before the colon of a DSN: `sqlite3`.
    fn aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// Reads a DSN and options into a template. Opens nothing.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`](crate::Kind::Config) for a malformed DSN, and for every unknown option: a driver ignores none.
    fn template(&self, dsn: &Dsn, options: &Options) -> Result<Arc<dyn Template>>;
}

/// Opens the connections of one handle, with the settings that they share.
pub trait Template: fmt::Debug + Send + Sync + 'static {
    /// Returns the database's dialect.
    fn dialect(&self) -> &'static Dialect;

    /// Returns the database's address for messages, without credentials.
    fn address(&self) -> String;

    /// Returns the host and the port of the server, for spans and metrics; `None` if there is no server, or several.
    /// The host may be the path of a Unix socket, without a port.
    fn server(&self) -> Option<(String, Option<u16>)> {
        None
    }

    /// Checks that several connections see the same database. They do not for a private in-memory one.
    ///
    /// # Errors
    ///
    /// [`Kind::Config`](crate::Kind::Config), with what to do instead.
    fn check_poolable(&self) -> Result<()> {
        Ok(())
    }

    /// Returns whether a transaction that writes excludes all other writers, as in SQLite. The layer then refuses calls
    /// that would wait for their own caller.
    fn one_writer(&self) -> bool {
        false
    }

    /// Opens a connection.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves no connection open.
    ///
    /// # Errors
    ///
    /// [`Kind::Connect`](crate::Kind::Connect), with the server's message.
    fn connect<'t>(
        &'t self,
        credentials: Credentials,
        settings: &'t ConnectSettings,
    ) -> BoxFuture<'t, Result<Box<dyn Connection>>>;

    /// Opens a connection that receives notifications, for [`Db::listen`](crate::Db::listen): to the same server as
    /// [`connect`](Template::connect), in the same way. The connection is outside of the pool.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it leaves no connection open.
    ///
    /// # Errors
    ///
    /// As [`connect`](Template::connect); [`Kind::Unsupported`](crate::Kind::Unsupported) if the database has no
    /// notifications, which is the default, or if they would not arrive on this connection.
    fn connect_listening(
        &self,
        credentials: Credentials,
    ) -> BoxFuture<'_, Result<Box<dyn Listening>>> {
        drop(credentials);
        let message = "the driver has no notifications to listen to; that of PostgreSQL has them";
        Box::pin(async move { Err(Error::new(crate::Kind::Unsupported, message)) })
    }

    /// Returns what is known about the hosts, for a driver that chooses among several, or that demands a role of one.
    #[doc(hidden)]
    fn hosts(&self) -> Option<&Arc<Hosts>> {
        None
    }

    /// Connects to one of the [hosts](Template::hosts), to ask it what it is.
    #[doc(hidden)]
    fn open_probe(
        &self,
        host: usize,
        credentials: Credentials,
    ) -> BoxFuture<'_, Result<Box<dyn HostProbe>>> {
        let _ = (host, credentials);
        let message = "the driver does not watch hosts";
        Box::pin(async move { Err(Error::new(crate::Kind::Unsupported, message)) })
    }

    /// Returns whether its connections know the position in the history of the cluster, so that there can be replicas.
    #[doc(hidden)]
    fn has_positions(&self) -> bool {
        false
    }

    /// Returns the template as its own type, so that an application can use what only this driver has.
    fn as_any(&self) -> &dyn Any;
}

/// The layer's settings for every connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ConnectSettings {
    /// How many prepared statements a connection keeps; 0 is none.
    pub statement_cache: usize,
    /// Whether [`reset`](Connection::reset) has to undo everything that it can, not only the changes that a statement's
    /// text or the server has shown.
    pub full_reset: bool,
}

impl ConnectSettings {
    /// Returns settings with a statement cache of this size.
    pub fn new(statement_cache: usize) -> Self {
        ConnectSettings {
            statement_cache,
            full_reset: false,
        }
    }
}

/// An open connection. See the [module](self) for the rules.
pub trait Connection: fmt::Debug + Send + 'static {
    /// Runs one statement, or a script of several if there are no parameters. The outcome of a script is that of its
    /// last statement.
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

    /// Runs one statement with many sets of parameters, in order, in as few round trips as possible, as if each set ran
    /// alone. Adds up the affected rows.
    ///
    /// Outside of a transaction all sets take effect, or none. In a transaction the sets before a failed one may have
    /// taken effect: the layer lets such a transaction only be rolled back. The layer calls this with a bounded number
    /// of sets, several times in a transaction if there are more.
    ///
    /// By default, runs one set after the other, in a transaction of its own if none is open.
    ///
    /// # Cancel safety
    ///
    /// A dropped batch takes effect as a whole or not at all. Its own transaction may still be open: the layer rolls it
    /// back.
    ///
    /// # Errors
    ///
    /// The first error ends the call. It names the set, by [`Error::in_set`], if the set and not the statement is wrong.
    fn run_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Outcome>> {
        Box::pin(async move { Ok(one_by_one(self, sql, sets, false).await?.0) })
    }

    /// As [`run_batch`](Connection::run_batch), and returns the rows of all sets, in the order of the sets.
    ///
    /// # Errors
    ///
    /// As `run_batch`.
    fn query_batch<'c>(
        &'c mut self,
        sql: &'c str,
        sets: &'c [Vec<Param<'c>>],
    ) -> BoxFuture<'c, Result<Vec<Batch>>> {
        Box::pin(async move { Ok(one_by_one(self, sql, sets, true).await?.1) })
    }

    /// Runs several statements, in order, in as few round trips as possible. Each has its own result.
    ///
    /// Without `stops_at_error` an error of one statement does not concern the others. With `stops_at_error` the statements after a
    /// failed one do not run: the layer sets it in a transaction. None runs after one that has ended the transaction around them,
    /// or begun one. Statements after the end of the results have not run, and
    /// one whose result is the loss of the connection may have run.
    ///
    /// No request is a script, a COPY or transaction control. By default, runs one after the other.
    ///
    /// # Cancel safety
    ///
    /// Dropped, a prefix of the statements has run; none runs after [`settle`](Connection::settle). Without
    /// `stops_at_error`, nothing that may write runs behind the statement that was running at the drop, also if the connection
    /// is closed instead.
    ///
    /// # Errors
    ///
    /// The connection is lost before the first statement was answered.
    fn run_pipeline<'c>(
        &'c mut self,
        requests: &'c [Request<'c>],
        stops_at_error: bool,
    ) -> BoxFuture<'c, Result<Vec<Result<Outcome>>>> {
        Box::pin(one_after_the_other(self, requests, stops_at_error))
    }

    /// Begins a transaction and runs its first statements, as [`run_pipeline`](Connection::run_pipeline) does with `stops_at_error`: in one
    /// round trip if possible.
    ///
    /// # Cancel safety
    ///
    /// As `run_pipeline`; the transaction may have begun.
    ///
    /// # Errors
    ///
    /// BEGIN failed, or was not sent because the first statement cannot be; or as `run_pipeline`.
    fn begin_pipeline<'c>(
        &'c mut self,
        begin: &'c Begin,
        requests: &'c [Request<'c>],
    ) -> BoxFuture<'c, Result<Vec<Result<Outcome>>>> {
        Box::pin(async move {
            self.begin_with(begin, None).await?;
            self.run_pipeline(requests, true).await
        })
    }

    /// Returns whether [`push_shared`](Connection::push_shared) works here: the driver has it, and nothing between program
    /// and server may give the parts of a pipeline to different sessions. Takes one round trip to a server that answers at
    /// once. Default: no.
    fn can_share(&mut self) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async { Ok(false) })
    }

    /// Appends a read to those of other callers that are in flight. The server answers each for itself, in order, so that
    /// an error of one is not another's. Returns `false` if the read needs the connection for itself. Sends nothing:
    /// [`poll_shared`](Connection::poll_shared) does. Until all are answered, the layer makes no other call but
    /// [`settle`](Connection::settle).
    ///
    /// # Errors
    ///
    /// The connection is lost, or a parameter cannot be sent. The read was not appended.
    fn push_shared(&mut self, request: &Request<'_>) -> Result<bool> {
        let _ = request;
        Ok(false)
    }

    /// Sends, and returns the answer of the oldest read that was pushed. If it is the loss of the connection,
    /// [`is_broken`](Connection::is_broken) returns `true`, and all others are lost as well.
    fn poll_shared(&mut self, cx: &mut Context<'_>) -> Poll<SharedAnswer> {
        let _ = cx;
        Poll::Ready(SharedAnswer::Again)
    }

    /// Prepares a statement, and keeps it if the connection has a cache.
    fn prepare<'c>(&'c mut self, sql: &'c str) -> BoxFuture<'c, Result<Prepared>>;

    /// Starts a statement. [`poll_batch`](Connection::poll_batch) returns its rows batch by batch.
    fn start_stream<'c>(&'c mut self, request: Request<'c>) -> BoxFuture<'c, Result<Arc<Columns>>>;

    /// Returns the next rows of the stream, or `None` after the last. The driver buffers a bounded number of rows.
    fn poll_batch(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Batch>>>;

    /// Ends a stream before its last row, without aborting the transaction around it. Without a stream it does nothing.
    fn end_stream(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Begins a transaction and runs its first statement, if there is one: in one round trip if possible. Returns the
    /// outcome of that statement.
    ///
    /// # Errors
    ///
    /// BEGIN or the statement failed; [`status`](Connection::status) shows which.
    fn begin_with<'c>(
        &'c mut self,
        begin: &'c Begin,
        first: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<Outcome>>;

    /// Returns whether the layer should send BEGIN together with the first statement.
    fn begins_lazily(&self) -> bool {
        false
    }

    /// Commits. Returns [`CommitOutcome::RolledBack`] if the server rolled back instead.
    fn commit(&mut self) -> BoxFuture<'_, Result<CommitOutcome>>;

    /// Rolls the whole transaction back. Without one it does nothing.
    fn rollback(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Sets, releases or rolls back to a savepoint of the open transaction.
    fn savepoint<'c>(&'c mut self, step: Savepoint<'c>) -> BoxFuture<'c, Result<()>>;

    /// Returns the transaction status that the server last reported.
    fn status(&self) -> Status;

    /// Returns whether the server reported that the last call, or a stream that has ended, changed the session. The
    /// layer also reads the text, so `false` promises nothing.
    fn session_changed(&self) -> bool {
        false
    }

    /// Notes that the next call may change the session, or the last one has changed it: its settings, its temporary
    /// tables … The session stays changed until the next [`reset`](Connection::reset).
    ///
    /// A database may resolve names and literals when it prepares a statement. A driver of such a database does not use
    /// prepared statements across this call: neither earlier ones in the changed session, nor those of the changed
    /// session after the reset.
    fn expect_session_change(&mut self) {}

    /// Notes that the layer has set the session up, by `on_connect` and defaults: a reset goes back to this state.
    fn session_is_set_up(&mut self) {}

    /// Returns the number of warnings of the last call.
    fn warnings(&self) -> u64 {
        0
    }

    /// Returns how the connection is encrypted; `None` if it is not, or the driver does not know.
    fn tls(&self) -> Option<Tls> {
        None
    }

    /// Returns whether the connection must not be used again.
    fn is_broken(&self) -> bool;

    /// Returns whether the connection should be closed as soon as nobody uses it, because its host no longer has the role
    /// that the program asked for. The layer asks when it takes the connection out of the pool and when it gives it back: what
    /// runs on the connection may end.
    fn is_outdated(&self) -> bool {
        false
    }

    /// Checks, without a round trip, whether the server has closed the connection; then
    /// [`is_broken`](Connection::is_broken) returns `true`. The layer calls this before every use. `rested` is the time
    /// since the last answer: after a short rest a driver can save the system call.
    fn probe(&mut self, rested: Duration) {
        let _ = rested;
    }

    /// Settles a dropped call: cancels it, waits for its end, and discards its rows and errors. Ends an open stream.
    /// Without either it does nothing. If cancelling would fail the transaction, a driver should wait for calls that
    /// change nothing important (setting a savepoint, a ping, a prepare) instead of cancelling them.
    fn settle(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Makes one round trip to the server.
    fn ping(&mut self) -> BoxFuture<'_, Result<()>>;

    /// Resets the session to its state after connecting. No transaction is open. Returns [`Reset::Replace`] if that is
    /// not possible.
    fn reset(&mut self) -> BoxFuture<'_, Result<Reset>>;

    /// Sets the line of the program that makes the next calls, for messages such as who holds a lock. The layer calls this
    /// only if the [template](Template::one_writer) has one writer at a time.
    fn set_call_site(&mut self, site: &'static Location<'static>) {
        let _ = site;
    }

    /// Sets a named setting of the session: see [`Db::set_default`](crate::Db::set_default).
    ///
    /// # Errors
    ///
    /// [`Kind::Unsupported`](crate::Kind::Unsupported) if the database has no settings.
    fn set<'c>(&'c mut self, name: &'c str, value: &'c Value<'c>) -> BoxFuture<'c, Result<()>> {
        let _ = value;
        let message = format!("the driver has no settings to set: {name}");
        Box::pin(async move { Err(Error::new(crate::Kind::Unsupported, message)) })
    }

    /// Closes the connection, also after a dropped call. If the layer's deadline passes first, dropping the future must
    /// close it.
    fn close(self: Box<Self>) -> BoxFuture<'static, Result<()>>;

    /// Asks for the position at the end of the next call, which no transaction is around, or which commits one: with a query in
    /// the same write, whose failure does not concern the call.
    #[doc(hidden)]
    fn expect_position(&mut self) {}

    /// Waits for the position at the end of the last call, if it was [expected](Connection::expect_position). Dropped, the
    /// connection has to be [settled](Connection::settle), and its status stays known.
    #[doc(hidden)]
    fn take_position(&mut self) -> BoxFuture<'_, Option<LogPosition>> {
        Box::pin(async { None })
    }

    /// Returns whether the last reported position is behind everything that was committed before it. `false` where the server
    /// has several logs with an order of their own: then the position says nothing about the others.
    #[doc(hidden)]
    fn covers_earlier(&self) -> bool {
        true
    }

    /// Returns whether a rollback undoes all that ran in the transaction. `false` where a table may keep what was written to it, or
    /// a routine may have committed.
    #[doc(hidden)]
    fn rolls_back_all(&self) -> bool {
        true
    }

    /// Asks the primary for its position. No transaction is open.
    #[doc(hidden)]
    fn ask_position(&mut self) -> BoxFuture<'_, Result<LogPosition>> {
        let message = "the driver has no positions";
        Box::pin(async move { Err(Error::new(crate::Kind::Unsupported, message)) })
    }

    /// Asks a replica whether it has replayed everything up to this position, and runs a read right behind that, in the same
    /// round trip if possible. With `verify` the replica also says which history it replays; it may always do so. Without a position,
    /// which history is wanted is unknown.
    ///
    /// The read may run whatever the replica answers: it has to be a pure read. Without a result it has not run.
    ///
    /// # Errors
    ///
    /// The connection is lost before the replica has answered.
    #[doc(hidden)]
    fn read_at<'c>(
        &'c mut self,
        wanted: Option<LogPosition>,
        verify: bool,
        read: Option<Request<'c>>,
    ) -> BoxFuture<'c, Result<(ReplicaAnswer, Option<Result<Outcome>>)>> {
        let _ = (wanted, verify, read);
        let message = "the driver has no replicas";
        Box::pin(async move { Err(Error::new(crate::Kind::Unsupported, message)) })
    }

    /// Returns the connection as its own type, so that an application can use what only this driver has.
    fn as_any(&mut self) -> &mut dyn Any;
}

/// A statement to run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// The SQL, with the placeholders of the dialect.
    pub sql: &'a str,
    /// One parameter for each placeholder.
    pub params: &'a [Param<'a>],
    /// The SQL is a script: it has several statements, or may have.
    pub script: bool,
    /// The statement will probably run again: the driver should keep it prepared.
    pub cache: bool,
    /// The caller wants the rows.
    pub rows: bool,
    /// The statement is a transaction of its own, and its caller has nothing else on this connection. So a driver may
    /// run it on another connection of the handle.
    pub unpinned: bool,
    /// The caller wants a prepared statement, also without parameters.
    pub prepared: bool,
}

impl<'a> Request<'a> {
    /// Returns a request for a single statement that is kept prepared and whose rows are wanted.
    pub fn new(sql: &'a str, params: &'a [Param<'a>]) -> Self {
        Request {
            sql,
            params,
            script: false,
            cache: true,
            rows: true,
            unpinned: false,
            prepared: false,
        }
    }
}

/// How a connection is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tls {
    /// The protocol, such as `TLSv1.3`, if the driver knows it.
    pub protocol: Option<String>,
    /// What the driver has verified about the server.
    pub verified: Verified,
}

impl Tls {
    /// Returns an encryption whose protocol the driver does not know.
    pub fn new(verified: Verified) -> Self {
        Tls {
            protocol: None,
            verified,
        }
    }
}

/// What a driver has verified about a server before it used the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verified {
    /// Nothing: anybody can pretend to be the server.
    Nothing,
    /// A trusted root has signed the certificate; it may be for another host.
    Certificate,
    /// A trusted root has signed the certificate, and it is for this host.
    CertificateAndHost,
}

/// One parameter.
#[derive(Clone, Debug)]
pub enum Param<'a> {
    /// A neutral value, which every driver accepts.
    Value(Value<'a>),
    /// A value of a type that only one driver accepts.
    Native(Native),
}

/// A value of a driver's own type, such as a `ToSql` of its client library.
#[derive(Clone)]
pub struct Native {
    /// The type's name for messages.
    pub type_name: &'static str,
    /// The value, for the driver to downcast.
    pub value: Arc<dyn Any + Send + Sync>,
}

impl fmt::Debug for Native {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Native({})", self.type_name)
    }
}

/// The result of a statement, as `exec`, `run` and `run_all` return it.
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

/// The answer of a read that was [pushed](Connection::push_shared).
#[derive(Debug)]
pub enum SharedAnswer {
    /// The result, which is final.
    Answered(Result<Outcome>),
    /// The read has no result: it has to run again, with the connection for itself.
    Again,
}

/// A prepared statement.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Prepared {
    /// The number of parameters.
    pub params: usize,
    /// The columns of its rows; empty if it returns no rows.
    pub columns: Arc<Columns>,
    /// The names of the types of its parameters, if the database has inferred them; empty for one that the driver does not
    /// know.
    pub param_types: Option<Vec<String>>,
}

impl Prepared {
    /// Returns a statement with this number of parameters and these columns.
    pub fn new(params: usize, columns: Arc<Columns>) -> Self {
        Prepared {
            params,
            columns,
            param_types: None,
        }
    }
}

/// How a transaction begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Begin {
    /// The isolation level; `None` is the database's default.
    pub isolation: Option<Isolation>,
    /// The transaction only reads.
    pub read_only: bool,
    /// The transaction waits until it can run without serialization failures: PostgreSQL's SERIALIZABLE READ ONLY DEFERRABLE.
    pub deferrable: bool,
}

impl Begin {
    /// Refuses a deferrable transaction: for drivers of databases that have none.
    ///
    /// # Errors
    ///
    /// [`Kind::Unsupported`](crate::Kind::Unsupported) if the transaction is deferrable.
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

/// The isolation level of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Isolation {
    ReadUncommitted,
    ReadCommitted,
    RepeatableRead,
    Serializable,
}

/// What the server did with a COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitOutcome {
    /// The server committed.
    Committed,
    /// The server rolled back, because the transaction had failed.
    RolledBack,
}

/// An operation on a savepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Savepoint<'a> {
    /// Sets the savepoint.
    Set(&'a str),
    /// Releases the savepoint, and keeps the changes since.
    Release(&'a str),
    /// Rolls back to the savepoint, and releases it.
    RollBack(&'a str),
}

/// The transaction status of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No transaction is open.
    Idle,
    /// A transaction is open.
    InTransaction,
    /// A transaction is open and has failed: it can only be rolled back.
    Failed,
    /// The status is unknown at the moment. After an answered call, only databases that never report it have this
    /// status: the layer rolls their connections back whenever they are released.
    Unknown,
}

/// The result of a reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// The session is as it was after connecting.
    Done,
    /// The session cannot be reset: the connection has to be replaced.
    Replace,
}
