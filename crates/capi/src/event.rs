//! Events: callbacks that report what happens in a pool.

use std::ffi::{CString, c_char, c_int, c_void};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rust_pool::{DestroyReason, Event, Hook, Phase, Subscription};

use crate::body::Body;
use crate::breaker::number;
use crate::callbacks::{Disposal, UserData, cenote_dispose_fn};
use crate::error::{CENOTE_ERR_ARGUMENT, CENOTE_OK, Fault, boundary, c_text};
use crate::handle::{self, Handle, cenote_pool};
use crate::host::Host;

/// A resource was created; `nanos` is the time it took.
pub const CENOTE_EVENT_CREATED: u32 = 1;
/// A creation failed, with `error`.
pub const CENOTE_EVENT_CREATE_FAILED: u32 = 2;
/// A resource was acquired; `nanos` is the time the acquire took.
pub const CENOTE_EVENT_ACQUIRED: u32 = 3;
/// A lease was released, and the pool kept its resource.
pub const CENOTE_EVENT_RELEASED: u32 = 4;
/// A resource left the pool, for `reason`; `error` is the error of its destroy callback.
pub const CENOTE_EVENT_DESTROYED: u32 = 5;
/// The callback `hook` failed on a resource, with `error`; the resource is destroyed.
pub const CENOTE_EVENT_HOOK_FAILED: u32 = 6;
/// An acquire entered the queue.
pub const CENOTE_EVENT_WAITING: u32 = 7;
/// An acquire timed out, in `phase`.
pub const CENOTE_EVENT_TIMED_OUT: u32 = 8;
/// A lease is older than leak_warning_ms; `nanos` is its age.
pub const CENOTE_EVENT_LEAK_SUSPECTED: u32 = 9;
/// The circuit breaker changed its state from `from` to `to`.
pub const CENOTE_EVENT_BREAKER_CHANGED: u32 = 10;
/// The pool was closed: every further acquire fails.
pub const CENOTE_EVENT_CLOSED: u32 = 11;
/// The pool is closed, and its last resource was destroyed.
pub const CENOTE_EVENT_DRAINED: u32 = 12;

/// The before_acquire callback rejected the resource.
pub const CENOTE_REASON_ACQUIRE_REJECTED: u32 = 1;
/// The before_release callback rejected the resource.
pub const CENOTE_REASON_RELEASE_REJECTED: u32 = 2;
/// The healthcheck callback rejected the resource.
pub const CENOTE_REASON_UNHEALTHY: u32 = 3;
/// The resource exceeded idle_timeout_ms.
pub const CENOTE_REASON_IDLE_TIMEOUT: u32 = 4;
/// The resource exceeded max_lifetime_ms.
pub const CENOTE_REASON_LIFETIME: u32 = 5;
/// cenote_pool_replace_all replaced the resource.
pub const CENOTE_REASON_REPLACED: u32 = 6;
/// cenote_pool_resize made the pool smaller.
pub const CENOTE_REASON_SHRUNK: u32 = 7;
/// The holder called cenote_discard.
pub const CENOTE_REASON_DISCARDED: u32 = 8;
/// The acquire was cancelled during before_acquire, so the state of the resource is unknown.
pub const CENOTE_REASON_ABANDONED: u32 = 9;
/// The pool was closed.
pub const CENOTE_REASON_CLOSED: u32 = 10;

/// The healthcheck callback.
pub const CENOTE_HOOK_HEALTHCHECK: u32 = 1;
/// The before_acquire callback.
pub const CENOTE_HOOK_BEFORE_ACQUIRE: u32 = 2;
/// The before_release callback.
pub const CENOTE_HOOK_BEFORE_RELEASE: u32 = 3;

/// Waiting in the queue.
pub const CENOTE_PHASE_WAITING: u32 = 1;
/// Waiting for a creation that the acquire started.
pub const CENOTE_PHASE_CREATING: u32 = 2;
/// Waiting for the before_acquire callback.
pub const CENOTE_PHASE_CHECKING: u32 = 3;

/// An event. Fields that its kind does not use are zero or NULL. Valid only during the
/// callback.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct cenote_event {
    /// The size of this struct in this version of the library.
    pub size: usize,
    /// One of CENOTE_EVENT_*.
    pub kind: u32,
    /// Why a resource left the pool: one of CENOTE_REASON_*.
    pub reason: u32,
    /// Which callback failed: one of CENOTE_HOOK_*.
    pub hook: u32,
    /// The phase of an acquire: one of CENOTE_PHASE_*.
    pub phase: u32,
    /// The breaker's former state: one of CENOTE_BREAKER_*.
    pub from: u32,
    /// The breaker's new state: one of CENOTE_BREAKER_*.
    pub to: u32,
    /// The number of the resource; the first one of a pool is 1.
    pub resource: u64,
    /// A duration in nanoseconds.
    pub nanos: u64,
    /// The text of the error.
    pub error: *const c_char,
}

/// Called for every event. Must not block; may call functions of the pool.
pub type cenote_event_fn = Option<
    unsafe extern "C" fn(data: *mut c_void, pool: *mut cenote_pool, event: *const cenote_event),
>;

/// Adds a callback for the events of a pool. It runs on the thread that causes the event, or
/// on the host's thread if there is one. `dispose` may be NULL; it is called with `data` after
/// the last call of `callback`. While a callback is registered, acquire and release are slower.
///
/// Returns CENOTE_OK, and writes the number of the callback if `id` is not NULL; else
/// CENOTE_ERR_ARGUMENT, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_event_add_callback(
    pool: *mut cenote_pool,
    callback: cenote_event_fn,
    data: *mut c_void,
    dispose: cenote_dispose_fn,
    id: *mut u64,
) -> c_int {
    boundary(|| {
        if callback.is_none() {
            return Err(Fault::null("callback"));
        }
        let body = handle::open(pool)?;
        let number = body.listeners().add(Listener {
            id: 0,
            callback,
            data: UserData(data),
            dispose,
            host: body.host().cloned(),
        });
        // SAFETY: NULL, or C's promise that it may be written.
        if let Some(id) = unsafe { id.as_mut() } {
            *id = number;
        }
        body.listen();
        Ok(CENOTE_OK)
    })
}

/// Removes an event callback: no new call starts. A call may still be running on another
/// thread; the library calls `dispose` when none is.
///
/// Returns CENOTE_OK, CENOTE_ERR_ARGUMENT if there is no such callback,
/// CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_event_del_callback(pool: *mut cenote_pool, id: u64) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        if !body.listeners().remove(id) {
            let text = format!("there is no event callback {id}");
            return Err(Fault::new(CENOTE_ERR_ARGUMENT, text));
        }
        body.listen();
        Ok(CENOTE_OK)
    })
}

/// Resumes events after cenote_event_stop. A new pool reports events.
///
/// Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_event_start(pool: *mut cenote_pool) -> c_int {
    switch(pool, true)
}

/// Suspends events: the callbacks stay registered and are not called. Suspended callbacks do
/// not slow the pool down.
///
/// Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_event_stop(pool: *mut cenote_pool) -> c_int {
    switch(pool, false)
}

/// Removes all event callbacks, as the end of a pool also does.
///
/// Returns CENOTE_OK, CENOTE_ERR_HANDLE or CENOTE_ERR_CLOSED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cenote_event_dispose(pool: *mut cenote_pool) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        body.listeners().dispose();
        body.listen();
        Ok(CENOTE_OK)
    })
}

fn switch(pool: *mut cenote_pool, on: bool) -> c_int {
    boundary(|| {
        let body = handle::open(pool)?;
        body.listeners().lock().stopped = !on;
        body.listen();
        Ok(CENOTE_OK)
    })
}

/// One callback.
struct Listener {
    id: u64,
    callback: cenote_event_fn,
    data: UserData,
    dispose: cenote_dispose_fn,
    host: Option<Arc<Host>>,
}

impl Drop for Listener {
    fn drop(&mut self) {
        let disposal = Disposal {
            dispose: self.dispose,
            data: self.data,
        };
        disposal.at(self.host.take());
    }
}

/// The callbacks of a pool, and whether they are called.
pub(crate) struct Listeners {
    handle: Handle,
    host: Option<Arc<Host>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    list: Vec<Arc<Listener>>,
    last: u64,
    stopped: bool,
    /// The subscription to the pool's events, while there are callbacks to call.
    subscription: Option<Subscription>,
}

impl Listeners {
    pub(crate) fn new(handle: Handle, host: Option<Arc<Host>>) -> Self {
        Listeners {
            handle,
            host,
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, mut listener: Listener) -> u64 {
        let mut state = self.lock();
        state.last += 1;
        listener.id = state.last;
        state.list.push(Arc::new(listener));
        state.last
    }

    fn remove(&self, id: u64) -> bool {
        let removed = {
            let mut state = self.lock();
            let at = state.list.iter().position(|listener| listener.id == id);
            at.map(|at| state.list.remove(at))
        };
        // Dropped after the lock: this runs C's code.
        let found = removed.is_some();
        drop(removed);
        found
    }

    /// Removes all callbacks.
    pub(crate) fn dispose(&self) {
        let removed = mem::take(&mut self.lock().list);
        drop(removed);
    }

    /// Calls all callbacks in the order of registration, without holding a lock.
    fn tell(self: &Arc<Self>, event: &Event) {
        let Some(told) = Told::new(event) else { return };
        match self.host.as_ref().filter(|host| !host.is_here()) {
            None => self.tell_here(&told),
            Some(host) => {
                let this = Arc::clone(self);
                host.spawn(Box::pin(async move { this.tell_here(&told) }));
            }
        }
    }

    fn tell_here(&self, told: &Told) {
        let event = told.for_c();
        // Looks each callback up when its turn comes: a callback removed meanwhile is not called,
        // and one added meanwhile does not get this event.
        let newest = self.lock().last;
        let mut told = 0;
        while let Some(listener) = self.after(told).filter(|next| next.id <= newest) {
            told = listener.id;
            if let Some(callback) = listener.callback {
                // SAFETY: C's function with C's data, and an event that is valid here.
                unsafe { callback(listener.data.0, self.handle.to_c(), &raw const event) };
            }
        }
    }

    /// Returns the next callback, in the order of registration.
    fn after(&self, id: u64) -> Option<Arc<Listener>> {
        let state = self.lock();
        let mut list = state.list.iter().filter(|_| !state.stopped);
        list.find(|listener| listener.id > id).cloned()
    }
}

impl Body {
    /// Subscribes to the pool's events if there are callbacks to call, else unsubscribes.
    fn listen(&self) {
        let listeners = self.listeners();
        let mut state = listeners.lock();
        let wanted = !state.stopped && !state.list.is_empty();
        let old = match (wanted, state.subscription.is_some()) {
            (true, false) => {
                let told = Arc::clone(listeners);
                let subscription = self.pool().on_event(move |event| told.tell(event));
                state.subscription.replace(subscription)
            }
            (false, true) => state.subscription.take(),
            _ => None,
        };
        drop(state);
        drop(old);
    }
}

/// An event that owns its error text.
struct Told {
    event: cenote_event,
    error: Option<CString>,
}

// SAFETY: the pointer in `event` is NULL until `for_c`, which makes a copy.
unsafe impl Send for Told {}
// SAFETY: as above.
unsafe impl Sync for Told {}

impl Told {
    /// Converts an event for C; `None` for the kinds that the C API does not have.
    fn new(event: &Event) -> Option<Self> {
        let mut error = None;
        let mut told = cenote_event {
            size: mem::size_of::<cenote_event>(),
            kind: 0,
            reason: 0,
            hook: 0,
            phase: 0,
            from: 0,
            to: 0,
            resource: 0,
            nanos: 0,
            error: std::ptr::null(),
        };
        told.kind = match event {
            Event::Created { resource, took } => {
                told.resource = resource.get();
                told.nanos = nanos(*took);
                CENOTE_EVENT_CREATED
            }
            Event::CreateFailed { error: text, .. } => {
                error = Some(c_text(text));
                CENOTE_EVENT_CREATE_FAILED
            }
            Event::Acquired {
                resource, waited, ..
            } => {
                told.resource = resource.get();
                told.nanos = nanos(*waited);
                CENOTE_EVENT_ACQUIRED
            }
            Event::Released { resource } => {
                told.resource = resource.get();
                CENOTE_EVENT_RELEASED
            }
            Event::Destroyed {
                resource,
                reason: why,
                error: text,
            } => {
                told.resource = resource.get();
                told.reason = reason(*why);
                error = text.as_deref().map(c_text);
                CENOTE_EVENT_DESTROYED
            }
            Event::HookFailed {
                resource,
                hook: which,
                error: text,
            } => {
                told.resource = resource.get();
                told.hook = hook(*which);
                error = Some(c_text(text));
                CENOTE_EVENT_HOOK_FAILED
            }
            Event::Waiting { .. } => CENOTE_EVENT_WAITING,
            Event::TimedOut { phase: at, .. } => {
                told.phase = phase(*at);
                CENOTE_EVENT_TIMED_OUT
            }
            Event::LeakSuspected {
                resource, held_for, ..
            } => {
                told.resource = resource.get();
                told.nanos = nanos(*held_for);
                CENOTE_EVENT_LEAK_SUSPECTED
            }
            Event::BreakerChanged { from, to } => {
                told.from = number(*from);
                told.to = number(*to);
                CENOTE_EVENT_BREAKER_CHANGED
            }
            Event::Closed => CENOTE_EVENT_CLOSED,
            Event::Drained => CENOTE_EVENT_DRAINED,
            // Panics of Rust managers, and streams: the C API has neither.
            _ => return None,
        };
        Some(Told { event: told, error })
    }

    /// Returns the event for C, valid as long as `self`.
    fn for_c(&self) -> cenote_event {
        let error = self
            .error
            .as_ref()
            .map_or(std::ptr::null(), |error| error.as_ptr());
        cenote_event {
            error,
            ..self.event
        }
    }
}

fn nanos(time: Duration) -> u64 {
    // Overflows after 584 years.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn reason(reason: DestroyReason) -> u32 {
    match reason {
        DestroyReason::AcquireRejected => CENOTE_REASON_ACQUIRE_REJECTED,
        DestroyReason::ReleaseRejected => CENOTE_REASON_RELEASE_REJECTED,
        DestroyReason::Unhealthy => CENOTE_REASON_UNHEALTHY,
        DestroyReason::IdleTimeout => CENOTE_REASON_IDLE_TIMEOUT,
        DestroyReason::Lifetime => CENOTE_REASON_LIFETIME,
        DestroyReason::Replaced => CENOTE_REASON_REPLACED,
        DestroyReason::Shrunk => CENOTE_REASON_SHRUNK,
        DestroyReason::Discarded => CENOTE_REASON_DISCARDED,
        DestroyReason::Abandoned => CENOTE_REASON_ABANDONED,
        DestroyReason::Closed => CENOTE_REASON_CLOSED,
        // The C API neither detaches resources nor has a runtime that drops them.
        _ => 0,
    }
}

fn hook(hook: Hook) -> u32 {
    match hook {
        Hook::Healthcheck => CENOTE_HOOK_HEALTHCHECK,
        Hook::BeforeAcquire => CENOTE_HOOK_BEFORE_ACQUIRE,
        Hook::BeforeRelease => CENOTE_HOOK_BEFORE_RELEASE,
        _ => 0,
    }
}

fn phase(phase: Phase) -> u32 {
    match phase {
        Phase::Waiting => CENOTE_PHASE_WAITING,
        Phase::Creating => CENOTE_PHASE_CREATING,
        Phase::Checking => CENOTE_PHASE_CHECKING,
        _ => 0,
    }
}
