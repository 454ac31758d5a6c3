//! How a transaction begins, and how long it may idle.

use std::time::Duration;

use crate::driver::{Begin, Isolation};

/// How a transaction is to be run.
///
/// # Examples
///
/// ```
/// use cenote::{Isolation, TransactionOptions};
///
/// let options = TransactionOptions::new()
///     .isolation(Isolation::Serializable)
///     .retries(3);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransactionOptions {
    pub(crate) begin: Begin,
    pub(crate) retries: u32,
    pub(crate) lazily: bool,
    pub(crate) idle: Option<Duration>,
}

impl TransactionOptions {
    /// The database's default isolation and access mode, no retry.
    pub fn new() -> Self {
        TransactionOptions::default()
    }

    /// How well it is kept apart from others. Default: as the database likes.
    #[must_use]
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.begin.isolation = Some(isolation);
        self
    }

    /// It will write nothing. Default: it may.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.begin.read_only = true;
        self
    }

    /// How often [`Db::retry_transaction`](crate::Db::retry_transaction) tries again after a serialization
    /// failure or a deadlock. Default: 0.
    #[must_use]
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Begins the transaction of a closure with its first statement: until then it holds no
    /// connection and no lock, and if there is none, nothing is sent. Default: it begins at once.
    ///
    /// If no connection can be had then, or the BEGIN fails, that statement and every other fail, and
    /// so does the transaction, with that error, whatever the closure gives. [`Db::begin_with`] always
    /// begins at once.
    ///
    /// [`Db::begin_with`]: crate::Db::begin_with
    #[must_use]
    pub fn begin_lazily(mut self) -> Self {
        self.lazily = true;
        self
    }

    /// How long the transaction may be open without a call before it is rolled back. Default: as
    /// [`Builder::idle_in_transaction`] says; of two limits the shorter one counts.
    ///
    /// [`Builder::idle_in_transaction`]: crate::Builder::idle_in_transaction
    #[must_use]
    pub fn idle_in_transaction(mut self, time: impl Into<Option<Duration>>) -> Self {
        self.idle = time.into();
        self
    }

    /// The limit that [`idle_in_transaction`](Self::idle_in_transaction) has set.
    pub fn idle_limit(&self) -> Option<Duration> {
        self.idle
    }
}
