//! A turn: the lock is held, the state may change.

use std::cell::Cell;
use std::task::Waker;
use std::time::Instant;

use super::State;
use crate::core::slot::Slots;
use crate::core::waiters::Outcome;
use crate::observe::events::{DestroyReason, Event};
use crate::runtime::Runtime;
use crate::user_code::Contained;

/// The state, for as long as somebody holds its lock.
pub(crate) struct Locked<'a, T, F> {
    pub(crate) state: &'a mut State<F>,
    pub(crate) slots: &'a Slots<T>,
    pub(crate) clock: Clock<'a>,
    pub(crate) after: &'a mut Deferred<F>,
}

/// The time, the same for the whole of a turn, and read only if it is asked for:
/// most turns need none.
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

/// What is to be done once the lock is released. Small, because every turn has
/// one and nearly every turn needs no more than the first three.
#[derive(Debug)]
#[must_use]
pub(crate) struct Deferred<F> {
    /// To be woken.
    pub(crate) waker: Option<Waker>,
    /// To be dropped: a waker may own a task, whose drop is anybody's code.
    spent: Option<Contained<Waker>>,
    pub(crate) maintenance: MaintenanceCall,
    pub(crate) rare: Option<Box<Rare<F>>>,
}

/// What an [`Deferred`] rarely has.
#[derive(Debug)]
pub(crate) struct Rare<F> {
    pub(crate) wakers: Vec<Waker>,
    spent: Vec<Contained<Waker>>,
    /// To be dropped: errors are their maker's code.
    pub(crate) uncollected: Vec<Outcome<F>>,
    /// Slots that are leased to the pool now, to be destroyed.
    pub(crate) retiring: Vec<(usize, DestroyReason)>,
    /// Slots that are leased to the pool now, whose resource is to be judged.
    pub(crate) unjudged: Vec<usize>,
    pub(crate) events: Vec<Event>,
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
    /// Notes that somebody is to be woken.
    #[inline]
    pub(crate) fn wake(&mut self, waker: Option<Waker>) {
        match waker {
            Some(waker) if self.waker.is_some() => self.rare().wakers.push(waker),
            Some(waker) => self.waker = Some(waker),
            None => {}
        }
    }

    /// Notes that a waker is to be dropped.
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
            })
        })
    }
}

/// What the maintenance task has to do next.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum MaintenanceCall {
    #[default]
    Nothing,
    /// Something is due earlier than it sleeps.
    Ring,
    /// There is none.
    Start,
}

impl<T, F> Locked<'_, T, F> {
    #[inline]
    pub(crate) fn note(&mut self, event: impl FnOnce() -> Event) {
        if self.state.observed {
            self.after.rare().events.push(event());
        }
    }

    /// Tells, once, that a closed pool is empty.
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
            self.after.rare().wakers.extend(wakers);
        }
    }

    /// Makes sure that the maintenance task comes by at this time.
    pub(crate) fn call_maintenance(&mut self, at: Instant) {
        match &mut self.state.maintenance {
            None => {
                self.state.maintenance = Some(Some(at));
                self.after.maintenance = MaintenanceCall::Start;
            }
            Some(next) if next.is_none_or(|next| at < next) => {
                *next = Some(at);
                if self.after.maintenance == MaintenanceCall::Nothing {
                    self.after.maintenance = MaintenanceCall::Ring;
                }
            }
            Some(_) => {}
        }
    }

    /// Starts the maintenance task if there should be one and is none.
    pub(crate) fn restart_maintenance(&mut self) {
        if std::mem::take(&mut self.state.maintenance_lost) {
            self.call_maintenance(self.clock.now());
            self.state.rewatch(self.slots);
        }
    }

    /// Makes sure that the maintenance task comes by if there are too few resources.
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
