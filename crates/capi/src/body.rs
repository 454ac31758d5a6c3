//! The body that a handle names: a pool, and C's callbacks and data.

use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};
use std::time::Instant;

use rust_pool::{Pool, Runtime, ThreadRuntime};

use crate::callbacks::{Callbacks, Disposal, Table, cenote_dispose_fn};
use crate::event::Listeners;
use crate::handle::{self, Handle};
use crate::host::Host;
use crate::loans::Loans;
use crate::waiter::Waiters;

/// The shared state of a pool. It lives until the last handle, lease and task is gone; then
/// C's data is disposed.
pub(crate) struct Body {
    handle: Handle,
    table: Table,
    loans: Loans,
    host: Option<Arc<Host>>,
    /// `Some` while C has references or a call is running. The pool keeps the body alive, so
    /// it is dropped with the last of them.
    pool: UnsafeCell<Option<Pool<Callbacks>>>,
    waiters: Waiters,
    listeners: Arc<Listeners>,
    /// Whether the breaker has a strategy of C's.
    watched: AtomicBool,
    /// Called last, if C ever got the pool.
    dispose: cenote_dispose_fn,
    handed_out: AtomicBool,
}

// SAFETY: `pool` is written before C gets the handle, and after the last call that could use
// it; in between it is only read.
unsafe impl Sync for Body {}
// SAFETY: all of it may be sent; C's data by the header's contract.
unsafe impl Send for Body {}

impl Body {
    pub(crate) fn new(
        handle: Handle,
        number: u32,
        table: Table,
        host: Option<Arc<Host>>,
        dispose: cenote_dispose_fn,
    ) -> Self {
        Body {
            handle,
            table,
            loans: Loans::new(number),
            listeners: Arc::new(Listeners::new(handle, host.clone())),
            host,
            pool: UnsafeCell::new(None),
            waiters: Waiters::default(),
            watched: AtomicBool::new(false),
            dispose,
            handed_out: AtomicBool::new(false),
        }
    }

    /// Stores the pool, before C gets the handle.
    ///
    /// # Safety
    ///
    /// Only the body's own callbacks may know this body yet, and they must not use the pool.
    pub(crate) unsafe fn begin(&self, pool: Pool<Callbacks>) {
        // SAFETY: the caller's promise.
        unsafe { *self.pool.get() = Some(pool) };
        self.handed_out.store(true, Ordering::Relaxed);
    }

    /// The pool.
    ///
    /// # Panics
    ///
    /// If the pool was dropped: the caller must keep it alive through a handle.
    #[inline]
    pub(crate) fn pool(&self) -> &Pool<Callbacks> {
        // SAFETY: written only before C has the handle, and when nobody uses it.
        let pool = unsafe { &*self.pool.get() };
        pool.as_ref().expect("the caller keeps the pool alive")
    }

    /// Closes the pool, after C has released its last reference.
    pub(crate) fn close(&self) {
        // One poll closes the pool, and destroys the idle resources if callbacks may run on this
        // thread; the runtime does the rest. Events report the errors.
        let mut context = Context::from_waker(Waker::noop());
        let _ = pin!(self.pool().close()).poll(&mut context);
    }

    /// Drops the pool; it lives on only until its last lease is released.
    ///
    /// # Safety
    ///
    /// No call uses the pool, and none can start to.
    pub(crate) unsafe fn let_go(&self) {
        // SAFETY: the caller's promise.
        let pool = unsafe { (*self.pool.get()).take() };
        drop(pool);
    }

    #[inline]
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    #[inline]
    pub(crate) fn table(&self) -> &Table {
        &self.table
    }

    #[inline]
    pub(crate) fn loans(&self) -> &Loans {
        &self.loans
    }

    #[inline]
    pub(crate) fn host(&self) -> Option<&Arc<Host>> {
        self.host.as_ref()
    }

    /// Returns the time of the pool's clock.
    pub(crate) fn now(&self) -> Instant {
        match &self.host {
            Some(host) => host.now(),
            None => ThreadRuntime::new().now(),
        }
    }

    /// Returns the host if there is one and this is not its thread.
    #[inline]
    pub(crate) fn elsewhere(&self) -> Option<&Arc<Host>> {
        self.host.as_ref().filter(|host| !host.is_here())
    }

    pub(crate) fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    pub(crate) fn listeners(&self) -> &Arc<Listeners> {
        &self.listeners
    }

    /// Whether the breaker has a strategy of C's, which must run on the host's thread.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        // Relaxed: a concurrent report may use the old or the new strategy.
        self.watched.load(Ordering::Relaxed)
    }

    pub(crate) fn set_watched(&self, watched: bool) {
        self.watched.store(watched, Ordering::Relaxed);
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let handed_out = *self.handed_out.get_mut();
        if handed_out {
            handle::retire(self.handle);
        }
        let ended = Ended {
            listeners: Arc::clone(&self.listeners),
            disposal: Some(Disposal {
                dispose: self.dispose.filter(|_| handed_out),
                data: self.table.data,
            }),
            host: self.host.take(),
        };
        match ended.host.clone().filter(|host| !host.is_here()) {
            // Runs after the pending events.
            Some(host) => host.spawn(Box::pin(async move { drop(ended) })),
            None => drop(ended),
        }
    }
}

/// Ends a pool when it is dropped. A guard, so that the pool ends even if the host accepts no
/// more work.
struct Ended {
    listeners: Arc<Listeners>,
    disposal: Option<Disposal>,
    host: Option<Arc<Host>>,
}

impl Drop for Ended {
    fn drop(&mut self) {
        self.listeners.dispose();
        drop(self.disposal.take());
        if let Some(host) = &self.host {
            host.end();
        }
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Body")
            .field("handle", &self.handle)
            .finish_non_exhaustive()
    }
}
