//! The queue: who waits, in the order of arrival, and what each was given.
//!
//! Entries live in one growing table and are linked by index, so a waiter costs
//! one entry and no allocation of its own, leaving from the middle is O(1) and
//! keeps the order, and none of it needs unsafe code. An acquire holds a
//! [`WaiterKey`]; keys are never confused, because every acquire has a serial
//! number of its own, which it keeps if it has to queue again.
//!
//! A waiter that was given a resource need not take the lock to collect it: what
//! it was given also stands in a word of its own ([`Grants`]) that it can read at
//! any time. The word only *tells*; whose the resource is, the slot's word decides
//! (`Slot::collect`). The entry of one that collected without the lock stays until
//! somebody has its slot in hand under the lock again: at most one for each slot.
//!
//! # Invariants
//!
//! W1. Linked entries are exactly those that were given nothing yet, except for
//!     revoked ones: these lost what they were given because they were not polled,
//!     and are linked again, in the order of arrival, when they are.
//! W2. An entry owns at most one resource (`Outcome::Resource`, unless it was
//!     collected) and one place; whoever removes the entry passes both on.
//! W3. The word of an entry that has no resource, or whose resource was
//!     collected, is zero.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::core::grants::{Grant, Grants};

/// Names one waiter, for as long as it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaiterKey {
    index: u32,
    serial: u32,
}

/// Where in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    /// It has just arrived.
    Back,
    /// It was here before everybody in the queue.
    Front,
    /// It was in the queue before: where it would be if it had stayed.
    Arrival,
}

impl WaiterKey {
    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// Whether it came later. Serial numbers wrap, but two waiters are never half a turn
    /// apart.
    pub(crate) fn is_after(self, other: WaiterKey) -> bool {
        self.serial != other.serial && self.serial.wrapping_sub(other.serial) < u32::MAX / 2
    }

    /// Its number in the order of arrival.
    pub(crate) fn serial(self) -> u32 {
        self.serial
    }
}

/// What has become of a waiter.
#[derive(Debug)]
pub(crate) enum Outcome<F> {
    /// Still waiting.
    Waiting,
    /// A resource is reserved for it; `fresh` ones skip the acquire hook.
    Resource { slot: u32, fresh: bool },
    /// The creation it started has failed.
    Failed(Box<F>),
    /// The pool was closed.
    Closed,
    /// The breaker opened.
    Unavailable,
    /// Its deadline passed, and whether a creation of its own was under way.
    TimedOut { creating: bool },
}

#[derive(Debug)]
pub(crate) struct Waiter<F> {
    serial: u32,
    /// Not a free entry.
    live: bool,
    linked: bool,
    prev: u32,
    next: u32,
    /// Has a creation of its own under way, in its place.
    job: bool,
    /// Is served by its own creation only, never from the queue.
    pub(crate) only_own_job: bool,
    /// Has its resource and runs the acquire hook; only its deadline counts.
    pub(crate) checking: bool,
    /// Whether it lost what it was given, and was not polled since.
    pub(crate) lost: Lost,
    pub(crate) outcome: Outcome<F>,
    /// A place it may create in, or creates in; `NIL` if there is none.
    place: u32,
    pub(crate) waker: Option<Waker>,
    /// It has been seen to wait, and counted.
    pub(crate) counted: bool,
    pub(crate) deadline: Option<Instant>,
    /// When it was given a resource, by the coarse clock.
    pub(crate) granted: u64,
    /// Its number, if it was admitted as a probe of the breaker.
    pub(crate) probe: Option<NonZeroU64>,
}

/// Whether a waiter lost what it was given: then it gets nothing until it is polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lost {
    Nothing,
    /// It was not polled in time.
    Late,
    /// There was another reason.
    InTime,
}

/// One that is to wait.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) deadline: Option<Instant>,
    /// The number it had before, if it had one: that is its place in the order of
    /// arrival.
    pub(crate) serial: Option<u32>,
    pub(crate) waker: Option<Waker>,
    pub(crate) counted: bool,
    pub(crate) probe: Option<NonZeroU64>,
}

impl<F> Waiter<F> {
    /// A free entry, and the next one that is free.
    fn free(next: u32) -> Self {
        Waiter {
            serial: 0,
            live: false,
            linked: false,
            prev: NIL,
            next,
            job: false,
            only_own_job: false,
            checking: false,
            lost: Lost::Nothing,
            outcome: Outcome::Waiting,
            place: NIL,
            waker: None,
            counted: false,
            deadline: None,
            granted: 0,
            probe: None,
        }
    }

    /// Whether something is being created for it, or it may create.
    #[inline]
    fn has_creation(&self) -> bool {
        self.place != NIL
    }

    /// Whether it is in the queue and has a deadline that is later than this.
    pub(crate) fn may_wait_until(&self, until: Option<Instant>) -> bool {
        self.linked && self.deadline.is_some_and(|deadline| Some(deadline) > until)
    }

    /// Whether it is in the queue and creates nothing.
    pub(crate) fn lacks_everything(&self) -> bool {
        self.linked && !self.has_creation()
    }

    /// Whether a creation of its own is under way.
    pub(crate) fn creates(&self) -> bool {
        self.job
    }
}

const NIL: u32 = u32::MAX;

/// What changes with everyone who comes and goes stands first, beside the lock:
/// the fewer lines of cache go from thread to thread, the shorter is every turn.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Waiters<F> {
    head: u32,
    tail: u32,
    serial: u32,
    /// The first of the free entries, which are linked by `next`.
    free: u32,
    linked: usize,
    /// Of the linked ones: those with a creation of their own, or the right to one.
    creating: usize,
    /// Entries that are not free.
    live: usize,
    entries: Vec<Waiter<F>>,
    grants: Arc<Grants>,
    /// Deadlines, earliest first. Those of waiters that left go stale and are
    /// dropped when they come up, or when they outnumber the live ones.
    deadlines: BinaryHeap<Reverse<(Instant, u32, u32)>>,
}

impl<F> Waiters<F> {
    pub(crate) fn new() -> Self {
        Waiters {
            grants: Arc::new(Grants::new()),
            head: NIL,
            tail: NIL,
            serial: 0,
            free: NIL,
            linked: 0,
            creating: 0,
            live: 0,
            entries: Vec::new(),
            deadlines: BinaryHeap::new(),
        }
    }

    /// The words that tell waiters what they have.
    pub(crate) fn grants(&self) -> Arc<Grants> {
        Arc::clone(&self.grants)
    }

    /// How many are in the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.linked
    }

    /// How many in the queue wait for others alone: nothing is being created by them.
    #[inline]
    pub(crate) fn without_creation(&self) -> usize {
        self.linked - self.creating
    }

    /// Adds a waiter that is not in the queue yet.
    #[inline]
    pub(crate) fn insert(&mut self, newcomer: Newcomer) -> WaiterKey {
        let deadline = newcomer.deadline;
        let serial = newcomer.serial.unwrap_or_else(|| {
            self.serial = self.serial.wrapping_add(1);
            self.serial
        });
        if self.free == NIL {
            self.grow();
        }
        let index = self.free;
        // It is as `Waiter::free` or `vacate` has left it.
        let entry = self.raw_mut(index);
        let next_free = entry.next;
        entry.serial = serial;
        entry.live = true;
        entry.counted = newcomer.counted;
        entry.deadline = deadline;
        entry.probe = newcomer.probe;
        debug_assert!(entry.waker.is_none(), "a free entry is empty");
        entry.waker = newcomer.waker;
        self.free = next_free;
        self.live += 1;
        if let Some(deadline) = deadline {
            if self.deadlines.len() == self.deadlines.capacity() {
                self.deadlines.reserve_exact(self.deadlines.len() / 8 + 8);
            }
            self.deadlines.push(Reverse((deadline, index, serial)));
        }
        WaiterKey { index, serial }
    }

    /// Adds a free entry to the table.
    #[cold]
    fn grow(&mut self) {
        let index = u32::try_from(self.entries.len())
            .ok()
            .filter(|&index| index != NIL)
            .expect("fewer than four thousand million waiters");
        // An eighth at a time: a crowd's table is large, and half of it empty would
        // be half of it wasted.
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(self.entries.len() / 8 + 8);
        }
        self.entries.push(Waiter::free(self.free));
        // Words are never given back, see `shrink`.
        self.grants.grow_to(self.entries.len());
        self.free = index;
    }

    /// Gives memory back after a burst: the free entries at the end of the table, if they are at
    /// least half of it. The words stay: waiters read them without the lock.
    pub(crate) fn shrink(&mut self) {
        const KEPT: usize = 1024;
        if self.entries.len() < 4 * self.live + KEPT {
            return;
        }
        let last = self.entries.iter().rposition(|entry| entry.live);
        let used = last.map_or(0, |last| last + 1);
        if used > self.entries.len() / 2 {
            return;
        }
        self.entries.truncate(used);
        self.entries.shrink_to(used + KEPT / 2);
        self.deadlines.shrink_to(2 * self.live + KEPT / 2);
        self.free = NIL;
        for (index, entry) in (0..).zip(&mut self.entries) {
            if !entry.live {
                entry.next = std::mem::replace(&mut self.free, index);
            }
        }
    }

    /// Takes a waiter out, from wherever it stands, and gives back what has become
    /// of it: that is not to be dropped here, nor is its waker, which has been taken.
    pub(crate) fn remove(&mut self, key: WaiterKey) -> Outcome<F> {
        let Some(entry) = self.get_mut(key) else {
            return Outcome::Waiting;
        };
        debug_assert!(entry.waker.is_none(), "a waker is somebody else's code");
        let outcome = std::mem::replace(&mut entry.outcome, Outcome::Waiting);
        if let Outcome::Resource { .. } = outcome {
            self.grants.write(key.index, 0);
        }
        self.unlink(key.index);
        self.vacate(key.index);
        outcome
    }

    /// Takes a waiter out that has collected its resource without the lock; says when
    /// it was given that, by the coarse clock.
    #[inline(always)]
    pub(crate) fn forget(&mut self, key: WaiterKey) -> Option<u64> {
        let entry = self.get_mut(key)?;
        debug_assert!(entry.waker.is_none() && !entry.linked);
        let outcome = std::mem::replace(&mut entry.outcome, Outcome::Waiting);
        debug_assert!(matches!(outcome, Outcome::Resource { .. }));
        // A resource that it has got: there is nothing to drop.
        std::mem::forget(outcome);
        let granted = entry.granted;
        self.vacate(key.index);
        Some(granted)
    }

    /// The entry may be used again. There is nothing in it that needs to be dropped.
    #[inline(always)]
    fn vacate(&mut self, index: u32) {
        let next = std::mem::replace(&mut self.free, index);
        let entry = self.raw_mut(index);
        entry.live = false;
        entry.next = next;
        debug_assert!(!entry.has_creation(), "W2");
        entry.only_own_job = false;
        entry.checking = false;
        entry.lost = Lost::Nothing;
        self.live -= 1;
        if self.deadlines.len() > 2 * self.live + 64 {
            let mut deadlines = std::mem::take(&mut self.deadlines);
            deadlines.retain(|&Reverse((_, index, serial))| self.is_live(index, serial));
            self.deadlines = deadlines;
        }
    }

    pub(crate) fn get(&self, key: WaiterKey) -> Option<&Waiter<F>> {
        let entry = self.entries.get(key.index as usize)?;
        (entry.live && entry.serial == key.serial).then_some(entry)
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, key: WaiterKey) -> Option<&mut Waiter<F>> {
        let entry = self.entries.get_mut(key.index as usize)?;
        (entry.live && entry.serial == key.serial).then_some(entry)
    }

    /// Whether the head of the queue has nothing that it would have to give back
    /// for a resource, or to carry over to it.
    #[inline]
    pub(crate) fn head_needs_only_a_resource(&self) -> bool {
        let head = self.entries.get(self.head as usize);
        head.is_some_and(|head| !head.has_creation() && head.probe.is_none())
    }

    /// Takes the head out of the queue and gives it a resource; its waker comes back.
    #[inline]
    pub(crate) fn grant_to_head(
        &mut self,
        grant: Grant,
        granted: u64,
    ) -> Option<(WaiterKey, Option<Waker>)> {
        let key = self.pop()?;
        Some((key, self.grant(key, grant, false, granted)))
    }

    /// Gives a waiter that is not in the queue a resource and tells it so; its waker
    /// comes back. `granted` is the time by the coarse clock.
    #[inline(always)]
    pub(crate) fn grant(
        &mut self,
        key: WaiterKey,
        grant: Grant,
        fresh: bool,
        granted: u64,
    ) -> Option<Waker> {
        let entry = self.raw_mut(key.index);
        debug_assert!(entry.live && !entry.linked && entry.serial == key.serial);
        let slot = grant.slot;
        let before = std::mem::replace(&mut entry.outcome, Outcome::Resource { slot, fresh });
        debug_assert!(matches!(before, Outcome::Waiting));
        // Nothing had become of it: there is nothing to drop.
        std::mem::forget(before);
        debug_assert!(!entry.has_creation(), "W2");
        entry.granted = granted;
        let waker = entry.waker.take();
        self.grants.write(key.index, grant.into_word());
        waker
    }

    /// A waiter has lost what was reserved for it.
    pub(crate) fn retract(&mut self, key: WaiterKey) {
        if let Some(entry) = self.get_mut(key) {
            entry.outcome = Outcome::Waiting;
            self.grants.write(key.index, 0);
        }
    }

    /// Queues a waiter.
    #[inline]
    pub(crate) fn link(&mut self, key: WaiterKey, at: Position) {
        let before = match at {
            Position::Back => NIL,
            Position::Front => self.head,
            Position::Arrival => self.first_younger_than(key),
        };
        let after = match before {
            NIL => self.tail,
            // Nobody stands before the head.
            before if before == self.head => NIL,
            before => self.raw_mut(before).prev,
        };
        let Some(entry) = self.get_mut(key) else {
            return;
        };
        debug_assert!(!entry.linked, "a waiter stands in the queue once");
        debug_assert!(matches!(entry.outcome, Outcome::Waiting), "W1");
        debug_assert_eq!(entry.lost, Lost::Nothing, "W1");
        entry.linked = true;
        (entry.prev, entry.next) = (after, before);
        let creates = entry.has_creation();
        match after {
            NIL => self.head = key.index,
            after => self.raw_mut(after).next = key.index,
        }
        match before {
            NIL => self.tail = key.index,
            before => self.raw_mut(before).prev = key.index,
        }
        self.linked += 1;
        self.creating += usize::from(creates);
    }

    /// Of those with a reservation that they have not collected, the one that
    /// arrived last, and later than `than` if that is given.
    pub(crate) fn youngest_reserved(&self, than: Option<WaiterKey>) -> Option<WaiterKey> {
        self.keys()
            .into_iter()
            .filter(|&key| {
                self.get(key)
                    .is_some_and(|waiter| matches!(waiter.outcome, Outcome::Resource { .. }))
            })
            .filter(|key| than.is_none_or(|than| key.is_after(than)))
            .reduce(|a, b| if b.is_after(a) { b } else { a })
    }

    /// The first in the queue that arrived later. One that comes back to the
    /// queue came before nearly everybody in it, so this looks at few.
    fn first_younger_than(&self, key: WaiterKey) -> u32 {
        let mut index = self.head;
        while let Some(entry) = self.entries.get(index as usize) {
            // Serial numbers wrap, but two waiters are never half a turn apart.
            if entry.serial.wrapping_sub(key.serial) < u32::MAX / 2 {
                break;
            }
            index = entry.next;
        }
        index
    }

    /// Takes the head out of the queue; it stays a waiter and is given something.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<WaiterKey> {
        let key = self.key_at(self.head)?;
        self.unlink(key.index);
        Some(key)
    }

    /// Takes a waiter out of the queue, wherever it stands, but keeps it.
    pub(crate) fn unlink_key(&mut self, key: WaiterKey) {
        if self.get(key).is_some() {
            self.unlink(key.index);
        }
    }

    /// Gives a waiter a place to create in.
    pub(crate) fn give_place(&mut self, key: WaiterKey, place: u32) {
        if let Some(entry) = self.get_mut(key) {
            debug_assert!(!entry.has_creation(), "W2");
            entry.place = place;
            let linked = entry.linked;
            self.creating += usize::from(linked);
        }
    }

    /// The place that a waiter may create in and has not begun to.
    pub(crate) fn unused_place(&self, key: WaiterKey) -> Option<usize> {
        let entry = self.get(key)?;
        (entry.has_creation() && !entry.job).then_some(entry.place as usize)
    }

    /// A waiter begins to create in its place.
    pub(crate) fn begin_job(&mut self, key: WaiterKey) -> Option<usize> {
        let place = self.unused_place(key)?;
        self.get_mut(key)?.job = true;
        Some(place)
    }

    /// Takes the place back that a waiter has not begun to create in.
    pub(crate) fn take_place(&mut self, key: WaiterKey) -> Option<usize> {
        let place = self.unused_place(key)?;
        self.clear_place(key);
        Some(place)
    }

    /// Parts a waiter from the creation that it has begun.
    pub(crate) fn take_job(&mut self, key: WaiterKey) -> Option<usize> {
        let entry = self.get(key).filter(|entry| entry.job)?;
        let place = entry.place as usize;
        self.clear_place(key);
        Some(place)
    }

    /// The creation in this place has ended. `true` if it was this waiter's, which waits
    /// for it.
    pub(crate) fn job_ended(&mut self, starter: WaiterKey, place: usize) -> bool {
        let is_own = self
            .get(starter)
            .is_some_and(|entry| entry.job && entry.place as usize == place);
        if is_own {
            self.clear_place(starter);
        }
        is_own
    }

    fn clear_place(&mut self, key: WaiterKey) {
        if let Some(entry) = self.get_mut(key) {
            entry.place = NIL;
            entry.job = false;
            let linked = entry.linked;
            self.creating -= usize::from(linked);
        }
    }

    /// The first in the queue for which nothing is being created: it has neither a creation
    /// nor a place of its own, and the `orphans` are for those before it.
    ///
    /// Those before it have one each, so this looks at no more entries than
    /// there are places.
    pub(crate) fn first_without_creation(&self, mut orphans: usize) -> Option<WaiterKey> {
        if self.without_creation() <= orphans {
            return None;
        }
        let mut index = self.head;
        while index != NIL {
            let entry = self.entries.get(index as usize)?;
            if !entry.has_creation() {
                if orphans == 0 {
                    return self.key_at(index);
                }
                orphans -= 1;
            }
            index = entry.next;
        }
        None
    }

    /// All waiters, queued or not, in no particular order.
    pub(crate) fn keys(&self) -> Vec<WaiterKey> {
        (0..u32::try_from(self.entries.len()).unwrap_or(NIL))
            .filter_map(|index| self.key_at(index))
            .collect()
    }

    /// When the earliest deadline passes.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        while let Some(&Reverse((deadline, index, serial))) = self.deadlines.peek() {
            if self.is_live(index, serial) {
                return Some(deadline);
            }
            self.deadlines.pop();
        }
        None
    }

    /// The next waiter whose deadline has passed.
    pub(crate) fn pop_expired(&mut self, now: Instant) -> Option<WaiterKey> {
        if self.next_deadline()? > now {
            return None;
        }
        let Reverse((_, index, _)) = self.deadlines.pop()?;
        self.key_at(index)
    }

    fn is_live(&self, index: u32, serial: u32) -> bool {
        self.get(WaiterKey { index, serial }).is_some()
    }

    fn key_at(&self, index: u32) -> Option<WaiterKey> {
        let entry = self.entries.get(index as usize)?;
        entry.live.then_some(WaiterKey {
            index,
            serial: entry.serial,
        })
    }

    #[inline(always)]
    fn unlink(&mut self, index: u32) {
        let entry = self.raw_mut(index);
        if !std::mem::replace(&mut entry.linked, false) {
            return;
        }
        let (prev, next, creates) = (entry.prev, entry.next, entry.has_creation());
        // The head's `prev` may be anything: the queue moves on without touching
        // the entry that becomes its head.
        let first = self.head == index;
        if first {
            self.head = next;
        } else {
            self.raw_mut(prev).next = next;
        }
        match next {
            NIL => self.tail = if first { NIL } else { prev },
            next if !first => self.raw_mut(next).prev = prev,
            _ => {}
        }
        self.linked -= 1;
        self.creating -= usize::from(creates);
    }

    fn raw_mut(&mut self, index: u32) -> &mut Waiter<F> {
        &mut self.entries[index as usize]
    }
}
