//! The handle that thousands of tasks share.

use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use cenote_pool::{CloseError, Counters, Pool, Status};

use crate::api::builder::Builder;
use crate::api::connection::{Connection, Pinned};
use crate::api::methods::sql_methods;
use crate::api::transaction::{self, Transaction};
use crate::api::transaction_options::TransactionOptions;
use crate::binding::PinKind;
use crate::binding::writers::Writers;
use crate::call::op::Ping;
use crate::call::route::{self, Purpose};
use crate::call::{Call, Target};
use crate::config::DbConfig;
use crate::coroutine::seen;
use crate::driver::Driver;
use crate::pooled::handle::Handle;
use crate::pooled::manager::ConnectionManager;
use crate::sql::{Class, Dialect};
use crate::types::value::Value;
use crate::{Error, Kind, Result};

/// A database, for any number of tasks at once.
///
/// Clones are one `Db`: give every task its own, or a reference. A call takes a connection
/// for as long as it runs. Inside a [coroutine](crate::scope), an open transaction, a live
/// [`Statement`](crate::Statement) or touched session state pins a connection, and everything that the coroutine does
/// with this `Db` runs on it; when nothing pins it any more it goes back. Whatever is left when
/// the coroutine ends is rolled back and returned.
///
/// # Examples
///
/// ```
/// use cenote::Db;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// let db = Db::open("sqlite:file:db-doc?mode=memory&cache=shared").await?;
/// db.exec("CREATE TABLE account (id INTEGER PRIMARY KEY, balance INTEGER)", ()).await?;
/// db.exec("INSERT INTO account VALUES (?, ?), (?, ?)", (1, 100, 2, 0)).await?;
///
/// db.transaction(async || {
///     db.exec("UPDATE account SET balance = balance - ? WHERE id = ?", (30, 1)).await?;
///     db.exec("UPDATE account SET balance = balance + ? WHERE id = ?", (30, 2)).await?;
///     Ok(())
/// })
/// .await?;
///
/// let balances: Vec<i64> = db.query_as("SELECT balance FROM account ORDER BY id", ()).await?;
/// assert_eq!(balances, [70, 30]);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Db {
    handle: Arc<Handle>,
    /// It keeps out of what the coroutine has bound.
    outside: bool,
}

impl Db {
    pub(crate) fn of(handle: Arc<Handle>) -> Self {
        Db {
            handle,
            outside: false,
        }
    }

    /// Opens a database with all the defaults of the [`Builder`]. Connects to nothing yet.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing stays open.
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    pub async fn open(dsn: &str) -> Result<Db> {
        Db::builder(dsn).open().await
    }

    /// Begins to describe a database: where it is, in PDO's style (`sqlite:/path/shop.db`) or as
    /// a URL.
    pub fn builder(dsn: &str) -> Builder {
        Builder::new(dsn)
    }

    /// Begins to describe a database that is reached with a driver of your own, or with one
    /// of ours that has been given something besides.
    pub fn builder_with(driver: impl Driver, dsn: &str) -> Builder {
        Builder::with_driver(Arc::new(driver), dsn)
    }

    /// Opens the database that the environment names: `CENOTE_DSN` and the other variables that
    /// [`DbConfig::from_env`] reads.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing stays open.
    ///
    /// # Errors
    ///
    /// A variable is missing or makes no sense; otherwise as [`Builder::open`].
    pub async fn from_env() -> Result<Db> {
        Builder::from_config(DbConfig::from_env()?).open().await
    }

    #[track_caller]
    #[inline]
    pub(crate) fn call(&self) -> Call<'_> {
        Call {
            target: match self.outside {
                false => Target::Ambient(&self.handle),
                true => Target::Outside(&self.handle),
            },
            seen: seen(),
            site: Location::caller(),
            options: None,
        }
    }

    sql_methods!(
        "It runs on the connection that the coroutine has pinned, in its transaction if there is \
         one; otherwise on one that it takes for this call."
    );

    /// Runs a closure in a transaction: commits if it returns `Ok`; rolls back if it returns `Err`, panics or is
    /// dropped.
    ///
    /// All calls on this `Db` that the closure makes, however deep, run in the transaction. Inside another transaction of
    /// the same coroutine the closure runs in a savepoint. No coroutine is needed.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the transaction is rolled back before its connection is used again.
    ///
    /// # Errors
    ///
    /// The error of the closure; [`Kind::RolledBack`], [`Kind::OutcomeUnknown`], [`Kind::Doomed`] or
    /// [`Kind::TransactionLost`] from the commit; no connection is free in time.
    #[track_caller]
    pub fn transaction<'a, T: 'a, F>(&'a self, body: F) -> impl Future<Output = Result<T>>
    where
        F: AsyncFnOnce() -> Result<T> + 'a,
    {
        self.transaction_options().run(body)
    }

    /// Runs a closure in a transaction, like [`transaction`](Db::transaction), with an error type of yours.
    ///
    /// # Cancel safety
    ///
    /// As [`transaction`](Db::transaction).
    ///
    /// # Errors
    ///
    /// As [`transaction`](Db::transaction), converted by `From<cenote::Error>`.
    #[track_caller]
    pub fn try_transaction<'a, T: 'a, E, F>(&'a self, body: F) -> impl Future<Output = Result<T, E>>
    where
        E: From<Error> + 'a,
        F: AsyncFnOnce() -> Result<T, E> + 'a,
    {
        self.transaction_options().try_run(body)
    }

    /// Returns the options of a transaction on this `Db`, to be set and then run.
    pub fn transaction_options(&self) -> TransactionOptions<&Db> {
        TransactionOptions::new().on(self)
    }

    /// Begins a transaction that lasts until it is committed, rolled back or dropped, or its coroutine ends.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing has begun, or the transaction is rolled back before its connection is used again.
    ///
    /// # Errors
    ///
    /// [`Kind::NoCoroutine`] outside of a coroutine, [`Kind::NestedBegin`] if a transaction is open, no connection is
    /// free in time.
    #[track_caller]
    pub fn begin(&self) -> impl Future<Output = Result<Transaction<'static>>> + Send + '_ {
        self.transaction_options().begin()
    }

    /// Registers what is to run when the outermost transaction of this coroutine has been
    /// committed: at once, in order, before the commit returns. What was registered in a
    /// transaction or savepoint that is rolled back is forgotten. Without a transaction it runs
    /// now, because what was done before is committed already.
    pub fn after_commit(&self, callback: impl FnOnce() + Send + 'static) {
        let call = self.call();
        transaction::after_commit(&call, Box::new(callback));
    }

    /// Keeps a connection for this coroutine until what this gives is dropped or the
    /// coroutine ends.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing is pinned.
    ///
    /// # Errors
    ///
    /// [`Kind::NoCoroutine`] outside of one, no free connection in time.
    #[track_caller]
    pub fn pin(&self) -> impl Future<Output = Result<Pinned>> + Send + '_ {
        let call = self.call();
        async move {
            call.check_here()?;
            if call.owner().is_none() {
                let message = "pin() needs a coroutine around it, which owns what is pinned: run \
                               the code in cenote::scope(..) or cenote::spawn(..), or take a \
                               connection with db.connection()";
                return Err(Error::new(Kind::NoCoroutine, message).at(call.site));
            }
            Ok(Pinned::new(call.pinned(PinKind::Explicit).await?))
        }
    }

    /// Takes a connection that has nothing to do with coroutines: what runs on it runs there
    /// and nowhere else, until it is dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropped, none is taken.
    ///
    /// # Errors
    ///
    /// No free connection in time.
    #[track_caller]
    pub fn connection(&self) -> impl Future<Output = Result<Connection>> + Send + '_ {
        let outside = Call {
            target: Target::Outside(&self.handle),
            ..self.call()
        };
        async move {
            outside.check_here()?;
            let pin = outside
                .taken(&self.handle, PinKind::Explicit, Purpose::Other)
                .await?;
            Ok(Connection::new(pin))
        }
    }

    /// The same database, outside of what the coroutine has bound: its calls run on other
    /// connections and join no transaction. For audit logs, which have to stay when the
    /// transaction is rolled back.
    #[must_use]
    pub fn outside(&self) -> Db {
        Db {
            handle: Arc::clone(&self.handle),
            outside: true,
        }
    }

    /// Whether a call would run in a transaction. Takes no connection.
    pub fn in_transaction(&self) -> bool {
        self.peek().is_some_and(|binding| binding.in_transaction)
    }

    /// What the coroutine has bound, if anything. Takes no connection.
    pub fn peek(&self) -> Option<Binding> {
        let call = self.call();
        if let Some((_, lazy)) = call.lazy_around() {
            return Some(lazy.describe());
        }
        let bound = call.lookup()?;
        Some(bound.describe(call.seen.frame()?))
    }

    /// The last error of this coroutine with this `Db`, until a call succeeds. None outside
    /// of coroutines, and never another coroutine's.
    pub fn last_error(&self) -> Option<Error> {
        seen().frame()?.last_error(self.handle.shared.id)
    }

    /// The SQLSTATE of the last call of this coroutine: `00000` if it succeeded.
    pub fn last_sql_state(&self) -> String {
        let Some(error) = self.last_error() else {
            return "00000".to_owned();
        };
        error.sql_state().unwrap_or("HY000").to_owned()
    }

    /// How many warnings the last call on the bound connection gave; 0 with nothing bound.
    /// Takes no connection.
    pub fn warnings(&self) -> u64 {
        self.peek().map_or(0, |binding| binding.warnings)
    }

    /// Makes a round trip to the server.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing is lost.
    ///
    /// # Errors
    ///
    /// The server does not answer, or no connection is free in time.
    #[track_caller]
    pub fn ping(&self) -> impl Future<Output = Result<()>> + Send + '_ {
        let call = self.call();
        async move {
            call.check_here()?;
            call.send_and_finish(&Class::NO_SQL, &mut Ping).await
        }
    }

    /// Sets a setting of the session on every connection: those that exist when they are
    /// handed out next, and those to come when they are opened.
    ///
    /// It tries the setting first, on a connection that it takes for that. `Ok` means that the
    /// database has accepted it; after an error nothing has changed. If the database refuses the
    /// setting later (a role that was dropped), connecting fails with its error:
    /// [`unset_default`](Db::unset_default) removes it.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is done, nothing has changed.
    ///
    /// # Errors
    ///
    /// What the database says of the setting; [`Kind::Unsupported`] if the driver has no settings; no
    /// free connection in time.
    #[track_caller]
    pub fn set_default<'a>(
        &'a self,
        name: &'a str,
        value: impl Into<Value<'a>>,
    ) -> impl Future<Output = Result<()>> + Send + 'a {
        let value = value.into().into_owned();
        let (seen, site) = (seen(), Location::caller());
        async move {
            let frame = seen.frame();
            let mut lease = route::acquire(&self.handle, frame, Purpose::Other, site).await?;
            // A cancel from here on has the pool reset the session.
            let accepted = lease.try_setting(name, &value, site).await;
            accepted.map_err(|refused| refused.at(site))?;
            self.handle.pool.manager().defaults.set(name, value);
            Ok(())
        }
    }

    /// Removes a default that [`set_default`](Db::set_default) has set. Connections that have it are
    /// reset when they are handed out next. Takes no connection; fine if there is no such default.
    pub fn unset_default(&self, name: &str) {
        self.handle.pool.manager().defaults.unset(name);
    }

    /// Returns the pool underneath, for statistics, events and the circuit breaker; `None` for an
    /// unpooled handle. Close the handle with [`Db::close`]: closing the pool stops no statement
    /// that somebody holds.
    pub fn pool(&self) -> Option<&Pool<ConnectionManager>> {
        (!self.handle.config.unpooled).then_some(&self.handle.pool)
    }

    /// How many connections there are, what they do, and how many calls wait for one: also those
    /// that wait to write where the database has one writer at a time, which the pool does not see.
    pub fn status(&self) -> Status {
        let mut status = self.handle.pool.status();
        status.waiting += self
            .handle
            .shared
            .writers
            .as_ref()
            .map_or(0, Writers::waiting);
        status
    }

    /// Returns what has been counted since the handle was opened. As in [`status`](Db::status), calls that
    /// waited to write count as waits.
    pub fn counters(&self) -> Counters {
        let mut counters = self.handle.pool.counters();
        let writers = self.handle.shared.writers.as_ref();
        counters.waited += writers.map_or(0, Writers::waited);
        counters
    }

    /// The settings it was opened with.
    pub fn config(&self) -> &DbConfig {
        &self.handle.config
    }

    /// Returns how SQL is written for this database: its quotes, comments and placeholders.
    pub fn dialect(&self) -> &'static Dialect {
        self.handle.shared.dialect
    }

    /// Returns the time of the runtime that the handle lives on.
    #[cfg(feature = "migrate")]
    pub(crate) fn now(&self) -> std::time::Instant {
        self.handle.shared.runtime.now()
    }

    /// What the driver is called.
    pub fn driver_name(&self) -> &'static str {
        self.handle.driver
    }

    /// Closes the handle. Open transactions may finish; everything else gets [`Kind::Closed`], also
    /// on a statement or connection that somebody still holds. Idle connections close now, those in
    /// use when they come back.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it is closed all the same.
    ///
    /// # Errors
    ///
    /// Connections that could not be closed in order. They are gone all the same.
    pub async fn close(&self) -> Result<()> {
        self.handle.shared.close();
        self.handle.pool.close().await.map_err(not_closed)
    }

    /// Closes it, and waits for the connections that are in use.
    ///
    /// # Cancel safety
    ///
    /// Dropped, it is closed all the same; nobody waits.
    ///
    /// # Errors
    ///
    /// Some were still in use when the time was over; the message names the call sites.
    pub async fn close_and_drain(&self, deadline: Duration) -> Result<()> {
        self.handle.shared.close();
        let drained = self.handle.pool.close_and_drain(deadline).await;
        drained.map_err(not_closed)
    }

    /// Replaces every connection there is now, in the background: for servers that have moved and
    /// passwords that have changed.
    ///
    /// Each new connection is opened first, one at a time, and takes over from an old one when that
    /// is idle or comes back. Until then the old ones serve: no call waits for a replacement or fails
    /// for want of one, and while the server refuses connections the pool tries again, with growing
    /// pauses. A private in-memory database lives in its one connection, which stays.
    pub fn replace_all(&self) {
        let pool = &self.handle.pool;
        if pool.manager().template.check_poolable().is_ok() {
            pool.replace_all();
        }
    }
}

fn not_closed(error: CloseError<Error>) -> Error {
    Error::new(Kind::Closed, error.to_string()).because(error)
}

impl fmt::Debug for Db {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(out)
    }
}

/// What a coroutine has bound: see [`Db::peek`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Binding {
    /// A transaction is open.
    pub in_transaction: bool,
    /// Where it was begun.
    pub begun_at: Option<&'static Location<'static>>,
    /// How many savepoints are open in it.
    pub savepoints: usize,
    /// Live statements that pin it.
    pub statements: usize,
    /// The session was touched, which pins it until the coroutine ends.
    pub session_touched: bool,
    /// Warnings of the last call on it.
    pub warnings: u64,
}
