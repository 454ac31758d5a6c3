//! Those who wait: arriving, looking, leaving, and being passed over.

use std::num::NonZeroU64;
use std::panic::Location;
use std::task::Waker;
use std::time::{Duration, Instant};

use super::{Turn, narrow};
use crate::breaker::{Admission, BreakerState};
use crate::events::Event;
use crate::slot::Phase;
use crate::user_code::Contained;
use crate::waiters::{Newcomer, Outcome, Position, Waiter, WaiterKey};

/// How long a reservation waits to be collected before it is passed on.
const PATIENCE: Duration = Duration::from_secs(1);

/// An acquire that comes by the lock.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) caller: &'static Location<'static>,
    pub(crate) deadline: Option<Instant>,
    /// The slot this thread used last.
    pub(crate) hint: Option<usize>,
    pub(crate) patience: Patience,
    /// It was served before, and the acquire hook refused what it got.
    pub(crate) refused: bool,
    /// Its number in the order of arrival, if it was in the queue before.
    pub(crate) serial: Option<u32>,
}

impl Arrival {
    fn newcomer(&self) -> Newcomer {
        Newcomer {
            deadline: self.deadline,
            serial: self.serial,
            waker: None,
            counted: false,
            probe: None,
        }
    }
}

/// The waker of an acquire that looks. Cloning one is its executor's code, so the
/// clone, where one is needed, is made before the lock is taken.
#[derive(Debug)]
pub(crate) struct Offered<'a> {
    theirs: &'a Waker,
    owned: Option<Contained<Waker>>,
}

impl<'a> Offered<'a> {
    /// With a clone of its own, if it will be left.
    pub(crate) fn new(theirs: &'a Waker, cloned: bool) -> Self {
        let owned = cloned.then(|| Contained::new(theirs.clone()));
        Offered { theirs, owned }
    }

    fn take(&mut self) -> Option<Waker> {
        self.owned.take().map(Contained::into_inner)
    }
}

/// How far an acquire goes for a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Patience {
    /// Only what is idle.
    Idle,
    /// What is idle, or a creation of its own.
    Create,
    /// Queues.
    Queue,
}

/// What an acquire finds when it looks. Except for the first three, its entry is
/// gone with that.
#[derive(Debug)]
pub(crate) enum Looked<F> {
    Waiting(WaiterKey),
    /// It waits, and should look again with a waker of its own to leave.
    WakerNeeded(WaiterKey),
    /// A place to create in: the caller starts a creation and looks again.
    Create(WaiterKey, usize),
    /// A leased slot, and its number in the order of arrival if it had queued.
    Taken {
        slot: usize,
        fresh: bool,
        serial: Option<u32>,
    },
    /// There is nothing, and it would not wait.
    Exhausted,
    Failed(Box<F>),
    Closed,
    Unavailable,
    /// Out of time, and whether a creation of its own was under way.
    TimedOut {
        creating: bool,
    },
}

impl<T, F> Turn<'_, T, F> {
    /// An acquire arrives.
    pub(crate) fn enter(&mut self, arrival: &Arrival, waker: &mut Offered<'_>) -> Looked<F> {
        if self.state.closed {
            return Looked::Closed;
        }
        self.start_lost_keeper();
        // One that was served before and refused has been admitted already.
        let open = self.state.breaker.state() == BreakerState::Inactive;
        let probe = if arrival.refused && !open {
            None
        } else {
            match self.state.breaker.admit() {
                Admission::Refused => return Looked::Unavailable,
                Admission::Free => None,
                Admission::Probe(epoch) => Some(epoch),
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
                    && self.state.nobody_lacks_a_creation() => {}
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
            let place = self.claim();
            if let Some(waiter) = self.state.waiters.get_mut(key) {
                waiter.only_own_job = true;
                waiter.give_place(place);
            }
        } else {
            self.queue(key, Position::Back);
        }
        self.look(key, arrival.caller, waker)
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
            self.call_keeper(deadline);
        }
        key
    }

    /// Puts a waiter into the queue and gives it what there is to give.
    pub(crate) fn queue(&mut self, key: WaiterKey, position: Position) {
        // While somebody waits, everything is flagged already (I2).
        let first = self.state.waiters.waiting() == 0;
        self.state.waiters.link(key, position);
        if first {
            self.summon_for_the_queue();
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
    pub(super) fn summon_for_the_queue(&mut self) {
        for (index, slot) in self.slots.iter() {
            if slot.summon() == Phase::Idle && slot.take_locked() {
                self.state.forget_idle(index);
                slot.note_pool();
                self.pass_on(index, false);
            }
            if self.state.waiters.waiting() == 0 {
                break;
            }
        }
    }

    /// A waiter looks what has become of it, and leaves its waker unless that has
    /// been done.
    pub(crate) fn look(
        &mut self,
        key: WaiterKey,
        caller: &'static Location<'static>,
        waker: &mut Offered<'_>,
    ) -> Looked<F> {
        let Some(waiter) = self.state.waiters.get_mut(key) else {
            return Looked::Closed;
        };
        if let Some(place) = waiter.take_place() {
            waiter.job = true;
            return Looked::Create(key, place);
        }
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
                // The keeper may have gone with its runtime.
                if let Some(deadline) = deadline {
                    self.call_keeper(deadline);
                }
                if self.state.keeper.is_none()
                    && let Some(due) = self.state.next_due(self.clock.now())
                {
                    self.call_keeper(due);
                }
                return Looked::Waiting(key);
            }
            Outcome::Resource { slot, fresh } => {
                return self.collect(key, slot as usize, fresh, caller, waker);
            }
            Outcome::Failed(failure) => Looked::Failed(failure),
            Outcome::Closed => Looked::Closed,
            Outcome::Unavailable => Looked::Unavailable,
            Outcome::TimedOut | Outcome::Waiting => Looked::TimedOut {
                creating: waiter.job,
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
            self.condemn(slot, reason);
            self.requeue(key);
            return self.look(key, caller, waker);
        }
        let summon = self.state.summons_leases();
        self.slots.at(slot).set(Phase::Leased, summon);
        if self.state.timed {
            self.state.metas[slot].leased = Some(self.clock.now());
        }
        if let Some(waiter) = self.state.waiters.get_mut(key) {
            if let Some(epoch) = waiter.probe.take().map(NonZeroU64::get) {
                self.state.metas[slot].probe = Some(epoch);
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
    /// `than`; that one is back in the queue.
    pub(super) fn unreserve_youngest(&mut self, than: Option<WaiterKey>) -> Option<(usize, bool)> {
        if self.uncollected() == 0 {
            return None;
        }
        loop {
            let key = self.state.waiters.youngest_reserved(than)?;
            if self.state.waiters.get(key)?.only_own_job {
                return None;
            }
            // If it collects at this very moment, its entry is gone: look again.
            if let Some(reserved) = self.take_back(key) {
                self.relink(key);
                return Some(reserved);
            }
        }
    }

    /// Puts a waiter that lost what it was given back into the queue, where it
    /// would be if it had stayed; unless its time is over.
    fn relink(&mut self, key: WaiterKey) {
        let Some(waiter) = self.state.waiters.get_mut(key) else {
            return;
        };
        if waiter
            .deadline
            .is_some_and(|deadline| deadline <= self.clock.now())
        {
            waiter.outcome = Outcome::TimedOut;
            self.after.wake(waiter.waker.take());
        } else {
            self.state.waiters.link(key, Position::Arrival);
        }
    }

    /// A waiter leaves, served or not; what it was given and did not collect
    /// goes to the next.
    pub(crate) fn leave(&mut self, key: WaiterKey) {
        let Some(waiter) = self.state.waiters.get_mut(key) else {
            return;
        };
        let (place, probe) = (
            waiter.take_place(),
            waiter.probe.take().map(NonZeroU64::get),
        );
        self.after.discard(waiter.waker.take());
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
        if let Some(place) = place {
            self.unclaim(place);
        }
        self.settle();
        self.check();
    }

    pub(super) fn start_patience(&mut self) {
        if self.state.patience_over.is_none() {
            self.state.patience_over = self.clock.now().checked_add(PATIENCE);
            if let Some(over) = self.state.patience_over {
                self.call_keeper(over);
            }
        }
    }

    /// Takes back what was granted and not collected in time, if somebody else
    /// waits for it; the one it is taken from gets its old place in the queue.
    pub(crate) fn revoke_uncollected(&mut self) {
        if self
            .state
            .patience_over
            .is_none_or(|over| over > self.clock.now())
        {
            return;
        }
        self.state.patience_over = None;
        self.uncollected();
        let mut next: Option<Duration> = None;
        let mut kept = false;
        let coarse = self.clock.coarse_now();
        for key in self.state.waiters.keys() {
            let Some(waiter) = self.state.waiters.get(key) else {
                continue;
            };
            // By the coarse clock, which a hand-over can afford to read.
            let granted_for = Duration::from_nanos(coarse.saturating_sub(waiter.granted));
            let left = PATIENCE.saturating_sub(granted_for);
            let reserved = matches!(waiter.outcome, Outcome::Resource { .. });
            match (reserved, waiter.has_place()) {
                (false, false) => {}
                _ if !left.is_zero() => next = Some(next.map_or(left, |next| next.min(left))),
                // Not in the queue: nothing else could serve it.
                _ if waiter.only_own_job => {}
                (true, _) if self.state.waiters.waiting() > 0 => {
                    if let Some((slot, fresh)) = self.take_back(key) {
                        self.pass_on(slot, fresh);
                        self.relink(key);
                        self.summon_for_the_queue();
                    }
                }
                // To the next who could use it; if there is none, it stays.
                (_, true) => kept |= !self.move_place(key),
                _ => kept = true,
            }
        }
        // Those that stay uncollected with nobody else waiting are looked at
        // again after another while: by then somebody may have come.
        if kept {
            next = Some(next.map_or(PATIENCE, |next| next.min(PATIENCE)));
        }
        let next = next.and_then(|left| self.clock.now().checked_add(left));
        self.state.patience_over = match (self.state.patience_over, next) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        self.settle();
        self.check();
    }

    /// Moves the place that one waiter was given and did not collect to the next
    /// who could use it; `false` if there is none.
    fn move_place(&mut self, from: WaiterKey) -> bool {
        let waiters = &mut self.state.waiters;
        let Some(to) = waiters.first_without_creation() else {
            return false;
        };
        let place = waiters.get_mut(from).and_then(Waiter::take_place);
        if let Some(place) = place
            && let Some(to) = waiters.get_mut(to)
        {
            to.give_place(narrow(place));
            to.granted = self.clock.coarse_now();
            self.after.wake(to.waker.take());
        }
        true
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
            waiter.outcome = Outcome::TimedOut;
            let place = waiter.take_place();
            self.after.wake(waiter.waker.take());
            self.state.waiters.unlink_key(key);
            if let Some(place) = place {
                self.unclaim(place);
            }
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
            let place = waiter.take_place();
            self.after.wake(waiter.waker.take());
            self.state.waiters.unlink_key(key);
            if let Some(place) = place {
                self.unclaim(place);
            }
        }
        for (index, fresh) in back {
            self.pass_on(index, fresh);
        }
    }
}
