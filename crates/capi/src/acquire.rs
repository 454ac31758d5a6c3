//! Acquiring and giving back, on the calling thread.

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

/// Waits for as long as it takes. No other time does: a negative one, as that of a deadline that has
/// passed, is over already.
pub const CENOTE_FOREVER: i64 = i64::MAX;

/// What an acquire ends with.
type Acquired<T> = Result<T, AcquireError<CallbackError>>;

/// Returns how long a call may take; `None` is for ever. The one reader of times that C gives.
pub(crate) fn limit(timeout_ms: i64) -> Option<Duration> {
    let ms = u64::try_from(timeout_ms).unwrap_or(0);
    (timeout_ms != CENOTE_FOREVER).then(|| Duration::from_millis(ms))
}

/// Acquires a resource: an idle one, a new one if there is room, or the one that comes
/// back first, in the order of arrival. Blocks the calling thread only, for at most
/// `timeout_ms` milliseconds, creation included (a callback that runs is not interrupted,
/// so give it a time limit of its own); CENOTE_FOREVER is without limit, and 0 or less
/// does not queue at all. On the thread that callbacks run on it never waits: what is not
/// to be had at once is CENOTE_ERR_WOULD_BLOCK. Give the lease back by cenote_release or
/// cenote_discard.
///
/// Returns CENOTE_OK, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE, CENOTE_ERR_CLOSED,
/// CENOTE_ERR_UNAVAILABLE, CENOTE_ERR_TIMEOUT, CENOTE_ERR_CREATE,
/// CENOTE_ERR_WOULD_BLOCK, or CENOTE_ERR_CANCELLED if a host's loop takes no more work;
/// `lease` is all zero then.
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

/// Acquires a resource without waiting for others: an idle one, or a new one if there is
/// room. Returns CENOTE_EMPTY if the pool is exhausted, closed, its breaker open, or
/// no creation is tried so soon after one that failed. (On another thread than a host's
/// own, it waits for the host to answer.)
///
/// Returns CENOTE_OK, CENOTE_EMPTY, CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE,
/// CENOTE_ERR_CREATE, CENOTE_ERR_CLOSED if the last reference was given up, or
/// CENOTE_ERR_CANCELLED if a host's loop takes no more work.
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

/// Gives a resource back, from any thread: the before_release callback decides whether it
/// stays, and whoever is first in the queue gets it. Also when the pool was closed, or
/// its last reference given up: then the resource is destroyed. `lease` is all zero
/// afterwards.
///
/// Returns CENOTE_OK, also if the callback refused the resource; CENOTE_ERR_ARGUMENT,
/// CENOTE_ERR_HANDLE, CENOTE_ERR_FOREIGN, or CENOTE_ERR_NOT_ACQUIRED if it was given
/// back already or never acquired.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_release(pool: *mut cenote_pool, lease: *mut cenote_lease) -> c_int {
    boundary(|| {
        // SAFETY: C has a lease of the pool, or this finds out.
        let back = unsafe { take_back(pool, lease) }?;
        // The pool may be gone after this.
        drop(back);
        Ok(CENOTE_OK)
    })
}

/// Gives a resource back that is known to be broken: it is destroyed, and its place is
/// free. Nothing is reported to the breaker. `lease` is all zero afterwards.
///
/// Returns as cenote_release.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_discard(pool: *mut cenote_pool, lease: *mut cenote_lease) -> c_int {
    boundary(|| {
        // SAFETY: C has a lease of the pool, or this finds out.
        let back = unsafe { take_back(pool, lease) }?;
        OwnedLease::discard(back);
        Ok(CENOTE_OK)
    })
}

/// A lease that C gives back, which is all zero afterwards.
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

/// Where a lease goes, emptied.
///
/// # Safety
///
/// NULL, or it may be written.
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

/// What a future gives without waiting.
pub(crate) async fn at_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    // A cancel here drops the future, which passes its place on.
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

#[cold]
pub(crate) fn nothing_at_once(pool: &Pool<Callbacks>) -> Fault {
    let text = format!("nothing is to be had without waiting: {}", pool.status());
    Fault::new(CENOTE_ERR_TIMEOUT, text)
}

/// Runs a future on the host's thread, while this one waits. If this one's time is over
/// first, what the future gives is dropped there, and so a lease is given back.
///
/// # Errors
///
/// The time is over, or the host takes no more work.
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
        // The host's own clock decides, if its loop runs.
        Some(limit) => answered.recv_timeout(limit.saturating_add(GRACE)),
    };
    end.map_err(|error| match error {
        RecvTimeoutError::Timeout => Fault::new(
            CENOTE_ERR_TIMEOUT,
            format!("timed out after {limit:?}: the host's loop did not answer"),
        ),
        RecvTimeoutError::Disconnected => {
            Fault::new(CENOTE_ERR_CANCELLED, "the host's runtime took no more work")
        }
    })
}

/// How much longer than the pool one waits for a host that may not answer.
const GRACE: Duration = Duration::from_millis(100);

/// Wakes a thread that waits. Not by unparking it, and not kept for the next time: a thread
/// that is about to end, and runs the destructors of its keys, has neither a handle nor a
/// place to keep it.
#[derive(Default)]
struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_one();
    }
}

impl Bell {
    /// Waits until it rings, at most for so long.
    fn wait(&self, limit: Option<Duration>) {
        let mut rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        if !*rung {
            rung = match limit {
                None => self
                    .changed
                    .wait(rung)
                    .unwrap_or_else(PoisonError::into_inner),
                Some(limit) => {
                    let waited = self.changed.wait_timeout(rung, limit);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        *rung = false;
    }
}

/// Runs a future on the present thread, which sleeps while there is nothing to do.
/// `None`: it would have to, and must not.
#[inline]
pub(crate) fn wait<F: Future>(
    body: &Body,
    limit: Option<Duration>,
    mut future: Pin<&mut F>,
) -> Option<F::Output> {
    // Woken by nobody: what need not wait needs no waker, and what does is polled again.
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
    let bell = Arc::<Bell>::default();
    let waker = Waker::from(Arc::clone(&bell));
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
            None => bell.wait(None),
            Some(pause) => {
                let began = clock.now();
                bell.wait(Some(pause));
                let passed = clock.now().saturating_duration_since(began);
                // Once it is over, look again every now and then.
                left = Some(pause.saturating_sub(passed).max(Duration::from_millis(1)));
            }
        }
    }
}
