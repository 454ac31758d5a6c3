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
pub(crate) struct Turn<'a, T, F> {
    pub(crate) state: &'a mut State<F>,
    pub(crate) slots: &'a Slots<T>,
    pub(crate) clock: Clock<'a>,
    pub(crate) after: &'a mut Aftermath<F>,
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
pub(crate) struct Aftermath<F> {
    /// To be woken.
    pub(crate) waker: Option<Waker>,
    /// To be dropped: a waker may own a task, whose drop is anybody's code.
    spent: Option<Contained<Waker>>,
    pub(crate) keeper: KeeperCall,
    pub(crate) rare: Option<Box<Rare<F>>>,
}

/// What an [`Aftermath`] rarely has.
#[derive(Debug)]
pub(crate) struct Rare<F> {
    pub(crate) wakers: Vec<Waker>,
    spent: Vec<Contained<Waker>>,
    /// To be dropped: errors are their maker's code.
    pub(crate) uncollected: Vec<Outcome<F>>,
    /// Slots that are leased to the pool now, to be destroyed.
    pub(crate) doomed: Vec<(usize, DestroyReason)>,
    /// Slots that are leased to the pool now, whose resource is to be judged.
    pub(crate) unjudged: Vec<usize>,
    pub(crate) events: Vec<Event>,
}

impl<F> Default for Aftermath<F> {
    fn default() -> Self {
        Aftermath {
            waker: None,
            spent: None,
            keeper: KeeperCall::Nothing,
            rare: None,
        }
    }
}

impl<F> Aftermath<F> {
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
                doomed: Vec::new(),
                unjudged: Vec::new(),
                events: Vec::new(),
            })
        })
    }
}

/// What the keeper is to be told.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum KeeperCall {
    #[default]
    Nothing,
    /// Something is due earlier than it sleeps.
    Ring,
    /// There is none.
    Start,
}

impl<T, F> Turn<'_, T, F> {
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
            self.wake_onlookers();
        }
    }

    pub(super) fn wake_onlookers(&mut self) {
        let onlookers = std::mem::take(&mut self.state.onlookers);
        if !onlookers.is_empty() {
            let wakers = onlookers.into_iter().map(|(_, waker)| waker);
            self.after.rare().wakers.extend(wakers);
        }
    }

    /// Makes sure that the keeper comes by at this time.
    pub(crate) fn call_keeper(&mut self, at: Instant) {
        match &mut self.state.keeper {
            None => {
                self.state.keeper = Some(Some(at));
                self.after.keeper = KeeperCall::Start;
            }
            Some(next) if next.is_none_or(|next| at < next) => {
                *next = Some(at);
                if self.after.keeper == KeeperCall::Nothing {
                    self.after.keeper = KeeperCall::Ring;
                }
            }
            Some(_) => {}
        }
    }

    /// Starts the keeper if there should be one and is none.
    pub(crate) fn start_lost_keeper(&mut self) {
        if std::mem::take(&mut self.state.keeper_lost) {
            self.call_keeper(self.clock.now());
            self.state.rewatch(self.slots);
        }
    }

    /// Makes sure that the keeper comes by if there are too few resources.
    pub(crate) fn refill_later(&mut self) {
        if !self.state.closed && self.state.total < self.state.min {
            self.call_keeper(
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
