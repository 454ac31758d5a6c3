//! Places and what is in them: taken, given, created, destroyed.

use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::Instant;

use super::{Locked, Meta, narrow};
use crate::config::Order;
use crate::core::claims::ClaimKey;
use crate::core::grants::Grant;
use crate::core::slot::{Phase, Slot};
use crate::core::waiters::{Outcome, WaiterKey};
use crate::observe::events::DestroyReason;
use crate::upkeep::replace::Replacing;

impl<T, F> Locked<'_, T, F> {
    /// Takes an idle resource that is fit to be handed out; it is leased then.
    pub(super) fn take_idle(&mut self, hint: Option<usize>) -> Option<usize> {
        // Nobody passes the queue by (I2: there is nothing idle then anyway).
        if self.state.waiters.waiting() > 0 {
            return None;
        }
        loop {
            let index = match self.state.order {
                Order::Affine => self.take_affine(hint)?,
                Order::Fifo => self.take_from_ring(VecDeque::pop_front)?,
                Order::Lifo => self.take_from_ring(VecDeque::pop_back)?,
            };
            // Also what is on its way out (I4).
            if self.state.must_flag_leases() {
                self.slots.at(index).set_must_lock();
            }
            match self.state.unfit(index, &self.clock) {
                Some(reason) => self.destroy(index, reason),
                None => {
                    if self.state.timed {
                        self.state.metas[index].leased = Some(self.clock.now());
                    }
                    return Some(index);
                }
            }
        }
    }

    pub(super) fn take_affine(&self, hint: Option<usize>) -> Option<usize> {
        let hinted = hint.filter(|&index| self.slots.get(index).is_some_and(Slot::take_locked));
        if hinted.is_some() {
            return hinted;
        }
        loop {
            // The oldest stamp; of equal ones the lowest index.
            let (index, slot) = self
                .slots
                .iter()
                .filter(|(_, slot)| slot.word().phase() == Phase::Idle)
                .min_by_key(|(_, slot)| slot.since())?;
            // Lost only to a lock-free take: somebody got it, look again.
            if slot.take_locked() {
                return Some(index);
            }
        }
    }

    pub(super) fn take_from_ring(
        &mut self,
        pop: impl Fn(&mut VecDeque<usize>) -> Option<usize>,
    ) -> Option<usize> {
        let index = pop(&mut self.state.ring)?;
        // Flagged idle slots (I4) are moved under the lock only.
        let taken = self.slots.at(index).take_locked();
        debug_assert!(taken, "the ring lists idle slots");
        Some(index)
    }

    /// Takes one particular idle resource out, for the pool itself.
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

    /// Idle slots, oldest first.
    pub(crate) fn idle_oldest_first(&self) -> Vec<usize> {
        if self.state.order != Order::Affine {
            return self.state.ring.iter().copied().collect();
        }
        let mut idle: Vec<_> = self
            .slots
            .iter()
            .filter(|(_, slot)| slot.word().phase() == Phase::Idle)
            .map(|(index, slot)| (slot.since(), index))
            .collect();
        idle.sort_unstable();
        idle.into_iter().map(|(_, index)| index).collect()
    }

    /// A lease comes back with a resource that is fit for use.
    pub(crate) fn give(&mut self, index: usize) {
        if self.state.order != Order::Affine {
            self.state.returns += 1;
            self.state.metas[index].returned = self.state.returns;
        }
        self.give_unused(index);
    }

    /// A resource comes back that nobody has used: in a ring, to where it was.
    pub(crate) fn give_unused(&mut self, index: usize) {
        self.pass_on(index, false);
        self.settle();
        self.check();
    }

    /// A resource in hand goes to the head of the queue, to the idle ones, or out.
    pub(super) fn pass_on(&mut self, index: usize, fresh: bool) {
        self.state.forget_collected(self.slots.at(index));
        if let Some(reason) = self.state.unfit(index, &self.clock) {
            self.slots.at(index).set(Phase::Leased, true);
            self.slots.at(index).note_pool();
            self.destroy(index, reason);
            return;
        }
        if self.set_aside_unjudged(index) {
            return;
        }
        let Some(key) = self.state.waiters.pop() else {
            let watched = self.state.watched();
            self.slots.at(index).set(Phase::Idle, watched);
            if self.state.order != Order::Affine {
                self.put_into_ring(index);
            }
            return;
        };
        self.reserve(index, key, fresh);
    }

    /// Reserves a slot in hand for a waiter that is in the queue no more, and
    /// wakes it.
    pub(super) fn reserve(&mut self, index: usize, key: WaiterKey, fresh: bool) {
        self.give_up_creation(key);
        let state = &mut *self.state;
        let waiter = state.waiters.get_mut(key).expect("it waits");
        // Where more than the slot goes over, it is collected under the lock.
        let by_lock = state.timed || fresh || waiter.probe.is_some();
        let grant = Grant {
            slot: narrow(index),
            ticket: self.slots.at(index).set(Phase::Reserved, by_lock).ticket(),
        };
        let now = self.clock.coarse_now();
        self.after.wake(state.waiters.grant(key, grant, fresh, now));
        state.metas[index].reserved_for = Some(key);
        self.start_patience();
    }

    /// How many reservations have not been collected yet. Drops the entries of
    /// those who have.
    pub(super) fn uncollected(&mut self) -> usize {
        let mut uncollected = 0;
        for (_, slot) in self.slots.iter() {
            match slot.word().phase() {
                Phase::Reserved => uncollected += 1,
                Phase::Idle | Phase::Leased => self.state.forget_collected(slot),
                // Forgotten when the resource left.
                Phase::Vacant | Phase::Creating => {}
            }
        }
        uncollected
    }

    /// Takes back what is reserved for a waiter. `None`: nothing is, or it has just
    /// collected it; then its entry is gone.
    pub(super) fn take_back(&mut self, key: WaiterKey) -> Option<(usize, bool)> {
        let Outcome::Resource { slot, fresh } = self.state.waiters.get(key)?.outcome else {
            return None;
        };
        let index = slot as usize;
        if !self.slots.at(index).take_back() {
            self.state.forget_collected(self.slots.at(index));
            return None;
        }
        self.state.metas[index].reserved_for = None;
        self.state.waiters.retract(key);
        Some((index, fresh))
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

    /// Puts a slot that is leased on the list of those to be destroyed.
    pub(super) fn destroy(&mut self, index: usize, reason: DestroyReason) {
        self.mark_destroying(index);
        self.after.rare().retiring.push((index, reason));
    }

    /// Notes that a slot is on its way out; the caller destroys what is in it.
    pub(crate) fn mark_destroying(&mut self, index: usize) {
        self.state.forget_collected(self.slots.at(index));
        self.slots.at(index).note_pool();
        self.state.destroying += 1;
        // On its way out: nothing to be replaced.
        self.state.metas[index].generation = self.state.generation;
        self.state.metas[index].judged = self.state.retains;
    }

    /// Takes one idle resource out of service; `false` if it is not idle.
    pub(crate) fn retire(&mut self, index: usize, reason: DestroyReason) -> bool {
        let taken = self.take_this(index);
        if taken {
            self.destroy(index, reason);
        }
        taken
    }

    /// A resource is gone: its place is free.
    pub(crate) fn vacate(&mut self, index: usize, reason: DestroyReason) {
        self.state.counters.destroyed += 1;
        self.state.counters.by_reason[reason as usize] += 1;
        self.state.destroying -= 1;
        self.free(index);
        self.settle();
        self.refill_later();
        if self.state.replacing == Replacing::Ready {
            // It may have been the last that was outdated.
            self.call_maintenance(self.clock.now());
        }
        self.check();
    }

    /// Gives free places to those in the queue for whom nothing is being created (I3).
    pub(crate) fn settle(&mut self) {
        if self.state.claims.count() > 0 {
            self.state.claims.age(self.clock.now());
        }
        self.offer_places();
        if self.state.claims.count() == 0 || self.state.waiters.waiting() == 0 {
            return;
        }
        // When there may be more to give than now: an orphaned creation stops counting, also for the waiter
        // that it counts for; an offer is over.
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

    pub(super) fn offer_places(&mut self) {
        while self.state.total < self.state.max
            && self.state.claims.counted() < self.state.creation_limit
            && !self.state.closed
            && let Some(key) = self.state.first_without_creation()
        {
            if let Some(until) = self.state.backoff.until(self.clock.now()) {
                self.call_maintenance(until);
                break;
            }
            self.offer_place(key);
            if let Some(waiter) = self.state.waiters.get_mut(key) {
                self.after.wake(waiter.waker.take());
            }
        }
    }

    /// Takes a vacant slot for a creation; the caller claims it.
    fn take_vacant(&mut self) -> usize {
        let index = match self.state.vacant.pop() {
            Some(Reverse(index)) => index,
            None => self.slots.grow(),
        };
        self.slots.at(index).set(Phase::Creating, false);
        self.state.total += 1;
        index
    }

    /// Claims a vacant slot for a waiter to create in.
    pub(super) fn offer_place(&mut self, key: WaiterKey) {
        let index = self.take_vacant();
        self.state.claims.offer(index, key, self.clock.now());
        self.state.waiters.give_place(key, narrow(index));
    }

    /// Claims a vacant slot for a creation that the pool itself begins.
    pub(crate) fn begin_own_creation(&mut self) -> ClaimKey {
        let index = self.take_vacant();
        let ends = self.creation_ends();
        self.state.claims.begin_alone(index, self.clock.now(), ends)
    }

    /// A waiter begins to create in the place that it was offered, if it was.
    pub(super) fn begin_creation(&mut self, key: WaiterKey) -> Option<ClaimKey> {
        let index = self.state.waiters.begin_job(key)?;
        let ends = self.creation_ends();
        Some(self.state.claims.begin(index, self.clock.now(), ends))
    }

    /// When a creation that begins now has taken too long. The maintenance task sees to it; if there
    /// is none, a waiter starts it.
    fn creation_ends(&mut self) -> Option<Instant> {
        let limit = self.state.create_timeout?;
        let ends = self.clock.now().checked_add(limit)?;
        if self.state.maintenance.is_some() {
            self.call_maintenance(ends);
        }
        Some(ends)
    }

    pub(super) fn unclaim(&mut self, index: usize) {
        self.state.claims.end(index);
        self.free(index);
        self.refill_later();
    }

    pub(super) fn free(&mut self, index: usize) {
        self.slots.at(index).set(Phase::Vacant, false);
        self.state.vacant.push(Reverse(index));
        self.state.total -= 1;
        self.note_if_drained();
    }

    /// A creation succeeded; the value is in the cell.
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
            && self.state.waiters.job_ended(key, index)
            && let Some(waiter) = self.state.waiters.get(key)
            && waiter.only_own_job
            && matches!(waiter.outcome, Outcome::Waiting)
        {
            never_queued = Some(key);
        }
        match never_queued {
            // Served by its own creation alone: it gets this one, or nothing.
            Some(key) => self.reserve(index, key, true),
            None => self.pass_on(index, true),
        }
        self.settle();
        // The limit on creations may have kept others from being made.
        self.refill_later();
        self.check();
    }

    /// A creation failed, or was dropped half-way. Hands the failure back if
    /// nobody waits for it, or if the acquire that does may try again.
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
        // One that began another creation meanwhile waits for that.
        let starter = starter.filter(|&key| self.state.waiters.job_ended(key, index));
        let waiter = starter.and_then(|key| self.state.waiters.get_mut(key));
        let undelivered = match waiter {
            // It stays in the queue, and creates again after the back-off.
            Some(waiter) if may_retry && waiter.may_wait_until(retry_at) => Some(failure),
            Some(waiter) if matches!(waiter.outcome, Outcome::Waiting) && !waiter.checking => {
                waiter.outcome = Outcome::Failed(failure);
                self.after.wake(waiter.waker.take());
                None
            }
            _ => Some(failure),
        };
        if undelivered.is_none()
            && let Some(key) = starter
        {
            self.state.waiters.unlink_key(key);
        }
        self.settle();
        self.refill_later();
        self.check();
        undelivered
    }
}
