//! Asynchronous acquires: they block no thread and call back once, where callbacks run.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::future::Future;
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use rust_pool::{OwnedLease, Pool, Runtime, ThreadRuntime};

use crate::acquire::{at_once, limit, nothing_at_once, within};
use crate::body::Body;
use crate::callbacks::{Callbacks, UserData, deferred};
use crate::error::{
    CENOTE_ERR_CANCELLED, CENOTE_ERR_NOT_WAITING, CENOTE_OK, Fault, boundary, remember,
};
use crate::handle::{self, cenote_pool};
use crate::loans::cenote_lease;

/// Called once for each cenote_acquire_async: with CENOTE_OK and a lease, which the program must
/// release later, or with an error and a NULL lease. cenote_last_error_text then returns the
/// error's text.
pub type cenote_done_fn = Option<
    unsafe extern "C" fn(
        data: *mut c_void,
        pool: *mut cenote_pool,
        code: c_int,
        lease: *const cenote_lease,
    ),
>;

/// Acquires like cenote_acquire, but does not block: the acquire joins the queue at once, and
/// `on_done` is called exactly once, later, on the thread that callbacks run on, never inside
/// this call. With a time of 0 or less the acquire does not queue: `on_done` gets a resource
/// that is available when it runs. `waiter` may be NULL; otherwise it is written before
/// `on_done` can run; pass it to cenote_waiter_cancel. (Exception: if the host's event loop
/// accepts no more work, the thread that detects this calls `on_done` at once, with
/// CENOTE_ERR_CANCELLED.)
///
/// Returns CENOTE_OK, and then `on_done` will be called; CENOTE_ERR_ARGUMENT,
/// CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED, and then `on_done` will not be called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_acquire_async(
    pool: *mut cenote_pool,
    timeout_ms: i64,
    on_done: cenote_done_fn,
    data: *mut c_void,
    waiter: *mut u64,
) -> c_int {
    boundary(|| {
        let on_done = on_done.ok_or_else(|| Fault::null("on_done"))?;
        let body = handle::open(pool)?;
        let (handle, data) = (body.handle(), UserData(data));
        let done = move |body: &Body, end: End| {
            let data = data;
            let lent = match end {
                Ok(lease) => Ok(body.loans().lend(lease)),
                Err(fault) => Err(fault),
            };
            let (code, lease) = match &lent {
                Ok(lease) => (CENOTE_OK, std::ptr::from_ref(lease)),
                Err(fault) => {
                    remember(fault);
                    (fault.code, std::ptr::null())
                }
            };
            // SAFETY: C's function with C's data.
            unsafe { on_done(data.0, handle.to_c(), code, lease) };
        };
        let (id, task) = enqueue(&body, limit(timeout_ms), Box::new(done));
        // SAFETY: NULL, or C's promise that it may be written.
        if let Some(waiter) = unsafe { waiter.as_mut() } {
            *waiter = id;
        }
        hand_over(&body, task);
        Ok(CENOTE_OK)
    })
}

/// Cancels a waiter. Its turn, or the resource it already has, goes to the next waiter at once,
/// or when the callback that runs for it returns. Its `on_done` is called with
/// CENOTE_ERR_CANCELLED.
///
/// Returns CENOTE_OK; CENOTE_ERR_NOT_WAITING if `on_done` was already called or is about to be,
/// or the waiter never existed; CENOTE_ERR_HANDLE, or CENOTE_ERR_CLOSED if the last reference was
/// released.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_waiter_cancel(pool: *mut cenote_pool, waiter: u64) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        let found = body.waiters().get(waiter);
        match found.is_some_and(|waiter| waiter.cancel()) {
            true => Ok(CENOTE_OK),
            false => Err(Fault::new(
                CENOTE_ERR_NOT_WAITING,
                "the callback of the waiter was already called, or the waiter never existed",
            )),
        }
    })
}

/// The result of a waiter.
type End = Result<OwnedLease<Callbacks>, Fault>;
/// The callback of a waiter.
type Done = Box<dyn FnOnce(&Body, End) + Send>;
type Waiting = Pin<Box<dyn Future<Output = End> + Send>>;

/// The waiters of a pool whose callbacks have not been called.
#[derive(Default)]
pub(crate) struct Waiters {
    list: Mutex<HashMap<u64, Arc<Waiter>>>,
    next: AtomicU64,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Arc<Waiter>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, id: u64) -> Option<Arc<Waiter>> {
        self.lock().get(&id).cloned()
    }
}

/// One waiter. Its state changes under its lock; the effects follow after the unlock.
struct Waiter {
    state: Mutex<State>,
}

struct State {
    stage: Stage,
    /// Wakes the task that calls back.
    waker: Option<Waker>,
}

enum Stage {
    Waiting(Waiting),
    /// The future is being polled, which may run callbacks.
    Polling,
    /// As above, and the waiter was cancelled meanwhile.
    PollingCancelled,
    /// The acquire is complete, and the callback has not been called.
    Served(End),
    Cancelled,
    Done,
}

impl Waiter {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels the waiter, if its result is not decided yet.
    fn cancel(&self) -> bool {
        let (old, waker) = {
            let mut state = self.lock();
            let next = match state.stage {
                Stage::Waiting(_) | Stage::Served(_) => Stage::Cancelled,
                Stage::Polling => Stage::PollingCancelled,
                Stage::PollingCancelled | Stage::Cancelled | Stage::Done => return false,
            };
            let old = mem::replace(&mut state.stage, next);
            (old, state.waker.take())
        };
        // Passes the turn on. This may run callbacks, so no lock is held.
        drop(old);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Polls the future once without the lock, and returns its result if it is ready.
    fn poll(&self, cx: &mut Context<'_>) -> Option<End> {
        let mut waiting = {
            let mut state = self.lock();
            match mem::replace(&mut state.stage, Stage::Polling) {
                Stage::Waiting(waiting) => waiting,
                other => {
                    state.stage = other;
                    return None;
                }
            }
        };
        let polled = waiting.as_mut().poll(cx);
        let mut state = self.lock();
        match (&state.stage, polled) {
            (Stage::PollingCancelled, polled) => {
                state.stage = Stage::Cancelled;
                drop(state);
                // The turn goes to the next waiter.
                drop(polled);
                drop(waiting);
                None
            }
            (_, Poll::Pending) => {
                state.stage = Stage::Waiting(waiting);
                None
            }
            (_, Poll::Ready(end)) => {
                state.stage = Stage::Polling;
                drop(state);
                drop(waiting);
                Some(end)
            }
        }
    }
}

/// The task that waits and then calls back. If a host that accepts no more work drops it early,
/// it calls back on drop.
struct Errand {
    /// Keeps the pool's body alive; the pool itself may be closed.
    pool: Pool<Callbacks>,
    waiter: Arc<Waiter>,
    id: u64,
    done: Option<Done>,
}

impl Errand {
    fn finish(&mut self, end: End) {
        let Some(done) = self.done.take() else {
            return;
        };
        self.waiter.lock().stage = Stage::Done;
        let body = &self.pool.manager().body;
        body.waiters().lock().remove(&self.id);
        done(body, end);
    }

    /// Returns the result of the acquire, unless the waiter was cancelled meanwhile.
    fn served(&mut self, end: End) {
        let cancelled = {
            let mut state = self.waiter.lock();
            let cancelled = matches!(state.stage, Stage::PollingCancelled | Stage::Cancelled);
            state.stage = Stage::Done;
            cancelled
        };
        let end = match cancelled {
            true => {
                drop(end);
                Err(cancelled_fault())
            }
            false => end,
        };
        self.finish(end);
    }
}

fn cancelled_fault() -> Fault {
    Fault::new(CENOTE_ERR_CANCELLED, "the waiter was cancelled")
}

impl Future for Errand {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let waiter = Arc::clone(&this.waiter);
        waiter.lock().waker = Some(cx.waker().clone());
        if let Some(end) = waiter.poll(cx) {
            this.served(end);
            return Poll::Ready(());
        }
        let served = {
            let mut state = waiter.lock();
            match mem::replace(&mut state.stage, Stage::Polling) {
                Stage::Served(end) => Some(end),
                other => {
                    let over = matches!(other, Stage::Cancelled | Stage::Done);
                    state.stage = other;
                    if !over {
                        return Poll::Pending;
                    }
                    None
                }
            }
        };
        match served {
            Some(end) => this.served(end),
            None => this.finish(Err(cancelled_fault())),
        }
        Poll::Ready(())
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if self.done.is_none() {
            return;
        }
        let left = mem::replace(&mut self.waiter.lock().stage, Stage::Done);
        drop(left);
        let fault = Fault::new(
            CENOTE_ERR_CANCELLED,
            "the host's event loop accepts no more work",
        );
        let call = || self.finish(Err(fault));
        let _ = catch_unwind(AssertUnwindSafe(call));
    }
}

/// Starts a waiter. It joins the queue here, except on a thread other than the host's: then the
/// host's thread does that.
fn enqueue(body: &Body, limit: Option<Duration>, done: Done) -> (u64, Errand) {
    let pool = body.pool().clone();
    let waiting: Waiting = {
        let pool = pool.clone();
        Box::pin(async move {
            let acquired = match limit {
                None => pool.acquire_owned().await,
                Some(Duration::ZERO) => match at_once(pool.acquire_owned()).await {
                    Some(acquired) => acquired,
                    None => return Err(nothing_at_once(&pool)),
                },
                Some(limit) => within(&pool, limit).await,
            };
            acquired.map_err(|error| Fault::of_acquire(&error))
        })
    };
    let waiter = Arc::new(Waiter {
        state: Mutex::new(State {
            stage: Stage::Waiting(waiting),
            waker: None,
        }),
    });
    // Relaxed: only has to be unique. Starts at 1, so that 0 names no waiter.
    let id = body.waiters().next.fetch_add(1, Ordering::Relaxed) + 1;
    body.waiters().lock().insert(id, Arc::clone(&waiter));
    // With a time limit of 0 the acquire does not queue, so all of it runs where callbacks run.
    // Here before_acquire could not run, and an idle resource would be lost.
    let queues = limit != Some(Duration::ZERO);
    if queues && body.host().is_none_or(|host| host.is_here()) {
        // No waker: the runtime polls the future again in any case.
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = || waiter.poll(&mut context);
        let end = match body.host() {
            None => deferred(poll),
            Some(_) => poll(),
        };
        if let Some(end) = end {
            // No caller has the waiter's number yet, so it cannot be cancelled.
            waiter.lock().stage = Stage::Served(end);
        }
    }
    let errand = Errand {
        pool,
        waiter,
        id,
        done: Some(done),
    };
    (id, errand)
}

/// Hands the waiter to the runtime, which polls it where callbacks run.
fn hand_over(body: &Body, errand: Errand) {
    match body.host() {
        Some(host) => host.spawn(Box::pin(errand)),
        None => ThreadRuntime::new().spawn(Box::pin(errand)),
    }
}
