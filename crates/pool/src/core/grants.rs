//! Grants: what waiters were given, in words that they read without the lock.

use std::sync::atomic::Ordering;

use crate::core::table::Table;
use crate::core::waiters::WaiterKey;
use crate::sync::AtomicU64;

/// A resource that is reserved for a waiter, as the waiter itself reads it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Grant {
    pub(crate) slot: u32,
    /// Identifies the reservation of that slot.
    pub(crate) ticket: u32,
}

impl Grant {
    /// Set in every grant, so that none is zero. A slot's number is far below it.
    const SOME: u64 = 1 << 63;

    pub(crate) fn into_word(self) -> u64 {
        Self::SOME | (u64::from(self.slot) << 32) | u64::from(self.ticket)
    }

    #[inline]
    #[allow(
        clippy::cast_possible_truncation,
        reason = "taken apart as put together"
    )]
    fn from_word(word: u64) -> Option<Self> {
        (word != 0).then_some(Grant {
            slot: ((word & !Self::SOME) >> 32) as u32,
            ticket: word as u32,
        })
    }
}

/// One word for each waiter.
#[derive(Debug)]
pub(crate) struct Grants {
    words: Table<AtomicU64>,
}

impl Grants {
    pub(crate) fn new() -> Self {
        Grants {
            words: Table::new(),
        }
    }

    /// Adds words until there is one for each entry of the table of waiters. Words are never freed,
    /// because waiters read them without the lock.
    pub(crate) fn grow_to(&self, entries: usize) {
        while self.words.len() < entries {
            self.words.grow_by(|_| AtomicU64::new(0));
        }
    }

    /// Takes the grant of a waiter, if it has one. The waiter then collects the slot, or takes the lock.
    /// Only for the acquire that waits under this key: later the index belongs to another entry.
    #[inline]
    pub(crate) fn take(&self, key: WaiterKey) -> Option<Grant> {
        let word = self.words.get(key.index() as usize)?;
        // Acquire pairs with the release in `write`: the slot's word is at least as
        // new as this, so an old ticket is not taken for the present one.
        let grant = Grant::from_word(word.load(Ordering::Acquire))?;
        // Relaxed: nobody else reads it. A grant that is written in between is lost here and found
        // under the lock, because the slot has another ticket then.
        word.store(0, Ordering::Relaxed);
        Some(grant)
    }

    /// Writes a waiter's word. For code that holds the lock.
    #[inline]
    pub(crate) fn write(&self, index: u32, word: u64) {
        // Release pairs with the acquire in `take`.
        self.words.at(index as usize).store(word, Ordering::Release);
    }
}
