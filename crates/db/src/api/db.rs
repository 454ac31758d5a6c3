//! The handle that thousands of tasks share.

use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::Location;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use cenote_pool::{CloseError, Counters, DestroyError, Pool, Status};

use crate::api::builder::Builder;
use crate::api::closure::in_transaction;
use crate::api::connection::{Connection, Pinned};
use crate::api::executor::CallOptions;
use crate::api::methods::sql_methods;
use crate::api::transaction::{self, Transaction};
use crate::api::transaction_options::TransactionOptions;
use crate::binding::PinKind;
use crate::binding::writers::{QueuedCall, Writers};
use crate::call::op::Ping;
use crate::call::route::{self, Purpose};
use crate::call::{Call, Target};
use crate::config::DbConfig;
use crate::coroutine::call_context;
use crate::driver::Driver;
use crate::listen::{Listen, ListenStatus};
use crate::pooled::activity::{ConnectionHolder, StatementWatch};
use crate::pooled::handle::Handle;
use crate::pooled::manager::ConnectionManager;
use crate::pooled::statement_events::{StatementEvent, StatementSubscription};
use crate::pooled::statement_timings::DbTimings;
use crate::sql::{Class, Dialect};
use crate::types::value::Value;
use crate::{Error, Kind, Result};

/// A database handle that any number of tasks share.
///
/// All clones are one handle: give every task a clone or a reference. A call takes a connection for as long as the call
/// runs. Inside a [coroutine](crate::scope), an open transaction, a live [`Statement`](crate::Statement) or changed
/// session state pins a connection, and all calls of the coroutine on this `Db` run on it. When nothing pins the
/// connection any more, it goes back. When the coroutine ends, what is still open is rolled back, and the connection
/// goes back.
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
    /// Its calls ignore the connection that the coroutine has pinned.
    outside: bool,
    /// A replica may answer its reads.
    reading: bool,
}

impl Db {
    pub(crate) fn of(handle: Arc<Handle>) -> Self {
        Db {
            handle,
            outside: false,
            reading: false,
        }
    }

    /// Opens a database with the defaults of the [`Builder`]. Does not connect yet.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing stays open.
    ///
    /// # Errors
    ///
    /// As [`Builder::open`].
    #[track_caller]
    pub fn open(dsn: &str) -> impl Future<Output = Result<Db>> + Send + use<> {
        Db::builder(dsn).open()
    }

    /// Returns a builder for the database of a DSN, in PDO's style (`sqlite:/path/shop.db`) or as a URL.
    #[track_caller]
    pub fn builder(dsn: &str) -> Builder {
        Builder::new(dsn)
    }

    /// Returns a builder that uses this driver: one of your own, or a configured one of this crate.
    #[track_caller]
    pub fn builder_with(driver: impl Driver, dsn: &str) -> Builder {
        Builder::with_driver(Arc::new(driver), dsn)
    }

    /// Opens the database that the environment names, by `CENOTE_DSN` and the other variables that
    /// [`DbConfig::from_env`] reads.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing stays open.
    ///
    /// # Errors
    ///
    /// A variable is missing or cannot be read; otherwise as [`Builder::open`].
    #[track_caller]
    pub fn from_env() -> impl Future<Output = Result<Db>> + Send {
        let builder = DbConfig::from_env().map(Builder::from_config);
        async move { builder?.open().await }
    }

    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Returns the same handle for calls whose reads a replica may answer.
    pub(crate) fn as_reading(&self) -> Db {
        Db {
            reading: true,
            ..self.clone()
        }
    }

    #[track_caller]
    #[inline]
    pub(crate) fn call(&self) -> Call<'_> {
        Call {
            target: match self.outside {
                false => Target::Ambient(&self.handle),
                true => Target::Outside(&self.handle),
            },
            context: call_context(),
            site: Location::caller(),
            options: match self.reading {
                false => None,
                true => CallOptions::for_reading(),
            },
        }
    }

    sql_methods!(
        "Runs on the connection that the coroutine has pinned, in its transaction if there is one; otherwise on a \
         connection that is taken for this call."
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
        in_transaction!(self.call(), TransactionOptions::new(), body)
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
        in_transaction!(self.call(), TransactionOptions::new(), body)
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

    /// Registers a callback that runs after the outermost transaction of this coroutine has been committed.
    ///
    /// Callbacks run in the order of registration, before the commit returns. A rollback of the transaction or
    /// savepoint forgets the callbacks registered in it. Outside of a transaction the callback runs at once.
    pub fn after_commit(&self, callback: impl FnOnce() + Send + 'static) {
        let call = self.call();
        transaction::after_commit(&call, Box::new(callback));
    }

    /// Pins a connection to this coroutine until the returned guard is dropped or the coroutine ends.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing is pinned.
    ///
    /// # Errors
    ///
    /// [`Kind::NoCoroutine`] outside of a coroutine; no connection is free in time.
    #[track_caller]
    pub fn pin(&self) -> impl Future<Output = Result<Pinned>> + Send + '_ {
        let call = self.call();
        async move {
            let pin = async {
                call.check_here()?;
                if call.owner().is_none() {
                    let message = "pin() needs a coroutine around it, which owns what is pinned: run \
                                   the code in cenote::scope(..) or cenote::spawn(..), or take a \
                                   connection with db.connection()";
                    return Err(Error::new(Kind::NoCoroutine, message));
                }
                call.pinned(PinKind::Explicit).await
            };
            let pin = pin.await.map_err(|error| call.named(None, error))?;
            Ok(Pinned::new(pin))
        }
    }

    /// Takes a connection that is independent of coroutines: its calls run there and nowhere else, until it is
    /// dropped.
    ///
    /// # Cancel safety
    ///
    /// Dropped, no connection is taken.
    ///
    /// # Errors
    ///
    /// No connection is free in time.
    #[track_caller]
    pub fn connection(&self) -> impl Future<Output = Result<Connection>> + Send + '_ {
        let outside = Call {
            target: Target::Outside(&self.handle),
            ..self.call()
        };
        async move {
            let pin = async {
                outside.check_here()?;
                let taken = outside.taken(&self.handle, PinKind::Explicit, Purpose::Other);
                taken.await
            };
            let pin = pin.await.map_err(|error| outside.named(None, error))?;
            Ok(Connection::new(pin))
        }
    }

    /// Returns a handle of the same database whose calls run outside of the coroutine's transaction, on other
    /// connections. Use it for audit logs, for example, which must survive a rollback.
    #[must_use]
    pub fn outside(&self) -> Db {
        Db {
            outside: true,
            ..self.clone()
        }
    }

    /// Returns whether a call would run in a transaction. Takes no connection.
    pub fn in_transaction(&self) -> bool {
        self.peek().is_some_and(|binding| binding.in_transaction)
    }

    /// Returns what pins a connection to the coroutine, if anything does. Takes no connection.
    pub fn peek(&self) -> Option<Binding> {
        let call = self.call();
        if let Some((_, lazy)) = call.lazy_around() {
            return Some(lazy.describe());
        }
        let bound = call.lookup()?;
        Some(bound.describe(call.context.frame()?))
    }

    /// Returns the last error of this coroutine on this `Db`, until a call succeeds. `None` outside of coroutines.
    pub fn last_error(&self) -> Option<Error> {
        call_context().frame()?.last_error(self.handle.shared.id)
    }

    /// Returns the SQLSTATE of the last call of this coroutine: `00000` if it succeeded.
    pub fn last_sql_state(&self) -> String {
        let Some(error) = self.last_error() else {
            return "00000".to_owned();
        };
        error.sql_state().unwrap_or("HY000").to_owned()
    }

    /// Returns the number of warnings of the last call on the pinned connection; 0 if none is pinned. Takes no
    /// connection.
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
            let answered = async {
                call.check_here()?;
                call.send_and_finish(&Class::NO_SQL, &mut Ping).await
            };
            answered.await.map_err(|error| call.named(None, error))
        }
    }

    /// Sets a session setting on every connection: on open ones before their next use, on new ones when they are
    /// opened.
    ///
    /// The setting is first tried on one connection. `Ok` means that the database has accepted it; after an error
    /// nothing has changed. If the database refuses the setting later (a role that was dropped), connecting fails with
    /// that error: [`unset_default`](Db::unset_default) removes the setting.
    ///
    /// # Cancel safety
    ///
    /// Dropped before it is done, nothing has changed.
    ///
    /// # Errors
    ///
    /// The database refuses the setting; [`Kind::Unsupported`] if the driver has no settings; no connection is free in
    /// time.
    #[track_caller]
    pub fn set_default<'a>(
        &'a self,
        name: &'a str,
        value: impl Into<Value<'a>>,
    ) -> impl Future<Output = Result<()>> + Send + 'a {
        let value = value.into().into_owned();
        let (context, site) = (call_context(), Location::caller());
        async move {
            let accepted = async {
                let frame = context.frame();
                let mut lease = route::acquire(&self.handle, frame, Purpose::Other, site).await?;
                // A cancel from here on has the pool reset the session.
                lease.try_setting(name, &value, site).await
            };
            let accepted = accepted.await;
            accepted.map_err(|error| error.in_call(site, None))?;
            self.handle.pool.manager().defaults.set(name, value);
            Ok(())
        }
    }

    /// Removes a default that [`set_default`](Db::set_default) has set. Connections that have it are reset before their
    /// next use. Does nothing if there is no such default. Takes no connection.
    pub fn unset_default(&self, name: &str) {
        self.handle.pool.manager().defaults.unset(name);
    }

    /// Listens to channels of PostgreSQL's NOTIFY: await it for the [`Listener`](crate::listen::Listener).
    ///
    /// The listener is ready when the server has acknowledged the channels: it receives every notification that is
    /// committed from then on. If notifications may be missing, it receives an
    /// [`Event::Gap`](crate::listen::Event::Gap) at their place. The [guide](crate::guide::listen) has examples.
    ///
    /// All listeners of the handle share one connection. It is outside of the pool, does not count in
    /// [`max`](Builder::max), runs neither [`on_connect`](Builder::on_connect) nor [defaults](Db::set_default), and
    /// closes with the last listener. [`listen_status`](Db::listen_status) shows it. If it is lost, the
    /// handle opens another one, with growing pauses of up to 5 s, for as long as somebody listens.
    ///
    /// A channel is a name: `Jobs` is another channel than `jobs`, and `NOTIFY Jobs` without quotes notifies `jobs`.
    ///
    /// # Cancel safety
    ///
    /// Dropped, nothing listens.
    ///
    /// # Errors
    ///
    /// [`Kind::Unsupported`] if the database has no notifications, or a pooler such as PgBouncer is in between;
    /// [`Kind::Parameters`] for no channel, an empty one, or one with more than 63 bytes; [`Kind::Timeout`] after
    /// [`acquire_timeout`](Builder::acquire_timeout); [`Kind::Closed`]; the server cannot be reached or refuses.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use cenote::listen::Event;
    ///
    /// # async fn example(db: cenote::Db) -> cenote::Result<()> {
    /// let mut listener = db.listen(["prices", "stock"]).await?;
    /// while let Some(event) = listener.try_next().await? {
    ///     match event {
    ///         Event::Notification { channel, payload, .. } => println!("{channel}: {payload}"),
    ///         Event::Gap { cause } => println!("load everything again ({cause})"),
    ///         _ => {}
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    #[track_caller]
    pub fn listen<C: Into<String>>(&self, channels: impl IntoIterator<Item = C>) -> Listen<'_> {
        let channels = channels.into_iter().map(Into::into).collect();
        Listen::new(&self.handle.hub, channels, Location::caller())
    }

    /// Returns the state of the connection of [`listen`](Db::listen); `None` if there is none.
    pub fn listen_status(&self) -> Option<ListenStatus> {
        self.handle.hub.status()
    }

    /// Returns the pool underneath, for statistics, events and the circuit breaker; `None` for an
    /// unpooled handle. Close the handle with [`Db::close`]: closing the pool does not stop statements and connections
    /// in use.
    pub fn pool(&self) -> Option<&Pool<ConnectionManager>> {
        (!self.handle.config.unpooled).then_some(&self.handle.pool)
    }

    /// Returns the number of connections by what they do, and the number of waiting calls. Includes calls that wait
    /// to write where the database has one writer at a time, which the pool does not count. A
    /// [shared connection](Db::shared_connections) counts as one in use. [`hosts`](Db::hosts) and [`replicas`](Db::replicas) tell
    /// where the connections lead; those to replicas are not counted here.
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

    /// Returns the connections in use, longest first: the lines that took them, and what pins them. Takes no connection.
    ///
    /// While a [`StatementWatch`] lives, also the statement that each connection runs or ran last.
    pub fn holders(&self) -> Vec<ConnectionHolder> {
        let log = &self.handle.pool.manager().log;
        let now = log.runtime.coarse_now();
        let holders = self.handle.pool.holders();
        let mut holders = log.activities.describe(holders, log.dialect, now);
        let lanes = self.handle.lanes.iter();
        for (connection, shared_by) in lanes.flat_map(|lanes| lanes.loads()) {
            let mut found = holders.iter_mut();
            if let Some(holder) = found.find(|holder| holder.connection == connection) {
                holder.shared_by = shared_by;
            }
        }
        holders
    }

    /// Returns how many reads have run on [shared connections](Builder::share_connections), for tests.
    #[doc(hidden)]
    pub fn shared_reads(&self) -> u64 {
        self.handle.lanes.as_ref().map_or(0, |lanes| lanes.reads())
    }

    /// Makes [`holders`](Db::holders) know the statements from now on, until the returned guard is dropped.
    ///
    /// Meanwhile every statement copies up to 1 KiB of its text, under a lock that no other statement wants. Without a
    /// guard, a statement costs two comparisons more.
    pub fn watch_statements(&self) -> StatementWatch {
        StatementWatch::new(&self.handle.pool.manager().log)
    }

    /// Returns calls that wait for a connection, longest first, with the lines of the calls and what they wait for: at
    /// most `most` in the queue of the pool, and `most` that wait to write.
    pub fn queued(&self, most: usize) -> Vec<QueuedCall> {
        let queued = self.handle.pool.queued(most);
        let mut queued: Vec<QueuedCall> = queued.into_iter().map(QueuedCall::from).collect();
        let shared = &self.handle.shared;
        if let Some(writers) = &shared.writers {
            queued.extend(writers.queued(most, shared.runtime.coarse_now()));
            queued.sort_by_key(|call| std::cmp::Reverse(call.waited));
        }
        queued
    }

    /// Returns what has been counted since the handle was opened. As in [`status`](Db::status), calls that
    /// waited to write count as waits.
    pub fn counters(&self) -> Counters {
        let mut counters = self.handle.pool.counters();
        let writers = self.handle.shared.writers.as_ref();
        counters.waited += writers.map_or(0, Writers::waited);
        counters
    }

    /// Returns how long statements, acquires and connects took since the handle was opened, as histograms. They are
    /// always on.
    pub fn timings(&self) -> DbTimings {
        let pool = &self.handle.pool;
        pool.manager().log.timings.snapshot(pool.timings())
    }

    /// Calls `callback` for every statement of this handle as it ends, on the task that runs it, outside every lock, until the
    /// subscription is dropped. For metrics; a statement is what [`DbTimings`] counts. The callback must not block.
    ///
    /// While nobody listens, a statement costs one comparison more.
    pub fn on_statement(
        &self,
        callback: impl Fn(&StatementEvent<'_>) + Send + Sync + 'static,
    ) -> StatementSubscription {
        let log = &self.handle.pool.manager().log;
        StatementSubscription::new(log, Arc::new(callback))
    }

    /// Returns the database in the words of OpenTelemetry (`db.system.name`): `postgresql`, `mysql`, `sqlite`, `other_sql`
    /// for ODBC, or the name of another driver.
    pub fn system_name(&self) -> &'static str {
        self.handle.shared.origin.system
    }

    /// Returns host and port of the server; `None` if there is no server, or several. The host may be the path of a Unix
    /// socket, without a port.
    pub fn server(&self) -> Option<(&str, Option<u16>)> {
        self.handle.shared.origin.server()
    }

    /// Returns the name of the handle for metrics: that of [`Builder::name`], or the address of the database, without
    /// credentials.
    pub fn metrics_name(&self) -> String {
        let name = self.handle.config.name.clone();
        name.unwrap_or_else(|| self.handle.pool.manager().template.address())
    }

    /// Returns the settings that the handle was opened with.
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

    /// Returns the name of the driver.
    pub fn driver_name(&self) -> &'static str {
        self.handle.driver
    }

    /// Closes the handle. Open transactions may finish; every other call fails with [`Kind::Closed`], also on statements
    /// and connections in use. Idle connections close now, the others when they come back. Listeners end.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the handle is closed nevertheless.
    ///
    /// # Errors
    ///
    /// A connection did not close in order. It is gone nevertheless.
    pub async fn close(&self) -> Result<()> {
        self.handle.close();
        let closed = together(self.pools().map(|pool| pool.close())).await;
        self.handle.hub.ended().await;
        closed.map_err(not_closed)
    }

    /// Closes the handle and waits for the connections in use. Listeners end.
    ///
    /// # Cancel safety
    ///
    /// Dropped, the handle is closed nevertheless, without the wait.
    ///
    /// # Errors
    ///
    /// Connections were still in use at the deadline; the message names their call sites.
    pub async fn close_and_drain(&self, deadline: Duration) -> Result<()> {
        self.handle.close();
        let drained = together(self.pools().map(|pool| pool.close_and_drain(deadline))).await;
        self.handle.hub.ended().await;
        drained.map_err(not_closed)
    }

    /// Returns the pool of the handle, and those of its replicas.
    fn pools(&self) -> impl Iterator<Item = &Pool<ConnectionManager>> {
        let replicas = self.handle.replicas.iter().flat_map(|all| all.handles());
        std::iter::once(&self.handle.pool).chain(replicas.map(|replica| &replica.pool))
    }

    /// Runs a future in the background, on the runtime that the handle lives on.
    pub(crate) fn spawn_aside(&self, future: impl Future<Output = ()> + Send + 'static) {
        self.handle.shared.runtime.spawn(Box::pin(future));
    }

    /// Replaces all present connections in the background: after a server has moved or a password has changed.
    ///
    /// The pool opens the new connections one at a time. Each takes over from an old one that is idle or comes back. Until
    /// then the old ones serve: no call waits for a replacement or fails without one. While the server refuses
    /// connections, the pool tries again with growing pauses. A private in-memory database lives in its one connection,
    /// which stays. The connection of [`listen`](Db::listen) is replaced at once, and its listeners get a Gap.
    pub fn replace_all(&self) {
        let pool = &self.handle.pool;
        if pool.manager().template.check_poolable().is_ok() {
            pool.replace_all();
        }
        self.handle.hub.replace();
        for replica in self.handle.replicas.iter().flat_map(|all| all.handles()) {
            replica.pool.replace_all();
        }
    }
}

/// Closes pools beside each other, each from the first poll on, and merges what is left of them.
///
/// # Cancel safety
///
/// As the closing of a pool.
async fn together(
    closing: impl Iterator<Item = impl Future<Output = Result<(), CloseError<Error>>>>,
) -> Result<(), CloseError<Error>> {
    let mut closing: Vec<_> = closing.map(|closing| (Box::pin(closing), None)).collect();
    poll_fn(|cx| {
        let mut is_over = true;
        for (closing, closed) in &mut closing {
            if closed.is_none() {
                match closing.as_mut().poll(cx) {
                    Poll::Ready(result) => *closed = Some(result),
                    Poll::Pending => is_over = false,
                }
            }
        }
        match is_over {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    let mut left: Option<CloseError<Error>> = None;
    for (n, (_, closed)) in closing.into_iter().enumerate() {
        let Some(Err(mut error)) = closed else {
            continue;
        };
        if n > 0 {
            // A connection to a replica that does not close in order has nothing that could be lost.
            error.errors.clear();
        }
        match &mut left {
            None => left = Some(error),
            Some(left) => {
                left.left.append(&mut error.left);
                left.still_in_use += error.still_in_use;
            }
        }
    }
    match left {
        Some(left) if !left.errors.is_empty() || left.still_in_use > 0 => Err(left),
        _ => Ok(()),
    }
}

fn not_closed(error: CloseError<Error>) -> Error {
    let mut message = "the database handle is closed".to_owned();
    match error.errors.len() {
        0 => {}
        1 => message.push_str(", but 1 connection did not close in order"),
        some => message.push_str(&format!(", but {some} connections did not close in order")),
    }
    match error.still_in_use {
        0 => {}
        1 => message.push_str(", but 1 connection was still in use"),
        some => message.push_str(&format!(", but {some} connections were still in use")),
    }
    for holder in &error.left {
        message.push_str(&format!("; {holder}"));
    }
    let closed = Error::new(Kind::Closed, message);
    match error.errors.into_iter().next() {
        Some(DestroyError::Failed(why)) => closed.because(why),
        Some(other) => closed.because(other),
        None => closed,
    }
}

impl fmt::Debug for Db {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(out)
    }
}

/// What pins a connection to a coroutine: see [`Db::peek`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Binding {
    /// A transaction is open.
    pub in_transaction: bool,
    /// The line that began the transaction.
    pub begun_at: Option<&'static Location<'static>>,
    /// How many savepoints are open in the transaction.
    pub savepoints: usize,
    /// How many live statements pin the connection.
    pub statements: usize,
    /// The session was changed, which pins the connection until the coroutine ends.
    pub session_touched: bool,
    /// How many warnings the last call on the connection gave.
    pub warnings: u64,
}
