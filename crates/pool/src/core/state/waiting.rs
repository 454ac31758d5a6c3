//! What becomes of a waiter: when it is polled, when it leaves, when its deadline passes.

use std::num::NonZeroU64;
use std::panic::Location;

use super::revoke::nanos;
use super::{Locked, PolledWaker, Progress};
use crate::breaker::BreakerState;
use crate::core::slot::SlotState;
use crate::core::waiters::{Outcome, Revoked, Waiter, WaiterKey};
use crate::observe::events::Event;

impl<T, F> Locked<'_, T, F> {
    /// Tells a waiter that is polled what has become of it. Stores its waker, unless an equal one
    /// is stored already.
    pub(crate) fn poll_waiter(
        &mut self,
        key: WaiterKey,
        caller: &'static Location<'static>,
        waker: &mut PolledWaker<'_>,
    ) -> Progress<F> {
        self.note_poll(key);
        self.progress(key, caller, waker)
    }

    /// Records how long a waiter took from an offer to its poll, and resumes a revoked one.
    fn note_poll(&mut self, key: WaiterKey) {
        let Some(waiter) = self.state.waiters.get(key) else {
            return;
        };
        if waiter.revoked != Revoked::No {
            self.resume(key);
        } else if let Some(slot) = self.state.waiters.offered_slot(key)
            && let Some(since) = self.state.claims.offered_since(slot)
        {
            let took = self.clock.now().saturating_duration_since(since);
            self.state.wake_to_poll.record(nanos(took));
        }
    }

    /// Queues a waiter again whose reservation or offer was revoked, at its former position.
    #[cold]
    fn resume(&mut self, key: WaiterKey) {
        let patience = nanos(self.state.wake_to_poll.patience());
        let Some(waiter) = self.state.waiters.get_mut(key) else {
            return;
        };
        let revoked = std::mem::replace(&mut waiter.revoked, Revoked::No);
        if revoked == Revoked::Late {
            // At least the patience, even if the coarse clock stands still.
            let took = self.clock.coarse_now().saturating_sub(waiter.granted);
            self.state.wake_to_poll.record(took.max(patience));
        }
        let is_late = waiter
            .deadline
            .is_some_and(|deadline| deadline <= self.clock.now());
        let only_own_creation = waiter.only_own_creation;
        let waits = matches!(waiter.outcome, Outcome::Waiting) && !is_late;
        match (waits, only_own_creation) {
            (false, _) => {}
            // What a younger waiter has not collected is due to this one.
            (true, false) => {
                self.queue_again(key, true);
                self.take_offer_for(key);
            }
            // It never queues: it gets an idle resource or nothing.
            (true, true) => match self.take_idle(None) {
                Some(slot) => self.reserve(slot, key, false),
                None => {
                    if let Some(waiter) = self.state.waiters.get_mut(key) {
                        waiter.outcome = Outcome::Unavailable;
                    }
                }
            },
        }
    }

    /// Takes the unused offer of a younger waiter for a waiter that has nothing.
    fn take_offer_for(&mut self, key: WaiterKey) {
        let waiter = self.state.waiters.get(key);
        if waiter.is_some_and(Waiter::lacks_everything)
            && let Some(younger) = self.state.claims.offered_after(key)
        {
            self.give_up_creation(younger);
            self.mark_revoked(younger, Revoked::InTime);
            self.offer_free_slots();
            self.check();
        }
    }

    /// Returns what has become of a waiter.
    pub(super) fn progress(
        &mut self,
        key: WaiterKey,
        caller: &'static Location<'static>,
        waker: &mut PolledWaker<'_>,
    ) -> Progress<F> {
        if let Some(claim) = self.begin_creation(key) {
            return Progress::Create(key, claim);
        }
        let Some(waiter) = self.state.waiters.get_mut(key) else {
            return Progress::Closed;
        };
        if let Outcome::Resource { slot, fresh } = waiter.outcome {
            return self.collect(key, slot as usize, fresh, caller, waker);
        }
        let progress = match std::mem::replace(&mut waiter.outcome, Outcome::Waiting) {
            Outcome::Waiting
                if waiter
                    .deadline
                    .is_none_or(|deadline| deadline > self.clock.now()) =>
            {
                return self.keep_waiting(key, caller, waker);
            }
            Outcome::Failed(failure) => Progress::Failed(failure),
            Outcome::Closed => Progress::Closed,
            Outcome::Unavailable => self.unavailable(),
            Outcome::TimedOut { creating } => Progress::TimedOut { creating },
            Outcome::Waiting | Outcome::Resource { .. } => Progress::TimedOut {
                creating: waiter.creates(),
            },
        };
        self.leave(key);
        progress
    }

    /// Stores the waker of a waiter that goes on waiting, and counts it once.
    fn keep_waiting(
        &mut self,
        key: WaiterKey,
        caller: &'static Location<'static>,
        waker: &mut PolledWaker<'_>,
    ) -> Progress<F> {
        let Some(waiter) = self.state.waiters.get_mut(key) else {
            return Progress::Closed;
        };
        let known = waiter.waker.as_ref();
        if !known.is_some_and(|known| known.will_wake(waker.theirs)) {
            let Some(owned) = waker.take() else {
                return Progress::WakerNeeded(key);
            };
            let old = waiter.waker.replace(owned);
            self.deferred.discard(old);
        }
        let deadline = waiter.deadline;
        if !std::mem::replace(&mut waiter.counted, true) && !waiter.checking {
            self.state.counters.waited += 1;
            self.note_frequent(|| Event::Waiting { caller });
        }
        self.watch_for_slow_acquires();
        // The maintenance task may have gone with its runtime.
        if let Some(deadline) = deadline {
            self.call_maintenance(deadline);
        }
        if self.state.maintenance.is_none()
            && let Some(due) = self.state.next_due(self.clock.now())
        {
            self.call_maintenance(due);
        }
        Progress::Waiting(key)
    }

    /// Collects a reservation that cannot be collected without the lock.
    fn collect(
        &mut self,
        key: WaiterKey,
        index: usize,
        fresh: bool,
        caller: &'static Location<'static>,
        waker: &mut PolledWaker<'_>,
    ) -> Progress<F> {
        let slot = self.slots.at(index);
        if let Some(reason) = self.state.unfit(index, &self.clock) {
            self.state.metas[index].reserved_for = None;
            self.state.waiters.retract(key);
            slot.set(SlotState::Leased, true);
            self.destroy(index, reason);
            self.requeue(key);
            return self.progress(key, caller, waker);
        }
        slot.set(SlotState::Leased, self.state.must_flag_leases());
        slot.stamp(self.clock.coarse_now());
        if let Some(waiter) = self.state.waiters.get_mut(key) {
            if let Some(probe) = waiter.probe.take().map(NonZeroU64::get) {
                self.state.metas[index].probe = Some(probe);
            }
            self.deferred.discard(waiter.waker.take());
        }
        self.state.waiters.clear_grant(key);
        self.state.forget_collected(slot);
        self.check();
        Progress::Taken {
            slot: index,
            fresh,
            serial: Some(key.serial()),
        }
    }

    /// Lets a waiter wait again whose resource turned out to be unfit.
    pub(crate) fn requeue(&mut self, key: WaiterKey) {
        let Some(waiter) = self.state.waiters.get_mut(key) else {
            return;
        };
        waiter.checking = false;
        if !matches!(waiter.outcome, Outcome::Waiting) {
            return;
        }
        if self.state.closed {
            waiter.outcome = Outcome::Closed;
        } else if self.state.breaker.state() == BreakerState::Open || waiter.only_own_creation {
            // A waiter that never queues gets no second creation.
            waiter.outcome = Outcome::Unavailable;
        } else {
            self.queue_again(key, true);
        }
    }

    /// Parts a waiter from its offer, whose slot becomes free, or from its creation, which goes on
    /// for the queue.
    pub(super) fn give_up_creation(&mut self, key: WaiterKey) {
        if let Some(slot) = self.state.waiters.take_offer(key) {
            self.unclaim(slot);
        } else if let Some(slot) = self.state.waiters.take_creation(key) {
            self.state.claims.orphan(slot, self.clock.now());
        }
    }

    /// Removes a waiter. What was reserved for it goes to the next one.
    pub(crate) fn leave(&mut self, key: WaiterKey) {
        let Some(waiter) = self.state.waiters.get_mut(key) else {
            return;
        };
        let probe = waiter.probe.take().map(NonZeroU64::get);
        self.deferred.discard(waiter.waker.take());
        self.give_up_creation(key);
        let outcome = self.state.waiters.remove(key);
        self.end_probe(probe, None);
        match outcome {
            Outcome::Resource { slot, fresh } => {
                // Nobody else can take a slot that is reserved for the one that leaves.
                self.state.metas[slot as usize].reserved_for = None;
                self.serve_next(slot as usize, fresh);
            }
            Outcome::Failed(_) => self.deferred.rare().uncollected.push(outcome),
            _ => {}
        }
        self.offer_free_slots();
        self.check();
    }

    /// Does what is due for waiters: deadlines, revocations, the end of the back-off, warnings.
    pub(crate) fn pass_time(&mut self) {
        self.expire_waiters();
        self.revoke_uncollected();
        self.offer_free_slots();
        self.find_slow_acquires();
        self.state.waiters.shrink();
    }

    /// Fails every waiter whose deadline has passed.
    fn expire_waiters(&mut self) {
        while let Some(key) = self.state.waiters.pop_expired(self.clock.now()) {
            let Some(waiter) = self.state.waiters.get_mut(key) else {
                continue;
            };
            // What was granted in time counts.
            if !matches!(waiter.outcome, Outcome::Waiting) {
                continue;
            }
            let creating = waiter.creates();
            waiter.outcome = Outcome::TimedOut { creating };
            self.deferred.wake(waiter.waker.take());
            self.state.waiters.unlink_key(key);
            self.give_up_creation(key);
        }
        self.offer_free_slots();
        self.check();
    }

    /// Fails every waiter, also one with a reservation that it has not collected.
    pub(super) fn fail_all_waiters(&mut self, outcome: impl Fn() -> Outcome<F>) {
        let mut back = Vec::new();
        for key in self.state.waiters.keys() {
            back.extend(self.take_back(key));
            // A waiter that has collected its resource has its lease, and no entry.
            let Some(waiter) = self.state.waiters.get_mut(key) else {
                continue;
            };
            if waiter.checking || !matches!(waiter.outcome, Outcome::Waiting) {
                continue;
            }
            waiter.outcome = outcome();
            self.deferred.wake(waiter.waker.take());
            self.state.waiters.unlink_key(key);
            self.give_up_creation(key);
        }
        for (index, fresh) in back {
            self.serve_next(index, fresh);
        }
    }
}
