//! Taking an idle resource without the lock.

use crate::core::{Core, Filled, signal};
use crate::hint;
use crate::manager::Manager;
use crate::slot::{Phase, Slot};

impl<M: Manager> Core<M> {
    /// Takes an idle resource without the lock: the one this thread used last,
    /// else the one that was not used for longest. Finds nothing while somebody
    /// waits, the breaker is not closed, the pool is, or anybody watches.
    #[inline]
    pub(crate) fn take_unlocked(&self) -> Option<&Slot<Filled<M>>> {
        match hint::last_slot(self) {
            Some(slot) if slot.take() => Some(slot),
            _ => self.take_oldest(),
        }
    }

    #[cold]
    fn take_oldest(&self) -> Option<&Slot<Filled<M>>> {
        // Nothing is idle then, and looking would only disturb the holders.
        if self.signals() & signal::QUEUED != 0 {
            return None;
        }
        loop {
            let (_, slot) = self
                .slots
                .iter()
                .filter(|(_, slot)| {
                    let word = slot.word();
                    word.phase() == Phase::Idle && !word.summoned()
                })
                .min_by_key(|(_, slot)| slot.since())?;
            // Lost only to somebody who took it: look again.
            if slot.take() {
                hint::used(self, slot);
                return Some(slot);
            }
        }
    }
}
