//! The table of waiters: who waits, and what each was given. `order.rs` is the queue itself.
//!
//! Entries live in one growing table and are linked by index. So a waiter costs one entry and no
//! allocation, leaves from the middle of the queue in O(1), and needs no unsafe code. An acquire
//! holds a [`WaiterKey`]. Its serial number makes it unique; an acquire that queues again keeps its
//! serial number.
//!
//! A waiter collects a resource without the lock: its grant is also written to a word of its own
//! ([`Grants`]), which it can read at any time. The word is only a hint; the slot's word decides who
//! owns the resource (`Slot::collect`). The entry of a waiter that collected without the lock stays
//! until a thread handles its slot under the lock. So there is at most one such entry per slot.
//!
//! # Invariants
//!
//! W1. The linked entries are exactly those that were given nothing yet, except for revoked ones.
//!     These are linked again, in the order of arrival, when they are polled.
//! W2. An entry owns at most one resource (`Outcome::Resource`, until it is collected) and one slot
//!     to create in. The remover of the entry passes both on.
//! W3. The word of an entry that has no resource, or whose resource was collected, is zero.

mod order;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::num::NonZeroU64;
use std::panic::Location;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::core::grants::{Grant, Grants};

/// Identifies one waiter, for as long as it waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct WaiterKey {
    index: u32,
    serial: u32,
}

/// A position in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Position {
    /// Behind all other waiters.
    Back,
    /// Before all other waiters.
    Front,
    /// Where the order of arrival puts it, for a waiter that was in the queue before.
    Arrival,
}

impl WaiterKey {
    pub(crate) fn index(self) -> u32 {
        self.index
    }

    /// Returns whether this waiter arrived later than another. Serial numbers wrap, but two waiters
    /// are never half of all numbers apart.
    pub(crate) fn is_after(self, other: WaiterKey) -> bool {
        self.serial != other.serial && self.serial.wrapping_sub(other.serial) < u32::MAX / 2
    }

    /// Returns its number in the order of arrival.
    pub(crate) fn serial(self) -> u32 {
        self.serial
    }
}

/// What has become of a waiter.
#[derive(Debug)]
pub(crate) enum Outcome<F> {
    /// It still waits.
    Waiting,
    /// A resource is reserved for it. A `fresh` one skips the acquire hook.
    Resource { slot: u32, fresh: bool },
    /// The creation that it started has failed.
    Failed(Box<F>),
    /// The pool was closed.
    Closed,
    /// The breaker opened.
    Unavailable,
    /// Its deadline passed; `creating` if a creation of its own was under way.
    TimedOut { creating: bool },
}

#[derive(Debug)]
pub(crate) struct Waiter<F> {
    serial: u32,
    /// The entry is in use.
    live: bool,
    linked: bool,
    prev: u32,
    next: u32,
    /// It has begun a creation in `creation_slot`.
    creating: bool,
    /// Only its own creation can serve it, never the queue.
    pub(crate) only_own_creation: bool,
    /// It has its resource and runs the acquire hook. Only its deadline counts.
    pub(crate) checking: bool,
    /// Whether its reservation or its offer was revoked since its last poll.
    pub(crate) revoked: Revoked,
    pub(crate) outcome: Outcome<F>,
    /// The slot that it may create in, or creates in; `NIL` if there is none.
    creation_slot: u32,
    pub(crate) waker: Option<Waker>,
    /// It is counted as one that waited.
    pub(crate) counted: bool,
    /// A slow-acquire warning was given for it.
    pub(crate) warned: bool,
    /// When it began to wait; `None` in a free entry.
    pub(crate) began: Option<Instant>,
    /// The line that called acquire.
    pub(crate) caller: &'static Location<'static>,
    pub(crate) deadline: Option<Instant>,
    /// When it was given a resource, by the coarse clock.
    pub(crate) granted: u64,
    /// Its number, if it was admitted as a probe of the breaker.
    pub(crate) probe: Option<NonZeroU64>,
}

/// Whether a waiter lost its reservation or its offer. Such a waiter gets nothing until it is polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Revoked {
    No,
    /// It was not polled in time.
    Late,
    /// It was in time, but an older waiter needed it, or the pool became smaller.
    InTime,
}

/// What an entry is made of.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) caller: &'static Location<'static>,
    pub(crate) began: Option<Instant>,
    pub(crate) deadline: Option<Instant>,
    /// Its number in the order of arrival, if it was in the queue before.
    pub(crate) serial: Option<u32>,
    pub(crate) waker: Option<Waker>,
    pub(crate) counted: bool,
    pub(crate) probe: Option<NonZeroU64>,
}

impl<F> Waiter<F> {
    /// Makes a free entry, linked to the next free one.
    fn free(next: u32) -> Self {
        Waiter {
            serial: 0,
            live: false,
            linked: false,
            prev: NIL,
            next,
            creating: false,
            only_own_creation: false,
            checking: false,
            revoked: Revoked::No,
            outcome: Outcome::Waiting,
            creation_slot: NIL,
            waker: None,
            counted: false,
            warned: false,
            began: None,
            caller: Location::caller(),
            deadline: None,
            granted: 0,
            probe: None,
        }
    }

    /// Returns whether it creates a resource, or may.
    #[inline]
    pub(crate) fn has_creation(&self) -> bool {
        self.creation_slot != NIL
    }

    /// Returns whether it is in the queue with a deadline later than `until`.
    pub(crate) fn may_wait_until(&self, until: Option<Instant>) -> bool {
        self.linked && self.deadline.is_some_and(|deadline| Some(deadline) > until)
    }

    /// Returns whether it is in the queue without a creation of its own.
    pub(crate) fn lacks_everything(&self) -> bool {
        self.linked && !self.has_creation()
    }

    /// Returns whether a creation of its own is under way.
    pub(crate) fn creates(&self) -> bool {
        self.creating
    }
}

const NIL: u32 = u32::MAX;

/// The fields that change with every join and hand-off come first, beside the lock: the fewer cache
/// lines move between threads, the shorter the lock is held.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Waiters<F> {
    head: u32,
    tail: u32,
    serial: u32,
    /// The first free entry; free entries are linked by `next`.
    free: u32,
    linked: usize,
    /// Of the linked ones: those that create a resource, or may.
    creating: usize,
    /// Entries in use.
    live: usize,
    entries: Vec<Waiter<F>>,
    grants: Arc<Grants>,
    /// Deadlines, earliest first. Those of waiters that have left are dropped when they come up, or
    /// when they outnumber the others.
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

    /// Returns the words in which waiters find their grants.
    pub(crate) fn grants(&self) -> Arc<Grants> {
        Arc::clone(&self.grants)
    }

    /// Returns the number of waiters in the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.linked
    }

    /// Returns how many in the queue create a resource, or may.
    pub(crate) fn with_creation(&self) -> usize {
        self.creating
    }

    /// Returns how many in the queue can only wait for others.
    #[inline]
    pub(crate) fn without_creation(&self) -> usize {
        self.linked - self.creating
    }

    /// Adds an entry that is not in the queue yet.
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
        // The entry is as `Waiter::free` or `vacate` has left it.
        let entry = self.raw_mut(index);
        let next_free = entry.next;
        entry.serial = serial;
        entry.live = true;
        entry.counted = newcomer.counted;
        entry.warned = false;
        entry.began = newcomer.began;
        entry.caller = newcomer.caller;
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
            .expect("fewer than 2^32 waiters");
        // By an eighth: doubling a large table would waste half of it.
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(self.entries.len() / 8 + 8);
        }
        self.entries.push(Waiter::free(self.free));
        // Words are never freed, see `shrink`.
        self.grants.grow_to(self.entries.len());
        self.free = index;
    }

    /// Frees memory after a burst: the free entries at the end of the table, if they are at least
    /// half of it. The words stay, because waiters read them without the lock.
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

    /// Removes a waiter, wherever it stands, and returns what has become of it. The caller drops
    /// that outside the lock, and has taken the waker for the same reason.
    pub(crate) fn remove(&mut self, key: WaiterKey) -> Outcome<F> {
        let Some(entry) = self.get_mut(key) else {
            return Outcome::Waiting;
        };
        debug_assert!(entry.waker.is_none(), "a waker is user code");
        let outcome = std::mem::replace(&mut entry.outcome, Outcome::Waiting);
        if let Outcome::Resource { .. } = outcome {
            self.clear_grant(key);
        }
        self.unlink(key.index);
        self.vacate(key.index);
        outcome
    }

    /// Removes a waiter that has collected its resource. Returns when it was given the resource, by
    /// the coarse clock.
    #[inline(always)]
    pub(crate) fn forget(&mut self, key: WaiterKey) -> Option<u64> {
        let entry = self.get_mut(key)?;
        debug_assert!(entry.waker.is_none() && !entry.linked);
        let outcome = std::mem::replace(&mut entry.outcome, Outcome::Waiting);
        debug_assert!(matches!(outcome, Outcome::Resource { .. }));
        // A collected resource: there is nothing to drop.
        std::mem::forget(outcome);
        let granted = entry.granted;
        self.vacate(key.index);
        Some(granted)
    }

    /// Makes an entry free. Nothing in it needs to be dropped.
    #[inline(always)]
    fn vacate(&mut self, index: u32) {
        let next = std::mem::replace(&mut self.free, index);
        let entry = self.raw_mut(index);
        entry.live = false;
        entry.next = next;
        debug_assert!(!entry.has_creation(), "W2");
        entry.only_own_creation = false;
        entry.checking = false;
        entry.revoked = Revoked::No;
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

    /// Returns whether a waiter was admitted as a probe of the breaker.
    #[inline]
    pub(crate) fn is_probe(&self, key: WaiterKey) -> bool {
        self.entries[key.index as usize].probe.is_some()
    }

    /// Gives a resource to a waiter that is no longer in the queue. Returns its waker. `granted` is
    /// the time by the coarse clock.
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
        // It was waiting: there is nothing to drop.
        std::mem::forget(before);
        debug_assert!(!entry.has_creation(), "W2");
        entry.granted = granted;
        let waker = entry.waker.take();
        self.grants.write(key.index, grant.into_word());
        waker
    }

    /// Takes a waiter's grant away; it waits again.
    pub(crate) fn retract(&mut self, key: WaiterKey) {
        if let Some(entry) = self.get_mut(key) {
            entry.outcome = Outcome::Waiting;
            self.clear_grant(key);
        }
    }

    /// Clears the word of a waiter's grant (W3).
    pub(crate) fn clear_grant(&self, key: WaiterKey) {
        self.grants.write(key.index, 0);
    }

    /// Offers a waiter a slot to create in.
    pub(crate) fn offer_slot(&mut self, key: WaiterKey, slot: u32) {
        if let Some(entry) = self.get_mut(key) {
            debug_assert!(!entry.has_creation(), "W2");
            entry.creation_slot = slot;
            let linked = entry.linked;
            self.creating += usize::from(linked);
        }
    }

    /// Returns the slot that a waiter may create in, if it has not begun.
    pub(crate) fn offered_slot(&self, key: WaiterKey) -> Option<usize> {
        let entry = self.get(key)?;
        (entry.has_creation() && !entry.creating).then_some(entry.creation_slot as usize)
    }

    /// Notes that a waiter begins to create in the slot that it was offered, and returns the slot.
    pub(crate) fn begin_creation(&mut self, key: WaiterKey) -> Option<usize> {
        let slot = self.offered_slot(key)?;
        self.get_mut(key)?.creating = true;
        Some(slot)
    }

    /// Takes back the slot that a waiter was offered and has not begun to create in.
    pub(crate) fn take_offer(&mut self, key: WaiterKey) -> Option<usize> {
        let slot = self.offered_slot(key)?;
        self.clear_creation(key);
        Some(slot)
    }

    /// Parts a waiter from the creation that it has begun. Returns the creation's slot.
    pub(crate) fn take_creation(&mut self, key: WaiterKey) -> Option<usize> {
        let entry = self.get(key).filter(|entry| entry.creating)?;
        let slot = entry.creation_slot as usize;
        self.clear_creation(key);
        Some(slot)
    }

    /// Ends the creation in this slot. Returns whether its starter still waits for it.
    pub(crate) fn creation_ended(&mut self, starter: WaiterKey, slot: usize) -> bool {
        let is_own = self
            .get(starter)
            .is_some_and(|entry| entry.creating && entry.creation_slot as usize == slot);
        if is_own {
            self.clear_creation(starter);
        }
        is_own
    }

    fn clear_creation(&mut self, key: WaiterKey) {
        if let Some(entry) = self.get_mut(key) {
            entry.creation_slot = NIL;
            entry.creating = false;
            let linked = entry.linked;
            self.creating -= usize::from(linked);
        }
    }

    /// Returns all waiters, queued or not, in no particular order.
    pub(crate) fn keys(&self) -> Vec<WaiterKey> {
        (0..u32::try_from(self.entries.len()).unwrap_or(NIL))
            .filter_map(|index| self.key_at(index))
            .collect()
    }

    /// Returns the entries that still wait, in no particular order.
    pub(crate) fn still_waiting_mut(&mut self) -> impl Iterator<Item = &mut Waiter<F>> {
        let entries = self.entries.iter_mut();
        entries.filter(|entry| entry.live && matches!(entry.outcome, Outcome::Waiting))
    }

    /// Returns the earliest deadline.
    pub(crate) fn next_deadline(&mut self) -> Option<Instant> {
        while let Some(&Reverse((deadline, index, serial))) = self.deadlines.peek() {
            if self.is_live(index, serial) {
                return Some(deadline);
            }
            self.deadlines.pop();
        }
        None
    }

    /// Returns the next waiter whose deadline has passed, and drops that deadline.
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

    fn raw_mut(&mut self, index: u32) -> &mut Waiter<F> {
        &mut self.entries[index as usize]
    }
}
