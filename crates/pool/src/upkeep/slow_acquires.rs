//! Slow-acquire warnings, given while the acquire still waits: an acquire that an outer time-out
//! cancels leaves a trace.
//!
//! The first waiter has maintenance look at all waiters when it becomes slow. As long as that look
//! is due, other acquires join the queue without any cost.

use std::panic::Location;
use std::time::Duration;

use crate::core::Core;
use crate::core::state::Locked;
use crate::manager::Manager;
use crate::observe::log;

/// The shortest time between two looks.
const SHORTEST: Duration = Duration::from_millis(1);

/// How many slow acquires one look reports one by one.
const MOST: usize = 10;

/// An acquire that waits for longer than the limit.
#[derive(Debug)]
pub(crate) struct SlowAcquire {
    caller: &'static Location<'static>,
    waited: Duration,
}

impl<T, F> Locked<'_, T, F> {
    /// Has maintenance look for slow acquires, now that somebody waits.
    pub(crate) fn watch_for_slow_acquires(&mut self) {
        if let Some(limit) = self.state.slow_after
            && self.state.slow_look_at.is_none()
            && let Some(at) = self.clock.now().checked_add(limit)
        {
            self.state.slow_look_at = Some(at);
            self.call_maintenance(at);
        }
    }

    /// Notes the acquires that have become slow, each once, and when to look again.
    pub(crate) fn find_slow_acquires(&mut self) {
        let now = self.clock.now();
        let Some(limit) = self.state.slow_after else {
            return;
        };
        if self.state.slow_look_at.is_none_or(|at| at > now) {
            return;
        }
        let (mut slow, mut next) = (Vec::new(), None);
        for waiter in self.state.waiters.still_waiting_mut() {
            if waiter.warned {
                continue;
            }
            let Some(began) = waiter.began else { continue };
            let waited = now.saturating_duration_since(began);
            if waited >= limit {
                waiter.warned = true;
                let caller = waiter.caller;
                slow.push(SlowAcquire { caller, waited });
            } else {
                let left = (limit - waited).max(SHORTEST);
                next = Some(next.map_or(left, |next: Duration| next.min(left)));
            }
        }
        self.state.slow_look_at = next.and_then(|left| now.checked_add(left));
        if !slow.is_empty() {
            self.deferred.rare().slow_acquires.append(&mut slow);
        }
    }
}

impl<M: Manager> Core<M> {
    /// Logs slow acquires, the slowest first, with the longest leases.
    pub(crate) fn warn_of_slow_acquires(&self, slow: &[SlowAcquire]) {
        if slow.is_empty() {
            return;
        }
        let mut slowest: Vec<_> = slow.iter().collect();
        slowest.sort_by_key(|acquire| std::cmp::Reverse(acquire.waited));
        let status = self.state().status(&self.slots);
        let holders = self.holders(3);
        for acquire in slowest.iter().take(MOST) {
            log::still_waiting(
                self.name(),
                acquire.waited,
                acquire.caller,
                &status,
                &holders,
            );
        }
        if let Some(more) = slowest.len().checked_sub(MOST).filter(|&more| more > 0) {
            log::more_still_waiting(self.name(), more, &status);
        }
    }
}
