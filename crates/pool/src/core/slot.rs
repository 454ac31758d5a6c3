//! A slot holds one resource: a word with its state, and the cell.
//!
//! Threads race on the word only. Three of its transitions need no lock:
//!
//! ```text
//! take:     IDLE     ──CAS──> LEASED            (generation + 1)
//! give:     LEASED   ──CAS──> IDLE
//! collect:  RESERVED ──CAS──> LEASED, flagged   (by the waiter it is reserved for)
//! ```
//!
//! All others happen under the lock. Everything rare (somebody waits, the pool
//! shrinks, a lifetime is over, the breaker moved, somebody listens) is one flag
//! in the word, [`MUST_LOCK`]. It makes all three transitions fail, so that the caller takes the
//! lock and looks at the full state. The flag and the state share one word, so a waiter cannot miss a
//! release: either the flag is set first and the holder's `give` fails, or the `give` happens first
//! and the thread that sets flags finds an idle slot.
//!
//! A reservation is revoked under the lock, by a compare-and-swap that races with `collect`, so
//! exactly one of the two gets the slot. Every reservation has a generation of its own, its *ticket*,
//! so that a revoked one is never mistaken for a later one.
//!
//! # Invariants
//!
//! S1. The owner of a slot is the one that moved its word to `LEASED`, `CREATING` or `RESERVED`,
//!     until it moves the word again. Only the owner touches the cell. In `IDLE` only a successful
//!     `take` gives access.
//! S2. The cell holds a value exactly in `IDLE`, `RESERVED` and `LEASED` (in `LEASED` until the owner
//!     takes the value out to destroy it).
//! S3. The generation grows by one with every lease and every reservation, so an equal word at two
//!     moments means that nothing happened in between.

use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use crate::core::table::{self, Table};
use crate::info::Usage;
use crate::sync::{AtomicPtr, AtomicU64, UnsafeCell};

/// The length of one in this many leases of a slot is measured, beginning with the first.
pub(crate) const SAMPLED: u64 = 64;

/// The state of a slot; see [`Word::state`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SlotState {
    /// Empty; it does not count.
    Vacant,
    /// A resource is being created, or a waiter may create one.
    Creating,
    /// Nobody holds the resource.
    Idle,
    /// The resource has a holder, is in a hook, or is being destroyed.
    Leased,
    /// The resource is for one waiter, which has been woken.
    Reserved,
}

const VACANT: u64 = 0;
const CREATING: u64 = 1;
const IDLE: u64 = 2;
const LEASED: u64 = 3;
const RESERVED: u64 = 4;
const STATE: u64 = 0b111;

/// Makes the three lock-free transitions fail.
const MUST_LOCK: u64 = 1 << 3;
const GENERATION: u64 = 1 << 4;

/// A snapshot of a slot's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Word(u64);

impl Word {
    pub(crate) fn state(self) -> SlotState {
        match self.0 & STATE {
            VACANT => SlotState::Vacant,
            CREATING => SlotState::Creating,
            IDLE => SlotState::Idle,
            LEASED => SlotState::Leased,
            _ => SlotState::Reserved,
        }
    }

    /// Returns a value that changes with every lease and every return, and with nothing else.
    pub(crate) fn mark(self) -> u64 {
        self.0 & !MUST_LOCK
    }

    /// Returns the mark that the slot will have once it is idle.
    pub(crate) fn mark_when_idle(self) -> u64 {
        (self.0 & !(STATE | MUST_LOCK)) + IDLE
    }

    pub(crate) fn must_lock(self) -> bool {
        self.0 & MUST_LOCK != 0
    }

    /// Returns the low half of the generation, which identifies this reservation. A waiter compares it
    /// with a ticket that is at most moments old.
    #[inline]
    #[allow(clippy::cast_possible_truncation, reason = "the low half is meant")]
    pub(crate) fn ticket(self) -> u32 {
        (self.0 / GENERATION) as u32
    }
}

/// A slot, on cache lines of its own (two, because processors fetch them in pairs), so that two
/// threads on two slots share nothing.
#[repr(align(128))]
#[derive(Debug)]
pub(crate) struct Slot<T> {
    word: AtomicU64,
    cell: UnsafeCell<Option<T>>,
    /// The source line of the holder; null while the pool holds the slot. The owner writes it, anybody
    /// reads it, and it may lag behind the word.
    caller: AtomicPtr<Location<'static>>,
    usage: Usage,
    /// Its number among the pool's slots.
    index: usize,
}

// SAFETY: the cell is only touched by the one owner that the word names (S1),
// so sharing a slot hands `T` from thread to thread but never shares `&T`.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    fn new(index: usize) -> Self {
        Slot {
            word: AtomicU64::new(VACANT),
            cell: UnsafeCell::new(None),
            caller: AtomicPtr::new(ptr::null_mut()),
            usage: Usage {
                leases: AtomicU64::new(0),
                since: AtomicU64::new(0),
                sampled: AtomicU64::new(0),
            },
            index,
        }
    }

    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Reads the word. Acquire pairs with the release in [`Slot::give`] and
    /// [`Slot::set`], so that a reader who sees a phase also sees its stamps.
    #[inline]
    pub(crate) fn word(&self) -> Word {
        Word(self.word.load(Ordering::Acquire))
    }

    /// Leases an idle, unflagged slot; the caller owns it afterwards.
    #[inline]
    pub(crate) fn take(&self) -> bool {
        // Relaxed: only a guess, the exchange below decides.
        let word = self.word.load(Ordering::Relaxed);
        word & (STATE | MUST_LOCK) == IDLE && self.lease_from(word)
    }

    /// Leases an idle slot, flagged or not. For code that holds the lock.
    pub(crate) fn take_locked(&self) -> bool {
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if word & STATE != IDLE {
                return false;
            }
            // Fails only against a racing `take`, which changes the phase.
            if self.lease_from(word) {
                return true;
            }
        }
    }

    #[inline]
    fn lease_from(&self, word: u64) -> bool {
        let leased = (word & !(STATE | MUST_LOCK)) + GENERATION + LEASED;
        // Acquire pairs with the release of the thread that made the slot idle: the cell's contents
        // are visible before we touch them.
        self.word
            .compare_exchange(word, leased, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Makes a leased, unflagged slot idle. `false`: the caller still owns it, and must take the
    /// lock. After `true` the caller must not touch the pool through this lease: another thread may
    /// have freed it already.
    #[inline]
    pub(crate) fn give(&self) -> bool {
        Self::give_word(&self.word)
    }

    /// Does what [`Slot::give`] does, for a slot that may be freed as soon as it is idle. It borrows
    /// only the word, which is a cell, so that the borrow promises nothing about memory that another
    /// thread may free before this returns.
    ///
    /// # Safety
    ///
    /// The slot is alive until it becomes idle.
    #[inline]
    pub(crate) unsafe fn give_through(slot: NonNull<Self>) -> bool {
        // SAFETY: alive, so the field is in bounds.
        let word = unsafe { &raw const (*slot.as_ptr()).word };
        // SAFETY: as above; an atomic may be shared.
        Self::give_word(unsafe { &*word })
    }

    #[inline]
    fn give_word(atomic: &AtomicU64) -> bool {
        // Relaxed: our own word, only the flag can have changed since.
        let word = atomic.load(Ordering::Relaxed);
        if word & (STATE | MUST_LOCK) != LEASED {
            return false;
        }
        // Release pairs with the acquire of the next `take`. A failure means
        // that the flag was set between load and exchange.
        atomic
            .compare_exchange(
                word,
                word - LEASED + IDLE,
                Ordering::Release,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Moves the slot to another state. For the owner of the slot, under the lock.
    ///
    /// A plain store is enough: only [`Slot::set_must_lock`] could interfere, which runs under the same
    /// lock. Release pairs with the acquire of `take`.
    pub(crate) fn set(&self, state: SlotState, must_lock: bool) -> Word {
        let word = self.word.load(Ordering::Relaxed);
        let (bits, generation) = match state {
            SlotState::Vacant => (VACANT, 0),
            SlotState::Creating => (CREATING, 0),
            SlotState::Idle => (IDLE, 0),
            SlotState::Reserved => (RESERVED, GENERATION),
            SlotState::Leased => (LEASED, GENERATION),
        };
        let flag = if must_lock { MUST_LOCK } else { 0 };
        let next = (word & !(STATE | MUST_LOCK)) + generation + bits + flag;
        self.word.store(next, Ordering::Release);
        Word(next)
    }

    /// Leases a slot that is reserved for the caller, who has this ticket, and flags it, because
    /// somebody may wait. `false`: the reservation was revoked, or has to be collected under the lock.
    #[inline]
    pub(crate) fn collect(&self, ticket: u32) -> bool {
        // Relaxed: only a guess, the exchange below decides.
        let word = self.word.load(Ordering::Relaxed);
        if word & (STATE | MUST_LOCK) != RESERVED || Word(word).ticket() != ticket {
            return false;
        }
        // Acquire pairs with the release in `set`, which reserved it: the cell's
        // contents are visible before we touch them. Races with `take_back`.
        let leased = word - RESERVED + LEASED + MUST_LOCK;
        self.word
            .compare_exchange(word, leased, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }

    /// Revokes a reservation; the caller, which holds the lock, owns the slot afterwards. `false`: it
    /// has been collected, or there was none.
    pub(crate) fn take_back(&self) -> bool {
        let word = self.word.load(Ordering::Relaxed);
        // Acquire pairs with the release in `set`, as in `collect`, with which this races.
        // Everything else that changes a reserved slot holds the lock.
        word & STATE == RESERVED
            && self
                .word
                .compare_exchange(
                    word,
                    (word & !(STATE | MUST_LOCK)) + LEASED + MUST_LOCK,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Makes the waiter that the slot is reserved for take the lock to collect it. For code that
    /// holds the lock.
    pub(crate) fn set_must_lock_if_reserved(&self) {
        if self.word.load(Ordering::Relaxed) & STATE == RESERVED {
            // A slot that has just been collected is flagged already. Relaxed: a thread that finds
            // the flag takes the lock.
            self.word.fetch_or(MUST_LOCK, Ordering::Relaxed);
        }
    }

    /// Flags an idle or leased slot, and returns its state at that moment. For code that holds the
    /// lock. A reserved slot needs no flag: it is flagged when it is collected.
    pub(crate) fn set_must_lock(&self) -> SlotState {
        // AcqRel: the caller may take the slot next, and the holder whose `give` now fails must find
        // what was written under the lock, which it takes.
        let before = self.word.load(Ordering::Relaxed);
        if before & MUST_LOCK != 0 || !matches!(before & STATE, IDLE | LEASED) {
            return Word(before).state();
        }
        Word(self.word.fetch_or(MUST_LOCK, Ordering::AcqRel)).state()
    }

    /// Clears the flag of an idle slot. For code that holds the lock.
    pub(crate) fn clear_must_lock(&self) {
        let word = self.word.load(Ordering::Relaxed);
        if word & (STATE | MUST_LOCK) == IDLE | MUST_LOCK {
            // A flagged idle slot is moved under the lock only, so a store is enough.
            self.word.store(word & !MUST_LOCK, Ordering::Release);
        }
    }

    /// Notes the holder of the slot. For its owner.
    #[inline]
    pub(crate) fn note_holder(&self, caller: &'static Location<'static>, since: u64) {
        self.caller
            .store(ptr::from_ref(caller).cast_mut(), Ordering::Relaxed);
        self.usage.since.store(since, Ordering::Relaxed);
    }

    /// Counts a lease, and returns whether its length is to be measured. For the owner of the slot.
    #[inline]
    pub(crate) fn count_lease(&self) -> bool {
        // Only the owner writes, so no read-modify-write is needed.
        let uses = self.usage.leases.load(Ordering::Relaxed) + 1;
        self.usage.leases.store(uses, Ordering::Relaxed);
        uses % SAMPLED == 1
    }

    /// Returns whether the length of the current lease is to be measured. For the owner of the slot.
    #[inline]
    pub(crate) fn is_sampled(&self) -> bool {
        self.usage.leases.load(Ordering::Relaxed) % SAMPLED == 1
    }

    /// Notes that the pool itself holds the slot. For its owner.
    pub(crate) fn note_pool(&self) {
        self.caller.store(ptr::null_mut(), Ordering::Relaxed);
    }

    /// Notes the time of the last lease without counting one. For the owner of the slot.
    pub(crate) fn stamp(&self, since: u64) {
        self.usage.since.store(since, Ordering::Relaxed);
    }

    /// Returns the holder's source line; `None` while the pool itself holds the slot.
    pub(crate) fn caller(&self) -> Option<&'static Location<'static>> {
        let caller = self.caller.load(Ordering::Relaxed);
        // SAFETY: only `note_holder` stores a non-null pointer, from a
        // `&'static`, so it is valid for ever and never written through.
        unsafe { caller.cast_const().as_ref() }
    }

    pub(crate) fn since(&self) -> u64 {
        self.usage.since.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn usage(&self) -> &Usage {
        &self.usage
    }

    pub(crate) fn uses(&self) -> u64 {
        self.usage.leases.load(Ordering::Relaxed)
    }

    /// Puts a value into the cell.
    ///
    /// # Safety
    ///
    /// The caller owns the slot (S1).
    pub(crate) unsafe fn put(&self, value: T) {
        // SAFETY: the caller is the only one with access (S1).
        self.cell.with_mut(|cell| unsafe { *cell = Some(value) });
    }

    /// Takes the value out of the cell.
    ///
    /// # Safety
    ///
    /// The caller owns the slot (S1).
    pub(crate) unsafe fn take_out(&self) -> Option<T> {
        // SAFETY: the caller is the only one with access (S1).
        self.cell.with_mut(|cell| unsafe { (*cell).take() })
    }

    /// Borrows the value in the cell.
    ///
    /// # Safety
    ///
    /// The caller owns the slot (S1) for as long as it uses the reference.
    #[inline]
    pub(crate) unsafe fn value(&self) -> Option<&T> {
        // SAFETY: the caller is the only one with access (S1), and hands out
        // shared references only under a shared borrow of its own.
        self.cell.with(|cell| unsafe { (*cell).as_ref() })
    }

    /// Borrows the value in the cell mutably.
    ///
    /// # Safety
    ///
    /// The caller owns the slot (S1) for as long as it uses the reference, and
    /// has no other reference into the cell.
    #[inline]
    #[allow(
        clippy::mut_from_ref,
        reason = "S1: the slot's owner has the cell to itself"
    )]
    pub(crate) unsafe fn value_mut(&self) -> Option<&mut T> {
        // SAFETY: the caller is the only one with access (S1) and promises
        // that no other reference into the cell is alive.
        self.cell.with_mut(|cell| unsafe { (*cell).as_mut() })
    }
}

/// The slots of a pool, at addresses that never change.
pub(crate) type Slots<T> = Table<Slot<T>>;

/// The largest number of slots that a pool can have.
pub(crate) const MOST_SLOTS: usize = table::MOST;

impl<T> Slots<T> {
    /// Adds a slot and returns its index. For code that holds the lock.
    pub(crate) fn grow(&self) -> usize {
        self.grow_by(Slot::new)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn two_slots_never_share_a_line_of_cache() {
        assert_eq!(align_of::<Slot<u64>>(), 128);
        assert_eq!(size_of::<Slot<u64>>() % 128, 0);
        let slots = Slots::<u64>::new();
        for _ in 0..100 {
            slots.grow();
        }
        let address = |index| std::ptr::from_ref(slots.at(index)) as usize;
        let mut lines: Vec<_> = (0..100).map(|index| address(index) / 128).collect();
        lines.sort_unstable();
        lines.dedup();
        assert_eq!(lines.len(), 100);
    }

    #[test]
    fn slots_keep_their_address_and_know_their_number() {
        let slots = Slots::<u64>::new();
        let first = slots.grow();
        let address = std::ptr::from_ref(slots.at(first));
        for _ in 1..1000 {
            slots.grow();
        }
        assert!(std::ptr::eq(slots.at(first), address));
        assert!((0..1000).all(|index| slots.at(index).index() == index));
        assert!(slots.get(100_000).is_none());
    }

    #[test]
    fn a_flag_makes_both_lock_free_transitions_fail() {
        let slots = Slots::<u64>::new();
        let slot = slots.at(slots.grow());
        slot.set(SlotState::Idle, false);
        assert!(slot.take());
        assert!(!slot.take(), "it is leased");
        assert_eq!(slot.set_must_lock(), SlotState::Leased);
        assert!(!slot.give(), "the holder has to come by the lock");
        slot.set(SlotState::Idle, true);
        assert!(!slot.take(), "so has the next");
        slot.clear_must_lock();
        assert!(slot.take() && slot.give());
    }
}
