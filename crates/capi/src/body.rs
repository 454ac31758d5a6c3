//! What a handle leads to: a pool, and what C gave for it.

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

/// The part of a pool that lives as long as anything of it does: handles, leases,
/// tasks. When the last of them is gone, so is C's data.
pub(crate) struct Body {
    handle: Handle,
    table: Table,
    loans: Loans,
    host: Option<Arc<Host>>,
    /// There while C has references or a call is under way. It keeps the body alive, so
    /// it goes with the last one of them.
    pool: UnsafeCell<Option<Pool<Callbacks>>>,
    waiters: Waiters,
    listeners: Arc<Listeners>,
    /// Whether the breaker has a strategy of C's.
    watched: AtomicBool,
    /// Called at the very end, once the pool has been handed to C.
    dispose: cenote_dispose_fn,
    handed_out: AtomicBool,
}

// SAFETY: `pool` is written before the handle is given away, and when nobody can get at
// it any more; in between it is only read.
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

    /// Puts the pool in, before the handle is given to C.
    ///
    /// # Safety
    ///
    /// Nobody else knows this body yet but its own callbacks, which do not use the pool.
    pub(crate) unsafe fn begin(&self, pool: Pool<Callbacks>) {
        // SAFETY: the caller's promise.
        unsafe { *self.pool.get() = Some(pool) };
        self.handed_out.store(true, Ordering::Relaxed);
    }

    /// The pool.
    ///
    /// # Panics
    ///
    /// It was let go of: only for those who hold on to it by a handle.
    #[inline]
    pub(crate) fn pool(&self) -> &Pool<Callbacks> {
        // SAFETY: written only before C has the handle, and when nobody uses it.
        let pool = unsafe { &*self.pool.get() };
        pool.as_ref().expect("somebody holds on to it")
    }

    /// The last reference was given up: closes the pool.
    pub(crate) fn close(&self) {
        // One poll closes it, and destroys what is idle where callbacks may run; what is
        // left then goes to where they do. Errors are told by the events.
        let mut context = Context::from_waker(Waker::noop());
        let _ = pin!(self.pool().close()).poll(&mut context);
    }

    /// Lets go of the pool, so that it lives only as long as what is out.
    ///
    /// # Safety
    ///
    /// Nobody uses the pool any more, nor can begin to.
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

    /// The time, by the clock of the pool.
    pub(crate) fn now(&self) -> Instant {
        match &self.host {
            Some(host) => host.now(),
            None => ThreadRuntime::new().now(),
        }
    }

    /// The host, if callbacks run on its thread and this is another one.
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

    /// Whether the breaker has a strategy of C's, which has to run on the host's thread.
    #[inline]
    pub(crate) fn is_watched(&self) -> bool {
        // Relaxed: a report in the same instant may go either way.
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
            // After the events that it has not told yet.
            Some(host) => host.spawn(Box::pin(async move { drop(ended) })),
            None => drop(ended),
        }
    }
}

/// The very last of a pool; a guard, so that a host which takes no more work does not
/// keep it from happening.
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
