//! Resources come and go: which idle one is taken, creations and destructions under the lock.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Instant;

use super::{Locked, Meta};
use crate::config::Order;
use crate::core::claims::ClaimKey;
use crate::core::slot::{Slot, SlotState};
use crate::core::waiters::{Outcome, WaiterKey};
use crate::observe::events::DestroyReason;
use crate::upkeep::replace::Replacing;

impl<T, F> Locked<'_, T, F> {
    /// Leases an idle resource that is fit for use.
    pub(super) fn take_idle(&mut self, hint: Option<usize>) -> Option<usize> {
        // Nobody overtakes the queue. (I2: nothing is idle then anyway.)
        if self.state.waiters.waiting() > 0 {
            return None;
        }
        loop {
            let index = match self.state.order {
                Order::Affine => self.take_affine(hint)?,
                Order::Fifo => self.take_from_ring(VecDeque::pop_front)?,
                Order::Lifo => self.take_from_ring(VecDeque::pop_back)?,
            };
            // Also a resource that is destroyed below (I4).
            if self.state.must_flag_leases() {
                self.slots.at(index).set_must_lock();
            }
            match self.state.unfit(index, &self.clock) {
                Some(reason) => self.destroy(index, reason),
                None => return Some(index),
            }
        }
    }

    fn take_affine(&self, hint: Option<usize>) -> Option<usize> {
        let hinted = hint.filter(|&index| self.slots.get(index).is_some_and(Slot::take_locked));
        if hinted.is_some() {
            return hinted;
        }
        loop {
            // The oldest stamp; of equal ones the lowest index.
            let (index, slot) = self
                .slots
                .iter()
                .filter(|(_, slot)| slot.word().state() == SlotState::Idle)
                .min_by_key(|(_, slot)| slot.since())?;
            // Lost only to a lock-free take: another thread has it, look again.
            if slot.take_locked() {
                return Some(index);
            }
        }
    }

    fn take_from_ring(
        &mut self,
        pop: impl Fn(&mut VecDeque<usize>) -> Option<usize>,
    ) -> Option<usize> {
        let index = pop(&mut self.state.ring)?;
        // Flagged idle slots (I4) are moved under the lock only.
        let taken = self.slots.at(index).take_locked();
        debug_assert!(taken, "the ring lists idle slots");
        Some(index)
    }

    /// Leases one particular idle resource to the pool itself. `false`: it is not idle.
    pub(crate) fn take_this(&mut self, index: usize) -> bool {
        let slot = self.slots.at(index);
        if !slot.take_locked() {
            return false;
        }
        self.state.forget_idle(index);
        if self.state.must_flag_leases() {
            slot.set_must_lock();
        }
        slot.note_pool();
        true
    }

    /// Returns the idle slots, oldest first.
    pub(crate) fn idle_oldest_first(&self) -> Vec<usize> {
        if self.state.order != Order::Affine {
            return self.state.ring.iter().copied().collect();
        }
        let mut idle: Vec<_> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.word().state() == SlotState::Idle)
            .map(|(index, slot)| (slot.since(), index))
            .collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, index)| index).collect()
    }

    /// Makes a resource in hand idle.
    pub(super) fn make_idle(&mut self, index: usize) {
        let watched = self.state.watched();
        self.slots.at(index).set(SlotState::Idle, watched);
        if self.state.order != Order::Affine {
            self.put_into_ring(index);
        }
    }

    fn put_into_ring(&mut self, index: usize) {
        let metas = &self.state.metas;
        let returned = metas[index].returned;
        // Nearly always at the end, which is found at once.
        let after = self.state.ring.iter().rev();
        let younger = after
            .take_while(|&&other| metas[other].returned > returned)
            .count();
        let at = self.state.ring.len() - younger;
        self.state.ring.insert(at, index);
    }

    /// Has the resource of a leased slot destroyed once the lock is released.
    pub(super) fn destroy(&mut self, index: usize, reason: DestroyReason) {
        self.mark_destroying(index);
        self.deferred.rare().retiring.push((index, reason));
    }

    /// Notes that the caller destroys the resource of a leased slot.
    pub(crate) fn mark_destroying(&mut self, index: usize) {
        self.state.forget_collected(self.slots.at(index));
        self.slots.at(index).note_pool();
        self.state.destroying += 1;
        // It leaves: it need be neither replaced nor judged.
        self.state.metas[index].generation = self.state.generation;
        self.state.metas[index].judged = self.state.retains;
    }

    /// Destroys one idle resource. `false`: it is not idle.
    pub(crate) fn retire(&mut self, index: usize, reason: DestroyReason) -> bool {
        let taken = self.take_this(index);
        if taken {
            self.destroy(index, reason);
        }
        taken
    }

    /// Frees the slot of a resource that has been destroyed.
    pub(crate) fn vacate(&mut self, index: usize, reason: DestroyReason) {
        self.state.counters.destroyed += 1;
        self.state.counters.by_reason[reason as usize] += 1;
        self.state.destroying -= 1;
        self.free(index);
        self.offer_free_slots();
        self.refill_later();
        if self.state.replacing == Replacing::Ready {
            // It may have been the last outdated resource.
            self.call_maintenance(self.clock.now());
        }
        self.check();
    }

    /// Takes a vacant slot for a creation; the caller claims it.
    pub(super) fn take_vacant(&mut self) -> usize {
        let index = match self.state.vacant.pop() {
            Some(Reverse(index)) => index,
            None => self.slots.grow(),
        };
        self.slots.at(index).set(SlotState::Creating, false);
        self.state.total += 1;
        index
    }

    /// Claims a vacant slot for a creation that the pool itself begins.
    pub(crate) fn begin_own_creation(&mut self) -> ClaimKey {
        let index = self.take_vacant();
        let ends = self.creation_ends();
        self.state.claims.begin_alone(index, self.clock.now(), ends)
    }

    /// Begins a creation in the slot that a waiter was offered. `None`: it has no offer.
    pub(super) fn begin_creation(&mut self, key: WaiterKey) -> Option<ClaimKey> {
        let index = self.state.waiters.begin_creation(key)?;
        let ends = self.creation_ends();
        Some(self.state.claims.begin(index, self.clock.now(), ends))
    }

    /// Returns when a creation that begins now exceeds the create timeout. The maintenance task
    /// enforces that; if there is none, a waiter starts it.
    fn creation_ends(&mut self) -> Option<Instant> {
        let limit = self.state.create_timeout?;
        let ends = self.clock.now().checked_add(limit)?;
        if self.state.maintenance.is_some() {
            self.call_maintenance(ends);
        }
        Some(ends)
    }

    /// Ends a claim without a resource and frees its slot.
    pub(super) fn unclaim(&mut self, index: usize) {
        self.state.claims.end(index);
        self.free(index);
        self.refill_later();
    }

    fn free(&mut self, index: usize) {
        self.slots.at(index).set(SlotState::Vacant, false);
        self.state.vacant.push(Reverse(index));
        self.state.total -= 1;
        self.note_if_drained();
    }

    /// Takes up a new resource, which is in its slot already.
    pub(crate) fn created(&mut self, index: usize, starter: Option<WaiterKey>, meta: Meta) {
        self.state.claims.end(index);
        self.state.counters.created += 1;
        self.state.backoff.succeeded();
        self.state.last_creation_error = None;
        let expires = meta.expires;
        if self.state.metas.len() <= index {
            self.state.metas.resize(index + 1, meta.clone());
        }
        self.state.metas[index] = meta;
        if self.state.order != Order::Affine {
            self.state.returns += 1;
            self.state.metas[index].returned = self.state.returns;
        }
        if let Some(expires) = expires {
            self.call_maintenance(expires.min(self.state.next_sweep.unwrap_or(expires)));
        }
        let mut never_queued = None;
        if let Some(key) = starter
            && self.state.waiters.creation_ended(key, index)
            && let Some(waiter) = self.state.waiters.get(key)
            && waiter.only_own_creation
            && matches!(waiter.outcome, Outcome::Waiting)
        {
            never_queued = Some(key);
        }
        match never_queued {
            // Only its own creation can serve it.
            Some(key) => self.reserve(index, key, true),
            None => self.serve_next(index, true),
        }
        self.offer_free_slots();
        // The creation limit may have prevented refills.
        self.refill_later();
        self.check();
    }

    /// Ends a creation that failed or was dropped. Returns the failure if no acquire waits for it,
    /// or if the waiting acquire may try again.
    pub(crate) fn create_failed(
        &mut self,
        index: usize,
        starter: Option<WaiterKey>,
        failure: Box<F>,
        may_retry: bool,
    ) -> Option<Box<F>> {
        self.unclaim(index);
        self.state.counters.create_failed += 1;
        let retry_at = self.state.backoff.until(self.clock.now());
        // A starter that began another creation meanwhile waits for that one.
        let starter = starter.filter(|&key| self.state.waiters.creation_ended(key, index));
        let waiter = starter.and_then(|key| self.state.waiters.get_mut(key));
        let undelivered = match waiter {
            // It stays in the queue, and creates again after the back-off.
            Some(waiter) if may_retry && waiter.may_wait_until(retry_at) => Some(failure),
            Some(waiter) if matches!(waiter.outcome, Outcome::Waiting) && !waiter.checking => {
                waiter.outcome = Outcome::Failed(failure);
                self.deferred.wake(waiter.waker.take());
                None
            }
            _ => Some(failure),
        };
        if undelivered.is_none()
            && let Some(key) = starter
        {
            self.state.waiters.unlink_key(key);
        }
        self.offer_free_slots();
        self.refill_later();
        self.check();
        undelivered
    }
}
