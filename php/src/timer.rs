//! Timers of the PHP thread. Timers of the same moment fire in the order in which they were set.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use crate::scheduler::scheduler;

/// Returns the time. This is the clock of the pool's runtime as well.
#[allow(clippy::disallowed_methods, reason = "the one place that reads it")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) type TimerKey = (Instant, u64);

#[derive(Default)]
pub(crate) struct Timers {
    set: BTreeMap<TimerKey, Timer>,
    next: u64,
    /// How many timers a program waits for. The others only do upkeep: a program that waits for nothing
    /// else will wait for ever.
    awaited: usize,
}

struct Timer {
    waker: Waker,
    awaited: bool,
}

impl Timers {
    pub(crate) fn set(&mut self, at: Instant, waker: Waker, awaited: bool) -> TimerKey {
        let key = (at, self.next);
        self.next += 1;
        self.awaited += usize::from(awaited);
        self.set.insert(key, Timer { waker, awaited });
        key
    }

    pub(crate) fn remove(&mut self, key: TimerKey) {
        if let Some(timer) = self.set.remove(&key) {
            self.awaited -= usize::from(timer.awaited);
        }
    }

    /// Returns the waker of a timer that is due, and forgets the timer.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Waker> {
        let (&key, _) = self.set.first_key_value().filter(|(key, _)| key.0 <= now)?;
        let timer = self.set.remove(&key)?;
        self.awaited -= usize::from(timer.awaited);
        Some(timer.waker)
    }

    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.set.first_key_value().map(|(key, _)| key.0)
    }

    pub(crate) fn has_awaited(&self) -> bool {
        self.awaited > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }
}

/// A future that resolves at a moment.
pub(crate) struct Sleep {
    until: Instant,
    awaited: bool,
    key: Option<TimerKey>,
}

impl Sleep {
    pub(crate) fn new(until: Instant, awaited: bool) -> Self {
        Sleep {
            until,
            awaited,
            key: None,
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let scheduler = scheduler();
        if let Some(key) = self.key.take() {
            scheduler.timers.borrow_mut().remove(key);
        }
        if now() >= self.until {
            return Poll::Ready(());
        }
        let waker = cx.waker().clone();
        let key = scheduler
            .timers
            .borrow_mut()
            .set(self.until, waker, self.awaited);
        self.key = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key.take() {
            scheduler().timers.borrow_mut().remove(key);
        }
    }
}
