//! [`Locked`]: the state while its lock is held, and [`Deferred`]: what follows after the unlock.

use std::cell::Cell;
use std::task::Waker;
use std::time::Instant;

use super::State;
use crate::core::slot::Slots;
use crate::core::waiters::Outcome;
use crate::observe::events::{DestroyReason, Event};
use crate::runtime::Runtime;
use crate::upkeep::slow_acquires::SlowAcquire;
use crate::user_code::Contained;

/// The state, for as long as its lock is held.
pub(crate) struct Locked<'a, T, F> {
    pub(crate) state: &'a mut State<F>,
    pub(crate) slots: &'a Slots<T>,
    pub(crate) clock: Clock<'a>,
    pub(crate) deferred: &'a mut Deferred<F>,
}

/// The runtime's clock, read lazily: the first call of `now` in a critical section reads it, later calls
/// return the same time. Most critical sections need no time.
pub(crate) struct Clock<'a> {
    runtime: &'a dyn Runtime,
    now: Cell<Option<Instant>>,
}

impl<'a> Clock<'a> {
    pub(crate) fn new(runtime: &'a dyn Runtime) -> Self {
        Clock {
            runtime,
            now: Cell::new(None),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        let now = self.now.get().unwrap_or_else(|| self.runtime.now());
        self.now.set(Some(now));
        now
    }

    pub(crate) fn coarse_now(&self) -> u64 {
        self.runtime.coarse_now()
    }
}

/// What is done once the lock is released. It is small, because every critical section has one and
/// few need more than the first three fields.
#[derive(Debug)]
#[must_use]
pub(crate) struct Deferred<F> {
    /// To be woken.
    pub(crate) waker: Option<Waker>,
    /// To be dropped: a waker may own a task, whose drop runs user code.
    spent: Option<Contained<Waker>>,
    pub(crate) maintenance: MaintenanceCall,
    pub(crate) rare: Option<Box<Rare<F>>>,
}

/// What a [`Deferred`] rarely has.
#[derive(Debug)]
pub(crate) struct Rare<F> {
    pub(crate) wakers: Vec<Waker>,
    spent: Vec<Contained<Waker>>,
    /// To be dropped: the drop of an error is user code.
    pub(crate) uncollected: Vec<Outcome<F>>,
    /// Slots leased to the pool whose resources are to be destroyed.
    pub(crate) retiring: Vec<(usize, DestroyReason)>,
    /// Slots leased to the pool whose resources are to be judged by `retain`.
    pub(crate) unjudged: Vec<usize>,
    pub(crate) events: Vec<Event>,
    pub(crate) slow_acquires: Vec<SlowAcquire>,
}

impl<F> Default for Deferred<F> {
    fn default() -> Self {
        Deferred {
            waker: None,
            spent: None,
            maintenance: MaintenanceCall::Nothing,
            rare: None,
        }
    }
}

impl<F> Deferred<F> {
    /// Adds a waker to wake.
    #[inline]
    pub(crate) fn wake(&mut self, waker: Option<Waker>) {
        match waker {
            Some(waker) if self.waker.is_some() => self.rare().wakers.push(waker),
            Some(waker) => self.waker = Some(waker),
            None => {}
        }
    }

    /// Adds a waker to drop.
    pub(crate) fn discard(&mut self, waker: Option<Waker>) {
        match waker {
            Some(waker) if self.spent.is_some() => self.rare().spent.push(Contained::new(waker)),
            Some(waker) => self.spent = Some(Contained::new(waker)),
            None => {}
        }
    }

    pub(crate) fn rare(&mut self) -> &mut Rare<F> {
        self.rare.get_or_insert_with(|| {
            Box::new(Rare {
                wakers: Vec::new(),
                spent: Vec::new(),
                uncollected: Vec::new(),
                retiring: Vec::new(),
                unjudged: Vec::new(),
                events: Vec::new(),
                slow_acquires: Vec::new(),
            })
        })
    }
}

/// What has to happen to the maintenance task.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum MaintenanceCall {
    #[default]
    Nothing,
    /// Wake it: something is due before its sleep ends.
    Ring,
    /// Start it.
    Start,
}

impl<T, F> Locked<'_, T, F> {
    /// Adds a rare event, if anybody listens.
    #[inline]
    pub(crate) fn note(&mut self, event: impl FnOnce() -> Event) {
        if self.state.heard {
            self.deferred.rare().events.push(event());
        }
    }

    /// Adds an event of an acquire or a release, if anybody listens to all events.
    #[inline]
    pub(crate) fn note_frequent(&mut self, event: impl FnOnce() -> Event) {
        if self.state.observed {
            self.deferred.rare().events.push(event());
        }
    }

    /// Reports, once, that a closed pool is empty.
    pub(super) fn note_if_drained(&mut self) {
        if self.state.closed && self.state.total == 0 && !self.state.drained {
            self.state.drained = true;
            self.note(|| Event::Drained);
            self.wake_close_waiters();
        }
    }

    pub(super) fn wake_close_waiters(&mut self) {
        let close_waiters = std::mem::take(&mut self.state.close_waiters);
        if !close_waiters.is_empty() {
            let wakers = close_waiters.into_iter().map(|(_, waker)| waker);
            self.deferred.rare().wakers.extend(wakers);
        }
    }

    /// Has the maintenance task run at this time or earlier.
    pub(crate) fn call_maintenance(&mut self, at: Instant) {
        match &mut self.state.maintenance {
            None => {
                self.state.maintenance = Some(Some(at));
                self.deferred.maintenance = MaintenanceCall::Start;
            }
            Some(next) if next.is_none_or(|next| at < next) => {
                *next = Some(at);
                if self.deferred.maintenance == MaintenanceCall::Nothing {
                    self.deferred.maintenance = MaintenanceCall::Ring;
                }
            }
            Some(_) => {}
        }
    }

    /// Starts the maintenance task if it is needed and missing.
    pub(crate) fn restart_maintenance(&mut self) {
        if std::mem::take(&mut self.state.maintenance_lost) {
            self.call_maintenance(self.clock.now());
            self.state.update_watch_flags(self.slots);
        }
    }

    /// Has the maintenance task create resources, if there are fewer than the minimum.
    pub(crate) fn refill_later(&mut self) {
        if !self.state.closed && !self.state.warming && self.state.total < self.state.min {
            self.call_maintenance(
                self.state
                    .backoff
                    .background_until(self.clock.now())
                    .unwrap_or(self.clock.now()),
            );
        }
    }

    /// Asserts the invariants, in debug builds.
    pub(crate) fn check(&self) {
        self.state.check(self.slots);
    }
}
