//! The state that a handle and everything made from it share, without the pool: a statement that outlives its handle
//! must not keep the pool open.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use cenote_pool::Runtime;

use crate::binding::contention::Contention;
use crate::binding::writers::Writers;
use crate::call::trace::Origin;
use crate::driver::Dialect;
use crate::error::rounded;
use crate::pooled::handle::Handle;
use crate::{Error, Kind};

/// Identifies a `Db`. Clones have the same identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct DbId(u64);

impl DbId {
    pub(crate) fn next() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        // Relaxed: the number only has to be unique.
        DbId(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// How long a request may take, and the setting with that limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeLimit {
    pub(crate) time: Duration,
    pub(crate) setting: &'static str,
}

impl TimeLimit {
    /// Returns the error of a statement that has exceeded this limit.
    #[cold]
    pub(crate) fn exceeded(self) -> Error {
        let TimeLimit { time, setting } = self;
        let message = format!("statement cancelled after {} ({setting})", rounded(time));
        Error::new(Kind::StatementTimeout, message)
    }
}

pub(crate) struct Shared {
    pub(crate) id: DbId,
    pub(crate) dialect: &'static Dialect,
    /// What spans say about the database.
    pub(crate) origin: Origin,
    /// The database has one writer at a time.
    pub(crate) one_writer: bool,
    /// Limits the connections of writers, for a database with one writer.
    pub(crate) writers: Option<Writers>,
    pub(crate) runtime: Arc<dyn Runtime>,
    pub(crate) acquire_timeout: Option<Duration>,
    pub(crate) cleanup_timeout: Duration,
    pub(crate) statement_timeout: Option<Duration>,
    pub(crate) max_transaction_age: Option<Duration>,
    pub(crate) idle_in_transaction: Option<Duration>,
    pub(crate) contention: Arc<Contention>,
    /// The handle was closed. A handle that was only dropped is not closed: statements may outlive it.
    pub(crate) closed: AtomicBool,
    /// The handle, set when it has been built.
    pub(crate) handle: OnceLock<Weak<Handle>>,
}

impl Shared {
    /// Returns the handle, if it was not dropped.
    pub(crate) fn handle(&self) -> Option<Arc<Handle>> {
        self.handle.get()?.upgrade()
    }

    pub(crate) fn is_closed(&self) -> bool {
        // Acquire pairs with the release in `close`.
        self.closed.load(Ordering::Acquire)
    }

    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Release);
    }

    /// Returns the limit of a statement outside a transaction.
    pub(crate) fn statement_limit(&self) -> Option<TimeLimit> {
        let time = self.statement_timeout?;
        Some(TimeLimit {
            time,
            setting: "statement_timeout",
        })
    }

    /// Returns the limit of a request that cleans up.
    pub(crate) fn cleanup_limit(&self) -> Option<TimeLimit> {
        Some(TimeLimit {
            time: self.cleanup_timeout,
            setting: "cleanup_timeout",
        })
    }

    /// Returns whether calls have a deadline: all calls, or those in transactions.
    pub(crate) fn limits_calls(&self) -> bool {
        self.statement_timeout.is_some() || self.max_transaction_age.is_some()
    }
}
