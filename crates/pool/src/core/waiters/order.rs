//! The order of the queue: a list of entries, linked by index, oldest first.

use super::{NIL, Outcome, Position, Revoked, Waiter, WaiterKey, Waiters};

impl<F> Waiters<F> {
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
        debug_assert_eq!(entry.revoked, Revoked::No, "W1");
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

    /// Takes the oldest waiter out of the queue. It keeps its entry.
    #[inline(always)]
    pub(crate) fn pop(&mut self) -> Option<WaiterKey> {
        let key = self.key_at(self.head)?;
        self.unlink(key.index);
        Some(key)
    }

    /// Takes a waiter out of the queue, wherever it stands. It keeps its entry.
    pub(crate) fn unlink_key(&mut self, key: WaiterKey) {
        if self.get(key).is_some() {
            self.unlink(key.index);
        }
    }

    #[inline(always)]
    pub(super) fn unlink(&mut self, index: u32) {
        let entry = self.raw_mut(index);
        if !std::mem::replace(&mut entry.linked, false) {
            return;
        }
        let (prev, next, creates) = (entry.prev, entry.next, entry.has_creation());
        // The head's `prev` is stale: a new head is not touched when the old one leaves.
        let is_head = self.head == index;
        if is_head {
            self.head = next;
        } else {
            self.raw_mut(prev).next = next;
        }
        match next {
            NIL => self.tail = if is_head { NIL } else { prev },
            next if !is_head => self.raw_mut(next).prev = prev,
            _ => {}
        }
        self.linked -= 1;
        self.creating -= usize::from(creates);
    }

    /// Returns the oldest waiter in the queue that is younger. A waiter that queues again is older
    /// than nearly everybody, so this reads few entries.
    fn first_younger_than(&self, key: WaiterKey) -> u32 {
        let mut index = self.head;
        while let Some(queued) = self.key_at(index) {
            if queued.is_after(key) {
                break;
            }
            index = self.entries[index as usize].next;
        }
        index
    }

    /// Returns the waiters in the queue, oldest first.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Waiter<F>> {
        let at = |index: u32| self.entries.get(index as usize);
        std::iter::successors(at(self.head), move |entry| at(entry.next))
    }

    /// Returns the youngest waiter with an uncollected reservation, younger than `than` if that is
    /// given.
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

    /// Returns the oldest waiter in the queue for which nothing is being created: it has no creation
    /// of its own, and the `orphans` are for those before it.
    ///
    /// All before it have a creation each, so this reads no more entries than there are slots.
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
}
