//! Events: what the pool tells those who listen, and the listeners themselves.
//!
//! Nobody listening costs nothing: the first listener sets the flag in the
//! slots' words that sends every acquire and release by the lock, where events
//! are noted; they are delivered after it is released.

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
    /// A resource was made.
    Created {
        /// The new resource.
        resource: ResourceId,
        /// How long its creation took.
        took: Duration,
    },
    /// A creation failed, panicked or was abandoned.
    CreateFailed {
        /// The error with its sources.
        error: Arc<str>,
        /// Whether an acquire got it; if not, this event is its only address.
        delivered: bool,
    },
    /// A lease was handed out.
    Acquired {
        /// The leased resource.
        resource: ResourceId,
        /// Where the acquire was called.
        caller: &'static Location<'static>,
        /// How long it waited.
        waited: Duration,
    },
    /// A lease came back, and its resource stays.
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
        /// What its destructor complained of.
        error: Option<Arc<str>>,
    },
    /// A hook failed or panicked; the resource is destroyed.
    HookFailed {
        /// The resource.
        resource: ResourceId,
        /// Which hook.
        hook: Hook,
        /// The error with its sources.
        error: Arc<str>,
    },
    /// An acquire began to wait.
    Waiting {
        /// Where it was called.
        caller: &'static Location<'static>,
    },
    /// An acquire ran out of time.
    TimedOut {
        /// Where it was called.
        caller: &'static Location<'static>,
        /// What it was doing.
        phase: Phase,
    },
    /// A lease has been out for longer than the leak warning allows.
    LeakSuspected {
        /// The resource.
        resource: ResourceId,
        /// Where it was acquired.
        caller: &'static Location<'static>,
        /// For how long at least.
        held_for: Duration,
    },
    /// The circuit breaker moved.
    BreakerChanged {
        /// From this state.
        from: BreakerState,
        /// To this one.
        to: BreakerState,
    },
    /// The breaker's strategy panicked; its report was lost.
    StrategyPanicked {
        /// What it said.
        error: Arc<str>,
    },
    /// The pool was closed: nobody gets a lease any more.
    Closed,
    /// The pool was closed and its last resource is gone.
    Drained,
    /// This stream was read too slowly, and so many events were dropped.
    Lagged {
        /// How many.
        missed: u64,
    },
}

/// Which of the hooks.
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
    /// `before_release` refused or retired it, or its async half did; also because its holder panicked.
    ReleaseRejected,
    /// The health check refused it.
    Unhealthy,
    /// It was idle for too long.
    IdleTimeout,
    /// It lived for too long.
    Lifetime,
    /// The predicate of [`retain`](crate::Pool::retain) refused it.
    Evicted,
    /// [`replace_all`](crate::Pool::replace_all) has put a new one in its place.
    Replaced,
    /// The pool became smaller.
    Shrunk,
    /// Its holder called `discard`.
    Discarded,
    /// Its holder took it out of the pool with `detach`.
    Detached,
    /// Whoever ran a hook on it was dropped half-way, so its state is unknown.
    Abandoned,
    /// The runtime that its I/O lived on is gone.
    RuntimeGone,
    /// The pool was closed.
    Closed,
}

impl DestroyReason {
    pub(crate) const COUNT: usize = DestroyReason::Closed as usize + 1;
}

type Callback = dyn Fn(&Event) + Send + Sync;

/// The listeners of one pool.
#[derive(Default)]
pub(crate) struct Listeners {
    list: std::sync::Mutex<Vec<(u64, Arc<Callback>)>>,
}

impl Listeners {
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    pub(crate) fn add(&self, callback: Arc<Callback>) -> u64 {
        let mut list = self.lock();
        let id = list.last().map_or(0, |(id, _)| id + 1);
        list.push((id, callback));
        id
    }

    pub(crate) fn remove(&self, id: u64) {
        // The callback is user code: it is dropped after the lock.
        let removed = {
            let mut list = self.lock();
            let at = list.iter().position(|(other, _)| *other == id);
            at.map(|at| list.remove(at))
        };
        drop_contained(removed);
    }

    /// Calls every listener, in order of registration, outside every lock.
    pub(crate) fn emit(&self, event: &Event) {
        let callbacks: Vec<_> = self.lock().iter().map(|(_, f)| Arc::clone(f)).collect();
        for callback in callbacks {
            // A listener that panics loses this event; the pool goes on.
            contained(|| callback(event));
            // Its last owner, if it has removed itself.
            drop_contained(callback);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(u64, Arc<Callback>)>> {
        self.list
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        // One by one: a second panic in the drop of a whole list would abort.
        let list = std::mem::take(&mut *self.lock());
        list.into_iter().for_each(drop_contained);
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners").finish_non_exhaustive()
    }
}

/// What a subscription needs of its pool, whatever its type.
pub(crate) trait Source: Send + Sync {
    fn unsubscribe(&self, id: u64);
}

/// A registered callback; dropping this removes it.
#[must_use = "dropping a subscription removes its callback at once"]
pub struct Subscription {
    pub(crate) source: Weak<dyn Source>,
    pub(crate) id: u64,
}

impl Subscription {
    /// Leaves the callback registered for as long as the pool lives.
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

/// How many events a stream keeps for a reader that is late.
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
/// A reader that falls more than 1024 events behind loses the oldest ones and
/// finds an [`Event::Lagged`] in their place.
#[derive(Debug)]
pub struct Events {
    backlog: Arc<Mutex<Backlog>>,
    _subscription: Subscription,
}

impl Events {
    /// Makes a stream, given a way to subscribe to the pool.
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

    /// Nothing more will come.
    pub(crate) fn end(&self) {
        self.backlog.lock().ended = true;
    }

    /// The next event, or `None` after the pool was closed and drained.
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
        // Cloned before the lock, and dropped after it: that is an executor's code.
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
