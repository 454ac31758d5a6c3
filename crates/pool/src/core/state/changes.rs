//! What changes the whole pool: closing, resizing, retiring, the breaker.

use super::{Locked, MaintenanceCall, Meta};
use crate::breaker::BreakerState;
use crate::core::slot::Phase;
use crate::core::waiters::Outcome;
use crate::observe::events::{DestroyReason, Event};

impl<T, F> Locked<'_, T, F> {
    /// Closes: fails every waiter and takes out everything idle, oldest first.
    pub(crate) fn close(&mut self) -> bool {
        if self.state.closed {
            return false;
        }
        // The idle ones first: what `fail_all` frees goes out after them.
        for index in self.idle_oldest_first() {
            if self.take_this(index) {
                self.destroy(index, DestroyReason::Closed);
            }
        }
        self.state.closed = true;
        self.note(|| Event::Closed);
        self.fail_all(|| Outcome::Closed);
        // Flags the leased ones; those that came back meanwhile go out too.
        for (index, slot) in self.slots.iter() {
            if slot.set_must_lock() == Phase::Idle && slot.take_locked() {
                self.destroy(index, DestroyReason::Closed);
            }
        }
        self.wake_close_waiters();
        self.note_if_drained();
        if self.state.maintenance.is_some() {
            self.after.maintenance = MaintenanceCall::Ring;
        }
        self.check();
        true
    }

    /// Another maximum.
    pub(crate) fn resize(&mut self, max: usize) {
        self.state.max = max;
        if self.state.total - self.state.destroying > max {
            for index in self.idle_oldest_first() {
                if self.state.total - self.state.destroying <= max {
                    break;
                }
                if self.take_this(index) {
                    self.destroy(index, DestroyReason::Shrunk);
                }
            }
            // Reservations that nobody has collected, the last to arrive first.
            while self.state.total - self.state.destroying > max
                && let Some((index, _)) = self.unreserve_youngest(None)
            {
                self.slots.at(index).set(Phase::Leased, true);
                self.destroy(index, DestroyReason::Shrunk);
            }
            // Places that nobody has begun to create in.
            for key in self.state.waiters.keys() {
                if self.state.total - self.state.destroying > max
                    && let Some(place) = self.state.waiters.take_place(key)
                {
                    self.unclaim(place);
                }
            }
            // The rest goes when it comes back.
            for (index, slot) in self.slots.iter() {
                if slot.set_must_lock() == Phase::Idle
                    && self.state.total - self.state.destroying > max
                    && self.take_this(index)
                {
                    self.destroy(index, DestroyReason::Shrunk);
                }
            }
        }
        self.state.rewatch(self.slots);
        self.settle();
        self.check();
    }

    /// Marks the resources for which `reason_for` has a reason: the idle ones go now,
    /// the others when they come back.
    pub(crate) fn retire_where(&mut self, reason_for: impl Fn(&Meta) -> Option<DestroyReason>) {
        for (index, slot) in self.slots.iter() {
            let Some(meta) = self.state.metas.get_mut(index) else {
                continue;
            };
            if matches!(slot.word().phase(), Phase::Vacant | Phase::Creating) {
                continue;
            }
            let Some(reason) = reason_for(meta) else {
                continue;
            };
            meta.retiring = Some(reason);
            slot.set_must_lock();
            slot.set_must_lock_if_reserved();
            if self.take_this(index) {
                self.destroy(index, reason);
            }
        }
        self.check();
    }

    /// Moves the breaker.
    pub(crate) fn move_breaker(&mut self, to: BreakerState, by_hand: bool) {
        let from = self.state.breaker.state();
        if self.state.breaker.transition(to, self.clock.now(), by_hand) {
            self.note(|| Event::BreakerChanged { from, to });
        }
        if let Some(due) = self.state.breaker.next_due() {
            self.call_maintenance(due);
        }
        self.state.rewatch(self.slots);
        if to == BreakerState::Inactive {
            self.fail_all(|| Outcome::Unavailable);
        }
        self.check();
    }

    /// A probe ended well, badly, or without a verdict.
    pub(crate) fn end_probe(&mut self, probe: Option<u64>, good: Option<bool>) {
        let next = probe.and_then(|probe| self.state.breaker.probe_ended(probe, good));
        if let Some(to) = next {
            self.move_breaker(to, false);
        }
    }
}
