//! How a transaction is run: its isolation, its limits, and how often it is repeated.

use std::future::Future;
use std::time::Duration;

use crate::api::closure::{self, Retries, attempt, in_transaction};
use crate::api::connection::Connection;
use crate::api::db::Db;
use crate::api::transaction::{self, Transaction};
use crate::driver::{Begin, Isolation};
use crate::{Error, Result};

/// How often [`retry`](TransactionOptions::retry) repeats if nothing else is set.
const RETRIES: u32 = 3;

/// How a transaction is run.
///
/// [`Db::transaction_options`] and [`Connection::transaction_options`] return the default options for that database or
/// connection. Change them, then call [`run`](TransactionOptions::run), [`try_run`](TransactionOptions::try_run),
/// [`retry`](TransactionOptions::retry) or [`begin`](TransactionOptions::begin). Options from
/// [`new`](TransactionOptions::new) belong to no database and can be stored; [`on`](TransactionOptions::on) selects the
/// database for one transaction.
///
/// # Examples
///
/// ```
/// use cenote::{Db, Error, Isolation};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> cenote::Result<()> {
/// # let db = Db::open("sqlite:file:options-tx-doc?mode=memory&cache=shared").await?;
/// # db.exec("CREATE TABLE stock (n INTEGER)", ()).await?;
/// # db.exec("INSERT INTO stock VALUES (7)", ()).await?;
/// let left: i64 = db
///     .transaction_options()
///     .isolation(Isolation::Serializable)
///     .retries(5)
///     .retry(async || {
///         db.exec("UPDATE stock SET n = n - 1", ()).await?;
///         let left: i64 = db.query_as_one("SELECT n FROM stock", ()).await?;
///         Ok::<_, Error>(left)
///     })
///     .await?;
/// assert_eq!(left, 6);
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "options do nothing until run, retry or begin is called"]
pub struct TransactionOptions<On = ()> {
    on: On,
    pub(crate) begin: Begin,
    pub(crate) retries: Option<u32>,
    pub(crate) lazily: bool,
    pub(crate) idle: Option<Duration>,
}

impl TransactionOptions {
    /// Returns the default options, without a place to run at.
    pub fn new() -> Self {
        TransactionOptions::default()
    }

    /// Returns these options for transactions on a database.
    pub fn on(self, db: &Db) -> TransactionOptions<&Db> {
        self.at(db)
    }

    pub(crate) fn at<On>(self, on: On) -> TransactionOptions<On> {
        TransactionOptions {
            on,
            begin: self.begin,
            retries: self.retries,
            lazily: self.lazily,
            idle: self.idle,
        }
    }

    pub(crate) fn retries_or_default(self) -> u32 {
        self.retries.unwrap_or(RETRIES)
    }
}

impl<On> TransactionOptions<On> {
    /// Sets the isolation level. Default: the database's default.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.begin.isolation = Some(isolation);
        self
    }

    /// Makes the transaction read-only. Default: it may write.
    pub fn read_only(mut self) -> Self {
        self.begin.read_only = true;
        self
    }

    /// Makes the transaction SERIALIZABLE READ ONLY DEFERRABLE: it waits for a snapshot in which it can neither fail
    /// with a serialization failure nor cause one. For long reports. PostgreSQL only; with other databases the
    /// transaction fails with [`Kind::Unsupported`](crate::Kind::Unsupported).
    pub fn deferrable(mut self) -> Self {
        self.begin.isolation = Some(Isolation::Serializable);
        self.begin.read_only = true;
        self.begin.deferrable = true;
        self
    }

    /// Sets how often [`retry`](TransactionOptions::retry) repeats the transaction. Default: 3.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = Some(retries);
        self
    }

    /// Begins the transaction of a closure with its first statement. Until then the transaction holds no connection
    /// and no lock; without a statement, nothing is sent. Default: it begins at once.
    ///
    /// If no connection is free then, or the BEGIN fails, that statement and every later one fail, and so does the
    /// transaction, with that error, whatever the closure returns. [`begin`](TransactionOptions::begin) ignores this option.
    pub fn begin_lazily(mut self) -> Self {
        self.lazily = true;
        self
    }

    /// Limits how long the transaction may be open without a call; then it is rolled back. Default:
    /// [`Builder::idle_in_transaction`]. Of two limits the shorter one counts.
    ///
    /// [`Builder::idle_in_transaction`]: crate::Builder::idle_in_transaction
    pub fn idle_in_transaction(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.idle = time.into();
        self
    }

    /// Returns the limit that [`idle_in_transaction`](Self::idle_in_transaction) has set.
    pub fn idle_limit(&self) -> Option<Duration> {
        self.idle
    }

    fn split(self) -> (On, TransactionOptions) {
        let options = TransactionOptions {
            on: (),
            begin: self.begin,
            retries: self.retries,
            lazily: self.lazily,
            idle: self.idle,
        };
        (self.on, options)
    }
}

impl<'a> TransactionOptions<&'a Db> {
    /// Runs a closure in a transaction with these options: see [`Db::transaction`].
    ///
    /// # Cancel safety
    ///
    /// As [`Db::transaction`].
    ///
    /// # Errors
    ///
    /// As [`Db::transaction`]; [`Kind::NestedBegin`](crate::Kind::NestedBegin) inside another transaction if an isolation
    /// level or read-only mode is set.
    #[track_caller]
    pub fn run<T: 'a, F>(self, body: F) -> impl Future<Output = Result<T>>
    where
        F: AsyncFnOnce() -> Result<T> + 'a,
    {
        let (db, options) = self.split();
        in_transaction!(db.call(), options, body)
    }

    /// Runs a closure in a transaction with these options, with an error type of yours: see [`Db::try_transaction`].
    ///
    /// # Cancel safety
    ///
    /// As [`Db::transaction`].
    ///
    /// # Errors
    ///
    /// As [`run`](TransactionOptions::run), converted by `From<cenote::Error>`.
    #[track_caller]
    pub fn try_run<T: 'a, E, F>(self, body: F) -> impl Future<Output = Result<T, E>>
    where
        E: From<Error> + 'a,
        F: AsyncFnOnce() -> Result<T, E> + 'a,
    {
        let (db, options) = self.split();
        in_transaction!(db.call(), options, body)
    }

    /// Runs a closure in a transaction, and repeats both with growing pauses while they fail in a way that a repetition
    /// may cure ([`Error::is_retryable`]), at most [`retries`](TransactionOptions::retries) times.
    ///
    /// With an error type of yours, what counts is whether a call in the closure failed retryably and no later call
    /// succeeded, or the commit failed retryably. Inside another transaction the closure runs once: only the outermost
    /// transaction can be repeated. A commit with an unknown outcome is never repeated.
    ///
    /// # Cancel safety
    ///
    /// As [`Db::transaction`].
    ///
    /// # Errors
    ///
    /// As [`try_run`](TransactionOptions::try_run): the error of the last attempt.
    #[track_caller]
    pub fn retry<T: 'a, E, F>(self, body: F) -> impl Future<Output = Result<T, E>>
    where
        E: From<Error> + 'static,
        F: AsyncFnOnce() -> Result<T, E> + Clone + 'a,
    {
        let (db, options) = self.split();
        let mut call = db.call();
        async move {
            let mut retries = Retries::new(&call, options);
            loop {
                let body = body.clone();
                let failed = match attempt!(&call, options, body) {
                    Ok(value) => return Ok(value),
                    Err(failed) => failed,
                };
                let Some(pause) = retries.after(&failed) else {
                    return Err(failed.error);
                };
                closure::sleep(&call, pause).await;
                if call.is_reading() {
                    // What has failed on a replica, perhaps by a conflict with its recovery, is repeated on the primary.
                    call = call.on_primary();
                }
            }
        }
    }

    /// Begins a transaction with these options: see [`Db::begin`].
    ///
    /// # Cancel safety
    ///
    /// As [`Db::begin`].
    ///
    /// # Errors
    ///
    /// As [`Db::begin`].
    #[track_caller]
    pub fn begin(self) -> impl Future<Output = Result<Transaction<'static>>> + Send + 'a {
        let (db, options) = self.split();
        let call = db.call();
        async move { transaction::begin(&call, options).await }
    }
}

impl<'a> TransactionOptions<&'a mut Connection> {
    /// Begins a transaction on this connection with these options: see [`Connection::begin`].
    ///
    /// # Cancel safety
    ///
    /// As [`Connection::begin`].
    ///
    /// # Errors
    ///
    /// As [`Connection::begin`].
    #[track_caller]
    pub fn begin(self) -> impl Future<Output = Result<Transaction<'a>>> + Send {
        let (connection, options) = self.split();
        let connection: &'a Connection = connection;
        let call = connection.call();
        async move {
            let begun: Transaction<'a> = transaction::begin(&call, options).await?;
            Ok(begun)
        }
    }
}
