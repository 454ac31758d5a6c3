//! Those who wait: arriving, looking, leaving, and being passed over.

use std::num::NonZeroU64;
use std::panic::Location;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::{Arrival, Locked, Looked, Offered, Patience};
use crate::breaker::{Admission, BreakerState};
use crate::core::slot::Phase;
use crate::core::waiters::{Lost, Newcomer, Outcome, Position, Waiter, WaiterKey};
use crate::observe::events::Event;

impl<T, F> Locked<'_, T, F> {
    /// An acquire arrives.
    pub(crate) fn enter(&mut self, arrival: &Arrival, waker: &mut Offered<'_>) -> Looked<F> {
        if self.state.closed {
            return Looked::Closed;
        }
        self.restart_maintenance();
        // One that was served before and refused has been admitted already.
        let open = self.state.breaker.state() == BreakerState::Inactive;
        let probe = if arrival.refused && !open {
            None
        } else {
            match self.state.breaker.admit(|| self.clock.now()) {
                Admission::Refused => return Looked::Unavailable,
                Admission::Free => None,
                Admission::Probe(probe) => Some(probe),
            }
        };
        if let Some(slot) = self.take_idle(arrival.hint) {
            if probe.is_some() {
                self.state.metas[slot].probe = probe;
            }
            return Looked::Taken {
                slot,
                fresh: false,
                serial: None,
            };
        }
        match arrival.patience {
            Patience::Queue => {}
            Patience::Create
                if self.state.may_create(self.clock.now())
                    && self.state.first_without_creation().is_none() => {}
            Patience::Idle | Patience::Create => {
                self.end_probe(probe, None);
                return Looked::Exhausted;
            }
        }
        let newcomer = Newcomer {
            waker: waker.take(),
            probe: probe.and_then(NonZeroU64::new),
            ..arrival.newcomer()
        };
        let key = self.admit_waiter(arrival.deadline, newcomer);
        if arrival.patience == Patience::Create {
            if let Some(waiter) = self.state.waiters.get_mut(key) {
                waiter.only_own_job = true;
            }
            self.offer_place(key);
        } else {
            self.queue(key, Position::Back);
            if !arrival.refused
                && let Some(full) = self.turn_away(key)
            {
                return full;
            }
        }
        self.answer(key, arrival.caller, waker)
    }

    /// Turns a newcomer away that would have to wait for others, if enough do.
    fn turn_away(&mut self, key: WaiterKey) -> Option<Looked<F>> {
        let limit = self.state.max_waiting;
        let waiting = self.state.waiters.without_creation();
        if waiting <= limit || !self.state.waiters.get(key)?.lacks_everything() {
            return None;
        }
        self.state.counters.rejected += 1;
        self.leave(key);
        Some(Looked::QueueFull {
            waiting: waiting - 1,
            limit,
        })
    }

    /// An acquire whose resource the hook refused queues again. `None` if the pool
    /// was closed or its breaker opened meanwhile: then it had better enter anew.
    pub(crate) fn queue_refused(
        &mut self,
        arrival: &Arrival,
        waker: &mut Option<Waker>,
    ) -> Option<WaiterKey> {
        if self.state.closed || self.state.breaker.state() == BreakerState::Inactive {
            return None;
        }
        let newcomer = Newcomer {
            waker: waker.take(),
            ..arrival.newcomer()
        };
        let key = self.admit_waiter(arrival.deadline, newcomer);
        self.queue_again(key, arrival.serial.is_some());
        Some(key)
    }

    /// Makes an entry for an acquire whose hook waits, for its deadline alone.
    pub(crate) fn admit_checking(&mut self, arrival: &Arrival) -> WaiterKey {
        let key = self.admit_waiter(arrival.deadline, arrival.newcomer());
        if let Some(waiter) = self.state.waiters.get_mut(key) {
            waiter.checking = true;
        }
        key
    }

    /// Makes an entry for an acquire that needs one; it is not queued yet.
    fn admit_waiter(&mut self, deadline: Option<Instant>, newcomer: Newcomer) -> WaiterKey {
        let key = self.state.waiters.insert(newcomer);
        if let Some(deadline) = deadline {
            self.call_maintenance(deadline);
        }
        key
    }

    /// Puts a waiter into the queue and gives it what there is to give.
    pub(crate) fn queue(&mut self, key: WaiterKey, position: Position) {
        // While somebody waits, everything is flagged already (I2).
        let first = self.state.waiters.waiting() == 0;
        self.state.waiters.link(key, position);
        if first {
            self.flag_leases_for_queue();
            if self.state.overdue {
                self.revoke_uncollected();
            }
        }
        self.settle();
        self.check();
    }

    /// Puts a waiter back that was served with something unfit: where it would
    /// be if it had stayed, or at the front if it came when there was no queue.
    fn queue_again(&mut self, key: WaiterKey, was_queued: bool) {
        let position = match was_queued {
            true => Position::Arrival,
            false => Position::Front,
        };
        self.queue(key, position);
        let waiter = self.state.waiters.get(key);
        let still = waiter.is_some_and(|waiter| matches!(waiter.outcome, Outcome::Waiting));
        if still
            && was_queued
            && let Some((slot, fresh)) = self.unreserve_youngest(Some(key))
        {
            // One that came later has something: that is due to this one.
            self.pass_on(slot, fresh);
            self.settle();
            self.check();
        }
    }

    /// Flags every leased slot and gives away those that turn out to be idle:
    /// one that came back after the acquire had looked.
    pub(super) fn flag_leases_for_queue(&mut self) {
        for (index, slot) in self.slots.iter() {
            if slot.set_must_lock() == Phase::Idle && slot.take_locked() {
                self.state.forget_idle(index);
                slot.note_pool();
                self.pass_on(index, false);
            }
            if self.state.waiters.waiting() == 0 {
                break;
            }
        }
    }

    /// A waiter is polled: it looks what has become of it, and leaves its waker unless
    /// that has been done.
    pub(crate) fn look(
        &mut self,
        key: WaiterKey,
        caller: &'static Location<'static>,
        waker: &mut Offered<'_>,
    ) -> Looked<F> {
        self.note_poll(key);
        self.answer(key, caller, waker)
    }

    /// Notes how long a waiter took to be polled, if it was given something.
    fn note_poll(&mut self, key: WaiterKey) {
        let Some(waiter) = self.state.waiters.get(key) else {
            return;
        };
        if waiter.lost != Lost::Nothing {
            self.resume(key);
        } else if let Outcome::Resource { .. } = waiter.outcome {
            let took = self.clock.coarse_now().saturating_sub(waiter.granted);
            self.state.wake_to_poll.note(took);
        } else if let Some(place) = self.state.waiters.unused_place(key)
            && let Some(since) = self.state.claims.offered_since(place)
        {
            let took = self.clock.now().saturating_duration_since(since);
            self.state.wake_to_poll.note(nanos(took));
        }
    }

    /// A waiter that lost what it was given is polled: it queues again, where it would
    /// be if it had stayed.
    #[cold]
    fn resume(&mut self, key: WaiterKey) {
        let patience = nanos(self.state.wake_to_poll.patience());
        let Some(waiter) = self.state.waiters.get_mut(key) else {
            return;
        };
        let lost = std::mem::replace(&mut waiter.lost, Lost::Nothing);
        if lost == Lost::Late {
            // At least the patience, even if the coarse clock stands still.
            let took = self.clock.coarse_now().saturating_sub(waiter.granted);
            self.state.wake_to_poll.note(took.max(patience));
        }
        let is_late = waiter
            .deadline
            .is_some_and(|deadline| deadline <= self.clock.now());
        let only_own_job = waiter.only_own_job;
        let waits = matches!(waiter.outcome, Outcome::Waiting) && !is_late;
        match (waits, only_own_job) {
            (false, _) => {}
            // What one that came later has not collected is due to this one.
            (true, false) => {
                self.queue_again(key, true);
                self.take_offer_for(key);
            }
            // It never queues: what is idle, or as if there had been nothing to take.
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

    /// Takes a place back that one that came later has not begun to use, if this waiter
    /// lacks everything.
    fn take_offer_for(&mut self, key: WaiterKey) {
        let waiter = self.state.waiters.get(key);
        if waiter.is_some_and(Waiter::lacks_everything)
            && let Some(later) = self.state.claims.offered_after(key)
        {
            self.give_up_creation(later);
            self.suspend(later, Lost::InTime);
            self.settle();
            self.check();
        }
    }

    /// What has become of a waiter, which is polled.
    fn answer(
        &mut self,
        key: WaiterKey,
        caller: &'static Location<'static>,
        waker: &mut Offered<'_>,
    ) -> Looked<F> {
        if let Some(claim) = self.begin_creation(key) {
            return Looked::Create(key, claim);
        }
        let Some(waiter) = self.state.waiters.get_mut(key) else {
            return Looked::Closed;
        };
        let looked = match std::mem::replace(&mut waiter.outcome, Outcome::Waiting) {
            Outcome::Waiting
                if waiter
                    .deadline
                    .is_none_or(|deadline| deadline > self.clock.now()) =>
            {
                let known = waiter.waker.as_ref();
                if !known.is_some_and(|known| known.will_wake(waker.theirs)) {
                    let Some(owned) = waker.take() else {
                        return Looked::WakerNeeded(key);
                    };
                    let old = waiter.waker.replace(owned);
                    self.after.discard(old);
                }
                let deadline = waiter.deadline;
                if !std::mem::replace(&mut waiter.counted, true) && !waiter.checking {
                    self.state.counters.waited += 1;
                    self.note(|| Event::Waiting { caller });
                }
                // The maintenance task may have gone with its runtime.
                if let Some(deadline) = deadline {
                    self.call_maintenance(deadline);
                }
                if self.state.maintenance.is_none()
                    && let Some(due) = self.state.next_due(self.clock.now())
                {
                    self.call_maintenance(due);
                }
                return Looked::Waiting(key);
            }
            Outcome::Resource { slot, fresh } => {
                return self.collect(key, slot as usize, fresh, caller, waker);
            }
            Outcome::Failed(failure) => Looked::Failed(failure),
            Outcome::Closed => Looked::Closed,
            Outcome::Unavailable => Looked::Unavailable,
            Outcome::TimedOut { creating } => Looked::TimedOut { creating },
            Outcome::Waiting => Looked::TimedOut {
                creating: waiter.creates(),
            },
        };
        self.leave(key);
        looked
    }

    /// A waiter takes what is reserved for it, and could not without the lock.
    fn collect(
        &mut self,
        key: WaiterKey,
        slot: usize,
        fresh: bool,
        caller: &'static Location<'static>,
        waker: &mut Offered<'_>,
    ) -> Looked<F> {
        self.state.metas[slot].reserved_for = None;
        self.state.waiters.retract(key);
        if let Some(reason) = self.state.unfit(slot, &self.clock) {
            self.slots.at(slot).set(Phase::Leased, true);
            self.destroy(slot, reason);
            self.requeue(key);
            return self.answer(key, caller, waker);
        }
        let must_lock = self.state.must_flag_leases();
        self.slots.at(slot).set(Phase::Leased, must_lock);
        if self.state.timed {
            self.state.metas[slot].leased = Some(self.clock.now());
        }
        if let Some(waiter) = self.state.waiters.get_mut(key) {
            if let Some(probe) = waiter.probe.take().map(NonZeroU64::get) {
                self.state.metas[slot].probe = Some(probe);
            }
            self.after.discard(waiter.waker.take());
        }
        self.state.waiters.remove(key);
        self.check();
        Looked::Taken {
            slot,
            fresh,
            serial: Some(key.serial()),
        }
    }

    /// A waiter whose resource turned out to be unfit waits again.
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
        } else if self.state.breaker.state() == BreakerState::Inactive || waiter.only_own_job {
            // One that never queues gets no second creation: as if there had
            // been nothing to take.
            waiter.outcome = Outcome::Unavailable;
        } else {
            self.queue_again(key, true);
        }
    }

    /// Takes the reservation of the waiter that arrived last, and later than
    /// `than`; that one is back in the queue when it is polled.
    pub(super) fn unreserve_youngest(&mut self, than: Option<WaiterKey>) -> Option<(usize, bool)> {
        if self.uncollected() == 0 {
            return None;
        }
        loop {
            let key = self.state.waiters.youngest_reserved(than)?;
            // If it collects at this very moment, its entry is gone: look again.
            if let Some(reserved) = self.take_back(key) {
                self.suspend(key, Lost::InTime);
                return Some(reserved);
            }
        }
    }

    /// A waiter lost what it was given: it is in the queue again when it is polled, and
    /// gets nothing before. It has been woken, so it need not be woken for that.
    fn suspend(&mut self, key: WaiterKey, lost: Lost) {
        self.state.waiters.unlink_key(key);
        if let Some(waiter) = self.state.waiters.get_mut(key) {
            waiter.lost = lost;
        }
    }

    /// A waiter needs neither its place nor its creation any more. The place is free; the
    /// creation goes on for the queue.
    pub(super) fn give_up_creation(&mut self, key: WaiterKey) {
        if let Some(place) = self.state.waiters.take_place(key) {
            self.unclaim(place);
        } else if let Some(place) = self.state.waiters.take_job(key) {
            self.state.claims.orphan(place, self.clock.now());
        }
    }

    /// A waiter leaves, served or not; what it was given and did not collect
    /// goes to the next.
    pub(crate) fn leave(&mut self, key: WaiterKey) {
        let Some(waiter) = self.state.waiters.get_mut(key) else {
            return;
        };
        let probe = waiter.probe.take().map(NonZeroU64::get);
        self.after.discard(waiter.waker.take());
        self.give_up_creation(key);
        let outcome = self.state.waiters.remove(key);
        self.end_probe(probe, None);
        match outcome {
            Outcome::Resource { slot, fresh } => {
                // Reserved for the one that leaves, so nobody else can take it.
                self.state.metas[slot as usize].reserved_for = None;
                self.pass_on(slot as usize, fresh);
            }
            Outcome::Failed(_) => self.after.rare().uncollected.push(outcome),
            _ => {}
        }
        self.settle();
        self.check();
    }

    /// A reservation was made: it is to be collected within the patience.
    pub(super) fn start_patience(&mut self) {
        if self.state.patience_over.is_none() {
            let patience = self.state.wake_to_poll.patience();
            self.state.patience_over = self.clock.now().checked_add(patience);
            if let Some(over) = self.state.patience_over {
                self.call_maintenance(over);
            }
        }
    }

    /// Takes back what was granted and not collected in time, while somebody in the
    /// queue waits for it. The one it is taken from gets nothing until it is polled.
    pub(crate) fn revoke_uncollected(&mut self) {
        let now = self.clock.now();
        let is_due = self.state.patience_over.is_some_and(|over| over <= now);
        if !is_due && !self.state.overdue {
            return;
        }
        self.state.patience_over = None;
        self.state.overdue = false;
        let patience = self.state.wake_to_poll.patience();
        let coarse = self.clock.coarse_now();
        let mut next: Option<Instant> = None;
        for (index, slot) in self.slots.iter() {
            let word = slot.word();
            match word.phase() {
                Phase::Reserved => {}
                Phase::Idle | Phase::Leased => {
                    self.state.forget_collected(slot);
                    continue;
                }
                Phase::Vacant | Phase::Creating => continue,
            }
            let meta = &mut self.state.metas[index];
            let Some(key) = meta.reserved_for else {
                continue;
            };
            // The coarse clock, which a hand-over can afford to read, says since when;
            // if it stands still, the precise one says since the last look.
            if meta.seen.0 != word.mark() {
                meta.seen = (word.mark(), now);
            }
            let seen_for = now.saturating_duration_since(meta.seen.1);
            let granted = self.state.waiters.get(key).map(|waiter| waiter.granted);
            let granted_for = coarse.saturating_sub(granted.unwrap_or(coarse));
            let left = patience.saturating_sub(seen_for.max(Duration::from_nanos(granted_for)));
            if !left.is_zero() {
                let over = now.checked_add(left);
                next = [next, over].into_iter().flatten().min();
            } else if self.state.waiters.waiting() == 0 {
                // It stays while nobody else wants it: the next arrival looks again.
                self.state.overdue = true;
            } else if let Some((slot, fresh)) = self.take_back(key) {
                self.suspend(key, Lost::Late);
                self.state.counters.revoked += 1;
                self.pass_on(slot, fresh);
            }
        }
        let since = [self.state.patience_over, next];
        self.state.patience_over = since.into_iter().flatten().min();
        self.settle();
        self.check();
    }

    /// Takes back the places that waiters have not begun to create in, while somebody in
    /// the queue lacks one. For those as for reservations.
    pub(super) fn revoke_offers(&mut self) {
        let now = self.clock.now();
        let patience = self.state.wake_to_poll.patience();
        while self.state.first_without_creation().is_some()
            && let Some((key, since)) = self.state.claims.overdue_offer(patience, now)
        {
            let waited = nanos(now.saturating_duration_since(since));
            let granted = self.clock.coarse_now().saturating_sub(waited);
            if let Some(waiter) = self.state.waiters.get_mut(key) {
                waiter.granted = granted;
            }
            self.give_up_creation(key);
            self.suspend(key, Lost::Late);
            self.state.counters.revoked += 1;
            self.offer_places();
        }
    }

    /// Does what is due for those who wait: deadlines, reservations, the end of the back-off.
    pub(crate) fn pass_time(&mut self) {
        self.expire();
        self.revoke_uncollected();
        self.settle();
        self.state.waiters.shrink();
    }

    /// Fails every waiter whose deadline has passed.
    pub(crate) fn expire(&mut self) {
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
            self.after.wake(waiter.waker.take());
            self.state.waiters.unlink_key(key);
            self.give_up_creation(key);
        }
        self.settle();
        self.check();
    }

    /// Fails every waiter, also one that has a reservation it did not collect.
    pub(super) fn fail_all(&mut self, outcome: impl Fn() -> Outcome<F>) {
        let mut back = Vec::new();
        for key in self.state.waiters.keys() {
            back.extend(self.take_back(key));
            // Gone, if it has collected what it was given: it has its lease.
            let Some(waiter) = self.state.waiters.get_mut(key) else {
                continue;
            };
            if waiter.checking || !matches!(waiter.outcome, Outcome::Waiting) {
                continue;
            }
            waiter.outcome = outcome();
            self.after.wake(waiter.waker.take());
            self.state.waiters.unlink_key(key);
            self.give_up_creation(key);
        }
        for (index, fresh) in back {
            self.pass_on(index, fresh);
        }
    }
}

fn nanos(time: Duration) -> u64 {
    // Good for 584 years.
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
