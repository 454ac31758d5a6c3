//! The pool's state machine: everything that is decided under the lock.
//!
//! The holder of the lock has a [`Locked`], through which the state changes. A change is synchronous.
//! It calls no hook, wakes nobody and drops no resource; it reads the runtime's clock at most once.
//! Everything else that follows from it is collected in [`Deferred`] and done after the unlock.
//!
//! | file | what it decides |
//! |---|---|
//! | `join` | who joins the queue, and where |
//! | `serve` | who is served next |
//! | `revoke` | who loses a reservation, and when |
//! | `waiting` | what becomes of a waiter that is polled, leaves or runs out of time |
//! | `resources` | which idle resource is taken; creations and destructions |
//! | `changes` | closing, resizing, retiring, the breaker |
//!
//! # Invariants
//!
//! [`Locked::check`] asserts them after every change, in debug builds.
//!
//! I1. `total` is the number of slots that are not vacant, `claims` has one entry for each slot in
//!     creation, and a slot is claimed only while `total < max`.
//! I2. While somebody is in the queue, no slot is idle and every leased one is flagged, so that no
//!     resource overtakes the queue and none comes back unseen. A waiter whose reservation was
//!     revoked is not in the queue until it is polled; where only such waiters exist, slots may be
//!     idle.
//! I3. If a waiter in the queue has no creation under way for it (an orphaned one counts for 1 s),
//!     then the pool is full, the creation limit is reached, or a back-off is running.
//! I4. While the pool is *watched* (see [`State::watched`]), every idle and leased slot is flagged:
//!     every acquire and release takes the lock.
//! I5. A closed pool has no waiter and no idle resource.

mod arrival;
mod changes;
mod join;
mod locked;
mod resources;
mod revoke;
mod serve;
#[cfg(all(test, not(loom)))]
mod tests;
mod waiting;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::task::Waker;
use std::time::{Duration, Instant};

pub(crate) use self::arrival::{AcquireMode, Arrival, PolledWaker, Progress};
pub(crate) use self::locked::{Clock, Deferred, Locked, MaintenanceCall};
use self::revoke::WakeToPoll;
use crate::breaker::{Breaker, BreakerState};
use crate::config::{Config, Order};
use crate::core::backoff::Backoff;
use crate::core::claims::Claims;
use crate::core::slot::{Slot, SlotState, Slots};
use crate::core::waiters::{WaiterKey, Waiters};
use crate::observe::events::DestroyReason;
use crate::observe::log;
use crate::observe::status::{
    Counters, CreationError, QueuedAcquire, ResourceId, Status, WaitReason,
};
use crate::upkeep::replace::Replacing;

/// What the pool knows about the resource in a slot. Meaningless while the slot is vacant.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub(crate) id: ResourceId,
    pub(crate) expires: Option<Instant>,
    /// It had expired at the last sweep, so that a hand-off need not read the clock.
    pub(crate) is_expired: bool,
    /// It is destroyed as soon as nobody holds it.
    pub(crate) retiring: Option<DestroyReason>,
    /// The number of its last return, which is its position in the ring.
    pub(crate) returned: u64,
    /// Its lifetime is over, and its replacement is being created.
    pub(crate) replaced: bool,
    /// The pool's generation when its creation began.
    pub(crate) generation: u64,
    /// The number of the last predicate of `retain` that it need not be asked about.
    pub(crate) judged: u64,
    /// The executor that its I/O depends on.
    pub(crate) domain: Option<u64>,
    /// The number of the breaker's probe, if the current lease is one.
    pub(crate) probe: Option<u64>,
    /// The slot's mark at the last look of maintenance, and since when it has been that.
    pub(crate) seen: (u64, Instant),
    /// The mark of the lease that a leak warning was given for.
    pub(crate) warned: Option<u64>,
    /// The waiter that it was reserved for last, until its entry is dropped.
    pub(crate) reserved_for: Option<WaiterKey>,
}

impl Meta {
    /// Whether more has to be decided than who gets the resource next.
    #[inline]
    fn needs_decision(&self) -> bool {
        self.retiring.is_some() || self.is_expired || self.probe.is_some()
    }
}

/// The fields that change with every hand-off come first, beside the lock; those that every critical
/// section reads follow.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct State<F> {
    pub(crate) waiters: Waiters<F>,
    pub(crate) metas: Vec<Meta>,
    pub(crate) max: usize,
    total: usize,
    /// Of the total: being destroyed.
    destroying: usize,
    /// How many waiters without a creation of their own there may be.
    pub(crate) max_waiting: usize,
    order: Order,
    pub(crate) closed: bool,
    /// [`State::allows_short_paths`], as of the last unlock.
    pub(crate) short_paths: bool,
    /// Somebody listens to all events.
    pub(crate) observed: bool,
    /// Somebody listens to rare events, or to all.
    pub(crate) heard: bool,
    /// The maintenance task is missing, and the next acquire starts it.
    pub(crate) maintenance_lost: bool,
    /// Until when the maintenance task sleeps; `None` if there is no such task.
    pub(crate) maintenance: Option<Option<Instant>>,
    /// When maintenance next looks for reservations to revoke.
    revoke_at: Option<Instant>,
    /// Some reservations may have become overdue while nobody was in the queue.
    has_overdue: bool,
    /// When maintenance next looks for slow acquires; see `slow_acquires.rs`.
    pub(crate) slow_look_at: Option<Instant>,
    pub(crate) wake_to_poll: WakeToPoll,
    pub(crate) breaker: Breaker,
    pub(crate) counters: Counters,
    pub(crate) min: usize,
    /// `open` is creating the first resources, one by one.
    pub(crate) warming: bool,
    creation_limit: usize,
    create_timeout: Option<Duration>,
    /// After how long an acquire counts as slow; `None` if nobody is warned.
    pub(crate) slow_after: Option<Duration>,
    pub(crate) claims: Claims,
    /// Vacant slots, lowest first.
    vacant: BinaryHeap<Reverse<usize>>,
    /// Idle slots in the order of their return, for `Order::Fifo` and `Lifo`.
    ring: VecDeque<usize>,
    pub(crate) backoff: Backoff,
    /// The pool is closed and its last slot is vacant.
    pub(crate) drained: bool,
    pub(crate) last_creation_error: Option<CreationError>,
    next_id: u64,
    /// How often `replace_all` was called. Resources of an earlier generation are outdated.
    pub(crate) generation: u64,
    /// There may be outdated resources.
    pub(crate) outdated: bool,
    pub(crate) replacing: Replacing,
    /// How often `retain` was called.
    pub(crate) retains: u64,
    /// There may be resources that have not passed every predicate.
    pub(crate) judging: bool,
    /// The number of resources returned so far: the next sequence number in `ring`.
    returns: u64,
    /// The wakers of tasks that wait for the pool to be closed or drained.
    pub(crate) close_waiters: Vec<(u64, Waker)>,
    pub(crate) next_close_waiter: u64,
    /// The executors that a runtime watch exists for.
    pub(crate) domains: Vec<u64>,
    pub(crate) next_healthcheck: Option<Instant>,
    pub(crate) healthcheck_runs: bool,
    pub(crate) next_sweep: Option<Instant>,
}

impl<F> State<F> {
    pub(crate) fn new(config: &Config) -> Self {
        State {
            max: config.max,
            min: config.min,
            warming: false,
            order: config.order,
            create_timeout: config.create_timeout,
            slow_after: config.slow_acquire_warning.filter(|_| log::WARNS),
            creation_limit: config.concurrent_creations.unwrap_or(usize::MAX),
            total: 0,
            claims: Claims::default(),
            destroying: 0,
            max_waiting: config.max_waiting.unwrap_or(usize::MAX),
            vacant: BinaryHeap::new(),
            ring: VecDeque::new(),
            metas: Vec::new(),
            waiters: Waiters::new(),
            revoke_at: None,
            has_overdue: false,
            slow_look_at: None,
            wake_to_poll: WakeToPoll::default(),
            breaker: Breaker::new(),
            backoff: Backoff::new(config.backoff),
            closed: false,
            drained: false,
            counters: Counters::default(),
            last_creation_error: None,
            next_id: 0,
            generation: 0,
            outdated: false,
            replacing: Replacing::No,
            retains: 0,
            judging: false,
            returns: 0,
            short_paths: false,
            observed: false,
            heard: false,
            maintenance_lost: config.needs_maintenance(),
            maintenance: None,
            close_waiters: Vec::new(),
            next_close_waiter: 0,
            domains: Vec::new(),
            next_healthcheck: None,
            healthcheck_runs: false,
            next_sweep: None,
        }
    }

    /// Returns whether there is a free slot.
    pub(crate) fn has_room(&self) -> bool {
        self.total < self.max
    }

    /// Returns whether a creation may begin now.
    pub(crate) fn may_create(&mut self, now: Instant) -> bool {
        self.claims.age(now);
        self.has_room()
            && self.claims.counted() < self.creation_limit
            && self.backoff.over(now)
            && !self.closed
    }

    /// Returns whether a background creation, for which no acquire waits, may begin now.
    pub(crate) fn may_refill(&mut self, now: Instant) -> bool {
        !self.warming && self.may_create(now) && self.backoff.background_until(now).is_none()
    }

    /// Returns the oldest waiter in the queue for which nothing is being created.
    pub(super) fn first_without_creation(&self) -> Option<WaiterKey> {
        self.waiters.first_without_creation(self.claims.orphans())
    }

    /// Drops the entry of the waiter that has collected this slot, if it is still there. Only for a
    /// slot in hand, whose last reservation was collected.
    #[inline(always)]
    pub(crate) fn forget_collected<T>(&mut self, slot: &Slot<T>) {
        if let Some(key) = self.metas[slot.index()].reserved_for.take()
            && let Some(granted) = self.waiters.forget(key)
        {
            // The slot was stamped when it was collected.
            let took = slot.since().saturating_sub(granted);
            self.wake_to_poll.record(took);
        }
    }

    /// Returns why a resource in hand may not be handed out.
    pub(super) fn unfit(&self, index: usize, clock: &Clock<'_>) -> Option<DestroyReason> {
        let meta = &self.metas[index];
        if self.closed {
            return Some(DestroyReason::Closed);
        }
        if meta.retiring.is_some() {
            return meta.retiring;
        }
        if self.is_above_max() {
            return Some(DestroyReason::Shrunk);
        }
        // Where there is room, maintenance creates its replacement first.
        let expired = meta.expires.is_some_and(|expires| expires <= clock.now());
        if expired && !meta.replaced && !self.has_room() {
            return Some(DestroyReason::Lifetime);
        }
        None
    }

    /// Returns whether a leased resource should come back: more than `expected` acquires wait, or nobody may have it after
    /// its holder.
    pub(crate) fn wants<T>(
        &self,
        index: usize,
        expected: usize,
        slots: &Slots<T>,
        clock: &Clock<'_>,
    ) -> bool {
        let replaces = self.replacing == Replacing::Ready && self.is_outdated(index, slots);
        self.waiters.waiting() > expected
            || replaces
            || self.breaker.state() != BreakerState::Closed
            || self.unfit(index, clock).is_some()
    }

    /// Returns whether a slot has a resource that is to be replaced.
    pub(crate) fn is_outdated<T>(&self, index: usize, slots: &Slots<T>) -> bool {
        let state = slots.at(index).word().state();
        !matches!(state, SlotState::Vacant | SlotState::Creating)
            && self.metas[index].generation != self.generation
    }

    /// Returns a number for the next resource.
    pub(crate) fn next_id(&mut self) -> ResourceId {
        self.next_id += 1;
        ResourceId(self.next_id)
    }

    /// Returns whether every acquire and release has to take the lock (I4).
    pub(crate) fn watched(&self) -> bool {
        self.order != Order::Affine
            || self.observed
            || self.maintenance_lost
            || self.replacing == Replacing::Ready
            || self.judging
            || self.breaker.needs_lock()
    }

    /// Returns whether a lease that begins now has to take the lock when it ends.
    pub(crate) fn must_flag_leases(&self) -> bool {
        self.watched() || self.closed || self.waiters.waiting() > 0 || self.is_above_max()
    }

    pub(super) fn forget_idle(&mut self, index: usize) {
        if self.order != Order::Affine {
            self.ring.retain(|&other| other != index);
        }
    }

    /// Returns whether there are more resources than the maximum, after a shrink.
    pub(super) fn is_above_max(&self) -> bool {
        self.total - self.destroying > self.max
    }

    /// Returns whether there are more resources than the minimum.
    pub(crate) fn above_min(&self) -> bool {
        self.total - self.destroying > self.min
    }

    /// Re-establishes I4 after something that it depends on has changed. Stale flags of leased
    /// slots are cleared lazily, by the next locked release.
    pub(crate) fn update_watch_flags<T>(&self, slots: &Slots<T>) {
        let watched = self.watched();
        for (_, slot) in slots.iter() {
            if watched {
                slot.set_must_lock();
            } else if !self.closed {
                slot.clear_must_lock();
            }
        }
    }

    /// Returns when something is due that acquires wait for: a deadline, a revocation, the end of a
    /// creation that hangs, the end of the back-off.
    pub(crate) fn waiters_due(&mut self, now: Instant) -> Option<Instant> {
        self.claims.age(now);
        let may = self.has_room() && self.claims.counted() < self.creation_limit;
        let lacks = self.first_without_creation().is_some();
        let for_waiters = (may && lacks).then(|| self.backoff.until(now).unwrap_or(now));
        let patience = self.wake_to_poll.patience();
        let for_offers = lacks.then(|| self.claims.next_offer_over(patience));
        let in_queue = self.waiters.waiting() > 0;
        let dues = [
            self.waiters.next_deadline(),
            self.revoke_at,
            self.slow_look_at,
            self.claims.due().filter(|_| in_queue),
            self.claims.next_end(),
            for_offers.flatten(),
            for_waiters,
        ];
        dues.into_iter().flatten().min()
    }

    /// Returns when the maintenance task has to run next.
    pub(crate) fn next_due(&mut self, now: Instant) -> Option<Instant> {
        let waiters_due = self.waiters_due(now);
        let may = self.has_room() && self.claims.counted() < self.creation_limit;
        let for_replacement = (self.outdated && self.replacing == Replacing::No)
            .then(|| self.backoff.background_until(now).unwrap_or(now));
        let for_min = (may && !self.warming && self.total < self.min)
            .then(|| self.backoff.background_until(now).unwrap_or(now));
        [
            waiters_due,
            for_min,
            for_replacement,
            self.breaker.next_due(),
            self.next_healthcheck,
            self.next_sweep,
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Returns whether the short paths ([`State::join`], [`State::hand_off`]) do what the full ones
    /// would do: a newcomer behind others can only wait, and a resource that comes back can only go to
    /// the oldest waiter. Nobody watches, the pool is full, no creation is under way, and maintenance
    /// is going to look at reservations and slow acquires.
    pub(crate) fn allows_short_paths(&self) -> bool {
        self.breaker.state() == BreakerState::Closed
            && !self.closed
            && !self.watched()
            && self.total >= self.max
            && !self.is_above_max()
            && self.claims.count() == 0
            && self.maintenance.is_some()
            && self.revoke_at.is_some()
            && (self.slow_after.is_none() || self.slow_look_at.is_some())
    }

    /// Returns whether maintenance is going to run by itself before this deadline.
    #[inline]
    fn maintenance_comes_before(&self, deadline: Instant) -> bool {
        matches!(self.maintenance, Some(Some(next)) if next <= deadline)
    }

    /// Returns the oldest acquires in the queue, with what each waits for.
    pub(crate) fn queued(&self, most: usize, now: Instant) -> Vec<QueuedAcquire> {
        let creations = self.claims.count();
        // Where every slot is in creation, no lease can end.
        let is_full = !self.has_room() && creations < self.total;
        let queued = self.waiters.in_order().take(most).map(|waiter| {
            let reason = match (waiter.has_creation(), is_full) {
                (true, _) => WaitReason::Creating,
                (false, true) => WaitReason::Full,
                (false, false) if creations > 0 => WaitReason::Creating,
                (false, false) => WaitReason::BackingOff,
            };
            let began = waiter.began.unwrap_or(now);
            QueuedAcquire {
                caller: waiter.caller,
                waited: now.saturating_duration_since(began),
                reason,
            }
        });
        queued.collect()
    }

    /// Returns the number of slots that are not vacant.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// Returns the numbers of the pool; each slot is counted once. Vacant slots and slots in creation
    /// change under the lock only, so their numbers are exact. Idle and leased ones are read until two
    /// readings agree, three times at most.
    pub(crate) fn status<T>(&self, slots: &Slots<T>) -> Status {
        let read = || slots.iter().map(|(_, slot)| slot.word());
        let mut words: Vec<_> = read().collect();
        for _ in 0..2 {
            let again: Vec<_> = read().collect();
            if again == words {
                break;
            }
            words = again;
        }
        let count = |state| words.iter().filter(|word| word.state() == state).count();
        let (creating, reserved) = (count(SlotState::Creating), count(SlotState::Reserved));
        let idle = count(SlotState::Idle) + reserved;
        let active = count(SlotState::Leased);
        Status {
            total: idle + active + creating,
            idle,
            active,
            creating,
            reserved,
            waiting: self.waiters.waiting(),
            max: self.max,
            min: self.min,
            breaker: self.breaker.state(),
            closed: self.closed,
        }
    }

    /// Asserts the invariants, in debug builds. Not under loom, where every read of a slot
    /// multiplies the schedules.
    pub(crate) fn check<T>(&self, slots: &Slots<T>) {
        if !cfg!(debug_assertions) || cfg!(loom) {
            return;
        }
        let (mut total, mut creating) = (0, 0);
        for (index, slot) in slots.iter() {
            let word = slot.word();
            match word.state() {
                SlotState::Vacant => continue,
                SlotState::Creating => creating += 1,
                SlotState::Reserved => debug_assert!(
                    self.metas[index].reserved_for.is_some(),
                    "slot {index} is reserved for nobody"
                ),
                SlotState::Idle => {
                    debug_assert!(self.waiters.waiting() == 0, "I2: slot {index} is idle");
                    debug_assert!(!self.closed, "I5: slot {index} is idle");
                    debug_assert!(!self.watched() || word.must_lock(), "I4: slot {index}");
                }
                SlotState::Leased => debug_assert!(
                    word.must_lock() || !(self.watched() || self.waiters.waiting() > 0),
                    "I2, I4: slot {index} is leased without a flag"
                ),
            }
            total += 1;
        }
        debug_assert_eq!(total, self.total, "I1");
        debug_assert_eq!(creating, self.claims.count(), "I1");
        debug_assert!(!self.closed || self.waiters.waiting() == 0, "I5");
        // What the short paths rely on: a waiter with a creation has a claim.
        debug_assert!(
            self.waiters.with_creation() <= self.claims.count(),
            "claims"
        );
    }
}

/// Returns a slot's index as stored in waiters and grants. It fits: a pool has at most `MOST_SLOTS`.
#[inline]
pub(crate) fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("a pool has fewer than 2^32 slots")
}
