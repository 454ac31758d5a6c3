//! Statements as they end, for programs that count them by themselves.

use std::fmt;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use crate::Error;
use crate::pooled::statement_log::StatementLog;
use crate::sql::{Dialect, operation};

/// A statement that has ended: see [`Db::on_statement`](crate::Db::on_statement).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StatementEvent<'a> {
    /// The line of the program that made the call.
    pub caller: &'static Location<'static>,
    /// The time from when the connection got the request to the answer.
    pub took: Duration,
    /// The number of rows that were returned or changed, if the statement succeeded and returns it.
    pub rows: Option<u64>,
    /// The number of rows that were returned, if the call wanted rows. The rows of a stream are not counted.
    pub returned_rows: Option<u64>,
    /// The error. `None` if the statement succeeded or was dropped.
    pub error: Option<&'a Error>,
    /// The call was dropped before its answer, or exceeded its time limit.
    pub dropped: bool,
    pub(crate) sql: &'a str,
    pub(crate) dialect: &'static Dialect,
}

impl StatementEvent<'_> {
    /// Returns what the statement does, in upper case: SELECT, COMMIT … One of a fixed list of words, so that metrics can
    /// have it as a label; `None` for other statements.
    pub fn operation(&self) -> Option<&'static str> {
        operation(self.dialect, self.sql)
    }
}

type Callback = dyn Fn(&StatementEvent<'_>) + Send + Sync;

/// The listeners of a handle's statements.
#[derive(Default)]
pub(crate) struct StatementListeners {
    /// The list is not empty. Relaxed: a statement that ends while a listener comes or goes may miss it.
    any: AtomicBool,
    list: Mutex<Vec<(u64, Arc<Callback>)>>,
}

impl StatementListeners {
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Calls every listener outside the lock. The panic of a listener loses the event for this listener.
    #[cold]
    pub(crate) fn tell(&self, event: &StatementEvent<'_>) {
        let callbacks: Vec<_> = self.lock().iter().map(|(_, f)| Arc::clone(f)).collect();
        for callback in callbacks {
            if catch_unwind(AssertUnwindSafe(|| callback(event))).is_err() {
                tracing::error!("a listener of Db::on_statement panicked");
            }
        }
    }

    fn add(&self, callback: Arc<Callback>) -> u64 {
        let mut list = self.lock();
        let id = list.last().map_or(0, |(id, _)| id + 1);
        list.push((id, callback));
        self.any.store(true, Ordering::Relaxed);
        id
    }

    fn remove(&self, id: u64) {
        let mut list = self.lock();
        let at = list.iter().position(|(of, _)| *of == id);
        let removed = at.map(|at| list.remove(at));
        self.any.store(!list.is_empty(), Ordering::Relaxed);
        drop(list);
        // User code.
        drop(removed);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(u64, Arc<Callback>)>> {
        // Nothing that can panic runs under this lock.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for StatementListeners {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("StatementListeners")
            .field("any", &self.any())
            .finish_non_exhaustive()
    }
}

/// A listener of [`Db::on_statement`](crate::Db::on_statement). Dropped, it hears no more. It does not keep the handle open.
#[derive(Debug)]
#[must_use = "a subscription that is dropped ends"]
pub struct StatementSubscription {
    log: Weak<StatementLog>,
    id: u64,
}

impl StatementSubscription {
    pub(crate) fn new(log: &Arc<StatementLog>, callback: Arc<Callback>) -> Self {
        StatementSubscription {
            id: log.listeners.add(callback),
            log: Arc::downgrade(log),
        }
    }
}

impl Drop for StatementSubscription {
    fn drop(&mut self) {
        if let Some(log) = self.log.upgrade() {
            log.listeners.remove(self.id);
        }
    }
}
