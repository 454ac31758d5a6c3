//! Events and their listeners.
//!
//! Without listeners events cost nothing. The first listener of all events sets the flag in the slots' words that
//! makes every acquire and release take the lock. Events are collected there and delivered after the unlock. A listener
//! of rare events sets no flag.

use std::collections::VecDeque;
use std::fmt;
use std::panic::Location;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_core::Stream;

use crate::breaker::BreakerState;
use crate::core::wake;
use crate::error::Phase;
use crate::observe::status::ResourceId;
use crate::sync::Mutex;
use crate::user_code::{Contained, contained, drop_contained};

/// Something that happened in a pool.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A resource was created.
    Created {
        /// The new resource.
        resource: ResourceId,
        /// How long its creation took.
        took: Duration,
    },
    /// A creation failed, panicked or was dropped.
    CreateFailed {
        /// The error with its sources.
        error: Arc<str>,
        /// Whether an acquire received the error; if not, only this event and the log report it.
        delivered: bool,
    },
    /// A lease began.
    Acquired {
        /// The leased resource.
        resource: ResourceId,
        /// Where the acquire was called.
        caller: &'static Location<'static>,
        /// How long it waited.
        waited: Duration,
    },
    /// A lease ended, and its resource stays in the pool.
    Released {
        /// The resource.
        resource: ResourceId,
    },
    /// A resource left the pool.
    Destroyed {
        /// The resource.
        resource: ResourceId,
        /// Why.
        reason: DestroyReason,
        /// The error of its destructor.
        error: Option<Arc<str>>,
    },
    /// A hook failed or panicked; the resource is destroyed.
    HookFailed {
        /// The resource.
        resource: ResourceId,
        /// The hook.
        hook: Hook,
        /// The error with its sources.
        error: Arc<str>,
    },
    /// An acquire began to wait.
    Waiting {
        /// Where it was called.
        caller: &'static Location<'static>,
    },
    /// An acquire timed out.
    TimedOut {
        /// Where it was called.
        caller: &'static Location<'static>,
        /// What it was doing.
        phase: Phase,
    },
    /// A lease exceeds [`leak_warning`](crate::Builder::leak_warning).
    LeakSuspected {
        /// The resource.
        resource: ResourceId,
        /// Where it was acquired.
        caller: &'static Location<'static>,
        /// How long it has lasted, at least.
        held_for: Duration,
    },
    /// The circuit breaker moved.
    BreakerChanged {
        /// The old state.
        from: BreakerState,
        /// The new state.
        to: BreakerState,
    },
    /// The breaker's strategy panicked; its report was lost.
    StrategyPanicked {
        /// The message of the panic.
        error: Arc<str>,
    },
    /// The pool was closed: every acquire fails from now on.
    Closed,
    /// The pool was closed, and its last resource is destroyed.
    Drained,
    /// The stream was read too slowly, and events were dropped.
    Lagged {
        /// The number of dropped events.
        missed: u64,
    },
}

impl Event {
    /// Returns whether every acquire or release may cause such an event.
    fn is_frequent(&self) -> bool {
        matches!(
            self,
            Event::Acquired { .. } | Event::Released { .. } | Event::Waiting { .. }
        )
    }
}

/// A hook.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Hook {
    /// `healthcheck`.
    Healthcheck,
    /// `before_acquire`.
    BeforeAcquire,
    /// `before_release`, or its async half `recycle`.
    BeforeRelease,
    /// The predicate of `retain`.
    Retain,
}

/// Why a resource left the pool.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum DestroyReason {
    /// `before_acquire` refused it.
    AcquireRejected,
    /// `before_release` or its async half refused or retired it, or its holder panicked.
    ReleaseRejected,
    /// The health check refused it.
    Unhealthy,
    /// It was idle for longer than `idle_timeout`.
    IdleTimeout,
    /// It exceeded `max_lifetime`.
    Lifetime,
    /// The predicate of [`retain`](crate::Pool::retain) refused it.
    Evicted,
    /// [`replace_all`](crate::Pool::replace_all) has replaced it.
    Replaced,
    /// [`resize`](crate::Pool::resize) made the pool smaller.
    Shrunk,
    /// Its holder called `discard`.
    Discarded,
    /// Its holder took it out of the pool by `detach`.
    Detached,
    /// A hook on it was dropped before its end, so its state is unknown.
    Abandoned,
    /// The runtime of its I/O has shut down.
    RuntimeGone,
    /// The pool was closed.
    Closed,
}

impl DestroyReason {
    pub(crate) const COUNT: usize = DestroyReason::Closed as usize + 1;
}

type Callback = dyn Fn(&Event) + Send + Sync;

/// Which events a listener gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wanted {
    All,
    /// All but those that acquires and releases cause.
    Rare,
}

struct Listener {
    id: u64,
    wanted: Wanted,
    callback: Arc<Callback>,
}

/// The listeners of one pool.
#[derive(Default)]
pub(crate) struct Listeners {
    list: std::sync::Mutex<Vec<Listener>>,
}

impl Listeners {
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Returns whether anybody wants all events.
    pub(crate) fn any_wants_all(&self) -> bool {
        let list = self.lock();
        list.iter().any(|listener| listener.wanted == Wanted::All)
    }

    pub(crate) fn add(&self, wanted: Wanted, callback: Arc<Callback>) -> u64 {
        let mut list = self.lock();
        let id = list.last().map_or(0, |last| last.id + 1);
        list.push(Listener {
            id,
            wanted,
            callback,
        });
        id
    }

    pub(crate) fn remove(&self, id: u64) {
        // The callback is user code, which is dropped after the unlock.
        let removed = {
            let mut list = self.lock();
            let at = list.iter().position(|listener| listener.id == id);
            at.map(|at| list.remove(at).callback)
        };
        drop_contained(removed);
    }

    /// Calls every listener, in order of registration, outside every lock.
    pub(crate) fn emit(&self, event: &Event) {
        let is_wanted = |wanted| wanted == Wanted::All || !event.is_frequent();
        let callbacks: Vec<_> = self
            .lock()
            .iter()
            .filter(|listener| is_wanted(listener.wanted))
            .map(|listener| Arc::clone(&listener.callback))
            .collect();
        for callback in callbacks {
            // A listener that panics loses this event.
            contained(|| callback(event));
            // This is the last reference, if the listener has removed itself.
            drop_contained(callback);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Listener>> {
        self.list
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        // One by one: a second panic in the drop of the list would abort the process.
        let list = std::mem::take(&mut *self.lock());
        for listener in list {
            drop_contained(listener.callback);
        }
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners").finish_non_exhaustive()
    }
}

/// A pool of any type, as a subscription needs it.
pub(crate) trait Source: Send + Sync {
    fn unsubscribe(&self, id: u64);
}

/// A registered callback. Dropping the subscription removes the callback.
#[must_use = "dropping a subscription removes its callback at once"]
pub struct Subscription {
    pub(crate) source: Weak<dyn Source>,
    pub(crate) id: u64,
}

impl Subscription {
    /// Keeps the callback registered for as long as the pool lives.
    pub fn forever(mut self) {
        self.source = Weak::<Nobody>::new();
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        if let Some(source) = self.source.upgrade() {
            source.unsubscribe(self.id);
        }
    }
}

impl fmt::Debug for Subscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription")
            .field("id", &self.id)
            .finish()
    }
}

struct Nobody;

impl Source for Nobody {
    fn unsubscribe(&self, _: u64) {}
}

/// How many events a stream keeps for a slow reader.
const BACKLOG: usize = 1024;

#[derive(Debug, Default)]
struct Backlog {
    events: VecDeque<Event>,
    missed: u64,
    ended: bool,
    waker: Option<Waker>,
}

/// The events of a pool, as a [`Stream`]. It ends after [`Event::Drained`].
///
/// A reader that falls more than 1024 events behind loses the oldest ones and receives an
/// [`Event::Lagged`] instead.
#[derive(Debug)]
pub struct Events {
    backlog: Arc<Mutex<Backlog>>,
    _subscription: Subscription,
}

impl Events {
    /// Makes a stream with a function that subscribes to the pool.
    pub(crate) fn new(subscribe: impl FnOnce(Arc<Callback>) -> Subscription) -> Self {
        let backlog = Arc::new(Mutex::new(Backlog::default()));
        let sink = Arc::clone(&backlog);
        let subscription = subscribe(Arc::new(move |event| {
            let waker = {
                let mut backlog = sink.lock();
                if backlog.ended {
                    return;
                }
                if backlog.events.len() == BACKLOG {
                    backlog.events.pop_front();
                    backlog.missed += 1;
                }
                backlog.events.push_back(event.clone());
                backlog.ended = matches!(event, Event::Drained);
                backlog.waker.take()
            };
            if let Some(waker) = waker {
                wake(waker);
            }
        }));
        Events {
            backlog,
            _subscription: subscription,
        }
    }

    /// Ends the stream after the events that it has.
    pub(crate) fn end(&self) {
        self.backlog.lock().ended = true;
    }

    /// Returns the next event, or `None` after the pool was closed and drained.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future loses nothing: the event stays for the next call.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Events {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        // Cloned before the lock, and the old one dropped after it: both run the executor's code.
        let waker = Contained::new(cx.waker().clone());
        let mut backlog = self.backlog.lock();
        if backlog.missed > 0 {
            let missed = std::mem::take(&mut backlog.missed);
            return Poll::Ready(Some(Event::Lagged { missed }));
        }
        match backlog.events.pop_front() {
            Some(event) => Poll::Ready(Some(event)),
            None if backlog.ended => Poll::Ready(None),
            None => {
                let old = backlog.waker.replace(waker.into_inner());
                drop(backlog);
                drop_contained(old);
                Poll::Pending
            }
        }
    }
}
