//! Waiting without a thread: an acquire that calls back, once, where callbacks run.

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

/// Is called once for each cenote_acquire_async: with CENOTE_OK and a lease, which it has
/// to give back sooner or later, or with an error and a lease of NULL. The last
/// error of the thread has the error's text then.
pub type cenote_done_fn = Option<
    unsafe extern "C" fn(
        data: *mut c_void,
        pool: *mut cenote_pool,
        code: c_int,
        lease: *const cenote_lease,
    ),
>;

/// Acquires like cenote_acquire without blocking: takes a place in the queue at once, and
/// calls `on_done` exactly once, later, where callbacks run; never inside this call. With
/// a time of 0 or less it takes no place: `on_done` gets what is free at that moment.
/// `waiter` may be NULL; otherwise it is written before `on_done` can run, and
/// cenote_waiter_cancel takes it. (Only a host whose loop takes no more work is told so on
/// the spot: by CENOTE_ERR_CANCELLED, on the thread that finds out.)
///
/// Returns CENOTE_OK, and then `on_done` will be called; CENOTE_ERR_ARGUMENT,
/// CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED, and then it will not.
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

/// Cancels a waiter: its place in the queue, or what it was given already, goes to the
/// next, at once, or as soon as a callback that runs for it has returned. Its `on_done` is
/// called with CENOTE_ERR_CANCELLED.
///
/// Returns CENOTE_OK; CENOTE_ERR_NOT_WAITING if `on_done` was called already or is
/// about to be, or there never was such a waiter; CENOTE_ERR_HANDLE, or
/// CENOTE_ERR_CLOSED if the last reference was given up.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_waiter_cancel(pool: *mut cenote_pool, waiter: u64) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        let found = body.waiters().get(waiter);
        match found.is_some_and(|waiter| waiter.cancel()) {
            true => Ok(CENOTE_OK),
            false => Err(Fault::new(
                CENOTE_ERR_NOT_WAITING,
                "its callback was called already, or there never was such a waiter",
            )),
        }
    })
}

/// What a waiter ends with.
type End = Result<OwnedLease<Callbacks>, Fault>;
/// Whom it tells.
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

/// One who waits. What happens to it is decided under its lock, and done after.
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
    /// Its future is being polled, which may run callbacks.
    Polling,
    /// As above, and somebody cancelled it meanwhile.
    PollingCancelled,
    /// It has what it waited for, and its callback is still to be called.
    Served(End),
    Cancelled,
    Done,
}

impl Waiter {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Cancels it, if its end is not decided yet.
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
        // Passes the place on; may run callbacks, so no lock is held.
        drop(old);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Polls once, unlocked. The end, if there is one now.
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
                // The place goes to the next.
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

/// The task that waits, and calls back where it runs. Dropped before its end, by a host
/// that takes no more work, it calls back all the same.
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

    /// The end of an acquire, unless somebody cancels it at the last moment.
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
        let fault = Fault::new(CENOTE_ERR_CANCELLED, "the host's runtime took no more work");
        let call = || self.finish(Err(fault));
        let _ = catch_unwind(AssertUnwindSafe(call));
    }
}

/// Begins to wait: the place in the queue is taken here, but for another thread than the
/// host's, which has to leave even that to the host.
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
    // Relaxed: only has to be unique. From 1, so that 0 is nobody.
    let id = body.waiters().next.fetch_add(1, Ordering::Relaxed) + 1;
    body.waiters().lock().insert(id, Arc::clone(&waiter));
    // Without any time there is no place to take: all of it happens where callbacks run,
    // or one that is idle would be dropped because its callback cannot be called here.
    let queues = limit != Some(Duration::ZERO);
    if queues && body.host().is_none_or(|host| host.is_here()) {
        // Woken by nobody: the runtime polls it once more in any case.
        let mut context = Context::from_waker(Waker::noop());
        let mut poll = || waiter.poll(&mut context);
        let end = match body.host() {
            None => deferred(poll),
            Some(_) => poll(),
        };
        if let Some(end) = end {
            // Nobody knows its number yet, so nobody has cancelled it.
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

/// Leaves the rest to where callbacks run.
fn hand_over(body: &Body, errand: Errand) {
    match body.host() {
        Some(host) => host.spawn(Box::pin(errand)),
        None => ThreadRuntime::new().spawn(Box::pin(errand)),
    }
}
