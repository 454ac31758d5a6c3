//! Who is served next: a resource that comes back goes to the oldest waiter, and free slots are
//! offered to waiters to create in.
//!
//! Every hand-off is [`State::reserve`]. Two paths lead to it: [`Locked::serve_next`], which decides
//! everything, and [`State::hand_off`], the short path of a full pool with a queue, which leaves
//! out the steps that [`State::allows_short_paths`] has ruled out.

use std::task::Waker;

use super::{Locked, State, narrow};
use crate::config::Order;
use crate::core::grants::Grant;
use crate::core::slot::{Slot, SlotState};
use crate::core::waiters::WaiterKey;

impl<F> State<F> {
    /// Reserves a slot in hand for a waiter that is no longer in the queue. Returns the waker to
    /// wake. `granted` is the time by the coarse clock.
    #[inline(always)]
    fn reserve<T>(
        &mut self,
        slot: &Slot<T>,
        key: WaiterKey,
        fresh: bool,
        granted: u64,
    ) -> Option<Waker> {
        // A waiter that gets more than the slot collects under the lock.
        let must_lock = fresh || self.waiters.is_probe(key);
        let grant = Grant {
            slot: narrow(slot.index()),
            ticket: slot.set(SlotState::Reserved, must_lock).ticket(),
        };
        self.metas[slot.index()].reserved_for = Some(key);
        self.waiters.grant(key, grant, fresh, granted)
    }

    /// Hands a slot in hand to the oldest waiter, if nothing else is to be decided. `None`: nothing
    /// has changed, and [`Locked::release`] has to decide.
    #[inline(always)]
    pub(crate) fn hand_off<T>(&mut self, slot: &Slot<T>, granted: u64) -> Option<Option<Waker>> {
        // Two at least, so that a queue remains and no signal changes.
        if !self.short_paths
            || self.waiters.waiting() < 2
            || self.metas[slot.index()].needs_decision()
        {
            return None;
        }
        self.forget_collected(slot);
        let key = self.waiters.pop()?;
        Some(self.reserve(slot, key, false, granted))
    }
}

impl<T, F> Locked<'_, T, F> {
    /// Takes a lease back whose resource is fit for use.
    pub(crate) fn release(&mut self, index: usize) {
        if self.state.order != Order::Affine {
            self.state.returns += 1;
            self.state.metas[index].returned = self.state.returns;
        }
        self.release_unused(index);
    }

    /// Takes a resource back that nobody has used. In a ring it returns to its former position.
    pub(crate) fn release_unused(&mut self, index: usize) {
        self.serve_next(index, false);
        self.offer_free_slots();
        self.check();
    }

    /// Gives a resource in hand to the oldest waiter, makes it idle, or destroys it.
    pub(super) fn serve_next(&mut self, index: usize, fresh: bool) {
        self.state.forget_collected(self.slots.at(index));
        if let Some(reason) = self.state.unfit(index, &self.clock) {
            self.slots.at(index).set(SlotState::Leased, true);
            self.slots.at(index).note_pool();
            self.destroy(index, reason);
            return;
        }
        if self.set_aside_unjudged(index) {
            return;
        }
        match self.state.waiters.pop() {
            Some(key) => self.reserve(index, key, fresh),
            None => self.make_idle(index),
        }
    }

    /// Reserves a slot in hand for a waiter that is no longer in the queue, and wakes it.
    pub(super) fn reserve(&mut self, index: usize, key: WaiterKey, fresh: bool) {
        self.give_up_creation(key);
        let granted = self.clock.coarse_now();
        let waker = self
            .state
            .reserve(self.slots.at(index), key, fresh, granted);
        self.deferred.wake(waker);
        self.schedule_revocation();
    }

    /// Offers free slots to the waiters for which nothing is being created (I3), and takes back
    /// offers that nobody uses.
    pub(crate) fn offer_free_slots(&mut self) {
        if self.state.claims.count() > 0 {
            self.state.claims.age(self.clock.now());
        }
        self.offer_slots();
        if self.state.claims.count() == 0 || self.state.waiters.waiting() == 0 {
            return;
        }
        // More slots may become available when an orphaned creation stops counting, also for the
        // waiter that it counts for, and when an offer expires.
        let mut due = self.state.claims.due();
        if self.state.first_without_creation().is_some() {
            self.revoke_offers();
            let patience = self.state.wake_to_poll.patience();
            let offer_over = self.state.claims.next_offer_over(patience);
            due = [due, offer_over].into_iter().flatten().min();
        }
        if let Some(due) = due {
            self.call_maintenance(due);
        }
    }

    /// Offers slots in the order of arrival, while the limits and the back-off allow it.
    pub(super) fn offer_slots(&mut self) {
        while self.state.total < self.state.max
            && self.state.claims.counted() < self.state.creation_limit
            && !self.state.closed
            && let Some(key) = self.state.first_without_creation()
        {
            if let Some(until) = self.state.backoff.until(self.clock.now()) {
                self.call_maintenance(until);
                break;
            }
            self.offer_slot(key);
            if let Some(waiter) = self.state.waiters.get_mut(key) {
                self.deferred.wake(waiter.waker.take());
            }
        }
    }

    /// Claims a vacant slot for a waiter to create in.
    pub(super) fn offer_slot(&mut self, key: WaiterKey) {
        let index = self.take_vacant();
        self.state.claims.offer(index, key, self.clock.now());
        self.state.waiters.offer_slot(key, narrow(index));
    }
}
