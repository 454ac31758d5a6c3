//! Changes to the whole pool: closing, resizing, retiring resources, moving the breaker.

use super::{Locked, MaintenanceCall, Meta, Progress};
use crate::breaker::BreakerState;
use crate::core::slot::SlotState;
use crate::core::waiters::Outcome;
use crate::observe::events::{DestroyReason, Event};

impl<T, F> Locked<'_, T, F> {
    /// Closes the pool: fails every waiter and destroys the idle resources, oldest first. Returns
    /// `false` if the pool was closed already.
    pub(crate) fn close(&mut self) -> bool {
        if self.state.closed {
            return false;
        }
        // The idle ones first; what the failed waiters had is younger.
        for index in self.idle_oldest_first() {
            if self.take_this(index) {
                self.destroy(index, DestroyReason::Closed);
            }
        }
        self.state.closed = true;
        self.note(|| Event::Closed);
        self.fail_all_waiters(|| Outcome::Closed);
        // Flags the leased ones, and destroys those that came back meanwhile.
        for (index, slot) in self.slots.iter() {
            if slot.set_must_lock() == SlotState::Idle && slot.take_locked() {
                self.destroy(index, DestroyReason::Closed);
            }
        }
        self.wake_close_waiters();
        self.note_if_drained();
        if self.state.maintenance.is_some() {
            self.deferred.maintenance = MaintenanceCall::Ring;
        }
        self.check();
        true
    }

    /// Changes the maximum.
    pub(crate) fn resize(&mut self, max: usize) {
        self.state.max = max;
        if self.state.is_above_max() {
            for index in self.idle_oldest_first() {
                if !self.state.is_above_max() {
                    break;
                }
                if self.take_this(index) {
                    self.destroy(index, DestroyReason::Shrunk);
                }
            }
            // Uncollected reservations, those of the youngest waiters first.
            while self.state.is_above_max()
                && let Some((index, _)) = self.revoke_youngest(None)
            {
                self.slots.at(index).set(SlotState::Leased, true);
                self.destroy(index, DestroyReason::Shrunk);
            }
            // Offers that nobody has used.
            for key in self.state.waiters.keys() {
                if self.state.is_above_max()
                    && let Some(slot) = self.state.waiters.take_offer(key)
                {
                    self.unclaim(slot);
                }
            }
            // The others when they come back.
            for (index, slot) in self.slots.iter() {
                if slot.set_must_lock() == SlotState::Idle
                    && self.state.is_above_max()
                    && self.take_this(index)
                {
                    self.destroy(index, DestroyReason::Shrunk);
                }
            }
        }
        self.state.update_watch_flags(self.slots);
        self.offer_free_slots();
        self.check();
    }

    /// Retires the resources for which `reason_for` returns a reason: the idle ones now, the
    /// others when they come back.
    pub(crate) fn retire_where(&mut self, reason_for: impl Fn(&Meta) -> Option<DestroyReason>) {
        for (index, slot) in self.slots.iter() {
            let Some(meta) = self.state.metas.get_mut(index) else {
                continue;
            };
            if matches!(slot.word().state(), SlotState::Vacant | SlotState::Creating) {
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
        self.state.update_watch_flags(self.slots);
        if to == BreakerState::Open {
            self.fail_all_waiters(|| Outcome::Unavailable);
        }
        self.check();
    }

    /// Says why the breaker refuses an acquire.
    pub(super) fn unavailable(&self) -> Progress<F> {
        Progress::Unavailable(self.state.breaker.unavailable(|| self.clock.now()))
    }

    /// Ends a probe of the breaker: well, badly, or without a verdict.
    pub(crate) fn end_probe(&mut self, probe: Option<u64>, good: Option<bool>) {
        let next = probe.and_then(|probe| self.state.breaker.probe_ended(probe, good));
        if let Some(to) = next {
            self.move_breaker(to, false);
        }
    }
}
