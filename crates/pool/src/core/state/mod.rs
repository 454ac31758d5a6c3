//! The pool's state machine: everything that is decided under the lock.
//!
//! The holder of the lock has a [`Locked`], through which the state changes. It is
//! synchronous and knows only one `now`; it runs no user code, wakes nobody and
//! drops no resource: what is to be done after unlocking is noted in an
//! [`Deferred`]. What a turn can do stands in three files: `queue` (those who
//! wait), `places` (resources come and go), `changes` (close, resize, breaker).
//! The two of a full pool with a queue have a short path each, in `contended.rs`.
//!
//! # Invariants
//!
//! Checked by [`Locked::check`] at the end of every change, in debug builds.
//!
//! I1. One slot is one place: `total` is the number of slots that are not
//!     vacant, `creating` the number of those in creation, and a slot is claimed
//!     only while `total < max`.
//! I2. While somebody is in the queue, no slot is idle and every leased one is
//!     flagged: no resource can pass the queue by, and none can come back unseen.
//!     A waiter that lost what it was given, because it was not polled in time, is
//!     not in the queue until it is polled: where only such ones wait, slots may
//!     be idle.
//! I3. While somebody in the queue has no creation under way, nor an orphaned one
//!     for it that is less than a second old, there is no room, or the limit on
//!     creations or the back-off forbids using it.
//! I4. While the pool is *watched* (see [`State::watched`]), every idle and
//!     leased slot is flagged: every acquire and release comes by the lock.
//! I5. A closed pool has no waiter and no idle resource.

mod arrival;
mod changes;
mod join;
mod locked;
mod places;
mod revoke;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::task::Waker;
use std::time::{Duration, Instant};

pub(crate) use self::arrival::{Arrival, Looked, Offered, Patience};
pub(crate) use self::locked::{Clock, Deferred, Locked, MaintenanceCall};
use self::revoke::WakeToPoll;
use crate::breaker::{Breaker, BreakerState};
use crate::config::{Config, Order};
use crate::core::backoff::Backoff;
use crate::core::claims::Claims;
use crate::core::slot::{Phase, Slot, Slots};
use crate::core::waiters::{WaiterKey, Waiters};
use crate::observe::events::DestroyReason;
use crate::observe::status::{Counters, CreationError, ResourceId, Status};
use crate::upkeep::replace::Replacing;

/// What is known of the resource in a slot. Meaningless while it is vacant.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    pub(crate) id: ResourceId,
    pub(crate) expires: Option<Instant>,
    /// It had expired when the maintenance task looked last: so the hand-off need not read the clock.
    pub(crate) is_expired: bool,
    /// Must go at the next opportunity.
    pub(crate) retiring: Option<DestroyReason>,
    /// When it came back last, among all returns; its place in the ring.
    pub(crate) returned: u64,
    /// Its lifetime is over, and the one to follow it is being made.
    pub(crate) replaced: bool,
    /// The pool's generation when its creation began.
    pub(crate) generation: u64,
    /// The last predicate of `retain` that it has passed, or that was there before it.
    pub(crate) judged: u64,
    /// The executor its I/O depends on.
    pub(crate) domain: Option<u64>,
    /// Its number, if the present lease is a probe of the breaker.
    pub(crate) probe: Option<u64>,
    /// The precise time of the present lease, where use is measured.
    pub(crate) leased: Option<Instant>,
    /// The slot's mark when the maintenance task looked last, and since when it is that.
    pub(crate) seen: (u64, Instant),
    /// The mark of the lease that was warned about.
    pub(crate) warned: Option<u64>,
    /// The waiter it was reserved for last, until that is known to have got it.
    pub(crate) reserved_for: Option<WaiterKey>,
}

impl Meta {
    /// [`State::forget_collected`], for one who has the meta in hand.
    #[inline(always)]
    pub(crate) fn forget_collected<T, F>(
        &mut self,
        slot: &Slot<T>,
        waiters: &mut Waiters<F>,
        wake_to_poll: &mut WakeToPoll,
    ) {
        if let Some(key) = self.reserved_for.take()
            && let Some(granted) = waiters.forget(key)
        {
            // The slot was stamped when it was collected.
            wake_to_poll.note(slot.since().saturating_sub(granted));
        }
    }

    /// Whether there is more to be thought of than who gets it next.
    #[inline]
    pub(crate) fn is_special(&self) -> bool {
        self.retiring.is_some() || self.is_expired || self.probe.is_some()
    }
}

/// Who comes and goes is first, beside the lock; what every turn reads follows.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct State<F> {
    pub(crate) waiters: Waiters<F>,
    pub(crate) metas: Vec<Meta>,
    pub(crate) max: usize,
    total: usize,
    /// Of the total: on their way out.
    destroying: usize,
    /// How many may wait without a creation.
    pub(crate) max_waiting: usize,
    order: Order,
    pub(crate) closed: bool,
    /// [`State::is_ordinary`], as it was after the last turn.
    pub(crate) ordinary: bool,
    /// Someone listens to events.
    pub(crate) observed: bool,
    /// Histograms are kept.
    timed: bool,
    /// There should be a maintenance task and is none: the next acquire starts it.
    pub(crate) maintenance_lost: bool,
    /// Until when the maintenance task sleeps; `None` if there is no maintenance task.
    pub(crate) maintenance: Option<Option<Instant>>,
    /// When the oldest reservation runs out of patience.
    patience_over: Option<Instant>,
    /// There may be reservations that ran out of it while nobody was in the queue.
    overdue: bool,
    pub(crate) wake_to_poll: WakeToPoll,
    pub(crate) breaker: Breaker,
    pub(crate) counters: Counters,
    pub(crate) min: usize,
    /// The pool is being opened: its first resources are made one by one, by the opener.
    pub(crate) warming: bool,
    creation_limit: usize,
    create_timeout: Option<Duration>,
    pub(crate) claims: Claims,
    /// Vacant slots, lowest first.
    vacant: BinaryHeap<Reverse<usize>>,
    /// Idle slots in the order they came back; only where the order is exact.
    ring: VecDeque<usize>,
    pub(crate) backoff: Backoff,
    /// Closed, and the last place was given up.
    pub(crate) drained: bool,
    pub(crate) last_creation_error: Option<CreationError>,
    next_id: u64,
    /// How often everything was to be replaced. Resources of an earlier one are outdated.
    pub(crate) generation: u64,
    /// There may be outdated resources.
    pub(crate) outdated: bool,
    pub(crate) replacing: Replacing,
    /// How many predicates `retain` was given.
    pub(crate) retains: u64,
    /// There may be resources that have not passed all of them.
    pub(crate) judging: bool,
    /// Numbers the returns, for the ring.
    returns: u64,
    /// Those who wait for the pool to be closed or drained.
    pub(crate) close_waiters: Vec<(u64, Waker)>,
    pub(crate) next_close_waiter: u64,
    /// Executors that a runtime_watch watches.
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
            creation_limit: config.concurrent_creations.unwrap_or(usize::MAX),
            total: 0,
            claims: Claims::default(),
            destroying: 0,
            max_waiting: config.max_waiting.unwrap_or(usize::MAX),
            vacant: BinaryHeap::new(),
            ring: VecDeque::new(),
            metas: Vec::new(),
            waiters: Waiters::new(),
            patience_over: None,
            overdue: false,
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
            ordinary: false,
            observed: false,
            timed: config.histograms,
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

    /// Whether there is a free place.
    pub(crate) fn has_room(&self) -> bool {
        self.total < self.max
    }

    /// Whether a creation may begin now.
    pub(crate) fn may_create(&mut self, now: Instant) -> bool {
        self.claims.age(now);
        self.has_room()
            && self.claims.counted() < self.creation_limit
            && self.backoff.over(now)
            && !self.closed
    }

    /// Whether one may begin that nobody waits for.
    pub(crate) fn may_refill(&mut self, now: Instant) -> bool {
        !self.warming && self.may_create(now) && self.backoff.background_until(now).is_none()
    }

    /// The first in the queue for which nothing is being created.
    pub(super) fn first_without_creation(&self) -> Option<WaiterKey> {
        self.waiters.first_without_creation(self.claims.orphans())
    }

    /// Drops the entry of the waiter that has collected this slot, if there is one.
    /// For a slot in hand: the waiter that it was reserved for has collected it.
    pub(crate) fn forget_collected<T>(&mut self, slot: &Slot<T>) {
        let meta = &mut self.metas[slot.index()];
        meta.forget_collected(slot, &mut self.waiters, &mut self.wake_to_poll);
    }

    /// Why a resource that is with the pool may not be handed out.
    pub(super) fn unfit(&self, index: usize, clock: &Clock<'_>) -> Option<DestroyReason> {
        let meta = &self.metas[index];
        if self.closed {
            return Some(DestroyReason::Closed);
        }
        if meta.retiring.is_some() {
            return meta.retiring;
        }
        if self.total - self.destroying > self.max {
            return Some(DestroyReason::Shrunk);
        }
        // Where there is room, the maintenance task makes its replacement first.
        let expired = meta.expires.is_some_and(|expires| expires <= clock.now());
        if expired && !meta.replaced && !self.has_room() {
            return Some(DestroyReason::Lifetime);
        }
        None
    }

    /// Whether a slot has a resource that is to be replaced.
    pub(crate) fn is_outdated<T>(&self, index: usize, slots: &Slots<T>) -> bool {
        let phase = slots.at(index).word().phase();
        !matches!(phase, Phase::Vacant | Phase::Creating)
            && self.metas[index].generation != self.generation
    }

    /// The next resource's number.
    pub(crate) fn next_id(&mut self) -> ResourceId {
        self.next_id += 1;
        ResourceId(self.next_id)
    }

    /// Whether every acquire and release has to come by the lock (I4).
    pub(crate) fn watched(&self) -> bool {
        self.order != Order::Affine
            || self.observed
            || self.timed
            || self.maintenance_lost
            || self.replacing == Replacing::Ready
            || self.judging
            || self.breaker.needs_lock()
    }

    /// Whether a lease that begins now has to come by the lock when it ends.
    pub(crate) fn must_flag_leases(&self) -> bool {
        self.watched()
            || self.closed
            || self.waiters.waiting() > 0
            || self.total - self.destroying > self.max
    }

    pub(super) fn forget_idle(&mut self, index: usize) {
        if self.order != Order::Affine {
            self.ring.retain(|&other| other != index);
        }
    }

    /// Whether there are more resources than the pool keeps up.
    pub(crate) fn above_min(&self) -> bool {
        self.total - self.destroying > self.min
    }

    /// Re-establishes I4 after something it depends on has changed. Leased slots
    /// keep a flag that is no longer needed: their next return clears it.
    pub(crate) fn rewatch<T>(&self, slots: &Slots<T>) {
        let watched = self.watched();
        for (_, slot) in slots.iter() {
            if watched {
                slot.set_must_lock();
            } else if !self.closed {
                slot.clear_must_lock();
            }
        }
    }

    /// When something is due that acquires wait for: a deadline, a reservation that nobody
    /// collects, a creation that hangs, the end of the back-off.
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
            self.patience_over,
            self.claims.due().filter(|_| in_queue),
            self.claims.next_end(),
            for_offers.flatten(),
            for_waiters,
        ];
        dues.into_iter().flatten().min()
    }

    /// When the maintenance task has to come by next.
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

    /// Whether a newcomer behind others can but wait, and what comes back can but
    /// go to the head of the queue: nobody wants to know of it, no place is free,
    /// nothing is to go, and there is a maintenance task that minds reservations.
    pub(crate) fn is_ordinary(&self) -> bool {
        self.breaker.state() == BreakerState::Active
            && !self.closed
            && !self.watched()
            && self.total >= self.max
            && self.total - self.destroying <= self.max
            && self.maintenance.is_some()
            && self.patience_over.is_some()
    }

    /// Whether the maintenance task looks at the time by itself before this.
    #[inline]
    pub(crate) fn maintenance_comes_before(&self, deadline: Instant) -> bool {
        matches!(self.maintenance, Some(Some(next)) if next <= deadline)
    }

    /// How many places are in use.
    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// The numbers, each slot counted once. Vacant slots and slots in creation
    /// change under the lock only, so those are exact; idle and leased ones are
    /// read until two readings agree, three times at most.
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
        let count = |phase| words.iter().filter(|word| word.phase() == phase).count();
        let (creating, reserved) = (count(Phase::Creating), count(Phase::Reserved));
        let idle = count(Phase::Idle) + reserved;
        let active = count(Phase::Leased);
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

    /// Asserts the invariants, in debug builds. Not under loom, where every look
    /// at a slot multiplies the schedules.
    pub(crate) fn check<T>(&self, slots: &Slots<T>) {
        if !cfg!(debug_assertions) || cfg!(loom) {
            return;
        }
        let (mut total, mut creating) = (0, 0);
        for (index, slot) in slots.iter() {
            let word = slot.word();
            match word.phase() {
                Phase::Vacant => continue,
                Phase::Creating => creating += 1,
                Phase::Reserved => debug_assert!(
                    self.metas[index].reserved_for.is_some(),
                    "slot {index} is reserved for nobody"
                ),
                Phase::Idle => {
                    debug_assert!(self.waiters.waiting() == 0, "I2: slot {index} is idle");
                    debug_assert!(!self.closed, "I5: slot {index} is idle");
                    debug_assert!(!self.watched() || word.must_lock(), "I4: slot {index}");
                }
                Phase::Leased => debug_assert!(
                    word.must_lock() || !(self.watched() || self.waiters.waiting() > 0),
                    "I2, I4: slot {index} is leased without a flag"
                ),
            }
            total += 1;
        }
        debug_assert_eq!(total, self.total, "I1");
        debug_assert_eq!(creating, self.claims.count(), "I1");
        debug_assert!(!self.closed || self.waiters.waiting() == 0, "I5");
    }
}

/// Slot indices fit: a pool has at most `MOST_SLOTS` of them.
#[inline]
pub(crate) fn narrow(index: usize) -> u32 {
    u32::try_from(index).expect("a pool has fewer than 2^32 slots")
}
