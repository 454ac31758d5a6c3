//! Acquire and release, on the calling thread.

use std::ffi::c_int;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use rust_pool::{AcquireError, AcquireOptions, Lease, OwnedLease, Pool, Runtime, ThreadRuntime};

use crate::body::Body;
use crate::callbacks::{CallbackError, Callbacks, not_deferred};
use crate::error::{
    CENOTE_EMPTY, CENOTE_ERR_CANCELLED, CENOTE_ERR_TIMEOUT, CENOTE_OK, Fault, boundary,
};
use crate::handle::{self, cenote_pool};
use crate::host::Host;
use crate::loans::cenote_lease;

/// No time limit. A negative time, such as that of a deadline that has passed, counts as 0.
pub const CENOTE_FOREVER: i64 = i64::MAX;

/// The result of an acquire.
type Acquired<T> = Result<T, AcquireError<CallbackError>>;

/// Converts a time limit from C; `None` is no limit. All exported functions use it.
pub(crate) fn limit(timeout_ms: i64) -> Option<Duration> {
    let ms = u64::try_from(timeout_ms).unwrap_or(0);
    (timeout_ms != CENOTE_FOREVER).then(|| Duration::from_millis(ms))
}

/// Acquires a resource: an idle one, a new one if the pool is below its maximum, or the next
/// one released, in the order of arrival. Blocks the calling thread for at most `timeout_ms`
/// milliseconds, creation included. CENOTE_FOREVER sets no limit; with 0 or less the call
/// does not queue. The limit does not interrupt a running callback, so give each callback
/// its own. On the thread that callbacks run on, the call never waits: it returns
/// CENOTE_ERR_WOULD_BLOCK if no resource is available at once. Return the lease with
/// cenote_release or cenote_discard.
///
/// Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE, CENOTE_ERR_CLOSED,
/// CENOTE_ERR_UNAVAILABLE, CENOTE_ERR_TIMEOUT, CENOTE_ERR_CREATE,
/// CENOTE_ERR_WOULD_BLOCK, or CENOTE_ERR_CANCELLED if the host's event loop accepts no
/// more work. After an error `lease` is all zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_acquire(
    pool: *mut cenote_pool,
    timeout_ms: i64,
    lease: *mut cenote_lease,
) -> c_int {
    boundary(|| {
        // SAFETY: NULL, or C's promise that it may be written.
        let lease = unsafe { emptied(lease) }?;
        let body = handle::open(pool)?;
        let limit = limit(timeout_ms);
        let acquired = match (body.elsewhere(), limit) {
            (Some(host), _) => acquire_elsewhere(host, body.pool().clone(), limit)?,
            (None, None) => wait(&body, None, pin!(body.pool().acquire_owned())),
            (None, Some(Duration::ZERO)) => {
                let at_once = at_once(body.pool().acquire_owned());
                let acquired = wait(&body, None, pin!(at_once)).flatten();
                Some(acquired.ok_or_else(|| nothing_at_once(body.pool()))?)
            }
            (None, Some(time)) => wait(&body, limit, pin!(within(body.pool(), time))),
        };
        match acquired {
            Some(Ok(acquired)) => {
                *lease = body.loans().lend(acquired);
                Ok(CENOTE_OK)
            }
            Some(Err(error)) => Err(Fault::of_acquire(&error)),
            None => Err(Fault::would_block()),
        }
    })
}

/// Acquires a resource without queueing: an idle one, or a new one if the pool is below its
/// maximum. Returns CENOTE_EMPTY if the pool is exhausted or closed, its breaker is open, or
/// the back-off after a failed creation is not over. (If the pool has a host, a call on
/// another thread waits until the host's thread has executed it.)
///
/// Returns CENOTE_OK, CENOTE_EMPTY, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE,
/// CENOTE_ERR_CREATE, CENOTE_ERR_CLOSED if the last reference was released, or
/// CENOTE_ERR_CANCELLED if the host's event loop accepts no more work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_try_acquire(
    pool: *mut cenote_pool,
    lease: *mut cenote_lease,
) -> c_int {
    boundary(|| {
        // SAFETY: NULL, or C's promise that it may be written.
        let lease = unsafe { emptied(lease) }?;
        let body = handle::open(pool)?;
        let acquired = match body.elsewhere() {
            Some(host) => {
                let pool = body.pool().clone();
                let acquire = async move { try_acquire(&pool).await };
                Some(elsewhere(host, None, acquire)?)
            }
            None => wait(&body, None, pin!(try_acquire(body.pool()))),
        };
        match acquired {
            Some(Ok(Some(acquired))) => {
                *lease = body.loans().lend(acquired);
                Ok(CENOTE_OK)
            }
            Some(Ok(None)) | None => Ok(CENOTE_EMPTY),
            Some(Err(error)) => Err(Fault::of_acquire(&error)),
        }
    })
}

/// Releases a resource, on any thread. The before_release callback decides whether the pool
/// keeps it; if so, the oldest waiter gets it. A release also works after the pool was closed
/// or its last reference released: then the resource is destroyed. `lease` is all zero
/// afterwards.
///
/// Returns CENOTE_OK, even if the callback rejected the resource; CENOTE_ERR_ARGUMENT,
/// CENOTE_ERR_HANDLE, CENOTE_ERR_FOREIGN, or CENOTE_ERR_NOT_ACQUIRED if the lease was already
/// released or never acquired.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_release(pool: *mut cenote_pool, lease: *mut cenote_lease) -> c_int {
    boundary(|| {
        // SAFETY: C has a lease of the pool, or `take_back` finds that it has none.
        let back = unsafe { take_back(pool, lease) }?;
        // The pool may be destroyed after this.
        drop(back);
        Ok(CENOTE_OK)
    })
}

/// Destroys an acquired resource, for example a broken one, instead of releasing it. The
/// pool may create another. The breaker counts no failure. `lease` is all zero afterwards.
///
/// Returns the same codes as cenote_release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_discard(pool: *mut cenote_pool, lease: *mut cenote_lease) -> c_int {
    boundary(|| {
        // SAFETY: C has a lease of the pool, or `take_back` finds that it has none.
        let back = unsafe { take_back(pool, lease) }?;
        OwnedLease::discard(back);
        Ok(CENOTE_OK)
    })
}

/// Takes the lease that C releases, and zeroes C's copy.
#[inline]
unsafe fn take_back(
    pool: *mut cenote_pool,
    lease: *mut cenote_lease,
) -> Result<OwnedLease<Callbacks>, Fault> {
    // SAFETY: NULL, or C's promise that it may be read and written.
    let lease = unsafe { lease.as_mut() }.ok_or_else(|| Fault::null("lease"))?;
    // SAFETY: the caller's promise.
    let body = unsafe { handle::find(pool) }?;
    let back = body.loans().take_back(lease)?;
    *lease = cenote_lease::NOTHING;
    Ok(back)
}

/// Zeroes the place to which a lease is written.
///
/// # Safety
///
/// `lease` is NULL or writable.
#[inline]
unsafe fn emptied<'a>(lease: *mut cenote_lease) -> Result<&'a mut cenote_lease, Fault> {
    if lease.is_null() {
        return Err(Fault::null("lease"));
    }
    // SAFETY: the caller's promise; what was there may be anything.
    unsafe { lease.write(cenote_lease::NOTHING) };
    // SAFETY: just written.
    Ok(unsafe { &mut *lease })
}

#[cold]
fn acquire_elsewhere(
    host: &Arc<Host>,
    pool: Pool<Callbacks>,
    limit: Option<Duration>,
) -> Result<Option<Acquired<OwnedLease<Callbacks>>>, Fault> {
    let asked = pool.clone();
    let acquire = async move {
        match limit {
            None => Some(asked.acquire_owned().await),
            Some(Duration::ZERO) => at_once(asked.acquire_owned()).await,
            Some(limit) => Some(within(&asked, limit).await),
        }
    };
    match elsewhere(host, limit, acquire)? {
        None => Err(nothing_at_once(&pool)),
        acquired => Ok(acquired),
    }
}

/// Acquires a lease within this time.
pub(crate) async fn within(
    pool: &Pool<Callbacks>,
    limit: Duration,
) -> Acquired<OwnedLease<Callbacks>> {
    let options = AcquireOptions::new().timeout(limit);
    pool.acquire_with(options).await.map(Lease::into_owned)
}

async fn try_acquire(pool: &Pool<Callbacks>) -> Acquired<Option<OwnedLease<Callbacks>>> {
    let acquired = pool.try_acquire().await?;
    Ok(acquired.map(Lease::into_owned))
}

/// Polls a future once; returns an error if it would wait.
pub(crate) async fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    // A cancel here drops the future, which passes its turn to the next waiter.
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[cold]
pub(crate) fn nothing_at_once(pool: &Pool<Callbacks>) -> Fault {
    let text = format!(
        "no resource is available without waiting: {}",
        pool.status()
    );
    Fault::new(CENOTE_ERR_TIMEOUT, text)
}

/// Runs a future on the host's thread while the calling thread waits. If the caller times out
/// first, the host's thread drops the future's result, which releases a lease.
///
/// # Errors
///
/// The call times out, or the host accepts no more work.
pub(crate) fn elsewhere<T: Send + 'static>(
    host: &Arc<Host>,
    limit: Option<Duration>,
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, Fault> {
    let (answer, answered) = mpsc::channel();
    host.spawn(Box::pin(async move {
        let _ = answer.send(future.await);
    }));
    let end = match limit {
        None => answered.recv().map_err(|_| RecvTimeoutError::Disconnected),
        // While the host's event loop runs, its clock decides.
        Some(limit) => answered.recv_timeout(limit.saturating_add(GRACE)),
    };
    end.map_err(|error| match error {
        RecvTimeoutError::Timeout => Fault::new(
            CENOTE_ERR_TIMEOUT,
            format!("timed out after {limit:?}: the host's event loop did not run the call"),
        ),
        RecvTimeoutError::Disconnected => Fault::new(
            CENOTE_ERR_CANCELLED,
            "the host's event loop accepts no more work",
        ),
    })
}

/// The time that a caller waits for the host's thread beyond the time-out of the pool.
const GRACE: Duration = Duration::from_millis(100);

/// Wakes a blocked thread. Does not use `unpark`, and is not cached: in the destructors of
/// thread-specific keys a thread has neither a handle nor thread-local storage.
#[derive(Default)]
struct Wakeup {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Wakeup {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}

impl Wakeup {
    /// Blocks until the wake-up, or until the time is over.
    fn wait(&self, limit: Option<Duration>) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        if !*woken {
            woken = match limit {
                None => self
                    .changed
                    .wait(woken)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(limit) => {
                    let waited = self.changed.wait_timeout(woken, limit);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *woken = false;
    }
}

/// Runs a future on the calling thread and blocks while the future is pending.
/// `None` if the future is pending and this thread must not block.
#[inline]
pub(crate) fn wait<F: Future>(
    body: &Body,
    limit: Option<Duration>,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    // No waker: a future that completes at once needs none, and a pending one is polled again.
    let mut context = Context::from_waker(Waker::noop());
    match future.as_mut().poll(&mut context) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => wait_on(body, limit, future),
    }
}

#[cold]
fn wait_on<F: Future>(
    body: &Body,
    limit: Option<Duration>,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    let clock = ThreadRuntime::new();
    let must_not_block = body.host().is_some() || clock.must_not_block();
    let wakeup = Arc::<Wakeup>::default();
    let waker = Waker::from(Arc::clone(&wakeup));
    let mut left = limit;
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = not_deferred(|| future.as_mut().poll(&mut context)) {
            return Some(output);
        }
        if must_not_block {
            return None;
        }
        match left {
            None => wakeup.wait(None),
            Some(pause) => {
                let began = clock.now();
                wakeup.wait(Some(pause));
                let passed = clock.now().saturating_duration_since(began);
                // After the time limit, poll again at intervals.
                left = Some(pause.saturating_sub(passed).max(Duration::from_millis(1)));
            }
        }
    }
}
