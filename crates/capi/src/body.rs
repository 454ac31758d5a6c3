//! What a handle leads to: a pool, and what C gave for it.

use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use rust_pool::Pool;

use crate::callbacks::{Callbacks, Table, UserData, cenote_dispose_fn};
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
    /// There while C has references. It keeps the body alive, so it goes with the
    /// last one of them.
    pool: UnsafeCell<Option<Pool<Callbacks>>>,
    waiters: Waiters,
    listeners: Arc<Listeners>,
    /// Whether the breaker has a strategy of C's.
    watched: AtomicBool,
    /// Called at the very end, once the pool has been handed to C.
    dispose: cenote_dispose_fn,
    handed_out: AtomicBool,
}

// SAFETY: `pool` is written before the handle is given away, and when its last
// reference is given up; in between it is only read.
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
    /// C has no references any more.
    #[inline]
    pub(crate) fn pool(&self) -> &Pool<Callbacks> {
        // SAFETY: written only before C has the handle and after its last reference.
        let pool = unsafe { &*self.pool.get() };
        pool.as_ref().expect("C has a reference")
    }

    /// The last reference was given up: closes the pool, and lets go of it.
    ///
    /// # Safety
    ///
    /// Nobody uses the pool any more, and this is called once.
    pub(crate) unsafe fn end(&self) {
        // SAFETY: the caller's promise.
        let pool = unsafe { (*self.pool.get()).take() };
        let Some(pool) = pool else { return };
        // One poll closes it, and destroys what is idle where callbacks may run; what is
        // left then goes to where they do. Errors are told by the events.
        let mut context = Context::from_waker(Waker::noop());
        let _ = pin!(pool.close()).poll(&mut context);
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
        self.listeners.dispose();
        let dispose = self.dispose.filter(|_| handed_out);
        let data = self.table.data;
        end_of_data(self.host.take(), dispose, data);
    }
}

/// Calls `dispose`, where callbacks run, and then lets go of the host.
fn end_of_data(host: Option<Arc<Host>>, dispose: cenote_dispose_fn, data: UserData) {
    let ended = Ended {
        host: host.clone(),
        dispose,
        data,
    };
    match host {
        Some(host) if !host.is_here() => host.spawn(Box::pin(async move { drop(ended) })),
        _ => drop(ended),
    }
}

/// The very last of a pool; a guard, so that a host which takes no more work does not
/// keep it from happening.
struct Ended {
    host: Option<Arc<Host>>,
    dispose: cenote_dispose_fn,
    data: UserData,
}

impl Drop for Ended {
    fn drop(&mut self) {
        if let Some(dispose) = self.dispose {
            // SAFETY: C's function with C's data; nothing uses the data any more.
            unsafe { dispose(self.data.0) };
        }
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
