//! An idle resource without the lock: the slot that this thread used last, or else the least recently
//! leased one.

use std::cell::Cell;
use std::ptr;

use crate::breaker::PoolId;
use crate::core::slot::{Slot, SlotState};
use crate::core::{Core, Filled, signal};
use crate::manager::Manager;
use crate::sync::thread_local;

impl<M: Manager> Core<M> {
    /// Leases an idle resource without the lock. Finds nothing while somebody waits, the breaker is not
    /// closed, the pool is closed, or the pool is watched.
    #[inline]
    pub(crate) fn take_unlocked(&self) -> Option<&Slot<Filled<M>>> {
        match last_slot(self) {
            Some(slot) if slot.take() => Some(slot),
            _ => self.take_oldest(),
        }
    }

    /// Returns whether a resource seems to be idle, without the lock.
    pub(crate) fn may_have_idle(&self) -> bool {
        let is_idle = |slot: &Slot<Filled<M>>| slot.word().state() == SlotState::Idle;
        self.signals() & signal::QUEUED == 0 && self.slots.iter().any(|(_, slot)| is_idle(slot))
    }

    #[cold]
    fn take_oldest(&self) -> Option<&Slot<Filled<M>>> {
        // Nothing is idle then, and reading the words would slow their owners.
        if self.signals() & signal::QUEUED != 0 {
            return None;
        }
        loop {
            let (_, slot) = self
                .slots
                .iter()
                .filter(|(_, slot)| {
                    let word = slot.word();
                    word.state() == SlotState::Idle && !word.must_lock()
                })
                .min_by_key(|(_, slot)| slot.since())?;
            // Lost only to a thread that took the slot: look again.
            if slot.take() {
                used(self, slot);
                return Some(slot);
            }
        }
    }
}

/// The number of pools that a thread remembers; more pools share entries.
const POOLS: usize = 4;

/// A pool, and the address of one of its slots.
type Last = Cell<(PoolId, *const ())>;

#[cfg(not(loom))]
thread_local! {
    static LAST: [Last; POOLS] = const { [const { Cell::new((PoolId(0), ptr::null())) }; POOLS] };
}
#[cfg(loom)]
thread_local! {
    static LAST: [Last; POOLS] = [const { Cell::new((PoolId(0), ptr::null())) }; POOLS];
}

/// Returns the slot that this thread used last. It is a hint: another thread may have leased it.
#[inline]
pub(crate) fn last_slot<M: Manager>(core: &Core<M>) -> Option<&Slot<Filled<M>>> {
    // A thread that is ending has no thread-locals any more.
    let (pool, slot) = LAST.try_with(|last| entry(last, core.id).get()).ok()?;
    if pool != core.id {
        return None;
    }
    // SAFETY: `used` stored the address of a slot of the pool with this id. Ids are never used twice, so
    // that pool is `core`, which is borrowed here. Its slots never move and live as long as it does.
    unsafe { slot.cast::<Slot<Filled<M>>>().as_ref() }
}

/// Remembers that this thread used a slot of this pool.
#[inline]
pub(crate) fn used<M: Manager>(core: &Core<M>, slot: &Slot<Filled<M>>) {
    let slot = ptr::from_ref(slot).cast();
    let _ = LAST.try_with(|last| entry(last, core.id).set((core.id, slot)));
}

#[inline]
fn entry(last: &[Last; POOLS], pool: PoolId) -> &Last {
    // The remainder is below POOLS, so the cast loses nothing.
    #[allow(clippy::cast_possible_truncation, reason = "a remainder below POOLS")]
    &last[(pool.0 % POOLS as u64) as usize]
}
